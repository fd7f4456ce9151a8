#include "meter.h"

#include "sampler.h"

#include "base/thread.h"
#include "device/context.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_NS  (100 * NS_PER_MS)
#define INTERVAL_MIN NS_PER_MS
#define ANCHOR_NS    (10 * NS_PER_S)
#define JOIN_NS      (3 * NS_PER_S) /* a thread in a call that hangs is left behind after this */

struct meter_device {
	struct gw_meter *meter;
	unsigned number;            /* in the meter                           */
	unsigned position;          /* in snapshots                           */
	bool stalled;               /* it hung when we came: it is not measured */
	struct sampler_options opt; /* for its beginning; with copies of what is borrowed */
	struct sensor known;
	char *cache_dir;
	struct sampler sampler;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of all that follows                */
	pthread_cond_t wake;  /* for the thread                     */
	pthread_cond_t news;  /* for those who wait for a window    */
	struct track track;
	bool edge;       /* a window began or ended            */
	uint64_t end_ns; /* of the last that ended, to be told; 0: none */
	bool brief;      /* it was the only one, and shorter than a sample */
	bool begun;      /* the sampler has looked at it, ... */
	int error;       /* ... with this result             */
	bool go;         /* it may begin to sample            */
	bool stop, gone;
	bool deaf; /* whoever listened is gone */
	uint64_t samples, ticks, missed;
};

struct chosen { /* a device that is to be measured */
	unsigned position;
	bool stalled;
};

struct gw_meter {
	struct gw_ctx *ctx;
	const struct clock *clock;
	bool manual, exclusive;
	void (*about)(void *arg, unsigned device, unsigned position,
		      const struct energy_setup *setup);
	meter_listener *listen;
	void (*result)(void *arg, unsigned device, unsigned id, const char *label,
		       const struct gw_energy *e);
	void *arg;
	unsigned count;
	struct meter_device **device;
	pthread_mutex_t lock; /* of what follows */
	struct gw_window *windows;
	unsigned ids;
};

struct gw_window {
	struct gw_meter *meter;
	struct gw_window *next, **link;
	unsigned id;
	char label[64];
	bool hurry, closed, waited;
	struct track_window *track; /* one a device */
	struct gw_energy *energy;   /* likewise     */
};

/* ---- the threads ---- */

/* Everything passes here, so that whoever listens can do it all again.  Under the lock. */
static void record(struct meter_device *d, const struct event *e, struct track_window *w)
{
	track_feed(&d->track, e, w);
	if (d->meter->listen && !d->deaf)
		d->meter->listen(d->meter->arg, d->number, e);
}

/* From the sampler, on its thread. */
static void take(void *arg, const struct event *e)
{
	struct meter_device *d = arg;

	pthread_mutex_lock(&d->lock);
	record(d, e, NULL);
	d->samples += e->type == EVENT_POWER;
	d->ticks += e->type == EVENT_TICK;
	d->missed += e->type == EVENT_TICK ? e->u.tick.missed : 0;
	pthread_cond_broadcast(&d->news);
	pthread_mutex_unlock(&d->lock);
}

/* Reads what edges need.  False: there was none. */
static bool edge(struct meter_device *d, bool *ret_active)
{
	uint64_t end_ns;
	bool edge, brief;

	pthread_mutex_lock(&d->lock);
	edge = d->edge;
	brief = d->brief;
	end_ns = d->end_ns;
	d->edge = d->brief = false;
	d->end_ns = 0;
	*ret_active = d->track.open != NULL;
	pthread_mutex_unlock(&d->lock);
	if (edge)
		sampler_edge(&d->sampler, end_ns, brief);
	return edge;
}

/* Does what is due; returns when to come again. */
static uint64_t step(struct meter_device *d)
{
	bool active;

	if (d->stalled)
		return UINT64_MAX;
	while (edge(d, &active)) /* what is read for one takes time, and others come */
		;
	return sampler_step(&d->sampler, active);
}

static void sleep_or_wake(struct meter_device *d, uint64_t due_ns)
{
	struct timespec until = clock_timespec(due_ns);

	while (!d->stop && !d->edge &&
	       pthread_cond_clockwait(&d->wake, &d->lock, CLOCK_MONOTONIC, &until) == 0)
		;
}

