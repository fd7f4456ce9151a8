/* Chooses the next order of a worker, handles its outcome, and checks that memory was freed. */
#include "guard_internal.h"

#include <string.h>

#define DRAIN_RETRY_NS (250 * NS_PER_MS) /* wait before a drain that failed is tried again */

/* Returns the time that an order to evict may take. A checkpoint gets one nanosecond
 * more per byte, because it copies at least 1 GB/s. */
uint64_t guard_evict_ns(const struct guard_worker *w)
{
	return CALL_NS + (w->intent.level == LEVEL_CHECKPOINT ? w->intent.base_bytes : 0);
}

/* Returns the deadline of an order to evict. It is not later than the deadline of the whole
 * eviction, so that a hanging call cannot delay the eviction. But a checkpoint is
 * never interrupted, and every order gets at least LEAST_NS. */
static uint64_t unload_deadline(const struct guard_worker *w, uint64_t now_ns)
{
	const uint64_t until = now_ns + guard_evict_ns(w), least = now_ns + LEAST_NS;

	if (w->intent.level == LEVEL_CHECKPOINT || until <= w->intent.budget_ns)
		return until;
	return w->intent.budget_ns > least ? w->intent.budget_ns : least;
}

/* Finds the next order from the worker's intent, its last order and its admission. admit: the
 * worker should admit new work. Returns false if no order is due. */
static bool next_order(const struct guard_worker *w, bool admit, uint64_t now_ns,
		       enum guard_verb *ret, uint64_t *ret_deadline_ns)
{
	const bool closed = w->admission == ADMISSION_CLOSED, due = now_ns >= w->order.retry_ns;
	const bool idle = worker_is_idle_only(w), kept_out = worker_kept_out(w);

	*ret_deadline_ns = now_ns + CALL_NS;
	if (worker_has_order(w))
		return false;
	switch (w->intent.stage) {
	case STAGE_RUN:
		*ret = admit ? ORDER_OPEN : ORDER_CLOSE;
		return due && w->admission != (admit ? ADMISSION_OPEN : ADMISSION_CLOSED);
	case STAGE_OUT:
		/* a client must be able to request the model of a worker that was idle */
		*ret = idle ? ORDER_OPEN : ORDER_CLOSE;
		return worker_is_present(w) && kept_out &&
		       (idle ? due && w->admission != ADMISSION_OPEN : !closed);
	case STAGE_DRAIN:
		*ret = closed || idle ? ORDER_DRAIN : ORDER_CLOSE;
		*ret_deadline_ns = w->intent.deadline_ns;
		return due || *ret == ORDER_CLOSE;
	case STAGE_UNLOAD:
		*ret = w->backoff.storm && !closed ? ORDER_CLOSE : ORDER_EVICT;
		if (*ret == ORDER_EVICT)
			*ret_deadline_ns = unload_deadline(w, now_ns);
		return due;
	case STAGE_STUCK:
		*ret = ORDER_EVICT;
		*ret_deadline_ns = now_ns + guard_evict_ns(w);
		return due && kept_out;
	case STAGE_LOAD:
		/* A worker that loads at the request of a client must only admit new work. A
		 * worker that was stopped must be started. */
		*ret = worker_loads_lazily(w) && worker_is_present(w) ? ORDER_OPEN
								      : ORDER_RESUME;
		*ret_deadline_ns = now_ns + UP_NS;
		return true;
	default: return false;
	}
}

static void note_put_away(struct guard_worker *w)
{
	const struct guard_order *o = &w->order.what;

	for (unsigned i = 0; i < o->targets; i++)
		w->intent.put_away[i] = o->target[i].id;
	w->intent.put_away_count = o->targets;
}

static void issue(struct guard *g, struct guard_worker *w, enum guard_verb verb,
		  uint64_t deadline_ns)
{
	struct guard_order *o = &w->order.what;

	memset(o, 0, sizeof(*o));
	o->id = ++g->next_id;
	o->verb = verb;
	o->worker = worker_number(g, w);
	o->level = verb == ORDER_CLOSE ? LEVEL_CLOSE : w->intent.level;
	o->deadline_ns = deadline_ns;
	o->bytes = verb == ORDER_RESUME ? w->observed.need_bytes : w->observed.bytes;
	o->start = verb == ORDER_RESUME && !worker_is_present(w);
	guard_mask_text(worker_kept_out(w), ", ", o->reason, sizeof(o->reason));
	guard_name_targets(g, w, o);
	if (verb == ORDER_EVICT && w->intent.level == LEVEL_CHECKPOINT)
		note_put_away(w);
	if (verb == ORDER_CLOSE) {
		if (w->intent.stage == STAGE_RUN && w->admission == ADMISSION_OPEN)
			w->intent.real = !w->dry;
		w->record_due = w->record_due || w->admission == ADMISSION_OPEN;
		/* the worker counts as closed until ORDER_OPEN has succeeded */
		w->order.admission_before = w->admission;
		w->admission = ADMISSION_CLOSED;
	}
	w->order.status = w->dry ? STATUS_UNDERWAY : STATUS_WAITING;
	if (verb == ORDER_EVICT || verb == ORDER_RESUME)
		w->record_due = true;
}

