#include "stat.h"

#include "distribution.h"

#include <gpuward.h>

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

double interval_u(const struct gw_interval *v)
{
	return (v->high - v->best) / NORMAL_95;
}

void moments_init(struct moments *m)
{
	*m = (struct moments){ .min = INFINITY, .max = -INFINITY };
}

void moments_add(struct moments *m, double x)
{
	moments_add_weighted(m, x, 1);
}

void moments_add_weighted(struct moments *m, double x, double weight)
{
	if (!(weight > 0))
		return;

	double distance = x - m->mean;

	m->count++;
	m->weight += weight;
	m->mean += distance * (weight / m->weight);
	m->m2 += weight * distance * (x - m->mean);
	m->min = fmin(m->min, x);
	m->max = fmax(m->max, x);
}

double moments_mean(const struct moments *m)
{
	return m->count > 0 ? m->mean : NAN;
}

double moments_variance(const struct moments *m)
{
	return m->count > 1 ? m->m2 / ((double)m->count - 1) : NAN;
}

double moments_variance_in_time(const struct moments *m)
{
	return m->count > 0 ? m->m2 / m->weight : NAN;
}

void run_mean_init(struct run_mean *m)
{
	*m = (struct run_mean){ .own2_sum = 0 };
	moments_init(&m->moments);
}

void run_mean_add(struct run_mean *m, double value, double u_own, double u_all)
{
	double shared = isnan(u_own)   ? u_all
			: isnan(u_all) ? 0
				       : sqrt(fmax(u_all * u_all - u_own * u_own, 0));

	moments_add(&m->moments, value);
	m->own2_sum += u_own * u_own;
	m->shared_sum += shared;
}

double run_mean_u_own(const struct run_mean *m)
{
	return sqrt(m->own2_sum / (double)m->moments.count);
}

double run_mean_u_shared(const struct run_mean *m)
{
	return m->shared_sum / (double)m->moments.count;
}

double run_mean_reach_own(const struct run_mean *m)
{
	double n = (double)m->moments.count;

	if (n < 2)
		return NORMAL_95 * run_mean_u_own(m);
	return student_factor(0.05, n - 1) * sqrt(moments_variance(&m->moments) / n);
}

/* The interval has two parts: the scatter of the runs and the shared error. Each part has its
 * own factor, as in reach_of(). One factor from pooled degrees of freedom (Welch-Satterthwaite)
 * would be too small if two or three runs scatter little by chance: with two runs, the interval
 * would contain the true value in only 88 % of the cases. */
double run_mean_reach(const struct run_mean *m)
{
	double own = run_mean_reach_own(m), shared = NORMAL_95 * run_mean_u_shared(m);

	/* If there is one run and its own part is unknown, the shared part is its whole
	 * uncertainty. */
	return m->moments.count == 1 && isnan(own) ? shared : hypot(own, shared);
}

void histogram_init(struct histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->min = INFINITY;
	h->max = -INFINITY;
}

static size_t bucket_of(double x)
{
	if (x < HISTOGRAM_LOWEST)
		return 0;
	if (x >= HISTOGRAM_HIGHEST)
		return HISTOGRAM_BUCKETS + 1;

	size_t i = 1 + (size_t)(log(x / HISTOGRAM_LOWEST) / log(HISTOGRAM_STEP));

	return i > HISTOGRAM_BUCKETS ? HISTOGRAM_BUCKETS : i;
}

void histogram_add(struct histogram *h, double x, double seconds)
{
	if (isnan(x) || !(seconds > 0))
		return;
	h->seconds[bucket_of(x)] += seconds;
	h->total_seconds += seconds;
	h->min = fmin(h->min, x);
	h->max = fmax(h->max, x);
}

static double bucket_middle(const struct histogram *h, size_t i)
{
	if (i == 0)
		return h->min;
	if (i > HISTOGRAM_BUCKETS)
		return h->max;

	double x = HISTOGRAM_LOWEST * pow(HISTOGRAM_STEP, (double)i - 0.5);

	return fmin(fmax(x, h->min), h->max);
}

