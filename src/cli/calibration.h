/* calibration: implements --calibrate: calibrates a GPU's power sensor with the trace of an
 * external power meter.
 *
 * Reads the trace (trace.h), fits it (calibrate.h), and applies the fit to sensors and
 * results. */
#ifndef GW_CLI_CALIBRATION_H
#define GW_CLI_CALIBRATION_H

#include "trace.h"

#include "measure/sensor.h"
#include "serve/render_result.h"
#include "progress_marks.h"
#include "measure/event.h"

#include <pthread.h>

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

/* Parses the value of --calibrate-accuracy, such as "1" or "0.5%"; NULL: 1 %.  Returns EXIT_OK
 * or EXIT_USAGE. */
int calibration_accuracy(const char *text, double *ret_ratio);

/* Fits the trace in the file `path` (borrowed) to the record.  The record has monotonic times;
 * wall_s is how far the wall clock is ahead of them.  Returns 0; then call calibration_done().
 * On error returns a negative code with a sentence in why. */
int calibration_make(struct calibration *c, const char *path, const struct power_record *record,
		     double wall_s, double accuracy_ratio, char *why, size_t size);
void calibration_done(struct calibration *c);

/* Sets gain, offset and their uncertainties in the sensor. */
void calibration_apply(const struct calibration *c, struct sensor *s);

/* Calibration during `measure`.  The meter's thread records the readings of the sensor.  After
 * the last run, the trace of the external meter is fitted to them. */

struct run_calibration {
	struct power_record *record; /* NULL: no calibration */
	const char *path;
	double accuracy_ratio;
	pthread_mutex_t lock; /* protects record */
	bool fitted;          /* true: `fit` and `sensor` are valid */
	struct calibration fit;
	struct sensor sensor; /* the sensor of the GPU, calibrated */
	char why[4600];       /* a sentence, if the calibration failed */
};

/* Prepares the calibration; call it before the meter starts.  path NULL: all functions below do
 * nothing.  Returns 0 or -GW_E_NOMEM. */
int run_calibration_init(struct run_calibration *c, const char *path, double accuracy_ratio);
void run_calibration_done(struct run_calibration *c);

/* Adds an event of the GPU to the record.  May be called on any thread. */
void run_calibration_event(struct run_calibration *c, const struct event *e);

/* Fits the trace and sets result->calibration.  The runs stay unchanged.  Returns 0, or an
 * error with a sentence in why. */
int run_calibration_end(struct run_calibration *c, struct measured *result);

/* Applies the calibration to the parts that a run marked. */
void run_calibration_marks(const struct run_calibration *c, struct progress_marks *m);

/* Saves the calibration for later measurements of this card.  Returns 0, or an error with a
 * sentence in why. */
int run_calibration_keep(struct run_calibration *c);

#endif
