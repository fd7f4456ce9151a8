#include "cli/table.h"

#include "base/utf8.h"

#include "test.h"

enum { NUMBER, NAME, STATE, NOTE };

static const struct table_column columns[] = {
	[NUMBER] = { "NO", 0, true, false },
	[NAME] = { "NAME", 0, false, true },
	[STATE] = { "STATE", 2, false, false },
	[NOTE] = { "NOTE", 1, false, true },
	{ NULL, 0, false, false },
};

/* Captures what a function prints; the caller frees the text. */
static FILE *real_stdout;
static char *text;
static size_t text_size;

static void listen(void)
{
	real_stdout = stdout;
	stdout = open_memstream(&text, &text_size);
	assert_non_null(stdout);
}

static char *heard(void)
{
	fclose(stdout);
	stdout = real_stdout;
	return text;
}

static char *printed(const struct table *t, unsigned width)
{
	listen();
	table_print(t, width);
	return heard();
}

static char *wrapped(const char *left, unsigned indent, const char *words, unsigned width)
{
	listen();
	term_wrap(left, indent, words, width);
	return heard();
}

static size_t widest(const char *out)
{
	size_t most = 0;

	while (*out) {
		size_t n = strcspn(out, "\n");
		char line[4096];

		snprintf(line, sizeof(line), "%.*s", (int)n, out);
		if (utf8_columns(line) > most)
			most = utf8_columns(line);
		out += n + (out[n] == '\n');
	}
	return most;
}

TEST(columns_line_up)
{
	struct table t;
	char *out;

	table_init(&t, columns);
	table_row(&t);
	table_set(&t, NUMBER, TERM_PLAIN, "%d", 7);
	table_set(&t, NAME, TERM_PLAIN, "short");
	table_set(&t, STATE, TERM_PLAIN, "ok");
	table_row(&t);
	table_set(&t, NUMBER, TERM_PLAIN, "%d", 1234);
	table_set(&t, NAME, TERM_PLAIN, "型番");
	out = printed(&t, 80);
	assert_string_equal(out, "  NO  NAME   STATE\n"
				 "   7  short  ok\n"
				 "1234  型番   -\n");
	free(out);
	table_done(&t);
}

TEST(text_that_does_not_fit_a_cell_ends_with_a_mark)
{
	char longer[2 * TABLE_CELL], *out;
	struct table t;

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	table_init(&t, columns);
	table_row(&t);
	table_set(&t, NAME, TERM_PLAIN, "%s", longer);
	out = printed(&t, 1000);
	assert_non_null(strstr(out, "xxx~\n"));
	free(out);
	table_done(&t);
}

TEST(long_text_is_cut_before_a_column_goes)
{
	struct table t;
	char *out;

	table_init(&t, columns);
	table_row(&t);
	table_set(&t, NUMBER, TERM_PLAIN, "1");
	table_set(&t, NAME, TERM_PLAIN, "a name that goes on and on");
	table_set(&t, STATE, TERM_PLAIN, "ok");
	out = printed(&t, 30);
	assert_string_equal(out, "NO  NAME                 STATE\n"
				 " 1  a name that goes o~  ok\n");
	free(out);
	out = printed(&t, 20);
	assert_null(strstr(out, "STATE"));
	assert_true(widest(out) <= 20);
	free(out);
	table_done(&t);
}

TEST(texts_that_differ_in_their_end_are_cut_in_the_middle)
{
	struct table t;
	char *out;

	table_init(&t, columns);
	for (unsigned i = 0; i < 2; i++) {
		table_row(&t);
		table_set(&t, NUMBER, TERM_PLAIN, "%u", i);
		table_set(&t, NAME, TERM_PLAIN, "a model with a long name, fp%u", i ? 32 : 16);
		table_set(&t, STATE, TERM_PLAIN, "ok");
	}
	out = printed(&t, 30);
	assert_string_equal(out, "NO  NAME                 STATE\n"
				 " 0  a model w~ame, fp16  ok\n"
				 " 1  a model w~ame, fp32  ok\n");
	free(out);
	table_done(&t);
}