/* The sampler asks the driver when it begins: here, so that one GPU that hangs holds up no other.  False:
 * nobody waits for it any more. */
static bool begin(struct meter_device *d)
{
	int error = sampler_init(&d->sampler, d->meter->ctx, d->position, &d->opt, take, d);
	bool go;

	pthread_mutex_lock(&d->lock);
	d->begun = true;
	d->error = error;
	pthread_cond_broadcast(&d->news);
	while (!d->go && !d->stop && !d->stalled)
		pthread_cond_wait(&d->wake, &d->lock);
	go = d->go && !d->stop;
	pthread_mutex_unlock(&d->lock);
	return go;
}

static void *run(void *arg)
{
	struct meter_device *d = arg;
	bool stop = !d->begun && !begin(d);

	while (!stop) {
		uint64_t due = step(d);

		pthread_mutex_lock(&d->lock);
		sleep_or_wake(d, due);
		stop = d->stop;
		pthread_mutex_unlock(&d->lock);
	}
	pthread_mutex_lock(&d->lock);
	d->gone = true;
	pthread_cond_broadcast(&d->news);
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static int start_thread(struct meter_device *d)
{
	int err = thread_start(&d->thread, 0, run, d);

	d->started = err == 0;
	return err;
}

static bool wait_news(struct meter_device *d, uint64_t until_ns)
{
	struct timespec until = clock_timespec(until_ns);

	return pthread_cond_clockwait(&d->news, &d->lock, CLOCK_MONOTONIC, &until) == 0;
}

static void ask_to_end(struct meter_device *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
}

/* True: the thread has ended and been joined; false: it hangs in the driver and is left behind,
 * with all that it holds, and tells nobody anything more. */
static bool end_thread(struct meter_device *d, uint64_t until_ns)
{
	bool gone;

	if (!d->started)
		return true;
	pthread_mutex_lock(&d->lock);
	while (!d->gone && wait_news(d, until_ns))
		;
	gone = d->gone;
	if (!gone)
		d->deaf = true;
	pthread_mutex_unlock(&d->lock);
	if (gone)
		pthread_join(d->thread, NULL);
	else
		pthread_detach(d->thread);
	return gone;
}

/* ---- the meter ---- */

/* A call on it has not returned: nothing is asked of it, or we would hang with it. */
static void stalled_setup(struct energy_setup *set)
{
	*set = (struct energy_setup){ .shape = SHAPE_NONE,
				      .spacing_s = 0.1,
				      .look_ratio = 1,
				      .why = GW_ABSENT_STALLED,
				      .limit_w = NAN };
	set->sensor.counter = GW_ABSENT_STALLED;
}

/* What the options borrow may be gone before a driver that hangs has answered. */
static int keep_options(struct meter_device *d, const struct sampler_options *opt)
{
	d->opt = *opt;
	if (opt->sensor) {
		d->known = *opt->sensor;
		d->opt.sensor = &d->known;
	}
	if (opt->cache_dir) {
		d->cache_dir = strdup(opt->cache_dir);
		d->opt.cache_dir = d->cache_dir;
	}
	return opt->cache_dir && !d->cache_dir ? -GW_E_NOMEM : 0;
}

static int add_device(struct gw_meter *m, const struct chosen *c,
		      const struct sampler_options *opt)
{
	struct meter_device *d = calloc(1, sizeof(*d));

	if (!d)
		return -GW_E_NOMEM;
	d->meter = m;
	d->number = m->count;
	d->position = c->position;
	d->stalled = c->stalled;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->wake, NULL);
	pthread_cond_init(&d->news, NULL);
	m->device[m->count++] = d;
	if (d->stalled)
		return 0;
	if (keep_options(d, opt) != 0)
		return -GW_E_NOMEM;
	if (!m->manual && m->ctx->deadline_ns)
		return start_thread(d);
	/* Who set no deadline waits for the driver himself. */
	d->begun = true;
	d->error = sampler_init(&d->sampler, m->ctx, c->position, &d->opt, take, d);
	return d->error;
}

