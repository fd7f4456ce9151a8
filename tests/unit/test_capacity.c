/* Tests capacity against brute force: all subsets of workers, all samples. */
#include "guard/capacity.h"

#include "base/clock.h"
#include "measure/stat.h"

#include <math.h>
#include <time.h>

#include "test.h"

#define S   NS_PER_S
#define MIB UINT64_C(1048576)
#define GIB (1024 * MIB)

static struct random rnd;

static int seed(void **state)
{
	const char *given = getenv("GPUWARD_TEST_SEED");
	uint64_t n = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);

	print_message("seed %llu (GPUWARD_TEST_SEED)\n", (unsigned long long)n);
	random_init(&rnd, n);
	return 0;
}

#define SAMPLES_MAX 200000

static struct {
	uint64_t t_ns, bytes;
} sample[SAMPLES_MAX];
static unsigned samples;

static struct capacity *make(void)
{
	struct capacity *c;

	samples = 0;
	assert_int_equal(capacity_new(&c), 0);
	return c;
}

static void add(struct capacity *c, uint64_t t_ns, uint64_t bytes)
{
	capacity_add(c, t_ns, bytes);
	assert_true(samples < SAMPLES_MAX);
	sample[samples].t_ns = t_ns;
	sample[samples++].bytes = bytes;
}

struct brute {
	double min, max, mean;
	unsigned count;
};

static struct brute brute(uint64_t from, uint64_t to)
{
	struct brute b = { INFINITY, 0, 0, 0 };

	for (unsigned i = 0; i < samples; i++) {
		double v = (double)sample[i].bytes;

		if (sample[i].t_ns < from || sample[i].t_ns > to)
			continue;
		b.min = fmin(b.min, v);
		b.max = fmax(b.max, v);
		b.mean += v;
		b.count++;
	}
	b.mean /= b.count;
	return b;
}

static bool near(double a, double b, double relative)
{
	return fabs(a - b) <= relative * fmax(fabs(a), fabs(b));
}

TEST(an_empty_past_is_unknown)
{
	struct capacity_past p;
	struct capacity *c = make();

	capacity_past(c, 100 * S, 60 * S, &p);
	assert_true(isnan(p.mean_bytes) && isnan(p.slope_bytes_per_s) && isnan(p.full_s));
	assert_int_equal(p.span_ns, 0);
	add(c, 101 * S, GIB);
	capacity_past(c, 102 * S, 60 * S, &p);
	assert_int_equal(p.min_bytes, GIB);
	assert_int_equal(p.span_ns, S);
	assert_true(isnan(p.slope_bytes_per_s)); /* one point has no slope */
	capacity_free(c);
	capacity_free(NULL);
}

TEST(a_mean_is_never_outside_min_and_max)
{
	struct capacity_past p;
	struct capacity *c = make();

	/* a float cannot hold this value exactly, so a rounded value would differ */
	for (unsigned i = 1; i <= 20; i++)
		add(c, i * S, UINT64_C(17585248666));
	capacity_past(c, 20 * S, 60 * S, &p);
	assert_true((double)p.min_bytes <= p.mean_bytes && p.mean_bytes <= (double)p.max_bytes);
	assert_int_equal(p.max_bytes, UINT64_C(17585248666));
	capacity_free(c);
}

TEST(the_last_minutes_equal_brute_force)
{
	for (unsigned round = 0; round < 50; round++) {
		struct capacity *c = make();
		uint64_t now = 5 * S + random_below(&rnd, 1000000000);

		for (unsigned i = 0; i < 400; i++) {
			struct capacity_past p;
			uint64_t span = (1 + random_below(&rnd, 600)) * S, from;
			struct brute b;

			now += 1 + random_next(&rnd) % (2 * S);
			add(c, now, random_below(&rnd, 100000) * MIB);
			if (i % 7)
				continue;
			from = now > span ? now - span : 0;
			/* all samples of a second are one point */
			b = brute(from / S * S, now);
			capacity_past(c, now, span, &p);
			assert_true(near((double)p.min_bytes, b.min, 1e-7));
			assert_true(near((double)p.max_bytes, b.max, 1e-7));
			assert_true(near(p.mean_bytes, b.mean, 2e-5));
			assert_true(p.span_ns <= span);
		}
		capacity_free(c);
	}
}

