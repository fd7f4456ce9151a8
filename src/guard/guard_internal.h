/* What the files of the guard share; nobody else includes this.
 *
 *   guard.c          what comes in (looks, outcomes) and what is fetched
 *   guard_query.c     when to look again, how a worker stands
 *   observe.c    a scene -> facts: overlays of GPUs, who holds what, reason masks, who must leave
 *   decide.c     facts -> the next state: the machine itself, with
 *   state_entry.c    what entering a state does,
 *   evict.c    the states on the GPU and on the way off it,
 *   resume.c   those that are out and on the way back
 *   service_stop.c      what is still done when the service ends
 *   orders.c    the ladder, orders, and the proof that memory was freed
 *   guard_request.c      holds and commands of people
 *   eviction_limit.c     what is not done though the rules say so; guard_rate.c counts for it
 *   reservation.c  reservations
 *   policy_change.c     another policy in the place of the one it has
 *   idle.c     models that idle
 *   decision_text.c      states, reasons and decisions in words
 *   explain.c      each reason with rule, evidence and end; who is beside a worker
 */
#ifndef GW_GUARD_GUARD_INTERNAL_H
#define GW_GUARD_GUARD_INTERNAL_H

#include "demand.h"
#include "guard_input.h"
#include "user_rate.h"
#include "guard_query.h"

#include "base/clock.h"

#define GUARD_DECISIONS    512
#define GUARD_RESERVATIONS 32
#define GUARD_FLAPS        8

#define MIB          (UINT64_C(1) << 20)
#define BIT(r)       (UINT32_C(1) << (r))
#define MASK_SOFT    (BIT(REASON_CONTENTION)) /* what must be sure and calm first */
#define FOR_EVER     UINT64_MAX
#define CALM_LOOKS   3
#define RETRIES      2
#define RETRY_NS     NS_PER_S
#define RECHECK_NS   (5 * NS_PER_S)
#define STUCK_NS     (30 * NS_PER_S)
#define UP_NS        (120 * NS_PER_S)
#define LONGEST_NS   (600 * NS_PER_S) /* no back-off is longer */
#define FLAP_NS      (900 * NS_PER_S)
#define RELOAD_NS    (300 * NS_PER_S)
#define CALL_NS      (10 * NS_PER_S) /* a call of an adapter or a hook */
#define LEAST_NS     (2 * NS_PER_S)  /* and no call of an eviction has less */
#define AC_NS        (10 * NS_PER_S)
#define WELL_NS      (60 * NS_PER_S)
#define BLIND_ERRORS 10
#define CLEAN_LOOKS  3
#define SLACK_BYTES  (64 * MIB)
/* Of who was moved before the mode changed. */
#define GUARD_OWED \
	"it was moved, and in this mode nothing is done: mode = \"enforce\" brings it back"
/* Of one whose clients load it again and again. */
#define GUARD_STORM \
	": hold its clients back, or let the guard stop its unit (kind = \"systemd\")"
#define STAGING (256 * MIB) /* host memory without which nothing can be loaded */

/* What a hold active masks: a set. */
enum {
	MASK_HOLD = 0
#define R(symbol, name, held) | (held) << REASON_##symbol
#include "reason.def"
};

struct guard_gpu {
	char uuid[96];
	int at; /* position in the scene; -1: not in it */
	bool blind, hung, lost;
	bool stale;          /* this time it could not be read */
	unsigned clean;      /* good looks since it was blind */
	uint64_t well_ns;    /* answers again since; 0: does not */
	bool seen;           /* since the start */
	uint64_t missing_ns; /* never seen, while others answer, since then; 0: not so */
	uint32_t reasons;    /* set by others */
	char evidence[GUARD_REASONS][160];
	struct guard_end {
		char clears[120]; /* "": it is not known */
		uint64_t ns;      /* at the earliest; 0: no timer runs for it */
	} end[GUARD_REASONS];
	char foreign[64];      /* who else acts on it; "": nobody */
	uint64_t acted_ns;     /* when an action on it last ended; 0: never */
	uint64_t free_bytes;   /* as if dry evictions had been made */
	uint64_t coming_bytes; /* what leaving workers still hold */
	uint64_t promised;     /* reservations that are not used yet */
	unsigned heat;         /* set of guard_heat */
	char heat_why[160];
	const struct scene_gpu *now;
};

