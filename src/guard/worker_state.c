/* Derives the state of a worker from its presence, its intent and its demand phase, and changes
 * these three. */
#include "guard_internal.h"

#include <string.h>

enum guard_state worker_state(const struct guard_worker *w)
{
	static const enum guard_state of_stage[] = {
		[STAGE_DRAIN] = STATE_DRAIN,   [STAGE_UNLOAD] = STATE_EVICT,
		[STAGE_VERIFY] = STATE_VERIFY, [STAGE_STUCK] = STATE_STUCK,
		[STAGE_LOAD] = STATE_RESUME,   [STAGE_VERIFY_UP] = STATE_VERIFY_UP,
	};

	if (w->presence != PRESENCE_HERE)
		return w->presence == PRESENCE_GONE ? STATE_ABSENT : STATE_RECONCILE;
	if (worker_resume_forbidden(w))
		return STATE_EVICTED;
	switch (w->intent.stage) {
	case STAGE_RUN: return worker_is_suspected(w) ? STATE_SUSPECT : STATE_ACTIVE;
	case STAGE_OUT: return w->demand.phase == PHASE_CALMING ? STATE_QUIET : STATE_EVICTED;
	default: return of_stage[w->intent.stage];
	}
}

uint32_t worker_kept_out(const struct guard_worker *w)
{
	return worker_is_held_active(w) ? w->reasons.mask & ~(uint32_t)MASK_HOLD
					: w->reasons.mask;
}

enum guard_hold worker_hold(const struct guard_worker *w)
{
	const enum worker_person p = w->reasons.person;

	return p == PERSON_HOLD_EVICTED  ? HOLD_EVICTED
	       : p == PERSON_HOLD_ACTIVE ? HOLD_ACTIVE
					 : HOLD_NONE;
}

bool worker_is_held_active(const struct guard_worker *w)
{
	return w->reasons.person == PERSON_HOLD_ACTIVE;
}

bool worker_is_idle_only(const struct guard_worker *w)
{
	return worker_kept_out(w) == BIT(REASON_IDLE);
}

bool worker_is_suspected(const struct guard_worker *w)
{
	return w->demand.phase == PHASE_SUSPECTED || w->demand.phase == PHASE_RELEASED;
}

bool worker_has_contention(const struct guard_worker *w)
{
	return w->demand.phase >= PHASE_RELEASED;
}

bool worker_is_present(const struct guard_worker *w)
{
	return w->observed.found >= FOUND_SAME;
}

bool worker_has_order(const struct guard_worker *w)
{
	return w->order.status == STATUS_WAITING || w->order.status == STATUS_UNDERWAY;
}

bool worker_is_fresh(const struct guard *g, const struct guard_worker *w)
{
	return !worker_has_order(w) && g->scenes > w->order.answered;
}

bool worker_is_moved(const struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;

	if (stage_returns(w->intent.stage))
		return i->from != FROM_ABSENT && i->from != FROM_STARTED;
	return i->stage != STAGE_RUN;
}

bool worker_is_returning(const struct guard_worker *w)
{
	return w->intent.stage != STAGE_RUN && w->intent.from != FROM_RUN;
}

bool worker_is_coming_back(const struct guard_worker *w)
{
	return w->presence == PRESENCE_HERE && stage_returns(w->intent.stage) &&
	       !worker_resume_forbidden(w);
}

bool worker_heeds_demand(const struct guard_worker *w)
{
	return w->backoff.request != RESUME_REQUESTED_NOW && !worker_is_held_active(w);
}

bool worker_resume_forbidden(const struct guard_worker *w)
{
	return w->dry && worker_owes(w);
}

bool worker_owes(const struct guard_worker *w)
{
	return w->intent.real && (worker_is_moved(w) || w->admission != ADMISSION_OPEN);
}

bool worker_is_out(const struct guard_worker *w)
{
	return w->presence == PRESENCE_GONE ||
	       (w->presence == PRESENCE_HERE &&
		(w->intent.stage != STAGE_RUN || worker_resume_forbidden(w)));
}

bool worker_is_leaving(const struct guard_worker *w)
{
	return worker_is_out(w) && worker_kept_out(w) && worker_state(w) != STATE_STUCK;
}

bool worker_loads_lazily(const struct guard_worker *w)
{
	if (policy_kind_is(w->policy->kind, KIND_NEEDS_WAKE))
		return false;
	return w->policy->resume == RESUME_LAZY ||
	       policy_kind_is(w->policy->kind, KIND_CANNOT_LOAD);
}

uint64_t worker_longest_wait_ns(const struct guard_worker *w)
{
	return w->knobs.quiet_ns > LONGEST_NS ? w->knobs.quiet_ns : LONGEST_NS;
}

uint64_t worker_quiet_ns(const struct guard_worker *w)
{
	const double ns = (double)w->knobs.quiet_ns * w->backoff.quiet_factor;
	const uint64_t longest = worker_longest_wait_ns(w);

	return ns < (double)longest ? (uint64_t)ns : longest;
}

