#include "guard/worker/model_list.h"

#include <string.h>

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

/* KoboldCpp reports "inactive" without a text model, and hides the name from clients that do
 * not send its --password. */
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
	const char *array; /* path of the entries; NULL: the document is the only entry */
	const char *name;  /* path of the name in an entry */
	/* NULL: every model in the list is loaded. May set the name to NULL. */
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
