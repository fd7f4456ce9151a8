/* The way of a request: looked up, checked, told to a handler, answered.
 *
 * What is the same for everybody and in the cache is answered at once, and nothing is allocated
 * for it here.  All else gets a struct call. */
#include "http_impl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define DISCARD_MAX (1024 * 1024) /* of a body that is too large */

/* ---- requests */

static void call_free(struct call *k)
{
	if (!k)
		return;
	loop_remove(k->timer);
	for (unsigned i = 0; i < k->params; i++)
		free(k->param[i].name);
	buf_done(&k->body);
	free(k->memory);
	free(k->path);
	free(k);
}

void call_completed(void *arg, struct MHD_Connection *mhd, void **request,
		    enum MHD_RequestTerminationCode code)
{
	struct http *h = arg;
	struct conn *c = *request;

	(void)mhd;
	(void)code;
	if (!c)
		return;
	if (c->state == CONN_STREAM) {
		follower_stop(&c->follower);
		h->counts.streams--;
	}
	if (!c->replied)
		h->counts.requests[0]++;
	call_free(c->call);
	c->call = NULL;
	c->replied = false;
	c->suspended = false;
	conn_set_state(c, CONN_IDLE);
	*request = NULL;
}

const char *request_param(const struct request *q, const char *name)
{
	const struct call *k =
		q->impl; /* NULL: it was answered out of the cache, without any */

	for (unsigned i = 0; k && i < k->params; i++)
		if (strcmp(k->param[i].name, name) == 0)
			return k->param[i].value;
	return NULL;
}

const char *request_header(const struct request *q, const char *name)
{
	const struct call *k = q->impl;

	return k ? MHD_lookup_connection_value(k->conn->mhd, MHD_HEADER_KIND, name) : NULL;
}

/* The headers that are looked at. */
static const struct {
	const char *name;
	unsigned char n;
	size_t value, count; /* where in struct heads; count 0: not counted */
} wanted[] = {
#define W(name, value)                                                   \
	{                                                                \
		name, sizeof(name) - 1, offsetof(struct heads, value), 0 \
	}
#define C(name, value, count)                                          \
	{                                                              \
		name, sizeof(name) - 1, offsetof(struct heads, value), \
			offsetof(struct heads, count)                  \
	}
	C("Host", host, hosts),
	W("Accept", accept),
	W("Accept-Encoding", encoding),
	W("If-None-Match", match),
	C("Content-Length", length, lengths),
	C("Transfer-Encoding", transfer, transfers),
	C("Authorization", authorization, authorizations),
	W("Origin", origin),
	W("X-Request-Id", id),
	W("Content-Type", type),
	W("Access-Control-Request-Method", method),
#undef W
#undef C
};

static enum MHD_Result gather(void *arg, enum MHD_ValueKind kind, const char *key,
			      size_t key_size, const char *value, size_t size)
{
	struct heads *heads = arg;

	if (kind == MHD_GET_ARGUMENT_KIND) {
		heads->params++;
		heads->bad |= strlen(key) != key_size || (value && strlen(value) != size);
		return MHD_YES;
	}
	heads->bad |= key_size == 0;
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (wanted[i].n != key_size || strncasecmp(wanted[i].name, key, key_size) != 0)
			continue;
		*(const char **)(void *)((char *)heads + wanted[i].value) = value ? value : "";
		if (wanted[i].count)
			++*(unsigned *)(void *)((char *)heads + wanted[i].count);
		heads->bad |= value && strlen(value) != size;
		break;
	}
	return MHD_YES;
}

static void count_reply(struct conn *c, int status, size_t bytes)
{
	struct http *h = c->http;

	c->replied = true;
	h->counts.requests[status >= 100 && status < 600 ? status / 100 : 5]++;
	h->counts.bytes_sent += bytes;
}

static void log_reply(struct http *h, const struct request *q, int status, const char *type,
		      size_t bytes, double seconds)
{
	struct reply r = { .status = status, .type = type };

	r.body.len = bytes;
	h->log(h->arg, q, &r, seconds);
}

