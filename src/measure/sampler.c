#include "sampler.h"

#include <math.h>
#include <string.h>

#define DRAIN_NS      (1500 * NS_PER_MS) /* 0.5 ms each; the ring of an H200 holds 2.36 s */
#define DRAIN_ANY_NS  NS_PER_S           /* where its span is not known */
#define WHO_NS        NS_PER_S
#define USE_LASTS_NS  (2 * NS_PER_S)
#define IDLE_NS       NS_PER_S             /* figures, while nobody has a window open */
#define UNWATCHED_NS  (10 * NS_PER_S)      /* the same in a service, which reads them itself */
#define STEP_NS       ((int64_t)NS_PER_MS) /* the wall clock was set, if it moves by more */
#define COARSE_S      0.5                  /* a ring with wider spacing shows no shape */
#define RING_AGE_NS   (20 * NS_PER_MS)     /* the newest sample of an H200 is 10 to 18 ms old */
#define RING_YOUNG_NS (8 * NS_PER_MS)      /* none is there sooner after its stamp           */
#define FRESH_NS      (20 * NS_PER_MS)     /* a ring that was fetched then is taken for new  */
#define SETTLE_TRIES  5
#define EDGE_STEP_NS  (2 * NS_PER_MS) /* a look costs 0.3 ms */
#define RING_FEW      10              /* readings say nothing about their spacing */

static void emit(struct sampler *s, const struct event *e)
{
	s->emit(s->arg, e);
}

static uint64_t now_ns(const struct sampler *s)
{
	return clock_mono_ns(s->tap.clock);
}

static void note(struct sampler *s, uint64_t t_ns, unsigned code)
{
	emit(s, &(struct event){ .type = EVENT_NOTE, .t_ns = t_ns, .u.code = code });
}

static double figure(const struct report *r, unsigned q)
{
	return report_has(r, q) ? r->v[q] : NAN;
}

/* ---- how to measure it ---- */

/* Mean spacing of what the ring holds, readings told twice counted once; NAN when it holds less
 * than two. */
static double ring_spacing(const struct power_sample *p, int n)
{
	int distinct = 1;

	for (int i = 1; i < n; i++)
		distinct += p[i].wall_us != p[i - 1].wall_us;
	if (n < 2 || distinct < 2 || p[n - 1].wall_us <= p[0].wall_us)
		return NAN;
	return (double)(p[n - 1].wall_us - p[0].wall_us) * 1e-6 / (distinct - 1);
}

static void from_ring(struct sampler *s, enum energy_shape shape, double spacing_s)
{
	const struct sensor_source *src = &s->set.sensor.ring;

	s->set.shape = shape;
	s->set.spacing_s = spacing_s;
	s->set.window_s = isnan(src->window_s) ? spacing_s : src->window_s;
	s->set.lag_s = isnan(src->lag_s) ? 0.5 * spacing_s : src->lag_s;
	s->set.look_ratio = 1;
}

/* A sensor that looks only part of the time is polled at ever other phases of its period, an
 * eighth further each time, so that a load locked to it is seen whole after eight. */
static void from_figure(struct sampler *s, enum energy_shape shape, unsigned quantity,
			const struct sensor_source *src)
{
	double period = isnan(src->period_s) ? 0.1 : src->period_s;
	double window = isnan(src->window_s) ? period : src->window_s;

	s->polled = true;
	s->quantity = quantity;
	s->set.shape = shape;
	s->set.look_ratio = fmin(1, window / period);
	s->set.spacing_s = s->set.look_ratio < 1 ? period * 9 / 8 : period;
	s->set.window_s = window;
	s->set.lag_s = isnan(src->lag_s) ? 0.5 * window : src->lag_s;
	s->poll_ns = (uint64_t)llround(s->set.spacing_s * 1e9);
}

static void from_file(struct sampler *s)
{
	struct sensor_source file = { .period_s = (double)s->opt.interval_ns * 1e-9,
				      .window_s = (double)s->opt.interval_ns * 1e-9,
				      .lag_s = 0 };

	from_figure(s, SHAPE_SYSFS, GW_Q_POWER, &file);
}

