/* guarding: the guard in the service: looks, decides, journals, acts.
 *
 * On the main thread, but for the looker's and the action's own threads and the watch's.  An order is given
 * out only when the record that tells of it is in the file; where nothing can be kept, evictions
 * above level 2 are refused.  Health and capacity ride on the ticks of the engine. */
#ifndef GW_DAEMON_GUARD_SERVICE_H
#define GW_DAEMON_GUARD_SERVICE_H

#include "guard_config.h"
#include "store.h"

#include "base/clock.h"
#include "base/loop.h"
#include "serve/guard_view.h"
#include "serve/view.h"

struct guard_service;

struct guard_service_config {
	struct loop *loop;
	const struct clock *clock; /* borrowed; NULL: the machine's */
	struct store *store;
	struct gw_ctx *ctx;
	struct guard_settings *settings; /* taken over, also when it fails */
	/* Tells of something; the event's id. */
	uint64_t (*tell)(void *arg, const struct view_event *e);
	void *arg;
};

/* Needs a context that is open.  0, -GW_E_NOMEM or -GW_E_IO. */
int guard_service_new(const struct guard_service_config *config, struct guard_service **ret);

/* Ends it: with restore_on_stop workers come back first.  0, or -GW_E_STATE: something hangs and is left
 * behind with all that it uses. */
int guard_service_free(struct guard_service *g, uint64_t timeout_ns);

/* Another configuration, taken over.  It comes into force when no order is under way, at most at once: what is
 * known of workers that are in both stays, and what changed is told. */
void guard_service_reload(struct guard_service *g, struct guard_settings *settings);

/* A tick of the engine: health and capacity. */
void guard_service_tick(struct guard_service *g, const struct view *v);

/* For the view of this tick. */
const struct guard_view *guard_service_view(struct guard_service *g);

extern const struct guard_view_ops guarding_ops; /* their engine is the struct guard_service */

#endif
