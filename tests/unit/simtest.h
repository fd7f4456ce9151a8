/* simtest: a context over the simulator, in stepped time, for tests of the NVML backend. */
#ifndef GW_TESTS_SIMTEST_H
#define GW_TESTS_SIMTEST_H

#include "sim.h"

#include "device/context.h"

#include "test.h"

#include <unistd.h>

/* The world of most tests. */
#define TWO_GPUS                                           \
	"[[gpu]]\nprofile = \"h200\"\ncount = 2\n"         \
	"[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n" \
	"[[gpu.process]]\nname = \"worker\"\nmemory = \"2 GiB\"\npid = 4100000\n"

static struct {
	struct clock clock;
	struct gw_ctx *ctx;
	struct gw_snapshot *snap;
} sim;

static uint64_t sim_mono(void *ctx)
{
	/* time does not begin at 0, because a tier with a time of 0 counts as never read */
	return sim_now_ns() + NS_PER_S;
}

static uint64_t sim_wall(void *ctx)
{
	return sim_wall_ns();
}

static void sim_sleep(void *ctx, uint64_t mono_ns)
{
	uint64_t now = sim_mono(ctx);

	if (mono_ns > now)
		sim_step(mono_ns - now);
}

static int sim_setup(void **state)
{
	sim.clock = (struct clock){ sim_mono, sim_wall, NULL, sim_sleep };
	return sim_library_open();
}

/* Loads a scenario from text, in stepped time. */
static inline void sim_text(const char *text)
{
	char error[512] = "";

	if (sim_load_text("test", text, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	sim_stepped();
}

static inline void sim_scenario(const char *name)
{
	char error[512] = "";

	if (sim_load(name, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	sim_stepped();
}

static inline void sim_open_with(const char *root, unsigned flags, uint64_t deadline_ns)
{
	struct gw_options o = { .size = sizeof(o),
				.backend = "nvml",
				.nvml_library = sim_path,
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

/* Loads a scenario from text, or by name, and opens it with a new context. */
static inline void sim_start(const char *text)
{
	sim_close();
	sim_text(text);
	sim_open();
}

static inline void sim_start_scenario(const char *name)
{
	sim_close();
	sim_scenario(name);
	sim_open();
}

/* Runs after a failed test too, so that the next test starts without clients. */
static inline int sim_teardown(void **state)
{
	sim_unhang();
	sim_close();
	return 0;
}

#define SIM_TEST(name) TEST_WITH(name, NULL, sim_teardown)

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

/* Runs a meter without threads for this time. */
static inline void sim_run_for(struct gw_meter *m, double seconds)
{
	uint64_t until = clock_mono_ns(&sim.clock) + (uint64_t)(seconds * 1e9);

	for (;;) {
		uint64_t due = gw_meter_poll(m);

		if (due >= until)
			break;
		clock_sleep_until(&sim.clock, due);
	}
	clock_sleep_until(&sim.clock, until);
}

#endif