/* Two days with one value per 5 s, so the coarser tiers are used. */
TEST(the_last_days_are_within_brute_force)
{
	struct capacity *c = make();
	uint64_t now = 1000 * S;

	for (unsigned i = 0; i < 2 * 86400 / 5; i++) {
		now += 5 * S;
		add(c, now, (1 + random_below(&rnd, 80000)) * MIB);
	}
	for (unsigned i = 0; i < 200; i++) {
		uint64_t span = (60 + random_below(&rnd, 2 * 86400 - 120)) * S;
		struct brute narrow = brute(now - span, now),
			     wide = brute(now - span - 600 * S, now);
		struct capacity_past p;

		capacity_past(c, now, span, &p);
		assert_true((double)p.min_bytes <= narrow.min * (1 + 1e-7));
		assert_true((double)p.min_bytes >= wide.min * (1 - 1e-7));
		assert_true((double)p.max_bytes >= narrow.max * (1 - 1e-7));
		assert_true((double)p.max_bytes <= wide.max * (1 + 1e-7));
		assert_true(p.span_ns <= span && p.span_ns + 5 * S >= span);
	}
	capacity_free(c);
}

TEST(a_week_is_kept_and_no_more)
{
	struct capacity *c = make();
	struct capacity_past p;
	uint64_t now = S;

	capacity_add(c, now, GIB); /* long ago */
	for (unsigned i = 0; i < 8 * 86400 / 20; i++)
		capacity_add(c, now += 20 * S, 5 * GIB);
	capacity_past(c, now, 30 * 86400 * S, &p);
	assert_int_equal(p.min_bytes, 5 * GIB);
	assert_true(p.span_ns >= 7 * 86400 * S);
	capacity_free(c);
}

/* Computes the slope from the deviations from the means. */
static double slope_of(uint64_t from, uint64_t to)
{
	double t_mean = 0, v_mean = 0, tv = 0, tt = 0;
	unsigned n = 0;

	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < samples; i++) {
			double t = (double)(sample[i].t_ns / S), v = (double)sample[i].bytes;

			if (sample[i].t_ns < from || sample[i].t_ns > to)
				continue;
			if (pass == 0) {
				t_mean += t;
				v_mean += v;
				n++;
				continue;
			}
			tv += (t - t_mean / n) * (v - v_mean / n);
			tt += (t - t_mean / n) * (t - t_mean / n);
		}
	return tv / tt;
}

TEST(slope_and_time_to_full_equal_least_squares)
{
	for (unsigned round = 0; round < 100; round++) {
		struct capacity *c = make();
		uint64_t now = 10 * S, bytes = 100 * GIB;
		unsigned n = 40 + random_below(&rnd, 900);
		double expected;
		struct capacity_past p;

		/* one sample per second, so each bucket has one sample */
		for (unsigned i = 0; i < n; i++) {
			now += S;
			bytes -= (random_below(&rnd, 100)) * MIB / 2;
			add(c, now, bytes);
		}
		capacity_past(c, now, 60 * S, &p);
		expected = slope_of(now > 600 * S ? now - 600 * S : 0, now);
		assert_true(near(p.slope_bytes_per_s, expected, 1e-4));
		assert_true(near(p.full_s, (double)bytes / -expected, 1e-4));
		capacity_free(c);
	}
}

