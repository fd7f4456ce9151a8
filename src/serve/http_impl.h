/* http_impl: shared by the files of http; no other file includes it.
 *
 *   http.c         settings, the library, start and stop
 *   http_conn.c    connections and their deadlines; following a stream
 *   http_call.c    the path of a request; finds its route
 *   http_admit.c   validation and permissions of requests
 *   http_listen.c  sockets
 *   http_reply.c   replies: headers, problems, compression, sending, the cache
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
#define GZIP_LEAST    512 /* compressing a smaller body saves no packet */
#define ID_SIZE       72
#define ETAG_SIZE     48
#define CACHE_NS      (100 * NS_PER_MS)
#define PEER_BUCKETS  256
/* bytes that the library has per connection, for the headers of request and reply */
#define POOL (12 * 1024)
/* maximum bytes of a request header in POOL; the rest is for the reply */
#define HEAD_MAX (9 * 1024)
/* bytes in POOL that the library needs to manage one header or parameter */
#define HEAD_LINE_SIZE 64

/* ---- listeners */

struct listener {
	struct http *http;
	struct loop_source *source;
	int fd;
	bool unix_socket, tls, loopback, wildcard;
	bool ours;          /* we created the UNIX socket file and remove it */
	char path[108];     /* path of the UNIX socket */
	char host[64];      /* the literal address */
	char host_port[72]; /* as in a Host header */
	char url[128];
};

/* Opens or adopts a listener. Returns the same as http_new(). */
int listen_open(struct listener *l, const struct http_listener *from,
		const struct http_config *config, char *message, size_t size);
void listen_close(struct listener *l);

/* Checks whether this configuration allows the listener. Returns 0, or -GW_E_PERM with a
 * message. */
int listen_allowed(const struct listener *l, const struct http_config *config, char *message,
		   size_t size);
void listen_set_tls(struct listener *l, bool tls);

/* ---- routes */

struct router;
int router_new(const struct route *route, unsigned routes, struct router **ret);
void router_free(struct router *r);

/* Returns the index of the route with exactly this path and method; -1: none. */
int router_exact(const struct router *r, const char *path, unsigned method);

/* Finds a route and splits path: arg gets the values of its pattern. Returns the index, or -1
 * with the methods of the path in *ret_methods (0: no such path). */
int router_find(const struct router *r, char *path, unsigned method, const char **arg,
		unsigned *ret_methods);

/* ---- permissions */

struct auth {
	bool token;
	char digest[65]; /* SHA-256 of the token */
	struct {
		uint64_t peer;
		uint64_t since_ns;
		unsigned failures;
	} blocked[64]; /* by hash of the client's address; a new client replaces the old */
};

/* Reads the token; token_file NULL: no token. Returns 0, or -GW_E_ARG, -GW_E_PERM or -GW_E_IO
 * with a message. */
int auth_load(struct auth *a, const char *token_file, char *message, size_t size);

/* Checks an Authorization header. A valid token is always accepted. AUTH_BLOCKED: this address
 * sent too many wrong tokens within seconds. */
enum auth_verdict { AUTH_GOOD, AUTH_WRONG, AUTH_BLOCKED };
enum auth_verdict auth_check(struct auth *a, const char *authorization, uint64_t peer,
			     uint64_t now_ns);

/* ---- bodies, shared by replies */

struct blob {
	unsigned refs;
	size_t size;
	void *memory; /* memory to free, or NULL */
	const void *p;
};

/* ---- replies */

struct reply_impl {
	struct {
		char *name, *value;
	} header[REPLY_HEADERS];
	unsigned headers;
	bool is_static; /* from reply_static(): */
	const void *p, *gz;
	size_t n, gz_n;
	uint64_t again_ns; /* reply_again() */
	struct stream *stream;
	uint64_t after;
	unsigned topics;
};

void reply_init(struct reply *r, struct reply_impl *impl);
void reply_done(struct reply *r);

/* A finished reply: in the cache until the next tick, at most CACHE_NS; or for one request. */
struct entry {
	struct entry *next; /* entry of the same route for another Accept */
	char *accept;       /* Accept header of a ROUTE_TEXT route; else NULL */
	uint64_t tick, made_ns;
	int status;
	struct reply_impl headers;
	char type[96];
	/* ETag without its last quote: the encoding and the quote are appended; "": no ETag */
	char etag[ETAG_SIZE];
	unsigned flags; /* flags of the route */
	struct blob *plain, *gzip;
	bool gzip_tried;
	struct MHD_Response *ready[2]; /* plain and compressed, shared by requests */
	struct MHD_Response *same[2];  /* 304 */
};

