#include "context.h"

#include "drm.h"
#include "environment.h"
#include "cuda_visible.h"

#include "base/array.h"
#include "base/sized.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALL_FLAGS \
	(GW_OPEN_EXEC | GW_OPEN_WAKE | GW_OPEN_TRIM | GW_OPEN_NO_SHUTDOWN | GW_OPEN_NO_NVML)
#define GONE_RETRY_NS (5 * NS_PER_S)
/* Delay of the next attempt to open a suspended GPU. It is short, because an attempt only reads
 * sysfs. */
#define ASLEEP_RETRY_NS (5 * NS_PER_S)
#define EVENTS_ROUND_NS NS_PER_S
/* If the context has no deadline: how long to wait until event_watch.c releases the driver's
 * events, and how long gw_close() waits for the lock. */
#define EVENTS_GRACE_NS (3 * NS_PER_S)

/* Runs fn(arg) on the call thread, or on the caller's thread if there is no call thread.
 * Returns false if fn has not returned by the deadline. */
static bool run_with_deadline(const struct gw_ctx *ctx, struct call_thread *thread,
			      void (*fn)(void *), void *arg)
{
	if (!thread) {
		fn(arg);
		return true;
	}
	return call_thread_post(thread, fn, arg) &&
	       call_thread_wait(thread, clock_mono_ns(clock_real()) + ctx->deadline_ns);
}

static struct opener *opener_of(struct backend *b)
{
	return (struct opener *)((char *)b - offsetof(struct opener, b));
}

static const struct backend_ops *backend_by_name(const char *name)
{
	for (unsigned i = 0; backend_table[i]; i++)
		if (strcmp(backend_table[i]->name, name) == 0)
			return backend_table[i];
	return NULL;
}

static int add_opener(struct gw_ctx *ctx, const struct backend_ops *ops)
{
	struct opener *o = calloc(1, sizeof(*o));

	if (!o)
		return -GW_E_NOMEM;
	ctx->opener[ctx->openers++] = o;
	sem_init(&o->events, 0, 1);
	o->b.ops = ops;
	o->b.env = &ctx->env;
	backend_fail(&o->b, GW_CAUSE_NO_GPU, "not searched yet");
	return 0;
}

static int choose_backends(struct gw_ctx *ctx, const char *name)
{
	const struct backend_ops *ops;
	int err = 0;

	if (name && strcmp(name, "none") == 0)
		return 0;
	ctx->first_only = !name || strcmp(name, "auto") == 0;
	if (ctx->first_only || strcmp(name, "all") == 0) {
		for (unsigned i = 0; backend_table[i] && !err; i++)
			if (!(ctx->env.flags & GW_OPEN_NO_NVML) ||
			    backend_table[i]->vendor != GW_VENDOR_NVIDIA)
				err = add_opener(ctx, backend_table[i]);
		return err;
	}
	ops = backend_by_name(name);
	return ops ? add_opener(ctx, ops)
		   : context_fail(NULL, -GW_E_ARG,
				  "unknown backend \"%s\"; use "
#define GW_BACKEND(symbol, word, modules, help) word ", "
#include <gpuward/backend.def>
				  "auto, all or none",
				  name);
}

static _Thread_local char open_error[CONTEXT_ERROR_SIZE];

int context_fail(struct gw_ctx *ctx, int error, const char *fmt, ...)
{
	char text[CONTEXT_ERROR_SIZE];
	va_list ap;

	va_start(ap, fmt);
	if (fmt)
		vsnprintf(text, sizeof(text), fmt, ap);
	else
		snprintf(text, sizeof(text), "%s", gw_strerror(error));
	va_end(ap);
	if (!ctx) {
		memcpy(open_error, text, sizeof(text));
		return error;
	}
	pthread_mutex_lock(&ctx->error.lock);
	memcpy(ctx->error.text, text, sizeof(text));
	pthread_mutex_unlock(&ctx->error.lock);
	return error;
}

int context_fail_size(struct gw_ctx *ctx, const char *type, size_t given, size_t known)
{
	if (given > known && given <= SIZED_MAX && given % sizeof(size_t) == 0)
		return context_fail(ctx, -GW_E_ARG,
				    "struct %s has members that this library (%s) does not "
				    "know; set them to 0, or use a newer library",
				    type, GW_VERSION);
	return context_fail(ctx, -GW_E_ARG,
			    "the size of struct %s is %zu; set it to sizeof(struct %s), which "
			    "is %zu",
			    type, given, type, known);
}

