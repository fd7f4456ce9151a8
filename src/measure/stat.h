/* stat: statistics of running values and of arrays, reproducible random numbers, the bootstrap,
 * and the comparison of two results.
 *
 * Pure functions over the caller's memory. Nothing allocates, and the functions for running
 * values cost a few multiplications per value, so the sampling path may use them. A statistic
 * that the data cannot give is NAN, never 0. */
#ifndef GW_MEASURE_STAT_H
#define GW_MEASURE_STAT_H

#include <gpuward.h>

#include <stddef.h>
#include <stdint.h>

/* Returns the standard uncertainty of an interval of 95 %. Uses the high end, because the low
 * end may be cut at 0. */
double interval_u(const struct gw_interval *v);

/* Mean, variance and extremes of running values, by Welford's recurrence (with weights,
 * West's). No large sums are subtracted, so the variance of values near 700 W that differ by 1
 * mW stays exact over days. */
struct moments {
	uint64_t count;
	double weight; /* sum of the weights; equal to count without weights */
	double mean;   /* 0 if nothing was added; moments_mean() returns NAN then */
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

/* The mean over runs and its 95 % interval. A run has two kinds of uncertainty: one differs
 * from run to run, the other is the same error in all runs (gain and offset of the sensor, the
 * baseline), so that more runs do not reduce it. */
struct run_mean {
	struct moments moments; /* of the values */
	/* Private: */
	double own2_sum;   /* sum of the squares of u_own; NAN: unknown */
	double shared_sum; /* sum of the shared uncertainties; NAN: unknown */
};

void run_mean_init(struct run_mean *m);

/* Adds a run. u_all is its standard uncertainty in the unit of value. u_own is the part of
 * u_all that differs from run to run. NAN means unknown. If only one of u_own and u_all is
 * known, it counts as the whole uncertainty. */
void run_mean_add(struct run_mean *m, double value, double u_own, double u_all);

/* run_mean_u_own() returns the part of a run's standard uncertainty that differs from run to
 * run, as the root mean square over the runs. run_mean_u_shared() returns the part that is the
 * same in all runs. NAN: unknown. */
double run_mean_u_own(const struct run_mean *m);
double run_mean_u_shared(const struct run_mean *m);

/* Returns half the width of the 95 % interval without the shared error, for a comparison of
 * runs that all have this error. For two or more runs, this is Student's t times the standard
 * error; the own uncertainty of each run is not added, because the scatter of the runs contains
 * it. For one run, this is the normal factor times the run's own uncertainty. */
double run_mean_reach_own(const struct run_mean *m);

/* Returns half the width of the 95 % interval of the true value: run_mean_reach_own() and the
 * normal factor times the shared uncertainty, added in quadrature. The interval contains the
 * true value in 95 % of the cases or slightly more. NAN: unknown. */
double run_mean_reach(const struct run_mean *m);

/* Seconds at each power, in buckets. The upper edge of a bucket is HISTOGRAM_STEP times the
 * lower edge, so a percentile differs from the exact one by at most half a bucket, 0.25 %, at
 * any level. There is an extra bucket below the first edge and one above the last edge; the
 * smallest and the largest value represent them. */
#define HISTOGRAM_LOWEST  0.01 /* W */
#define HISTOGRAM_HIGHEST 1e4  /* W */
#define HISTOGRAM_STEP    1.005
#define HISTOGRAM_BUCKETS 2771 /* ln(1e4 / 0.01) / ln(1.005), rounded up */

struct histogram {
	/* The first element is for values below all edges, the last one for values above all
	 * edges. */
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

/* Reproducible random numbers: xoshiro256** (Blackman and Vigna). splitmix64 fills its state,
 * so that any seed is good. A result stores the seed, so that every interval can be computed
 * again to the last bit. Do not use it for secrets. */
struct random {
	uint64_t s[4]; /* the state of xoshiro256** */
	uint64_t seed; /* as given to random_init(), for the result */
};

/* Returns the next number of the generator splitmix64 and advances *state. */
uint64_t splitmix64(uint64_t *state);

void random_init(struct random *r, uint64_t seed);

/* Returns 64 uniform bits. */
uint64_t random_next(struct random *r);

/* Returns 0 to n - 1, all equally likely; n >= 1. */
uint32_t random_below(struct random *r, uint32_t n);

#define BOOTSTRAP_RESAMPLES 10000

struct bootstrap {
	double percentile_low, percentile_high; /* the percentile interval */
	double bca_low, bca_high;               /* the BCa interval */
	double bias;                            /* bias correction of BCa (z0) */
	double acceleration;                    /* acceleration of BCa (a) */
};

/* Computes two intervals of the mean of x from the same resamples; each misses the true mean
 * with probability alpha (two-sided). They are the percentile interval, and BCa (Efron 1987),
 * which corrects for bias and skew.
 * Both treat the sample as the population. So they are too short for few values: with 10 normal
 * values, a nominal interval of 95 % contains the mean in 90 % of the cases. As Hesterberg
 * (2015) proposes, BCa is taken at the wider level at which a bootstrap of normal data agrees
 * with Student's t; the percentile interval is unchanged.
 * The same arguments, seed included, give the same bits. scratch needs `resamples` elements. If
 * all values are equal, the intervals have no width. Returns 0, or -GW_E_ARG for fewer than two
 * values, fewer than 100 resamples, or an alpha that is not between 0 and 1. */
int bootstrap_mean(const double *x, size_t n, double alpha, size_t resamples, uint64_t seed,
		   double *scratch, struct bootstrap *ret);

/* Compares results that were measured separately; ab.h compares pairs. Everything is computed
 * on logarithms. So ratios of 2 and 1/2 are equally far from 1, and the gain error of the board
 * cancels, because it is the same factor in both results. Changes are relative (0.02 is two
 * percent more than the first), and NAN is unknown. */

/* One arm of a comparison: the same quantity (joules, seconds, watts; above 0), measured once
 * or in several runs. */
struct compare_arm {
	const double *runs; /* one value per run; used only during the call */
	size_t n;
	/* relative standard uncertainty of one run, without the parts from gain and offset,
	 * which a ratio handles separately; NAN: unknown */
	double u_ratio;
};

enum compare_basis {
	COMPARE_TRIALS, /* the scatter of the runs of both arms: Welch's t on logarithms */
	/* One arm has a single run. The scatter of the other arm is used for both arms. */
	COMPARE_ONE_SIDE,
	/* Both arms have a single run. Only their stated uncertainties are used, which are
	 * assumed to be normal. */
	COMPARE_BUDGET,
	/* Scatter and stated uncertainty are unknown, so the ratio has no interval. */
	COMPARE_NONE,
};

struct compare_change {
	enum compare_basis basis;
	double ratio;  /* row / first: exp of the difference of the mean logarithms */
	double change; /* ratio - 1 */
	double change_low, change_high; /* the interval of change; NAN: unknown */
	double df; /* degrees of freedom of the scatter; INFINITY: no scatter */
};

/* Computes the change from first to row.
 *
 * If both arms have at least two runs, the scatter of each arm is used. u_ratio is not added,
 * because variation between runs is already in the scatter.
 *
 * If one arm has a single run, s^2 (1 + 1/n) of the other arm is used, and u_ratio of the
 * single run if known.
 *
 * If both arms have a single run, u_ratio of both runs is used. In this case the scatter is
 * unknown, so there is no verdict.
 *
 * u_extra_log is a standard uncertainty of ln(ratio) that more runs do not reduce, such as
 * compare_offset(); 0 means none; NAN means unknown, and then there is no interval. Scatter is
 * multiplied by Student's factor, stated uncertainty by the normal one; the root of the sum of
 * squares is half the interval on logarithms. alpha is the probability that the interval does
 * not contain the true value: 0.05 for 95 %.
 *
 * Returns 0, or -GW_E_ARG for an arm without runs, a value that is not finite or not above 0, a
 * negative uncertainty, or an alpha that is not between 0 and 1. */
int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret);

/* The conclusion from a change. Tables and charts choose words and colour by it. */
enum compare_verdict {
	COMPARE_LESS, /* the whole interval lies below 0 */
	COMPARE_MORE, /* the whole interval lies above 0 */
	COMPARE_OPEN, /* the interval contains 0 */
	/* both arms have one run, so the scatter is unknown; or there is no interval */
	COMPARE_UNKNOWN,
};
enum compare_verdict compare_verdict(const struct compare_change *c);

/* Returns the uncertainty of ln(energy ratio) that comes from the sensor's offset; offset_w is
 * the standard uncertainty of the offset. The returned value is 0 if both arms have the same
 * mean power. It is the same for ratios of mean power and of the energy-delay product. A ratio
 * of times has no such uncertainty. */
double compare_offset(double offset_w, double first_mean_w, double row_mean_w);

#endif
