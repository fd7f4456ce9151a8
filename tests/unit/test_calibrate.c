/* Tests the calibration with an external meter, for a sensor with known errors. */
#include "cli/calibrate.h"
#include "cli/cli.h"

#include "measure/baseline.h"
#include "measure/energy.h"
#include "measure/stat.h"

#include "random_unit.h"
#include "test.h"

#include <math.h>
#include <time.h>

#define POINTS 4000

/* Replaces the real function: no test here prints an error. */
void cli_error(const char *fmt, ...)
{
	(void)fmt;
}

/* The true power, and the readings of the GPU's sensor and of the external meter. The sensor
 * reads (true - offset) / gain. */
struct world {
	double gain, offset_w; /* values that a fit must find */
	double lag_s, spacing_s, rest_w;
	/* Errors of the external meter: independent noise, and AR(1) noise with correlation
	 * rho. */
	double noise_w, alike_w, rho;
	double last_w; /* the AR(1) error at the last point */
	double seconds;
	double low_w, high_w, hold_s; /* levels of the load, and the time at each level */
	struct random random;
	double level[4096];
	struct power_record record;
	struct trace_point point[POINTS];
	size_t n;
};

static const struct world usual = { .gain = 1.05,
				    .offset_w = 8,
				    .lag_s = 1.3,
				    .spacing_s = 1,
				    .noise_w = 2,
				    .seconds = 120,
				    .low_w = 100,
				    .high_w = 600,
				    .hold_s = 5 };

static double truth(const struct world *w, double t)
{
	int i = (int)floor(t / w->hold_s) + 8;

	return w->level[i < 0 ? 0 : i];
}

/* Returns an approximately Gaussian number: the sum of twelve uniform ones. */
static double gauss(struct world *w)
{
	double sum = -6;

	for (unsigned i = 0; i < 12; i++)
		sum += random_unit(&w->random);
	return sum;
}

static double noise(struct world *w)
{
	if (w->alike_w > 0)
		w->last_w =
			w->rho * w->last_w + sqrt(1 - w->rho * w->rho) * w->alike_w * gauss(w);
	return w->last_w + w->noise_w * gauss(w);
}

/* Returns the true mean power over the time that one point of the external meter covers. */
static double seen_outside(const struct world *w, double t)
{
	double sum = 0;

	for (unsigned i = 0; i < 50; i++)
		sum += truth(w, t - w->lag_s + w->spacing_s * ((i + 0.5) / 50 - 0.5));
	return sum / 50 + w->rest_w;
}

static struct world *make(const struct world *like, uint64_t seed)
{
	struct world *w = malloc(sizeof(*w));

	assert_non_null(w);
	*w = *like;
	random_init(&w->random, seed);
	for (unsigned i = 0; i < 4096; i++)
		w->level[i] = w->low_w + (w->high_w - w->low_w) * random_unit(&w->random);
	power_record_init(&w->record);
	for (double t = 0; t < w->seconds; t += 0.02)
		power_record_add(&w->record, t, (truth(w, t) - w->offset_w) / w->gain);
	for (double t = 0.5; t < w->seconds && w->n < POINTS; t += w->spacing_s)
		w->point[w->n++] = (struct trace_point){ t, seen_outside(w, t) + noise(w) };
	return w;
}

static uint64_t any_seed(void)
{
	uint64_t seed = (uint64_t)time(NULL);

	print_message("seed %llu\n", (unsigned long long)seed);
	return seed;
}

TEST(gain_offset_and_lag_are_found)
{
	static const double lags[] = { 0, 1.3, -2.4, 7.7 };
	uint64_t seed = any_seed();

	for (unsigned i = 0; i < 4; i++) {
		struct world like = usual, *w;
		struct measured_calibration f;
		char why[400] = "";

		like.lag_s = lags[i];
		w = make(&like, seed + i);
		assert_int_equal(
			calibrate_fit(&w->record, w->point, w->n, &f, why, sizeof(why)), 0);
		assert_true(fabs(f.lag_s - lags[i]) < 0.1);
		assert_true(fabs(f.gain - 1.05) < 5 * f.gain_u + 1e-3);
		assert_true(f.gain_u < 0.01 && f.offset_u_w < 2);
		assert_true(fabs(f.gain * f.pivot_w + f.offset_w - (1.05 * f.pivot_w + 8)) <
			    5 * f.offset_u_w + 0.5);
		assert_true(f.correlation > 0.99);
		assert_false(f.offset_alone || f.wider);
		free(w);
	}
}

