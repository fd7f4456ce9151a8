/* push_wire: the two encodings of a pushed request, protobuf and Snappy.
 *
 * protobuf_* functions write protobuf messages to a buffer, and read the fields of a small one.
 * The wire format is that of protobuf.dev, "Encoding". A message inside a message is written
 * between protobuf_open() and protobuf_close(), which inserts the length. */
#ifndef GW_DAEMON_PUSH_WIRE_H
#define GW_DAEMON_PUSH_WIRE_H

#include "base/buf.h"

#include <stdint.h>

#define PROTOBUF_VARINT_MAX 10
/* Writes v as a varint. Returns the number of bytes. */
unsigned protobuf_varint(uint64_t v, char out[static PROTOBUF_VARINT_MAX]);

void protobuf_uint(struct buf *out, unsigned field, uint64_t v);
void protobuf_double(struct buf *out, unsigned field, double v);
void protobuf_fixed64(struct buf *out, unsigned field, uint64_t v);
void protobuf_string(struct buf *out, unsigned field, const char *s);

/* Begins a message. Returns the position that protobuf_close() needs. */
size_t protobuf_open(struct buf *out, unsigned field);
void protobuf_close(struct buf *out, size_t place);

/* One field that was read. */
struct protobuf_field {
	unsigned number;
	uint64_t v;    /* The value, if the field is a number. Otherwise 0. */
	const char *p; /* The bytes, if the field has a length. Otherwise NULL. */
	size_t n;
};

/* Reads the next field at *p and advances *p. Returns false at the end, and if the bytes are
 * not protobuf. */
bool protobuf_next(const char **p, const char *end, struct protobuf_field *ret);

/* Snappy's block format compresses the data of remote write. A block is the length of the data
 * as a varint, followed by elements. Copy elements refer only to earlier bytes of the same
 * call. Therefore the elements of several calls can be appended to each other, and the result
 * is valid for the joined data. The queue stores elements without the length, so that records
 * can be joined without decompressing them. Compresses n bytes and appends the elements, which
 * have at most n + n / 6 + 32 bytes. */
void push_snappy_add(struct buf *out, const char *p, size_t n);

#endif
