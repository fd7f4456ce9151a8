/* Tests settings of simulated GPUs: changed, verified, restored, refused. */
#include "simtest.h"
#include "tree.h"

#include "device/manage.h"

#include <math.h>

#define H200   "[[gpu]]\nprofile = \"h200\"\nnoise = 0\necc_corrected = 7\necc_uncorrected = 2\n"
#define LOADED H200 "[[gpu.load]]\nkind = \"constant\"\nlevel = 1\n"

static struct manage_result got;
static unsigned keeps;
static double kept_before[2];

/* Carries out a change, and stores the old value if that is necessary. */
static int run(const struct manage_change *o)
{
	manage_run(sim.ctx, o, NULL, &got);
	if (got.outcome != MANAGE_UNSTORED)
		return got.error;
	keeps++;
	memcpy(kept_before, got.before, sizeof(kept_before));
	return manage_run(sim.ctx, o, kept_before, &got);
}

static void world_with_deadline(const char *text, uint64_t deadline_ns)
{
	keeps = 0;
	sim_close();
	sim_text(text);
	sim_open_with(NULL, 0, deadline_ns);
	sim_take(GW_TIERS_COMMON, 0);
}

static void world(const char *text)
{
	world_with_deadline(text, 0);
}

static struct manage_change change(enum manage_what what, double a, double b)
{
	struct manage_change o = { .what = what,
				   .value = { a, b },
				   .ours = { NAN, NAN },
				   .earlier = { NAN, NAN },
				   .who = "test" };

	snprintf(o.uuid, sizeof(o.uuid), "%s",
		 gw_device_text(gw_snapshot_device(sim.snap, 0), GW_T_UUID));
	return o;
}

static int set(enum manage_what what, double a, double b)
{
	struct manage_change o = change(what, a, b);

	return run(&o);
}

static int put_back(enum manage_what what, double old, double ours, double earlier)
{
	struct manage_change o = change(what, old, NAN);

	o.restore = o.kept = true;
	o.ours[0] = ours;
	o.earlier[0] = earlier;
	return run(&o);
}

static double now(unsigned q)
{
	return sim_value(sim_take(GW_TIERS_COMMON | GW_TIER_HEALTH | GW_TIER_LIMITS, 0), q);
}

#define assert_says(part)                                                  \
	do {                                                               \
		if (!strstr(got.message, part))                            \
			fail_msg("'%s' is not in: %s", part, got.message); \
	} while (0)

SIM_TEST(a_power_limit_is_set_and_the_gpu_draws_less)
{
	world(LOADED);
	sim_step(10 * NS_PER_S);
	assert_true(sim_true_watts(0) > 600);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_true(got.outcome == MANAGE_CHANGED && got.verified);
	assert_true(got.before[0] == 700 && got.after[0] == 400);
	assert_string_equal(got.message, "the power limit is 400 W now; it was 700 W");
	assert_int_equal(keeps, 1);
	assert_true(kept_before[0] == 700);
	/* The new value is visible at once, before its tier is due. */
	assert_true(now(GW_Q_POWER_LIMIT) == 400);
	sim_step(10 * NS_PER_S);
	assert_true(sim_true_watts(0) < 410);
}

SIM_TEST(a_value_that_is_already_set_is_not_set_again)
{
	world(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 700, NAN), 0);
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);
	assert_true(got.verified && got.after[0] == 700);
	assert_says("already");
	assert_int_equal(keeps, 0);
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit_v2"), 0);
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit"), 0);
}

SIM_TEST(a_value_out_of_bounds_is_refused_with_the_bounds)
{
	world(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 900, NAN), -GW_E_ARG);
	assert_says("from 200 W to 700 W");
	assert_says("900 W is outside");
	assert_non_null(got.remedy);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 199, NAN), -GW_E_ARG);
	assert_int_equal(set(MANAGE_POWER_LIMIT, NAN, NAN), -GW_E_ARG);
	assert_int_equal(set(MANAGE_POWER_LIMIT, -400, NAN), -GW_E_ARG);
	assert_int_equal(set(MANAGE_GPU_CLOCKS, 210e6, 2500e6), -GW_E_ARG);
	assert_says("to 1980 MHz");
	assert_int_equal(set(MANAGE_GPU_CLOCKS, 900e6, 210e6), -GW_E_ARG);
	assert_int_equal(set(MANAGE_GPU_CLOCKS, 10, 900e6), -GW_E_ARG);
	assert_int_equal(set(MANAGE_COMPUTE_MODE, 1, NAN), -GW_E_ARG);
	assert_int_equal(set(MANAGE_PERSISTENCE, 2, NAN), -GW_E_ARG);
	assert_int_equal(keeps, 0);
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit_v2"), 0);
	assert_int_equal(sim_calls("nvmlDeviceSetGpuLockedClocks"), 0);
}

