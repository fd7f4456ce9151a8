/* Limits evictions: some demands evict no worker, or must wait (GUARD.md, Limits on evictions).
 *
 * On a GPU with a display, ordinary demand evicts no worker if neither a threshold nor a rule
 * distinguishes the desktop from a contender. Otherwise the desktop would keep the workers
 * evicted for ever. A worker that has just returned stays for a while. One user may cause
 * evictions a limited number of times per hour. */
#include "guard_internal.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

/* Writes a clause that says how long this user must wait. Returns out. */
static const char *user_text(const struct guard *g, int64_t uid, uint64_t wait_ns,
			     char out[120])
{
	text_fit(out, 120,
		 "uid %lld evicted workers %u time%s in an hour (limit user_evictions) and "
		 "must wait %.0f s",
		 (long long)uid, g->p->user_evictions, g->p->user_evictions == 1 ? "" : "s",
		 ceil((double)wait_ns / (double)NS_PER_S));
	return out;
}

static bool has_ignore_rule(const struct policy *p)
{
	for (unsigned i = 0; i < p->rules; i++)
		if (p->rule[i].action == GUARD_IGNORE || p->rule[i].action == GUARD_WATCH)
			return true;
	return false;
}

static bool display_is_unsafe(const struct guard *g, const struct guard_worker *w,
			      unsigned slot)
{
	const struct scene_gpu *u = g->gpu[slot].now;

	return g->p->mode != GUARD_OBSERVE && u && u->display &&
	       (g->p->any || !w->knobs.min_vram_bytes) && !has_ignore_rule(g->p);
}

/* True if the demand does not evict the worker, because the demand may come from the desktop.
 * Two kinds of demand never count as the desktop: a registered game, and a process with a
 * contend-now rule. */
bool guard_withholds(const struct guard *g, const struct guard_worker *w, unsigned slot,
		     const struct demand_case *c)
{
	return c->kind != DEMAND_NOW && c->kind != DEMAND_GAME && display_is_unsafe(g, w, slot);
}

static int display_slot(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.home | w->observed.gpus, i) && display_is_unsafe(g, w, i))
			return (int)i;
	return -1;
}

static void display_text(const struct guard *g, int slot, char *out, size_t size)
{
	text_fit(out, size,
		 "%.48s drives a display, and %s: only games and contend-now rules evict "
		 "there. Add ignore rules for desktop programs (gpuward guard learn)%s",
		 g->gpu[slot].uuid,
		 g->p->any ? "with demand = \"any\" the desktop is a demand"
			   : "with min_vram = 0 the desktop is a demand",
		 g->p->any ? " or use thresholds" : " or set min_vram");
}

static void update_display(struct guard *g, struct guard_worker *w)
{
	const bool before = w->conditions & CONDITION_DISPLAY;
	int slot = display_slot(g, w);
	char text[240];

	if ((slot >= 0) == before)
		return;
	w->conditions ^= CONDITION_DISPLAY;
	if (slot < 0)
		return;
	display_text(g, slot, text, sizeof(text));
	guard_report(g, w, "display", "%s", text);
}

static void report_withheld(struct guard *g, struct guard_worker *w, const char *rule,
			    const char *evidence)
{
	w->report.would_evict++;
	w->report.result = RESULT_WITHHELD;
	guard_report(g, w, rule, "%s", evidence);
}

/* Reports when the limit for a display begins to apply, and the first demand that does not
 * evict because of this limit. Reports another such demand only after CALM_SCENES scenes
 * without one. c: the demand of this scene that does not evict (guard_withholds()), or NULL. */
void guard_limit_scene(struct guard *g, struct guard_worker *w, const struct demand_case *c)
{
	const enum guard_state s = worker_state(w);
	struct worker_demand *d = &w->demand;

	update_display(g, w);
	d->unlimited_scenes = c ? 0 : d->unlimited_scenes + 1;
	if (c && !(w->conditions & CONDITION_WITHHELD) &&
	    (s == STATE_ACTIVE || s == STATE_SUSPECT)) {
		w->conditions |= CONDITION_WITHHELD;
		report_withheld(g, w, "display", c->evidence);
	}
	if (d->unlimited_scenes >= CALM_SCENES)
		w->conditions &= ~(unsigned)CONDITION_WITHHELD;
}

