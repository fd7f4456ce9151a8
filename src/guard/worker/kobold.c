/* KoboldCpp: it unloads by restarting itself with the configuration "unload_model", so its port
 * is closed for a while.  It needs --admin --admindir DIR.  It answers 200 even where it
 * refuses. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

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
				"--admindir DIR, and see token_file",
				filename);
}

static int kobold_drain(struct worker_call *c, bool *ret_busy)
{
	struct json_doc *r;
	int rc = worker_get_json(c, "/api/extra/perf", &r);

	*ret_busy = false;
	if (rc)
		return rc;
	*ret_busy = json_doc_get(r, "idle") && !(json_doc_number(r, "idle") > 0);
	json_doc_free(r);
	return 0;
}

static int kobold_evict(struct worker_call *c)
{
	worker_post(c, "/api/extra/abort", "{}"); /* fails if nothing runs, which is fine */
	c->message[0] = '\0';
	return kobold_reload(c, "unload_model");
}

/* The only configuration of --admindir; false: there is none, or several. */
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
				   "it is not known which configuration to load: set model to "
				   "a file of --admindir");
}

const struct worker_ops worker_kobold = { .drain = kobold_drain,
					  .evict = kobold_evict,
					  .resume = kobold_resume,
					  .alive_path = "/api/extra/perf" };
