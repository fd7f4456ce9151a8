/* llama.cpp's server as a router of several models.  Unloading goes on after the answer.  A server of a
 * single model has no unload: its unit (level 4) or a checkpoint (level 3) does it. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"

#include <stdio.h>
#include <string.h>

static bool is_there(const char *status)
{
	static const char *const there[] = { "loaded", "loading", "sleeping" };

	for (size_t i = 0; i < sizeof(there) / sizeof(*there); i++)
		if (strcmp(status, there[i]) == 0)
			return true;
	return false;
}

/* Calls each for every model that is there, and remembers it; stops where that fails. */
static int for_each(struct worker_call *c,
		    int (*each)(struct worker_call *c, const char *model, void *ctx,
				char *message, size_t size),
		    void *ctx, char *message, size_t size)
{
	struct json_doc *r;
	int rc = worker_ask_json(c, "GET", "/models", NULL, &r, message, size);

	if (rc)
		return rc;
	worker_note_asked(c);
	for (size_t i = 0; i < json_doc_count(r, "data") && !rc; i++) {
		const struct json_doc *m = json_doc_at(r, "data", i);
		const char *id = json_doc_string(m, "id");
		const char *status = json_doc_string(m, "status.value");

		if (!status) {
			snprintf(message, size,
				 "it serves a single model and cannot unload it; use its unit "
				 "(max_level 4) or kind \"checkpoint\"");
			rc = -GW_E_NOSUPPORT;
		} else if (id && is_there(status)) {
			worker_note(c, "model", id);
			rc = each(c, id, ctx, message, size);
		}
	}
	json_doc_free(r);
	return rc;
}

/* 503: no slot is free.  Else the slots say each whether they work; a server that does not show them
 * answers 501, and nobody knows. */
static int look_at_slots(struct worker_call *c, const char *model, void *ctx, char *message,
			 size_t size)
{
	char path[WORKER_MODEL * 3 + 64];
	struct json_doc *r;
	bool *busy = ctx;
	struct buf b;
	int rc;

	buf_init_fixed(&b, path, sizeof(path));
	buf_adds(&b, "/slots?fail_on_no_slot=1&autoload=false&model=");
	worker_http_escape(&b, model);
	rc = worker_ask_json(c, "GET", path, NULL, &r, message, size);
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

static int drain(struct worker_call *c, bool *ret_busy, char *message, size_t size)
{
	*ret_busy = false;
	return for_each(c, look_at_slots, ret_busy, message, size);
}

static int only_note(struct worker_call *c, const char *model, void *ctx, char *message,
		     size_t size)
{
	(void)c;
	(void)model;
	(void)ctx;
	(void)message;
	(void)size;
	return 0;
}

static int learn(struct worker_call *c, char *message, size_t size)
{
	return for_each(c, only_note, NULL, message, size);
}

static int unload(struct worker_call *c, const char *model, void *ctx, char *message,
		  size_t size)
{
	int rc = worker_post(c, "/models/unload", "model", model, message, size);

	if (rc && worker_unknown_model(c)) /* it was not running any more */
		rc = 0;
	*(unsigned *)ctx += rc == 0;
	return rc;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	unsigned n = 0;
	int rc = for_each(c, unload, &n, message, size);

	if (!rc)
		snprintf(message, size, "%u models told to unload", n);
	return rc;
}

static int load(struct worker_call *c, const char *model, char *message, size_t size)
{
	return worker_post(c, "/models/load", "model", model, message, size);
}

static int resume(struct worker_call *c, char *message, size_t size)
{
	if (c->worker->resume == RESUME_LAZY)
		return 0;
	return worker_load_noted(c, load, message, size);
}

static int alive(struct worker_call *c, char *message, size_t size)
{
	return worker_ask(c, "GET", "/health", NULL, message, size);
}

const struct worker_ops worker_llamacpp = {
	.drain = drain, .learn = learn, .evict = evict, .resume = resume, .alive = alive
};
