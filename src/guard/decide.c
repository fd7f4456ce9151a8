/* Decides: what should be, by the reasons, against what is, by the last scene.
 *
 * Each step moves a worker's intent by one change, or finds its next order.  Steps are repeated until nothing changes, so
 * that what follows from one scene is decided with that scene.  Numbers of rows are those of docs/GUARD-MACHINE.md. */
#include "guard_internal.h"

#include <string.h>

#define STEPS 16 /* more than any chain of changes is long */

/* What a step led to. */
enum step {
	STEP_WAIT,  /* nothing is to be done now */
	STEP_ORDER, /* the intent stays: its next order may be due */
	STEP_AGAIN, /* something changed */
};

static void leave(struct guard *g, struct guard_worker *w)
{
	const char *rule, *evidence;
	char text[240];

	guard_cause(w, text, &rule, &evidence);
	worker_set_leaving(g, w, STAGE_DRAIN);
	guard_report(g, w, rule, "%s", evidence);
}

/* ---- may it return? rows 30 to 32 ---- */

static bool waits_to_return(const struct guard *g, const struct guard_worker *o)
{
	const struct worker_backoff *b = &o->backoff;
	const enum guard_state s = worker_state(o);
	bool deaf = b->blocked == BIT(BLOCK_ENDPOINT) && g->now_ns < b->check_ns;

	return (s == STATE_EVICTED || s == STATE_QUIET) && !worker_kept_out(o) &&
	       g->now_ns >= b->resume_ns && !deaf &&
	       (b->request != RESUME_NOT_REQUESTED || o->policy->resume != RESUME_NEVER);
}

static bool is_on_the_way_back(const struct guard_worker *o)
{
	return o->presence == PRESENCE_HERE && o->intent.goal == GOAL_RETURN &&
	       !worker_must_resume(o);
}

/* One at a time per GPU, the highest priority first. */
static bool is_not_its_turn(const struct guard *g, const struct guard_worker *w)
{
	bool after = false;

	for (unsigned i = 0; !g->stopping && i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[g->order[i]];

		if (o == w) {
			after = true;
			continue;
		}
		if (!(o->observed.gpus & w->observed.gpus))
			continue;
		if (is_on_the_way_back(o) || (after && waits_to_return(g, o)))
			return true;
	}
	return false;
}

/* When the service ends no scene may follow that shows it: what others will take on their way back counts as taken. */
static uint64_t others_take(const struct guard *g, const struct guard_worker *w, unsigned gpu)
{
	uint64_t sum = 0;

	for (unsigned i = 0; g->stopping && i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[i];
		const uint64_t need = o->observed.need_on[gpu], held = o->observed.held[gpu];

		if (o != w && is_on_the_way_back(o) && !o->dry && need > held)
			sum += need - held;
	}
	return sum;
}

static uint32_t check_gpus(const struct guard *g, const struct guard_worker *w, char *out,
			   size_t size)
{
	uint32_t bad = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];
		const uint64_t held = w->observed.held[i];
		uint64_t need = w->observed.need_on[i];

		if (!has(w->observed.gpus, i))
			continue;
		if (u->heat & HEAT_WARM)
			bad |= BIT(BLOCK_THERMAL);
		if (need <= held)
			continue;
		if (!u->now || !u->now->memory_known) {
			bad |= BIT(BLOCK_UNKNOWN);
			continue;
		}
		need += demand_headroom(&w->knobs, u->now->total_bytes) + u->promised +
			others_take(g, w, i) - held;
		if (u->free_bytes < need) {
			bad |= BIT(BLOCK_ROOM);
			text_fit(out, size, "needs %llu MiB with headroom, %llu MiB are free",
				 (unsigned long long)(need / MIB),
				 (unsigned long long)(u->free_bytes / MIB));
		}
	}
	return bad;
}

/* Host memory without which it cannot be loaded.  What was put into host memory (a checkpoint, vLLM asleep at level 1)
 * is there already. */
static uint64_t host_need(const struct guard_worker *w)
{
	bool drops = w->policy->level == 2 && policy_kind_is(w->policy->kind, KIND_DROPS_AT_2);
	bool there = w->intent.level != LEVEL_STOP &&
		     policy_kind_is(w->policy->kind, KIND_TO_HOST) && !drops;

	return there ? 0 : STAGING;
}

static bool demand_counts(const struct guard_worker *w)
{
	return w->backoff.request != RESUME_REQUESTED_NOW && !worker_is_held_active(w);
}

