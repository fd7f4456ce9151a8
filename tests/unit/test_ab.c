/* Tests the whole comparison with simulated runs. */
#include "here.h"
#include "random_unit.h"
#include "test.h"

#include "measure/ab.h"

#include <gpuward.h>

#include <math.h>

#include "measure/distribution.h"
#include "measure/stat.h"

/* A sanitizer makes each experiment ten times as slow, so run fewer of them and allow a wider
 * margin. */
#ifdef SLOW
#define EXPERIMENTS 4000
#define MARGIN      0.01
#else
#define EXPERIMENTS 10000
#define MARGIN      0.0
#endif

static struct ab_config c;
static struct ab *ab; /* freed at the end of each test */

static void standard(void)
{
	ab_config_init(&c);
}

static void begin(void)
{
	ab_free(ab);
	ab = NULL;
	assert_int_equal(ab_new(&c, &ab), 0);
	assert_non_null(ab);
}

static int setup(void **state)
{
	standard();
	return 0;
}

static int teardown(void **state)
{
	ab_free(ab);
	ab = NULL;
	return 0;
}

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown

struct world {
	struct random r;
	double effect; /* energy of B divided by energy of A */
	double cv;     /* coefficient of variation of one run */
	/* share of disturbed runs, and the size of the disturbance */
	double outliers, outlier_size;
};

static double gauss(struct random *r)
{
	return normal_quantile(random_unit(r) + 0x1p-54);
}

static struct ab_run run_once(struct world *w, enum ab_arm command)
{
	double energy = 3000 * exp(w->cv * gauss(&w->r));
	double seconds = 10 * exp(0.2 * w->cv * gauss(&w->r));

	if (command == AB_ARM_B)
		energy *= w->effect;
	if (random_unit(&w->r) < w->outliers)
		energy *= 1 + w->outlier_size;
	return (struct ab_run){ energy, seconds, energy / seconds, true, true };
}

static void finish(struct world *w)
{
	struct ab_step s;

	while (ab_next(ab, &s)) {
		struct ab_run run = run_once(w, s.command);

		assert_int_equal(ab_add(ab, s.phase, s.arm, &run), 0);
	}
}

/* Returns a run of ten seconds with this energy. */
static struct ab_run joules(double energy)
{
	return (struct ab_run){ energy, 10, energy / 10, true, true };
}

/* Adds runs with these energies per pair: A 1000 J, B 1000 J times ratio[i]. */
static void feed(const double *ratio, size_t n)
{
	struct ab_step s;

	while (ab_next(ab, &s)) {
		if (s.phase == AB_PHASE_AB && s.pair >= n)
			break;

		bool b = s.phase == AB_PHASE_AB && s.arm == AB_ARM_B;
		struct ab_run run = joules(b ? 1000 * ratio[s.pair] : 1000);

		assert_int_equal(ab_add(ab, s.phase, s.arm, &run), 0);
	}
}

TEST(a_is_first_compared_with_itself_and_each_two_pairs_use_both_orders)
{
	struct world w = { .effect = 1, .cv = 0.01 };
	unsigned starts[2] = { 0 };

	random_init(&w.r, 1);
	for (uint64_t seed = 0; seed < 50; seed++) {
		enum ab_arm order[2][80];
		unsigned n[2] = { 0 };
		struct ab_step s;

		standard();
		c.seed = seed;
		begin();
		while (ab_next(ab, &s)) {
			struct ab_run run = run_once(&w, s.command);

			assert_true(s.phase == AB_PHASE_AB || n[AB_PHASE_AB] == 0);
			assert_int_equal(s.pair, n[s.phase] / 2);
			if (s.phase == AB_PHASE_AA)
				assert_int_equal(s.command, AB_ARM_A);
			else
				assert_int_equal(s.command, s.arm);
			order[s.phase][n[s.phase]++] = s.arm;
			assert_int_equal(ab_add(ab, s.phase, s.arm, &run), 0);
		}
		assert_int_equal(n[AB_PHASE_AA], 8);
		for (unsigned p = 0; p < 2; p++) {
			for (unsigned i = 0; i + 3 < n[p]; i += 4) {
				const enum ab_arm *o = &order[p][i];

				assert_true(o[0] != o[1] && o[1] == o[2] && o[3] == o[0]);
				starts[o[0]]++;
			}
		}
	}
	assert_true(starts[0] > 60 && starts[1] > 60);
}

