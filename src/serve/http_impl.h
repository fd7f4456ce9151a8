/* http_impl: what the files of http share, and nobody else sees.
 *
 *   http.c         the whole: settings, the library, beginning and end
 *   http_conn.c    connections and their deadlines
 *   http_call.c    the way of a request through the others
 *   http_admit.c   which requests are let in
 *   http_send.c    sending, and the cache
 *   http_route.c   which route a path belongs to
 *   http_auth.c    who asks, and may they
 *   http_listen.c  sockets
 *   http_reply.c   what a reply is made of: headers, problems, compression
 *   http_follow.c  connections that follow a stream
 *   http_check.c   pure checks of texts */
#ifndef GW_SERVE_HTTP_IMPL_H
#define GW_SERVE_HTTP_IMPL_H

#include "http.h"
#include "http_check.h"
#include "stream.h"

#include "base/clock.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <sys/types.h>

#define REPLY_HEADERS 8
#define REPLY_MAX     (32 * 1024 * 1024)
#define PARAMS        32
#define GZIP_LEAST    512 /* below that it saves no packet */
#define ID_SIZE       72
#define ETAG_SIZE     48

/* ---- listeners */

struct listener {
	struct http *http;
	struct loop_source *source;
	int fd;
	bool unix_socket, tls, loopback, wildcard;
	bool ours;          /* the file of a UNIX socket is ours to remove */
	char path[108];     /* of it */
	char host[64];      /* the literal address */
	char host_port[72]; /* as a Host header has it */
	char url[128];
};

/* Opens or takes over every listener of the configuration.  As http_new. */
int listen_open(struct listener *l, const struct http_listener *from,
		const struct http_config *config, char *message, size_t size);
void listen_close(struct listener *l);

/* May it be open with this configuration?  0 or -GW_E_PERM with a sentence. */
int listen_allowed(const struct listener *l, const struct http_config *config, char *message,
		   size_t size);
void listen_set_tls(struct listener *l, bool tls);

/* ---- routes */

struct router;
int router_new(const struct route *route, unsigned routes, struct router **ret);
void router_free(struct router *r);

/* Index of the route with exactly this path and method, -1: none. */
int router_exact(const struct router *r, const char *path, unsigned method);

/* Index, or -1; then *ret_methods has the methods that the path does have (0: no such path).
 * arg: pieces of path, which is cut into them. */
int router_find(const struct router *r, char *path, unsigned method, const char **arg,
		unsigned *ret_methods);

/* ---- who may */

struct auth {
	bool token;
	char digest[65]; /* of the token: what is compared */
	struct {
		uint64_t peer;
		uint64_t since_ns;
		unsigned failures;
	} blocked[64]; /* by hash of the address of a peer; the latest of those who meet */
};

/* NULL: no token.  0, -GW_E_ARG, -GW_E_PERM or -GW_E_IO with a sentence. */
int auth_load(struct auth *a, const char *token_file, char *message, size_t size);

/* Of an Authorization header.  A good token is good always; AUTH_BLOCKED: wrong, and not the first
 * of the last seconds. */
enum auth_verdict { AUTH_GOOD, AUTH_WRONG, AUTH_BLOCKED };
enum auth_verdict auth_check(struct auth *a, const char *authorization, uint64_t peer,
			     uint64_t now_ns);

/* ---- bodies, shared by the replies that send them */

struct blob {
	unsigned refs;
	size_t size;
	void *memory; /* ours to free, or NULL */
	const void *p;
};

/* Takes the text of the buf, which is empty then.  NULL: no memory. */
struct blob *blob_take(struct buf *b);
struct blob *blob_static(const void *p, size_t n);
struct blob *blob_gzip(const struct blob *from); /* NULL: no memory, or no smaller */
void blob_drop(struct blob *b);

/* ---- replies */

struct reply_impl {
	struct {
		char *name, *value;
	} header[REPLY_HEADERS];
	unsigned headers;
	bool is_static; /* reply_static() gave these: */
	const void *p, *gz;
	size_t n, gz_n;
	uint64_t again_ns; /* reply_again() */
	struct stream *stream;
	uint64_t after;
	unsigned topics;
};

