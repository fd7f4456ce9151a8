/* The whole way from the simulated sensor to joules, in stepped time, against true energy. */
#include "simtest.h"

#include "measure/meter.h"

#include <math.h>

#define ONE(load) "[[gpu]]\nprofile = \"h200\"\n" load

static struct gw_meter *meter;

/* tick_s: of the counter, as characterise would have found it; 0: as assumed. */
static void start_with(const char *world, double tick_s)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };
	struct meter_config c = { .options = &o };
	struct sensor sensor;
	char note[256];

	sim_text(world);
	sim_step(5 * NS_PER_S); /* the ring is full */
	sim_open();
	if (tick_s > 0) {
		sim_take(GW_TIERS_COMMON, 0);
		assert_int_equal(sensor_known(sim.ctx, 0, NULL, &sensor, note, sizeof(note)),
				 0);
		sensor.tick_s = tick_s;
		c.sensor = &sensor;
	}
	assert_int_equal(meter_start(sim.ctx, &c, &meter), 0);
	gw_meter_poll(meter);
}

static void start(const char *world)
{
	start_with(world, 0);
}

static int stop(void **state)
{
	gw_meter_stop(meter);
	meter = NULL;
	return sim_teardown(state);
}

#define METER_TEST(name) TEST_FIXTURE(name, NULL, stop)

static struct gw_window *window;
static double true_begin;

static void begin(void)
{
	true_begin = sim_true_joules(0);
	assert_int_equal(gw_window_open(meter, "w", 0, &window), 0);
}

/* Ends the window; the truth of it. */
static const struct gw_energy *end(double *ret_true)
{
	*ret_true = sim_true_joules(0) - true_begin;
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
	return gw_window_energy(window, 0);
}

static void print(const char *what, const struct gw_energy *r, double truth)
{
	printf("%s: true %.2f J, %s %.2f [%.2f %.2f] rel [%.2f %.2f] counter %.2f samples %.2f "
	       "residual %+.4f %s %s coverage %.3f codes %llx\n",
	       what, truth, gw_meter_kind_name(r->meter), r->joules.best, r->joules.low,
	       r->joules.high, r->relative.low, r->relative.high, r->counter_joules,
	       r->samples_joules, r->residual_ratio, gw_rung_name(r->rung),
	       gw_verdict_name(r->verdict), r->coverage_ratio, (unsigned long long)r->codes);
}

/* Readings of the counter at odd moments, as a meter that has run for a while has them. */
static void learn_phase(unsigned windows)
{
	for (unsigned i = 0; i < windows; i++) {
		begin();
		sim_run_for(meter, 1.03 + 0.017 * (i * 37 % 11));
		gw_window_close(window, 0);
		gw_window_wait(window, 5 * NS_PER_S);
		gw_window_free(window);
	}
}

METER_TEST(a_window_says_when_its_result_is_there)
{
	start(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"));
	begin();
	sim_run_for(meter, 2);
	assert_false(window_done(window)); /* open */
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_false(window_done(window)); /* the sample that covers its end is to come */
	sim_run_for(meter, 2);
	assert_true(window_done(window));
	assert_int_equal(gw_window_wait(window, 0), 0);
	assert_true(window_done(window));
}

/* ---- C2: shapes without noise ---- */

#define WATTS(rest) ONE("noise = 0\n[[gpu.load]]\nunit = \"watts\"\n" rest)

METER_TEST(known_shapes_are_within_a_thousandth)
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
		const struct gw_energy *r;
		double truth;

		start(rows[i].world);
		learn_phase(8);
		begin();
		sim_run_for(meter, rows[i].seconds);
		r = end(&truth);
		print(rows[i].name, r, truth);
		assert_true(fabs(r->joules.best / truth - 1) <= 0.001);
		assert_true(fabs(r->samples_joules / truth - 1) <= 0.001);
		assert_int_equal(r->verdict, GW_VERDICT_AGREE);
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
}

/* ---- C3: the counter's ticks ---- */

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

