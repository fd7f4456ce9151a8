#include "sensor_fit.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double fit_quantile(double *v, unsigned n, double share)
{
	double at = share * (n - 1);
	unsigned i = (unsigned)at;

	if (n == 0)
		return NAN;
	qsort(v, n, sizeof(*v), by_value);
	if (i + 1 >= n)
		return v[n - 1];
	return v[i] + (at - i) * (v[i + 1] - v[i]);
}

/* Returns the start value of the period: the median of the intervals that can be single
 * periods. The shortest interval cannot be used, because a few intervals are too short: a value
 * was read while it was being updated. */
static double single_interval(const double *t_s, unsigned n, double *work)
{
	double low;
	unsigned m = 0;

	for (unsigned i = 0; i + 1 < n; i++)
		work[i] = t_s[i + 1] - t_s[i];
	low = fit_quantile(work, n - 1, 0.2);
	for (unsigned i = 0; i + 1 < n; i++)
		if (work[i] >= 0.75 * low && work[i] <= 1.5 * low)
			work[m++] = work[i];
	return fit_quantile(work, m, 0.5);
}

/* Fits a line through the times of the changes, by least squares: x is the number of periods
 * since the first change, found with the estimate period_s. Returns the slope, which is the new
 * period. */
static double fit_regress(const double *t_s, unsigned n, double period_s, double *ret_phase_s)
{
	double k = 0, sk = 0, st = 0, skk = 0, skt = 0, slope;

	for (unsigned i = 0; i < n; i++) {
		double t = t_s[i] - t_s[0];

		if (i)
			k += fmax(round((t_s[i] - t_s[i - 1]) / period_s), 1);
		sk += k;
		st += t;
		skk += k * k;
		skt += k * t;
	}
	slope = (n * skt - sk * st) / (n * skk - sk * sk);
	*ret_phase_s = t_s[0] + (st - slope * sk) / n;
	return slope;
}

int fit_period(const double *t_s, unsigned n, double *work, struct fit_period *ret)
{
	double period, phase = 0;

	if (n < 4)
		return -GW_E_NOSUPPORT;
	period = single_interval(t_s, n, work);
	for (unsigned i = 0; i < 5; i++) {
		if (!(period > 0))
			return -GW_E_NOSUPPORT;
		period = fit_regress(t_s, n, period, &phase);
	}
	if (!(period > 0))
		return -GW_E_NOSUPPORT;
	*ret = (struct fit_period){ period, phase, n - 1 };
	return 0;
}

struct problem {
	const struct fit_point *p;
	unsigned n, stride;
	const struct fit_bursts *bursts;
	/* for each burst, at its start: the total time of the bursts before it (boxcar), or the
	 * output of the filter (low-pass) */
	double *at;
};

/* Returns the last burst that began at or before t, or -1. */
static int burst_before(const struct fit_bursts *b, double t)
{
	int low = 0, high = (int)b->n;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (b->on_s[middle] <= t)
			low = middle + 1;
		else
			high = middle;
	}
	return low - 1;
}

static double on_time(const struct problem *q, double t)
{
	int i = burst_before(q->bursts, t);

	return i < 0 ? 0 : q->at[i] + fmin(t, q->bursts->off_s[i]) - q->bursts->on_s[i];
}

static double low_pass(const struct problem *q, double tau, double t)
{
	const struct fit_bursts *b = q->bursts;
	int i = burst_before(b, t);
	double end;

	if (i < 0)
		return 0;
	end = fmin(t, b->off_s[i]);
	end = 1 - (1 - q->at[i]) * exp((b->on_s[i] - end) / tau);
	return t <= b->off_s[i] ? end : end * exp((b->off_s[i] - t) / tau);
}

/* Computes q->at[] at the start of each burst from the burst before: the total time with load
 * so far (boxcar), or the output of the filter (low-pass). */
static void prepare_bursts(const struct problem *q, enum sensor_model model, double window_s)
{
	const struct fit_bursts *b = q->bursts;

	q->at[0] = 0;
	for (unsigned i = 1; i < b->n; i++) {
		double on = b->off_s[i - 1] - b->on_s[i - 1],
		       off = b->on_s[i] - b->off_s[i - 1];

		if (model == SENSOR_BOXCAR)
			q->at[i] = q->at[i - 1] + on;
		else
			q->at[i] = (1 - (1 - q->at[i - 1]) * exp(-on / window_s)) *
				   exp(-off / window_s);
	}
}

static double response_at(const struct problem *q, const struct fit_response *f, double t)
{
	t -= f->delay_s;
	if (f->model == SENSOR_LOWPASS)
		return low_pass(q, f->window_s, t);
	return (on_time(q, t) - on_time(q, t - f->window_s)) / f->window_s;
}

/* Fits the power without load and the power of the load by least squares. Returns the share of
 * the variance that the fit does not explain. Call prepare_bursts() first. */
static double fit_unexplained(const struct problem *q, struct fit_response *f)
{
	double n = 0, mx = 0, mw = 0, sxx = 0, sww = 0, sxw = 0;

	for (unsigned i = 0; i < q->n; i += q->stride) {
		double x = response_at(q, f, q->p[i].t_s), dx = x - mx, dw = q->p[i].w - mw;

		n++;
		mx += dx / n;
		mw += dw / n;
		sxx += dx * (x - mx);
		sww += dw * (q->p[i].w - mw);
		sxw += dx * (q->p[i].w - mw);
	}
	f->missed_ratio = 1;
	if (!(sxx > 1e-6 * n) || !(sww > 0) || sxw <= 0)
		return 1;
	f->missed_ratio = fmax(1 - sxw * sxw / (sxx * sww), 0);
	return f->missed_ratio;
}

