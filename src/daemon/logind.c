#include "logind.h"

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

#define AGAIN_NS    (60 * NS_PER_S)
#define IN_SIZE     (64 * 1024) /* more than the largest message that we take */
#define OUT_SIZE    2048
#define FDS         4 /* that may come with what is read at once; we ask for one */
#define BUS_PATH    "/run/dbus/system_bus_socket"
#define BUS         "org.freedesktop.DBus"
#define LOGIND      "org.freedesktop.login1"
#define LOGIND_PATH "/org/freedesktop/login1"
#define MANAGER     "org.freedesktop.login1.Manager"
#define SIGNAL      "PrepareForSleep"
#define OWNER       "NameOwnerChanged"

/* The numbers of our calls. */
enum { S_HELLO = 1, S_MATCH, S_OWNER, S_LOCK };

struct logind {
	struct loop *loop;
	void (*sleeps)(void *arg, bool going);
	void *arg;
	struct loop_source *source, *again;
	int fd;       /* -1: not connected                      */
	int lock;     /* what logind waits for; -1: we have none */
	int came;     /* a descriptor that came with the answer that is read; -1: none */
	bool greeted; /* the lines of the beginning are over    */
	bool going;   /* it was said that the machine will sleep */
	bool ready;   /* and as far as we are concerned it may   */
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
	close_fd(&l->came);
	free(l->in);
	l->in = NULL;
	l->used = 0;
	l->greeted = false;
}

static void turn(struct logind *l, bool going)
{
	bool news = going != l->going;

	l->going = going;
	l->ready = l->ready && going;
	if (news)
		l->sleeps(l->arg, going);
}

/* Whom nobody will tell that it is awake takes it for awake. */
static void later(struct logind *l)
{
	disconnect(l);
	turn(l, false);
	loop_set_time(l->again, clock_mono_ns(clock_real()) + AGAIN_NS);
}

/* ---- what we say ---- */

/* A few hundred bytes at a time, into a buffer of the kernel's that takes many thousand: what does not fit at once
 * means that nobody reads. */
static bool send_all(struct logind *l, const struct buf *out)
{
	return !out->err &&
	       send(l->fd, out->p, out->len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)out->len;
}

static void ask_lock(struct buf *out)
{
	static const struct bus_method m = { LOGIND, LOGIND_PATH, MANAGER, "Inhibit" };
	static const char *const arg[] = { "sleep", "gpuward", "closes the GPUs' drivers",
					   "delay", NULL };

	bus_write(out, S_LOCK, &m, arg);
}

/* All that there is to say at the beginning, at once; the bus answers in this order. */
static bool greet(struct logind *l)
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
	char text[OUT_SIZE], uid[16];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	buf_addc(&out, '\0');
	buf_adds(&out, "AUTH EXTERNAL ");
	snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
	for (const char *p = uid; *p; p++)
		buf_addf(&out, "%02x", (unsigned char)*p);
	buf_adds(&out, "\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n");
	bus_write(&out, S_HELLO, &hello, none);
	bus_write(&out, S_MATCH, &match, rule);
	bus_write(&out, S_OWNER, &match, owner);
	ask_lock(&out);
	return send_all(l, &out);
}

static bool lock_again(struct logind *l)
{
	char text[OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	ask_lock(&out);
	return send_all(l, &out);
}

void logind_ready(struct logind *l)
{
	if (!l)
		return;
	close_fd(&l->lock);
	l->ready = l->going;
}

/* ---- what we hear ---- */

static bool is_signal(const struct bus_message *m)
{
	/* What has a destination was sent to us alone, past the rule that names its sender: anybody can do that. */
	return m->type == BUS_SIGNAL && !m->destination && m->member && m->interface &&
	       strcmp(m->member, SIGNAL) == 0 && strcmp(m->interface, MANAGER) == 0;
}

/* logind begins, or ends: the bus says it, and puts in who says it. */
static bool is_another(const struct bus_message *m)
{
	return m->type == BUS_SIGNAL && !m->destination && m->member && m->sender &&
	       strcmp(m->member, OWNER) == 0 && strcmp(m->sender, BUS) == 0;
}

/* false: nothing good comes of this connection. */
static bool heard(struct logind *l, const struct bus_message *m)
{
	bool going;

	if (m->type == BUS_ERROR && m->reply_to != S_LOCK)
		return false;
	if (m->type == BUS_REPLY && m->reply_to == S_LOCK) {
		close_fd(&l->lock);
		l->lock = l->came;
		l->came = -1;
		if (l->ready) /* it comes too late to be of use, and would hold it up */
			close_fd(&l->lock);
	} else if (is_signal(m) && bus_read_bool(m, &going) == 0) {
		turn(l, going);
		return going || lock_again(l);
	} else if (is_another(m)) { /* one that has not said it will not say that it is over */
		turn(l, false);
		return lock_again(l);
	}
	return true;
}

/* "OK id", "AGREE_UNIX_FD" (or an ERROR: then there is no lock): two lines, before the first message.  How many bytes
 * they are; 0: not all there; -1: we are not let in. */
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

static bool digest(struct logind *l)
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
		else if (!heard(l, &m))
			return false;
		l->used -= (size_t)n;
		memmove(l->in, l->in + n, l->used);
	}
	return true;
}

/* The last of those that came stays; we never wait for two. */
static void take_fds(struct logind *l, struct msghdr *h)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		int fd[FDS];
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || n > FDS)
			continue;
		memcpy(fd, CMSG_DATA(c), n * sizeof(int));
		for (size_t i = 0; i < n; i++) {
			close_fd(&l->came);
			l->came = fd[i];
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

static void readable(void *arg, int fd, uint32_t events)
{
	struct logind *l = arg;

	(void)fd;
	(void)events;
	if (!read_some(l) || !digest(l))
		later(l);
}

/* ---- beginning and end ---- */

/* The first address of the list; what is escaped in it or is no path is not understood. */
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
	    connect(l->fd, (const struct sockaddr *)&a, sizeof(a)) != 0 || !greet(l) ||
	    loop_add_fd(l->loop, l->fd, EPOLLIN, readable, l, &l->source) != 0)
		later(l);
}

int logind_new(struct loop *loop, void (*sleeps)(void *arg, bool going), void *arg,
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
	l->fd = l->lock = l->came = -1;
	connect_bus(l, 0);
	*ret = l;
	return 0;
}

void logind_free(struct logind *l)
{
	if (!l)
		return;
	disconnect(l);
	loop_remove(l->again);
	free(l);
}
