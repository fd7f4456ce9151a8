/* push_snappy: compresses bytes in Snappy's block format, for remote write.
 *
 * A block is the length of the data as a varint, then elements. Copies refer only to earlier
 * bytes of the same call, so the elements of several calls, one after the other, are the
 * elements of the joined data. The queue stores elements without the length; therefore records
 * can be joined without decompressing them. */
#ifndef GW_DAEMON_PUSH_SNAPPY_H
#define GW_DAEMON_PUSH_SNAPPY_H

#include "base/buf.h"

/* Appends the elements of n bytes, at most n + n / 6 + 32 bytes. */
void push_snappy_add(struct buf *out, const char *p, size_t n);

#endif
