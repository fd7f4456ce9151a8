/* store: persistent data in one SQLite file: history, events, documents and counts.
 *
 * A thread writes batches, one transaction each, so that a slow disk never delays the loop and
 * kill -9 loses at most the current batch. Reads use a separate connection on the caller's
 * thread. A corrupt file is moved aside, and a removed file is created again. If the file
 * cannot be written, the store tries again, and store_state() returns the reason. Without a
 * usable file everything works in memory. */
#ifndef GW_DAEMON_STORE_H
#define GW_DAEMON_STORE_H

#include "serve/view.h"

struct store;

/* Opens a store. If path is NULL, the store is in memory. Fails only if out of memory.
 * message gets a sentence for the user, or "". limit_bytes is the maximum file size; the
 * oldest history is deleted first. */
int store_open(const char *path, uint64_t limit_bytes, struct store **ret, char *message,
	       size_t size);
/* Writes the queue for at most one second, and closes the store. */
void store_close(struct store *s);

/* store_problem() returns why nothing is stored (disk full, read-only, ...), or NULL if there
 * is no problem; the string is valid until store_close(). store_state() returns the same
 * sentence, or "ok". store_bytes() returns the size of the file, store_dropped() the number of
 * dropped records. All four may be called from any thread. */
const char *store_problem(struct store *s);
const char *store_state(struct store *s);
uint64_t store_bytes(struct store *s);
uint64_t store_dropped(struct store *s);

/* Writes the last notice of the store, for example that the file was corrupt and was moved
 * aside. Returns false if there is no new notice since the last call. */
bool store_notice(struct store *s, char *out, size_t size);

/* True if the store is a file and store_count_known() returns true. False if stored data may
 * not survive the process; this can change to true when a file that was unreadable at the start
 * becomes readable. May be called from any thread. */
bool store_lasting(struct store *s);

/* True if another gpuward used the file at the start. The guard of this process then only
 * observes, even if the GPU locks (guard_service_lock.c) show no other gpuward. If this guard
 * acted, its orders would be in no journal, and the other guard would undo these orders. */
bool store_shared(const struct store *s);

/* Returns the value that the count had in the file when the file was read. Returns 0 if the
 * file has no such count, or while store_count_known() returns false. */
double store_count(struct store *s, const char *key);
/* Returns the last value that was set, or else the same value as store_count(). */
double store_count_now(struct store *s, const char *key);
/* Returns false until the counts of the file are read and, if they were read after the start,
 * store_news() has reported that. A count that is set during this time is added to the count of
 * the file. */
bool store_count_known(struct store *s);
/* Returns true once, when a file becomes readable that was not readable at the start. From then
 * on, store_count(), the documents, the events and their ids are those of the file, and the
 * store no longer adds store_count() to the values that the caller sets. So the caller must add
 * store_count() to its own counts. */
bool store_news(struct store *s);
/* Sets a count in the next batch. A value that is lower than the last one is ignored. */
void store_set_count(struct store *s, const char *key, double value);
/* Works like store_set_count(), but a lower value replaces a higher one. This function is for
 * times, because a time that was stored while the clock was ahead must be replaced by a lower
 * one. Call it only while store_count_known() returns true. */
void store_replace_count(struct store *s, const char *key, double value);

/* Prepares the event ids of this run. Call it once, before the first event. Ids grow across
 * restarts, because clients resume from the last id that they received. So they continue above
 * the last id in the file, and above wall_ns in milliseconds. The second condition is needed if
 * an earlier run could not write its last ids to the file. No such id is above the time (in ms)
 * at which that run ended, because events are rarer than one per millisecond. */
void store_begin_event_ids(struct store *s, uint64_t wall_ns);
/* Adds an event. Returns its id; e->id is not used. */
uint64_t store_add_event(struct store *s, const struct view_event *e);
/* Returns an id such that exactly the last max events have larger ids. Ids have gaps, so the
 * caller cannot compute this id. */
