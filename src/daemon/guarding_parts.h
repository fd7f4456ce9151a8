/* What the files of the service's guard share; nobody else includes this.
 *
 *   guarding.c          looks and outcomes come in, the view goes out; beginning and end
 *   guarding_journal.c  what is decided is told, kept in the file, and only then ordered
 *   guarding_trace.c    all that the guard is told, and its recording
 *   guarding_devices.c  which GPUs there are, and what is kept of each; a tick's readings
 *   guarding_health.c   is each GPU well, and what that means for the workers
 *   guarding_events.c   what drivers tell by themselves
 *   guarding_beside.c   what is found beside the looks: Xids of the log, games, idling models, caps
 *   guarding_ask.c      what people ask
 *   guarding_room.c     who room is kept for
 *   guarding_lock.c     for which GPUs it acts, and for which another service does
 *   guarding_swap.c     another configuration, while it runs
 */
#ifndef GW_DAEMON_GUARDING_PARTS_H
#define GW_DAEMON_GUARDING_PARTS_H

#include "beside.h"
#include "event_queue.h"
#include "guard_record.h"
#include "guarding.h"
#include "looker.h"

#include "base/clock.h"
#include "device/watch.h"
#include "guard/action.h"

#define GUARDING_DEVICES SCENE_GPUS
#define GUARDING_LOOK_NS (5 * NS_PER_MS)
#define GUARDING_OWNERS  32 /* of reservations: as many as there can be */

/* A process for which room is kept: the room goes when it ends. */
struct owner {
	struct guarding *g;
	uint64_t id; /* of the reservation; 0: none */
	int fd;      /* its pidfd */
	struct loop_source *source;
};

/* Of one GPU. */
struct guarding_lock {
	char uuid[96];
	int fd;       /* -1: not held */
	bool foreign; /* another service acts there */
	uint64_t retry_ns;
};

struct guarding_teller; /* the guard that can be told something; of guarding_trace.c alone */
struct retired;         /* a configuration that a thread may still read */

struct guarding {
	struct guarding_config config;
	struct guard_settings *settings;
	const struct guard *guard; /* to look at */
	struct guarding_teller *teller;
	struct action *action;
	struct looker *looker;
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
	uint64_t decided;   /* ever */
	struct tally tally; /* with those of earlier runs */
	struct guard_operations operations;

	/* Health and capacity. */
	struct health *health[GUARDING_DEVICES];
	struct capacity *capacity[GUARDING_DEVICES];
	char uuid[GUARDING_DEVICES][96];
	uint64_t health_ns[GUARDING_DEVICES]; /* next due */
	enum health_level told[GUARDING_DEVICES];
	double evictions[GUARDING_DEVICES]; /* with those of earlier runs */
	unsigned devices;
	struct watch *watch;
	int event_fd;
	struct loop_source *event_source;
	struct event_queue heard; /* what comes from the watch's thread */

	struct beside *beside;

	/* Room. */
	struct owner owner[GUARDING_OWNERS];
	uint64_t room[GUARDING_OWNERS]; /* reservations that are in the file; 0: none */

	/* Which of several services acts. */
	struct guarding_lock lock_of[GUARDING_DEVICES];
	unsigned locks;
	bool unlocked_told;

	/* Another configuration. */
	struct guard_settings *next; /* waits until no order is under way; NULL: none */
	uint64_t next_ns;            /* since */
	bool next_told;
	struct retired *retired;
};

