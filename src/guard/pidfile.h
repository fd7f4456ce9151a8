/* pidfile: reads the pid in a worker's pidfile, if the file can be trusted.
 *
 * The guard may signal the process that the file names, so a user who can write the file must
 * not choose the process of another user. The file and all its folders must belong to root, to
 * the user of this process or to the owner of the named process, and nobody else may write
 * them, apart from the group root and our own group. Links are not followed, except that
 * /var/run is /run. */
#ifndef GW_GUARD_PIDFILE_H
#define GW_GUARD_PIDFILE_H

#include "base/root.h"

#include <time.h>

struct pidfile {
	int64_t pid;
	struct timespec written;
	const char *fault; /* why the file is not trusted, such as "it is a link"; or NULL */
};

/* What to do about a fault, as the end of a sentence. */
#define PIDFILE_REMEDY                                                                \
	"let the worker write the file into a folder that only root or the worker's " \
	"user can write, and set match.pidfile to its path without links"

/* Returns 0; -GW_E_STATE: the file is not trusted, and ret->fault says why; -GW_E_NOENT,
 * -GW_E_IO or -GW_E_PARSE: the file names no process now, or cannot be read. */
int pidfile_read(const struct root *root, const char *path, struct pidfile *ret);

#endif
