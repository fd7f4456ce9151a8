#include "file.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

int file_failed(char *message, size_t size, const char *path, const char *what)
{
	int e = errno;

	snprintf(message, size, "%s cannot be %s: %s", path, what, strerror(e));
	if (e == ENOENT)
		return -GW_E_NOENT;
	return e == EACCES || e == EPERM || e == EROFS ? -GW_E_PERM : -GW_E_IO;
}

int file_make_directory(const char *dir, char *message, size_t size)
{
	char path[PATH_BYTES];
	int n = snprintf(path, sizeof(path), "%s", dir);

	if (n <= 0 || n >= (int)sizeof(path)) {
		snprintf(message, size, "the path of a folder is empty or too long");
		return -GW_E_SIZE;
	}
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) != 0 && errno != EEXIST)
			return file_failed(message, size, path, "made");
		*p = c;
		if (c == '\0')
			return 0;
	}
}

int file_write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -1;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/* A new name that holds after a crash, too. */
static void sync_directory_of(const char *path)
{
	char dir[PATH_BYTES];
	char *slash;
	int fd;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

int file_replace(const char *path, const char *text, size_t n, char *message, size_t size)
{
	char temp[PATH_BYTES], real[PATH_BYTES];
	int fd, err;

	if (realpath(path, real)) /* the target of a link is replaced, not the link */
		path = real;
	if (snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= (int)sizeof(temp)) {
		snprintf(message, size, "the path of a file is too long");
		return -GW_E_SIZE;
	}
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return file_failed(message, size, path, "written");
	err = fchmod(fd, 0644) != 0 || file_write_all(fd, text, n) != 0 || fsync(fd) != 0;
	if (err)
		err = file_failed(message, size, path, "written");
	if (close(fd) != 0 && !err)
		err = file_failed(message, size, path, "written");
	if (!err && rename(temp, path) != 0)
		err = file_failed(message, size, path, "written");
	if (err) {
		unlink(temp);
		return err;
	}
	sync_directory_of(path);
	return 0;
}

ssize_t file_read(const char *path, char *out, size_t size, char *message, size_t message_size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t used = 0;
	ssize_t n = 1;

	if (fd < 0)
		return file_failed(message, message_size, path, "read");
	while (used < size && n > 0) {
		n = read(fd, out + used, size - used);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			used += (size_t)n;
	}
	if (n < 0)
		n = file_failed(message, message_size, path, "read");
	close(fd);
	return n < 0 ? n : (ssize_t)used;
}

int file_cache_directory(const char *name, char *out, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;

	if (cache && *cache == '/')
		n = snprintf(out, size, "%s/gpuward/%s", cache, name);
	else if (home && *home == '/')
		n = snprintf(out, size, "%s/.cache/gpuward/%s", home, name);
	else
		return -GW_E_NOENT;
	return n < (int)size ? 0 : -GW_E_SIZE;
}
