/* guard_replay: what the guard would have decided on a recording, without any service or
 * GPU. */
#ifndef GW_CLI_GUARD_REPLAY_H
#define GW_CLI_GUARD_REPLAY_H

#include "cli.h"

/* trace: a file of [guard] record.  policy: a configuration whose guard decides in dry-run;
 * NULL: the service's own, which decides as it did, with the outcomes that were recorded.  An
 * exit code, having said why. */
int guard_replay(const struct cli *c, const char *policy, const char *trace);

#endif
