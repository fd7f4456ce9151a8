#include "suspend.h"

#include "bus_message.h"

#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY_NS    (60 * NS_PER_S)
#define IN_SIZE     (64 * 1024) /* Larger than any message that is accepted. */
#define OUT_SIZE    2048
#define FDS         4 /* Maximum number of descriptors per read. Only one is requested. */
#define BUS_PATH    "/run/dbus/system_bus_socket"
#define BUS         "org.freedesktop.DBus"
#define LOGIND      "org.freedesktop.login1"
#define LOGIND_PATH "/org/freedesktop/login1"
#define MANAGER     "org.freedesktop.login1.Manager"
#define SIGNAL      "PrepareForSleep"
#define OWNER       "NameOwnerChanged"

/* Receives PrepareForSleep on the system bus and holds a delay lock, so that logind waits
 * for the service. logind waits a few seconds at most (InhibitDelayMaxSec=). Without a bus
 * or logind nothing happens, and the service tries to connect again every minute. */

/* Serial numbers of our calls. */
enum { S_HELLO = 1, S_MATCH, S_OWNER, S_LOCK };

struct logind {
	struct loop *loop;
	/* going is true if the machine is about to suspend, and false if it is awake. */
	void (*sleeps)(void *arg, bool going);
	void *arg;
	struct loop_source *source, *again;
	int fd;   /* Socket of the system bus. -1 if it is not connected. */
	int lock; /* Descriptor of the delay lock. -1 if there is none. */
	/* Descriptor that was received with the current message. -1 if there is none. */
	int received;
	bool greeted; /* The authentication is complete. */
	bool going;   /* logind announced a suspend. */
	bool ready;   /* The service is ready for the suspend. */
	uint8_t *in;
	size_t used;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void disconnect(struct logind *l)
{
	loop_remove(l->source);
	l->source = NULL;
	close_fd(&l->fd);
	close_fd(&l->lock);
	close_fd(&l->received);
	free(l->in);
	l->in = NULL;
	l->used = 0;
	l->greeted = false;
}

static void set_going(struct logind *l, bool going)
{
	bool news = going != l->going;

	l->going = going;
	l->ready = l->ready && going;
	if (news)
		l->sleeps(l->arg, going);
}

/* If the bus connection is lost, the service assumes that the machine is awake. */
static void retry_later(struct logind *l)
{
	disconnect(l);
	set_going(l, false);
	loop_set_time(l->again, clock_mono_ns(clock_real()) + RETRY_NS);
}

/* Sends a message. Returns false if it does not fit into the socket buffer: messages have a
 * few hundred bytes and the buffer takes many thousand, so the bus has stopped reading. */
static bool send_all(struct logind *l, const struct buf *out)
{
	return !out->err &&
	       send(l->fd, out->p, out->len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)out->len;
}

static void write_inhibit(struct buf *out)
{
	static const struct bus_method m = { LOGIND, LOGIND_PATH, MANAGER, "Inhibit" };
	static const char *const arg[] = { "sleep", "gpuward", "closes the GPUs' drivers",
					   "delay", NULL };

	bus_write(out, S_LOCK, &m, arg);
}

/* Sends the authentication and the first calls together. The bus answers in this order. */
static bool send_greeting(struct logind *l)
{
	static const struct bus_method hello = { BUS, "/org/freedesktop/DBus", BUS, "Hello" },
				       match = { BUS, "/org/freedesktop/DBus", BUS,
						 "AddMatch" };
	static const char *const none[] = { NULL },
				 *const rule[] = { "type='signal',sender='" LOGIND
						   "',path='" LOGIND_PATH
						   "',interface='" MANAGER "',member='" SIGNAL
						   "'",
						   NULL },
				 *const owner[] = { "type='signal',sender='" BUS
						    "',interface='" BUS "',member='" OWNER
						    "',arg0='" LOGIND "'",
						    NULL };
	char text[OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	bus_write_greeting(&out, true);
	bus_write(&out, S_HELLO, &hello, none);
	bus_write(&out, S_MATCH, &match, rule);
	bus_write(&out, S_OWNER, &match, owner);
	write_inhibit(&out);
	return send_all(l, &out);
}

static bool request_lock(struct logind *l)
{
	char text[OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	write_inhibit(&out);
	return send_all(l, &out);
}

static bool is_signal(const struct bus_message *m)
{
	/* Any process can send a signal with a destination directly to this service. Such a
	 * signal bypasses the match rule for the sender, so it is ignored. */
	return m->type == BUS_SIGNAL && !m->destination && m->member && m->interface &&
	       strcmp(m->member, SIGNAL) == 0 && strcmp(m->interface, MANAGER) == 0;
}

/* True if logind started or stopped. The bus itself sends this signal. */
static bool is_owner_change(const struct bus_message *m)
{
	return m->type == BUS_SIGNAL && !m->destination && m->member && m->sender &&
	       strcmp(m->member, OWNER) == 0 && strcmp(m->sender, BUS) == 0;
}

/* Handles one message. Returns false if the connection must be closed. */
static bool handle_message(struct logind *l, const struct bus_message *m)
{
	bool going;

	if (m->type == BUS_ERROR && m->reply_to != S_LOCK)
		return false;
	if (m->type == BUS_REPLY && m->reply_to == S_LOCK) {
		close_fd(&l->lock);
		l->lock = l->received;
		l->received = -1;
		if (l->ready) /* The lock came too late. Keeping it would delay the suspend. */
			close_fd(&l->lock);
	} else if (is_signal(m) && bus_read_bool(m, &going) == 0) {
		set_going(l, going);
		return going || request_lock(l);
	} else if (is_owner_change(m)) {
		/* logind restarted. It will not report the end of a suspend that began
		 * before. */
		set_going(l, false);
		return request_lock(l);
	}
	return true;
}

/* Reads the two lines before the first message: "OK id" and "AGREE_UNIX_FD". The second line
 * may be ERROR; then there is no lock. Returns their size, 0 if they are incomplete, or -1
 * if the authentication failed. */
static long greeting(const struct logind *l)
{
	const char *text = (const char *)l->in;
	const uint8_t *end = memchr(l->in, '\n', l->used);
	const uint8_t *second =
		end ? memchr(end + 1, '\n', l->used - (size_t)(end + 1 - l->in)) : NULL;

	if (l->used >= 3 && strncmp(text, "OK ", 3) != 0)
		return -1;
	return second ? second + 1 - l->in : 0;
}

static bool handle_input(struct logind *l)
{
	while (l->used > 0) {
		struct bus_message m;
		long n = l->greeted ? bus_read(l->in, l->used, &m) : greeting(l);

		if (n < 0 || (n == 0 && l->used == IN_SIZE))
			return false;
		if (n == 0)
			return true;
		if (!l->greeted)
			l->greeted = true;
		else if (!handle_message(l, &m))
			return false;
		l->used -= (size_t)n;
		memmove(l->in, l->in + n, l->used);
	}
	return true;
}

/* Keeps only the last descriptor, because the service never waits for more than one. */
static void take_fds(struct logind *l, struct msghdr *h)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		int fd[FDS];
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || n > FDS)
			continue;
		memcpy(fd, CMSG_DATA(c), n * sizeof(int));
		for (size_t i = 0; i < n; i++) {
			close_fd(&l->received);
			l->received = fd[i];
		}
	}
}

