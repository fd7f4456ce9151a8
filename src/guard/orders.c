/* guard_order: the ladder (GUARD-MACHINE.md), the orders on it, and the proof that memory was freed. */
#include "guard_internal.h"

#include <string.h>

/* ---- the ladder ---- */

/* The least that frees memory.  Naming the kind allows it, whatever max_level says. */
unsigned guard_level_first(const struct guard_worker *w)
{
	return policy_kind_level(w->policy->kind);
}

static bool can(const struct guard_worker *w, unsigned level)
{
	if (level > w->knobs.max_level)
		return false;
	switch (level) {
	case 3: return guard_level_first(w) == 3;
	case 4: return w->policy->match.unit || w->policy->match.container;
	case 5:
	case 6: return w->knobs.allow_kill;
	default: return true;
	}
}

unsigned guard_level_next(const struct guard_worker *w, unsigned level)
{
	for (level++; level <= 6; level++)
		if (can(w, level))
			return level;
	return 0;
}

/* Where it stands on the ladder, under numbers that came since.  Of who is out it is how that was done. */
void guard_level_fit(struct guard_worker *w)
{
	unsigned first = guard_level_first(w);
	bool settled = w->state == STATE_RECONCILE || w->state == STATE_EVICTED ||
		       w->state == STATE_QUIET || w->state == STATE_RESUME ||
		       w->state == STATE_VERIFY_UP;

	if (!settled && w->level != first && (w->level < first || !can(w, w->level)))
		w->level = first;
}

/* ---- orders ---- */

/* NULL: without a start time it cannot be told from who comes after it, it is there already, or is one too many. */
static struct guard_target *add_target(struct guard_order *o, int64_t pid, uint64_t start_ticks)
{
	if (!start_ticks)
		return NULL;
	for (unsigned i = 0; i < o->targets; i++)
		if (o->target[i].pid == pid && o->target[i].start_ticks == start_ticks)
			return NULL;
	if (o->targets == GUARD_TARGETS) {
		o->more = true;
		return NULL;
	}
	o->target[o->targets].pid = pid;
	o->target[o->targets].start_ticks = start_ticks;
	return &o->target[o->targets++];
}

static bool is_below(const struct scene_process *p, int64_t pid)
{
	for (unsigned i = 0; i < SCENE_ANCESTORS && p->ancestor[i]; i++)
		if (p->ancestor[i] == pid)
			return true;
	return false;
}

/* What makes it the worker's: who is or was above it, or what it is. */
static void say_by_what(const struct scene *s, unsigned worker, const struct scene_process *p,
			struct guard_target *t)
{
	t->itself = true;
	for (unsigned i = 0; i < s->roots; i++) {
		const struct scene_root *r = &s->root[i];

		if (!scene_root_of(r, worker))
			continue;
		if (is_below(p, r->pid) || (scene_is(p, r) && r->how == ROOT_KEPT))
			t->itself = false;
		if (scene_is(p, r))
			t->print = r->print;
	}
}

static void name_roots(const struct scene *s, struct guard_order *o)
{
	for (unsigned i = 0; i < s->roots && o->roots < sizeof(o->root) / sizeof(o->root[0]);
	     i++) {
		if (!scene_root_of(&s->root[i], o->worker))
			continue;
		o->root[o->roots].pid = s->root[i].pid;
		o->root[o->roots].print = s->root[i].print;
		o->root[o->roots++].start_ticks = s->root[i].start_ticks;
	}
}

static void aim(const struct guard *g, const struct guard_worker *w, struct guard_order *o)
{
	name_roots(&g->scene, o);
	if (o->verb == ORDER_RESUME && w->put_away_count) {
		for (unsigned i = 0; i < w->put_away_count; i++)
			(void)add_target(o, w->put_away[i].pid, w->put_away[i].start_ticks);
		return;
	}
	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];
		struct guard_target *t = NULL;

		if (g->verdict[i].class == CLASS_WORKER &&
		    g->verdict[i].worker == (int)o->worker && !p->orphan)
			t = add_target(o, p->pid, p->start_ticks);
		if (t)
			say_by_what(&g->scene, o->worker, p, t);
	}
}

static void name_gpus(const struct guard *g, const struct guard_worker *w,
		      struct guard_order *o)
{
	size_t len = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		if (!has(w->home, i) || len + strlen(g->gpu[i].uuid) + 2 > sizeof(o->gpus))
			continue;
		text_fit(o->gpus + len, sizeof(o->gpus) - len, "%s%s", len ? "," : "",
			 g->gpu[i].uuid);
		len += strlen(o->gpus + len);
	}
}

