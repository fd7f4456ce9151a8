/* gpuward-guard: frees the GPU memory of a program while another program needs the GPU.
 *
 * Use it in a program that holds GPU memory and can free this memory, such as an inference
 * server. The guard calls evict() when another process needs the GPU, and resume() when no
 * process needs the GPU any more:
 *
 *	#include <gpuward-guard.h>
 *	#include <stdio.h>
 *
 *	static int evict(void *arg, uint64_t bytes, uint64_t deadline_ns)
 *	{
 *		(void)arg, (void)bytes, (void)deadline_ns;
 *		return 0; // free the GPU memory here
 *	}
 *
 *	static int resume(void *arg, uint64_t deadline_ns)
 *	{
 *		(void)arg, (void)deadline_ns;
 *		return 0; // allocate it again here
 *	}
 *
 *	int main(void)
 *	{
 *		struct gw_guard_options o = { .size = sizeof(o), .name = "chat", .evict = evict,
 *					      .resume = resume };
 *		struct gw_ctx *ctx = NULL;
 *		struct gw_guard *guard = NULL;
 *		int err = gw_open(NULL, &ctx);
 *
 *		if (!err)
 *			err = gw_guard_start(ctx, &o, &guard);
 *		if (err)
 *			fprintf(stderr, "%s\n", gw_ctx_error(ctx));
 *		for (int job = 0; !err && job < 3; job++) {
 *			gw_guard_wait(guard, UINT64_MAX);
 *			printf("job %d uses the GPU\n", job);
 *		}
 *		if (gw_guard_stop(guard, 5000000000) == 0)
 *			gw_close(ctx);
 *		return err ? 1 : 0;
 *	}
 *
 * A guard has one worker: this process with its descendants. After evict() has returned, the
 * guard checks in the driver's process lists that memory was freed. Before it calls resume(),
 * the guard checks that the worker's memory fits. Nothing is stored on the disk.
 *
 * The rules at the top of gpuward.h apply here too. */
#ifndef GPUWARD_GUARD_H
#define GPUWARD_GUARD_H

#include <gpuward.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the guard carries out its decisions. */
enum gw_guard_mode {
	GW_GUARD_ENFORCE, /* the guard calls the callbacks */
	GW_GUARD_DRY_RUN, /* the guard only reports decisions, and gw_guard_allowed() stays 1 */
	GW_GUARD_OBSERVE, /* works like GW_GUARD_DRY_RUN */
};

enum gw_guard_flag {
	/* Every other process is a contender, even a small one or a desktop program, unless it
	 * is in the ignore list. */
	GW_GUARD_ANY = 1 << 0,
	/* Only processes in the lists contend and contend_now are contenders. This flag is
	 * refused together with GW_GUARD_ANY. */
	GW_GUARD_NAMED = 1 << 1,
	/* GPU memory that no visible process owns counts as a contender. Use this flag in a
	 * container, where processes outside the container are invisible. */
	GW_GUARD_UNATTRIBUTED = 1 << 2,
	/* The worker must leave its GPUs if one of them cannot be read any more. Without this
	 * flag, the worker then stays where it is. */
	GW_GUARD_LEAVE_BLIND = 1 << 3,
	/* The worker must leave a GPU that is too hot or needs a reset. */
	GW_GUARD_HEALTH = 1 << 4,
	/* For tests: the guard also acts on simulated GPUs. Without this flag, a guard on
	 * simulated GPUs is a dry run. */
	GW_GUARD_SIMULATED = 1 << 5,
};

enum gw_worker_state {
	GW_WORKER_RECONCILE, /* nothing was observed yet */
	GW_WORKER_ACTIVE,    /* the worker may run */
	GW_WORKER_SUSPECT,   /* another process may need the GPU; the worker still runs */
	GW_WORKER_DRAIN,     /* the worker must leave and must not begin new work */
	GW_WORKER_EVICT,     /* evict() was called */
	GW_WORKER_VERIFY,    /* evict() returned 0; the guard checks that the memory is free */
	GW_WORKER_EVICTED,   /* the worker has left, and a reason keeps it off the GPU */
	GW_WORKER_QUIET,     /* no process needs the GPU; the guard waits for quiet_ns */
	GW_WORKER_PRECHECK,  /* the guard checks that the worker's memory fits */
	GW_WORKER_RESUME,    /* resume() was called */
	GW_WORKER_VERIFY_UP, /* resume() returned 0; the guard checks that the worker is back */
	GW_WORKER_STUCK,  /* evict() failed or freed nothing; the guard retries every 30 s */
	GW_WORKER_ABSENT, /* the worker has no process; occurs only in the service */
	GW_WORKER_STATES  /* number of states */
};

/* Why the worker must not run. A set of reasons has the bit 1 << GW_REASON_x for each reason.
 * The worker may run when the set is empty. Reasons without a comment occur only in the
 * service. */