SIM_TEST(modes_are_set)
{
	world(H200);
	assert_int_equal(set(MANAGE_PERSISTENCE, 0, NAN), 0);
	assert_true(got.before[0] == 1 && got.after[0] == 0 && got.verified);
	assert_true(now(GW_Q_PERSISTENCE) == 0);
	assert_int_equal(set(MANAGE_COMPUTE_MODE, 3, NAN), 0);
	assert_says("compute mode is exclusive_process now; it was default");
	assert_true(now(GW_Q_COMPUTE_MODE) == 3);
}

SIM_TEST(locked_clocks_apply_and_are_reported_as_unverified)
{
	struct manage_change o;

	world(LOADED);
	sim_step(NS_PER_S);
	assert_true(now(GW_Q_CLOCK_SM) > 1500e6);
	assert_int_equal(set(MANAGE_GPU_CLOCKS, 210e6, 900e6), 0);
	assert_true(got.outcome == MANAGE_CHANGED && !got.verified && isnan(got.before[0]));
	assert_int_equal(keeps, 1);
	sim_step(NS_PER_S);
	assert_true(now(GW_Q_CLOCK_SM) == 900e6);
	assert_int_equal(set(MANAGE_MEMORY_CLOCKS, 1500e6, 1500e6), 0);
	sim_step(NS_PER_S);
	assert_true(now(GW_Q_CLOCK_MEMORY) == 1500e6);

	o = change(MANAGE_GPU_CLOCKS, NAN, NAN);
	o.restore = true;
	assert_int_equal(run(&o), 0);
	assert_says("was removed");
	sim_step(10 * NS_PER_S);
	assert_true(now(GW_Q_CLOCK_SM) > 1500e6);
	assert_int_equal(keeps, 2);
}

SIM_TEST(volatile_ecc_counts_are_cleared_and_aggregate_ones_stay)
{
	world(H200);
	assert_int_equal(set(MANAGE_CLEAR_ECC, NAN, NAN), 0);
	assert_true(got.before[0] == 7 && got.before[1] == 2);
	assert_true(got.after[0] == 0 && got.after[1] == 0 && got.verified);
	assert_true(now(GW_Q_ECC_CORRECTED) == 0 && now(GW_Q_ECC_UNCORRECTED) == 0);
	assert_true(now(GW_Q_ECC_CORRECTED_LIFE) == 7);
	assert_int_equal(keeps, 0);
	assert_int_equal(set(MANAGE_CLEAR_ECC, NAN, NAN), 0); /* again */
}

SIM_TEST(a_setter_without_effect_is_detected)
{
	world(H200
	      "[[fault]]\ncall = \"nvmlDeviceSetPowerManagementLimit_v2\"\nvalue = 700000\n"
	      "[[fault]]\ncall = \"nvmlDeviceSetPersistenceMode\"\nvalue = 1\n"
	      "[[fault]]\ncall = \"nvmlDeviceClearEccErrorCounts\"\nvalue = 1\n");
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_STATE);
	assert_string_equal(
		got.message,
		"the driver accepted the change, but the power limit is still 700 W");
	assert_true(got.outcome == MANAGE_CHANGED && !got.verified && got.after[0] == 700);
	assert_int_equal(set(MANAGE_PERSISTENCE, 0, NAN), -GW_E_STATE);
	assert_says("persistence mode is still on");
	assert_int_equal(set(MANAGE_CLEAR_ECC, NAN, NAN), -GW_E_STATE);
	assert_says("7 corrected and 2 uncorrected");
}

SIM_TEST(without_permission_the_remedy_names_root)
{
	world("[driver]\nprivileged = false\n" H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_PERM);
	assert_says("nvmlDeviceSetPowerManagementLimit_v2: NO_PERMISSION");
	assert_in(got.remedy, "root");
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
}

TEST(the_required_user_is_read_from_the_kernel)
{
	struct tree t;

	tree_init(&t);
	assert_true(manage_privileged(&t.root, 0));
	assert_false(manage_privileged(&t.root, 1000)); /* no such file */
	tree_put(&t, "proc/self/status",
		 "Name:\tx\nCapPrm:\t000001ffffffffff\n"
		 "CapEff:\t0000000000000000\n");
	assert_false(manage_privileged(&t.root, 1000));
	tree_put(&t, "proc/self/status", "Name:\tx\nCapEff:\t0000000000200000\n");
	assert_true(manage_privileged(&t.root, 1000));
	tree_done(&t);
}

