/* Finds the period of the load, and whether the load aliases with the sensor. */
#include "energy_parts.h"

#include <math.h>
#include <string.h>

#define SPECTRUM 512

/* What a sensor can miss if the load is in step with it: one standard uncertainty, relative to
 * the energy. This value is for a sensor that never observes; a sensor that observes part of
 * the time misses less. Measured: the sensor of an H200 observes a quarter of the time, and
 * with square waves it was 37 % too low and 41 % too high. */
#define HIDDEN_RATIO 0.4

/* As HIDDEN_RATIO, but for the ring buffer, which observes all the time through a filter.
 * Errors with simulated square waves of 600 and 100 W: up to 19 % if the period was one spacing
 * of the samples, and up to 4 % if it was five spacings. */
#define RING_HIDDEN_RATIO 0.12
#define RING_SLOW         10 /* in spacings; the samples resolve a load with a longer period */

/* Finds the strongest line in the spectrum of the last samples of the window; NAN: no clear
 * line. Samples are spaced evenly enough: those of a ring buffer are 9 to 30 ms apart, 20 ms in
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
		return NAN; /* steady */
	/* At least three cycles; fewer are a trend. */
	for (uint64_t k = 3; k <= n / 2; k++) {
		double c = 2 * cos(2 * M_PI * (double)k / (double)n), s0 = 0, s1 = 0, s2 = 0, p;

		for (uint64_t i = 0; i < n; i++) { /* Goertzel */
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
	/* A line counts if it exceeds a fifth of total x n/4 x 3/8 (3/8: mean square of the
	 * Hann window). */
	return best > 0.2 * total * (double)n * 3 / 32 ? period : NAN;
}

/* True if the period is within 3 % of a simple ratio of the sensor's period. */
static bool alias_resonant(double period_s, double sensor_s)
{
	for (int m = 1; m <= 4; m++)
		for (int n = 1; n <= 4; n++)
			if (fabs(period_s * n / (sensor_s * m) - 1) < 0.03)
				return true;
	return false;
}

/* True if a load of this period (NAN: unknown) may be in step with a sensor that observes part
 * of the time. */
static bool alias_beats(double period_s, double sensor_s)
{
	return sensor_s > 0 && (period_s < 2 * sensor_s || alias_resonant(period_s, sensor_s));
}

bool energy_unwatched(const struct energy *e)
{
	return (e->set.shape == SHAPE_INSTANT || e->set.shape == SHAPE_TEXT) && !e->set.counter;
}

/* True if marked iterations show that the load is slow. Their period does not depend on the
 * sensor. */
static bool known_slow(const struct energy *e, const struct energy_window *w)
{
	double period = w->hint_period_s; /* NAN: not marked */

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
