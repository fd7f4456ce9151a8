/* Tests baselines: the estimate against brute force, measuring on the simulator, files, and net
 * energy. */
#include "random_unit.h"
#include "simtest.h"

#include "measure/baseline.h"
#include "measure/meter.h"
#include "measure/stat.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>

#define HOUR 3600.0
#define DAY  (86400 * NS_PER_S)

static struct gw_meter *meter;
static char folder[256];

static void start(const char *world)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL | GW_METER_PROCESSES,
				      .cache_dir = "" };

	sim_text(world);
	sim_step(5 * NS_PER_S); /* the sample ring is full */
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
}

static int stop(void **state)
{
	gw_meter_stop(meter);
	meter = NULL;
	return sim_teardown(state);
}

#define BASELINE_STOP_TEST(name) TEST_WITH(name, NULL, stop)

static bool goes_on(void *ctx, double seconds, double power_w, double half_width_w)
{
	unsigned *calls = ctx;

	++*calls;
	assert_int_equal(*calls, (unsigned)seconds);
	return true;
}

static bool ends_at_three(void *ctx, double seconds, double power_w, double half_width_w)
{
	return seconds < 3;
}

static int take(enum gw_baseline_kind kind, struct baseline *ret)
{
	struct baseline_plan plan = {
		.kind = kind, .max_s = 30, .min_s = 10, .half_width_w = 1
	};

	return baseline_take(meter, 0, &plan, ret);
}

static bool contended(const struct baseline *b)
{
	return b->codes & UINT64_C(1) << GW_CODE_BASELINE_CONTENDED;
}

static double two_pass(const double *x, unsigned n, double *ret_u)
{
	double sum = 0, squares = 0;

	for (unsigned i = 0; i < n; i++)
		sum += x[i];
	for (unsigned i = 0; i < n; i++)
		squares += (x[i] - sum / n) * (x[i] - sum / n);
	*ret_u = sqrt(squares / (n - 1) / n);
	return sum / n;
}

TEST(the_estimate_is_mean_standard_error_and_student_t)
{
	/* Two-sided 95 % factors of Student's t, from a table. */
	static const double factor[] = {
		[2] = 12.706, [3] = 4.303, [10] = 2.262, [30] = 2.045
	};
	static const unsigned counts[] = { 2, 3, 10, 30 };
	uint64_t seed = (uint64_t)time(NULL);
	struct random r;

	printf("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned trial = 0; trial < 400; trial++) {
		unsigned n = counts[trial % 4];
		double x[30], u, mean;
		struct baseline_estimate e;

		for (unsigned i = 0; i < n; i++)
			x[i] = 80 + 5 * random_unit(&r);
		mean = two_pass(x, n, &u);
		baseline_estimate(x, n, &e);
		assert_true(fabs(e.power_w - mean) < 1e-9);
		assert_true(fabs(e.u_w - u) < 1e-9);
		assert_true(fabs(e.half_width_w / u - factor[n]) < 1e-3);
	}
}

TEST(one_second_has_no_error_yet)
{
	double x = 80;
	struct baseline_estimate e;

	baseline_estimate(&x, 1, &e);
	assert_true(e.power_w == 80 && isnan(e.u_w) && isnan(e.half_width_w));
}

BASELINE_STOP_TEST(an_idle_gpu_is_measured_in_ten_seconds)
{
	struct baseline b;
	double joules;
	uint64_t begin;
	unsigned calls = 0;
	struct baseline_plan plan = { GW_BASELINE_NO_CONTEXT, 30, 10, 1, goes_on, &calls };

	start("[[gpu]]\nprofile = \"h200\"\nnoise = 0\n");
	joules = sim_true_joules(0);
	begin = sim_now_ns();
	assert_int_equal(baseline_take(meter, 0, &plan, &b), 0);
	joules = (sim_true_joules(0) - joules) / ((double)(sim_now_ns() - begin) * 1e-9);
	printf("true %.3f W, taken %.3f W, s.e. %.4f W\n", joules, b.power_w, b.u_w);
	assert_false(contended(&b));
	assert_string_equal(b.evidence, "");
	assert_true(fabs(b.power_w - joules) < 0.2);
	assert_true(b.u_w < 0.1);
	assert_true(b.seconds == 10 && calls == 10);
	assert_true(b.limit_w == 700 && b.persistence >= 0 && b.temperature_c > 10);
	assert_true(*b.uuid && *b.driver && *b.vbios);
	assert_int_equal(b.wall_ns, sim_wall_ns());
}

