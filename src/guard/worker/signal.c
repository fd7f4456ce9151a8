/* Kind "signal": a worker that unloads and loads when it receives a signal. Also carries out
 * levels 5 and 6 for workers of every kind. No other file signals a process.
 *
 * A signal is sent through a pidfd. The start time is read again after the pidfd was opened,
 * and must be the one in the order. The process must also still belong to the worker
 * (worker_process_belongs). The signalled processes are noted first, because the driver no
 * longer lists them after they have left the GPU. */
#include "guard/worker/common.h"
#include "guard/worker/companion.h"

#include "base/clock.h"

#include "device/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* time between SIGTERM and SIGKILL; at most half of the remaining time */
#define GRACE_NS (5 * NS_PER_S)

/* The targets of an order that are still the same processes, each with a pidfd. If a process
 * must get no further signal, its descriptor is replaced by its complement (~fd), a negative
 * number that poll() ignores. */
struct held {
	struct pollfd fd[GUARD_TARGETS];
	const struct guard_target *target[GUARD_TARGETS];
	unsigned count;
};

/* Returns a pidfd; -ENOSYS: the kernel has no pidfds; another negative number: the process must
 * not be signalled. It is the calling process, it has ended, its pid was reused, or it no
 * longer belongs to the worker. */
static int hold_one(const struct worker_call *c, const struct guard_target *t)
{
	int fd;

	if (t->id.pid <= 1 || t->id.pid == getpid() || t->id.start_ticks == 0)
		return -1;
	(void)proc_open(c->root, t->id, &fd);
	if (fd < 0 || worker_process_belongs(c, t))
		return fd;
	close(fd);
	return -1;
}

