/* The data of the guard. Only the files of the guard include this header.
 *
 * From each scene, the guard finds what every worker does. From demand, holds, health and
 * schedules it finds the reasons why a worker may not run. If a worker runs against a reason, or
 * does not run without one, the guard changes its intent and gives at most one order.
 *
 *   worker_state.c    the state of a worker (presence, intent, demand), and its changes
 *   observe.c         finds the GPUs, the processes and the bytes of each worker in a scene
 *   reasons.c         finds why a worker may not run, and whether other processes need its GPU
 *   decide.c          changes the worker's intent, by reasons and observations
 *   orders.c          chooses the next order, handles its outcome, checks that memory is free
 *   explain.c         explains each reason: its rule, its evidence and its end
 *   decision_text.c   has the names, and keeps decisions until they are fetched
 *   guard.c           takes input, returns records and orders; the pump
 *   guard_query.c     returns the status and the time of the next scene; what_if
 *   return_check.c    checks whether a worker may return; begins a return, or undoes it
 *   guard_request.c, reservation.c, idle.c, eviction_limit.c, policy_change.c: one rule each */
#ifndef GW_GUARD_GUARD_INTERNAL_H
#define GW_GUARD_GUARD_INTERNAL_H

#include "demand.h"
#include "eviction_rate.h"
#include "guard_input.h"
#include "guard_query.h"

#include "base/clock.h"
#include "base/number.h"

#define GUARD_DECISIONS    512 /* maximum number of decisions that wait to be fetched */
#define GUARD_RESERVATIONS 32
#define GUARD_FLAPS        8 /* number of evictions for contention that are remembered */

#define BIT(r)   (UINT32_C(1) << (r))
#define FOR_EVER UINT64_MAX /* a hold or a reservation with this end has no end */
/* Fixed numbers; docs/GUARD-MACHINE.md (Numbers) has the same table for users. */
#define CALM_SCENES  3              /* scenes without demand that end a suspicion */
#define RETRIES      2              /* how often an order is repeated at one level */
#define RETRY_NS     NS_PER_S       /* wait before the first repetition; doubled for the next */
#define RECHECK_NS   (5 * NS_PER_S) /* time between checks; least wait after a failed return */
#define STUCK_NS     (30 * NS_PER_S)  /* time between tries to evict a stuck worker */
#define UP_NS        (120 * NS_PER_S) /* time limit of an order to resume, and of its check */
#define LONGEST_NS   (600 * NS_PER_S) /* see worker_longest_wait_ns() */
#define FLAP_NS      (900 * NS_PER_S) /* a third eviction in this time doubles the quiet time */
#define RELOAD_NS    (300 * NS_PER_S) /* three reloads within this time are a reload storm */
#define CALL_NS      (10 * NS_PER_S)  /* time limit of an order; a checkpoint gets more */
#define LEAST_NS     (2 * NS_PER_S)   /* an order to evict gets at least this time */
#define AC_NS        (10 * NS_PER_S)  /* time on mains power that ends the reason battery */
#define WELL_NS      (60 * NS_PER_S)  /* a lost GPU is used again after it answered this long */
#define ASLEEP_NS    (10 * NS_PER_S)  /* time between scenes while the GPUs of workers sleep */
#define CLEAN_SCENES 3          /* a GPU is no longer blind after this many good readings */
#define SLACK_BYTES  (64 * MIB) /* a smaller change of memory is ignored */

/* Set of the reasons that the hold "active" masks. */
enum {
	MASK_HOLD = 0
#define R(symbol, name, held, rule, clears) | (held) << REASON_##symbol
#include "reason.def"
};

/* A GPU from a scene, a record or another input. Its index in guard.gpu is its slot, which
 * never changes; sets of GPUs have one bit per slot. */
