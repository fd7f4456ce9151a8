/* Tests the running total of joules from counter readings and the samples between them. Nothing
 * may be counted twice. */
#include "measure/energy.h"
#include "measure/event.h"

#include "base/clock.h"

#include <math.h>

#include "test.h"

#define AT(ms) (100 * NS_PER_S + (uint64_t)(ms)*NS_PER_MS)

static void power(struct energy_total *t, unsigned ms, double w)
{
	energy_total_feed(
		t, &(struct event){ .type = EVENT_POWER, .t_ns = AT(ms), .u.power_w = w });
}

static void counter(struct energy_total *t, unsigned ms, double j)
{
	energy_total_feed(t, &(struct event){ .type = EVENT_COUNTER,
					      .t_ns = AT(ms),
					      .u.counter = { AT(ms + 3), j } });
}

static void samples(struct energy_total *t, unsigned from_ms, unsigned to_ms, double w)
{
	for (unsigned ms = from_ms; ms <= to_ms; ms += 20)
		power(t, ms, w);
}

static struct energy_total t;
static const struct energy_setup setup = { .spacing_s = 0.02,
					   .limit_w = 700,
					   .sensor.tick_s = 0.1 };

/* Starts a total with this counter and with samples of 300 W. */
static void begin(double counter_j, unsigned to_ms)
{
	energy_total_init(&t, &setup, AT(0));
	if (!isnan(counter_j))
		counter(&t, 0, counter_j);
	samples(&t, 0, to_ms, 300);
}

TEST(samples_alone_are_added_up)
{
	begin(NAN, 10000);
	assert_float_equal(energy_total_joules(&t), 3000, 1e-6);
	assert_float_equal(energy_total_seconds(&t), 10, 1e-9);
}

TEST(the_counter_replaces_the_samples)
{
	begin(5000, 10000);
	counter(&t, 10000, 8100); /* the counter has 100 J more than the samples */
	assert_float_equal(energy_total_joules(&t), 3100, 1e-6);
	samples(&t, 10020, 12000, 300);
	assert_float_equal(energy_total_joules(&t), 3700, 1e-6);
}

TEST(samples_that_come_late_are_not_counted_twice)
{
	begin(0, 9000);
	counter(&t, 10010, 3003);
	/* these samples were fetched after the counter was read */
	samples(&t, 9020, 11000, 300);
	assert_float_equal(energy_total_joules(&t), 3003 + 0.99 * 300, 1e-6);
}

TEST(the_total_never_falls)
{
	begin(1000, 10000);
	assert_float_equal(energy_total_joules(&t), 3000, 1e-6);
	counter(&t, 10000, 3970); /* the counter has not been updated yet */
	assert_float_equal(energy_total_joules(&t), 3000, 1e-6);
	counter(&t, 11000, 12); /* the driver was loaded again */
	assert_float_equal(energy_total_joules(&t), 3000, 1e-6);
	counter(&t, 12000, 412);
	assert_float_equal(energy_total_joules(&t), 2970 + 400, 1e-6);
}

TEST(a_gap_is_not_bridged_but_the_counter_covers_it)
{
	energy_total_init(&t, &setup, AT(0));
	samples(&t, 0, 1000, 100);
	power(&t, 9000, 100);
	samples(&t, 9020, 10000, 100);
	assert_float_equal(energy_total_joules(&t), 200, 1e-6);
	energy_total_init(&t, &setup, AT(0));
	counter(&t, 0, 0);
	samples(&t, 0, 1000, 100);
	samples(&t, 9000, 10000, 100);
	assert_float_equal(energy_total_seconds(&t), 2, 1e-6);
	counter(&t, 10000, 1000);
	assert_float_equal(energy_total_joules(&t), 1000, 1e-6);
	assert_float_equal(energy_total_seconds(&t), 10, 1e-6);
}

TEST(samples_from_before_the_start_do_not_count)
{
	energy_total_init(&t, &setup, AT(2010));
	samples(&t, 0, 3000, 300); /* the ring of the driver has older samples */
	assert_float_equal(energy_total_joules(&t), 0.99 * 300, 1e-6);
	assert_float_equal(energy_total_seconds(&t), 0.99, 1e-6);
}

TEST(a_counter_that_was_reset_between_two_readings_loses_nothing)
{
	begin(1000, 10000);
	counter(&t, 10000, 1200); /* the counter was reset after 6 s and has counted since */
	assert_float_equal(energy_total_joules(&t), 3000, 1e-6);
}

TEST(an_impossible_reading_does_not_count)
{
	static const double wrong[] = { 0, 5e6, 1e12 };

	for (unsigned i = 0; i < 3; i++) {
		begin(5e9, 10000);
		counter(&t, 10000, 5e9 + 3000);
		samples(&t, 10020, 11000, 300);
		counter(&t, 11000, wrong[i]);
		samples(&t, 11020, 12000, 300);
		counter(&t, 12000, 5e9 + 3600);
		samples(&t, 12020, 13000, 300);
		counter(&t, 13000, 5e9 + 3900);
		assert_float_equal(energy_total_joules(&t), 3900, 1e-3);
		assert_float_equal(energy_total_seconds(&t), 13, 1e-6);
	}
}

TEST(invalid_power_is_left_out)
{
	energy_total_init(&t, &setup, AT(0));
	power(&t, 0, 100);
	power(&t, 20, -1);
	power(&t, 20, 100);
	power(&t, 10, 100);
	power(&t, 30, 4294967);
	assert_float_equal(energy_total_joules(&t), 2, 1e-9);
}

TEST_MAIN(NULL, NULL)
