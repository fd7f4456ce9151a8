#include "desktop_notification.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "daemon/bus_message.h"

#include <gpuward.h>

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BUS      "org.freedesktop.DBus"
#define BUS_PATH "/org/freedesktop/DBus"
#define NOTES    "org.freedesktop.Notifications"
#define IN_SIZE  (64 * 1024) /* larger than any message that is accepted */
#define OUT_SIZE 8192
#define SHOWN    32 /* how many notifications with a button are remembered */
#define WAIT_MS  2000

/* Serial numbers of the first calls; notifications follow. */
enum { S_HELLO = 1, S_MATCH, S_NOTES };

struct shown {
	uint32_t serial; /* serial number of the call; 0: this place is free */
	uint32_t id;     /* id that the desktop gave to the notification; 0: no answer yet */
	char tag[64];
};

struct desktop {
	int fd;
	bool greeted; /* authentication is complete */
	uint32_t serial;
	struct shown shown[SHOWN];
	unsigned next;
	char refusal[200];
	size_t used;
	uint8_t in[IN_SIZE];
};

/* Writes the address of the session bus: the first usable entry of DBUS_SESSION_BUS_ADDRESS or,
 * if that is not set, the socket "bus" in XDG_RUNTIME_DIR. Returns false if there is none. */
static bool session_address(struct sockaddr_un *a, socklen_t *ret_size)
{
	const char *given = getenv("DBUS_SESSION_BUS_ADDRESS"),
		   *run = getenv("XDG_RUNTIME_DIR");
	static const char path[] = "unix:path=", abstract[] = "unix:abstract=";
	size_t n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*ret_size = sizeof(*a);
	if (!given || !*given) {
		if (run && *run == '/')
			n = (size_t)snprintf(a->sun_path, sizeof(a->sun_path), "%s/bus", run);
		else
			n = (size_t)snprintf(a->sun_path, sizeof(a->sun_path),
					     "/run/user/%u/bus", (unsigned)getuid());
		return n < sizeof(a->sun_path);
	}
	if (strncmp(given, path, strlen(path)) == 0) {
		given += strlen(path);
		n = strcspn(given, ",;%");
		if (given[n] == '%' || n >= sizeof(a->sun_path))
			return false;
		memcpy(a->sun_path, given, n);
		return true;
	}
	if (strncmp(given, abstract, strlen(abstract)) != 0)
		return false;
	given += strlen(abstract);
	n = strcspn(given, ",;%");
	if (given[n] == '%' || n + 1 >= sizeof(a->sun_path))
		return false;
	memcpy(a->sun_path + 1, given, n); /* an abstract name begins with NUL */
	*ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	return true;
}

/* Sends a message of a few hundred bytes. Fails if the bus does not accept it within
 * WAIT_MS. */
