/* setup_service: sends requests of `gpuward setup` to the running service: reads its mode, and
 * ends the mode and the holds that a person set at run time.
 *
 * If the root is not "/", only a service that GPUWARD_ADDRESS names is used, because the
 * service of this machine does not belong to the other root. */
#ifndef GW_CLI_SETUP_SERVICE_H
#define GW_CLI_SETUP_SERVICE_H

#include "setup_files.h"

/* Gets the current mode of the guard.  wait: the service was just started, so wait until it
 * answers, at most 15 s.  Returns false if no service answers. */
bool setup_service_mode(const struct setup_place *at, bool wait, char out[static 16]);

/* Sets the mode back to the configured one and releases all workers, and prints the workers
 * that are off the GPU, what was done and what stays stored.  dry_run: only prints what would
 * be done. */
void setup_service_forget(const struct setup_place *at, bool quiet, bool dry_run);

#endif
