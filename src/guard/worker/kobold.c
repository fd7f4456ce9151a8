/* Adapter for KoboldCpp, written from the source of version 1.122 (November 2026).
 *
 * KoboldCpp answers a request to load or to unload (reload_config) at once; then its manager
 * process ends the server process, which holds the models, and starts another server process.
 * Until the new server process has loaded, the port is closed or, with --routermode, answers
 * 502. The queries in this file are GET requests: they neither wake an unloaded model of
 * --routermode nor count as use for --adminunloadtimeout. */
#include "guard/worker/common.h"

#include "base/json.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* File names with a special meaning in reload_config: no model, and the configuration with
 * which KoboldCpp was started. */
#define KOBOLD_UNLOAD  "unload_model"
#define KOBOLD_INITIAL "initial_model"
#define KOBOLD_PREFIX  "koboldcpp/" /* every model's name begins with this */

enum kobold_admin { KOBOLD_NO_ADMIN, KOBOLD_ADMIN, KOBOLD_PASSWORD };

/* Converts a failure into "try again" if the server process is only being replaced: the router
 * answers 502, or nothing listens although the worker's process lives. */
static int kobold_result(const struct worker_call *c, int rc)
{
	const int status = worker_http_status(c->http);

	if (rc == -GW_E_IO && (status == 502 || (status == 0 && c->order->roots)))
		return -GW_E_STATE;
	return rc;
}

static int kobold_get(struct worker_call *c, const char *path, struct json_doc **ret)
{
	return kobold_result(c, worker_get_json(c, path, ret));
}

/* Sets *ret_loaded to whether a model of any type is loaded. With --autoswapmode, *ret_loaded
 * is true even if the models of the configuration are not loaded. */
static int kobold_ask(struct worker_call *c, bool *ret_loaded, enum kobold_admin *ret_admin)
{
	static const char *const types[] = { "llm", "txt2img",    "transcribe",
					     "tts", "embeddings", "music" };
	struct json_doc *r;
	int rc = kobold_get(c, "/api/extra/version", &r);

	if (rc)
		return rc;
	*ret_loaded = false;
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		*ret_loaded = *ret_loaded || json_doc_true(r, types[i]);
	*ret_admin = (enum kobold_admin)json_doc_number(r, "admin");
	json_doc_free(r);
	return 0;
}

/* Writes the name of the text model; "" if there is none or if its name is hidden. */
static int kobold_model(struct worker_call *c, char *out, size_t size)
{
	return kobold_result(c, model_list_first(c, out, size));
}

/* Explains why KoboldCpp does not list its configurations. The list is empty for a client that
 * may not load a configuration. */
static int kobold_refusal(struct worker_call *c)
{
	enum kobold_admin admin;
	bool loaded;
	int rc = kobold_ask(c, &loaded, &admin);

	if (rc)
		return rc;
	if (admin == KOBOLD_NO_ADMIN)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "KoboldCpp at %.100s has no admin mode: start it with "
				   "--admin --admindir DIR",
				   worker_http_base(c->http));
	if (admin == KOBOLD_ADMIN)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "KoboldCpp at %.100s does not find its --admindir: start it "
				   "with a folder that exists",
				   worker_http_base(c->http));
	return worker_fail(c, -GW_E_PERM,
			   "KoboldCpp at %.100s %s: write the password of --adminpassword to "
			   "a file, and set token_file to its path",
			   worker_http_base(c->http),
			   c->worker->token_file ? "refuses the password in token_file"
						 : "needs its admin password");
}

/* Reads the configurations that KoboldCpp can load. Fails if the guard may not load them. */
static int kobold_options(struct worker_call *c, struct json_doc **ret)
{
	int rc = kobold_get(c, "/api/admin/list_options", ret);

	if (rc || json_doc_count(*ret, "") > 0)
		return rc;
	json_doc_free(*ret);
	return kobold_refusal(c);
}

static int kobold_check_admin(struct worker_call *c)
{
	struct json_doc *r;
	int rc = kobold_options(c, &r);

	if (!rc)
		json_doc_free(r);
	return rc;
}

