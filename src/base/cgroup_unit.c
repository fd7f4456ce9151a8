#include "cgroup_unit.h"

#include <stdio.h>
#include <string.h>

static bool part_ends_in(const char *part, size_t n, const char *suffix)
{
	size_t m = strlen(suffix);

	return n > m && memcmp(part + n - m, suffix, m) == 0;
}

bool cgroup_unit_find(const char *cgroup, struct cgroup_unit *ret)
{
	*ret = (struct cgroup_unit){ .name = NULL };
	for (size_t n; *cgroup; cgroup += n + (cgroup[n] == '/')) {
		n = strcspn(cgroup, "/");
		if (!part_ends_in(cgroup, n, ".service") && !part_ends_in(cgroup, n, ".scope"))
			continue;
		ret->name = cgroup;
		ret->end = cgroup + n;
		if (ret->manager_end || strncmp(cgroup, "user@", 5) != 0)
			return true;
		ret->manager_end = ret->end;
	}
	return ret->name;
}

bool cgroup_unit_service(const struct cgroup_unit *u, char *out, size_t size)
{
	const size_t n = (size_t)(u->end - u->name);

	*out = '\0';
	if (part_ends_in(u->name, n, ".service") && strncmp(u->name, "user@", 5) != 0)
		snprintf(out, size, "%.*s", (int)n, u->name);
	return *out;
}
