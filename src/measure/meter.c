#include "meter_parts.h"

#include "base/sized.h"
#include "base/mailbox.h"
#include "device/context.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_NS  (100 * NS_PER_MS)
#define INTERVAL_MIN NS_PER_MS
#define ANCHOR_NS    (10 * NS_PER_S)
/* gw_meter_stop() waits at most this long for a thread that hangs in a driver call. */
#define JOIN_NS (3 * NS_PER_S)

struct chosen {            /* a device to measure */
	unsigned position; /* index in snapshots */
	bool hung;         /* a driver call on the device has not returned */
};

void meter_record(struct meter_device *d, const struct event *e, struct tracked_window *w)
{
	window_tracker_feed(&d->tracker, e, w);
	if (d->meter->on_event && d->thread_state != METER_LEFT_BEHIND)
		d->meter->on_event(d->meter->arg, d->number, e);
}

/* Receives an event on the sampler's thread. */
static void meter_take_event(void *arg, const struct event *e)
{
	struct meter_device *d = arg;

	pthread_mutex_lock(&d->lock);
	meter_record(d, e, NULL);
	d->count.samples += e->type == EVENT_POWER;
	d->count.ticks += e->type == EVENT_TICK;
	d->count.missed += e->type == EVENT_TICK ? e->u.tick.missed : 0;
	pthread_cond_broadcast(&d->news);
	pthread_mutex_unlock(&d->lock);
}

/* If a window began or ended since the last call, takes the readings for it and returns
 * true. */
static bool handle_boundary(struct meter_device *d, bool *ret_active)
{
	enum meter_boundary boundary;
	uint64_t end_ns;

	pthread_mutex_lock(&d->lock);
	boundary = d->boundary;
	end_ns = d->end_ns;
	d->boundary = METER_NO_BOUNDARY;
	d->end_ns = 0;
	*ret_active = d->tracker.open != NULL;
	pthread_mutex_unlock(&d->lock);
	if (boundary == METER_NO_BOUNDARY)
		return false;
	sampler_boundary(&d->sampler, end_ns, boundary == METER_BRIEF_END);
	return true;
}

/* Takes the readings that are due. Returns the time of the next reading. */
static uint64_t meter_step(struct meter_device *d)
{
	bool active;

	/* The readings take time: another window may begin or end during them. */
	while (handle_boundary(d, &active))
		;
	return sampler_step(&d->sampler, active);
}

static void sleep_or_wake(struct meter_device *d, uint64_t due_ns)
{
	struct timespec until = clock_timespec(due_ns);

	while (d->phase == METER_SAMPLING && d->boundary == METER_NO_BOUNDARY &&
	       pthread_cond_clockwait(&d->wake, &d->lock, CLOCK_MONOTONIC, &until) == 0)
		;
}

/* Calls sampler_init(), which may hang in the driver. */
static void start_sampler(struct meter_device *d)
{
	int error = sampler_init(&d->sampler, d->meter->ctx, d->position, &d->opt,
				 meter_take_event, d);

	pthread_mutex_lock(&d->lock);
	d->error = error;
	if (d->phase == METER_STARTING) /* otherwise the device is hung or stopping */
		d->phase = METER_READY;
	pthread_cond_broadcast(&d->news);
	pthread_mutex_unlock(&d->lock);
}