static int kobold_reload(struct worker_call *c, const char *filename)
{
	struct json_doc *r;
	const char *text;
	size_t n;
	bool ok;
	int rc = worker_post_field(c, "/api/admin/reload_config", "filename", filename);

	if (rc)
		return kobold_result(c, rc);
	text = worker_http_body(c->http, &n);
	rc = json_doc_new(text, n, &r, c->message, c->message_size);
	if (rc)
		return rc == -GW_E_PARSE ? -GW_E_IO : rc;
	ok = json_doc_true(r, "success"); /* a refusal has the status 200 too */
	json_doc_free(r);
	return ok ? 0
		  : worker_fail(c, -GW_E_NOSUPPORT,
				"KoboldCpp refuses to load %.80s: set model to a file that "
				"GET %.100s/api/admin/list_options lists",
				filename, worker_http_base(c->http));
}

/* Checks whether the guard may unload, so that a refusal is reported before any request
 * ends. */
static int kobold_drain(struct worker_call *c, bool *ret_busy)
{
	struct json_doc *r;
	int rc = kobold_check_admin(c);

	*ret_busy = false;
	if (!rc)
		rc = kobold_get(c, "/api/extra/perf", &r);
	if (rc)
		return rc;
	*ret_busy = (json_doc_get(r, "idle") && !(json_doc_number(r, "idle") > 0)) ||
		    json_doc_number(r, "queue") > 0;
	json_doc_free(r);
	return 0;
}

/* Notes whether a model is loaded, and its name. A name can be missing (models for images). */
static int kobold_learn(struct worker_call *c)
{
	char model[WORKER_MODEL];
	enum kobold_admin admin;
	bool loaded = false;
	int rc = kobold_check_admin(c);

	if (!rc)
		rc = kobold_ask(c, &loaded, &admin);
	if (!rc && loaded)
		rc = kobold_model(c, model, sizeof(model));
	if (rc)
		return rc;
	worker_note_asked(c);
	if (!loaded)
		return 0;
	worker_note(c, "loaded", "1");
	if (model[0]) {
		worker_forget(c, "model");
		worker_note(c, "model", model);
	}
	return 0;
}

/* Aborts the running request first. Then its client gets the beginning of the answer and not a
 * broken connection. */
static int kobold_evict(struct worker_call *c)
{
	enum kobold_admin admin;
	bool loaded;
	int rc = kobold_ask(c, &loaded, &admin);

	if (rc)
		return rc;
	if (!loaded)
		return worker_ok(c, "no model is loaded");
	/* the result does not matter: the request fails if no request of a client runs */
	worker_post(c, "/api/extra/abort", "{}");
	c->message[0] = '\0';
	return kobold_reload(c, KOBOLD_UNLOAD);
}

/* True if this option is the file of the model. The names are compared without folder, suffix
 * and the characters that KoboldCpp removes from the name of a model. */
static bool kobold_is_for(const char *option, size_t suffix_len, const char *model)
{
	const char *base = strrchr(option, '/'), *end = option + strlen(option) - suffix_len;

	base = base ? base + 1 : option;
	if (strncmp(model, KOBOLD_PREFIX, strlen(KOBOLD_PREFIX)) == 0)
		model += strlen(KOBOLD_PREFIX);
	for (; base < end; base++) {
		const unsigned char ch = (unsigned char)*base;

		if (ch < 0x80 && !isalnum(ch) && !strchr("._-", ch))
			continue;
		if (*model++ != *base)
			return false;
	}
	return !*model;
}

/* Writes the last option with this suffix; if model is not NULL, the last such option that is a
 * file for this model. Returns the number of such options. */
static unsigned kobold_find(const struct json_doc *r, const char *suffix, const char *model,
			    char *out, size_t size)
{
	const size_t len = strlen(suffix);
	unsigned found = 0;

	for (size_t i = 0; i < json_doc_count(r, ""); i++) {
		const char *name = json_doc_string(json_doc_at(r, "", i), "");
		const size_t n = name ? strlen(name) : 0;

		if (n <= len || n >= size || strcmp(name + n - len, suffix) != 0 ||
		    (model && !kobold_is_for(name, len, model)))
			continue;
		snprintf(out, size, "%s", name);
		found++;
	}
	return found;
}

/* Writes the file for this model, if there is only one: a configuration, else a template, else
 * the model itself. */
static bool kobold_file_for(const struct json_doc *r, const char *model, char *out, size_t size)
{
	return kobold_find(r, ".kcpps", model, out, size) == 1 ||
	       kobold_find(r, ".kcppt", model, out, size) == 1 ||
	       kobold_find(r, ".gguf", model, out, size) == 1;
}

