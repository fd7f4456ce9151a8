#include "client.h"

#include "base/clock.h"
#include "base/http_message.h"
#include "base/mailbox.h"

#include <gpuward.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STOP_GRACE_NS (400 * NS_PER_MS)
#define RESOLVE_NS    (2 * NS_PER_S)
#define SLOW_NS       (2 * NS_PER_S)

void deadline_init(struct deadline *d, uint64_t most_ns, const struct deadline_stop *stop)
{
	*d = (struct deadline){ .until_ns = clock_mono_ns(clock_real()) + most_ns,
				.stop = stop };
}

void deadline_check_stop(struct deadline *d)
{
	uint64_t soon = clock_mono_ns(clock_real()) + STOP_GRACE_NS;

	if (!d->stop || !d->stop->requested(d->stop->arg))
		return;
	d->stopped = true;
	d->stop = NULL;
	d->until_ns = d->until_ns < soon ? d->until_ns : soon;
}

int deadline_error(const struct deadline *d)
{
	return d->stopped ? -GW_E_STATE : -GW_E_TIMEOUT;
}

int deadline_poll(struct deadline *d, int fd, short events)
{
	for (;;) {
		uint64_t now = clock_mono_ns(clock_real()), until;
		struct pollfd fds[2] = { { fd, events, 0 }, { -1, POLLIN, 0 } };
		struct timespec t;
		int n;

		deadline_check_stop(d);
		fds[1].fd = d->stop ? d->stop->fd : -1;
		until = d->slow && d->slow_ns < d->until_ns ? d->slow_ns : d->until_ns;
		t = clock_timespec(until > now ? until - now : 0);
		n = ppoll(fds, 2, &t, NULL);
		if (n > 0 && fds[0].revents)
			return 0;
		if (n == 0 && until < d->until_ns) {
			d->slow(d->address);
			d->slow = NULL;
		} else if (n == 0)
			return deadline_error(d);
		if (n < 0 && errno != EINTR)
			return -GW_E_IO;
	}
}

/* One call of getaddrinfo(). The caller and the thread share this struct; the last of them
 * frees it. */
struct lookup {
	char host[512], port[32];
	struct addrinfo *_Atomic list; /* set before done_fd becomes readable; NULL: unknown */
	int done_fd;                   /* becomes readable when the call has ended */
	atomic_int owners;
};

static const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };

static void lookup_unref(struct lookup *q)
{
	if (atomic_fetch_sub(&q->owners, 1) > 1)
		return;
	if (q->list)
		freeaddrinfo(q->list);
	close(q->done_fd);
	free(q);
}

static void *lookup_thread(void *arg)
{
	struct lookup *q = arg;
	struct addrinfo *list;

	if (getaddrinfo(q->host, q->port, &hints, &list) == 0)
		q->list = list;
	eventfd_write(q->done_fd, 1);
	lookup_unref(q);
	return NULL;
}

/* Converts a numeric address, which needs no thread. Returns false if the host is a name. */
static bool resolve_number(const char *host, const char *port, struct addrinfo **ret)
{
	struct addrinfo numeric = hints;

	numeric.ai_flags = AI_NUMERICHOST;
	return getaddrinfo(host, port, &numeric, ret) == 0;
}

int client_resolve(const char *host, const char *port, struct deadline *d,
		   struct addrinfo **ret)
{
	struct lookup *q;
	pthread_t thread;
	int err;

	if (resolve_number(host, port, ret))
		return 0;
	q = calloc(1, sizeof(*q));
	if (!q || (q->done_fd = eventfd(0, EFD_CLOEXEC)) < 0) {
		free(q);
		return -GW_E_NOMEM;
	}
	snprintf(q->host, sizeof(q->host), "%s", host);
	snprintf(q->port, sizeof(q->port), "%s", port);
	atomic_init(&q->owners, 2);
	if (thread_start(&thread, 0, lookup_thread, q) != 0) {
		atomic_init(&q->owners, 1);
		lookup_unref(q);
		return -GW_E_NOMEM;
	}
	pthread_detach(thread);
	err = deadline_poll(d, q->done_fd, POLLIN);
	if (!err) {
		*ret = q->list;
		q->list = NULL;
		err = *ret ? 0 : -GW_E_NODEV;
	}
	lookup_unref(q);
	return err;
}

/* Returns true if the address belongs to this machine. Tries to bind a socket to the address:
 * this is possible only with an address of this machine. */
static bool is_own_address(const struct addrinfo *a)
{
	struct sockaddr_storage at = { 0 };
	bool bound;
	int fd;

	if (a->ai_addrlen > sizeof(at))
		return false;
	memcpy(&at, a->ai_addr, a->ai_addrlen);
	if (at.ss_family == AF_INET)
		((struct sockaddr_in *)&at)->sin_port = 0;
	else if (at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_port = 0;
	else
		return false;
	fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	bound = bind(fd, (struct sockaddr *)&at, a->ai_addrlen) == 0;
	close(fd);
	return bound;
}

unsigned client_own_port(const char *address, const struct deadline_stop *stop)
{
	const char *colon = strrchr(address, ':');
	const char *from = *address == '[' ? address + 1 : address;
	struct addrinfo *list = NULL;
	struct deadline d;
	bool own = false;
	char host[300];
	long port = colon ? strtol(colon + 1, NULL, 10) : 0;

	if (port < 1 || port > 65535)
		return 0;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - from), from);
	host[strcspn(host, "]")] = '\0';
	deadline_init(&d, RESOLVE_NS, stop);
	if (client_resolve(host, colon + 1, &d, &list) != 0)
		return 0;
	for (const struct addrinfo *a = list; a && !own; a = a->ai_next)
		own = is_own_address(a);
	freeaddrinfo(list);
	return own ? (unsigned)port : 0;
}

