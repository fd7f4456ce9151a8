/* workload_names: finds the workload of a process, with the names that people use.
 *
 * workload.h finds ids in the path of the control group. This module replaces them: pods by the
 * kubelet's log directories, containers by the files or the socket of their engine, users by
 * etc/passwd; and it reads the job mapping directory that the prolog of a batch system writes.
 *
 * Runs on the loop's thread. An engine answers later, and the next call of
 * workload_names_resolve() then has the name. Files are read at once: the kubelet's folders and
 * etc/passwd of this machine, and lists of at most 1 MiB, each only when a workload is looked up.
 * Users' folders and the mapping directory are read only on a local file system, because a
 * network file system without its server would hold the thread. */
#ifndef GW_DAEMON_WORKLOAD_NAMES_H
#define GW_DAEMON_WORKLOAD_NAMES_H

#include "base/clock.h"
#include "base/loop.h"
#include "device/workload.h"

#include <gpuward.h>

struct workload_names;

struct workload_names_config {
	struct loop *loop; /* for the sockets of container engines; NULL: these are not used */
	const char *root;  /* where /proc, /var, /run and /etc are looked up; NULL: "/" */
	const char
		*hpc_job_mapping_dir; /* see job_mapping.h; NULL or "": none; not below root */
	const struct clock *clock;    /* NULL: the real one */
	/* Called once if the mapping directory is not on a local file system; and when it cannot
	 * be read, then again only after it could be read meanwhile. NULL: not called. */
	void (*log)(void *arg, const char *sentence);
	void *arg;
};

/* Returns 0, -GW_E_NOMEM, or another error if root cannot be opened. The strings are copied. */
int workload_names_new(const struct workload_names_config *config, struct workload_names **ret);
void workload_names_free(struct workload_names *n); /* NULL is allowed */

/* Finds the workload of a process: its identity, and its names as far as they are known now.
 * Always fills *ret. Call it once for a new process, and again at each tick while
 * !workload_is_named(ret): answers are cached (256 workloads), and what is unknown is looked up
 * again after 2 s, 10 s and then every minute. */
void workload_names_resolve(struct workload_names *n, const struct gw_process *p,
			    struct workload *ret);

#endif
