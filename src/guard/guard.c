/* Creates and frees a guard, gives it its input, and returns its records and orders.
 * guard_internal.h lists the other files. */
#include "guard_internal.h"

#include <stdlib.h>
#include <string.h>

const char guard_must_resume_text[] =
	"it is evicted, and this mode resumes no worker; to resume it, run gpuward guard mode "
	"enforce";

/* Restores the reasons of the last run from a record. The first scene ends those that no longer
 * hold. */
static void restore_reasons(struct guard *g, struct guard_worker *w,
			    const struct guard_record *r)
{
	struct worker_reasons *of = &w->reasons;

	of->person = r->hold == HOLD_EVICTED        ? PERSON_HOLD_EVICTED
		     : r->hold == HOLD_ACTIVE       ? PERSON_HOLD_ACTIVE
		     : r->mask & BIT(REASON_MANUAL) ? PERSON_EVICT
						    : PERSON_NONE;
	of->until_wall_ns = r->hold_until_wall_ns;
	of->record_wall_ns = r->wall_ns;
	of->manual_wall_ns = r->mask & BIT(REASON_MANUAL) ? r->manual_wall_ns : 0;
	text_fit(of->evidence[REASON_CONTENTION], sizeof(of->evidence[0]),
		 "a demand from before the service started");
	if (!r->evicted)
		return;
	if (r->mask & BIT(REASON_CONTENTION))
		w->demand.phase = PHASE_SURE;
	w->idle.unload = (r->mask & BIT(REASON_IDLE)) &&
			 (w->policy->idle_economy || w->policy->idle_after_ns);
	for (unsigned i = 0; r->mask & BIT(REASON_BUDGET) && i < g->gpus; i++) {
		/* the reason holds until guard_set_reason() ends it */
		if (!has(w->observed.home, i))
			continue;
		g->gpu[i].reasons |= BIT(REASON_BUDGET);
		text_fit(g->gpu[i].evidence[REASON_BUDGET], sizeof(g->gpu[i].evidence[0]),
			 "a cap was exceeded before the service started");
	}
}

static void restore_worker(struct guard *g, struct guard_worker *w,
			   const struct guard_record *r)
{
	struct worker_observed *o = &w->observed;
	struct worker_intent *i = &w->intent;

	if (r->evicted) {
		/* If a reason other than idle applied when the record was made, the eviction
		 * may have been incomplete, so STAGE_STUCK checks the memory again. Otherwise
		 * the worker counts as evicted. A worker that was only idle loads its model
		 * when a client requests it. */
		i->stage = r->mask & ~BIT(REASON_IDLE) ? STAGE_STUCK : STAGE_OUT;
		i->real = true;
		w->admission = ADMISSION_UNVERIFIED;
		o->roots = r->roots < GUARD_ROOTS ? r->roots : GUARD_ROOTS;
		memcpy(o->root, r->root, sizeof(o->root));
		o->roots_recorded = o->roots > 0;
	}
	i->level = r->level;
	i->put_away_count =
		r->put_away_count < GUARD_TARGETS ? r->put_away_count : GUARD_TARGETS;
	memcpy(i->put_away, r->put_away, sizeof(i->put_away));
	o->need_bytes = r->need_bytes;
	for (unsigned k = 0; k < r->gpus && k < POLICY_GPUS; k++) {
		int slot = guard_slot(g, r->gpu[k].uuid, true);

		if (slot < 0)
			continue;
		o->home |= UINT64_C(1) << slot;
		o->need_on[slot] = r->gpu[k].need_bytes;
	}
	restore_reasons(g, w, r);
}

void guard_bind(struct guard *g, struct guard_worker *w, const struct policy_worker *p)
{
	w->policy = p;
	w->knobs = p->knobs;
	policy_knobs_resolve(&w->knobs, &g->p->standard);
	w->idle.after_ns = p->idle_after_ns ? p->idle_after_ns : UINT64_MAX;
	w->idle.idle_w = p->idle_w;
	w->idle.reload_j = p->reload_j;
	w->idle.unload = w->idle.unload && (p->idle_economy || p->idle_after_ns);
}

