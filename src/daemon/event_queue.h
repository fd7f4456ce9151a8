/* event_queue: passes driver events from the watch thread to the main thread.
 *
 * It is bounded, so that a driver that sends events without end cannot use up memory. Events
 * that do not fit are counted: a lost Xid must be visible. */
#ifndef GW_DAEMON_EVENT_QUEUE_H
#define GW_DAEMON_EVENT_QUEUE_H

#include "base/mailbox.h"
#include "device/event_watch.h"

#define EVENT_QUEUE 64

struct event_queue {
	struct mailbox box; /* its news_fd is readable when events wait */
	struct driver_event event[EVENT_QUEUE];
	unsigned events;
	unsigned lost, lost_xids; /* since the last event_queue_take() */
};

struct event_batch {
	struct driver_event event[EVENT_QUEUE]; /* oldest first */
	unsigned events, lost, lost_xids;
};

int event_queue_init(struct event_queue *q); /* 0 or -GW_E_IO; event_queue_done() in any case */
void event_queue_done(struct event_queue *q);

/* From any thread. */
void event_queue_add(struct event_queue *q, const struct driver_event *e);
/* Moves all queued events to *ret. */
void event_queue_take(struct event_queue *q, struct event_batch *ret);

#endif
