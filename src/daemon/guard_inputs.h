/* beside: what the guard is told beside its looks: Xids of the kernel's log, games, what idling models cost,
 * caps of power and energy; and what people are told of alone: ghosts, and processes of two workers.
 *
 * Rides on the ticks of the engine, on the main thread.  Whoever owns the guard hands in how to tell it, so that
 * all that is told is recorded in one place. */
#ifndef GW_DAEMON_GUARD_INPUTS_H
#define GW_DAEMON_GUARD_INPUTS_H

#include "guard_config.h"
#include "store.h"

#include "base/loop.h"
#include "device/event_watch.h"
#include "guard/economy.h"
#include "serve/guard_view.h"
#include "serve/view.h"

struct guard_inputs_calls {
	void (*xid)(void *arg, const struct driver_event *e, bool past);
	void (*reason)(void *arg, const char *uuid, enum guard_reason r, bool on,
		       const char *why);
	void (*games)(void *arg, unsigned count);
	void (*economy)(void *arg, unsigned worker, const struct economy_figures *f);
	uint64_t (*tell)(void *arg, const struct view_event *e);
	void *arg;
};

struct guard_inputs;

/* All is borrowed but the calls, which are copied.  0 or -GW_E_NOMEM. */
int guard_inputs_new(struct loop *loop, struct gw_ctx *ctx, struct store *store,
		     const struct guard_settings *settings,
		     const struct guard_inputs_calls *calls, struct guard_inputs **ret);
void guard_inputs_free(struct guard_inputs *b);

/* Other settings, borrowed: what was learned of workers is forgotten, caps are judged anew, games stay.  What can
 * fail is made first (0 or -GW_E_NOMEM) and then takes the place of what was, or is freed (NULL: nothing). */
struct beside_parts;
int guard_inputs_prepare(const struct guard_inputs *b, const struct guard_settings *settings,
			 struct beside_parts **ret);
void guard_inputs_change(struct guard_inputs *b, struct beside_parts *p); /* takes p */
void guard_inputs_parts_free(struct beside_parts *p);

void guard_inputs_tick(struct guard_inputs *b, const struct guard *guard, const struct view *v);
/* A driver told of an Xid: false, if the log already did. */
bool guard_inputs_heard(struct guard_inputs *b, const struct driver_event *e);

/* As games_begin() and games_end(). */
int guard_inputs_game(struct guard_inputs *b, int64_t pid, uint64_t start_ticks,
		      uint64_t ttl_ns, int64_t uid, const char *who, bool *ret_kept);
int guard_inputs_game_end(struct guard_inputs *b, int64_t pid, int64_t uid);

/* Its part of the view. */
void guard_inputs_show(const struct guard_inputs *b, struct guard_view *ret);

#endif
