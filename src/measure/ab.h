/* ab: decides which of two commands costs less, from pairs of runs.
 *
 * This module makes all decisions of `gpuward ab`, but runs nothing: ab_next() returns the next
 * run, ab_add() takes its values, and ab_result() says what they mean. The same configuration
 * and runs give the same result to the last bit. Not thread-safe. */
#ifndef GW_MEASURE_AB_H
#define GW_MEASURE_AB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AB_PAIRS_LIMIT 400

/* Lower is better for all metrics. */
enum ab_metric {
	AB_ENERGY,
	AB_TIME,
	AB_POWER, /* mean power of the run */
	AB_EDP,   /* energy-delay product: energy times duration */
	AB_METRICS
};

/* Returns "energy", "time", "power" or "edp". */
const char *ab_metric_name(enum ab_metric metric);

/* A comparison fails if the change of the metric is above (or below) `change`. */
struct ab_gate {
	enum ab_metric metric;
	bool above;    /* true: > or >=; false: < or <= */
	bool or_equal; /* true: >= or <= */
	double change; /* relative, above -1: 0.02 is +2 % */
};

/* Reads "METRIC OP [+|-]NUMBER%", such as "energy > +2%"; OP is one of > >= < <=; spaces are
 * ignored. Returns 0, or -GW_E_PARSE with a sentence in err: what is wrong, at which column,
 * and how to write it. */
int ab_gate_parse(const char *text, struct ab_gate *ret, char *err, size_t err_size);

struct ab_config {
	unsigned pairs_max; /* 2 to AB_PAIRS_LIMIT */
	/* number of pairs of the A/A pass, which compares A with itself before the comparison;
	 * at most AB_PAIRS_LIMIT; 0: no A/A pass */
	unsigned aa_pairs;
	/* The comparison ends when the interval of the ratio extends at most this far to either
	 * side (0.01: one percent); 0: no target. */
	double target_ratio;
	bool gated; /* the caller set `gate` */
	/* Used only if `gated` is true. Without a gate, the energy is compared with a change of
	 * 0. */
	struct ab_gate gate;
	uint64_t seed; /* for the random order and the bootstrap; stored in the result */
	size_t resamples;
	/* A pair with an invalid run is dropped and repeated: at most repeats_row_max times in
	 * a row and repeats_max times in total. After that the comparison ends as invalid. */
	unsigned repeats_row_max, repeats_max;
	/* The comparison ends at the first run during which another process used the GPU. */
	bool require_exclusive;
	double offset_w; /* standard uncertainty of the sensor's offset; 0: no uncertainty */
};

/* Sets the defaults: 40 pairs, 4 A/A pairs, no target, no gate, seed 1, 10 000 resamples, 3
 * repeats in a row and 10 in total, the offset of an uncalibrated board. */
void ab_config_init(struct ab_config *config);

enum ab_phase { AB_PHASE_AA, AB_PHASE_AB };
enum ab_arm { AB_ARM_A, AB_ARM_B };

struct ab_step {
	enum ab_phase phase;
	enum ab_arm arm;     /* The run is used for this arm. The A/A pass also has two arms. */
	enum ab_arm command; /* The command to run. Both arms of the A/A pass run A. */
	unsigned pair;       /* Number of the pair in its phase, from 0. */
};

/* The result of one run. Energy and time are required. power_w may be NAN unless power is the
 * deciding metric. */
struct ab_run {
	double energy_j, seconds, power_w;
	bool valid;     /* the validity is "valid" or "suspect", not "invalid" */
	bool exclusive; /* no other process used the GPU */
};

/* Allocates all memory that a comparison needs. Returns 0, -GW_E_ARG or -GW_E_NOMEM. The caller
 * frees *ret with ab_free(). */
struct ab;
int ab_new(const struct ab_config *config, struct ab **ret);
void ab_free(struct ab *ab);

/* Gets the next run. Returns false when the comparison is over. First A is compared with itself
 * (the A/A pass), which shows the noise. Then A and B are run in pairs, in random order,
 * balanced every two pairs (ABBA or BAAB), so that a slow drift affects A and B equally. */
bool ab_next(const struct ab *ab, struct ab_step *ret);

/* Takes the result of the run that ab_next() requested. Returns 0 if the run is used. Returns 1
 * if the run is unusable (invalid, not exclusive, or without energy or time): its pair is then
 * dropped. A dropped pair is repeated until one of the two limits on repeats is reached.
 * Returns -GW_E_STATE if the run is not the requested one. */
