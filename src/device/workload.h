/* workload: what a process on a GPU belongs to: a pod, a job, a container, a unit or a session.
 *
 * workload.def lists the kinds, one row each. workload_from_cgroup() is pure: it knows only the
 * path of the control group, so a name may still be an id (of a pod, of a container).
 * workload_names.h of the service replaces ids by the names that people use. */
#ifndef GW_DEVICE_WORKLOAD_H
#define GW_DEVICE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>

enum workload_kind {
#define WORKLOAD(symbol, word, text) WORKLOAD_##symbol,
#include "workload.def"
#undef WORKLOAD
	WORKLOAD_KINDS
};

/* Two processes belong to the same workload if kind and id are equal. */
struct workload {
	enum workload_kind kind;
	char id[96]; /* pod UID, job id, container id, unit, user of a session; "" for NONE */
	char space[64]; /* namespace of a pod, user of a job or of a rootless container; "" */
	char name[254]; /* name of the pod, container or unit; job id; user of a session */
	char part
		[64]; /* container of a pod, step of a job; "": none. Not part of the identity */
};

/* Finds the workload from the path of a control group (the text after the last colon of
 * /proc/PID/cgroup). The innermost engine wins: a container that runs inside a job belongs to
 * the job, a pod's container to the pod. uid: owner of the process, for a session. Always fills
 * *ret; the kind is WORKLOAD_NONE if the path names nothing. */
void workload_from_cgroup(const char *cgroup, long uid, struct workload *ret);

/* Returns the word of a kind in JSON and metrics, such as "kubernetes". */
const char *workload_kind_word(enum workload_kind kind);

bool workload_equal(const struct workload *a, const struct workload *b);

#endif
