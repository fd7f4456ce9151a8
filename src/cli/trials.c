#include "trials.h"

#include "measure/distribution.h"
#include "measure/stat.h"

#include <math.h>

static double standard_u(const struct gw_interval *v)
{
	return (v->high - v->low) / 2 / normal_quantile(0.975);
}

double trials_shared(const struct gw_interval *absolute, const struct gw_interval *relative)
{
	double all = standard_u(absolute), own = standard_u(relative);

	return isnan(all) || isnan(own) ? NAN : sqrt(fmax(all * all - own * own, 0));
}

struct gw_interval trials_mean(const struct trials_value *v, unsigned n, double *ret_sd)
{
	struct moments m;
	double u2[2], df[2] = { (double)n - 1, INFINITY }, shared = 0, sum, half;

	moments_init(&m);
	for (unsigned i = 0; i < n; i++) {
		moments_add(&m, v[i].value);
		shared += v[i].u_shared / n;
	}
	*ret_sd = NAN;
	if (n < 2 || !isfinite(moments_mean(&m)) || isnan(shared))
		return (struct gw_interval){ NAN, NAN, NAN };
	*ret_sd = sqrt(moments_variance(&m));
	u2[0] = moments_variance(&m) / n;
	u2[1] = shared * shared;
	sum = u2[0] + u2[1];
	half = sum > 0 ? student_factor(0.05, welch_df(u2, df, 2)) * sqrt(sum) : 0;
	return (struct gw_interval){ moments_mean(&m) - half, moments_mean(&m),
				     moments_mean(&m) + half };
}
