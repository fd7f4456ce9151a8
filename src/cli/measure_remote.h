/* measure_remote: measures runs through the service, without opening a driver here.
 *
 * For each run it opens a window over HTTP before the command starts and ends it afterwards;
 * the reply becomes the devices of the run.  The window is longer than the command by the two
 * requests.  A window without a result is deleted in the service. */
#ifndef GW_CLI_MEASURE_REMOTE_H
#define GW_CLI_MEASURE_REMOTE_H

#include "cli.h"
#include "runner.h"
#include "run_result.h"
#include "remote.h"

struct measure_remote;

/* Sends no request yet.  The selectors of the GPUs (none: all) are borrowed.  Returns an exit
 * code; call measure_remote_close() in any case. */
int measure_remote_open(const struct remote_flags *flags, const char *const *gpu, unsigned gpus,
			struct measure_remote **ret);
void measure_remote_close(struct measure_remote *t); /* t may be NULL */

/* What is known about the service. */
struct measure_remote_facts {
	const char *address;
	const char *environment; /* as `gpuward env --json`; NULL: unknown */
	bool elsewhere;          /* it runs on another machine */
	bool simulated;          /* the GPUs of the last window are simulated */
};
const struct measure_remote_facts *measure_remote_facts(const struct measure_remote *t);

/* Reads the temperatures of the service's GPUs and returns the number of GPUs; 0: unknown. */
unsigned measure_remote_temperatures(struct measure_remote *t,
				     struct cooldown_gpu ret[static COOLDOWN_DEVICES]);

/* Opens a window.  Returns an exit code. */
int measure_remote_begin(struct measure_remote *t, const char *label);

/* Renews the lease of the window; call it now and then while the command runs. */
void measure_remote_renew(struct measure_remote *t);

/* Deletes the window, because the command could not be started. */
void measure_remote_forget(struct measure_remote *t);

/* Requests the end of the window, which is when the request arrives; measure_remote_end() reads
 * the reply. */
void measure_remote_stop(struct measure_remote *t);

/* Reads the environment of the service once; call it between measure_remote_stop() and
 * _end(). */
void measure_remote_describe(struct measure_remote *t);

enum measure_remote_outcome {
	MEASURE_REMOTE_WHOLE,
	MEASURE_REMOTE_CUT,  /* the window ended before the command: code truncated */
	MEASURE_REMOTE_LOST, /* no result */
};

/* Reads the result of the window, and prints an error unless it is MEASURE_REMOTE_WHOLE.  *ret
 * borrows from t until the next window; it is empty if the result is lost. */
enum measure_remote_outcome measure_remote_end(struct measure_remote *t,
					       struct run_result_remote *ret);

#endif