/* True if the contender fits next to the worker. An unknown need counts as 0. */
bool guard_contender_fits(const struct guard *g, const struct guard_worker *w)
{
	const struct worker_observed *o = &w->observed;
	const struct demand_case *c = &w->demand.strongest;
	const unsigned slot = (unsigned)w->demand.gpu;
	const struct guard_gpu *u = &g->gpu[slot];
	uint64_t needed = c->more_bytes == UINT64_MAX ? 0 : c->more_bytes;

	if (worker_is_out(w) && o->need_on[slot] > o->held[slot])
		needed += o->need_on[slot] - o->held[slot];
	return u->now && u->now->memory_known &&
	       u->free_bytes >= needed + demand_headroom(&w->knobs, u->now->total_bytes);
}

/* Returns the earliest time at which a demand evicts the worker; 0: now. An urgent demand never
 * waits. A contender that does not fit next to the worker never waits either, because its
 * allocation would fail. A demand about memory does not wait for min_resident_s, because a new
 * program may need all memory of the GPU. It waits only for post_action_s: by then, scenes show
 * whether the memory that became free is enough. */
static uint64_t damped_until(const struct guard *g, const struct guard_worker *w)
{
	const struct demand_case *c = &w->demand.strongest;
	const bool takes_memory = c->kind == DEMAND_MEMORY || c->kind == DEMAND_PRESSURE;
	uint64_t until = takes_memory ? 0 : w->backoff.resident_ns;

	if (c->urgent || !guard_contender_fits(g, w))
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
			     "it returned %.0f s ago and stays for %.0f s while the contender "
			     "also fits (min_resident_s); %s",
			     stays - left, stays, w->demand.strongest.evidence);
	else
		guard_report(g, w, "damped",
			     "memory on its GPU just became free (post_action_s); it stays "
			     "%.0f s more while the contender also fits; %s",
			     left, w->demand.strongest.evidence);
}

/* If the demand must wait, damps it (row 11 of GUARD-MACHINE.md) and returns true. A demand
 * waits if it is not urgent and its contender fits next to the worker. It waits until
 * post_action_s after the last eviction on the worker's GPUs. If it is not about memory, it
 * also waits until min_resident_s after the worker's return. */
bool guard_damp(struct guard *g, struct guard_worker *w)
{
	const uint64_t until = damped_until(g, w), before = w->demand.damped_until_ns;

	if (!until)
		return false;
	w->demand.damped_until_ns = until;
	if (!before)
		report_damped(g, w, until);
	return true;
}

/* Counts an eviction for the user who causes the demand, and returns true. Returns false and
 * counts nothing if that user must wait. */
bool guard_take_eviction(struct guard *g, struct guard_worker *w)
{
	int64_t uid = w->demand.strongest.uid;
	uint64_t wait = guard_user_wait_ns(g, uid, g->now_ns);
	char text[240], limit[120];
	bool reported;

	if (!wait) {
		rate_take(&g->rate, uid, g->now_ns);
		w->demand.limited_ns = 0;
		return true;
	}
	reported = w->demand.limited_ns != 0;
	w->demand.limited_ns = g->now_ns + wait;
	if (!reported) {
		text_fit(text, sizeof(text), "%s; %s", user_text(g, uid, wait, limit),
			 w->demand.strongest.evidence);
		report_withheld(g, w, "user limit", text);
	}
	return false;
}

/* If the user of demand c must wait, replaces c with the strongest demand of the users who need
 * not wait. Otherwise c would hide that demand. If those users have no demand, c stays as it
 * is. */
void guard_demand_of_others(struct guard *g, const struct guard_worker *w, unsigned slot,
			    struct demand_case *c)
{
	struct demand_case other;

