/* Tests the mean of several runs, with fixed values and with simulated runs. */
#include "measure/distribution.h"
#include "measure/stat.h"

#include "test.h"

#include <math.h>

#define near(a, b, within) assert_true(fabs((a) - (b)) <= (within))

static double normal(struct random *r)
{
	return normal_quantile((random_below(r, 1000000) + 0.5) / 1e6);
}

TEST(scatter_alone_gives_students_interval)
{
	struct run_mean m;

	run_mean_init(&m);
	for (unsigned i = 9; i <= 11; i++)
		run_mean_add(&m, i, 0.5, 0.5);
	near(moments_mean(&m.moments), 10, 1e-12);
	near(run_mean_reach_own(&m), 4.302652729 / sqrt(3), 1e-6);
	near(run_mean_reach(&m), 4.302652729 / sqrt(3), 1e-6);
}

TEST(shared_uncertainty_does_not_shrink_with_more_runs)
{
	struct run_mean m;

	run_mean_init(&m);
	for (unsigned i = 1; i <= 100; i++) {
		run_mean_add(&m, 100, 0, 2.5);
		near(run_mean_reach(&m), 1.959963985 * 2.5, 1e-5);
	}
	near(run_mean_reach_own(&m), 0, 1e-12);
	near(run_mean_u_shared(&m), 2.5, 1e-12);
}

TEST(one_run_has_the_interval_that_it_states)
{
	struct run_mean m;

	run_mean_init(&m);
	run_mean_add(&m, 100, 3, 5);
	near(run_mean_reach_own(&m), NORMAL_95 * 3, 1e-9);
	near(run_mean_reach(&m), NORMAL_95 * 5, 1e-9);
	run_mean_init(&m);
	run_mean_add(&m, 100, NAN, 5);
	assert_true(isnan(run_mean_reach_own(&m)));
	near(run_mean_reach(&m), NORMAL_95 * 5, 1e-9);
}

TEST(unknown_uncertainty_stays_unknown)
{
	struct run_mean m;

	run_mean_init(&m);
	assert_true(isnan(moments_mean(&m.moments)));
	assert_true(isnan(run_mean_reach(&m)));
	run_mean_add(&m, 9, 1, 2);
	run_mean_add(&m, 11, NAN, NAN);
	assert_true(isnan(run_mean_reach(&m)));
	/* the scatter is still known */
	near(run_mean_reach_own(&m), 12.7062047 * sqrt(2) / sqrt(2), 1e-5);
}

/* A sensor with a random gain measures n runs with scatter. Returns in how many of 10000 cases
 * the interval contains the true value. */
static unsigned covered(struct random *r, unsigned n, double scatter)
{
	unsigned inside = 0;

	for (unsigned k = 0; k < 10000; k++) {
		double gain = 1 + 0.02 * normal(r);
		struct run_mean m;

		run_mean_init(&m);
		for (unsigned i = 0; i < n; i++)
			run_mean_add(&m, 100 * gain + scatter * normal(r), 0.3, hypot(0.3, 2));
		inside += fabs(moments_mean(&m.moments) - 100) <= run_mean_reach(&m);
	}
	return inside;
}

TEST(the_interval_contains_the_truth_at_least_as_often_as_stated)
{
	static const unsigned runs[] = { 2, 3, 5 };
	/* from runs that vary much less than the sensor errs, to runs that vary much more */
	static const double scatters[] = { 0.02, 0.6, 2, 6, 20 };
	uint64_t seed = 20240607;
	struct random r;

	printf("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 5; k++) {
			unsigned inside = covered(&r, runs[i], scatters[k]);

			print_message("%u runs, scatter %g: %.1f %%\n", runs[i], scatters[k],
				      inside / 100.0);
			/* 9500 expected, standard deviation 22 */
			assert_in_range(inside, 9430, runs[i] < 5 ? 9900 : 9700);
		}
}

TEST_MAIN(NULL, NULL)
