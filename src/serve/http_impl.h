/* http_impl: declarations shared by http*.c and their test; no other file includes it.
 *
 * http.c        settings, the library, start and stop
 * http_conn.c   listening sockets; connections and their deadlines; following a stream
 * http_call.c   handles a request from its first byte to the handler; finds its route
 * http_admit.c  validation and permissions of requests
 * http_reply.c  replies: headers, problems, compression, sending, the cache
 * http_check.c  pure checks of texts */
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
#define GZIP_LEAST \
	512 /* bytes; a smaller body is not compressed, because that saves no packet */
#define ID_SIZE      72
#define ETAG_SIZE    48
#define CACHE_NS     (100 * NS_PER_MS)
#define PEER_BUCKETS 256
/* Bytes that the library allocates per connection, for the headers of request and reply. */
#define POOL (12 * 1024)
/* Maximum bytes of a request header in POOL. The rest of POOL is for the reply. */
#define HEAD_MAX (9 * 1024)
/* Bytes of POOL that the library uses for one header line or one query parameter, in addition
 * to its text. */
#define HEAD_LINE_SIZE 64

struct listener {
	struct http *http;
	struct loop_source *source;
	int fd;
	bool unix_socket, tls;
	bool loopback; /* Only this machine can reach the address. */
	bool wildcard; /* The socket listens on all addresses of the machine. */
	/* The service created the UNIX socket file. When the service stops, it removes this
	 * file, unless the path then leads to another file. */
	bool ours;
	dev_t dev; /* device and inode of the UNIX socket file */
	ino_t ino;
	char path[108];     /* path of the UNIX socket */
	char host[64];      /* the address without port */
	char host_port[72]; /* address and port as in a Host header */
	char url[128];
};

/* Opens the address, or uses the given socket. Returns the same errors as http_new(). */
int listen_open(struct listener *l, const struct http_listener *from,
		const struct http_config *config, char *message, size_t size);
void listen_close(struct listener *l);

/* Checks whether this configuration allows the listener. Returns 0, or -GW_E_PERM with a
 * message. */
int listen_allowed(const struct listener *l, const struct http_config *config, char *message,
		   size_t size);
void listen_set_tls(struct listener *l, bool tls);

struct router;
int router_new(const struct route *route, unsigned routes, struct router **ret);
void router_free(struct router *r);

/* Returns the index of the route with exactly this path and method; -1: none. */
int router_exact(const struct router *r, const char *path, unsigned method);

/* Finds a route and returns its index. Splits path in place: arg gets the parts that match the
 * pattern. Returns -1 if there is no route. *ret_methods then has the methods that are allowed
 * for the path, or 0 if no route has this path. */
int router_find(const struct router *r, char *path, unsigned method, const char **arg,
		unsigned *ret_methods);

struct auth {
	bool token;      /* A token is configured. */
	char digest[65]; /* SHA-256 of the token */
	/* The index is a hash of the client's address. If two clients have the same hash, the
	 * later client replaces the earlier one. */
	struct {
		uint64_t peer;
		uint64_t since_ns;
		unsigned failures;
	} blocked[64];
};

/* Reads the token. If token_file is NULL, there is no token. Returns 0, or -GW_E_ARG,
 * -GW_E_PERM or -GW_E_IO with a message. */
int auth_load(struct auth *a, const char *token_file, char *message, size_t size);

/* Checks an Authorization header. AUTH_BLOCKED means that this address sent too many wrong
 * tokens within seconds. A valid token is accepted even from a blocked address. */
enum auth_verdict { AUTH_GOOD, AUTH_WRONG, AUTH_BLOCKED };
enum auth_verdict auth_check(struct auth *a, const char *authorization, uint64_t peer,
			     uint64_t now_ns);

struct blob {
	unsigned refs;
	size_t size;
	void *memory; /* memory to free, or NULL */
	const void *p;
};

struct reply_impl {
	struct {
		char *name, *value;
	} header[REPLY_HEADERS];
	unsigned headers;
	bool is_static; /* Set by reply_static(), together with the next four members. */
	const void *p, *gz;
	size_t n, gz_n;
	/* Set by reply_again(): time of the next call of the handler. 0: none. */
	uint64_t again_ns;
	struct stream *stream;
	uint64_t after;
	unsigned topics;
};

void reply_init(struct reply *r, struct reply_impl *impl);
void reply_done(struct reply *r);

/* A finished reply. It belongs to one request, or it is in the cache. A cached entry is valid
 * until the next tick, but at most for CACHE_NS. */
