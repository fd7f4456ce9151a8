/* Adapter for llama.cpp's server as a router of several models. The router answers a request to
 * load or to unload before the work is done; a model that is being stopped stays "loaded" until
 * the model's process has ended. A server with a single model cannot unload that model: such a
 * server must be stopped (level 4) or checkpointed (level 3). */
#include "guard/worker/common.h"

#include "base/clock.h"
#include "base/http_message.h"

#include <string.h>

/* The router kills a model that has not ended 10 s after the request to unload. If a model is
 * listed as loaded for longer than this, the router is not stopping it. */
#define LLAMACPP_STOP_NS (11 * NS_PER_S)

/* Notes every model in memory and calls fn (may be NULL) for it, until fn fails. */
static int each_model(struct worker_call *c,
		      int (*fn)(struct worker_call *c, const char *model,
				enum model_state state, void *ctx),
		      void *ctx)
{
	struct listed_model m;
	struct json_doc *r;
	int rc = model_list_get(c, &r);

	if (rc)
		return rc;
	worker_note_asked(c);
	for (size_t i = 0; !rc && model_list_at(WORKER_LLAMACPP, r, i, &m); i++) {
		if (m.state == MODEL_SINGLE) {
			rc = worker_fail(
				c, -GW_E_NOSUPPORT,
				"it serves a single model and cannot unload it; set max_level "
				"= 4 to stop its unit, or use kind \"checkpoint\"");
		} else if (m.name && m.state >= MODEL_LOADING) {
			worker_note_model(c, m.name);
			rc = fn ? fn(c, m.name, m.state, ctx) : 0;
		}
	}
	json_doc_free(r);
	return rc;
}

/* Checks whether slots are busy. A server that hides its slots answers 501. A model that was
 * unloaded meanwhile or is loading answers 400, 500 or 503. In these cases it is unknown
 * whether slots are busy. */
static int check_slots(struct worker_call *c, const char *path, bool *busy)
{
	struct json_doc *r;
	int rc = worker_get_json(c, path, &r);

	if (rc == -GW_E_STATE && worker_said(c, "no slot"))
		*busy = true;
	if (rc == -GW_E_STATE || rc == -GW_E_NOSUPPORT || rc == -GW_E_IO)
		return 0;
	if (rc)
		return rc;
	for (size_t i = 0; i < json_doc_count(r, ""); i++)
		if (json_doc_true(json_doc_at(r, "", i), "is_processing"))
			*busy = true;
	json_doc_free(r);
	return 0;
}

/* Checks whether a model is busy. Queries only a loaded model, because the query would wake a
 * sleeping model, and a loading model has no requests yet. */
static int check_model(struct worker_call *c, const char *model, enum model_state state,
		       void *ctx)
{
	char path[WORKER_MODEL * 3 + 64];
	struct buf b;

	if (state != MODEL_LOADED)
		return 0;
	buf_init_fixed(&b, path, sizeof(path));
	buf_adds(&b, "/slots?fail_on_no_slot=1&autoload=false&model=");
	url_escape(&b, model);
	return check_slots(c, path, ctx);
}

/* Checks whether a server with a single model is busy. A server that sleeps is idle. */
static int check_single(struct worker_call *c, bool *busy)
{
	struct json_doc *r;
	bool sleeps;
	int rc = worker_get_json(c, "/props", &r);

	if (rc)
		return rc;
	sleeps = json_doc_true(r, "is_sleeping");
	json_doc_free(r);
	return sleeps ? 0 : check_slots(c, "/slots?fail_on_no_slot=1", busy);
}

/* Checks whether requests run. Fails at once for a server with a single model, because such a
 * server cannot unload. But if the guard may stop the server, the check does not fail, so that
 * the requests can finish first. */
static int llamacpp_drain(struct worker_call *c, bool *ret_busy)
{
	int rc;

	*ret_busy = false;
	rc = each_model(c, check_model, ret_busy);
	if (rc == -GW_E_NOSUPPORT && c->worker->knobs.max_level >= LEVEL_STOP)
		rc = check_single(c, ret_busy);
	return rc;
}

static int llamacpp_learn(struct worker_call *c)
{
	return each_model(c, NULL, NULL);
}

