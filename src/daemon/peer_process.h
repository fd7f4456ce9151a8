/* whose: which process is meant by a number that somebody names, and is it theirs?
 *
 * A number means something only in its PID namespace.  Who asks through the UNIX socket is known by the kernel's word
 * (SO_PEERCRED): one in a container can name itself by the number that it has there, and nobody else. */
#ifndef GW_DAEMON_PEER_PROCESS_H
#define GW_DAEMON_PEER_PROCESS_H

#include "base/root.h"
#include "serve/guard_view.h"

/* The number that the process has here, and when it began (ticks since boot).  0, or -GW_E_ARG with a sentence: there is
 * none, it cannot be said which one is meant, or it is of the kernel. */
int peer_process_process(const struct root *root, int64_t named, const struct guard_asker *by,
			 int64_t *ret_pid, uint64_t *ret_start_ticks, char *message,
			 size_t size);

/* May they say that it plays?  Its own user may, root, and who has the token; of init nobody: it never ends.  0, or
 * -GW_E_PERM or -GW_E_ARG with a sentence. */
int peer_process_game(const struct root *root, int64_t pid, const struct guard_asker *by,
		      char *message, size_t size);

#endif
