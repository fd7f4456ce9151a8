/* worker: what a kind of worker can do, behind one ops struct.  one file a kind in guard/worker.
 *
 * Called on the action thread; may take as long as deadline_ns says.  200 OK is never proof: whether
 * memory is free is for the guard to see. */
#ifndef GW_GUARD_WORKER_H
#define GW_GUARD_WORKER_H

#include "guard.h"

struct worker_http; /* worker_http.h: requests with a deadline over libcurl, loaded when first used */

struct worker_call {
	const struct policy_worker *worker;
	const struct guard_order *order;
	struct worker_http *http;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	char *state; /* the worker's own notes between evict and resume (models that were loaded), */
	size_t state_size; /* ... a text, kept by the caller with the record */
};

struct worker_ops {
	const char *name;
	unsigned levels; /* bit n: level n of the ladder can be done */
	/* Each NULL where it cannot.  0; -GW_E_TIMEOUT, -GW_E_IO (refused, broken), -GW_E_STATE (busy: try
	 * again), -GW_E_NOSUPPORT (the worker was started without it), -GW_E_PERM; with a sentence. */
	int (*close)(struct worker_call *c, char *message,
		     size_t size); /* no new work        */
	int (*drain)(struct worker_call *c, bool *ret_busy, char *message, size_t size);
	int (*evict)(struct worker_call *c, char *message,
		     size_t size); /* order->level       */
	int (*resume)(struct worker_call *c, char *message, size_t size);
	int (*open)(struct worker_call *c, char *message,
		    size_t size); /* work may come again */
	int (*alive)(struct worker_call *c, char *message,
		     size_t size); /* does it answer?     */
};

const struct worker_ops *worker_ops_of(enum policy_kind kind);

#endif
