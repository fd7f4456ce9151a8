/* guard_query: returns what the guard knows and what it has decided. These functions do not
 * change the guard. */
#ifndef GW_GUARD_GUARD_QUERY_H
#define GW_GUARD_GUARD_QUERY_H

#include "guard.h"

/* Why decisions about a worker are not carried out. If several values apply, the first is
 * used. */
enum guard_dry {
	DRY_NOT,
	DRY_MODE,    /* the mode is not enforce */
	DRY_FOREIGN, /* another service acts on one of the worker's GPUs: guard_set_foreign() */
	/* one of the worker's GPUs is simulated, and policy.simulated_too is not set */
	DRY_SIMULATED,
	GUARD_DRIES
};
const char *guard_dry_name(unsigned d); /* "mode", ...; NULL for DRY_NOT */

/* Writes a decision as a sentence. If a decision is only reported, its sentence begins with
 * `dry` in parentheses. */
#define GUARD_DECISION_TEXT 700
void guard_decision_text(const struct guard_decision *d, const char *worker, const char *dry,
			 char out[static GUARD_DECISION_TEXT]);

/* A mode that a person set while the service ran. */
struct guard_mode_set {
	const char *mode, *who, *time_utc;
	const char *configured; /* the mode of the configuration */
};
/* Writes a sentence that names this mode and says how to use the configured mode again. */
void guard_mode_text(const struct guard_mode_set *m, char *out, size_t size);

struct guard_status { /* status of one worker, for the HTTP API and the page */
	enum guard_state state;
	uint32_t mask; /* set of the reasons that hold */
	enum guard_hold hold;
	uint64_t hold_until_ns; /* end of the hold or of an evict request; 0: there is none */
	uint64_t since_ns;      /* since when the worker is in this state */
	uint64_t next_ns; /* earliest time at which a timer changes the state; 0: unknown */
	uint64_t resident_bytes; /* GPU memory that the worker holds now */
	uint64_t need_bytes;     /* GPU memory that it holds, or held when its eviction began */
	uint64_t residue_bytes;  /* GPU memory that it holds while it is evicted */
	uint64_t freed_ns;       /* how long the worker's last eviction took; 0: none yet */
	double backoff;          /* the quiet time is multiplied by this */
	/* numbers since the start; would_evict: evictions that were only reported */
	unsigned evictions, resumes, would_evict;
	/* true if one of the worker's GPUs is blind, hung or in quarantine */
	bool blind, hung, quarantine;
	enum guard_dry dry;
	/* the worker was really evicted, and the guard does not resume it until `dry` is
	 * DRY_NOT */
	bool stays_evicted;
	enum guard_decision_kind decided; /* kind of the last decision */
	bool storm; /* clients load the worker again and again while it is evicted */
	/* rule and evidence of the last decision, and reasons that a hold masks */
	char why[240];
	/* why demand does not evict the worker, and what to do; "": no limit applies */
	char limit[240];
};
int guard_status(const struct guard *g, unsigned worker, struct guard_status *ret);
/* Returns the levels at which the worker may be evicted, as a set; 0: no such worker. */
unsigned guard_levels(const struct guard *g, unsigned worker);
/* Returns since when a worker with idle economy is idle; 0: it has no idle economy. */
uint64_t guard_idle_since(const struct guard *g, unsigned worker);
/* Returns the id of the worker's order that has no outcome yet; 0: none. */
uint64_t guard_order_pending(const struct guard *g, unsigned worker);
/* True if an order to resume is under way for a worker that must leave again. */
bool guard_resume_is_obsolete(const struct guard *g, unsigned worker);
/* Writes the worker's record. Returns 0; -GW_E_NOENT: there is no such worker, or no scene was
 * observed yet. */
int guard_worker_record(const struct guard *g, unsigned worker, struct guard_record *ret);

/* One reason that holds. */
struct guard_explanation {
	bool masked;       /* because of a hold, the reason does not evict the worker */
	uint64_t since_ns; /* since when the reason applies */
	/* earliest time at which a timer ends the reason; 0: no timer runs for it */
	uint64_t clears_ns;
	char rule[64];
	char evidence[240];
	/* for REASON_CONTENTION, the process that caused the demand; it may have ended */
	struct contender contender;
	char clears[120]; /* what ends the reason: "when the reservation is released" */
	/* What can end the reason before clears_ns: "if the reservation is released". "":
	 * nothing. The reason may also last longer than clears_ns. */
	char earlier[80];
};
/* Explains a reason of a worker. False: the reason does not apply. */
bool guard_explain(const struct guard *g, unsigned worker, enum guard_reason r,
		   struct guard_explanation *ret);

/* What a process of the last scene means to a worker. */
struct guard_relation {
	unsigned kind; /* enum demand_kind; 0: the process is not a demand */
	bool here;     /* the process is on a GPU of the worker */
	bool against;  /* the last scene has a demand against the worker */
	/* the most memory that the process's program ever held; UINT64_MAX: unknown */
	uint64_t most_bytes;
	uint64_t min_vram_bytes; /* the worker's threshold for DEMAND_MEMORY */
};
void guard_relation(const struct guard *g, unsigned worker, unsigned process,
		    struct guard_relation *ret);

