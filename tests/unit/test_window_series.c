/* Tests the recorded readings of a window, and the description of the sensor, on the simulator
 * in stepped time. */
#include "simtest.h"

#include "measure/meter.h"

#include <math.h>

#define ONE "[[gpu]]\nprofile = \"h200\"\nnoise = 0\n"
#define LOAD                                                                           \
	"[[gpu.load]]\nkind = \"steps\"\nunit = \"watts\"\npoints = [[0, 200], [0.7, " \
	"500]]\nperiod = 1.3\n"

static struct gw_meter *meter;
static struct gw_window *window;

static int stop(void **state)
{
	gw_window_free(window);
	gw_meter_stop(meter);
	window = NULL;
	meter = NULL;
	return sim_teardown(state);
}

#define TEST_TEARDOWN stop

static void start(const char *world)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };

	sim_text(world);
	sim_step(5 * NS_PER_S); /* the sample ring is full */
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	gw_meter_poll(meter);
}

static void record(size_t points)
{
	assert_int_equal(gw_window_open_recorded(meter, "w", 0, points, &window), 0);
}

static void end(void)
{
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
}

/* Returns the power at t between two samples. */
static double power_at(const struct gw_series *s, size_t k, uint64_t t_ns)
{
	double whole = (double)(s->power_ns[k + 1] - s->power_ns[k]);
	double part = (double)(t_ns - s->power_ns[k]) / whole;

	return s->power_w[k] + part * (s->power_w[k + 1] - s->power_w[k]);
}

/* Integrates the power from the beginning of the window to its end. */
static double integral(const struct gw_series *s, uint64_t begin_ns, uint64_t end_ns)
{
	double joules = 0;

	for (size_t k = 0; k + 1 < s->power_count; k++) {
		uint64_t a = s->power_ns[k], b = s->power_ns[k + 1];

		a = a < begin_ns ? begin_ns : a;
		b = b > end_ns ? end_ns : b;
		if (b > a)
			joules += 0.5e-9 * (double)(b - a) *
				  (power_at(s, k, a) + power_at(s, k, b));
	}
	return joules;
}

static unsigned column_of(const struct gw_series *s, unsigned quantity)
{
	for (unsigned i = 0; i < s->figure_count; i++)
		if (s->figure_quantity[i] == quantity)
			return i;
	fail_msg("there is no column of quantity %u", quantity);
	return 0;
}

TEST(the_integral_of_the_series_is_the_energy_of_the_samples)
{
	const struct gw_energy *e;
	const struct gw_series *s;
	double joules;

	start(ONE LOAD);
	record(0);
	sim_run_for(meter, 5);
	end();
	e = gw_window_energy(window, 0);
	s = gw_window_series(window, 0);
	joules = integral(s, e->begin_ns, e->end_ns);
	printf("%zu samples, %zu ticks, %.3f J, samples %.3f J\n", s->power_count,
	       s->tick_count, joules, e->samples_joules);
	assert_int_equal(s->dropped, 0);
	assert_true(fabs(joules / e->samples_joules - 1) < 1e-6);
	/* exactly one sample on either side of the window */
	assert_true(s->power_ns[0] < e->begin_ns && s->power_ns[1] >= e->begin_ns);
	assert_true(s->power_ns[s->power_count - 1] >= e->end_ns);
	assert_true(s->power_ns[s->power_count - 2] < e->end_ns);
	assert_int_equal(s->begin_ns, e->begin_ns);
	assert_true(s->begin_wall_ns -
			    (sim_wall_ns() - (clock_mono_ns(&sim.clock) - s->begin_ns)) <
		    NS_PER_MS);
}

TEST(the_ticks_have_the_figures_of_a_snapshot)
{
	const struct gw_series *s;
	const double *memory, *clock;

	start(ONE);
	record(0);
	sim_run_for(meter, 3);
	end();
	s = gw_window_series(window, 0);
	assert_true(s->tick_count >= 29 && s->tick_count <= 32);
	memory = s->figure[column_of(s, GW_Q_MEMORY_USED)];
	clock = s->figure[column_of(s, GW_Q_CLOCK_SM)];
	for (size_t k = 0; k < s->tick_count; k++) {
		assert_true(memory[k] >= 0 && clock[k] > 1e8);
		assert_true(k == 0 || s->tick_ns[k] > s->tick_ns[k - 1]);
	}
	assert_true(memory[0] == sim_value(sim_take(GW_TIERS_COMMON, 0), GW_Q_MEMORY_USED));
}

