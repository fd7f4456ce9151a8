/* The store's thread: writes batches to the file, one transaction each.
 *
 * If a write fails, counts, events and documents are written again after 1 s, 2 s, ... 60 s;
 * history is dropped, and the dropped batches are counted. Each batch deletes only a few old
 * rows, so that no transaction is long. */
#include "store_parts.h"

#include "base/clock.h"

#include <unistd.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BACKOFF_S     1
#define BACKOFF_MAX_S 60
/* The age of a row is measured from a time that is called horizon. With each batch, the horizon
 * moves closer to the time of the newest reading, by at most HORIZON_MS. A batch is written
 * every ten seconds, so the horizon moves at most sixty times as fast as time passes. If a
 * clock is a year ahead for a minute, only the oldest hour of readings is deleted. After a
 * month without power, the horizon reaches the newest reading in half a day. */
#define HORIZON_MS   (UINT64_C(600) * 1000)
#define OLD_ROWS     "64" /* Maximum number of rows deleted per batch and tier. */
#define LARGE_BUFFER (64u << 10)

/* Runs a statement. Each letter of `how` is the type of an argument: i is an int64, d a double,
 * t a text (a NULL pointer becomes SQL NULL). b stands for two arguments: bytes and their
 * size. */
static int run_bound(sqlite3 *db, const char *sql, const char *how, ...)
{
	sqlite3_stmt *s = db_statement(db, sql);
	va_list ap;
	int rc;

	if (!s)
		return sqlite3_errcode(db);
	va_start(ap, how);
	for (int i = 1; *how; how++, i++) {
		if (*how == 'i') {
			sqlite3_bind_int64(s, i, (sqlite3_int64)va_arg(ap, uint64_t));
		} else if (*how == 'd') {
			sqlite3_bind_double(s, i, va_arg(ap, double));
		} else if (*how == 't') {
			sqlite3_bind_text(s, i, va_arg(ap, const char *), -1, SQLITE_STATIC);
		} else {
			const void *p = va_arg(ap, const void *);

			sqlite3_bind_blob(s, i, p, (int)va_arg(ap, uint32_t), SQLITE_STATIC);
		}
	}
	va_end(ap);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW)
		;
	db_done(s);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int write_event(sqlite3 *db, const struct record *r)
{
	return run_bound(db, "INSERT OR IGNORE INTO event VALUES(?,?,?,?,?,?,?)", "iitttti",
			 r->a, r->b, r->text[0], r->text[1], r->text[2], r->text[3],
			 r->simulated);
}

static int write_document(sqlite3 *db, const struct record *r)
{
	int rc = run_bound(db, "INSERT OR REPLACE INTO document(kind,id,json) VALUES(?,?,?)",
			   "ttt", r->text[0], r->text[1], r->text[2]);

	if (rc != SQLITE_OK)
		return rc;
	return run_bound(
		db,
		"DELETE FROM document WHERE seq IN (SELECT seq FROM document WHERE kind=?1"
		" ORDER BY seq DESC LIMIT -1 OFFSET ?2)",
		"ti", r->text[0], r->b);
}

static int forget_document(sqlite3 *db, const struct record *r)
{
	return run_bound(db, "DELETE FROM document WHERE kind=? AND id=?", "tt", r->text[0],
			 r->text[1]);
}

/* ON CONFLICT is written with its columns, because versions of SQLite before 3.35 require
 * them. */
static int write_row(sqlite3 *db, const struct record *r)
{
	int rc = run_bound(db, "INSERT OR IGNORE INTO gpu(uuid) VALUES(?)", "t", r->text[0]);

	if (rc != SQLITE_OK)
		return rc;
	return run_bound(db,
			 "INSERT INTO history VALUES(?,(SELECT id FROM gpu WHERE uuid=?),?,?)"
			 " ON CONFLICT(tier, gpu, begin) DO UPDATE SET data=excluded.data",
			 "itib", r->a, r->text[0], r->b, r->text[1], r->length[1]);
}

static int write_records(sqlite3 *db, const struct buf *records)
{
	static int (*const write[])(sqlite3 *, const struct record *) = {
		[RECORD_HISTORY] = write_row,
		[RECORD_EVENT] = write_event,
		[RECORD_KEEP] = write_document,
		[RECORD_FORGET] = forget_document,
	};
	struct record r;
	int rc = SQLITE_OK;

	for (size_t at = 0; rc == SQLITE_OK && record_next(records, &at, &r);)
		rc = write[r.kind](db, &r);
	return rc;
}

