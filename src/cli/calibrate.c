#include "calibrate.h"
#include "cli.h"

#include "base/number.h"
#include "measure/distribution.h"
#include "measure/energy.h"
#include "measure/sensor.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If two samples are more than this many seconds apart, the energy between them is unknown and
 * not integrated. */
#define HOLE_S 2.5

void power_record_init(struct power_record *r)
{
	memset(r, 0, sizeof(*r));
	r->every = 1;
}

static void power_record_thin(struct power_record *r)
{
	for (size_t i = 0; 2 * i < r->n; i++)
		r->point[i] = r->point[2 * i];
	r->n = (r->n + 1) / 2;
	r->every *= 2;
}

void power_record_add(struct power_record *r, double t_s, double watts)
{
	struct power_record_point p = r->last;
	double step_s = t_s - p.t_s;

	if (r->samples && !(step_s > 0))
		return;
	if (r->samples && step_s > HOLE_S)
		p.hole_s += step_s;
	else if (r->samples)
		p.joules += 0.5 * (r->last_w + watts) * step_s;
	p.t_s = t_s;
	r->last = p;
	r->last_w = watts;
	if (r->samples++ % r->every != 0)
		return;
	if (r->n == POWER_RECORD_POINTS)
		power_record_thin(r);
	r->point[r->n++] = p;
}

/* Sets the times of the first and last sample.  Returns false if there are fewer than two
 * samples. */
static bool power_record_span(const struct power_record *r, double *ret_from_s,
			      double *ret_to_s)
{
	if (r->samples < 2)
		return false;
	*ret_from_s = r->point[0].t_s;
	*ret_to_s = r->last.t_s;
	return true;
}

/* Interpolates the integral at t_s, which must be within the span of the record. */
static struct power_record_point power_record_at(const struct power_record *r, double t_s)
{
	size_t low = 0, high = r->n;
	struct power_record_point a, b;
	double share;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (r->point[middle].t_s <= t_s)
			low = middle;
		else
			high = middle;
	}
	a = r->point[low];
	b = high < r->n ? r->point[high] : r->last;
	share = b.t_s > a.t_s ? (t_s - a.t_s) / (b.t_s - a.t_s) : 0;
	return (struct power_record_point){ t_s, a.joules + share * (b.joules - a.joules),
					    a.hole_s + share * (b.hole_s - a.hole_s) };
}

bool power_record_mean(const struct power_record *r, double from_s, double to_s, double *ret_w)
{
	double first, last;
	struct power_record_point a, b;

	if (!power_record_span(r, &first, &last) || !(to_s > from_s) || from_s < first ||
	    to_s > last)
		return false;
	a = power_record_at(r, from_s);
	b = power_record_at(r, to_s);
	if (b.hole_s > a.hole_s)
		return false;
	*ret_w = (b.joules - a.joules) / (to_s - from_s);
	return true;
}

/* Standard uncertainty of the gain if the external meter also measures other parts of the
 * machine: power supplies lose 4 to 11 %, and the power of fans follows the load. */
#define REST_U    0.05
#define GAIN_MOST 0.1 /* Largest known gain error of a board. */
/* If the power varies by less than FLAT_RATIO of its mean, or by less than FLAT_W watts, the
 * gain cannot be determined. */
#define FLAT_RATIO 0.02
#define FLAT_W     3.0
#define ALPHA      0.05
/* Upper limit of the estimated correlation of neighbouring errors. Errors with a higher
 * correlation look like an offset. */
#define RHO_MOST 0.99
/* Two peaks of the correlation count as equal if they differ by at most this value. */
#define LIKE 0.005

struct task {
	const struct power_record *record;
	const struct trace_point *trace;
	size_t n;
	/* Median time between two points. Each point is the mean power over this time. */
	double spacing_s;
};

/* Sums over the points of the trace, after the trace was shifted back by a lag.  Points that
 * the record does not cover are left out. */
