#include "push_queue.h"

#include "base/file.h"

#include <gpuward.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define MAGIC       UINT32_C(0x50757747) /* "GwuP" */
#define STATE_MAGIC UINT32_C(0x53757747)
#define STATE_SIZE  40
#define RECORD_MAX  (48u << 20)
/* The state need not be on disk after each request: after a loss of power, at most this number
 * of requests is sent again. */
#define STATE_SYNC 20

struct push_segment {
	uint64_t number;
	uint64_t size;    /* end of its last record */
	uint64_t samples; /* of records that wait */
	uint64_t bytes;   /* of records that wait */
};

struct push_queue {
	pthread_mutex_t lock; /* protects everything below, also while the disk works */
	char dir[2048];
	uint64_t limit, segment_max;
	struct push_segment *segment; /* oldest first; records are added to the last one */
	unsigned segments;
	uint64_t front; /* position of the next record in the first segment */
	uint64_t next_number;
	int active;                   /* the last segment, open for writing; -1: none */
	bool unsynced, unsynced_name; /* records, and the file name of the last segment */
	int state; /* descriptor of the file "state", which is also the lock of the folder */
	uint64_t state_writes;
	struct push_queue_status status;
	/* A copy of status with its own lock, so that a reader never waits for the disk. */
	pthread_mutex_t published_lock;
	struct push_queue_status published;
};

/* Ends an operation on the queue. */
static void queue_unlock(struct push_queue *q)
{
	pthread_mutex_lock(&q->published_lock);
	q->published = q->status;
	pthread_mutex_unlock(&q->published_lock);
	pthread_mutex_unlock(&q->lock);
}

/* ---- bytes ---- */

static void put32(char *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (char)(v >> 8 * i);
}

static void put64(char *p, uint64_t v)
{
	put32(p, (uint32_t)v);
	put32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const char *p)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < 4; i++)
		v |= (uint32_t)(unsigned char)p[i] << 8 * i;
	return v;
}

