#include "bootstrap.h"

#include <gpuward.h>

#include <math.h>

#include "distribution.h"
#include "random.h"
#include "stat.h"

static double mean_of(const double *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

static double resampled_mean(const double *x, size_t n, struct random *r)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[random_below(r, (uint32_t)n)];
	return sum / (double)n;
}

/* Where the mean stands among the resampled ones, as a normal quantile; half of those that equal
 * it count as below.  Kept away from the ends, where it would be infinite. */
static double bias_of(const double *means, size_t resamples, double mean)
{
	double below = 0;

	for (size_t i = 0; i < resamples; i++)
		below += means[i] < mean ? 1 : means[i] == mean ? 0.5 : 0;

	double share = below / (double)resamples, edge = 0.5 / (double)resamples;

	return normal_quantile(fmin(fmax(share, edge), 1 - edge));
}

/* Jackknife estimate; for a mean it is the skewness over 6 sqrt(n). */
static double acceleration_of(const double *x, size_t n, double mean)
{
	double square = 0, cube = 0;

	for (size_t i = 0; i < n; i++) {
		double d = x[i] - mean;

		square += d * d;
		cube += d * d * d;
	}
	return square > 0 ? cube / (6 * square * sqrt(square)) : 0;
}

/* The share of resamples below the end of the interval that a normal one would have at z. */
static double bca_share(const struct bootstrap *b, double z)
{
	double shifted = b->bias + z, scale = 1 - b->acceleration * shifted;

	if (scale <= 0) /* beyond any resample: the outermost is the nearest there is */
		return z < 0 ? 0 : 1;
	return normal_cdf(b->bias + shifted / scale);
}

int bootstrap_mean(const double *x, size_t n, double alpha, size_t resamples, uint64_t seed,
		   double *scratch, struct bootstrap *ret)
{
	if (n < 2 || n > UINT32_MAX || resamples < 100 || !(alpha > 0 && alpha < 1))
		return -GW_E_ARG;

	double mean = mean_of(x, n), count = (double)n;
	struct random r;

	random_init(&r, seed);
	for (size_t i = 0; i < resamples; i++)
		scratch[i] = resampled_mean(x, n, &r);
	ret->bias = bias_of(scratch, resamples, mean);
	ret->acceleration = acceleration_of(x, n, mean);

	double wide = student_factor(alpha, count - 1) * sqrt(count / (count - 1));

	ret->percentile_low = stat_percentile(scratch, resamples, 0.5 * alpha);
	ret->percentile_high = stat_percentile(scratch, resamples, 1 - 0.5 * alpha);
	ret->bca_low = stat_percentile(scratch, resamples, bca_share(ret, -wide));
	ret->bca_high = stat_percentile(scratch, resamples, bca_share(ret, wide));
	return 0;
}
