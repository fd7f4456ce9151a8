/* Tests the reader of Prometheus text. */
#include "test.h"

#include "base/prometheus_text.h"

#include <math.h>
#include <string.h>

static const char reply[] =
	"# HELP vllm:generation_tokens_total Number of tokens.\n"
	"# TYPE vllm:generation_tokens_total counter\n"
	"\n"
	"vllm:generation_tokens_total{engine=\"0\",model_name=\"a \\\"b\\\" \\\\ {c}\"} 12.0\n"
	"  plain 1e3 1700000000000\r\n"
	"bare{}\t7\n"
	"broken{a=\"x} 1\n"
	"nothing\n"
	"word abc\n"
	"not_a_number NaN\n"
	"last 3";

static struct prometheus_line line_of(const char *name)
{
	const char *text = reply;
	struct prometheus_line l;

	while (prometheus_text_next(&text, &l))
		if (prometheus_line_is(&l, name))
			return l;
	fail();
	return l;
}

static void samples_are_read_and_comments_are_skipped(void **state)
{
	const char *text = reply;
	struct prometheus_line l;
	unsigned n = 0;

	(void)state;
	while (prometheus_text_next(&text, &l)) {
		assert_true(*l.name != '#');
		n++;
	}
	assert_int_equal(n, 8);
	assert_true(line_of("vllm:generation_tokens_total").value == 12);
	assert_true(line_of("plain").value == 1000);
	assert_true(line_of("bare").value == 7);
	assert_true(line_of("last").value == 3);
	assert_false(prometheus_line_is(&l, "las"));
}

static void labels_are_unescaped(void **state)
{
	const struct prometheus_line l = line_of("vllm:generation_tokens_total");
	char value[32], small[4];

	(void)state;
	assert_true(prometheus_line_label(&l, "model_name", value, sizeof(value)));
	assert_string_equal(value, "a \"b\" \\ {c}");
	assert_true(prometheus_line_label(&l, "engine", value, sizeof(value)));
	assert_string_equal(value, "0");
	assert_false(prometheus_line_label(&l, "engin", value, sizeof(value)));
	assert_string_equal(value, "");
	assert_false(prometheus_line_label(&l, "model_name", small, sizeof(small)));
	assert_string_equal(small, "");
}

static void malformed_lines_are_marked_and_do_not_end_the_text(void **state)
{
	(void)state;
	assert_false(line_of("broken").valid);
	assert_int_equal(line_of("broken").labels_len, 0);
	assert_false(line_of("nothing").valid);
	assert_false(line_of("word").valid);
	assert_true(isnan(line_of("not_a_number").value));
	assert_true(line_of("last").valid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_are_read_and_comments_are_skipped),
		cmocka_unit_test(labels_are_unescaped),
		cmocka_unit_test(malformed_lines_are_marked_and_do_not_end_the_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
