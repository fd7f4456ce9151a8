/* The whole way from the simulated sensor to joules, in stepped time, against true energy. */
#include "simtest.h"

#include "measure/meter.h"

#include <math.h>

#define ONE(load) "[[gpu]]\nprofile = \"h200\"\n" load

static struct gw_meter *meter;

static void start(const char *world)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };

	sim_text(world);
	sim_step(5 * NS_PER_S); /* the ring is full */
	sim_open();
	assert_int_equal(gw_meter_start(sim.ctx, &o, &meter), 0);
	gw_meter_poll(meter);
}

static int stop(void **state)
{
	gw_meter_stop(meter);
	meter = NULL;
	return sim_teardown(state);
}

static void run_for(double seconds)
{
	uint64_t until = clock_mono_ns(&sim.clock) + (uint64_t)(seconds * 1e9);

	for (;;) {
		uint64_t due = gw_meter_poll(meter);

		if (due >= until)
			break;
		clock_sleep_until(&sim.clock, due);
	}
	clock_sleep_until(&sim.clock, until);
}

static struct gw_window *window;
static double true_begin;

static void begin(void)
{
	true_begin = sim_true_joules(0);
	assert_int_equal(gw_window_open(meter, "w", 0, &window), 0);
}

/* Ends the window; the truth of it. */
static const struct gw_energy *end(double *ret_true)
{
	*ret_true = sim_true_joules(0) - true_begin;
	assert_int_equal(gw_window_close(window, 0), 0);
	assert_int_equal(gw_window_wait(window, 5 * NS_PER_S), 0);
	return gw_window_energy(window, 0);
}

static void print(const char *what, const struct gw_energy *r, double truth)
{
	printf("%s: true %.2f J, %s %.2f [%.2f %.2f] rel [%.2f %.2f] counter %.2f samples %.2f "
	       "residual %+.4f %s %s coverage %.3f codes %llx\n",
	       what, truth, gw_meter_kind_name(r->meter), r->joules.best, r->joules.low,
	       r->joules.high, r->relative.low, r->relative.high, r->counter_joules,
	       r->samples_joules, r->residual_ratio, gw_rung_name(r->rung),
	       gw_verdict_name(r->verdict), r->coverage_ratio, (unsigned long long)r->codes);
}

static void a_constant_load_is_measured_to_a_thousandth(void **state)
{
	const struct gw_energy *r;
	double truth;

	(void)state;
	start(ONE("[[gpu.load]]\nkind = \"constant\"\nlevel = 0.5\n"));
	begin();
	run_for(20);
	r = end(&truth);
	print("constant", r, truth);
	assert_true(fabs(r->joules.best / truth - 1) < 0.01);
	assert_true(r->relative.low <= truth && truth <= r->relative.high);
	assert_int_equal(r->verdict, GW_VERDICT_AGREE);
	for (unsigned i = 0; i < 12; i++) {
		gw_window_free(window);
		begin();
		run_for(0.3 + 0.37 * i);
		r = end(&truth);
		print("next", r, truth);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_constant_load_is_measured_to_a_thousandth, stop),
	};

	return cmocka_run_group_tests(tests, sim_setup, NULL);
}
