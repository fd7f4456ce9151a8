/* beside: what the guard is told beside its looks: Xids of the kernel's log, games, what idling models cost,
 * caps of power and energy; and what people are told of alone: ghosts, and processes of two workers.
 *
 * Rides on the ticks of the engine, on the main thread.  Whoever owns the guard hands in how to tell it, so that
 * all that is told is recorded in one place. */
#ifndef GW_DAEMON_BESIDE_H
#define GW_DAEMON_BESIDE_H

#include "guard_config.h"
#include "store.h"

#include "base/loop.h"
#include "device/watch.h"
#include "guard/economy.h"
#include "serve/guard_view.h"
#include "serve/view.h"

struct beside_calls {
	void (*xid)(void *arg, const struct watch_event *e, bool past);
	void (*reason)(void *arg, const char *uuid, enum guard_reason r, bool on,
		       const char *why);
	void (*games)(void *arg, unsigned count);
	void (*economy)(void *arg, unsigned worker, const struct economy_figures *f);
	uint64_t (*tell)(void *arg, const struct view_event *e);
	void *arg;
};

struct beside;

/* All is borrowed but the calls, which are copied.  0 or -GW_E_NOMEM. */
int beside_new(struct loop *loop, struct gw_ctx *ctx, struct store *store,
	       const struct guard_settings *settings, const struct beside_calls *calls,
	       struct beside **ret);
void beside_free(struct beside *b);

/* Other settings, borrowed: what was learned of workers is forgotten, caps are judged anew, games stay.  What can
 * fail is made first (0 or -GW_E_NOMEM) and then takes the place of what was, or is freed (NULL: nothing). */
struct beside_parts;
int beside_prepare(const struct beside *b, const struct guard_settings *settings,
		   struct beside_parts **ret);
void beside_change(struct beside *b, struct beside_parts *p); /* takes p */
void beside_parts_free(struct beside_parts *p);

void beside_tick(struct beside *b, const struct guard *guard, const struct view *v);
/* A driver told of an Xid: false, if the log already did. */
bool beside_heard(struct beside *b, const struct watch_event *e);

/* As games_begin() and games_end(). */
int beside_game(struct beside *b, int64_t pid, uint64_t start_ticks, uint64_t ttl_ns,
		int64_t uid, const char *who, bool *ret_kept);
int beside_game_end(struct beside *b, int64_t pid, int64_t uid);

/* Its part of the view. */
void beside_show(const struct beside *b, struct guard_view *ret);

#endif
