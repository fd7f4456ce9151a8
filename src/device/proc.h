/* proc: reads the properties of a process.
 *
 * A process is identified by pid and start time, because a pid can be reused. Everything is
 * read from /proc below a root, with our own permissions; values that we are not allowed to
 * read stay unknown. */
#ifndef GW_DEVICE_PROC_H
#define GW_DEVICE_PROC_H

#include "base/proc_id.h"
#include "base/root.h"

#include <stdbool.h>
#include <stdint.h>

struct proc {
	int64_t pid;    /* process id, also if proc_read() was called with the id of a thread */
	int64_t parent; /* process id of the parent; 0: unknown */
	uint64_t start_ticks; /* start time in clock ticks since boot; 0: unknown */
	uint64_t cpu_ns;      /* CPU time of all its threads so far */
	int64_t uid;          /* effective user id; -1: unknown */
	char state;           /* R, S, D, Z, T, ... as in proc(5); 0: unknown */
	bool kernel;          /* The process is a kernel thread. */
	char name[64];        /* the file comm, not cleaned for printing; "": unknown */
	char exe[256];        /* path of the program; "": unknown */
	char command[256];    /* command line, cut if it is too long; "": unknown */
	/* Path of the control group. A process can have one path per hierarchy. This is the
	 * path of a Slurm job if there is one. Otherwise it is the path in the unified
	 * hierarchy or, if that path is "/" or missing, the longest path. A path that does not
	 * fit is cut; a pod inside a container has a path of 400 bytes. */
	char cgroup[512];
	/* First 12 digits of the id of the container, or its name. "": no container. */
	char container[72];
	/* The process has ended, but its parent has not reaped it. It holds no resources. */
	bool ended;
	bool incomplete; /* A read failed that may succeed later (too many open files). */
};

/* Reads what we may see of pid, or of the process to which thread pid belongs. Returns 0 or
 * -GW_E_NOENT. */
int proc_read(const struct root *root, int64_t pid, struct proc *ret);

/* Reads only the start time, to check that a pid still means the same process. Returns 0,
 * -GW_E_NOENT or -GW_E_PARSE. */
int proc_start_ticks(const struct root *root, int64_t pid, uint64_t *ret);

/* Opens a pidfd of the process with this identity. Returns 0, or -GW_E_NOENT if the process has
 * ended. The start time is read after the pidfd was opened, because from then on the pid cannot
 * be reused. If no pidfd can be opened, *ret_fd is a negative errno, even if 0 is returned. */
int proc_open(const struct root *root, struct proc_id id, int *ret_fd);

/* Checks whether the process with this start time runs. Returns 1 if it runs. Returns 0 if it
 * has ended, even if it is not reaped yet, or if another process has the pid. Returns -GW_E_IO
 * if this is unknown, because the read failed. */
int proc_lives(const struct root *root, int64_t pid, uint64_t start_ticks);

/* Computes the start time in ns since 1970, by the current setting of the wall clock. Returns
 * 0, or -GW_E_NOENT if unknown. */
int proc_began_ns(const struct root *root, uint64_t start_ticks, uint64_t *ret);

/* True if pid is the process `ancestor` or one of its descendants. Follows at most 64
 * parents. */
bool proc_in_tree(const struct root *root, int64_t pid, int64_t ancestor);

/* Fills in the ancestors of pid, nearest first, at most cap. Returns their number. */
unsigned proc_ancestors(const struct root *root, int64_t pid, int64_t *out, unsigned cap);

/* True if the cgroup path `inner` is equal to `outer` or below it. "/" contains everything. */
bool proc_in_cgroup(const char *inner, const char *outer);

/* Writes the login name of uid from etc/passwd below root, or its number. NSS is not used: it
 * would load libraries and may wait for a network. */
void proc_user(const struct root *root, int64_t uid, char *out, size_t size);

/* Checks whether we are in a child pid namespace, which hides the processes outside. Returns 1
 * if we are, 0 if not, -GW_E_NOSUPPORT if unknown. */
int proc_in_child_namespace(const struct root *root);

#endif