static void choose_ring(struct sampler *s)
{
	const struct sensor *sensor = &s->set.sensor;
	bool text = s->r.provenance == GW_FROM_TEXT;
	int n = sampler_device_ring(&s->tap, s->ring, SAMPLER_RING);
	double spacing = ring_spacing(s->ring, n);

	s->calls++;
	sensor_heard_ring(&s->set.sensor, n);
	s->fetched = n;
	s->fetched_ns = now_ns(s);
	if (n >= 0 && n < RING_FEW && sensor->ring.why == GW_HAVE)
		spacing = sensor->ring.period_s; /* the driver was loaded just now */
	if (text && n >= 0)
		from_ring(s, SHAPE_TEXT, 0.1);
	else if (!text && spacing <= COARSE_S)
		from_ring(s, SHAPE_RING, spacing);
}

static void choose_figure(struct sampler *s)
{
	const struct sensor *sensor = &s->set.sensor;
	bool text = s->r.provenance == GW_FROM_TEXT, file = s->r.provenance == GW_FROM_SYSFS;

	if (file && report_has(&s->r, GW_Q_POWER))
		from_file(s);
	else if (report_has(&s->r, GW_Q_POWER_INSTANT))
		from_figure(s, text ? SHAPE_TEXT : SHAPE_INSTANT, GW_Q_POWER_INSTANT,
			    &sensor->instant);
	else if (report_has(&s->r, GW_Q_POWER) && sensor->average.why == GW_HAVE)
		from_figure(s, text ? SHAPE_TEXT : SHAPE_MEAN, GW_Q_POWER, &sensor->average);
	else if (report_has(&s->r, GW_Q_POWER))
		from_figure(s, text ? SHAPE_TEXT : SHAPE_INSTANT, GW_Q_POWER, &sensor->instant);
	else
		s->set.spacing_s = (double)s->opt.interval_ns * 1e-9;
}

/* What was learned on this card before, or what is said of its kind. */
static void know_sensor(struct sampler *s)
{
	char dir[512], why[256];
	const char *from = s->opt.cache_dir;

	if (s->opt.sensor) {
		s->set.sensor = *s->opt.sensor;
		return;
	}
	if (!from)
		from = sensor_directory(dir, sizeof(dir)) == 0 ? dir : NULL;
	sensor_known_tap(&s->tap, from && *from ? from : NULL, &s->set.sensor, why,
			 sizeof(why));
}

/* A reading takes 3 to 14 ms, and somebody waits for us: where a card of its kind has a counter, the first is
 * made when sampling begins, and tells if this one has none. */
static void look_for_counter(struct sampler *s)
{
	/* Is there anything at all?  Then it must be known now. */
	if (s->set.sensor.counter != GW_HAVE || s->set.shape == SHAPE_NONE) {
		sampler_device_counter(&s->tap, &s->first);
		s->set.sensor.counter = s->first.why;
	}
	s->set.counter = s->set.sensor.counter == GW_HAVE && !s->set.sensor.counter_unsafe;
}

