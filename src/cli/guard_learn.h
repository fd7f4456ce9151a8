/* guard_learn: watches a machine that nobody uses and proposes rules that ignore who is
 * there. */
#ifndef GW_CLI_GUARD_LEARN_H
#define GW_CLI_GUARD_LEARN_H

#include "cli.h"
#include "remote.h"

/* Asks the service every second, for so long or until a signal; the rules go to standard
 * output.  An exit code. */
int guard_learn(const struct cli *c, struct remote *r, uint64_t for_ns);

#endif
