/* Tests sensors: assumptions, files, and characterisation on simulated GPUs with known
 * sensors. */
#include "seed.h"
#include "simtest.h"

#include "measure/cuda.h"
#include "measure/sensor.h"
#include "measure/sensor_fit.h"
#include "device/sampler_device.h"

#include <math.h>
#include <sys/stat.h>

#define assert_near(value, truth, ratio)                                             \
	do {                                                                         \
		double v_ = (value), t_ = (truth);                                   \
		if (!(fabs(v_ - t_) <= (ratio)*fabs(t_)))                            \
			fail_msg("%s is %.6g, not within %g %% of %.6g", #value, v_, \
				 100. * (ratio), t_);                                \
	} while (0)

static void card(struct report *r, const char *name, unsigned architecture, int capability,
		 const char *driver)
{
	report_init(r, GW_VENDOR_NVIDIA, GW_FROM_DRIVER);
	report_text(r, GW_T_NAME, name, GW_ABSENT_NO_DATA);
	report_text(r, GW_T_DRIVER, driver, GW_ABSENT_NO_DATA);
	report_set(r, GW_Q_ARCHITECTURE, architecture);
	report_set(r, GW_Q_COMPUTE_CAPABILITY_MAJOR, capability / 10);
	report_set(r, GW_Q_COMPUTE_CAPABILITY_MINOR, capability % 10);
	report_set(r, GW_Q_POWER, 100);
}

TEST(assumptions_follow_generation_and_driver)
{
	static const struct {
		const char *name;
		unsigned architecture;
		int capability;
		const char *driver;
		double draw_ms, draw_window_ms, instant_window_ms, ring_ms;
	} rows[] = {
		{ "NVIDIA H200", 9, 90, "580.1", 100, 1000, 25, 20 },
		{ "NVIDIA GH200 480GB", 9, 90, "580.1", 100, 1000, 20, 20 },
		{ "NVIDIA A100-SXM4-80GB", 7, 80, "580.1", 100, 25, 25, 20 },
		{ "NVIDIA A10", 7, 86, "525.60", 100, 1000, 100, 1000 },
		{ "NVIDIA A10", 7, 86, "530.30", 100, 100, 100, 1000 },
		{ "NVIDIA A10", 7, 86, "535.54", 100, 1000, 100, 1000 },
		{ "NVIDIA GeForce RTX 4090", 8, 89, "580.1", 100, 1000, 100, 1000 },
		{ "Tesla T4", 6, 75, "580.1", 100, 100, 100, 20 },
		{ "Quadro RTX 8000", 6, 75, "580.1", 100, 20, 20, 20 },
		{ "Tesla V100", 5, 70, "580.1", 20, 10, 10, 20 },
		{ "Tesla P100", 4, 60, "580.1", 20, 10, 10, 20 },
		{ "Tesla M40", 3, 52, "470.1", 31, 14, 14, 20 },
		{ "Tesla K80", 2, 37, "470.1", 100, 100, 100, 20 },
		{ "NVIDIA B300", 10, 103, "580.1", 100, 1000, 100, 20 },
	};
	struct sensor s;
	struct report r;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		card(&r, rows[i].name, rows[i].architecture, rows[i].capability,
		     rows[i].driver);
		sensor_assume(&s, &r);
		assert_int_equal(s.origin, SENSOR_ASSUMED);
		assert_near(s.average.period_s, rows[i].draw_ms * 1e-3, 1e-9);
		assert_near(s.average.window_s, rows[i].draw_window_ms * 1e-3, 1e-9);
		assert_near(s.instant.window_s, rows[i].instant_window_ms * 1e-3, 1e-9);
		assert_near(s.ring.period_s, rows[i].ring_ms * 1e-3, 1e-9);
		assert_int_equal(s.module_scope, strstr(rows[i].name, "GH200") != NULL);
		assert_int_equal(s.average.changes, 0);
		assert_true(isnan(s.average.call_p50_s));
		assert_int_equal(s.counter == GW_HAVE, rows[i].architecture >= 5);
		/* NOT_READ: not read yet; every architecture from 9 on has the instant
		 * value. */
		assert_int_equal(s.instant.why,
				 rows[i].architecture >= 9 ? GW_HAVE : GW_ABSENT_NOT_READ);
		assert_int_equal(s.average.why, GW_HAVE); /* GW_Q_POWER serves as the average */
	}
}

