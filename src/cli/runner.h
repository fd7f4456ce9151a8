/* runner: starts a command, measures it while it runs, and gives back what came of it.
 *
 * The only part of `measure` and `ab` that has effects on processes.  The command finds the
 * terminal, process group, descriptors, folder, environment, signal mask and ignored signals as
 * gpuward found them, and beside them GPUWARD_MARK_FD, the number of a descriptor that takes
 * lines of marks (progress_marks.h).  We sleep in poll() on a pidfd, the marks and the signals.
 *
 * From runner_begin() to runner_end() signals do not end gpuward: SIGTERM and SIGHUP are handed
 * on to the command; SIGINT and SIGQUIT too, unless they come from the terminal, which sends
 * them to the command by itself.  What was measured is kept, and the caller is told to start
 * nothing more. */
#ifndef GW_CLI_RUNNER_H
#define GW_CLI_RUNNER_H

#include "progress_marks.h"
#include "measure/run_trace.h"

#include <gpuward.h>

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RUNNER_FDS 4096

/* How gpuward itself was started; to be taken before anything is opened. */
struct runner_inherit {
	bool pipe_ignored; /* SIGPIPE was                                 */
	/* Descriptors, a bit each; those above count as open. */
	unsigned char open[RUNNER_FDS / 8];
};
void runner_inherit(struct runner_inherit *in, bool pipe_ignored);

struct runner {
	const struct runner_inherit *inherit;
	struct gw_meter *meter;
	struct run_trace *series; /* NULL: none are wanted */
	const char *part; /* the runs are about this part that is marked; NULL: all of them */
	/* Called about every watch_ns while the command runs; NULL: nobody looks. */
	void (*watch)(void *arg, struct gw_window *window, const struct progress_marks *marks);
	void *arg;
	uint64_t watch_ns;
	/* Called when it has ended, while its last sample is waited for; NULL: nothing to
	 * do. */
	void (*meanwhile)(void *arg);
	/* What the command has as descriptors 0, 1 and 2; 0: what we have. */
	int stdio[3];
	/* Called when there is something to read on drain_fd; NULL: there is no such
	 * descriptor. */
	void (*drain)(void *arg);
	int drain_fd;
	/* Its own: */
	sigset_t mask; /* as it was */
	int signal_fd;
	int interrupted; /* the signal that asked us to end, 0: none */
};

/* What came of one run.  Plain data but for the window, which is the meter's. */
struct runner_run {
	int error;       /* errno of a command that could not be started, 0: it was        */
	int exit_status; /* -1: a signal ended it                                          */
	int exit_signal; /* 0: none                                                        */
	/* Monotonic: right before it was started, right after it ended. */
	uint64_t begin_ns, end_ns;
	uint64_t begin_wall_ns;
	double seconds;
	struct gw_window *window; /* closed and waited for                                  */
	bool late; /* its last sample did not come: a GPU may hang                          */
	struct progress_marks marks;
};

/* Blocks the signals.  The caller has filled in what is not its own; inherit, meter, series and
 * part are borrowed until runner_end().  0 or -GW_E_IO. */
int runner_begin(struct runner *r);
void runner_end(struct runner *r);

/* Waits until every GPU that has a meter gave its first sample, 100 ms at most. */
void runner_ready(struct runner *r);

/* Runs argv to its end.  0, and *ret is to be ended with runner_run_done() (error set: nothing
 * was measured), -GW_E_NOMEM or -GW_E_IO. */
int runner_run(struct runner *r, char *const argv[], const char *label, struct runner_run *ret);
void runner_run_done(struct runner_run *run);

/* Its status as a shell gives it: 127 not found, 126 not to be started, 128 + signal. */
int runner_status(const struct runner_run *run);

/* Sleeps; true: a signal asked us to end (r->interrupted). */
bool runner_sleep(struct runner *r, uint64_t until_ns);

#endif
