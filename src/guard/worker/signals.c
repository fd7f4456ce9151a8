#include "guard/worker/signals.h"

#include "guard/worker/companion.h"
#include "guard/worker/recheck.h"

#include "base/clock.h"

#include "device/proc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GRACE_NS (5 * NS_PER_S) /* between SIGTERM and SIGKILL; at most half of what is left */

#define TARGETS                                      \
	(sizeof(((struct guard_order *)0)->target) / \
	 sizeof(((struct guard_order *)0)->target[0]))

/* The targets that are still who they were, each held by a pidfd. */
struct held {
	struct pollfd fd[TARGETS];
	struct checkpoint_target who[TARGETS];
	const struct guard_target *of[TARGETS];
	unsigned count;
};

/* A pidfd of the process, or a negative number: gone, or another by now.  The start time is read after
 * the opening: the pidfd holds the process that has this time, or one that has ended. */
static int hold_one(const struct worker_call *c, int64_t pid, uint64_t start_ticks)
{
	uint64_t now_ticks;
	int fd;

	if (pid <= 1 || pid == getpid() || start_ticks == 0)
		return -1;
	fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (fd < 0)
		return -errno;
	if (proc_start_ticks(c->root, pid, &now_ticks) == 0 && now_ticks == start_ticks)
		return fd;
	close(fd);
	return -1;
}

static int hold(const struct worker_call *c, struct held *ret, char *message, size_t size)
{
	unsigned n = c->order->targets;

	ret->count = 0;
	for (unsigned i = 0; i < n && i < TARGETS; i++) {
		struct checkpoint_target t = { c->order->target[i].pid,
					       c->order->target[i].start_ticks };
		int fd = hold_one(c, t.pid, t.start_ticks);

		if (fd == -ENOSYS) {
			snprintf(message, size,
				 "this kernel has no pidfd_open (Linux 5.3); nothing is "
				 "signalled");
			return -GW_E_NOSUPPORT;
		}
		if (fd < 0)
			continue;
		/* After the opening: what is read is of whom the pidfd holds. */
		if (!still_its(c, &c->order->target[i])) {
			close(fd);
			continue;
		}
		ret->of[ret->count] = &c->order->target[i];
		ret->who[ret->count] = t;
		ret->fd[ret->count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
	}
	return 0;
}

static void let_go(struct held *h)
{
	for (unsigned i = 0; i < h->count; i++)
		close(h->fd[i].fd < 0 ? ~h->fd[i].fd : h->fd[i].fd);
	h->count = 0;
}

static int companion_sends(const struct worker_call *c, const struct held *h, int signal,
			   unsigned *ret_sent, char *message, size_t size)
{
	struct checkpoint_target t[TARGETS];
	unsigned n = 0;

	for (unsigned i = 0; i < h->count; i++)
		if (h->fd[i].fd >= 0)
			t[n++] = h->who[i];
	return companion_signal(c->companion, signal, t, n, c->deadline_ns, ret_sent, message,
				size);
}

/* To those who have not ended. */
static int send_all(const struct worker_call *c, const struct held *h, int signal,
		    unsigned *ret_sent, char *message, size_t size)
{
	int rc = 0;

	*ret_sent = 0;
	if (c->companion)
		return companion_sends(c, h, signal, ret_sent, message, size);
	for (unsigned i = 0; i < h->count; i++) {
		if (h->fd[i].fd < 0)
			continue;
		if (syscall(SYS_pidfd_send_signal, h->fd[i].fd, signal, NULL, 0) == 0) {
			++*ret_sent;
		} else if (errno != ESRCH) {
			rc = errno == EPERM ? -GW_E_PERM : -GW_E_IO;
			snprintf(message, size, "process %lld cannot be signalled: %s%s",
				 (long long)h->who[i].pid, strerror(errno),
				 errno == EPERM ? " (it needs CAP_KILL or guard.companion)"
						: "");
		}
	}
	return rc;
}

int signals_send(const struct worker_call *c, int signal, unsigned *ret_sent, char *message,
		 size_t size)
{
	struct held h;
	int rc = hold(c, &h, message, size);

	*ret_sent = 0;
	if (rc)
		return rc;
	rc = send_all(c, &h, signal, ret_sent, message, size);
	let_go(&h);
	return rc;
}

/* Waits until all have ended, or until then. */
static void wait_for_end(struct held *h, uint64_t until_ns)
{
	uint64_t now = clock_mono_ns(clock_real());
	unsigned left = h->count;

	while (left > 0 && now < until_ns) {
		int n = poll(h->fd, h->count, (int)((until_ns - now) / NS_PER_MS) + 1);

		for (unsigned i = 0; n > 0 && i < h->count; i++) {
			if (!h->fd[i].revents)
				continue;
			/* It stays readable, and poll() passes over what is negative. */
			h->fd[i] = (struct pollfd){ .fd = ~h->fd[i].fd };
			left--;
		}
		now = clock_mono_ns(clock_real());
	}
}

/* Who became another program meanwhile is left alone. */
static void pass_over_others(const struct worker_call *c, struct held *h)
{
	for (unsigned i = 0; i < h->count; i++)
		if (h->fd[i].fd >= 0 && !still_its(c, h->of[i]))
			h->fd[i] = (struct pollfd){ .fd = ~h->fd[i].fd };
}

static int kill_held(const struct worker_call *c, struct held *h, char *message, size_t size)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t half = c->deadline_ns > now ? (c->deadline_ns - now) / 2 : 0;
	unsigned asked, killed = 0;
	int rc = send_all(c, h, SIGTERM, &asked, message, size);

	if (!rc && c->order->level >= 6) {
		wait_for_end(h, now + (half < GRACE_NS ? half : GRACE_NS));
		pass_over_others(c, h);
		rc = send_all(c, h, SIGKILL, &killed, message, size);
	}
	if (!rc)
		snprintf(message, size, "SIGTERM to %u processes%s", asked,
			 killed ? ", SIGKILL to those that stayed" : "");
	return rc;
}

int worker_kill(const struct worker_call *c, char *message, size_t size)
{
	struct held h;
	int rc;

	if (!c->worker->knobs.allow_kill) {
		snprintf(message, size, "signals that end a process need allow_kill = true");
		return -GW_E_PERM;
	}
	rc = hold(c, &h, message, size);
	if (rc)
		return rc;
	rc = kill_held(c, &h, message, size);
	let_go(&h);
	return rc;
}
