/* simulate: finds the simulated NVML library and puts a scenario into it. */
#ifndef GW_CLI_SIMULATE_H
#define GW_CLI_SIMULATE_H

#include <stdbool.h>

/* Loads the simulator and the scenario (a built-in name or a path).  EXIT_OK and the library's
 * path (static memory), or an exit code, having said why.  "help" lists the scenarios and is
 * answered with -1: all was said. */
int simulate_prepare(const char *scenario, const char **ret_library);

/* Is there a built-in scenario of that name? */
bool simulate_known(const char *name);

#endif
