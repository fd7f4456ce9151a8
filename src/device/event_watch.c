#include "event_watch.h"

#include "context.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES (512 * 1024)
#define JOIN_NS     (3 * NS_PER_S)
#define SLOT_NS     (2 * NS_PER_MS)   /* wait for a GPU that is in use ... */
#define SLOT_TRIES  50                /* ... this many times */
#define REFRESH_NS  NS_PER_S          /* interval to search for the driver and new GPUs */
#define BUSY_NS     (100 * NS_PER_MS) /* the backend is in use */
#define NONE_NS     (5 * NS_PER_S)    /* no GPU can be watched */
#define PAUSE_NS    (10 * NS_PER_MS)  /* after an early return; doubles each time */
#define BURST       64                /* events without a wait before a pause */

struct watched_gpu { /* a GPU of the backend */
	struct slot *slot;
	bool on;
	char uuid[96];
};

struct event_watch {
	struct gw_ctx *ctx;
	struct opener *opener;
	pid_t owner;
	pthread_t thread;

	pthread_mutex_t lock; /* guards what follows; held while fn is called */
	pthread_cond_t wake, news;
	bool stop, gone, orphan;
	void (*fn)(void *arg, const struct driver_event *e);
	void *arg;
	unsigned watched;
	const char *why;

	/* Used only by the thread. */
	struct watched_gpu *gpu;
	unsigned gpus;
	void *set;
	uint64_t pause_ns, refreshed_ns;
	unsigned burst;
};

static bool stopping(struct event_watch *w)
{
	bool stop;

	pthread_mutex_lock(&w->lock);
	stop = w->stop;
	pthread_mutex_unlock(&w->lock);
	return stop;
}

