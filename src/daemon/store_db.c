#include "store_db.h"

#include "base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define APPLICATION_ID 0x47505744 /* "GPWD" */
#define WRITE_WAIT_MS  2000
#define ALONE_WAIT_MS  100
#define TEXT(x)        TEXT_(x)
#define TEXT_(x)       #x

/* Row n migrates a file from version n to version n + 1. New versions add rows; existing rows
 * never change. */
static const char *const migrations[] = {
	/* Table history: tier is 0 for seconds, 1 for minutes, 2 for hours; begin is the wall
	 * time in ms; data is a block (store_block.h). The table has a separate index and is
	 * not WITHOUT ROWID. So rows are stored in order of arrival, which fills each page. In
	 * a clustered index, blobs of 1 kB would leave half of each page empty. */
	"CREATE TABLE gpu(id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE);"
	"CREATE TABLE history(tier INTEGER NOT NULL, gpu INTEGER NOT NULL,"
	" begin INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(tier, gpu, begin));"
	"CREATE TABLE count(key TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE event(id INTEGER PRIMARY KEY AUTOINCREMENT, wall_ns INTEGER NOT NULL,"
	" kind TEXT NOT NULL, uuid TEXT, severity TEXT NOT NULL, text TEXT NOT NULL);"
	"CREATE TABLE document(seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,"
	" id TEXT NOT NULL, json TEXT NOT NULL, UNIQUE(kind, id));",
	"ALTER TABLE event ADD COLUMN simulated INTEGER NOT NULL DEFAULT 0;",
};

/* Settings that are made only for a new file. Setting auto_vacuum writes to the file, which
 * would fail for an existing file on a full disk. */
static const char new_settings[] = "PRAGMA page_size=4096;"
				   "PRAGMA auto_vacuum=INCREMENTAL;";

/* Settings that are made for each connection. The write-ahead log is checkpointed every 64
 * pages, so that the log stays small. */
static const char settings[] = "PRAGMA journal_mode=WAL;"
			       "PRAGMA synchronous=NORMAL;"
			       "PRAGMA cache_size=-96;"
			       "PRAGMA mmap_size=0;"
			       "PRAGMA temp_store=MEMORY;"
			       "PRAGMA wal_autocheckpoint=64;"
			       "PRAGMA journal_size_limit=262144;";

enum db_trouble db_trouble(int rc)
{
	if (rc == SQLITE_IOERR_SHMSIZE)
		return DB_FULL; /* There is no space for the index of the write-ahead log. */
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE: return DB_OK;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB: return DB_CORRUPT;
	case SQLITE_FULL: return DB_FULL;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH: return DB_READ_ONLY;
	case SQLITE_BUSY:
	case SQLITE_LOCKED: return DB_LOCKED;
	case SQLITE_NOMEM: return DB_MEMORY;
	default: return DB_OTHER;
	}
}

int db_run(sqlite3 *db, const char *sql)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* Uses a statement from SQLite's list of prepared statements, or prepares a new statement if
 * the list does not have it. The list is short. */
sqlite3_stmt *db_statement(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s = sqlite3_next_stmt(db, NULL);

	while (s && (sqlite3_stmt_busy(s) || strcmp(sqlite3_sql(s), sql) != 0))
		s = sqlite3_next_stmt(db, s);
	if (!s)
		sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL);
	return s;
}

void db_done(sqlite3_stmt *s)
{
	if (!s)
		return;
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
}

static void forget_statements(sqlite3 *db)
{
	sqlite3_stmt *s;

	while ((s = sqlite3_next_stmt(db, NULL)))
		sqlite3_finalize(s);
}

sqlite3_int64 db_number(sqlite3 *db, const char *sql, sqlite3_int64 otherwise)
{
	sqlite3_stmt *s = db_statement(db, sql);
	sqlite3_int64 n = otherwise;

	if (s && sqlite3_step(s) == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_NULL)
		n = sqlite3_column_int64(s, 0);
	db_done(s);
	return n;
}

static int migrate(sqlite3 *db, sqlite3_int64 version)
{
	int rc = db_run(db, "BEGIN IMMEDIATE;");
	char end[64];

	for (; rc == SQLITE_OK && version < (sqlite3_int64)COUNT(migrations); version++)
		rc = db_run(db, migrations[version]);
	if (rc != SQLITE_OK)
		return rc;
	snprintf(end, sizeof(end), "PRAGMA user_version=%d;", (int)COUNT(migrations));
	rc = db_run(db, end);
	if (rc == SQLITE_OK)
		rc = db_run(db, "PRAGMA application_id=" TEXT(APPLICATION_ID) "; COMMIT;");
	return rc;
}

