/* setup_service: what `gpuward setup` asks of the running service: its mode, and to forget the
 * mode and the holds that were set at run time.
 *
 * With another root than "/", only a service that GPUWARD_ADDRESS names is asked: the service of
 * this machine is not that of the other root. */
#ifndef GW_CLI_SETUP_SERVICE_H
#define GW_CLI_SETUP_SERVICE_H

#include "setup_files.h"

/* Gets the mode of the guard that is in force.  wait: the service was just started, so wait until
 * it answers, at most 15 s.  Returns false if no service answers. */
bool setup_service_mode(const struct setup_place *at, bool wait, char out[static 16]);

/* Sets the mode back to the configured one and releases all workers, and names the workers that
 * are off the GPU; says what was done and what stays stored.  dry_run: only says what would be
 * done. */
void setup_service_forget(const struct setup_place *at, bool quiet, bool dry_run);

#endif
