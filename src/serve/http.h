/* http: an HTTP server over libmicrohttpd in our own loop.
 *
 * Hides the library, connections with their deadlines and limits, TLS, UNIX sockets, the
 * validation of requests (contradicting lengths, a foreign Host, a wrong method), permissions,
 * compression, ETags and caching until the next tick. Handlers run on the main thread and never
 * block. A handler that cannot answer yet calls reply_again(), which sets the time of its next
 * call. */
#ifndef GW_SERVE_HTTP_H
#define GW_SERVE_HTTP_H

#include "base/buf.h"
#include "base/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_method { HTTP_GET = 1, HTTP_POST = 2, HTTP_PUT = 4, HTTP_DELETE = 8 };

#define HTTP_ARGS     4
#define HTTP_BODY_MAX (64 * 1024)

struct request {
	enum http_method method;    /* HEAD comes as GET */
	const char *path;           /* decoded */
	const char *arg[HTTP_ARGS]; /* values of {...} in the route, in order */
	const char *body;           /* "" if there is none; NUL-terminated */
	size_t size;
	bool trusted;    /* valid token, or a permitted client of the UNIX socket */
	const char *who; /* for logs only: "token", "uid 1000", "anyone" */
	int64_t uid; /* user of a UNIX socket client without a token; -1: any other client */
	/* pid of the client on the UNIX socket, in our pid namespace; 0: the client is outside
	 * of it; -1: unknown */
	int64_t peer_pid;
	/* id of the request: the client's X-Request-Id if valid, else generated */
	const char *id;
	unsigned tries; /* number of earlier calls of the handler (reply_again) */
	void **memory; /* kept between calls of the handler; NULL at first; freed with free() */
	void *impl;
};

/* Returns a query parameter, decoded; NULL: absent, "": without a value. */
const char *request_param(const struct request *q, const char *name);
const char *request_header(const struct request *q, const char *name);

/* Returns the name of query parameter i, from 0; NULL past the end. */
const char *request_param_name(const struct request *q, unsigned i);

/* Tests may pass a reply without impl; its headers are then dropped. */
struct reply {
	int status;       /* 200 */
	const char *type; /* "application/json" */
	struct buf body;  /* at most REPLY_MAX bytes */
	void *impl;
};

/* copies name and value */
void reply_header(struct reply *r, const char *name, const char *value);

/* Replies application/problem+json (RFC 9457). Its type is a tag with `word`, such as
 * "tag:gpuward,2026:no-such-device", or "about:blank". Its title comes from the status. detail:
 * the sentence; remedy: what to do, or NULL. Adds Retry-After to 429 and 503. */
void reply_problem(struct reply *r, int status, const char *word, const char *remedy,
		   const char *detail, ...) __attribute__((format(printf, 5, 6)));

/* Replies with static bytes, for assets; cached by ETag. gz NULL: there is no compressed
 * form. */
void reply_static(struct reply *r, const char *type, const void *p, size_t n, const void *gz,
		  size_t gz_n);

/* Postpones the reply: the handler is called again at that time with the same request. */
void reply_again(struct reply *r, uint64_t at_ns);

/* Makes the connection follow the stream (text/event-stream), starting after event `after`
 * (Last-Event-ID; UINT64_MAX: only new events). topics: bits of the stream. */
struct stream;
void reply_stream(struct reply *r, struct stream *s, uint64_t after, unsigned topics);

typedef void route_fn(void *arg, const struct request *q, struct reply *r);

enum route_flag {
	/* until http_tick(), all requests without a query get the same reply */
	ROUTE_TICK = 1 << 0,
	ROUTE_ALIVE = 1 << 1,  /* never cached, always answers */
	ROUTE_CHANGE = 1 << 2, /* changes something: 401 or 403 unless trusted */
	ROUTE_STATIC = 1 << 3, /* never changes while the service runs */
	ROUTE_TEXT = 1 << 4,   /* Accept selects the type; cached per Accept */
};

/* One route. In a path such as "/api/v1/devices/{uuid}", braces match one segment; a star at
 * the end matches all following segments. */
struct route {
	unsigned method; /* one enum http_method */
	const char *path;
	route_fn *answer;
	unsigned flags;
};

struct http_listener {
	/* "127.0.0.1:9490", "[::1]:9490", "unix:/run/gpuward.sock"; NULL with fd */
	const char *address;
	int fd; /* -1: open the address; else a given socket (socket activation) */
};

struct http_config {
	const struct http_listener *listener;
	unsigned listeners;
	const char *token_file; /* NULL: none */
	/* paths of the files; NULL: no TLS. UNIX sockets never use TLS. */
	const char *tls_cert, *tls_key;
	bool insecure; /* allow non-loopback addresses without TLS and token */
	/* Host names accepted in addition to localhost and the addresses; NULL-terminated */
	const char *const *hosts;
	const char *const *origins;           /* allowed web origins (CORS); NULL-terminated */
	unsigned connections, streams;        /* maximum numbers */
	uint64_t header_ns, body_ns, idle_ns; /* deadlines */
	/* time between keep-alive comments on a stream; 0: 15 s */
	uint64_t beat_ns;
	unsigned unix_mode; /* permissions of the socket: 0660 */
	const struct route *route;
	unsigned routes;
	void *arg; /* first argument of the handlers */
	/* Called with each reply of a handler, to add the headers that all replies have; may be
	 * NULL. */
	void (*mark)(void *arg, struct reply *r);
	/* Called for each answer; r has only status, type and body.len. May be NULL. */
	void (*log)(void *arg, const struct request *q, const struct reply *r, double seconds);
};

struct http;

/* Opens the listeners and serves on the loop. Copies the strings of config, borrows the routes.
 * Returns 0, or an error with a message: -GW_E_ARG, -GW_E_PERM, -GW_E_IO (such as a port in
 * use), -GW_E_NOSUPPORT (built without TLS) or -GW_E_NOMEM. */
int http_new(struct loop *l, const struct http_config *config, struct http **ret, char *message,
	     size_t size);
void http_free(struct http *h);

/* Applies a new token, certificate or limits after SIGHUP; listeners stay. Returns the same as
 * http_new(). With 0, the message is empty or a warning that the token was removed. */
int http_reload(struct http *h, const struct http_config *config, char *message, size_t size);

/* Invalidates the cache. */
void http_tick(struct http *h);

/* Returns the address of listener i, "http://127.0.0.1:9490"; NULL past the end. */
const char *http_address(const struct http *h, unsigned i);

struct http_counts {                   /* since the start */
	uint64_t requests[6];          /* number of requests by status / 100; [0]: aborted */
	uint64_t accepted, refused;    /* connections */
	uint64_t timeouts;             /* connections closed by a deadline */
	unsigned connections, streams; /* now */
	uint64_t bytes_sent;           /* of bodies */
};
void http_counts(const struct http *h, struct http_counts *ret);

#endif
