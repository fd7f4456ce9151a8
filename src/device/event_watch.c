#include "event_watch.h"

#include "context.h"
#include "nvml_abi.h"

#include "base/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES (512 * 1024)
#define JOIN_NS     (3 * NS_PER_S)
/* Pause before the next attempt to use a GPU that another thread uses. */
#define SLOT_NS    (2 * NS_PER_MS)
#define SLOT_TRIES 50                /* maximum number of these attempts */
#define REFRESH_NS NS_PER_S          /* interval of the search for the driver and new GPUs */
#define BUSY_NS    (100 * NS_PER_MS) /* pause while the context opens or closes the backend */
#define NONE_NS    (5 * NS_PER_S)    /* pause if no GPU can be watched */
/* First pause after a wait that returned early. The pause doubles with each such wait. */
#define PAUSE_NS (10 * NS_PER_MS)
#define BURST    64 /* After this many events without a pause, the thread pauses. */

/* A GPU of the backend. */
struct watched_gpu {
	struct slot *slot;
	bool on; /* The GPU is in the event set. */
	char uuid[96];
};

struct event_watch {
	struct gw_ctx *ctx;
	struct opener *opener;
	pid_t owner;

	struct mailbox box; /* The lock of the mailbox is held while fn is called. */
	void (*fn)(void *arg, const struct driver_event *e);
	void *arg;
	unsigned watched; /* number of GPUs in the event set */
	const char *why;  /* see event_watch_status() */

	/* Only the thread uses the members below. */
	struct watched_gpu *gpu;
	unsigned gpus;
	void *set;             /* the driver's event set; NULL: none */
	uint64_t pause_ns;     /* the last pause after a wait that returned early */
	uint64_t refreshed_ns; /* when the GPUs were last added to the set */
	unsigned burst;        /* number of events without a timeout between them */
};

/* Sleeps in real time, even if the context has another clock. */
static void pause_for(struct event_watch *w, uint64_t ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + ns;

	mailbox_lock(&w->box);
	while (!w->box.stop && mailbox_wait(&w->box, until_ns))
		;
	mailbox_unlock(&w->box);
}

static void set_status(struct event_watch *w, unsigned watched, const char *why)
{
	mailbox_lock(&w->box);
	w->watched = watched;
	w->why = why;
	mailbox_unlock(&w->box);
}

static bool is_known(const struct event_watch *w, const struct slot *s)
{
	for (unsigned i = 0; i < w->gpus; i++)
		if (w->gpu[i].slot == s)
			return true;
	return false;
}

/* Searches for a driver that went away and for new slots. The caller must hold neither a slot
 * nor the backend, because the context may wait for them while it holds its own lock. */
