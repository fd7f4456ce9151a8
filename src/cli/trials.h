#ifndef GW_CLI_TRIALS_H
#define GW_CLI_TRIALS_H

#include <gpuward.h>

/* The value of one run, and the standard uncertainty that it shares with the other runs. */
struct trials_value {
	double value, u_shared;
};

/* Returns the mean and its 95 % interval: Student's t for the scatter of the runs, combined
 * with the shared part.  The scatter averages out; the error of the sensor is the same in all
 * runs and does not. *ret_sd: standard deviation of one run.  NAN: fewer than two runs, or an
 * unknown value. */
struct gw_interval trials_mean(const struct trials_value *v, unsigned n, double *ret_sd);

/* Returns the shared uncertainty of a run: the absolute one without the relative one. */
double trials_shared(const struct gw_interval *absolute, const struct gw_interval *relative);

#endif