/* Checks the small tables completely. Does not check the history, which may have a gigabyte;
 * the history is checked when it is read. */
static bool is_sound(sqlite3 *db)
{
	static const char *const checks[] = { "PRAGMA quick_check(count)",
					      "PRAGMA quick_check(gpu)",
					      "PRAGMA quick_check(event)" };

	for (size_t i = 0; i < COUNT(checks); i++) {
		sqlite3_stmt *s = db_statement(db, checks[i]);
		bool ok = s && sqlite3_step(s) == SQLITE_ROW &&
			  strcmp((const char *)sqlite3_column_text(s, 0), "ok") == 0;

		db_done(s);
		if (!ok)
			return false;
	}
	return true;
}

/* Checks which program and version wrote the file. Reads the first page, so a file that is not
 * a database fails here. */
static enum db_trouble check_owner(sqlite3 *db, sqlite3_int64 *ret_version)
{
	int rc = db_run(db, "SELECT count(*) FROM sqlite_master");
	sqlite3_int64 tables;

	if (rc != SQLITE_OK)
		return db_trouble(rc);
	*ret_version = db_number(db, "PRAGMA user_version", 0);
	tables = db_number(db, "SELECT count(*) FROM sqlite_master", 0);
	if (tables && db_number(db, "PRAGMA application_id", 0) != APPLICATION_ID)
		return DB_FOREIGN;
	if (*ret_version < 0) /* No version of gpuward writes such a file. */
		return DB_CORRUPT;
	return *ret_version > (sqlite3_int64)COUNT(migrations) ? DB_NEWER : DB_OK;
}

static enum db_trouble prepare_file(sqlite3 *db)
{
	sqlite3_int64 version = 0;
	enum db_trouble t = check_owner(db, &version);
	int rc;

	if (t != DB_OK)
		return t;
	rc = version == 0 ? db_run(db, new_settings) : SQLITE_OK;
	if (rc == SQLITE_OK)
		rc = db_run(db, settings);
	if (rc == SQLITE_OK && version < (sqlite3_int64)COUNT(migrations))
		rc = migrate(db, version);
	if (rc != SQLITE_OK)
		return db_trouble(rc);
	return version == 0 || is_sound(db) ? DB_OK : DB_CORRUPT;
}