/* Returns the verdicts of the last scene, one per process. */
const struct verdict *guard_verdicts(const struct guard *g, const struct scene **ret_scene);

/* Returns 1 if the reserved memory is free, 0 if it is not free yet, -GW_E_SIZE if not enough
 * memory can become free, or -GW_E_NOENT if the reservation ended. Always writes a sentence. */
int guard_reservation_ready(const struct guard *g, uint64_t id, char *message, size_t size);
/* Gets the reservation at place i. Returns false after the last place. */
bool guard_reservation_at(const struct guard *g, unsigned i, struct guard_reservation *ret);

/* True if this worker may be evicted for a reservation. */
bool guard_movable(const struct guard *g, unsigned worker);
/* Returns the worker at place i in the order of eviction: the worker at place 0 has the lowest
 * priority. i is less than the policy's number of workers. */
unsigned guard_leaves_nth(const struct guard *g, unsigned i);
/* Returns the headroom: bytes that are kept free on a GPU with total_bytes of memory. */
uint64_t guard_headroom(const struct guard *g, uint64_t total_bytes);
/* Returns how long this user must wait before causing an eviction again; 0: no wait. */
uint64_t guard_user_wait_ns(const struct guard *g, int64_t uid, uint64_t now_ns);

/* Returns the time at which the next scene is due (GUARD-MACHINE.md, Numbers). UINT64_MAX: the
 * workers' GPUs sleep, and only an event can change a worker. */
uint64_t guard_next_scene_ns(const struct guard *g, uint64_t now_ns);
/* True if the next scene should include utilisation. Reading it is expensive. */
bool guard_wants_utilisation(const struct guard *g);

/* True if the GPU is blind: too many readings failed, so nothing is decided about its
 * workers. */
bool guard_blind(const struct guard *g, const char *gpu);

/* The inputs that now apply to GPU i, from guard_set_reason(), guard_set_heat() and
 * guard_set_foreign(). guard_gpu_inputs() returns false after the last GPU. Strings are
 * borrowed until the next input. */
struct guard_gpu_inputs {
	const char *gpu;
	uint32_t reasons; /* a set */
	const char *evidence[GUARD_REASONS];
	unsigned heat;
	const char *heat_why;
	const char *foreign; /* name of another service that acts on the GPU; NULL: none does */
};
bool guard_gpu_inputs(const struct guard *g, unsigned i, struct guard_gpu_inputs *ret);
/* Returns the number of games from guard_set_games(), and the game that was registered last. */
unsigned guard_game_count(const struct guard *g, struct scene_game *ret_game);

/* Returns the workers that have a fetched order without an outcome, one bit per worker. */
uint32_t guard_orders_underway(const struct guard *g);
/* Returns the highest id of an order or a reservation so far. */
uint64_t guard_last_id(const struct guard *g);
/* For use after guard_stop(). guard_unsettled_count() returns how many workers still need an
 * order or an outcome before the service may end. guard_unsettled() returns whether this worker
 * is one of them. */
unsigned guard_unsettled_count(const struct guard *g);
bool guard_unsettled(const struct guard *g, unsigned worker);

/* what_if: finds what a guard would decide in a scene.
 *
 * what_if uses a separate guard in a dry run. This guard first observes an earlier scene once,
 * so that it finds the workers. Then it observes the scene itself for a while; processes that
 * were not in the earlier scene count as new. This guard does not have the holds, timers and
 * history of the running guard. */

#define WHAT_IF_SCENES 300 /* maximum number of scenes, however long the span is */

struct what_if;

/* p is borrowed; its mode is not used. The run begins at the time of day of s. Returns 0 or
 * -GW_E_NOMEM. */
int what_if_new(const struct policy *p, const struct scene *before, const struct scene *s,
		struct what_if **ret);
void what_if_free(struct what_if *t);

/* Runs for span_ns, or for WHAT_IF_SCENES scenes. Calls `each` with every decision; the
 * decision's mono_ns counts from the beginning of the run. Calls `more` before every scene;
 * NULL: no limit. Returns false if `more` returned false, which ends the run. */
bool what_if_run(struct what_if *t, uint64_t span_ns,
		 void (*each)(void *arg, const struct guard_decision *d),
		 bool (*more)(void *arg), void *arg);

/* Returns the guard after the run, for guard_status() and guard_verdicts(). */
const struct guard *what_if_guard(const struct what_if *t);
unsigned what_if_scenes(const struct what_if *t);
uint64_t what_if_span_ns(const struct what_if *t); /* simulated time that has passed */

/* Makes an earlier scene for an invented scene s. The earlier scene has only these processes of
 * s: processes of workers, of this program and of the system, and processes that a rule
 * ignores. All other processes are left out, and their memory is free. */
void what_if_before(const struct policy *p, const struct scene *s, struct scene *out);

#endif
