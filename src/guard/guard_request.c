/* guard_request: what people ask: holds with an end, eviction and return by hand.
 *
 * The two holds exclude each other, and a hold is ended by release or its time, not by another wish. */
#include "guard_internal.h"

#include <string.h>

/* Would it have to leave? */
static bool moves(const struct guard_worker *w, enum guard_request what)
{
	return (what == REQUEST_EVICT || what == REQUEST_HOLD_EVICTED) && !guard_is_out(w);
}

static int refuse(const struct guard *g, const struct guard_worker *w, enum guard_request what,
		  uint64_t ttl_ns, uint64_t now_ns, char *message, size_t size)
{
	bool hold = what == REQUEST_HOLD_ACTIVE || what == REQUEST_HOLD_EVICTED;
	const char *name = w->policy->name;

	if (hold && !ttl_ns) {
		text_fit(message, size, "%s: a hold needs a time, or for ever", name);
		return -GW_E_ARG;
	}
	if (w->hold == HOLD_ACTIVE && (what == REQUEST_HOLD_EVICTED || what == REQUEST_EVICT)) {
		text_fit(message, size, "%s is held active: release it first", name);
		return -GW_E_STATE;
	}
	if (w->hold == HOLD_EVICTED &&
	    (what == REQUEST_HOLD_ACTIVE || what == REQUEST_RESUME)) {
		text_fit(message, size, "%s is held evicted: release it first", name);
		return -GW_E_STATE;
	}
	if (moves(w, what))
		return guard_requester_may(g, now_ns, message, size);
	return 0;
}

static void keep(struct guard_worker *w, enum guard_hold hold, bool manual, uint64_t ttl_ns,
		 uint64_t now_ns)
{
	w->hold = hold;
	w->manual = manual;
	w->until_ns = !ttl_ns || ttl_ns > FOR_EVER - now_ns ? FOR_EVER : now_ns + ttl_ns;
	w->masked = 0;
}

static void resume_now(struct guard_worker *w, uint64_t now_ns)
{
	if (w->hold != HOLD_ACTIVE) {
		w->hold = HOLD_NONE;
		w->until_ns = FOR_EVER;
	}
	w->manual = w->contention = w->idle = false;
	w->override = guard_is_out(w);
	w->asked = true;
	w->resume_after_ns = 0;
	w->check_ns = now_ns;
}

static void apply(struct guard *g, struct guard_worker *w, enum guard_request what,
		  uint64_t ttl_ns)
{
	static const char *const rule[] = {
		[REQUEST_EVICT] = "evict command",       [REQUEST_RESUME] = "resume command",
		[REQUEST_HOLD_EVICTED] = "hold evicted", [REQUEST_HOLD_ACTIVE] = "hold active",
		[REQUEST_RELEASE] = "release command",   [REQUEST_RESUME_NOW] = "resume now",
	};
	char text[120] = "";

	if (moves(w, what))
		rate_take(&g->rate, g->asker, g->now_ns);
	switch (what) {
	case REQUEST_EVICT:
		if (w->hold != HOLD_EVICTED) /* that is more than this */
			keep(w, HOLD_NONE, true, ttl_ns, g->now_ns);
		break;
	case REQUEST_HOLD_EVICTED: keep(w, HOLD_EVICTED, false, ttl_ns, g->now_ns); break;
	case REQUEST_HOLD_ACTIVE: keep(w, HOLD_ACTIVE, false, ttl_ns, g->now_ns); break;
	case REQUEST_RELEASE: keep(w, HOLD_NONE, false, 0, g->now_ns); break;
	case REQUEST_RESUME:
		if (w->manual)
			w->until_ns = FOR_EVER;
		w->manual = w->idle = false;
		w->asked = true;
		w->check_ns = g->now_ns;
		break;
	case REQUEST_RESUME_NOW: resume_now(w, g->now_ns); break;
	}
	w->dirty = true;
	guard_update_reasons(g);
	if (guard_effective(w))
		w->override = false; /* it cannot be now, and later is another matter */
	guard_mask_text(w->mask, ", ", text, sizeof(text));
	guard_say(g, w, w->state, rule[what], "%s%s", text[0] ? "what speaks against it: " : "",
		  text);
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
		int r = refuse(g, &g->worker[i], what, ttl_ns, now_ns, message, size);

		if (r) {
			g->asker = -1;
			return r; /* all or none */
		}
	}
	g->now_ns = now_ns;
	for (unsigned i = first; i < end; i++)
		apply(g, &g->worker[i], what, ttl_ns);
	g->asker = -1;
	if (g->looked)
		guard_steps(g);
	if (size)
		message[0] = '\0';
	return 0;
}
