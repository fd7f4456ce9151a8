#include "guard_lock.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM "/run/gpuward"

/* Makes the file name. The UUID comes from a driver, so characters that could lead out of the
 * directory are replaced. */
static void lock_name(const char *uuid, char *out, size_t size)
{
	snprintf(out, size, "gpuward-guard-%s.lock", uuid);
	for (char *p = out; *p; p++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.",
			    *p))
			*p = '_';
}

/* Writes the i-th directory to try. Returns false after the last one. */
static bool lock_directory(unsigned i, char *out, size_t size)
{
	/* set by systemd; may contain several directories */
	const char *given = getenv("RUNTIME_DIRECTORY");

	switch (i) {
	case 0:
		if (given && *given == '/')
			snprintf(out, size, "%.*s", (int)strcspn(given, ":"), given);
		else
			snprintf(out, size, SYSTEM);
		return true;
	case 1: snprintf(out, size, "/run/user/%u", (unsigned)geteuid()); break;
	case 2: snprintf(out, size, "/tmp"); break;
	default: return false;
	}
	return geteuid() != 0; /* root does not use directories that every user can write */
}

/* Opens a lock file that belongs to this user. EACCES in the first directory means that the
 * file belongs to another user. */
static int open_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
			(st.st_uid != geteuid() && geteuid() != 0))) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return fd;
}

static int64_t lock_holder(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return strtoll(text, NULL, 10);
}

static int lock_file(int fd, const char *path, int64_t *ret_pid, char *message, size_t size)
{
	int err;

	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		if (ftruncate(fd, 0) == 0)
			dprintf(fd, "%ld\n", (long)getpid());
		return 0;
	}
	err = errno == EWOULDBLOCK ? -GW_E_STATE : -GW_E_PERM;
	*ret_pid = lock_holder(fd);
	snprintf(message, size, "%s: %s", path, err == -GW_E_STATE ? "held" : strerror(errno));
	return err;
}

int guard_lock_take(const char *uuid, int *ret_fd, int64_t *ret_pid, char *message, size_t size)
{
	char where[PATH_MAX], path[PATH_MAX + 160], name[128];

	*ret_pid = 0;
	snprintf(message, size, "no directory for lock files");
	lock_name(uuid, name, sizeof(name));
	for (unsigned i = 0; lock_directory(i, where, sizeof(where)); i++) {
		int fd, err;

		if (i == 0)
			(void)mkdir(where, 0755);
		snprintf(path, sizeof(path), "%s/%s", where, name);
		fd = open_file(path);
		if (fd < 0) {
			bool there = i == 0 && errno == EACCES && access(path, F_OK) == 0;

			snprintf(message, size, "%s: %s", path, strerror(errno));
			if (there)
				return -GW_E_STATE;
			continue;
		}
		err = lock_file(fd, path, ret_pid, message, size);
		if (err)
			close(fd);
		else
			*ret_fd = fd;
		return err;
	}
	return -GW_E_PERM;
}
