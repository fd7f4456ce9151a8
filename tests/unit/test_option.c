#include "cli/option.h"

#include "test.h"

#include <math.h>

struct target {
	bool flag, other;
	const char *text, *maybe, *choice;
	uint64_t time_ns;
	struct option_list list;
	double count, heat_c;
};

static const char *const colours[] = { "red", "green", "blue", NULL };

#define AT(member) offsetof(struct target, member)
static const struct option first[] = {
	OPTION_ROW(FLAG, 'f', "flag", AT(flag), NULL, ""),
	OPTION_ROW(FLAG, 'o', "other", AT(other), NULL, ""),
	OPTION_ROW(TEXT, 't', "text", AT(text), "TEXT", ""),
	OPTION_OPTIONAL_ROW('m', "maybe", AT(maybe), "WORD", "", "given"),
	OPTION_END,
};
static const struct option second[] = {
	OPTION_CHOICE_ROW(0, "choice", AT(choice), "COLOUR", "", colours),
	OPTION_ROW(DURATION, 'i', "time", AT(time_ns), "TIME", ""),
	OPTION_ROW(LIST, 'l', "list", AT(list), "ITEM", ""),
	OPTION_COUNT_ROW("count", AT(count), "", 2, 40, 3),
	OPTION_ROW(CELSIUS, 0, "heat", AT(heat_c), "CELSIUS", ""),
	OPTION_END,
};
static struct target got, got_second;
static const struct option_table tables[] = {
	{ first, &got },
	{ second, &got_second },
	{ NULL, NULL },
};

static char error[256];
static char *words[16];
static int count;

/* Parses a line split at blanks; "_" stands for the empty word. */
static int parse_line(const char *line, bool ahead)
{
	static char copy[256];
	char *save = NULL;

	memset(&got, 0, sizeof(got));
	memset(&got_second, 0, sizeof(got_second));
	option_defaults(second, &got_second);
	memset(words, 0, sizeof(words));
	error[0] = '\0';
	count = 0;
	words[count++] = copy; /* the program name is ignored */
	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		words[count++] = strcmp(w, "_") == 0 ? w + 1 : w;
	return option_parse(&count, words, tables, ahead, error, sizeof(error));
}

static int parse(const char *line)
{
	return parse_line(line, false);
}

TEST(reads_whole_numbers_in_their_range_and_degrees)
{
	static const char *const wrong[] = { "--count=1", "--count=41", "--count=2.5",
					     "--count=x", "--count=",   "--heat=121C",
					     "--heat=-1", "--heat=4F" };

	assert_int_equal(parse("--count 2 --heat 55C"), 0);
	assert_true(got_second.count == 2 && got_second.heat_c == 55);
	assert_int_equal(parse("--heat=0"), 0);
	assert_true(got_second.heat_c == 0);
	for (size_t i = 0; i < COUNT_OF(wrong); i++)
		assert_int_equal(parse(wrong[i]), -1);
	assert_int_equal(parse("--count=41"), -1);
	assert_string_equal(error, "--count takes a whole number from 2 to 40, not '41'");
	assert_int_equal(parse("--heat=121C"), -1);
	assert_string_equal(error, "--heat takes degrees Celsius from 0 to 120, not '121C'");
}

TEST(an_option_that_is_not_given_has_its_default)
{
	assert_int_equal(parse(""), 0);
	assert_true(got_second.count == 3 && isnan(got_second.heat_c));
	assert_false(option_given(&second[3], &got_second));
	assert_false(option_given(&second[4], &got_second));
	assert_int_equal(parse("--count 4 --heat 40"), 0);
	assert_true(option_given(&second[3], &got_second));
	assert_true(option_given(&second[4], &got_second));
}

TEST(reads_times_in_every_unit)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} rows[] = {
		{ "3", 3000000000 },     { "3s", 3000000000 }, { "1.5s", 1500000000 },
		{ "100ms", 100000000 },  { "20us", 20000 },    { "2m", 120000000000 },
		{ "1h", 3600000000000 }, { "0", 0 },           { ".5s", 500000000 },
		{ "1 s", 1000000000 },
	};
	uint64_t ns;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(option_duration(rows[i].text, &ns), 0);
		assert_int_equal(ns, rows[i].ns);
	}
}

TEST(refuses_invalid_times)
{
	static const char *const rows[] = { "",     "s",    "-1s", "nan", "inf",   "0x1s",
					    "1sec", "1e99", "1hh", "ms1", "1e12h", "-inf" };
	uint64_t ns = 77;

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(option_duration(rows[i], &ns), -1);
	assert_int_equal(ns, 77);
}

