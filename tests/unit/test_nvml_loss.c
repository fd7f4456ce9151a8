/* Tests the NVML backend over the simulator when GPUs or the driver go away, come back, or
 * hang. */
#include "simtest.h"

#include "device/nvml.h"

#include <time.h>

static const struct gw_device *d;

SIM_TEST(a_lost_gpu_is_listed_without_figures_and_comes_back)
{
	char uuid[96];

	sim_start_scenario("lost-gpu");
	d = sim_take(GW_TIERS_COMMON, 1);
	assert_int_equal(d->state, GW_DEVICE_OK);
	snprintf(uuid, sizeof(uuid), "%s", gw_device_text(d, GW_T_UUID));
	sim_step(6 * NS_PER_S);
	d = sim_take(GW_TIERS_COMMON, 1);
	assert_int_equal(d->state, GW_DEVICE_LOST);
	assert_int_equal(d->cause, GW_CAUSE_GPU_LOST);
	assert_string_equal(gw_device_text(d, GW_T_UUID), uuid);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		assert_int_not_equal(d->value_absence[q], GW_HAVE);
	assert_int_equal(gw_snapshot_device(sim.snap, 0)->state, GW_DEVICE_OK);
	for (int i = 0; i < 90; i++) {
		sim_step(NS_PER_S);
		d = sim_take(GW_TIERS_COMMON, 1);
	}
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_true(sim_value(d, GW_Q_POWER) > 0);
	assert_string_equal(gw_device_text(d, GW_T_UUID), uuid);
}

SIM_TEST(a_driver_that_is_replaced_is_opened_again_with_back_off)
{
	uint64_t inits;

	sim_start_scenario("driver-reload");
	sim_take(GW_TIERS_COMMON, 0);
	assert_string_equal(gw_snapshot_status(sim.snap)->driver_version, "580.159.04");
	sim_step(10500 * NS_PER_MS);
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(d->state, GW_DEVICE_CLOSED);
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(gw_snapshot_status(sim.snap)->cause, GW_CAUSE_NO_DRIVER);
	assert_absent(d, GW_Q_POWER, GW_ABSENT_NO_DRIVER);
	inits = sim_calls("nvmlInit_v2");
	for (int i = 0; i < 100; i++) /* no time passes, so there is no retry */
		sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(sim_calls("nvmlInit_v2"), inits);
	for (int i = 0; i < 30; i++) {
		sim_step(NS_PER_S);
		d = sim_take(GW_TIERS_COMMON, 0);
	}
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_string_equal(gw_snapshot_status(sim.snap)->driver_version, "580.200.01");
	assert_int_equal(gw_snapshot_device_count(sim.snap), 1);
	assert_int_equal(gw_snapshot_status(sim.snap)->opens, 2);
}

SIM_TEST(a_driver_that_appears_later_is_found)
{
	sim_start("[[gpu]]\nprofile = \"t4\"\n[[fault]]\ncall = \"nvmlInit_v2\"\ncode = "
		  "9\nuntil = 20\n");
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 0);
	for (int i = 0; i < 60; i++) {
		sim_step(NS_PER_S);
		sim_take(GW_TIERS_COMMON, 0);
	}
	assert_int_equal(gw_snapshot_device_count(sim.snap), 1);
	assert_in_range(sim_calls("nvmlInit_v2"), 3, 8);
}

SIM_TEST(release_closes_every_handle_until_resume)
{
	uint64_t calls;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	assert_int_equal(sim_calls("nvmlShutdown"), sim_calls("nvmlInit_v2"));
	calls = sim_calls(NULL);
	sim_step(100 * NS_PER_S);
	d = sim_take(GW_TIERS_ALL, 0);
	assert_int_equal(sim_calls(NULL), calls);
	assert_int_equal(d->state, GW_DEVICE_CLOSED);
	assert_int_equal(d->cause, GW_CAUSE_LET_GO);
	assert_absent(d, GW_Q_POWER, GW_ABSENT_LET_GO);
	assert_int_equal(gw_snapshot_status(sim.snap)->cause, GW_CAUSE_LET_GO);
	assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_true(sim_value(d, GW_Q_POWER) > 0);
}