unsigned worker_number(const struct guard *g, const struct guard_worker *w)
{
	return (unsigned)(w - g->worker);
}

/* Ends a suspicion or a quiet time. Afterwards the phase is PHASE_SURE if contention is a
 * reason, else PHASE_NONE. */
static void settle_phase(struct guard_worker *w)
{
	w->demand.phase = worker_has_contention(w) ? PHASE_SURE : PHASE_NONE;
}

static void begin_stage(struct guard *g, struct guard_worker *w, enum worker_stage stage)
{
	settle_phase(w);
	if (!worker_is_moved(w) && w->admission == ADMISSION_OPEN)
		w->intent.real = stage != STAGE_RUN && !w->dry;
	w->presence = PRESENCE_HERE;
	w->intent.stage = stage;
	w->since_ns = g->now_ns;
}

void worker_set_contention(struct guard_worker *w, bool on)
{
	w->record_due = w->record_due || (worker_is_moved(w) && worker_has_contention(w) != on);
	w->reasons.mask &= ~BIT(REASON_CONTENTION);
	if (!on) {
		if (worker_has_contention(w))
			w->demand.phase = PHASE_NONE;
		return;
	}
	if (w->demand.phase != PHASE_CALMING)
		w->demand.phase = PHASE_SURE;
	w->reasons.mask |= BIT(REASON_CONTENTION);
	text_fit(w->reasons.contention_rule, sizeof(w->reasons.contention_rule), "%s",
		 w->demand.strongest.rule);
	text_fit(w->reasons.evidence[REASON_CONTENTION], sizeof(w->reasons.evidence[0]), "%s",
		 w->demand.strongest.evidence);
	w->reasons.contender = w->demand.strongest.contender;
}

void worker_set_unknown(struct guard *g, struct guard_worker *w)
{
	settle_phase(w);
	w->presence = PRESENCE_UNKNOWN;
	w->since_ns = g->now_ns;
}

void worker_forget_eviction(struct guard *g, struct guard_worker *w)
{
	w->intent.stage = STAGE_RUN;
	w->intent.from = FROM_RUN;
	w->intent.claim = CLAIM_NONE;
	w->intent.real = false;
	w->intent.put_away_count = 0;
	w->intent.residue_bytes = 0;
	w->admission = ADMISSION_OPEN;
	w->backoff.storm = w->idle.unload = false;
	w->record_due = true;
	guard_accept_roots(g, w);
}

void worker_stop_returning(struct guard_worker *w)
{
	struct worker_intent *i = &w->intent;

	if (stage_returns(w->intent.stage))
		i->stage = i->from == FROM_OUT ? STAGE_OUT : STAGE_STUCK;
	i->from = FROM_RUN;
}

/* Marks the worker as absent. If the worker is evicted and its process still lives, the intent
 * is kept, because the worker is still evicted when it is found again. But the intent is
 * forgotten if another process replaced that process (FOUND_OTHER_LIVES). */
void worker_set_gone(struct guard *g, struct guard_worker *w)
{
	const enum worker_found found = w->observed.found;
	const bool missed =
		worker_is_moved(w) && (found == FOUND_UNMATCHED || found == FOUND_DISPLACED);

	worker_set_unknown(g, w);
	w->presence = PRESENCE_GONE;
	w->record_due = true;
	if (missed || (worker_is_moved(w) && found == FOUND_OTHER_LIVES))
		w->report.kind = DECISION_UNREACHABLE;
	if (!missed) {
		worker_forget_eviction(g, w);
		return;
	}
	w->backoff.storm = false;
	worker_stop_returning(w);
}

void worker_raise_need(struct guard_worker *w)
{
	struct worker_observed *o = &w->observed;

	o->need_bytes = 0;
	for (unsigned i = 0; i < SCENE_GPUS; i++) {
		if (o->held[i] > o->need_on[i])
			o->need_on[i] = o->held[i];
		o->need_bytes += o->need_on[i];
	}
}

void worker_set_need(struct guard_worker *w)
{
	memset(w->observed.need_on, 0, sizeof(w->observed.need_on));
	worker_raise_need(w);
}

void worker_set_running(struct guard *g, struct guard_worker *w)
{
	const bool returned = worker_state(w) == STATE_VERIFY_UP;

	if (returned) {
		w->backoff.resident_ns = g->now_ns + w->knobs.resident_ns;
		w->report.resumes += !w->dry;
		if (worker_is_present(w)) /* an order may have restarted the worker */
			guard_accept_roots(g, w);
	}
	/* A worker that was started may report success before its process is found. */
	w->intent.from = returned && !worker_is_present(w) ? FROM_ABSENT : FROM_RUN;
	begin_stage(g, w, STAGE_RUN);
	w->intent.claim = CLAIM_NONE;
	w->intent.put_away_count = 0;
	w->demand.damped_until_ns = 0;
	w->backoff.storm = false;
	w->backoff.request = RESUME_NOT_REQUESTED;
	w->backoff.failed_ns = 0;
	w->backoff.blocked = 0;
	w->order.retry_ns = 0;
	w->record_due = true;
	worker_set_need(w);
}

