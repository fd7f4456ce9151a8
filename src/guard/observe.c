/* guard_read_scene: a scene becomes facts.  Which GPUs can be trusted, which worker holds how much where,
 * what speaks against each worker, and which of them a demand is against. */
#include "guard_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- GPUs ---- */

int guard_slot(struct guard *g, const char *uuid, bool make)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (!strcmp(g->gpu[i].uuid, uuid))
			return (int)i;
	if (!make || g->gpus == SCENE_GPUS)
		return -1;

	struct guard_gpu *u = &g->gpu[g->gpus];

	text_fit(u->uuid, sizeof(u->uuid), "%s", uuid);
	u->at = -1;
	return (int)g->gpus++;
}

static bool anybody_answers(const struct guard *g)
{
	for (unsigned i = 0; i < g->scene.gpus; i++)
		if (g->scene.gpu[i].health == SCENE_OK && !g->scene.gpu[i].errors)
			return true;
	return false;
}

/* A record of an earlier run names it, and it is not in this machine any more. */
static bool is_removed(const struct guard *g, const struct guard_gpu *u)
{
	return u->missing_ns && g->now_ns - u->missing_ns >= WELL_NS;
}

static void overlay(struct guard *g, struct guard_gpu *u)
{
	const struct scene_gpu *n = u->now;
	bool good = n && (n->health == SCENE_OK || n->health == SCENE_ASLEEP) && !n->errors;

	u->seen = u->seen || n;
	if (u->seen || !anybody_answers(g))
		u->missing_ns = 0;
	else if (!u->missing_ns)
		u->missing_ns = g->now_ns;
	u->hung = n && n->health == SCENE_HUNG;
	u->clean = good ? u->clean + 1 : 0;
	if (n && (n->health == SCENE_BLIND || n->errors > BLIND_ERRORS))
		u->blind = true;
	else if (u->clean >= CLEAN_LOOKS)
		u->blind = false;
	if (!n || n->health == SCENE_LOST)
		u->lost = true;
	if (!good)
		u->well_ns = 0;
	else if (!u->well_ns)
		u->well_ns = g->now_ns;
	if (u->lost && u->well_ns && g->now_ns - u->well_ns >= WELL_NS)
		u->lost = false;
	u->stale = !good && !u->lost;
	u->free_bytes = n && n->memory_known ? n->free_bytes : 0;
	u->coming_bytes = 0;
}

static void look_at_gpus(struct guard *g)
{
	for (unsigned i = 0; i < g->gpus; i++) {
		g->gpu[i].at = -1;
		g->gpu[i].now = NULL;
	}
	for (unsigned i = 0; i < g->scene.gpus; i++) {
		int slot = guard_slot(g, g->scene.gpu[i].uuid, true);

		if (slot < 0)
			continue;
		g->gpu[slot].at = (int)i;
		g->gpu[slot].now = &g->scene.gpu[i];
	}
	for (unsigned i = 0; i < g->gpus; i++)
		overlay(g, &g->gpu[i]);
}

/* ---- who holds what ---- */

/* Selectors as the scene can answer them: index, UUID or its beginning, all. */
static bool selected(const struct scene_gpu *u, const char *selector)
{
	char *end;
	unsigned long n = strtoul(selector, &end, 10);

	if (!strcmp(selector, "all"))
		return true;
	if (*selector && !*end)
		return n == u->index;
	return strlen(selector) >= 4 && !strncmp(u->uuid, selector, strlen(selector));
}

static uint64_t declared(const struct guard *g, const struct policy_worker *p)
{
	uint64_t set = 0;

	for (unsigned i = 0; i < g->gpus; i++)
		for (unsigned k = 0; g->gpu[i].now && k < p->gpu_count; k++)
			if (selected(g->gpu[i].now, p->gpus[k]))
				set |= UINT64_C(1) << i;
	return set;
}