static int write_counts(struct store *s)
{
	int rc = SQLITE_OK;

	for (unsigned i = 0; i < s->writer.changes && rc == SQLITE_OK; i++)
		rc = run_bound(s->writer.db,
			       "INSERT INTO count VALUES(?,?) ON CONFLICT(key) DO UPDATE SET"
			       " value=CASE WHEN ? THEN excluded.value"
			       " ELSE max(value,excluded.value) END",
			       "tdi", s->writer.changed[i]->key, s->writer.changed[i]->writing,
			       (uint64_t)s->writer.changed[i]->replaces);
	return rc;
}

static uint64_t newest_of(const struct buf *records)
{
	uint64_t newest = 0;
	struct record r;

	for (size_t at = 0; record_next(records, &at, &r);)
		if (r.b > newest)
			newest = r.b;
	return newest;
}

static uint64_t horizon_before(sqlite3 *db, uint64_t newest_ms)
{
	sqlite3_stmt *s = db_statement(db, "SELECT max((SELECT max(begin) FROM history WHERE"
					   " tier=0 AND gpu=g.id AND begin<?1)) FROM gpu g");
	uint64_t before = newest_ms;

	sqlite3_bind_int64(s, 1, (sqlite3_int64)newest_ms);
	if (s && sqlite3_step(s) == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_NULL)
		before = (uint64_t)sqlite3_column_int64(s, 0);
	db_done(s);
	return before;
}

static void move_horizon(struct store *s, uint64_t newest_ms)
{
	if (s->writer.horizon_ms == 0)
		s->writer.horizon_ms = horizon_before(s->writer.db, newest_ms);
	if (newest_ms > s->writer.horizon_ms + HORIZON_MS)
		s->writer.horizon_ms += HORIZON_MS;
	else
		s->writer.horizon_ms = newest_ms;
}

static int drop_old(struct store *s, uint64_t newest_ms)
{
	int rc = SQLITE_OK;

	move_horizon(s, newest_ms);
	for (unsigned t = 0; t < TIERS && rc == SQLITE_OK; t++) {
		if (s->writer.horizon_ms < store_tiers[t].kept_ms)
			continue;
		rc = run_bound(s->writer.db,
			       "DELETE FROM history WHERE rowid IN (SELECT h.rowid FROM gpu g"
			       " JOIN history h ON h.tier=?1 AND h.gpu=g.id AND h.begin<?2"
			       " LIMIT " OLD_ROWS ")",
			       "ii", (uint64_t)t,
			       s->writer.horizon_ms - store_tiers[t].kept_ms);
	}
	return rc;
}

/* Returns the maximum size of the database file. This size is less than the configured limit,
 * because the log also takes space. */
static uint64_t target_bytes(const struct store *s)
{
	uint64_t log = s->limit_bytes / 2 < (1u << 20) ? s->limit_bytes / 2 : 1u << 20;

	return s->limit_bytes - log;
}

static int drop_beyond_limit(struct store *s)
{
	uint64_t page = (uint64_t)db_number(s->writer.db, "PRAGMA page_size", 4096);
	uint64_t pages = (uint64_t)db_number(s->writer.db, "PRAGMA page_count", 0);
	uint64_t unused = (uint64_t)db_number(s->writer.db, "PRAGMA freelist_count", 0);
	int rc = SQLITE_OK, gone = 0;

	if ((pages - unused) * page > target_bytes(s))
		for (unsigned t = 0; t < TIERS && gone == 0 && rc == SQLITE_OK; t++) {
			rc = run_bound(
				s->writer.db,
				"DELETE FROM history WHERE rowid IN (SELECT rowid FROM history"
				" WHERE tier=? ORDER BY begin LIMIT " OLD_ROWS ")",
				"i", (uint64_t)t);
			gone = sqlite3_changes(s->writer.db);
		}
	if (rc == SQLITE_OK && pages * page > target_bytes(s))
		rc = db_run(s->writer.db, "PRAGMA incremental_vacuum(64)");
	return rc;
}

/* Reserves the event ids that are used while nothing can be written, because such ids are not
 * in the file. Without the reservation, the next run could use them again after kill -9, if the
 * clock is behind them; see store_begin_event_ids(). */
static int reserve_ids(sqlite3 *db)
{
	return run_bound(db,
			 "UPDATE sqlite_sequence SET seq=(SELECT max(id) FROM event)+?"
			 " WHERE name='event' AND EXISTS (SELECT * FROM event)",
			 "i", (uint64_t)STORE_RESERVE);
}

