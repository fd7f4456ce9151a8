/* store_db: opens the SQLite file, creates its schema and classifies its errors.
 *
 * The functions that read and write history and events are in other files. Only one thread may
 * use a connection. */
#ifndef GW_DAEMON_STORE_DB_H
#define GW_DAEMON_STORE_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#define DB_PATH 4096

enum db_trouble {
	DB_OK,
	DB_CORRUPT, /* The file is moved aside and a new one is created. */
	DB_NEWER,   /* A newer version wrote the file. The file is left unchanged. */
	DB_FOREIGN, /* The database of another program. It is left unchanged. */
	DB_SHARED,  /* Another gpuward uses the file. The file is left unchanged. */
	DB_NO_FILE, /* A directory, pipe or device. Opening a pipe could block forever. */
	/* Other users can change the file, and with it the guard's journal. */
	DB_UNSAFE,
	DB_FULL,
	DB_READ_ONLY,
	DB_LOCKED, /* Another program holds a lock on the file. */
	DB_MEMORY, /* Out of memory. */
	DB_OTHER,  /* Input or output failed. */
	DB_TROUBLES
};

/* Classifies an SQLite result code. */
enum db_trouble db_trouble(int rc);

/* True if the path exists but is not a regular file. Such a path is not opened: DB_NO_FILE. */
bool db_is_no_file(const char *path);

/* Opens the file for writing, creates or migrates the tables, and makes cheap checks. If path
 * is NULL, the database is in memory. Waits at most wait_ms for another process. If the file
 * already has its tables, nothing is written to it, so that the file can be opened on a full
 * disk too. *ret is NULL unless DB_OK is returned. */
enum db_trouble db_open(const char *path, int wait_ms, sqlite3 **ret);
/* Opens a file for reading while a writer has it open. */
enum db_trouble db_open_reader(const char *path, sqlite3 **ret);
/* Opens, only for reading, a file that cannot be opened for writing, because the disk is full
 * or the file is read-only. No other connection of this process may be open at the same
 * time. */
enum db_trouble db_open_alone(const char *path, sqlite3 **ret);
void db_close(sqlite3 *db);

/* Prepares a statement once and keeps it until db_close(); sql must be a string constant.
 * Returns NULL on failure. Call db_done() after stepping, so that the statement holds no
 * lock. */
sqlite3_stmt *db_statement(sqlite3 *db, const char *sql);
void db_done(sqlite3_stmt *s);
/* Runs statements without results. Returns the SQLite result code. */
int db_run(sqlite3 *db, const char *sql);
/* Returns the first number of the first row, or `otherwise` if there is no row. */
sqlite3_int64 db_number(sqlite3 *db, const char *sql, sqlite3_int64 otherwise);

/* Locks PATH.lock for this process, so that no two processes use the same file. Returns a
 * descriptor, -1 with errno, or -2 if another process holds the lock. */
int db_lock(const char *path);
/* Returns false if the lock file was removed. Another process could then lock a new lock
 * file. */
bool db_lock_is_current(int fd, const char *path);

/* Moves PATH and its log to PATH.corrupt-YYYYMMDD-HHMMSS and writes the new name to out.
 * Returns 0 or -1. */
int db_move_aside(const char *path, char *out, size_t size);

#endif