/* Waits for its sampler to have begun; one that has not in time is not measured. */
static int settle_device(struct meter_device *d, uint64_t until_ns)
{
	struct gw_meter *m = d->meter;
	struct energy_setup hung; /* how it is measured when stalled: not at all */
	int err;

	stalled_setup(&hung);
	pthread_mutex_lock(&d->lock);
	while (!d->begun && !d->stalled && wait_news(d, until_ns))
		;
	d->stalled = d->stalled || !d->begun;
	err = d->stalled ? 0 : d->error;
	pthread_mutex_unlock(&d->lock);
	if (err)
		return err;
	track_init(&d->track, d->stalled ? &hung : &d->sampler.set,
		   (double)d->opt.interval_ns * 1e-9);
	if (m->about)
		m->about(m->arg, d->number, d->position, &d->track.energy.set);
	return 0;
}

static int let_go(struct meter_device *d)
{
	if (d->stalled || d->meter->manual)
		return 0;
	if (!d->started)
		return start_thread(d);
	pthread_mutex_lock(&d->lock);
	d->go = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* Positions in a snapshot of the devices that the selectors name. */
static int select_devices(struct gw_ctx *ctx, const char *const *gpus, struct chosen **ret,
			  unsigned *ret_count)
{
	struct gw_snapshot *snap;
	struct chosen *list;
	unsigned n = 0;
	int err = gw_snapshot_new(ctx, &snap);

	if (err)
		return err;
	err = gw_snapshot_take(snap, 0);
	list = calloc(gw_snapshot_device_count(snap) + 1, sizeof(*list));
	if (!err && !list)
		err = -GW_E_NOMEM;
	for (unsigned i = 0; !err && i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		bool wanted = !gpus;

		for (unsigned k = 0; gpus && gpus[k]; k++)
			wanted |= gw_device_matches(d, gpus[k]) == 1;
		if (wanted)
			list[n++] = (struct chosen){ i, d->state == GW_DEVICE_STALLED };
	}
	gw_snapshot_free(snap);
	if (!err && gpus && gpus[0] && n == 0)
		err = -GW_E_NODEV;
	if (err) {
		free(list);
		return err;
	}
	*ret = list;
	*ret_count = n;
	return 0;
}

static int take_options(const struct gw_meter_options *given, struct gw_meter_options *known)
{
	memset(known, 0, sizeof(*known));
	if (given) {
		if (given->size < sizeof(size_t) || given->size % sizeof(size_t))
			return -GW_E_ARG;
		memcpy(known, given,
		       given->size < sizeof(*known) ? given->size : sizeof(*known));
	}
	if (!known->interval_ns)
		known->interval_ns = INTERVAL_NS;
	if (!known->anchor_ns)
		known->anchor_ns = ANCHOR_NS;
	if (known->interval_ns < INTERVAL_MIN || known->anchor_ns < NS_PER_S ||
	    known->flags & ~(unsigned)(GW_METER_PROCESSES | GW_METER_MANUAL))
		return -GW_E_ARG;
	return 0;
}

int meter_start(struct gw_ctx *ctx, const struct meter_config *config,
		struct gw_meter **ret_meter)
{
	struct gw_meter_options o;
	struct sampler_options so = { .own_pid = getpid(),
				      .always = config->always,
				      .anchored = config->anchored,
				      .describe = config->describe,
				      .sensor = config->sensor };
	struct chosen *list = NULL;
	unsigned count = 0;
	uint64_t until;
	struct gw_meter *m;
	int err = take_options(config->options, &o);

	if (!err)
		err = select_devices(ctx, o.gpus, &list, &count);
	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	if (m)
		m->device = calloc(count + 1, sizeof(struct meter_device *));
	if (!m || !m->device) {
		free(m);
		free(list);
		return -GW_E_NOMEM;
	}
	m->ctx = ctx;
	m->clock = ctx->clock;
	m->manual = o.flags & GW_METER_MANUAL;
	m->about = config->about;
	m->listen = config->listen;
	m->result = config->result;
	m->arg = config->arg;
	pthread_mutex_init(&m->lock, NULL);
	so.interval_ns = o.interval_ns;
	so.anchor_ns = o.anchor_ns;
	so.processes = o.flags & GW_METER_PROCESSES;
	so.cache_dir = o.cache_dir;
	for (unsigned i = 0; i < count && !err; i++)
		err = add_device(m, &list[i], &so);
	free(list);
	until = clock_mono_ns(clock_real()) + ctx->deadline_ns;
	for (unsigned i = 0; i < m->count && !err; i++)
		err = settle_device(m->device[i], until);
	for (unsigned i = 0; i < m->count && !err; i++)
		err = let_go(m->device[i]);
	if (err) {
		gw_meter_stop(m);
		return err;
	}
	*ret_meter = m;
	return 0;
}

int gw_meter_start(struct gw_ctx *ctx, const struct gw_meter_options *options,
		   struct gw_meter **ret_meter)
{
	if (!ctx || !ret_meter)
		return -GW_E_ARG;
	return meter_start(ctx, &(struct meter_config){ .options = options }, ret_meter);
}

int gw_meter_stop(struct gw_meter *m)
{
	uint64_t until = clock_mono_ns(clock_real()) + JOIN_NS;
	bool all = true;

	if (!m)
		return 0;
	for (unsigned i = 0; i < m->count; i++)
		ask_to_end(m->device[i]);
	for (unsigned i = 0; i < m->count; i++)
		all = end_thread(m->device[i], until) && all;
	if (!all)
		return -GW_E_STATE; /* a call under way still uses what we would free */
	while (m->windows)
		gw_window_free(m->windows);
	for (unsigned i = 0; i < m->count; i++) {
		if (m->device[i]->begun && !m->device[i]->error)
			sampler_done(&m->device[i]->sampler);
		free(m->device[i]->cache_dir);
		pthread_cond_destroy(&m->device[i]->wake);
		pthread_cond_destroy(&m->device[i]->news);
		pthread_mutex_destroy(&m->device[i]->lock);
		free(m->device[i]);
	}
	pthread_mutex_destroy(&m->lock);
	free(m->device);
	free(m);
	return 0;
}

unsigned gw_meter_device_count(const struct gw_meter *m)
{
	return m->count;
}

unsigned gw_meter_device(const struct gw_meter *m, unsigned i)
{
	return i < m->count ? m->device[i]->position : UINT32_MAX;
}

uint64_t gw_meter_poll(struct gw_meter *m)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; m->manual && i < m->count; i++) {
		uint64_t due = step(m->device[i]);

		next = due < next ? due : next;
	}
	return next;
}