static uint32_t check_return(const struct guard *g, const struct guard_worker *w, char *out,
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
	const bool fails[GUARD_BLOCKS] = {
		[BLOCK_BACKOFF] = g->now_ns < w->backoff.resume_ns,
		[BLOCK_HOST] = host && host < host_need(w),
		[BLOCK_GONE] =
			!worker_is_present(w) && !worker_is_moved(w) && !w->policy->managed,
		[BLOCK_DEMAND] = w->demand.pressing && demand_counts(w),
		[BLOCK_TURN] = is_not_its_turn(g, w),
		[BLOCK_BUSY] = worker_has_order(w),
		[BLOCK_NEVER] = w->policy->resume == RESUME_NEVER &&
				w->backoff.request == RESUME_NOT_REQUESTED,
	};
	char room[100] = "";
	uint32_t bad = check_gpus(g, w, room, sizeof(room));
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < GUARD_BLOCKS; i++) {
		bad |= fails[i] ? BIT(i) : 0;
		if (!(bad & BIT(i)))
			continue;
		text_fit(out + len, size - len, "%s%s", len ? "; " : "",
			 i == BLOCK_ROOM ? room : text[i]);
		len += strlen(out + len);
	}
	return bad;
}

static enum worker_from returns_from(const struct guard_worker *w, bool stuck)
{
	return w->presence == PRESENCE_GONE ? FROM_ABSENT : stuck ? FROM_STUCK : FROM_OUT;
}

/* Checked every 5 s, reported again when another check fails.  stuck: it holds its memory still.  calmed: the quiet time
 * has just ended. */
static enum step try_return(struct guard *g, struct guard_worker *w, bool stuck, bool calmed)
{
	struct worker_backoff *b = &w->backoff;
	char why[220];
	uint32_t bad;

	if (!calmed && g->now_ns < b->check_ns)
		return STEP_WAIT;
	bad = check_return(g, w, why, sizeof(why));
	b->check_ns =
		g->now_ns +
		(bad == BIT(BLOCK_TURN) || bad == BIT(BLOCK_BUSY) ? NS_PER_S : RECHECK_NS);
	if (bad & ~(BIT(BLOCK_TURN) | BIT(BLOCK_BUSY)) && b->request == RESUME_REQUESTED_NOW)
		b->request = RESUME_REQUESTED;
	if (bad && bad == b->blocked && !calmed)
		return STEP_WAIT;
	if (!bad && b->blocked == BIT(BLOCK_ENDPOINT)) { /* tried again without a report */
		worker_set_returning(g, w, STAGE_LOAD, returns_from(w, stuck));
		w->report.state = STATE_RESUME;
		return STEP_AGAIN;
	}
	guard_report_as(g, w, w->report.state, STATE_PRECHECK, "no reason left",
			"may it come back?");
	b->blocked = bad;
	if (!bad) {
		worker_set_returning(g, w, STAGE_LOAD, returns_from(w, stuck));
		guard_report(g, w, "precheck", "all passed");
		return STEP_AGAIN;
	}
	if (w->presence == PRESENCE_UNKNOWN) {
		w->presence = PRESENCE_HERE;
		w->intent.goal = GOAL_LEAVE;
		w->intent.stage = STAGE_STUCK;
		w->intent.from = FROM_RUN;
	}
	w->report.since_ns = g->now_ns;
	w->report.blocked = bad;
	guard_report(g, w, "resume_blocked", "%s", why);
	return STEP_WAIT;
}

static void back_off(struct guard *g, struct guard_worker *w)
{
	struct worker_backoff *b = &w->backoff;

	b->failed_ns = b->failed_ns ? 2 * b->failed_ns : 2 * w->knobs.quiet_ns;
	if (b->failed_ns > LONGEST_NS)
		b->failed_ns = LONGEST_NS;
	b->resume_ns = g->now_ns + b->failed_ns;
}

/* Where a worker is again after a return that came to nothing. */
static void undo_return(struct guard *g, struct guard_worker *w)
{
	if (w->intent.from != FROM_STUCK) {
		worker_set_out(g, w);
		return;
	}
	w->intent.from = FROM_RUN;
	worker_set_leaving(g, w, STAGE_STUCK);
}

/* A process that the guard was to start and that did not come is absent. */
static void not_started(struct guard *g, struct guard_worker *w, enum worker_from from)
{
	if ((from != FROM_ABSENT && from != FROM_STARTED) || worker_is_present(w))
		return;
	worker_forget_eviction(g, w);
	worker_set_gone(g, w);
	guard_report(g, w, "not there", "its process ended");
}

