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

/* Checks the report of n runs with these residuals, joined to one line: it contains `want`, and
 * "too short to compare" only if `inconclusive`. The two runs of a pair are adjacent. */
static void check(const double *residual, unsigned n, uint64_t codes, const char *want,
		  bool inconclusive)
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
	assert_in(text, want);
	assert_int_equal(strstr(text, "too short to compare") != NULL, inconclusive);
	free(text);
}

TEST(the_ratio_names_the_means_it_compares)
{
	check((double[]){ 0, 0 }, 2, 0,
	      "B/A geometric mean over the pairs; A and B are arithmetic means", false);
}

/* All runs have 100 J, so their scatter is 0. The first interval then has only the error that
 * the runs share; the second interval leaves this error out. */
TEST(each_command_has_its_mean_energy_with_two_intervals)
{
	check((double[]){ 0, 0, 0, 0 }, 4, 0,
	      "Mean of A 100 +- 12 J (95 %, including the sensor error); +- 0.000 "
	      "J when compared with runs on the same GPUs Mean of B 100 +- 12 J",
	      false);
	check((double[]){ 0, 0 }, 2, 0,
	      "Mean of A 100 +- 12 J (95 %, including the sensor error); +- 980 mJ "
	      "when compared with runs on the same GPUs",
	      false);
}

TEST(close_meters_are_reported_with_their_difference)
{
	check((double[]){ 0.01, -0.01, NAN, 0.012 }, 4, 0,
	      "the samples differ from the counter by +0.40 % (mean), 1.22 % s.d. "
	      "over 3 of 4 runs "
	      "(the others have only one energy source, or were dropped)",
	      false);
}

TEST(a_difference_that_rounds_to_zero_has_no_minus_sign)
{
	check((double[]){ -1e-6, -2e-6 }, 2, 0,
	      "the samples differ from the counter by +0.00 % (mean)", false);
}

static const double apart[] = { 0.09, -0.03, 0.13, 0.01 };

TEST(meters_that_differ_within_their_uncertainty_are_called_inconclusive)
{
	check(apart, 4, 0,
	      "the runs are too short to compare the samples with the counter: they differ "
	      "by +5.00 % (mean), 7.30 % s.d. over 4 runs, which is within their "
	      "uncertainty",
	      true);
}

TEST(meters_that_disagree_are_never_called_inconclusive)
{
	check(apart, 4, UINT64_C(1) << GW_CODE_METERS_DISAGREE,
	      "the samples differ from the counter by +5.00 % (mean), 7.30 % s.d. "
	      "over 4 runs",
	      false);
}

TEST_MAIN(NULL, NULL)
