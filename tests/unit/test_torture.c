/* Makes each allocation fail once in open, list, snapshot, processes, environment, diagnosis,
 * meter, recorded window and baseline. The right error must be returned, and nothing may leak.
 * The linker option --wrap replaces malloc in our own objects; the simulator and libc keep the
 * real malloc. */
#include "simtest.h"
#include "here.h"

#include <stdatomic.h>

static atomic_long until_failure; /* 0: never */
static atomic_ulong allocations;
static atomic_long alive;

static bool fails_now(void)
{
	allocations++;
	return until_failure > 0 && atomic_fetch_sub(&until_failure, 1) == 1;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n)
{
	void *p = fails_now() ? NULL : __real_malloc(n);

	alive += p != NULL;
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p = fails_now() ? NULL : __real_calloc(n, size);

	alive += p != NULL;
	return p;
}

void *__wrap_realloc(void *old, size_t n)
{
	void *p = fails_now() ? NULL : __real_realloc(old, n);

	alive += p != NULL && old == NULL;
	return p;
}

char *__wrap_strdup(const char *s)
{
	char *p = fails_now() ? NULL : __real_strdup(s);

	alive += p != NULL;
	return p;
}

void __wrap_free(void *p)
{
	alive -= p != NULL;
	__real_free(p);
}

static const char world[] = "[[gpu]]\nprofile = \"h200\"\ncount = 3\n"
			    "[[gpu.process]]\nname = \"w\"\nmemory = \"1 GiB\"\ncount = 70\n";

/* Uses the library as a program would; returns the first error. */
static int everything(uint64_t deadline_ns)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path,
				.deadline_ns = deadline_ns };
	struct gw_environment *env = NULL;
	struct gw_diagnosis *diagnosis = NULL;
	struct gw_process_list *list = NULL;
	struct gw_snapshot *snap = NULL;
	struct gw_ctx *ctx = NULL;
	int err = context_open(&o, &sim.clock, &ctx);

	if (!err)
		err = gw_snapshot_new(ctx, &snap);
	if (!err)
		err = gw_snapshot_take(snap, GW_TIERS_ALL);
	if (!err)
		err = gw_process_list_new(ctx, &list);
	if (!err)
		err = gw_process_list_take(list);
	if (!err)
		err = gw_environment_new(ctx, &env);
	if (!err)
		err = gw_diagnosis_new(snap, &diagnosis);
	if (!err) {
		assert_int_equal(gw_snapshot_device_count(snap), 3);
		assert_int_equal(gw_process_list_count(list), 210);
	}
	gw_diagnosis_free(diagnosis);
	gw_environment_free(env);
	gw_process_list_free(list);
	gw_snapshot_free(snap);
	gw_close(ctx);
	return err;
}

/* Measures as a program would: records a window, and applies a short baseline to it. Returns
 * the first error. */
static int measure(uint64_t deadline_ns)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path,
				.deadline_ns = deadline_ns };
	struct gw_meter_options mo = { .size = sizeof(mo),
				       .flags = GW_METER_MANUAL | GW_METER_PROCESSES,
				       .cache_dir = "" };
	struct gw_baseline_options bo = { .size = sizeof(bo), .max_s = 2, .min_s = 2 };
	struct gw_net_energy net = { .size = sizeof(net) };
	struct gw_meter *meter = NULL;
	struct gw_window *window = NULL;
	struct gw_baseline *baseline = NULL;
	struct gw_ctx *ctx = NULL;
	int err = context_open(&o, &sim.clock, &ctx);

	if (!err)
		err = gw_meter_start(ctx, &mo, &meter);
	if (!err)
		err = gw_baseline_take(meter, 0, &bo, &baseline);
	if (!err)
		err = gw_window_open_recorded(meter, "w", 0, 1000, &window);
	if (!err) {
		sim_run_for(meter, 1);
		err = gw_window_close(window, 0);
	}
	if (!err)
		err = gw_window_wait(window, 5 * NS_PER_S);
	if (!err)
		err = gw_baseline_apply(meter, gw_window_energy(window, 0), baseline, NULL,
					&net);
	if (!err) {
		assert_true(gw_window_series(window, 0)->power_count > 40);
		assert_true(net.net.best < gw_window_energy(window, 0)->joules.best);
	}
	/* the error sentence of the context is about this failure */
	if (err == -GW_E_NOMEM && ctx)
		assert_in(gw_ctx_error(ctx), "memory");
	/* A list of processes for which there is no memory is reported as incomplete. */
	if (!err && strstr(baseline->evidence, "processes on the GPU are not visible"))
		err = -GW_E_NOMEM;
	gw_baseline_free(baseline);
	gw_window_free(window);
	gw_meter_stop(meter);
	gw_close(ctx);
	return err;
}

static void fail_each_in_turn(const char *text, int (*use)(uint64_t deadline_ns),
			      uint64_t deadline_ns)
{
	unsigned before;
	long n;

	sim_text(text);
	assert_int_equal(use(deadline_ns), 0);
	before = open_descriptors();
	for (n = 1; n < 10000; n++) {
		long had = alive;
		int err;

		until_failure = n;
		err = use(deadline_ns);
		/* fewer than n allocations were made: each has failed once */
		if (until_failure > 0) {
			until_failure = 0;
			assert_int_equal(err, 0);
			break;
		}
		if (err != -GW_E_NOMEM)
			fail_msg("allocation %ld failed and the answer was %d", n, err);
		if (alive != had)
			fail_msg("allocation %ld failed and %ld blocks stay", n,
				 (long)alive - had);
		assert_int_equal(open_descriptors(), before);
	}
	assert_true(n > 10);
	print_message("%ld allocations, each failed once\n", n - 1);
}

SIM_TEST(each_allocation_failing_in_turn_gives_no_memory_and_no_leak)
{
	fail_each_in_turn(world, everything, 0);
}

SIM_TEST(each_allocation_failing_in_turn_is_handled_with_call_threads_too)
{
	fail_each_in_turn(world, everything, 10 * NS_PER_S);
}

SIM_TEST(each_allocation_of_a_measurement_failing_in_turn_is_handled)
{
	fail_each_in_turn("[[gpu]]\nprofile = \"h200\"\n", measure, 0);
}

SIM_TEST(the_sampling_path_of_a_recorded_window_allocates_nothing)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };
	struct gw_meter *meter;
	struct gw_window *window;
	unsigned long before;

	sim_start(world);
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	assert_int_equal(gw_window_open_recorded(meter, "w", 0, 100, &window), 0);
	sim_run_for(meter, 1);
	before = allocations;
	/* the series has room for 100 samples; further samples are dropped */
	sim_run_for(meter, 30);
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
	assert_true(gw_window_series(window, 2)->dropped > 1000);
	assert_int_equal(allocations, before);
	gw_meter_stop(meter); /* also frees the windows */
}

SIM_TEST(a_warm_snapshot_allocates_nothing)
{
	unsigned long before;

	sim_start(world);
	for (int i = 0; i < 3; i++) {
		sim_step(20 * NS_PER_S);
		sim_take(GW_TIERS_ALL, 0);
	}
	before = allocations;
	for (int i = 0; i < 1000; i++) {
		sim_step(100 * NS_PER_MS);
		sim_take(GW_TIERS_ALL, 0);
	}
	assert_int_equal(allocations, before);
}

TEST_MAIN(sim_setup, NULL)
