#include "distribution.h"

#include <math.h>
#include <stdbool.h>

/* Above this many degrees of freedom, Student's quantile is computed from the normal quantile
 * by three terms of a series. The relative error is below 3e-11 for every probability that a
 * double can have. */
#define DF_LARGE 1e6

double normal_cdf(double z)
{
	return 0.5 * erfc(-z * M_SQRT1_2);
}

static double normal_density(double z)
{
	return exp(-0.5 * z * z) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
}

/* Returns z > 0 with upper tail q <= 0.5. Starts from Abramowitz and Stegun 26.2.23 (error
 * 4.5e-4); each of Halley's steps cubes the error. */
static double normal_upper(double q)
{
	double s = sqrt(-2 * log(q));
	double z = s - (2.515517 + s * (0.802853 + s * 0.010328)) /
			       (1 + s * (1.432788 + s * (0.189269 + s * 0.001308)));

	for (unsigned i = 0; i < 3; i++) {
		double e = (0.5 * erfc(z * M_SQRT1_2) - q) / normal_density(z);

		z += e / (1 - 0.5 * z * e);
	}
	return z;
}

double normal_quantile(double p)
{
	if (!(p > 0 && p < 1))
		return NAN;
	if (p == 0.5)
		return 0;
	return p < 0.5 ? -normal_upper(p) : normal_upper(1 - p);
}

/* Returns ln Gamma(x) minus Stirling's leading terms, for x >= 10. */
static double stirling_rest(double x)
{
	double r = 1 / (x * x);

	return (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680)))) / x;
}

/* Returns ln Gamma(a + b) - ln Gamma(a) for a >= 10. The difference of two results of lgamma()
 * would lose as many digits as the number `a` has. */
static double log_gamma_step(double a, double b)
{
	return (a - 0.5) * log1p(b / a) + b * (log(a + b) - 1) + stirling_rest(a + b) -
	       stirling_rest(a);
}

static double log_gamma(double x)
{
	int sign;

	/* lgamma() is not used, because it writes the global variable signgam */
	return lgamma_r(x, &sign);
}

static double log_beta(double a, double b)
{
	double large = fmax(a, b), small = fmin(a, b);

	if (large < 10)
		return log_gamma(a) + log_gamma(b) - log_gamma(a + b);
	return log_gamma(small) - log_gamma_step(large, small);
}

/* Computes the continued fraction of I_x(a, b) by Lentz's method. It is fast for x < (a + 1) /
 * (a + b + 2), where it takes about sqrt(max(a, b)) terms. */
static double beta_fraction(double x, double a, double b)
{
	const double tiny = 1e-300;
	double c = 1, d = 1 - (a + b) * x / (a + 1);

	d = 1 / (fabs(d) < tiny ? tiny : d);
	double h = d;

	for (unsigned m = 1; m < 100000; m++) {
		const double terms[] = {
			m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
			-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
		};

		for (unsigned i = 0; i < 2; i++) {
			d = 1 + terms[i] * d;
			c = 1 + terms[i] / c;
			d = 1 / (fabs(d) < tiny ? tiny : d);
			c = fabs(c) < tiny ? tiny : c;
			h *= d * c;
		}
		if (fabs(d * c - 1) < 1e-16)
			break;
	}
	return h;
}

/* Returns the regularised incomplete beta function I_x(a, b), where y = 1 - x. The logarithms
 * are parameters, because computing them from x would lose digits. */
static double beta_part(double x, double y, double log_x, double log_y, double a, double b)
{
	double front = exp(a * log_x + b * log_y - log_beta(a, b));

	if (x <= (a + 1) / (a + b + 2))
		return front * beta_fraction(x, a, b) / a;
	return 1 - front * beta_fraction(y, b, a) / b;
}

/* Returns P(T > t) for t > 0. */
static double student_upper(double t, double df)
{
	double ratio = t * t / df;
	double x = 1 / (1 + ratio), y = ratio / (1 + ratio);

	if (isinf(df))
		return 0.5 * erfc(t * M_SQRT1_2);
	if (isinf(t))
		return 0;
	if (isinf(ratio) || x == 0) /* t^2 overflows: the tail is a power of t */
		return 0.5 / (0.5 * df) *
		       exp(df * (0.5 * log(df) - log(t)) - log_beta(0.5 * df, 0.5));
	if (y == 0)
		return 0.5;

	double log_x = -log1p(ratio), log_y = 2 * log(t) - log(df) + log_x;

	return 0.5 * beta_part(x, y, log_x, log_y, 0.5 * df, 0.5);
}

static double student_density(double t, double df)
{
	return exp(-0.5 * (df + 1) * log1p(t * t / df) - 0.5 * log(df) -
		   log_beta(0.5 * df, 0.5));
}

/* Computes Cornish and Fisher's expansion in 1/df. */
static double upper_near_normal(double q, double df)
{
	double z = normal_upper(q), z2 = z * z;

	return z * (1 + ((z2 + 1) / 4 + ((5 * z2 + 16) * z2 + 3) / (96 * df)) / df);
}

/* Returns t > 0 with upper tail q < 0.5, for 1 <= df <= DF_LARGE. The result lies between the
 * normal and the Cauchy quantile. Newton's steps use log(tail) over log(t), which is nearly a
 * straight line in the far tail; a step that leaves the bracket is replaced by a bisection. */
static double student_upper_quantile(double q, double df)
{
	double low = log(normal_upper(q)), high = -log(tan(M_PI * q));
	double u = log(upper_near_normal(q, df));

	if (!(u >= low && u <= high))
		u = 0.5 * (low + high);
	for (unsigned i = 0; i < 200; i++) {
		double t = exp(u), tail = student_upper(t, df);

		if (tail > q)
			low = u;
		else
			high = u;

		double step = log(tail / q) * tail / (t * student_density(t, df));
		double next = u + step;

		if (!(next > low && next < high))
			next = 0.5 * (low + high);
		bool converged = fabs(next - u) <= 1e-14 * (1 + fabs(u));

		u = next;
		if (converged)
			break;
	}
	return exp(u);
}

static double upper_quantile(double q, double df)
{
	if (isinf(df))
		return normal_upper(q);
	if (df == 1)
		return 1 / tan(M_PI * q);
	return df > DF_LARGE ? upper_near_normal(q, df) : student_upper_quantile(q, df);
}

double student_quantile(double p, double df)
{
	if (!(p > 0 && p < 1) || !(df >= 1))
		return NAN;
	if (p == 0.5)
		return 0;
	return p < 0.5 ? -upper_quantile(p, df) : upper_quantile(1 - p, df);
}

double student_factor(double alpha, double df)
{
	if (!(alpha > 0 && alpha < 1) || !(df >= 1))
		return NAN;
	return upper_quantile(0.5 * alpha, df);
}

double welch_df(const double *u2, const double *df, size_t n)
{
	double sum = 0, spread = 0;

	for (size_t i = 0; i < n; i++) {
		sum += u2[i];
		spread += u2[i] * u2[i] / df[i];
	}
	if (!(sum > 0))
		return NAN;
	return spread > 0 ? sum * sum / spread : INFINITY;
}
