/* run_progress: shows the progress of a measurement on standard error.
 *
 * On a terminal it is one line that is overwritten, and is not drawn while the command uses the
 * terminal in a raw mode.  Elsewhere it is one line per hundred samples, if requested. */
#ifndef GW_CLI_RUN_PROGRESS_H
#define GW_CLI_RUN_PROGRESS_H

#include "progress_marks.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

struct run_progress {
	struct gw_meter *meter;
	unsigned trial, trials; /* 1 of 3                                       */
	double expected_s;      /* duration of the previous run; NAN: unknown   */
	double iterations;      /* that the command will mark; NAN: unknown     */
	/* Private: */
	bool on, terminal, shown;
	uint64_t begin_ns;
	uint64_t samples, lines; /* samples at the start of the run; lines so far */
};

/* requested: --progress is given; quiet: show nothing. */
void run_progress_init(struct run_progress *p, struct gw_meter *meter, bool requested,
		       bool quiet);

/* Call it when a run begins. */
void run_progress_begin(struct run_progress *p);

/* Call it during the run: draws if it is time. */
void run_progress_show(struct run_progress *p, struct gw_window *window,
		       const struct progress_marks *marks);

/* Removes the line; call it at the end and before anything else is printed. */
void run_progress_clear(struct run_progress *p);

#endif
