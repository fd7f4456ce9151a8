#include "view.h"

#include "guard_view.h"

#include "base/number.h"
#include "guard/policy.h"
#include "guard/scene.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const unsigned view_history_quantity[VIEW_HISTORIES] = {
#define X(q) GW_Q_##q,
	VIEW_HISTORY(X)
#undef X
};

bool view_is_error(unsigned absence)
{
	switch (absence) {
	case GW_ABSENT_INVALID:
	case GW_ABSENT_ERROR:
	case GW_ABSENT_LOST:
	case GW_ABSENT_STALLED:
	case GW_ABSENT_NO_DRIVER: return true;
	/* The other absences are properties of the device, the machine or the configuration. */
	default: return false;
	}
}

/* Returns a GPU with a driver call that has not returned; NULL: there is no such GPU. */
static const struct gw_device *find_hanging(const struct view *v)
{
	for (unsigned i = 0; i < gw_snapshot_device_count(v->snap); i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);

		if (d->state == GW_DEVICE_STALLED)
			return d;
	}
	return NULL;
}

static const char *first_reading(const struct view *v, char *out, size_t size)
{
	snprintf(out, size, "%s", v->unopened ? v->unopened : "there is no reading yet");
	return out;
}

static uint64_t age_of_reading_ns(const struct view *v, uint64_t now_ns)
{
	uint64_t read_ns = gw_snapshot_mono_ns(v->snap);

	return now_ns > read_ns ? now_ns - read_ns : 0;
}

/* Returns the time from one reading to the next. */
static uint64_t reading_pace_ns(const struct view *v)
{
	return v->pace.next_ns > v->interval_ns ? v->pace.next_ns : v->interval_ns;
}

/* True if no worker is configured and the guard's scene is old. If a worker is configured, the
 * guard observes often enough. */
static bool scene_rests(const struct view *v, uint64_t now_ns)
{
	const struct guard_view *g = v->guard;

	return g && g->scene && !g->policy->workers &&
	       now_ns > g->scene->mono_ns + v->interval_ns;
}

bool view_rests(const struct view *v, uint64_t now_ns, bool scene)
{
	if (!v->tick || !v->snap || v->let_go || v->pace.next_ns <= v->interval_ns)
		return false;
	return !v->pace.full || age_of_reading_ns(v, now_ns) > v->interval_ns ||
	       (scene && scene_rests(v, now_ns));
}

bool view_simulated(const struct view *v)
{
	return v->snap && gw_snapshot_status(v->snap)->simulated;
}

bool view_current(const struct view *v, uint64_t now_ns)
{
	return v->tick && v->snap && !v->let_go &&
	       age_of_reading_ns(v, now_ns) <= 2 * v->interval_ns;
}

const char *view_stale(const struct view *v, uint64_t now_ns, char *out, size_t size)
{
	const struct gw_device *d;
	uint64_t age_ns;

	if (v->tick == 0 || !v->snap)
		return first_reading(v, out, size);
	if (v->let_go) {
		snprintf(out, size, "the drivers are released");
		return out;
	}
	if (gw_snapshot_status(v->snap)->cause == GW_CAUSE_STALLED) {
		snprintf(out, size, "%s", gw_snapshot_status(v->snap)->message);
		return out;
	}
	d = find_hanging(v);
	if (d) {
		snprintf(out, size, "GPU %u: %s", d->index, d->message);
		return out;
	}
	age_ns = age_of_reading_ns(v, now_ns);
	/* Allow twice the time between two readings: just before the next reading, the age is
	 * normally as long as that time. */
	if (age_ns > 2 * reading_pace_ns(v)) {
		snprintf(out, size,
			 "the latest reading is %.1f s old, but one is due every %g s",
			 (double)age_ns / 1e9, (double)reading_pace_ns(v) / 1e9);
		return out;
	}
	return NULL;
}

bool view_answers(const struct view *v)
{
	for (unsigned i = 0; i < gw_snapshot_device_count(v->snap); i++) {
		enum gw_device_state state = gw_snapshot_device(v->snap, i)->state;

		if (state != GW_DEVICE_LOST && state != GW_DEVICE_CLOSED)
			return true;
	}
	return false;
}

