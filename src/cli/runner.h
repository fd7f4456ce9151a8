/* runner: starts a command, measures it while it runs, and returns the results.
 *
 * The command gets the terminal, process group, descriptors, folder, environment, signal mask
 * and ignored signals as gpuward found them, plus GPUWARD_MARK_FD, the descriptor for marks
 * (progress_marks.h).  From runner_begin() to runner_end() signals do not end gpuward.  SIGTERM
 * and SIGHUP are forwarded to the command; so are SIGINT and SIGQUIT, unless they come from the
 * terminal, which sends them to the command itself; `interrupted` then asks the caller to start
 * no further run. */
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

/* How gpuward was started.  Call runner_inherit() before anything is opened. */
struct runner_inherit {
	bool pipe_ignored; /* SIGPIPE was ignored */
	/* Open descriptors, one bit each; higher ones count as open. */
	unsigned char open[RUNNER_FDS / 8];
};
void runner_inherit(struct runner_inherit *in, bool pipe_ignored);

struct runner {
	const struct runner_inherit *inherit;
	struct gw_meter *meter;
	struct run_trace *series; /* NULL: none */
	const char *part;         /* the marked part to report; NULL: the whole run */
	/* Called about every watch_ns while the command runs; may be NULL. */
	void (*watch)(void *arg, struct gw_window *window, const struct progress_marks *marks);
	void *arg;
	uint64_t watch_ns;
	/* Called after the command has ended, while the last sample is awaited; may be NULL. */
	void (*meanwhile)(void *arg);
	/* Descriptors 0, 1 and 2 of the command; 0: the same as ours. */
	int stdio[3];
	/* Called when drain_fd is readable; NULL: there is no such descriptor. */
	void (*drain)(void *arg);
	int drain_fd;
	/* Private: */
	sigset_t mask; /* to restore */
	int signal_fd;
	int interrupted; /* the signal that asks to end; 0: none */
};

/* One finished run.  The window belongs to the meter. */
struct runner_run {
	int error;       /* errno if the command could not be started, else 0              */
	int exit_status; /* -1: a signal ended it                                          */
	int exit_signal; /* 0: none                                                        */
	/* Monotonic, right before the start and right after the end. */
	uint64_t begin_ns, end_ns;
	uint64_t begin_wall_ns;
	double seconds;
	struct gw_window *window; /* closed and waited for                                  */
	bool late; /* the last sample is missing: a GPU may hang                          */
	struct progress_marks marks;
};

/* Blocks the signals.  The caller fills in the public members; inherit, meter, series and part
 * are borrowed until runner_end().  Returns 0 or -GW_E_IO. */
int runner_begin(struct runner *r);
void runner_end(struct runner *r);

/* Waits until every GPU with a power meter has its first sample, at most 100 ms. */
void runner_ready(struct runner *r);

/* Runs argv to its end.  Returns 0, -GW_E_NOMEM or -GW_E_IO.  After 0, call runner_run_done();
 * if ret->error is set, nothing was measured. */
int runner_run(struct runner *r, char *const argv[], const char *label, struct runner_run *ret);
void runner_run_done(struct runner_run *run);

/* Returns the exit status as a shell does: 127 not found, 126 cannot be started, 128 +
 * signal. */
int runner_status(const struct runner_run *run);

/* Sleeps.  Returns true if a signal asks to end (r->interrupted). */
bool runner_sleep(struct runner *r, uint64_t until_ns);

/* Cooldown: waits before a run until the GPUs are as cool as before the first run.
 *
 * Hotter silicon leaks more, so runs must start at the same temperature.  A GPU that does not
 * cool down within a minute gets its current temperature as the new mark, so that later runs
 * start alike and do not wait a minute each. */

#define COOLDOWN_DEVICES 256

struct cooldown_gpu {
	unsigned index;
	double c; /* NAN: unknown */
};

struct cooldown {
	struct gw_ctx *ctx;
	struct runner *runner;
	double to_c; /* NAN: as at the first start */
	/* Reads the GPUs, always in the same order, and returns their number.  NULL: read those
	 * of the runner's meter in ctx. */
	unsigned (*read)(void *arg, struct cooldown_gpu ret[static COOLDOWN_DEVICES]);
	/* Called twice per second of a wait with the GPU that is farthest from its mark; may be
	 * NULL. */
	void (*report)(void *arg, unsigned gpu, double now_c, double mark_c);
	void *arg;
	/* Results: */
	double waited_s;
	unsigned late; /* waits that timed out */
	int late_gpu;  /* index of the GPU if the last wait timed out, else -1 */
	double late_c; /* its temperature then */
	double now_c;  /* the warmest GPU when the last wait ended; NAN: unknown */
	/* Private: */
	struct gw_snapshot *snap;
	double mark_c[COOLDOWN_DEVICES]; /* NAN: no temperature yet */
};

/* The caller fills in the inputs.  Returns 0 or -GW_E_NOMEM; free it with cooldown_done(). */
int cooldown_init(struct cooldown *k);
void cooldown_done(struct cooldown *k);

/* Waits at most a minute, and not for a GPU without a temperature.  Returns true if a signal
 * asks to end. */
bool cooldown_wait(struct cooldown *k);

/* Tail: keeps the end of what a command writes to standard error, in a fixed amount of memory. */

#define TAIL_BYTES 2048

struct tail {
	int write_fd; /* for the command */
	int read_fd;  /* call tail_drain() when it is readable */
	char text[TAIL_BYTES];
	size_t fill;
};

/* Returns 0 or -GW_E_IO. */
int tail_open(struct tail *t);
void tail_close(struct tail *t);

/* Reads what the command has written so far; never blocks. */
void tail_drain(struct tail *t);

/* Discards everything up to now. */
void tail_clear(struct tail *t);

/* Writes the last `lines` lines, each after "\n ", without control characters; "" if there are
 * none. */
void tail_lines(struct tail *t, unsigned lines, char *out, size_t size);

#endif
