/* trials: several runs as one figure.
 *
 * What differs from run to run is in their scatter and becomes less with every run; what the
 * sensor is off by is the same in all of them and does not. */
#ifndef GW_CLI_TRIALS_H
#define GW_CLI_TRIALS_H

#include <gpuward.h>

/* One run's figure, and the standard uncertainty that it shares with the others. */
struct trials_value {
	double value, u_shared;
};

/* The mean and its interval of 95 %: Student's t on the scatter, together with the shared part.
 * *ret_sd: standard deviation of one run.  NAN: fewer than two runs, or one that is not
 * known. */
struct gw_interval trials_mean(const struct trials_value *v, unsigned n, double *ret_sd);

/* The shared part of a run: its uncertainty less what is left when runs are compared. */
double trials_shared(const struct gw_interval *absolute, const struct gw_interval *relative);

#endif