/* Takes the contents of r. NULL: out of memory. */
struct entry *entry_new(struct reply *r, unsigned flags);
void entry_free(struct entry *e);

/* Makes the library's reply with all headers; NULL: out of memory. id, origin: NULL
 * for none. */
struct MHD_Response *entry_response(struct entry *e, bool gzip, bool same, const char *id,
				    const char *origin, bool vary_origin);

/* entry_wants_gzip(): true if the client accepts gzip. entry_is_same(): true if the client
 * already has this version (304). */
bool entry_wants_gzip(struct entry *e, const char *encoding);
bool entry_is_same(const struct entry *e, bool gzip, const char *match);

/* Adds the headers that every reply has. */
void add_common_headers(struct MHD_Response *m);

/* ---- connections */

enum conn_state {
	CONN_HEAD,   /* no request yet */
	CONN_BODY,   /* reading the body of a request */
	CONN_BUSY,   /* answering a request */
	CONN_IDLE,   /* between requests */
	CONN_STREAM, /* follows a stream */
	CONN_PARKED, /* waits for reply_again() */
	CONN_STATES,
};

/* The headers that we use; borrowed from the library. */
struct heads {
	const char *host, *length, *transfer, *accept, *encoding, *match, *authorization,
		*origin, *id, *type, *method;
	unsigned hosts, lengths, transfers, authorizations, origins, params, lines;
	const char *next; /* where the next line must begin; NULL: not checked */
	bool bad;         /* invalid line, or a NUL */
};

struct call;
struct conn {
	/* neighbours in the list of connections in this state, oldest first */
	struct conn *prev, *next;
	struct http *http;
	struct MHD_Connection *mhd;
	const struct listener *from;
	uint64_t since_ns;
	/* hash of the client's address or, on a UNIX socket, of the client's user */
	uint64_t peer;
	struct call *call;
	enum conn_state state;
	bool spare; /* beyond the limit: only ROUTE_ALIVE is answered */
	int fd;
	uid_t uid;      /* user of a client on a UNIX socket */
	int64_t pid;    /* pid of that client, in our pid namespace; -1: unknown */
	bool suspended; /* suspended in the library */
	bool tls;
	bool cut; /* we have shut the connection down */
	bool replied;
	bool closing; /* close after the reply: it is uncertain where the next request begins */
	size_t target_size; /* length of the current request's target, up to the first NUL */
	struct heads heads; /* headers of the current request */
	struct follower follower; /* used in CONN_STREAM */
};

struct conn_list {
	struct conn *first, *last;
	unsigned count;
};

