/* guard_leave: on the GPU and off it: rows 8 to 24 of GUARD-MACHINE.md. */
#include "guard_internal.h"

/* ---- on the GPU: rows 8 to 13 ---- */

static void throttle(struct guard *g, struct guard_worker *w)
{
	const struct guard_gpu *hot = NULL;

	for (unsigned i = 0; !hot && i < g->gpus; i++)
		if (has(w->gpus, i) && g->gpu[i].heat & HEAT_THROTTLE)
			hot = &g->gpu[i];
	if (w->throttled == (hot != NULL))
		return;
	w->throttled = hot != NULL;
	if (hot)
		guard_say(g, w, w->state, "throttled", "no new work: %s", hot->heat_why);
	else
		guard_say(g, w, w->state, "throttled", "cool again: work may come");
}

/* Admission follows from what should be. */
static void admission(struct guard *g, struct guard_worker *w)
{
	if (w->pending || g->now_ns < w->retry_ns || w->throttled == w->closed)
		return;
	guard_issue(g, w, w->throttled ? ORDER_CLOSE : ORDER_OPEN, g->now_ns + CALL_NS);
}

/* 0: nothing keeps it from being evicted for a demand. */
static uint64_t damped_until(const struct guard *g, const struct guard_worker *w)
{
	uint64_t until = w->resident_until_ns;

	if (w->demand.urgent)
		return 0;
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && g->gpu[i].acted_ns &&
		    g->gpu[i].acted_ns + w->knobs.post_ns > until)
			until = g->gpu[i].acted_ns + w->knobs.post_ns;
	return until > g->now_ns ? until : 0;
}

/* Whose time it is that it waits for, and how long that is. */
static void say_damped(struct guard *g, struct guard_worker *w)
{
	double left = (double)(w->deadline_ns - g->now_ns) * 1e-9;
	double stays = (double)w->knobs.resident_ns * 1e-9;

	if (w->deadline_ns == w->resident_until_ns)
		guard_say(g, w, w->state, "damped",
			  "came back %.0f s ago, stays until %.0f s (min_resident_s); %s",
			  stays - left, stays, w->demand.evidence);
	else
		guard_say(g, w, w->state, "damped",
			  "a worker on its GPU was moved just now, stays %.0f s more; %s", left,
			  w->demand.evidence);
}

static bool no_demand(struct guard *g, struct guard_worker *w)
{
	if (w->calm_looks < CALM_LOOKS)
		return false;
	guard_latch(w, false);
	w->limited_ns = 0;
	if (w->state == STATE_ACTIVE)
		return false;
	w->damped = false;
	guard_move(g, w, STATE_ACTIVE, "near miss", "the demand went away: %s",
		   w->demand.evidence);
	return true;
}

/* Row 13: what would move it, were it not held, is told when it begins. */
static void tell_masked(struct guard *g, struct guard_worker *w)
{
	uint32_t now = w->mask & ~guard_effective(w), news = now & ~w->masked;

	w->masked = now;
	for (unsigned r = 0; r < GUARD_REASONS; r++)
		if (news & BIT(r))
			guard_say(g, w, w->state, "hold active", "masks %s: %s",
				  guard_reason_name(r), w->evidence[r]);
}

/* Whoever needs its GPU, of one that is held there is nothing to suspect. */
static bool held(struct guard *g, struct guard_worker *w)
{
	if (guard_sure(g, w)) {
		guard_latch(w, true);
		tell_masked(g, w);
	}
	if (w->state == STATE_ACTIVE)
		return false;
	w->damped = false;
	guard_move(g, w, STATE_ACTIVE, "hold active", "it stays: %s", w->demand.evidence);
	return true;
}

