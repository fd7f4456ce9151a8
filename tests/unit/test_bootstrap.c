/* Tests the random generator and the bootstrap intervals. */
#include "here.h"
#include "random_unit.h"
#include "test.h"

#include "measure/stat.h"

#include <gpuward.h>

#include <math.h>

#include "measure/distribution.h"

/* A sanitizer makes each experiment ten times as slow: run fewer. */
#ifdef SLOW
#define EXPERIMENTS 400
#else
#define EXPERIMENTS 4000
#endif

static double scratch[BOOTSTRAP_RESAMPLES];

/* The first numbers that the authors of the generator published. */
TEST(the_generator_equals_the_published_one)
{
	struct random r = { .s = { 1, 2, 3, 4 } };
	uint64_t s = 1234567;

	assert_int_equal(random_next(&r), 11520);
	assert_int_equal(random_next(&r), 0);
	assert_int_equal(random_next(&r), 1509978240);
	assert_int_equal(random_next(&r), 1215971899390074240);
	assert_int_equal(splitmix64(&s), 6457827717110365317u);
	assert_int_equal(splitmix64(&s), 3203168211198807973u);
}

TEST(the_same_start_gives_the_same_numbers)
{
	struct random a, b, c;

	random_init(&a, 42);
	random_init(&b, 42);
	random_init(&c, 43);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t x = random_next(&a);

		assert_int_equal(x, random_next(&b));
		assert_int_not_equal(x, random_next(&c));
	}
	assert_int_equal(a.seed, 42);
}

