#include "measure/stat.h"

#include <gpuward.h>

#include <math.h>

#include "measure/distribution.h"

#include "random_unit.h"
#include "test.h"

static void assert_near(double have, double want, double relative)
{
	if (fabs(have - want) <= relative * fabs(want))
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

static void start(struct random *r, uint64_t seed)
{
	print_message("seed %llu\n", (unsigned long long)seed);
	random_init(r, seed);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

TEST(running_moments_equal_the_two_pass_ones)
{
	struct random r;

	start(&r, 7);
	for (unsigned round = 0; round < 200; round++) {
		size_t n = 2 + random_below(&r, 60);
		double x[64], w[64], sum = 0, weight = 0, mean = 0, m2 = 0, unit = 0, v = 0;
		struct moments plain, timed;

		moments_init(&plain);
		moments_init(&timed);
		for (size_t i = 0; i < n; i++) {
			x[i] = 700 + random_unit(&r);
			w[i] = 0.01 + random_unit(&r);
			moments_add(&plain, x[i]);
			moments_add_weighted(&timed, x[i], w[i]);
			sum += x[i] * w[i];
			weight += w[i];
			unit += x[i];
		}
		mean = sum / weight;
		unit /= (double)n;
		for (size_t i = 0; i < n; i++) {
			m2 += w[i] * (x[i] - mean) * (x[i] - mean);
			v += (x[i] - unit) * (x[i] - unit);
		}
		assert_near(moments_mean(&timed), mean, 1e-13);
		assert_near(moments_variance_in_time(&timed), m2 / weight, 1e-9);
		assert_near(moments_mean(&plain), unit, 1e-13);
		assert_near(moments_variance(&plain), v / ((double)n - 1), 1e-9);
		assert_int_equal(plain.count, n);
		qsort(x, n, sizeof(x[0]), ascending);
		assert_true(plain.min == x[0] && plain.max == x[n - 1]);
	}
}

TEST(a_small_ripple_on_a_large_value_keeps_its_digits)
{
	struct moments m;

	moments_init(&m);
	for (unsigned i = 0; i < 1000000; i++)
		moments_add_weighted(&m, 1e6 + (i % 2 ? 1e-3 : -1e-3), 0.02);
	assert_near(moments_variance_in_time(&m), 1e-6, 1e-4);
	assert_near(m.weight, 20000, 1e-9);
}

TEST(moments_of_nothing_are_not_zero)
{
	struct moments m;

	moments_init(&m);
	assert_true(isnan(moments_mean(&m)));
	assert_true(isnan(moments_variance(&m)));
	assert_true(isnan(moments_variance_in_time(&m)));
	moments_add_weighted(&m, 5, 0);
	moments_add_weighted(&m, 5, -1);
	moments_add_weighted(&m, 5, NAN);
	assert_true(isnan(moments_mean(&m)));
	moments_add(&m, 5);
	assert_true(moments_mean(&m) == 5);
	assert_true(isnan(moments_variance(&m)));
	assert_true(moments_variance_in_time(&m) == 0);
}

struct held {
	double x, seconds;
};

static int by_value(const void *a, const void *b)
{
	return ascending(&((const struct held *)a)->x, &((const struct held *)b)->x);
}

static double exact_percentile(const struct held *h, size_t n, double p)
{
	double total = 0, sum = 0;

	for (size_t i = 0; i < n; i++)
		total += h[i].seconds;
	for (size_t i = 0; i < n; i++) {
		sum += h[i].seconds;
		if (sum >= p * total)
			return h[i].x;
	}
	return h[n - 1].x;
}

TEST(percentiles_of_time_are_within_half_a_bucket)
{
	static struct histogram h;
	struct held held[500];
	struct random r;

	start(&r, 11);
	for (unsigned round = 0; round < 50; round++) {
		histogram_init(&h);
		for (size_t i = 0; i < COUNT_OF(held); i++) {
			held[i].x = 0.0101 * exp(random_unit(&r) * log(0.98e6));
			held[i].seconds = 0.02 + random_unit(&r);
			histogram_add(&h, held[i].x, held[i].seconds);
		}
		qsort(held, COUNT_OF(held), sizeof(held[0]), by_value);
		for (unsigned k = 1; k < 20; k++) {
			/* choose a share that is not exactly at a step of the distribution,
			 * because rounding could give either value there */
			double p = k / 20.0 + 1e-7;

			assert_near(histogram_percentile(&h, p),
				    exact_percentile(held, COUNT_OF(held), p), 0.00251);
		}
		assert_true(histogram_percentile(&h, 1) <= held[COUNT_OF(held) - 1].x);
		assert_true(histogram_percentile(&h, 0) >= held[0].x);
	}
}

TEST(the_buckets_span_the_stated_range)
{
	static struct histogram h;
	double top = HISTOGRAM_LOWEST * pow(HISTOGRAM_STEP, HISTOGRAM_BUCKETS);

	assert_true(top >= HISTOGRAM_HIGHEST && top < HISTOGRAM_HIGHEST * HISTOGRAM_STEP);
	histogram_init(&h);
	assert_true(isnan(histogram_percentile(&h, 0.5)));
	histogram_add(&h, NAN, 1);
	histogram_add(&h, 5, 0);
	assert_true(isnan(histogram_percentile(&h, 0.5)));
	histogram_add(&h, 0, 1); /* a suspended GPU draws 0 W */
	assert_true(histogram_percentile(&h, 0.5) == 0);
	histogram_add(&h, 3e4, 3); /* a rack */
	assert_true(histogram_percentile(&h, 0.9) == 3e4);
	histogram_add(&h, 9999.99, 100);
	assert_near(histogram_percentile(&h, 0.5), 9999.99, 0.0026);
	assert_true(isnan(histogram_percentile(&h, 1.5)));
}

TEST(percentiles_equal_the_sorted_array)
{
	struct random r;

	start(&r, 13);
	for (unsigned round = 0; round < 3000; round++) {
		size_t n = 1 + random_below(&r, 40);
		/* few different values give many ties */
		uint32_t kinds = 1 + random_below(&r, 50);
		double x[40], sorted[40], p = random_unit(&r);

		for (size_t i = 0; i < n; i++)
			x[i] = sorted[i] = random_below(&r, kinds);
		qsort(sorted, n, sizeof(sorted[0]), ascending);

		double place = p * (double)(n - 1);
		size_t k = (size_t)place;
		double want = sorted[k];

		if (k + 1 < n)
			want += (place - (double)k) * (sorted[k + 1] - sorted[k]);
		assert_near(stat_percentile(x, n, p), want, 1e-12);
		assert_true(stat_percentile(x, n, 0) == sorted[0]);
		assert_true(stat_percentile(x, n, 1) == sorted[n - 1]);
		assert_true(stat_percentile(x, n, 0.5) ==
			    0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]));
		qsort(x, n, sizeof(x[0]), ascending);
		assert_memory_equal(x, sorted, n * sizeof(x[0])); /* nothing was lost */
	}
	assert_true(isnan(stat_percentile(NULL, 0, 0.5)));
}