TEST(memory_that_does_not_shrink_is_never_full)
{
	struct capacity *c = make();
	struct capacity_past p;

	for (unsigned i = 1; i <= 20; i++)
		capacity_add(c, i * S, 7 * GIB + 12345);
	capacity_past(c, 20 * S, 60 * S, &p);
	assert_true(isnan(p.slope_bytes_per_s)); /* twenty seconds are too short for a slope */
	for (unsigned i = 21; i <= 100; i++)
		capacity_add(c, i * S, 7 * GIB + 12345);
	capacity_past(c, 100 * S, 60 * S, &p);
	assert_true(fabs(p.slope_bytes_per_s) < 1 && isnan(p.full_s));
	for (unsigned i = 101; i <= 700; i++)
		capacity_add(c, i * S, 7 * GIB + (i - 100) * MIB);
	capacity_past(c, 700 * S, 60 * S, &p);
	assert_true(near(p.slope_bytes_per_s, (double)MIB, 1e-3));
	assert_true(isnan(p.full_s));
	capacity_add(c, 600 * S, 1); /* earlier than the last sample: ignored */
	capacity_past(c, 700 * S, 700 * S, &p);
	assert_true(p.min_bytes > GIB);
	capacity_free(c);
}

TEST(available_is_free_less_headroom_and_reservations)
{
	struct capacity_gpu g = { .known = true,
				  .total_bytes = 24 * GIB,
				  .free_bytes = 10 * GIB,
				  .headroom_bytes = 2 * GIB,
				  .reserved_bytes = 3 * GIB };

	assert_int_equal(capacity_available(&g), 5 * GIB);
	g.reserved_bytes = 8 * GIB;
	assert_int_equal(capacity_available(&g), 0);
	g.reserved_bytes = 9 * GIB;
	assert_int_equal(capacity_available(&g), 0);
	g.reserved_bytes = UINT64_MAX;
	assert_int_equal(capacity_available(&g), 0);
	g.reserved_bytes = 0;
	g.known = false;
	assert_int_equal(capacity_available(&g), 0);
}

static void make_gpu(struct capacity_gpu *g)
{
	uint64_t used = 0;

	memset(g, 0, sizeof(*g));
	snprintf(g->uuid, sizeof(g->uuid), "GPU-%u", random_below(&rnd, 1000));
	g->known = random_below(&rnd, 20) != 0;
	g->total_bytes = 24 * GIB;
	g->headroom_bytes = random_below(&rnd, 4) * GIB;
	g->reserved_bytes = random_below(&rnd, 4) * GIB;
	g->margin_c = random_below(&rnd, 5) ? (double)random_below(&rnd, 40) : (double)NAN;
	g->workers = random_below(&rnd, 9);
	for (unsigned i = 0; i < g->workers; i++) {
		snprintf(g->worker[i].name, sizeof(g->worker[i].name), "worker-%u", i);
		g->worker[i].bytes = random_below(&rnd, 8) * GIB;
		if (used + g->worker[i].bytes > g->total_bytes)
			g->worker[i].bytes = 0;
		used += g->worker[i].bytes;
		g->worker[i].seconds = random_below(&rnd, 10) ? 0.5 * i : NAN;
		g->worker[i].movable = random_below(&rnd, 4) != 0;
	}
	g->free_bytes = random_below(&rnd, (uint32_t)((g->total_bytes - used) / GIB) + 1) * GIB;
	g->quarantine = random_below(&rnd, 8) == 0;
	g->blind = random_below(&rnd, 8) == 0;
	g->warm = random_below(&rnd, 8) == 0;
}

/* Returns the memory that is available if the workers of a set leave. */
static uint64_t with_out(const struct capacity_gpu *g, unsigned set)
{
	struct capacity_gpu h = *g;

	for (unsigned i = 0; i < g->workers; i++)
		h.free_bytes += set & 1u << i ? g->worker[i].bytes : 0;
	return capacity_available(&h);
}

static unsigned highest(unsigned set)
{
	unsigned n = 0;

	for (; set; set >>= 1)
		n++;
	return n;
}

