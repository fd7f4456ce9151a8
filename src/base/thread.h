/* thread: threads that take no signals.
 *
 * A program's signals are its main thread's; one that lands elsewhere is handled at the wrong place, or
 * interrupts a vendor's call.  So every thread of ours is started with all of them blocked. */
#ifndef GW_BASE_THREAD_H
#define GW_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* stack_bytes 0: as much as the system gives.  0 or -GW_E_NOMEM, and then *ret is nothing. */
int thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg);

#endif