BASELINE_STOP_TEST(an_unsteady_gpu_is_measured_for_the_maximum_time)
{
	struct baseline b;

	/* The power is at one level for ten seconds and at another level for ten seconds, so
	 * within thirty seconds the interval of the mean does not become narrower than 1 W. */
	start("[[gpu]]\nprofile = \"h200\"\n[[gpu.load]]\nkind = \"steps\"\nunit = \"watts\"\n"
	      "points = [[0, 80], [10, 95], [20, 80]]\nperiod = 20\n");
	assert_int_equal(take(GW_BASELINE_NO_CONTEXT, &b), 0);
	printf("s.e. %.3f W after %.0f s: %s\n", b.u_w, b.seconds, b.evidence);
	assert_false(contended(&b));
	assert_true(b.seconds == 30);
	assert_true(b.u_w > 0.5);
}

BASELINE_STOP_TEST(a_process_on_the_gpu_makes_the_baseline_contended_at_once)
{
	struct baseline b;

	start("[[gpu]]\nprofile = \"h200\"\n[[gpu.process]]\nname = \"squatter\"\npid = "
	      "4100000\n");
	for (unsigned kind = 0; kind < GW_BASELINE_KINDS; kind++) {
		assert_int_equal(take((enum gw_baseline_kind)kind, &b), 0);
		assert_true(contended(&b));
		assert_string_equal(b.evidence, "squatter (pid 4100000) was using the GPU");
		assert_true(b.seconds < 3);
	}
}

BASELINE_STOP_TEST(a_process_that_starts_later_makes_it_contended_too)
{
	struct baseline b;

	start("[[gpu]]\nprofile = \"h200\"\n[[gpu.process]]\nname = \"late\"\npid = 4100000\n"
	      "from = 9.5\nuntil = 11\n");
	assert_int_equal(take(GW_BASELINE_HOT_IDLE, &b), 0);
	assert_true(contended(&b));
	assert_string_equal(b.evidence, "late (pid 4100000) was using the GPU");
	assert_true(b.seconds >= 4 && b.seconds <= 7);
}

BASELINE_STOP_TEST(our_own_context_is_required_with_and_contends_without_context)
{
	struct baseline b;

	start("[[gpu]]\nprofile = \"h200\"\n[[gpu.process]]\npid = \"self\"\nshare = 0\n");
	assert_int_equal(take(GW_BASELINE_CONTEXT_IDLE, &b), 0);
	printf("context-idle %.2f W %s\n", b.power_w, b.evidence);
	assert_false(contended(&b));
	assert_true(fabs(b.power_w - 124) < 3);
	assert_int_equal(take(GW_BASELINE_NO_CONTEXT, &b), 0);
	assert_true(contended(&b));
}

BASELINE_STOP_TEST(the_evidence_names_what_keeps_a_gpu_from_being_idle)
{
	static const struct {
		const char *world;
		enum gw_baseline_kind kind;
		bool contended;
		const char *evidence;
	} rows[] = {
		{ "", GW_BASELINE_CONTEXT_IDLE, true,
		  "the process that should have a context on the GPU has none" },
		{ "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.3\n", GW_BASELINE_NO_CONTEXT,
		  true, "the utilisation of the GPU was" },
		{ "[[fault]]\ncall = \"nvmlDeviceGetCurrentClocksEventReasons\"\nvalue = 64\n",
		  GW_BASELINE_NO_CONTEXT, true,
		  "the clocks of the GPU were throttled (hw_thermal)" },
#define HIDDEN(list) \
	"[[fault]]\ncall = \"nvmlDeviceGet" list "RunningProcesses_v3\"\ncode = 4\n"
		{ HIDDEN("Compute") HIDDEN("Graphics") HIDDEN("MPSCompute"),
		  GW_BASELINE_NO_CONTEXT, false, "the processes on the GPU are not visible" },
	};
	char world[512];
	struct baseline b;

	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		snprintf(world, sizeof(world), "[[gpu]]\nprofile = \"h200\"\n%s",
			 rows[i].world);
		start(world);
		assert_int_equal(take(rows[i].kind, &b), 0);
		assert_int_equal(contended(&b), rows[i].contended);
		assert_in(b.evidence, rows[i].evidence);
		stop(NULL);
	}
}

