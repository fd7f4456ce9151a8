#include "stream.h"

#include "view.h"

#include "base/buf.h"

#include <gpuward.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX (VIEW_DOCUMENT_MAX + 256) /* maximum bytes of a message with its header */
#define TOPICS      8

struct message {
	struct message *next; /* next message that has an id */
	unsigned refs;
	enum stream_topic topic;
	uint64_t number; /* Messages are numbered from 1, in order of arrival. */
	uint64_t id;
	size_t size;
	char text[];
};

struct stream {
	size_t bytes, used;
	struct message *oldest, *latest; /* messages that have an id */
	struct message *tick;            /* latest message without an id, or NULL */
	struct message *beat;            /* the keep-alive comment */
	uint64_t numbers;
	uint64_t lost_id;      /* id of the latest dropped message */
	uint64_t lost[TOPICS]; /* number of the latest dropped message of each topic */
	struct follower *followers;
};

static struct message *message_new(const char *text, size_t size)
{
	struct message *m = malloc(sizeof(*m) + size);

	if (m) {
		*m = (struct message){ .refs = 1, .size = size };
		memcpy(m->text, text, size);
	}
	return m;
}

static void message_drop(struct message *m)
{
	if (m && --m->refs == 0)
		free(m);
}

int stream_new(size_t bytes, struct stream **ret)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return -GW_E_NOMEM;
	s->bytes = bytes;
	s->beat = message_new(":\n\n", 3);
	if (!s->beat) {
		free(s);
		return -GW_E_NOMEM;
	}
	*ret = s;
	return 0;
}

/* Returns the number of the last lost message of these topics. */
static uint64_t lost_number(const struct stream *s, unsigned topics)
{
	uint64_t number = 0;

	for (unsigned i = 0; i < TOPICS; i++)
		if ((topics & 1U << i) && s->lost[i] > number)
			number = s->lost[i];
	return number;
}

static void note_lost(struct stream *s, unsigned topic, uint64_t number, uint64_t id)
{
	for (unsigned i = 0; i < TOPICS; i++)
		if (topic & 1U << i)
			s->lost[i] = number;
	s->lost_id = id;
}

static void drop_oldest(struct stream *s)
{
	struct message *m = s->oldest;

	s->oldest = m->next;
	if (!s->oldest)
		s->latest = NULL;
	s->used -= m->size;
	note_lost(s, m->topic, m->number, m->id);
	message_drop(m);
}

void stream_free(struct stream *s)
{
	if (!s)
		return;
	while (s->followers) {
		struct follower *f = s->followers;

		follower_stop(f);
		if (f->waiting)
			f->wake(f);
	}
	while (s->oldest)
		drop_oldest(s);
	message_drop(s->tick);
	message_drop(s->beat);
	free(s);
}

static struct message *render_message(const char *name, uint64_t id, const char *json,
				      size_t size)
{
	struct message *m = NULL;
	struct buf b;

	buf_init(&b, MESSAGE_MAX);
	if (id)
		buf_addf(&b, "id: %llu\n", (unsigned long long)id);
	buf_addf(&b, "event: %s\ndata: ", name);
	while (size > 0 && json[size - 1] == '\n')
		size--;
	assert(!memchr(json, '\n', size));
	buf_add(&b, json, size);
	buf_adds(&b, "\n\n");
	if (b.err == 0)
		m = message_new(b.p, b.len);
	buf_done(&b);
	return m;
}

static void keep_message(struct stream *s, struct message *m)
{
	if (s->latest)
		s->latest->next = m;
	else
		s->oldest = m;
	s->latest = m;
	s->used += m->size;
	while (s->used > s->bytes && s->oldest != s->latest)
		drop_oldest(s);
}

static void wake_all(struct stream *s, unsigned topics)
{
	struct follower *next;

	for (struct follower *f = s->followers; f; f = next) {
		next = f->next;
		if (f->waiting && (f->topics & topics)) {
			f->waiting = false;
			f->wake(f);
		}
	}
}

