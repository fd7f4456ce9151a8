/* Measures joules from the simulated sensor in stepped time and compares them with the true
 * energy. */
#include "simtest.h"

#include "measure/meter.h"

#include <math.h>

#define ONE(load)   "[[gpu]]\nprofile = \"h200\"\n" load
#define HALF_LOAD   ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n")
#define WATTS(rest) ONE("noise = 0\n[[gpu.load]]\nunit = \"watts\"\n" rest)

static struct gw_meter *meter;
static struct gw_window *window;
static const struct gw_energy *r; /* the result of the window on GPU 0 */
static double true_begin, truth;  /* joules */

/* Waits until the simulator has no client. A context with a deadline may be closed before its
 * driver is closed. If the next world began in between, its clients would belong to the old
 * generation and would find no GPU. A client that stays for 10 s is removed. */
static void wait_for_shutdown(void)
{
	uint32_t gpus;

	for (unsigned i = 0; i < 10000 && nvml_count(&gpus) != ABI_UNINITIALIZED; i++)
		usleep(1000);
	while (nvml_shutdown() == ABI_SUCCESS)
		;
}

static void stop_meter(void)
{
	sim_unhang(); /* a thread that hangs in the driver cannot be stopped */
	gw_window_free(window);
	gw_meter_stop(meter);
	window = NULL;
	meter = NULL;
	sim_close();
	wait_for_shutdown();
}

static int stop(void **state)
{
	stop_meter();
	return 0;
}

#define TEST_TEARDOWN stop

/* Opens a world in which the ring of samples is full. */
static void open_world(const char *world)
{
	stop_meter();
	sim_text(world);
	sim_step(5 * NS_PER_S);
	sim_open();
}

/* A meter without threads. */
static void start_meter(struct gw_meter_options o, struct meter_config c)
{
	o.size = sizeof(o);
	o.flags |= GW_METER_MANUAL;
	o.cache_dir = "";
	c.options = &o;
	assert_int_equal(meter_start(sim.ctx, &c, &meter), 0);
}

#define OPTIONS(...) ((struct gw_meter_options){ __VA_ARGS__ })
#define CONFIG(...)  ((struct meter_config){ __VA_ARGS__ })

static void start(const char *world)
{
	open_world(world);
	start_meter(OPTIONS(0), CONFIG(0));
	gw_meter_poll(meter);
}

static void begin(void)
{
	gw_window_free(window);
	window = NULL;
	true_begin = sim_true_joules(0);
	assert_int_equal(gw_window_open(meter, "w", 0, &window), 0);
}

/* Ends the window. Returns an error if its result is not complete within timeout_ns. */
static int end_within(uint64_t timeout_ns)
{
	int err;

	truth = sim_true_joules(0) - true_begin;
	assert_int_equal(gw_window_close(window, 0), 0);
	err = gw_window_wait(window, timeout_ns);
	assert_int_equal(gw_window_wait(window, timeout_ns), err); /* the same answer again */
	assert_int_equal(gw_window_close(window, 0), -GW_E_STATE);
	r = gw_window_energy(window, 0);
	return err;
}

static void end(void)
{
	assert_int_equal(end_within(5 * NS_PER_S), 0);
}

static void measure(double seconds)
{
	begin();
	sim_run_for(meter, seconds);
	end();
}

static bool has_code(enum gw_code code)
{
	return r->codes >> code & 1;
}

static double off_by(double joules, double want)
{
	return fabs(joules / want - 1);
}

static bool truth_is_inside(void)
{
	return r->relative.low <= truth && truth <= r->relative.high;
}

static void print(const char *what)
{
	printf("%s: true %.2f J, %s %.2f [%.2f %.2f] rel [%.2f %.2f] counter %.2f samples %.2f "
	       "residual %+.4f %s %s coverage %.3f codes %llx\n",
	       what, truth, gw_meter_kind_name(r->meter), r->joules.best, r->joules.low,
	       r->joules.high, r->relative.low, r->relative.high, r->counter_joules,
	       r->samples_joules, r->residual_ratio, gw_rung_name(r->rung),
	       gw_verdict_name(r->verdict), r->coverage_ratio, (unsigned long long)r->codes);
}

/* Reads the counter at irregular times, so that its phase is known as after a long run. */
static void learn_phase(unsigned windows)
{
	for (unsigned i = 0; i < windows; i++) {
		begin();
		sim_run_for(meter, 1.03 + 0.017 * (i * 37 % 11));
		end_within(5 * NS_PER_S);
	}
}

TEST(a_window_reports_when_its_result_is_complete)
{
	start(HALF_LOAD);
	begin();
	sim_run_for(meter, 2);
	assert_false(window_done(window)); /* open */
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_false(window_done(window)); /* the sample that covers its end is still missing */
	sim_run_for(meter, 2);
	assert_true(window_done(window));
	assert_int_equal(gw_window_wait(window, 0), 0);
	assert_true(window_done(window));
}

TEST(known_shapes_are_within_a_thousandth)
{
	static const struct {
		const char *name, *world;
		double seconds;
	} rows[] = {
		{ "constant", WATTS("kind = \"constant\"\nlevel = 300\n"), 12 },
		{ "ramp",
		  WATTS("kind = \"ramp\"\nlow = 100\nhigh = 600\nfrom = 16\nlength = 10\n"),
		  14 },
		{ "step up", WATTS("kind = \"steps\"\npoints = [[0, 120], [21.013, 600]]\n"),
		  12 },
		{ "step down", WATTS("kind = \"steps\"\npoints = [[0, 600], [21.013, 120]]\n"),
		  12 },
		{ "long flat then step",
		  WATTS("kind = \"steps\"\npoints = [[0, 200], [72.007, 500]]\n"), 62 },
		{ "bursts of 200 ms",
		  WATTS("kind = \"square\"\nhigh = 400\nlow = 100\nperiod = 0.4\n"), 12 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		start(rows[i].world);
		learn_phase(8);
		measure(rows[i].seconds);
		print(rows[i].name);
		assert_true(off_by(r->joules.best, truth) <= 0.001);
		assert_true(off_by(r->samples_joules, truth) <= 0.001);
		assert_int_equal(r->verdict, GW_VERDICT_AGREE);
		assert_true(truth_is_inside());
	}
}

static uint64_t seed = 20261115;

static double uniform(void)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(seed >> 11) * 0x1p-53;
}

static double square(double x)
{
	return x * x;
}

