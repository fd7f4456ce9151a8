#include "base/member.h"

#include "test.h"

#include <gpuward.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static char line[2048];
static struct buf out;

static int start(void **state)
{
	buf_init_fixed(&out, line, sizeof(line));
	return 0;
}

#define TEST_SETUP start

static const char *const colours[] = { "red", "green", "blue", NULL };

struct sample {
	bool flag;
	unsigned small;
	uint64_t large, three[3];
	int step;
	int64_t far;
	double real, hex, later[4];
	char text[8], plain[8];
	unsigned colour;
	uint64_t colours;
	int64_t pids[3];
};

#define M(kind, m)                                         \
	{                                                  \
		.name = #m, MEMBER(kind, struct sample, m) \
	}
static const struct member list[] = {
	M(UNSIGNED, flag),
	M(UNSIGNED, small),
	M(UNSIGNED, large),
	{ .name = "three", MEMBER_ARRAY(UNSIGNED, struct sample, three), .max = 9 },
	M(SIGNED, step),
	M(SIGNED, far),
	M(REAL, real),
	M(HEX, hex),
	M(TEXT, text),
	M(PLAIN, plain),
	{ .name = "colour", MEMBER(NAME, struct sample, colour), .names = colours },
	{ .name = "colours", MEMBER(SET, struct sample, colours), .names = colours },
	M(PIDS, pids),
	{ .name = "later", MEMBER_ARRAY(REAL, struct sample, later), .least = 2 },
	{ 0 },
};

static const struct sample full = { .flag = true,
				    .small = UINT32_MAX,
				    .large = UINT64_MAX,
				    .three = { 1, 9 },
				    .step = INT32_MIN,
				    .far = INT64_MIN,
				    .real = 0.1,
				    .hex = 0.1,
				    .text = "-\t",
				    .plain = "a-b",
				    .colour = 2,
				    .colours = 5,
				    .pids = { 7, 1 },
				    .later = { 1, 2, -0.0, 1e300 } };

/* Returns whether text is a valid value of the member with this name. */
static bool is_valid(const char *name, const char *text)
{
	const struct member *m = list;
	struct sample s = { 0 };

	while (strcmp(m->name, name) != 0)
		m++;
	return member_take(&text, m, (char *)&s + m->offset) == 0;
}

TEST(all_members_of_a_struct_are_one_line_and_read_back)
{
	struct sample back = { 0 };
	const char *at = line;

	members_add(&out, list, &full);
	assert_string_equal(line, "\t1\t4294967295\t18446744073709551615\t1\t9\t0\t-2147483648"
				  "\t-9223372036854775808\t0.1\t0x1.999999999999ap-4"
				  "\t\\2d\\09\ta-b\tblue\tred,blue\t7,1\t1\t2\t-0\t1e+300");
	assert_int_equal(members_take(&at, list, &back), 0);
	assert_string_equal(at, "");
	assert_memory_equal(&back, &full, sizeof(back));
}

TEST(a_line_may_end_after_the_values_that_an_older_version_wrote)
{
	struct sample back = { 0 };
	const char *at = line;

	members_add(&out, list, &full);
	*strstr(line, "\t-0") = '\0';
	assert_int_equal(members_take(&at, list, &back), 0);
	assert_true(back.later[1] == 2 && isnan(back.later[2]) && isnan(back.later[3]));
	*strstr(line, "\t2") = '\0';
	at = line;
	assert_int_equal(members_take(&at, list, &back), -GW_E_PARSE);
}

TEST(each_member_that_is_not_zero_is_a_line_with_its_name)
{
	struct sample back = { 0 };
	char *rest = line;

	members_write(&out, "p ", list, &full);
	assert_in(line, "p flag\t1\np small\t4294967295\n");
	assert_in(line, "p three\t1\t9\np step\t");
	for (char *l; (l = strsep(&rest, "\n")) && *l;)
		assert_int_equal(members_read(l + 2, list, &back), 0);
	assert_memory_equal(&back, &full, sizeof(back));
	start(NULL);
	members_write(&out, "", list, &(struct sample){ .plain = "\0x" });
	assert_string_equal(line, "");
}

TEST(a_line_with_too_many_or_no_values_is_refused)
{
	struct sample back = { 0 };

	assert_int_equal(members_read("three\t1\t2\t3", list, &back), 0);
	assert_int_equal(members_read("three\t1\t2\t3\t4", list, &back), -GW_E_PARSE);
	assert_int_equal(members_read("three", list, &back), -GW_E_PARSE);
	assert_int_equal(members_read("three\t", list, &back), -GW_E_PARSE);
	assert_int_equal(members_read("thre\t1", list, &back), -GW_E_NOENT);
	assert_int_equal(members_read("threes\t1", list, &back), -GW_E_NOENT);
}

