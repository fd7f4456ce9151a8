#include "lookup.h"

#include "base/thread.h"

#include <gpuward.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct question {
	char host[512], port[32];
	struct addrinfo *list;
	int done_fd;
	atomic_int owners; /* who asks and the thread: the last one frees it */
};

static const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };

static void let_go(struct question *q)
{
	if (atomic_fetch_sub(&q->owners, 1) > 1)
		return;
	if (q->list)
		freeaddrinfo(q->list);
	close(q->done_fd);
	free(q);
}

static void *answer(void *arg)
{
	struct question *q = arg;

	if (getaddrinfo(q->host, q->port, &hints, &q->list) != 0)
		q->list = NULL;
	eventfd_write(q->done_fd, 1);
	let_go(q);
	return NULL;
}

/* Numbers take no time and no thread. */
static bool is_number(const char *host, const char *port, struct addrinfo **ret)
{
	struct addrinfo numeric = hints;

	numeric.ai_flags = AI_NUMERICHOST;
	return getaddrinfo(host, port, &numeric, ret) == 0;
}

int lookup(const char *host, const char *port, struct deadline_wait *p, struct addrinfo **ret)
{
	struct question *q;
	pthread_t thread;
	int err;

	if (is_number(host, port, ret))
		return 0;
	q = calloc(1, sizeof(*q));
	if (!q || (q->done_fd = eventfd(0, EFD_CLOEXEC)) < 0) {
		free(q);
		return -GW_E_NOMEM;
	}
	snprintf(q->host, sizeof(q->host), "%s", host);
	snprintf(q->port, sizeof(q->port), "%s", port);
	atomic_init(&q->owners, 2);
	if (thread_start(&thread, 0, answer, q) != 0) {
		atomic_init(&q->owners, 1);
		let_go(q);
		return -GW_E_NOMEM;
	}
	pthread_detach(thread);
	err = deadline_wait_wait(p, q->done_fd, POLLIN);
	if (!err) {
		*ret = q->list;
		q->list = NULL;
		err = *ret ? 0 : -GW_E_NODEV;
	}
	let_go(q);
	return err;
}
