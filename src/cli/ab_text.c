#include "ab_text.h"

#include "clean_room.h"
#include "table.h"

#include "base/buf.h"
#include "base/number.h"
#include "measure/distribution.h"
#include "measure/stat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMN 12
/* The energy from the counter and the energy from the samples usually differ by less than this
 * ratio. In short runs they may differ by more. */
#define METERS_APART 0.02
#define row(...)     term_row(COLUMN, __VA_ARGS__)

static const char *const titles[] = {
	[AB_ENERGY] = "energy",
	[AB_TIME] = "time",
	[AB_POWER] = "mean power",
	[AB_EDP] = "energy x delay",
};

/* Returns how many decimals to print when this ratio is shown as a change in percent. */
static int digits_of(double ratio)
{
	double percent = fabs(100 * ratio);

	return percent >= 10 ? 1 : percent >= 0.1 || !(percent > 0) ? 2 : 3;
}

static void add_interval(struct buf *b, const struct ab_interval *i)
{
	int digits = digits_of(fmax(fabs(i->low - 1), fabs(i->high - 1)));

	buf_addf(b, "%+.*f to %+.*f %%", digits,
		 number_without_minus_zero(100 * (i->low - 1), digits), digits,
		 number_without_minus_zero(100 * (i->high - 1), digits));
}

void ab_text_change(char *out, size_t size, const struct ab_estimate *e)
{
	struct buf b;
	int digits;

	buf_init_fixed(&b, out, size);
	if (isnan(e->ratio)) {
		buf_adds(&b, "unknown");
		return;
	}
	digits = digits_of(e->ratio - 1);
	buf_addf(&b, "%+.*f %%", digits,
		 number_without_minus_zero(100 * (e->ratio - 1), digits));
	if (!isnan(e->interval.low)) {
		buf_adds(&b, " (");
		add_interval(&b, &e->interval);
		buf_adds(&b, ")");
	}
}

static enum ab_metric deciding_metric(const struct ab_report *r)
{
	return r->config->gated ? r->config->gate.metric : AB_ENERGY;
}

static void add_alarm(struct buf *b, const struct ab_report *r)
{
	char change[80];

	if (!r->result.aa_alarm)
		return;
	ab_text_change(change, sizeof(change), &r->result.aa[deciding_metric(r)]);
	buf_addf(b,
		 "; A compared with itself differs by %s: the machine drifts, or it is chance "
		 "(chance alone causes such a difference in 1 of 20 comparisons)",
		 change);
}

void ab_text_plan(char *out, size_t size, const struct ab_report *r)
{
	struct buf b;

	buf_init_fixed(&b, out, size);
	if (isnan(r->result.aa[deciding_metric(r)].sd_log))
		return;
	buf_addf(&b,
		 "expected resolution, from A compared with itself: the smallest effect that "
		 "%u pairs can show is about %.2g %%",
		 r->config->pairs_max, 100 * r->result.mde_budget_ratio);
	add_alarm(&b, r);
}

static void print_noise(const struct ab_report *r)
{
	const struct ab_estimate *aa = &r->result.aa[deciding_metric(r)];
	char text[400];
	struct buf b;

	if (isnan(aa->sd_log)) {
		row("Noise", "unknown: A was compared with itself in fewer than two pairs");
		return;
	}
	buf_init_fixed(&b, text, sizeof(text));
	buf_addf(&b,
		 "the %s of A compared with itself varies by %.2g %% from pair to pair "
		 "(standard deviation over %u pairs)",
		 titles[deciding_metric(r)], 100 * aa->sd_log, aa->n);
	add_alarm(&b, r);
	row("Noise", "%s", text);
}

static void set_verdict(struct table *t, const struct ab_report *r, enum ab_metric m)
{
	static const char *const words[] = { "undecided", "better", "worse" };
	static const char *const gate[] = { "undecided", "gate passed", "gate failed" };
	static const enum term_style styles[] = { TERM_WARN, TERM_GOOD, TERM_BAD };
	enum ab_verdict v = r->result.ab[m].verdict;

	table_set(t, 5, styles[v], "%s",
		  r->config->gated && r->config->gate.metric == m ? gate[v] : words[v]);
}

