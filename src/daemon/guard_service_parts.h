/* guard_service_parts: shared by the files of the service's guard; no other file includes it.
 *
 *   guard_service.c               start and stop; scenes and outcomes to the guard; the view
 *   guard_service_journal.c       logs decisions, stores records, then gives orders
 *   guard_service_stats.c         stores counters of decisions and durations of moves
 *   guard_recorder.c              passes all input to the guard and records it
 *   guard_service_devices.c       the GPUs: readings of a tick, driver events, health
 *   guard_inputs.c                Xids of the kernel log, games, idle models, caps
 *   guard_service_request.c       requests of people; reservations and their owners
 *   guard_service_lock.c          on which GPUs this service acts
 *   guard_reload.c                a new configuration, or a new mode, while the guard runs */
#ifndef GW_DAEMON_GUARD_SERVICE_PARTS_H
#define GW_DAEMON_GUARD_SERVICE_PARTS_H

#include "guard_inputs.h"
#include "journal_record.h"
#include "guard_service.h"
#include "scene_thread.h"

#include "base/clock.h"
#include "device/event_watch.h"
#include "guard/action.h"

#define GUARD_SERVICE_DEVICES SCENE_GPUS
#define GUARD_SERVICE_LOOK_NS (5 * NS_PER_MS)

/* The owner process of a reservation. The reservation ends when the process exits. */
struct owner {
	struct guard_service *g;
	uint64_t id; /* Id of the reservation. 0 if the slot is free. */
	int fd;      /* pidfd of the process. */
	struct loop_source *source;
};

/* The lock of one GPU. */
struct guard_service_lock {
	char uuid[96];
	int fd;            /* -1 if the lock is not held. */
	bool foreign;      /* Another service acts on this GPU. */
	uint64_t retry_ns; /* Monotonic time of the next attempt to take the lock. */
};

struct guard_recorder; /* Owns the guard. Only guard_recorder.c changes the guard. */
struct retired;        /* Old settings that a thread may still read. */

/* The result of the last write of records. */
enum journal_write {
	WRITE_OK,
	WRITE_FAILED,
	WRITE_HANGS, /* The write has not ended after HANG_NS (guard_service_journal.c). */
};

/* Decisions, and the records that must be in the store before an order is carried out. */
struct guard_service_journal {
	struct loop_source *timer;
	bool writing; /* Records are being stored, and orders wait for them. */
	enum journal_write last;
	/* Monotonic time at which the write that still runs began. 0: no write runs. */
	uint64_t pending_ns;
	/* Workers with a record that could not be added to the store, one bit per worker.
	 * guard_service_pump() tries again. */
	uint32_t unsaved;
	/* Workers with an order that waits until its restore data is stored, one bit per
	 * worker. */
	uint32_t learnt;
	struct guard_view_decision ring[GUARD_VIEW_DECISIONS];
	uint64_t decided; /* Number of decisions since the start. */
};

/* Health and capacity of the GPUs. All arrays are indexed by GPU; the view borrows some of
 * them. */
struct guard_service_gpus {
	struct health *health[GUARD_SERVICE_DEVICES];
	struct capacity *capacity[GUARD_SERVICE_DEVICES];
	char uuid[GUARD_SERVICE_DEVICES][96];
	/* Monotonic time of the next health check. 0 means the next tick. */
	uint64_t health_ns[GUARD_SERVICE_DEVICES];
	enum health_level health_emitted[GUARD_SERVICE_DEVICES];
	/* Number of evictions, including those of earlier runs. */
	double evictions[GUARD_SERVICE_DEVICES];
	unsigned count;
	uint64_t process_set; /* Hash of the set of processes in the last scene. */
	/* The facts that decide whether a worker can be checkpointed. */
	struct worker_facts facts;
};

/* Events of the drivers. */
struct guard_service_driver {
	struct event_watch *watch;
	struct loop_source *source;
	struct event_queue events; /* The watch thread fills this queue. */
	/* The last logged reason why no GPU is watched. "" if GPUs are watched. */
	char unwatched[80];
};

