#include "ab.h"

#include "distribution.h"
#include "sensor.h"
#include "stat.h"

#include "base/buf.h"
#include "base/number.h"
#include "base/suggest.h"

#include <gpuward.h>

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALPHA 0.05 /* error probability of the whole comparison, and of the A/A pass */
/* The smallest detectable effect is the one that is detected with this probability. */
#define POWER          0.8
#define BCA_FROM_PAIRS 10
#define BCA_SKEWNESS   1.0
#define RESAMPLES_MIN  100

/* Numbers of pairs at which the data are analysed, and the two-sided alpha of each analysis.
 * The number of analyses selects the row: with five analyses, row five. Alpha is from our own
 * simulation of 10^6 normal experiments: the 5 % quantile of the smallest p value over the
 * analyses, rounded down. From row two on, this quantile is 0.02917, 0.02113, 0.01655, 0.01367,
 * 0.01165, 0.01015, 0.00895, 0.00800 and 0.00726; row one needs no correction. With a small
 * pairs_max the last analysis is earlier than in the table. It then shares more of its data
 * with the analysis before it, so the same alpha is slightly stricter than necessary. */
static const struct {
	unsigned pairs;
	double alpha;
} interim_table[] = {
	{ 6, 0.05 },    { 10, 0.0291 },  { 16, 0.0211 },  { 26, 0.0165 },  { 40, 0.0136 },
	{ 64, 0.0116 }, { 100, 0.0101 }, { 160, 0.0089 }, { 256, 0.0080 }, { 400, 0.0072 },
};

/* The data of one phase: the logarithms of B/A of its pairs, and the sums of the arms. */
struct phase {
	double *logs[AB_METRICS]; /* one logarithm of B/A per pair */
	/* number of logarithms; less than `pairs` if a pair has no power */
	unsigned n[AB_METRICS];
	unsigned pairs;
	double energy_j[2], seconds[2]; /* sums over the runs of each arm */
};

struct ab {
	struct ab_config config;
	enum ab_metric metric; /* the deciding metric */
	double alpha;          /* alpha of one interim analysis */

	struct random order;
	enum ab_phase phase;
	struct phase phases[2];
	enum ab_arm first; /* first arm of the current pair */
	bool half;         /* the first run of the current pair is in `held` */
	struct ab_run held;
	unsigned repeats_row, repeats;

	enum ab_outcome outcome;
	struct ab_estimate last_interim;
	bool analysed;
	double *scratch; /* the part of `memory` for config.resamples numbers */
	double memory[]; /* the arrays phases[].logs, then scratch */
};

void ab_config_init(struct ab_config *config)
{
	*config = (struct ab_config){
		.pairs_max = 40,
		.aa_pairs = 4,
		.seed = 1,
		.resamples = BOOTSTRAP_RESAMPLES,
		.repeats_row_max = 3,
		.repeats_max = 10,
		.offset_w = SENSOR_OFFSET_U_W,
	};
}

static bool config_ok(const struct ab_config *c)
{
	if (c->gated && (!(c->gate.change > -1 && isfinite(c->gate.change)) ||
			 c->gate.metric >= AB_METRICS))
		return false;
	return c->pairs_max >= 2 && c->pairs_max <= AB_PAIRS_LIMIT &&
	       c->aa_pairs <= AB_PAIRS_LIMIT && c->target_ratio >= 0 && c->offset_w >= 0 &&
	       c->resamples >= RESAMPLES_MIN && c->resamples <= 100 * BOOTSTRAP_RESAMPLES;
}

/* Returns the first row of interim_table with at least this many pairs. The last row has
 * AB_PAIRS_LIMIT pairs. */
static unsigned interim_row(unsigned pairs)
{
	unsigned n = 0;

	while (interim_table[n].pairs < pairs)
		n++;
	return n;
}

static bool is_interim(const struct ab *ab, unsigned pairs)
{
	return pairs == ab->config.pairs_max ||
	       interim_table[interim_row(pairs)].pairs == pairs;
}

/* Selects the order of the next pair: random for an even pair; for an odd pair, the reverse of
 * the order of the pair before. */
static void plan_pair(struct ab *ab)
{
	if (ab->phases[ab->phase].pairs % 2 == 0)
		ab->first = random_below(&ab->order, 2) ? AB_ARM_B : AB_ARM_A;
	else
		ab->first = ab->first == AB_ARM_A ? AB_ARM_B : AB_ARM_A;
}

