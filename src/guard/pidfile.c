#include "pidfile.h"

#include "device/proc.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum pidfile_part { PIDFILE_PASSED, PIDFILE_FOLDER, PIDFILE_ITSELF };

/* True if the file has an access control list. Then the group bits of its mode limit every user
 * and group in the list. */
static bool pidfile_has_acl(int fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fd may be O_PATH */
	return getxattr(path, "system.posix_acl_access", NULL, 0) > 0;
}

/* Checks one folder of the path, or the file. Returns NULL, or what is wrong. *owner: the user
 * who owns a part of the path and is neither root nor the user of this process; -1: none so
 * far. If there are two such users, the file is not trusted. In a sticky folder others can
 * create files, but cannot replace the next folder of the path. */
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
			*fault = "its path has a link";
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
