/* stop: Ctrl-C and SIGTERM end a command that runs for a while in good order. */
#ifndef GW_CLI_STOP_H
#define GW_CLI_STOP_H

#include <stdbool.h>

/* From now on the two set a flag; calls that wait return early (EINTR).  A second one ends the
 * program as if nothing had been caught. */
void stop_catch(void);

bool stop_asked(void);

#endif
