/* tally: what the guard did, counted for ever: by worker, and Xids by GPU.
 *
 * Fed with decisions, so that a guard that is replaced by another (a restart, another configuration) does
 * not set a count back; whoever keeps counts in a file reads and writes cells by their names.  Plain data
 * in a fixed amount of memory. */
#ifndef GW_GUARD_GUARD_COUNTERS_H
#define GW_GUARD_GUARD_COUNTERS_H

#include "guard.h"

#define COUNTERS_XIDS 256 /* pairs of a GPU and a number */

enum counters_cell {
	COUNTERS_RESUMES,
	COUNTERS_WOULD_EVICT, /* decided where nothing is done */
	COUNTERS_FREED_BYTES,
	COUNTERS_BLOCKED, /* one for each guard_block */
	COUNTERS_EVICTIONS = COUNTERS_BLOCKED + GUARD_BLOCKS,
	COUNTERS_CELLS = COUNTERS_EVICTIONS + GUARD_LEVELS * GUARD_RESULTS
};

struct counters_worker {
	char name[64];
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
	uint64_t all[COUNTERS_CELLS]; /* of all workers, also of those that are gone */
	struct counters_xid xid[COUNTERS_XIDS];
	unsigned xids;
};

/* The cell of tries at a level that ended so. */
unsigned counters_eviction(unsigned level, enum guard_result result);
/* "resumes", "blocked/room", "evictions/2/freed": a path, for keys in a file. */
void counters_cell_name(unsigned cell, char *out, size_t size);

/* Evictions that freed memory, of the cells of a worker or of all. */
uint64_t counters_evictions(const uint64_t cell[COUNTERS_CELLS]);

/* Lets go of workers that a policy does not name, so that there is a place for those that it does.  What they
 * did stays in `all`. */
void counters_fit(struct guard_counters *t, const struct policy *p);

/* The worker of this name, made where there is none; NULL: there are too many. */
struct counters_worker *counters_worker(struct guard_counters *t, const char *name);
const struct counters_worker *counters_find(const struct guard_counters *t, const char *name);

/* Counts what a decision ended, for its worker and for all; the worker, or NULL: nothing was counted, or there
 * are too many, and then only for all. */
struct counters_worker *counters_add(struct guard_counters *t, const char *name,
				     const struct guard_decision *d);
/* One Xid more; NULL: there are too many. */
struct counters_xid *counters_xid(struct guard_counters *t, const char *uuid, unsigned xid);

#endif
