/* guard_step: the machine.
 *
 * Each state asks the facts what is next; numbers of rows are those of docs/GUARD-MACHINE.md.  A step is repeated
 * until nothing moves, so that what follows from one look is decided in that look.  Here are the states
 * that are about being there at all; evict.c and resume.c have the others. */
#include "guard_internal.h"

#define STEPS    16 /* more than any chain of states is long */
#define DRAIN_NS (250 * NS_PER_MS)

/* ---- here or not: rows 2 to 7, 38 to 40 ---- */

/* Some hooks evict by ending it, which may take a moment after its memory is free; one that ends later ended by
 * itself, and one that no hook brings back is not there until it appears.  Of a record nobody knows: its hook is
 * asked. */
static bool ended_by_hook(const struct guard_worker *w)
{
	const char *const *back = w->policy->resume_argv;

	return policy_kind_is(w->policy->kind, KIND_COMMANDS) && back && back[0] &&
	       w->seen_ns <= w->begun_ns + w->freed_ns + CALL_NS;
}

/* Is it gone because that is how it was evicted? */
static bool gone_by_us(const struct guard_worker *w)
{
	return w->evicted && (w->level == LEVEL_STOP || ended_by_hook(w));
}

static bool gone(const struct guard_worker *w)
{
	bool settled = w->state == STATE_ACTIVE || w->state == STATE_SUSPECT ||
		       w->state == STATE_EVICTED || w->state == STATE_QUIET ||
		       w->state == STATE_STUCK;

	if (w->replaced && settled)
		return true;
	return !w->present && !w->starting && !gone_by_us(w);
}

/* Of a checkpoint: somebody else has the number now. */
static bool exchanged(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->scene.roots; i++)
		for (unsigned k = 0; k < w->put_away_count; k++)
			if (scene_root_of(&g->scene.root[i], (unsigned)(w - g->worker)) &&
			    g->scene.root[i].pid == w->put_away[k].pid &&
			    g->scene.root[i].start_ticks != w->put_away[k].start_ticks)
				return true;
	return false;
}

/* Told to leave, and nobody has seen that it did. */
static bool is_leaving(const struct guard_worker *w)
{
	return w->state == STATE_DRAIN || w->state == STATE_EVICT || w->state == STATE_VERIFY ||
	       w->state == STATE_STUCK;
}

/* Gone, or not found any more, or in another's place. */
static void leave_sight(struct guard *g, struct guard_worker *w)
{
	char sought[240];

	guard_sought(w, sought, sizeof(sought));
	if (!w->lingers) /* one that is known by something else since a reload has not ended */
		guard_move(g, w, STATE_ABSENT, "not there", "%s",
			   w->rematched || w->state == STATE_RECONCILE ? sought
								       : "its process ended");
	else if (!w->evicted)
		guard_move(g, w, STATE_ABSENT, "not found", "%s",
			   w->replaced ? "another process is found in its place" : sought);
	else if (w->replaced)
		guard_move(g, w, STATE_ABSENT, "another",
			   "another process is found in its place: the one that was moved out "
			   "lives, and has to be told to load again");
	else if (w->barred)
		guard_move(g, w, STATE_ABSENT, "another",
			   "another process is found in its place: the one that was put away "
			   "lives; name it again, or gpuward guard recover brings it back");
	else if (is_leaving(w)) /* also one that became another program */
		guard_move(g, w, STATE_ABSENT, "not found",
			   "%s; its process lives and was being told to leave: if it is the "
			   "worker still, name it again",
			   sought);
	else
		guard_move(g, w, STATE_ABSENT, "not found",
			   "%s; its process lives and is out: name it again, and the guard "
			   "brings it back",
			   sought);
}

static bool step_reconcile(struct guard *g, struct guard_worker *w)
{
	bool resident = w->evicted ? w->bytes > w->need_bytes / 4 : w->bytes > 0;

	if (!guard_is_fresh(g, w))
		return false;
	if (gone(w) || w->replaced || exchanged(g, w)) {
		leave_sight(g, w);
		return true;
	}
	if (!w->present && w->evicted)
		resident = false;
	if (resident && w->contention && !w->against)
		guard_latch(w, false);
	if (resident && w->idle)
		guard_idle_end(g, w);
	if (resident && guard_effective(w))
		guard_leave(g, w);
	else if (resident && (w->stayed || w->told) && guard_may_tell(w)) {
		w->stayed = true;
		return guard_try_resume(g, w); /* as of one that is stuck */
	} else if (resident || (!w->evicted && !guard_effective(w)))
		guard_move(g, w, STATE_ACTIVE, "as found", "it holds %llu MiB",
			   (unsigned long long)(w->bytes / MIB));
	else {
		w->residue_bytes = w->bytes;
		w->evicted = w->ajar = true;
		w->dirty = true;
		guard_move(g, w, STATE_EVICTED, "as found", "it is out, level %u", w->level);
	}
	return true;
}

static bool step_absent(struct guard *g, struct guard_worker *w)
{
	if (w->contention && guard_calm(g, w))
		guard_latch(w, false);
	if (w->present) {
		guard_move(g, w, STATE_RECONCILE, "appeared", "%s", w->policy->name);
		return true;
	}
	if (w->evicted && w->lingers)
		return false;
	if (w->evicted) {
		guard_forget(w);
		guard_say(g, w, w->state, "not there", "its process ended");
	}
	if (w->policy->managed && !guard_effective(w))
		return guard_try_resume(g, w);
	return false;
}

/* ---- GPUs that do not answer: rows 41 to 46 ---- */

