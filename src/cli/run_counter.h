/* run_counter: reads a counter before and after each run (--count-cmd, --count-url), and
 * reports what is unknown or assumed. */
#ifndef GW_CLI_RUN_COUNTER_H
#define GW_CLI_RUN_COUNTER_H

#include "counter.h"
#include "runner.h"

#include "serve/render_result.h"

struct run_count {
	const struct counter_kind *kind; /* NULL: the functions do nothing */
	const char *by;                  /* the command or URL */
	bool iterations;                 /* it counts iterations, not tokens */
	struct runner *runner;           /* its signals end a wait */
	/* Private: */
	struct deadline_stop stop;
	struct counter_reading first, last;
	char place[2400]; /* the source, for the result */
};

/* Reads the counter before a run starts, so that a counter that does not work is found early.
 * The caller fills in the public members; the runner has begun.  more: this is not the first
 * run.  Returns EXIT_OK, or an exit code after printing an error. */
int run_count_before(struct run_count *c, bool more);

/* Reads the counter again.  Call it as soon as the command has ended, because the server counts
 * on. */
void run_count_after(struct run_count *c);

/* Computes the count of the run; place is borrowed.  Returns false, after printing why, if it
 * is unknown. */
bool run_count_take(struct run_count *c, const struct runner_run *run,
		    struct measured_count *ret);

#endif