/* Before a driver is unloaded, the context closes it, so that another process can get the GPU.
 * After a driver was loaded, the context opens it at once. */
SIM_TEST(an_unloaded_driver_is_closed_and_a_loaded_one_is_tried_at_once)
{
	uint64_t calls;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_COMMON, 0);
	context_driver_changed(sim.ctx, true);
	assert_int_equal(sim_calls("nvmlShutdown"), sim_calls("nvmlInit_v2"));
	calls = sim_calls(NULL);
	sim_step(4 * NS_PER_S);
	assert_int_equal(sim_take(GW_TIERS_ALL, 0)->state, GW_DEVICE_CLOSED);
	assert_int_equal(sim_calls(NULL), calls);
	sim_step(2 * NS_PER_S);
	assert_int_equal(sim_take(GW_TIERS_ALL, 0)->state, GW_DEVICE_OK);
	context_driver_changed(sim.ctx, true);
	context_driver_changed(sim.ctx, false);
	assert_int_equal(sim_take(GW_TIERS_ALL, 0)->state, GW_DEVICE_OK);
}

SIM_TEST(a_loaded_driver_is_not_waited_for)
{
	sim_text(TWO_GPUS);
	sim_fault("nvmlInit_v2", -1, 9);
	sim_open();
	/* wait until the time between two attempts has grown to one minute */
	for (int i = 0; i < 7; i++) {
		sim_step(60 * NS_PER_S);
		gw_snapshot_take(sim.snap, 0);
	}
	sim_fault("nvmlInit_v2", -1, 0);
	gw_snapshot_take(sim.snap, 0);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 0);
	context_driver_changed(sim.ctx, false);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
}

SIM_TEST(a_loaded_driver_does_not_end_a_release)
{
	sim_start(TWO_GPUS);
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	context_driver_changed(sim.ctx, true);
	context_driver_changed(sim.ctx, false);
	assert_int_equal(sim_take(GW_TIERS_ALL, 0)->state, GW_DEVICE_CLOSED);
}

SIM_TEST(causes_are_distinguished)
{
	static const struct {
		int code;
		enum gw_cause cause;
	} rows[] = {
		{ 9, GW_CAUSE_NO_DRIVER },         { 4, GW_CAUSE_NO_PERMISSION },
		{ 18, GW_CAUSE_VERSION_MISMATCH }, { 999, GW_CAUSE_DRIVER_ERROR },
		{ 17, GW_CAUSE_DRIVER_ERROR },     { 12, GW_CAUSE_NO_DRIVER },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		sim_text(TWO_GPUS);
		sim_fault("nvmlInit_v2", -1, rows[i].code);
		sim_open();
		sim_take(0, 0);
		assert_int_equal(gw_snapshot_status(sim.snap)->cause, rows[i].cause);
		assert_true(strlen(gw_snapshot_status(sim.snap)->message) > 10);
		sim_close();
	}
	sim_start_scenario("no-gpu");
	sim_take(0, 0);
	assert_int_equal(gw_snapshot_status(sim.snap)->cause, GW_CAUSE_NO_GPU);
}

SIM_TEST(a_gpu_we_may_not_open_stays_in_the_list)
{
	sim_text(TWO_GPUS);
	sim_fault("nvmlDeviceGetHandleByIndex_v2", 1, 4);
	sim_open();
	d = sim_take(GW_TIERS_COMMON, 1);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
	assert_int_equal(d->state, GW_DEVICE_DENIED);
	assert_int_equal(gw_snapshot_device(sim.snap, 0)->state, GW_DEVICE_OK);
	sim_fault("nvmlDeviceGetHandleByIndex_v2", 1, 0);
	for (int i = 0; i < 10; i++) {
		sim_step(10 * NS_PER_S);
		d = sim_take(GW_TIERS_COMMON, 1);
	}
	assert_int_equal(d->state, GW_DEVICE_OK);
}

