/* store_parts: shared by the files of the store; no other file of src includes it.
 *
 *   store.c          start and stop, state, counts; opens the file and loads its counts
 *   store_queue.c    the queue to the thread: records, batches, events and documents
 *   store_write.c    the thread: writes batches, deletes old rows, handles failures
 *   store_history.c  readings: rows and roll-ups in memory
 *   store_query.c    points from memory, queue and file
 *   store_block.c    a row as bytes
 *   store_db.c       the SQLite file
 *
 * A batch is a list of records in a buffer. store_commit() moves the batch from `pending`,
 * which belongs to the caller, to `front`, which the lock protects. The thread moves the batch
 * to `writer.back`. It does not change the batch there until the batch is in the file, so other
 * threads may read the batch under the lock. If writing fails, records of history are dropped;
 * all other records are written again later. */
#ifndef GW_DAEMON_STORE_PARTS_H
#define GW_DAEMON_STORE_PARTS_H

#include "store.h"
#include "store_block.h"
#include "store_db.h"

#include "base/mailbox.h"

#include <stdatomic.h>
#include <sys/types.h>

#define STORE_EVENTS    10000 /* Maximum number of events in the file. */
#define STORE_RESERVE   1000  /* Number of event ids reserved in advance. */
#define STORE_DOCUMENTS 1000  /* Maximum number of documents per kind in the file. */
#define STORE_KEYS      8192  /* Maximum number of counts. */
#define STORE_GPUS      256
#define STORE_UUID      96

enum record_kind { RECORD_HISTORY, RECORD_EVENT, RECORD_KEEP, RECORD_FORGET };

#define RECORD_TEXTS 4

/* The meaning of a, b and text depends on the kind:
 *   history   a: tier; b: begin_ms; text: UUID, encoded block
 *   event     a: id; b: wall_ns; text: kind, UUID, severity, sentence
 *   document  a: 1 if it need not survive a power failure; b: maximum number of documents of
 *             its kind; text: kind, id, JSON */
struct record {
	uint32_t size; /* Total size in the buffer. */
	uint32_t kind;
	uint64_t a, b;
	uint64_t simulated;             /* For an event: 1 if the GPUs were simulated. */
	const char *text[RECORD_TEXTS]; /* Each ends with NUL. NULL if there is none. */
	uint32_t length[RECORD_TEXTS];
};

/* Adds the whole record, or nothing if the record does not fit. Returns false if there is no
 * space. */
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
	uint64_t unit_ms; /* Unit of block offsets: 1 ms, or the span of a bucket. */
	uint64_t row_ms;  /* A row never crosses a multiple of this. */
	unsigned moments; /* Maximum number of moments per row. */
	unsigned figures; /* Number of figures per quantity. */
	uint64_t kept_ms; /* Time for which rows are kept. */
};
extern const struct tier store_tiers[TIERS];

struct sum {
	double sum, min, max;
	uint64_t count;
};

struct history {
	char uuid[STORE_UUID];
	uint64_t last_ms;        /* Wall time of the latest reading. 0 if there is none. */
	bool fed;                /* A reading was added since the start. */
	unsigned refused;        /* Number of consecutive readings that went back in time. */
	uint64_t refused_ms;     /* Time of the last reading that went back in time. */
	uint64_t saved_ms;       /* Time at which the row of readings was last queued. */
	struct block row[TIERS]; /* Current rows. */
	bool ended[TIERS];       /* The bucket that contains last_ms is already in the row. */
	/* The open buckets that contain last_ms. The open hour has only complete minutes. */
	struct sum open[TIERS][VIEW_HISTORIES];
};

struct counter {
	char *key;
	double start;     /* Value in the file when the file was read. */
	double pending;   /* The last value that the caller set, plus `base`. */
	double committed; /* Value at the last store_commit(). Negative if there was none. */
	/* In state STORE_LOADED, the same value as `start`; in other states 0. The store adds
	 * `base` to the values that the caller sets, because the caller has not added the value
	 * in the file yet. */
	double base;
	/* Value in the batch that is being written. Negative if there is none. */
	double writing;
	double written; /* Value in the file. Negative if the count must be written. */
	/* The value replaces the value in the file even if it is lower. */
	atomic_bool replaces;
};

/* Connections for reading. Used by the caller's thread only. */
struct store_readers {
	sqlite3 *db;
	unsigned generation;  /* Number of the file that db has open; see store.generation. */
	sqlite3 *alone;       /* Connection to a file that cannot be written. */
	unsigned alone_depth; /* Number of queries that use `alone`. */
};

/* Used by the store's thread only; for a store in memory, by the caller's thread. */
struct store_writer {
	sqlite3 *db;
	int lock_fd;
	/* Inode of the write-ahead log at the last write. 0 if it is unknown. */
	ino_t log_inode;
	/* The age of a row is measured from this wall time; see HORIZON_MS. */
	uint64_t horizon_ms;
	struct batch back;
	struct counter **changed; /* The counts in the current batch. */
	unsigned changes;
};