BASELINE_STOP_TEST(the_caller_may_cancel_a_baseline)
{
	struct baseline b = { .power_w = 7 };
	struct baseline_plan plan = { GW_BASELINE_NO_CONTEXT, 30, 10, 1, ends_at_three, NULL };

	start("[[gpu]]\nprofile = \"h200\"\n");
	assert_int_equal(baseline_take(meter, 0, &plan, &b), -GW_E_STATE);
	assert_true(b.power_w == 7);
	assert_int_equal(baseline_take(meter, 1, &plan, &b), -GW_E_NODEV);
	plan.max_s = 1;
	assert_int_equal(baseline_take(meter, 0, &plan, &b), -GW_E_ARG);
}

BASELINE_STOP_TEST(a_gpu_that_is_lost_meanwhile_has_no_baseline)
{
	struct baseline b;

	start("[[gpu]]\nprofile = \"h200\"\n[[timeline]]\nat = 8.5\ndo = \"lose\"\ngpu = 0\n");
	assert_int_equal(take(GW_BASELINE_NO_CONTEXT, &b), -GW_E_LOST);
}

static int folder_setup(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/gpuward-baseline-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	strcat(folder, "/a/b");
	return 0;
}

static unsigned files_there(char *name, size_t size)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			n++;
			snprintf(name, size, "%s/%s", folder, e->d_name);
		}
	if (d)
		closedir(d);
	return n;
}

static int folder_teardown(void **state)
{
	char name[1024];

	while (files_there(name, sizeof(name)))
		unlink(name);
	for (unsigned i = 0; i < 3; i++) {
		rmdir(folder);
		*strrchr(folder, '/') = '\0';
	}
	return 0;
}

#define ON_FILES(name) TEST_WITH(name, folder_setup, folder_teardown)

static const struct baseline good = {
	.uuid = "GPU-1/\"2\"",
	.driver = "580.1",
	.vbios = "96\t.A",
	.kind = GW_BASELINE_NO_CONTEXT,
	.limit_w = 700,
	.persistence = 1,
	.power_w = 78.25,
	.u_w = 0.125,
	.seconds = 12,
	.temperature_c = 30,
	.wall_ns = 100 * DAY,
	.codes = UINT64_C(1) << GW_CODE_CLOCK_STEP,
};

static void save(const struct baseline *b)
{
	char message[256] = "";

	if (baseline_save(b, folder, message, sizeof(message)) != 0)
		fail_msg("%s", message);
}

/* Loads the baseline for this key, later_s seconds after the saved one was measured. */
static int look(struct baseline *key, double later_s, char why[static 256])
{
	why[0] = '\0';
	return baseline_load(key, folder, HOUR,
			     (uint64_t)((int64_t)good.wall_ns + (int64_t)(later_s * 1e9)), why,
			     256);
}

ON_FILES(a_saved_baseline_is_found_again)
{
	struct baseline key = good;
	char why[256], name[1024];

	save(&good);
	assert_int_equal(files_there(name, sizeof(name)), 1);
	key.power_w = key.u_w = key.seconds = NAN;
	key.wall_ns = key.codes = 0;
	key.temperature_c = 39;
	assert_int_equal(look(&key, 1, why), 0);
	assert_true(key.power_w == 78.25 && key.u_w == 0.125 && key.seconds == 12);
	assert_true(key.temperature_c == 30 && key.wall_ns == good.wall_ns);
	assert_true(key.codes == good.codes);
	assert_string_equal(key.uuid, good.uuid);
	assert_string_equal(key.vbios, good.vbios);
}

ON_FILES(an_unknown_limit_is_saved_as_unknown)
{
	struct baseline b = good, key;
	char why[256];

	b.limit_w = b.temperature_c = NAN;
	b.persistence = -1;
	save(&b);
	key = b;
	assert_int_equal(look(&key, 1, why), 0);
	assert_true(isnan(key.limit_w) && isnan(key.temperature_c) && key.persistence == -1);
	key = good;
	assert_int_equal(look(&key, 1, why), -GW_E_NOENT);
}

