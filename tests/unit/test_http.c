#include "serve/http_check.h"
#include "serve/http_impl.h"

#include "test.h"

#include <gpuward.h>

#include <sys/stat.h>
#include <unistd.h>

TEST(paths_are_decoded_or_refused)
{
	static const struct {
		const char *raw, *decoded; /* NULL: refused */
	} cases[] = {
		{ "/", "/" },
		{ "/a/b", "/a/b" },
		{ "/a%20b/%C3%A4", "/a b/\xc3\xa4" },
		{ "/a+b", "/a+b" },
		{ "/a//b", "/a//b" },
		{ "/...", "/..." },
		{ "/.a/b.", "/.a/b." },
		{ "/%41%7e", "/A~" },
		{ "", NULL },
		{ "a", NULL },
		{ "*", NULL },
		{ "/.", NULL },
		{ "/..", NULL },
		{ "/a/../b", NULL },
		{ "/a/%2e%2E", NULL },
		{ "/a%2fb", NULL },
		{ "/a%2Fb", NULL },
		{ "/%", NULL },
		{ "/%4", NULL },
		{ "/%4g", NULL },
		{ "/%g4", NULL },
		{ "/%00", NULL },
		{ "/%0a", NULL },
		{ "/%7f", NULL },
		{ "/a b", NULL },
		{ "/%ff", NULL },
		{ "/%c0%af", NULL },
		{ "/%ed%a0%80", NULL },
	};

	for (unsigned i = 0; i < COUNT_OF(cases); i++) {
		char out[64];
		const char *why = check_path(cases[i].raw, out);

		if (cases[i].decoded) {
			assert_null(why);
			assert_string_equal(out, cases[i].decoded);
		} else if (!why) {
			fail_msg("%s was taken", cases[i].raw);
		}
	}
}

TEST(hosts_are_names_and_addresses)
{
	static const struct {
		const char *text, *host; /* NULL: none */
		unsigned port;
	} cases[] = {
		{ "localhost", "localhost", 0 },
		{ "LocalHost:80", "localhost", 80 },
		{ "127.0.0.1:9490", "127.0.0.1", 9490 },
		{ "[::1]", "::1", 0 },
		{ "[::1]:65535", "::1", 65535 },
		{ "a_b-c.d", "a_b-c.d", 0 },
		{ "localhost:", "localhost", 0 },
		{ "", NULL, 0 },
		{ ":80", NULL, 0 },
		{ "a b", NULL, 0 },
		{ "a:65536", NULL, 0 },
		{ "a:9999999999999", NULL, 0 },
		{ "a:1x", NULL, 0 },
		{ "::1", NULL, 0 },
		{ "[::1", NULL, 0 },
		{ "[]", NULL, 0 },
		{ "[localhost]", NULL, 0 },
		{ "[::1]x", NULL, 0 },
		{ "user@host", NULL, 0 },
		{ "a/b", NULL, 0 },
		{ "a,b", NULL, 0 },
	};

	for (unsigned i = 0; i < COUNT_OF(cases); i++) {
		char host[CHECK_HOST_SIZE];
		unsigned port = 0;
		bool good = check_host(cases[i].text, host, &port);

		if (good != (cases[i].host != NULL))
			fail_msg("%s was %s", cases[i].text, good ? "taken" : "refused");
		if (good) {
			assert_string_equal(host, cases[i].host);
			assert_int_equal(port, cases[i].port);
		}
	}

	char longest[600], host[CHECK_HOST_SIZE];
	unsigned port;

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_false(check_host(longest, host, &port));
}

TEST(lengths_are_digits_alone)
{
	static const char *const bad[] = { "",    "+1", "-1",
					   " 1",  "1 ", "0x1",
					   "1,1", "a",  "18446744073709551616" };
	uint64_t n;

	for (unsigned i = 0; i < COUNT_OF(bad); i++)
		assert_false(check_length(bad[i], &n));
	assert_true(check_length("0", &n) && n == 0);
	assert_true(check_length("007", &n) && n == 7);
	assert_true(check_length("18446744073709551615", &n) && n == UINT64_MAX);
}

