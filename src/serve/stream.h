/* stream: what happens, told to many (server-sent events).
 *
 * A message is rendered once and shared by all that follow; each has a place in the ring of the
 * latest.  One who cannot keep up is told so ("event: gap") and goes on with what is there.
 * Topics are bits; a message has one, a follower a set. */
#ifndef GW_SERVE_STREAM_H
#define GW_SERVE_STREAM_H

#include <stddef.h>
#include <stdint.h>

enum stream_topic { STREAM_TICK = 1 << 0, STREAM_EVENT = 1 << 1, STREAM_WINDOW = 1 << 2, STREAM_GUARD = 1 << 3 };

struct stream;

/* Keeps the latest `bytes` of messages with an id; of those without (ticks) the latest alone. */
int stream_new(size_t bytes, struct stream **ret);
void stream_free(struct stream *s);

/* id 0: none (a tick).  name: of the event; json: one line.  Wakes those who follow. */
void stream_push(struct stream *s, enum stream_topic topic, const char *name, uint64_t id,
		 const char *json, size_t size);

unsigned stream_followers(const struct stream *s);

#endif
