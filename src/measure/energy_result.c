/* Computes the energy from the counter and from the samples with their uncertainties, and
 * chooses between them. */
#include "energy_parts.h"
#include "stat.h"

#include <math.h>
#include <string.h>

/* Counter and samples agree if they differ by at most this ratio or by three standard
 * uncertainties. */
#define AGREE_RATIO 0.02
/* Relative standard uncertainty of samples that no counter verifies. On an H200, samples and
 * counter differed by up to 1.5 %, which is 1.5 standard uncertainties. */
#define UNANCHORED    0.01
#define ANCHOR_NS     (10 * NS_PER_S) /* minimum time between the two readings of a ratio */
#define COVERAGE_LOW  0.98            /* a lower coverage gives the code low-coverage */
#define COVERAGE_FILL 0.90            /* gaps are not filled if the coverage is lower */
/* The difference between counter and samples depends on the load. On an H200, the difference
 * varies by this ratio among loads of equal power. */
#define FLOOR_RATIO  0.003
#define STEADY_MEANS 64    /* a trend is looked for in at most this many seconds */
#define STEADY_LEAST 20    /* a trend needs at least this many seconds */
#define STEADY_RATIO 0.02  /* a larger trend, relative to the mean, gives a code */
#define LAG_U_S      0.003 /* uncertainty of the lag of counters and samples */

/* Some sensors update their value when they are polled. Such updates can get out of step with
 * the polls: then a value is read twice, or no value covers the time between two polls. For
 * simulated square waves with periods of 0.15 to 0.3 s, the error was up to 0.2 standard
 * deviations of their power; half of this is the standard uncertainty. */
#define SLIP_RATIO 0.1

void energy_interval_add(struct gw_interval *to, const struct gw_interval *v, bool alike)
{
	double below = to->best - to->low, above = to->high - to->best;

	below = alike ? below + (v->best - v->low) : hypot(below, v->best - v->low);
	above = alike ? above + (v->high - v->best) : hypot(above, v->high - v->best);
	to->best += v->best;
	to->low = to->best - below;
	to->high = to->best + above;
}

enum gw_validity energy_validity(uint64_t codes)
{
	enum gw_validity worst = GW_VALID;

	for (unsigned c = 0; c < GW_CODES; c++)
		if (codes >> c & 1 && gw_code_info(c)->level > worst)
			worst = gw_code_info(c)->level;
	return worst;
}

static void energy_code(struct gw_energy *r, unsigned c)
{
	r->codes |= code_bit(c);
}

static double energy_percentile(const struct energy_window *w, double share)
{
	double want = share * w->seen_s, sum = 0;

	if (!(w->seen_s > 0))
		return NAN;
	for (unsigned b = 0; b < ENERGY_BUCKETS; b++) {
		sum += (double)w->bucket[b];
		if (sum >= want && sum > 0)
			return fmin(fmax(energy_bucket_watts(b), w->min_w), w->max_w);
	}
	return w->max_w;
}

/* Energy and uncertainties from the counter and from the samples. */
struct meters {
	double counter_j, samples_j; /* energy; NAN: unknown */
	double counter_u, samples_u; /* total standard uncertainty */
	/* the parts of samples_u; anchor_u is relative to the energy */
	double boundaries_samples, gaps, coverage, anchor_u;
};

static void notes_inside(const struct energy *e, const struct energy_window *w,
			 struct gw_energy *r)
{
	uint64_t n = e->notes < ENERGY_NOTES ? e->notes : ENERGY_NOTES;

	for (uint64_t i = 0; i < n; i++)
		if (e->note[i].t_ns >= w->begin_ns &&
		    (!w->end_ns || e->note[i].t_ns <= r->end_ns + NS_PER_S))
			energy_code(r, e->note[i].code);
}

/* Fills in minimum and maximum. The window usually begins and ends between two samples. Mean
 * and deviation include the interpolated power at these times, so minimum and maximum include
 * it, too, unless the window has a gap. */
static void power_range(const struct energy *e, const struct energy_window *w,
			struct gw_energy *r)
{
	bool hole = w->end.point.hole_s > w->begin.point.hole_s;
	double begin_w = hole ? NAN : w->begin_w;
	double end_w = hole ? NAN : energy_watts(e, w->end_ns);

