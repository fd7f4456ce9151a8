#include "loop.h"

#include "array.h"
#include "clock.h"

#include <gpuward.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define BATCH 64       /* events per epoll_wait() */
#define OFF   UINT_MAX /* position of a timer that is not in the heap */

enum kind { KIND_FD, KIND_TIMER, KIND_SIGNALS };

struct loop_source {
	struct loop *loop;
	enum kind kind;
	/* The source was removed. It is freed at the end of the round, because the events of
	 * this round may still refer to it. */
	bool removed;
	struct loop_source *next; /* next source in the list of removed sources */
	int fd;
	union {
		loop_fd_fn *fd;
		loop_timer_fn *timer;
		loop_signal_fn *on_signal;
	} fn;
	void *arg;
	uint64_t at_ns; /* when the timer fires */
	unsigned place; /* position in the heap, or OFF */
};

struct loop {
	int epoll;
	bool stop;
	bool in_round;
	uint64_t wakeups;
	uint64_t round_ns; /* The current round calls the timers that are due at this time. */
	/* A heap of the timers that are on, the earliest first. It has memory for all
	 * timers. */
	struct loop_source **heap;
	unsigned timers;
	unsigned heaped; /* number of timers in the heap */
	unsigned room;   /* number of timers for which the heap has memory */
	struct loop_source *to_free;
};

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return -GW_E_NOMEM;
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0) {
		free(l);
		return -GW_E_IO;
	}
	*ret = l;
	return 0;
}

static void free_removed(struct loop *l)
{
	while (l->to_free) {
		struct loop_source *s = l->to_free;

		l->to_free = s->next;
		free(s);
	}
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	free_removed(l);
	close(l->epoll);
	free(l->heap);
	free(l);
}

static struct loop_source *source_new(struct loop *l, enum kind kind, int fd, void *arg)
{
	struct loop_source *s = calloc(1, sizeof(*s));

	if (s) {
		s->loop = l;
		s->kind = kind;
		s->fd = fd;
		s->arg = arg;
		s->place = OFF;
	}
	return s;
}

static int epoll_set(struct loop_source *s, int op, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (epoll_ctl(s->loop->epoll, op, s->fd, &e) != 0)
		return errno == ENOMEM ? -GW_E_NOMEM : -GW_E_IO;
	return 0;
}

int loop_add_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn *fn, void *arg,
		struct loop_source **ret)
{
	struct loop_source *s = source_new(l, KIND_FD, fd, arg);

	if (!s)
		return -GW_E_NOMEM;
	s->fn.fd = fn;

	int r = epoll_set(s, EPOLL_CTL_ADD, events);

