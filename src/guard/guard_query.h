/* guard_read: what the guard makes of what it was told, for who only looks.  Nothing here changes it. */
#ifndef GW_GUARD_GUARD_QUERY_H
#define GW_GUARD_GUARD_QUERY_H

#include "guard.h"

/* ---- a worker ---- */

/* Why what is decided of a worker is not done: the first that holds. */
enum guard_dry {
	DRY_NOT,
	DRY_MODE,      /* it is not to be, in this mode                         */
	DRY_FOREIGN,   /* another service acts for a GPU of it: guard_set_foreign() */
	DRY_SIMULATED, /* a GPU of it is simulated, and that is not asked for   */
	GUARD_DRIES
};
const char *guard_dry_name(unsigned d); /* a word; NULL: it is done */

struct guard_status { /* of one worker, for REST and the page */
	enum guard_state state;
	uint32_t mask;
	enum guard_hold hold;
	uint64_t hold_until_ns, since_ns, next_ns;
	uint64_t resident_bytes, need_bytes, residue_bytes;
	uint64_t freed_ns; /* of its last eviction, since its first order; 0: none yet */
	double backoff;    /* times the quiet period */
	unsigned evictions, resumes, would_evict;
	bool blind, hung, quarantine; /* of any of its GPUs */
	enum guard_dry dry;
	bool storm;     /* its clients load it again and again while it is out */
	char why[240];  /* of the state, with what masks what */
	char rail[240]; /* why demand does not move it, and the remedy; "" */
};
int guard_status(const struct guard *g, unsigned worker, struct guard_status *ret);
/* Levels of the ladder at which it may be evicted: a set; 0: no such worker. */
unsigned guard_levels(const struct guard *g, unsigned worker);
/* Since when it idles, of one that takes part in the idle economy: 0 for others. */
uint64_t guard_idle_since(const struct guard *g, unsigned worker);
/* The number of a worker's order that has no outcome yet; 0: it has none. */
uint64_t guard_order_pending(const struct guard *g, unsigned worker);
/* What is known of a worker, for its record.  0; -GW_E_NOENT: no such, or no look came yet. */
int guard_worker_record(const struct guard *g, unsigned worker, struct guard_record *ret);

/* One reason that holds, with what set it. */
struct guard_explanation {
	bool masked;        /* a hold keeps it from moving the worker */
	uint64_t since_ns;  /* it holds since */
	uint64_t clears_ns; /* by itself at the earliest; 0: no timer runs for it */
	char rule[64];
	char evidence[240];
	char clears[120]; /* what ends it: "when it is released" */
};
/* False: it does not hold. */
bool guard_explain(const struct guard *g, unsigned worker, enum guard_reason r,
		   struct guard_explanation *ret);

/* What a process of the last scene is to a worker. */
struct guard_relation {
	unsigned kind;           /* enum demand_kind of demand.h; 0: it asks for nothing */
	bool here;               /* on a GPU of the worker */
	bool against;            /* and somebody's need is against the worker */
	uint64_t most_bytes;     /* that its program ever held; UINT64_MAX: not known */
	uint64_t min_vram_bytes; /* by which it is judged */
};
void guard_relation(const struct guard *g, unsigned worker, unsigned process,
		    struct guard_relation *ret);

/* Verdicts of the last scene, one a process of it. */
const struct verdict *guard_verdicts(const struct guard *g, const struct scene **ret_scene);

/* ---- rooms, and who makes them ---- */

/* 1 the room is there, 0 not yet, -GW_E_SIZE it will never be, with numbers in message, -GW_E_NOENT it ended. */
int guard_reservation_ready(const struct guard *g, uint64_t id, char *message, size_t size);
/* Of place i; false past the last. */
bool guard_reservation_at(const struct guard *g, unsigned i, struct guard_reservation *ret);

/* By what room is made.  Would this worker leave for somebody else's need? */
bool guard_movable(const struct guard *g, unsigned worker);
/* Which worker leaves as number i, of as many as the policy has. */
unsigned guard_leaves_nth(const struct guard *g, unsigned i);
/* What is kept free beside what was asked for, of a GPU with so much memory. */
uint64_t guard_headroom(const struct guard *g, uint64_t total_bytes);
/* Until this user may move a worker again; 0: now. */
uint64_t guard_user_wait_ns(const struct guard *g, int64_t uid, uint64_t now_ns);

/* ---- all of it ---- */

/* When to look again: GUARD-MACHINE.md, Numbers.  UINT64_MAX: its GPUs sleep, wait for an event. */
uint64_t guard_next_scene_ns(const struct guard *g, uint64_t now_ns);
/* Should the next scene have utilisation?  It is dear: only while there is somebody to judge. */
bool guard_wants_utilisation(const struct guard *g);

/* The GPU cannot be read: what was decided stays. */
bool guard_blind(const struct guard *g, const char *gpu);

/* What stands of what it was told of GPU i (guard_set_reason(), guard_set_heat(), guard_set_foreign()): false past the last.  Texts are
 * borrowed until it is told something else. */
struct guard_gpu_inputs {
	const char *gpu;
	uint32_t reasons; /* a set */
	const char *evidence[GUARD_REASONS];
	unsigned heat;
	const char *heat_why;
	const char *foreign; /* NULL: nobody */
};
bool guard_gpu_inputs(const struct guard *g, unsigned i, struct guard_gpu_inputs *ret);
unsigned guard_game_count(const struct guard *g); /* of guard_set_games() */

/* How many orders were fetched whose outcomes have not come. */
unsigned guard_orders_underway(const struct guard *g);
/* The highest number that an order or a reservation has had. */
uint64_t guard_last_id(const struct guard *g);
/* After guard_stop(): how many are not where they are to be left yet; and is this one of them? */
unsigned guard_unsettled_count(const struct guard *g);
bool guard_unsettled(const struct guard *g, unsigned worker);

#endif
