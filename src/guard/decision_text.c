/* guard_say: states, reasons and decisions in words.
 *
 * Decisions wait in a ring; when nobody fetches them the oldest are lost, the machine goes on. */
#include "guard_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *guard_reason_name(unsigned r)
{
	static const char *const names[GUARD_REASONS] = {
#define R(symbol, name, held) [REASON_##symbol] = #name,
#include "reason.def"
	};

	return r < GUARD_REASONS ? names[r] : "?";
}

const char *guard_state_name(unsigned s)
{
	static const char *const name[GUARD_STATES] = {
		[STATE_RECONCILE] = "reconcile", [STATE_ACTIVE] = "active",
		[STATE_SUSPECT] = "suspect",     [STATE_DRAIN] = "drain",
		[STATE_EVICT] = "evict",         [STATE_VERIFY] = "verify",
		[STATE_EVICTED] = "evicted",     [STATE_QUIET] = "quiet",
		[STATE_PRECHECK] = "precheck",   [STATE_RESUME] = "resume",
		[STATE_VERIFY_UP] = "verify-up", [STATE_STUCK] = "stuck",
		[STATE_ABSENT] = "absent",
	};

	return s < GUARD_STATES ? name[s] : "?";
}

const char *guard_dry_name(unsigned d)
{
	static const char *const name[GUARD_DRIES] = {
		[DRY_MODE] = "mode",
		[DRY_FOREIGN] = "another-service",
		[DRY_SIMULATED] = "simulated",
	};

	return d < GUARD_DRIES ? name[d] : NULL;
}

const char *guard_result_name(unsigned r)
{
	static const char *const name[GUARD_RESULTS] = {
		[RESULT_NONE] = "none",           [RESULT_FREED] = "freed",
		[RESULT_NOT_FREED] = "not-freed", [RESULT_FAILED] = "failed",
		[RESULT_WITHHELD] = "withheld",
	};

	return r < GUARD_RESULTS ? name[r] : "?";
}

const char *guard_block_name(unsigned b)
{
	static const char *const name[GUARD_BLOCKS] = {
		[BLOCK_BACKOFF] = "backoff",   [BLOCK_ROOM] = "room",
		[BLOCK_UNKNOWN] = "unknown",   [BLOCK_THERMAL] = "thermal",
		[BLOCK_HOST] = "host-memory",  [BLOCK_GONE] = "gone",
		[BLOCK_DEMAND] = "demand",     [BLOCK_TURN] = "turn",
		[BLOCK_BUSY] = "busy",         [BLOCK_NEVER] = "never",
		[BLOCK_ENDPOINT] = "endpoint",
	};

	return b < GUARD_BLOCKS ? name[b] : "?";
}

void guard_mask_text(uint32_t mask, const char *between, char *out, size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!(mask & BIT(r)) || len + 16 > size)
			continue;
		text_fit(out + len, size - len, "%s%s", len ? between : "",
			 guard_reason_name(r));
		len += strlen(out + len);
	}
}

/* Nobody needs it any more, and it waits whether that stays so: who was there is the past. */
static void past_demand(struct guard_worker *w, const char **ret_rule,
			const char **ret_evidence)
{
	*ret_rule = "quiet time";
	text_fit(w->gone, sizeof(w->gone), "nobody needs it now; before: %s",
		 w->evidence[REASON_CONTENTION]);
	*ret_evidence = w->gone;
}

/* The first reason that is not masked, and contention that is over after all others.  Rule and evidence
 * live as long as the worker. */
void guard_cause(struct guard_worker *w, const char **ret_rule, const char **ret_evidence)
{
	uint32_t mask = guard_effective(w);
	bool past = mask & BIT(REASON_CONTENTION) && !w->against;

	*ret_rule = "no reason left";
	*ret_evidence = "";
	if (past && mask == BIT(REASON_CONTENTION)) {
		past_demand(w, ret_rule, ret_evidence);
		return;
	}
	if (past)
		mask &= ~BIT(REASON_CONTENTION);
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!(mask & BIT(r)))
			continue;
		*ret_rule =
			r == REASON_CONTENTION && w->cause[0] ? w->cause : guard_reason_name(r);
		*ret_evidence = w->evidence[r];
		return;
	}
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

