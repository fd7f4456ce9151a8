/* store: what outlives the process, in one SQLite file.
 *
 * History in blocks, events, documents, and counts that never fall.  What is written goes to a thread
 * of its own, one transaction a batch, so that a slow disk never holds the loop up: a batch that
 * does not fit the queue is dropped and counted.  What is read is read from a connection of
 * its own, on the caller's thread.  kill -9 loses at most the batch under way; a file that is not
 * a database is moved aside and said so.  One that cannot be written now is tried again and again,
 * and read meanwhile where it can be; store_state() says why.  Where there is none, and none can be
 * made, it all works in memory. */
#ifndef GW_DAEMON_STORE_H
#define GW_DAEMON_STORE_H

#include "serve/view.h"

struct store;

/* path NULL: in memory.  Always gives a store, unless there is no memory; message: what a person
 * should know ("" when all is well).  limit_bytes: the file is kept below it, oldest history first. */
int store_open(const char *path, uint64_t limit_bytes, struct store **ret, char *message,
	       size_t size);
/* Writes what is queued, for at most a second, and closes. */
void store_close(struct store *s);

/* These three from any thread.  "ok", or the sentence why nothing is kept (disk full, read-only, ...),
 * good until store_close(). */
const char *store_state(struct store *s);
uint64_t store_bytes(struct store *s);
uint64_t store_dropped(struct store *s);

/* What happened to the file since the last call (it was corrupt and was moved aside); false: nothing. */
bool store_notice(struct store *s, char *out, size_t size);

/* Is it a file, and known what is in it?  From any thread.  False where what is kept would not outlive
 * the process; a file that cannot be read at the start may become one that lasts. */
bool store_lasting(struct store *s);

/* Had another gpuward the file when we began?  The guard then only observes, also where no lock of a GPU
 * (guard_lock.h) tells of the other: what it did would be in no journal, and undone by the other. */
bool store_shared(const struct store *s);

/* ---- counts ---- */
/* As of the start: 0 when there was none, or while it is not known. */
double store_count(struct store *s, const char *key);
/* What was last set, or as of the start. */
double store_count_now(struct store *s, const char *key);
/* False: the file could not be read yet.  What is set meanwhile is added to what it has. */
bool store_count_known(struct store *s);
/* True once, when a file could be read that could not be at the start: store_count(), the documents,
 * the events and their ids are those of the file now.  From here on what is set is taken as it is: the
 * caller adds store_count() to what it counted. */
bool store_news(struct store *s);
/* For the next batch.  One that is lower than before is left out. */
void store_set_count(struct store *s, const char *key, double value);

/* ---- events and documents ---- */
/* The id of the last event there is.  After kill -9 some more: ids that were given and could not be
 * written are not given again. */
uint64_t store_last_event(struct store *s);
/* Its id: e->id where that is above the last, else the next. */
uint64_t store_add_event(struct store *s, const struct view_event *e);
/* The id after which the last max events are: ids have gaps. */
uint64_t store_events_after(struct store *s, unsigned max);
/* Those above `after`, oldest first.  How many, or -GW_E_IO. */
int store_events(struct store *s, uint64_t after, unsigned max,
		 void (*each)(void *arg, const struct view_event *e), void *arg);
/* At most VIEW_DOCUMENT_MAX bytes; takes the place of one with this id.  0, or -GW_E_SIZE: it is too
 * large, or too much waits for a disk that does not take it; nothing was kept. */
int store_keep(struct store *s, const char *kind, const char *id, const char *json,
	       size_t size);
/* The latest max of a kind, oldest first.  How many, or -GW_E_IO. */
int store_kept(struct store *s, const char *kind, unsigned max,
	       void (*each)(void *arg, const char *id, const char *json), void *arg);
/* Of a file that another process may have open, without a store; nothing is written.  How many, or -GW_E_IO. */
int store_peek(const char *path, const char *kind, unsigned max,
	       void (*each)(void *arg, const char *id, const char *json), void *arg);
void store_forget(struct store *s, const char *kind, const char *id);

/* ---- history ---- */
/* One reading of one GPU: a value for each of VIEW_HISTORIES, NAN unknown.  Readings of a minute
 * become one row; minutes and hours are rolled up (mean, smallest, largest).  Times are kept to the
 * millisecond.  A reading that is not later than the one before is left out; where the clock was set
 * back and stays so for 60 readings, time goes on from there. */
void store_add_reading(struct store *s, const char *uuid, uint64_t wall_ns,
		       const double *values);

/* Adds the rows that are under way to the next batch, before the end: else only what is older than
 * ten seconds is sure to be there. */
void store_save(struct store *s);

/* As view_ops.history, from the file and what was not yet written.  Seconds are kept a day, minutes
 * 30 days, hours five years.  step_ns 0: readings as they came, each with span 0; otherwise buckets of
 * step_ns, aligned to 1970, or of what is kept of that time where that is coarser. */
int store_history(struct store *s, const char *uuid, enum view_history column,
		  uint64_t from_wall_ns, uint64_t to_wall_ns, uint64_t step_ns,
		  struct view_point *out, unsigned max, uint64_t *ret_step_ns);

/* Hands what was set and added since the last call to the thread, as one transaction. */
void store_commit(struct store *s);

/* Waits until all that was committed is in the file; a file that failed is tried again at once.  0,
 * -GW_E_IO (it could not be written: see store_state) or -GW_E_TIMEOUT.  timeout_ns 0 asks how it stands: -GW_E_IO
 * where all of it was tried and failed, which is tried again in its time. */
int store_flush(struct store *s, uint64_t timeout_ns);

#endif
