#include "cli/ab_text.h"

#include "cli/clean_room.h"

#include <math.h>

#include "test.h"

/* Replaces the real function: no measurement in this test uses --clean-room. */
void clean_room_print(const struct measured_room *r, unsigned indent)
{
	(void)r, (void)indent;
}

/* Makes one line with single blanks, because the report wraps at the terminal width. */
static void join(char *text)
{
	char *to = text;

	for (const char *p = text; *p; p++) {
		char c = *p == '\n' ? ' ' : *p;

		if (c != ' ' || to == text || to[-1] != ' ')
			*to++ = c;
	}
	*to = '\0';
}

/* Returns the report of n runs with these residuals as one line. The two runs of a pair are
 * adjacent. The caller frees the string. */
static char *summary_of(const double *residual, unsigned n, uint64_t codes)
{
	FILE *real = stdout;
	struct ab_record run[8] = { 0 };
	struct ab_config config;
	struct ab_report r = { .config = &config, .iterations = NAN, .run = run, .runs = n };
	struct cli c = { .quiet = true };
	char *text = NULL;
	size_t size;

	ab_config_init(&config);
	for (unsigned i = 0; i < n; i++)
		run[i] = (struct ab_record){ .step = { AB_PHASE_AB, i % 2, i % 2, i / 2 },
					     .used = true,
					     .seconds = 1,
					     .power_w = 100,
					     .energy = { 99, 100, 101 },
					     .absolute = { 88, 100, 112 },
					     .u_j = 0.5,
					     .residual_ratio = residual[i],
					     .codes = codes };
	for (unsigned m = 0; m < AB_METRICS; m++)
		r.result.ab[m] = (struct ab_estimate){ .n = n / 2, .ratio = 1, .sd_log = NAN };
	r.result.aa[AB_ENERGY].sd_log = NAN;
	stdout = open_memstream(&text, &size);
	assert_non_null(stdout);
	ab_text_print(&r, "a", "b", "", &c);
	assert_int_equal(fclose(stdout), 0);
	stdout = real;
	join(text);
	return text;
}

TEST(the_ratio_names_the_means_it_compares)
{
	double residual[] = { 0, 0 };
	char *text = summary_of(residual, 2, 0);

	assert_in(text, "B/A geometric mean over the pairs; A and B are arithmetic means");
	free(text);
}

/* All runs have 100 J, so their scatter is 0. The first interval then has only the error that
 * the runs share; the second interval leaves this error out. */
TEST(each_command_has_its_mean_energy_with_two_intervals)
{
	double residual[] = { 0, 0, 0, 0 };
	char *text = summary_of(residual, 4, 0);

	assert_in(text, "Mean of A 100 +- 12 J (95 %, including the sensor error); +- 0.000 "
			"J when compared with runs on the same GPUs Mean of B 100 +- 12 J");
	free(text);
	text = summary_of(residual, 2, 0);
	assert_in(text, "Mean of A 100 +- 12 J (95 %, including the sensor error); +- 980 mJ "
			"when compared with runs on the same GPUs");
	free(text);
}

TEST(close_meters_are_reported_with_their_difference)
{
	double residual[] = { 0.01, -0.01, NAN, 0.012 };
	char *text = summary_of(residual, 4, 0);

	assert_in(text, "the samples differ from the counter by +0.40 % (mean), 1.22 % s.d. "
			"over 3 of 4 runs "
			"(the others have only one energy source, or were dropped)");
	assert_null(strstr(text, "too short to compare"));
	free(text);
}

TEST(a_difference_that_rounds_to_zero_has_no_minus_sign)
{
	double residual[] = { -1e-6, -2e-6 };
	char *text = summary_of(residual, 2, 0);

	assert_in(text, "the samples differ from the counter by +0.00 % (mean)");
	free(text);
}

TEST(meters_that_differ_within_their_uncertainty_are_called_inconclusive)
{
	double residual[] = { 0.09, -0.03, 0.13, 0.01 };
	char *text = summary_of(residual, 4, 0);

	assert_in(text,
		  "the runs are too short to compare the samples with the counter: they differ "
		  "by +5.00 % (mean), 7.30 % s.d. over 4 runs, which is within their "
		  "uncertainty");
	free(text);
}

TEST(meters_that_disagree_are_never_called_inconclusive)
{
	double residual[] = { 0.09, -0.03, 0.13, 0.01 };
	char *text = summary_of(residual, 4, UINT64_C(1) << GW_CODE_METERS_DISAGREE);

	assert_in(text, "the samples differ from the counter by +5.00 % (mean), 7.30 % s.d. "
			"over 4 runs");
	assert_null(strstr(text, "too short to compare"));
	free(text);
}

TEST_MAIN(NULL, NULL)
