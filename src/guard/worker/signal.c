/* A worker that unloads and loads when it is sent a signal.  Who was signalled is remembered: once it has
 * left the GPU, no list of the driver's names it any more. */
#include "guard/worker/common.h"
#include "guard/worker/kinds.h"
#include "guard/worker/signals.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
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

static int evict(struct worker_call *c, char *message, size_t size)
{
	int rc = check(c, c->worker->evict_signal, message, size);
	char who[64];

	for (unsigned i = 0; !rc && i < c->order->targets && i < TARGETS; i++) {
		snprintf(who, sizeof(who), "%" PRId64 " %" PRIu64, c->order->target[i].pid,
			 c->order->target[i].start_ticks);
		worker_note(c, "process", who);
	}
	return rc ? rc : send_to(c, c->worker->evict_signal, message, size);
}

/* The order's targets, or those who were signalled to leave. */
static int resume(struct worker_call *c, char *message, size_t size)
{
	struct guard_order order = *c->order;
	struct worker_call call = *c;
	int rc = check(c, c->worker->resume_signal, message, size);
	char who[64];

	if (rc)
		return rc;
	call.order = &order;
	for (unsigned i = 0; c->order->targets == 0 && i < TARGETS &&
			     worker_noted(c, "process", i, who, sizeof(who));
	     i++)
		if (sscanf(who, "%" SCNd64 " %" SCNu64, &order.target[i].pid,
			   &order.target[i].start_ticks) == 2)
			order.targets = i + 1;
	return send_to(&call, c->worker->resume_signal, message, size);
}

const struct worker_ops worker_signal = { .evict = evict, .resume = resume };
