/* guard: when a worker must leave the GPU and when it may come back.  Pure.
 *
 * Fed with scenes, outcomes of orders and what people ask for, each with its time; gives back orders
 * and decisions.  It keeps the promises of docs/GUARD-MACHINE.md by deriving a worker's state from a few
 * facts: its reason mask, the bytes it holds, the order under way, and deadlines.  Nothing here reads
 * a clock, a file or a process.  The same feed gives the same decisions byte for byte. */
#ifndef GW_GUARD_GUARD_H
#define GW_GUARD_GUARD_H

#include "classify.h"

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
	struct {
		int64_t pid;
		uint64_t start_ticks;
	} put_away[GUARD_TARGETS];
	unsigned put_away_count;
	/* Of one that is out: who it was, by which it is known that it lives, whoever is found. */
	struct {
		int64_t pid;
		uint64_t start_ticks;
	} root[GUARD_ROOTS];
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
	bool astray; /* of ABSENT: whom we moved out lives, and is not found to be brought back */
};

enum guard_ask {
	ASK_EVICT,
	ASK_RESUME,
	ASK_HOLD_EVICTED,
	ASK_HOLD_ACTIVE,
	ASK_RELEASE,
	ASK_RESUME_NOW
};

/* Why what is decided of a worker is not done: the first that holds. */
enum guard_dry {
	DRY_NOT,
	DRY_MODE,      /* it is not to be, in this mode                         */
	DRY_FOREIGN,   /* another service acts for a GPU of it: guard_foreign() */
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

struct guard;

/* records: as of the last run, or NULL.  policy is borrowed.  0 or -GW_E_NOMEM. */
int guard_new(const struct policy *p, const struct guard_record *records, unsigned n,
	      struct guard **ret);
void guard_free(struct guard *g);

/* Another policy, borrowed, takes the place of the one it has.  Workers that are in both by name keep all that is
 * known of them; one that is new begins as at a start, with its record if there is one; of one that is gone
 * nothing is known afterwards (guard_record_of() before).  Orders that were not fetched yet are taken
 * back and given anew if need be; of those that were fetched the outcomes must have come.  0, or
 * -GW_E_STATE (guard_acting()) or -GW_E_NOMEM: everything is as before. */
int guard_swap(struct guard *g, const struct policy *p, const struct guard_record *records,
	       unsigned n, uint64_t now_ns);
/* How many orders were fetched whose outcomes have not come. */
unsigned guard_acting(const struct guard *g);
/* The number of a worker's order that has no outcome yet; 0: it has none. */
uint64_t guard_pending(const struct guard *g, unsigned worker);
/* What is known of a worker, for its record.  0; -GW_E_NOENT: no such, or no look came yet. */
int guard_record_of(const struct guard *g, unsigned worker, struct guard_record *ret);
/* The highest number that an order or a reservation has had. */
uint64_t guard_last_id(const struct guard *g);
/* Those that come have higher ones than this: before the first look, of a guard that goes on where another was. */
void guard_number_from(struct guard *g, uint64_t last_id);

/* A look.  Orders and decisions that follow are fetched below. */
void guard_look(struct guard *g, const struct scene *s);
void guard_outcome(struct guard *g, const struct guard_outcome *o, uint64_t now_ns);

/* Whose wish the next guard_ask(), guard_reserve() or guard_games() is: a user may move workers policy.user_evictions times
 * an hour, by processes and wishes together.  For that one call; -1, as without: nobody who is limited. */
void guard_for(struct guard *g, int64_t uid);
/* Until he may move one again; 0: now. */
uint64_t guard_user_wait_ns(const struct guard *g, int64_t uid, uint64_t now_ns);

/* What people ask.  worker -1: all, or none where one refuses.  ttl_ns of a hold: UINT64_MAX for ever;
 * of ASK_EVICT 0: until it is resumed.  0, -GW_E_NOENT, -GW_E_ARG (a hold without a time),
 * -GW_E_STATE: it cannot be, or -GW_E_PERM: this user asked too often; with a sentence. */
int guard_ask(struct guard *g, int worker, enum guard_ask what, uint64_t ttl_ns,
	      uint64_t now_ns, char *message, size_t size);

/* Room for somebody: evicts as many as it takes.  gpu NULL: where most can be free.  ttl_ns 0: until it
 * is released, which is also for the caller to do when the owner exits.  0 and *ret_id, -GW_E_NODEV
 * (no such GPU was seen), -GW_E_SIZE (too many at once) or
 * -GW_E_PERM (workers would have to leave, and this user let them too often).  guard_reserved: 1 the room is there, 0 not
 * yet, -GW_E_SIZE it will never be, with numbers in message, -GW_E_NOENT it ended. */
int guard_reserve(struct guard *g, const char *gpu, uint64_t bytes, int64_t pid,
		  uint64_t ttl_ns, uint64_t now_ns, uint64_t *ret_id);
int guard_reserved(const struct guard *g, uint64_t id, char *message, size_t size);
void guard_release(struct guard *g, uint64_t id, uint64_t now_ns);

struct guard_room {  /* a reservation */
	uint64_t id; /* 0: this place is free */
	char gpu[96];
	uint64_t bytes, left_bytes; /* left: what its owner has not taken yet */
	uint64_t most_bytes;        /* what can be free for it at best */
	uint64_t until_ns;          /* UINT64_MAX: until it is released */
	int64_t pid;                /* 0: nobody's */
};
/* One of an earlier run, with its number and its end: before the first look, so that nobody comes back into it.  0, or
 * -GW_E_STATE: there is no place, or it is too late. */
int guard_reserve_again(struct guard *g, const struct guard_room *room);
/* Of place i; false past the last. */
bool guard_room(const struct guard *g, unsigned i, struct guard_room *ret);

/* By what room is made.  Would this worker leave for somebody else's need? */
bool guard_movable(const struct guard *g, unsigned worker);
/* Which worker leaves as number i, of as many as the policy has. */
unsigned guard_leaves_as(const struct guard *g, unsigned i);
/* What is kept free beside what was asked for, of a GPU with so much memory. */
uint64_t guard_headroom(const struct guard *g, uint64_t total_bytes);

/* Reasons that others find: heat, faults and budgets.  on false clears.  gpu: uuid. */
void guard_reason_set(struct guard *g, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns);
/* What ends such a reason that holds, as who found it knows: clears and clears_ns of guard_why().  Nothing is decided
 * by it. */
void guard_reason_ends(struct guard *g, const char *gpu, enum guard_reason r,
		       const char *clears, uint64_t clears_ns);

/* An operator trusts a GPU that was lost and answers again: it need not prove itself for a minute.  Also 0
 * where it was not lost; -GW_E_STATE: it does not answer. */
int guard_trust(struct guard *g, const char *gpu, uint64_t now_ns);

/* How warm a GPU is, as health finds it (health_status): a set of these.  Counts from the next look on. */
enum guard_heat {
	HEAT_THROTTLE = 1, /* workers get no new work           */
	HEAT_WARM = 2,     /* who is out does not come back yet */
};
void guard_heat(struct guard *g, const char *gpu, unsigned heat, const char *why);

/* Another service acts on this GPU (holder: who, as a part of a sentence): its workers are only observed.  NULL: none
 * does any more.  Before the first look, too. */
void guard_foreign(struct guard *g, const char *gpu, const char *holder, uint64_t now_ns);

/* What stands of what it was told of GPU i (guard_reason_set(), guard_heat(), guard_foreign()): false past the last.  Texts are
 * borrowed until it is told something else. */
struct guard_told {
	const char *gpu;
	uint32_t reasons; /* a set */
	const char *evidence[GUARD_REASONS];
	unsigned heat;
	const char *heat_why;
	const char *foreign; /* NULL: nobody */
};
bool guard_told(const struct guard *g, unsigned i, struct guard_told *ret);
unsigned guard_playing(const struct guard *g); /* of guard_games() */

/* How many tell that they play, beside those of the scenes; counts from the next look on.  One more counts as a wish
 * of who guard_for() named that all leave. */
void guard_games(struct guard *g, unsigned count);

/* Of a worker that takes part in the idle economy: it is unloaded when it has idled for after_ns (UINT64_MAX:
 * never), because of these figures (guard/economy.h; reload_j NAN: not known).  Since when it idles: 0 for
 * others. */
void guard_economy(struct guard *g, unsigned worker, uint64_t after_ns, double idle_w,
		   double reload_j);
uint64_t guard_idle_since(const struct guard *g, unsigned worker);

/* The end is near: with policy.restore_on_stop, workers that are out for no reason that still holds
 * get their order to return, if every check passes: all whose needs fit together.  Who was not unloaded yet
 * gets its door opened, and what is under way is waited for first; looks go on.  Nobody is told to leave any
 * more.  How many there are; they are worth waiting for while guard_returning() counts any. */
unsigned guard_stop(struct guard *g, uint64_t now_ns);
/* How many are not where they are to be left yet; and is this one of them? */
unsigned guard_returning(const struct guard *g);
bool guard_ending(const struct guard *g, unsigned worker);

/* Fetched until they return false.  An order waits until the record of its worker was fetched. */
bool guard_next_order(struct guard *g, struct guard_order *ret);
bool guard_next_decision(struct guard *g, struct guard_decision *ret);
/* Must be on the disk before the orders fetched after it are carried out. */
bool guard_next_record(struct guard *g, struct guard_record *ret);

/* When to look again: GUARD-MACHINE.md, Numbers.  UINT64_MAX: its GPUs sleep, wait for an event. */
uint64_t guard_next_look(const struct guard *g, uint64_t now_ns);
/* Should the next scene have utilisation?  It is dear: only while there is somebody to judge. */
bool guard_wants_utilisation(const struct guard *g);

/* The GPU cannot be read: what was decided stays. */
bool guard_blind(const struct guard *g, const char *gpu);
int guard_status(const struct guard *g, unsigned worker, struct guard_status *ret);
/* Levels of the ladder at which it may be evicted: a set; 0: no such worker. */
unsigned guard_levels(const struct guard *g, unsigned worker);
/* One reason that holds, with what set it. */
struct guard_why {
	bool masked;       /* a hold keeps it from moving the worker */
	uint64_t since_ns; /* it holds since */
	uint64_t
		clears_ns; /* it can end by itself then at the earliest; 0: no timer runs for it */
	char rule[64];
	char evidence[240];
	char clears[120]; /* what ends it: "when it is released" */
};
/* False: it does not hold. */
bool guard_why(const struct guard *g, unsigned worker, enum guard_reason r,
	       struct guard_why *ret);

/* What a process of the last scene is to a worker. */
struct guard_beside {
	unsigned kind;           /* enum demand_kind of demand.h; 0: it asks for nothing */
	bool here;               /* on a GPU of the worker */
	bool against;            /* and somebody's need is against the worker */
	uint64_t most_bytes;     /* that its program ever held; UINT64_MAX: not known */
	uint64_t min_vram_bytes; /* by which it is judged */
};
void guard_beside(const struct guard *g, unsigned worker, unsigned process,
		  struct guard_beside *ret);

/* Verdicts of the last scene, one a process of it. */
const struct verdict *guard_verdicts(const struct guard *g, const struct scene **ret_scene);

#endif
