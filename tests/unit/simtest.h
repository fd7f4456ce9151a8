/* simtest: a context over the simulator, in stepped time, for tests of the NVML backend. */
#ifndef GW_TESTS_SIMTEST_H
#define GW_TESTS_SIMTEST_H

#include "device/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct simtest {
	void *lib;
	char path[512];
	int (*load)(const char *scenario, char *error, size_t size);
	int (*load_text)(const char *name, const char *text, char *error, size_t size);
	uint64_t (*now_ns)(void);
	uint64_t (*wall_ns)(void);
	void (*stepped)(void);
	void (*step)(uint64_t ns);
	uint64_t (*calls)(const char *symbol);
	void (*fault)(const char *symbol, int device, int code);
	void (*hang)(const char *symbol, int device);
	void (*unhang)(void);
	int (*process)(unsigned device, uint32_t pid, uint64_t bytes, int graphics);
	struct clock clock;
	struct gw_ctx *ctx;
	struct gw_snapshot *snap;
};

static struct simtest sim;

static uint64_t sim_mono(void *ctx)
{
	(void)ctx;
	return sim.now_ns() + NS_PER_S; /* 0 would mean "never" to tier stamps */
}

static uint64_t sim_wall(void *ctx)
{
	(void)ctx;
	return sim.wall_ns();
}

static int sim_setup(void **state)
{
	const char *build = getenv("GPUWARD_TEST_BUILD");
	const struct {
		const char *name;
		void *to;
	} rows[] = {
		{ "gpuward_sim_load", &sim.load },
		{ "gpuward_sim_load_text", &sim.load_text },
		{ "gpuward_sim_now_ns", &sim.now_ns },
		{ "gpuward_sim_wall_ns", &sim.wall_ns },
		{ "gpuward_sim_stepped", &sim.stepped },
		{ "gpuward_sim_step", &sim.step },
		{ "gpuward_sim_calls", &sim.calls },
		{ "gpuward_sim_fault", &sim.fault },
		{ "gpuward_sim_hang", &sim.hang },
		{ "gpuward_sim_unhang", &sim.unhang },
		{ "gpuward_sim_process", &sim.process },
	};

	(void)state;
	snprintf(sim.path, sizeof(sim.path), "%s/sim/libnvidia-ml.so.1",
		 build ? build : "build");
	sim.lib = dlopen(sim.path, RTLD_NOW | RTLD_LOCAL);
	if (!sim.lib) {
		fprintf(stderr, "%s\n", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *sym = dlsym(sim.lib, rows[i].name);

		if (!sym)
			return -1;
		memcpy(rows[i].to, &sym, sizeof(sym));
	}
	sim.clock = (struct clock){ sim_mono, sim_wall, NULL };
	return 0;
}

/* Loads a scenario from text, stepped. */
static inline void sim_text(const char *text)
{
	char error[512] = "";

	if (sim.load_text("test", text, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	sim.stepped();
}

static inline void sim_scenario(const char *name)
{
	char error[512] = "";

	if (sim.load(name, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	sim.stepped();
}

static inline void sim_open_with(const char *root, unsigned flags, uint64_t deadline_ns)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim.path,
				.root = root,
				.flags = flags,
				.deadline_ns = deadline_ns };

	assert_int_equal(context_open(&o, &sim.clock, &sim.ctx), 0);
	assert_int_equal(gw_snapshot_new(sim.ctx, &sim.snap), 0);
}

static inline void sim_open(void)
{
	sim_open_with(NULL, 0, 0);
}

static inline void sim_close(void)
{
	gw_snapshot_free(sim.snap);
	gw_close(sim.ctx);
	sim.snap = NULL;
	sim.ctx = NULL;
}

/* After a failed test too: the next one begins without clients. */
static inline int sim_teardown(void **state)
{
	(void)state;
	sim.unhang();
	sim_close();
	return 0;
}

#define sim_test(f) cmocka_unit_test_teardown(f, sim_teardown)

static inline const struct gw_device *sim_take(unsigned tiers, unsigned device)
{
	assert_int_equal(gw_snapshot_take(sim.snap, tiers), 0);
	return gw_snapshot_device(sim.snap, device);
}

static inline double sim_value(const struct gw_device *d, unsigned q)
{
	double v = -1;
	enum gw_absence why = gw_device_value(d, q, &v);

	if (why != GW_HAVE)
		fail_msg("%s is absent: %s", gw_quantity_info(q)->key, gw_absence_key(why));
	return v;
}

#define assert_absent(d, q, reason)                                                  \
	do {                                                                         \
		double unused_;                                                      \
		assert_string_equal(gw_absence_key(gw_device_value(d, q, &unused_)), \
				    gw_absence_key(reason));                         \
	} while (0)

#endif
