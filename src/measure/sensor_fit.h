/* sensor_fit: determines the properties of a sensor from its values under a known load.
 *
 * Pure functions over recorded (time, watts) points and the times at which the load was on.
 * Times are seconds on one monotonic scale. */
#ifndef GW_MEASURE_SENSOR_FIT_H
#define GW_MEASURE_SENSOR_FIT_H

#include "sensor.h"

struct fit_point {
	double t_s, w;
};

/* A burst is a time in which the load was on: from on_s[i] to off_s[i]. The bursts are in order
 * of time and do not overlap. */
struct fit_bursts {
	const double *on_s, *off_s;
	unsigned n;
};

/* The period of a sensor, found from the times at which its value changed. If a new value
 * equals the old one, no change is visible, so the time between two changes may be several
 * periods. */
struct fit_period {
	double period_s, phase_s; /* a value is new at phase_s + k * period_s */
	unsigned changes;         /* number of changes of the value */
};

/* Fits a period to the n times of changes by least squares. Returns 0, or -GW_E_NOSUPPORT if
 * there are fewer than 4 times or no regular pattern. `work` needs n elements. */
int fit_period(const double *t_s, unsigned n, double *work, struct fit_period *ret);

/* The response of a sensor: the share of the load that its value at t shows, 0 to 1. With
 * SENSOR_BOXCAR, the value is the mean of the window that ended delay_s before t. With
 * SENSOR_LOWPASS, it is the output that the filter had delay_s before t. */
struct fit_response {
	enum sensor_model model;
	double window_s; /* window of the mean, or time constant of the low pass */
	double delay_s;
	double missed_ratio; /* share of the variance that the model does not explain */
};

/* Fits both models and selects the better one. Without noise the error is about 0.1 ms. Returns
 * 0, or -GW_E_NOSUPPORT if the points do not follow the load. `work` needs bursts->n
 * elements. */
int fit_response(const struct fit_point *p, unsigned n, const struct fit_bursts *bursts,
		 double *work, struct fit_response *ret);

/* Fits only the delay of a boxcar with a known window. */
int fit_delay(const struct fit_point *p, unsigned n, const struct fit_bursts *bursts,
	      double window_s, double *work, struct fit_response *ret);

/* Returns the lag of the values of a source: the delay plus half the window, or the delay plus
 * the time constant. */
double fit_lag_s(const struct fit_response *f);

/* Returns the mean of the readings from from_s to to_s, where each reading is valid until the
 * next; NAN if there is none. *ret_sd is their standard deviation. */
double fit_mean(const struct fit_point *p, unsigned n, double from_s, double to_s,
		double *ret_sd);

/* Returns the quantile of n values: the value below which this share of the values lies. Sorts
 * v. */
double fit_quantile(double *v, unsigned n, double share);

#endif