/* 1000 windows: s.d. of what the bare ticks say, and of what we say, in ticks. */
static void ticks(double tick_s, const char *world)
{
	double raw = 0, ours = 0, counter = 0;
	const unsigned n = 1000;
	unsigned counted = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	start_with(world, tick_s);
	learn_phase(20);
	for (unsigned i = 0; i < n; i++) {
		const struct gw_energy *r;
		double truth, e, length = 2 + uniform(), ticks_of = length / tick_s;

		sim_run_for(meter, 1.1 + 0.2 * uniform());
		begin();
		sim_take(GW_TIER_ENERGY, 0);
		e = -sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_ENERGY);
		sim_run_for(meter, length);
		sim_take(GW_TIER_ENERGY, 0);
		e += sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_ENERGY);
		r = end(&truth);
		raw += square(ticks_of * (e / truth - 1));
		ours += square(ticks_of * (r->joules.best / truth - 1));
		if (!isnan(r->counter_joules)) {
			counter += square(ticks_of * (r->counter_joules / truth - 1));
			counted++;
		}
		gw_window_free(window);
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
	gw_meter_stop(meter);
	sim_close();
	meter = NULL;
}

METER_TEST(edges_between_ticks_are_found)
{
	ticks(0.1, ONE("noise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel "
		       "= 400\n"));
	ticks(0.02,
	      ONE("noise = 0\n[gpu.sensor]\ntick_ms = 20\n[[gpu.load]]\nkind = \"constant\"\n"
		  "unit = \"watts\"\nlevel = 400\n"));
}

/* ---- C6: a counter that lies ---- */

METER_TEST(a_bad_counter_gets_a_code_and_the_samples_take_over)
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
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "",
				      .anchor_ns = 2 * NS_PER_S };
	double from[7];

	sim_scenario("counter-faults");
	sim_step(6 * NS_PER_S);
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	gw_meter_poll(meter);
	for (unsigned i = 0; i < 7; i++)
		from[i] = sim_true_joules(i);
	begin();
	sim_run_for(meter, 10);
	for (unsigned i = 0; i < 7; i++)
		from[i] = sim_true_joules(i) - from[i];
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
	for (unsigned i = 0; i < 7; i++) {
		const struct gw_energy *r = gw_window_energy(window, i);

		print(rows[i].name, r, from[i]);
		assert_true(fabs(r->joules.best / from[i] - 1) < 0.005);
		assert_true(r->joules.low >= 0 && r->joules.high < 2 * from[i]);
		assert_int_equal(r->meter, GW_METER_SAMPLES);
		if (rows[i].code != GW_CODES)
			assert_true(r->codes >> rows[i].code & 1);
		else
			assert_int_equal(r->verdict, GW_VERDICT_SAMPLES_ONLY);
	}
}

/* ---- C9, C10: holes and clocks ---- */

METER_TEST(a_late_drain_leaves_a_hole_that_is_reported)
{
	const struct gw_energy *r;
	double truth;

	start(ONE("noise = 0\n[gpu.sensor]\nno_counter = true\n[[gpu.load]]\nkind = "
		  "\"constant\"\n"
		  "unit = \"watts\"\nlevel = 400\n"));
	begin();
	sim_run_for(meter, 5);
	sim_step(4 * NS_PER_S); /* the thread was put aside; the ring holds 2.36 s */
	sim_run_for(meter, 5);
	r = end(&truth);
	print("hole", r, truth);
	assert_true(r->codes >> GW_CODE_LOW_COVERAGE & 1);
	assert_int_equal(r->validity, GW_INVALID);
	assert_true(r->longest_gap_seconds > 1.6 && r->longest_gap_seconds < 2.7);
	assert_true(r->samples_missed > 80 && r->samples_missed < 135);
	assert_true(r->samples_joules < 0.93 * truth); /* not bridged */
	assert_true(r->gap_joules == 0 && r->joules.best == r->samples_joules);
	assert_true(r->joules.low < truth && truth < r->joules.high);
	assert_true(r->ticks_missed >= 38);
}

