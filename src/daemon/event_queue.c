#include "event_queue.h"

#include "device/nvml_abi.h"

#include <string.h>

void event_queue_init(struct event_queue *q)
{
	q->events = q->lost = q->lost_xids = 0;
	pthread_mutex_init(&q->lock, NULL);
}

void event_queue_done(struct event_queue *q)
{
	pthread_mutex_destroy(&q->lock);
}

void event_queue_add(struct event_queue *q, const struct driver_event *e)
{
	pthread_mutex_lock(&q->lock);
	if (q->events < EVENT_QUEUE) {
		q->event[q->events++] = *e;
	} else {
		q->lost++;
		q->lost_xids += (e->type & ABI_EVENT_XID) != 0;
	}
	pthread_mutex_unlock(&q->lock);
}

void event_queue_take(struct event_queue *q, struct event_batch *ret)
{
	pthread_mutex_lock(&q->lock);
	memcpy(ret->event, q->event, q->events * sizeof(q->event[0]));
	ret->events = q->events;
	ret->lost = q->lost;
	ret->lost_xids = q->lost_xids;
	q->events = q->lost = q->lost_xids = 0;
	pthread_mutex_unlock(&q->lock);
}