TEST(columns_of_one_rank_go_together)
{
	static const struct table_column pairs[] = {
		{ "ENERGY", 0, true, false }, { "TIME", 2, true, false },
		{ "CHANGE", 2, true, false }, { "SIZE", 1, true, false },
		{ NULL, 0, false, false },
	};
	bool left[TABLE_COLUMNS_MAX];
	struct table t;
	char *out;

	table_init(&t, pairs);
	table_row(&t);
	for (unsigned c = 0; c < 4; c++)
		table_set(&t, c, TERM_PLAIN, "1");
	assert_int_equal(table_hidden(&t, 26, left), 0);
	assert_int_equal(table_hidden(&t, 25, left), 26);
	assert_true(!left[0] && left[1] && left[2] && !left[3]);
	out = printed(&t, 25);
	assert_string_equal(out, "ENERGY  SIZE\n     1     1\n");
	free(out);
	table_done(&t);
}

static void fill_randomly(struct table *t, unsigned rows)
{
	static const char *const bits[] = { "a", "bc", "型", "é", " ", "word", "\xff", "…" };

	for (unsigned r = 0; r < rows; r++) {
		table_row(t);
		for (unsigned c = 0; c < 4; c++) {
			char cell[200] = "";
			int n = c == NUMBER || c == STATE ? rand() % 4 : rand() % 40;

			for (int i = 0; i < n; i++)
				strcat(cell, bits[rand() % 8]);
			if (rand() % 5)
				table_set(t, c, TERM_PLAIN, "%s", cell);
		}
	}
}

TEST(nothing_is_wider_than_the_terminal)
{
	srand(1);
	for (unsigned round = 0; round < 500; round++) {
		unsigned width = 40 + (unsigned)rand() % 100;
		struct table t;
		char *out;

		table_init(&t, columns);
		fill_randomly(&t, (unsigned)rand() % 6);
		out = printed(&t, width);
		if (widest(out) > width)
			fail_msg("round %u, width %u:\n%s", round, width, out);
		free(out);
		table_done(&t);
	}
}

TEST(a_last_column_that_is_too_wide_is_wrapped_at_words)
{
	static const struct table_column both[] = {
		{ "NO", 0, true, false },
		{ "TEXT", 0, false, TABLE_WRAP },
		{ NULL, 0, false, false },
	};
	struct table t;
	char *out;

	table_init(&t, both);
	table_row(&t);
	table_set(&t, 0, TERM_PLAIN, "1");
	table_set(&t, 1, TERM_PLAIN, "left its GPU for another program; 8.0 GiB freed");
	table_row(&t);
	table_set(&t, 0, TERM_PLAIN, "12");
	out = printed(&t, 30);
	assert_string_equal(out, "NO  TEXT\n"
				 " 1  left its GPU for another\n"
				 "    program; 8.0 GiB freed\n"
				 "12  -\n");
	free(out);
	out = printed(&t, 200);
	assert_non_null(strstr(out, "another program; 8.0 GiB freed\n"));
	free(out);
	table_done(&t);
}

TEST(words_wrap_between_indent_and_width)
{
	char *out;

	out = wrapped("key", 6, "one two three four", 14);
	assert_string_equal(out, "key   one two\n      three\n      four\n");
	free(out);
	out = wrapped("a long key", 6, "one two", 20);
	assert_string_equal(out, "a long key\n      one two\n");
	free(out);
	out = wrapped("", 2, "", 20);
	assert_string_equal(out, "  \n");
	free(out);
}

TEST(a_quantity_is_never_a_negative_zero)
{
	char out[32];

	assert_string_equal(term_quantity(out, -1e-12, "J"), "0 J");
	assert_string_equal(term_quantity(out, -0.0, "J"), "0 J");
	assert_string_equal(term_quantity(out, -2e-3, "J"), "-2.000 mJ");
}

TEST(styles_take_no_columns)
{
	char *out;

	out = wrapped("\033[31mkey\033[0m", 6, "text", 20);
	assert_string_equal(out, "\033[31mkey\033[0m   text\n");
	free(out);
}

TEST(a_word_is_left_whole_where_there_is_no_terminal)
{
	char word[401];
	char *out;

	memset(word, 'x', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	out = wrapped("", 0, word, 40);
	assert_int_equal(strlen(out), sizeof(word)); /* the word and the newline */
	free(out);
}

TEST_MAIN(NULL, NULL)
