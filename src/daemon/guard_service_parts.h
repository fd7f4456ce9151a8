/* What the files of the service's guard share; nobody else includes this.
 *
 *   guard_service.c          looks and outcomes come in, the view goes out; beginning and end
 *   guard_service_journal.c  what is decided is told, kept in the file, and only then ordered
 *   guard_recorder.c    all that the guard is told, and its recording
 *   guard_service_devices.c  which GPUs there are, and what is kept of each; a tick's readings
 *   guard_service_health.c   is each GPU well, and what that means for the workers
 *   guard_service_events.c   what drivers tell by themselves
 *   guard_service_inputs.c   what is found beside the looks: Xids of the log, games, idling models, caps
 *   guard_service_request.c      what people ask
 *   guard_service_reservations.c     who room is kept for
 *   guard_service_lock.c     for which GPUs it acts, and for which another service does
 *   guard_service_reload.c     another configuration, while it runs
 */
#ifndef GW_DAEMON_GUARD_SERVICE_PARTS_H
#define GW_DAEMON_GUARD_SERVICE_PARTS_H

#include "guard_inputs.h"
#include "event_queue.h"
#include "guard_record.h"
#include "guard_service.h"
#include "scene_thread.h"

#include "base/clock.h"
#include "device/event_watch.h"
#include "guard/action.h"

#define GUARD_SERVICE_DEVICES SCENE_GPUS
#define GUARD_SERVICE_LOOK_NS (5 * NS_PER_MS)
#define GUARD_SERVICE_OWNERS  32 /* of reservations: as many as there can be */

/* A process for which room is kept: the room goes when it ends. */
struct owner {
	struct guard_service *g;
	uint64_t id; /* of the reservation; 0: none */
	int fd;      /* its pidfd */
	struct loop_source *source;
};

/* Of one GPU. */
struct guard_service_lock {
	char uuid[96];
	int fd;       /* -1: not held */
	bool foreign; /* another service acts there */
	uint64_t retry_ns;
};

struct guard_recorder; /* the guard that can be told something; of guard_recorder.c alone */
struct retired;        /* a configuration that a thread may still read */

struct guard_service {
	struct guard_service_config config;
	struct guard_settings *settings;
	const struct guard *guard; /* to look at */
	struct guard_recorder *teller;
	struct action *action;
	struct scene_thread *looker;
	int outcome_fd;
	struct loop_source *outcome_source;
	bool paused;
	bool ending; /* no order is given any more */
	struct guard_view view;

	/* The journal. */
	struct loop_source *timer;
	bool writing; /* orders wait for records to be in the file */
	bool failed;  /* not all that was to be kept is in the file */
	uint32_t
		unkept; /* workers whose records found no place: a set, tried again at each pump */
	uint32_t
		learnt; /* workers whose orders go on when their notes are in the file: a set */
	struct guard_view_decision ring[GUARD_VIEW_DECISIONS];
	uint64_t decided;            /* ever */
	struct guard_counters tally; /* with those of earlier runs */
	struct guard_operations operations;

	/* Health and capacity. */
	struct health *health[GUARD_SERVICE_DEVICES];
	struct capacity *capacity[GUARD_SERVICE_DEVICES];
	char uuid[GUARD_SERVICE_DEVICES][96];
	uint64_t health_ns[GUARD_SERVICE_DEVICES]; /* next due */
	enum health_level told[GUARD_SERVICE_DEVICES];
	double evictions[GUARD_SERVICE_DEVICES]; /* with those of earlier runs */
	unsigned devices;
	struct event_watch *watch;
	int event_fd;
	struct loop_source *event_source;
	struct event_queue heard; /* what comes from the watch's thread */

	struct guard_inputs *beside;

	/* Room. */
	struct owner owner[GUARD_SERVICE_OWNERS];
	uint64_t room[GUARD_SERVICE_OWNERS]; /* reservations that are in the file; 0: none */

	/* Which of several services acts. */
	struct guard_service_lock lock_of[GUARD_SERVICE_DEVICES];
	unsigned locks;
	bool unlocked_told;

	/* Another configuration. */
	struct guard_settings *next; /* waits until no order is under way; NULL: none */
	uint64_t next_ns;            /* since */
	bool next_told;
	struct retired *retired;
};