TEST(the_iterator_gives_every_reading_once_in_order)
{
	struct gw_reading r = { 0 };
	const struct gw_series *s;
	size_t powers = 0, ticks = 0;
	uint64_t last = 0;

	start(ONE LOAD);
	record(0);
	sim_run_for(meter, 2);
	end();
	s = gw_window_series(window, 0);
	while (gw_series_next(s, &r)) {
		assert_true(r.t_ns >= last);
		last = r.t_ns;
		if (r.tick == SIZE_MAX)
			assert_true(r.power_w == s->power_w[powers++]);
		else
			assert_true(isnan(r.power_w) && r.tick == ticks++);
	}
	assert_int_equal(powers, s->power_count);
	assert_int_equal(ticks, s->tick_count);
	assert_false(gw_series_next(s, &r)); /* a further call returns 0 again */
}

TEST(a_full_series_counts_what_it_drops_and_the_energy_is_complete)
{
	struct gw_window *plain;
	const struct gw_series *s;

	start(ONE LOAD);
	assert_int_equal(gw_window_open(meter, "plain", 0, &plain), 0);
	record(20);
	sim_run_for(meter, 4);
	assert_int_equal(gw_window_close(plain, 0), 0);
	end();
	assert_int_equal(gw_window_wait(plain, 5 * NS_PER_S), 0);
	s = gw_window_series(window, 0);
	assert_int_equal(s->room, 20);
	assert_int_equal(s->power_count, 20);
	assert_int_equal(s->tick_count, 20);
	printf("%llu dropped\n", (unsigned long long)s->dropped);
	/* of 200 samples and 40 ticks, 20 each were kept */
	assert_true(s->dropped > 150 && s->dropped < 250);
	assert_true(s->power_ns[19] - s->power_ns[0] < 500 * NS_PER_MS); /* the first 20 */
	assert_true(gw_window_energy(window, 0)->joules.best ==
		    gw_window_energy(plain, 0)->joules.best);
	gw_window_free(plain);
}

TEST(an_open_window_can_be_read_and_its_arrays_stay_where_they_are)
{
	const struct gw_series *s;
	const double *watts;
	double first;
	size_t before;

	start(ONE LOAD);
	record(0);
	sim_run_for(meter, 3);
	s = gw_window_series(window, 0);
	before = s->power_count;
	watts = s->power_w;
	first = watts[0];
	assert_true(before > 40 && s->tick_count > 20);
	sim_run_for(meter, 3);
	/* the struct changes only when gw_window_series() is called */
	assert_int_equal(s->power_count, before);
	end();
	assert_ptr_equal(gw_window_series(window, 0), s);
	assert_true(s->power_count > before + 100);
	assert_ptr_equal(s->power_w, watts);
	assert_true(watts[0] == first);
}

TEST(a_window_that_begins_in_the_past_has_the_samples_of_that_time)
{
	uint64_t begin;

	start(ONE LOAD);
	assert_int_equal(gw_window_open(meter, "first", 0, &window), 0);
	sim_run_for(meter, 4);
	end();
	gw_window_free(window);
	begin = clock_mono_ns(&sim.clock) - 2 * NS_PER_S;
	assert_int_equal(gw_window_open_recorded(meter, "w", begin, 0, &window), 0);
	sim_run_for(meter, 2);
	end();
	assert_true(gw_window_series(window, 0)->power_ns[0] < begin);
	assert_true(gw_window_series(window, 0)->power_ns[1] >= begin);
	assert_true(gw_window_series(window, 0)->power_count > 190);
}

