/* Inference servers that need little more than fixed HTTP requests; a server that needs more
 * has its own file. */
#include "base/json.h"
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

/* AUTOMATIC1111's Stable Diffusion web UI, started with --api; its CUDA context stays on the GPU. */

static bool a1111_busy(const struct json_doc *r)
{
	return json_doc_number(r, "progress") > 0 || json_doc_number(r, "state.job_count") > 0;
}

const struct worker_ops worker_a1111 = {
	.busy_path = "/sdapi/v1/progress",
	.busy = a1111_busy,
	.posts = { [ORDER_EVICT] =
			   (const struct worker_post[]){
				   { "/sdapi/v1/interrupt", "{}", false },
				   { "/sdapi/v1/unload-checkpoint", "{}", false },
				   { 0 } },
		   [ORDER_RESUME] =
			   (const struct worker_post[]){
				   { "/sdapi/v1/reload-checkpoint", "{}", false }, { 0 } } },
	.alive_path = "/sdapi/v1/memory",
};

/* ComfyUI frees memory between two prompts; prompts that wait in its queue stay there. */

static bool comfy_busy(const struct json_doc *r)
{
	return json_doc_count(r, "queue_running") > 0;
}

/* Resumes servers that load a model when a request needs it and that have no request to load
 * one. */
static int resume_on_demand(struct worker_call *c)
{
	return worker_ok(c, "it loads a model with the next request");
}

const struct worker_ops worker_comfy = {
	.busy_path = "/queue",
	.busy = comfy_busy,
	.resume = resume_on_demand,
	.posts = { [ORDER_EVICT] =
			   (const struct worker_post[]){
				   { "/interrupt", "{}", false },
				   { "/free", "{\"unload_models\":true,\"free_memory\":true}",
				     false },
				   { 0 } } },
	.alive_path = "/system_stats",
};

/* llama-swap stops its servers. It starts one again with the next request for that server's
 * model. */

static int llamaswap_evict(struct worker_call *c)
{
	int rc = worker_post(c, "/api/models/unload", NULL);

	if (rc == -GW_E_NOSUPPORT) /* older versions do not have /api */
		rc = worker_get(c, "/unload");
	return rc;
}

const struct worker_ops worker_llamaswap = { .evict = llamaswap_evict,
					     .resume = resume_on_demand,
					     .alive_path = "/running" };

/* SGLang releases memory only while its scheduler is idle. So generation is paused first, which
 * aborts running requests. SGLang needs --enable-memory-saver, and it needs
 * --enable-weights-cpu-backup to have its weights after a resume. */

#define SGLANG_TAGS "{\"tags\":[\"weights\",\"kv_cache\"]}"

static const struct worker_post sglang_pause[] = {
	{ "/pause_generation", "{\"mode\":\"abort\"}", false }, { 0 }
};

/* Status 400 means that the scheduler is not idle yet. It will be idle a moment later. */
static int sglang_evict(struct worker_call *c)
{
	int rc = worker_post_all(c, sglang_pause);

	if (rc)
		return rc;
	rc = worker_post(c, "/release_memory_occupation", SGLANG_TAGS);
	return rc == -GW_E_IO && worker_http_status(c->http) == 400 ? -GW_E_STATE : rc;
}

const struct worker_ops worker_sglang = {
	.evict = sglang_evict,
	.posts = { [ORDER_CLOSE] = sglang_pause,
		   [ORDER_OPEN] =
			   (const struct worker_post[]){
				   { "/continue_generation", "{}", false }, { 0 } },
		   [ORDER_RESUME] =
			   (const struct worker_post[]){
				   { "/resume_memory_occupation", SGLANG_TAGS, false },
				   { "/continue_generation", "{}", false },
				   { 0 } } },
	.alive_path = "/health",
};

/* KoboldCpp unloads by restarting itself with the configuration "unload_model", so its port is
 * closed for a while. It needs --admin --admindir DIR. It answers 200 even if it refuses. */

#define CONFIG_SUFFIX ".kcpps"

static int kobold_reload(struct worker_call *c, const char *filename)
{
	struct json_doc *r;
	const char *text;
	size_t n;
	bool ok;
	int rc = worker_post_field(c, "/api/admin/reload_config", "filename", filename);

	if (rc)
		return rc;
	text = worker_http_body(c->http, &n);
	rc = json_doc_new(text, n, &r, c->message, c->message_size);
	if (rc)
		return rc == -GW_E_PARSE ? -GW_E_IO : rc;
	ok = json_doc_true(r, "success");
	json_doc_free(r);
	return ok ? 0
		  : worker_fail(c, -GW_E_NOSUPPORT,
				"KoboldCpp refuses to load %.80s: start it with --admin "
				"--admindir DIR, and check token_file",
				filename);
}

static bool kobold_busy(const struct json_doc *r)
{
	return json_doc_get(r, "idle") && !(json_doc_number(r, "idle") > 0);
}

