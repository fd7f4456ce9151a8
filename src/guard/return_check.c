/* Checks whether a worker without a reason may return (GUARD-MACHINE.md, Before it returns).
 * Begins the return, and undoes a return that failed. */
#include "guard_internal.h"

#include <string.h>

#define STAGING (256 * MIB) /* host memory that must be free before any model is loaded */

static bool waits_to_return(const struct guard *g, const struct guard_worker *o)
{
	const struct worker_backoff *b = &o->backoff;
	const enum guard_state s = worker_state(o);
	/* the server did not answer, and the next check is not due yet */
	bool no_answer = b->blocked == BIT(BLOCK_ENDPOINT) && g->now_ns < b->check_ns;

	return (s == STATE_EVICTED || s == STATE_QUIET) && !worker_kept_out(o) &&
	       g->now_ns >= b->resume_ns && !no_answer &&
	       (b->request != RESUME_NOT_REQUESTED || o->policy->resume != RESUME_NEVER);
}

/* Returns a worker that must return before w; NULL: there is none. On each GPU one worker
 * returns at a time, the highest priority first. */
static const struct guard_worker *returns_first(const struct guard *g,
						const struct guard_worker *w)
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
		if (worker_is_coming_back(o) || (after && waits_to_return(g, o)))
			return o;
	}
	return NULL;
}

/* True if the last decision about the worker says why it cannot return. */
static bool reported_blocked(const struct guard_worker *w)
{
	return w->backoff.blocked && w->report.last == DECISION_RESUME_BLOCKED;
}

static void turn_text(const struct guard_worker *first, char *out, size_t size)
{
	const bool waits = reported_blocked(first) && !worker_is_coming_back(first);

	text_fit(out, size, "worker %.40s returns first%s%.100s%s", first->policy->name,
		 waits ? " (" : "", waits ? first->report.evidence : "", waits ? ")" : "");
}

/* Returns the bytes that other returning workers have not allocated yet. Returns 0 unless the
 * service ends, because until then one worker at a time returns to a GPU. */
static uint64_t others_take(const struct guard *g, const struct guard_worker *w, unsigned gpu)
{
	uint64_t sum = 0;

	for (unsigned i = 0; g->stopping && i < g->workers; i++) {
		const struct guard_worker *o = &g->worker[i];

		if (o != w)
			sum += guard_loading_bytes(o, gpu);
	}
	return sum;
}

/* True if only this worker uses the GPU: there is no other worker, and every process belongs to
 * this worker, to the desktop or to this program. If other processes have no reservation
 * either, no headroom is needed, so a worker that filled the whole GPU may return. */
static bool is_alone(const struct guard *g, const struct guard_worker *w, unsigned gpu)
{
	const struct guard_gpu *u = &g->gpu[gpu];

	if (u->now->hidden)
		return false;
	for (unsigned i = 0; i < g->workers; i++)
		if (&g->worker[i] != w && has(g->worker[i].observed.gpus, gpu))
			return false;
	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct verdict *v = &g->verdict[i];

		if (&g->scene.gpu[g->scene.process[i].gpu] == u->now &&
		    v->class != CLASS_SYSTEM && v->class != CLASS_SELF &&
		    v->class != CLASS_WORKER)
			return false;
	}
	return true;
}

/* True if the worker may return although the free memory of the GPU is unknown. A GPU that is
 * asleep has no users, so the memory that the worker held there fits again. It may not fit if
 * memory of the GPU is reserved, or if other workers return to the GPU. */
static bool may_be_unknown(const struct guard *g, const struct guard_worker *w, unsigned gpu)
{
	const struct guard_gpu *u = &g->gpu[gpu];
	char unused[80];

	return u->now && u->now->health == SCENE_ASLEEP && !others_take(g, w, gpu) &&
	       !guard_promised(g, w, gpu, unused, sizeof(unused));
}

