/* Opens the file, at the start or later, and loads its contents.
 *
 * While the file cannot be opened for writing (full disk, read-only, locked by another
 * program), the thread retries. Meanwhile each query opens its own connection to read, because
 * a permanent one would block the thread. What was counted before the file became readable is
 * added to the counts of the file. */
#include "store_parts.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_WAIT_MS 200 /* short, because a reader may wait for the retry */
#define COUNTS_MAX    (4u << 20)

/* ---- opening ---- */

static void make_directory(const char *path)
{
	char dir[DB_PATH], message[DB_PATH + 128];
	struct stat st;
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return;
	*slash = '\0';
	if (stat(dir, &st) == 0 || file_make_directory(dir, message, sizeof(message)) < 0)
		return;
	(void)chmod(dir, 0700);
}

static enum db_trouble trouble_of(int error)
{
	switch (error) {
	case ENOSPC:
	case EDQUOT: return DB_FULL;
	case EROFS:
	case EACCES:
	case EPERM: return DB_READ_ONLY;
	case ENOMEM: return DB_MEMORY;
	default: return DB_OTHER;
	}
}

/* Creates the file for its owner only. On failure errno has the reason, which SQLite would not
 * give. An existing file is not opened, because closing it would release the locks of other
 * readers in this process. */
static int make_file(const char *path)
{
	int fd;

	if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0)
		return 0;
	if (errno != ENOENT)
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

enum db_trouble store_file_open(struct store *s, int wait_ms)
{
	enum db_trouble t;

	if (db_is_no_file(s->path))
		return DB_NO_FILE; /* before a lock file is created */
	make_directory(s->path);
	if (file_is_unsafe_for_root(s->path))
		return DB_UNSAFE;
	if (s->writer.lock_fd < 0)
		s->writer.lock_fd = db_lock(s->path);
	if (s->writer.lock_fd == -2)
		return DB_SHARED;
	if (s->writer.lock_fd < 0 || make_file(s->path) < 0)
		return trouble_of(errno);
	t = db_open(s->path, wait_ms, &s->writer.db);
	atomic_store(&s->usable, t == DB_OK);
	return t;
}

/* ---- contents ---- */

/* Reads the key and value of each count into records. */
static int read_counts(sqlite3 *db, struct buf *out)
{
	sqlite3_stmt *q;
	int rc;

	if (db_number(db, "SELECT count(*) FROM sqlite_master WHERE name='count'", -1) == 0)
		return SQLITE_DONE; /* a new file */
	q = db_statement(db, "SELECT key, value FROM count");
	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		double value = sqlite3_column_double(q, 1);
		struct record r = { .text = { (const char *)sqlite3_column_text(q, 0) },
				    .length = { (uint32_t)sqlite3_column_bytes(q, 0) } };

		memcpy(&r.a, &value, sizeof(value));
		if (r.text[0])
			record_add(out, &r);
	}
	db_done(q);
	return rc;
}

/* Adds the counts of the file to what was counted before the file was readable. late: the
 * caller learns about the file later, from store_news(). */
static void add_counts(struct store *s, const struct buf *counts, bool late)
{
	struct record r;

	for (size_t at = 0; record_next(counts, &at, &r);) {
		struct counter *c = store_get_count(s, r.text[0]);
		double value;

		if (!c)
			continue;
		memcpy(&value, &r.a, sizeof(value));
		c->start = value;
		c->base = late ? value : 0;
		c->pending += value;
		c->committed = (c->committed > 0 ? c->committed : 0) + value;
		c->writing = c->written = value;
	}
}

/* False: unreadable. */
static bool load_file(struct store *s, sqlite3 *db, bool late)
{
	struct buf counts;
	uint64_t last;
	int rc;

	buf_init(&counts, COUNTS_MAX);
	rc = read_counts(db, &counts);
	last = (uint64_t)db_number(db, "SELECT seq FROM sqlite_sequence WHERE name='event'", 0);
	if (rc == SQLITE_DONE) {
		mailbox_lock(&s->box);
		add_counts(s, &counts, late);
		s->file_event = last;
		s->loaded = true;
		mailbox_unlock(&s->box);
	}
	buf_done(&counts);
	return rc == SQLITE_DONE;
}

void store_file_load(struct store *s)
{
	sqlite3 *db = s->writer.db ? s->writer.db : store_reader(s);

	if (db && load_file(s, db, false)) {
		s->last_event = s->file_event;
		atomic_store(&s->known, true);
	}
	if (!s->writer.db)
		store_reader_done(s);
}

static bool is_loaded(struct store *s)
{
	bool loaded;

	mailbox_lock(&s->box);
	loaded = s->loaded;
	mailbox_unlock(&s->box);
	return loaded;
}

static void load_alone(struct store *s)
{
	sqlite3 *db;

	if (db_open_alone(s->path, &db) == DB_OK)
		load_file(s, db, true);
	db_close(db);
}

enum db_trouble store_file_open_again(struct store *s)
{
	enum db_trouble t;

	pthread_mutex_lock(&s->alone_lock);
	t = store_file_open(s, RETRY_WAIT_MS);
	if (t == DB_OK && !is_loaded(s) && !load_file(s, s->writer.db, true)) {
		atomic_store(&s->usable, false);
		db_close(s->writer.db);
		s->writer.db = NULL;
		t = DB_OTHER;
	} else if (t != DB_OK && t != DB_SHARED && !is_loaded(s)) {
		load_alone(s);
	}
	atomic_fetch_add(&s->generation, t == DB_OK);
	pthread_mutex_unlock(&s->alone_lock);
	return t;
}

/* ---- reading ---- */

/* Opens the file for one query. Returns false if the file has become writable. */
static bool read_alone(struct store *s)
{
	if (s->read.alone_depth == 0) {
		pthread_mutex_lock(&s->alone_lock);
		if (atomic_load(&s->usable)) {
			pthread_mutex_unlock(&s->alone_lock);
			return false;
		}
		db_open_alone(s->path, &s->read.alone);
	}
	s->read.alone_depth++;
	return true;
}

sqlite3 *store_reader(struct store *s)
{
	unsigned generation;

	if (!s->path)
		return s->writer.db;
	if (!atomic_load(&s->usable) && read_alone(s))
		return s->read.alone;
	generation = atomic_load(&s->generation);
	if (s->read.db && s->read.generation == generation)
		return s->read.db;
	db_close(s->read.db);
	s->read.db = NULL;
	s->read.generation = generation;
	db_open_reader(s->path, &s->read.db);
	return s->read.db;
}

void store_reader_done(struct store *s)
{
	if (s->read.alone_depth == 0 || --s->read.alone_depth > 0)
		return;
	db_close(s->read.alone);
	s->read.alone = NULL;
	pthread_mutex_unlock(&s->alone_lock);
}

void store_read_failed(struct store *s, int rc)
{
	if (db_trouble(rc) != DB_CORRUPT || !s->path ||
	    s->read.generation != atomic_load(&s->generation))
		return;
	mailbox_lock(&s->box);
	s->corrupt = true;
	mailbox_wake(&s->box);
	mailbox_unlock(&s->box);
}