struct guard_gpu {
	char uuid[96];
	int at; /* position of the GPU in the last scene; -1: not in the scene */
	const struct scene_gpu *now; /* the GPU in the last scene; NULL: not in the scene */
	bool blind; /* SCENE_BLIND_ERRORS readings failed; ends after CLEAN_SCENES good ones */
	bool lost;  /* the GPU was missing or lost; ends when it has answered for WELL_NS */
	unsigned clean;   /* good readings in a row; 0: the last reading was bad */
	uint64_t well_ns; /* since when the readings are good; 0: the last one was bad */
	bool seen;        /* the GPU was in a scene since the start */
	/* For a GPU that only the journal names: since when other GPUs answer, but this GPU was
	 * in no scene. 0: the GPU was in a scene, or no GPU answers. */
	uint64_t missing_ns;
	unsigned heat;         /* set of enum guard_heat */
	char heat_why[160];    /* evidence for heat, used in messages */
	char foreign[64];      /* name of another service that acts on the GPU; "": none */
	uint64_t acted_ns;     /* when an eviction on the GPU last ended; 0: never */
	uint64_t total_bytes;  /* size of its memory when it was last read; 0: never */
	uint64_t free_bytes;   /* free memory, with the memory that a dry run counts as freed */
	uint64_t coming_bytes; /* bytes that leaving workers still hold */
	uint64_t promised;     /* reserved bytes that are not allocated yet */
	uint32_t reasons;      /* set of the reasons from health and budgets */
	char evidence[GUARD_REASONS][160]; /* evidence for each reason in `reasons` */
	struct guard_end {
		char clears[120]; /* what ends the reason; "": unknown */
		uint64_t ns;      /* earliest end of the reason; 0: no timer runs for it */
	} end[GUARD_REASONS];
};

/* Which processes of the worker the last scene has. A known process is one in root[]. */
enum worker_found {
	FOUND_NONE,      /* none */
	FOUND_UNMATCHED, /* the known process lives, but the match does not find it any more */
	FOUND_DISPLACED, /* another process matches; a checkpointed known process lives */
	FOUND_SAME,      /* a known process matches */
	FOUND_OTHER,     /* the known processes ended, and other processes match */
	FOUND_OTHER_LIVES, /* new processes match, and a known process still lives */
};

struct worker_observed {
	enum worker_found found;
	struct proc_id root[GUARD_ROOTS]; /* the known root processes */
	unsigned roots;
	/* root[] comes from the journal, and the worker may have restarted since then */
	bool roots_recorded;
	bool match_changed; /* a new match is configured and has not found the worker yet */
	uint64_t seen_ns;   /* when a process of the worker was last found; 0: never */
	/* set of GPUs on which the driver reports no bytes for a process of the worker; held[]
	 * is the used memory of such a GPU that no other process holds */
	uint64_t by_device;
	/* sets of GPUs: where the worker may be, and where it last was */
	uint64_t gpus, home;
	uint64_t bytes, held[SCENE_GPUS]; /* bytes of the worker: in total, and per GPU */
	/* bytes that the worker will need when it returns: see worker_set_need() */
	uint64_t need_bytes, need_on[SCENE_GPUS];
	uint64_t dry_bytes; /* bytes that a dry run counts as freed, but that are still held */
};

/* What the guard concludes from demand. Contention is a reason from PHASE_RELEASED on. */
enum demand_phase {
	PHASE_NONE,      /* there is no demand */
	PHASE_SUSPECTED, /* the demand has not lasted long enough yet */
	/* a hold that masked a sure demand has ended; the demand must become sure again */
	PHASE_RELEASED,
	PHASE_SURE,    /* the demand has lasted long enough */
	PHASE_CALMING, /* the demand ended, the quiet time runs */
};