/* How many batches the thread has written. The lock of the mailbox protects all members. */
struct store_progress {
	bool retry;         /* Write now, without waiting for the end of the back-off. */
	bool failing;       /* The last write attempt failed. */
	uint64_t attempts;  /* Number of write attempts. */
	uint64_t committed; /* Number of batches that were passed to the thread. */
	uint64_t taken;     /* Value of `committed` at the last attempt. */
	uint64_t refused;   /* Value of `taken` at the last attempt that failed. */
	/* Number of batches that are in the file if the current attempt succeeds. */
	uint64_t tried;
	uint64_t written; /* Number of batches that are in the file or were dropped. */
};

/* The state of the store for store_problem(), store_bytes() and store_dropped(). */
struct store_report {
	_Atomic(const char *) problem; /* NULL: none */
	/* The sentences are made at the start, so that `problem` always points to a valid
	 * string. sentence[DB_OK] is NULL. */
	char *sentence[DB_TROUBLES];
	char *why_memory;
	_Atomic uint64_t bytes, dropped;
};

/* Whether the counts of the file were read. The state only changes forward, in the order
 * below. */
enum store_contents {
	/* The file was not read yet. store.count has only the counts since the start. */
	STORE_UNREAD,
	/* The thread has read the counts of the file and has added them to the counts in
	 * store.count. store_count() still returns 0, and the caller has not added the counts
	 * of the file to its own counts. */
	STORE_LOADED,
	/* store_count() returns the counts of the file, or there is no file. The counts were
	 * read at the start, or store_news() has returned true. */
	STORE_KNOWN,
};

struct store {
	/* Used by the caller's thread only. */
	char *path;  /* NULL if the store is in memory. Does not change after the start. */
	bool shared; /* The store is in memory because another gpuward used the file. */
	uint64_t limit_bytes;
	struct store_readers read;
	struct batch pending;
	struct history *history[STORE_GPUS];
	unsigned histories;
	uint64_t last_event;

	struct store_writer writer;

	/* Held while the file is opened for writing, or is read with db_open_alone(). */
	pthread_mutex_t alone_lock;
	_Atomic bool usable; /* The file is open for writing. */
	_Atomic enum store_contents contents;

	/* The lock of the mailbox protects the members from here to `notice`. */
	struct mailbox box;
	struct store_progress progress;
	uint64_t file_event; /* Id of the last event in the file. */
	/* A query found that the file is corrupt. The thread starts a new file. */
	bool corrupt;
	struct batch front;
	struct counter **count; /* Sorted by key. */
	unsigned counts;
	char *notice; /* Text for store_notice(). */

	struct store_report report;
	/* Number of the open file. Each new file has a larger number than the file before. */
	_Atomic unsigned generation;
};

/* Changes the state from STORE_UNREAD to STORE_LOADED. A later state stays as it is. */
static inline void store_set_loaded(struct store *s)
{
	enum store_contents unread = STORE_UNREAD;

	atomic_compare_exchange_strong(&s->contents, &unread, STORE_LOADED);
}

/* store_write.c: writes the committed batches. Returns true if they are in the file. */
bool store_write(struct store *s);
/* Sets the sentence for store_notice(). */
__attribute__((format(printf, 2, 3))) void store_set_notice(struct store *s, const char *format,
							    ...);
void store_thread(void *arg);

/* store.c, the file. */
/* Takes the file lock, creates missing files and opens s->writer.db. After DB_READ_ONLY,
 * DB_FULL or DB_OTHER, errno has the cause if a system call failed. */
enum db_trouble store_file_open(struct store *s, int wait_ms);
/* Opens the file again, and reads its counts if they were not read yet. A file that cannot be
 * written is only read. Called on the store's thread. */
enum db_trouble store_file_open_again(struct store *s);
/* Returns the connection for reading, or NULL. Call store_reader_done() after use. */
sqlite3 *store_reader(struct store *s);
void store_reader_done(struct store *s);
/* Checks, after a failed read, whether the file is corrupt. */
void store_read_failed(struct store *s, int rc);

/* store_history.c: returns the history of a GPU, and creates it if it is missing. Returns
 * NULL if out of memory or if there are too many GPUs. */
struct history *store_history_of(struct store *s, const char *uuid);
void store_history_free(struct history *h);
/* Makes a row from the open bucket. Returns false if there is none. */
bool store_open_bucket(const struct history *h, unsigned tier, struct block *ret);

/* store_queue.c: reads the next queued record of a part, oldest first. For the first call, *at
 * is { 0 }. Returns false at the end. Hold the lock of the mailbox, also while ret is used. */
struct queue_place {
	unsigned batch;
	size_t at;
};
bool store_queue_next(const struct store *s, enum part part, struct queue_place *at,
		      struct record *ret);

/* store_query.c: returns the start time of the first row of a tier in queue and file. If
 * last is true, returns the start time of the last row that starts at until_ms or before.
 * Returns 0 if there is no such row. */
uint64_t store_edge(struct store *s, const char *uuid, unsigned tier, uint64_t until_ms,
		    bool last);
/* Calls each() for every row of a tier that may have moments in [from_ms, to_ms], oldest
 * first, until each() returns false. Rows come from h (may be NULL), from the queue and from
 * the file. Returns 0, -GW_E_IO (the file could not be read) or -GW_E_NOMEM (each() was not
 * called). */
typedef bool store_row_fn(void *arg, const struct block *row);
int store_rows(struct store *s, const struct history *h, const char *uuid, unsigned tier,
	       uint64_t from_ms, uint64_t to_ms, store_row_fn *each, void *arg);

#endif