	r->power_min = fmin(fmin(w->min_w, r->power_mean), fmin(begin_w, end_w));
	r->power_max = fmax(fmax(w->max_w, r->power_mean), fmax(begin_w, end_w));
}

static void power_figures(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	double seen = r->seconds - (w->end.point.hole_s - w->begin.point.hole_s);
	double joules = w->end.point.joules - w->begin.point.joules;
	double expected = r->seconds / e->set.spacing_s;

	r->coverage_ratio = fmax(0, fmin(1, seen / r->seconds));
	r->longest_gap_seconds = w->longest_s;
	r->sample_spacing_seconds = e->set.spacing_s;
	r->samples_collected = w->collected;
	r->samples_expected = (uint64_t)llround(expected);
	r->samples_missed = (uint64_t)llround((w->end.point.hole_s - w->begin.point.hole_s) /
					      e->set.spacing_s);
	if (!(seen > 0))
		return;
	r->power_mean = joules / seen;
	r->power_sd = sqrt(fmax(0, (w->end.point.square - w->begin.point.square) / seen -
					   sq(r->power_mean)));
	power_range(e, w, r);
	r->power_p5 = energy_percentile(w, 0.05);
	r->power_p50 = energy_percentile(w, 0.5);
	r->power_p95 = energy_percentile(w, 0.95);
}

/* Returns the energy of the counter divided by the energy of the samples, between two counter
 * readings. Of all suitable pairs of readings, the pair with the smallest uncertainty is
 * used. */
static double anchor_ratio(const struct energy *e, const struct energy_window *w,
			   uint64_t end_ns, double *ret_u)
{
	uint64_t n = e->reads < ENERGY_READS ? e->reads : ENERGY_READS;
	double best_u = INFINITY, ratio = 1;

	for (uint64_t i = 0; i < n; i++)
		for (uint64_t k = 0; k < n; k++) {
			const struct energy_read *a = &e->read[i], *b = &e->read[k];
			struct energy_point pa, pb;
			uint64_t ta, tb;
			double span, joules, u;

			if (a->epoch != b->epoch || a->epoch != e->epoch ||
			    b->before_ns < a->before_ns + ANCHOR_NS)
				continue;
			/* The first reading must be before the window. The second one must be
			 * after the window, or not longer before the end of the window than the
			 * time between the two readings. */
			if (a->before_ns > w->begin_ns ||
			    (b->before_ns < end_ns &&
			     end_ns - b->before_ns > b->before_ns - a->before_ns))
				continue;
			ta = energy_update_time(e, a);
			tb = energy_update_time(e, b);
			if (energy_at(e, ta, &pa) != 0 || energy_at(e, tb, &pb) != 0 ||
			    pb.hole_s > pa.hole_s)
				continue;
			span = span_s(ta, tb);
			joules = pb.joules - pa.joules;
			if (!(joules > 0))
				continue;
			u = M_SQRT2 *
			    (e->phase_known ? e->phase_u_s : e->set.sensor.tick_s / sqrt(12)) /
			    span;
			if (u < best_u) {
				best_u = u;
				ratio = (b->joules - a->joules) / joules;
			}
		}
	/* There are no such readings, or their ratio is implausible. */
	if (isinf(best_u) || fabs(ratio - 1) > 0.1) {
		*ret_u = UNANCHORED;
		return 1;
	}
	*ret_u = best_u;
	return ratio;
}

static double boundary_u(const struct energy *e, const struct energy_boundary *boundary,
			 double watts)
{
	double width =
		span_s(boundary->read.before_ns, boundary->read.after_ns) / sqrt(12) * watts;
	double tick = e->set.sensor.tick_s;
	double phase = boundary->tick_known ? hypot(boundary->tick_slope_w * tick / sqrt(12),
						    watts * e->phase_u_s)
					    : watts * tick / sqrt(12);

	return hypot(width, phase);
}

/* Returns the uncertainty from the lag. If the lag is wrong, the whole window is shifted: it
 * then includes too much energy at one boundary and too little at the other. */
static double lateness_u(const struct energy *e, const struct energy_window *w)
{
	double change = fabs(energy_watts(e, w->end_ns) - w->begin_w);

	return isnan(change) ? 0 : change * LAG_U_S;
}

