/* runner: starts a command, measures it while it runs, and returns the results.
 *
 * The command gets what gpuward got when it was started: terminal, process group, descriptors,
 * folder, environment, signal mask and ignored signals. It also gets GPUWARD_MARK_FD, the
 * descriptor for marks (progress_marks.h). From runner_begin() to runner_end() the signals of
 * runner_signals() do not end gpuward. They are forwarded to the command, except SIGINT and
 * SIGQUIT from the terminal, because the terminal itself sends them to the command. A signal
 * that requests the end (not SIGUSR1, SIGUSR2, SIGALRM and SIGCONT) also sets `interrupted`,
 * and the caller must then start no further run. */
#ifndef GW_CLI_RUNNER_H
#define GW_CLI_RUNNER_H

#include "progress_marks.h"
#include "measure/run_trace.h"

#include <gpuward.h>

#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RUNNER_FDS 4096

/* The state in which gpuward was started.  Call runner_inherit() before anything is opened. */
struct runner_inherit {
	bool pipe_ignored; /* SIGPIPE was ignored when gpuward was started. */
	/* One bit per open descriptor. Descriptors from RUNNER_FDS on are assumed open. */
	unsigned char open[RUNNER_FDS / 8];
};
void runner_inherit(struct runner_inherit *in, bool pipe_ignored);

struct runner {
	const struct runner_inherit *inherit;
	struct gw_meter *meter;
	struct run_trace *series; /* The trace that each run fills. NULL: no trace is kept. */
	const char *part;         /* Name of the marked part to report. NULL: the whole run. */
	/* Called about every watch_ns while the command runs. May be NULL. */
	void (*watch)(void *arg, struct gw_window *window, const struct progress_marks *marks);
	void *arg;
	uint64_t watch_ns;
	/* Called after the command has ended, during the wait for the last sample. May be
	 * NULL. */
	void (*meanwhile)(void *arg);
	/* Descriptors for standard input, output and error of the command. 0: the command gets
	 * the descriptor of gpuward. */
	int stdio[3];
	/* Called when drain_fd is readable. NULL: there is no such descriptor. */
	void (*drain)(void *arg);
	int drain_fd;
	/* Private: */
	sigset_t mask; /* The signal mask that runner_end() restores. */
	int signal_fd;
	int interrupted; /* The signal that requested the end. 0: no signal. */
};

/* One finished run.  The window belongs to the meter. */
struct runner_run {
	int error;       /* errno if the command could not be started, else 0. */
	int exit_status; /* Exit status of the command. -1: a signal ended the command. */
	int exit_signal; /* The signal that ended the command. 0: none. */
	/* Monotonic times right before the start and right after the end. */
	uint64_t begin_ns, end_ns;
	uint64_t begin_wall_ns;
	double seconds;
	/* The window is closed, and the wait for its last sample is over. */
	struct gw_window *window;
	bool late; /* The last sample did not arrive. A GPU may hang. */
	struct progress_marks marks;
};

/* Blocks the signals of runner_signals(). The caller must fill in the public members first.
 * inherit, meter, series and part are borrowed until runner_end(). Returns 0 or -GW_E_IO. */
int runner_begin(struct runner *r);
void runner_end(struct runner *r);

/* Waits until every GPU that reports power has its first sample, at most 100 ms. */
void runner_ready(struct runner *r);

/* Runs argv to its end.  Returns 0, -GW_E_NOMEM or -GW_E_IO.  After the result 0, call
 * runner_run_done(). If ret->error is set, the command was not started and nothing was
 * measured. */
int runner_run(struct runner *r, char *const argv[], const char *label, struct runner_run *ret);
void runner_run_done(struct runner_run *run);

/* Returns the exit status as a shell does: 127 if the command was not found, 126 if it cannot
 * be started, 128 + signal if a signal ended it. */
int runner_status(const struct runner_run *run);