/* Sleeps in real time, whatever clock the context has. */
static void pause_for(struct event_watch *w, uint64_t ns)
{
	uint64_t end = clock_mono_ns(clock_real()) + ns;
	struct timespec until = clock_timespec(end);

	pthread_mutex_lock(&w->lock);
	while (!w->stop &&
	       pthread_cond_clockwait(&w->wake, &w->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	pthread_mutex_unlock(&w->lock);
}

static void set_status(struct event_watch *w, unsigned watched, const char *why)
{
	pthread_mutex_lock(&w->lock);
	w->watched = watched;
	w->why = why;
	pthread_mutex_unlock(&w->lock);
}

static bool is_known(const struct event_watch *w, const struct slot *s)
{
	for (unsigned i = 0; i < w->gpus; i++)
		if (w->gpu[i].slot == s)
			return true;
	return false;
}

/* Searches for a driver that went away and for new slots. Hold nothing: the context may wait,
 * under its lock, for what we hold. */
static void refresh_slots(struct event_watch *w)
{
	struct gw_ctx *ctx = w->ctx;

	pthread_mutex_lock(&ctx->lock);
	(void)context_refresh(ctx); /* out of memory: again in a second */
	for (unsigned i = 0; i < ctx->slots; i++) {
		struct watched_gpu *more;

		if (ctx->slot[i]->d->backend != &w->opener->b || is_known(w, ctx->slot[i]))
			continue;
		more = realloc(w->gpu, (w->gpus + 1) * sizeof(*more));
		if (!more)
			break;
		w->gpu = more;
		w->gpu[w->gpus++] = (struct watched_gpu){ .slot = ctx->slot[i] };
	}
	pthread_mutex_unlock(&ctx->lock);
}

/* For a GPU that is already in the set one try is enough; for another it is worth waiting a
 * little. */
static bool take_slot(struct event_watch *w, struct watched_gpu *g)
{
	for (unsigned i = g->on ? SLOT_TRIES - 1 : 0; i < SLOT_TRIES; i++) {
		if (slot_try(g->slot))
			return true;
		pause_for(w, SLOT_NS);
	}
	return false;
}

/* 1: watched, 0: not now, -GW_E_STATE: the set must be opened again. */
static int add_gpu(struct event_watch *w, struct watched_gpu *g)
{
	struct device *d = g->slot->d;
	int r;

	if (!take_slot(w, g))
		return g->on; /* in use, perhaps for long: unchanged */
	r = d->backend->ops->events_add(d, w->set);
	if (d->r.text_why[GW_T_UUID] == GW_HAVE)
		snprintf(g->uuid, sizeof(g->uuid), "%s", d->r.text[GW_T_UUID]);
	slot_give(g->slot);
	g->on = r == 1;
	return r;
}

/* False: a GPU was lost and is back, which the set does not notice. */
static bool add_all(struct event_watch *w)
{
	unsigned on = 0;

	for (unsigned i = 0; i < w->gpus; i++) {
		int r;

		if (opener_must_yield(w->opener))
			return true; /* the backend is wanted */
		r = add_gpu(w, &w->gpu[i]);
		if (r < 0)
			return false;
		on += r == 1;
	}
	w->refreshed_ns = clock_mono_ns(w->ctx->clock);
	set_status(w, on, on ? "" : "no GPU of this driver reports events now");
	return true;
}

static void report_event(struct event_watch *w, const struct device_event *e)
{
	struct driver_event out = { .type = e->type,
				    .data = e->data,
				    .gpu_instance = e->gpu_instance,
				    .mono_ns = clock_mono_ns(w->ctx->clock),
				    .wall_ns = clock_wall_ns(w->ctx->clock) };

	for (unsigned i = 0; i < w->gpus; i++)
		if (w->gpu[i].slot->d == e->device)
			memcpy(out.uuid, w->gpu[i].uuid, sizeof(out.uuid));
	pthread_mutex_lock(&w->lock);
	if (!w->stop)
		w->fn(w->arg, &out);
	pthread_mutex_unlock(&w->lock);
}

/* The driver may report a timeout at once, again and again: wait longer each time. */
static void pace(struct event_watch *w, int watched_gpu, uint64_t waited_ns, uint64_t asked_ns)
{
	if (watched_gpu) {
		w->pause_ns = 0;
		if (++w->burst % BURST == 0)
			pause_for(w, PAUSE_NS);
		return;
	}
	w->burst = 0;
	if (waited_ns >= asked_ns / 2) {
		w->pause_ns = 0;
		return;
	}
	w->pause_ns = w->pause_ns ? 2 * w->pause_ns : PAUSE_NS;
	if (w->pause_ns > opener_poll_ns(w->ctx))
		w->pause_ns = opener_poll_ns(w->ctx);
	pause_for(w, w->pause_ns);
}

/* One wait. False: the set is no longer usable. */
static bool wait_once(struct event_watch *w)
{
	struct backend *b = &w->opener->b;
	uint64_t ns = opener_poll_ns(w->ctx), began = clock_mono_ns(w->ctx->clock), now;
	struct device_event e;
	int r;

	r = b->ops->events_wait(b, w->set, (unsigned)(ns / NS_PER_MS), &e);
	now = clock_mono_ns(w->ctx->clock);
	if (r == 1)
		report_event(w, &e);
	if (r < 0)
		return false;
	pace(w, r, now - began, ns);
	return now - w->refreshed_ns < REFRESH_NS || add_all(w);
}

static void close_set(struct event_watch *w)
{
	w->opener->b.ops->events_close(&w->opener->b, w->set);
	w->set = NULL;
	for (unsigned i = 0; i < w->gpus; i++)
		w->gpu[i].on = false;
}

/* Keeps a set as long as it is usable and nobody else wants the backend. Returns how long to
 * pause afterwards. */
static uint64_t watch_set(struct event_watch *w)
{
	struct backend *b = &w->opener->b;
	int err = b->ops->events_open(b, &w->set);
	bool good;

	if (err) {
		set_status(w, 0,
			   err == -GW_E_NOSUPPORT ? "the NVIDIA library has no event calls"
						  : "the driver refuses an event set now");
		return err == -GW_E_NOSUPPORT ? NONE_NS : REFRESH_NS;
	}
	good = add_all(w);
	while (good && w->watched && !stopping(w) && !opener_must_yield(w->opener))
		good = wait_once(w);
	close_set(w);
	if (!good)
		return REFRESH_NS;
	return w->watched ? PAUSE_NS : NONE_NS;
}

static uint64_t watch_round(struct event_watch *w)
{
	uint64_t idle_ns = REFRESH_NS;

	refresh_slots(w);
	if (stopping(w))
		return 0; /* refreshing may take long: the context may be closed by now */
	if (!opener_hold(w->opener))
		return BUSY_NS;
	if (w->opener->b.open && !atomic_load(&w->opener->b.reopen))
		idle_ns = watch_set(w);
	else
		set_status(w, 0, "the driver is not open");
	opener_release(w->opener); /* from here on the context may be closed */
	return idle_ns;
}

static void event_watch_dispose(struct event_watch *w)
{
	pthread_cond_destroy(&w->wake);
	pthread_cond_destroy(&w->news);
	pthread_mutex_destroy(&w->lock);
	free(w->gpu);
	free(w);
}

static void *event_watch_main(void *arg)
{
	struct event_watch *w = arg;
	bool orphan;

	while (!stopping(w))
		pause_for(w, watch_round(w));
	pthread_mutex_lock(&w->lock);
	w->gone = true;
	orphan = w->orphan;
	pthread_cond_broadcast(&w->news);
	pthread_mutex_unlock(&w->lock);
	if (orphan)
		event_watch_dispose(w);
	return NULL;
}

/* The first backend that can report events, or NULL. An open backend knows whether its library
 * can. */
static struct opener *choose_opener(struct gw_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->openers; i++) {
		struct opener *o = ctx->opener[i];

		if (!o->b.ops->events_open)
			continue;
		if (!o->stalled && o->b.open && !o->b.ops->has_events(&o->b))
			continue;
		return o;
	}
	return NULL;
}

int event_watch_new(struct gw_ctx *ctx, void (*fn)(void *arg, const struct driver_event *e),
		    void *arg, struct event_watch **ret_watch)
{
	struct opener *o;
	struct event_watch *w;

	if (!ctx || !fn || !ret_watch)
		return -GW_E_ARG;
	pthread_mutex_lock(&ctx->lock);
	o = choose_opener(ctx);
	pthread_mutex_unlock(&ctx->lock);
	if (!o)
		return -GW_E_NOSUPPORT;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -GW_E_NOMEM;
	w->ctx = ctx;
	w->opener = o;
	w->owner = getpid();
	w->fn = fn;
	w->arg = arg;
	w->why = "not started yet";
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	pthread_cond_init(&w->news, NULL);
	if (thread_start(&w->thread, STACK_BYTES, event_watch_main, w) != 0) {
		event_watch_dispose(w);
		return -GW_E_NOMEM;
	}
	*ret_watch = w;
	return 0;
}

int event_watch_free(struct event_watch *w)
{
	uint64_t end = clock_mono_ns(clock_real()) + JOIN_NS;
	struct timespec until = clock_timespec(end);
	pthread_t thread;
	bool gone;

	if (!w || w->owner != getpid()) /* a forked child does not have the thread */
		return 0;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->wake);
	while (!w->gone &&
	       pthread_cond_clockwait(&w->news, &w->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	gone = w->gone;
	w->orphan = !gone;
	thread = w->thread;
	if (!gone)
		pthread_detach(thread); /* before the unlock, after which w may be freed */
	pthread_mutex_unlock(&w->lock);
	if (!gone)
		return -GW_E_STATE;
	pthread_join(thread, NULL);
	event_watch_dispose(w);
	return 0;
}

unsigned event_watch_status(struct event_watch *w, char *why, size_t size)
{
	unsigned n;

	pthread_mutex_lock(&w->lock);
	n = w->watched;
	snprintf(why, size, "%s", w->why);
	pthread_mutex_unlock(&w->lock);
	return n;
}