TEST(accept_headers_are_parsed)
{
	static const struct {
		const char *accept, *type;
		bool yes;
	} cases[] = {
		{ NULL, "text/html", true },
		{ "", "text/html", true },
		{ " , ", "text/html", true },
		{ "*/*", "text/html", true },
		{ "*", "text/html", true },
		{ "text/*", "text/html", true },
		{ "TEXT/HTML", "text/html; charset=utf-8", true },
		{ "text/html", "text/htmlx", false },
		{ "text/htm", "text/html", false },
		{ "text/plain", "text/html", false },
		{ "*/*;q=0", "text/html", false },
		{ "*/*;q=0.0, text/html", "text/html", true },
		{ "text/html;q=0, */*", "text/html", false },
		{ "text/*;q=0, */*", "text/html", false },
		{ "text/*;q=0, text/html;q=0.001", "text/html", true },
		{ "text/html;level=1;q=0.5", "text/html", true },
		{ "application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1",
		  "application/json", true },
		{ "image/*, video/*", "text/html", false },
		{ "text", "text/html", false },
		{ "text/", "text/html", false },
	};

	for (unsigned i = 0; i < COUNT_OF(cases); i++)
		if (check_accepts(cases[i].accept, cases[i].type) != cases[i].yes)
			fail_msg("Accept: %s for %s", cases[i].accept, cases[i].type);
}

TEST(the_preferred_type_is_chosen)
{
	static const struct {
		const char *accept;
		bool stream;
	} cases[] = {
		{ NULL, false },
		{ "", false },
		{ "*/*", false },
		{ "text/event-stream", true },
		{ "text/event-stream, */*", true },
		{ "text/*", true },
		{ "text/*, */*", false },
		{ "application/json, text/event-stream", true },
		{ "application/json, text/event-stream;q=0.5", false },
		{ "application/json;q=0.5, text/event-stream;q=0.6", true },
		{ "text/event-stream;q=0, application/json", false },
		{ "text/event-stream;q=0", false },
		{ "text/event-stream;q=x, application/json", false },
		{ "xtext/event-stream, application/json", false },
	};

	for (unsigned i = 0; i < COUNT_OF(cases); i++)
		if (check_prefers(cases[i].accept, "text/event-stream", "application/json") !=
		    cases[i].stream)
			fail_msg("Accept: %s", cases[i].accept);
}

TEST(gzip_only_when_it_is_wanted)
{
	assert_true(check_gzip("gzip"));
	assert_true(check_gzip("deflate, GZIP;q=0.5"));
	assert_true(check_gzip("*"));
	assert_true(check_gzip("*;q=0, gzip"));
	assert_false(check_gzip(NULL));
	assert_false(check_gzip(""));
	assert_false(check_gzip("gzip;q=0"));
	assert_false(check_gzip("gzip;q=0, *"));
	assert_false(check_gzip("gzipx"));
	assert_false(check_gzip("br"));
}

TEST(etags_are_found_in_lists)
{
	assert_true(check_etag("\"a\"", "\"a\""));
	assert_true(check_etag("\"b\", W/\"a\"", "\"a\""));
	assert_true(check_etag(" * ", "\"a\""));
	assert_false(check_etag("", "\"a\""));
	assert_false(check_etag("\"ab\"", "\"a\""));
	assert_false(check_etag("a", "\"a\""));
	assert_false(check_etag("*x", "\"a\""));
}

TEST(request_ids_and_content_types_are_checked)
{
	char longest[70];

	assert_true(check_id("4bf92f35-77b3:4da6/a+=_.Z"));
	assert_false(check_id(""));
	assert_false(check_id("a b"));
	assert_false(check_id("a\"b"));
	memset(longest, 'a', sizeof(longest));
	longest[65] = '\0';
	assert_false(check_id(longest));
	longest[64] = '\0';
	assert_true(check_id(longest));
	assert_true(check_json("application/json"));
	assert_true(check_json("Application/JSON; charset=utf-8"));
	assert_true(check_json("application/json ;\tCharset=\"UTF-8\" "));
	assert_false(check_json("application/json, text/plain"));
	assert_false(check_json("application/json; charset=utf-16"));
	assert_false(check_json("application/json; charset=utf-8, text/plain"));
	assert_false(check_json("application/json; charset=\"utf-8"));
	assert_false(check_json("application/json; charset=utf-8\""));
	assert_false(check_json("application/json; charset=utf-80"));
	assert_false(check_json("application/json; boundary=x"));
	assert_false(check_json("application/json;"));
	assert_false(check_json("application/merge-patch+json"));
	assert_false(check_json(NULL));
	assert_false(check_json("text/plain"));
	assert_false(check_json("application/jsonx"));
	assert_false(check_json("+json"));
}

