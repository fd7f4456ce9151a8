/* Tests the simulated sensors: their period, window and lag, and the faults of counters and
 * rings at scheduled times. */
#include "sim_client.h"

#include <math.h>

#define STEP_AT_5_S                                                   \
	"[[gpu.load]]\nkind = \"steps\"\nunit = \"watts\"\npoints = " \
	"[[0, 100], [5, 200]]\n"
#define FLAT_400_W "[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nlevel = 400\n"

static uint64_t counter(unsigned index)
{
	struct abi_field_value v = { .field = 83 };
	uint64_t mj = 0;

	assert_int_equal(nvml_energy(device(index), &mj), 0);
	assert_int_equal(nvml_fields(device(index), 1, &v), 0);
	assert_int_equal(v.code, 0);
	assert_int_equal(v.value.u64, mj); /* equal to the last bit, also near 2^64 */
	return mj;
}

/* Returns one power reading in W; NAN if it is not supported. Scope and field as in
 * nvmlDeviceGetFieldValues; field 0 means nvmlDeviceGetPowerUsage. */
static double watts(unsigned index, unsigned field)
{
	struct abi_field_value v = { .field = field };
	uint32_t mw = 0;

	if (field == 0)
		return nvml_power(device(index), &mw) == 0 ? mw * 1e-3 : NAN;
	assert_int_equal(nvml_fields(device(index), 1, &v), 0);
	return v.code == 0 ? v.value.u32 * 1e-3 : NAN;
}

TEST(every_counter_fault_of_the_scenario_shows)
{
	uint64_t before[6], after[6];

	start_named("counter-faults");
	sim_step(9 * S);
	for (unsigned i = 0; i < 6; i++)
		before[i] = counter(i);
	sim_step(2 * S); /* past 10 s */
	for (unsigned i = 0; i < 6; i++)
		after[i] = counter(i);
	assert_in_range(after[0], 300000, 400000);                       /* reset */
	assert_in_range(before[1] - after[1], 1100000, 1300000);         /* -2000 J + 800 J */
	assert_in_range(after[2] - before[2], 300000, 500000);           /* frozen at 10 s */
	assert_in_range(after[3] - before[3], 5000750000, 5000850000);   /* +5 MJ */
	assert_true(before[4] < UINT64_C(1) << 32 && after[4] < 500000); /* wrapped */
	assert_in_range((uint32_t)(after[4] - before[4]), 750000, 850000);
	assert_true(before[5] > UINT64_MAX - 500000 && after[5] < 500000);
	assert_in_range(after[5] - before[5], 750000, 850000);
	sim_step(8 * S);
	assert_int_equal(counter(2), after[2]);
	sim_step(2 * S);
	assert_in_range(counter(2), 20 * 400000,
			/* no longer frozen; the true energy was counted meanwhile */
			21 * 400000);
}

TEST(an_absent_counter_is_not_supported_in_each_form)
{
	struct abi_field_value v[2] = { { .field = 83 }, { .field = 191 } };
	uint64_t mj = 7;

	start_named("counter-faults");
	assert_int_equal(nvml_energy(device(6), &mj), ABI_NOT_SUPPORTED);
	assert_int_equal(mj, 7);
	assert_int_equal(nvml_fields(device(6), 2, v), 0);
	assert_int_equal(v[0].code, ABI_NOT_SUPPORTED);
	assert_int_equal(v[1].code, ABI_NOT_SUPPORTED);
}

TEST(a_reset_leaves_nothing_of_offset_or_start)
{
	start("[[gpu]]\nnoise = 0\nsensor = { offset_w = 10, counter_start_mj = 123456789 "
	      "}\n" FLAT_400_W "[[timeline]]\nat = 2\ndo = \"counter-reset\"\n");
	sim_step(1 * S);
	assert_in_range(counter(0), 123456789 + 380000, 123456789 + 410000);
	sim_step(1 * S);
	assert_int_equal(counter(0), 0);
	sim_step(1 * S + 5 * MS);
	assert_in_range(counter(0), 405000, 410000);
}

TEST(a_step_below_the_beginning_stays_at_zero)
{
	start("[[gpu]]\nnoise = 0\n" FLAT_400_W
	      "[[timeline]]\nat = 2\ndo = \"counter-step\"\njoules = -5000\n");
	sim_step(3 * S);
	assert_int_equal(counter(0), 0);
	sim_step(20 * S);
	assert_in_range(counter(0), 4150000, 4201000);
}