/* Row 34.  A worker that neither left nor returns when it is ordered to goes on as it was. */
void guard_resume_failed(struct guard *g, struct guard_worker *w, const char *message)
{
	const enum worker_from from = w->intent.from;

	if (from == FROM_STUCK && w->intent.claim != CLAIM_LEFT) {
		worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
		guard_report(g, w, "resume failed", "it probably never left: %.180s", message);
		return;
	}
	back_off(g, w);
	undo_return(g, w);
	guard_report(g, w, "resume failed", "%.200s", message);
	not_started(g, w, from);
}

/* Row 32: only the thread that carries out an order can ask the worker's endpoint. */
void guard_unanswered(struct guard *g, struct guard_worker *w, const char *message)
{
	const enum worker_from from = w->intent.from;
	struct worker_backoff *b = &w->backoff;
	const bool reported = b->blocked == BIT(BLOCK_ENDPOINT);

	undo_return(g, w);
	b->blocked = BIT(BLOCK_ENDPOINT);
	b->check_ns = g->now_ns + RECHECK_NS;
	if (reported) {
		w->report.state = worker_state(w);
	} else {
		w->report.blocked = b->blocked;
		guard_report(g, w, "resume_blocked", "it does not answer: %.180s", message);
	}
	not_started(g, w, from);
}

/* ---- is its process there? rows 2 to 7, 38 to 40 ---- */

/* Some hooks evict by ending the process, which may take a moment after its memory is free.  One that ends later ended
 * without the hook. */
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
	const bool settled = w->presence == PRESENCE_HERE &&
			     (i->stage == STAGE_NONE || i->stage == STAGE_STUCK);

	if (is_replaced(w) && settled)
		return true;
	return !worker_is_present(w) && i->from != FROM_ABSENT && !is_ended_by_guard(w) &&
	       !(worker_has_order(w) && w->order.what.start);
}

/* The pid of a process that was put away belongs to another process now. */
static bool is_pid_reused(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->scene.roots; i++)
		for (unsigned k = 0; k < w->intent.put_away_count; k++)
			if (scene_root_of(&g->scene.root[i], worker_number(g, w)) &&
			    g->scene.root[i].pid == w->intent.put_away[k].pid &&
			    g->scene.root[i].start_ticks != w->intent.put_away[k].start_ticks)
				return true;
	return false;
}

static enum step becomes_gone(struct guard *g, struct guard_worker *w)
{
	const enum worker_found found = w->observed.found;
	const bool moved = worker_is_moved(w), known = w->presence == PRESENCE_HERE;
	const bool leaves = known && w->intent.goal == GOAL_LEAVE;
	const bool never = w->observed.match_changed || !known;
	const bool lives = found == FOUND_UNMATCHED || found == FOUND_DISPLACED ||
			   found == FOUND_OTHER_LIVES;
	const char *sought = "";
	char text[240];

	guard_sought_text(w, text, sizeof(text));
	worker_set_gone(g, w);
	sought = text;
	if (!lives)
		guard_report(g, w, "not there", "%s", never ? sought : "its process ended");
	else if (!moved)
		guard_report(g, w, "not found", "%s",
			     found == FOUND_OTHER_LIVES
				     ? "another process is found in its place"
				     : sought);
	else if (found == FOUND_OTHER_LIVES)
		guard_report(
			g, w, "another",
			"another process is found in its place: the one that was moved out "
			"lives, and has to be told to load again");
	else if (found == FOUND_DISPLACED)
		guard_report(g, w, "another",
			     "another process is found in its place: the one that was put away "
			     "lives; name it again, or gpuward guard recover brings it back");
	else
		guard_report(
			g, w, "not found",
			leaves ? "%s; its process lives and was being told to leave: if it "
				 "is the worker still, name it again"
			       : "%s; its process lives and is out: name it again, and the "
				 "guard brings it back",
			sought);
	return STEP_AGAIN;
}

/* Its intent said that it leaves, and its memory was still there: was that so when it was last known? */
static bool was_stuck(const struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;

	return (i->goal == GOAL_LEAVE && i->stage == STAGE_STUCK) ||
	       (i->goal == GOAL_RETURN && i->from == FROM_STUCK);
}

static enum step step_unknown(struct guard *g, struct guard_worker *w)
{
	const uint64_t bytes = w->observed.bytes;
	bool resident = worker_is_moved(w) ? bytes > w->observed.need_bytes / 4 : bytes > 0;

