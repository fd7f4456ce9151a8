#include "deadline_wait.h"

#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <poll.h>
#include <stddef.h>

#define MOMENT_NS (400 * NS_PER_MS)

void deadline_wait_begin(struct deadline_wait *p, uint64_t most_ns,
			 const struct deadline_wait_asker *asker)
{
	*p = (struct deadline_wait){ clock_mono_ns(clock_real()) + most_ns, asker, false };
}

void deadline_wait_look(struct deadline_wait *p)
{
	uint64_t soon = clock_mono_ns(clock_real()) + MOMENT_NS;

	if (!p->asker || !p->asker->asked(p->asker->arg))
		return;
	p->lost = true;
	p->asker = NULL;
	p->until_ns = p->until_ns < soon ? p->until_ns : soon;
}

int deadline_wait_error(const struct deadline_wait *p)
{
	return p->lost ? -GW_E_STATE : -GW_E_TIMEOUT;
}

int deadline_wait_wait(struct deadline_wait *p, int fd, short events)
{
	for (;;) {
		uint64_t now = clock_mono_ns(clock_real()), left;
		struct pollfd fds[2] = { { fd, events, 0 }, { -1, POLLIN, 0 } };
		struct timespec t;
		int n;

		deadline_wait_look(p);
		fds[1].fd = p->asker ? p->asker->fd : -1;
		left = p->until_ns > now ? p->until_ns - now : 0;
		t = clock_timespec(left);
		n = ppoll(fds, 2, &t, NULL);
		if (n > 0 && fds[0].revents)
			return 0;
		if (n == 0)
			return deadline_wait_error(p);
		if (n < 0 && errno != EINTR)
			return -GW_E_IO;
	}
}
