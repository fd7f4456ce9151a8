/* root: reads small files of /proc and /sys below a root directory.
 *
 * Normally the root is "/"; a test uses a fixture tree, and a user can pass a copy of another
 * machine's /proc and /sys. Paths are relative, without a leading slash, and absolute symbolic
 * links are not resolved. Only root_opendir() allocates. */
#ifndef GW_BASE_ROOT_H
#define GW_BASE_ROOT_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct root {
	int fd;
	bool real; /* The root is "/" itself. */
};

/* Opens the root directory at path. "/" and NULL mean the real root. Returns 0, -GW_E_NOENT,
 * -GW_E_PERM or -GW_E_IO. */
int root_open(struct root *r, const char *path);
void root_close(struct root *r);

/* Reads a file into out (size > 0). The text is NUL-terminated and cut at size - 1 bytes.
 * Returns the bytes read or a negative gw_error (-GW_E_NOENT, -GW_E_PERM, -GW_E_IO). out is ""
 * on failure. */
long root_read(const struct root *r, const char *path, char *out, size_t size);

/* Works like root_read(), but removes the newline and blanks at the end. */
long root_read_line(const struct root *r, const char *path, char *out, size_t size);

/* Reads a file with one number: decimal, or hexadecimal after 0x. The number may be
 * negative. */
int root_read_i64(const struct root *r, const char *path, int64_t *ret);

/* Reads the target of a symbolic link. */
long root_readlink(const struct root *r, const char *path, char *out, size_t size);

/* Reads the last component of a link's target: the driver or subsystem that a sysfs link
 * names. */
long root_readlink_base(const struct root *r, const char *path, char *out, size_t size);

bool root_exists(const struct root *r, const char *path);

/* Opens a directory for readdir(); NULL if it cannot be read. */
DIR *root_opendir(const struct root *r, const char *path);

/* Calls fn for each name in a directory except "." and "..", until fn returns false. Does not
 * allocate. Returns 0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO. */
int root_each_name(const struct root *r, const char *path,
		   bool (*fn)(void *arg, const char *name), void *arg);

/* Returns the number of a directory entry such as "4711"; 0: the name is not a decimal
 * number. */
int64_t root_name_number(const char *name);

/* Formats a path: root_path(p, sizeof(p), "sys/class/drm/%s/device", name). */
const char *root_path(char *out, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Reads a text file of any length line by line, without allocating. It is for files that do not
 * fit into a buffer on the stack, such as /proc/cpuinfo of a large machine. */
#define LINES_SIZE 4096 /* A longer line is cut to LINES_SIZE - 1 bytes. */

struct lines {
	int fd;
	/* buf[at] to buf[used - 1] are read from the file, but not yet returned. */
	size_t at, used;
	bool end;  /* The end of the file is reached. */
	bool skip; /* The last line was cut. The next call skips its rest. */
	char buf[LINES_SIZE];
};

/* Returns 0, -GW_E_NOENT, -GW_E_PERM or -GW_E_IO. Call lines_close() after success. */
int lines_open(struct lines *l, const struct root *root, const char *path);
void lines_close(struct lines *l);

/* Returns the next line without its newline, or NULL at the end or if reading fails. The caller
 * may change the line. The line is valid until the next call. */
char *lines_next(struct lines *l);

#endif