static int hold_targets(const struct worker_call *c, struct held *ret)
{
	ret->count = 0;
	for (unsigned i = 0; i < c->order->targets && i < GUARD_TARGETS; i++) {
		int fd = hold_one(c, &c->order->target[i]);

		if (fd == -ENOSYS)
			return worker_fail(c, -GW_E_NOSUPPORT,
					   "this kernel has no pidfd_open (it needs Linux "
					   "5.3), so no process is signalled");
		if (fd < 0)
			continue;
		ret->target[ret->count] = &c->order->target[i];
		ret->fd[ret->count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
	}
	return 0;
}

static void release_targets(struct held *h)
{
	for (unsigned i = 0; i < h->count; i++)
		close(h->fd[i].fd < 0 ? ~h->fd[i].fd : h->fd[i].fd);
	h->count = 0;
}

static int send_by_companion(const struct worker_call *c, const struct held *h, int signal,
			     unsigned *ret_sent)
{
	struct proc_id id[GUARD_TARGETS];
	unsigned n = 0;

	for (unsigned i = 0; i < h->count; i++)
		if (h->fd[i].fd >= 0)
			id[n++] = h->target[i]->id;
	return companion_signal(c->companion, signal, id, n, c->deadline_ns, ret_sent,
				c->message, c->message_size);
}

static int send_to_held(const struct worker_call *c, const struct held *h, int signal,
			unsigned *ret_sent)
{
	int rc = 0;

	*ret_sent = 0;
	if (c->companion)
		return send_by_companion(c, h, signal, ret_sent);
	for (unsigned i = 0; i < h->count; i++) {
		if (h->fd[i].fd < 0)
			continue;
		if (syscall(SYS_pidfd_send_signal, h->fd[i].fd, signal, NULL, 0) == 0)
			++*ret_sent;
		else if (errno != ESRCH)
			rc = worker_fail(c, errno == EPERM ? -GW_E_PERM : -GW_E_IO,
					 "process %lld cannot be signalled: %s%s",
					 (long long)h->target[i]->id.pid, strerror(errno),
					 errno == EPERM
						 ? " (it needs CAP_KILL or guard.companion)"
						 : "");
	}
	return rc;
}

static void wait_for_end(struct held *h, uint64_t until_ns)
{
	uint64_t now = clock_mono_ns(clock_real());
	unsigned left = h->count;

	while (left > 0 && now < until_ns) {
		int n = poll(h->fd, h->count, (int)((until_ns - now) / NS_PER_MS) + 1);

		for (unsigned i = 0; n > 0 && i < h->count; i++) {
			if (!h->fd[i].revents)
				continue;
			h->fd[i] = (struct pollfd){ .fd = ~h->fd[i].fd };
			left--;
		}
		now = clock_mono_ns(clock_real());
	}
}

static int kill_held(const struct worker_call *c, struct held *h)
{
	uint64_t now = clock_mono_ns(clock_real());
	uint64_t half = c->deadline_ns > now ? (c->deadline_ns - now) / 2 : 0;
	unsigned asked, killed = 0;
	int rc = send_to_held(c, h, SIGTERM, &asked);

	if (!rc && c->order->level >= LEVEL_KILL) {
		wait_for_end(h, now + (half < GRACE_NS ? half : GRACE_NS));
		/* A process may have called exec() or left the worker since SIGTERM. Then it
		 * gets no SIGKILL. */
		for (unsigned i = 0; i < h->count; i++)
			if (h->fd[i].fd >= 0 && !worker_process_belongs(c, h->target[i]))
				h->fd[i] = (struct pollfd){ .fd = ~h->fd[i].fd };
		rc = send_to_held(c, h, SIGKILL, &killed);
	}
	return rc ? rc
		  : worker_ok(c, "sent SIGTERM to %u process%s%s", asked,
			      asked == 1 ? "" : "es",
			      killed ? ", and SIGKILL to those that did not end" : "");
}

int worker_kill(const struct worker_call *c)
{
	struct held h;
	int rc;

	if (!c->worker->knobs.allow_kill)
		return worker_fail(
			c, -GW_E_PERM,
			"levels 5 and 6 end a process: set allow_kill = true to allow them");
	rc = hold_targets(c, &h);
	rc = rc ? rc : kill_held(c, &h);
	release_targets(&h);
	return rc;
}

static int check_signal(const struct worker_call *c, int number)
{
	if (number <= 0 || number >= NSIG)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "no signal is configured for this order");
	if (number == SIGSTOP || number == SIGTSTP)
		return worker_fail(c, -GW_E_NOSUPPORT,
				   "this signal frees no memory: a stopped process keeps its "
				   "memory on the GPU");
	if ((number == SIGTERM || number == SIGKILL) && !c->worker->knobs.allow_kill)
		return worker_fail(
			c, -GW_E_PERM,
			"this signal ends a process: set allow_kill = true to allow it");
	return 0;
}

static int send_signal(const struct worker_call *c, int number)
{
	struct held h;
	unsigned sent = 0;
	int rc = hold_targets(c, &h);

	rc = rc ? rc : send_to_held(c, &h, number, &sent);
	release_targets(&h);
	if (rc)
		return rc;
	return sent ? worker_ok(c, "sent signal %d to %u process%s", number, sent,
				sent == 1 ? "" : "es")
		    : worker_fail(c, -GW_E_STATE, "none of its processes can be signalled");
}

static void boot_id(const struct worker_call *c, char out[static 64])
{
	if (root_read_line(c->root, "proc/sys/kernel/random/boot_id", out, 64) <= 0)
		out[0] = '\0';
}

/* False if the notes are from an earlier boot: now their pids and start times may belong to
 * other processes. True if one of the boots is unknown. */
static bool notes_are_of_this_boot(const struct worker_call *c)
{
	char then[64], now[64];

	boot_id(c, now);
	return !worker_noted(c, "boot", 0, then, sizeof(then)) || !now[0] ||
	       strcmp(then, now) == 0;
}

