/* The simulated H200 against recordings of a real one.
 *
 * Each recording is replayed in stepped time: the load is put on the simulator, power is read
 * when the real driver renewed it (the rows where its values changed), the counter whenever the
 * recording read it, and what comes back is compared tick by tick.
 *
 * Where the load comes from.  Nobody knows what the GPU drew at each moment, but the counter's
 * increments tell the mean of each 100 ms:
 *   step     that mean is the load; an increment between two very different levels is taken as
 *            one edge between them, placed so that its energy is right.
 *   squares  on and off as written down beside the recording; one off level for all, the on
 *            level of each tick is what its increment leaves for it.
 * So the counter agrees nearly by construction, and average and instant are predictions.
 *   ring     on and off as written down, one level each: all is a prediction.
 *
 * What was fitted, once for all recordings: the sampler (low-pass 10 ms, one sample each 20 ms
 * at 4 ms of the recorder's clock, out 8 ms later), the counter's grid (21 ms of that clock)
 * and its lag behind the host's idea of a burst (8 ms, launch included).  Each recording: the off
 * level and the level of bursts that no tick tells about.  All of it was
 * chosen by looking at these recordings, out of some thousand settings.  As a check, phase and
 * off level were fitted to every other tick for each of eight low-passes: on the ticks between,
 * 10 ms gave 23 of 36 within 5 % in sq0.02 and 7 of 15 in sq0.15.
 *
 * What is left out, and how often is printed: averages whose second began before the recording
 * (11 a recording); counter ticks that the driver was late with (late(): 10 of 48 in sq0.15, 4
 * of 138 in step, none in sq0.02); of the instant value, edges: see settled().
 *
 * What is not matched within 5 %: the instant value.  It is within 5 % in 134 of 136 settled
 * ticks of step (worst 7 %), 21 of 36 of sq0.02 (worst 11 %) and 7 of 15 of sq0.15 (worst
 * 20 %).  The load that is fed knows the mean of 100 ms only.  A shape common to all bursts
 * did not help: of 5 and of 11 levels, fitted to half of the bursts of sq0.15, it was no better
 * on the other half (20 and 19 of 48 within 5 %) than a flat one (23).  That no load could do
 * better is not shown.  The phase of the sampler rests on sq0.02 (5 ms off, and 4 of 36 are left
 * within 5 %); sq0.15 hardly tells one phase from another. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim.h"

#define ROWS_MAX 4096
#define TEXT_MAX (1u << 20)

/* One row: when its reads began, when the counter had been read, what they gave. */
struct row {
	double begin_s, end_s;
	double average_w, instant_w, counter_j;
};

struct recording {
	const char *name;
	struct row row[ROWS_MAX];
	int n;
	double zero_s; /* recorder's clock at world time 0 */
};

static struct recording rec;
static char toml[TEXT_MAX];

static FILE *open_data(const char *name, const char *suffix)
{
	const char *folder = getenv("GPUWARD_TEST_DATA");
	char path[4096];

	if (folder == NULL)
		return NULL;
	snprintf(path, sizeof(path), "%s/h200/%s%s", folder, name, suffix);
	return fopen(path, "re");
}

/* The realtime stamp was taken after the row, the monotonic one before it, the field's own in
 * between; the smallest distance between the last two is that of the clocks. */
static bool load_recording(const char *name)
{
	FILE *f = open_data(name, ".csv");
	double offset = INFINITY, real_s[ROWS_MAX];
	char line[256];

	rec.name = name;
	rec.n = 0;
	if (f == NULL) {
		print_message("no recording '%s' below GPUWARD_TEST_DATA: left out\n", name);
		return false;
	}
	while (rec.n < ROWS_MAX && fgets(line, sizeof(line), f) != NULL) {
		struct row *r = &rec.row[rec.n];
		double field_us, mw[2], mj;

		if (sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf", &r->begin_s, &mw[0], &mw[1], &mj,
			   &field_us, &real_s[rec.n]) != 6)
			continue;
		r->average_w = mw[0] * 1e-3;
		r->instant_w = mw[1] * 1e-3;
		r->counter_j = mj * 1e-3;
		offset = fmin(offset, field_us * 1e-6 - r->begin_s);
		rec.n++;
	}
	fclose(f);
	for (int i = 0; i < rec.n; i++)
		rec.row[i].end_s = real_s[i] - offset;
	rec.zero_s = floor(rec.row[0].begin_s) - 3;
	return true;
}

