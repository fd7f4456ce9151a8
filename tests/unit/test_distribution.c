/* Compares quantiles and tails with reference values, which were computed with 60 digits and
 * rounded to 17. The values of Student's t agree with printed tables. */
#include "measure/distribution.c"

#include <math.h>

#include "measure/stat.h"

#include "random_unit.h"
#include "test.h"

static void assert_near(double have, double want, double relative)
{
	if (fabs(have - want) <= relative * fabs(want))
		return;
	print_message("have %.17g, want %.17g, relative error %.3g\n", have, want,
		      fabs(have / want - 1));
	fail();
}

/* Returns P(T <= t), from the tail that student_quantile() inverts. */
static double student_cdf(double t, double df)
{
	if (isnan(t) || !(df >= 1))
		return NAN;
	if (t == 0)
		return 0.5;
	return t < 0 ? student_upper(-t, df) : 1 - student_upper(t, df);
}

TEST(student_quantiles_are_right_to_ten_digits)
{
	/* columns: upper tail, degrees of freedom, t */
	static const double rows[][3] = {
		{ 0.25, 1, 1.0 },
		{ 0.025, 1, 12.706204736174704 },
		{ 0.0068, 1, 46.803156219959097 },
		{ 1e-10, 1, 3183098861.8379066 },
		{ 0.25, 1.5, 0.87259466254157064 },
		{ 0.025, 1.5, 6.0166631044279317 },
		{ 0.0068, 1.5, 14.505012951871962 },
		{ 1e-10, 1.5, 2422663.1011343938 },
		{ 0.25, 2, 0.81649658092772603 },
		{ 0.025, 2, 4.3026527297494637 },
		{ 0.0068, 2, 8.4872159771622564 },
		{ 1e-10, 2, 70710.678108048149 },
		{ 0.25, 3.7, 0.74648515348245422 },
		{ 0.025, 3.7, 2.8675207071911894 },
		{ 0.0068, 3.7, 4.42964028066605 },
		{ 1e-10, 3.7, 622.75080251688392 },
		{ 0.25, 5, 0.72668684380042265 },
		{ 0.025, 5, 2.5705818356363155 },
		{ 0.0068, 5, 3.7279348646723109 },
		{ 1e-10, 5, 156.82559270889432 },
		{ 0.25, 9, 0.70272214675132637 },
		{ 0.025, 9, 2.2621571627982055 },
		{ 0.0068, 9, 3.0587081952804087 },
		{ 1e-10, 9, 30.737330949971978 },
		{ 0.25, 30.25, 0.68268665935064304 },
		{ 0.025, 30.25, 2.0415649227678257 },
		{ 0.0068, 30.25, 2.6206187395651956 },
		{ 1e-10, 30.25, 9.3442640524317407 },
		{ 0.25, 100, 0.67695104301147148 },
		{ 0.025, 100, 1.9839715185235523 },
		{ 0.0068, 100, 2.5121379137852672 },
		{ 1e-10, 100, 7.0833754814007225 },
		{ 0.25, 1000.5, 0.67473504192142692 },
		{ 0.025, 1000.5, 1.9623378924593485 },
		{ 0.0068, 1000.5, 2.4720371727132679 },
		{ 1e-10, 1000.5, 6.4278427356915799 },
		{ 0.025, 100000, 1.9599877075346096 },
		{ 1e-10, 100000, 6.3620004198436912 },
		{ 0.025, 3000000, 1.9599647752974446 },
		{ 1e-10, 3000000, 6.3613628844314716 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		double q = rows[i][0], df = rows[i][1], t = rows[i][2];

		assert_near(student_quantile(q, df), -t, 1e-10);
		assert_near(student_factor(2 * q, df), t, 1e-10);
		if (q > 1e-9) /* 1 - q is rounded: it keeps only six digits of a q of 1e-10 */
			assert_near(student_quantile(1 - q, df), t, 1e-10);
	}
}

TEST(student_tails_are_right_to_ten_digits)
{
	/* columns: t, degrees of freedom, upper tail */
	static const double rows[][3] = {
		{ 0.001, 1, 0.49968169021991944 },    { 1.25, 1, 0.21477671252272273 },
		{ 4.5, 1, 0.069604487273063949 },     { 40, 1, 0.0079560899120258133 },
		{ 0.001, 2.5, 0.49963819136039244 },  { 1.25, 2.5, 0.1577731657986257 },
		{ 4.5, 2.5, 0.014947029504366997 },   { 40, 2.5, 7.0978171452466915e-5 },
		{ 0.001, 10, 0.49961089168737049 },   { 1.25, 10, 0.1198803051276678 },
		{ 4.5, 10, 0.00057155254340203258 },  { 40, 10, 1.1404288715428773e-12 },
		{ 0.001, 77.7, 0.49960233928670716 }, { 1.25, 77.7, 0.10752567377243549 },
		{ 4.5, 77.7, 1.1749988760941827e-5 }, { 40, 77.7, 6.714922875553313e-54 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		double t = rows[i][0], df = rows[i][1], q = rows[i][2];

		assert_near(student_cdf(-t, df), q, 1e-10);
		assert_near(student_cdf(t, df), 1 - q, 1e-14);
	}
}

TEST(the_normal_quantile_is_right_to_fourteen_digits)
{
	static const double rows[][2] = {
		{ 1e-300, -37.047096299361199 }, { 1e-20, -9.2623400897984076 },
		{ 0.001, -3.0902323061678135 },  { 0.025, -1.9599639845400542 },
		{ 0.3, -0.52440051270804082 },   { 0.49, -0.025068908258711058 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		double p = rows[i][0], z = rows[i][1];

		assert_near(normal_quantile(p), z, 1e-13);
		if (p > 1e-9)
			assert_near(normal_quantile(1 - p), -z, 1e-12);
		assert_near(normal_cdf(z), p, 1e-12);
	}
	assert_true(normal_quantile(0.5) == 0);
}

TEST(quantile_and_distribution_are_inverse)
{
	uint64_t seed = 20240611;
	struct random r;

	print_message("seed %llu\n", (unsigned long long)seed);
	random_init(&r, seed);
	for (unsigned i = 0; i < 5000; i++) {
		double df = exp(random_unit(&r) * log(1e8)); /* 1 to 1e8 */
		double p = exp(-random_unit(&r) * 60) / 2;   /* 4e-27 to 0.5 */

		assert_near(student_cdf(student_quantile(p, df), df), p, 2e-8);
		assert_near(normal_cdf(normal_quantile(p)), p, 1e-11);
	}
}

TEST(with_many_degrees_of_freedom_t_is_normal)
{
	assert_near(student_quantile(0.025, INFINITY), normal_quantile(0.025), 1e-15);
	assert_near(student_quantile(0.025, 1e12), normal_quantile(0.025), 1e-11);
	assert_near(student_cdf(-1.3, INFINITY), normal_cdf(-1.3), 1e-15);
	/* no jump where the series expansion begins */
	assert_near(student_quantile(1e-4, 1e6 * (1 + 1e-9)), student_quantile(1e-4, 1e6),
		    1e-11);
}

TEST(undefined_results_are_nan)
{
	assert_true(isnan(normal_quantile(0)));
	assert_true(isnan(normal_quantile(1)));
	assert_true(isnan(normal_quantile(NAN)));
	assert_true(isnan(student_quantile(0.5, 0.5)));
	assert_true(isnan(student_quantile(0.1, NAN)));
	assert_true(isnan(student_quantile(1.5, 3)));
	assert_true(isnan(student_cdf(NAN, 3)));
	assert_true(isnan(student_factor(0, 3)));
}

TEST(far_tails_neither_overflow_nor_stall)
{
	assert_near(student_cdf(-1e200, 1), 1e-200 / M_PI, 1e-10);
	assert_near(student_cdf(-1e100, 2), 0.5e-200, 1e-10);
	assert_true(student_cdf(-1e300, 5) >= 0);
	assert_true(student_cdf(-INFINITY, 5) == 0);
	assert_true(student_cdf(INFINITY, 5) == 1);
	assert_near(student_quantile(1e-200, 1), -1e200 / M_PI, 1e-10);
	assert_true(student_cdf(1e-200, 3) == 0.5);
}

/* Two arms with s1^2/n1 = 4/5 and s2^2/n2 = 9/10. */
TEST(welch_and_satterthwaite_share_the_degrees_of_freedom)
{
	double u2[] = { 0.8, 0.9 }, df[] = { 4, 9 };
	double known[] = { 0.8, 0.9, 5.0 }, known_df[] = { 4, 9, INFINITY };

	assert_near(welch_df(u2, df, 2), 1.7 * 1.7 / (0.64 / 4 + 0.81 / 9), 1e-15);
	assert_near(welch_df(u2, df, 1), 4, 1e-15);
	assert_near(welch_df(known, known_df, 3), 6.7 * 6.7 / (0.64 / 4 + 0.81 / 9), 1e-15);
	assert_true(isinf(welch_df(known + 2, known_df + 2, 1)));
	u2[0] = u2[1] = 0;
	assert_true(isnan(welch_df(u2, df, 2)));
}

TEST_MAIN(NULL, NULL)