int sampler_init(struct sampler *s, struct gw_ctx *ctx, unsigned position,
		 const struct sampler_options *options,
		 void (*emit_fn)(void *arg, const struct event *e), void *arg)
{
	int err;

	memset(s, 0, sizeof(*s));
	err = sampler_device_init(&s->tap, ctx, position);
	if (err)
		return err;
	s->opt = *options;
	s->emit = emit_fn;
	s->arg = arg;
	/* As it was found.  Where the ring tells power no figure is needed now: they take 7 ms on an
	 * H200, and somebody waits for us. */
	sampler_device_read(&s->tap, 0, false, &s->r);
	know_sensor(s);
	s->set.shape = SHAPE_NONE;
	s->set.spacing_s = 0.1;
	s->set.look_ratio = 1;
	if (s->r.state == GW_DEVICE_OK)
		choose_ring(s);
	if (s->set.shape == SHAPE_NONE) { /* power by a figure: is it there? */
		sampler_device_read(&s->tap, GW_TIER_FAST, false, &s->r);
		know_sensor(s);
		sensor_heard_ring(&s->set.sensor, s->fetched);
	}
	s->opened = s->tap.opened;
	s->answers = s->r.state == GW_DEVICE_OK;
	s->set.limit_w = figure(&s->r, GW_Q_POWER_LIMIT);
	s->set.mig = s->r.mig_count > 0;
	s->set.why = device_absence(s->r.state, s->r.cause);
	if (!s->answers)
		return 0;
	s->set.why = GW_HAVE;
	if (s->set.shape == SHAPE_NONE) {
		s->set.why = (enum gw_absence)s->r.why[GW_Q_POWER];
		choose_figure(s);
	}
	look_for_counter(s);
	return 0;
}

void sampler_done(struct sampler *s)
{
	usage_done(&s->usage);
}

/* ---- the ring ---- */

/* Wall clock less monotonic clock, from the tightest of a few tries: whoever is put aside between
 * two readings would see a clock that was set. */
static int64_t clock_offset(const struct sampler *s)
{
	uint64_t tightest = UINT64_MAX;
	int64_t offset = 0;

	for (int i = 0; i < SETTLE_TRIES && tightest > 20 * NS_PER_US; i++) {
		uint64_t before = now_ns(s), wall = clock_wall_ns(s->tap.clock);
		uint64_t after = now_ns(s);

		if (after - before < tightest) {
			tightest = after - before;
			offset = (int64_t)(wall - (before + (after - before) / 2));
		}
	}
	return offset;
}

/* How many of the n fetched were taken before: after the last place where the tail of what was
 * taken stands.  Stamps alone would not do: the wall clock may have been set back. */
static unsigned already_taken(const struct sampler *s, int n)
{
	for (int end = n; end > 0 && s->tails; end--) {
		unsigned k = 0;

		while (k < s->tails && k < (unsigned)end &&
		       s->ring[end - 1 - (int)k].wall_us == s->tail[s->tails - 1 - k].wall_us &&
		       s->ring[end - 1 - (int)k].power_w == s->tail[s->tails - 1 - k].power_w)
			k++;
		if (k == s->tails || k == (unsigned)end)
			return (unsigned)end;
	}
	return 0;
}

static void keep_tail(struct sampler *s, int n)
{
	unsigned keep = n < SAMPLER_TAIL ? (unsigned)n : SAMPLER_TAIL;

	memcpy(s->tail, s->ring + n - (int)keep, keep * sizeof(s->tail[0]));
	s->tails = keep;
}

/* Monotonic time of a stamp: by the offset of now, or, where that would put it out of order, by
 * the one of before the clock was set.  0: neither. */
static uint64_t mono_of(const struct sampler *s, uint64_t wall_us, int64_t old, int64_t offset,
			uint64_t now)
{
	int64_t candidates[] = { offset, old };

	for (unsigned i = 0; i < 2; i++) {
		int64_t t = (int64_t)(wall_us * NS_PER_US) - candidates[i];

		if (t > (int64_t)s->last_ns && t <= (int64_t)(now + RING_AGE_NS))
			return (uint64_t)t;
	}
	return 0;
}

/* As it was read when the shape was chosen, if that is not long ago: a fetch takes 0.5 ms. */
static int fetch(struct sampler *s)
{
	int n = s->fetched;

	s->fetched = 0;
	if (n > 0 && now_ns(s) - s->fetched_ns < FRESH_NS)
		return n;
	s->calls++;
	return sampler_device_ring(&s->tap, s->ring, SAMPLER_RING);
}

