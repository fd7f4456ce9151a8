#include "container_query.h"

#include "base/clock.h"
#include "base/http_message.h"
#include "base/json_doc.h"

#include <gpuward.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_NS  (5 * NS_PER_S)
#define ANSWER_MAX (256 * 1024) /* a container with many mounts and networks takes 20 kB */

struct container_query {
	struct loop_source *source, *timer;
	container_query_fn *fn;
	void *arg;
	int fd;
	struct buf in; /* the answer received so far */
};

int container_query_read(const struct buf *answer, const char *key, char *out, size_t size)
{
	struct json_doc *doc = NULL;
	struct buf body;
	char message[200];
	const char *found = NULL;
	int status = 0, err;

	buf_init(&body, ANSWER_MAX);
	err = http_message_read(answer, &status, &body);
	if (!err && status == 404)
		err = -GW_E_NOENT;
	if (!err && (status != 200 ||
		     json_doc_new(body.p, body.len, &doc, message, sizeof(message)) != 0))
		err = -GW_E_PARSE;
	if (!err)
		found = json_doc_string(doc, key);
	if (!err && (!found || strlen(found) >= size))
		err = -GW_E_PARSE;
	if (!err)
		memcpy(out, found, strlen(found) + 1);
	json_doc_free(doc);
	buf_done(&body);
	return err;
}

void container_query_cancel(struct container_query *q)
{
	if (!q)
		return;
	loop_remove(q->source);
	loop_remove(q->timer);
	if (q->fd >= 0)
		close(q->fd);
	buf_done(&q->in);
	free(q);
}

static void query_end(struct container_query *q, int error)
{
	container_query_fn *fn = q->fn;
	void *arg = q->arg;
	struct buf answer = q->in;

	buf_init(&q->in, 0);
	container_query_cancel(q);
	fn(arg, error, &answer);
	buf_done(&answer);
}

static void query_readable(void *arg, int fd, uint32_t events)
{
	struct container_query *q = arg;
	char some[4096];
	ssize_t got = recv(fd, some, sizeof(some), MSG_DONTWAIT);

	(void)events;
	if (got > 0)
		buf_add(&q->in, some, (size_t)got);
	if (q->in.err)
		query_end(q, EMSGSIZE);
	else if (got == 0 || http_message_complete(&q->in))
		query_end(q, 0);
	else if (got < 0 && errno != EAGAIN && errno != EINTR)
		query_end(q, errno);
}

static void query_late(void *arg, uint64_t now_ns)
{
	(void)now_ns;
	query_end(arg, ETIMEDOUT);
}

/* Connects and sends the request. Returns 0 or an errno. */
static int query_send(struct container_query *q, const char *socket_path, const char *container)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char path[CONTAINER_QUERY_NAME + 32], text[CONTAINER_QUERY_NAME + 256];
	struct buf request;

	if (strlen(socket_path) >= sizeof(a.sun_path) ||
	    strlen(container) >= CONTAINER_QUERY_NAME)
		return ENAMETOOLONG;
	memcpy(a.sun_path, socket_path, strlen(socket_path));
	snprintf(path, sizeof(path), "/containers/%s/json", container);
	buf_init_fixed(&request, text, sizeof(text));
	http_message_write(&request, &(struct http_message){ .method = "GET",
							     .path = path,
							     .host = "localhost",
							     .accept = "application/json" });
	q->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (q->fd < 0 || connect(q->fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
	    send(q->fd, request.p, request.len, MSG_NOSIGNAL) != (ssize_t)request.len)
		return errno ? errno : EIO;
	return 0;
}

int container_query_start(struct loop *loop, const char *socket, const char *container,
			  container_query_fn *fn, void *arg, struct container_query **ret)
{
	struct container_query *q = calloc(1, sizeof(*q));
	int error;

	if (!q)
		return -ENOMEM;
	*q = (struct container_query){ .fn = fn, .arg = arg, .fd = -1 };
	buf_init(&q->in, ANSWER_MAX);
	error = query_send(q, socket, container);
	if (!error && (loop_add_fd(loop, q->fd, EPOLLIN, query_readable, q, &q->source) != 0 ||
		       loop_add_timer(loop, query_late, q, &q->timer) != 0))
		error = ENOMEM;
	if (error) {
		container_query_cancel(q);
		return -error;
	}
	loop_set_time(q->timer, clock_mono_ns(clock_real()) + ANSWER_NS);
	*ret = q;
	return 0;
}