/* Compares bit by bit, except the padding between the members. */
static void assert_same_estimate(const struct ab_estimate *a, const struct ab_estimate *b)
{
#define SAME(member) assert_memory_equal(&a->member, &b->member, sizeof(a->member))
	SAME(n);
	SAME(ratio);
	SAME(mean_log);
	SAME(sd_log);
	SAME(skewness);
	SAME(alpha);
	SAME(skewed);
	SAME(interval);
	SAME(t);
	SAME(bca);
	SAME(percentile);
	SAME(offset_u_log);
	SAME(mde_ratio);
	SAME(verdict);
#undef SAME
}

TEST(the_same_seed_and_runs_give_the_same_result)
{
	struct ab_result results[2];

	for (unsigned i = 0; i < 2; i++) {
		struct world w = {
			.effect = 1.002, .cv = 0.01, .outliers = 0.1, .outlier_size = 0.2
		};

		standard();
		random_init(&w.r, 5);
		c.seed = 77;
		begin();
		finish(&w);
		memset(&results[i], 0, sizeof(results[i]));
		ab_result(ab, &results[i]);
		if (i == 1) /* a second call changes nothing */
			ab_result(ab, &results[i]);
	}
	assert_int_equal(results[0].outcome, results[1].outcome);
	assert_int_equal(results[0].repeats, results[1].repeats);
	for (unsigned m = 0; m < AB_METRICS; m++) {
		assert_same_estimate(&results[0].aa[m], &results[1].aa[m]);
		assert_same_estimate(&results[0].ab[m], &results[1].ab[m]);
	}
}

TEST(only_the_requested_run_is_accepted)
{
	begin();
	struct ab_run run = joules(1000);
	struct ab_step s;

	assert_true(ab_next(ab, &s));
	enum ab_arm other = s.arm == AB_ARM_A ? AB_ARM_B : AB_ARM_A;

	assert_int_equal(ab_add(ab, s.phase, other, &run), -GW_E_STATE);
	assert_int_equal(ab_add(ab, AB_PHASE_AB, s.arm, &run), -GW_E_STATE);
	assert_int_equal(ab_add(ab, s.phase, s.arm, &run), 0);
	assert_int_equal(ab_exit_code(ab), -GW_E_STATE);
	assert_null(ab_last_interim(ab));
	ab_free(NULL);
}

TEST(a_configuration_that_makes_no_sense_is_refused)
{
#define REFUSE(field, value)                                  \
	do {                                                  \
		standard();                                   \
		c.gated = true;                               \
		c.field = value;                              \
		assert_int_equal(ab_new(&c, &ab), -GW_E_ARG); \
		assert_null(ab);                              \
	} while (0)
	REFUSE(pairs_max, 1);
	REFUSE(pairs_max, AB_PAIRS_LIMIT + 1);
	REFUSE(aa_pairs, AB_PAIRS_LIMIT + 1);
	REFUSE(target_ratio, -0.1);
	REFUSE(target_ratio, NAN);
	REFUSE(gate.change, -1);
	REFUSE(gate.change, NAN);
	REFUSE(resamples, 10);
	REFUSE(offset_w, -1);
#undef REFUSE
}

