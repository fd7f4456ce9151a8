/* guard_service_devices: what the guard keeps for each GPU: health, history of free memory,
 * number of evictions. Passes the readings of a tick and the events of the drivers to these
 * parts. */
#include "guard_service_parts.h"

#include "device/nvml_abi.h"
#include "guard/classify.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

int guard_service_device_of(const struct guard_service *g, const char *uuid)
{
	for (unsigned i = 0; i < g->gpus.count; i++)
		if (strcmp(g->gpus.uuid[i], uuid) == 0)
			return (int)i;
	return -1;
}

/* ---- evictions ---- */

static void evictions_key(char *out, size_t size, const char *uuid)
{
	snprintf(out, size, "gpu/%s/evictions", uuid);
}

void guard_service_count_eviction(struct guard_service *g, const struct guard_decision *d)
{
	int i = guard_service_device_of(g, d->gpu);
	char key[160];
	double count;

	if (d->result != RESULT_FREED || d->dry || !*d->gpu)
		return;
	evictions_key(key, sizeof(key), d->gpu);
	count = store_count_now(g->config.store, key) + 1;
	store_set_count(g->config.store, key, count);
	if (i >= 0)
		g->gpus.evictions[i] = count;
}

static void load_evictions(struct guard_service *g, unsigned i)
{
	char key[160];

	evictions_key(key, sizeof(key), g->gpus.uuid[i]);
	g->gpus.evictions[i] = store_count_now(g->config.store, key);
}

/* ---- free memory ---- */

static void forget_capacity(struct guard_service *g, unsigned i)
{
	capacity_free(g->gpus.capacity[i]);
	g->gpus.capacity[i] = NULL;
}

static void add_capacity(struct guard_service *g, const struct view *v, unsigned i)
{
	struct capacity_gpu c;

	if (!g->settings->capacity_enabled) {
		forget_capacity(g, i);
		return;
	}
	if (!g->gpus.capacity[i] && capacity_new(&g->gpus.capacity[i]) != 0)
		return;
	if (!v->guard) /* the headroom is unknown without the guard */
		return;
	guard_view_capacity(v, i, &c);
	if (c.known)
		capacity_add(g->gpus.capacity[i], guard_service_real_ns(),
			     capacity_available(&c));
}

/* ---- ticks ---- */

static void follow_device(struct guard_service *g, unsigned i, const char *uuid)
{
	if (strcmp(g->gpus.uuid[i], uuid) == 0)
		return;
	guard_service_health_forget(g, i);
	forget_capacity(g, i);
	snprintf(g->gpus.uuid[i], sizeof(g->gpus.uuid[i]), "%s", uuid);
	guard_counts_load_xids(&g->tally, g->config.store, uuid);
	load_evictions(g, i);
}

static void read_device(struct guard_service *g, const struct view *v, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);

	if (!uuid)
		return;
	follow_device(g, i, uuid);
	guard_service_health_read(g, i, d);
	add_capacity(g, v, i);
}

void guard_service_update_mps(struct guard_service *g)
{
	const struct scene *scene;
	const struct verdict *verdicts = guard_verdicts(g->guard, &scene);

	g->gpus.facts.mps =
		g->view.scene && scene ? classify_mps_serves_worker(scene, verdicts) : -1;
	action_set_facts(g->action, &g->gpus.facts);
}

/* Updates persistence mode and MIG mode, which decide with the use of MPS whether a checkpoint
 * is possible. With several GPUs, the worst value counts. */
static void update_facts(struct guard_service *g, const struct view *v)
{
	struct worker_facts f = { .persistence = -1, .mig = -1 };

	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		double x;

		if (gw_device_value(d, GW_Q_PERSISTENCE, &x) == GW_HAVE)
			f.persistence = f.persistence == 0 || x == 0 ? 0 : 1;
		if (gw_device_value(d, GW_Q_MIG_MODE, &x) == GW_HAVE)
			f.mig = f.mig == 1 || x != 0;
	}
	g->gpus.facts = f;
	guard_service_update_mps(g);
}

void guard_service_devices_tick(struct guard_service *g, const struct view *v)
{
	g->gpus.count = v->devices < GUARD_SERVICE_DEVICES ? v->devices : GUARD_SERVICE_DEVICES;
	for (unsigned i = 0; i < g->gpus.count; i++)
		read_device(g, v, i);
	update_facts(g, v);
}

void guard_service_devices_close(struct guard_service *g)
{
	for (unsigned i = 0; i < GUARD_SERVICE_DEVICES; i++) {
		guard_service_health_forget(g, i);
		forget_capacity(g, i);
	}
}

/* ---- driver events ---- */

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
		 xid_class_name(health_xid_class(i < 0 ? NULL : g->gpus.health[i], xid)));
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

/* Called on the watch thread. */
static void event_arrived(void *arg, const struct driver_event *e)
{
	struct guard_service *g = arg;

	event_queue_add(&g->driver.events, e);
}

/* Counts lost events. The first loss is logged. */
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
	event_queue_take(&g->driver.events, &b);
	count_lost_events(g, &b);
	for (unsigned i = 0; i < b.events; i++)
		if (!is_xid(&b.event[i]) || guard_inputs_is_new_xid(g->inputs, &b.event[i]))
			handle_event(g, &b.event[i]);
	guard_service_pump(g);
}

int guard_service_events_open(struct guard_service *g)
{
	if (loop_add_fd(g->config.loop, g->driver.events.box.news_fd, EPOLLIN, driver_events, g,
			&g->driver.source) != 0)
		return -GW_E_IO;
	/* If this fails, the guard gets no driver events and uses only scenes. */
	event_watch_new(g->config.ctx, event_arrived, g, &g->driver.watch);
	return 0;
}

void guard_service_events_check(struct guard_service *g)
{
	struct guard_service_driver *d = &g->driver;
	const char *why;

	if (!d->watch)
		return;
	event_watch_status(d->watch, &why);
	if (*why && strcmp(why, d->unwatched) != 0)
		guard_service_log(
			g, "info",
			"no events of the NVIDIA driver arrive, because %s; Xids are read "
			"from the kernel log only",
			why);
	snprintf(d->unwatched, sizeof(d->unwatched), "%s", why);
}

int guard_service_events_stop(struct guard_service *g)
{
	return event_watch_free(g->driver.watch) == 0 ? 0 : -GW_E_STATE;
}

void guard_service_events_close(struct guard_service *g)
{
	loop_remove(g->driver.source);
}