static void drain(struct sampler *s)
{
	int n = fetch(s);
	uint64_t now = now_ns(s);
	int64_t offset = clock_offset(s), old = s->offset_known ? s->offset_ns : offset;

	if (n == -GW_E_NOSUPPORT && !s->broken && s->answers) {
		s->broken = true;
		note(s, now, GW_CODE_SOURCE_CHANGED);
	}
	if (n <= 0)
		return;
	s->broken = false;
	if (offset - old > STEP_NS || old - offset > STEP_NS) {
		note(s, now, GW_CODE_CLOCK_STEP);
		s->use_us =
			(uint64_t)((int64_t)now + offset) / NS_PER_US; /* on the new clock */
	}
	for (int i = (int)already_taken(s, n); i < n; i++) {
		uint64_t t = mono_of(s, s->ring[i].wall_us, old, offset, now);

		if (!t)
			continue;
		s->last_ns = t;
		emit(s, &(struct event){ .type = EVENT_POWER,
					 .t_ns = t,
					 .u.power_w = s->ring[i].power_w });
	}
	keep_tail(s, n);
	s->offset_ns = offset;
	s->offset_known = true;
}

/* ---- figures ---- */

/* Before what the new driver says is told: its counter has nothing to do with the old one's. */
static void watch_driver(struct sampler *s)
{
	if (s->tap.opened == s->opened)
		return;
	s->opened = s->tap.opened;
	note(s, now_ns(s), GW_CODE_DRIVER_RELOADED);
}

static void read_figures(struct sampler *s, unsigned tiers)
{
	bool answered;

	sampler_device_read(&s->tap, tiers, false, &s->r);
	s->calls++;
	answered = s->r.state == GW_DEVICE_OK;
	watch_driver(s);
	if (s->answers && !answered)
		note(s, now_ns(s), GW_CODE_GPU_LOST);
	s->answers = answered;
}

/* The figures as they were just read. */
static void emit_tick(struct sampler *s, unsigned missed)
{
	struct event e = { .type = EVENT_TICK, .t_ns = now_ns(s), .u.tick.missed = missed };

	for (unsigned i = 0; i < FIGURES; i++)
		e.u.tick.figure[i] = figure(&s->r, event_quantity[i]);
	s->ticks++;
	s->missed += missed;
	if (s->answers)
		emit(s, &e);
}

static void poll_power(struct sampler *s)
{
	uint64_t before = now_ns(s), after;
	double w;

	read_figures(s, GW_TIER_FAST);
	after = now_ns(s);
	w = figure(&s->r, s->quantity);
	if (!isnan(w))
		emit(s, &(struct event){ .type = EVENT_POWER,
					 .t_ns = before + (after - before) / 2,
					 .u.power_w = w });
}

static void emit_counter(struct sampler *s, const struct sampler_device_counter *c)
{
	bool first = !s->counter_ns;

	s->counter_ns = c->before_ns;
	s->counted_ns = c->after_ns;
	if (first && c->why != GW_HAVE) {
		s->set.counter = false;
		s->set.sensor.counter = c->why;
		emit(s, &(struct event){ .type = EVENT_NO_COUNTER,
					 .t_ns = c->before_ns,
					 .u.absence = c->why });
	}
	if (c->why == GW_HAVE)
		emit(s, &(struct event){ .type = EVENT_COUNTER,
					 .t_ns = c->before_ns,
					 .u.counter = { c->after_ns, c->joules } });
}

static void read_counter(struct sampler *s)
{
	uint64_t safe = (uint64_t)(fmax(1, s->set.sensor.counter_safe_s) * 1e9);
	struct sampler_device_counter c;

	if (!s->set.counter || (s->counter_ns && now_ns(s) < s->counter_ns + safe))
		return;
	sampler_device_counter(&s->tap, &c);
	s->calls++;
	watch_driver(s);
	emit_counter(s, &c);
}

/* Set since the last edge or anchor, by whom and when in between is not known: it is told of the
 * windows that were open then. */
static void watch_clocks(struct sampler *s, uint64_t now)
{
	double hz = figure(&s->r, GW_Q_CLOCK_GRAPHICS_APPLICATION);

	if (s->given_ns && fabs(hz - s->given_hz) > 0.5e6)
		note(s, s->given_ns, GW_CODE_CLOCK_CHANGED);
	s->given_hz = hz;
	s->given_ns = now;
}

