/* Tests the mean of several runs by simulation. */
#include "cli/run_result.h"
#include "cli/clean_room.h"

#include "measure/distribution.h"
#include "measure/stat.h"

#include "test.h"

#include <math.h>

/* Nothing is printed here. */
void clean_room_print(const struct measured_room *r, unsigned indent)
{
	(void)r, (void)indent;
}

struct gw_interval run_result_window_joules(const struct measured_run *r,
					    const struct measured_window *w)
{
	(void)r, (void)w;
	return (struct gw_interval){ NAN, NAN, NAN };
}

#define near(a, b, within) assert_true(fabs((a) - (b)) <= (within))

static double normal(struct random *r)
{
	return normal_quantile((random_below(r, 1000000) + 0.5) / 1e6);
}

TEST(scatter_alone_gives_students_interval)
{
	static const struct trials_value v[] = { { 9, 0 }, { 10, 0 }, { 11, 0 } };
	double sd;
	struct gw_interval i = trials_mean(v, 3, &sd);

	near(i.best, 10, 1e-12);
	near(sd, 1, 1e-12);
	near(i.high - i.best, 4.302652729 / sqrt(3), 1e-6);
	near(i.best - i.low, 4.302652729 / sqrt(3), 1e-6);
}

TEST(shared_uncertainty_does_not_shrink_with_more_runs)
{
	struct trials_value v[100];
	double sd;

	for (unsigned i = 0; i < 100; i++)
		v[i] = (struct trials_value){ 100, 2.5 };
	for (unsigned n = 2; n <= 100; n += 49) {
		struct gw_interval i = trials_mean(v, n, &sd);

		near(i.high - i.best, 1.959963985 * 2.5, 1e-6);
	}
}

TEST(unknown_values_stay_unknown)
{
	static const struct trials_value v[] = { { 9, 0 }, { NAN, 0 }, { 11, NAN } };
	struct gw_interval a = { 8, 10, 12 }, none = { NAN, NAN, NAN };
	double sd;

	assert_true(isnan(trials_mean(v, 1, &sd).best) && isnan(sd));
	assert_true(isnan(trials_mean(v, 2, &sd).best));
	assert_true(isnan(trials_mean(v + 2, 1, &sd).best));
	assert_true(isnan(trials_shared(&a, &none)));
	near(trials_shared(&a, &a), 0, 1e-12);
}

/* 4000 times: a sensor with a random gain measures five runs with scatter. Counts how often the
 * interval contains the true value. */
TEST(the_interval_covers_as_often_as_stated)
{
	uint64_t seed = 20240607;
	struct random r;
	unsigned inside = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned k = 0; k < 4000; k++) {
		double gain = 1 + 0.02 * normal(&r), sd;
		struct trials_value v[5];
		struct gw_interval i;

		for (unsigned t = 0; t < 5; t++)
			v[t] = (struct trials_value){ 100 * gain + 3 * normal(&r), 2 };
		i = trials_mean(v, 5, &sd);
		inside += i.low <= 100 && 100 <= i.high;
	}
	assert_in_range(inside, 3740, 3900); /* 95 % are 3800 */
}

TEST_MAIN(NULL, NULL)
