#include "store_parts.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY_LIMIT  (4u << 20) /* Maximum size of the history without a file. */
#define CLOSE_NS      NS_PER_S
#define START_WAIT_MS 2000 /* Maximum wait for another process that holds the file. */
#define STACK_BYTES   (256u << 10)

/* Sentences about an existing file that cannot be written now. */
static const char *const failing[DB_TROUBLES] = {
	[DB_CORRUPT] = "%s is corrupt and cannot be moved aside: nothing is stored",
	[DB_NEWER] = "%s was replaced by the file of a newer gpuward: nothing is stored",
	[DB_FOREIGN] = "%s was replaced by a database of another program: nothing is stored",
	[DB_SHARED] = "%s is in use by another gpuward: nothing is stored until the other "
		      "gpuward stops",
	[DB_NO_FILE] = "%s was replaced by a directory, a pipe or a device: nothing is stored",
	[DB_UNSAFE] = "other users can now change %s or its folder: nothing is stored",
	[DB_LOCKED] = "%s is locked by another program: nothing is stored until that "
		      "program releases it; fuser shows the program",
	[DB_FULL] = "%s cannot be written because the disk is full: nothing is stored until "
		    "there is space",
	[DB_READ_ONLY] = "%s cannot be written because it is read-only: nothing is stored "
			 "until it is writable",
	[DB_MEMORY] = "%s cannot be written because memory ran out: nothing is stored until "
		      "there is memory",
	[DB_OTHER] =
		"%s cannot be written (input/output error): nothing is stored; check the disk",
};

/* Sentences about a file that is not opened. */
static const char *const unusable[DB_TROUBLES] = {
	[DB_CORRUPT] = "%s is corrupt and cannot be moved aside; remove it, or set [history] "
		       "path to another file",
	[DB_NEWER] = "%s was written by a newer gpuward and is not used; run that version, or "
		     "set [history] path to another file",
	[DB_FOREIGN] = "%s is a database of another program and is not used; set [history] "
		       "path to another file",
	[DB_SHARED] = "%s is in use by another gpuward; stop it, or set [history] path to "
		      "another file",
	[DB_NO_FILE] = "%s is a directory, a pipe or a device and is not used; set [history] "
		       "path to a file, or to \"none\"",
	[DB_UNSAFE] =
		"other users can change %s or its folder, so it is not used; set [history] "
		"path to a file in a folder that only root or this user can write",
};

const char *store_problem(struct store *s)
{
	return atomic_load(&s->report.problem);
}

const char *store_state(struct store *s)
{
	const char *problem = store_problem(s);

	return problem ? problem : "ok";
}

uint64_t store_bytes(struct store *s)
{
	return atomic_load(&s->report.bytes);
}

uint64_t store_dropped(struct store *s)
{
	return atomic_load(&s->report.dropped);
}

bool store_notice(struct store *s, char *out, size_t size)
{
	char *text;

	mailbox_lock(&s->box);
	text = s->notice;
	s->notice = NULL;
	mailbox_unlock(&s->box);
	if (!text)
		return false;
	snprintf(out, size, "%s", text);
	free(text);
	return true;
}