/* Deletes the oldest events. Ids have gaps, therefore the events are counted. */
static int drop_events(sqlite3 *db)
{
	return run_bound(db,
			 "DELETE FROM event WHERE id<=(SELECT id FROM event ORDER BY id DESC"
			 " LIMIT 1 OFFSET ?)",
			 "i", (uint64_t)STORE_EVENTS);
}

/* True if the batch deletes a document, or has a document that must survive a power failure.
 * History and the documents of store_put_row() need not survive it. */
static bool has_document(const struct buf *b)
{
	struct record r;
	size_t at = 0;

	while (record_next(b, &at, &r))
		if ((r.kind == RECORD_KEEP && !r.a) || r.kind == RECORD_FORGET)
			return true;
	return false;
}

static int write_all(struct store *s)
{
	const struct buf *history = &s->writer.back.part[PART_HISTORY];
	const struct buf *durable = &s->writer.back.part[PART_DURABLE];
	int rc = db_run(s->writer.db, has_document(durable) ? "PRAGMA synchronous=FULL"
							    : "PRAGMA synchronous=NORMAL");

	if (rc == SQLITE_OK)
		rc = run_bound(s->writer.db, "BEGIN IMMEDIATE", "");
	if (rc == SQLITE_OK)
		rc = write_counts(s);
	if (rc == SQLITE_OK)
		rc = write_records(s->writer.db, durable);
	if (rc == SQLITE_OK && durable->len)
		rc = drop_events(s->writer.db);
	if (rc == SQLITE_OK && durable->len)
		rc = reserve_ids(s->writer.db);
	if (rc == SQLITE_OK)
		rc = write_records(s->writer.db, history);
	if (rc == SQLITE_OK && history->len)
		rc = drop_old(s, newest_of(history));
	if (rc == SQLITE_OK && history->len)
		rc = drop_beyond_limit(s);
	if (rc == SQLITE_OK)
		rc = run_bound(s->writer.db, "COMMIT", "");
	if (rc != SQLITE_OK && !sqlite3_get_autocommit(s->writer.db))
		db_run(s->writer.db, "ROLLBACK");
	return rc;
}

static void empty_buffer(struct buf *b)
{
	if (b->cap > LARGE_BUFFER)
		buf_done(b);
	else
		buf_clear(b);
}

/* Lists the counts to write. A separate list is needed, because s->count moves when a key is
 * inserted. */
static void take_counts(struct store *s)
{
	s->writer.changes = 0;
	for (unsigned i = 0; i < s->counts; i++) {
		struct counter *c = s->count[i];

		if (c->committed == c->written)
			continue;
		c->writing = c->committed;
		s->writer.changed[s->writer.changes++] = c;
	}
}

/* Moves the front batch to `back`. If a part of `back` is not empty, appends to that part, as
 * far as there is space and memory. */
static void take_front(struct store *s)
{
	bool all = true;

	mailbox_lock(&s->box);
	for (unsigned p = 0; p < PARTS; p++) {
		struct buf *front = &s->front.part[p], *back = &s->writer.back.part[p];

		if (back->len == 0) {
			struct buf swap = *front;

			*front = *back;
			*back = swap;
			continue;
		}
		buf_add(back, front->p, front->len);
		if (back->err)
			/* This part stays in the front batch until the next round. */
			all = false;
		else
			empty_buffer(front);
		back->err = 0;
	}
	take_counts(s);
	s->progress.taken = s->progress.committed;
	s->progress.tried = all ? s->progress.committed : s->progress.written;
	mailbox_unlock(&s->box);
}

static void note_bytes(struct store *s)
{
	static const char *const parts[] = { "", "-wal" };
	uint64_t sum = 0;

	for (unsigned i = 0; s->path && i < 2; i++) {
		char name[DB_PATH + 8];
		struct stat st;

		snprintf(name, sizeof(name), "%s%s", s->path, parts[i]);
		if (stat(name, &st) != 0)
			continue;
		sum += (uint64_t)st.st_size;
		if (i == 1)
			s->writer.log_inode = st.st_ino;
	}
	atomic_store(&s->report.bytes, sum);
}

