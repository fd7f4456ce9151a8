/* session: what `measure` and `ab` share: their common options, the meter, the runner with its
 * signals, cooldown, --clean-room, and writing the result.
 *
 * Call in this order: session_init(), cli_open(), session_start(), session_begin(), the runs,
 * clean_room_end(), session_write(), session_end(), session_stop(). */
#ifndef GW_CLI_SESSION_H
#define GW_CLI_SESSION_H

#include "clean_room.h"
#include "cli.h"
#include "runner.h"

#include "measure/bundle.h"
#include "measure/meter.h"

#include <math.h>

struct session_options {
	const char *part, *output;
	double iterations, cooldown_to_c; /* Each is NAN if its option is not given. */
	double warmup; /* Number of warm-up runs before the first measured run. */
	struct clean_room_flags room;
	bool no_cooldown, require_exclusive, keep_command, progress;
};

/* Rows for a table of options.  `type.member` is a struct session_options. */
#define SESSION_ITERATIONS(type, member)                                                      \
	OPTION_COUNT_ROW("iterations", offsetof(type, member.iterations),                     \
			 "number of iterations in a run, for energy and time per iteration; " \
			 "an iteration is, for example, an inference or a training step",     \
			 1, 1e15, NAN)
#define SESSION_PART(type, member)                                                             \
	OPTION_ROW(TEXT, 0, "part", offsetof(type, member.part), "NAME",                       \
		   "measure only the part that the command marks with this name, without the " \
		   "loading before it; if several parts have this name, use the first")
#define SESSION_EXCLUSIVE(type, member)                                                        \
	OPTION_ROW(FLAG, 0, "require-exclusive", offsetof(type, member.require_exclusive),     \
		   NULL,                                                                       \
		   "if another process uses a GPU, the result is invalid and the exit status " \
		   "is 13")
#define SESSION_COOLDOWN(type, member, warmup_runs)                                            \
	OPTION_COUNT_ROW("warmup", offsetof(type, member.warmup),                              \
			 "run N times without measuring before the first measured run", 0,     \
			 1000, warmup_runs),                                                   \
		OPTION_ROW(CELSIUS, 0, "cooldown-to", offsetof(type, member.cooldown_to_c),    \
			   "CELSIUS",                                                          \
			   "before each run, wait up to a minute until no GPU is warmer than " \
			   "this (default with several runs: 2 degrees above the temperature " \
			   "before the first run)"),                                           \
		OPTION_ROW(FLAG, 0, "no-cooldown", offsetof(type, member.no_cooldown), NULL,   \
			   "do not wait until the GPUs are cool")
#define SESSION_OUTPUT(type, member)                                        \
	OPTION_ROW(                                                         \
		TEXT, 'o', "output", offsetof(type, member.output), "FILE", \
		"write the result to FILE; a FILE that exists becomes FILE.old; -: print it")
#define SESSION_KEEP_COMMAND(type, member)                                             \
	OPTION_ROW(FLAG, 0, "keep-command", offsetof(type, member.keep_command), NULL, \
		   "store whole command lines in the result, not only the program names")
#define SESSION_PROGRESS(type, member)                                         \
	OPTION_ROW(FLAG, 0, "progress", offsetof(type, member.progress), NULL, \
		   "show progress even if standard error is not a terminal")

struct session {
	struct cli *c;
	const struct session_options *o;
	struct runner runner; /* The meter is runner.meter. */
	struct cooldown cool;
	struct clean_room *room; /* The held workers. NULL: --clean-room is not given. */
	struct runner_inherit inherit;
};

/* Checks that the options fit together.  Returns EXIT_OK or EXIT_USAGE. */
int session_check(const struct session_options *o);

/* Initialises s.  Call it before any file is opened.  Afterwards set the callbacks of s->runner
 * and s->cool.  arg is the argument of these callbacks. */
void session_init(struct session *s, struct cli *c, const struct session_options *o, void *arg);

/* Starts the meter.  config has the callbacks of the meter.  Returns an exit code.  Call
 * session_stop() even after an error. */
int session_start(struct session *s, const struct meter_config *config, uint64_t interval_ns);
void session_stop(struct session *s);

/* Calls runner_begin(), which blocks signals. With --clean-room, also calls clean_room_new().
 * Returns an exit code. After EXIT_OK call session_end(). */
int session_begin(struct session *s);
void session_end(struct session *s);

/* Waits until the GPUs are cool, and warns if one stays too warm.  A signal ends the wait
 * (s->runner.interrupted).  clear() is called before the warning, to remove a progress line; it
 * may be NULL. */
void session_cool_down(struct session *s, void (*clear)(void));

/* Prints why there is no GPU, what follows from this, and what to do. */
void session_report_no_gpu(const struct session *s, const char *effect);

/* Returns the GPU of the snapshot that the meter has at position i. */
const struct gw_device *session_device(const struct session *s, unsigned i);

/* Returns the program name of a command: "train" for "/opt/bin/train". */
const char *session_command_name(const char *command);

/* Ends the document.  Writes it where -o and --json say, and into the bundle (NULL: no bundle).
 * err is an earlier error; if it is not 0, nothing is written.  Returns an exit code. */
int session_write(const struct session *s, struct cli_document *doc, struct bundle *bundle,
		  int err);

/* Shows the progress of a run on standard error. On a terminal, this is one line that is
 * overwritten; it is not drawn while the command uses the terminal in a raw mode. Elsewhere,
 * one line per hundred samples is printed if --progress is given. */

struct run_progress {
	struct gw_meter *meter;
	unsigned trial, trials; /* Number of the current run, and number of all runs. */
	double expected_s;      /* Duration of the previous run. NAN: unknown. */
	double iterations; /* Number of iterations that the command will mark. NAN: unknown. */
	/* Private: */
	bool on, terminal, shown;
	uint64_t begin_ns;
	/* `samples` is the number of samples at the start of the run, `lines` the number of
	 * lines printed so far. */
	uint64_t samples, lines;
};

/* Prepares the progress line.  requested: --progress is given.  quiet: nothing is shown. */
void run_progress_init(struct run_progress *p, struct gw_meter *meter, bool requested,
		       bool quiet);

/* Call it when a run begins. */
void run_progress_begin(struct run_progress *p);

/* Draws the line when it is due.  Call it during the run. */
void run_progress_show(struct run_progress *p, struct gw_window *window,
		       const struct progress_marks *marks);

/* Removes the line.  Call it at the end of the run, and before anything else is printed. */
void run_progress_clear(struct run_progress *p);

#endif
