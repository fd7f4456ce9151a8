/* alive: which of the processes that are known still live, asked with one system call for all.
 *
 * Reading the start of one process out of /proc takes 10 to 20 us; ten looks a second at every process on a
 * GPU would cost more than all the rest of a look.  A process that is kept here has a descriptor of its own
 * (pidfd): as long as that says nothing, its number is nobody else's.  Where there are none (old kernels,
 * threads, trees of a test, more than fit) nobody is known, and /proc is asked as before. */
#ifndef GW_GUARD_PIDFD_SET_H
#define GW_GUARD_PIDFD_SET_H

#include "base/root.h"

#include <poll.h>

#define PIDFD_SET_MAX 192 /* descriptors; a service has 1024 at least */

struct pidfd_set {
	const struct root *root;
	struct pollfd fd[PIDFD_SET_MAX];
	struct {
		int64_t pid;
		uint64_t start_ticks;
		bool wanted; /* since pidfd_set_poll() */
	} of[PIDFD_SET_MAX];
	unsigned count, at; /* at: where the one asked for next probably is */
};

/* Borrows root. */
void pidfd_set_init(struct pidfd_set *a, const struct root *root);
void pidfd_set_done(struct pidfd_set *a);

/* Forgets those that ended, and those that nobody asked for since the last call. */
void pidfd_set_poll(struct pidfd_set *a);

/* Did it live at the last pidfd_set_poll()?  False: it is not known. */
bool pidfd_set_knows(struct pidfd_set *a, int64_t pid, uint64_t start_ticks);

/* Knows it from now on, where that is possible. */
void pidfd_set_keep(struct pidfd_set *a, int64_t pid, uint64_t start_ticks);

#endif