/* Returns false if no set of workers frees enough. Otherwise takes the highest index (from 1)
 * of each set that frees enough, and writes the lowest of these indices to *ret_highest. */
static bool can_ever(const struct capacity_gpu *g, uint64_t bytes, unsigned *ret_highest)
{
	unsigned may = 0;
	bool any = false;

	for (unsigned i = 0; i < g->workers; i++)
		may |= g->worker[i].movable ? 1u << i : 0;
	*ret_highest = UINT32_MAX;
	for (unsigned set = 0; set < 1u << g->workers && g->known; set++)
		if (!(set & ~may) && with_out(g, set) >= bytes) {
			any = true;
			if (highest(set) < *ret_highest)
				*ret_highest = highest(set);
		}
	return any;
}

static void evictions_are_enough_and_none_too_many(const struct capacity_gpu *g,
						   const struct capacity_answer *a)
{
	unsigned set = 0;
	double seconds = 0;

	for (unsigned i = 0; i < a->evicts; i++) {
		assert_true(a->evict[i] < g->workers);
		assert_true(g->worker[a->evict[i]].movable);
		assert_true(i == 0 || a->evict[i] > a->evict[i - 1]);
		assert_in(a->why, g->worker[a->evict[i]].name);
		set |= 1u << a->evict[i];
		seconds += g->worker[a->evict[i]].seconds;
	}
	assert_true(with_out(g, set) >= a->needed_bytes);
	for (unsigned i = 0; i < a->evicts; i++)
		assert_true(with_out(g, set & ~(1u << a->evict[i])) < a->needed_bytes);
	assert_true(isnan(seconds) ? isnan(a->seconds) : seconds == a->seconds);
}

TEST(fit_equals_a_search_over_all_sets_of_workers)
{
	unsigned seen[4] = { 0 };

	for (unsigned round = 0; round < 20000; round++) {
		struct capacity_gpu g;
		struct capacity_answer a;
		uint64_t bytes = random_below(&rnd, 26) * GIB;
		unsigned low;
		bool ever;

		make_gpu(&g);
		ever = can_ever(&g, bytes, &low);
		capacity_fit(&g, bytes, &a);
		seen[a.fit]++;
		assert_int_equal(a.fit == FIT_UNKNOWN, !g.known);
		assert_int_equal(a.fit == FIT_NEVER, g.known && !ever);
		assert_int_equal(a.fit == FIT_NOW, g.known && capacity_available(&g) >= bytes);
		assert_int_equal(a.needed_bytes, bytes);
		assert_int_equal(a.available_bytes, capacity_available(&g));
		assert_true(strlen(a.why) > 0);
		if (a.fit == FIT_NOW)
			assert_true(a.evicts == 0 && a.seconds == 0);
		if (a.fit == FIT_NEVER || a.fit == FIT_UNKNOWN)
			assert_true(a.evicts == 0 && isnan(a.seconds));
		if (a.fit != FIT_AFTER_EVICTION)
			continue;
		evictions_are_enough_and_none_too_many(&g, &a);
		assert_int_equal(a.evict[a.evicts - 1] + 1, low);
	}
	assert_true(seen[FIT_NOW] > 100 && seen[FIT_AFTER_EVICTION] > 100 &&
		    seen[FIT_NEVER] > 100 && seen[FIT_UNKNOWN] > 100);
}

TEST(extreme_numbers_do_not_overflow)
{
	struct capacity_gpu g = {
		.known = true, .total_bytes = 8 * GIB, .free_bytes = GIB, .workers = 2
	};
	struct capacity_answer a;

	g.worker[0].movable = g.worker[1].movable = true;
	g.worker[0].bytes = g.worker[1].bytes = UINT64_MAX - 5;
	capacity_fit(&g, 9 * GIB, &a);
	assert_int_equal(a.fit, FIT_NEVER); /* a GPU cannot free more than it has */
	capacity_fit(&g, 7 * GIB, &a);
	assert_int_equal(a.fit, FIT_AFTER_EVICTION);
}