TEST(reads_a_second_apart_do_no_harm_where_that_is_safe)
{
	uint64_t before, slow, fast;

	start("[[gpu]]\nnoise = 0\nsensor = { read_loss_ms = 50, read_safe_ms = 1000 "
	      "}\n" FLAT_400_W);
	sim_step(2 * S);
	before = counter(0);
	for (int i = 0; i < 10; i++) {
		sim_step(1 * S);
		slow = counter(0);
	}
	assert_in_range(slow - before, 3990000, 4010000);
	for (int i = 0; i < 100; i++) {
		sim_step(100 * MS);
		fast = counter(0);
	}
	assert_in_range(fast - slow, 2600000, 2750000); /* two thirds of 4 kJ */
}

TEST(the_tick_has_its_length_and_phase)
{
	static const struct {
		unsigned tick, phase;
	} row[] = { { 20, 0 }, { 20, 7 }, { 100, 0 }, { 100, 33 } };

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		char text[512];
		uint64_t last;
		unsigned moves = 0;

		snprintf(
			text, sizeof(text),
			"[[gpu]]\nnoise = 0\nsensor = { tick_ms = %u, tick_phase_ms = %u }\n%s",
			row[i].tick, row[i].phase, FLAT_400_W);
		start(text);
		sim_step(1 * S);
		last = counter(0);
		for (int k = 0; k < 1000; k++) {
			uint64_t now;

			sim_step(1 * MS);
			now = counter(0);
			if (now != last)
				assert_int_equal(sim_now_ns() / MS % row[i].tick, row[i].phase);
			moves += now != last;
			last = now;
		}
		assert_int_equal(moves, 1000 / row[i].tick);
		stop(NULL);
	}
}

/* Values of docs/SIMULATOR.md. window 0: the low-pass of 300 ms. */
static const struct make {
	const char *profile;
	unsigned field; /* 0: PowerUsage */
	double period_ms, window_ms, lag_ms;
} makes[] = {
	{ "p100", 0, 20, 10, 5 },          { "p100", 186, 20, 10, 5 },
	{ "v100", 0, 20, 10, 5 },          { "t4", 0, 100, 100, 5 },
	{ "t4", 185, 100, 100, 5 },        { "a100", 0, 100, 25, 5 },
	{ "a100", 186, 100, 25, 5 },       { "rtx4090", 0, 100, 1000, 20 },
	{ "rtx4090", 185, 100, 1000, 20 }, { "rtx4090", 186, 100, 100, 10 },
	{ "a10", 185, 100, 1000, 20 },     { "a10", 186, 100, 100, 10 },
	{ "k40", 0, 100, 0, 0 },           { "spark", 0, 100, 100, 5 },
};

static double truth(const struct make *m, double since_step_ms)
{
	double t = since_step_ms - m->lag_ms;

	if (t <= 0)
		return 100;
	if (m->window_ms <= 0)
		return 200 - 100 * exp(-t / 300);
	return 100 + 100 * fmin(t / m->window_ms, 1);
}

static void read_after_step(const struct make *m, const char *text, unsigned after_ms)
{
	double got, want = truth(m, after_ms);

	start(text);
	sim_step(5 * S + after_ms * MS);
	got = watts(0, m->field);
	if (!(fabs(got - want) < 0.002))
		fail_msg("%s field %u after %u ms: %g W instead of %g", m->profile, m->field,
			 after_ms, got, want);
	/* The value is not renewed before its period has passed, and is renewed at once
	 * then. */
	sim_step((uint64_t)(m->period_ms * 1e6) - 1 * MS);
	assert_true(watts(0, m->field) == got);
	sim_step(1 * MS);
	want = truth(m, after_ms + m->period_ms);
	assert_true(fabs(watts(0, m->field) - want) < 0.002);
	stop(NULL);
}

TEST(each_sensor_type_responds_to_a_step_like_its_model)
{
	static const unsigned after_ms[] = { 0, 7, 12, 20, 30, 60, 110, 333, 700, 1000, 1500 };

	for (size_t i = 0; i < COUNT_OF(makes); i++) {
		char text[512];

		snprintf(text, sizeof(text), "[[gpu]]\nprofile = \"%s\"\nnoise = 0\n%s",
			 makes[i].profile, STEP_AT_5_S);
		for (size_t k = 0; k < COUNT_OF(after_ms); k++)
			read_after_step(&makes[i], text, after_ms[k]);
	}
}

TEST(what_a_generation_lacks_is_not_supported)
{
	struct abi_sample out[256];
	uint32_t type, n = 256;

	start("[[gpu]]\nprofile = \"a100\"\n[[gpu]]\nprofile = \"k40\"\n[[gpu]]\n"
	      "profile = \"spark\"\n[[gpu]]\nprofile = \"p100\"\n");
	sim_step(5 * S);
	assert_true(isnan(watts(0, 185)) && !isnan(watts(0, 186)));
	assert_true(isnan(watts(1, 185)) && isnan(watts(1, 186)) && !isnan(watts(1, 0)));
	assert_int_equal(nvml_samples(device(1), 0, 0, &type, &n, out), ABI_NOT_SUPPORTED);
	assert_int_equal(nvml_samples(device(2), 0, 0, &type, &n, out), ABI_NOT_SUPPORTED);
	assert_int_equal(nvml_energy(device(3), &(uint64_t){ 0 }), ABI_NOT_SUPPORTED);
	assert_int_equal(nvml_samples(device(3), 0, 0, &type, &n, out), 0);
}

