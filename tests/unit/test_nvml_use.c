/* Tests the utilisation per process through the NVML backend. */
#include "simtest.h"

#include "device/context.h"
#include "device/nvml.h"

#include <math.h>

#define HISTORY "[driver]\nutilization_history = 6\n"
#define GPU     "[[gpu]]\nnoise = 0\n"
#define SQUARE  "[[gpu.load]]\nkind = \"square\"\nhigh = 0.9\nlow = 0.1\nperiod = 0.7\n"
#define TWO                                                             \
	"[[gpu.process]]\npid = 4100000\nshare = 0.75\nmemory = 1024\n" \
	"[[gpu.process]]\npid = 4100001\nshare = 0.25\nmemory = 1024\n"

static struct process_use use[256];

static void world(const char *text)
{
	sim_start(text);
	sim_step(3 * NS_PER_S);
}

static int ask(uint64_t since_us)
{
	struct device *d = sim.ctx->slot[0]->d;

	return d->backend->ops->process_use(d, since_us, use, 256);
}

static const struct process_use *of(int64_t pid, int n)
{
	const struct process_use *found = NULL;

	for (int i = 0; i < n; i++) {
		if (use[i].pid != pid)
			continue;
		assert_null(found); /* one row per process */
		found = &use[i];
	}
	return found;
}

/* Computes the mean of the driver's samples, without repeats, in a simple way. */
static struct process_use brute(int64_t pid, uint64_t since_us)
{
	struct abi_process_utilization raw[512];
	uint32_t n = 512, count = 0;
	struct process_use r = { .pid = pid };
	abi_device h;

	assert_int_equal(nvml_by_index(0, &h), 0);
	assert_int_equal(nvml_process_utilization(h, raw, &n, since_us), 0);
	for (uint32_t i = 0; i < n; i++) {
		bool known = raw[i].pid != pid || raw[i].timestamp_us <= since_us;

		for (uint32_t k = 0; k < i; k++)
			known |=
				raw[k].pid == pid && raw[k].timestamp_us == raw[i].timestamp_us;
		if (known)
			continue;
		r.sm_ratio += raw[i].sm / 100.0;
		r.wall_us = raw[i].timestamp_us > r.wall_us ? raw[i].timestamp_us : r.wall_us;
		count++;
	}
	assert_in_range(count, 1, 6);
	r.sm_ratio /= count;
	return r;
}

static void assert_like(const struct process_use *got, const struct process_use *want)
{
	assert_non_null(got);
	assert_int_equal(got->wall_us, want->wall_us);
	assert_true(fabs(got->sm_ratio - want->sm_ratio) < 1e-12);
}

SIM_TEST(several_samples_of_a_process_become_their_mean)
{
	uint64_t since = 0;

	world(HISTORY GPU SQUARE TWO);
	for (int i = 0; i < 8; i++) {
		int n = ask(since);
		struct process_use first = brute(4100000, since), second;

		second = brute(4100001, since);
		assert_int_equal(n, 2);
		assert_like(of(4100000, n), &first);
		assert_like(of(4100001, n), &second);
		assert_true(first.sm_ratio > 2.5 * second.sm_ratio);
		/* wall_us is a recent time of the wall clock, in microseconds. */
		assert_true(sim_wall_ns() / 1000 - first.wall_us < 170000);
		since = first.wall_us;
		sim_step(1100 * NS_PER_MS);
	}
}

SIM_TEST(the_value_is_the_mean_of_the_load_not_its_peak)
{
	double sum = 0;
	uint64_t since = 0;

	world(HISTORY GPU SQUARE TWO);
	for (int i = 0; i < 70; i++) {
		int n = ask(since);

		assert_int_equal(n, 2);
		sum += of(4100000, n)->sm_ratio;
		since = use[0].wall_us;
		sim_step(NS_PER_S);
	}
	assert_true(fabs(sum / 70 - 0.5 * 0.75) < 0.02);
}

SIM_TEST(rows_that_are_repeated_count_once)
{
	struct process_use want;
	int n;

	world("[driver]\nutilization_history = 6\nutilization_copies = 3\n" GPU SQUARE TWO);
	want = brute(4100000, 0);
	n = ask(0);
	assert_int_equal(n, 2);
	assert_like(of(4100000, n), &want);
}

SIM_TEST(timestamps_that_were_already_read_are_stale)
{
	uint64_t seen;

	world("[driver]\nutilization_history = 6\nutilization_ignores_since = true\n" GPU SQUARE
		      TWO);
	assert_int_equal(ask(0), 2);
	seen = use[0].wall_us;
	assert_int_equal(ask(seen), 0);
	sim_step(200 * NS_PER_MS);
	assert_int_equal(ask(seen), 2);
	assert_true(use[0].wall_us > seen);
}

