/* Tests event_watch on the simulator. A thread of the test steps the simulated time. Waits for
 * events end in simulated time, so a simulated minute takes only a moment. */
#define TEST_TEARDOWN end
#include "simtest.h"

#include "device/event_watch.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define EVENTS_MAX 64
#define PATIENCE_S 60
#define FAST       (500 * NS_PER_MS)

static struct {
	pthread_mutex_t lock;
	struct driver_event e[EVENTS_MAX];
	unsigned count;
} reported = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	pthread_t thread;
	atomic_bool run;
	bool started;
	_Atomic uint64_t ns; /* simulated time per real millisecond */
} stepper = { .ns = 20 * NS_PER_MS };

static struct event_watch *watch;

static void on_event(void *arg, const struct driver_event *e)
{
	assert_ptr_equal(arg, &reported);
	pthread_mutex_lock(&reported.lock);
	if (reported.count < EVENTS_MAX)
		reported.e[reported.count] = *e;
	reported.count++;
	pthread_mutex_unlock(&reported.lock);
}

static unsigned reported_count(void)
{
	unsigned n;

	pthread_mutex_lock(&reported.lock);
	n = reported.count;
	pthread_mutex_unlock(&reported.lock);
	return n;
}

/* Returns the position of an event, or -1. */
static int reported_at(uint64_t type, uint64_t data)
{
	int at = -1;

	pthread_mutex_lock(&reported.lock);
	for (unsigned i = 0; i < reported.count && i < EVENTS_MAX && at < 0; i++)
		if (reported.e[i].type == type && reported.e[i].data == data)
			at = (int)i;
	pthread_mutex_unlock(&reported.lock);
	return at;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void *step(void *arg)
{
	while (atomic_load(&stepper.run)) {
		sim_step(stepper.ns);
		nap();
	}
	return NULL;
}

static void time_runs(void)
{
	atomic_store(&stepper.run, true);
	assert_int_equal(pthread_create(&stepper.thread, NULL, step, NULL), 0);
	stepper.started = true;
}

static void time_stands(void)
{
	if (!stepper.started)
		return;
	atomic_store(&stepper.run, false);
	pthread_join(stepper.thread, NULL);
	stepper.started = false;
}

/* Waits for a condition. The limit is generous: only a failing test waits that long. */
#define until(condition)                                             \
	do {                                                         \
		time_t end_ = time(NULL) + PATIENCE_S;               \
		while (!(condition)) {                               \
			if (time(NULL) > end_)                       \
				fail_msg("in vain: %s", #condition); \
			nap();                                       \
		}                                                    \
	} while (0)

static unsigned listening(void)
{
	const char *why;

	return event_watch_status(watch, &why);
}

static unsigned opens(void)
{
	unsigned n;

	pthread_mutex_lock(&sim.ctx->lock);
	n = sim.ctx->opens;
	pthread_mutex_unlock(&sim.ctx->lock);
	return n;
}

static void begin(unsigned gpus)
{
	reported.count = 0;
	assert_int_equal(event_watch_new(sim.ctx, on_event, &reported, &watch), 0);
	until(listening() == gpus && sim_calls("nvmlEventSetWait_v2") > 0);
}

static int end(void **state)
{
	sim_unhang();
	if (watch && !stepper.started)
		time_runs();
	event_watch_free(watch);
	watch = NULL;
	time_stands();
	stepper.ns = 20 * NS_PER_MS;
	return sim_teardown(state);
}

/* Loads a built-in scenario with more lines. */
static void load_with(const char *name, const char *more)
{
	const char *source = getenv("GPUWARD_TEST_SOURCE");
	char path[4096], text[8192];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/sim/scenarios/%s.toml", source ? source : ".", name);
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	snprintf(text + n, sizeof(text) - n, "%s", more);
	sim_text(text);
}

#define XID(at, gpu, number) \
	"\n[[timeline]]\nat = " #at "\ndo = \"xid\"\ngpu = " #gpu "\ndata = " #number "\n"

static unsigned threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

TEST(every_event_of_a_storm_is_reported_with_its_gpu_and_its_time)
{
	static const struct {
		uint64_t type, data;
	} expected[] = {
		{ ABI_EVENT_XID, 31 },       { ABI_EVENT_ECC_SINGLE, 0 },
		{ ABI_EVENT_ECC_DOUBLE, 0 }, { ABI_EVENT_XID, 48 },
		{ ABI_EVENT_XID, 94 },       { ABI_EVENT_RECOVERY_ACTION, 0 },
	};
	const char *uuid;
	uint64_t last = 0;

	sim_scenario("xid-storm");
	sim_open();
	uuid = gw_device_text(sim_take(0, 1), GW_T_UUID);
	begin(2);
	time_runs();
	until(reported_count() == 6);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(reported.e[i].type, expected[i].type);
		assert_int_equal(reported.e[i].data, expected[i].data);
		assert_string_equal(reported.e[i].uuid, uuid);
		assert_true(reported.e[i].mono_ns >= last);
		assert_true(reported.e[i].wall_ns > reported.e[i].mono_ns);
		last = reported.e[i].mono_ns;
	}
	assert_true(reported.e[0].mono_ns >=
		    /* the first Xid comes after 2 s, and the simulation begins at 1 s */
		    3 * NS_PER_S);
}

TEST(changes_of_clocks_and_p_states_are_not_reported)
{
	sim_text(TWO_GPUS XID(6, 0, 13));
	sim_open();
	begin(2);
	time_runs();
	until(reported_count() > 0);
	assert_int_equal(reported_count(), 1);
	assert_int_equal(reported.e[0].data, 13);
}

TEST(a_driver_that_is_replaced_is_watched_again)
{
	load_with("driver-reload", XID(5, 0, 31) XID(1000, 0, 43));
	sim_open();
	begin(1);
	time_runs();
	until(opens() == 2 && listening() == 1);
	stepper.ns = FAST;
	until(reported_at(ABI_EVENT_XID, 43) >= 0);
	assert_int_equal(reported_at(ABI_EVENT_XID, 31), 0);
}

TEST(a_lost_gpu_hides_no_other_and_is_watched_again_when_it_is_back)
{
	load_with("lost-gpu", XID(15, 0, 31) XID(1000, 1, 13));
	sim_open();
	begin(2);
	time_runs();
	until(reported_at(ABI_EVENT_XID, 79) >= 0);
	/* slower, because the GPU is lost for only 20 s of simulated time */
	stepper.ns = 4 * NS_PER_MS;
	until(sim_take(GW_TIER_FAST, 1)->state == GW_DEVICE_LOST);
	until(listening() == 1);
	stepper.ns = 20 * NS_PER_MS;
	until(reported_at(ABI_EVENT_XID, 31) >= 0);
	until(sim_take(GW_TIER_FAST, 1)->state == GW_DEVICE_OK);
	until(listening() == 2);
	stepper.ns = FAST;
	until(reported_at(ABI_EVENT_XID, 13) >= 0);
	assert_string_equal(reported.e[reported_at(ABI_EVENT_XID, 13)].uuid,
			    reported.e[reported_at(ABI_EVENT_XID, 79)].uuid);
}

/* As long as a lost GPU is in the set, NVML may answer each wait with "lost". */
TEST(a_failed_wait_is_repeated_only_after_a_pause)
{
	uint64_t sets;

	sim_text(TWO_GPUS);
	sim_open();
	begin(2);
	sim_fault("nvmlEventSetWait_v2", -1, ABI_GPU_IS_LOST);
	time_runs();
	sets = sim_calls("nvmlEventSetCreate");
	until(sim_calls("nvmlEventSetCreate") > sets);
	assert_true(sim_calls("nvmlEventSetCreate") < sets + 5);
	sim_fault("nvmlEventSetWait_v2", -1, 0);
	until(listening() == 2);
}

TEST(a_driver_released_during_a_wait_is_watched_again_after_resume)
{
	sim_text(TWO_GPUS XID(1000, 1, 31));
	sim_open();
	begin(2);
	time_runs();
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	assert_int_equal(sim_calls("nvmlEventSetFree"), sim_calls("nvmlEventSetCreate"));
	assert_int_equal(sim_calls("nvmlShutdown"), 1);
	until(listening() == 0);
	assert_int_equal(sim_calls("nvmlEventSetFree"), sim_calls("nvmlEventSetCreate"));
	assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
	until(listening() == 2);
	stepper.ns = FAST;
	until(reported_at(ABI_EVENT_XID, 31) >= 0);
}

TEST(a_hundred_reopenings_leave_no_thread_behind)
{
	unsigned before;

	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 2 * NS_PER_S);
	stepper.ns = 200 * NS_PER_MS;
	begin(2);
	time_runs();
	before = threads();
	for (unsigned i = 0; i < 100; i++) {
		uint64_t waits = sim_calls("nvmlEventSetWait_v2");

		atomic_store(&sim.ctx->opener[0]->b.reopen, true);
		assert_int_equal(sim_take(0, 0)->state, GW_DEVICE_OK);
		until(sim_calls("nvmlEventSetWait_v2") > waits && listening() == 2);
	}
	assert_true(opens() > 100);
	assert_true(sim_calls("nvmlEventSetCreate") > 100);
	assert_int_equal(threads(), before);
}

