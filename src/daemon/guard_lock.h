/* guard_lock: at most one guard acts on each GPU of a machine.
 *
 * Two guards would undo each other's work. The acting guard locks one file per GPU under
 * $RUNTIME_DIRECTORY or /run/gpuward with flock(2), which a crash releases, and writes its
 * pid there. A service that may not write there uses a file under /run/user or /tmp. */
#ifndef GW_DAEMON_GUARD_LOCK_H
#define GW_DAEMON_GUARD_LOCK_H

#include <stddef.h>
#include <stdint.h>

/* 0 and *ret_fd, held until it is closed; -GW_E_STATE: another guard has it, *ret_pid is its
 * pid (0: unknown); -GW_E_PERM: no lock file can be created. On error, message names the
 * file. */
int guard_lock_take(const char *uuid, int *ret_fd, int64_t *ret_pid, char *message,
		    size_t size);

#endif
