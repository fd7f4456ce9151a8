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
#define ANSWER_NS  (5 * NS_PER_S)
#define ANSWER_MAX (256 * 1024) /* a container with many mounts and networks takes 20 kB */
#define NAME_SIZE  128

struct name {
	struct container_resolver *of;
	char text[NAME_SIZE], socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char id[CONTAINER_RESOLVER_ID + 1]; /* "": unknown */
	struct loop_source *source;
	int fd;          /* -1: no query is running */
	struct buf in;   /* the answer received so far */
	uint64_t due_ns; /* time of the next query, or deadline of the running query */
	bool logged;     /* the failure is already logged */
	bool wanted;
};

struct container_resolver {
	struct container_resolver_config config;
	struct loop_source *timer;
	/* container names of the policies before and after a reload */
	struct name *name[2 * POLICY_WORKERS];
	unsigned names;
};

/* ---- the answer ---- */

static bool is_id(const char *s)
{
	for (unsigned i = 0; i < CONTAINER_RESOLVER_ID; i++)
		if (!isxdigit((unsigned char)s[i]))
			return false;
	return true;
}

int container_resolver_read(const struct buf *answer, char id[static CONTAINER_RESOLVER_ID + 1])
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
		found = json_doc_string(doc, "Id");
	if (!err && (!found || strlen(found) != CONTAINER_RESOLVER_ID || !is_id(found)))
		err = -GW_E_PARSE;
	if (!err)
		memcpy(id, found, CONTAINER_RESOLVER_ID + 1);
	json_doc_free(doc);
	buf_done(&body);
	return err;
}

/* ---- queries ---- */

static void set_timer(struct container_resolver *c)
{
	uint64_t first = 0;

	for (unsigned i = 0; i < c->names; i++)
		if (!first || c->name[i]->due_ns < first)
			first = c->name[i]->due_ns;
	loop_set_time(c->timer, first);
}

static void query_close(struct name *n)
{
	loop_remove(n->source);
	n->source = NULL;
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
	buf_done(&n->in);
	n->due_ns = clock_mono_ns(clock_real()) + (*n->id ? KNOWN_NS : UNKNOWN_NS);
}

/* Logs a failure, but no further failure until the name has been resolved. */
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

static void query_failed(struct name *n, int error)
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
	query_close(n);
}

/* Handles a complete answer. */
static void query_done(struct name *n)
{
	char id[CONTAINER_RESOLVER_ID + 1];
	int err = n->in.err ? -GW_E_PARSE : container_resolver_read(&n->in, id);
	bool news = err == 0 && strcmp(id, n->id) != 0;

	if (err == 0) {
		memcpy(n->id, id, sizeof(id));
		n->logged = false;
	} else {
		resolver_log(n, "the engine at %s %s", n->socket,
			     err == -GW_E_NOENT
				     ? "has no container of that name"
				     : "sent an answer that gpuward does not understand");
	}
	query_close(n);
	set_timer(n->of);
	if (news)
		n->of->config.changed(n->of->config.arg);
}

static void query_readable(void *arg, int fd, uint32_t events)
{
	struct name *n = arg;
	char some[4096];
	ssize_t got = recv(fd, some, sizeof(some), MSG_DONTWAIT);

	(void)events;
	if (got > 0)
		buf_add(&n->in, some, (size_t)got);
	if (got == 0 || n->in.err || http_message_complete(&n->in))
		query_done(n);
	else if (got < 0 && errno != EAGAIN && errno != EINTR)
		query_failed(n, errno);
}

static void query_start(struct name *n)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char path[NAME_SIZE + 32], text[NAME_SIZE + 256];
	struct buf request;

	snprintf(path, sizeof(path), "/containers/%s/json", n->text);
	buf_init_fixed(&request, text, sizeof(text));
	http_message_write(&request, &(struct http_message){ .method = "GET",
							     .path = path,
							     .host = "localhost",
							     .accept = "application/json" });
	memcpy(a.sun_path, n->socket, sizeof(a.sun_path));
	n->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	buf_init(&n->in, ANSWER_MAX);
	n->due_ns = clock_mono_ns(clock_real()) + ANSWER_NS;
	if (n->fd < 0 || connect(n->fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
	    send(n->fd, request.p, request.len, MSG_NOSIGNAL) != (ssize_t)request.len)
		query_failed(n, errno);
	else if (loop_add_fd(n->of->config.loop, n->fd, EPOLLIN, query_readable, n,
			     &n->source) != 0)
		query_close(n);
}

static void resolver_due(void *arg, uint64_t now_ns)
{
	struct container_resolver *c = arg;

	for (unsigned i = 0; i < c->names; i++) {
		struct name *n = c->name[i];

		if (n->due_ns > now_ns)
			continue;
		if (n->fd >= 0)
			query_failed(n, ETIMEDOUT);
		else
			query_start(n);
	}
	set_timer(c);
}

/* ---- names ---- */

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
	*n = (struct name){ .of = c, .fd = -1, .due_ns = 1 };
	text_fit(n->text, sizeof(n->text), "%s", text);
	text_fit(n->socket, sizeof(n->socket), "%s", socket);
	buf_init(&n->in, ANSWER_MAX);
	c->name[c->names++] = n;
	return n;
}

static void name_free(struct name *n)
{
	query_close(n);
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
		n->due_ns = refresh && n->fd < 0 ? 1 : n->due_ns;
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
