/* bundle_rebuild: the result of a bundle that has none, made of its readings.
 *
 * A measurement that was killed, or lost its disk, leaves readings and no result.json.  What
 * can be worked out again is; what only the command knew (the environment, counts, baselines,
 * the host) is null. */
#ifndef GW_CLI_BUNDLE_REBUILD_H
#define GW_CLI_BUNDLE_REBUILD_H

#include "base/buf.h"
#include "measure/bundle.h"

/* What the readings of a bundle gave. */
struct bundle_rebuilt {
	struct bundle_summary sum;
	double interval_s; /* between figures; 0: not told */
	unsigned runs;
};

/* Reads the bundle and writes its result (docs/schema/measure.json) onto out.  0, or as
 * bundle_recompute() with a sentence in message. */
int bundle_rebuild(const char *dir, struct bundle_rebuilt *ret, struct buf *out, char *message,
		   size_t size);

#endif