static void print_table(const struct ab_report *r)
{
	static const struct table_column columns[] = {
		{ "METRIC", 0, false, false },
		{ "A", 1, true, false },
		{ "B", 1, true, false },
		{ "B/A", 0, true, false },
		{ "CHANGE, 95 %", 0, true, false },
		{ "VERDICT", 0, false, false },
		{ NULL, 0, false, false },
	};
	static const char *const units[] = { "J", "s", "W", "Js" };
	struct table t;

	table_init(&t, columns);
	for (unsigned i = 0; i < AB_METRICS; i++) {
		enum ab_metric m = (enum ab_metric)i;
		const struct ab_estimate *e = &r->result.ab[m];
		char a[32], text[80];
		struct buf b;

		table_row(&t);
		table_set(&t, 0, m == deciding_metric(r) ? TERM_BOLD : TERM_PLAIN, "%s",
			  titles[m]);
		table_set(&t, 1, TERM_PLAIN, "%s",
			  term_quantity(a, ab_report_mean(r, AB_ARM_A, m), units[m]));
		table_set(&t, 2, TERM_PLAIN, "%s",
			  term_quantity(a, ab_report_mean(r, AB_ARM_B, m), units[m]));
		table_set(&t, 3, TERM_PLAIN, "%.4f", e->ratio);
		buf_init_fixed(&b, text, sizeof(text));
		if (isnan(e->interval.low))
			buf_adds(&b, "unknown");
		else
			add_interval(&b, &e->interval);
		table_set(&t, 4, TERM_PLAIN, "%s", text);
		set_verdict(&t, r, m);
	}
	table_end(&t, term_width());
}

/* Prints the mean energy of one command with two intervals. The first interval includes the
 * error of the sensor, as in `gpuward measure`. The second one does not, because all runs on
 * this GPU have the same sensor error. */
static void print_mean(const struct ab_report *r, enum ab_arm arm, const char *title)
{
	struct run_mean mean;
	char interval[80], half[32];

	run_mean_init(&mean);
	for (unsigned i = 0; i < r->runs; i++) {
		const struct ab_record *run = &r->run[i];

		if (run->used && run->step.phase == AB_PHASE_AB && run->step.arm == arm)
			run_mean_add(&mean, run->energy.best, run->u_j,
				     interval_u(&run->absolute));
	}
	row(title,
	    "%s (95 %%, including the sensor error); %s %s when compared with runs on the "
	    "same GPUs",
	    term_interval(interval, moments_mean(&mean.moments), run_mean_reach(&mean), "J"),
	    term_plain("±"), term_half_width(half, run_mean_reach_own(&mean), "J"));
}

static void print_iteration(const struct ab_report *r)
{
	char text[4][32];

	if (isnan(r->iterations))
		return;
	row("Iteration", "A %s in %s, B %s in %s",
	    term_quantity(text[0], ab_report_mean(r, AB_ARM_A, AB_ENERGY) / r->iterations, "J"),
	    term_quantity(text[1], ab_report_mean(r, AB_ARM_A, AB_TIME) / r->iterations, "s"),
	    term_quantity(text[2], ab_report_mean(r, AB_ARM_B, AB_ENERGY) / r->iterations, "J"),
	    term_quantity(text[3], ab_report_mean(r, AB_ARM_B, AB_TIME) / r->iterations, "s"));
}

static void print_gate(const struct ab_report *r)
{
	const char *outcome = ab_report_gate(r);

	if (!outcome)
		return;
	row("Gate", "fail if %s: %s%s%s", r->gate,
	    term_on(strcmp(outcome, "passed") == 0   ? TERM_GOOD
		    : strcmp(outcome, "failed") == 0 ? TERM_BAD
						     : TERM_WARN),
	    strcmp(outcome, "cannot-tell") == 0 ? "undecided" : outcome, term_off());
}

static void print_ending(const struct ab_report *r)
{
	static const char *const why[] = {
		[AB_DECIDED] = "the interval decides",
		[AB_PRECISE] = "the interval is as narrow as --target asks",
		[AB_BUDGET] = "--pairs-max was reached",
		[AB_INVALID] = "too many runs were not valid",
		[AB_SHARED] = "another process used a GPU",
	};
	const struct ab_result *x = &r->result;
	const char *reason = r->failed                  ? "a run failed"
			     : x->outcome == AB_RUNNING ? "interrupted"
							: why[x->outcome];
	char dropped[64] = "", plan[64] = "";

	if (x->repeats)
		snprintf(dropped, sizeof(dropped), "; %u pair%s dropped", x->repeats,
			 x->repeats == 1 ? "" : "s");
	if (x->outcome == AB_BUDGET && x->planned_pairs > r->config->pairs_max)
		snprintf(plan, sizeof(plan), "; about %.0f pairs would be needed",
			 x->planned_pairs);
	row("Ended", "after %u of at most %u pairs: %s%s%s", x->ab[deciding_metric(r)].n,
	    r->config->pairs_max, reason, dropped, plan);
}

