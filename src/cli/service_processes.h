/* service_processes: what only a running service knows about the processes on the GPUs: their
 * energy, power and workload.
 *
 * For a command that reads the driver itself. The service is optional: if none answers in time,
 * everything stays unknown, and nothing is printed. */
#ifndef GW_CLI_SERVICE_PROCESSES_H
#define GW_CLI_SERVICE_PROCESSES_H

#include "remote.h"
#include "serve/render.h"

struct cli;
struct service_processes {
	struct remote remote;
	bool use; /* false: read the driver only, or the service was too slow once */
	int fd;   /* of the request that waits for its reply; -1: none */
	struct render_process_rows rows;
};

/* Finds the address of the service as `gpuward top` does.  c NULL: no service is asked.  Call
 * service_processes_close() at the end. */
void service_processes_open(struct service_processes *s, const struct cli *c);
void service_processes_close(struct service_processes *s);

/* Sends the request, so that the service answers while the caller reads the driver. */
void service_processes_ask(struct service_processes *s);

/* Reads the reply and returns the rows for this list.  They are valid until the next call.
 * Without a reply, the result has only the list. */
struct render_process_list service_processes_take(struct service_processes *s,
						  const struct gw_process_list *list,
						  const struct gw_snapshot *snap);

#endif
