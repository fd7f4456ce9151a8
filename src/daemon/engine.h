/* engine: owns the GPUs, the history and the counts, and makes the view of each tick.
 *
 * On the main thread.  The reader hands it what the GPUs said; it compares with what was before
 * (and tells of what changed), adds up what grows for ever, keeps the past in the store, and
 * offers the operations of view.h. */
#ifndef GW_DAEMON_ENGINE_H
#define GW_DAEMON_ENGINE_H

#include "guard_config.h"
#include "store.h"

#include "base/loop.h"
#include "serve/view.h"

struct engine;

struct engine_config {
	const struct gw_options *options; /* of the context */
	uint64_t interval_ns;
	bool manage;                  /* settings of GPUs may be changed */
	struct guard_settings *guard; /* taken over; NULL: no guard */
	const char *cache_dir;        /* of sensor profiles; NULL: as XDG says */
	struct loop *loop;
	struct store *store;       /* borrowed */
	void (*ticked)(void *arg); /* there is a new view */
	/* The meter goes away: windows on it must end now. */
	void (*meter_gone)(void *arg);
	/* Something happened; it has its id, and is kept already. */
	void (*happened)(void *arg, const struct view_event *e);
	void *arg;
};

/* Returns at once; the first tick comes when the drivers are open.  0, -GW_E_NOMEM or -GW_E_IO. */
int engine_new(const struct engine_config *config, struct engine **ret);

/* Before engine_free(), for who has something to say afterwards: with on_stop = "restore" workers come back first.  0, or
 * -GW_E_STATE: something hangs, and is left behind with the engine.  e may be NULL. */
int engine_end_guard(struct engine *e, uint64_t timeout_ns);
/* 0, or -GW_E_STATE as reader_free(). */
int engine_free(struct engine *e, uint64_t timeout_ns);

/* As of the last tick.  Lives as long as the engine; its content changes with the next. */
const struct view *engine_view(struct engine *e);

void engine_set_interval(struct engine *e, uint64_t interval_ns);
void engine_set_manage(struct engine *e, bool on);
/* The kernel says that a driver came or goes (uevent.h). */
void engine_moved(struct engine *e, bool gone);
/* Taken over; guard_service_reload(). */
void engine_set_guard(struct engine *e, struct guard_settings *settings);

/* Tells of something: keeps it and calls `happened`. */
void engine_tell(struct engine *e, const char *kind, const char *uuid, const char *severity,
		 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
