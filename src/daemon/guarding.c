#include "guarding.h"

#include "guard_record.h"
#include "guard_trace.h"
#include "looker.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "device/watch.h"
#include "guard/action.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIND        "guard" /* of its documents in the store */
#define EVENTS      64      /* of drivers that wait for the main thread */
#define DEVICES_MAX SCENE_GPUS
#define LOOK_NS     (5 * NS_PER_MS)
#define SAFE_LEVEL  2 /* what a worker does by itself and takes back: no journal is needed */
#define RESTORE_NS  (10 * NS_PER_S)
#define KEEP_NS     (200 * NS_PER_MS)
#define OWNERS      32 /* of reservations: as many as there can be */

/* A process for which room is kept: the room goes when it ends. */
struct owner {
	struct guarding *g;
	uint64_t id; /* of the reservation; 0: none */
	int fd;      /* its pidfd */
	struct loop_source *source;
};

struct guarding {
	struct guarding_config config;
	struct guard_settings settings;
	struct guard *guard;
	struct action *action;
	struct looker *looker;
	struct watch *watch;
	int outcome_fd, event_fd;
	struct loop_source *outcome_source, *event_source, *timer;
	bool writing; /* orders wait for records to be in the file */
	bool paused;
	bool failed; /* the last record could not be kept */
	struct health *health[DEVICES_MAX];
	struct capacity *capacity[DEVICES_MAX];
	char uuid[DEVICES_MAX][96];
	uint64_t health_ns[DEVICES_MAX]; /* next due */
	enum health_level told[DEVICES_MAX];
	unsigned devices;
	struct guard_view_decision ring[GUARD_VIEW_DECISIONS];
	uint64_t decided;
	struct guard_view view;
	uint64_t evictions_before; /* of earlier runs */
	uint64_t ordered_ns[POLICY_WORKERS];
	struct owner owner[OWNERS];
	int record_fd; /* -1: nothing is recorded */
	struct buf line;
	/* From the watch's thread. */
	pthread_mutex_t lock;
	struct watch_event event[EVENTS];
	unsigned events;
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* ---- what is recorded ---- */

/* Adds what is in g->line to the recording; one that cannot be written ends, the guard goes on. */
static void record(struct guarding *g)
{
	char text[600];

	if (g->record_fd >= 0 &&
	    (g->line.err || file_write_all(g->record_fd, g->line.p, g->line.len) != 0)) {
		snprintf(text, sizeof(text), "%.400s cannot be written (%s): recording ends",
			 g->settings.record, g->line.err ? "no memory" : strerror(errno));
		g->config.tell(g->config.arg, &(struct view_event){ .kind = "guard",
								    .severity = "warning",
								    .text = text });
		close(g->record_fd);
		g->record_fd = -1;
	}
	buf_clear(&g->line);
}

static void begin_recording(struct guarding *g)
{
	if (!g->settings.record)
		return;
	/* It tells who runs what on this machine: for its owner alone. */
	g->record_fd =
		open(g->settings.record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (g->record_fd < 0) {
		char text[600];

		snprintf(text, sizeof(text),
			 "%.400s cannot be opened (%s): nothing is recorded",
			 g->settings.record, strerror(errno));
		g->config.tell(g->config.arg, &(struct view_event){ .kind = "guard",
								    .severity = "warning",
								    .text = text });
		return;
	}
	guard_trace_begin(&g->line);
	record(g);
}

static void take_outcome(struct guarding *g, const struct guard_outcome *o)
{
	uint64_t now = now_ns();

	if (g->record_fd >= 0) {
		guard_trace_outcome(&g->line, o, now);
		record(g);
	}
	guard_outcome(g->guard, o, now);
}

static void set_reason(struct guarding *g, const char *uuid, enum guard_reason r, bool on,
		       const char *why, uint64_t now)
{
	if (g->record_fd >= 0) {
		guard_trace_reason(&g->line, uuid, r, on, why, now);
		record(g);
	}
	guard_reason_set(g->guard, uuid, r, on, why, now);
}

/* ---- what is decided ---- */

static const char *severity_of(const struct guard_decision *d)
{
	return d->to == STATE_STUCK                           ? "error"
	       : d->to == STATE_EVICT || d->to == STATE_DRAIN ? "warning"
							      : "info";
}

/* Whoever asks between ticks sees it too. */
static void show_ring(struct guarding *g)
{
	g->view.decisions =
		g->decided < GUARD_VIEW_DECISIONS ? (unsigned)g->decided : GUARD_VIEW_DECISIONS;
	g->view.first = (unsigned)((g->decided - g->view.decisions) % GUARD_VIEW_DECISIONS);
}

static void tell_decision(struct guarding *g, const struct guard_decision *d)
{
	const char *name = g->settings.policy.worker[d->worker].name;
	struct guard_view_decision *r = &g->ring[g->decided % GUARD_VIEW_DECISIONS];
	char text[700];

	snprintf(text, sizeof(text), "%sworker %s: %s to %s%s%s%s%s%s",
		 d->dry ? "(nothing is done) " : "", name, guard_state_name(d->from),
		 guard_state_name(d->to), *d->rule ? ", " : "", d->rule,
		 *d->evidence ? " (" : "", d->evidence, *d->evidence ? ")" : "");
	r->decision = *d;
	r->wall_ns = clock_wall_ns(clock_real());
	r->id = g->config.tell(g->config.arg, &(struct view_event){ .kind = "guard",
								    .severity = severity_of(d),
								    .text = text });
	g->decided++;
	show_ring(g);
	if (d->to == STATE_DRAIN || d->to == STATE_EVICT)
		g->ordered_ns[d->worker] = d->mono_ns;
	if (d->to == STATE_EVICTED && d->from == STATE_VERIFY && g->ordered_ns[d->worker]) {
		double s = (double)(d->mono_ns - g->ordered_ns[d->worker]) * 1e-9;

		g->view.counts.free_seconds_last = s;
		g->view.counts.free_seconds_max = fmax(g->view.counts.free_seconds_max, s);
		g->ordered_ns[d->worker] = 0;
	}
}

static void keep_record(struct guarding *g, const struct guard_record *r)
{
	char notes[WORKER_NOTES_SIZE] = "";
	struct buf text;

	for (unsigned i = 0; i < g->settings.policy.workers; i++)
		if (strcmp(g->settings.policy.worker[i].name, r->worker) == 0)
			action_notes(g->action, i, notes, sizeof(notes));
	buf_init(&text, 64 * 1024);
	guard_record_write(&text, r, notes);
	if (!text.err)
		store_keep(g->config.store, KIND, r->worker, text.p, text.len);
	buf_done(&text);
	g->writing = true;
}

/* An order that cannot be carried out has an outcome all the same. */
static void refuse(struct guarding *g, const struct guard_order *o, const char *why)
{
	struct guard_outcome out = { .order = o->id };

	snprintf(out.message, sizeof(out.message), "%s", why);
	take_outcome(g, &out);
}

static void give_orders(struct guarding *g)
{
	struct guard_order o;

	while (guard_next_order(g->guard, &o)) {
		if (o.level > SAFE_LEVEL && o.verb == ORDER_EVICT &&
		    (g->failed || !store_lasting(g->config.store)))
			refuse(g, &o,
			       "the journal cannot be written: nothing above level 2 is done");
		else if (action_order(g->action, &o) != 0)
			refuse(g, &o, "an order for this worker is under way");
	}
}

static void pump(struct guarding *g);

/* Orders wait until what they do is in the file. */
static void written(void *arg, uint64_t t_ns)
{
	struct guarding *g = arg;
	int err = store_lasting(g->config.store) ? store_flush(g->config.store, 0) : 0;

	if (err == -GW_E_TIMEOUT) {
		loop_set_time(g->timer, t_ns + LOOK_NS);
		return;
	}
	g->failed = err != 0;
	g->writing = false;
	give_orders(g);
	pump(g);
}

/* All that follows from what the guard was told. */
static void pump(struct guarding *g)
{
	struct guard_decision d;
	struct guard_record r;

	while (guard_next_decision(g->guard, &d))
		tell_decision(g, &d);
	if (g->writing)
		return;
	while (guard_next_record(g->guard, &r))
		keep_record(g, &r);
	if (g->writing) {
		store_commit(g->config.store);
		written(g, now_ns());
	} else {
		give_orders(g);
	}
}

/* ---- what is seen ---- */

static uint64_t came(void *arg, const struct scene *s, bool *ret_utilisation)
{
	struct guarding *g = arg;
	uint64_t before = g->decided, now;

	g->view.scene = s;
	g->view.counts.looks++;
	if (g->record_fd >= 0) {
		scene_write(&g->line, s);
		record(g);
	}
	guard_look(g->guard, s);
	pump(g);
	now = now_ns();
	if (g->decided != before) {
		double seconds = (double)(now - s->mono_ns) * 1e-9;

		g->view.counts.decide_seconds_last = seconds;
		g->view.counts.decide_seconds_max =
			fmax(g->view.counts.decide_seconds_max, seconds);
	}
	*ret_utilisation = guard_wants_utilisation(g->guard);
	return guard_next_look(g->guard, now);
}

static void outcomes(void *arg, int fd, uint32_t events)
{
	struct guarding *g = arg;
	struct guard_outcome o;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	while (action_next_outcome(g->action, &o))
		take_outcome(g, &o);
	pump(g);
	looker_now(g->looker);
}

/* On the watch's thread. */
static void heard(void *arg, const struct watch_event *e)
{
	struct guarding *g = arg;

	pthread_mutex_lock(&g->lock);
	if (g->events < EVENTS)
		g->event[g->events++] = *e;
	pthread_mutex_unlock(&g->lock);
	eventfd_write(g->event_fd, 1);
}

static int device_of(const struct guarding *g, const char *uuid)
{
	for (unsigned i = 0; i < g->devices; i++)
		if (strcmp(g->uuid[i], uuid) == 0)
			return (int)i;
	return -1;
}

static void judge(struct guarding *g, unsigned i);

static void take_event(struct guarding *g, const struct watch_event *e)
{
	int i = device_of(g, e->uuid);
	char text[200];

	if (e->type & 8) { /* an Xid */
		snprintf(text, sizeof(text), "Xid %u: %s (%s)", (unsigned)e->data,
			 xid_text((unsigned)e->data),
			 xid_class_name(xid_class_of((unsigned)e->data)));
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

static void driver_events(void *arg, int fd, uint32_t events)
{
	struct guarding *g = arg;
	struct watch_event e[EVENTS];
	unsigned count;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	pthread_mutex_lock(&g->lock);
	count = g->events;
	memcpy(e, g->event, count * sizeof(e[0]));
	g->events = 0;
	pthread_mutex_unlock(&g->lock);
	for (unsigned i = 0; i < count; i++)
		take_event(g, &e[i]);
	pump(g);
}

/* ---- health and capacity ---- */

static const char *level_word(enum health_level l)
{
	static const char *const words[] = { "well", "warm", "hot: work is held back",
					     "too hot: workers leave", "in quarantine" };

	return words[l];
}

/* What its health means for the workers on it. */
static void judge(struct guarding *g, unsigned i)
{
	struct health_status s;
	uint64_t now = now_ns();
	char text[500];

	health_status(g->health[i], now, &s);
	set_reason(g, g->uuid[i], REASON_THERMAL, s.level == HEALTH_EVICT && s.thermal, s.why,
		   now);
	set_reason(g, g->uuid[i], REASON_HEALTH, s.quarantine, s.why, now);
	if (s.level == g->told[i])
		return;
	snprintf(text, sizeof(text), "GPU is %s%s%s%s%s", level_word(s.level),
		 *s.why ? ": " : "", s.why, *s.advice ? ". " : "", s.advice);
	g->config.tell(g->config.arg,
		       &(struct view_event){ .kind = "health",
					     .uuid = g->uuid[i],
					     .severity = s.level >= HEALTH_EVICT ? "error"
							 : s.level               ? "warning"
										 : "info",
					     .text = text });
	g->told[i] = s.level;
}

static bool follow_device(struct guarding *g, unsigned i, const char *uuid)
{
	if (strcmp(g->uuid[i], uuid) == 0)
		return true;
	snprintf(g->uuid[i], sizeof(g->uuid[i]), "%s", uuid);
	health_free(g->health[i]);
	capacity_free(g->capacity[i]);
	g->health[i] = NULL;
	g->capacity[i] = NULL;
	g->told[i] = HEALTH_OK;
	g->health_ns[i] = 0;
	if (g->settings.health_enabled && health_new(&g->settings.health, &g->health[i]) != 0)
		return false;
	return !g->settings.capacity_enabled || capacity_new(&g->capacity[i]) == 0;
}

static void read_device(struct guarding *g, const struct view *v, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	uint64_t now = now_ns();
	struct capacity_gpu c;

	if (!uuid || !follow_device(g, i, uuid))
		return;
	if (g->health[i] && now >= g->health_ns[i]) {
		uint64_t every = health_interval_ns(g->health[i]);

		health_read(g->health[i], d, now);
		judge(g, i);
		g->health_ns[i] = now + (every < g->settings.health_interval_ns
						 ? every
						 : g->settings.health_interval_ns);
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

	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		double x;

		if (gw_device_value(d, GW_Q_PERSISTENCE, &x) == GW_HAVE)
			f.persistence = f.persistence == 0 || x == 0 ? 0 : 1;
		if (gw_device_value(d, GW_Q_MIG_MODE, &x) == GW_HAVE)
			f.mig = f.mig == 1 || x != 0;
	}
	action_set_facts(g->action, &f);
}

void guarding_tick(struct guarding *g, const struct view *v)
{
	g->devices = v->devices < DEVICES_MAX ? v->devices : DEVICES_MAX;
	for (unsigned i = 0; i < g->devices; i++)
		read_device(g, v, i);
	tell_facts(g, v);
	if (v->let_go != g->paused) {
		g->paused = v->let_go;
		looker_pause(g->looker, g->paused);
	}
	pump(g);
}

/* ---- the view ---- */

static void count(struct guarding *g)
{
	struct guard_view_counts *c = &g->view.counts;
	struct look_stats looks;

	c->evictions = c->resumes = c->would_evict = c->stuck = 0;
	for (unsigned i = 0; i < g->settings.policy.workers; i++) {
		struct guard_status s;

		if (guard_status(g->guard, i, &s) != 0)
			continue;
		c->evictions += s.evictions;
		c->resumes += s.resumes;
		c->would_evict += s.would_evict;
		c->stuck += s.state == STATE_STUCK;
	}
	c->evictions_ever = g->evictions_before + c->evictions;
	store_set_count(g->config.store, "evictions", (double)c->evictions_ever);
	looker_stats(g->looker, &looks, &c->triggered);
}

const struct guard_view *guarding_view(struct guarding *g)
{
	count(g);
	g->view.policy = &g->settings.policy;
	g->view.guard = g->guard;
	g->view.health = g->health;
	g->view.capacity = g->capacity;
	g->view.devices = g->devices;
	g->view.ring = g->ring;
	g->view.journal =
		!store_lasting(g->config.store)
			? "nothing is kept in a file: evictions above level 2 are refused"
		: g->failed
			? "the journal cannot be written: evictions above level 2 are refused"
			: "ok";
	return &g->view;
}

/* ---- what people ask ---- */

static void audit(struct guarding *g, const char *who, const char *what)
{
	char text[300];

	snprintf(text, sizeof(text), "%s (asked by %s)", what, who);
	g->config.tell(
		g->config.arg,
		&(struct view_event){ .kind = "guard", .severity = "info", .text = text });
}

/* Who is told that it is so may rely on it: his wish is in the file before he is answered.  A disk that
 * hangs holds us up no longer than this. */
static void keep_wish(struct guarding *g)
{
	uint64_t now = now_ns(), until = now + KEEP_NS;

	for (; g->writing && now < until; now = now_ns()) {
		if (store_flush(g->config.store, until - now) == -GW_E_TIMEOUT)
			return;
		written(g, now);
	}
}

static int ask(void *engine, int worker, enum guard_ask what, uint64_t ttl_ns, const char *who,
	       char *message, size_t size)
{
	static const char *const words[] = { "evict",       "resume",  "hold evicted",
					     "hold active", "release", "resume now" };
	struct guarding *g = engine;
	uint64_t now = now_ns();
	char text[160];
	int err;

	if (g->record_fd >= 0) {
		guard_trace_ask(&g->line, worker, what, ttl_ns, now);
		record(g);
	}
	err = guard_ask(g->guard, worker, what, ttl_ns, now, message, size);
	if (!err) {
		snprintf(text, sizeof(text), "worker %s: %s",
			 worker < 0 ? "(all)" : g->settings.policy.worker[worker].name,
			 words[what]);
		audit(g, who, text);
	}
	pump(g);
	keep_wish(g);
	looker_now(g->looker);
	return err;
}

static void release_room(void *engine, uint64_t id);

static void forget_owner(struct owner *o)
{
	loop_remove(o->source);
	close(o->fd);
	*o = (struct owner){ .id = 0 };
}

static void owner_ended(void *arg, int fd, uint32_t events)
{
	struct owner *o = arg;
	struct guarding *g = o->g;
	uint64_t id = o->id;

	(void)fd;
	(void)events;
	forget_owner(o);
	release_room(g, id);
}

/* One whose reservation ended by its time leaves its place. */
static struct owner *place_for_owner(struct guarding *g)
{
	char ignored[300];

	for (unsigned i = 0; i < OWNERS; i++) {
		struct owner *o = &g->owner[i];

		if (o->id &&
		    guard_reserved(g->guard, o->id, ignored, sizeof(ignored)) == -GW_E_NOENT)
			forget_owner(o);
		if (!o->id)
			return o;
	}
	return NULL;
}

/* Where the kernel cannot watch it, the room lasts until it is released or its time is over. */
static void watch_owner(struct guarding *g, uint64_t id, int fd)
{
	struct owner *o = fd >= 0 ? place_for_owner(g) : NULL;

	if (!o || loop_add_fd(g->config.loop, fd, EPOLLIN, owner_ended, o, &o->source) != 0) {
		if (fd >= 0)
			close(fd);
		return;
	}
	o->g = g;
	o->id = id;
	o->fd = fd;
}

static int reserve(void *engine, const char *gpu, uint64_t bytes, int64_t pid, uint64_t ttl_ns,
		   const char *who, uint64_t *ret_id)
{
	struct guarding *g = engine;
	uint64_t now = now_ns();
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1, err;
	char text[160];

	if (fd < 0 && pid > 0 && errno == ESRCH)
		return -GW_E_ARG; /* nobody is there to have it */
	if (g->record_fd >= 0) {
		guard_trace_reserve(&g->line, gpu, bytes, pid, ttl_ns, now);
		record(g);
	}
	err = guard_reserve(g->guard, gpu, bytes, pid, ttl_ns, now, ret_id);
	if (!err) {
		watch_owner(g, *ret_id, fd);
		snprintf(text, sizeof(text), "room for %.0f MiB is wanted",
			 (double)bytes / 1048576);
		audit(g, who, text);
	} else if (fd >= 0) {
		close(fd);
	}
	pump(g);
	looker_now(g->looker);
	return err;
}

static int reserved(void *engine, uint64_t id, char *message, size_t size)
{
	struct guarding *g = engine;

	return guard_reserved(g->guard, id, message, size);
}

static void release_room(void *engine, uint64_t id)
{
	struct guarding *g = engine;
	uint64_t now = now_ns();

	for (unsigned i = 0; i < OWNERS; i++)
		if (id && g->owner[i].id == id)
			forget_owner(&g->owner[i]);
	if (g->record_fd >= 0) {
		guard_trace_release(&g->line, id, now);
		record(g);
	}
	guard_release(g->guard, id, now);
	pump(g);
	looker_now(g->looker);
}

const struct guard_view_ops guarding_ops = { ask, reserve, reserved, release_room };

/* ---- beginning and end ---- */

struct loading {
	struct guarding *g;
	struct guard_record record[POLICY_WORKERS];
	unsigned count;
};

static void load(void *arg, const char *id, const char *json)
{
	struct loading *l = arg;
	char notes[WORKER_NOTES_SIZE];
	struct guard_record *r = &l->record[l->count];

	(void)id;
	if (l->count == POLICY_WORKERS || guard_record_read(json, r, notes, sizeof(notes)) != 0)
		return;
	l->count++;
	for (unsigned i = 0; i < l->g->settings.policy.workers; i++)
		if (strcmp(l->g->settings.policy.worker[i].name, r->worker) == 0)
			action_set_notes(l->g->action, i, notes);
}

static int open_guard(struct guarding *g)
{
	struct loading *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -GW_E_NOMEM;
	l->g = g;
	store_kept(g->config.store, KIND, POLICY_WORKERS, load, l);
	err = guard_new(&g->settings.policy, l->record, l->count, &g->guard);
	free(l);
	return err;
}

int guarding_new(const struct guarding_config *config, struct guarding **ret)
{
	struct guarding *g = calloc(1, sizeof(*g));
	int err = 0;

	if (!g) {
		guard_settings_done(config->settings);
		return -GW_E_NOMEM;
	}
	g->config = *config;
	g->settings = *config->settings;
	if (store_shared(config->store) && g->settings.policy.mode == GUARD_ENFORCE) {
		/* Two that act would undo each other's work. */
		g->settings.policy.mode = GUARD_OBSERVE;
		config->tell(config->arg,
			     &(struct view_event){
				     .kind = "guard",
				     .severity = "warning",
				     .text = "another gpuward guards with this file: "
					     "this one observes; stop one of the two" });
	}
	g->evictions_before = (uint64_t)store_count(config->store, "evictions");
	pthread_mutex_init(&g->lock, NULL);
	g->record_fd = -1;
	buf_init(&g->line,
		 (size_t)SCENE_LINE_MAX * (SCENE_PROCESSES + SCENE_GPUS + SCENE_ROOTS + 2));
	g->outcome_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	g->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->outcome_fd < 0 || g->event_fd < 0)
		err = -GW_E_IO;
	if (!err)
		err = action_new(&g->settings.policy, g->outcome_fd, &g->action);
	if (!err)
		err = open_guard(g);
	if (!err)
		err = loop_add_timer(config->loop, written, g, &g->timer);
	if (!err)
		err = loop_add_fd(config->loop, g->outcome_fd, EPOLLIN, outcomes, g,
				  &g->outcome_source);
	if (!err)
		err = loop_add_fd(config->loop, g->event_fd, EPOLLIN, driver_events, g,
				  &g->event_source);
	if (!err)
		err = looker_new(config->loop, config->ctx, &g->settings.policy, came, g,
				 &g->looker);
	if (err) {
		guarding_free(g, 0);
		return err;
	}
	begin_recording(g);
	/* Where drivers tell no events, there are none. */
	watch_new(config->ctx, heard, g, &g->watch);
	*ret = g;
	return 0;
}

/* Workers that may come back are let come back: for at most some seconds. */
static void restore(struct guarding *g)
{
	uint64_t until = now_ns() + RESTORE_NS;
	unsigned waiting = g->guard ? guard_stop(g->guard, now_ns()) : 0;
	struct guard_outcome o;

	pump(g);
	while (waiting && now_ns() < until) {
		clock_sleep_until(clock_real(), now_ns() + LOOK_NS);
		if (g->writing)
			written(g, now_ns());
		while (waiting && action_next_outcome(g->action, &o)) {
			take_outcome(g, &o);
			waiting--;
		}
		pump(g);
	}
}

int guarding_free(struct guarding *g, uint64_t timeout_ns)
{
	int err = 0;

	if (!g)
		return 0;
	if (g->looker)
		err = looker_free(g->looker, timeout_ns);
	if (!err && watch_free(g->watch) != 0)
		err = -GW_E_STATE;
	if (g->action) {
		restore(g);
		if (action_free(g->action, timeout_ns) != 0)
			err = -GW_E_STATE;
	}
	if (err)
		return err;
	loop_remove(g->timer);
	loop_remove(g->outcome_source);
	loop_remove(g->event_source);
	if (g->outcome_fd >= 0)
		close(g->outcome_fd);
	if (g->event_fd >= 0)
		close(g->event_fd);
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		health_free(g->health[i]);
		capacity_free(g->capacity[i]);
	}
	for (unsigned i = 0; i < OWNERS; i++)
		if (g->owner[i].id)
			forget_owner(&g->owner[i]);
	if (g->record_fd >= 0)
		close(g->record_fd);
	buf_done(&g->line);
	guard_free(g->guard);
	guard_settings_done(&g->settings);
	pthread_mutex_destroy(&g->lock);
	free(g);
	return 0;
}
