#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *what, const char *path, char *error, size_t size)
{
	snprintf(error, size, "cannot %s '%s': %s", what, path, strerror(errno));
	return -1;
}

static bool is_special(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* The folder that a path lies in. */
static void folder_of(const char *path, char out[static PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(out, PATH_MAX, ".");
	else
		snprintf(out, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

int save_possible(const char *path, char *error, size_t size)
{
	char folder[PATH_MAX];
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return fail("write", path, error, size);
	}
	if (is_special(path))
		return 0;
	folder_of(path, folder);
	return access(folder, W_OK) == 0 ? 0 : fail("write", path, error, size);
}

static int write_all(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, text, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -1;
		text += done;
		n -= (size_t)done;
	}
	return 0;
}

static int write_special(const char *path, const char *text, size_t n, char *error, size_t size)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	int err = fd < 0 ? -1 : write_all(fd, text, n);

	if (err)
		fail("write", path, error, size);
	if (fd >= 0)
		close(fd);
	return err;
}

/* With the permissions that a new file of this user has. */
static void usual_mode(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	fchmod(fd, 0666 & ~mask);
}

int save_file(const char *path, const char *text, size_t n, char *error, size_t size)
{
	char name[PATH_MAX];
	int fd, err;

	if (is_special(path))
		return write_special(path, text, n, error, size);
	snprintf(name, sizeof(name), "%s.XXXXXX", path);
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return fail("write", path, error, size);
	usual_mode(fd);
	err = write_all(fd, text, n) != 0 || fsync(fd) != 0 ? fail("write", path, error, size)
							    : 0;
	if (close(fd) != 0 && !err)
		err = fail("write", path, error, size);
	if (!err && rename(name, path) != 0)
		err = fail("write", path, error, size);
	if (err)
		unlink(name);
	return err;
}

int save_print(const char *text, size_t n, char *error, size_t size)
{
	fflush(stdout);
	if (write_all(STDOUT_FILENO, text, n) == 0 || errno == EPIPE)
		return 0;
	snprintf(error, size, "cannot write the output: %s", strerror(errno));
	return -1;
}
