#include "compare.h"

#include <gpuward.h>

#include <math.h>
#include <stdbool.h>

#include "distribution.h"
#include "stat.h"

static bool is_alpha(double alpha)
{
	return alpha > 0 && alpha < 1;
}

/* Computes the moments of the logarithms. Returns 0 or -GW_E_ARG. */
static int add_logs(const struct compare_arm *arm, struct moments *m)
{
	if (arm->n == 0 || arm->u_ratio < 0)
		return -GW_E_ARG;
	moments_init(m);
	for (size_t i = 0; i < arm->n; i++) {
		if (!isfinite(arm->runs[i]) || !(arm->runs[i] > 0))
			return -GW_E_ARG;
		moments_add(m, log(arm->runs[i]));
	}
	return 0;
}

/* The uncertainty of ln(ratio). One part is the scatter of runs, with few degrees of freedom.
 * The other part is the stated uncertainty, which is assumed normal. */
struct unknown {
	enum compare_basis basis;
	double scatter2, df;
	double stated2;
};

static struct unknown of_trials(const struct moments *first, const struct moments *row)
{
	double u2[] = { moments_variance(first) / first->weight,
			moments_variance(row) / row->weight };
	double df[] = { first->weight - 1, row->weight - 1 };
	struct unknown u = { COMPARE_TRIALS, u2[0] + u2[1], welch_df(u2, df, 2), 0 };

	if (isnan(u.df)) /* no scatter: the factor does not matter */
		u.df = df[0] + df[1];
	return u;
}

/* Computes the uncertainty if one arm has a single run. Assumes that this run scatters like the
 * others: s^2 / n for the mean of the others, plus s^2 for the single run. Adds the stated
 * uncertainty of the single run, because we do not know how much of it the scatter contains. */
static struct unknown of_one_side(const struct moments *many, double u_once)
{
	return (struct unknown){ COMPARE_ONE_SIDE,
				 moments_variance(many) * (1 + 1 / many->weight),
				 many->weight - 1, isnan(u_once) ? 0 : u_once * u_once };
}

static struct unknown of_budget(const struct compare_arm *first, const struct compare_arm *row)
{
	return (struct unknown){ COMPARE_BUDGET, 0, INFINITY,
				 first->u_ratio * first->u_ratio +
					 row->u_ratio * row->u_ratio };
}

static struct unknown unknown_of(const struct compare_arm *first, const struct moments *a,
				 const struct compare_arm *row, const struct moments *b,
				 double u_extra_log)
{
	struct unknown u = first->n > 1 && row->n > 1 ? of_trials(a, b)
			   : first->n > 1             ? of_one_side(a, row->u_ratio)
			   : row->n > 1               ? of_one_side(b, first->u_ratio)
						      : of_budget(first, row);

	u.stated2 += u_extra_log * u_extra_log;
	if (isnan(u.stated2)) /* without the unknown part an interval would be too narrow */
		u = (struct unknown){ COMPARE_NONE, NAN, NAN, NAN };
	return u;
}

/* Returns half the interval on logarithms. Each part has its own factor. One factor from the
 * pooled degrees of freedom would be too small if two or three runs happen to scatter little:
 * for two runs against one, the interval would cover 88 % instead of 95 %. */
static double reach_of(const struct unknown *u, double alpha)
{
	return hypot(student_factor(alpha, u->df) * sqrt(u->scatter2),
		     student_factor(alpha, INFINITY) * sqrt(u->stated2));
}

int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret)
{
	struct moments a, b;

	if (u_extra_log < 0 || !is_alpha(alpha) || add_logs(first, &a) < 0 ||
	    add_logs(row, &b) < 0)
		return -GW_E_ARG;

	struct unknown u = unknown_of(first, &a, row, &b, u_extra_log);
	double log_ratio = b.mean - a.mean, reach = reach_of(&u, alpha);

	*ret = (struct compare_change){
		.basis = u.basis,
		.ratio = exp(log_ratio),
		.change = expm1(log_ratio),
		.change_low = expm1(log_ratio - reach),
		.change_high = expm1(log_ratio + reach),
		.u_log = sqrt(u.scatter2 + u.stated2),
		.df = u.df,
	};
	return 0;
}

enum compare_verdict compare_verdict(const struct compare_change *c)
{
	if (c->basis != COMPARE_TRIALS && c->basis != COMPARE_ONE_SIDE)
		return COMPARE_UNKNOWN;
	return c->change_high < 0  ? COMPARE_LESS
	       : c->change_low > 0 ? COMPARE_MORE
				   : COMPARE_OPEN;
}

double compare_offset(double offset_w, double first_mean_w, double row_mean_w)
{
	return offset_w * fabs(1 / first_mean_w - 1 / row_mean_w);
}