TEST(a_watch_can_be_created_repeatedly)
{
	unsigned before;

	sim_text(TWO_GPUS);
	sim_open();
	time_runs();
	before = threads();
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(event_watch_new(sim.ctx, on_event, &reported, &watch), 0);
		if (i % 2) /* if i is even, the watch is freed before it has begun */
			until(listening() == 2);
		assert_int_equal(event_watch_free(watch), 0);
		watch = NULL;
	}
	assert_int_equal(threads(), before);
	assert_int_equal(sim_calls("nvmlEventSetFree"), sim_calls("nvmlEventSetCreate"));
}

TEST(a_library_without_event_calls_has_no_watch)
{
	unsigned before = threads();

	sim_text("[driver]\nmissing = [\"nvmlEventSetWait_v2\"]\n" TWO_GPUS);
	sim_open();
	assert_int_equal(event_watch_new(sim.ctx, on_event, &reported, &watch),
			 -GW_E_NOSUPPORT);
	assert_null(watch);
	assert_int_equal(threads(), before);
}

TEST(gpus_without_events_are_queried_rarely_and_the_status_reports_it)
{
	const char *why = "";

	sim_text(TWO_GPUS);
	sim_fault("nvmlDeviceGetSupportedEventTypes", -1, ABI_NOT_SUPPORTED);
	sim_open();
	assert_int_equal(event_watch_new(sim.ctx, on_event, &reported, &watch), 0);
	time_runs();
	until(sim_calls("nvmlEventSetFree") > 0);
	assert_int_equal(event_watch_status(watch, &why), 0);
	assert_in(why, "no GPU");
	assert_int_equal(sim_calls("nvmlEventSetWait_v2"), 0);
}

