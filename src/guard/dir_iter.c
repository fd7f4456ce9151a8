/* getdents64() into the stack. */
#include "dir_iter.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t dir_iter_number(const char *name)
{
	char *end;
	long long v;

	if (*name < '1' || *name > '9')
		return 0;
	errno = 0;
	v = strtoll(name, &end, 10);
	return *end || errno ? 0 : v;
}

static bool hand_over(const char *buf, ssize_t n, bool (*fn)(void *, const char *), void *arg)
{
	for (ssize_t at = 0; at < n;) {
		const struct dirent64 *e = (const void *)(buf + at);

		at += e->d_reclen;
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    !fn(arg, e->d_name))
			return false;
	}
	return true;
}

int walk(const struct root *root, const char *path, bool (*fn)(void *arg, const char *name),
	 void *arg)
{
	_Alignas(struct dirent64) char buf[8192];
	int fd = openat(root->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -GW_E_NOENT
		       : errno == EACCES || errno == EPERM ? -GW_E_PERM
							   : -GW_E_IO;
	do
		n = getdents64(fd, buf, sizeof(buf));
	while (n > 0 && hand_over(buf, n, fn, arg));
	close(fd);
	return n < 0 ? -GW_E_IO : 0;
}
