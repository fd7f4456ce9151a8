/* Which requests are let in.
 *
 * Each check answers what it refuses, with the sentence why: lengths that contradict each other, a
 * foreign Host, a path that cannot be read, a method that the path does not have, a wrong token. */
#include "http_impl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- Host and Origin */

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

/* A page of somebody else whose name was made to point at us (DNS rebinding) carries its own
 * name here.  A literal address cannot be made to point elsewhere. */
bool admit_host(const struct http *h, const struct listener *from, const char *text)
{
	char host[CHECK_HOST_SIZE];
	unsigned port;

	if (strcmp(text, from->host_port) == 0)
		return true;
	if (!check_host(text, host, &port))
		return false;
	if (strcmp(host, "localhost") == 0 || admit_listed(h->hosts, host))
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
	if (heads->origin && heads->method && admit_listed(c->http->origins, heads->origin)) {
		reply_header(&r, "Access-Control-Allow-Methods", allow);
		reply_header(&r, "Access-Control-Allow-Headers",
			     "Authorization, Content-Type, If-None-Match, Last-Event-ID, "
			     "X-Request-Id");
		reply_header(&r, "Access-Control-Max-Age", "600");
	}
	return send_reply(c, &r);
}

/* ---- checks, each answers what it refuses */

static enum admitted answered(enum MHD_Result r)
{
	return r == MHD_YES ? ANSWERED : FAILED;
}

/* Where the next request begins is not certain: there is none. */
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
		return bad_frame(
			c, "bad-header",
			"The head holds a line that is not \"Name: value\", one that does "
			"not end with CR LF, or a control character.");
	if (heads->lengths > 1)
		return bad_frame(c, "bad-length", "Content-Length is given twice.");
	if (heads->transfers > 0 && heads->lengths > 0)
		return bad_frame(c, "bad-length",
				 "Content-Length and Transfer-Encoding contradict each other.");
	if (heads->transfers > 1 ||
	    (heads->transfer && strcasecmp(heads->transfer, "chunked") != 0))
		return bad_frame(c, "bad-encoding",
				 "The only Transfer-Encoding is chunked, once.");
	if (heads->transfer && strcmp(version, "HTTP/1.0") == 0)
		return bad_frame(c, "bad-encoding", "HTTP/1.0 has no Transfer-Encoding.");
	if (heads->length && !check_length(heads->length, &length))
		return bad_frame(c, "bad-length", "Content-Length is no number.");
	if (length > HTTP_BODY_MAX)
		return answered(send_refusal(c, 413, "too-large", NULL,
					     "A body has at most %d bytes, this one %llu.",
					     HTTP_BODY_MAX, (unsigned long long)length));
	if (heads->authorizations > 1)
		return bad_frame(c, "bad-header", "Authorization is given twice.");
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
					     "A request has one Host header."));
	if (c->from->unix_socket || admit_host(c->http, c->from, heads->host))
		return PASSED;
	if (!check_host(heads->host, host, &port))
		return answered(
			send_refusal(c, 400, "bad-host", NULL, "The Host header is no host."));
	return answered(send_refusal(
		c, 421, "foreign-host",
		"Call us by our address or localhost, or add the name to service.hosts.",
		"This service is not known as \"%s\".", host));
}

static enum admitted check_target(struct conn *c, const char *url)
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
		return answered(send_refusal(c, 400, "bad-path", NULL,
					     "The path cannot be read: %s.", why));
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
		return answered(send_refusal(
			c, 400, "bad-query", NULL,
			"The query cannot be read: its percent-encoding is wrong."));
	if (k->params != c->heads.params)
		return answered(send_refusal(c, 400, "bad-query", NULL,
					     "The query has more than %d parts.", PARAMS));
	return PASSED;
}

/* ---- who asks, and may they */

static enum admitted check_who(struct conn *c)
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
	/* A client may send the token of another service: who needs none is not refused for it. */
	if (!c->heads.authorization || (k->q.trusted && !h->auth.token))
		return PASSED;
	switch (auth_check(&h->auth, c->heads.authorization, c->peer, h->now_ns)) {
	case AUTH_GOOD:
		snprintf(k->who, sizeof(k->who), "token");
		k->q.uid = -1;
		k->q.trusted = true;
		return PASSED;
	case AUTH_BLOCKED:
		return answered(send_refusal(c, 429, "too-many-failures", "Wait ten seconds.",
					     "Too many wrong tokens came from this address."));
	case AUTH_WRONG: break;
	}
	return answered(
		send_refusal(c, 401, "wrong-token",
			     h->auth.token ? "Send \"Authorization: Bearer\" and the token of "
					     "service.token_file."
					   : "Leave Authorization out: no token is configured.",
			     h->auth.token ? "The token is wrong."
					   : "This service has no token, and one was sent."));
}

static enum admitted check_change(struct conn *c)
{
	struct http *h = c->http;
	struct call *k = c->call;

	/* A page of another origin may send a request without asking; it may not change things. */
	if (c->heads.origin && !origin_is_own(&c->heads) &&
	    !admit_listed(h->origins, c->heads.origin))
		return answered(send_refusal(c, 403, "foreign-origin",
					     "Add the origin to service.origins if it may.",
					     "Pages of %.200s may not change anything here.",
					     c->heads.origin));
	if (k->q.trusted)
		return PASSED;
	if (h->auth.token)
		return answered(send_refusal(c, 401, "no-token",
					     "Send \"Authorization: Bearer\" and the token of "
					     "service.token_file.",
					     "Only those with the token may do this."));
	return answered(send_refusal(
		c, 403, "read-only",
		"Set service.token_file to a file that holds a token, or listen on a UNIX "
		"socket and ask there.",
		"This service is read-only: no token is configured."));
}

static enum admitted check_body(struct conn *c)
{
	const struct call *k = c->call;

	if (k->q.method == HTTP_GET)
		return answered(send_refusal(c, 400, "bad-body", NULL, "A GET has no body."));
	if (!check_json(c->heads.type))
		return answered(send_refusal(c, 415, "not-json",
					     "Send \"Content-Type: application/json\".",
					     "The body must be JSON."));
	return PASSED;
}

/* ---- all of it */

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

bool admit_body(const struct heads *heads)
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
					     "There is nothing at %s.", k->q.path));
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
	    (r = check_who(c)) != PASSED || (r = find_route(c, method)) != PASSED)
		return r;
	route = &c->http->route[k->route];
	if ((route->flags & ROUTE_CHANGE) && (r = check_change(c)) != PASSED)
		return r;
	if ((route->flags & ROUTE_CHANGE) &&
	    !check_accepts(c->heads.accept, "application/json"))
		return answered(
			send_refusal(c, 406, "not-acceptable", NULL, "The answer is JSON."));
	return admit_body(&c->heads) ? check_body(c) : PASSED;
}