METER_TEST(setting_the_wall_clock_changes_nothing)
{
	double joules[3];
	static const char *const steps[3] = { "", "step = 3600\n", "step = -3600\n" };

	for (unsigned i = 0; i < 3; i++) {
		char world[1024];
		const struct gw_energy *r;
		double truth;

		snprintf(world, sizeof(world),
			 ONE("noise = 0\n[[gpu.load]]\nkind = \"square\"\nhigh = 0.8\nperiod = "
			     "2\n%s%s"),
			 i ? "[[timeline]]\nat = 9.333\ndo = \"wall-step\"\n" : "", steps[i]);
		start(world);
		begin();
		sim_run_for(meter, 8);
		r = end(&truth);
		print("clock", r, truth);
		joules[i] = r->joules.best;
		assert_true(fabs(r->seconds - 8) < 1e-6);
		assert_true(fabs(r->joules.best / truth - 1) < 0.01);
		assert_true(r->coverage_ratio > 0.999);
		assert_int_equal(r->codes >> GW_CODE_CLOCK_STEP & 1, i > 0);
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
	assert_true(fabs(joules[1] / joules[0] - 1) < 1e-6);
	assert_true(fabs(joules[2] / joules[0] - 1) < 1e-6);
}

METER_TEST(a_ring_that_repeats_itself_is_read_once)
{
	const struct gw_energy *r;
	double truth;
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };

	sim_scenario("ring-repeats");
	sim_step(3 * NS_PER_S);
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	gw_meter_poll(meter);
	begin();
	sim_run_for(meter, 10);
	r = end(&truth);
	print("repeats", r, truth);
	assert_true(fabs(r->samples_joules / truth - 1) < 0.02);
	assert_true(r->samples_collected <= r->samples_expected + 2);
	assert_true(r->coverage_ratio > 0.99);
}

/* ---- windows ---- */

METER_TEST(a_window_below_the_period_is_an_interval)
{
	const struct gw_energy *r;
	double truth;

	start(ONE("noise = 0\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\nhigh = "
		  "500\nlow = 100\n"
		  "period = 1\n"));
	sim_run_for(meter, 3.2);
	for (unsigned i = 0; i < 20; i++) {
		begin();
		sim_step((1 + i) * 950 * NS_PER_US);
		r = end(&truth);
		assert_true(r->codes >> GW_CODE_SUB_PERIOD & 1);
		assert_true(r->joules.best > 0);
		assert_true(r->relative.low < r->relative.high);
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		assert_int_equal(r->validity, GW_SUSPECT);
		gw_window_free(window);
		sim_run_for(meter, 0.113);
	}
}

METER_TEST(windows_nest_and_overlap)
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

METER_TEST(a_lost_gpu_keeps_what_was_measured)
{
	const struct gw_energy *r;
	double truth;

	start(ONE(
		"noise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel = 400\n"
		"[[timeline]]\nat = 10\ndo = \"lose\"\n"));
	begin();
	sim_run_for(meter, 10);
	truth = sim_true_joules(0) - true_begin;
	gw_window_close(window, 0);
	gw_window_wait(window, 3 * NS_PER_S);
	r = gw_window_energy(window, 0);
	print("lost", r, truth);
	assert_true(r->codes >> GW_CODE_GPU_LOST & 1);
	assert_int_equal(r->validity, GW_INVALID);
	assert_true(r->samples_joules > 1500 && r->samples_joules < 2100); /* five seconds */
}

METER_TEST(nothing_measured_is_no_zero)
{
	const struct gw_energy *r;
	double truth;

	start(ONE("[gpu.sensor]\nno_ring = true\nno_counter = true\nno_instant = "
		  "true\nno_average = true\n"
		  "[[fault]]\ncall = \"nvmlDeviceGetPowerUsage\"\ncode = 3\n"));
	begin();
	sim_run_for(meter, 2);
	truth = sim_true_joules(0) - true_begin;
	gw_window_close(window, 0);
	gw_window_wait(window, NS_PER_S);
	r = gw_window_energy(window, 0);
	print("nothing", r, truth);
	assert_true(isnan(r->joules.best) && isnan(r->power_mean));
	assert_int_equal(r->validity, GW_NO_RESULT);
	assert_true(r->codes >> GW_CODE_NOT_SUPPORTED & 1);
}

METER_TEST(a_trend_in_power_is_reported)
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
		const struct gw_energy *r;
		double truth;

		start(rows[i].world);
		begin();
		sim_run_for(meter, 35);
		r = end(&truth);
		assert_int_equal(r->codes >> GW_CODE_NOT_STEADY & 1, rows[i].reported);
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
}

