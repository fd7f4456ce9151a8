/* Decides what happens to each worker: compares the wanted state (from the reasons) with the
 * observed state (from the last scene).
 *
 * Each step makes one change to a worker's intent. When no further change follows from this
 * scene, the worker gets its next order. Row numbers are those of docs/GUARD-MACHINE.md. */
#include "guard_internal.h"

#include <string.h>

#define STEPS 16 /* maximum number of steps per scene; only a defect causes more */

static void begin_leaving(struct guard *g, struct guard_worker *w)
{
	const char *rule, *evidence;
	char text[240];

	guard_cause(w, text, &rule, &evidence);
	worker_set_leaving(g, w, STAGE_DRAIN);
	guard_report(g, w, rule, "%s", evidence);
}

/* Rows 2 to 7 and 38 to 40 of GUARD-MACHINE.md: presence of the worker's process. */

/* True if the worker's hook ended the process and another hook can start it again. Some hooks
 * evict a worker by ending its process; the process may still live for CALL_NS after its memory
 * is free. If it lives longer, the hook did not end it. */
static bool is_ended_by_hook(const struct guard_worker *w)
{
	const char *const *back = w->policy->resume_argv;

	return policy_kind_is(w->policy->kind, KIND_COMMANDS) && back && back[0] &&
	       w->observed.seen_ns <= w->intent.begun_ns + w->intent.freed_ns + CALL_NS;
}

static bool is_ended_by_guard(const struct guard_worker *w)
{
	return worker_is_moved(w) && (w->intent.level == LEVEL_STOP || is_ended_by_hook(w));
}

static bool is_replaced(const struct guard_worker *w)
{
	return w->observed.found == FOUND_OTHER || w->observed.found == FOUND_OTHER_LIVES;
}

static bool is_gone(const struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;
	const bool settled =
		w->presence == PRESENCE_HERE &&
		(i->stage == STAGE_RUN || i->stage == STAGE_OUT || i->stage == STAGE_STUCK);

	if (is_replaced(w) && settled)
		return true;
	/* a process that the guard is starting may still appear */
	if (i->from == FROM_ABSENT && !stage_leaves(i->stage))
		return false;
	return !worker_is_present(w) && !is_ended_by_guard(w) &&
	       !(worker_has_order(w) && w->order.what.start);
}

static enum step becomes_gone(struct guard *g, struct guard_worker *w)
{
	const enum worker_found found = w->observed.found;
	const bool moved = worker_is_moved(w), known = w->presence == PRESENCE_HERE;
	const bool leaves = known && stage_leaves(w->intent.stage);
	const bool never = w->observed.match_changed || !known;
	const bool lives = found == FOUND_UNMATCHED || found == FOUND_DISPLACED ||
			   found == FOUND_OTHER_LIVES;
	char sought[240];

	guard_sought_text(w, sought, sizeof(sought));
	worker_set_gone(g, w);
	if (!lives)
		guard_report(g, w, "not there", "%s", never ? sought : "its process ended");
	else if (found == FOUND_DISPLACED)
		guard_report(g, w, "replaced",
			     "the match finds another process; the checkpointed process still "
			     "exists: restore the old match, or run gpuward guard recover");
	else if (found == FOUND_OTHER_LIVES)
		guard_report(
			g, w, moved ? "replaced" : "not found",
			"the match now finds another process%s",
			moved ? "; the evicted process still runs and must be resumed by hand"
			      : "");
	else
		guard_report(
			g, w, "not found", "%s%s", sought,
			!moved   ? ""
			: leaves ? "; its process still runs and was being evicted: "
				   "if it still belongs to the worker, restore the old match"
				 : "; its process still runs and is evicted: restore the "
				   "old match, and the guard resumes it");
	return STEP_AGAIN;
}

/* True if the worker had not freed its memory (stuck) before its presence became unknown. */
static bool was_stuck(const struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;

	return i->stage == STAGE_STUCK || (stage_returns(i->stage) && i->from == FROM_STUCK);
}

