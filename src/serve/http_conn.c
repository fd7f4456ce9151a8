/* Opens listening sockets, accepts connections, and closes connections that take too long.
 *
 * Unless the configuration allows it, the service does not listen on an address that other
 * machines can reach without TLS and a token. The library's timeouts restart with every byte,
 * so a slow client could stay connected forever. Therefore each state has a list of its
 * connections, oldest first, and a maximum time; one timer serves all lists. */
#include "http_impl.h"

#include "base/text.h"

#include <gpuward.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* maximum number of connections that are accepted before existing ones are served */
#define ACCEPT_BATCH 64
/* number of connections that are reserved for clients of a UNIX socket */
#define UNIX_PLACES 16
/* number of connections that are accepted above the limit; only their requests for routes with
 * ROUTE_ALIVE are answered */
#define SPARE_PLACES 8
#define BACKLOG      1024

static int fail(char *message, size_t size, int code, const char *what, const char *address)
{
	snprintf(message, size, "cannot listen on %s: %s", address, what);
	return code;
}

static int fail_errno(char *message, size_t size, const char *address)
{
	switch (errno) {
	case EADDRINUSE:
		return fail(
			message, size, -GW_E_IO,
			"another program uses this port; stop it, or choose another address "
			"with --listen or service.listen",
			address);
	case EADDRNOTAVAIL:
		return fail(message, size, -GW_E_IO,
			    "this machine does not have that address (service.listen)",
			    address);
	case EACCES:
		return fail(message, size, -GW_E_PERM,
			    "permission denied; ports below 1024 and directories of other "
			    "users need privileges",
			    address);
	default: return fail(message, size, -GW_E_IO, strerror(errno), address);
	}
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;

	if (a->ss_family == AF_INET)
		return ntohl(four->sin_addr.s_addr) >> 24 == 127;
	if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return six->sin6_addr.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static bool is_wildcard(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;

	return a->ss_family == AF_INET ? four->sin_addr.s_addr == INADDR_ANY
				       : IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
}

void listen_set_tls(struct listener *l, bool tls)
{
	if (l->unix_socket)
		return;
	l->tls = tls;
	snprintf(l->url, sizeof(l->url), "%s://%s", tls ? "https" : "http", l->host_port);
}

static void name_inet(struct listener *l, const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;
	bool v6 = a->ss_family == AF_INET6;

	inet_ntop(a->ss_family,
		  v6 ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr, l->host,
		  sizeof(l->host));
	snprintf(l->host_port, sizeof(l->host_port), v6 ? "[%.50s]:%u" : "%.50s:%u", l->host,
		 ntohs(v6 ? six->sin6_port : four->sin_port));
	listen_set_tls(l, l->tls);
	l->loopback = is_loopback(a);
	l->wildcard = is_wildcard(a);
}

/* Splits "host:port" or "[v6]:port". */
static bool split_address(const char *address, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(address, ':');
	size_t n = colon ? (size_t)(colon - address) : 0;

	if (!colon || n == 0 || n >= size || !colon[1])
		return false;
	if (address[0] == '[') {
		if (address[n - 1] != ']')
			return false;
		address++;
		n -= 2;
	} else if (memchr(address, ':', n)) {
		return false;
	}
	memcpy(host, address, n);
	host[n] = '\0';
	*port = colon + 1;
	return n > 0;
}

static int address_resolve(const char *address, struct sockaddr_storage *ret,
			   socklen_t *ret_size, char *message, size_t size)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	struct addrinfo *found;
	const char *port;
	char host[256];

	if (!split_address(address, host, sizeof(host), &port))
		return fail(message, size, -GW_E_ARG,
			    "not an address; use HOST:PORT, [IPV6]:PORT or unix:PATH", address);

	int r = getaddrinfo(host, port, &hints, &found);

	if (r != 0)
		return fail(message, size, -GW_E_ARG, gai_strerror(r), address);
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	*ret_size = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int open_inet(struct listener *l, const char *address, char *message, size_t size)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = 0;
	int one = 1, r = address_resolve(address, &a, &n, message, size);

	if (r != 0)
		return r;
	l->fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return fail_errno(message, size, address);
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a.ss_family == AF_INET6)
		setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(l->fd, (struct sockaddr *)&a, n) != 0 || listen(l->fd, BACKLOG) != 0)
		return fail_errno(message, size, address);
	return 0;
}

