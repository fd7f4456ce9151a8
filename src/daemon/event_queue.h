/* event_queue: events of drivers on their way from the watch's thread to the main one.
 *
 * Bounded, so that a driver that tells without end cannot grow it.  What does not fit is counted: an Xid that is
 * lost must not look like one that never was. */
#ifndef GW_DAEMON_EVENT_QUEUE_H
#define GW_DAEMON_EVENT_QUEUE_H

#include "device/event_watch.h"

#include <pthread.h>

#define EVENT_QUEUE 64

struct event_queue {
	pthread_mutex_t lock;
	struct driver_event event[EVENT_QUEUE];
	unsigned events;
	unsigned lost, lost_xids; /* since they were last taken */
};

struct event_batch {
	struct driver_event event[EVENT_QUEUE]; /* oldest first */
	unsigned events, lost, lost_xids;
};

void event_queue_init(struct event_queue *q);
void event_queue_done(struct event_queue *q);

/* From any thread. */
void event_queue_add(struct event_queue *q, const struct driver_event *e);
/* All that came since; the queue is empty afterwards. */
void event_queue_take(struct event_queue *q, struct event_batch *ret);

#endif
