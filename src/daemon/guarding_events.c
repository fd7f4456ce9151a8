/* guarding_events: what drivers tell by themselves comes from the watch's thread to this one; Xids are counted and
 * told, and health judges what each event means. */
#include "guarding_parts.h"

#include "guard_counts.h"

#include "device/nvml_abi.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool is_xid(const struct watch_event *e)
{
	return e->type & ABI_EVENT_XID;
}

static void tell_xid(struct guarding *g, const struct watch_event *e)
{
	int i = guarding_device_of(g, e->uuid);
	unsigned xid = (unsigned)e->data;
	char text[200];

	snprintf(text, sizeof(text), "Xid %u: %s (%s)", xid, xid_text(xid),
		 xid_class_name(health_xid_class(i < 0 ? NULL : g->health[i], xid)));
	g->config.tell(g->config.arg, &(struct view_event){ .kind = "xid",
							    .uuid = *e->uuid ? e->uuid : NULL,
							    .severity = "warning",
							    .text = text });
}

static void take_event(struct guarding *g, const struct watch_event *e)
{
	if (is_xid(e)) {
		if (*e->uuid)
			guard_counts_add_xid(&g->tally, g->config.store, e->uuid,
					     (unsigned)e->data);
		tell_xid(g, e);
	}
	guarding_health_event(g, e, false);
}

void guarding_xid(struct guarding *g, const struct watch_event *e, bool past)
{
	if (past)
		guarding_health_event(g, e, true);
	else
		take_event(g, e);
}

/* ---- on their way ---- */

/* On the watch's thread. */
static void heard(void *arg, const struct watch_event *e)
{
	struct guarding *g = arg;

	event_queue_add(&g->heard, e);
	eventfd_write(g->event_fd, 1);
}

/* Told once, counted always. */
static void lost_events(struct guarding *g, const struct event_batch *b)
{
	if (b->lost && !g->view.counts.events_lost)
		guarding_tell(g, "warning",
			      "the driver told more events at once than can be kept: %u are "
			      "lost, %u of them Xids; the kernel log has these",
			      b->lost, b->lost_xids);
	g->view.counts.events_lost += b->lost;
}

static void driver_events(void *arg, int fd, uint32_t events)
{
	struct guarding *g = arg;
	struct event_batch b;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	event_queue_take(&g->heard, &b);
	lost_events(g, &b);
	for (unsigned i = 0; i < b.events; i++)
		if (!is_xid(&b.event[i]) || beside_heard(g->beside, &b.event[i]))
			take_event(g, &b.event[i]);
	guarding_pump(g);
}

/* ---- beginning and end ---- */

int guarding_events_open(struct guarding *g)
{
	g->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->event_fd < 0 || loop_add_fd(g->config.loop, g->event_fd, EPOLLIN, driver_events,
					   g, &g->event_source) != 0)
		return -GW_E_IO;
	/* Where drivers tell no events, there are none. */
	watch_new(g->config.ctx, heard, g, &g->watch);
	return 0;
}

int guarding_events_stop(struct guarding *g)
{
	return watch_free(g->watch) == 0 ? 0 : -GW_E_STATE;
}

void guarding_events_close(struct guarding *g)
{
	loop_remove(g->event_source);
	if (g->event_fd >= 0)
		close(g->event_fd);
}
