/* guard_service_devices: the health, the history of free memory and the number of evictions of
 * each GPU. Updates them with the readings of each tick and the events of the drivers. */
#include "guard_service_parts.h"

#include "base/clock.h"
#include "device/nvml_abi.h"
#include "guard/classify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* Returns the index of the GPU with this UUID, or -1 if there is no such GPU. */
static int guard_service_device_of(const struct guard_service *g, const char *uuid)
{
	for (unsigned i = 0; i < g->gpus.count; i++)
		if (strcmp(g->gpus.uuid[i], uuid) == 0)
			return (int)i;
	return -1;
}

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
	if (!v->guard) /* Without the guard, the headroom is unknown. */
		return;
	guard_view_capacity(v, i, &c);
	if (c.known)
		capacity_add(g->gpus.capacity[i], guard_service_real_ns(),
			     capacity_available(&c));
}

static void follow_device(struct guard_service *g, unsigned i, const char *uuid)
{
	char key[160];

	if (strcmp(g->gpus.uuid[i], uuid) == 0)
		return;
	guard_service_health_forget(g, i);
	forget_capacity(g, i);
	snprintf(g->gpus.uuid[i], sizeof(g->gpus.uuid[i]), "%s", uuid);
	guard_counts_load_xids(&g->tally, g->config.store, uuid);
	evictions_key(key, sizeof(key), g->gpus.uuid[i]);
	g->gpus.evictions[i] = store_count_now(g->config.store, key);
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

/* Updates persistence mode and MIG mode. These modes and the use of MPS decide whether a worker
 * can be checkpointed. If the machine has several GPUs, the worst value of all GPUs counts. */
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
		if (!is_xid(&b.event[i]) || guard_inputs_note_xid(g->inputs, &b.event[i]))
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

/* Passes to the guard the heat level and the reasons that follow from the health of this
 * GPU. */
static void update_guard(struct guard_service *g, unsigned i, uint64_t now)
{
	const char *uuid = g->gpus.uuid[i];
	struct health_meaning m;

	health_meaning(g->gpus.health[i], now, &m);
	guard_service_heat(g, uuid, m.heat, m.heat_why, now);
	for (unsigned r = 0; r < HEALTH_REASONS; r++) {
		const struct health_finding *f = &m.reason[r].found;

		guard_service_reason(g, uuid, m.reason[r].reason, m.reason[r].on, f->why, now);
		guard_service_reason_ends(g, uuid, m.reason[r].reason, f->clears, f->clears_ns);
	}
}

static const char *level_word(const struct health_status *s)
{
	static const char *const words[] = { "healthy", "degraded",
					     "hot: workers get no new work",
					     "too hot: workers leave", "in quarantine" };

	return s->level == HEALTH_WARN && s->heat == HEALTH_WARN ? "warm" : words[s->level];
}

/* Returns the separator between two sentences. The first may already end with a full stop. */
static const char *sentence_separator(const char *text)
{
	size_t n = strlen(text);

	return n && text[n - 1] == '.' ? " " : ". ";
}

/* Emits one event each time the health level changes. */
static void emit_level(struct guard_service *g, unsigned i, uint64_t now)
{
	struct health_status s;
	char text[500];

	health_status(g->gpus.health[i], now, &s);
	if (s.level == g->gpus.health_emitted[i])
		return;
	snprintf(text, sizeof(text), "GPU is %s%s%s%s%s", level_word(&s),
		 *s.worst.why ? ": " : "", s.worst.why,
		 *s.worst.advice ? sentence_separator(s.worst.why) : "", s.worst.advice);
	g->config.emit(g->config.arg,
		       &(struct view_event){ .kind = "health",
					     .uuid = g->gpus.uuid[i],
					     .severity = s.level >= HEALTH_EVICT ? "error"
							 : s.level               ? "warning"
										 : "info",
					     .text = text });
	g->gpus.health_emitted[i] = s.level;
}

static void evaluate(struct guard_service *g, unsigned i)
{
	uint64_t now = guard_service_real_ns();

	update_guard(g, i, now);
	emit_level(g, i, now);
}

double guard_service_threshold_c(const struct guard_service *g, const struct guard_decision *d)
{
	int i = guard_service_device_of(g, d->gpu);
	struct health_status s;

	if (i < 0 || !g->gpus.health[i])
		return (double)NAN;
	health_status(g->gpus.health[i], d->mono_ns, &s);
	return s.evict_at_c;
}

void guard_service_health_read(struct guard_service *g, unsigned i, const struct gw_device *d)
{
	const struct guard_settings *s = g->settings;
	uint64_t now = guard_service_real_ns(), every;

	if (!s->health_enabled) {
		guard_service_health_forget(g, i);
		return;
	}
	if (!g->gpus.health[i] && health_new(&s->health, &g->gpus.health[i]) != 0)
		return;
	if (now < g->gpus.health_ns[i])
		return;
	every = health_interval_ns(g->gpus.health[i]);
	health_read(g->gpus.health[i], d, now);
	evaluate(g, i);
	g->gpus.health_ns[i] =
		now + (every < s->health_interval_ns ? every : s->health_interval_ns);
}

void guard_service_health_event(struct guard_service *g, const struct driver_event *e,
				bool past)
{
	const struct health_event event = { e->mono_ns, e->type, e->data };
	int i = guard_service_device_of(g, e->uuid);

	if (i < 0 || !g->gpus.health[i])
		return;
	if (past) {
		health_past(g->gpus.health[i], &event);
	} else {
		health_event(g->gpus.health[i], &event);
		g->gpus.health_ns[i] = 0; /* The next tick reads the GPU's health again. */
	}
	evaluate(g, (unsigned)i);
}

int guard_service_clear(void *engine, const char *uuid, const char *who, char *message,
			size_t size)
{
	struct guard_service *g = engine;
	int i = guard_service_device_of(g, uuid);
	uint64_t now = guard_service_real_ns();
	int err;

	if (i < 0 || !g->gpus.health[i])
		return -GW_E_NOENT;
	err = guard_service_trust(g, uuid, now);
	if (err)
		snprintf(message, size, "The GPU does not respond.");
	else
		err = health_clear(g->gpus.health[i], now, message, size);
	if (err)
		return err;
	guard_service_log(g, "info", "%s: quarantine cleared (requested by %s)", uuid, who);
	evaluate(g, (unsigned)i);
	g->gpus.health_ns[i] = 0;
	guard_service_pump(g);
	scene_thread_trigger(g->scenes);
	return 0;
}

static void clear_guard(struct guard_service *g, unsigned i, uint64_t now)
{
	struct health_meaning m;

	health_meaning(g->gpus.health[i], now, &m);
	guard_service_heat(g, g->gpus.uuid[i], 0, "", now);
	for (unsigned r = 0; r < HEALTH_REASONS; r++)
		guard_service_reason(g, g->gpus.uuid[i], m.reason[r].reason, false, "", now);
}

/* Applies new settings. The health of each GPU stays the same. If health monitoring is now
 * disabled, clears the reasons that health gave to the guard. */
void guard_service_health_swapped(struct guard_service *g)
{
	uint64_t now = guard_service_real_ns();

	for (unsigned i = 0; i < GUARD_SERVICE_DEVICES; i++) {
		if (!g->gpus.health[i])
			continue;
		g->gpus.health_ns[i] = 0;
		if (g->settings->health_enabled) {
			health_set_options(g->gpus.health[i], &g->settings->health);
			continue;
		}
		clear_guard(g, i, now);
		guard_service_health_forget(g, i);
	}
}

void guard_service_health_forget(struct guard_service *g, unsigned i)
{
	health_free(g->gpus.health[i]);
	g->gpus.health[i] = NULL;
	g->gpus.health_emitted[i] = HEALTH_OK;
	g->gpus.health_ns[i] = 0;
}
