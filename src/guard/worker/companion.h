/* companion: requests to gpuward-companion(8), the small program that has the privileges.
 *
 * One request per connection over a UNIX socket, in the format of wire.h.  After the companion
 * has accepted a request, a checkpoint and a restore are waited for without limit, all else
 * until the deadline.  Errors are those of the companion, and
 *   -GW_E_IO     it is not running
 *   -GW_E_PERM   we may not connect, or it does not serve us
 *   -GW_E_STATE  it ended before it answered: try again
 * each with a sentence that says what to do. */
#ifndef GW_GUARD_WORKER_COMPANION_H
#define GW_GUARD_WORKER_COMPANION_H

#include "guard/worker/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the packaged companion listens. */
#define COMPANION_SOCKET "/run/gpuward-companion.sock"

/* Is it running, and does it serve us at all?  Which requests it allows is not checked. */
int companion_reach(const char *path, uint64_t deadline_ns, char *message, size_t size);

/* As checkpoint_create() and checkpoint_restore().  If the companion ends half way, the next
 * one undoes what it began. */
int companion_checkpoint(const char *path, const struct proc_id *id, unsigned n,
			 uint64_t deadline_ns, char *message, size_t size);
int companion_restore(const char *path, const struct proc_id *id, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size);

/* Restores after a crash: through the companion at path, or directly where path is "", or where
 * the companion fails and we are root.  Errors as above. */
int companion_recover(const char *path, const struct root *root, const struct proc_id *id,
		      unsigned n, char *message, size_t size);

/* *ret_sent: how many were signalled; processes that have ended are skipped. */
int companion_signal(const char *path, int signal, const struct proc_id *id, unsigned n,
		     uint64_t deadline_ns, unsigned *ret_sent, char *message, size_t size);

int companion_unit(const char *path, const char *unit, bool start, uint64_t deadline_ns,
		   char *message, size_t size);

#endif