static int unload_model(struct worker_call *c, const char *model, enum model_state state,
			void *ctx)
{
	int rc = worker_post_field(c, "/models/unload", "model", model);

	(void)state;
	if (rc && (worker_said(c, "not running") || worker_said(c, "not found")))
		return 0; /* the model is already unloaded */
	*(unsigned *)ctx += rc == 0;
	return rc;
}

static int llamacpp_evict(struct worker_call *c)
{
	unsigned n = 0;
	int rc = each_model(c, unload_model, &n);

	return rc ? rc : worker_ok(c, "the router unloads %u model%s", n, n == 1 ? "" : "s");
}

/* Reads the state of one model. */
static int read_state(struct worker_call *c, const char *model, enum model_state *ret)
{
	struct listed_model m;
	struct json_doc *r;
	int rc = model_list_get(c, &r);

	*ret = MODEL_OUT;
	if (rc)
		return rc;
	for (size_t i = 0; model_list_at(WORKER_LLAMACPP, r, i, &m); i++)
		if (m.name && strcmp(m.name, model) == 0)
			*ret = m.state;
	json_doc_free(r);
	return 0;
}

/* Sends the request to load a model. Returns 0; 1 if the router answers that the model already
 * runs (it gives this answer also while it stops the model); or an error. */
static int request_load(struct worker_call *c, const char *model)
{
	int rc;

	if (worker_is_noted(c, "requested", model))
		return 0;
	rc = worker_post_field(c, "/models/load", "model", model);
	if (rc == 0)
		worker_note(c, "requested", model);
	return rc && worker_said(c, "already running") ? 1 : rc;
}

/* Returns by how many the noted models exceed the router's limit max_instances (--models-max).
 * If one more model is loaded, the router unloads the least recently used model without an
 * error. */
static unsigned count_surplus(struct worker_call *c)
{
	char model[WORKER_MODEL];
	struct json_doc *r;
	unsigned models = 0;
	double most;

	if (worker_get_json(c, "/props", &r) != 0)
		return 0;
	most = json_doc_number(r, "max_instances"); /* 0: no limit */
	json_doc_free(r);
	while (worker_noted(c, "model", models, model, sizeof(model)))
		models++;
	return most >= 1 && models > most ? models - (unsigned)most : 0;
}

/* Sends the load requests for all noted models before it waits for the first model, so that the
 * models load at the same time. If more models are noted than the router's limit allows,
 * clients loaded the last models in place of the first models. So the first models are not
 * requested. */
static void request_all(struct worker_call *c)
{
	unsigned surplus = count_surplus(c);
	char model[WORKER_MODEL];

	/* drop the notes of an earlier order, so that every model is requested again */
	worker_forget(c, "requested");
	worker_forget(c, "surplus");
	for (unsigned i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++) {
		if (i < surplus)
			worker_note(c, "surplus", model);
		else
			request_load(c, model);
	}
}

/* Loads a model, and waits until the router lists it as loaded. A model that "already runs" may
 * still be stopping; then the request is repeated after the model has stopped. */
static int load_model(struct worker_call *c, const char *model)
{
	const uint64_t stays_ns = clock_mono_ns(clock_real()) + LLAMACPP_STOP_NS;
	enum model_state state;
	char first[WORKER_MODEL] = "";
	bool ran;
	int rc;

	worker_noted(c, "model", 0, first, sizeof(first));
	if (strcmp(first, model) == 0)
		request_all(c);
	if (worker_is_noted(c, "surplus", model))
		return worker_fail(c, -GW_E_STATE,
				   "the router's limit of models (--models-max) is reached");
	rc = request_load(c, model);
	ran = rc == 1;
	while (rc >= 0) {
		rc = read_state(c, model, &state);
		if (rc)
			return rc;
		if (state < MODEL_LOADING &&
		    ran) { /* also MODEL_FAILED: the router killed the model */
			rc = request_load(c, model);
			ran = rc == 1;
			continue;
		}
		if (state < MODEL_LOADING)
			return worker_fail(c, -GW_E_IO,
					   "llama-server did not load %.80s; see its log",
					   model);
		if (state > MODEL_LOADING && (!ran || clock_mono_ns(clock_real()) >= stays_ns))
			return 0;
		if (!worker_pause(c))
			return 1;
	}
	return rc;
}

const struct worker_ops worker_llamacpp = { .drain = llamacpp_drain,
					    .learn = llamacpp_learn,
					    .evict = llamacpp_evict,
					    .load = load_model,
					    .alive_path = "/health" };
