/* sensor_fit: what a sensor does, out of what it said while the load was known.
 *
 * Pure functions over recorded (time, watts) points and the times at which the load was on.  Times
 * are seconds on one monotonic scale. */
#ifndef GW_MEASURE_SENSOR_FIT_H
#define GW_MEASURE_SENSOR_FIT_H

#include "sensor.h"

struct fit_point {
	double t_s, w;
};

/* The load: on from on_s[i] to off_s[i], sorted, apart from each other. */
struct fit_bursts {
	const double *on_s, *off_s;
	unsigned n;
};

/* A period out of the times at which something was new.  New values that happened to be equal
 * were not seen, so an interval may hold several periods. */
struct fit_period {
	double period_s, phase_s; /* new at phase_s + k * period_s */
	unsigned changes;
};

/* Least squares of time on index.  0, or -GW_E_NOSUPPORT with less than 4 times or no order in
 * them.  `work` has room for n. */
int fit_period(const double *t_s, unsigned n, double *work, struct fit_period *ret);

/* How much of the load a sensor sees at t: 0 to 1.  The value that is out at t is the mean of the
 * window that ended delay_s before (SENSOR_BOXCAR), or a low-pass as it stood then. */
struct fit_response {
	enum sensor_model model;
	double window_s, delay_s;
	double low_w, high_w; /* readings without and with the load */
	double missed_ratio;  /* share of the readings' variance that the model leaves */
};

/* Fits both models and keeps the better.  Error of a fit without noise: some 0.1 ms.  0, or
 * -GW_E_NOSUPPORT where the points do not follow the load.  `work` has room for bursts->n. */
int fit_response(const struct fit_point *p, unsigned n, const struct fit_bursts *bursts,
		 double *work, struct fit_response *ret);

/* The delay alone, of a boxcar whose window is known. */
int fit_delay(const struct fit_point *p, unsigned n, const struct fit_bursts *bursts,
	      double window_s, double *work, struct fit_response *ret);

/* Shift that takes a fitted source's values back to the power they tell: the delay and half the
 * window, or the delay and the time constant. */
double fit_lag_s(const struct fit_response *f);

/* Mean of readings that hold until the next, over from..to; NAN where none is there.  *ret_sd: their
 * standard deviation. */
double fit_mean(const struct fit_point *p, unsigned n, double from_s, double to_s,
		double *ret_sd);

/* Value below which this share of the n values lies.  Sorts them. */
double fit_quantile(double *v, unsigned n, double share);

#endif