/* Stated uncertainties must cover the truth nearly as often as they claim. */
TEST(nineteen_of_twenty_fits_cover_the_truth)
{
	uint64_t seed = any_seed();
	unsigned held = 0, all = 0;

	for (unsigned i = 0; i < 200; i++) {
		struct world like = usual, *w;
		struct measured_calibration f;
		char why[400] = "";

		like.noise_w = 10;
		like.seconds = 40;
		like.lag_s = 0.5;
		w = make(&like, seed + i);
		assert_int_equal(
			calibrate_fit(&w->record, w->point, w->n, &f, why, sizeof(why)), 0);
		all += !f.offset_alone; /* with offset_alone no gain was fitted */
		held += !f.offset_alone && fabs(f.gain - 1.05) <= 1.96 * f.gain_u;
		free(w);
	}
	print_message("%u of %u\n", held, all);
	assert_true(all > 100);
	assert_true(held >=
		    /* 0.95 is expected; for 200 fits, 0.87 is five standard deviations lower */
		    0.87 * all);
}

/* Counts in how many of 200 fits the interval contains the true gain, and in how many it
 * contains the true power at the pivot. */
static void count_held(const struct world *like, unsigned *ret_gain, unsigned *ret_pivot)
{
	*ret_gain = *ret_pivot = 0;
	for (unsigned i = 0; i < 200; i++) {
		struct world *w = make(like, 1000 + i);
		struct measured_calibration f;
		char why[400] = "";
		double gain, pivot;

		assert_int_equal(
			calibrate_fit(&w->record, w->point, w->n, &f, why, sizeof(why)), 0);
		gain = f.gain - like->gain;
		pivot = gain * f.pivot_w + f.offset_w - like->offset_w;
		*ret_gain += fabs(gain) <= 1.96 * f.gain_u;
		*ret_pivot += fabs(pivot) <= 1.96 * f.offset_u_w;
		free(w);
	}
}

/* The errors of a drifting external meter are correlated, so it has fewer effective points. The
 * residuals show how many. */