static bool step_lost(struct guard *g, struct guard_worker *w)
{
	const char *rule, *evidence;

	if (w->frozen && (w->state == STATE_EVICTED || w->state == STATE_ABSENT))
		return false;
	w->frozen = true;
	if (w->state == STATE_ABSENT)
		return false;
	guard_cause(w, &rule, &evidence);
	if (w->mask & BIT(REASON_HEALTH)) /* whatever else holds */
		evidence = w->evidence[REASON_HEALTH];
	if (!w->pending)
		guard_issue(g, w, ORDER_NOTIFY, g->now_ns + CALL_NS);
	w->evicted = true;
	w->residue_bytes = 0;
	w->dirty = true;
	guard_move(g, w, STATE_EVICTED, "quarantine", "lost with its GPU: %s", evidence);
	return false;
}

/* Nothing is decided without sight, but what people ask, or were asked for this case, is begun. */
static bool frozen(struct guard *g, struct guard_worker *w)
{
	bool begin = guard_effective(w) & (BIT(REASON_BLIND) | BIT(REASON_MANUAL));

	if (!w->frozen)
		guard_say(g, w, w->state, "no sight",
			  "a GPU of it is blind or hung: nothing is decided");
	w->frozen = true;
	return !begin || (w->state != STATE_ACTIVE && w->state != STATE_SUSPECT &&
			  w->state != STATE_DRAIN && w->state != STATE_EVICT);
}

static bool sees(struct guard *g, struct guard_worker *w)
{
	if (guard_unseen(g, w))
		return !frozen(g, w);
	if (guard_unread(g, w))
		return false;
	if (w->frozen) {
		w->frozen = false;
		if (w->state != STATE_ABSENT)
			guard_move(g, w, STATE_RECONCILE, "sight is back",
				   "all its GPUs answer");
	}
	return true;
}

/* ---- one step ---- */

static bool step(struct guard *g, struct guard_worker *w)
{
	static bool (*const next[GUARD_STATES])(struct guard *, struct guard_worker *) = {
		[STATE_RECONCILE] = step_reconcile,   [STATE_ACTIVE] = guard_step_running,
		[STATE_SUSPECT] = guard_step_running, [STATE_DRAIN] = guard_step_drain,
		[STATE_EVICT] = guard_step_evict,     [STATE_VERIFY] = guard_step_verify,
		[STATE_EVICTED] = guard_step_out,     [STATE_QUIET] = guard_step_out,
		[STATE_RESUME] = guard_step_resume,   [STATE_VERIFY_UP] = guard_step_verify_up,
		[STATE_STUCK] = guard_step_stuck,     [STATE_ABSENT] = step_absent,
	};
	bool acting = w->state == STATE_VERIFY || (w->state == STATE_EVICT && w->pending);

	if (w->owed && w->dry)
		return false;
	w->owed = false;
	guard_overdue(g, w);
	if (g->stopping && w->state != STATE_RESUME && w->state != STATE_VERIFY_UP)
		return guard_step_end(g, w);
	if (guard_lost(g, w))
		return step_lost(g, w);
	if (!sees(g, w))
		return false;
	if (gone(w) && !acting && w->state != STATE_ABSENT && w->state != STATE_RECONCILE) {
		leave_sight(g, w);
		return true;
	}
	return next[w->state](g, w);
}

void guard_steps(struct guard *g)
{
	/* Highest priority first: so they return. */
	for (unsigned i = g->workers; i-- > 0;)
		for (unsigned n = 0; n < STEPS && step(g, &g->worker[g->order[i]]); n++)
			;
}

/* ---- outcomes ---- */

void guard_failed(struct guard *g, struct guard_worker *w, bool retry, const char *message)
{
	switch (w->order.verb) {
	case ORDER_DRAIN:
		w->retry_ns = g->now_ns + DRAIN_NS;
		if (retry && guard_idle_only(w))
			guard_idle_end(g, w); /* something is in flight: it does not idle */
		return;
	case ORDER_RESUME:
		if (w->state == STATE_RESUME)
			guard_resume_failed(g, w, message);
		return;
	case ORDER_OPEN:
		w->retry_ns = g->now_ns + RECHECK_NS;
		if (w->state == STATE_RESUME)
			guard_resume_failed(g, w, message);
		return;
	case ORDER_EVICT: break;
	default: return;
	}
	if (w->state != STATE_EVICT)
		return;
	if (!retry)
		w->tries++;
	if (w->tries > RETRIES) {
		guard_ended(w, RESULT_FAILED);
		guard_escalate(g, w, message);
		return;
	}
	w->retry_ns = g->now_ns + (RETRY_NS << (w->tries ? w->tries - 1 : 0));
	guard_say(g, w, w->state, "try again", "level %u: %.200s", w->level, message);
}

void guard_done(struct guard *g, struct guard_worker *w)
{
	enum guard_verb verb = w->order.verb;

	if (verb == ORDER_EVICT) {
		w->virtual_out = w->dry;
		w->told = !w->dry;
	}
	if (verb == ORDER_RESUME || (verb == ORDER_OPEN && w->state == STATE_RESUME))
		w->virtual_out = false;
	if (verb == ORDER_DRAIN)
		w->drained = true;
	if (verb == ORDER_OPEN) {
		w->closed = false;
		w->dirty = true;
	}
	if (verb == ORDER_EVICT && w->state == STATE_EVICT)
		guard_move(g, w, STATE_VERIFY, "done", "level %u; is the memory free?",
			   w->level);
	if ((verb == ORDER_RESUME || verb == ORDER_OPEN) && w->state == STATE_RESUME)
		guard_move(g, w, STATE_VERIFY_UP, verb == ORDER_OPEN ? "opened" : "done",
			   "is it back?");
}
