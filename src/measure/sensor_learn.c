/* Learning what a card's meters do, without a load. */
#include "sensor_active.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERIODS_S  12. /* at most, until every value has changed often enough */
#define TICK_S     3.  /* reading the counter without a pause                 */
#define RATE_S     5.  /* at each rate                                        */
#define SLOW_S     10. /* between the two readings of the slowest rate        */
#define SAFE_RATIO 0.005
#define CHEAP_S    1e-4 /* a reading every 1 ms then costs less than a tenth of a core */
#define PASSIVE_S  (PERIODS_S + TICK_S + 4 * RATE_S + 1)

/* A reading takes 3 ms where the counter is slow; where it is not, or time is stepped, the time
 * still has to move. */
#define FLAT_OUT_NS NS_PER_MS

void learn_say(const struct learn *l, const char *what)
{
	double passed = (double)(clock_mono_ns(l->w.clock) - l->begin_ns) * 1e-9;

	if (l->plan->progress)
		l->plan->progress(l->plan->ctx, what, fmin(passed / l->expected_s, 1));
}

/* ---- values ---- */

void learn_period(struct learn *l, const struct watch_trace *t, struct sensor_source *s)
{
	struct fit_period f;
	unsigned changes = t->n ? t->n - 1 : 0; /* the first was there before we came */

	for (unsigned i = 0; i < changes; i++)
		l->work[i] = t->p[i + 1].t_s;
	if (changes <= s->changes || fit_period(l->work, changes, l->work2, &f) != 0)
		return;
	s->period_s = f.period_s;
	s->changes = changes;
}

static bool seen_enough(const struct watch_trace *t, const struct sensor_source *s)
{
	return s->why != GW_HAVE || t->n > SENSOR_CHANGES;
}

/* Where the driver renews a value when it is asked for one that is old, the period comes out too
 * long by up to one poll: a cheap reading is made more often.  For a reading from text a program
 * is started, and a hundred a second would be a load. */
static void choose_poll(struct event_watch *w)
{
	watch_until(w, clock_mono_ns(w->clock) + NS_PER_S / 4);
	if (w->r.provenance == GW_FROM_TEXT)
		w->poll_ns = 100 * NS_PER_MS;
	else if (fit_quantile(w->poll_cost.s, w->poll_cost.n, 0.5) < CHEAP_S)
		w->poll_ns = NS_PER_MS;
	watch_clear_values(w);
}

static void learn_values(struct learn *l)
{
	struct event_watch *w = &l->w;
	uint64_t end = clock_mono_ns(w->clock) + (uint64_t)(PERIODS_S * 1e9);

	choose_poll(w);
	while (clock_mono_ns(w->clock) < end && !(seen_enough(&w->instant, &l->s.instant) &&
						  seen_enough(&w->average, &l->s.average))) {
		learn_say(l, "how often values are new");
		watch_until(w, clock_mono_ns(w->clock) + NS_PER_S / 4);
	}
	learn_period(l, &w->instant, &l->s.instant);
	learn_period(l, &w->average, &l->s.average);
}

/* ---- ring ---- */

#define STAMPS_AGREE_S 60 /* the wall clock, or another one */

static void learn_ring(struct learn *l)
{
	const struct watch_trace *t = &l->w.ring;
	struct sensor *s = &l->s;
	unsigned n = 0, distinct = 1;

	watch_drain(&l->w);
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
	/* By the driver's own stamps within one fetch: gaps across two hang on our clocks too. */
	for (unsigned i = 1; i < l->w.ring_count; i++)
		distinct += l->w.ring_before[i].wall_us != l->w.ring_before[i - 1].wall_us;
	s->ring.period_s = distinct > 1 ? s->ring_span_s / (distinct - 1) : NAN;
	s->ring.changes = n;
	s->ring_wall = fabs(l->w.ring_age_s) < STAMPS_AGREE_S + 3 * s->ring.period_s;
}

/* ---- counter ---- */