/* Of a GPU, without those of one worker. */
static uint64_t others_on(const struct guard *g, unsigned at, int worker)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];
		bool own =
			g->verdict[i].class == CLASS_WORKER && g->verdict[i].worker == worker;

		if (p->gpu == at && !own && p->bytes_known)
			sum += p->bytes;
	}
	return sum;
}

static void hold_bytes(struct guard *g, struct guard_worker *w, const struct scene_process *p)
{
	int slot = guard_slot(g, g->scene.gpu[p->gpu].uuid, false);
	const struct scene_gpu *u = &g->scene.gpu[p->gpu];

	if (slot < 0)
		return;
	w->home |= UINT64_C(1) << slot;
	if (g->gpu[slot].stale)
		return;
	if (p->bytes_known) {
		w->held[slot] += p->bytes;
		return;
	}
	/* It does not tell: what the device has in use and nobody else has. */
	uint64_t others = others_on(g, p->gpu, (int)(w - g->worker));

	w->delta = true;
	w->held[slot] = u->memory_known && u->used_bytes > others ? u->used_bytes - others : 0;
}

/* Nothing in the policy finds it any more, but it is the same process that was told to leave. */
static bool lingers(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->scene.roots; i++) {
		const struct scene_root *r = &g->scene.root[i];

		if (r->how != ROOT_FORMER || r->worker != (unsigned)(w - g->worker))
			continue;
		for (unsigned k = 0; k < w->roots; k++)
			if (w->root[k].pid == r->pid &&
			    w->root[k].start_ticks == r->start_ticks)
				return true;
	}
	return false;
}

/* Who restarts between two looks has forgotten what it was told. */
static void look_for_roots(struct guard *g, struct guard_worker *w)
{
	unsigned known = w->roots, same = 0;
	const unsigned room = sizeof(w->root) / sizeof(w->root[0]);
	const struct scene *s = &g->scene;

	w->lingers = lingers(g, w);
	for (unsigned i = 0; i < s->roots; i++) {
		if (!scene_root_of(&s->root[i], (unsigned)(w - g->worker)))
			continue;
		w->present = true;
		for (unsigned k = 0; k < known; k++)
			same += w->root[k].pid == s->root[i].pid &&
				w->root[k].start_ticks == s->root[i].start_ticks;
	}
	w->barred = w->present && known && !same && w->lingers && w->put_away_count;
	w->present = w->present && !w->barred;
	if (!w->present)
		return;
	w->replaced = w->replaced || (known && !same && (!w->recalled || w->lingers));
	w->recalled = false;
	w->roots = 0;
	for (unsigned i = 0; i < s->roots && w->roots < room; i++) {
		if (!scene_root_of(&s->root[i], (unsigned)(w - g->worker)))
			continue;
		w->root[w->roots].pid = s->root[i].pid;
		w->root[w->roots++].start_ticks = s->root[i].start_ticks;
	}
}

/* Where most is free. */
static int roomiest(const struct guard *g)
{
	int best = -1;

	for (unsigned i = 0; i < g->gpus; i++)
		if (g->gpu[i].now && !g->gpu[i].lost && !g->gpu[i].stale &&
		    (best < 0 || g->gpu[i].free_bytes > g->gpu[best].free_bytes))
			best = (int)i;
	return best;
}

/* A board that was taken out does not keep a worker out that may run on any: it comes back where there is
 * most room.  One that was put away can only return to where it was. */
static void leave_removed(struct guard *g, struct guard_worker *w)
{
	const int to = roomiest(g);

	if (!guard_is_out(w) || w->policy->gpu_count || w->put_away_count || to < 0)
		return;
	for (unsigned i = 0; i < g->gpus; i++) {
		if (!(w->home & UINT64_C(1) << i) || !is_removed(g, &g->gpu[i]))
			continue;
		w->home = (w->home & ~(UINT64_C(1) << i)) | UINT64_C(1) << to;
		w->need_on[to] += w->need_on[i];
		w->need_on[i] = 0;
	}
}