TEST(headers_are_tokens_and_texts)
{
	assert_true(check_token("X-Request-Id", 12));
	assert_true(check_token("!#$%&'*+-.^_`|~09azAZ", 21));
	for (int i = 0; i < 256; i++) {
		char name[] = { 'a', (char)i, 'b' };
		bool token =
			i < 128 && i > ' ' && i != 127 && !strchr("\"(),/:;<=>?@[\\]{}", i);

		assert_int_equal(check_token(name, 3), token);
		assert_int_equal(check_value(name, 3), i == '\t' || (i >= ' ' && i != 127));
	}
	assert_false(check_token("", 0));
	assert_true(check_value("", 0));
}

static const struct route table[] = {
	{ HTTP_GET, "/", NULL, 0 },         { HTTP_GET, "/a", NULL, 0 },
	{ HTTP_POST, "/a", NULL, 0 },       { HTTP_GET, "/a/{x}", NULL, 0 },
	{ HTTP_DELETE, "/a/{x}", NULL, 0 }, { HTTP_GET, "/a/{x}/b/{y}", NULL, 0 },
	{ HTTP_GET, "/docs/*", NULL, 0 },   { HTTP_GET, "/a/exact", NULL, 0 },
};

TEST(routes_are_found)
{
	static const struct {
		const char *path;
		unsigned method;
		int route;
		unsigned methods;
		const char *x, *y;
	} cases[] = {
		{ "/", HTTP_GET, 0, 0, NULL, NULL },
		{ "/a", HTTP_GET, 1, 0, NULL, NULL },
		{ "/a", HTTP_POST, 2, 0, NULL, NULL },
		{ "/a", HTTP_PUT, -1, HTTP_GET | HTTP_POST, NULL, NULL },
		{ "/a/1", HTTP_GET, 3, 0, "1", NULL },
		{ "/a/1", HTTP_DELETE, 4, 0, "1", NULL },
		{ "/a/1", HTTP_POST, -1, HTTP_GET | HTTP_DELETE, NULL, NULL },
		{ "/a/one two/b/3", HTTP_GET, 5, 0, "one two", "3" },
		{ "/a/exact", HTTP_GET, 7, 0, NULL, NULL },
		{ "/docs/", HTTP_GET, -1, 0, NULL, NULL },
		{ "/docs/x", HTTP_GET, 6, 0, "x", NULL },
		{ "/docs/x/y", HTTP_GET, 6, 0, "x/y", NULL },
		{ "/docs", HTTP_GET, -1, 0, NULL, NULL },
		{ "/a/", HTTP_GET, -1, 0, NULL, NULL },
		{ "/a//b/1", HTTP_GET, -1, 0, NULL, NULL },
		{ "/a/1/b/", HTTP_GET, -1, 0, NULL, NULL },
		{ "/a/1/b/2/c", HTTP_GET, -1, 0, NULL, NULL },
		{ "/b", HTTP_GET, -1, 0, NULL, NULL },
		{ "", HTTP_GET, -1, 0, NULL, NULL },
	};
	struct router *r;

	assert_int_equal(router_new(table, COUNT_OF(table), &r), 0);
	for (unsigned i = 0; i < COUNT_OF(cases); i++) {
		const char *arg[HTTP_ARGS] = { NULL };
		unsigned methods = 0;
		char path[64];
		int route;

		snprintf(path, sizeof(path), "%s", cases[i].path);
		route = router_find(r, path, cases[i].method, arg, &methods);
		if (route != cases[i].route)
			fail_msg("%s is route %d", cases[i].path, route);
		assert_int_equal(methods, cases[i].methods);
		if (cases[i].x)
			assert_string_equal(arg[0], cases[i].x);
		if (cases[i].y)
			assert_string_equal(arg[1], cases[i].y);
	}
	assert_int_equal(router_exact(r, "/a", HTTP_POST), 2);
	assert_int_equal(router_exact(r, "/a", HTTP_PUT), -1);
	assert_int_equal(router_exact(r, "/a/1", HTTP_GET), -1);
	router_free(r);
}

static const char *token_file(const char *text, unsigned mode)
{
	static char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/gpuward-test-token-%d", getpid());
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	chmod(path, mode);
	return path;
}

