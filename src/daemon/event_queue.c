#include "event_queue.h"

#include "device/nvml_abi.h"

#include <string.h>

int event_queue_init(struct event_queue *q)
{
	q->events = q->lost = q->lost_xids = 0;
	return mailbox_init(&q->box, MAILBOX_NEWS_FD);
}

void event_queue_done(struct event_queue *q)
{
	mailbox_done(&q->box);
}

void event_queue_add(struct event_queue *q, const struct driver_event *e)
{
	mailbox_lock(&q->box);
	if (q->events < EVENT_QUEUE) {
		q->event[q->events++] = *e;
	} else {
		q->lost++;
		q->lost_xids += (e->type & ABI_EVENT_XID) != 0;
	}
	mailbox_unlock(&q->box);
	mailbox_notify(&q->box);
}

void event_queue_take(struct event_queue *q, struct event_batch *ret)
{
	mailbox_lock(&q->box);
	memcpy(ret->event, q->event, q->events * sizeof(q->event[0]));
	ret->events = q->events;
	ret->lost = q->lost;
	ret->lost_xids = q->lost_xids;
	q->events = q->lost = q->lost_xids = 0;
	mailbox_unlock(&q->box);
}
