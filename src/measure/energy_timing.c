/* Finds times that no driver reports: when the counter is updated, and the period of the load.
 * Also decides which counter readings are valid, and whether the load aliases with the
 * sensor. */
#include "energy_parts.h"

#include <math.h>
#include <string.h>

/* The fit uses the readings of the last FIT_NS. In this time the phase of the updates drifts by
 * 6 ms (a ratio of 1e-4). */
#define FIT_NS    (60 * NS_PER_S)
#define FIT_READS 6   /* the fit needs this many readings */
#define FIT_STEPS 100 /* number of phases that the first search tries */

void energy_note(struct energy *e, uint64_t t_ns, unsigned code)
{
	e->note[e->notes++ % ENERGY_NOTES] = (struct energy_note){ t_ns, code };
	if (code != GW_CODE_DRIVER_RELOADED)
		return;
	/* The new driver began to count at 0, even if the counter is already above the last
	 * value of the old driver. */
	e->epoch++;
	e->phase_known = false;
}

uint64_t energy_middle(const struct energy_read *r)
{
	return r->before_ns + (r->after_ns - r->before_ns) / 2;
}

double energy_most_joules(const struct energy_setup *set, double seconds)
{
	double most_w = isnan(set->limit_w) ? ENERGY_MOST_W : ENERGY_OVER_LIMIT * set->limit_w;

	return most_w * (seconds + set->sensor.tick_s);
}

static int fault_of(const struct energy *e, const struct energy_read *last,
		    const struct energy_read *now)
{
	if (now->joules < last->joules)
		return now->joules < 0.5 * last->joules ? GW_CODE_COUNTER_RESET
							: GW_CODE_COUNTER_BACKWARDS;
	if (now->joules - last->joules >
	    energy_most_joules(&e->set, span_s(last->before_ns, now->after_ns)))
		return GW_CODE_COUNTER_JUMP;
	return -1;
}

/* Returns the time of the last counter update before a reading at t, minus the lag of the
 * counter. phase_s is the phase of the updates. */
static uint64_t energy_tick_before(const struct energy *e, uint64_t t_ns, double phase_s)
{
	double tick = e->set.sensor.tick_s, t = (double)t_ns * 1e-9;
	double age = fmod(t - phase_s, tick);

	if (age < 0)
		age += tick;
	return t_ns - (uint64_t)llround(age * 1e9) -
	       (uint64_t)llround(e->set.sensor.counter_lag_s * 1e9);
}

/* Collects the readings for the fit of the phase: recent readings of this epoch, with samples
 * before and after them. */
static unsigned fit_readings(const struct energy *e, const struct energy_read *out[])
{
	uint64_t first = e->reads > ENERGY_READS ? e->reads - ENERGY_READS : 0;
	const struct energy_read *last = &e->read[(e->reads - 1) % ENERGY_READS];
	uint64_t tick = (uint64_t)(e->set.sensor.tick_s * 1e9);
	unsigned n = 0;

	for (uint64_t i = first; i < e->reads; i++) {
		const struct energy_read *r = &e->read[i % ENERGY_READS];

		if (r->epoch == e->epoch && last->before_ns - r->before_ns < FIT_NS &&
		    e->samples &&
		    r->before_ns > energy_number(e, energy_oldest(e))->t_ns + 2 * tick &&
		    r->after_ns < energy_number(e, e->samples - 1)->t_ns)
			out[n++] = r;
	}
	return n;
}

struct fit {
	double error_s; /* standard deviation of the residuals, as a time */
	double gain;    /* slope of the line */
};

/* Fits a straight line through the readings: counter = c + gain x integral at the last update.
 * The updates are assumed to have this phase. */
static struct fit fit_phase(const struct energy *e, const struct energy_read *const r[],
			    unsigned n, double phase_s)
{
	double si = 0, sc = 0, sii = 0, sic = 0, scc = 0, rest, watts;
	struct energy_point first = { 0 }, p = { 0 };

	for (unsigned k = 0; k < n; k++) {
		double i, c;

		if (energy_at(e, energy_tick_before(e, energy_middle(r[k]), phase_s), &p) != 0)
			return (struct fit){ INFINITY, NAN };
		if (k == 0)
			first = p;
		i = p.joules - first.joules + p.hole_j - first.hole_j;
		c = r[k]->joules - r[0]->joules;
		si += i;
		sc += c;
		sii += i * i;
		sic += i * c;
		scc += c * c;
	}
	sii -= si * si / n;
	sic -= si * sc / n;
	scc -= sc * sc / n;
	watts = (p.joules - first.joules) /
		fmax(1e-9, span_s(energy_middle(r[0]), energy_middle(r[n - 1])));
	if (!(sii > 0) || !(watts > 0))
		return (struct fit){ INFINITY, NAN };
	rest = fmax(0, scc - sic * sic / sii);
	return (struct fit){ sqrt(rest / (n - 2)) / watts, sic / sii };
}

/* Tries the phases (`first` + k / `steps`) ticks, for each k from `from` to `to`. Stores the
 * phase with the smallest error in *at, and this error in *best, if it is smaller than
 * *best. */