void guard_give_order(struct guard *g, struct guard_worker *w)
{
	enum guard_verb verb;
	uint64_t deadline_ns;
	bool admit = true;

	for (unsigned i = 0; !g->stopping && i < g->gpus; i++)
		admit = admit && !(has(w->observed.gpus, i) && g->gpu[i].heat & HEAT_THROTTLE);
	if (!next_order(w, admit, g->now_ns, &verb, &deadline_ns))
		return;
	issue(g, w, verb, deadline_ns);
	if (w->intent.stage == STAGE_STUCK)
		w->order.retry_ns = g->now_ns + STUCK_NS;
}

void guard_take_back(struct guard_worker *w)
{
	if (w->order.status != STATUS_WAITING)
		return;
	if (w->order.what.verb == ORDER_CLOSE)
		w->admission = w->order.admission_before;
	w->order.status = STATUS_NONE;
}

void guard_order_done(struct guard *g, struct guard_worker *w, const struct guard_outcome *o)
{
	const bool loading = worker_state(w) == STATE_RESUME;

	w->order.status = STATUS_DONE;
	switch (w->order.what.verb) {
	case ORDER_EVICT:
		w->intent.claim = w->dry ? CLAIM_DRY : CLAIM_LEFT;
		if (worker_state(w) != STATE_EVICT)
			return;
		worker_set_leaving(g, w, STAGE_VERIFY);
		guard_report(
			g, w, "done",
			"the eviction at level %u succeeded; waiting until its memory is free",
			w->intent.level);
		return;
	case ORDER_OPEN:
		w->admission = ADMISSION_OPEN;
		w->record_due = true;
		break;
	case ORDER_RESUME: break;
	default: return;
	}
	if (o->ending == ENDING_LISTED)
		w->intent.claim = CLAIM_BACK;
	else if (w->intent.claim == CLAIM_DRY &&
		 (loading || w->order.what.verb == ORDER_RESUME))
		w->intent.claim = CLAIM_NONE;
	if (!loading)
		return;
	worker_set_returning(g, w, STAGE_VERIFY_UP, w->intent.from);
	guard_report(g, w, w->order.what.verb == ORDER_OPEN ? "opened" : "done", "%.200s",
		     o->message[0] ? o->message : "waiting until it uses its GPU memory again");
}

/* Handles a failed order to evict. A worker that refuses (wrong token, unknown request) would
 * refuse again, so this level is not tried again. */
static void evict_failed(struct guard *g, struct guard_worker *w, const struct guard_outcome *o)
{
	const char *message = o->message;

	if (worker_state(w) != STATE_EVICT)
		return;
	if (o->ending == ENDING_REFUSED)
		w->intent.tries = RETRIES + 1;
	else if (o->ending != ENDING_BUSY)
		w->intent.tries++;
	if (w->intent.tries > RETRIES) {
		guard_eviction_ended(w, RESULT_FAILED);
		guard_unload_failed(g, w, message);
		return;
	}
	w->order.retry_ns =
		g->now_ns + (RETRY_NS << (w->intent.tries ? w->intent.tries - 1 : 0));
	guard_report(g, w, "try again", "the eviction at level %u failed: %.180s",
		     w->intent.level, message);
}

/* Handles a failed drain. A drain that the worker refuses ends at once: waiting for drain_s
 * would change nothing. */
static void drain_failed(struct guard *g, struct guard_worker *w, const struct guard_outcome *o)
{
	w->order.retry_ns = g->now_ns + DRAIN_RETRY_NS;
	if ((o->ending == ENDING_BUSY || o->ending == ENDING_IN_FLIGHT) &&
	    worker_is_idle_only(w))
		guard_idle_end(g, w); /* requests still run: the worker is not idle */
	if (o->ending != ENDING_REFUSED || worker_state(w) != STATE_DRAIN)
		return;
	w->intent.deadline_ns = g->now_ns;
	guard_report(g, w, "refused", "%.200s", o->message);
}

void guard_order_failed(struct guard *g, struct guard_worker *w, const struct guard_outcome *o)
{
	const bool loading = worker_state(w) == STATE_RESUME;

	w->order.status = STATUS_FAILED;
	switch (w->order.what.verb) {
	case ORDER_DRAIN: drain_failed(g, w, o); return;
	case ORDER_OPEN: w->order.retry_ns = g->now_ns + RECHECK_NS; break;
	case ORDER_RESUME: break;
	case ORDER_EVICT: evict_failed(g, w, o); return;
	default: return;
	}
	if (loading)
		guard_resume_failed(g, w, o->message);
}

