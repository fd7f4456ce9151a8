/* guard_step: the machine.
 *
 * Each state asks the facts what is next; numbers of rows are those of guard.md §7.  A step is repeated
 * until nothing moves, so that what follows from one look is decided in that look. */
#include "guard_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STEPS      16 /* more than any chain of states is long */
#define DRAIN_NS   (250 * NS_PER_MS)
#define LEVEL_STOP 4

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t quiet_ns(const struct guard_worker *w)
{
	double ns = (double)w->knobs.quiet_ns * w->backoff;

	return ns < (double)LONGEST_NS ? (uint64_t)ns : LONGEST_NS;
}

static void latch(struct guard_worker *w, bool on)
{
	w->dirty = w->dirty || (w->evicted && w->contention != on);
	w->contention = on;
	w->mask &= ~BIT(REASON_CONTENTION);
	if (!on)
		return;
	w->mask |= BIT(REASON_CONTENTION);
	demand_text(w->evidence[REASON_CONTENTION], sizeof(w->evidence[0]), "%s",
		    w->demand.evidence);
}

static bool sure(const struct guard *g, const struct guard_worker *w)
{
	return w->against &&
	       demand_sure(&w->demand, &w->knobs, g->now_ns - w->against_ns, w->against_looks);
}

static bool calm(const struct guard *g, const struct guard_worker *w)
{
	return !w->against && w->calm_looks && g->now_ns - w->calm_ns >= quiet_ns(w);
}

/* Were the facts seen after the last order was answered, and is none under way? */
static bool fresh(const struct guard *g, const struct guard_worker *w)
{
	return !w->pending && g->looks > w->answered;
}

static bool lazy(const struct guard_worker *w)
{
	return w->policy->resume == RESUME_LAZY;
}

/* ---- entering states ---- */

static void stamp_gpus(struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i))
			g->gpu[i].acted_ns = g->now_ns;
}

static void enter_active(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	if (from == STATE_SUSPECT)
		return;
	if (from == STATE_VERIFY_UP) {
		w->resident_until_ns = g->now_ns + w->knobs.resident_ns;
		w->resumes++;
		w->replaced = false; /* by us */
		stamp_gpus(g, w);
	}
	w->evicted = w->returning = w->override = w->asked = w->damped = w->storm = false;
	w->put_away_count = 0;
	w->resume_backoff_ns = 0;
	w->blocked = 0;
	w->retry_ns = 0;
	w->need_bytes = w->bytes;
	memcpy(w->need_on, w->held, sizeof(w->need_on));
	w->dirty = true;
}

/* What it gave up by itself is no longer its need. */
static void forget_need(struct guard_worker *w)
{
	if (w->bytes >= w->need_bytes / 4)
		return;
	w->need_bytes = w->bytes;
	memcpy(w->need_on, w->held, sizeof(w->need_on));
}

static void enter_drain(struct guard *g, struct guard_worker *w)
{
	bool hot = w->mask & BIT(REASON_THERMAL);

	if (!w->returning)
		forget_need(w);
	guard_begin_eviction(g, w);
	w->level = guard_level_first(w);
	w->deadline_ns = g->now_ns + (hot ? 0 : w->knobs.drain_ns);
	w->evicted = true;
	w->drained = w->damped = w->masked = false;
	w->dirty = true;
}

/* A checkpoint writes 1 GB/s: a nanosecond a byte. */
static uint64_t evict_ns(const struct guard_worker *w)
{
	return CALL_NS + (w->level == 3 ? w->base_bytes : 0);
}

static void enter_evict(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	if (from == STATE_EVICTED || from == STATE_QUIET || from == STATE_VERIFY_UP) {
		guard_begin_eviction(g, w);
		w->level = guard_level_first(w);
	}
	if (from != STATE_VERIFY && from != STATE_EVICT)
		w->budget_ns = g->now_ns + w->knobs.budget_ns + evict_ns(w) - CALL_NS;
	w->tries = 0;
	w->dirty = true;
}

