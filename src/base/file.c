#include "file.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PATH_BYTES   4096
#define FIFO_STEP_MS 20
/* rename_or_swap() gives up if other programs create and remove the file this often. */
#define SWAP_TRIES 100

/* file_changed_by() returns the uid of one user, or one of these two values. */
#define FILE_NOBODY  (-1)
#define FILE_ANYBODY (-2)

const char *file_strerror(int e)
{
	switch (e) {
	case ETIMEDOUT: return "no program writes to this pipe";
	case EPIPE: return "no program reads this FIFO; start its reader first";
	default: return strerror(e);
	}
}

int file_error(int e)
{
	switch (e) {
	case ENOENT:
	case ENOTDIR:
	case ESRCH: return -GW_E_NOENT;
	case EACCES:
	case EPERM:
	case EROFS: return -GW_E_PERM;
	case ENOMEM: return -GW_E_NOMEM;
	default: return -GW_E_IO;
	}
}

int file_failed(char *message, size_t size, const char *path, const char *what)
{
	int e = errno;

	snprintf(message, size, "%s cannot be %s: %s", path, what, file_strerror(e));
	/* ENOTDIR: a part of the path is not a folder. The path is wrong; the file is not just
	 * missing. */
	return e == ENOTDIR ? -GW_E_IO : file_error(e);
}

int file_make_directory(const char *dir, char *message, size_t size)
{
	char path[PATH_BYTES];
	int n = snprintf(path, sizeof(path), "%s", dir);

	if (n <= 0 || n >= (int)sizeof(path)) {
		snprintf(message, size,
			 "the path of a folder is empty or longer than %d bytes; use another "
			 "path",
			 PATH_BYTES - 1);
		return -GW_E_SIZE;
	}
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) != 0 && errno != EEXIST)
			return file_failed(message, size, path, "created");
		*p = c;
		if (c == '\0')
			return 0;
	}
}

