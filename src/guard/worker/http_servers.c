/* Adapters of inference servers that need few requests. A server that needs more has its own
 * file. */
#include "base/clock.h"
#include "base/json.h"
#include "guard/worker/common.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* AUTOMATIC1111's Stable Diffusion web UI. It must be started with --api. After an eviction,
 * its CUDA context stays on the GPU. */

static bool a1111_busy(const struct json_doc *r)
{
	return json_doc_number(r, "progress") > 0 || json_doc_number(r, "state.job_count") > 0;
}

const struct worker_ops worker_a1111 = {
	/* skip the preview image, which can be larger than 1 MiB */
	.busy_path = "/sdapi/v1/progress?skip_current_image=true",
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

/* Only reports success, because these servers have no request that loads a model. They load a
 * model when a request of a client needs it. */
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

/* llama-swap stops its servers without waiting for their requests. It starts a server again
 * with the next request for that server's model, and also with any request to a path below
 * /upstream; so the adapter does not use such paths. */

/* Time limit for reading llama-swap's stream of events, which begins with the running
 * requests. */
#define LLAMASWAP_EVENTS_NS NS_PER_S
#define LLAMASWAP_IN_FLIGHT "\"type\":\"inflight\""

/* True if the first event about running requests in a stream reports at least one request. The
 * event is a line data:{"type":"inflight","data":"{...}"}. Its data has a list of the requests,
 * or in older versions only their number. */
static bool llamaswap_in_flight(const char *stream)
{
	const char *line = strstr(stream, LLAMASWAP_IN_FLIGHT), *data;
	struct json_doc *event = NULL, *list = NULL;
	char unused[160];
	bool busy = false;

	if (!line)
		return false;
	while (line > stream && line[-1] != '\n')
		line--;
	line += strspn(line, "data: ");
	if (json_doc_new(line, strcspn(line, "\n"), &event, unused, sizeof(unused)) == 0) {
		data = json_doc_string(event, "data");
		if (data &&
		    json_doc_new(data, strlen(data), &list, unused, sizeof(unused)) == 0)
			busy = json_doc_count(list, "requests") > 0 ||
			       json_doc_number(list, "total") > 0;
	}
	json_doc_free(list);
	json_doc_free(event);
	return busy;
}

/* Does not wait for running requests if this version of llama-swap does not report them,
 * because then it is unknown whether requests run. */
static int llamaswap_drain(struct worker_call *c, bool *ret_busy)
{
	const uint64_t until_ns = clock_mono_ns(clock_real()) + LLAMASWAP_EVENTS_NS;
	size_t n;
	int rc;

	worker_http_deadline(c->http, until_ns < c->deadline_ns ? until_ns : c->deadline_ns);
	worker_http_until(c->http, LLAMASWAP_IN_FLIGHT);
	rc = worker_get(c, "/api/events");
	worker_http_until(c->http, NULL);
	worker_http_deadline(c->http, c->deadline_ns);
	*ret_busy = rc == 0 && llamaswap_in_flight(worker_http_body(c->http, &n));
	return rc == -GW_E_PERM ? rc : 0;
}

static int llamaswap_evict(struct worker_call *c)
{
	int rc = worker_post(c, "/api/models/unload", NULL);

	if (rc == -GW_E_NOSUPPORT) /* older versions do not have /api */
		rc = worker_get(c, "/unload");
	return rc;
}

const struct worker_ops worker_llamaswap = { .drain = llamaswap_drain,
					     .evict = llamaswap_evict,
					     .resume = resume_on_demand,
					     .alive_path = "/running" };

/* SGLang releases memory only while its scheduler is idle. The server ends if memory is
 * released while a request runs, or if the same memory is released or resumed twice. So
 * generation is paused first, which aborts running requests, and notes say which process
 * released its memory. SGLang needs --enable-memory-saver; without it, a release does nothing.
 * It needs --enable-weights-cpu-backup to have its weights after a resume. */

/* The memory of CUDA graphs is released only if the request names it. */
#define SGLANG_TAGS "{\"tags\":[\"weights\",\"kv_cache\",\"cuda_graph\"]}"

static const struct worker_post sglang_pause[] = {
	{ "/pause_generation", "{\"mode\":\"abort\"}", false }, { 0 }
};

/* Writes pid and start time of the server's root process, for notes. After a restart both
 * differ, so the memory of the new process does not count as released. */
static void sglang_process(const struct worker_call *c, char *out, size_t size)
{
	const struct proc_id none = { 0 }, id = c->order->roots ? c->order->root[0].id : none;

	snprintf(out, size, "%lld %llu", (long long)id.pid, (unsigned long long)id.start_ticks);
}

/* Returns 0 if the server is idle, -GW_E_STATE while requests run or wait, or another error.
 * Returns 0 also if the server does not report its load, because such a server answers the
 * pause only after its last request has ended. */
static int sglang_check_idle(struct worker_call *c)
{
	struct json_doc *r;
	double requests = 0;
	int rc = worker_get_json(c, "/get_load", &r);

	if (rc)
		return rc == -GW_E_NOSUPPORT ? 0 : rc;
	for (size_t i = 0; i < json_doc_count(r, ""); i++)
		requests += json_doc_number(json_doc_at(r, "", i), "num_reqs") +
			    json_doc_number(json_doc_at(r, "", i), "num_waiting_reqs");
	json_doc_free(r);
	return requests > 0 ? worker_fail(c, -GW_E_STATE,
					  "SGLang is not idle yet: %.0f requests run or wait",
					  requests)
			    : 0;
}

/* Notes that a release begins. If the outcome of the release stays unknown, the resume order
 * treats the memory as released. */
static int sglang_learn(struct worker_call *c)
{
	char process[64];

	sglang_process(c, process, sizeof(process));
	worker_note(c, "release", process);
	return 0;
}

static int sglang_evict(struct worker_call *c)
{
	char process[64];
	int rc;

	sglang_process(c, process, sizeof(process));
	if (worker_is_noted(c, "released", process))
		return worker_ok(c, "it has already released its memory");
	rc = worker_post_all(c, sglang_pause);
	if (!rc)
		rc = sglang_check_idle(c);
	if (!rc)
		rc = worker_post(c, "/release_memory_occupation", SGLANG_TAGS);
	if (rc == -GW_E_TIMEOUT)
		return rc;
	worker_forget(c, "release");
	if (rc == 0)
		worker_note(c, "released", process);
	/* Status 400 means that the scheduler is not idle yet. */
	return rc == -GW_E_IO && worker_http_status(c->http) == 400 ? -GW_E_STATE : rc;
}

/* Resumes the released memory only once. If /continue_generation fails, the next call repeats
 * only that request. */
static int sglang_resume(struct worker_call *c)
{
	char process[64];
	int rc = 0;

	sglang_process(c, process, sizeof(process));
	if (worker_is_noted(c, "released", process) || worker_is_noted(c, "release", process))
		rc = worker_post(c, "/resume_memory_occupation", SGLANG_TAGS);
	if (rc)
		return rc;
	worker_forget(c, "release");
	worker_forget(c, "released");
	return worker_post(c, "/continue_generation", "{}");
}

/* Does not use /health, because /health runs a generation, which waits while generation is
 * paused. */
static int sglang_alive(struct worker_call *c)
{
	int rc = worker_get(c, "/model_info");

	/* older versions have this path instead */
	return rc == -GW_E_NOSUPPORT ? worker_get(c, "/get_model_info") : rc;
}

const struct worker_ops worker_sglang = {
	.learn = sglang_learn,
	.evict = sglang_evict,
	.resume = sglang_resume,
	.posts = { [ORDER_CLOSE] = sglang_pause,
		   [ORDER_OPEN] =
			   (const struct worker_post[]){
				   { "/continue_generation", "{}", false }, { 0 } } },
	.alive = sglang_alive,
};

/* Ollama: a generate request with keep_alive 0 unloads a model; the same request without
 * keep_alive loads the model again. Ollama cannot refuse new work and does not report running
 * requests. A model in use is unloaded after its last request. */

#define OLLAMA_KEEP_S 300 /* how long Ollama keeps an idle model loaded by default */
/* if Ollama keeps a model loaded for longer than this, it keeps the model for ever */
#define OLLAMA_FOREVER_S (100 * 365 * 24 * 3600.0)

/* Returns the seconds until a time such as 2026-08-01T12:34:56.789+02:00; 0: the time is in the
 * past or not valid. */
static double ollama_seconds_until(const char *time)
{
	struct tm t = { 0 };
	int n = 0, hours = 0, minutes = 0;
	double seconds;

	if (!time || sscanf(time, "%d-%d-%dT%d:%d:%d%n", &t.tm_year, &t.tm_mon, &t.tm_mday,
			    &t.tm_hour, &t.tm_min, &t.tm_sec, &n) < 6)
		return 0;
	t.tm_year -= 1900;
	t.tm_mon--;
	n += (int)strspn(time + n, ".0123456789");
	if (time[n] == '+' || time[n] == '-')
		sscanf(time + n + 1, "%2d:%2d", &hours, &minutes);
	seconds = (double)timegm(&t) -
		  (time[n] == '-' ? -60.0 : 60.0) * (60 * hours + minutes) -
		  (double)clock_wall_ns(clock_real()) * 1e-9;
	return seconds > 0 ? seconds : 0;
}

/* Reads the last note "options" of a model. Returns false if there is none. */
static bool ollama_options(const struct worker_call *c, const char *model, long *ret_keep_s,
			   long *ret_num_ctx)
{
	char text[WORKER_MODEL];
	bool found = false;

	for (unsigned i = 0; worker_noted(c, "options", i, text, sizeof(text)); i++) {
		long keep_s, num_ctx;
		int n = 0;

		if (sscanf(text, "%ld %ld %n", &keep_s, &num_ctx, &n) != 2 ||
		    strcmp(text + n, model) != 0)
			continue;
		*ret_keep_s = keep_s;
		*ret_num_ctx = num_ctx;
		found = true;
	}
	return found;
}

/* Notes a model and the options with which it was loaded, because Ollama forgets these options
 * when it unloads the model. Options that differ from the last note only by the time that has
 * passed are not noted again. */
static void ollama_note(struct worker_call *c, const struct json_doc *m, const char *name)
{
	const double left_s = ollama_seconds_until(json_doc_string(m, "expires_at"));
	const double length = json_doc_number(m, "context_length");
	const long keep_s = left_s > OLLAMA_FOREVER_S ? -1 : (long)(left_s + 0.5);
	const long num_ctx = length > 0 && length < 1e9 ? (long)length : 0;
	char text[WORKER_MODEL + 64];
	long noted_s, noted_ctx;

	worker_note_model(c, name);
	if (ollama_options(c, name, &noted_s, &noted_ctx) && noted_ctx == num_ctx &&
	    (keep_s < 0) == (noted_s < 0) && keep_s <= noted_s)
		return;
	if (snprintf(text, sizeof(text), "%ld %ld %s", keep_s, num_ctx, name) < WORKER_MODEL)
		worker_note(c, "options", text);
}

/* Adds keep_alive and num_ctx from the note "options" of a model to a request. */
static void ollama_add_options(const struct worker_call *c, struct json *j, const char *model)
{
	long keep_s = 0, num_ctx = 0;

	if (!ollama_options(c, model, &keep_s, &num_ctx))
		return;
	if (keep_s < 0 || keep_s > OLLAMA_KEEP_S)
		json_int(j, "keep_alive", keep_s);
	if (num_ctx > 0) {
		json_object(j, "options");
		json_int(j, "num_ctx", num_ctx);
		json_object_end(j);
	}
}

static int ollama_request(struct worker_call *c, const char *path, const char *model,
			  bool unload)
{
	char text[WORKER_MODEL * JSON_ESCAPE_MAX + 128];
	struct buf b;
	struct json j;

	buf_init_fixed(&b, text, sizeof(text));
	json_init(&j, &b, false);
	json_object(&j, NULL);
	json_string(&j, "model", model);
	if (unload)
		json_int(&j, "keep_alive", 0);
	else
		ollama_add_options(c, &j, model);
	json_bool(&j, "stream", false);
	json_object_end(&j);
	return worker_post(c, path, text);
}

/* Notes the loaded models. If `unload` is true, also unloads them. */
static int ollama_each(struct worker_call *c, bool unload, size_t *ret_count)
{
	struct listed_model m;
	struct json_doc *r;
	int rc = model_list_get(c, &r);

	*ret_count = 0;
	if (rc)
		return rc;
	worker_note_asked(c);
	for (size_t i = 0; !rc && model_list_at(WORKER_OLLAMA, r, i, &m); i++) {
		if (!m.name || m.state == MODEL_OUT)
			continue;
		ollama_note(c, m.entry, m.name);
		if (unload)
			rc = ollama_request(c, "/api/generate", m.name, true);
		if (rc == -GW_E_NOSUPPORT) /* 404: the model is already unloaded */
			rc = 0;
		*ret_count += rc == 0;
	}
	json_doc_free(r);
	return rc;
}

static int ollama_learn(struct worker_call *c)
{
	size_t unused;

	return ollama_each(c, false, &unused);
}

static int ollama_drain(struct worker_call *c, bool *ret_busy)
{
	*ret_busy = false;
	return ollama_learn(c);
}

static int ollama_evict(struct worker_call *c)
{
	size_t n;
	int rc = ollama_each(c, true, &n);

	return rc ? rc : worker_ok(c, "the server unloads %zu model%s", n, n == 1 ? "" : "s");
}

/* Checks that Ollama lists a model as loaded. */
static int ollama_check(struct worker_call *c, const char *model)
{
	struct listed_model m;
	struct json_doc *r;
	size_t n = strlen(model);
	bool found = false;
	int rc = model_list_get(c, &r);

	if (rc)
		return rc;
	for (size_t i = 0; model_list_at(WORKER_OLLAMA, r, i, &m); i++)
		found = found || (m.name && strncmp(m.name, model, n) == 0 &&
				  (!m.name[n] || strcmp(m.name + n, ":latest") == 0));
	json_doc_free(r);
	return found ? 0
		     : worker_fail(c, -GW_E_IO,
				   "Ollama does not list %.80s as loaded; see its log", model);
}

/* Loads a model. A model for embeddings does not support generate, so it is loaded with an
 * embed request. */
static int ollama_load(struct worker_call *c, const char *model)
{
	int rc = ollama_request(c, "/api/generate", model, false);

	if (rc && worker_said(c, "does not support generate"))
		rc = ollama_request(c, "/api/embed", model, false);
	return rc ? rc : ollama_check(c, model);
}

const struct worker_ops worker_ollama = { .drain = ollama_drain,
					  .learn = ollama_learn,
					  .evict = ollama_evict,
					  .load = ollama_load,
					  .alive_path = "/api/ps" };

/* TabbyAPI has one model, which is unloaded and loaded by name. Unloading aborts running
 * requests. The administrator's key has its own header. */

/* Notes the loaded model. A failure here prevents the eviction, unless the configuration names
 * the model to load again. */
static int tabby_learn(struct worker_call *c)
{
	char model[WORKER_MODEL];
	int rc = model_list_first(c, model, sizeof(model));

	if (rc)
		return c->worker->model ? 0 : rc;
	worker_note_asked(c);
	if (model[0])
		worker_note_model(c, model);
	return 0;
}

static int tabby_evict(struct worker_call *c)
{
	worker_http_admin_key(c->http);
	return worker_post(c, "/v1/model/unload", NULL);
}

/* Loads a model. The server answers 200 before it loads and reports failures later in the
 * stream. So this function checks afterwards which model is loaded. */
static int tabby_load(struct worker_call *c, const char *model)
{
	char now[WORKER_MODEL];
	int rc = worker_post_field(c, "/v1/model/load", "model_name", model);

	if (rc && !worker_said(c, "already loaded"))
		return rc;
	c->listed = model_list_first(c, now, sizeof(now)) == 0 && strcmp(now, model) == 0;
	if (c->listed)
		return 0;
	return worker_fail(c, -GW_E_IO, "TabbyAPI did not load %.100s; see its log", model);
}

static int tabby_resume(struct worker_call *c)
{
	char model[WORKER_MODEL] = "";
	int rc;

	worker_http_admin_key(c->http);
	for (unsigned i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++)
		; /* use the last note, because each model replaced the one before */
	if (model[0])
		return tabby_load(c, model);
	if (c->worker->model)
		return tabby_load(c, c->worker->model);
	/* success if a client has loaded a model itself */
	rc = model_list_first(c, model, sizeof(model));
	return rc || model[0] ? rc : worker_none_noted(c);
}

/* Does not use /health, because /health answers 503 for ever after one failed generation. */
static int tabby_alive(struct worker_call *c)
{
	char model[WORKER_MODEL];

	return model_list_first(c, model, sizeof(model));
}

const struct worker_ops worker_tabby = {
	.learn = tabby_learn, .evict = tabby_evict, .resume = tabby_resume, .alive = tabby_alive
};

/* The functions and the table below read the lists of models that the servers report. */

static enum model_state llamacpp_state(const struct json_doc *m, const char **name)
{
	static const char *const names[] = { [MODEL_LOADING] = "loading",
					     [MODEL_LOADED] = "loaded",
					     [MODEL_SLEEPING] = "sleeping" };
	const char *status = json_doc_string(m, "status.value");

	(void)name;
	if (!status) /* only a router of several models reports a status */
		return MODEL_SINGLE;
	for (unsigned i = MODEL_LOADING; i <= MODEL_SLEEPING; i++)
		if (strcmp(status, names[i]) == 0)
			return (enum model_state)i;
	return json_doc_true(m, "status.failed") ? MODEL_FAILED : MODEL_OUT;
}

static enum model_state llamaswap_state(const struct json_doc *m, const char **name)
{
	const char *state = json_doc_string(m, "state");

	(void)name;
	return state && strcmp(state, "ready") == 0 ? MODEL_LOADED : MODEL_LOADING;
}

/* Ollama also lists models in the cloud, which hold no memory. */
static enum model_state ollama_state(const struct json_doc *m, const char **name)
{
	(void)name;
	return json_doc_string(m, "remote_host") || (json_doc_is_number(m, "size") &&
						     json_doc_number(m, "size") <= 0)
		       ? MODEL_OUT
		       : MODEL_LOADED;
}

/* KoboldCpp reports the name "inactive" if it has no text model. It hides the name from clients
 * that do not send its --password. */
static enum model_state kobold_state(const struct json_doc *m, const char **name)
{
	(void)m;
	if (!*name || strcmp(*name, "inactive") == 0) {
		*name = NULL;
		return MODEL_OUT;
	}
	if (strcmp(*name, "koboldcpp/protected-model") == 0)
		*name = NULL;
	return MODEL_LOADED;
}

static const struct {
	const char *path;
	const char
		*array; /* path of the array in the document; NULL: the document is one entry */
	const char *name; /* path of the model's name in an entry */
	/* Returns the state of an entry, and sets *name to NULL if the name is unknown. Without
	 * this function, every listed model counts as loaded. */
	enum model_state (*state)(const struct json_doc *entry, const char **name);
} formats[WORKER_KINDS] = {
	[WORKER_LLAMACPP] = { "/models", "data", "id", llamacpp_state },
	[WORKER_LLAMASWAP] = { "/running", "running", "model", llamaswap_state },
	[WORKER_VLLM] = { "/v1/models", "data", "id", NULL },
	[WORKER_SGLANG] = { "/v1/models", "data", "id", NULL },
	[WORKER_OLLAMA] = { "/api/ps", "models", "name", ollama_state },
	[WORKER_TABBY] = { "/v1/model", NULL, "id", NULL },
	[WORKER_KOBOLD] = { "/api/v1/model", NULL, "result", kobold_state },
	[WORKER_A1111] = { "/sdapi/v1/options", NULL, "sd_model_checkpoint", NULL },
};

int model_list_get(struct worker_call *c, struct json_doc **ret)
{
	const enum policy_kind kind = c->worker->kind;
	int rc;

	*ret = NULL;
	if (!formats[kind].path)
		return worker_fail(c, -GW_E_NOSUPPORT, "it does not list its models");
	if (kind == WORKER_TABBY)
		worker_http_admin_key(c->http);
	rc = worker_get_json(c, formats[kind].path, ret);
	/* TabbyAPI answers 503, in older versions 400 */
	if (rc && kind == WORKER_TABBY && worker_said(c, "no models are currently loaded"))
		rc = 0;
	return rc;
}

bool model_list_at(enum policy_kind kind, const struct json_doc *list, size_t i,
		   struct listed_model *ret)
{
	const char *array = formats[kind].array;

	if (!list || i >= (array ? json_doc_count(list, array) : 1))
		return false;
	ret->entry = array ? json_doc_at(list, array, i) : list;
	ret->name = json_doc_string(ret->entry, formats[kind].name);
	ret->state = formats[kind].state ? formats[kind].state(ret->entry, &ret->name)
					 : MODEL_LOADED;
	return true;
}

int model_list_first(struct worker_call *c, char *out, size_t size)
{
	struct listed_model m;
	struct json_doc *r;
	int rc = model_list_get(c, &r);

	out[0] = '\0';
	if (!rc && model_list_at(c->worker->kind, r, 0, &m) && m.name)
		snprintf(out, size, "%s", m.name);
	json_doc_free(r);
	return rc;
}
