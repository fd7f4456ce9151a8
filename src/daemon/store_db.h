/* store_db: the SQLite file: opening, its schema, what is wrong with it.
 *
 * Knows nothing of history and events.  A connection belongs to one thread. */
#ifndef GW_DAEMON_STORE_DB_H
#define GW_DAEMON_STORE_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#define DB_PATH 4096

enum db_trouble {
	DB_OK,
	DB_CORRUPT, /* move it aside and begin a new one */
	DB_NEWER,   /* not ours to touch: a later version's */
	DB_FOREIGN, /* not ours to touch: another program's */
	DB_SHARED,  /* not ours to touch: another gpuward's */
	DB_NO_FILE, /* a folder, a pipe, a device: who opens a pipe may wait for ever */
	DB_FULL,
	DB_READ_ONLY,
	DB_LOCKED, /* another program holds it */
	DB_MEMORY, /* none left */
	DB_OTHER,  /* input or output failed */
	DB_TROUBLES
};

/* Of an SQLite result code. */
enum db_trouble db_trouble(int rc);

/* Is something there that is no regular file?  Then the others give DB_NO_FILE, and it is not opened. */
bool db_is_no_file(const char *path);

/* Opens for writing, makes or migrates the tables, and looks at what is cheap to look at.  NULL:
 * in memory.  Waits at most wait_ms for one who holds it.  A file that has its tables is not written,
 * so that it opens on a full disk too.  *ret is NULL unless DB_OK. */
enum db_trouble db_open(const char *path, int wait_ms, sqlite3 **ret);
/* For reading beside the writer. */
enum db_trouble db_open_reader(const char *path, sqlite3 **ret);
/* For reading what cannot be opened for writing: the disk is full, or it is read-only.  No other
 * connection of this process may be open, or be opened meanwhile. */
enum db_trouble db_open_alone(const char *path, sqlite3 **ret);
void db_close(sqlite3 *db);

/* Prepared once and kept until db_close(): sql is a text that comes again.  NULL: it could not be.
 * Ready to bind; db_done() when it was stepped, so that it holds no lock. */
sqlite3_stmt *db_statement(sqlite3 *db, const char *sql);
void db_done(sqlite3_stmt *s);
/* Runs statements that give nothing, and are not kept; the result code. */
int db_run(sqlite3 *db, const char *sql);
/* First figure of the first row; otherwise when there is none. */
sqlite3_int64 db_number(sqlite3 *db, const char *sql, sqlite3_int64 otherwise);

/* Takes PATH.lock for this process, so that no two share a file.  A descriptor, -1 with errno, or
 * -2: another process holds it. */
int db_lock(const char *path);

/* Moves PATH (and its log) to PATH.corrupt-YYYYMMDD-HHMMSS, whose name goes to out.  0 or -1. */
int db_move_aside(const char *path, char *out, size_t size);

#endif