struct entry {
	struct entry *next; /* next entry of the same route, for another Accept header */
	char *accept; /* Accept header of the request; NULL: the route has no ROUTE_TEXT */
	uint64_t tick, made_ns;
	int status;
	struct reply_impl headers;
	char type[96];
	/* The ETag without its last quote; "": no ETag. The encoding and the last quote are
	 * appended when the ETag is sent. */
	char etag[ETAG_SIZE];
	unsigned flags;            /* flags of the route */
	struct blob *plain, *gzip; /* the body; gzip NULL: it is not compressed */
	bool gzip_tried;           /* Compression was tried and is not tried again. */
	/* The reply objects of the library, plain and gzipped. All requests share these
	 * objects. */
	struct MHD_Response *ready[2];
	struct MHD_Response *same[2]; /* the reply objects of the library for status 304 */
};

/* Makes an entry from r. After the call, r is empty. Returns NULL if out of memory. */
struct entry *entry_new(struct reply *r, unsigned flags);
void entry_free(struct entry *e);

/* Makes the reply object of the library with all headers. If same is true, this is a reply with
 * status 304 and without a body. id and origin are values of headers; if one is NULL, the reply
 * does not have that header. Returns NULL if out of memory. */
struct MHD_Response *entry_response(struct entry *e, bool gzip, bool same, const char *id,
				    const char *origin, bool vary_origin);

/* entry_use_gzip() returns true if the gzipped body must be sent; it makes this body for the first
 * client that accepts gzip. entry_is_same() returns true if the client already has this version;
 * the reply is then 304. */
bool entry_use_gzip(struct entry *e, const char *encoding);
bool entry_is_same(const struct entry *e, bool gzip, const char *match);

/* Adds the headers that every reply has. */
void add_common_headers(struct MHD_Response *m);

enum conn_state {
	CONN_HEAD,   /* The connection waits for its first request. */
	CONN_BODY,   /* The server reads the body of a request. */
	CONN_BUSY,   /* The server answers a request. */
	CONN_IDLE,   /* The connection waits for its next request. */
	CONN_STREAM, /* The connection follows a stream. */
	CONN_PARKED, /* The request waits for the time of reply_again(). */
	CONN_STATES,
};

/* The headers that we use; borrowed from the library. */
struct heads {
	const char *host, *length, *transfer, *accept, *encoding, *match, *authorization,
		*origin, *id, *type, *method, *key;
	unsigned hosts, lengths, transfers, authorizations, origins, types, keys, params, lines;
	/* The next header line must begin here. NULL: lines are not checked. */
	const char *next;
	bool bad; /* A line is invalid or contains a NUL. */
};

struct call;
struct conn {
	/* Neighbours in the list of all connections that are in the same state. The list has
	 * the oldest first. */
	struct conn *prev, *next;
	struct http *http;
	struct MHD_Connection *mhd;
	const struct listener *from;
	uint64_t since_ns;
	/* Hash of the client's address or, on a UNIX socket, of the client's user id. */
	uint64_t peer;
	struct call *call;
	enum conn_state state;
	/* The connection was accepted with TLS. A reload may have changed the listener since
	 * then. */
	bool tls;
	/* The connection was accepted above the limit. Only its requests for routes with
	 * ROUTE_ALIVE are answered. */
	bool spare;
	int fd;
	uid_t uid;      /* user id of a client on a UNIX socket */
	int64_t pid;    /* process id of that client in our pid namespace; -1: unknown */
	bool suspended; /* The library has suspended the connection. */
	bool cut;       /* The socket is shut down, but not closed yet. */
	bool replied;
	/* Close the connection after the reply, because it is unknown where the next request
	 * begins. */
	bool closing;
	size_t target_size;       /* bytes of the request target, up to the first NUL */
	struct heads heads;       /* headers of the current request */
	struct follower follower; /* used only in state CONN_STREAM */
};

struct conn_list {
	struct conn *first, *last;
	unsigned count;
};

