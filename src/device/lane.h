/* lane: a thread that runs one thing at a time for someone who will not wait for ever.
 *
 * A vendor's call can hang, unkillably.  Whoever runs it on a lane gets its result or, when
 * the time is up, the knowledge that it is still under way; the lane then stays busy and takes
 * nothing more until the call returns.  There is never a second thread for the same thing. */
#ifndef GW_DEVICE_LANE_H
#define GW_DEVICE_LANE_H

#include <stdbool.h>
#include <stdint.h>

struct lane;

/* Starts the thread (all signals blocked, small stack).  NULL: no memory or no thread. */
struct lane *lane_new(void);

/* Hands over fn(arg); what arg points at belongs to the lane until it is idle again.  False:
 * it is still busy. */
bool lane_post(struct lane *l, void (*fn)(void *arg), void *arg);

/* Waits until it is idle or deadline_ns (CLOCK_MONOTONIC).  True: idle. */
bool lane_wait(struct lane *l, uint64_t deadline_ns);

/* Ends an idle lane and returns true; a busy one is left behind with all it holds, and the
 * answer is false: what its arg points at must not be freed. */
bool lane_free(struct lane *l);

#endif
