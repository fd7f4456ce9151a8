/* mailbox: starts threads, and holds what a thread and its owner share: a lock, wake-ups in
 * both directions, and a stop with a time limit.
 *
 * A module that has a thread puts a struct mailbox and the members that both sides use into one
 * struct; the lock of the mailbox protects these members. If a thread hangs in a driver or on a
 * disk, mailbox_stop() leaves it behind with everything that it uses. Without mailbox_start() a
 * mailbox is a lock with two condition variables. */
#ifndef GW_BASE_MAILBOX_H
#define GW_BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a thread with all signals blocked. Only the main thread of a program handles signals:
 * in another thread, a signal would run its handler there or interrupt a driver call. If
 * stack_bytes is 0, the stack has the default size. Returns 0, or -GW_E_NOMEM; *ret is then
 * undefined. */
int thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg);

#define MAILBOX_THREADS 8

/* Each flag requests a descriptor (eventfd) that is readable after a wake-up. A thread or an
 * owner needs the descriptor if it waits in poll() or in a loop. */
enum mailbox_flag { MAILBOX_WAKE_FD = 1, MAILBOX_NEWS_FD = 2 };

struct mailbox {
	pthread_mutex_t lock; /* protects everything below and the module's shared members */
	pthread_cond_t wake, news; /* wake is for the thread, news is for its owner */
	int wake_fd, news_fd; /* the descriptors of enum mailbox_flag; -1 if not requested */
	bool stop;            /* The owner has asked the threads to end. */
	bool left_behind;     /* mailbox_stop() returned while threads were running. */
	unsigned started, running; /* numbers of threads */
	pthread_t thread[MAILBOX_THREADS];
	void (*run)(void *arg);
	void (*orphaned)(void *arg);
	void *arg;
};

/* Initialises the mailbox. flags: set of enum mailbox_flag. Returns 0, or -GW_E_IO if no
 * descriptor could be created. Call mailbox_done() in both cases. */
int mailbox_init(struct mailbox *m, unsigned flags);
void mailbox_done(struct mailbox *m);

/* Starts a thread that calls run(arg) once. Each further call adds a thread with the same run
 * and arg. If mailbox_stop() returned while threads were running, the last of them calls
 * orphaned(arg) when it ends; orphaned may be NULL, and may free everything. If a thread
 * already runs, the caller must hold the lock. Returns 0 or -GW_E_NOMEM. */
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

/* mailbox_wake() wakes the thread. mailbox_notify() wakes its owner. The caller may hold the
 * lock or not. */
void mailbox_wake(struct mailbox *m);
void mailbox_notify(struct mailbox *m);

/* The thread waits in mailbox_wait() for mailbox_wake(). The owner waits in mailbox_wait_news()
 * for mailbox_notify(). Both wait at most until a monotonic time (UINT64_MAX: without a limit),
 * and then return false. The caller must hold the lock. If they return true, the caller must
 * check its condition again, because a wait may end without a wake-up. */
bool mailbox_wait(struct mailbox *m, uint64_t until_ns);
bool mailbox_wait_news(struct mailbox *m, uint64_t until_ns);

/* Makes wake_fd or news_fd not readable again, after poll(). Returns false if the descriptor
 * was not readable. */
bool mailbox_clear(int fd);

/* mailbox_request_stop() asks the threads to end. Call without the lock. */
void mailbox_request_stop(struct mailbox *m);
bool mailbox_stopping(struct mailbox *m);

/* Asks the threads to end, waits at most timeout_ns and joins them. Returns 0 (also if no
 * thread was started), or -GW_E_STATE if a thread has not ended; all threads are then left
 * behind. */
int mailbox_stop(struct mailbox *m, uint64_t timeout_ns);
/* Does the last step of mailbox_stop(), for callers that wait in another way. The caller must
 * hold the lock; the function releases it. */
int mailbox_join(struct mailbox *m);

#endif
