/* guard_replay: decides again on a recording, without a service or a GPU. */
#ifndef GW_CLI_GUARD_REPLAY_H
#define GW_CLI_GUARD_REPLAY_H

#include "cli.h"

/* trace: a file written by [guard] record.  policy: a configuration to decide by, as a dry run;
 * NULL: the policy of the recording, or else of the service, with the recorded outcomes.
 * Returns an exit code. */
int guard_replay(const struct cli *c, const char *policy, const char *trace);

#endif
