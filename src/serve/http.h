/* http: an HTTP server over libmicrohttpd in our own loop.
 *
 * Hides the library, connections with their deadlines and limits, TLS, UNIX sockets, validation
 * of requests, permissions, compression, ETags, and a cache that is valid until the next tick.
 * Handlers run on the main thread and never block. A handler that cannot answer yet calls
 * reply_again() with the time of its next call. */
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
	enum http_method method; /* A HEAD request also has HTTP_GET. */
	const char *path;        /* the path after %XX was decoded */
	/* the parts of the path that match {...} in the route, in order */
	const char *arg[HTTP_ARGS];
	const char *body; /* the body, NUL-terminated; "": there is none */
	size_t size;
	/* The client has sent the token, or it is connected to the UNIX socket and its user is
	 * permitted. */
	bool trusted;
	/* This client cannot change anything: it is not trusted, and it cannot send a token
	 * because no token is configured. */
	bool read_only;
	const char *who; /* name of the client for logs: "token", "uid 1000" or "anyone" */
	/* user id of a client on the UNIX socket that sent no token; -1: any other client */
	int64_t uid;
	/* Process id of a client on the UNIX socket, in our pid namespace. 0: the client runs
	 * outside of this namespace. -1: unknown. */
	int64_t peer_pid;
	/* Id of the request: the header X-Request-Id of the client if its value is valid, else
	 * a generated id. */
	const char *id;
	/* Number of earlier calls of the handler for this request; see reply_again(). */
	unsigned tries;
	/* *memory is for the handler: it keeps its value between the calls for one request, and
	 * it is NULL at the first call. The server frees it. */
	void **memory;
	void *impl;
};

/* Returns the value of a query parameter, decoded. NULL: the parameter is absent; "": it has no
 * value. */
const char *request_param(const struct request *q, const char *name);
const char *request_header(const struct request *q, const char *name);

/* Returns the name of query parameter i, counted from 0; NULL after the last one. */
const char *request_param_name(const struct request *q, unsigned i);

/* A reply. Tests may use a reply with impl NULL; headers that are added to it are dropped. */
struct reply {
	int status;       /* HTTP status; 200 unless the handler changes it */
	const char *type; /* Content-Type; "application/json" unless the handler changes it */
	struct buf body;  /* at most REPLY_MAX bytes */
	void *impl;
};

/* Adds a header. Copies name and value. */
void reply_header(struct reply *r, const char *name, const char *value);

/* Replies with a problem document (RFC 9457). `word` becomes the end of the document's type,
 * such as "tag:gpuward,2026:no-such-device"; with NULL, the type is "about:blank". The title
 * follows from the status. detail is the format of the sentence under the key "detail"; remedy
 * says what to do, or is NULL. A reply with status 429 or 503 gets the header Retry-After,
 * unless word is "no-gpu", so that a client does not retry forever. */
void reply_problem(struct reply *r, int status, const char *word, const char *remedy,
		   const char *detail, ...) __attribute__((format(printf, 5, 6)));

/* Replies with bytes that never change, such as a file of the web page. gz points to a gzipped
 * copy of these bytes; NULL if there is no such copy. */
void reply_static(struct reply *r, const char *type, const void *p, size_t n, const void *gz,
		  size_t gz_n);

/* Postpones the reply: the server calls the handler again at at_ns with the same request. */
void reply_again(struct reply *r, uint64_t at_ns);

/* Makes the connection follow the stream (text/event-stream). The client gets the events with
 * an id above `after`; UINT64_MAX: only new events. topics: bits of enum stream_topic. */
struct stream;
void reply_stream(struct reply *r, struct stream *s, uint64_t after, unsigned topics);

typedef void route_fn(void *arg, const struct request *q, struct reply *r);

