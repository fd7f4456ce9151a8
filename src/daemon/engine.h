/* engine: owns the GPUs, the history and the counters, and makes the view of each tick.
 *
 * Runs on the main thread. The reader delivers the readings of the GPUs. The engine compares
 * them with the previous tick, emits events for changes, adds to the counters, writes the
 * history to the store and implements the operations of view.h. */
#ifndef GW_DAEMON_ENGINE_H
#define GW_DAEMON_ENGINE_H

#include "guard_config.h"
#include "store.h"
#include "energy_account.h"

#include "base/loop.h"
#include "serve/view.h"

struct engine;

/* The settings that a reload can change. */
struct engine_settings {
	uint64_t interval_ns;
	bool profile; /* Each tick also reads GW_TIER_PROFILE. */
	bool manage;  /* Clients may change GPU settings. */
	struct workload_account_config workloads;
	/* Seconds between two queries to an inference server. 0: servers are not queried. */
	double models_s;
};

struct engine_config {
	struct engine_settings settings;
	const struct gw_options *options; /* Options of the GPU context. */
	struct guard_settings
		*guard; /* The engine takes ownership. NULL if there is no guard. */
	const char *hpc_job_mapping_dir; /* See workload_names.h. NULL if there is none. */
	/* Folder for sensor profiles. NULL: the XDG default. */
	const char *cache_dir;
	struct loop *loop;
	struct store *store; /* Borrowed. */
	/* Called for each new view. view.snap may be NULL. The data of the previous view may be
	 * freed when `changed` returns. */
	void (*changed)(void *arg);
	/* Called after `changed`, as soon as the counters of the view are stored. The view may
	 * then be sent to clients. If the counters are not yet stored when the next view comes,
	 * there is one call for both views. */
	void (*ticked)(void *arg);
	/* Called before the meter stops. The function must close all windows of the meter. */
	void (*meter_gone)(void *arg);
	/* Called for each event. The event has its id and is already in the store. */
	void (*happened)(void *arg, const struct view_event *e);
	void *arg;
};

/* Starts the engine and returns at once. The first tick comes when the drivers are open.
 * Returns 0, -GW_E_NOMEM or -GW_E_IO. */
int engine_new(const struct engine_config *config, struct engine **ret);

/* Stops the guard. With on_stop = "restore" the workers resume first. engine_free() also stops
 * the guard; call engine_end_guard() first to handle the events that the guard emits while it
 * stops. Returns 0, or -GW_E_STATE if a thread hangs. The thread and the engine then stay in
 * memory. e may be NULL. */
int engine_end_guard(struct engine *e, uint64_t timeout_ns);
/* Stops and frees the engine. Returns the same as reader_free(): 0, or -GW_E_STATE if a thread
 * hangs. */
int engine_free(struct engine *e, uint64_t timeout_ns);

/* Returns the view of the last tick. The view lives as long as the engine; the next tick
 * changes it. */
const struct view *engine_view(struct engine *e);

void engine_configure(struct engine *e, const struct engine_settings *settings);
/* Call it when the kernel reports (uevent.h) that a driver or a GPU was added (gone is false)
 * or is being removed (gone is true). */
void engine_moved(struct engine *e, bool gone);
/* Replaces the guard's settings and takes ownership of them; see guard_service_reload(). */
void engine_set_guard(struct engine *e, struct guard_settings *settings);

/* Emits an event: sets its id, its time and `simulated`, stores it and calls `happened`.
 * Returns the id. */
uint64_t engine_emit(void *engine, const struct view_event *x);
/* Emits an event with this sentence. */
void engine_event(struct engine *e, const char *kind, const char *uuid, const char *severity,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