METER_TEST(every_window_of_a_row_knows_its_throttling)
{
	start(ONE("noise = 0\n[[gpu.load]]\nkind = \"constant\"\nlevel = 1\n"));
	for (unsigned i = 0; i < 5; i++) { /* one right after the other, as trials are */
		const struct gw_energy *r;
		double truth;

		begin();
		sim_run_for(meter, i < 3 ? 3 : 12);
		r = end(&truth);
		printf("throttled %.2f of %.2f s, %s\n", r->throttle_seconds[GW_THROTTLE_POWER],
		       r->seconds, gw_throttle_source_name(r->throttle_source));
		assert_true(r->throttle_seconds[GW_THROTTLE_POWER] > 0.95 * r->seconds);
		assert_int_equal(r->throttle_source, GW_THROTTLE_SOURCE_COUNTERS);
		assert_true(r->codes >> GW_CODE_THROTTLE_POWER & 1);
		gw_window_free(window);
		sim_run_for(meter, 0.01);
	}
}

/* An edge between two samples is on the line between them, which the s.d. holds. */
METER_TEST(the_spread_of_power_fits_into_its_range)
{
	start(WATTS("kind = \"square\"\nhigh = 600\nlow = 20\nperiod = 2\nduty = 0.5\n"));
	for (unsigned i = 0; i < 60; i++) {
		const struct gw_energy *r;
		double truth;

		begin();
		sim_run_for(meter, 0.9 + 0.003 * i);
		r = end(&truth);
		assert_true(r->power_sd <= (r->power_max - r->power_min) / 2 + 1e-6);
		gw_window_free(window);
		sim_run_for(meter, 0.1 + 0.007 * i);
	}
}

/* ---- edges reported afterwards ---- */

METER_TEST(an_end_told_late_takes_nothing_from_after_it)
{
	const struct gw_energy *r;
	uint64_t ended;

	start(WATTS("kind = \"steps\"\npoints = [[0, 120], [10, 600]]\n"));
	begin();
	sim_run_for(meter, 4);
	ended = clock_mono_ns(&sim.clock);
	sim_run_for(meter, 5); /* 600 W meanwhile */
	assert_int_equal(gw_window_close(window, ended), 0);
	assert_int_equal(gw_window_wait(window, UINT64_MAX), 0);
	r = gw_window_energy(window, 0);
	print("late end", r, 480);
	assert_true(fabs(r->joules.best - 480) < 10);
	assert_true(r->power_max < 130 && r->power_p95 < 130);
	assert_true(r->samples_collected <= 201);
}

