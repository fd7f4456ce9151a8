/* guard_service_events: driver events move from the watch thread to the main thread; Xids are
 * counted and reported, and health evaluates every event. */
#include "guard_service_parts.h"

#include "guard_counts.h"

#include "device/nvml_abi.h"

#include <stdio.h>
#include <sys/epoll.h>

static bool is_xid(const struct driver_event *e)
{
	return e->type & ABI_EVENT_XID;
}

static void emit_xid(struct guard_service *g, const struct driver_event *e)
{
	int i = guard_service_device_of(g, e->uuid);
	unsigned xid = (unsigned)e->data;
	char text[200];

	snprintf(text, sizeof(text), "Xid %u: %s (%s)", xid, xid_text(xid),
		 xid_class_name(health_xid_class(i < 0 ? NULL : g->health[i], xid)));
	g->config.emit(g->config.arg, &(struct view_event){ .kind = "xid",
							    .uuid = *e->uuid ? e->uuid : NULL,
							    .severity = "warning",
							    .text = text });
}

static void handle_event(struct guard_service *g, const struct driver_event *e)
{
	if (is_xid(e)) {
		if (*e->uuid)
			guard_counts_add_xid(&g->tally, g->config.store, e->uuid,
					     (unsigned)e->data);
		emit_xid(g, e);
	}
	guard_service_health_event(g, e, false);
}

void guard_service_xid(struct guard_service *g, const struct driver_event *e, bool past)
{
	if (past)
		guard_service_health_event(g, e, true);
	else
		handle_event(g, e);
}

/* ---- delivery ---- */

/* On the watch thread. */
static void event_arrived(void *arg, const struct driver_event *e)
{
	struct guard_service *g = arg;

	event_queue_add(&g->events, e);
}

/* Logged once, always counted. */
static void count_lost_events(struct guard_service *g, const struct event_batch *b)
{
	if (b->lost && !g->view.counts.events_lost)
		guard_service_log(g, "warning",
				  "the driver sent more events at once than the queue holds: "
				  "%u are lost, %u of them Xids; see the kernel log",
				  b->lost, b->lost_xids);
	g->view.counts.events_lost += b->lost;
}

static void driver_events(void *arg, int fd, uint32_t events)
{
	struct guard_service *g = arg;
	struct event_batch b;

	(void)events;
	if (!mailbox_clear(fd))
		return;
	event_queue_take(&g->events, &b);
	count_lost_events(g, &b);
	for (unsigned i = 0; i < b.events; i++)
		if (!is_xid(&b.event[i]) || guard_inputs_is_new_xid(g->inputs, &b.event[i]))
			handle_event(g, &b.event[i]);
	guard_service_pump(g);
}

/* ---- start and stop ---- */

int guard_service_events_open(struct guard_service *g)
{
	if (loop_add_fd(g->config.loop, g->events.box.news_fd, EPOLLIN, driver_events, g,
			&g->event_source) != 0)
		return -GW_E_IO;
	/* Without driver events the guard works from scenes alone. */
	event_watch_new(g->config.ctx, event_arrived, g, &g->watch);
	return 0;
}

int guard_service_events_stop(struct guard_service *g)
{
	return event_watch_free(g->watch) == 0 ? 0 : -GW_E_STATE;
}

void guard_service_events_close(struct guard_service *g)
{
	loop_remove(g->event_source);
}