static enum step step_unknown(struct guard *g, struct guard_worker *w)
{
	const uint64_t bytes = w->observed.bytes;
	const unsigned long long mib = bytes / MIB;
	const bool resident =
		worker_is_moved(w) ? worker_is_present(w) && bytes > w->observed.need_bytes / 4
				   : bytes > 0;

	if (!worker_is_fresh(g, w))
		return STEP_WAIT;
	if (is_gone(w) || is_replaced(w) || guard_pid_reused(g, w))
		return becomes_gone(g, w);
	if (resident && worker_has_contention(w) && !w->demand.pressing)
		worker_set_contention(w, false);
	if (resident && w->idle.unload)
		guard_idle_end(g, w);
	if (resident && worker_kept_out(w)) {
		begin_leaving(g, w);
	} else if (resident && w->intent.claim == CLAIM_LEFT) {
		return guard_try_return(g, w, true);
	} else if (resident && was_stuck(w)) {
		/* an order from before the service started may still take effect */
		worker_stop_returning(w);
		w->intent.begun_ns = g->now_ns;
		worker_set_leaving(g, w, STAGE_VERIFY);
		w->intent.deadline_ns += CALL_NS;
		guard_report(g, w, "as found", "it had to leave, and holds %llu MiB", mib);
	} else if (resident || (!worker_is_moved(w) && !worker_kept_out(w))) {
		worker_set_running(g, w);
		if (g->gpus)
			guard_report(g, w, "as found", "it holds %llu MiB", mib);
		else
			guard_report(g, w, "as found", "no GPU can be read");
	} else {
		w->intent.residue_bytes = bytes;
		if (w->admission == ADMISSION_CLOSED)
			w->admission = ADMISSION_UNVERIFIED;
		w->record_due = true;
		worker_set_out(g, w);
		guard_report(g, w, "as found", "it is evicted, at level %u", w->intent.level);
	}
	return STEP_AGAIN;
}

static enum step step_gone(struct guard *g, struct guard_worker *w)
{
	const enum worker_found found = w->observed.found;

	if (worker_has_contention(w) && guard_demand_calm(g, w))
		worker_set_contention(w, false);
	if (worker_is_present(w)) {
		worker_set_unknown(g, w);
		guard_report(g, w, "appeared", "%s", w->policy->name);
		return STEP_AGAIN;
	}
	if (worker_is_moved(w) && (found == FOUND_UNMATCHED || found == FOUND_DISPLACED))
		return STEP_WAIT;
	if (worker_is_moved(w)) {
		worker_forget_eviction(g, w);
		guard_report(g, w, "not there", "its process ended");
	}
	if (w->policy->managed && !worker_kept_out(w))
		return guard_try_return(g, w, false);
	return STEP_WAIT;
}

/* Rows 41 to 46 of GUARD-MACHINE.md: GPUs that cannot be read. */

/* Row 45: a worker counts as evicted while all its GPUs are lost. */
static void lost_with_gpu(struct guard *g, struct guard_worker *w)
{
	const enum guard_state from = worker_state(w);
	const bool unreadable = w->conditions & CONDITION_UNREADABLE;
	const char *rule, *evidence;
	char text[240];

	if (unreadable && (from == STATE_EVICTED || from == STATE_ABSENT))
		return;
	w->conditions |= CONDITION_UNREADABLE;
	if (from == STATE_ABSENT)
		return;
	guard_cause(w, text, &rule, &evidence);
	if (w->reasons.mask & BIT(REASON_HEALTH))
		evidence = w->reasons.evidence[REASON_HEALTH];
	w->intent.residue_bytes = 0;
	w->record_due = true;
	worker_set_out(g, w);
	guard_report(g, w, "quarantine", "it is lost with its GPU: %s", evidence);
	if (from == STATE_VERIFY || from == STATE_STUCK)
		guard_count_flap(g, w);
}