TEST(invalid_values_are_refused)
{
	static const struct {
		const char *name, *text;
	} bad[] = {
		{ "flag", "2" },
		{ "flag", "" },
		{ "flag", "-1" },
		{ "small", "4294967296" },
		{ "small", "1x" },
		{ "small", " 1" },
		{ "small", "+1" },
		{ "large", "18446744073709551616" },
		{ "three", "10" },
		{ "step", "2147483648" },
		{ "step", "-2147483649" },
		{ "step", "-" },
		{ "far", "9223372036854775808" },
		{ "far", "-9223372036854775809" },
		{ "real", "" },
		{ "real", "\t1" },
		{ "real", "nan" },
		{ "real", "inf" },
		{ "real", "1 2" },
		{ "hex", "-" },
		{ "text", "" },
		{ "text", "12345678" },
		{ "text", "\\" },
		{ "text", "\\2" },
		{ "text", "\\2g" },
		{ "text", "\\g2" },
		{ "text", "\\2D" },
		{ "text", "\\00" },
		{ "plain", "a\\" },
		{ "colour", "" },
		{ "colour", "re" },
		{ "colour", "redd" },
		{ "colour", "red,blue" },
		{ "colours", "red," },
		{ "colours", "red,-" },
		{ "pids", "" },
		{ "pids", "7,0" },
		{ "pids", "7," },
		{ "pids", "1,2,3,4" },
	};

	for (unsigned i = 0; i < COUNT_OF(bad); i++)
		if (is_valid(bad[i].name, bad[i].text))
			fail_msg("%s '%s' was taken", bad[i].name, bad[i].text);
	assert_true(is_valid("hex", "nan"));
	assert_true(is_valid("hex", "-inf"));
	assert_true(is_valid("text", "1234567"));
	assert_true(is_valid("pids", "1,2,3"));
}

TEST(every_text_is_one_word_and_reads_back)
{
	const struct member kinds[] = { { .kind = MEMBER_TEXT, .size = 256 },
					{ .kind = MEMBER_PLAIN, .size = 256 } };
	char text[256], back[256];

	for (unsigned i = 0; i < 255; i++)
		text[i] = (char)(i + 1);
	text[255] = '\0';
	for (unsigned i = 0; i < 2; i++) {
		struct member less = kinds[i];
		const char *at = line;

		start(NULL);
		member_add(&out, &kinds[i], text);
		assert_null(strpbrk(line, "\t\n\r\x7f"));
		assert_int_equal(strchr(line, '-') != NULL, i);
		assert_int_equal(member_take(&at, &kinds[i], back), 0);
		assert_string_equal(back, text);
		less.size--;
		at = line;
		assert_int_equal(member_take(&at, &less, back), -GW_E_PARSE);
	}
}

TEST(an_empty_text_and_a_dash_are_distinguished)
{
	static const char *const words[][2] = { { "-", "" }, { "\\2d", "-" } };
	const struct member m = { .kind = MEMBER_TEXT, .size = 8 };

	for (unsigned i = 0; i < 2; i++) {
		const char *at = words[i][0];
		char back[8] = "x";

		start(NULL);
		member_add(&out, &m, words[i][1]);
		assert_string_equal(line, words[i][0]);
		assert_int_equal(member_take(&at, &m, back), 0);
		assert_string_equal(back, words[i][1]);
	}
}

TEST(a_number_reads_back_to_its_bits)
{
	static const double numbers[] = { 0.0, -0.0, 0.1, -1e-300, 6.02214076e23, INFINITY };
	const struct member kinds[] = { { .kind = MEMBER_HEX }, { .kind = MEMBER_REAL } };

	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < COUNT_OF(numbers) - k; i++) {
			const char *at = line;
			double back;

			start(NULL);
			member_add(&out, &kinds[k], &numbers[i]);
			assert_int_equal(member_take(&at, &kinds[k], &back), 0);
			assert_memory_equal(&back, &numbers[i], sizeof(back));
		}
	start(NULL);
	member_add(&out, &kinds[1], &(double){ INFINITY });
	member_add(&out, &kinds[1], &(double){ NAN });
	assert_string_equal(line, "--");
}

TEST_MAIN(NULL, NULL)
