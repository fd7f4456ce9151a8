/* api: a guard inside the program that is guarded: what is behind gw_guard_*.
 *
 * Its one worker is this process.  It makes scenes, drives the guard with guard_pump.h as the service does, calls the
 * program's callbacks, and keeps one atomic number for the worker's loop.  It has no journal: what lives in the process
 * ends with it. */
#ifndef GW_GUARD_API_H
#define GW_GUARD_API_H

#include "action.h"
#include "health.h"
#include "scene_builder.h"

#include "base/clock.h"

#include <gpuward-guard.h>

#include <pthread.h>
#include <stdatomic.h>

#define API_EVERY_NS \
	(5 *         \
	 NS_PER_S) /* between scenes if no timer runs and opens of devices are not watched */

/* ---- api_policy.c: options -> a policy ---- */

/* Options as given, the rest as it is by default.  0 or -GW_E_ARG. */
int guard_api_options(const struct gw_guard_options *given, struct gw_guard_options *ret);
/* *ret owns its texts: policy_done().  0, -GW_E_ARG, -GW_E_SIZE or -GW_E_NOMEM. */
int guard_api_policy(const struct gw_guard_options *o, struct policy *ret);

/* Takes out of the scene what is not on the GPUs that the worker names; nothing where it names none. */
void guard_api_narrow(struct scene *s, const struct policy_worker *w);

/* ---- api_health.c: is a GPU of it too hot, or broken? ---- */

struct guard_api_health;

/* Borrows ctx.  0 or -GW_E_NOMEM. */
int guard_api_health_new(struct gw_ctx *ctx, struct guard_api_health **ret);
void guard_api_health_free(struct guard_api_health *h);
/* Reads what is due of the GPUs of s.  A driver is asked: not under a lock. */
void guard_api_health_read(struct guard_api_health *h, const struct scene *s, uint64_t now_ns);
/* Hands the last readings to the guard. */
void guard_api_health_apply(struct guard_api_health *h, struct guard *g, uint64_t now_ns);

/* ---- api_run.c: one round ---- */

struct gw_guard {
	struct gw_ctx *ctx;
	struct gw_guard_options options; /* its pointers to texts are the caller's: not used */
	struct policy policy;
	struct action *action;
	int wake_fd; /* outcomes, wishes, the end */

	/* The thread's own. */
	struct scene_builder *look;
	struct scene *scene;
	struct gw_snapshot *snap;        /* for why there is no GPU */
	struct guard_api_health *health; /* NULL: not asked for */
	uint64_t due_ns, often_until_ns;
	bool utilisation;

	pthread_t thread;
	bool started;
	atomic_int allowed;

	pthread_mutex_t
		lock; /* what follows; never held while a driver or a callback is called */
	pthread_cond_t news; /* allowed or gone has changed */
	struct guard *guard;
	bool stop, gone;
	bool closed;    /* no new work, by order */
	bool simulated; /* one of its GPUs */
	bool look_now;
	uint64_t looks;
	char no_gpu[200]; /* why there is nothing to see; "": there is */
	enum gw_worker_call call;
	uint64_t call_deadline_ns;
	pthread_t caller; /* whose call it is */
};

/* All of it but the thread.  0, or as gw_guard_start(). */
int guard_api_new(struct gw_ctx *ctx, const struct gw_guard_options *options,
		  struct gw_guard **ret);
/* Without a thread, or after it has ended.  0, or -GW_E_STATE: a callback is under way. */
int guard_api_free(struct gw_guard *g, uint64_t timeout_ns);

/* Takes outcomes and a scene if one is due, decides, starts orders, reports decisions.  When to come again
 * (monotonic time of the context). */
uint64_t guard_api_round(struct gw_guard *g);

/* Waits for that moment, or until something happens. */
void guard_api_wait(struct gw_guard *g, uint64_t due_ns);

/* Is nothing done?  With the lock. */
bool guard_api_is_dry(const struct gw_guard *g);

/* The callbacks that the action has; ctx is the struct gw_guard. */
extern const struct worker_callbacks guard_api_callbacks;

/* Is this thread in one of the guard's callbacks? */
bool guard_api_is_caller(struct gw_guard *g);

#endif