static bool try_better(const struct problem *q, const struct fit_response *try,
		       struct fit_response *best)
{
	struct fit_response f = *try;

	if (f.delay_s < 0 || f.window_s < 5e-4)
		return false;
	prepare_bursts(q, f.model, f.window_s);
	if (fit_unexplained(q, &f) >= best->missed_ratio)
		return false;
	*best = f;
	return true;
}

/* Searches the minimum of the unexplained share from a start value. It tries each axis and both
 * diagonals, because a longer window can be balanced by a shorter delay. The steps become
 * smaller when no direction is better. */
static void fit_descend(const struct problem *q, bool window_too, struct fit_response *best)
{
	static const double direction[][2] = {
		{ 1, 0 },   { -1, 0 },   { 0, 1 },   { 0, -1 },
		{ 1, -.5 }, { -1, 0.5 }, { 1, 0.5 }, { -1, -.5 }
	};

	for (double step = fmax(best->window_s * 0.2, 2e-3); step > 2e-5; step *= 0.5)
		for (unsigned i = 0, tries = 0; i < 8 && tries < 64; i++, tries++) {
			struct fit_response f = *best;

			if (direction[i][0] != 0 && !window_too)
				continue;
			f.window_s += direction[i][0] * step;
			f.delay_s += direction[i][1] * step;
			if (try_better(q, &f, best))
				i = UINT32_MAX; /* start with the first direction again */
		}
}

#define DELAY_MAX_S  0.2
#define WINDOW_MIN_S 2e-3
#define WINDOW_MAX_S 2.5

static void search_grid(struct problem *q, enum sensor_model model, struct fit_response *best)
{
	struct fit_response f = { .model = model };

	/* Fewer points are enough to find the region of the minimum. */
	q->stride = 1 + q->n / 800;
	for (f.window_s = WINDOW_MIN_S; f.window_s < WINDOW_MAX_S; f.window_s *= 1.4) {
		double step = fmin(fmax(f.window_s / 4, 2e-3), 10e-3);

		prepare_bursts(q, model, f.window_s);
		for (f.delay_s = 0; f.delay_s < DELAY_MAX_S; f.delay_s += step) {
			struct fit_response g = f;

			if (fit_unexplained(q, &g) < best->missed_ratio)
				*best = g;
		}
	}
	q->stride = 1;
	prepare_bursts(q, model, best->window_s);
	fit_unexplained(q, best);
	fit_descend(q, true, best);
}

/* If the fit leaves a larger share than this unexplained, the points do not follow the load. */
#define MISSED_MAX 0.3

int fit_response(const struct fit_point *p, unsigned n, const struct fit_bursts *bursts,
		 double *work, struct fit_response *ret)
{
	struct problem q = { p, n, 1, bursts, work };
	struct fit_response box = { .model = SENSOR_BOXCAR,
				    .window_s = 0.1,
				    .missed_ratio = 1 };
	struct fit_response low = { .model = SENSOR_LOWPASS,
				    .window_s = 0.1,
				    .missed_ratio = 1 };
	const struct fit_response *best;

	if (n < 8 || bursts->n == 0)
		return -GW_E_NOSUPPORT;
	search_grid(&q, SENSOR_BOXCAR, &box);
	search_grid(&q, SENSOR_LOWPASS, &low);
	best = low.missed_ratio < box.missed_ratio ? &low : &box;
	if (best->missed_ratio > MISSED_MAX)
		return -GW_E_NOSUPPORT;
	*ret = *best;
	return 0;
}

int fit_delay(const struct fit_point *p, unsigned n, const struct fit_bursts *bursts,
	      double window_s, double *work, struct fit_response *ret)
{
	struct problem q = { p, n, 1, bursts, work };
	struct fit_response best = { .window_s = window_s, .missed_ratio = 1 }, f = best;

	if (n < 8 || bursts->n == 0)
		return -GW_E_NOSUPPORT;
	for (; f.delay_s < DELAY_MAX_S; f.delay_s += 5e-3)
		try_better(&q, &f, &best);
	fit_descend(&q, false, &best);
	if (best.missed_ratio > MISSED_MAX)
		return -GW_E_NOSUPPORT;
	*ret = best;
	return 0;
}

double fit_lag_s(const struct fit_response *f)
{
	return f->delay_s + (f->model == SENSOR_BOXCAR ? f->window_s / 2 : f->window_s);
}

double fit_mean(const struct fit_point *p, unsigned n, double from_s, double to_s,
		double *ret_sd)
{
	double held = 0, sum = 0, square = 0, mean;

	for (unsigned i = 0; i < n; i++) {
		double begin = fmax(p[i].t_s, from_s);
		double end = i + 1 < n ? fmin(p[i + 1].t_s, to_s) : to_s;

		if (end <= begin)
			continue;
		held += end - begin;
		sum += p[i].w * (end - begin);
		square += p[i].w * p[i].w * (end - begin);
	}
	*ret_sd = NAN;
	if (!(held > 0))
		return NAN;
	mean = sum / held;
	*ret_sd = sqrt(fmax(square / held - mean * mean, 0));
	return mean;
}