/* ---- Host and Origin */

static bool is_listed(char *const *list, const char *text)
{
	for (; list && *list; list++)
		if (strcasecmp(*list, text) == 0)
			return true;
	return false;
}

static bool is_literal(const char *host)
{
	struct in6_addr six;
	struct in_addr four;

	return inet_pton(AF_INET, host, &four) == 1 || inet_pton(AF_INET6, host, &six) == 1;
}

/* A page of somebody else whose name was made to point at us (DNS rebinding) carries its own
 * name here.  A literal address cannot be made to point elsewhere. */
static bool host_is_ours(const struct http *h, const struct listener *from, const char *text)
{
	char host[CHECK_HOST_SIZE];
	unsigned port;

	if (strcmp(text, from->host_port) == 0)
		return true;
	if (!check_host(text, host, &port))
		return false;
	if (strcmp(host, "localhost") == 0 || is_listed(h->hosts, host))
		return true;
	if (!is_literal(host))
		return false;
	if (from->wildcard || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0)
		return true;
	for (unsigned i = 0; i < h->listeners; i++)
		if (strcmp(host, h->listener[i].host) == 0)
			return true;
	return false;
}

static bool origin_is_own(const struct heads *heads)
{
	const char *host = heads->origin ? strstr(heads->origin, "://") : NULL;

	return host && heads->host && strcasecmp(host + 3, heads->host) == 0;
}

/* ---- answering */

static enum MHD_Result queue(struct conn *c, int status, struct MHD_Response *m)
{
	return MHD_queue_response(c->mhd, (unsigned)status, m);
}

/* What everybody gets is made once. */
static struct MHD_Response *ready_response(struct http *h, struct entry *e, bool gzip,
					   bool same)
{
	struct MHD_Response **m = same ? &e->same[gzip] : &e->ready[gzip];

	if (!*m)
		*m = entry_response(e, gzip, same, NULL, NULL, h->origins && h->origins[0]);
	return *m;
}

/* The answer that is in the cache, for one who has no wishes of their own. */
static enum MHD_Result answer_cached(struct conn *c, struct entry *e, const char *url)
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
	count_reply(c, status, bytes);
	if (h->log) {
		struct request q = {
			.method = HTTP_GET, .path = url, .body = "", .who = "anyone", .id = ""
		};

		log_reply(h, &q, status, e->type, bytes, 0);
	}
	return queue(c, status, m);
}

static struct entry *cache_find(struct http *h, int route, const char *accept)
{
	for (struct entry *e = h->cache[route]; e; e = e->next) {
		if (!(e->flags & ROUTE_STATIC) && e->tick != h->tick)
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

		if (all || (!(e->flags & ROUTE_STATIC) && e->tick != h->tick)) {
			*link = e->next;
			entry_free(e);
		} else {
			link = &e->next;
		}
	}
}

/* Takes the entry if it is to be kept. */
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
	e->next = h->cache[k->route];
	h->cache[k->route] = e;
	return true;
}

static enum MHD_Result send_entry(struct conn *c, struct entry *e)
{
	struct http *h = c->http;
	struct call *k = c->call;
	bool gzip = entry_wants_gzip(e, c->heads.encoding);
	bool same = k->q.method == HTTP_GET && entry_is_same(e, gzip, c->heads.match);
	bool cors = c->heads.origin && is_listed(h->origins, c->heads.origin);
	int status = same ? 304 : e->status;
	size_t bytes = same ? 0 : gzip ? e->gzip->size : e->plain->size;
	struct MHD_Response *m =
		entry_response(e, gzip, same, k->id, cors ? c->heads.origin : NULL,
			       h->origins && h->origins[0]);
	enum MHD_Result r;

	if (!m)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	count_reply(c, status, bytes);
	if (h->log)
		log_reply(h, &k->q, status, e->type, bytes,
			  (double)(clock_mono_ns(clock_real()) - k->start_ns) * 1e-9);
	r = queue(c, status, m);
	MHD_destroy_response(m);
	return r;
}

