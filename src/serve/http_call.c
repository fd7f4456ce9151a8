/* Handles a request. If the reply is in the cache, sends it. Otherwise validates the request,
 * calls the handler and sends the reply.
 *
 * A cached reply is sent without an allocation. All other requests get a struct call. */
#include "http_impl.h"

#include "base/text.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* If a body is too large, up to this number of its bytes are read and discarded. */
#define DISCARD_MAX (1024 * 1024)

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

	(void)code;
	if (!c)
		return;
	if (c->state == CONN_STREAM) {
		follower_stop(&c->follower);
		h->counts.streams--;
	}
	/* A status without our reply means that the library refused the request;
	 * on_library_log() has counted it. Without a status, the client aborted the request. */
	if (!c->replied && !MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_HTTP_STATUS))
		h->counts.requests[0]++;
	call_free(c->call);
	c->call = NULL;
	c->replied = false;
	c->closing = false;
	c->suspended = false;
	conn_set_state(c, CONN_IDLE);
	*request = NULL;
}

const char *request_param(const struct request *q, const char *name)
{
	const struct call *k = q->impl; /* NULL: the reply comes from the cache */

	for (unsigned i = 0; k && i < k->params; i++)
		if (strcmp(k->param[i].name, name) == 0)
			return k->param[i].value;
	return NULL;
}

const char *request_param_name(const struct request *q, unsigned i)
{
	const struct call *k = q->impl;

	return i < k->params ? k->param[i].name : NULL;
}

const char *request_header(const struct request *q, const char *name)
{
	const struct call *k = q->impl;

	return k ? MHD_lookup_connection_value(k->conn->mhd, MHD_HEADER_KIND, name) : NULL;
}

/* The headers that we use. */
static const struct {
	const char *name;
	unsigned char n;
	/* Offsets into struct heads. count is 0 if the header may be repeated. */
	size_t value, count;
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
	C("Origin", origin, origins),
	C("Idempotency-Key", key, keys),
	W("X-Request-Id", id),
	C("Content-Type", type, types),
	W("Access-Control-Request-Method", method),
#undef W
#undef C
};

/* True if this header line begins right after the previous one. The library (0.9.75) silently
 * accepts invalid lines: it ends a line at a bare LF and a value at a NUL, and appends a line
 * that begins with a space to the name of the previous header. But the library leaves the
 * strings at the place in memory where they arrived, and only replaces colon, CR and LF by
 * NULs. So a gap between two strings reveals an invalid line. */
static bool is_contiguous(struct heads *heads, const char *key, size_t key_size,
			  const char *value, size_t size)
{
	const char *expected = heads->next;

	if (!expected)
		return true;
	heads->next = value + size + 2;
	return key == expected &&
	       value == key + key_size + 1 + strspn(key + key_size + 1, " \t");
}

static enum MHD_Result gather_header(void *arg, enum MHD_ValueKind kind, const char *key,
				     size_t key_size, const char *value, size_t size)
{
	struct heads *heads = arg;

	heads->lines++;
	if (kind == MHD_GET_ARGUMENT_KIND) {
		heads->params++;
		heads->bad |= strlen(key) != key_size || (value && strlen(value) != size);
		return MHD_YES;
	}
	value = value ? value : "";
	heads->bad |= !check_token(key, key_size) || !check_value(value, size) ||
		      !is_contiguous(heads, key, key_size, value, size);
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (wanted[i].n != key_size || strncasecmp(wanted[i].name, key, key_size) != 0)
			continue;
		*(const char **)(void *)((char *)heads + wanted[i].value) = value;
		if (wanted[i].count)
			++*(unsigned *)(void *)((char *)heads + wanted[i].count);
		break;
	}
	return MHD_YES;
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
				 .uid = -1,
				 .peer_pid = c->pid,
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

static enum MHD_Result start_stream(struct conn *c, struct reply *r)
{
	struct http *h = c->http;
	struct call *k = c->call;
	const struct reply_impl *impl = r->impl;
	bool cors = c->heads.origin && admit_listed(h->settings.origins, c->heads.origin);
	struct MHD_Response *m;
	enum MHD_Result result;

	if (!check_accepts(c->heads.accept, r->type) || k->head)
		return send_reply(c, r);
	if (h->counts.streams >= h->limit.streams) {
		reply_problem(r, 503, "too-many-streams", "Raise service.streams.",
			      "%u streams are open, which is the limit.", h->counts.streams);
		return send_reply(c, r);
	}
	m = follow_response(c, impl);
	if (!m) {
		reply_done(r);
		return MHD_NO;
	}
	if (h->hook.mark)
		h->hook.mark(h->hook.arg, r);
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
	send_count(c, 200, 0);
	if (h->hook.log)
		send_log(h, &k->q, 200, r->type, 0, 0);
	result = MHD_queue_response(c->mhd, 200, m);
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

static enum MHD_Result call_park(struct conn *c, uint64_t at_ns)
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

/* Returns the cached reply; NULL: no cached reply can be used. The request may have its own id,
 * token or origin. */
static struct entry *cached_entry(const struct call *k)
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
	struct entry *e = cached_entry(k);
	struct reply_impl impl;
	struct reply r;

