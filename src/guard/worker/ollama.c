/* Ollama: a generate request with keep_alive 0 unloads a model, the same request without it
 * loads the model again.  Ollama has no way to refuse new work and does not report running
 * requests; a model in use is unloaded after its last request. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include "base/json.h"

static int ollama_generate(struct worker_call *c, const char *model, bool unload)
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
	return worker_post(c, "/api/generate", text);
}

static int ollama_load(struct worker_call *c, const char *model)
{
	return ollama_generate(c, model, false);
}

/* Notes the loaded models and, if unload, unloads each. */
static int each_model(struct worker_call *c, bool unload, size_t *ret_count)
{
	struct json_doc *r;
	int rc = worker_get_json(c, "/api/ps", &r);

	if (rc)
		return rc;
	worker_note_asked(c);
	*ret_count = json_doc_count(r, "models");
	for (size_t i = 0; i < *ret_count; i++) {
		const char *name = json_doc_string(json_doc_at(r, "models", i), "name");

		if (name)
			worker_note(c, "model", name);
	}
	for (size_t i = 0; unload && i < *ret_count && !rc; i++) {
		const char *name = json_doc_string(json_doc_at(r, "models", i), "name");

		if (name)
			rc = ollama_generate(c, name, true);
		if (rc == -GW_E_NOSUPPORT) /* 404: it is already unloaded */
			rc = 0;
	}
	json_doc_free(r);
	return rc;
}

static int ollama_learn(struct worker_call *c)
{
	size_t unused;

	return each_model(c, false, &unused);
}

static int ollama_drain(struct worker_call *c, bool *ret_busy)
{
	*ret_busy = false;
	return ollama_learn(c);
}

static int ollama_evict(struct worker_call *c)
{
	size_t n;
	int rc = each_model(c, true, &n);

	return rc ? rc : worker_ok(c, "requested to unload %zu models", n);
}

static int ollama_resume(struct worker_call *c)
{
	return worker_load_noted(c, ollama_load);
}

const struct worker_ops worker_ollama = { .drain = ollama_drain,
					  .learn = ollama_learn,
					  .evict = ollama_evict,
					  .resume = ollama_resume,
					  .alive_path = "/api/ps" };