void guard_begin(struct guard *g, unsigned worker, const struct policy_worker *p,
		 const struct guard_record *records, unsigned n)
{
	struct guard_worker *w = &g->worker[worker];

	memset(w, 0, sizeof(*w));
	guard_bind(g, w, p);
	w->reasons.until_ns = FOR_EVER;
	w->backoff.quiet_factor = 1;
	/* the guard decides about the worker only with later scenes */
	w->order.answered = g->scenes;
	w->intent.level = guard_level_first(w);
	w->dry = guard_find_dry(g, w);
	for (unsigned k = 0; records && k < n; k++)
		if (!strcmp(records[k].worker, p->name))
			restore_worker(g, w, &records[k]);
	if (worker_resume_forbidden(w)) {
		w->presence = PRESENCE_HERE;
		text_fit(w->report.evidence, sizeof(w->report.evidence), "%s",
			 guard_must_resume_text);
	}
	w->report.state = worker_state(w);
}

/* Sorts the workers by priority, the lowest first. Equal priorities keep the order of the
 * policy. */
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
	g->requester = -1;
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

static bool same_gpu(const struct scene_gpu *a, const struct scene_gpu *b)
{
	return a->index == b->index && a->cuda == b->cuda && strcmp(a->uuid, b->uuid) == 0 &&
	       strcmp(a->pci, b->pci) == 0;
}

/* True if both scenes have the same GPUs, processes and roots, and therefore the same verdicts.
 * Most scenes are equal to the scene before in this way, and comparing is much cheaper than
 * classifying. */
static bool same_processes(const struct scene *a, const struct scene *b)
{
	if (a->gpus != b->gpus || a->processes != b->processes || a->roots != b->roots)
		return false;
	for (unsigned i = 0; i < a->gpus; i++)
		if (!same_gpu(&a->gpu[i], &b->gpu[i]))
			return false;
	return memcmp(a->process, b->process, a->processes * sizeof(a->process[0])) == 0 &&
	       memcmp(a->root, b->root, a->roots * sizeof(a->root[0])) == 0;
}

uint64_t guard_time_left(uint64_t until_wall_ns, uint64_t record_wall_ns, uint64_t wall_ns)
{
	/* the clock was set back after the record was made; the time that passed is unknown */
	if (wall_ns < record_wall_ns)
		wall_ns = record_wall_ns;
	return until_wall_ns > wall_ns ? until_wall_ns - wall_ns : 0;
}

/* Converts the times of people's requests, which records have as wall time, to monotonic
 * time. */
static void convert_hold_times(struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];
		uint64_t wall = g->scene.wall_ns;

		struct worker_reasons *r = &w->reasons;

		if (r->until_wall_ns)
			r->until_ns = g->now_ns + guard_time_left(r->until_wall_ns,
								  r->record_wall_ns, wall);
		/* A request from before the last boot gets 1 as the time when it began. */
		if (r->manual_wall_ns && r->manual_wall_ns <= wall)
			r->since_ns[REASON_MANUAL] =
				wall - r->manual_wall_ns < g->now_ns
					? g->now_ns - (wall - r->manual_wall_ns)
					: 1;
		/* with the old record, each restart would begin the whole time again */
		w->record_due |= r->until_wall_ns && wall < r->record_wall_ns;
		r->until_wall_ns = r->manual_wall_ns = r->record_wall_ns = 0;
	}
}

/* Treats the orders of a dry run as done, because no worker gets them. The caller calls this
 * function before the next scene is read, because the steps that follow need the pointers and
 * figures of the last scene. */
static void answer_dry(struct guard *g)
{
	uint64_t last = g->next_id;

	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (!worker_has_order(w) || !w->dry || w->order.what.id > last)
			continue;
		w->order.answered = g->scenes;
		guard_order_done(g, w, &(struct guard_outcome){ .ending = ENDING_DONE });
		guard_steps(g);
	}
}

void guard_advance(struct guard *g, uint64_t now_ns)
{
	g->scene_is_new = false;
	if (now_ns > g->now_ns)
		g->now_ns = now_ns;
}

void guard_observe(struct guard *g, const struct scene *s)
{
	const bool same = g->scenes && same_processes(&g->scene, s);

	guard_advance(g, s->mono_ns);
	answer_dry(g);
	scene_copy(&g->scene, s);
	g->scene.game_clients += g->games;
	g->scene.game = g->games ? g->game : (struct scene_game){ .pid = 0 };
	g->wall_offset_ns = (int64_t)(s->wall_ns - s->mono_ns);
	if (!same)
		classify(g->p, &g->scene, g->verdict);
	demand_observe(&g->demand, &g->scene, g->verdict);
	convert_hold_times(g);
	guard_read_scene(g);
	g->scenes++;
	g->scene_is_new = true;
	guard_steps(g);
}