static void *meter_main(void *arg)
{
	struct meter_device *d = arg;

	/* If driver calls have a deadline, this thread initialises the sampler, so that one GPU
	 * that hangs does not delay another. */
	if (d->meter->ctx->deadline_ns)
		start_sampler(d);
	pthread_mutex_lock(&d->lock);
	while (d->phase == METER_READY)
		pthread_cond_wait(&d->wake, &d->lock);
	while (d->phase == METER_SAMPLING) {
		uint64_t due_ns;

		pthread_mutex_unlock(&d->lock);
		due_ns = meter_step(d);
		pthread_mutex_lock(&d->lock);
		sleep_or_wake(d, due_ns);
	}
	if (d->thread_state == METER_RUNNING)
		d->thread_state = METER_ENDED;
	pthread_cond_broadcast(&d->news);
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static int start_thread(struct meter_device *d)
{
	int err;

	d->thread_state = METER_RUNNING;
	err = thread_start(&d->thread, 0, meter_main, d);
	if (err)
		d->thread_state = METER_NO_THREAD;
	return err;
}

bool meter_wait_news(struct meter_device *d, uint64_t until_ns)
{
	struct timespec until = clock_timespec(until_ns);

	return pthread_cond_clockwait(&d->news, &d->lock, CLOCK_MONOTONIC, &until) == 0;
}

static void request_stop(struct meter_device *d)
{
	pthread_mutex_lock(&d->lock);
	if (d->phase != METER_HUNG)
		d->phase = METER_STOPPING;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
}

/* Waits for the end of the thread, if there is one, and joins it. Returns false if the thread
 * hangs in the driver: the thread then keeps running and still uses the device. */
static bool end_thread(struct meter_device *d, uint64_t until_ns)
{
	enum meter_thread state;

	pthread_mutex_lock(&d->lock);
	while (d->thread_state == METER_RUNNING && meter_wait_news(d, until_ns))
		;
	if (d->thread_state == METER_RUNNING) {
		d->thread_state = METER_LEFT_BEHIND;
		pthread_detach(d->thread);
	}
	state = d->thread_state;
	pthread_mutex_unlock(&d->lock);
	if (state == METER_ENDED)
		pthread_join(d->thread, NULL);
	return state != METER_LEFT_BEHIND;
}

/* Fills in the setup of a GPU on which a driver call has not returned. The driver is not called
 * again, because we would hang, too. */
static void hung_setup(struct energy_setup *set)
{
	*set = (struct energy_setup){ .shape = SHAPE_NONE,
				      .spacing_s = 0.1,
				      .look_ratio = 1,
				      .why = GW_ABSENT_STALLED,
				      .limit_w = NAN };
	set->sensor.counter = GW_ABSENT_STALLED;
}

/* Copies the caller's data, because a driver call that hangs may return after the caller has
 * freed the data. */
static int copy_borrowed(struct meter_device *d, const struct sampler_options *opt)
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
	d->phase = c->hung ? METER_HUNG : METER_STARTING;
	d->error = -GW_E_STATE;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->wake, NULL);
	pthread_cond_init(&d->news, NULL);
	m->device[m->count++] = d;
	if (c->hung)
		return 0;
	if (copy_borrowed(d, opt) != 0)
		return -GW_E_NOMEM;
	if (!m->manual && m->ctx->deadline_ns)
		return start_thread(d);
	start_sampler(d); /* without a deadline the caller waits for the driver */
	return d->error;
}

/* Waits until the sampler has started. If the sampler has not started by until_ns, the device
 * is not measured. */
static int wait_for_sampler(struct meter_device *d, uint64_t until_ns)
{
	struct gw_meter *m = d->meter;
	struct energy_setup setup; /* the setup of a hung device */
	bool hung;
	int err;

	hung_setup(&setup);
	pthread_mutex_lock(&d->lock);
	while (d->phase == METER_STARTING && meter_wait_news(d, until_ns))
		;
	if (d->phase == METER_STARTING)
		d->phase = METER_HUNG;
	hung = d->phase == METER_HUNG;
	err = hung ? 0 : d->error;
	pthread_mutex_unlock(&d->lock);
	if (err)
		return err;
	window_tracker_init(&d->tracker, hung ? &setup : &d->sampler.setup,
			    (double)d->opt.interval_ns * 1e-9);
	if (m->on_setup)
		m->on_setup(m->arg, d->number, d->position, &d->tracker.energy.set);
	return 0;
}

static int start_sampling(struct meter_device *d)
{
	bool thread;

	pthread_mutex_lock(&d->lock);
	if (d->phase == METER_READY)
		d->phase = METER_SAMPLING;
	thread = d->phase == METER_HUNG || d->meter->manual ||
		 d->thread_state != METER_NO_THREAD;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	return thread ? 0 : start_thread(d);
}

/* Returns the first selector that matches no device of the snapshot; NULL if each selector
 * matches a device. */
static const char *unmatched_selector(const struct gw_snapshot *snap, const char *const *gpus)
{
	for (; gpus && *gpus; gpus++) {
		unsigned i = 0, n = gw_snapshot_device_count(snap);

		while (i < n && gw_device_matches(gw_snapshot_device(snap, i), *gpus) != 1)
			i++;
		if (i == n)
			return *gpus;
	}
	return NULL;
}