	if (e)
		return send_entry(c, e);
	reply_init(&r, &impl);
	k->q.body = k->body.p;
	k->q.size = k->body.len;
	h->route[k->route].answer(h->hook.arg, &k->q, &r);
	if (impl.again_ns) {
		reply_done(&r);
		return call_park(c, impl.again_ns);
	}
	if (impl.stream && r.status == 200)
		return start_stream(c, &r);
	return send_reply(c, &r);
}

/* Validates the request. If it is refused, the reply is sent and c->replied is set. */
static enum MHD_Result call_begin(struct conn *c, const char *url, const char *method,
				  const char *version)
{
	c->call = call_new(c);
	if (!c->call)
		return MHD_NO;
	conn_set_state(c, CONN_BUSY);
	return admit_all(c, url, method, version) == FAILED ? MHD_NO : MHD_YES;
}

/* Writes a reply without a body to the socket, because the library cannot send one now. Returns
 * MHD_NO, which makes the library close the connection. A client with TLS gets no reply. */
static enum MHD_Result send_bare(struct conn *c, int status, const char *title)
{
	char text[128];
	int n = snprintf(text, sizeof(text),
			 "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
			 status, title);

	if (!c->tls)
		send(c->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
	send_count(c, status, 0);
	return MHD_NO;
}

static enum MHD_Result take_body(struct conn *c, const char *p, size_t *n)
{
	struct call *k = c->call;

	k->received += *n;
	if (k->received <= HTTP_BODY_MAX)
		buf_add(&k->body, p, *n);
	else if (k->received > DISCARD_MAX)
		/* The library accepts no reply in the middle of a body. */
		return send_bare(c, 413, "Content Too Large");
	*n = 0;
	return MHD_YES;
}

static enum MHD_Result end_body(struct conn *c)
{
	struct call *k = c->call;