/* A request that the cache does not answer. */
struct call {
	struct conn *conn;
	int route; /* index of the route; -1: none */
	bool head; /* The method is HEAD. */
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

/* Facts about the connection that is being added to the library. conn_notify() copies these
 * facts to the struct conn of the connection. */
struct http_accept {
	const struct listener *from;
	int fd;
	bool spare;
	uint64_t peer; /* hash of the address or user */
	uid_t uid;
	int64_t pid;
};

/* Hooks of http_config; arg is passed to them and to the handlers. */
struct http_hooks {
	void *arg;
	void (*log)(void *arg, const struct request *q, const struct reply *r, double seconds);
	void (*mark)(void *arg, struct reply *r);
};

/* The library's daemons: one without and one with TLS. */
struct http_library {
	struct MHD_Daemon *plain, *tls;
	struct loop_source *plain_source, *tls_source;
	/* The library leaves headers where they arrived in memory, and accepts invalid
	 * lines. */
	bool in_place;
	bool running; /* A call of the library is running. */
	bool poked;   /* http_poke() was called while `running` was true. */
};

struct http_timers {
	/* Runs the library again, because the library has more to do. */
	struct loop_source *again;
	struct loop_source *deadline; /* Expires at the earliest deadline of all connections. */
	/* Monotonic time at which `deadline` expires. 0: not set. */
	uint64_t deadline_ns;
	struct loop_source *rest; /* Accepts connections again after a pause. */
	struct loop_source *beat;
};

struct http_limits {
	uint64_t state_ns[CONN_STATES]; /* maximum time in each state; 0: unlimited */
	uint64_t beat_ns;
	unsigned connections; /* maximum number of connections */
	unsigned streams;     /* maximum number of streams */
};

/* Settings that a reload may change. A reload first reads all of them, and then applies
 * them. */
struct http_settings {
	struct auth auth;
	char **hosts, **origins;
	char *cert, *key; /* contents of the certificate file and of the key file */
};

/* Numbers of connections, in addition to http_counts. */
struct http_load {
	/* connections, not counting `spares`, that are shut down but not closed yet */
	unsigned cut;
	unsigned shaking;                  /* connections in a TLS handshake */
	unsigned spares;                   /* connections above the limit */
	unsigned peer_count[PEER_BUCKETS]; /* number of connections by hash of the peer */
	unsigned peak; /* highest number of connections since the heap was trimmed */
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
	struct entry **cache; /* one list of cached entries per route */
	uint64_t tick;
	struct conn_list list[CONN_STATES];
	struct http_limits limit;
	struct http_settings settings;
	struct http_load load;
	uint64_t now_ns; /* monotonic time when the current run of the library began */
	uint64_t id_base, ids;
	struct http_counts counts;
	struct http_accept accept;
};

void conn_set_state(struct conn *c, enum conn_state state);
void conn_suspend(struct conn *c);
void conn_resume(struct conn *c);

/* Callbacks of the library (when a connection opens or closes) and of the loop. */
void conn_notify(void *arg, struct MHD_Connection *mhd, void **context,
		 enum MHD_ConnectionNotificationCode code);
void conn_accept(void *arg, int listener, uint32_t events);
void conn_deadline(void *arg, uint64_t now_ns);
void conn_rest(void *arg, uint64_t now_ns); /* accepts connections again */

/* http_run() runs the library now; http_poke() makes the loop run it soon. */
void http_run(struct http *h);
void http_poke(struct http *h);

enum admitted { PASSED, ANSWERED, FAILED };

/* Call it when the header of a request is complete. Makes all checks of the request, and finds
 * its route, its parameters and its client. */
enum admitted admit_all(struct conn *c, const char *url, const char *method,
			const char *version);
bool admit_host(const struct http *h, const struct listener *from, const char *text);
bool admit_listed(char *const *list, const char *text);

/* Sends a cached reply. Call it only for a request without its own id, token or origin. */
enum MHD_Result send_cached(struct conn *c, struct entry *e, const char *url);
enum MHD_Result send_entry(struct conn *c, struct entry *e);

/* Sends the contents of r. After the call, r is empty. */
enum MHD_Result send_reply(struct conn *c, struct reply *r);
enum MHD_Result send_refusal(struct conn *c, int status, const char *word, const char *remedy,
			     const char *detail, ...) __attribute__((format(printf, 5, 6)));
void send_count(struct conn *c, int status, size_t bytes);
/* Counts a reply that the library sent by itself. */
void send_count_status(struct http *h, unsigned status);
void send_log(struct http *h, const struct request *q, int status, const char *type,
	      size_t bytes, double seconds);

/* cache_find() returns the cached entry of a route; NULL: none. cache_drop() drops the entries
 * of a route that are older than this tick. If `all` is true, it drops every entry of the
 * route, even if the route has ROUTE_STATIC. */
struct entry *cache_find(struct http *h, int route, const char *accept);
void cache_drop(struct http *h, int route, bool all);

/* Callbacks of the library: call_target() gets the target of a request as the client sent it,
 * call_handle() the request and its body, call_completed() its end. */
void *call_target(void *arg, const char *target, struct MHD_Connection *mhd);
enum MHD_Result call_handle(void *arg, struct MHD_Connection *mhd, const char *url,
			    const char *method, const char *version, const char *upload,
			    size_t *upload_size, void **request);
void call_completed(void *arg, struct MHD_Connection *mhd, void **request,
		    enum MHD_RequestTerminationCode code);

/* Makes a reply that has the stream as its body. Returns NULL if out of memory. */
struct MHD_Response *follow_response(struct conn *c, const struct reply_impl *r);
void follow_beat(struct http *h, uint64_t now_ns);

#endif
