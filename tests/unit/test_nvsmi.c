/* Tests the nvidia-smi backend. */
#include "nvsmi_fake.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

static unsigned runs(void)
{
	FILE *f = fopen(log_path, "r");
	unsigned n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static void open_ok(unsigned count)
{
	assert_int_equal(b.ops->open(&b), 0);
	assert_string_equal(b.message, "");
	assert_int_equal(b.cause, GW_CAUSE_NONE);
	assert_true(b.open);
	assert_int_equal(b.count, count);
}

static void assert_value(const struct device *d, unsigned q, double want)
{
	if (d->r.why[q] != GW_HAVE)
		fail_msg("%s is %s", gw_quantity_info(q)->key, gw_absence_key(d->r.why[q]));
	if (fabs(d->r.v[q] - want) > 1e-9 * fabs(want))
		fail_msg("%s is %g instead of %g", gw_quantity_info(q)->key, d->r.v[q], want);
}

static void assert_why(const struct device *d, unsigned q, enum gw_absence why)
{
	if (d->r.why[q] != why)
		fail_msg("%s is %s", gw_quantity_info(q)->key, gw_absence_key(d->r.why[q]));
}

NVSMI_TEST(finds_the_gpus_and_what_never_changes)
{
	const struct report *r;

	open_ok(2);
	r = &b.slot[0]->r;
	assert_string_equal(r->text[GW_T_NAME], "NVIDIA H200");
	assert_string_equal(r->text[GW_T_UUID], "GPU-00000000-1111-2222-3333-444444444444");
	assert_string_equal(r->text[GW_T_PCI], "0000:00:00.0");
	assert_string_equal(r->text[GW_T_SERIAL], "1653124020");
	assert_int_equal(r->text_why[GW_T_PART_NUMBER], GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(r->provenance, GW_FROM_TEXT);
	assert_int_equal(r->state, GW_DEVICE_OK);
	assert_string_equal(b.driver_version, "580.159.04");
	assert_value(b.slot[0], GW_Q_POWER_LIMIT_MAX, 700);
	assert_value(b.slot[0], GW_Q_COMPUTE_CAPABILITY_MAJOR, 9);
	assert_value(b.slot[0], GW_Q_COMPUTE_CAPABILITY_MINOR, 0);
	assert_value(b.slot[0], GW_Q_MIG_MODE, 0);
	assert_why(b.slot[0], GW_Q_ARCHITECTURE, GW_ABSENT_NOT_SUPPORTED);
	assert_why(b.slot[0], GW_Q_POWER, GW_ABSENT_NOT_READ);
	assert_string_equal(b.slot[1]->r.text[GW_T_NAME], "Quadro, the \"second\"");
	assert_int_equal(b.slot[1]->r.index, 1);
	assert_int_equal(runs(), 1);
}

NVSMI_TEST(reads_figures_in_base_units)
{
	struct device *d;

	open_ok(2);
	d = b.slot[0];
	b.ops->read(d, GW_TIERS_ALL);
	assert_value(d, GW_Q_POWER, 75.34);
	assert_value(d, GW_Q_POWER_INSTANT, 76.61);
	assert_value(d, GW_Q_MEMORY_TOTAL, 143771.0 * 1048576);
	assert_value(d, GW_Q_MEMORY_USED, 0);
	assert_value(d, GW_Q_UTILIZATION_GPU, 0.37);
	assert_value(d, GW_Q_TEMPERATURE_GPU, 28);
	assert_value(d, GW_Q_TEMPERATURE_MARGIN, -3);
	assert_value(d, GW_Q_CLOCK_SM, 1980e6);
	assert_value(d, GW_Q_PERFORMANCE_STATE, 0);
	assert_value(d, GW_Q_CLOCK_REASONS, 5);
	assert_value(d, GW_Q_POWER_LIMIT, 700);
	assert_value(d, GW_Q_ECC_MODE, 1);
	assert_value(d, GW_Q_DISPLAY_ACTIVE, 0);
	assert_value(d, GW_Q_COMPUTE_MODE, 0);
	assert_value(b.slot[0], GW_Q_PCIE_WIDTH, 16);
	assert_int_equal(d->r.begin_ns, 1000 * NS_PER_S);
	for (unsigned i = 0; i < TIER_COUNT; i++)
		assert_int_equal(d->r.tier_ns[i], 1000 * NS_PER_S);
}

NVSMI_TEST(missing_figures_have_a_reason)
{
	struct device *d;

	open_ok(2);
	d = b.slot[1];
	b.ops->read(d, GW_TIERS_ALL);
	assert_why(d, GW_Q_POWER, GW_ABSENT_NOT_SUPPORTED);
	assert_why(d, GW_Q_UTILIZATION_GPU, GW_ABSENT_NO_PERMISSION);
	assert_why(d, GW_Q_UTILIZATION_MEMORY, GW_ABSENT_INVALID); /* 101 % */
	assert_why(d, GW_Q_TEMPERATURE_GPU, GW_ABSENT_ERROR);
	assert_why(d, GW_Q_CLOCK_VIDEO, GW_ABSENT_INVALID);
	assert_why(d, GW_Q_ENERGY, GW_ABSENT_NOT_SUPPORTED); /* no column has it */
	assert_value(d, GW_Q_FAN_SPEED, 1.04);               /* fans may exceed 100 % */
	assert_value(d, GW_Q_COMPUTE_MODE, 3);
	assert_int_equal(d->r.state, GW_DEVICE_OK);
}

NVSMI_TEST(queries_only_the_requested_tiers)
{
	char line[2048] = "";
	FILE *f;

	open_ok(2);
	b.ops->read(b.slot[0], GW_TIER_FAST);
	f = fopen(log_path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		;
	fclose(f);
	assert_in(line, ",power.draw,");
	assert_null(strstr(line, "vbios_version"));
	assert_null(strstr(line, "fan.speed"));
	assert_why(b.slot[0], GW_Q_FAN_SPEED, GW_ABSENT_NOT_READ);
	b.ops->read(b.slot[0], GW_TIER_ENERGY); /* nvidia-smi has no such columns */
	assert_int_equal(runs(), 2);
	assert_why(b.slot[0], GW_Q_ENERGY, GW_ABSENT_NOT_SUPPORTED);
}

NVSMI_TEST(all_devices_cost_one_run)
{
	open_ok(2);
	for (unsigned round = 0; round < 3; round++) {
		b.ops->read(b.slot[0], GW_TIER_FAST);
		b.ops->read(b.slot[1], GW_TIER_FAST);
		assert_int_equal(runs(), 2 + round);
	}
	b.ops->read(b.slot[0], GW_TIER_FAST);
	clock_step(&now, NS_PER_S); /* the output is now too old for the second GPU */
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(runs(), 6);
	b.ops->read(b.slot[0], GW_TIER_FAST | GW_TIER_SLOW); /* SLOW was not queried yet */
	assert_int_equal(runs(), 7);
}

static void *read_thread(void *device)
{
	b.ops->read(device, GW_TIER_FAST);
	return NULL;
}

NVSMI_TEST(devices_may_be_read_at_the_same_time)
{
	pthread_t thread[2];

	open_ok(2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, read_thread, b.slot[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(runs(), 2);
	assert_value(b.slot[0], GW_Q_CLOCK_SM, 1980e6);
	assert_value(b.slot[1], GW_Q_CLOCK_SM, 1980e6);
}

NVSMI_TEST(an_old_driver_is_queried_for_the_columns_it_has)
{
	mood("old");
	open_ok(2);
	b.ops->read(b.slot[0], GW_TIERS_ALL);
	assert_why(b.slot[0], GW_Q_POWER_INSTANT, GW_ABSENT_NOT_SUPPORTED);
	assert_why(b.slot[0], GW_Q_POWER_AVERAGE, GW_ABSENT_NOT_SUPPORTED);
	assert_why(b.slot[0], GW_Q_ROWS_FAILED, GW_ABSENT_NOT_SUPPORTED);
	/* the column's older name was queried */
	assert_value(b.slot[0], GW_Q_CLOCK_REASONS, 5);
	assert_value(b.slot[0], GW_Q_POWER, 75.34);
	assert_int_equal(runs(), 1 + 8);
	/* one run: the missing columns are not queried again */
	b.ops->read(b.slot[0], GW_TIERS_ALL);
	assert_int_equal(runs(), 1 + 8 + 1);
}

NVSMI_TEST(a_lost_gpu_leaves_the_others_alone)
{
	open_ok(2);
	mood("lost");
	b.ops->read(b.slot[0], GW_TIER_FAST);
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_OK);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_LOST);
	assert_int_equal(b.slot[1]->r.cause, GW_CAUSE_GPU_LOST);
	assert_why(b.slot[1], GW_Q_POWER, GW_ABSENT_LOST);
	assert_why(b.slot[1], GW_Q_CLOCK_SM_MAX, GW_ABSENT_LOST);
	assert_false(b.reopen);
	mood("ok");
	b.ops->read(b.slot[1], GW_TIERS_COMMON); /* as the next caller of the backend does */
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_OK);
	assert_string_equal(b.slot[1]->r.message, "");
	assert_value(b.slot[1], GW_Q_CLOCK_SM_MAX, 1980e6);
}

NVSMI_TEST(a_gpu_that_is_gone_keeps_its_place)
{
	open_ok(2);
	mood("one");
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_LOST);
	b.ops->close(&b);
	open_ok(2);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_OK);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_LOST);
	assert_string_equal(
		b.slot[1]->r.message,
		"a GPU fell off the bus or needs a reset (the driver no longer lists it)");
	mood("ok");
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_OK);
	assert_value(b.slot[1], GW_Q_MEMORY_USED, 1048576);
}

