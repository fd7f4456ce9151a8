/* run_progress: how far a measurement is, on standard error.
 *
 * On a terminal one line that is drawn over itself, and not at all while the command uses the
 * terminal for more than lines.  Elsewhere one line for each hundred samples, when asked
 * for. */
#ifndef GW_CLI_RUN_PROGRESS_H
#define GW_CLI_RUN_PROGRESS_H

#include "progress_marks.h"

#include <gpuward.h>

#include <stdbool.h>
#include <stdint.h>

struct run_progress {
	struct gw_meter *meter;
	unsigned trial, trials; /* 1 of 3                                       */
	double expected_s;      /* how long a run takes, from the last; NAN     */
	double iterations;      /* that the command will mark; NAN              */
	/* Its own: */
	bool on, terminal, shown;
	uint64_t begin_ns;
	uint64_t samples, lines; /* at the beginning of the run; lines so far    */
};

/* asked: --progress was given; quiet: nothing at all. */
void run_progress_init(struct run_progress *p, struct gw_meter *meter, bool asked, bool quiet);

/* A run begins. */
void run_progress_begin(struct run_progress *p);

/* While it runs: draws, if it is time. */
void run_progress_show(struct run_progress *p, struct gw_window *window,
		       const struct progress_marks *marks);

/* Takes the line away, before anything else is said and at the end. */
void run_progress_clear(struct run_progress *p);

#endif