int ab_new(const struct ab_config *config, struct ab **ret)
{
	if (!config_ok(config))
		return -GW_E_ARG;

	size_t logs = (size_t)AB_METRICS * (config->aa_pairs + config->pairs_max);
	struct ab *ab = malloc(sizeof(*ab) + (logs + config->resamples) * sizeof(double));

	if (!ab)
		return -GW_E_NOMEM;
	*ab = (struct ab){ .config = *config };

	double *p = ab->memory;

	for (unsigned m = 0; m < AB_METRICS; m++) {
		ab->phases[AB_PHASE_AA].logs[m] = p;
		ab->phases[AB_PHASE_AB].logs[m] = p + config->aa_pairs;
		p += config->aa_pairs + config->pairs_max;
	}
	ab->scratch = p;
	ab->metric = config->gated ? config->gate.metric : AB_ENERGY;
	ab->phase = config->aa_pairs > 0 ? AB_PHASE_AA : AB_PHASE_AB;
	random_init(&ab->order, config->seed);
	ab->alpha = interim_table[interim_row(config->pairs_max)].alpha;
	plan_pair(ab);
	*ret = ab;
	return 0;
}

void ab_free(struct ab *ab)
{
	free(ab);
}

static struct ab_interval exp_interval(double low, double high)
{
	return (struct ab_interval){ exp(low), exp(high) };
}

/* Returns the union of the BCa interval and the t interval. BCa alone finds a difference
 * between a command and itself too often: the pairs are symmetric, so a skew comes from a few
 * disturbed runs, and BCa moves the interval towards these runs. In a simulation with noise of
 * 1 %, five interim checks, and 5 % of the runs 10 % too high, BCa alone found a difference in
 * 13.8 % of the comparisons; t alone and the union found one in 3.2 %. */
static struct ab_interval union_of(struct ab_interval x, struct ab_interval y)
{
	return (struct ab_interval){ fmin(x.low, y.low), fmax(x.high, y.high) };
}

/* Returns the uncertainty of the ratio that comes from the sensor's offset. */
static double offset_of(const struct ab *ab, const struct phase *ph, enum ab_metric metric)
{
	if (metric == AB_TIME || ph->pairs == 0)
		return 0;
	return compare_offset(ab->config.offset_w, ph->energy_j[0] / ph->seconds[0],
			      ph->energy_j[1] / ph->seconds[1]);
}

/* Returns the increase of the half-width `reach` of an interval if `extra` is added in
 * quadrature. */
static double ab_widened(double reach, double extra)
{
	return hypot(reach, extra) - fabs(reach);
}

static void set_interval(struct ab_estimate *e, struct ab_interval chosen)
{
	double extra = student_factor(e->alpha, INFINITY) * e->offset_u_log;
	double low = log(chosen.low), high = log(chosen.high);

	low -= ab_widened(e->mean_log - low, extra);
	high += ab_widened(high - e->mean_log, extra);
	e->interval = exp_interval(low, high);
}

/* Adds the bootstrap intervals. The seed depends on phase, metric and number of pairs, so that
 * the result does not depend on earlier calls. */
static void add_bootstrap(const struct ab *ab, enum ab_phase phase, enum ab_metric metric,
			  struct ab_estimate *e)
{
	const struct phase *ph = &ab->phases[phase];
	uint64_t state = ab->config.seed;
	struct bootstrap b;

	state = splitmix64(&state) + phase * 8u + (uint64_t)metric + ((uint64_t)e->n << 32);
	if (bootstrap_mean(ph->logs[metric], e->n, e->alpha, ab->config.resamples,
			   splitmix64(&state), ab->scratch, &b) < 0)
		return; /* there is only one pair, so the intervals stay unknown */
	e->percentile = exp_interval(b.percentile_low, b.percentile_high);
	if (e->n >= BCA_FROM_PAIRS)
		e->bca = exp_interval(b.bca_low, b.bca_high);
}

/* Returns the smallest effect that n pairs detect with the probability POWER, in standard
 * errors of the mean. The effect must exceed the half-width of the interval plus the distance
 * by which the measured mean may be too small. With few pairs the standard error itself is
 * uncertain, so both terms use Student's t. */
static double detected_in_se(double alpha, double n)
{
	return n < 2 ? (double)NAN
		     : student_factor(alpha, n - 1) + student_quantile(POWER, n - 1);
}