/* True if a process listens on the socket file. If not, the file is left over from a crash. */
static bool is_in_use(const struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes = fd >= 0 && (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 ||
			       errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return yes;
}

static int open_unix(struct listener *l, const char *address, unsigned mode, char *message,
		     size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = address + 5;
	struct stat st;

	if (strlen(path) >= sizeof(a.sun_path) || *path != '/')
		return fail(
			message, size, -GW_E_ARG,
			"the path of a socket must begin with '/' and have at most 107 bytes",
			address);
	memcpy(a.sun_path, path, strlen(path) + 1);
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return fail(message, size, -GW_E_IO,
				    "a file that is not a socket exists there", address);
		if (is_in_use(&a))
			return fail(message, size, -GW_E_IO,
				    "another program uses this socket; stop it, or choose "
				    "another path",
				    address);
		unlink(path);
	}
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return fail_errno(message, size, address);
	/* Set the mode before bind() creates the file, so that no client can connect with other
	 * permissions. */
	fchmod(l->fd, mode);
	if (bind(l->fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		return fail_errno(message, size, address);
	if (lstat(path, &st) != 0)
		return fail_errno(message, size, address);
	l->ours = true;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	memcpy(l->path, path, strlen(path) + 1);
	if (chmod(path, mode) != 0 || listen(l->fd, BACKLOG) != 0)
		return fail_errno(message, size, address);
	return 0;
}

static int inspect_socket(struct listener *l, const char *address, char *message, size_t size)
{
	struct sockaddr_storage a = { 0 };
	socklen_t n = sizeof(a);

	/* A socket of the service manager may be blocking; accept() would then block the
	 * loop. */
	if (getsockname(l->fd, (struct sockaddr *)&a, &n) != 0 ||
	    fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK) != 0)
		return fail(message, size, -GW_E_ARG, "the given descriptor is not a socket",
			    address);
	if (a.ss_family == AF_UNIX) {
		const struct sockaddr_un *u = (const void *)&a;

		l->unix_socket = true;
		l->tls = false;
		snprintf(l->url, sizeof(l->url), "unix:%s", u->sun_path);
	} else if (a.ss_family == AF_INET || a.ss_family == AF_INET6) {
		name_inet(l, &a);
	} else {
		return fail(message, size, -GW_E_ARG, "neither TCP nor a UNIX socket", address);
	}
	return 0;
}

/* Checks and prepares a socket of the service manager. */
static int adopt_socket(int fd, const char *address, char *message, size_t size)
{
	int listening = 0;
	socklen_t n = sizeof(listening);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) != 0 || !listening)
		return fail(message, size, -GW_E_ARG,
			    "the given descriptor is not a listening socket", address);
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return fail_errno(message, size, address);
	return 0;
}

int listen_allowed(const struct listener *l, const struct http_config *config, char *message,
		   size_t size)
{
	if (l->unix_socket || l->loopback || (config->token_file && config->tls_cert) ||
	    config->insecure)
		return 0;
	snprintf(message, size,
		 "%s is reachable from other machines, but %s%s%s: set service.token_file, "
		 "service.tls_cert and service.tls_key; or listen on 127.0.0.1 or a UNIX "
		 "socket; or set service.insecure if you trust the network",
		 l->host_port, config->token_file ? "" : "there is no token",
		 !config->token_file && !config->tls_cert ? " and " : "",
		 config->tls_cert ? "" : "no TLS");
	return -GW_E_PERM;
}