ON_FILES(each_state_that_differs_is_refused_with_its_reason)
{
	static const struct {
		struct baseline change;
		double later_s;
		const char *why;
	} cases[] = {
		{ { .limit_w = 500 }, 1, "limit of 700 W, but the limit is 500 W" },
		{ { .persistence = -1 }, 1, "persistence mode" },
		{ { .temperature_c = 41 },
		  1,
		  "taken at 30 degrees Celsius, but the GPU has 41" },
		{ { .temperature_c = 19 }, 1, "taken at 30 degrees Celsius" },
		{ { .driver = "590" }, 1, "another driver (580.1, now 590)" },
		{ { .vbios = "97.00" }, 1, "another VBIOS (" },
		{ { .uuid = "GPU-2" }, 1, "no baseline of this GPU and kind is stored" },
		{ { .kind = GW_BASELINE_HOT_IDLE },
		  1,
		  "no baseline of this GPU and kind is stored" },
		{ { .limit_w = 0 }, 3601, "60 minutes old; the maximum is 60" },
		{ { .limit_w = 0 }, -1, "the wall clock was set back" },
	};
	char why[256];

	save(&good);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const struct baseline *c = &cases[i].change;
		struct baseline key = good;

		key.limit_w = c->limit_w > 0 ? c->limit_w : key.limit_w;
		key.persistence = c->persistence ? c->persistence : key.persistence;
		key.temperature_c = c->temperature_c > 0 ? c->temperature_c : key.temperature_c;
		key.kind = c->kind ? c->kind : key.kind;
		if (*c->driver)
			snprintf(key.driver, sizeof(key.driver), "%s", c->driver);
		if (*c->vbios)
			snprintf(key.vbios, sizeof(key.vbios), "%s", c->vbios);
		if (*c->uuid)
			snprintf(key.uuid, sizeof(key.uuid), "%s", c->uuid);
		assert_int_equal(look(&key, cases[i].later_s, why), -GW_E_NOENT);
		if (!strstr(why, cases[i].why))
			fail_msg("'%s' does not say '%s'", why, cases[i].why);
	}
}

ON_FILES(kinds_and_limits_have_separate_files)
{
	struct baseline b = good, key;
	char why[256], name[1024];

	save(&good);
	b.limit_w = 500;
	b.power_w = 70;
	save(&b);
	b = good;
	b.kind = GW_BASELINE_CONTEXT_IDLE;
	b.power_w = 120;
	save(&b);
	assert_int_equal(files_there(name, sizeof(name)), 3);
	key = good;
	assert_int_equal(look(&key, 1, why), 0);
	assert_true(key.power_w == 78.25);
	key = good;
	key.kind = GW_BASELINE_CONTEXT_IDLE;
	assert_int_equal(look(&key, 1, why), 0);
	assert_true(key.power_w == 120);
}

ON_FILES(a_damaged_file_is_ignored_and_named)
{
	char name[1024], why[256], text[4096];
	struct baseline key;
	size_t n;
	FILE *f;

	save(&good);
	files_there(name, sizeof(name));
	f = fopen(name, "r");
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	/* in the first n rounds the file is cut after i bytes; in the later rounds byte i - n
	 * is changed */
	for (size_t i = 0; i < 2 * n; i++) {
		f = fopen(name, "w");
		fwrite(text, 1, i < n ? i : n, f);
		if (i >= n) {
			fseek(f, (long)(i - n), SEEK_SET);
			fputc(text[i - n] ^ 1, f);
		}
		fclose(f);
		key = good;
		assert_int_equal(look(&key, 1, why), -GW_E_NOENT);
		assert_in(why, "is damaged and was ignored");
	}
}

