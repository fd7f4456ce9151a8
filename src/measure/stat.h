/* stat: statistics of running values and of arrays, reproducible random numbers, and the
 * bootstrap.
 *
 * Pure functions over the caller's memory. Nothing allocates, and the functions for running
 * values cost a few multiplications per value, so the sampling path may use them. A statistic
 * that the data cannot give is NAN, never 0. */
#ifndef GW_MEASURE_STAT_H
#define GW_MEASURE_STAT_H

#include <stddef.h>
#include <stdint.h>

/* Mean, variance and extremes of running values (Welford's recurrence; West's with weights). No
 * large sums are subtracted, so 700 W -+ 1 mW keeps its digits over days. */
struct moments {
	uint64_t count;
	double weight; /* sum of weights: seconds, or the count */
	double mean;   /* 0 while empty: use moments_mean() */
	double m2;     /* weighted sum of squared distances from the mean */
	double min, max;
};

void moments_init(struct moments *m);
void moments_add(struct moments *m, double x);

/* Adds a value that was constant for `weight` (seconds). A weight of 0 or less adds nothing. */
void moments_add_weighted(struct moments *m, double x, double weight);

/* Returns the mean; NAN if nothing was added. */
double moments_mean(const struct moments *m);

/* Returns the sample variance, divided by n - 1, for values that are random draws. NAN for
 * fewer than two values. */
double moments_variance(const struct moments *m);

/* Returns the variance over time, divided by the weight, for a quantity that was observed all
 * the time. NAN if empty. */
double moments_variance_in_time(const struct moments *m);

/* Seconds at each power, in buckets. The upper edge of a bucket is HISTOGRAM_STEP times the
 * lower edge, so a percentile differs from the exact one by at most half a bucket, 0.25 %, at
 * any level. There is an extra bucket below the first edge and one above the last edge; the
 * smallest and the largest value represent them. */
#define HISTOGRAM_LOWEST  0.01 /* W */
#define HISTOGRAM_HIGHEST 1e4  /* W */
#define HISTOGRAM_STEP    1.005
#define HISTOGRAM_BUCKETS 2771 /* ln(1e4 / 0.01) / ln(1.005), rounded up */

struct histogram {
	/* first: below all edges; last: above all edges */
	double seconds[HISTOGRAM_BUCKETS + 2];
	double total_seconds;
	double min, max;
};

void histogram_init(struct histogram *h);

/* Adds a value that was constant for `seconds`. NAN, and seconds of 0 or less, add nothing. */
void histogram_add(struct histogram *h, double x, double seconds);

/* Returns the power that was not exceeded for the share p (0 to 1) of the time; NAN if
 * empty. */
double histogram_percentile(const struct histogram *h, double p);

/* Returns the value at share p (0 to 1) of the n ordered values, linear between neighbours (R's
 * type 7, NumPy's default). Reorders x. NAN if n is 0. Takes time proportional to n. */
double stat_percentile(double *x, size_t n, double p);

/* Returns the sample skewness, corrected for small n (G1 = g1 sqrt(n (n - 1)) / (n - 2)). 0 if
 * all values are equal, NAN for fewer than three values. */
double stat_skewness(const double *x, size_t n);

/* Mann-Kendall test for a trend, corrected for ties and continuity. z > 0: rising. p is
 * two-sided and from the normal distribution, good from about eight values on; z = 0 and p = 1
 * if all values are equal. Makes n^2 comparisons. Returns 0, or -GW_E_ARG for fewer than three
 * values. */
struct trend {
	int64_t s; /* rising pairs minus falling pairs */
	double variance;
	double z, p;
};
int stat_trend(const double *y, size_t n, struct trend *ret);

/* Least squares y = a + b x. residual_sd is NAN for two points. Returns 0, or -GW_E_ARG for
 * fewer than two points or if all x are equal. */
struct line {
	double a, b;
	double residual_sd; /* with n - 2 degrees of freedom */
};
int stat_line(const double *x, const double *y, size_t n, struct line *ret);

/* Reproducible random numbers: xoshiro256** (Blackman and Vigna). splitmix64 fills its state,
 * so that any seed is good. A result stores the seed, so that every interval can be computed
 * again to the last bit. Not for secrets. */
struct random {
	uint64_t s[4];
	uint64_t seed; /* as given to random_init(), for the result */
};

/* Returns the next number of the sequence and advances *state. */
uint64_t splitmix64(uint64_t *state);

void random_init(struct random *r, uint64_t seed);

/* Returns 64 uniform bits. */
uint64_t random_next(struct random *r);

/* Returns 0 to n - 1, all equally likely; n >= 1. */
uint32_t random_below(struct random *r, uint32_t n);

/* Returns a number in [0, 1), a multiple of 2^-53. */
double random_unit(struct random *r);

#define BOOTSTRAP_RESAMPLES 10000

struct bootstrap {
	double percentile_low, percentile_high;
	double bca_low, bca_high;
	double bias;         /* z0 of BCa */
	double acceleration; /* a of BCa */
};

/* Computes two intervals of the mean of x from the same resamples; each does not contain the
 * true mean with probability alpha (two-sided). They are the percentile interval, and BCa
 * (Efron 1987), which corrects for bias and skew.
 * Both treat the sample as the population and are too short for few values: with 10 normal
 * values a nominal 95 % covers 90 %. As Hesterberg (2015) proposes, BCa is taken at the wider
 * level at which a bootstrap of normal data agrees with Student's t; the percentile interval is
 * unchanged.
 * The same arguments, seed included, give the same bits. scratch needs `resamples` elements. If
 * all values are equal, the intervals have no width. Returns 0, or -GW_E_ARG: fewer than two
 * values, fewer than 100 resamples, alpha not in (0, 1). */
int bootstrap_mean(const double *x, size_t n, double alpha, size_t resamples, uint64_t seed,
		   double *scratch, struct bootstrap *ret);

#endif