const char *view_unready(const struct view *v, uint64_t now_ns, char *out, size_t size)
{
	const char *why = view_stale(v, now_ns, out, size);
	const struct gw_status *s;

	if (why)
		return why;
	s = gw_snapshot_status(v->snap);
	/* A machine that has a driver but no GPUs is ready. A machine without a driver is not
	 * ready. */
	if (view_answers(v) || (s->cause == GW_CAUSE_NONE && !v->devices) ||
	    (s->cause == GW_CAUSE_NO_GPU && s->driver_version))
		return NULL;
	snprintf(out, size, "%s", *s->message ? s->message : "no GPU responds");
	return out;
}

/* The next functions compute the capacity of a GPU. This is its free memory, and the workers
 * that would leave the GPU if a job needs more, in the order in which they would leave. */

/* Returns the bytes that a worker holds on a GPU of the scene. */
static uint64_t worker_bytes(const struct guard_view *g, unsigned worker, unsigned gpu)
{
	const struct scene *s;
	const struct verdict *v = guard_verdicts(g->guard, &s);
	uint64_t bytes = 0;

	for (unsigned i = 0; v && s && i < s->processes; i++)
		if (v[i].class == CLASS_WORKER && v[i].worker == (int)worker &&
		    s->process[i].gpu == gpu && s->process[i].bytes_known)
			bytes += s->process[i].bytes;
	return bytes;
}

static void add_worker(const struct guard_view *g, unsigned w, unsigned gpu,
		       struct capacity_gpu *ret)
{
	const struct policy_worker *p = &g->policy->worker[w];
	uint64_t bytes = worker_bytes(g, w, gpu);
	struct guard_status s;

	if (bytes == 0 || ret->workers == POLICY_WORKERS || guard_status(g->guard, w, &s) != 0)
		return;
	snprintf(ret->worker[ret->workers].name, sizeof(ret->worker[0].name), "%s", p->name);
	ret->worker[ret->workers].bytes = bytes;
	ret->worker[ret->workers].seconds = s.freed_ns ? (double)s.freed_ns * 1e-9 : NAN;
	ret->worker[ret->workers].movable = guard_movable(g->guard, w);
	ret->workers++;
}

static void add_health(const struct guard_view *g, unsigned i, uint64_t now_ns,
		       struct capacity_gpu *ret)
{
	struct health_status h;

	ret->margin_c = NAN;
	if (i >= g->devices || !g->health[i])
		return;
	health_status(g->health[i], now_ns, &h);
	ret->margin_c = h.margin_c;
	ret->quarantine = h.quarantine;
	ret->warm = h.heat >= HEALTH_THROTTLE;
}

/* Returns the bytes that are reserved on the GPU and not taken yet. */
static uint64_t reserved(const struct guard_view *g, const char *uuid)
{
	struct guard_reservation room;
	uint64_t bytes = 0;

	for (unsigned i = 0; guard_reservation_at(g->guard, i, &room); i++)
		if (room.id && strcmp(room.gpu, uuid) == 0)
			bytes += room.left_bytes;
	return bytes;
}

void guard_view_capacity(const struct view *v, unsigned i, struct capacity_gpu *ret)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const char *uuid = gw_device_text(d, GW_T_UUID);
	const struct guard_view *g = v->guard;
	double total = 0, free_bytes = 0;
	int at;

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", uuid ? uuid : "");
	ret->known = gw_device_value(d, GW_Q_MEMORY_TOTAL, &total) == GW_HAVE &&
		     gw_device_value(d, GW_Q_MEMORY_FREE, &free_bytes) == GW_HAVE;
	ret->total_bytes = (uint64_t)total;
	ret->free_bytes = (uint64_t)free_bytes;
	ret->margin_c = NAN;
	ret->blind = d->state != GW_DEVICE_OK;
	if (!g)
		return;
	ret->headroom_bytes = guard_headroom(g->guard, ret->total_bytes);
	ret->reserved_bytes = reserved(g, ret->uuid);
	add_health(g, i, gw_snapshot_mono_ns(v->snap), ret);
	at = guard_view_gpu(g->scene, uuid);
	if (at < 0)
		return;
	for (unsigned k = 0; k < g->policy->workers; k++)
		add_worker(g, guard_leaves_nth(g->guard, k), (unsigned)at, ret);
}