TEST(a_window_that_ended_in_the_past_has_no_later_readings)
{
	const struct gw_series *s;
	uint64_t end_ns;

	start(ONE LOAD);
	record(0);
	sim_run_for(meter, 2);
	end_ns = clock_mono_ns(&sim.clock);
	sim_run_for(meter, 2);
	assert_int_equal(gw_window_close(window, end_ns), 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
	s = gw_window_series(window, 0);
	assert_true(s->power_ns[s->power_count - 2] < end_ns);
	assert_true(s->power_ns[s->power_count - 1] >= end_ns);
	assert_true(s->tick_ns[s->tick_count - 1] <= end_ns);
}

TEST(a_lost_gpu_ends_the_series_and_the_window_says_so)
{
	const struct gw_series *s;

	start(ONE LOAD "[[timeline]]\nat = 8\ndo = \"lose\"\n");
	record(0);
	sim_run_for(meter, 6);
	gw_window_close(window, 0);
	gw_window_wait(window, 3 * NS_PER_S);
	s = gw_window_series(window, 0);
	assert_true(gw_window_energy(window, 0)->codes >> GW_CODE_GPU_LOST & 1);
	assert_true(s->power_count > 20 && s->power_count < 300);
	for (size_t k = 0; k < s->power_count; k++)
		assert_true(s->power_w[k] > 50 && s->power_w[k] < 800);
}

TEST(a_window_without_recording_has_no_series)
{
	start(ONE);
	assert_int_equal(gw_window_open(meter, "w", 0, &window), 0);
	assert_null(gw_window_series(window, 0));
	gw_window_free(window);
	record(0);
	assert_non_null(gw_window_series(window, 0));
	assert_null(gw_window_series(window, 1)); /* there is only one GPU */
}

TEST(a_room_that_is_too_large_is_refused_with_a_sentence)
{
	start(ONE);
	assert_int_equal(gw_window_open_recorded(meter, "w", 0, SIZE_MAX / 2, &window),
			 -GW_E_NOMEM);
	assert_null(window);
	assert_in(gw_ctx_error(sim.ctx),
		  "no memory for a window with 9223372036854775807 points");
}

TEST(without_a_gpu_a_recorded_window_opens_and_has_no_series)
{
	struct gw_meter_options o = { .size = sizeof(o), .flags = GW_METER_MANUAL };

	sim_scenario("no-gpu");
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	record(0);
	assert_null(gw_window_series(window, 0));
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_int_equal(gw_window_close(window, 0), -GW_E_STATE);
	assert_in(gw_ctx_error(sim.ctx), "already closed");
}

TEST(the_sensor_is_described_and_an_assumption_is_called_one)
{
	struct gw_sensor s = { .size = sizeof(s) };

	start(ONE);
	assert_int_equal(gw_meter_sensor(meter, 0, &s), 0);
	printf("%s %s %s %.3f s %.3f s %.3f s\n", gw_rung_name(s.rung), s.origin, s.model,
	       s.period_s, s.window_s, s.lag_s);
	assert_string_equal(s.origin, "assumed");
	assert_int_equal(s.rung, GW_RUNG_COUNTER_RING);
	assert_true(s.period_s == 0.02 && s.window_s > 0 && s.lag_s > 0);
	assert_int_equal(s.counter_absence, GW_HAVE);
	assert_true(s.counter_tick_s > 0 && s.wall_ns == 0);
	assert_true(s.calibrated == 0 && s.gain == 1 && s.offset_w == 0);
	assert_int_equal(s.size, sizeof(s)); /* the size that the caller set is unchanged */
}

TEST(a_sensor_is_described_to_newer_programs)
{
	struct {
		struct gw_sensor s;
		double later;
	} newer = { .s.size = sizeof(newer), .later = 7 };
	struct gw_sensor s = { .size = offsetof(struct gw_sensor, period_s), .lag_s = 7 };

	start(ONE);
	assert_int_equal(gw_meter_sensor(meter, 0, &newer.s), 0);
	assert_true(newer.later == 0 && newer.s.gain == 1);
	assert_int_equal(gw_meter_sensor(meter, 0, &s), -GW_E_ARG);
	assert_true(s.lag_s == 7);
	assert_in(gw_ctx_error(sim.ctx), "the size of struct gw_sensor");
	s.size = sizeof(s);
	assert_int_equal(gw_meter_sensor(meter, 1, &s), -GW_E_NODEV);
	assert_in(gw_ctx_error(sim.ctx), "there is no number 1");
}

TEST_MAIN(sim_setup, NULL)
