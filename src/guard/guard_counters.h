/* tally: what the guard did, counted for ever: by worker, and Xids by GPU.
 *
 * Fed with decisions, so that a guard that is replaced by another (a restart, another configuration) does
 * not set a count back; whoever keeps counts in a file reads and writes cells by their names.  Plain data
 * in a fixed amount of memory. */
#ifndef GW_GUARD_GUARD_COUNTERS_H
#define GW_GUARD_GUARD_COUNTERS_H

#include "guard.h"

#define TALLY_XIDS 256 /* pairs of a GPU and a number */

enum tally_cell {
	TALLY_RESUMES,
	TALLY_WOULD_EVICT, /* decided where nothing is done */
	TALLY_FREED_BYTES,
	TALLY_BLOCKED, /* one for each guard_block */
	TALLY_EVICTIONS = TALLY_BLOCKED + GUARD_BLOCKS,
	TALLY_CELLS = TALLY_EVICTIONS + GUARD_LEVELS * GUARD_RESULTS
};

struct tally_worker {
	char name[64];
	uint64_t cell[TALLY_CELLS];
};

struct tally_xid {
	char uuid[96];
	unsigned xid;
	uint64_t count;
};

struct tally {
	struct tally_worker worker[POLICY_WORKERS];
	unsigned workers;
	uint64_t all[TALLY_CELLS]; /* of all workers, also of those that are gone */
	struct tally_xid xid[TALLY_XIDS];
	unsigned xids;
};

/* The cell of tries at a level that ended so. */
unsigned tally_eviction(unsigned level, enum guard_result result);
/* "resumes", "blocked/room", "evictions/2/freed": a path, for keys in a file. */
void tally_cell_name(unsigned cell, char *out, size_t size);

/* Evictions that freed memory, of the cells of a worker or of all. */
uint64_t tally_evictions(const uint64_t cell[TALLY_CELLS]);

/* Lets go of workers that a policy does not name, so that there is a place for those that it does.  What they
 * did stays in `all`. */
void tally_fit(struct tally *t, const struct policy *p);

/* The worker of this name, made where there is none; NULL: there are too many. */
struct tally_worker *tally_worker(struct tally *t, const char *name);
const struct tally_worker *tally_find(const struct tally *t, const char *name);

/* Counts what a decision ended, for its worker and for all; the worker, or NULL: nothing was counted, or there
 * are too many, and then only for all. */
struct tally_worker *tally_add(struct tally *t, const char *name,
			       const struct guard_decision *d);
/* One Xid more; NULL: there are too many. */
struct tally_xid *tally_xid(struct tally *t, const char *uuid, unsigned xid);

#endif
