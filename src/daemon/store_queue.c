/* The queue to the store's thread: records and batches (see store_parts.h), and the events and
 * documents that go through the queue. Queries read events and documents from the queue and
 * from the file. */
#include "store_parts.h"

#include "base/array.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define HISTORY_MAX (1u << 20) /* Maximum bytes of history per batch. */
/* Maximum bytes of other records per batch: the size of the largest document plus space for the
 * other records. */
#define DURABLE_MAX (VIEW_DOCUMENT_MAX + (512u << 10))

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
	b->err = 0; /* Out of memory. Keep the previous contents. */
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

/* True if the front batch has space for the pending records and for one more record of this
 * size. The next commit moves these records to the front batch, so an accepted record is not
 * lost. */
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

/* Adds a record to the next batch. An added record is never dropped. A length of 0 means the
 * length of the string. Returns 0. If there is no space, returns -GW_E_SIZE and counts the
 * record as dropped. */
static int store_add(struct store *s, struct record *r)
{
	size_t size = HEAD + sizeof(r->length);

	for (unsigned i = 0; i < RECORD_TEXTS; i++) {
		if (r->text[i] && r->length[i] == 0)
			r->length[i] = (uint32_t)strlen(r->text[i]);
		size += r->text[i] ? r->length[i] + 1 : 0;
	}
	if (has_space(s, size) && record_add(&s->pending.part[PART_DURABLE], r))
		return 0;
	atomic_fetch_add(&s->report.dropped, 1);
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

static void move_to_front(struct store *s)
{
	mailbox_lock(&s->box);
	for (unsigned p = 0; p < PARTS; p++) {
		struct buf *from = &s->pending.part[p], *to = &s->front.part[p];

		if (to->len + from->len >= to->max)
			/* Only history can be too long here; see has_space(). */
			to->err = -GW_E_SIZE;
		buf_add(to, from->p, from->len);
		if (to->err)
			atomic_fetch_add(&s->report.dropped, 1);
		buf_clear(from);
		to->err = 0;
	}
	for (unsigned i = 0; i < s->counts; i++)
		s->count[i]->committed = s->count[i]->pending;
	s->progress.committed++;
	mailbox_wake(&s->box);
	mailbox_unlock(&s->box);
}

void store_commit(struct store *s)
{
	move_to_front(s);
	if (!s->path && !store_write(s)) {
		buf_done(&s->writer.back.part[PART_DURABLE]);
		atomic_fetch_add(&s->report.dropped, 1);
	}
}

/* True if writing failed. With `waits`, true only if an attempt that began after attempt number
 * `attempts` has failed. Without `waits`, true only if the last attempt has failed and included
 * the batches up to number `wanted`. */
static bool has_failed(const struct store *s, uint64_t wanted, uint64_t attempts, bool waits)
{
	return s->progress.failing &&
	       (waits ? s->progress.attempts > attempts : s->progress.refused >= wanted);
}

bool store_settled(struct store *s)
{
	bool settled;

	mailbox_lock(&s->box);
	settled =
		!s->path || s->progress.failing || s->progress.written == s->progress.committed;
	mailbox_unlock(&s->box);
	return settled;
}

int store_flush(struct store *s, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns, wanted, attempts;
	const bool waits = timeout_ns > 0;
	int r = 0;

	if (!s->path)
		return 0;
	mailbox_lock(&s->box);
	wanted = s->progress.committed;
	attempts = s->progress.attempts;
	s->progress.retry =
		s->progress.written < wanted && !has_failed(s, wanted, attempts, waits);
	mailbox_wake(&s->box);
	while (s->progress.written < wanted && r == 0) {
		if (has_failed(s, wanted, attempts, waits))
			r = -GW_E_IO;
		else if (!mailbox_wait_news(&s->box, until_ns))
			r = -GW_E_TIMEOUT;
	}
	mailbox_unlock(&s->box);
	return r;
}

bool store_queue_next(const struct store *s, enum part part, struct queue_place *at,
		      struct record *ret)
{
	const struct batch *batches[] = { &s->writer.back, &s->front, &s->pending };

	for (; at->batch < COUNT(batches); at->batch++, at->at = 0)
		if (record_next(&batches[at->batch]->part[part], &at->at, ret))
			return true;
	return false;
}

/* Copies all queued records except history, oldest first. Free *ret with buf_done(). Returns 0,
 * or -GW_E_NOMEM; then there is nothing to free. */
static int copy_queue(struct store *s, struct buf *ret)
{
	const struct batch *batches[] = { &s->writer.back, &s->front, &s->pending };
	int err;

	buf_init(ret, COUNT(batches) * DURABLE_MAX);
	mailbox_lock(&s->box);
	for (unsigned i = 0; i < COUNT(batches); i++) {
		const struct buf *b = &batches[i]->part[PART_DURABLE];

		buf_add(ret, b->p, b->len);
	}
	mailbox_unlock(&s->box);
	err = ret->err;
	if (err)
		buf_done(ret);
	return err;
}

uint64_t store_add_event(struct store *s, const struct view_event *e)
{
	struct record r = {
		.kind = RECORD_EVENT,
		.a = ++s->last_event,
		.b = e->wall_ns,
		.simulated = e->simulated,
		.text = { e->kind, e->uuid, e->severity, e->text },
	};

	store_add(s, &r);
	return r.a;
}

struct events {
	uint64_t after;
	unsigned max;
	int count;
	void (*each)(void *arg, const struct view_event *e);
	void *arg;
};

static void give_event(struct events *v, const struct view_event *e)
{
	if (e->id <= v->after || (unsigned)v->count >= v->max)
		return;
	v->after = e->id;
	v->count++;
	v->each(v->arg, e);
}

static const char *text_of(sqlite3_stmt *q, int column)
{
	return (const char *)sqlite3_column_text(q, column);
}

static int file_events(struct store *s, struct events *v)
{
	sqlite3 *db = store_reader(s);
	sqlite3_stmt *q;
	int rc;

	if (!db)
		return SQLITE_DONE;
	q = db_statement(db, "SELECT id, wall_ns, kind, uuid, severity, text, simulated"
			     " FROM event"
			     " WHERE id>?1 ORDER BY id LIMIT ?2");
	sqlite3_bind_int64(q, 1, (sqlite3_int64)v->after);
	sqlite3_bind_int64(q, 2, v->max);
	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		struct view_event e = {
			.id = (uint64_t)sqlite3_column_int64(q, 0),
			.wall_ns = (uint64_t)sqlite3_column_int64(q, 1),
			.kind = text_of(q, 2),
			.uuid = text_of(q, 3),
			.severity = text_of(q, 4),
			.text = text_of(q, 5),
			.simulated = sqlite3_column_int(q, 6) != 0,
		};

		give_event(v, &e);
	}
	db_done(q);
	return rc;
}