void stream_push(struct stream *s, enum stream_topic topic, const char *name, uint64_t id,
		 const char *json, size_t size)
{
	struct message *m;

	if (size > VIEW_DOCUMENT_MAX)
		return;
	m = render_message(name, id, json, size);
	s->numbers++;
	if (!m) { /* Out of memory: the message is lost, and followers get a gap. */
		if (id) {
			while (s->oldest)
				drop_oldest(s);
			note_lost(s, topic, s->numbers, id);
			wake_all(s, topic);
		}
		return;
	}
	m->topic = topic;
	m->number = s->numbers;
	m->id = id;
	if (id) {
		keep_message(s, m);
	} else {
		message_drop(s->tick);
		s->tick = m;
	}
	wake_all(s, topic);
}

bool stream_is_followed(const struct stream *s, enum stream_topic topic)
{
	for (const struct follower *f = s->followers; f; f = f->next)
		if (f->topics & topic)
			return true;
	return false;
}

void follower_start(struct follower *f, struct stream *s, uint64_t after, unsigned topics,
		    void (*wake)(struct follower *f))
{
	*f = (struct follower){ .stream = s, .topics = topics, .wake = wake };
	/* Begin with the message of the next tick, because the stored message of the last tick
	 * may be old. */
	f->seen = f->seen_tick = s->numbers;
	if (after != UINT64_MAX) {
		f->seen = lost_number(s, topics);
		f->gap = after < s->lost_id;
		for (struct message *m = s->oldest; m && m->id <= after; m = m->next)
			f->seen = m->number;
	}
	f->next = s->followers;
	if (f->next)
		f->next->prev = f;
	s->followers = f;
}

void follower_stop(struct follower *f)
{
	struct stream *s = f->stream;

	if (!s)
		return;
	message_drop(f->sending);
	f->sending = NULL;
	if (f->prev)
		f->prev->next = f->next;
	else
		s->followers = f->next;
	if (f->next)
		f->next->prev = f->prev;
	f->stream = NULL;
}

static struct message *next_kept(struct follower *f)
{
	const struct stream *s = f->stream;

	/* Most followers have already received the latest message, so do not search the ring
	 * for them. */
	if (!s->latest || s->latest->number <= f->seen)
		return NULL;
	for (struct message *m = s->oldest; m; m = m->next)
		if (m->number > f->seen && (m->topic & f->topics))
			return m;
	f->seen = s->latest->number;
	return NULL;
}

static void begin_message(struct follower *f, struct message *m)
{
	m->refs++;
	f->sending = m;
	f->sent = 0;
}

/* Selects the next message to send, in order of arrival. */
static bool choose_message(struct follower *f)
{
	struct stream *s = f->stream;
	struct message *m, *tick = s->tick;

	uint64_t lost = lost_number(s, f->topics);

	if (f->seen < lost) {
		f->gap = true;
		f->seen = lost;
	}
	if (f->gap) {
		char text[96];
		int n = snprintf(text, sizeof(text),
				 "event: gap\ndata: {\"lost_until_id\":%llu}\n\n",
				 (unsigned long long)s->lost_id);

		f->gap = false;
		f->sending = message_new(text, (size_t)n);
		f->sent = 0;
		return f->sending != NULL;
	}
	m = next_kept(f);
	if (tick && (tick->number <= f->seen_tick || !(tick->topic & f->topics)))
		tick = NULL;
	if (tick && (!m || tick->number < m->number)) {
		f->seen_tick = tick->number;
		begin_message(f, tick);
	} else if (m) {
		f->seen = m->number;
		begin_message(f, m);
	}
	return f->sending != NULL;
}

long follower_read(struct follower *f, char *out, size_t size)
{
	size_t done = 0;

	if (!f->stream)
		return -1;
	while (done < size && (f->sending || choose_message(f))) {
		size_t n = f->sending->size - f->sent;

		if (n > size - done)
			n = size - done;
		memcpy(out + done, f->sending->text + f->sent, n);
		done += n;
		f->sent += n;
		if (f->sent == f->sending->size) {
			message_drop(f->sending);
			f->sending = NULL;
		}
	}
	f->waiting = done == 0;
	return (long)done;
}

void follower_beat(struct follower *f)
{
	if (!f->stream || !f->waiting || f->sending)
		return;
	begin_message(f, f->stream->beat);
	f->waiting = false;
	f->wake(f);
}
