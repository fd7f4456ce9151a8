/* tree: a small /proc and /sys for a test in a temporary folder. */
#ifndef GW_TEST_TREE_H
#define GW_TEST_TREE_H

#include "base/root.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct tree {
	char path[64];
	struct root root;
};

/* A row of a tree: a file, or a symbolic link if the text is "-> target". */
struct tree_row {
	const char *path, *text;
};

static inline void tree_init(struct tree *t)
{
	snprintf(t->path, sizeof(t->path), "/tmp/gpuward-test-XXXXXX");
	if (!mkdtemp(t->path) || chmod(t->path, 0755) < 0 || root_open(&t->root, t->path) < 0)
		abort();
}

static inline void tree_folders(const struct tree *t, const char *path)
{
	char part[512];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdirat(t->root.fd, part, 0755) < 0 && errno != EEXIST)
			abort();
	}
}

/* Makes or replaces a file with the n bytes of text, which may contain a NUL. */
static inline void tree_bytes(const struct tree *t, const char *path, const char *text,
			      size_t n)
{
	int fd;

	tree_folders(t, path);
	unlinkat(t->root.fd, path, 0);
	fd = openat(t->root.fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, n) != (ssize_t)n)
		abort();
	close(fd);
}

static inline void tree_put(const struct tree *t, const char *path, const char *text)
{
	if (strncmp(text, "-> ", 3) != 0) {
		tree_bytes(t, path, text, strlen(text));
		return;
	}
	tree_folders(t, path);
	unlinkat(t->root.fd, path, 0);
	if (symlinkat(text + 3, t->root.fd, path) < 0)
		abort();
}

/* Creates the files of all rows; the last row has no path. prefix is put before every path. */
static inline void tree_fill(const struct tree *t, const char *prefix,
			     const struct tree_row *rows)
{
	char path[512];

	for (; rows->path; rows++) {
		snprintf(path, sizeof(path), "%s%s", prefix, rows->path);
		tree_put(t, path, rows->text);
	}
}

/* Creates a character device if possible, otherwise a file. inotify works with both. */
static inline void tree_node(const struct tree *t, const char *path)
{
	tree_folders(t, path);
	unlinkat(t->root.fd, path, 0);
	if (mknodat(t->root.fd, path, S_IFCHR | 0666, makedev(1, 3)) < 0)
		tree_put(t, path, "");
}

/* Opens and closes a file. Returns false if the file cannot be opened, such as a device on a
 * file system that allows no devices. */
static inline bool tree_open(const struct tree *t, const char *path)
{
	int fd = openat(t->root.fd, path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Makes path unreadable. A test that runs as root becomes another user until tree_allow(). */
static inline void tree_forbid(const struct tree *t, const char *path)
{
	if (fchmodat(t->root.fd, path, 0, 0) < 0 || (geteuid() == 0 && seteuid(65534) < 0))
		abort();
}

static inline void tree_allow(void)
{
	if (getuid() == 0 && seteuid(0) < 0)
		abort();
}

static inline int tree_remove_one(const char *path, const struct stat *st, int type,
				  struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

/* Removes a file or a whole folder of the tree. */
static inline void tree_remove(const struct tree *t, const char *path)
{
	char full[600];

	snprintf(full, sizeof(full), "%s/%s", t->path, path);
	nftw(full, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void tree_done(struct tree *t)
{
	root_close(&t->root);
	tree_remove(t, ".");
	rmdir(t->path);
}

#endif