struct worker_demand {
	enum demand_phase phase;
	bool pressing;                /* the last scene has a demand against the worker */
	struct demand_case strongest; /* strongest demand of the last scene that had a demand */
	int gpu;                      /* slot of the GPU of the strongest demand */
	uint64_t since_ns;            /* when the latest demand began */
	unsigned scenes;      /* number of scenes with this demand; 0: the demand has ended */
	uint64_t calm_ns;     /* since when there is no demand; 0: there is a demand */
	unsigned calm_scenes; /* scenes in a row without a demand */
	/* before this time a sure demand does not evict the worker; 0: no such limit */
	uint64_t damped_until_ns;
	/* until when the user who causes the demand must wait; 0: the user need not wait */
	uint64_t limited_ns;
	/* scenes in a row in which no demand was withheld (CONDITION_WITHHELD) */
	unsigned unlimited_scenes;
};

/* What a person requested last, if the request still applies. */
enum worker_person { PERSON_NONE, PERSON_EVICT, PERSON_HOLD_EVICTED, PERSON_HOLD_ACTIVE };

struct worker_reasons {
	uint32_t mask;                     /* the reasons that apply: a set */
	uint64_t since_ns[GUARD_REASONS];  /* since when each reason applies; 0: it does not */
	char evidence[GUARD_REASONS][200]; /* evidence for each reason that applies */
	char contention_rule[64];          /* the rule by which contention became a reason */
	struct contender contender;        /* the process that caused contention */
	enum worker_person person;
	uint64_t until_ns; /* end of the person's request; FOR_EVER: no end */
	/* until_ns, and when REASON_MANUAL began, as wall times from the journal. The first
	 * scene converts both to monotonic times. */
	uint64_t until_wall_ns, manual_wall_ns;
	uint64_t record_wall_ns; /* wall time of the journal's record; 0: unknown */
	uint32_t reservations;   /* set of the reservations for which the worker must leave */
	uint64_t battery_ns;     /* when the machine was last on battery; 0: never */
};

/* What the guard wants the worker to do now: the steps of an eviction and of a return. The
 * journal records the beginning of an eviction before the first order of the eviction. */
enum worker_stage {
	STAGE_RUN,
	/* the worker leaves */
	STAGE_DRAIN,  /* the worker refuses new work and completes running requests */
	STAGE_UNLOAD, /* the worker is ordered to free its memory, at level intent.level */
	STAGE_VERIFY, /* the worker reported success; the memory must become free */
	STAGE_STUCK,  /* no level or no time is left, and the memory is not free */
	STAGE_OUT,    /* the worker is evicted */
	/* the worker returns */
	STAGE_LOAD,      /* the worker has the order to load, or only to admit new work */
	STAGE_VERIFY_UP, /* the worker reported success; it must hold its memory again */
};
/* The state of the worker when its return began. If the worker must leave again before the
 * return is complete, this value stays. At other times the value is FROM_RUN; or FROM_ABSENT if
 * the worker was started and has no process yet. */
enum worker_from {
	FROM_RUN,     /* the worker was being evicted, but probably never left */
	FROM_RETURN,  /* only in old recordings, for any of the following */
	FROM_OUT,     /* the worker was evicted */
	FROM_STUCK,   /* the worker did not free its memory */
	FROM_ABSENT,  /* the worker had no process, and the guard starts it */
	FROM_STARTED, /* as FROM_ABSENT, and the worker's new process has been found */
};
/* What the worker reported about the last order to evict or to resume. */
enum worker_claim {
	CLAIM_NONE,
	CLAIM_LEFT, /* the worker reported success, or did not answer */
	CLAIM_DRY,  /* dry run: the worker's memory counts as free */
	CLAIM_BACK, /* the worker lists its models as loaded again */
};

struct worker_intent {
	enum worker_stage stage;
	enum worker_from from;
	enum worker_claim claim;
	bool real;            /* an order was given; false: no order, or only a dry run */
	unsigned level;       /* level of the eviction */
	unsigned tries;       /* failed attempts at this level */
	uint64_t deadline_ns; /* when the stage must end */
	uint64_t budget_ns;   /* when the whole eviction must end */
	uint64_t begun_ns;    /* when the eviction began */
	uint64_t freed_ns;    /* how long the eviction took */
	/* bytes when the eviction began or the worker last grew: its own, free ones, others' */
	uint64_t base_bytes, base_free, base_others;
	uint64_t least_bytes;   /* the fewest bytes that the worker held since STAGE_VERIFY */
	uint64_t residue_bytes; /* bytes that the worker holds while it is evicted */
	struct proc_id put_away[GUARD_TARGETS]; /* checkpointed processes */
	unsigned put_away_count;
};