static void search_phase(const struct energy *e, const struct energy_read *const r[],
			 unsigned n, double first, int from, int to, int steps, double *best,
			 double *at)
{
	for (int k = from; k <= to; k++) {
		double phase = first + e->set.sensor.tick_s * k / steps;
		struct fit f = fit_phase(e, r, n, phase);

		if (f.error_s < *best) {
			*best = f.error_s;
			*at = phase;
		}
	}
}

/* Updates of the counter have a fixed phase on the monotonic clock (1 ms of jitter on an H200).
 * Readings at varying times show the phase: if the phase is right, the counter plotted over the
 * integral of the power is a straight line. */
void energy_find_phase(struct energy *e)
{
	const struct energy_read *r[ENERGY_READS];
	unsigned n = e->reads ? fit_readings(e, r) : 0;
	double tick = e->set.sensor.tick_s, best = INFINITY, at = 0;
	double age_min = tick, age_max = 0, before, after;

	e->fitted = true;
	e->phase_known = false;
	if (n < FIT_READS || !(tick > 0))
		return;
	search_phase(e, r, n, 0, 0, FIT_STEPS - 1, FIT_STEPS, &best, &at);
	search_phase(e, r, n, at, -9, 9, 10 * FIT_STEPS, &best, &at); /* finer steps */
	for (unsigned k = 0; k < n; k++) {
		double age = fmod((double)energy_middle(r[k]) * 1e-9 - at + tick, tick);

		age_min = fmin(age_min, age);
		age_max = fmax(age_max, age);
	}
	/* If all readings have nearly the same age (time since the update), every phase fits,
	 * so the phase stays unknown. */
	if (best > tick / 20 || age_max - age_min < tick / 3)
		return;
	/* The update lies in the gap between the largest age and the smallest age of the next
	 * period, because no reading has an age in this gap. Use the middle of the gap; the
	 * width of the gap gives the uncertainty. */
	before = tick - age_max;
	after = age_min;
	e->phase_known = true;
	e->phase_s = fmod(at + 0.5 * (after - before) + tick, tick);
	e->phase_u_s = fmax(best, (before + after) / sqrt(12));
}

void energy_no_counter(struct energy *e, enum gw_absence why)
{
	e->set.counter = false;
	e->set.sensor.counter = why;
}

int energy_count(struct energy *e, uint64_t before_ns, uint64_t after_ns, double joules)
{
	struct energy_read now = { before_ns, after_ns, joules, e->epoch };
	int code = -1;

	if (e->reads) {
		const struct energy_read *last = &e->read[(e->reads - 1) % ENERGY_READS];

		if (before_ns <= last->after_ns)
			return -1;
		code = fault_of(e, last, &now);
	}
	if (code >= 0) {
		now.epoch = ++e->epoch;
		e->phase_known = false;
		energy_note(e, after_ns, (unsigned)code);
	}
	e->read[e->reads++ % ENERGY_READS] = now;
	e->fitted = false; /* the next fit needs samples that cover this reading */
	return code;
}

const struct energy_read *energy_nearest(const struct energy *e, uint64_t t_ns)
{
	const struct energy_read *best = NULL;
	uint64_t n = e->reads < ENERGY_READS ? e->reads : ENERGY_READS;
	uint64_t apart = 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct energy_read *r = &e->read[i];
		uint64_t m = energy_middle(r), d = m > t_ns ? m - t_ns : t_ns - m;

		if (!best || d < apart) {
			best = r;
			apart = d;
		}
	}
	return best;
}

uint64_t energy_update_time(const struct energy *e, const struct energy_read *r)
{
	uint64_t half = (uint64_t)(e->set.sensor.tick_s * 0.5e9);

	if (e->phase_known)
		return energy_tick_before(e, energy_middle(r), e->phase_s);
	return energy_middle(r) - half - (uint64_t)llround(e->set.sensor.counter_lag_s * 1e9);
}

void energy_take_read(const struct energy *e, uint64_t boundary_ns,
		      struct energy_boundary *boundary)
{
	const struct energy_read *r = energy_nearest(e, boundary_ns);
	uint64_t t;

	if (!r)
		return;
	boundary->read = *r;
	boundary->tick_known = e->phase_known;
	t = energy_update_time(e, r);
	if (energy_at(e, t, &boundary->tick) != 0)
		boundary->read.before_ns = 0;
	boundary->tick_slope_w =
		energy_swing(e, t, fmax(energy_reach_s(e), e->set.sensor.tick_s));
}

#define SPECTRUM 512

/* The error that arises if a load has the same period as the sensor: the sensor then always
 * measures the same part of the load. The error is a standard uncertainty, relative to the
 * energy, and is multiplied by the part of the time in which the sensor does not measure. The
 * sensor of an H200 measures a quarter of the time; with square waves its energy was up to 37 %
 * too low and up to 41 % too high. */
#define HIDDEN_RATIO 0.4