TEST(skewness_is_that_of_the_textbook)
{
	double even[] = { 1, 2, 3, 4, 5 }, right[] = { 1, 1, 1, 10 }, flat[] = { 2, 2, 2 };
	double known[] = { 2, 3, 5, 8, 13, 21 };

	assert_true(fabs(stat_skewness(even, 5)) < 1e-15);
	/* one outlier among four values: exactly 2 */
	assert_near(stat_skewness(right, 4), 2, 1e-12);
	assert_near(stat_skewness(known, 6), 1.1349718415704, 1e-9);
	assert_true(stat_skewness(flat, 3) == 0);
	assert_true(isnan(stat_skewness(even, 2)));
}

/* Visits every order of y[k..n-1] and sums S and its square. */
static void every_order(double *y, size_t n, size_t k, double *sum, double *squares,
			double *orders)
{
	if (k == n) {
		struct trend t;

		assert_int_equal(stat_trend(y, n, &t), 0);
		*sum += (double)t.s;
		*squares += (double)(t.s * t.s);
		*orders += 1;
		return;
	}
	for (size_t i = k; i < n; i++) {
		double held = y[k];

		y[k] = y[i];
		y[i] = held;
		every_order(y, n, k + 1, sum, squares, orders);
		y[i] = y[k];
		y[k] = held;
	}
}

TEST(the_variance_of_the_trend_test_is_that_over_all_orders)
{
	double rows[][7] = { { 1, 2, 3, 4, 5, 6, 7 },
			     { 1, 1, 2, 3, 3, 3, 4 },
			     { 5, 5, 5, 5, 6, 6, 6 } };

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		double sum = 0, squares = 0, orders = 0;
		struct trend t;

		assert_int_equal(stat_trend(rows[i], 7, &t), 0);
		every_order(rows[i], 7, 0, &sum, &squares, &orders);
		assert_true(orders == 5040 && fabs(sum) < 1e-9);
		assert_near(t.variance, squares / orders, 1e-12);
	}
}

TEST(the_trend_test_finds_a_trend_and_has_its_stated_false_alarm_rate)
{
	double rise[10], flat[10] = { 3, 3, 3, 3, 3, 3, 3, 3, 3, 3 };
	struct random r;
	struct trend t;
	unsigned alarms = 0;

	for (size_t i = 0; i < 10; i++)
		rise[i] = 60 + (double)i;
	assert_int_equal(stat_trend(rise, 10, &t), 0);
	assert_int_equal(t.s, 45);
	assert_near(t.z, 44 / sqrt(125), 1e-12);
	assert_true(t.p < 1e-4);
	assert_int_equal(stat_trend(flat, 10, &t), 0);
	assert_true(t.z == 0 && t.p == 1);
	assert_int_equal(stat_trend(rise, 2, &t), -GW_E_ARG);

	start(&r, 17);
	for (unsigned i = 0; i < 20000; i++) {
		for (size_t j = 0; j < 10; j++)
			rise[j] = random_unit(&r);
		assert_int_equal(stat_trend(rise, 10, &t), 0);
		alarms += t.p < 0.05;
	}
	/* S of ten values takes steps of 2, so the exact level is 4.7 %, not 5 % */
	print_message("alarms %.2f %%\n", alarms / 200.0);
	assert_in_range(alarms, 800, 1100);
}

TEST_MAIN(NULL, NULL)