/* Whether the worker accepts new requests from its clients (admits new work). */
enum worker_admission {
	ADMISSION_OPEN,
	ADMISSION_CLOSED,     /* the guard ordered the worker to refuse new requests */
	ADMISSION_UNVERIFIED, /* closed by an order, but the worker may accept requests */
};

enum order_status {
	STATUS_NONE,
	STATUS_WAITING,  /* issued; the action thread has not fetched it yet */
	STATUS_UNDERWAY, /* fetched; its outcome has not arrived yet */
	STATUS_DONE,
	STATUS_FAILED,
};

struct worker_order {
	struct guard_order what; /* the last order */
	enum order_status status;
	/* guard.scenes when the outcome arrived: only a later scene shows the effect */
	uint64_t answered;
	uint64_t retry_ns; /* no order is given before this time */
	/* if `what` is ORDER_CLOSE: the admission before that order, for guard_take_back() */
	enum worker_admission admission_before;
};

/* Whether a person requested the return. RESUME_REQUESTED_NOW also takes precedence over
 * demand. */
enum resume_request { RESUME_NOT_REQUESTED, RESUME_REQUESTED, RESUME_REQUESTED_NOW };

struct worker_backoff {
	double quiet_factor; /* the quiet time is multiplied by this */
	/* rings with the times of the latest evictions for contention, and of the latest
	 * reloads while the worker was evicted */
	uint64_t flap[GUARD_FLAPS], reload[3];
	unsigned flaps, reloads; /* total numbers of these evictions and reloads */
	bool storm; /* clients load the worker again and again while it is evicted */
	/* before this time the worker stays if a contender fits next to it */
	uint64_t resident_ns;
	uint64_t failed_ns; /* wait after a failed return; 0: the last return did not fail */
	uint64_t resume_ns; /* the worker does not return before this time */
	uint64_t check_ns;  /* when to check again whether the worker may return */
	uint32_t blocked;   /* result of the last check: a set of guard_block */
	enum resume_request request;
};

struct worker_idle {
	bool unload;        /* the worker is evicted, or leaves, because it was idle */
	bool busy;          /* the worker was busy in the last scene */
	bool wants_figure;  /* the next scene should include utilisation */
	uint64_t since_ns;  /* since when the worker is idle */
	uint64_t figure_ns; /* time of the last scene with utilisation; 0: none yet */
	uint64_t asked_ns;  /* time of the last scene that should have had utilisation */
	uint64_t bytes;     /* the worker's bytes in the previous scene */
	/* from guard_set_idle_economy(): the worker is unloaded after this time without work
	 * (UINT64_MAX: never), because of these figures */
	uint64_t after_ns;
	double idle_w, reload_j;
};

/* Lasting conditions of a worker. Each is reported once, when it begins. The values are bits of
 * a set. */
enum worker_condition {
	/* one of the worker's GPUs cannot be read; when the GPU can be read again, the worker
	 * becomes PRESENCE_UNKNOWN */
	CONDITION_UNREADABLE = 1,
	CONDITION_THROTTLED = 1 << 1, /* one of its GPUs is hot, so it must refuse new work */
	CONDITION_DISPLAY = 1 << 2,  /* its GPU has a display: ordinary demand does not evict */
	CONDITION_WITHHELD = 1 << 3, /* the display now prevents an eviction by a demand */
	/* a defect: STEPS steps in one scene were not enough, so the worker gets no order */
	CONDITION_CONTRADICTION = 1 << 4,
};

