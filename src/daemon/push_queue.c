#include "push_queue.h"

#include "push_segment.h"

#include "base/file.h"

#include <gpuward.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_MAGIC UINT32_C(0x53757747)
#define STATE_SIZE  40
/* The state is synced to disk after this number of requests, not after each one. After a loss
 * of power, at most this number of requests is sent again. */
#define STATE_SYNC 20

struct push_segment {
	uint64_t number;
	uint64_t size;    /* Position after the last record. */
	uint64_t samples; /* Number of samples in the records that wait. */
	uint64_t bytes;   /* Size of the records that wait. */
};

struct push_queue {
	/* Protects the members from here to `status`. The lock is held during disk writes. */
	pthread_mutex_t lock;
	char dir[2048];
	uint64_t limit, segment_max;
	struct push_segment *segment; /* Oldest first. Records are added to the last one. */
	unsigned segments;
	uint64_t front; /* Position of the next record in the first segment. */
	uint64_t next_number;
	int active; /* Descriptor of the last segment, open for writing. -1 if there is none. */
	bool unsynced;      /* Records may not be on disk yet. */
	bool unsynced_name; /* The name of the last segment may not be on disk yet. */
	int state; /* Descriptor of the file "state", which is also the lock of the folder. */
	uint64_t state_writes;
	struct push_queue_status status;
	/* A copy of status with its own lock, so that a reader never waits for the disk. */
	pthread_mutex_t published_lock;
	struct push_queue_status published;
};

/* Publishes the status and releases the lock. */
static void queue_unlock(struct push_queue *q)
{
	pthread_mutex_lock(&q->published_lock);
	q->published = q->status;
	pthread_mutex_unlock(&q->published_lock);
	pthread_mutex_unlock(&q->lock);
}

/* The file "state" has two copies of the state, which are written in turns, so that one copy is
 * always valid. A copy has a magic number and a checksum (4 bytes each), then the number of
 * writes, the segment, the position and the newest time (8 bytes each). */

static void write_state(struct push_queue *q)
{
	uint64_t number = q->segments ? q->segment[0].number : q->next_number;
	char text[STATE_SIZE];

	q->state_writes++;
	push_put32(text, STATE_MAGIC);
	push_put64(text + 8, q->state_writes);
	push_put64(text + 16, number);
	push_put64(text + 24, q->front);
	push_put64(text + 32, (uint64_t)q->status.last_ms);
	push_put32(text + 4, push_checksum(0, text + 8, STATE_SIZE - 8));
	/* If the state cannot be written, records are sent again after a restart. Nothing is
	 * lost. */
	(void)push_write_at(q->state, text, STATE_SIZE, q->state_writes % 2 * STATE_SIZE);
	if (q->state_writes % STATE_SYNC == 0)
		(void)fdatasync(q->state);
}

static void read_state(struct push_queue *q, uint64_t *ret_segment, uint64_t *ret_front)
{
	*ret_segment = 0;
	*ret_front = 0;
	for (unsigned i = 0; i < 2; i++) {
		char text[STATE_SIZE];

		if (!push_read_at(q->state, text, STATE_SIZE, i * STATE_SIZE) ||
		    push_get32(text) != STATE_MAGIC ||
		    push_get32(text + 4) != push_checksum(0, text + 8, STATE_SIZE - 8) ||
		    push_get64(text + 8) < q->state_writes)
			continue;
		q->state_writes = push_get64(text + 8);
		*ret_segment = push_get64(text + 16);
		*ret_front = push_get64(text + 24);
		q->status.last_ms = (int64_t)push_get64(text + 32);
	}
}

static void delete_first(struct push_queue *q)
{
	char path[2100];

	push_segment_path(q->dir, q->segment[0].number, path, sizeof(path));
	unlink(path);
	if (q->segments == 1 && q->active >= 0) {
		close(q->active);
		q->active = -1;
	}
	q->status.bytes -= q->segment[0].bytes;
	q->segments--;
	memmove(q->segment, q->segment + 1, q->segments * sizeof(*q->segment));
	q->front = 0;
}