void guard_outcome(struct guard *g, const struct guard_outcome *o, uint64_t now_ns)
{
	guard_advance(g, now_ns);
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (!worker_has_order(w) || w->order.what.id != o->order)
			continue;
		w->order.answered = g->scenes;
		/* the adapter may have changed the worker's notes, which the journal holds */
		w->record_due = w->record_due || w->order.what.verb == ORDER_EVICT;
		if (guard_outcome_ok(o))
			guard_order_done(g, w, o);
		else if (o->ending == ENDING_NO_ANSWER && worker_state(w) == STATE_RESUME) {
			w->order.status = STATUS_FAILED;
			guard_unanswered(g, w, o->message);
		} else
			guard_order_failed(g, w, o);
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
	guard_advance(g, now_ns);
	if (!g->scenes)
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
	guard_advance(g, now_ns);
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

static void fill_record(const struct guard *g, const struct guard_worker *w,
			struct guard_record *r)
{
	memset(r, 0, sizeof(*r));
	text_fit(r->worker, sizeof(r->worker), "%s", w->policy->name);
	r->mask = w->reasons.mask;
	r->level = w->intent.level;
	r->evicted = worker_owes(w);
	if (r->evicted && stage_leaves(w->intent.stage) && !r->mask)
		/* with this reason, restore_worker() checks the memory again, because the
		 * eviction may be incomplete */
		r->mask = BIT(REASON_CONTENTION);
	r->need_bytes = w->observed.need_bytes;
	for (unsigned i = 0; i < g->gpus && r->gpus < POLICY_GPUS; i++) {
		if (!has(w->observed.home, i))
			continue;
		text_fit(r->gpu[r->gpus].uuid, sizeof(r->gpu[0].uuid), "%s", g->gpu[i].uuid);
		r->gpu[r->gpus++].need_bytes = w->observed.need_on[i];
	}
	r->hold = worker_hold(w);
	r->wall_ns = g->now_ns + (uint64_t)g->wall_offset_ns;
	if (w->reasons.until_wall_ns)
		r->hold_until_wall_ns = w->reasons.until_wall_ns;
	else if (w->reasons.until_ns != FOR_EVER)
		r->hold_until_wall_ns = w->reasons.until_ns + (uint64_t)g->wall_offset_ns;
	if (w->reasons.since_ns[REASON_MANUAL])
		r->manual_wall_ns =
			w->reasons.since_ns[REASON_MANUAL] + (uint64_t)g->wall_offset_ns;
	memcpy(r->put_away, w->intent.put_away, sizeof(r->put_away));
	r->put_away_count = w->intent.put_away_count;
	if (r->evicted) {
		memcpy(r->root, w->observed.root, sizeof(r->root));
		r->roots = w->observed.roots;
	}
}

bool guard_next_record(struct guard *g, struct guard_record *ret)
{
	/* a record has wall times, and before the first scene the wall time is unknown */
	for (unsigned i = 0; g->scenes && i < g->workers; i++) {
		if (!g->worker[i].record_due)
			continue;
		g->worker[i].record_due = false;
		fill_record(g, &g->worker[i], ret);
		return true;
	}
	return false;
}

int guard_worker_record(const struct guard *g, unsigned worker, struct guard_record *ret)
{
	if (!g->scenes || worker >= g->workers)
		return -GW_E_NOENT;
	fill_record(g, &g->worker[worker], ret);
	return 0;
}

uint64_t guard_last_id(const struct guard *g)
{
	return g->next_id;
}

void guard_set_fetched(struct guard *g, unsigned worker, bool fetched)
{
	struct guard_worker *w = &g->worker[worker];

	if (worker_has_order(w) && !w->dry)
		w->order.status = fetched ? STATUS_UNDERWAY : STATUS_WAITING;
}

bool guard_next_order(struct guard *g, struct guard_order *ret)
{
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[i];

		if (w->order.status != STATUS_WAITING ||
		    w->record_due) /* an order waits until the worker's record was fetched */
			continue;
		w->order.status = STATUS_UNDERWAY;
		*ret = w->order.what;
		return true;
	}
	return false;
}

