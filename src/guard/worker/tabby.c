/* TabbyAPI: one model, unloaded and loaded by name; unloading aborts what runs.  The key of an
 * administrator goes in a header of its own. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

/* The model that is loaded; false: none, or it cannot be asked. */
static bool loaded(struct worker_call *c, char *out, size_t out_size, char *message,
		   size_t size)
{
	struct json_doc *r;
	const char *id;

	if (worker_ask_json(c, "GET", "/v1/model", NULL, &r, message, size))
		return false;
	id = json_doc_string(r, "id");
	if (id)
		snprintf(out, out_size, "%s", id);
	json_doc_free(r);
	return id != NULL;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	char model[WORKER_MODEL];

	worker_http_admin_key(c->http);
	if (loaded(c, model, sizeof(model), message, size))
		worker_note(c, "model", model);
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
	if (loaded(c, now, sizeof(now), message, size) && strcmp(now, model) == 0)
		return 0;
	snprintf(message, size, "%.100s was told to load and is not there", model);
	return -GW_E_IO;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	char model[WORKER_MODEL];

	worker_http_admin_key(c->http);
	if (!worker_noted(c, "model", 0, model, sizeof(model))) {
		if (!c->worker->model) {
			snprintf(message, size, "no model was loaded; set model to have one");
			return 0;
		}
		snprintf(model, sizeof(model), "%s", c->worker->model);
	}
	return load(c, model, message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/health", NULL, message, size);
}

const struct worker_ops worker_tabby = { .evict = evict, .resume = resume, .alive = alive };