const char *gw_ctx_error(struct gw_ctx *ctx)
{
	static _Thread_local char text[CONTEXT_ERROR_SIZE];

	if (!ctx)
		return open_error;
	pthread_mutex_lock(&ctx->error.lock);
	memcpy(text, ctx->error.text, sizeof(text));
	pthread_mutex_unlock(&ctx->error.lock);
	return text;
}

static bool opener_usable(const struct opener *o)
{
	return !o->hung && o->b.open && o->b.cause == GW_CAUSE_NONE;
}

/* True if backend i should be tried. nvidia-smi is for machines where the library cannot be
 * loaded. If the library loads and reports an error, nvidia-smi would report the same error
 * more slowly. */
static bool worth_trying(const struct gw_ctx *ctx, unsigned i)
{
	const struct opener *nvml = ctx->opener[0];

	if (ctx->opener[i]->b.ops != &backend_nvsmi || i == 0)
		return true;
	if (nvml->hung || opener_usable(nvml))
		return false;
	switch (nvml->b.cause) {
	case GW_CAUSE_NO_LIBRARY:
	case GW_CAUSE_BAD_LIBRARY:
	case GW_CAUSE_STUB_LIBRARY:
	case GW_CAUSE_NO_FUNCTION: return true;
	default: return false;
	}
}

/* Selects where the name of a running vendor call is stored: in the backend while the backend
 * is opening, otherwise in each device. */
static void name_calls_in(struct backend *b, bool opening)
{
	for (unsigned i = 0; i < b->count; i++)
		b->slot[i]->call = opening ? &b->call : &b->slot[i]->own_call;
}

/* Marks the readings of a closed backend as absent; they are read again after the next open. */
static void forget_devices(struct backend *b)
{
	for (unsigned i = 0; i < b->count; i++) {
		struct report *r = &b->slot[i]->r;

		report_state(r, GW_DEVICE_CLOSED, GW_CAUSE_LET_GO, NULL);
		report_absent(r, GW_TIERS_ALL, GW_ABSENT_LET_GO);
		memset(r->tier_ns, 0, sizeof(r->tier_ns));
	}
}

/* Runs on the call thread: closes the backend and, unless close_only is set, opens it again. */
static void open_or_close(void *arg)
{
	struct opener *o = arg;

	atomic_store(&o->b.reopen, false);
	o->b.ops->close(&o->b);
	o->b.open = false;
	if (o->close_only)
		forget_devices(&o->b);
	o->error = o->close_only ? 0 : o->b.ops->open(&o->b);
	o->b.opened += !o->close_only;
}

void slot_take(struct slot *s)
{
	while (sem_wait(&s->in_use) != 0)
		; /* A signal interrupted the wait. */
}

void slot_give(struct slot *s)
{
	sem_post(&s->in_use);
}

/* Takes the semaphore. Returns false if it is not free within ns nanoseconds. */
static bool take_within(sem_t *sem, uint64_t ns)
{
	const struct timespec until = clock_timespec(clock_mono_ns(clock_real()) + ns);

	/* ThreadSanitizer does not know sem_clockwait(). Therefore sem_clockwait() is only used
	 * to wait, and sem_trywait() takes the semaphore. */
	while (sem_trywait(sem) != 0) {
		if (sem_clockwait(sem, CLOCK_MONOTONIC, &until) == 0)
			sem_post(sem);
		else if (errno != EINTR)
			return false;
	}
	return true;
}

bool slot_try(struct slot *s)
{
	return sem_trywait(&s->in_use) == 0;
}

uint64_t opener_poll_ns(const struct gw_ctx *ctx)
{
	uint64_t half = ctx->deadline_ns / 2;

	return half && half < EVENTS_ROUND_NS ? half : EVENTS_ROUND_NS;
}

bool opener_hold(struct opener *o)
{
	if (atomic_load(&o->events_yield) || sem_trywait(&o->events) != 0)
		return false;
	if (!atomic_load(&o->events_yield))
		return true;
	sem_post(&o->events);
	return false;
}

bool opener_must_yield(struct opener *o)
{
	atomic_store(&o->events_late, false);
	return atomic_load(&o->events_yield);
}