static int open_with(const char *path, int flags, int wait_ms, sqlite3 **ret)
{
	int rc = sqlite3_open_v2(path ? path : ":memory:", ret, flags | SQLITE_OPEN_NOMUTEX,
				 NULL);

	if (rc == SQLITE_OK) {
		sqlite3_busy_timeout(*ret, wait_ms);
		/* SQLite finds the log by its name. If a connection is closed after its file
		 * was moved aside, the log with this name belongs to the new file, and the
		 * connection must not delete it. */
		sqlite3_db_config(*ret, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
		sqlite3_extended_result_codes(*ret, 1);
	}
	return rc;
}

bool db_is_no_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

enum db_trouble db_open(const char *path, int wait_ms, sqlite3 **ret)
{
	sqlite3 *db = NULL;
	enum db_trouble t;

	*ret = NULL;
	if (path && db_is_no_file(path))
		return DB_NO_FILE;
	t = db_trouble(
		open_with(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, wait_ms, &db));
	if (t == DB_OK) {
		t = prepare_file(db);
		/* The statements of prepare_file() are not used again. */
		forget_statements(db);
	}
	/* If a file is not writable, SQLite either opens it read-only without an error, or
	 * fails because SQLite may not create the log. */
	if ((t == DB_OK || t == DB_OTHER) && path && sqlite3_db_readonly(db, "main") == 1)
		t = DB_READ_ONLY;
	if (t != DB_OK) {
		sqlite3_close(db);
		db = NULL;
	} else {
		sqlite3_busy_timeout(db, WRITE_WAIT_MS);
	}
	*ret = db;
	return t;
}

enum db_trouble db_open_reader(const char *path, sqlite3 **ret)
{
	int rc;

	*ret = NULL;
	if (db_is_no_file(path))
		return DB_NO_FILE;
	rc = open_with(path, SQLITE_OPEN_READWRITE, WRITE_WAIT_MS, ret);
	if (rc == SQLITE_OK)
		rc = db_run(*ret, "PRAGMA cache_size=-96; PRAGMA mmap_size=0;"
				  "PRAGMA temp_store=MEMORY; PRAGMA query_only=1;"
				  "PRAGMA wal_autocheckpoint=0;");
	if (rc != SQLITE_OK) {
		sqlite3_close(*ret);
		*ret = NULL;
	}
	return db_trouble(rc);
}

/* True if the write-ahead log is empty. Only then is the file complete without the log. */
static bool has_empty_log(const char *path)
{
	char name[DB_PATH + 8];
	struct stat st;

	snprintf(name, sizeof(name), "%s-wal", path);
	return stat(name, &st) != 0 ? errno == ENOENT : st.st_size == 0;
}

/* Opens the file with immutable=1, which promises SQLite that the file does not change. */
static int open_immutable(const char *path, sqlite3 **ret)
{
	char uri[3 * DB_PATH + 32] = "file:";
	size_t n = strlen(uri);

	for (; *path && n < 3 * DB_PATH; path++)
		n += (size_t)snprintf(uri + n, sizeof(uri) - n,
				      strchr("%?#", *path) ? "%%%02x" : "%c", *path);
	snprintf(uri + n, sizeof(uri) - n, "?immutable=1");
	return open_with(uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, 0, ret);
}

static int open_exclusive(const char *path, sqlite3 **ret)
{
	int rc = open_with(path, SQLITE_OPEN_READWRITE, ALONE_WAIT_MS, ret);

	/* Exclusive mode keeps the index of the log in memory. Otherwise SQLite could not open
	 * the file on a full disk. */
	return rc == SQLITE_OK ? db_run(*ret, "PRAGMA locking_mode=EXCLUSIVE") : rc;
}

static int open_read_only(const char *path, sqlite3 **ret)
{
	return open_with(path, SQLITE_OPEN_READONLY, ALONE_WAIT_MS, ret);
}

enum db_trouble db_open_alone(const char *path, sqlite3 **ret)
{
	static int (*const ways[])(const char *, sqlite3 **) = { open_exclusive, open_read_only,
								 open_immutable };
	enum db_trouble t = DB_OTHER;

	*ret = NULL;
	if (db_is_no_file(path))
		return DB_NO_FILE;
	for (size_t i = 0; i < COUNT(ways); i++) {
		sqlite3_int64 version;
		sqlite3 *db = NULL;

		/* A locked file may have data in its log, so the file alone is not complete. */
		if (ways[i] == open_immutable && (t == DB_LOCKED || !has_empty_log(path)))
			break;
		t = db_trouble(ways[i](path, &db));
		if (t == DB_OK)
			t = check_owner(db, &version);
		if (t == DB_OK) {
			db_run(db, "PRAGMA cache_size=-96; PRAGMA temp_store=MEMORY;"
				   "PRAGMA query_only=1;");
			*ret = db;
			return DB_OK;
		}
		db_close(db);
	}
	return t;
}

void db_close(sqlite3 *db)
{
	if (!db)
		return;
	forget_statements(db);
	sqlite3_close(db);
}

int db_lock(const char *path)
{
	char name[DB_PATH + 8];
	int fd;

	snprintf(name, sizeof(name), "%s.lock", path);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) { /* A lock file that is not writable can still be locked. */
		int e = errno;

		fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		errno = e;
	}
	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		int e = errno;

		close(fd);
		errno = e;
		return e == EWOULDBLOCK ? -2 : -1;
	}
	return fd;
}

bool db_lock_is_current(int fd, const char *path)
{
	char name[DB_PATH + 8];
	struct stat have, named;

	snprintf(name, sizeof(name), "%s.lock", path);
	return fstat(fd, &have) == 0 && stat(name, &named) == 0 &&
	       have.st_dev == named.st_dev && have.st_ino == named.st_ino;
}

static void move_part(const char *path, const char *to, const char *part)
{
	char from_name[DB_PATH + 8], to_name[DB_PATH + 48];

	snprintf(from_name, sizeof(from_name), "%s%s", path, part);
	snprintf(to_name, sizeof(to_name), "%s%s", to, part);
	(void)rename(from_name, to_name);
}

int db_move_aside(const char *path, char *out, size_t size)
{
	time_t now = time(NULL);
	char stamp[32], name[DB_PATH + 8];
	struct tm tm;
	struct stat st;

	gmtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &tm);
	snprintf(out, size, "%s.corrupt-%s", path, stamp);
	for (unsigned i = 2; stat(out, &st) == 0 && i < 100; i++)
		snprintf(out, size, "%s.corrupt-%s-%u", path, stamp, i);
	if (rename(path, out) != 0)
		return -1;
	move_part(path, out, "-wal"); /* A repair needs the log. */
	snprintf(name, sizeof(name), "%s-shm", path);
	unlink(name);
	return 0;
}
