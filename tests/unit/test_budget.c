/* Tests the caps of power and energy. */
#include "guard/gpu_use.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEST_SETUP fresh
#include "test.h"

#define S NS_PER_S

static struct {
	struct budget b;
	struct budget_input l;
	char why[160];
} t;

static int fresh(void **state)
{
	memset(&t, 0, sizeof(t));
	t.l = (struct budget_input){
		.now_ns = 1000 * S, .power_w = 100, .energy_j = 1e9, .day = 7
	};
	return 0;
}

static const struct budget_options power = { .power_w = 300 };
static const struct budget_options energy = { .energy_j = 1000 * 3600. };

/* Returns the result after n seconds at this power. */
static bool after(unsigned n, const struct budget_options *o, double watts)
{
	bool over = false;

	t.l.power_w = watts;
	while (n--) {
		t.l.now_ns += S;
		if (!isnan(watts))
			t.l.energy_j += watts;
		over = budget_update(&t.b, o, &t.l, t.why, sizeof(t.why));
	}
	return over;
}

TEST(a_peak_does_not_exceed_the_cap_and_five_seconds_do)
{
	assert_false(after(10, &power, 250));
	assert_false(after(5, &power, 400));
	assert_false(after(1, &power, 250));
	assert_false(after(5, &power, 400));
	assert_true(after(1, &power, 400));
	assert_in(t.why, "400 W");
}

TEST(an_excess_ends_after_a_minute_below_the_cap)
{
	assert_true(after(10, &power, 400));
	assert_true(after(59, &power, 100));
	assert_true(*t.why);
	assert_true(after(1, &power, 400)); /* the minute below the cap starts again */
	assert_true(after(60, &power, 100));
	assert_false(after(1, &power, 100));
	assert_string_equal(t.why, "");
}

TEST(an_excess_of_power_ends_while_the_gpu_sleeps)
{
	assert_true(after(10, &power, 400));
	assert_true(after(300, &power, (double)NAN)); /* the power is unknown */
	t.l.asleep = true;
	assert_true(after(60, &power, (double)NAN));
	assert_false(after(1, &power, (double)NAN));
}

TEST(if_a_return_exceeds_the_cap_again_the_wait_doubles)
{
	static const unsigned waits[] = { 60, 120, 240, 480, 600, 600 };

	for (unsigned i = 0; i < COUNT_OF(waits); i++) {
		assert_true(after(10, &power, 400));
		assert_true(after(waits[i], &power, 100));
		assert_false(after(1, &power, 100));
	}
	assert_false(after(901, &power, 100)); /* long ago */
	assert_true(after(10, &power, 400));
	assert_true(after(60, &power, 100));
	assert_false(after(1, &power, 100));
}

TEST(the_energy_cap_is_exceeded_until_the_next_day)
{
	assert_false(after(3599, &energy, 1000));
	assert_true(after(2, &energy, 1000));
	assert_in(t.why, "1000 Wh are allowed");
	assert_true(after(3600, &energy, 0));
	t.l.day = 8;
	assert_true(after(60, &energy, 0));
	assert_false(after(1, &energy, 0));
	assert_false(after(1800, &energy, 1000));
}

TEST(an_unknown_value_neither_begins_nor_ends_an_excess)
{
	struct budget_options both = { .power_w = 300, .energy_j = 1e12 };

	assert_false(after(100, &both, NAN));
	assert_true(after(10, &both, 400));
	assert_true(after(1000, &both, NAN));
	assert_true(after(60, &both, 100));
	assert_false(after(1, &both, 100));
}

TEST(an_unknown_energy_does_not_end_an_excess_of_energy)
{
	assert_true(after(3601, &energy, 1000));
	t.l.energy_j = NAN;
	assert_true(after(1000, &energy, 0));
}

TEST(a_counter_that_restarts_is_accepted)
{
	assert_false(after(100, &energy, 1000));
	t.l.energy_j = 5;
	assert_false(after(3000, &energy, 1000));
	assert_true(t.b.base_j < 2000);
}

TEST(without_caps_nothing_is_exceeded)
{
	struct budget_options none = { 0, 0 };

	assert_false(after(100000, &none, 1e6));
}

TEST_MAIN(NULL, NULL)