double histogram_percentile(const struct histogram *h, double p)
{
	double want = p * h->total_seconds, sum = 0;
	size_t last = 0;

	if (!(h->total_seconds > 0) || !(p >= 0 && p <= 1))
		return NAN;
	for (size_t i = 0; i < HISTOGRAM_BUCKETS + 2; i++) {
		if (h->seconds[i] == 0)
			continue;
		sum += h->seconds[i];
		last = i;
		if (sum >= want)
			break;
	}
	/* Rounding may leave the sum slightly below the wanted share: then the last bucket is
	 * used. */
	return bucket_middle(h, last);
}

static void stat_swap(double *a, double *b)
{
	double held = *a;

	*a = *b;
	*b = held;
}

/* Moves the median of the first, middle and last value of x[low..high] to the middle. */
static double pivot_of(double *x, size_t low, size_t high)
{
	size_t mid = low + (high - low) / 2;

	if (x[mid] < x[low])
		stat_swap(&x[mid], &x[low]);
	if (x[high] < x[low])
		stat_swap(&x[high], &x[low]);
	if (x[high] < x[mid])
		stat_swap(&x[high], &x[mid]);
	return x[mid];
}

/* Reorders x by Hoare's selection and returns x[k], which is then the value at k in sorted
 * order. No value before it is larger, and no value after it is smaller. */
static double select_kth(double *x, size_t n, size_t k)
{
	size_t low = 0, high = n - 1;

	while (low < high) {
		double pivot = pivot_of(x, low, high);
		size_t i = low, j = high;

		for (;;) {
			while (x[i] < pivot)
				i++;
			while (x[j] > pivot)
				j--;
			if (i >= j)
				break;
			stat_swap(&x[i++], &x[j--]);
		}
		/* Values before x[left_end] are not above the pivot. Values from x[right] on
		 * are not below the pivot. The values in between equal the pivot. */
		size_t left_end = i == j ? j : j + 1, right = i == j ? i + 1 : i;

		if (k >= left_end && k < right)
			break;
		if (k < left_end)
			high = left_end - 1;
		else
			low = right;
	}
	return x[k];
}

double stat_percentile(double *x, size_t n, double p)
{
	if (n == 0 || !(p >= 0 && p <= 1))
		return NAN;

	double place = p * (double)(n - 1);
	size_t k = (size_t)place;
	double share = place - (double)k;
	double below = select_kth(x, n, k);

	if (!(share > 0) || k + 1 >= n)
		return below;

	double above = x[k + 1];

	for (size_t i = k + 2; i < n; i++)
		above = fmin(above, x[i]);
	return below + share * (above - below);
}

double stat_skewness(const double *x, size_t n)
{
	double mean = 0, m2 = 0, m3 = 0, count = (double)n;

	if (n < 3)
		return NAN;
	for (size_t i = 0; i < n; i++)
		mean += x[i] / count;
	for (size_t i = 0; i < n; i++) {
		double d = x[i] - mean;

		m2 += d * d / count;
		m3 += d * d * d / count;
	}
	if (m2 <= 0)
		return 0;
	return m3 / (m2 * sqrt(m2)) * sqrt(count * (count - 1)) / (count - 2);
}

int stat_trend(const double *y, size_t n, struct trend *ret)
{
	double count = (double)n, ties = 0;
	int64_t s = 0;

	if (n < 3)
		return -GW_E_ARG;
	for (size_t i = 0; i < n; i++) {
		double same = 0;

		for (size_t j = 0; j < n; j++) {
			same += y[j] == y[i];
			if (j > i)
				s += (y[j] > y[i]) - (y[j] < y[i]);
		}
		/* A group of t equal values adds t (t - 1)(2 t + 5), so each of its values adds
		 * (t - 1)(2 t + 5). */
		ties += (same - 1) * (2 * same + 5);
	}
	ret->s = s;
	ret->variance = (count * (count - 1) * (2 * count + 5) - ties) / 18;
	ret->z = 0;
	if (ret->variance > 0 && s != 0)
		ret->z = ((double)s - (s > 0 ? 1 : -1)) / sqrt(ret->variance);
	ret->p = erfc(fabs(ret->z) * M_SQRT1_2);
	return 0;
}

uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void random_init(struct random *r, uint64_t seed)
{
	uint64_t state = seed;

	for (unsigned i = 0; i < 4; i++)
		r->s[i] = splitmix64(&state);
	r->seed = seed;
}

static uint64_t stat_rotate(uint64_t x, unsigned k)
{
	return (x << k) | (x >> (64 - k));
}

uint64_t random_next(struct random *r)
{
	uint64_t *s = r->s;
	uint64_t result = stat_rotate(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = stat_rotate(s[3], 45);
	return result;
}

/* Uses Lemire's multiplication: the high word of x * n is the result. If the low word is one of
 * the few that would favour some results, a new number is drawn. */
uint32_t random_below(struct random *r, uint32_t n)
{
	assert(n >= 1);

	uint64_t m = (random_next(r) >> 32) * n;

	if ((uint32_t)m < n) {
		uint32_t unfair = (uint32_t)-n % n;

		while ((uint32_t)m < unfair)
			m = (random_next(r) >> 32) * n;
	}
	return (uint32_t)(m >> 32);
}

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

/* Returns the position of the mean among the resampled means, as a normal quantile; half of the
 * resampled means that equal the mean count as below it. The result is limited, because it
 * would be infinite at the ends. */
static double bias_of(const double *means, size_t resamples, double mean)
{
	double below = 0;

	for (size_t i = 0; i < resamples; i++)
		below += means[i] < mean ? 1 : means[i] == mean ? 0.5 : 0;

	double share = below / (double)resamples, edge = 0.5 / (double)resamples;

	return normal_quantile(fmin(fmax(share, edge), 1 - edge));
}

/* Returns the jackknife estimate of the acceleration; for a mean, this is the skewness divided
 * by 6 sqrt(n). */
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

/* Returns the share of resamples below the end of the BCa interval that corresponds to the end
 * z of a normal interval. */
static double bca_share(const struct bootstrap *b, double z)
{
	double shifted = b->bias + z, scale = 1 - b->acceleration * shifted;

	if (scale <= 0) /* the end is beyond all resamples: use the lowest or highest one */
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

	if (isnan(u.df)) /* the scatter is 0, so the factor does not matter */
		u.df = df[0] + df[1];
	return u;
}

/* Computes the uncertainty if one arm has a single run. Assumes that this run scatters like the
 * n runs of the other arm: the variance is s^2 / n for the mean of these runs, plus s^2 for the
 * single run. Adds the stated uncertainty of the single run, because we do not know how much of
 * it the scatter contains. */
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
	/* There is no interval, because without the unknown part it would be too narrow. */
	if (isnan(u.stated2))
		u = (struct unknown){ COMPARE_NONE, NAN, NAN, NAN };
	return u;
}

/* Returns half the interval on logarithms. Each part of the uncertainty has its own factor. A
 * single factor from pooled degrees of freedom would be too small if two or three runs scatter
 * little by chance: for two runs against one, the interval would contain the true value in 88 %
 * of the cases instead of 95 %. */
static double reach_of(const struct unknown *u, double alpha)
{
	return hypot(student_factor(alpha, u->df) * sqrt(u->scatter2),
		     student_factor(alpha, INFINITY) * sqrt(u->stated2));
}

int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret)
{
	struct moments a, b;

	if (u_extra_log < 0 || !(alpha > 0 && alpha < 1) || add_logs(first, &a) < 0 ||
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
