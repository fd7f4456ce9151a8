/* Connections, their deadlines, and the way of a request: checked, told to a handler, answered.
 *
 * The library (libmicrohttpd) reads and writes; it is given sockets that are accepted here and is
 * run when its epoll descriptor, which is one more in our loop, has something.  Its own
 * timeouts start again with every byte, so each connection is in a list by what it does, oldest
 * first, and is shut down when it has been there too long. */
#include "http_impl.h"

#include "base/file.h"

#include <gpuward.h>

#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define POOL            (8 * 1024) /* of a connection: its head, and that of the reply */
#define LIBRARY_LIMIT   200000u    /* ours is lower and counts */
#define DESCRIPTORS     128        /* for what is no connection */
#define ACCEPT_BATCH    64         /* then those who are there have their turn */
#define TRIM_LEAST      128        /* connections */
#define RUNS            4          /* likewise */
#define BEAT_NS         (15 * NS_PER_S)
#define CERTIFICATE_MAX (256 * 1024)

static uint64_t mono_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* ---- lists of connections */

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
	if (h->deadline_at == 0 || at_ns < h->deadline_at) {
		h->deadline_at = at_ns;
		loop_set_time(h->deadline, at_ns);
	}
}

void conn_set_state(struct conn *c, enum conn_state state)
{
	struct http *h = c->http;

	list_remove(&h->list[c->state], c);
	c->state = state;
	c->since_ns = h->now_ns;
	list_append(&h->list[state], c);
	if (h->limit_ns[state])
		set_deadline(h, c->since_ns + h->limit_ns[state]);
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

void conn_cut(struct conn *c)
{
	if (!c->cut) {
		c->cut = true;
		c->http->cut++;
	}
	shutdown(c->fd, SHUT_RDWR);
	conn_set_state(c, c->state); /* no longer the oldest */
	conn_resume(c);
	http_poke(c->http);
}

static void on_deadline(void *arg, uint64_t now_ns)
{
	struct http *h = arg;
	uint64_t next = 0;

	h->now_ns = now_ns;
	for (unsigned s = 0; s < CONN_STATES; s++) {
		uint64_t limit = h->limit_ns[s];
		struct conn *c;

		while (limit && (c = h->list[s].first) && c->since_ns + limit <= now_ns) {
			h->counts.timeouts += !c->cut;
			conn_cut(c);
		}
		if (limit && c && (next == 0 || c->since_ns + limit < next))
			next = c->since_ns + limit;
	}
	h->deadline_at = next;
	loop_set_time(h->deadline, next);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
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
		c->fd = h->accepting_fd;
		c->from = h->accepting;
		c->tls = h->accepting->tls;
		c->peer = h->peer_hash;
		c->uid = h->peer_uid;
		c->since_ns = h->now_ns;
		list_append(&h->list[CONN_HEAD], c);
		set_deadline(h, h->now_ns + h->limit_ns[CONN_HEAD]);
		h->counts.connections++;
		if (h->counts.connections > h->peak)
			h->peak = h->counts.connections;
	} else if (c) {
		list_remove(&h->list[c->state], c);
		h->cut -= c->cut;
		h->counts.connections--;
		free(c);
	}
}

/* ---- running the library */

static bool more_to_do(struct MHD_Daemon *d)
{
	MHD_UNSIGNED_LONG_LONG timeout;

	return MHD_get_timeout(d, &timeout) == MHD_YES && timeout == 0;
}

static bool run_daemon(struct MHD_Daemon *d)
{
	unsigned runs = 0;

	do
		MHD_run(d);
	while (more_to_do(d) && ++runs < RUNS);
	return runs == RUNS;
}

static void run(struct http *h)
{
	bool more = false;

	h->now_ns = mono_ns();
	h->running = true;
	h->poked = false;
	if (h->plain)
		more |= run_daemon(h->plain);
	if (h->tls)
		more |= run_daemon(h->tls);
	h->running = false;
	if (more || h->poked)
		http_poke(h);
}

void http_poke(struct http *h)
{
	/* What is woken inside the library is seen by it in its next run. */
	if (h->running)
		h->poked = true;
	else
		loop_set_time(h->again, 1);
}

static void on_again(void *arg, uint64_t now_ns)
{
	(void)now_ns;
	run(arg);
}

static void on_ready(void *arg, int fd, uint32_t events)
{
	(void)fd;
	(void)events;
	run(arg);
}

static void on_beat(void *arg, uint64_t now_ns)
{
	struct http *h = arg;

	h->now_ns = now_ns;
	follow_beat(h, now_ns);
	/* The C library keeps what a flood of connections took. */
	if (h->peak > TRIM_LEAST && h->counts.connections < h->peak / 4) {
		malloc_trim(0);
		h->peak = h->counts.connections;
	}
	loop_set_time(h->beat, now_ns + h->beat_ns);
}

