/* Tests how the guard learns the power of an idle model and the energy of loading it, from the
 * power of the GPU. */
#include "guard/idle.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEST_SETUP fresh
#include "test.h"

#define S   NS_PER_S
#define GIB (UINT64_C(1) << 30)

static const struct idle_options standard = { ECONOMY_IDLE_W, NAN, 0 };

static struct {
	struct idle_economy e;
	uint64_t now;
} t;

static int fresh(void **state)
{
	memset(&t, 0, sizeof(t));
	t.now = 1000 * S;
	return 0;
}

/* Repeats the same input for n seconds. */
static void looks(unsigned n, struct idle_input l)
{
	while (n--) {
		t.now += S;
		l.now_ns = t.now;
		idle_update(&t.e, &standard, &l);
	}
}

static struct idle_figures figures(const struct idle_options *o)
{
	struct idle_figures f;

	idle_figures(&t.e, o, &f);
	return f;
}

static const struct idle_input resident = {
	.bytes = 20 * GIB, .runs = true, .idles = true, .alone = true, .power_w = 118
};
static const struct idle_input out = { .idle_out = true, .alone = true, .power_w = 75 };

static void load(double watts, unsigned seconds)
{
	for (unsigned i = 1; i <= seconds; i++)
		looks(1, (struct idle_input){ .bytes = 20 * GIB * i / seconds,
					      .runs = i > 1,
					      .alone = true,
					      .power_w = watts });
}

TEST(the_configuration_counts_until_values_are_learned)
{
	struct idle_options o = standard;

	assert_true(figures(&o).after_ns == UINT64_MAX);
	assert_true(isnan(figures(&o).reload_j));
	o.reload_j = 8600;
	assert_true(figures(&o).after_ns == 200 * S);
	assert_false(figures(&o).idle_learned || figures(&o).reload_learned);
	o.reload_j = 1;
	assert_true(figures(&o).after_ns == 60 * S); /* no sooner */
	o.after_ns = 5 * S;
	assert_true(figures(&o).after_ns == 5 * S); /* as configured */
}

TEST(watts_and_joules_are_learned_from_one_cycle)
{
	struct idle_figures f;

	looks(30, resident);
	looks(100, out);
	load(275, 10);
	looks(30, resident);
	f = figures(&standard);
	assert_true(f.idle_learned && f.reload_learned);
	assert_true(fabs(f.idle_w - 43) < 0.01);
	/* Loading draws 200 W more than the empty GPU for 8 s, in which the memory rises from a
	 * tenth to nine tenths. */
	assert_true(fabs(f.reload_j - 1600) < 1);
	assert_true(f.after_ns == 60 * S);
	assert_true(fabs(t.e.saved_j - 43 * 100) < 50);
	assert_true(fabs(t.e.spent_j - 1600) < 1);
}

TEST(a_second_load_updates_the_value)
{
	double first;

	looks(30, resident);
	looks(100, out);
	load(275, 10);
	first = figures(&standard).reload_j;
	looks(30, resident);
	looks(100, out);
	load(475, 10);
	assert_true(figures(&standard).reload_j > first);
	assert_true(figures(&standard).reload_j < 2 * first);
	assert_true(t.e.spent_j > 2 * first); /* both loads */
}

TEST(nothing_is_learned_while_other_processes_run)
{
	struct idle_input a = resident, b = out;

	a.alone = b.alone = false;
	a.power_w = 400;
	looks(60, a);
	looks(60, b);
	assert_false(figures(&standard).idle_learned);
	assert_true(figures(&standard).idle_w == ECONOMY_IDLE_W);
}

TEST(nothing_is_learned_without_a_power_reading)
{
	struct idle_input a = resident, b = out;

	a.power_w = b.power_w = NAN;
	looks(60, a);
	looks(60, b);
	load(NAN, 10);
	looks(60, a);
	assert_false(figures(&standard).idle_learned || figures(&standard).reload_learned);
	assert_true(fabs(t.e.saved_j - 60 * ECONOMY_IDLE_W) <
		    1); /* the configured power is used */
}

TEST(a_gap_in_time_is_not_bridged)
{
	looks(30, resident);
	looks(10, out);
	t.now += 86400 * S; /* the machine was suspended for a day */
	looks(10, out);
	assert_true(t.e.saved_j < 25 * ECONOMY_IDLE_W);
}

TEST_MAIN(NULL, NULL)