/* ---- what the recording says ---- */

#define GRID_S        0.021 /* phase of the counter's grid on the recorder's clock */
#define SAMPLE_S      0.004 /* of the sampler's, filter delay included */
#define COUNTER_LAG_S 0.008
#define SAMPLE_MS     20.0

static double tick_before(double t_s)
{
	return floor((t_s - GRID_S) / 0.1) * 0.1 + GRID_S;
}

static bool renewed(int i)
{
	return i > 0 && (rec.row[i].average_w != rec.row[i - 1].average_w ||
			 rec.row[i].instant_w != rec.row[i - 1].instant_w);
}

static bool ticked(int i)
{
	return i > 0 && rec.row[i].counter_j != rec.row[i - 1].counter_j;
}

/* A tick that was seen long after its time on the grid: the driver was late, by an unknown part
 * of that, and gave the energy of that part to this tick and took it from the next. */
static bool late(int i)
{
	double t = rec.row[i].begin_s;

	return t - tick_before(rec.row[i].end_s) > 0.007;
}

/* ---- loads ---- */

/* 0 makes the readings plain boxcars. */
static double sample_ms = SAMPLE_MS;

/* How a value came out: the age of its sample when the driver looked, and whether that was at
 * the read that first gave it or at the one before. */
struct timing {
	double age_ms;
	bool early;
};

static size_t begin_toml(struct timing how)
{
	double phase = fmod(rec.zero_s, 0.1);

	return (size_t)snprintf(
		toml, sizeof(toml),
		"[time]\nmode = \"stepped\"\n[[gpu]]\nprofile = \"h200\"\n"
		"noise = 0\nsensor = { period_ms = 1, sample_ms = %.1f, sample_age_ms = %.3f, "
		"sample_phase_ms = %.3f, tick_phase_ms = %.3f, tick_lag_ms = %.3f }\n",
		sample_ms, how.age_ms, 1e3 * fmod(0.2 + SAMPLE_S - phase, 0.02),
		1e3 * fmod(0.2 + GRID_S - phase, 0.1), 1e3 * COUNTER_LAG_S);
}

struct levels {
	double at_s, watts;
};

/* Mean power of each tick, from the counter. */
static int tick_levels(struct levels *out)
{
	double last_s = 0, last_j = 0;
	int n = 0;

	for (int i = 1; i < rec.n; i++) {
		double tick_s = tick_before(rec.row[i].end_s);

		if (!ticked(i))
			continue;
		if (last_s > 0 && tick_s - last_s > 0.05)
			out[n++] = (struct levels){ last_s, (rec.row[i].counter_j - last_j) /
								    (tick_s - last_s) };
		last_s = tick_s;
		last_j = rec.row[i].counter_j;
	}
	return n;
}

static size_t add_point(size_t at, double t_s, double watts)
{
	return at + (size_t)snprintf(toml + at, sizeof(toml) - at, "[%.6f, %.4f],",
				     t_s - COUNTER_LAG_S - rec.zero_s, watts);
}

static void step_load(struct timing how)
{
	static struct levels level[ROWS_MAX];
	int n = tick_levels(level);
	size_t at = begin_toml(how);

	at += (size_t)snprintf(toml + at, sizeof(toml) - at,
			       "[[gpu.load]]\nkind = \"trace\"\npoints = [[0, %.4f],",
			       level[0].watts);
	for (int i = 0; i < n; i++) {
		double l = i > 0 ? level[i - 1].watts : level[i].watts;
		double r = i + 1 < n ? level[i + 1].watts : level[i].watts;
		double share =
			(r - level[i].watts) / (r - l); /* of the time on the left level */

		if (fabs(l - r) > 0.25 * fmax(l, r) && share > 0 && share < 1) {
			at = add_point(at, level[i].at_s, l);
			at = add_point(at, level[i].at_s + 0.1 * share, r);
		} else {
			at = add_point(at, level[i].at_s, level[i].watts);
		}
	}
	snprintf(toml + at, sizeof(toml) - at, "]\n");
}

