/* store_block: encodes a row of the history: the values of several moments.
 *
 * A column takes as many bytes as its values need: none if all values are missing, four if all
 * are the same, one or two per value if all are multiples of a step (degrees, percent,
 * megahertz). Otherwise each value is stored as a float. The encoding is lossless: values that
 * would not decode to the same bits are stored as float. */
#ifndef GW_DAEMON_STORE_BLOCK_H
#define GW_DAEMON_STORE_BLOCK_H

#include "base/buf.h"

#include <stdint.h>

#define BLOCK_MOMENTS 60
#define BLOCK_COLUMNS 64

/* Maximum number of bytes that block_encode() adds. */
#define BLOCK_BYTES (4 + (BLOCK_COLUMNS + 1) * (5 + 4 * BLOCK_MOMENTS))

struct block {
	uint64_t begin_ms; /* Wall time of the first moment. */
	unsigned count;    /* Number of moments. */
	unsigned columns;  /* Number of values per moment. */
	/* Time from begin_ms to each moment, ascending, in the unit of the tier (struct
	 * tier). */
	uint16_t offset[BLOCK_MOMENTS];
	float *value; /* count x columns values. A missing value is NAN. */
};

void block_encode(const struct block *b, struct buf *out);

/* Decodes into b, which must have space for BLOCK_MOMENTS x columns values. Columns that are
 * missing in the bytes become NAN; additional columns are skipped. Returns 0, or -GW_E_PARSE
 * if the bytes are not a block. */
int block_decode(struct block *b, const void *bytes, size_t n);

#endif