static void finish_attempt(struct store *s, enum db_trouble t)
{
	mailbox_lock(&s->box);
	s->progress.attempts++;
	s->progress.failing = t != DB_OK;
	if (s->progress.failing)
		s->progress.refused = s->progress.taken;
	if (s->writer.back.part[PART_HISTORY].len && t != DB_OK)
		atomic_fetch_add(&s->report.dropped, 1);
	empty_buffer(&s->writer.back.part[PART_HISTORY]);
	if (t == DB_OK) {
		empty_buffer(&s->writer.back.part[PART_DURABLE]);
		for (unsigned i = 0; i < s->writer.changes; i++)
			s->writer.changed[i]->written = s->writer.changed[i]->writing;
		s->progress.written = s->progress.tried;
	}
	if (s->path)
		atomic_store(&s->report.problem, s->report.sentence[t]);
	mailbox_notify(&s->box);
	mailbox_unlock(&s->box);
}

static void forget_written(struct store *s)
{
	mailbox_lock(&s->box);
	for (unsigned i = 0; i < s->counts; i++)
		s->count[i]->written = -1; /* Write all counts to the new file. */
	take_counts(s);
	s->corrupt = false;
	/* Set the state of the counts to loaded. There are no counts to read, because the old
	 * file is lost. */
	store_set_loaded(s);
	mailbox_unlock(&s->box);
	s->writer.horizon_ms = 0;
}