/* What was reported about the worker, and what the next decision must report. */
struct worker_report {
	enum guard_state state; /* the state that the last decision reported */
	/* rule and evidence of the last decision; while a return is blocked, the evidence is
	 * from the last check. If cause_at is not 0, the decision is about a hold or a request,
	 * and the cause is the part of the evidence that begins at this character. */
	char rule[64], evidence[240];
	unsigned cause_at;
	enum guard_decision_kind last; /* kind of the last decision */
	uint32_t masked;               /* reasons that were reported as masked by a hold */
	/* The next decision takes over the members up to `kind` and resets them. */
	enum guard_result result;
	unsigned level;
	uint64_t freed_bytes;
	uint32_t blocked;
	enum guard_decision_kind kind;
	/* numbers since the start; would_evict: evictions that were only reported */
	unsigned evictions, resumes, would_evict;
};

/* What the guard concluded about the worker's process. */
enum worker_presence {
	PRESENCE_UNKNOWN, /* the next scene will show whether the process exists */
	PRESENCE_GONE,
	PRESENCE_HERE,
};

struct guard_worker {
	const struct policy_worker *policy;
	struct policy_knobs knobs; /* with every default filled in */
	enum guard_dry dry;
	enum worker_presence presence;
	enum worker_admission admission;
	struct worker_observed observed;
	struct worker_demand demand;
	struct worker_reasons reasons;
	struct worker_intent intent;
	struct worker_order order;
	struct worker_backoff backoff;
	struct worker_idle idle;
	uint64_t since_ns;   /* since when the worker is in its present state */
	unsigned conditions; /* set of enum worker_condition */
	struct worker_report report;
	bool record_due; /* the record of the worker must be fetched before the next order */
	bool unsettled;  /* the service ends, and this worker needs an order or an outcome */
};

/* The members have the meanings of struct guard_reservation. */
struct reservation {
	uint64_t id; /* 0: this place is unused */
	int gpu;     /* slot of the GPU */
	uint64_t bytes, until_ns;
	int64_t pid, uid;
	uint64_t most_bytes;
};

struct guard_queue { /* decisions that were not fetched; a full queue drops the oldest */
	struct guard_decision decision[GUARD_DECISIONS];
	unsigned first, count;
};

struct guard {
	const struct policy *p;
	uint64_t now_ns;
	uint64_t scenes;        /* number of observed scenes */
	bool scene_is_new;      /* there was no other input since the last scene */
	int64_t wall_offset_ns; /* wall time minus monotonic time */
	int utc_offset_s;       /* local time minus UTC in the last scene */
	int64_t local_s;        /* local time, in seconds since 1970 */
	/* local_s stays at this value after clocks were set back; 0: it follows the clock */
	int64_t local_floor_s;
	struct scene scene;
	struct verdict verdict[SCENE_PROCESSES]; /* the class of each process of the scene */
	/* as verdict, but without the processes of users who must wait (eviction_limit.c) */
	struct verdict others[SCENE_PROCESSES];
	struct demand demand;
	struct guard_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	unsigned order[POLICY_WORKERS]; /* positions in worker[], lowest priority first */
	struct guard_worker worker[POLICY_WORKERS];
	unsigned workers;
	struct reservation reservation[GUARD_RESERVATIONS];
	uint64_t next_id;       /* highest id of an order or a reservation so far */
	unsigned games;         /* number of registered games, in addition to those in scenes */
	struct scene_game game; /* the game that was registered last */
	bool stopping;          /* guard_stop() was called */
	struct rate rate;
	int64_t requester; /* user of the next request; -1: not limited */
	struct guard_queue queue;
};

static inline bool has(uint64_t set, unsigned i)
{
	return set >> i & 1;
}

static inline bool gpu_is_hung(const struct guard_gpu *u)
{
	return u->now && u->now->health == SCENE_HUNG;
}

/* True if the last scene has no good reading of the GPU. False for a lost GPU. */
static inline bool gpu_is_stale(const struct guard_gpu *u)
{
	return !u->clean && !u->lost;
}

/* True for the stages of an eviction, until the worker is evicted. */
static inline bool stage_leaves(enum worker_stage s)
{
	return s >= STAGE_DRAIN && s <= STAGE_STUCK;
}