/* When the counter stepped: between the reading before and the one that saw it. */
static void learn_tick(struct learn *l, struct fit_period *ret)
{
	struct event_watch *w = &l->w;
	uint64_t now = clock_mono_ns(w->clock), end = now + (uint64_t)(TICK_S * 1e9);
	uint64_t next = now;
	double before_s = NAN, before_j = NAN, t_s;
	struct sampler_device_counter c;
	unsigned n = 0;

	*ret = (struct fit_period){ NAN, NAN, 0 };
	learn_say(l, "how the energy counter ticks");
	while (clock_mono_ns(w->clock) < end) {
		watch_counter(w, &c, &t_s);
		if (c.why != GW_HAVE) {
			l->s.counter = c.why;
			return;
		}
		if (c.joules > before_j && n < WATCH_POINTS)
			l->work[n++] = (before_s + t_s) / 2;
		before_s = t_s;
		before_j = c.joules;
		next = watch_next(next, FLAT_OUT_NS, clock_mono_ns(w->clock));
		clock_sleep_until(w->clock, next);
	}
	l->s.counter = GW_HAVE;
	if (fit_period(l->work, n, l->work2, ret) != 0)
		return;
	l->s.tick_s = ret->period_s;
	l->s.ticks = ret->changes + 1;
}

struct reference {
	const struct watch_trace *trace;
	double lag_s;
};

/* What the counter is held against: the ring where it is dense, else the mean, else the rest. */
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

/* The tick whose energy a reading at t tells. */
static double tick_before(const struct fit_period *tick, double t_s)
{
	if (tick->changes == 0)
		return t_s;
	return tick->phase_s + floor((t_s - tick->phase_s) / tick->period_s) * tick->period_s;
}

/* The middle between two ticks, where it is certain which one a reading tells. */
static double between_ticks(const struct fit_period *tick, double t_s)
{
	return tick->changes ? tick_before(tick, t_s) + 1.5 * tick->period_s : t_s;
}

struct reading {
	double t_s, width_s, joules;
	bool good; /* nothing failed, and the counter did not go back */
	unsigned n;
};

static void read_on(struct event_watch *w, struct reading *r)
{
	struct sampler_device_counter c;
	double t_s;

	watch_counter(w, &c, &t_s);
	if (c.why != GW_HAVE || (r->n && c.joules < r->joules))
		r->good = false;
	r->t_s = t_s;
	r->width_s = (double)(c.after_ns - c.before_ns) * 1e-9;
	r->joules = c.joules;
	r->n++;
}

/* A reading of which it is certain which tick it tells: one that took too long (90 ms were seen)
 * is made again a tick later. */
static void read_edge(struct learn *l, const struct fit_period *tick, uint64_t at_ns,
		      struct reading *r)
{
	for (unsigned tries = 0; tries < 4; tries++) {
		watch_until(&l->w, at_ns);
		read_on(&l->w, r);
		if (tick->changes == 0 || r->width_s < 0.4 * tick->period_s)
			return;
		at_ns = watch_next(at_ns, (uint64_t)(tick->period_s * 1e9),
				   clock_mono_ns(l->w.clock));
	}
}

/* Reads every so often over about length_s.  False: the counter failed or began anew. */
static bool try_rate(struct learn *l, const struct fit_period *tick, double every_s,
		     double length_s, struct sensor_rate *ret, double *ret_unsteady)
{
	struct event_watch *w = &l->w;
	struct reference ref = reference_of(l);
	struct reading first = { .good = true }, last;
	double from, to, begin = between_ticks(tick, watch_s(w, clock_mono_ns(w->clock)));
	uint64_t step = (uint64_t)(every_s * 1e9), end, next;

	if (tick->changes)
		length_s = round(length_s / tick->period_s) * tick->period_s;
	next = watch_ns(w, begin);
	end = watch_ns(w, begin + length_s);
	read_edge(l, tick, next, &first);
	last = first;
	last.n = 1;
	next = watch_next(next, step, clock_mono_ns(w->clock));
	while (next + step / 2 < end) {
		watch_until(w, next);
		read_on(w, &last);
		next = watch_next(next, step, clock_mono_ns(w->clock));
	}
	read_edge(l, tick, end, &last);
	watch_until(w, clock_mono_ns(w->clock) + (uint64_t)((ref.lag_s + 0.15) * 1e9));
	watch_drain(w);
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

enum verdict { SAFE, HURT, UNKNOWN };

/* Power that moves is compared less sharply: what the two meters make of an edge differs. */
static enum verdict judge_rate(struct learn *l, const struct fit_period *tick, unsigned which,
			       double every_s, double length_s)
{
	struct sensor_rate *r = &l->s.rate[which];
	double unsteady = 0, allowed = SAFE_RATIO;

	if (!try_rate(l, tick, every_s, length_s, r, &unsteady) &&
	    !try_rate(l, tick, every_s, length_s, r, &unsteady))
		return HURT; /* twice in a row it failed or went back */
	if (!(r->reference_w > 0))
		return UNKNOWN;
	if (unsteady > 0.05)
		allowed = 0.03;
	if (tick->changes == 0)
		allowed += 0.82 * l->s.tick_s / length_s; /* which tick was read is unknown */
	return fabs(r->counter_w / r->reference_w - 1) <= allowed ? SAFE : HURT;
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

		learn_say(l, "whether reading the counter hurts it");
		v = judge_rate(l, tick, i, every_s[i], RATE_S);
		if (i == SENSOR_1_HZ)
			once_a_second = v;
	}
	if (once_a_second != HURT)
		return;
	l->s.counter_safe_s = SLOW_S;
	learn_say(l, "whether reading it seldom does");
	if (judge_rate(l, tick, SENSOR_10_S, SLOW_S, SLOW_S) != SAFE)
		l->s.counter_unsafe = true;
}

