#include "pid_lookup.h"

#include "device/proc.h"

#include "base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* A part of the path: a folder above the file's folder, the file's folder, or the file. */
enum pidfile_part { PIDFILE_PASSED, PIDFILE_FOLDER, PIDFILE_ITSELF };

/* True if the file has an access control list. Then the group bits of its mode limit every user
 * and group in the list. */
static bool pidfile_has_acl(int fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fd may be O_PATH */
	return getxattr(path, "system.posix_acl_access", NULL, 0) > 0;
}

/* Checks the file, or one folder of its path. Returns NULL, or what is wrong. *owner: the user
 * who owns a part of the path and is neither root nor the user of the calling process; -1: none
 * so far. If there are two such users, the file is not trusted. Other users may write a sticky
 * folder, because there they cannot replace the next part of the path. */
static const char *pidfile_fault(int fd, const struct stat *st, enum pidfile_part part,
				 int64_t *owner)
{
	const bool group =
		st->st_mode & S_IWGRP &&
		(pidfile_has_acl(fd) || (st->st_gid != 0 && st->st_gid != getegid()));

	if (part == PIDFILE_ITSELF && !S_ISREG(st->st_mode))
		return "it is not a regular file";
	if ((group || st->st_mode & S_IWOTH) &&
	    !(part == PIDFILE_PASSED && st->st_mode & S_ISVTX))
		return part == PIDFILE_ITSELF ? "other users can write it"
					      : "other users can write its folder";
	if (st->st_uid == 0 || st->st_uid == geteuid())
		return NULL;
	if (*owner >= 0 && *owner != st->st_uid)
		return "the file and its folders belong to several users";
	*owner = st->st_uid;
	return NULL;
}

/* Opens the file without following links. Returns a descriptor, or -1 with errno or *fault. */
static int pidfile_open(const struct root *root, const char *path, struct stat *ret_st,
			int64_t *owner, const char **fault)
{
	enum pidfile_part part = PIDFILE_PASSED;
	int dir = root->fd, fd = -1;

	for (; part != PIDFILE_ITSELF; dir = fd) {
		const size_t n = strcspn(path += strspn(path, "/"), "/");
		char name[NAME_MAX + 1] = "";

		part = path[n] ? PIDFILE_PASSED : PIDFILE_FOLDER;
		if (fstat(dir, ret_st) == 0)
			*fault = pidfile_fault(dir, ret_st, part, owner);
		strncat(name, path, n <= NAME_MAX ? n : 0);
		path += n;
		fd = *fault ? -1
			    : openat(dir, name,
				     O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
					     (*path ? O_PATH | O_DIRECTORY : O_RDONLY));
		if (!*fault && fd < 0 && (errno == ELOOP || errno == ENOTDIR))
			*fault = "a part of its path is a symbolic link, or is not a folder";
		if (dir != root->fd)
			close(dir);
		if (fd < 0)
			return -1;
		if (part == PIDFILE_FOLDER)
			part = PIDFILE_ITSELF;
	}
	if (fstat(fd, ret_st) == 0)
		*fault = pidfile_fault(fd, ret_st, PIDFILE_ITSELF, owner);
	return fd;
}

static int pidfile_parse(int fd, int64_t *ret)
{
	char text[64], *end;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return -GW_E_IO;
	text[n] = '\0';
	*ret = strtoll(text, &end, 10);
	return end == text || *ret <= 0 || end + strspn(end, " \t\r\n") != text + n
		       ? -GW_E_PARSE
		       : 0;
}

int pidfile_read(const struct root *root, const char *path, struct pidfile *ret)
{
	static const char var[] = "/var/run/";
	int64_t owner = -1;
	struct proc p;
	struct stat st;
	int fd, err;

	*ret = (struct pidfile){ 0 };
	if (strncmp(path, var, strlen(var)) == 0)
		path += strlen("/var");
	fd = pidfile_open(root, path, &st, &owner, &ret->fault);
	if (fd < 0)
		return ret->fault ? -GW_E_STATE : errno == ENOENT ? -GW_E_NOENT : -GW_E_IO;
	err = ret->fault ? -GW_E_STATE : pidfile_parse(fd, &ret->pid);
	ret->written = st.st_mtim;
	if (!err && owner >= 0) {
		err = proc_read(root, ret->pid, &p);
		if (!err && p.uid != owner) {
			ret->fault =
				"it belongs neither to root, nor to the user of gpuward, nor "
				"to the owner of the process that it names";
			err = -GW_E_STATE;
		}
	}
	close(fd);
	return err;
}

#define TCP_LISTEN_STATE 0x0A

bool listening_socket_parse(const char *line, struct listening_socket *ret)
{
	unsigned state;

	return sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %u %*u %llu", &ret->port,
		      &state, &ret->uid, &ret->inode) == 4 &&
	       state == TCP_LISTEN_STATE && ret->inode != 0;
}

static int read_table(const struct root *root, const char *path, unsigned port,
		      struct port_owners *ret)
{
	struct listening_socket at;
	struct lines l;
	char *line;
	int err = lines_open(&l, root, path);

	if (err)
		return err;
	while (ret->count < PORT_OWNER_SOCKETS && (line = lines_next(&l))) {
		if (!listening_socket_parse(line, &at) || at.port != port)
			continue;
		ret->inode[ret->count++] = at.inode;
		ret->uid = at.uid;
	}
	lines_close(&l);
	return 0;
}

int port_owner_read(const struct root *root, unsigned port, struct port_owners *ret)
{
	static const char *const tables[] = { "proc/net/tcp", "proc/net/tcp6" };

	for (size_t i = 0; i < COUNT(tables); i++)
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

struct file_search { /* a search in the open files of one process */
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

/* maximum number of processes that are found per port */
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
