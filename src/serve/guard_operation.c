#include "guard_operation.h"

#include <stdio.h>
#include <string.h>

const char *guard_operation_word(enum guard_ask what)
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
						      const char *worker, enum guard_ask what)
{
	for (unsigned i = 0; i < GUARD_OPERATIONS; i++)
		if (belongs_to(&o->ring[i], worker) && o->ring[i].what == what &&
		    o->ring[i].state == OPERATION_RUNNING)
			return &o->ring[i];
	return NULL;
}

/* ---- how operations end ---- */

static bool is_eviction(enum guard_ask what)
{
	return what == ASK_EVICT || what == ASK_HOLD_EVICTED;
}

/* Has the worker reached the requested state? */
static bool reached(enum guard_ask what, enum guard_state s)
{
	if (what == ASK_RELEASE)
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

static void supersede(struct guard_operations *o, const char *worker, uint64_t id,
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
			   enum guard_ask what, const struct guard_status *s, uint64_t wall_ns)
{
	struct guard_operation *x;

	supersede(o, worker, id, wall_ns);
	x = &o->ring[o->begun++ % GUARD_OPERATIONS];
	*x = (struct guard_operation){ .id = id, .what = what, .since_wall_ns = wall_ns };
	snprintf(x->worker, sizeof(x->worker), "%s", worker);
	snprintf(x->message, sizeof(x->message), "%s", s->why);
	if (reached(what, s->state))
		operation_end(x, OPERATION_DONE, wall_ns);
}

static void operation_update(struct guard_operation *x, const struct guard_decision *d,
			     uint64_t wall_ns)
{
	snprintf(x->message, sizeof(x->message), "%s%s%s%s", d->dry ? "dry run: " : "", d->rule,
		 *d->evidence ? ": " : "", d->evidence);
	if (reached(x->what, d->to))
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

/* ---- lookups ---- */

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
