/* guard: when a worker must leave the GPU and when it may come back.  Pure.
 *
 * Fed with scenes, outcomes of orders and what people ask for, each with its time; gives back orders
 * and decisions.  It keeps the promises of docs/GUARD-MACHINE.md by deriving a worker's state from a few
 * facts: its reason mask, the bytes it holds, the order under way, and deadlines.  Nothing here reads
 * a clock, a file or a process.  The same feed gives the same decisions byte for byte.
 *
 * Here are its words and what goes in and out; guard_input.h is for who tells it something and fetches what
 * follows, guard_query.h for who only looks. */
#ifndef GW_GUARD_GUARD_H
#define GW_GUARD_GUARD_H

#include "classify.h"

#include "base/proc_id.h"

struct guard;

/* Why a worker may not run: bits; reason.def, and GUARD-MACHINE.md, Reasons. */
enum guard_reason {
#define R(symbol, name, held) REASON_##symbol,
#include "reason.def"
	GUARD_REASONS
};
const char *guard_reason_name(unsigned r);
/* The names of a set of them, parted by between. */
void guard_mask_text(uint32_t mask, const char *between, char *out, size_t size);

enum guard_state {
	STATE_RECONCILE,
	STATE_ACTIVE,
	STATE_SUSPECT,
	STATE_DRAIN,
	STATE_EVICT,
	STATE_VERIFY,
	STATE_EVICTED,
	STATE_QUIET,
	STATE_PRECHECK,
	STATE_RESUME,
	STATE_VERIFY_UP,
	STATE_STUCK,
	STATE_ABSENT,
	GUARD_STATES
};
const char *guard_state_name(unsigned s);

/* How a try to evict at one level of the ladder ended. */
enum guard_result {
	RESULT_NONE,      /* nothing ended                                          */
	RESULT_FREED,     /* the memory is free; of a dry decision: it would be     */
	RESULT_NOT_FREED, /* the worker said done, and the memory did not come free */
	RESULT_FAILED,    /* the worker did not do it, or not in time               */
	RESULT_WITHHELD,  /* it would have been begun, and a guard rail forbids it  */
	GUARD_RESULTS
};
const char *guard_result_name(unsigned r);
#define GUARD_LEVELS 7 /* of the ladder: 0 to 6 */
#define LEVEL_STOP   4 /* the unit or container is stopped; from the next on it is signalled */

/* What keeps a worker out that nothing speaks against: bits. */
enum guard_block {
	BLOCK_BACKOFF,
	BLOCK_ROOM,
	BLOCK_UNKNOWN,
	BLOCK_THERMAL,
	BLOCK_HOST,
	BLOCK_GONE,
	BLOCK_DEMAND,
	BLOCK_TURN,
	BLOCK_BUSY,
	BLOCK_NEVER,
	BLOCK_ENDPOINT,
	GUARD_BLOCKS
};
const char *guard_block_name(unsigned b); /* a word */

enum guard_hold { HOLD_NONE, HOLD_EVICTED, HOLD_ACTIVE };

/* Processes of one worker that an order can name: all of them fit into its record, so that none is put
 * away of which the journal does not know. */
#define GUARD_TARGETS 64
#define GUARD_ROOTS   8 /* processes that a worker is known by */

/* What must survive a crash: one for each worker, written before the order that it tells of. */
struct guard_record {
	char worker[64];
	uint32_t mask;
	unsigned level;      /* of the eviction that was made or is being made */
	bool evicted;        /* it was, or was being, evicted */
	uint64_t need_bytes; /* peak while it ran */
	struct { /* ... and where; without it nobody could say where it must fit again */
		char uuid[96];
		uint64_t need_bytes;
	} gpu[POLICY_GPUS];
	unsigned gpus;
	enum guard_hold hold;
	uint64_t hold_until_wall_ns; /* 0: no end */
	uint64_t wall_ns;
	/* Of a checkpoint: who was put away. */
	struct proc_id put_away[GUARD_TARGETS];
	unsigned put_away_count;
	/* Of one that is out: who it was, by which it is known that it lives, whoever is found. */
	struct proc_id root[GUARD_ROOTS];
	unsigned roots;
};