/* Asserts over 1000 windows that our result errs at most a tenth as much as the raw counter.
 * Both errors are standard deviations in counter ticks. */
static void ticks(double tick_s, const char *world)
{
	double raw = 0, ours = 0, counter = 0;
	const unsigned n = 1000;
	unsigned counted = 0;
	struct sensor sensor;
	char note[256];

	printf("seed %llu\n", (unsigned long long)seed);
	open_world(world);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(sensor_known(sim.ctx, 0, NULL, &sensor, note, sizeof(note)), 0);
	sensor.tick_s = tick_s; /* the value that `gpuward characterise` would have found */
	start_meter(OPTIONS(0), CONFIG(.sensor = &sensor));
	gw_meter_poll(meter);
	learn_phase(20);
	for (unsigned i = 0; i < n; i++) {
		double e, length = 2 + uniform(), ticks_of = length / tick_s;

		sim_run_for(meter, 1.1 + 0.2 * uniform());
		begin();
		sim_take(GW_TIER_ENERGY, 0);
		e = -sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_ENERGY);
		sim_run_for(meter, length);
		sim_take(GW_TIER_ENERGY, 0);
		e += sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_ENERGY);
		end();
		raw += square(ticks_of * (e / truth - 1));
		ours += square(ticks_of * (r->joules.best / truth - 1));
		if (!isnan(r->counter_joules)) {
			counter += square(ticks_of * (r->counter_joules / truth - 1));
			counted++;
		}
	}
	raw = sqrt(raw / n);
	ours = sqrt(ours / n);
	counter = sqrt(counter / counted);
	printf("tick %.0f ms: s.d. in ticks: raw %.3f (0.41 is due), counter with edges %.4f "
	       "(%u "
	       "windows), result %.4f\n",
	       1e3 * tick_s, raw, counter, counted, ours);
	assert_true(fabs(raw / 0.408 - 1) < 0.10);
	assert_true(counter <= 0.10 * raw);
	assert_true(ours <= 0.10 * raw);
}

TEST(edges_between_ticks_are_found)
{
	ticks(0.1, WATTS("kind = \"constant\"\nlevel = 400\n"));
	ticks(0.02,
	      ONE("noise = 0\n[gpu.sensor]\ntick_ms = 20\n[[gpu.load]]\nkind = \"constant\"\n"
		  "unit = \"watts\"\nlevel = 400\n"));
}

TEST(a_bad_counter_gets_a_code_and_the_samples_take_over)
{
	static const struct {
		const char *name;
		unsigned code; /* GW_CODES: none */
	} rows[] = {
		{ "reset", GW_CODE_COUNTER_RESET },
		{ "back", GW_CODE_COUNTER_BACKWARDS },
		{ "frozen", GW_CODE_COUNTER_FROZEN },
		{ "jump", GW_CODE_COUNTER_JUMP },
		{ "2^32", GW_CODE_COUNTER_RESET },
		{ "2^64", GW_CODE_COUNTER_INVALID },
		{ "none", GW_CODES },
	};
	double from[7];

	sim_scenario("counter-faults");
	sim_step(6 * NS_PER_S);
	sim_open();
	start_meter(OPTIONS(.anchor_ns = 2 * NS_PER_S), CONFIG(0));
	gw_meter_poll(meter);
	for (unsigned i = 0; i < 7; i++)
		from[i] = sim_true_joules(i);
	begin();
	sim_run_for(meter, 10);
	for (unsigned i = 0; i < 7; i++)
		from[i] = sim_true_joules(i) - from[i];
	end();
	for (unsigned i = 0; i < 7; i++) {
		r = gw_window_energy(window, i);
		truth = from[i];
		print(rows[i].name);
		assert_true(off_by(r->joules.best, from[i]) < 0.005);
		assert_true(r->joules.low >= 0 && r->joules.high < 2 * from[i]);
		assert_int_equal(r->meter, GW_METER_SAMPLES);
		if (rows[i].code != GW_CODES)
			assert_true(r->codes >> rows[i].code & 1);
		else
			assert_int_equal(r->verdict, GW_VERDICT_SAMPLES_ONLY);
	}
}

TEST(a_late_read_leaves_a_gap_that_is_reported)
{
	start(ONE("noise = 0\n[gpu.sensor]\nno_counter = true\n[[gpu.load]]\nkind = "
		  "\"constant\"\n"
		  "unit = \"watts\"\nlevel = 400\n"));
	begin();
	sim_run_for(meter, 5);
	sim_step(4 * NS_PER_S); /* the thread did not run for 4 s; the ring holds 2.36 s */
	sim_run_for(meter, 5);
	end();
	print("hole");
	assert_true(has_code(GW_CODE_LOW_COVERAGE));
	assert_int_equal(r->validity, GW_INVALID);
	assert_true(r->longest_gap_seconds > 1.6 && r->longest_gap_seconds < 2.7);
	assert_true(r->samples_missed > 80 && r->samples_missed < 135);
	assert_true(r->samples_joules < 0.93 * truth); /* the gap is not bridged */
	assert_true(r->gap_joules == 0 && r->joules.best == r->samples_joules);
	assert_true(r->joules.low < truth && truth < r->joules.high);
	assert_true(r->ticks_missed >= 38);
}

TEST(setting_the_wall_clock_changes_nothing)
{
	double joules[3];
	static const char *const steps[3] = { "", "step = 3600\n", "step = -3600\n" };

	for (unsigned i = 0; i < 3; i++) {
		char world[1024];

		snprintf(world, sizeof(world),
			 ONE("noise = 0\n[[gpu.load]]\nkind = \"square\"\nhigh = 0.8\nperiod = "
			     "2\n%s%s"),
			 i ? "[[timeline]]\nat = 9.333\ndo = \"wall-step\"\n" : "", steps[i]);
		start(world);
		measure(8);
		print("clock");
		joules[i] = r->joules.best;
		assert_true(fabs(r->seconds - 8) < 1e-6);
		assert_true(off_by(r->joules.best, truth) < 0.01);
		assert_true(r->coverage_ratio > 0.999);
		assert_int_equal(has_code(GW_CODE_CLOCK_STEP), i > 0);
	}
	assert_true(fabs(joules[1] / joules[0] - 1) < 1e-6);
	assert_true(fabs(joules[2] / joules[0] - 1) < 1e-6);
}

