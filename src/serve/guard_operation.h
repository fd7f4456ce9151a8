/* guard_operation: requests to the guard and their status.
 *
 * A request starts at once and finishes later; the client gets an id and queries it. The
 * latest ones are kept in a fixed amount of memory. A decision about the worker ends an
 * operation, so that a worker that left and came back between two queries counts as evicted. */
#ifndef GW_SERVE_GUARD_OPERATION_H
#define GW_SERVE_GUARD_OPERATION_H

#include "guard/guard_read.h"

#define GUARD_OPERATIONS 64

enum guard_operation_state { OPERATION_RUNNING, OPERATION_DONE, OPERATION_FAILED };

struct guard_operation {
	uint64_t id; /* 0: none */
	char worker[64];
	enum guard_ask what;
	enum guard_operation_state state;
	uint64_t since_wall_ns, ended_wall_ns; /* 0: it runs */
	char message[280];
};

struct guard_operations {
	struct guard_operation ring[GUARD_OPERATIONS];
	uint64_t begun; /* total since the start */
};

const char *guard_operation_word(enum guard_ask what);                /* "hold evicted" */
const char *guard_operation_state_name(enum guard_operation_state s); /* "running", ... */

/* The running operation for the same request and worker; NULL: none. A repeated request does
 * not start again. */
const struct guard_operation *guard_operation_running(const struct guard_operations *o,
						      const char *worker, enum guard_ask what);

/* Adds an accepted request, with the worker's status after it. Running operations of this
 * worker end as failed, because this one replaces them. */
void guard_operation_begin(struct guard_operations *o, uint64_t id, const char *worker,
			   enum guard_ask what, const struct guard_status *s, uint64_t wall_ns);

/* There was a decision about the worker. */
void guard_operation_decided(struct guard_operations *o, const char *worker,
			     const struct guard_decision *d, uint64_t wall_ns);

/* NULL: unknown or dropped. o may be NULL. */
const struct guard_operation *guard_operation_find(const struct guard_operations *o,
						   uint64_t id);
/* The latest operation of a worker. */
const struct guard_operation *guard_operation_latest(const struct guard_operations *o,
						     const char *worker);

#endif
