#include "peer_process.h"

#include "device/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the pid that the process has in its own pid namespace. Returns 0 if the process is in
 * our pid namespace, or if its namespace is unknown. */
static int64_t inner_pid(const struct root *root, int64_t pid)
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

/* Converts the pid `named`, which a client sent, to our pid namespace. Returns 0 if this is not
 * possible. */
static int64_t outer_pid(const struct root *root, int64_t named, const struct guard_client *by)
{
	int64_t inside;

	if (by->pid < 0)
		return named;
	/* The client is in a parent namespace, so the kernel shows us no pid for the client. */
	if (by->pid == 0)
		return 0;
	inside = inner_pid(root, by->pid);
	if (!inside)
		return named;
	return inside == named ? by->pid : 0;
}

int peer_process_find(const struct root *root, int64_t named, const struct guard_client *by,
		      int64_t *ret_pid, uint64_t *ret_start_ticks, char *message, size_t size)
{
	int64_t pid = outer_pid(root, named, by);
	struct proc p;

	if (!pid) {
		snprintf(message, size,
			 "the pid %lld cannot be translated: the client is in another PID "
			 "namespace, such as a container; from there it can only send its own "
			 "pid",
			 (long long)named);
		return -GW_E_ARG;
	}
	if (proc_start_ticks(root, pid, ret_start_ticks) != 0) {
		snprintf(message, size,
			 "the service sees no process %lld: it has exited, or the pid belongs "
			 "to another PID namespace, such as a container",
			 (long long)named);
		return -GW_E_ARG;
	}
	if (by->start_ticks && by->start_ticks != *ret_start_ticks) {
		snprintf(message, size,
			 "process %lld is a different process for the service than for the "
			 "client, as happens in a container: use the UNIX socket",
			 (long long)named);
		return -GW_E_ARG;
	}
	if (pid == 1 || pid == getpid()) {
		snprintf(message, size,
			 "process %lld is %s: use the pid of the game or of the program that "
			 "needs the memory",
			 (long long)named,
			 pid == 1 ? "init, which never exits" : "gpuward itself");
		return -GW_E_ARG;
	}
	if (proc_read(root, pid, &p) == 0 && p.kernel) {
		snprintf(message, size,
			 "process %lld is a kernel thread: the pid is wrong or belongs to "
			 "another PID namespace",
			 (long long)named);
		return -GW_E_ARG;
	}
	*ret_pid = pid;
	return 0;
}

int peer_process_open(struct proc_id id, int *ret_fd)
{
	struct root root;
	int err = root_open(&root, NULL);

	*ret_fd = -1;
	if (err)
		return err;
	err = proc_open(&root, id, ret_fd);
	root_close(&root);
	return err;
}

int peer_process_user(struct proc_id id, int64_t *ret_uid)
{
	struct root root;
	struct proc p;
	int err = root_open(&root, NULL);

	if (err)
		return err;
	err = proc_read(&root, id.pid, &p);
	root_close(&root);
	if (err || p.start_ticks != id.start_ticks || p.uid < 0)
		return -GW_E_NOENT;
	*ret_uid = p.uid;
	return 0;
}

int peer_process_game(const struct root *root, int64_t pid, const struct guard_client *by,
		      char *message, size_t size)
{
	struct proc p;

	if (by->uid <= 0)
		return 0;
	if (proc_read(root, pid, &p) == 0 && p.uid == by->uid)
		return 0;
	snprintf(message, size,
		 "process %lld does not belong to uid %lld: only its own user, root or a "
		 "client with the token can register it as a game",
		 (long long)pid, (long long)by->uid);
	return -GW_E_PERM;
}