/* Treats an order as failed if its outcome is overdue, so that a lost outcome does not stop all
 * further orders. A checkpoint that still runs has not failed. An order that nobody fetched in
 * time was not carried out: it is given again, with a new deadline. */
void guard_order_overdue(struct guard *g, struct guard_worker *w)
{
	const struct guard_outcome late = { .message = "no answer by the deadline" };
	const struct guard_order *o = &w->order.what;

	if (w->order.status == STATUS_WAITING && g->now_ns >= o->deadline_ns)
		guard_take_back(w);
	if (w->order.status != STATUS_UNDERWAY || w->dry ||
	    (o->verb == ORDER_EVICT && o->level == LEVEL_CHECKPOINT) ||
	    g->now_ns <= o->deadline_ns + CALL_NS)
		return;
	if (o->verb == ORDER_EVICT)
		w->intent.claim = CLAIM_LEFT;
	guard_order_failed(g, w, &late);
}

static void set_base(struct guard *g, struct guard_worker *w)
{
	bool known;

	guard_free_and_others(g, w, &w->intent.base_free, &w->intent.base_others, &known);
	w->intent.base_bytes = w->observed.bytes;
	worker_raise_need(w);
}

void guard_eviction_begins(struct guard *g, struct guard_worker *w)
{
	set_base(g, w);
	w->intent.begun_ns = g->now_ns;
	w->intent.level = guard_level_first(w);
	w->intent.tries = 0;
	w->order.retry_ns = 0;
}

/* Sets base_bytes and the two other base values again if a leaving worker took more memory,
 * because that memory must become free too. */
void guard_eviction_grows(struct guard *g, struct guard_worker *w)
{
	if (w->observed.bytes > w->intent.base_bytes)
		set_base(g, w);
}

uint64_t guard_freed_bytes(const struct guard_worker *w)
{
	const uint64_t base = w->intent.base_bytes;

	return base > w->observed.bytes ? base - w->observed.bytes : 0;
}

void guard_eviction_ended(struct guard_worker *w, enum guard_result result)
{
	w->report.result = result;
	w->report.level = w->intent.level;
	w->report.freed_bytes = result == RESULT_FREED ? guard_freed_bytes(w) : 0;
}

/* True if an eviction can be verified: by the memory of each of the worker's GPUs, or by
 * complete process lists. */
bool guard_can_verify(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++) {
		const struct scene_gpu *u = g->gpu[i].now;

		if (has(w->observed.gpus, i) && !(u && u->memory_known) &&
		    (!u || u->hidden || w->observed.by_device))
			return false;
	}
	return true;
}

/* True if the worker's memory is free. Two conditions must hold. First, its processes hold at
 * most a quarter of what they held before; if the worker was returning, they may hold as much
 * as while it was evicted. Second, the free memory of the GPU rose by the freed amount; 64 MiB
 * and the memory that other processes took meanwhile may be missing. */
bool guard_is_freed(const struct guard *g, const struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;
	const bool still_out =
		worker_is_returning(w) && w->observed.bytes <= i->residue_bytes + SLACK_BYTES;
	uint64_t free_now, others, took;
	bool known;

	if (w->observed.bytes > i->base_bytes / 4 && !still_out)
		return false;
	if (w->dry)
		return true;
	guard_free_and_others(g, w, &free_now, &others, &known);
	if (!known || w->observed.by_device)
		return guard_can_verify(g, w);
	took = others > i->base_others ? others - i->base_others : 0;
	return free_now + took + SLACK_BYTES >= i->base_free + guard_freed_bytes(w);
}

/* True if it does no harm to resume a worker that already runs. False for hooks, signals and
 * callbacks, which may load a second time. False also for a worker that cannot report what is
 * loaded, because such a worker would load its model again. */
static bool may_resume_twice(const struct guard_worker *w)
{
	return !policy_kind_is(w->policy->kind,
			       KIND_COMMANDS | KIND_SIGNALS | KIND_SELF | KIND_NEEDS_MODEL);
}

/* True if a worker that still holds its memory may be resumed. This is allowed if the worker
 * reported that it left, or did not answer. It is also allowed if three conditions hold: the
 * worker reported a failure (some workers leave nevertheless), a second resume does no harm,
 * and a resume is requested or configured. */
bool guard_may_resume_stuck(const struct guard_worker *w)
{
	return w->intent.claim == CLAIM_LEFT ||
	       (may_resume_twice(w) && (w->backoff.request != RESUME_NOT_REQUESTED ||
					w->policy->resume != RESUME_NEVER));
}
