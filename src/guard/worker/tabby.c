/* TabbyAPI: one model, unloaded and loaded by name; unloading aborts what runs.  The key of an
 * administrator goes in a header of its own. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

/* The model that is loaded, "" where none is (400); or an error: it cannot be asked. */
static int loaded(struct worker_call *c, char *out, size_t out_size, char *message, size_t size)
{
	struct json_doc *r;
	const char *id;
	int rc = worker_ask_json(c, "GET", "/v1/model", NULL, &r, message, size);

	out[0] = '\0';
	if (rc)
		return worker_unknown_model(c) ? 0 : rc;
	id = json_doc_string(r, "id");
	snprintf(out, out_size, "%s", id ? id : "");
	json_doc_free(r);
	return 0;
}

/* What nobody could load again is not unloaded. */
static int learn(struct worker_call *c, char *message, size_t size)
{
	char model[WORKER_MODEL];
	int rc;

	worker_http_admin_key(c->http);
	rc = loaded(c, model, sizeof(model), message, size);
	if (rc)
		return c->worker->model ? 0 : rc;
	worker_note_asked(c);
	if (model[0])
		worker_note(c, "model", model);
	return 0;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	worker_http_admin_key(c->http);
	return worker_ask(c, "POST", "/v1/model/unload", NULL, message, size);
}

/* Loading answers 200 and then tells how it goes, failures too: what counts is what is there
 * afterwards. */
static int load(struct worker_call *c, const char *model, char *message, size_t size)
{
	char now[WORKER_MODEL];
	int rc = worker_post(c, "/v1/model/load", "model_name", model, message, size);

	if (rc)
		return rc;
	if (loaded(c, now, sizeof(now), message, size) == 0 && strcmp(now, model) == 0)
		return 0;
	snprintf(message, size, "%.100s was told to load and is not there", model);
	return -GW_E_IO;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	char model[WORKER_MODEL] = "";
	int rc;

	worker_http_admin_key(c->http);
	for (unsigned i = 0; worker_noted(c, "model", i, model, sizeof(model)); i++)
		; /* of several the last: each was loaded in the place of the one before */
	if (model[0])
		return load(c, model, message, size);
	if (c->worker->model)
		return load(c, c->worker->model, message, size);
	rc = loaded(c, model, sizeof(model), message, size); /* by whoever started it */
	return rc || model[0] ? rc : worker_none_noted(c, message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/health", NULL, message, size);
}

const struct worker_ops worker_tabby = {
	.learn = learn, .evict = evict, .resume = resume, .alive = alive
};