TEST(the_figures_are_those_of_the_paired_logarithms)
{
	/* logarithms of the ratios: 0.01 0.02 0.03 0.02 0.02 0.02 */
	static const double logs[] = { 0.01, 0.02, 0.03, 0.02, 0.02, 0.02 };
	struct ab_result r;
	double ratio[6], sd = sqrt(2e-4 / 5);

	for (unsigned i = 0; i < 6; i++)
		ratio[i] = exp(logs[i]);
	c.pairs_max = 6;
	c.offset_w = 0;
	c.gated = true;
	c.gate = (struct ab_gate){ AB_ENERGY, true, false, 0.01 };
	begin();
	feed(ratio, 6);
	ab_result(ab, &r);
	const struct ab_estimate *e = &r.ab[AB_ENERGY];

	assert_int_equal(e->n, 6);
	assert_true(e->alpha == 0.05);
	assert_true(fabs(e->ratio - exp(0.02)) < 1e-12);
	assert_true(fabs(e->sd_log - sd) < 1e-12);
	assert_true(fabs(e->mde_ratio -
			 (2.5705818356363155 + 0.9195437802407014) * sd / sqrt(6)) < 1e-11);
	assert_true(fabs(e->t.high - exp(0.02 + 2.5705818356363155 * sd / sqrt(6))) < 1e-9);
	assert_true(fabs(e->t.low - exp(0.02 - 2.5705818356363155 * sd / sqrt(6))) < 1e-9);
	assert_true(e->interval.low == e->t.low && e->interval.high == e->t.high);
	assert_true(isnan(e->bca.low)); /* six pairs */
	assert_true(e->percentile.low > e->t.low && e->percentile.high < e->t.high);
	/* (t(0.975) + t(0.8)) sd / sqrt(n) is at most 1 % with 6 pairs, but not with 5 */
	assert_true(r.planned_pairs == 6);
	/* every run takes ten seconds: energy, power and EDP change; the time does not */
	assert_true(fabs(r.ab[AB_POWER].ratio - exp(0.02)) < 1e-12);
	assert_true(fabs(r.ab[AB_EDP].ratio - exp(0.02)) < 1e-12);
	assert_true(r.ab[AB_TIME].ratio == 1 && r.ab[AB_TIME].verdict == AB_INCONCLUSIVE);
	assert_true(r.aa[AB_ENERGY].sd_log == 0 && !r.aa_alarm);
	assert_int_equal(r.outcome, AB_DECIDED);
	assert_int_equal(e->verdict, AB_WORSE);
}

TEST(skewed_pairs_are_judged_by_t_and_bca_together)
{
	double ratio[10] = { 1.001, 0.999, 1.002, 0.998, 1.001, 0.999, 1.0, 1.0, 1.001, 1.05 };
	struct ab_result r;

	c.offset_w = 0;
	begin();
	feed(ratio, 10);
	const struct ab_estimate *e = ab_last_interim(ab);

	assert_int_equal(e->n, 10);
	assert_true(e->skewness > 1 && e->skewed);
	assert_true(e->interval.low == e->t.low && e->interval.high == e->bca.high);
	/* the long tail is above, so BCa reaches further up than down */
	assert_true(e->bca.high - e->ratio > e->ratio - e->bca.low);
	ab_result(ab, &r);
	assert_true(r.ab[AB_ENERGY].bca.high == e->bca.high);
	assert_true(r.ab[AB_ENERGY].t.low < r.ab[AB_ENERGY].bca.low);
}

TEST(an_offset_of_the_sensor_widens_the_interval_of_power)
{
	double ratio[6] = { 0.5, 0.5, 0.5, 0.5, 0.5, 0.5 };
	struct ab_result r;
	double u = 2.5 * (1 / 50.0 - 1 / 100.0); /* 100 W against 50 W */

	c.pairs_max = 6;
	begin();
	feed(ratio, 6);
	ab_result(ab, &r);
	assert_true(fabs(r.ab[AB_ENERGY].offset_u_log - u) < 1e-12);
	assert_true(fabs(r.ab[AB_ENERGY].interval.high - 0.5 * exp(1.959963984540054 * u)) <
		    1e-9);
	assert_true(fabs(r.ab[AB_EDP].interval.low - 0.5 * exp(-1.959963984540054 * u)) < 1e-9);
	assert_true(r.ab[AB_TIME].offset_u_log == 0);
	assert_true(r.ab[AB_ENERGY].t.low == r.ab[AB_ENERGY].t.high);
}

