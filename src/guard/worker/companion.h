/* companion: asks the small program that has the privileges (gpuward-companion(8)).
 *
 * One request a connection over a UNIX socket; the words are in wire.h.  A request that the companion has
 * taken up is waited for: a checkpoint and a return as long as they take, the rest until the deadline.
 * Errors are those of the companion, and
 *   -GW_E_IO     it is not there
 *   -GW_E_PERM   we may not speak to it, or it does not let us
 *   -GW_E_STATE  it ended before it had answered: to be asked again
 * each with a sentence that says what to do. */
#ifndef GW_GUARD_WORKER_COMPANION_H
#define GW_GUARD_WORKER_COMPANION_H

#include "guard/worker/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the packaged companion listens. */
#define COMPANION_SOCKET "/run/gpuward-companion.sock"

/* Is it there, and does it serve us?  Says nothing of what it would do for us. */
int companion_reach(const char *path, uint64_t deadline_ns, char *message, size_t size);

/* As checkpoint_put_away() and checkpoint_restore().  Where the companion ends half way, what it has begun
 * is undone by the next one. */
int companion_put_away(const char *path, const struct checkpoint_target *t, unsigned n,
		       uint64_t deadline_ns, char *message, size_t size);
int companion_restore(const char *path, const struct checkpoint_target *t, unsigned n,
		      uint64_t deadline_ns, char *message, size_t size);

/* Brings back through the companion at path, or by ourselves where path is "", or where it cannot and we
 * are root.  For after a crash: errors as those two. */
int companion_recover(const char *path, const struct root *root,
		      const struct checkpoint_target *t, unsigned n, char *message,
		      size_t size);

/* *ret_sent: to how many; those who have ended are passed over. */
int companion_signal(const char *path, int signal, const struct checkpoint_target *t,
		     unsigned n, uint64_t deadline_ns, unsigned *ret_sent, char *message,
		     size_t size);

int companion_unit(const char *path, const char *unit, bool start, uint64_t deadline_ns,
		   char *message, size_t size);

#endif
