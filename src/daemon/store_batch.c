/* Records and batches, and their way to the thread (see store_parts.h). */
#include "store_parts.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define HISTORY_MAX (1u << 20) /* bytes per batch */
/* The largest document and everything else. */
#define DURABLE_MAX (VIEW_DOCUMENT_MAX + (512u << 10))

/* ---- records ---- */

#define HEAD (offsetof(struct record, text))

bool record_add(struct buf *b, const struct record *r)
{
	struct record head = *r;
	uint32_t size = (uint32_t)(HEAD + sizeof(r->length));
	size_t before;

	for (unsigned i = 0; i < RECORD_TEXTS; i++) {
		head.length[i] = r->text[i] ? r->length[i] : UINT32_MAX;
		size += r->text[i] ? r->length[i] + 1 : 0;
	}
	if (b->err || size >= b->max || b->len >= b->max - size)
		return false;
	before = b->len;
	head.size = size;
	buf_add(b, (const char *)&head, HEAD);
	buf_add(b, (const char *)head.length, sizeof(head.length));
	for (unsigned i = 0; i < RECORD_TEXTS; i++) {
		if (!r->text[i])
			continue;
		buf_add(b, r->text[i], r->length[i]);
		buf_addc(b, '\0');
	}
	if (b->err == 0)
		return true;
	b->err = 0; /* out of memory: keep the previous contents */
	b->len = before;
	return false;
}

bool record_next(const struct buf *b, size_t *at, struct record *ret)
{
	const char *p = b->p + *at;

	if (*at >= b->len)
		return false;
	memcpy(ret, p, HEAD);
	memcpy(ret->length, p + HEAD, sizeof(ret->length));
	*at += ret->size;
	p += HEAD + sizeof(ret->length);
	for (unsigned i = 0; i < RECORD_TEXTS; i++) {
		ret->text[i] = ret->length[i] == UINT32_MAX ? NULL : p;
		if (ret->text[i])
			p += ret->length[i] + 1;
	}
	return true;
}

/* Checks the space in the front batch, where the record goes next, so that an accepted record
 * is not lost there. */
static bool has_space(struct store *s, size_t size)
{
	const struct buf *pending = &s->pending.part[PART_DURABLE];
	const struct buf *front = &s->front.part[PART_DURABLE];
	bool room;

	mailbox_lock(&s->box);
	room = pending->len + front->len + size < front->max;
	mailbox_unlock(&s->box);
	return room;
}

int store_add(struct store *s, struct record *r)
{
	size_t size = HEAD + sizeof(r->length);

	for (unsigned i = 0; i < RECORD_TEXTS; i++) {
		if (r->text[i] && r->length[i] == 0)
			r->length[i] = (uint32_t)strlen(r->text[i]);
		size += r->text[i] ? r->length[i] + 1 : 0;
	}
	if (has_space(s, size) && record_add(&s->pending.part[PART_DURABLE], r))
		return 0;
	atomic_fetch_add(&s->dropped, 1);
	return -GW_E_SIZE;
}

void batch_init(struct batch *b)
{
	buf_init(&b->part[PART_HISTORY], HISTORY_MAX);
	buf_init(&b->part[PART_DURABLE], DURABLE_MAX);
}

void batch_done(struct batch *b)
{
	for (unsigned p = 0; p < PARTS; p++)
		buf_done(&b->part[p]);
}

/* ---- batches ---- */

static void move_to_front(struct store *s)
{
	mailbox_lock(&s->box);
	for (unsigned p = 0; p < PARTS; p++) {
		struct buf *from = &s->pending.part[p], *to = &s->front.part[p];

		if (to->len + from->len >= to->max)
			to->err = -GW_E_SIZE; /* only for history: see has_space() */
		buf_add(to, from->p, from->len);
		if (to->err)
			atomic_fetch_add(&s->dropped, 1);
		buf_clear(from);
		to->err = 0;
	}
	for (unsigned i = 0; i < s->counts; i++)
		s->count[i]->committed = s->count[i]->pending;
	s->committed++;
	mailbox_wake(&s->box);
	mailbox_unlock(&s->box);
}

void store_commit(struct store *s)
{
	move_to_front(s);
	if (!s->path && !store_write(s)) {
		buf_done(&s->back.part[PART_DURABLE]);
		atomic_fetch_add(&s->dropped, 1);
	}
}

/* A query reports the last attempt that had everything; a wait reports the next one. */
static bool has_failed(const struct store *s, uint64_t wanted, uint64_t attempts, bool waits)
{
	return s->failing && (waits ? s->attempts > attempts : s->refused >= wanted);
}

int store_flush(struct store *s, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns, wanted, attempts;
	const bool waits = timeout_ns > 0;
	int r = 0;

	if (!s->path)
		return 0;
	mailbox_lock(&s->box);
	wanted = s->committed;
	attempts = s->attempts;
	s->retry = s->written < wanted && !has_failed(s, wanted, attempts, waits);
	mailbox_wake(&s->box);
	while (s->written < wanted && r == 0) {
		if (has_failed(s, wanted, attempts, waits))
			r = -GW_E_IO;
		else if (!mailbox_wait_news(&s->box, until_ns))
			r = -GW_E_TIMEOUT;
	}
	mailbox_unlock(&s->box);
	return r;
}
