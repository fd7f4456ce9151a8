/* guard: decides when a worker must leave the GPU and when it may return.
 *
 * Inputs are scenes, outcomes of orders and requests, each with its time. Outputs are orders,
 * decisions and records. The guard is pure: it reads no clock, file or process, and the same
 * input gives the same decisions byte for byte. docs/GUARD-MACHINE.md has the rules.
 * guard_input.h has the functions that give input to the guard; guard_query.h has those that
 * only read. */
#ifndef GW_GUARD_GUARD_H
#define GW_GUARD_GUARD_H

#include "classify.h"

#include "base/proc_id.h"

struct guard;

/* Why a worker may not run (GUARD-MACHINE.md, Reasons). The values are bit numbers of a set. */
enum guard_reason {
#define R(symbol, name, held, rule, clears) REASON_##symbol,
#include "reason.def"
	GUARD_REASONS
};
const char *guard_reason_name(unsigned r);
/* Writes the names of a set of reasons, with `between` between them. */
void guard_mask_text(uint32_t mask, const char *between, char *out, size_t size);

/* The states of a worker that users see (GUARD-MACHINE.md, States). */
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

/* How an attempt to evict at one level ended. */
enum guard_result {
	RESULT_NONE,      /* no attempt ended */
	RESULT_FREED,     /* the memory is free; in a dry run: it would be free */
	RESULT_NOT_FREED, /* the worker reported success, but the memory is not free */
	RESULT_FAILED,    /* the worker failed, or was too late */
	RESULT_WITHHELD,  /* an eviction was due, but a limit forbids it */
	GUARD_RESULTS
};
const char *guard_result_name(unsigned r);

/* What blocks the return of a worker although no reason holds (GUARD-MACHINE.md, Before it
 * returns). The values are bit numbers of a set. */
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
const char *guard_block_name(unsigned b); /* "backoff", "room", ... */

/* A person's request that the worker stays evicted, or stays active. */
enum guard_hold { HOLD_NONE, HOLD_EVICTED, HOLD_ACTIVE };
extern const char *const guard_holds[]; /* "none", ...; NULL after the last hold */

/* An order can name at most this many processes of a worker. The worker's record has the same
 * limit, so the journal knows every checkpointed process. */
#define GUARD_TARGETS 64
#define GUARD_ROOTS   8 /* maximum number of root processes of a worker */

/* What the guard must remember over a crash. There is one record per worker; it is written
 * before the worker's next order is carried out. */
struct guard_record {
	char worker[64];     /* name of the worker */
	uint32_t mask;       /* set of the reasons that held */
	unsigned level;      /* level of the last eviction, complete or not */
	bool evicted;        /* the worker was evicted, or its eviction had begun */
	uint64_t need_bytes; /* bytes that the worker held when its eviction began */
	struct {             /* the worker's GPUs, and the bytes that it held there */
		char uuid[96];
		uint64_t need_bytes;
	} gpu[POLICY_GPUS];
	unsigned gpus;
	enum guard_hold hold;
	uint64_t hold_until_wall_ns; /* 0: the hold does not end */
	/* when REASON_MANUAL began; 0: the reason does not apply */
	uint64_t manual_wall_ns;
	uint64_t wall_ns; /* when the record was made */
	/* Checkpointed processes. */
	struct proc_id put_away[GUARD_TARGETS];
	unsigned put_away_count;
	/* Root processes of the worker, if it is evicted. */
	struct proc_id root[GUARD_ROOTS];
	unsigned roots;
};

/* Returns how much time is left from wall_ns (now) to until_wall_ns. The end until_wall_ns
 * comes from a record that was made at record_wall_ns (0: unknown). If wall_ns is before
 * record_wall_ns, the clock was set back; then the time is counted from record_wall_ns. */
uint64_t guard_time_left(uint64_t until_wall_ns, uint64_t record_wall_ns, uint64_t wall_ns);

enum guard_verb {
	ORDER_CLOSE,  /* refuse new work */
	ORDER_DRAIN,  /* complete the running requests */
	ORDER_EVICT,  /* free the GPU memory */
	ORDER_OPEN,   /* admit new work again */
	ORDER_RESUME, /* load again, and admit new work */
	ORDER_VERBS
};

struct guard_target {
	struct proc_id id;
	/* the worker's match finds the process itself, not only an ancestor; the match is
	 * checked again before the process is touched */
	bool itself;
	uint64_t print; /* if itself is true: scene_root.print of the process; 0: unknown */
};

/* An instruction that guard/action.h carries out. Its result is passed to guard_outcome(). */
struct guard_order {
	uint64_t id;
	enum guard_verb verb;
	unsigned worker;      /* position of the worker in the policy */
	unsigned level;       /* level of eviction (GUARD-MACHINE.md) */
	uint64_t deadline_ns; /* monotonic */
	uint64_t bytes;       /* bytes to free or to restore */
	char gpus[256];  /* UUIDs of the worker's GPUs with commas between them, for hooks */
	char reason[64]; /* names of the reasons with commas between them, for hooks */
	/* The worker's processes on GPUs, for signals and checkpoints. */
	struct guard_target target[GUARD_TARGETS];
	unsigned targets;
	bool more;  /* the worker has more processes than target[] names */
	bool start; /* for ORDER_RESUME: the worker has no process and must be started */
	struct {    /* root processes of the worker in the last scene, on a GPU or not */
		struct proc_id id;
		uint64_t print; /* scene_root.print */
	} root[GUARD_ROOTS];
	unsigned roots;
};

