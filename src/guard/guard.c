/* guard: what comes in and what is fetched; see guard_internal.h for the rest. */
#include "guard_internal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- begin and end ---- */

static double ratio(double own, double standard)
{
	return isnan(own) ? standard : own;
}

static void resolve(struct policy_knobs *k, const struct policy_knobs *s)
{
	k->debounce_ns = policy_number(k->debounce_ns, s->debounce_ns);
	k->quiet_ns = policy_number(k->quiet_ns, s->quiet_ns);
	k->resident_ns = policy_number(k->resident_ns, s->resident_ns);
	k->drain_ns = policy_number(k->drain_ns, s->drain_ns);
	k->verify_ns = policy_number(k->verify_ns, s->verify_ns);
	k->budget_ns = policy_number(k->budget_ns, s->budget_ns);
	k->post_ns = policy_number(k->post_ns, s->post_ns);
	k->headroom_bytes = policy_number(k->headroom_bytes, s->headroom_bytes);
	k->headroom_ratio = ratio(k->headroom_ratio, s->headroom_ratio);
	k->min_vram_bytes = policy_number(k->min_vram_bytes, s->min_vram_bytes);
	k->util_ratio = ratio(k->util_ratio, s->util_ratio);
	k->util_ns = policy_number(k->util_ns, s->util_ns);
	if (k->max_level == UINT_MAX)
		k->max_level = s->max_level;
}

/* As of the last run; what is over by now is dropped at the first look. */
static void restore(struct guard *g, struct guard_worker *w, const struct guard_record *r)
{
	w->evicted = w->closed = w->ajar = r->evicted;
	w->stayed = r->evicted && r->mask; /* if it is there: nobody knows what it was told */
	w->contention = r->evicted && (r->mask & BIT(REASON_CONTENTION));
	w->idle = r->evicted && (r->mask & BIT(REASON_IDLE)) &&
		  (w->policy->idle_economy || w->policy->idle_after_ns);
	w->manual = r->hold != HOLD_EVICTED && (r->mask & BIT(REASON_MANUAL));
	w->hold = r->hold;
	w->until_wall_ns = r->hold_until_wall_ns;
	w->level = r->level;
	w->need_bytes = r->need_bytes;
	for (unsigned i = 0; i < r->gpus && i < POLICY_GPUS; i++) {
		int slot = guard_slot(g, r->gpu[i].uuid, true);

		if (slot < 0)
			continue;
		w->home |= UINT64_C(1) << slot;
		w->need_on[slot] = r->gpu[i].need_bytes;
		if (r->evicted &&
		    r->mask & BIT(REASON_BUDGET)) { /* until somebody has counted */
			g->gpu[slot].reasons |= BIT(REASON_BUDGET);
			text_fit(g->gpu[slot].evidence[REASON_BUDGET],
				 sizeof(g->gpu[slot].evidence[0]), "before a restart");
		}
	}
	for (; w->put_away_count < r->put_away_count && w->put_away_count < GUARD_TARGETS;
	     w->put_away_count++) {
		w->put_away[w->put_away_count].pid = r->put_away[w->put_away_count].pid;
		w->put_away[w->put_away_count].start_ticks =
			r->put_away[w->put_away_count].start_ticks;
	}
	for (; r->evicted && w->roots < r->roots && w->roots < GUARD_ROOTS; w->roots++) {
		w->root[w->roots].pid = r->root[w->roots].pid;
		w->root[w->roots].start_ticks = r->root[w->roots].start_ticks;
	}
	w->recalled = w->roots > 0;
	text_fit(w->evidence[REASON_CONTENTION], sizeof(w->evidence[0]), "before a restart");
}

void guard_bind(struct guard *g, struct guard_worker *w, const struct policy_worker *p)
{
	w->policy = p;
	w->knobs = p->knobs;
	resolve(&w->knobs, &g->p->standard);
	w->idle_after_ns = p->idle_after_ns ? p->idle_after_ns : UINT64_MAX;
	w->idle_w = p->idle_w;
	w->reload_j = p->reload_j;
	w->idle = w->idle && (p->idle_economy || p->idle_after_ns);
}

void guard_begin(struct guard *g, unsigned worker, const struct policy_worker *p,
		 const struct guard_record *records, unsigned n)
{
	struct guard_worker *w = &g->worker[worker];

	memset(w, 0, sizeof(*w));
	guard_bind(g, w, p);
	w->state = STATE_RECONCILE;
	w->until_ns = FOR_EVER;
	w->backoff = 1;
	w->answered = g->looks; /* it is judged by the next look */
	w->level = guard_level_first(w);
	w->dry = g->p->mode != GUARD_ENFORCE ? DRY_MODE : DRY_NOT;
	for (unsigned k = 0; records && k < n; k++)
		if (!strcmp(records[k].worker, p->name))
			restore(g, w, &records[k]);
	w->owed = w->dry && w->evicted;
	if (w->owed) {
		w->state = STATE_EVICTED;
		text_fit(w->why, sizeof(w->why), GUARD_OWED);
	}
}