void opener_release(struct opener *o)
{
	atomic_store(&o->events_late, false);
	sem_post(&o->events);
}

/* Asks event_watch.c to release the events of the backend, and takes them. If event_watch.c
 * hangs in a driver call, only the first call of this function waits for it. */
static bool take_events(struct gw_ctx *ctx, struct opener *o)
{
	uint64_t ns = ctx->deadline_ns ? ctx->deadline_ns : EVENTS_GRACE_NS;

	atomic_store(&o->events_yield, true);
	o->events_taken = take_within(&o->events, atomic_load(&o->events_late) ? 0 : ns);
	atomic_store(&o->events_late, !o->events_taken);
	if (!o->events_taken)
		atomic_store(&o->events_yield, false);
	return o->events_taken;
}

static void give_events(struct opener *o)
{
	if (!o->events_taken)
		return;
	o->events_taken = false;
	atomic_store(&o->events_yield, false);
	sem_post(&o->events);
}

static void give_devices(struct gw_ctx *ctx, struct backend *b)
{
	give_events(opener_of(b));
	for (unsigned i = 0; i < ctx->slots; i++)
		if (ctx->slot[i]->d->backend == b && ctx->slot[i]->opening) {
			ctx->slot[i]->opening = false;
			slot_give(ctx->slot[i]);
		}
}

/* Takes exclusive use of all devices of b and of its events, because b is about to open or
 * close. Returns false if a call that has not returned still uses a handle. */
static bool take_devices(struct gw_ctx *ctx, struct backend *b)
{
	if (!take_events(ctx, opener_of(b)))
		return false;
	for (unsigned i = 0; i < ctx->slots; i++) {
		struct slot *s = ctx->slot[i];

		if (s->d->backend != b)
			continue;
		if (s->thread && !call_thread_wait(s->thread, 0))
			s->opening = false;
		else if (!ctx->deadline_ns)
			slot_take(s), s->opening = true;
		else
			s->opening = take_within(&s->in_use, ctx->deadline_ns);
		if (!s->opening) {
			give_devices(ctx, b);
			return false;
		}
	}
	return true;
}

static int add_slot(struct gw_ctx *ctx, struct device *d)
{
	struct slot *s;

	for (unsigned i = 0; i < ctx->slots; i++)
		if (ctx->slot[i]->d == d)
			return 0;
	if (array_reserve(&ctx->slot, &ctx->slots_cap, ctx->slots + 1, sizeof(struct slot *)) !=
	    0)
		return -GW_E_NOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -GW_E_NOMEM;
	if (ctx->deadline_ns) {
		s->thread = call_thread_new();
		if (!s->thread) {
			free(s);
			return -GW_E_NOMEM;
		}
	}
	sem_init(&s->in_use, 0, 1);
	s->d = d;
	s->usage_why = GW_ABSENT_NOT_READ;
	ctx->slot[ctx->slots++] = s;
	return 0;
}

static void retry_later(struct opener *o, uint64_t now)
{
	o->backoff_ns = o->b.cause == GW_CAUSE_ASLEEP ? ASLEEP_RETRY_NS
						      : backend_backoff_ns(o->backoff_ns);
	o->retry_ns = now + o->backoff_ns;
}

static int borrow_thread(struct gw_ctx *ctx, struct opener *o)
{
	if (!ctx->deadline_ns)
		return 0;
	o->thread = ctx->spare ? ctx->spare : call_thread_new();
	ctx->spare = NULL;
	return o->thread ? 0 : -GW_E_NOMEM;
}

static void return_thread(struct gw_ctx *ctx, struct opener *o)
{
	if (!o->thread)
		return;
	if (ctx->spare)
		call_thread_free(o->thread);
	else
		ctx->spare = o->thread;
	o->thread = NULL;
}

/* Ends an open() or close() that has returned: makes slots for new devices, and plans the next
 * attempt if the backend is not usable. The call thread must be idle. */