SIM_TEST(settings_that_gpu_or_driver_lack_are_not_supported)
{
	world("[driver]\nmissing = [\"nvmlDeviceSetPowerManagementLimit_v2\", "
	      "\"nvmlDeviceSetPowerManagementLimit\"]\n" H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_NOSUPPORT);
	assert_says("this driver has no call for it");
	sim_close();
	world("[[gpu]]\nprofile = \"t4\"\n"); /* Turing: no lock of memory clocks */
	assert_int_equal(set(MANAGE_MEMORY_CLOCKS, 405e6, 405e6), -GW_E_NOSUPPORT);
	assert_says("NOT_SUPPORTED");
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);
}

SIM_TEST(an_older_driver_is_asked_by_its_older_call)
{
	world("[driver]\nmissing = [\"nvmlDeviceSetPowerManagementLimit_v2\"]\n" H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 450.5, NAN), 0);
	assert_true(got.after[0] == 450.5);
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit"), 1);
}

SIM_TEST(codes_of_setters_become_errors)
{
	static const struct {
		int code, error;
	} rows[] = {
		{ ABI_INVALID_ARGUMENT, -GW_E_ARG }, { ABI_IN_USE, -GW_E_STATE },
		{ ABI_UNKNOWN, -GW_E_IO },           { ABI_TIMEOUT, -GW_E_TIMEOUT },
		{ ABI_GPU_IS_LOST, -GW_E_LOST },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		world(H200);
		sim_fault("nvmlDeviceSetComputeMode", 0, rows[i].code);
		assert_int_equal(set(MANAGE_COMPUTE_MODE, 2, NAN), rows[i].error);
		assert_says("nvmlDeviceSetComputeMode: ");
		sim_close();
	}
	world(H200);
}

SIM_TEST(an_unknown_gpu_is_reported)
{
	struct manage_change o;

	world(H200);
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	snprintf(o.uuid, sizeof(o.uuid), "GPU-nobody");
	assert_int_equal(manage_run(sim.ctx, &o, NULL, &got), -GW_E_NODEV);
	o.what = MANAGE_WHATS;
	assert_int_equal(manage_run(sim.ctx, &o, NULL, &got), -GW_E_ARG);
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	assert_int_equal(manage_run(sim.ctx, &o, NULL, &got), -GW_E_STATE);
}

SIM_TEST(a_setting_is_not_changed_before_its_present_value_is_stored)
{
	const double *const stored[] = { NULL, (double[]){ 650, NAN } };
	struct manage_change o;

	world(H200);
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	for (size_t i = 0; i < COUNT_OF(stored); i++) {
		assert_int_equal(manage_run(sim.ctx, &o, stored[i], &got), 0);
		assert_int_equal(got.outcome, MANAGE_UNSTORED);
		assert_true(got.before[0] == 700 && got.message[0] == '\0');
		assert_true(now(GW_Q_POWER_LIMIT) == 700);
	}
	assert_int_equal(manage_run(sim.ctx, &o, got.before, &got), 0);
	assert_int_equal(got.outcome, MANAGE_CHANGED);
	assert_true(now(GW_Q_POWER_LIMIT) == 400);
}

SIM_TEST(a_permanent_change_is_not_recorded)
{
	struct manage_change o;

	world(H200);
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	o.keep = true;
	assert_int_equal(run(&o), 0);
	assert_int_equal(keeps, 0);
	assert_true(got.outcome == MANAGE_CHANGED);
}

SIM_TEST(the_old_value_is_restored_unless_someone_else_changed_it)
{
	world(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_int_equal(put_back(MANAGE_POWER_LIMIT, 650, 400, NAN), 0);
	assert_true(now(GW_Q_POWER_LIMIT) == 650);
	/* 650 W is set already */
	assert_int_equal(put_back(MANAGE_POWER_LIMIT, 650, 400, NAN), 0);
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);

	assert_int_equal(set(MANAGE_POWER_LIMIT, 500, NAN),
			 0); /* another program changes the limit */
	assert_int_equal(put_back(MANAGE_POWER_LIMIT, 650, 400, NAN), -GW_E_STATE);
	assert_true(got.outcome == MANAGE_FOREIGN);
	assert_says("is 500 W; someone else changed it after gpuward set it to 400 W");
	assert_true(now(GW_Q_POWER_LIMIT) == 500);
	/* The change to 400 W was recorded, but not made. */
	assert_int_equal(put_back(MANAGE_POWER_LIMIT, 650, 400, 500), 0);
	assert_true(now(GW_Q_POWER_LIMIT) == 650);
}

