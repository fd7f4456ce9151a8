/* push_protobuf: writes protobuf messages to a buffer, and reads the fields of a small one.
 *
 * The wire format is that of protobuf.dev, "Encoding". A message inside a message is written
 * between protobuf_open() and protobuf_close(), which inserts the length. */
#ifndef GW_DAEMON_PUSH_PROTOBUF_H
#define GW_DAEMON_PUSH_PROTOBUF_H

#include "base/buf.h"

#include <stdint.h>

#define PROTOBUF_VARINT_MAX 10
/* Writes v as a varint; returns the number of bytes. */
unsigned protobuf_varint(uint64_t v, char out[static PROTOBUF_VARINT_MAX]);

void protobuf_uint(struct buf *out, unsigned field, uint64_t v);
void protobuf_double(struct buf *out, unsigned field, double v);
void protobuf_fixed64(struct buf *out, unsigned field, uint64_t v);
void protobuf_string(struct buf *out, unsigned field, const char *s);

/* Begins a message; returns the place that protobuf_close() needs. */
size_t protobuf_open(struct buf *out, unsigned field);
void protobuf_close(struct buf *out, size_t place);

/* One field that was read. */
struct protobuf_field {
	unsigned number;
	uint64_t v;    /* its value if it is a number, else 0 */
	const char *p; /* its bytes if it has a length, else NULL */
	size_t n;
};

/* Reads the next field at *p and advances *p. Returns false at the end, and if the bytes are
 * not protobuf. */
bool protobuf_next(const char **p, const char *end, struct protobuf_field *ret);

#endif