/* Fills in the estimate: every interval if `all`, else only the interval that decides. */
static void fill_estimate(const struct ab *ab, enum ab_phase phase, enum ab_metric metric,
			  bool all, struct ab_estimate *e)
{
	const struct phase *ph = &ab->phases[phase];
	const struct ab_interval unknown = { NAN, NAN };
	unsigned n = ph->n[metric];
	struct moments m;

	moments_init(&m);
	for (unsigned i = 0; i < n; i++)
		moments_add(&m, ph->logs[metric][i]);
	*e = (struct ab_estimate){
		.n = n,
		.mean_log = moments_mean(&m),
		.ratio = exp(moments_mean(&m)),
		.sd_log = sqrt(moments_variance(&m)),
		.skewness = stat_skewness(ph->logs[metric], n),
		.alpha = phase == AB_PHASE_AA ? ALPHA : ab->alpha,
		.bca = unknown,
		.percentile = unknown,
		.offset_u_log = offset_of(ab, ph, metric),
	};

	double se = e->sd_log / sqrt(n), reach = student_factor(e->alpha, n - 1.0) * se;

	e->mde_ratio = detected_in_se(e->alpha, n) * se;
	e->t = exp_interval(e->mean_log - reach, e->mean_log + reach);
	e->skewed = n >= BCA_FROM_PAIRS && fabs(e->skewness) > BCA_SKEWNESS;
	if (all || e->skewed)
		add_bootstrap(ab, phase, metric, e);
	set_interval(e, e->skewed ? union_of(e->t, e->bca) : e->t);
}

/* Decides the verdict. Compares the interval with the limit of the gate if the gate is for this
 * metric, otherwise with a change of 0. */
static enum ab_verdict ab_decide(const struct ab *ab, enum ab_metric metric,
				 struct ab_interval i)
{
	bool gated = ab->config.gated && ab->config.gate.metric == metric;
	struct ab_gate gate = gated ? ab->config.gate : (struct ab_gate){ .above = true };
	double limit = 1 + gate.change;
	/* Distance of each end of the interval from the limit. A positive distance is on the
	 * bad side of the limit. */
	double near = gate.above ? i.low - limit : limit - i.high;
	double far = gate.above ? i.high - limit : limit - i.low;

	if (near > 0 || (near == 0 && gate.or_equal))
		return AB_WORSE;
	/* A gate names the bad side of the limit. With > or <, the limit itself is not bad, so
	 * an interval that ends there passes. Without a gate, a change of exactly 0 is not
	 * better. */
	if (far < 0 || (far == 0 && gated && !gate.or_equal))
		return AB_BETTER;
	return AB_INCONCLUSIVE;
}

static void analyse_interim(struct ab *ab)
{
	struct ab_estimate *e = &ab->last_interim;
	double target = ab->config.target_ratio;

	fill_estimate(ab, AB_PHASE_AB, ab->metric, false, e);
	e->verdict = ab_decide(ab, ab->metric, e->interval);
	ab->analysed = true;
	if (e->verdict != AB_INCONCLUSIVE)
		ab->outcome = AB_DECIDED;
	else if (target > 0 && 0.5 * (e->interval.high - e->interval.low) <= target)
		ab->outcome = AB_PRECISE;
	else if (ab->phases[AB_PHASE_AB].pairs >= ab->config.pairs_max)
		ab->outcome = AB_BUDGET;
}

bool ab_next(const struct ab *ab, struct ab_step *ret)
{
	enum ab_arm second = ab->first == AB_ARM_A ? AB_ARM_B : AB_ARM_A;

	if (ab->outcome != AB_RUNNING)
		return false;
	ret->phase = ab->phase;
	ret->arm = ab->half ? second : ab->first;
	ret->command = ab->phase == AB_PHASE_AA ? AB_ARM_A : ret->arm;
	ret->pair = ab->phases[ab->phase].pairs;
	return true;
}

static bool is_positive(double x)
{
	return isfinite(x) && x > 0;
}

static bool is_usable(const struct ab *ab, const struct ab_run *run)
{
	return run->valid && run->exclusive && is_positive(run->energy_j) &&
	       is_positive(run->seconds) &&
	       (ab->metric != AB_POWER || is_positive(run->power_w));
}

static void drop_pair(struct ab *ab, const struct ab_run *run)
{
	ab->half = false;
	ab->repeats++;
	ab->repeats_row++;
	if (!run->exclusive && ab->config.require_exclusive)
		ab->outcome = AB_SHARED;
	else if (ab->repeats > ab->config.repeats_max ||
		 ab->repeats_row > ab->config.repeats_row_max)
		ab->outcome = run->exclusive ? AB_INVALID : AB_SHARED;
}

static void add_log(struct phase *ph, enum ab_metric metric, double a, double b)
{
	if (is_positive(a) && is_positive(b))
		ph->logs[metric][ph->n[metric]++] = log(b / a);
}

