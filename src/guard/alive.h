/* alive: which of the processes that are known still live, asked with one system call for all.
 *
 * Reading the start of one process out of /proc takes 10 to 20 us; ten looks a second at every process on a
 * GPU would cost more than all the rest of a look.  A process that is kept here has a descriptor of its own
 * (pidfd): as long as that says nothing, its number is nobody else's.  Where there are none (old kernels,
 * threads, trees of a test, more than fit) nobody is known, and /proc is asked as before. */
#ifndef GW_GUARD_ALIVE_H
#define GW_GUARD_ALIVE_H

#include "base/root.h"

#include <poll.h>

#define ALIVE_MAX 192 /* descriptors; a service has 1024 at least */

struct alive {
	const struct root *root;
	struct pollfd fd[ALIVE_MAX];
	struct {
		int64_t pid;
		uint64_t start_ticks;
		bool wanted; /* since alive_ask() */
	} of[ALIVE_MAX];
	unsigned count, at; /* at: where the one asked for next probably is */
};

/* Borrows root. */
void alive_init(struct alive *a, const struct root *root);
void alive_done(struct alive *a);

/* Forgets those that ended, and those that nobody asked for since the last call. */
void alive_ask(struct alive *a);

/* Did it live at the last alive_ask()?  False: it is not known. */
bool alive_knows(struct alive *a, int64_t pid, uint64_t start_ticks);

/* Knows it from now on, where that is possible. */
void alive_keep(struct alive *a, int64_t pid, uint64_t start_ticks);

#endif