/* Finds the snapshot positions of the devices that match the selectors. */
static int select_devices(struct gw_ctx *ctx, const char *const *gpus, struct chosen **ret,
			  unsigned *ret_count)
{
	struct gw_snapshot *snap;
	struct chosen *list;
	const char *none;
	unsigned n = 0;
	int err = gw_snapshot_new(ctx, &snap);

	if (err)
		return err;
	err = gw_snapshot_take(snap, 0);
	list = calloc(gw_snapshot_device_count(snap) + 1, sizeof(*list));
	if (!err && !list)
		err = context_fail(ctx, -GW_E_NOMEM, NULL);
	for (unsigned i = 0; !err && list && i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		bool wanted = !gpus;

		for (unsigned k = 0; gpus && gpus[k]; k++)
			wanted |= gw_device_matches(d, gpus[k]) == 1;
		if (wanted)
			list[n++] = (struct chosen){ i, d->state == GW_DEVICE_STALLED };
	}
	none = unmatched_selector(snap, gpus);
	if (!err && gpus && gpus[0] && gw_snapshot_device_count(snap) == 0) {
		const struct gw_status *status = gw_snapshot_status(snap);
		const char *why = status->message;
		/* The message of this cause already begins with "no GPU was found". */
		const char *what =
			status->cause == GW_CAUSE_NO_GPU && *why ? "" : "no GPU was found";

		err = context_fail(ctx, -GW_E_NODEV, "%s%s%s", what, *what && *why ? ": " : "",
				   why);
	}
	gw_snapshot_free(snap);
	if (!err && none)
		err = context_fail(ctx, -GW_E_NODEV,
				   "no GPU matches \"%s\"; gpuward list shows the GPUs", none);
	if (!err && gpus && !gpus[0])
		err = context_fail(
			ctx, -GW_E_NODEV,
			"the list of GPUs is empty; name a GPU, or set gpus to NULL for "
			"all GPUs");
	if (err) {
		free(list);
		return err;
	}
	*ret = list;
	*ret_count = n;
	return 0;
}

static int check_options(struct gw_ctx *ctx, const struct gw_meter_options *given,
			 struct gw_meter_options *known)
{
	unsigned unknown;

	if (!sized_read(known, sizeof(*known), SIZED_FIRST(struct gw_meter_options, cache_dir),
			given))
		return context_fail_size(ctx, "gw_meter_options", given->size, sizeof(*known));
	unknown = known->flags & ~(unsigned)(GW_METER_PROCESSES | GW_METER_MANUAL);
	if (!known->interval_ns)
		known->interval_ns = INTERVAL_NS;
	if (!known->anchor_ns)
		known->anchor_ns = ANCHOR_NS;
	if (known->interval_ns < INTERVAL_MIN)
		return context_fail(ctx, -GW_E_ARG,
				    "gw_meter_options.interval_ns is %llu ns; it must be 0 or "
				    "at least 1 ms",
				    (unsigned long long)known->interval_ns);
	if (known->anchor_ns < NS_PER_S)
		return context_fail(ctx, -GW_E_ARG,
				    "gw_meter_options.anchor_ns is %llu ns; it must be 0 or at "
				    "least 1 s",
				    (unsigned long long)known->anchor_ns);
	if (unknown)
		return context_fail(ctx, -GW_E_ARG,
				    "gw_meter_options.flags has the unknown bits 0x%x",
				    unknown);
	return 0;
}

static struct gw_meter *new_meter(struct gw_ctx *ctx, const struct meter_config *config,
				  unsigned flags, unsigned count)
{
	struct gw_meter *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->device = calloc(count + 1, sizeof(struct meter_device *));
	if (!m->device) {
		free(m);
		return NULL;
	}
	m->ctx = ctx;
	m->clock = ctx->clock;
	m->manual = flags & GW_METER_MANUAL;
	m->processes = flags & GW_METER_PROCESSES;
	m->on_setup = config->on_setup;
	m->on_event = config->on_event;
	m->on_result = config->on_result;
	m->arg = config->arg;
	pthread_mutex_init(&m->lock, NULL);
	return m;
}

int meter_start(struct gw_ctx *ctx, const struct meter_config *config,
		struct gw_meter **ret_meter)
{
	struct gw_meter_options o;
	struct sampler_options so = { .own_pid = getpid(),
				      .always = config->always,
				      .service = config->service,
				      .describe = config->describe,
				      .sensor = config->sensor };
	struct chosen *list = NULL;
	unsigned count = 0;
	uint64_t until;
	struct gw_meter *m;
	int err = check_options(ctx, config->options, &o);

	if (!err)
		err = select_devices(ctx, o.gpus, &list, &count);
	if (err)
		return err;
	m = new_meter(ctx, config, o.flags, count);
	if (!m) {
		free(list);
		return context_fail(ctx, -GW_E_NOMEM, NULL);
	}
	so.interval_ns = o.interval_ns;
	so.anchor_ns = o.anchor_ns;
	so.processes = o.flags & GW_METER_PROCESSES;
	so.cache_dir = o.cache_dir;
	for (unsigned i = 0; i < count && !err; i++)
		err = add_device(m, &list[i], &so);
	free(list);
	until = clock_mono_ns(clock_real()) + ctx->deadline_ns;
	for (unsigned i = 0; i < m->count && !err; i++)
		err = wait_for_sampler(m->device[i], until);
	for (unsigned i = 0; i < m->count && !err; i++)
		err = start_sampling(m->device[i]);
	if (err) {
		gw_meter_stop(m);
		return context_fail(ctx, err, NULL);
	}
	*ret_meter = m;
	return 0;
}