void reply_init(struct reply *r, struct reply_impl *impl);
void reply_done(struct reply *r);

/* What a reply is made of, once: in the cache until the next tick, or just for one request. */
struct entry {
	struct entry *next; /* of the same route, for another Accept */
	char *accept;       /* of ROUTE_TEXT: for which; else NULL */
	uint64_t tick;
	int status;
	struct reply_impl headers;
	char type[96];
	char etag[ETAG_SIZE]; /* without the last quote: the coding comes before it; "": none */
	unsigned flags;       /* of the route */
	struct blob *plain, *gzip;
	bool gzip_tried;
	struct MHD_Response *ready[2]; /* plain and compressed, as everybody gets it */
	struct MHD_Response *same[2];  /* 304 */
};

/* Takes what is in r.  NULL: no memory. */
struct entry *entry_new(struct reply *r, unsigned flags);
void entry_free(struct entry *e);

/* The library's reply with what every reply has; paged: a large body is sent without copying, which
 * needs connections without TLS; id, origin: NULL for none.  NULL: no memory. */
struct MHD_Response *entry_response(struct entry *e, bool gzip, bool same, bool paged,
				    const char *id, const char *origin, bool vary_origin);

/* The form that the client wants: gzip? and 304? */
bool entry_wants_gzip(struct entry *e, const char *encoding);
bool entry_is_same(const struct entry *e, bool gzip, const char *match);

/* Headers that every reply has. */
void add_common_headers(struct MHD_Response *m);

const char *status_title(int status);

/* ---- connections */

enum conn_state {
	CONN_HEAD,   /* no request yet: the first to go when there are too many */
	CONN_BUSY,   /* a request is read or answered */
	CONN_IDLE,   /* between requests */
	CONN_STREAM, /* follows a stream */
	CONN_PARKED, /* waits for reply_again() */
	CONN_STATES,
};

/* Headers of a request that are looked at; borrowed from the library. */
struct heads {
	const char *host, *length, *transfer, *accept, *encoding, *match, *authorization,
		*origin, *id, *type, *method;
	unsigned hosts, lengths, transfers, authorizations, params;
	const char *next; /* where the next line has to begin; NULL: that is not looked at */
	bool bad;         /* a line that is no header, or a NUL */
};

struct call;
struct conn {
	struct conn *prev, *next; /* in the list of its state, oldest first */
	struct http *http;
	struct MHD_Connection *mhd;
	const struct listener *from;
	uint64_t since_ns;
	uint64_t peer; /* hash of its address */
	struct call *call;
	enum conn_state state;
	int fd;
	uid_t uid;      /* of a peer on a UNIX socket */
	int64_t pid;    /* likewise, as we see it; -1: unknown */
	bool suspended; /* the library does not look at it */
	bool tls;
	bool cut; /* it was shut down by us */
	bool replied;
	bool closing;       /* with the reply: where the next request begins is not certain */
	struct heads heads; /* of the request in hand */
	struct follower follower; /* of CONN_STREAM */
};

struct conn_list {
	struct conn *first, *last;
	unsigned count;
};

/* A request that is not answered out of the cache. */
struct call {
	struct conn *conn;
	int route; /* -1: none */
	bool head; /* HEAD */
	bool bad_query;
	uint64_t received; /* of the body */
	struct request q;
	char *path, *pieces;
	struct {
		char *name, *value;
	} param[PARAMS];
	unsigned params;
	struct buf body;
	void *memory;
	struct loop_source *timer;
	uint64_t start_ns;
	char id[ID_SIZE];
	char who[32];
};

