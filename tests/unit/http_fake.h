/* http_fake: calls the handlers of the real table as the HTTP layer does. */
#ifndef TESTS_HTTP_FAKE_H
#define TESTS_HTTP_FAKE_H

#include "jsonpath.h"

#include "base/json.h"
#include "serve/api.h"
#include "serve/metrics.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FAKE_PAIRS 16

struct fake_pairs {
	char name[FAKE_PAIRS][64], value[FAKE_PAIRS][256];
	unsigned count;
};

static struct {
	struct fake_pairs param, head,
		out; /* query parameters, request headers, reply headers */
	uint64_t again_ns, after;
	unsigned topics;
	struct stream *stream;
	bool trusted;
	const char *who; /* NULL: "test" */
	/* uid of a client on a UNIX socket without a token; 0: any other client */
	int64_t uid;
	unsigned flags; /* flags of the route */
	unsigned tries;
} fake;

static inline const char *fake_find(const struct fake_pairs *p, const char *name)
{
	for (unsigned i = 0; i < p->count; i++)
		if (strcasecmp(p->name[i], name) == 0)
			return p->value[i];
	return NULL;
}

static inline void fake_add(struct fake_pairs *p, const char *name, const char *value)
{
	snprintf(p->name[p->count], sizeof(p->name[0]), "%s", name);
	snprintf(p->value[p->count++], sizeof(p->value[0]), "%s", value);
}

const char *request_param(const struct request *q, const char *name)
{
	(void)q;
	return fake_find(&fake.param, name);
}

const char *request_header(const struct request *q, const char *name)
{
	(void)q;
	return fake_find(&fake.head, name);
}

const char *request_param_name(const struct request *q, unsigned i)
{
	(void)q;
	return i < fake.param.count ? fake.param.name[i] : NULL;
}

void reply_header(struct reply *r, const char *name, const char *value)
{
	(void)r;
	fake_add(&fake.out, name, value);
}

void reply_problem(struct reply *r, int status, const char *word, const char *remedy,
		   const char *detail, ...)
{
	char text[1024];
	struct json j;
	va_list ap;

	va_start(ap, detail);
	vsnprintf(text, sizeof(text), detail, ap);
	va_end(ap);
	r->status = status;
	r->type = "application/problem+json";
	buf_clear(&r->body);
	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_string(&j, "word", word);
	json_int(&j, "status", status);
	json_string(&j, "detail", text);
	json_string(&j, "remedy", remedy);
	json_object_end(&j);
	json_end(&j);
}

void reply_static(struct reply *r, const char *type, const void *p, size_t n, const void *gz,
		  size_t gz_n)
{
	(void)gz;
	(void)gz_n;
	r->type = type;
	if (p)
		buf_add(&r->body, p, n);
}

void reply_again(struct reply *r, uint64_t at_ns)
{
	(void)r;
	fake.again_ns = at_ns;
}

void reply_stream(struct reply *r, struct stream *s, uint64_t after, unsigned topics)
{
	r->type = "text/event-stream";
	fake.stream = s;
	fake.after = after;
	fake.topics = topics;
}

void http_counts(const struct http *h, struct http_counts *ret)
{
	(void)h;
	memset(ret, 0, sizeof(*ret));
}

static char fake_args[HTTP_ARGS][128];

static inline bool fake_match(const char *pattern, const char *path, const char **arg)
{
	unsigned n = 0;

	while (*pattern) {
		if (*pattern == '*')
			return true;
		if (*pattern == '{') {
			size_t len = strcspn(path, "/");

			if (!len)
				return false;
			snprintf(fake_args[n], sizeof(fake_args[0]), "%.*s", (int)len, path);
			arg[n] = fake_args[n];
			n++;
			path += len;
			pattern += strcspn(pattern, "/");
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return !*path;
}

static inline const struct route *fake_route(enum http_method method, const char *path,
					     const char **arg)
{
	for (unsigned pass = 0; pass < 2; pass++) /* first exact paths, then patterns */
		for (unsigned i = 0; i < api_route_count; i++) {
			const struct route *t = &api_routes[i];

			if (t->method == method &&
			    (strpbrk(t->path, "{*") != NULL) == (pass == 1) &&
			    fake_match(t->path, path, arg))
				return t;
		}
	return NULL;
}

static inline void fake_query(const char *text)
{
	char copy[512], *word, *rest = copy;

	fake.param.count = 0;
	snprintf(copy, sizeof(copy), "%s", text);
	while (*copy && (word = strsep(&rest, "&"))) {
		char *equals = strchr(word, '=');

		if (equals)
			*equals++ = '\0';
		fake_add(&fake.param, word, equals ? equals : "");
	}
}

/* Sends a request with the headers in fake.head, then clears them. If the handler asks to be
 * called again, it is called after pass(). The caller frees r's body with buf_done(). */
static inline void fake_ask(struct api *a, enum http_method method, const char *target,
			    const char *body, void (*pass)(uint64_t until_ns), struct reply *r)
{
	struct request q = {
		.method = method, .body = body, .size = strlen(body), .peer_pid = -1
	};
	void *memory = NULL;
	char path[256];
	const struct route *route;

	snprintf(path, sizeof(path), "%.*s", (int)strcspn(target, "?"), target);
	fake_query(strchr(target, '?') ? strchr(target, '?') + 1 : "");
	q.path = path;
	q.trusted = fake.trusted;
	q.who = fake.who ? fake.who : "test";
	q.uid = fake.uid ? fake.uid : -1;
	q.id = "1";
	q.memory = &memory;
	fake.out.count = 0;
	*r = (struct reply){ .status = 200, .type = "application/json" };
	buf_init(&r->body, 8 << 20);
	route = fake_route(method, path, q.arg);
	if (!route) {
		r->status = 404;
		return;
	}
	fake.flags = route->flags;
	for (q.tries = 0;; q.tries++) {
		fake.again_ns = 0;
		route->answer(a, &q, r);
		if (!fake.again_ns)
			break;
		pass(fake.again_ns);
	}
	fake.tries = q.tries;
	free(memory);
	fake.head.count = 0;
}

#endif
