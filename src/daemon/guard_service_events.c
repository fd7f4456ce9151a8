/* guarding_events: what drivers tell by themselves comes from the watch's thread to this one; Xids are counted and
 * told, and health judges what each event means. */
#include "guard_service_parts.h"

#include "guard_counts.h"

#include "device/nvml_abi.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool is_xid(const struct driver_event *e)
{
	return e->type & ABI_EVENT_XID;
}

static void tell_xid(struct guard_service *g, const struct driver_event *e)
{
	int i = guard_service_device_of(g, e->uuid);
	unsigned xid = (unsigned)e->data;
	char text[200];

	snprintf(text, sizeof(text), "Xid %u: %s (%s)", xid, xid_text(xid),
		 xid_class_name(health_xid_class(i < 0 ? NULL : g->health[i], xid)));
	g->config.tell(g->config.arg, &(struct view_event){ .kind = "xid",
							    .uuid = *e->uuid ? e->uuid : NULL,
							    .severity = "warning",
							    .text = text });
}

static void take_event(struct guard_service *g, const struct driver_event *e)
{
	if (is_xid(e)) {
		if (*e->uuid)
			guard_counts_add_xid(&g->tally, g->config.store, e->uuid,
					     (unsigned)e->data);
		tell_xid(g, e);
	}
	guard_service_health_event(g, e, false);
}

void guard_service_xid(struct guard_service *g, const struct driver_event *e, bool past)
{
	if (past)
		guard_service_health_event(g, e, true);
	else
		take_event(g, e);
}

/* ---- on their way ---- */

/* On the watch's thread. */
static void heard(void *arg, const struct driver_event *e)
{
	struct guard_service *g = arg;

	event_queue_add(&g->heard, e);
	eventfd_write(g->event_fd, 1);
}

/* Told once, counted always. */
static void lost_events(struct guard_service *g, const struct event_batch *b)
{
	if (b->lost && !g->view.counts.events_lost)
		guard_service_log(
			g, "warning",
			"the driver told more events at once than can be kept: %u are "
			"lost, %u of them Xids; the kernel log has these",
			b->lost, b->lost_xids);
	g->view.counts.events_lost += b->lost;
}

static void driver_events(void *arg, int fd, uint32_t events)
{
	struct guard_service *g = arg;
	struct event_batch b;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	event_queue_take(&g->heard, &b);
	lost_events(g, &b);
	for (unsigned i = 0; i < b.events; i++)
		if (!is_xid(&b.event[i]) || guard_inputs_heard(g->beside, &b.event[i]))
			take_event(g, &b.event[i]);
	guard_service_pump(g);
}

/* ---- beginning and end ---- */

int guard_service_events_open(struct guard_service *g)
{
	g->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->event_fd < 0 || loop_add_fd(g->config.loop, g->event_fd, EPOLLIN, driver_events,
					   g, &g->event_source) != 0)
		return -GW_E_IO;
	/* Where drivers tell no events, there are none. */
	event_watch_new(g->config.ctx, heard, g, &g->watch);
	return 0;
}

int guard_service_events_stop(struct guard_service *g)
{
	return event_watch_free(g->watch) == 0 ? 0 : -GW_E_STATE;
}

void guard_service_events_close(struct guard_service *g)
{
	loop_remove(g->event_source);
	if (g->event_fd >= 0)
		close(g->event_fd);
}
