#include "measure/sensor.h"

#include <gpuward.h>

#include <math.h>

#include "measure/distribution.h"
#include "measure/stat.h"

#include "random_unit.h"
#include "test.h"

static void assert_near(double have, double want, double within)
{
	if (fabs(have - want) <= within)
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

TEST(trials_are_compared_by_welchs_interval_of_logarithms)
{
	/* the logarithms are 0 1 2 (variance 1) and 1 3 5 7 (variance 20/3) */
	double a[] = { exp(0), exp(1), exp(2) }, b[] = { exp(1), exp(3), exp(5), exp(7) };
	struct compare_arm first = { a, 3, NAN }, row = { b, 4, NAN };
	struct compare_change c;
	double ua = 1.0 / 3, ub = 5.0 / 3;
	double df = (ua + ub) * (ua + ub) / (ua * ua / 2 + ub * ub / 3);
	double reach = student_quantile(0.975, df) * sqrt(ua + ub);

	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
	assert_int_equal(c.basis, COMPARE_TRIALS);
	assert_near(c.ratio, exp(3), 1e-9);
	assert_near(c.change, exp(3) - 1, 1e-9);
	assert_near(c.df, df, 1e-9);
	assert_near(c.change_low, exp(3 - reach) - 1, 1e-9);
	assert_near(c.change_high, exp(3 + reach) - 1, 1e-6);
}

TEST(single_values_are_compared_by_their_stated_uncertainties)
{
	double a = 200, b = 210;
	struct compare_arm first = { &a, 1, 0.003 }, row = { &b, 1, 0.004 };
	struct compare_change c;

	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
	assert_int_equal(c.basis, COMPARE_BUDGET);
	assert_near(c.change, 0.05, 1e-12);
	assert_true(isinf(c.df));
	assert_near(c.change_low, 1.05 * exp(-1.959963984540054 * 0.005) - 1, 1e-12);
	assert_near(c.change_high, 1.05 * exp(1.959963984540054 * 0.005) - 1, 1e-12);
}

TEST(one_run_is_assumed_to_scatter_as_the_others)
{
	/* logarithms 0 1 2 3: mean 1.5, variance 5/3; the variance of one run against them is
	 * 5/3 (1 + 1/4) */
	double a[] = { exp(0), exp(1), exp(2), exp(3) }, b = exp(4);
	struct compare_arm first = { a, 4, 0.5 }, row = { &b, 1, NAN };
	double u2 = 5.0 / 3 * 1.25, reach = 3.182446305284263 * sqrt(u2);
	struct compare_change c;

	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
	assert_int_equal(c.basis, COMPARE_ONE_SIDE);
	assert_near(c.df, 3, 0);
	assert_near(log1p(c.change_low), 2.5 - reach, 1e-9);
	assert_near(log1p(c.change_high), 2.5 + reach, 1e-9);

	/* the stated uncertainty uses the normal factor, not Student's */
	row.u_ratio = 0.3;
	reach = hypot(reach, 1.959963984540054 * 0.5);
	assert_int_equal(compare_arms(&first, &row, 0.4, 0.05, &c), 0);
	assert_near(log1p(c.change_low), 2.5 - reach, 1e-9);
	assert_near(log1p(c.change_high), 2.5 + reach, 1e-9);
}

/* Runs of 43 to 72 J against one of 48.04 J. An earlier version of the code gave -21 % [-22.8,
 * -19.2]. */
TEST(leaving_runs_out_does_not_narrow_the_interval)
{
	double a[] = { 43, 58, 72, 71 }, b[] = { 48.04, 61, 52 };
	struct compare_arm first = { a, 4, 0.009 }, row = { b, 3, 0.004 };
	struct compare_change three, one;

	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &three), 0);
	row.n = 1;
	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &one), 0);
	assert_true(one.change_high - one.change_low > three.change_high - three.change_low);
	assert_true(one.change_low < -0.5 && one.change_high > 0.5);
	assert_int_equal(compare_verdict(&one), COMPARE_OPEN);
}

