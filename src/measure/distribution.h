/* distribution: the normal and Student's distribution and their inverses, as pure functions.
 *
 * Every interval that gpuward reports is a mean plus and minus a standard uncertainty times a
 * factor from this module. Quantiles and both tails have a relative error below 1e-10 (compared
 * with 60-digit arithmetic) for 1 to infinitely many degrees of freedom. Arguments outside the
 * domain give NAN. */
#ifndef GW_MEASURE_DISTRIBUTION_H
#define GW_MEASURE_DISTRIBUTION_H

#include <stddef.h>

#define NORMAL_95 1.959964 /* the factor of a two-sided interval of 95 % */

/* Returns P(Z <= z) of the standard normal distribution. */
double normal_cdf(double z);

/* Returns the z with normal_cdf(z) == p, 0 < p < 1. */
double normal_quantile(double p);

/* Returns the t with P(T <= t) == p, 0 < p < 1, for df >= 1 degrees of freedom; df may be
 * INFINITY (normal). */
double student_quantile(double p, double df);

/* Returns the factor k of a two-sided interval, mean -+ k * u. The interval misses the true
 * value with probability alpha. The result is student_quantile(1 - alpha/2, df), but without
 * the loss of digits in 1 - alpha/2. */
double student_factor(double alpha, double df);

/* Returns the degrees of freedom of the sum of n independent variances of means, by
 * Welch-Satterthwaite. u2[i] is a variance (s^2 divided by the number of values), and df[i] its
 * degrees of freedom: INFINITY if the variance is known exactly. Returns NAN if the sum is
 * 0. */
double welch_df(const double *u2, const double *df, size_t n);

#endif