/* Three evictions for contention in a quarter of an hour: whoever comes and goes pays with patience. */
static void count_flap(struct guard *g, struct guard_worker *w)
{
	unsigned lately = 1;

	for (unsigned i = 0; i < GUARD_FLAPS && i < w->flaps; i++)
		if (g->now_ns - w->flap[i] <= FLAP_NS)
			lately++;
	w->flap[w->flaps++ % GUARD_FLAPS] = g->now_ns;
	if (lately == 1)
		w->backoff = 1;
	if (lately < 3 || quiet_ns(w) == LONGEST_NS)
		return;
	w->backoff *= 2;
	guard_say(g, w, w->state, "flapping",
		  "%u evictions in 15 min: quiet period is now %llu s", lately,
		  (unsigned long long)(quiet_ns(w) / NS_PER_S));
}

static void enter_evicted(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	w->check_ns = g->now_ns;
	if (from != STATE_VERIFY && from != STATE_STUCK)
		return;
	w->residue_bytes = w->bytes;
	w->freed_ns = g->now_ns - w->begun_ns;
	w->dirty = true;
	w->returning = false;
	w->ajar = w->ajar || w->replaced; /* some unload by starting again */
	w->replaced = false;
	stamp_gpus(g, w);
	if (w->dry)
		w->would_evict++;
	else
		w->evictions++;
}

static void enter_absent(struct guard_worker *w)
{
	w->evicted = w->closed = w->virtual_out = w->returning = w->storm = false;
	w->replaced = w->ajar = false;
	w->put_away_count = 0;
	w->residue_bytes = 0;
	w->dirty = true;
}

static void enter(struct guard *g, struct guard_worker *w, enum guard_state from)
{
	switch (w->state) {
	case STATE_ACTIVE: enter_active(g, w, from); break;
	case STATE_DRAIN: enter_drain(g, w); break;
	case STATE_EVICT: enter_evict(g, w, from); break;
	case STATE_VERIFY: w->deadline_ns = g->now_ns + w->knobs.verify_ns; break;
	case STATE_EVICTED: enter_evicted(g, w, from); break;
	case STATE_QUIET: w->deadline_ns = w->calm_ns + quiet_ns(w); break;
	case STATE_RESUME:
		w->starting = !w->present;
		w->returning = true;
		w->dirty = true;
		break;
	case STATE_VERIFY_UP: w->deadline_ns = g->now_ns + UP_NS; break;
	case STATE_STUCK: w->retry_ns = g->now_ns + STUCK_NS; break;
	case STATE_ABSENT: enter_absent(w); break;
	default: break;
	}
}

__attribute__((format(printf, 5, 6))) static void move(struct guard *g, struct guard_worker *w,
						       enum guard_state to, const char *rule,
						       const char *fmt, ...)
{
	enum guard_state from = w->state;
	char text[240];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	w->state = to;
	w->since_ns = g->now_ns;
	enter(g, w, from);
	guard_say(g, w, from, rule, "%s", text);
	if (to == STATE_EVICTED && (from == STATE_VERIFY || from == STATE_STUCK) &&
	    w->contention && !w->storm)
		count_flap(g, w);
}

static void leave(struct guard *g, struct guard_worker *w)
{
	const char *rule, *evidence;

	guard_cause(w, &rule, &evidence);
	move(g, w, STATE_DRAIN, rule, "%s", evidence);
}

/* ---- on the GPU: rows 8 to 13 ---- */

static void throttle(struct guard *g, struct guard_worker *w)
{
	bool hot = false, cool = true;

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];

		if (!has(w->gpus, i) || !u->now)
			continue;
		hot = hot || u->now->margin_c <= THROTTLE_C;
		cool = cool && u->cool_ns && g->now_ns - u->cool_ns >= COOL_NS;
	}
	if (hot == w->throttled || (w->throttled && !cool))
		return;
	w->throttled = hot;
	guard_say(g, w, w->state, "throttled",
		  hot ? "thermal margin is 5 C or less: no new work"
		      : "cool again for 30 s: work may come");
}