static bool read_some(struct logind *l)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	struct iovec v = { l->in + l->used, IN_SIZE - l->used };
	struct msghdr h = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control.space,
			    .msg_controllen = sizeof(control.space) };
	ssize_t n = recvmsg(l->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	take_fds(l, &h);
	l->used += (size_t)n;
	return n > 0;
}

static void bus_readable(void *arg, int fd, uint32_t events)
{
	struct logind *l = arg;

	(void)fd;
	(void)events;
	if (!read_some(l) || !handle_input(l))
		retry_later(l);
}

/* Makes the address of the system bus from the first address of the list. Only a plain
 * unix:path= is supported. */
static bool bus_address(struct sockaddr_un *a)
{
	static const char prefix[] = "unix:path=";
	const char *given = getenv("DBUS_SYSTEM_BUS_ADDRESS");
	size_t n;

	if (!given || !*given)
		return snprintf(a->sun_path, sizeof(a->sun_path), "%s", BUS_PATH) > 0;
	if (strncmp(given, prefix, strlen(prefix)) != 0)
		return false;
	given += strlen(prefix);
	n = strcspn(given, ",;%");
	if (given[n] == '%' || n >= sizeof(a->sun_path))
		return false;
	memcpy(a->sun_path, given, n);
	return true;
}

