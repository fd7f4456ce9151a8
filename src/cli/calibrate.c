#include "calibrate.h"

#include "measure/distribution.h"
#include "measure/sensor.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_U     0.05 /* a supply loses 4 to 11 % of what it passes on, and fans follow */
#define GAIN_MOST  0.1  /* as far off as a board was ever found */
#define FLAT_RATIO 0.02 /* power that varies less tells no gain     */
#define FLAT_W     3.0
#define ALPHA      0.05
#define RHO_MOST   0.99  /* errors that are more alike than this are an offset */
#define LIKE       0.005 /* a peak as high as the highest, but for this */

struct task {
	const struct power_record *record;
	const struct calibrate_point *trace;
	size_t n;
	double spacing_s; /* of the trace: what one of its points is taken to be the mean over */
};

/* Sums over the points that the record covers when the trace is moved back by a lag. */
struct sums {
	size_t n;
	double x, y, xx, yy, xy; /* means, and sums of products about them */
	double first_s, last_s;
};

static bool reading(const struct task *t, size_t i, double lag_s, double *ret_w)
{
	double middle = t->trace[i].t_s - lag_s, half = 0.5 * t->spacing_s;

	return power_record_mean(t->record, middle - half, middle + half, ret_w);
}

static struct sums add_up(const struct task *t, double lag_s)
{
	struct sums s = { 0 };

	for (size_t i = 0; i < t->n; i++) {
		double w, dx, dy;

		if (!reading(t, i, lag_s, &w))
			continue;
		if (s.n++ == 0)
			s.first_s = t->trace[i].t_s;
		s.last_s = t->trace[i].t_s;
		dx = w - s.x;
		dy = t->trace[i].w - s.y;
		s.x += dx / (double)s.n;
		s.y += dy / (double)s.n;
		s.xx += dx * (w - s.x);
		s.yy += dy * (t->trace[i].w - s.y);
		s.xy += dx * (t->trace[i].w - s.y);
	}
	return s;
}

