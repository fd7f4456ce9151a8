/* guard_service_lock: makes sure that at most one guard acts on each GPU of a machine, because
 * two guards would undo each other's work.
 *
 * In mode "enforce", the service locks one file per GPU with flock(2) and writes its pid to the
 * file. The kernel releases the lock if the service crashes. At each scene the service checks
 * that the file still exists, because a cleanup of /tmp or the stop of another unit may remove
 * the file. Simulated GPUs are locked only if RUNTIME_DIRECTORY is set, because the simulated
 * GPUs of all runs have the same names. */
#include "guard_service_parts.h"

#include "base/clock.h"

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

#define RETRY_NS (5 * NS_PER_S)

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

/* Writes the i-th directory to try for the lock files. A service that may not write to the
 * first directory uses a later one. Returns false if there is no i-th directory. */
static bool lock_directory(unsigned i, char *out, size_t size)
{
	/* systemd sets this variable. It may name several directories. */
	const char *given = getenv("RUNTIME_DIRECTORY");

	switch (i) {
	case 0:
		if (given && *given == '/')
			snprintf(out, size, "%.*s", (int)strcspn(given, ":"), given);
		else
			snprintf(out, size, "/run/gpuward");
		return true;
	case 1: snprintf(out, size, "/run/user/%u", (unsigned)geteuid()); break;
	case 2: snprintf(out, size, "/tmp"); break;
	default: return false;
	}
	return geteuid() !=
	       0; /* Root uses only the first directory: anyone can write to /tmp. */
}

/* Opens or creates a lock file. The file must be a regular file that belongs to this user; for
 * root, it may belong to any user. Otherwise errno is EACCES. EACCES in the first directory
 * means that the file belongs to another user. */
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
	snprintf(message, size, "%s: %s", path,
		 err == -GW_E_STATE ? "locked" : strerror(errno));
	return err;
}

/* Takes the lock of a GPU. The lock is held until *ret_fd is closed. Returns 0; -GW_E_STATE
 * if another guard holds the lock, with its pid in *ret_pid (0 if unknown); -GW_E_PERM if no
 * lock file can be created. On error, message names the file. */
static int take_lock(const char *uuid, int *ret_fd, int64_t *ret_pid, char *message,
		     size_t size)
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

static struct guard_service_lock *find_lock(struct guard_service *g, const char *uuid)
{
	struct guard_service_lock *l;

	for (unsigned i = 0; i < g->lock.count; i++)
		if (strcmp(g->lock.of[i].uuid, uuid) == 0)
			return &g->lock.of[i];
	if (g->lock.count == GUARD_SERVICE_DEVICES)
		return NULL;
	l = &g->lock.of[g->lock.count++];
	*l = (struct guard_service_lock){ .fd = -1 };
	snprintf(l->uuid, sizeof(l->uuid), "%s", uuid);
	return l;
}

static void release_lock(struct guard_service_lock *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static void become_observer(struct guard_service *g, struct guard_service_lock *l, int64_t pid,
			    const char *why)
{
	char who[64] = "another gpuward";

	if (l->foreign)
		return;
	if (pid)
		snprintf(who, sizeof(who), "another gpuward (process %lld)", (long long)pid);
	l->foreign = true;
	guard_service_foreign(g, l->uuid, who);
	guard_service_log(g, "warning",
			  "%s already guards %s (%s): this gpuward only observes the workers "
			  "there; stop one of the two services",
			  who, l->uuid, why);
}

static void become_actor(struct guard_service *g, struct guard_service_lock *l)
{
	if (!l->foreign)
		return;
	l->foreign = false;
	guard_service_foreign(g, l->uuid, NULL);
	guard_service_log(g, "info",
			  "no other gpuward guards %s any more; this gpuward guards it now",
			  l->uuid);
}

/* True if the lock file was removed. Another guard could then create and lock a new file. */
static bool is_removed(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

static void try_lock(struct guard_service *g, struct guard_service_lock *l, uint64_t now_ns)
{
	char why[300] = "";
	int64_t pid = 0;
	int err;

	if (l->fd >= 0 && is_removed(l->fd)) {
		release_lock(l);
		l->retry_ns = now_ns;
	}
	if (l->fd >= 0 || now_ns < l->retry_ns)
		return;
	l->retry_ns = now_ns + RETRY_NS;
	err = take_lock(l->uuid, &l->fd, &pid, why, sizeof(why));
	if (err == -GW_E_STATE) {
		become_observer(g, l, pid, why);
		return;
	}
	become_actor(g, l);
	if (err && !g->lock.unlocked_logged) {
		g->lock.unlocked_logged = true;
		guard_service_log(
			g, "warning",
			"cannot create a lock file for a GPU (%s): this gpuward would "
			"not notice a second gpuward that moves workers",
			why);
	}
}

void guard_service_lock_look(struct guard_service *g, const struct scene *s)
{
	bool enforces = g->settings->policy.mode == GUARD_ENFORCE;
	bool given = getenv("RUNTIME_DIRECTORY") != NULL;

	for (unsigned i = 0; i < s->gpus; i++) {
		struct guard_service_lock *l =
			s->gpu[i].simulated && !given ? NULL : find_lock(g, s->gpu[i].uuid);

		if (l && enforces)
			try_lock(g, l, guard_service_time_ns(g));
		else if (l)
			release_lock(l);
	}
}

void guard_service_lock_close(struct guard_service *g)
{
	for (unsigned i = 0; i < g->lock.count; i++)
		release_lock(&g->lock.of[i]);
}
