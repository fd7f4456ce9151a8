/* Any bytes as a row of the history: no crash; an accepted row is encoded and decoded with the
 * same values. */
#include "text.h"

#include "daemon/store_block.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static float value[BLOCK_MOMENTS * BLOCK_COLUMNS], again[BLOCK_MOMENTS * BLOCK_COLUMNS];
	struct block a = { .value = value }, b = { .value = again };
	struct buf out;

	if (size == 0)
		return 0;
	a.columns = b.columns = data[0] % (BLOCK_COLUMNS + 1);
	if (block_decode(&a, data + 1, size - 1) != 0)
		return 0;
	buf_init(&out, BLOCK_BYTES + 1);
	block_encode(&a, &out);
	if (out.err || block_decode(&b, out.p, out.len) != 0 || a.count != b.count ||
	    a.count > BLOCK_MOMENTS ||
	    memcmp(a.offset, b.offset, a.count * sizeof(*a.offset)) != 0)
		abort();
	for (size_t i = 0; i < (size_t)a.count * a.columns; i++)
		if (value[i] != again[i] && !(isnan(value[i]) && isnan(again[i])))
			abort();
	buf_done(&out);
	return 0;
}