/* Returns the energy between the counter's last update and the boundary, from the samples. */
static double tail_j(const struct energy_boundary *boundary)
{
	return boundary->point.joules - boundary->tick.joules + boundary->point.hole_j -
	       boundary->tick.hole_j;
}

/* Computes the energy from the counter; samples fill the time between the counter's updates and
 * the boundaries. */
static void counter_meter(const struct energy *e, const struct energy_window *w,
			  const struct gw_energy *r, struct meters *m)
{
	const struct energy_read *a = &w->begin.read, *b = &w->end.read;
	double tail_a, tail_b, watts;

	if (!e->set.counter || !a->before_ns || !b->before_ns || a->epoch != b->epoch ||
	    b->before_ns <= a->before_ns)
		return;
	tail_a = tail_j(&w->begin);
	tail_b = tail_j(&w->end);
	m->counter_j = fmax(0, b->joules - a->joules + tail_b - tail_a);
	watts = isnan(r->power_mean) ? m->counter_j / r->seconds : r->power_mean;
	/* Use the power at the start or end of the window if it is higher than the mean
	 * power. */
	m->counter_u = hypot(boundary_u(e, &w->begin, fmax(watts, w->begin_w)),
			     boundary_u(e, &w->end, fmax(watts, energy_watts(e, w->end_ns))));
	/* A counter reading that several windows use is not exactly at the start or end of this
	 * window. Samples fill the time in between, so their error is added. */
	m->counter_u = hypot(m->counter_u, UNANCHORED * hypot(tail_a, tail_b));
	m->counter_u = hypot(m->counter_u, lateness_u(e, w));
}

/* Computes the energy from the counter alone, if no samples cover the boundaries: takes the
 * mean power between the two counter readings nearest to the start and to the end of the
 * window, and multiplies it by the length of the window. */
static void bare_counter(const struct energy *e, const struct energy_window *w,
			 const struct gw_energy *r, struct meters *m)
{
	const struct energy_read *a = energy_nearest(e, w->begin_ns);
	const struct energy_read *b = energy_nearest(e, r->end_ns);
	double apart, watts;

	if (!e->set.counter || !a || !b || a->epoch != b->epoch || b->before_ns <= a->before_ns)
		return;
	apart = span_s(energy_middle(a), energy_middle(b));
	watts = (b->joules - a->joules) / apart;
	m->counter_j = watts * r->seconds;
	m->counter_u = M_SQRT2 * watts * e->set.sensor.tick_s / sqrt(12) +
		       watts * fabs(apart - r->seconds);
}

/* Estimates the energy of missing samples from the power on both sides of the gap, or from the
 * last sample. */
static double gap_energy(const struct energy_window *w)
{
	return w->end.point.hole_j - w->begin.point.hole_j;
}

/* Returns the least standard uncertainty of the gaps. If more than a tenth of the window is
 * missing, the energy of the gaps may be anything from 0 to twice the estimate. */
static double least_gaps_u(const struct energy_window *w, const struct gw_energy *r)
{
	return r->coverage_ratio < COVERAGE_FILL ? gap_energy(w) / sqrt(3) : 0;
}

/* Returns the share of fast power changes (as fast as the sampling) that passes the filter of
 * the sensor. These changes cause the error of a sum of samples. */
static double energy_leak(const struct energy *e)
{
	double x = e->set.window_s / e->set.spacing_s;

	if (e->set.shape == SHAPE_RING && e->set.sensor.ring.model == SENSOR_LOWPASS)
		return 1 / sqrt(1 + sq(2 * M_PI * x));
	return x > 1e-3 && x < 1 ? fabs(sin(M_PI * x) / (M_PI * x)) : x < 1 ? 1 : 0.1;
}