static int finish_connect(int fd, int result, struct deadline *wait)
{
	socklen_t n = sizeof(int);
	int err = errno;

	if (result == 0)
		return 0;
	if (err == EINPROGRESS) {
		int late = deadline_poll(wait, fd, POLLOUT);

		if (late)
			return late;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0 || err == 0)
			return err ? -GW_E_IO : 0;
	}
	errno = err;
	return err == ECONNREFUSED || err == ENOENT ? -GW_E_NOENT
	       : err == EACCES || err == EPERM      ? -GW_E_PERM
						    : -GW_E_IO;
}

static int connect_unix(const char *path, struct deadline *wait, int *ret_fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int err;

	if (strlen(path) >= sizeof(a.sun_path))
		return -GW_E_SIZE;
	memcpy(a.sun_path, path, strlen(path) + 1);
	*ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*ret_fd < 0)
		return -GW_E_IO;
	err = finish_connect(*ret_fd, connect(*ret_fd, (struct sockaddr *)&a, sizeof(a)), wait);
	if (err) {
		close(*ret_fd);
		*ret_fd = -1;
	}
	return err;
}

static int connect_tcp(const char *address, struct deadline *wait, int *ret_fd)
{
	struct addrinfo *list = NULL;
	char host[512];
	char *colon;
	int err;

	snprintf(host, sizeof(host), "%s", address);
	colon = strrchr(host, ':');
	if (!colon || colon == host || !colon[1])
		return -GW_E_ARG;
	*colon = '\0';
	if (host[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		memmove(host, host + 1, strlen(host));
	}
	err = client_resolve(host, strrchr(address, ':') + 1, wait, &list);
	if (err)
		return err;
	err = -GW_E_NOENT;
	for (const struct addrinfo *a = list; a && err && err != -GW_E_STATE; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0)
			continue;
		err = finish_connect(fd, connect(fd, a->ai_addr, a->ai_addrlen), wait);
		if (err)
			close(fd);
		else
			*ret_fd = fd;
	}
	freeaddrinfo(list);
	return err;
}

static int send_all(int fd, const char *p, size_t n, struct deadline *wait)
{
	while (n > 0) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else if (k < 0 && errno == EAGAIN) {
			int err = deadline_poll(wait, fd, POLLOUT);

			if (err)
				return err;
		} else if (k < 0 && errno != EINTR) {
			return -GW_E_IO;
		}
	}
	return 0;
}

/* Receives until the reply is complete or the server closes the connection. The end of the
 * reply must be found, because some servers do not close the connection. */
static int receive_all(int fd, struct buf *out, struct deadline *wait)
{
	char part[16384];

	for (;;) {
		ssize_t n = recv(fd, part, sizeof(part), 0);

		if (n == 0)
			return out->err;
		if (n > 0)
			buf_add(out, part, (size_t)n);
		else if (errno == EAGAIN) {
			int err = deadline_poll(wait, fd, POLLIN);

			if (err)
				return err;
		} else if (errno != EINTR)
			return -GW_E_IO;
		if (out->err || http_message_complete(out))
			return out->err;
	}
}

static bool is_local(const struct client_request *q)
{
	return strncmp(q->address, "unix:", 5) == 0;
}

static int send_request(const struct client_request *q, struct deadline *wait, int *ret_fd)
{
	struct buf request;
	int fd = -1, err;

	buf_init(&request, 1u << 20);
	http_message_write(&request, &(struct http_message){ .method = q->method,
							     .path = q->path,
							     .host = is_local(q) ? "localhost"
										 : q->address,
							     .accept = q->accept,
							     .token = q->token,
							     .body = q->body });
	err = request.err   ? request.err
	      : is_local(q) ? connect_unix(q->address + 5, wait, &fd)
			    : connect_tcp(q->address, wait, &fd);
	if (!err)
		err = send_all(fd, request.p, request.len, wait);
	buf_done(&request);
	if (err && fd >= 0)
		close(fd);
	else if (!err)
		*ret_fd = fd;
	return err;
}

static int receive_reply(int fd, struct deadline *wait, int *ret_status, struct buf *ret_body)
{
	struct buf raw;
	int err;

	buf_init(&raw, CLIENT_REPLY_MAX + 65536);
	err = receive_all(fd, &raw, wait);
	if (!err)
		err = http_message_read(&raw, ret_status, ret_body);
	buf_done(&raw);
	close(fd);
	return err;
}

int client_send(const struct client_request *q, uint64_t timeout_ns, int *ret_fd)
{
	struct deadline wait;

	deadline_init(&wait, timeout_ns, q->stop);
	return send_request(q, &wait, ret_fd);
}

int client_reply(int fd, uint64_t timeout_ns, int *ret_status, struct buf *ret_body)
{
	struct deadline wait;

	deadline_init(&wait, timeout_ns, NULL);
	return receive_reply(fd, &wait, ret_status, ret_body);
}

int client_request_reply(const struct client_request *q, uint64_t timeout_ns, int *ret_status,
			 struct buf *ret_body)
{
	struct deadline wait;
	int fd, err;

	deadline_init(&wait, timeout_ns, q->stop);
	wait.slow = q->slow;
	wait.address = q->address;
	wait.slow_ns = clock_mono_ns(clock_real()) + SLOW_NS;
	err = send_request(q, &wait, &fd);
	return err ? err : receive_reply(fd, &wait, ret_status, ret_body);
}
