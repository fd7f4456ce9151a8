/* service: the daemon from start to stop.
 *
 * Connects the loop, the store, the engine and HTTP. Everything in this file runs on the main
 * thread, which writes all log lines. */
#ifndef GW_DAEMON_SERVICE_H
#define GW_DAEMON_SERVICE_H

#include "config.h"

#include <gpuward.h>

struct service_options {
	const char *config_path; /* The argument of --config. NULL means the usual files. */
	const struct config_flag *flags;
	unsigned flag_count;
	/* Options that every command has. NULL or 0 means the value of the configuration. */
	const char *backend, *nvml_library, *root;
	unsigned open_flags; /* Bits of enum gw_open_flag. */
	uint64_t deadline_ns;
	bool quiet;     /* Nothing is printed on standard output. */
	bool simulated; /* The GPUs are simulated. */
};

enum service_end {
	SERVICE_OK = 0,
	SERVICE_FAILED = 1,
	SERVICE_USAGE = 2, /* The configuration is invalid. */
	/* The configuration is unsafe, or NVML is required but cannot be used. */
	SERVICE_REFUSED = 78,
};

/* Runs until SIGTERM or SIGINT. Logs errors. Returns an enum service_end. */
int service_run(const struct service_options *options);

#endif