/* True if the guard may decide without readings. Only two kinds of eviction continue: one that
 * a person requested, and one that is due because the GPU is blind. */
static bool may_decide_when_blind(const struct guard_worker *w)
{
	const enum guard_state s = worker_state(w);

	return worker_kept_out(w) & (BIT(REASON_BLIND) | BIT(REASON_MANUAL)) &&
	       (s == STATE_ACTIVE || s == STATE_SUSPECT || s == STATE_DRAIN ||
		s == STATE_EVICT);
}

/* Begins or ends CONDITION_UNREADABLE. Returns true if the guard may decide. */
static bool update_unreadable(struct guard *g, struct guard_worker *w)
{
	const bool before = w->conditions & CONDITION_UNREADABLE;

	if (guard_is_blind_or_hung(g, w)) {
		if (!before)
			guard_report(g, w, "GPU unreadable",
				     "one of its GPUs cannot be read (blind or hung), so the "
				     "guard decides nothing for it");
		w->conditions |= CONDITION_UNREADABLE;
		return may_decide_when_blind(w);
	}
	if (guard_is_stale(g, w))
		return false;
	w->conditions &= ~(unsigned)CONDITION_UNREADABLE;
	if (before && w->presence != PRESENCE_GONE) {
		worker_set_unknown(g, w);
		guard_report(g, w, "GPU readable", "all its GPUs answer");
	}
	return true;
}

/* Rows 8 to 13 of GUARD-MACHINE.md: the worker may run. */

static void update_throttled(struct guard *g, struct guard_worker *w)
{
	const bool before = w->conditions & CONDITION_THROTTLED;
	const struct guard_gpu *hot = NULL;

	for (unsigned i = 0; !hot && i < g->gpus; i++)
		if (has(w->observed.gpus, i) && g->gpu[i].heat & HEAT_THROTTLE)
			hot = &g->gpu[i];
	if (before == (hot != NULL))
		return;
	w->conditions ^= CONDITION_THROTTLED;
	if (hot)
		guard_report(g, w, "throttled", "it must refuse new work: %s", hot->heat_why);
	else
		guard_report(g, w, "throttled", "its GPU is cool again: it admits new work");
}

static void report_masked(struct guard *g, struct guard_worker *w)
{
	uint32_t now = w->reasons.mask & ~worker_kept_out(w), news = now & ~w->report.masked;
	char masks[40];

	w->report.masked = now;
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!(news & BIT(r)))
			continue;
		text_fit(masks, sizeof(masks), "masks %s: ", guard_reason_name(r));
		guard_report(g, w, "hold active", "%s%s", masks, w->reasons.evidence[r]);
		w->report.cause_at = (unsigned)strlen(masks);
	}
}

static enum step no_demand(struct guard *g, struct guard_worker *w)
{
	const bool suspected = worker_is_suspected(w);

	if (w->demand.calm_scenes < CALM_SCENES)
		return STEP_ORDER;
	worker_set_contention(w, false);
	w->demand.limited_ns = 0;
	if (!suspected)
		return STEP_ORDER;
	worker_set_suspected(g, w, false);
	guard_report(g, w, "near miss", "the demand ended: %s", w->demand.strongest.evidence);
	return STEP_AGAIN;
}

/* Handles a demand for the GPU of a worker that is held active. The worker does not enter the
 * state suspect. A sure demand becomes contention, which the hold masks. */
static enum step held_active(struct guard *g, struct guard_worker *w)
{
	const bool suspected = worker_is_suspected(w);

	if (suspected)
		worker_set_suspected(g, w, false);
	if (guard_demand_sure(g, w)) {
		worker_set_contention(w, true);
		report_masked(g, w);
	}
	if (!suspected)
		return STEP_ORDER;
	guard_report(g, w, "hold active", "it stays: %s", w->demand.strongest.evidence);
	w->report.cause_at = (unsigned)strlen("it stays: ");
	return STEP_AGAIN;
}

