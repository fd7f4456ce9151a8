/* guard_lock: one guard that acts for each GPU of a machine.
 *
 * Two that act would undo each other's work, whatever history files they have.  A file for each GPU under
 * $RUNTIME_DIRECTORY or /run/gpuward is locked by whoever acts (flock(2): a crash lets go of it) and holds its
 * process number.  A service of a user who may not write there locks one of its own, under /run/user or /tmp. */
#ifndef GW_DAEMON_GUARD_LOCK_H
#define GW_DAEMON_GUARD_LOCK_H

#include <stddef.h>
#include <stdint.h>

/* 0 and *ret_fd, held until it is closed; -GW_E_STATE: another has it, *ret_pid is who (0: not known); -GW_E_PERM:
 * none can be made.  With a sentence in both cases that names the file. */
int guard_lock_take(const char *uuid, int *ret_fd, int64_t *ret_pid, char *message,
		    size_t size);

#endif