SIM_TEST(a_gpu_that_was_lost_when_opened_stays_one_gpu)
{
	d = NULL;

	for (int heals_while_open = 0; heals_while_open < 2; heals_while_open++) {
		sim_text(TWO_GPUS);
		sim_fault("nvmlDeviceGetHandleByIndex_v2", 1, 15);
		sim_open();
		d = sim_take(GW_TIERS_COMMON, 1);
		assert_int_equal(d->state, GW_DEVICE_LOST);
		sim_fault("nvmlDeviceGetHandleByIndex_v2", 1, 0);
		for (int i = 0; i < 10 * heals_while_open; i++) {
			sim_step(10 * NS_PER_S);
			d = sim_take(GW_TIERS_COMMON, 1);
		}
		assert_int_equal(gw_ctx_release(sim.ctx), 0);
		assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
		d = sim_take(GW_TIERS_COMMON, 1);
		assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
		assert_int_equal(d->state, GW_DEVICE_OK);
		assert_non_null(gw_device_text(d, GW_T_UUID));
		sim_close();
	}
}

SIM_TEST(a_gpu_that_is_lost_while_the_driver_is_opened_again_stays_one_gpu)
{
	static const char *const calls[] = { NULL, "nvmlDeviceGetHandleByIndex_v2" };
	char uuid[96];

	for (size_t i = 0; i < COUNT_OF(calls); i++) {
		sim_start(TWO_GPUS);
		d = sim_take(GW_TIERS_COMMON, 1);
		snprintf(uuid, sizeof(uuid), "%s", gw_device_text(d, GW_T_UUID));
		assert_int_equal(gw_ctx_release(sim.ctx), 0);
		sim_fault(calls[i], 1, 15);
		assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
		d = sim_take(GW_TIERS_COMMON, 1);
		assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
		assert_string_equal(gw_device_text(d, GW_T_UUID), uuid);
		if (!calls[i])
			assert_int_equal(d->state, GW_DEVICE_LOST);
		sim_fault(calls[i], 1, 0);
		for (int k = 0; k < 10; k++) {
			sim_step(10 * NS_PER_S);
			d = sim_take(GW_TIERS_COMMON, 1);
		}
		assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
		assert_int_equal(d->state, GW_DEVICE_OK);
		assert_string_equal(gw_device_text(d, GW_T_UUID), uuid);
		sim_close();
	}
}

SIM_TEST(a_device_with_only_errors_is_faulty)
{
	sim_start(TWO_GPUS);
	sim_fault(NULL, 0, 999);
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(d->state, GW_DEVICE_FAULT);
	assert_int_equal(d->cause, GW_CAUSE_DRIVER_ERROR);
	assert_int_equal(gw_snapshot_device(sim.snap, 1)->state, GW_DEVICE_OK);
	sim_fault(NULL, 0, 0);
	sim_step(NS_PER_S);
	assert_int_equal(sim_take(GW_TIERS_COMMON, 0)->state, GW_DEVICE_OK);
}

SIM_TEST(a_fault_stays_until_its_tier_is_read_without_it)
{
	sim_start(TWO_GPUS);
	sim_fault("nvmlDeviceGetTotalEccErrors", 0, 14);
	for (int i = 0; i < 12; i++) {
		assert_int_equal(sim_take(GW_TIERS_COMMON, 0)->state, GW_DEVICE_FAULT);
		sim_step(NS_PER_S);
	}
	sim_fault("nvmlDeviceGetTotalEccErrors", 0, 0);
	sim_step(10 * NS_PER_S);
	assert_int_equal(sim_take(GW_TIERS_COMMON, 0)->state, GW_DEVICE_OK);
}

SIM_TEST(a_field_without_permission_keeps_its_reason)
{
	sim_start(TWO_GPUS "[[fault]]\nfield = 185\ncode = 4\n"
			   "[[fault]]\nfield = 186\ncode = 4\n");
	for (int i = 0; i < 3; i++)
		assert_absent(sim_take(GW_TIER_FAST, 0), GW_Q_POWER_AVERAGE,
			      GW_ABSENT_NO_PERMISSION);
}

