/* run_calibration: the sensor of a measured GPU against an outside meter, over all runs of a
 * result.
 *
 * Keeps what the sensor said, on the meter's thread; at the end the trace of the other meter is
 * fitted to it. */
#ifndef GW_CLI_RUN_CALIBRATION_H
#define GW_CLI_RUN_CALIBRATION_H

#include "calibration.h"
#include "progress_marks.h"

#include "measure/event.h"

#include <pthread.h>

struct run_calibration {
	struct power_record *record; /* NULL: nothing is to be calibrated */
	const char *path;
	double accuracy_ratio;
	pthread_mutex_t lock; /* of the record */
	bool fitted;          /* the rest is filled */
	struct calibration fit;
	struct sensor sensor; /* of the GPU, with it */
	char why[4600];       /* a sentence, where something could not be done */
};

/* Before the meter starts.  path: NULL: there is nothing to do, and all else does nothing.  0
 * or -GW_E_NOMEM. */
int run_calibration_init(struct run_calibration *c, const char *path, double accuracy_ratio);
void run_calibration_done(struct run_calibration *c);

/* An event of the GPU, on any thread. */
void run_calibration_event(struct run_calibration *c, const struct event *e);

/* Fits, and tells the result, whose runs are left as they are.  0, or a gw_error with a
 * sentence in why. */
int run_calibration_end(struct run_calibration *c, struct measured *result);

/* The parts that a run marked, corrected. */
void run_calibration_marks(const struct run_calibration *c, struct progress_marks *m);

/* For the next measurements of this card.  0, or a gw_error with a sentence in why. */
int run_calibration_keep(struct run_calibration *c);

#endif
