/* store_block: what a row of the history holds: some moments, and figures of each.
 *
 * In a file a column takes what its values need: nothing when all are missing, four bytes when
 * all are the same, one or two bytes a value when they are multiples of a step (degrees, per
 * cent, megahertz), else a float.  Nothing is lost by it: what does not come back bit by bit
 * is kept as float. */
#ifndef GW_DAEMON_STORE_BLOCK_H
#define GW_DAEMON_STORE_BLOCK_H

#include "base/buf.h"

#include <stdint.h>

#define BLOCK_MOMENTS 60
#define BLOCK_COLUMNS 64

/* The most that block_encode() adds. */
#define BLOCK_BYTES (4 + (BLOCK_COLUMNS + 1) * (5 + 4 * BLOCK_MOMENTS))

struct block {
	uint64_t begin_ms; /* of the first moment; wall time */
	unsigned count;    /* moments                        */
	unsigned columns;
	uint16_t
		offset[BLOCK_MOMENTS]; /* of each, in units that the owner knows; they ascend */
	float *value;                  /* count x columns; NAN: missing */
};

void block_encode(const struct block *b, struct buf *out);

/* Into b, whose value has room for BLOCK_MOMENTS x columns: columns that the bytes lack are NAN,
 * those that they have beyond are left out.  0, or -GW_E_PARSE: that is no block. */
int block_decode(struct block *b, const void *bytes, size_t n);

#endif