TEST(a_ring_that_repeats_itself_is_read_once)
{
	sim_scenario("ring-repeats");
	sim_step(3 * NS_PER_S);
	sim_open();
	start_meter(OPTIONS(0), CONFIG(0));
	gw_meter_poll(meter);
	measure(10);
	print("repeats");
	assert_true(off_by(r->samples_joules, truth) < 0.02);
	assert_true(r->samples_collected <= r->samples_expected + 2);
	assert_true(r->coverage_ratio > 0.99);
}

TEST(a_window_below_the_period_is_an_interval)
{
	start(ONE("noise = 0\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\nhigh = "
		  "500\nlow = 100\n"
		  "period = 1\n"));
	sim_run_for(meter, 3.2);
	for (unsigned i = 0; i < 20; i++) {
		begin();
		sim_step((1 + i) * 950 * NS_PER_US);
		end();
		assert_true(has_code(GW_CODE_SUB_PERIOD));
		assert_true(r->joules.best > 0);
		assert_true(r->relative.low < r->relative.high);
		assert_true(truth_is_inside());
		assert_int_equal(r->validity, GW_SUSPECT);
		sim_run_for(meter, 0.113);
	}
}

TEST(a_short_window_without_a_sample_is_never_zero)
{
	start(WATTS("kind = \"constant\"\nlevel = 400\n"));
	sim_run_for(meter, 3.2);
	for (unsigned i = 0; i < 8; i++) {
		begin();
		sim_step((1 + 2 * i) * NS_PER_MS);
		assert_int_equal(end_within(0), -GW_E_TIMEOUT);
		assert_true(has_code(GW_CODE_SUB_PERIOD) && has_code(GW_CODE_TRUNCATED));
		assert_true(off_by(r->joules.best, truth) < 0.01);
		assert_true(r->joules.low < truth && truth < r->joules.high);
		assert_int_equal(r->validity, GW_INVALID);
		sim_run_for(meter, 0.113);
	}
}

TEST(a_window_that_ended_before_the_stored_samples_counts_no_later_energy)
{
#define LATER_LOAD WATTS("kind = \"steps\"\npoints = [[0, 100], [40, 600]]\n")
	static const char *const worlds[] = { LATER_LOAD,
					      LATER_LOAD "[gpu.sensor]\nno_counter = true\n" };
	uint64_t end_ns;

	for (unsigned i = 0; i < COUNT_OF(worlds); i++) {
		start(worlds[i]);
		begin();
		sim_run_for(meter, 20);
		truth = sim_true_joules(0) - true_begin;
		end_ns = clock_mono_ns(&sim.clock);
		sim_run_for(meter, 120); /* the samples of the last 82 s are stored */
		assert_int_equal(gw_window_close(window, end_ns), 0);
		assert_int_equal(gw_window_wait(window, NS_PER_S), -GW_E_TIMEOUT);
		r = gw_window_energy(window, 0);
		assert_true(has_code(GW_CODE_TRUNCATED));
		assert_int_equal(r->validity, i == 0 ? GW_INVALID : GW_NO_RESULT);
		assert_true(isnan(r->samples_joules));
		assert_true(isnan(r->joules.best) == (i == 1));
		assert_true(i == 1 || (r->joules.low <= truth && truth <= r->joules.high));
	}
}

TEST(windows_nest_and_overlap)
{
	struct gw_window *outer, *a, *b;
	double sum, j[3];

	start(ONE("noise = 0\n[[gpu.load]]\nkind = \"square\"\nhigh = 0.8\nperiod = 0.7\n"));
	gw_window_open(meter, "outer", 0, &outer);
	gw_window_open(meter, "a", 0, &a);
	sim_run_for(meter, 3);
	gw_window_open(meter, "b", 0, &b);
	gw_window_close(a, 0);
	sim_run_for(meter, 2);
	gw_window_close(b, 0);
	gw_window_close(outer, 0);
	assert_int_equal(gw_window_close(outer, 0), -GW_E_STATE);
	assert_int_equal(gw_window_wait(outer, NS_PER_S), 0);
	assert_int_equal(gw_window_wait(a, NS_PER_S), 0);
	assert_int_equal(gw_window_wait(b, NS_PER_S), 0);
	j[0] = gw_window_energy(outer, 0)->samples_joules;
	j[1] = gw_window_energy(a, 0)->samples_joules;
	j[2] = gw_window_energy(b, 0)->samples_joules;
	sum = j[1] + j[2];
	assert_true(fabs(sum - j[0]) < 1e-9 * j[0]);
	assert_string_equal(gw_window_label(b), "b");
}

TEST(a_lost_gpu_keeps_what_was_measured)
{
	start(ONE(
		"noise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel = 400\n"
		"[[timeline]]\nat = 10\ndo = \"lose\"\n"));
	begin();
	sim_run_for(meter, 10);
	end_within(3 * NS_PER_S);
	print("lost");
	assert_true(has_code(GW_CODE_GPU_LOST));
	assert_int_equal(r->validity, GW_INVALID);
	assert_true(r->samples_joules > 1500 && r->samples_joules < 2100); /* five seconds */
}

TEST(without_measurements_the_result_is_unknown_not_zero)
{
	start(ONE("[gpu.sensor]\nno_ring = true\nno_counter = true\nno_instant = "
		  "true\nno_average = true\n"
		  "[[fault]]\ncall = \"nvmlDeviceGetPowerUsage\"\ncode = 3\n"));
	begin();
	sim_run_for(meter, 2);
	end_within(NS_PER_S);
	print("nothing");
	assert_true(isnan(r->joules.best) && isnan(r->power_mean));
	assert_int_equal(r->validity, GW_NO_RESULT);
	assert_true(has_code(GW_CODE_NOT_SUPPORTED));
}

TEST(a_trend_in_power_is_reported)
{
	static const struct {
		const char *world;
		bool reported;
	} rows[] = {
		{ WATTS("kind = \"ramp\"\nlow = 300\nhigh = 330\nfrom = 5\nlength = 40\n"),
		  true },
		{ WATTS("kind = \"constant\"\nlevel = 300\n"), false },
		{ WATTS("kind = \"square\"\nhigh = 400\nlow = 100\nperiod = 0.9\n"), false },
	};

	for (size_t i = 0; i < 3; i++) {
		start(rows[i].world);
		measure(35);
		assert_int_equal(has_code(GW_CODE_NOT_STEADY), rows[i].reported);
	}
}