SIM_TEST(values_above_100_are_ignored)
{
	world(GPU SQUARE TWO "[[gpu.process]]\npid = 4100002\nsm_percent = 4294967\n"
			     "[[gpu.process]]\npid = 4100003\nsm_percent = 101\n"
			     "[[gpu.process]]\npid = 4100004\nsm_percent = 100\n");
	assert_int_equal(ask(0), 3);
	assert_null(of(4100002, 3));
	assert_null(of(4100003, 3));
	assert_true(of(4100004, 3)->sm_ratio == 1);
}

SIM_TEST(an_unlisted_process_is_reported_by_its_pid)
{
	world(GPU SQUARE "[[gpu.process]]\npid = 4100000\ntype = \"unlisted\"\n");
	assert_int_equal(ask(0), 1);
	assert_int_equal(use[0].pid, 4100000);
}

SIM_TEST(a_reused_pid_is_one_row)
{
	world(HISTORY GPU "[[gpu.load]]\nkind = \"constant\"\nlevel = 1\n"
			  "[[gpu.process]]\npid = 4100000\nshare = 0.2\nuntil = 2.5\n"
			  "[[gpu.process]]\npid = 4100000\nshare = 0.8\nfrom = 2.5\n");
	assert_int_equal(ask(0), 1);
	/* each share has 3 samples, or one share has 2 and the other 4 */
	assert_true(fabs(use[0].sm_ratio - 0.5) < 0.11);
	sim_step(2 * NS_PER_S);
	assert_int_equal(ask(use[0].wall_us), 1);
	assert_true(fabs(use[0].sm_ratio - 0.8) < 0.001);
}

SIM_TEST(without_active_processes_the_result_is_empty)
{
	world(GPU "[[gpu.process]]\npid = 4100000\n");
	assert_int_equal(ask(0), 0);
}

SIM_TEST(the_buffer_grows_once)
{
	uint64_t calls;

	world("[driver]\nutilization_entries = 700\n" GPU SQUARE TWO);
	assert_int_equal(ask(0), 2);
	calls = sim_calls("nvmlDeviceGetProcessUtilization");
	assert_int_equal(ask(0), 2);
	assert_int_equal(sim_calls("nvmlDeviceGetProcessUtilization"), calls + 1);
}

SIM_TEST(rows_stop_at_the_size_of_the_buffer)
{
	struct device *d;

	world(GPU SQUARE "[[gpu.process]]\ncount = 40\nshare = 0.5\n");
	d = sim.ctx->slot[0]->d;
	assert_int_equal(d->backend->ops->process_use(d, 0, use, 7), 7);
	assert_int_equal(ask(0), 40);
}

SIM_TEST(each_refusal_has_its_error)
{
	static const struct {
		int code, want;
	} row[] = {
		{ ABI_NOT_SUPPORTED, -GW_E_NOSUPPORT },
		{ ABI_NO_PERMISSION, -GW_E_PERM },
		{ ABI_INSUFFICIENT_SIZE, -GW_E_NOMEM },
		{ ABI_NOT_FOUND, 0 },
		{ 999, -GW_E_NOSUPPORT },
		{ ABI_GPU_IS_LOST, -GW_E_LOST },
	};

	world(GPU SQUARE TWO);
	for (size_t i = 0; i < COUNT_OF(row); i++) {
		sim_fault("nvmlDeviceGetProcessUtilization", 0, row[i].code);
		assert_int_equal(ask(0), row[i].want);
	}
	sim_close();
	world("[driver]\nmissing = [\"nvmlDeviceGetProcessUtilization\"]\n" GPU SQUARE TWO);
	assert_int_equal(ask(0), -GW_E_NOSUPPORT);
	sim_close();
	world(GPU SQUARE "[[gpu.mig]]\n" TWO);
	assert_int_equal(ask(0), -GW_E_NOSUPPORT);
}

/* ---- in the list of processes ---- */

static uint64_t calls_made(void)
{
	return atomic_load(&sim.ctx->cost.row[CALL_process_utilization].count);
}

static struct gw_process_list *take_list(unsigned want)
{
	static struct gw_process_list *list;

	gw_process_list_free(list);
	assert_int_equal(gw_process_list_new(sim.ctx, &list), 0);
	assert_int_equal(gw_process_list_want(list, want), 0);
	assert_int_equal(gw_process_list_take(list), 0);
	return list;
}