TEST(before_the_first_pair_all_figures_are_unknown_not_zero)
{
	struct ab_result r;

	c.target_ratio = 0.01;
	begin();
	ab_result(ab, &r);
	for (unsigned m = 0; m < AB_METRICS; m++) {
		const struct ab_estimate *e = &r.ab[m];

		assert_true(isnan(e->ratio) && isnan(e->sd_log) && isnan(e->interval.low));
		assert_true(isnan(e->mde_ratio) && isnan(e->percentile.high));
		assert_int_equal(e->verdict, AB_INCONCLUSIVE);
	}
	assert_true(isnan(r.planned_pairs) && isnan(r.mde_budget_ratio) && !r.aa_alarm);
	assert_int_equal(r.outcome, AB_RUNNING);
}

TEST(power_that_was_not_read_is_missing_not_zero)
{
	struct ab_result r;
	struct ab_step s;

	c.pairs_max = 6;
	c.aa_pairs = 0;
	for (unsigned gated = 0; gated < 2; gated++) {
		c.gated = gated;
		c.gate = (struct ab_gate){ AB_POWER, true, false, 0 };
		begin();
		while (ab_next(ab, &s)) {
			struct ab_run run = joules(1000);

			run.power_w = NAN;
			assert_int_equal(ab_add(ab, s.phase, s.arm, &run), gated);
		}
		ab_result(ab, &r);
		assert_true(r.ab[AB_POWER].n == 0 && isnan(r.ab[AB_POWER].ratio));
		assert_int_equal(r.ab[AB_ENERGY].n, gated ? 0 : 6);
		assert_int_equal(ab_exit_code(ab), gated ? 12 : 0);
	}
}

struct ending {
	const char *gate; /* NULL: none */
	double effect;
	enum ab_outcome outcome;
	enum ab_verdict verdict;
	int code;
};

TEST(the_exit_code_follows_the_gate)
{
	static const struct ending rows[] = {
		{ NULL, 1.1, AB_DECIDED, AB_WORSE, 0 },
		{ NULL, 0.9, AB_DECIDED, AB_BETTER, 0 },
		{ "energy > +2%", 1.1, AB_DECIDED, AB_WORSE, 10 },
		{ "energy > +2%", 1.0, AB_DECIDED, AB_BETTER, 0 },
		{ "energy > +2%", 1.02, AB_BUDGET, AB_INCONCLUSIVE, 11 },
		{ "energy > -5%", 1.0, AB_DECIDED, AB_WORSE, 10 }, /* must save 5 % */
		{ "energy > -5%", 0.9, AB_DECIDED, AB_BETTER, 0 },
		/* the gate fails if B draws 5 % less */
		{ "power < -5%", 0.9, AB_DECIDED, AB_WORSE, 10 },
		{ "power < -5%", 1.0, AB_DECIDED, AB_BETTER, 0 },
		{ "edp >= 5%", 1.2, AB_DECIDED, AB_WORSE, 10 },
		{ "time > 5%", 1.2, AB_DECIDED, AB_BETTER, 0 }, /* the time does not change */
		{ "time > 0%", 1.2, AB_BUDGET, AB_INCONCLUSIVE, 11 },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct world w = { .effect = rows[i].effect, .cv = 0.005 };
		struct ab_result r;
		char err[160];

		standard();
		/* The true change may equal the threshold, where 1 of 20 seeds gives a false
		 * alarm. Seed 3 gives none. */
		random_init(&w.r, 3);
		c.gated = rows[i].gate;
		if (c.gated)
			assert_int_equal(ab_gate_parse(rows[i].gate, &c.gate, err, sizeof(err)),
					 0);
		begin();
		finish(&w);
		ab_result(ab, &r);
		enum ab_metric m = c.gated ? c.gate.metric : AB_ENERGY;

		print_message("%s, effect %g\n", rows[i].gate ? rows[i].gate : "-", w.effect);
		assert_int_equal(r.outcome, rows[i].outcome);
		assert_int_equal(r.ab[m].verdict, rows[i].verdict);
		assert_int_equal(ab_exit_code(ab), rows[i].code);
	}
}