/* Chi squared with 6 degrees of freedom: 22.5 is exceeded once in a thousand. */
TEST(numbers_below_a_bound_are_evenly_spread)
{
	double seen[7] = { 0 }, chi2 = 0;
	struct random r;

	random_init(&r, 5);
	for (unsigned i = 0; i < 70000; i++)
		seen[random_below(&r, 7)]++;
	for (unsigned i = 0; i < 7; i++)
		chi2 += (seen[i] - 10000) * (seen[i] - 10000) / 10000;
	print_message("chi squared %.1f\n", chi2);
	assert_true(chi2 < 22.5);
	assert_int_equal(random_below(&r, 1), 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_true(random_below(&r, 0xc0000001u) <= 0xc0000000u);
}

/* With a bound just above 2^31, a plain remainder would make the lower half twice as likely. */
TEST(a_large_bound_has_no_bias)
{
	uint32_t bound = 3u << 30;
	unsigned low = 0;
	struct random r;

	random_init(&r, 6);
	for (unsigned i = 0; i < 40000; i++)
		low += random_below(&r, bound) < bound / 2;
	assert_in_range(low, 19500, 20500);
}

TEST(fractions_are_between_zero_and_one)
{
	double sum = 0;
	struct random r;

	random_init(&r, 9);
	for (unsigned i = 0; i < 100000; i++) {
		double u = random_unit(&r);

		assert_true(u >= 0 && u < 1);
		sum += u;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.004);
}

static double gauss(struct random *r)
{
	return normal_quantile(random_unit(r) + 0x1p-54);
}

/* For three values all 27 resamples can be listed, so the means and their shares are known. */
TEST(the_percentile_interval_equals_that_of_all_resamples)
{
	/* of 27 resamples 8, 12, 6 and 1 have the mean 0, 1, 2 and 3 */
	double x[] = { 0, 0, 3 };
	struct bootstrap b;

	/* 29.6 % have the mean 0: the lower end is 0. 3.7 % have the mean 3: the upper end of
	 * the 90 % interval is 2. */
	assert_int_equal(bootstrap_mean(x, 3, 0.1, 10000, 1, scratch, &b), 0);
	assert_true(b.percentile_low == 0 && b.percentile_high == 2);
	assert_int_equal(bootstrap_mean(x, 3, 0.04, 10000, 1, scratch, &b), 0);
	assert_true(b.percentile_low == 0 && b.percentile_high == 3);
	/* share below the mean: 8/27 and half of 12/27 */
	assert_true(fabs(b.bias - normal_quantile(14.0 / 27)) < 0.03);
	/* the deviations from the mean are -1, -1 and 2: their squares and their cubes both add
	 * up to 6, so a = 6 / (6 * 6^1.5) */
	assert_true(fabs(b.acceleration - 1 / pow(6, 1.5)) < 1e-12);
}

TEST(the_same_start_gives_the_same_interval)
{
	double x[] = { 1, 2, 4, 8, 16, 32 };
	struct bootstrap a, b, c;

	assert_int_equal(bootstrap_mean(x, 6, 0.05, 1000, 3, scratch, &a), 0);
	assert_int_equal(bootstrap_mean(x, 6, 0.05, 1000, 3, scratch, &b), 0);
	assert_int_equal(bootstrap_mean(x, 6, 0.05, 1000, 4, scratch, &c), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_memory_not_equal(&a, &c, sizeof(a));
}

TEST(equal_values_have_an_interval_without_width)
{
	double x[] = { 2, 2, 2, 2 };
	struct bootstrap b;

	assert_int_equal(bootstrap_mean(x, 4, 0.05, 1000, 3, scratch, &b), 0);
	assert_true(b.bca_low == 2 && b.bca_high == 2 && b.percentile_low == 2);
}

TEST(values_that_cannot_be_resampled_are_refused)
{
	double x[] = { 1, 2, 3 };
	struct bootstrap b;

	assert_int_equal(bootstrap_mean(x, 1, 0.05, 1000, 3, scratch, &b), -GW_E_ARG);
	assert_int_equal(bootstrap_mean(x, 3, 0.05, 99, 3, scratch, &b), -GW_E_ARG);
	assert_int_equal(bootstrap_mean(x, 3, 0, 1000, 3, scratch, &b), -GW_E_ARG);
	assert_int_equal(bootstrap_mean(x, 3, 1, 1000, 3, scratch, &b), -GW_E_ARG);
}

struct coverage {
	unsigned bca, percentile;
};

/* Counts how many of EXPERIMENTS intervals of n values cover the true mean 0. */
static struct coverage cover(size_t n, double (*draw)(struct random *), uint64_t seed)
{
	struct coverage c = { 0 };
	struct random r;
	double x[64];

	random_init(&r, seed);
	for (unsigned i = 0; i < EXPERIMENTS; i++) {
		struct bootstrap b;

		for (size_t j = 0; j < n; j++)
			x[j] = draw(&r);
		assert_int_equal(bootstrap_mean(x, n, 0.05, 1000, random_next(&r), scratch, &b),
				 0);
		c.bca += b.bca_low <= 0 && b.bca_high >= 0;
		c.percentile += b.percentile_low <= 0 && b.percentile_high >= 0;
	}
	print_message("n %zu, seed %llu: BCa %.2f %%, percentile %.2f %%\n", n,
		      (unsigned long long)seed, 100.0 * c.bca / EXPERIMENTS,
		      100.0 * c.percentile / EXPERIMENTS);
	return c;
}

static double exponential(struct random *r)
{
	return -log(1 - random_unit(r)) - 1; /* skewness 2 */
}

TEST(bca_of_few_normal_values_has_its_stated_coverage)
{
	/* four standard deviations of the observed share */
	double margin = 4 * sqrt(0.05 * 0.95 / EXPERIMENTS);
	struct coverage c10 = cover(10, gauss, 101), c40 = cover(40, gauss, 102);

	assert_true(fabs((double)c40.bca / EXPERIMENTS - 0.95) < 0.005 + margin);
	assert_true(fabs((double)c10.bca / EXPERIMENTS - 0.945) < 0.01 + margin);
	/* why BCa is widened: the percentile interval of ten values covers only 90 % */
	assert_true((double)c10.percentile / EXPERIMENTS < 0.925);
}

TEST(bca_of_skewed_values_covers_better_than_the_percentile_interval)
{
	struct coverage c = cover(16, exponential, 103);

	assert_true(c.bca > c.percentile);
	assert_true((double)c.bca / EXPERIMENTS > 0.91);
}

TEST_MAIN(NULL, NULL)