/* ---- accepting */

static uint64_t peer_hash(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;
	const unsigned char *p = a->ss_family == AF_INET6 ? six->sin6_addr.s6_addr
							  : (const void *)&four->sin_addr;
	/* A host has a whole /64 of IPv6 to choose from. */
	size_t n = a->ss_family == AF_INET6 ? 8 : a->ss_family == AF_INET ? 4 : 0;
	uint64_t hash = 14695981039346656037u;

	while (n-- > 0)
		hash = (hash ^ *p++) * 1099511628211u;
	return hash;
}

static uid_t uid_of(int fd)
{
	struct ucred who;
	socklen_t n = sizeof(who);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 ? who.uid : (uid_t)-1;
}

/* Room for one more: whoever has not even sent a request goes first. */
static bool make_room(struct http *h)
{
	struct conn *oldest = h->list[CONN_HEAD].first;

	if (h->counts.connections - h->cut < h->connections)
		return true;
	if (!oldest || oldest->cut)
		return false;
	conn_cut(oldest);
	return true;
}

static void turn_away(struct http *h, const struct listener *l, int fd)
{
	static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
				   "Connection: close\r\nContent-Length: 0\r\n\r\n";

	if (!l->tls)
		send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
	h->counts.refused++;
}

static void hand_over(struct http *h, const struct listener *l, int fd,
		      const struct sockaddr_storage *peer, socklen_t size)
{
	struct MHD_Daemon *d = l->tls ? h->tls : h->plain;

	h->accepting = l;
	h->accepting_fd = fd;
	h->peer_hash = peer_hash(peer);
	h->peer_uid = l->unix_socket ? uid_of(fd) : (uid_t)-1;
	/* It closes the socket when it fails. */
	if (MHD_add_connection(d, fd, (const struct sockaddr *)peer, size) == MHD_YES)
		h->counts.accepted++;
	else
		h->counts.refused++;
}

/* No descriptors left: those who drip go, and a moment passes. */
static void out_of_descriptors(struct http *h)
{
	if (h->list[CONN_HEAD].first)
		conn_cut(h->list[CONN_HEAD].first);
	for (unsigned i = 0; i < h->listeners; i++)
		loop_set_events(h->listener[i].source, 0);
	loop_set_time(h->rest, mono_ns() + 100 * NS_PER_MS);
}

static void on_rest(void *arg, uint64_t now_ns)
{
	struct http *h = arg;

	(void)now_ns;
	for (unsigned i = 0; i < h->listeners; i++)
		loop_set_events(h->listener[i].source, EPOLLIN);
}

static void on_accept(void *arg, int listener, uint32_t events)
{
	struct listener *l = arg;
	struct http *h = l->http;

	(void)events;
	h->now_ns = mono_ns();
	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t size = sizeof(peer);
		int fd = accept4(listener, (struct sockaddr *)&peer, &size,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS)
				out_of_descriptors(h);
			if (errno == ECONNABORTED || errno == EINTR)
				continue;
			break;
		}
		if (make_room(h))
			hand_over(h, l, fd, &peer, size);
		else
			turn_away(h, l, fd);
	}
	run(h);
}

/* ---- starting and ending */

/* Paths and queries are decoded here, not by the library: it knows no NUL. */
static size_t leave_escapes(void *arg, struct MHD_Connection *c, char *s)
{
	(void)arg;
	(void)c;
	return strlen(s);
}

/* Not MHD_OPTION_STRICT_FOR_CLIENT: what it checks (a Host, no spaces in the path) is checked by us
 * too, and its own refusal of a request without Host sends two heads (0.9.75). */
static int start_daemon(struct http *h, unsigned flags, struct MHD_Daemon **ret,
			struct loop_source **ret_source, char *message, size_t size)
{
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, h->tls_cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, h->tls_key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0,
		  (void *)(uintptr_t) "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1" },
		{ MHD_OPTION_END, 0, NULL },
	};
	struct MHD_OptionItem none[] = { { MHD_OPTION_END, 0, NULL } };
	struct MHD_Daemon *d = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | flags, 0,
		NULL, NULL, call_handle, h, MHD_OPTION_NOTIFY_COMPLETED, call_completed, h,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_CONNECTION_LIMIT,
		LIBRARY_LIMIT, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL,
		MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes, NULL, MHD_OPTION_ARRAY,
		flags & MHD_USE_TLS ? tls : none, MHD_OPTION_END);
	const union MHD_DaemonInfo *info;

	if (!d) {
		snprintf(message, size,
			 flags & MHD_USE_TLS
				 ? "the certificate and its key cannot be used: see that both "
				   "are PEM and belong together (service.tls_cert, tls_key)"
				 : "the HTTP library cannot be started");
		return flags & MHD_USE_TLS ? -GW_E_ARG : -GW_E_NOMEM;
	}
	info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info ||
	    loop_add_fd(h->loop, info->epoll_fd, EPOLLIN, on_ready, h, ret_source) != 0) {
		MHD_stop_daemon(d);
		snprintf(message, size, "no descriptors are left");
		return -GW_E_IO;
	}
	*ret = d;
	return 0;
}

