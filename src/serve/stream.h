/* stream: server-sent events for many followers.
 *
 * A message is rendered once and shared by all followers; each follower has a position in the
 * ring of the latest messages. If a follower reads too slowly and has lost messages, it
 * receives "event: gap" and continues with the messages that are still available. Topics are
 * bits. A message has one or several topics. A follower also has topics, and it gets each
 * message that has one of them. */
#ifndef GW_SERVE_STREAM_H
#define GW_SERVE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stream_topic {
	STREAM_TICK = 1 << 0,
	STREAM_EVENT = 1 << 1,
	STREAM_WINDOW = 1 << 2,
	STREAM_GUARD = 1 << 3,
};

struct stream;

/* Makes a stream. The stream keeps the newest messages that have an id, up to `bytes` bytes in
 * total, and the newest message without an id (a tick). */
int stream_new(size_t bytes, struct stream **ret);

/* Ends the stream: follower_read() of each follower then returns -1. */
void stream_free(struct stream *s);

/* Adds a message and wakes the followers. topic has one or several bits. id is 0 for a message
 * without an id (a tick). name is the name of the event. json is one line of at most
 * VIEW_DOCUMENT_MAX bytes; a longer line is dropped. */
void stream_push(struct stream *s, enum stream_topic topic, const char *name, uint64_t id,
		 const char *json, size_t size);

/* True if a follower wants messages of this topic. */
bool stream_is_followed(const struct stream *s, enum stream_topic topic);

/* A follower. The owner provides the memory; only the stream uses the contents. */
struct message;
struct follower {
	struct stream *stream; /* NULL: the stream ended */
	struct follower *prev, *next;
	struct message *sending; /* current message, or NULL */
	size_t sent;             /* bytes of the current message that were sent */
	/* Number of the latest message with an id, and of the latest one without an id, that
	 * were sent to this follower. */
	uint64_t seen, seen_tick;
	bool gap; /* Messages were lost, and the follower was not informed yet. */
	unsigned topics;
	bool waiting; /* There is nothing to read. The next message calls wake(). */
	void (*wake)(struct follower *f);
};

/* Makes f follow the stream. f gets the events with an id above `after`; UINT64_MAX: only new
 * events. */
void follower_start(struct follower *f, struct stream *s, uint64_t after, unsigned topics,
		    void (*wake)(struct follower *f));
void follower_stop(struct follower *f);

/* Reads the next bytes, at most size. Returns the number of bytes. 0: there are no bytes yet,
 * and wake() is called later. -1: the stream has ended. */
long follower_read(struct follower *f, char *out, size_t size);

/* Sends a keep-alive comment if no message is being sent. */
void follower_beat(struct follower *f);

#endif
