#include "bus_connection.h"

#include <gpuward.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN_SIZE (64 * 1024) /* Larger than any message that is accepted. */
#define FDS     4 /* Maximum number of descriptors per read. No caller requests more than one. */

bool bus_address_read(struct bus_address *ret, const char *list, const char *fallback)
{
	static const char *const forms[] = { "unix:path=", "unix:abstract=" };
	struct sockaddr_un *a = &ret->a;

	*ret = (struct bus_address){ { .sun_family = AF_UNIX }, sizeof(*a) };
	if (!list || !*list)
		return (size_t)snprintf(a->sun_path, sizeof(a->sun_path), "%s", fallback) <
		       sizeof(a->sun_path);
	for (size_t i = 0; i < 2; i++) {
		const char *name = list + strlen(forms[i]);
		size_t n;

		if (strncmp(list, forms[i], strlen(forms[i])) != 0)
			continue;
		n = strcspn(name, ",;%");
		if (name[n] == '%' || i + n >= sizeof(a->sun_path))
			return false;
		memcpy(a->sun_path + i, name, n); /* An abstract name begins with NUL. */
		if (i)
			ret->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
		return true;
	}
	return false;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int bus_connection_open(struct bus_connection *c, const struct bus_address *to, bool unix_fds)
{
	*c = (struct bus_connection)BUS_CONNECTION_CLOSED;
	c->unix_fds = unix_fds;
	c->in = malloc(IN_SIZE);
	if (!c->in)
		return -GW_E_NOMEM;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd >= 0 && connect(c->fd, (const struct sockaddr *)&to->a, to->size) == 0)
		return 0;
	return -GW_E_IO;
}

void bus_connection_close(struct bus_connection *c)
{
	close_fd(&c->fd);
	close_fd(&c->received);
	free(c->in);
	*c = (struct bus_connection)BUS_CONNECTION_CLOSED;
}

static void write_bus_call(struct buf *out, uint32_t serial, const char *member,
			   const char *argument)
{
	const struct bus_method m = { BUS_NAME, "/org/freedesktop/DBus", BUS_NAME, member };
	const char *const arg[] = { argument, NULL };

	bus_write(out, serial, &m, arg);
}

void bus_connection_hello(const struct bus_connection *c, struct buf *out, uint32_t serial)
{
	bus_write_greeting(out, c->unix_fds);
	write_bus_call(out, serial, "Hello", NULL);
}

void bus_write_match(struct buf *out, uint32_t serial, const char *rule)
{
	write_bus_call(out, serial, "AddMatch", rule);
}

int bus_connection_send(struct bus_connection *c, const struct buf *out, int wait_ms)
{
	size_t sent = 0;

	if (out->err)
		return -GW_E_IO;
	while (sent < out->len) {
		struct pollfd p = { c->fd, POLLOUT, 0 };
		ssize_t n = send(c->fd, out->p + sent, out->len - sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			sent += (size_t)n;
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -GW_E_IO;
		else if (poll(&p, 1, wait_ms) == 0)
			return -GW_E_IO;
	}
	return 0;
}

/* Returns the size of the server's lines before its first message: "OK id" and, with unix_fds,
 * "AGREE_UNIX_FD". If the server sends ERROR instead of the second line, no descriptors will
 * arrive. Returns 0 if the lines are incomplete, or -1 if the authentication failed. */
static long greeting_size(const struct bus_connection *c)
{
	const uint8_t *end = memchr(c->in, '\n', c->used);

	if (c->used >= 3 && strncmp((const char *)c->in, "OK ", 3) != 0)
		return -1;
	if (end && c->unix_fds)
		end = memchr(end + 1, '\n', c->used - (size_t)(end + 1 - c->in));
	return end ? end + 1 - c->in : 0;
}

/* Keeps only the last descriptor, because no caller waits for more than one. */
static void take_fds(struct bus_connection *c, struct msghdr *h)
{
	for (struct cmsghdr *m = CMSG_FIRSTHDR(h); m; m = CMSG_NXTHDR(h, m)) {
		int fd[FDS];
		size_t n = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS || n > FDS)
			continue;
		memcpy(fd, CMSG_DATA(m), n * sizeof(int));
		for (size_t i = 0; i < n; i++) {
			close_fd(&c->received);
			c->received = fd[i];
		}
	}
}

/* Receives bytes. Returns false if the connection is lost. */
static bool receive(struct bus_connection *c)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	struct iovec v = { c->in + c->used, IN_SIZE - c->used };
	struct msghdr h = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control.space,
			    .msg_controllen = sizeof(control.space) };
	ssize_t n = recvmsg(c->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	take_fds(c, &h);
	c->used += (size_t)n;
	return n > 0;
}

int bus_connection_read(struct bus_connection *c,
			bool (*handle)(void *arg, const struct bus_message *m), void *arg)
{
	if (!receive(c))
		return -GW_E_IO;
	while (c->used > 0) {
		struct bus_message m;
		long n = c->greeted ? bus_read(c->in, c->used, &m) : greeting_size(c);

		if (n < 0 || (n == 0 && c->used == IN_SIZE))
			return -GW_E_IO;
		if (n == 0)
			return 0;
		if (!c->greeted)
			c->greeted = true;
		else if (!handle(arg, &m))
			return -GW_E_IO;
		c->used -= (size_t)n;
		memmove(c->in, c->in + n, c->used);
	}
	return 0;
}