static int finish_open(struct gw_ctx *ctx, struct opener *o)
{
	uint64_t now = clock_mono_ns(ctx->clock);
	int err = o->error;

	return_thread(ctx, o);
	o->hung = false;
	o->error = 0;
	ctx->generation++;
	name_calls_in(&o->b, false);
	for (unsigned i = 0; i < o->b.count && !err; i++)
		err = add_slot(ctx, o->b.slot[i]);
	if (err) /* Some devices got no slot. Try again later, when there may be memory. */
		atomic_store(&o->b.reopen, true);
	for (unsigned i = 0; i < ctx->slots; i++)
		if (ctx->slot[i]->d->backend == &o->b) {
			ctx->slot[i]->reading = SLOT_READ;
			ctx->slot[i]->last = ctx->slot[i]->done = ctx->slot[i]->d->r;
		}
	give_devices(ctx, &o->b);
	if (opener_usable(o)) {
		ctx->fresh = true;
		ctx->opens++;
		o->backoff_ns = 0;
		o->retry_ns = 0;
	} else {
		retry_later(o, now);
	}
	return err;
}

static int try_open(struct gw_ctx *ctx, struct opener *o, bool close_only)
{
	if (o->hung) { /* The last open() or close() may still be running. */
		int err = call_thread_wait(o->thread, 0) ? finish_open(ctx, o) : 0;

		/* The last open() or close() returned late. The caller may now want close()
		 * instead of open(), or the reverse. */
		if (err || o->hung || !(close_only ? o->b.open : o->close_only))
			return err;
	}
	if (!take_devices(ctx, &o->b))
		return 0;
	if (!close_only && !o->b.open && o->b.ops->present && !o->b.ops->present(&o->b))
		return finish_open(ctx, o);
	if (borrow_thread(ctx, o) != 0) {
		give_devices(ctx, &o->b);
		return -GW_E_NOMEM;
	}
	name_calls_in(&o->b, true);
	o->close_only = close_only;
	if (!run_with_deadline(ctx, o->thread, open_or_close, o)) {
		o->hung = true;
		ctx->generation++;
		return 0;
	}
	return finish_open(ctx, o);
}

void context_number_cuda(struct gw_ctx *ctx)
{
	struct cuda_visible_gpu gpu[64];
	const char *mig[64][DEVICE_MIG_MAX + 1];
	struct slot *of[64];
	size_t n = 0;

	if (ctx->cuda_numbered == ctx->generation)
		return;
	ctx->cuda_numbered = ctx->generation;
	for (unsigned i = 0; i < ctx->slots; i++) {
		struct slot *s = ctx->slot[i];
		const struct report *r = slot_report(s);

		s->cuda_ordinal = GW_CUDA_NOT_VISIBLE;
		if (r->vendor != GW_VENDOR_NVIDIA || n == 64)
			continue;
		for (unsigned k = 0; k < r->mig_count; k++)
			mig[n][k] = r->mig[k].uuid;
		mig[n][r->mig_count] = NULL;
		gpu[n] = (struct cuda_visible_gpu){
			.uuid = r->text_why[GW_T_UUID] == GW_HAVE ? r->text[GW_T_UUID] : NULL,
			.name = r->text[GW_T_NAME],
			.mig = mig[n],
		};
		of[n++] = s;
	}
	if (n > 0)
		cuda_visible_resolve(getenv("CUDA_VISIBLE_DEVICES"),
				     getenv("CUDA_DEVICE_ORDER"), gpu, n);
	for (size_t i = 0; i < n; i++)
		of[i]->cuda_ordinal = gpu[i].ordinal;
}

int context_refresh(struct gw_ctx *ctx)
{
	int err = 0;

	for (unsigned i = 0; i < ctx->openers && !err && !ctx->released; i++) {
		struct opener *o = ctx->opener[i];
		bool gone = atomic_load(&o->b.reopen);

		if (!opener_usable(o) || gone) {
			if (gone && opener_usable(o))
				o->retry_ns = 0;
			if (worth_trying(ctx, i) && clock_mono_ns(ctx->clock) >= o->retry_ns)
				err = try_open(ctx, o, false);
		}
		if (ctx->first_only && !o->hung &&
		    (opener_usable(o) || o->b.cause == GW_CAUSE_ASLEEP))
			break;
	}
	return err;
}

/* Sets the state of a slot whose reading has not ended. If the last vendor call of the reading
 * began less than half a deadline ago, the calls are slow but return (SLOT_LATE). Otherwise the
 * call hangs (SLOT_STALLED). */