static void put_away(struct guard_worker *w)
{
	for (unsigned i = 0; i < w->order.targets; i++) {
		w->put_away[i].pid = w->order.target[i].pid;
		w->put_away[i].start_ticks = w->order.target[i].start_ticks;
	}
	w->put_away_count = w->order.targets;
}

void guard_issue(struct guard *g, struct guard_worker *w, enum guard_verb verb,
		 uint64_t deadline_ns)
{
	struct guard_order *o = &w->order;

	memset(o, 0, sizeof(*o));
	o->id = ++g->next_id;
	o->verb = verb;
	o->worker = (unsigned)(w - g->worker);
	o->level = verb == ORDER_CLOSE ? 1 : verb == ORDER_NOTIFY ? 0 : w->level;
	o->deadline_ns = deadline_ns;
	o->bytes = verb == ORDER_RESUME ? w->need_bytes : w->bytes;
	o->start = verb == ORDER_RESUME && !w->present;
	name_gpus(g, w, o);
	guard_mask_text(guard_effective(w), ", ", o->reason, sizeof(o->reason));
	aim(g, w, o);
	if (verb == ORDER_EVICT) {
		w->evicted = true;
		if (w->level == 3)
			put_away(w);
	}
	if (verb == ORDER_CLOSE) {
		w->dirty = w->dirty || !w->closed;
		w->closed = true; /* until it is known to be open again */
		w->ajar = false;
	}
	w->pending = true;
	w->fresh = !w->dry;
	if (verb == ORDER_EVICT || verb == ORDER_RESUME)
		w->dirty = true;
}

/* Whoever acts answers by the deadline.  Were an answer lost, the worker must not wait for ever; but a
 * checkpoint that still runs is never taken for failed. */
void guard_overdue(struct guard *g, struct guard_worker *w)
{
	bool checkpoint = w->order.verb == ORDER_EVICT && w->order.level == 3;

	if (!w->pending || w->dry || checkpoint || g->now_ns <= w->order.deadline_ns + CALL_NS)
		return;
	w->pending = w->fresh = false;
	w->told = w->told || w->order.verb == ORDER_EVICT;
	guard_failed(g, w, false, "no answer by the deadline");
}

/* ---- proof ---- */

void guard_begin_eviction(struct guard *g, struct guard_worker *w)
{
	bool known;

	guard_free_and_others(g, w, &w->base_free, &w->base_others, &known);
	w->base_bytes = w->bytes;
	w->begun_ns = g->now_ns;
	w->tries = 0;
	w->retry_ns = 0;
}

/* It took more after it was told to leave: what must become free is counted from there. */
void guard_grown(struct guard *g, struct guard_worker *w)
{
	bool known;

	if (w->bytes <= w->base_bytes)
		return;
	guard_free_and_others(g, w, &w->base_free, &w->base_others, &known);
	w->base_bytes = w->bytes;
}

uint64_t guard_gone(const struct guard_worker *w)
{
	return w->base_bytes > w->bytes ? w->base_bytes - w->bytes : 0;
}

/* Told to leave on its way back, it holds no more than when it was out. */
static bool still_out(const struct guard_worker *w)
{
	return w->returning && w->bytes <= w->residue_bytes + SLACK_BYTES;
}

bool guard_provable(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++) {
		const struct scene_gpu *u = g->gpu[i].now;

		if (has(w->gpus, i) && !(u && u->memory_known) && (!u || u->hidden || w->delta))
			return false;
	}
	return true;
}

/* The tree fell by 75 % of what it held (or had taken nothing yet), and the device's free memory rose to
 * match: within 64 MiB, or what others took meanwhile. */
bool guard_freed(const struct guard *g, const struct guard_worker *w)
{
	uint64_t free_now, others;
	bool known;

	if (w->bytes > w->base_bytes / 4 && !still_out(w))
		return false;
	guard_free_and_others(g, w, &free_now, &others, &known);
	if (w->dry)
		return true;
	if (!known || w->delta)
		return guard_provable(g, w);

	uint64_t took = others > w->base_others ? others - w->base_others : 0;

	return free_now + took + SLACK_BYTES >= w->base_free + guard_gone(w);
}

void guard_ended(struct guard_worker *w, enum guard_result result)
{
	w->ended = result;
	w->ended_level = w->level;
	w->ended_bytes = result == RESULT_FREED ? guard_gone(w) : 0;
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
