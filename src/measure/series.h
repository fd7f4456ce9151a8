/* series: the recent history of a few quantities of one GPU, for display; joules are never
 * computed from it.
 *
 * The latest samples are kept unchanged; older data is in tiers of 1 s, 10 s and 60 s. All
 * memory is one block, which is allocated and written at the start, so that memory use does not
 * grow: 1 012 kB with the defaults. A series has no lock of its own: the owner must hold a lock
 * while it adds samples and while a reader copies points with series_query(). */
#ifndef GW_MEASURE_SERIES_H
#define GW_MEASURE_SERIES_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum series_tier {
	SERIES_RAW, /* unchanged samples */
	SERIES_1S,
	SERIES_10S,
	SERIES_60S,
	SERIES_TIERS
};

struct series_options {
	unsigned quantities; /* 1 to 64 */
	/* number of points per tier; 0: the tier does not exist */
	unsigned points[SERIES_TIERS];
};

/* These points hold 100 ms samples for a minute, 1 s buckets for an hour, 10 s buckets for eight
 * hours and 60 s buckets for a day. */
#define SERIES_DEFAULTS                       \
	(struct series_options)               \
	{                                     \
		10,                           \
		{                             \
			600, 3600, 2880, 1440 \
		}                             \
	}

/* One sample or one bucket. Buckets are aligned to the monotonic clock. In memory a bucket takes 12
 * bytes per quantity, and a sample takes 4. To save memory, values are floats, so a counter of
 * joules or bytes loses its low digits. The mean of a bucket is stored as its position between
 * minimum and maximum, with an error of at most 1/131070 of their distance. */
struct series_point {
	uint64_t begin_ns;     /* monotonic */
	uint64_t span_ns;      /* length of the bucket; 0: a single sample */
	double mean, min, max; /* NAN if count is 0 */
	unsigned count;        /* number of values; 65535 means 65535 or more */
	bool open;             /* the bucket has not ended yet */
};

struct series;

/* Returns the number of bytes that series_new() allocates; 0 if the options are invalid. */
size_t series_bytes(const struct series_options *options);

/* Creates a series; the caller frees it with series_free(). Returns 0, -GW_E_ARG or
 * -GW_E_NOMEM. */
int series_new(const struct series_options *options, struct series **ret_series);
void series_free(struct series *s);

/* Adds one sample: a value per quantity. A value that is not finite (as a float) is missing.
 * Allocates nothing. Returns 0, or -GW_E_ARG: the sample is not later than the previous one and
 * is ignored. */
int series_add(struct series *s, uint64_t t_ns, const double *values);

/* Writes the points of a quantity that begin in [from_ns, to_ns] to out, oldest first; a bucket
 * is included if it overlaps from_ns.
 * The points come from the coarsest tier that is at least as fine as resolution_ns. If that
 * tier does not reach back to from_ns or has more than max points, they come from a coarser
 * one; if none reaches back, from the one that reaches furthest. Times without samples have no
 * points.
 * Returns the number of points, -GW_E_ARG, or -GW_E_SIZE: every suitable tier has more than max
 * points; out is unchanged. */
int series_query(const struct series *s, unsigned quantity, uint64_t from_ns, uint64_t to_ns,
		 uint64_t resolution_ns, struct series_point *out, size_t max);

#endif