TEST(each_of_several_consecutive_windows_has_its_throttling)
{
	start(ONE("noise = 0\n[[gpu.load]]\nkind = \"constant\"\nlevel = 1\n"));
	/* consecutive windows, like the trials of `gpuward measure` */
	for (unsigned i = 0; i < 5; i++) {

		measure(i < 3 ? 3 : 12);
		printf("throttled %.2f of %.2f s, %s\n", r->throttle_seconds[GW_THROTTLE_POWER],
		       r->seconds, gw_throttle_source_name(r->throttle_source));
		assert_true(r->throttle_seconds[GW_THROTTLE_POWER] > 0.95 * r->seconds);
		assert_int_equal(r->throttle_source, GW_THROTTLE_SOURCE_COUNTERS);
		assert_true(has_code(GW_CODE_THROTTLE_POWER));
		sim_run_for(meter, 0.01);
	}
}

/* An edge between two samples is interpolated; the standard deviation must take that into
 * account. */
TEST(the_standard_deviation_of_power_fits_its_range)
{
	start(WATTS("kind = \"square\"\nhigh = 600\nlow = 20\nperiod = 2\nduty = 0.5\n"));
	for (unsigned i = 0; i < 60; i++) {
		measure(0.9 + 0.003 * i);
		assert_true(r->power_sd <= (r->power_max - r->power_min) / 2 + 1e-6);
		sim_run_for(meter, 0.1 + 0.007 * i);
	}
}

TEST(an_end_set_late_takes_nothing_from_after_it)
{
	uint64_t ended;

	start(WATTS("kind = \"steps\"\npoints = [[0, 120], [10, 600]]\n"));
	begin();
	sim_run_for(meter, 4);
	ended = clock_mono_ns(&sim.clock);
	sim_run_for(meter, 5); /* the power is 600 W in this time */
	assert_int_equal(gw_window_close(window, ended), 0);
	assert_int_equal(gw_window_wait(window, UINT64_MAX), 0);
	r = gw_window_energy(window, 0);
	truth = 480;
	print("late end");
	assert_true(fabs(r->joules.best - 480) < 10);
	assert_true(r->power_max < 130 && r->power_p95 < 130);
	assert_true(r->samples_collected <= 201);
}

TEST(a_begin_set_late_still_has_its_counter)
{
	uint64_t began;

	start(WATTS("kind = \"constant\"\nlevel = 300\n"));
	learn_phase(3);
	began = clock_mono_ns(&sim.clock);
	sim_run_for(meter, 8);
	assert_int_equal(gw_window_open(meter, "late", began, &window), 0);
	sim_run_for(meter, 4);
	end();
	truth = 3600;
	print("late begin");
	assert_true(r->counter_joules > 0);
	assert_true(off_by(r->joules.best, truth) < 0.01);
}

/* After few readings the phase of the counter is uncertain, but no window may be wrong by a
 * tick. */
TEST(counter_ticks_are_not_off_by_one)
{
	unsigned off = 0, outside = 0, quarrels = 0;
	const unsigned n = 300;

	printf("seed %llu\n", (unsigned long long)seed);
	start(WATTS("kind = \"constant\"\nlevel = 600\n"));
	for (unsigned i = 0; i < n; i++) {
		measure(1.5 + 3 * uniform());
		off += fabs(r->joules.best - truth) > 30;
		outside += !(truth_is_inside());
		quarrels += r->verdict == GW_VERDICT_DISAGREE;
		sim_run_for(meter, 4 * uniform());
	}
	printf("%u of %u off by half a tick, %u outside, %u quarrels\n", off, n, outside,
	       quarrels);
	assert_true(off <= n / 100 && outside <= n / 20 && quarrels <= n / 100);
}

TEST(a_silent_ring_leaves_the_counter)
{
	start(WATTS("kind = \"constant\"\nlevel = 400\n"));
	begin();
	sim_run_for(meter, 3);
	sim_fault("nvmlDeviceGetSamples", 0, 3);
	sim_run_for(meter, 17);
	end_within(3 * NS_PER_S);
	print("silent ring");
	assert_int_equal(r->meter, GW_METER_COUNTER);
	assert_int_equal(r->verdict, GW_VERDICT_COUNTER_ONLY);
	assert_true(isnan(r->residual_ratio));
	assert_true(off_by(r->joules.best, truth) < 0.02);
	assert_true(r->joules.low < truth && truth < r->joules.high);
}

/* Waits in real time until GPU 1 has ten more samples. */
static void wait_for_samples(void)
{
	struct meter_progress now, before;

	meter_progress(meter, 1, &before);
	do {
		usleep(1000);
		meter_progress(meter, 1, &now);
	} while (now.samples < before.samples + 10);
}

TEST(a_gpu_that_hangs_from_the_start_blocks_no_other)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path,
				.deadline_ns = 200 * NS_PER_MS };
	struct gw_meter_options mo = { .size = sizeof(mo), .cache_dir = "" };
	char error[256];

	assert_int_equal(sim_load_text("test", TWO_GPUS, error, sizeof(error)), 0);
	sim_hang("nvmlDeviceGetPowerUsage", 0);
	assert_int_equal(gw_open(&o, &sim.ctx), 0);
	assert_int_equal(gw_snapshot_new(sim.ctx, &sim.snap), 0);
	assert_int_equal(gw_snapshot_take(sim.snap, GW_TIERS_COMMON), 0);
	assert_int_equal(gw_meter_start(sim.ctx, &mo, &meter), 0);
	assert_int_equal(gw_window_open(meter, "hung", 0, &window), 0);
	wait_for_samples();
	assert_int_equal(gw_window_close(window, 0), 0);
	gw_window_wait(window, 2 * NS_PER_S);
	assert_int_equal(gw_window_energy(window, 0)->validity, GW_NO_RESULT);
	assert_true(isnan(gw_window_energy(window, 0)->joules.best));
	assert_true(gw_window_energy(window, 1)->joules.best > 0);
	assert_int_equal(gw_meter_stop(meter), 0);
	meter = NULL;
	window = NULL;
	sim_unhang();
	do /* wait until the GPU responds again: a close before that leaves the driver open */
		gw_snapshot_take(sim.snap, GW_TIER_FAST);
	while (gw_snapshot_device(sim.snap, 0)->state == GW_DEVICE_STALLED);
}