static void wait_for(struct call_thread *lane)
{
	assert_true(call_thread_wait(lane, clock_mono_ns(clock_real()) + 60 * NS_PER_S));
}

SIM_TEST(a_hung_call_stalls_its_device_and_no_other)
{
	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 600 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	sim_hang("nvmlDeviceGetUtilizationRates", 1);
	d = sim_take(GW_TIERS_COMMON, 1);
	assert_int_equal(d->state, GW_DEVICE_STALLED);
	assert_in(d->message, "nvmlDeviceGetUtilizationRates");
	assert_absent(d, GW_Q_POWER, GW_ABSENT_STALLED);
	assert_string_equal(gw_device_text(d, GW_T_NAME), "NVIDIA H200");
	d = gw_snapshot_device(sim.snap, 0);
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_true(sim_value(d, GW_Q_POWER) > 0);
	for (int i = 0; i < 20; i++) /* no calls queue up behind the hanging call */
		assert_int_equal(sim_take(GW_TIERS_COMMON, 1)->state, GW_DEVICE_STALLED);
	assert_int_equal(gw_ctx_release(sim.ctx), -GW_E_STATE);
	sim_unhang();
	wait_for(sim.ctx->slot[1]->thread);
	assert_int_equal(sim_take(GW_TIERS_COMMON, 1)->state, GW_DEVICE_OK);
}

SIM_TEST(slow_calls_that_return_do_not_stall_their_device)
{
	double first;

#define SLOW(call) "[[fault]]\ncall = \"nvmlDeviceGet" call "\"\ngpu = 1\ndelay = 0.25\n"
	sim_text(TWO_GPUS SLOW("ClockInfo") SLOW("UtilizationRates") SLOW("PerformanceState"));
	/* the reading makes five calls, which take 1.25 s together */
	sim_open_with(NULL, 0, NS_PER_S);
	d = sim_take(GW_TIER_FAST, 1); /* waits, because there is no earlier reading to show */
	assert_int_equal(d->state, GW_DEVICE_OK);
	first = sim_value(d, GW_Q_POWER);
	assert_true(first > 0);
	sim_step(10 * NS_PER_S);
	d = sim_take(GW_TIER_FAST, 1);
	/* the values and the age are those of the first reading */
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_true(sim_value(d, GW_Q_POWER) == first);
	assert_true(gw_snapshot_device(sim.snap, 0)->end_ns > d->end_ns + 9 * NS_PER_S);
	wait_for(sim.ctx->slot[1]->thread);
	d = sim_take(GW_TIER_FAST, 1); /* the reading that ended late */
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_true(gw_snapshot_device(sim.snap, 0)->end_ns < d->end_ns + 9 * NS_PER_S);
	wait_for(sim.ctx->slot[1]->thread);
}

SIM_TEST(after_a_stall_the_current_request_is_read)
{
	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 600 * NS_PER_MS);
	sim_take(0, 0);
	sim_hang("nvmlDeviceGetUtilizationRates", 1);
	assert_int_equal(sim_take(GW_TIER_FAST, 1)->state, GW_DEVICE_STALLED);
	sim_unhang();
	wait_for(sim.ctx->slot[1]->thread);
	assert_true(sim_value(sim_take(GW_TIERS_ALL, 1), GW_Q_ENERGY) >= 0);
}

SIM_TEST(release_after_a_stall_leaves_no_figure)
{
	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 600 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	sim_hang("nvmlDeviceGetUtilizationRates", 1);
	assert_int_equal(sim_take(GW_TIERS_COMMON, 1)->state, GW_DEVICE_STALLED);
	sim_unhang();
	wait_for(sim.ctx->slot[1]->thread);
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	d = sim_take(GW_TIERS_COMMON, 1);
	assert_int_equal(d->state, GW_DEVICE_CLOSED);
	assert_absent(d, GW_Q_POWER, GW_ABSENT_LET_GO);
}