SIM_TEST(a_list_asks_for_utilisation_only_if_the_caller_wants_it)
{
	struct gw_process_list *l;

	world(GPU SQUARE TWO GPU SQUARE
	      "[[gpu.process]]\npid = 4100009\nmemory = 1024\n" GPU SQUARE);
	l = take_list(0);
	assert_int_equal(calls_made(), 0);
	assert_int_equal(gw_process_list_get(l, 0)->sm_absence, GW_ABSENT_NOT_READ);
	assert_int_equal(gw_process_list_want(l, 1 << 7), -GW_E_ARG);

	l = take_list(GW_PROCESS_SM_SHARED);
	/* utilisation was read only from the GPU with two processes */
	assert_int_equal(calls_made(), 1);
	assert_int_equal(gw_process_list_get(l, 0)->sm_absence, GW_HAVE);
	assert_int_equal(gw_process_list_get(l, 2)->sm_absence, GW_ABSENT_NOT_READ);

	sim_step(NS_PER_S);
	l = take_list(GW_PROCESS_SM);
	/* utilisation was not read from the GPU without a process */
	assert_int_equal(calls_made(), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gw_process_list_get(l, i)->sm_absence, GW_HAVE);
	assert_true(gw_process_list_get(l, 0)->sm_ratio >
		    2 * gw_process_list_get(l, 1)->sm_ratio);

	/* The result of one read is used again for less than a second. */
	sim_step(300 * NS_PER_MS);
	take_list(GW_PROCESS_SM);
	assert_int_equal(calls_made(), 3);
}

SIM_TEST(a_process_without_a_sample_was_idle_and_a_refusal_is_a_reason)
{
	static const struct {
		int code;
		enum gw_absence want;
	} row[] = {
		{ ABI_NOT_FOUND, GW_HAVE },
		{ ABI_NO_PERMISSION, GW_ABSENT_NO_PERMISSION },
		{ ABI_NOT_SUPPORTED, GW_ABSENT_NOT_SUPPORTED },
	};
	uint64_t calls;

	world(GPU SQUARE TWO);
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		const struct gw_process *p;

		sim_fault("nvmlDeviceGetProcessUtilization", 0, row[i].code);
		sim_step(NS_PER_S);
		p = gw_process_list_get(take_list(GW_PROCESS_SM), 0);
		assert_int_equal(p->sm_absence, row[i].want);
		assert_true(row[i].want == GW_HAVE ? p->sm_ratio == 0 : isnan(p->sm_ratio));
	}
	/* If a GPU does not support utilisation per process, the call is rarely made again. */
	calls = calls_made();
	for (unsigned i = 0; i < 9; i++) {
		sim_step(NS_PER_S);
		take_list(GW_PROCESS_SM);
	}
	assert_int_equal(calls_made(), calls);
	sim_step(2 * NS_PER_S);
	take_list(GW_PROCESS_SM);
	assert_int_equal(calls_made(), calls + 1);
}

SIM_TEST(cpu_needs_two_takes_and_a_hidden_process_has_none)
{
	struct gw_process_list *l;
	const struct gw_process *p;
	volatile double work = 0;

	world(GPU "[[gpu.process]]\npid = \"self\"\nmemory = 1024\n"
		  "[[gpu.process]]\npid = 4100000\nmemory = 1024\n");
	l = take_list(0);
	assert_int_equal(gw_process_list_get(l, 0)->cpu_absence, GW_ABSENT_FIRST_READING);
	for (unsigned i = 0; i < 100000; i++)
		work = work + i;
	assert_int_equal(gw_process_list_take(l), 0); /* no time passed */
	assert_int_equal(gw_process_list_get(l, 0)->cpu_absence, GW_ABSENT_FIRST_READING);
	sim_step(NS_PER_S);
	assert_int_equal(gw_process_list_take(l), 0);
	p = gw_process_list_get(l, 0);
	assert_int_equal(p->cpu_absence, GW_HAVE);
	assert_true(p->cpu_cores > 0);
	/* Only the driver knows the other process: it is in another pid namespace. */
	p = gw_process_list_get(l, 1);
	assert_int_equal(p->orphan, 1);
	assert_int_equal(p->cpu_absence, GW_ABSENT_NO_DATA);
	assert_true(isnan(p->cpu_cores) && isnan(p->run_seconds));
	assert_null(p->unit);
}

static uint64_t slow_calls;

/* Returns the time of the machine. After the first driver call, adds 1000 s. */
static uint64_t wall_after_slow_calls(void *ctx)
{
	return clock_wall_ns(clock_real()) + (calls_made() > slow_calls ? 1000 * NS_PER_S : 0);
}

SIM_TEST(the_run_time_ends_after_slow_calls)
{
	const struct gw_process *p;

	world(GPU "[[gpu.process]]\npid = \"self\"\nmemory = 1024\n");
	take_list(GW_PROCESS_SM);
	sim_step(NS_PER_S);
	slow_calls = calls_made();
	sim.clock.wall_ns = wall_after_slow_calls;
	p = gw_process_list_get(take_list(GW_PROCESS_SM), 0);
	assert_true(p->run_seconds >= 1000);
	sim.clock.wall_ns = sim_wall;
}

TEST_MAIN(sim_setup, NULL)
