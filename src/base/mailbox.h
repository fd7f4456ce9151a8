/* mailbox: what a thread and its owner share: a lock, wake-ups both ways, and a bounded stop.
 *
 * The members that both sides use stand next to the mailbox in the module's own struct; the lock
 * protects them.  A thread that hangs in a driver or on a disk is left behind by mailbox_stop(),
 * with everything it uses.  Without mailbox_start() it is a lock with two conditions. */
#ifndef GW_BASE_MAILBOX_H
#define GW_BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAILBOX_THREADS 8

/* Descriptors (eventfd) for sides that wait in poll() or in a loop; readable after a wake-up. */
enum mailbox_flag { MAILBOX_WAKE_FD = 1, MAILBOX_NEWS_FD = 2 };

struct mailbox {
	pthread_mutex_t lock;      /* of everything below, and of the module's shared members */
	pthread_cond_t wake, news; /* to the thread; to its owner */
	int wake_fd, news_fd;      /* -1: none */
	bool stop;                 /* the thread should end */
	bool left_behind;          /* mailbox_stop() gave up */
	unsigned started, running; /* threads */
	pthread_t thread[MAILBOX_THREADS];
	void (*run)(void *arg);
	void (*orphaned)(void *arg);
	void *arg;
};

/* flags: of enum mailbox_flag.  0, or -GW_E_IO: no descriptor; mailbox_done() in any case. */
int mailbox_init(struct mailbox *m, unsigned flags);
void mailbox_done(struct mailbox *m);

/* Starts a thread that calls run(arg) once; a further call adds a thread with the same run and
 * arg.  orphaned (NULL: none) is called on the last thread when it ends after mailbox_stop() gave
 * up, and may free everything.  Call with the lock once a thread runs.  0 or -GW_E_NOMEM. */
int mailbox_start(struct mailbox *m, size_t stack_bytes, void (*run)(void *arg),
		  void (*orphaned)(void *arg), void *arg);

static inline void mailbox_lock(struct mailbox *m)
{
	pthread_mutex_lock(&m->lock);
}

static inline void mailbox_unlock(struct mailbox *m)
{
	pthread_mutex_unlock(&m->lock);
}

/* Wakes the thread, or its owner.  With or without the lock. */
void mailbox_wake(struct mailbox *m);
void mailbox_notify(struct mailbox *m);

/* Waits for a wake-up of the thread, or of its owner, until a monotonic time (UINT64_MAX: without
 * limit).  Call with the lock.  false: the time is over.  Check the condition again after true. */
bool mailbox_wait(struct mailbox *m, uint64_t until_ns);
bool mailbox_wait_news(struct mailbox *m, uint64_t until_ns);

/* Resets a descriptor after poll(); false: it was not readable. */
bool mailbox_clear(int fd);

/* Asks the threads to end.  Without the lock. */
void mailbox_request_stop(struct mailbox *m);
bool mailbox_stopping(struct mailbox *m);

/* Asks the threads to end, waits at most timeout_ns and joins them.  0, or -GW_E_STATE: one hangs
 * and is left behind.  0 if none was started. */
int mailbox_stop(struct mailbox *m, uint64_t timeout_ns);
/* The last step of mailbox_stop(), for callers with another wait: call with the lock, which it
 * releases. */
int mailbox_join(struct mailbox *m);

#endif
