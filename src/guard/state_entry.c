/* guard_enter: what is asked of a worker's facts by every state, and what entering a state does. */
#include "guard_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t guard_quiet_ns(const struct guard_worker *w)
{
	double ns = (double)w->knobs.quiet_ns * w->backoff;

	return ns < (double)LONGEST_NS ? (uint64_t)ns : LONGEST_NS;
}

void guard_latch(struct guard_worker *w, bool on)
{
	w->dirty = w->dirty || (w->evicted && w->contention != on);
	w->contention = on;
	w->mask &= ~BIT(REASON_CONTENTION);
	if (!on)
		return;
	w->mask |= BIT(REASON_CONTENTION);
	text_fit(w->cause, sizeof(w->cause), "%s", w->demand.rule);
	text_fit(w->evidence[REASON_CONTENTION], sizeof(w->evidence[0]), "%s",
		 w->demand.evidence);
}

bool guard_sure(const struct guard *g, const struct guard_worker *w)
{
	return w->against &&
	       demand_sure(&w->demand, &w->knobs, g->now_ns - w->against_ns, w->against_looks);
}

bool guard_calm(const struct guard *g, const struct guard_worker *w)
{
	return !w->against && w->calm_looks && g->now_ns - w->calm_ns >= guard_quiet_ns(w);
}

/* Were the facts seen after the last order was answered, and is none under way? */
bool guard_is_fresh(const struct guard *g, const struct guard_worker *w)
{
	return !w->pending && g->looks > w->answered;
}

/* Some kinds cannot be told to load: who waits to see their bytes waits in vain. */
bool guard_lazy(const struct guard_worker *w)
{
	if (policy_kind_is(w->policy->kind, KIND_SLEEPS))
		return false;
	return w->policy->resume == RESUME_LAZY || policy_kind_is(w->policy->kind, KIND_UNTOLD);
}

/* ---- entering states ---- */

static void stamp_gpus(struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i))
			g->gpu[i].acted_ns = g->now_ns;
}

static void enter_active(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	if (from == STATE_SUSPECT)
		return;
	if (from == STATE_VERIFY_UP) {
		w->resident_until_ns = g->now_ns + w->knobs.resident_ns;
		w->resumes += !w->dry;
		w->replaced = false; /* by us */
		stamp_gpus(g, w);
	}
	w->evicted = w->returning = w->override = w->asked = w->damped = w->storm = false;
	w->stayed = w->told = false;
	w->put_away_count = 0;
	w->resume_backoff_ns = 0;
	w->blocked = 0;
	w->retry_ns = 0;
	w->need_bytes = w->bytes;
	memcpy(w->need_on, w->held, sizeof(w->need_on));
	w->dirty = true;
}

/* What it gave up by itself is no longer its need. */
static void forget_need(struct guard_worker *w)
{
	if (w->bytes >= w->need_bytes / 4)
		return;
	w->need_bytes = w->bytes;
	memcpy(w->need_on, w->held, sizeof(w->need_on));
}

static void enter_drain(struct guard *g, struct guard_worker *w)
{
	bool hot = w->mask & BIT(REASON_THERMAL);

	if (!w->returning)
		forget_need(w);
	guard_begin_eviction(g, w);
	w->level = guard_level_first(w);
	w->deadline_ns = g->now_ns + (hot ? 0 : w->knobs.drain_ns);
	w->evicted = true;
	w->drained = w->damped = false;
	w->masked = 0;
	w->dirty = true;
}

/* A checkpoint writes 1 GB/s: a nanosecond a byte. */
uint64_t guard_evict_ns(const struct guard_worker *w)
{
	return CALL_NS + (w->level == 3 ? w->base_bytes : 0);
}

static void enter_evict(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	if (from == STATE_EVICTED || from == STATE_QUIET || from == STATE_VERIFY_UP) {
		guard_begin_eviction(g, w);
		w->level = guard_level_first(w);
	}
	if (from != STATE_VERIFY && from != STATE_EVICT)
		w->budget_ns = g->now_ns + w->knobs.budget_ns + guard_evict_ns(w) - CALL_NS;
	w->tries = 0;
	w->dirty = true;
}

