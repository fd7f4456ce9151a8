/* api: implements gw_guard_*: a guard that runs inside the program that it guards.
 *
 * The process of this program is the only worker. The module takes scenes, uses guard_pump() as
 * the service does, and calls the program's callbacks. There is no journal, because the GPU
 * memory of a process is free when the process ends. */
#ifndef GW_GUARD_API_H
#define GW_GUARD_API_H

#include "action.h"
#include "health.h"
#include "scene_builder.h"

#include "base/clock.h"
#include "base/mailbox.h"

#include <gpuward-guard.h>

#include <stdatomic.h>

/* Time between scenes if no timer runs, and no event reports that a process opened a GPU. */
#define API_EVERY_NS (5 * NS_PER_S)

/* Removes from the scene the GPUs that the worker does not name, and the processes on these
 * GPUs. If the worker names no GPU, nothing is removed. */
void guard_api_narrow(struct scene *s, const struct policy_worker *w);

struct guard_api_health;

/* Borrows ctx. Returns 0 or -GW_E_NOMEM. */
int guard_api_health_new(struct gw_ctx *ctx, struct guard_api_health **ret);
void guard_api_health_free(struct guard_api_health *h);

/* The data for taking scenes. Used only by the guard's thread. */
struct guard_api_observer {
	struct scene_builder *builder;
	struct scene *scene;
	struct gw_snapshot *snap;        /* used to explain why no GPU was found */
	struct guard_api_health *health; /* NULL: the program did not request health */
	uint64_t due_ns;                 /* when the next scene is due */
	/* scenes are taken often until this time, because a program opened a GPU */
	uint64_t often_until_ns;
	bool utilisation; /* the next scene must include utilisation */
};

struct guard_api_callback {
	enum gw_worker_call call; /* the callback that runs now */
	uint64_t deadline_ns;
	pthread_t caller; /* the thread that runs the callback */
};

struct gw_guard {
	struct gw_ctx *ctx;
	/* the program may have freed the strings of its options: do not use them */
	struct gw_guard_options options;
	struct policy policy;
	struct action *action;
	struct guard_api_observer observer;
	atomic_int allowed; /* what gw_guard_allowed() returns */

	/* The guard's thread. An outcome or a request wakes it. When `allowed` changes, it
	 * wakes the callers of gw_guard_wait(). The lock protects the members below, and is
	 * never held during a driver call or a callback. */
	struct mailbox box;
	struct guard *guard;
	bool closed;      /* the last order about admission was ORDER_CLOSE */
	bool simulated;   /* one of the worker's GPUs is simulated */
	bool observe_now; /* take the next scene at once */
	uint64_t scenes;  /* number of scenes so far */
	char no_gpu[200]; /* why no GPU is visible; "" if one is visible */
	struct guard_api_callback callback;
};

/* Creates a guard without its thread. Returns the errors of gw_guard_start(). */
int guard_api_new(struct gw_ctx *ctx, const struct gw_guard_options *options,
		  struct gw_guard **ret);
/* Frees a guard. Its thread must not run. Returns 0, or -GW_E_STATE if a callback still
 * runs. */
int guard_api_free(struct gw_guard *g, uint64_t timeout_ns);

/* Fetches outcomes, takes a scene if one is due, decides, starts orders and reports decisions.
 * Returns the time of the next call (monotonic clock of the context). */
uint64_t guard_api_round(struct gw_guard *g);

/* Waits until due_ns, an event or a request. */
void guard_api_wait(struct gw_guard *g, uint64_t due_ns);

/* True if decisions are not carried out. The caller holds the lock. */
bool guard_api_is_dry(const struct gw_guard *g);

/* The callbacks that the action calls; their ctx is the struct gw_guard. */
extern const struct worker_callbacks guard_api_callbacks;

/* True if the calling thread runs one of the guard's callbacks. */
bool guard_api_is_caller(struct gw_guard *g);

#endif
