/* Learns the properties of a GPU's power sensors without a load. */
#include "sensor_learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERIODS_S 12. /* maximum time to wait until every value has changed often enough */
#define TICK_S    3.  /* time for which the counter is read without a pause */
#define RATE_S    5.  /* time for which each rate is tested */
#define SLOW_S    10. /* time between the two readings of the slowest rate */
/* A rate is safe if the counter differs from the reference by at most this ratio. */
#define SAFE_RATIO 0.005
/* If a read takes less time than this, one read per ms uses less than a tenth of a core. */
#define CHEAP_S   1e-4
#define PASSIVE_S (PERIODS_S + TICK_S + 4 * RATE_S + 1)

/* Time between readings when the counter is read as fast as possible. A reading of a slow
 * counter takes 3 ms anyway. With a fast counter, or in simulated time, this pause makes the
 * time advance. */
#define FLAT_OUT_NS NS_PER_MS

#define COSTS      8192u
#define DRAIN_NS   NS_PER_S
#define TRACES     3u
#define COST_KINDS 3u

static uint64_t recorder_ns(const struct recorder *w, double t_s)
{
	return w->zero_ns + (uint64_t)(int64_t)(t_s * 1e9);
}

/* Returns 0 or -GW_E_NOMEM. The caller frees w->memory. */
static int recorder_init(struct recorder *w, struct sampler_device *sd)
{
	struct fit_point *p;
	double *c;

	memset(w, 0, sizeof(*w));
	w->device = sd;
	w->clock = sd->clock;
	w->zero_ns = w->next_poll_ns = w->next_drain_ns = clock_mono_ns(w->clock);
	w->poll_ns = RECORDER_POLL;
	w->average_quantity = GW_Q_POWER;
	w->memory =
		malloc(TRACES * RECORDER_POINTS * sizeof(*p) + COST_KINDS * COSTS * sizeof(*c));
	if (!w->memory)
		return -GW_E_NOMEM;
	p = w->memory;
	w->instant.p = p;
	w->average.p = p + RECORDER_POINTS;
	w->ring.p = p + 2 * RECORDER_POINTS;
	c = (double *)(p + TRACES * RECORDER_POINTS);
	w->poll_cost.s = c;
	w->ring_cost.s = c + COSTS;
	w->counter_cost.s = c + 2 * COSTS;
	recorder_clear(w);
	return 0;
}

static void recorder_clear_values(struct recorder *w)
{
	w->instant.n = w->average.n = 0;
	w->instant.last_w = w->average.last_w = NAN;
}

void recorder_clear(struct recorder *w)
{
	recorder_clear_values(w);
	w->ring.n = 0;
}

uint64_t recorder_next(uint64_t at_ns, uint64_t step_ns, uint64_t now_ns)
{
	at_ns += step_ns;
	if (at_ns < now_ns)
		at_ns += (now_ns - at_ns + step_ns - 1) / step_ns * step_ns;
	return at_ns;
}

static void add_cost(struct recorder_cost *c, uint64_t before_ns, uint64_t after_ns)
{
	if (c->n < COSTS)
		c->s[c->n++] = (double)(after_ns - before_ns) * 1e-9;
}

static void add_point(struct recorder_trace *t, double t_s, double w)
{
	if (t->n < RECORDER_POINTS)
		t->p[t->n++] = (struct fit_point){ t_s, w };
}

static void note_value(struct recorder *w, struct recorder_trace *t, unsigned quantity,
		       double t_s)
{
	double v = w->r.v[quantity];

	if (!report_has(&w->r, quantity) || v == t->last_w)
		return;
	t->last_w = v;
	add_point(t, t_s, v);
}

static void poll_values(struct recorder *w)
{
	uint64_t before = clock_mono_ns(w->clock), after;
	double t_s;

	sampler_device_read(w->device, GW_TIER_FAST, true, &w->r);
	after = clock_mono_ns(w->clock);
	add_cost(&w->poll_cost, before, after);
	t_s = recorder_s(w, before + (after - before) / 2);
	note_value(w, &w->instant, GW_Q_POWER_INSTANT, t_s);
	note_value(w, &w->average, w->average_quantity, t_s);
}

/* Returns how many entries of ring_now were already in ring_before. Two reads are joined at the
 * last old sample, by timestamp and value, so that a step of the wall clock neither loses nor
 * repeats samples. */
static unsigned already_recorded(const struct recorder *w, unsigned n)
{
	const struct power_sample *last;

	if (w->ring_count == 0)
		return 0;
	last = &w->ring_before[w->ring_count - 1];
	for (unsigned i = n; i-- > 0;)
		if (w->ring_now[i].wall_us == last->wall_us &&
		    w->ring_now[i].power_w == last->power_w)
			return i + 1;
	return 0;
}

