/* run_count: what a server counts over each run of a result (--count-cmd, --count-url).
 *
 * Asks before and after (counter.h), and says what is not known, or taken for granted. */
#ifndef GW_CLI_RUN_COUNTER_H
#define GW_CLI_RUN_COUNTER_H

#include "counter.h"
#include "runner.h"

#include "serve/render_result.h"

struct run_count {
	const struct counter_kind
		*kind;         /* NULL: nothing is counted, and all else does nothing */
	const char *by;        /* what it is asked by */
	bool iterations;       /* and no tokens */
	struct runner *runner; /* a signal that it gets ends the waiting */
	/* Its own: */
	struct deadline_stop stop;
	struct counter_reading first, last;
	char place[2400]; /* what is asked, for the result */
};

/* The caller has filled in what is not its own; the runner has begun.  Before anything is
 * started: what cannot count is found out now.  more: there was a run before.  EXIT_OK, or an
 * exit code having said why. */
int run_count_before(struct run_count *c, bool more);

/* As soon as the command has ended: it counts on. */
void run_count_after(struct run_count *c);

/* What it was over the run; place is borrowed.  False: that is not known, which was said. */
bool run_count_take(struct run_count *c, const struct runner_run *run,
		    struct measured_count *ret);

#endif
