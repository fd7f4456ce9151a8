#include "device/event_watch.h"

#include "test.h"

TEST(events_are_taken_once_and_in_order)
{
	struct event_queue q;
	struct event_batch b;

	event_queue_init(&q);
	for (unsigned i = 0; i < 3; i++)
		event_queue_add(&q, &(struct driver_event){ .type = 8, .data = 40 + i });
	event_queue_take(&q, &b);
	assert_int_equal(b.events, 3);
	assert_int_equal(b.event[0].data, 40);
	assert_int_equal(b.event[2].data, 42);
	assert_int_equal(b.lost, 0);
	event_queue_take(&q, &b);
	assert_int_equal(b.events, 0);
	event_queue_done(&q);
}

TEST(lost_events_and_lost_xids_are_counted)
{
	struct event_queue q;
	struct event_batch b;

	event_queue_init(&q);
	for (unsigned i = 0; i < EVENT_QUEUE + 10; i++)
		event_queue_add(&q, &(struct driver_event){ .type = i % 2 ? 8 : 2 });
	event_queue_take(&q, &b);
	assert_int_equal(b.events, EVENT_QUEUE);
	assert_int_equal(b.lost, 10);
	assert_int_equal(b.lost_xids, 5);
	event_queue_add(&q, &(struct driver_event){ .type = 8 });
	event_queue_take(&q, &b);
	assert_int_equal(b.events, 1);
	assert_int_equal(b.lost, 0);
	assert_int_equal(b.lost_xids, 0);
	event_queue_done(&q);
}

TEST_MAIN(NULL, NULL)