static int send_all(struct desktop *d, const struct buf *out)
{
	size_t sent = 0;

	if (out->err)
		return -GW_E_IO;
	while (sent < out->len) {
		struct pollfd p = { d->fd, POLLOUT, 0 };
		ssize_t n = send(d->fd, out->p + sent, out->len - sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			sent += (size_t)n;
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -GW_E_IO;
		else if (poll(&p, 1, WAIT_MS) == 0)
			return -GW_E_IO;
	}
	return 0;
}

static int greet(struct desktop *d)
{
	static const struct bus_method hello = { BUS, BUS_PATH, BUS, "Hello" },
				       match = { BUS, BUS_PATH, BUS, "AddMatch" };
	static const char *const none[] = { NULL }, *const rule[] = {
		"type='signal',interface='" NOTES "',member='ActionInvoked'", NULL
	};
	char text[OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	bus_write_greeting(&out, false);
	bus_write(&out, S_HELLO, &hello, none);
	bus_write(&out, S_MATCH, &match, rule);
	d->serial = S_NOTES;
	return send_all(d, &out);
}

int desktop_open(struct desktop **ret, char *message, size_t size)
{
	struct desktop *d = calloc(1, sizeof(*d));
	struct sockaddr_un a;
	socklen_t n;

	if (!d) {
		snprintf(message, size, "%s", gw_strerror(-GW_E_NOMEM));
		return -GW_E_NOMEM;
	}
	d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!session_address(&a, &n))
		snprintf(message, size,
			 "DBUS_SESSION_BUS_ADDRESS names no socket that gpuward can use "
			 "(unix:path= or unix:abstract=)");
	else if (d->fd < 0 || connect(d->fd, (const struct sockaddr *)&a, n) != 0)
		snprintf(
			message, size,
			"the session bus at %s cannot be reached (%s); run gpuward notify in a "
			"desktop session",
			a.sun_path[0] ? a.sun_path : a.sun_path + 1, strerror(errno));
	else if (greet(d) != 0)
		snprintf(message, size, "the session bus does not accept the connection");
	else {
		*ret = d;
		return 0;
	}
	desktop_close(d);
	return -GW_E_IO;
}

void desktop_close(struct desktop *d)
{
	if (d && d->fd >= 0)
		close(d->fd);
	free(d);
}

int desktop_fd(const struct desktop *d)
{
	return d->fd;
}

const char *desktop_refusal(const struct desktop *d)
{
	return d->refusal;
}

/* Copies a text without control characters, invalid UTF-8 and markup, because other programs
 * choose the names of processes. The bus closes the connection after invalid UTF-8. */
static void copy_plain(char *out, size_t size, const char *text)
{
	utf8_clean(out, size, text);
	for (; (out = strpbrk(out, "<>&")); out++)
		*out = '_';
}

static uint32_t latest_id(const struct desktop *d, const char *tag)
{
	for (unsigned i = 1; i <= SHOWN; i++) {
		const struct shown *s = &d->shown[(d->next + SHOWN - i) % SHOWN];

		if (s->serial && strcmp(s->tag, tag) == 0)
			return s->id;
	}
	return 0;
}

int desktop_show(struct desktop *d, const char *tag, const char *summary, const char *body,
		 const char *button)
{
	static const struct bus_method notify = { NOTES, "/org/freedesktop/Notifications",
						  NOTES, "Notify" };
	const char *const actions[] = { button ? "hold" : NULL, button, NULL };
	const uint32_t replaces = latest_id(d, tag);
	struct shown *s = &d->shown[d->next++ % SHOWN];
	char title[200], line[600], text[OUT_SIZE];
	struct bus_call c;
	struct buf out;

	*s = (struct shown){ .serial = d->serial++ };
	snprintf(s->tag, sizeof(s->tag), "%s", tag);
	copy_plain(title, sizeof(title), summary);
	copy_plain(line, sizeof(line), body);
	buf_init_fixed(&out, text, sizeof(text));
	bus_call_begin(&c, &out, s->serial, &notify, "susssasa{sv}i");
	bus_put_text(&c, "gpuward");
	bus_put_u32(&c, replaces);
	bus_put_text(&c, "video-display");
	bus_put_text(&c, title);
	bus_put_text(&c, line);
	bus_put_texts(&c, actions);
	bus_put_no_pairs(&c);
	bus_put_u32(&c, UINT32_MAX); /* the desktop decides how long it is shown */
	bus_call_end(&c);
	return send_all(d, &out);
}

static void take_answer(struct desktop *d, const struct bus_message *m)
{
	for (unsigned i = 0; i < SHOWN; i++) {
		if (!d->shown[i].serial || d->shown[i].serial != m->reply_to)
			continue;
		if (m->type == BUS_REPLY)
			(void)bus_read_u32(m, &d->shown[i].id);
		snprintf(d->refusal, sizeof(d->refusal), "%s",
			 m->type == BUS_ERROR ? (m->error ? m->error : "unknown error") : "");
	}
}

static void take_signal(const struct desktop *d, const struct bus_message *m,
			void (*pressed)(void *arg, const char *tag), void *arg)
{
	const char *action;
	uint32_t id;

	if (!m->member || strcmp(m->member, "ActionInvoked") != 0 ||
	    bus_read_u32_text(m, &id, &action) != 0 || strcmp(action, "hold") != 0)
		return;
	for (unsigned i = 0; i < SHOWN; i++)
		if (d->shown[i].serial && id && d->shown[i].id == id) {
			pressed(arg, d->shown[i].tag);
			return;
		}
}

/* Returns the size of the line that ends the authentication, 0 if it is incomplete, or -1 if
 * the bus refused. */
static long greeting(const struct desktop *d)
{
	const uint8_t *end = memchr(d->in, '\n', d->used);

	if (d->used >= 3 && strncmp((const char *)d->in, "OK ", 3) != 0)
		return -1;
	return end ? end + 1 - d->in : 0;
}

int desktop_handle(struct desktop *d, void (*pressed)(void *arg, const char *tag), void *arg)
{
	ssize_t got = recv(d->fd, d->in + d->used, IN_SIZE - d->used, MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -GW_E_IO;
	if (got == 0)
		return -GW_E_IO;
	d->used += (size_t)got;
	while (d->used) {
		struct bus_message m;
		long n = d->greeted ? bus_read(d->in, d->used, &m) : greeting(d);

		if (n < 0 || (n == 0 && d->used == IN_SIZE))
			return -GW_E_IO;
		if (n == 0)
			return 0;
		if (!d->greeted)
			d->greeted = true;
		else if (m.type == BUS_SIGNAL)
			take_signal(d, &m, pressed, arg);
		else
			take_answer(d, &m);
		d->used -= (size_t)n;
		memmove(d->in, d->in + n, d->used);
	}
	return 0;
}
