/* store_parts: what the files of the store share; nobody else includes it.
 *
 *   store.c          beginning and end, its state, counts
 *   store_file.c     opening the file, now or later, and what it has
 *   store_batch.c    records, and the queue to the thread
 *   store_document.c events and documents
 *   store_write.c    the thread: batches into the file, old rows out of it, and what to do when it fails
 *   store_history.c  readings: rows and roll-ups in memory
 *   store_query.c    ... and points out of memory, queue and file
 *   store_block.c    a row as bytes
 *   store_db.c       the SQLite file
 *
 * A batch is a list of records in a buffer.  It goes from `pending` (the caller's) by
 * store_commit() to `front` (under the lock), and by the thread to `back` (the thread's; nobody
 * changes it before it is in the file, so that others may read it under the lock).  Records of
 * history are dropped when writing fails, the others are kept and tried again. */
#ifndef GW_DAEMON_STORE_PARTS_H
#define GW_DAEMON_STORE_PARTS_H

#include "store.h"
#include "store_block.h"
#include "store_db.h"

#include <pthread.h>
#include <stdatomic.h>

#define STORE_EVENTS    10000 /* kept in the file    */
#define STORE_RESERVE   1000  /* ids of events ahead */
#define STORE_DOCUMENTS 1000  /* of a kind, likewise */
#define STORE_KEYS      8192  /* counts              */
#define STORE_GPUS      256
#define STORE_UUID      96

/* ---- records ---- */

enum record_kind { RECORD_HISTORY, RECORD_EVENT, RECORD_KEEP, RECORD_FORGET };

#define RECORD_TEXTS 4

struct record {
	uint32_t size; /* of all of it in the buffer */
	uint32_t kind;
	uint64_t a, b;                  /* history: tier, begin_ms; event: id, wall_ns */
	const char *text[RECORD_TEXTS]; /* NULL: none; each with a NUL behind it        */
	uint32_t length[RECORD_TEXTS];
};

/* All of it, or nothing: false when it does not fit. */
bool record_add(struct buf *b, const struct record *r);
/* The record at *at, which moves to the next; false at the end. */
bool record_next(const struct buf *b, size_t *at, struct record *ret);

enum part { PART_HISTORY, PART_DURABLE, PARTS };
struct batch {
	struct buf part[PARTS];
};
void batch_init(struct batch *b);
void batch_done(struct batch *b);

/* ---- history in memory ---- */

enum { TIER_READINGS, TIER_MINUTES, TIER_HOURS, TIERS };
enum { FIGURE_MEAN, FIGURE_MIN, FIGURE_MAX, FIGURE_COUNT, FIGURES };

struct tier {
	uint64_t unit_ms; /* of a block's offsets: 1 ms, or the span of a bucket */
	uint64_t row_ms;  /* a row never crosses a multiple of this             */
	unsigned moments; /* nor has it more of them                            */
	unsigned figures; /* of each quantity                                   */
	uint64_t kept_ms;
};
extern const struct tier store_tiers[TIERS];

struct sum {
	double sum, min, max;
	uint64_t count;
};

struct history {
	char uuid[STORE_UUID];
	uint64_t last_ms;        /* of the latest reading; 0: none yet         */
	bool fed;                /* a reading came since the start             */
	unsigned refused;        /* readings in a row that went back in time   */
	uint64_t refused_ms;     /* the last of these                          */
	uint64_t saved_ms;       /* when the row of readings was last handed on */
	struct block row[TIERS]; /* under way                                  */
	bool ended[TIERS];       /* the bucket of last_ms is in the row already */
	struct sum open[TIERS][VIEW_HISTORIES]; /* the buckets that last_ms is in: of an hour's,
						   what its minutes that are over have       */
};

/* ---- the store ---- */

struct counter {
	char *key;
	double start, pending, committed;
	double base; /* what the file has and the caller does not know of: see store_news() */
	double writing, written; /* below zero: none is in the file */
};