/* Sends what is in r, which is empty then. */
static enum MHD_Result send_reply(struct conn *c, struct reply *r)
{
	struct http *h = c->http;
	struct call *k = c->call;
	unsigned flags = k->route >= 0 ? h->route[k->route].flags : 0;
	enum MHD_Result result = MHD_NO;
	struct entry *e;

	if (r->body.err)
		reply_problem(r, 500, "no-memory", NULL, "The answer did not fit into memory.");
	if (r->status == 200 && !check_accepts(c->heads.accept, r->type))
		reply_problem(r, 406, "not-acceptable", "Leave Accept out, or name that type.",
			      "This is served as %s, which Accept excludes.", r->type);
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

__attribute__((format(printf, 5, 6))) static enum MHD_Result refuse(struct conn *c, int status,
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
	if (status == 401)
		reply_header(&r, "WWW-Authenticate", "Bearer realm=\"gpuward\"");
	reply_problem(&r, status, word, remedy, "%s", text);
	return send_reply(c, &r);
}

/* ---- OPTIONS and methods */

static void allow_text(unsigned methods, char *out, size_t size)
{
	snprintf(out, size, "%s%s%s%sOPTIONS", methods & HTTP_GET ? "GET, HEAD, " : "",
		 methods & HTTP_POST ? "POST, " : "", methods & HTTP_PUT ? "PUT, " : "",
		 methods & HTTP_DELETE ? "DELETE, " : "");
}

static enum MHD_Result wrong_method(struct conn *c, unsigned methods)
{
	struct reply_impl impl;
	struct reply r;
	char allow[64];

	allow_text(methods, allow, sizeof(allow));
	reply_init(&r, &impl);
	reply_header(&r, "Allow", allow);
	reply_problem(&r, 405, "method-not-allowed", NULL, "%s can be asked with %s.",
		      c->call->q.path, allow);
	return send_reply(c, &r);
}

/* Also what a browser asks before it lets a page of another origin ask. */
static enum MHD_Result answer_options(struct conn *c, unsigned methods)
{
	const struct heads *heads = &c->heads;
	struct reply_impl impl;
	struct reply r;
	char allow[64];

	allow_text(methods, allow, sizeof(allow));
	reply_init(&r, &impl);
	r.status = 204;
	r.type = NULL;
	reply_header(&r, "Allow", allow);
	if (heads->origin && heads->method && is_listed(c->http->origins, heads->origin)) {
		reply_header(&r, "Access-Control-Allow-Methods", allow);
		reply_header(&r, "Access-Control-Allow-Headers",
			     "Authorization, Content-Type, If-None-Match, Last-Event-ID, "
			     "X-Request-Id");
		reply_header(&r, "Access-Control-Max-Age", "600");
	}
	return send_reply(c, &r);
}

/* ---- checks, each answers what it refuses */

enum check { PASSED, ANSWERED, FAILED };

static enum check answered(enum MHD_Result r)
{
	return r == MHD_YES ? ANSWERED : FAILED;
}

static enum check check_framing(struct conn *c, const char *version)
{
	const struct heads *heads = &c->heads;
	uint64_t length = 0;