SIM_TEST(a_close_that_stalls_is_followed_by_an_open)
{
	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 600 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	sim_hang("nvmlShutdown", -1);
	assert_int_equal(gw_ctx_release(sim.ctx), -GW_E_STATE);
	sim_unhang();
	wait_for(sim.ctx->opener[0]->thread);
	/* the driver was opened again; no old value is shown */
	d = sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(d->state, GW_DEVICE_OK);
	assert_int_equal(sim_calls("nvmlInit_v2"), sim_calls("nvmlShutdown") + 1);
	assert_int_equal(gw_snapshot_status(sim.snap)->opens, 2);
}

SIM_TEST(an_open_that_finishes_after_release_is_closed)
{
	for (int close = 0; close < 2; close++) {
		sim_text(TWO_GPUS);
		sim_hang("nvmlInit_v2", -1);
		sim_open_with(NULL, 0, 50 * NS_PER_MS);
		sim_unhang();
		wait_for(sim.ctx->opener[0]->thread);
		if (!close)
			assert_int_equal(gw_ctx_release(sim.ctx), 0);
		sim_close();
		assert_int_equal(sim_calls("nvmlShutdown"), sim_calls("nvmlInit_v2"));
	}
}

/* The thread sanitizer also checks here that no other thread reads what the hanging thread
 * writes. */
SIM_TEST(state_of_a_hanging_init_is_not_read)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "auto",
				.nvml_library = sim_path,
				.deadline_ns = 20 * NS_PER_MS };

	sim_text(TWO_GPUS);
	sim_hang("nvmlInit_v2", -1);
	assert_int_equal(context_open(&o, &sim.clock, &sim.ctx), 0);
	assert_int_equal(gw_snapshot_new(sim.ctx, &sim.snap), 0);
	assert_null(sim_take(0, 0));
	assert_int_equal(gw_snapshot_device_count(sim.snap), 0);
	assert_int_equal(gw_snapshot_status(sim.snap)->cause, GW_CAUSE_STALLED);
	assert_null(gw_snapshot_status(sim.snap)->driver_version);
	assert_int_equal(gw_ctx_release(sim.ctx), -GW_E_STATE);
	sim_unhang();
	wait_for(sim.ctx->opener[0]->thread);
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	assert_int_equal(sim_calls("nvmlShutdown"), sim_calls("nvmlInit_v2"));
}

SIM_TEST(a_gpu_that_hangs_on_its_name_hides_no_other)
{
	sim_text(TWO_GPUS);
	sim_hang("nvmlDeviceGetName", 1);
	sim_open_with(NULL, 0, 600 * NS_PER_MS);
	d = sim_take(0, 1);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
	assert_int_equal(d->state, GW_DEVICE_STALLED);
	assert_in(d->message, "nvmlDeviceGetName");
	assert_non_null(gw_device_text(d, GW_T_UUID));
	assert_int_equal(gw_snapshot_device(sim.snap, 0)->state, GW_DEVICE_OK);
	sim_unhang();
	for (int i = 0; i < 5000 && d->state == GW_DEVICE_STALLED; i++) {
		struct timespec ms = { 0, 1000000 };

		clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL);
		d = sim_take(0, 1);
	}
	assert_non_null(gw_device_text(d, GW_T_NAME));
	assert_string_equal(gw_device_text(d, GW_T_NAME), "NVIDIA H200");
}

SIM_TEST(an_init_that_hangs_is_named)
{
	sim_text(TWO_GPUS);
	sim_hang("nvmlInit_v2", -1);
	sim_open_with(NULL, 0, 100 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(gw_snapshot_device_count(sim.snap), 0);
	assert_int_equal(gw_snapshot_status(sim.snap)->cause, GW_CAUSE_STALLED);
	assert_in(gw_snapshot_status(sim.snap)->message, "nvmlInit_v2");
	sim_unhang();
	for (int i = 0; i < 5000 && gw_snapshot_device_count(sim.snap) == 0; i++) {
		struct timespec ms = { 0, 1000000 };

		clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL);
		sim_take(GW_TIERS_COMMON, 0);
	}
	assert_int_equal(gw_snapshot_device_count(sim.snap), 2);
}

TEST_MAIN(sim_setup, NULL)
