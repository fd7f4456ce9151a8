#include "guard/worker/host_memory.h"

#include "device/proc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Free host memory that a checkpoint needs, per byte of GPU memory. */
#define HOST_RATIO 1.1

enum host_pages host_memory_pages(const struct root *root)
{
	char text[128], mode[32];

	/* for example "always [madvise] never": the brackets mark the current mode */
	if (root_read(root, "sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)) <
	    0)
		return HOST_PAGES_UNKNOWN;
	for (unsigned p = HOST_PAGES_ALWAYS; p < HOST_PAGES_MODES; p++) {
		root_path(mode, sizeof(mode), "[%s]", host_pages_name(p));
		if (strstr(text, mode))
			return p;
	}
	return HOST_PAGES_UNKNOWN;
}

double host_memory_need(uint64_t gpu_bytes)
{
	return (double)gpu_bytes * HOST_RATIO;
}

/* Returns the number after key in a file; UINT64_MAX if there is none. */
static uint64_t read_number(const struct root *root, const char *path, const char *key)
{
	char text[4096], *found;

	if (root_read(root, path, text, sizeof(text)) < 0)
		return UINT64_MAX;
	found = strstr(text, key);
	found = found ? found + strlen(key) : NULL;
	return found && strspn(found, " \t0123456789") > 0 && strpbrk(found, "0123456789")
		       ? strtoull(found, NULL, 10)
		       : UINT64_MAX;
}

static uint64_t cgroup_number(const struct root *root, const char *cgroup, const char *file,
			      const char *key)
{
	char path[320];

	return read_number(
		root, root_path(path, sizeof(path), "sys/fs/cgroup%s/%s", cgroup, file), key);
}

/* Returns the limit of one control group minus the memory that the group uses. File cache does
 * not count as used, because the kernel drops it on demand. */
static uint64_t cgroup_free(const struct root *root, const char *cgroup)
{
	uint64_t max = cgroup_number(root, cgroup, "memory.max", "");
	uint64_t now = cgroup_number(root, cgroup, "memory.current", "");
	uint64_t files = cgroup_number(root, cgroup, "memory.stat", "\nfile ");

	if (max == UINT64_MAX || now == UINT64_MAX)
		return UINT64_MAX;
	if (files != UINT64_MAX)
		now -= files < now ? files : now;
	return max > now ? max - now : 0;
}

/* Returns the least free memory of the process's control group and its parents. A checkpoint
 * counts as memory of the process. */
static uint64_t process_memory_free(const struct root *root, int64_t pid)
{
	uint64_t least = UINT64_MAX;
	struct proc p;

	if (proc_read(root, pid, &p) < 0)
		return least;
	while (p.cgroup[0] == '/' && p.cgroup[1]) {
		uint64_t one = cgroup_free(root, p.cgroup);

		if (one < least)
			least = one;
		*strrchr(p.cgroup, '/') = '\0';
	}
	return least;
}

double host_memory_free(const struct root *root, const struct proc_id *id, unsigned n)
{
	uint64_t host_kib = read_number(root, "proc/meminfo", "MemAvailable:");
	double least = host_kib == UINT64_MAX ? (double)NAN : (double)host_kib * 1024;

	for (unsigned i = 0; i < n; i++) {
		uint64_t one = process_memory_free(root, id[i].pid);

		if (one != UINT64_MAX && (double)one < least)
			least = (double)one;
	}
	return least;
}
