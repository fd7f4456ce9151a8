/* thread: threads that receive no signals.
 *
 * Signals belong to the main thread of a program; a signal in another thread would be handled
 * in the wrong place or interrupt a vendor's call. So every thread of ours starts with all
 * signals blocked. */
#ifndef GW_BASE_THREAD_H
#define GW_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* stack_bytes 0: the system's default. Returns 0, or -GW_E_NOMEM and *ret is undefined. */
int thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *arg), void *arg);

#endif