static void slot_set_hung(const struct gw_ctx *ctx, struct slot *s)
{
	const uint64_t began_ns = atomic_load_explicit(&s->d->began_ns, memory_order_relaxed);
	const bool late = !opener_of(s->d->backend)->hung &&
			  clock_mono_ns(clock_real()) < began_ns + ctx->deadline_ns / 2;

	s->reading = late ? SLOT_LATE : SLOT_STALLED;
}

static void slot_set_ended(struct slot *s)
{
	s->reading = SLOT_READ;
	s->last = s->done;
}

/* True if the slot can be used now. If a reading ended late, its values become the last known
 * ones. */
static bool slot_is_idle(const struct gw_ctx *ctx, struct slot *s)
{
	/* While a backend hangs in open or close, its devices cannot be used. */
	if (s->thread && (opener_of(s->d->backend)->hung || !call_thread_wait(s->thread, 0))) {
		slot_set_hung(ctx, s);
		return false;
	}
	if (s->reading != SLOT_READ)
		slot_set_ended(s);
	return true;
}

static void run_slot(void *arg)
{
	struct slot *s = arg;

	slot_take(s);
	s->fn(s);
	/* Copy the report before slot_give(), because afterwards the sampler may use the
	 * device. */
	s->done = s->d->r;
	slot_give(s);
}

void context_each(struct gw_ctx *ctx, void (*fn)(void *slot), unsigned tiers, uint64_t now_ns)
{
	uint64_t until;

	for (unsigned i = 0; i < ctx->slots; i++) {
		struct slot *s = ctx->slot[i];

		if (!slot_is_idle(ctx, s))
			continue;
		s->tiers = tiers;
		s->now_ns = now_ns;
		s->fn = fn;
		if (s->thread)
			call_thread_post(s->thread, run_slot, s);
		else
			run_slot(s);
	}
	if (!ctx->deadline_ns)
		return;
	until = clock_mono_ns(clock_real()) + ctx->deadline_ns;
	for (unsigned i = 0; i < ctx->slots; i++) {
		struct slot *s = ctx->slot[i];

		if (s->reading != SLOT_READ)
			continue;
		/* Before the first reading there is nothing to show, so wait as long as each
		 * call of the reading returns in time. */
		while (!call_thread_wait(s->thread, until)) {
			slot_set_hung(ctx, s);
			if (s->reading == SLOT_STALLED || s->last.end_ns)
				break;
			s->reading = SLOT_READ;
			until = clock_mono_ns(clock_real()) + ctx->deadline_ns;
		}
		if (s->reading == SLOT_READ)
			slot_set_ended(s);
	}
}

int context_one(struct gw_ctx *ctx, struct slot *s, void (*fn)(void *slot))
{
	if (!slot_is_idle(ctx, s))
		return -GW_E_STATE;
	s->fn = fn;
	if (!run_with_deadline(ctx, s->thread, run_slot, s)) {
		slot_set_hung(ctx, s);
		return -GW_E_TIMEOUT;
	}
	slot_set_ended(s);
	return 0;
}

static enum gw_cause cause_text(char *out, size_t size, enum gw_cause cause, const char *detail)
{
	snprintf(out, size, "%s%s%s", gw_cause_info(cause)->sentence, *detail ? ": " : "",
		 detail);
	return cause;
}

enum gw_cause context_cause(const struct gw_ctx *ctx, char *out, size_t size)
{
	const struct opener *best = NULL;

	out[0] = '\0';
	if (ctx->released)
		return cause_text(out, size, GW_CAUSE_LET_GO, "");
	if (ctx->openers == 0)
		return cause_text(out, size, GW_CAUSE_NO_GPU,
				  "the backend \"none\" was requested");
	for (unsigned i = 0; i < ctx->openers; i++) {
		const struct opener *o = ctx->opener[i];
		const char *call = atomic_load(&o->b.call);

		if (o->hung)
			return cause_text(out, size, GW_CAUSE_STALLED,
					  call ? call : o->b.ops->name);
		if (opener_usable(o))
			return GW_CAUSE_NONE;
		if (!best && (gw_cause_info(o->b.cause)->severity == GW_SEVERITY_ERROR ||
			      o->b.cause == GW_CAUSE_ASLEEP))
			best = o;
	}
	/* Prefer the message of a backend with a loaded driver but no GPU: this message is the
	 * most precise. */
	for (unsigned i = 0; !best && i < ctx->openers; i++)
		if (ctx->opener[i]->b.cause == GW_CAUSE_NO_GPU &&
		    ctx->opener[i]->b.driver_version[0])
			best = ctx->opener[i];
	if (!best && (ctx->openers == 1 || drm_pci_list(&ctx->root, 0x10de, NULL, 0) > 0))
		best = ctx->opener[0];
	if (best) {
		snprintf(out, size, "%s", best->b.message);
		return best->b.cause;
	}
	return cause_text(out, size, GW_CAUSE_NO_GPU,
			  "no NVIDIA library, and no NVIDIA, AMD or Intel GPU in /sys/bus/pci");
}