/* ---- all ---- */

static void settle_cost(const struct watch_cost *c, double *p50, double *p99)
{
	if (c->n == 0)
		return;
	*p50 = fit_quantile(c->s, c->n, 0.5);
	*p99 = fit_quantile(c->s, c->n, 0.99);
}

static void learn_costs(struct learn *l)
{
	struct sensor *s = &l->s;

	settle_cost(&l->w.poll_cost, &s->instant.call_p50_s, &s->instant.call_p99_s);
	s->average.call_p50_s = s->instant.call_p50_s; /* one call tells both */
	s->average.call_p99_s = s->instant.call_p99_s;
	settle_cost(&l->w.ring_cost, &s->ring.call_p50_s, &s->ring.call_p99_s);
	settle_cost(&l->w.counter_cost, &s->counter_p50_s, &s->counter_p99_s);
}

/* What was learned of a device that went away meanwhile is worth nothing. */
static int still_there(struct learn *l)
{
	watch_due(&l->w);
	if (l->w.r.state == GW_DEVICE_OK)
		return 0;
	snprintf(l->message, l->size, "%s", l->w.r.message);
	return -GW_E_LOST;
}

static int learn(struct learn *l)
{
	struct event_watch *w = &l->w;
	struct fit_period tick;
	int err;

	sampler_device_read(w->tap, GW_TIERS_COMMON | GW_TIER_ENERGY, true, &w->r);
	err = still_there(l);
	if (!err && l->plan->drive)
		err = sensor_active_alone(l);
	if (err)
		return err;
	sensor_assume(&l->s, &w->r);
	w->average_quantity = sensor_average_quantity(&w->r);
	watch_drain(w);
	if (w->ring_error)
		l->s.ring.why = GW_ABSENT_NOT_SUPPORTED;
	if (l->s.instant.why != GW_HAVE && l->s.average.why != GW_HAVE &&
	    l->s.ring.why != GW_HAVE && l->s.counter != GW_HAVE) {
		snprintf(l->message, l->size, "it tells neither power nor energy: %s",
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
	return err ? err : still_there(l);
}

int sensor_learn(struct sampler_device *t, const struct sensor_plan *plan, struct sensor *ret,
		 char *message, size_t size)
{
	struct learn *l = calloc(1, sizeof(*l));
	int err = -GW_E_NOMEM;

	if (size)
		message[0] = '\0';
	if (l) {
		l->plan = plan;
		l->begin_ns = clock_mono_ns(t->clock);
		l->expected_s = PASSIVE_S + (plan->drive ? ACTIVE_S : 0);
		l->message = message;
		l->size = size;
		err = watch_init(&l->w, t);
	}
	if (!err)
		err = learn(l);
	if (!err) {
		learn_costs(l);
		l->s.wall_ns = clock_wall_ns(t->clock);
		*ret = l->s;
	}
	if (l)
		watch_done(&l->w);
	free(l);
	return err;
}
