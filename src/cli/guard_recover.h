/* guard_recover: brings back processes that a checkpoint put away, after a service that did not
 * live to do it. */
#ifndef GW_CLI_GUARD_RECOVER_H
#define GW_CLI_GUARD_RECOVER_H

#include "cli.h"

/* Reads the service's journal; an exit code, having said what was done. */
int guard_recover(struct cli *c);

#endif