const char *guard_journal_text(enum guard_journal j)
{
	static const char *const text[] = {
		"ok",
		"there is no journal file; evictions above level 2 (unload) are refused",
		"the journal cannot be written; evictions above level 2 (unload) are refused",
	};

	return text[j];
}

const char *guard_operation_word(enum guard_request what)
{
	static const char *const word[] = { "evict",       "resume",  "hold evicted",
					    "hold active", "release", "resume now" };

	return word[what];
}

const char *guard_operation_state_name(enum guard_operation_state s)
{
	static const char *const name[] = { "running", "done", "failed" };

	return name[s];
}

static bool belongs_to(const struct guard_operation *x, const char *worker)
{
	return x->id && strcmp(x->worker, worker) == 0;
}

const struct guard_operation *guard_operation_running(const struct guard_operations *o,
						      const char *worker,
						      enum guard_request what)
{
	for (unsigned i = 0; i < GUARD_OPERATIONS; i++)
		if (belongs_to(&o->ring[i], worker) && o->ring[i].what == what &&
		    o->ring[i].state == OPERATION_RUNNING)
			return &o->ring[i];
	return NULL;
}

static bool is_eviction(enum guard_request what)
{
	return what == REQUEST_EVICT || what == REQUEST_HOLD_EVICTED;
}

/* True if a worker in the state s has reached what the request `what` asks for. */
static bool is_reached(enum guard_request what, enum guard_state s)
{
	if (what == REQUEST_RELEASE)
		return true;
	if (is_eviction(what))
		return s == STATE_EVICTED || s == STATE_QUIET || s == STATE_ABSENT;
	return s == STATE_ACTIVE || s == STATE_SUSPECT;
}

static void operation_end(struct guard_operation *x, enum guard_operation_state state,
			  uint64_t wall_ns)
{
	x->state = state;
	x->ended_wall_ns = wall_ns;
}

static void end_superseded(struct guard_operations *o, const char *worker, uint64_t id,
			   uint64_t wall_ns)
{
	for (unsigned i = 0; i < GUARD_OPERATIONS; i++) {
		struct guard_operation *x = &o->ring[i];

		if (!belongs_to(x, worker) || x->state != OPERATION_RUNNING)
			continue;
		operation_end(x, OPERATION_FAILED, wall_ns);
		snprintf(x->message, sizeof(x->message), "replaced by operation %llu",
			 (unsigned long long)id);
	}
}

void guard_operation_begin(struct guard_operations *o, uint64_t id, const char *worker,
			   enum guard_request what, const struct guard_status *s,
			   uint64_t wall_ns)
{
	struct guard_operation *x;

	end_superseded(o, worker, id, wall_ns);
	x = &o->ring[o->begun++ % GUARD_OPERATIONS];
	*x = (struct guard_operation){ .id = id, .what = what, .since_wall_ns = wall_ns };
	snprintf(x->worker, sizeof(x->worker), "%s", worker);
	snprintf(x->message, sizeof(x->message), "%s", s->why);
	if (is_reached(what, s->state))
		operation_end(x, OPERATION_DONE, wall_ns);
}

static void operation_update(struct guard_operation *x, const struct guard_decision *d,
			     uint64_t wall_ns)
{
	snprintf(x->message, sizeof(x->message), "%s%s%s%s", d->dry ? "dry run: " : "", d->rule,
		 *d->evidence ? ": " : "", d->evidence);
	if (is_reached(x->what, d->to))
		operation_end(x, OPERATION_DONE, wall_ns);
	else if (is_eviction(x->what) && d->to == STATE_STUCK)
		operation_end(x, OPERATION_FAILED, wall_ns);
}

void guard_operation_decided(struct guard_operations *o, const char *worker,
			     const struct guard_decision *d, uint64_t wall_ns)
{
	for (unsigned i = 0; i < GUARD_OPERATIONS; i++)
		if (belongs_to(&o->ring[i], worker) && o->ring[i].state == OPERATION_RUNNING)
			operation_update(&o->ring[i], d, wall_ns);
}

