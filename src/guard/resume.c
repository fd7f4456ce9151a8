/* guard_return: out, and the way back: rows 25 to 37 of GUARD-MACHINE.md. */
#include "guard_internal.h"

#include <string.h>

/* ---- out: rows 25 to 32 ---- */

static bool came_back(const struct guard_worker *w);

/* Out because it idled, and somebody asks it: that is what it was left open for. */
static bool asked_for(struct guard *g, struct guard_worker *w)
{
	double out_s = (double)(g->now_ns - w->since_ns) * 1e-9;
	bool back = came_back(w);

	if (!w->idle || (!back && !w->works))
		return false;
	guard_idle_end(g, w);
	if (!back || guard_effective(w))
		return false;
	guard_move(g, w, STATE_ACTIVE, "asked for",
		   "it loaded %llu MiB by itself; %.0f s out saved about %.0f J, loading not "
		   "counted",
		   (unsigned long long)(w->bytes / MIB), out_s, out_s * w->idle_w);
	return true;
}

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
		guard_move(g, w, STATE_VERIFY_UP, "came back by itself", "%llu MiB", mib);
		return;
	}
	w->storm = storm(g, w);
	guard_move(g, w, STATE_EVICT, w->storm ? "reload-storm" : "reloaded while evicted",
		   "%llu MiB, of a need of %llu MiB%s", mib,
		   (unsigned long long)(w->need_bytes / MIB), w->storm ? GUARD_STORM : "");
	while (w->storm && stop && stop < LEVEL_STOP)
		stop = guard_level_next(w, stop);
	if (w->storm && stop == LEVEL_STOP)
		w->level = stop;
	else if (w->storm)
		w->closed = false; /* closed again, and for certain */
}

static bool waits_too(const struct guard *g, const struct guard_worker *o)
{
	bool deaf = o->blocked == BIT(BLOCK_ENDPOINT) && g->now_ns < o->check_ns;

	return (o->state == STATE_EVICTED || o->state == STATE_QUIET) && !guard_effective(o) &&
	       g->now_ns >= o->resume_after_ns && !deaf &&
	       (o->asked || o->policy->resume != RESUME_NEVER);
}