uint64_t guard_next_change(const struct guard *g, const struct guard_worker *w)
{
	uint32_t mask = guard_effective(w);

	switch (w->state) {
	case STATE_SUSPECT:
		return w->damped ? w->deadline_ns : w->against_ns + w->knobs.debounce_ns;
	case STATE_DRAIN:
	case STATE_VERIFY:
	case STATE_QUIET:
	case STATE_VERIFY_UP: return w->deadline_ns;
	case STATE_EVICT: return w->budget_ns;
	case STATE_STUCK: return mask ? w->retry_ns : later(w->check_ns, w->resume_after_ns);
	case STATE_EVICTED:
	case STATE_ABSENT:
		if (!mask)
			return later(w->check_ns, w->resume_after_ns);
		if (mask == BIT(REASON_MANUAL) && w->until_ns != FOR_EVER)
			return w->until_ns;
		return 0;
	case STATE_ACTIVE:
		if (w->bytes && w->idle_after_ns != UINT64_MAX && !w->throttled)
			return w->idle_ns + w->idle_after_ns;
		return 0;
	case STATE_RESUME: return w->pending ? w->order.deadline_ns : g->now_ns;
	default: return 0;
	}
}

/* The GPU that it is about; -1: none that is seen. */
static int place(const struct guard *g, const struct guard_worker *w)
{
	uint64_t set = w->home ? w->home : w->gpus;

	if (w->against && g->gpu[w->where].now)
		return w->where;
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(set, i) && g->gpu[i].now)
			return (int)i;
	return -1;
}

static void say_where(const struct guard *g, const struct guard_worker *w,
		      struct guard_decision *d)
{
	int slot = place(g, w);
	const struct guard_gpu *u = slot < 0 ? NULL : &g->gpu[slot];

	d->temperature_c = (double)NAN;
	if (!u)
		return;
	text_fit(d->gpu, sizeof(d->gpu), "%s", u->uuid);
	d->index = u->now->index;
	d->temperature_c = u->now->temperature_c;
	for (unsigned i = 0; i < g->scene.processes; i++)
		d->others += (int)g->scene.process[i].gpu == u->at &&
			     g->verdict[i].class != CLASS_SELF &&
			     g->verdict[i].class != CLASS_WORKER;
}

/* What ended is told once. */
static void say_end(struct guard_worker *w, struct guard_decision *d)
{
	d->result = w->ended;
	d->level = w->ended_level;
	d->freed_bytes = w->ended_bytes;
	d->freed_ns = w->ended == RESULT_FREED ? w->freed_ns : 0;
	d->blocked = w->ended_blocked;
	d->astray = w->astray;
	w->ended = RESULT_NONE;
	w->ended_level = 0;
	w->astray = false;
	w->ended_bytes = w->ended_blocked = 0;
}

void guard_say(struct guard *g, struct guard_worker *w, enum guard_state from, const char *rule,
	       const char *fmt, ...)
{
	unsigned at = (g->first + g->waiting) % GUARD_DECISIONS;
	struct guard_decision *d = &g->decision[at];
	va_list ap;

	if (g->waiting == GUARD_DECISIONS)
		g->first = (g->first + 1) % GUARD_DECISIONS;
	else
		g->waiting++;
	guard_note_since(g, w);
	/* All of it: what nobody wrote is compared, too, when two runs are. */
	memset(d, 0, sizeof(*d));
	d->mono_ns = g->now_ns;
	d->worker = (unsigned)(w - g->worker);
	d->from = from;
	d->to = w->state;
	d->mask = w->mask;
	d->dry = w->dry || w->ended == RESULT_WITHHELD;
	d->next_ns = guard_next_change(g, w);
	say_where(g, w, d);
	say_end(w, d);
	text_fit(d->rule, sizeof(d->rule), "%s", rule);
	va_start(ap, fmt);
	(void)vsnprintf(d->evidence, sizeof(d->evidence), fmt, ap);
	va_end(ap);
	text_fit(w->why, sizeof(w->why), "%s%s%s", d->rule, d->evidence[0] ? ": " : "",
		 d->evidence);
}
