#include "base/log.h"

#include "test.h"

#include <gpuward.h>

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct clock_stepped time_stands;
static int ends[2];
static char got[8192];

static int open_pipe(void **state)
{
	/* 2026-01-31T12:00:00.123Z */
	clock_stepped_init(&time_stands, 0, UINT64_C(1769860800123) * NS_PER_MS);
	return pipe2(ends, O_NONBLOCK | O_CLOEXEC);
}

static int close_pipe(void **state)
{
	close(ends[0]);
	close(ends[1]);
	return 0;
}

#define LOG_TEST(name) TEST_WITH(name, open_pipe, close_pipe)

static struct log logger(enum log_format format)
{
	struct log l;

	log_init(&l, ends[1], LOG_INFO, format, &time_stands.clock);
	return l;
}

static const char *written(void)
{
	ssize_t n = read(ends[0], got, sizeof(got) - 1);

	got[n > 0 ? n : 0] = '\0';
	return got;
}

LOG_TEST(writes_logfmt)
{
	struct log l = logger(LOG_LOGFMT);

	LOG(&l, LOG_INFO, "nvml ready", LOG_I("gpus", 2), LOG_S("driver", "580.1"),
	    LOG_D("watts", 0.1), LOG_B("simulated", false), LOG_S("note", "a \"b\"=c\n"),
	    LOG_S("empty", ""), LOG_S("none", NULL), LOG_D("nan", NAN));
	assert_string_equal(
		written(), "time=2026-01-31T12:00:00.123Z level=info msg=\"nvml ready\" gpus=2 "
			   "driver=580.1 watts=0.1 simulated=false note=\"a \\\"b\\\"=c\\n\" "
			   "empty=\"\" none=null nan=null\n");
}

LOG_TEST(writes_json)
{
	struct log l = logger(LOG_JSON);

	LOG(&l, LOG_ERROR, "a\tb", LOG_I("i", INT64_MIN), LOG_S("s", "\xff\xc3\xa9"),
	    LOG_D("d", 1e300), LOG_B("b", true), LOG_S("none", NULL));
	assert_string_equal(
		written(),
		"{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"error\",\"msg\":"
		"\"a\\tb\",\"i\":-9223372036854775808,\"s\":\"\xef\xbf\xbd\xc3\xa9\","
		"\"d\":1e+300,\"b\":true,\"none\":null}\n");
}

LOG_TEST(a_line_may_have_no_pairs)
{
	struct log l = logger(LOG_LOGFMT);

	log_write(&l, LOG_WARNING, "plain", NULL, 0);
	assert_string_equal(written(),
			    "time=2026-01-31T12:00:00.123Z level=warning msg=plain\n");
}

LOG_TEST(lines_above_the_level_are_not_written)
{
	struct log l = logger(LOG_LOGFMT);

	log_write(&l, LOG_DEBUG, "no", NULL, 0);
	assert_string_equal(written(), "");
	l.level = LOG_DEBUG;
	log_write(&l, LOG_DEBUG, "yes", NULL, 0);
	assert_in(written(), "msg=yes");
}

LOG_TEST(a_line_that_does_not_fit_is_cut_and_marked)
{
	static char large[20000];
	static const char *const fill[] = { "x", "\x01", "\xe2\x82\xac", "\xff" };

	for (size_t f = 0; f < COUNT_OF(fill); f++) {
		struct log l = logger(LOG_JSON);
		size_t n;

		large[0] = '\0';
		for (size_t i = 0; i < 5000; i++)
			memcpy(large + i * strlen(fill[f]), fill[f], strlen(fill[f]) + 1);
		LOG(&l, LOG_INFO, large, LOG_I("after", 1));
		n = strlen(written());
		assert_in_range(n, 3900, 4096);
		assert_string_equal(got + n - 14, "\",\"cut\":true}\n");
		l.format = LOG_LOGFMT;
		LOG(&l, LOG_INFO, "m", LOG_I("before", 1), LOG_S("s", large),
		    LOG_I("after", 1));
		n = strlen(written());
		assert_in_range(n, 3900, 4096);
		assert_string_equal(got + n - 10, " cut=true\n");
		assert_in(got, "before=1");
		assert_null(strstr(got, "after"));
		assert_int_equal(l.dropped, 0);
	}
}