int ab_add(struct ab *ab, enum ab_phase phase, enum ab_arm arm, const struct ab_run *run);

/* Why the comparison ended. A comparison that ends as soon as a 95 % interval excludes 0 would
 * find a difference between a command and itself in 16 of 100 cases. Therefore the data are
 * analysed only after 6, 10, 16, 26, 40, 64, 100, 160 and 256 pairs (those below pairs_max),
 * and after pairs_max pairs. The intervals are wider, so that all analyses together are wrong
 * in 5 of 100 comparisons. The width depends on the number of analyses: the table in ab.c has
 * alpha 0.0136 for the five analyses of 40 pairs. */
enum ab_outcome {
	AB_RUNNING,
	AB_DECIDED, /* the interval lies on one side of the threshold */
	AB_PRECISE, /* the interval is at most as wide as the target */
	AB_BUDGET,  /* pairs_max pairs were run */
	AB_INVALID, /* too many invalid runs */
	AB_SHARED,  /* other processes used the GPU */
};

enum ab_verdict {
	AB_INCONCLUSIVE,
	/* The whole interval of the change is below 0, or on the good side of the gate. */
	AB_BETTER,
	AB_WORSE, /* The whole interval is above 0, or on the bad side of the gate. */
};

/* Ratios B/A; NAN: unknown. */
struct ab_interval {
	double low, high;
};

/* The estimate is the mean of ln(B/A) over the pairs. Its interval is that of Student's t. If
 * there are at least 10 pairs and their skewness is above 1 or below -1, the interval is
 * widened to include the bootstrap interval BCa (stat.h). The uncertainty of the sensor's
 * offset is added in quadrature (stat.h). */
struct ab_estimate {
	unsigned n;   /* pairs */
	double ratio; /* B/A: exp of the mean logarithm; NAN without a pair */
	double mean_log, sd_log, skewness;
	double alpha; /* probability that an interval does not contain the true value */
	bool skewed;  /* `interval` is the union of t and BCa; otherwise it is t */
	/* This interval decides the verdict. It includes the uncertainty of the offset. */
	struct ab_interval interval;
	/* Other intervals, for information. BCa needs 10 pairs, percentile needs 2; NAN with
	 * fewer pairs. */
	struct ab_interval t, bca, percentile;
	double offset_u_log; /* standard uncertainty from the sensor's offset */
	/* The smallest effect that is detected with a probability of 80 %: (t(1 - alpha/2) +
	 * t(0.8)) sd_log / sqrt(n). t has n - 1 degrees of freedom. */
	double mde_ratio;
	enum ab_verdict verdict;
};

struct ab_result {
	enum ab_outcome outcome;
	unsigned repeats; /* number of dropped pairs */
	/* The A/A pass. Its intervals use alpha 0.05. Its sd_log is the noise of one pair. */
	struct ab_estimate aa[AB_METRICS];
	/* The comparison. Its intervals use the smaller alpha of one interim analysis. */
	struct ab_estimate ab[AB_METRICS];
	/* The A/A pass found a difference: the machine drifts, or the difference is chance
	 * (probability 5 %). */
	bool aa_alarm;
	/* The smallest effect that pairs_max pairs detect, computed from the noise of the A/A
	 * pass. */
	double mde_budget_ratio;
	/* The number of pairs that detects an effect of the size of the target or, without a
	 * target, of the gate's change. NAN if there is neither, or if there are fewer than two
	 * pairs. */
	double planned_pairs;
};

/* Gets the complete result so far; takes about ten milliseconds. All verdicts are
 * AB_INCONCLUSIVE if the data are unusable. They are also AB_INCONCLUSIVE while the comparison
 * runs, because an interval between interim analyses does not have the stated error
 * probability. The gate applies to its metric; the other metrics are compared with a change of
 * 0. */
void ab_result(const struct ab *ab, struct ab_result *ret);

/* Returns the estimate of the deciding metric at the last interim analysis; NULL before the
 * first analysis. The bootstrap intervals are computed only if the pairs are skewed. */
const struct ab_estimate *ab_last_interim(const struct ab *ab);

enum ab_outcome ab_outcome(const struct ab *ab);

/* Returns the exit code of `gpuward ab`: 12 if too many runs were invalid, and 13 if other
 * processes used the GPU. Otherwise, with a gate: 0 if it passed, 10 if it failed, 11 if the
 * comparison is inconclusive; without a gate: 0. Returns -GW_E_STATE while the comparison
 * runs. */
int ab_exit_code(const struct ab *ab);

#endif