/* Writes the configuration, if there is only one; if there is none, the only template. */
static bool kobold_only_file(const struct json_doc *r, char *out, size_t size)
{
	unsigned n = kobold_find(r, ".kcpps", NULL, out, size);

	return n ? n == 1 : kobold_find(r, ".kcppt", NULL, out, size) == 1;
}

static bool kobold_has(const struct json_doc *r, const char *option)
{
	for (size_t i = 0; i < json_doc_count(r, ""); i++) {
		const char *name = json_doc_string(json_doc_at(r, "", i), "");

		if (name && strcmp(name, option) == 0)
			return true;
	}
	return false;
}

/* Loads a configuration and waits until a model is loaded. If model is not "", waits for the
 * model with this name. Returns 0 also if KoboldCpp still loads at the deadline. */
static int kobold_load(struct worker_call *c, const char *filename, const char *model)
{
	char now[WORKER_MODEL];
	enum kobold_admin admin;
	bool loaded = false;
	int rc = kobold_reload(c, filename);

	if (rc)
		return rc;
	do {
		loaded = kobold_ask(c, &loaded, &admin) == 0 && loaded &&
			 (!model[0] ||
			  (kobold_model(c, now, sizeof(now)) == 0 && strcmp(now, model) == 0));
	} while (!loaded && worker_pause(c));
	c->listed = loaded;
	c->message[0] = '\0';
	return 0;
}

/* If the start configuration has loaded another model than the noted one, loads the noted
 * model. The two models differ if someone changed the model after the start. */
static int kobold_correct(struct worker_call *c, const struct json_doc *options,
			  const char *model)
{
	char now[WORKER_MODEL], file[WORKER_MODEL];

	if (!c->listed || !model[0] || kobold_model(c, now, sizeof(now)) != 0 || !now[0] ||
	    strcmp(now, model) == 0)
		return 0;
	if (kobold_file_for(options, model, file, sizeof(file)))
		return kobold_load(c, file, model);
	return worker_ok(
		c,
		"%.80s is loaded, not %.80s: set the key model to the file that must be loaded",
		now, model);
}

/* KoboldCpp reports the loaded model, but not its configuration. Therefore the guard loads the
 * configuration with which KoboldCpp was started. If an older version (1.102) refuses that
 * configuration or does not list it, the guard loads another file: the only configuration
 * (.kcpps), the only template (.kcppt), or the file for the model. */
static int kobold_load_noted(struct worker_call *c, const struct json_doc *options,
			     const char *model)
{
	char file[WORKER_MODEL];

	if (kobold_has(options, KOBOLD_INITIAL)) {
		int rc = kobold_load(c, KOBOLD_INITIAL, "");

		if (rc != -GW_E_NOSUPPORT)
			return rc ? rc : kobold_correct(c, options, model);
	}
	if (kobold_only_file(options, file, sizeof(file)) ||
	    (model[0] && kobold_file_for(options, model, file, sizeof(file))))
		return kobold_load(c, file, "");
	return worker_fail(c, -GW_E_NOSUPPORT,
			   "the configuration to load is unknown: set model to a file of "
			   "--admindir");
}

static int kobold_resume(struct worker_call *c)
{
	char model[WORKER_MODEL] = "";
	enum kobold_admin admin;
	struct json_doc *options;
	bool loaded;
	int rc;

	rc = kobold_ask(c, &loaded, &admin);
	if (rc)
		return rc;
	c->listed = loaded;
	if (loaded)
		return worker_ok(c, "a model is already loaded");
	if (worker_is_noted(c, "asked", "1") && !worker_is_noted(c, "loaded", "1"))
		return worker_ok(c, "no model was loaded when it was evicted");
	rc = kobold_options(c, &options);
	if (rc)
		return rc;
	worker_noted(c, "model", 0, model, sizeof(model));
	rc = c->worker->model ? kobold_load(c, c->worker->model, "")
			      : kobold_load_noted(c, options, model);
	json_doc_free(options);
	return rc;
}

const struct worker_ops worker_kobold = { .drain = kobold_drain,
					  .learn = kobold_learn,
					  .evict = kobold_evict,
					  .resume = kobold_resume,
					  .alive_path = "/api/extra/version" };
