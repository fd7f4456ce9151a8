#include "view.h"

#include "guard_view.h"

#include "guard/policy.h"
#include "guard/scene.h"

#include <stdio.h>

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
	/* not a failure: a property of the device, the machine or the configuration */
	default: return false;
	}
}

/* Returns a GPU with a driver call that has not returned; NULL: there is no such GPU. */
static const struct gw_device *hanging(const struct view *v)
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

/* Returns the time in which the next reading is due. */
static uint64_t reading_pace_ns(const struct view *v)
{
	return v->pace.next_ns > v->interval_ns ? v->pace.next_ns : v->interval_ns;
}

/* True if the guard's scene is old. With a worker, the guard decides when a scene is due. */
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
	d = hanging(v);
	if (d) {
		snprintf(out, size, "GPU %u: %s", d->index, d->message);
		return out;
	}
	age_ns = age_of_reading_ns(v, now_ns);
	/* An age of one pace is normal just before the next reading. */
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
	/* A machine with a driver but without GPUs is ready; without a driver nothing is
	 * known. */
	if (view_answers(v) || (s->cause == GW_CAUSE_NONE && !v->devices) ||
	    (s->cause == GW_CAUSE_NO_GPU && s->driver_version))
		return NULL;
	snprintf(out, size, "%s", *s->message ? s->message : "no GPU responds");
	return out;
}