static inline bool stage_returns(enum worker_stage s)
{
	return s >= STAGE_LOAD;
}

/* Returns the state that users see. */
enum guard_state worker_state(const struct guard_worker *w);
/* Returns the set of the reasons that apply and are not masked by a hold. If the set is empty,
 * the worker should run. */
uint32_t worker_kept_out(const struct guard_worker *w);
/* True if the last scene has a process of the worker. */
bool worker_is_present(const struct guard_worker *w);
/* True if the worker was evicted or is being evicted, and has not returned yet. */
bool worker_is_moved(const struct guard_worker *w);
/* True if the worker is absent, leaves, is evicted or returns. */
bool worker_is_out(const struct guard_worker *w);
/* True if the worker is out, must stay out, and is not stuck: its memory will become free. */
bool worker_is_leaving(const struct guard_worker *w);
/* True if the worker returns, or leaves again before its return is complete. False if it
 * probably never left (FROM_RUN). */
bool worker_is_returning(const struct guard_worker *w);
/* True if the worker returns (with any worker_from), and the mode allows the return. */
bool worker_is_coming_back(const struct guard_worker *w);
/* False if the hold "active" or the request "resume now" takes precedence over demand. */
bool worker_heeds_demand(const struct guard_worker *w);
/* True if the guard must undo something (worker_owes()), but the mode forbids orders. */
bool worker_resume_forbidden(const struct guard_worker *w);
/* True if the guard really evicted the worker, or really made it refuse new work. */
bool worker_owes(const struct guard_worker *w);
enum guard_hold worker_hold(const struct guard_worker *w);
bool worker_is_held_active(const struct guard_worker *w);
/* True if the worker leaves or is evicted only because it was idle. It still admits work. */
bool worker_is_idle_only(const struct guard_worker *w);
/* True if no order loads the worker's model: it loads when a client requests it. */
bool worker_loads_lazily(const struct guard_worker *w);
bool worker_is_suspected(const struct guard_worker *w);
bool worker_has_contention(const struct guard_worker *w);
bool worker_has_order(const struct guard_worker *w);
/* True if every order has its outcome, and the last scene is newer than the last outcome. */
bool worker_is_fresh(const struct guard *g, const struct guard_worker *w);
/* The longest time that back-off lets a worker wait before it returns: LONGEST_NS, or the
 * configured quiet time if that is longer. */
uint64_t worker_longest_wait_ns(const struct guard_worker *w);
uint64_t worker_quiet_ns(const struct guard_worker *w);
unsigned worker_number(const struct guard *g, const struct guard_worker *w);

/* Each of these changes the worker's presence, intent or demand phase. The caller reports the
 * change with guard_report(). */
void worker_set_unknown(struct guard *g, struct guard_worker *w);
void worker_set_gone(struct guard *g, struct guard_worker *w);
void worker_set_running(struct guard *g, struct guard_worker *w);
void worker_set_suspected(struct guard *g, struct guard_worker *w, bool suspected);
void worker_set_leaving(struct guard *g, struct guard_worker *w, enum worker_stage stage);
void worker_set_out(struct guard *g, struct guard_worker *w);
void worker_set_calming(struct guard *g, struct guard_worker *w, bool calming);
void worker_set_returning(struct guard *g, struct guard_worker *w, enum worker_stage stage,
			  enum worker_from from);
void worker_set_contention(struct guard_worker *w, bool on);
void worker_stop_returning(struct guard_worker *w);
/* Set the bytes that the worker will need when it returns. worker_set_need() sets them to the
 * bytes that a running worker holds. worker_raise_need() raises them if a leaving worker took
 * more memory. */
void worker_set_need(struct guard_worker *w);
void worker_raise_need(struct guard_worker *w);
void worker_forget_eviction(struct guard *g, struct guard_worker *w);