struct guard_worker {
	const struct policy_worker *policy;
	struct policy_knobs knobs; /* none left open */
	enum guard_state state;
	uint64_t since_ns;

	/* Facts of the last look. */
	enum guard_dry dry;
	bool rematched;      /* another match was given, by which it was not seen yet */
	bool present, delta; /* delta: judged by the device's memory, its own is not told */
	struct {
		int64_t pid;
		uint64_t start_ticks;
	} root[GUARD_ROOTS]; /* who it was, at the last look */
	unsigned roots;
	bool recalled; /* those are of a record: it may have begun anew since */
	bool replaced; /* none of those is left, others are there */
	bool lingers;  /* one of those lives, and is not found any more */
	bool barred;   /* ... and was put away: nobody who is found instead takes its place */
	uint64_t seen_ns;    /* it was last there; 0: nobody saw it */
	bool starting;       /* it was not there and we start it */
	uint64_t gpus, home; /* sets of slots: it may be on, it was last on */
	uint64_t bytes, held[SCENE_GPUS], need_on[SCENE_GPUS], need_bytes;
	uint32_t mask;
	char evidence[GUARD_REASONS][200];
	uint64_t reason_ns[GUARD_REASONS]; /* it holds since; 0: it does not */
	char cause[64];                    /* rule of the demand that contention is for */
	uint64_t pretended;                /* bytes that a dry eviction left where they are */
	struct demand_case demand;
	bool against; /* the demand is against this one */
	uint64_t against_ns, calm_ns;
	unsigned against_looks, calm_looks;

	/* Reasons that are kept. */
	bool contention, manual, override;
	uint32_t reserved; /* set of reservations */
	uint64_t battery_ns;
	enum guard_hold hold;
	uint64_t until_ns;      /* of hold or manual; FOR_EVER */
	uint64_t until_wall_ns; /* from a record, until the first look */

	/* Idling. */
	bool idle, works, wants_figure;
	uint64_t idle_ns, figure_ns, idle_bytes; /* idles since; utilisation was last told */
	uint64_t idle_after_ns;                  /* UINT64_MAX: it is left alone */
	uint64_t asked_ns;                       /* for utilisation; 0: never */
	double idle_w, reload_j;

	/* The order under way. */
	struct guard_order order;
	bool fresh, pending;
	uint64_t answered; /* the look before its last answer: what it says of memory is old */
	uint64_t retry_ns; /* no order before */
	unsigned level, tries;
	uint64_t deadline_ns; /* of the state */
	uint64_t budget_ns;   /* the eviction must have been proven by then */

	/* The eviction. */
	bool ajar; /* closed by our books, but nobody saw the door since we began */
	bool evicted, closed, drained, storm, virtual_out;
	bool astray; /* told: one that we moved out lives, and we cannot bring it back */
	bool owed;   /* out for real, and the mode that came since lets nobody bring it back */
	bool returning; /* a resume was begun and has not been proven */
	bool stayed;    /* it was told to leave, and its memory is still there */
	bool told;      /* ... and it said that it did, or nobody knows what it said */
	uint64_t base_bytes, base_free, base_others, begun_ns, freed_ns, residue_bytes;
	uint64_t flap[GUARD_FLAPS], reload[3];
	unsigned flaps, reloads;
	double backoff;
	struct {
		int64_t pid;
		uint64_t start_ticks;
	} put_away[GUARD_TARGETS];
	unsigned put_away_count;

	/* The way back. */
	bool last;  /* the service ends, and what was under way is seen to */
	bool asked; /* somebody wants it back, whatever resume says */
	uint64_t check_ns, resume_after_ns, resume_backoff_ns, resident_until_ns;
	uint32_t blocked; /* set of failed items that was last told */

