/* Validates requests: lengths, Host, path, method, token.
 *
 * A request that fails a check gets a reply that names the reason. The token is read from a
 * file that only its owner can read, and is compared as a digest, so that the duration of a
 * comparison reveals nothing. */
#include "http_impl.h"

#include "base/file.h"
#include "base/sha256.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

bool admit_listed(char *const *list, const char *text)
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

/* True if the Host header names this service. This check protects against DNS rebinding. In
 * this attack, a foreign web page makes its own name resolve to our address, and the browser
 * then sends that name as Host. If Host is a literal address, this attack is not possible. */
bool admit_host(const struct http *h, const struct listener *from, const char *text)
{
	char host[CHECK_HOST_SIZE];
	unsigned port;

	if (strcmp(text, from->host_port) == 0)
		return true;
	if (!check_host(text, host, &port))
		return false;
	if (strcmp(host, "localhost") == 0 || admit_listed(h->settings.hosts, host))
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
	const char *origin = heads->origin ? heads->origin : "";
	size_t scheme = strncmp(origin, "https://", 8) == 0  ? 8
			: strncmp(origin, "http://", 7) == 0 ? 7
							     : 0;

	return scheme && heads->host && strcasecmp(origin + scheme, heads->host) == 0;
}

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
	reply_problem(&r, 405, "method-not-allowed", NULL, "%s supports %s.", c->call->q.path,
		      allow);
	return send_reply(c, &r);
}

/* Replies to OPTIONS, including the CORS preflight of browsers. */
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
	if (heads->origin && heads->method &&
	    admit_listed(c->http->settings.origins, heads->origin)) {
		reply_header(&r, "Access-Control-Allow-Methods", allow);
		reply_header(&r, "Access-Control-Allow-Headers",
			     "Authorization, Content-Type, If-None-Match, Last-Event-ID, "
			     "X-Request-Id");
		reply_header(&r, "Access-Control-Max-Age", "600");
	}
	return send_reply(c, &r);
}

static enum admitted answered(enum MHD_Result r)
{
	return r == MHD_YES ? ANSWERED : FAILED;
}

/* Refuses the request and closes the connection, because it is unknown where the next request
 * begins. */
static enum admitted bad_frame(struct conn *c, const char *word, const char *detail)
{
	c->closing = true;
	return answered(send_refusal(c, 400, word, NULL, "%s", detail));
}

static enum admitted check_framing(struct conn *c, const char *version)
{
	const struct heads *heads = &c->heads;
	uint64_t length = 0;

	if (heads->bad)
		return bad_frame(c, "bad-header",
				 "The header has a line that is not \"Name: value\", one that "
				 "does not end with CR LF, or a control character.");
	if (heads->lengths > 1)
		return bad_frame(c, "bad-length", "Content-Length occurs twice.");
	if (heads->transfers > 0 && heads->lengths > 0)
		return bad_frame(c, "bad-length",
				 "Content-Length and Transfer-Encoding contradict each other.");
	if (heads->transfers > 1 ||
	    (heads->transfer && strcasecmp(heads->transfer, "chunked") != 0))
		return bad_frame(c, "bad-encoding",
				 "Only one Transfer-Encoding is allowed: chunked.");
	if (heads->transfer && strcmp(version, "HTTP/1.0") == 0)
		return bad_frame(c, "bad-encoding", "HTTP/1.0 has no Transfer-Encoding.");
	if (heads->length && !check_length(heads->length, &length))
		return bad_frame(c, "bad-length", "Content-Length is not a number.");
	if (length > HTTP_BODY_MAX)
		return answered(send_refusal(c, 413, "too-large", NULL,
					     "The body has %llu bytes; the maximum is %d.",
					     (unsigned long long)length, HTTP_BODY_MAX));
	if (heads->authorizations > 1)
		return bad_frame(c, "bad-header", "Authorization occurs twice.");
	if (heads->origins > 1)
		return bad_frame(c, "bad-header", "Origin occurs twice.");
	if (heads->keys > 1)
		return bad_frame(c, "bad-header", "Idempotency-Key occurs twice.");
	return PASSED;
}

static enum admitted check_our_host(struct conn *c, const char *version)
{
	const struct heads *heads = &c->heads;
	char host[CHECK_HOST_SIZE];
	unsigned port;