/* A request that is not answered from the cache. */
struct call {
	struct conn *conn;
	int route; /* -1: none */
	bool head; /* HEAD */
	bool bad_query;
	uint64_t received; /* bytes of the body received so far */
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

/* The connection that is being added: conn_notify() copies these to its struct conn. */
struct http_accept {
	const struct listener *from;
	int fd;
	bool spare;
	uint64_t peer; /* hash */
	uid_t uid;
	int64_t pid;
};

/* Functions of the user of the server; arg is passed to them and to the routes. */
struct http_hooks {
	void *arg;
	void (*log)(void *arg, const struct request *q, const struct reply *r, double seconds);
	void (*mark)(void *arg, struct reply *r);
};

/* The library: a daemon without TLS and one with TLS. */
struct http_library {
	struct MHD_Daemon *plain, *tls;
	struct loop_source *plain_source, *tls_source;
	bool in_place; /* the library leaves headers in place and parses them leniently */
	bool running;  /* now inside the library */
	bool poked;    /* http_poke() was called while running */
};

struct http_timers {
	struct loop_source *again;    /* runs the library again, because it has more to do */
	struct loop_source *deadline; /* earliest deadline of all connections */
	uint64_t deadline_ns;         /* when `deadline` expires; 0: not set */
	struct loop_source *rest;     /* resumes accepting */
	struct loop_source *beat;
};

struct http_limits {
	uint64_t state_ns[CONN_STATES]; /* maximum time per state; 0: unlimited */
	uint64_t beat_ns;
	unsigned connections; /* maximum */
	unsigned streams;     /* maximum */
};

/* Settings that a reload may change; all are read before any is applied. */
struct http_settings {
	struct auth auth;
	char **hosts, **origins;
	char *cert, *key; /* contents of the files */
};

/* Numbers of connections. */
struct http_load {
	unsigned cut;     /* connections that are shut down but not closed yet */
	unsigned shaking; /* connections in a TLS handshake */
	unsigned spares;  /* connections above the limit */
	unsigned peer_count[PEER_BUCKETS]; /* by hash of the peer */
	unsigned peak; /* highest number of connections since memory was trimmed */
};

struct http {
	struct loop *loop;
	const struct route *route;
	unsigned routes;
	struct http_hooks hook;
	struct listener *listener;
	unsigned listeners;
	struct http_library library;
	struct http_timers timer;
	struct router *router;
	struct entry **cache; /* for each route */
	uint64_t tick;
	struct conn_list list[CONN_STATES];
	struct http_limits limit;
	struct http_settings settings;
	struct http_load load;
	uint64_t now_ns; /* time at the start of this round */
	uint64_t id_base, ids;
	struct http_counts counts;
	struct http_accept accept;
};

void conn_set_state(struct conn *c, enum conn_state state);
void conn_suspend(struct conn *c);
void conn_resume(struct conn *c);

/* Called by the library when a connection opens or closes, and by the loop. */
void conn_notify(void *arg, struct MHD_Connection *mhd, void **context,
		 enum MHD_ConnectionNotificationCode code);
void conn_accept(void *arg, int listener, uint32_t events);
void conn_deadline(void *arg, uint64_t now_ns);
void conn_rest(void *arg, uint64_t now_ns); /* resumes accepting */

/* http_run() runs the library now, http_poke() soon. */
void http_run(struct http *h);
void http_poke(struct http *h);

/* ---- validation (http_admit.c) */

enum admitted { PASSED, ANSWERED, FAILED };

/* Makes all checks of a request with a complete header, and finds its route, parameters and
 * client. */
enum admitted admit_all(struct conn *c, const char *url, const char *method,
			const char *version);
bool admit_host(const struct http *h, const struct listener *from, const char *text);
bool admit_listed(char *const *list, const char *text);

/* ---- sending (http_reply.c) */

/* Sends a cached reply to a request without its own id, token or origin. */
enum MHD_Result send_cached(struct conn *c, struct entry *e, const char *url);
enum MHD_Result send_entry(struct conn *c, struct entry *e);

/* Sends the contents of r, which is then empty. */
enum MHD_Result send_reply(struct conn *c, struct reply *r);
enum MHD_Result send_refusal(struct conn *c, int status, const char *word, const char *remedy,
			     const char *detail, ...) __attribute__((format(printf, 5, 6)));
void send_count(struct conn *c, int status, size_t bytes);
/* counts a reply that the library sent */
void send_count_status(struct http *h, unsigned status);
void send_log(struct http *h, const struct request *q, int status, const char *type,
	      size_t bytes, double seconds);

/* cache_find() returns the cached entry of a route, or NULL. cache_drop() drops the entries of
 * a route that are older than this tick; all: drops every entry, also those of ROUTE_STATIC. */
struct entry *cache_find(struct http *h, int route, const char *accept);
void cache_drop(struct http *h, int route, bool all);

/* ---- requests (http_call.c) */

/* Called by the library. call_target() gets the target of a request as it was sent,
 * call_handle() the request and its body, call_completed() its end. */
void *call_target(void *arg, const char *target, struct MHD_Connection *mhd);
enum MHD_Result call_handle(void *arg, struct MHD_Connection *mhd, const char *url,
			    const char *method, const char *version, const char *upload,
			    size_t *upload_size, void **request);
void call_completed(void *arg, struct MHD_Connection *mhd, void **request,
		    enum MHD_RequestTerminationCode code);

/* Makes the reply that follows a stream; NULL: out of memory. */
struct MHD_Response *follow_response(struct conn *c, const struct reply_impl *r);
void follow_beat(struct http *h, uint64_t now_ns);

#endif
