/* recording_file: the file of a recording: adds whole lines, and rotates it.
 *
 * It knows only how a recording begins.  Callers report errors. */
#ifndef GW_DAEMON_RECORDING_FILE_H
#define GW_DAEMON_RECORDING_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recording_file {
	int fd;       /* -1: not recording */
	bool regular; /* a file that can be truncated and renamed */
	uint64_t size;
};

/* Appends to an existing file, after removing half a line that a killed service left.  A pipe would block until it has a
 * reader: EINVAL or ENXIO.  0, or -1 with errno. */
int recording_file_open(struct recording_file *r, const char *path);
void recording_file_close(struct recording_file *r);

/* Adds all of it; if that fails in a regular file, nothing.  0, or -1 with errno. */
int recording_file_add(struct recording_file *r, const char *text, size_t size);

/* Is the file still at path?  A log rotation moves it away and sends a reload. */
bool recording_file_in_place(const struct recording_file *r, const char *path);

/* Renames it to path.1, replacing that file; the caller closes it and opens a new one.  -1 with errno: it could not be
 * renamed, and is emptied instead, because it must not grow. */
int recording_file_move(struct recording_file *r, const char *path);

#endif