TEST(a_gpu_whose_sampler_does_not_start_in_time_is_not_measured)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path,
				.deadline_ns = 200 * NS_PER_MS };
	struct gw_meter_options mo = { .size = sizeof(mo), .cache_dir = "" };
	char error[256];

	assert_int_equal(sim_load_text("test", TWO_GPUS, error, sizeof(error)), 0);
	assert_int_equal(gw_open(&o, &sim.ctx), 0);
	sim_hang("nvmlDeviceGetSamples", 0); /* only the sampler calls this function */
	assert_int_equal(gw_meter_start(sim.ctx, &mo, &meter), 0);
	assert_int_equal(gw_window_open(meter, "hung", 0, &window), 0);
	wait_for_samples();
	assert_int_equal(gw_window_close(window, 0), 0);
	/* Now the call returns. A hung device stays hung, and the meter can be freed. */
	sim_unhang();
	gw_window_wait(window, 2 * NS_PER_S);
	assert_int_equal(gw_window_energy(window, 0)->validity, GW_NO_RESULT);
	assert_true(gw_window_energy(window, 1)->joules.best > 0);
	assert_int_equal(gw_meter_stop(meter), 0);
	meter = NULL;
	window = NULL;
}

TEST(a_context_that_is_closed_too_late_does_not_hide_the_next_gpu)
{
	/* the thread may still use the context when the program ends, so it is not a leak */
	static struct gw_ctx *volatile left_behind;
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path,
				.deadline_ns = 50 * NS_PER_MS };

	sim_text(HALF_LOAD "[[fault]]\ncall = \"nvmlShutdown\"\ndelay = 0.5\nfrom = 0\n");
	assert_int_equal(gw_open(&o, &sim.ctx), 0);
	assert_int_equal(gw_snapshot_new(sim.ctx, &sim.snap), 0);
	while (!sim_take(GW_TIER_FAST, 0)) /* the open may miss the deadline too */
		;
	left_behind = sim.ctx;
	assert_non_null(left_behind);
	sim_close();
	start(HALF_LOAD);
	assert_non_null(sim_take(GW_TIER_FAST, 0));
}

TEST(nonsense_is_refused)
{
	start(ONE(""));
	assert_int_equal(gw_meter_start(NULL, NULL, &meter), -GW_E_ARG);
	assert_int_equal(gw_window_open(NULL, "x", 0, &window), -GW_E_ARG);
	assert_int_equal(gw_window_open(meter, "x", 0, NULL), -GW_E_ARG);
	assert_int_equal(gw_window_open(meter, "x", UINT64_MAX, &window), -GW_E_ARG);
	assert_int_equal(gw_meter_stop(NULL), 0);
}

TEST(a_refused_option_is_named_with_its_value)
{
	struct gw_meter *other = NULL;

#define REFUSED(member, value, text)                                                  \
	do {                                                                          \
		struct gw_meter_options mo = { .size = sizeof(mo), .member = value }; \
                                                                                      \
		assert_int_equal(gw_meter_start(sim.ctx, &mo, &other), -GW_E_ARG);    \
		assert_in(gw_ctx_error(sim.ctx), text);                               \
	} while (0)
	start(ONE(""));
	REFUSED(interval_ns, 999999, "interval_ns is 999999 ns; it must be 0 or at least 1 ms");
	REFUSED(anchor_ns, 5, "anchor_ns is 5 ns; it must be 0 or at least 1 s");
	REFUSED(flags, 1u << 9, "unknown bits 0x200");
#undef REFUSED
	assert_null(other);
}

TEST(a_long_label_is_cut_between_two_characters)
{
	char label[80];

	start(ONE(""));
	/* 61 letters, then a character of three bytes: two of them would fit */
	snprintf(label, sizeof(label), "%061d\xe2\x82\xac", 0);
	assert_int_equal(gw_window_open(meter, label, 0, &window), 0);
	assert_int_equal(strlen(gw_window_label(window)), 61);
	gw_window_free(window);
	window = NULL;
	snprintf(label, sizeof(label), "%060d\xe2\x82\xacx", 0); /* 63 bytes and one more */
	assert_int_equal(gw_window_open(meter, label, 0, &window), 0);
	assert_int_equal(strlen(gw_window_label(window)), 63);
	gw_window_free(window);
	window = NULL;
}

TEST(each_selector_of_a_meter_must_match_a_gpu)
{
	static const struct {
		const char *gpus[3], *says;
	} rows[] = {
		{ { NULL }, "the list of GPUs is empty" },
		{ { "0", "bogus" }, "no GPU matches \"bogus\"" },
		{ { "7" }, "no GPU matches \"7\"" },
	};
	struct gw_meter_options mo = { .size = sizeof(mo),
				       .flags = GW_METER_MANUAL,
				       .cache_dir = "" };
	const char *both[] = { "1", "all", NULL };
	struct gw_meter *other = NULL;

	start(TWO_GPUS);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		mo.gpus = rows[i].gpus;
		assert_int_equal(gw_meter_start(sim.ctx, &mo, &other), -GW_E_NODEV);
		assert_in(gw_ctx_error(sim.ctx), rows[i].says);
	}
	assert_null(other);
	mo.gpus = both;
	assert_int_equal(gw_meter_start(sim.ctx, &mo, &other), 0);
	assert_int_equal(gw_meter_device_count(other), 2);
	assert_int_equal(gw_meter_stop(other), 0);
}