static void drop_first(struct push_queue *q)
{
	q->status.dropped += q->segment[0].samples;
	delete_first(q);
}

/* Call it when the file of the last segment was deleted. Removes the segment with all its
 * records from the list, and counts their samples as dropped. */
static void forget_last(struct push_queue *q)
{
	const struct push_segment *s = &q->segment[--q->segments];

	q->status.dropped += s->samples;
	q->status.bytes -= s->bytes;
	if (q->active >= 0)
		close(q->active);
	q->active = -1;
	if (q->segments == 0)
		q->front = 0;
}

/* Deletes segments from which all records were removed. The last segment stays, because records
 * are appended to it. */
static void delete_sent(struct push_queue *q)
{
	while (q->segments > 1 && q->front >= q->segment[0].size)
		delete_first(q);
}

/* Begins a new segment. Returns 0, or -1 with errno. */
static int begin_segment(struct push_queue *q)
{
	struct push_segment *more =
		realloc(q->segment, (q->segments + 1) * sizeof(*q->segment));
	int fd;

	if (!more)
		return -1;
	q->segment = more;
	fd = push_segment_create(q->dir, &q->next_number);
	if (fd < 0)
		return -1;
	if (q->active >= 0) {
		/* Sync the old segment now; push_queue_sync() syncs only the new one. */
		if (q->unsynced)
			(void)fdatasync(q->active);
		close(q->active);
	}
	q->active = fd;
	if (q->segments == 0)
		q->front = 0;
	q->segment[q->segments++] = (struct push_segment){ .number = q->next_number++ };
	q->unsynced_name = true;
	delete_sent(q);
	return 0;
}

static uint64_t size_of_all(const struct push_queue *q)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < q->segments; i++)
		n += q->segment[i].size;
	return n;
}

/* Appends a record to the last segment, or to a new segment. Returns 0, or -1 with errno. */
static int append_record(struct push_queue *q, const struct push_record *r)
{
	uint64_t n = PUSH_RECORD_HEAD + r->n;
	char head[PUSH_RECORD_HEAD];
	struct push_segment *s;

	if ((q->active < 0 || q->segment[q->segments - 1].size + n > q->segment_max) &&
	    begin_segment(q) != 0)
		return -1;
	s = &q->segment[q->segments - 1];
	push_record_write_head(head, r);
	/* The head comes last: a record that is only partly written has no valid head. */
	if (!push_write_at(q->active, r->p, r->n, s->size + PUSH_RECORD_HEAD) ||
	    !push_write_at(q->active, head, sizeof(head), s->size)) {
		int e = errno ? errno : ENOSPC;

		(void)!ftruncate(q->active, (off_t)s->size);
		errno = e;
		return -1;
	}
	s->size += n;
	s->bytes += n;
	s->samples += r->samples;
	q->status.bytes += n;
	if (r->time_ms > q->status.last_ms ||
	    q->status.last_ms - r->time_ms > PUSH_CLOCK_BACK_MS)
		q->status.last_ms = r->time_ms;
	q->unsynced = true;
	return 0;
}

/* Skips damaged bytes at the front: advances to the next valid record of the first segment, or
 * to the end of the segment, and counts the lost samples. If there is no memory or no free file
 * descriptor, skips nothing and returns false. */
