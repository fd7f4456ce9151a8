#include "base/utf8.h"

#include "test.h"

TEST(recognises_valid_sequences)
{
	static const struct {
		const char *text;
		size_t want;
	} rows[] = {
		{ "a", 1 },
		{ "\x7f", 1 },
		{ "\xc2\x80", 2 },
		{ "\xdf\xbf", 2 },
		{ "\xe0\xa0\x80", 3 },
		{ "\xed\x9f\xbf", 3 },
		{ "\xee\x80\x80", 3 },
		{ "\xef\xbf\xbf", 3 },
		{ "\xf0\x90\x80\x80", 4 },
		{ "\xf4\x8f\xbf\xbf", 4 },
		{ "\x80", 0 },     /* a continuation byte without a start */
		{ "\xc0\x80", 0 }, /* overlong              */
		{ "\xc1\xbf", 0 },
		{ "\xe0\x9f\xbf", 0 },
		{ "\xf0\x8f\xbf\xbf", 0 },
		{ "\xed\xa0\x80", 0 },     /* a surrogate           */
		{ "\xf4\x90\x80\x80", 0 }, /* past U+10FFFF         */
		{ "\xf5\x80\x80\x80", 0 },
		{ "\xff", 0 },
		{ "\xc3", 0 }, /* cut                   */
		{ "\xe2\x82", 0 },
		{ "\xf0\x9f\x98", 0 },
		{ "\xe2(\xac", 0 },
		{ "\xe2\x82(", 0 },
		{ "\xf0\x9f\x98(", 0 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		if (utf8_length(rows[i].text) != rows[i].want)
			fail_msg("row %zu", i);
}

/* The address sanitizer detects a read past the end. */
TEST(reads_no_further_than_a_nul)
{
	static const char *const cut[] = { "", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xf0" };

	for (size_t i = 0; i < COUNT_OF(cut); i++) {
		char *exact = strdup(cut[i]);

		assert_int_equal(utf8_length(exact), i == 0);
		assert_int_equal(utf8_columns(exact), strlen(exact));
		free(exact);
	}
}

TEST(every_code_point_reads_back)
{
	for (uint32_t code = 1; code <= 0x10FFFF + 10; code++) {
		char text[5] = { 0 };
		size_t n = utf8_encode(code, text);

		if ((code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) {
			assert_int_equal(n, 0);
		} else if (utf8_length(text) != n || utf8_decode(text, n) != code) {
			fail_msg("U+%04X", (unsigned)code);
		}
	}
}

TEST(counts_columns_as_a_terminal_does)
{
	assert_int_equal(utf8_columns(""), 0);
	assert_int_equal(utf8_columns("abc"), 3);
	assert_int_equal(utf8_columns("\xc3\xa9"), 1);                 /* é                  */
	assert_int_equal(utf8_columns("e\xcc\x81"), 1);                /* e, combining acute */
	assert_int_equal(utf8_columns("\xe6\xbc\xa2\xe5\xad\x97"), 4); /* 漢字           */
	assert_int_equal(utf8_columns("\xf0\x9f\x98\x80"), 2);         /* emoji              */
	assert_int_equal(utf8_columns("a\xff\xfe"), 3);
}

TEST(cleans_names_for_printing)
{
	static const struct {
		const char *from, *want;
	} rows[] = {
		{ "NVIDIA H200", "NVIDIA H200" },
		{ "a\x1b[31mb\n", "a?[31mb?" },
		{ "\xc2\x9b"
		  "c",
		  "?c" }, /* the one-character CSI */
		{ "a\xe2\x80\xae"
		  "b\xe2\x81\xa6",
		  "a?b?" }, /* RIGHT-TO-LEFT OVERRIDE and LEFT-TO-RIGHT ISOLATE */
		{ "\xff\xc3\xa9\x7f", "?\xc3\xa9?" },
		{ "", "" },
	};
	char out[32];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		utf8_clean(out, sizeof(out), rows[i].from);
		assert_string_equal(out, rows[i].want);
	}
}

TEST(cuts_between_code_points)
{
	char out[5];

	utf8_clean(out, sizeof(out), "abc\xe2\x82\xac");
	assert_string_equal(out, "abc");
	utf8_clean(out, sizeof(out), "a\xe2\x82\xac");
	assert_string_equal(out, "a\xe2\x82\xac");
	utf8_clean(out, 1, "abc");
	assert_string_equal(out, "");
}

TEST_MAIN(NULL, NULL)