/* If all ratios are the same, the interval has no width and lies exactly on the threshold. */
TEST(exactly_at_the_threshold_the_operator_decides)
{
	static const struct {
		const char *gate;
		int code;
	} rows[] = { { "energy > 0%", 0 },
		     { "energy >= 0%", 10 },
		     { "energy < 0%", 0 },
		     { "energy <= 0%", 10 },
		     { "energy > -50%", 10 } };
	const double same[6] = { 1, 1, 1, 1, 1, 1 };

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char err[160];

		standard();
		c.gated = true;
		assert_int_equal(ab_gate_parse(rows[i].gate, &c.gate, err, sizeof(err)), 0);
		begin();
		feed(same, 6);
		assert_int_equal(ab_exit_code(ab), rows[i].code);
	}
}

/* Brute force: simulates many experiments with the effect that n pairs should detect. In four
 * of five experiments the interval must exclude 0. */
TEST(the_smallest_effect_is_detected_with_the_stated_probability)
{
	static const unsigned pairs[] = { 4, 6 };
	struct random r;

	random_init(&r, 7);
	for (size_t i = 0; i < COUNT_OF(pairs); i++) {
		struct world w = { .effect = 1, .cv = 0.01 };
		struct ab_result result;
		unsigned n = pairs[i], found = 0;

		random_init(&w.r, 3);
		standard();
		c.pairs_max = n;
		begin();
		finish(&w);
		ab_result(ab, &result);

		const struct ab_estimate *e = &result.ab[AB_ENERGY];
		double effect = e->mde_ratio / e->sd_log; /* in standard deviations of a pair */

		for (unsigned k = 0; k < 20000; k++) {
			struct moments m;

			moments_init(&m);
			for (unsigned p = 0; p < n; p++)
				moments_add(&m, effect + normal_quantile(random_unit(&r)));
			found += moments_mean(&m) > student_factor(e->alpha, n - 1.0) *
							    sqrt(moments_variance(&m) / n);
		}
		if (found < 15500 || found > 16500)
			fail_msg("%u pairs detect it in %u of 20000 experiments (seed 7)", n,
				 found);
	}
}

TEST(it_stops_when_the_interval_is_as_narrow_as_asked)
{
	struct world w = { .effect = 1, .cv = 0.005 };
	struct ab_result r;

	random_init(&w.r, 3);
	c.target_ratio = 0.01;
	begin();
	finish(&w);
	ab_result(ab, &r);
	const struct ab_estimate *e = &r.ab[AB_ENERGY];

	assert_int_equal(r.outcome, AB_PRECISE);
	assert_true(e->interval.high - e->interval.low <= 0.02);
	assert_true(e->n == 6 || e->n == 10 || e->n == 16);
	assert_true(r.planned_pairs >= 2 && r.planned_pairs < 40);
	assert_true(fabs(r.mde_budget_ratio - (2.584793573525417 + 0.8509350199199162) *
						      r.aa[AB_ENERGY].sd_log / sqrt(40)) <
		    1e-11);
}

TEST(it_stops_only_at_interim_analyses)
{
	static const struct {
		unsigned pairs_max, looks[6];
	} rows[] = { { 2, { 2 } },
		     { 6, { 6 } },
		     { 8, { 6, 8 } },
		     { 40, { 6, 10, 16, 26, 40 } },
		     { 50, { 6, 10, 16, 26, 40, 50 } } };

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct ab_step s;
		unsigned seen = 0;

		standard();
		c.pairs_max = rows[i].pairs_max;
		begin();
		while (ab_next(ab, &s)) {
			/* +2 %, -2 %, ...: the comparison never reaches a decision */
			bool up = s.phase == AB_PHASE_AB &&
				  (s.arm == AB_ARM_B) == (s.pair % 2 == 0);
			struct ab_run run = joules(up ? 1020 : 1000);
			const struct ab_estimate *e;

			assert_int_equal(ab_add(ab, s.phase, s.arm, &run), 0);
			e = ab_last_interim(ab);
			if (e && e->n == rows[i].looks[seen])
				seen++;
			assert_true(!e || e->n == rows[i].looks[seen - 1]);
		}
		assert_int_equal(ab_last_interim(ab)->n, rows[i].pairs_max);
		assert_int_equal(ab_outcome(ab), AB_BUDGET);
	}
}