static double correlation(const struct sums *s)
{
	return s->xx > 0 && s->yy > 0 ? s->xy / sqrt(s->xx * s->yy) : NAN;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The middle one of the distances between points; NAN without memory. */
static double spacing(const struct calibrate_point *trace, size_t n)
{
	double *step = malloc((n - 1) * sizeof(*step)), ret = NAN;

	if (!step)
		return NAN;
	for (size_t i = 0; i + 1 < n; i++)
		step[i] = trace[i + 1].t_s - trace[i].t_s;
	qsort(step, n - 1, sizeof(*step), by_size);
	ret = step[(n - 1) / 2];
	free(step);
	return ret;
}

/* ---- the lag ---- */

/* At fewer points than this a lag is not believed: the last few of a trace may be alike to
 * anything. */
static size_t enough(const struct task *t)
{
	size_t most = 0;

	for (double lag = -CALIBRATE_LAG_S; lag <= CALIBRATE_LAG_S; lag += 1) {
		size_t n = add_up(t, lag).n;

		most = n > most ? n : most;
	}
	return most / 2 > CALIBRATE_LEAST ? most / 2 : CALIBRATE_LEAST;
}

static double alike(const struct task *t, double lag_s, size_t least)
{
	struct sums s = add_up(t, lag_s);
	double r = correlation(&s);

	return s.n < least || isnan(r) ? -1 : r;
}

/* Between the neighbours of a peak, ever closer. */
static double refine(const struct task *t, double lag_s, double step_s, size_t least)
{
	while (step_s > 1e-5) {
		double best = alike(t, lag_s, least);

		step_s /= 2;
		if (alike(t, lag_s - step_s, least) > best)
			lag_s -= step_s;
		else if (alike(t, lag_s + step_s, least) > best)
			lag_s += step_s;
	}
	return lag_s;
}

/* The peak nearest to no lag at all, among those as high as the highest: a load that repeats
 * has many. */
static double find_lag(const struct task *t, size_t least)
{
	double step = fmin(fmax(t->spacing_s / 4, 0.02), 0.25), most = -1, best = INFINITY;
	unsigned n = (unsigned)(2 * CALIBRATE_LAG_S / step) + 1;
	double *r = malloc((n + 2) * sizeof(*r));

	if (!r)
		return 0;
	r[0] = r[n + 1] = -2;
	for (unsigned i = 1; i <= n; i++) {
		r[i] = alike(t, -CALIBRATE_LAG_S + (i - 1) * step, least);
		most = fmax(most, r[i]);
	}
	for (unsigned i = 1; i <= n; i++) {
		double lag = -CALIBRATE_LAG_S + (i - 1) * step;

		if (r[i] >= r[i - 1] && r[i] >= r[i + 1] && r[i] >= most - LIKE &&
		    fabs(lag) < fabs(best))
			best = lag;
	}
	free(r);
	return refine(t, best, step, least);
}

/* ---- the line ---- */

/* What the line leaves of each point; 0 where the record has none.  NULL without memory. */
static double *residuals(const struct task *t, const struct calibrate_fit *f)
{
	double *r = calloc(t->n, sizeof(*r)), w;

	for (size_t i = 0; r && i < t->n; i++)
		if (reading(t, i, f->lag_s, &w))
			r[i] = t->trace[i].w - f->gain * w - f->measured_offset_w;
	return r;
}

/* How alike two that are so far apart are, of -1 to 1. */
static double alike_at(const double *r, size_t n, size_t apart)
{
	double product = 0, square = 0;

	for (size_t i = 0; i < n; i++) {
		square += r[i] * r[i];
		product += i >= apart ? r[i] * r[i - apart] : 0;
	}
	return square > 0 ? product / square : 0;
}

/* How alike neighbouring errors are: 0 not at all, below 1.  By neighbouring residuals, and,
 * where those further apart are more alike than chance makes them, by these: noise hides a
 * drift from neighbours.  What a line was fitted to is less alike than the errors were
 * (Kendall), and that is made good, with half a standard deviation of what is found. */
static double likeness(const double *r, size_t n)
{
	double many = (double)n, rho = fmax(alike_at(r, n, 1), 0);

	for (size_t apart = 2; apart <= n / 4; apart *= 2) {
		double at = alike_at(r, n, apart);

		if (at > 3 / sqrt(many))
			rho = fmax(rho, pow(at, 1 / (double)apart));
	}
	rho = fmin(rho, RHO_MOST);
	rho += (1 + 4 * rho + 0.5 * sqrt(many * (1 - rho * rho))) / many;
	return fmin(rho, RHO_MOST);
}

/* How the readings change with the lag: what is unknown of it is unknown of the line, and the
 * more so the steeper the load was on one side. */
struct slope {
	double mean, dd,
		xd; /* of d reading / d lag, and its sums of products about the means */
};

static bool slope_at(const struct task *t, size_t i, double lag_s, double *ret)
{
	double step = t->spacing_s / 20, before, after;

	if (!reading(t, i, lag_s - step, &before) || !reading(t, i, lag_s + step, &after))
		return false;
	*ret = (after - before) / (2 * step);
	return true;
}

static struct slope slope_of(const struct task *t, const struct sums *s, double lag_s)
{
	struct slope d = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		double now, slope, away;

		if (!reading(t, i, lag_s, &now) || !slope_at(t, i, lag_s, &slope))
			continue;
		away = slope - d.mean;
		d.mean += away / (double)++n;
		d.dd += away * (slope - d.mean);
		d.xd += (now - s->x) * slope;
	}
	return d;
}

/* The variance of a weighted sum of errors of variance 1, of which neighbours are alike by rho,
 * those two apart by rho^2, and so on: fed one weight after the other. */
struct alike_sum {
	double rho, near, variance; /* near: the weights before, the less the longer ago */
};

