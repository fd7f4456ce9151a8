/* calibrate: fits gain and offset of a GPU's power sensor to the readings of an external power
 * meter: true power = gain x reading + offset, by least squares.
 *
 * Pure. First it finds the lag between the clocks of sensor and meter at which the two series
 * correlate best. Then it compares each point of the external meter with the mean of the
 * sensor's readings around that point. The fitted line is most certain in the middle of its
 * points (the pivot), so the uncertainty of the offset applies there. */
#ifndef GW_CLI_CALIBRATE_H
#define GW_CLI_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>

/* The power of a GPU's sensor over a whole session, stored as points of a running integral.
 *
 * The mean power between two points is exact.  If the memory is full, every other point is
 * dropped, but no energy is lost.  The memory is fixed, because the meter's thread fills it.
 * Use it from one thread at a time. */

#define POWER_RECORD_POINTS 16384

struct power_record_point {
	/* joules: energy since the first sample; hole_s: seconds without samples since then */
	double t_s, joules, hole_s;
};

struct power_record {
	struct power_record_point point[POWER_RECORD_POINTS];
	size_t n;
	struct power_record_point last; /* point of the latest sample */
	double last_w;
	/* samples: number of samples so far; one of `every` samples is stored */
	unsigned long samples, every;
};

void power_record_init(struct power_record *r);

/* Adds a sample; ignores a sample that is not later than the previous one. */
void power_record_add(struct power_record *r, double t_s, double watts);

/* Computes the mean power between two times.  Returns false if the samples do not cover the
 * whole time between them. */
bool power_record_mean(const struct power_record *r, double from_s, double to_s, double *ret_w);

struct calibrate_point {
	double t_s, w; /* t_s is on the clock of the power record; w is in watts */
};

#define CALIBRATE_LAG_S 10.0 /* largest lag in seconds, in either direction */
#define CALIBRATE_LEAST 10   /* fewest points that can be fitted */
#define CALIBRATE_ALIKE 0.9  /* smallest correlation of the two series that is accepted */
#define CALIBRATE_OFFSET_W \
	25.0 /* largest known offset of a board: if it is larger, the external meter measures more than the GPU */

struct calibrate_fit {
	double gain, offset_w;
	double gain_u, offset_u_w; /* standard uncertainties; offset_u_w applies at pivot_w */
	double pivot_w;            /* mean of the sensor's readings at the points, in watts */
	double lag_s;              /* delay of the external meter relative to the sensor */
	/* correlation of the two series at lag_s; NAN: power did not vary */
	double correlation;
	double residual_w; /* standard deviation of the points from the fitted line, in watts */
	double span_s;     /* time from the first used point to the last */
	/* offset as fitted; differs from offset_w if `wider` is true */
	double measured_offset_w;
	size_t points;     /* number of points that the fit uses */
	bool offset_alone; /* power varied too little to determine the gain: gain is 1        */
	bool wider; /* the external meter measures more than the GPU: only the gain is used */
};

/* Fits the n points of the trace, in ascending time order, to the record.  Returns 0, or
 * -GW_E_PARSE with a sentence in why: no overlap, too few points, no correlation, or an
 * impossible gain. */
int calibrate_fit(const struct power_record *record, const struct calibrate_point *trace,
		  size_t n, struct calibrate_fit *ret, char *why, size_t size);

#endif