TEST(an_unfinished_comparison_has_no_verdict)
{
	double ratio[8] = { 1.02, 0.98, 1.02, 0.98, 1.02, 0.98, 9, 9 };
	struct ab_result r;

	begin();
	feed(ratio, 8);
	ab_result(ab, &r);
	assert_int_equal(r.outcome, AB_RUNNING);
	assert_int_equal(r.ab[AB_ENERGY].n, 8);
	assert_int_equal(r.ab[AB_ENERGY].verdict, AB_INCONCLUSIVE);
}

TEST(a_pair_with_an_invalid_run_is_repeated_and_never_counts)
{
	struct ab_step s, again;
	struct ab_result r;
	unsigned given = 0, spoilt = 0;

	begin();
	while (ab_next(ab, &s)) {
		/* bad runs have a very different energy: if one counted, the ratio would show
		 * it */
		bool bad = spoilt < 10 && given++ % 3 == 2;
		struct ab_run run = joules(bad ? 1e6 : s.pair % 2 == 0 ? 1000 : 1001);

		run.valid = !bad;
		assert_int_equal(ab_add(ab, s.phase, s.arm, &run), bad);
		if (bad) { /* the same pair must start again, in the same order */
			spoilt++;
			assert_true(ab_next(ab, &again));
			assert_int_equal(again.pair, s.pair);
			assert_int_equal(again.phase, s.phase);
		}
	}
	ab_result(ab, &r);
	assert_int_equal(r.repeats, 10);
	assert_int_equal(r.outcome, AB_BUDGET);
	assert_int_equal(r.ab[AB_ENERGY].n, 40);
	assert_true(r.ab[AB_ENERGY].ratio == 1);
}

TEST(impossible_figures_are_not_used)
{
	static const double bad[] = { 0, -1, NAN, INFINITY };
	struct ab_step s;

	for (size_t i = 0; i < 2 * COUNT_OF(bad); i++) {
		struct ab_run run = joules(1000);

		begin();
		*(i % 2 ? &run.energy_j : &run.seconds) = bad[i / 2];
		assert_true(ab_next(ab, &s));
		assert_int_equal(ab_add(ab, s.phase, s.arm, &run), 1);
	}
}

/* Adds runs until the end; every period-th run has these flags. Returns the number of runs
 * added. */
static unsigned spoil(bool valid, bool exclusive, unsigned period)
{
	struct ab_step s;
	unsigned given = 0;

	while (ab_next(ab, &s)) {
		/* +2 %, -2 %, ...: the comparison never reaches a decision */
		struct ab_run run =
			joules((s.arm == AB_ARM_B) == (s.pair % 2 == 0) ? 1020 : 1000);

		if (++given % period == 0) {
			run.valid = valid;
			run.exclusive = exclusive;
		}
		assert_true(ab_add(ab, s.phase, s.arm, &run) >= 0);
	}
	return given;
}

TEST(too_many_invalid_runs_end_it)
{
	struct ab_result r;

	c.gated = true; /* energy < 0 % */
	begin();
	assert_int_equal(spoil(false, true, 1), 4); /* one run and three repeats in a row */
	assert_int_equal(ab_exit_code(ab), 12);
	ab_result(ab, &r);
	assert_int_equal(r.outcome, AB_INVALID);
	assert_int_equal(r.ab[AB_ENERGY].verdict, AB_INCONCLUSIVE);

	begin();
	spoil(false, true, 5); /* every fifth run is bad: the eleventh repeat is one too many */
	assert_int_equal(ab_exit_code(ab), 12);
	ab_result(ab, &r);
	assert_int_equal(r.repeats, 11);
}