TEST(unknown_memory_does_not_mean_never)
{
	struct capacity_gpu g = { .margin_c = NAN };
	struct capacity_answer a;
	unsigned order;

	assert_int_equal(capacity_place(&g, 1, MIB, &order, &a), 0);
	assert_int_equal(a.fit, FIT_UNKNOWN);
	assert_in(a.why, "1.0 MiB needed, but the memory of this GPU cannot be read");
}

TEST(small_sizes_are_not_rounded_to_zero)
{
	struct capacity_gpu g = { .known = true, .total_bytes = 8 * GIB, .free_bytes = MIB };
	struct capacity_answer a;

	capacity_fit(&g, 100, &a);
	assert_in(a.why, "100 B needed, 1.0 MiB available");
}

static double left(const struct capacity_gpu *g, const struct capacity_answer *a)
{
	unsigned set = 0;

	for (unsigned i = 0; i < a->evicts; i++)
		set |= 1u << a->evict[i];
	return (double)with_out(g, set) - (double)a->needed_bytes;
}

TEST(placement_is_ordered_and_complete)
{
	for (unsigned round = 0; round < 3000; round++) {
		static struct capacity_gpu g[8];
		static struct capacity_answer a[8];
		unsigned order[8], n = random_below(&rnd, 9), can, expected = 0, seen = 0, low;
		uint64_t bytes = random_below(&rnd, 20) * GIB;

		for (unsigned i = 0; i < n; i++) {
			make_gpu(&g[i]);
			expected += !g[i].quarantine && !g[i].blind && !g[i].warm &&
				    can_ever(&g[i], bytes, &low);
		}
		can = capacity_place(g, n, bytes, order, a);
		assert_int_equal(can, expected);
		for (unsigned i = 0; i < n; i++) {
			seen |= 1u << order[i];
			assert_true(strlen(a[order[i]].why) > 0);
			if (i < can)
				assert_false(g[order[i]].quarantine || g[order[i]].blind ||
					     g[order[i]].warm || a[order[i]].fit >= FIT_NEVER);
		}
		assert_int_equal(seen, (1u << n) - 1);
		for (unsigned i = 1; i < can; i++) {
			unsigned p = order[i - 1], q = order[i];

			assert_true(a[p].fit <= a[q].fit);
			if (a[p].fit != a[q].fit)
				continue;
			assert_true(left(&g[p], &a[p]) <= left(&g[q], &a[q]));
			if (left(&g[p], &a[p]) != left(&g[q], &a[q]))
				continue;
			assert_false(g[p].margin_c < g[q].margin_c);
			assert_false(isnan(g[p].margin_c) && !isnan(g[q].margin_c));
			if (g[p].margin_c == g[q].margin_c)
				assert_true(p < q);
		}
	}
}

TEST(reasons_are_listed)
{
	static struct capacity_gpu g[4];
	static struct capacity_answer a[4];
	unsigned order[4];

	for (unsigned i = 0; i < 4; i++)
		g[i] = (struct capacity_gpu){ .known = true,
					      .total_bytes = 24 * GIB,
					      .free_bytes = 20 * GIB,
					      .margin_c = 30 };
	g[0].quarantine = true;
	g[1].free_bytes = GIB;
	g[2].margin_c = 31;
	assert_int_equal(capacity_place(g, 4, 8 * GIB, order, a), 2);
	assert_int_equal(order[0], 2); /* the GPU with the larger thermal margin is first */
	assert_int_equal(order[1], 3);
	assert_in(a[0].why, "quarantine");
	assert_in(a[1].why, "8.00 GiB needed, 1.00 GiB available");
	assert_string_equal(a[2].why, "place 1: 8.00 GiB needed, 20.00 GiB available; "
				      "12.00 GiB left over, thermal margin 31 C");
}

TEST_MAIN(seed, NULL)