/* It costs 2 ms: edges closer than the first share a reading, and in long windows one is made once a
 * while, for who looks into an open one. */
#define LIMITS_NS      (100 * NS_PER_MS)
#define LIMITS_LONG_NS (60 * NS_PER_S)

static uint64_t limits_read_ns(const struct sampler *s)
{
	return s->r.tier_ns[__builtin_ctz(GW_TIER_LIMITS)];
}

static void read_limits(struct sampler *s)
{
	struct event e = { .type = EVENT_LIMITS };
	double *v = e.u.limits.seconds;
	uint64_t read_ns = limits_read_ns(s);

	/* They may have been read just before.  The power cap and sync boost are of SLOW. */
	sampler_device_read(&s->tap, GW_TIER_LIMITS | GW_TIER_SLOW,
			    !read_ns || now_ns(s) > read_ns + LIMITS_NS, &s->r);
	s->calls++;
	e.t_ns = now_ns(s);
	v[GW_THROTTLE_POWER] = figure(&s->r, GW_Q_LIMITED_POWER);
	v[GW_THROTTLE_SYNC_BOOST] = figure(&s->r, GW_Q_LIMITED_SYNC_BOOST);
	v[GW_THROTTLE_THERMAL_SOFTWARE] = figure(&s->r, GW_Q_LIMITED_THERMAL_SOFTWARE);
	v[GW_THROTTLE_THERMAL_HARDWARE] = figure(&s->r, GW_Q_LIMITED_THERMAL_HARDWARE);
	v[GW_THROTTLE_BRAKE] = figure(&s->r, GW_Q_LIMITED_POWER_BRAKE);
	/* Older drivers tell heat of any kind only. */
	if (isnan(v[GW_THROTTLE_THERMAL_SOFTWARE]))
		v[GW_THROTTLE_THERMAL_SOFTWARE] = figure(&s->r, GW_Q_LIMITED_THERMAL);
	e.u.limits.limit_w = figure(&s->r, GW_Q_POWER_LIMIT);
	if (s->r.state != GW_DEVICE_OK)
		return;
	emit(s, &e);
	watch_clocks(s, e.t_ns);
}

/* ---- who ---- */

static int64_t own_pid(const struct sampler *s)
{
	return __atomic_load_n(&s->opt.own_pid,
			       __ATOMIC_RELAXED); /* meter_own() may be at it */
}

static double process_use(const struct process_use *u, int n, int64_t pid)
{
	for (int i = 0; i < n; i++)
		if (u[i].pid == pid)
			return u[i].sm_ratio;
	return NAN;
}

/* Utilisation of each, where there are several: asking costs 2 ms.  The driver renews it a few
 * times a second; what it said lately stands until then. */
static void read_use(struct sampler *s)
{
	struct process_use use[SAMPLER_USES];
	uint64_t now = now_ns(s);
	int n = s->usage.count > 1
			? sampler_device_process_use(&s->tap, s->use_us, use, SAMPLER_USES)
			: 0;

	if (n <= 0) {
		if (now - s->uses_ns > USE_LASTS_NS)
			s->uses = 0;
		return;
	}
	memcpy(s->use, use, (size_t)n * sizeof(use[0]));
	s->uses = n;
	s->uses_ns = now;
	for (int i = 0; i < n; i++)
		if (use[i].wall_us > s->use_us)
			s->use_us = use[i].wall_us;
}

