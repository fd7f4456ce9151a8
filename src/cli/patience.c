#include "patience.h"

#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <poll.h>
#include <stddef.h>

#define MOMENT_NS (400 * NS_PER_MS)

void patience_begin(struct patience *p, uint64_t most_ns, const struct patience_asker *asker)
{
	*p = (struct patience){ clock_mono_ns(clock_real()) + most_ns, asker, false };
}

void patience_look(struct patience *p)
{
	uint64_t soon = clock_mono_ns(clock_real()) + MOMENT_NS;

	if (!p->asker || !p->asker->asked(p->asker->arg))
		return;
	p->lost = true;
	p->asker = NULL;
	p->until_ns = p->until_ns < soon ? p->until_ns : soon;
}

int patience_error(const struct patience *p)
{
	return p->lost ? -GW_E_STATE : -GW_E_TIMEOUT;
}

int patience_wait(struct patience *p, int fd, short events)
{
	for (;;) {
		uint64_t now = clock_mono_ns(clock_real()), left;
		struct pollfd fds[2] = { { fd, events, 0 }, { -1, POLLIN, 0 } };
		struct timespec t;
		int n;

		patience_look(p);
		fds[1].fd = p->asker ? p->asker->fd : -1;
		left = p->until_ns > now ? p->until_ns - now : 0;
		t = clock_timespec(left);
		n = ppoll(fds, 2, &t, NULL);
		if (n > 0 && fds[0].revents)
			return 0;
		if (n == 0)
			return patience_error(p);
		if (n < 0 && errno != EINTR)
			return -GW_E_IO;
	}
}
