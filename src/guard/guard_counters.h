/* guard_counters: counts what the guard did, per worker, and the Xids per GPU.
 *
 * The counters are updated with each decision, and neither a restart nor another configuration
 * resets them. Each counter is a cell. The service stores a cell under the name of the cell.
 * The struct is plain data with a fixed size. */
#ifndef GW_GUARD_GUARD_COUNTERS_H
#define GW_GUARD_GUARD_COUNTERS_H

#include "guard.h"

#define COUNTERS_XIDS 256 /* maximum number of pairs of GPU and Xid */

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

/* Drops workers that the policy does not name, to make room for the workers that it names. The
 * counts of dropped workers stay in `all`. */
void counters_fit(struct guard_counters *t, const struct policy *p);

/* Returns the worker of this name and adds it if there is none; NULL: there are too many
 * workers. */
struct counters_worker *counters_worker(struct guard_counters *t, const char *name);
const struct counters_worker *counters_find(const struct guard_counters *t, const char *name);

/* Counts a decision for its worker and in `all`. Returns the worker. NULL: nothing was counted,
 * or there are too many workers and the decision was counted only in `all`. */
struct counters_worker *counters_add(struct guard_counters *t, const char *name,
				     const struct guard_decision *d);
/* Counts an Xid. NULL: there are too many pairs of GPU and Xid. */
struct counters_xid *counters_xid(struct guard_counters *t, const char *uuid, unsigned xid);

#endif