static void look_for_worker(struct guard *g, struct guard_worker *w)
{
	int self = (int)(w - g->worker);
	uint64_t home = w->home;

	/* Of a GPU that could not be read this time, what was read last still holds. */
	w->home = 0;
	for (unsigned i = 0; i < g->gpus; i++) {
		if (!g->gpu[i].stale)
			w->held[i] = 0;
		/* Only where it runs can be seen that it is elsewhere now. */
		if (g->gpu[i].stale || g->gpu[i].lost || guard_is_out(w))
			w->home |= home & UINT64_C(1) << i;
	}
	w->present = w->delta = false;
	look_for_roots(g, w);
	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];

		if (w->barred || g->verdict[i].class != CLASS_WORKER ||
		    g->verdict[i].worker != self || p->orphan || p->gpu >= g->scene.gpus)
			continue;
		w->present = true;
		hold_bytes(g, w, p);
	}
	if (!w->home)
		w->home = home;
	leave_removed(g, w);
	w->gpus = w->home | declared(g, w->policy);
}

/* A dry eviction frees memory in our books alone. */
static void pretend(struct guard *g, struct guard_worker *w)
{
	w->pretended = 0;
	for (unsigned i = 0; w->virtual_out && i < g->gpus; i++) {
		g->gpu[i].free_bytes += w->held[i];
		w->pretended += w->held[i];
		w->held[i] = 0;
	}
}

enum guard_dry guard_is_dry(const struct guard *g, const struct guard_worker *w)
{
	bool simulated = false, foreign = false;

	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && g->gpu[i].now) {
			simulated = simulated || g->gpu[i].now->simulated;
			foreign = foreign || g->gpu[i].foreign[0];
		}
	if (g->p->mode != GUARD_ENFORCE)
		return DRY_MODE;
	if (foreign)
		return DRY_FOREIGN;
	return simulated && !g->p->simulated_too ? DRY_SIMULATED : DRY_NOT;
}

static void add_up(struct guard *g, struct guard_worker *w)
{
	bool runs = w->state == STATE_ACTIVE || w->state == STATE_SUSPECT;

	w->bytes = 0;
	for (unsigned i = 0; i < g->gpus; i++) {
		w->bytes += w->held[i];
		if (runs && w->held[i] > w->need_on[i])
			w->need_on[i] = w->held[i];
	}
	if (runs && w->bytes > w->need_bytes)
		w->need_bytes = w->bytes;
	w->starting = w->starting && !w->present;
	w->rematched = w->rematched && !w->present;
	w->seen_ns = w->present ? g->now_ns : w->seen_ns;
	w->dry = guard_is_dry(g, w);
	w->owed = w->owed || (!g->looked && w->dry && w->evicted);
}

/* Memory is read before the lists: what somebody took in between is in the lists alone. */
static uint64_t free_at_most(const struct scene_gpu *u, uint64_t held)
{
	uint64_t all = u->used_bytes + u->free_bytes;

	return held < all && all - held < u->free_bytes ? all - held : u->free_bytes;
}

void guard_free_and_others(const struct guard *g, const struct guard_worker *w,
			   uint64_t *ret_free, uint64_t *ret_others, bool *ret_known)
{
	uint64_t others;

	*ret_free = *ret_others = 0;
	*ret_known = true;
	for (unsigned i = 0; i < g->gpus; i++) {
		if (!has(w->gpus, i))
			continue;
		if (!g->gpu[i].now || !g->gpu[i].now->memory_known) {
			*ret_known = false;
			continue;
		}
		others = others_on(g, (unsigned)g->gpu[i].at, (int)(w - g->worker));
		*ret_free += free_at_most(g->gpu[i].now, others + w->held[i]);
		*ret_others += others;
	}
}

