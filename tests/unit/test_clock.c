#include "base/clock.h"

#include "test.h"

TEST(stepped_time_stands_still_until_it_is_moved)
{
	struct clock_stepped c;

	clock_stepped_init(&c, 5, 7);
	assert_int_equal(clock_mono_ns(&c.clock), 5);
	assert_int_equal(clock_mono_ns(&c.clock), 5);
	clock_step(&c, 10);
	assert_int_equal(clock_mono_ns(&c.clock), 15);
	assert_int_equal(clock_wall_ns(&c.clock), 17);
}

TEST(the_milliseconds_until_a_deadline_are_rounded_up)
{
	struct clock_stepped c;

	clock_stepped_init(&c, NS_PER_S, 0);
	assert_int_equal(clock_ms_until(&c.clock, 0), 0);
	assert_int_equal(clock_ms_until(&c.clock, NS_PER_S), 0);
	assert_int_equal(clock_ms_until(&c.clock, NS_PER_S + 1), 1);
	assert_int_equal(clock_ms_until(&c.clock, NS_PER_S + NS_PER_MS), 1);
	assert_int_equal(clock_ms_until(&c.clock, NS_PER_S + NS_PER_MS + 1), 2);
}

TEST(real_time_does_not_go_back)
{
	const struct clock *c = clock_real();
	uint64_t a = clock_mono_ns(c), b = clock_mono_ns(c);

	assert_true(a > 0 && b >= a);
	assert_true(clock_wall_ns(c) > UINT64_C(1700000000) * NS_PER_S);
}

TEST(wall_time_is_formatted_as_rfc_3339)
{
	static const struct {
		uint64_t ns;
		const char *want;
	} rows[] = {
		{ 0, "1970-01-01T00:00:00.000Z" },
		{ UINT64_C(951782400999999999), "2000-02-29T00:00:00.999Z" },
		{ UINT64_C(1769860800123456789), "2026-01-31T12:00:00.123Z" },
		{ UINT64_MAX, "2554-07-21T23:34:33.709Z" },
	};
	char out[CLOCK_RFC3339_SIZE];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		clock_format_rfc3339(rows[i].ns, out);
		assert_string_equal(out, rows[i].want);
	}
}

TEST_MAIN(NULL, NULL)