/* Returns the slot of a GPU; adds an unknown GPU if `make` is true, or else returns -1. */
int guard_slot(struct guard *g, const char *uuid, bool make);
/* Updates observations, reasons and demand from g->scene. */
void guard_read_scene(struct guard *g);
enum guard_dry guard_find_dry(const struct guard *g, const struct guard_worker *w);
/* True if one of the worker's GPUs is hung or blind. A GPU is blind after many bad readings,
 * until enough readings in a row are good. */
bool guard_is_blind_or_hung(const struct guard *g, const struct guard_worker *w);
/* True if the last scene has no good reading of one of the worker's GPUs. */
bool guard_is_stale(const struct guard *g, const struct guard_worker *w);
/* True if all of the worker's GPUs are lost. */
bool guard_lost(const struct guard *g, const struct guard_worker *w);
/* Makes the worker's roots in the last scene its known roots. */
void guard_accept_roots(const struct guard *g, struct guard_worker *w);
/* True if the pid of a checkpointed process now belongs to another process. */
bool guard_pid_reused(const struct guard *g, const struct guard_worker *w);
/* Sums the free memory of the worker's GPUs, and the memory that other processes hold there.
 * *ret_known is false if the memory of a GPU cannot be read. */
void guard_free_and_others(const struct guard *g, const struct guard_worker *w,
			   uint64_t *ret_free, uint64_t *ret_others, bool *ret_known);

void guard_update_reasons(struct guard *g);
void guard_update_demand(struct guard *g);
/* Updates since_ns of each reason. */
void guard_note_since(const struct guard *g, struct guard_worker *w);
bool guard_demand_sure(const struct guard *g, const struct guard_worker *w);
/* True if there was no demand for the whole quiet time. */
bool guard_demand_calm(const struct guard *g, const struct guard_worker *w);
/* Returns the rule and the evidence of the first reason that is not masked. text is a buffer
 * for the evidence. */
void guard_cause(const struct guard_worker *w, char text[240], const char **ret_rule,
		 const char **ret_evidence);

/* What follows after a step. */
enum step {
	STEP_WAIT,  /* nothing, until the next scene, outcome or request */
	STEP_ORDER, /* the intent did not change: give its next order, if one is due */
	STEP_AGAIN, /* something changed: another step */
};
/* Decides about every worker until nothing more changes, and gives orders. */
void guard_steps(struct guard *g);
enum step guard_step_verify(struct guard *g, struct guard_worker *w);
/* Continues with the next level, or with STAGE_STUCK. */
void guard_unload_failed(struct guard *g, struct guard_worker *w, const char *why);

/* Returns a clause that says why a return is blocked. NULL for BLOCK_ROOM, BLOCK_TURN and
 * BLOCK_ENDPOINT: the caller writes figures, a name or a message instead. */
const char *guard_block_text(enum guard_block b);
/* Begins the return of a worker if all checks pass. stuck: its memory is not free. */
enum step guard_try_return(struct guard *g, struct guard_worker *w, bool stuck);
void guard_resume_failed(struct guard *g, struct guard_worker *w, const char *message);
void guard_unanswered(struct guard *g, struct guard_worker *w, const char *message);
void guard_count_flap(struct guard *g, struct guard_worker *w);
/* True if an evicted worker has loaded its model again without an order. */
bool guard_is_loaded_again(const struct guard_worker *w);
void guard_loaded_again(struct guard *g, struct guard_worker *w);
enum step guard_step_stop(struct guard *g, struct guard_worker *w);

uint64_t guard_evict_ns(const struct guard_worker *w);
/* Gives the next order, if one is due. */
void guard_give_order(struct guard *g, struct guard_worker *w);
/* Cancels an order that was not fetched. If it is still due, it is given again. */
void guard_take_back(struct guard_worker *w);
void guard_order_overdue(struct guard *g, struct guard_worker *w);
void guard_order_done(struct guard *g, struct guard_worker *w, const struct guard_outcome *o);
/* Handles an order that failed, or a drain after which requests still run. */
void guard_order_failed(struct guard *g, struct guard_worker *w, const struct guard_outcome *o);
void guard_eviction_begins(struct guard *g, struct guard_worker *w);
void guard_eviction_grows(struct guard *g, struct guard_worker *w);
void guard_eviction_ended(struct guard_worker *w, enum guard_result result);
bool guard_can_verify(const struct guard *g, const struct guard_worker *w);
bool guard_is_freed(const struct guard *g, const struct guard_worker *w);
uint64_t guard_freed_bytes(const struct guard_worker *w);
bool guard_may_resume_stuck(const struct guard_worker *w);