/* Cannot be judged now: one of its GPUs does not answer as it should. */
bool guard_unseen(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && (g->gpu[i].blind || g->gpu[i].hung))
			return true;
	return false;
}

bool guard_lost(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && !g->gpu[i].lost)
			return false;
	return w->gpus != 0;
}

/* ---- reasons ---- */

/* The same local hour is not lived twice: when clocks go back, local time stands until it has caught up. */
static void local_time(struct guard *g)
{
	int64_t local = (int64_t)(g->scene.wall_ns / NS_PER_S) + g->scene.utc_offset_s;

	if (g->looked && g->scene.utc_offset_s < g->utc_offset_s)
		g->local_floor_s = g->local_s;
	g->utc_offset_s = g->scene.utc_offset_s;
	if (local < g->local_floor_s && g->local_floor_s - local <= 2 * 3600)
		local = g->local_floor_s;
	else
		g->local_floor_s = 0;
	g->local_s = local;
}

static bool scheduled(const struct guard *g, const struct guard_worker *w)
{
	time_t t = (time_t)g->local_s;
	struct tm local;

	if (!g->local_s || !w->policy->schedules || !gmtime_r(&t, &local))
		return false;
	return policy_in_schedule(w->policy, &local);
}

static bool on_battery(const struct guard *g, struct guard_worker *w)
{
	if (!w->policy->ac_only)
		return false;
	if (g->scene.on_battery)
		w->battery_ns = g->now_ns;
	return w->battery_ns && g->now_ns - w->battery_ns < AC_NS;
}

static void set(struct guard_worker *w, enum guard_reason r, const char *evidence)
{
	w->mask |= BIT(r);
	text_fit(w->evidence[r], sizeof(w->evidence[r]), "%s", evidence);
}

static void reasons_of_gpus(const struct guard *g, struct guard_worker *w)
{
	char text[sizeof(w->evidence[0])];

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];

		if (!has(w->gpus, i))
			continue;
		for (unsigned r = 0; r < GUARD_REASONS; r++) {
			if (!(u->reasons & BIT(r)))
				continue;
			text_fit(text, sizeof(text), "%.48s: %s", u->uuid, u->evidence[r]);
			set(w, r, text);
		}
		if (u->lost) {
			text_fit(text, sizeof(text), "%.80s does not answer", u->uuid);
			set(w, REASON_HEALTH, text);
		}
		if (u->blind && g->p->evict_when_blind) {
			text_fit(text, sizeof(text), "%.80s cannot be read", u->uuid);
			set(w, REASON_BLIND, text);
		}
	}
}

static void end_hold(struct guard *g, struct guard_worker *w)
{
	if (w->until_ns == FOR_EVER || g->now_ns < w->until_ns)
		return;
	if (w->hold == HOLD_NONE && !w->manual)
		return;
	w->hold = HOLD_NONE;
	w->manual = false;
	w->until_ns = FOR_EVER;
	w->dirty = true;
	guard_say(g, w, w->state, "hold", "its time is over");
}

static void mask_of(struct guard *g, struct guard_worker *w)
{
	char text[200];

	end_hold(g, w);
	w->mask = 0;
	if (w->contention)
		w->mask |= BIT(REASON_CONTENTION); /* its evidence stays that of the cause */
	if (w->hold == HOLD_EVICTED || w->manual)
		set(w, REASON_MANUAL, w->hold ? "hold evicted" : "evict command");
	if (scheduled(g, w)) {
		guard_span_text(g, w, text, sizeof(text));
		set(w, REASON_SCHEDULE, text);
	}
	if (on_battery(g, w))
		set(w, REASON_BATTERY, "on battery, and the worker is for AC alone");
	if (w->idle)
		w->mask |= BIT(REASON_IDLE); /* likewise */
	if (w->reserved) {
		guard_rooms_text(g, w, text, sizeof(text));
		set(w, REASON_RESERVED, text);
	}
	reasons_of_gpus(g, w);
	guard_note_since(g, w);
}

