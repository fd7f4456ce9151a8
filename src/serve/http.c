/* The server: settings, libmicrohttpd (called "the library" in these files), start and stop.
 *
 * The library reads and writes sockets that http_conn.c has accepted. Its epoll descriptor is a
 * source of our loop, and the library runs when this descriptor is readable. */
#include "http_impl.h"

#include "base/file.h"
#include "base/text.h"

#include <gpuward.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>

/* The library's limit of connections. Our own limit is lower. */
#define LIBRARY_LIMIT 200000u
/* number of file descriptors that are reserved for other uses than connections */
#define DESCRIPTORS 128
/* maximum number of consecutive runs of the library; then other sources of the loop run */
#define RUNS     4
#define SHAKE_NS (2 * NS_PER_MS) /* time between checks of unfinished TLS handshakes */
/* The wait for the next check is SHAKE_NS plus this number times the duration of the last
 * run. */
#define SHAKE_SHARE 4
/* The heap is trimmed only if more connections than this were open at once. */
#define TRIM_LEAST      128
#define BEAT_NS         (15 * NS_PER_S)
#define CERTIFICATE_MAX (256 * 1024)

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

/* Delays the next run. The library (0.9.75) treats a connection in a TLS handshake as always
 * readable, so the library would run all the time. If input arrives, the library's descriptor
 * wakes the loop at once. Without input, the next run waits for a time that grows with the
 * duration of the last run. */
static void delay_run(struct http *h)
{
	uint64_t now = clock_mono_ns(clock_real());

	loop_set_time(h->timer.again, now + SHAKE_NS + SHAKE_SHARE * (now - h->now_ns));
}

void http_run(struct http *h)
{
	bool plain, tls;

	h->now_ns = clock_mono_ns(clock_real());
	h->library.running = true;
	h->library.poked = false;
	plain = h->library.plain && run_daemon(h->library.plain);
	tls = h->library.tls && run_daemon(h->library.tls);
	h->library.running = false;
	if (plain || h->library.poked || (tls && h->load.shaking == 0))
		http_poke(h);
	else if (tls)
		delay_run(h);
}

void http_poke(struct http *h)
{
	/* While the library runs, only note the request; http_run() then runs the library once
	 * more. */
	if (h->library.running)
		h->library.poked = true;
	else
		/* Set the timer to the current time. A timer with a time in the distant past
		 * would run before all other timers. */
		loop_set_time(h->timer.again, clock_mono_ns(clock_real()));
}

static void on_again(void *arg, uint64_t now_ns)
{
	(void)now_ns;
	http_run(arg);
}

static void on_ready(void *arg, int fd, uint32_t events)
{
	(void)fd;
	(void)events;
	http_run(arg);
}

static void on_beat(void *arg, uint64_t now_ns)
{
	struct http *h = arg;

	h->now_ns = now_ns;
	follow_beat(h, now_ns);
	/* After many connections were closed, the C library still holds their memory: return it
	 * to the kernel. */
	if (h->load.peak > TRIM_LEAST && h->counts.connections < h->load.peak / 4) {
		malloc_trim(0);
		h->load.peak = h->counts.connections;
	}
	loop_set_time(h->timer.beat, now_ns + h->limit.beat_ns);
}

/* Leaves paths and queries encoded: we decode them ourselves, because the library does not
 * handle NUL. */
static size_t leave_escapes(void *arg, struct MHD_Connection *c, char *s)
{
	(void)arg;
	(void)c;
	return strlen(s);
}

/* Counts the requests that the library itself refuses. The library reports such a request only
 * in its log. */
static void on_library_log(void *arg, const char *format, va_list ap)
{
	static const char refusal[] = "Error processing request (HTTP response code is %u";

	if (strncmp(format, refusal, sizeof(refusal) - 1) == 0)
		send_count_status(arg, va_arg(ap, unsigned));
}

/* MHD_OPTION_STRICT_FOR_CLIENT is not set. We make the same checks as this option (a Host
 * header, no spaces in the path). And with the option, the library (0.9.75) sends two response
 * headers instead of one when it refuses a request without Host. */
