/* store_parts: shared by the files of the store; no other file includes it.
 *
 * store.c          start and stop, state, counts; opens the file and loads its contents
 *   store_queue.c    the queue to the thread: records, batches, events and documents
 *   store_write.c    the thread: writes batches, deletes old rows, handles failures
 *   store_history.c  readings: rows and roll-ups in memory
 *   store_query.c    points from memory, queue and file
 *   store_block.c    a row as bytes
 *   store_db.c       the SQLite file
 *
 * A batch is a list of records in a buffer. store_commit() moves it from `pending`, which
 * belongs to the caller, to `front`, which the lock protects. The thread moves it from there to
 * `writer.back`. The thread does not change it until it is in the file, so others may read it
 * under the lock. If writing fails, records of history are dropped; other records are kept and
 * retried. */
#ifndef GW_DAEMON_STORE_PARTS_H
#define GW_DAEMON_STORE_PARTS_H

#include "store.h"
#include "store_block.h"
#include "store_db.h"

#include "base/mailbox.h"

#include <stdatomic.h>
#include <sys/types.h>

#define STORE_EVENTS    10000 /* maximum number of events in the file */
#define STORE_RESERVE   1000  /* number of event ids reserved in advance */
#define STORE_DOCUMENTS 1000  /* maximum number of documents per kind in the file */
#define STORE_KEYS      8192  /* maximum number of counts */
#define STORE_GPUS      256
#define STORE_UUID      96

enum record_kind { RECORD_HISTORY, RECORD_EVENT, RECORD_KEEP, RECORD_FORGET };

#define RECORD_TEXTS 4

struct record {
	uint32_t size; /* total size in the buffer */
	uint32_t kind;
	/* history: tier, begin_ms; event: id, wall_ns; document: 1 if it need not survive a
	 * power failure, number of documents of its kind that are kept */
	uint64_t a, b;
	uint64_t simulated;             /* event: 1 if the GPUs were simulated */
	const char *text[RECORD_TEXTS]; /* NULL: none; NUL-terminated */
	uint32_t length[RECORD_TEXTS];
};

/* Adds the whole record or nothing. Returns false if there is no space. */
bool record_add(struct buf *b, const struct record *r);
/* Reads the record at *at and moves *at to the next one. Returns false at the end. */
bool record_next(const struct buf *b, size_t *at, struct record *ret);

enum part { PART_HISTORY, PART_DURABLE, PARTS };
struct batch {
	struct buf part[PARTS];
};
void batch_init(struct batch *b);
void batch_done(struct batch *b);

enum { TIER_READINGS, TIER_MINUTES, TIER_HOURS, TIERS };
enum { FIGURE_MEAN, FIGURE_MIN, FIGURE_MAX, FIGURE_COUNT, FIGURES };

struct tier {
	uint64_t unit_ms; /* unit of block offsets: 1 ms, or the span of a bucket */
	uint64_t row_ms;  /* a row never crosses a multiple of this */
	unsigned moments; /* maximum number of moments per row */
	unsigned figures; /* number of figures per quantity */
	uint64_t kept_ms; /* time for which rows are kept */
};
extern const struct tier store_tiers[TIERS];

struct sum {
	double sum, min, max;
	uint64_t count;
};

struct history {
	char uuid[STORE_UUID];
	uint64_t last_ms;        /* wall time of the latest reading; 0: none */
	bool fed;                /* a reading was added since the start */
	unsigned refused;        /* consecutive readings that went back in time */
	uint64_t refused_ms;     /* time of the last reading that went back in time */
	uint64_t saved_ms;       /* time at which the row of readings was last queued */
	struct block row[TIERS]; /* current rows */
	bool ended[TIERS];       /* the bucket of last_ms is already in the row */
	/* The open buckets of last_ms. The open hour contains only complete minutes. */
	struct sum open[TIERS][VIEW_HISTORIES];
};

struct counter {
	char *key;
	double start;     /* value in the file at the start */
	double pending;   /* last value that the caller set, plus `base` */
	double committed; /* value at the last store_commit(); negative: none */
	double base; /* value in the file that the caller has not added yet; see store_news() */
	double writing; /* value in the batch that is being written; negative: none */
	double written; /* value in the file; negative: it must be written */
};

/* Connections for reading. Used by the caller's thread only. */
struct store_readers {
	sqlite3 *db;
	unsigned generation;  /* number of the file that db has open; see store.generation */
	sqlite3 *alone;       /* for reading a file that cannot be written */
	unsigned alone_depth; /* number of queries that use `alone` */
};

