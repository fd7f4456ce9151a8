/* stat: what a row of numbers says, as running sums or over an array.
 *
 * Pure functions over the caller's memory; nothing here allocates, and the running ones cost a
 * few multiplications per value, so the sampling path may use them.  A figure that the data
 * cannot give is NAN, never 0. */
#ifndef GW_MEASURE_STAT_H
#define GW_MEASURE_STAT_H

#include <stddef.h>
#include <stdint.h>

/* ---- running moments ------------------------------------------------------------------ */

/* Mean, spread and extremes of values as they come (Welford's recurrence; West's with weights):
 * no large sums are subtracted, so 700 W -+ 1 mW keeps its digits over days. */
struct moments {
	uint64_t count;
	double weight; /* sum of weights: seconds, or the count */
	double mean;   /* 0 while empty: use moments_mean() */
	double m2;     /* weighted sum of squared distances from the mean */
	double min, max;
};

void moments_init(struct moments *m);
void moments_add(struct moments *m, double x);

/* x held for `weight` (seconds).  A weight of 0 or less adds nothing. */
void moments_add_weighted(struct moments *m, double x, double weight);

/* NAN while nothing was added. */
double moments_mean(const struct moments *m);

/* Sample variance, divided by n - 1: values added by moments_add() are draws, and this estimates
 * what they were drawn from.  NAN below two values. */
double moments_variance(const struct moments *m);

/* Divided by the weight: how a quantity that was watched all the time varied in that time.
 * NAN while empty. */
double moments_variance_in_time(const struct moments *m);

/* ---- histogram ------------------------------------------------------------------------- */

/* Seconds spent at each power, in buckets whose upper edge is HISTOGRAM_STEP times the lower:
 * a percentile is within half a bucket, 0.25 %, of the exact one, whatever the level.  Below the
 * first edge and from the last one up there is one bucket each; there the smallest and the
 * largest value stand in. */
#define HISTOGRAM_LOWEST  0.01 /* W */
#define HISTOGRAM_HIGHEST 1e4  /* W */
#define HISTOGRAM_STEP    1.005
#define HISTOGRAM_BUCKETS 2771 /* ln(1e4 / 0.01) / ln(1.005), rounded up */

struct histogram {
	double seconds[HISTOGRAM_BUCKETS + 2]; /* first: below all, last: above all */
	double total_seconds;
	double min, max;
};

void histogram_init(struct histogram *h);

/* x held for `seconds`.  NAN, and seconds of 0 or less, add nothing. */
void histogram_add(struct histogram *h, double x, double seconds);

/* The value below which the share p (0 to 1) of the time lies; NAN while empty. */
double histogram_percentile(const struct histogram *h, double p);

/* ---- arrays ---------------------------------------------------------------------------- */

/* The value at share p (0 to 1) of the n ordered values, straight between neighbours (the
 * definition of R's type 7 and of NumPy's default).  Reorders x.  NAN where n is 0.  Takes time in
 * proportion to n. */
double stat_percentile(double *x, size_t n, double p);

/* Sample skewness, corrected for small n (G1 = g1 sqrt(n (n - 1)) / (n - 2)).  0 where all
 * values are the same, NAN below three values. */
double stat_skewness(const double *x, size_t n);

/* Mann-Kendall test of a trend, with the correction for ties and for continuity.  z > 0: rising.
 * p is two-sided and normal, good from some eight values on; z = 0, p = 1 where all values are
 * the same.  n^2 comparisons.  0, or -GW_E_ARG below three values. */
struct trend {
	int64_t s; /* pairs that rise less pairs that fall */
	double variance;
	double z, p;
};
int stat_trend(const double *y, size_t n, struct trend *ret);

/* Least squares y = a + b x.  Standard errors are NAN for two points.  0, or -GW_E_ARG for fewer
 * than two, or where all x are the same. */
struct line {
	double a, b;
	double a_se, b_se;
	double residual_sd; /* with n - 2 degrees of freedom */
};
int stat_line(const double *x, const double *y, size_t n, struct line *ret);

#endif
