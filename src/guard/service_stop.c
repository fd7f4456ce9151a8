/* The end of the service: row 47 of docs/GUARD-MACHINE.md.
 *
 * Nothing new begins. A worker that no reason keeps out may return. A worker that only got an
 * order to refuse new work admits it again. An order that is under way is waited for first.
 * Heat is no longer watched. */
#include "guard_internal.h"

/* True if nothing was unloaded: at most, the worker refuses new work. A worker that reported
 * that it left, or that is returning, may have unloaded. Some workers leave and report a
 * failure. */
static bool is_untouched(const struct guard_worker *w)
{
	if (worker_is_returning(w) || w->intent.claim == CLAIM_LEFT)
		return false;
	switch (worker_state(w)) {
	case STATE_ACTIVE:
	case STATE_SUSPECT:
	case STATE_DRAIN: return true;
	case STATE_EVICT:
		return !w->intent.tries || worker_kept_out(w) || !guard_may_resume_stuck(w);
	default: return false;
	}
}

static enum step open_at_stop(struct guard *g, struct guard_worker *w)
{
	const bool closed = w->door != DOOR_OPEN;

	if (w->intent.goal != GOAL_RUN) {
		const bool drain = w->intent.stage == STAGE_DRAIN;

		worker_set_running(g, w);
		guard_report(g, w, "service ends", "%s%s",
			     drain ? "it stays: nothing was unloaded yet"
				   : "its memory is still there",
			     closed ? ": new work is admitted" : "");
	} else if (closed && !w->order.retry_ns) {
		guard_report(g, w, "service ends", "it admits new work again");
	}
	if (closed && worker_is_present(w))
		return STEP_ORDER;
	w->unsettled = false;
	return STEP_WAIT;
}

static enum step return_at_stop(struct guard *g, struct guard_worker *w, bool stuck)
{
	w->unsettled = false;
	if (!w->demand.pressing)
		worker_set_contention(w, false);
	w->backoff.check_ns = g->now_ns;
	if (worker_kept_out(w) || guard_unseen(g, w))
		return STEP_WAIT;
	return guard_try_return(g, w, stuck, false) == STEP_AGAIN ? STEP_ORDER : STEP_WAIT;
}

enum step guard_step_stop(struct guard *g, struct guard_worker *w)
{
	const enum guard_state s = worker_state(w);

	if (!w->unsettled || worker_has_order(w))
		return STEP_WAIT;
	if (s == STATE_EVICT && !worker_is_fresh(g, w))
		return STEP_WAIT;
	if (s == STATE_EVICT && w->intent.base_bytes && guard_is_freed(g, w)) {
		worker_set_leaving(g, w, STAGE_VERIFY);
		guard_report(g, w, "freed",
			     "the memory is free, although the worker did not report success");
		return STEP_AGAIN;
	}
	if (is_untouched(w))
		return open_at_stop(g, w);
	if (s == STATE_VERIFY)
		return guard_step_verify(g, w);
	return return_at_stop(g, w, s == STATE_EVICT || s == STATE_STUCK);
}

/* True if something must be finished with this worker. */
static bool is_unsettled(const struct guard_worker *w)
{
	switch (worker_state(w)) {
	case STATE_ACTIVE:
	case STATE_SUSPECT: return w->door != DOOR_OPEN;
	case STATE_DRAIN:
	case STATE_EVICT:
	case STATE_VERIFY:
	case STATE_EVICTED:
	case STATE_QUIET:
	case STATE_STUCK: return true;
	default: return false;
	}
}

unsigned guard_stop(struct guard *g, uint64_t now_ns)
{
	unsigned n = 0;

	g->now_ns = now_ns;
	if (!g->p->restore_on_stop)
		return 0;
	g->stopping = true;
	for (unsigned i = g->workers; i-- > 0;) {
		struct guard_worker *w = &g->worker[g->order[i]];

		w->unsettled = !w->dry && is_unsettled(w);
		if (!w->unsettled)
			continue;
		guard_take_back(w);
		w->order.retry_ns = 0;
		if (guard_step_stop(g, w) == STEP_ORDER)
			guard_give_order(g, w);
		n += guard_unsettled(g, g->order[i]);
	}
	return n;
}

bool guard_unsettled(const struct guard *g, unsigned worker)
{
	const struct guard_worker *w = &g->worker[worker];

	if (worker >= g->workers || w->dry)
		return false;
	return (g->stopping && w->unsettled) ||
	       (worker_state(w) == STATE_RESUME && worker_has_order(w));
}

unsigned guard_unsettled_count(const struct guard *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->workers; i++)
		n += guard_unsettled(g, i);
	return n;
}
