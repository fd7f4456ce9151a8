/* Connections that follow a stream.
 *
 * A connection that has read everything is suspended until the next message. One that does
 * not read fills its socket and is closed after a while; nothing is queued for it, because
 * all read from the stream's ring. */
#include "http_impl.h"

#include <stddef.h>
#include <string.h>

#define BLOCK       1024        /* only for HTTP/1.0 clients; others have their own buffer */
#define SEND_BUFFER (64 * 1024) /* in the kernel, per connection */

static struct conn *conn_of(struct follower *f)
{
	return (struct conn *)(void *)((char *)f - offsetof(struct conn, follower));
}

static void follower_wake(struct follower *f)
{
	conn_resume(conn_of(f));
}

static ssize_t next_bytes(void *arg, uint64_t pos, char *out, size_t max)
{
	struct conn *c = arg;
	long n;

	if (c->cut)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	conn_set_state(c, CONN_STREAM);
	if (pos == 0 && max > 16) {
		/* Browsers wait two seconds before they reconnect. */
		static const char hello[] = "retry: 2000\n\n";

		memcpy(out, hello, sizeof(hello) - 1);
		return sizeof(hello) - 1;
	}
	n = follower_read(&c->follower, out, max);
	if (n < 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (n == 0)
		conn_suspend(c);
	c->http->counts.bytes_sent += (uint64_t)n;
	return n;
}

struct MHD_Response *follow_response(struct conn *c, const struct reply_impl *r)
{
	struct MHD_Response *m =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, next_bytes, c, NULL);
	int size = SEND_BUFFER;

	if (!m)
		return NULL;
	setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	follower_start(&c->follower, r->stream, r->after, r->topics, follower_wake);
	return m;
}

void follow_beat(struct http *h, uint64_t now_ns)
{
	struct conn *next;

	for (struct conn *c = h->list[CONN_STREAM].first; c; c = next) {
		next = c->next;
		if (now_ns - c->since_ns >= h->beat_ns / 2)
			follower_beat(&c->follower);
	}
}
