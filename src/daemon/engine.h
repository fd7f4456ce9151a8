/* engine: owns the GPUs, the history and the counts, and makes the view of each tick.
 *
 * Runs on the main thread. The reader delivers what the GPUs reported; the engine compares it
 * with the previous tick, emits events for changes, adds up counts, writes history to the
 * store and offers the operations of view.h. */
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
	bool manage;                  /* GPU settings may be changed */
	struct guard_settings *guard; /* owned from now on; NULL: no guard */
	const char *cache_dir;        /* for sensor profiles; NULL: the XDG default */
	struct loop *loop;
	struct store *store;       /* borrowed */
	void (*ticked)(void *arg); /* a new view is complete */
	/* The meter is about to stop: close all windows on it now. */
	void (*meter_gone)(void *arg);
	/* An event with its id, already in the store. */
	void (*happened)(void *arg, const struct view_event *e);
	void *arg;
};

/* Returns at once; the first tick comes when the drivers are open.  0, -GW_E_NOMEM or -GW_E_IO. */
int engine_new(const struct engine_config *config, struct engine **ret);

/* Call before engine_free() when events of the guard's end must still be handled: with
 * on_stop = "restore" the workers resume first. 0, or -GW_E_STATE: a thread hangs and is left
 * behind with the engine. e may be NULL. */
int engine_end_guard(struct engine *e, uint64_t timeout_ns);
/* 0, or -GW_E_STATE as reader_free(). */
int engine_free(struct engine *e, uint64_t timeout_ns);

/* The view of the last tick. It lives as long as the engine; the next tick changes it. */
const struct view *engine_view(struct engine *e);

void engine_set_interval(struct engine *e, uint64_t interval_ns);
void engine_set_manage(struct engine *e, bool on);
/* The kernel reports that a driver was loaded or unloaded (uevent.h). */
void engine_moved(struct engine *e, bool gone);
/* Takes ownership of the settings; see guard_service_reload(). */
void engine_set_guard(struct engine *e, struct guard_settings *settings);

/* Emits an event: stores it and calls `happened`. */
void engine_event(struct engine *e, const char *kind, const char *uuid, const char *severity,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
