/* guard_view: the part of the guard's state that handlers can read.
 *
 * The view belongs to the main thread. Handlers may also call the pure functions guard_status()
 * and guard_verdicts(). Requests go through struct guard_view_ops, which journals them and
 * carries them out. */
#ifndef GW_SERVE_GUARD_VIEW_H
#define GW_SERVE_GUARD_VIEW_H

#include "guard/capacity.h"
#include "guard/guard_query.h"
#include "guard/health.h"
#include "guard/worker_stats.h"

#include <math.h>
#include <string.h>

/* Operations. A request to the guard starts at once and finishes later; the client gets an id
 * and queries the operation. Only the latest GUARD_OPERATIONS are kept. An operation ends with
 * a decision of the guard about the worker, not with a query. So if a worker leaves and returns
 * between two queries, its eviction still counts as done. */

#define GUARD_OPERATIONS 64

enum guard_operation_state { OPERATION_RUNNING, OPERATION_DONE, OPERATION_FAILED };

struct guard_operation {
	uint64_t id; /* 0: unused entry */
	char worker[64];
	enum guard_request what;
	enum guard_operation_state state;
	uint64_t since_wall_ns, ended_wall_ns; /* ended_wall_ns 0: still running */
	char message[280];
};

struct guard_operations {
	struct guard_operation ring[GUARD_OPERATIONS];
	uint64_t begun; /* number of operations since the service started */
};

/* Whether the journal can be written. If it cannot, evictions above level 2 (unload) are
 * refused. */
enum guard_journal {
	GUARD_JOURNAL_OK,
	GUARD_JOURNAL_NO_FILE, /* There is no file, or its contents are not known yet. */
	GUARD_JOURNAL_FAILS,
};
/* Returns "ok", or why evictions above level 2 are refused. */
const char *guard_journal_text(enum guard_journal j);

const char *guard_operation_word(enum guard_request what);            /* "hold evicted" */
const char *guard_operation_state_name(enum guard_operation_state s); /* "running", ... */

/* Returns the running operation for the same request and worker; NULL: none. With this
 * function, a caller avoids a second operation for a repeated request. */
const struct guard_operation *guard_operation_running(const struct guard_operations *o,
						      const char *worker,
						      enum guard_request what);

/* Adds an operation for an accepted request. s is the status of the worker after the request.
 * Running operations of this worker end as failed, because the new operation replaces them. */
void guard_operation_begin(struct guard_operations *o, uint64_t id, const char *worker,
			   enum guard_request what, const struct guard_status *s,
			   uint64_t wall_ns);

/* Updates the running operations of a worker after a decision about this worker. Ends the
 * operations that are done or have failed. */
void guard_operation_decided(struct guard_operations *o, const char *worker,
			     const struct guard_decision *d, uint64_t wall_ns);

/* Returns the operation with this id; NULL: unknown or dropped. o may be NULL. */
const struct guard_operation *guard_operation_find(const struct guard_operations *o,
						   uint64_t id);
/* Returns the latest operation of a worker; NULL: none. */
const struct guard_operation *guard_operation_latest(const struct guard_operations *o,
						     const char *worker);

#define GUARD_VIEW_DECISIONS 128

struct guard_view_decision {
	uint64_t id; /* id of the event that reported the decision */
	uint64_t wall_ns;
	struct guard_decision decision;
	/* Why the worker must not run, in words (guard_view_cause()). "": the worker may run. */
	char cause[WORKER_STATS_CAUSE];
};

/* A process registered as a game. */
#define GUARD_VIEW_GAMES 32
struct guard_view_game {
	int64_t pid; /* process id; 0: free slot */
	/* Monotonic times at which the game was registered and ends. until_ns UINT64_MAX: the
	 * game ends when the process exits. */
	uint64_t since_ns, until_ns;
	/* user id of the client that registered the game; -1: a client with the token */
	int64_t uid;
	char who[256];
};

/* The person or client that requested the last hold or eviction of a worker, and the reason. */
struct guard_view_requested {
	char worker[64]; /* "": free slot */
	char by[256];    /* same text as guard_client.who */
};

/* The Idempotency-Key of a request and its body: SHA-256 as hexadecimal text. "": none. */
struct guard_view_key {
	char key[65], body[65];
};

