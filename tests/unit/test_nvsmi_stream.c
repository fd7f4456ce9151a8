/* Tests the power samples of the nvidia-smi backend. The tests wait for the output of its
 * child. */
#include "nvsmi_fake.h"

#include "tree.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

static struct power_sample got[RING_SIZE];

static void open_two(void)
{
	assert_int_equal(b.ops->open(&b), 0);
	assert_int_equal(b.count, 2);
}

static struct nvsmi_stream *stream(void)
{
	return &((struct nvsmi *)b.priv)->stream;
}

static int ask(unsigned device, uint64_t since_us)
{
	return b.ops->power_samples(b.slot[device], since_us, got, RING_SIZE);
}

static struct nvsmi_facts facts(void)
{
	struct nvsmi_facts f;

	assert_true(nvsmi_facts(&b, &f));
	return f;
}

static void pass_first_line_deadline(void)
{
	clock_step(&now, stream()->first_line_timeout_ns + NS_PER_MS);
}

/* Waits until the child has printed something or has ended, and reads it. */
static void hear_output(void)
{
	struct pollfd p = { .fd = stream()->child.out_fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 20000), 1);
	read_stream(&b);
}

/* Waits until the child has printed this many more correct lines or has ended, and reads them. */
static void hear(uint64_t lines)
{
	uint64_t want = facts().lines + lines;

	while (stream()->running && facts().lines < want)
		hear_output();
}

NVSMI_TEST(the_first_call_starts_the_stream_without_waiting)
{
	mood("mute");
	open_two();
	assert_false(stream()->running);
	assert_int_equal(ask(0, 0), 0);
	assert_true(stream()->running);
	assert_int_equal(facts().starts, 1);
	assert_int_equal(ask(1, 0), 0);
	assert_int_equal(facts().starts, 1); /* one child process serves all GPUs */
	assert_int_equal(facts().runs, 0);
}

NVSMI_TEST(lines_become_samples_with_the_stamps_they_carry)
{
	open_two();
	ask(0, 0);
	hear(10);
	assert_int_equal(ask(0, 0), 5);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(got[i].wall_us, 1000000000 + i * 100000);
		assert_true(got[i].power_w == 76.61); /* instant */
	}
	assert_int_equal(ask(0, got[2].wall_us), 2);
	assert_int_equal(got[0].wall_us, 1000300000);
	assert_int_equal(b.ops->power_samples(b.slot[0], 0, got, 2), 2); /* the oldest */
	assert_int_equal(got[1].wall_us, 1000100000);
	assert_int_equal(ask(0, 1000400000), 0);
	assert_int_equal(facts().lines, 10);
}

