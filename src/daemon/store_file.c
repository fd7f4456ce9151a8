/* The file: opened at the start or later, and what it has.
 *
 * As long as it cannot be opened for writing (the disk is full, it is read-only, another program
 * holds it) the thread tries again and again.  What can be read is read meanwhile, with a connection
 * for each question: one that stays would keep the thread's out.  What was counted before the file
 * could be read is added to what it has. */
#include "store_parts.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGAIN_WAIT_MS 200 /* short: who reads alone waits for it */
#define COUNTS_MAX    (4u << 20)

/* ---- opening ---- */

static void make_folder(const char *path)
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

/* For the owner alone, and with the reason where it cannot be: SQLite would give none.  One that is there
 * is not opened: closing it would give up the locks of whoever reads it in this process. */
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
		return DB_NO_FILE; /* and no lock is left beside it */
	make_folder(s->path);
	if (s->lock_fd < 0)
		s->lock_fd = db_lock(s->path);
	if (s->lock_fd == -2)
		return DB_SHARED;
	if (s->lock_fd < 0 || make_file(s->path) < 0)
		return trouble_of(errno);
	t = db_open(s->path, wait_ms, &s->db);
	atomic_store(&s->usable, t == DB_OK);
	return t;
}

/* ---- what it has ---- */

/* Key and value of each, as records. */
static int read_counts(sqlite3 *db, struct buf *out)
{
	sqlite3_stmt *q;
	int rc;

	if (db_number(db, "SELECT count(*) FROM sqlite_master WHERE name='count'", -1) == 0)
		return SQLITE_DONE; /* it is new */
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

/* What was counted meanwhile comes on top.  Who asks at the start knows it; later: store_news(). */
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

/* False: it cannot be read. */
static bool load(struct store *s, sqlite3 *db, bool late)
{
	struct buf counts;
	uint64_t last;
	int rc;

	buf_init(&counts, COUNTS_MAX);
	rc = read_counts(db, &counts);
	last = (uint64_t)db_number(db, "SELECT seq FROM sqlite_sequence WHERE name='event'", 0);
	if (rc == SQLITE_DONE) {
		pthread_mutex_lock(&s->lock);
		add_counts(s, &counts, late);
		s->file_event = last;
		s->loaded = true;
		pthread_mutex_unlock(&s->lock);
	}
	buf_done(&counts);
	return rc == SQLITE_DONE;
}

void store_file_load(struct store *s)
{
	sqlite3 *db = s->db ? s->db : store_reader(s);

	if (db && load(s, db, false)) {
		s->last_event = s->file_event;
		atomic_store(&s->known, true);
	}
	if (!s->db)
		store_reader_done(s);
}

static bool is_loaded(struct store *s)
{
	bool loaded;

	pthread_mutex_lock(&s->lock);
	loaded = s->loaded;
	pthread_mutex_unlock(&s->lock);
	return loaded;
}

static void load_alone(struct store *s)
{
	sqlite3 *db;

	if (db_open_alone(s->path, &db) == DB_OK)
		load(s, db, true);
	db_close(db);
}

enum db_trouble store_file_open_again(struct store *s)
{
	enum db_trouble t;

	pthread_mutex_lock(&s->alone_lock);
	t = store_file_open(s, AGAIN_WAIT_MS);
	if (t == DB_OK && !is_loaded(s) && !load(s, s->db, true)) {
		atomic_store(&s->usable, false);
		db_close(s->db);
		s->db = NULL;
		t = DB_OTHER;
	} else if (t != DB_OK && t != DB_SHARED && !is_loaded(s)) {
		load_alone(s);
	}
	atomic_fetch_add(&s->generation, t == DB_OK);
	pthread_mutex_unlock(&s->alone_lock);
	return t;
}

/* ---- reading ---- */

/* False: it can be written by now. */
static bool read_alone(struct store *s)
{
	if (s->alone_depth == 0) {
		pthread_mutex_lock(&s->alone_lock);
		if (atomic_load(&s->usable)) {
			pthread_mutex_unlock(&s->alone_lock);
			return false;
		}
		db_open_alone(s->path, &s->alone);
	}
	s->alone_depth++;
	return true;
}

sqlite3 *store_reader(struct store *s)
{
	unsigned generation;

	if (!s->path)
		return s->db;
	if (!atomic_load(&s->usable) && read_alone(s))
		return s->alone;
	generation = atomic_load(&s->generation);
	if (s->reader && s->reader_generation == generation)
		return s->reader;
	db_close(s->reader);
	s->reader = NULL;
	s->reader_generation = generation;
	db_open_reader(s->path, &s->reader);
	return s->reader;
}

void store_reader_done(struct store *s)
{
	if (s->alone_depth == 0 || --s->alone_depth > 0)
		return;
	db_close(s->alone);
	s->alone = NULL;
	pthread_mutex_unlock(&s->alone_lock);
}

void store_read_failed(struct store *s, int rc)
{
	if (db_trouble(rc) != DB_CORRUPT || !s->path ||
	    s->reader_generation != atomic_load(&s->generation))
		return;
	pthread_mutex_lock(&s->lock);
	s->corrupt = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
}