TEST(every_sensor_gets_its_method)
{
	static const struct {
		const char *profile, *sensor;
		enum gw_rung rung;
		double within;
	} rows[] = {
		{ "h200", "", GW_RUNG_COUNTER_RING, 0.002 },
		{ "h200", "no_counter = true\n", GW_RUNG_RING, 0.002 },
		{ "h200", "no_ring = true\n", GW_RUNG_COUNTER_POLLED, 0.01 },
		{ "h200", "no_ring = true\nno_counter = true\n", GW_RUNG_POLLED, 0.03 },
		{ "a100", "no_ring = true\nno_counter = true\n", GW_RUNG_POLLED, 0.03 },
		{ "t4", "no_ring = true\nno_counter = true\n", GW_RUNG_POLLED, 0.02 },
		{ "p100", "no_ring = true\n", GW_RUNG_POLLED, 0.02 },
		{ "a10", "no_counter = true\n", GW_RUNG_POLLED, 0.02 },
		{ "a10", "", GW_RUNG_COUNTER_POLLED, 0.01 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char world[1024];

		snprintf(world, sizeof(world),
			 "[[gpu]]\nprofile = \"%s\"\nnoise = 0\n[gpu.sensor]\n%s[[gpu.load]]\n"
			 "kind = \"square\"\nhigh = 0.8\nlow = 0.1\nperiod = 1.7\n",
			 rows[i].profile, rows[i].sensor);
		start(world);
		measure(20);
		print(rows[i].profile);
		assert_string_equal(gw_rung_name(r->rung), gw_rung_name(rows[i].rung));
		assert_true(off_by(r->joules.best, truth) < rows[i].within);
		assert_true(truth_is_inside());
	}
}

TEST(a_load_in_step_with_the_sensor_is_seen_whole_and_reported)
{
	double worst = 0, worst_single = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < 12; i++) {
		char world[1024];

		snprintf(
			world, sizeof(world),
			"[[gpu]]\nprofile = \"a100\"\nnoise = 0\n[gpu.sensor]\nno_ring = true\n"
			"no_counter = true\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\n"
			"high = 380\nlow = 80\nperiod = 0.1\nduty = 0.5\nfrom = %.4f\n",
			0.1 * uniform());
		start(world);
		sim_run_for(meter, 2);
		measure(0.9 * 20); /* a whole number of rounds, each with eight phases */
		print("in step");
		assert_string_equal(gw_rung_name(r->rung), "polled");
		assert_true(has_code(GW_CODE_ALIAS_SUSPECTED));
		assert_true(truth_is_inside());
		worst = fmax(worst, off_by(r->joules.best, truth));
		/* Single readings in step with the load differ from the truth. */
		for (unsigned k = 0; k < 8; k++) {
			double w;

			sim_step(100 * NS_PER_MS);
			w = sim_value(sim_take(GW_TIER_FAST, 0), GW_Q_POWER);
			worst_single = fmax(worst_single, fabs(w / (truth / 18) - 1));
		}
	}
	printf("eight phases: worst %.2f %%; one phase: worst %.0f %%\n", 100 * worst,
	       100 * worst_single);
	assert_true(worst <= 0.01);
	assert_true(worst_single > 0.3);
}

/* The sensor of an H200 samples at its own times. A load in step with the sensor looks steady,
 * but the readings are far from the truth. So the interval must be wide. */
TEST(a_load_in_step_with_a_polled_sensor_gets_a_wide_interval)
{
	double worst = 0;

	for (unsigned i = 0; i < 6; i++) {
		char world[1024];

		snprintf(
			world, sizeof(world),
			"[[gpu]]\nprofile = \"h200\"\nnoise = 0\n[gpu.sensor]\nno_ring = true\n"
			"no_counter = true\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\n"
			"high = 320\nlow = 150\nperiod = 0.1\nduty = 0.5\nfrom = %.4f\n",
			0.1 * (i + 0.5) / 6);
		start(world);
		sim_run_for(meter, 2);
		measure(0.9 * 20);
		print("in step with its time");
		assert_string_equal(gw_rung_name(r->rung), "polled");
		assert_true(truth_is_inside());
		assert_true(r->power_sd < 0.02 * r->power_mean);
		assert_true(has_code(GW_CODE_ALIAS_SUSPECTED));
		worst = fmax(worst, off_by(r->joules.best, truth));
	}
	assert_true(worst > 0.3);
}

/* Polls that are out of step with the sensor read some samples twice and miss others. */
TEST(a_polled_load_without_a_counter_is_as_uncertain_as_it_varies)
{
	static const double period[] = { 0.15, 0.2, 0.25, 0.3 };

	for (unsigned i = 0; i < 4; i++) {
		char world[512];

		snprintf(
			world, sizeof(world),
			"[[gpu]]\nprofile = \"rtx4090\"\nnoise = 0\n[gpu.sensor]\nno_ring = "
			"true\n"
			"no_counter = true\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\n"
			"high = 250\nlow = 60\nperiod = %.2f\nduty = 0.3\n",
			period[i]);
		start(world);
		sim_run_for(meter, 2);
		measure(12);
		print("polled, out of step");
		assert_string_equal(gw_rung_name(r->rung), "polled");
		assert_true(truth_is_inside());
		assert_true(r->budget[GW_BUDGET_COVERAGE] >= 0.1 * r->power_sd * r->seconds);
	}
}

/* A sample ring hides less of a load than polling, but without a counter the error is not
 * visible. */
TEST(a_load_in_step_with_the_ring_is_inside_the_interval)
{
	static const double periods[] = { 0.02, 0.1 };
	double worst = 0;

	for (unsigned i = 0; i < 12; i++) {
		double period = periods[i % 2];
		char world[1024];

		snprintf(world, sizeof(world),
			 "[[gpu]]\nprofile = \"h200\"\nnoise = 0\n[gpu.sensor]\nno_counter = "
			 "true\n"
			 "[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\nhigh = 600\nlow = "
			 "100\n"
			 "period = %.3f\nduty = 0.5\nfrom = %.4f\n",
			 period, period * (i / 2 + 0.5) / 6);
		start(world);
		sim_run_for(meter, 3);
		measure(12);
		print("in step with the ring");
		assert_string_equal(gw_rung_name(r->rung), "ring");
		assert_true(truth_is_inside());
		worst = fmax(worst, off_by(r->joules.best, truth));
	}
	assert_true(worst > 0.08);
}

TEST(a_counter_that_reading_disturbs_is_found_and_read_rarely)
{
	struct sensor sensor;
	struct sensor_plan plan = { 0 };
	char message[512];

	open_world("[[gpu]]\nprofile = \"rtx4090\"\n[[gpu.load]]\nkind = \"constant\"\n"
		   "level = 0.7\n");
	assert_non_null(sim_take(GW_TIERS_COMMON, 0));
	if (sensor_characterise(sim.ctx, 0, &plan, &sensor, message, sizeof(message)) != 0)
		fail_msg("%s", message);
	assert_true(sensor.counter_unsafe || sensor.counter_safe_s > 1);
	start_meter(OPTIONS(0), CONFIG(.sensor = &sensor));
	gw_meter_poll(meter);
	measure(35);
	print("hurt");
	assert_true(off_by(r->joules.best, truth) <= 0.02);
}

/* The counter and the samples agree about a load that rises by 10 W per second, if the lag of
 * the counter is subtracted. */