	if (heads->bad)
		return answered(refuse(c, 400, "bad-header", NULL,
				       "A header has no name, or a value holds a NUL."));
	if (heads->lengths > 1)
		return answered(
			refuse(c, 400, "bad-length", NULL, "Content-Length is given twice."));
	if (heads->transfers > 0 && heads->lengths > 0)
		return answered(
			refuse(c, 400, "bad-length", NULL,
			       "Content-Length and Transfer-Encoding contradict each other."));
	if (heads->transfers > 1 ||
	    (heads->transfer && strcasecmp(heads->transfer, "chunked") != 0))
		return answered(refuse(c, 400, "bad-encoding", NULL,
				       "The only Transfer-Encoding is chunked, once."));
	if (heads->transfer && strcmp(version, "HTTP/1.0") == 0)
		return answered(refuse(c, 400, "bad-encoding", NULL,
				       "HTTP/1.0 has no Transfer-Encoding."));
	if (heads->length && !check_length(heads->length, &length))
		return answered(
			refuse(c, 400, "bad-length", NULL, "Content-Length is no number."));
	if (length > HTTP_BODY_MAX)
		return answered(refuse(c, 413, "too-large", NULL,
				       "A body has at most %d bytes, this one %llu.",
				       HTTP_BODY_MAX, (unsigned long long)length));
	if (heads->authorizations > 1)
		return answered(
			refuse(c, 400, "bad-header", NULL, "Authorization is given twice."));
	return PASSED;
}

static enum check check_our_host(struct conn *c, const char *version)
{
	const struct heads *heads = &c->heads;
	char host[CHECK_HOST_SIZE];
	unsigned port;

	if (heads->hosts == 0 && strcmp(version, "HTTP/1.0") == 0)
		return PASSED;
	if (heads->hosts != 1)
		return answered(
			refuse(c, 400, "bad-host", NULL, "A request has one Host header."));
	if (c->from->unix_socket || host_is_ours(c->http, c->from, heads->host))
		return PASSED;
	if (!check_host(heads->host, host, &port))
		return answered(
			refuse(c, 400, "bad-host", NULL, "The Host header is no host."));
	return answered(
		refuse(c, 421, "foreign-host",
		       "Call us by our address or localhost, or add the name to service.hosts.",
		       "This service is not known as \"%s\".", host));
}

static enum check check_target(struct conn *c, const char *url)
{
	struct call *k = c->call;
	size_t n = strlen(url) + 1;
	const char *why;

	k->path = malloc(2 * n); /* whole, and cut into pieces */
	if (!k->path)
		return FAILED;
	why = check_path(url, k->path);
	if (why) {
		k->q.path = "";
		return answered(
			refuse(c, 400, "bad-path", NULL, "The path cannot be read: %s.", why));
	}
	k->q.path = k->path;
	k->pieces = k->path + n;
	memcpy(k->pieces, k->path, strlen(k->path) + 1);
	return PASSED;
}

static enum MHD_Result add_param(void *arg, enum MHD_ValueKind kind, const char *key,
				 const char *value)
{
	struct call *k = arg;
	size_t n = strlen(key) + 1;
	char *text;

	(void)kind;
	if (k->params == PARAMS)
		return MHD_NO;
	value = value ? value : "";
	text = malloc(n + strlen(value) + 1);
	if (!text)
		return MHD_NO;
	k->param[k->params].name = text;
	k->param[k->params++].value = text + n;
	if (check_decode(key, text) || check_decode(value, text + n)) {
		k->bad_query = true;
		return MHD_NO;
	}
	return MHD_YES;
}

static enum check check_query(struct conn *c)
{
	struct call *k = c->call;

	if (c->heads.params == 0)
		return PASSED;
	MHD_get_connection_values(c->mhd, MHD_GET_ARGUMENT_KIND, add_param, k);
	if (k->bad_query)
		return answered(
			refuse(c, 400, "bad-query", NULL,
			       "The query cannot be read: its percent-encoding is wrong."));
	if (k->params != c->heads.params)
		return answered(refuse(c, 400, "bad-query", NULL,
				       "The query has more than %d parts.", PARAMS));
	return PASSED;
}

/* ---- who asks, and may they */

static enum check check_who(struct conn *c)
{
	struct http *h = c->http;
	struct call *k = c->call;