ON_FILES(what_is_no_regular_file_is_ignored_and_named)
{
	char name[1024], why[512];
	struct baseline key;

	save(&good);
	files_there(name, sizeof(name));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(remove(name), 0);
		assert_int_equal(i ? mkdir(name, 0700) : mkfifo(name, 0600), 0);
		key = good;
		assert_int_equal(look(&key, 1, why), -GW_E_NOENT);
		assert_in(why, "is not a regular file and was ignored; remove it");
		key.limit_w = 500; /* now the file is only one of the other files of this GPU */
		assert_int_equal(look(&key, 1, why), -GW_E_NOENT);
		assert_in(why, "no baseline of this GPU and kind is stored");
	}
	assert_int_equal(rmdir(name), 0);
}

ON_FILES(a_contended_baseline_is_not_saved)
{
	struct baseline b = good;
	char message[256], name[1024];

	b.codes = UINT64_C(1) << GW_CODE_BASELINE_CONTENDED;
	strcpy(b.evidence, "game.exe (pid 7) was using the GPU");
	assert_int_equal(baseline_save(&b, folder, message, sizeof(message)), -GW_E_STATE);
	assert_string_equal(message,
			    "the GPU was not idle: game.exe (pid 7) was using the GPU");
	b = good;
	b.uuid[0] = '\0';
	assert_int_equal(baseline_save(&b, folder, message, sizeof(message)), -GW_E_ARG);
	assert_int_equal(files_there(name, sizeof(name)), 0);
	assert_int_equal(baseline_save(&good, "/proc/none", message, sizeof(message)),
			 -GW_E_NOENT);
	assert_in(message, "/proc/none cannot be created");
}

ON_FILES(clearing_forgets_one_gpu_or_all)
{
	struct baseline b = good, key = good;
	char why[256], name[1024];

	save(&good);
	b.kind = GW_BASELINE_HOT_IDLE;
	save(&b);
	strcpy(b.uuid, "GPU-1"); /* this UUID is a prefix of the other UUID */
	save(&b);
	assert_int_equal(baseline_clear("GPU-1", folder), 1);
	assert_int_equal(look(&key, 1, why), 0);
	save(&b);
	assert_int_equal(baseline_clear(NULL, folder), 3);
	assert_int_equal(files_there(name, sizeof(name)), 0);
}

TEST(the_folder_follows_the_xdg_variables)
{
	char out[128], small[8];

	setenv("XDG_CACHE_HOME", "/x", 1);
	assert_int_equal(baseline_directory(out, sizeof(out)), 0);
	assert_string_equal(out, "/x/gpuward/baseline");
	assert_int_equal(baseline_directory(small, sizeof(small)), -GW_E_SIZE);
	setenv("XDG_CACHE_HOME", "x", 1);
	setenv("HOME", "/h", 1);
	assert_int_equal(baseline_directory(out, sizeof(out)), 0);
	assert_string_equal(out, "/h/.cache/gpuward/baseline");
	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	assert_int_equal(baseline_directory(out, sizeof(out)), -GW_E_NOENT);
}

static const struct sensor uncalibrated = { .calibration.gain = 1,
					    .calibration.gain_u = 0.025,
					    .calibration.offset_u_w = 2.5 };

/* Integrates the line from before_w to after_w in ten thousand steps. */
static double integral(double before_w, double after_w, double s)
{
	double sum = 0;
	unsigned n = 10000;

	for (unsigned i = 0; i < n; i++)
		sum += (before_w + (after_w - before_w) * (i + 0.5) / n) * s / n;
	return sum;
}

