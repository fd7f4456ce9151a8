/* service: the daemon, from its configuration to its end.
 *
 * Ties together what does the work: the loop, the store, the engine, HTTP.  Everything here runs on
 * the main thread, and this is where things are logged. */
#ifndef GW_DAEMON_SERVICE_H
#define GW_DAEMON_SERVICE_H

#include "config.h"

#include <gpuward.h>

struct service_options {
	const char *config_path; /* of --config; NULL: the usual places */
	const struct config_flag *flags;
	unsigned flag_count;
	/* From the options that all commands have; NULL or 0: as configured. */
	const char *backend, *nvml_library, *root;
	unsigned open_flags; /* enum gw_open_flag */
	uint64_t deadline_ns;
	bool quiet;     /* no line on standard output */
	bool simulated; /* the GPUs are */
};

enum service_end {
	SERVICE_OK = 0,
	SERVICE_FAILED = 1,
	SERVICE_USAGE = 2,    /* the configuration cannot be read     */
	SERVICE_REFUSED = 78, /* it cannot be served, or NVML is required and not there */
};

/* Runs until SIGTERM or SIGINT.  An enum service_end, having said why. */
int service_run(const struct service_options *options);

/* Where history and journals are kept, in out or borrowed from it; NULL: in memory alone. */
const char *service_store_path(const struct config *c, bool simulated, char *out, size_t size);

#endif
