/* Tests progress marks that a command writes to its descriptor, valid and invalid ones. */
#include "cli/progress_marks.h"

#include "base/clock.h"

#include "test.h"

#include <math.h>

static struct gw_ctx *ctx;
static struct gw_meter *meter;
static struct progress_marks m;

static int setup(void **state)
{
	struct gw_options o = { .size = sizeof(o), .backend = "none" };

	if (gw_open(&o, &ctx) != 0)
		return -1;
	return gw_meter_start(ctx, NULL, &meter);
}

static int teardown(void **state)
{
	gw_meter_stop(meter);
	gw_close(ctx);
	return 0;
}

static uint64_t begin_ns;

static int begin(void **state)
{
	begin_ns = clock_mono_ns(clock_real()) - 10 * NS_PER_S;
	progress_marks_init(&m, meter, NULL, begin_ns);
	return 0;
}

static int end(void **state)
{
	progress_marks_done(&m);
	return 0;
}

#define TEST_SETUP    begin
#define TEST_TEARDOWN end

static void feed(const char *text)
{
	progress_marks_feed(&m, text, strlen(text), clock_mono_ns(clock_real()));
}

/* Feeds a mark such as "begin NAME T", with T this many seconds after the start of the run. */
static void feed_at(const char *mark, double seconds)
{
	char text[128];

	snprintf(text, sizeof(text), "%s %llu\n", mark,
		 (unsigned long long)(begin_ns + (uint64_t)(seconds * 1e9)));
	feed(text);
}

TEST(parts_have_the_times_that_were_given)
{
	feed_at("begin outer", 1);
	feed_at("begin inner", 2);
	feed_at("end inner", 3.5);
	feed_at("end outer", 5);
	progress_marks_finish(&m, begin_ns + 6 * NS_PER_S);
	assert_int_equal(m.count, 2);
	assert_string_equal(m.window[0].label, "outer");
	assert_int_equal(m.window[0].end_ns - m.window[0].begin_ns, 4 * NS_PER_S);
	assert_int_equal(m.window[1].end_ns - m.window[1].begin_ns, 3 * NS_PER_S / 2);
	assert_int_equal(m.bad, 0);
}

TEST(of_two_open_parts_with_one_name_the_later_ends_first)
{
	feed_at("begin a", 1);
	feed_at("begin a", 2);
	feed_at("end a", 3);
	progress_marks_finish(&m, begin_ns + 6 * NS_PER_S);
	assert_int_equal(m.window[1].end_ns, begin_ns + 3 * NS_PER_S);
	assert_false(m.window[1].unfinished);
	assert_int_equal(m.window[0].end_ns, begin_ns + 6 * NS_PER_S);
	assert_true(m.window[0].unfinished);
}

TEST(lines_may_arrive_in_pieces)
{
	static const char text[] = "tokens 12\niteration\n\ntokens 30\r\n";

	for (size_t i = 0; i < sizeof(text) - 1; i++)
		progress_marks_feed(&m, &text[i], 1, begin_ns + i);
	assert_int_equal(m.tokens, 42);
	assert_int_equal(m.iterations, 1);
	assert_int_equal(m.bad, 0);
}

TEST(a_part_counts_its_own_iterations_and_tokens)
{
	const struct progress_marks_window *w;
	unsigned n;

	for (unsigned i = 0; i < 4; i++) /* loading: slow iterations, 1 s each */
		progress_marks_feed(&m, "iteration\ntokens 100\n", 21, begin_ns + i * NS_PER_S);
	feed_at("begin work", 4);
	for (unsigned i = 0; i < 11; i++)
		progress_marks_feed(&m, "iteration\ntokens 3\n", 19,
				    begin_ns + 4 * NS_PER_S + (i + 1) * 10 * NS_PER_MS);
	feed_at("end work", 5);
	feed_at("begin work", 5.5);
	feed("iteration\n");
	feed_at("end work", 6);
	feed_at("begin open", 7);
	progress_marks_finish(&m, begin_ns + 8 * NS_PER_S);
	w = progress_marks_find(&m, "work", &n);
	assert_ptr_equal(w, &m.window[0]);
	assert_int_equal(n, 2);
	assert_int_equal(w->iterations, 11);
	assert_int_equal(w->tokens, 33);
	/* the time from the last slow iteration to the first iteration of this part is not
	 * counted */
	assert_float_equal(progress_marks_latency(&m, w, 0.95), 10e-3, 1e-9);
	assert_int_equal(m.window[1].iterations, 1);
	assert_true(isnan(progress_marks_latency(&m, &m.window[1], 0.5)));
	assert_int_equal(m.iterations, 16);
	assert_null(progress_marks_find(&m, "open", &n)); /* it never ended */
	assert_null(progress_marks_find(&m, "other", &n));
}