TEST(another_process_on_the_gpu_ends_it_with_its_own_exit_code)
{
	begin();
	assert_int_equal(spoil(true, false, 1), 4);
	assert_int_equal(ab_outcome(ab), AB_SHARED);
	assert_int_equal(ab_exit_code(ab), 13);

	c.require_exclusive = true;
	begin();
	/* the first run that is not exclusive is already too many */
	assert_int_equal(spoil(true, false, 7), 7);
	assert_int_equal(ab_exit_code(ab), 13);
}

TEST(the_interval_of_one_analysis_covers_95_of_100)
{
	unsigned covered = 0;
	struct world w = { .effect = 1.03, .cv = 0.01 };

	random_init(&w.r, 31);
	for (unsigned i = 0; i < EXPERIMENTS; i++) {
		standard();
		c.seed = i;
		c.pairs_max = 6;
		c.aa_pairs = 0;
		c.offset_w = 0;
		begin();
		finish(&w);
		struct ab_interval in = ab_last_interim(ab)->interval;

		covered += in.low <= 1.03 && 1.03 <= in.high;
	}
	double share = (double)covered / EXPERIMENTS;

	print_message("seed 31: covered %.2f %%\n", 100 * share);
	assert_true(share >= 0.94 - MARGIN && share <= 0.96 + MARGIN);
}

TEST(comparing_a_with_itself_alarms_in_5_of_100)
{
	unsigned alarms = 0;
	struct world w = { .effect = 1, .cv = 0.01 };

	random_init(&w.r, 37);
	for (unsigned i = 0; i < EXPERIMENTS; i++) {
		struct ab_result r;

		standard();
		c.seed = i;
		c.pairs_max = 2;
		c.resamples = 100; /* the A/A pass has too few pairs for BCa */
		c.offset_w = 0;
		begin();
		finish(&w);
		ab_result(ab, &r);
		alarms += r.aa_alarm;
	}
	double share = (double)alarms / EXPERIMENTS;

	print_message("seed 37: alarms %.2f %%\n", 100 * share);
	assert_true(share >= 0.04 - MARGIN && share <= 0.06 + MARGIN);
}

/* Compares a command with itself. Returns the share of comparisons that end with a verdict. */
static double false_verdicts(struct world *w, unsigned pairs_max, unsigned experiments)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < experiments; i++) {
		standard();
		c.seed = i;
		c.pairs_max = pairs_max;
		c.aa_pairs = 0;
		c.offset_w = 0;
		c.resamples = 2000;
		begin();
		finish(w);
		wrong += ab_outcome(ab) == AB_DECIDED;
	}
	return (double)wrong / experiments;
}

TEST(all_interim_analyses_together_are_wrong_in_5_of_100)
{
	static const unsigned budgets[] = { 40, 5, 7, 12, 27, 100 };

	for (size_t i = 0; i < COUNT_OF(budgets); i++) {
		struct world w = { .effect = 1, .cv = 0.01 };
		unsigned experiments = i == 0 ? EXPERIMENTS : EXPERIMENTS / 4;
		double margin = i == 0 ? MARGIN : 0.01;

		random_init(&w.r, 41);
		double share = false_verdicts(&w, budgets[i], experiments);

		print_message("seed 41, %u pairs: %.2f %%\n", budgets[i], 100 * share);
		assert_true(share <= 0.055 + margin);
		assert_true(share >=
			    0.035 - margin); /* the intervals are not wider than necessary */
	}
}

TEST(disturbed_runs_do_not_make_it_wrong_more_often)
{
	struct world w = { .effect = 1, .cv = 0.01, .outliers = 0.05, .outlier_size = 0.1 };

	random_init(&w.r, 43);
	double share = false_verdicts(&w, 40, EXPERIMENTS / 4);

	print_message("seed 43: %.2f %%\n", 100 * share);
	assert_true(share <= 0.055 + MARGIN);
}

