#include "peer_process.h"

#include "device/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF_THE_KERNEL 0x00200000u /* PF_KTHREAD */

/* A thread of the kernel: the ninth field of stat, which stands behind a name that may hold anything. */
static bool of_the_kernel(const struct root *root, int64_t pid)
{
	char path[64], text[1024], *end;
	unsigned flags = 0;

	root_path(path, sizeof(path), "proc/%lld/stat", (long long)pid);
	if (root_read(root, path, text, sizeof(text)) < 0 || !(end = strrchr(text, ')')))
		return false;
	return sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & OF_THE_KERNEL);
}

/* Its number in its own namespace, where that is below ours; 0: it is in ours, or nothing is known. */
static int64_t number_inside(const struct root *root, int64_t pid)
{
	char path[64], text[4096], *p;
	long long inner = 0;
	unsigned n = 0;

	root_path(path, sizeof(path), "proc/%lld/status", (long long)pid);
	if (root_read(root, path, text, sizeof(text)) < 0 || !(p = strstr(text, "\nNSpid:")))
		return 0;
	p += strlen("\nNSpid:");
	for (char *end = p; *p && *p != '\n'; p = end, n++) {
		inner = strtoll(p, &end, 10);
		if (end == p)
			break;
	}
	return n > 1 ? inner : 0;
}

/* What the number of somebody in another namespace means here; 0: nobody can say. */
static int64_t number_here(const struct root *root, int64_t named, const struct guard_asker *by)
{
	int64_t inside;

	if (by->pid < 0)
		return named;
	if (by->pid == 0) /* above ours: the kernel has no number for it */
		return 0;
	inside = number_inside(root, by->pid);
	if (!inside)
		return named;
	return inside == named ? by->pid : 0;
}

int peer_process_process(const struct root *root, int64_t named, const struct guard_asker *by,
			 int64_t *ret_pid, uint64_t *ret_start_ticks, char *message,
			 size_t size)
{
	int64_t pid = number_here(root, named, by);

	if (!pid) {
		snprintf(message, size,
			 "process %lld is of another PID namespace, as in a container: from "
			 "there only the asker itself can be named",
			 (long long)named);
		return -GW_E_ARG;
	}
	if (proc_start_ticks(root, pid, ret_start_ticks) != 0) {
		snprintf(message, size,
			 "the service sees no process %lld: it has ended, or its number is of "
			 "another PID namespace, as in a container",
			 (long long)named);
		return -GW_E_ARG;
	}
	if (by->start_ticks && by->start_ticks != *ret_start_ticks) {
		snprintf(message, size,
			 "process %lld is another one where the service is, as for one in a "
			 "container: ask through the UNIX socket",
			 (long long)named);
		return -GW_E_ARG;
	}
	if (of_the_kernel(root, pid)) {
		snprintf(message, size,
			 "process %lld is a thread of the kernel: the number is of another PID "
			 "namespace, or wrong",
			 (long long)named);
		return -GW_E_ARG;
	}
	*ret_pid = pid;
	return 0;
}

int peer_process_game(const struct root *root, int64_t pid, const struct guard_asker *by,
		      char *message, size_t size)
{
	struct proc p;

	if (pid == 1) {
		snprintf(message, size,
			 "process 1 is the system itself and never ends: name the process of "
			 "the game");
		return -GW_E_ARG;
	}
	if (by->uid <= 0)
		return 0;
	if (proc_read(root, pid, &p) == 0 && p.uid == by->uid)
		return 0;
	snprintf(message, size,
		 "process %lld is not of uid %lld: only its own user, root or who has the "
		 "token can say that it plays",
		 (long long)pid, (long long)by->uid);
	return -GW_E_PERM;
}