int gw_meter_start(struct gw_ctx *ctx, const struct gw_meter_options *options,
		   struct gw_meter **ret_meter)
{
	if (!ctx || !ret_meter)
		return context_fail_null(ctx, ctx ? "ret_meter" : "ctx");
	return meter_start(ctx, &(struct meter_config){ .options = options }, ret_meter);
}

int gw_meter_stop(struct gw_meter *m)
{
	uint64_t until = clock_mono_ns(clock_real()) + JOIN_NS;
	bool all = true;

	if (!m)
		return 0;
	for (unsigned i = 0; i < m->count; i++)
		request_stop(m->device[i]);
	for (unsigned i = 0; i < m->count; i++)
		all = end_thread(m->device[i], until) && all;
	if (!all) /* Free nothing, because a driver call that hangs still uses the memory. */
		return context_fail(m->ctx, -GW_E_STATE,
				    "a driver call has not returned and still uses the meter; "
				    "do not use or free the meter and its context any more");
	while (m->windows)
		gw_window_free(m->windows);
	for (unsigned i = 0; i < m->count; i++) {
		if (!m->device[i]->error)
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
		uint64_t due = m->device[i]->phase == METER_SAMPLING ? meter_step(m->device[i])
								     : UINT64_MAX;

		next = due < next ? due : next;
	}
	return next;
}

void meter_set_own_process(struct gw_meter *m, int64_t pid)
{
	for (unsigned i = 0; i < m->count; i++)
		/* the sampler of a hung device is perhaps not initialised */
		if (m->device[i]->phase != METER_HUNG)
			__atomic_store_n(&m->device[i]->sampler.opt.own_pid, pid,
					 __ATOMIC_RELAXED);
}

void meter_set_servers(struct gw_meter *m, const int64_t *pid, unsigned count)
{
	for (unsigned i = 0; i < m->count; i++)
		for (unsigned k = 0; k < METER_SERVERS && m->device[i]->phase != METER_HUNG;
		     k++)
			__atomic_store_n(&m->device[i]->sampler.opt.server_pid[k],
					 k < count ? pid[k] : 0, __ATOMIC_RELAXED);
}

void meter_set_exclusive(struct gw_meter *m, bool on)
{
	m->exclusive = on;
}

void meter_set_baseline(struct gw_meter *m, unsigned i, double no_context_w, double context_w)
{
	struct meter_device *d = m->device[i];

	pthread_mutex_lock(&d->lock);
	meter_record(d,
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

bool meter_reads_processes(const struct gw_meter *m)
{
	return m->processes;
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
	set = d->tracker.energy.set;
	pthread_mutex_unlock(&d->lock);
	return set;
}

int gw_meter_sensor(struct gw_meter *m, unsigned i, struct gw_sensor *ret)
{
	struct energy_setup set;
	const struct sensor *s = &set.sensor;
	struct gw_sensor v;

	if (!m || !ret)
		return context_fail_null(m ? m->ctx : NULL, m ? "ret" : "meter");
	if (i >= m->count)
		return context_fail(
			m->ctx, -GW_E_NODEV,
			"the meter has %u GPUs, numbered from 0; there is no number "
			"%u",
			m->count, i);
	set = meter_setup(m, i);
	v = (struct gw_sensor){ .rung = energy_rung(&set),
				.origin = sensor_origin_name(s->origin),
				.model = sensor_model_name((set.shape == SHAPE_RING ? &s->ring
							    : set.shape == SHAPE_MEAN
								    ? &s->average
								    : &s->instant)
								   ->model),
				.period_s = set.spacing_s,
				.window_s = set.window_s,
				.lag_s = set.lag_s,
				.look_ratio = set.look_ratio,
				.counter_absence = s->counter,
				.counter_tick_s = s->counter ? NAN : s->tick_s,
				.counter_lag_s = s->counter ? NAN : s->counter_lag_s,
				.calibrated = s->calibration.done,
				.gain = s->calibration.gain,
				.offset_w = s->calibration.offset_w,
				.gain_u = s->calibration.gain_u,
				.offset_u_w = s->calibration.offset_u_w,
				.wall_ns = s->wall_ns };
	return sized_write(ret, &v, sizeof(v), SIZED_FIRST(struct gw_sensor, wall_ns))
		       ? 0
		       : context_fail_size(m->ctx, "gw_sensor", ret->size, sizeof(v));
}

void meter_progress(struct gw_meter *m, unsigned i, struct meter_progress *ret)
{
	struct meter_device *d = m->device[i];

	pthread_mutex_lock(&d->lock);
	*ret = d->count;
	ret->power_w = d->tracker.last_tick_w;
	pthread_mutex_unlock(&d->lock);
}
