/* Tests history of any age in a fixed amount of memory. */
#include "seed.h"

#include "measure/series.h"

#include "base/clock.h"

#include <math.h>
#include <sys/resource.h>
#include <time.h>

#define S       NS_PER_S
#define MS      NS_PER_MS
#define SAMPLES 20000

static struct series *make(unsigned quantities, unsigned raw, unsigned s1, unsigned s10,
			   unsigned s60)
{
	struct series_options o = { quantities, { raw, s1, s10, s60 } };
	struct series *s = NULL;

	assert_int_equal(series_new(&o, &s), 0);
	return s;
}

static void add(struct series *s, uint64_t t_ns, double value)
{
	assert_int_equal(series_add(s, t_ns, &value), 0);
}

/* Compares within the precision of a bucket: values are float, a mean has steps of 1/131070 of
 * the range. */
static void assert_close(double have, double want, double range)
{
	double most = 1.3e-7 * fabs(want) + range / 131070 * 1.01;

	if ((isnan(have) && isnan(want)) || fabs(have - want) <= most)
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

TEST(samples_come_back_as_they_went_in)
{
	struct series *s = make(1, 10, 10, 0, 0);
	struct series_point p[16];

	assert_int_equal(series_query(s, 0, 0, UINT64_MAX, 0, p, COUNT_OF(p)), 0);
	for (unsigned i = 0; i < 8; i++)
		add(s, 100 * MS * (i + 1), i == 3 ? (double)NAN : i);
	assert_int_equal(series_query(s, 0, 200 * MS, 500 * MS, 0, p, COUNT_OF(p)), 4);
	assert_int_equal(p[0].begin_ns, 200 * MS);
	assert_int_equal(p[0].span_ns, 0);
	assert_true(p[0].mean == 1 && p[0].min == 1 && p[0].max == 1);
	assert_int_equal(p[0].count, 1);
	assert_int_equal(p[2].begin_ns, 400 * MS);
	assert_true(isnan(p[2].mean) && isnan(p[2].min) && isnan(p[2].max));
	assert_int_equal(p[2].count, 0);
	series_free(s);
}

TEST(buckets_are_aligned_to_the_clock)
{
	struct series *s = make(1, 4, 10, 10, 10);
	struct series_point p[16];

	add(s, 9 * S + 900 * MS, 10);
	add(s, 10 * S, 20); /* the first sample of its second */
	add(s, 10 * S + 999 * MS, 40);
	add(s, 11 * S, 50);
	assert_int_equal(series_query(s, 0, 0, UINT64_MAX, S, p, COUNT_OF(p)), 3);
	assert_int_equal(p[0].begin_ns, 9 * S);
	assert_int_equal(p[1].begin_ns, 10 * S);
	assert_int_equal(p[1].span_ns, S);
	assert_int_equal(p[1].count, 2);
	assert_true(p[1].min == 20 && p[1].max == 40);
	assert_close(p[1].mean, 30, 20);
	assert_false(p[0].open || p[1].open);
	assert_true(p[2].open);
	assert_true(p[2].mean == 50);

	assert_int_equal(series_query(s, 0, 0, UINT64_MAX, 10 * S, p, COUNT_OF(p)), 2);
	assert_int_equal(p[0].begin_ns, 0);
	assert_int_equal(p[1].begin_ns, 10 * S);
	assert_int_equal(p[1].count, 3);
	/* an open bucket includes its unfinished second */
	assert_close(p[1].mean, 110.0 / 3, 0);
	assert_int_equal(series_query(s, 0, 0, UINT64_MAX, 60 * S, p, COUNT_OF(p)), 1);
	assert_int_equal(p[0].count, 4);
	assert_close(p[0].mean, 30, 0);
	series_free(s);
}

TEST(missing_values_do_not_count)
{
	static const double row[][3] = {
		{ 1, NAN, 7 }, { NAN, NAN, INFINITY }, { 5, NAN, 1e300 }, { NAN, NAN, 9 }
	};
	struct series *s = make(3, 4, 4, 4, 4);
	struct series_point p;

	for (unsigned i = 0; i < COUNT_OF(row); i++)
		assert_int_equal(series_add(s, 100 * MS * (i + 1), row[i]), 0);
	assert_int_equal(series_add(s, 2 * S, (double[]){ NAN, NAN, NAN }), 0);
	assert_int_equal(series_query(s, 0, 0, S - 1, S, &p, 1), 1);
	assert_int_equal(p.count, 2);
	assert_close(p.mean, 3, 4);
	assert_int_equal(series_query(s, 1, 0, S - 1, S, &p, 1), 1);
	assert_int_equal(p.count, 0);
	assert_true(isnan(p.mean) && isnan(p.min) && isnan(p.max));
	assert_int_equal(series_query(s, 2, 0, S - 1, S, &p, 1), 1);
	assert_int_equal(p.count, 2);
	assert_true(p.min == 7 && p.max == 9);
	assert_int_equal(series_query(s, 2, 2 * S, 3 * S, S, &p, 1), 1);
	assert_int_equal(p.count, 0);
	assert_true(p.open && isnan(p.mean));
	series_free(s);
}

TEST(time_without_samples_has_no_points)
{
	struct series *s = make(1, 4, 10, 10, 10);
	struct series_point p[8];

	add(s, 5 * S, 1);
	add(s, 3600 * S, 2);
	add(s, 3601 * S, 3);
	assert_int_equal(series_query(s, 0, 0, UINT64_MAX, S, p, COUNT_OF(p)), 3);
	assert_int_equal(p[0].begin_ns, 5 * S);
	assert_int_equal(p[1].begin_ns, 3600 * S);
	assert_int_equal(series_query(s, 0, 6 * S, 3599 * S, S, p, COUNT_OF(p)), 0);
	series_free(s);
}

TEST(time_does_not_go_back)
{
	struct series *s = make(1, 4, 4, 0, 0);
	struct series_point p[8];
	double v = 9;

	add(s, 0, 1); /* the time 0 is valid */
	add(s, S, 2);
	assert_int_equal(series_add(s, S, &v), -GW_E_ARG);
	assert_int_equal(series_add(s, S - 1, &v), -GW_E_ARG);
	assert_int_equal(series_query(s, 0, 0, UINT64_MAX, 0, p, COUNT_OF(p)), 2);
	assert_true(p[1].mean == 2);
	series_free(s);
}

/* Makes ten minutes of samples every 100 ms. Raw samples reach back 10 s, buckets of 1 s one
 * minute, of 10 s five minutes, of 60 s all ten minutes. */
static struct series *ten_minutes(void)
{
	struct series *s = make(1, 100, 60, 30, 60);

	for (unsigned i = 0; i < 6000; i++)
		add(s, 100 * MS * i, i);
	return s;
}

TEST(the_finest_tier_that_reaches_back_is_used)
{
	static const struct {
		unsigned back_s, resolution_ms;
		uint64_t span_ns;
	} rows[] = {
		{ 5, 0, 0 },
		{ 5, 100, 0 },
		{ 5, 999, 0 },
		{ 5, 1000, S },
		{ 5, 9999, S },
		{ 5, 10000, 10 * S },
		{ 5, 3600000, 60 * S },
		{ 50, 0, S },
		{ 50, 1000, S },
		{ 50, 10000, 10 * S },
		{ 200, 0, 10 * S },
		{ 200, 1000, 10 * S },
		{ 500, 0, 60 * S },
		{ 500, 10000, 60 * S },
		{ 599, 0, 60 * S },
	};
	struct series *s = ten_minutes();
	struct series_point p[400];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		uint64_t from = (600 - rows[i].back_s) * S;
		int n = series_query(s, 0, from, 600 * S, rows[i].resolution_ms * MS, p,
				     COUNT_OF(p));

		assert_true(n > 0);
		assert_int_equal(p[0].span_ns, rows[i].span_ns);
		assert_true(p[0].begin_ns <= from);
		for (int k = 1; k < n; k++)
			assert_true(p[k].begin_ns > p[k - 1].begin_ns);
	}
	series_free(s);
}

