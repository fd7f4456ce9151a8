/* Tests notes, escaping, answers and addresses of the worker adapters. */
#include "guard/worker/common.h"

#include "base/http_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_SETUP each
#include "test.h"

static char text[64];
static struct worker_call call = { .notes = text, .notes_size = sizeof(text) };

static int each(void **state)
{
	text[0] = '\0';
	return 0;
}

TEST(notes_are_found_by_key_and_position)
{
	char out[16];

	worker_note(&call, "model", "a b");
	worker_note(&call, "level", "2");
	worker_note(&call, "model", "c");
	worker_note(&call, "model", "a b");
	assert_string_equal(text, "model a b\nlevel 2\nmodel c\n");
	assert_true(worker_noted(&call, "model", 1, out, sizeof(out)));
	assert_string_equal(out, "c");
	assert_true(worker_noted(&call, "level", 0, out, sizeof(out)));
	assert_string_equal(out, "2");
	assert_false(worker_noted(&call, "model", 2, out, sizeof(out)));
	assert_false(worker_noted(&call, "mode", 0, out, sizeof(out)));
}

TEST(a_note_that_does_not_fit_or_has_two_lines_is_not_added)
{
	char name[WORKER_MODEL + 1];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	worker_note(&call, "model", name);
	worker_note(&call, "model", "a\nlevel 2");
	assert_string_equal(text, "");
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "m%d", i);
		worker_note_model(&call, name);
	}
	assert_true(strlen(text) < sizeof(text));
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_true(worker_is_noted(&call, "unrecorded", "1"));
}

TEST(damaged_notes_are_harmless)
{
	static const char *const bad[] = { "model",   "model ", "\n\n",
					   "model a", " x",     "modela\n" };
	char out[16];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(text, sizeof(text), "%s", bad[i]);
		worker_noted(&call, "model", 3, out, sizeof(out));
	}
	snprintf(text, sizeof(text), "model a"); /* the note is truncated, but still read */
	assert_true(worker_noted(&call, "model", 0, out, sizeof(out)));
	assert_string_equal(out, "a");
}

TEST(names_are_escaped_for_a_query)
{
	char out[64];
	struct buf b;

	buf_init_fixed(&b, out, sizeof(out));
	url_escape(&b, "org/m:Q4_K & \xc3\xa4?#");
	assert_string_equal(out, "org%2Fm%3AQ4_K%20%26%20%C3%A4%3F%23");
}

TEST(an_answer_is_read_by_path)
{
	static const char json[] =
		"{\"models\":[{\"name\":\"a\",\"status\":{\"value\":\"loaded\"}},"
		"{\"name\":7}],\"success\":true,\"no\":false,\"idle\":1,"
		"\"error\":{\"message\":\"m\"}}";
	struct json_doc *r;
	char message[200];

	assert_int_equal(json_doc_new(json, sizeof(json) - 1, &r, message, sizeof(message)), 0);
	assert_int_equal(json_doc_count(r, "models"), 2);
	assert_string_equal(json_doc_string(json_doc_at(r, "models", 0), "status.value"),
			    "loaded");
	assert_null(json_doc_string(json_doc_at(r, "models", 1), "name"));
	assert_null(json_doc_at(r, "models", 2));
	assert_null(json_doc_string(json_doc_at(r, "models", 2), "name"));
	assert_true(json_doc_true(r, "success"));
	assert_false(json_doc_true(r, "no"));
	assert_false(json_doc_true(r, "idle"));
	assert_false(json_doc_true(r, "nothing.at.all"));
	assert_true(json_doc_number(r, "idle") > 0.5);
	assert_string_equal(json_doc_string(r, "error.message"), "m");
	assert_int_equal(json_doc_count(r, "success"), 0);
	json_doc_free(r);
	json_doc_free(NULL);
	assert_int_equal(json_doc_new("{", 1, &r, message, sizeof(message)), -GW_E_PARSE);
}

TEST(a_request_after_its_deadline_is_not_sent)
{
	struct policy_worker w = { .url = "http://127.0.0.1:1" };
	struct worker_http *h;
	char message[200];

	assert_int_equal(worker_http_new(&w, 1, &h), 0);
	assert_int_equal(worker_http_do(h, "GET", "/", NULL, message, sizeof(message)),
			 -GW_E_TIMEOUT);
	assert_int_equal(worker_http_status(h), 0);
	worker_http_free(h);
	worker_http_free(NULL);
}

TEST(a_token_is_hidden_in_a_text_even_if_it_has_only_asterisks)
{
	static const char token[] = "a-token-of-24-characters", stars[] = "****************";
	char path[] = "/tmp/gpuward-token-XXXXXX", message[200], out[80];
	const char *const tokens[] = { token, stars };

	for (size_t i = 0; i < COUNT_OF(tokens); i++) {
		struct policy_worker w = { .url = "http://127.0.0.1:1", .token_file = path };
		struct worker_http *h;
		FILE *f = i ? fopen(path, "w") : fdopen(mkstemp(path), "w");

		assert_non_null(f);
		assert_true(fputs(tokens[i], f) >= 0 && fclose(f) == 0);
		assert_int_equal(worker_http_new(&w, 1, &h), 0);
		worker_http_do(h, "GET", "/", NULL, message, sizeof(message)); /* reads it */
		snprintf(out, sizeof(out), "<%s%s> <%.9s>", tokens[i], tokens[i], tokens[i]);
		worker_http_scrub(h, out);
		assert_int_equal(strspn(out + 1, "*"), 2 * strlen(tokens[i]));
		assert_int_equal(out[strlen(out) - 2], tokens[i][8]);
		worker_http_free(h);
	}
	unlink(path);
}

TEST_MAIN(NULL, NULL)