void recorder_drain(struct recorder *w)
{
	uint64_t before = clock_mono_ns(w->clock), after, wall;
	int n = sampler_device_ring(w->device, w->ring_now, RECORDER_RING);
	double offset_s;

	wall = clock_wall_ns(w->clock);
	after = clock_mono_ns(w->clock);
	w->ring_error = n < 0 ? n : 0;
	if (n <= 0)
		return;
	add_cost(&w->ring_cost, before, after);
	w->ring_age_s = (double)(int64_t)(wall / NS_PER_US - w->ring_now[n - 1].wall_us) * 1e-6;
	/* Subtract before converting: a double cannot hold ns since 1970 exactly. */
	offset_s = recorder_s(w, after);
	for (unsigned i = already_recorded(w, (unsigned)n); i < (unsigned)n; i++) {
		int64_t ago_ns = (int64_t)(wall - w->ring_now[i].wall_us * NS_PER_US);

		add_point(&w->ring, offset_s - (double)ago_ns * 1e-9, w->ring_now[i].power_w);
	}
	memcpy(w->ring_before, w->ring_now, (unsigned)n * sizeof(w->ring_now[0]));
	w->ring_count = (unsigned)n;
}

void recorder_counter(struct recorder *w, struct sampler_device_counter *ret, double *ret_t_s)
{
	sampler_device_counter(w->device, ret);
	add_cost(&w->counter_cost, ret->before_ns, ret->after_ns);
	*ret_t_s = recorder_s(w, ret->before_ns + (ret->after_ns - ret->before_ns) / 2);
}

/* Takes the readings that are due now and returns the next due time. */
static uint64_t recorder_due(struct recorder *w)
{
	uint64_t now = clock_mono_ns(w->clock);

	if (now >= w->next_poll_ns) {
		poll_values(w);
		now = clock_mono_ns(w->clock);
		w->next_poll_ns = recorder_next(w->next_poll_ns, w->poll_ns, now);
	}
	if (now >= w->next_drain_ns) {
		recorder_drain(w);
		now = clock_mono_ns(w->clock);
		w->next_drain_ns = recorder_next(w->next_drain_ns, DRAIN_NS, now);
	}
	return w->next_poll_ns < w->next_drain_ns ? w->next_poll_ns : w->next_drain_ns;
}

void recorder_until(struct recorder *w, uint64_t mono_ns)
{
	while (clock_mono_ns(w->clock) < mono_ns) {
		uint64_t due = recorder_due(w);

		clock_sleep_until(w->clock, due < mono_ns ? due : mono_ns);
	}
}

void learn_progress(const struct learn *l, const char *what)
{
	double passed = (double)(clock_mono_ns(l->w.clock) - l->begin_ns) * 1e-9;

	if (l->plan->progress)
		l->plan->progress(l->plan->ctx, what, fmin(passed / l->expected_s, 1));
}

void learn_period(struct learn *l, const struct recorder_trace *t, struct sensor_source *s)
{
	struct fit_period f;
	unsigned changes = t->n ? t->n - 1 : 0; /* the first value is older than the trace */

	for (unsigned i = 0; i < changes; i++)
		l->work[i] = t->p[i + 1].t_s;
	if (changes <= s->changes || fit_period(l->work, changes, l->work2, &f) != 0)
		return;
	s->period_s = f.period_s;
	s->changes = changes;
}

static bool has_enough(const struct recorder_trace *t, const struct sensor_source *s)
{
	return s->why != GW_HAVE || t->n > SENSOR_CHANGES;
}

/* Chooses the polling period. Some drivers update a value only when it is read. The measured
 * update period is then too long by up to one polling period. So a value that is cheap to read
 * is polled more often. Each read from nvidia-smi starts a program, so nvidia-smi is polled
 * less often. */
static void choose_poll(struct recorder *w)
{
	recorder_until(w, clock_mono_ns(w->clock) + NS_PER_S / 4);
	if (w->r.provenance == GW_FROM_TEXT)
		w->poll_ns = 100 * NS_PER_MS;
	else if (fit_quantile(w->poll_cost.s, w->poll_cost.n, 0.5) < CHEAP_S)
		w->poll_ns = NS_PER_MS;
	recorder_clear_values(w);
}