METER_TEST(a_begin_told_late_still_has_its_counter)
{
	const struct gw_energy *r;
	uint64_t began;

	start(WATTS("kind = \"constant\"\nlevel = 300\n"));
	learn_phase(3);
	began = clock_mono_ns(&sim.clock);
	sim_run_for(meter, 8);
	assert_int_equal(gw_window_open(meter, "late", began, &window), 0);
	sim_run_for(meter, 4);
	gw_window_close(window, 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
	r = gw_window_energy(window, 0);
	print("late begin", r, 3600);
	assert_true(r->counter_joules > 0);
	assert_true(fabs(r->joules.best / 3600 - 1) < 0.01);
}

/* Few readings leave a stretch in which the tick may lie: no window may be a tick off unawares. */
METER_TEST(a_tick_is_not_mistaken_for_its_neighbour)
{
	unsigned off = 0, outside = 0, quarrels = 0;
	const unsigned n = 300;

	printf("seed %llu\n", (unsigned long long)seed);
	start(WATTS("kind = \"constant\"\nlevel = 600\n"));
	for (unsigned i = 0; i < n; i++) {
		const struct gw_energy *r;
		double truth;

		begin();
		sim_run_for(meter, 1.5 + 3 * uniform());
		r = end(&truth);
		off += fabs(r->joules.best - truth) > 30;
		outside += !(r->relative.low <= truth && truth <= r->relative.high);
		quarrels += r->verdict == GW_VERDICT_DISAGREE;
		gw_window_free(window);
		sim_run_for(meter, 4 * uniform());
	}
	printf("%u of %u off by half a tick, %u outside, %u quarrels\n", off, n, outside,
	       quarrels);
	assert_true(off <= n / 100 && outside <= n / 20 && quarrels <= n / 100);
}

/* ---- meters that fail ---- */

METER_TEST(a_silent_ring_leaves_the_counter)
{
	const struct gw_energy *r;
	double truth;

	start(WATTS("kind = \"constant\"\nlevel = 400\n"));
	begin();
	sim_run_for(meter, 3);
	sim_fault("nvmlDeviceGetSamples", 0, 3);
	sim_run_for(meter, 17);
	truth = sim_true_joules(0) - true_begin;
	gw_window_close(window, 0);
	gw_window_wait(window, 3 * NS_PER_S);
	r = gw_window_energy(window, 0);
	print("silent ring", r, truth);
	assert_int_equal(r->meter, GW_METER_COUNTER);
	assert_int_equal(r->verdict, GW_VERDICT_COUNTER_ONLY);
	assert_true(isnan(r->residual_ratio));
	assert_true(fabs(r->joules.best / truth - 1) < 0.02);
	assert_true(r->joules.low < truth && truth < r->joules.high);
}

METER_TEST(a_gpu_that_hangs_from_the_start_hangs_nobody)
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
	usleep(300000);
	assert_int_equal(gw_window_close(window, 0), 0);
	gw_window_wait(window, 2 * NS_PER_S);
	assert_int_equal(gw_window_energy(window, 0)->validity, GW_NO_RESULT);
	assert_true(isnan(gw_window_energy(window, 0)->joules.best));
	assert_true(gw_window_energy(window, 1)->joules.best > 0);
	assert_int_equal(gw_meter_stop(meter), 0);
	meter = NULL;
	sim_unhang();
	do /* until it is back: a close before that leaves the driver open */
		gw_snapshot_take(sim.snap, GW_TIER_FAST);
	while (gw_snapshot_device(sim.snap, 0)->state == GW_DEVICE_STALLED);
}

METER_TEST(nonsense_is_refused)
{
	start(ONE(""));
	assert_int_equal(gw_meter_start(NULL, NULL, &meter), -GW_E_ARG);
	assert_int_equal(gw_window_open(NULL, "x", 0, &window), -GW_E_ARG);
	assert_int_equal(gw_window_open(meter, "x", 0, NULL), -GW_E_ARG);
	assert_int_equal(gw_window_open(meter, "x", UINT64_MAX, &window), -GW_E_ARG);
	assert_int_equal(gw_meter_stop(NULL), 0);
}

/* ---- the ladder ---- */

METER_TEST(every_sensor_finds_its_rung)
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
		const struct gw_energy *r;
		double truth;

		snprintf(world, sizeof(world),
			 "[[gpu]]\nprofile = \"%s\"\nnoise = 0\n[gpu.sensor]\n%s[[gpu.load]]\n"
			 "kind = \"square\"\nhigh = 0.8\nlow = 0.1\nperiod = 1.7\n",
			 rows[i].profile, rows[i].sensor);
		start(world);
		begin();
		sim_run_for(meter, 20);
		r = end(&truth);
		print(rows[i].profile, r, truth);
		assert_string_equal(gw_rung_name(r->rung), gw_rung_name(rows[i].rung));
		assert_true(fabs(r->joules.best / truth - 1) < rows[i].within);
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
}

/* ---- C4: a load in step with a sensor that looks a quarter of the time ---- */

METER_TEST(a_load_in_step_with_the_sensor_is_seen_whole_and_reported)
{
	double worst = 0, worst_single = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < 12; i++) {
		char world[1024];
		const struct gw_energy *r;
		double truth;

		snprintf(
			world, sizeof(world),
			"[[gpu]]\nprofile = \"a100\"\nnoise = 0\n[gpu.sensor]\nno_ring = true\n"
			"no_counter = true\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\n"
			"high = 380\nlow = 80\nperiod = 0.1\nduty = 0.5\nfrom = %.4f\n",
			0.1 * uniform());
		start(world);
		sim_run_for(meter, 2);
		begin();
		sim_run_for(meter, 0.9 * 20); /* whole rounds of eight phases */
		r = end(&truth);
		print("in step", r, truth);
		assert_string_equal(gw_rung_name(r->rung), "polled");
		assert_true(r->codes >> GW_CODE_ALIAS_SUSPECTED & 1);
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		worst = fmax(worst, fabs(r->joules.best / truth - 1));
		/* What polling in step would have said. */
		for (unsigned k = 0; k < 8; k++) {
			double w;

			sim_step(100 * NS_PER_MS);
			w = sim_value(sim_take(GW_TIER_FAST, 0), GW_Q_POWER);
			worst_single = fmax(worst_single, fabs(w / (truth / 18) - 1));
		}
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
	printf("eight phases: worst %.2f %%; one phase: worst %.0f %%\n", 100 * worst,
	       100 * worst_single);
	assert_true(worst <= 0.01);
	assert_true(worst_single > 0.3);
}