/* A reservation, and the key of the request that made it. */
#define GUARD_VIEW_ROOMS 32
struct guard_view_room {
	uint64_t id; /* 0: free slot */
	struct guard_view_key key;
	uint64_t start_ticks; /* start time of the owner process */
	/* A client got the reply that the memory is free, so the owner may already use the
	 * memory. */
	bool granted;
	/* Monotonic time until which a client waits for the memory. If several clients wait,
	 * the latest of their times. */
	uint64_t wait_until_ns;
};

/* The client that sent a request. */
struct guard_client {
	const char *who; /* text for logs, such as "uid 1000: reason" */
	/* User id, which decides the permissions. -1: not a local user, such as a client with
	 * the token. */
	int64_t uid;
	/* Process id of a client on the UNIX socket, in our pid namespace. 0: the client runs
	 * outside of this namespace. -1: unknown. */
	int64_t pid;
	/* Start time of the process that the request names, as sent by the client. 0: not
	 * sent. */
	uint64_t start_ticks;
	/* Idempotency-Key of the request; stored with the object that the request makes. NULL:
	 * the request has no key. */
	const struct guard_view_key *key;
};

/* Counts since the service started; guard_view.tally includes earlier runs. */
struct guard_view_counts {
	uint64_t scenes, triggered;
	/* number of driver events that were dropped because the queue was full */
	uint64_t events_lost;
	uint64_t stuck; /* number of workers that are now in the state stuck */
	/* Joules that were saved while idle models were unloaded, and joules that were spent to
	 * load them again. */
	double idle_saved_joules, idle_spent_joules;
	/* Seconds from the scene to the decision that the guard made with it. 0: no decision
	 * yet. */
	double decide_seconds_last, decide_seconds_max;
	/* Seconds from the first order until the GPU memory was free. 0: no eviction yet. */
	double free_seconds_last, free_seconds_max;
};

/* The mode in the configuration file, and the mode that a person set while the service was
 * running. The mode in force is policy.mode. */
struct guard_view_mode {
	enum guard_mode configured;
	bool chosen; /* A person has set a mode. The members below are valid. */
	/* The mode that the person set. The guard uses it as soon as no order is running. */
	enum guard_mode mode;
	uint64_t wall_ns; /* wall time at which the person set the mode */
	char who[256];
};

struct guard_view {
	const struct policy *policy;
	const struct guard_view_mode *mode; /* NULL in tests */
	const struct guard *guard;
	const struct scene *scene; /* the latest scene; NULL: none yet */
	/* One pointer per device of the snapshot. NULL: the device is not monitored. */
	struct health *const *health;
	struct capacity *const *capacity;
	/* For each device, a sentence about GPU memory in use that belongs to no process
	 * (guard/gpu_use.h); "": there is no such memory. NULL: unknown. */
	const char (*ghost)[200];
	/* Number of evictions per device, including earlier runs of the service. NULL:
	 * unknown. */
	const double *evictions;
	unsigned devices;
	const struct guard_view_game *games; /* GUARD_VIEW_GAMES slots; NULL: none */
	const struct guard_view_room *rooms; /* GUARD_VIEW_ROOMS slots; NULL: none */
	/* The latest decisions, oldest first: decision i is ring[(first + i) %
	 * GUARD_VIEW_DECISIONS]. */
	const struct guard_view_decision *ring;
	unsigned first, decisions;
	struct guard_view_counts counts;
	/* "ok", or why the Xids from before the start of the service are unknown. */
	const char *kernel_log;
	const struct guard_operations *operations; /* NULL in tests */
	const struct guard_counters
		*tally;            /* counts that include earlier runs; NULL in tests */
	const struct moves *moves; /* durations of moves; NULL in tests */
	const struct guard_view_requested *requested; /* POLICY_WORKERS slots; NULL: unknown */
	enum guard_journal journal;
};