int listen_open(struct listener *l, const struct http_listener *from,
		const struct http_config *config, char *message, size_t size)
{
	const char *address = from->address ? from->address : "the given socket";
	int r = 0;

	*l = (struct listener){ .fd = from->fd, .tls = config->tls_cert != NULL };
	if (from->fd >= 0)
		r = adopt_socket(from->fd, address, message, size);
	else if (strncmp(address, "unix:", 5) == 0)
		r = open_unix(l, address, config->unix_mode, message, size);
	else
		r = open_inet(l, address, message, size);
	if (r == 0)
		r = inspect_socket(l, address, message, size);
	if (r == 0)
		r = listen_allowed(l, config, message, size);
	return r;
}

/* Removes the UNIX socket file, unless another service has created a file of its own at this
 * path. Must be called before the socket is closed. While the socket is open, its inode exists,
 * so a file of another service cannot have the same inode number. */
static void remove_socket(const struct listener *l)
{
	struct stat st;

	if (lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		unlink(l->path);
}

void listen_close(struct listener *l)
{
	loop_remove(l->source);
	if (l->ours)
		remove_socket(l);
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	l->ours = false;
	l->source = NULL;
}

static void list_remove(struct conn_list *l, struct conn *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		l->first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		l->last = c->prev;
	l->count--;
}

static void list_append(struct conn_list *l, struct conn *c)
{
	c->prev = l->last;
	c->next = NULL;
	if (l->last)
		l->last->next = c;
	else
		l->first = c;
	l->last = c;
	l->count++;
}

static void set_deadline(struct http *h, uint64_t at_ns)
{
	if (h->timer.deadline_ns == 0 || at_ns < h->timer.deadline_ns) {
		h->timer.deadline_ns = at_ns;
		loop_set_time(h->timer.deadline, at_ns);
	}
}

static unsigned is_shaking(const struct conn *c)
{
	return c->tls && c->state == CONN_HEAD;
}

void conn_set_state(struct conn *c, enum conn_state state)
{
	struct http *h = c->http;

	list_remove(&h->list[c->state], c);
	h->load.shaking -= is_shaking(c);
	c->state = state;
	h->load.shaking += is_shaking(c);
	c->since_ns = h->now_ns;
	list_append(&h->list[state], c);
	if (h->limit.state_ns[state])
		set_deadline(h, c->since_ns + h->limit.state_ns[state]);
}

void conn_suspend(struct conn *c)
{
	if (!c->suspended) {
		c->suspended = true;
		MHD_suspend_connection(c->mhd);
	}
}

void conn_resume(struct conn *c)
{
	if (c->suspended) {
		c->suspended = false;
		MHD_resume_connection(c->mhd);
		http_poke(c->http);
	}
}

static void conn_cut(struct conn *c)
{
	if (!c->cut) {
		c->cut = true;
		c->http->load.cut += !c->spare;
	}
	shutdown(c->fd, SHUT_RDWR);
	conn_set_state(c, c->state); /* Moves the connection to the end of its list. */
	conn_resume(c);
	http_poke(c->http);
}

void conn_deadline(void *arg, uint64_t now_ns)
{
	struct http *h = arg;
	uint64_t next = 0;

	h->now_ns = now_ns;
	for (unsigned s = 0; s < CONN_STATES; s++) {
		uint64_t limit = h->limit.state_ns[s];
		struct conn *c;

		while (limit && (c = h->list[s].first) && c->since_ns + limit <= now_ns) {
			h->counts.timeouts += !c->cut;
			conn_cut(c);
		}
		if (limit && c && (next == 0 || c->since_ns + limit < next))
			next = c->since_ns + limit;
	}
	h->timer.deadline_ns = next;
	loop_set_time(h->timer.deadline, next);
}

void conn_notify(void *arg, struct MHD_Connection *mhd, void **context,
		 enum MHD_ConnectionNotificationCode code)
{
	struct http *h = arg;
	struct conn *c = *context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		c = calloc(1, sizeof(*c));
		*context = c;
		if (!c)
			return;
		c->http = h;
		c->mhd = mhd;
		c->fd = h->accept.fd;
		c->from = h->accept.from;
		c->tls = c->from->tls;
		c->peer = h->accept.peer;
		c->spare = h->accept.spare;
		h->load.spares += c->spare;
		h->load.peer_count[c->peer % PEER_BUCKETS]++;
		c->uid = h->accept.uid;
		c->pid = h->accept.pid;
		c->since_ns = h->now_ns;
		list_append(&h->list[CONN_HEAD], c);
		h->load.shaking += is_shaking(c);
		set_deadline(h, h->now_ns + h->limit.state_ns[CONN_HEAD]);
		h->counts.connections++;
		if (h->counts.connections > h->load.peak)
			h->load.peak = h->counts.connections;
	} else if (c) {
		list_remove(&h->list[c->state], c);
		h->load.shaking -= is_shaking(c);
		h->load.cut -= c->cut && !c->spare;
		h->load.spares -= c->spare;
		h->load.peer_count[c->peer % PEER_BUCKETS]--;
		h->counts.connections--;
		free(c);
	}
}

