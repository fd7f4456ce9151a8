/* peer_process: finds the process that a client means by a pid, and checks whether the process
 * belongs to the client.
 *
 * A pid is only valid in its PID namespace. The kernel identifies a client of the UNIX socket
 * (SO_PEERCRED). So a client in a container can use its own pid in the container to name
 * itself, but it cannot name another process. */
#ifndef GW_DAEMON_PEER_PROCESS_H
#define GW_DAEMON_PEER_PROCESS_H

#include "base/proc_id.h"
#include "base/root.h"
#include "serve/guard_view.h"

/* Finds the process that the client means by the pid `named`. Sets *ret_pid to its pid in our
 * namespace and *ret_start_ticks to its start time (ticks since boot). Returns 0, or -GW_E_ARG
 * with a sentence in message: no such process, an ambiguous pid, a kernel thread, init, or this
 * service. */
int peer_process_find(const struct root *root, int64_t named, const struct guard_client *by,
		      int64_t *ret_pid, uint64_t *ret_start_ticks, char *message, size_t size);

/* Works like proc_open(), in the real /proc. */
int peer_process_open(struct proc_id id, int *ret_fd);

/* Gets the effective user of the process with this identity, in the real /proc. Returns 0, or
 * -GW_E_NOENT if the process has ended or its user is unknown. */
int peer_process_user(struct proc_id id, int64_t *ret_uid);

/* Checks whether the client may register this process as a game. This is allowed for the
 * process's user, for root, and for a client with the token. Returns 0, or -GW_E_PERM with a
 * sentence in message. */
int peer_process_game(const struct root *root, int64_t pid, const struct guard_client *by,
		      char *message, size_t size);

#endif