static void samples_meter(const struct energy *e, const struct energy_window *w,
			  const struct gw_energy *r, struct meters *m)
{
	double reach = energy_reach_s(e), n = fmax(1, (double)w->collected), sampling;

	if (!w->begin.known || !(r->coverage_ratio > 0))
		return;
	m->samples_j = w->end.point.joules - w->begin.point.joules;
	m->boundaries_samples = hypot(
		hypot(w->begin.slope_w, w->end.slope_w) * reach / sqrt(12), lateness_u(e, w));
	m->gaps = sqrt(fmax(0, w->end.point.hole_var - w->begin.point.hole_var));
	m->gaps = fmax(m->gaps, least_gaps_u(w, r));
	sampling = energy_leak(e) * sqrt(w->noise_square / (2 * n)) * r->seconds / sqrt(n);
	m->coverage =
		hypot(sampling, (1 - e->set.look_ratio) * r->power_sd * r->seconds / sqrt(n));
	if (energy_unwatched(e))
		m->coverage = hypot(m->coverage, SLIP_RATIO * r->power_sd * r->seconds);
	/* If the sensor has its own clock, a load with the same period looks constant: add the
	 * uncertainty that such a load causes. */
	m->coverage = hypot(m->coverage, energy_hidden_ratio(e, w) * m->samples_j);
	m->samples_u = sqrt(sq(m->boundaries_samples) + sq(m->gaps) + sq(m->coverage));
}

enum gw_rung energy_rung(const struct energy_setup *set)
{
	bool counter = set->counter;

	switch (set->shape) {
	case SHAPE_RING: return counter ? GW_RUNG_COUNTER_RING : GW_RUNG_RING;
	case SHAPE_INSTANT: return counter ? GW_RUNG_COUNTER_POLLED : GW_RUNG_POLLED;
	case SHAPE_MEAN: return counter ? GW_RUNG_COUNTER_POLLED : GW_RUNG_MEAN;
	case SHAPE_TEXT: return GW_RUNG_TEXT;
	case SHAPE_SYSFS: return GW_RUNG_SYSFS;
	case SHAPE_NONE: break;
	}
	return counter ? GW_RUNG_COUNTER_POLLED : GW_RUNG_NONE;
}

static enum gw_verdict single_verdict(const struct energy *e, bool counter)
{
	static const enum gw_verdict of[] = {
		[SHAPE_NONE] = GW_VERDICT_COUNTER_ONLY, [SHAPE_RING] = GW_VERDICT_SAMPLES_ONLY,
		[SHAPE_INSTANT] = GW_VERDICT_POLLED,    [SHAPE_MEAN] = GW_VERDICT_MEAN_ONLY,
		[SHAPE_TEXT] = GW_VERDICT_TEXT,         [SHAPE_SYSFS] = GW_VERDICT_SYSFS,
	};

	if (e->set.shape == SHAPE_SYSFS)
		return GW_VERDICT_SYSFS;
	return counter ? GW_VERDICT_COUNTER_ONLY : of[e->set.shape];
}

/* Chooses between the results of the counter and of the samples, by the smaller uncertainty.
 * The counter is also chosen if the uncertainties are equal or if the results disagree, because
 * a counter is used only if reading does not disturb it and if it never decreased. */
static void energy_choose(const struct energy *e, const struct energy_window *w,
			  struct gw_energy *r, struct meters *m)
{
	bool counter = !isnan(m->counter_j), samples = !isnan(m->samples_j);
	double filled = samples ? m->samples_j + r->gap_joules : NAN;

	r->counter_joules = m->counter_j;
	r->samples_joules = m->samples_j;
	if (counter && samples && r->coverage_ratio >= COVERAGE_FILL) {
		double sigma = hypot(m->counter_u, m->samples_u) / fmax(m->counter_j, 1e-9);

		r->residual_ratio = m->counter_j > 0 ? filled / m->counter_j - 1 : NAN;
		if (fabs(r->residual_ratio) <= fmax(AGREE_RATIO, 3 * sigma)) {
			r->verdict = GW_VERDICT_AGREE;
		} else {
			r->verdict = GW_VERDICT_DISAGREE;
			energy_code(r, GW_CODE_METERS_DISAGREE);
		}
		if (fabs(m->counter_j - filled) > 2 * sigma * m->counter_j)
			r->budget[GW_BUDGET_RESIDUAL] = fabs(m->counter_j - filled) / sqrt(3);
	} else {
		/* Samples with large gaps cannot verify the counter. */
		r->verdict = counter || samples ? single_verdict(e, counter) : GW_VERDICT_NONE;
		samples = samples && !counter;
	}
	if (samples) {
		r->anchor_ratio =
			e->set.counter ? anchor_ratio(e, w, r->end_ns, &m->anchor_u) : 1;
		/* Without a counter, anchor_u is 0, because the uncertainty of the gain
		 * contains this error. */
		m->samples_u = hypot(m->samples_u, m->anchor_u * filled);
	}
	if (counter &&
	    (!samples || r->verdict == GW_VERDICT_DISAGREE || m->counter_u <= m->samples_u)) {
		r->meter = GW_METER_COUNTER;
		r->joules.best = m->counter_j;
		r->budget[GW_BUDGET_EDGES] = m->counter_u;
	} else if (samples) {
		r->meter = GW_METER_SAMPLES;
		r->joules.best = filled * r->anchor_ratio;
		r->budget[GW_BUDGET_EDGES] = m->boundaries_samples;
		r->budget[GW_BUDGET_GAPS] = m->gaps;
		r->budget[GW_BUDGET_COVERAGE] = m->coverage;
		r->budget[GW_BUDGET_RESIDUAL] = fmax(r->budget[GW_BUDGET_RESIDUAL],
						     hypot(m->anchor_u, FLOOR_RATIO) * filled);
	}
}

