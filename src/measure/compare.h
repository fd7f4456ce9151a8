/* compare: computes the change from one result to another, and the uncertainty of the change.
 *
 * For results that were measured separately, not in pairs (see ab.h for pairs). Everything is
 * computed on logarithms, so that ratios of 2 and 1/2 are equally far from 1, and the gain
 * error of the board, which is the same factor in both results, cancels. Changes are relative
 * (0.02 is two percent more than the first), and NAN is unknown. */
#ifndef GW_MEASURE_COMPARE_H
#define GW_MEASURE_COMPARE_H

#include <stddef.h>

/* One arm of a comparison: the same quantity (joules, seconds, watts; above 0), measured once
 * or in several runs. */
struct compare_arm {
	const double *runs; /* borrowed for the call */
	size_t n;
	/* relative standard uncertainty of one run, for ratios (the budget without gain and
	 * offset); NAN: unknown */
	double u_ratio;
};

enum compare_basis {
	COMPARE_TRIALS, /* the scatter of the runs: Welch's t on logarithms */
	/* one arm has one run: the scatter of the other arm is used for both */
	COMPARE_ONE_SIDE,
	COMPARE_BUDGET, /* one run each: only the stated uncertainties, assumed normal */
	COMPARE_NONE, /* scatter and stated uncertainty are unknown: a ratio without interval */
};

struct compare_change {
	enum compare_basis basis;
	double ratio;  /* exp of the difference of the mean logarithms: row / first */
	double change; /* ratio - 1 */
	double change_low, change_high;
	double u_log; /* standard uncertainty of ln(ratio) */
	double df; /* degrees of freedom of the scatter part of u_log; INFINITY: no scatter */
};

/* Computes the change from first to row, never more certain than the runs allow.
 *
 * If both arms have at least two runs, the scatter of each arm is used. u_ratio is not added,
 * because variation between runs is already in the scatter.
 *
 * If one arm has a single run, s^2 (1 + 1/n) of the other arm is used, and u_ratio of the
 * single run if known.
 *
 * If both arms have a single run, u_ratio of both runs is used. The scatter is unknown, so
 * there is no verdict.
 *
 * u_extra_log is a standard uncertainty of ln(ratio) that more runs do not reduce, such as
 * compare_offset(); 0: none; NAN: unknown, then there is no interval. Scatter is multiplied by
 * Student's factor, stated uncertainty by the normal one; the root of the sum of squares is
 * half the interval on logarithms. alpha: the probability that the interval does not contain
 * the true value, 0.05 for 95 %.
 *
 * Returns 0, or -GW_E_ARG: no run, a value that is not finite and above 0, a negative
 * uncertainty, alpha not in (0, 1). */
int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret);

/* The conclusion from a change; selects its words or colour. */
enum compare_verdict {
	COMPARE_LESS,    /* the whole interval lies below 0 */
	COMPARE_MORE,    /* above 0 */
	COMPARE_OPEN,    /* the interval contains 0 */
	COMPARE_UNKNOWN, /* one run each, or no interval: the scatter is unknown */
};
enum compare_verdict compare_verdict(const struct compare_change *c);

/* Returns the uncertainty of ln(energy ratio) that comes from the sensor's offset; offset_w is
 * the standard uncertainty of the offset. It is 0 if both arms have the same mean power. The
 * same value holds for mean power and energy-delay product; the ratio of times has no such
 * uncertainty. */
double compare_offset(double offset_w, double first_mean_w, double row_mean_w);

#endif