static void read_processes(struct sampler *s)
{
	struct event e = { .type = EVENT_PROCESS };
	int error;
	enum gw_absence why = sampler_device_processes(&s->tap, &s->usage, &error);

	s->calls++;
	s->who_ns = now_ns(s) + WHO_NS;
	read_use(s);
	e.t_ns = now_ns(s);
	for (unsigned i = 0; i < s->usage.count; i++) {
		const struct usage *u = &s->usage.p[i];

		memset(&e.u, 0, sizeof(e.u));
		e.u.process.pid = u->pid;
		e.u.process.start_ticks = sampler_device_start_ticks(&s->tap, u->pid);
		e.u.process.memory_bytes = u->memory_why == GW_HAVE ? u->memory_bytes : 0;
		e.u.process.sm_ratio = process_use(s->use, s->uses, u->pid);
		e.u.process.own = sampler_device_in_tree(&s->tap, u->pid, own_pid(s));
		if (*u->name)
			memcpy(e.u.process.name, u->name, sizeof(e.u.process.name));
		else
			sampler_device_process_name(&s->tap, u->pid, e.u.process.name,
						    sizeof(e.u.process.name));
		emit(s, &e);
	}
	emit(s, &(struct event){ .type = EVENT_WHO,
				 .t_ns = e.t_ns,
				 .u.who = { s->usage.count, why != GW_HAVE || s->set.mig } });
}

/* ---- the schedule ---- */

/* The next deadline of a row of them; *ret_missed counts those that passed unseen. */
static uint64_t after(uint64_t due, uint64_t period, uint64_t now, unsigned *ret_missed)
{
	uint64_t late = now > due ? (now - due) / period : 0;

	if (ret_missed)
		*ret_missed = (unsigned)late;
	return due + (late + 1) * period;
}