SIM_TEST(without_a_recorded_value_the_default_of_the_driver_is_set)
{
	struct manage_change o;

	world(H200);
	set(MANAGE_POWER_LIMIT, 300, NAN);
	set(MANAGE_COMPUTE_MODE, 2, NAN);
	o = change(MANAGE_POWER_LIMIT, NAN, NAN);
	o.restore = true;
	assert_int_equal(run(&o), 0);
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	o.what = MANAGE_COMPUTE_MODE;
	assert_int_equal(run(&o), 0);
	assert_true(now(GW_Q_COMPUTE_MODE) == 0);
	o.what = MANAGE_PERSISTENCE;
	assert_int_equal(run(&o), 0);
	assert_says("nothing to restore");
	assert_true(now(GW_Q_PERSISTENCE) == 1);
}

SIM_TEST(a_setter_that_hangs_does_not_hang_the_caller)
{
	struct manage_change o;
	uint64_t calls;

	world_with_deadline("[[gpu]]\nprofile = \"h200\"\ncount = 2\n", 200 * NS_PER_MS);
	sim_hang("nvmlDeviceSetPowerManagementLimit_v2", 0);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_TIMEOUT);
	assert_true(got.outcome == MANAGE_UNCERTAIN && got.before[0] == 700);
	assert_says("nvmlDeviceSetPowerManagementLimit_v2 has not returned");
	assert_says("it is unknown whether the setting changed");
	calls = sim_calls(NULL);
	assert_int_equal(set(MANAGE_PERSISTENCE, 0, NAN), -GW_E_TIMEOUT);
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);
	assert_says("nothing was changed");
	assert_int_equal(sim_calls(NULL), calls); /* no second thread was started */
	/* The other GPU answers. */
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	snprintf(o.uuid, sizeof(o.uuid), "%s",
		 gw_device_text(gw_snapshot_device(sim.snap, 1), GW_T_UUID));
	assert_int_equal(run(&o), 0);
	sim_unhang();
	while (set(MANAGE_PERSISTENCE, 0, NAN) == -GW_E_TIMEOUT)
		;
	assert_int_equal(got.error, 0);
}

SIM_TEST(an_order_cancelled_while_it_waits_is_never_carried_out)
{
	struct slot *s;

	world_with_deadline(H200, 100 * NS_PER_MS);
	s = sim.ctx->slot[0];
	slot_take(s); /* take the lock, like a sampler with a hanging call */
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_TIMEOUT);
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);
	slot_give(s);
	assert_true(call_thread_wait(s->thread, clock_mono_ns(clock_real()) + 10 * NS_PER_S));
	assert_int_equal(sim_calls("nvmlDeviceGetPowerManagementLimit"), 0); /* not read */
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit_v2"), 0);
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
}

SIM_TEST(an_order_cancelled_after_its_old_value_was_stored_is_never_carried_out)
{
	struct manage_change o;
	struct slot *s;

	world_with_deadline(H200, 100 * NS_PER_MS);
	s = sim.ctx->slot[0];
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	assert_int_equal(manage_run(sim.ctx, &o, NULL, &got), 0);
	assert_int_equal(got.outcome, MANAGE_UNSTORED);
	slot_take(s); /* take the lock, like a sampler with a hanging call */
	assert_int_equal(manage_run(sim.ctx, &o, (double[]){ 700, NAN }, &got), -GW_E_TIMEOUT);
	assert_int_equal(got.outcome, MANAGE_UNCHANGED);
	assert_says("nothing was changed");
	slot_give(s);
	assert_true(call_thread_wait(s->thread, clock_mono_ns(clock_real()) + 10 * NS_PER_S));
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit_v2"), 0);
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
}

TEST(setting_names_and_texts_match)
{
	char text[64];

	for (unsigned i = 0; i < MANAGE_WHATS; i++)
		assert_int_equal(manage_find(manage_info(i)->word), i);
	assert_int_equal(manage_find("fan"), MANAGE_WHATS);
	assert_null(manage_info(MANAGE_WHATS));
	manage_text(MANAGE_GPU_CLOCKS, (double[]){ 210e6, 1980e6 }, text, sizeof(text));
	assert_string_equal(text, "210 MHz to 1980 MHz");
	manage_text(MANAGE_PERSISTENCE, (double[]){ NAN, NAN }, text, sizeof(text));
	assert_string_equal(text, "unknown");
	assert_true(manage_same(MANAGE_POWER_LIMIT, (double[]){ 400.0004, 0 },
				(double[]){ 400, NAN }));
	assert_false(manage_same(MANAGE_POWER_LIMIT, (double[]){ 400.001, 0 },
				 (double[]){ 400, 0 }));
	assert_false(
		manage_same(MANAGE_POWER_LIMIT, (double[]){ NAN, 0 }, (double[]){ 400, 0 }));
}

TEST_MAIN(sim_setup, NULL)
