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

/* Moments of the logarithms. */
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

/* u_log and df from the scatter of both arms. */
static void from_trials(const struct moments *first, const struct moments *row,
			double u_extra_log, struct compare_change *c)
{
	double u2[] = { moments_variance(first) / first->weight,
			moments_variance(row) / row->weight, u_extra_log * u_extra_log };
	double df[] = { first->weight - 1, row->weight - 1, INFINITY };

	c->basis = COMPARE_TRIALS;
	c->u_log = sqrt(u2[0] + u2[1] + u2[2]);
	c->df = welch_df(u2, df, 3);
	if (isnan(c->df)) /* no scatter at all: any factor times nothing */
		c->df = df[0] + df[1];
}

/* u_log from what the arms say of themselves. */
static void from_budget(const struct compare_arm *first, const struct compare_arm *row,
			double u_extra_log, struct compare_change *c)
{
	double u2 = first->u_ratio * first->u_ratio / (double)first->n +
		    row->u_ratio * row->u_ratio / (double)row->n + u_extra_log * u_extra_log;

	c->basis = isnan(u2) ? COMPARE_NONE : COMPARE_BUDGET;
	c->u_log = sqrt(u2);
	c->df = isnan(u2) ? NAN : INFINITY;
}

int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret)
{
	struct moments a, b;
	struct compare_change c;

	if (!(u_extra_log >= 0) || !is_alpha(alpha) || add_logs(first, &a) < 0 ||
	    add_logs(row, &b) < 0)
		return -GW_E_ARG;
	if (first->n > 1 && row->n > 1)
		from_trials(&a, &b, u_extra_log, &c);
	else
		from_budget(first, row, u_extra_log, &c);

	double log_ratio = b.mean - a.mean, reach = student_factor(alpha, c.df) * c.u_log;

	c.ratio = exp(log_ratio);
	c.change = expm1(log_ratio);
	c.change_low = expm1(log_ratio - reach);
	c.change_high = expm1(log_ratio + reach);
	*ret = c;
	return 0;
}

double compare_offset(double offset_w, double first_mean_w, double row_mean_w)
{
	return offset_w * fabs(1 / first_mean_w - 1 / row_mean_w);
}
