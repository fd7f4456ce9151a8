/* root: reads small files of /proc and /sys below a root directory.
 *
 * In life the root is "/"; a test hands in a fixture tree, and a person can hand in a copy of
 * another machine's /proc and /sys.  Paths are relative, without a leading slash.  Absolute
 * symbolic links are read as below the root by the callers that meet them; nothing here
 * follows a link out of the tree on purpose.  Only root_opendir() allocates. */
#ifndef GW_BASE_ROOT_H
#define GW_BASE_ROOT_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct root {
	int fd;
	bool real; /* it is "/" itself */
};

/* Opens path ("/" or NULL: the real one).  0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO. */
int root_open(struct root *r, const char *path);
void root_close(struct root *r);

/* Reads the file into out (size > 0), NUL-terminated, cut at size - 1.  Returns the bytes
 * read or a negative gw_error (-GW_E_NOENT, -GW_E_PERM, -GW_E_IO).  out is "" on failure. */
long root_read(const struct root *r, const char *path, char *out, size_t size);

/* The same, without the newline and blanks at the end. */
long root_read_line(const struct root *r, const char *path, char *out, size_t size);

/* A file that holds one number, decimal or 0x hexadecimal, perhaps negative. */
int root_read_i64(const struct root *r, const char *path, int64_t *ret);

/* Target of a symbolic link. */
long root_readlink(const struct root *r, const char *path, char *out, size_t size);

/* Last component of a link's target: the driver or subsystem a sysfs link names. */
long root_readlink_base(const struct root *r, const char *path, char *out, size_t size);

bool root_exists(const struct root *r, const char *path);

/* Opens a directory to walk with readdir(); NULL where it cannot be read. */
DIR *root_opendir(const struct root *r, const char *path);

/* Calls fn for each name in a directory but "." and "..", until it returns false.  Does not allocate.  0, -GW_E_NOENT,
 * -GW_E_PERM or -GW_E_IO. */
int root_each_name(const struct root *r, const char *path,
		   bool (*fn)(void *arg, const char *name), void *arg);

/* The number of a directory entry such as "4711"; 0: the name is not a decimal number. */
int64_t root_name_number(const char *name);

/* Path from parts: root_path(p, sizeof(p), "sys/class/drm/%s/device", name). */
const char *root_path(char *out, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