static uint64_t earliest(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Anchors at whole ticks would all find the counter at one age, and then nobody could tell where
 * in it the ticks lie: each is put off by another part of a tick (the golden ratio spreads them
 * most evenly). */
static void next_anchor(struct sampler *s)
{
	double part = fmod((double)s->anchors++ * 0.6180339887, 1);

	s->anchor_due_ns = now_ns(s) + s->opt.anchor_ns +
			   (uint64_t)(part * fmax(0, s->set.sensor.tick_s) * 1e9);
}

/* From a moment to the stamp of the sample that covers it, at most. */
static uint64_t reach_ns(const struct sampler *s)
{
	return (uint64_t)((s->set.lag_s + s->set.spacing_s) * 1e9);
}

/* When the sample that covers an end can be there, and when it is there for sure.  Samples come
 * at even steps, give or take some ms: which of them it will be is known. */
static void look_for(struct sampler *s, uint64_t end_ns)
{
	uint64_t step = (uint64_t)(s->set.spacing_s * 1e9), stamp;

	s->covered_ns =
		end_ns + (uint64_t)(s->set.lag_s * 1e9); /* stamped so, it tells of it */
	stamp = s->covered_ns;
	if (s->last_ns && s->last_ns < stamp)
		stamp = s->last_ns + (stamp - s->last_ns + step - 1) / step * step;
	s->drain_ns = earliest(s->drain_ns, stamp + RING_YOUNG_NS);
	s->drain_until_ns = end_ns + reach_ns(s) + RING_AGE_NS;
}

void sampler_edge(struct sampler *s, uint64_t end_ns, bool brief)
{
	/* Samples reach back from a reading to the beginning: there is time for it when all else is done, and what
	 * ends before that never needs it. */
	s->owed = !end_ns && s->set.shape == SHAPE_RING;
	if (!s->owed && !brief)
		read_counter(s);
	if (end_ns && !s->polled)
		/* A reading for the end is of use when samples cover it too. */
		look_for(s, s->counted_ns >= end_ns ? s->counted_ns + 1 : end_ns);
	else if (!s->polled) /* once, for a GPU that is lost before the next drain */
		s->drain_ns = earliest(s->drain_ns, now_ns(s) + reach_ns(s) + RING_AGE_NS);
	read_limits(s);
	if (s->opt.processes)
		read_processes(s);
	if (s->opt.describe) /* nobody waits for it any more: it takes 7 ms */
		sampler_device_read(&s->tap, GW_TIERS_COMMON & ~(unsigned)GW_TIER_FAST, false,
				    &s->r);
	s->opt.describe = false;
	next_anchor(s);
}

static uint64_t drain_period(const struct sampler *s)
{
	double span = s->set.sensor.ring_span_s;
	uint64_t most = span > 0 ? (uint64_t)(0.85e9 * span) : DRAIN_ANY_NS;

	return earliest(most, DRAIN_NS);
}

/* Together with a tick where they can be, so that the thread wakes up once for both. */
static uint64_t next_drain(const struct sampler *s, uint64_t now, uint64_t every)
{
	uint64_t due = now + drain_period(s);

	if (DRAIN_NS % every != 0 || s->tick_ns > due)
		return due;
	return s->tick_ns + (due - s->tick_ns) / every * every;
}

/* How often figures are read. */
static uint64_t tick_period(const struct sampler *s, bool active)
{
	uint64_t every = active || s->opt.always || s->opt.interval_ns > IDLE_NS
				 ? s->opt.interval_ns
			 : s->opt.anchored ? UNWATCHED_NS
					   : IDLE_NS;

	/* A driver renews a value for whoever asks first after its period: figures read between two
	 * polls would set the phase in place of the polls.  They are read together. */
	return s->polled ? (every + s->poll_ns - 1) / s->poll_ns * s->poll_ns : every;
}

static void first_step(struct sampler *s, uint64_t now)
{
	s->tick_ns = s->poll_due_ns = s->drain_ns = s->who_ns = now;
	next_anchor(s);
	if (s->set.counter && s->first.before_ns) /* read when we looked for it */
		emit_counter(s, &s->first);
	s->owed |= s->opt.anchored;
}

static void step_figures(struct sampler *s, uint64_t now, uint64_t every)
{
	bool read = false;
	unsigned missed;

	if (s->polled && s->poll_due_ns <= now) {
		s->poll_due_ns = after(s->poll_due_ns, s->poll_ns, now, NULL);
		poll_power(s);
		read = true;
	}
	if (s->tick_ns <= now) {
		s->tick_ns = after(s->tick_ns, every, now, &missed);
		if (!read)
			read_figures(s, GW_TIER_FAST);
		emit_tick(s, missed);
	}
}

static void step_ring(struct sampler *s, uint64_t now, uint64_t every)
{
	if (s->drain_ns > now)
		return;
	drain(s);
	s->drain_ns = next_drain(s, now, every);
	/* Somebody may wait for the sample that covers the last edge. */
	if (s->last_ns < s->covered_ns && now < s->drain_until_ns)
		s->drain_ns = earliest(now + EDGE_STEP_NS, s->drain_until_ns);
}

static void step_counter(struct sampler *s, uint64_t now, bool active)
{
	if (s->owed) {
		s->owed = false;
		read_counter(s);
	}
	if (!(active || s->opt.anchored) || s->anchor_due_ns > now)
		return;
	next_anchor(s);
	read_counter(s);
	if (active && now > limits_read_ns(s) + LIMITS_LONG_NS)
		read_limits(s);
}

static uint64_t next_step(const struct sampler *s, bool active, bool ring)
{
	uint64_t next = s->tick_ns;

	if (s->polled)
		next = earliest(next, s->poll_due_ns);
	if (ring)
		next = earliest(next, s->drain_ns);
	if (active || s->opt.anchored)
		next = earliest(next, s->anchor_due_ns);
	if (active && s->opt.processes)
		next = earliest(next, s->who_ns);
	return next;
}

uint64_t sampler_step(struct sampler *s, bool active)
{
	uint64_t now = now_ns(s), every = tick_period(s, active);
	bool ring = !s->polled && s->set.shape != SHAPE_NONE;

	if (!s->tick_ns)
		first_step(s, now);
	if (active && !s->active && s->tick_ns > now + every)
		s->tick_ns = s->polled ? s->poll_due_ns : now;
	s->active = active;
	if (ring) /* the first samples are there already, the first figures take 6 ms */
		step_ring(s, now, every);
	step_figures(s, now, every);
	step_counter(s, now, active);
	if (active && s->opt.processes && s->who_ns <= now)
		read_processes(s);
	return next_step(s, active, ring);
}
