#include "base/number.h"

#include "test.h"

#include <math.h>

static char line[2048];
static struct buf out;

static int start(void **state)
{
	buf_init_fixed(&out, line, sizeof(line));
	return 0;
}

#define TEST_SETUP start

TEST(every_text_is_one_word_and_reads_back)
{
	char text[256], back[256];

	for (unsigned i = 0; i < 255; i++)
		text[i] = (char)(i + 1);
	text[255] = '\0';
	tsv_add_text(&out, text);
	assert_null(strpbrk(line, "\t\n\r-\x7f"));
	assert_true(tsv_text(line, back, sizeof(back)));
	assert_string_equal(back, text);
	assert_false(tsv_text(line, back, sizeof(back) - 1));
}

TEST(an_empty_text_and_a_dash_are_distinguished)
{
	char back[8] = "x";

	tsv_add_text(&out, "");
	assert_string_equal(line, "-");
	assert_true(tsv_text("-", back, sizeof(back)));
	assert_string_equal(back, "");
	tsv_add_text(&out, "-");
	assert_string_equal(line, "-\\2d");
	assert_true(tsv_text("\\2d", back, sizeof(back)));
	assert_string_equal(back, "-");
}

TEST(a_dash_is_kept_where_it_has_no_meaning)
{
	static const char *const texts[] = { "", "-", "GPU-1a", "a\tb\\\n\x7f" };
	const char *at = line;
	char back[16];

	for (unsigned i = 0; i < 4; i++) {
		tsv_escape(&out, texts[i]);
		buf_addc(&out, '\t');
	}
	assert_string_equal(line, "\t-\tGPU-1a\ta\\09b\\5c\\0a\\7f\t");
	for (unsigned i = 0; i < 4; i++) {
		assert_true(tsv_unescape(&at, back, sizeof(back)));
		assert_string_equal(back, texts[i]);
		assert_int_equal(*at++, '\t');
	}
	at = "GPU-1a";
	assert_false(tsv_unescape(&at, back, sizeof("GPU-1a") - 1));
}

TEST(text_that_the_writer_cannot_produce_is_refused)
{
	static const char *const bad[] = { "\\", "\\2", "\\2g", "\\g2", "\\2D", "\\00", "a\\" };
	char back[8];

	for (unsigned i = 0; i < COUNT_OF(bad); i++)
		assert_false(tsv_text(bad[i], back, sizeof(back)));
}

TEST(a_number_reads_back_to_its_bits)
{
	static const double numbers[] = { 0.0, -0.0, 0.1, -1e-300, 6.02214076e23 };
	double back;

	for (unsigned i = 0; i < COUNT_OF(numbers); i++) {
		start(NULL);
		tsv_add_real(&out, numbers[i]);
		assert_true(number_real(line, &back));
		assert_memory_equal(&back, &numbers[i], sizeof(back));
	}
	start(NULL);
	tsv_add_real(&out, INFINITY);
	tsv_add_real(&out, NAN);
	assert_string_equal(line, "--");
}

TEST(words_are_taken_one_by_one)
{
	const char *at = "one\ttwo\t\tthree";
	char word[4];

	assert_true(tsv_take(&at, word, sizeof(word)));
	assert_string_equal(word, "one");
	assert_true(tsv_take(&at, word, sizeof(word)));
	assert_string_equal(word, "two");
	assert_false(tsv_take(&at, word, sizeof(word))); /* none */
	at++;
	assert_false(tsv_take(&at, word, sizeof(word))); /* too long */
	assert_string_equal(at, "three");
	at = "";
	assert_false(tsv_take(&at, word, sizeof(word)));
}

TEST_MAIN(NULL, NULL)