static void connect_bus(void *arg, uint64_t now_ns)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct logind *l = arg;

	(void)now_ns;
	l->in = malloc(IN_SIZE);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (!l->in || l->fd < 0 || !bus_address(&a) ||
	    connect(l->fd, (const struct sockaddr *)&a, sizeof(a)) != 0 || !send_greeting(l) ||
	    loop_add_fd(l->loop, l->fd, EPOLLIN, bus_readable, l, &l->source) != 0)
		retry_later(l);
}

static int logind_new(struct loop *loop, void (*sleeps)(void *arg, bool going), void *arg,
		      struct logind **ret)
{
	struct logind *l = calloc(1, sizeof(*l));

	if (!l || loop_add_timer(loop, connect_bus, l, &l->again) != 0) {
		free(l);
		return -GW_E_NOMEM;
	}
	l->loop = loop;
	l->sleeps = sleeps;
	l->arg = arg;
	l->fd = l->lock = l->received = -1;
	connect_bus(l, 0);
	*ret = l;
	return 0;
}

static void logind_free(struct logind *l)
{
	if (!l)
		return;
	disconnect(l);
	loop_remove(l->again);
	free(l);
}

struct suspend {
	struct engine *engine;
	struct logind *logind;
	bool going; /* The machine is about to suspend, or is suspended. */
	/* This module requested the release of the drivers, and must open them again. */
	bool let_go;
	bool waited; /* logind waits until the drivers are released. */
	int number;  /* Number of the last request. */
};

static bool send_request(struct suspend *d, enum view_request what)
{
	const struct view *v = engine_view(d->engine);
	int number = v->ops->request(v->engine, what);

	if (number > 0)
		d->number = number;
	return number > 0;
}

/* Releases the delay lock, so that the machine may suspend. */
static void allow_suspend(struct suspend *d)
{
	d->waited = false;
	close_fd(&d->logind->lock);
	d->logind->ready = d->logind->going;
}

/* Releases the drivers. The view is only reliable if no request is pending, because a
 * pending request could open the drivers. If the request queue is full, the next view tries
 * again. */
static void begin_suspend(struct suspend *d)
{
	const struct view *v = engine_view(d->engine);

	if (v->let_go && v->requests.done == v->requests.made)
		allow_suspend(d);
	else
		d->let_go = send_request(d, VIEW_LET_GO) || d->let_go;
}

/* Opens the drivers again. If the request queue is full, the next view tries again. */
static void open_drivers(struct suspend *d)
{
	if (!d->let_go || !send_request(d, VIEW_RESUME))
		return;
	d->let_go = false;
	engine_event(d->engine, "service", NULL, "info",
		     "the machine resumed; the drivers are opened again");
}

static void logind_changed(void *arg, bool going)
{
	struct suspend *d = arg;

	/* logind waits for the service before a suspend, but not after a resume. */
	d->going = d->waited = going;
	if (going)
		begin_suspend(d);
	else
		open_drivers(d);
}

static void emit_suspend(const struct suspend *d, const struct view *v)
{
	if (v->let_go)
		engine_event(d->engine, "service", NULL, "info",
			     "the machine suspends; the drivers are released");
	else
		engine_event(d->engine, "service", NULL, "warning",
			     "the machine suspends while a driver is still open: %s",
			     gw_strerror(v->requests.error));
}

void suspend_tick(struct suspend *d)
{
	const struct view *v = d ? engine_view(d->engine) : NULL;

	if (!d)
		return;
	if (!d->going) {
		open_drivers(d);
	} else if (d->waited && !d->let_go) {
		begin_suspend(d);
	} else if (d->waited && view_request_done(v, d->number)) {
		emit_suspend(d, v);
		allow_suspend(d);
	}
}

int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret)
{
	struct suspend *d = calloc(1, sizeof(*d));

	if (!d)
		return -GW_E_NOMEM;
	d->engine = engine;
	if (logind_new(loop, logind_changed, d, &d->logind) != 0) {
		free(d);
		return -GW_E_NOMEM;
	}
	*ret = d;
	return 0;
}

void suspend_free(struct suspend *d)
{
	if (d)
		logind_free(d->logind);
	free(d);
}
