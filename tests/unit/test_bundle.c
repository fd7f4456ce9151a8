/* Tests that a bundle is written and computed again. */
#include "simtest.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/sha256.h"
#include "measure/bundle.h"
#include "measure/meter.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

static struct gw_meter *meter;
static struct bundle *bundle;
/* windows of the meter so far; the id of the newest one is this number */
static unsigned windows;
static char dir[] = "/tmp/gpuward-bundle-XXXXXX";
static char path[4096], message[5000];

static int made(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gpuward-bundle-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int gone(void **state)
{
	char command[64];

	gw_meter_stop(meter);
	meter = NULL;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command) | sim_teardown(state);
}

#define BUNDLE_TEST(name) TEST_WITH(name, made, gone)

#define WORLD                                                                                 \
	"[[gpu]]\nprofile = \"h200\"\ncount = 2\n"                                            \
	"[[gpu.load]]\nkind = \"square\"\nhigh = 0.8\nlow = 0.2\nperiod = 0.37\n"             \
	"[[gpu.process]]\nname = \"a\\tb\"\nmemory = \"2 GiB\"\npid = 4100000\nshare = 0.7\n" \
	"[[gpu.process]]\nname = \"other\"\nmemory = \"1 GiB\"\npid = 4100001\nshare = 0.3\n"

static void start(void)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL | GW_METER_PROCESSES,
				      .cache_dir = "" };
	struct meter_config c = { .options = &o, .on_event = bundle_event };
	struct bundle_about about = { .label = "a \"label\"\n",
				      .wall_ns = 1700000000 * NS_PER_S };

	sim_text(WORLD);
	sim_step(5 * NS_PER_S);
	sim_open();
	if (bundle_create(dir, &about, &bundle, message, sizeof(message)) != 0)
		fail_msg("%s", message);
	c.arg = bundle;
	windows = 0;
	assert_int_equal(meter_start(sim.ctx, &c, &meter), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct energy_setup set = meter_setup(meter, i);
		struct bundle_gpu g = {
			.uuid = "GPU-x", .name = "NVIDIA H200", .setup = &set, .interval_s = 0.1
		};

		assert_int_equal(bundle_add(bundle, i, &g, message, sizeof(message)), 0);
	}
	gw_meter_poll(meter);
}

static void measure(double seconds, const char *label)
{
	struct gw_window *w;

	windows++;
	assert_int_equal(gw_window_open(meter, label, 0, &w), 0);
	sim_run_for(meter, seconds);
	assert_int_equal(gw_window_close(w, 0), 0);
	assert_int_equal(gw_window_wait(w, 5 * NS_PER_S), 0);
	for (unsigned i = 0; i < 2; i++)
		bundle_window(bundle, i, windows, label, gw_window_energy(w, i));
	gw_window_free(w);
}

static struct bundle_found found[16];
static unsigned founds;

static void visit(void *arg, const struct bundle_found *f)
{
	found[founds++ % 16] = *f;
}

static int recompute(struct bundle_summary *sum)
{
	founds = 0;
	return bundle_recompute(dir, visit, NULL, sum, message, sizeof(message));
}

BUNDLE_TEST(the_same_joules_to_the_bit)
{
	struct bundle_summary sum;

	start();
	for (unsigned i = 0; i < 4; i++)
		measure(0.013 + 1.7 * i * i, i % 2 ? "odd" : "even\tnot");
	if (bundle_close(bundle, message, sizeof(message)) != 0)
		fail_msg("%s", message);
	if (recompute(&sum) != 0)
		fail_msg("%s", message);
	assert_int_equal(sum.devices, 2);
	assert_int_equal(sum.windows, 8);
	assert_int_equal(sum.recorded, 8);
	assert_int_equal(sum.same, 8);
	assert_int_equal(sum.bad_lines, 0);
	assert_int_equal(sum.check, BUNDLE_WHOLE);
	for (unsigned i = 0; i < 8; i++) {
		const struct bundle_found *f = &found[i];

		assert_true(f->energy.joules.best > 0);
		assert_false(f->cut);
	}
	snprintf(path, sizeof(path), "cd %s && sha256sum --quiet -c SHA256SUMS", dir);
	assert_int_equal(system(path), 0);
}

BUNDLE_TEST(a_truncated_bundle_is_read_and_reported)
{
	struct bundle_summary sum;
	struct gw_window *w;

	start();
	measure(3, "first");
	assert_int_equal(gw_window_open(meter, "killed", 0, &w), 0);
	sim_run_for(meter, 4);
	/* The bundle is not closed, as after kill -9. Its last line is incomplete. */
	snprintf(path, sizeof(path), "%s/gpu0.events", dir);
	assert_int_equal(truncate(path, 20000), 0);
	if (recompute(&sum) != 0)
		fail_msg("%s", message);
	assert_int_equal(sum.check, BUNDLE_UNFINISHED);
	assert_true(sum.cut >= 1);
	assert_int_equal(sum.recorded, 0);
	for (unsigned i = 0; i < founds; i++) {
		if (!found[i].cut)
			continue;
		assert_true(found[i].energy.codes >> GW_CODE_TRUNCATED & 1);
		assert_int_equal(found[i].energy.validity, GW_INVALID);
		assert_true(found[i].energy.joules.best > 0);
	}
	gw_meter_stop(meter);
	meter = NULL;
	bundle_close(bundle, message, sizeof(message));
}