static void add_pair(struct phase *ph, const struct ab_run *a, const struct ab_run *b)
{
	add_log(ph, AB_ENERGY, a->energy_j, b->energy_j);
	add_log(ph, AB_TIME, a->seconds, b->seconds);
	add_log(ph, AB_POWER, a->power_w, b->power_w);
	add_log(ph, AB_EDP, a->energy_j * a->seconds, b->energy_j * b->seconds);
	ph->energy_j[0] += a->energy_j;
	ph->energy_j[1] += b->energy_j;
	ph->seconds[0] += a->seconds;
	ph->seconds[1] += b->seconds;
	ph->pairs++;
}

static void end_pair(struct ab *ab, const struct ab_run *second)
{
	struct phase *ph = &ab->phases[ab->phase];
	bool a_first = ab->first == AB_ARM_A;

	add_pair(ph, a_first ? &ab->held : second, a_first ? second : &ab->held);
	ab->half = false;
	ab->repeats_row = 0;
	if (ab->phase == AB_PHASE_AB && is_interim(ab, ph->pairs))
		analyse_interim(ab);
	if (ab->phase == AB_PHASE_AA && ph->pairs == ab->config.aa_pairs)
		ab->phase = AB_PHASE_AB;
	plan_pair(ab);
}

int ab_add(struct ab *ab, enum ab_phase phase, enum ab_arm arm, const struct ab_run *run)
{
	struct ab_step step;

	if (!ab_next(ab, &step) || step.phase != phase || step.arm != arm)
		return -GW_E_STATE;
	if (!is_usable(ab, run)) {
		drop_pair(ab, run);
		return 1;
	}
	if (ab->half) {
		end_pair(ab, run);
	} else {
		ab->held = *run;
		ab->half = true;
	}
	return 0;
}

static bool ab_finished(const struct ab *ab)
{
	return ab->outcome == AB_DECIDED || ab->outcome == AB_PRECISE ||
	       ab->outcome == AB_BUDGET;
}

/* Returns the number of pairs that detects a change of target_ratio with a probability of 80 %.
 * Without a target, uses the change in the rule of --fail-if. */
static double planned_pairs(const struct ab *ab, const struct ab_result *r)
{
	const struct ab_estimate *e = &r->ab[ab->metric];
	double sd = e->n >= 2 ? e->sd_log : r->aa[ab->metric].sd_log;
	double d = ab->config.target_ratio;

	if (!(d > 0) && ab->config.gated)
		d = fabs(log1p(ab->config.gate.change));
	if (!(d > 0) || isnan(sd))
		return NAN;
	/* Start with the quantiles of the normal distribution. They give a number that is about
	 * two pairs too small. */
	double z = student_factor(ab->alpha, INFINITY) + normal_quantile(POWER);
	double pairs = fmax(2, ceil(pow(z * sd / d, 2)));

	while (detected_in_se(ab->alpha, pairs) * sd / sqrt(pairs) > d)
		pairs++;
	return pairs;
}

void ab_result(const struct ab *ab, struct ab_result *ret)
{
	ret->outcome = ab->outcome;
	ret->repeats = ab->repeats;
	for (unsigned i = 0; i < AB_METRICS; i++) {
		enum ab_metric m = (enum ab_metric)i;

		fill_estimate(ab, AB_PHASE_AA, m, true, &ret->aa[m]);
		fill_estimate(ab, AB_PHASE_AB, m, true, &ret->ab[m]);
		if (ab_finished(ab))
			ret->ab[m].verdict = ab_decide(ab, m, ret->ab[m].interval);
	}

	const struct ab_estimate *aa = &ret->aa[ab->metric];

	ret->aa_alarm = aa->interval.low > 1 || aa->interval.high < 1;
	ret->mde_budget_ratio = detected_in_se(ab->alpha, ab->config.pairs_max) * aa->sd_log /
				sqrt(ab->config.pairs_max);
	ret->planned_pairs = planned_pairs(ab, ret);
}

const struct ab_estimate *ab_last_interim(const struct ab *ab)
{
	return ab->analysed ? &ab->last_interim : NULL;
}

enum ab_outcome ab_outcome(const struct ab *ab)
{
	return ab->outcome;
}

int ab_exit_code(const struct ab *ab)
{
	switch (ab->outcome) {
	case AB_RUNNING: return -GW_E_STATE;
	case AB_INVALID: return 12;
	case AB_SHARED: return 13;
	case AB_DECIDED:
	case AB_PRECISE:
	case AB_BUDGET: break;
	}
	if (!ab->config.gated)
		return 0;
	switch (ab->last_interim.verdict) {
	case AB_BETTER: return 0;
	case AB_WORSE: return 10;
	case AB_INCONCLUSIVE: break;
	}
	return 11;
}