bool guard_step_running(struct guard *g, struct guard_worker *w)
{
	tell_masked(g, w);
	if (guard_effective(w) & ~MASK_SOFT) {
		guard_leave(g, w);
		return true;
	}
	throttle(g, w);
	admission(g, w);
	if (guard_idle_due(g, w)) {
		guard_idle_begin(g, w);
		guard_leave(g, w);
		return true;
	}
	if (!w->against)
		return no_demand(g, w);
	if (w->hold == HOLD_ACTIVE)
		return held(g, w);
	if (w->state == STATE_ACTIVE) {
		guard_move(g, w, STATE_SUSPECT, w->demand.rule, "%s", w->demand.evidence);
		return true;
	}
	if (!guard_sure(g, w))
		return false;
	if (damped_until(g, w)) {
		w->deadline_ns = damped_until(g, w);
		if (!w->damped) {
			w->damped = true;
			say_damped(g, w);
		}
		return false;
	}
	if (guard_limited(g, w)) {
		w->deadline_ns = w->limited_ns;
		return false;
	}
	guard_latch(w, true);
	guard_leave(g, w);
	return true;
}

/* ---- leaving: rows 14 to 24 ---- */

bool guard_step_drain(struct guard *g, struct guard_worker *w)
{
	guard_grown(g, w);
	if (guard_effective(w) == BIT(REASON_CONTENTION) && w->calm_looks >= CALM_LOOKS)
		guard_latch(w, false);
	if (w->idle && w->works)
		guard_idle_end(g, w);
	if (!guard_effective(w)) {
		guard_move(g, w, w->returning ? STATE_VERIFY_UP : STATE_ACTIVE, "cause gone",
			   "before anything was unloaded");
		return true;
	}
	if (w->pending)
		return false;
	if (w->drained || g->now_ns >= w->deadline_ns) {
		guard_move(g, w, STATE_EVICT, w->drained ? "drained" : "drain timeout",
			   "level %u", w->level);
		return true;
	}
	if ((!w->closed || w->ajar) && !guard_idle_only(w))
		guard_issue(g, w, ORDER_CLOSE, w->deadline_ns);
	else if (g->now_ns >= w->retry_ns)
		guard_issue(g, w, ORDER_DRAIN, w->deadline_ns);
	return false;
}

static void stuck(struct guard *g, struct guard_worker *w, const char *why)
{
	uint64_t free_now, others, rose;
	bool known;

	guard_free_and_others(g, w, &free_now, &others, &known);
	rose = free_now > w->base_free ? free_now - w->base_free : 0;
	if (!guard_provable(g, w))
		guard_move(g, w, STATE_STUCK, "stuck",
			   "%s: neither its GPU's memory nor its processes' can be read", why);
	else if (known && w->base_bytes && w->bytes <= w->base_bytes / 4)
		/* It holds next to nothing, and yet the card has not more room. */
		guard_move(g, w, STATE_STUCK, "stuck", "%s; free rose by %llu of %llu MiB", why,
			   (unsigned long long)(rose / MIB),
			   (unsigned long long)(guard_gone(w) / MIB));
	else
		guard_move(g, w, STATE_STUCK, "stuck", "%s; %llu MiB remain", why,
			   (unsigned long long)(w->bytes / MIB));
	if (!w->pending)
		guard_issue(g, w, ORDER_NOTIFY, g->now_ns + CALL_NS);
}

/* The next level, if there is one and there is time. */
void guard_escalate(struct guard *g, struct guard_worker *w, const char *why)
{
	unsigned level = guard_idle_only(w) ? 0 : guard_level_next(w, w->level);

	if (!level || g->now_ns >= w->budget_ns) {
		stuck(g, w, level ? "the time for it is spent" : why);
		return;
	}
	w->level = level;
	guard_move(g, w, STATE_EVICT, "next level", "%s: level %u", why, level);
}

/* A call that hangs must not outlast what the eviction may take in all; but a checkpoint is never cut
 * short, and a call gets the time that a worker needs to answer. */
static uint64_t evict_until(const struct guard *g, const struct guard_worker *w)
{
	uint64_t until = g->now_ns + guard_evict_ns(w), least = g->now_ns + LEAST_NS;

	if (w->level == 3 || until <= w->budget_ns)
		return until;
	return w->budget_ns > least ? w->budget_ns : least;
}

