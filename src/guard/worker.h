/* worker: what a kind of worker can do, behind one ops struct.  One file a kind in guard/worker.
 *
 * Called on a thread of guard/action.c; may take as long as deadline_ns says.  200 OK is never proof:
 * whether memory is free is for the guard to see. */
#ifndef GW_GUARD_WORKER_H
#define GW_GUARD_WORKER_H

#include "guard.h"

#include "base/root.h"

struct worker_http; /* guard/worker/http.h: requests with a deadline over libcurl */

/* What a worker that lives in this process gave to be called (WORKER_CALLBACK).  0, -GW_E_STATE (not
 * now: ask again) or another negative gw_error.  Called on a thread of the guard, one at a time. */
struct worker_callbacks {
	int (*evict)(void *ctx, uint64_t bytes, uint64_t deadline_ns);
	int (*resume)(void *ctx, uint64_t deadline_ns);
	void *ctx;
};

/* What must be known of the GPUs before a process may be put away; 1 yes, 0 no, -1 nobody knows. */
struct worker_facts {
	int persistence, mps, mig;
};

/* A worker's own notes between evict and resume: what was loaded, what was done.  Lines "key value". */
#define WORKER_NOTES_SIZE 4096

struct worker_call {
	const struct policy_worker *worker;
	const struct guard_order *order;
	struct worker_http *http;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	char *state;          /* WORKER_NOTES_SIZE bytes, kept by the caller */
	size_t state_size;
	const struct worker_callbacks *callbacks; /* NULL: none were given */
	struct worker_facts facts;
	const struct root *root; /* where /proc is */
	const struct worker_set *set;
	const char *companion; /* socket of who has the privileges; NULL: we act ourselves */
};

struct worker_ops {
	/* Each NULL where there is nothing to do.  0; -GW_E_TIMEOUT, -GW_E_IO (refused, broken),
	 * -GW_E_STATE (busy: try again), -GW_E_NOSUPPORT (the worker was started without it),
	 * -GW_E_PERM; with a sentence.  After 0 message may have a remark. */
	int (*close)(struct worker_call *c, char *message, size_t size); /* no new work */
	int (*drain)(struct worker_call *c, bool *ret_busy, char *message, size_t size);
	/* Notes what evict will undo and resume must know; changes nothing.  It is in the journal before evict
	 * is called, which notes no more than came meanwhile. */
	int (*learn)(struct worker_call *c, char *message, size_t size);
	int (*evict)(struct worker_call *c, char *message, size_t size); /* at its level */
	int (*resume)(struct worker_call *c, char *message, size_t size);
	int (*open)(struct worker_call *c, char *message,
		    size_t size); /* work may come again */
	int (*alive)(struct worker_call *c, char *message, size_t size); /* does it answer? */
};

/* The socket of the engine that has its container: url of a container, else the first usual one that is there. */
const char *worker_engine(const struct policy_worker *w);

/* Which adapters there are: whoever acts names a set, so that a program that guards itself carries no more
 * than its own. */
struct worker_set {
	const struct worker_ops *(*of)(enum policy_kind kind); /* never NULL */
	/* Who carries out level 4 for it; NULL: nobody. */
	const struct worker_ops *(*stopper)(const struct policy_worker *w);
	/* Levels 5 and 6. */
	int (*kill)(const struct worker_call *c, char *message, size_t size);
	/* Around each order: makes and ends what calls need (c->http).  After a start the old connection is
	 * left.  NULL where nothing is needed. */
	int (*begin)(struct worker_call *c);
	void (*started)(struct worker_call *c);
	void (*end)(struct worker_call *c);
};
extern const struct worker_set worker_all; /* of every kind */
extern const struct worker_set worker_own; /* of WORKER_CALLBACK alone */

#endif