	bool frozen, throttled, damped, dirty;
	uint32_t masked;       /* told: reasons that a hold masks */
	bool screen, withheld; /* told: demand on a GPU with a screen does not count */
	unsigned quiet_looks;  /* without one that was withheld */
	uint64_t limited_ns;   /* whoever wants it gone may not before; 0: he may */
	int where;             /* slot of the GPU where the demand is */
	/* Told with the next decision. */
	enum guard_result ended;
	unsigned ended_level;
	uint64_t ended_bytes;
	uint32_t ended_blocked;
	unsigned evictions, resumes, would_evict;
	char why[240];
	char gone[240]; /* what the demand was for; of guard_cause() */
};

struct reservation {
	uint64_t id; /* 0: free */
	int gpu;     /* slot */
	uint64_t bytes, until_ns;
	int64_t pid;
	uint64_t most_bytes;
};

struct guard {
	const struct policy *p;
	uint64_t now_ns;
	bool looked;
	uint64_t looks;
	int64_t wall_offset_ns; /* wall - monotonic */
	int utc_offset_s;
	int64_t local_s, local_floor_s;
	struct scene scene;
	struct verdict verdict[SCENE_PROCESSES];
	struct verdict
		others[SCENE_PROCESSES]; /* of eviction_limit.c: without users who may not */
	struct demand demand;
	struct guard_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	unsigned order[POLICY_WORKERS]; /* workers, lowest priority first */
	struct guard_worker worker[POLICY_WORKERS];
	unsigned workers;
	struct reservation reservation[GUARD_RESERVATIONS];
	uint64_t next_id;
	unsigned games;
	bool stopping; /* guard_stop() was called */
	struct rate rate;
	int64_t asker; /* of the next wish; -1: nobody who is limited */
	struct guard_decision decision[GUARD_DECISIONS];
	unsigned first, waiting;
};

static inline bool has(uint64_t set, unsigned i)
{
	return set >> i & 1;
}

/* What keeps it out, after what a hold masks. */
static inline uint32_t guard_effective(const struct guard_worker *w)
{
	return w->hold == HOLD_ACTIVE ? w->mask & ~(uint32_t)MASK_HOLD : w->mask;
}

/* guard.c */
void guard_begin(struct guard *g, unsigned worker, const struct policy_worker *p,
		 const struct guard_record *records, unsigned n);
void guard_rank(struct guard *g); /* order[], by priority */
void guard_bind(struct guard *g, struct guard_worker *w, const struct policy_worker *p);
bool guard_owes(const struct guard_worker *w); /* it is out, or its door closed, by us */

/* observe.c */
enum guard_dry guard_is_dry(const struct guard *g, const struct guard_worker *w);
int guard_slot(struct guard *g, const char *uuid, bool make);
void guard_read_scene(struct guard *g);
void guard_update_reasons(struct guard *g); /* again, after something was asked */
bool guard_unseen(const struct guard *g, const struct guard_worker *w);
bool guard_unread(const struct guard *g, const struct guard_worker *w);
bool guard_lost(const struct guard *g, const struct guard_worker *w);
bool guard_is_out(const struct guard_worker *w);
bool guard_leaving(const struct guard_worker *w); /* what it holds will be free */
void guard_free_and_others(const struct guard *g, const struct guard_worker *w,
			   uint64_t *ret_free, uint64_t *ret_others, bool *ret_known);

