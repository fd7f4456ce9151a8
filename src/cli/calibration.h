/* calibration: --calibrate: the trace of an outside meter held against the GPU's own sensor.
 *
 * Reads it (trace.h), fits (calibrate.h), and turns the fit into what sensors, results and
 * people want of it. */
#ifndef GW_CLI_CALIBRATION_H
#define GW_CLI_CALIBRATION_H

#include "trace.h"

#include "measure/sensor.h"
#include "serve/render_result.h"

struct calibration {
	struct trace trace;
	struct measured_calibration told;
};

/* --calibrate-accuracy: "1", "0.5%"; NULL: 1 %.  EXIT_OK, or EXIT_USAGE having said what it
 * takes. */
int calibration_accuracy(const char *text, double *ret_ratio);

/* Fits the trace in path, which is borrowed, to the record, whose times are monotonic; wall_s:
 * what the wall clock is ahead of them.  0 and calibration_done() ends it; else a gw_error with
 * a sentence in why. */
int calibration_make(struct calibration *c, const char *path, const struct power_record *record,
		     double wall_s, double accuracy_ratio, char *why, size_t size);
void calibration_done(struct calibration *c);

/* Gain, offset and what is uncertain of them, into the sensor. */
void calibration_apply(const struct calibration *c, struct sensor *s);

#endif
