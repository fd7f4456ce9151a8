/* bootstrap: intervals of a mean from the sample itself, without a normal distribution.
 *
 * Two intervals from the same resamples: the plain percentile interval, and BCa (Efron 1987),
 * which corrects for bias and for skew.  Both are as if the sample were the population and so
 * come out too short for few values: with 10 normal values a nominal 95 % covers 90 %.  As
 * Hesterberg (2015) proposes, BCa here is taken at the wider level at which a bootstrap of
 * normal data agrees with Student's t; the percentile interval is left as everybody knows it. */
#ifndef GW_MEASURE_BOOTSTRAP_H
#define GW_MEASURE_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#define BOOTSTRAP_RESAMPLES 10000

struct bootstrap {
	double percentile_low, percentile_high;
	double bca_low, bca_high;
	double bias;         /* z0 of BCa */
	double acceleration; /* a of BCa */
};

/* Intervals of the mean of x that miss with probability alpha (two-sided), from `resamples`
 * resamples drawn from the start `seed`: the same arguments give the same bits.  scratch has
 * room for `resamples` numbers.  Where all values are the same the intervals have no width.
 * 0, or -GW_E_ARG: fewer than two values, fewer than 100 resamples, alpha not in (0, 1). */
int bootstrap_mean(const double *x, size_t n, double alpha, size_t resamples, uint64_t seed,
		   double *scratch, struct bootstrap *ret);

#endif
