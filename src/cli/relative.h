/* relative: how much one row of results differs from another.
 *
 * Stands in for measure/compare.h and measure/distribution.h, with their names and meaning, until
 * the layer measure is linked: then this pair of files goes. */
#ifndef GW_CLI_RELATIVE_H
#define GW_CLI_RELATIVE_H

#include <stddef.h>

struct compare_arm {
	const double *runs; /* above 0; borrowed for the call */
	size_t n;
	double u_ratio; /* relative standard uncertainty of one run; NAN: not known */
};

enum compare_basis {
	COMPARE_TRIALS, /* the scatter of the runs: Welch's t on logarithms */
	COMPARE_BUDGET, /* an arm was run once: the stated uncertainties, as if normal */
	COMPARE_NONE,   /* neither is known: a ratio without interval */
};

struct compare_change {
	enum compare_basis basis;
	double ratio;  /* row / first */
	double change; /* ratio - 1 */
	double change_low, change_high;
	double u_log;
	double df;
};

/* The change from first to row.  u_extra_log: a standard uncertainty of ln(ratio) that more runs
 * do not lessen.  0, or -GW_E_ARG for what has no logarithm. */
int compare_arms(const struct compare_arm *first, const struct compare_arm *row,
		 double u_extra_log, double alpha, struct compare_change *ret);

/* The part of ln(energy ratio) that the sensor's offset leaves uncertain. */
#define COMPARE_OFFSET_W 2.5 /* 5 W at 95 %, unless calibrated */
double compare_offset(double offset_w, double first_mean_w, double row_mean_w);

/* The factor of the two-sided interval that misses with probability alpha; df may be INFINITY. */
double student_factor(double alpha, double df);

#endif
