/* cgroup_unit: which systemd unit owns a control group, from the path of the group.
 *
 * The only place that decides this: the guard, setup and the process list must agree.  Pure, so
 * that the guard can use it for its decisions. */
#ifndef GW_BASE_CGROUP_UNIT_H
#define GW_BASE_CGROUP_UNIT_H

#include <stdbool.h>
#include <stddef.h>

/* The systemd unit (service or scope) that owns a cgroup. The pointers are into the path. */
struct cgroup_unit {
	const char *name, *end;
	const char *manager_end; /* end of user@UID.service; NULL: not below such a manager */
};

/* Finds the outermost unit in a cgroup path. The owner of a unit may create groups with any
 * name below it, so these are not units. Only the service manager of a user (user@...) has units
 * below its own service. Returns false if there is no unit. */
bool cgroup_unit_find(const char *cgroup, struct cgroup_unit *ret);

/* Writes the name of the unit if it is a service, and not the manager of a user; otherwise writes
 * "" and returns false. */
bool cgroup_unit_service(const struct cgroup_unit *u, char *out, size_t size);

/* True if the unit belongs to the manager of a user. */
static inline bool cgroup_unit_is_of_user(const struct cgroup_unit *u)
{
	return u->manager_end && u->name > u->manager_end;
}

#endif
