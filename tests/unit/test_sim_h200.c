/* Compares the simulated H200 with recordings of a real one.  h200.h explains replay and
 * comparison.
 *
 * The load of a recording is made from the counter, which gives the mean power of each 100 ms:
 *   step     this mean; the load has one edge between two very different levels;
 *   squares  on and off times from the file next to the recording, one off level, and one on
 *            level per counter tick, from the increment of that tick;
 *   ring     on and off times from that file, one on level and one off level.
 * Because the load is made from it, the counter agrees almost by construction. The average and
 * the instant value are predictions.
 *
 * Some values were fitted once, to all recordings: the sampler (a low-pass of 10 ms; one sample
 * every 20 ms, at 4 ms on the recorder's clock, available 8 ms later), the counter's grid
 * (21 ms) and its lag (8 ms). Two values were fitted per recording: the off level, and the
 * level of bursts that no tick shows. As a check, phase and off level were fitted to every
 * other tick only. Of the ticks that were not used, 23 of 36 in sq0.02 and 7 of 15 in sq0.15
 * were within 5 %. None of the eight low-passes that were tried was better than 10 ms.
 *
 * Three kinds of values are not compared, and the test prints how many: averages that began
 * before the recording, late counter ticks (late()) and edges of the instant value (settled()).
 * The instant value is within 5 % in 134 of 136 settled ticks of step, in 21 of 36 of sq0.02
 * and in 7 of 15 of sq0.15, because the load is known only as a mean of 100 ms.
 * test_sim_h200_load.c infers a better load. */
#include <math.h>

#include "h200.h"
#include "sim.h"
#include "test.h"

static struct load load;

TEST(the_step_is_followed_by_average_instant_and_counter)
{
	struct bounds bound = { 0.05, 0.07, 0.05, 0.05, 0.98 };
	struct score s;

	if (!load_recording("step"))
		skip();
	step_load(&load);
	replay_load(&load);
	s = compare(rec.row[0].begin_s, NULL, bound);
	expect(&s, bound);
}

static void square(const char *name, double on_w, double off_w, struct bounds bound)
{
	struct score s;

	if (!load_recording(name))
		skip();
	assert_true(burst_load(&load, on_w, off_w));
	replay_load(&load);
	s = compare(fmax(rec.row[0].begin_s, 94.0), NULL, bound);
	expect(&s, bound);
}

TEST(bursts_of_75_ms_are_followed)
{
	square("sq0.15", 810, 130, (struct bounds){ 0.05, 0.20, 0.10, 0.05, 0.46 });
}

TEST(bursts_of_10_ms_beat_with_the_sampler)
{
	square("sq0.02", 780, 200, (struct bounds){ 0.05, 0.12, 0.05, 0.05, 0.58 });
}

/* Shows why the model needs a sampler: with bursts of 10 ms a true mean over one second is
 * almost constant, but the recorded mean varies by a quarter. */
TEST(a_plain_moving_mean_would_not_explain_it)
{
	double worst = 0;

	if (!load_recording("sq0.02"))
		skip();
	burst_load(&load, 780, 200);
	model.sample_ms = 0;
	replay_usual(&load);
	model = MODEL_FITTED;
	for (int i = 1; i < rec.n; i++)
		if (renewed(i) && rec.row[i].begin_s > 95.1)
			worst = fmax(worst, fabs(now_.average_w[i] / rec.row[i].average_w - 1));
	print_message("sq0.02 average by a boxcar of 1 s: worst error %.1f %%\n", 100 * worst);
	assert_true(worst > 0.1);
}

#define RING_BEGIN_S 31.692120
#define RING_ON_W    313.5
#define RING_OFF_W   123.0

static int load_ring(struct level *out)
{
	FILE *f = open_data("buffer-500on-500off", ".csv");
	char line[128];
	double mw;
	int n = 0;

	if (f == NULL)
		return 0;
	while (n < ROWS_MAX && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lf,%lf", &out[n].at_s, &mw) == 2)
			out[n++].watts = mw * 1e-3;
	fclose(f);
	return n;
}

/* The simulated ring has one sample per ms, so that there is one at every recorded
 * timestamp. */
static int drain_ring(struct abi_sample *out, int room, double to_s)
{
	uint64_t last_us = 0;
	abi_device d = NULL;
	int n = 0;

	assert_int_equal(nvml_init(), 0);
	assert_int_equal(nvml_by_index(0, &d), 0);
	for (double t = 0.5; t < to_s; t += 0.5) {
		uint32_t type, count = (uint32_t)(room - n);

		sim_step(UINT64_C(500000000));
		if (nvml_samples(d, ABI_SAMPLE_POWER, last_us, &type, &count, out + n) != 0)
			continue;
		n += (int)count;
		last_us = out[n - 1].timestamp_us;
	}
	nvml_shutdown();
	return n;
}

TEST(the_ring_follows_half_second_bursts)
{
	static struct level ring[ROWS_MAX];
	static struct abi_sample out[16384];
	static char toml[1024];
	struct differences tally = { 0 };
	char error[512] = "";
	int n = load_ring(ring), m;

	rec.name = "500/500";
	if (n == 0)
		skip();
	snprintf(toml, sizeof(toml),
		 "[time]\nmode = \"stepped\"\nwall = 0\n[[gpu]]\nnoise = 0\nsensor = { "
		 "ring_gap_ms = "
		 "1, ring_entries = 1000, ring_age_ms = 0 }\n[[gpu.load]]\nkind = "
		 "\"square\"\nunit = "
		 "\"watts\"\nfrom = 1\nperiod = 1\nhigh = %.1f\nlow = %.1f\n"
		 "[[gpu.load]]\nkind = \"constant\"\nunit = \"watts\"\nuntil = 1\nlevel = "
		 "%.1f\n",
		 RING_ON_W, RING_OFF_W, RING_OFF_W);
	if (sim_load_text("ring", toml, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	m = drain_ring(out, 16384, 10);
	for (int i = 0; i < n; i++) {
		double at_s = ring[i].at_s - RING_BEGIN_S + 1;
		int k = (int)lround(at_s * 1e3) - (int)(out[0].timestamp_us / 1000);

		if (at_s < 1.2 || at_s > 8.9 || k < 0 || k >= m)
			continue;
		judge(&tally, "ring", ring[i].at_s, out[k].value.u32 * 1e-3, ring[i].watts,
		      0.05);
	}
	report(&tally, "ring");
	assert_true(tally.n > 350);
	/* The first burst ended some ms later than it should have, which affects two samples.
	 * One sample in the middle of a burst is low for an unknown reason. */
	assert_true(tally.beyond <= 3);
}

int main(int argc, char **argv)
{
	if (h200_open() != 0 || sim_library_open() != 0)
		return 77;
	return test_run(argc, argv, NULL, NULL);
}