void meter_own(struct gw_meter *m, int64_t pid)
{
	for (unsigned i = 0; i < m->count; i++)
		if (!m->device[i]->stalled) /* its sampler may still begin */
			__atomic_store_n(&m->device[i]->sampler.opt.own_pid, pid,
					 __ATOMIC_RELAXED);
}

void meter_exclusive(struct gw_meter *m, bool on)
{
	m->exclusive = on;
}

void meter_baseline(struct gw_meter *m, unsigned i, double no_context_w, double context_w)
{
	struct meter_device *d = m->device[i];

	pthread_mutex_lock(&d->lock);
	record(d,
	       &(struct event){ .type = EVENT_IDLE,
				.t_ns = clock_mono_ns(m->clock),
				.u.idle = { no_context_w, context_w } },
	       NULL);
	pthread_mutex_unlock(&d->lock);
}

struct gw_ctx *meter_context(const struct gw_meter *m)
{
	return m->ctx;
}

const struct clock *meter_clock(const struct gw_meter *m)
{
	return m->clock;
}

void meter_wait(struct gw_meter *m, uint64_t until_ns)
{
	while (m->manual) {
		uint64_t due = gw_meter_poll(m);

		if (due >= until_ns)
			break;
		clock_sleep_until(m->clock, due);
	}
	clock_sleep_until(m->clock, until_ns);
}

struct energy_setup meter_setup(const struct gw_meter *m, unsigned i)
{
	struct meter_device *d = m->device[i];
	struct energy_setup set;

	pthread_mutex_lock(&d->lock);
	set = d->track.energy.set;
	pthread_mutex_unlock(&d->lock);
	return set;
}

void meter_progress(struct gw_meter *m, unsigned i, struct meter_progress *ret)
{
	struct meter_device *d = m->device[i];

	pthread_mutex_lock(&d->lock);
	*ret = (struct meter_progress){ d->samples, d->ticks, d->missed, d->track.last_tick_w };
	pthread_mutex_unlock(&d->lock);
}

/* ---- windows ---- */