bool file_accepts(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
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

/* Returns the folder of path in out, or "." if path has no slash. */
static const char *folder_of(const char *path, char out[static PATH_BYTES])
{
	char *slash;

	snprintf(out, PATH_BYTES, "%s", path);
	slash = strrchr(out, '/');
	if (!slash)
		return ".";
	slash[slash == out] = '\0';
	return out;
}

/* Syncs the folder of path, so that the new name survives a crash. */
static void sync_directory_of(const char *path)
{
	char folder[PATH_BYTES];
	int fd = open(folder_of(path, folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

/* Creates a new file next to path, with the default permissions of new files. */
static int open_temporary(const char *path, char *out, size_t size)
{
	int fd = -1;

	for (unsigned i = 0; fd < 0 && i < 100; i++) {
		if (snprintf(out, size, "%s.%ld-%u.tmp", path, (long)getpid(), i) >=
		    (int)size) {
			errno = ENAMETOOLONG;
			return -1;
		}
		fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			return -1;
	}
	return fd;
}

/* True for a special file, such as a pipe, a terminal or /dev/null. file_replace() writes to
 * such a file instead of replacing it. */
static bool is_special(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int file_open_special(const char *path)
{
	struct stat st;
	int fd = -1;

	for (int waited = 0;; waited += FIFO_STEP_MS) {
		/* Without O_NONBLOCK, open() waits until a program opens the FIFO for
		 * reading. */
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (fd >= 0 || errno != ENXIO || stat(path, &st) != 0 || !S_ISFIFO(st.st_mode))
			break;
		if (waited >= FILE_FIFO_WAIT_MS) {
			errno = EPIPE;
			break;
		}
		poll(NULL, 0, FIFO_STEP_MS);
	}
	if (fd >= 0 && fcntl(fd, F_SETFL, 0) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int write_special(const char *path, const char *text, size_t n, char *message,
			 size_t size)
{
	int fd = file_open_special(path), err = 0;

	if (fd < 0 || file_write_all(fd, text, n) != 0)
		err = file_failed(message, size, path, "written");
	if (fd >= 0 && close(fd) != 0 && !err)
		err = file_failed(message, size, path, "written");
	return err;
}

/* Writes the bytes to a new file next to path, and syncs this file. Writes the name of the file
 * to temp. */
static int write_temporary(const char *path, const char *text, size_t n,
			   char temp[static PATH_BYTES + 32], char *message, size_t size)
{
	int fd = open_temporary(path, temp, PATH_BYTES + 32), err = 0;

	if (fd < 0)
		return file_failed(message, size, path, "written");
	if (file_write_all(fd, text, n) != 0 || fsync(fd) != 0)
		err = file_failed(message, size, path, "written");
	if (close(fd) != 0 && !err)
		err = file_failed(message, size, path, "written");
	if (err)
		unlink(temp);
	return err;
}

int file_replace(const char *path, const char *text, size_t n, char *message, size_t size)
{
	char temp[PATH_BYTES + 32], real[PATH_BYTES];
	int err;

	if (is_special(path))
		return write_special(path, text, n, message, size);
	if (realpath(path, real)) /* replace the target of a link, not the link */
		path = real;
	err = write_temporary(path, text, n, temp, message, size);
	if (err)
		return err;
	if (rename(temp, path) != 0) {
		err = file_failed(message, size, path, "written");
		unlink(temp);
		return err;
	}
	sync_directory_of(path);
	return 0;
}

/* Renames temp to path. If there is a file at path, exchanges the two names and sets
 * *ret_swapped. Returns 0, or -1 with errno. */
static int rename_or_swap(const char *temp, const char *path, bool *ret_swapped)
{
	struct stat st;

	for (unsigned i = 0; i < SWAP_TRIES; i++) {
		*ret_swapped = false;
		if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return -1;
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
			errno = EISDIR;
			return -1;
		}
		*ret_swapped = true;
		if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
			return 0;
		if (errno != ENOENT)
			return -1;
		/* Another program has removed the file since renameat2() found it. */
	}
	return -1;
}

int file_swap(const char *path, const char *text, size_t n, char *ret_before,
	      size_t before_size, char *message, size_t size)
{
	char temp[PATH_BYTES + 32], real[PATH_BYTES];
	bool swapped;
	int err;

	if (is_special(path))
		return -GW_E_NOSUPPORT;
	if (realpath(path, real))
		path = real;
	err = write_temporary(path, text, n, temp, message, size);
	if (err)
		return err;
	if (rename_or_swap(temp, path, &swapped) != 0) {
		/* EINVAL: the file system cannot exchange two names. ENOSYS: the kernel
		 * cannot. */
		err = errno == EINVAL || errno == ENOSYS
			      ? -GW_E_NOSUPPORT
			      : file_failed(message, size, path, "written");
		unlink(temp);
		return err;
	}
	sync_directory_of(path);
	snprintf(ret_before, before_size, "%s", swapped ? temp : "");
	return 0;
}

int file_possible(const char *path, char *message, size_t size)
{
	char folder[PATH_BYTES];
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return file_failed(message, size, path, "written");
	}
	if (is_special(path))
		return 0;
	if (access(folder_of(path, folder), W_OK) == 0)
		return 0;
	return file_failed(message, size, path, "written");
}

int file_open(const char *path)
{
	/* Without O_NONBLOCK, open() waits until a program opens the pipe for writing. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct stat st;
	int err = 0;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0)
		err = errno;
	else if (S_ISFIFO(st.st_mode) && poll(&p, 1, FILE_PIPE_WAIT_MS) == 0)
		err = ETIMEDOUT;
	else if (fcntl(fd, F_SETFL, 0) != 0)
		err = errno;
	if (err) {
		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

/* Combines the results of file_changed_by() for two parts of a path. */
static int64_t changed_by_both(int64_t a, int64_t b)
{
	return a == FILE_NOBODY || a == b ? b : b == FILE_NOBODY ? a : FILE_ANYBODY;
}

/* Returns which user can change the folder, the file or the link itself (not its target) at
 * path. If the file has an access control list, the group permission bits of the file limit
 * every user and group in the list. */
static int64_t changed_by_part(const char *path, const struct stat *st)
{
	const bool group = st->st_mode & S_IWGRP &&
			   ((st->st_gid != 0 && st->st_gid != getegid()) ||
			    getxattr(path, "system.posix_acl_access", NULL, 0) > 0);

	if (!S_ISLNK(st->st_mode) && (group || st->st_mode & S_IWOTH))
		return FILE_ANYBODY;
	return st->st_uid == 0 || st->st_uid == geteuid() ? FILE_NOBODY : (int64_t)st->st_uid;
}

static int64_t changed_by_path(const char *path)
{
	int64_t who = FILE_NOBODY;
	/* True if the folder that contains the next part of the path has the sticky bit. */
	bool sticky = false;
	char part[PATH_BYTES];
	struct stat st;

	for (size_t n = 1; n < sizeof(part) && path[n - 1]; n++) {
		if (n > 1 && path[n] != '/' && path[n])
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		if (lstat(part, &st) != 0)
			return sticky ? FILE_ANYBODY : who;
		if (S_ISLNK(st.st_mode)) {
			who = changed_by_both(who, changed_by_part(part, &st));
			if (stat(part, &st) != 0)
				return who;
		}
		sticky = S_ISDIR(st.st_mode) && st.st_mode & S_ISVTX;
		if (sticky)
			st.st_mode &= ~(mode_t)(S_IWOTH | S_IWGRP);
		if (!S_ISCHR(st.st_mode)) /* writing to /dev/null does not change it */
			who = changed_by_both(who, changed_by_part(part, &st));
	}
	return who;
}

/* Returns the user who can change the file at an absolute path: by writing to the file, or by
 * replacing the file, a folder of the path or a link in the path. Root and the user of this
 * process do not count. Returns FILE_NOBODY if no other user can, and FILE_ANYBODY if several
 * users or a group can. The file need not exist. In a sticky folder, other users cannot replace
 * our file, but they can create a file that does not exist yet. */
static int64_t file_changed_by(const char *path)
{
	char folder[PATH_BYTES], real[PATH_BYTES];
	int64_t who = changed_by_path(path);

	/* A link may lead through folders that are not in the path. */
	if (realpath(path, real) || realpath(folder_of(path, folder), real))
		who = changed_by_both(who, changed_by_path(real));
	return who;
}

bool file_is_unsafe_for_root(const char *path)
{
	return geteuid() == 0 && path[0] == '/' && file_changed_by(path) != FILE_NOBODY;
}

FILE *file_fopen(const char *path)
{
	int fd = file_open(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (fd >= 0 && !f)
		close(fd);
	return f;
}

int file_read_line(FILE *f, struct buf *out)
{
	int c;

	buf_clear(out);
	while ((c = getc_unlocked(f)) != EOF && c != '\n' && !out->err)
		buf_add(out, &(char){ (char)c }, 1);
	if (out->err)
		return out->err;
	if (ferror(f))
		return -GW_E_IO;
	return c == '\n';
}

ssize_t file_read_all(int fd, char *out, size_t size)
{
	size_t used = 0;
	ssize_t n = 1;

	while (used < size && n > 0) {
		n = read(fd, out + used, size - used);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			used += (size_t)n;
	}
	return n < 0 ? n : (ssize_t)used;
}

ssize_t file_read(const char *path, char *out, size_t size, char *message, size_t message_size)
{
	int fd = file_open(path);
	ssize_t n;

	if (fd < 0)
		return file_failed(message, message_size, path, "read");
	n = file_read_all(fd, out, size);
	if (n < 0)
		n = file_failed(message, message_size, path, "read");
	close(fd);
	return n;
}

/* Opens a regular file. Refuses a pipe, a device or a folder without waiting for it; `what` is
 * then the end of the sentence. Returns a descriptor, or an error with a sentence. */
static int open_regular(const char *path, const char *what, struct stat *st, char *message,
			size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, st) != 0) {
		int err = file_failed(message, size, path, "read");

		if (fd >= 0)
			close(fd);
		return err;
	}
	if (S_ISREG(st->st_mode))
		return fd;
	close(fd);
	snprintf(message, size, "%s is not a regular file%s", path, what);
	return -GW_E_ARG;
}

ssize_t file_read_regular(const char *path, char *out, size_t size, char *message,
			  size_t message_size)
{
	struct stat st;
	int fd = open_regular(path, " and was ignored; remove it", &st, message, message_size);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = file_read_all(fd, out, size);
	if (n < 0)
		n = file_failed(message, message_size, path, "read");
	close(fd);
	return n;
}

static const char *cache_part = "";

void file_cache_apart(const char *part)
{
	cache_part = part;
}

static int user_path(const char *xdg, const char *below_home, const char *name,
		     const char *part, char *out, size_t size)
{
	const char *folder = getenv(xdg), *home = getenv("HOME");
	int n;

	if (folder && *folder == '/')
		n = snprintf(out, size, "%s/gpuward/%s%s", folder, name, part);
	else if (home && *home == '/')
		n = snprintf(out, size, "%s/%s/gpuward/%s%s", home[1] ? home : "", below_home,
			     name, part);
	else
		return -GW_E_NOENT;
	return n < (int)size ? 0 : -GW_E_SIZE;
}

int file_cache_directory(const char *name, char *out, size_t size)
{
	return user_path("XDG_CACHE_HOME", ".cache", name, cache_part, out, size);
}

int file_user_config(const char *name, char *out, size_t size)
{
	return user_path("XDG_CONFIG_HOME", ".config", name, "", out, size);
}

#define SECRET_USE ": use a file that contains the token or the password"

/* Reads the first line of the file into out, and closes fd. */
static int secret_take(int fd, const char *path, char out[static SECRET_MAX], char *message,
		       size_t size)
{
	ssize_t n = file_read_all(fd, out, SECRET_MAX);
	int err = n < 0 ? file_failed(message, size, path, "read") : 0;
	size_t line = 0;

	close(fd);
	/* strchr() also finds NUL, so the loop ends at a NUL byte, too. */
	while (n > 0 && line < (size_t)n && !strchr("\r\n", out[line]))
		line++;
	if (!err && line == SECRET_MAX) {
		snprintf(message, size,
			 "the first line of %s is longer than %d characters: write only the "
			 "token or the password to it",
			 path, SECRET_MAX - 1);
		err = -GW_E_ARG;
	} else if (!err && line < (size_t)n && !out[line]) {
		snprintf(message, size, "%s contains a NUL byte: write only text to the file",
			 path);
		err = -GW_E_ARG;
	}
	if (err)
		explicit_bzero(out, SECRET_MAX);
	else
		out[line] = '\0';
	return err;
}

int secret_read(const char *path, char out[static SECRET_MAX], char *message, size_t size)
{
	struct stat st;
	int err, fd = open_regular(path, SECRET_USE, &st, message, size);

	if (fd < 0)
		return fd;
	if (st.st_mode & 077) {
		close(fd);
		snprintf(message, size,
			 "other users can read the token file %s (mode %03o): run chmod 600 %s",
			 path, (unsigned)(st.st_mode & 0777), path);
		return -GW_E_PERM;
	}
	err = secret_take(fd, path, out, message, size);
	if (err || strlen(out) >= SECRET_MIN)
		return err;
	snprintf(message, size,
		 "the token in %s is shorter than %d characters: write a longer one to its "
		 "first "
		 "line, for example the output of \"openssl rand -hex 32\"",
		 path, SECRET_MIN);
	return -GW_E_ARG;
}

int secret_read_for(const char *path, const char *key, char out[static SECRET_MAX],
		    char *message, size_t size)
{
	int64_t who = path[0] == '/' ? file_changed_by(path) : FILE_NOBODY;
	struct stat st;
	int err, fd = open_regular(path, SECRET_USE, &st, message, size);

	if (fd < 0)
		return fd;
	/* If only one user can write the folder, the file must belong to that user and must not
	 * be a link. */
	if (who == FILE_ANYBODY ||
	    (who != FILE_NOBODY &&
	     (lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != who))) {
		close(fd);
		snprintf(message, size,
			 "other users can replace %s %s; put it into a folder that only root "
			 "or one user can write",
			 key, path);
		return -GW_E_PERM;
	}
	err = secret_take(fd, path, out, message, size);
	if (err || *out)
		return err;
	snprintf(message, size,
		 "the first line of %s is empty; it must be the token or the password", path);
	return -GW_E_ARG;
}
