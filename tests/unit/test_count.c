/* What is counted around a run. */
#include "cli/count.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

static void a_command_tells_one_number(void **state)
{
	static const struct {
		const char *command;
		double value; /* NAN: refused */
		const char *why;
	} rows[] = {
		{ "echo 42", 42, "" },
		{ "printf ' 1e6\\n'", 1e6, "" },
		{ "echo 3.5", 3.5, "" },
		{ "echo 12 tokens", NAN, "it printed '12 tokens', and not one number" },
		{ "true", NAN, "it printed '', and not one number" },
		{ "echo -1", NAN, "it printed '-1', and not one number" },
		{ "echo nan", NAN, "it printed 'nan', and not one number" },
		{ "echo 7; exit 3", NAN, "it ended with status 3" },
		{ "echo 1; echo 2", NAN, "it printed '1', and not one number" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct count_reading r;

		count_read(rows[i].command, &r);
		if (isnan(rows[i].value))
			assert_true(isnan(r.value));
		else
			assert_true(fabs(r.value - rows[i].value) < 1e-9);
		assert_string_equal(r.why, rows[i].why);
		assert_true(r.after_ns > r.before_ns);
	}
}

static void what_was_made_around_the_run_may_be_too_much(void **state)
{
	struct count_reading first = { 100, "", 9 * NS_PER_S, 10 * NS_PER_S };
	struct count_reading last = { 1100, "", 18 * NS_PER_S, 19 * NS_PER_S };
	struct count c;

	(void)state;
	count_between(&first, &last, 10 * NS_PER_S, 18 * NS_PER_S, &c);
	assert_true(fabs(c.number - 1000) < 1e-9);
	assert_true(fabs(c.edge - 200) < 1e-9); /* a second before, a second after, of ten */
	assert_string_equal(c.why, "");
}

static void a_count_that_does_not_grow_is_unknown(void **state)
{
	struct count_reading first = { 500, "", 1, 2 }, same = { 500, "", 3, 4 };
	struct count_reading less = { 20, "", 3, 4 }, none = { NAN, "it ended", 3, 4 };
	struct count c;

	(void)state;
	count_between(&first, &same, 2, 3, &c);
	assert_true(isnan(c.number));
	assert_string_equal(c.why, "it said 500 before and 500 after");
	count_between(&first, &less, 2, 3, &c);
	assert_true(isnan(c.number));
	assert_string_equal(c.why, "it said 500 before and 20 after");
	count_between(&first, &none, 2, 3, &c);
	assert_true(isnan(c.number));
	assert_string_equal(c.why, "it ended");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_tells_one_number),
		cmocka_unit_test(what_was_made_around_the_run_may_be_too_much),
		cmocka_unit_test(a_count_that_does_not_grow_is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