static int start_daemon(struct http *h, unsigned flags, struct MHD_Daemon **ret,
			struct loop_source **ret_source, char *message, size_t size)
{
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, h->settings.cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, h->settings.key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0,
		  (void *)(uintptr_t) "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1" },
		{ MHD_OPTION_END, 0, NULL },
	};
	struct MHD_OptionItem none[] = { { MHD_OPTION_END, 0, NULL } };
	struct MHD_Daemon *d = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
			MHD_USE_ERROR_LOG | flags,
		0, NULL, NULL, call_handle, h, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, h,
		MHD_OPTION_NOTIFY_COMPLETED, call_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
		conn_notify, h, MHD_OPTION_CONNECTION_LIMIT, LIBRARY_LIMIT,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL, MHD_OPTION_UNESCAPE_CALLBACK,
		leave_escapes, NULL, MHD_OPTION_URI_LOG_CALLBACK, call_target, h,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
		flags & MHD_USE_TLS ? tls : none, MHD_OPTION_END);
	const union MHD_DaemonInfo *info;

	if (!d) {
		snprintf(message, size,
			 flags & MHD_USE_TLS
				 ? "the certificate and its key cannot be used: both must be "
				   "PEM and belong together (service.tls_cert, tls_key)"
				 : "cannot start the HTTP library");
		return flags & MHD_USE_TLS ? -GW_E_ARG : -GW_E_NOMEM;
	}
	info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info ||
	    loop_add_fd(h->loop, info->epoll_fd, EPOLLIN, on_ready, h, ret_source) != 0) {
		MHD_stop_daemon(d);
		snprintf(message, size,
			 "cannot start the HTTP library: out of file descriptors; raise the "
			 "limit (ulimit "
			 "-n, or LimitNOFILE in the unit)");
		return -GW_E_IO;
	}
	*ret = d;
	return 0;
}

/* Ends the streams, so that clients get the last chunk of the reply and do not see an error.
 * The library needs one run to write that chunk and one more to complete the request. The stop
 * does not wait for a client that does not read. */
static void end_streams(struct http *h, struct MHD_Daemon *d, bool tls)
{
	for (struct conn *c = h->list[CONN_STREAM].first; c; c = c->next)
		if (c->tls == tls)
			follower_stop(&c->follower);
	for (struct conn *c = h->list[CONN_STREAM].first; c; c = c->next)
		if (c->tls == tls)
			conn_resume(c);
	for (unsigned runs = 0; runs < RUNS && h->list[CONN_STREAM].first; runs++)
		MHD_run(d);
}

/* Resumes suspended connections first, because the library ends the process if it is stopped
 * while a connection is suspended. */
