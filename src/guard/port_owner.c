#include "port_owner.h"

#include "device/proc.h"

#include <gpuward.h>

#include <stdio.h>
#include <string.h>

#define TCP_LISTEN_STATE 0x0A

static int read_table(const struct root *root, const char *path, unsigned port,
		      struct port_owners *ret)
{
	struct lines l;
	char *line;
	int err = lines_open(&l, root, path);

	if (err)
		return err;
	while (ret->count < PORT_OWNER_SOCKETS && (line = lines_next(&l))) {
		unsigned at, state, uid;
		unsigned long long n;

		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %u %*u %llu", &at,
			   &state, &uid, &n) != 4 ||
		    at != port || state != TCP_LISTEN_STATE || n == 0)
			continue;
		ret->inode[ret->count++] = n;
		ret->uid = uid;
	}
	lines_close(&l);
	return 0;
}

int port_owner_read(const struct root *root, unsigned port, struct port_owners *ret)
{
	static const char *const tables[] = { "proc/net/tcp", "proc/net/tcp6" };

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		if (read_table(root, tables[i], port, ret) == -GW_E_IO)
			return -GW_E_IO;
	return 0;
}

static bool is_one_of(const struct port_owners *at, const char *link)
{
	unsigned long long n;

	if (sscanf(link, "socket:[%llu]", &n) != 1)
		return false;
	for (unsigned i = 0; i < at->count; i++)
		if (at->inode[i] == n)
			return true;
	return false;
}

bool port_owner_known(const struct root *root, const struct port_owners *at, const char *file)
{
	char link[64];

	return root_readlink(root, file, link, sizeof(link)) > 0 && is_one_of(at, link);
}

struct file_search { /* search in the files of one process */
	const struct root *root;
	const struct port_owners *at;
	int64_t pid;
	char *file; /* path of the last file that was read */
	unsigned count;
	bool found;
};

static bool check_file(void *arg, const char *name)
{
	struct file_search *f = arg;

	root_path(f->file, PORT_OWNER_FILE, "proc/%lld/fd/%.16s", (long long)f->pid, name);
	f->found = port_owner_known(f->root, f->at, f->file);
	return !f->found && ++f->count < PORT_OWNER_FILES;
}

int port_owner_file(const struct root *root, const struct port_owners *at, int64_t pid,
		    char ret_file[static PORT_OWNER_FILE])
{
	struct file_search f = { .root = root, .at = at, .pid = pid, .file = ret_file };
	char path[64];
	int err;

	root_path(path, sizeof(path), "proc/%lld/fd", (long long)pid);
	err = root_each_name(root, path, check_file, &f);
	return err ? err : f.found;
}

bool port_owner_is(const struct root *root, unsigned port, int64_t pid)
{
	struct port_owners at = { 0 };
	char file[PORT_OWNER_FILE];

	return port_owner_read(root, port, &at) == 0 && at.count &&
	       port_owner_file(root, &at, pid, file) > 0;
}

/* maximum number of processes with the socket; a server may have many processes */
#define HOLDERS 64

struct holder_search {
	const struct root *root;
	struct port_owners at;
	int64_t self, pid[HOLDERS];
	unsigned count;
};

static bool add_holder(void *arg, const char *name)
{
	struct holder_search *h = arg;
	int64_t pid = root_name_number(name);
	char file[PORT_OWNER_FILE];
	struct proc p;

	if (pid && port_owner_file(h->root, &h->at, pid, file) > 0 &&
	    !proc_in_tree(h->root, h->self, pid) && proc_read(h->root, pid, &p) == 0 &&
	    strcmp(p.name, "systemd") != 0)
		h->pid[h->count++] = pid;
	return h->count < HOLDERS;
}

static bool has_ancestor(const struct holder_search *h, unsigned i)
{
	for (unsigned k = 0; k < h->count; k++)
		if (k != i && proc_in_tree(h->root, h->pid[i], h->pid[k]))
			return true;
	return false;
}

unsigned port_owner_servers(const struct root *root, unsigned port, int64_t self,
			    int64_t *ret_pid, unsigned cap)
{
	struct holder_search h = { .root = root, .self = self };
	unsigned n = 0;

	if (port_owner_read(root, port, &h.at) != 0 || h.at.count == 0)
		return 0;
	(void)root_each_name(root, "proc", add_holder, &h);
	for (unsigned i = 0; i < h.count && n < cap; i++)
		if (!has_ancestor(&h, i))
			ret_pid[n++] = h.pid[i];
	return n;
}
