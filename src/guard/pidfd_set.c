#include "pidfd_set.h"

#include "device/proc.h"

#include <sys/syscall.h>
#include <unistd.h>

void pidfd_set_init(struct pidfd_set *a, const struct root *root)
{
	a->root = root;
	a->count = a->at = 0;
}

static void drop(struct pidfd_set *a, unsigned i)
{
	close(a->fd[i].fd);
	a->count--;
	a->fd[i] = a->fd[a->count];
	a->of[i] = a->of[a->count];
}

void pidfd_set_done(struct pidfd_set *a)
{
	while (a->count)
		drop(a, a->count - 1);
}

void pidfd_set_poll(struct pidfd_set *a)
{
	bool asked = a->count && poll(a->fd, a->count, 0) >= 0;

	for (unsigned i = a->count; i-- > 0;) {
		bool ended = !asked || a->fd[i].revents;

		if (ended || !a->of[i].wanted)
			drop(a, i);
		else
			a->of[i].wanted = false;
	}
	a->at = 0;
}

bool pidfd_set_knows(struct pidfd_set *a, int64_t pid, uint64_t start_ticks)
{
	for (unsigned n = 0; n < a->count; n++, a->at++) {
		if (a->at >= a->count)
			a->at = 0;
		if (a->of[a->at].pid != pid || a->of[a->at].start_ticks != start_ticks)
			continue;
		a->of[a->at++].wanted = true;
		return true;
	}
	return false;
}

void pidfd_set_keep(struct pidfd_set *a, int64_t pid, uint64_t start_ticks)
{
	uint64_t start;
	int fd;

	if (!a->root->real || a->count == PIDFD_SET_MAX || pidfd_set_knows(a, pid, start_ticks))
		return;
	fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (fd < 0)
		return;
	/* Between reading who it is and opening it, the number may have changed hands. */
	if (proc_start_ticks(a->root, pid, &start) != 0 || start != start_ticks) {
		close(fd);
		return;
	}
	a->fd[a->count] = (struct pollfd){ fd, POLLIN, 0 };
	a->of[a->count].pid = pid;
	a->of[a->count].start_ticks = start_ticks;
	a->of[a->count++].wanted = true;
}
