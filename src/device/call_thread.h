/* call_thread: runs one call at a time for a caller that must not wait forever.
 *
 * A vendor's call can hang and cannot be killed. The caller gets the result or, at the
 * deadline, the answer that the call still runs. The thread then stays busy and accepts no
 * other call until this one returns. No second thread is started meanwhile. */
#ifndef GW_DEVICE_CALL_THREAD_H
#define GW_DEVICE_CALL_THREAD_H

#include <stdbool.h>
#include <stdint.h>

struct call_thread;

/* Starts the thread (all signals blocked, small stack). NULL: out of memory or threads. */
struct call_thread *call_thread_new(void);

/* Makes the thread call fn(arg). arg belongs to the thread until the thread is idle again.
 * Returns false if the thread is still busy. */
bool call_thread_post(struct call_thread *l, void (*fn)(void *arg), void *arg);

/* Waits until the thread is idle or until deadline_ns (CLOCK_MONOTONIC). True: idle. */
bool call_thread_wait(struct call_thread *l, uint64_t deadline_ns);

/* Ends an idle thread and returns true. Returns false if the thread is busy: the thread keeps
 * running with everything it uses, so do not free what arg points to. */
bool call_thread_free(struct call_thread *l);

#endif
