#include "notify.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FD 3 /* SD_LISTEN_FDS_START of sd_listen_fds(3). */

/* Reads a decimal number. Returns false if the variable is missing or invalid. */
static bool env_number(const char *variable, uint64_t *ret)
{
	const char *text = getenv(variable);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0;
}

static void unset_variables(const char *const *variables)
{
	for (; *variables; variables++)
		unsetenv(*variables);
}

static int parse_address(struct notify *n, const char *text, char *message, size_t size)
{
	size_t len = strlen(text);

	if (*text != '/' && *text != '@') {
		snprintf(message, size,
			 "NOTIFY_SOCKET: \"%.60s\" is neither a path nor an abstract socket",
			 text);
		return -GW_E_NOSUPPORT;
	}
	if (len < 2 || len >= sizeof(n->to.sun_path)) {
		snprintf(message, size, "NOTIFY_SOCKET: invalid length of %zu bytes", len);
		return -GW_E_ARG;
	}
	n->to.sun_family = AF_UNIX;
	memcpy(n->to.sun_path, text, len + 1);
	n->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
	/* The name of an abstract socket begins with NUL and has no NUL at its end. */
	if (*text == '@') {
		n->to.sun_path[0] = '\0';
		n->size--;
	}
	return 0;
}

static uint64_t watchdog_ns(void)
{
	uint64_t usec, pid;

	if (!env_number("WATCHDOG_USEC", &usec) || usec == 0 || usec > UINT64_MAX / 1000)
		return 0;
	if (getenv("WATCHDOG_PID") &&
	    (!env_number("WATCHDOG_PID", &pid) || pid != (uint64_t)getpid()))
		return 0;
	return usec * 1000;
}

int notify_init(struct notify *n, char *message, size_t size)
{
	static const char *const variables[] = { "NOTIFY_SOCKET", "WATCHDOG_USEC",
						 "WATCHDOG_PID", NULL };
	const char *text = getenv("NOTIFY_SOCKET");
	int err = 0;

	*n = (struct notify){ .fd = -1 };
	message[0] = '\0';
	if (text && *text) {
		err = parse_address(n, text, message, size);
		if (!err)
			n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (!err && n->fd < 0) {
			snprintf(message, size, "NOTIFY_SOCKET: cannot create a socket: %s",
				 strerror(errno));
			err = -GW_E_IO;
		}
		n->watchdog_ns = n->fd >= 0 ? watchdog_ns() : 0;
	}
	unset_variables(variables);
	return err;
}

void notify_done(struct notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
	n->watchdog_ns = 0;
}

static bool notify_send(const struct notify *n, const char *text)
{
	size_t len = strlen(text);
	ssize_t sent;

	if (n->fd < 0)
		return false;
	do
		sent = sendto(n->fd, text, len, MSG_NOSIGNAL, (const struct sockaddr *)&n->to,
			      n->size);
	while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)len;
}

bool notify_ready(const struct notify *n)
{
	return notify_send(n, "READY=1");
}

bool notify_reloading(const struct notify *n, uint64_t mono_ns)
{
	char text[64];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, mono_ns / 1000);
	return notify_send(n, text);
}

bool notify_stopping(const struct notify *n)
{
	return notify_send(n, "STOPPING=1");
}

bool notify_watchdog(const struct notify *n)
{
	return notify_send(n, "WATCHDOG=1");
}

bool notify_status(const struct notify *n, const char *fmt, ...)
{
	char text[512] = "STATUS=";
	size_t used = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + used, sizeof(text) - used, fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++) /* A line break would start another assignment. */
		if (*p == '\n')
			*p = ' ';
	return notify_send(n, text);
}

/* Writes name i of a list that is separated by colons. */
static void socket_name(const char *names, unsigned i, char *out, size_t size)
{
	for (; names && i; i--) {
		names = strchr(names, ':');
		names = names ? names + 1 : NULL;
	}
	snprintf(out, size, "%.*s", names ? (int)strcspn(names, ":") : 0, names ? names : "");
}

static int adopt_socket(int fd, char *message, size_t size)
{
	socklen_t n = sizeof(int);
	int listens = 0, flags = fcntl(fd, F_GETFD);

	if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 ||
	    !listens) {
		snprintf(message, size,
			 "LISTEN_FDS: descriptor %d is not a listening socket; the socket unit "
			 "needs ListenStream= and Accept=no",
			 fd);
		return -GW_E_ARG;
	}
	return fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0 ? 0 : -GW_E_IO;
}

static int adopt_sockets(struct notify_socket *ret, char *message, size_t size)
{
	const char *names = getenv("LISTEN_FDNAMES");
	uint64_t count, pid;
	int err;

	if (!getenv("LISTEN_FDS") || !env_number("LISTEN_PID", &pid) ||
	    pid != (uint64_t)getpid())
		return 0; /* There are no sockets, or they are for another process. */
	if (!env_number("LISTEN_FDS", &count) || count > NOTIFY_SOCKETS) {
		snprintf(message, size, "LISTEN_FDS must be a number up to %d, not \"%.20s\"",
			 NOTIFY_SOCKETS, getenv("LISTEN_FDS"));
		return -GW_E_ARG;
	}
	for (unsigned i = 0; i < count; i++) {
		ret[i].fd = FIRST_FD + (int)i;
		socket_name(names, i, ret[i].name, sizeof(ret[i].name));
		err = adopt_socket(ret[i].fd, message, size);
		if (err)
			return err;
	}
	return (int)count;
}

int notify_sockets(struct notify_socket ret[static NOTIFY_SOCKETS], char *message, size_t size)
{
	static const char *const variables[] = { "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
						 NULL };
	int count;

	message[0] = '\0';
	count = adopt_sockets(ret, message, size);
	unset_variables(variables);
	return count;
}
