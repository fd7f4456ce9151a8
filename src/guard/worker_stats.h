/* worker_stats: counts the decisions about each worker, and remembers how long its moves took.
 * A move is one eviction or one return of a worker. Also counts the Xids of each GPU. The
 * service stores the counters and the moves, so that a restart does not lose them. Pure. */
#ifndef GW_GUARD_WORKER_STATS_H
#define GW_GUARD_WORKER_STATS_H

#include "guard.h"
#include "guard_query.h"

#define WORKER_STATS_NAME  64 /* size of the name of a worker */
#define WORKER_STATS_CAUSE 160

/* The counters are updated with each decision. Neither a restart nor another configuration
 * resets them. Each counter is called a cell, and the service stores it under its name. */

#define COUNTERS_XIDS 256 /* maximum number of pairs of GPU and Xid */

enum counters_cell {
	COUNTERS_RESUMES,
	COUNTERS_WOULD_EVICT, /* evictions that were only reported */
	COUNTERS_FREED_BYTES,
	COUNTERS_BLOCKED, /* the first of the cells for enum guard_block */
	COUNTERS_EVICTIONS = COUNTERS_BLOCKED + GUARD_BLOCKS,
	COUNTERS_CELLS = COUNTERS_EVICTIONS + GUARD_LEVELS * GUARD_RESULTS
};

struct counters_worker {
	char name[WORKER_STATS_NAME];
	uint64_t cell[COUNTERS_CELLS];
};

struct counters_xid {
	char uuid[96];
	unsigned xid;
	uint64_t count;
};

struct guard_counters {
	struct counters_worker worker[POLICY_WORKERS];
	unsigned workers;
	uint64_t all[COUNTERS_CELLS]; /* sums over all workers, including removed ones */
	struct counters_xid xid[COUNTERS_XIDS];
	unsigned xids;
};

/* Returns the cell that counts attempts at this level with this result. */
unsigned counters_eviction(unsigned level, enum guard_result result);
/* Writes the name of a cell as a path, for keys in a file: "resumes", "blocked/room",
 * "evictions/2/freed". */
void counters_cell_name(unsigned cell, char *out, size_t size);

/* Returns the number of evictions that freed memory. cell: the cells of one worker, or of all
 * workers together. */
uint64_t counters_evictions(const uint64_t cell[COUNTERS_CELLS]);

/* Removes workers that the policy does not name, to make room for the workers that it names.
 * The counts of removed workers stay in `all`. */
void counters_fit(struct guard_counters *t, const struct policy *p);

/* Returns the worker of this name and adds it if there is none; NULL: there are too many
 * workers. */
struct counters_worker *counters_worker(struct guard_counters *t, const char *name);
const struct counters_worker *counters_find(const struct guard_counters *t, const char *name);

/* Counts a decision for its worker and in `all`. Returns the worker; NULL if nothing was
 * counted, or if there are too many workers and the decision was counted only in `all`. */
struct counters_worker *counters_add(struct guard_counters *t, const char *name,
				     const struct guard_decision *d);
/* Counts an Xid and returns its entry; NULL: there are too many pairs of GPU and Xid. */
struct counters_xid *counters_xid(struct guard_counters *t, const char *uuid, unsigned xid);

/* The duration of the next move is estimated from the latest moves of the same worker. A
 * checkpoint copies memory, so its duration grows with the number of bytes. The duration of
 * other methods does not grow. If a worker has no move yet, a checkpoint is estimated from
 * figures measured on an H200, and for other methods there is no estimate. */

/* The kernel's setting transparent_hugepage. It decides whether a checkpoint's copy in host
 * memory gets pages of 2 MiB. The driver does not request such pages (madvise), so every mode
 * except `always` gives pages of 4 KiB. */
enum host_pages {
	HOST_PAGES_UNKNOWN, /* the file cannot be read; the kernel may not have it */
	HOST_PAGES_ALWAYS,
	HOST_PAGES_MADVISE,
	HOST_PAGES_NEVER,
	HOST_PAGES_MODES
};
const char *host_pages_name(enum host_pages p); /* "always", ...; "unknown" */