	snprintf(k->who, sizeof(k->who), "anyone");
	if (c->from->unix_socket) {
		snprintf(k->who, sizeof(k->who), "uid %u", (unsigned)c->uid);
		k->q.trusted = c->uid == 0 || c->uid == geteuid();
	}
	if (!c->heads.authorization)
		return PASSED;
	switch (auth_check(&h->auth, c->heads.authorization, c->peer, h->now_ns)) {
	case AUTH_GOOD:
		snprintf(k->who, sizeof(k->who), "token");
		k->q.trusted = true;
		return PASSED;
	case AUTH_BLOCKED:
		return answered(refuse(c, 429, "too-many-failures", "Wait ten seconds.",
				       "Too many wrong tokens came from this address."));
	case AUTH_WRONG: break;
	}
	return answered(refuse(c, 401, "wrong-token",
			       h->auth.token
				       ? "Send \"Authorization: Bearer\" and the token of "
					 "service.token_file."
				       : "Leave Authorization out: no token is configured.",
			       "The token is wrong."));
}

static enum check check_change(struct conn *c)
{
	struct http *h = c->http;
	struct call *k = c->call;

	/* A page of another origin may send a request without asking; it may not change things. */
	if (c->heads.origin && !origin_is_own(&c->heads) &&
	    !is_listed(h->origins, c->heads.origin))
		return answered(refuse(c, 403, "foreign-origin",
				       "Add the origin to service.origins if it may.",
				       "Pages of %.200s may not change anything here.",
				       c->heads.origin));
	if (k->q.trusted)
		return PASSED;
	if (h->auth.token)
		return answered(refuse(c, 401, "no-token",
				       "Send \"Authorization: Bearer\" and the token of "
				       "service.token_file.",
				       "Only those with the token may do this."));
	return answered(refuse(
		c, 403, "read-only",
		"Set service.token_file to a file that holds a token, or listen on a UNIX "
		"socket and ask there.",
		"This service is read-only: no token is configured."));
}

static enum check check_body(struct conn *c)
{
	const struct call *k = c->call;

	if (k->q.method == HTTP_GET)
		return answered(refuse(c, 400, "bad-body", NULL, "A GET has no body."));
	if (!check_json(c->heads.type))
		return answered(refuse(c, 415, "not-json",
				       "Send \"Content-Type: application/json\".",
				       "The body must be JSON."));
	return PASSED;
}

/* ---- a request that is not in the cache */

static unsigned method_of(const char *text)
{
	static const struct {
		const char *name;
		unsigned method;
	} names[] = { { "GET", HTTP_GET },
		      { "HEAD", HTTP_GET },
		      { "POST", HTTP_POST },
		      { "PUT", HTTP_PUT },
		      { "DELETE", HTTP_DELETE } };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i].name, text) == 0)
			return names[i].method;
	return 0;
}

static bool has_body(const struct heads *heads)
{
	return heads->transfer ||
	       (heads->length && strspn(heads->length, "0") != strlen(heads->length));
}

static struct call *call_new(struct conn *c)
{
	const struct heads *heads = &c->heads;
	struct call *k = calloc(1, sizeof(*k));
	struct http *h = c->http;

	if (!k)
		return NULL;
	k->conn = c;
	k->route = -1;
	k->start_ns = clock_mono_ns(clock_real());
	buf_init(&k->body, HTTP_BODY_MAX + 1);
	k->q = (struct request){ .path = "",
				 .body = "",
				 .who = k->who,
				 .id = k->id,
				 .memory = &k->memory,
				 .impl = k };
	if (heads->id && check_id(heads->id))
		snprintf(k->id, sizeof(k->id), "%s", heads->id);
	else
		snprintf(k->id, sizeof(k->id), "%016llx",
			 (unsigned long long)(h->id_base + h->ids++));
	return k;
}

static enum check find_route(struct conn *c, const char *method)
{
	struct http *h = c->http;
	struct call *k = c->call;
	unsigned m = method_of(method), methods = 0;

	k->head = strcmp(method, "HEAD") == 0;
	k->q.method = (enum http_method)m;
	k->route = router_find(h->router, k->pieces, m, k->q.arg, &methods);
	if (k->route >= 0)
		return PASSED;
	if (methods == 0)
		return answered(refuse(c, 404, "no-such-path", "See /docs for all paths.",
				       "There is nothing at %s.", k->q.path));
	if (strcmp(method, "OPTIONS") == 0)
		return answered(answer_options(c, methods));
	return answered(wrong_method(c, methods));
}