/* To the track and to whoever listens; the thread reads what the edge needs. */
static void tell(struct meter_device *d, const struct event *e, struct track_window *w,
		 uint64_t early_ns)
{
	pthread_mutex_lock(&d->lock);
	record(d, e, w);
	d->edge = true;
	if (e->type == EVENT_CLOSE && e->t_ns - early_ns > d->end_ns)
		d->end_ns = e->t_ns - early_ns;
	d->brief = early_ns && d->track.open && !d->track.open->next;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
}

static void link_window(struct gw_meter *m, struct gw_window *w)
{
	pthread_mutex_lock(&m->lock);
	w->id = ++m->ids;
	w->next = m->windows;
	w->link = &m->windows;
	if (w->next)
		w->next->link = &w->next;
	m->windows = w;
	pthread_mutex_unlock(&m->lock);
}

int gw_window_open(struct gw_meter *m, const char *label, uint64_t begin_ns,
		   struct gw_window **ret_window)
{
	struct event e = { .type = EVENT_OPEN };
	uint64_t now = m ? clock_mono_ns(m->clock) : 0;
	struct gw_window *w;

	if (!m || !ret_window || begin_ns > now || (begin_ns && now - begin_ns > 30 * NS_PER_S))
		return -GW_E_ARG;
	w = calloc(1, sizeof(*w));
	if (w) {
		w->track = calloc(m->count + 1, sizeof(*w->track));
		w->energy = calloc(m->count + 1, sizeof(*w->energy));
	}
	if (!w || !w->track || !w->energy) {
		if (w) {
			free(w->track);
			free(w->energy);
		}
		free(w);
		return -GW_E_NOMEM;
	}
	w->meter = m;
	snprintf(w->label, sizeof(w->label), "%s", label ? label : "");
	link_window(m, w);
	e.t_ns = begin_ns ? begin_ns : now;
	e.u.window.id = w->id;
	e.u.window.period_s = NAN;
	memcpy(e.u.window.label, w->label, sizeof(e.u.window.label));
	for (unsigned i = 0; i < m->count; i++)
		tell(m->device[i], &e, &w->track[i], 0);
	*ret_window = w;
	return 0;
}

void window_hurry(struct gw_window *w)
{
	w->hurry = true;
}

/* Half the spacing of samples sooner than its end one may be there that will do. */
static uint64_t early_ns(const struct gw_window *w, unsigned i, uint64_t end_ns)
{
	double spacing = w->meter->device[i]->track.energy.set.spacing_s;
	uint64_t length = end_ns - w->track[i].e.begin_ns;

	return w->hurry && (double)length < 1e9 * spacing ? (uint64_t)(0.5e9 * spacing) : 0;
}

int gw_window_close(struct gw_window *w, uint64_t end_ns)
{
	struct event e = { .type = EVENT_CLOSE };
	uint64_t now = clock_mono_ns(w->meter->clock);

	if (w->closed)
		return -GW_E_STATE;
	e.t_ns = end_ns ? end_ns : now;
	if (e.t_ns > now || (w->meter->count && e.t_ns < w->track[0].e.begin_ns))
		return -GW_E_ARG;
	if (w->meter->count && e.t_ns == w->track[0].e.begin_ns)
		e.t_ns++; /* a window has a length */
	e.u.window.id = w->id;
	for (unsigned i = 0; i < w->meter->count; i++)
		tell(w->meter->device[i], &e, NULL, early_ns(w, i, e.t_ns));
	w->closed = true;
	return 0;
}

static bool done(const struct gw_window *w, unsigned i)
{
	const struct meter_device *d = w->meter->device[i];

	return d->stalled || track_done(&d->track, &w->track[i]) || !d->sampler.answers ||
	       (w->hurry && energy_is_near(&d->track.energy, &w->track[i].e));
}

/* Waits for the sample that covers its end, on device i. */
static bool wait_device(struct gw_window *w, unsigned i, uint64_t until_ns)
{
	struct meter_device *d = w->meter->device[i];
	bool ok;

	if (w->meter->manual) {
		uint64_t now = clock_mono_ns(w->meter->clock);

		while (!done(w, i) && now < until_ns) {
			uint64_t due = gw_meter_poll(w->meter);

			if (done(w, i))
				break;
			clock_sleep_until(w->meter->clock, due < until_ns ? due : until_ns);
			now = clock_mono_ns(w->meter->clock);
		}
		return done(w, i);
	}
	pthread_mutex_lock(&d->lock);
	while (!(ok = done(w, i)) && wait_news(d, until_ns))
		;
	pthread_mutex_unlock(&d->lock);
	return ok;
}