enum guard_verb {
	ORDER_CLOSE,
	ORDER_DRAIN,
	ORDER_EVICT,
	ORDER_OPEN,
	ORDER_RESUME,
	ORDER_NOTIFY
};

struct guard_target {
	int64_t pid;
	uint64_t start_ticks;
	bool itself; /* it is the worker's by what it is, not by who is above it: before it is
		      * touched, its match must still hold */
	uint64_t print; /* of such a root: scene_root.print; 0: unknown */
};

/* Something for whoever acts (guard/action.h).  Its outcome comes back through guard_outcome(). */
struct guard_order {
	uint64_t id;
	enum guard_verb verb;
	unsigned worker;
	unsigned level; /* of the ladder (GUARD-MACHINE.md) */
	uint64_t deadline_ns;
	uint64_t bytes;  /* to be freed, or to be restored */
	char gpus[256];  /* uuids, parted by commas, and ... */
	char reason[64]; /* ... names of the reasons, for hooks */
	/* The worker's processes on GPUs, for signals and checkpoints: identities. */
	struct guard_target target[GUARD_TARGETS];
	unsigned targets;
	bool more;  /* there are more of them than it names */
	bool start; /* of RESUME: it does not run, and must be started first */
	struct
	{ /* its roots of the last look, on a GPU or not: whoever is below one is its own */
		int64_t pid;
		uint64_t start_ticks;
		uint64_t print; /* scene_root.print */
	} root[GUARD_ROOTS];
	unsigned roots;
};

struct guard_outcome {
	uint64_t order;
	bool ok, retry; /* retry: not now, ask again */
	bool in_flight; /* of DRAIN: something still runs */
	bool no_answer; /* of RESUME: it was asked first whether it answers, and does not */
	char message[200];
};

/* One thing that was decided, with its why: a line of the log, an event, a row of `explain`. */
struct guard_decision {
	uint64_t mono_ns;
	unsigned worker;
	enum guard_state from, to;
	uint32_t mask;
	bool dry;           /* dry-run or observe: nothing is done */
	char rule[64];      /* "contend-now, rule 3 (gpuward.toml:41)" */
	char evidence[240]; /* "pid 4711 game 5120 MiB 43 % on GPU-..., free 1.2 GiB < 2 GiB" */
	uint64_t next_ns;   /* when it can change by itself at the earliest; 0: unknown */
	/* Where: the GPU of the demand, else the worker's first. */
	char gpu[96];         /* its uuid; "": it is on none */
	unsigned index;       /* its number */
	unsigned others;      /* processes on it that are neither ours nor a worker's */
	double temperature_c; /* of it; NAN: unknown */
	/* What ended with it, for whoever counts. */
	enum guard_result result;
	unsigned level;       /* of the result */
	uint64_t freed_bytes; /* of RESULT_FREED */
	uint64_t freed_ns; /* likewise: since the first order to leave; 0: nothing was done */
	uint32_t blocked;  /* set of guard_block that keep it from coming back */
	bool unreachable;  /* it was moved out and lives, but is not found to be resumed */
};

enum guard_request {
	REQUEST_EVICT,
	REQUEST_RESUME,
	REQUEST_HOLD_EVICTED,
	REQUEST_HOLD_ACTIVE,
	REQUEST_RELEASE,
	REQUEST_RESUME_NOW
};

/* How warm a GPU is, as health finds it (health_status): a set of these. */
enum guard_heat {
	HEAT_THROTTLE = 1, /* workers get no new work           */
	HEAT_WARM = 2,     /* who is out does not come back yet */
};

struct guard_reservation { /* a reservation */
	uint64_t id;       /* 0: this place is free */
	char gpu[96];
	uint64_t bytes, left_bytes; /* left: what its owner has not taken yet */
	uint64_t most_bytes;        /* what can be free for it at best */
	uint64_t until_ns;          /* UINT64_MAX: until it is released */
	int64_t pid;                /* 0: nobody's */
};

#endif
