/* measure_remote: measures runs through the service, without opening a driver in this process.
 *
 * Before each command starts, this module opens a window over HTTP. After the command, the
 * module ends the window and reads the devices of the run from the reply.  The window is longer
 * than the command by the time of the two requests.  A window without a result is deleted in
 * the service. */
#ifndef GW_CLI_MEASURE_REMOTE_H
#define GW_CLI_MEASURE_REMOTE_H

#include "cli.h"
#include "runner.h"
#include "run_result.h"
#include "remote.h"

struct measure_remote;

/* Allocates the object.  Sends no request yet.  The selectors of the GPUs are borrowed; without
 * selectors, all GPUs are measured.  Returns an exit code.  Call measure_remote_close()
 * afterwards, even after an error. */
int measure_remote_open(const struct remote_flags *flags, const char *const *gpu, unsigned gpus,
			struct measure_remote **ret);
void measure_remote_close(struct measure_remote *t); /* t may be NULL. */

struct measure_remote_facts {
	const char *address;
	/* The document that `gpuward env --json` writes. NULL: unknown. */
	const char *environment;
	bool elsewhere; /* The service runs on another machine. */
	bool simulated; /* The GPUs of the last window are simulated. */
};
const struct measure_remote_facts *measure_remote_facts(const struct measure_remote *t);

/* Reads the temperatures of the measured GPUs from the service.  Returns the number of GPUs, or
 * 0 if the service does not answer. */
unsigned measure_remote_temperatures(struct measure_remote *t,
				     struct cooldown_gpu ret[static COOLDOWN_DEVICES]);

/* Opens a window.  Returns an exit code. */
int measure_remote_begin(struct measure_remote *t, const char *label);

/* Renews the lease of the window when the renewal is due.  Call it repeatedly while the command
 * runs. */
void measure_remote_renew(struct measure_remote *t);

/* Deletes the window, which then has no result. Call it, for example, if the command could not
 * be started. */
void measure_remote_forget(struct measure_remote *t);

/* Requests the end of the window.  The window ends when the request arrives.
 * measure_remote_end() reads the reply. */
void measure_remote_stop(struct measure_remote *t);

/* Reads the environment of the service, once.  Call it between measure_remote_stop() and
 * measure_remote_end(). */
void measure_remote_describe(struct measure_remote *t);

enum measure_remote_outcome {
	MEASURE_REMOTE_WHOLE,
	/* The window ended before the command ended. The result has the code "truncated". */
	MEASURE_REMOTE_CUT,
	MEASURE_REMOTE_LOST, /* The service did not return a result. */
};

/* Reads the result of the window.  Prints an error unless the outcome is MEASURE_REMOTE_WHOLE.
 * *ret borrows from t until the next window.  If the result is lost, *ret has no device. */
enum measure_remote_outcome measure_remote_end(struct measure_remote *t,
					       struct run_result_remote *ret);

#endif