static enum step demand_presses(struct guard *g, struct guard_worker *w)
{
	const struct demand_case *c = &w->demand.strongest;

	if (worker_is_held_active(w))
		return held_active(g, w);
	if (!worker_is_suspected(w)) {
		worker_set_suspected(g, w, true);
		guard_report(g, w, c->rule, "%s", c->evidence);
		return STEP_AGAIN;
	}
	if (!guard_demand_sure(g, w))
		return STEP_ORDER;
	if (guard_damp(g, w) || !guard_take_eviction(g, w))
		return STEP_ORDER;
	worker_set_contention(w, true);
	begin_leaving(g, w);
	return STEP_AGAIN;
}

static enum step step_run(struct guard *g, struct guard_worker *w)
{
	report_masked(g, w);
	if (worker_kept_out(w) & ~BIT(REASON_CONTENTION)) {
		begin_leaving(g, w);
		return STEP_AGAIN;
	}
	update_throttled(g, w);
	/* give the order to admit or to refuse new work before anything else is decided */
	guard_give_order(g, w);
	if (guard_idle_due(g, w)) {
		guard_idle_begin(g, w);
		begin_leaving(g, w);
		return STEP_AGAIN;
	}
	return w->demand.pressing ? demand_presses(g, w) : no_demand(g, w);
}

/* Rows 14 to 24 of GUARD-MACHINE.md: the worker leaves. */

static enum step step_drain(struct guard *g, struct guard_worker *w)
{
	const struct worker_order *o = &w->order;
	const bool drained = o->status == STATUS_DONE && o->what.verb == ORDER_DRAIN;

	guard_eviction_grows(g, w);
	if (worker_kept_out(w) == BIT(REASON_CONTENTION) &&
	    w->demand.calm_scenes >= CALM_SCENES)
		worker_set_contention(w, false);
	if (w->idle.unload && w->idle.busy)
		guard_idle_end(g, w);
	if (!worker_kept_out(w)) {
		if (worker_is_returning(w))
			worker_set_returning(g, w, STAGE_VERIFY_UP, w->intent.from);
		else
			worker_set_running(g, w);
		guard_report(g, w, "cause gone",
			     "the reason ended before anything was unloaded");
		return STEP_AGAIN;
	}
	if (worker_has_order(w))
		return STEP_WAIT;
	if (!drained && g->now_ns < w->intent.deadline_ns)
		return STEP_ORDER;
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, drained ? "drained" : "drain timeout",
		     "the guard evicts it at level %u", w->intent.level);
	return STEP_AGAIN;
}

static const char over[] = "the time limit budget_s is over";

static void becomes_stuck(struct guard *g, struct guard_worker *w, const char *why)
{
	const struct worker_intent *i = &w->intent;
	const uint64_t bytes = w->observed.bytes;
	uint64_t free_now, others, rose;
	bool known;

	guard_free_and_others(g, w, &free_now, &others, &known);
	rose = free_now > i->base_free ? free_now - i->base_free : 0;
	worker_set_leaving(g, w, STAGE_STUCK);
	if (!guard_can_verify(g, w))
		guard_report(
			g, w, "stuck",
			"%s: neither the memory of its GPU nor of its processes can be read",
			why);
	else if (known && i->base_bytes && bytes <= i->base_bytes / 4)
		guard_report(g, w, "stuck",
			     "%s; free memory rose by %llu MiB instead of %llu MiB", why,
			     (unsigned long long)(rose / MIB),
			     (unsigned long long)(guard_freed_bytes(w) / MIB));
	else
		guard_report(g, w, "stuck", "%s; it still holds %llu MiB", why,
			     (unsigned long long)(bytes / MIB));
	/* this scene was judged; only a later one can show that the memory is free */
	w->order.answered = g->scenes;
}

