/* lane: a thread that runs one thing at a time for someone who will not wait for ever.
 *
 * A vendor's call can hang, unkillably.  Whoever runs it on a lane gets its result or, when
 * the time is up, the knowledge that it is still under way; the lane then stays busy and takes
 * nothing more until the call returns.  There is never a second thread for the same thing. */
#ifndef GW_DEVICE_CALL_THREAD_H
#define GW_DEVICE_CALL_THREAD_H

#include <stdbool.h>
#include <stdint.h>

struct call_thread;

/* Starts the thread (all signals blocked, small stack).  NULL: no memory or no thread. */
struct call_thread *call_thread_new(void);

/* Hands over fn(arg); what arg points at belongs to the lane until it is idle again.  False:
 * it is still busy. */
bool call_thread_post(struct call_thread *l, void (*fn)(void *arg), void *arg);

/* Waits until it is idle or deadline_ns (CLOCK_MONOTONIC).  True: idle. */
bool call_thread_wait(struct call_thread *l, uint64_t deadline_ns);

/* Ends an idle lane and returns true; a busy one is left behind with all it holds, and the
 * answer is false: what its arg points at must not be freed. */
bool call_thread_free(struct call_thread *l);

#endif
