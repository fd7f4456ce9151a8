/* guard_service: runs the guard in the service. It observes, decides, writes the journal and
 * acts.
 *
 * It runs on the main thread, except for the scene thread, the action threads and the event
 * watch. An order is carried out only after its record is in the store. If nothing can be
 * stored, evictions above level 2 (unload) are refused. Health and capacity are updated at the
 * engine's ticks. */
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
	const struct clock *clock; /* Borrowed. NULL means the real clock. */
	struct store *store;
	struct gw_ctx *ctx;
	/* The guard service takes ownership, also on failure. */
	struct guard_settings *settings;
	/* Emits an event and returns its id. */
	uint64_t (*emit)(void *arg, const struct view_event *e);
	/* Called when the set of processes on the GPUs has changed. May be NULL. */
	void (*processes_changed)(void *arg);
	void *arg;
};

/* Starts the guard when its journal is readable, and tries again after a failure. The caller
 * sets the struct to zero before use. */
struct guard_start {
	struct guard_settings settings; /* Valid while `waits` is true. */
	bool waits;                     /* The guard has not been started yet. */
	/* Monotonic time of the next attempt, and the pause before it. 0 if no attempt
	 * failed. */
	uint64_t at_ns, pause_ns;
	char why[160]; /* Why the last attempt failed. "" if no attempt failed. */
};
/* Takes ownership of the settings for the start. */
void guard_start_set(struct guard_start *s, struct guard_settings *settings);
void guard_start_done(struct guard_start *s);
/* Starts the guard if an attempt is due. config->settings is not used. If first is true, this
 * is the first attempt, and the reason for a delay is logged. Returns the guard, or NULL if the
 * guard has not started. */
struct guard_service *guard_start_try(struct guard_start *s,
				      const struct guard_service_config *config, bool first);

/* Stops the guard. With restore_on_stop it resumes workers first. Returns 0, or -GW_E_STATE
 * if a thread hangs. The thread and everything that it uses then stay in memory. */
int guard_service_free(struct guard_service *g, uint64_t timeout_ns);

/* Takes ownership of new settings and applies them when no order is running. Workers that
 * are in both configurations keep their state. Changes are logged. */
void guard_service_reload(struct guard_service *g, struct guard_settings *settings);

/* Updates health and capacity. Called at each tick of the engine. */
void guard_service_tick(struct guard_service *g, const struct view *v);

/* If no worker is configured and the last scene is older than age_ns, the guard observes a new
 * scene at once. */
void guard_service_look(struct guard_service *g, uint64_t age_ns);

/* Returns the guard's part of the view of this tick. */
const struct guard_view *guard_service_view(struct guard_service *g);

/* Functions for requests. Their argument `engine` is the struct guard_service. */
extern const struct guard_view_ops guard_service_ops;

#endif