static void free_ctx(struct gw_ctx *ctx)
{
	bool all_idle = true;

	for (unsigned i = 0; i < ctx->slots; i++)
		all_idle &= call_thread_free(ctx->slot[i]->thread);
	for (unsigned i = 0; i < ctx->openers; i++) {
		struct opener *o = ctx->opener[i];

		/* The call missed its deadline, but it has returned now. */
		if (o->hung && call_thread_wait(o->thread, 0)) {
			return_thread(ctx, o);
			o->hung = false;
		}
		if (!o->hung && !o->events_taken && !take_events(ctx, o))
			all_idle = false; /* event_watch.c hangs in a driver call. */
		if (all_idle && !o->hung && (o->b.priv || o->b.count)) {
			/* If there is no memory for a call thread, the backend is closed on
			 * this thread, however long that takes. */
			borrow_thread(ctx, o);
			o->close_only = true;
			o->hung = !run_with_deadline(ctx, o->thread, open_or_close, o);
		}
		if (o->hung)
			all_idle = call_thread_free(o->thread) && all_idle;
		else
			return_thread(ctx, o);
	}
	all_idle &= call_thread_free(ctx->spare);
	if (!all_idle)
		return; /* A call that is still running uses this memory. */
	for (unsigned i = 0; i < ctx->slots; i++) {
		usage_done(&ctx->slot[i]->usage);
		sem_destroy(&ctx->slot[i]->in_use);
		free(ctx->slot[i]->proc);
		free(ctx->slot[i]->process_use);
		free(ctx->slot[i]->job);
		free(ctx->slot[i]);
	}
	for (unsigned i = 0; i < ctx->openers; i++) {
		backend_done(&ctx->opener[i]->b);
		sem_destroy(&ctx->opener[i]->events);
		free(ctx->opener[i]);
	}
	free(ctx->slot);
	free(ctx->nvml_library);
	root_close(&ctx->root);
	pthread_mutex_destroy(&ctx->lock);
	pthread_mutex_destroy(&ctx->error.lock);
	free(ctx);
}

static int context_prepare(struct gw_ctx *ctx, const struct gw_options *o)
{
	int err = root_open(&ctx->root, o->root);

	if (err)
		return context_fail(NULL, err, "the root directory %s cannot be opened: %s",
				    o->root, gw_strerror(err));
	if (o->nvml_library) {
		ctx->nvml_library = strdup(o->nvml_library);
		if (!ctx->nvml_library)
			return -GW_E_NOMEM;
	}
	/* Limit the deadline to one hour, so that adding it to the current time cannot
	 * overflow. */
	ctx->deadline_ns = o->deadline_ns < 3600 * NS_PER_S ? o->deadline_ns : 3600 * NS_PER_S;
	ctx->env = (struct backend_env){ .clock = ctx->clock,
					 .root = &ctx->root,
					 .nvml_library = ctx->nvml_library,
					 .flags = o->flags,
					 .deadline_ns = ctx->deadline_ns,
					 .cost = &ctx->cost,
					 .init_failures = &ctx->init_failures };
	host_init(&ctx->host, &ctx->root);
	err = choose_backends(ctx, o->backend);
	return err ? err : context_refresh(ctx);
}

int context_open(const struct gw_options *options, const struct clock *clock,
		 struct gw_ctx **ret_ctx)
{
	struct gw_options known;
	struct gw_ctx *ctx;
	int err;

