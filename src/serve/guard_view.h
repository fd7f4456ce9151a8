/* guard_view: what the service knows of its guard, for whoever answers a question.
 *
 * Part of a view, and the main thread's: the guard itself may be asked (guard_status(), guard_verdicts()), it
 * is pure and quick.  What people want of it goes through the operations, so that what follows is
 * journaled and done. */
#ifndef GW_SERVE_GUARD_VIEW_H
#define GW_SERVE_GUARD_VIEW_H

#include "guard_operation.h"

#include "guard/capacity.h"
#include "guard/guard_query.h"
#include "guard/health.h"
#include "guard/guard_counters.h"

#include <math.h>
#include <string.h>

#define GUARD_VIEW_DECISIONS 128

struct guard_view_decision {
	uint64_t id; /* of the event that told of it */
	uint64_t wall_ns;
	struct guard_decision decision;
};

/* Somebody who told that it plays. */
#define GUARD_VIEW_GAMES 32
struct guard_view_game {
	int64_t pid;                 /* 0: this place is free */
	uint64_t since_ns, until_ns; /* UINT64_MAX: as long as the process */
	int64_t uid;                 /* who told it; -1: one with the token */
	char who[256];
};

/* Who asks. */
struct guard_asker {
	const char *who; /* for people: "uid 1000: reason", "token: reason" */
	int64_t uid; /* what they may goes by it; -1: not a user of this machine, as one with the token */
	int64_t pid; /* of the peer on the UNIX socket, as we see it; 0: outside, -1: unknown */
	uint64_t start_ticks; /* of the process that they name, by their word; 0: not told */
};

struct guard_view_counts { /* since the start; what is summed up of the tally is not here */
	uint64_t looks, triggered;
	uint64_t events_lost; /* of drivers: more at once than could be kept */
	uint64_t stuck;       /* workers that are, now */
	/* Of the idle economy: energy that idling models did not draw, and that loading them again took. */
	double idle_saved_joules, idle_spent_joules;
	double decide_seconds_last,
		decide_seconds_max; /* from the look that saw it to the decision */
	double free_seconds_last,
		free_seconds_max; /* from the first order to the memory being free */
};

struct guard_view {
	const struct policy *policy;
	const struct guard *guard;
	const struct scene *scene;    /* the latest; NULL: none yet */
	struct health *const *health; /* one a device of the snapshot; NULL where not watched */
	struct capacity *const *capacity; /* likewise */
	const char (*ghost)
		[200]; /* likewise: a sentence, or "" (guard/unattributed_use.h); NULL: none */
	const double
		*evictions; /* likewise: workers that left it, over restarts too; NULL: none */
	unsigned devices;
	const struct guard_view_game *games; /* GUARD_VIEW_GAMES places; NULL: none */
	/* The latest, oldest first: number i at ring[(first + i) % GUARD_VIEW_DECISIONS]. */
	const struct guard_view_decision *ring;
	unsigned first, decisions;
	struct guard_view_counts counts;
	const char *kernel_log; /* "ok", or why Xids of before the start are not known */
	const struct guard_operations *operations; /* NULL in tests: none */
	const struct guard_counters
		*tally;      /* over restarts too; NULL in tests: nothing was counted */
	const char *journal; /* "ok", or why evictions above level 2 are refused */
};

/* What people ask; the main thread. */
struct guard_view_ops {
	/* As guard_request(), guard_reserve(), guard_reservation_ready(), guard_release(); what follows is begun at once.  ask: 0 with
	 * a sentence where it is so and is not in the file.  reserve: also -GW_E_ARG, no such process is seen, with a
	 * sentence. */
	int (*ask)(void *engine, int worker, enum guard_request what, uint64_t ttl_ns,
		   const struct guard_asker *by, char *message, size_t size);
	int (*reserve)(void *engine, const char *gpu, uint64_t bytes, int64_t pid,
		       uint64_t ttl_ns, const struct guard_asker *by, uint64_t *ret_id,
		       char *message, size_t size);
	int (*reserved)(void *engine, uint64_t id, char *message, size_t size);
	void (*release)(void *engine, uint64_t id);
	/* As games_begin() and games_end(); *pid becomes the number that it has here.  Also -GW_E_PERM: it is not theirs,
	 * with a sentence, or (without) this user let workers leave too often. */
	int (*game)(void *engine, int64_t *pid, uint64_t ttl_ns, const struct guard_asker *by,
		    char *message, size_t size);
	int (*game_end)(void *engine, int64_t pid, const struct guard_asker *by);
	/* Ends the quarantine of a GPU.  0; -GW_E_NOENT: its health is not watched; -GW_E_STATE with a
	 * sentence: its cause is not past. */
	int (*clear)(void *engine, const char *uuid, const char *who, char *message,
		     size_t size);
	/* A configuration in TOML as a policy of its own, ended with policy_done().  0, -GW_E_PARSE with a
	 * sentence, or another error.  NULL: cannot be done. */
	int (*policy)(const char *toml, size_t n, struct policy *ret, char *message,
		      size_t size);
};

/* Position in a scene of the GPU with this uuid; -1: it is not there.  s may be NULL. */
static inline int guard_view_gpu(const struct scene *s, const char *uuid)
{
	for (unsigned i = 0; s && uuid && i < s->gpus; i++)
		if (strcmp(s->gpu[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

/* Memory in use that no listed process holds; NAN: unknown, as where one does not tell what it holds. */
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

/* What capacity.h wants to know of device i of the view. */
struct view;
void guard_view_capacity(const struct view *v, unsigned i, struct capacity_gpu *ret);

#endif