NVSMI_TEST(a_gpu_without_a_uuid_is_known_by_its_place)
{
	struct usage_list l = { 0 };
	int err;

	mood("no_uuid");
	open_ok(2);
	assert_int_equal(b.slot[1]->r.text_why[GW_T_UUID], GW_ABSENT_NO_DATA);
	assert_string_equal(b.slot[1]->r.text[GW_T_PCI], "0000:01:00.0");
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_value(b.slot[1], GW_Q_MEMORY_USED, 1048576);
	assert_int_equal(b.ops->processes(b.slot[1], &l, &err), GW_ABSENT_NOT_SUPPORTED);
	b.ops->close(&b);
	open_ok(2);
}

NVSMI_TEST(nvidia_smi_without_gpus_gives_a_cause)
{
	static const struct {
		const char *mood;
		enum gw_cause cause;
		const char *detail;
	} rows[] = {
		{ "no_driver", GW_CAUSE_NO_DRIVER, "couldn't communicate" },
		{ "mismatch", GW_CAUSE_VERSION_MISMATCH, "version mismatch" },
		{ "none", GW_CAUSE_NO_GPU, "No devices were found" },
		{ "unknown", GW_CAUSE_DRIVER_ERROR, "Unknown Error" },
		{ "silent", GW_CAUSE_DRIVER_ERROR, "exited with 3" },
		{ "hang", GW_CAUSE_STALLED, "timed out" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		mood(rows[i].mood);
		assert_int_equal(b.ops->open(&b), 0);
		assert_int_equal(b.cause, rows[i].cause);
		assert_int_equal(b.count, 0);
		assert_false(b.open);
		if (!strstr(b.message, rows[i].detail))
			fail_msg("%s", b.message);
		b.ops->close(&b);
	}
}

NVSMI_TEST(a_driver_that_disappears_must_be_reopened)
{
	open_ok(2);
	mood("no_driver");
	b.ops->read(b.slot[0], GW_TIER_FAST);
	assert_true(b.reopen);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_CLOSED);
	assert_int_equal(b.slot[0]->r.cause, GW_CAUSE_NO_DRIVER);
	assert_why(b.slot[0], GW_Q_POWER, GW_ABSENT_NO_DRIVER);
}

