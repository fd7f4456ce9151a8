/* store: what outlives the process, in one SQLite file.
 *
 * History in blocks, events, documents, and counts that never fall.  What is written goes to a thread
 * of its own, one transaction a batch, so that a slow disk never holds the loop up: a batch that
 * does not fit the queue is dropped and counted.  What is read is read from a connection of
 * its own, on the caller's thread.  kill -9 loses at most the batch under way; a file that is not
 * a database is moved aside and said so; where nothing can be written it all works in memory, and
 * store_state() says why. */
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

/* "ok", or the sentence why nothing is kept (disk full, read-only, ...). */
const char *store_state(struct store *s);
uint64_t store_bytes(struct store *s);
uint64_t store_dropped(struct store *s);

/* ---- counts ---- */
/* As of the start: 0 when there was none. */
double store_count(struct store *s, const char *key);
/* For the next batch. */
void store_set_count(struct store *s, const char *key, double value);

/* ---- events and documents ---- */
/* The id of the last event there is. */
uint64_t store_last_event(struct store *s);
void store_add_event(struct store *s, const struct view_event *e);
int store_events(struct store *s, uint64_t after, unsigned max,
		 void (*each)(void *arg, const struct view_event *e), void *arg);
void store_keep(struct store *s, const char *kind, const char *id, const char *json, size_t size);
int store_kept(struct store *s, const char *kind, unsigned max,
	       void (*each)(void *arg, const char *id, const char *json), void *arg);
void store_forget(struct store *s, const char *kind, const char *id);

/* ---- history ---- */
/* One reading of one GPU: a value for each of VIEW_HISTORIES, NAN unknown.  Readings of a minute
 * become one row; minutes and hours are rolled up (mean, smallest, largest). */
void store_add_reading(struct store *s, const char *uuid, uint64_t wall_ns, const double *values);

/* As view_ops.history, from the file and what was not yet written. */
int store_history(struct store *s, const char *uuid, enum view_history column,
		  uint64_t from_wall_ns, uint64_t to_wall_ns, uint64_t step_ns,
		  struct view_point *out, unsigned max, uint64_t *ret_step_ns);

/* Hands what was set and added since the last call to the thread, as one transaction. */
void store_commit(struct store *s);

#endif