uint64_t store_events_after(struct store *s, unsigned max);
/* Passes the events with an id above `after` to each(), oldest first. Returns the number of
 * these events, -GW_E_IO or -GW_E_NOMEM. After -GW_E_NOMEM, each() was not called. */
int store_events(struct store *s, uint64_t after, unsigned max,
		 void (*each)(void *arg, const struct view_event *e), void *arg);
/* Stores a document of at most VIEW_DOCUMENT_MAX bytes. The new document replaces a document
 * with the same id. Returns 0, or -GW_E_SIZE if the document is too large or the queue is full;
 * then nothing was stored. */
int store_put_document(struct store *s, const char *kind, const char *id, const char *json,
		       size_t size);
/* Works like store_put_document(), but keeps at most `most` documents of the kind, and does not
 * wait for the disk. After a power failure, either both the document and the counts of the same
 * commit are stored, or both are lost. */
int store_put_row(struct store *s, const char *kind, const char *id, const char *json,
		  size_t size, unsigned most);
/* Passes the latest max documents of a kind to each(), oldest first. Returns the number of
 * these documents, -GW_E_IO or -GW_E_NOMEM. After -GW_E_NOMEM, each() was not called. */
int store_each_document(struct store *s, const char *kind, unsigned max,
			void (*each)(void *arg, const char *id, const char *json), void *arg);
/* Calls each() with every document that matches, until each() returns false. Documents that are
 * not written yet come first, from the latest to the earliest. Then come the documents of the
 * file, from the largest id to the smallest. Returns the number of documents, -GW_E_IO or
 * -GW_E_NOMEM. After -GW_E_NOMEM, each() was not called. */
int store_find_documents(struct store *s, const struct view_find *f, view_found_fn *each,
			 void *arg);
/* Works like store_each_document(), but reads a file without opening a store. Another process
 * may have the file open. Nothing is written. */
int store_peek(const char *path, const char *kind, unsigned max,
	       void (*each)(void *arg, const char *id, const char *json), void *arg);
void store_delete_document(struct store *s, const char *kind, const char *id);

/* Adds one reading of one GPU. values has VIEW_HISTORIES values; NAN is an unknown value.
 * Readings of one minute become one row. Minutes and hours are rolled up (mean, minimum,
 * maximum). Times have a resolution of 1 ms.
 * A reading that is not later than the previous one is ignored. If the clock stays behind
 * for 60 readings, the history continues at the new time. */
void store_add_reading(struct store *s, const char *uuid, uint64_t wall_ns,
		       const double *values);

/* Adds incomplete rows to the next batch. Call it before the store is closed. Without this
 * call, only data older than ten seconds is certain to be stored. */
void store_save(struct store *s);

/* Works like view_ops.history. Reads the file and the data that is not written yet. Seconds are
 * kept for a day, minutes for 30 days, hours for five years. If step_ns is 0, returns single
 * readings, each with span 0. Otherwise returns buckets of step_ns, aligned to 1970, or coarser
 * buckets if the file has no finer ones. Can also return -GW_E_NOMEM or -GW_E_IO. */
int store_history(struct store *s, const char *uuid, enum view_history column,
		  uint64_t from_wall_ns, uint64_t to_wall_ns, uint64_t step_ns,
		  struct view_point *out, unsigned max, uint64_t *ret_step_ns);

/* Passes everything that was added since the last call to the store's thread. The thread
 * writes it in one transaction. */
void store_commit(struct store *s);

/* True if all committed data is in the file, and also if the data cannot be written, because
 * there is no file or the last attempt failed. */
bool store_settled(struct store *s);
/* Waits until all committed data is in the file. After a failure, the thread tries again at
 * once. Returns 0, -GW_E_IO (the file cannot be written; see store_state()) or -GW_E_TIMEOUT.
 * With timeout_ns 0, the function does not wait, and -GW_E_IO means that the last attempt to
 * write all committed data failed. */
int store_flush(struct store *s, uint64_t timeout_ns);

#endif
