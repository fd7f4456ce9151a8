#include "container_resolver.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/http_message.h"
#include "base/json_doc.h"
#include "base/text.h"
#include "guard/worker.h"

#include <gpuward.h>

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNKNOWN_NS (10 * NS_PER_S)
#define KNOWN_NS   (20 * NS_PER_S)

struct name {
	struct container_resolver *of;
	char text[CONTAINER_QUERY_NAME], socket[CONTAINER_QUERY_SOCKET];
	char id[CONTAINER_RESOLVER_ID + 1]; /* "" if the id is not known. */
	struct container_query *query;      /* NULL if no query is running. */
	uint64_t due_ns;                    /* Time of the next query. */
	bool logged;                        /* The failure is already logged. */
	bool wanted;                        /* A worker of the current policy has this name. */
};

struct container_resolver {
	struct container_resolver_config config;
	struct loop_source *timer;
	/* While a new policy is applied, the array has the names of the old and of the new
	 * policy. */
	struct name *name[2 * POLICY_WORKERS];
	unsigned names;
};

static bool is_id(const char *s)
{
	for (unsigned i = 0; i < CONTAINER_RESOLVER_ID; i++)
		if (!isxdigit((unsigned char)s[i]))
			return false;
	return true;
}

int container_resolver_read(const struct buf *answer, char id[static CONTAINER_RESOLVER_ID + 1])
{
	char found[CONTAINER_RESOLVER_ID + 1];
	int err = container_query_read(answer, "Id", found, sizeof(found));

	if (!err && (strlen(found) != CONTAINER_RESOLVER_ID || !is_id(found)))
		err = -GW_E_PARSE;
	if (!err)
		memcpy(id, found, sizeof(found));
	return err;
}

static void set_timer(struct container_resolver *c)
{
	uint64_t first = 0;

	for (unsigned i = 0; i < c->names; i++)
		if (!c->name[i]->query && (!first || c->name[i]->due_ns < first))
			first = c->name[i]->due_ns;
	loop_set_time(c->timer, first);
}

/* Sets the time of the next query. */
static void query_ended(struct name *n)
{
	n->query = NULL;
	n->due_ns = clock_mono_ns(clock_real()) + (*n->id ? KNOWN_NS : UNKNOWN_NS);
}

/* Logs a failure. After that, failures for the same name are not logged until the name is
 * resolved. */
__attribute__((format(printf, 2, 3))) static void resolver_log(struct name *n, const char *fmt,
							       ...)
{
	char line[512];
	int k = snprintf(line, sizeof(line), "container %s: ", n->text);
	va_list ap;

	if (n->logged)
		return;
	n->logged = true;
	va_start(ap, fmt);
	vsnprintf(line + k, sizeof(line) - (size_t)k, fmt, ap);
	va_end(ap);
	n->of->config.log(n->of->config.arg, line);
}

static void log_failure(struct name *n, int error)
{
	if (error == EACCES || error == EPERM)
		resolver_log(n,
			     "no permission to open %s: add the socket's group to the service "
			     "(SupplementaryGroups= with systemctl edit gpuward), or set "
			     "match.container to the container's id",
			     n->socket);
	else
		resolver_log(n,
			     "no answer from %s (%s): start the container engine, or correct "
			     "the socket path in url",
			     n->socket, strerror(error));
}

static void query_done(void *arg, int error, const struct buf *answer)
{
	struct name *n = arg;
	char id[CONTAINER_RESOLVER_ID + 1];
	int err = error ? -GW_E_PARSE : container_resolver_read(answer, id);
	bool news = err == 0 && strcmp(id, n->id) != 0;

	if (err == 0) {
		memcpy(n->id, id, sizeof(id));
		n->logged = false;
	} else if (error && error != EMSGSIZE) {
		log_failure(n, error);
	} else {
		resolver_log(n, "the engine at %s %s", n->socket,
			     err == -GW_E_NOENT
				     ? "has no container of that name"
				     : "sent an answer that gpuward does not understand");
	}
	query_ended(n);
	set_timer(n->of);
	if (news)
		n->of->config.changed(n->of->config.arg);
}

static void query_start(struct name *n)
{
	int err = container_query_start(n->of->config.loop, n->socket, n->text, query_done, n,
					&n->query);

	if (err < 0) {
		log_failure(n, -err);
		query_ended(n);
	}
}

static void resolver_due(void *arg, uint64_t now_ns)
{
	struct container_resolver *c = arg;

	for (unsigned i = 0; i < c->names; i++) {
		struct name *n = c->name[i];

		if (!n->query && n->due_ns <= now_ns)
			query_start(n);
	}
	set_timer(c);
}

static struct name *resolver_find(struct container_resolver *c, const char *text,
				  const char *socket)
{
	for (unsigned i = 0; i < c->names; i++)
		if (strcmp(c->name[i]->text, text) == 0 &&
		    strcmp(c->name[i]->socket, socket) == 0)
			return c->name[i];
	return NULL;
}

static struct name *resolver_add(struct container_resolver *c, const char *text,
				 const char *socket)
{
	struct name *n = resolver_find(c, text, socket);

	if (n || c->names == 2 * POLICY_WORKERS || strlen(text) >= sizeof(n->text) ||
	    strlen(socket) >= sizeof(n->socket))
		return n;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	*n = (struct name){ .of = c, .due_ns = 1 };
	text_fit(n->text, sizeof(n->text), "%s", text);
	text_fit(n->socket, sizeof(n->socket), "%s", socket);
	c->name[c->names++] = n;
	return n;
}

static void name_free(struct name *n)
{
	container_query_cancel(n->query);
	free(n);
}

static void remove_unwanted(struct container_resolver *c)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < c->names; i++)
		if (c->name[i]->wanted)
			c->name[kept++] = c->name[i];
		else
			name_free(c->name[i]);
	c->names = kept;
}

void container_resolver_apply(struct container_resolver *c, struct policy *p, bool refresh)
{
	for (unsigned i = 0; i < c->names; i++)
		c->name[i]->wanted = false;
	for (unsigned i = 0; i < p->workers; i++) {
		struct policy_match *m = &p->worker[i].match;
		const char *socket = m->container ? worker_engine(&p->worker[i]) : NULL;
		struct name *n;

		if (!socket ||
		    (strlen(m->container) == CONTAINER_RESOLVER_ID && is_id(m->container)))
			continue;
		n = resolver_add(c, m->container, socket);
		if (!n)
			continue;
		n->wanted = true;
		n->due_ns = refresh && !n->query ? 1 : n->due_ns;
		if (*n->id) {
			const char *id = policy_keep(p, n->id, CONTAINER_RESOLVER_ID);

			m->container = id ? id : m->container;
		}
	}
	remove_unwanted(c);
	set_timer(c);
}

int container_resolver_new(const struct container_resolver_config *config,
			   struct container_resolver **ret)
{
	struct container_resolver *c = calloc(1, sizeof(*c));

	if (!c || loop_add_timer(config->loop, resolver_due, c, &c->timer) != 0) {
		free(c);
		return -GW_E_NOMEM;
	}
	c->config = *config;
	*ret = c;
	return 0;
}

void container_resolver_free(struct container_resolver *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < c->names; i++)
		name_free(c->name[i]);
	loop_remove(c->timer);
	free(c);
}

#define ANSWER_NS (5 * NS_PER_S)
/* The answer for a container with many mounts and networks has about 20 kB. */
#define ANSWER_MAX (256 * 1024)

struct container_query {
	struct loop_source *source, *timer;
	container_query_fn *fn;
	void *arg;
	int fd;
	struct buf in; /* The part of the answer that was received so far. */
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