TEST(a_command_keeps_its_own_options)
{
	assert_int_equal(parse_line("-f --text=a sh -c x --flag -- --text=b", true), 0);
	assert_true(got.flag);
	assert_string_equal(got.text, "a");
	assert_int_equal(count, 7);
	assert_string_equal(words[1], "sh");
	assert_string_equal(words[2], "-c");
	assert_string_equal(words[5], "--");
	assert_int_equal(parse_line("-f -- --text=b", true), 0);
	assert_int_equal(count, 2);
	assert_null(got.text);
}

TEST(takes_values_after_equals_blank_and_letter)
{
	static const char *const rows[] = { "--text=a", "--text a", "-t a",
					    "-ta",      "-t=a",     "-fta" };

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(parse(rows[i]), 0);
		assert_string_equal(got.text, "a");
		assert_int_equal(count, 1);
	}
	assert_true(got.flag);
	assert_int_equal(parse("--text="), 0);
	assert_string_equal(got.text, "");
	/* the value is the next word, as with getopt */
	assert_int_equal(parse("--text --flag"), 0);
	assert_string_equal(got.text, "--flag");
}

TEST(an_optional_value_stands_only_after_equals)
{
	assert_int_equal(parse("--maybe word"), 0);
	assert_string_equal(got.maybe, "given");
	assert_int_equal(count, 2);
	assert_string_equal(words[1], "word");
	assert_int_equal(parse("--maybe=word"), 0);
	assert_string_equal(got.maybe, "word");
	assert_int_equal(parse("-mword -m"), 0);
	assert_string_equal(got.maybe, "given");
}

TEST(leaves_arguments_and_everything_after_two_dashes)
{
	assert_int_equal(parse("one -f two - -- -o --nonsense"), 0);
	assert_true(got.flag);
	assert_false(got.other);
	assert_int_equal(count, 6);
	assert_string_equal(words[1], "one");
	assert_string_equal(words[2], "two");
	assert_string_equal(words[3], "-");
	assert_string_equal(words[4], "-o");
	assert_string_equal(words[5], "--nonsense");
	assert_null(words[6]);
}

TEST(lists_grow_with_commas_and_repetition)
{
	assert_int_equal(parse("--list a,b -l c --list=d"), 0);
	assert_int_equal(got_second.list.count, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(got_second.list.item[i][0], 'a' + (int)i);
}

TEST(a_list_has_a_maximum_length)
{
	char line[256] = "--list=";

	for (unsigned i = 0; i < OPTION_LIST_MAX; i++)
		strcat(line, "x,");
	line[strlen(line) - 1] = '\0';
	assert_int_equal(parse(line), 0);
	assert_int_equal(got_second.list.count, OPTION_LIST_MAX);
	strcat(line, ",y");
	assert_int_equal(parse(line), -1);
	assert_string_equal(error, "--list has too many values, or they are too long");
}

TEST(refuses_with_a_message)
{
	static const struct {
		const char *line, *sentence;
	} rows[] = {
		{ "--flg", "unknown option '--flg' (did you mean '--flag'?)" },
		{ "--zzzzzz", "unknown option '--zzzzzz'" },
		{ "-fz", "unknown option '-z'" },
		{ "--flag=1", "--flag takes no value" },
		{ "--text", "--text needs a value (TEXT)" },
		{ "-t", "-t needs a value (TEXT)" },
		{ "--time=soon",
		  "--time takes a time such as 100ms, 5s, 2m or 2h, not 'soon'" },
		{ "-i _", "--time takes a time such as 100ms, 5s, 2m or 2h, not ''" },
		{ "--choice=gren",
		  "--choice takes red, green or blue, not 'gren' (did you mean 'green'?)" },
		{ "--choice=9", "--choice takes red, green or blue, not '9'" },
		{ "--list=a,", "--list has an empty value" },
		{ "--fla", "unknown option '--fla' (did you mean '--flag'?)" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		assert_int_equal(parse(rows[i].line), -1);
		assert_string_equal(error, rows[i].sentence);
	}
}

TEST(suggests_the_option_that_takes_the_value)
{
	assert_int_equal(parse("--maybe word"), 0);
	assert_ptr_equal(option_without_value(tables), &first[3]);
	assert_int_equal(parse("--maybe=word"), 0);
	assert_null(option_without_value(tables));
	assert_int_equal(parse("word"), 0);
	assert_null(option_without_value(tables));
}

TEST_MAIN(NULL, NULL)
