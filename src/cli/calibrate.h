/* calibrate: calibrates a GPU's power sensor with the readings of an external power meter:
 * true power = gain x reading + offset, by least squares.
 *
 * calibrate_fit() is pure.  First it finds the lag between the clocks of sensor and meter at
 * which the two series correlate best.  Then it compares each point of the external meter with
 * the mean of the sensor's readings around that point.  The fitted line is most certain in the
 * middle of its points (the pivot), so the uncertainty of the offset applies there. */
#ifndef GW_CLI_CALIBRATE_H
#define GW_CLI_CALIBRATE_H

#include "progress_marks.h"
#include "trace.h"

#include "measure/event.h"
#include "measure/sensor.h"
#include "serve/render_result.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* The power of a GPU's sensor over a whole session, stored as points of a running integral. The
 * mean power between two points is exact. If the memory is full, every other point is dropped,
 * but no energy is lost. The memory has a fixed size, because the meter's thread, which writes
 * to it, must not wait for an allocation. Use it from one thread at a time. */

#define POWER_RECORD_POINTS 16384

struct power_record_point {
	/* Sums since the first sample: joules is the energy, and hole_s is the length of the
	 * gaps over which the energy is unknown. */
	double t_s, joules, hole_s;
};

struct power_record {
	struct power_record_point point[POWER_RECORD_POINTS];
	size_t n;
	struct power_record_point last; /* The point of the latest sample. */
	double last_w;
	/* `samples` is the number of samples so far. One of `every` samples is stored. */
	unsigned long samples, every;
};

void power_record_init(struct power_record *r);

/* Adds a sample.  Ignores a sample that is not later than the previous one. */
void power_record_add(struct power_record *r, double t_s, double watts);

/* Computes the mean power between two times.  Returns false if the samples do not cover the
 * whole time between them. */
bool power_record_mean(const struct power_record *r, double from_s, double to_s, double *ret_w);

#define CALIBRATE_LAG_S 10.0 /* Largest lag in seconds, in either direction. */
#define CALIBRATE_LEAST 10   /* Smallest number of points for a fit. */
#define CALIBRATE_ALIKE 0.9  /* Smallest correlation of the two series that is accepted. */
/* Largest known offset of a board in watts. If the fitted offset is larger, the external meter
 * measures more than the GPU. */
#define CALIBRATE_OFFSET_W 25.0

/* Fits the trace (n readings of the external meter, in ascending time order) to the record.
 * The times of both are on the clock of the record.  Returns 0, or -GW_E_PARSE with a sentence
 * in `why`: no overlap, too few points, no correlation, or an impossible gain.  Sets these
 * members of *ret:
 *
 * gain, offset_w      true power = gain x reading + offset gain_u, offset_u_w  their standard
 * uncertainties; offset_u_w applies at pivot_w pivot_w             mean of the sensor's
 * readings at the points, in watts; 0 if wider lag_s               delay of the external meter
 * relative to the sensor correlation         correlation of the two series at lag_s; NAN: the
 * power did not vary residual_w          standard deviation of the points from the fitted line,
 * in watts points, span_s      number of points that the fit uses; time from the first to the
 * last offset_alone        the power varied too little to determine the gain: gain is 1 wider
 *             the external meter measures more than the GPU: only the gain is used
 * measured_offset_w   offset as fitted; differs from offset_w if `wider` is true */
int calibrate_fit(const struct power_record *record, const struct trace_point *trace, size_t n,
		  struct measured_calibration *ret, char *why, size_t size);

/* The rows for --calibrate and --calibrate-accuracy in a table of options. */
#define CALIBRATION_OPTIONS(trace_at, accuracy_at, when)                                      \
	OPTION_ROW(TEXT, 0, "calibrate", trace_at, "TRACE",                                   \
		   "calibrate the GPU's power sensor with an external power meter: TRACE is " \
		   "a CSV file with time and watts, recorded during the measurement" when),   \
		OPTION_ROW(TEXT, 0, "calibrate-accuracy", accuracy_at, "PERCENT",             \
			   "accuracy of that meter in percent, with 95 % confidence "         \
			   "(default: 1)")

struct calibration {
	struct trace trace;
	struct measured_calibration summary;
};

/* Parses the value of --calibrate-accuracy, such as "1" or "0.5%".  If text is NULL, the value
 * is 1 %.  Returns EXIT_OK or EXIT_USAGE. */
int calibration_accuracy(const char *text, double *ret_ratio);

/* Fits the trace in the file `path` (borrowed) to the record.  The record has monotonic times;
 * wall_s is the wall clock minus the monotonic clock, in seconds.  Returns 0; free c->trace
 * with trace_done().  On error returns a negative code with a sentence in `why`. */
int calibration_make(struct calibration *c, const char *path, const struct power_record *record,
		     double wall_s, double accuracy_ratio, char *why, size_t size);

/* Sets gain, offset and their uncertainties in the sensor. */
void calibration_apply(const struct calibration *c, struct sensor *s);

/* Calibration during `measure`.  The meter's thread records the readings of the sensor.  After
 * the last run, the trace of the external meter is fitted to these readings. */

struct run_calibration {
	/* The readings of the sensor. NULL: --calibrate is not given. */
	struct power_record *record;
	const char *path;
	double accuracy_ratio;
	pthread_mutex_t lock; /* Protects `record`. */
	bool fitted;          /* True: `fit` and `sensor` are valid. */
	struct calibration fit;
	struct sensor sensor; /* The sensor of the GPU with the new calibration. */
	char why[4600];       /* A sentence that says why the calibration failed. */
};

/* Prepares the calibration.  Call it before the meter starts.  If path is NULL,
 * run_calibration_event() and run_calibration_done() do nothing, and the other functions must
 * not be called.  Returns 0 or -GW_E_NOMEM. */
int run_calibration_init(struct run_calibration *c, const char *path, double accuracy_ratio);
void run_calibration_done(struct run_calibration *c);

/* Adds an event of the GPU to the record.  May be called on any thread. */
void run_calibration_event(struct run_calibration *c, const struct event *e);

/* Fits the trace and sets result->calibration.  The runs stay unchanged.  Returns 0, or an
 * error with a sentence in `why`. */
int run_calibration_end(struct run_calibration *c, struct measured *result);

/* Applies the calibration to the parts that a run marked. */
void run_calibration_marks(const struct run_calibration *c, struct progress_marks *m);

/* Saves the calibration for later measurements of this card.  Returns 0, or an error with a
 * sentence in `why`. */
int run_calibration_keep(struct run_calibration *c);

#endif