struct burst {
	double on_s, off_s;
};

static int read_bursts(struct burst *out)
{
	FILE *f = open_data(rec.name, "-load.txt");
	char line[128];
	int n = 0;

	if (f == NULL)
		return 0;
	while (n < ROWS_MAX && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "ON %lf %lf", &out[n].on_s, &out[n].off_s) == 2)
			n++;
	fclose(f);
	return n;
}

/* On time of the bursts in an interval. */
static double on_time(const struct burst *b, int n, double from_s, double to_s)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += fmax(0, fmin(b[i].off_s, to_s) - fmax(b[i].on_s, from_s));
	return sum;
}

/* On level of each tick: what the counter leaves for it when the rest is at the off level; one
 * that is far from the mean came from a late tick and is not believed. */
static int on_levels(struct levels *level, const struct burst *b, int n_bursts, double on_w,
		     double off_w)
{
	int n = tick_levels(level);

	for (int i = 0; i < n; i++) {
		double at_s = level[i].at_s - COUNTER_LAG_S;
		double on_s = on_time(b, n_bursts, at_s, at_s + 0.1);
		double w = (level[i].watts * 0.1 - off_w * (0.1 - on_s)) / on_s;

		level[i] = (struct levels){ at_s,
					    on_s > 0 ? fmin(fmax(w, 0.88 * on_w), 1.12 * on_w)
						     : on_w };
	}
	return n;
}

/* One burst: its on level changes at each tick that it crosses. */
static size_t add_burst(size_t at, const struct burst *b, const struct levels *level, int n,
			double on_w, double off_w)
{
	double w = on_w;

	for (int i = 0; i < n && level[i].at_s <= b->on_s; i++)
		w = level[i].at_s + 0.15 > b->on_s ? level[i].watts : on_w;
	at = add_point(at, b->on_s + COUNTER_LAG_S, w);
	for (int i = 0; i < n; i++)
		if (level[i].at_s > b->on_s && level[i].at_s < b->off_s)
			at = add_point(at, level[i].at_s + COUNTER_LAG_S, level[i].watts);
	return add_point(at, b->off_s + COUNTER_LAG_S, off_w);
}

static bool burst_load(double on_w, double off_w, struct timing how)
{
	static struct burst burst[ROWS_MAX];
	static struct levels level[ROWS_MAX];
	int n_bursts = read_bursts(burst);
	int n = on_levels(level, burst, n_bursts, on_w, off_w);
	size_t at = begin_toml(how);

	at += (size_t)snprintf(toml + at, sizeof(toml) - at,
			       "[[gpu.load]]\nkind = \"trace\"\npoints = [[0, %.3f],", off_w);
	for (int i = 0; i < n_bursts; i++)
		at = add_burst(at, &burst[i], level, n, on_w, off_w);
	snprintf(toml + at, sizeof(toml) - at, "]\n");
	return n_bursts > 0;
}

/* ---- replay ---- */

struct replay {
	double average_w[ROWS_MAX], instant_w[ROWS_MAX], counter_j[ROWS_MAX];
};

static void go_to(double t_s)
{
	uint64_t ns = (uint64_t)((t_s - rec.zero_s) * 1e9), now = sim_now_ns();

	if (ns > now)
		sim_step(ns - now);
}