/* The names of the metrics in the argument of --fail-if. */
static const char *const metric_names[AB_METRICS] = {
	[AB_ENERGY] = "energy",
	[AB_TIME] = "time",
	[AB_POWER] = "power",
	[AB_EDP] = "edp",
};

const char *ab_metric_name(enum ab_metric metric)
{
	return metric_names[metric];
}

#define EXAMPLE "write it like 'energy > +2%'"

/* State of the parser of a gate: the remaining characters, and the buffer for the error
 * message. */
struct gate_reader {
	const char *text, *at;
	struct buf err;
};

static int gate_error(struct gate_reader *r, const char *what, const char *fix)
{
	unsigned column = (unsigned)(r->at - r->text) + 1;

	buf_addf(&r->err, "column %u: %s; %s", column, what, fix);
	return -GW_E_PARSE;
}

static void skip_blanks(struct gate_reader *r)
{
	while (*r->at == ' ' || *r->at == '\t')
		r->at++;
}

static int no_metric(struct gate_reader *r, const char *word)
{
	const char *near = suggest(word, metric_names, AB_METRICS, sizeof(metric_names[0]));
	char what[80], fix[80];
	struct buf w, f;

	if (word[0] == '\0')
		return gate_error(r, "the metric is missing", EXAMPLE);
	buf_init_fixed(&w, what, sizeof(what));
	buf_addf(&w, "no metric is called '%s'", word);
	buf_init_fixed(&f, fix, sizeof(fix));
	if (near)
		buf_addf(&f, "did you mean '%s'?", near);
	else
		buf_adds(&f, "use energy, time, power or edp");
	return gate_error(r, what, fix);
}

static int read_metric(struct gate_reader *r, enum ab_metric *ret)
{
	char word[32];
	size_t n = 0;

	while (n < sizeof(word) - 1 && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_'))
		n++;
	memcpy(word, r->at, n);
	word[n] = '\0';
	for (unsigned i = 0; i < AB_METRICS; i++) {
		if (strcmp(word, metric_names[i]) == 0) {
			*ret = (enum ab_metric)i;
			r->at += n;
			return 0;
		}
	}
	return no_metric(r, word);
}

static int read_operator(struct gate_reader *r, struct ab_gate *gate)
{
	if (*r->at != '>' && *r->at != '<')
		return gate_error(r, "the comparison after the metric is missing",
				  "use >, >=, < or <=");
	gate->above = *r->at++ == '>';
	gate->or_equal = *r->at == '=';
	r->at += gate->or_equal;
	return 0;
}

static int read_change(struct gate_reader *r, double *ret)
{
	char digits[32];
	const char *end;
	bool negative = *r->at == '-';
	const char *p = r->at + (negative || *r->at == '+');
	size_t n = strspn(p, "0123456789.");

	if (n == 0 || n >= sizeof(digits))
		return gate_error(r, "the number is missing",
				  "name the change in percent, such as +2% or -0.5%");
	memcpy(digits, p, n);
	digits[n] = '\0';

	double percent = number_parse(digits, &end);

	if (*end != '\0')
		return gate_error(r, "this is not a number",
				  "write a decimal such as 2 or 0.5");
	if (negative && percent >= 100)
		return gate_error(r, "a decrease of 100 % or more is not possible",
				  "name a smaller change");
	r->at = p + n;
	if (*r->at == ',')
		return gate_error(r, "the number has a comma", "write decimals with a point");
	skip_blanks(r);
	if (*r->at != '%')
		return gate_error(r, "the % after the number is missing",
				  "changes are in percent, such as +2%");
	r->at++;
	*ret = (negative ? -percent : percent) / 100;
	return 0;
}

static int read_gate(struct gate_reader *r, struct ab_gate *gate)
{
	int err;

	skip_blanks(r);
	err = read_metric(r, &gate->metric);
	if (err < 0)
		return err;
	skip_blanks(r);
	err = read_operator(r, gate);
	if (err < 0)
		return err;
	skip_blanks(r);
	err = read_change(r, &gate->change);
	if (err < 0)
		return err;
	skip_blanks(r);
	return *r->at == '\0' ? 0 : gate_error(r, "there is more text after the %", EXAMPLE);
}

int ab_gate_parse(const char *text, struct ab_gate *ret, char *err, size_t err_size)
{
	struct gate_reader r = { .text = text, .at = text };
	struct ab_gate gate;

	buf_init_fixed(&r.err, err, err_size);

	int e = read_gate(&r, &gate);

	if (e == 0)
		*ret = gate;
	return e;
}