static void learn_values(struct learn *l)
{
	struct recorder *w = &l->w;
	uint64_t end = clock_mono_ns(w->clock) + (uint64_t)(PERIODS_S * 1e9);

	choose_poll(w);
	while (clock_mono_ns(w->clock) < end && !(has_enough(&w->instant, &l->s.instant) &&
						  has_enough(&w->average, &l->s.average))) {
		learn_progress(l, "measuring how often values change");
		recorder_until(w, clock_mono_ns(w->clock) + NS_PER_S / 4);
	}
	learn_period(l, &w->instant, &l->s.instant);
	learn_period(l, &w->average, &l->s.average);
}

/* timestamps that differ from the wall clock by more than this are from another clock */
#define STAMPS_AGREE_S 60

static void learn_ring(struct learn *l)
{
	const struct recorder_trace *t = &l->w.ring;
	struct sensor *s = &l->s;
	unsigned n = 0, distinct = 1;

	recorder_drain(&l->w);
	s->ring_entries = l->w.ring_count;
	if (l->w.ring_error || t->n < 2) {
		s->ring.why = l->w.ring_error == -GW_E_NOSUPPORT ? GW_ABSENT_NOT_SUPPORTED
			      : l->w.ring_error                  ? GW_ABSENT_LOST
								 : GW_ABSENT_NO_DATA;
		return;
	}
	s->ring.why = GW_HAVE;
	s->ring_span_s = (double)(l->w.ring_before[l->w.ring_count - 1].wall_us -
				  l->w.ring_before[0].wall_us) *
			 1e-6;
	for (unsigned i = 1; i < t->n; i++)
		l->work[n++] = t->p[i].t_s - t->p[i - 1].t_s;
	s->ring_gap_p10_s = fit_quantile(l->work, n, 0.1);
	s->ring_gap_p90_s = fit_quantile(l->work, n, 0.9);
	/* Use the driver's timestamps within one read, because gaps across two reads also
	 * depend on our clocks. */
	for (unsigned i = 1; i < l->w.ring_count; i++)
		distinct += l->w.ring_before[i].wall_us != l->w.ring_before[i - 1].wall_us;
	s->ring.period_s = distinct > 1 ? s->ring_span_s / (distinct - 1) : NAN;
	s->ring.changes = n;
	s->ring_wall = fabs(l->w.ring_age_s) < STAMPS_AGREE_S + 3 * s->ring.period_s;
}

/* Finds the period of the counter's updates. An update lies between the last reading with the
 * old value and the first reading with the new value. */
static void learn_tick(struct learn *l, struct fit_period *ret)
{
	struct recorder *w = &l->w;
	uint64_t now = clock_mono_ns(w->clock), end = now + (uint64_t)(TICK_S * 1e9);
	uint64_t next = now;
	double before_s = NAN, before_j = NAN, t_s;
	struct sampler_device_counter c;
	unsigned n = 0;

	*ret = (struct fit_period){ NAN, NAN, 0 };
	learn_progress(l, "measuring the steps of the energy counter");
	while (clock_mono_ns(w->clock) < end) {
		recorder_counter(w, &c, &t_s);
		if (c.why != GW_HAVE) {
			l->s.counter = c.why;
			return;
		}
		if (c.joules > before_j && n < RECORDER_POINTS)
			l->work[n++] = (before_s + t_s) / 2;
		before_s = t_s;
		before_j = c.joules;
		next = recorder_next(next, FLAT_OUT_NS, clock_mono_ns(w->clock));
		clock_sleep_until(w->clock, next);
	}
	l->s.counter = GW_HAVE;
	if (fit_period(l->work, n, l->work2, ret) != 0)
		return;
	l->s.tick_s = ret->period_s;
	l->s.ticks = ret->changes + 1;
}

struct reference {
	const struct recorder_trace *trace; /* NULL: there are no power values */
	double lag_s;
};

/* Returns the power values with which the counter is compared: the ring buffer if its entries
 * are close together, otherwise the average, otherwise the instant value. */
static struct reference reference_of(const struct learn *l)
{
	const struct sensor *s = &l->s;

	if (s->ring.why == GW_HAVE && s->ring_wall && s->ring.period_s < 0.25)
		return (struct reference){ &l->w.ring, s->ring.lag_s };
	if (s->average.why == GW_HAVE)
		return (struct reference){ &l->w.average, s->average.lag_s };
	if (s->instant.why == GW_HAVE)
		return (struct reference){ &l->w.instant, s->instant.lag_s };
	return (struct reference){ NULL, 0 };
}

/* Returns the time of the last counter update that a reading at t contains. */
static double tick_before(const struct fit_period *tick, double t_s)
{
	if (tick->changes == 0)
		return t_s;
	return tick->phase_s + floor((t_s - tick->phase_s) / tick->period_s) * tick->period_s;
}