	if (!worker_is_fresh(g, w))
		return STEP_WAIT;
	if (is_gone(w) || is_replaced(w) || is_pid_reused(g, w))
		return becomes_gone(g, w);
	if (!worker_is_present(w) && worker_is_moved(w))
		resident = false;
	if (resident && worker_has_contention(w) && !w->demand.pressing)
		worker_set_contention(w, false);
	if (resident && w->idle.unload)
		guard_idle_end(g, w);
	if (resident && worker_kept_out(w)) {
		leave(g, w);
	} else if (resident && (was_stuck(w) || w->intent.claim == CLAIM_LEFT) &&
		   guard_may_resume_stuck(w)) {
		return try_return(g, w, true, false);
	} else if (resident || (!worker_is_moved(w) && !worker_kept_out(w))) {
		worker_set_running(g, w);
		guard_report(g, w, "as found", "it holds %llu MiB",
			     (unsigned long long)(bytes / MIB));
	} else {
		w->intent.residue_bytes = bytes;
		if (w->door == DOOR_CLOSED)
			w->door = DOOR_UNVERIFIED;
		w->record_due = true;
		worker_set_out(g, w);
		guard_report(g, w, "as found", "it is out, level %u", w->intent.level);
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
		return try_return(g, w, false, false);
	return STEP_WAIT;
}

/* ---- GPUs that cannot be read: rows 41 to 46 ---- */

/* Whoever comes and goes pays with patience: the third eviction for contention within FLAP_NS doubles the quiet time. */
static void count_flap(struct guard *g, struct guard_worker *w)
{
	struct worker_backoff *b = &w->backoff;
	unsigned recent = 1;

	if (!worker_has_contention(w) || b->storm)
		return;
	for (unsigned i = 0; i < GUARD_FLAPS && i < b->flaps; i++)
		if (g->now_ns - b->flap[i] <= FLAP_NS)
			recent++;
	b->flap[b->flaps++ % GUARD_FLAPS] = g->now_ns;
	if (recent == 1)
		b->quiet_factor = 1;
	if (recent < 3 || worker_quiet_ns(w) == LONGEST_NS)
		return;
	b->quiet_factor *= 2;
	guard_report(g, w, "flapping", "%u evictions in 15 min: quiet period is now %llu s",
		     recent, (unsigned long long)(worker_quiet_ns(w) / NS_PER_S));
}

static void lost_with_gpu(struct guard *g, struct guard_worker *w)
{
	const enum guard_state from = worker_state(w);
	const bool reported = w->report.notices & NOTICE_UNREADABLE;
	const char *rule, *evidence;
	char text[240];

	if (reported && (from == STATE_EVICTED || from == STATE_ABSENT))
		return;
	w->report.notices |= NOTICE_UNREADABLE;
	if (from == STATE_ABSENT)
		return;
	guard_cause(w, text, &rule, &evidence);
	if (w->reasons.mask & BIT(REASON_HEALTH))
		evidence = w->reasons.evidence[REASON_HEALTH];
	if (!worker_has_order(w))
		guard_issue(g, w, ORDER_NOTIFY, g->now_ns + CALL_NS);
	w->intent.residue_bytes = 0;
	w->record_due = true;
	worker_set_out(g, w);
	guard_report(g, w, "quarantine", "lost with its GPU: %s", evidence);
	if (from == STATE_VERIFY || from == STATE_STUCK)
		count_flap(g, w);
}

/* Without readings nothing is decided, but an eviction by a person, or one for this case, goes on. */
static bool may_decide_blindly(const struct guard_worker *w)
{
	const enum guard_state s = worker_state(w);

	return worker_kept_out(w) & (BIT(REASON_BLIND) | BIT(REASON_MANUAL)) &&
	       (s == STATE_ACTIVE || s == STATE_SUSPECT || s == STATE_DRAIN ||
		s == STATE_EVICT);
}

static bool may_decide(struct guard *g, struct guard_worker *w)
{
	const bool reported = w->report.notices & NOTICE_UNREADABLE;

	if (guard_unseen(g, w)) {
		if (!reported)
			guard_report(g, w, "no sight",
				     "a GPU of it is blind or hung: nothing is decided");
		w->report.notices |= NOTICE_UNREADABLE;
		return may_decide_blindly(w);
	}
	if (guard_unread(g, w))
		return false;
	w->report.notices &= ~(unsigned)NOTICE_UNREADABLE;
	if (reported && w->presence != PRESENCE_GONE) {
		worker_set_unknown(g, w);
		guard_report(g, w, "sight is back", "all its GPUs answer");
	}
	return true;
}

/* ---- it may run: rows 8 to 13 ---- */

static void report_throttle(struct guard *g, struct guard_worker *w)
{
	const bool reported = w->report.notices & NOTICE_THROTTLED;
	const struct guard_gpu *hot = NULL;

	for (unsigned i = 0; !hot && i < g->gpus; i++)
		if (has(w->observed.gpus, i) && g->gpu[i].heat & HEAT_THROTTLE)
			hot = &g->gpu[i];
	if (reported == (hot != NULL))
		return;
	w->report.notices ^= NOTICE_THROTTLED;
	if (hot)
		guard_report(g, w, "throttled", "no new work: %s", hot->heat_why);
	else
		guard_report(g, w, "throttled", "cool again: work may come");
}

static void report_masked(struct guard *g, struct guard_worker *w)
{
	uint32_t now = w->reasons.mask & ~worker_kept_out(w), news = now & ~w->report.masked;

	w->report.masked = now;
	for (unsigned r = 0; r < GUARD_REASONS; r++)
		if (news & BIT(r))
			guard_report(g, w, "hold active", "masks %s: %s", guard_reason_name(r),
				     w->reasons.evidence[r]);
}

/* 0: a demand may move it now. */
static uint64_t damped_until(const struct guard *g, const struct guard_worker *w)
{
	uint64_t until = w->backoff.resident_ns;

	if (w->demand.strongest.urgent)
		return 0;
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) && g->gpu[i].acted_ns &&
		    g->gpu[i].acted_ns + w->knobs.post_ns > until)
			until = g->gpu[i].acted_ns + w->knobs.post_ns;
	return until > g->now_ns ? until : 0;
}

