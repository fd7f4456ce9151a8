/* stats: time and medians, for benchmarks. */
#ifndef GW_BENCH_STATS_H
#define GW_BENCH_STATS_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static inline double stats_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int stats_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts v. */
static inline double stats_median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), stats_compare);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Returns the first decile of the n values. Sorts v. */
static inline double stats_tenth(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), stats_compare);
	return v[n / 10];
}

#endif