static void sum_up(const struct energy *e, struct gw_energy *r)
{
	double best = r->joules.best;

	r->budget[GW_BUDGET_GAIN] = e->set.sensor.calibration.gain_u * best;
	r->budget[GW_BUDGET_OFFSET] = e->set.sensor.calibration.offset_u_w * r->seconds;
	r->u_relative = r->u_absolute = 0;
	for (unsigned i = 0; i < GW_BUDGETS; i++) {
		r->u_absolute = hypot(r->u_absolute, r->budget[i]);
		if (i != GW_BUDGET_GAIN && i != GW_BUDGET_OFFSET)
			r->u_relative = hypot(r->u_relative, r->budget[i]);
	}
	r->relative = (struct gw_interval){ fmax(0, best - K95 * r->u_relative), best,
					    best + K95 * r->u_relative };
	r->joules = (struct gw_interval){ fmax(0, best - K95 * r->u_absolute), best,
					  best + K95 * r->u_absolute };
}

/* Computes the energy of a window that is shorter than the period of the sensor: uses the power
 * at the time of the window, with bounds from the samples around the window. */
static void below_period(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	double floor_w, ceiling_w, watts;

	energy_code(r, GW_CODE_SUB_PERIOD);
	if (!energy_extremes(e, w->begin_ns > ENERGY_NEAR_NS ? w->begin_ns - ENERGY_NEAR_NS : 0,
			     w->begin_ns + ENERGY_NEAR_NS, &floor_w, &ceiling_w))
		return;
	if (w->begin.known && w->end.known && r->seconds > 0) {
		r->gap_joules = gap_energy(w);
		r->budget[GW_BUDGET_GAPS] = least_gaps_u(w, r);
		watts = (w->end.point.joules - w->begin.point.joules + r->gap_joules) /
			r->seconds;
	} else {
		watts = energy_watts(e, w->begin_ns);
	}
	if (isnan(watts))
		watts = 0.5 * (floor_w + ceiling_w);
	/* The sensor smooths its samples, so the true minimum and maximum may be slightly
	 * beyond them. */
	floor_w *= 0.98;
	ceiling_w *= 1.02;
	r->meter = GW_METER_SAMPLES;
	r->joules.best = watts * r->seconds;
	sum_up(e, r);
	r->relative.low = fmin(r->relative.low, floor_w * r->seconds);
	r->relative.high = fmax(r->relative.high, ceiling_w * r->seconds);
	r->joules.low = fmin(r->joules.low, r->relative.low);
	r->joules.high = fmax(r->joules.high, r->relative.high);
}

/* Removes an earlier calibration from joules. The last bits may differ from the original. */
static double uncalibrated(const struct gw_energy *r, double joules)
{
	return r->calibrated ? (joules - r->offset_watts * r->seconds) / r->gain : joules;
}