/* Returns the time in the middle between two counter updates. At this time, it is certain which
 * update a reading contains. */
static double between_ticks(const struct fit_period *tick, double t_s)
{
	return tick->changes ? tick_before(tick, t_s) + 1.5 * tick->period_s : t_s;
}

struct reading {
	double t_s, width_s, joules; /* time, duration and result of the last reading */
	bool good;                   /* no reading failed, and the counter did not decrease */
	unsigned n;                  /* number of readings */
};

static void read_next(struct recorder *w, struct reading *r)
{
	struct sampler_device_counter c;
	double t_s;

	recorder_counter(w, &c, &t_s);
	if (c.why != GW_HAVE || (r->n && c.joules < r->joules))
		r->good = false;
	r->t_s = t_s;
	r->width_s = (double)(c.after_ns - c.before_ns) * 1e-9;
	r->joules = c.joules;
	r->n++;
}

/* Reads the counter such that it is certain which update the reading contains. A reading that
 * took too long (90 ms occurred) is repeated one update later. */
static void read_edge(struct learn *l, const struct fit_period *tick, uint64_t at_ns,
		      struct reading *r)
{
	for (unsigned tries = 0; tries < 4; tries++) {
		recorder_until(&l->w, at_ns);
		read_next(&l->w, r);
		if (tick->changes == 0 || r->width_s < 0.4 * tick->period_s)
			return;
		at_ns = recorder_next(at_ns, (uint64_t)(tick->period_s * 1e9),
				      clock_mono_ns(l->w.clock));
	}
}

/* Reads the counter at this interval for about length_s. Returns false if the counter failed or
 * was reset. */
static bool try_rate(struct learn *l, const struct fit_period *tick, double every_s,
		     double length_s, struct sensor_rate *ret, double *ret_unsteady)
{
	struct recorder *w = &l->w;
	struct reference ref = reference_of(l);
	struct reading first = { .good = true }, last;
	double from, to, begin = between_ticks(tick, recorder_s(w, clock_mono_ns(w->clock)));
	uint64_t step = (uint64_t)(every_s * 1e9), end, next;

	if (tick->changes)
		length_s = round(length_s / tick->period_s) * tick->period_s;
	next = recorder_ns(w, begin);
	end = recorder_ns(w, begin + length_s);
	read_edge(l, tick, next, &first);
	last = first;
	last.n = 1;
	next = recorder_next(next, step, clock_mono_ns(w->clock));
	while (next + step / 2 < end) {
		recorder_until(w, next);
		read_next(w, &last);
		next = recorder_next(next, step, clock_mono_ns(w->clock));
	}
	read_edge(l, tick, end, &last);
	recorder_until(w, clock_mono_ns(w->clock) + (uint64_t)((ref.lag_s + 0.15) * 1e9));
	recorder_drain(w);
	if (!last.good || !ref.trace)
		return last.good;
	from = tick_before(tick, first.t_s);
	to = tick_before(tick, last.t_s);
	ret->every_s = (last.t_s - first.t_s) / (last.n - 1);
	ret->counter_w = (last.joules - first.joules) / (to - from);
	ret->reference_w = fit_mean(ref.trace->p, ref.trace->n, from + ref.lag_s,
				    to + ref.lag_s, ret_unsteady);
	*ret_unsteady /= ret->reference_w;
	return true;
}

enum verdict { SAFE, DISTURBED, UNKNOWN };

/* Decides whether reading the counter at one rate disturbs the counter: compares the counter's
 * energy with that of the reference. If the power changes, the comparison is less strict,
 * because counter and reference differ at a boundary of the window. */
static enum verdict judge_rate(struct learn *l, const struct fit_period *tick, unsigned which,
			       double every_s, double length_s)
{
	struct sensor_rate *r = &l->s.rate[which];
	double unsteady = 0, allowed = SAFE_RATIO;

	if (!try_rate(l, tick, every_s, length_s, r, &unsteady) &&
	    !try_rate(l, tick, every_s, length_s, r, &unsteady))
		return DISTURBED; /* the counter failed or decreased twice in a row */
	if (!(r->reference_w > 0))
		return UNKNOWN;
	if (unsteady > 0.05)
		allowed = 0.03;
	if (tick->changes == 0)
		/* It is unknown which update of the counter a reading contains. */
		allowed += 0.82 * l->s.tick_s / length_s;
	return fabs(r->counter_w / r->reference_w - 1) <= allowed ? SAFE : DISTURBED;
}