enum gw_worker_reason {
	GW_REASON_CONTENTION, /* another process needs the GPU */
	GW_REASON_MANUAL,     /* gw_guard_request() requested the eviction */
	GW_REASON_THERMAL,    /* the GPU is too hot; only with GW_GUARD_HEALTH */
	/* the GPU is lost or, with GW_GUARD_HEALTH only, has a fault (quarantine) */
	GW_REASON_HEALTH,
	GW_REASON_SCHEDULE,
	GW_REASON_BATTERY,
	GW_REASON_BLIND, /* the GPU cannot be read; only with GW_GUARD_LEAVE_BLIND */
	GW_REASON_BUDGET,
	GW_REASON_RESERVED,
	GW_REASON_IDLE,
	GW_WORKER_REASONS
};

/* Return the word that JSON uses for the state or the reason, such as "active" or "contention".
 * Return "?" for an unknown number. */
GW_API const char *gw_worker_state_name(unsigned state);
GW_API const char *gw_worker_reason_name(unsigned reason);

/* One decision. The struct and its strings are valid until the callback returns. */
struct gw_guard_decision {
	uint64_t mono_ns;
	enum gw_worker_state from, to;
	unsigned reasons; /* set of enum gw_worker_reason, after the decision */
	int dry;          /* 1: the decision is reported but not carried out */
	const char *rule; /* the rule that led to the decision, such as "contend-now chrome" */
	/* what was observed, such as "pid 4711 game 5120 MiB on GPU-..." */
	const char *evidence;
	/* The whole decision in one line. "level 1" in it means that the worker must not begin
	 * new work (gw_guard_allowed() is 0); "level 2" means that evict() is called. */
	const char *text;
};

struct gw_guard_options {
	size_t size;      /* sizeof(struct gw_guard_options) */
	const char *name; /* name of the worker in decisions; NULL: "worker" */
	/* The guard watches only these GPUs: selectors of gw_device_matches(), ended by NULL.
	 * NULL: every GPU on which the worker holds memory. An empty list is refused. */
	const char *const *gpus;
	enum gw_guard_mode mode;
	unsigned flags; /* set of enum gw_guard_flag */
	/* Must free all GPU memory of the worker, about `bytes`. NULL: the program polls
	 * gw_guard_allowed() and frees its memory within five seconds. */
	int (*evict)(void *arg, uint64_t bytes, uint64_t deadline_ns);
	/* Must allocate the memory again. NULL: the program allocates it when
	 * gw_guard_allowed() is 1. */
	int (*resume)(void *arg, uint64_t deadline_ns);
	/* Receives each decision; may be NULL. Runs on the guard's thread, which observes
	 * nothing until the callback returns: return quickly. */
	void (*decided)(void *arg, const struct gw_guard_decision *decision);
	void *arg; /* passed to all three callbacks; must live until gw_guard_stop() */
	/* A process that is idle and holds less than this does not contend. 0: 512 MiB. */
	uint64_t min_vram_bytes;
	/* Memory that stays free next to the worker. 0: the larger of 2 GiB and 10 %. */
	uint64_t headroom_bytes;
	/* The worker must leave when another process has needed the GPU for debounce_ns (0:
	 * 300 ms). A process in contend_now counts at once; a process that keeps the GPU busy
	 * counts after 1 s. */
	uint64_t debounce_ns;
	/* resume() is called when no process has needed the GPU for quiet_ns (0: 30 s). From
	 * the third eviction in 15 min on, each eviction doubles this time, up to 10 min; a
	 * quiet_ns above 10 min is not doubled. */
	uint64_t quiet_ns;
	/* After a resume, the worker stays at least resident_ns (0: 60 s), unless another
	 * process needs memory that is not free. */
	uint64_t resident_ns;
	/* Time between observations, at least 1 ms. 0: 100 ms, or 1 s while the worker holds no
	 * memory. */
	uint64_t poll_ns;
	/* Lists of process names, each ended by NULL; a list may be NULL. A name is the name
	 * that the kernel stores; it has at most 15 bytes (a longer one is refused) and may
	 * contain the wildcards * and ?. The first list with a matching name decides. */
	const char *const *ignore;      /* these processes never contend */
	const char *const *contend_now; /* these contend at once, even with little memory */
	const char *const *contend;     /* these contend, even if GW_GUARD_NAMED is set */
};

struct gw_guard;

/* Starts a guard. One thread observes and decides; a second thread calls evict() and resume(),
 * one at a time.
 *
 * A callback must return before deadline_ns (monotonic; 10 s for evict(), 120 s for resume()).
 * It returns 0, or a negative number if it failed.
 * - evict() failed: the guard calls it twice more, then every 30 s. If every call in an
 *   eviction failed, the guard does not call resume() when the eviction ends.
 * - evict() returned -GW_E_STATE (not possible now): the guard calls it again for up to 30 s.
 *   These calls do not count as failed.
 * - evict() returned 0, but the memory was not freed: the guard still calls resume() when no
 *   process needs the GPU.
 * - resume() failed: the guard calls it again, each time after a longer pause.
 *
 * options may be NULL: then no callback is called. The strings of options are copied. ctx must
 * outlive the guard and should have a deadline_ns: without one, a driver that hangs also hangs
 * the guard. On a machine without a driver or a GPU the guard allows everything and continues
 * to search for a GPU.
 *
 * Returns 0, and the caller owns *ret_guard until gw_guard_stop(). Otherwise returns -GW_E_ARG,
 * -GW_E_SIZE (more than 16 GPUs or 64 names), -GW_E_NOMEM (no memory or no thread) or
 * -GW_E_IO. */