static int kobold_evict(struct worker_call *c)
{
	/* fails if no request runs, which is no error */
	worker_post(c, "/api/extra/abort", "{}");
	c->message[0] = '\0';
	return kobold_reload(c, "unload_model");
}

/* Writes the name of the only configuration in --admindir; false: there is none, or several. */
static bool only_config(const struct json_doc *r, char *out, size_t size)
{
	unsigned found = 0;

	for (size_t i = 0; i < json_doc_count(r, ""); i++) {
		const char *name = json_doc_string(json_doc_at(r, "", i), "");
		size_t n = name ? strlen(name) : 0;

		if (n <= strlen(CONFIG_SUFFIX) ||
		    strcmp(name + n - strlen(CONFIG_SUFFIX), CONFIG_SUFFIX) != 0)
			continue;
		snprintf(out, size, "%s", name);
		found++;
	}
	return found == 1;
}

static int kobold_resume(struct worker_call *c)
{
	char name[WORKER_MODEL];
	struct json_doc *r;
	bool known;
	int rc;

	if (c->worker->model)
		return kobold_reload(c, c->worker->model);
	rc = worker_get_json(c, "/api/admin/list_options", &r);
	if (rc)
		return rc;
	known = only_config(r, name, sizeof(name));
	json_doc_free(r);
	return known ? kobold_reload(c, name)
		     : worker_fail(c, -GW_E_NOSUPPORT,
				   "the configuration to load is unknown: set model to a file "
				   "of --admindir");
}

const struct worker_ops worker_kobold = { .busy_path = "/api/extra/perf",
					  .busy = kobold_busy,
					  .evict = kobold_evict,
					  .resume = kobold_resume,
					  .alive_path = "/api/extra/perf" };

/* Ollama: a generate request with keep_alive 0 unloads a model; the same request without
 * keep_alive loads the model again. Ollama cannot refuse new work and does not report running
 * requests. A model in use is unloaded after its last request. */

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

/* Notes the loaded models. With `unload`, also unloads each. */
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

const struct worker_ops worker_ollama = { .drain = ollama_drain,
					  .learn = ollama_learn,
					  .evict = ollama_evict,
					  .load = ollama_load,
					  .alive_path = "/api/ps" };

/* TabbyAPI has one model, which is unloaded and loaded by name. Unloading aborts running
 * requests. The administrator's key has its own header. */

/* Writes the loaded model, "" if there is none (status 400). Returns an error if the server
 * does not report it. */
static int loaded_model(struct worker_call *c, char *out, size_t out_size)
{
	struct json_doc *r;
	const char *id;
	int rc = worker_get_json(c, "/v1/model", &r);

	out[0] = '\0';
	if (rc)
		return worker_unknown_model(c) ? 0 : rc;
	id = json_doc_string(r, "id");
	snprintf(out, out_size, "%s", id ? id : "");
	json_doc_free(r);
	return 0;
}

/* Notes the loaded model. A failure here prevents the eviction, unless the configuration names
 * the model to load again. */
static int tabby_learn(struct worker_call *c)
{
	char model[WORKER_MODEL];
	int rc;

	worker_http_admin_key(c->http);
	rc = loaded_model(c, model, sizeof(model));
	if (rc)
		return c->worker->model ? 0 : rc;
	worker_note_asked(c);
	if (model[0])
		worker_note(c, "model", model);
	return 0;
}

static int tabby_evict(struct worker_call *c)
{
	worker_http_admin_key(c->http);
	return worker_post(c, "/v1/model/unload", NULL);
}

/* Loads a model. The server answers 200 before it loads and reports failures later in the
 * stream. So this checks afterwards which model is loaded. */
static int tabby_load(struct worker_call *c, const char *model)
{
	char now[WORKER_MODEL];
	int rc = worker_post_field(c, "/v1/model/load", "model_name", model);

	if (rc)
		return rc;
	if (loaded_model(c, now, sizeof(now)) == 0 && strcmp(now, model) == 0)
		return 0;
	return worker_fail(c, -GW_E_IO, "TabbyAPI did not load %.100s; see its log", model);
}

static int tabby_resume(struct worker_call *c)
{
	char model[WORKER_MODEL] = "";
	int rc;

	worker_http_admin_key(c->http);
	for (unsigned i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++)
		; /* uses the last note: each model replaced the one before */
	if (model[0])
		return tabby_load(c, model);
	if (c->worker->model)
		return tabby_load(c, c->worker->model);
	rc = loaded_model(c, model, sizeof(model)); /* someone may have loaded one */
	return rc || model[0] ? rc : worker_none_noted(c);
}

const struct worker_ops worker_tabby = { .learn = tabby_learn,
					 .evict = tabby_evict,
					 .resume = tabby_resume,
					 .alive_path = "/health" };