/* One at a time, highest priority first: of one's neighbours on a GPU. */
static bool not_its_turn(const struct guard *g, const struct guard_worker *w)
{
	bool after = false;

	for (unsigned i = 0; !g->stopping && i < g->workers; i++) {
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

/* At the end no look may follow that would show it: what others will take who are on the way back counts as taken. */
static uint64_t others_take(const struct guard *g, const struct guard_worker *w, unsigned gpu)
{
	uint64_t sum = 0;

	for (unsigned i = 0; g->stopping && i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[i];
		bool back = o->state == STATE_RESUME || o->state == STATE_VERIFY_UP;

		if (o != w && back && !o->dry && o->need_on[gpu] > o->held[gpu])
			sum += o->need_on[gpu] - o->held[gpu];
	}
	return sum;
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
		if (u->heat & HEAT_WARM)
			bad |= BIT(BLOCK_THERMAL);
		if (!need)
			continue;
		if (!u->now || !u->now->memory_known) {
			bad |= BIT(BLOCK_UNKNOWN);
			continue;
		}
		need += demand_headroom(&w->knobs, u->now->total_bytes) + u->promised +
			others_take(g, w, i);
		if (u->free_bytes < need) {
			bad |= BIT(BLOCK_ROOM);
			text_fit(out, size, "needs %llu MiB with headroom, %llu MiB are free",
				 (unsigned long long)(need / MIB),
				 (unsigned long long)(u->free_bytes / MIB));
		}
	}
	return bad;
}

/* Host memory without which it cannot be brought back.  Who was put away into host memory (a checkpoint, vLLM
 * asleep at level 1) takes none: it gives back what it has there, and to want the room a second time
 * would keep it out for ever on a machine whose memory it fills.  Others read a file through buffers. */
static uint64_t host_need(const struct guard_worker *w)
{
	bool drops = w->policy->level == 2 && policy_kind_is(w->policy->kind, KIND_DROPS);
	bool there =
		w->level != LEVEL_STOP && policy_kind_is(w->policy->kind, KIND_KEEPS) && !drops;

	return there ? 0 : STAGING;
}

static uint32_t precheck(const struct guard *g, const struct guard_worker *w, char *out,
			 size_t size)
{
	static const char *const text[GUARD_BLOCKS] = {
		[BLOCK_BACKOFF] = "waits after a resume that failed",
		[BLOCK_ROOM] = "room",
		[BLOCK_UNKNOWN] = "free memory is not known",
		[BLOCK_THERMAL] = "GPU is warm",
		[BLOCK_HOST] = "host memory",
		[BLOCK_GONE] = "worker does not run",
		[BLOCK_DEMAND] = "demand",
		[BLOCK_TURN] = "another comes first",
		[BLOCK_BUSY] = "an order is under way",
		[BLOCK_NEVER] = "resume = never",
	};
	const uint64_t host = g->scene.host_free_bytes;
	bool demand = w->against && !w->override && w->hold != HOLD_ACTIVE;
	char room[100] = "";
	uint32_t bad = check_gpus(g, w, room, sizeof(room));
	bool gone = !w->present && !w->evicted && !w->policy->managed;
	bool never = w->policy->resume == RESUME_NEVER && !w->asked;
	size_t len = 0;

	bad |= (g->now_ns < w->resume_after_ns ? BIT(BLOCK_BACKOFF) : 0) |
	       (host && host < host_need(w) ? BIT(BLOCK_HOST) : 0) |
	       (gone ? BIT(BLOCK_GONE) : 0) | (demand ? BIT(BLOCK_DEMAND) : 0) |
	       (not_its_turn(g, w) ? BIT(BLOCK_TURN) : 0) | (w->pending ? BIT(BLOCK_BUSY) : 0) |
	       (never ? BIT(BLOCK_NEVER) : 0);
	out[0] = '\0';
	for (unsigned i = 0; i < GUARD_BLOCKS; i++) {
		if (!(bad & BIT(i)))
			continue;
		text_fit(out + len, size - len, "%s%s", len ? "; " : "",
			 i == BLOCK_ROOM ? room : text[i]);
		len += strlen(out + len);
	}
	return bad;
}

/* Where one is again whose return came to nothing: who still holds its memory is not out. */
static enum guard_state returned_to(const struct guard_worker *w)
{
	return w->stayed ? STATE_STUCK : STATE_EVICTED;
}

/* Rows 31 and 32; asked again every 5 s, told again when something else fails. */
bool guard_try_resume(struct guard *g, struct guard_worker *w)
{
	char why[220];
	uint32_t bad;

	if (w->state != STATE_QUIET && g->now_ns < w->check_ns)
		return false;
	bad = precheck(g, w, why, sizeof(why));
	w->check_ns =
		g->now_ns +
		(bad == BIT(BLOCK_TURN) || bad == BIT(BLOCK_BUSY) ? NS_PER_S : RECHECK_NS);
	if (bad & ~(BIT(BLOCK_TURN) | BIT(BLOCK_BUSY)))
		w->override = false;
	if (bad && bad == w->blocked && w->state != STATE_QUIET)
		return false;

	enum guard_state back = w->state == STATE_ABSENT ? STATE_ABSENT : returned_to(w);
	uint64_t check_ns = w->check_ns;

	if (!bad && w->blocked == BIT(BLOCK_ENDPOINT)) { /* as it was told */
		guard_shift(g, w, STATE_RESUME);
		return true;
	}
	guard_move(g, w, STATE_PRECHECK, "no reason left", "may it come back?");
	w->blocked = bad;
	if (!bad) {
		guard_move(g, w, STATE_RESUME, "precheck", "all passed");
		return true;
	}
	w->state = back;
	w->since_ns = g->now_ns;
	w->check_ns = check_ns;
	w->ended_blocked = bad;
	guard_say(g, w, STATE_PRECHECK, "resume_blocked", "%s", why);
	return false;
}

/* Row 34.  Who neither left when it was told, nor comes back when it is told, goes on as it was. */
void guard_resume_failed(struct guard *g, struct guard_worker *w, const char *message)
{
	bool runs = w->stayed && !w->told;

	w->starting = w->returning = false;
	if (runs) {
		guard_move(g, w, STATE_VERIFY_UP, "resume failed",
			   "it probably never left: %.180s", message);
		return;
	}
	guard_back_off(g, w);
	guard_move(g, w, returned_to(w), "resume failed", "%.200s", message);
}

/* Whether its endpoint answers is an item of the precheck that only a thread which may wait can ask: the order to
 * return begins with it (guard/action.c).  Where it does not, the precheck failed, row 32. */
void guard_unanswered(struct guard *g, struct guard_worker *w, const char *message)
{
	bool told = w->blocked == BIT(BLOCK_ENDPOINT);

	w->starting = w->returning = false;
	guard_shift(g, w, returned_to(w));
	w->blocked = BIT(BLOCK_ENDPOINT);
	w->check_ns = g->now_ns + RECHECK_NS;
	if (told)
		return;
	w->ended_blocked = w->blocked;
	guard_say(g, w, STATE_RESUME, "resume_blocked", "it does not answer: %.180s", message);
}

/* Of one that is not to be there: a need counts when it is sure, and until it was quiet. */
void guard_listen(struct guard *g, struct guard_worker *w)
{
	if (!w->contention && !w->override && w->hold != HOLD_ACTIVE && guard_sure(g, w)) {
		guard_latch(w, true);
		guard_say(g, w, w->state, w->demand.rule, "%s", w->demand.evidence);
	}
	if (w->contention && guard_calm(g, w))
		guard_latch(w, false);
}

bool guard_step_out(struct guard *g, struct guard_worker *w)
{
	bool only;

	if (w->bytes < w->residue_bytes)
		w->residue_bytes = w->bytes;
	if (asked_for(g, w))
		return true;
	if (came_back(w)) {
		reloaded(g, w);
		return true;
	}
	guard_listen(g, w);
	if (!guard_effective(w))
		return guard_try_resume(g, w);
	/* What had to be quick left it open, or nobody knows. */
	if ((!w->closed || w->ajar) && !w->pending && w->present && !guard_idle_only(w))
		guard_issue(g, w, ORDER_CLOSE, g->now_ns + CALL_NS);
	only = guard_effective(w) == BIT(REASON_CONTENTION);
	if (w->state == STATE_EVICTED && only && !w->against && w->calm_looks) {
		guard_move(g, w, STATE_QUIET, "no demand", "for %llu s before it may come back",
			   (unsigned long long)(guard_quiet_ns(w) / NS_PER_S));
		return false;
	}
	if (w->state == STATE_QUIET && (w->against || !only)) {
		const char *rule, *evidence;

		if (!only)
			w->calm_ns = g->now_ns;
		guard_cause(w, &rule, &evidence);
		guard_move(g, w, STATE_EVICTED, w->against ? w->demand.rule : rule, "%s",
			   w->against ? w->demand.evidence : evidence);
	}
	return false;
}

/* ---- the way back: rows 33 to 37 ---- */

void guard_back_off(struct guard *g, struct guard_worker *w)
{
	w->resume_backoff_ns =
		w->resume_backoff_ns ? 2 * w->resume_backoff_ns : 2 * w->knobs.quiet_ns;
	if (w->resume_backoff_ns > LONGEST_NS)
		w->resume_backoff_ns = LONGEST_NS;
	w->resume_after_ns = g->now_ns + w->resume_backoff_ns;
}

static bool turned_back(struct guard *g, struct guard_worker *w)
{
	bool pressing = guard_sure(g, w) && w->demand.urgent && !w->override &&
			w->hold != HOLD_ACTIVE && !guard_limited(g, w);

	if (g->stopping)
		return false;
	if (pressing)
		guard_latch(w, true);
	if (!pressing && !guard_effective(w))
		return false;
	guard_leave(g, w);
	return true;
}

bool guard_step_resume(struct guard *g, struct guard_worker *w)
{
	if (turned_back(g, w))
		return true;
	/* Who loads by itself needs no more than an open door, but who was stopped must be started. */
	if (!w->pending)
		guard_issue(g, w, guard_lazy(w) && w->present ? ORDER_OPEN : ORDER_RESUME,
			    g->now_ns + UP_NS);
	return false;
}

bool guard_step_verify_up(struct guard *g, struct guard_worker *w)
{
	if (turned_back(g, w))
		return true;
	if (!guard_is_fresh(g, w))
		return false;
	if (guard_lazy(w) ? w->present : w->bytes / 3 >= w->need_bytes / 4) {
		guard_move(g, w, STATE_ACTIVE, "is back", "%llu MiB",
			   (unsigned long long)(w->bytes / MIB));
		return true;
	}
	if (g->now_ns < w->deadline_ns)
		return false;
	guard_back_off(g, w);
	guard_move(g, w, STATE_EVICT, "resume failed", "%llu of %llu MiB after 120 s",
		   (unsigned long long)(w->bytes / MIB),
		   (unsigned long long)(w->need_bytes / MIB));
	return true;
}