void store_set_notice(struct store *s, const char *format, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(&text, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	mailbox_lock(&s->box);
	free(s->notice);
	s->notice = text;
	mailbox_unlock(&s->box);
}

/* Moves the corrupt file aside, and writes the counts and the queued records to a new file. */
static enum db_trouble start_new_file(struct store *s)
{
	char aside[DB_PATH + 48];
	enum db_trouble t;

	db_close(s->writer.db);
	s->writer.db = NULL;
	if (db_move_aside(s->path, aside, sizeof(aside)) == 0)
		store_set_notice(
			s,
			"%s was corrupt; it was moved to %s and a new file was created: "
			"the older history is in the moved file",
			s->path, aside);
	forget_written(s);
	pthread_mutex_lock(&s->alone_lock);
	t = store_file_open(s, 0);
	pthread_mutex_unlock(&s->alone_lock);
	atomic_fetch_add(&s->generation, 1);
	return t;
}

/* True if the open file was removed or renamed, or if its name now belongs to another file. */
static bool is_removed(const struct store *s)
{
	int moved = 0;

	return s->path &&
	       sqlite3_file_control(s->writer.db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) ==
		       SQLITE_OK &&
	       moved;
}

/* Copies rows. Rows that cannot be read are left out. Returns an error only if writing
 * fails. */
static int copy_rows(sqlite3 *from, sqlite3 *to, const char *select, const char *insert)
{
	sqlite3_stmt *q = db_statement(from, select), *w = db_statement(to, insert);
	int rc = w ? SQLITE_OK : sqlite3_errcode(to);

	while (rc == SQLITE_OK && q && sqlite3_step(q) == SQLITE_ROW) {
		for (int i = 0; i < sqlite3_column_count(q); i++)
			sqlite3_bind_value(w, i + 1, sqlite3_column_value(q, i));
		sqlite3_step(w);
		rc = sqlite3_reset(w);
	}
	db_done(q);
	db_done(w);
	return rc;
}

/* Copies the documents, which include the guard's journal, and the events. Does not copy the
 * history, which may have a gigabyte. */
static int copy_file(sqlite3 *from, sqlite3 *to)
{
	int rc = db_run(to, "BEGIN IMMEDIATE");

	if (rc == SQLITE_OK)
		rc = copy_rows(from, to, "SELECT kind, id, json FROM document ORDER BY seq",
			       "INSERT OR REPLACE INTO document(kind,id,json) VALUES(?,?,?)");
	if (rc == SQLITE_OK)
		rc = copy_rows(from, to,
			       "SELECT id, wall_ns, kind, uuid, severity, text, simulated"
			       " FROM event ORDER BY id",
			       "INSERT OR IGNORE INTO event VALUES(?,?,?,?,?,?,?)");
	if (rc == SQLITE_OK)
		rc = db_run(to, "COMMIT");
	return rc;
}

/* Deletes the log of the removed file, because SQLite would apply that log to the file that now
 * has the same name. The open connection can still read the deleted log. */
static void delete_old_log(const struct store *s)
{
	char log[DB_PATH + 8], index[DB_PATH + 8];
	struct stat st;

	snprintf(log, sizeof(log), "%s-wal", s->path);
	snprintf(index, sizeof(index), "%s-shm", s->path);
	if (access(s->path, F_OK) == 0 &&
	    (stat(log, &st) != 0 || st.st_ino != s->writer.log_inode))
		return;
	unlink(log);
	unlink(index);
}

/* Opens the file that now has this path, or creates it, and copies the documents and events of
 * the removed file into it. If this fails, the removed file stays open, and the next attempt
 * copies from it again. */
static enum db_trouble replace_removed_file(struct store *s)
{
	sqlite3 *old = s->writer.db;
	enum db_trouble t;

	pthread_mutex_lock(&s->alone_lock);
	atomic_store(&s->usable, false);
	s->writer.db = NULL;
	if (s->writer.lock_fd >= 0 && !db_lock_is_current(s->writer.lock_fd, s->path)) {
		close(s->writer.lock_fd);
		s->writer.lock_fd = -1;
	}
	delete_old_log(s);
	t = store_file_open(s, 0);
	if (t == DB_OK)
		t = db_trouble(copy_file(old, s->writer.db));
	if (t == DB_OK) {
		db_close(old);
		forget_written(s);
		store_set_notice(
			s,
			"%s was removed or replaced while gpuward used it: counters, events "
			"and other saved data were copied to the new file of this name; the "
			"older history is lost",
			s->path);
	} else {
		atomic_store(&s->usable, false);
		db_close(s->writer.db);
		s->writer.db = old;
	}
	atomic_fetch_add(&s->generation, t == DB_OK);
	pthread_mutex_unlock(&s->alone_lock);
	return t;
}

static bool met_corrupt(struct store *s)
{
	bool corrupt;

	mailbox_lock(&s->box);
	corrupt = s->corrupt;
	mailbox_unlock(&s->box);
	return corrupt;
}

/* If someone deleted the write-ahead log, copies its contents into the database file. SQLite
 * still has the deleted log open and would continue to write to it. When SQLite closes the
 * deleted log, its contents would be lost. */
static enum db_trouble save_without_log(struct store *s)
{
	char log[DB_PATH + 8];

	if (!s->path)
		return DB_OK;
	snprintf(log, sizeof(log), "%s-wal", s->path);
	if (access(log, F_OK) == 0 || errno != ENOENT)
		return DB_OK;
	return db_number(s->writer.db, "PRAGMA wal_checkpoint(TRUNCATE)", 1) == 0 ? DB_OK
										  : DB_OTHER;
}

bool store_write(struct store *s)
{
	enum db_trouble t = DB_OK;

	/* Open the file before take_front(), because the file may have counts. */
	if (!s->writer.db)
		t = store_file_open_again(s);
	else if (met_corrupt(s))
		t = DB_CORRUPT;
	else if (is_removed(s))
		t = replace_removed_file(s);
	take_front(s);
	if (t == DB_OK)
		t = db_trouble(write_all(s));
	if (t == DB_CORRUPT && s->path) {
		t = start_new_file(s);
		if (t == DB_OK)
			t = db_trouble(write_all(s));
	}
	if (t == DB_OK)
		t = save_without_log(s);
	note_bytes(s);
	finish_attempt(s, t);
	return t == DB_OK;
}

static bool has_work(const struct store *s)
{
	return s->progress.written != s->progress.committed || s->corrupt;
}

/* Waits for work or for the end of the back-off. Returns false if the thread must stop and
 * cannot do any more work. Call it with the lock held. */
static bool await_work(struct store *s, unsigned backoff_s)
{
	uint64_t until_ns =
		backoff_s ? clock_mono_ns(clock_real()) + backoff_s * NS_PER_S : UINT64_MAX;

	while (!s->box.stop && !s->progress.retry && (backoff_s || !has_work(s)))
		if (!mailbox_wait(&s->box, until_ns))
			break;
	s->progress.retry = false;
	return !s->box.stop || (has_work(s) && !backoff_s);
}

void store_thread(void *arg)
{
	struct store *s = arg;
	unsigned backoff_s = 0;

	mailbox_lock(&s->box);
	while (await_work(s, backoff_s)) {
		bool ok;

		mailbox_unlock(&s->box);
		ok = store_write(s);
		mailbox_lock(&s->box);
		if (ok)
			backoff_s = 0;
		else
			backoff_s = backoff_s == 0 ? BACKOFF_S : backoff_s * 2;
		if (backoff_s > BACKOFF_MAX_S)
			backoff_s = BACKOFF_MAX_S;
	}
	mailbox_unlock(&s->box);
}
