/* unit: included by every unit test.  TEST() defines a test and adds it to the program's list;
 * UNIT_MAIN() runs the list in the order of the source lines. */
#ifndef GW_TEST_UNIT_H
#define GW_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Fixtures, and functions that stand for a real one, have parameters that they do not need. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Fails unless part is in text. */
#define assert_in(text, part)                                       \
	do {                                                        \
		if (!strstr(text, part))                            \
			fail_msg("'%s' is not in: %s", part, text); \
	} while (0)

#define UNIT_TESTS_MAX 128

static struct {
	struct CMUnitTest test[UNIT_TESTS_MAX];
	unsigned line[UNIT_TESTS_MAX];
	size_t count;
} unit_list;

/* C does not fix the order of constructors, so the line decides. */
static inline void unit_add(unsigned line, struct CMUnitTest test)
{
	size_t i = unit_list.count++;

	if (i >= UNIT_TESTS_MAX)
		abort();
	for (; i > 0 && unit_list.line[i - 1] > line; i--) {
		unit_list.test[i] = unit_list.test[i - 1];
		unit_list.line[i] = unit_list.line[i - 1];
	}
	unit_list.test[i] = test;
	unit_list.line[i] = line;
}

/* A test with functions that run before and after it; either may be NULL. */
#define TEST_FIXTURE(name, before, after)                                                    \
	static void name(void **state);                                                      \
	__attribute__((constructor)) static void name##_add(void)                            \
	{                                                                                    \
		unit_add(__LINE__, (struct CMUnitTest){ #name, name, before, after, NULL }); \
	}                                                                                    \
	static void name(void **state)

/* A file that defines TEST_SETUP or TEST_TEARDOWN before it includes this has them run around each
 * TEST. */
#ifdef TEST_SETUP
static int TEST_SETUP(void **state);
#else
#define TEST_SETUP NULL
#endif
#ifdef TEST_TEARDOWN
static int TEST_TEARDOWN(void **state);
#else
#define TEST_TEARDOWN NULL
#endif

#define TEST(name) TEST_FIXTURE(name, TEST_SETUP, TEST_TEARDOWN)

/* before and after run once for the whole program; either may be NULL.  A program argument is a
 * pattern: only tests with a matching name run. */
static inline int unit_run(int argc, char **argv, CMFixtureFunction before,
			   CMFixtureFunction after)
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests(argv[0], unit_list.test, unit_list.count, before, after);
}

#define UNIT_MAIN(before, after)                            \
	int main(int argc, char **argv)                     \
	{                                                   \
		return unit_run(argc, argv, before, after); \
	}

#endif