/* The sensor of an H200 keeps its own time however it is polled: a load in step with it looks steady, is far from
 * the truth, and the interval must know. */
SIM_TEST(a_load_that_looks_steady_to_a_polled_sensor_may_be_far_off)
{
	double worst = 0;

	for (unsigned i = 0; i < 6; i++) {
		char world[1024];
		const struct gw_energy *r;
		double truth;

		snprintf(
			world, sizeof(world),
			"[[gpu]]\nprofile = \"h200\"\nnoise = 0\n[gpu.sensor]\nno_ring = true\n"
			"no_counter = true\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\n"
			"high = 320\nlow = 150\nperiod = 0.1\nduty = 0.5\nfrom = %.4f\n",
			0.1 * (i + 0.5) / 6);
		start(world);
		sim_run_for(meter, 2);
		begin();
		sim_run_for(meter, 0.9 * 20);
		r = end(&truth);
		print("in step with its time", r, truth);
		assert_string_equal(gw_rung_name(r->rung), "polled");
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		assert_true(r->power_sd < 0.02 * r->power_mean);
		assert_true(r->codes >> GW_CODE_ALIAS_SUSPECTED & 1);
		worst = fmax(worst, fabs(r->joules.best / truth - 1));
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
	assert_true(worst > 0.3);
}

/* Polls that fall out of step with the sensor see some of a load twice and some of it never. */
SIM_TEST(a_polled_load_without_a_counter_is_as_uncertain_as_it_varies)
{
	static const double period[] = { 0.15, 0.2, 0.25, 0.3 };

	for (unsigned i = 0; i < 4; i++) {
		char world[512];
		const struct gw_energy *r;
		double truth;

		snprintf(
			world, sizeof(world),
			"[[gpu]]\nprofile = \"rtx4090\"\nnoise = 0\n[gpu.sensor]\nno_ring = "
			"true\n"
			"no_counter = true\n[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\n"
			"high = 250\nlow = 60\nperiod = %.2f\nduty = 0.3\n",
			period[i]);
		start(world);
		sim_run_for(meter, 2);
		begin();
		sim_run_for(meter, 12);
		r = end(&truth);
		print("polled, out of step", r, truth);
		assert_string_equal(gw_rung_name(r->rung), "polled");
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		assert_true(r->budget[GW_BUDGET_COVERAGE] >= 0.1 * r->power_sd * r->seconds);
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
}

/* A sample buffer hides less; without a counter nothing shows it. */
SIM_TEST(a_load_in_step_with_the_ring_is_inside_the_interval)
{
	static const double periods[] = { 0.02, 0.1 };
	double worst = 0;

	for (unsigned i = 0; i < 12; i++) {
		double period = periods[i % 2];
		char world[1024];
		const struct gw_energy *r;
		double truth;

		snprintf(world, sizeof(world),
			 "[[gpu]]\nprofile = \"h200\"\nnoise = 0\n[gpu.sensor]\nno_counter = "
			 "true\n"
			 "[[gpu.load]]\nkind = \"square\"\nunit = \"watts\"\nhigh = 600\nlow = "
			 "100\n"
			 "period = %.3f\nduty = 0.5\nfrom = %.4f\n",
			 period, period * (i / 2 + 0.5) / 6);
		start(world);
		sim_run_for(meter, 3);
		begin();
		sim_run_for(meter, 12);
		r = end(&truth);
		print("in step with the ring", r, truth);
		assert_string_equal(gw_rung_name(r->rung), "ring");
		assert_true(r->relative.low <= truth && truth <= r->relative.high);
		worst = fmax(worst, fabs(r->joules.best / truth - 1));
		gw_meter_stop(meter);
		sim_close();
		meter = NULL;
	}
	assert_true(worst > 0.08);
}

/* ---- C5: a counter that readings hurt ---- */

METER_TEST(a_counter_that_readings_hurt_is_found_and_spared)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };
	struct meter_config c = { .options = &o };
	struct sensor sensor;
	struct sensor_plan plan = { 0 };
	char message[512];
	const struct gw_energy *r;
	double truth;

	sim_text("[[gpu]]\nprofile = \"rtx4090\"\n[[gpu.load]]\nkind = \"constant\"\nlevel = "
		 "0.7\n");
	sim_step(5 * NS_PER_S);
	sim_open();
	sim_take(GW_TIERS_COMMON, 0);
	if (sensor_characterise(sim.ctx, 0, &plan, &sensor, message, sizeof(message)) != 0)
		fail_msg("%s", message);
	assert_true(sensor.counter_unsafe || sensor.counter_safe_s > 1);
	c.sensor = &sensor;
	assert_int_equal(meter_start(sim.ctx, &c, &meter), 0);
	gw_meter_poll(meter);
	begin();
	sim_run_for(meter, 35);
	r = end(&truth);
	print("hurt", r, truth);
	assert_true(fabs(r->joules.best / truth - 1) <= 0.02);
}