	if (r != 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int loop_set_events(struct loop_source *s, uint32_t events)
{
	return epoll_set(s, EPOLL_CTL_MOD, events);
}

static void heap_put(struct loop *l, unsigned place, struct loop_source *s)
{
	l->heap[place] = s;
	s->place = place;
}

static void heap_up(struct loop *l, unsigned i)
{
	struct loop_source *s = l->heap[i];

	for (; i > 0 && l->heap[(i - 1) / 2]->at_ns > s->at_ns; i = (i - 1) / 2)
		heap_put(l, i, l->heap[(i - 1) / 2]);
	heap_put(l, i, s);
}

static void heap_down(struct loop *l, unsigned i)
{
	struct loop_source *s = l->heap[i];
	unsigned child;

	while ((child = 2 * i + 1) < l->heaped) {
		if (child + 1 < l->heaped && l->heap[child + 1]->at_ns < l->heap[child]->at_ns)
			child++;
		if (s->at_ns <= l->heap[child]->at_ns)
			break;
		heap_put(l, i, l->heap[child]);
		i = child;
	}
	heap_put(l, i, s);
}

static void heap_remove(struct loop *l, struct loop_source *s)
{
	unsigned i = s->place;
	struct loop_source *last = l->heap[--l->heaped];

	s->place = OFF;
	if (last == s)
		return;
	heap_put(l, i, last);
	heap_down(l, i);
	heap_up(l, last->place);
}

int loop_add_timer(struct loop *l, loop_timer_fn *fn, void *arg, struct loop_source **ret)
{
	/* Allocate here, so that loop_set_time() cannot fail. */
	if (array_reserve(&l->heap, &l->room, l->timers + 1, sizeof(struct loop_source *)) != 0)
		return -GW_E_NOMEM;

	struct loop_source *s = source_new(l, KIND_TIMER, -1, arg);

	if (!s)
		return -GW_E_NOMEM;
	s->fn.timer = fn;
	l->timers++;
	*ret = s;
	return 0;
}

void loop_set_time(struct loop_source *s, uint64_t at_ns)
{
	struct loop *l = s->loop;

	if (s->place != OFF)
		heap_remove(l, s);
	if (at_ns && l->in_round && at_ns <= l->round_ns)
		at_ns = l->round_ns + 1;
	s->at_ns = at_ns;
	if (at_ns == 0)
		return;
	heap_put(l, l->heaped, s);
	heap_up(l, l->heaped++);
}

int loop_add_signals(struct loop *l, const int *signals, loop_signal_fn *fn, void *arg,
		     struct loop_source **ret)
{
	sigset_t set;

	sigemptyset(&set);
	for (; *signals; signals++)
		sigaddset(&set, *signals);
	pthread_sigmask(SIG_BLOCK, &set, NULL);

	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);

	if (fd < 0)
		return -GW_E_IO;

	struct loop_source *s = source_new(l, KIND_SIGNALS, fd, arg);
	int r = s ? 0 : -GW_E_NOMEM;

	if (s) {
		s->fn.on_signal = fn;
		r = epoll_set(s, EPOLL_CTL_ADD, EPOLLIN);
	}
	if (r != 0) {
		free(s);
		close(fd);
		return r;
	}
	*ret = s;
	return 0;
}

static void read_signals(struct loop_source *s)
{
	struct signalfd_siginfo info;

	while (!s->removed && read(s->fd, &info, sizeof(info)) == sizeof(info))
		s->fn.on_signal(s->arg, (int)info.ssi_signo);
}

void loop_remove(struct loop_source *s)
{
	if (!s || s->removed)
		return;

	struct loop *l = s->loop;

	if (s->kind == KIND_TIMER) {
		loop_set_time(s, 0);
		l->timers--;
	} else {
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
		if (s->kind == KIND_SIGNALS)
			close(s->fd);
	}
	s->removed = true;
	s->next = l->to_free;
	l->to_free = s;
	if (!l->in_round)
		free_removed(l);
}

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* Returns the timeout for epoll_wait(). Rounds up, because a wake-up slightly before the time
 * of a timer would cost another round. */
static int wait_ms(const struct loop *l, uint64_t timeout_ns)
{
	uint64_t now, ms;

	if (l->heaped > 0 && timeout_ns > 0) {
		now = now_ns();
		if (l->heap[0]->at_ns <= now)
			return 0;
		if (l->heap[0]->at_ns - now < timeout_ns)
			timeout_ns = l->heap[0]->at_ns - now;
	}
	if (timeout_ns == UINT64_MAX)
		return -1;
	ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
	return ms > 3600000 ? 3600000 : (int)ms;
}

static void fire_timers(struct loop *l)
{
	if (l->heaped == 0)
		return;

	uint64_t now = now_ns();

	/* A timer that sets itself to a past time waits for the next round (loop_set_time()),
	 * so that other timers get their turn. */
	l->round_ns = now;
	for (unsigned n = l->heaped; n > 0 && l->heaped > 0 && l->heap[0]->at_ns <= now; n--) {
		struct loop_source *s = l->heap[0];

		heap_remove(l, s);
		s->at_ns = 0;
		s->fn.timer(s->arg, now);
	}
}

void loop_once(struct loop *l, uint64_t timeout_ns)
{
	struct epoll_event batch[BATCH];
	int n = epoll_wait(l->epoll, batch, BATCH, wait_ms(l, timeout_ns));

	l->wakeups++;
	l->in_round = true;
	for (int i = 0; i < n; i++) {
		struct loop_source *s = batch[i].data.ptr;

		if (s->removed)
			continue;
		if (s->kind == KIND_SIGNALS)
			read_signals(s);
		else
			s->fn.fd(s->arg, s->fd, batch[i].events);
	}
	fire_timers(l);
	l->in_round = false;
	free_removed(l);
}

void loop_run(struct loop *l)
{
	while (!l->stop)
		loop_once(l, UINT64_MAX);
	l->stop = false;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}

uint64_t loop_wakeups(const struct loop *l)
{
	return l->wakeups;
}