GW_API int gw_guard_start(struct gw_ctx *ctx, const struct gw_guard_options *options,
			  struct gw_guard **ret_guard);

/* Ends the guard without calling a callback; a worker that was evicted may use the GPU again.
 * Waits at most timeout_ns for a callback or driver call that is running. NULL is allowed. No
 * other thread may use the guard during this call.
 * Returns 0; -GW_E_STATE if the callback or driver call has not returned; or -GW_E_ARG if
 * called from a callback (nothing is done then). After -GW_E_STATE that callback or driver call
 * still uses guard, arg and ctx: do not use or free them any more. */
GW_API int gw_guard_stop(struct gw_guard *guard, uint64_t timeout_ns);

/* Returns 1 if the worker may use the GPU now, else 0. Returns 1 if guard is NULL. The call is
 * one atomic read, so the worker's loop can make it often. The value is 0 from the moment when
 * the worker must leave until resume() has returned 0. It is 1 before the first observation and
 * while nothing can be observed. */
GW_API int gw_guard_allowed(const struct gw_guard *guard);

/* Waits until gw_guard_allowed() is 1, at most timeout_ns (UINT64_MAX: without a limit).
 * Returns 0, or -GW_E_TIMEOUT. If guard is NULL, returns 0 at once. */
GW_API int gw_guard_wait(struct gw_guard *guard, uint64_t timeout_ns);

enum gw_guard_request {
	GW_REQUEST_EVICT,        /* evict for ttl_ns; if ttl_ns is 0, until GW_REQUEST_RESUME */
	GW_REQUEST_RESUME,       /* resume when every check passes */
	GW_REQUEST_HOLD_EVICTED, /* stay evicted for ttl_ns */
	GW_REQUEST_HOLD_ACTIVE, /* stay active for ttl_ns, unless a GPU is hot or not healthy */
	GW_REQUEST_RELEASE,     /* end the hold, or an earlier GW_REQUEST_EVICT */
	GW_REQUEST_RESUME_NOW,  /* resume without waiting for quiet_ns */
};

/* Requests an action for the worker, like the commands of gpuward guard. For a hold, ttl_ns is
 * the duration and must not be 0; with UINT64_MAX the hold has no end. A callback may call this
 * function. Returns 0, -GW_E_ARG, or -GW_E_STATE if the action is not possible now;
 * gw_ctx_error() says why. */
GW_API int gw_guard_request(struct gw_guard *guard, enum gw_guard_request what,
			    uint64_t ttl_ns);

enum gw_worker_hold { GW_HOLD_NONE, GW_HOLD_EVICTED, GW_HOLD_ACTIVE };
enum gw_worker_call { GW_CALL_NONE, GW_CALL_EVICT, GW_CALL_RESUME };

/* The state of the worker; times are monotonic. */
struct gw_guard_status {
	size_t size; /* sizeof(struct gw_guard_status), set by the caller */
	enum gw_worker_state state;
	unsigned reasons; /* set of enum gw_worker_reason */
	enum gw_worker_hold hold;
	enum gw_worker_call call;  /* the callback that is running; GW_CALL_NONE: none */
	uint64_t call_deadline_ns; /* deadline of this callback */
	int overdue;               /* 1: this callback has not returned by its deadline */
	int allowed;               /* the result of gw_guard_allowed() */
	int dry;   /* 1: decisions are only reported, because of the mode or a simulated GPU */
	int blind; /* 1: a GPU of the worker cannot be read, or no GPU can be read */
	int hung;  /* 1: a driver call has not returned */
	int quarantine;    /* 1: one of the worker's GPUs is lost or has a fault */
	uint64_t since_ns; /* when this state began */
	uint64_t next_ns;  /* earliest time at which the state can change without an event */
	uint64_t hold_until_ns;  /* end of the hold; 0: no hold, or a hold without end */
	uint64_t resident_bytes; /* memory that the worker holds on its GPUs */
	/* memory that the worker needs: what it holds, or held when its eviction began */
	uint64_t need_bytes;
	uint64_t residue_bytes; /* memory that the worker still holds while it is evicted */
	double backoff_ratio;   /* factor by which the quiet time is multiplied */
	uint64_t observations;  /* number of observations since the start */
	unsigned evictions, resumes; /* completed since the start */
	unsigned would_evict;        /* evictions since the start that were only reported */
	/* Why the worker is in this state: the last decision (such as "is back: 8192 MiB"), or
	 * a sentence if no GPU can be observed or a callback is overdue. The text is for people
	 * and may change. "": there was no decision. */
	char why[320];
};

/* Writes the state of the worker. Set ret_status->size before the call. Returns 0, or -GW_E_ARG
 * (wrong size). */
GW_API int gw_guard_status(struct gw_guard *guard, struct gw_guard_status *ret_status);

#ifdef __cplusplus
}
#endif

#endif