TEST(times_between_iterations_are_the_latency)
{
	assert_true(isnan(progress_marks_latency(&m, NULL, 0.5)));
	for (unsigned i = 0; i <= 100; i++)
		progress_marks_feed(&m, "iteration\n", 10,
				    begin_ns + (uint64_t)i * i * NS_PER_MS / 2);
	assert_int_equal(m.iterations, 101);
	/* (i^2 - (i-1)^2) / 2 ms = i - 0.5 ms for i of 1 to 100: the median lies between the
	 * 50th and 51st */
	assert_float_equal(progress_marks_latency(&m, NULL, 0.5), 50e-3, 1e-9);
	assert_float_equal(progress_marks_latency(&m, NULL, 0.95), 94.55e-3, 1e-6);
}

TEST(bad_lines_are_counted_and_the_first_is_reported)
{
	static const char *const bad[] = {
		"nonsense\n",
		"begin\n",
		"begin a b\n",
		"begin a 1 2\n",
		"end a\n",
		"tokens\n",
		"tokens -1\n",
		"tokens 99999999999999999999\n",
		"tokens x\n",
		"iteration x\n",
		"Begin a\n",
		"begin a 1\n",
		"begin a 9999999999999999999\n",
		"\x1b[2J\xff\n",
	};

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		feed(bad[i]);
		assert_int_equal(m.bad, i + 1);
	}
	assert_string_equal(m.reason, "'nonsense' is not a mark");
	assert_int_equal(m.count, 0);
	assert_int_equal(m.tokens, 0);
	assert_int_equal(m.iterations, 0);
}

TEST(reported_lines_have_no_control_characters)
{
	feed("\x1b[2J\xff\n");
	for (const char *p = m.reason; *p; p++)
		assert_true(*p >= ' ' && *p < 127);
}

TEST(a_line_without_end_is_one_bad_line)
{
	for (unsigned i = 0; i < 100000; i++)
		feed("xxxxxxxxxx");
	feed("\ntokens 1\n");
	assert_int_equal(m.bad, 1);
	assert_int_equal(m.tokens, 1);
}

TEST(parts_beyond_the_limit_are_counted)
{
	for (unsigned i = 0; i < PROGRESS_MARKS_WINDOWS + 5; i++)
		feed("begin a\nend a\n");
	progress_marks_finish(&m, clock_mono_ns(clock_real()));
	assert_int_equal(m.count, PROGRESS_MARKS_WINDOWS);
	assert_int_equal(m.refused, 5);
	assert_int_equal(m.bad, 0);
}

TEST(of_too_many_iterations_a_random_sample_is_kept)
{
	uint64_t t = begin_ns;

	/* short iterations first, then as many long ones */
	for (unsigned i = 0; i <= 4 * PROGRESS_MARKS_LATENCIES; i++) {
		t += i < 2 * PROGRESS_MARKS_LATENCIES ? NS_PER_MS : 3 * NS_PER_MS;
		progress_marks_feed(&m, "iteration\n", 10, t);
	}
	assert_int_equal(m.latencies, PROGRESS_MARKS_LATENCIES);
	assert_float_equal(progress_marks_latency(&m, NULL, 0.45), 1e-3, 1e-9);
	assert_float_equal(progress_marks_latency(&m, NULL, 0.55), 3e-3, 1e-9);
}

/* Feeds text and asserts the first two numbers that are not consecutive; 0 and 0: there are
 * none. */
static void number(const char *text, uint64_t before, uint64_t after)
{
	progress_marks_done(&m);
	progress_marks_init(&m, meter, NULL, begin_ns);
	feed(text);
	assert_int_equal(m.bad, 0);
	assert_int_equal(m.odd_before, before);
	assert_int_equal(m.odd_after, after);
}

TEST(numbers_that_do_not_count_up_are_noticed)
{
	number("iteration 0\niteration 1\niteration 2\n", 0, 0);
	/* the counter went on */
	number("iteration 5000\niteration 5001\n", 0, 0);
	/* an epoch began again */
	number("iteration 1\niteration 2\niteration 0\niteration 1\n", 0, 0);
	number("iteration 1\niteration\niteration 3\n", 0, 0);
	number("iteration\niteration\n", 0, 0);
	number("iteration 1\niteration 1\n", 0, 0); /* a single bad number is not reported */
	number("iteration 32\niteration 32\niteration 17\n", 32, 32);
	number("iteration 10\niteration 20\niteration 30\n", 10, 20);
	number("iteration 0\niteration 0\niteration 1\niteration 1\niteration 2\niteration 2\n",
	       2, 2); /* two processes count separately */
	number("iteration 9999999999999999999\niteration 0\n", 0, 0);
}

TEST_MAIN(setup, teardown)