static uint64_t get64(const char *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static uint32_t checksum(uint32_t before, const char *p, size_t n)
{
	return (uint32_t)crc32(before, (const Bytef *)p, (uInt)n);
}

/* ---- records ----
 * The head of a record: magic, checksum of everything after it, length of the payload, length
 * before compression (4 bytes each), time in milliseconds (8), samples, protocol (4 each). Then
 * the payload. All numbers are little-endian. */

static void write_head(char head[static PUSH_QUEUE_HEAD], const struct push_record *r)
{
	put32(head, MAGIC);
	put32(head + 8, (uint32_t)r->n);
	put32(head + 12, r->raw_bytes);
	put64(head + 16, (uint64_t)r->time_ms);
	put32(head + 24, r->samples);
	put32(head + 28, r->protocol);
	put32(head + 4, checksum(checksum(0, head + 8, PUSH_QUEUE_HEAD - 8), r->p, r->n));
}

/* Reads a head. Returns false if it is none, or if its record does not fit into `room`. */
static bool read_head(const char *head, uint64_t room, struct push_record *ret)
{
	*ret = (struct push_record){ .protocol = get32(head + 28),
				     .time_ms = (int64_t)get64(head + 16),
				     .samples = get32(head + 24),
				     .raw_bytes = get32(head + 12),
				     .n = get32(head + 8) };
	return get32(head) == MAGIC && ret->n <= RECORD_MAX && ret->n + PUSH_QUEUE_HEAD <= room;
}

static bool is_intact(const char *head, const struct push_record *r, const char *payload)
{
	return get32(head + 4) ==
	       checksum(checksum(0, head + 8, PUSH_QUEUE_HEAD - 8), payload, r->n);
}

size_t push_queue_find(const char *p, size_t n, size_t from, struct push_record *ret)
{
	for (size_t at = from; at + PUSH_QUEUE_HEAD <= n; at++) {
		if (!read_head(p + at, n - at, ret) ||
		    !is_intact(p + at, ret, p + at + PUSH_QUEUE_HEAD))
			continue;
		ret->p = p + at + PUSH_QUEUE_HEAD;
		return at;
	}
	return n;
}

/* ---- files ---- */

static void segment_path(const struct push_queue *q, uint64_t number, char *out, size_t size)
{
	snprintf(out, size, "%s/%016llx.queue", q->dir, (unsigned long long)number);
}

static int open_segment(const struct push_queue *q, uint64_t number, int flags)
{
	char path[2100];

	segment_path(q, number, path, sizeof(path));
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Reads n bytes at a position. Returns false if they are not all there. */
static bool read_at(int fd, char *p, size_t n, uint64_t at)
{
	while (n > 0) {
		ssize_t got = pread(fd, p, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		p += got;
		at += (uint64_t)got;
		n -= (size_t)got;
	}
	return true;
}

static bool write_at(int fd, const char *p, size_t n, uint64_t at)
{
	while (n > 0) {
		ssize_t put = pwrite(fd, p, n, (off_t)at);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		p += put;
		at += (uint64_t)put;
		n -= (size_t)put;
	}
	return true;
}

/* Returns the bytes of a segment from a position on; the caller frees them. NULL: not
 * readable. */
static char *load_segment(const struct push_queue *q, const struct push_segment *s,
			  uint64_t from, size_t *ret_n)
{
	int fd = open_segment(q, s->number, O_RDONLY);
	size_t n = (size_t)(s->size - from);
	char *p = fd >= 0 ? malloc(n + 1) : NULL;

	if (p && !read_at(fd, p, n, from)) {
		free(p);
		p = NULL;
	}
	if (fd >= 0)
		close(fd);
	*ret_n = n;
	return p;
}

/* ---- the state ----
 * Two copies, written in turns, so that one is valid at any time: magic, checksum (4 each),
 * number of the write, segment, position, newest time (8 each). */

static void write_state(struct push_queue *q)
{
	uint64_t number = q->segments ? q->segment[0].number : q->next_number;
	char text[STATE_SIZE];

	q->state_writes++;
	put32(text, STATE_MAGIC);
	put64(text + 8, q->state_writes);
	put64(text + 16, number);
	put64(text + 24, q->front);
	put64(text + 32, (uint64_t)q->status.last_ms);
	put32(text + 4, checksum(0, text + 8, STATE_SIZE - 8));
	/* If the state cannot be written, records are sent again after a restart: no loss. */
	(void)write_at(q->state, text, STATE_SIZE, q->state_writes % 2 * STATE_SIZE);
	if (q->state_writes % STATE_SYNC == 0)
		(void)fdatasync(q->state);
}

static void read_state(struct push_queue *q, uint64_t *ret_segment, uint64_t *ret_front)
{
	*ret_segment = 0;
	*ret_front = 0;
	for (unsigned i = 0; i < 2; i++) {
		char text[STATE_SIZE];

		if (!read_at(q->state, text, STATE_SIZE, i * STATE_SIZE) ||
		    get32(text) != STATE_MAGIC ||
		    get32(text + 4) != checksum(0, text + 8, STATE_SIZE - 8) ||
		    get64(text + 8) < q->state_writes)
			continue;
		q->state_writes = get64(text + 8);
		*ret_segment = get64(text + 16);
		*ret_front = get64(text + 24);
		q->status.last_ms = (int64_t)get64(text + 32);
	}
}

/* ---- segments ---- */

static void delete_first(struct push_queue *q)
{
	char path[2100];

	segment_path(q, q->segment[0].number, path, sizeof(path));
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

/* Deletes segments whose records are all gone. The last one stays while it can be added to. */
static void trim(struct push_queue *q)
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
	fd = open_segment(q, q->next_number, O_RDWR | O_CREAT | O_EXCL);
	if (fd < 0)
		return -1;
	if (q->active >= 0) {
		if (q->unsynced)
			(void)fdatasync(
				q->active); /* push_queue_sync() reaches only the new one */
		close(q->active);
	}
	q->active = fd;
	if (q->segments == 0)
		q->front = 0;
	q->segment[q->segments++] = (struct push_segment){ .number = q->next_number++ };
	q->unsynced_name = true;
	trim(q);
	return 0;
}

static uint64_t size_of_all(const struct push_queue *q)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < q->segments; i++)
		n += q->segment[i].size;
	return n;
}

/* Appends to the last segment, or to a new one. Returns 0, or -1 with errno. */
static int append(struct push_queue *q, const struct push_record *r)
{
	uint64_t n = PUSH_QUEUE_HEAD + r->n;
	char head[PUSH_QUEUE_HEAD];
	struct push_segment *s;

	if ((q->active < 0 || q->segment[q->segments - 1].size + n > q->segment_max) &&
	    begin_segment(q) != 0)
		return -1;
	s = &q->segment[q->segments - 1];
	write_head(head, r);
	/* The head comes last: a record that is only partly written has no valid head. */
	if (!write_at(q->active, r->p, r->n, s->size + PUSH_QUEUE_HEAD) ||
	    !write_at(q->active, head, sizeof(head), s->size)) {
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

int push_queue_add(struct push_queue *q, const struct push_record *r, char *message,
		   size_t size)
{
	uint64_t n = PUSH_QUEUE_HEAD + r->n;
	int err = 0;

	if (n > q->limit / 2 || r->n > RECORD_MAX) {
		snprintf(message, size,
			 "one record has %llu bytes, more than half of push.queue_bytes; raise "
			 "queue_bytes",
			 (unsigned long long)n);
		return -GW_E_SIZE;
	}
	pthread_mutex_lock(&q->lock);
	while (q->segments > 1 && size_of_all(q) + n > q->limit)
		drop_first(q);
	while (append(q, r) != 0) {
		/* A full disk: the oldest records make room. What is left in the last segment has
		 * been sent if the front is at its end. */
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

/* ---- taking ---- */

/* Skips damaged bytes at the front: advances to the next valid record of the first segment, or
 * to its end. Returns false if memory or descriptors are missing: then nothing is skipped. */
static bool skip_damage(struct push_queue *q)
{
	struct push_segment *s = &q->segment[0];
	struct push_record r;
	size_t n, at;
	char *p = load_segment(q, s, q->front, &n);

	if (!p && (errno == ENOMEM || errno == EMFILE || errno == ENFILE))
		return false;
	at = p ? push_queue_find(p, n, 0, &r) : n;
	free(p);
	q->front += at;
	if (q->front < s->size)
		return true;
	q->status.dropped += s->samples;
	q->status.bytes -= s->bytes;
	s->samples = 0;
	s->bytes = 0;
	return true;
}

/* Reads the record at a position of the first segment and appends its payload to out. Returns
 * false if it is damaged. */
static bool read_record(struct push_queue *q, int fd, uint64_t at, struct push_record *ret,
			struct buf *out)
{
	static const char zeros[4096];
	char head[PUSH_QUEUE_HEAD];
	size_t before = out->len;

	if (!read_at(fd, head, sizeof(head), at) ||
	    !read_head(head, q->segment[0].size - at, ret))
		return false;
	for (size_t n = ret->n; n > 0; n -= n < sizeof(zeros) ? n : sizeof(zeros))
		buf_add(out, zeros, n < sizeof(zeros) ? n : sizeof(zeros));
	if (!out->err && read_at(fd, out->p + before, ret->n, at + sizeof(head)) &&
	    is_intact(head, ret, out->p + before))
		return true;
	out->len = before;
	return false;
}

/* Takes as many records as fit from the first segment. */
static void take_from_first(struct push_queue *q, uint64_t raw_max, struct buf *out,
			    struct push_batch *b)
{
	int fd = open_segment(q, q->segment[0].number, O_RDONLY);
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
		b->end += PUSH_QUEUE_HEAD + r.n;
		if (b->raw_bytes >= raw_max)
			break;
	}
	if (fd >= 0)
		close(fd);
	assert(b->records || out->len == begin);
}

bool push_queue_take(struct push_queue *q, uint64_t raw_max, struct buf *out,
		     struct push_batch *ret)
{
	*ret = (struct push_batch){ 0 };
	pthread_mutex_lock(&q->lock);
	for (trim(q); q->segments && q->front < q->segment[0].size; trim(q)) {
		take_from_first(q, raw_max, out, ret);
		if (ret->records || out->err || !skip_damage(q))
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
	/* the segment may have been dropped in the meantime, because the queue was full */
	if (s && s->number == b->segment && b->end > q->front) {
		uint64_t bytes = b->end - q->front < s->bytes ? b->end - q->front : s->bytes;

		q->front = b->end;
		s->samples -= b->samples < s->samples ? b->samples : s->samples;
		s->bytes -= bytes;
		q->status.bytes -= bytes;
		trim(q);
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
	if (fd >= 0) { /* without the lock: the disk may be slow */
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

/* ---- opening ---- */

static int by_number(const void *a, const void *b)
{
	const struct push_segment *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int list_segments(struct push_queue *q)
{
	DIR *d = opendir(q->dir);
	const struct dirent *e;

	if (!d)
		return -GW_E_IO;
	while ((e = readdir(d))) {
		char *end;
		unsigned long long number = strtoull(e->d_name, &end, 16);
		struct push_segment *more;

		if (strcmp(end, ".queue") != 0 || strlen(e->d_name) != 22 ||
		    number == UINT64_MAX)
			continue;
		more = realloc(q->segment, (q->segments + 1) * sizeof(*q->segment));
		if (!more) {
			closedir(d);
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

/* Counts what waits in a segment after position `front`. Sets its size to the end of its last
 * valid record. Returns the number of damaged bytes. */
static uint64_t scan_segment(struct push_queue *q, struct push_segment *s, uint64_t front)
{
	int fd = open_segment(q, s->number, O_RDONLY);
	uint64_t damaged = 0;
	struct push_record r;
	struct stat st;
	size_t n = 0, at = 0;
	char *p;

	s->size = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	if (fd >= 0)
		close(fd);
	p = load_segment(q, s, 0, &n);
	s->size = 0;
	while (p) {
		size_t found = push_queue_find(p, n, at, &r);

		damaged += found - at;
		if (found == n)
			break;
		at = found + PUSH_QUEUE_HEAD + r.n;
		s->size = at;
		if (found >= front) {
			s->samples += r.samples;
			s->bytes += PUSH_QUEUE_HEAD + r.n;
		}
		if (r.time_ms > q->status.last_ms)
			q->status.last_ms = r.time_ms;
	}
	free(p);
	return damaged;
}

static void recover(struct push_queue *q, char *message, size_t size)
{
	uint64_t first, front, damaged = 0;

	read_state(q, &first, &front);
	q->next_number = first ? first : 1;
	if (q->segments && q->segment[q->segments - 1].number >= q->next_number)
		q->next_number = q->segment[q->segments - 1].number + 1;
	while (q->segments && q->segment[0].number < first)
		delete_first(q);
	if (q->segments && q->segment[0].number == first)
		q->front = front;
	for (unsigned i = 0; i < q->segments; i++) {
		damaged += scan_segment(q, &q->segment[i], i == 0 ? q->front : 0);
		q->status.bytes += q->segment[i].bytes;
	}
	while (q->segments > 1 && size_of_all(q) > q->limit)
		drop_first(q);
	if (damaged)
		snprintf(message, size,
			 "%llu bytes of the push queue in %s were damaged, as after a loss of "
			 "power, and are skipped",
			 (unsigned long long)damaged, q->dir);
}

static int open_state(struct push_queue *q, char *message, size_t size)
{
	char path[2100];

	snprintf(path, sizeof(path), "%s/state", q->dir);
	q->state = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (q->state < 0)
		return file_failed(message, size, path, "opened");
	if (flock(q->state, LOCK_EX | LOCK_NB) == 0)
		return 0;
	snprintf(message, size,
		 "another process uses the push queue in %s; stop it, or set push.queue_dir to "
		 "another folder",
		 q->dir);
	return -GW_E_STATE;
}

int push_queue_open(const char *dir, uint64_t limit, struct push_queue **ret, char *message,
		    size_t size)
{
	struct push_queue *q = calloc(1, sizeof(*q));
	bool is_new = access(dir, F_OK) != 0;
	int err;

	message[0] = '\0';
	if (!q)
		return -GW_E_NOMEM;
	pthread_mutex_init(&q->lock, NULL);
	pthread_mutex_init(&q->published_lock, NULL);
	q->state = q->active = -1;
	q->limit = limit;
	q->segment_max = limit / 32 < (256u << 10)  ? 256u << 10
			 : limit / 32 > (64u << 20) ? 64u << 20
						    : limit / 32;
	if ((size_t)snprintf(q->dir, sizeof(q->dir), "%s", dir) >= sizeof(q->dir)) {
		snprintf(message, size, "the path of the push queue is too long");
		err = -GW_E_SIZE;
	} else {
		err = file_make_directory(dir, message, size);
	}
	if (!err && is_new && chmod(dir, 0700) != 0)
		err = file_failed(message, size, dir, "made private");
	if (!err)
		err = open_state(q, message, size);
	if (!err && (err = list_segments(q)) != 0)
		snprintf(message, size, "%s cannot be read", dir);
	if (err) {
		push_queue_close(q);
		return err;
	}
	recover(q, message, size);
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