void energy_calibrate(struct gw_energy *r, const struct sensor_calibration *c)
{
	double raw = r->calibrated ? r->raw_joules : r->joules.best;
	double scale = c->gain / (r->calibrated ? r->gain : 1), more = c->offset_w * r->seconds;
	double *u = r->budget;

	if (isnan(raw))
		return;
	r->relative =
		(struct gw_interval){ fmax(0,
					   c->gain * uncalibrated(r, r->relative.low) + more),
				      fmax(0, c->gain * raw + more),
				      c->gain * uncalibrated(r, r->relative.high) + more };
	r->raw_joules = raw;
	r->u_relative *= scale;
	for (unsigned i = 0; i < GW_BUDGETS; i++)
		u[i] *= scale;
	u[GW_BUDGET_GAIN] = hypot(c->gain_u * (raw - c->pivot_w * r->seconds),
				  c->reference_u * r->relative.best);
	u[GW_BUDGET_OFFSET] = c->offset_u_w * r->seconds;
	r->u_absolute = hypot(r->u_relative, hypot(u[GW_BUDGET_GAIN], u[GW_BUDGET_OFFSET]));
	r->joules = (struct gw_interval){
		fmin(r->relative.low, fmax(0, r->relative.best - K95 * r->u_absolute)),
		r->relative.best, fmax(r->relative.high, r->relative.best + K95 * r->u_absolute)
	};
	r->calibrated = c->done;
	r->gain = c->gain;
	r->offset_watts = c->offset_w;
}

static void interval_widen(struct gw_interval *v, double more)
{
	*v = (struct gw_interval){ fmax(0, v->best - hypot(v->best - v->low, more)), v->best,
				   v->best + hypot(v->high - v->best, more) };
}

void energy_late(struct gw_energy *r, double seconds)
{
	double more = seconds * (isnan(r->power_max) ? r->power_mean : r->power_max);

	if (!(more > 0) || isnan(r->joules.best))
		return;
	if (more > r->relative.best - r->relative.low) {
		energy_code(r, GW_CODE_LATE_EDGES);
		r->validity = r->validity > GW_SUSPECT ? r->validity : GW_SUSPECT;
	}
	interval_widen(&r->relative, more);
	interval_widen(&r->joules, more);
	r->budget[GW_BUDGET_EDGES] = hypot(r->budget[GW_BUDGET_EDGES], more / K95);
	r->u_relative = hypot(r->u_relative, more / K95);
	r->u_absolute = hypot(r->u_absolute, more / K95);
}

/* Sets the result of a window without any sample: all contributions to the uncertainty are 0,
 * and nothing is calibrated. */
static void energy_begin(struct gw_energy *r)
{
	energy_unknown(r);
	for (unsigned i = 0; i < GW_BUDGETS; i++)
		r->budget[i] = 0;
	r->seconds = r->longest_gap_seconds = r->coverage_ratio = r->gap_joules = 0;
	r->anchor_ratio = r->gain = 1;
	r->offset_watts = 0;
}

/* Returns true if the counter stayed constant although the samples show energy. */
static bool counter_is_frozen(const struct energy *e, const struct energy_window *w,
			      uint64_t end_ns)
{
	uint64_t n = e->reads < ENERGY_READS ? e->reads : ENERGY_READS;

	for (uint64_t i = 0; i + 1 < n; i++) {
		const struct energy_read *a = &e->read[(e->reads - n + i) % ENERGY_READS];
		const struct energy_read *b = &e->read[(e->reads - n + i + 1) % ENERGY_READS];
		struct energy_point pa, pb;

		if (a->epoch != b->epoch || b->joules > a->joules ||
		    b->after_ns < w->begin_ns || a->before_ns > end_ns ||
		    span_s(a->after_ns, b->before_ns) < 3 * e->set.sensor.tick_s)
			continue;
		if (energy_at(e, a->after_ns, &pa) == 0 &&
		    energy_at(e, b->before_ns, &pb) == 0 && pb.joules - pa.joules > 1)
			return true;
	}
	return false;
}

/* Returns true if power has a relevant trend. It uses the Mann-Kendall test on means of one
 * second, over the latest part of the window. */
static bool energy_drifts(const struct energy *e, const struct energy_window *w,
			  const struct gw_energy *r)
{
	double mean[STEADY_MEANS], first = 0, last = 0;
	struct trend trend;
	struct energy_point a, b;
	unsigned n = 0, half;

	for (uint64_t t = w->end_ns;
	     n < STEADY_MEANS && t >= w->begin_ns + NS_PER_S && energy_at(e, t, &b) == 0 &&
	     energy_at(e, t - NS_PER_S, &a) == 0;
	     t -= NS_PER_S)
		mean[n++] = b.joules - a.joules;
	if (n < STEADY_LEAST || stat_trend(mean, n, &trend) != 0 || !(trend.p < 0.05))
		return false;
	half = n / 2;
	for (unsigned i = 0; i < half; i++) {
		last += mean[i] / half;
		first += mean[n - 1 - i] / half;
	}
	return fabs(last - first) > STEADY_RATIO * r->power_mean;
}