static void learn_safety(struct learn *l, const struct fit_period *tick)
{
	static const double every_s[] = { [SENSOR_1_HZ] = 1,
					  [SENSOR_10_HZ] = 0.1,
					  [SENSOR_100_HZ] = 0.01,
					  [SENSOR_FLAT_OUT] = (double)FLAT_OUT_NS * 1e-9 };
	enum verdict once_a_second = UNKNOWN;

	l->w.poll_ns = 50 * NS_PER_MS;
	for (unsigned i = SENSOR_1_HZ; i <= SENSOR_FLAT_OUT; i++) {
		enum verdict v;

		learn_progress(l, "testing whether reading the counter disturbs it");
		v = judge_rate(l, tick, i, every_s[i], RATE_S);
		if (i == SENSOR_1_HZ)
			once_a_second = v;
	}
	if (once_a_second != DISTURBED)
		return;
	l->s.counter_safe_s = SLOW_S;
	learn_progress(l, "testing whether reading the counter every 10 s disturbs it");
	if (judge_rate(l, tick, SENSOR_10_S, SLOW_S, SLOW_S) != SAFE)
		l->s.counter_unsafe = true;
}

static void fill_cost(const struct recorder_cost *c, double *p50, double *p99)
{
	if (c->n == 0)
		return;
	*p50 = fit_quantile(c->s, c->n, 0.5);
	*p99 = fit_quantile(c->s, c->n, 0.99);
}

static void learn_costs(struct learn *l)
{
	struct sensor *s = &l->s;

	fill_cost(&l->w.poll_cost, &s->instant.call_p50_s, &s->instant.call_p99_s);
	s->average.call_p50_s = s->instant.call_p50_s; /* one call returns both values */
	s->average.call_p99_s = s->instant.call_p99_s;
	fill_cost(&l->w.ring_cost, &s->ring.call_p50_s, &s->ring.call_p99_s);
	fill_cost(&l->w.counter_cost, &s->counter_p50_s, &s->counter_p99_s);
}

/* Returns 0, or -GW_E_LOST if the device no longer answers; the result is then unusable. */
static int still_present(struct learn *l)
{
	recorder_due(&l->w);
	if (l->w.r.state == GW_DEVICE_OK)
		return 0;
	snprintf(l->message, l->size, "%s", l->w.r.message);
	return -GW_E_LOST;
}

static int learn_all(struct learn *l)
{
	struct recorder *w = &l->w;
	struct fit_period tick;
	int err;

	sampler_device_read(w->device, GW_TIERS_COMMON | GW_TIER_ENERGY, true, &w->r);
	err = still_present(l);
	if (!err && l->plan->drive)
		err = sensor_active_alone(l);
	if (err)
		return err;
	sensor_assume(&l->s, &w->r);
	w->average_quantity = sensor_average_quantity(&w->r);
	recorder_drain(w);
	if (w->ring_error)
		l->s.ring.why = GW_ABSENT_NOT_SUPPORTED;
	if (l->s.instant.why != GW_HAVE && l->s.average.why != GW_HAVE &&
	    l->s.ring.why != GW_HAVE && l->s.counter != GW_HAVE) {
		snprintf(l->message, l->size, "the GPU reports neither power nor energy: %s",
			 gw_absence_text(l->s.average.why));
		return -GW_E_NOSUPPORT;
	}
	learn_values(l);
	learn_ring(l);
	if (l->s.counter == GW_HAVE)
		learn_tick(l, &tick);
	if (l->s.counter == GW_HAVE)
		learn_safety(l, &tick);
	l->s.origin = SENSOR_PASSIVE;
	err = l->plan->drive ? sensor_active(l) : 0;
	return err ? err : still_present(l);
}

int sensor_learn(struct sampler_device *sd, const struct sensor_plan *plan, struct sensor *ret,
		 char *message, size_t size)
{
	struct learn *l = calloc(1, sizeof(*l));
	int err = -GW_E_NOMEM;

	if (size)
		message[0] = '\0';
	if (l) {
		l->plan = plan;
		l->begin_ns = clock_mono_ns(sd->clock);
		l->expected_s = PASSIVE_S + (plan->drive ? ACTIVE_S : 0);
		l->message = message;
		l->size = size;
		err = recorder_init(&l->w, sd);
	}
	if (!err)
		err = learn_all(l);
	if (!err) {
		learn_costs(l);
		l->s.wall_ns = clock_wall_ns(sd->clock);
		*ret = l->s;
	}
	if (err && size && !message[0])
		snprintf(message, size, "%s", gw_strerror(err));
	if (l)
		free(l->w.memory);
	free(l);
	return err;
}