const struct guard_operation *guard_operation_find(const struct guard_operations *o,
						   uint64_t id)
{
	for (unsigned i = 0; o && id && i < GUARD_OPERATIONS; i++)
		if (o->ring[i].id == id)
			return &o->ring[i];
	return NULL;
}

const struct guard_operation *guard_operation_latest(const struct guard_operations *o,
						     const char *worker)
{
	const struct guard_operation *latest = NULL;

	for (unsigned i = 0; o && i < GUARD_OPERATIONS; i++)
		if (belongs_to(&o->ring[i], worker) && (!latest || o->ring[i].id > latest->id))
			latest = &o->ring[i];
	return latest;
}

const struct guard_view_decision *guard_view_last_decision(const struct guard_view *g,
							   unsigned worker)
{
	for (unsigned i = g->decisions; i > 0; i--) {
		const struct guard_view_decision *d =
			&g->ring[(g->first + i - 1) % GUARD_VIEW_DECISIONS];

		if (d->decision.worker == worker)
			return d;
	}
	return NULL;
}

const char *guard_view_requested_by(const struct guard_view *g, unsigned worker)
{
	const char *name = g->policy->worker[worker].name;

	for (unsigned i = 0; g->requested && i < POLICY_WORKERS; i++)
		if (strcmp(g->requested[i].worker, name) == 0 && *g->requested[i].by)
			return g->requested[i].by;
	return "a person";
}

bool guard_view_contends(const struct guard_view *g, unsigned worker, unsigned i)
{
	struct guard_relation b;

	guard_relation(g->guard, worker, i, &b);
	return b.here && b.against && b.kind != 0;
}

bool guard_view_hypothetical(const struct guard_status *s)
{
	return s->dry && !s->stays_evicted && s->state != STATE_RECONCILE &&
	       s->state != STATE_ACTIVE && s->state != STATE_SUSPECT &&
	       s->state != STATE_ABSENT;
}

/* Writes for which process the worker leaves. */
static void contention_text(const struct guard_explanation *why, char *out, size_t size)
{
	const struct contender *c = &why->contender;
	const char *name = *c->name ? c->name : "process";
	const long long pid = c->pid;
	char bytes[BYTES_TEXT];

	if (!pid)
		snprintf(out, size, "for another program: %s", why->evidence);
	else if (c->bytes_known)
		snprintf(out, size, "for %s (pid %lld, %s)", name, pid,
			 bytes_text(bytes, (double)c->bytes, 1));
	else
		snprintf(out, size, "for %s%s (pid %lld)",
			 c->game ? "the registered game " : "", name, pid);
}

/* Returns the text of a reason that has the same text for every worker; NULL: the text depends
 * on the worker. The switch has no default, so that the compiler reports a new reason that is
 * missing here. */
static const char *because(enum guard_reason r)
{
	switch (r) {
	case REASON_THERMAL: return "its GPU is too hot";
	case REASON_HEALTH: return "its GPU has a fault";
	case REASON_SCHEDULE: return "its schedule forbids it to run now";
	case REASON_BATTERY: return "the machine is on battery";
	case REASON_BLIND: return "its GPU cannot be read";
	case REASON_BUDGET: return "power or energy is above its cap";
	case REASON_IDLE: return "its model was idle";
	case REASON_CONTENTION:
	case REASON_MANUAL:
	case REASON_RESERVED:
	case GUARD_REASONS: break;
	}
	return NULL;
}

void guard_view_cause(const struct guard_view *g, unsigned worker, char *out, size_t size)
{
	struct guard_explanation why;

	*out = '\0';
	for (unsigned r = 0; r < GUARD_REASONS && !*out; r++) {
		if (!guard_explain(g->guard, worker, r, &why) || why.masked)
			continue;
		if (r == REASON_CONTENTION)
			contention_text(&why, out, size);
		else if (because(r))
			snprintf(out, size, "because %s", because(r));
		else if (r == REASON_MANUAL)
			snprintf(out, size, "at the request of %s",
				 guard_view_requested_by(g, worker));
		else
			snprintf(out, size, "for %s", why.evidence);
	}
}