/* Admission follows from what should be. */
static void admission(struct guard *g, struct guard_worker *w)
{
	if (w->pending || g->now_ns < w->retry_ns || w->throttled == w->closed)
		return;
	guard_issue(g, w, w->throttled ? ORDER_CLOSE : ORDER_OPEN, g->now_ns + CALL_NS);
}

/* 0: nothing keeps it from being evicted for a demand. */
static uint64_t damped_until(const struct guard *g, const struct guard_worker *w)
{
	uint64_t until = w->resident_until_ns;

	if (w->demand.urgent)
		return 0;
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && g->gpu[i].acted_ns &&
		    g->gpu[i].acted_ns + w->knobs.post_ns > until)
			until = g->gpu[i].acted_ns + w->knobs.post_ns;
	return until > g->now_ns ? until : 0;
}

static bool no_demand(struct guard *g, struct guard_worker *w)
{
	if (w->calm_looks < CALM_LOOKS)
		return false;
	latch(w, false);
	w->masked = false;
	if (w->state == STATE_ACTIVE)
		return false;
	w->damped = false;
	move(g, w, STATE_ACTIVE, "near miss", "the demand went away: %s", w->demand.evidence);
	return true;
}

static bool masked(struct guard *g, struct guard_worker *w)
{
	if (w->hold != HOLD_ACTIVE)
		return false;
	latch(w, true);
	if (!w->masked)
		guard_say(g, w, w->state, "hold active", "masks contention: %s",
			  w->demand.evidence);
	w->masked = true;
	return true;
}

static bool step_running(struct guard *g, struct guard_worker *w)
{
	throttle(g, w);
	if (guard_effective(w) & ~MASK_SOFT) {
		leave(g, w);
		return true;
	}
	admission(g, w);
	if (!w->against)
		return no_demand(g, w);
	if (w->state == STATE_ACTIVE) {
		move(g, w, STATE_SUSPECT, w->demand.rule, "%s", w->demand.evidence);
		return true;
	}
	if (!sure(g, w) || masked(g, w))
		return false;
	if (damped_until(g, w)) {
		w->deadline_ns = damped_until(g, w);
		if (!w->damped) {
			w->damped = true;
			guard_say(g, w, w->state, "damped", "%s", w->demand.evidence);
		}
		return false;
	}
	latch(w, true);
	leave(g, w);
	return true;
}

/* ---- leaving: rows 14 to 24 ---- */

static bool step_drain(struct guard *g, struct guard_worker *w)
{
	if (w->bytes > w->base_bytes)
		w->base_bytes = w->bytes;
	if (guard_effective(w) == BIT(REASON_CONTENTION) && w->calm_looks >= CALM_LOOKS)
		latch(w, false);
	if (!guard_effective(w)) {
		move(g, w, w->returning ? STATE_VERIFY_UP : STATE_ACTIVE, "cause gone",
		     "before anything was unloaded");
		return true;
	}
	if (w->pending)
		return false;
	if (w->drained || g->now_ns >= w->deadline_ns) {
		move(g, w, STATE_EVICT, w->drained ? "drained" : "drain timeout", "level %u",
		     w->level);
		return true;
	}
	if (!w->closed || w->ajar)
		guard_issue(g, w, ORDER_CLOSE, w->deadline_ns);
	else if (g->now_ns >= w->retry_ns)
		guard_issue(g, w, ORDER_DRAIN, w->deadline_ns);
	return false;
}

static void stuck(struct guard *g, struct guard_worker *w, const char *why)
{
	move(g, w, STATE_STUCK, "stuck", "%s; %llu MiB remain", why,
	     (unsigned long long)(w->bytes / MIB));
	if (!w->pending)
		guard_issue(g, w, ORDER_NOTIFY, g->now_ns + CALL_NS);
}