/* Lowest priority first; of equals the one that is named first. */
void guard_rank(struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++) {
		unsigned at = i;

		for (; at > 0 && g->worker[g->order[at - 1]].policy->priority >
					 g->worker[i].policy->priority;
		     at--)
			g->order[at] = g->order[at - 1];
		g->order[at] = i;
	}
}

int guard_new(const struct policy *p, const struct guard_record *records, unsigned n,
	      struct guard **ret)
{
	struct guard *g = calloc(1, sizeof(*g));

	if (!g)
		return -GW_E_NOMEM;
	g->p = p;
	g->asker = -1;
	g->workers = p->workers < POLICY_WORKERS ? p->workers : POLICY_WORKERS;
	for (unsigned i = 0; i < g->workers; i++)
		guard_begin(g, i, &p->worker[i], records, n);
	guard_rank(g);
	*ret = g;
	return 0;
}

void guard_free(struct guard *g)
{
	free(g);
}

/* ---- what comes in ---- */

static bool same_gpu(const struct scene_gpu *a, const struct scene_gpu *b)
{
	return a->index == b->index && a->cuda == b->cuda && strcmp(a->uuid, b->uuid) == 0 &&
	       strcmp(a->pci, b->pci) == 0;
}

/* All that a verdict is made of is as it was.  Most looks are so, and comparing is much cheaper than asking
 * every rule of every process. */
static bool same_people(const struct scene *a, const struct scene *b)
{
	if (a->gpus != b->gpus || a->processes != b->processes || a->roots != b->roots)
		return false;
	for (unsigned i = 0; i < a->gpus; i++)
		if (!same_gpu(&a->gpu[i], &b->gpu[i]))
			return false;
	return memcmp(a->process, b->process, a->processes * sizeof(a->process[0])) == 0 &&
	       memcmp(a->root, b->root, a->roots * sizeof(a->root[0])) == 0;
}

/* Of the arrays only what is used: a scene is large, a look is frequent. */
static void copy_scene(struct scene *to, const struct scene *s)
{
	to->mono_ns = s->mono_ns;
	to->wall_ns = s->wall_ns;
	to->utc_offset_s = s->utc_offset_s;
	to->on_battery = s->on_battery;
	to->host_free_bytes = s->host_free_bytes;
	to->left_out = s->left_out;
	to->game_clients = s->game_clients;
	to->gpus = s->gpus < SCENE_GPUS ? s->gpus : SCENE_GPUS;
	to->processes = s->processes < SCENE_PROCESSES ? s->processes : SCENE_PROCESSES;
	to->roots = s->roots < SCENE_ROOTS ? s->roots : SCENE_ROOTS;
	memcpy(to->gpu, s->gpu, to->gpus * sizeof(s->gpu[0]));
	memcpy(to->process, s->process, to->processes * sizeof(s->process[0]));
	memcpy(to->root, s->root, to->roots * sizeof(s->root[0]));
}

/* Ends of holds are wall time in a record. */
static void place_holds(struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];
		uint64_t wall = g->scene.wall_ns;

		if (w->until_wall_ns)
			w->until_ns = w->until_wall_ns > wall
					      ? g->now_ns + (w->until_wall_ns - wall)
					      : g->now_ns;
		w->until_wall_ns = 0;
	}
}

/* A dry order is answered by the next look, as a quick worker would: those that waited when it began. */
static void answer_dry(struct guard *g)
{
	uint64_t last = g->next_id;

	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (!w->pending || !w->dry || w->order.id > last)
			continue;
		w->pending = false;
		w->answered = g->looks;
		guard_done(g, w);
		guard_steps(g);
	}
}

void guard_observe(struct guard *g, const struct scene *s)
{
	const bool same = g->looked && same_people(&g->scene, s);

	copy_scene(&g->scene, s);
	g->scene.game_clients += g->games;
	g->now_ns = s->mono_ns;
	g->wall_offset_ns = (int64_t)(s->wall_ns - s->mono_ns);
	if (!same)
		classify(g->p, &g->scene, g->verdict);
	demand_look(&g->demand, &g->scene, g->verdict);
	place_holds(g);
	answer_dry(g);
	g->looks++;
	guard_read_scene(g);
	g->looked = true;
	guard_steps(g);
}

void guard_outcome(struct guard *g, const struct guard_outcome *o, uint64_t now_ns)
{
	g->now_ns = now_ns;
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (!w->pending || w->order.id != o->order)
			continue;
		w->pending = w->fresh = false;
		w->answered = g->looks;
		/* What its adapter noted is kept with its record. */
		w->dirty = w->dirty || w->order.verb == ORDER_EVICT;
		if (o->ok && o->in_flight && w->order.verb == ORDER_DRAIN)
			guard_failed(g, w, true, o->message);
		else if (o->ok)
			guard_done(g, w);
		else if (o->no_answer && w->state == STATE_RESUME)
			guard_unanswered(g, w, o->message);
		else
			guard_failed(g, w, o->retry, o->message);
		guard_steps(g);
		return;
	}
}

