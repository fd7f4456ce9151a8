/* setup_service: the requests that `gpuward setup` sends to the running service. It reads the
 * mode of the guard, and clears the mode and the holds that a person set at run time. With
 * --root, it uses only a service that GPUWARD_ADDRESS names, because the service of this
 * machine does not read the files below that root. */
#ifndef GW_CLI_SETUP_SERVICE_H
#define GW_CLI_SETUP_SERVICE_H

#include "setup_files.h"

/* Gets the current mode of the guard. If `wait` is set, the service was just started: waits
 * until it answers, at most 15 s. Returns false if no service answers. */
bool setup_service_mode(const struct setup_place *at, bool wait, char out[static 16]);

/* Clears the mode that was set at run time, and releases all workers that a person holds.
 * Prints what was done, what could not be cleared, and which workers are off the GPU. With
 * dry_run, only prints what would be done. */
void setup_service_forget(const struct setup_place *at, bool quiet, bool dry_run);

#endif
