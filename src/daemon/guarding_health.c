/* guarding_health: is each GPU well, and how much room is on it: what ticks and drivers tell, and what it
 * means for the workers. */
#include "guarding_parts.h"

#include "guard_counts.h"

#include "base/clock.h"
#include "guard/mps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- what it means ---- */

static const char *level_word(enum health_level l)
{
	static const char *const words[] = { "well", "warm", "hot: work is held back",
					     "too hot: workers leave", "in quarantine" };

	return words[l];
}

/* Between two sentences, the first of which may have its full stop. */
static const char *stop_of(const char *text)
{
	size_t n = strlen(text);

	return n && text[n - 1] == '.' ? " " : ". ";
}

/* What its health means for the workers on it. */
static void tell_guard(struct guarding *g, unsigned i, uint64_t now)
{
	const char *uuid = g->uuid[i];
	struct health_meaning m;

	health_meaning(g->health[i], now, &m);
	guarding_heat(g, uuid, m.heat, m.heat_why, now);
	for (unsigned r = 0; r < HEALTH_REASONS; r++) {
		const struct health_finding *f = &m.reason[r].found;

		guarding_reason(g, uuid, m.reason[r].reason, m.reason[r].on, f->why, now);
		guard_reason_ends(g->guard, uuid, m.reason[r].reason, f->clears, f->clears_ns);
	}
}

/* What people are told of it: once for each level. */
static void announce(struct guarding *g, unsigned i, uint64_t now)
{
	struct health_status s;
	char text[500];

	health_status(g->health[i], now, &s);
	if (s.level == g->told[i])
		return;
	snprintf(text, sizeof(text), "GPU is %s%s%s%s%s", level_word(s.level),
		 *s.worst.why ? ": " : "", s.worst.why,
		 *s.worst.advice ? stop_of(s.worst.why) : "", s.worst.advice);
	g->config.tell(g->config.arg,
		       &(struct view_event){ .kind = "health",
					     .uuid = g->uuid[i],
					     .severity = s.level >= HEALTH_EVICT ? "error"
							 : s.level               ? "warning"
										 : "info",
					     .text = text });
	g->told[i] = s.level;
}

static void judge(struct guarding *g, unsigned i)
{
	uint64_t now = guarding_now_ns();

	tell_guard(g, i, now);
	announce(g, i, now);
}

/* ---- what drivers tell ---- */

/* On the watch's thread. */
static void heard(void *arg, const struct watch_event *e)
{
	struct guarding *g = arg;

	event_queue_add(&g->heard, e);
	eventfd_write(g->event_fd, 1);
}

static int device_of(const struct guarding *g, const char *uuid)
{
	for (unsigned i = 0; i < g->devices; i++)
		if (strcmp(g->uuid[i], uuid) == 0)
			return (int)i;
	return -1;
}

double guarding_threshold_c(const struct guarding *g, const struct guard_decision *d)
{
	int i = device_of(g, d->gpu);
	struct health_status s;

	if (i < 0 || !g->health[i])
		return (double)NAN;
	health_status(g->health[i], d->mono_ns, &s);
	return s.evict_at_c;
}

static void take_event(struct guarding *g, const struct watch_event *e)
{
	int i = device_of(g, e->uuid);
	char text[200];

	if (e->type & 8) { /* an Xid */
		if (*e->uuid)
			guard_counts_add_xid(&g->tally, g->config.store, e->uuid,
					     (unsigned)e->data);
		snprintf(text, sizeof(text), "Xid %u: %s (%s)", (unsigned)e->data,
			 xid_text((unsigned)e->data),
			 xid_class_name(health_xid_class(i < 0 ? NULL : g->health[i],
							 (unsigned)e->data)));
		g->config.tell(g->config.arg,
			       &(struct view_event){ .kind = "xid",
						     .uuid = *e->uuid ? e->uuid : NULL,
						     .severity = "warning",
						     .text = text });
	}
	if (i < 0 || !g->health[i])
		return;
	health_event(g->health[i], &(struct health_event){ e->mono_ns, e->type, e->data });
	g->health_ns[i] = 0; /* read it again with the next tick */
	judge(g, (unsigned)i);
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
		if (!(b.event[i].type & 8) || beside_heard(g->beside, &b.event[i]))
			take_event(g, &b.event[i]);
	guarding_pump(g);
}

void guarding_xid(struct guarding *g, const struct watch_event *e, bool past)
{
	int i = device_of(g, e->uuid);

	if (!past) {
		take_event(g, e);
	} else if (i >= 0 && g->health[i]) {
		health_past(g->health[i],
			    &(struct health_event){ e->mono_ns, e->type, e->data });
		judge(g, (unsigned)i);
	}
}

/* ---- who left ---- */

static void key_of_evictions(char *out, size_t size, const char *uuid)
{
	snprintf(out, size, "gpu/%s/evictions", uuid);
}

void guarding_count_eviction(struct guarding *g, const struct guard_decision *d)
{
	int i = device_of(g, d->gpu);
	char key[160];
	double count;

	if (d->result != RESULT_FREED || d->dry || !*d->gpu)
		return;
	key_of_evictions(key, sizeof(key), d->gpu);
	count = store_count(g->config.store, key) + 1;
	store_set_count(g->config.store, key, count);
	if (i >= 0)
		g->evictions[i] = count;
}

static void load_evictions(struct guarding *g, unsigned i)
{
	char key[160];

	key_of_evictions(key, sizeof(key), g->uuid[i]);
	g->evictions[i] = store_count(g->config.store, key);
}

