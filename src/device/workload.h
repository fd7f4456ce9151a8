/* workload: finds what a process on a GPU belongs to: a pod, a job, a container, a unit or a
 * session.
 *
 * workload.def lists the kinds, one row each. workload_from_cgroup() is pure: it knows only the
 * path of the control group. So a name may still be the id of a pod, a container or a user;
 * workload_names.h in the service replaces it by the name that people use. */
#ifndef GW_DEVICE_WORKLOAD_H
#define GW_DEVICE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>

enum workload_kind {
	WORKLOAD_NONE,
#define WORKLOAD(symbol, word, name) WORKLOAD_##symbol,
#include "workload.def"
#undef WORKLOAD
	WORKLOAD_KINDS
};

/* Two processes belong to the same workload if kind and id are equal. */
struct workload {
	enum workload_kind kind;
	/* The UID of a pod, the id of a job or container, the name of a unit, or the user id of
	 * a session; "" for WORKLOAD_NONE. The id of a user's own workload begins with the user
	 * id, as in "1000/train.service", so that a user cannot choose the id of another
	 * workload. */
	char id[96];
	/* The namespace of a pod, or the user of a job, rootless container or unit. "":
	 * none. */
	char space[64];
	/* The name of the pod, container or unit, the id of the job, or the user of the
	 * session. */
	char name[254];
	/* The container of a pod (its id until the name is known), or the step of a job. "":
	 * none. Two workloads with different parts can be the same workload. */
	char part[72];
};

/* Finds the workload from the path of a control group (the text after the second colon of
 * /proc/PID/cgroup). uid is the owner of the process (-1: unknown); it is stored as the user of
 * a job. Always fills *ret; the kind is WORKLOAD_NONE if the path names no workload.
 *
 * The path is read from the root, and the first group of a known kind decides: a container that
 * runs inside a job belongs to the job, and groups below a pod or a job are ignored. The owner
 * of a group can create groups with any name below it. Pods and jobs are therefore recognised
 * only where the kubelet and slurmd create them: below the root or slices of the system, below
 * the service of a container runtime, or inside a container that is itself in one of these
 * places (a node of a cluster can be a container). Below user@UID.service only containers and
 * units of that user are recognised. A leading ".." means that our own control group namespace
 * hides the groups above. */
void workload_from_cgroup(const char *cgroup, long uid, struct workload *ret);

#define WORKLOAD_ID_DIGITS 64 /* hexadecimal digits of a container id */
#define WORKLOAD_ID_SHOWN  12 /* digits to which such an id is shortened */

/* True if the name is one that people use; false while it is the id of a pod or container, or
 * the number of a user. */
bool workload_is_named(const struct workload *w);

/* Returns the word of a kind in JSON and metrics, such as "kubernetes". */
const char *workload_kind_word(enum workload_kind kind);

bool workload_equal(const struct workload *a, const struct workload *b);

/* The systemd unit (service or scope) that owns a cgroup. The pointers point into the path. */
struct cgroup_unit {
	const char *name, *end;
	const char *manager_end; /* end of user@UID.service; NULL: the path does not have it */
};

/* Finds the outermost unit in a cgroup path. Names below a unit are ignored, because the owner
 * of the unit may create cgroups with any name there. The exception is the service manager of a
 * user (user@UID.service): the cgroups below its service are units. Returns false if there is
 * no unit. */
bool cgroup_unit_find(const char *cgroup, struct cgroup_unit *ret);

/* Writes the name of the unit if it is a service, and not the manager of a user; otherwise
 * writes "" and returns false. */
bool cgroup_unit_service(const struct cgroup_unit *u, char *out, size_t size);

/* Writes the id or the name of the innermost container in a cgroup path (docker, podman,
 * containerd, cri-o, lxc, systemd-nspawn), shortened; "" if there is no container. A process
 * that only monitors a container (conmon) is not inside the container. */
void cgroup_container_name(const char *cgroup, char *out, size_t size);

/* Writes the name of the systemd unit in a cgroup path, as it is in the path. Inside a
 * container, this is the unit of the container's own service manager. "": no unit. */
void cgroup_unit_name(const char *cgroup, char *out, size_t size);

/* True if the unit belongs to the manager of a user. */
static inline bool cgroup_unit_is_of_user(const struct cgroup_unit *u)
{
	return u->manager_end && u->name > u->manager_end;
}

#endif