	if (worker_is_out(w) || !guard_user_wait_ns(g, c->uid, g->now_ns))
		return;
	for (unsigned i = 0; i < g->scene.processes; i++) {
		g->others[i] = g->verdict[i];
		if (guard_user_wait_ns(g, g->scene.process[i].uid, g->now_ns) &&
		    g->verdict[i].class != CLASS_WORKER)
			g->others[i].class = CLASS_IGNORED;
	}
	demand_judge(&g->demand, g->p, &w->knobs, &g->scene, g->others,
		     (unsigned)g->gpu[slot].at, &other);
	if (other.kind != DEMAND_NONE)
		*c = other;
}

void guard_set_requester(struct guard *g, int64_t uid)
{
	g->requester = uid;
}

void guard_set_games(struct guard *g, unsigned count, const struct scene_game *latest)
{
	for (unsigned i = 0; count > g->games && i < g->workers; i++)
		if (!worker_is_out(&g->worker[i]))
			rate_take(&g->rate, g->requester, g->now_ns);
	g->requester = -1;
	g->games = count;
	g->game = *latest;
}

uint64_t guard_user_wait_ns(const struct guard *g, int64_t uid, uint64_t now_ns)
{
	return rate_wait_ns(&g->rate, uid, g->p->user_evictions, now_ns);
}

/* Returns 0 if the requester may evict a worker now, else -GW_E_PERM with a message. */
int guard_requester_may(const struct guard *g, uint64_t now_ns, char *message, size_t size)
{
	uint64_t wait = guard_user_wait_ns(g, g->requester, now_ns);
	char limit[120];

	if (!wait)
		return 0;
	text_fit(message, size, "%s", user_text(g, g->requester, wait, limit));
	return -GW_E_PERM;
}

static int foreign_slot(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.home | w->observed.gpus, i) && g->gpu[i].foreign[0])
			return (int)i;
	return -1;
}

void guard_limit_text(const struct guard *g, const struct guard_worker *w, char *out,
		      size_t size)
{
	int slot = display_slot(g, w), other = foreign_slot(g, w);
	char limit[120];

	out[0] = '\0';
	if (other >= 0)
		text_fit(out, size,
			 "%s acts on %.48s: this service only reports what it would do. Stop "
			 "one of the two services",
			 g->gpu[other].foreign, g->gpu[other].uuid);
	else if (slot >= 0)
		display_text(g, slot, out, size);
	else if (w->demand.limited_ns > g->now_ns && w->demand.pressing)
		text_fit(out, size, "%s",
			 user_text(g, w->demand.strongest.uid, w->demand.limited_ns - g->now_ns,
				   limit));
}

/* Returns the level at which an eviction begins. Only the worker's kind sets it; max_level does
 * not limit it. */
unsigned guard_level_first(const struct guard_worker *w)
{
	return policy_kind_level(w->policy->kind);
}

static bool level_is_allowed(const struct guard_worker *w, unsigned level)
{
	if (level > w->knobs.max_level)
		return false;
	switch (level) {
	case LEVEL_CHECKPOINT: return guard_level_first(w) == LEVEL_CHECKPOINT;
	case LEVEL_STOP: return w->policy->match.unit || w->policy->match.container;
	case LEVEL_TERM:
	case LEVEL_KILL: return w->knobs.allow_kill;
	default: return true;
	}
}

unsigned guard_level_next(const struct guard_worker *w, unsigned level)
{
	for (level++; level < GUARD_LEVELS; level++)
		if (level_is_allowed(w, level))
			return level;
	return 0;
}

/* Corrects the level after a change of the policy. If the worker is evicted or is returning,
 * the level is kept, because it says how the worker was evicted. */
void guard_level_fit(struct guard_worker *w)
{
	const unsigned first = guard_level_first(w), level = w->intent.level;
	const enum guard_state s = worker_state(w);
	const bool kept = s == STATE_RECONCILE || s == STATE_EVICTED || s == STATE_QUIET ||
			  s == STATE_RESUME || s == STATE_VERIFY_UP;

	if (!kept && level != first && (level < first || !level_is_allowed(w, level)))
		w->intent.level = first;
}

unsigned guard_levels(const struct guard *g, unsigned worker)
{
	unsigned set = 0;

	if (worker >= g->workers)
		return 0;
	for (unsigned l = guard_level_first(&g->worker[worker]); l;
	     l = guard_level_next(&g->worker[worker], l))
		set |= BIT(l);
	return set;
}
