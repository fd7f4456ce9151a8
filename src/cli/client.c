#include "client.h"

#include "lookup.h"

#include "base/http_message.h"

#include <gpuward.h>

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the connection ---- */

static int finish_connect(int fd, int result, struct deadline_wait *wait)
{
	socklen_t n = sizeof(int);
	int err = errno;

	if (result == 0)
		return 0;
	if (err == EINPROGRESS) {
		int late = deadline_wait_wait(wait, fd, POLLOUT);

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

static int connect_unix(const char *path, struct deadline_wait *wait, int *ret_fd)
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

static int connect_tcp(const char *address, struct deadline_wait *wait, int *ret_fd)
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
	err = lookup(host, strrchr(address, ':') + 1, wait, &list);
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

static int send_all(int fd, const char *p, size_t n, struct deadline_wait *wait)
{
	while (n > 0) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		} else if (k < 0 && errno == EAGAIN) {
			int err = deadline_wait_wait(wait, fd, POLLOUT);

			if (err)
				return err;
		} else if (k < 0 && errno != EINTR) {
			return -GW_E_IO;
		}
	}
	return 0;
}

/* ---- the answer ---- */

/* Up to the end of the connection, which we asked to be closed, or of the answer: not everybody does. */
static int receive(int fd, struct buf *out, struct deadline_wait *wait)
{
	char part[16384];

	for (;;) {
		ssize_t n = recv(fd, part, sizeof(part), 0);

		if (n == 0)
			return out->err;
		if (n > 0)
			buf_add(out, part, (size_t)n);
		else if (errno == EAGAIN) {
			int err = deadline_wait_wait(wait, fd, POLLIN);

			if (err)
				return err;
		} else if (errno != EINTR)
			return -GW_E_IO;
		if (out->err || http_message_complete(out))
			return out->err;
	}
}

/* ---- the request ---- */

static bool is_local(const struct client_request *q)
{
	return strncmp(q->address, "unix:", 5) == 0;
}

static int send_request(const struct client_request *q, struct deadline_wait *wait, int *ret_fd)
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

static int await_answer(int fd, struct deadline_wait *wait, int *ret_status,
			struct buf *ret_body)
{
	struct buf raw;
	int err;

	buf_init(&raw, CLIENT_ANSWER_MAX + 65536);
	err = receive(fd, &raw, wait);
	if (!err)
		err = http_message_read(&raw, ret_status, ret_body);
	buf_done(&raw);
	close(fd);
	return err;
}

int client_send(const struct client_request *q, uint64_t timeout_ns, int *ret_fd)
{
	struct deadline_wait wait;

	deadline_wait_begin(&wait, timeout_ns, q->asker);
	return send_request(q, &wait, ret_fd);
}

int client_answer(int fd, uint64_t timeout_ns, int *ret_status, struct buf *ret_body)
{
	struct deadline_wait wait;

	deadline_wait_begin(&wait, timeout_ns, NULL);
	return await_answer(fd, &wait, ret_status, ret_body);
}

int client_ask(const struct client_request *q, uint64_t timeout_ns, int *ret_status,
	       struct buf *ret_body)
{
	struct deadline_wait wait;
	int fd, err;

	deadline_wait_begin(&wait, timeout_ns, q->asker);
	err = send_request(q, &wait, &fd);
	return err ? err : await_answer(fd, &wait, ret_status, ret_body);
}
