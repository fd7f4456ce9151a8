/* move_speed: remembers how fast workers left their GPUs and returned, and estimates the next
 * move. Pure.
 *
 * An estimate comes from the latest moves of the same worker. A checkpoint copies memory, so
 * its time grows with the number of bytes; the time of every other method does not. If a worker
 * has no move yet, a checkpoint is estimated from figures measured on an H200, and for other
 * methods there is no estimate. */
#ifndef GW_GUARD_MOVE_SPEED_H
#define GW_GUARD_MOVE_SPEED_H

#include "guard_query.h"

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

#define MOVE_CHECKPOINT_LEVEL 3 /* eviction level at which memory is copied to the host */
bool move_is_checkpoint(unsigned kind); /* true if workers of this kind leave that way */

enum move_way { MOVE_LEAVE, MOVE_RETURN, MOVE_WAYS };

struct move {
	uint64_t wall_ns; /* when it ended */
	uint64_t bytes;   /* memory that became free or came back */
	uint64_t ns;      /* from the order until the memory was verified */
	unsigned level; /* eviction level; for a return: the level of the eviction before it */
	enum host_pages pages;
	bool simulated; /* on a simulated GPU: never mixed with real moves */
};

#define MOVES_KEPT 8
struct move_worker {
	char name[64];
	struct move done[MOVE_WAYS][MOVES_KEPT]; /* oldest first */
	unsigned count[MOVE_WAYS];
	uint64_t begun_ns[MOVE_WAYS]; /* when the move that is under way began; 0: none */
};

struct moves {
	struct move_worker worker[POLICY_WORKERS];
	unsigned workers;
};

const struct move_worker *moves_find(const struct moves *m, const char *name);
/* Returns the entry of the worker, and adds the entry if it is missing; NULL: too many
 * entries. */
struct move_worker *moves_worker(struct moves *m, const char *name);
/* Drops the workers that the policy does not name. */
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
	enum host_pages pages; /* the present mode */
	bool simulated;
};

struct move_estimate {
	enum move_basis basis;
	double seconds; /* NAN without a basis */
	unsigned moves; /* for MOVE_BASIS_OWN: number of moves that were used */
	/* page mode of the moves or figures that were used; UNKNOWN: all modes */
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