static uint64_t peer_hash(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;
	const void *p = a->ss_family == AF_INET6 ? (const void *)&six->sin6_addr
						 : (const void *)&four->sin_addr;
	/* One IPv6 host can use a whole /64, so only 8 bytes are hashed. */
	size_t n = a->ss_family == AF_INET6 ? 8 : a->ss_family == AF_INET ? 4 : 0;

	return text_hash(TEXT_HASH_START, p, n);
}

static void read_peer(struct http *h, int fd)
{
	struct ucred who;
	socklen_t n = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0)
		return;
	h->accept.uid = who.uid;
	h->accept.pid = who.pid;
}

static uint64_t user_hash(uid_t uid)
{
	return (uid + 1) * TEXT_HASH_PRIME;
}

/* Closes one connection that is not needed: the oldest connection between two requests. If
 * there is none, the oldest connection without a request; if there is none either, the oldest
 * one with an incomplete body. Considers only peers with the hash `bucket`; PEER_BUCKETS: all
 * peers. Returns false if no connection can be closed. */
static bool close_unused(struct http *h, unsigned bucket, bool spare)
{
	static const enum conn_state order[] = { CONN_IDLE, CONN_HEAD, CONN_BODY };

	for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		for (struct conn *c = h->list[order[i]].first; c; c = c->next)
			if (!c->cut && c->spare == spare &&
			    (bucket == PEER_BUCKETS || c->peer % PEER_BUCKETS == bucket)) {
				conn_cut(c);
				return true;
			}
	return false;
}

/* Makes space for one more connection. Returns false if all connections are in use.
 *
 * One peer may have at most half of the connections. If the maximum number of streams is larger
 * than this half, one peer may have that number. Some connections are reserved for UNIX
 * sockets, so that the administrator of the machine can always connect. */
static bool make_space(struct http *h, const struct listener *l)
{
	unsigned bucket = (unsigned)(h->accept.peer % PEER_BUCKETS);
	unsigned share = h->limit.connections / 2 > h->limit.streams ? h->limit.connections / 2
								     : h->limit.streams;
	unsigned kept = h->limit.connections > 4 * UNIX_PLACES ? UNIX_PLACES : 0;
	unsigned limit = l->unix_socket ? h->limit.connections : h->limit.connections - kept;
	unsigned used = h->counts.connections - h->load.cut - h->load.spares;

	if (h->load.peer_count[bucket] >= share && !close_unused(h, bucket, false))
		return false;
	return used < limit || close_unused(h, PEER_BUCKETS, false);
}

/* Makes space for a connection above the limit, so that the service answers a health check even
 * if all connections are in use. */
static bool make_spare(struct http *h)
{
	return h->load.spares < SPARE_PLACES || close_unused(h, PEER_BUCKETS, true);
}

static void refuse_connection(struct http *h, const struct listener *l, int fd)
{
	static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
				   "Connection: close\r\nContent-Length: 0\r\n\r\n";

	if (!l->tls)
		send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
	h->counts.refused++;
}