bool guard_next_decision(struct guard *g, struct guard_decision *ret)
{
	struct guard_queue *q = &g->queue;

	if (!q->count)
		return false;
	*ret = q->decision[q->first];
	q->first = (q->first + 1) % GUARD_DECISIONS;
	q->count--;
	return true;
}

/* Adds a process to an order and returns its entry. Returns NULL if the order already has the
 * process, if the order is full, or if the start time of the process is unknown, because then
 * its pid could belong to another process. */
static struct guard_target *add_target(struct guard_order *o, struct proc_id id)
{
	if (!id.start_ticks)
		return NULL;
	for (unsigned i = 0; i < o->targets; i++)
		if (proc_id_equal(o->target[i].id, id))
			return NULL;
	if (o->targets == GUARD_TARGETS) {
		o->more = true;
		return NULL;
	}
	o->target[o->targets].id = id;
	return &o->target[o->targets++];
}

/* Notes whether the worker's match finds the process itself, or only an ancestor of it. */
static void mark_target(const struct scene *s, unsigned worker, const struct scene_process *p,
			struct guard_target *t)
{
	t->itself = true;
	for (unsigned i = 0; i < s->roots; i++) {
		const struct scene_root *r = &s->root[i];
		const unsigned below = scene_generations(p, r->id.pid);

		if (!scene_root_of(r, worker))
			continue;
		if ((below && below != SCENE_FAR) || (scene_is(p, r) && r->how == ROOT_KEPT))
			t->itself = false;
		if (scene_is(p, r))
			t->print = r->print;
	}
}

static void name_roots(const struct scene *s, struct guard_order *o)
{
	for (unsigned i = 0; i < s->roots && o->roots < GUARD_ROOTS; i++) {
		if (!scene_root_of(&s->root[i], o->worker))
			continue;
		o->root[o->roots].id = s->root[i].id;
		o->root[o->roots++].print = s->root[i].print;
	}
}

static void name_processes(const struct guard *g, const struct guard_worker *w,
			   struct guard_order *o)
{
	if (o->verb == ORDER_RESUME && w->intent.put_away_count) {
		for (unsigned i = 0; i < w->intent.put_away_count; i++)
			(void)add_target(o, w->intent.put_away[i]);
		return;
	}
	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];
		struct guard_target *t = NULL;

		if (g->verdict[i].class == CLASS_WORKER &&
		    g->verdict[i].worker == (int)o->worker && !p->orphan)
			t = add_target(o, p->id);
		if (t)
			mark_target(&g->scene, o->worker, p, t);
	}
}

static void name_gpus(const struct guard *g, const struct guard_worker *w,
		      struct guard_order *o)
{
	size_t len = 0;

	for (unsigned i = 0; i < g->gpus; i++) {
		if (!has(w->observed.home, i) ||
		    len + strlen(g->gpu[i].uuid) + 2 > sizeof(o->gpus))
			continue;
		text_fit(o->gpus + len, sizeof(o->gpus) - len, "%s%s", len ? "," : "",
			 g->gpu[i].uuid);
		len += strlen(o->gpus + len);
	}
}

void guard_name_targets(const struct guard *g, const struct guard_worker *w,
			struct guard_order *o)
{
	name_gpus(g, w, o);
	name_roots(&g->scene, o);
	name_processes(g, w, o);
}

void guard_pump_orders(const struct guard_pump *p, void *ctx)
{
	struct guard_order o;

	while (p->next_order(ctx, &o)) {
		struct guard_outcome out = { .order = o.id };

		if (!p->start(ctx, &o, &out))
			p->outcome(ctx, &out);
	}
}

void guard_pump(const struct guard_pump *p, void *ctx)
{
	struct guard_decision d;
	struct guard_record r;
	enum guard_stored stored;

	do {
		while (p->next_decision && p->next_decision(ctx, &d))
			p->report(ctx, &d);
		while (p->next_record(ctx, &r))
			if (p->store)
				p->store(ctx, &r);
		stored = p->stored ? p->stored(ctx) : STORED_NOTHING_NEW;
		if (stored != STORED_PENDING)
			guard_pump_orders(p, ctx);
	} while (stored == STORED_NOW);
}
