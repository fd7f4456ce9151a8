/* guard_lock: makes sure that at most one guard acts on each GPU of a machine.
 *
 * Two guards would undo each other's work. The acting guard locks one file per GPU under
 * $RUNTIME_DIRECTORY or /run/gpuward with flock(2), which a crash releases, and writes its pid
 * to the file. A service that may not write there uses a file under /run/user or /tmp. */
#ifndef GW_DAEMON_GUARD_LOCK_H
#define GW_DAEMON_GUARD_LOCK_H

#include <stddef.h>
#include <stdint.h>

/* Takes the lock of a GPU, which is held until *ret_fd is closed. Returns 0; -GW_E_STATE if
 * another guard holds the lock, with the pid of that guard in *ret_pid (0: unknown); -GW_E_PERM
 * if no lock file can be created. On error, message names the file. */
int guard_lock_take(const char *uuid, int *ret_fd, int64_t *ret_pid, char *message,
		    size_t size);

#endif