static bool skip_damage(struct push_queue *q, char *message, size_t size)
{
	struct push_segment *s = &q->segment[0];
	struct push_scan left = { 0 };
	char path[2100];
	size_t n;
	char *p = push_segment_load(q->dir, s->number, q->front, s->size, &n);
	bool readable = p != NULL;
	uint64_t lost;
	int e = errno;

	if (!p && (e == ENOMEM || e == EMFILE || e == ENFILE))
		return false;
	if (p)
		push_record_scan(p, n, 0, &left);
	free(p);
	lost = s->samples > left.samples ? s->samples - left.samples : 0;
	push_segment_path(q->dir, s->number, path, sizeof(path));
	/* Damage that was found when the queue was opened is already reported. */
	if (s->bytes > left.bytes)
		snprintf(message, size,
			 "%llu bytes of %s %s and are skipped; about %llu samples are lost",
			 (unsigned long long)(s->bytes - left.bytes), path,
			 readable      ? "are damaged"
			 : e == ENOENT ? "were deleted"
				       : "cannot be read",
			 (unsigned long long)lost);
	q->front = left.bytes ? q->front + left.first : s->size;
	q->status.dropped += lost;
	q->status.bytes += left.bytes;
	q->status.bytes -= s->bytes;
	s->samples = left.samples;
	s->bytes = left.bytes;
	return true;
}

/* Reads the record at a position of the first segment and appends its payload to out. Returns
 * false if the record is damaged or cannot be read. */
static bool read_record(struct push_queue *q, int fd, uint64_t at, struct push_record *ret,
			struct buf *out)
{
	static const char zeros[4096];
	char head[PUSH_RECORD_HEAD];
	size_t before = out->len;

	if (!push_read_at(fd, head, sizeof(head), at) ||
	    !push_record_read_head(head, q->segment[0].size - at, ret))
		return false;
	for (size_t n = ret->n; n > 0; n -= n < sizeof(zeros) ? n : sizeof(zeros))
		buf_add(out, zeros, n < sizeof(zeros) ? n : sizeof(zeros));
	if (!out->err && push_read_at(fd, out->p + before, ret->n, at + sizeof(head)) &&
	    push_record_is_intact(head, ret, out->p + before))
		return true;
	out->len = before;
	return false;
}

/* Takes as many records as fit from the first segment. */
static void take_from_first(struct push_queue *q, uint64_t raw_max, struct buf *out,
			    struct push_batch *b)
{
	struct stat st;
	int fd = push_segment_open(q->dir, q->segment[0].number, &st);
	size_t begin = out->len;

	b->segment = q->segment[0].number;
	b->end = q->front;
	while (fd >= 0 && b->end < q->segment[0].size) {
		struct push_record r;
		size_t before = out->len;

		if (!read_record(q, fd, b->end, &r, out))
			break;
		if (b->records > 0 &&
		    (r.protocol != b->protocol || b->raw_bytes + r.raw_bytes > raw_max)) {
			out->len = before;
			break;
		}
		b->protocol = r.protocol;
		b->records++;
		b->samples += r.samples;
		b->raw_bytes += r.raw_bytes;
		b->end += PUSH_RECORD_HEAD + r.n;
		if (b->raw_bytes >= raw_max)
			break;
	}
	if (fd >= 0)
		close(fd);
	assert(b->records || out->len == begin);
}

bool push_queue_take(struct push_queue *q, uint64_t raw_max, struct buf *out,
		     struct push_batch *ret, char *message, size_t size)
{
	*ret = (struct push_batch){ 0 };
	message[0] = '\0';
	pthread_mutex_lock(&q->lock);
	for (delete_sent(q); q->segments && q->front < q->segment[0].size; delete_sent(q)) {
		take_from_first(q, raw_max, out, ret);
		if (ret->records || out->err || !skip_damage(q, message, size))
			break;
	}
	queue_unlock(q);
	return ret->records > 0;
}

void push_queue_remove(struct push_queue *q, const struct push_batch *b)
{
	struct push_segment *s;

	pthread_mutex_lock(&q->lock);
	s = q->segments ? &q->segment[0] : NULL;
	/* If the queue became full, the segment may have been dropped since the batch was
	 * taken. */
	if (s && s->number == b->segment && b->end > q->front) {
		uint64_t bytes = b->end - q->front < s->bytes ? b->end - q->front : s->bytes;

		q->front = b->end;
		s->samples -= b->samples < s->samples ? b->samples : s->samples;
		s->bytes -= bytes;
		q->status.bytes -= bytes;
		delete_sent(q);
		write_state(q);
	}
	queue_unlock(q);
}

