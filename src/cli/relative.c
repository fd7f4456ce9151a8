#include "relative.h"

#include <gpuward.h>

#include <math.h>
#include <stdbool.h>

/* I_x(a, b) by the continued fraction of DLMF 8.17.22 (Lentz), on the side where it is short. */
static double incomplete_beta(double x, double a, double b)
{
	double front, c = 1, d, h;

	if (x <= 0 || x >= 1)
		return x <= 0 ? 0 : 1;
	if (x > (a + 1) / (a + b + 2))
		return 1 - incomplete_beta(1 - x, b, a);
	front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a;
	d = 1 / (1 - (a + b) * x / (a + 1));
	h = d;
	for (int m = 1; m < 300; m++) {
		double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
		double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));

		d = 1 / (1 + even * d);
		c = 1 + even / c;
		h *= d * c;
		d = 1 / (1 + odd * d);
		c = 1 + odd / c;
		h *= d * c;
		if (fabs(d * c - 1) < 1e-14)
			break;
	}
	return front * h;
}

/* P(|T| >= t). */
static double two_sided(double t, double df)
{
	return isinf(df) ? erfc(t / sqrt(2)) : incomplete_beta(df / (df + t * t), df / 2, 0.5);
}

double student_factor(double alpha, double df)
{
	double low = 0, high = 1;

	if (!(df >= 1) || !(alpha > 0 && alpha < 1))
		return NAN;
	while (two_sided(high, df) > alpha)
		high *= 2;
	for (int i = 0; i < 100; i++) {
		double mid = (low + high) / 2;

		if (two_sided(mid, df) > alpha)
			low = mid;
		else
			high = mid;
	}
	return high;
}

struct logs {
	double n, mean, variance; /* of one run; NAN for one */
};

static int logs_of(const struct compare_arm *arm, struct logs *ret)
{
	double mean = 0, m2 = 0;

	if (arm->n == 0 || arm->u_ratio < 0)
		return -GW_E_ARG;
	for (size_t i = 0; i < arm->n; i++) {
		double away;

		if (!isfinite(arm->runs[i]) || !(arm->runs[i] > 0))
			return -GW_E_ARG;
		away = log(arm->runs[i]) - mean;
		mean += away / (double)(i + 1);
		m2 += away * (log(arm->runs[i]) - mean);
	}
	*ret = (struct logs){ (double)arm->n, mean,
			      arm->n > 1 ? m2 / ((double)arm->n - 1) : NAN };
	return 0;
}

static double arm_budget(const struct compare_arm *arm)
{
	return arm->u_ratio * arm->u_ratio / (double)arm->n;
}

int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret)
{
	struct logs a, b;
	struct compare_change c;
	double ua, ub, all, reach;
	bool trials = first->n > 1 && row->n > 1;

	if (!(u_extra_log >= 0) || logs_of(first, &a) != 0 || logs_of(row, &b) != 0)
		return -GW_E_ARG;
	ua = trials ? a.variance / a.n : arm_budget(first);
	ub = trials ? b.variance / b.n : arm_budget(row);
	all = ua + ub + u_extra_log * u_extra_log;
	c.basis = trials ? COMPARE_TRIALS : isnan(all) ? COMPARE_NONE : COMPARE_BUDGET;
	c.u_log = sqrt(all);
	c.df = isnan(all) ? NAN : INFINITY;
	if (trials && ua + ub > 0)
		c.df = all * all / (ua * ua / (a.n - 1) + ub * ub / (b.n - 1));
	reach = student_factor(alpha, c.df) * c.u_log;
	c.ratio = exp(b.mean - a.mean);
	c.change = expm1(b.mean - a.mean);
	c.change_low = expm1(b.mean - a.mean - reach);
	c.change_high = expm1(b.mean - a.mean + reach);
	*ret = c;
	return 0;
}

double compare_offset(double offset_w, double first_mean_w, double row_mean_w)
{
	return offset_w * fabs(1 / first_mean_w - 1 / row_mean_w);
}