struct sums {
	size_t n;
	/* Means of the sensor's readings (x) and of the trace (y), and sums of products of the
	 * deviations from these means (xx, yy, xy). */
	double x, y, xx, yy, xy;
	double first_s, last_s;
};

static bool reading_at(const struct task *t, size_t i, double lag_s, double *ret_w)
{
	double middle = t->trace[i].t_s - lag_s, half = 0.5 * t->spacing_s;

	return power_record_mean(t->record, middle - half, middle + half, ret_w);
}

static struct sums add_up(const struct task *t, double lag_s)
{
	struct sums s = { 0 };

	for (size_t i = 0; i < t->n; i++) {
		double w, dx, dy;

		if (!reading_at(t, i, lag_s, &w))
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

/* Returns the median time between two points, or NAN if memory is short. */
static double median_spacing(const struct trace_point *trace, size_t n)
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

/* Returns the smallest number of points that the record must cover at a lag.  A lag with fewer
 * points is not considered, because a few points may correlate by chance. */
static size_t least_points(const struct task *t)
{
	size_t most = 0;

	for (double lag = -CALIBRATE_LAG_S; lag <= CALIBRATE_LAG_S; lag += 1) {
		size_t n = add_up(t, lag).n;

		most = n > most ? n : most;
	}
	return most / 2 > CALIBRATE_LEAST ? most / 2 : CALIBRATE_LEAST;
}

static double correlation_at(const struct task *t, double lag_s, size_t least)
{
	struct sums s = add_up(t, lag_s);
	double r = correlation(&s);

	return s.n < least || isnan(r) ? -1 : r;
}

/* Finds the lag with the highest correlation near a peak, in steps that are halved each
 * time. */
static double refine_lag(const struct task *t, double lag_s, double step_s, size_t least)
{
	while (step_s > 1e-5) {
		double best = correlation_at(t, lag_s, least);

		step_s /= 2;
		if (correlation_at(t, lag_s - step_s, least) > best)
			lag_s -= step_s;
		else if (correlation_at(t, lag_s + step_s, least) > best)
			lag_s += step_s;
	}
	return lag_s;
}

/* Returns the lag nearest to 0 among the highest peaks of the correlation, because a periodic
 * load has many peaks that are almost equal. A lag can be negative. */
static double find_lag(const struct task *t, size_t least)
{
	double step = fmin(fmax(t->spacing_s / 4, 0.02), 0.25), most = -1, best = INFINITY;
	unsigned n = (unsigned)(2 * CALIBRATE_LAG_S / step) + 1;
	double *r = malloc((n + 2) * sizeof(*r));

	if (!r)
		return 0;
	r[0] = r[n + 1] = -2;
	for (unsigned i = 1; i <= n; i++) {
		r[i] = correlation_at(t, -CALIBRATE_LAG_S + (i - 1) * step, least);
		most = fmax(most, r[i]);
	}
	for (unsigned i = 1; i <= n; i++) {
		double lag = -CALIBRATE_LAG_S + (i - 1) * step;

		if (r[i] >= r[i - 1] && r[i] >= r[i + 1] && r[i] >= most - LIKE &&
		    fabs(lag) < fabs(best))
			best = lag;
	}
	free(r);
	return refine_lag(t, best, step, least);
}

/* Returns the residual of each point. The residual of a point without a reading is 0. Returns
 * NULL if memory is short. */
static double *residuals(const struct task *t, const struct measured_calibration *f)
{
	double *r = calloc(t->n, sizeof(*r)), w;

	for (size_t i = 0; r && i < t->n; i++)
		if (reading_at(t, i, f->lag_s, &w))
			r[i] = t->trace[i].w - f->gain * w - f->measured_offset_w;
	return r;
}

/* Returns the autocorrelation of the residuals at a distance of `apart` points, from -1 to
 * 1. */
static double autocorrelation(const double *r, size_t n, size_t apart)
{
	double product = 0, square = 0;

	for (size_t i = 0; i < n; i++) {
		square += r[i] * r[i];
		product += i >= apart ? r[i] * r[i - apart] : 0;
	}
	return square > 0 ? product / square : 0;
}

/* Estimates the correlation of neighbouring errors, from 0 to RHO_MOST.  Noise may hide a slow
 * drift between neighbours.  Therefore residuals at larger distances are also used, if they
 * correlate more than by chance.  The residuals of a fit correlate less than the errors
 * (Kendall), so the estimate is increased.  Half of the standard deviation of the estimate is
 * added, too. */
static double error_correlation(const double *r, size_t n)
{
	double many = (double)n, rho = fmax(autocorrelation(r, n, 1), 0);

	for (size_t apart = 2; apart <= n / 4; apart *= 2) {
		double at = autocorrelation(r, n, apart);

		if (at > 3 / sqrt(many))
			rho = fmax(rho, pow(at, 1 / (double)apart));
	}
	rho = fmin(rho, RHO_MOST);
	rho += (1 + 4 * rho + 0.5 * sqrt(many * (1 - rho * rho))) / many;
	return fmin(rho, RHO_MOST);
}

/* Describes how the sensor's readings at the points change with the lag. If the lag is wrong,
 * these readings and the fitted line are wrong, too. The effect is largest where the load
 * changes fast. */
struct slope {
	/* `mean` is the mean of the derivative of the reading by the lag. dd is the sum of the
	 * squared deviations of this derivative from `mean`. xd is the sum of its products with
	 * the deviations of the readings from their mean. */
	double mean, dd, xd;
};

static bool slope_at(const struct task *t, size_t i, double lag_s, double *ret)
{
	double step = t->spacing_s / 20, before, after;

	if (!reading_at(t, i, lag_s - step, &before) || !reading_at(t, i, lag_s + step, &after))
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

		if (!reading_at(t, i, lag_s, &now) || !slope_at(t, i, lag_s, &slope))
			continue;
		away = slope - d.mean;
		d.mean += away / (double)++n;
		d.dd += away * (slope - d.mean);
		d.xd += (now - s->x) * slope;
	}
	return d;
}

/* Computes the variance of a weighted sum of errors, one error at a time. Each error has
 * variance 1; the correlation of two errors is rho^distance. */
struct alike_sum {
	/* `near` is the sum of weight x rho^distance over all earlier errors. The distance is
	 * measured from the next error. */
	double rho, near, variance;
};

static void alike_add(struct alike_sum *v, double weight)
{
	v->variance += weight * weight + 2 * weight * v->near;
	v->near = v->rho * (v->near + weight);
}

/* Variances of the gain and of the power at the pivot, for errors with variance 1.  Gain and
 * power are weighted sums of the points: the result of a least-squares fit in which the lag is
 * the third unknown. */
struct variances {
	double gain, pivot;
};

static struct variances fit_variances(const struct task *t, const struct sums *s,
				      const struct measured_calibration *f, double rho)
{
	struct slope d = slope_of(t, s, f->lag_s);
	struct alike_sum gain = { .rho = rho }, pivot = { .rho = rho };
	double det = s->xx * d.dd - d.xd * d.xd;
	bool lag = !f->offset_alone && det > 1e-6 * s->xx * d.dd;

	for (size_t i = 0; i < t->n; i++) {
		double x, slope;
		bool there = reading_at(t, i, f->lag_s, &x);

		x = there ? x - s->x : 0;
		slope = lag && there && slope_at(t, i, f->lag_s, &slope) ? slope - d.mean : 0;
		alike_add(&gain, lag ? (x * d.dd - slope * d.xd) / det : x / s->xx);
		alike_add(&pivot,
			  (there ? 1 / (double)s->n : 0) -
				  (lag ? d.mean * (slope * s->xx - x * d.xd) / det : 0));
	}
	return (struct variances){ gain.variance, pivot.variance };
}

/* Returns the standard deviation of the errors.  The residuals are smaller than the errors,
 * because the fit absorbs a part of the errors.  The lag absorbs about as much as the gain. */
static double error_of(const struct sums *s, const struct measured_calibration *f,
		       const struct variances *v, double left)
{
	double n = (double)s->n;
	double taken = n * v->pivot + (f->offset_alone ? 0 : 2 * s->xx * v->gain);

	return sqrt(left / fmax(n - taken, n / 4));
}

static void fit_uncertainties(const struct task *t, const struct sums *s,
			      struct measured_calibration *f, double left)
{
	double *r = residuals(t, f), n = (double)s->n;
	double rho = r ? error_correlation(r, t->n) : RHO_MOST;
	/* Effective number of independent points. */
	double real = fmax(5, n * (1 - rho) / (1 + rho));
	/* With few independent points, Student's t distribution is wider than the normal
	 * one. */
	double k = student_factor(ALPHA, real - 3) / NORMAL_95;
	struct variances v = fit_variances(t, s, f, rho);
	double error = error_of(s, f, &v, left);