/* Fills `set` with SIGCHLD, and with the signals to forward that are not ignored. Also gives
 * SIGCHLD its default action. A signal that was ignored at the start (nohup, a background job
 * of sh) stays ignored for gpuward and for the command. */
void runner_signals(sigset_t *set);

/* Starts argv with this signal mask. SIGPIPE and SIGXFSZ get the actions that they had when
 * gpuward started. `actions` may be NULL. Returns 0 or an errno. */
int runner_spawn(char *const argv[], char *const env[],
		 const posix_spawn_file_actions_t *actions, const sigset_t *mask,
		 bool pipe_ignored, pid_t *ret_pid);

/* Returns 127 if an errno of runner_spawn() means "not found", otherwise 126. */
int runner_spawn_status(int error);

/* Sleeps until until_ns.  Returns true if a signal requests the end (r->interrupted). */
bool runner_sleep(struct runner *r, uint64_t until_ns);

/* Cooldown: waits before a run until the GPUs are as cool as before the first run.
 *
 * A hotter chip has more leakage power, so runs must start at the same temperature.  If a GPU
 * does not cool down within a minute, its current temperature becomes its new target.  Later
 * runs then start at the same temperature and do not wait a minute each. */

#define COOLDOWN_DEVICES 256

struct cooldown_gpu {
	unsigned index;
	double c; /* Temperature in degrees Celsius. NAN: unknown. */
};

struct cooldown {
	struct gw_ctx *ctx;
	struct runner *runner;
	/* Target temperature. NAN: the target of each GPU is 2 degrees above its temperature at
	 * the start of the first run. */
	double to_c;
	/* Reads the temperatures of the GPUs, always in the same order, and returns the number
	 * of GPUs. NULL: the GPUs of the runner's meter are read through ctx. */
	unsigned (*read)(void *arg, struct cooldown_gpu ret[static COOLDOWN_DEVICES]);
	/* Called twice per second during a wait, with the GPU that is farthest above its
	 * target. left_s is the longest time that the wait can still take. May be NULL. */
	void (*report)(void *arg, unsigned gpu, double now_c, double mark_c, double left_s);
	void *arg;
	/* Results: */
	double waited_s;
	unsigned late; /* Number of waits that timed out. */
	/* If the last wait timed out, index of the GPU that was too warm, else -1. */
	int late_gpu;
	double late_c; /* Temperature of the GPU late_gpu at the timeout. */
	/* Temperature of the warmest GPU when the last wait ended. NAN: unknown. */
	double now_c;
	/* Private: */
	struct gw_snapshot *snap;
	/* Target of each GPU. NAN: no temperature is known yet. */
	double mark_c[COOLDOWN_DEVICES];
};

/* Initialises the results and the private members.  The caller has filled in the other members.
 * Returns 0 or -GW_E_NOMEM.  Free with cooldown_done(). */
int cooldown_init(struct cooldown *k);
void cooldown_done(struct cooldown *k);

/* Waits until the GPUs are cool, at most one minute.  Ignores a GPU without a temperature.
 * Returns true if a signal requests the end. */
bool cooldown_wait(struct cooldown *k);

/* Tail: keeps the end of what a command writes to standard error, in fixed memory. */

#define TAIL_BYTES 2048

struct tail {
	int write_fd; /* The command writes to this end of the pipe. */
	int read_fd;  /* Call tail_drain() when this end is readable. */
	char text[TAIL_BYTES];
	size_t fill;
};

/* Opens the pipe.  Returns 0 or -GW_E_IO. */
int tail_open(struct tail *t);
void tail_close(struct tail *t);

/* Reads what the command has written so far.  Never blocks. */
void tail_drain(struct tail *t);

/* Discards everything that the command has written so far. */
void tail_clear(struct tail *t);

/* Writes the last `lines` lines without control characters, each preceded by a newline and two
 * blanks.  Writes "" if there are none. */
void tail_lines(struct tail *t, unsigned lines, char *out, size_t size);

#endif
