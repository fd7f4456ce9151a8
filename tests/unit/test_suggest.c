#include "base/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const words[] = { "listen",       "interval", "backend", NULL,
				     "nvml-library", "history",  "gpu",     "deadline" };

static const char *near(const char *word)
{
	return suggest(word, words, sizeof(words) / sizeof(words[0]), sizeof(words[0]));
}

static void mends_a_slip(void **state)
{
	(void)state;
	assert_string_equal(near("lisen"), "listen");   /* left out */
	assert_string_equal(near("listten"), "listen"); /* doubled  */
	assert_string_equal(near("lixten"), "listen");  /* replaced */
	assert_string_equal(near("lsiten"), "listen");  /* swapped  */
	assert_string_equal(near("intreval"), "interval");
	assert_string_equal(near("histroy"), "history");
}

static void case_and_kind_of_dash_do_not_matter(void **state)
{
	(void)state;
	assert_string_equal(near("NVML_Library"), "nvml-library");
	assert_string_equal(near("nvml_libary"), "nvml-library");
}

static void a_swap_is_one_edit_and_not_two(void **state)
{
	(void)state;
	assert_string_equal(near("gup"), "gpu"); /* three letters allow one edit */
	assert_null(near("ugx"));
}

static void a_word_that_was_not_finished_is_near(void **state)
{
	(void)state;
	assert_string_equal(near("dea"), "deadline");
	assert_string_equal(near("BACK"), "backend");
	assert_null(near("de")); /* two letters say too little */
}

static void nothing_near_gives_nothing(void **state)
{
	char endless[300];

	(void)state;
	memset(endless, 'x', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	assert_null(near("temperature"));
	assert_null(near(""));
	assert_null(near(endless));
	assert_null(suggest("x", NULL, 0, sizeof(char *)));
}

static void the_nearest_wins_and_the_first_of_equals(void **state)
{
	static const char *const near_words[] = { "powers", "power", "tower" };

	(void)state;
	assert_string_equal(suggest("power", near_words, 3, sizeof(near_words[0])), "power");
	assert_string_equal(suggest("powerx", near_words, 3, sizeof(near_words[0])), "powers");
}

static void names_may_stand_in_a_table_of_structs(void **state)
{
	static const struct {
		int before;
		const char *name;
		double after;
	} table[] = { { 1, "alpha", 0 }, { 2, "beta", 0 }, { 3, NULL, 0 }, { 4, "gamma", 0 } };

	(void)state;
	assert_string_equal(suggest("gama", &table[0].name, 4, sizeof(table[0])), "gamma");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mends_a_slip),
		cmocka_unit_test(case_and_kind_of_dash_do_not_matter),
		cmocka_unit_test(a_swap_is_one_edit_and_not_two),
		cmocka_unit_test(a_word_that_was_not_finished_is_near),
		cmocka_unit_test(nothing_near_gives_nothing),
		cmocka_unit_test(the_nearest_wins_and_the_first_of_equals),
		cmocka_unit_test(names_may_stand_in_a_table_of_structs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
