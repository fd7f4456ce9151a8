#include "driver_call.h"

#include "context.h"
#include "nvml.h"

#include "base/mailbox.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define STACK_BYTES (512 * 1024)

struct call_thread {
	pthread_mutex_t lock;
	pthread_cond_t change;
	pthread_t thread;
	void (*fn)(void *arg); /* NULL: idle */
	void *arg;
	enum {
		OWNER_PRESENT,
		OWNER_JOINS, /* the thread must end; the owner waits for it and frees this struct */
		OWNER_GONE, /* the thread must end and frees this struct itself */
	} owner;
};

static void call_thread_dispose(struct call_thread *l)
{
	pthread_cond_destroy(&l->change);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void *call_thread_main(void *ctx)
{
	struct call_thread *l = ctx;

	pthread_mutex_lock(&l->lock);
	while (l->owner == OWNER_PRESENT) {
		if (!l->fn) {
			pthread_cond_wait(&l->change, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		l->fn(l->arg);
		pthread_mutex_lock(&l->lock);
		l->fn = NULL;
		/* Unlock first, because the thread that wakes up needs the lock. */
		pthread_mutex_unlock(&l->lock);
		pthread_cond_broadcast(&l->change);
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_unlock(&l->lock);
	if (l->owner == OWNER_GONE)
		call_thread_dispose(l);
	return NULL;
}

struct call_thread *call_thread_new(void)
{
	struct call_thread *l = calloc(1, sizeof(*l));
	pthread_condattr_t attr;

	if (!l)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->change, &attr);
	pthread_condattr_destroy(&attr);
	if (thread_start(&l->thread, STACK_BYTES, call_thread_main, l) != 0) {
		call_thread_dispose(l);
		return NULL;
	}
	return l;
}

bool call_thread_post(struct call_thread *l, void (*fn)(void *arg), void *arg)
{
	bool idle;

	pthread_mutex_lock(&l->lock);
	idle = !l->fn;
	if (idle) {
		l->arg = arg;
		l->fn = fn;
	}
	pthread_mutex_unlock(&l->lock);
	if (idle)
		pthread_cond_broadcast(&l->change);
	return idle;
}

bool call_thread_wait(struct call_thread *l, uint64_t deadline_ns)
{
	struct timespec until = clock_timespec(deadline_ns);
	bool idle;

	pthread_mutex_lock(&l->lock);
	while (l->fn && pthread_cond_timedwait(&l->change, &l->lock, &until) != ETIMEDOUT)
		;
	idle = !l->fn;
	pthread_mutex_unlock(&l->lock);
	return idle;
}

bool call_thread_free(struct call_thread *l)
{
	bool idle;

	if (!l)
		return true;
	pthread_mutex_lock(&l->lock);
	idle = !l->fn;
	l->owner = idle ? OWNER_JOINS : OWNER_GONE;
	if (!idle) /* before the unlock, because the thread may then end */
		pthread_detach(l->thread);
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	if (!idle)
		return false;
	pthread_join(l->thread, NULL);
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