bool window_done(struct gw_window *w)
{
	bool all = w->closed;

	for (unsigned i = 0; all && !w->waited && i < w->meter->count; i++) {
		struct meter_device *d = w->meter->device[i];

		pthread_mutex_lock(&d->lock);
		all = done(w, i);
		pthread_mutex_unlock(&d->lock);
	}
	return all;
}

static void work_out(struct gw_window *w, unsigned i, bool last)
{
	struct meter_device *d = w->meter->device[i];

	pthread_mutex_lock(&d->lock);
	w->energy[i].device = i;
	if (last)
		record(d,
		       &(struct event){ .type = EVENT_RESULT,
					.t_ns = clock_mono_ns(w->meter->clock),
					.u.window = { .id = w->id,
						      .period_s = NAN,
						      .exclusive = w->meter->exclusive } },
		       NULL);
	track_result(&d->track, &w->track[i], &w->energy[i]);
	if (last) {
		if (w->meter->result)
			w->meter->result(w->meter->arg, i, w->id, w->label, &w->energy[i]);
		track_share(&d->track, &w->track[i], &w->energy[i]);
		track_forget(&d->track, &w->track[i]);
	}
	pthread_mutex_unlock(&d->lock);
}

int gw_window_wait(struct gw_window *w, uint64_t timeout_ns)
{
	uint64_t now = clock_mono_ns(w->meter->clock);
	uint64_t until = timeout_ns < UINT64_MAX / 2 - now ? now + timeout_ns : UINT64_MAX / 2;
	int err = 0;

	if (!w->closed)
		return -GW_E_STATE;
	if (w->waited)
		return 0;
	for (unsigned i = 0; i < w->meter->count; i++) {
		if (!wait_device(w, i, until))
			err = -GW_E_TIMEOUT;
		work_out(w, i, true);
	}
	w->waited = true;
	return err;
}

const struct gw_energy *gw_window_energy(struct gw_window *w, unsigned i)
{
	if (i >= w->meter->count)
		return NULL;
	if (!w->waited)
		work_out(w, i, false);
	return &w->energy[i];
}

const char *gw_window_label(const struct gw_window *w)
{
	return w->label;
}

void gw_window_free(struct gw_window *w)
{
	if (!w)
		return;
	for (unsigned i = 0; i < w->meter->count; i++) {
		struct meter_device *d = w->meter->device[i];

		pthread_mutex_lock(&d->lock);
		track_forget(&d->track, &w->track[i]);
		pthread_mutex_unlock(&d->lock);
	}
	pthread_mutex_lock(&w->meter->lock);
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	pthread_mutex_unlock(&w->meter->lock);
	free(w->track);
	free(w->energy);
	free(w);
}

void window_evidence(const struct gw_window *w, unsigned i, const struct gw_energy *e,
		     unsigned code, char *out, size_t size)
{
	track_evidence(&w->track[i], e, code, out, size);
}

const struct attribute *window_processes(const struct gw_window *w, unsigned i)
{
	return &w->track[i].who;
}

int64_t window_foreign(struct gw_window *w, unsigned i)
{
	struct meter_device *d = w->meter->device[i];
	int64_t pid;

	pthread_mutex_lock(&d->lock);
	pid = w->track[i].foreign_pid;
	pthread_mutex_unlock(&d->lock);
	return pid;
}

unsigned window_id(const struct gw_window *w)
{
	return w->id;
}

void window_activity(struct gw_window *w, unsigned i, struct window_activity *ret)
{
	struct meter_device *d = w->meter->device[i];
	const struct track_window *t = &w->track[i];

	pthread_mutex_lock(&d->lock);
	*ret = (struct window_activity){ .utilization_max = t->util_max,
					 .reasons = t->reasons,
					 .any = t->any_pid,
					 .foreign = t->foreign_pid,
					 .hidden = t->hidden };
	memcpy(ret->any_name, t->any_name, sizeof(ret->any_name));
	memcpy(ret->foreign_name, t->foreign_name, sizeof(ret->foreign_name));
	pthread_mutex_unlock(&d->lock);
}