void guard_update_reasons(struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++)
		mask_of(g, &g->worker[i]);
}

/* ---- demand ---- */

bool guard_is_out(const struct guard_worker *w)
{
	return w->state != STATE_ACTIVE && w->state != STATE_SUSPECT &&
	       w->state != STATE_RECONCILE;
}

bool guard_leaving(const struct guard_worker *w)
{
	return guard_is_out(w) && guard_effective(w) && w->state != STATE_STUCK;
}

/* Would it stand in somebody's way on this GPU?  As if it held its need, where it is out. */
static bool in_the_way(const struct guard *g, const struct guard_worker *w, unsigned slot,
		       const struct demand_case *c)
{
	const struct guard_gpu *u = &g->gpu[slot];
	uint64_t have = u->free_bytes + u->coming_bytes, back = 0;
	bool out = guard_is_out(w) || (w->state == STATE_RECONCILE && w->evicted);

	if (c->kind == DEMAND_NONE || (!w->held[slot] && !out))
		return false;
	if (c->more_bytes == UINT64_MAX || !u->now->memory_known)
		return true;
	if (out && w->need_on[slot] > w->held[slot])
		back = w->need_on[slot] - w->held[slot];
	return have < back + c->more_bytes + demand_headroom(&w->knobs, u->now->total_bytes);
}

static void demand_on(struct guard *g, struct guard_worker *w)
{
	struct demand_case c, told;
	bool withheld = false;

	w->against = false;
	for (unsigned i = 0; i < g->gpus; i++) {
		struct guard_gpu *u = &g->gpu[i];

		if (!has(w->home, i) || !u->now || u->stale)
			continue;
		demand_judge(&g->demand, g->p, &w->knobs, &g->scene, g->verdict,
			     (unsigned)u->at, &c);
		guard_hear_others(g, w, i, &c);
		if (!in_the_way(g, w, i, &c))
			continue;
		if (guard_withholds(g, w, i, &c)) {
			told = c;
			withheld = true;
			continue;
		}
		if (!w->against || c.kind > w->demand.kind || c.urgent) {
			w->demand = c;
			w->where = (int)i;
		}
		w->against = true;
	}
	guard_limit_scene(g, w, withheld ? &told : NULL);
	/* What it frees need not be freed by those of a higher priority. */
	if (guard_leaving(w) || (w->against && w->hold != HOLD_ACTIVE))
		for (unsigned i = 0; i < g->gpus; i++)
			g->gpu[i].coming_bytes += w->held[i];
}

static void count_demand(struct guard *g, struct guard_worker *w)
{
	if (w->against) {
		w->against_ns = w->against_looks ? w->against_ns : g->now_ns;
		w->against_looks++;
		w->calm_looks = 0;
		w->calm_ns = 0;
		return;
	}
	w->calm_ns = w->calm_looks ? w->calm_ns : g->now_ns;
	w->calm_looks++;
	if (w->calm_looks >= CALM_LOOKS)
		w->against_looks = 0;
}

bool guard_unread(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->gpus, i) && g->gpu[i].stale)
			return true;
	return false;
}

void guard_read_scene(struct guard *g)
{
	look_at_gpus(g);
	local_time(g);
	for (unsigned i = 0; i < g->workers; i++) {
		look_for_worker(g, &g->worker[i]);
		pretend(g, &g->worker[i]);
	}
	for (unsigned i = 0; i < g->workers; i++)
		add_up(g, &g->worker[i]);
	for (unsigned i = 0; i < g->workers; i++)
		guard_idle_look(g, &g->worker[i]);
	guard_reserve_look(g);
	guard_update_reasons(g);
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[g->order[i]];

		demand_on(g, w);
		/* A reading that failed is neither a sample for nor one against. */
		if (!guard_unread(g, w))
			count_demand(g, w);
	}
}