/* B takes 3 % more energy than A, a run varies by 0.5 %, and at most ten pairs are measured. */
TEST(a_difference_of_three_percent_is_found_in_ten_pairs)
{
	unsigned right = 0, covered = 0, n = EXPERIMENTS / 10;
	struct world w = { .effect = 1.03, .cv = 0.005 };

	random_init(&w.r, 47);
	for (unsigned i = 0; i < n; i++) {
		standard();
		c.seed = i;
		c.pairs_max = 10;
		begin();
		finish(&w);
		const struct ab_estimate *e = ab_last_interim(ab);

		right += e->verdict == AB_WORSE && e->interval.low > 1;
		covered += e->interval.low <= 1.03 && 1.03 <= e->interval.high;
	}
	print_message("seed 47: right %.1f %%, covers 3 %% in %.1f %%\n", 100.0 * right / n,
		      100.0 * covered / n);
	assert_true(right >= n * 9 / 10);
	assert_true(covered >= n * 85 / 100);
}

TEST(a_gate_expression_is_parsed)
{
	static const struct {
		const char *text;
		struct ab_gate gate;
	} rows[] = {
		{ "energy > +2%", { AB_ENERGY, true, false, 0.02 } },
		{ "energy>2%", { AB_ENERGY, true, false, 0.02 } },
		{ "  time  >=  0.5 %  ", { AB_TIME, true, true, 0.005 } },
		{ "power<-10%", { AB_POWER, false, false, -0.1 } },
		{ "edp <= -99.9%", { AB_EDP, false, true, -0.999 } },
		{ "energy > 0%", { AB_ENERGY, true, false, 0 } },
		{ "energy > 250%", { AB_ENERGY, true, false, 2.5 } },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct ab_gate g;
		char err[160];

		assert_int_equal(ab_gate_parse(rows[i].text, &g, err, sizeof(err)), 0);
		assert_int_equal(g.metric, rows[i].gate.metric);
		assert_int_equal(g.above, rows[i].gate.above);
		assert_int_equal(g.or_equal, rows[i].gate.or_equal);
		assert_true(fabs(g.change - rows[i].gate.change) < 1e-15);
	}
	assert_string_equal(ab_metric_name(AB_EDP), "edp");
}

TEST(a_wrong_gate_is_refused_with_a_helpful_message)
{
	static const char *const rows[][2] = {
		{ "enrgy > 2%",
		  "column 1: no metric is called 'enrgy'; did you mean 'energy'?" },
		{ "Energy > 2%",
		  "column 1: no metric is called 'Energy'; did you mean 'energy'?" },
		{ "joules > 2%",
		  "column 1: no metric is called 'joules'; use energy, time, power or edp" },
		{ "", "column 1: the metric is missing; write it like 'energy > +2%'" },
		{ "> 2%", "column 1: the metric is missing; write it like 'energy > +2%'" },
		{ " energy 2%",
		  "column 9: the comparison after the metric is missing; use >, >=, < or <=" },
		{ "energy = 2%",
		  "column 8: the comparison after the metric is missing; use >, >=, < or <=" },
		{ "energy >", "column 9: the number is missing; name the change in percent, "
			      "such as +2% or -0.5%" },
		{ "energy > inf%", "column 10: the number is missing; name the change in "
				   "percent, such as +2% or -0.5%" },
		{ "energy > +-2%", "column 10: the number is missing; name the change in "
				   "percent, such as +2% or -0.5%" },
		{ "energy > 1.2.3%",
		  "column 10: this is not a number; write a decimal such as 2 or 0.5" },
		{ "energy > 2,5%",
		  "column 11: the number has a comma; write decimals with a point" },
		{ "energy > 2", "column 11: the % after the number is missing; changes are in "
				"percent, such as "
				"+2%" },
		{ "energy > 0x2%",
		  "column 11: the % after the number is missing; changes are in percent, such "
		  "as +2%" },
		{ "energy > -100%", "column 10: a decrease of 100 % or more is not possible; "
				    "name a smaller change" },
		{ "energy > 2% or so",
		  "column 13: there is more text after the %; write it like 'energy > +2%'" },
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct ab_gate g = { .change = 42 };
		char err[160];

		assert_int_equal(ab_gate_parse(rows[i][0], &g, err, sizeof(err)), -GW_E_PARSE);
		assert_string_equal(err, rows[i][1]);
		assert_true(g.change == 42);
	}
}

TEST_MAIN(NULL, NULL)
