/* guard_learn: watches an idle machine and proposes rules that ignore the processes that always
 * run. */
#ifndef GW_CLI_GUARD_LEARN_H
#define GW_CLI_GUARD_LEARN_H

#include "cli.h"
#include "remote.h"

/* Queries the service every second for this long, then prints the rules.  Returns an exit
 * code. */
int guard_learn(const struct cli *c, struct remote *r, uint64_t for_ns);

#endif
