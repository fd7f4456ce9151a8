/* Tests times and durations in a query. */
#include "serve/timespec_parse.h"

#include "base/clock.h"

#include "test.h"

#include <gpuward.h>

#define NOW_NS (UINT64_C(1700000000) * NS_PER_S) /* 2023-11-14T22:13:20Z */
#define MS(n)  ((uint64_t)(n)*NS_PER_MS)

TEST(a_moment_may_be_written_in_many_ways)
{
	static const struct {
		const char *text;
		uint64_t wall_ns;
	} rows[] = {
		{ "now", NOW_NS },
		{ "-1h", NOW_NS - MS(3600000) },
		{ "-1h30m", NOW_NS - MS(5400000) },
		{ "-90", NOW_NS - MS(90000) },
		{ "-1.5s", NOW_NS - MS(1500) },
		{ "-250ms", NOW_NS - MS(250) },
		{ "-100000d", 0 }, /* before 1970 */
		{ "0", 0 },
		{ "1700000000", NOW_NS },
		{ "1700000000.5", NOW_NS + MS(500) },
		{ "2023-11-14T22:13:20Z", NOW_NS },
		{ "2023-11-14 22:13:20z", NOW_NS },
		{ "2023-11-14T22:13:20.250Z", NOW_NS + MS(250) },
		{ "2023-11-14T23:13:20+01:00", NOW_NS },
		{ "2023-11-14T18:43:20-0330", NOW_NS },
		{ "2024-02-29T00:00:00Z", UINT64_C(1709164800) * NS_PER_S },
		{ "2243-10-16T00:00:00Z", UINT64_C(8639913600) * NS_PER_S },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		uint64_t got = 1;

		if (timespec_parse(rows[i].text, NOW_NS, &got) != 0 || got != rows[i].wall_ns)
			fail_msg("%s is %llu, not %llu", rows[i].text, (unsigned long long)got,
				 (unsigned long long)rows[i].wall_ns);
	}
}

TEST(invalid_times_are_refused)
{
	static const char *const rows[] = {
		"",
		"-",
		"--1h",
		"yesterday",
		"1h",
		"-h",
		"-1w",
		"-1h30",
		"-1hm",
		"+1h",
		"-1e400",
		"1e300",
		"0x10",
		"-0x10",
		"9223372036",
		"-100001d",
		"2244-01-01T00:00:00Z",
		"2600-01-01T00:00:00Z",
		"9999-12-31T00:00:00Z",
		"2023-11-14T22:13:20.5e3Z",
		"nan",

		"2023-11-14",
		"2023-11-14T22:13:20",
		"2023-11-14T22:13:20+1",
		"2023-11-14T22:13:20+25:00",
		"2023-13-14T22:13:20Z",
		"2023-02-29T00:00:00Z",
		"2026-02-30T00:00:00Z",
		"2026-04-31T00:00:00Z",
		"2023-11-14T22:13:20Zx",
		"1969-12-31T23:59:59Z",
		"2023-11-14T22:13:20.Z",
		"-5 s",
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		uint64_t got = 7;

		if (timespec_parse(rows[i], NOW_NS, &got) != -GW_E_PARSE || got != 7)
			fail_msg("\"%s\" was accepted: %llu", rows[i], (unsigned long long)got);
	}
}

TEST(a_duration_has_a_unit_or_is_in_seconds)
{
	uint64_t ns;

	assert_int_equal(timespec_parse_span("10", &ns), 0);
	assert_true(ns == 10 * NS_PER_S);
	assert_int_equal(timespec_parse_span("1m30s", &ns), 0);
	assert_true(ns == 90 * NS_PER_S);
	assert_int_equal(timespec_parse_span("2d", &ns), 0);
	assert_true(ns == 172800 * NS_PER_S);
	assert_int_equal(timespec_parse_span("0", &ns), 0);
	assert_true(ns == 0);
	assert_int_equal(timespec_parse_span("100000d", &ns), 0);
	assert_true(ns == UINT64_C(8640000000) * NS_PER_S);
	assert_int_equal(timespec_parse_span("100001d", &ns), -GW_E_PARSE);
	assert_int_equal(timespec_parse_span("140000d", &ns), -GW_E_PARSE);
	assert_int_equal(timespec_parse_span("0x10", &ns), -GW_E_PARSE);
	assert_int_equal(timespec_parse_span("1m0x10s", &ns), -GW_E_PARSE);
	assert_int_equal(timespec_parse_span("-1s", &ns), -GW_E_PARSE);
	assert_int_equal(timespec_parse_span("1 s", &ns), -GW_E_PARSE);
	assert_int_equal(timespec_parse_span("inf", &ns), -GW_E_PARSE);
}

TEST_MAIN(NULL, NULL)