TEST(the_lag_of_the_counter_counts_while_the_phase_is_unknown)
{
	static struct energy e;
	struct energy_setup set = { .shape = SHAPE_RING,
				    .spacing_s = 0.02,
				    .look_ratio = 1,
				    .counter = true,
				    .limit_w = NAN,
				    .sensor = { .tick_s = 0.1, .counter_lag_s = 0.5 } };
	struct energy_window w;
	struct gw_energy result = { .device = 0 };

	energy_init(&e, &set);
	energy_open(&w, 15 * NS_PER_S, NAN);
	for (unsigned i = 0; i <= 1000; i++) { /* from 10 s to 30 s */
		double s = 0.02 * i, at = s - 0.55;

		energy_add(&e, 10 * NS_PER_S + i * 20 * NS_PER_MS, 100 + 10 * s);
		if (i == 100 || i == 800)
			energy_count(&e, 10 * NS_PER_S + i * 20 * NS_PER_MS,
				     10 * NS_PER_S + i * 20 * NS_PER_MS + 2,
				     100 * at + 5 * at * at);
	}
	energy_close(&w, 18 * NS_PER_S);
	assert_true(energy_follow(&e, &w));
	energy_result(&e, &w, &result);
	assert_false(e.phase_known);
	assert_float_equal(result.anchor_ratio, 1, 1e-3);
	/* 1 exactly would mean that no pair of readings was used */
	assert_true(result.anchor_ratio != 1);
}

TEST(every_failing_call_costs_no_more_than_its_figures)
{
	static const char *const calls[] = {
		"nvmlDeviceGetTotalEnergyConsumption",
		"nvmlDeviceGetSamples",
		"nvmlDeviceGetFieldValues",
		"nvmlDeviceGetPowerUsage",
		"nvmlDeviceGetTemperature",
		"nvmlDeviceGetClockInfo",
		"nvmlDeviceGetMemoryInfo_v2",
		"nvmlDeviceGetUtilizationRates",
		"nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetProcessUtilization",
		NULL,
	};
	static const int codes[] = { 1, 2, 3, 4, 6, 7, 9, 10, 13, 15, 16, 17, 19, 21, 24, 999 };

	for (unsigned i = 0; i < COUNT_OF(calls); i++)
		for (unsigned k = 0; k < COUNT_OF(codes); k++) {
			open_world(TWO_GPUS);
			start_meter(OPTIONS(.flags = GW_METER_PROCESSES), CONFIG(0));
			gw_meter_poll(meter);
			begin();
			sim_run_for(meter, 2);
			sim_fault(calls[i], 0, codes[k]);
			sim_run_for(meter, 2);
			end_within(2 * NS_PER_S);
			assert_false(r->joules.best == 0);
			assert_false(r->joules.low < 0);
			assert_true(isnan(r->joules.best) || r->joules.best > 300);
			/* The other GPU is not affected unless the whole driver failed. */
			r = gw_window_energy(window, 1);
			if (codes[k] != 1 && codes[k] != 9)
				assert_true(r->joules.best > 1500 && r->joules.best < 2100);
		}
}

TEST(shares_of_processes_add_up)
{
	const struct attribute *who;
	double sum, share[2] = { 0, 0 };

	open_world(ONE(
		"noise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel = 500\n"
		"[[gpu.process]]\nname = \"big\"\npid = 4100000\nmemory = \"1 GiB\"\nshare = "
		"0.75\n"
		"[[gpu.process]]\nname = \"small\"\npid = 4100001\nmemory = \"1 GiB\"\nshare = "
		"0.25\n"
		"[[gpu.process]]\nname = \"ghost\"\npid = 4100002\ntype = \"unlisted\"\n"
		"sm_percent = 250\n"));
	start_meter(OPTIONS(.flags = GW_METER_PROCESSES), CONFIG(0));
	meter_set_baseline(meter, 0, 80, 120);
	gw_meter_poll(meter);
	measure(12);
	who = window_processes(window, 0);
	sum = who->idle_joules + who->unattributed_joules;
	for (unsigned i = 0; i < who->count; i++) {
		printf("%s %.1f J %s\n", who->row[i].name, who->row[i].joules,
		       attribute_how_name(who->row[i].how));
		sum += who->row[i].joules;
		share[who->row[i].id.pid - 4100000] = who->row[i].joules;
	}
	printf("idle %.1f J, nobody's %.1f J\n", who->idle_joules, who->unattributed_joules);
	assert_int_equal(who->count, 2);
	assert_int_equal(who->row[0].how, ATTRIBUTE_MODELLED);
	assert_true(fabs(sum / r->joules.best - 1) < 0.001);
	assert_true(fabs(who->idle_joules / (80 * 12) - 1) < 0.01);
	/* Each process gets half of the 40 W; the other 380 W are split three to one. */
	assert_true(fabs(share[0] / (12 * (20 + 0.75 * 380)) - 1) < 0.05);
	assert_true(fabs(share[1] / (12 * (20 + 0.25 * 380)) - 1) < 0.1);
	assert_true(has_code(GW_CODE_FOREIGN_PROCESS));
}

/* Opens and closes windows on two GPUs in real time; four threads run this at once. */
static void *windows_of_a_thread(void *arg)
{
	for (unsigned i = 0; i < 20; i++) {
		struct gw_window *w;

		if (gw_window_open(meter, "thread", 0, &w) != 0)
			return arg;
		usleep(3000);
		gw_window_energy(w, i % 2);
		gw_window_close(w, 0);
		gw_window_wait(w, 2 * NS_PER_S);
		if (!(gw_window_energy(w, 1)->joules.best > 0))
			return arg;
		gw_window_free(w);
	}
	return NULL;
}

/* Starts a meter in real time, with one thread per GPU. */
static void start_threads(const char *world)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path };
	struct gw_meter_options mo = { .size = sizeof(mo),
				       .interval_ns = 5 * NS_PER_MS,
				       .flags = GW_METER_PROCESSES,
				       .cache_dir = "" };
	char error[256];

	assert_int_equal(sim_load_text("test", world, error, sizeof(error)), 0);
	assert_int_equal(gw_open(&o, &sim.ctx), 0);
	assert_int_equal(gw_snapshot_new(sim.ctx, &sim.snap), 0);
	assert_int_equal(gw_meter_start(sim.ctx, &mo, &meter), 0);
}

TEST(threads_share_a_meter)
{
	pthread_t t[4];
	void *failed;

	start_threads(TWO_GPUS);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, windows_of_a_thread, meter), 0);
	for (unsigned i = 0; i < 20; i++) {
		gw_snapshot_take(sim.snap, GW_TIERS_COMMON);
		usleep(2000);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], &failed);
		assert_null(failed);
	}
}