static enum check check_all(struct conn *c, const char *url, const char *method,
			    const char *version)
{
	const struct route *route;
	struct call *k = c->call;
	enum check r;

	if ((r = check_framing(c, version)) != PASSED ||
	    (r = check_our_host(c, version)) != PASSED ||
	    (r = check_target(c, url)) != PASSED || (r = check_query(c)) != PASSED ||
	    (r = check_who(c)) != PASSED || (r = find_route(c, method)) != PASSED)
		return r;
	route = &c->http->route[k->route];
	if ((route->flags & ROUTE_CHANGE) && (r = check_change(c)) != PASSED)
		return r;
	if ((route->flags & ROUTE_CHANGE) &&
	    !check_accepts(c->heads.accept, "application/json"))
		return answered(refuse(c, 406, "not-acceptable", NULL, "The answer is JSON."));
	return has_body(&c->heads) ? check_body(c) : PASSED;
}

static enum MHD_Result start_stream(struct conn *c, struct reply *r)
{
	struct http *h = c->http;
	struct call *k = c->call;
	const struct reply_impl *impl = r->impl;
	bool cors = c->heads.origin && is_listed(h->origins, c->heads.origin);
	struct MHD_Response *m;
	enum MHD_Result result;

	if (!check_accepts(c->heads.accept, r->type) || k->head)
		return send_reply(c, r);
	if (h->counts.streams >= h->streams) {
		reply_problem(r, 503, "too-many-streams", "Raise service.streams.",
			      "%u streams are open, which is the limit.", h->counts.streams);
		return send_reply(c, r);
	}
	m = follow_response(c, impl);
	if (!m) {
		reply_done(r);
		return MHD_NO;
	}
	h->counts.streams++;
	conn_set_state(c, CONN_STREAM);
	add_common_headers(m);
	MHD_add_response_header(m, "Content-Type", "text/event-stream; charset=utf-8");
	MHD_add_response_header(m, "Cache-Control", "no-store");
	MHD_add_response_header(m, "X-Accel-Buffering", "no");
	MHD_add_response_header(m, "X-Request-Id", k->id);
	if (cors)
		MHD_add_response_header(m, "Access-Control-Allow-Origin", c->heads.origin);
	for (unsigned i = 0; i < impl->headers; i++)
		MHD_add_response_header(m, impl->header[i].name, impl->header[i].value);
	count_reply(c, 200, 0);
	if (h->log)
		log_reply(h, &k->q, 200, r->type, 0, 0);
	result = queue(c, 200, m);
	MHD_destroy_response(m);
	reply_done(r);
	return result;
}

static void on_again(void *arg, uint64_t now_ns)
{
	struct conn *c = arg;

	c->http->now_ns = now_ns;
	conn_set_state(c, CONN_BUSY);
	conn_resume(c);
}

static enum MHD_Result park(struct conn *c, uint64_t at_ns)
{
	struct call *k = c->call;

	if (!k->timer && loop_add_timer(c->http->loop, on_again, c, &k->timer) != 0)
		return MHD_NO;
	loop_set_time(k->timer, at_ns);
	conn_set_state(c, CONN_PARKED);
	conn_suspend(c);
	k->q.tries++;
	return MHD_YES;
}

/* One who has wishes of their own (an id, a token, an origin) asks for what is in the cache. */
static struct entry *kept_for(const struct call *k)
{
	struct http *h = k->conn->http;
	const char *accept = k->conn->heads.accept;
	struct entry *e = NULL;

	if (k->q.method == HTTP_GET && k->params == 0)
		e = cache_find(h, k->route, accept);
	return e && check_accepts(accept, e->type) ? e : NULL;
}

static enum MHD_Result dispatch(struct conn *c)
{
	struct http *h = c->http;
	struct call *k = c->call;
	struct entry *e = kept_for(k);
	struct reply_impl impl;
	struct reply r;