/* Searches the events of the file that have an id below `below`, from the last event backwards.
 * Skips `skip` events and returns the id of the next one, or 0 if there is none. */
static uint64_t file_event_before(struct store *s, uint64_t below, unsigned skip)
{
	sqlite3 *db = store_reader(s);
	sqlite3_stmt *q = db ? db_statement(db, "SELECT id FROM event WHERE id<?1"
						" ORDER BY id DESC LIMIT 1 OFFSET ?2")
			     : NULL;
	uint64_t id = 0;

	if (q) {
		sqlite3_bind_int64(q, 1, (sqlite3_int64)below);
		sqlite3_bind_int64(q, 2, skip);
		if (sqlite3_step(q) == SQLITE_ROW)
			id = (uint64_t)sqlite3_column_int64(q, 0);
		db_done(q);
	}
	store_reader_done(s);
	return id;
}

uint64_t store_events_after(struct store *s, unsigned max)
{
	struct queue_place at = { 0 }, again = { 0 };
	uint64_t first = INT64_MAX;
	unsigned waits = 0, skip;
	struct record r;

	mailbox_lock(&s->box);
	while (store_queue_next(s, PART_DURABLE, &at, &r))
		waits += r.kind == RECORD_EVENT;
	skip = waits > max ? waits - max : 0;
	while (first == INT64_MAX && store_queue_next(s, PART_DURABLE, &again, &r))
		if (r.kind == RECORD_EVENT && skip-- == 0)
			first = r.a;
	mailbox_unlock(&s->box);
	if (waits < max)
		return file_event_before(s, first, max - waits);
	return first - 1;
}

