/* workload_names: finds the workload of a process, with the names that people use.
 *
 * workload.h finds ids in the path of the control group. This module finds the names for these
 * ids. It finds names of pods in the kubelet's log directories, names of containers in the
 * files or at the socket of their engine, names of users in etc/passwd, and names of jobs in
 * the job mapping directory of a batch system.
 *
 * It runs on the loop's thread. Files are read at once. A container engine answers later, and a
 * later call of workload_names_resolve() returns the name. Users' folders and the mapping
 * directory are read only on a local file system, because a network file system blocks the
 * thread if its server does not respond. */
#ifndef GW_DAEMON_WORKLOAD_NAMES_H
#define GW_DAEMON_WORKLOAD_NAMES_H

#include "base/clock.h"
#include "base/loop.h"
#include "device/workload.h"

#include <gpuward.h>

struct workload_names;

struct workload_names_config {
	/* Used to query container engines for names. NULL: they are not queried. */
	struct loop *loop;
	/* The root below which /proc, /var, /run and /etc are read. NULL: "/". */
	const char *root;
	/* Directory of job_mapping.h, which is not relative to `root`. NULL or "" if there
	 * is none. */
	const char *hpc_job_mapping_dir;
	const struct clock *clock; /* NULL means the real clock. */
	/* Called once if the mapping directory is not on a local file system. Also called once
	 * each time the directory becomes unreadable. May be NULL. */
	void (*log)(void *arg, const char *sentence);
	void *arg;
};

/* Returns 0, -GW_E_NOMEM, or another error if root cannot be opened. The strings are copied. */
int workload_names_new(const struct workload_names_config *config, struct workload_names **ret);
void workload_names_free(struct workload_names *n); /* n may be NULL. */

/* Finds the workload of a process: its identity, and its names as far as they are known now.
 * Always fills *ret. Call it once for a new process, and again at each tick while
 * !workload_is_named(ret). Answers for 256 workloads are cached. An unknown name is looked up
 * again after 2 s, after 10 s and then every minute. */
void workload_names_resolve(struct workload_names *n, const struct gw_process *p,
			    struct workload *ret);

#endif