/* The library panics when it is stopped with connections that sleep. */
static void stop_daemon(struct http *h, struct MHD_Daemon **d, struct loop_source **source)
{
	bool tls = d == &h->tls;

	if (!*d)
		return;
	for (unsigned s = 0; s < CONN_STATES; s++)
		for (struct conn *c = h->list[s].first; c; c = c->next)
			if (c->tls == tls && c->suspended)
				conn_resume(c);
	loop_remove(*source);
	*source = NULL;
	MHD_stop_daemon(*d);
	*d = NULL;
}

static void list_free(char **list)
{
	for (unsigned i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

static char **list_copy(const char *const *from)
{
	unsigned n = 0;
	char **copy;

	while (from && from[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (unsigned i = 0; copy && i < n; i++) {
		copy[i] = strdup(from[i]);
		if (!copy[i]) {
			list_free(copy);
			return NULL;
		}
	}
	return copy;
}

static int read_text(const char *path, char **ret, char *message, size_t size)
{
	char *text = malloc(CERTIFICATE_MAX);
	ssize_t n;

	if (!text)
		return -GW_E_NOMEM;
	n = file_read(path, text, CERTIFICATE_MAX - 1, message, size);
	if (n < 0) {
		free(text);
		return (int)n;
	}
	text[n] = '\0';
	*ret = text;
	return 0;
}

/* What a reload may change, read before anything is. */
struct settings {
	struct auth auth;
	char **hosts, **origins, *cert, *key;
};

static void settings_done(struct settings *s)
{
	list_free(s->hosts);
	list_free(s->origins);
	free(s->cert);
	if (s->key)
		explicit_bzero(s->key, strlen(s->key));
	free(s->key);
	*s = (struct settings){ 0 };
}

static int settings_read(struct settings *s, const struct http_config *config, char *message,
			 size_t size)
{
	int r;

	*s = (struct settings){ 0 };
	if (!config->tls_cert != !config->tls_key) {
		snprintf(message, size, "service.tls_cert and service.tls_key come together");
		return -GW_E_ARG;
	}
	if (config->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
		snprintf(message, size,
			 "the HTTP library of this machine was built without TLS");
		return -GW_E_NOSUPPORT;
	}
	r = auth_load(&s->auth, config->token_file, message, size);
	if (r == 0 && config->tls_cert)
		r = read_text(config->tls_cert, &s->cert, message, size);
	if (r == 0 && config->tls_key)
		r = read_text(config->tls_key, &s->key, message, size);
	s->hosts = list_copy(config->hosts);
	s->origins = list_copy(config->origins);
	if (r == 0 && (!s->hosts || !s->origins))
		r = -GW_E_NOMEM;
	if (r != 0)
		settings_done(s);
	return r;
}

/* Connections that descriptors are there for. */
static unsigned room_for(unsigned connections)
{
	struct rlimit limit;
	rlim_t want = (rlim_t)connections + DESCRIPTORS;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return connections;
	if (limit.rlim_cur < want) {
		limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur >= want)
		return connections;
	return limit.rlim_cur > DESCRIPTORS + 8 ? (unsigned)(limit.rlim_cur - DESCRIPTORS) : 8;
}

static void settings_take(struct http *h, struct settings *s, const struct http_config *config)
{
	struct settings old = {
		.hosts = h->hosts, .origins = h->origins, .cert = h->tls_cert, .key = h->tls_key
	};

	h->auth = s->auth;
	h->hosts = s->hosts;
	h->origins = s->origins;
	h->tls_cert = s->cert;
	h->tls_key = s->key;
	h->connections = room_for(config->connections);
	h->streams = config->streams;
	h->limit_ns[CONN_HEAD] = config->header_ns;
	h->limit_ns[CONN_BUSY] = config->body_ns;
	h->limit_ns[CONN_IDLE] = config->idle_ns;
	h->beat_ns = config->beat_ns ? config->beat_ns : BEAT_NS;
	h->limit_ns[CONN_STREAM] = 2 * h->beat_ns + NS_PER_S;
	h->log = config->log;
	settings_done(&old);
}

static int add_sources(struct http *h)
{
	int r = loop_add_timer(h->loop, on_again, h, &h->again);

	if (r == 0)
		r = loop_add_timer(h->loop, on_deadline, h, &h->deadline);
	if (r == 0)
		r = loop_add_timer(h->loop, on_rest, h, &h->rest);
	if (r == 0)
		r = loop_add_timer(h->loop, on_beat, h, &h->beat);
	if (r == 0)
		loop_set_time(h->beat, mono_ns() + h->beat_ns);
	return r;
}

static int open_listeners(struct http *h, const struct http_config *config, char *message,
			  size_t size)
{
	h->listener = calloc(config->listeners + 1, sizeof(*h->listener));
	if (!h->listener)
		return -GW_E_NOMEM;
	for (unsigned i = 0; i < config->listeners; i++) {
		struct listener *l = &h->listener[i];
		int r = listen_open(l, &config->listener[i], config, message, size);

		h->listeners = i + 1;
		l->http = h;
		if (r == 0)
			r = loop_add_fd(h->loop, l->fd, EPOLLIN, on_accept, l, &l->source);
		if (r != 0)
			return r;
	}
	return 0;
}

static int start(struct http *h, const struct http_config *config, char *message, size_t size)
{
	struct settings settings;
	int r = settings_read(&settings, config, message, size);

	if (r != 0)
		return r;
	settings_take(h, &settings, config);
	if (getrandom(&h->id_base, sizeof(h->id_base), 0) < 0)
		h->id_base = clock_wall_ns(clock_real());
	r = add_sources(h);
	if (r == 0)
		r = router_new(config->route, config->routes, &h->router);
	if (r == 0)
		r = start_daemon(h, 0, &h->plain, &h->plain_source, message, size);
	if (r == 0 && h->tls_cert)
		r = start_daemon(h, MHD_USE_TLS, &h->tls, &h->tls_source, message, size);
	if (r == 0)
		r = open_listeners(h, config, message, size);
	return r;
}

int http_new(struct loop *l, const struct http_config *config, struct http **ret, char *message,
	     size_t size)
{
	struct http *h = calloc(1, sizeof(*h));
	int r = -GW_E_NOMEM;

	snprintf(message, size, "no memory");
	if (!h)
		return r;
	h->loop = l;
	h->route = config->route;
	h->routes = config->routes;
	h->arg = config->arg;
	h->now_ns = mono_ns();
	h->cache = calloc(config->routes + 1, sizeof(*h->cache));
	if (h->cache)
		r = start(h, config, message, size);
	if (r != 0) {
		http_free(h);
		return r;
	}
	*message = '\0';
	*ret = h;
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	for (unsigned i = 0; i < h->listeners; i++)
		listen_close(&h->listener[i]);
	h->running = true; /* nothing is to be run again */
	stop_daemon(h, &h->plain, &h->plain_source);
	stop_daemon(h, &h->tls, &h->tls_source);
	for (unsigned i = 0; h->cache && i < h->routes; i++)
		cache_drop(h, (int)i, true);
	loop_remove(h->again);
	loop_remove(h->deadline);
	loop_remove(h->rest);
	loop_remove(h->beat);
	router_free(h->router);
	settings_done(&(struct settings){ .hosts = h->hosts,
					  .origins = h->origins,
					  .cert = h->tls_cert,
					  .key = h->tls_key });
	free(h->listener);
	free(h->cache);
	free(h);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

int http_reload(struct http *h, const struct http_config *config, char *message, size_t size)
{
	struct settings settings;
	int r = settings_read(&settings, config, message, size);

	for (unsigned i = 0; r == 0 && i < h->listeners; i++)
		r = listen_allowed(&h->listener[i], config, message, size);
	if (r != 0) {
		settings_done(&settings);
		return r;
	}

	bool other =
		!same_text(settings.cert, h->tls_cert) || !same_text(settings.key, h->tls_key);
	struct MHD_Daemon *tls = NULL;
	struct loop_source *source = NULL;
	char *cert = h->tls_cert, *key = h->tls_key;

	if (other && settings.cert) { /* the new one must start before the old one ends */
		h->tls_cert = settings.cert;
		h->tls_key = settings.key;
		r = start_daemon(h, MHD_USE_TLS, &tls, &source, message, size);
		h->tls_cert = cert;
		h->tls_key = key;
	}
	if (r != 0) {
		settings_done(&settings);
		return r;
	}
	if (other) {
		stop_daemon(h, &h->tls, &h->tls_source);
		h->tls = tls;
		h->tls_source = source;
		for (unsigned i = 0; i < h->listeners; i++)
			listen_set_tls(&h->listener[i], tls != NULL);
	}
	settings_take(h, &settings, config);
	for (unsigned i = 0; i < h->routes; i++) /* headers in it may have changed */
		cache_drop(h, (int)i, true);
	on_deadline(h, mono_ns());
	*message = '\0';
	return 0;
}

void http_tick(struct http *h)
{
	h->tick++;
}

const char *http_address(const struct http *h, unsigned i)
{
	return i < h->listeners ? h->listener[i].url : NULL;
}

void http_counts(const struct http *h, struct http_counts *ret)
{
	*ret = h->counts;
}