TEST(older_times_come_from_the_tier_that_reaches_furthest)
{
	struct series *s = make(1, 10, 60, 0, 0), *t = make(1, 10, 600, 0, 2);
	struct series_point p[100];
	int n;

	for (unsigned i = 0; i < 6000; i++) {
		add(s, 100 * MS * i, i);
		add(t, 100 * MS * i, i);
	}
	n = series_query(s, 0, 0, UINT64_MAX, 0, p, COUNT_OF(p));
	assert_int_equal(n, 61);
	assert_int_equal(p[0].begin_ns, 539 * S);
	/* from buckets of 1 s, not 60 s */
	n = series_query(t, 0, S, 20 * S, 0, p, COUNT_OF(p));
	assert_int_equal(n, 20);
	assert_int_equal(p[0].span_ns, S);
	series_free(s);
	series_free(t);
}

TEST(a_small_buffer_gets_coarser_points)
{
	struct series *s = ten_minutes();
	struct series_point p[100];

	assert_int_equal(series_query(s, 0, 595 * S, 600 * S, 0, p, 50), 50);
	assert_int_equal(p[0].span_ns, 0);
	assert_int_equal(series_query(s, 0, 595 * S, 600 * S, 0, p, 49), 5);
	assert_int_equal(p[0].span_ns, S);
	assert_int_equal(series_query(s, 0, 0, 600 * S, 0, p, 10), 10);
	memset(p, 0x55, sizeof(p));
	assert_int_equal(series_query(s, 0, 0, 600 * S, 0, p, 9), -GW_E_SIZE);
	assert_int_equal(p[0].count, 0x55555555);
	series_free(s);
}