	if (e)
		return send_entry(c, e);
	reply_init(&r, &impl);
	k->q.body = k->body.p;
	k->q.size = k->body.len;
	h->route[k->route].answer(h->arg, &k->q, &r);
	if (impl.again_ns) {
		reply_done(&r);
		return park(c, impl.again_ns);
	}
	if (impl.stream && r.status == 200)
		return start_stream(c, &r);
	return send_reply(c, &r);
}

/* Checks; what is refused is answered, and c->replied then. */
static enum MHD_Result begin(struct conn *c, const char *url, const char *method,
			     const char *version)
{
	c->call = call_new(c);
	if (!c->call)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	return check_all(c, url, method, version) == FAILED ? MHD_NO : MHD_YES;
}

/* ---- bodies */

/* The library takes no reply in the middle of a body: one who will not stop is told by hand. */
static enum MHD_Result too_large(struct conn *c)
{
	static const char text[] = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n"
				   "Content-Length: 0\r\n\r\n";

	if (!c->from->tls)
		send(c->fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	count_reply(c, 413, 0);
	return MHD_NO;
}

static enum MHD_Result take_body(struct conn *c, const char *p, size_t *n)
{
	struct call *k = c->call;

	k->received += *n;
	if (k->received <= HTTP_BODY_MAX)
		buf_add(&k->body, p, *n);
	else if (k->received > DISCARD_MAX)
		return too_large(c);
	*n = 0;
	return MHD_YES;
}

static enum MHD_Result end_body(struct conn *c)
{
	struct call *k = c->call;

	if (k->received > HTTP_BODY_MAX)
		return refuse(c, 413, "too-large", NULL, "A body has at most %d bytes.",
			      HTTP_BODY_MAX);
	if (k->body.err)
		return MHD_NO;
	if (k->q.tries == 0)
		conn_set_state(c, CONN_BUSY); /* now it is our turn */
	return dispatch(c);
}

/* ---- the library's callback */

static struct entry *cached(struct conn *c, const char *url, const char *method)
{
	const struct heads *heads = &c->heads;
	struct http *h = c->http;
	struct entry *e;
	int route;

	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return NULL;
	if (heads->hosts != 1 || heads->params || heads->authorization || heads->origin ||
	    heads->id || heads->bad)
		return NULL;
	route = router_exact(h->router, url, HTTP_GET);
	e = route < 0 ? NULL : cache_find(h, route, heads->accept);
	if (!e || !check_accepts(heads->accept, e->type))
		return NULL;
	return c->from->unix_socket || host_is_ours(h, c->from, heads->host) ? e : NULL;
}

/* A reply that is given before the end of the request ends the connection, in this library; so
 * one without a body is answered at the second call. */
static enum MHD_Result first_call(struct conn *c, const char *url, const char *method,
				  const char *version)
{
	c->heads = (struct heads){ 0 };
	MHD_get_connection_values_n(c->mhd, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND, gather,
				    &c->heads);
	if (!c->heads.lengths && !c->heads.transfers)
		return MHD_YES;
	return begin(c, url, method, version);
}

static enum MHD_Result last_call(struct conn *c, const char *url, const char *method,
				 const char *version)
{
	struct entry *e;

	if (c->call)
		return end_body(c);
	e = cached(c, url, method);
	if (e)
		return answer_cached(c, e, url);
	if (begin(c, url, method, version) != MHD_YES)
		return MHD_NO;
	return c->replied ? MHD_YES : dispatch(c);
}

enum MHD_Result call_handle(void *arg, struct MHD_Connection *mhd, const char *url,
			    const char *method, const char *version, const char *upload,
			    size_t *upload_size, void **request)
{
	struct conn *c = *request;

	(void)arg;
	if (c)
		return *upload_size ? take_body(c, upload, upload_size)
				    : last_call(c, url, method, version);
	c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
	*request = c;
	return c ? first_call(c, url, method, version) : MHD_NO;
}
