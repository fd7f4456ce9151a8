/* worker: the interface of an adapter, which carries out orders for one kind of worker.
 * guard/worker/ has the adapters.
 *
 * The functions run on a thread of guard/action.c and may block until deadline_ns. An adapter
 * does not check that memory is free: the guard checks that with its next scenes. */
#ifndef GW_GUARD_WORKER_H
#define GW_GUARD_WORKER_H

#include "guard.h"

#include "base/root.h"

#include <stdatomic.h>

struct json_doc;
struct worker_http; /* guard/worker/http.h: requests with a deadline over libcurl */

/* Callbacks of a worker that lives in this process (WORKER_CALLBACK). Each returns 0,
 * -GW_E_STATE (not now, try again) or another negative gw_error. The guard calls them on its
 * own thread, one at a time. */
struct worker_callbacks {
	int (*evict)(void *ctx, uint64_t bytes, uint64_t deadline_ns);
	int (*resume)(void *ctx, uint64_t deadline_ns);
	void *ctx;
};

/* GPU settings that decide whether a process can be checkpointed. 1: on; 0: off; -1:
 * unknown. */
struct worker_facts {
	int persistence, mps, mig;
};

/* Size of a worker's notes. Notes are lines "key value" that the resume order needs, such as
 * the names of the models that were loaded before the eviction. */
#define WORKER_NOTES_SIZE 4096

/* One order for one worker. */
struct worker_call {
	const struct policy_worker *worker;
	const struct guard_order *order;
	struct worker_http *http;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	char *notes;          /* WORKER_NOTES_SIZE bytes, owned by the caller */
	size_t notes_size;
	char *message; /* a sentence about an error, or a remark after success */
	size_t message_size;
	const struct worker_callbacks *callbacks; /* NULL: none are registered */
	struct worker_facts facts;
	const struct root *root; /* root folder of /proc */
	const struct worker_set *set;
	const char *companion; /* socket of the companion; NULL: act without it */
	/* true: end the order soon with a failure; NULL: the order cannot be cancelled */
	const atomic_bool *cancelled;
	/* set by resume(): the server's own list says that the models are loaded */
	bool listed;
};

/* Returns the program or the script of a hook (evict_command, resume_command) that other users
 * can change although it runs as root; NULL: there is no such file. */
const char *worker_hook_unsafe(const char *const *argv);
#define WORKER_HOOK_REMEDY "put it into a folder that only root can write"

static inline bool worker_is_cancelled(const struct worker_call *c)
{
	return c->cancelled && atomic_load(c->cancelled);
}

/* A POST request with a fixed path and body. */
struct worker_post {
	const char *path, *body;
	bool optional; /* no failure if the server does not have this path */
};

struct worker_ops {
	/* A function is NULL if there is nothing to do. Each returns 0, or an error with a
	 * sentence in c->message: -GW_E_TIMEOUT, -GW_E_IO (connection refused or broken),
	 * -GW_E_STATE (busy; try again), -GW_E_NOSUPPORT (the worker was started without this
	 * feature) or -GW_E_PERM. After 0 the message may be a remark. */
	int (*close)(struct worker_call *c); /* makes the worker refuse new work */
	/* Waits until the running requests end, if the worker supports such waiting. Sets
	 * *ret_busy to whether requests still run. */
	int (*drain)(struct worker_call *c, bool *ret_busy);
	/* Notes the state that evict() will destroy and that resume() needs; changes nothing in
	 * the worker. The notes are in the journal before evict() is called. evict() may add
	 * only notes about changes since the call of learn(). */
	int (*learn)(struct worker_call *c);
	int (*evict)(struct worker_call *c); /* evicts at the level of the worker's kind */
	/* Loads again what evict() unloaded. If the kind has close(), resume() also makes the
	 * worker admit new work. */
	int (*resume)(struct worker_call *c);
	/* Makes the worker admit new work again. Loads no model: a worker that is evicted only
	 * because it was idle gets this order too. */
	int (*open)(struct worker_call *c);
	int (*alive)(struct worker_call *c); /* returns 0 if the worker answers */

	/* An HTTP server can have fixed requests instead of functions. posts: per verb, the
	 * POST requests that carry out the order, sent one after the other until one fails; a
	 * NULL path ends a list. alive_path: GET on this path answers 2xx while the server is
	 * alive.
	 *
	 * A request that only queries the server (in drain, learn or alive) must not load or
	 * wake a model, must not generate, and must not wait until other requests end, because
	 * a contender needs the memory now. */
	const struct worker_post *posts[ORDER_VERBS];
	const char *alive_path;
	/* Instead of drain(): the path of a JSON document, and a function that returns true if
	 * the document shows running requests. */
	const char *busy_path;
	bool (*busy)(const struct json_doc *r);
	/* Instead of resume(): loads one of the models that learn() noted. Returns 0 when the
	 * server lists the model as loaded, 1 if it still loads at the deadline. */
	int (*load)(struct worker_call *c, const char *model);
};

/* Returns the socket of the container engine that runs w: the url of kind "container", or else
 * the first usual path that exists. NULL: the url names no socket. */
const char *worker_engine(const struct policy_worker *w);

/* The adapters that an action may use. A program that guards itself uses a smaller set, so that
 * the other adapters are not linked into the program. */
struct worker_set {
	const struct worker_ops *(*of)(enum policy_kind kind); /* never NULL */
	/* Returns the adapter that carries out level 4 for w; NULL: there is none. */
	const struct worker_ops *(*stopper)(const struct policy_worker *w);
	/* Carries out levels 5 and 6. */
	int (*kill)(const struct worker_call *c);
	/* begin() creates c->http before each order, and end() frees it after the order.
	 * started() drops the old connection after the worker was started. NULL: the set needs
	 * no such function. */
	int (*begin)(struct worker_call *c);
	void (*started)(struct worker_call *c);
	void (*end)(struct worker_call *c);
	/* Requests of kinds with an HTTP server (guard/worker/common.h); NULL if the set has no
	 * such kind, so that a program that guards itself has no HTTP client. */
	int (*get)(struct worker_call *c, const char *path);
	int (*post_all)(struct worker_call *c, const struct worker_post *posts);
	int (*busy)(struct worker_call *c, const struct worker_ops *ops, bool *ret_busy);
	int (*load_noted)(struct worker_call *c,
			  int (*load)(struct worker_call *c, const char *model));
};
extern const struct worker_set worker_all; /* every kind */
extern const struct worker_set worker_own; /* only WORKER_CALLBACK */

#endif
