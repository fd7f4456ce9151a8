/* push_queue: keeps in files the records that wait to be pushed, so that they survive an outage
 * of the server, kill -9 and a loss of power.
 *
 * The folder has two kinds of files. Records are appended to segments, which are numbered. The
 * file "state" has the position of the first waiting record. Damaged bytes are skipped. When
 * the queue is full, the oldest segment is deleted. One thread may add records while another
 * thread takes them. A second process cannot open the same folder. */
#ifndef GW_DAEMON_PUSH_QUEUE_H
#define GW_DAEMON_PUSH_QUEUE_H

#include "push_encode.h"

struct push_queue;

/* Opens the folder, or creates it (mode 0700), and reads all segments, which can take seconds.
 * limit is the maximum size of all segments together. After an error, message gets a sentence;
 * after success, a notice of one or several lines, or "". Returns 0, -GW_E_STATE (another
 * process uses the folder), -GW_E_NOMEM, -GW_E_SIZE (dir is too long) or an error of
 * file_replace(). */
int push_queue_open(const char *dir, uint64_t limit, struct push_queue **ret, char *message,
		    size_t size);
void push_queue_close(struct push_queue *q);

/* Appends a record without waiting for the disk. If the queue or the disk is full, drops the
 * oldest segment. If the folder was deleted, makes it again. Returns 0 with a notice or ""
 * in message, or an error with a sentence; the record is then not in the queue. */
int push_queue_add(struct push_queue *q, const struct push_record *r, char *message,
		   size_t size);

/* A batch: records of one protocol from the front of the queue. */
struct push_batch {
	enum push_protocol protocol;
	unsigned records;
	uint64_t samples, raw_bytes;
	uint64_t segment, end; /* Position after the last record. */
};

/* Appends the payloads of the next records to out: at least one record, and more records as
 * long as their total size before compression is at most raw_max bytes. message says which
 * records are lost because they were damaged or missing; it is "" if none are lost. Returns
 * false if the queue is empty. */
bool push_queue_take(struct push_queue *q, uint64_t raw_max, struct buf *out,
		     struct push_batch *ret, char *message, size_t size);

/* Removes a batch, because the server has accepted or refused it. */
void push_queue_remove(struct push_queue *q, const struct push_batch *b);

/* Waits until everything that was added is on disk. Call it if a record could not be sent at
 * once. The call is not needed for a record that the server has accepted, because such a record
 * need not survive a loss of power. */
void push_queue_sync(struct push_queue *q);

struct push_queue_status {
	uint64_t bytes; /* Size of the records that wait. */
	/* Number of samples that were deleted because the queue was full or damaged. */
	uint64_t dropped;
	/* Time of the newest record that was ever added. 0 if there was none. */
	int64_t last_ms;
};
void push_queue_status(struct push_queue *q, struct push_queue_status *ret);

#endif
