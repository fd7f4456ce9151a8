/* test: included by every unit test.
 * TEST() defines a test and adds it to the list of the program.
 * TEST_MAIN() runs the list in the order of the source lines.
 *
 *         TEST(what_it_shows)
 *         {
 *                 assert_true(...);
 *         }
 *         TEST_MAIN(NULL, NULL)
 *
 * A file may define TEST_SETUP or TEST_TEARDOWN before its first TEST(): they run before and
 * after each test.  TEST_WITH() names other functions for one test. */
#ifndef GW_TESTS_UNIT_TEST_H
#define GW_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Fixtures and callbacks of a test rarely need all their parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Fails unless part is in text. */
#define assert_in(text, part) test_in(text, part, __FILE__, __LINE__)

static inline void test_in(const char *text, const char *part, const char *file, int line)
{
	if (strstr(text, part))
		return;
	print_error("'%s' is not in: %s\n", part, text);
	_fail(file, line);
}

#define TESTS_MAX 128

static struct {
	struct CMUnitTest test[TESTS_MAX];
	unsigned line[TESTS_MAX];
	size_t count;
} test_list;

/* Constructors may run in any order, so the line decides. */
static inline void test_add(unsigned line, struct CMUnitTest test)
{
	size_t i = test_list.count++;

	if (i >= TESTS_MAX)
		abort();
	for (; i > 0 && test_list.line[i - 1] > line; i--) {
		test_list.test[i] = test_list.test[i - 1];
		test_list.line[i] = test_list.line[i - 1];
	}
	test_list.test[i] = test;
	test_list.line[i] = line;
}

/* An argument of the program is a pattern: only tests with a matching name run. */
static inline int test_run(int argc, char **argv, CMFixtureFunction group_setup,
			   CMFixtureFunction group_teardown)
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests(argv[0], test_list.test, test_list.count, group_setup,
				       group_teardown);
}

#ifdef TEST_SETUP
static int TEST_SETUP(void **state);
#else
static const CMFixtureFunction TEST_SETUP = NULL;
#endif
#ifdef TEST_TEARDOWN
static int TEST_TEARDOWN(void **state);
#else
static const CMFixtureFunction TEST_TEARDOWN = NULL;
#endif

#define TEST(name) TEST_WITH(name, TEST_SETUP, TEST_TEARDOWN)

#define TEST_WITH(name, setup, teardown)                                                       \
	static void name(void **state);                                                        \
	__attribute__((constructor)) static void name##_add(void)                              \
	{                                                                                      \
		test_add(__LINE__, (struct CMUnitTest){ #name, name, setup, teardown, NULL }); \
	}                                                                                      \
	static void name(void **state)

/* The setup and teardown run once for the whole program; either may be NULL. */
#define TEST_MAIN(group_setup, group_teardown)                            \
	int main(int argc, char **argv)                                   \
	{                                                                 \
		return test_run(argc, argv, group_setup, group_teardown); \
	}

#endif