unsigned guard_level_first(const struct guard_worker *w);
unsigned guard_level_next(const struct guard_worker *w, unsigned level); /* 0: none */
void guard_level_fit(struct guard_worker *w);
bool guard_withholds(const struct guard *g, const struct guard_worker *w, unsigned slot,
		     const struct demand_case *c);
void guard_limit_scene(struct guard *g, struct guard_worker *w, const struct demand_case *c);
bool guard_contender_fits(const struct guard *g, const struct guard_worker *w);
bool guard_damp(struct guard *g, struct guard_worker *w);
bool guard_take_eviction(struct guard *g, struct guard_worker *w);
void guard_demand_of_others(struct guard *g, const struct guard_worker *w, unsigned slot,
			    struct demand_case *c);
int guard_requester_may(const struct guard *g, uint64_t now_ns, char *message, size_t size);
/* Moves g->now_ns forward, never back: a scene can be older than the last outcome. */
void guard_advance(struct guard *g, uint64_t now_ns);
void guard_limit_text(const struct guard *g, const struct guard_worker *w, char *out,
		      size_t size);

/* Returns the bytes on the GPU that the worker may still allocate because it returns. A worker
 * that must leave before its return is complete may allocate until it is evicted. */
uint64_t guard_loading_bytes(const struct guard_worker *w, unsigned slot);
void guard_update_reservations(struct guard *g);
/* Returns the bytes on the GPU that are reserved for processes outside the worker and are not
 * allocated yet. Writes a clause about these bytes; "" if there are none. */
uint64_t guard_promised(const struct guard *g, const struct guard_worker *w, unsigned slot,
			char *text, size_t size);
void guard_reservations_text(const struct guard *g, const struct guard_worker *w, char *out,
			     size_t size);

void guard_idle_scene(struct guard *g, struct guard_worker *w);
bool guard_idle_wants(const struct guard *g);
bool guard_idle_due(const struct guard *g, const struct guard_worker *w);
void guard_idle_begin(struct guard *g, struct guard_worker *w);
bool guard_idle_end_if_used(struct guard *g, struct guard_worker *w);
void guard_idle_end(struct guard *g, struct guard_worker *w);

/* The names of enums; NULL ends each list. Decisions and recordings use them. */
extern const char *const guard_reason_names[],
	*const guard_state_names[], *const guard_dry_names[],
					    *const guard_result_names[],
						    *const guard_block_names[];
/* Adds a decision. guard_report(): from the last reported state to the present state. */
void guard_report_as(struct guard *g, struct guard_worker *w, enum guard_state from,
		     enum guard_state to, const char *rule, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
#define guard_report(g, w, ...) \
	guard_report_as(g, w, (w)->report.state, worker_state(w), __VA_ARGS__)
void guard_sought_text(const struct guard_worker *w, char *out, size_t size);
uint64_t guard_next_change(const struct guard *g, const struct guard_worker *w);

void guard_begin(struct guard *g, unsigned worker, const struct policy_worker *p,
		 const struct guard_record *records, unsigned n);
void guard_rank(struct guard *g); /* fills order[] by priority */
void guard_bind(struct guard *g, struct guard_worker *w, const struct policy_worker *p);
void guard_name_targets(const struct guard *g, const struct guard_worker *w,
			struct guard_order *o);
/* Message: the worker is evicted, and this mode does not allow the guard to resume it. */
extern const char guard_must_resume_text[];

#endif