static void add_connection(struct http *h, const struct listener *l, int fd,
			   const struct sockaddr_storage *peer, socklen_t size)
{
	struct MHD_Daemon *d = l->tls ? h->library.tls : h->library.plain;

	h->accept.peer = peer_hash(peer);
	h->accept.uid = (uid_t)-1;
	h->accept.pid = -1;
	if (l->unix_socket) {
		read_peer(h, fd);
		h->accept.peer = user_hash(h->accept.uid);
	}
	h->accept.from = l;
	h->accept.fd = fd;
	h->accept.spare = !make_space(h, l);
	if (h->accept.spare && !make_spare(h)) {
		refuse_connection(h, l, fd);
		return;
	}
	/* On failure the library closes the socket. */
	if (MHD_add_connection(d, fd, (const struct sockaddr *)peer, size) == MHD_YES)
		h->counts.accepted++;
	else
		h->counts.refused++;
}

/* Called if no file descriptor is free. Closes a connection that is not needed, and accepts no
 * connections for 100 ms. */
static void out_of_descriptors(struct http *h)
{
	close_unused(h, PEER_BUCKETS, false);
	for (unsigned i = 0; i < h->listeners; i++)
		loop_set_events(h->listener[i].source, 0);
	loop_set_time(h->timer.rest, clock_mono_ns(clock_real()) + 100 * NS_PER_MS);
}

void conn_rest(void *arg, uint64_t now_ns)
{
	struct http *h = arg;

	(void)now_ns;
	for (unsigned i = 0; i < h->listeners; i++)
		loop_set_events(h->listener[i].source, EPOLLIN);
}

void conn_accept(void *arg, int listener, uint32_t events)
{
	struct listener *l = arg;
	struct http *h = l->http;

	(void)events;
	h->now_ns = clock_mono_ns(clock_real());
	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t size = sizeof(peer);
		int fd = accept4(listener, (struct sockaddr *)&peer, &size,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == ECONNABORTED || errno == EINTR)
				continue;
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS)
				out_of_descriptors(h);
			break;
		}
		add_connection(h, l, fd, &peer, size);
	}
	http_run(h);
}

/* Maximum bytes per call of next_bytes() for an HTTP/1.0 client. For other clients,
 * next_bytes() writes to a buffer of the connection. */
#define BLOCK       1024
#define SEND_BUFFER (64 * 1024) /* bytes that the kernel buffers per connection */

static struct conn *conn_of(struct follower *f)
{
	return (struct conn *)(void *)((char *)f - offsetof(struct conn, follower));
}

static void follower_wake(struct follower *f)
{
	conn_resume(conn_of(f));
}

static ssize_t next_bytes(void *arg, uint64_t pos, char *out, size_t max)
{
	struct conn *c = arg;
	long n;

	if (c->cut)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	conn_set_state(c, CONN_STREAM);
	if (pos == 0 && max > 16) {
		/* Makes browsers wait two seconds before they reconnect. */
		static const char hello[] = "retry: 2000\n\n";

		memcpy(out, hello, sizeof(hello) - 1);
		return sizeof(hello) - 1;
	}
	n = follower_read(&c->follower, out, max);
	if (n < 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (n == 0)
		conn_suspend(c);
	c->http->counts.bytes_sent += (uint64_t)n;
	return n;
}

struct MHD_Response *follow_response(struct conn *c, const struct reply_impl *r)
{
	struct MHD_Response *m =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, next_bytes, c, NULL);
	int size = SEND_BUFFER;

	if (!m)
		return NULL;
	setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	follower_start(&c->follower, r->stream, r->after, r->topics, follower_wake);
	return m;
}

void follow_beat(struct http *h, uint64_t now_ns)
{
	struct conn *next;

	for (struct conn *c = h->list[CONN_STREAM].first; c; c = next) {
		next = c->next;
		if (now_ns - c->since_ns >= h->limit.beat_ns / 2)
			follower_beat(&c->follower);
	}
}
