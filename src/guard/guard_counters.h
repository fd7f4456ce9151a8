/* guard_counters: what the guard did, counted per worker, and Xids per GPU.
 *
 * They are fed with decisions, so that a restart or another configuration does not reset them.  Cells have names, by which
 * the service keeps them in its store.  Plain data in a fixed amount of memory. */
#ifndef GW_GUARD_GUARD_COUNTERS_H
#define GW_GUARD_GUARD_COUNTERS_H

#include "guard.h"

#define COUNTERS_XIDS 256 /* pairs of GPU and Xid */

enum counters_cell {
	COUNTERS_RESUMES,
	COUNTERS_WOULD_EVICT, /* decided in a dry run */
	COUNTERS_FREED_BYTES,
	COUNTERS_BLOCKED, /* one per guard_block */
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
	uint64_t all[COUNTERS_CELLS]; /* of all workers, also removed ones */
	struct counters_xid xid[COUNTERS_XIDS];
	unsigned xids;
};

/* The cell for tries at a level with this result. */
unsigned counters_eviction(unsigned level, enum guard_result result);
/* "resumes", "blocked/room", "evictions/2/freed": a path, for keys in a file. */
void counters_cell_name(unsigned cell, char *out, size_t size);

/* Evictions that freed memory, from the cells of a worker or of all. */
uint64_t counters_evictions(const uint64_t cell[COUNTERS_CELLS]);

/* Drops workers that a policy does not name, to make room for those that it does.  Their counts stay in `all`. */
void counters_fit(struct guard_counters *t, const struct policy *p);

/* The worker of this name, added if there is none; NULL: there are too many. */
struct counters_worker *counters_worker(struct guard_counters *t, const char *name);
const struct counters_worker *counters_find(const struct guard_counters *t, const char *name);

/* Counts a decision for its worker and for all.  The worker; NULL: nothing was counted, or there are too many workers, and
 * it counts for all alone. */
struct counters_worker *counters_add(struct guard_counters *t, const char *name,
				     const struct guard_decision *d);
/* Counts an Xid; NULL: there are too many. */
struct counters_xid *counters_xid(struct guard_counters *t, const char *uuid, unsigned xid);

#endif
