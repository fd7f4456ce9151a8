/* companion: sends requests to gpuward-companion(8), a small program with privileges that the
 * service does not have.
 *
 * Each request has its own connection to a UNIX socket, in the format of wire.h. After the
 * companion has accepted a checkpoint or a restore, the function waits without limit until the
 * checkpoint or the restore is complete. All other waits end at the deadline. The functions
 * return the errors of the companion, and
 *   -GW_E_IO     the companion is not running
 *   -GW_E_PERM   this user may not connect, or the companion does not serve this user
 *   -GW_E_STATE  the companion ended before it answered: try again
 * each with a sentence that says what to do. */
#ifndef GW_GUARD_WORKER_COMPANION_H
#define GW_GUARD_WORKER_COMPANION_H

#include "guard/worker/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The socket of the packaged companion. */
#define COMPANION_SOCKET "/run/gpuward-companion.sock"

/* Returns 0 if the companion runs and serves this user. This does not show which requests the
 * companion allows. */
int companion_reach(const char *path, uint64_t deadline_ns, char *message, size_t size);

/* Like checkpoint_create() and checkpoint_restore(). If the companion ends before a checkpoint
 * is complete, the next companion undoes the checkpoint. */
int companion_checkpoint(const char *path, const struct proc_id *id, unsigned n,
			 uint64_t deadline_ns, char *message, size_t size);
int companion_restore(const char *path, const struct proc_id *id, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size);

/* Restores processes after a crash: through the companion at path; directly if path is "", or
 * if the companion fails and this user is root. Returns the errors listed at the top of this
 * file. */
int companion_recover(const char *path, const struct root *root, const struct proc_id *id,
		      unsigned n, char *message, size_t size);

/* Sends a signal to processes. *ret_sent is the number of signalled processes. Skips processes
 * that have ended. */
int companion_signal(const char *path, int signal, const struct proc_id *id, unsigned n,
		     uint64_t deadline_ns, unsigned *ret_sent, char *message, size_t size);

int companion_unit(const char *path, const char *unit, bool start, uint64_t deadline_ns,
		   char *message, size_t size);

#endif