TEST(without_any_uncertainty_there_is_a_ratio_and_no_interval)
{
	double a = 200, b[] = { 210, 211 };
	struct compare_arm first = { &a, 1, NAN }, row = { b, 1, 0.004 };
	struct compare_change c;

	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
	assert_int_equal(c.basis, COMPARE_NONE);
	assert_near(c.ratio, 210.0 / 200, 1e-12);
	assert_true(isnan(c.change_low) && isnan(c.change_high));

	/* the shared uncertainty is unknown, so the uncertainty of the ratio is unknown too */
	row.n = 2;
	assert_int_equal(compare_arms(&first, &row, NAN, 0.05, &c), 0);
	assert_int_equal(c.basis, COMPARE_NONE);
	assert_near(c.ratio, sqrt(210.0 * 211.0) / 200, 1e-12);
	assert_true(isnan(c.change_low) && isnan(c.change_high));
}

TEST(only_observed_scatter_gives_a_verdict)
{
	static const struct {
		enum compare_basis basis;
		double low, high;
		enum compare_verdict verdict;
	} cases[] = {
		{ COMPARE_TRIALS, -0.2, -0.1, COMPARE_LESS },
		{ COMPARE_TRIALS, 0.1, 0.2, COMPARE_MORE },
		{ COMPARE_TRIALS, -0.1, 0.2, COMPARE_OPEN },
		{ COMPARE_TRIALS, 0, 0, COMPARE_OPEN },
		{ COMPARE_ONE_SIDE, -0.2, -0.1, COMPARE_LESS },
		{ COMPARE_ONE_SIDE, 0.1, 0.2, COMPARE_MORE },
		{ COMPARE_BUDGET, -0.2, -0.1, COMPARE_UNKNOWN },
		{ COMPARE_BUDGET, 0.1, 0.2, COMPARE_UNKNOWN },
		{ COMPARE_NONE, NAN, NAN, COMPARE_UNKNOWN },
	};

	for (unsigned i = 0; i < COUNT_OF(cases); i++) {
		struct compare_change c = { .basis = cases[i].basis,
					    .change_low = cases[i].low,
					    .change_high = cases[i].high };

		assert_int_equal(compare_verdict(&c), cases[i].verdict);
	}
}

TEST(an_offset_widens_the_interval_however_many_runs)
{
	double a[64], b[64];
	struct compare_arm first = { a, 64, NAN }, row = { b, 64, NAN };
	struct compare_change c;
	double u = compare_offset(SENSOR_OFFSET_U_W, 700, 100);

	assert_near(u, 2.5 * (1 / 100.0 - 1 / 700.0), 1e-12);
	assert_true(compare_offset(SENSOR_OFFSET_U_W, 300, 300) == 0);
	for (unsigned i = 0; i < 64; i++) {
		a[i] = 100 + 0.01 * (i % 2);
		b[i] = 200 + 0.02 * (i % 2);
	}
	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
	assert_true(c.change_high - c.change_low < 1e-4);
	assert_int_equal(compare_arms(&first, &row, u, 0.05, &c), 0);
	assert_near(c.change_high - c.change_low, 2 * 2 * sinh(1.96 * u), 1e-4);
}

TEST(equal_runs_make_an_interval_without_width)
{
	double a[] = { 5, 5 }, b[] = { 10, 10 };
	struct compare_arm first = { a, 2, NAN }, row = { b, 2, NAN };
	struct compare_change c;

	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
	assert_near(c.change_low, 1, 1e-12);
	assert_near(c.change_high, 1, 1e-12);
}

TEST(values_without_a_logarithm_are_refused)
{
	double good[] = { 1, 2 },
	       bad[][2] = { { 1, 0 }, { 1, -1 }, { NAN, 1 }, { 1, INFINITY } };
	struct compare_arm first = { good, 2, NAN }, row = { good, 2, NAN };
	struct compare_change c;

	for (unsigned i = 0; i < 4; i++) {
		row.runs = bad[i];
		assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), -GW_E_ARG);
		assert_int_equal(compare_arms(&row, &first, 0, 0.05, &c), -GW_E_ARG);
	}
	row = (struct compare_arm){ good, 0, NAN };
	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), -GW_E_ARG);
	row = (struct compare_arm){ good, 2, -0.1 };
	assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), -GW_E_ARG);
	assert_int_equal(compare_arms(&first, &first, -1, 0.05, &c), -GW_E_ARG);
	assert_int_equal(compare_arms(&first, &first, 0, 1, &c), -GW_E_ARG);
}

