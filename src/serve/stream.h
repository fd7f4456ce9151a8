/* stream: what happens, told to many (server-sent events).
 *
 * A message is rendered once and shared by all that follow; each has a place in the ring of the
 * latest.  One who cannot keep up is told so ("event: gap") and goes on with what is there.
 * Topics are bits; a message has one, a follower a set. */
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

/* Keeps the latest `bytes` of messages with an id; of those without (ticks) the latest alone. */
int stream_new(size_t bytes, struct stream **ret);

/* Those who follow are let go of: what they read is the end. */
void stream_free(struct stream *s);

/* topic: one, or several joined.  id 0: none (a tick).  name: of the event; json: one line of at most VIEW_DOCUMENT_MAX bytes, a
 * longer one is not told.  Wakes those who follow. */
void stream_push(struct stream *s, enum stream_topic topic, const char *name, uint64_t id,
		 const char *json, size_t size);

unsigned stream_followers(const struct stream *s);

/* One who follows; the owner's memory.  What is in it is the stream's. */
struct message;
struct follower {
	struct stream *stream; /* NULL: it ended */
	struct follower *prev, *next;
	struct message *sending;  /* in the middle of it, or NULL */
	size_t sent;              /* bytes of it */
	uint64_t seen, seen_tick; /* numbers of the latest messages that were begun */
	bool gap;                 /* something is lost, and it was not told yet */
	unsigned topics;
	bool waiting; /* found nothing: is woken by the next message */
	void (*wake)(struct follower *f);
};

/* Follows from the events later than `after` (UINT64_MAX: from now on). */
void follower_start(struct follower *f, struct stream *s, uint64_t after, unsigned topics,
		    void (*wake)(struct follower *f));
void follower_stop(struct follower *f);

/* The next bytes, at most size; 0: nothing yet, wake() is called when there is; -1: the stream has
 * ended. */
long follower_read(struct follower *f, char *out, size_t size);

/* A comment that keeps the connection open is sent when nothing else is. */
void follower_beat(struct follower *f);

#endif