	if (k->received > HTTP_BODY_MAX)
		return send_refusal(c, 413, "too-large", NULL, "A body has at most %d bytes.",
				    HTTP_BODY_MAX);
	if (k->body.err)
		return MHD_NO;
	if (k->q.tries == 0) /* The client has sent everything: restart the deadline. */
		conn_set_state(c, CONN_BUSY);
	return dispatch(c);
}

static struct entry *find_cached(struct conn *c, const char *url, const char *method)
{
	const struct heads *heads = &c->heads;
	struct http *h = c->http;
	struct entry *e;
	int route;

	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return NULL;
	if (c->spare || heads->hosts != 1 || heads->params || heads->authorization ||
	    heads->origin || heads->id || heads->bad)
		return NULL;
	route = router_exact(h->router, url, HTTP_GET);
	e = route < 0 ? NULL : cache_find(h, route, heads->accept);
	if (!e || !check_accepts(heads->accept, e->type))
		return NULL;
	return c->from->unix_socket || admit_host(h, c->from, heads->host) ? e : NULL;
}

static void gather_headers(struct conn *c, const char *url, const char *method,
			   const char *version)
{
	struct heads *heads = &c->heads;
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	*heads = (struct heads){ 0 };
	if (c->http->library.in_place && size) {
		heads->next = version + strlen(version) + 2;
		heads->bad = url != method + strlen(method) + 1 ||
			     version != url + c->target_size + 1;
	}
	MHD_get_connection_values_n(c->mhd, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND,
				    gather_header, heads);
	/* The empty line that ends the header must follow. */
	if (heads->next && heads->next + 2 != method + size->header_size)
		heads->bad = true;
}

/* True if the request header takes so much memory that the library has none for a reply. */
static bool is_too_long(const struct conn *c)
{
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	return size && size->header_size + c->heads.lines * HEAD_LINE_SIZE > HEAD_MAX;
}

/* Reads the headers. If a reply is sent before the end of the request, the library closes the
 * connection. Therefore even a request without a body is answered only at the second call. */
static enum MHD_Result first_call(struct conn *c, const char *url, const char *method,
				  const char *version)
{
	gather_headers(c, url, method, version);
	if (is_too_long(c))
		return send_bare(c, 431, "Request Header Fields Too Large");
	if (!c->heads.lengths && !c->heads.transfers)
		return MHD_YES;
	if (call_begin(c, url, method, version) != MHD_YES)
		return MHD_NO;
	if (!c->replied)
		conn_set_state(c, CONN_BODY);
	return MHD_YES;
}

static enum MHD_Result last_call(struct conn *c, const char *url, const char *method,
				 const char *version)
{
	struct entry *e;

	if (c->call)
		return end_body(c);
	e = find_cached(c, url, method);
	if (e)
		return send_cached(c, e, url);
	if (call_begin(c, url, method, version) != MHD_YES)
		return MHD_NO;
	return c->replied ? MHD_YES : dispatch(c);
}

void *call_target(void *arg, const char *target, struct MHD_Connection *mhd)
{
	struct conn *c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
				 ->socket_context;

	(void)arg;
	if (c)
		c->target_size = strlen(target);
	return NULL; /* With NULL, call_handle() begins a new request. */
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

/* Routes: a hash table for exact paths, then a list of the few patterns. */

struct router {
	const struct route *route;
	unsigned mask;
	int *slot; /* hash table: index of the first route with a path; -1: free slot */
	int *same; /* for each route: index of the next route with the same path; -1: none */
	int *pattern;
	unsigned patterns;
};

static bool is_pattern(const char *path)
{
	return strchr(path, '{') || strchr(path, '*');
}

static int *slot_of(const struct router *r, const char *path)
{
	unsigned i = (unsigned)text_hash(TEXT_HASH_START, path, strlen(path)) & r->mask;

	while (r->slot[i] >= 0 && strcmp(r->route[r->slot[i]].path, path) != 0)
		i = (i + 1) & r->mask;
	return &r->slot[i];
}

int router_new(const struct route *route, unsigned routes, struct router **ret)
{
	struct router *r = calloc(1, sizeof(*r));
	unsigned size = 16;

	if (!r)
		return -GW_E_NOMEM;
	while (size < 2 * routes + 2)
		size *= 2;
	r->route = route;
	r->mask = size - 1;
	r->slot = malloc(size * sizeof(int));
	r->same = malloc((routes + 1) * sizeof(int));
	r->pattern = malloc((routes + 1) * sizeof(int));
	if (!r->slot || !r->same || !r->pattern) {
		router_free(r);
		return -GW_E_NOMEM;
	}
	for (unsigned i = 0; i < size; i++)
		r->slot[i] = -1;
	for (unsigned i = 0; i < routes; i++) {
		int *slot = is_pattern(route[i].path) ? NULL : slot_of(r, route[i].path);

		r->same[i] = slot ? *slot : -1;
		if (slot)
			*slot = (int)i;
		else
			r->pattern[r->patterns++] = (int)i;
	}
	*ret = r;
	return 0;
}

void router_free(struct router *r)
{
	if (!r)
		return;
	free(r->slot);
	free(r->same);
	free(r->pattern);
	free(r);
}

int router_exact(const struct router *r, const char *path, unsigned method)
{
	int i = *slot_of(r, path);

	while (i >= 0 && r->route[i].method != method)
		i = r->same[i];
	return i;
}

/* Returns the end of a path segment. */
static const char *segment_end(const char *s)
{
	return s + strcspn(s, "/");
}

static bool path_matches(const char *pattern, const char *path)
{
	while (*pattern && *path) {
		if (strcmp(pattern, "*") == 0)
			return true;
		if (*pattern == '{') {
			if (segment_end(path) == path)
				return false;
			pattern = segment_end(pattern);
			path = segment_end(path);
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return !*pattern && !*path;
}

/* Splits a path that matches the pattern. arg gets the parts of the path that match {...} in
 * the pattern. */
static void split_path(const char *pattern, char *path, const char **arg)
{
	for (unsigned n = 0; *pattern && n < HTTP_ARGS;) {
		if (strcmp(pattern, "*") == 0) {
			arg[n] = path;
			return;
		}
		if (*pattern == '{') {
			char *end = path + strcspn(path, "/");

			arg[n++] = path;
			pattern = segment_end(pattern);
			if (!*end)
				return;
			/* Replace the '/' by the NUL that ends the value. Pattern and path
			 * continue after this character. */
			*end = '\0';
			path = end;
		}
		pattern++;
		path++;
	}
}

int router_find(const struct router *r, char *path, unsigned method, const char **arg,
		unsigned *ret_methods)
{
	unsigned methods = 0;

	for (int i = *slot_of(r, path); i >= 0; i = r->same[i]) {
		if (r->route[i].method == method)
			return i;
		methods |= r->route[i].method;
	}
	/* If a route has exactly this path, do not compare the path with the patterns. */
	const unsigned patterns = methods ? 0 : r->patterns;

	for (unsigned p = 0; p < patterns; p++) {
		const struct route *route = &r->route[r->pattern[p]];

		if (!path_matches(route->path, path))
			continue;
		if (route->method == method) {
			split_path(route->path, path, arg);
			return r->pattern[p];
		}
		methods |= route->method;
	}
	*ret_methods = methods;
	return -1;
}