bool guard_step_evict(struct guard *g, struct guard_worker *w)
{
	guard_grown(g, w);
	if (w->pending || g->now_ns < w->retry_ns)
		return false;
	if (w->tries && w->base_bytes && guard_freed(g, w)) {
		guard_move(g, w, STATE_VERIFY, "freed", "though the worker did not say so");
		return true;
	}
	if (g->now_ns >= w->budget_ns) {
		guard_ended(w, RESULT_FAILED);
		stuck(g, w, "the time for it is spent");
		return true;
	}
	if (w->storm && !w->closed) {
		guard_issue(g, w, ORDER_CLOSE, g->now_ns + CALL_NS);
		return false;
	}
	guard_issue(g, w, ORDER_EVICT, evict_until(g, w));
	return false;
}

bool guard_step_verify(struct guard *g, struct guard_worker *w)
{
	guard_grown(g, w);
	if (guard_freed(g, w)) {
		uint64_t freed = guard_gone(w);

		if (w->dry) {
			guard_move(g, w, STATE_EVICTED, "freed", "%llu MiB would be free",
				   (unsigned long long)(freed / MIB));
			return true;
		}
		guard_move(g, w, STATE_EVICTED, "freed",
			   "%llu MiB%s in %.1f s, %llu MiB remain",
			   (unsigned long long)(freed / MIB), w->delta ? " (device-delta)" : "",
			   (double)(g->now_ns - w->begun_ns) / (double)NS_PER_S,
			   (unsigned long long)(w->bytes / MIB));
		return true;
	}
	if (g->now_ns < w->deadline_ns)
		return false;
	guard_ended(w, RESULT_NOT_FREED);
	guard_escalate(g, w, "the worker said done, the memory is not free");
	return true;
}

/* Does it mean nothing to one that runs to be told to come back?  A hook, a signal or a callback may load twice, and
 * who cannot tell what it has begins anew. */
static bool is_idempotent(const struct guard_worker *w)
{
	static const enum policy_trait twice[] = { KIND_COMMANDS, KIND_SIGNALS, KIND_SELF,
						   KIND_FORGETS };

	for (unsigned i = 0; i < sizeof(twice) / sizeof(twice[0]); i++)
		if (policy_kind_is(w->policy->kind, twice[i]))
			return false;
	return true;
}

/* Is one that stayed told to come back?  Yes, if it said that it left, and also if it said no: some do it all the
 * same. */
bool guard_may_tell(const struct guard_worker *w)
{
	return w->told || (is_idempotent(w) && (w->asked || w->policy->resume != RESUME_NEVER));
}

/* Row 24, but for its straight way to VERIFY_UP: a worker can have done what it was told and hold its memory all
 * the same (vLLM asleep), so that it is told to come back like one that left. */
static bool stuck_no_more(struct guard *g, struct guard_worker *w)
{
	if (guard_may_tell(w))
		return guard_try_resume(g, w);
	guard_move(g, w, STATE_VERIFY_UP, "no reason left", "it probably never left");
	return true;
}

bool guard_step_stuck(struct guard *g, struct guard_worker *w)
{
	if (!guard_is_fresh(g, w))
		return false;
	if (guard_freed(g, w)) {
		guard_move(g, w, STATE_EVICTED, "freed", "after it was stuck, %llu MiB remain",
			   (unsigned long long)(w->bytes / MIB));
		return true;
	}
	guard_listen(g, w);
	if (guard_idle_only(w))
		guard_idle_end(g, w); /* it was worth a try */
	if (!guard_effective(w))
		return stuck_no_more(g, w);
	if (w->pending || g->now_ns < w->retry_ns)
		return false;
	w->retry_ns = g->now_ns + STUCK_NS;
	guard_issue(g, w, ORDER_EVICT, g->now_ns + guard_evict_ns(w));
	return false;
}
