#include "base/json.h"
#include "base/number.h"

#include "test.h"

#include <gpuward.h>

#include <float.h>
#include <locale.h>
#include <math.h>

static struct buf out;
static struct json j;

static int start(void **state)
{
	buf_init(&out, 1 << 16);
	json_init(&j, &out, false);
	return 0;
}

static int finish(void **state)
{
	buf_done(&out);
	return 0;
}

#define TEST_SETUP    start
#define TEST_TEARDOWN finish

static void assert_document(const char *want)
{
	assert_int_equal(json_end(&j), 0);
	assert_string_equal(out.p, want);
}

TEST(commas_and_nesting_are_added)
{
	json_object(&j, NULL);
	json_int(&j, "a", -1);
	json_array(&j, "b");
	json_uint(&j, NULL, UINT64_MAX);
	json_object(&j, NULL);
	json_object_end(&j);
	json_array(&j, NULL);
	json_array_end(&j);
	json_bool(&j, NULL, true);
	json_array_end(&j);
	json_null(&j, "c");
	json_object_end(&j);
	assert_document("{\"a\":-1,\"b\":[18446744073709551615,{},[],true],\"c\":null}\n");
}

TEST(a_time_that_is_not_known_is_null)
{
	json_array(&j, NULL);
	json_time(&j, NULL, UINT64_C(1767787200123) * 1000000);
	json_time(&j, NULL, 0);
	json_array_end(&j);
	assert_document("[\"2026-01-07T12:00:00.123Z\",null]\n");
}

TEST(pretty_is_indented_by_two)
{
	json_init(&j, &out, true);
	json_object(&j, NULL);
	json_array(&j, "a");
	json_int(&j, NULL, 1);
	json_int(&j, NULL, 2);
	json_array_end(&j);
	json_object(&j, "b");
	json_object_end(&j);
	json_object_end(&j);
	assert_document("{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}\n");
}

TEST(texts_are_escaped)
{
	json_array(&j, NULL);
	json_string(&j, NULL, "\"\\/\b\f\n\r\t\x01\x1f\x7f");
	json_string(&j, NULL, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	json_string(&j, NULL, "\xc2\x9b\xe2\x80\xae");
	json_string(&j, NULL, "");
	json_string(&j, NULL, NULL);
	json_array_end(&j);
	assert_document(
		"[\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\","
		"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\",\"\\u009b\\u202e\",\"\",null]\n");
}

TEST(each_bad_byte_becomes_a_replacement_character)
{
	json_object(&j, NULL);
	json_string(&j, "k\xff", "a\xc3(\xed\xa0\x80");
	json_object_end(&j);
	assert_document(
		"{\"k\xef\xbf\xbd\":\"a\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}"
		"\n");
}

TEST(doubles_are_short_and_exact)
{
	static const struct {
		double v;
		const char *want;
	} rows[] = {
		{ 0.1, "0.1" },
		{ 1.0 / 3, "0.3333333333333333" },
		{ 123456789, "123456789" },
		{ -17, "-17" },
		{ 9007199254740991.0, "9007199254740991" },
		{ 1e21, "1e+21" },
		{ 5e-324, "4.94066e-324" },
		{ NAN, "null" },
		{ INFINITY, "null" },
		{ -INFINITY, "null" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		buf_clear(&out);
		json_init(&j, &out, false);
		json_double(&j, NULL, rows[i].v);
		assert_int_equal(json_end(&j), 0);
		out.p[out.len - 1] = '\0';
		assert_string_equal(out.p, rows[i].want);
	}
}

/* Every finite double reads back to the same value. */
TEST(every_double_reads_back)
{
	uint64_t seed = 88172645463325252u;

	for (int i = 0; i < 20000; i++) {
		char text[NUMBER_SIZE];
		const char *end;
		double v;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		memcpy(&v, &seed, sizeof(v));
		if (!isfinite(v))
			continue;
		number_format(v, text);
		if (number_parse(text, &end) != v || *end)
			fail_msg("%s is not %a", text, v);
	}
}

TEST(a_locale_with_a_decimal_comma_changes_nothing)
{
	static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
					     "es_ES.UTF-8", "pt_BR.UTF-8" };
	size_t i = 0, n = COUNT_OF(names);
	char text[NUMBER_SIZE];
	const char *end;
	double v;

	while (i < n && !setlocale(LC_NUMERIC, names[i]))
		i++;
	if (i == n) {
		print_message("skipped: no locale with a decimal comma is installed\n");
		skip();
	}
	number_format(0.5, text);
	v = number_parse("2.5", &end);
	json_double(&j, NULL, 0.5);
	setlocale(LC_NUMERIC, "C");
	assert_string_equal(text, "0.5");
	assert_true(v == 2.5 && *end == '\0');
	assert_document("0.5\n");
}

TEST(a_value_that_is_not_a_number_is_refused)
{
	const char *text = "watts", *end = NULL;

	number_parse(text, &end);
	assert_ptr_equal(end, text);
	assert_true(number_parse("12.5 W", &end) == 12.5);
	assert_string_equal(end, " W");
}

TEST(a_document_that_does_not_fit_is_reported)
{
	char mem[16];
	struct buf small;

	buf_init_fixed(&small, mem, sizeof(mem));
	json_init(&j, &small, false);
	json_array(&j, NULL);
	for (int i = 0; i < 100; i++)
		json_int(&j, NULL, i);
	json_array_end(&j);
	assert_int_equal(json_end(&j), -GW_E_SIZE);
}

TEST(nests_as_deep_as_documented)
{
	for (int i = 0; i < JSON_DEPTH; i++)
		json_array(&j, NULL);
	for (int i = 0; i < JSON_DEPTH; i++)
		json_array_end(&j);
	assert_int_equal(json_end(&j), 0);
	assert_int_equal(out.len, 2 * JSON_DEPTH + 1);
}

TEST(raw_json_is_inserted_unchanged)
{
	json_object(&j, NULL);
	json_int(&j, "a", 1);
	json_raw(&j, "b", "{\"c\":[1,2]}");
	json_array(&j, "d");
	json_raw(&j, NULL, "3");
	json_raw(&j, NULL, "null");
	json_array_end(&j);
	json_object_end(&j);
	assert_document("{\"a\":1,\"b\":{\"c\":[1,2]},\"d\":[3,null]}\n");
}

TEST(a_number_that_rounds_to_zero_has_no_minus_sign)
{
	static const double values[] = {
		-0.0, -0.004, -0.005, -0.006, -0.5, 0.004, 0.005, 7.25
	};
	char text[32];

	for (unsigned i = 0; i < COUNT_OF(values); i++)
		for (int decimals = 0; decimals < 6; decimals++) {
			snprintf(text, sizeof(text), "%.*f", decimals,
				 number_without_minus_zero(values[i], decimals));
			assert_false(text[0] == '-' && strpbrk(text, "123456789") == NULL);
			if (fabs(values[i]) > pow(10, -decimals))
				assert_true(number_without_minus_zero(values[i], decimals) ==
					    values[i]);
		}
}

TEST_MAIN(NULL, NULL)
