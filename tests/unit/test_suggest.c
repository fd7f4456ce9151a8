#include "base/suggest.h"

#include "test.h"

static const char *const words[] = { "listen",       "interval", "backend", NULL,
				     "nvml-library", "history",  "gpu",     "deadline" };

static const char *near(const char *word)
{
	return suggest(word, words, COUNT_OF(words), sizeof(words[0]));
}

TEST(corrects_a_typo)
{
	assert_string_equal(near("lisen"), "listen");   /* a letter is missing */
	assert_string_equal(near("listten"), "listen"); /* doubled  */
	assert_string_equal(near("lixten"), "listen");  /* replaced */
	assert_string_equal(near("lsiten"), "listen");  /* swapped  */
	assert_string_equal(near("intreval"), "interval");
	assert_string_equal(near("histroy"), "history");
}

TEST(case_and_kind_of_dash_do_not_matter)
{
	assert_string_equal(near("NVML_Library"), "nvml-library");
	assert_string_equal(near("nvml_libary"), "nvml-library");
}

TEST(a_swap_is_one_edit_and_not_two)
{
	assert_string_equal(near("gup"), "gpu"); /* three letters allow one edit */
	assert_null(near("ugx"));
}

TEST(an_unfinished_word_is_suggested)
{
	assert_string_equal(near("dea"), "deadline");
	assert_string_equal(near("BACK"), "backend");
	assert_null(near("de")); /* two letters are too few */
}

TEST(nothing_near_gives_nothing)
{
	char endless[300];

	memset(endless, 'x', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	assert_null(near("temperature"));
	assert_null(near(""));
	assert_null(near(endless));
	assert_null(suggest("x", NULL, 0, sizeof(char *)));
}

TEST(the_nearest_wins_and_the_first_of_equals)
{
	static const char *const near_words[] = { "powers", "power", "tower" };

	assert_string_equal(suggest("power", near_words, 3, sizeof(near_words[0])), "power");
	assert_string_equal(suggest("powerx", near_words, 3, sizeof(near_words[0])), "powers");
}

TEST(names_may_stand_in_a_table_of_structs)
{
	static const struct {
		int before;
		const char *name;
		double after;
	} table[] = { { 1, "alpha", 0 }, { 2, "beta", 0 }, { 3, NULL, 0 }, { 4, "gamma", 0 } };

	assert_string_equal(suggest("gama", &table[0].name, 4, sizeof(table[0])), "gamma");
}

TEST_MAIN(NULL, NULL)