static uint32_t check_gpus(const struct guard *g, const struct guard_worker *w, char *out,
			   size_t size)
{
	char reserved[80];
	uint32_t bad = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];
		const uint64_t held = w->observed.held[i];
		uint64_t need = w->observed.need_on[i], headroom, promised;

		if (!has(w->observed.gpus, i))
			continue;
		if (u->heat & HEAT_WARM)
			bad |= BIT(BLOCK_THERMAL);
		if (need <= held)
			continue;
		if (!u->now || !u->now->memory_known) {
			bad |= may_be_unknown(g, w, i) ? 0 : BIT(BLOCK_UNKNOWN);
			continue;
		}
		promised = guard_promised(g, w, i, reserved, sizeof(reserved));
		headroom = !promised && is_alone(g, w, i)
				   ? 0
				   : demand_headroom(&w->knobs, u->now->total_bytes);
		need += headroom + promised + others_take(g, w, i) - held;
		if (u->free_bytes < need) {
			bad |= BIT(BLOCK_ROOM);
			text_fit(out, size, "needs %llu MiB%s%s, %llu MiB are free",
				 (unsigned long long)(need / MIB),
				 headroom ? " with headroom" : "", reserved,
				 (unsigned long long)(u->free_bytes / MIB));
		}
	}
	return bad;
}

/* Returns the host memory that loading needs; 0 if the eviction moved the worker's memory to
 * the host (a checkpoint, or vLLM asleep at level 1). */
static uint64_t host_need(const struct guard_worker *w)
{
	bool drops = w->policy->level == 2 && policy_kind_is(w->policy->kind, KIND_DROPS_AT_2);
	bool there = w->intent.level != LEVEL_STOP &&
		     policy_kind_is(w->policy->kind, KIND_TO_HOST) && !drops;

	return there ? 0 : STAGING;
}

/* Returns the set of failed checks (guard_block), and writes a text about them. */
static uint32_t check_return(const struct guard *g, const struct guard_worker *w, char *out,
			     size_t size)
{
	const uint64_t host = g->scene.host_free_bytes;
	const struct guard_worker *first = returns_first(g, w);
	const bool fails[GUARD_BLOCKS] = {
		[BLOCK_BACKOFF] = g->now_ns < w->backoff.resume_ns,
		[BLOCK_HOST] = host && host < host_need(w),
		[BLOCK_GONE] =
			!worker_is_present(w) && !worker_is_moved(w) && !w->policy->managed,
		[BLOCK_DEMAND] = w->demand.pressing && worker_heeds_demand(w),
		[BLOCK_TURN] = first != NULL,
		[BLOCK_BUSY] = worker_has_order(w),
		[BLOCK_NEVER] = w->policy->resume == RESUME_NEVER &&
				w->backoff.request == RESUME_NOT_REQUESTED,
	};
	char room[160] = "", turn[170] = "";
	uint32_t bad = check_gpus(g, w, room, sizeof(room));
	size_t len = 0;

	if (first)
		turn_text(first, turn, sizeof(turn));
	out[0] = '\0';
	for (unsigned i = 0; i < GUARD_BLOCKS; i++) {
		bad |= fails[i] ? BIT(i) : 0;
		if (!(bad & BIT(i)))
			continue;
		text_fit(out + len, size - len, "%s%s", len ? "; " : "",
			 i == BLOCK_ROOM   ? room
			 : i == BLOCK_TURN ? turn
					   : guard_block_text(i));
		len += strlen(out + len);
	}
	return bad;
}

/* Rows 30 to 32 and 34 of GUARD-MACHINE.md: the return begins or fails. */

static enum worker_from returns_from(const struct guard_worker *w, bool stuck)
{
	return w->presence == PRESENCE_GONE ? FROM_ABSENT : stuck ? FROM_STUCK : FROM_OUT;
}

/* Checks whether the worker may return: every 5 s, or every second if the worker waits only for
 * another worker or for one of its own orders. Reports the result only if it differs from the
 * last one, or if the worker leaves the state "reconcile"; otherwise the new figures and names
 * appear only in the status of the worker. Waits for a new scene, because only a new scene
 * shows whether there is room; but does not wait when the service ends. */
enum step guard_try_return(struct guard *g, struct guard_worker *w, bool stuck)
{
	struct worker_backoff *b = &w->backoff;
	char why[220];
	uint32_t bad;