	f->offset_u_w = k * error * sqrt(v.pivot);
	f->gain_u = f->offset_alone ? SENSOR_GAIN_U : k * error * sqrt(v.gain);
	free(r);
}

static void fit_values(const struct task *t, const struct sums *s,
		       struct measured_calibration *f)
{
	double left;

	f->gain = f->offset_alone ? 1 : s->xy / s->xx;
	f->measured_offset_w = f->offset_w = s->y - f->gain * s->x;
	left = fmax(0, s->yy - 2 * f->gain * s->xy + f->gain * f->gain * s->xx);
	f->residual_w = sqrt(left / ((double)s->n - (f->offset_alone ? 1 : 3)));
	f->pivot_w = s->x;
	f->points = s->n;
	f->span_s = s->last_s - s->first_s;
	fit_uncertainties(t, s, f, left);
}

static bool is_flat(const struct sums *s)
{
	return sqrt(s->xx / (double)s->n) < fmax(FLAT_W, FLAT_RATIO * s->x);
}

/* Ignores the offset if the external meter measures more than the GPU, for example the whole
 * machine. The constant power of the other parts is not an offset of the board. If the power of
 * other parts follows the load, this power changes the gain, so the uncertainty of the gain
 * grows. */
static void drop_offset(struct measured_calibration *f)
{
	f->wider = true;
	f->gain_u = hypot(f->gain_u, REST_U);
	f->offset_w = 0;
	f->offset_u_w = SENSOR_OFFSET_U_W;
	f->pivot_w = 0;
}

/* Writes the sentence into why and returns -GW_E_PARSE. */
#define calibrate_refuse(why, size, ...) (snprintf(why, size, __VA_ARGS__), -GW_E_PARSE)

static int check_span(const struct task *t, char *why, size_t size)
{
	double from, to, first = t->trace[0].t_s, last = t->trace[t->n - 1].t_s;

	if (!power_record_span(t->record, &from, &to))
		return calibrate_refuse(why, size, "the GPU reported no power to compare with");
	if (last < from || first > to)
		return calibrate_refuse(
			why, size,
			"the trace does not overlap the measurement: it %s %.0f s %s (times in "
			"the trace must be in UTC or have a UTC offset)",
			last < from ? "ends" : "begins", last < from ? from - last : first - to,
			last < from ? "before the measurement begins"
				    : "after the measurement ends");
	return 0;
}

static int set_too_few(size_t n, char *why, size_t size)
{
	return calibrate_refuse(
		why, size,
		"%zu points of the trace are within the measurement, but %d are needed; "
		"measure longer, or let the external meter log more often",
		n, CALIBRATE_LEAST);
}

static int check_line(const struct measured_calibration *f, char *why, size_t size)
{
	if (f->gain > 0.5 && f->gain < 2)
		return 0;
	return calibrate_refuse(
		why, size,
		"the external meter changes by %.3g W per watt of the GPU's sensor, which is "
		"impossible; check that its unit is watts and that it measures this GPU only",
		f->gain);
}

/* Returns the largest plausible offset of a board.  If the fit does not determine the gain, the
 * offset may also contain a gain error. */
static double likely_offset(const struct measured_calibration *f)
{
	return CALIBRATE_OFFSET_W + (f->offset_alone ? GAIN_MOST * f->pivot_w : 0);
}

static int fit_line(const struct task *t, struct measured_calibration *f, char *why,
		    size_t size)
{
	struct sums s = add_up(t, f->lag_s);
	int err;

	fit_values(t, &s, f);
	err = f->offset_alone ? 0 : check_line(f, why, size);
	/* Do not use a fitted gain that is less certain than the gain of an uncalibrated
	 * sensor. */
	if (!err && !f->offset_alone && f->gain_u > SENSOR_GAIN_U) {
		f->offset_alone = true;
		fit_values(t, &s, f);
	}
	if (err || fabs(f->measured_offset_w) <= likely_offset(f))
		return err;
	if (f->offset_alone)
		return calibrate_refuse(why, size,
					"the external meter differs by %.0f W, more than any "
					"sensor error: it measures more than the GPU, and the "
					"power did not vary enough to separate the GPU's part",
					f->measured_offset_w);
	drop_offset(f);
	return 0;
}

int calibrate_fit(const struct power_record *record, const struct trace_point *trace, size_t n,
		  struct measured_calibration *ret, char *why, size_t size)
{
	struct task t = { record, trace, n, 0 };
	struct measured_calibration f = { .correlation = NAN };
	struct sums s;
	int err;

