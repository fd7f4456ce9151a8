/* Ollama: models are unloaded one by one with keep_alive 0, and loaded again by the same call without
 * it.  It cannot be told to take no new work, and a model in use goes when its last request has
 * ended: only bytes tell. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static int generate(struct worker_call *c, const char *model, bool unload, char *message,
		    size_t size)
{
	char text[WORKER_MODEL * JSON_ESCAPE_MAX + 64];
	struct buf b;
	struct json j;

	buf_init_fixed(&b, text, sizeof(text));
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, "model", model);
	if (unload)
		json_int(&j, "keep_alive", 0);
	json_bool(&j, "stream", false);
	json_object_end(&j);
	return worker_ask(c, "POST", "/api/generate", text, message, size);
}

static int load(struct worker_call *c, const char *model, char *message, size_t size)
{
	return generate(c, model, false, message, size);
}

/* Remembers what is loaded; the caller owns *ret. */
static int list(struct worker_call *c, struct json_doc **ret, char *message, size_t size)
{
	int rc = worker_ask_json(c, "GET", "/api/ps", NULL, ret, message, size);

	if (!rc)
		worker_note_asked(c);
	for (size_t i = 0; !rc && i < json_doc_count(*ret, "models"); i++) {
		const char *name = json_doc_string(json_doc_at(*ret, "models", i), "name");

		if (name)
			worker_note(c, "model", name);
	}
	return rc;
}

static int learn(struct worker_call *c, char *message, size_t size)
{
	struct json_doc *r;
	int rc = list(c, &r, message, size);

	if (!rc)
		json_doc_free(r);
	return rc;
}

/* Ollama does not tell what is in flight; what is loaded is remembered before anything is done. */
static int drain(struct worker_call *c, bool *ret_busy, char *message, size_t size)
{
	*ret_busy = false;
	return learn(c, message, size);
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	struct json_doc *r;
	size_t n, i;
	int rc = list(c, &r, message, size);

	if (rc)
		return rc;
	n = json_doc_count(r, "models");
	for (i = 0; i < n && !rc; i++) {
		const char *name = json_doc_string(json_doc_at(r, "models", i), "name");

		if (name)
			rc = generate(c, name, true, message, size);
		if (rc == -GW_E_NOSUPPORT) /* 404: it went by itself */
			rc = 0;
	}
	json_doc_free(r);
	if (!rc)
		snprintf(message, size, "%zu models told to unload", n);
	return rc;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	if (c->worker->resume == RESUME_LAZY)
		return 0;
	return worker_load_noted(c, load, message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/api/ps", NULL, message, size);
}

const struct worker_ops worker_ollama = {
	.drain = drain, .learn = learn, .evict = evict, .resume = resume, .alive = alive
};
