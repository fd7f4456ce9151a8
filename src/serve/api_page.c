/* The page, /docs and /metrics: what others made, handed out. */
#include "api_parts.h"
#include "asset.h"
#include "metrics.h"

#include <string.h>

static const struct asset *find(const char *path)
{
	for (unsigned i = 0; i < asset_count; i++)
		if (strcmp(assets[i].path, path) == 0)
			return &assets[i];
	return NULL;
}

/* Big files are there compressed alone. */
static bool readable(const struct asset *f, const struct request *q)
{
	const char *encodings = request_header(q, "Accept-Encoding");

	return f->data || (encodings && strstr(encodings, "gzip"));
}

static void hand_out(const struct request *q, struct reply *r, const char *path)
{
	const struct asset *f = find(path);

	if (f && !readable(f, q))
		reply_problem(r, 406, "compressed-only", "Send Accept-Encoding: gzip.",
			      "%s is only there compressed", path);
	else if (f)
		reply_static(r, f->type, f->data, (size_t)(f->end - f->data), f->gz,
			     f->gz ? (size_t)(f->gz_end - f->gz) : 0);
	else if (asset_count == 0)
		reply_problem(r, 404, "no-page",
			      "The answers are below /api/v1, described by "
			      "/openapi.json.",
			      "this program was built without the page");
	else
		reply_problem(r, 404, "not-found", NULL, "there is no file %.128s", path);
}

void api_page_index(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	hand_out(q, r, "/");
}

void api_page_asset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	hand_out(q, r, q->path);
}

void api_docs_index(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	hand_out(q, r, "/docs");
}

void api_docs_asset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	hand_out(q, r, q->path);
}

void api_metrics(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	enum metrics_form form = metrics_negotiate(request_header(q, "Accept"));

	r->type = metrics_type(form);
	metrics_render(&r->body, a, form);
}