/* Reads where the recording did; `early`: power one row before its new value was seen. */
static void replay(struct replay *out, bool early)
{
	char error[512] = "";
	abi_device d = NULL;

	if (sim_load_text(rec.name, toml, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	assert_int_equal(nvml_init(), 0);
	assert_int_equal(nvml_by_index(0, &d), 0);
	for (int i = 0; i < rec.n; i++) {
		struct abi_field_value v[2] = { { .field = 185 }, { .field = 186 } };
		uint64_t mj = 0;
		int k = early ? i + 1 : i;

		if (k < rec.n && renewed(k)) {
			go_to(rec.row[i].begin_s);
			assert_int_equal(nvml_fields(d, 2, v), 0);
			out->average_w[k] = v[0].value.u32 * 1e-3;
			out->instant_w[k] = v[1].value.u32 * 1e-3;
		}
		go_to(rec.row[i].end_s);
		assert_int_equal(nvml_energy(d, &mj), 0);
		out->counter_j[i] = (double)mj * 1e-3;
	}
	nvml_shutdown();
}

/* ---- comparison ---- */

struct tally {
	int n, edges, within, beyond;
	double worst, sum;
};

static void judge(struct tally *t, const char *what, double t_s, double simulated,
		  double recorded, double bound)
{
	double error = simulated / recorded - 1;

	t->n++;
	t->sum += error;
	t->within += fabs(error) <= 0.05;
	if (fabs(error) > fabs(t->worst))
		t->worst = error;
	if (fabs(error) > bound) {
		t->beyond++;
		print_message("  %s %s at %.3f s: simulated %.1f, recorded %.1f (%+.1f %%)\n",
			      rec.name, what, t_s, simulated, recorded, 100 * error);
	}
}

static void report(const struct tally *t, const char *what)
{
	print_message(
		"%s %s: %d ticks compared, %d within 5 %%, worst %+.1f %%, mean %+.2f %%; %d "
		"left out as edges\n",
		rec.name, what, t->n, t->within, 100 * t->worst, 100 * t->sum / fmax(t->n, 1),
		t->edges);
}

/* The driver renewed its values some time between the last read that gave the old ones and the
 * first that gave the new ones, 3 to 33 ms apart, and had looked at the sampler up to 10 ms
 * before.  These are the ends of that. */
static const struct timing USUAL = { 8, false };
static const struct timing WAYS[] = { { 10, true }, { 1, false } };
#define N_WAYS (sizeof(WAYS) / sizeof(WAYS[0]))

static struct replay now_, way_[N_WAYS];

struct range {
	double low, high;
};

/* What the instant value may be, by the times that the recording leaves open. */
static struct range open_range(int i)
{
	struct range r = { now_.instant_w[i], now_.instant_w[i] };

	for (size_t w = 0; w < N_WAYS; w++) {
		r.low = fmin(r.low, way_[w].instant_w[i]);
		r.high = fmax(r.high, way_[w].instant_w[i]);
	}
	return r;
}

/* Not an edge: they say the same within 5 %. */
static bool settled(int i)
{
	struct range r = open_range(i);
	double a = now_.instant_w[i];

	return r.high - a <= 0.05 * a && a - r.low <= 0.05 * a;
}

/* At an edge the recorded value must lie in the range. */
static bool between(int i, double slack)
{
	struct range r = open_range(i);
	double v = rec.row[i].instant_w;

	return v >= r.low * (1 - slack) && v <= r.high * (1 + slack);
}

struct bounds {
	double average, instant, edge, counter;
	double share; /* of the settled instants that are within 5 %, at least */
};

static void compare(double from_s, struct bounds bound)
{
	struct tally average = { 0 }, instant = { 0 }, counter = { 0 }, any = { 0 };
	int between_ = 0, close = 0, last = -1;

	for (int i = 1; i < rec.n; i++) {
		double t = rec.row[i].begin_s;

		if (ticked(i) && last > 0 && t > from_s + 0.2) {
			if (late(i) || late(last))
				counter.edges++;
			else
				judge(&counter, "counter", t,
				      now_.counter_j[i] - now_.counter_j[last],
				      rec.row[i].counter_j - rec.row[last].counter_j,
				      bound.counter);
		}
		if (ticked(i))
			last = i;
		if (!renewed(i) || t < from_s)
			continue;
		if (t > from_s + 1.1)
			judge(&average, "average", t, now_.average_w[i], rec.row[i].average_w,
			      bound.average);
		else
			average.edges++;
		judge(&any, "instant", t, now_.instant_w[i], rec.row[i].instant_w, INFINITY);
		if (settled(i)) {
			judge(&instant, "instant", t, now_.instant_w[i], rec.row[i].instant_w,
			      bound.instant);
		} else {
			instant.edges++;
			between_ += between(i, bound.edge);
			close += between(i, 0.05);
		}
	}
	report(&average, "average");
	report(&counter, "counter");
	report(&any, "instant, edges too");
	report(&instant, "instant");
	print_message("%s instant: %d of %d edges are within 5 %% of what timing allows, %d "
		      "within %.0f %%\n",
		      rec.name, close, instant.edges, between_, 100 * bound.edge);
	assert_int_equal(average.beyond, 0);
	assert_int_equal(counter.beyond, 0);
	assert_int_equal(instant.beyond, 0);
	assert_true(between_ == instant.edges);
	assert_true(instant.within >= bound.share * instant.n);
}

static void the_step_is_followed_by_average_instant_and_counter(void **state)
{
	(void)state;
	if (!load_recording("step"))
		skip();
	for (size_t w = 0; w < N_WAYS; w++) {
		step_load(WAYS[w]);
		replay(&way_[w], WAYS[w].early);
	}
	step_load(USUAL);
	replay(&now_, false);
	compare(rec.row[0].begin_s, (struct bounds){ 0.05, 0.07, 0.05, 0.05, 0.98 });
}

static void replay_square(double on_w, double off_w)
{
	for (size_t w = 0; w < N_WAYS; w++) {
		assert_true(burst_load(on_w, off_w, WAYS[w]));
		replay(&way_[w], WAYS[w].early);
	}
	burst_load(on_w, off_w, USUAL);
	replay(&now_, false);
}

static void square(const char *name, double on_w, double off_w, struct bounds bound)
{
	if (!load_recording(name))
		skip();
	replay_square(on_w, off_w);
	compare(fmax(rec.row[0].begin_s, 94.0), bound);
}

static void bursts_of_75_ms_are_followed(void **state)
{
	(void)state;
	square("sq0.15", 810, 130, (struct bounds){ 0.05, 0.20, 0.10, 0.05, 0.46 });
}

static void bursts_of_10_ms_beat_with_the_sampler(void **state)
{
	(void)state;
	square("sq0.02", 780, 200, (struct bounds){ 0.05, 0.12, 0.05, 0.05, 0.58 });
}

/* The reason for the sampler: over bursts of 10 ms a true mean of one second hardly moves, and
 * the recorded one swings by a quarter. */
static void a_plain_moving_mean_would_not_explain_it(void **state)
{
	double worst = 0;

	(void)state;
	if (!load_recording("sq0.02"))
		skip();
	sample_ms = 0;
	burst_load(780, 200, USUAL);
	sample_ms = SAMPLE_MS;
	replay(&now_, false);
	for (int i = 1; i < rec.n; i++)
		if (renewed(i) && rec.row[i].begin_s > 95.1)
			worst = fmax(worst, fabs(now_.average_w[i] / rec.row[i].average_w - 1));
	print_message("sq0.02 average by a boxcar of 1 s: worst error %.1f %%\n", 100 * worst);
	assert_true(worst > 0.1);
}

/* ---- the ring ---- */

#define RING_BEGIN_S 31.692120
#define RING_ON_W    313.5
#define RING_OFF_W   123.0

static int load_ring(struct levels *out)
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

/* The simulated ring at one sample a ms, so that there is one at every recorded stamp. */
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

static void the_ring_follows_half_second_bursts(void **state)
{
	static struct levels ring[ROWS_MAX];
	static struct abi_sample out[16384];
	struct tally tally = { 0 };
	char error[512] = "";
	int n = load_ring(ring), m;

	(void)state;
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
	/* The first burst ended some ms later than it should have (two samples), and one sample
	 * in the middle of a burst is low for no known reason. */
	assert_true(tally.beyond <= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_step_is_followed_by_average_instant_and_counter),
		cmocka_unit_test(bursts_of_75_ms_are_followed),
		cmocka_unit_test(bursts_of_10_ms_beat_with_the_sampler),
		cmocka_unit_test(a_plain_moving_mean_would_not_explain_it),
		cmocka_unit_test(the_ring_follows_half_second_bursts),
	};

	if (sim_library_open() != 0)
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