/* Functions that carry out requests of clients. Only the main thread calls them. */
struct guard_view_ops {
	/* These functions work like guard_request(), guard_reserve(), guard_reservation_ready()
	 * and guard_release(), and then carry out the new orders of the guard at once. If a
	 * request is accepted but not stored, request() returns 0 with a message. If there is
	 * no process with this pid, reserve() returns -GW_E_ARG with a message. After
	 * reserved() has returned 1 once, it returns 1 as long as the reservation exists. Its
	 * argument until_ns is the monotonic time until which the client waits for the
	 * memory. */
	int (*request)(void *engine, int worker, enum guard_request what, uint64_t ttl_ns,
		       const struct guard_client *by, char *message, size_t size);
	int (*reserve)(void *engine, const char *gpu, uint64_t bytes, int64_t pid,
		       uint64_t ttl_ns, const struct guard_client *by, uint64_t *ret_id,
		       char *message, size_t size);
	int (*reserved)(void *engine, uint64_t id, uint64_t until_ns, char *message,
			size_t size);
	void (*release)(void *engine, uint64_t id);
	/* These functions work like games_begin() and games_end(). game() sets *pid to the pid
	 * in our namespace. They also return -GW_E_PERM. With a message, this error means that
	 * the process does not belong to the client; without a message, that this user moved
	 * workers too often. */
	int (*game)(void *engine, int64_t *pid, uint64_t ttl_ns, const struct guard_client *by,
		    char *message, size_t size);
	int (*game_end)(void *engine, int64_t pid, const struct guard_client *by);
	/* Clears the quarantine of a GPU. Returns 0, -GW_E_NOENT (the health of the GPU is not
	 * monitored) or -GW_E_STATE with a message (the cause still exists). */
	int (*clear)(void *engine, const char *uuid, const char *who, char *message,
		     size_t size);
	/* Sets the mode, which then applies until a person sets another mode. If mode is NULL,
	 * the configured mode applies again. Returns 0; if the choice is not stored, message is
	 * not empty. */
	int (*set_mode)(void *engine, const enum guard_mode *mode,
			const struct guard_client *by, char *message, size_t size);
	/* Makes a policy from a TOML configuration; the caller ends it with policy_done().
	 * Returns 0, -GW_E_PARSE with a message, or another error. The pointer may be NULL:
	 * then a policy in a request is refused. */
	int (*policy)(const char *toml, size_t n, struct policy *ret, char *message,
		      size_t size);
	/* Works like recording_last_scene(). The pointer may be NULL: then a recording in a
	 * request is refused. */
	int (*last_scene)(const char *lines, const struct policy *p, struct scene *ret,
			  unsigned *ret_line);
};

/* Returns the scene index of the GPU with this uuid; -1: the scene does not have it. s may be
 * NULL. */
static inline int guard_view_gpu(const struct scene *s, const char *uuid)
{
	for (unsigned i = 0; s && uuid && i < s->gpus; i++)
		if (strcmp(s->gpu[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

/* True if the guard observes a simulated GPU. */
static inline bool guard_view_simulated(const struct guard_view *g)
{
	for (unsigned i = 0; g->scene && i < g->scene->gpus; i++)
		if (g->scene->gpu[i].simulated)
			return true;
	return false;
}

/* Returns the memory in use that no listed process holds. NAN: the memory of a process or of
 * the GPU is unknown. */
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

/* Returns the last decision about a worker; NULL: there is none among the latest decisions. */
const struct guard_view_decision *guard_view_last_decision(const struct guard_view *g,
							   unsigned worker);
/* Returns who requested the last hold or eviction of a worker, and why: "a client with
 * the token: maintenance". */
const char *guard_view_requested_by(const struct guard_view *g, unsigned worker);
/* True if process i of the last scene needs the worker's GPU, so that the worker must leave it
 * or must not return. */
bool guard_view_contends(const struct guard_view *g, unsigned worker, unsigned i);
/* True if the state of the worker is only a decision of a dry run, which means that no order
 * was carried out and the worker is still on its GPU. The states reconcile, active, suspect and
 * absent are always real, and so is the state of a worker that was really evicted before the
 * dry run began. */
bool guard_view_hypothetical(const struct guard_status *s);
/* Writes in words why the worker must not run. Uses the first reason that is not masked by a
 * hold: "for game.exe (pid 4711, 13.0 GiB)", "at the request of uid 1000: maintenance",
 * "because its GPU is too hot". Writes "" if there is no such reason. */
void guard_view_cause(const struct guard_view *g, unsigned worker, char *out, size_t size);

/* Fills *ret with the data about device i of the view that the functions of capacity.h need. */
struct view;
void guard_view_capacity(const struct view *v, unsigned i, struct capacity_gpu *ret);

#endif