/* How an order ended. */
enum guard_ending {
	ENDING_FAILED,
	ENDING_DONE,
	ENDING_LISTED,    /* ORDER_RESUME is done, and the worker lists its models as loaded */
	ENDING_IN_FLIGHT, /* after ORDER_DRAIN the worker still processes requests */
	ENDING_BUSY,    /* the worker cannot carry out the order now; repeat the order later */
	ENDING_REFUSED, /* the same order would fail again: a token or an option is missing */
	ENDING_NO_ANSWER, /* the worker does not answer ORDER_RESUME */
	GUARD_ENDINGS
};

/* The result of an order. */
struct guard_outcome {
	uint64_t order; /* guard_order.id */
	enum guard_ending ending;
	char message[200];
};

/* True if the worker carried out the order. */
static inline bool guard_outcome_ok(const struct guard_outcome *o)
{
	return o->ending == ENDING_DONE || o->ending == ENDING_LISTED;
}

/* What a decision reports, for programs; the rule and the evidence are for people. Recordings
 * contain the numbers of this enum. */
enum guard_decision_kind {
	DECISION_OTHER,
	/* the evicted process lives, but no match finds it, so it cannot be resumed */
	DECISION_UNREACHABLE,
	DECISION_REQUESTED,      /* a person's request */
	DECISION_RESUME_BLOCKED, /* why the worker does not return */
	DECISION_RESUME_FAILED,
};

/* One change of state, or a report without a change, with its rule and evidence. It becomes a
 * log line and an event. */
struct guard_decision {
	uint64_t mono_ns;
	unsigned worker;           /* position of the worker in the policy */
	enum guard_state from, to; /* if equal, this is a report without a change */
	uint32_t mask;             /* set of the reasons that hold */
	bool dry;                  /* the decision is only reported, and nothing is done */
	char rule[64];             /* such as "contend-now, rule 3 (gpuward.toml:41)" */
	char evidence[240]; /* such as "pid 4711 game 5120 MiB 43 % on GPU-..., free 900 MiB" */
	uint64_t next_ns;   /* earliest time at which a timer changes the state; 0: unknown */
	/* The GPU with the demand; without a demand, the worker's first GPU. */
	char gpu[96];   /* UUID; "": none */
	unsigned index; /* the driver's number of the GPU */
	/* processes on this GPU that belong neither to the service nor to a worker */
	unsigned others;
	double temperature_c; /* NAN: unknown */
	/* How an attempt to evict ended with this decision, for counters. */
	enum guard_result result;
	unsigned level;       /* level of the attempt */
	uint64_t freed_bytes; /* bytes that became free; only for RESULT_FREED */
	uint64_t freed_ns;    /* for RESULT_FREED: how long the eviction took; 0: dry run */
	uint32_t blocked;     /* set of enum guard_block: why the worker does not return */
	enum guard_decision_kind kind;
};

enum guard_request {
	REQUEST_EVICT,
	REQUEST_RESUME,
	REQUEST_HOLD_EVICTED,
	REQUEST_HOLD_ACTIVE,
	REQUEST_RELEASE,
	REQUEST_RESUME_NOW
};

/* How warm a GPU is, as health.h finds it. The values are bits of a set. */
enum guard_heat {
	HEAT_THROTTLE = 1, /* workers get no new work */
	HEAT_WARM = 2,     /* evicted workers do not return yet */
};
extern const char *const guard_heats[]; /* "throttle", ...: one word per bit, then NULL */

/* GPU memory that is kept free for one process. */
struct guard_reservation {
	uint64_t id;         /* 0: this entry is unused */
	char gpu[96];        /* UUID */
	uint64_t bytes;      /* bytes that are reserved */
	uint64_t left_bytes; /* the part that the owner has not allocated yet */
	uint64_t most_bytes; /* bytes that the owner can get if all movable workers leave */
	uint64_t until_ns;   /* end of the reservation; UINT64_MAX: until it is released */
	int64_t pid;         /* process that owns the reservation; 0: no process */
	int64_t uid;         /* user whose evictions are limited; -1: not limited */
};

/* guard_pump: carries out what a guard decided.
 *
 * The pump reports decisions and stores records. It starts an order only after the record of
 * the order's worker is stored. Both the service and the library use the pump, with different
 * functions in struct guard_pump: the service writes records to its journal, and the library
 * has no journal. */

/* Whether the fetched records are on the disk. */
enum guard_stored {
	STORED_NOTHING_NEW, /* no record was fetched */
	STORED_NOW,         /* all fetched records are on the disk */
	STORED_PENDING,     /* some are not on the disk; orders wait for guard_pump_orders() */
};

struct guard_pump {
	/* Fetch and report decisions. NULL: the caller fetches and reports decisions itself. */
	bool (*next_decision)(void *ctx, struct guard_decision *ret);
	void (*report)(void *ctx, const struct guard_decision *d);
	/* Fetch and store records. store and stored are NULL if there is no journal. */
	bool (*next_record)(void *ctx, struct guard_record *ret);
	void (*store)(void *ctx, const struct guard_record *r);
	enum guard_stored (*stored)(void *ctx);
	bool (*next_order)(void *ctx, struct guard_order *ret);
	/* Starts an order. If it cannot start, returns false and fills the ending and the
	 * message of its outcome: ENDING_BUSY if the last order of this worker still runs. */
	bool (*start)(void *ctx, const struct guard_order *o, struct guard_outcome *out);
	void (*outcome)(void *ctx, const struct guard_outcome *o);
};

/* Reports the decisions, stores the records and starts the orders that follow from the last
 * input. */
void guard_pump(const struct guard_pump *p, void *ctx);
/* Starts the orders that are due. If an order cannot start, passes the failure to
 * guard_pump.outcome. */
void guard_pump_orders(const struct guard_pump *p, void *ctx);

#endif