/* The locks that keep a second service from acting on the same GPUs. */
struct guard_service_locks {
	struct guard_service_lock of[GUARD_SERVICE_DEVICES];
	unsigned count;
	bool unlocked_logged; /* It was logged that no lock file can be created. */
};

/* A new configuration that waits until it can be applied. */
struct guard_service_reload {
	/* New settings that wait until no order is running. NULL if there are none. */
	struct guard_settings *next;
	uint64_t since_ns; /* Monotonic time at which `next` began to wait. */
	bool logged;       /* The long wait was logged. */
	bool mode_only;    /* Only the mode is new, because a person set it. */
	struct retired *retired;
};

struct guard_service {
	struct guard_service_config config;
	struct guard_settings *settings;
	const struct guard *guard; /* Read-only. */
	struct guard_recorder *recorder;
	struct action *action;
	struct scene_thread *scenes;
	int outcome_fd; /* Readable when an order has an outcome. */
	struct loop_source *outcome_source;
	bool paused; /* The drivers are released, therefore no scene is built. */
	bool ending; /* No more orders are carried out. */
	struct guard_view view;
	struct {
		bool loaded; /* The counters of earlier runs were added. */
		/* Number of scenes of all runs, now. view.counts has the number at the last
		 * tick, because clients see only a stored number, and it is stored once per
		 * tick. */
		uint64_t scenes;
	} counts;
	struct guard_counters tally; /* Counters of the guard, including earlier runs. */
	/* The latest moves of each worker, also of earlier runs. */
	struct moves moves;
	struct guard_operations operations;
	struct guard_view_requested requested[POLICY_WORKERS];
	struct guard_service_journal journal;
	struct guard_service_gpus gpus;
	struct guard_service_driver driver;
	struct guard_inputs *inputs;
	struct guard_service_locks lock;
	struct guard_service_reload reload;
	struct guard_view_mode mode; /* The mode that a person set. */

	/* Reservations. */
	struct owner owner[GUARD_VIEW_ROOMS];
	struct guard_view_room room[GUARD_VIEW_ROOMS];
};