void push_queue_sync(struct push_queue *q)
{
	int fd = -1, folder = -1;

	pthread_mutex_lock(&q->lock);
	if (q->unsynced && q->active >= 0)
		fd = fcntl(q->active, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && q->unsynced_name)
		folder = open(q->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	q->unsynced = q->unsynced_name = false;
	queue_unlock(q);
	if (fd >= 0) { /* Sync without holding the lock, because the disk may be slow. */
		(void)fdatasync(fd);
		close(fd);
	}
	if (folder >= 0) {
		(void)fsync(folder);
		close(folder);
	}
}

void push_queue_status(struct push_queue *q, struct push_queue_status *ret)
{
	pthread_mutex_lock(&q->published_lock);
	*ret = q->published;
	pthread_mutex_unlock(&q->published_lock);
}

static int by_number(const void *a, const void *b)
{
	const struct push_segment *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Appends a line to a message, as far as there is space. */
__attribute__((format(printf, 3, 4))) static void add_line(char *message, size_t size,
							   const char *format, ...)
{
	size_t n = strlen(message);
	va_list args;

	if (n > 0 && n + 1 < size)
		message[n++] = '\n';
	va_start(args, format);
	vsnprintf(message + n, size - n, format, args);
	va_end(args);
}

/* Lists the segments and sets the number of the next one. A file that has the name of a segment
 * but cannot be a segment, such as a FIFO, is left unchanged; message names it. */
static int list_segments(struct push_queue *q, char *message, size_t size)
{
	DIR *d = opendir(q->dir);
	const struct dirent *e;

	if (!d)
		return file_failed(message, size, q->dir, "read");
	while ((e = readdir(d))) {
		char *end;
		unsigned long long number = strtoull(e->d_name, &end, 16);
		struct push_segment *more;
		struct stat st;

		if (strcmp(end, ".queue") != 0 || strlen(e->d_name) != 22 ||
		    number >= UINT64_MAX - 1 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (number >= q->next_number)
			q->next_number = number + 1;
		if (push_segment_refusal(&st)) {
			add_line(message, size,
				 "%s/%s is not a file of the push queue (%s) and is ignored; "
				 "remove it",
				 q->dir, e->d_name, push_segment_refusal(&st));
			continue;
		}
		more = realloc(q->segment, (q->segments + 1) * sizeof(*q->segment));
		if (!more) {
			closedir(d);
			snprintf(message, size, "out of memory for the push queue");
			return -GW_E_NOMEM;
		}
		q->segment = more;
		q->segment[q->segments++] = (struct push_segment){ .number = number };
	}
	closedir(d);
	if (q->segments)
		qsort(q->segment, q->segments, sizeof(*q->segment), by_number);
	return 0;
}

/* Counts the records after position `front` of a segment, which still wait to be sent. Sets the
 * size of the segment to the end of its last valid record. */
static void scan_segment(struct push_queue *q, struct push_segment *s, uint64_t front,
			 char *message, size_t size)
{
	struct push_scan scan = { 0 };
	struct stat st;
	char path[2100];
	int fd = push_segment_open(q->dir, s->number, &st);
	size_t n = 0;
	char *p;

	s->size = fd >= 0 ? (uint64_t)st.st_size : 0;
	if (fd >= 0)
		close(fd);
	p = push_segment_load(q->dir, s->number, 0, s->size, &n);
	if (p)
		push_record_scan(p, n, (size_t)front, &scan);
	free(p);
	s->size = scan.end;
	s->samples = scan.samples;
	s->bytes = scan.bytes;
	q->status.bytes += scan.bytes;
	q->status.dropped += scan.lost;
	if (scan.last_ms > q->status.last_ms)
		q->status.last_ms = scan.last_ms;
	push_segment_path(q->dir, s->number, path, sizeof(path));
	if (scan.damaged)
		add_line(message, size,
			 "%llu bytes of %s are damaged, as after a loss of power, and are "
			 "skipped; about %llu samples are lost",
			 (unsigned long long)scan.damaged, path, (unsigned long long)scan.lost);
}

static void find_waiting(struct push_queue *q, char *message, size_t size)
{
	uint64_t first, front;

	read_state(q, &first, &front);
	if (q->next_number < first)
		q->next_number = first;
	while (q->segments && q->segment[0].number < first)
		delete_first(q);
	if (q->segments && q->segment[0].number == first)
		q->front = front;
	for (unsigned i = 0; i < q->segments; i++)
		scan_segment(q, &q->segment[i], i == 0 ? q->front : 0, message, size);
	while (q->segments > 1 && size_of_all(q) > q->limit)
		drop_first(q);
}

static int open_state(struct push_queue *q, char *message, size_t size)
{
	char path[2100];
	struct stat st;

	snprintf(path, sizeof(path), "%s/state", q->dir);
	q->state = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (q->state < 0)
		return file_failed(message, size, path, "opened");
	if (fstat(q->state, &st) != 0 || !S_ISREG(st.st_mode)) {
		snprintf(message, size, "%s is not a regular file; remove it", path);
		return -GW_E_IO;
	}
	if (flock(q->state, LOCK_EX | LOCK_NB) == 0)
		return 0;
	snprintf(message, size,
		 "another process uses the push queue in %s; stop it, or set push.queue_dir to "
		 "another folder",
		 q->dir);
	return -GW_E_STATE;
}

/* Forgets the records of the folder, and counts their samples as dropped. */
static void leave_folder(struct push_queue *q)
{
	while (q->segments)
		forget_last(q);
	if (q->state >= 0)
		close(q->state);
	q->state = -1;
	q->unsynced = q->unsynced_name = false;
}

/* If the service runs as root, refuses a queue folder that other users can change. If parent is
 * true, checks the folder above the queue folder. A sticky folder such as /tmp is allowed
 * there. */
static int refuse_unsafe(const struct push_queue *q, bool parent, char *message, size_t size)
{
	const char *end = strrchr(q->dir, '/');
	char path[2100];

	snprintf(path, sizeof(path), "%.*s",
		 parent && end > q->dir ? (int)(end - q->dir) : (int)strlen(q->dir), q->dir);
	if (!file_is_unsafe_for_root(path))
		return 0;
	snprintf(message, size,
		 "other users can change the push queue in %s; set push.queue_dir to a folder "
		 "that only root can write",
		 q->dir);
	return -GW_E_ARG;
}

/* Opens the folder, or creates it, and finds the records that wait in it. */
static int enter_folder(struct push_queue *q, char *message, size_t size)
{
	bool is_new = access(q->dir, F_OK) != 0;
	int err = refuse_unsafe(q, true, message, size);

	if (!err)
		err = file_make_directory(q->dir, message, size);
	if (!err && is_new && chmod(q->dir, 0700) != 0)
		err = file_failed(message, size, q->dir, "made private");
	if (!err)
		err = refuse_unsafe(q, false, message, size);
	if (!err)
		err = open_state(q, message, size);
	if (!err)
		err = list_segments(q, message, size);
	if (err)
		leave_folder(q);
	else
		find_waiting(q, message, size);
	return err;
}

static bool folder_is_gone(const struct push_queue *q)
{
	char path[2100];
	struct stat ours, there;

	snprintf(path, sizeof(path), "%s/state", q->dir);
	return q->state < 0 || fstat(q->state, &ours) != 0 || lstat(path, &there) != 0 ||
	       ours.st_ino != there.st_ino || ours.st_dev != there.st_dev;
}

static bool active_is_gone(const struct push_queue *q)
{
	struct stat st;

	return q->active >= 0 && fstat(q->active, &st) == 0 && st.st_nlink == 0;
}

/* Makes the folder again if it was deleted or replaced. Without this check, records would be
 * written to a deleted file. Returns 0 with a notice or "" in message, or an error. */
static int find_folder(struct push_queue *q, char *message, size_t size)
{
	bool was_open = q->state >= 0;
	uint64_t before = q->status.dropped;
	char path[2100];
	int err = 0;

	if (folder_is_gone(q)) {
		leave_folder(q);
		err = enter_folder(q, message, size);
		if (!err && was_open)
			add_line(message, size,
				 "the folder %s of the push queue was deleted or replaced; "
				 "gpuward made it again, and %llu samples are lost",
				 q->dir, (unsigned long long)(q->status.dropped - before));
	} else if (active_is_gone(q)) {
		push_segment_path(q->dir, q->segment[q->segments - 1].number, path,
				  sizeof(path));
		forget_last(q);
		snprintf(message, size,
			 "%s of the push queue was deleted; %llu samples are lost", path,
			 (unsigned long long)(q->status.dropped - before));
	}
	return err;
}

int push_queue_add(struct push_queue *q, const struct push_record *r, char *message,
		   size_t size)
{
	uint64_t n = PUSH_RECORD_HEAD + r->n;
	int err = 0;

	if (n > q->limit / 2 || r->n > PUSH_RECORD_MAX) {
		snprintf(message, size,
			 "one record has %llu bytes, more than half of push.queue_bytes; raise "
			 "queue_bytes",
			 (unsigned long long)n);
		return -GW_E_SIZE;
	}
	message[0] = '\0';
	pthread_mutex_lock(&q->lock);
	err = find_folder(q, message, size);
	while (!err && q->segments > 1 && size_of_all(q) + n > q->limit)
		drop_first(q);
	while (!err && append_record(q, r) != 0) {
		/* If the disk is full, delete the oldest segment. The last segment may be
		 * deleted if all its records were sent. */
		bool sent = q->segments == 1 && q->segment[0].size > 0 &&
			    q->front >= q->segment[0].size;

		if ((errno == ENOSPC || errno == EDQUOT) && (q->segments > 1 || sent)) {
			drop_first(q);
			continue;
		}
		err = file_failed(message, size, q->dir, "written");
		break;
	}
	queue_unlock(q);
	return err;
}

int push_queue_open(const char *dir, uint64_t limit, struct push_queue **ret, char *message,
		    size_t size)
{
	struct push_queue *q = calloc(1, sizeof(*q));
	int err;

	message[0] = '\0';
	if (!q)
		return -GW_E_NOMEM;
	pthread_mutex_init(&q->lock, NULL);
	pthread_mutex_init(&q->published_lock, NULL);
	q->state = q->active = -1;
	q->limit = limit;
	q->next_number = 1;
	q->segment_max = limit / 32 < (256u << 10)       ? 256u << 10
			 : limit / 32 > PUSH_SEGMENT_MAX ? PUSH_SEGMENT_MAX
							 : limit / 32;
	if ((size_t)snprintf(q->dir, sizeof(q->dir), "%s", dir) >= sizeof(q->dir)) {
		snprintf(message, size, "the path of the push queue is too long");
		err = -GW_E_SIZE;
	} else {
		err = enter_folder(q, message, size);
	}
	if (err) {
		push_queue_close(q);
		return err;
	}
	q->published = q->status;
	*ret = q;
	return 0;
}

void push_queue_close(struct push_queue *q)
{
	if (!q)
		return;
	push_queue_sync(q);
	if (q->active >= 0)
		close(q->active);
	if (q->state >= 0) {
		(void)fdatasync(q->state);
		close(q->state);
	}
	pthread_mutex_destroy(&q->lock);
	pthread_mutex_destroy(&q->published_lock);
	free(q->segment);
	free(q);
}