void guard_unload_failed(struct guard *g, struct guard_worker *w, const char *why)
{
	unsigned level = worker_is_idle_only(w) ? 0 : guard_level_next(w, w->intent.level);

	if (!level || g->now_ns >= w->intent.budget_ns) {
		becomes_stuck(g, w, level ? over : why);
		return;
	}
	w->intent.level = level;
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, "next level", "%s; the guard evicts it at level %u", why, level);
}

static enum step step_unload(struct guard *g, struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;

	guard_eviction_grows(g, w);
	if (worker_has_order(w) || g->now_ns < w->order.retry_ns)
		return STEP_WAIT;
	if (i->tries && i->base_bytes && guard_is_freed(g, w)) {
		worker_set_leaving(g, w, STAGE_VERIFY);
		guard_report(g, w, "freed",
			     "the memory is free, although the worker did not report success");
		return STEP_AGAIN;
	}
	if (g->now_ns < i->budget_ns)
		return STEP_ORDER;
	guard_eviction_ended(w, RESULT_FAILED);
	becomes_stuck(g, w, over);
	return STEP_AGAIN;
}

/* Extends the deadline of a worker that is still freeing memory. Otherwise a higher level would
 * stop a server that is about to finish. */
static void extend_verify(struct guard *g, struct guard_worker *w)
{
	struct worker_intent *i = &w->intent;
	const uint64_t until_ns = g->now_ns + w->knobs.verify_ns;

	if (w->observed.bytes + SLACK_BYTES > i->least_bytes)
		return;
	i->least_bytes = w->observed.bytes;
	if (i->deadline_ns < until_ns)
		i->deadline_ns = until_ns;
}

/* If a reason or a demand requires this, evicts the worker again and returns true. */
static bool turn_back(struct guard *g, struct guard_worker *w)
{
	if (g->stopping)
		return false;
	if (w->demand.pressing && guard_demand_sure(g, w) &&
	    (w->demand.strongest.urgent || !guard_contender_fits(g, w)) &&
	    worker_heeds_demand(w) && guard_take_eviction(g, w))
		worker_set_contention(w, true);
	else if (!worker_kept_out(w))
		return false;
	begin_leaving(g, w);
	return true;
}

enum step guard_step_verify(struct guard *g, struct guard_worker *w)
{
	/* false: only a record says that the worker was ordered to leave */
	const bool claimed = w->intent.claim != CLAIM_NONE;

	guard_eviction_grows(g, w);
	if (guard_is_freed(g, w)) {
		const unsigned long long freed = guard_freed_bytes(w) / MIB;

		worker_set_out(g, w);
		if (w->dry)
			guard_report(g, w, "freed", "%llu MiB would be free", freed);
		else
			guard_report(g, w, "freed", "%llu MiB%s in %.1f s, %llu MiB remain",
				     freed, w->observed.by_device ? " (estimated)" : "",
				     (double)w->intent.freed_ns / (double)NS_PER_S,
				     (unsigned long long)(w->observed.bytes / MIB));
		guard_count_flap(g, w);
		return STEP_AGAIN;
	}
	extend_verify(g, w);
	if (!claimed && turn_back(g, w))
		return STEP_AGAIN;
	if (g->now_ns < w->intent.deadline_ns)
		return STEP_WAIT;
	guard_eviction_ended(w, RESULT_NOT_FREED);
	guard_unload_failed(g, w,
			    claimed ? "the worker reported success, but its memory is not free"
				    : over);
	return STEP_AGAIN;
}

/* Updates contention for a worker that is evicted or stuck. Contention begins when the demand
 * is sure and ends after the quiet time. */
static void follow_demand(struct guard *g, struct guard_worker *w)
{
	if (!worker_has_contention(w) && worker_heeds_demand(w) && guard_demand_sure(g, w)) {
		worker_set_contention(w, true);
		guard_report(g, w, w->demand.strongest.rule, "%s",
			     w->demand.strongest.evidence);
	}
	if (worker_has_contention(w) && guard_demand_calm(g, w))
		worker_set_contention(w, false);
}

