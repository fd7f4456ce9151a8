/* context: defines struct gw_ctx: the backends, their devices, and the call threads, which keep
 * a hanging driver from blocking the caller.
 *
 * One mutex guards everything except the devices; each device is used by one thread at a time
 * (slot.in_use), so the sampler of one GPU never waits for another GPU. If the context has a
 * deadline, every vendor call runs on a call thread: there is one per device, and one that the
 * backends share to open and close. While a call thread is busy, no other thread uses its
 * device; older readings stay available. */
#ifndef GW_DEVICE_CONTEXT_H
#define GW_DEVICE_CONTEXT_H

#include "backend.h"
#include "driver_call.h"
#include "host.h"
#include "proc.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#define CONTEXT_ERROR_SIZE 320

/* The state of the last reading of a device. */
enum slot_reading {
	SLOT_READ, /* The reading has ended. */
	/* The reading takes longer than the deadline, but each of its driver calls returns in
	 * time. `last` is an earlier reading; the times in `last` say how old it is. */
	SLOT_LATE,
	SLOT_STALLED, /* A driver call of the reading has not returned. */
};

/* One device of the context. */
struct slot {
	struct device *d;
	struct call_thread *thread; /* NULL: calls run on the caller's thread */
	enum slot_reading reading;
	/* The thread that uses d holds this semaphore. A mutex cannot be used, because after a
	 * late call another thread may release it. */
	sem_t in_use;
	bool opening;     /* The backend is opening or closing, and the context holds in_use. */
	int cuda_ordinal; /* CUDA's number of the GPU, or GW_CUDA_NOT_VISIBLE */
	struct report last; /* copy of `done`, made when the call thread was last idle */

	/* While the call thread is busy, only the call thread may use the members below. */
	void (*fn)(void *slot);    /* the function that the call thread calls */
	unsigned tiers;            /* the tiers that fn must read */
	uint64_t now_ns;           /* when the tiers were requested */
	struct report done;        /* copy of d->r, made after the last call of fn */
	struct usage_list usage;   /* the processes on the device */
	struct proc *proc;         /* one element per row of `usage` */
	unsigned proc_cap;         /* number of elements for which `proc` has memory */
	enum gw_absence usage_why; /* GW_HAVE, or why `usage` is not known */
	int usage_error;           /* error that backend_ops.processes returned, or 0 */
	/* The members below are for process_list.c. */
	struct process_use *process_use; /* utilisation per process */
	int uses; /* number of rows in process_use for this list, or a negative gw_error */
	int used; /* value of `uses` after the last query of the driver for utilisation */
	uint64_t used_ns;         /* time of that query */
	double listed_used_bytes; /* memory in use when `usage` was read */
	uint64_t listed_ns;       /* when `usage` was read; 0: it must be read again */
	uint64_t changed_ns; /* when the memory in use or the number of processes changed */
	/* Job of manage.c whose driver call has not returned. NULL: there is none. */
	struct manage_job *job;
};

/* A backend, and when the context tries to open it. */
struct opener {
	struct backend b;
	/* The call thread that opens or closes the backend. NULL: no such call is running. */
	struct call_thread *thread;
	bool hung;           /* The call has not returned by the deadline. */
	bool close_only;     /* The call thread only closes the backend and does not open it. */
	int error;           /* result of the last attempt to open the backend */
	uint64_t retry_ns;   /* when to try again */
	uint64_t backoff_ns; /* present delay between two attempts */
	/* The right to use the driver's events. event_watch.c holds it while it has an event
	 * set, which keeps the backend open. On request, event_watch.c releases it. */
	sem_t events;
	/* The context asks event_watch.c to close its event set and to release `events`. */
	atomic_bool events_yield;
	/* event_watch.c did not release `events` in time. The context does not wait for
	 * event_watch.c again until the driver call of event_watch.c has returned. */
	atomic_bool events_late;
	/* The context holds `events`, because it opens or closes the backend. */
	bool events_taken;
};

/* The text for gw_ctx_error(). It has its own lock, because gw_ctx.lock is held during driver
 * calls. */
struct context_error {
	pthread_mutex_t lock;
	char text[CONTEXT_ERROR_SIZE];
};