bool move_is_checkpoint(unsigned kind); /* true if workers of this kind are checkpointed */

enum move_way { MOVE_LEAVE, MOVE_RETURN, MOVE_WAYS };

struct move {
	uint64_t wall_ns; /* when the move ended */
	uint64_t bytes;   /* memory that became free, or that the worker allocated again */
	uint64_t ns;      /* from the order until the memory was verified */
	unsigned level; /* eviction level; for a return: the level of the eviction before it */
	enum host_pages pages;
	bool simulated; /* the GPU is simulated; estimates never mix such moves with real moves */
	/* why the worker left, such as "for game.exe (pid 4711, 13.0 GiB)"; "": unknown, or the
	 * move is a return */
	char cause[WORKER_STATS_CAUSE];
};

#define MOVES_KEPT 8 /* number of moves that are remembered, per worker and direction */
struct move_worker {
	char name[WORKER_STATS_NAME];
	struct move done[MOVE_WAYS][MOVES_KEPT]; /* the oldest move first */
	unsigned count[MOVE_WAYS];
	uint64_t begun_ns[MOVE_WAYS]; /* when the present move began; 0: there is none */
};

struct moves {
	struct move_worker worker[POLICY_WORKERS];
	unsigned workers;
};

const struct move_worker *moves_find(const struct moves *m, const char *name);
/* Returns the entry of the worker, and adds the entry if it is missing; NULL: too many
 * entries. */
struct move_worker *moves_worker(struct moves *m, const char *name);
/* Removes the workers that the policy does not name. */
void moves_fit(struct moves *m, const struct policy *p);
/* Adds a move and drops the oldest if there are too many. Ignores a move without bytes or time:
 * a damaged file may contain such a move. */
void moves_add(struct move_worker *w, enum move_way way, const struct move *one);
/* Returns the latest move on a simulated or on a real GPU; NULL: none. w may be NULL. */
const struct move *moves_last(const struct move_worker *w, enum move_way way, bool simulated);

/* Call this for each decision about a worker, in order of time. s: the worker's status after
 * the decision. Returns true if a move ended with this decision. Then *ret_way and *ret are
 * set, except for wall_ns, pages and simulated; the caller sets these and adds the move. A dry
 * run, a lazy return and a move that began before the service started do not count as moves. */
bool moves_follow(struct move_worker *w, const struct guard_decision *d,
		  const struct guard_status *s, enum move_way *ret_way, struct move *ret);

/* Where an estimate comes from. */
enum move_basis { MOVE_BASIS_NONE, MOVE_BASIS_OWN, MOVE_BASIS_H200, MOVE_BASES };
const char *move_basis_name(enum move_basis b); /* "own_moves", ...; NULL for none */

struct move_question {
	enum move_way way;
	unsigned level;
	uint64_t bytes;
	enum host_pages pages; /* the present setting of the kernel */
	bool simulated;
};

struct move_estimate {
	enum move_basis basis;
	double seconds; /* NAN without a basis */
	unsigned moves; /* for MOVE_BASIS_OWN: number of moves that were used */
	/* page mode of the moves or figures that were used; HOST_PAGES_UNKNOWN: any mode */
	enum host_pages pages;
};

/* Estimates a move. Uses the worker's moves at the same level. For a checkpoint, uses only the
 * moves with the present page mode, if there are any. w may be NULL. */
void move_estimate(const struct move_worker *w, const struct move_question *q,
		   struct move_estimate *ret);

/* GPU memory of the process that was measured on an H200, in GiB. */
#define MOVE_H200_GIB 16.6

/* Writes the advice to set transparent_hugepage to "always": the measured gain, the cost, and
 * how to set it. Returns false and writes "" if the mode is `always` or cannot be read. */
#define MOVE_ADVICE_SIZE 800
bool move_pages_advice(enum host_pages pages, char out[static MOVE_ADVICE_SIZE]);

#endif