static void report_damped(struct guard *g, struct guard_worker *w, uint64_t until_ns)
{
	double left = (double)(until_ns - g->now_ns) * 1e-9;
	double stays = (double)w->knobs.resident_ns * 1e-9;

	if (until_ns == w->backoff.resident_ns)
		guard_report(g, w, "damped",
			     "came back %.0f s ago, stays until %.0f s (min_resident_s); %s",
			     stays - left, stays, w->demand.strongest.evidence);
	else
		guard_report(g, w, "damped",
			     "a worker on its GPU was moved just now, stays %.0f s more; %s",
			     left, w->demand.strongest.evidence);
}

static enum step no_demand(struct guard *g, struct guard_worker *w)
{
	const bool suspected = worker_is_suspected(w);

	if (w->demand.calm_scenes < CALM_LOOKS)
		return STEP_ORDER;
	worker_set_contention(w, false);
	w->demand.limited_ns = 0;
	if (!suspected)
		return STEP_ORDER;
	worker_set_suspected(g, w, false);
	guard_report(g, w, "near miss", "the demand went away: %s",
		     w->demand.strongest.evidence);
	return STEP_AGAIN;
}

/* A worker that is held active is not suspected, whatever needs its GPU. */
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
	return STEP_AGAIN;
}

static enum step demand_presses(struct guard *g, struct guard_worker *w)
{
	struct worker_demand *d = &w->demand;
	uint64_t until;

	if (worker_is_held_active(w))
		return held_active(g, w);
	if (!worker_is_suspected(w)) {
		worker_set_suspected(g, w, true);
		guard_report(g, w, d->strongest.rule, "%s", d->strongest.evidence);
		return STEP_AGAIN;
	}
	if (!guard_demand_sure(g, w))
		return STEP_ORDER;
	until = damped_until(g, w);
	if (until) {
		if (!d->damped_until_ns) {
			d->damped_until_ns = until;
			report_damped(g, w, until);
		}
		d->damped_until_ns = until;
		return STEP_ORDER;
	}
	if (guard_limited(g, w))
		return STEP_ORDER;
	worker_set_contention(w, true);
	leave(g, w);
	return STEP_AGAIN;
}

static enum step step_run(struct guard *g, struct guard_worker *w)
{
	report_masked(g, w);
	if (worker_kept_out(w) & ~BIT(REASON_CONTENTION)) {
		leave(g, w);
		return STEP_AGAIN;
	}
	report_throttle(g, w);
	guard_give_order(g, w); /* its door, before anything else is decided */
	if (guard_idle_due(g, w)) {
		guard_idle_begin(g, w);
		leave(g, w);
		return STEP_AGAIN;
	}
	return w->demand.pressing ? demand_presses(g, w) : no_demand(g, w);
}

