/* TabbyAPI: one model, unloaded and loaded by name; unloading aborts running requests.  The
 * administrator's key goes into a header of its own. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

/* The loaded model, "" if there is none (400); or an error: the server does not say. */
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

/* A failure here prevents the eviction, unless the configuration says what to load again. */
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

/* The server answers 200 before it loads, and streams failures after it: so ask what is loaded
 * afterwards. */
static int tabby_load(struct worker_call *c, const char *model)
{
	char now[WORKER_MODEL];
	int rc = worker_post_field(c, "/v1/model/load", "model_name", model);

	if (rc)
		return rc;
	if (loaded_model(c, now, sizeof(now)) == 0 && strcmp(now, model) == 0)
		return 0;
	return worker_fail(c, -GW_E_IO,
			   "requested to load %.100s, but the model is not there; see the log "
			   "of TabbyAPI",
			   model);
}

static int tabby_resume(struct worker_call *c)
{
	char model[WORKER_MODEL] = "";
	int rc;

	worker_http_admin_key(c->http);
	for (unsigned i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++)
		; /* the last one: each replaced the one before */
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