	if (!g->stopping && (!g->scene_is_new || g->scene.mono_ns < b->check_ns))
		return STEP_WAIT;
	bad = check_return(g, w, why, sizeof(why));
	b->check_ns =
		g->now_ns +
		(bad == BIT(BLOCK_TURN) || bad == BIT(BLOCK_BUSY) ? NS_PER_S : RECHECK_NS);
	if (bad & ~(BIT(BLOCK_TURN) | BIT(BLOCK_BUSY)) && b->request == RESUME_REQUESTED_NOW)
		b->request = RESUME_REQUESTED;
	if (bad && bad == b->blocked && w->presence != PRESENCE_UNKNOWN) {
		if (reported_blocked(w))
			text_fit(w->report.evidence, sizeof(w->report.evidence), "%s", why);
		return STEP_WAIT;
	}
	if (!bad && b->blocked == BIT(BLOCK_ENDPOINT)) { /* try again without a report */
		worker_set_returning(g, w, STAGE_LOAD, returns_from(w, stuck));
		w->report.state = STATE_RESUME;
		return STEP_AGAIN;
	}
	guard_report_as(g, w, w->report.state, STATE_PRECHECK, "no reason left",
			"checking whether it may return");
	b->blocked = bad;
	if (!bad) {
		worker_set_returning(g, w, STAGE_LOAD, returns_from(w, stuck));
		guard_report(g, w, "precheck", "all checks passed");
		return STEP_AGAIN;
	}
	if (w->presence == PRESENCE_UNKNOWN) {
		w->presence = PRESENCE_HERE;
		w->intent.stage = STAGE_STUCK;
		w->intent.from = FROM_RUN;
	}
	w->since_ns = g->now_ns;
	w->report.blocked = bad;
	w->report.kind = DECISION_RESUME_BLOCKED;
	guard_report(g, w, "may not return yet", "%s", why);
	return STEP_WAIT;
}

/* Sets the worker to its state from before the failed return: evicted or stuck. */
static void undo_return(struct guard *g, struct guard_worker *w)
{
	if (w->intent.from != FROM_STUCK) {
		worker_set_out(g, w);
		return;
	}
	w->intent.from = FROM_RUN;
	worker_set_leaving(g, w, STAGE_STUCK);
}

/* Marks the worker as absent if the guard tried to start its process, but the process did not
 * appear. */
static void not_started(struct guard *g, struct guard_worker *w, enum worker_from from)
{
	if ((from != FROM_ABSENT && from != FROM_STARTED) || worker_is_present(w))
		return;
	worker_forget_eviction(g, w);
	worker_set_gone(g, w);
	guard_report(g, w, "not there", "its process ended");
}

/* Sets how long the worker waits after a failed return: twice as long as after the last failed
 * return, but at least RECHECK_NS, because the quiet time can be 0. */
static void back_off(struct guard *g, struct guard_worker *w)
{
	struct worker_backoff *b = &w->backoff;

	b->failed_ns = b->failed_ns ? 2 * b->failed_ns : 2 * w->knobs.quiet_ns;
	if (b->failed_ns < RECHECK_NS)
		b->failed_ns = RECHECK_NS;
	if (b->failed_ns > worker_longest_wait_ns(w))
		b->failed_ns = worker_longest_wait_ns(w);
	b->resume_ns = g->now_ns + b->failed_ns;
}

/* Handles a failed resume (row 34 of GUARD-MACHINE.md). If a stuck worker never reported that
 * it left, it probably still runs; then only its memory is checked. If the service ends, such a
 * worker is ordered to admit new work, because after a failed resume it may still refuse new
 * work. */
void guard_resume_failed(struct guard *g, struct guard_worker *w, const char *message)
{
	const enum worker_from from = w->intent.from;

	w->report.kind = DECISION_RESUME_FAILED;
	if (from == FROM_STUCK && w->intent.claim != CLAIM_LEFT) {
		if (g->stopping)
			worker_set_running(g, w);
		else
			worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
		/* the worker must still get the order to admit new work */
		w->unsettled = g->stopping;
		guard_report(g, w, "resume failed", "it probably never left its GPU: %.170s",
			     message);
		return;
	}
	back_off(g, w);
	undo_return(g, w);
	guard_report(g, w, "resume failed", "%.200s", message);
	not_started(g, w, from);
}

