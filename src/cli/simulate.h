/* simulate: finds the simulated NVML library and loads a scenario into it. */
#ifndef GW_CLI_SIMULATE_H
#define GW_CLI_SIMULATE_H

#include <stdbool.h>

/* Loads the simulator and the scenario (a built-in name or a path).  Returns EXIT_OK and the
 * path of the library (static memory), or an exit code after printing an error.  "help" lists
 * the scenarios and returns -1. */
int simulate_prepare(const char *scenario, const char **ret_library);

/* Returns true if there is a built-in scenario of that name. */
bool simulate_known(const char *name);

#endif
