/* sim: opens the simulator as any client opens NVML: dlopen and dlsym. */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../sim/gpuward-sim.h"
#include "device/nvml_abi.h"

/* clang-format off */
#define SIM_CONTROL(N)                                                                            \
	N(load) N(load_text) N(scenarios) N(describe) N(now_ns) N(wall_ns) N(stepped) N(step)      \
	N(calls) N(fault) N(hang) N(unhang) N(true_watts) N(true_joules) N(process)
/* clang-format on */

#define SIM_POINTER(name) \
	static __typeof__(gpuward_sim_##name) *sim_##name __attribute__((unused));
SIM_CONTROL(SIM_POINTER)
#define NVML_POINTER(name, symbol, args) \
	static abi_return(*nvml_##name) args __attribute__((unused));
NVML_CALLS(NVML_POINTER)

static void *sim_library;
static char sim_path[4096];

/* Returns 0, or -1 with a message on stderr. */
static inline int sim_library_open(void)
{
	const char *build = getenv("GPUWARD_TEST_BUILD");

	snprintf(sim_path, sizeof(sim_path), "%s/sim/libnvidia-ml.so.1",
		 build != NULL ? build : "build");
	setenv("GPUWARD_SIM", "idle-h200", 1);
	sim_library = dlopen(sim_path, RTLD_NOW | RTLD_LOCAL);
	if (sim_library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return -1;
	}
#define SIM_LOOK(name) *(void **)&sim_##name = dlsym(sim_library, "gpuward_sim_" #name);
	SIM_CONTROL(SIM_LOOK)
#define NVML_LOOK(name, symbol, args) *(void **)&nvml_##name = dlsym(sim_library, #symbol);
	NVML_CALLS(NVML_LOOK)
	return 0;
}

static inline int sim_library_setup(void **state)
{
	(void)state;
	return sim_library_open();
}

#endif
