/* Applies people's requests (hold, release, evict, resume), and the end of the service.
 *
 * A worker has at most one hold. A hold ends when a person releases it, when its time is over,
 * or when another hold replaces it. The request "resume now" also ends the hold "evicted"; no
 * other request ends a hold. */
#include "guard_internal.h"

#include <string.h>

/* True if the request would evict the worker. */
static bool request_evicts(const struct guard_worker *w, enum guard_request what)
{
	return (what == REQUEST_EVICT || what == REQUEST_HOLD_EVICTED) && !worker_is_out(w);
}

static int request_refused(const struct guard *g, const struct guard_worker *w,
			   enum guard_request what, uint64_t ttl_ns, uint64_t now_ns,
			   char *message, size_t size)
{
	bool hold = what == REQUEST_HOLD_ACTIVE || what == REQUEST_HOLD_EVICTED;
	const char *name = w->policy->name;

	if (hold && !ttl_ns) {
		text_fit(message, size, "%s: a hold needs a duration, or must last forever",
			 name);
		return -GW_E_ARG;
	}
	if ((worker_is_held_active(w) && what == REQUEST_EVICT) ||
	    (w->reasons.person == PERSON_HOLD_EVICTED && what == REQUEST_RESUME)) {
		text_fit(message, size,
			 "%s is held %s; to end this hold, run gpuward guard release %s", name,
			 what == REQUEST_EVICT ? "active" : "evicted", name);
		return -GW_E_STATE;
	}
	if (request_evicts(w, what))
		return guard_requester_may(g, now_ns, message, size);
	return 0;
}

static void set_person(struct guard_worker *w, enum worker_person person, uint64_t ttl_ns,
		       uint64_t now_ns)
{
	w->reasons.person = person;
	w->reasons.until_ns =
		!ttl_ns || ttl_ns > FOR_EVER - now_ns ? FOR_EVER : now_ns + ttl_ns;
	w->report.masked = 0;
}

static void end_person(struct guard_worker *w)
{
	w->reasons.person = PERSON_NONE;
	w->reasons.until_ns = FOR_EVER;
}

static void resume_now(struct guard_worker *w, uint64_t now_ns)
{
	if (!worker_is_held_active(w))
		end_person(w);
	if (worker_has_contention(w))
		w->demand.phase = PHASE_NONE;
	w->idle.unload = false;
	w->backoff.request = worker_is_out(w) ? RESUME_REQUESTED_NOW : RESUME_REQUESTED;
	w->backoff.resume_ns = 0;
	w->backoff.check_ns = now_ns;
}

static void request_apply(struct guard *g, struct guard_worker *w, enum guard_request what,
			  uint64_t ttl_ns)
{
	static const char *const rule[] = {
		[REQUEST_EVICT] = "evict command",       [REQUEST_RESUME] = "resume command",
		[REQUEST_HOLD_EVICTED] = "hold evicted", [REQUEST_HOLD_ACTIVE] = "hold active",
		[REQUEST_RELEASE] = "release command",   [REQUEST_RESUME_NOW] = "resume now",
	};
	char text[120] = "";

	if (request_evicts(w, what))
		rate_take(&g->rate, g->requester, g->now_ns);
	switch (what) {
	case REQUEST_EVICT:
		/* the hold "evicted" is stronger than this request and stays */
		if (w->reasons.person != PERSON_HOLD_EVICTED)
			set_person(w, PERSON_EVICT, ttl_ns, g->now_ns);
		break;
	case REQUEST_HOLD_EVICTED: set_person(w, PERSON_HOLD_EVICTED, ttl_ns, g->now_ns); break;
	case REQUEST_HOLD_ACTIVE: set_person(w, PERSON_HOLD_ACTIVE, ttl_ns, g->now_ns); break;
	case REQUEST_RELEASE: set_person(w, PERSON_NONE, 0, g->now_ns); break;
	case REQUEST_RESUME:
		if (w->reasons.person == PERSON_EVICT)
			end_person(w);
		w->idle.unload = false;
		if (w->backoff.request == RESUME_NOT_REQUESTED)
			w->backoff.request = RESUME_REQUESTED;
		w->backoff.check_ns = g->now_ns;
		break;
	case REQUEST_RESUME_NOW: resume_now(w, g->now_ns); break;
	}
	w->record_due = true;
	guard_update_reasons(g);
	if (worker_kept_out(w) && w->backoff.request == RESUME_REQUESTED_NOW)
		w->backoff.request = RESUME_REQUESTED; /* a reason forbids the return now */
	guard_mask_text(w->reasons.mask, ", ", text, sizeof(text));
	w->report.kind = DECISION_REQUESTED;
	guard_report_as(g, w, w->report.state, w->report.state, rule[what], "%s%s",
			text[0] ? "reasons: " : "", text);
	w->report.cause_at = (unsigned)strlen(w->report.evidence);
}

int guard_request(struct guard *g, int worker, enum guard_request what, uint64_t ttl_ns,
		  uint64_t now_ns, char *message, size_t size)
{
	unsigned first = worker < 0 ? 0 : (unsigned)worker;
	unsigned end = worker < 0 ? g->workers : first + 1;

	if (end > g->workers || what > REQUEST_RESUME_NOW) {
		text_fit(message, size, "there is no such worker");
		return -GW_E_NOENT;
	}
	for (unsigned i = first; i < end; i++) {
		int r = request_refused(g, &g->worker[i], what, ttl_ns, now_ns, message, size);

		if (r) {
			g->requester = -1;
			/* if the request is refused for one worker, no worker is changed */
			return r;
		}
	}
	guard_advance(g, now_ns);
	for (unsigned i = first; i < end; i++)
		request_apply(g, &g->worker[i], what, ttl_ns);
	g->requester = -1;
	if (g->scenes)
		guard_steps(g);
	if (size)
		message[0] = '\0';
	return 0;
}

/* Row 47 of docs/GUARD-MACHINE.md: the end of the service. No eviction begins any more. A
 * worker without a reason may return. A worker that only refuses new work is ordered to admit
 * it again, even if its GPU is hot. If an order is under way, the guard first waits for its
 * outcome. */

/* True if the worker has certainly unloaded nothing, even if it refuses new work. A worker that
 * reported that it left, or that is returning, may have unloaded. A worker that reported a
 * failure may have unloaded too (guard_may_resume_stuck()). */
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
	const bool closed = w->admission != ADMISSION_OPEN;

	if (w->intent.stage != STAGE_RUN) {
		const bool drain = w->intent.stage == STAGE_DRAIN;

		worker_set_running(g, w);
		guard_report(g, w, "service ends", "%s%s",
			     drain ? "it stays, because nothing was unloaded yet"
				   : "it still holds its memory",
			     closed ? "; it admits new work again" : "");
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
	if (worker_kept_out(w) || guard_is_blind_or_hung(g, w))
		return STEP_WAIT;
	return guard_try_return(g, w, stuck) == STEP_AGAIN ? STEP_ORDER : STEP_WAIT;
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

/* True if the worker needs an order, or an outcome, before the service may end. */
static bool is_unsettled(const struct guard_worker *w)
{
	switch (worker_state(w)) {
	case STATE_ACTIVE:
	case STATE_SUSPECT: return w->admission != ADMISSION_OPEN;
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

	guard_advance(g, now_ns);
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