/* ---- C7: every call with every code, while it measures ---- */

METER_TEST(every_failing_call_costs_no_more_than_its_figures)
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
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL | GW_METER_PROCESSES,
				      .cache_dir = "" };

	for (unsigned i = 0; i < COUNT_OF(calls); i++)
		for (unsigned k = 0; k < COUNT_OF(codes); k++) {
			const struct gw_energy *r;

			sim_text(TWO_GPUS);
			sim_step(5 * NS_PER_S);
			sim_open();
			assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
			gw_meter_poll(meter);
			begin();
			sim_run_for(meter, 2);
			sim_fault(calls[i], 0, codes[k]);
			sim_run_for(meter, 2);
			assert_int_equal(gw_window_close(window, 0), 0);
			gw_window_wait(window, 2 * NS_PER_S);
			r = gw_window_energy(window, 0);
			assert_false(r->joules.best == 0);
			assert_false(r->joules.low < 0);
			assert_true(isnan(r->joules.best) || r->joules.best > 300);
			/* The other GPU does not notice, unless the driver went as a whole. */
			r = gw_window_energy(window, 1);
			if (codes[k] != 1 && codes[k] != 9)
				assert_true(r->joules.best > 1500 && r->joules.best < 2100);
			gw_meter_stop(meter);
			sim_close();
			meter = NULL;
		}
}

/* ---- C12: whose joules ---- */

METER_TEST(shares_of_processes_close)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL | GW_METER_PROCESSES,
				      .cache_dir = "" };
	const struct gw_energy *r;
	const struct attribute *who;
	double truth, sum, share[2] = { 0, 0 };

	sim_text(ONE(
		"noise = 0\n[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel = 500\n"
		"[[gpu.process]]\nname = \"big\"\npid = 4100000\nmemory = \"1 GiB\"\nshare = "
		"0.75\n"
		"[[gpu.process]]\nname = \"small\"\npid = 4100001\nmemory = \"1 GiB\"\nshare = "
		"0.25\n"
		"[[gpu.process]]\nname = \"ghost\"\npid = 4100002\ntype = \"unlisted\"\n"
		"sm_percent = 250\n"));
	sim_step(5 * NS_PER_S);
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	meter_set_baseline(meter, 0, 80, 120);
	gw_meter_poll(meter);
	begin();
	sim_run_for(meter, 12);
	r = end(&truth);
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
	/* Half of 40 W each, the rest three to one. */
	assert_true(fabs(share[0] / (12 * (20 + 0.75 * 380)) - 1) < 0.05);
	assert_true(fabs(share[1] / (12 * (20 + 0.25 * 380)) - 1) < 0.1);
	assert_true(r->codes >> GW_CODE_FOREIGN_PROCESS & 1);
}

/* ---- threads ---- */

/* Real time, two GPUs, windows opened and closed by four threads at once. */
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