TEST(tokens_are_read_strictly)
{
	static struct auth a;
	char message[512];

	assert_int_equal(auth_load(&a, NULL, message, sizeof(message)), 0);
	assert_false(a.token);
	assert_int_equal(auth_load(&a, "/absent/token", message, sizeof(message)), -GW_E_NOENT);
	assert_in(message, "/absent/token");
	assert_int_equal(
		auth_load(&a, token_file("0123456789abcdef\n", 0640), message, sizeof(message)),
		-GW_E_PERM);
	assert_in(message, "chmod 600");
	assert_int_equal(auth_load(&a, token_file("0123456789abcde\nmore of it\n", 0600),
				   message, sizeof(message)),
			 -GW_E_ARG);
	assert_int_equal(auth_load(&a, token_file("0123456789abcdef\r\n", 0600), message,
				   sizeof(message)),
			 0);
	assert_true(a.token);
	assert_int_equal(auth_check(&a, "Bearer 0123456789abcdef", 1, 0), AUTH_GOOD);
	assert_int_equal(auth_check(&a, "bearer  0123456789abcdef", 1, 0), AUTH_GOOD);
	assert_int_equal(auth_check(&a, "Bearer 0123456789abcdeg", 1, 0), AUTH_WRONG);
	assert_int_equal(auth_check(&a, "Bearer 0123456789abcdef0", 1, 0), AUTH_WRONG);
	assert_int_equal(auth_check(&a, "0123456789abcdef", 1, 0), AUTH_WRONG);
	assert_int_equal(auth_check(&a, "", 1, 0), AUTH_WRONG);
	unlink(token_file("", 0600));
}