/* ---- it leaves: rows 14 to 24 ---- */

static enum step step_drain(struct guard *g, struct guard_worker *w)
{
	const struct worker_order *o = &w->order;
	const bool drained = o->status == STATUS_DONE && o->what.verb == ORDER_DRAIN;

	guard_eviction_grows(g, w);
	if (worker_kept_out(w) == BIT(REASON_CONTENTION) && w->demand.calm_scenes >= CALM_LOOKS)
		worker_set_contention(w, false);
	if (w->idle.unload && w->idle.busy)
		guard_idle_end(g, w);
	if (!worker_kept_out(w)) {
		if (worker_is_returning(w))
			worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_OUT);
		else
			worker_set_running(g, w);
		guard_report(g, w, "cause gone", "before anything was unloaded");
		return STEP_AGAIN;
	}
	if (worker_has_order(w))
		return STEP_WAIT;
	if (!drained && g->now_ns < w->intent.deadline_ns)
		return STEP_ORDER;
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, drained ? "drained" : "drain timeout", "level %u", w->intent.level);
	return STEP_AGAIN;
}

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
		guard_report(g, w, "stuck",
			     "%s: neither its GPU's memory nor its processes' can be read",
			     why);
	else if (known && i->base_bytes && bytes <= i->base_bytes / 4)
		guard_report(g, w, "stuck", "%s; free rose by %llu of %llu MiB", why,
			     (unsigned long long)(rose / MIB),
			     (unsigned long long)(guard_freed_bytes(w) / MIB));
	else
		guard_report(g, w, "stuck", "%s; %llu MiB remain", why,
			     (unsigned long long)(bytes / MIB));
	if (!worker_has_order(w))
		guard_issue(g, w, ORDER_NOTIFY, g->now_ns + CALL_NS);
}

void guard_unload_failed(struct guard *g, struct guard_worker *w, const char *why)
{
	unsigned level = worker_is_idle_only(w) ? 0 : guard_level_next(w, w->intent.level);

	if (!level || g->now_ns >= w->intent.budget_ns) {
		becomes_stuck(g, w, level ? "the time for it is spent" : why);
		return;
	}
	w->intent.level = level;
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, "next level", "%s: level %u", why, level);
}

static enum step step_unload(struct guard *g, struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;

	guard_eviction_grows(g, w);
	if (worker_has_order(w) || g->now_ns < w->order.retry_ns)
		return STEP_WAIT;
	if (i->tries && i->base_bytes && guard_is_freed(g, w)) {
		worker_set_leaving(g, w, STAGE_VERIFY);
		guard_report(g, w, "freed", "though the worker did not say so");
		return STEP_AGAIN;
	}
	if (g->now_ns < i->budget_ns)
		return STEP_ORDER;
	guard_eviction_ended(w, RESULT_FAILED);
	becomes_stuck(g, w, "the time for it is spent");
	return STEP_AGAIN;
}

static enum step step_verify(struct guard *g, struct guard_worker *w)
{
	guard_eviction_grows(g, w);
	if (guard_is_freed(g, w)) {
		const unsigned long long freed = guard_freed_bytes(w) / MIB;

		worker_set_out(g, w);
		if (w->dry)
			guard_report(g, w, "freed", "%llu MiB would be free", freed);
		else
			guard_report(g, w, "freed", "%llu MiB%s in %.1f s, %llu MiB remain",
				     freed, w->observed.by_device ? " (device-delta)" : "",
				     (double)w->intent.freed_ns / (double)NS_PER_S,
				     (unsigned long long)(w->observed.bytes / MIB));
		count_flap(g, w);
		return STEP_AGAIN;
	}
	if (g->now_ns < w->intent.deadline_ns)
		return STEP_WAIT;
	guard_eviction_ended(w, RESULT_NOT_FREED);
	guard_unload_failed(g, w, "the worker said done, the memory is not free");
	return STEP_AGAIN;
}

/* A demand counts against a worker that is not to be there when it is sure, and until it was quiet. */
static void follow_demand(struct guard *g, struct guard_worker *w)
{
	if (!worker_has_contention(w) && demand_counts(w) && guard_demand_sure(g, w)) {
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
		guard_report(g, w, "freed", "after it was stuck, %llu MiB remain",
			     (unsigned long long)(w->observed.bytes / MIB));
		count_flap(g, w);
		return STEP_AGAIN;
	}
	follow_demand(g, w);
	if (worker_is_idle_only(w))
		guard_idle_end(g, w); /* it was worth a try */
	if (worker_kept_out(w))
		return STEP_ORDER;
	/* A worker can have done as it was ordered and hold its memory still (vLLM asleep): it is resumed. */
	if (guard_may_resume_stuck(w))
		return try_return(g, w, true, false);
	worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
	guard_report(g, w, "no reason left", "it probably never left");
	return STEP_AGAIN;
}