/* Returns the index of key, or the index at which it would be inserted. */
static unsigned find_count(const struct store *s, const char *key, bool *ret_there)
{
	unsigned low = 0, high = s->counts;

	*ret_there = false;
	while (low < high) {
		unsigned mid = low + (high - low) / 2;
		int c = strcmp(s->count[mid]->key, key);

		if (c == 0) {
			*ret_there = true;
			return mid;
		}
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Finds or creates a count. Returns NULL if there is no space. Once the thread runs, the
 * caller must hold the lock. */
static struct counter *store_get_count(struct store *s, const char *key)
{
	bool there;
	unsigned at = find_count(s, key, &there);
	struct counter *c;

	if (there)
		return s->count[at];
	c = s->counts < STORE_KEYS ? calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return NULL;
	c->key = strdup(key);
	if (!c->key) {
		free(c);
		return NULL;
	}
	c->written = c->writing = c->committed = -1;
	memmove(&s->count[at + 1], &s->count[at], (s->counts - at) * sizeof(struct counter *));
	s->count[at] = c;
	s->counts++;
	return c;
}

double store_count(struct store *s, const char *key)
{
	bool there;
	unsigned at;
	double store_start;

	mailbox_lock(&s->box);
	at = find_count(s, key, &there);
	store_start = there && store_count_known(s) ? s->count[at]->start : 0;
	mailbox_unlock(&s->box);
	return store_start;
}

double store_count_now(struct store *s, const char *key)
{
	double now = store_count(s, key);
	const struct counter *c;
	bool there;
	unsigned at;

	mailbox_lock(&s->box);
	at = find_count(s, key, &there);
	c = there ? s->count[at] : NULL;
	if (c && (c->replaces || c->pending - c->base > now))
		now = c->pending - c->base;
	mailbox_unlock(&s->box);
	return now;
}

static void put_count(struct store *s, const char *key, double value, bool replaces)
{
	struct counter *c;

	mailbox_lock(&s->box);
	c = store_get_count(s, key);
	if (!c) {
		atomic_fetch_add(&s->report.dropped, 1);
	} else if (value + c->base > c->pending || (replaces && value + c->base < c->pending)) {
		c->pending = value + c->base; /* A NAN is ignored. */
		c->replaces |= replaces;
	}
	mailbox_unlock(&s->box);
}

void store_set_count(struct store *s, const char *key, double value)
{
	put_count(s, key, value, false);
}

void store_replace_count(struct store *s, const char *key, double value)
{
	put_count(s, key, value, true);
}

bool store_count_known(struct store *s)
{
	return atomic_load(&s->contents) == STORE_KNOWN;
}

bool store_lasting(struct store *s)
{
	return s->path && store_count_known(s);
}

void store_begin_event_ids(struct store *s, uint64_t wall_ns)
{
	if (s->last_event < wall_ns / NS_PER_MS)
		s->last_event = wall_ns / NS_PER_MS;
}

bool store_shared(const struct store *s)
{
	return s->shared;
}

bool store_news(struct store *s)
{
	if (atomic_load(&s->contents) != STORE_LOADED)
		return false;
	mailbox_lock(&s->box);
	for (unsigned i = 0; i < s->counts; i++)
		s->count[i]->base = 0;
	if (s->file_event > s->last_event)
		s->last_event = s->file_event;
	atomic_store(&s->contents, STORE_KNOWN);
	mailbox_unlock(&s->box);
	return true;
}

/* The file is opened and its counts are read at the start or later. While the file cannot be
 * opened for writing (full disk, read-only, locked by another program), the store's thread
 * tries again. During this time each query opens its own connection for reading, because a
 * permanent connection would block the thread. Counts that were set before the file became
 * readable are added to the counts of the file. */

#define RETRY_WAIT_MS 200 /* Short, because a reader may wait for the retry. */
#define COUNTS_MAX    (4u << 20)
#define COUNT_LARGEST 1e18 /* Any count up to this value fits into 64 bits. */

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

/* If the file does not exist, creates it so that only its owner can use it. If the file exists,
 * checks that it is writable. On failure errno has the reason, because SQLite would not report
 * the reason. An existing file is not opened here: closing it again would release the locks of
 * other readers in this process. */
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
		return DB_NO_FILE; /* Checked before a lock file is created. */
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

/* Reads the key and value of each count into records. */
static int read_counts(sqlite3 *db, struct buf *out)
{
	sqlite3_stmt *q;
	int rc;

	if (db_number(db, "SELECT count(*) FROM sqlite_master WHERE name='count'", -1) == 0)
		return SQLITE_DONE; /* A new file. */
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

/* Adds the counts of the file to the counts since the start. If late is true, the file was not
 * readable at the start. The state is then STORE_LOADED, and this function also sets
 * counter.base. */
static void add_counts(struct store *s, const struct buf *counts, bool late)
{
	struct record r;

	for (size_t at = 0; record_next(counts, &at, &r);) {
		struct counter *c = store_get_count(s, r.text[0]);
		double value;

		if (!c)
			continue;
		memcpy(&value, &r.a, sizeof(value));
		if (!(value >= 0 && value <= COUNT_LARGEST)) { /* The file is damaged. */
			c->replaces = true;
			continue;
		}
		c->start = value;
		c->base = late ? value : 0;
		c->pending += value;
		c->committed = (c->committed > 0 ? c->committed : 0) + value;
		c->writing = c->written = value;
	}
}

/* Loads the counts and the last event id of the file. Returns false if they cannot be read. */
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
		store_set_loaded(s);
		mailbox_unlock(&s->box);
	}
	buf_done(&counts);
	return rc == SQLITE_DONE;
}

/* Reads the counts and the last event id at the start, if the file is readable. */
static void store_file_load(struct store *s)
{
	sqlite3 *db = s->writer.db ? s->writer.db : store_reader(s);

	if (db && load_file(s, db, false)) {
		s->last_event = s->file_event;
		atomic_store(&s->contents, STORE_KNOWN);
	}
	if (!s->writer.db)
		store_reader_done(s);
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
	bool unread;

	pthread_mutex_lock(&s->alone_lock);
	t = store_file_open(s, RETRY_WAIT_MS);
	unread = atomic_load(&s->contents) == STORE_UNREAD;
	if (t == DB_OK && unread && !load_file(s, s->writer.db, true)) {
		atomic_store(&s->usable, false);
		db_close(s->writer.db);
		s->writer.db = NULL;
		t = DB_OTHER;
	} else if (t != DB_OK && t != DB_SHARED && unread) {
		load_alone(s);
	}
	atomic_fetch_add(&s->generation, t == DB_OK);
	pthread_mutex_unlock(&s->alone_lock);
	return t;
}

/* Opens a file that is not writable, for one query. Returns false if the file has become
 * writable in the meantime. */
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

/* Writes sentence with its only %s replaced by path. */
static void format_sentence(char *out, size_t size, const char *sentence, const char *path)
{
	const char *mark = strstr(sentence, "%s");

	if (mark)
		snprintf(out, size, "%.*s%s%s", (int)(mark - sentence), sentence, path,
			 mark + 2);
	else
		snprintf(out, size, "%s", sentence);
}

static int use_memory(struct store *s, char *message, size_t size)
{
	s->shared = s->writer.lock_fd == -2;
	if (s->writer.lock_fd >= 0)
		close(s->writer.lock_fd);
	s->writer.lock_fd = -1;
	free(s->path);
	s->path = NULL;
	atomic_store(&s->contents, STORE_KNOWN);
	if (s->limit_bytes > MEMORY_LIMIT)
		s->limit_bytes = MEMORY_LIMIT;
	if (message[0]) {
		size_t n = strlen(message);

		snprintf(message + n, size - n,
			 "; until this is fixed and gpuward is restarted, everything is kept "
			 "in memory only");
		s->report.why_memory = strdup(message);
		atomic_store(&s->report.problem,
			     s->report.why_memory ? s->report.why_memory : "no memory");
	}
	return db_open(NULL, 0, &s->writer.db) == DB_OK ? 0 : -GW_E_NOMEM;
}

static int make_sentences(struct store *s)
{
	for (unsigned t = DB_OK + 1; t < DB_TROUBLES; t++) {
		char text[DB_PATH + 256];

		format_sentence(text, sizeof(text), failing[t], s->path);
		s->report.sentence[t] = strdup(text);
		if (!s->report.sentence[t])
			return -GW_E_NOMEM;
	}
	return 0;
}

static void store_init(struct store *s, uint64_t limit_bytes)
{
	s->writer.lock_fd = -1;
	s->limit_bytes = limit_bytes;
	pthread_mutex_init(&s->alone_lock, NULL);
	(void)mailbox_init(&s->box, 0);
	batch_init(&s->pending);
	batch_init(&s->front);
	batch_init(&s->writer.back);
}

static void store_destroy(struct store *s)
{
	for (unsigned i = 0; i < s->histories; i++)
		store_history_free(s->history[i]);
	for (unsigned i = 0; i < s->counts; i++) {
		free(s->count[i]->key);
		free(s->count[i]);
	}
	free(s->count);
	free(s->writer.changed);
	for (unsigned t = 0; t < DB_TROUBLES; t++)
		free(s->report.sentence[t]);
	free(s->report.why_memory);
	free(s->notice);
	batch_done(&s->pending);
	batch_done(&s->front);
	batch_done(&s->writer.back);
	db_close(s->read.db);
	db_close(s->writer.db);
	if (s->writer.lock_fd >= 0)
		close(s->writer.lock_fd);
	mailbox_done(&s->box);
	pthread_mutex_destroy(&s->alone_lock);
	free(s->path);
	free(s);
}

/* True if the file can become usable without an action of the user. */
static bool may_become_usable(const struct store *s, enum db_trouble t)
{
	struct stat st;

	return !unusable[t] && (t == DB_FULL || stat(s->path, &st) == 0);
}

static enum db_trouble open_or_begin(struct store *s, char *message, size_t size)
{
	enum db_trouble t = store_file_open(s, START_WAIT_MS);
	char aside[DB_PATH + 48];

	if (t == DB_CORRUPT && db_move_aside(s->path, aside, sizeof(aside)) == 0) {
		snprintf(message, size,
			 "%s was corrupt; it was moved to %s and a new file was created",
			 s->path, aside);
		t = store_file_open(s, START_WAIT_MS);
	}
	return t;
}

/* Opens the file. Success also includes a file that is not usable now, but may become usable
 * later. Returns 0, -GW_E_NOMEM, or -GW_E_IO with the reason in message. */
static int use_file(struct store *s, char *message, size_t size)
{
	enum db_trouble t = open_or_begin(s, message, size);
	int error = errno;

	if (t != DB_OK && !may_become_usable(s, t)) {
		if (unusable[t])
			format_sentence(message, size, unusable[t], s->path);
		errno = error;
		if (!unusable[t])
			file_failed(message, size, s->path, "written");
		return -GW_E_IO;
	}
	if (make_sentences(s) < 0)
		return -GW_E_NOMEM;
	if (t != DB_OK) {
		snprintf(message, size, "%s", s->report.sentence[t]);
		atomic_store(&s->report.problem, s->report.sentence[t]);
	}
	store_file_load(s);
	return mailbox_start(&s->box, STACK_BYTES, store_thread, NULL, s);
}

int store_open(const char *path, uint64_t limit_bytes, struct store **ret, char *message,
	       size_t size)
{
	struct store *s = calloc(1, sizeof(*s));
	int r = 0;

	message[0] = '\0';
	if (!s)
		return -GW_E_NOMEM;
	store_init(s, limit_bytes);
	s->count = calloc(STORE_KEYS, sizeof(struct counter *));
	s->writer.changed = calloc(STORE_KEYS, sizeof(struct counter *));
	s->path = path ? strdup(path) : NULL;
	if (!s->count || !s->writer.changed || (path && !s->path))
		r = -GW_E_NOMEM;
	if (r == 0)
		r = path ? use_file(s, message, size) : -GW_E_IO;
	if (r == -GW_E_IO)
		r = use_memory(s, message, size);
	if (r < 0)
		store_destroy(s);
	else
		*ret = s;
	return r;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	/* If the thread hangs, it may still use the memory, so nothing is freed; the process is
	 * about to exit. */
	if (mailbox_stop(&s->box, CLOSE_NS) != 0)
		return;
	if (s->path && s->writer.db) {
		db_close(s->read.db);
		s->read.db = NULL;
		sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
					  NULL);
	}
	store_destroy(s);
}