struct http {
	struct loop *loop;
	const struct route *route;
	unsigned routes;
	void *arg;
	void (*log)(void *arg, const struct request *q, const struct reply *r, double seconds);
	struct listener *listener;
	unsigned listeners;
	struct MHD_Daemon *plain, *tls;
	struct loop_source *plain_source, *tls_source;
	struct loop_source *again;    /* the library has more to do */
	struct loop_source *deadline; /* the earliest of all connections */
	struct loop_source *rest;     /* accepting goes on */
	uint64_t deadline_at;
	struct loop_source *beat;
	struct router *router;
	struct entry **cache; /* for each route */
	uint64_t tick;
	struct conn_list list[CONN_STATES];
	uint64_t limit_ns[CONN_STATES]; /* how long in that state; 0: for ever */
	uint64_t beat_ns;
	uint64_t now_ns;                    /* of this round */
	unsigned connections, streams, cut; /* at most; at most; shut down and not gone yet */
	unsigned shaking;                   /* with TLS and no request yet */
	struct auth auth;
	char **hosts, **origins;
	char *tls_cert, *tls_key; /* the files' texts */
	unsigned peak;            /* connections since memory was given back */
	uint64_t id_base, ids;
	struct http_counts counts;
	const struct listener *accepting; /* while a connection is handed over */
	int accepting_fd;
	uint64_t peer_hash;
	uid_t peer_uid;
	int64_t peer_pid;
	bool in_place; /* the library leaves heads as they came, and reads them leniently */
	bool running;  /* inside the library */
	bool poked;    /* meanwhile */
};

void conn_set_state(struct conn *c, enum conn_state state);
void conn_suspend(struct conn *c);
void conn_resume(struct conn *c);
void conn_cut(struct conn *c);

/* Called by the library for a connection that comes or goes, and by the loop. */
void conn_notify(void *arg, struct MHD_Connection *mhd, void **context,
		 enum MHD_ConnectionNotificationCode code);
void conn_accept(void *arg, int listener, uint32_t events);
void conn_deadline(void *arg, uint64_t now_ns);
void conn_rest(void *arg, uint64_t now_ns); /* accepting goes on */

/* The library is run now; soon. */
void http_run(struct http *h);
void http_poke(struct http *h);

/* ---- letting in (http_admit.c) */

enum admitted { PASSED, ANSWERED, FAILED };

/* All checks of a request whose head is there: finds its route, its parameters and who asks. */
enum admitted admit_all(struct conn *c, const char *url, const char *method,
			const char *version);
bool admit_host(const struct http *h, const struct listener *from, const char *text);
bool admit_body(const struct heads *heads); /* does it have one? */
bool admit_listed(char *const *list, const char *text);

/* ---- sending (http_send.c) */

/* The answer that is in the cache, for one who has no wishes of their own. */
enum MHD_Result send_cached(struct conn *c, struct entry *e, const char *url);
enum MHD_Result send_entry(struct conn *c, struct entry *e);

/* Sends what is in r, which is empty then. */
enum MHD_Result send_reply(struct conn *c, struct reply *r);
enum MHD_Result send_refusal(struct conn *c, int status, const char *word, const char *remedy,
			     const char *detail, ...) __attribute__((format(printf, 5, 6)));
void send_count(struct conn *c, int status, size_t bytes);
void send_count_status(struct http *h, unsigned status); /* what the library answered */
void send_log(struct http *h, const struct request *q, int status, const char *type,
	      size_t bytes, double seconds);

/* What is kept of a route; all: that of ROUTE_STATIC too. */
struct entry *cache_find(struct http *h, int route, const char *accept);
void cache_drop(struct http *h, int route, bool all);

/* ---- the way of a request (http_call.c) */

/* What the library calls: for a request, its body, its end. */
enum MHD_Result call_handle(void *arg, struct MHD_Connection *mhd, const char *url,
			    const char *method, const char *version, const char *upload,
			    size_t *upload_size, void **request);
void call_completed(void *arg, struct MHD_Connection *mhd, void **request,
		    enum MHD_RequestTerminationCode code);

/* The reply that follows a stream; NULL: no memory. */
struct MHD_Response *follow_response(struct conn *c, const struct reply_impl *r);
void follow_beat(struct http *h, uint64_t now_ns);

#endif
