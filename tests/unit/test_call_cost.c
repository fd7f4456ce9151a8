/* Tests the cost of each NVML call, over the simulator. */
#include "simtest.h"

#include "device/driver_call.h"

static struct call_cost cost[CALL_COST_CALLS];

static const struct call_cost *of(const char *name)
{
	unsigned n = call_cost_list(sim.ctx, cost, CALL_COST_CALLS);

	for (unsigned i = 0; i < n; i++)
		if (strcmp(cost[i].name, name) == 0)
			return &cost[i];
	return NULL;
}

SIM_TEST(calls_are_counted_as_the_library_counts_them)
{
	uint64_t ours, theirs;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_ALL, 0);
	ours = of("nvmlDeviceGetUtilizationRates")->count;
	theirs = sim_calls("nvmlDeviceGetUtilizationRates");
	for (unsigned i = 0; i < 5; i++) {
		sim_step(NS_PER_S);
		sim_take(GW_TIER_FAST, 0);
	}
	assert_int_equal(of("nvmlDeviceGetUtilizationRates")->count - ours, 10);
	assert_int_equal(sim_calls("nvmlDeviceGetUtilizationRates") - theirs, 10);
	assert_int_equal(of("nvmlInit_v2")->count, 1);
	assert_null(of("nvmlDeviceSetComputeMode"));
}

SIM_TEST(every_call_that_was_made_has_a_time)
{
	unsigned n;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_ALL, 0);
	n = call_cost_list(sim.ctx, cost, CALL_COST_CALLS);
	assert_true(n > 20);
	for (unsigned i = 0; i < n; i++) {
		uint64_t sum = 0;

		for (unsigned k = 0; k < CALL_COST_CODES; k++)
			sum += cost[i].code[k];
		assert_int_equal(sum, cost[i].errors);
		assert_true(cost[i].count > 0 && cost[i].count >= sum);
		assert_true(cost[i].total_ns >= cost[i].max_ns && cost[i].max_ns > 0);
	}
	assert_int_equal(call_cost_list(sim.ctx, cost, 3), 3);
	assert_int_equal(call_cost_list(NULL, cost, 3), 0);
}

SIM_TEST(errors_are_counted_by_their_code)
{
	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(of("nvmlDeviceGetPowerUsage")->errors, 0);
	sim_fault("nvmlDeviceGetPowerUsage", 0, ABI_TIMEOUT);
	sim_step(NS_PER_S);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(of("nvmlDeviceGetPowerUsage")->errors, 1);
	assert_int_equal(of("nvmlDeviceGetPowerUsage")->code[ABI_TIMEOUT], 1);
	sim_fault("nvmlDeviceGetPowerUsage", 0, ABI_UNKNOWN);
	sim_step(NS_PER_S);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(of("nvmlDeviceGetPowerUsage")->code[CALL_COST_CODES - 1], 1);
	sim_fault("nvmlDeviceGetPowerUsage", 0, ABI_SUCCESS);
}

SIM_TEST(counts_outlive_a_driver_that_is_opened_again)
{
	uint64_t before;

	sim_start(TWO_GPUS);
	sim_take(GW_TIERS_COMMON, 0);
	before = of("nvmlDeviceGetPowerUsage")->count;
	assert_int_equal(gw_ctx_release(sim.ctx), 0);
	assert_int_equal(of("nvmlShutdown")->count, 1);
	assert_int_equal(of("nvmlDeviceGetPowerUsage")->count, before);
	assert_int_equal(gw_ctx_reopen(sim.ctx), 0);
	sim_take(GW_TIERS_COMMON, 0);
	assert_int_equal(of("nvmlInit_v2")->count, 2);
	assert_true(of("nvmlDeviceGetPowerUsage")->count > before);
}

SIM_TEST(costs_can_be_read_while_a_call_hangs)
{
	const struct call_cost *c;

	sim_text(TWO_GPUS);
	sim_open_with(NULL, 0, 200 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	sim_hang("nvmlDeviceGetPowerUsage", 0);
	sim_step(NS_PER_S);
	assert_int_equal(sim_take(GW_TIERS_COMMON, 0)->state, GW_DEVICE_STALLED);
	c = of("nvmlDeviceGetPowerUsage");
	assert_non_null(c);
	/* the call has not returned, so its result is unknown */
	assert_int_equal(c->errors, 0);
	/* Let the call return, so that the context can be closed. */
	sim_unhang();
	while (sim_take(GW_TIER_FAST, 0)->state == GW_DEVICE_STALLED)
		;
}

SIM_TEST(codes_have_names)
{
	assert_string_equal(call_cost_code_name(ABI_GPU_IS_LOST), "GPU_IS_LOST");
	assert_string_equal(call_cost_code_name(CALL_COST_CODES - 1), "UNKNOWN");
	assert_string_equal(call_cost_code_name(12345), "UNKNOWN");
}

TEST_MAIN(sim_setup, NULL)
