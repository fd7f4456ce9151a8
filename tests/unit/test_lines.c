#include "base/root.h"

#include "tree_test.h"

#include <gpuward.h>

static struct lines l;

TEST(gives_each_line_with_or_without_a_last_newline)
{
	tree_put(&t, "a", "one\n\nthree");
	assert_int_equal(lines_open(&l, &t.root, "a"), 0);
	assert_string_equal(lines_next(&l), "one");
	assert_string_equal(lines_next(&l), "");
	assert_string_equal(lines_next(&l), "three");
	assert_null(lines_next(&l));
	assert_null(lines_next(&l));
	lines_close(&l);
	tree_put(&t, "a", "one\n");
	assert_int_equal(lines_open(&l, &t.root, "a"), 0);
	assert_string_equal(lines_next(&l), "one");
	assert_null(lines_next(&l));
	lines_close(&l);
}

TEST(cuts_a_long_line_and_continues_after_it)
{
	static const size_t length[] = { LINES_SIZE - 2, LINES_SIZE - 1,     LINES_SIZE,
					 LINES_SIZE + 1, 2 * LINES_SIZE - 2, 3 * LINES_SIZE };
	static char text[4 * LINES_SIZE];

	for (size_t i = 0; i < COUNT_OF(length); i++) {
		size_t n = length[i], cut = n < LINES_SIZE - 1 ? n : LINES_SIZE - 1;

		memset(text, 'x', n);
		memcpy(text + n, "\nnext\n", 7);
		tree_put(&t, "a", text);
		assert_int_equal(lines_open(&l, &t.root, "a"), 0);
		assert_int_equal(strlen(lines_next(&l)), cut);
		assert_string_equal(lines_next(&l), "next");
		assert_null(lines_next(&l));
		lines_close(&l);
	}
}

TEST(walks_a_file_longer_than_its_buffer)
{
	static char text[64 * 1024];
	size_t n = 0;
	char want[16];

	for (int i = 0; i < 5000; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "line %d\n", i);
	tree_put(&t, "a", text);
	assert_int_equal(lines_open(&l, &t.root, "a"), 0);
	for (int i = 0; i < 5000; i++) {
		snprintf(want, sizeof(want), "line %d", i);
		assert_string_equal(lines_next(&l), want);
	}
	assert_null(lines_next(&l));
	lines_close(&l);
}

TEST(a_missing_file_is_an_error_of_its_own)
{
	assert_int_equal(lines_open(&l, &t.root, "none"), -GW_E_NOENT);
}

TEST_MAIN(NULL, NULL)