TEST(an_h200_is_assumed_as_it_was_measured)
{
	struct sensor s;
	struct report r;

	card(&r, "NVIDIA H200", 9, 90, "580.159.04");
	sensor_assume(&s, &r);
	assert_int_equal(s.ring.model, SENSOR_LOWPASS);
	assert_near(s.ring.window_s, 0.0135, 1e-9);
	assert_near(s.ring.lag_s, 0.017, 1e-9);
	assert_int_equal(s.ring_entries, 119);
	assert_near(s.ring_span_s, 2.36, 1e-9);
	assert_near(s.tick_s, 0.1, 1e-9);
	assert_near(s.counter_safe_s, 1, 0);
	assert_near(s.calibration.gain_u, 0.025, 0);
}

TEST(other_vendors_are_assumed_without_a_ring)
{
	struct sensor s;
	struct report r;

	report_init(&r, GW_VENDOR_AMD, GW_FROM_SYSFS);
	report_set(&r, GW_Q_POWER, 40);
	report_miss(&r, GW_Q_ENERGY, GW_ABSENT_NOT_SUPPORTED);
	sensor_assume(&s, &r);
	assert_int_equal(s.ring.why, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(s.counter, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(s.average.why, GW_HAVE);
	assert_near(s.average.period_s, 0.1, 1e-9);
	assert_int_equal(s.ring_entries, 0);
}

static char folder[] = "/tmp/gpuward-sensor-XXXXXX";

static int make_folder(void **state)
{
	return mkdtemp(folder) ? sim_setup(state) : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static double odd(unsigned *seed)
{
	uint64_t bits = 0;
	double v;

	do {
		for (int i = 0; i < 4; i++)
			bits = bits << 16 ^ (uint64_t)rand_r(seed);
		memcpy(&v, &bits, sizeof(v));
	} while (!isfinite(v) || v == 0);
	return v;
}

static void fill(struct sensor *s, unsigned *seed)
{
	struct sensor_source *sources[] = { &s->ring, &s->instant, &s->average };

	memset(s, 0, sizeof(*s));
	snprintf(s->uuid, sizeof(s->uuid), "GPU-../\"\\%u", rand_r(seed));
	snprintf(s->driver, sizeof(s->driver), "580.%u", rand_r(seed) % 100);
	s->origin = SENSOR_ACTIVE;
	for (int i = 0; i < 3; i++) {
		sources[i]->why = (enum gw_absence)(rand_r(seed) % GW_ABSENCES);
		sources[i]->model = (enum sensor_model)(rand_r(seed) % 2);
		sources[i]->period_s = odd(seed);
		sources[i]->window_s = NAN;
		sources[i]->lag_s = 0.1 + 0.2;
		sources[i]->changes = (unsigned)rand_r(seed);
		sources[i]->call_p50_s = odd(seed);
		sources[i]->call_p99_s = 1e-7 / 3;
	}
	s->ring_entries = 119;
	s->ring_span_s = odd(seed);
	s->ring_gap_p10_s = odd(seed);
	s->ring_gap_p90_s = NAN;
	s->ring_wall = true;
	s->counter = GW_ABSENT_NO_PERMISSION;
	s->tick_s = odd(seed);
	s->counter_lag_s = odd(seed);
	s->counter_safe_s = 10;
	s->counter_unsafe = true;
	s->ticks = 29;
	s->counter_p50_s = odd(seed);
	s->counter_p99_s = odd(seed);
	s->module_scope = s->calibration.done = true;
	s->calibration.gain = odd(seed);
	s->calibration.offset_w = odd(seed);
	s->calibration.gain_u = odd(seed);
	s->calibration.offset_u_w = odd(seed);
	s->calibration.pivot_w = odd(seed);
	s->calibration.reference_u = odd(seed);
	s->wall_ns = UINT64_C(1794722405123456789);
	for (int i = 0; i < SENSOR_RATES; i++)
		s->rate[i] = (struct sensor_rate){ odd(seed), odd(seed), NAN };
}

TEST(saved_values_read_back_exactly)
{
	unsigned seed = (unsigned)seed_of_run();
	struct sensor s, back;
	char message[512] = "";

	for (int i = 0; i < 20; i++) {
		fill(&s, &seed);
		assert_int_equal(sensor_save(&s, folder, message, sizeof(message)), 0);
		memset(&back, 0, sizeof(back));
		memcpy(back.uuid, s.uuid, sizeof(s.uuid));
		memcpy(back.driver, s.driver, sizeof(s.driver));
		if (sensor_load(&back, folder, message, sizeof(message)) != 0)
			fail_msg("%s", message);
		assert_memory_equal(&back, &s, sizeof(s));
	}
}

static void spoil(const char *path, long at, const char *with, long cut)
{
	FILE *f = fopen(path, "r+");

	assert_non_null(f);
	if (with) {
		fseek(f, at, SEEK_SET);
		fputs(with, f);
	}
	fclose(f);
	if (cut)
		assert_int_equal(truncate(path, cut), 0);
}

TEST(a_modified_file_is_ignored_and_reported)
{
	unsigned seed = 1;
	struct sensor s, back;
	char message[512], path[256];

	for (int i = 0; i < 3; i++) {
		fill(&s, &seed);
		assert_int_equal(sensor_save(&s, folder, message, sizeof(message)), 0);
		assert_int_equal(sensor_key(&s, folder, path, sizeof(path)), 0);
		if (i == 0)
			spoil(path, 500, "7", 0);
		else if (i == 1)
			spoil(path, 0, NULL, 900);
		else
			spoil(path, 0, NULL, 3);
		back = s;
		back.calibration.gain = 7;
		assert_int_equal(sensor_load(&back, folder, message, sizeof(message)),
				 -GW_E_PARSE);
		assert_in(message, "is ignored: its hash");
		assert_near(back.calibration.gain, 7, 0);
	}
}

TEST(what_is_no_regular_file_is_ignored_and_reported)
{
	unsigned seed = 3;
	struct sensor s, back;
	char message[512], path[256];

	fill(&s, &seed);
	assert_int_equal(sensor_key(&s, folder, path, sizeof(path)), 0);
	for (int directory = 0; directory < 2; directory++) {
		assert_int_equal(directory ? mkdir(path, 0700) : mkfifo(path, 0600), 0);
		back = s;
		assert_int_equal(sensor_load(&back, folder, message, sizeof(message)),
				 -GW_E_ARG);
		assert_in(message, "is not a regular file and was ignored; remove it");
		assert_int_equal(remove(path), 0);
	}
}

TEST(another_driver_or_vbios_has_a_file_of_its_own)
{
	unsigned seed = 2;
	struct sensor s, other;
	char message[512], one[256], two[256];

	fill(&s, &seed);
	assert_int_equal(sensor_save(&s, folder, message, sizeof(message)), 0);
	other = s;
	snprintf(other.vbios, sizeof(other.vbios), "96.00");
	assert_int_equal(sensor_load(&other, folder, message, sizeof(message)), -GW_E_NOENT);
	sensor_key(&s, folder, one, sizeof(one));
	sensor_key(&other, folder, two, sizeof(two));
	assert_string_not_equal(one, two);
	assert_null(strchr(one + strlen(folder) + 1, '/')); /* a plain file name */
	other.uuid[0] = '\0';
	assert_int_equal(sensor_save(&other, folder, message, sizeof(message)),
			 -GW_E_NOSUPPORT);
}

TEST(a_folder_that_cannot_be_created_is_named)
{
	unsigned seed = 3;
	struct sensor s;
	char message[512] = "";

	fill(&s, &seed);
	assert_int_equal(sensor_save(&s, "/proc/none/here", message, sizeof(message)),
			 -GW_E_NOENT);
	assert_in(message, "/proc/none");
}

static double uniform(unsigned *seed)
{
	return rand_r(seed) / ((double)RAND_MAX + 1);
}

TEST(a_period_is_found_through_skips_and_jitter)
{
	unsigned seed = (unsigned)seed_of_run();
	double t[200], work[200];
	struct fit_period f;

	for (int run = 0; run < 200; run++) {
		double period = 0.01 + 0.2 * uniform(&seed), phase = uniform(&seed);
		double k = 0;
		unsigned n = 60 + (unsigned)rand_r(&seed) % 140;

		for (unsigned i = 0; i < n; i++) {
			t[i] = phase + k * period + 0.05 * period * uniform(&seed);
			k += uniform(&seed) < 0.3 ? 1 + rand_r(&seed) % 7 : 1;
		}
		assert_int_equal(fit_period(t, n, work, &f), 0);
		assert_near(f.period_s, period, 0.002);
		assert_int_equal(f.changes, n - 1);
	}
	assert_int_equal(fit_period(t, 3, work, &f), -GW_E_NOSUPPORT);
}

/* Computes what a sensor would read, summed in small steps without the formulas of the tested
 * code. */
static double brute(const struct fit_bursts *b, enum sensor_model m, double window, double t)
{
	double dt = 5e-5, sum = 0, from = m == SENSOR_BOXCAR ? t - window : 0;

	for (double x = from + dt / 2; x < t; x += dt)
		for (unsigned i = 0; i < b->n; i++)
			if (x >= b->on_s[i] && x < b->off_s[i])
				sum += m == SENSOR_BOXCAR ? dt / window
							  : dt / window * exp((x - t) / window);
	return sum;
}

TEST(a_response_is_found_as_brute_force_made_it)
{
	unsigned seed = (unsigned)seed_of_run();
	double on[24], off[24], work[24];
	struct fit_bursts b = { on, off, 24 };
	struct fit_point p[120];
	struct fit_response f;

	for (int run = 0; run < 4; run++) {
		enum sensor_model m = run % 2 ? SENSOR_LOWPASS : SENSOR_BOXCAR;
		double window = 0.01 + 0.05 * uniform(&seed), delay = 0.03 * uniform(&seed);
		double t = 0.05;

		for (unsigned i = 0; i < b.n; i++) {
			on[i] = t;
			off[i] = t += 0.01 + 0.06 * uniform(&seed);
			t += 0.01 + 0.06 * uniform(&seed);
		}
		for (unsigned i = 0; i < 120; i++) {
			p[i].t_s = delay + t * (i + uniform(&seed)) / 120;
			p[i].w = 100 + 300 * brute(&b, m, window, p[i].t_s - delay) +
				 4 * (uniform(&seed) - 0.5);
		}
		assert_int_equal(fit_response(p, 120, &b, work, &f), 0);
		assert_int_equal(f.model, m);
		assert_near(f.window_s, window, 0.05);
		assert_true(fabs(f.delay_s - delay) < 0.002);
	}
	for (unsigned i = 0; i < 120; i++)
		p[i].w = uniform(&seed);
	assert_int_equal(fit_response(p, 120, &b, work, &f), -GW_E_NOSUPPORT);
}

TEST(a_mean_holds_each_value_until_the_next)
{
	struct fit_point p[] = { { 0, 10 }, { 1, 20 }, { 3, 40 } };
	double sd;

	assert_near(fit_mean(p, 3, 0.5, 4, &sd), (0.5 * 10 + 2 * 20 + 40) / 3.5, 1e-12);
	assert_near(fit_mean(p, 3, 1, 2, &sd), 20, 1e-12);
	assert_near(sd + 1, 1, 1e-6);
	assert_true(isnan(fit_mean(p, 0, 0, 1, &sd)));
}

/* The load on the simulated GPU is a process that comes and goes; the power changes between
 * idle_w and context_w. */
#define PID             4200000
#define WANDERS_UNTIL_S 190
static uint64_t drive_off_ns;

static void drive_sleep(void *ctx, uint64_t mono_ns)
{
	if (drive_off_ns && drive_off_ns <= mono_ns) {
		sim_sleep(ctx, drive_off_ns);
		sim_process(0, PID, 0, 0);
		drive_off_ns = 0;
	}
	sim_sleep(ctx, mono_ns);
}

static int drive_open(void *ctx, const char *pci, char *message, size_t size)
{
	assert_true(strlen(pci) > 0);
	sim_sleep(ctx, (WANDERS_UNTIL_S + 2) * NS_PER_S);
	return 0;
}

static int drive_on(void *ctx, uint64_t until_ns, uint64_t *ret_begin_ns)
{
	*ret_begin_ns = clock_mono_ns(&sim.clock);
	drive_off_ns = until_ns;
	return sim_process(0, PID, 1 << 20, 0);
}

static void drive_close(void *ctx)
{
}

static const struct sensor_drive drive = { drive_open, drive_on, drive_close, NULL };

static struct sensor s; /* what learn() found */
static char message[512];

static int learn(bool active)
{
	struct sensor_plan plan = { .drive = active ? &drive : NULL };
	int err;

	sim.clock.sleep_until = drive_sleep;
	drive_off_ns = 0;
	s = (struct sensor){ .ticks = 77 };
	*message = '\0';
	sim_open();
	err = sensor_characterise(sim.ctx, 0, &plan, &s, message, sizeof(message));
	sim_close();
	return err;
}

/* Makes a GPU with power that changes every 7 ms at first and then follows the load. */
static void world(const char *profile, const char *sensor)
{
	static char text[16384];
	unsigned seed = 5;
	int n = snprintf(
		text, sizeof(text),
		"[time]\nbegin = 130\n[[gpu]]\nprofile = \"%s\"\nnoise = 0.01\nidle_w = 100\n"
		"context_w = 400\nmax_w = 500\nlimit_w = 500\nlimit_max_w = 600\n"
		"[gpu.sensor]\n%s\n"
		"[[gpu.load]]\nkind = \"steps\"\nperiod = 2.1\nuntil = %d\n"
		"unit = \"watts\"\npoints = [",
		profile, sensor, WANDERS_UNTIL_S);

	for (int i = 0; i < 300; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "[%.3f, %.3f], ", i * 0.007,
			      100 + uniform(&seed));
	snprintf(text + n, sizeof(text) - (size_t)n, "]\n");
	sim_text(text);
}

struct truth {
	const char *profile, *sensor;
	double period_ms;                         /* of instant and average */
	enum sensor_model model;                  /* of instant     */
	double instant_ms, instant_lag_ms;        /* 0: no instant value */
	double average_ms, average_lag_ms;        /* 0: not checked */
	double ring_gap_ms, ring_ms, ring_lag_ms; /* 0: no ring */
	double counter_lag_ms;                    /* -1: no counter */
	double lag_within_ms;
};

static void lag_is(const char *what, double late_s, double ms, double within_ms)
{
	if (!(fabs(late_s * 1e3 - ms) <= within_ms))
		fail_msg("%s is late by %.1f ms, not %.1f", what, late_s * 1e3, ms);
}

static void check_truth(const struct truth *t)
{
	world(t->profile, t->sensor);
	if (learn(true) != 0)
		fail_msg("%s: %s", t->profile, message);
	print_message(
		"%s: T %.2f W %.2f lag %.1f model %d | average %.2f %.1f %.1f | ring %.2f "
		"%.2f %.1f | counter lag %.1f\n",
		t->profile, s.instant.period_s * 1e3, s.instant.window_s * 1e3,
		s.instant.lag_s * 1e3, s.instant.model, s.average.period_s * 1e3,
		s.average.window_s * 1e3, s.average.lag_s * 1e3, s.ring.period_s * 1e3,
		s.ring.window_s * 1e3, s.ring.lag_s * 1e3, s.counter_lag_s * 1e3);
	assert_int_equal(s.origin, SENSOR_ACTIVE);
	assert_int_equal(s.instant.why == GW_HAVE, t->instant_ms > 0);
	if (t->instant_ms > 0) {
		assert_near(s.instant.period_s, t->period_ms * 1e-3, 0.02);
		assert_true(s.instant.changes >= SENSOR_CHANGES);
		assert_int_equal(s.instant.model, t->model);
		assert_near(s.instant.window_s, t->instant_ms * 1e-3, 0.15);
		lag_is("instant", s.instant.lag_s, t->instant_lag_ms, t->lag_within_ms);
	}
	if (t->average_ms > 0) {
		assert_near(s.average.period_s, t->period_ms * 1e-3, 0.02);
		assert_true(s.average.changes >= SENSOR_CHANGES);
		assert_near(s.average.window_s, t->average_ms * 1e-3, 0.15);
		lag_is("average", s.average.lag_s, t->average_lag_ms, t->lag_within_ms);
	}
	assert_int_equal(s.ring.why == GW_HAVE, t->ring_gap_ms > 0);
	if (t->ring_gap_ms > 0) {
		assert_near(s.ring.period_s, t->ring_gap_ms * 1e-3, 0.02);
		assert_true(s.ring.changes >= SENSOR_CHANGES);
		assert_true(s.ring_wall);
		assert_near(s.ring.window_s, t->ring_ms * 1e-3, 0.15);
		lag_is("ring", s.ring.lag_s, t->ring_lag_ms, t->lag_within_ms);
	}
	assert_int_equal(s.counter == GW_HAVE, t->counter_lag_ms >= 0);
	if (t->counter_lag_ms >= 0) {
		assert_near(s.tick_s, 0.1, 0.02);
		assert_true(s.ticks >= 25);
		lag_is("counter", s.counter_lag_s, t->counter_lag_ms, t->lag_within_ms);
		assert_false(s.counter_unsafe);
		assert_near(s.counter_safe_s, 1, 0);
		for (int i = 0; i < SENSOR_10_S; i++)
			assert_near(s.rate[i].counter_w, s.rate[i].reference_w, 0.005);
	}
}

#define LEARNS(name, ...)                                    \
	SIM_TEST(name)                                       \
	{                                                    \
		check_truth(&(struct truth){ __VA_ARGS__ }); \
	}

/* Lags of boxcars: the delay of the profile and half the window. */
LEARNS(pascal_is_learned, "p100", "", 20, SENSOR_BOXCAR, 10, 10, 10, 10, 20, 13.5, 17, -1, 2.6)

LEARNS(turing_is_learned, "t4", "", 100, SENSOR_BOXCAR, 100, 55, 100, 55, 20, 13.5, 17, 5, 2.6)

LEARNS(ga100_is_learned, "a100", "", 100, SENSOR_BOXCAR, 25, 17.5, 25, 17.5, 20, 13.5, 17, 5,
       2.6)

LEARNS(ada_with_a_harmless_counter_is_learned, "rtx4090", "read_loss_ms = 0", 100,
       SENSOR_BOXCAR, 100, 60, 1000, 520, 20, 13.5, 17, 5, 2.6)

/* The newest sample of a 20 ms grid is 8 to 28 ms old and has a 10 ms low-pass. */
LEARNS(hopper_is_learned, "h200", "", 100, SENSOR_LOWPASS, 10, 28, 1000, 518, 20, 13.5, 17, 5,
       10)

/* If the sensor is read every 101 ms, a sample of the 20 ms grid has a different age each time.
 * That looks like a wider window, but the mean lag stays the same. */
SIM_TEST(a_sampler_that_drifts_against_its_grid_is_still_as_late)
{
	world("h200", "period_ms = 100.7");
	assert_int_equal(learn(true), 0);
	lag_is("instant", s.instant.lag_s, 28, 5);
	lag_is("average", s.average.lag_s, 518, 5);
	assert_near(s.average.window_s, 1, 0.15);
	assert_near(s.instant.period_s, 0.101, 0.02);
}

SIM_TEST(a_gh200_is_learned_as_a_module)
{
	world("gh200", "");
	assert_int_equal(learn(true), 0);
	assert_true(s.module_scope);
	assert_near(s.instant.period_s, 0.1, 0.02);
	assert_near(s.average.window_s, 1, 0.15);
	assert_near(s.ring.window_s, 0.0135, 0.15);
}

SIM_TEST(a_board_in_parts_is_learned_as_one)
{
	sim_scenario("mig");
	if (learn(false) != 0)
		fail_msg("%s", message);
	assert_near(s.instant.period_s, 0.1, 0.02);
	assert_near(s.ring.period_s, 0.02, 0.02);
	assert_false(s.counter_unsafe);
}

LEARNS(a_sensor_like_an_rc_filter_is_learned, "h200",
       "sample_ms = 1\nsample_age_ms = 4\nsample_filter_ms = 70\n"
       "no_average = true\npower_is_instant = true\n"
       "no_counter = true\nno_ring = true",
       100, SENSOR_LOWPASS, 70, 75, 0, 0, 0, 0, 0, -1, 2.6)

LEARNS(a_ring_of_one_second_is_learned, "t4", "ring_gap_ms = 1000", 100, SENSOR_BOXCAR, 100, 55,
       100, 55, 1000, 13.5, 17, 5, 2.6)

SIM_TEST(a_counter_that_reading_disturbs_is_found)
{
	sim_scenario("hurt-counter");
	assert_int_equal(learn(false), 0);
	assert_true(s.counter_unsafe || s.counter_safe_s >= 10);
	/* 16 ms of each interval are lost: 1.6 % at 1 Hz, more when faster. */
	assert_near(s.rate[SENSOR_1_HZ].counter_w / s.rate[SENSOR_1_HZ].reference_w, 1 / 1.016,
		    0.003);
	assert_int_equal(s.origin, SENSOR_PASSIVE);
}

SIM_TEST(a_counter_may_be_read_as_often_as_it_tolerates)
{
	sim_text("[[gpu]]\nprofile = \"rtx4090\"\n"
		 "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.7\n");
	assert_int_equal(learn(false), 0);
	assert_false(s.counter_unsafe);
	assert_near(s.counter_safe_s, 10, 0);
	assert_near(s.rate[SENSOR_100_HZ].counter_w / s.rate[SENSOR_100_HZ].reference_w,
		    10. / 26, 0.03);
	assert_near(s.rate[SENSOR_10_S].counter_w, s.rate[SENSOR_10_S].reference_w, 0.005);
}

SIM_TEST(a_card_that_repeats_its_values_gets_a_reason)
{
	sim_text("[[gpu]]\nprofile = \"h200\"\nnoise = 0\n");
	assert_int_equal(learn(false), 0);
	assert_true(s.instant.changes < SENSOR_CHANGES);
	assert_non_null(sensor_source_note(&s.instant));
	assert_near(s.instant.period_s, 0.1, 1e-9); /* as assumed */
	assert_null(sensor_source_note(&s.ring));   /* known from the ring's timestamps */
	assert_int_equal(s.ring_entries, 119);
	assert_near(s.ring_span_s, 2.36, 1e-6);
	assert_near(s.ring_gap_p10_s, 0.02, 0.01);
	assert_near(s.tick_s, 0.1, 0.01);
	assert_int_equal(s.counter_p50_s >= 0, 1);
}

SIM_TEST(a_card_without_samples_is_recognised)
{
	sim_text("[[gpu]]\nprofile = \"h200\"\n[[fault]]\ncall = \"*\"\ncode = 15\nfrom = 0\n");
	sim.clock.sleep_until = drive_sleep;
	sim_open();
	assert_int_not_equal(sensor_characterise(sim.ctx, 0,
						 &(struct sensor_plan){ .drive = NULL }, &s,
						 message, sizeof(message)),
			     0);
	memset(message, '?', sizeof(message)); /* as uninitialised memory */
	assert_int_equal(sensor_characterise(sim.ctx, 7, &(struct sensor_plan){ .drive = NULL },
					     &s, message, sizeof(message)),
			 -GW_E_NODEV);
	assert_string_equal(message, "the driver lists no GPU at position 7");
	sim_close();
}

SIM_TEST(a_card_lost_during_characterisation_gives_no_result)
{
	sim_text("[[gpu]]\nprofile = \"h200\"\n[[timeline]]\nat = 20\ndo = \"lose\"\n");
	assert_int_equal(learn(false), -GW_E_LOST);
	assert_true(*message != '\0');
	assert_int_equal(s.ticks, 77);
}

SIM_TEST(no_load_is_started_next_to_another_process)
{
	uint64_t before;

	sim_text(TWO_GPUS);
	before = sim_now_ns();
	assert_int_equal(learn(true), -GW_E_STATE);
	assert_in(message, "4100000");
	assert_int_equal(s.ticks, 77);
	assert_true(sim_now_ns() - before < NS_PER_S); /* reported at once */
}

TEST(a_load_that_cannot_start_gives_the_reason)
{
	struct cuda_load *c = NULL;

	assert_int_not_equal(
		cuda_load_open("ffff:ff:1f.7", clock_real(), &c, message, sizeof(message)), 0);
	assert_null(c);
	assert_true(strstr(message, "CUDA") || strstr(message, "libcuda"));
}

SIM_TEST(a_characterisation_is_found_the_next_time)
{
	struct sensor known;
	char path[512];

	sim_text("[[gpu]]\nprofile = \"h200\"\n");
	sim.clock.sleep_until = drive_sleep;
	sim_open();
	assert_int_equal(sensor_known(sim.ctx, 0, folder, &known, message, sizeof(message)), 0);
	assert_int_equal(known.origin, SENSOR_ASSUMED);
	assert_string_equal(message, "");
	assert_int_equal(known.ring.why, GW_HAVE);
	assert_int_equal(sensor_characterise(sim.ctx, 0, &(struct sensor_plan){ .drive = NULL },
					     &s, message, sizeof(message)),
			 0);
	assert_int_equal(sensor_save(&s, folder, message, sizeof(message)), 0);
	assert_int_equal(sensor_known(sim.ctx, 0, folder, &known, message, sizeof(message)), 0);
	assert_int_equal(known.origin, SENSOR_PASSIVE);
	assert_memory_equal(known.rate, s.rate, sizeof(s.rate));
	assert_near(known.ring.period_s, s.ring.period_s, 0);
	assert_int_equal(known.wall_ns, s.wall_ns);
	assert_int_equal(sensor_key(&s, folder, path, sizeof(path)), 0);
	spoil(path, 500, "#", 0);
	assert_int_equal(sensor_known(sim.ctx, 0, folder, &known, message, sizeof(message)), 0);
	assert_int_equal(known.origin, SENSOR_ASSUMED);
	assert_in(message, "ignored");
	sim_close();
}

TEST_MAIN(make_folder, remove_folder)
