/* cgroup_unit: finds the systemd unit that owns a control group (cgroup), by the path of the
 * cgroup.
 *
 * The guard, `gpuward setup` and the process list all call this module, so that they find the
 * same unit. Pure, so that the guard can use it for its decisions. */
#ifndef GW_BASE_CGROUP_UNIT_H
#define GW_BASE_CGROUP_UNIT_H

#include <stdbool.h>
#include <stddef.h>

/* The systemd unit (service or scope) that owns a cgroup. The pointers are into the path. */
struct cgroup_unit {
	const char *name, *end;
	const char *manager_end; /* end of user@UID.service; NULL: not in the path */
};

/* Finds the outermost unit in a cgroup path. Names below a unit are ignored, because the owner
 * of the unit may create cgroups with any name there. The exception is the service manager of a
 * user (user@UID.service): the cgroups below its service are units. Returns false if there is
 * no unit. */
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