TEST(swapping_the_rows_inverts_the_ratio)
{
	uint64_t seed = 23;
	struct random r;

	print_message("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned i = 0; i < 500; i++) {
		double a[8], b[8];
		struct compare_arm x = { a, 1 + random_below(&r, 8), random_unit(&r) };
		struct compare_arm y = { b, 1 + random_below(&r, 8), random_unit(&r) };
		struct compare_change c, d;

		for (unsigned j = 0; j < 8; j++) {
			a[j] = 100 * (1 + random_unit(&r));
			b[j] = 300 * (1 + random_unit(&r));
		}
		assert_int_equal(compare_arms(&x, &y, 0.01, 0.05, &c), 0);
		assert_int_equal(compare_arms(&y, &x, 0.01, 0.05, &d), 0);
		assert_int_equal(c.basis, d.basis);
		assert_near(c.ratio * d.ratio, 1, 1e-12);
		assert_near((1 + c.change_low) * (1 + d.change_high), 1, 1e-9);
		assert_true(c.change_low <= c.change && c.change <= c.change_high);
	}
}

/* The arms differ in spread and size, so a plain t test would be wrong. (With four runs against
 * twelve, Welch's approximation misses its level by one point.) */
TEST(welchs_interval_has_its_stated_coverage)
{
	unsigned covered = 0, rounds = 10000;
	double a[6], b[12];
	struct compare_arm first = { a, 6, NAN }, row = { b, 12, NAN };
	struct random r;

	random_init(&r, 29);
	for (unsigned i = 0; i < rounds; i++) {
		struct compare_change c;

		for (unsigned j = 0; j < 6; j++)
			a[j] = 100 * exp(0.02 * normal_quantile(random_unit(&r) + 0x1p-54));
		for (unsigned j = 0; j < 12; j++)
			b[j] = 103 * exp(0.01 * normal_quantile(random_unit(&r) + 0x1p-54));
		assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
		covered += c.change_low <= 0.03 && 0.03 <= c.change_high;
	}
	print_message("seed 29: covered %.2f %%\n", 100.0 * covered / rounds);
	assert_in_range(covered, rounds * 94 / 100, rounds * 96 / 100);
}

static double lognormal(struct random *r, double median, double sd)
{
	return median * exp(sd * normal_quantile(random_unit(r) + 0x1p-54));
}

/* Compares n runs with 2 % scatter with one run. Returns how many rounds, each with its own
 * seed, cover the true ratio 1.03. `stated` is the part of the scatter that the run states as
 * its uncertainty. */
static unsigned covered_by_one_run(unsigned rounds, size_t n, double stated)
{
	unsigned covered = 0;

	for (unsigned seed = 1; seed <= rounds; seed++) {
		double a[8], b;
		struct compare_arm first = { a, n, NAN }, row = { &b, 1, stated * 0.02 };
		struct compare_change c;
		struct random r;

		random_init(&r, seed);
		for (size_t i = 0; i < n; i++)
			a[i] = lognormal(&r, 100, 0.02);
		b = lognormal(&r, 103, 0.02);
		assert_int_equal(compare_arms(&first, &row, 0, 0.05, &c), 0);
		covered += c.change_low <= 0.03 && 0.03 <= c.change_high;
	}
	print_message("%zu runs against one, %.1f of the scatter stated: covered %u of %u\n", n,
		      stated, covered, rounds);
	return covered;
}

TEST(four_runs_against_one_cover_in_200_seeds)
{
	assert_in_range(covered_by_one_run(200, 4, 0), 186, 200);
	assert_in_range(covered_by_one_run(200, 4, 0.3), 186, 200);
}

/* The stated uncertainty is added to scatter that already contains it, so in the worst case the
 * interval is too wide. */
TEST(the_interval_of_a_few_runs_against_one_has_its_stated_coverage)
{
	static const double stated[] = { 0, 0.3, 1 };
	unsigned rounds = 10000;

	for (size_t n = 2; n <= 8; n *= 2)
		for (unsigned i = 0; i < 3; i++)
			assert_in_range(covered_by_one_run(rounds, n, stated[i]),
					rounds * 94 / 100,
					stated[i] == 0 ? rounds * 96 / 100 : rounds);
}

TEST_MAIN(NULL, NULL)
