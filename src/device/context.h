/* context: what a struct gw_ctx is inside: the backends, their devices, and the lanes that keep
 * a hung driver from hanging the caller.
 *
 * One mutex guards all of it but the devices themselves, each of which is used by one thread at a
 * time (slot.use), so that a sampler of one GPU waits for nobody else's.  With a deadline every vendor call runs on a lane: one for each
 * device (read, list), and one that the backends share to open and close, unless it gets stuck
 * with one of them; what a busy lane holds is not touched by anyone else, and what was known
 * before stays known. */
#ifndef GW_DEVICE_CONTEXT_H
#define GW_DEVICE_CONTEXT_H

#include "backend.h"
#include "call_cost.h"
#include "host.h"
#include "call_thread.h"
#include "proc.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#define CONTEXT_ERROR_SIZE 320

struct slot {
	struct device *d;
	struct call_thread
		*lane; /* NULL: calls run on the caller's thread                     */
	bool stalled;  /* the last call has not returned                             */
	sem_t use;     /* held by whoever uses d; a semaphore, since a call that was late
			      is settled by another thread than asked for it             */
	bool opening;  /* its backend, being opened or closed, holds `use`           */
	void (*fn)(void *slot); /* what to do with it; the lane's while busy              */
	unsigned tiers;         /* what to read; the lane's while busy                        */
	uint64_t now_ns;        /* when it was asked for; likewise                            */
	int cuda_ordinal;
	struct report done; /* d->r as of the last time fn was done; the lane's while busy */
	struct report last; /* the same, as of the last time the lane was idle            */
	struct usage_list usage; /* who is on it; the lane's while busy                   */
	struct proc *who;        /* one for each of usage; likewise                       */
	unsigned who_cap;
	enum gw_absence usage_why;
	int usage_error;
	struct process_use *use_of; /* of gpu_usage.c, how busy; likewise */
	int uses;
	double listed_used; /* of gpu_usage.c, memory in use when usage was asked for; likewise */
	uint64_t listed_ns, restless_ns;
	struct manage_job *job; /* of manage.c, where a call of it has not returned; likewise */
};

struct opener { /* a backend and when to try it */
	struct backend b;
	struct call_thread *lane; /* while it is used, and for good when stuck */
	bool stalled;
	bool close_only; /* what the lane is to do  */
	int error;
	uint64_t retry_ns, backoff_ns;
	/* The driver's events (event_watch.c).  Who waits for them holds `events` for as long as it has
	 * the set, and so keeps the backend as it is; it leaves when it is told to. */
	sem_t events;
	atomic_bool events_leave; /* closes the set and gives `events` back soon              */
	atomic_bool events_late;  /* it did not in time: not waited for until it has returned */
	bool events_taken;        /* by us, who open or close                                 */
};

struct gw_ctx {
	pthread_mutex_t lock;
	pid_t owner;
	const struct clock *clock;
	struct root root;
	struct backend_env env;
	char *nvml_library;
	uint64_t deadline_ns; /* 0: no lanes */
	bool first_only;      /* "auto": the first backend with devices is enough */
	bool let_go;
	struct call_thread *spare; /* the lane that no opener uses now */
	struct opener *opener[BACKENDS_MAX];
	unsigned openers;
	struct slot **slot;
	unsigned slots, slots_cap;
	unsigned opens;
	unsigned generation; /* grows when the status may have changed */
	bool fresh;          /* devices were opened and their names not yet asked  */
	unsigned numbered;   /* generation for which CUDA's numbers were found out */
	struct host host;
	struct host_report host_report;
	uint64_t host_ns;
	struct call_cost_table cost; /* of NVML calls; atomics, not under the lock */
	/* For gw_ctx_error(), under a lock of its own: `lock` is held while a driver is called. */
	pthread_mutex_t error_lock;
	char error[CONTEXT_ERROR_SIZE];
};

/* Records the sentence for gw_ctx_error() and returns error; fmt NULL: the phrase of the code.  ctx
 * NULL: a failure of gw_open() on this thread. */
int context_fail(struct gw_ctx *ctx, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* gw_open with a clock of the caller's (borrowed; outlives the context). */
int context_open(const struct gw_options *options, const struct clock *clock,
		 struct gw_ctx **ret_ctx);

/* Opens what is due to be tried.  Under the lock.  0 or -GW_E_NOMEM. */
int context_refresh(struct gw_ctx *ctx);

/* A driver came (gone false), or one is being taken away: what was to be tried later is tried with the next refresh;
 * or what is open is closed, and opened again after some seconds, when whoever takes it away has it. */
void context_moved(struct gw_ctx *ctx, bool gone);

/* Takes and gives back the sole use of a slot's device, for a tap.  Not under the lock. */
void slot_take(struct slot *s);
void slot_give(struct slot *s);

/* The same for one that is perhaps in a call that does not return.  False: another has it. */
bool slot_try(struct slot *s);

/* Keeps the backend of o as it is until opener_release(), which whoever holds it calls soon when
 * opener_wanted(): it asks every opener_round_ns().  False: it is being opened or closed, or
 * another holds it.  Not under the lock; before a slot is taken, not after. */
bool opener_hold(struct opener *o);
bool opener_wanted(struct opener *o);
void opener_release(struct opener *o);
uint64_t opener_round_ns(const struct gw_ctx *ctx);

/* Runs fn(slot) for every slot, each held by its `use`, on lanes where there are, at most until the deadline; sets
 * `tiers` and `now_ns` where the lane is idle, `stalled`, and `last` where it is idle again.
 * Under the lock. */
void context_each(struct gw_ctx *ctx, void (*fn)(void *slot), unsigned tiers, uint64_t now_ns);

/* The same for one slot.  0, -GW_E_STATE (an earlier call has not returned: nothing was begun) or
 * -GW_E_TIMEOUT (fn is still under way, or still to come). */
int context_one(struct gw_ctx *ctx, struct slot *s, void (*fn)(void *slot));

/* What is known of a slot's device.  Under the lock. */
static inline const struct report *slot_report(const struct slot *s)
{
	return s->lane ? &s->last : &s->done;
}

/* Finds out CUDA's numbers, which follow from the devices and two variables, when the devices
 * may have changed.  Under the lock. */
void context_number(struct gw_ctx *ctx);

/* Why there is nothing, in one sentence of at most size bytes. */
enum gw_cause context_cause(const struct gw_ctx *ctx, char *out, size_t size);

/* The context a snapshot was made of. */
struct gw_ctx *snapshot_context(const struct gw_snapshot *snap);

#endif
