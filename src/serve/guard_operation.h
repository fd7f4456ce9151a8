/* guard_operation: what people asked of the guard, and what became of it.
 *
 * A wish is begun at once and done later: whoever asked gets a number and looks at it again.  The latest are
 * kept, in a fixed amount of memory.  What ends one is a decision about its worker, so that a worker that
 * left and came back between two questions has left. */
#ifndef GW_SERVE_GUARD_OPERATION_H
#define GW_SERVE_GUARD_OPERATION_H

#include "guard/guard_query.h"

#define GUARD_OPERATIONS 64

enum guard_operation_state { OPERATION_RUNNING, OPERATION_DONE, OPERATION_FAILED };

struct guard_operation {
	uint64_t id; /* 0: none */
	char worker[64];
	enum guard_request what;
	enum guard_operation_state state;
	uint64_t since_wall_ns, ended_wall_ns; /* 0: it runs */
	char message[280];
};

struct guard_operations {
	struct guard_operation ring[GUARD_OPERATIONS];
	uint64_t begun; /* so many since the start */
};

const char *guard_operation_word(enum guard_request what);            /* "hold evicted" */
const char *guard_operation_state_name(enum guard_operation_state s); /* "running", ... */

/* The one that runs for the same wish of the same worker; NULL: none.  To ask again is not to begin again. */
const struct guard_operation *guard_operation_running(const struct guard_operations *o,
						      const char *worker,
						      enum guard_request what);

/* A wish that was accepted, with the worker as it is after it.  Others of this worker that still run end as
 * failed: this took their place. */
void guard_operation_begin(struct guard_operations *o, uint64_t id, const char *worker,
			   enum guard_request what, const struct guard_status *s,
			   uint64_t wall_ns);

/* Something was decided about the worker. */
void guard_operation_decided(struct guard_operations *o, const char *worker,
			     const struct guard_decision *d, uint64_t wall_ns);

/* NULL: it is forgotten, or never was.  o may be NULL. */
const struct guard_operation *guard_operation_find(const struct guard_operations *o,
						   uint64_t id);
/* The latest of a worker. */
const struct guard_operation *guard_operation_latest(const struct guard_operations *o,
						     const char *worker);

#endif