LOG_TEST(counts_lines_that_cannot_be_written)
{
	struct log l = logger(LOG_LOGFMT);

	for (int i = 0; i < 10000; i++)
		log_write(&l, LOG_INFO, "the pipe fills up", NULL, 0);
	assert_true(l.dropped > 0 && l.dropped < 10000);
}

/* Opens a pipe, a terminal or a socket that blocks when it is full. pair[0] reads. */
static void open_blocking(const char *kind, int pair[2])
{
	if (strcmp(kind, "pipe") == 0) {
		assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	} else if (strcmp(kind, "socket") == 0) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	} else {
		pair[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
		assert_int_equal(grantpt(pair[0]), 0);
		assert_int_equal(unlockpt(pair[0]), 0);
		pair[1] = open(ptsname(pair[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
	}
	assert_true(pair[0] >= 0 && pair[1] >= 0);
}

static void read_everything(int fd)
{
	char text[4096];

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (read(fd, text, sizeof(text)) > 0)
		;
}

TEST(a_program_that_does_not_read_the_log_blocks_nothing)
{
	static const char *const kinds[] = { "pipe", "socket", "terminal" };

	for (size_t i = 0; i < COUNT_OF(kinds); i++) {
		struct log l;
		int pair[2];

		open_blocking(kinds[i], pair);
		log_init(&l, pair[1], LOG_INFO, LOG_LOGFMT, &time_stands.clock);
		for (int n = 0; n < 10000; n++)
			LOG(&l, LOG_INFO, "nobody reads this", LOG_I("line", n));
		if (!l.dropped)
			fail_msg("%s: no line was dropped", kinds[i]);
		assert_int_equal(fcntl(pair[1], F_GETFL) & O_NONBLOCK, 0);
		if (l.fd != pair[1])
			close(l.fd);
		close(pair[0]);
		close(pair[1]);
	}
}

TEST(the_number_of_dropped_lines_is_logged_when_writing_is_possible_again)
{
	char report[200];
	struct log l;
	uint64_t dropped;

	assert_int_equal(open_pipe(NULL), 0);
	l = logger(LOG_LOGFMT);
	for (int n = 0; n < 3000; n++)
		log_write(&l, LOG_INFO, "the pipe fills up", NULL, 0);
	dropped = l.dropped;
	assert_in_range(dropped, 1, 2999);
	read_everything(ends[0]);
	log_write(&l, LOG_INFO, "again", NULL, 0);
	snprintf(report, sizeof(report),
		 "time=2026-01-31T12:00:00.123Z level=warning msg=\"lines of the log were "
		 "dropped because they could not be written\" lines=%u\n"
		 "time=2026-01-31T12:00:00.123Z level=info msg=again\n",
		 (unsigned)dropped);
	assert_string_equal(written(), report);
	assert_int_equal(l.dropped, 0);
	log_write(&l, LOG_INFO, "again", NULL, 0);
	assert_string_equal(written(), strchr(report, '\n') + 1);
	close_pipe(NULL);
}

TEST(a_latch_reports_each_change_once)
{
	struct log_latch latch = { 0 };

	assert_false(log_latch(&latch, false));
	assert_true(log_latch(&latch, true));
	assert_false(log_latch(&latch, true));
	assert_false(log_latch(&latch, true));
	assert_true(log_latch(&latch, false));
	assert_int_equal(latch.repeats, 2);
	assert_false(log_latch(&latch, false));
	assert_int_equal(latch.repeats, 2);
	assert_true(log_latch(&latch, true));
	assert_int_equal(latch.repeats, 0);
}

TEST(reads_levels_and_formats_by_name)
{
	enum log_level level = LOG_ERROR;
	enum log_format format = LOG_LOGFMT;

	assert_int_equal(log_level_parse("debug", &level), 0);
	assert_int_equal(level, LOG_DEBUG);
	assert_int_equal(log_level_parse("loud", &level), -GW_E_ARG);
	assert_int_equal(level, LOG_DEBUG);
	assert_int_equal(log_format_parse("json", &format), 0);
	assert_int_equal(format, LOG_JSON);
	assert_int_equal(log_format_parse("", &format), -GW_E_ARG);
}

TEST_MAIN(NULL, NULL)
