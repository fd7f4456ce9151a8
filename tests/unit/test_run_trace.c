/* Tests that the trace of a run uses a bounded amount of memory and keeps the extremes and the
 * order. */
#include "measure/run_trace.h"

#include "base/clock.h"
#include "measure/stat.h"

#include "random_unit.h"
#include "test.h"

#include <math.h>
#include <time.h>

#define BEGIN (100 * NS_PER_S)

static void feed_power(struct run_trace *s, uint64_t t_ns, double w)
{
	run_trace_event(s, 0,
			&(struct event){ .type = EVENT_POWER, .t_ns = t_ns, .u.power_w = w });
}

static void feed_tick(struct run_trace *s, uint64_t t_ns, double c)
{
	struct event e = { .type = EVENT_TICK, .t_ns = t_ns };

	for (unsigned i = 0; i < FIGURES; i++)
		e.u.tick.figure[i] = NAN;
	e.u.tick.figure[FIGURE_TEMPERATURE_GPU] = c;
	run_trace_event(s, 0, &e);
}

TEST(short_runs_are_kept_as_they_are)
{
	struct run_trace *s = run_trace_new(1);
	struct run_trace_copy c;

	for (unsigned i = 0; i < 200; i++) /* four seconds before the run */
		feed_power(s, BEGIN - 4 * NS_PER_S + i * 20 * NS_PER_MS, 50);
	run_trace_begin(s, BEGIN);
	for (unsigned i = 0; i < 150; i++)
		feed_power(s, BEGIN + i * 20 * NS_PER_MS, 100 + i);
	assert_int_equal(run_trace_copy(s, 0, BEGIN + NS_PER_S, &c), 0);
	assert_true(c.power[0].t_ns == BEGIN - NS_PER_S); /* a second before the run ... */
	assert_true(c.power[c.powers - 1].t_ns == BEGIN + 2 * NS_PER_S); /* ... and after */
	assert_int_equal(c.powers, 50 + 101);
	assert_float_equal(c.power[50].w, 100, 0);
	run_trace_copy_done(&c);
	run_trace_free(s);
}

TEST(long_runs_keep_every_extreme)
{
	uint64_t seed = (uint64_t)time(NULL);
	struct random r;

	print_message("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned round = 0; round < 20; round++) {
		unsigned n = 1 + random_below(&r, 60000);
		struct run_trace *s = run_trace_new(1);
		double low = INFINITY, high = -INFINITY, kept_low = INFINITY,
		       kept_high = -INFINITY;
		struct run_trace_copy c;

		run_trace_begin(s, BEGIN);
		for (unsigned i = 0; i < n; i++) {
			double w = (float)(100 + 600 * random_unit(&r));

			feed_power(s, BEGIN + i * NS_PER_MS, w);
			feed_tick(s, BEGIN + i * NS_PER_MS, i);
			low = fmin(low, w);
			high = fmax(high, w);
		}
		assert_int_equal(run_trace_copy(s, 0, BEGIN + n * NS_PER_MS, &c), 0);
		assert_true(c.powers <= RUN_TRACE_POINTS && c.ticks <= RUN_TRACE_POINTS);
		assert_true(n < RUN_TRACE_POINTS || c.powers > RUN_TRACE_POINTS / 4);
		assert_true(n < RUN_TRACE_POINTS || c.ticks >= RUN_TRACE_POINTS / 2);
		for (size_t i = 0; i < c.powers; i++) {
			kept_low = fmin(kept_low, (double)c.power[i].w);
			kept_high = fmax(kept_high, (double)c.power[i].w);
			assert_true(i == 0 || c.power[i].t_ns > c.power[i - 1].t_ns);
		}
		/* ticks are thinned evenly and keep their times */
		for (size_t i = 0; i < c.ticks; i++) {
			assert_true(c.tick[i].t_ns ==
				    BEGIN + (uint64_t)c.tick[i].temperature_c * NS_PER_MS);
			assert_true(i < 2 || c.tick[i].t_ns - c.tick[i - 1].t_ns ==
						     c.tick[1].t_ns - c.tick[0].t_ns);
		}
		assert_true(kept_low == low && kept_high == high);
		run_trace_copy_done(&c);
		run_trace_free(s);
	}
}

TEST(waiting_for_a_run_takes_no_memory)
{
	struct run_trace *s = run_trace_new(1);
	struct run_trace_copy c;

	for (unsigned i = 0; i < 100000; i++)
		feed_power(s, NS_PER_S + i * 20 * NS_PER_MS, i);
	run_trace_begin(s, NS_PER_S + 99999 * 20 * NS_PER_MS);
	assert_int_equal(run_trace_copy(s, 0, UINT64_MAX / 2, &c), 0);
	assert_int_equal(c.powers, 51); /* all samples of the last second */
	assert_float_equal(c.power[50].w, 99999, 0);
	run_trace_copy_done(&c);
	run_trace_free(s);
}

TEST_MAIN(NULL, NULL)