NVSMI_TEST(a_hang_is_not_retried_at_once)
{
	struct usage_list l = { 0 };
	int err;

	open_ok(2);
	mood("hang");
	b.ops->read(b.slot[0], GW_TIER_FAST);
	b.ops->read(b.slot[0], GW_TIER_FAST);
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(runs(), 2);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_STALLED);
	assert_why(b.slot[1], GW_Q_POWER, GW_ABSENT_STALLED);
	assert_int_equal(b.ops->processes(b.slot[0], &l, &err), GW_ABSENT_STALLED);
	clock_step(&now, 120 * NS_PER_S);
	mood("ok");
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_OK);
}

NVSMI_TEST(lists_the_processes_of_each_device)
{
	struct usage_list l = { 0 };
	int err = 1;

	open_ok(2);
	assert_int_equal(b.ops->processes(b.slot[0], &l, &err), GW_HAVE);
	assert_int_equal(err, 0);
	assert_int_equal(l.count, 2);
	assert_int_equal(l.p[0].pid, 4242);
	assert_int_equal(l.p[0].type, GW_PROCESS_COMPUTE);
	assert_int_equal(l.p[0].memory_why, GW_HAVE);
	assert_int_equal(l.p[0].memory_bytes, 1024 * 1048576);
	assert_int_equal(l.p[0].gpu_instance, -1);
	assert_int_equal(l.p[1].pid, 4243);
	assert_int_equal(l.p[1].memory_why, GW_ABSENT_NO_PERMISSION);
	usage_done(&l);
	assert_int_equal(b.ops->processes(b.slot[1], &l, &err), GW_HAVE);
	assert_int_equal(l.count, 1);
	assert_int_equal(l.p[0].memory_why, GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(runs(), 2);
	mood("unknown");
	assert_int_equal(b.ops->processes(b.slot[1], &l, &err), GW_ABSENT_ERROR);
	usage_done(&l);
}

NVSMI_TEST(a_long_list_of_processes_is_read_whole_or_refused)
{
	struct usage_list l = { 0 };
	int err = 1;

	open_ok(2);
	mood("crowd");
	assert_int_equal(b.ops->processes(b.slot[0], &l, &err), GW_HAVE);
	assert_int_equal(l.count, 3000);
	assert_int_equal(l.p[2999].pid, 4000);
	usage_done(&l);
	mood("crowd_of_crowds");
	assert_int_equal(b.ops->processes(b.slot[0], &l, &err), GW_ABSENT_TOO_LONG);
	assert_int_equal(l.count, 0);
	usage_done(&l);
	/* an output that is too long is refused as a whole */
	b.ops->read(b.slot[0], GW_TIER_FAST);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_CLOSED);
	assert_in(b.slot[0]->r.message, "nvidia-smi printed more than 1024 KiB");
}

