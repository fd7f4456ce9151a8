/* push_segment: one file of the push queue, which contains a sequence of records.
 *
 * A record is a head with a checksum, and the payload. Damaged bytes between records are found
 * and skipped. Only regular files of a sane size are read, and opening never blocks.
 * push_queue.c decides when to begin and when to delete a segment. */
#ifndef GW_DAEMON_PUSH_SEGMENT_H
#define GW_DAEMON_PUSH_SEGMENT_H

#include "push_encode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define PUSH_RECORD_HEAD 32
#define PUSH_RECORD_MAX  (48u << 20) /* Maximum bytes of a payload. */
/* Maximum bytes of a segment, unless it has only one record. */
#define PUSH_SEGMENT_MAX (64u << 20)

/* These functions write and read little-endian numbers. push_checksum() is CRC-32; `before`
 * is the checksum of the preceding bytes, or 0. */
void push_put32(char *p, uint32_t v);
void push_put64(char *p, uint64_t v);
uint32_t push_get32(const char *p);
uint64_t push_get64(const char *p);
uint32_t push_checksum(uint32_t before, const char *p, size_t n);

void push_record_write_head(char head[static PUSH_RECORD_HEAD], const struct push_record *r);

/* Reads a head. Returns false if the bytes are not a head, or if the record is longer than
 * `room`. */
bool push_record_read_head(const char *head, uint64_t room, struct push_record *ret);

/* True if the checksum in the head matches the other fields of the head and the payload. */
bool push_record_is_intact(const char *head, const struct push_record *r, const char *payload);

/* Finds the first valid record at or after `from` in the bytes of a segment. Returns its
 * position and sets *ret. Returns n if there is none. */
size_t push_record_find(const char *p, size_t n, size_t from, struct push_record *ret);

/* What a scan found at or after a position in a segment. */
struct push_scan {
	size_t first;            /* Position of the first valid record. n if there is none. */
	size_t end;              /* End of the last valid record in the whole segment. */
	uint64_t samples, bytes; /* Number of samples and of bytes in the valid records. */
	uint64_t damaged;        /* Number of bytes that are not part of a valid record. */
	/* Number of samples in damaged records, as far as their heads can be read. */
	uint64_t lost;
	int64_t last_ms; /* Newest time in the whole segment. 0 if there is no record. */
};
void push_record_scan(const char *p, size_t n, size_t front, struct push_scan *ret);

void push_segment_path(const char *dir, uint64_t number, char *out, size_t size);

/* Returns why a file cannot be a segment, or NULL if it can be one. */
const char *push_segment_refusal(const struct stat *st);

/* Creates a segment with this number. If a file has its name, uses the next number that is
 * free. Returns a descriptor, or -1 with errno. */
int push_segment_create(const char *dir, uint64_t *number);

/* Opens a segment for reading. Returns a descriptor, or -1 with errno. ENODATA means that
 * the file cannot be a segment. */
int push_segment_open(const char *dir, uint64_t number, struct stat *ret);

/* Returns the bytes of a segment between two positions, or to the end of the file. The
 * caller frees them. Returns NULL with errno if they cannot be read. */
char *push_segment_load(const char *dir, uint64_t number, uint64_t from, uint64_t end,
			size_t *ret_n);

/* These functions read or write n bytes at a position. They return false unless all n bytes
 * were read or written. */
bool push_read_at(int fd, char *p, size_t n, uint64_t at);
bool push_write_at(int fd, const char *p, size_t n, uint64_t at);

#endif