TEST(net_is_gross_less_the_line_between_the_baselines)
{
	uint64_t seed = (uint64_t)time(NULL);
	struct random r;

	printf("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned trial = 0; trial < 200; trial++) {
		struct baseline a = { .power_w = 150 * random_unit(&r),
				      .u_w = random_unit(&r) };
		struct baseline b = { .power_w = 150 * random_unit(&r),
				      .u_w = random_unit(&r) };
		struct gw_energy g = { .seconds = 0.1 + 50 * random_unit(&r),
				       .u_absolute = 100 * random_unit(&r) };
		const struct baseline *after = trial % 2 ? &b : NULL;
		double end_w = after ? b.power_w : a.power_w, expect, var;
		struct baseline_net net;

		g.joules.best = 150 * random_unit(&r) * g.seconds;
		g.joules.low = fmax(0, g.joules.best - 1.96 * g.u_absolute);
		g.joules.high = g.joules.best + 1.96 * g.u_absolute;
		baseline_net(&g, &uncalibrated, &a, after, &net);
		expect = g.joules.best - integral(a.power_w, end_w, g.seconds);
		assert_true(fabs(net.joules.best - expect) < 1e-6 * (1 + fabs(expect)));
		assert_int_equal(net.floored, expect < 0);
		assert_true(net.adjusted_joules == (expect < 0 ? 0 : net.joules.best));
		/* The mean of the line is half of the sum of its ends. */
		var = after ? (a.u_w * a.u_w + b.u_w * b.u_w) / 4 : a.u_w * a.u_w;
		var += (end_w - a.power_w) * (end_w - a.power_w) / 4;
		var = var * g.seconds * g.seconds + g.u_absolute * g.u_absolute;
		assert_true(fabs(net.joules.high - net.joules.best - 1.96 * sqrt(var)) < 1e-6);
		assert_true(fabs(net.joules.best - net.joules.low - 1.96 * sqrt(var)) < 1e-6);
	}
}

TEST(net_energy_without_a_baseline_is_unknown)
{
	struct gw_energy g = { .seconds = 1, .joules = { NAN, NAN, NAN }, .u_absolute = NAN };
	struct baseline b = { .power_w = 80, .u_w = 0.1 };
	struct baseline_net net;

	baseline_net(&g, &uncalibrated, &b, NULL, &net);
	assert_true(isnan(net.joules.best) && isnan(net.joules.low) && isnan(net.joules.high));
	assert_true(isnan(net.adjusted_joules) && !net.floored);
}

/* In a run that is shorter than the sensor's period, the bounds of the gross energy are wider
 * than its uncertainty alone. */
TEST(net_energy_has_the_relative_bounds_of_gross_energy)
{
	struct gw_energy g = { .seconds = 0.005,
			       .joules = { 0.32, 2.37, 2.49 },
			       .u_absolute = 0.06 };
	struct baseline b = { .power_w = 62, .u_w = 0 };
	struct baseline_net net;

	baseline_net(&g, &uncalibrated, &b, NULL, &net);
	assert_true(fabs(net.joules.low - (0.32 - 0.31)) < 1e-9);
	assert_true(fabs(net.joules.best - (2.37 - 0.31)) < 1e-9);
	assert_true(fabs(net.joules.high - (2.49 - 0.31)) < 1e-9);
}

/* Tests of the public functions, gw_baseline_*(). */

static struct gw_baseline *own; /* freed by the next call */

static int own_take(double max_s, int (*progress)(void *arg, double s, double w, double half_w))
{
	struct gw_baseline_options o = {
		.size = sizeof(o), .max_s = max_s, .min_s = 3, .progress = progress
	};

	gw_baseline_free(own);
	own = NULL;
	return gw_baseline_take(meter, 0, &o, &own);
}

static int own_stop(void **state)
{
	gw_baseline_free(own);
	own = NULL;
	return stop(state) | folder_teardown(state);
}

#define OWN_TEST(name) TEST_WITH(name, folder_setup, own_stop)

static int stops_at_once(void *arg, double seconds, double power_w, double half_width_w)
{
	return 1;
}