NVSMI_TEST(starts_nothing_without_permission)
{
	env.flags = 0;
	assert_int_equal(b.ops->open(&b), 0);
	assert_int_equal(b.cause, GW_CAUSE_NO_NVIDIA_SMI);
	env.flags = GW_OPEN_EXEC;
	root.real = false;
	assert_int_equal(b.ops->open(&b), 0);
	assert_int_equal(b.cause, GW_CAUSE_NO_NVIDIA_SMI);
	assert_int_equal(runs(), 0);
}

NVSMI_TEST(reports_a_missing_program)
{
	char *path = strdup(getenv("PATH"));

	if (access(programs[1], F_OK) == 0 || access(programs[2], F_OK) == 0) {
		free(path);
		/* skip: this machine has a real nvidia-smi in a folder that is searched */
		skip();
	}
	setenv("PATH", "/gpuward-no-such-folder", 1);
	assert_int_equal(b.ops->open(&b), 0);
	setenv("PATH", path, 1);
	free(path);
	assert_int_equal(b.cause, GW_CAUSE_NO_NVIDIA_SMI);
	assert_false(b.open);
}

static void put(const char *folder, const char *name, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	for (char *p = strchr(path + strlen(folder) + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(path, 0700);
		*p = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* A tree that looks like the real machine, with the first GPU in it. */
NVSMI_TEST(a_gpu_that_sleeps_is_not_woken)
{
	char folder[] = "/tmp/gpuward-asleep-XXXXXX";
	const char *status = "sys/bus/pci/devices/0000:00:00.0/power/runtime_status";
	char command[64];

	assert_non_null(mkdtemp(folder));
	put(folder, "sys/bus/pci/devices/0000:00:00.0/vendor", "0x10de\n");
	put(folder, "sys/bus/pci/devices/0000:00:00.0/device", "0x2335\n");
	put(folder, "sys/bus/pci/devices/0000:00:00.0/class", "0x030200\n");
	put(folder, status, "active\n");
	root_close(&root);
	assert_int_equal(root_open(&root, folder), 0);
	root.real = true;
	open_ok(2);
	b.ops->read(b.slot[0], GW_TIER_FAST);
	assert_int_equal(runs(), 2);

	put(folder, status, "suspended\n");
	b.ops->read(b.slot[0], GW_TIER_FAST);
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_ASLEEP);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_OK); /* from the previous run */
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(b.slot[1]->r.state, GW_DEVICE_CLOSED);
	assert_why(b.slot[0], GW_Q_POWER, GW_ABSENT_ASLEEP);
	b.ops->close(&b);
	assert_int_equal(b.ops->open(&b), 0);
	assert_int_equal(b.cause, GW_CAUSE_ASLEEP);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_ASLEEP);
	assert_int_equal(runs(), 2);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

TEST(cuts_lines_of_csv)
{
	char line[] = " a , \"b, \"\"c\"\"\" ,,d\r", open[] = "x,\"never closed, y",
	     *f[4] = { 0 };

	assert_int_equal(nvsmi_split(line, f, 4), 4);
	assert_string_equal(f[0], "a");
	assert_string_equal(f[1], "b, \"c\"");
	assert_string_equal(f[2], "");
	assert_string_equal(f[3], "d");
	assert_int_equal(nvsmi_split(open, f, 1), 2);
	assert_string_equal(f[0], "x");
}

TEST(words_instead_of_a_value_are_understood)
{
	assert_int_equal(nvsmi_absence("12"), GW_HAVE);
	assert_int_equal(nvsmi_absence("N/A"), GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(nvsmi_absence("[Not Supported]"), GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(nvsmi_absence("[Insufficient Permissions]"), GW_ABSENT_NO_PERMISSION);
	assert_int_equal(nvsmi_absence("[GPU requires reset]"), GW_ABSENT_LOST);
	assert_int_equal(nvsmi_absence("[Something New]"), GW_ABSENT_ERROR);
	assert_int_equal(nvsmi_absence(""), GW_ABSENT_NO_DATA);
	assert_int_equal(nvsmi_absence("["), GW_HAVE);
}

TEST(each_column_has_a_tier_and_a_name)
{
	for (unsigned c = 0; c < nvsmi_column_count(); c++) {
		assert_non_null(nvsmi_column_name(c, NVSMI_NEW));
		assert_null(nvsmi_column_name(c, NVSMI_NONE));
		assert_true(nvsmi_column_tiers(c) & TIERS);
		for (unsigned e = 0; e < c; e++)
			assert_string_not_equal(nvsmi_column_name(c, NVSMI_NEW),
						nvsmi_column_name(e, NVSMI_NEW));
	}
}

TEST_MAIN(put_fake_first, NULL)