/* The next level, if there is one and there is time. */
static void escalate(struct guard *g, struct guard_worker *w, const char *why)
{
	unsigned level = guard_level_next(w, w->level);

	if (!level || g->now_ns >= w->budget_ns) {
		stuck(g, w, level ? "the time for it is spent" : why);
		return;
	}
	w->level = level;
	move(g, w, STATE_EVICT, "next level", "%s: level %u", why, level);
}

static bool step_evict(struct guard *g, struct guard_worker *w)
{
	if (w->bytes > w->base_bytes)
		w->base_bytes = w->bytes;
	if (w->pending || g->now_ns < w->retry_ns)
		return false;
	if (w->tries && w->base_bytes && guard_freed(g, w)) {
		move(g, w, STATE_VERIFY, "freed", "though the worker did not say so");
		return true;
	}
	if (g->now_ns >= w->budget_ns) {
		stuck(g, w, "the time for it is spent");
		return true;
	}
	if (w->storm && !w->closed) {
		guard_issue(g, w, ORDER_CLOSE, g->now_ns + CALL_NS);
		return false;
	}
	guard_issue(g, w, ORDER_EVICT, g->now_ns + evict_ns(w));
	return false;
}

static bool step_verify(struct guard *g, struct guard_worker *w)
{
	if (guard_freed(g, w)) {
		uint64_t freed = w->base_bytes - w->bytes;

		move(g, w, STATE_EVICTED, "freed", "%llu MiB%s in %.1f s, %llu MiB remain",
		     (unsigned long long)(freed / MIB), w->delta ? " (device-delta)" : "",
		     (double)(g->now_ns - w->begun_ns) / (double)NS_PER_S,
		     (unsigned long long)(w->bytes / MIB));
		return true;
	}
	if (g->now_ns < w->deadline_ns)
		return false;
	escalate(g, w, "the worker said done, the memory is not free");
	return true;
}

static bool step_stuck(struct guard *g, struct guard_worker *w)
{
	if (!fresh(g, w))
		return false;
	if (guard_freed(g, w)) {
		move(g, w, STATE_EVICTED, "freed", "after it was stuck, %llu MiB remain",
		     (unsigned long long)(w->bytes / MIB));
		return true;
	}
	if (w->contention && calm(g, w))
		latch(w, false);
	if (!guard_effective(w)) {
		move(g, w, STATE_VERIFY_UP, "no reason left", "it probably never left");
		return true;
	}
	if (w->pending || g->now_ns < w->retry_ns)
		return false;
	w->retry_ns = g->now_ns + STUCK_NS;
	guard_issue(g, w, ORDER_EVICT, g->now_ns + evict_ns(w));
	return false;
}

/* ---- out: rows 25 to 32 ---- */

static bool storm(struct guard *g, struct guard_worker *w)
{
	const unsigned n = sizeof(w->reload) / sizeof(w->reload[0]);
	unsigned lately = 0;

	w->reload[w->reloads++ % n] = g->now_ns;
	for (unsigned i = 0; i < n && i < w->reloads; i++)
		if (g->now_ns - w->reload[i] <= RELOAD_NS)
			lately++;
	return lately == n;
}

static bool came_back(const struct guard_worker *w)
{
	uint64_t least_growth =
		w->need_bytes / 10 > SLACK_BYTES ? w->need_bytes / 10 : SLACK_BYTES;

	return w->bytes > w->residue_bytes + least_growth;
}

static void reloaded(struct guard *g, struct guard_worker *w)
{
	unsigned long long mib = w->bytes / MIB;
	unsigned stop = guard_level_first(w);

	if (!guard_effective(w)) {
		move(g, w, STATE_VERIFY_UP, "came back by itself", "%llu MiB", mib);
		return;
	}
	w->storm = storm(g, w);
	move(g, w, STATE_EVICT, w->storm ? "reload-storm" : "reloaded while evicted",
	     "%llu MiB, of a need of %llu MiB", mib, (unsigned long long)(w->need_bytes / MIB));
	while (w->storm && stop && stop < LEVEL_STOP)
		stop = guard_level_next(w, stop);
	if (w->storm && stop == LEVEL_STOP)
		w->level = stop;
	else if (w->storm)
		w->closed = false; /* closed again, and for certain */
}