static void print_interval(const struct ab_report *r)
{
	const struct ab_estimate *e = &r->result.ab[deciding_metric(r)];
	char expected[120] = "";

	if (e->n < 2)
		return;
	row("Interval",
	    "%s, %.2f %% at each check, so that all checks together have 95 %% coverage",
	    e->skewed ? "Student's t, widened to include the bootstrap interval (BCa) because "
			"the pairs are skewed"
		      : "Student's t",
	    100 * (1 - e->alpha));
	if (!isnan(r->result.aa[deciding_metric(r)].sd_log))
		snprintf(expected, sizeof(expected),
			 " (before the first pair, the comparison of A with itself predicted "
			 "%.2g %% for %u pairs)",
			 100 * r->result.mde_budget_ratio, r->config->pairs_max);
	row("Resolution",
	    "the smallest effect that these %u pairs detect with 80 %% probability is %.2g "
	    "%%%s",
	    e->n, 100 * e->mde_ratio, expected);
}

/* Returns true if counter and samples differ by more than METERS_APART in at least one used
 * run, and no used run has the code METERS_DISAGREE. This happens if the runs are short
 * compared with the update interval of the counter. */
static bool meters_coarse(const struct ab_report *r)
{
	bool apart = false;

	for (unsigned i = 0; i < r->runs; i++) {
		if (!r->run[i].used)
			continue;
		if (r->run[i].codes & UINT64_C(1) << GW_CODE_METERS_DISAGREE)
			return false;
		apart |= fabs(r->run[i].residual_ratio) > METERS_APART;
	}
	return apart;
}

static void print_meters(const struct ab_report *r)
{
	double mean, sd;
	unsigned n = ab_report_residual(r, &mean, &sd);
	double percent = number_without_minus_zero(100 * mean, 2);
	char runs[80];

	if (n < r->runs)
		snprintf(runs, sizeof(runs),
			 "%u of %u runs (the others have only one energy source, or were "
			 "dropped)",
			 n, r->runs);
	else
		snprintf(runs, sizeof(runs), "%u runs", n);
	if (n == 0)
		row("Meters", "the GPU has only one energy source, or the runs are too short "
			      "to use both");
	else if (meters_coarse(r))
		row("Meters",
		    "the runs are too short to compare the samples with the counter: they "
		    "differ by %+.2f %% (mean), %.2f %% s.d. over %s, which is within their "
		    "uncertainty",
		    percent, n > 1 ? 100 * sd : 0, runs);
	else
		row("Meters",
		    "the samples differ from the counter by %+.2f %% (mean), %.2f %% s.d. over "
		    "%s",
		    percent, n > 1 ? 100 * sd : 0, runs);
}

static void print_codes(const struct ab_report *r)
{
	enum gw_validity worst = GW_VALID;
	unsigned used = 0;

	for (unsigned i = 0; i < r->runs; i++)
		if (r->run[i].used) {
			used++;
			worst = r->run[i].validity > worst ? r->run[i].validity : worst;
		}
	if (used == 0)
		row("Validity", "%sno usable pair%s", term_on(TERM_BAD), term_off());
	else
		row("Validity", "%s%s%s", term_on(worst == GW_VALID ? TERM_GOOD : TERM_WARN),
		    gw_validity_name(worst), term_off());
	for (unsigned c = 0; c < GW_CODES; c++) {
		unsigned n = ab_report_code(r, c);

		if (n)
			row("", "%s in %u of %u runs: %s", gw_code_info(c)->key, n, r->runs,
			    gw_code_info(c)->sentence);
	}
}

void ab_text_print(const struct ab_report *r, const char *a, const char *b, const char *gpus,
		   const struct cli *c)
{
	if (r->simulated)
		term_print_simulated(stdout);
	row("A", "%s", a);
	row("B", "%s", b);
	if (*gpus)
		row("GPUs", "%s; energy and power are sums over these GPUs", gpus);
	if (r->result.ab[deciding_metric(r)].n > 0) {
		print_table(r);
		row("B/A", "geometric mean over the pairs; A and B are arithmetic means of the "
			   "runs");
		print_mean(r, AB_ARM_A, "Mean of A");
		print_mean(r, AB_ARM_B, "Mean of B");
		print_iteration(r);
	}
	print_gate(r);
	print_ending(r);
	print_noise(r);
	print_interval(r);
	print_meters(r);
	clean_room_print(r->room, COLUMN);
	if (!c->quiet)
		print_codes(r);
	row("Seed", "%llu", (unsigned long long)r->config->seed);
}