TEST(invalid_queries_are_refused)
{
	struct series *s = make(2, 4, 4, 4, 4);
	struct series_point p;

	assert_int_equal(series_query(s, 2, 0, 1, 0, &p, 1), -GW_E_ARG);
	assert_int_equal(series_query(s, 0, 2, 1, 0, &p, 1), -GW_E_ARG);
	series_free(s);
}

struct sample {
	uint64_t t_ns;
	double value;
};

/* Asserts that a bucket agrees with the list of all samples. */
static void assert_bucket(const struct sample *all, const struct series_point *p)
{
	double sum = 0, min = INFINITY, max = -INFINITY;
	unsigned count = 0;

	for (unsigned i = 0; i < SAMPLES; i++) {
		if (all[i].t_ns < p->begin_ns || all[i].t_ns >= p->begin_ns + p->span_ns)
			continue;
		if (isnan(all[i].value))
			continue;
		count++;
		sum += all[i].value;
		min = fmin(min, all[i].value);
		max = fmax(max, all[i].value);
	}
	assert_int_equal(p->count, count);
	assert_close(p->mean, count ? sum / count : NAN, count ? max - min : 0);
	assert_close(p->min, count ? min : NAN, 0);
	assert_close(p->max, count ? max : NAN, 0);
}

static unsigned buckets_expected(const struct sample *all, uint64_t from, uint64_t to,
				 uint64_t span)
{
	uint64_t last = UINT64_MAX;
	unsigned n = 0;

	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t begin = all[i].t_ns / span * span;

		if (begin == last || begin + span <= from || begin > to)
			continue;
		last = begin;
		n++;
	}
	return n;
}

TEST(buckets_equal_a_brute_force_count)
{
	static const uint64_t spans[] = { S, 10 * S, 60 * S };
	struct sample *all = malloc(SAMPLES * sizeof(*all));
	struct series *s = make(1, 100, 4000, 400, 100);
	struct series_point p[4000];
	uint64_t seed = seed_of_run(), t = next(&seed) % (1000000 * S);

	assert_non_null(all);
	for (unsigned i = 0; i < SAMPLES; i++) {
		t += 1 + next(&seed) % (200 * MS) + (next(&seed) % 500 == 0 ? 70 * S : 0);
		all[i].t_ns = t;
		all[i].value =
			next(&seed) % 7 ? (double)(next(&seed) % 700000) / 1000 - 100 : NAN;
		add(s, t, all[i].value);
	}
	for (unsigned k = 0; k < 30; k++) {
		uint64_t span = spans[k % 3], from = t - next(&seed) % (3000 * S);
		uint64_t to = from + next(&seed) % (100 * span);
		int n = series_query(s, 0, from, to, span, p, COUNT_OF(p));

		assert_int_equal(n, buckets_expected(all, from, to, span));
		for (int i = 0; i < n && i < 20; i++) {
			assert_int_equal(p[i].span_ns, span);
			assert_bucket(all, &p[i]);
		}
	}
	series_free(s);
	free(all);
}

TEST(the_defaults_fit_into_a_mebibyte)
{
	struct series_options o = SERIES_DEFAULTS, bad;

	print_message("%zu bytes\n", series_bytes(&o));
	assert_true(series_bytes(&o) < 1 << 20);
	assert_int_equal(series_bytes(&o) / 1000, 1012); /* as the head of series.h says */
	bad = o;
	bad.quantities = 0;
	assert_int_equal(series_bytes(&bad), 0);
	bad.quantities = 65;
	assert_int_equal(series_bytes(&bad), 0);
	bad = o;
	bad.points[SERIES_10S] = UINT32_MAX;
	assert_int_equal(series_bytes(&bad), 0);
	assert_int_equal(series_new(&bad, &(struct series *){ NULL }), -GW_E_ARG);
	series_free(NULL);
}

static long resident_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

TEST(ten_million_samples_take_no_more_memory)
{
	struct series_options o = SERIES_DEFAULTS;
	struct series_point p;
	struct series *s;
	double v[10];
	long before;

	assert_int_equal(series_new(&o, &s), 0);
	before = resident_kib();
	for (unsigned i = 0; i < 10000000; i++) {
		for (unsigned q = 0; q < COUNT_OF(v); q++)
			v[q] = (i + q) & 1023;
		series_add(s, 100 * MS * (uint64_t)i, v);
	}
	assert_true(resident_kib() - before < 128);
	/* A whole minute, a day after it began */
	assert_int_equal(series_query(s, 9, 999900 * S, 999959 * S, 60 * S, &p, 1), 1);
	assert_int_equal(p.count, 600);
	series_free(s);
}

TEST_MAIN(NULL, NULL)