enum item {
	ITEM_BACKOFF,
	ITEM_ROOM,
	ITEM_UNKNOWN,
	ITEM_THERMAL,
	ITEM_HOST,
	ITEM_GONE,
	ITEM_DEMAND,
	ITEM_TURN,
	ITEM_BUSY,
	ITEM_NEVER,
	ITEMS
};

static bool waits_too(const struct guard *g, const struct guard_worker *o)
{
	return (o->state == STATE_EVICTED || o->state == STATE_QUIET) && !guard_effective(o) &&
	       g->now_ns >= o->resume_after_ns &&
	       (o->asked || o->policy->resume != RESUME_NEVER);
}

/* One at a time, highest priority first: of one's neighbours on a GPU. */
static bool not_its_turn(const struct guard *g, const struct guard_worker *w)
{
	bool after = false;

	for (unsigned i = 0; i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[g->order[i]];

		if (o == w) {
			after = true;
			continue;
		}
		if (!(o->gpus & w->gpus))
			continue;
		if (o->state == STATE_RESUME || o->state == STATE_VERIFY_UP)
			return true;
		if (after && waits_too(g, o))
			return true;
	}
	return false;
}

static uint32_t check_gpus(const struct guard *g, const struct guard_worker *w, char *out,
			   size_t size)
{
	uint32_t bad = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];
		uint64_t need = w->need_on[i] > w->held[i] ? w->need_on[i] - w->held[i] : 0;

		if (!has(w->gpus, i))
			continue;
		if (u->now && u->now->margin_c <= 2.0 + CLEAR_C)
			bad |= BIT(ITEM_THERMAL);
		if (!need)
			continue;
		if (!u->now || !u->now->memory_known) {
			bad |= BIT(ITEM_UNKNOWN);
			continue;
		}
		need += demand_headroom(&w->knobs, u->now->total_bytes) + u->promised;
		if (u->free_bytes < need) {
			bad |= BIT(ITEM_ROOM);
			demand_text(out, size,
				    "needs %llu MiB with headroom, %llu MiB are free",
				    (unsigned long long)(need / MIB),
				    (unsigned long long)(u->free_bytes / MIB));
		}
	}
	return bad;
}

static uint32_t precheck(const struct guard *g, const struct guard_worker *w, char *out,
			 size_t size)
{
	static const char *const text[ITEMS] = {
		[ITEM_BACKOFF] = "waits after a resume that failed",
		[ITEM_ROOM] = "room",
		[ITEM_UNKNOWN] = "free memory is not known",
		[ITEM_THERMAL] = "GPU is warm",
		[ITEM_HOST] = "host memory",
		[ITEM_GONE] = "worker does not run",
		[ITEM_DEMAND] = "demand",
		[ITEM_TURN] = "another comes first",
		[ITEM_BUSY] = "an order is under way",
		[ITEM_NEVER] = "resume = never",
	};
	const uint64_t host = g->scene.host_free_bytes;
	bool demand = w->against && !w->override && w->hold != HOLD_ACTIVE;
	char room[100] = "";
	uint32_t bad = check_gpus(g, w, room, sizeof(room));
	bool gone = !w->present && !w->evicted && !w->policy->managed;
	bool never = w->policy->resume == RESUME_NEVER && !w->asked;
	size_t len = 0;

	bad |= (g->now_ns < w->resume_after_ns ? BIT(ITEM_BACKOFF) : 0) |
	       (host && host < STAGING ? BIT(ITEM_HOST) : 0) | (gone ? BIT(ITEM_GONE) : 0) |
	       (demand ? BIT(ITEM_DEMAND) : 0) | (not_its_turn(g, w) ? BIT(ITEM_TURN) : 0) |
	       (w->pending ? BIT(ITEM_BUSY) : 0) | (never ? BIT(ITEM_NEVER) : 0);
	out[0] = '\0';
	for (unsigned i = 0; i < ITEMS; i++) {
		if (!(bad & BIT(i)))
			continue;
		demand_text(out + len, size - len, "%s%s", len ? "; " : "",
			    i == ITEM_ROOM ? room : text[i]);
		len += strlen(out + len);
	}
	return bad;
}