int store_events(struct store *s, uint64_t after, unsigned max,
		 void (*each)(void *arg, const struct view_event *e), void *arg)
{
	struct events v = { after > INT64_MAX ? INT64_MAX : after, max, 0, each, arg };
	struct buf records;
	struct record r;
	int rc;

	/* The queue is read before the file; see store_query.c. */
	if (copy_queue(s, &records) != 0)
		return -GW_E_NOMEM;
	rc = file_events(s, &v);
	store_reader_done(s);
	if (rc != SQLITE_DONE)
		store_read_failed(s, rc);
	for (size_t at = 0; record_next(&records, &at, &r);) {
		struct view_event e = { .id = r.a,
					.wall_ns = r.b,
					.kind = r.text[0],
					.uuid = r.text[1],
					.severity = r.text[2],
					.text = r.text[3],
					.simulated = r.simulated != 0 };

		if (r.kind == RECORD_EVENT)
			give_event(&v, &e);
	}
	buf_done(&records);
	return rc == SQLITE_DONE ? v.count : -GW_E_IO;
}

static int put_document(struct store *s, struct record *r, size_t size)
{
	if (size > VIEW_DOCUMENT_MAX) {
		atomic_fetch_add(&s->report.dropped, 1);
		return -GW_E_SIZE;
	}
	r->length[2] = (uint32_t)size;
	return store_add(s, r);
}

int store_put_document(struct store *s, const char *kind, const char *id, const char *json,
		       size_t size)
{
	struct record r = { .kind = RECORD_KEEP,
			    .b = STORE_DOCUMENTS,
			    .text = { kind, id, json } };

	return put_document(s, &r, size);
}

int store_put_row(struct store *s, const char *kind, const char *id, const char *json,
		  size_t size, unsigned most)
{
	struct record r = { .kind = RECORD_KEEP, .a = 1, .text = { kind, id, json } };

	/* Without a file, the documents are in memory, so keep fewer of them. */
	r.b = !s->path && most > STORE_DOCUMENTS ? STORE_DOCUMENTS : most;
	return put_document(s, &r, size);
}

void store_delete_document(struct store *s, const char *kind, const char *id)
{
	struct record r = { .kind = RECORD_FORGET, .text = { kind, id } };

	store_add(s, &r);
}

static bool is_document(const struct record *r, const char *kind, const char *id)
{
	return (r->kind == RECORD_KEEP || r->kind == RECORD_FORGET) &&
	       strcmp(r->text[0], kind) == 0 && (!id || strcmp(r->text[1], id) == 0);
}

/* True if a record at the position `at` or after it changes the same document again. */
static bool is_replaced(const struct buf *records, size_t at, const char *kind, const char *id)
{
	struct record r;

	while (record_next(records, &at, &r))
		if (is_document(&r, kind, id))
			return true;
	return false;
}

/* Counts the queued documents that no later record replaces. */
static unsigned count_waiting(const struct buf *records, const char *kind)
{
	struct record r;
	unsigned n = 0;

	for (size_t at = 0; record_next(records, &at, &r);)
		n += r.kind == RECORD_KEEP && is_document(&r, kind, NULL) &&
		     !is_replaced(records, at, kind, r.text[1]);
	return n;
}

/* Reads the documents in the file, without those that a queued record replaces. records is the
 * queue; NULL means an empty queue. */
static int read_documents(sqlite3 *db, const char *kind, unsigned max,
			  const struct buf *records, int *count,
			  void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	sqlite3_stmt *q = db_statement(
		db, "SELECT id, json FROM (SELECT seq, id, json FROM document WHERE"
		    " kind=?1 ORDER BY seq DESC LIMIT ?2) ORDER BY seq");
	int rc;

	if (!q)
		return SQLITE_ERROR;
	sqlite3_bind_text(q, 1, kind, -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 2, max);
	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		if (records && is_replaced(records, 0, kind, text_of(q, 0)))
			continue;
		each(arg, text_of(q, 0), text_of(q, 1));
		(*count)++;
	}
	db_done(q);
	return rc;
}

int store_peek(const char *path, const char *kind, unsigned max,
	       void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	sqlite3 *db;
	int n = 0, rc;

	if (db_open_reader(path, &db) != DB_OK)
		return -GW_E_IO;
	rc = read_documents(db, kind, max, NULL, &n, each, arg);
	db_close(db);
	return rc == SQLITE_DONE ? n : -GW_E_IO;
}