/* By the clock that it was given. */
static inline uint64_t guarding_time_ns(const struct guarding *g)
{
	return clock_mono_ns(g->config.clock);
}
uint64_t guarding_now_ns(void); /* of the machine: health alone goes by it */
/* Tells people; fmt makes one sentence.  The event's id. */
uint64_t guarding_tell(struct guarding *g, const char *severity, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Two that act would undo each other's work: beside another one it observes.  Tells of that, and of what the
 * configuration names and this process may not see. */
void guarding_fit(struct guarding *g, struct guard_settings *s);

/* guarding_journal.c */
/* All that follows from what the guard was told. */
void guarding_pump(struct guarding *g);
void guarding_tell_decisions(struct guarding *g);
/* 0, or -GW_E_SIZE: it found no place, what is in the file is older. */
int guarding_keep(struct guarding *g, const struct guard_record *r);
void guarding_forget(struct guarding *g, const char *worker);
void guarding_commit(struct guarding *g); /* what was kept without guarding_pump() */
/* Is the file written by now?  Then what waited for it goes on. */
void guarding_written(struct guarding *g, uint64_t now_ns);
int guarding_journal_open(struct guarding *g);  /* the timer */
void guarding_journal_view(struct guarding *g); /* view.journal, as it stands now */
/* Those of earlier runs. */
struct guarding_records {
	struct guard_record record[4 * POLICY_WORKERS]; /* also of workers that are gone */
	struct guard_record_more more[4 * POLICY_WORKERS];
	unsigned count;
};
int guarding_records_read(struct guarding *g, struct guarding_records **ret); /* free() */
/* Whom the workers of a policy were known by. */
void guarding_formers(const struct guarding_records *r, const struct policy *p,
		      struct look_formers *ret);
/* Workers that an earlier run left out, and that this configuration does not name, are told of. */
void guarding_tell_missing(struct guarding *g, const struct guarding_records *r);
void guarding_give_notes(struct guarding *g, const struct guarding_records *r, unsigned worker);

/* guarding_trace.c: what the guard is told goes through here; nobody else can change it. */
int guarding_teller_new(struct guarding *g,
			const struct guarding_records *r); /* the guard, too */
void guarding_teller_free(struct guarding *g);
/* By g->settings: stays with the file that it has, or begins with another. */
void guarding_record_open(struct guarding *g);
/* As guard_swap(), before g->settings are others. */
int guarding_change(struct guarding *g, const struct guard_settings *next,
		    const struct guarding_records *r);
void guarding_look(struct guarding *g, const struct scene *s);
void guarding_outcome(struct guarding *g, const struct guard_outcome *o);
void guarding_stop(struct guarding *g);
void guarding_for(struct guarding *g, int64_t uid);
int guarding_wish(struct guarding *g, int worker, enum guard_ask what, uint64_t ttl_ns,
		  char *message, size_t size);
int guarding_reserve(struct guarding *g, const char *gpu, uint64_t bytes, int64_t pid,
		     uint64_t ttl_ns, uint64_t *ret_id);
int guarding_reserve_again(struct guarding *g, const struct guard_room *room);
void guarding_release(struct guarding *g, uint64_t id);
void guarding_reason(struct guarding *g, const char *uuid, enum guard_reason r, bool on,
		     const char *why, uint64_t now);
int guarding_trust(struct guarding *g, const char *uuid, uint64_t now);
void guarding_heat(struct guarding *g, const char *uuid, unsigned heat, const char *why,
		   uint64_t now);
/* Nothing is decided by it: it is not recorded. */
void guarding_reason_ends(struct guarding *g, const char *uuid, enum guard_reason r,
			  const char *clears, uint64_t clears_ns);
void guarding_foreign(struct guarding *g, const char *uuid, const char *holder);
void guarding_games(struct guarding *g, unsigned count);
void guarding_economy(struct guarding *g, unsigned worker, uint64_t after_ns, double idle_w,
		      double reload_j);
bool guarding_next_order(struct guarding *g, struct guard_order *ret);
bool guarding_next_decision(struct guarding *g, struct guard_decision *ret);
bool guarding_next_record(struct guarding *g, struct guard_record *ret);

/* guarding_devices.c */
void guarding_devices_tick(struct guarding *g, const struct view *v);
void guarding_devices_close(struct guarding *g);
int guarding_device_of(const struct guarding *g, const char *uuid); /* -1: there is no such */
/* Of the GPU that a worker left; of one on several, the one where it was in the way. */
void guarding_count_eviction(struct guarding *g, const struct guard_decision *d);

/* guarding_health.c: of device i */
void guarding_health_read(struct guarding *g, unsigned i, const struct gw_device *d);
void guarding_health_forget(struct guarding *g, unsigned i);
/* past: it came before this run. */
void guarding_health_event(struct guarding *g, const struct watch_event *e, bool past);
void guarding_health_swapped(struct guarding *g); /* g->settings are others */
/* The temperature at which workers leave the GPU of a decision; NAN: it is not known, or not watched. */
double guarding_threshold_c(const struct guarding *g, const struct guard_decision *d);
/* As guard_view_ops.clear. */
int guarding_clear(void *engine, const char *uuid, const char *who, char *message, size_t size);

/* guarding_events.c */
int guarding_events_open(struct guarding *g);
int guarding_events_stop(struct guarding *g); /* its thread; -GW_E_STATE: it hangs */
void guarding_events_close(struct guarding *g);
/* past: of before this run; only its GPU's health is told of it. */
void guarding_xid(struct guarding *g, const struct watch_event *e, bool past);

/* guarding_beside.c */
int guarding_beside_open(struct guarding *g);

/* guarding_room.c */
void guarding_rooms_open(
	struct guarding *g); /* those of an earlier run, before the first look */
void guarding_rooms_close(struct guarding *g);
void guarding_rooms_tick(struct guarding *g); /* forgets those that ended */
/* fd: the owner's, taken; -1: none. */
void guarding_room_made(struct guarding *g, uint64_t id, int fd, uint64_t start_ticks);
void guarding_room_release(struct guarding *g, uint64_t id);

/* guarding_lock.c */
void guarding_lock_look(struct guarding *g, const struct scene *s); /* before the guard looks */
void guarding_lock_close(struct guarding *g);

/* guarding_swap.c: only from where nobody holds the number of a worker. */
void guarding_swap_try(struct guarding *g);
bool guarding_swap_waits(const struct guarding *g); /* no new orders, so that it can be */
void guarding_swap_drop(struct guarding *g);        /* it is not wanted any more */
void guarding_swap_close(struct guarding *g);       /* when no thread is left */

#endif