/* Used by the store's thread only; for a store in memory, by the caller's thread. */
struct store_writer {
	sqlite3 *db;
	int lock_fd;
	ino_t log_inode;     /* of the write-ahead log at the last write; 0: unknown */
	uint64_t horizon_ms; /* rows are old relative to this wall time; see HORIZON_MS */
	struct batch back;
	struct counter **changed; /* counts in the current batch */
	unsigned changes;
};

/* How far the thread has written. The lock of the mailbox protects it. */
struct store_progress {
	bool retry;         /* write now, without waiting for the end of the back-off */
	bool failing;       /* the last write attempt failed */
	uint64_t attempts;  /* number of write attempts */
	uint64_t committed; /* number of batches passed to the thread */
	uint64_t taken;     /* value of `committed` at the last attempt */
	uint64_t refused;   /* value of `taken` at the last attempt that failed */
	uint64_t tried;     /* number of batches in the file if the last attempt succeeds */
	uint64_t written;   /* number of batches that are in the file or were dropped */
};

/* What the store reports about itself, to any thread. */
struct store_report {
	_Atomic(const char *) state;
	/* made at the start, so that `state` always points to a valid string */
	char *sentence[DB_TROUBLES];
	char *why_memory;
	_Atomic uint64_t bytes, dropped;
};

struct store {
	/* Used by the caller's thread only. */
	char *path;  /* NULL: in memory; read-only after the start */
	bool shared; /* in memory because another gpuward used the file */
	uint64_t limit_bytes;
	struct store_readers read;
	struct batch pending;
	struct history *history[STORE_GPUS];
	unsigned histories;
	uint64_t last_event;

	struct store_writer writer;

	/* Held while the file is opened for writing, or read with db_open_alone(). */
	pthread_mutex_t alone_lock;
	_Atomic bool usable; /* the file is open for writing */
	_Atomic bool known;  /* the caller knows the contents of the file */

	/* the lock of the mailbox protects the members from here to `notice` */
	struct mailbox box;
	struct store_progress progress;
	bool loaded;         /* the counts include those of the file */
	uint64_t file_event; /* last event of the file */
	bool corrupt;        /* a reader found corruption: the thread starts a new file */
	struct batch front;
	struct counter **count; /* sorted by key */
	unsigned counts;
	char *notice; /* for store_notice() */

	struct store_report report;
	_Atomic unsigned generation; /* number of the file; increases with each new file */
};

/* store_queue.c */

/* store_write.c */
/* Writes what was committed. Returns true if it is in the file. */
bool store_write(struct store *s);
void store_thread(void *arg);

/* store.c: the file */
/* Takes the file lock, creates missing files and opens s->writer.db. If a system call failed,
 * errno gives the cause of DB_READ_ONLY, DB_FULL or DB_OTHER. */
enum db_trouble store_file_open(struct store *s, int wait_ms);
/* Opens the file again and loads its contents. If the file cannot be written, only loads the
 * contents. Called on the store's thread. */
enum db_trouble store_file_open_again(struct store *s);
/* Returns the connection for reading, or NULL. Call store_reader_done() after use. */
sqlite3 *store_reader(struct store *s);
void store_reader_done(struct store *s);
/* Checks, after a failed read, whether the file is corrupt. */
void store_read_failed(struct store *s, int rc);

/* store_history.c: returns the history of a GPU and creates it if it is missing; NULL: out of
 * memory, or too many GPUs. */
struct history *store_history_of(struct store *s, const char *uuid);
void store_history_free(struct history *h);
/* Makes a row from the open bucket. Returns false if there is none. */
bool store_open_bucket(const struct history *h, unsigned tier, struct block *ret);

/* store_query.c: returns the start time of the first row of a tier in queue and file; if last
 * is true, of the last row that starts at until_ms or before. 0: there is no such row. */
uint64_t store_edge(struct store *s, const char *uuid, unsigned tier, uint64_t until_ms,
		    bool last);
/* Calls each for every row of a tier that may have moments in [from_ms, to_ms], oldest first,
 * until each returns false. Rows come from memory (h, unless NULL), queue and file. Returns
 * false if the file could not be read. */
typedef bool store_row_fn(void *arg, const struct block *row);
bool store_rows(struct store *s, const struct history *h, const char *uuid, unsigned tier,
		uint64_t from_ms, uint64_t to_ms, store_row_fn *each, void *arg);

#endif