void worker_set_suspected(struct guard *g, struct guard_worker *w, bool suspected)
{
	if (suspected) {
		w->demand.phase = worker_has_contention(w) ? PHASE_RELEASED : PHASE_SUSPECTED;
	} else {
		settle_phase(w);
		w->demand.damped_until_ns = 0;
	}
	w->since_ns = g->now_ns;
}

static void begin_drain(struct guard *g, struct guard_worker *w)
{
	bool hot = w->reasons.mask & BIT(REASON_THERMAL);

	guard_eviction_begins(g, w);
	w->intent.deadline_ns = g->now_ns + (hot ? 0 : w->knobs.drain_ns);
	w->demand.damped_until_ns = 0;
	w->report.masked = 0;
	if (!worker_has_order(w))
		w->order.status =
			STATUS_NONE; /* the outcome of an earlier drain does not count */
}

static void begin_unload(struct guard *g, struct guard_worker *w)
{
	const enum worker_stage from = w->intent.stage;

	if (!stage_leaves(w->intent.stage))
		guard_eviction_begins(g, w);
	if (from != STAGE_VERIFY && from != STAGE_UNLOAD)
		w->intent.budget_ns =
			g->now_ns + w->knobs.budget_ns + guard_evict_ns(w) - CALL_NS;
	w->intent.tries = 0;
}

/* Gives a server at least its own time limit (stop_s in kind.def) to free its memory. */
static void begin_verify(struct guard *g, struct guard_worker *w)
{
	const uint64_t own_ns = w->intent.level == guard_level_first(w)
					? policy_kind_stop_ns(w->policy->kind)
					: 0;

	w->intent.deadline_ns =
		g->now_ns + (own_ns > w->knobs.verify_ns ? own_ns : w->knobs.verify_ns);
	w->intent.least_bytes = w->observed.bytes;
}

void worker_set_leaving(struct guard *g, struct guard_worker *w, enum worker_stage stage)
{
	const enum worker_from from = worker_is_returning(w) ? w->intent.from : FROM_RUN;

	switch (stage) {
	case STAGE_DRAIN: begin_drain(g, w); break;
	case STAGE_UNLOAD: begin_unload(g, w); break;
	case STAGE_VERIFY: begin_verify(g, w); break;
	default: w->order.retry_ns = g->now_ns + STUCK_NS; w->backoff.check_ns = g->now_ns;
	}
	begin_stage(g, w, stage);
	w->intent.from = from;
	w->record_due = w->record_due || stage == STAGE_DRAIN || stage == STAGE_UNLOAD;
}

/* Ends an eviction after the worker's memory is free. */
static void eviction_is_over(struct guard *g, struct guard_worker *w)
{
	const enum worker_found found = w->observed.found;

	w->intent.residue_bytes = w->observed.bytes;
	w->intent.freed_ns = w->dry ? 0 : g->now_ns - w->intent.begun_ns;
	w->record_due = true;
	guard_eviction_ended(w, RESULT_FREED);
	if (w->admission == ADMISSION_CLOSED &&
	    (found == FOUND_OTHER || found == FOUND_OTHER_LIVES))
		/* some workers unload by restarting, and a new process admits new work */
		w->admission = ADMISSION_UNVERIFIED;
	if (worker_is_present(w))
		guard_accept_roots(g, w);
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i))
			g->gpu[i].acted_ns = g->now_ns;
	if (w->dry)
		w->report.would_evict++;
	else
		w->report.evictions++;
}

void worker_set_out(struct guard *g, struct guard_worker *w)
{
	const enum guard_state from = worker_state(w);

	if (from == STATE_VERIFY || from == STATE_STUCK)
		eviction_is_over(g, w);
	w->backoff.check_ns = g->now_ns;
	begin_stage(g, w, STAGE_OUT);
	w->intent.from = FROM_RUN;
}

void worker_set_calming(struct guard *g, struct guard_worker *w, bool calming)
{
	if (calming)
		w->demand.phase = PHASE_CALMING;
	else
		settle_phase(w);
	w->backoff.blocked = 0; /* so that the next check reports its result */
	w->backoff.check_ns = w->since_ns = g->now_ns;
}

void worker_set_returning(struct guard *g, struct guard_worker *w, enum worker_stage stage,
			  enum worker_from from)
{
	begin_stage(g, w, stage);
	w->intent.from = from;
	if (stage == STAGE_VERIFY_UP) {
		w->intent.deadline_ns = g->now_ns + UP_NS;
		return;
	}
	if (!worker_is_present(w)) /* the process that will appear is the worker */
		w->observed.roots = 0;
	w->record_due = true;
}
