/* guard_recording: the file of a recording: whole lines are added to it, and it can be turned over.
 *
 * Knows nothing of what the lines say but how a recording begins.  Tells nobody: whoever adds says what failed. */
#ifndef GW_DAEMON_RECORDING_FILE_H
#define GW_DAEMON_RECORDING_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recording_file {
	int fd;        /* -1: nothing is recorded */
	bool regular;  /* it is a file that can be cut and moved */
	uint64_t size; /* of it */
};

/* Adds to what is there, but for half a line, of one that was killed.  A pipe would have us wait for its reader: EINVAL
 * or ENXIO.  0, or -1 with errno. */
int recording_file_open(struct recording_file *r, const char *path);
void recording_file_close(struct recording_file *r);

/* All of it, or nothing, where it is a file.  0, or -1 with errno. */
int recording_file_add(struct recording_file *r, const char *text, size_t size);

/* Is the file still where it is asked for?  Whoever turns logs over moves it away and lets us reload. */
bool recording_file_in_place(const struct recording_file *r, const char *path);

/* Renames it, with .1 behind its name, in the place of who is there; the caller closes it and opens another.  -1 with
 * errno: it could not be, and is emptied instead: it must not grow. */
int recording_file_move(struct recording_file *r, const char *path);

#endif