	if (n == 0)
		return set_too_few(n, why, size);
	err = check_span(&t, why, size);
	if (err)
		return err;
	if (n < CALIBRATE_LEAST)
		return set_too_few(n, why, size);
	t.spacing_s = median_spacing(trace, n);
	s = add_up(&t, 0);
	if (s.n < CALIBRATE_LEAST)
		return set_too_few(s.n, why, size);
	f.offset_alone = is_flat(&s);
	if (!f.offset_alone) {
		f.lag_s = find_lag(&t, least_points(&t));
		s = add_up(&t, f.lag_s);
		f.correlation = correlation(&s);
		if (!(f.correlation >= CALIBRATE_ALIKE))
			return calibrate_refuse(
				why, size,
				"the trace does not follow the power of the GPU: the best "
				"correlation is %.2f, and %.1f is needed; check that the trace "
				"belongs to this GPU and that the clocks agree within %.0f s",
				isnan(f.correlation) ? 0 : f.correlation, CALIBRATE_ALIKE,
				CALIBRATE_LAG_S);
	}
	err = fit_line(&t, &f, why, size);
	if (!err)
		*ret = f;
	return err;
}

int calibration_accuracy(const char *text, double *ret_ratio)
{
	const char *end;
	double v = text ? number_parse(text, &end) : 1;

	if (!text || (end != text && (!*end || strcmp(end, "%") == 0) && v >= 0 && v <= 20)) {
		*ret_ratio = v / 100;
		return EXIT_OK;
	}
	return cli_usage(
		"--calibrate-accuracy takes a percentage from 0 to 20 such as 0.5, not '%s'",
		text);
}

static void write_notes(struct measured_calibration *t)
{
	unsigned n = 0;

	if (t->offset_alone)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "%s too little to determine the gain; only the offset is used, which "
			 "is valid near %.0f W",
			 isnan(t->correlation)
				 ? "the power varied"
				 : "compared with the scatter of the points, the power varied",
			 t->pivot_w);
	if (t->wider)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "the external meter reads %.0f W at zero GPU power, so it measures "
			 "more than the GPU; this offset is ignored, and the gain includes "
			 "losses and fans that follow the load",
			 t->measured_offset_w);
	if (t->passed_over)
		snprintf(t->note[n++], sizeof(t->note[0]),
			 "%zu line%s of the trace %s ignored: time or power is missing, or the "
			 "time is not later than that of the last line used",
			 t->passed_over, t->passed_over == 1 ? "" : "s",
			 t->passed_over == 1 ? "was" : "were");
}

