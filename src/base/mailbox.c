#include "mailbox.h"

#include "base/clock.h"

#include <gpuward.h>

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

int thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int e;

	if (pthread_attr_init(&attr) != 0)
		return -GW_E_NOMEM;
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = pthread_create(ret, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return e ? -GW_E_NOMEM : 0;
}

int mailbox_init(struct mailbox *m, unsigned flags)
{
	pthread_condattr_t attr;

	*m = (struct mailbox){ .wake_fd = -1, .news_fd = -1 };
	pthread_mutex_init(&m->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&m->wake, &attr);
	pthread_cond_init(&m->news, &attr);
	pthread_condattr_destroy(&attr);
	if (flags & MAILBOX_WAKE_FD)
		m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (flags & MAILBOX_NEWS_FD)
		m->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return ((flags & MAILBOX_WAKE_FD) && m->wake_fd < 0) ||
			       ((flags & MAILBOX_NEWS_FD) && m->news_fd < 0)
		       ? -GW_E_IO
		       : 0;
}

void mailbox_done(struct mailbox *m)
{
	if (m->wake_fd >= 0)
		close(m->wake_fd);
	if (m->news_fd >= 0)
		close(m->news_fd);
	pthread_cond_destroy(&m->wake);
	pthread_cond_destroy(&m->news);
	pthread_mutex_destroy(&m->lock);
}

static void *mailbox_run(void *arg)
{
	struct mailbox *m = arg;
	void (*orphaned)(void *arg) = NULL;

	m->run(m->arg);
	mailbox_lock(m);
	m->running--;
	if (m->left_behind && m->running == 0)
		orphaned = m->orphaned;
	pthread_cond_broadcast(&m->news);
	mailbox_unlock(m);
	if (orphaned)
		orphaned(m->arg);
	return NULL;
}

int mailbox_start(struct mailbox *m, size_t stack_bytes, void (*run)(void *arg),
		  void (*orphaned)(void *arg), void *arg)
{
	if (m->started == MAILBOX_THREADS)
		return -GW_E_NOMEM;
	if (m->started == 0) {
		m->run = run;
		m->orphaned = orphaned;
		m->arg = arg;
	}
	m->running++; /* Count the thread before it can end. */
	if (thread_start(&m->thread[m->started], stack_bytes, mailbox_run, m) != 0) {
		m->running--;
		return -GW_E_NOMEM;
	}
	m->started++;
	return 0;
}

void mailbox_wake(struct mailbox *m)
{
	pthread_cond_signal(&m->wake);
	if (m->wake_fd >= 0)
		/* This fails only if the descriptor is already readable. */
		(void)eventfd_write(m->wake_fd, 1);
}

void mailbox_notify(struct mailbox *m)
{
	pthread_cond_broadcast(&m->news);
	if (m->news_fd >= 0)
		(void)eventfd_write(m->news_fd, 1);
}

static bool wait_on(struct mailbox *m, pthread_cond_t *condition, uint64_t until_ns)
{
	struct timespec until = clock_timespec(until_ns);

	if (until_ns == UINT64_MAX)
		return pthread_cond_wait(condition, &m->lock) == 0;
	return pthread_cond_timedwait(condition, &m->lock, &until) != ETIMEDOUT;
}

bool mailbox_wait(struct mailbox *m, uint64_t until_ns)
{
	return wait_on(m, &m->wake, until_ns);
}

bool mailbox_wait_news(struct mailbox *m, uint64_t until_ns)
{
	return wait_on(m, &m->news, until_ns);
}

bool mailbox_clear(int fd)
{
	eventfd_t n;

	return eventfd_read(fd, &n) == 0;
}

void mailbox_request_stop(struct mailbox *m)
{
	mailbox_lock(m);
	m->stop = true;
	pthread_cond_broadcast(&m->wake);
	mailbox_unlock(m);
	if (m->wake_fd >= 0)
		(void)eventfd_write(m->wake_fd, 1);
}

bool mailbox_stopping(struct mailbox *m)
{
	bool stop;

	mailbox_lock(m);
	stop = m->stop;
	mailbox_unlock(m);
	return stop;
}

int mailbox_join(struct mailbox *m)
{
	pthread_t thread[MAILBOX_THREADS];
	unsigned n = m->started;
	bool hangs = m->running > 0;

	for (unsigned i = 0; i < n; i++) {
		thread[i] = m->thread[i];
		if (hangs)
			pthread_detach(thread[i]); /* orphaned() may free m after the unlock */
	}
	m->left_behind = hangs;
	mailbox_unlock(m);
	if (hangs)
		return -GW_E_STATE;
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	m->started = 0;
	return 0;
}

int mailbox_stop(struct mailbox *m, uint64_t timeout_ns)
{
	const uint64_t now_ns = clock_mono_ns(clock_real());
	const uint64_t until_ns =
		timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;

	mailbox_request_stop(m);
	mailbox_lock(m);
	while (m->running && mailbox_wait_news(m, until_ns))
		;
	return mailbox_join(m);
}