TEST(ten_failures_slow_an_address_but_never_the_token)
{
	static struct auth a;
	char message[512];
	const char *good = "Bearer 0123456789abcdef";

	assert_int_equal(
		auth_load(&a, token_file("0123456789abcdef", 0600), message, sizeof(message)),
		0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(auth_check(&a, "Bearer guess", 1, NS_PER_S + i), AUTH_WRONG);
	assert_int_equal(auth_check(&a, "Bearer guess", 1, 2 * NS_PER_S), AUTH_BLOCKED);
	assert_int_equal(auth_check(&a, good, 1, 2 * NS_PER_S), AUTH_GOOD);
	/* A correct token does not reset the count of wrong ones. */
	assert_int_equal(auth_check(&a, "Bearer guess", 1, 2 * NS_PER_S), AUTH_BLOCKED);
	assert_int_equal(auth_check(&a, "Bearer guess", 2, 2 * NS_PER_S), AUTH_WRONG);
	assert_int_equal(auth_check(&a, "Bearer guess", 1, 12 * NS_PER_S), AUTH_WRONG);
	unlink(token_file("", 0600));
}

static void keep_seconds(void *arg, const struct request *q, const struct reply *r,
			 double seconds)
{
	*(double *)arg = seconds;
}

TEST(seconds_are_printed_in_whole_microseconds)
{
	double seconds = -1;
	struct http h = { .hook = { .log = keep_seconds, .arg = &seconds } };
	const struct request q = { .path = "/" };
	char text[64];

	send_log(&h, &q, 200, "text/plain", 0, 11124110 * 1e-9);
	snprintf(text, sizeof(text), "%.17g", seconds);
	assert_string_equal(text, "0.011124");
	send_log(&h, &q, 200, "text/plain", 0, 0);
	assert_true(seconds == 0);
	send_log(&h, &q, 200, "text/plain", 0, 1.2345678);
	assert_true(seconds == 1.234568);
}

TEST(a_problem_has_a_detail_and_a_remedy)
{
	struct reply_impl impl;
	struct reply r;

	reply_init(&r, &impl);
	buf_adds(&r.body, "half an answer");
	reply_problem(&r, 503, "no-data", "Wait.", "Nothing of \"%s\" yet.", "GPU 0");
	assert_int_equal(r.status, 503);
	assert_string_equal(r.type, "application/problem+json");
	assert_string_equal(
		r.body.p,
		"{\"type\":\"tag:gpuward,2026:no-data\",\"title\":\"Service "
		"unavailable\",\"status\":503,"
		"\"detail\":\"Nothing of \\\"GPU 0\\\" yet.\",\"remedy\":\"Wait.\"}\n");
	assert_int_equal(impl.headers, 1);
	assert_string_equal(impl.header[0].name, "Retry-After");
	reply_done(&r);
	reply_init(&r, &impl);
	reply_header(&r, "Retry-After", "30");
	reply_problem(&r, 429, NULL, NULL, "Slow down.");
	assert_int_equal(impl.headers, 1);
	assert_string_equal(impl.header[0].value, "30");
	assert_in(r.body.p, "\"about:blank\"");
	assert_null(strstr(r.body.p, "remedy"));
	reply_done(&r);
	reply_init(&r, &impl);
	reply_problem(&r, 503, "no-gpu", NULL, "No GPU was found.");
	assert_int_equal(impl.headers, 0); /* no Retry-After: waiting does not help */
	reply_done(&r);
	r = (struct reply){ .status = 200 };
	buf_init(&r.body, 1000);
	reply_problem(&r, 503, "x", NULL, "Without impl.");
	assert_int_equal(r.status, 503);
	buf_done(&r.body);
}

static struct entry *entry_of(const char *text, size_t times, unsigned flags)
{
	struct reply_impl impl;
	struct reply r;
	struct entry *e;

	reply_init(&r, &impl);
	for (size_t i = 0; i < times; i++)
		buf_adds(&r.body, text);
	e = entry_new(&r, flags);
	assert_non_null(e);
	reply_done(&r);
	return e;
}

TEST(an_entry_is_compressed_when_that_saves_something)
{
	struct entry *large = entry_of("the same again ", 100, ROUTE_TICK);
	struct entry *small = entry_of("short", 1, ROUTE_TICK);
	struct entry *empty = entry_of("", 0, 0);

	assert_true(entry_use_gzip(large, "gzip"));
	assert_true(large->gzip->size < large->plain->size / 10);
	assert_memory_equal(large->gzip->p, "\x1f\x8b", 2);
	assert_false(entry_use_gzip(large, NULL));
	assert_false(entry_use_gzip(small, "gzip"));
	assert_false(entry_use_gzip(empty, "gzip"));
	assert_int_equal(empty->plain->size, 0);
	entry_free(large);
	entry_free(small);
	entry_free(empty);
	entry_free(NULL);
}

TEST(etags_differ_between_bodies_and_codings)
{
	struct entry *a = entry_of("the same again ", 100, ROUTE_TICK);
	struct entry *b = entry_of("the same again ", 101, ROUTE_TICK);
	struct entry *c = entry_of("the same again ", 100, ROUTE_STATIC);
	struct entry *live = entry_of("the same again ", 100, 0);
	char tag[ETAG_SIZE + 1];

	assert_string_not_equal(a->etag, b->etag);
	assert_string_equal(a->etag, c->etag);
	assert_string_equal(live->etag, "");
	snprintf(tag, sizeof(tag), "%s\"", a->etag);
	assert_true(entry_is_same(a, false, tag));
	assert_false(entry_is_same(a, true, tag));
	assert_false(entry_is_same(b, false, tag));
	assert_false(entry_is_same(live, false, "*"));
	assert_false(entry_is_same(a, false, NULL));
	entry_free(a);
	entry_free(b);
	entry_free(c);
	entry_free(live);
}

/* Every byte counts, also in the last word, which may be incomplete. */
TEST(an_etag_changes_with_every_byte_of_the_body)
{
	for (size_t n = 1; n <= 33; n++)
		for (size_t at = 0; at < n; at++) {
			char plain[34] = "", other[34] = "";
			struct entry *a, *b;

			memset(plain, 'x', n);
			memset(other, 'x', n);
			other[at] = 'y';
			a = entry_of(plain, 1, ROUTE_TICK);
			b = entry_of(other, 1, ROUTE_TICK);
			assert_string_not_equal(a->etag, b->etag);
			entry_free(a);
			entry_free(b);
		}
}

/* The body is kept until it has been sent. */
TEST(a_reply_outlives_its_cache_entry)
{
	struct entry *e = entry_of("text", 200, ROUTE_TICK);
	struct MHD_Response *m = entry_response(e, false, false, "id", NULL, false);
	struct blob *body = e->plain;

	assert_non_null(m);
	assert_int_equal(body->refs, 2);
	entry_free(e);
	assert_int_equal(body->refs, 1);
	assert_string_equal(MHD_get_response_header(m, "X-Request-Id"), "id");
	assert_string_equal(MHD_get_response_header(m, "Cache-Control"), "no-store");
	MHD_destroy_response(m);
}

TEST_MAIN(NULL, NULL)
