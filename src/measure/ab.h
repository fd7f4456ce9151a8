/* ab: which of two commands costs less, decided pair by pair.
 *
 * The whole judgement of `gpuward ab` and none of its effects: it says what to run next, takes
 * what was measured, and says when it is enough and what it means.
 *
 *	ab_new(&config, &ab);
 *	while (ab_next(ab, &step))
 *		ab_add(ab, step.phase, step.arm, measured(step.command));
 *	ab_result(ab, &result);
 *
 * First A is run against itself (the A/A pass): what differs then is noise.  After that A and B
 * are run in pairs, in random order, balanced every two pairs (ABBA or BAAB), so that a slow
 * drift falls on both.  The figure is the mean of ln(B/A) over the pairs.
 *
 * Looks.  Stopping as soon as an interval of 95 % excludes 0 would find a difference in 16 of 100
 * comparisons of a command with itself.  So the data are looked at only after 6, 10, 16, 26, 40,
 * 64, 100, 160, 256 and pairs_max pairs, as far as these are below pairs_max, and each look has
 * an interval wide enough that all of them together miss in 5 of 100.  How wide depends on how
 * many looks there can be (a table in ab.c: 0.0136 for the five looks of 40 pairs).
 *
 * Intervals are Student's t; from 10 pairs on, where the skewness of the pairs exceeds 1, they
 * are widened to hold BCa (bootstrap.h) too.  What the sensor's offset leaves open is added in quadrature (compare.h).  The
 * same configuration and the same runs give the same result to the last bit.  One thread. */
#ifndef GW_MEASURE_AB_H
#define GW_MEASURE_AB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AB_PAIRS_LIMIT 400

/* Lower is better in all of them. */
enum ab_metric {
	AB_ENERGY,
	AB_TIME,
	AB_POWER, /* mean power of the run */
	AB_EDP,   /* energy times delay */
	AB_METRICS
};

/* "energy", "time", "power", "edp". */
const char *ab_metric_name(enum ab_metric metric);

/* When a comparison has failed: when the metric's change is above (below) `change`. */
struct ab_gate {
	enum ab_metric metric;
	bool above;    /* > or >=, else < or <= */
	bool or_equal; /* >= or <= */
	double change; /* relative: 0.02 is +2 %; above -1 */
};

/* Reads "METRIC OP [+|-]NUMBER%", such as "energy > +2%"; OP is one of > >= < <=, spaces do not
 * matter.  0, or -GW_E_PARSE and a sentence in err: what, at which column, how to write it. */
int ab_gate_parse(const char *text, struct ab_gate *ret, char *err, size_t err_size);

struct ab_config {
	unsigned pairs_max;  /* 2 to AB_PAIRS_LIMIT */
	unsigned aa_pairs;   /* A/A pairs first; 0 for none, at most AB_PAIRS_LIMIT */
	double target_ratio; /* stop when the interval of the ratio is within this much on either
			      * side (0.01: one percent); 0: no such aim */
	bool gated;
	struct ab_gate gate; /* with gated; otherwise energy is judged against no change */
	uint64_t seed;       /* of the order and of the bootstrap; goes into the record */
	size_t resamples;
	/* A pair with a run that is not valid is dropped and run again, so often in a row and so
	 * often in all; one more and the comparison ends as invalid. */
	unsigned repeats_row_max, repeats_max;
	bool require_exclusive; /* the first run that was not alone ends the comparison */
	double offset_w;        /* standard uncertainty of the sensor's offset; 0 for none */
};

/* 40 pairs, 4 A/A pairs, no target, no gate, seed 1, 10 000 resamples, 3 repeats in a row and 10
 * in all, the offset of a board that nobody calibrated. */
void ab_config_init(struct ab_config *config);

enum ab_phase { AB_PHASE_AA, AB_PHASE_AB };
enum ab_arm { AB_ARM_A, AB_ARM_B };