struct store {
	/* The caller's alone. */
	char *path;  /* NULL: in memory; after the start everybody's to read */
	bool shared; /* another gpuward had the file: in memory for that */
	uint64_t limit_bytes;
	sqlite3 *reader;
	sqlite3 *alone; /* while a file that cannot be written is read */
	unsigned alone_depth;
	unsigned reader_generation;
	struct batch pending;
	struct history *history[STORE_GPUS];
	unsigned histories;
	uint64_t last_event;

	/* The thread's alone (in memory: the caller's). */
	sqlite3 *db;
	int lock_fd;
	uint64_t horizon_ms; /* see store_write.c */
	struct batch back;
	struct counter **changed; /* counts of the batch under way */
	unsigned changes;

	/* Held while the file is opened for writing, or read alone: db_open_alone(). */
	pthread_mutex_t alone_lock;
	_Atomic bool usable; /* it was opened for writing */
	_Atomic bool known;  /* the caller knows what the file has */

	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t work, done;
	pthread_t thread;
	bool threaded, stop, ended;
	bool retry;          /* now, whatever the back-off says               */
	bool failing;        /* the last attempt failed                       */
	uint64_t attempts;   /* to write                                      */
	uint64_t committed;  /* batches handed over,                          */
	uint64_t taken;      /* ... of which the last attempt saw these,       */
	uint64_t refused;    /* ... one that failed these,                    */
	uint64_t tried;      /* ... the last one took these,                  */
	uint64_t written;    /* ... and these are in the file, or were dropped */
	bool loaded;         /* what the file has is in the counts            */
	uint64_t file_event; /* ... and its last event here                  */
	bool corrupt;        /* the reader met it: the thread begins anew     */
	struct batch front;
	struct counter **count; /* by key */
	unsigned counts;
	char *notice; /* for store_notice() */

	_Atomic(const char *) state;
	char *sentence
		[DB_TROUBLES]; /* made at the start, so that a state is always good to read */
	char *why_memory;
	_Atomic uint64_t bytes, dropped;
	_Atomic unsigned generation; /* of the file: one more each time it was begun anew */
};

/* store_batch.c */
/* For the next batch, never dropped afterwards; a length of 0 is that of the text.  0, or
 * -GW_E_SIZE: there is no room, and it was counted. */
int store_add(struct store *s, struct record *r);
void store_deadline(struct timespec *ret, uint64_t ns);

/* store_write.c */
/* Writes what was committed; true when it is in the file. */
bool store_write(struct store *s);
void *store_thread(void *arg);

/* store.c: under the lock, once there is a thread; made when there is none.  NULL: no room. */
struct counter *store_get_count(struct store *s, const char *key);

/* store_file.c */
/* Takes the lock, makes what is missing and opens s->db.  errno is that of DB_READ_ONLY, DB_FULL and
 * DB_OTHER where the system refused. */
enum db_trouble store_file_open(struct store *s, int wait_ms);
/* On the thread: again, and takes over what it has; where it can only be read, that alone. */
enum db_trouble store_file_open_again(struct store *s);
/* At the start: what it has, if it can be read. */
void store_file_load(struct store *s);
/* The connection to read with, or NULL; store_reader_done() after it. */
sqlite3 *store_reader(struct store *s);
void store_reader_done(struct store *s);
/* Of a failed read; looks whether the file is corrupt. */
void store_read_failed(struct store *s, int rc);

/* store_history.c: of a GPU, made when there is none; NULL: no memory, or too many. */
struct history *store_history_of(struct store *s, const char *uuid);
void store_history_free(struct history *h);
/* The bucket that is not over, as a row of its own; false: there is none. */
bool store_open_bucket(const struct history *h, unsigned tier, struct block *ret);

/* store_query.c: begin of the first row of a tier, or of the last that begins at until_ms or before;
 * queue and file.  0: there is none. */
uint64_t store_edge(struct store *s, const char *uuid, unsigned tier, uint64_t until_ms,
		    bool last);
/* Calls each for every row of a tier that may have moments in [from_ms, to_ms], oldest first,
 * from memory (h, unless NULL), queue and file; until it returns false.  False: the file could not be read. */
typedef bool store_row_fn(void *arg, const struct block *row);
bool store_rows(struct store *s, const struct history *h, const char *uuid, unsigned tier,
		uint64_t from_ms, uint64_t to_ms, store_row_fn *each, void *arg);

#endif
