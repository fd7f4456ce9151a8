/* The page, /docs and /metrics. */
#include "api_parts.h"
#include "asset.h"
#include "metrics.h"

#include <string.h>

static const struct asset *find_asset(const char *path)
{
	for (unsigned i = 0; i < asset_count; i++)
		if (strcmp(assets[i].path, path) == 0)
			return &assets[i];
	return NULL;
}

/* Large files only exist compressed. */
static bool is_acceptable(const struct asset *f, const struct request *q)
{
	const char *encodings = request_header(q, "Accept-Encoding");

	return f->data || (encodings && strstr(encodings, "gzip"));
}

static void reply_asset(const struct request *q, struct reply *r, const char *path)
{
	const struct asset *f = find_asset(path);

	if (f && !is_acceptable(f, q))
		reply_problem(r, 406, "compressed-only", "Send Accept-Encoding: gzip.",
			      "%s is only available compressed", path);
	else if (f)
		reply_static(r, f->type, f->data, (size_t)(f->end - f->data), f->gz,
			     f->gz ? (size_t)(f->gz_end - f->gz) : 0);
	else if (asset_count == 0)
		reply_problem(r, 404, "no-page",
			      "The API is below /api/v1, described by /openapi.json.",
			      "this program was built without the page");
	else
		reply_problem(r, 404, "not-found", NULL, "no such file: %.128s", path);
}

void api_page_index(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, "/");
}

void api_page_asset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, q->path);
}

void api_docs_index(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, "/docs");
}

void api_docs_asset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, q->path);
}

void api_metrics(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	enum metrics_form form = metrics_negotiate(request_header(q, "Accept"));

	r->type = metrics_type(form);
	metrics_render(&r->body, a, form);
}
