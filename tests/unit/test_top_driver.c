/* Tests how often `gpuward top` makes expensive driver calls, over the simulator. */
#include "simtest.h"

#include "cli/cli.h"
#include "cli/top_driver.h"

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
		/* per GPU: at the start, after 1 s, then every 5 s */
		assert_in_range(energy, 2 * 12, 2 * 13);
		/* about every 2 s */
		assert_in_range(processes, 2 * 28, 2 * 32);
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
	assert_true(model.gpu[0].energy_s == 11);
	assert_true(model.gpu[0].energy_j > 0 && !isnan(model.process[0].sm_ratio));
}

TEST_MAIN(sim_setup, NULL)