struct ab_step {
	enum ab_phase phase;
	enum ab_arm arm; /* whose figures the run gives; in the A/A pass too there are two */
	enum ab_arm command; /* what to run: A for both arms of the A/A pass */
	unsigned pair;       /* from 0 in each phase */
};

/* What one run gave.  Energy and time are needed; power_w may be NAN where it is not judged. */
struct ab_run {
	double energy_j, seconds, power_w;
	bool valid;     /* by the validity gates: suspect counts as valid */
	bool exclusive; /* nobody else used the GPU */
};

/* Memory for a comparison, all that it will need.  0 and the caller owns *ret until ab_free();
 * -GW_E_ARG or -GW_E_NOMEM. */
struct ab;
int ab_new(const struct ab_config *config, struct ab **ret);
void ab_free(struct ab *ab);

/* What to run now; false when the comparison is over. */
bool ab_next(const struct ab *ab, struct ab_step *ret);

/* Takes the run that ab_next() asked for.  0: counted.  1: it was no use (not valid, not alone,
 * or without energy or time), the pair is dropped and, while repeats are left, run again.
 * -GW_E_STATE: not the run that was asked for. */
int ab_add(struct ab *ab, enum ab_phase phase, enum ab_arm arm, const struct ab_run *run);

enum ab_outcome {
	AB_GOING,
	AB_DECIDED, /* the interval lies on one side of the threshold */
	AB_PRECISE, /* it is as narrow as was asked for */
	AB_BUDGET,  /* pairs_max pairs were run */
	AB_INVALID, /* too many runs were not valid */
	AB_SHARED,  /* others used the GPU */
};

enum ab_verdict {
	AB_CANNOT_TELL,
	AB_BETTER, /* B: the interval is wholly below no change, or on the good side of the gate */
	AB_WORSE,
};

/* Of ratios B/A; NAN where not known. */
struct ab_interval {
	double low, high;
};

struct ab_estimate {
	unsigned n;   /* pairs */
	double ratio; /* B/A: exp of the mean logarithm; NAN without a pair */
	double mean_log, sd_log, skewness;
	double alpha; /* each interval misses with this probability */
	bool skewed; /* 10 pairs or more, skewness beyond 1: interval spans t and BCa; else it is t */
	struct ab_interval interval;           /* the one to go by, offset included */
	struct ab_interval t, bca, percentile; /* BCa from 10 pairs, percentile from 2 */
	double offset_u_log;                   /* standard uncertainty by the sensor's offset */
	double mde_ratio; /* smallest effect seen with 80 % power: 2.8 sd_log / sqrt(n) */
	enum ab_verdict verdict;
};

struct ab_result {
	enum ab_outcome outcome;
	unsigned repeats;                  /* pairs that were dropped */
	struct ab_estimate aa[AB_METRICS]; /* alpha 0.05; sd_log is the noise floor of a pair */
	struct ab_estimate ab[AB_METRICS]; /* alpha of a look */
	bool aa_alarm;           /* A differs from itself: something drifts, or chance (5 %) */
	double mde_budget_ratio; /* smallest effect in sight: A/A noise at pairs_max pairs */
	double planned_pairs;    /* 7.85 (sd/d)^2, d the target or else the gate's change; NAN
				  * where there is neither, or no two pairs yet */
};

/* Everything, as of now.  While the comparison goes on, and where its data are no use, verdicts
 * are AB_CANNOT_TELL: an interval between looks has not the stated error.  The metric of the gate
 * is judged by the gate, the others against no change.  Takes some ten milliseconds. */
void ab_result(const struct ab *ab, struct ab_result *ret);

/* The deciding metric at the last look, bootstrapped only where it is skewed; NULL before the
 * first look. */
const struct ab_estimate *ab_last_look(const struct ab *ab);

enum ab_outcome ab_outcome(const struct ab *ab);

/* 12 data invalid, 13 exclusivity broken; with a gate 0 passed, 10 failed, 11 cannot tell;
 * without one 0.  -GW_E_STATE while it goes on. */
int ab_exit_code(const struct ab *ab);

#endif