static void alike_add(struct alike_sum *v, double weight)
{
	v->variance += weight * weight + 2 * weight * v->near;
	v->near = v->rho * (v->near + weight);
}

/* Variances of the gain and of the power at the pivot, for errors of variance 1: least squares,
 * with the lag as a third unknown, makes each a weighted sum of the points. */
struct variances {
	double gain, pivot;
};

static struct variances variances(const struct task *t, const struct sums *s,
				  const struct calibrate_fit *f, double rho)
{
	struct slope d = slope_of(t, s, f->lag_s);
	struct alike_sum gain = { .rho = rho }, pivot = { .rho = rho };
	double det = s->xx * d.dd - d.xd * d.xd;
	bool lag = !f->offset_alone && det > 1e-6 * s->xx * d.dd;

	for (size_t i = 0; i < t->n; i++) {
		double x, slope;
		bool there = reading(t, i, f->lag_s, &x);

		x = there ? x - s->x : 0;
		slope = lag && there && slope_at(t, i, f->lag_s, &slope) ? slope - d.mean : 0;
		alike_add(&gain, lag ? (x * d.dd - slope * d.xd) / det : x / s->xx);
		alike_add(&pivot,
			  (there ? 1 / (double)s->n : 0) -
				  (lag ? d.mean * (slope * s->xx - x * d.xd) / det : 0));
	}
	return (struct variances){ gain.variance, pivot.variance };
}

/* s.d. of the errors: what the line took away of them is no longer among the residuals, of gain
 * and lag about as much each. */
static double error_of(const struct sums *s, const struct calibrate_fit *f,
		       const struct variances *v, double left)
{
	double n = (double)s->n;
	double taken = n * v->pivot + (f->offset_alone ? 0 : 2 * s->xx * v->gain);

	return sqrt(left / fmax(n - taken, n / 4));
}

static void uncertainties(const struct task *t, const struct sums *s, struct calibrate_fit *f,
			  double left)
{
	double *r = residuals(t, f), n = (double)s->n;
	double rho = r ? likeness(r, t->n) : RHO_MOST;
	double real = fmax(5, n * (1 - rho) / (1 + rho)); /* points that err by themselves */
	/* Few of them: wider than the normal. */
	double k = student_factor(ALPHA, real - 3) / NORMAL_95;
	struct variances v = variances(t, s, f, rho);
	double error = error_of(s, f, &v, left);

	f->offset_u_w = k * error * sqrt(v.pivot);
	f->gain_u = f->offset_alone ? SENSOR_GAIN_U : k * error * sqrt(v.gain);
	free(r);
}

static void line(const struct task *t, const struct sums *s, struct calibrate_fit *f)
{
	double left;

	f->gain = f->offset_alone ? 1 : s->xy / s->xx;
	f->measured_offset_w = f->offset_w = s->y - f->gain * s->x;
	left = fmax(0, s->yy - 2 * f->gain * s->xy + f->gain * f->gain * s->xx);
	f->residual_w = sqrt(left / ((double)s->n - (f->offset_alone ? 1 : 3)));
	f->pivot_w = s->x;
	f->points = s->n;
	f->span_s = s->last_s - s->first_s;
	uncertainties(t, s, f, left);
}

static bool flat(const struct sums *s)
{
	return sqrt(s->xx / (double)s->n) < fmax(FLAT_W, FLAT_RATIO * s->x);
}

/* The rest of the machine stands still, or does not: its power is no offset of the board's, and
 * what of it follows the load is in the gain, however well that is known. */
static void leave_rest_out(struct calibrate_fit *f)
{
	f->wider = true;
	f->gain_u = hypot(f->gain_u, REST_U);
	f->offset_w = 0;
	f->offset_u_w = SENSOR_OFFSET_U_W;
	f->pivot_w = 0;
}

/* ---- all of it ---- */

static int refuse(char *why, size_t size, const char *sentence)
{
	snprintf(why, size, "%s", sentence);
	return -GW_E_PARSE;
}