static void refresh_slots(struct event_watch *w)
{
	struct gw_ctx *ctx = w->ctx;

	pthread_mutex_lock(&ctx->lock);
	(void)context_refresh(ctx); /* If there is no memory, the next round tries again. */
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

/* Takes exclusive use of a GPU. If the GPU is already in the set, tries once; otherwise tries
 * SLOT_TRIES times. */
static bool take_slot(struct event_watch *w, struct watched_gpu *g)
{
	for (unsigned i = g->on ? SLOT_TRIES - 1 : 0; i < SLOT_TRIES; i++) {
		if (slot_try(g->slot))
			return true;
		pause_for(w, SLOT_NS);
	}
	return false;
}

/* Adds a GPU to the set. Returns 1 if the GPU is in the set, 0 if it cannot be added now,
 * -GW_E_STATE if the set must be opened again. */
static int add_gpu(struct event_watch *w, struct watched_gpu *g)
{
	struct device *d = g->slot->d;
	int r;

	if (!take_slot(w, g))
		return g->on; /* The GPU is in use, perhaps for a long time: change nothing. */
	r = d->backend->ops->events_add(d, w->set);
	if (d->r.text_why[GW_T_UUID] == GW_HAVE)
		snprintf(g->uuid, sizeof(g->uuid), "%s", d->r.text[GW_T_UUID]);
	slot_give(g->slot);
	g->on = r == 1;
	return r;
}

/* Adds all GPUs to the set. Returns false if a GPU was lost and is back: its events do not
 * arrive until the set is opened again. */
static bool add_all(struct event_watch *w)
{
	unsigned on = 0;

	for (unsigned i = 0; i < w->gpus; i++) {
		int r;

		if (opener_must_yield(w->opener))
			return true; /* The context wants to open or close the backend. */
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
	mailbox_lock(&w->box);
	if (!w->box.stop)
		w->fn(w->arg, &out);
	mailbox_unlock(&w->box);
}

/* Pauses the thread if needed. Some drivers report a timeout at once instead of after asked_ns;
 * the pause then gets longer each time. */
static void event_watch_pace(struct event_watch *w, bool has_event, uint64_t waited_ns,
			     uint64_t asked_ns)
{
	if (has_event) {
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

/* Waits once for an event. Returns false if the set is no longer usable. */
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
	event_watch_pace(w, r == 1, now - began, ns);
	return now - w->refreshed_ns < REFRESH_NS || add_all(w);
}

static void close_set(struct event_watch *w)
{
	w->opener->b.ops->events_close(&w->opener->b, w->set);
	w->set = NULL;
	for (unsigned i = 0; i < w->gpus; i++)
		w->gpu[i].on = false;
}

/* Opens an event set and waits for events until the set is unusable, the watch stops, or the
 * context wants to open or close the backend. Returns how long to pause afterwards. */
static uint64_t watch_set(struct event_watch *w)
{
	struct backend *b = &w->opener->b;
	int err = b->ops->events_open(b, &w->set);
	bool good;

	if (err) {
		set_status(w, 0,
			   err == -GW_E_NOSUPPORT
				   ? "the NVIDIA library has no event calls"
				   : "the driver refused to create an event set");
		return err == -GW_E_NOSUPPORT ? NONE_NS : REFRESH_NS;
	}
	good = add_all(w);
	while (good && w->watched && !mailbox_stopping(&w->box) &&
	       !opener_must_yield(w->opener))
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
	if (mailbox_stopping(&w->box))
		return 0; /* The search may take long, so the context may be closed by now. */
	if (!opener_hold(w->opener))
		return BUSY_NS;
	if (w->opener->b.open && !atomic_load(&w->opener->b.reopen))
		idle_ns = watch_set(w);
	else /* A driver without a GPU has no events. This is not a fault. */
		set_status(w, 0,
			   w->opener->b.cause == GW_CAUSE_NO_GPU ? ""
								 : "the driver is not open");
	opener_release(w->opener); /* From here on, the context may be closed. */
	return idle_ns;
}

static void event_watch_dispose(void *arg)
{
	struct event_watch *w = arg;

	mailbox_done(&w->box);
	free(w->gpu);
	free(w);
}

static void event_watch_main(void *arg)
{
	struct event_watch *w = arg;

	while (!mailbox_stopping(&w->box))
		pause_for(w, watch_round(w));
}

/* Returns the first backend that may report events, or NULL. Whether the library has the event
 * calls is known only while the backend is open. */
static struct opener *choose_opener(struct gw_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->openers; i++) {
		struct opener *o = ctx->opener[i];

		if (!o->b.ops->events_open)
			continue;
		if (!o->hung && o->b.open && !o->b.ops->has_events(&o->b))
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
	w->why = "";
	(void)mailbox_init(&w->box, 0);
	if (mailbox_start(&w->box, STACK_BYTES, event_watch_main, event_watch_dispose, w) !=
	    0) {
		event_watch_dispose(w);
		return -GW_E_NOMEM;
	}
	*ret_watch = w;
	return 0;
}

int event_watch_free(struct event_watch *w)
{
	if (!w || w->owner != getpid()) /* A forked child does not have the thread. */
		return 0;
	if (mailbox_stop(&w->box, JOIN_NS) != 0)
		return -GW_E_STATE;
	event_watch_dispose(w);
	return 0;
}

unsigned event_watch_status(struct event_watch *w, const char **ret_why)
{
	unsigned n;

	mailbox_lock(&w->box);
	n = w->watched;
	*ret_why = w->why;
	mailbox_unlock(&w->box);
	return n;
}

int event_queue_init(struct event_queue *q)
{
	q->events = q->lost = q->lost_xids = 0;
	return mailbox_init(&q->box, MAILBOX_NEWS_FD);
}

void event_queue_done(struct event_queue *q)
{
	mailbox_done(&q->box);
}

void event_queue_add(struct event_queue *q, const struct driver_event *e)
{
	mailbox_lock(&q->box);
	if (q->events < EVENT_QUEUE) {
		q->event[q->events++] = *e;
	} else {
		q->lost++;
		q->lost_xids += (e->type & ABI_EVENT_XID) != 0;
	}
	mailbox_unlock(&q->box);
	mailbox_notify(&q->box);
}

void event_queue_take(struct event_queue *q, struct event_batch *ret)
{
	mailbox_lock(&q->box);
	memcpy(ret->event, q->event, q->events * sizeof(q->event[0]));
	ret->events = q->events;
	ret->lost = q->lost;
	ret->lost_xids = q->lost_xids;
	q->events = q->lost = q->lost_xids = 0;
	mailbox_unlock(&q->box);
}
