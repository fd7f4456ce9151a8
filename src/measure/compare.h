/* compare: how much more or less one result is than another, and how sure that is.
 *
 * For results that were measured on their own, not in pairs (those are ab.h).  Everything is done
 * on logarithms: a ratio of 2 and one of 1/2 are then equally far from 1, and the board's gain
 * error, the same factor in both, is gone.  Changes are relative: 0.02 is two percent more than
 * the first.  What cannot be known is NAN. */
#ifndef GW_MEASURE_COMPARE_H
#define GW_MEASURE_COMPARE_H

#include <stddef.h>

/* One row of a comparison: the same quantity (joules, seconds, watts; above 0), measured once or
 * in several runs. */
struct compare_arm {
	const double *runs; /* borrowed for the call */
	size_t n;
	double u_ratio; /* relative standard uncertainty of one run, for ratios (the budget without
			 * gain and offset); NAN: not known */
};

enum compare_basis {
	COMPARE_TRIALS, /* the scatter of the runs: Welch's t on logarithms */
	COMPARE_ONE_SIDE, /* an arm was run once: the scatter of the other's runs stands for both */
	COMPARE_BUDGET, /* one run each: the stated uncertainties alone, as if normal */
	COMPARE_NONE,   /* neither is known: a ratio without interval */
};

struct compare_change {
	enum compare_basis basis;
	double ratio;  /* exp of the difference of the mean logarithms: row / first */
	double change; /* ratio - 1 */
	double change_low, change_high;
	double u_log; /* standard uncertainty of ln(ratio) */
	double df; /* of that part of u_log that is scatter of runs; INFINITY: there is none */
};

/* The change from first to row, never surer than the runs allow:
 *   both run at least twice: the scatter of each.  u_ratio is not added, for what differs from run
 *     to run is in the scatter already;
 *   one of them run once: s^2 (1 + 1/n) of the other, and u_ratio of that run, where it is known;
 *   one run each: u_ratio of both.  How runs scatter is not known, and no verdict follows.
 * u_extra_log is a standard uncertainty of ln(ratio) that more runs do not lessen, such as
 * compare_offset(); 0 for none, NAN: not known, and then there is no interval.  Scatter counts
 * with Student's factor, what is stated with the normal one; the root of the squares is half the
 * interval on logarithms.
 * alpha: the probability that the interval misses, 0.05 for one of 95 %.
 * 0, or -GW_E_ARG: no run, a value that is not finite and above 0, a negative uncertainty, alpha
 * not in (0, 1). */
int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret);

/* What may be said of a change, in words or by a colour. */
enum compare_verdict {
	COMPARE_LESS,    /* the whole interval lies below 0 */
	COMPARE_MORE,    /* above 0 */
	COMPARE_OPEN,    /* the interval holds 0 */
	COMPARE_UNKNOWN, /* one run each, or no interval: how runs scatter is not known */
};
enum compare_verdict compare_verdict(const struct compare_change *c);

/* The part of ln(energy ratio) that the sensor's offset leaves uncertain, given the offset's
 * standard uncertainty in watts: it cancels as far as both drew the same mean power.  Mean power
 * and energy-delay product have the same; time has none. */
double compare_offset(double offset_w, double first_mean_w, double row_mean_w);

#endif
