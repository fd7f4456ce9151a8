/* guard_end: what is still done when the service ends: row 47 of GUARD-MACHINE.md.
 *
 * Nothing new is begun.  Who is out for no reason that holds is let come back, whose door was closed and nothing
 * more is opened, and what is under way is seen to its end first.  Who ends watches no heat any more. */
#include "guard_internal.h"

/* Does it still have all it had, with nothing but its door closed?  Who said that it left, or is on its way
 * back, may not; some leave and say that they did not, which is mended by telling them to come back. */
static bool is_whole(const struct guard_worker *w)
{
	if (w->returning || w->told)
		return false;
	switch (w->state) {
	case STATE_ACTIVE:
	case STATE_SUSPECT:
	case STATE_DRAIN: return true;
	case STATE_EVICT: return !w->tries || guard_effective(w) || !guard_may_tell(w);
	default: return false;
	}
}

static bool open_last(struct guard *g, struct guard_worker *w)
{
	bool runs = w->state == STATE_ACTIVE || w->state == STATE_SUSPECT;

	if (!runs)
		guard_move(g, w, STATE_ACTIVE, "service ends", "%s%s",
			   w->state == STATE_DRAIN ? "before anything was unloaded"
						   : "its memory is still there",
			   w->closed ? ": work may come" : "");
	else if (w->closed && !w->retry_ns)
		guard_say(g, w, w->state, "service ends", "its door was closed: work may come");
	if (!w->closed || !w->present)
		w->last = false;
	else if (g->now_ns >= w->retry_ns)
		guard_issue(g, w, ORDER_OPEN, g->now_ns + CALL_NS);
	return false;
}

static bool return_last(struct guard *g, struct guard_worker *w)
{
	w->last = false;
	if (!w->against)
		guard_latch(w, false);
	w->check_ns = g->now_ns;
	if (guard_effective(w) || guard_unseen(g, w) || !guard_try_resume(g, w))
		return false;
	guard_step_resume(g, w);
	return true;
}

bool guard_step_end(struct guard *g, struct guard_worker *w)
{
	if (!w->last || w->pending)
		return false;
	if (w->state == STATE_EVICT) {
		if (!guard_is_fresh(g, w))
			return false;
		if (w->base_bytes && guard_freed(g, w)) {
			guard_move(g, w, STATE_VERIFY, "freed",
				   "though the worker did not say so");
			return true;
		}
	}
	if (is_whole(w))
		return open_last(g, w);
	if (w->state == STATE_VERIFY)
		return guard_step_verify(g, w);
	if (w->state == STATE_EVICT)
		w->stayed = true; /* as of one that is stuck */
	return return_last(g, w);
}

/* Is something of it to be seen to? */
static bool is_last(const struct guard_worker *w)
{
	switch (w->state) {
	case STATE_ACTIVE:
	case STATE_SUSPECT: return w->closed;
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
	/* Highest priority first: so they return. */
	for (unsigned i = g->workers; i-- > 0;) {
		struct guard_worker *w = &g->worker[g->order[i]];

		w->last = !w->dry && is_last(w);
		if (!w->last)
			continue;
		guard_take_back(w);
		w->retry_ns = 0;
		guard_step_end(g, w);
		n += guard_unsettled(g, g->order[i]);
	}
	return n;
}

bool guard_unsettled(const struct guard *g, unsigned worker)
{
	const struct guard_worker *w;

	if (worker >= g->workers)
		return false;
	w = &g->worker[worker];
	if (w->dry)
		return false;
	return (g->stopping && w->last) || (w->state == STATE_RESUME && w->pending);
}

unsigned guard_unsettled_count(const struct guard *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->workers; i++)
		n += guard_unsettled(g, i);
	return n;
}
