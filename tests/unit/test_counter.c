/* Tests counters that are read before and after a run. */
#include "cli/counter.h"

#include "base/clock.h"

#include "test.h"

#include <gpuward.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

static void is(const struct counter_reading *r, double value, const char *why)
{
	assert_string_equal(r->why, why);
	if (isnan(value))
		assert_true(isnan(r->value));
	else
		assert_true(fabs(r->value - value) < 1e-9);
}

TEST(a_command_prints_one_number)
{
	static const struct {
		const char *command;
		double value; /* NAN: refused */
		const char *why;
	} rows[] = {
		{ "echo 42", 42, "" },
		{ "printf ' 1e6\\n'", 1e6, "" },
		{ "echo 3.5", 3.5, "" },
		{ "echo 12 tokens", NAN,
		  "the command printed '12 tokens' instead of one number" },
		{ "true", NAN, "the command printed '' instead of one number" },
		{ "echo -1", NAN, "the command printed '-1' instead of one number" },
		{ "echo nan", NAN, "the command printed 'nan' instead of one number" },
		{ "echo 7; exit 3", NAN, "the command ended with status 3" },
		{ "echo 1; echo 2", NAN, "the command printed '1' instead of one number" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct counter_reading r;

		counter_read(&counter_kinds[COUNTER_CMD], rows[i].command, NULL, &r);
		is(&r, rows[i].value, rows[i].why);
		assert_true(r.after_ns > r.before_ns);
	}
}

static const char vllm[] =
	"# HELP vllm:prompt_tokens_total Number of prefill tokens processed.\n"
	"# TYPE vllm:prompt_tokens_total counter\n"
	"vllm:prompt_tokens_total{engine=\"0\",model_name=\"a\"} 9000.0\n"
	"# TYPE vllm:generation_tokens_total counter\n"
	"vllm:generation_tokens_total{engine=\"0\",model_name=\"a\"} 100.0\n"
	"vllm:generation_tokens_total{engine=\"1\",model_name=\"a\"} 20.0 1700000000000\n"
	"vllm:generation_tokens_total{ engine = \"0\" , model_name=\"b \\\"2\\\"\\\\\",} 3\n"
	"vllm:generation_tokens_created{engine=\"0\"} 1.7e9\n";

TEST(a_counter_is_the_sum_of_the_series_that_match)
{
	static const struct {
		const char *text, *what;
		double value;
		const char *why;
	} rows[] = {
		{ vllm, "vllm:generation_tokens_total", 123, "" },
		{ vllm, NULL, 123, "" }, /* no name: the counter of a known server */
		{ vllm, "vllm:generation_tokens_total{engine=\"0\"}", 103, "" },
		{ vllm, "vllm:generation_tokens_total{}", 123, "" },
		{ vllm, "vllm:generation_tokens_total{engine=\"0\", model_name=\"a\"}", 100,
		  "" },
		{ vllm, "vllm:generation_tokens_total{model_name=\"b \\\"2\\\"\\\\\"}", 3, "" },
		{ vllm, "vllm:prompt_tokens_total", 9000, "" },
		{ vllm, "vllm:generation_tokens_total{engine=\"7\"}", NAN,
		  "the reply has no 'vllm:generation_tokens_total' with these labels" },
		{ vllm, "vllm:prompt_tokens", NAN,
		  "the reply has no 'vllm:prompt_tokens', but it has "
		  "'vllm:prompt_tokens_total'" },
		{ vllm, "tokens", NAN,
		  "the reply has no 'tokens' (some servers add it after their first request)" },
		{ "llamacpp:tokens_predicted_total 167\n", NULL, 167, "" },
		{ "n 1e3", "n", 1000, "" },
		{ "n 5 # {trace_id=\"x\"} 1.0\n# EOF\n", "n", 5, "" },
		{ "n 1\r\nm 2\r\n", "n", 1, "" },
		{ "n 0", "n", 0, "" },
		{ "42\n", NULL, 42, "" },
		{ "n NaN\n", "n", NAN,
		  "the value of the counter is not a number (NaN), which is not a count" },
		{ "n +Inf\n", "n", NAN,
		  "the value of the counter is infinite, which is not a count" },
		{ "n -5\n", "n", NAN, "the value of the counter is -5, which is not a count" },
		{ "n{a=\"1\"} 5\nn{a=\"2\"} NaN\nn{a=\"3\"} 5\n", "n", NAN,
		  "the value of the counter is not a number (NaN), which is not a count" },
		{ "n{a=\"1\"} 5\nn{a=\"1\"} 5\n", "n", NAN,
		  "one series of the counter appears twice" },
		{ "n\n5 1\n", "n", NAN, "the reply has a malformed line of 'n'" },
		{ "n{a=\"1} 5\n", "n", NAN, "the reply has a malformed line of 'n'" },
		{ "n{a=\"1", "n", NAN, "the reply has a malformed line of 'n'" },
		{ "n 5x\n", "n", NAN, "the reply has a malformed line of 'n'" },
		{ "", NULL, NAN,
		  "the reply has no known token counter; give its name after the URL, as in "
		  "URL#vllm:generation_tokens_total" },
		{ "{\"usage\":{\"tokens\":[1,{\"n\":7123}],\"no\":\"5\",\"0\":3}}",
		  "usage.tokens.1.n", 7123, "" },
		{ "{\"usage\":{\"0\":3}}", "usage.0", 3, "" },
		{ "[4, 5]", "1", 5, "" },
		{ "{\"n\":0}", "n", 0, "" },
		{ "{\"n\":123456.75}", "n", 123456.75, "" },
		{ "{\"n\":null}", "n", NAN, "the reply is JSON and has no number at 'n'" },
		{ "{\"n\":\"5\"}", "n", NAN, "the reply is JSON and has no number at 'n'" },
		{ "{\"n\":{}}", "n", NAN, "the reply is JSON and has no number at 'n'" },
		{ "{\"n\":5}", "m.n", NAN, "the reply is JSON and has no number at 'm.n'" },
		{ "{\"n\":5", "n", NAN,
		  "the reply is not JSON: line 1, column 6: '}' expected near end of file" },
		{ "{\"n\":5}", NULL, NAN,
		  "the reply is JSON; give the path of the number after the URL, as in "
		  "URL#usage.tokens" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct counter_reading r = { .value = 0 };

		counter_text(rows[i].text, strlen(rows[i].text), rows[i].what, &r);
		is(&r, rows[i].value, rows[i].why);
	}
}

TEST(a_reading_names_what_was_counted)
{
	static const struct {
		const char *text, *what, *name;
		unsigned series;
	} rows[] = {
		{ "n{a=\"1\"} 1\nn{a=\"2\"} 2\n", "n", "n", 2 },
		{ "n{a=\"1\",b=\"x\"} 1\n", "n{ b = \"x\", a=\"1\" }", "n{b=\"x\",a=\"1\"}",
		  1 },
		{ "n{a=\"\\\"\\\\\\n\"} 1\n", "n{a=\"\\\"\\\\\\n\"}", "n{a=\"\\\"\\\\\\n\"}",
		  1 },
		{ "llamacpp:tokens_predicted_total 3\n", NULL,
		  "llamacpp:tokens_predicted_total", 1 },
		{ "{\"a\": {\"b\": 3}}", "a.b", "a.b", 1 },
		{ "17\n", NULL, "", 1 },
	};
	char place[64];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct counter_reading r = { .value = 0 };

		counter_text(rows[i].text, strlen(rows[i].text), rows[i].what, &r);
		assert_string_equal(r.why, "");
		assert_string_equal(r.name, rows[i].name);
		assert_int_equal(r.n, rows[i].series);
	}
	counter_kinds[COUNTER_URL].place("http://a:1/m?key=secret#n", place, sizeof(place));
	assert_string_equal(place, "http://a:1/m");
}

TEST(more_series_than_are_kept_are_refused)
{
	struct counter_reading r = { .value = 0 };
	char text[(COUNTER_SERIES + 1) * 20];
	size_t n = 0;

	for (int i = 0; i <= COUNTER_SERIES; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "n{a=\"%d\"} 1\n", i);
	counter_text(text, n, "n", &r);
	is(&r, NAN, "the counter has more than 256 series; select some by their labels");
}

TEST(a_bad_url_is_refused_before_the_request)
{
	static const struct {
		const char *url, *why; /* NULL: accepted */
	} rows[] = {
		{ "http://localhost:8000/metrics", NULL },
		{ "http://[::1]/metrics?x=1#n{a=\"b\"}", NULL },
		{ "http://host", NULL },
		{ "http://host#a.b.0", NULL },
		{ "https://host/metrics",
		  "https is not supported: 'https://host/metrics'; use --count-cmd with curl" },
		{ "localhost:8000/metrics", "'localhost:8000/metrics' is not a URL such as "
					    "http://localhost:8000/metrics" },
		{ "", "'' is not a URL such as http://localhost:8000/metrics" },
		{ "http:///metrics",
		  "'http:///metrics' is not a URL such as http://localhost:8000/metrics" },
		{ "http://h/a b",
		  "'http://h/a b' is not a URL such as http://localhost:8000/metrics" },
		{ "http://me:secret@host/",
		  "a URL with a user name is not supported; use --count-cmd with curl" },
		{ "http://host/#n{a=~\"b\"}",
		  "'n{a=~\"b\"}' is not a counter; give NAME, NAME{LABEL=\"VALUE\",...} or, "
		  "for JSON, KEY.KEY" },
		{ "http://host/#n{a=\"b\"", "'n{a=\"b\"' is not a counter; give NAME, "
					    "NAME{LABEL=\"VALUE\",...} or, for JSON, KEY.KEY" },
		{ "http://host/#{a=\"b\"}", "'{a=\"b\"}' is not a counter; give NAME, "
					    "NAME{LABEL=\"VALUE\",...} or, for JSON, KEY.KEY" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char why[COUNTER_WHY] = "";
		int err = counter_kinds[COUNTER_URL].check(rows[i].url, why, sizeof(why));

		assert_int_equal(err, rows[i].why ? -GW_E_ARG : 0);
		assert_string_equal(why, rows[i].why ? rows[i].why : "");
	}
}

static struct counter_reading reading(double value, uint64_t before_ns, uint64_t after_ns)
{
	return (struct counter_reading){ .value = value,
					 .before_ns = before_ns,
					 .after_ns = after_ns,
					 .series = { { 0, value, NAN } },
					 .n = 1 };
}

TEST(counts_around_the_run_widen_the_uncertainty)
{
	struct counter_reading first = reading(100, 9 * NS_PER_S, 10 * NS_PER_S);
	struct counter_reading last = reading(1100, 18 * NS_PER_S, 19 * NS_PER_S);
	struct counter c;

	counter_between(&first, &last, 10 * NS_PER_S, 18 * NS_PER_S, &c);
	assert_true(fabs(c.number - 1000) < 1e-9);
	/* the readings are ten seconds apart: one second is before the run and one after it */
	assert_true(fabs(c.edge - 200) < 1e-9);
	assert_string_equal(c.why, "");
}

TEST(a_count_that_does_not_grow_is_unknown)
{
	struct counter_reading first = reading(500, 1, 2), same = reading(500, 3, 4);
	struct counter_reading less = reading(20, 3, 4),
			       none = { .value = NAN, .why = "it ended" };
	struct counter c;

	counter_between(&first, &same, 2, 3, &c);
	assert_true(isnan(c.number));
	assert_string_equal(c.why,
			    "the counter did not grow: 500 before and 500 after the run");
	counter_between(&first, &less, 2, 3, &c);
	assert_true(isnan(c.number));
	assert_string_equal(
		c.why, "the counter fell from 500 to 20; perhaps the server was restarted");
	counter_between(&first, &none, 2, 3, &c);
	assert_true(isnan(c.number));
	assert_string_equal(c.why, "it ended");
}

/* Engine 0 was restarted or is gone. Engine 1 counted more than engine 0 lost. */
TEST(a_series_that_restarted_is_not_hidden_by_another)
{
	static const char before[] = "n{engine=\"0\"} 100\nn{engine=\"1\"} 100\n";
	static const struct {
		const char *after;
		double number;
		const char *why;
	} rows[] = {
		{ "n{engine=\"0\"} 150\nn{engine=\"1\"} 100\n", 50, "" },
		{ "n{engine=\"1\"} 101\nn{engine=\"0\"} 101\nn{engine=\"2\"} 10\n", 12, "" },
		{ "n{engine=\"0\"} 5\nn{engine=\"1\"} 900\n", NAN,
		  "the counter fell from 100 to 5; perhaps the server was restarted" },
		{ "n{engine=\"1\"} 900\n", NAN,
		  "one series of the counter (100 before the run) is missing after the run" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct counter_reading first = { .before_ns = 1, .after_ns = 2 };
		struct counter_reading last = { .before_ns = 3, .after_ns = 4 };
		struct counter c;

		counter_text(before, strlen(before), "n", &first);
		counter_text(rows[i].after, strlen(rows[i].after), "n", &last);
		counter_between(&first, &last, 2, 3, &c);
		assert_string_equal(c.why, rows[i].why);
		assert_true(isnan(rows[i].number) ? isnan(c.number)
						  : fabs(c.number - rows[i].number) < 1e-9);
	}
}

/* Before the run only engine 0 is present; the first reading was taken at 1000 s. */
TEST(a_new_series_counts_whole_unless_it_is_older_than_the_run)
{
	static const char before[] = "n_total{e=\"0\"} 100\nn_created{e=\"0\"} 500\n";
	static const struct {
		const char *after;
		double number;
		unsigned fresh;
		double fresh_number;
		bool assumed;
		const char *why;
	} rows[] = {
		/* the server does not report when series 1 started */
		{ "n_total{e=\"0\"} 120\nn_total{e=\"1\"} 30\nn_created{e=\"0\"} 500\n", 50, 1,
		  30, true, "" },
		/* the server reports a start during the run */
		{ "n_created{e=\"1\"} 1003.5\nn_total{e=\"0\"} 120\nn_total{e=\"1\"} 30\n", 50,
		  1, 30, false, "" },
		/* the start of one series is reported, that of the other is not */
		{ "n_total{e=\"0\"} 100\nn_total{e=\"1\"} 30\nn_total{e=\"2\"} 7\n"
		  "n_created{e=\"2\"} 1003.5\n",
		  37, 2, 37, true, "" },
		/* started long before the run: the series was only missing before */
		{ "n_total{e=\"0\"} 120\nn_total{e=\"1\"} 9000\nn_created{e=\"1\"} 400\n", NAN,
		  0, 0, false,
		  "one series of the counter (now 9000) was missing before the run, although "
		  "the "
		  "server's clock says that it started 600 s before the run" },
		/* restarted, and already higher than before */
		{ "n_total{e=\"0\"} 150\nn_created{e=\"0\"} 1001\n", NAN, 0, 0, false,
		  "the counter was restarted during the run; its count from before the restart "
		  "(100) is lost" },
		/* nothing new; an unreadable line is ignored */
		{ "n_total{e=\"0\"} 150\nn_created{e=\"0\"} soon\nn_created{e=} 1\n", 50, 0, 0,
		  false, "" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct counter_reading first = { .before_ns = 1,
						 .after_ns = 2,
						 .wall_s = 1000 };
		struct counter_reading last = { .before_ns = 3, .after_ns = 4, .wall_s = 1010 };
		struct counter c;

		counter_text(before, strlen(before), "n_total", &first);
		counter_text(rows[i].after, strlen(rows[i].after), "n_total", &last);
		counter_between(&first, &last, 2, 3, &c);
		assert_string_equal(c.why, rows[i].why);
		assert_true(isnan(rows[i].number) ? isnan(c.number)
						  : fabs(c.number - rows[i].number) < 1e-9);
		assert_int_equal(c.fresh, rows[i].fresh);
		assert_true(fabs(c.fresh_number - rows[i].fresh_number) < 1e-9);
		assert_int_equal(c.fresh_assumed, rows[i].assumed);
	}
}

static bool yes(void *arg)
{
	(*(unsigned *)arg)++;
	return true;
}

TEST(an_interrupted_request_waits_a_moment_and_not_to_its_deadline)
{
	unsigned asked = 0;
	struct deadline_stop stop = { yes, &asked, -1 };
	uint64_t begin = clock_mono_ns(clock_real());
	struct deadline p;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	deadline_init(&p, 1000000, NULL);
	assert_int_equal(deadline_poll(&p, fds[0], POLLIN), -GW_E_TIMEOUT);
	deadline_init(&p, 3600 * NS_PER_S, &stop);
	assert_int_equal(deadline_poll(&p, fds[0], POLLIN), -GW_E_STATE);
	assert_int_equal(asked, 1);
	deadline_init(&p, 3600 * NS_PER_S, &stop);
	assert_int_equal(write(fds[1], "x", 1), 1);
	/* the byte has arrived, so the poll succeeds despite the request to stop */
	assert_int_equal(deadline_poll(&p, fds[0], POLLIN), 0);
	assert_true(clock_mono_ns(clock_real()) - begin < 600 * NS_PER_S);
	close(fds[0]);
	close(fds[1]);
}

/* The lookup of the name "slow" waits until it is released, for at most 10 s. */
static atomic_bool released;
static struct addrinfo *_Atomic slow_list;
static atomic_uint slow_freed; /* number of its lists that were freed */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		       struct addrinfo **ret);
void __real_freeaddrinfo(struct addrinfo *list);
void __wrap_freeaddrinfo(struct addrinfo *list);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		       struct addrinfo **ret)
{
	int err;

	if (strcmp(host, "slow") != 0 || hints->ai_flags & AI_NUMERICHOST)
		return __real_getaddrinfo(host, port, hints, ret);
	for (unsigned i = 0; i < 10000 && !released; i++)
		usleep(1000);
	err = __real_getaddrinfo("127.0.0.1", port, hints, ret);
	slow_list = *ret;
	return err;
}

void __wrap_freeaddrinfo(struct addrinfo *list)
{
	slow_freed += list == slow_list;
	__real_freeaddrinfo(list);
}

TEST(a_name_lookup_has_a_deadline)
{
	struct addrinfo *list = NULL;
	struct deadline p;

	deadline_init(&p, 0, NULL);
	/* a numeric address needs no lookup, so a deadline of 0 is enough */
	assert_int_equal(client_resolve("127.0.0.1", "80", &p, &list), 0);
	freeaddrinfo(list);
	assert_int_equal(client_resolve("slow", "80", &p, &list), -GW_E_TIMEOUT);
	released = true;
	while (slow_freed == 0) /* the abandoned lookup frees its result */
		usleep(1000);
	deadline_init(&p, 60 * NS_PER_S, NULL);
	assert_int_equal(client_resolve("slow", "80", &p, &list), 0);
	assert_ptr_equal(list, slow_list);
	freeaddrinfo(list);
	assert_int_equal(client_resolve("localhost", "80", &p, &list), 0);
	freeaddrinfo(list);
}

TEST_MAIN(NULL, NULL)