/* state_entry.c */
uint64_t guard_quiet_ns(const struct guard_worker *w);
uint64_t guard_evict_ns(const struct guard_worker *w);
void guard_latch(struct guard_worker *w, bool on);
bool guard_sure(const struct guard *g, const struct guard_worker *w);
bool guard_calm(const struct guard *g, const struct guard_worker *w);
bool guard_is_fresh(const struct guard *g, const struct guard_worker *w);
bool guard_lazy(const struct guard_worker *w);
void guard_forget(struct guard_worker *w); /* that it is out */
void guard_shift(struct guard *g, struct guard_worker *w, enum guard_state to); /* untold */
void guard_move(struct guard *g, struct guard_worker *w, enum guard_state to, const char *rule,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void guard_leave(struct guard *g, struct guard_worker *w);

/* evict.c, resume.c: true: something moved, ask again. */
bool guard_step_running(struct guard *g, struct guard_worker *w);
bool guard_step_drain(struct guard *g, struct guard_worker *w);
bool guard_step_evict(struct guard *g, struct guard_worker *w);
bool guard_step_verify(struct guard *g, struct guard_worker *w);
bool guard_step_stuck(struct guard *g, struct guard_worker *w);
bool guard_step_out(struct guard *g, struct guard_worker *w);
bool guard_step_resume(struct guard *g, struct guard_worker *w);
bool guard_step_verify_up(struct guard *g, struct guard_worker *w);
bool guard_try_resume(struct guard *g, struct guard_worker *w);
bool guard_may_tell(const struct guard_worker *w); /* ... one that stayed to come back */
void guard_unanswered(struct guard *g, struct guard_worker *w, const char *message);
void guard_escalate(struct guard *g, struct guard_worker *w, const char *why);
void guard_back_off(struct guard *g, struct guard_worker *w);
void guard_listen(struct guard *g, struct guard_worker *w);
void guard_resume_failed(struct guard *g, struct guard_worker *w, const char *message);

/* service_stop.c */
bool guard_step_end(struct guard *g, struct guard_worker *w);

/* policy_change.c */
void guard_take_back(struct guard_worker *w);

/* decide.c */
void guard_steps(struct guard *g);
void guard_failed(struct guard *g, struct guard_worker *w, bool retry, const char *message);
void guard_done(struct guard *g, struct guard_worker *w);

/* orders.c */
unsigned guard_level_first(const struct guard_worker *w);
unsigned guard_level_next(const struct guard_worker *w, unsigned level); /* 0: none */
void guard_level_fit(struct guard_worker *w);                            /* to another policy */
void guard_issue(struct guard *g, struct guard_worker *w, enum guard_verb verb,
		 uint64_t deadline_ns);
void guard_overdue(struct guard *g, struct guard_worker *w);
void guard_begin_eviction(struct guard *g, struct guard_worker *w);
void guard_grown(struct guard *g, struct guard_worker *w);
/* Would it be seen?  By the memory of each of its GPUs, or by lists that tell all. */
bool guard_provable(const struct guard *g, const struct guard_worker *w);
uint64_t guard_gone(const struct guard_worker *w);
bool guard_freed(const struct guard *g, const struct guard_worker *w);
void guard_ended(struct guard_worker *w, enum guard_result result); /* at its level */

/* eviction_limit.c */
bool guard_withholds(const struct guard *g, const struct guard_worker *w, unsigned slot,
		     const struct demand_case *c);
void guard_limit_scene(struct guard *g, struct guard_worker *w, const struct demand_case *c);
bool guard_limited(struct guard *g, struct guard_worker *w);
void guard_hear_others(struct guard *g, const struct guard_worker *w, unsigned slot,
		       struct demand_case *c);
int guard_requester_may(const struct guard *g, uint64_t now_ns, char *message, size_t size);
void guard_limit_text(const struct guard *g, const struct guard_worker *w, char *out,
		      size_t size);

/* reservation.c */
void guard_reserve_look(struct guard *g);

/* idle.c */
void guard_idle_look(struct guard *g, struct guard_worker *w);
bool guard_idle_wants(const struct guard *g);
bool guard_idle_due(const struct guard *g, const struct guard_worker *w);
void guard_idle_begin(struct guard *g, struct guard_worker *w);
void guard_idle_end(struct guard *g, struct guard_worker *w);

/* Out for idling and nothing else: it stays open to those who ask it. */
static inline bool guard_idle_only(const struct guard_worker *w)
{
	return guard_effective(w) == BIT(REASON_IDLE);
}

/* decision_text.c */
void guard_say(struct guard *g, struct guard_worker *w, enum guard_state from, const char *rule,
	       const char *fmt, ...) __attribute__((format(printf, 5, 6)));
uint64_t guard_next_change(const struct guard *g, const struct guard_worker *w);
void guard_cause(struct guard_worker *w, const char **ret_rule, const char **ret_evidence);

/* explain.c */
void guard_note_since(const struct guard *g, struct guard_worker *w);
/* Evidence of RESERVED and of SCHEDULE: whose room, which hours. */
void guard_rooms_text(const struct guard *g, const struct guard_worker *w, char *out,
		      size_t size);
void guard_span_text(const struct guard *g, const struct guard_worker *w, char *out,
		     size_t size);
void guard_sought(const struct guard_worker *w, char *out, size_t size);

#endif
