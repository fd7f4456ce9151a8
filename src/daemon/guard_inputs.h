/* guard_inputs: collects the inputs of the guard that are not scenes: Xids from the kernel log,
 * games, the energy of idle models, and the caps of power and energy that are exceeded. It also
 * emits events about unattributed GPU use and about processes that match two workers.
 *
 * It runs at the engine's ticks, on the main thread. All inputs go to the guard through
 * guard_recorder.c. */
#ifndef GW_DAEMON_GUARD_INPUTS_H
#define GW_DAEMON_GUARD_INPUTS_H

#include "guard_config.h"

#include "device/event_watch.h"
#include "serve/guard_view.h"
#include "serve/view.h"

struct guard_service;
struct guard_inputs;

/* Creates the inputs of the guard. Borrows g. Returns 0 or -GW_E_NOMEM. */
int guard_inputs_new(struct guard_service *g, struct guard_inputs **ret);
void guard_inputs_free(struct guard_inputs *b);

/* New settings (borrowed) are applied in two steps. guard_inputs_prepare() allocates the new
 * parts and returns 0 or -GW_E_NOMEM. Then the caller either passes the parts to
 * guard_inputs_change(), which applies and owns them, or frees them with free(). The games, the
 * learned figures of the workers and the energy that each GPU used today stay the same. */
struct guard_inputs_parts;
int guard_inputs_prepare(const struct guard_settings *settings,
			 struct guard_inputs_parts **ret);
void guard_inputs_change(struct guard_inputs *b, struct guard_inputs_parts *p);

void guard_inputs_tick(struct guard_inputs *b, const struct view *v);
/* Call it when a driver reports an Xid. Returns false if the Xid was already found in the
 * kernel log. */
bool guard_inputs_note_xid(struct guard_inputs *b, const struct driver_event *e);

/* Work like games_begin() and games_end(). */
int guard_inputs_game(struct guard_inputs *b, int64_t pid, uint64_t start_ticks,
		      uint64_t ttl_ns, int64_t uid, const char *who, bool *ret_kept);
int guard_inputs_game_end(struct guard_inputs *b, int64_t pid, int64_t uid);

/* Fills the part of the view that this module owns. */
void guard_inputs_show(const struct guard_inputs *b, struct guard_view *ret);

#endif