	if (!sized_read(&known, sizeof(known), SIZED_FIRST(struct gw_options, deadline_ns),
			options))
		return context_fail_size(NULL, "gw_options", options->size, sizeof(known));
	if (known.flags & ~(unsigned)ALL_FLAGS)
		return context_fail(NULL, -GW_E_ARG,
				    "unknown flags 0x%x in gw_options.flags; use values of "
				    "enum gw_open_flag",
				    known.flags & ~(unsigned)ALL_FLAGS);
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return context_fail(NULL, -GW_E_NOMEM, NULL);
	pthread_mutex_init(&ctx->lock, NULL);
	pthread_mutex_init(&ctx->error.lock, NULL);
	ctx->root.fd = -1;
	ctx->owner = getpid();
	ctx->clock = clock;
	err = context_prepare(ctx, &known);
	if (err) {
		free_ctx(ctx);
		return err == -GW_E_NOMEM ? context_fail(NULL, err, NULL) : err;
	}
	*ret_ctx = ctx;
	return 0;
}

int gw_open(const struct gw_options *options, struct gw_ctx **ret_ctx)
{
	if (!ret_ctx)
		return context_fail_null(NULL, "ret_ctx");
	return context_open(options, clock_real(), ret_ctx);
}

/* Waits until the lock is free; returns false if it stays held. A thread that event_watch.c
 * left behind may still hold the lock while it searches for the driver. */
static bool wait_until_unused(struct gw_ctx *ctx)
{
	uint64_t grace = ctx->deadline_ns ? 2 * ctx->deadline_ns : EVENTS_GRACE_NS;
	uint64_t until = clock_mono_ns(clock_real()) + grace;

	while (pthread_mutex_trylock(&ctx->lock) != 0) {
		if (clock_mono_ns(clock_real()) > until)
			return false;
		usleep(1000);
	}
	pthread_mutex_unlock(&ctx->lock);
	return true;
}

void gw_close(struct gw_ctx *ctx)
{
	/* A forked child has the context but not its threads, so the child must not free the
	 * context. */
	if (!ctx || ctx->owner != getpid() || !wait_until_unused(ctx))
		return;
	ctx->env.process_ends = ctx->env.flags & GW_OPEN_NO_SHUTDOWN;
	free_ctx(ctx);
}

int gw_ctx_release(struct gw_ctx *ctx)
{
	int err = 0;

	if (!ctx)
		return context_fail_null(NULL, "ctx");
	pthread_mutex_lock(&ctx->lock);
	for (unsigned i = 0; i < ctx->openers; i++) {
		struct opener *o = ctx->opener[i];

		if (o->hung || o->b.open)
			try_open(ctx, o, true);
		if (o->hung || o->b.open)
			err = context_fail(ctx, -GW_E_STATE,
					   "a call to the driver (%s) has not returned, so the "
					   "driver cannot be released now; try again later",
					   o->b.ops->name);
	}
	if (!err) {
		ctx->released = true;
		ctx->generation++;
	}
	pthread_mutex_unlock(&ctx->lock);
	return err;
}

static void retry_now(struct gw_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->openers; i++)
		ctx->opener[i]->retry_ns = ctx->opener[i]->backoff_ns = 0;
}

void context_driver_changed(struct gw_ctx *ctx, bool gone)
{
	pthread_mutex_lock(&ctx->lock);
	if (!gone)
		retry_now(ctx);
	for (unsigned i = 0; i < ctx->openers && gone; i++)
		if (ctx->opener[i]->b.open) {
			try_open(ctx, ctx->opener[i], true);
			ctx->opener[i]->retry_ns = clock_mono_ns(ctx->clock) + GONE_RETRY_NS;
		}
	pthread_mutex_unlock(&ctx->lock);
}

int gw_ctx_reopen(struct gw_ctx *ctx)
{
	int err;

	if (!ctx)
		return context_fail_null(NULL, "ctx");
	pthread_mutex_lock(&ctx->lock);
	ctx->released = false;
	retry_now(ctx);
	ctx->generation++;
	err = context_refresh(ctx);
	pthread_mutex_unlock(&ctx->lock);
	return err ? context_fail(ctx, err, NULL) : 0;
}

int gw_environment_new(struct gw_ctx *ctx, struct gw_environment **ret_env)
{
	int err;

	if (!ctx || !ret_env)
		return context_fail_null(ctx, ctx ? "ret_env" : "ctx");
	err = environment_collect(&ctx->root, ctx->clock, ret_env);
	return err ? context_fail(ctx, err, NULL) : 0;
}