/* ---- it is out: rows 25 to 30 ---- */

static bool is_loaded_again(const struct guard_worker *w)
{
	const uint64_t tenth = w->observed.need_bytes / 10;

	return w->observed.bytes >
	       w->intent.residue_bytes + (tenth > SLACK_BYTES ? tenth : SLACK_BYTES);
}

/* Out because it idled, and a client wants it: that is what it was left open for. */
static bool ends_idling(struct guard *g, struct guard_worker *w)
{
	double out_s = (double)(g->now_ns - w->report.since_ns) * 1e-9;
	bool loaded = is_loaded_again(w);

	if (!w->idle.unload || (!loaded && !w->idle.busy))
		return false;
	guard_idle_end(g, w);
	if (!loaded || worker_kept_out(w))
		return false;
	worker_set_running(g, w);
	guard_report(g, w, "asked for",
		     "it loaded %llu MiB by itself; %.0f s out saved about %.0f J, loading not "
		     "counted",
		     (unsigned long long)(w->observed.bytes / MIB), out_s,
		     out_s * w->idle.idle_w);
	return true;
}

/* Three times within RELOAD_NS. */
static bool is_reload_storm(struct guard *g, struct worker_backoff *b)
{
	const unsigned n = sizeof(b->reload) / sizeof(b->reload[0]);
	unsigned recent = 0;

	b->reload[b->reloads++ % n] = g->now_ns;
	for (unsigned i = 0; i < n && i < b->reloads; i++)
		recent += g->now_ns - b->reload[i] <= RELOAD_NS;
	return recent == n;
}

static void loaded_again(struct guard *g, struct guard_worker *w)
{
	const unsigned long long mib = w->observed.bytes / MIB;
	unsigned stop = guard_level_first(w);
	bool storm;

	if (!worker_kept_out(w)) {
		worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
		guard_report(g, w, "came back by itself", "%llu MiB", mib);
		return;
	}
	storm = w->backoff.storm = is_reload_storm(g, &w->backoff);
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, storm ? "reload-storm" : "reloaded while evicted",
		     "%llu MiB, of a need of %llu MiB%s", mib,
		     (unsigned long long)(w->observed.need_bytes / MIB),
		     storm ? ": hold its clients back, or let the guard stop its unit (kind = "
			     "\"systemd\")"
			   : "");
	while (storm && stop && stop < LEVEL_STOP)
		stop = guard_level_next(w, stop);
	if (storm && stop == LEVEL_STOP)
		w->intent.level = stop;
	else if (storm && w->door == DOOR_CLOSED)
		w->door = DOOR_UNVERIFIED; /* it is closed again, for certain */
}

static enum step step_out(struct guard *g, struct guard_worker *w)
{
	const bool calming = w->report.state == STATE_QUIET; /* a request may have ended it */
	const char *rule, *evidence;
	char text[240];
	bool only;