enum route_flag {
	/* All requests without a query get the same reply until the next http_tick(). */
	ROUTE_TICK = 1 << 0,
	/* The reply is never cached. Requests for the route are answered even if all
	 * connections are in use. */
	ROUTE_ALIVE = 1 << 1,
	/* A request changes something. Untrusted clients get 401 or 403. */
	ROUTE_CHANGE = 1 << 2,
	ROUTE_STATIC = 1 << 3, /* The reply never changes while the service runs. */
	/* The Accept header selects the type, so replies are cached per Accept header. */
	ROUTE_TEXT = 1 << 4,
};

/* One route. In a path such as "/api/v1/devices/{uuid}", a name in braces matches one segment;
 * a star at the end matches all further segments. */
struct route {
	unsigned method; /* one value of enum http_method */
	const char *path;
	route_fn *answer;
	unsigned flags;
};

struct http_listener {
	/* "127.0.0.1:9490", "[::1]:9490" or "unix:/run/gpuward.sock"; NULL if fd is given */
	const char *address;
	/* a listening socket from the service manager; -1: the server opens the address */
	int fd;
};

struct http_config {
	const struct http_listener *listener;
	unsigned listeners;
	const char *token_file; /* NULL: there is no token */
	/* Paths of the certificate and of its key. NULL: no TLS. UNIX sockets never use TLS. */
	const char *tls_cert, *tls_key;
	/* Addresses that other machines can reach are allowed without TLS and without a
	 * token. */
	bool insecure;
	/* Host names accepted in addition to localhost and the addresses; NULL-terminated */
	const char *const *hosts;
	const char *const *origins; /* allowed web origins (CORS); NULL-terminated */
	/* maximum number of connections and maximum number of streams */
	unsigned connections, streams;
	/* Maximum time until the header of a request is complete, until its body is complete,
	 * and between two requests. */
	uint64_t header_ns, body_ns, idle_ns;
	/* Time between two keep-alive comments on a stream. 0: 15 s. */
	uint64_t beat_ns;
	unsigned unix_mode; /* permissions of the socket file, such as 0660 */
	const struct route *route;
	unsigned routes;
	void *arg; /* first argument of the handlers */
	/* Called with each reply of a handler. Adds the headers that all these replies have.
	 * May be NULL. */
	void (*mark)(void *arg, struct reply *r);
	/* Called after each reply; r has only status, type and body.len. May be NULL. */
	void (*log)(void *arg, const struct request *q, const struct reply *r, double seconds);
};

struct http;

/* Opens the listeners and serves requests on the loop. Copies the strings of config, but the
 * routes must outlive the server. Returns 0, or an error with a message: -GW_E_ARG, -GW_E_PERM,
 * -GW_E_IO (such as a port in use), -GW_E_NOSUPPORT (built without TLS) or -GW_E_NOMEM. */
int http_new(struct loop *l, const struct http_config *config, struct http **ret, char *message,
	     size_t size);
void http_free(struct http *h);

/* Applies a new token, certificate and limits after SIGHUP; the listeners stay open. Returns
 * the same errors as http_new(). After 0, message is empty or is a warning that the token was
 * removed. */
int http_reload(struct http *h, const struct http_config *config, char *message, size_t size);

/* Marks all cached replies as old. The service calls it after each tick. */
void http_tick(struct http *h);

/* Returns the URL of listener i, such as "http://127.0.0.1:9490"; NULL after the last one. */
const char *http_address(const struct http *h, unsigned i);

/* Counts since the server started. */
struct http_counts {
	/* requests[n]: number of replies with a status from n00 to n99. requests[0]: number of
	 * requests that the client aborted. */
	uint64_t requests[6];
	uint64_t accepted, refused; /* number of connections */
	/* Number of connections that were closed because a deadline passed. */
	uint64_t timeouts;
	/* Number of connections and of streams that are open now. */
	unsigned connections, streams;
	uint64_t bytes_sent; /* bytes of reply bodies */
};
void http_counts(const struct http *h, struct http_counts *ret);

#endif