	if (heads->hosts == 0 && strcmp(version, "HTTP/1.0") == 0)
		return PASSED;
	if (heads->hosts != 1)
		return answered(send_refusal(c, 400, "bad-host", NULL,
					     "A request needs exactly one Host header."));
	if (c->from->unix_socket || admit_host(c->http, c->from, heads->host))
		return PASSED;
	if (!check_host(heads->host, host, &port))
		return answered(send_refusal(c, 400, "bad-host", NULL,
					     "The Host header is not a host name."));
	return answered(send_refusal(c, 421, "foreign-host",
				     "Use the address of the service or localhost, or add the "
				     "name to service.hosts.",
				     "\"%s\" is not a name of this service.", host));
}

static enum admitted check_target(struct conn *c, const char *url)
{
	struct call *k = c->call;
	size_t n = strlen(url) + 1;
	const char *why;

	k->path = malloc(2 * n); /* two copies of the path: one stays whole, one is split */
	if (!k->path)
		return FAILED;
	why = check_path(url, k->path);
	if (why) {
		k->q.path = "";
		return answered(send_refusal(c, 400, "bad-path", NULL,
					     "The path is invalid: %s.", why));
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

static enum admitted check_query(struct conn *c)
{
	struct call *k = c->call;

	if (c->heads.params == 0)
		return PASSED;
	MHD_get_connection_values(c->mhd, MHD_GET_ARGUMENT_KIND, add_param, k);
	if (k->bad_query)
		return answered(send_refusal(c, 400, "bad-query", NULL,
					     "The query has an invalid percent-encoding."));
	if (k->params != c->heads.params)
		return answered(send_refusal(c, 400, "bad-query", NULL,
					     "The query has more than %d parameters.", PARAMS));
	return PASSED;
}

static enum admitted check_client(struct conn *c)
{
	struct http *h = c->http;
	struct call *k = c->call;

	snprintf(k->who, sizeof(k->who), "anyone");
	k->q.uid = -1;
	if (c->from->unix_socket) {
		snprintf(k->who, sizeof(k->who), "uid %u", (unsigned)c->uid);
		k->q.uid = c->uid;
		k->q.trusted = c->uid == 0 || c->uid == geteuid();
	}
	/* If no token is configured, ignore a token that a trusted client sends. The client may
	 * use this token for another service. */
	if (!c->heads.authorization || (k->q.trusted && !h->settings.auth.token))
		return PASSED;
	switch (auth_check(&h->settings.auth, c->heads.authorization, c->peer, h->now_ns)) {
	case AUTH_GOOD:
		snprintf(k->who, sizeof(k->who), "token");
		k->q.uid = -1;
		k->q.trusted = true;
		return PASSED;
	case AUTH_BLOCKED:
		return answered(send_refusal(c, 429, "too-many-failures", "Wait ten seconds.",
					     "This address sent too many wrong tokens."));
	case AUTH_WRONG: break;
	}
	return answered(send_refusal(
		c, 401, "wrong-token",
		h->settings.auth.token ? "Send \"Authorization: Bearer\" and the token of "
					 "service.token_file."
				       : "Omit Authorization: no token is configured.",
		h->settings.auth.token ? "The token is wrong."
				       : "A token was sent, but this service has none."));
}

/* Refuses a request for a change that comes from a web page of another origin. Such a page can
 * send some requests without the permission of the server (CORS). A sandboxed page has the
 * origin "null", which is never our origin. */
static enum admitted check_origin(struct conn *c)
{
	const char *origin = c->heads.origin;

	if (!origin || origin_is_own(&c->heads) ||
	    admit_listed(c->http->settings.origins, origin))
		return PASSED;
	return answered(send_refusal(c, 403, "foreign-origin",
				     "Add the origin to service.origins to allow it.",
				     "Web pages of %.200s may not change anything.", origin));
}

static enum admitted check_change(struct conn *c)
{
	struct http *h = c->http;
	struct call *k = c->call;

	if (k->q.trusted)
		return PASSED;
	if (h->settings.auth.token)
		return answered(send_refusal(c, 401, "no-token",
					     "Send \"Authorization: Bearer\" and the token of "
					     "service.token_file.",
					     "This request needs the token."));
	return answered(send_refusal(
		c, 403, "read-only",
		"Set service.token_file to a file with a token, or use a UNIX socket.",
		"Workers and settings cannot be changed: no token is configured."));
}

/* Accepts only JSON bodies. A form of a foreign web page cannot send this Content-Type without
 * the permission of the server (CORS). */
static enum admitted check_body(struct conn *c)
{
	const struct call *k = c->call;

	if (k->q.method == HTTP_GET)
		return answered(send_refusal(c, 400, "bad-body", NULL,
					     "A GET request must not have a body."));
	if (c->heads.types != 1 || !check_json(c->heads.type))
		return answered(send_refusal(
			c, 415, "not-json",
			"Send \"Content-Type: application/json\" (curl --json does).",
			"The Content-Type of the body is not application/json in UTF-8."));
	return PASSED;
}

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

/* True if the request has a body. */
static bool admit_body(const struct heads *heads)
{
	return heads->transfer ||
	       (heads->length && strspn(heads->length, "0") != strlen(heads->length));
}

static enum admitted find_route(struct conn *c, const char *method)
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
		return answered(send_refusal(c, 404, "no-such-path", "See /docs for all paths.",
					     "No route matches %s.", k->q.path));
	if (strcmp(method, "OPTIONS") == 0)
		return answered(answer_options(c, methods));
	return answered(wrong_method(c, methods));
}

enum admitted admit_all(struct conn *c, const char *url, const char *method,
			const char *version)
{
	const struct route *route;
	struct call *k = c->call;
	enum admitted r;

	if ((r = check_framing(c, version)) != PASSED ||
	    (r = check_our_host(c, version)) != PASSED ||
	    (r = check_target(c, url)) != PASSED || (r = check_query(c)) != PASSED ||
	    (r = check_client(c)) != PASSED || (r = find_route(c, method)) != PASSED)
		return r;
	route = &c->http->route[k->route];
	if (c->spare && !(route->flags & ROUTE_ALIVE)) {
		c->closing = true;
		return answered(send_refusal(
			c, 503, "too-many-connections",
			"Close connections that are not used, or raise service.connections.",
			"All %u connections of the service are in use.",
			c->http->limit.connections));
	}
	if (k->q.method != HTTP_GET && (r = check_origin(c)) != PASSED)
		return r;
	c->call->q.read_only = !c->call->q.trusted && !c->http->settings.auth.token;
	if ((route->flags & ROUTE_CHANGE) && (r = check_change(c)) != PASSED)
		return r;
	if ((route->flags & ROUTE_CHANGE) &&
	    !check_accepts(c->heads.accept, "application/json"))
		return answered(send_refusal(c, 406, "not-acceptable", NULL,
					     "The answer is JSON, which Accept excludes."));
	return admit_body(&c->heads) ? check_body(c) : PASSED;
}

#define FAILURES    10
#define FAILURES_NS (10 * NS_PER_S)

int auth_load(struct auth *a, const char *path, char *message, size_t size)
{
	char text[SECRET_MAX];
	int err;

	*a = (struct auth){ 0 };
	if (!path || !*path)
		return 0;
	err = secret_read(path, text, message, size);
	if (err)
		return err;
	sha256_hex(text, strlen(text), a->digest);
	explicit_bzero(text, sizeof(text));
	a->token = true;
	return 0;
}

static bool digests_equal(const char *a, const char *b)
{
	unsigned char difference = 0;

	for (unsigned i = 0; i < 64; i++)
		difference |= (unsigned char)(a[i] ^ b[i]);
	return difference == 0;
}

static bool token_good(const struct auth *a, const char *authorization)
{
	char given[65];

	if (!a->token || strncasecmp(authorization, "Bearer ", 7) != 0)
		return false;
	authorization += 7 + strspn(authorization + 7, " ");
	sha256_hex(authorization, strlen(authorization), given);
	return digests_equal(a->digest, given);
}

enum auth_verdict auth_check(struct auth *a, const char *authorization, uint64_t peer,
			     uint64_t now_ns)
{
	unsigned i = (unsigned)(peer % (sizeof(a->blocked) / sizeof(a->blocked[0])));

	/* Check the token before the limit of failures. Otherwise a client with the same
	 * address could lock out the owner of the token. On loopback, all clients have the same
	 * address. */
	if (token_good(a, authorization))
		return AUTH_GOOD;
	if (a->blocked[i].peer != peer || now_ns - a->blocked[i].since_ns > FAILURES_NS) {
		a->blocked[i].peer = peer;
		a->blocked[i].since_ns = now_ns;
		a->blocked[i].failures = 0;
	}
	if (a->blocked[i].failures >= FAILURES)
		return AUTH_BLOCKED;
	a->blocked[i].failures++;
	return AUTH_WRONG;
}