OWN_TEST(a_program_takes_stores_loads_and_applies_a_baseline)
{
	struct gw_baseline *loaded = NULL;
	struct gw_net_energy net = { .size = sizeof(net) }, two = net;
	const struct gw_energy *e;
	struct gw_window *w;

	start("[[gpu]]\nprofile = \"h200\"\nnoise = 0\n[[gpu.load]]\nkind = \"steps\"\nunit = "
	      "\"watts\"\npoints = [[0, 80], [30, 380]]\n");
	assert_int_equal(own_take(10, NULL), 0);
	assert_int_equal(own->codes, 0);
	assert_string_equal(own->evidence, "");
	assert_true(own->simulated && fabs(own->power_w - 80) < 0.5 && own->seconds == 3);
	assert_int_equal(gw_baseline_save(sim.ctx, own, folder), 0);
	assert_int_equal(gw_baseline_load(meter, 0, GW_BASELINE_NO_CONTEXT, 0, folder, &loaded),
			 0);
	assert_true(loaded->power_w == own->power_w && loaded->wall_ns == own->wall_ns);
	assert_string_equal(loaded->uuid, own->uuid);
	assert_string_equal(gw_baseline_kind_name(loaded->kind), "no-context");
	sim_run_for(meter, 30);
	assert_int_equal(gw_window_open(meter, "w", 0, &w), 0);
	sim_run_for(meter, 10);
	assert_int_equal(gw_window_close(w, 0), 0);
	assert_int_equal(gw_window_wait(w, 5 * NS_PER_S), 0);
	e = gw_window_energy(w, 0);
	assert_int_equal(gw_baseline_apply(meter, e, loaded, NULL, &net), 0);
	printf("gross %.1f J, baseline %.1f J, net %.1f J\n", e->joules.best,
	       net.baseline_joules, net.net.best);
	assert_true(fabs(net.baseline_joules - 800) < 5 && fabs(net.net.best - 3000) < 30);
	assert_true(net.net.low < net.net.best && net.adjusted_joules == net.net.best);
	assert_false(net.floored);
	assert_int_equal(gw_baseline_apply(meter, e, loaded, own, &two), 0);
	assert_true(fabs(two.net.best - net.net.best) < 1e-6);
	net.size = 5;
	assert_int_equal(gw_baseline_apply(meter, e, loaded, NULL, &net), -GW_E_ARG);
	gw_baseline_free(loaded);
	gw_window_free(w);
}

OWN_TEST(what_a_program_may_not_do_with_a_baseline_has_a_sentence)
{
	struct gw_baseline_options o = { .size = sizeof(o), .max_s = 1 };
	struct gw_baseline *b = NULL;

	start("[[gpu]]\nprofile = \"h200\"\n");
	assert_int_equal(gw_baseline_take(meter, 0, &o, &b), -GW_E_ARG);
	assert_in(gw_ctx_error(sim.ctx), "max_s below 2 s");
	assert_int_equal(gw_baseline_take(meter, 7, NULL, &b), -GW_E_NODEV);
	assert_in(gw_ctx_error(sim.ctx), "no such GPU");
	assert_int_equal(own_take(10, stops_at_once), -GW_E_STATE);
	assert_in(gw_ctx_error(sim.ctx), "progress function");
	assert_int_equal(
		gw_baseline_load(meter, 0, GW_BASELINE_NO_CONTEXT, 0, "/nonexistent", &b),
		-GW_E_NOENT);
	assert_in(gw_ctx_error(sim.ctx), "no baseline of this GPU and kind is stored");
	assert_int_equal(own_take(3, NULL), 0);
	assert_int_equal(gw_baseline_save(sim.ctx, own, NULL), -GW_E_STATE);
	assert_in(gw_ctx_error(sim.ctx), "simulated");
	assert_null(b);
}

OWN_TEST(a_baseline_needs_a_meter_that_sees_processes)
{
	struct gw_meter_options o = { .size = sizeof(o), .flags = GW_METER_MANUAL };

	sim_text("[[gpu]]\nprofile = \"h200\"\n");
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	assert_int_equal(own_take(3, NULL), -GW_E_STATE);
	assert_in(gw_ctx_error(sim.ctx), "GW_METER_PROCESSES");
}

OWN_TEST(a_disturbed_baseline_is_neither_stored_nor_applied)
{
	struct gw_net_energy net = { .size = sizeof(net) };
	struct gw_energy e = { .device = 0, .seconds = 1 };

	start("[[gpu]]\nprofile = \"h200\"\n[[gpu.process]]\nname = \"squatter\"\npid = "
	      "4100000\n");
	assert_int_equal(own_take(3, NULL), 0);
	assert_true(own->codes >> GW_CODE_BASELINE_CONTENDED & 1);
	assert_int_equal(gw_baseline_save(sim.ctx, own, folder), -GW_E_STATE);
	assert_in(gw_ctx_error(sim.ctx), "squatter (pid 4100000)");
	assert_int_equal(gw_baseline_apply(meter, &e, own, NULL, &net), -GW_E_STATE);
	assert_in(gw_ctx_error(sim.ctx), "squatter (pid 4100000)");
}

TEST_MAIN(sim_setup, NULL)