static void stop_daemon(struct http *h, struct MHD_Daemon **d, struct loop_source **source)
{
	bool tls = d == &h->library.tls;

	if (!*d)
		return;
	end_streams(h, *d, tls);
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
	if (!copy)
		return NULL;
	for (unsigned i = 0; i < n; i++) {
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

static void settings_done(struct http_settings *s)
{
	list_free(s->hosts);
	list_free(s->origins);
	free(s->cert);
	if (s->key)
		explicit_bzero(s->key, strlen(s->key));
	free(s->key);
	*s = (struct http_settings){ 0 };
}

/* Adds the setting's name to the message. All errors except -GW_E_PERM and -GW_E_NOMEM become
 * -GW_E_ARG. */
static int name_setting(int err, const char *key, char *message, size_t size)
{
	char why[512];

	if (!err || err == -GW_E_NOMEM)
		return err;
	snprintf(why, sizeof(why), "%s", message);
	snprintf(message, size, "service.%s: %s", key, why);
	return err == -GW_E_PERM ? err : -GW_E_ARG;
}

static int settings_read(struct http_settings *s, const struct http_config *config,
			 char *message, size_t size)
{
	int r;

	*s = (struct http_settings){ 0 };
	if (!config->tls_cert != !config->tls_key) {
		snprintf(message, size,
			 "service.tls_cert and service.tls_key must both be set");
		return -GW_E_ARG;
	}
	if (config->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
		snprintf(
			message, size,
			"this gpuward has no TLS, because its HTTP library has none (as in the "
			"portable archive): install a package of gpuward, or put a proxy with "
			"TLS in front of it");
		return -GW_E_NOSUPPORT;
	}
	r = name_setting(auth_load(&s->auth, config->token_file, message, size), "token_file",
			 message, size);
	if (r == 0 && config->tls_cert)
		r = name_setting(read_text(config->tls_cert, &s->cert, message, size),
				 "tls_cert", message, size);
	if (r == 0 && config->tls_key)
		r = name_setting(read_text(config->tls_key, &s->key, message, size), "tls_key",
				 message, size);
	s->hosts = list_copy(config->hosts);
	s->origins = list_copy(config->origins);
	if (r == 0 && (!s->hosts || !s->origins))
		r = -GW_E_NOMEM;
	if (r != 0)
		settings_done(s);
	return r;
}

/* Returns the number of connections that the descriptor limit allows. */
static unsigned allowed_connections(unsigned connections)
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

static void settings_take(struct http *h, struct http_settings *s,
			  const struct http_config *config)
{
	struct http_settings old = h->settings;

	h->settings = *s;
	h->limit.connections = allowed_connections(config->connections);
	h->limit.streams = config->streams;
	h->limit.state_ns[CONN_HEAD] = config->header_ns;
	h->limit.state_ns[CONN_BODY] = h->limit.state_ns[CONN_BUSY] = config->body_ns;
	h->limit.state_ns[CONN_IDLE] = config->idle_ns;
	h->limit.beat_ns = config->beat_ns ? config->beat_ns : BEAT_NS;
	h->limit.state_ns[CONN_STREAM] = 2 * h->limit.beat_ns + NS_PER_S;
	h->hook.log = config->log;
	h->hook.mark = config->mark;
	settings_done(&old);
}

static int add_sources(struct http *h)
{
	int r = loop_add_timer(h->loop, on_again, h, &h->timer.again);

	if (r == 0)
		r = loop_add_timer(h->loop, conn_deadline, h, &h->timer.deadline);
	if (r == 0)
		r = loop_add_timer(h->loop, conn_rest, h, &h->timer.rest);
	if (r == 0)
		r = loop_add_timer(h->loop, on_beat, h, &h->timer.beat);
	if (r == 0)
		loop_set_time(h->timer.beat, clock_mono_ns(clock_real()) + h->limit.beat_ns);
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
			r = loop_add_fd(h->loop, l->fd, EPOLLIN, conn_accept, l, &l->source);
		if (r != 0)
			return r;
	}
	return 0;
}

static int http_start(struct http *h, const struct http_config *config, char *message,
		      size_t size)
{
	struct http_settings settings;
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
		r = start_daemon(h, 0, &h->library.plain, &h->library.plain_source, message,
				 size);
	if (r == 0 && h->settings.cert)
		r = start_daemon(h, MHD_USE_TLS, &h->library.tls, &h->library.tls_source,
				 message, size);
	if (r == 0)
		r = open_listeners(h, config, message, size);
	return r;
}

int http_new(struct loop *l, const struct http_config *config, struct http **ret, char *message,
	     size_t size)
{
	struct http *h = calloc(1, sizeof(*h));
	int r = -GW_E_NOMEM;

	snprintf(message, size, "out of memory");
	if (!h)
		return r;
	h->loop = l;
	h->route = config->route;
	h->routes = config->routes;
	h->hook.arg = config->arg;
	/* Only version 0 of the library leaves headers at the place in memory where they
	 * arrived. */
	h->library.in_place = MHD_get_version()[0] == '0';
	h->now_ns = clock_mono_ns(clock_real());
	h->cache = calloc(config->routes + 1, sizeof(*h->cache));
	if (h->cache)
		r = http_start(h, config, message, size);
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
	h->library.running = true; /* While the library stops, http_poke() must not run it. */
	stop_daemon(h, &h->library.plain, &h->library.plain_source);
	stop_daemon(h, &h->library.tls, &h->library.tls_source);
	for (unsigned i = 0; h->cache && i < h->routes; i++)
		cache_drop(h, (int)i, true);
	loop_remove(h->timer.again);
	loop_remove(h->timer.deadline);
	loop_remove(h->timer.rest);
	loop_remove(h->timer.beat);
	router_free(h->router);
	settings_done(&h->settings);
	free(h->listener);
	free(h->cache);
	free(h);
}

int http_reload(struct http *h, const struct http_config *config, char *message, size_t size)
{
	struct http_settings settings;
	int r = settings_read(&settings, config, message, size);

	for (unsigned i = 0; r == 0 && i < h->listeners; i++)
		r = listen_allowed(&h->listener[i], config, message, size);
	if (r != 0) {
		settings_done(&settings);
		return r;
	}

	bool other = !text_same(settings.cert, h->settings.cert) ||
		     !text_same(settings.key, h->settings.key);
	struct MHD_Daemon *tls = NULL;
	struct loop_source *source = NULL;
	char *cert = h->settings.cert, *key = h->settings.key;

	if (other && settings.cert) { /* Start the new TLS daemon before the old one stops. */
		h->settings.cert = settings.cert;
		h->settings.key = settings.key;
		r = start_daemon(h, MHD_USE_TLS, &tls, &source, message, size);
		h->settings.cert = cert;
		h->settings.key = key;
	}
	if (r != 0) {
		settings_done(&settings);
		return r;
	}
	if (other) {
		stop_daemon(h, &h->library.tls, &h->library.tls_source);
		h->library.tls = tls;
		h->library.tls_source = source;
		for (unsigned i = 0; i < h->listeners; i++)
			listen_set_tls(&h->listener[i], tls != NULL);
	}
	*message = '\0';
	if (h->settings.auth.token && !settings.auth.token)
		snprintf(message, size,
			 "service.token_file is no longer set: every client may open and end "
			 "energy windows; everything else can be changed only through the "
			 "UNIX socket");
	settings_take(h, &settings, config);
	for (unsigned i = 0; i < h->routes;
	     i++) /* The headers of cached replies may have changed. */
		cache_drop(h, (int)i, true);
	conn_deadline(h, clock_mono_ns(clock_real()));
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
