/* KoboldCpp: unloading is a restart of itself with the configuration "unload_model", so that its port
 * is away for a while.  Needs --admin --admindir DIR; the answer is 200 even where it refuses. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

#define ENDING ".kcpps"

static int reload(struct worker_call *c, const char *filename, char *message, size_t size)
{
	struct json_doc *r;
	const char *text;
	size_t n;
	bool ok;
	int rc =
		worker_post(c, "/api/admin/reload_config", "filename", filename, message, size);

	if (rc)
		return rc;
	text = worker_http_body(c->http, &n);
	rc = json_doc_new(text, n, &r, message, size);
	if (rc)
		return rc == -GW_E_PARSE ? -GW_E_IO : rc;
	ok = json_doc_true(r, "success");
	json_doc_free(r);
	if (ok)
		return 0;
	snprintf(message, size,
		 "it refuses %.80s; start it with --admin --admindir DIR, and see token_file",
		 filename);
	return -GW_E_NOSUPPORT;
}

static int drain(struct worker_call *c, bool *ret_busy, char *message, size_t size)
{
	struct json_doc *r;
	int rc = worker_ask_json(c, "GET", "/api/extra/perf", NULL, &r, message, size);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy = json_doc_get(r, "idle") && !(json_doc_number(r, "idle") > 0);
	json_doc_free(r);
	return 0;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	/* Nothing may have been running: what comes of it does not matter. */
	worker_ask(c, "POST", "/api/extra/abort", "{}", message, size);
	message[0] = '\0';
	return reload(c, "unload_model", message, size);
}

/* The one configuration that there is; false: none, or several. */
static bool only_option(const struct json_doc *r, char *out, size_t size)
{
	unsigned found = 0;

	for (size_t i = 0; i < json_doc_count(r, ""); i++) {
		const char *name = json_doc_string(json_doc_at(r, "", i), "");
		size_t n = name ? strlen(name) : 0;

		if (n <= strlen(ENDING) || strcmp(name + n - strlen(ENDING), ENDING) != 0)
			continue;
		snprintf(out, size, "%s", name);
		found++;
	}
	return found == 1;
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	char name[WORKER_MODEL];
	struct json_doc *r;
	int rc;

	if (c->worker->model)
		return reload(c, c->worker->model, message, size);
	rc = worker_ask_json(c, "GET", "/api/admin/list_options", NULL, &r, message, size);
	if (rc)
		return rc;
	if (!only_option(r, name, sizeof(name))) {
		snprintf(message, size,
			 "which configuration to load is not known: set model to one of "
			 "--admindir");
		rc = -GW_E_NOSUPPORT;
	}
	json_doc_free(r);
	return rc ? rc : reload(c, name, message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/api/extra/perf", NULL, message, size);
}

const struct worker_ops worker_kobold = {
	.drain = drain, .evict = evict, .resume = resume, .alive = alive
};
