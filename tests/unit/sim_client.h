/* sim_client: the simulator as its clients use it, in stepped time. */
#ifndef TESTS_SIM_CLIENT_H
#define TESTS_SIM_CLIENT_H

#include "sim.h"
#include "test.h"

#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

static char error[512];

/* Loads a scenario from text and initialises NVML. */
static void start(const char *text)
{
	char whole[8192];

	snprintf(whole, sizeof(whole), "[time]\nmode = \"stepped\"\nwall = 1000000\n%s", text);
	if (sim_load_text("test", whole, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	assert_int_equal(nvml_init(), 0);
}

static void start_named(const char *name)
{
	if (sim_load(name, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	sim_stepped();
	assert_int_equal(nvml_init(), 0);
}

static int stop(void **state)
{
	sim_unhang();
	while (nvml_shutdown() == 0)
		;
	return 0;
}

#define TEST_TEARDOWN stop

static abi_device device(unsigned index)
{
	abi_device d = NULL;

	assert_int_equal(nvml_by_index(index, &d), 0);
	return d;
}

#endif