/* Three evictions for contention in a quarter of an hour: whoever comes and goes pays with patience. */
static void count_flap(struct guard *g, struct guard_worker *w)
{
	unsigned lately = 1;

	for (unsigned i = 0; i < GUARD_FLAPS && i < w->flaps; i++)
		if (g->now_ns - w->flap[i] <= FLAP_NS)
			lately++;
	w->flap[w->flaps++ % GUARD_FLAPS] = g->now_ns;
	if (lately == 1)
		w->backoff = 1;
	if (lately < 3 || guard_quiet_ns(w) == LONGEST_NS)
		return;
	w->backoff *= 2;
	guard_say(g, w, w->state, "flapping",
		  "%u evictions in 15 min: quiet period is now %llu s", lately,
		  (unsigned long long)(guard_quiet_ns(w) / NS_PER_S));
}

static void enter_evicted(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	w->check_ns = g->now_ns;
	w->stayed = false;
	if (from != STATE_VERIFY && from != STATE_STUCK)
		return;
	w->residue_bytes = w->bytes;
	w->freed_ns = w->dry ? 0 : g->now_ns - w->begun_ns;
	w->dirty = true;
	w->returning = false;
	guard_ended(w, RESULT_FREED);
	w->ajar = w->ajar || w->replaced; /* some unload by starting again */
	w->replaced = false;
	stamp_gpus(g, w);
	if (w->dry)
		w->would_evict++;
	else
		w->evictions++;
}

void guard_forget(struct guard_worker *w)
{
	w->evicted = w->closed = w->virtual_out = w->returning = w->storm = false;
	w->replaced = w->ajar = w->idle = w->stayed = w->told = false;
	w->put_away_count = 0;
	w->residue_bytes = 0;
	w->dirty = true;
}

/* One that was moved out, and lives, is still out when it is found again: what is known of it stays. */
static void enter_absent(struct guard_worker *w)
{
	w->astray = w->evicted && w->lingers;
	w->dirty = true;
	if (w->astray && !w->replaced) {
		w->returning = w->storm = false;
		return;
	}
	guard_forget(w);
}

static void enter(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	switch (w->state) {
	case STATE_ACTIVE: enter_active(g, w, from); break;
	case STATE_DRAIN: enter_drain(g, w); break;
	case STATE_EVICT: enter_evict(g, w, from); break;
	case STATE_VERIFY: w->deadline_ns = g->now_ns + w->knobs.verify_ns; break;
	case STATE_EVICTED: enter_evicted(g, w, from); break;
	case STATE_QUIET: w->deadline_ns = w->calm_ns + guard_quiet_ns(w); break;
	case STATE_RESUME:
		w->starting = !w->present;
		if (w->starting) /* another process comes, and is no stranger in its place */
			w->roots = 0;
		w->returning = true;
		w->dirty = true;
		break;
	case STATE_VERIFY_UP: w->deadline_ns = g->now_ns + UP_NS; break;
	case STATE_STUCK:
		w->retry_ns = g->now_ns + STUCK_NS;
		w->check_ns = g->now_ns;
		w->stayed = true;
		break;
	case STATE_ABSENT: enter_absent(w); break;
	default: break;
	}
}

void guard_shift(struct guard *g, struct guard_worker *w, enum guard_state to)
{
	enum guard_state from = w->state;

	w->state = to;
	w->since_ns = g->now_ns;
	enter(g, w, from);
}

void guard_move(struct guard *g, struct guard_worker *w, enum guard_state to, const char *rule,
		const char *fmt, ...)
{
	enum guard_state from = w->state;
	char text[240];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	guard_shift(g, w, to);
	guard_say(g, w, from, rule, "%s", text);
	if (to == STATE_EVICTED && (from == STATE_VERIFY || from == STATE_STUCK) &&
	    w->contention && !w->storm)
		count_flap(g, w);
}

void guard_leave(struct guard *g, struct guard_worker *w)
{
	const char *rule, *evidence;

	guard_cause(w, &rule, &evidence);
	guard_move(g, w, STATE_DRAIN, rule, "%s", evidence);
}