static int check_span(const struct task *t, char *why, size_t size)
{
	double from, to, first = t->trace[0].t_s, last = t->trace[t->n - 1].t_s;

	if (!power_record_span(t->record, &from, &to))
		return refuse(why, size, "the GPU told no power to compare with");
	if (last < from || first > to) {
		snprintf(why, size,
			 "the trace does not overlap the measurement: it %s %.0f s %s (are its "
			 "times UTC, or with their offset?)",
			 last < from ? "ends" : "begins",
			 last < from ? from - last : first - to,
			 last < from ? "before that begins" : "after that ends");
		return -GW_E_PARSE;
	}
	return 0;
}

static int too_few(size_t n, char *why, size_t size)
{
	snprintf(why, size,
		 "%zu points of the trace fall into the measurement, and %d are needed: "
		 "measure longer, or let the outside meter tell more often",
		 n, CALIBRATE_LEAST);
	return -GW_E_PARSE;
}

static int check_line(const struct calibrate_fit *f, char *why, size_t size)
{
	if (f->gain > 0.5 && f->gain < 2)
		return 0;
	snprintf(why, size,
		 "the outside meter changes by %.3g W for each watt of the GPU's own: no "
		 "sensor is so far off; are they watts, and of this GPU alone?",
		 f->gain);
	return -GW_E_PARSE;
}

/* What a board can be off by, at most: where the gain is not known, by its share too. */
static double likely_offset(const struct calibrate_fit *f)
{
	return CALIBRATE_OFFSET_W + (f->offset_alone ? GAIN_MOST * f->pivot_w : 0);
}

static int fit_line(const struct task *t, struct calibrate_fit *f, char *why, size_t size)
{
	struct sums s = add_up(t, f->lag_s);
	int err;

	line(t, &s, f);
	err = f->offset_alone ? 0 : check_line(f, why, size);
	if (!err && !f->offset_alone &&
	    f->gain_u > SENSOR_GAIN_U) { /* no better than not knowing */
		f->offset_alone = true;
		line(t, &s, f);
	}
	if (err || fabs(f->measured_offset_w) <= likely_offset(f))
		return err;
	if (f->offset_alone) {
		snprintf(why, size,
			 "the outside meter is %.0f W off, more than any board: it measures "
			 "more than the GPU, and power did not vary enough to tell the GPU's "
			 "part",
			 f->measured_offset_w);
		return -GW_E_PARSE;
	}
	leave_rest_out(f);
	return 0;
}

int calibrate_fit(const struct power_record *record, const struct calibrate_point *trace,
		  size_t n, struct calibrate_fit *ret, char *why, size_t size)
{
	struct task t = { record, trace, n, 0 };
	struct calibrate_fit f = { .correlation = NAN };
	struct sums s;
	int err;

	if (n == 0)
		return too_few(n, why, size);
	err = check_span(&t, why, size);
	if (err)
		return err;
	if (n < CALIBRATE_LEAST)
		return too_few(n, why, size);
	t.spacing_s = spacing(trace, n);
	s = add_up(&t, 0);
	if (s.n < CALIBRATE_LEAST)
		return too_few(s.n, why, size);
	f.offset_alone = flat(&s);
	if (!f.offset_alone) {
		f.lag_s = find_lag(&t, enough(&t));
		s = add_up(&t, f.lag_s);
		f.correlation = correlation(&s);
		if (!(f.correlation >= CALIBRATE_ALIKE)) {
			snprintf(why, size,
				 "the trace does not follow the power of the GPU: their "
				 "correlation is %.2f at best, and %.1f is asked for; is it of "
				 "this GPU, and are both clocks right to %.0f s?",
				 isnan(f.correlation) ? 0 : f.correlation, CALIBRATE_ALIKE,
				 CALIBRATE_LAG_S);
			return -GW_E_PARSE;
		}
	}
	err = fit_line(&t, &f, why, size);
	if (!err)
		*ret = f;
	return err;
}