static int signal_learn(struct worker_call *c)
{
	int rc = check_signal(c, c->worker->evict_signal);
	char text[64];

	if (rc)
		return rc;
	if (!notes_are_of_this_boot(c))
		c->notes[0] = '\0';
	boot_id(c, text);
	if (text[0])
		worker_note(c, "boot", text);
	for (unsigned i = 0; i < c->order->targets && i < GUARD_TARGETS; i++)
		worker_note_process(c, c->order->target[i].id);
	return 0;
}

static int signal_evict(struct worker_call *c)
{
	int rc = check_signal(c, c->worker->evict_signal);

	return rc ? rc : send_signal(c, c->worker->evict_signal);
}

static void add_target(struct guard_order *order, const struct guard_target *t)
{
	for (unsigned i = 0; i < order->targets; i++)
		if (proc_id_equal(order->target[i].id, t->id))
			return;
	if (order->targets < GUARD_TARGETS)
		order->target[order->targets++] = *t;
}

/* True if a noted process still belongs to the worker: it is a root, a descendant of a root, or
 * the match finds it. Sets t->itself and t->print. */
static bool noted_belongs(const struct worker_call *c, struct guard_target *t)
{
	if (proc_lives(c->root, t->id.pid, t->id.start_ticks) <= 0)
		return false;
	t->itself = true;
	for (unsigned i = 0; i < c->order->roots; i++) {
		if (t->id.pid == c->order->root[i].id.pid) {
			t->print = c->order->root[i].print;
			return true;
		}
		if (proc_in_tree(c->root, t->id.pid, c->order->root[i].id.pid)) {
			t->itself = false;
			return true;
		}
	}
	return worker_process_matches(c, t);
}

static void add_noted(const struct worker_call *c, struct guard_order *order)
{
	struct proc_id id[GUARD_TARGETS];
	const unsigned n = worker_noted_processes(c, id, GUARD_TARGETS);

	for (unsigned i = 0; i < n; i++) {
		struct guard_target t = { .id = id[i] };

		if (noted_belongs(c, &t))
			add_target(order, &t);
	}
}

/* True if the process has a handler for the signal. Without a handler the signal would end the
 * process, for example a shell that only started the worker. */
static bool catches(const struct worker_call *c, int64_t pid, int number)
{
	static const char key[] = "\nSigCgt:";
	char path[64], text[4096], *found;

	root_path(path, sizeof(path), "proc/%lld/status", (long long)pid);
	if (root_read(c->root, path, text, sizeof(text)) < 0)
		return false;
	found = strstr(text, key);
	return found && strtoull(found + strlen(key), NULL, 16) >> (number - 1) & 1;
}

static void add_roots(const struct worker_call *c, struct guard_order *order)
{
	for (unsigned i = 0; i < order->roots; i++)
		if (catches(c, order->root[i].id.pid, c->worker->resume_signal))
			add_target(order,
				   &(struct guard_target){ .id = order->root[i].id,
							   .itself = true,
							   .print = order->root[i].print });
}

/* Signals the processes that were signalled to leave. Also signals the worker's processes on
 * the GPU, because some may have kept memory. If neither kind of process exists, because the
 * notes were lost, signals the worker's roots. */
static int signal_resume(struct worker_call *c)
{
	struct guard_order order = *c->order;
	struct worker_call call = *c;
	int rc = check_signal(c, c->worker->resume_signal);

	if (rc)
		return rc;
	call.order = &order;
	if (notes_are_of_this_boot(c))
		add_noted(c, &order);
	if (!order.targets)
		add_roots(c, &order);
	if (order.targets)
		return send_signal(&call, c->worker->resume_signal);
	return worker_fail(c, -GW_E_STATE,
			   "the guard found no process of the worker that handles signal %d: "
			   "send it by hand to the right process, or start the worker again",
			   c->worker->resume_signal);
}

const struct worker_ops worker_signal = { .learn = signal_learn,
					  .evict = signal_evict,
					  .resume = signal_resume };
