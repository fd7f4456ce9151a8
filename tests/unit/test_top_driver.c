/* Tests how often `gpuward top` makes expensive driver calls, over the simulator. */
#include "simtest.h"

#include "cli/cli.h"
#include "cli/top_driver.h"
#include "device/driver_call.h"

#include <math.h>

#define ENERGY_CALL  "nvmlDeviceGetTotalEnergyConsumption"
#define PROCESS_CALL "nvmlDeviceGetProcessUtilization"

static struct cli cli;
static struct top_driver *driver;
static struct top_model model;

static int close_driver(void **state)
{
	top_driver_free(driver);
	driver = NULL;
	top_model_done(&model);
	return sim_teardown(state);
}

static void open_driver(const char *scenario)
{
	sim_start(scenario);
	cli = (struct cli){ .ctx = sim.ctx, .snap = sim.snap };
	top_model_init(&model);
	model.interval_ns = NS_PER_S / 2;
	assert_int_equal(top_driver_new(&cli, &sim.clock, &driver), 0);
}

/* Reads for some seconds, in steps of `interval_ns`. */
static void read_for(unsigned seconds, uint64_t interval_ns)
{
	for (uint64_t t = 0; t < seconds * NS_PER_S; t += interval_ns) {
		assert_int_equal(top_driver_read(driver, &model), 0);
		sim_step(interval_ns);
	}
}

TEST_WITH(expensive_calls_do_not_depend_on_the_interval_of_the_screen, NULL, close_driver)
{
	static const uint64_t intervals[] = { NS_PER_S / 10, NS_PER_S / 2, NS_PER_S };

	for (unsigned i = 0; i < COUNT_OF(intervals); i++) {
		uint64_t energy, processes;

		open_driver(TWO_GPUS);
		energy = sim_calls(ENERGY_CALL);
		processes = sim_calls(PROCESS_CALL);
		read_for(60, intervals[i]);
		energy = sim_calls(ENERGY_CALL) - energy;
		processes = sim_calls(PROCESS_CALL) - processes;
		/* per GPU: at the start, after 1, 2, 4, 8, 16, 32 and 52 s */
		assert_int_equal(energy, 2 * 8);
		/* about every 4 s */
		assert_in_range(processes, 2 * 14, 2 * 17);
		close_driver(NULL);
	}
}

TEST_WITH(processes_of_many_gpus_are_read_less_often, NULL, close_driver)
{
	open_driver("[[gpu]]\nprofile = \"h200\"\ncount = 16\n"
		    "[[gpu.process]]\nname = \"worker\"\nmemory = \"2 GiB\"\n");
	read_for(60, NS_PER_S / 2);
	assert_in_range(sim_calls(PROCESS_CALL), 1, 16 * 7);
	assert_in_range(sim_calls(ENERGY_CALL), 1, 16 * 13);
}

TEST_WITH(the_energy_is_that_since_the_first_reading, NULL, close_driver)
{
	open_driver(TWO_GPUS);
	read_for(1, NS_PER_S / 2);
	assert_true(model.gpu[0].energy_s == 0);
	read_for(12, NS_PER_S / 2);
	assert_true(model.gpu[0].energy_s == 8);
	assert_true(model.gpu[0].energy_age_s >= 1);
	assert_true(model.gpu[0].energy_j > 0 && !isnan(model.process[0].sm_ratio));
}

/* The list is read more often than the utilisation. */
TEST_WITH(a_process_keeps_its_utilisation_until_the_next_reading, NULL, close_driver)
{
	uint64_t calls;
	unsigned kept = 0;

	open_driver(TWO_GPUS);
	read_for(5, NS_PER_S / 2);
	for (unsigned i = 0; i < 40; i++) {
		calls = sim_calls(PROCESS_CALL);
		read_for(1, NS_PER_S);
		kept += calls == sim_calls(PROCESS_CALL);
		assert_int_equal(model.processes, 2);
		assert_true(model.process[0].sm_ratio >= 0);
		assert_true(model.process[1].sm_ratio >= 0);
	}
	assert_in_range(kept, 20, 35);
}

TEST_WITH(figures_that_only_the_zoom_shows_are_read_only_there, NULL, close_driver)
{
	uint64_t calls;

	open_driver(TWO_GPUS);
	read_for(5, NS_PER_S / 2);
	assert_int_equal(sim_calls("nvmlDeviceGetEncoderUtilization"), 0);
	assert_int_equal(model.gpu[0].absence[TOP_ENCODER], GW_ABSENT_NOT_READ);
	top_driver_zoom(driver, true);
	read_for(5, NS_PER_S / 2);
	calls = sim_calls("nvmlDeviceGetEncoderUtilization");
	assert_in_range(calls, 2 * 4, 2 * 6);
	assert_int_equal(model.gpu[0].absence[TOP_ENCODER], GW_HAVE);
	top_driver_zoom(driver, false);
	read_for(5, NS_PER_S / 2);
	assert_int_equal(sim_calls("nvmlDeviceGetEncoderUtilization"), calls);
	/* the last value is old now, so it is not shown */
	assert_int_equal(model.gpu[0].absence[TOP_ENCODER], GW_ABSENT_NOT_READ);
}

static const struct {
	const char *call;
	double us;
} h200_cost[] = {
#define COST(call, idle_us, loaded_us) { call, idle_us },
#define COST_OTHER(us)                 { NULL, us },
#include "h200_cost.def"
#undef COST
#undef COST_OTHER
};

static double cost_us(const char *call)
{
	unsigned i = 0;

	while (h200_cost[i].call && strcmp(h200_cost[i].call, call) != 0)
		i++;
	return h200_cost[i].us;
}

/* Returns the number of driver calls since the context was opened, and their time. */
static double all_calls(double *ret_us)
{
	struct call_cost cost[CALL_COST_CALLS];
	const unsigned n = call_cost_list(sim.ctx, cost, CALL_COST_CALLS);
	double calls = 0;

	*ret_us = 0;
	for (unsigned i = 0; i < n; i++) {
		calls += (double)cost[i].count;
		*ret_us += (double)cost[i].count * cost_us(cost[i].name);
	}
	return calls;
}

/* The screen itself costs about 0.15 % of a core (bench/run top), and the target is 0.5 %. */
TEST_WITH(with_the_times_of_an_h200_all_calls_need_0_3_percent_of_a_core, NULL, close_driver)
{
	double calls, us, first_calls, first_us, percent;

	open_driver("[[gpu]]\nprofile = \"h200\"\n"
		    "[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"
		    "[[gpu.process]]\nname = \"worker\"\nmemory = \"2 GiB\"\npid = 4100000\n");
	read_for(40, NS_PER_S / 2); /* leaves out what is read only once */
	first_calls = all_calls(&first_us);
	read_for(120, NS_PER_S / 2);
	calls = all_calls(&us) - first_calls;
	percent = 100 * (us - first_us) * 1e-6 / 120;
	print_message("%.1f driver calls per second, %.2f %% of a core\n", calls / 120,
		      percent);
	assert_true(percent <= 0.3);
}

TEST_MAIN(sim_setup, NULL)
