/* Sends cached replies, replies that go into the cache, and replies for one request. */
#include "http_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void send_count_status(struct http *h, unsigned status)
{
	h->counts.requests[status >= 100 && status < 600 ? status / 100 : 5]++;
}

void send_count(struct conn *c, int status, size_t bytes)
{
	c->replied = true;
	send_count_status(c->http, (unsigned)status);
	c->http->counts.bytes_sent += bytes;
}

void send_log(struct http *h, const struct request *q, int status, const char *type,
	      size_t bytes, double seconds)
{
	struct reply r = { .status = status, .type = type };

	r.body.len = bytes;
	/* Rounded to microseconds, which is the precision. */
	h->hook.log(h->hook.arg, q, &r, (double)(uint64_t)(seconds * 1e6 + 0.5) / 1e6);
}

/* ---- answering */

static enum MHD_Result queue(struct conn *c, int status, struct MHD_Response *m)
{
	return MHD_queue_response(c->mhd, (unsigned)status, m);
}

/* Returns the shared reply object of the entry; makes it at the first use. */
static struct MHD_Response *ready_response(struct http *h, struct entry *e, bool gzip,
					   bool same)
{
	struct MHD_Response **m = same ? &e->same[gzip] : &e->ready[gzip];

	if (!*m)
		*m = entry_response(e, gzip, same, NULL, NULL,
				    h->settings.origins && h->settings.origins[0]);
	return *m;
}

enum MHD_Result send_cached(struct conn *c, struct entry *e, const char *url)
{
	const struct heads *heads = &c->heads;
	struct http *h = c->http;
	bool gzip = entry_wants_gzip(e, heads->encoding);
	bool same = heads->match && entry_is_same(e, gzip, heads->match);
	int status = same ? 304 : e->status;
	size_t bytes = same ? 0 : gzip ? e->gzip->size : e->plain->size;
	struct MHD_Response *m = ready_response(h, e, gzip, same);

	if (!m)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	send_count(c, status, bytes);
	if (h->hook.log) {
		struct request q = {
			.method = HTTP_GET, .path = url, .body = "", .who = "anyone", .id = ""
		};

		send_log(h, &q, status, e->type, bytes, 0);
	}
	return queue(c, status, m);
}

/* True if the entry may still be sent. Entries also expire after CACHE_NS, because answers
 * contain ages and a driver call that hangs delays the next tick. */
static bool is_current(const struct http *h, const struct entry *e)
{
	return (e->flags & ROUTE_STATIC) ||
	       (e->tick == h->tick && h->now_ns - e->made_ns < CACHE_NS);
}

struct entry *cache_find(struct http *h, int route, const char *accept)
{
	for (struct entry *e = h->cache[route]; e; e = e->next) {
		if (!is_current(h, e))
			continue;
		if (!e->accept || strcmp(e->accept, accept ? accept : "") == 0)
			return e;
	}
	return NULL;
}

void cache_drop(struct http *h, int route, bool all)
{
	struct entry **link = &h->cache[route];

	while (*link) {
		struct entry *e = *link;

		if (all || !is_current(h, e)) {
			*link = e->next;
			entry_free(e);
		} else {
			link = &e->next;
		}
	}
}

/* Adds the entry to the cache if its route allows it. */
static bool cache_keep(struct http *h, const struct call *k, struct entry *e)
{
	const char *accept = k->conn->heads.accept ? k->conn->heads.accept : "";
	unsigned count = 0;

	if (k->route < 0 || !(e->flags & (ROUTE_TICK | ROUTE_STATIC)) || e->status != 200 ||
	    k->q.method != HTTP_GET || k->params > 0 || strchr(h->route[k->route].path, '{') ||
	    strchr(h->route[k->route].path, '*'))
		return false;
	cache_drop(h, k->route, false);
	for (struct entry *o = h->cache[k->route]; o; o = o->next)
		count++;
	if (e->flags & ROUTE_TEXT) {
		if (count >= 8 || strlen(accept) > 512 || !(e->accept = strdup(accept)))
			return false;
	} else if (count > 0) {
		return false;
	}
	e->tick = h->tick;
	e->made_ns = h->now_ns;
	e->next = h->cache[k->route];
	h->cache[k->route] = e;
	return true;
}

enum MHD_Result send_entry(struct conn *c, struct entry *e)
{
	struct http *h = c->http;
	struct call *k = c->call;
	bool gzip = entry_wants_gzip(e, c->heads.encoding);
	bool same = k->q.method == HTTP_GET && entry_is_same(e, gzip, c->heads.match);
	bool cors = c->heads.origin && admit_listed(h->settings.origins, c->heads.origin);
	int status = same ? 304 : e->status;
	size_t bytes = same ? 0 : gzip ? e->gzip->size : e->plain->size;
	struct MHD_Response *m =
		entry_response(e, gzip, same, k->id, cors ? c->heads.origin : NULL,
			       h->settings.origins && h->settings.origins[0]);
	enum MHD_Result r;

	if (!m)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	send_count(c, status, bytes);
	if (h->hook.log)
		send_log(h, &k->q, status, e->type, bytes,
			 (double)(clock_mono_ns(clock_real()) - k->start_ns) * 1e-9);
	r = queue(c, status, m);
	MHD_destroy_response(m);
	return r;
}

enum MHD_Result send_reply(struct conn *c, struct reply *r)
{
	struct http *h = c->http;
	struct call *k = c->call;
	unsigned flags = k->route >= 0 ? h->route[k->route].flags : 0;
	enum MHD_Result result = MHD_NO;
	struct entry *e;

	if (r->body.err)
		reply_problem(r, 500, "no-memory", NULL,
			      "The answer is too large for the available memory.");
	if (r->status == 200 && !check_accepts(c->heads.accept, r->type))
		reply_problem(r, 406, "not-acceptable", "Omit Accept, or include that type.",
			      "The answer is %s, which Accept excludes.", r->type);
	if (r->status >= 400)
		((struct reply_impl *)r->impl)->is_static = false;
	e = entry_new(r, flags);
	reply_done(r);
	if (!e)
		return MHD_NO;
	bool kept = cache_keep(h, k, e);

	result = send_entry(c, e);
	if (!kept)
		entry_free(e);
	return result;
}

__attribute__((format(printf, 5, 6))) enum MHD_Result send_refusal(struct conn *c, int status,
								   const char *word,
								   const char *remedy,
								   const char *detail, ...)
{
	struct reply_impl impl;
	struct reply r;
	char text[1024];
	va_list ap;

	va_start(ap, detail);
	vsnprintf(text, sizeof(text), detail, ap);
	va_end(ap);
	reply_init(&r, &impl);
	if (c->closing)
		reply_header(&r, "Connection", "close");
	if (status == 401)
		reply_header(&r, "WWW-Authenticate", "Bearer realm=\"gpuward\"");
	reply_problem(&r, status, word, remedy, "%s", text);
	return send_reply(c, &r);
}
