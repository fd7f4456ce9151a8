/* Tests that the last lines of a stream are kept, whatever pieces it arrives in. */
#include "cli/runner.h"

#include "measure/stat.h"

#include "test.h"

#include <unistd.h>

static void put(const struct tail *t, const char *text)
{
	assert_int_equal(write(t->write_fd, text, strlen(text)), strlen(text));
}

TEST(the_last_lines_are_those_that_came_last)
{
	static const struct {
		const char *text;
		unsigned lines;
		const char *shown;
	} cases[] = {
		{ "", 5, "" },
		{ "\n\n", 5, "" },
		{ "one", 5, "\n  one" },
		{ "one\n", 1, "\n  one" },
		{ "one\ntwo\nthree\n", 2, "\n  two\n  three" },
		{ "one\n\ntwo\n\n\n", 3, "\n  one\n  \n  two" },
		{ "a\033[31mb\a\r\tc\177\n", 5, "\n  a[31mbc" },
		{ "gr\303\274n\n", 1, "\n  gr\303\274n" },
	};
	char out[TAIL_BYTES + 64];
	struct tail t;

	assert_int_equal(tail_open(&t), 0);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		tail_clear(&t);
		put(&t, cases[i].text);
		tail_lines(&t, cases[i].lines, out, sizeof(out));
		assert_string_equal(out, cases[i].shown);
	}
	tail_close(&t);
}

TEST(surplus_lines_are_dropped_from_the_front)
{
	const uint64_t seed = 20;
	char all[200000], piece[8192];
	size_t n = 0;
	struct random r;
	struct tail t;

	printf("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	assert_int_equal(tail_open(&t), 0);
	while (n < sizeof(all) - sizeof(piece)) {
		size_t size = 1 + random_below(&r, sizeof(piece)), keep;

		for (size_t i = 0; i < size; i++)
			piece[i] = all[n + i] = (char)('a' + random_below(&r, 26));
		n += size;
		assert_int_equal(write(t.write_fd, piece, size), size);
		if (random_below(&r, 2))
			tail_drain(&t);
		else
			continue;
		keep = n < TAIL_BYTES ? n : TAIL_BYTES;
		assert_int_equal(t.fill, keep);
		assert_memory_equal(t.text, all + n - keep, keep);
	}
	tail_close(&t);
}

TEST_MAIN(NULL, NULL)
