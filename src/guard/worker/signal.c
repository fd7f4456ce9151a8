/* A worker that unloads and loads when it is sent a signal.  Who is signalled is remembered before: once it has
 * left the GPU, no list of the driver's names it any more.  What is remembered may be old: it holds for this
 * start of the machine, and for who is still the worker's by the policy.  Where nobody is remembered, the
 * process that the match names is told, if the signal does not end it. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"
#include "guard/worker/signals.h"
#include "guard/worker/recheck.h"

#include "device/proc.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGETS 64

/* Signals that end or stop a process are no way to talk to it. */
static int check(const struct worker_call *c, int number, char *message, size_t size)
{
	if (number <= 0 || number >= NSIG) {
		snprintf(message, size, "no signal is named for this");
		return -GW_E_NOSUPPORT;
	}
	if (number == SIGSTOP || number == SIGTSTP) {
		snprintf(message, size, "a stopped process keeps its memory on the GPU");
		return -GW_E_NOSUPPORT;
	}
	if ((number == SIGTERM || number == SIGKILL) && !c->worker->knobs.allow_kill) {
		snprintf(message, size,
			 "this signal ends a process: it needs allow_kill = true");
		return -GW_E_PERM;
	}
	return 0;
}

static int send_to(struct worker_call *c, int number, char *message, size_t size)
{
	unsigned sent;
	int rc = signals_send(c, number, &sent, message, size);

	if (!rc && sent == 0) {
		snprintf(message, size, "none of its processes is there to be signalled");
		return -GW_E_STATE;
	}
	if (!rc)
		snprintf(message, size, "signal %d to %u processes", number, sent);
	return rc;
}

/* ---- who was signalled ---- */

static void boot_id(const struct worker_call *c, char out[static 64])
{
	if (root_read_line(c->root, "proc/sys/kernel/random/boot_id", out, 64) <= 0)
		out[0] = '\0';
}

/* Numbers and ticks of another start of the machine are nobody's now. */
static bool is_of_this_boot(const struct worker_call *c)
{
	char then[64], now[64];

	boot_id(c, now);
	return !worker_noted(c, "boot", 0, then, sizeof(then)) || !now[0] ||
	       strcmp(then, now) == 0;
}

/* Below one of its roots, or what its match says. */
static bool is_still_its(const struct worker_call *c, struct guard_target *t)
{
	if (proc_lives(c->root, t->pid, t->start_ticks) <= 0)
		return false;
	t->itself = true;
	for (unsigned i = 0; i < c->order->roots; i++) {
		if (t->pid == c->order->root[i].pid) {
			t->print = c->order->root[i].print;
			return true;
		}
		if (proc_in_tree(c->root, t->pid, c->order->root[i].pid)) {
			t->itself = false;
			return true;
		}
	}
	return still_matches(c, t);
}

static int learn(struct worker_call *c, char *message, size_t size)
{
	int rc = check(c, c->worker->evict_signal, message, size);
	char who[64];

	if (rc)
		return rc;
	if (!is_of_this_boot(c))
		c->state[0] = '\0';
	boot_id(c, who);
	if (who[0])
		worker_note(c, "boot", who);
	for (unsigned i = 0; i < c->order->targets && i < TARGETS; i++) {
		snprintf(who, sizeof(who), "%" PRId64 " %" PRIu64, c->order->target[i].pid,
			 c->order->target[i].start_ticks);
		worker_note(c, "process", who);
	}
	return 0;
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	int rc = check(c, c->worker->evict_signal, message, size);

	return rc ? rc : send_to(c, c->worker->evict_signal, message, size);
}

/* ---- who is told to come back ---- */

static void add(struct guard_order *order, const struct guard_target *t)
{
	for (unsigned i = 0; i < order->targets; i++)
		if (order->target[i].pid == t->pid &&
		    order->target[i].start_ticks == t->start_ticks)
			return;
	if (order->targets < GUARD_TARGETS)
		order->target[order->targets++] = *t;
}

static void recall(const struct worker_call *c, struct guard_order *order)
{
	char who[64];

	for (unsigned i = 0; i < TARGETS && worker_noted(c, "process", i, who, sizeof(who));
	     i++) {
		struct guard_target t = { .pid = 0 };

		if (sscanf(who, "%" SCNd64 " %" SCNu64, &t.pid, &t.start_ticks) == 2 &&
		    is_still_its(c, &t))
			add(order, &t);
	}
}

/* One that does not catch it would end of it: a shell that only started the worker, say. */
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

static void take_roots(const struct worker_call *c, struct guard_order *order)
{
	for (unsigned i = 0; i < order->roots; i++)
		if (catches(c, order->root[i].pid, c->worker->resume_signal))
			add(order,
			    &(struct guard_target){ .pid = order->root[i].pid,
						    .start_ticks = order->root[i].start_ticks,
						    .itself = true,
						    .print = order->root[i].print });
}

/* Those who were signalled to leave, and who is on the GPU: of several one may have left a rest there.  Nobody, where
 * the notes were lost: then its roots. */
static int resume(struct worker_call *c, char *message, size_t size)
{
	struct guard_order order = *c->order;
	struct worker_call call = *c;
	int rc = check(c, c->worker->resume_signal, message, size);

	if (rc)
		return rc;
	call.order = &order;
	if (is_of_this_boot(c))
		recall(c, &order);
	if (!order.targets)
		take_roots(c, &order);
	if (order.targets)
		return send_to(&call, c->worker->resume_signal, message, size);
	snprintf(
		message, size,
		"none of its processes is there to be signalled: send it signal %d by hand, or "
		"start it again",
		c->worker->resume_signal);
	return -GW_E_STATE;
}

const struct worker_ops worker_signal = { .learn = learn, .evict = evict, .resume = resume };