int store_each_document(struct store *s, const char *kind, unsigned max,
			void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	struct buf records;
	struct record r;
	sqlite3 *db;
	unsigned fresh, skip;
	int n = 0, rc = SQLITE_DONE;

	if (copy_queue(s, &records) != 0)
		return -GW_E_NOMEM;
	fresh = count_waiting(&records, kind);
	skip = fresh > max ? fresh - max : 0;
	db = store_reader(s);
	if (db)
		rc = read_documents(db, kind, fresh < max ? max - fresh : 0, &records, &n, each,
				    arg);
	store_reader_done(s);
	if (rc != SQLITE_DONE)
		store_read_failed(s, rc);
	for (size_t at = 0; record_next(&records, &at, &r);) {
		if (r.kind != RECORD_KEEP || !is_document(&r, kind, NULL) ||
		    is_replaced(&records, at, kind, r.text[1]))
			continue;
		if (skip) {
			skip--;
			continue;
		}
		each(arg, r.text[1], r.text[2]);
		n++;
	}
	buf_done(&records);
	return rc == SQLITE_DONE ? n : -GW_E_IO;
}

static bool id_matches(const struct view_find *f, const char *id)
{
	return (!f->from || strcmp(id, f->from) >= 0) &&
	       (!f->glob || sqlite3_strglob(f->glob, id) == 0);
}

/* Calls each() with the queued documents, the latest first. Returns 1 after the last document,
 * 0 if each() ended the search, or -GW_E_NOMEM. */
static int find_waiting(const struct buf *records, const struct view_find *f, int *count,
			view_found_fn *each, void *arg)
{
	const unsigned fresh = count_waiting(records, f->kind);
	struct record *row = fresh ? calloc(fresh, sizeof(*row)) : NULL, r;
	unsigned n = 0;
	bool more = true;

	if (fresh && !row)
		return -GW_E_NOMEM;
	for (size_t at = 0; record_next(records, &at, &r);)
		if (r.kind == RECORD_KEEP && is_document(&r, f->kind, NULL) &&
		    !is_replaced(records, at, f->kind, r.text[1]))
			row[n++] = r;
	while (more && n--)
		if (id_matches(f, row[n].text[1])) {
			(*count)++;
			more = each(arg, row[n].text[1], f->ids_only ? NULL : row[n].text[2]);
		}
	free(row);
	return more;
}

/* Calls each() with the documents of the file. The query uses the unique index of kind and id
 * for the condition and the order, so it reads only documents that match. */
static int find_stored(sqlite3 *db, const struct buf *records, const struct view_find *f,
		       int *count, view_found_fn *each, void *arg)
{
	sqlite3_stmt *q = db_statement(
		db, f->ids_only ? "SELECT id FROM document WHERE kind=?1 AND id>=?2 AND"
				  " id GLOB ?3 ORDER BY id DESC"
				: "SELECT id, json FROM document WHERE kind=?1 AND id>=?2 AND"
				  " id GLOB ?3 ORDER BY id DESC");
	bool more = true;
	int rc = SQLITE_DONE;

	if (!q)
		return SQLITE_ERROR;
	sqlite3_bind_text(q, 1, f->kind, -1, SQLITE_STATIC);
	sqlite3_bind_text(q, 2, f->from ? f->from : "", -1, SQLITE_STATIC);
	sqlite3_bind_text(q, 3, f->glob ? f->glob : "*", -1, SQLITE_STATIC);
	while (more && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		if (is_replaced(records, 0, f->kind, text_of(q, 0)))
			continue;
		(*count)++;
		more = each(arg, text_of(q, 0), f->ids_only ? NULL : text_of(q, 1));
	}
	db_done(q);
	return more ? rc : SQLITE_DONE;
}

int store_find_documents(struct store *s, const struct view_find *f, view_found_fn *each,
			 void *arg)
{
	struct buf records;
	sqlite3 *db;
	int n = 0, rc = SQLITE_DONE, more;

	if (copy_queue(s, &records) != 0)
		return -GW_E_NOMEM;
	more = find_waiting(&records, f, &n, each, arg);
	if (more == 1) {
		db = store_reader(s);
		if (db)
			rc = find_stored(db, &records, f, &n, each, arg);
		store_reader_done(s);
	}
	if (rc != SQLITE_DONE)
		store_read_failed(s, rc);
	buf_done(&records);
	if (more < 0)
		return more;
	return rc == SQLITE_DONE ? n : -GW_E_IO;
}