static void energy_judge(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	if (e->set.shape == SHAPE_NONE)
		r->coverage_ratio = NAN; /* no samples are expected */
	if (r->coverage_ratio < COVERAGE_LOW)
		energy_code(r, GW_CODE_LOW_COVERAGE);
	if (w->cut)
		energy_code(r, GW_CODE_TRUNCATED);
	if (energy_alias(e, w, r))
		energy_code(r, GW_CODE_ALIAS_SUSPECTED);
	if (energy_drifts(e, w, r))
		energy_code(r, GW_CODE_NOT_STEADY);
	if (e->set.mig)
		energy_code(r, GW_CODE_MIG_WHOLE_BOARD);
	if (e->set.sensor.module_scope)
		energy_code(r, GW_CODE_MODULE_SCOPE);
	if (e->set.sensor.counter == GW_HAVE && e->set.sensor.counter_unsafe)
		energy_code(r, GW_CODE_COUNTER_RATE_UNSAFE);
	if (e->set.sensor.counter == GW_ABSENT_INVALID)
		energy_code(r, GW_CODE_COUNTER_INVALID);
}

/* Returns the code for why there is no energy. */
static unsigned why_none(const struct energy *e)
{
	if (e->set.shape != SHAPE_NONE || e->set.counter)
		return GW_CODE_NO_DATA;
	switch (e->set.why) {
	case GW_ABSENT_ASLEEP: return GW_CODE_ASLEEP;
	case GW_ABSENT_NO_PERMISSION: return GW_CODE_NO_PERMISSION;
	case GW_ABSENT_NOT_SUPPORTED:
	case GW_ABSENT_NO_SYMBOL: return GW_CODE_NOT_SUPPORTED;
	default: return GW_CODE_NO_SOURCE;
	}
}

void energy_result(const struct energy *e, struct energy_window *w, struct gw_energy *r)
{
	struct energy_window now; /* copy of an open window that ends with the last sample */
	struct meters m = { .counter_j = NAN, .samples_j = NAN };

	energy_begin(r);
	r->rung = energy_rung(&e->set);
	r->sample_spacing_seconds = e->set.spacing_s;
	if (!w->end_ns) {
		if (e->samples == 0 || energy_number(e, e->samples - 1)->t_ns <= w->begin_ns)
			return;
		now = *w;
		energy_close(&now, energy_number(e, e->samples - 1)->t_ns);
		w = &now;
	}
	energy_follow(e, w);
	r->begin_ns = w->begin_ns;
	r->end_ns = w->end_ns;
	r->seconds = span_s(w->begin_ns, w->end_ns);
	notes_inside(e, w, r);
	if (!(r->seconds > 0))
		return;
	if (w->begin.known && w->end.known) {
		energy_take_read(e, w->end_ns, &w->end);
		w->end.slope_w = energy_swing(e, w->end_ns, energy_reach_s(e));
		power_figures(e, w, r);
		/* If more than a tenth of the window is missing, the energy of the gaps is not
		 * estimated; the interval includes what they may contain. */
		r->gap_joules = r->coverage_ratio >= COVERAGE_FILL ? gap_energy(w) : 0;
		w->period_s = energy_period(e, w);
		r->load_period_seconds = w->period_s;
		samples_meter(e, w, r, &m);
		counter_meter(e, w, r, &m);
	}
	if (isnan(m.counter_j)) /* no samples cover the boundaries */
		bare_counter(e, w, r, &m);
	if (!isnan(m.counter_j) && counter_is_frozen(e, w, r->end_ns)) {
		energy_code(r, GW_CODE_COUNTER_FROZEN);
		m.counter_j = NAN;
	}
	if (e->samples && r->seconds < e->set.spacing_s) {
		below_period(e, w, r);
	} else {
		energy_choose(e, w, r, &m);
		if (!isnan(r->joules.best))
			sum_up(e, r);
	}
	r->raw_joules = r->joules.best;
	if (e->set.sensor.calibration.done)
		energy_calibrate(r, &e->set.sensor.calibration);
	energy_judge(e, w, r);
	if (isnan(r->joules.best))
		energy_code(r, why_none(e));
}