int calibration_make(struct calibration *c, const char *path, const struct power_record *record,
		     double wall_s, double accuracy_ratio, char *why, size_t size)
{
	int err;

	memset(c, 0, sizeof(*c));
	err = trace_read(&c->trace, path, why, size);
	if (err)
		return err;
	for (size_t i = 0; i < c->trace.n; i++)
		c->trace.point[i].t_s -= wall_s;
	err = calibrate_fit(record, c->trace.point, c->trace.n, &c->summary, why, size);
	if (err) {
		trace_done(&c->trace);
		return err;
	}
	c->summary.trace = path;
	c->summary.passed_over = c->trace.passed_over;
	c->summary.reference_u = accuracy_ratio / NORMAL_95;
	snprintf(c->summary.sha256, sizeof(c->summary.sha256), "%s", c->trace.sha256);
	write_notes(&c->summary);
	return 0;
}

void calibration_apply(const struct calibration *c, struct sensor *s)
{
	const struct measured_calibration *t = &c->summary;

	s->calibration = (struct sensor_calibration){ .done = true,
						      .gain = t->gain,
						      .gain_u = t->gain_u,
						      .offset_w = t->offset_w,
						      .offset_u_w = t->offset_u_w,
						      .pivot_w = t->pivot_w,
						      .reference_u = t->reference_u };
}

