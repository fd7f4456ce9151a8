/* series: what a few quantities of one GPU were, lately and not so lately.
 *
 * The latest samples are kept as they came; behind them are tiers of 1 s, 10 s and 60 s whose
 * buckets, aligned to the monotonic clock, hold mean, smallest, largest and count of each
 * quantity.  A missing value is NAN and does not count.  History is for looking at: joules are
 * summed where they are read and are never taken from here.
 *
 * One block of memory, taken at the start and written to, so that it does not grow: 12 bytes
 * for a quantity in a bucket, 4 for one in a sample.  The defaults take 1 012 kB, less than
 * 1 MiB.  What that costs: values are kept as float (a counter of joules or bytes loses its low
 * digits), and the mean of a bucket as its place between smallest and largest, right within
 * 1/131070 of their distance.
 *
 * One writer.  Nothing is locked here: a reader copies with series_query() under the lock of
 * the owner. */
#ifndef GW_MEASURE_SERIES_H
#define GW_MEASURE_SERIES_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum series_tier {
	SERIES_RAW, /* samples as they came */
	SERIES_1S,
	SERIES_10S,
	SERIES_60S,
	SERIES_TIERS
};

struct series_options {
	unsigned quantities;           /* 1 to 64 */
	unsigned points[SERIES_TIERS]; /* kept in each tier; 0: no such tier */
};

/* A minute of 100 ms samples, an hour, eight hours, a day. */
#define SERIES_DEFAULTS                       \
	(struct series_options)               \
	{                                     \
		10,                           \
		{                             \
			600, 3600, 2880, 1440 \
		}                             \
	}

struct series_point {
	uint64_t begin_ns;     /* monotonic */
	uint64_t span_ns;      /* of the bucket; 0: a single sample */
	double mean, min, max; /* NAN when count is 0 */
	unsigned count;        /* values in it; 65535: or more */
	bool open;             /* its time is not over */
};

struct series;

/* Bytes that series_new() takes for these; 0 when they make no sense. */
size_t series_bytes(const struct series_options *options);

/* The caller's until series_free().  0, -GW_E_ARG or -GW_E_NOMEM. */
int series_new(const struct series_options *options, struct series **ret_series);
void series_free(struct series *s);

/* One sample: a value for each quantity.  What is no finite number (of a float) is missing.
 * Allocates nothing.  0, or -GW_E_ARG: not later than the one before, and it is left out. */
int series_add(struct series *s, uint64_t t_ns, const double *values);

/* Points of a quantity that begin in [from_ns, to_ns] (a bucket also when it only reaches into
 * from_ns), oldest first, into out.  Taken from the coarsest tier that is still as fine as
 * resolution_ns; from a coarser one where that does not reach back to from_ns or has more than
 * max points.  Where none reaches back, from the one that reaches furthest.  Time in which
 * nothing was added has no points.  The number of points, -GW_E_ARG, or -GW_E_SIZE: every tier
 * that may be taken has more than max, and out is left alone. */
int series_query(const struct series *s, unsigned quantity, uint64_t from_ns, uint64_t to_ns,
		 uint64_t resolution_ns, struct series_point *out, size_t max);

#endif