static enum step step_stuck(struct guard *g, struct guard_worker *w)
{
	if (!worker_is_fresh(g, w))
		return STEP_WAIT;
	if (guard_is_freed(g, w)) {
		worker_set_out(g, w);
		guard_report(g, w, "freed", "the stuck worker left; it still holds %llu MiB",
			     (unsigned long long)(w->observed.bytes / MIB));
		guard_count_flap(g, w);
		return STEP_AGAIN;
	}
	follow_demand(g, w);
	if (worker_is_idle_only(w))
		/* the worker had to leave only because it was idle, so it may stay */
		guard_idle_end(g, w);
	if (worker_kept_out(w))
		return STEP_ORDER;
	/* A worker that reported success may still hold its memory (vLLM asleep), so it is
	 * resumed. */
	if (guard_may_resume_stuck(w))
		return guard_try_return(g, w, true);
	worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
	guard_report(g, w, "no reason left", "it probably never left its GPU");
	return STEP_AGAIN;
}

/* Rows 25 to 30 of GUARD-MACHINE.md: the worker is evicted. */

static enum step step_out(struct guard *g, struct guard_worker *w)
{
	/* Even if a request has already ended the quiet time, that end must be reported. */
	const bool was_quiet = w->report.state == STATE_QUIET;
	const char *rule, *evidence;
	char text[240];
	bool only;

	if (w->observed.bytes < w->intent.residue_bytes)
		w->intent.residue_bytes = w->observed.bytes;
	if (guard_idle_end_if_used(g, w))
		return STEP_AGAIN;
	if (guard_is_loaded_again(w)) {
		guard_loaded_again(g, w);
		return STEP_AGAIN;
	}
	follow_demand(g, w);
	if (!worker_kept_out(w))
		return guard_try_return(g, w, false);
	only = worker_kept_out(w) == BIT(REASON_CONTENTION);
	if (!was_quiet && only && !w->demand.pressing && w->demand.calm_scenes) {
		worker_set_calming(g, w, true);
		guard_report(g, w, "no demand", "it may return after %llu s without demand",
			     (unsigned long long)(worker_quiet_ns(w) / NS_PER_S));
	} else if (was_quiet && (w->demand.pressing || !only)) {
		if (!only)
			w->demand.calm_ns = g->now_ns;
		guard_cause(w, text, &rule, &evidence);
		worker_set_calming(g, w, false);
		if (w->demand.pressing)
			guard_report(g, w, w->demand.strongest.rule, "%s",
				     w->demand.strongest.evidence);
		else
			guard_report(g, w, rule, "%s", evidence);
	}
	return STEP_ORDER;
}

/* Rows 33 to 37 of GUARD-MACHINE.md: the worker returns. */

/* True if the return is complete (row 35 of GUARD-MACHINE.md): the worker holds at least three
 * quarters of its earlier memory. After verify_s, less memory is enough if the worker lists its
 * models as loaded. A worker that loads lazily only has to be present. */
static bool is_back(const struct guard *g, const struct guard_worker *w)
{
	if (worker_loads_lazily(w))
		return worker_is_present(w);
	return w->observed.bytes / 3 >= w->observed.need_bytes / 4 ||
	       (w->intent.claim == CLAIM_BACK && g->now_ns >= w->since_ns + w->knobs.verify_ns);
}

/* Checks whether the worker is back (rows 35 and 36 of GUARD-MACHINE.md). A worker that is only
 * partly back after UP_NS counts as back: an eviction would unload that part again. */
static enum step step_verify_up(struct guard *g, struct guard_worker *w)
{
	const uint64_t bytes = w->observed.bytes, need = w->observed.need_bytes;
	const unsigned long long mib = bytes / MIB;
	const unsigned up_s = UP_NS / NS_PER_S;
	char why[60];

