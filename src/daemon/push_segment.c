#include "push_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define MAGIC UINT32_C(0x50757747) /* "GwuP" */
/* Minimum size of a sample: its value has eight bytes. A head with more samples than fit into
 * the payload is damaged. */
#define SAMPLE_MIN 8
/* A larger file is not a segment: a segment that is longer than PUSH_SEGMENT_MAX has only one
 * record. */
#define SEGMENT_SANE ((uint64_t)PUSH_SEGMENT_MAX + PUSH_RECORD_MAX + PUSH_RECORD_HEAD)
#define PATH_BYTES   2100

void push_put32(char *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (char)(v >> 8 * i);
}

void push_put64(char *p, uint64_t v)
{
	push_put32(p, (uint32_t)v);
	push_put32(p + 4, (uint32_t)(v >> 32));
}

uint32_t push_get32(const char *p)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < 4; i++)
		v |= (uint32_t)(unsigned char)p[i] << 8 * i;
	return v;
}

uint64_t push_get64(const char *p)
{
	return push_get32(p) | (uint64_t)push_get32(p + 4) << 32;
}

uint32_t push_checksum(uint32_t before, const char *p, size_t n)
{
	return (uint32_t)crc32(before, (const Bytef *)p, (uInt)n);
}

/* A record is a head and a payload. The head has a magic number, the checksum of everything
 * after it, the length of the payload and its length before compression (4 bytes each), the
 * time in milliseconds (8 bytes), the number of samples and the protocol (4 bytes each). All
 * numbers are little-endian. */

static uint32_t record_checksum(const char *head, const char *payload, size_t n)
{
	return push_checksum(push_checksum(0, head + 8, PUSH_RECORD_HEAD - 8), payload, n);
}

void push_record_write_head(char head[static PUSH_RECORD_HEAD], const struct push_record *r)
{
	push_put32(head, MAGIC);
	push_put32(head + 8, (uint32_t)r->n);
	push_put32(head + 12, r->raw_bytes);
	push_put64(head + 16, (uint64_t)r->time_ms);
	push_put32(head + 24, r->samples);
	push_put32(head + 28, r->protocol);
	push_put32(head + 4, record_checksum(head, r->p, r->n));
}

bool push_record_read_head(const char *head, uint64_t room, struct push_record *ret)
{
	*ret = (struct push_record){ .protocol = push_get32(head + 28),
				     .time_ms = (int64_t)push_get64(head + 16),
				     .samples = push_get32(head + 24),
				     .raw_bytes = push_get32(head + 12),
				     .n = push_get32(head + 8) };
	return push_get32(head) == MAGIC && ret->n <= PUSH_RECORD_MAX &&
	       ret->n + PUSH_RECORD_HEAD <= room;
}

bool push_record_is_intact(const char *head, const struct push_record *r, const char *payload)
{
	return push_get32(head + 4) == record_checksum(head, payload, r->n);
}

size_t push_record_find(const char *p, size_t n, size_t from, struct push_record *ret)
{
	for (size_t at = from; at + PUSH_RECORD_HEAD <= n; at++) {
		if (!push_record_read_head(p + at, n - at, ret) ||
		    !push_record_is_intact(p + at, ret, p + at + PUSH_RECORD_HEAD))
			continue;
		ret->p = p + at + PUSH_RECORD_HEAD;
		return at;
	}
	return n;
}

/* Returns the number of samples in the damaged record at a position, or 0 if its head cannot be
 * read or is implausible. */
static uint64_t lost_samples(const char *p, size_t n, size_t at)
{
	struct push_record r;

	return at + PUSH_RECORD_HEAD <= n && push_record_read_head(p + at, UINT64_MAX, &r) &&
			       r.samples <= r.raw_bytes / SAMPLE_MIN
		       ? r.samples
		       : 0;
}

void push_record_scan(const char *p, size_t n, size_t front, struct push_scan *ret)
{
	struct push_record r;

	*ret = (struct push_scan){ .first = n };
	for (size_t at = 0, found; at < n; at = found + PUSH_RECORD_HEAD + r.n) {
		/* Damage before `front` is no loss, because the records there were already
		 * sent. */
		size_t bad = at > front ? at : front;

		found = push_record_find(p, n, at, &r);
		if (found > bad) {
			ret->damaged += found - bad;
			ret->lost += lost_samples(p, n, bad);
		}
		if (found == n)
			break;
		ret->end = found + PUSH_RECORD_HEAD + r.n;
		ret->last_ms = r.time_ms > ret->last_ms ? r.time_ms : ret->last_ms;
		if (found < front)
			continue;
		ret->first = found < ret->first ? found : ret->first;
		ret->samples += r.samples;
		ret->bytes += PUSH_RECORD_HEAD + r.n;
	}
}

void push_segment_path(const char *dir, uint64_t number, char *out, size_t size)
{
	snprintf(out, size, "%s/%016llx.queue", dir, (unsigned long long)number);
}

static int open_segment(const char *dir, uint64_t number, int flags)
{
	char path[PATH_BYTES];

	push_segment_path(dir, number, path, sizeof(path));
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

const char *push_segment_refusal(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "it is not a regular file";
	return (uint64_t)st->st_size > SEGMENT_SANE ? "it is too large" : NULL;
}

int push_segment_create(const char *dir, uint64_t *number)
{
	int fd;

	while ((fd = open_segment(dir, *number, O_RDWR | O_CREAT | O_EXCL)) < 0 &&
	       errno == EEXIST)
		++*number; /* A file of another program has this name. */
	return fd;
}

int push_segment_open(const char *dir, uint64_t number, struct stat *ret)
{
	int fd = open_segment(dir, number, O_RDONLY);

	if (fd >= 0 && (fstat(fd, ret) != 0 || push_segment_refusal(ret))) {
		close(fd);
		errno = ENODATA;
		return -1;
	}
	return fd;
}

bool push_read_at(int fd, char *p, size_t n, uint64_t at)
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

bool push_write_at(int fd, const char *p, size_t n, uint64_t at)
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

char *push_segment_load(const char *dir, uint64_t number, uint64_t from, uint64_t end,
			size_t *ret_n)
{
	struct stat st;
	int fd = push_segment_open(dir, number, &st);
	uint64_t stop = fd >= 0 && (uint64_t)st.st_size < end ? (uint64_t)st.st_size : end;
	size_t n = stop > from ? (size_t)(stop - from) : 0;
	char *p = fd >= 0 ? malloc(n + 1) : NULL;
	int e = errno;

	if (p && !push_read_at(fd, p, n, from)) {
		e = EIO;
		free(p);
		p = NULL;
	}
	if (fd >= 0)
		close(fd);
	errno = e;
	*ret_n = n;
	return p;
}
