/* through: runs that the service measures, which runs already and has the driver open.
 *
 * For each run a window is opened over HTTP before the command starts and ended after it; what
 * the service answers becomes the devices of the run.  No driver is opened here.  A window is
 * longer than its command by the two requests.  One that has no result, or that nobody wants any
 * more, is forgotten in the service. */
#ifndef GW_CLI_THROUGH_H
#define GW_CLI_THROUGH_H

#include "cli.h"
#include "cool.h"
#include "measured.h"
#include "remote.h"

struct through;

/* Asks nothing yet.  The selectors of the GPUs (none: all) are borrowed.  EXIT_OK, or an exit
 * code having said why; *ret is to be ended with through_close() in any case. */
int through_open(const struct remote_flags *flags, const char *const *gpu, unsigned gpus,
		 struct through **ret);
void through_close(struct through *t); /* NULL is fine */

const char *through_address(const struct through *t);

/* How warm its GPUs are, as of its latest reading; how many there are, 0: not known. */
unsigned through_temperatures(struct through *t, struct cool_gpu ret[static COOL_DEVICES]);

/* Begins a window.  EXIT_OK, or an exit code having said why. */
int through_begin(struct through *t, const char *label);

/* Once in a while, while the command runs: its lease begins anew, without which the service ends it. */
void through_renew(struct through *t);

/* Forgets it: the command could not be started. */
void through_forget(struct through *t);

/* Asks for its end, which is when the request arrives; through_end() has the answer. */
void through_stop(struct through *t);

/* Between the two, when there is time: asks for what the service says of its machine, once. */
void through_describe(struct through *t);
const char *
through_environment(const struct through *t);    /* `gpuward env --json`; NULL: not known */
bool through_elsewhere(const struct through *t); /* it is another machine than this       */

enum through_outcome {
	THROUGH_WHOLE,
	THROUGH_CUT,  /* it ended before the command did: coded truncated */
	THROUGH_LOST, /* nothing is known */
};

/* What came of it; all but THROUGH_WHOLE is said.  *ret borrows of t until the next window,
 * and is empty where all is lost. */
enum through_outcome through_end(struct through *t, struct measured_there *ret);

/* Are the GPUs of the last window simulated? */
bool through_simulated(const struct through *t);

#endif
