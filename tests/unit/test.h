/* test: cmocka, and tests that register themselves.
 *
 *	TEST(what_it_shows)
 *	{
 *		assert_true(...);
 *	}
 *	TEST_MAIN(NULL, NULL)
 *
 * A file that defines TEST_SETUP or TEST_TEARDOWN before it includes this has them run around each
 * TEST; TEST_WITH() names others.  TEST_MAIN() takes a setup and a teardown for all of the file. */
#ifndef GW_TESTS_UNIT_TEST_H
#define GW_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* Fixtures and callbacks of a test rarely need all their parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TESTS_MAX 128

static struct test_entry {
	int order; /* in the file: constructors may run in any order */
	struct CMUnitTest test;
} test_entries[TESTS_MAX];
static size_t test_count;

static inline void test_add(int order, struct CMUnitTest test)
{
	if (test_count == TESTS_MAX)
		abort();
	test_entries[test_count++] = (struct test_entry){ order, test };
}

static inline int test_compare(const void *a, const void *b)
{
	return ((const struct test_entry *)a)->order - ((const struct test_entry *)b)->order;
}

static inline int test_run(CMFixtureFunction group_setup, CMFixtureFunction group_teardown)
{
	struct CMUnitTest tests[TESTS_MAX];

	qsort(test_entries, test_count, sizeof(test_entries[0]), test_compare);
	for (size_t i = 0; i < test_count; i++)
		tests[i] = test_entries[i].test;
	return _cmocka_run_group_tests("tests", tests, test_count, group_setup, group_teardown);
}

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

#define TEST(name) TEST_WITH(name, TEST_SETUP, TEST_TEARDOWN)

#define TEST_WITH(name, setup, teardown)                                             \
	static void name(void **state);                                              \
	__attribute__((constructor)) static void test_add_##name(void)               \
	{                                                                            \
		test_add(__COUNTER__,                                                \
			 (struct CMUnitTest){ #name, name, setup, teardown, NULL }); \
	}                                                                            \
	static void name(void **state)

#define TEST_MAIN(group_setup, group_teardown)                \
	int main(void)                                        \
	{                                                     \
		return test_run(group_setup, group_teardown); \
	}

#endif