int run_calibration_init(struct run_calibration *c, const char *path, double accuracy_ratio)
{
	if (!path)
		return 0;
	c->record = malloc(sizeof(*c->record));
	if (!c->record)
		return -GW_E_NOMEM;
	power_record_init(c->record);
	pthread_mutex_init(&c->lock, NULL);
	c->path = path;
	c->accuracy_ratio = accuracy_ratio;
	return 0;
}

void run_calibration_done(struct run_calibration *c)
{
	if (c->fitted)
		trace_done(&c->fit.trace);
	if (c->record)
		pthread_mutex_destroy(&c->lock);
	free(c->record);
	c->record = NULL;
}

void run_calibration_event(struct run_calibration *c, const struct event *e)
{
	if (!c->record || e->type != EVENT_POWER)
		return;
	pthread_mutex_lock(&c->lock);
	power_record_add(c->record, (double)e->t_ns * 1e-9, e->u.power_w);
	pthread_mutex_unlock(&c->lock);
}

int run_calibration_end(struct run_calibration *c, struct measured *result)
{
	const struct measured_run *first = &result->run[0];
	double wall_s = ((double)first->begin_wall_ns - (double)first->begin_ns) * 1e-9;
	int err;

	pthread_mutex_lock(&c->lock);
	err = calibration_make(&c->fit, c->path, c->record, wall_s, c->accuracy_ratio, c->why,
			       sizeof(c->why));
	pthread_mutex_unlock(&c->lock);
	if (err)
		return err;
	c->fitted = true;
	c->sensor = first->device[0].sensor;
	calibration_apply(&c->fit, &c->sensor);
	result->calibration = &c->fit.summary;
	return 0;
}

void run_calibration_marks(const struct run_calibration *c, struct progress_marks *m)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->window[i].energy)
			energy_calibrate(&m->window[i].energy[0], &c->sensor.calibration);
}

int run_calibration_keep(struct run_calibration *c)
{
	char dir[3800];
	int err = sensor_directory(dir, sizeof(dir));

	if (err) {
		snprintf(c->why, sizeof(c->why),
			 "neither XDG_CACHE_HOME nor HOME is set to a folder");
		return err;
	}
	return sensor_save(&c->sensor, dir, c->why, sizeof(c->why));
}
