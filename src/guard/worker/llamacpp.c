/* llama.cpp's server as a router of several models. It answers a request to unload before the
 * model is unloaded. A server with a single model cannot unload: stop its unit (level 4) or
 * checkpoint it (level 3). */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <string.h>

static bool is_in_memory(const char *status)
{
	static const char *const in_memory[] = { "loaded", "loading", "sleeping" };

	for (size_t i = 0; i < sizeof(in_memory) / sizeof(*in_memory); i++)
		if (strcmp(status, in_memory[i]) == 0)
			return true;
	return false;
}

/* Notes every model in memory and calls fn (may be NULL) for it, until fn fails. */
static int each_model(struct worker_call *c,
		      int (*fn)(struct worker_call *c, const char *model, void *ctx), void *ctx)
{
	struct json_doc *r;
	int rc = worker_get_json(c, "/models", &r);

	if (rc)
		return rc;
	worker_note_asked(c);
	for (size_t i = 0; i < json_doc_count(r, "data") && !rc; i++) {
		const struct json_doc *m = json_doc_at(r, "data", i);
		const char *id = json_doc_string(m, "id");
		const char *status = json_doc_string(m, "status.value");

		if (!status) {
			rc = worker_fail(
				c, -GW_E_NOSUPPORT,
				"it serves a single model and cannot unload it; set max_level "
				"= 4 to stop its unit, or use kind \"checkpoint\"");
		} else if (id && is_in_memory(status)) {
			worker_note(c, "model", id);
			rc = fn ? fn(c, id, ctx) : 0;
		}
	}
	json_doc_free(r);
	return rc;
}

/* Checks whether a model is busy. Status 503 means that no slot is free. A server that hides
 * its slots answers 501; then nothing is known. */
static int check_slots(struct worker_call *c, const char *model, void *ctx)
{
	char path[WORKER_MODEL * 3 + 64];
	struct json_doc *r;
	bool *busy = ctx;
	struct buf b;
	int rc;

	buf_init_fixed(&b, path, sizeof(path));
	buf_adds(&b, "/slots?fail_on_no_slot=1&autoload=false&model=");
	worker_http_escape(&b, model);
	rc = worker_get_json(c, path, &r);
	if (rc == -GW_E_STATE)
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

static int llamacpp_drain(struct worker_call *c, bool *ret_busy)
{
	*ret_busy = false;
	return each_model(c, check_slots, ret_busy);
}

static int llamacpp_learn(struct worker_call *c)
{
	return each_model(c, NULL, NULL);
}

static int unload_model(struct worker_call *c, const char *model, void *ctx)
{
	int rc = worker_post_field(c, "/models/unload", "model", model);

	if (rc && worker_unknown_model(c)) /* the model is already unloaded */
		rc = 0;
	*(unsigned *)ctx += rc == 0;
	return rc;
}

static int llamacpp_evict(struct worker_call *c)
{
	unsigned n = 0;
	int rc = each_model(c, unload_model, &n);

	return rc ? rc : worker_ok(c, "requested to unload %u models", n);
}

static int load_model(struct worker_call *c, const char *model)
{
	return worker_post_field(c, "/models/load", "model", model);
}

const struct worker_ops worker_llamacpp = { .drain = llamacpp_drain,
					    .learn = llamacpp_learn,
					    .evict = llamacpp_evict,
					    .load = load_model,
					    .alive_path = "/health" };
