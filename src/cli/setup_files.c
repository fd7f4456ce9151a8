#include "setup_files.h"

#include "cli.h"
#include "setup_plan.h"

#include "base/file.h"
#include "base/sha256.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_FILE "/run/gpuward-setup.lock"

const char *setup_path(const struct setup_place *at, const char *path, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s%s", at->prefix, path);
	return out;
}

/* Returns true if there is a prefix, and path or one of its folders is a link below the prefix.
 * ret is then the path of this link. */
static bool has_link(const struct setup_place *at, const char *path, char ret[PATH_MAX])
{
	struct stat st;

	for (size_t n = 0; *at->prefix && path[n];) {
		n += strspn(path + n, "/");
		n += strcspn(path + n, "/");
		snprintf(ret, PATH_MAX, "%s%.*s", at->prefix, (int)n, path);
		if (lstat(ret, &st) == 0 && S_ISLNK(st.st_mode))
			return true;
	}
	return false;
}

/* Opens the file on which the lock is taken. For the real root, this is a file that no other
 * user can open. With a prefix, this is the folder `etc` below the prefix. */
static int open_lock(const struct setup_place *at)
{
	char path[PATH_MAX];

	if (!*at->prefix)
		return open(LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return open(setup_path(at, "/etc", path),
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int setup_begin(const struct setup_place *at, bool lock, int *ret_lock)
{
	char path[PATH_MAX];
	struct stat st;

	*ret_lock = -1;
	if (has_link(at, SETUP_FOLDER "/gpuward.d", path))
		return cli_fail("%s is a link and may lead out of %s, so nothing was changed; "
				"replace the link by a folder",
				path, at->prefix);
	if (!lock)
		return EXIT_OK;
	*ret_lock = open_lock(at);
	if (*ret_lock < 0)
		return cli_fail("%s%s cannot be opened: %s; nothing was changed", at->prefix,
				*at->prefix ? "/etc" : LOCK_FILE, strerror(errno));
	/* If st_nlink is 0, another setup ended and removed the lock file after it was opened
	 * here; the lock then protects nothing. */
	if (flock(*ret_lock, LOCK_EX | LOCK_NB) == 0 && fstat(*ret_lock, &st) == 0 &&
	    st.st_nlink > 0)
		return EXIT_OK;
	close(*ret_lock);
	*ret_lock = -1;
	return cli_fail("another gpuward setup is running, so nothing was changed; wait until "
			"it ends and try again");
}

void setup_end(const struct setup_place *at, int lock)
{
	if (lock < 0)
		return;
	if (!*at->prefix)
		unlink(LOCK_FILE);
	close(lock);
}

int setup_account(const char *prefix, const char *name, uid_t *uid, gid_t *ret_gid, char *home,
		  size_t size, char *ret_name, size_t name_size)
{
	char path[PATH_MAX];
	struct passwd *p = NULL;
	FILE *f;

	if (!*prefix) {
		p = name ? getpwnam(name) : getpwuid(*uid);
	} else {
		snprintf(path, sizeof(path), "%s/etc/passwd", prefix);
		f = fopen(path, "re");
		while (f && (p = fgetpwent(f)))
			if (name ? strcmp(p->pw_name, name) == 0 : p->pw_uid == *uid)
				break;
		if (f)
			fclose(f);
	}
	if (!p || p->pw_dir[0] != '/')
		return -GW_E_NOENT;
	*uid = p->pw_uid;
	*ret_gid = p->pw_gid;
	snprintf(home, size, "%s", p->pw_dir);
	snprintf(ret_name, name_size, "%s", p->pw_name);
	return 0;
}

long setup_read(int folder, const char *path, char *out, size_t size, struct stat *ret)
{
	int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	long n = 0;
	ssize_t k;

	if (fd < 0)
		return -errno;
	if (fstat(fd, ret) != 0 || !S_ISREG(ret->st_mode)) {
		close(fd);
		return -EINVAL;
	}
	while ((size_t)n < size && (k = read(fd, out + n, size - (size_t)n)) > 0)
		n += k;
	close(fd);
	return (size_t)n == size ? -EFBIG : n;
}

/* Writes a file in the folder. Writes a temporary file first, so that the file is never
 * incomplete. Returns 0 or an errno. */
static int put_file(int folder, const char *name, const struct setup_contents *c)
{
	char temporary[300];
	int fd, err = 0;

	snprintf(temporary, sizeof(temporary), "%s" SETUP_NEW_FILE, name);
	unlinkat(folder, temporary, 0);
	fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return errno;
	if (file_write_all(fd, c->text, strlen(c->text)) != 0 || fchmod(fd, c->mode) != 0 ||
	    (c->uid != (uid_t)-1 && fchown(fd, c->uid, c->gid) != 0) || fsync(fd) != 0)
		err = errno;
	close(fd);
	if (!err && c->replaces)
		err = renameat(folder, temporary, folder, name) != 0 ? errno : 0;
	else if (!err)
		err = linkat(folder, temporary, folder, name, 0) != 0 ? errno : 0;
	unlinkat(folder, temporary, 0);
	fsync(folder);
	return err;
}

int setup_put(const char *path, const struct setup_contents *c)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int fd, err;

	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno;
	err = put_file(fd, slash + 1, c);
	close(fd);
	return err;
}

/* Opens the folder of path, which is below the home folder. Opens one folder after the other
 * and follows no link. Returns a descriptor, or a negative errno. */
static int open_below(const struct setup_place *at, const char *path)
{
	const char *rest = path + strlen(at->home) + 1;
	char home[PATH_MAX], part[256];
	int fd;

	if (has_link(at, at->home, home))
		return -ELOOP;
	fd = open(setup_path(at, at->home, home), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (const char *slash; fd >= 0 && (slash = strchr(rest, '/')); rest = slash + 1) {
		int next, err;

		snprintf(part, sizeof(part), "%.*s", (int)(slash - rest), rest);
		next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		err = errno;
		close(fd);
		errno = err;
		fd = next;
	}
	return fd < 0 ? -errno : fd;
}

int setup_compare(int folder, const char *name, const char *const sum[2])
{
	char *text = malloc(SETUP_FILE_MAX), own[65];
	struct stat st;
	long n = text ? setup_read(folder, name, text, SETUP_FILE_MAX, &st) : -ENOMEM;

	if (n >= 0)
		sha256_hex(text, (size_t)n, own);
	free(text);
	if (n == -ENOENT)
		return ENOENT;
	if (n < 0)
		/* The file is a link, a folder or too large, so setup did not write it. */
		return SETUP_CHANGED;
	for (unsigned i = 0; i < 2; i++)
		if (sum[i] && *sum[i] && strcmp(sum[i], own) == 0)
			return 0;
	return SETUP_CHANGED;
}

/* Returns 0 if this user may create the file at path, and those of its folders that do not
 * exist yet. Otherwise returns an errno. */
static int may_create(const struct setup_place *at, const char *path)
{
	const size_t home = strlen(at->prefix) + strlen(at->home);
	char full[PATH_MAX], *slash;

	setup_path(at, path, full);
	while ((slash = strrchr(full, '/')) && slash >= full + home) {
		*slash = '\0';
		if (access(full, F_OK) == 0)
			return access(full, W_OK | X_OK) == 0 ? 0 : errno;
	}
	return ENOENT;
}

static int home_verb(const struct setup_place *at, const struct setup_home_request *q)
{
	const char *name = strrchr(q->path, '/') + 1;
	int folder = open_below(at, q->path), err = 0;
	char temporary[300];

	if (q->verb == HOME_MAY_CREATE)
		return may_create(at, q->path);
	if (folder < 0)
		return -folder;
	switch (q->verb) {
	case HOME_FOLDER:
		if (mkdirat(folder, name, q->mode) != 0 && errno != EEXIST)
			err = errno;
		break;
	case HOME_PUT:
		err = put_file(
			folder, name,
			&(struct setup_contents){ q->text, q->mode, (uid_t)-1, 0, false });
		break;
	case HOME_MAY_CREATE: break;
	case HOME_LOOK: err = setup_compare(folder, name, q->sum); break;
	case HOME_REMOVE:
		snprintf(temporary, sizeof(temporary), "%s" SETUP_NEW_FILE, name);
		unlinkat(folder, temporary, 0);
		err = setup_compare(folder, name, q->sum);
		if (!err && unlinkat(folder, name, 0) != 0)
			err = errno;
		break;
	case HOME_REMOVE_FOLDER:
		if (unlinkat(folder, name, AT_REMOVEDIR) != 0)
			err = errno;
	}
	close(folder);
	return err;
}

static int become(const struct setup_place *at)
{
	if (geteuid() != 0)
		return 0;
	return initgroups(at->user, at->gid) != 0 || setgid(at->gid) != 0 ||
			       setuid(at->uid) != 0
		       ? errno
		       : 0;
}

int setup_as_user(const struct setup_place *at, const struct setup_home_request *q)
{
	pid_t child = fork();
	int status, err;

	if (child < 0)
		return errno;
	if (child == 0) {
		err = become(at);
		_exit(err ? err : home_verb(at, q));
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}
