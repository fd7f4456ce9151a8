/* Tests which sizes of a public struct are accepted, and what is copied. */
#include "test.h"

#include "base/sized.h"

struct first { /* the struct of an old program */
	size_t size;
	int number;
};

struct known { /* the struct of the library */
	size_t size;
	int number;
	double later;
};

struct newer { /* the struct of a program that is newer than the library */
	struct known known;
	double unknown[2];
};

#define FIRST SIZED_FIRST(struct known, number)

_Static_assert(FIRST == sizeof(struct first), "the end is rounded up as in the struct");

TEST(an_older_struct_gets_zeros_for_newer_members)
{
	struct first given = { sizeof(given), 7 };
	struct known k;

	memset(&k, 0x5a, sizeof(k));
	assert_true(sized_read(&k, sizeof(k), FIRST, &given));
	assert_int_equal(k.number, 7);
	assert_true(k.later == 0);
	assert_true(sized_read(&k, sizeof(k), FIRST, NULL));
	assert_int_equal(k.number, 0);
}

TEST(a_newer_struct_is_accepted_only_if_its_unknown_members_are_0)
{
	struct newer given = { { sizeof(given), 7, 1.5 }, { 0, 0 } };
	struct known k;

	assert_true(sized_read(&k, sizeof(k), FIRST, &given));
	assert_true(k.later == 1.5);
	given.unknown[1] = 1;
	assert_false(sized_read(&k, sizeof(k), FIRST, &given));
}

TEST(other_sizes_are_refused)
{
	static const size_t sizes[] = {
		0, 1, sizeof(size_t), FIRST - 8, FIRST + 1, SIZED_MAX + 8, 1000000, (size_t)-8,
	};
	/* larger than the struct, so that the compiler does not warn about the sizes */
	union {
		struct known s;
		char room[2 * SIZED_MAX];
	} given = { .s = { 0, 7, 1.5 } };
	struct known k = { 0 };

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		given.s.size = sizes[i];
		assert_false(sized_read(&k, sizeof(k), FIRST, &given));
		assert_false(sized_write(&given, &k, sizeof(k), FIRST));
		assert_int_equal(given.s.number, 7);
	}
}

TEST(a_result_has_the_size_that_the_caller_set)
{
	struct known k = { sizeof(k), 7, 1.5 };
	struct first old = { sizeof(old), 0 };
	struct newer new = { { sizeof(new), 0, 0 }, { 9, 9 } };

	assert_true(sized_write(&old, &k, sizeof(k), FIRST));
	assert_int_equal(old.number, 7);
	assert_true(sized_write(&new, &k, sizeof(k), FIRST));
	assert_true(new.known.later == 1.5);
	assert_true(new.unknown[0] == 0 && new.unknown[1] == 0);
	assert_int_equal(new.known.size, sizeof(new));
}

TEST_MAIN(NULL, NULL)
