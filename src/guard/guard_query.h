/* guard_query: what the guard knows and decided.  Nothing here changes it. */
#ifndef GW_GUARD_GUARD_QUERY_H
#define GW_GUARD_GUARD_QUERY_H

#include "guard.h"

/* ---- a worker ---- */

/* Why decisions about a worker are not carried out: the first that holds. */
enum guard_dry {
	DRY_NOT,
	DRY_MODE,      /* by the mode */
	DRY_FOREIGN,   /* another service acts on one of its GPUs: guard_set_foreign() */
	DRY_SIMULATED, /* one of its GPUs is simulated, and policy.simulated_too is not set */
	GUARD_DRIES
};
const char *guard_dry_name(unsigned d); /* NULL: they are carried out */

struct guard_status { /* of one worker, for REST and the page */
	enum guard_state state;
	uint32_t mask;
	enum guard_hold hold;
	uint64_t hold_until_ns, since_ns, next_ns;
	uint64_t resident_bytes, need_bytes, residue_bytes;
	uint64_t freed_ns; /* how long its last eviction took; 0: none yet */
	double backoff;    /* times the quiet time */
	unsigned evictions, resumes, would_evict;
	bool blind, hung, quarantine; /* one of its GPUs is */
	enum guard_dry dry;
	bool storm;     /* its clients load it again and again while it is out */
	char why[240];  /* of the last decision, with what a hold masks */
	char rail[240]; /* why demand does not move it, and what to do; "" */
};
int guard_status(const struct guard *g, unsigned worker, struct guard_status *ret);
/* Levels at which it may be evicted: a set; 0: no such worker. */
unsigned guard_levels(const struct guard *g, unsigned worker);
/* Since when a worker with idle economy idles; 0: without it. */
uint64_t guard_idle_since(const struct guard *g, unsigned worker);
/* The id of its order that has no outcome yet; 0: none. */
uint64_t guard_order_pending(const struct guard *g, unsigned worker);
/* What is known of it.  0; -GW_E_NOENT: no such worker, or no scene came yet. */
int guard_worker_record(const struct guard *g, unsigned worker, struct guard_record *ret);

/* One reason that holds. */
struct guard_explanation {
	bool masked;        /* a hold keeps it from moving the worker */
	uint64_t since_ns;  /* it holds since */
	uint64_t clears_ns; /* when a timer ends it at the earliest; 0: no timer runs for it */
	char rule[64];
	char evidence[240];
	char clears[120]; /* what ends it: "when it is released" */
};
/* False: it does not hold. */
bool guard_explain(const struct guard *g, unsigned worker, enum guard_reason r,
		   struct guard_explanation *ret);

/* What a process of the last scene means to a worker. */
struct guard_relation {
	unsigned kind;           /* enum demand_kind; 0: it demands nothing */
	bool here;               /* it is on a GPU of the worker */
	bool against;            /* a demand is against the worker */
	uint64_t most_bytes;     /* that its program ever held; UINT64_MAX: unknown */
	uint64_t min_vram_bytes; /* the worker's threshold */
};
void guard_relation(const struct guard *g, unsigned worker, unsigned process,
		    struct guard_relation *ret);

/* Verdicts of the last scene, one per process. */
const struct verdict *guard_verdicts(const struct guard *g, const struct scene **ret_scene);

/* ---- reservations ---- */

/* 1: the memory is free, 0: not yet; with a sentence, also -GW_E_SIZE: it never will be, and -GW_E_NOENT: it ended. */
int guard_reservation_ready(const struct guard *g, uint64_t id, char *message, size_t size);
/* At place i; false after the last place. */
bool guard_reservation_at(const struct guard *g, unsigned i, struct guard_reservation *ret);

/* Would this worker be evicted for a reservation? */
bool guard_movable(const struct guard *g, unsigned worker);
/* Which worker is evicted as number i, of as many as the policy has. */
unsigned guard_leaves_nth(const struct guard *g, unsigned i);
/* What is kept free in addition, on a GPU with so much memory. */
uint64_t guard_headroom(const struct guard *g, uint64_t total_bytes);
/* Until this user may cause an eviction again; 0: now. */
uint64_t guard_user_wait_ns(const struct guard *g, int64_t uid, uint64_t now_ns);

/* ---- the whole ---- */

/* When the next scene is due: GUARD-MACHINE.md, Numbers.  UINT64_MAX: its GPUs sleep, wait for an event. */
uint64_t guard_next_scene_ns(const struct guard *g, uint64_t now_ns);
/* Should the next scene have utilisation?  Reading it is expensive. */
bool guard_wants_utilisation(const struct guard *g);

/* The GPU cannot be read: decisions stay as they are. */
bool guard_blind(const struct guard *g, const char *gpu);

/* Inputs that hold for GPU i (guard_set_reason(), guard_set_heat(), guard_set_foreign()); false after the last GPU.  Texts
 * are borrowed until the next input. */
struct guard_gpu_inputs {
	const char *gpu;
	uint32_t reasons; /* a set */
	const char *evidence[GUARD_REASONS];
	unsigned heat;
	const char *heat_why;
	const char *foreign; /* NULL: no other service */
};
bool guard_gpu_inputs(const struct guard *g, unsigned i, struct guard_gpu_inputs *ret);
unsigned guard_game_count(const struct guard *g); /* of guard_set_games() */

/* How many orders were fetched and have no outcome. */
unsigned guard_orders_underway(const struct guard *g);
/* The highest id of an order or a reservation so far. */
uint64_t guard_last_id(const struct guard *g);
/* After guard_stop(): how many workers are not yet as they are to be left; and is this one of them? */
unsigned guard_unsettled_count(const struct guard *g);
bool guard_unsettled(const struct guard *g, unsigned worker);

#endif