	if (w->observed.bytes < w->intent.residue_bytes)
		w->intent.residue_bytes = w->observed.bytes;
	if (ends_idling(g, w))
		return STEP_AGAIN;
	if (is_loaded_again(w)) {
		loaded_again(g, w);
		return STEP_AGAIN;
	}
	follow_demand(g, w);
	if (!worker_kept_out(w))
		return try_return(g, w, false, calming);
	only = worker_kept_out(w) == BIT(REASON_CONTENTION);
	if (!calming && only && !w->demand.pressing && w->demand.calm_scenes) {
		worker_set_calming(g, w, true);
		guard_report(g, w, "no demand", "for %llu s before it may come back",
			     (unsigned long long)(worker_quiet_ns(w) / NS_PER_S));
	} else if (calming && (w->demand.pressing || !only)) {
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

/* ---- it returns: rows 33 to 37 ---- */

static bool is_turned_back(struct guard *g, struct guard_worker *w)
{
	if (g->stopping)
		return false;
	if (guard_demand_sure(g, w) && w->demand.strongest.urgent && demand_counts(w) &&
	    !guard_limited(g, w))
		worker_set_contention(w, true);
	else if (!worker_kept_out(w))
		return false;
	leave(g, w);
	return true;
}

static enum step step_verify_up(struct guard *g, struct guard_worker *w)
{
	const uint64_t bytes = w->observed.bytes, need = w->observed.need_bytes;

	if (!worker_is_fresh(g, w))
		return STEP_WAIT;
	if (worker_loads_lazily(w) ? worker_is_present(w) : bytes / 3 >= need / 4) {
		worker_set_running(g, w);
		guard_report(g, w, "is back", "%llu MiB", (unsigned long long)(bytes / MIB));
		return STEP_AGAIN;
	}
	if (g->now_ns < w->intent.deadline_ns)
		return STEP_WAIT;
	back_off(g, w);
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, "resume failed", "%llu of %llu MiB after 120 s",
		     (unsigned long long)(bytes / MIB), (unsigned long long)(need / MIB));
	return STEP_AGAIN;
}

/* ---- one step ---- */

static enum step step_intent(struct guard *g, struct guard_worker *w)
{
	switch (w->intent.stage) {
	case STAGE_DRAIN: return step_drain(g, w);
	case STAGE_UNLOAD: return step_unload(g, w);
	case STAGE_VERIFY: return step_verify(g, w);
	case STAGE_STUCK: return step_stuck(g, w);
	case STAGE_LOAD: return is_turned_back(g, w) ? STEP_AGAIN : STEP_ORDER;
	case STAGE_VERIFY_UP: return is_turned_back(g, w) ? STEP_AGAIN : step_verify_up(g, w);
	default: return w->intent.goal == GOAL_RUN ? step_run(g, w) : step_out(g, w);
	}
}

static enum step step_stop(struct guard *g, struct guard_worker *w);

static enum step step(struct guard *g, struct guard_worker *w)
{
	const struct worker_intent *i = &w->intent;
	bool acting;

	if (worker_must_resume(w))
		return STEP_WAIT;
	guard_order_overdue(g, w);
	if (g->stopping && !is_on_the_way_back(w))
		return step_stop(g, w);
	if (guard_lost(g, w)) {
		lost_with_gpu(g, w);
		return STEP_WAIT;
	}
	if (!may_decide(g, w))
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
		did = step(g, w);
	if (did == STEP_ORDER)
		guard_give_order(g, w);
}

void guard_steps(struct guard *g)
{
	/* Those with the highest priority return first. */
	for (unsigned i = g->workers; i-- > 0;)
		step_until_settled(g, &g->worker[g->order[i]]);
}

/* ---- the service ends: row 47 ---- */

/* Nothing is unloaded: at most its door is closed.  One that said that it left, or is on its way back, may have unloaded;
 * some leave and say that they did not. */
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
	const bool closed = w->door != DOOR_OPEN;

	if (w->intent.goal != GOAL_RUN) {
		const bool drain = w->intent.stage == STAGE_DRAIN;

		worker_set_running(g, w);
		guard_report(g, w, "service ends", "%s%s",
			     drain ? "before anything was unloaded"
				   : "its memory is still there",
			     closed ? ": work may come" : "");
	} else if (closed && !w->order.retry_ns) {
		guard_report(g, w, "service ends", "its door was closed: work may come");
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
	w->backoff.check_ns = g->now_ns;
	if (worker_kept_out(w) || guard_unseen(g, w))
		return STEP_WAIT;
	return try_return(g, w, stuck, false) == STEP_AGAIN ? STEP_ORDER : STEP_WAIT;
}

static enum step step_stop(struct guard *g, struct guard_worker *w)
{
	const enum guard_state s = worker_state(w);

	if (!w->unsettled || worker_has_order(w))
		return STEP_WAIT;
	if (s == STATE_EVICT && !worker_is_fresh(g, w))
		return STEP_WAIT;
	if (s == STATE_EVICT && w->intent.base_bytes && guard_is_freed(g, w)) {
		worker_set_leaving(g, w, STAGE_VERIFY);
		guard_report(g, w, "freed", "though the worker did not say so");
		return STEP_AGAIN;
	}
	if (is_untouched(w))
		return open_at_stop(g, w);
	if (s == STATE_VERIFY)
		return step_verify(g, w);
	return return_at_stop(g, w, s == STATE_EVICT || s == STATE_STUCK);
}

/* Is there something to be finished with it? */
static bool is_unsettled(const struct guard_worker *w)
{
	switch (worker_state(w)) {
	case STATE_ACTIVE:
	case STATE_SUSPECT: return w->door != DOOR_OPEN;
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

	g->now_ns = now_ns;
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
		if (step_stop(g, w) == STEP_ORDER)
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