/* Real time, and a thread for each GPU. */
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

METER_TEST(threads_share_a_meter)
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

/* Asked while the sampling thread finds it out: the thread sanitizer looks on. */
METER_TEST(a_counter_that_is_not_there_is_known_to_who_asks_meanwhile)
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

/* The drain of its beginning falls between its end and that of its end. */
METER_TEST(a_short_window_is_known_soon_after_its_end)
{
	start(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"));
	for (unsigned ms = 1; ms < 120; ms += 7) {
		const struct gw_energy *r;
		uint64_t ended;
		double truth;

		begin();
		sim_run_for(meter, ms * 1e-3);
		ended = clock_mono_ns(&sim.clock);
		r = end(&truth);
		assert_true(clock_mono_ns(&sim.clock) - ended < 200 * NS_PER_MS);
		/* Nobody looked at the throttling within it: unknown, and no reason to refuse. */
		assert_true(r->validity < GW_INVALID);
		gw_window_free(window);
		sim_run_for(meter, 0.013);
	}
}

/* Reported for the window in which it happened, not for the ones before and after. */
METER_TEST(clocks_set_inside_a_window_are_reported)
{
	static const bool changed[] = { false, true, false };

	start(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"
		  "[[fault]]\ncall = \"nvmlDeviceGetApplicationsClock\"\nfrom = 9\nvalue = "
		  "1200\n"));
	for (unsigned i = 0; i < 3; i++) { /* from 5, 8 and 11 s on */
		const struct gw_energy *r;
		double truth;

		begin();
		sim_run_for(meter, 2.9);
		r = end(&truth);
		assert_true((r->codes >> GW_CODE_CLOCK_CHANGED & 1) == changed[i]);
		assert_true((r->validity == GW_INVALID) == changed[i]);
		gw_window_free(window);
		sim_run_for(meter, 0.01);
	}
}

/* Time from its end until it is known: a hurried one shorter than a sample does with the nearest. */
static double waited_s(unsigned ms, bool hurry, double *ret_off)
{
	const struct gw_energy *r;
	uint64_t ended;
	double truth, s;

	begin();
	sim_run_for(meter, ms * 1e-3);
	ended = clock_mono_ns(&sim.clock);
	if (hurry)
		window_hurry(window);
	r = end(&truth);
	s = (double)(clock_mono_ns(&sim.clock) - ended) * 1e-9;
	assert_false(r->codes >> GW_CODE_TRUNCATED & 1);
	assert_true(r->joules.low <= truth && truth <= r->joules.high);
	*ret_off = fabs(r->joules.best / truth - 1);
	gw_window_free(window);
	sim_run_for(meter, 0.033); /* ever other phases of the samples */
	return s;
}

METER_TEST(who_waits_for_a_window_shorter_than_a_sample_waits_less)
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

/* What takes milliseconds on a real GPU is asked when nobody waits for it. */
METER_TEST(a_meter_starts_with_the_calls_it_needs)
{
	static const char *const late[] = {
		"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMaxClockInfo",
		"nvmlDeviceGetMarginTemperature",      "nvmlDeviceGetTemperatureThreshold",
		"nvmlDeviceGetEnforcedPowerLimit",     "nvmlDeviceGetEccMode"
	};
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };
	struct meter_config c = { .options = &o, .describe = true };
	const struct gw_energy *r;
	double truth;

	sim_text(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"));
	sim_step(5 * NS_PER_S);
	sim_open();
	assert_int_equal(meter_start(sim.ctx, &c, &meter), 0);
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
	r = end(&truth);
	assert_true(fabs(r->joules.best / truth - 1) <= 0.01);
	assert_true(!isnan(r->throttle_seconds[GW_THROTTLE_POWER]));
	gw_window_free(window);
}

/* In calls a second, of a window that lasts: figures once, the ring once, a tenth of the rest. */
METER_TEST(an_open_window_costs_few_calls)
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
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .interval_ns = NS_PER_S,
				      .cache_dir = "" };
	uint64_t before[COUNT_OF(rows)];

	sim_text(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"));
	sim_step(5 * NS_PER_S);
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
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
	gw_window_free(window);
}

UNIT_MAIN(sim_setup, NULL)