/* ---- what an operator says ---- */

int guarding_clear(void *engine, const char *uuid, const char *who, char *message, size_t size)
{
	struct guarding *g = engine;
	int i = device_of(g, uuid);
	uint64_t now = guarding_now_ns();
	int err;

	if (i < 0 || !g->health[i])
		return -GW_E_NOENT;
	err = guarding_trust(g, uuid, now);
	if (err)
		snprintf(message, size, "The GPU does not answer.");
	else
		err = health_clear(g->health[i], now, message, size);
	if (err)
		return err;
	guarding_tell(g, "info", "%s: quarantine cleared (asked by %s)", uuid, who);
	judge(g, (unsigned)i);
	g->health_ns[i] = 0;
	guarding_pump(g);
	looker_now(g->looker);
	return 0;
}

/* ---- what a tick tells ---- */

/* What the settings want of a device is there, and nothing else. */
static bool equip(struct guarding *g, unsigned i)
{
	const struct guard_settings *s = g->settings;

	if (!s->health_enabled) {
		health_free(g->health[i]);
		g->health[i] = NULL;
		g->told[i] = HEALTH_OK;
	} else if (!g->health[i] && health_new(&s->health, &g->health[i]) != 0) {
		return false;
	}
	if (!s->capacity_enabled) {
		capacity_free(g->capacity[i]);
		g->capacity[i] = NULL;
	}
	return !s->capacity_enabled || g->capacity[i] || capacity_new(&g->capacity[i]) == 0;
}

static void forget_device(struct guarding *g, unsigned i)
{
	health_free(g->health[i]);
	capacity_free(g->capacity[i]);
	g->health[i] = NULL;
	g->capacity[i] = NULL;
	g->told[i] = HEALTH_OK;
	g->health_ns[i] = 0;
}

static bool follow_device(struct guarding *g, unsigned i, const char *uuid)
{
	if (strcmp(g->uuid[i], uuid) != 0) {
		forget_device(g, i);
		snprintf(g->uuid[i], sizeof(g->uuid[i]), "%s", uuid);
		guard_counts_load_xids(&g->tally, g->config.store, uuid);
		load_evictions(g, i);
	}
	return equip(g, i);
}

static void read_device(struct guarding *g, const struct view *v, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	uint64_t now = guarding_now_ns();
	struct capacity_gpu c;

	if (!uuid || !follow_device(g, i, uuid))
		return;
	if (g->health[i] && now >= g->health_ns[i]) {
		uint64_t every = health_interval_ns(g->health[i]);

		health_read(g->health[i], d, now);
		judge(g, i);
		g->health_ns[i] = now + (every < g->settings->health_interval_ns
						 ? every
						 : g->settings->health_interval_ns);
	}
	if (g->capacity[i] && v->guard) { /* else the headroom is not known */
		guard_view_capacity(v, i, &c);
		if (c.known)
			capacity_add(g->capacity[i], now, capacity_available(&c));
	}
}

/* What a checkpoint must know; of several GPUs the worst. */
static void tell_facts(struct guarding *g, const struct view *v)
{
	struct worker_facts f = { -1, -1, -1 };
	const struct verdict *verdicts;
	const struct scene *scene;

	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		double x;

		if (gw_device_value(d, GW_Q_PERSISTENCE, &x) == GW_HAVE)
			f.persistence = f.persistence == 0 || x == 0 ? 0 : 1;
		if (gw_device_value(d, GW_Q_MIG_MODE, &x) == GW_HAVE)
			f.mig = f.mig == 1 || x != 0;
	}
	verdicts = guard_verdicts(g->guard, &scene);
	if (g->view.scene && scene)
		f.mps = mps_serves_worker(scene, verdicts);
	action_set_facts(g->action, &f);
}

void guarding_health_read(struct guarding *g, const struct view *v)
{
	g->devices = v->devices < GUARDING_DEVICES ? v->devices : GUARDING_DEVICES;
	for (unsigned i = 0; i < g->devices; i++)
		read_device(g, v, i);
	tell_facts(g, v);
}

/* ---- beginning and end ---- */

int guarding_health_open(struct guarding *g)
{
	g->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->event_fd < 0 || loop_add_fd(g->config.loop, g->event_fd, EPOLLIN, driver_events,
					   g, &g->event_source) != 0)
		return -GW_E_IO;
	/* Where drivers tell no events, there are none. */
	watch_new(g->config.ctx, heard, g, &g->watch);
	return 0;
}

int guarding_health_stop(struct guarding *g)
{
	return watch_free(g->watch) == 0 ? 0 : -GW_E_STATE;
}

/* What is known of a GPU stays; where its health is no longer watched, it is no reason any more. */
void guarding_health_swapped(struct guarding *g)
{
	uint64_t now = guarding_now_ns();

	for (unsigned i = 0; i < GUARDING_DEVICES; i++) {
		if (!g->health[i])
			continue;
		g->health_ns[i] = 0;
		if (g->settings->health_enabled) {
			health_set_options(g->health[i], &g->settings->health);
			continue;
		}
		guarding_heat(g, g->uuid[i], 0, "", now);
		guarding_reason(g, g->uuid[i], REASON_THERMAL, false, "", now);
		guarding_reason(g, g->uuid[i], REASON_HEALTH, false, "", now);
		equip(g, i);
	}
}

void guarding_health_close(struct guarding *g)
{
	loop_remove(g->event_source);
	if (g->event_fd >= 0)
		close(g->event_fd);
	for (unsigned i = 0; i < GUARDING_DEVICES; i++)
		forget_device(g, i);
}
