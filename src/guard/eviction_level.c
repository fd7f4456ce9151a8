/* Eviction levels (GUARD-MACHINE.md): which a worker may be evicted at. */
#include "guard_internal.h"

/* The least that frees memory.  The kind allows it, whatever max_level says. */
unsigned guard_level_first(const struct guard_worker *w)
{
	return policy_kind_level(w->policy->kind);
}

static bool level_is_allowed(const struct guard_worker *w, unsigned level)
{
	if (level > w->knobs.max_level)
		return false;
	switch (level) {
	case 3: return guard_level_first(w) == 3;
	case LEVEL_STOP: return w->policy->match.unit || w->policy->match.container;
	case 5:
	case 6: return w->knobs.allow_kill;
	default: return true;
	}
}

unsigned guard_level_next(const struct guard_worker *w, unsigned level)
{
	for (level++; level < GUARD_LEVELS; level++)
		if (level_is_allowed(w, level))
			return level;
	return 0;
}

/* While it is out the level says how that was done, and stays. */
void guard_level_fit(struct guard_worker *w)
{
	const unsigned first = guard_level_first(w), level = w->intent.level;
	const enum guard_state s = worker_state(w);
	const bool kept = s == STATE_RECONCILE || s == STATE_EVICTED || s == STATE_QUIET ||
			  s == STATE_RESUME || s == STATE_VERIFY_UP;

	if (!kept && level != first && (level < first || !level_is_allowed(w, level)))
		w->intent.level = first;
}

unsigned guard_levels(const struct guard *g, unsigned worker)
{
	unsigned set = 0;

	if (worker >= g->workers)
		return 0;
	for (unsigned l = guard_level_first(&g->worker[worker]); l;
	     l = guard_level_next(&g->worker[worker], l))
		set |= BIT(l);
	return set;
}