/* The same error for the ring buffer. Its sensor measures all the time, through a filter. With
 * simulated square waves of 600 and 100 W, the error was up to 19 % if the period was one
 * spacing of the samples, and up to 4 % if it was five spacings. 1.96 x 12 % covers both. */
#define RING_HIDDEN_RATIO 0.12
/* If the period of a load is longer than this many sample spacings, the samples show the load
 * completely. */
#define RING_SLOW 10

/* Finds the strongest line in the spectrum of the last samples of the window; NAN: no clear
 * line. Samples are spaced evenly enough: in a ring buffer they are 9 to 30 ms apart, 20 ms in
 * the mean. */
double energy_period(const struct energy *e, const struct energy_window *w)
{
	double x[SPECTRUM], mean = 0, total = 0, best = 0, period = NAN, spacing;
	uint64_t end = energy_find(e, w->end_ns), first = energy_find(e, w->begin_ns), n;

	if (end < first + 32)
		return NAN;
	if (end - first > SPECTRUM)
		first = end - SPECTRUM;
	n = end - first;
	spacing = span_s(energy_number(e, first)->t_ns, energy_number(e, end - 1)->t_ns) /
		  (double)(n - 1);
	for (uint64_t i = 0; i < n; i++)
		mean += x[i] = energy_number(e, first + i)->w;
	mean /= (double)n;
	for (uint64_t i = 0; i < n; i++) {
		x[i] -= mean;
		total += sq(x[i]);
		x[i] *= 0.5 - 0.5 * cos(2 * M_PI * ((double)i + 0.5) / (double)n);
	}
	if (sqrt(total / (double)n) < 0.03 * mean)
		return NAN; /* the power is constant */
	/* Begin with three cycles: fewer cycles are a trend, not a period. */
	for (uint64_t k = 3; k <= n / 2; k++) {
		double c = 2 * cos(2 * M_PI * (double)k / (double)n), s0 = 0, s1 = 0, s2 = 0, p;

		for (uint64_t i = 0; i < n; i++) { /* Goertzel's algorithm */
			s0 = x[i] + c * s1 - s2;
			s2 = s1;
			s1 = s0;
		}
		p = s1 * s1 + s2 * s2 - c * s1 * s2;
		if (p > best) {
			best = p;
			period = (double)n * spacing / (double)k;
		}
	}
	/* A line is clear if it is above 0.2 x (total x n/4 x 3/8). 3/8 is the mean square of
	 * the Hann window. */
	return best > 0.2 * total * (double)n * 3 / 32 ? period : NAN;
}

/* Returns true if the period of the load is within 3 % of m / n times the sensor's period, with
 * m and n from 1 to 4. */
static bool alias_resonant(double period_s, double sensor_s)
{
	for (int m = 1; m <= 4; m++)
		for (int n = 1; n <= 4; n++)
			if (fabs(period_s * n / (sensor_s * m) - 1) < 0.03)
				return true;
	return false;
}

/* Returns true if a load of this period (NAN: unknown) may be in step with a sensor that
 * measures only a part of the time. */
static bool alias_beats(double period_s, double sensor_s)
{
	return sensor_s > 0 && (period_s < 2 * sensor_s || alias_resonant(period_s, sensor_s));
}

bool energy_unwatched(const struct energy *e)
{
	return (e->set.shape == SHAPE_INSTANT || e->set.shape == SHAPE_TEXT) && !e->set.counter;
}

/* Returns true if the program marked its iterations, and their period shows that the load is
 * slow. This period does not depend on the sensor. */
static bool known_slow(const struct energy *e, const struct energy_window *w)
{
	double period = w->hint_period_s; /* NAN: the program marked no iterations */

	return e->set.shape == SHAPE_RING
		       ? period >= RING_SLOW * e->set.spacing_s
		       : period >= 0 && !alias_beats(period, e->set.sensor.instant.period_s);
}

double energy_hidden_ratio(const struct energy *e, const struct energy_window *w)
{
	if (e->set.counter || known_slow(e, w))
		return 0;
	if (e->set.shape == SHAPE_RING)
		return RING_HIDDEN_RATIO;
	return energy_unwatched(e) ? HIDDEN_RATIO * (1 - fmin(1, e->set.look_ratio)) : 0;
}

bool energy_alias(const struct energy *e, const struct energy_window *w,
		  const struct gw_energy *r)
{
	double period = isnan(w->hint_period_s) ? w->period_s : w->hint_period_s;
	double sensor = e->set.sensor.instant.period_s;

	switch (e->set.shape) {
	case SHAPE_RING: return period <= 3 * e->set.spacing_s;
	case SHAPE_INSTANT:
	case SHAPE_TEXT:
		if (e->set.look_ratio >= 1)
			return false;
		/* If a sensor has its own clock, its samples do not show whether a load aliases
		 * with the sensor. */
		if (energy_hidden_ratio(e, w) > 0)
			return true;
		/* If the sensor is polled at varying phases, an aliasing load shows as
		 * variation. */
		if (r->power_sd > 0.05 * r->power_mean)
			return true;
		if (fabs(r->residual_ratio) > 0.05)
			return true;
		return alias_beats(period, sensor);
	default: return false;
	}
}
