/* http: requests in, replies out, over libmicrohttpd in our own loop.
 *
 * Hides the library, connections and their deadlines and limits, TLS, UNIX sockets, the check of
 * requests (lengths that contradict each other, a foreign Host, a method that the path does not
 * have), who may do what, compression, ETags, and that a body that is the same for everybody until
 * the next tick is made once.  Handlers run on the main thread and never block: one that
 * cannot answer yet says when to be asked again. */
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
	const char *arg[HTTP_ARGS]; /* what stands for {...} in the route, in order */
	const char *body;           /* "" when there is none; NUL-terminated */
	size_t size;
	bool trusted;    /* a good token, or a peer on the UNIX socket who may */
	const char *who; /* for the audit, for people alone: "token", "uid 1000", "anyone" */
	int64_t uid;     /* of a peer on the UNIX socket who showed no token; -1: nobody's */
	int64_t peer_pid; /* on the UNIX socket, as we see it; 0: it is outside what we see, -1: unknown */
	const char
		*id; /* of the request: the client's X-Request-Id when it is sane, else ours */
	unsigned tries; /* how often the handler was asked before (reply_again) */
	void **memory;  /* kept between tries, NULL at first; freed with free() at the end */
	void *impl;
};

/* A parameter of the query, decoded; NULL when it is not there, "" when it has no value. */
const char *request_param(const struct request *q, const char *name);
const char *request_header(const struct request *q, const char *name);

/* Names of the query's parameters as they came, i from 0; NULL past the end. */
const char *request_param_name(const struct request *q, unsigned i);

/* A test may hand in one without impl: headers are then dropped. */
struct reply {
	int status;       /* 200 */
	const char *type; /* "application/json" */
	struct buf body;  /* of at most some MiB */
	void *impl;
};

void reply_header(struct reply *r, const char *name, const char *value); /* both are copied */

/* An application/problem+json (RFC 9457): type "https://..."-less: "about:blank" or a tag such as
 * "tag:gpuward,2026:no-such-device" made of `word`; title from the status; detail: the sentence;
 * remedy: what to do, may be NULL.  Adds Retry-After to 429 and 503. */
void reply_problem(struct reply *r, int status, const char *word, const char *remedy,
		   const char *detail, ...) __attribute__((format(printf, 5, 6)));

/* Bytes that live for ever, for assets.  gz NULL: only plain.  Cached by ETag. */
void reply_static(struct reply *r, const char *type, const void *p, size_t n, const void *gz,
		  size_t gz_n);

/* No answer yet: ask the handler again at that time with the same request. */
void reply_again(struct reply *r, uint64_t at_ns);

/* The connection follows the stream from now on (text/event-stream), after the events that came
 * later than `after` (Last-Event-ID; UINT64_MAX: none).  topics: bits of the stream. */
struct stream;
void reply_stream(struct reply *r, struct stream *s, uint64_t after, unsigned topics);

typedef void route_fn(void *arg, const struct request *q, struct reply *r);

enum route_flag {
	ROUTE_TICK = 1 << 0,   /* without a query the same for all until http_tick() */
	ROUTE_ALIVE = 1 << 1,  /* never cached, answers whatever happens */
	ROUTE_CHANGE = 1 << 2, /* changes something: 401 or 403 unless trusted */
	ROUTE_STREAM =
		1 << 3, /* text/event-stream: for the documentation; see reply_stream() */
	ROUTE_STATIC = 1 << 4, /* never changes while we run */
	ROUTE_TEXT = 1 << 5,   /* chooses its type itself by Accept: cached for each Accept */
};

/* A path such as "/api/v1/devices/{uuid}": braces match one segment, a star at the end the rest. */
struct route {
	unsigned method; /* one enum http_method */
	const char *path;
	route_fn *answer;
	unsigned flags;
};

struct http_listener {
	const char *
		address; /* "127.0.0.1:9490", "[::1]:9490", "unix:/run/gpuward.sock"; NULL with fd */
	int fd; /* -1: to be opened; else given (socket activation), whatever it is of */
};

struct http_config {
	const struct http_listener *listener;
	unsigned listeners;
	const char *token_file;         /* NULL: none */
	const char *tls_cert, *tls_key; /* files; NULL: no TLS.  UNIX sockets never have it */
	bool insecure;                  /* listen beyond loopback without TLS and token */
	const char *const *hosts;       /* beside localhost and the addresses; ends with NULL */
	const char *const *origins;     /* whose pages may ask (CORS); ends with NULL */
	unsigned connections, streams;  /* at most so many */
	uint64_t header_ns, body_ns, idle_ns; /* deadlines */
	uint64_t beat_ns;                     /* between comments on a silent stream; 0: 15 s */
	unsigned unix_mode;                   /* of the socket: 0660 */
	const struct route *route;
	unsigned routes;
	void *arg; /* of the handlers */
	/* For each answer; of r only status, type and body.len are there.  May be NULL. */
	void (*log)(void *arg, const struct request *q, const struct reply *r, double seconds);
};

struct http;

/* Opens the listeners and serves on the loop.  config's strings are copied, the routes borrowed.  0,
 * -GW_E_ARG, -GW_E_PERM, -GW_E_IO (a port in use: the sentence says whose choice to change),
 * -GW_E_NOSUPPORT (built without TLS) or -GW_E_NOMEM, with a sentence in message. */
int http_new(struct loop *l, const struct http_config *config, struct http **ret, char *message,
	     size_t size);
void http_free(struct http *h);

/* New token, certificate or limits, on SIGHUP; listeners stay.  As http_new; with 0 the message is
 * empty, or a warning to be told: the token is gone, and more is open than was. */
int http_reload(struct http *h, const struct http_config *config, char *message, size_t size);

/* What was cached is old. */
void http_tick(struct http *h);

/* Where it listens, "http://127.0.0.1:9490", for i < listeners; NULL past the end. */
const char *http_address(const struct http *h, unsigned i);

struct http_counts {                   /* since the start */
	uint64_t requests[6];          /* by hundreds of the status, [0]: torn off */
	uint64_t accepted, refused;    /* connections */
	uint64_t timeouts;             /* cut by a deadline */
	unsigned connections, streams; /* now */
	uint64_t bytes_sent;           /* of bodies */
};
void http_counts(const struct http *h, struct http_counts *ret);

#endif
