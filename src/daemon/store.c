#include "store_parts.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY_LIMIT (4u << 20) /* of the history where there is no file */
#define CLOSE_NS     NS_PER_S
#define STACK_BYTES  (256u << 10)

/* ---- state ---- */

/* Of a file that is there and cannot be written now. */
static const char *const failing[DB_TROUBLES] = {
	[DB_OK] = "ok",
	[DB_CORRUPT] = "%s is corrupt and could not be moved aside: nothing is kept",
	[DB_NEWER] = "%s was replaced by that of a newer gpuward: nothing is kept",
	[DB_FOREIGN] = "%s was replaced by a database of another program: nothing is kept",
	[DB_FULL] =
		"%s cannot be written, the disk is full: nothing is kept until there is room",
	[DB_READ_ONLY] =
		"%s cannot be written, it is read-only: nothing is kept until it can be",
	[DB_MEMORY] =
		"%s cannot be written, there is no memory: nothing is kept until there is",
	[DB_OTHER] =
		"%s cannot be written (input or output error): nothing is kept; see the disk",
};

/* Of one that was not opened. */
static const char *const unusable[DB_TROUBLES] = {
	[DB_CORRUPT] = "%s is corrupt and could not be moved aside; remove it, or set [history]"
		       " path to another file",
	[DB_NEWER] =
		"%s was written by a newer gpuward and is left alone; use that version, or set"
		" [history] path to another file",
	[DB_FOREIGN] =
		"%s is a database of another program and is left alone; set [history] path"
		" to another file",
	[DB_FULL] = "%s cannot be written: the disk is full; make room and start again",
	[DB_READ_ONLY] =
		"%s cannot be written: it is read-only; allow it, or set [history] path to"
		" another file",
	[DB_MEMORY] = "%s cannot be opened: there is no memory",
	[DB_OTHER] =
		"%s cannot be opened; look at its permissions and at the disk, or set [history]"
		" path to another file",
};

const char *store_state(struct store *s)
{
	return atomic_load(&s->state);
}

uint64_t store_bytes(struct store *s)
{
	return atomic_load(&s->bytes);
}

uint64_t store_dropped(struct store *s)
{
	return atomic_load(&s->dropped);
}

bool store_notice(struct store *s, char *out, size_t size)
{
	char *text;

	pthread_mutex_lock(&s->lock);
	text = s->notice;
	s->notice = NULL;
	pthread_mutex_unlock(&s->lock);
	if (!text)
		return false;
	snprintf(out, size, "%s", text);
	free(text);
	return true;
}

/* ---- reading ---- */

sqlite3 *store_reader(struct store *s)
{
	unsigned generation = atomic_load(&s->generation);

	if (!s->path)
		return s->db;
	if (s->reader && s->reader_generation == generation)
		return s->reader;
	db_close(s->reader);
	s->reader = NULL;
	s->reader_generation = generation;
	db_open_reader(s->path, &s->reader);
	return s->reader;
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

/* ---- counts ---- */

/* Where key is, or would be. */
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

/* Under the lock, once there is a thread. */
static struct count *get_count(struct store *s, const char *key)
{
	bool there;
	unsigned at = find_count(s, key, &there);
	struct count *c;

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
	memmove(&s->count[at + 1], &s->count[at], (s->counts - at) * sizeof(struct count *));
	s->count[at] = c;
	s->counts++;
	return c;
}

double store_count(struct store *s, const char *key)
{
	bool there;
	unsigned at = find_count(s, key, &there);

	return there ? s->count[at]->start : 0;
}

void store_set_count(struct store *s, const char *key, double value)
{
	struct count *c;

	pthread_mutex_lock(&s->lock);
	c = get_count(s, key);
	if (!c)
		atomic_fetch_add(&s->dropped, 1);
	else if (value > c->pending) /* false for NAN */
		c->pending = value;
	pthread_mutex_unlock(&s->lock);
}

static int load_counts(struct store *s)
{
	sqlite3_stmt *q = db_statement(s->db, "SELECT key, value FROM count");
	int rc;

	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		const char *key = (const char *)sqlite3_column_text(q, 0);
		struct count *c = key ? get_count(s, key) : NULL;

		if (!c)
			continue;
		c->start = c->pending = sqlite3_column_double(q, 1);
		c->committed = c->writing = c->written = c->start;
	}
	db_done(q);
	return rc;
}

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

/* For the owner alone, and with the reason where it cannot be: SQLite would give none. */
static int make_file(const char *path, char *message, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd < 0)
		return file_failed(message, size, path, "written");
	close(fd);
	return 0;
}

/* sentence has one %s. */
static void say(char *out, size_t size, const char *sentence, const char *path)
{
	const char *mark = strstr(sentence, "%s");

	if (mark)
		snprintf(out, size, "%.*s%s%s", (int)(mark - sentence), sentence, path,
			 mark + 2);
	else
		snprintf(out, size, "%s", sentence);
}