BUNDLE_TEST(a_changed_file_is_named)
{
	struct bundle_summary sum;
	int fd;

	start();
	measure(2, "one");
	assert_int_equal(bundle_close(bundle, message, sizeof(message)), 0);
	snprintf(path, sizeof(path), "%s/gpu1.events", dir);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_true(write(fd, "nonsense\n", 9) == 9);
	close(fd);
	assert_int_equal(recompute(&sum), 0);
	assert_int_equal(sum.check, BUNDLE_CHANGED);
	assert_string_equal(sum.changed_file, "gpu1.events");
	assert_int_equal(sum.bad_lines, 1);
	assert_int_equal(sum.same, 2); /* the recorded results are still readable */
}

BUNDLE_TEST(a_folder_that_is_not_a_bundle_is_reported)
{
	struct bundle_summary sum;
	struct bundle_about about = { 0 };

	assert_int_equal(recompute(&sum), -GW_E_NOENT);
	assert_in(message, "manifest.toml");
	snprintf(path, sizeof(path), "%s/manifest.toml", dir);
	assert_int_equal(file_replace(path, "schema = 99\n", 12, message, sizeof(message)), 0);
	assert_int_equal(recompute(&sum), -GW_E_PARSE);
	assert_in(message, "newer");
	assert_int_equal(bundle_create(dir, &about, &bundle, message, sizeof(message)),
			 -GW_E_STATE);
	assert_in(message, "not empty");
	assert_int_equal(
		bundle_create("/dev/null/x", &about, &bundle, message, sizeof(message)),
		-GW_E_IO);
}

BUNDLE_TEST(an_impossible_figure_of_a_setup_is_refused_by_its_name)
{
	static const struct {
		const char *key, *value;
	} rows[] = {
		{ "spacing_s", "0.0" },       { "spacing_s", "1e308" }, { "spacing_s", "nan" },
		{ "window_s", "1e308" },      { "window_s", "-1.0" },   { "window_s", "inf" },
		{ "lag_s", "-1e308" },        { "lag_s", "nan" },       { "look_ratio", "2.0" },
		{ "look_ratio", "\"half\"" }, { "limit_w", "-1.0" },    { "limit_w", "1e308" },
		{ "interval_s", "1e308" },    { "interval_s", "-1" },
	};
	struct bundle_summary sum;
	char text[4096] = "", changed[4200];

	start();
	measure(2, "one");
	assert_int_equal(bundle_close(bundle, message, sizeof(message)), 0);
	snprintf(path, sizeof(path), "%s/gpu0.setup.toml", dir);
	assert_true(file_read(path, text, sizeof(text), message, sizeof(message)) > 0);
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		const char *line = strstr(text, rows[i].key), *end = strchr(line, '\n');

		snprintf(changed, sizeof(changed), "%.*s%s = %s%s", (int)(line - text), text,
			 rows[i].key, rows[i].value, end);
		assert_int_equal(
			file_replace(path, changed, strlen(changed), message, sizeof(message)),
			0);
		assert_int_equal(recompute(&sum), -GW_E_PARSE);
		assert_in(message, "gpu0.setup.toml");
		assert_in(message, rows[i].key);
	}
}

/* Recorded on an H200 (load 40 ms on, 163 ms off). If the energy engine is changed on purpose,
 * `gpuward recompute --json` prints the new values for windows.tsv. */
TEST(a_recording_of_an_h200_gives_its_golden_joules)
{
	const char *source = getenv("GPUWARD_TEST_SOURCE");
	struct bundle_summary sum;

	snprintf(path, sizeof(path), "%s/tests/fixtures/bundle-h200", source ? source : ".");
	founds = 0;
	if (bundle_recompute(path, visit, NULL, &sum, message, sizeof(message)) != 0)
		fail_msg("%s", message);
	assert_int_equal(sum.check, BUNDLE_WHOLE);
	assert_int_equal(sum.windows, 1);
	assert_int_equal(sum.same, 1);
	assert_true(fabs(found[0].energy.samples_joules / found[0].energy.counter_joules - 1) <
		    0.005);
}

TEST(checksums_equal_the_standard_vectors)
{
	struct sha256 s;
	char out[65];

	sha256_init(&s);
	sha256_end(&s, out);
	assert_string_equal(out,
			    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_init(&s);
	sha256_add(&s, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56);
	sha256_end(&s, out);
	assert_string_equal(out,
			    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(events_read_back_to_the_same_bits)
{
	static const char *const bad[] = { "",
					   "P",
					   "P\t",
					   "P\t1",
					   "P\tx\t1",
					   "Z\t1\t1",
					   "P\t1\t1\t1",
					   "P\t1\t1e999",
					   "N\t1\tno-such-code",
					   "X\t1\t-1",
					   "W\t1\t2\t3\t4\t-\t0\t\\zz",
					   "T\t1\t0\t1" };
	struct event e = { .type = EVENT_TICK, .t_ns = 123456789012345 };
	struct event back;
	struct buf b;

	for (unsigned i = 0; i < FIGURES; i++)
		e.u.tick.figure[i] = i % 3 ? 0.1 * i : NAN;
	buf_init(&b, 4096);
	event_write(&b, &e);
	b.p[b.len - 1] = '\0';
	assert_int_equal(event_read(b.p, &back), 0);
	assert_int_equal(back.t_ns, e.t_ns);
	for (unsigned i = 0; i < FIGURES; i++)
		assert_true(back.u.tick.figure[i] == e.u.tick.figure[i] ||
			    (isnan(back.u.tick.figure[i]) && isnan(e.u.tick.figure[i])));
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_int_equal(event_read(bad[i], &back), -GW_E_PARSE);
	e.u.tick.figure[FIGURE_CLOCK_REASONS] = 3.2e20; /* no bit mask */
	buf_clear(&b);
	event_write(&b, &e);
	b.p[b.len - 1] = '\0';
	assert_int_equal(event_read(b.p, &back), -GW_E_PARSE);
	buf_done(&b);
}

TEST_MAIN(sim_setup, NULL)