/* The result is read while the sampling thread detects the missing counter; the thread
 * sanitizer checks this. */
TEST(a_missing_counter_is_visible_to_concurrent_callers)
{
	start_threads(TWO_GPUS "[[fault]]\ncall = \"nvmlDeviceGetTotalEnergyConsumption\"\n"
			       "code = 3\n");
	assert_int_equal(gw_window_open(meter, "w", 0, &window), 0);
	for (unsigned i = 0; meter_setup(meter, 0).sensor.counter == GW_HAVE; i++) {
		assert_true(i < 50000);
		usleep(200);
	}
	assert_false(meter_setup(meter, 0).counter);
}

/* The samples for the window's beginning are read after its end. */
TEST(a_short_window_is_known_soon_after_its_end)
{
	start(HALF_LOAD);
	for (unsigned ms = 1; ms < 120; ms += 7) {
		uint64_t ended;

		begin();
		sim_run_for(meter, ms * 1e-3);
		ended = clock_mono_ns(&sim.clock);
		end();
		assert_true(clock_mono_ns(&sim.clock) - ended < 200 * NS_PER_MS);
		/* Throttling was not read during this window. So it is unknown, which does not
		 * make the result invalid. */
		assert_true(r->validity < GW_INVALID);
		sim_run_for(meter, 0.013);
	}
}

/* The change is reported for the window in which it happened, not for the windows before and
 * after. */
TEST(clocks_set_inside_a_window_are_reported)
{
	static const bool changed[] = { false, true, false };

	start(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"
		  "[[fault]]\ncall = \"nvmlDeviceGetApplicationsClock\"\nfrom = 9\nvalue = "
		  "1200\n"));
	/* windows begin at 5, 8 and 11 s; the clocks change at 9 s */
	for (unsigned i = 0; i < 3; i++) {

		measure(2.9);
		assert_true(has_code(GW_CODE_CLOCK_CHANGED) == changed[i]);
		assert_true((r->validity == GW_INVALID) == changed[i]);
		sim_run_for(meter, 0.01);
	}
}

/* Returns the seconds from the window's end until its result. A window with `hurry` that is
 * shorter than a sample uses the nearest sample. */
static double waited_s(unsigned ms, bool hurry, double *ret_off)
{
	uint64_t ended;
	double s;

	begin();
	sim_run_for(meter, ms * 1e-3);
	ended = clock_mono_ns(&sim.clock);
	if (hurry)
		window_hurry(window);
	end();
	s = (double)(clock_mono_ns(&sim.clock) - ended) * 1e-9;
	assert_false(has_code(GW_CODE_TRUNCATED));
	assert_true(r->joules.low <= truth && truth <= r->joules.high);
	*ret_off = off_by(r->joules.best, truth);
	/* wait, so that the next window begins at another phase of the samples */
	sim_run_for(meter, 0.033);
	return s;
}

TEST(a_hurried_wait_for_a_very_short_window_is_shorter)
{
	double patient = 0, hurried = 0, off;

	start(ONE("noise = 0\n[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"));
	for (unsigned i = 0; i < 20; i++) {
		patient += waited_s(5, false, &off);
		hurried += waited_s(5, true, &off);
		assert_true(off <= 0.02);
	}
	printf("known after %.1f ms, hurried %.1f ms\n", patient / 20 * 1e3,
	       hurried / 20 * 1e3);
	assert_true(hurried / 20 < patient / 20 - 0.007);
	assert_true(fabs(waited_s(60, true, &off) - waited_s(60, false, &off)) < 0.021);
}

/* Calls that take milliseconds on a real GPU must be made while no caller waits. */
TEST(a_meter_starts_with_the_calls_it_needs)
{
	static const char *const late[] = {
		"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMaxClockInfo",
		"nvmlDeviceGetMarginTemperature",      "nvmlDeviceGetTemperatureThreshold",
		"nvmlDeviceGetEnforcedPowerLimit",     "nvmlDeviceGetEccMode"
	};

	open_world(HALF_LOAD);
	start_meter(OPTIONS(0), CONFIG(.describe = true));
	for (unsigned i = 0; i < COUNT_OF(late); i++)
		assert_true(sim_calls(late[i]) == 0);
	assert_true(meter_setup(meter, 0).shape == SHAPE_RING);
	assert_true(meter_setup(meter, 0).sensor.origin == SENSOR_ASSUMED &&
		    meter_setup(meter, 0).sensor.ring.model == SENSOR_LOWPASS);
	begin();
	gw_meter_poll(meter);
	for (unsigned i = 0; i < COUNT_OF(late); i++)
		assert_true(sim_calls(late[i]) > 0);
	sim_run_for(meter, 1);
	end();
	assert_true(off_by(r->joules.best, truth) <= 0.01);
	assert_true(!isnan(r->throttle_seconds[GW_THROTTLE_POWER]));
}

/* While a long window is open, at most one call per second is allowed for the quantities, one
 * for the ring, and 0.1 for the slow quantities. */
TEST(an_open_window_costs_few_calls)
{
	static const struct {
		const char *call;
		double most;
	} rows[] = {
		{ "nvmlDeviceGetPowerUsage", 1 },
		{ "nvmlDeviceGetFieldValues", 1.2 },
		{ "nvmlDeviceGetClockInfo", 3.1 },
		{ "nvmlDeviceGetSamples", 1 },
		{ "nvmlDeviceGetTotalEnergyConsumption", 0.1 },
		{ "nvmlDeviceGetEnforcedPowerLimit", 0.1 },
		{ "nvmlDeviceGetEncoderUtilization", 0.1 },
		{ "nvmlDeviceGetComputeRunningProcesses_v3", 0 },
		{ "nvmlDeviceGetMaxClockInfo", 0 },
		{ "nvmlDeviceGetMarginTemperature", 0 },
	};
	uint64_t before[COUNT_OF(rows)];

	open_world(HALF_LOAD);
	start_meter(OPTIONS(.interval_ns = NS_PER_S), CONFIG(0));
	begin();
	sim_run_for(meter, 5);
	for (unsigned i = 0; i < COUNT_OF(rows); i++)
		before[i] = sim_calls(rows[i].call);
	sim_run_for(meter, 60);
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		double n = (double)(sim_calls(rows[i].call) - before[i]);

		if (n > 60 * rows[i].most + 1)
			fail_msg("%s: %.0f times in a minute", rows[i].call, n);
	}
}

TEST_MAIN(sim_setup, NULL)