/* Rows 31 and 32; asked again every 5 s, told again when something else fails. */
static bool try_resume(struct guard *g, struct guard_worker *w)
{
	char why[220];
	uint32_t bad;

	if (w->state != STATE_QUIET && g->now_ns < w->check_ns)
		return false;
	bad = precheck(g, w, why, sizeof(why));
	w->check_ns = g->now_ns +
		      (bad == BIT(ITEM_TURN) || bad == BIT(ITEM_BUSY) ? NS_PER_S : RECHECK_NS);
	if (bad & ~(BIT(ITEM_TURN) | BIT(ITEM_BUSY)))
		w->override = false;
	if (bad && bad == w->blocked && w->state != STATE_QUIET)
		return false;

	enum guard_state back = w->state == STATE_ABSENT ? STATE_ABSENT : STATE_EVICTED;
	uint64_t check_ns = w->check_ns;

	move(g, w, STATE_PRECHECK, "no reason left", "may it come back?");
	w->blocked = bad;
	if (!bad) {
		move(g, w, STATE_RESUME, "precheck", "all passed");
		return true;
	}
	w->state = back;
	w->since_ns = g->now_ns;
	w->check_ns = check_ns;
	guard_say(g, w, STATE_PRECHECK, "resume_blocked", "%s", why);
	return false;
}

static bool step_out(struct guard *g, struct guard_worker *w)
{
	bool only;

	if (w->bytes < w->residue_bytes)
		w->residue_bytes = w->bytes;
	if (came_back(w)) {
		reloaded(g, w);
		return true;
	}
	if (!w->contention && !w->override && w->hold != HOLD_ACTIVE && sure(g, w)) {
		latch(w, true);
		guard_say(g, w, w->state, w->demand.rule, "%s", w->demand.evidence);
	}
	if (w->contention && calm(g, w))
		latch(w, false);
	if (!guard_effective(w))
		return try_resume(g, w);
	/* What had to be quick left it open, or nobody knows. */
	if ((!w->closed || w->ajar) && !w->pending && w->present)
		guard_issue(g, w, ORDER_CLOSE, g->now_ns + CALL_NS);
	only = guard_effective(w) == BIT(REASON_CONTENTION);
	if (w->state == STATE_EVICTED && only && !w->against && w->calm_looks) {
		move(g, w, STATE_QUIET, "no demand", "for %llu s before it may come back",
		     (unsigned long long)(quiet_ns(w) / NS_PER_S));
		return false;
	}
	if (w->state == STATE_QUIET && (w->against || !only)) {
		const char *rule, *evidence;

		if (!only)
			w->calm_ns = g->now_ns;
		guard_cause(w, &rule, &evidence);
		move(g, w, STATE_EVICTED, w->against ? w->demand.rule : rule, "%s",
		     w->against ? w->demand.evidence : evidence);
	}
	return false;
}

/* ---- the way back: rows 33 to 37 ---- */

static void back_off(struct guard *g, struct guard_worker *w)
{
	w->resume_backoff_ns =
		w->resume_backoff_ns ? 2 * w->resume_backoff_ns : 2 * w->knobs.quiet_ns;
	w->resume_backoff_ns = least(w->resume_backoff_ns, LONGEST_NS);
	w->resume_after_ns = g->now_ns + w->resume_backoff_ns;
}