TEST(a_module_is_in_instant_and_counter_and_not_in_the_mean)
{
	start("[[gpu]]\nprofile = \"gh200\"\nnoise = 0\nsensor = { module_w = 90 "
	      "}\n" FLAT_400_W);
	sim_step(10 * S);
	assert_true(fabs(watts(0, 185) - 400) < 0.01);
	assert_true(fabs(watts(0, 186) - 490) < 0.01);
	assert_in_range(counter(0), 4890000 - 10000, 4900000);
	assert_true(fabs(sim_true_watts(0) - 400) < 1e-9);
}

TEST(a_capped_gpu_without_noise_draws_constant_power)
{
	start("[[gpu]]\nnoise = 0\n[[gpu.load]]\nkind = \"constant\"\nlevel = 1\n");
	sim_step(2 * S);
	for (int i = 0; i < 20; i++) {
		sim_step(100 * MS);
		assert_true(sim_true_watts(0) == 0.99 * 700);
	}
}

static uint32_t drain(uint64_t since_us, struct abi_sample out[static 1024])
{
	uint32_t type, n = 1024;
	abi_return code = nvml_samples(device(0), 0, since_us, &type, &n, out);

	if (code == ABI_NOT_FOUND)
		return 0;
	assert_int_equal(code, 0);
	return n;
}

TEST(a_slow_ring_keeps_its_past_under_a_fast_load)
{
	struct abi_sample before[1024], after[1024];
	uint32_t n, m;

	start("[[gpu]]\nprofile = \"a10\"\nnoise = 0\n[[gpu.load]]\nkind = \"square\"\nhigh = "
	      "1\n"
	      "period = 0.02\nuntil = 30\n");
	sim_step(110 * S);
	n = drain(0, before);
	assert_int_equal(n, 100);
	for (uint32_t i = 1; i < n; i++)
		assert_int_equal(before[i].timestamp_us - before[i - 1].timestamp_us, 1000000);
	sim_step(50 * S);
	m = drain(0, after);
	assert_int_equal(m, 100);
	assert_memory_equal(before + 50, after, 50 * sizeof(after[0]));
}

TEST(a_ring_can_give_the_same_again)
{
	struct abi_sample first[1024], again[1024];
	uint32_t n;

	start_named("ring-repeats");
	sim_step(4 * S);
	n = drain(0, first);
	assert_int_equal(n, 2 * 119);
	assert_memory_equal(&first[0], &first[1], sizeof(first[0]));
	assert_int_equal(drain(first[n - 1].timestamp_us, again), n);
	assert_memory_equal(first, again, n * sizeof(first[0]));
}

TEST(timestamps_of_a_ring_step_with_the_wall_clock)
{
	struct abi_sample out[1024];
	uint32_t n, steps = 0;

	start("[[gpu]]\n[[timeline]]\nat = 5\ndo = \"wall-step\"\nstep = 3600\n"
	      "[[timeline]]\nat = 10\ndo = \"wall-step\"\nstep = -3600\n");
	sim_step(6 * S);
	n = drain(0, out);
	for (uint32_t i = 1; i < n; i++)
		steps += out[i].timestamp_us - out[i - 1].timestamp_us == 3600020000;
	assert_int_equal(steps, 1);
	assert_true(sim_wall_ns() / 1000 - out[n - 1].timestamp_us < 40000);
	sim_step(5 * S);
	n = drain(0, out);
	for (uint32_t i = 1; i < n; i++)
		steps += out[i - 1].timestamp_us - out[i].timestamp_us == 3599980000;
	assert_int_equal(steps, 2);
	/* After the clock stepped back, a request for samples newer than the last timestamp
	 * gets nothing. */
	assert_int_equal(drain(UINT64_C(1003610) * 1000000, out), 0);
}

TEST(a_sensor_with_settings_of_two_kinds_is_refused)
{
	assert_int_equal(sim_load_text("t", "[[gpu]]\nsensor = { low_pass_ms = 300 }\n", error,
				       sizeof(error)),
			 -1);
	assert_string_equal(error, "t:2:10: 'low_pass_ms' and 'sample_ms' exclude each other");
}

TEST_MAIN(sim_library_setup, NULL)