void guard_set_reason(struct guard *g, const char *gpu, enum guard_reason r, bool on,
		      const char *evidence, uint64_t now_ns)
{
	int slot = guard_slot(g, gpu, true);

	if (slot < 0 || r >= GUARD_REASONS)
		return;

	struct guard_gpu *u = &g->gpu[slot];

	u->reasons = on ? u->reasons | BIT(r) : u->reasons & ~BIT(r);
	text_fit(u->evidence[r], sizeof(u->evidence[r]), "%s", evidence ? evidence : "");
	if (!on)
		u->end[r] = (struct guard_end){ .ns = 0 };
	g->now_ns = now_ns;
	if (!g->looked)
		return;
	guard_update_reasons(g);
	guard_steps(g);
}

void guard_set_reason_end(struct guard *g, const char *gpu, enum guard_reason r,
			  const char *clears, uint64_t clears_ns)
{
	int slot = guard_slot(g, gpu, false);

	if (slot < 0 || r >= GUARD_REASONS || !(g->gpu[slot].reasons & BIT(r)))
		return;
	g->gpu[slot].end[r].ns = clears_ns;
	text_fit(g->gpu[slot].end[r].clears, sizeof(g->gpu[slot].end[r].clears), "%s", clears);
}

int guard_trust_gpu(struct guard *g, const char *gpu, uint64_t now_ns)
{
	int slot = guard_slot(g, gpu, false);

	if (slot < 0 || !g->gpu[slot].lost)
		return 0;
	if (!g->gpu[slot].well_ns)
		return -GW_E_STATE;
	g->gpu[slot].lost = false;
	g->now_ns = now_ns;
	guard_update_reasons(g);
	guard_steps(g);
	return 0;
}

void guard_set_heat(struct guard *g, const char *gpu, unsigned heat, const char *why)
{
	int slot = guard_slot(g, gpu, true);

	if (slot < 0)
		return;
	g->gpu[slot].heat = heat;
	text_fit(g->gpu[slot].heat_why, sizeof(g->gpu[slot].heat_why), "%s", why ? why : "");
}

/* ---- what is fetched ---- */

/* Also while its door is closed: it is owed an order that opens it. */
bool guard_owes(const struct guard_worker *w)
{
	return w->owed || ((w->evicted || w->closed) && !w->dry);
}

static void fill_record(const struct guard *g, const struct guard_worker *w,
			struct guard_record *r)
{
	memset(r, 0, sizeof(*r));
	text_fit(r->worker, sizeof(r->worker), "%s", w->policy->name);
	r->mask = w->mask;
	r->level = w->level;
	r->evicted = guard_owes(w);
	r->need_bytes = w->need_bytes;
	for (unsigned i = 0; i < g->gpus && r->gpus < POLICY_GPUS; i++) {
		if (!has(w->home, i))
			continue;
		text_fit(r->gpu[r->gpus].uuid, sizeof(r->gpu[0].uuid), "%s", g->gpu[i].uuid);
		r->gpu[r->gpus++].need_bytes = w->need_on[i];
	}
	r->hold = w->hold;
	r->wall_ns = g->now_ns + (uint64_t)g->wall_offset_ns;
	if (w->until_wall_ns)
		r->hold_until_wall_ns = w->until_wall_ns;
	else if (w->until_ns != FOR_EVER)
		r->hold_until_wall_ns = w->until_ns + (uint64_t)g->wall_offset_ns;
	for (unsigned i = 0; i < w->put_away_count; i++) {
		r->put_away[i].pid = w->put_away[i].pid;
		r->put_away[i].start_ticks = w->put_away[i].start_ticks;
	}
	r->put_away_count = w->put_away_count;
	for (; r->evicted && r->roots < w->roots; r->roots++) {
		r->root[r->roots].pid = w->root[r->roots].pid;
		r->root[r->roots].start_ticks = w->root[r->roots].start_ticks;
	}
}

bool guard_next_record(struct guard *g, struct guard_record *ret)
{
	/* Before the first look the time of day is not known. */
	for (unsigned i = 0; g->looked && i < g->workers; i++) {
		if (!g->worker[i].dirty)
			continue;
		g->worker[i].dirty = false;
		fill_record(g, &g->worker[i], ret);
		return true;
	}
	return false;
}

int guard_worker_record(const struct guard *g, unsigned worker, struct guard_record *ret)
{
	if (!g->looked || worker >= g->workers)
		return -GW_E_NOENT;
	fill_record(g, &g->worker[worker], ret);
	return 0;
}

uint64_t guard_last_id(const struct guard *g)
{
	return g->next_id;
}

bool guard_next_order(struct guard *g, struct guard_order *ret)
{
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (!w->fresh || w->dirty) /* its record comes first */
			continue;
		w->fresh = false;
		*ret = w->order;
		return true;
	}
	return false;
}

bool guard_next_decision(struct guard *g, struct guard_decision *ret)
{
	if (!g->waiting)
		return false;
	*ret = g->decision[g->first];
	g->first = (g->first + 1) % GUARD_DECISIONS;
	g->waiting--;
	return true;
}