/* Opens the file.  0, or why not in message. */
static int open_file(struct store *s, const char *path, char *message, size_t size)
{
	char aside[DB_PATH + 48];
	enum db_trouble t;

	make_folder(path);
	s->lock_fd = db_lock(path);
	if (s->lock_fd == -2)
		say(message, size,
		    "%s is in use by another gpuward; stop it, or set [history] path to "
		    "another file",
		    path);
	else if (s->lock_fd < 0)
		file_failed(message, size, path, "written");
	if (s->lock_fd < 0 || make_file(path, message, size) < 0)
		return -GW_E_IO;
	t = db_open(path, &s->db);
	if (t == DB_CORRUPT && db_move_aside(path, aside, sizeof(aside)) == 0) {
		snprintf(message, size,
			 "%s was corrupt; it was moved to %s and a new one was begun", path,
			 aside);
		if (make_file(path, message, size) < 0)
			return -GW_E_IO;
		t = db_open(path, &s->db);
	}
	if (t != DB_OK)
		say(message, size, unusable[t], path);
	return t == DB_OK ? 0 : -GW_E_IO;
}

static int use_memory(struct store *s, char *message, size_t size)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
	if (s->limit_bytes > MEMORY_LIMIT)
		s->limit_bytes = MEMORY_LIMIT;
	if (message[0]) {
		size_t n = strlen(message);

		snprintf(message + n, size - n, "; until then all is in memory alone");
		s->why_memory = strdup(message);
		atomic_store(&s->state, s->why_memory ? s->why_memory : "no memory");
	}
	return db_open(NULL, &s->db) == DB_OK ? 0 : -GW_E_NOMEM;
}

static int make_sentences(struct store *s)
{
	for (unsigned t = 0; t < DB_TROUBLES; t++) {
		char text[DB_PATH + 256];

		say(text, sizeof(text), failing[t], s->path);
		s->sentence[t] = strdup(text);
		if (!s->sentence[t])
			return -GW_E_NOMEM;
	}
	return 0;
}

static void init(struct store *s, uint64_t limit_bytes)
{
	pthread_condattr_t attr;

	s->lock_fd = -1;
	s->limit_bytes = limit_bytes;
	atomic_store(&s->state, "ok");
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->work, &attr);
	pthread_cond_init(&s->done, &attr);
	pthread_condattr_destroy(&attr);
	batch_init(&s->pending);
	batch_init(&s->front);
	batch_init(&s->back);
}

static int start(struct store *s)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	r = pthread_create(&s->thread, &attr, store_thread, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	s->threaded = r == 0;
	return r == 0 ? 0 : -GW_E_NOMEM;
}

static void destroy(struct store *s)
{
	for (unsigned i = 0; i < s->histories; i++)
		store_history_free(s->history[i]);
	for (unsigned i = 0; i < s->counts; i++) {
		free(s->count[i]->key);
		free(s->count[i]);
	}
	free(s->count);
	free(s->changed);
	for (unsigned t = 0; t < DB_TROUBLES; t++)
		free(s->sentence[t]);
	free(s->why_memory);
	free(s->notice);
	batch_done(&s->pending);
	batch_done(&s->front);
	batch_done(&s->back);
	db_close(s->reader);
	db_close(s->db);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

int store_open(const char *path, uint64_t limit_bytes, struct store **ret, char *message,
	       size_t size)
{
	struct store *s = calloc(1, sizeof(*s));
	int r = 0;

	message[0] = '\0';
	if (!s)
		return -GW_E_NOMEM;
	init(s, limit_bytes);
	s->count = calloc(STORE_KEYS, sizeof(struct count *));
	s->changed = calloc(STORE_KEYS, sizeof(struct count *));
	if (!s->count || !s->changed)
		r = -GW_E_NOMEM;
	if (r == 0 && path && open_file(s, path, message, size) == 0) {
		s->path = strdup(path);
		r = s->path ? make_sentences(s) : -GW_E_NOMEM;
	} else if (r == 0) {
		r = use_memory(s, message, size);
	}
	if (r == 0) {
		load_counts(s);
		s->last_event = (uint64_t)db_number(
			s->db, "SELECT seq FROM sqlite_sequence WHERE name='event'", 0);
	}
	if (r == 0 && s->path)
		r = start(s);
	if (r < 0)
		destroy(s);
	else
		*ret = s;
	return r;
}

/* ---- closing ---- */

/* False: it hangs in a write, for as long as the disk does. */
static bool stop(struct store *s)
{
	struct timespec until;
	bool ended;

	store_deadline(&until, CLOSE_NS);
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->work);
	while (!s->ended)
		if (pthread_cond_timedwait(&s->done, &s->lock, &until) == ETIMEDOUT)
			break;
	ended = s->ended;
	pthread_mutex_unlock(&s->lock);
	if (ended)
		pthread_join(s->thread, NULL);
	else
		pthread_detach(s->thread);
	return ended;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	/* What a thread still uses is left to it: the process is about to end. */
	if (s->threaded && !stop(s))
		return;
	if (s->path && s->db) {
		db_close(s->reader);
		s->reader = NULL;
		sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	}
	destroy(s);
}