static bool turned_back(struct guard *g, struct guard_worker *w)
{
	bool pressing =
		sure(g, w) && w->demand.urgent && !w->override && w->hold != HOLD_ACTIVE;

	if (pressing)
		latch(w, true);
	if (!pressing && !guard_effective(w))
		return false;
	leave(g, w);
	return true;
}

static bool step_resume(struct guard *g, struct guard_worker *w)
{
	if (turned_back(g, w))
		return true;
	if (!w->pending)
		guard_issue(g, w, lazy(w) ? ORDER_OPEN : ORDER_RESUME, g->now_ns + UP_NS);
	return false;
}

static bool step_verify_up(struct guard *g, struct guard_worker *w)
{
	if (turned_back(g, w))
		return true;
	if (!fresh(g, w))
		return false;
	if (lazy(w) || w->bytes / 3 >= w->need_bytes / 4) {
		move(g, w, STATE_ACTIVE, "is back", "%llu MiB",
		     (unsigned long long)(w->bytes / MIB));
		return true;
	}
	if (g->now_ns < w->deadline_ns)
		return false;
	back_off(g, w);
	move(g, w, STATE_EVICT, "resume failed", "%llu of %llu MiB after 120 s",
	     (unsigned long long)(w->bytes / MIB), (unsigned long long)(w->need_bytes / MIB));
	return true;
}

/* ---- here or not: rows 2 to 7, 38 to 40 ---- */

/* Is it gone because that is how it was evicted? */
static bool gone_by_us(const struct guard_worker *w)
{
	const enum policy_kind k = w->policy->kind;

	return w->evicted && (w->level == LEVEL_STOP || k == WORKER_SYSTEMD ||
			      k == WORKER_CONTAINER || k == WORKER_EXEC);
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
			if (g->scene.root[i].worker == (unsigned)(w - g->worker) &&
			    g->scene.root[i].pid == w->put_away[k].pid &&
			    g->scene.root[i].start_ticks != w->put_away[k].start_ticks)
				return true;
	return false;
}

static bool step_reconcile(struct guard *g, struct guard_worker *w)
{
	bool resident = w->evicted ? w->bytes > w->need_bytes / 4 : w->bytes > 0;

	if (!fresh(g, w))
		return false;
	if (gone(w) || w->replaced || exchanged(g, w)) {
		move(g, w, STATE_ABSENT, "not there", "no process of it was found");
		return true;
	}
	if (!w->present && w->evicted)
		resident = false;
	if (resident && w->contention && !w->against)
		latch(w, false);
	if (resident && guard_effective(w))
		leave(g, w);
	else if (resident || (!w->evicted && !guard_effective(w)))
		move(g, w, STATE_ACTIVE, "as found", "it holds %llu MiB",
		     (unsigned long long)(w->bytes / MIB));
	else {
		w->residue_bytes = w->bytes;
		w->evicted = w->ajar = true;
		w->dirty = true;
		move(g, w, STATE_EVICTED, "as found", "it is out, level %u", w->level);
	}
	return true;
}

static bool step_absent(struct guard *g, struct guard_worker *w)
{
	if (w->contention && calm(g, w))
		latch(w, false);
	if (w->present) {
		move(g, w, STATE_RECONCILE, "appeared", "%s", w->policy->name);
		return true;
	}
	if (w->policy->managed && !guard_effective(w))
		return try_resume(g, w);
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
	if (!w->pending)
		guard_issue(g, w, ORDER_NOTIFY, g->now_ns + CALL_NS);
	w->evicted = true;
	w->residue_bytes = 0;
	w->dirty = true;
	move(g, w, STATE_EVICTED, "quarantine", "lost with its GPU: %s", evidence);
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

static bool unread(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && g->gpu[i].stale)
			return true;
	return false;
}

static bool sees(struct guard *g, struct guard_worker *w)
{
	if (guard_unseen(g, w))
		return !frozen(g, w);
	if (unread(g, w))
		return false;
	if (w->frozen) {
		w->frozen = false;
		if (w->state != STATE_ABSENT)
			move(g, w, STATE_RECONCILE, "sight is back", "all its GPUs answer");
	}
	return true;
}

