#include "guard/worker/common.h"

#include "base/json.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- asking */

/* Where workers put the sentence of an error: Ollama, llama.cpp and OpenAI's form, FastAPI, engines. */
static const char *const error_paths[] = { "error.message", "error", "detail", "message",
					   "detail.error.message" };

/* The worker's own words, cut to a line; "" where it said nothing. */
static void own_words(const struct worker_call *c, char *out, size_t size)
{
	struct json_doc *r = NULL;
	const char *text, *found = NULL;
	char line[160], unused[160];
	size_t n;

	text = worker_http_body(c->http, &n);
	if (json_doc_new(text, n, &r, unused, sizeof(unused)) == 0)
		for (size_t i = 0; !found && i < sizeof(error_paths) / sizeof(*error_paths);
		     i++)
			found = json_doc_string(r, error_paths[i]);
	snprintf(line, sizeof(line), "%s", found ? found : r ? "" : text);
	json_doc_free(r);
	line[strcspn(line, "\r\n")] = '\0';
	utf8_clean(out, size, line);
	worker_http_scrub(c->http, out);
}

static int error_of_status(int status)
{
	switch (status) {
	case 401:
	case 403: return -GW_E_PERM;
	case 404:
	case 405:
	case 501: return -GW_E_NOSUPPORT;
	case 409:
	case 423:
	case 429:
	case 503: return -GW_E_STATE;
	default: return status >= 200 && status < 300 ? 0 : -GW_E_IO;
	}
}

static const char *hint_of_status(int status)
{
	if (status == 401 || status == 403)
		return "; see token_file";
	return status >= 300 && status < 400 ? "; redirects are not followed" : "";
}

int worker_ask(struct worker_call *c, const char *method, const char *path, const char *body,
	       char *message, size_t size)
{
	char words[120];
	int status, rc = worker_http_do(c->http, method, path, body, message, size);

	if (rc)
		return rc;
	status = worker_http_status(c->http);
	rc = error_of_status(status);
	if (rc == 0)
		return 0;
	own_words(c, words, sizeof(words));
	snprintf(message, size, "%s %.100s%.*s answers %d%s%s%s", method,
		 worker_http_base(c->http), (int)strcspn(path, "?"), path, status,
		 words[0] ? ": " : "", words, hint_of_status(status));
	return rc;
}

int worker_ask_json(struct worker_call *c, const char *method, const char *path,
		    const char *body, struct json_doc **ret, char *message, size_t size)
{
	const char *text;
	char why[160];
	size_t n;
	int rc = worker_ask(c, method, path, body, message, size);

	if (rc)
		return rc;
	text = worker_http_body(c->http, &n);
	rc = json_doc_new(text, n, ret, why, sizeof(why));
	if (rc)
		snprintf(message, size, "%s %.100s%.*s: %s", method, worker_http_base(c->http),
			 (int)strcspn(path, "?"), path, why);
	return rc == -GW_E_PARSE ? -GW_E_IO : rc;
}

int worker_post(struct worker_call *c, const char *path, const char *key, const char *value,
		char *message, size_t size)
{
	char text[WORKER_MODEL * JSON_ESCAPE_MAX + 128];
	struct buf b;
	struct json j;

	buf_init_fixed(&b, text, sizeof(text));
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, key, value);
	json_object_end(&j);
	return worker_ask(c, "POST", path, text, message, size);
}

bool worker_unknown_model(const struct worker_call *c)
{
	int s = worker_http_status(c->http);

	return s == 400 || s == 404 || s == 422;
}

int worker_steps(struct worker_call *c, const struct worker_step *steps, char *message,
		 size_t size)
{
	int rc = 0;

	for (; steps->path && !rc; steps++) {
		rc = worker_ask(c, "POST", steps->path, steps->body, message, size);
		if (rc == -GW_E_NOSUPPORT && steps->may_lack)
			rc = 0;
	}
	if (!rc)
		message[0] = '\0';
	return rc;
}

/* ---- notes */

bool worker_noted(const struct worker_call *c, const char *key, unsigned i, char *out,
		  size_t size)
{
	size_t n = strlen(key);

	for (const char *line = c->state; *line; line += strcspn(line, "\n") + 1) {
		size_t len = strcspn(line, "\n");

		if (len > n && strncmp(line, key, n) == 0 && line[n] == ' ' && i-- == 0) {
			snprintf(out, size, "%.*s", (int)(len - n - 1), line + n + 1);
			return true;
		}
		if (!line[len])
			break;
	}
	return false;
}

static bool is_noted(const struct worker_call *c, const char *key, const char *value)
{
	char have[WORKER_MODEL];

	for (unsigned i = 0; worker_noted(c, key, i, have, sizeof(have)); i++)
		if (strcmp(have, value) == 0)
			return true;
	return false;
}

void worker_note(struct worker_call *c, const char *key, const char *value)
{
	size_t used = strlen(c->state), n = strlen(key) + strlen(value) + 2;

	if (strlen(value) >= WORKER_MODEL || strpbrk(value, "\r\n") ||
	    used + n >= c->state_size || is_noted(c, key, value))
		return;
	snprintf(c->state + used, c->state_size - used, "%s %s\n", key, value);
}

void worker_note_asked(struct worker_call *c)
{
	worker_note(c, "asked", "1");
}

int worker_none_noted(const struct worker_call *c, char *message, size_t size)
{
	char unused[8];

	if (!c->order->bytes || worker_noted(c, "asked", 0, unused, sizeof(unused))) {
		snprintf(message, size, "no model was loaded; set model to have one");
		return 0;
	}
	snprintf(message, size,
		 "which model was loaded is not known any more: load it by hand, and set model "
		 "to "
		 "have it loaded the next time");
	return -GW_E_NOSUPPORT;
}

int worker_load_noted(struct worker_call *c,
		      int (*load)(struct worker_call *c, const char *model, char *message,
				  size_t size),
		      char *message, size_t size)
{
	char model[WORKER_MODEL], left[120] = "";
	unsigned i, loaded = 0;
	int rc;

	if (!worker_noted(c, "model", 0, model, sizeof(model)) && c->worker->model)
		worker_note(c, "model", c->worker->model);
	if (!worker_noted(c, "model", 0, model, sizeof(model)))
		return worker_none_noted(c, message, size);
	for (i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++) {
		rc = load(c, model, message, size);
		if (rc && !worker_unknown_model(c))
			return rc;
		if (rc)
			snprintf(left, sizeof(left), "; %.80s could not be", model);
		loaded += rc == 0;
	}
	snprintf(message, size, "%u of %u models loaded again%s", loaded, i, left);
	return 0;
}
