/* guard_view: the guard's part of a view.
 *
 * It belongs to the main thread; the guard itself may be queried (guard_status(),
 * guard_verdicts()), because it is pure and fast. Requests go through the operations, so that
 * they are journaled and carried out. */
#ifndef GW_SERVE_GUARD_VIEW_H
#define GW_SERVE_GUARD_VIEW_H

#include "guard/capacity.h"
#include "guard/guard_query.h"
#include "guard/health.h"
#include "guard/guard_counters.h"

#include <math.h>
#include <string.h>

/* ---- operations ----
 *
 * A request starts at once and finishes later; the client gets an id and queries it.  The latest ones
 * are kept in a fixed amount of memory.  A decision about the worker ends an operation, so that a
 * worker that left and came back between two queries counts as evicted. */

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
	uint64_t begun; /* total since the start */
};

const char *guard_operation_word(enum guard_request what);            /* "hold evicted" */
const char *guard_operation_state_name(enum guard_operation_state s); /* "running", ... */

/* The running operation for the same request and worker; NULL: none. A repeated request does
 * not start again. */
const struct guard_operation *guard_operation_running(const struct guard_operations *o,
						      const char *worker,
						      enum guard_request what);

/* Adds an accepted request, with the worker's status after it. Running operations of this
 * worker end as failed, because this one replaces them. */
void guard_operation_begin(struct guard_operations *o, uint64_t id, const char *worker,
			   enum guard_request what, const struct guard_status *s,
			   uint64_t wall_ns);

/* There was a decision about the worker. */
void guard_operation_decided(struct guard_operations *o, const char *worker,
			     const struct guard_decision *d, uint64_t wall_ns);

/* NULL: unknown or dropped. o may be NULL. */
const struct guard_operation *guard_operation_find(const struct guard_operations *o,
						   uint64_t id);
/* The latest operation of a worker. */
const struct guard_operation *guard_operation_latest(const struct guard_operations *o,
						     const char *worker);

/* ---- the view ---- */

#define GUARD_VIEW_DECISIONS 128

struct guard_view_decision {
	uint64_t id; /* of its event */
	uint64_t wall_ns;
	struct guard_decision decision;
};

/* A process registered as a game. */
#define GUARD_VIEW_GAMES 32
struct guard_view_game {
	int64_t pid;                 /* 0: free slot */
	uint64_t since_ns, until_ns; /* UINT64_MAX: until the process exits */
	int64_t uid;                 /* who registered it; -1: a client with the token */
	char who[256];
};

/* The client of a request. */
struct guard_client {
	const char *who; /* for logs: "uid 1000: reason", "token: reason" */
	/* decides the permissions; -1: not a local user, such as a client with the token */
	int64_t uid;
	/* of the client on the UNIX socket, in our namespace; 0: outside, -1: unknown */
	int64_t pid;
	/* start time of the named process, as the client says; 0: not given */
	uint64_t start_ticks;
};

struct guard_view_counts { /* since the start; the tally has the sums over restarts */
	uint64_t scenes, triggered;
	uint64_t events_lost; /* driver events that did not fit the queue */
	uint64_t stuck;       /* workers in state stuck, now */
	/* Idle economy: energy that idle models did not draw, and that loading them again
	 * took. */
	double idle_saved_joules, idle_spent_joules;
	double decide_seconds_last, decide_seconds_max; /* from the scene to the decision */
	double free_seconds_last,
		free_seconds_max; /* from the first order until the memory is free */
};

struct guard_view {
	const struct policy *policy;
	const struct guard *guard;
	const struct scene *scene;    /* the latest; NULL: none yet */
	struct health *const *health; /* one per device of the snapshot; NULL: not monitored */
	struct capacity *const *capacity; /* same */
	const char(*ghost)
		/* same: unattributed use as a sentence, or "" (guard/unattributed_use.h);
		 * NULL: none */
		[200];
	const double
		*evictions; /* same: number of evictions, including earlier runs; NULL: none */
	unsigned devices;
	const struct guard_view_game *games; /* GUARD_VIEW_GAMES slots; NULL: none */
	/* The latest, oldest first: number i at ring[(first + i) % GUARD_VIEW_DECISIONS]. */
	const struct guard_view_decision *ring;
	unsigned first, decisions;
	struct guard_view_counts counts;
	const char *kernel_log; /* "ok", or why Xids from before the start are unknown */
	const struct guard_operations *operations; /* NULL in tests: none */
	const struct guard_counters *tally;        /* including earlier runs; NULL in tests */
	const char *journal; /* "ok", or why evictions above level 2 are refused */
};

/* Requests of clients; on the main thread. */
struct guard_view_ops {
	/* As guard_request(), guard_reserve(), guard_reservation_ready(), guard_release(); starts at once.
	 * request: 0 with a text if the request is accepted but not stored. reserve: also
	 * -GW_E_ARG with a text: no such process. */
	int (*request)(void *engine, int worker, enum guard_request what, uint64_t ttl_ns,
		       const struct guard_client *by, char *message, size_t size);
	int (*reserve)(void *engine, const char *gpu, uint64_t bytes, int64_t pid,
		       uint64_t ttl_ns, const struct guard_client *by, uint64_t *ret_id,
		       char *message, size_t size);
	int (*reserved)(void *engine, uint64_t id, char *message, size_t size);
	void (*release)(void *engine, uint64_t id);
	/* As games_begin() and games_end(); *pid becomes the pid in our namespace. Also
	 * -GW_E_PERM: not the client's process, with a text, or (without a text) this user
	 * moved workers too often. */
	int (*game)(void *engine, int64_t *pid, uint64_t ttl_ns, const struct guard_client *by,
		    char *message, size_t size);
	int (*game_end)(void *engine, int64_t pid, const struct guard_client *by);
	/* Clears the quarantine of a GPU. 0; -GW_E_NOENT: its health is not monitored;
	 * -GW_E_STATE with a text: the cause still exists. */
	int (*clear)(void *engine, const char *uuid, const char *who, char *message,
		     size_t size);
	/* Makes a policy from a TOML configuration; the caller frees it with policy_done().
	 * 0, -GW_E_PARSE with a text, or another error. NULL: not supported. */
	int (*policy)(const char *toml, size_t n, struct policy *ret, char *message,
		      size_t size);
};

/* Index in a scene of the GPU with this uuid; -1: not there. s may be NULL. */
static inline int guard_view_gpu(const struct scene *s, const char *uuid)
{
	for (unsigned i = 0; s && uuid && i < s->gpus; i++)
		if (strcmp(s->gpu[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

/* Memory in use that no listed process holds; NAN: unknown, because a process does not report
 * its memory. */
static inline double guard_view_unattributed(const struct scene *s, unsigned gpu)
{
	double left = (double)s->gpu[gpu].used_bytes;

	if (!s->gpu[gpu].memory_known)
		return (double)NAN;
	for (unsigned i = 0; i < s->processes; i++) {
		if (s->process[i].gpu != gpu)
			continue;
		if (!s->process[i].bytes_known)
			return (double)NAN;
		left -= (double)s->process[i].bytes;
	}
	return left > 0 ? left : 0;
}

/* What capacity.h needs about device i of the view. */
struct view;
void guard_view_capacity(const struct view *v, unsigned i, struct capacity_gpu *ret);

#endif
