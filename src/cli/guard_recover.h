/* guard_recover: restores checkpointed processes after the service crashed before it could. */
#ifndef GW_CLI_GUARD_RECOVER_H
#define GW_CLI_GUARD_RECOVER_H

#include "cli.h"

/* Reads the journal of the service, restores the processes, and prints what was done.  Returns
 * an exit code. */
int guard_recover(struct cli *c);

#endif
