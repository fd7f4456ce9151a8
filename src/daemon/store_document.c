/* Events and documents: adds them to the queue, and reads them from queue and file. */
#include "store_parts.h"

#include <string.h>

/* Copies all queued records except history, oldest first. */
static void copy_queue(struct store *s, struct buf *out)
{
	const struct batch *batches[] = { &s->back, &s->front, &s->pending };

	mailbox_lock(&s->box);
	buf_init(out, 4 * s->front.part[PART_DURABLE].max);
	for (unsigned i = 0; i < 3; i++) {
		const struct buf *b = &batches[i]->part[PART_DURABLE];

		buf_add(out, b->p, b->len);
	}
	mailbox_unlock(&s->box);
}

/* ---- events ---- */

uint64_t store_last_event(struct store *s)
{
	return s->last_event;
}

uint64_t store_add_event(struct store *s, const struct view_event *e)
{
	struct record r = {
		.kind = RECORD_EVENT,
		.a = e->id > s->last_event ? e->id : s->last_event + 1,
		.b = e->wall_ns,
		.text = { e->kind, e->uuid, e->severity, e->text },
	};

	s->last_event = r.a;
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
	q = db_statement(db, "SELECT id, wall_ns, kind, uuid, severity, text FROM event"
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
		};

		give_event(v, &e);
	}
	db_done(q);
	return rc;
}

/* The id of the last event below `below`, after skipping `skip`; 0: none. */
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
	uint64_t first = INT64_MAX;
	unsigned waits = 0, skip;
	struct buf records;
	struct record r;

	copy_queue(s, &records);
	for (size_t at = 0; record_next(&records, &at, &r);)
		waits += r.kind == RECORD_EVENT;
	skip = waits > max ? waits - max : 0;
	for (size_t at = 0; first == INT64_MAX && record_next(&records, &at, &r);)
		if (r.kind == RECORD_EVENT && skip-- == 0)
			first = r.a;
	buf_done(&records);
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

	copy_queue(s, &records); /* before the file: see store_query.c */
	rc = file_events(s, &v);
	store_reader_done(s);
	if (rc != SQLITE_DONE)
		store_read_failed(s, rc);
	for (size_t at = 0; record_next(&records, &at, &r);) {
		struct view_event e = { r.a,       r.b,       r.text[0], r.text[1],
					r.text[2], r.text[3], NULL,      0 };

		if (r.kind == RECORD_EVENT)
			give_event(&v, &e);
	}
	buf_done(&records);
	return rc == SQLITE_DONE ? v.count : -GW_E_IO;
}

/* ---- documents ---- */

int store_keep(struct store *s, const char *kind, const char *id, const char *json, size_t size)
{
	struct record r = { .kind = RECORD_KEEP, .text = { kind, id, json } };

	if (size > VIEW_DOCUMENT_MAX) {
		atomic_fetch_add(&s->dropped, 1);
		return -GW_E_SIZE;
	}
	r.length[2] = (uint32_t)size;
	return store_add(s, &r);
}

void store_forget(struct store *s, const char *kind, const char *id)
{
	struct record r = { .kind = RECORD_FORGET, .text = { kind, id } };

	store_add(s, &r);
}

static bool is_document(const struct record *r, const char *kind, const char *id)
{
	return (r->kind == RECORD_KEEP || r->kind == RECORD_FORGET) &&
	       strcmp(r->text[0], kind) == 0 && (!id || strcmp(r->text[1], id) == 0);
}

/* Does the queue change this document again from here on? */
static bool is_replaced(const struct buf *records, size_t at, const char *kind, const char *id)
{
	struct record r;

	while (record_next(records, &at, &r))
		if (is_document(&r, kind, id))
			return true;
	return false;
}

/* The number of queued documents that are not replaced later. */
static unsigned count_waiting(const struct buf *records, const char *kind)
{
	struct record r;
	unsigned n = 0;

	for (size_t at = 0; record_next(records, &at, &r);)
		n += r.kind == RECORD_KEEP && is_document(&r, kind, NULL) &&
		     !is_replaced(records, at, kind, r.text[1]);
	return n;
}

/* records: the queue; NULL: empty. */
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

int store_kept(struct store *s, const char *kind, unsigned max,
	       void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	struct buf records;
	struct record r;
	sqlite3 *db;
	unsigned fresh, skip;
	int n = 0, rc = SQLITE_DONE;

	copy_queue(s, &records);
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