/* ---- one step ---- */

static bool step(struct guard *g, struct guard_worker *w)
{
	static bool (*const next[GUARD_STATES])(struct guard *, struct guard_worker *) = {
		[STATE_RECONCILE] = step_reconcile, [STATE_ACTIVE] = step_running,
		[STATE_SUSPECT] = step_running,     [STATE_DRAIN] = step_drain,
		[STATE_EVICT] = step_evict,         [STATE_VERIFY] = step_verify,
		[STATE_EVICTED] = step_out,         [STATE_QUIET] = step_out,
		[STATE_RESUME] = step_resume,       [STATE_VERIFY_UP] = step_verify_up,
		[STATE_STUCK] = step_stuck,         [STATE_ABSENT] = step_absent,
	};
	bool acting = w->state == STATE_VERIFY || (w->state == STATE_EVICT && w->pending);

	guard_overdue(g, w);
	if (guard_lost(g, w))
		return step_lost(g, w);
	if (!sees(g, w))
		return false;
	if (gone(w) && !acting && w->state != STATE_ABSENT && w->state != STATE_RECONCILE) {
		move(g, w, STATE_ABSENT, "not there", "its process ended");
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

static void resume_failed(struct guard *g, struct guard_worker *w, const char *message)
{
	back_off(g, w);
	w->starting = w->returning = false;
	move(g, w, STATE_EVICTED, "resume failed", "%.200s", message);
}

void guard_failed(struct guard *g, struct guard_worker *w, bool retry, const char *message)
{
	switch (w->order.verb) {
	case ORDER_DRAIN: w->retry_ns = g->now_ns + DRAIN_NS; return;
	case ORDER_RESUME:
		if (w->state == STATE_RESUME)
			resume_failed(g, w, message);
		return;
	case ORDER_OPEN:
		w->retry_ns = g->now_ns + RECHECK_NS;
		if (w->state == STATE_RESUME)
			resume_failed(g, w, message);
		return;
	case ORDER_EVICT: break;
	default: return;
	}
	if (w->state != STATE_EVICT)
		return;
	if (!retry)
		w->tries++;
	if (w->tries > RETRIES) {
		escalate(g, w, message);
		return;
	}
	w->retry_ns = g->now_ns + (RETRY_NS << (w->tries ? w->tries - 1 : 0));
	guard_say(g, w, w->state, "try again", "level %u: %.200s", w->level, message);
}

void guard_done(struct guard *g, struct guard_worker *w)
{
	enum guard_verb verb = w->order.verb;

	if (verb == ORDER_EVICT)
		w->virtual_out = w->dry;
	if (verb == ORDER_RESUME || (verb == ORDER_OPEN && w->state == STATE_RESUME))
		w->virtual_out = false;
	if (verb == ORDER_DRAIN)
		w->drained = true;
	if (verb == ORDER_OPEN) {
		w->closed = false;
		w->dirty = true;
	}
	if (verb == ORDER_EVICT && w->state == STATE_EVICT)
		move(g, w, STATE_VERIFY, "done", "level %u; is the memory free?", w->level);
	if ((verb == ORDER_RESUME || verb == ORDER_OPEN) && w->state == STATE_RESUME)
		move(g, w, STATE_VERIFY_UP, lazy(w) ? "opened" : "done", "is it back?");
}

/* ---- the end ---- */

unsigned guard_stop(struct guard *g, uint64_t now_ns)
{
	unsigned n = 0;

	g->now_ns = now_ns;
	for (unsigned i = 0; g->p->restore_on_stop && i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (w->state != STATE_EVICTED && w->state != STATE_QUIET)
			continue;
		if (!w->against)
			latch(w, false);
		w->check_ns = now_ns;
		if (!guard_effective(w) && !guard_unseen(g, w) && try_resume(g, w)) {
			step_resume(g, w);
			n++;
		}
	}
	return n;
}