/* Returns the time of the configured clock. */
static inline uint64_t guard_service_time_ns(const struct guard_service *g)
{
	return clock_mono_ns(g->config.clock);
}
/* Returns the time of the real clock. Used for health only. */
uint64_t guard_service_real_ns(void);
/* Emits an event with one sentence. Returns its id. */
uint64_t guard_service_log(struct guard_service *g, const char *severity, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Prepares settings for use. Replaces the configured mode by the mode that a person set. If the
 * policy needs a property of processes that this service may not read, logs that. If another
 * service uses the same journal, sets the mode to observe and logs that. */
void guard_service_fit(struct guard_service *g, struct guard_settings *s);

/* guard_service_journal.c */
/* Call it after the guard got new input. Handles the new decisions, records and orders of the
 * guard. */
void guard_service_pump(struct guard_service *g);
void guard_service_log_decisions(struct guard_service *g);
/* Adds a record to the store. Returns 0, or -GW_E_SIZE if the record is too large or the queue
 * is full; the store then still has the older record. */
int guard_service_store_record(struct guard_service *g, const struct guard_record *r);
void guard_service_forget(struct guard_service *g, const char *worker);
/* Call it after guard_service_store_record() if guard_service_pump() does not follow. */
void guard_service_commit(struct guard_service *g);
/* If the store has written all records, continues the orders that waited for them. */
void guard_service_written(struct guard_service *g, uint64_t now_ns);
/* Loads the counters and creates the timer. */
int guard_service_journal_open(struct guard_service *g);
/* Updates view.journal. */
void guard_service_journal_view(struct guard_service *g);
/* The records that are in the store. */
struct guard_service_records {
	/* Also includes the records of workers that are no longer configured. */
	struct guard_record record[4 * POLICY_WORKERS];
	struct guard_record_more more[4 * POLICY_WORKERS];
	unsigned count;
};
/* Reads all records. The caller frees *ret with free(). Returns 0 or -GW_E_NOMEM. */
int guard_service_records_read(struct guard_service *g, struct guard_service_records **ret);
/* Lists the root processes in the records of the policy's workers, for
 * scene_builder_recall(). */
void guard_service_formers(const struct guard_service_records *r, const struct policy *p,
			   struct scene_builder_formers *ret);
/* Logs evicted workers of an earlier run that are not in this configuration. */
void guard_service_log_missing(struct guard_service *g, const struct guard_service_records *r);
/* guard_service_set_requested() sets the text about the last hold or eviction request for a
 * worker: the requester and the reason, in the format of guard_client.who.
 * guard_service_requested() returns this text; "": unknown. */
void guard_service_set_requested(struct guard_service *g, const char *worker, const char *by);
const char *guard_service_requested(const struct guard_service *g, const char *worker);
/* Call it for each worker when the guard starts, and for each worker that a reload adds. If the
 * worker has a record, passes the notes of the record to action_set_notes(), and the requester
 * to guard_service_set_requested(). */
void guard_service_give_notes(struct guard_service *g, const struct guard_service_records *r,
			      unsigned worker);

/* guard_service_stats.c */
/* Counters of the guard. They are in the store and continue after a restart. */
/* Loads the totals and the counters of the policy's workers. Call it again after a reload. */
void guard_counts_load(struct guard_counters *t, struct store *s, const struct policy *p);
/* Loads the Xid counters of a GPU. Only the first call per GPU reads the store. */
void guard_counts_load_xids(struct guard_counters *t, struct store *s, const char *uuid);

/* These functions count a decision or an Xid, and store the changed counters. */
void guard_counts_add(struct guard_counters *t, struct store *s, const char *worker,
		      const struct guard_decision *d);
void guard_counts_add_xid(struct guard_counters *t, struct store *s, const char *uuid,
			  unsigned xid);

/* Loads the durations of the moves of the policy's workers. Call it again after a reload. */
void guard_moves_load(struct moves *m, struct store *s, const struct policy *p);
/* If the decision ends a move of the worker, stores how long the move took. cause is a text
 * that says why the worker may not run. */
void guard_moves_add(struct guard_service *g, const char *worker,
		     const struct guard_decision *d, const char *cause);

/* guard_recorder.c: all input of the guard goes through these functions. No other file can
 * change the guard. */
/* Creates the recorder and the guard. Returns 0 or -GW_E_NOMEM. */
int guard_recorder_new(struct guard_service *g, const struct guard_service_records *r);
void guard_recorder_free(struct guard_service *g);
/* Opens the recording that g->settings names, or keeps it open if the file is the same. */
void guard_service_record_open(struct guard_service *g);
/* Works like guard_change_policy(), and records the change. Call it before g->settings
 * changes. */
int guard_service_change(struct guard_service *g, const struct guard_settings *next,
			 const struct guard_service_records *r);
void guard_service_observe(struct guard_service *g, const struct scene *s);
void guard_service_outcome(struct guard_service *g, const struct guard_outcome *o);
void guard_service_stop(struct guard_service *g);
void guard_service_for(struct guard_service *g, int64_t uid);
int guard_service_operation(struct guard_service *g, int worker, enum guard_request what,
			    uint64_t ttl_ns, char *message, size_t size);
int guard_service_reserve(struct guard_service *g, const char *gpu, uint64_t bytes, int64_t pid,
			  uint64_t ttl_ns, uint64_t *ret_id);
int guard_service_reserve_again(struct guard_service *g, const struct guard_reservation *room);
void guard_service_release(struct guard_service *g, uint64_t id);
void guard_service_reason(struct guard_service *g, const char *uuid, enum guard_reason r,
			  bool on, const char *why, uint64_t now);
int guard_service_trust(struct guard_service *g, const char *uuid, uint64_t now);
void guard_service_heat(struct guard_service *g, const char *uuid, unsigned heat,
			const char *why, uint64_t now);
/* Sets the text that says what ends a reason, and the earliest time at which a timer ends the
 * reason. The call is not recorded, because no decision depends on it. */
void guard_service_reason_ends(struct guard_service *g, const char *uuid, enum guard_reason r,
			       const char *clears, uint64_t clears_ns);
void guard_service_foreign(struct guard_service *g, const char *uuid, const char *holder);
void guard_service_games(struct guard_service *g, unsigned count,
			 const struct scene_game *latest);
void guard_service_economy(struct guard_service *g, unsigned worker, uint64_t after_ns,
			   double idle_w, double reload_j);
bool guard_service_next_order(struct guard_service *g, struct guard_order *ret);
/* Functions of struct guard_pump. service is the struct guard_service. */
bool guard_service_next_decision(void *service, struct guard_decision *ret);
bool guard_service_next_record(void *service, struct guard_record *ret);

/* guard_service_devices.c */
void guard_service_devices_tick(struct guard_service *g, const struct view *v);
/* Updates whether a worker uses MPS. Called with each scene, before orders are carried out. */
void guard_service_update_mps(struct guard_service *g);
void guard_service_devices_close(struct guard_service *g);
/* Counts an eviction for the GPU that the worker left. If the worker left several GPUs, counts
 * the eviction for the GPU with the contender. */
void guard_service_count_eviction(struct guard_service *g, const struct guard_decision *d);

int guard_service_events_open(struct guard_service *g);
/* If no driver event can arrive, logs why, once per cause. */
void guard_service_events_check(struct guard_service *g);
/* Stops the watch thread. Returns 0, or -GW_E_STATE if the thread hangs. */
int guard_service_events_stop(struct guard_service *g);
/* Handles an Xid. If past is true, the Xid is older than this run of the service, and only
 * changes the health of the GPU. */
void guard_service_xid(struct guard_service *g, const struct driver_event *e, bool past);

/* Health of the GPU with index i. */
void guard_service_health_read(struct guard_service *g, unsigned i, const struct gw_device *d);
void guard_service_health_forget(struct guard_service *g, unsigned i);
/* Handles a driver event. past is true if the event is older than this run of the service. */
void guard_service_health_event(struct guard_service *g, const struct driver_event *e,
				bool past);
/* Call it after g->settings changed. */
void guard_service_health_swapped(struct guard_service *g);
/* Returns the temperature at which workers leave the GPU of a decision. NAN if it is unknown
 * or not monitored. */
double guard_service_threshold_c(const struct guard_service *g, const struct guard_decision *d);
/* Works like guard_view_ops.clear. */
int guard_service_clear(void *engine, const char *uuid, const char *who, char *message,
			size_t size);

/* guard_service_request.c */
/* Loads the reservations of an earlier run. Call it before the first scene. */
void guard_service_rooms_open(struct guard_service *g);
void guard_service_rooms_close(struct guard_service *g);
/* Removes the reservations that ended. */
void guard_service_rooms_tick(struct guard_service *g);

/* guard_service_lock.c */
/* Takes or releases the locks of the GPUs in the scene. Call it before the guard observes the
 * scene. */
void guard_service_lock_look(struct guard_service *g, const struct scene *s);
void guard_service_lock_close(struct guard_service *g);

/* guard_reload.c: call these functions only where no worker index is in use. */
void guard_reload_try(struct guard_service *g);
/* As soon as no order is running, makes the guard use the mode that a person set. */
void guard_reload_mode(struct guard_service *g);
/* True if no new orders may start, because a reload waits. */
bool guard_reload_waits(const struct guard_service *g);
/* Frees the new settings that wait to be applied. */
void guard_reload_drop(struct guard_service *g);
/* Frees the old settings. Call it when no thread reads them any more. */
void guard_reload_close(struct guard_service *g);

/* Loads the mode that a person set in an earlier run. */
void guard_mode_load(struct guard_service *g);
/* Stores the mode that a person chose. If mode is NULL, the configured mode applies again. The
 * choice is on disk as soon as the store has written the journal. */
void guard_mode_choose(struct guard_service *g, const enum guard_mode *mode, const char *who);

#endif