/* Handles a worker that does not answer an order to resume (row 32 of GUARD-MACHINE.md). The
 * missing answer counts as a failed check before the return, although it was found only when
 * the order was carried out. */
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
		w->report.kind = DECISION_RESUME_BLOCKED;
		guard_report(g, w, "may not return yet", "it does not answer: %.180s", message);
	}
	not_started(g, w, from);
}

/* Doubles the quiet time after a flap. A flap is an eviction for contention that begins less
 * than min_resident_s after the return, or that is the third eviction within FLAP_NS. The
 * longer quiet time delays the next return, but never an eviction, because a contender cannot
 * wait. A quiet time of 0 stays 0, so this value switches the delay off. */
void guard_count_flap(struct guard *g, struct guard_worker *w)
{
	struct worker_backoff *b = &w->backoff;
	const bool early = w->intent.begun_ns < b->resident_ns;
	unsigned recent = 1;
	char cause[80];

	if (!worker_has_contention(w) || b->storm)
		return;
	for (unsigned i = 0; i < GUARD_FLAPS && i < b->flaps; i++)
		if (g->now_ns - b->flap[i] <= FLAP_NS)
			recent++;
	b->flap[b->flaps++ % GUARD_FLAPS] = g->now_ns;
	if (recent == 1)
		b->quiet_factor = 1;
	if ((recent < 3 && !early) || !w->knobs.quiet_ns ||
	    worker_quiet_ns(w) == worker_longest_wait_ns(w))
		return;
	b->quiet_factor *= 2;
	if (recent < 3)
		snprintf(cause, sizeof(cause), "evicted less than %llu s after its return",
			 (unsigned long long)(w->knobs.resident_ns / NS_PER_S));
	else
		snprintf(cause, sizeof(cause), "%u evictions in 15 min", recent);
	guard_report(g, w, "flapping", "%s: the quiet time is now %llu s", cause,
		     (unsigned long long)(worker_quiet_ns(w) / NS_PER_S));
}

/* Row 25 of GUARD-MACHINE.md: a worker loads its model again while it is evicted. */

bool guard_is_loaded_again(const struct guard_worker *w)
{
	const uint64_t tenth = w->observed.need_bytes / 10;

	return w->observed.bytes >
	       w->intent.residue_bytes + (tenth > SLACK_BYTES ? tenth : SLACK_BYTES);
}

/* Counts one more reload. Returns true if there were three within RELOAD_NS: a reload storm. */
static bool count_reload(struct guard *g, struct worker_backoff *b)
{
	const unsigned n = sizeof(b->reload) / sizeof(b->reload[0]);
	unsigned recent = 0;

	b->reload[b->reloads++ % n] = g->now_ns;
	for (unsigned i = 0; i < n && i < b->reloads; i++)
		recent += g->now_ns - b->reload[i] <= RELOAD_NS;
	return recent == n;
}

void guard_loaded_again(struct guard *g, struct guard_worker *w)
{
	const unsigned long long mib = w->observed.bytes / MIB;
	unsigned level = guard_level_first(w);
	bool storm; /* clients load the model again and again while the worker is evicted */

	if (!worker_kept_out(w)) {
		worker_set_returning(g, w, STAGE_VERIFY_UP, FROM_RUN);
		guard_report(g, w, "returned without an order", "%llu MiB", mib);
		return;
	}
	storm = w->backoff.storm = count_reload(g, &w->backoff);
	worker_set_leaving(g, w, STAGE_UNLOAD);
	guard_report(g, w, storm ? "reload-storm" : "reloaded while evicted",
		     "it loaded %llu MiB; it held %llu MiB before%s", mib,
		     (unsigned long long)(w->observed.need_bytes / MIB),
		     storm ? ": stop its clients, or let the guard stop its unit (kind = "
			     "\"systemd\")"
			   : "");
	/* In a storm, stop the worker if that is allowed. */
	while (storm && level && level < LEVEL_STOP)
		level = guard_level_next(w, level);
	if (storm && level == LEVEL_STOP)
		w->intent.level = level;
	else if (storm && w->admission == ADMISSION_CLOSED)
		/* the next order makes the worker refuse new work again */
		w->admission = ADMISSION_UNVERIFIED;
}
