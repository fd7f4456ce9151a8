#include "driver_call.h"

#include "context.h"
#include "nvml.h"

#include "base/mailbox.h"

#include <stdlib.h>

#define STACK_BYTES (512 * 1024)

struct call_thread {
	struct mailbox box;
	void (*fn)(void *arg); /* the function that the thread runs; NULL: the thread is idle */
	void *arg;
};

static void call_thread_dispose(void *arg)
{
	struct call_thread *l = arg;

	mailbox_done(&l->box);
	free(l);
}

static void call_thread_main(void *arg)
{
	struct call_thread *l = arg;

	mailbox_lock(&l->box);
	while (!l->box.stop) {
		if (!l->fn) {
			mailbox_wait(&l->box, UINT64_MAX);
			continue;
		}
		mailbox_unlock(&l->box);
		l->fn(l->arg);
		mailbox_lock(&l->box);
		l->fn = NULL;
		/* Unlock first, because the thread that wakes up needs the lock. */
		mailbox_unlock(&l->box);
		mailbox_notify(&l->box);
		mailbox_lock(&l->box);
	}
	mailbox_unlock(&l->box);
}

struct call_thread *call_thread_new(void)
{
	struct call_thread *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	(void)mailbox_init(&l->box, 0);
	if (mailbox_start(&l->box, STACK_BYTES, call_thread_main, call_thread_dispose, l) !=
	    0) {
		call_thread_dispose(l);
		return NULL;
	}
	return l;
}

bool call_thread_post(struct call_thread *l, void (*fn)(void *arg), void *arg)
{
	bool idle;

	mailbox_lock(&l->box);
	idle = !l->fn;
	if (idle) {
		l->arg = arg;
		l->fn = fn;
	}
	mailbox_unlock(&l->box);
	if (idle)
		mailbox_wake(&l->box);
	return idle;
}

bool call_thread_wait(struct call_thread *l, uint64_t deadline_ns)
{
	bool idle;

	mailbox_lock(&l->box);
	while (l->fn && mailbox_wait_news(&l->box, deadline_ns))
		;
	idle = !l->fn;
	mailbox_unlock(&l->box);
	return idle;
}

bool call_thread_free(struct call_thread *l)
{
	if (!l)
		return true;
	/* An idle thread ends soon. A busy thread is left behind and frees *l when its call
	 * returns. */
	if (mailbox_stop(&l->box, call_thread_wait(l, 0) ? UINT64_MAX : 0) != 0)
		return false;
	call_thread_dispose(l);
	return true;
}

_Static_assert(CALL_COUNT <= CALL_COST_CALLS, "a row for each call");

uint64_t call_cost_now_ns(void)
{
	return clock_mono_ns(clock_real());
}

uint64_t call_cost_add(struct call_cost_table *c, unsigned call, int code, uint64_t began_ns)
{
	uint64_t now = call_cost_now_ns(), ns = now - began_ns, most;
	struct call_cost_row *r;

	if (!c)
		return now;
	r = &c->row[call];
	atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->total_ns, ns, memory_order_relaxed);
	if (code != ABI_SUCCESS) {
		if (code < 0 || code >= CALL_COST_CODES)
			code = CALL_COST_CODES - 1;
		atomic_fetch_add_explicit(&r->code[code], 1, memory_order_relaxed);
	}
	most = atomic_load_explicit(&r->max_ns, memory_order_relaxed);
	while (ns > most && !atomic_compare_exchange_weak_explicit(&r->max_ns, &most, ns,
								   memory_order_relaxed,
								   memory_order_relaxed))
		;
	return now;
}