	if (!worker_is_fresh(g, w))
		return STEP_WAIT;
	if (is_back(g, w)) {
		worker_set_running(g, w);
		if (bytes / 3 >= need / 4 || worker_loads_lazily(w))
			guard_report(g, w, "is back", "%llu MiB", mib);
		else
			guard_report(g, w, "is back",
				     "its models are loaded; it held %llu MiB before, now "
				     "%llu MiB",
				     (unsigned long long)(need / MIB), mib);
		return STEP_AGAIN;
	}
	if (g->now_ns < w->intent.deadline_ns)
		return STEP_WAIT;
	if (bytes <= w->intent.residue_bytes + SLACK_BYTES) {
		snprintf(why, sizeof(why), "it holds none of its memory after %u s", up_s);
		guard_resume_failed(g, w, why);
		return STEP_AGAIN;
	}
	worker_set_running(g, w);
	guard_report(g, w, "is back", "it holds only %llu of %llu MiB after %u s", mib,
		     (unsigned long long)(need / MIB), up_s);
	return STEP_AGAIN;
}

static enum step step_intent(struct guard *g, struct guard_worker *w)
{
	switch (w->intent.stage) {
	case STAGE_RUN: return step_run(g, w);
	case STAGE_DRAIN: return step_drain(g, w);
	case STAGE_UNLOAD: return step_unload(g, w);
	case STAGE_VERIFY: return guard_step_verify(g, w);
	case STAGE_STUCK: return step_stuck(g, w);
	case STAGE_OUT: return step_out(g, w);
	case STAGE_LOAD: return turn_back(g, w) ? STEP_AGAIN : STEP_ORDER;
	default: return turn_back(g, w) ? STEP_AGAIN : step_verify_up(g, w);
	}
}

static enum step step_worker(struct guard *g, struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;
	bool acting;

	if (worker_resume_forbidden(w)) {
		if (w->report.state != worker_state(w))
			guard_report(g, w, "mode", "%s", guard_must_resume_text);
		return STEP_WAIT;
	}
	guard_order_overdue(g, w);
	if (g->stopping && !worker_is_coming_back(w))
		return guard_step_stop(g, w);
	if (guard_lost(g, w)) {
		lost_with_gpu(g, w);
		return STEP_WAIT;
	}
	if (!update_unreadable(g, w))
		return STEP_WAIT;
	if (w->presence == PRESENCE_UNKNOWN)
		return step_unknown(g, w);
	if (w->presence == PRESENCE_GONE)
		return step_gone(g, w);
	acting = i->stage == STAGE_VERIFY || (i->stage == STAGE_UNLOAD && worker_has_order(w));
	if (is_gone(w) && !acting)
		return becomes_gone(g, w);
	return step_intent(g, w);
}

static void step_until_settled(struct guard *g, struct guard_worker *w)
{
	enum step did = STEP_AGAIN;

	for (unsigned n = 0; n < STEPS && did == STEP_AGAIN; n++)
		did = step_worker(g, w);
	if (did == STEP_ORDER)
		guard_give_order(g, w);
	if (did != STEP_AGAIN) {
		w->conditions &= ~(unsigned)CONDITION_CONTRADICTION;
	} else if (!(w->conditions & CONDITION_CONTRADICTION)) {
		w->conditions |= CONDITION_CONTRADICTION;
		guard_report(g, w, "not settled",
			     "worker %.40s gets no order: two rules of the guard contradict "
			     "each other (%u steps). This is a defect: please report it with a "
			     "recording ([guard] record). The guard tries again at the next "
			     "observation",
			     w->policy->name, STEPS);
	}
}

void guard_steps(struct guard *g)
{
	/* Workers with the highest priority return first. */
	for (unsigned i = g->workers; i-- > 0;)
		step_until_settled(g, &g->worker[g->order[i]]);
}