struct gw_ctx {
	pthread_mutex_t lock;
	pid_t owner; /* process that opened the context; a forked child must not close ctx */
	const struct clock *clock;
	struct root root;
	struct backend_env env;
	char *nvml_library;
	uint64_t deadline_ns; /* gw_options.deadline_ns. 0: there are no call threads. */
	bool first_only;      /* backend "auto": use only the first backend with devices */
	bool released;        /* gw_ctx_release() was called and gw_ctx_reopen() was not */
	struct call_thread
		*spare; /* call thread for opening and closing that no opener uses now */
	struct opener *opener[BACKENDS];
	unsigned openers;
	struct slot **slot;
	unsigned slots, slots_cap; /* number of slots, and for how many there is memory */
	unsigned opens;            /* how often a backend was opened */
	unsigned generation;       /* increases when devices or causes may have changed */
	bool fresh;                /* The names of new devices are not read yet. */
	unsigned cuda_numbered;    /* generation for which the CUDA ordinals were computed */
	struct host host;
	struct host_report host_report; /* values of the machine, read at host_ns */
	uint64_t host_ns;
	struct call_cost_table cost; /* cost of NVML calls; atomic, not guarded by the lock */
	/* number of failed attempts to initialise NVML; atomic, not guarded by the lock */
	atomic_ulong init_failures;
	struct context_error error;
};

/* Records the message for gw_ctx_error() and returns error. If fmt is NULL, the message is the
 * phrase of the error code. If ctx is NULL, the message is for a failed gw_open() on this
 * thread. */
int context_fail(struct gw_ctx *ctx, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Records that a parameter of the calling public function is NULL, and returns -GW_E_ARG. */
#define context_fail_null(ctx, parameter) \
	context_fail(ctx, -GW_E_ARG, "%s(): %s must not be NULL", __func__, parameter)

/* Records that the size of a public struct is wrong, or that the struct has members that this
 * library does not know and that are not 0. `known` is the size in this library. Returns
 * -GW_E_ARG. */
int context_fail_size(struct gw_ctx *ctx, const char *type, size_t given, size_t known);

/* Works like gw_open(), with the caller's clock. The clock must outlive the context. */
int context_open(const struct gw_options *options, const struct clock *clock,
		 struct gw_ctx **ret_ctx);

/* Opens the backends that are due. Needs the lock. Returns 0 or -GW_E_NOMEM. */
int context_refresh(struct gw_ctx *ctx);

/* If `gone` is false, a driver was loaded: the next refresh tries every backend. If `gone` is
 * true, a driver is about to be unloaded: the open backends are closed, and tried again some
 * seconds later. */
void context_driver_changed(struct gw_ctx *ctx, bool gone);

/* Take and give back the exclusive use of a slot's device. Call without the lock. */
void slot_take(struct slot *s);
void slot_give(struct slot *s);

/* Works like slot_take(), but never waits, because the thread that uses the device may hang in
 * a call. Returns false if the device is in use. */
bool slot_try(struct slot *s);

/* Keeps the backend of o from being opened or closed until opener_release(). The caller must
 * check opener_must_yield() at intervals of opener_poll_ns() and call opener_release() soon
 * after that function returns true. Returns false if the backend is opening or closing, or if
 * another thread holds it. Call without the lock and before taking a slot. */
bool opener_hold(struct opener *o);
bool opener_must_yield(struct opener *o);
void opener_release(struct opener *o);
uint64_t opener_poll_ns(const struct gw_ctx *ctx);

/* Runs fn(slot) for every slot while holding its in_use, on the call threads if there are any.
 * Waits at most until the deadline. Sets `reading` of each slot. Sets `tiers` and `now_ns` of a
 * slot if its call thread was idle, and `last` if the call thread is idle again afterwards.
 * Needs the lock. */
void context_each(struct gw_ctx *ctx, void (*fn)(void *slot), unsigned tiers, uint64_t now_ns);

/* Works like context_each(), for one slot. Returns 0, -GW_E_STATE (an earlier call has not
 * returned; nothing was started) or -GW_E_TIMEOUT (fn has not finished). */
int context_one(struct gw_ctx *ctx, struct slot *s, void (*fn)(void *slot));

/* Returns the last known report of the slot's device. Needs the lock. */
static inline const struct report *slot_report(const struct slot *s)
{
	return s->thread ? &s->last : &s->done;
}

/* If the devices may have changed, computes their CUDA ordinals again from CUDA_VISIBLE_DEVICES
 * and CUDA_DEVICE_ORDER. Needs the lock. */
void context_number_cuda(struct gw_ctx *ctx);

/* Returns why there are no devices, and writes the cause as one sentence of at most size
 * bytes. */
enum gw_cause context_cause(const struct gw_ctx *ctx, char *out, size_t size);

/* Returns the context that a snapshot belongs to. */
struct gw_ctx *snapshot_context(const struct gw_snapshot *snap);

#endif