/* By the clock that it was given. */
static inline uint64_t guarding_time_ns(const struct guard_service *g)
{
	return clock_mono_ns(g->config.clock);
}
uint64_t guard_service_now_ns(void); /* of the machine: health alone goes by it */
/* Tells people; fmt makes one sentence.  The event's id. */
uint64_t guard_service_log(struct guard_service *g, const char *severity, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Two that act would undo each other's work: beside another one it observes.  Tells of that, and of what the
 * configuration names and this process may not see. */
void guard_service_fit(struct guard_service *g, struct guard_settings *s);

/* guard_service_journal.c */
/* All that follows from what the guard was told. */
void guard_service_pump(struct guard_service *g);
void guard_service_log_decisions(struct guard_service *g);
/* 0, or -GW_E_SIZE: it found no place, what is in the file is older. */
int guard_service_keep(struct guard_service *g, const struct guard_record *r);
void guard_service_forget(struct guard_service *g, const char *worker);
void guard_service_commit(
	struct guard_service *g); /* what was kept without guard_service_pump() */
/* Is the file written by now?  Then what waited for it goes on. */
void guard_service_written(struct guard_service *g, uint64_t now_ns);
int guard_service_journal_open(struct guard_service *g);  /* the timer */
void guard_service_journal_view(struct guard_service *g); /* view.journal, as it stands now */
/* Those of earlier runs. */
struct guard_service_records {
	struct guard_record record[4 * POLICY_WORKERS]; /* also of workers that are gone */
	struct guard_record_more more[4 * POLICY_WORKERS];
	unsigned count;
};
int guard_service_records_read(struct guard_service *g,
			       struct guard_service_records **ret); /* free() */
/* Whom the workers of a policy were known by. */
void guard_service_formers(const struct guard_service_records *r, const struct policy *p,
			   struct scene_builder_formers *ret);
/* Workers that an earlier run left out, and that this configuration does not name, are told of. */
void guard_service_log_missing(struct guard_service *g, const struct guard_service_records *r);
void guard_service_give_notes(struct guard_service *g, const struct guard_service_records *r,
			      unsigned worker);

/* guard_recorder.c: what the guard is told goes through here; nobody else can change it. */
int guard_recorder_new(struct guard_service *g,
		       const struct guard_service_records *r); /* the guard, too */
void guard_recorder_free(struct guard_service *g);
/* By g->settings: stays with the file that it has, or begins with another. */
void guard_service_record_open(struct guard_service *g);
/* As guard_change_policy(), before g->settings are others. */
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
/* Nothing is decided by it: it is not recorded. */
void guard_service_reason_ends(struct guard_service *g, const char *uuid, enum guard_reason r,
			       const char *clears, uint64_t clears_ns);
void guard_service_foreign(struct guard_service *g, const char *uuid, const char *holder);
void guard_service_games(struct guard_service *g, unsigned count);
void guard_service_economy(struct guard_service *g, unsigned worker, uint64_t after_ns,
			   double idle_w, double reload_j);
bool guard_service_next_order(struct guard_service *g, struct guard_order *ret);
bool guard_service_next_decision(struct guard_service *g, struct guard_decision *ret);
bool guard_service_next_record(struct guard_service *g, struct guard_record *ret);

/* guard_service_devices.c */
void guard_service_devices_tick(struct guard_service *g, const struct view *v);
void guard_service_devices_close(struct guard_service *g);
int guard_service_device_of(const struct guard_service *g,
			    const char *uuid); /* -1: there is no such */
/* Of the GPU that a worker left; of one on several, the one where it was in the way. */
void guard_service_count_eviction(struct guard_service *g, const struct guard_decision *d);

/* guard_service_health.c: of device i */
void guard_service_health_read(struct guard_service *g, unsigned i, const struct gw_device *d);
void guard_service_health_forget(struct guard_service *g, unsigned i);
/* past: it came before this run. */
void guard_service_health_event(struct guard_service *g, const struct driver_event *e,
				bool past);
void guard_service_health_swapped(struct guard_service *g); /* g->settings are others */
/* The temperature at which workers leave the GPU of a decision; NAN: it is not known, or not watched. */
double guard_service_threshold_c(const struct guard_service *g, const struct guard_decision *d);
/* As guard_view_ops.clear. */
int guard_service_clear(void *engine, const char *uuid, const char *who, char *message,
			size_t size);

/* guard_service_events.c */
int guard_service_events_open(struct guard_service *g);
int guard_service_events_stop(struct guard_service *g); /* its thread; -GW_E_STATE: it hangs */
void guard_service_events_close(struct guard_service *g);
/* past: of before this run; only its GPU's health is told of it. */
void guard_service_xid(struct guard_service *g, const struct driver_event *e, bool past);

/* guard_service_inputs.c */
int guard_service_beside_open(struct guard_service *g);

/* guard_service_reservations.c */
void guard_service_rooms_open(
	struct guard_service *g); /* those of an earlier run, before the first look */
void guard_service_rooms_close(struct guard_service *g);
void guard_service_rooms_tick(struct guard_service *g); /* forgets those that ended */
/* fd: the owner's, taken; -1: none. */
void guard_service_room_made(struct guard_service *g, uint64_t id, int fd,
			     uint64_t start_ticks);
void guard_service_room_release(struct guard_service *g, uint64_t id);

/* guard_service_lock.c */
void guard_service_lock_look(struct guard_service *g,
			     const struct scene *s); /* before the guard looks */
void guard_service_lock_close(struct guard_service *g);

/* guard_service_reload.c: only from where nobody holds the number of a worker. */
void guard_reload_try(struct guard_service *g);
bool guard_reload_waits(const struct guard_service *g); /* no new orders, so that it can be */
void guard_reload_drop(struct guard_service *g);        /* it is not wanted any more */
void guard_reload_close(struct guard_service *g);       /* when no thread is left */

#endif