static unsigned programs_started(void)
{
	FILE *f = fopen(log_path, "r");
	unsigned n = 0;

	assert_non_null(f);
	for (int c; (c = fgetc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

NVSMI_TEST(while_the_stream_works_values_need_no_program)
{
	struct usage_list list = { 0 };
	unsigned before;
	int err;

	open_two();
	ask(0, 0);
	hear(10);
	before = programs_started();
	b.ops->read(b.slot[0], GW_TIER_FAST | GW_TIER_SLOW);
	b.ops->read(b.slot[1], GW_TIER_FAST);
	assert_int_equal(programs_started(), before);
	assert_int_equal(b.slot[0]->r.state, GW_DEVICE_OK);
	assert_true(b.slot[0]->r.v[GW_Q_UTILIZATION_GPU] == 0.37);
	assert_true(b.slot[0]->r.v[GW_Q_POWER_INSTANT] == 76.61);
	assert_true(b.slot[0]->r.v[GW_Q_MEMORY_TOTAL] == 143771 * MIB);
	assert_true(b.slot[0]->r.v[GW_Q_CLOCK_VIDEO] == 1545e6);
	assert_int_equal(b.slot[1]->r.why[GW_Q_POWER], GW_ABSENT_NOT_SUPPORTED);
	assert_int_equal(b.slot[1]->r.why[GW_Q_UTILIZATION_GPU], GW_ABSENT_NO_PERMISSION);
	/* Listing the processes starts the program once, and not again while the memory in use
	 * is the same. */
	assert_int_equal(b.ops->processes(b.slot[0], &list, &err), GW_HAVE);
	assert_int_equal(programs_started(), ++before);
	clock_step(&now, 200 * NS_PER_MS);
	assert_int_equal(b.ops->processes(b.slot[0], &list, &err), GW_HAVE);
	assert_int_equal(programs_started(), before);
	usage_done(&list);
	/* A line of the stream that is too old is not shown as current: read() runs nvidia-smi
	 * once, and stores the power in its output as a sample. */
	clock_step(&now, 700 * NS_PER_MS);
	assert_true(stream()->running);
	b.ops->read(b.slot[0], GW_TIER_FAST);
	assert_int_equal(programs_started(), before + 1);
	assert_int_equal(ask(0, 1000400000), 1);
	assert_true(got[0].power_w == 76.61);
	assert_int_equal(got[0].wall_us, 1000900000);
}

NVSMI_TEST(without_instant_power_the_average_is_used)
{
	mood("no_instant");
	open_two();
	ask(0, 0);
	hear(10);
	assert_int_equal(ask(0, 0), 5);
	assert_true(got[0].power_w == 75.34);
	assert_int_equal(ask(1, 0), -GW_E_NOSUPPORT); /* this GPU has neither column */
}

NVSMI_TEST(an_old_program_is_queried_with_fewer_columns)
{
	mood("old");
	open_two();
	ask(0, 0);
	hear(1);
	assert_false(stream()->running);
	assert_int_equal(ask(0, 0), 0); /* the stream was started again */
	hear(10);
	assert_int_equal(ask(0, 0), 5);
	assert_true(got[0].power_w == 75.34);
	assert_int_equal(facts().starts, 2);
	assert_int_equal(facts().runs + facts().stalls + facts().ends, 0);
}

NVSMI_TEST(a_program_that_prints_local_time_is_understood)
{
	static const struct {
		const char *day;
		uint64_t wall_s; /* of the stepped clock */
	} row[] = {
		{ "1970/01/01 02:16", 960 },                   /* a time zone east of UTC */
		{ "2026/06/30 23:31", 1782862260 + 4 * 3600 }, /* west of UTC, over midnight */
		{ "2026/07/02 05:01", 1782968460 - 19800 },    /* a zone with a half hour */
	};

	open_two();
	for (size_t i = 0; i < COUNT(row); i++) {
		uint64_t want;

		setenv("FAKE_SMI_DAY", row[i].day, 1);
		clock_stepped_init(&now, (1000 + 100 * i) * NS_PER_S,
				   (row[i].wall_s + 41) * NS_PER_S);
		ask(0, 0);
		hear(10);
		want = (row[i].wall_s + 40) * 1000000;
		assert_true(ask(0, want - 1) >= 5);
		for (unsigned k = 0; k < 5; k++)
			assert_int_equal(got[k].wall_us, want + k * 100000);
		nvsmi_stream_stop(stream());
	}
}

NVSMI_TEST(silence_ends_the_stream_and_each_call_runs_a_program)
{
	open_two();
	ask(0, 0);
	hear(10);
	clock_step(&now, 1000 * NS_PER_MS); /* 10 intervals without a line are still allowed */
	assert_int_equal(ask(0, 0), 5);
	assert_true(stream()->running);
	clock_step(&now, 1 * NS_PER_MS);
	assert_int_equal(ask(0, 1000400000), 1);
	assert_false(stream()->running);
	assert_int_equal(facts().stalls, 1);
	assert_int_equal(facts().runs, 1);
	assert_int_equal(got[0].wall_us, 1001500000);
	assert_true(got[0].power_w == 76.61);
	assert_int_equal(ask(1, 1001500000), 0); /* this call uses the output of the same run */
	assert_int_equal(facts().runs, 1);
	assert_int_equal(ask(0, 0), 6);
	assert_int_equal(facts().runs, 2);
}

NVSMI_TEST(the_stream_is_retried_with_growing_delays)
{
	uint64_t waited_s[8];

	mood("dies");
	setenv("FAKE_SMI_TICKS", "1", 1);
	open_two();
	ask(0, 0);
	for (unsigned i = 0; i < 8; i++) {
		uint64_t starts = facts().starts, begin;

		hear(UINT64_MAX / 2); /* until the child has ended */
		assert_false(stream()->running);
		assert_int_equal(facts().ends, i + 1);
		begin = clock_mono_ns(&now.clock);
		while (facts().starts == starts) {
			clock_step(&now, 500 * NS_PER_MS);
			ask(0, 0);
		}
		waited_s[i] = (clock_mono_ns(&now.clock) - begin) / NS_PER_S;
	}
	assert_int_equal(waited_s[0], 1);
	assert_int_equal(waited_s[1], 2);
	assert_int_equal(waited_s[2], 4);
	assert_int_equal(waited_s[6], 60);
	assert_int_equal(waited_s[7], 60);
	/* After the child has worked for a while, the waiting time starts at its minimum
	 * again. */
	mood("dies");
	setenv("FAKE_SMI_TICKS", "12", 1);
	hear(UINT64_MAX / 2);
	clock_step(&now, 60 * NS_PER_S);
	ask(0, 0);
	hear(UINT64_MAX / 2);
	assert_int_equal(stream()->retry_ns - clock_mono_ns(&now.clock), NS_PER_S);
}

NVSMI_TEST(garbage_does_not_keep_the_stream_alive)
{
	mood("garbage");
	open_two();
	ask(0, 0);
	hear_output();
	assert_int_equal(facts().lines, 0);
	assert_int_equal(ask(0, 0), 0);
	pass_first_line_deadline();
	assert_int_equal(ask(0, 0), 1);
	assert_int_equal(facts().stalls, 1);
	assert_int_equal(facts().runs, 1);
}

NVSMI_TEST(a_stream_that_never_worked_is_not_restarted)
{
	open_two();
	mood("never");
	ask(0, 0);
	pass_first_line_deadline();
	assert_int_equal(ask(0, 0), -GW_E_LOST);
	for (unsigned i = 0; i < 5; i++) {
		clock_step(&now, 100 * NS_PER_S);
		assert_int_equal(ask(0, 0), -GW_E_LOST);
	}
	assert_int_equal(facts().starts, 1);
	assert_int_equal(facts().runs, 6);
	mood("ok");
	clock_step(&now, 100 * NS_PER_S);
	assert_int_equal(ask(0, 0), 1); /* a single run works */
	ask(0, 0);
	/* a single run worked, so the stream is tried again */
	assert_int_equal(facts().starts, 2);
}

NVSMI_TEST(a_run_that_hangs_is_not_repeated)
{
	open_two();
	mood("mute");
	ask(0, 0);
	mood("hang");
	pass_first_line_deadline();
	assert_int_equal(ask(0, 0), -GW_E_LOST);
	assert_int_equal(ask(0, 0), -GW_E_LOST);
	assert_int_equal(ask(1, 0), -GW_E_LOST);
	assert_int_equal(facts().runs, 1);
}

static void check_second(const char *how, int want)
{
	mood(how);
	open_two();
	ask(0, 0);
	hear(10);
	assert_int_equal(ask(0, 0), 5);
	assert_int_equal(ask(1, 0), want);
}

NVSMI_TEST(a_lost_gpu_is_reported_and_the_other_continues)
{
	check_second("lost", -GW_E_LOST);
}

NVSMI_TEST(gpus_without_a_uuid_are_distinguished)
{
	check_second("no_uuid", 5);
}

NVSMI_TEST(the_oldest_samples_leave_a_full_ring)
{
	setenv("FAKE_SMI_TICKS", "200", 1); /* all timestamps stay within the minute 00:16 */
	open_two();
	ask(0, 0);
	hear(400);
	for (unsigned i = 0; i < 100; i++) {
		struct nvsmi_reading r = {
			b.slot[0]->r.text[GW_T_UUID], "", 2000000000 + i, 1, 1, GW_HAVE, NULL
		};
		store_reading(&b, &r);
		store_reading(&b, &r); /* a repeated timestamp is not a new sample */
	}
	assert_int_equal(ask(0, 0), RING_SIZE);
	assert_int_equal(got[0].wall_us, 1000000000 + 44 * 100000);
	assert_int_equal(got[RING_SIZE - 1].wall_us, 2000000099);
}

TEST(lines_that_make_no_sense_are_refused)
{
	static const char *const lines[] = {
		"",
		"No devices were found",
		"0, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:36.123, 75",
		"0, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:36.123, 75, 76, 77",
		"x, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:36.123, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:36, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:36.5, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 2026/13/15 06:31:36.123, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 2026/11/00 06:31:36.123, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 2026/11/15 24:31:36.123, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:-1.123, 75, 76",
		"0, GPU-1, 00000000:01:00.0, 1969/11/15 06:31:36.123, 75, 76",
		"0, GPU-1, 00000000:01:00.0, [N/A], 75, 76",
	};
	struct nvsmi_stream s;
	struct nvsmi_reading r;

	nvsmi_stream_init(&s);
	for (size_t i = 0; i < COUNT(lines); i++)
		if (nvsmi_stream_parse(&s, lines[i], false, 0, &r))
			fail_msg("%s", lines[i]);
	assert_int_equal(s.facts.lines, 0);
}

TEST(watts_are_a_number_or_have_a_reason)
{
	static const struct {
		const char *power, *instant;
		double power_w, instant_w;
		enum gw_absence why;
	} row[] = {
		{ "75.5", "76", 75.5, 76, GW_HAVE },
		{ "0.00", "[N/A]", 0, NAN, GW_HAVE },
		{ "[N/A]", "76", NAN, 76, GW_HAVE },
		{ "[N/A]", "[Unknown Error]", NAN, NAN, GW_ABSENT_NOT_SUPPORTED },
		{ "[GPU is lost]", "[GPU is lost]", NAN, NAN, GW_ABSENT_LOST },
		{ "-1", "nan", NAN, NAN, GW_ABSENT_INVALID },
		{ "75 W", "1e9", NAN, NAN, GW_ABSENT_INVALID },
		{ "", "", NAN, NAN, GW_ABSENT_NO_DATA },
	};
	struct nvsmi_stream s;
	struct nvsmi_reading r;

	nvsmi_stream_init(&s);
	for (size_t i = 0; i < COUNT(row); i++) {
		char line[256];

		snprintf(line, sizeof(line),
			 "3, GPU-1, 00000000:01:00.0, 2026/11/15 06:31:36.123, %s, %s",
			 row[i].power, row[i].instant);
		assert_true(
			nvsmi_stream_parse(&s, line, false, UINT64_C(1794724296000000), &r));
		assert_int_equal(r.wall_us, UINT64_C(1794724296123000));
		assert_string_equal(r.uuid, "GPU-1");
		if (r.why != row[i].why)
			fail_msg("%s: %s", line, gw_absence_key(r.why));
		assert_true(isnan(row[i].power_w) ? isnan(r.power_w)
						  : r.power_w == row[i].power_w);
		assert_true(isnan(row[i].instant_w) ? isnan(r.instant_w)
						    : r.instant_w == row[i].instant_w);
	}
}

static bool ended(pid_t pid)
{
	char path[32], text[256] = "";
	const char *state;

	snprintf(path, sizeof(path), "proc/%d/stat", (int)pid);
	root_read(&root, path, text, sizeof(text));
	state = strrchr(text, ')'); /* the child may be a zombie that is not reaped */
	return !state || state[2] == 'Z' || state[2] == 'X';
}

static pid_t child_pid(void)
{
	return stream()->child.pid;
}

NVSMI_TEST(the_stream_ends_with_the_backend)
{
	pid_t pid;

	mood("for_ever");
	open_two();
	ask(0, 0);
	do
		hear(4);
	/* the CPU time grows in steps that the kernel chooses */
	while (facts().child_cpu_ns == 0);
	pid = child_pid();
	assert_false(ended(pid));
	b.ops->close(&b);
	assert_true(ended(pid));
}

/* When the process that reads the stream is killed, the pipe has no reader and the next line
 * ends the program. */
NVSMI_TEST(the_stream_ends_with_our_process)
{
	int ends[2];
	pid_t us, it = 0;
	char byte;

	mood("for_ever");
	assert_int_equal(pipe(ends), 0);
	us = fork();
	if (us == 0) {
		close(ends[0]);
		if (b.ops->open(&b) != 0 || ask(0, 0) != 0)
			_exit(1);
		hear(2);
		it = child_pid();
		/* Only the fake program still holds the write end, so end of file on this
		 * pipe shows that it ended. */
		if (write(ends[1], &it, sizeof(it)) != sizeof(it))
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &it, sizeof(it)), sizeof(it));
	assert_true(it > 1);
	kill(us, SIGKILL);
	assert_int_equal(waitpid(us, NULL, 0), us);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	for (unsigned i = 0; i < 200 && !ended(it); i++)
		poll(NULL, 0, 50);
	assert_true(ended(it));
}

NVSMI_TEST(a_sleeping_gpu_is_not_woken_by_samples)
{
	struct tree t;

	tree_init(&t);
	tree_put(&t, "sys/bus/pci/devices/0000:01:00.0/power/runtime_status", "suspended\n");
	open_two();
	env.root = &t.root;
	assert_int_equal(ask(0, 0), -GW_E_NOSUPPORT);
	assert_int_equal(facts().starts + facts().runs, 0);
	env.flags |= GW_OPEN_WAKE;
	assert_int_equal(ask(0, 0), 0);
	assert_int_equal(facts().starts, 1);
	env.root = &root;
	tree_done(&t);
}

TEST_MAIN(put_fake_first, NULL)