TEST(waits_that_end_at_once_are_not_repeated_at_once)
{
	uint64_t before;

	sim_text(TWO_GPUS);
	sim_open();
	sim_fault("nvmlEventSetWait_v2", -1, ABI_TIMEOUT);
	begin(2);
	before = sim_calls("nvmlEventSetWait_v2");
	for (unsigned i = 0; i < 300; i++)
		nap();
	assert_true(sim_calls("nvmlEventSetWait_v2") - before < 30);
	sim_fault("nvmlEventSetWait_v2", -1, 0);
}

TEST(a_hanging_wait_is_abandoned_and_reports_no_more_events)
{
	unsigned before = threads();

	sim_text(TWO_GPUS XID(3, 0, 31));
	sim_open();
	begin(2);
	sim_hang("nvmlEventSetWait_v2", -1);
	sim_step(NS_PER_S + NS_PER_MS); /* the current wait ends, the next one hangs */
	until(sim_calls("nvmlEventSetWait_v2") > 1);
	assert_int_equal(event_watch_free(watch), -GW_E_STATE);
	watch = NULL;
	sim_step(10 * NS_PER_S);
	sim_unhang();
	time_runs();
	until(threads() == before + 1); /* only the stepper is left */
	assert_int_equal(reported_count(), 0);
}

static struct gw_ctx
	*volatile left_behind; /* still reachable, so that it is not reported as a leak */

TEST(a_context_in_which_a_wait_hangs_stays_open_and_is_left_when_closed)
{
	unsigned before = threads();

	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 200 * NS_PER_MS);
	begin(2);
	sim_hang("nvmlEventSetWait_v2", -1);
	sim_step(NS_PER_S);
	until(sim_calls("nvmlEventSetWait_v2") > 1);
	assert_int_equal(gw_ctx_release(sim.ctx), -GW_E_STATE);
	assert_int_equal(sim_take(GW_TIER_FAST, 0)->state, GW_DEVICE_OK);
	assert_int_equal(event_watch_free(watch), -GW_E_STATE);
	watch = NULL;
	left_behind = sim.ctx;
	sim_close();
	assert_int_equal(sim_calls("nvmlShutdown"), 0);
	sim_unhang();
	time_runs();
	until(threads() <= before + 1);
}

TEST(a_gpu_that_sleeps_is_not_woken)
{
	char root[] = "/tmp/gpuward-watch-XXXXXX", cmd[600];
	const char *why;

	assert_non_null(mkdtemp(root));
	snprintf(cmd, sizeof(cmd),
		 "d=%s/sys/bus/pci/devices/0000:01:00.0; mkdir -p $d/power; echo 0x10de > "
		 "$d/vendor; echo 0x2684 > $d/device; echo 0x030000 > $d/class; "
		 "echo suspended > $d/power/runtime_status",
		 root);
	assert_int_equal(system(cmd), 0);
	sim_text("[[gpu]]\nprofile = \"laptop\"\n");
	sim_open_with(root, 0, 0);
	assert_int_equal(event_watch_new(sim.ctx, on_event, &reported, &watch), 0);
	time_runs();
	until(listening() == 0 && event_watch_status(watch, &why) == 0 &&
	      strstr(why, "not open"));
	until(sim_now_ns() > 30 * NS_PER_S);
	assert_int_equal(sim_calls(NULL), 0);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", root);
	assert_int_equal(system(cmd), 0);
}

TEST(a_context_without_nvidia_has_no_watch)
{
	struct gw_options o = { .size = sizeof(o), .backend = "none" };

	assert_int_equal(gw_open(&o, &sim.ctx), 0);
	assert_int_equal(event_watch_new(sim.ctx, on_event, &reported, &watch),
			 -GW_E_NOSUPPORT);
	assert_int_equal(event_watch_new(NULL, on_event, &reported, &watch), -GW_E_ARG);
	assert_int_equal(event_watch_free(NULL), 0);
}

TEST_MAIN(sim_setup, NULL)