TEST(fits_cover_the_truth_with_correlated_errors)
{
	static const struct {
		double alike_w, rho, noise_w, seconds;
		unsigned least; /* of 200 fits, the number that must cover the truth */
	} rows[] = {
		{ 8, 0, 0, 120, 180 },
		{ 8, 0.5, 0, 120, 180 },
		{ 8, 0.9, 0, 120, 180 },
		/* independent noise hides the correlation of successive points */
		{ 5, 0.9, 6, 300, 170 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct world like = usual;
		unsigned gain, pivot;

		like.gain =
			/* within the range that is assumed for a board if the gain is
			 * unknown */
			1.03;
		like.alike_w = rows[i].alike_w;
		like.rho = rows[i].rho;
		like.noise_w = rows[i].noise_w;
		like.seconds = rows[i].seconds;
		count_held(&like, &gain, &pivot);
		print_message("rho %g, %g W more, %g s: of 200, gain %u, pivot %u\n",
			      rows[i].rho, rows[i].noise_w, rows[i].seconds, gain, pivot);
		assert_true(gain >= rows[i].least && pivot >= rows[i].least);
	}
}

TEST(constant_power_gives_only_the_offset)
{
	struct world like = usual, *w;
	struct measured_calibration f;
	char why[400] = "";

	like.low_w = 300;
	like.high_w = 302;
	like.gain = 1.02;
	like.offset_w = 4;
	w = make(&like, 1);
	assert_int_equal(calibrate_fit(&w->record, w->point, w->n, &f, why, sizeof(why)), 0);
	assert_true(f.offset_alone && f.gain == 1 && f.gain_u == 0.025);
	assert_true(isnan(f.correlation) && f.lag_s == 0);
	/* The fit is right at the measured power: 301 W true are read as 291.2 W. */
	assert_true(fabs(f.pivot_w + f.offset_w - 301) < 1);
	free(w);
}

TEST(a_meter_of_the_whole_machine_gives_only_the_gain)
{
	struct world like = usual, *w;
	struct measured_calibration f;
	char why[400] = "";

	like.rest_w = 210;
	w = make(&like, 2);
	assert_int_equal(calibrate_fit(&w->record, w->point, w->n, &f, why, sizeof(why)), 0);
	assert_true(f.wider && f.offset_w == 0 && f.pivot_w == 0 && f.offset_u_w == 2.5);
	assert_true(f.gain_u >= 0.05); /* losses that depend on the load are part of the gain */
	assert_true(fabs(f.gain - 1.05) < 0.01);
	assert_true(fabs(f.measured_offset_w - 218) < 5);
	free(w);
}

TEST(records_that_cannot_be_fitted_are_refused_with_a_reason)
{
	static const struct {
		const char *what, *word;
		double shift_s, scale, spacing_s, low_w, rest_w;
		bool noise;
	} rows[] = {
		{ "an hour late", "begins 3", 3600, 1, 1, 100, 0, false },
		{ "an hour early", "ends 3", -3600, 1, 1, 100, 0, false },
		{ "a point every 15 s", "8 points of the trace", 0, 1, 15, 100, 0, false },
		{ "a trace of something else", "does not follow", 0, 1, 1, 100, 0, true },
		{ "kilowatts", "its unit is watts", 0, 0.001, 1, 100, 0, false },
		{ "the machine, standing still", "measures more", 0, 1, 1, 599, 200, false },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct world like = usual, *w;
		struct measured_calibration f = { .gain = 7 };
		char why[400] = "";

		like.spacing_s = rows[i].spacing_s;
		like.low_w = rows[i].low_w;
		like.rest_w = rows[i].rest_w;
		w = make(&like, 3);
		for (size_t k = 0; k < w->n; k++) {
			w->point[k].t_s += rows[i].shift_s;
			w->point[k].w *= rows[i].scale;
			if (rows[i].noise)
				w->point[k].w = 100 + 500 * random_unit(&w->random);
		}
		print_message("%s\n", rows[i].what);
		assert_true(calibrate_fit(&w->record, w->point, w->n, &f, why, sizeof(why)) <
			    0);
		assert_in(why, rows[i].word);
		assert_true(f.gain == 7); /* not changed */
		free(w);
	}
}

TEST(a_record_of_any_length_keeps_its_joules)
{
	struct power_record *r = malloc(sizeof(*r));
	double sum = 0, mean;

	assert_non_null(r);
	power_record_init(r);
	for (unsigned i = 0; i <= 1000000; i++) /* five and a half hours of samples */
		power_record_add(r, i * 0.02, 300 + 200 * sin(i * 0.001));
	for (unsigned i = 1; i <= 1000000; i++)
		sum += 0.01 * (600 + 200 * (sin(i * 0.001) + sin((i - 1) * 0.001)));
	assert_true(power_record_mean(r, 0, 20000, &mean));
	assert_true(fabs(mean * 20000 - sum) < 1e-6 * sum);
	assert_true(power_record_mean(r, 5000, 5010, &mean));
	assert_true(fabs(mean - (300 + 200 * sin(250.25))) < 5);
	assert_false(power_record_mean(r, -1, 5, &mean));
	assert_false(power_record_mean(r, 19999, 20001, &mean));
	power_record_add(r, 20010, 300); /* a gap in the samples */
	power_record_add(r, 20011, 300);
	assert_false(power_record_mean(r, 19999, 20005, &mean));
	power_record_add(r, 20005, 900); /* earlier than the last sample: ignored */
	assert_true(r->last.t_s == 20011);
	free(r);
}

/* 5000 J in 10 s, edges uncertain by 20 J; nothing is known about the board. */
static const struct gw_energy measured = {
	.seconds = 10,
	.joules = { 4747.5, 5000, 5252.5 },
	.relative = { 4960.8, 5000, 5039.2 },
	.u_relative = 20,
	.budget = { [GW_BUDGET_EDGES] = 20, [GW_BUDGET_GAIN] = 125, [GW_BUDGET_OFFSET] = 25 },
};

static struct sensor board(double gain, double offset_w)
{
	return (struct sensor){ .calibration.done = true,
				.calibration.gain = gain,
				.calibration.offset_w = offset_w,
				.calibration.gain_u = 0.002,
				.calibration.offset_u_w = 0.5,
				.calibration.pivot_w = 400,
				.calibration.reference_u = 0.005 };
}

static void near(double a, double b)
{
	if (fabs(a - b) > 1e-9 * (1 + fabs(b)))
		fail_msg("%.15g is not %.15g", a, b);
}

TEST(energy_is_corrected_and_the_raw_value_is_kept)
{
	struct gw_energy e = measured;
	struct sensor s = board(1.04, -6);

	energy_calibrate(&e, &s.calibration);
	near(e.raw_joules, 5000);
	near(e.joules.best, 1.04 * 5000 - 60);
	near(e.relative.best, e.joules.best);
	near(e.relative.high, 1.04 * 5039.2 - 60);
	near(e.budget[GW_BUDGET_EDGES], 1.04 * 20);
	/* The gain uncertainty applies to the power above 400 W: 100 W for 10 s. */
	near(e.budget[GW_BUDGET_GAIN], hypot(0.002 * 1000, 0.005 * e.joules.best));
	near(e.budget[GW_BUDGET_OFFSET], 5);
	near(e.u_absolute, sqrt(20.8 * 20.8 + pow(e.budget[GW_BUDGET_GAIN], 2) + 25));
	assert_true(e.calibrated && e.gain == 1.04 && e.offset_watts == -6);
	assert_true(e.joules.high - e.joules.low < measured.joules.high - measured.joules.low);
}

TEST(a_second_calibration_replaces_the_first)
{
	struct gw_energy once = measured, twice = measured;
	struct sensor first = board(0.9, 11), second = board(1.04, -6);

	energy_calibrate(&once, &second.calibration);
	energy_calibrate(&twice, &first.calibration);
	energy_calibrate(&twice, &second.calibration);
	near(twice.joules.low, once.joules.low);
	near(twice.joules.best, once.joules.best);
	near(twice.joules.high, once.joules.high);
	near(twice.relative.low, once.relative.low);
	near(twice.u_relative, once.u_relative);
	near(twice.u_absolute, once.u_absolute);
	near(twice.raw_joules, 5000);
}

TEST(unknown_values_stay_unknown)
{
	struct gw_energy e = measured;
	struct sensor s = board(1.04, -6);

	e.joules = e.relative = (struct gw_interval){ NAN, NAN, NAN };
	energy_calibrate(&e, &s.calibration);
	assert_true(isnan(e.joules.best) && isnan(e.joules.low) && !e.calibrated);
}

TEST(the_offset_cancels_in_net_energy)
{
	struct gw_energy e = measured;
	struct sensor s = board(1.04, -6);
	/* baseline as the sensor reported it */
	struct baseline b = { .power_w = 80, .u_w = 0.1 };
	struct baseline_net net;

	energy_calibrate(&e, &s.calibration);
	baseline_net(&e, &s, &b, NULL, &net);
	near(net.joules.best, 1.04 * (5000 - 800));
}

/* Constant 500 W on a sensor that reads 4 % low. The fitted offset is valid at that power, but
 * not at the baseline, which is 400 W lower. */
TEST(net_energy_has_the_gain_uncertainty_of_the_calibration)
{
	struct gw_energy e = measured;
	struct sensor s = board(1, 20.8);
	struct baseline b = { .power_w = 76, .u_w = 0 };
	struct baseline_net net;
	double truth = (5000 - 760) / 0.96, wide;

	s.calibration.gain_u = 0.025;
	s.calibration.pivot_w = 500;
	energy_calibrate(&e, &s.calibration);
	baseline_net(&e, &s, &b, NULL, &net);
	wide = 1.96 * hypot(e.u_absolute, 0.025 * (5000 - 760));
	near(net.joules.best, 5000 - 760);
	near(net.joules.high - net.joules.best, wide);
	near(net.joules.best - net.joules.low, wide);
	assert_true(net.joules.high > truth);
}

/* The gain uncertainty at the pivot counts once, for the power above the baseline. */
TEST(in_net_energy_the_gain_applies_above_the_baseline)
{
	struct gw_energy e = measured;
	struct sensor s = board(1.04, -6); /* pivot 400 W, u(gain) 0.002 */
	struct baseline b = { .power_w = 80, .u_w = 0 };
	struct baseline_net net;
	double rest2;

	energy_calibrate(&e, &s.calibration);
	baseline_net(&e, &s, &b, NULL, &net);
	rest2 = pow(e.u_absolute, 2) - pow(s.calibration.gain_u * (5000 - 4000), 2);
	near(net.joules.high - net.joules.best,
	     1.96 * sqrt(rest2 + pow(s.calibration.gain_u * (5000 - 800), 2)));
}

TEST_MAIN(NULL, NULL)
