/* through: runs that the service measures, which runs already and has the driver open.
 *
 * For each run a window is opened over HTTP before the command starts and ended after it; what
 * the service answers becomes the devices of the run.  No driver is opened here.  A window is
 * longer than its command by the two requests.  One that has no result, or that nobody wants
 * any more, is forgotten in the service. */
#ifndef GW_CLI_MEASURE_REMOTE_H
#define GW_CLI_MEASURE_REMOTE_H

#include "cli.h"
#include "cooldown.h"
#include "measured.h"
#include "remote.h"

struct measure_remote;

/* Asks nothing yet.  The selectors of the GPUs (none: all) are borrowed.  EXIT_OK, or an exit
 * code having said why; *ret is to be ended with measure_remote_close() in any case. */
int measure_remote_open(const struct remote_flags *flags, const char *const *gpu, unsigned gpus,
			struct measure_remote **ret);
void measure_remote_close(struct measure_remote *t); /* NULL is fine */

const char *measure_remote_address(const struct measure_remote *t);

/* How warm its GPUs are, as of its latest reading; how many there are, 0: not known. */
unsigned measure_remote_temperatures(struct measure_remote *t,
				     struct cooldown_gpu ret[static COOLDOWN_DEVICES]);

/* Begins a window.  EXIT_OK, or an exit code having said why. */
int measure_remote_begin(struct measure_remote *t, const char *label);

/* Once in a while, while the command runs: its lease begins anew, without which the service
 * ends it. */
void measure_remote_renew(struct measure_remote *t);

/* Forgets it: the command could not be started. */
void measure_remote_forget(struct measure_remote *t);

/* Asks for its end, which is when the request arrives; measure_remote_end() has the answer. */
void measure_remote_stop(struct measure_remote *t);

/* Between the two, when there is time: asks for what the service says of its machine, once. */
void measure_remote_describe(struct measure_remote *t);
const char *measure_remote_environment(
	const struct measure_remote *t); /* `gpuward env --json`; NULL: not known */
bool measure_remote_elsewhere(
	const struct measure_remote *t); /* it is another machine than this       */

enum measure_remote_outcome {
	MEASURE_REMOTE_WHOLE,
	MEASURE_REMOTE_CUT,  /* it ended before the command did: coded truncated */
	MEASURE_REMOTE_LOST, /* nothing is known */
};

/* What came of it; all but MEASURE_REMOTE_WHOLE is said.  *ret borrows of t until the next
 * window, and is empty where all is lost. */
enum measure_remote_outcome measure_remote_end(struct measure_remote *t,
					       struct measured_there *ret);

/* Are the GPUs of the last window simulated? */
bool measure_remote_simulated(const struct measure_remote *t);

#endif
