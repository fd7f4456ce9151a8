/* proc: who is that process.
 *
 * Identity is pid plus start time: a number alone may have been given to someone else.  All
 * is read from /proc below a root, with our own rights; what we may not see stays unknown. */
#ifndef GW_DEVICE_PROC_H
#define GW_DEVICE_PROC_H

#include "base/root.h"

#include <stdbool.h>
#include <stdint.h>

struct proc {
	int64_t pid;          /* thread group id: a thread's number is mapped to its process */
	int64_t parent;       /* 0 unknown                                                   */
	uint64_t start_ticks; /* clock ticks since boot; 0 unknown                           */
	int64_t uid;          /* effective; -1 unknown                                       */
	char state;           /* R S D Z T ...; 0 unknown                                    */
	bool kernel;          /* a thread of the kernel's                                    */
	uint64_t pid_ns;      /* inode of its pid namespace; 0 unknown                       */
	char name[64];        /* comm as it is, not cleaned; "" unknown                      */
	char exe[256];        /* "" unknown                                                  */
	char command[256];    /* arguments joined by blanks, cut; "" unknown                 */
	char cgroup[256];     /* path in the unified or else the longest named hierarchy     */
	char container[72];   /* id shortened to 12, or its name; "" when in none            */
	bool ended;           /* and is not reaped: it has nothing any more                  */
	bool torn; /* something could not be read that can be another time (too many open files) */
};

/* Reads what can be seen of pid (or of the process that thread pid belongs to).
 * 0, or -GW_E_NOENT when there is none. */
int proc_read(const struct root *root, int64_t pid, struct proc *ret);

/* Only the start time, for checking that a number still means the same process.
 * 0, -GW_E_NOENT or -GW_E_PARSE. */
int proc_start_ticks(const struct root *root, int64_t pid, uint64_t *ret);

/* Does the process that began then live?  1; 0: it ended, reaped or not, or the number is another's;
 * -GW_E_IO: it could not be read, which says nothing. */
int proc_lives(const struct root *root, int64_t pid, uint64_t start_ticks);

/* When a process with these start_ticks began, by the clock on the wall as it is set now (ns since 1970).
 * 0 or -GW_E_NOENT: it cannot be told. */
int proc_began_ns(const struct root *root, uint64_t start_ticks, uint64_t *ret);

/* Is pid of the tree below ancestor (or it itself)?  Follows at most 64 parents. */
bool proc_in_tree(const struct root *root, int64_t pid, int64_t ancestor);

/* The parents of pid, nearest first, at most cap; how many. */
unsigned proc_ancestors(const struct root *root, int64_t pid, int64_t *out, unsigned cap);

/* Is cgroup path `inner` the group `outer` or below it?  "/" holds everything. */
bool proc_in_cgroup(const char *inner, const char *outer);

/* Container id or name in a cgroup path (docker, podman, containerd, cri-o, lxc,
 * systemd-nspawn), shortened; "" when there is none. */
void proc_container_of(const char *cgroup, char *out, size_t size);

/* Login name of uid from etc/passwd below root, or its number.  NSS is not asked: it would load
 * libraries and may wait for a network. */
void proc_user(const struct root *root, int64_t uid, char *out, size_t size);

/* Are we in a child pid namespace (then processes outside it are invisible)?  1, 0, or
 * -GW_E_NOSUPPORT when it cannot be told. */
int proc_in_child_namespace(const struct root *root);

#endif
