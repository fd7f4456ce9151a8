/* Replaces the policy and keeps the state of the workers: a worker with the same name is the
 * same worker. Verdicts borrow strings of the old policy, so they are made again from the last
 * scene. */
#include "guard_internal.h"

#include <stdlib.h>
#include <string.h>

uint32_t guard_orders_underway(const struct guard *g)
{
	uint32_t set = 0;

	for (unsigned i = 0; i < g->workers; i++)
		if (g->worker[i].order.status == STATUS_UNDERWAY && !g->worker[i].dry)
			set |= UINT32_C(1) << i;
	return set;
}

uint64_t guard_order_pending(const struct guard *g, unsigned worker)
{
	return worker < g->workers && worker_has_order(&g->worker[worker])
		       ? g->worker[worker].order.what.id
		       : 0;
}

/* Applies a change between dry run and enforce. Evictions of a dry run are forgotten. A worker
 * that was really evicted stays evicted until the mode allows the guard to resume it. */
static void change_mode(struct guard *g, struct guard_worker *w)
{
	const enum guard_dry dry = guard_find_dry(g, w);
	const bool owes = worker_owes(w);

	if (!w->dry == !dry) {
		w->dry = dry;
		return;
	}
	w->order.status = STATUS_NONE;
	w->order.answered = g->scenes;
	w->backoff.storm = false;
	if (w->dry) { /* evictions and returns of a dry run do not count as flaps */
		w->backoff.flaps = 0;
		w->backoff.quiet_factor = 1;
		w->backoff.resident_ns = 0;
	}
	if (w->intent.claim == CLAIM_DRY)
		w->intent.claim = CLAIM_NONE;
	if (owes) {
		worker_stop_returning(w);
	} else {
		w->intent.stage = STAGE_RUN;
		w->intent.from = FROM_RUN;
		w->intent.put_away_count = 0;
		w->admission = ADMISSION_OPEN;
	}
	w->dry = dry;
	w->record_due = true;
	if (w->presence == PRESENCE_GONE)
		return;
	worker_set_unknown(g, w);
	if (worker_resume_forbidden(w)) {
		w->presence = PRESENCE_HERE;
		w->report.state = STATE_EVICTED;
		guard_report(g, w, "mode", "%s", guard_must_resume_text);
		return;
	}
	guard_report(g, w, "mode",
		     dry ? "decisions are no longer carried out"
			 : "decisions are carried out from now on");
}

/* Handles a changed match. If the worker is absent, reports what the new match looks for. */
static void match_changed(struct guard *g, struct guard_worker *w)
{
	char sought[240];

	w->observed.match_changed = true;
	if (w->presence != PRESENCE_GONE)
		return;
	guard_sought_text(w, sought, sizeof(sought));
	guard_report(g, w, "not there", "%s", sought);
}

static void keep_worker(struct guard *g, struct guard_worker *w, const struct policy_worker *p)
{
	bool same = policy_match_same(&w->policy->match, &p->match);

	guard_bind(g, w, p);
	guard_take_back(w);
	change_mode(g, w);
	if (!same)
		match_changed(g, w);
	guard_level_fit(w);
}

static int find_worker(const struct guard_worker *w, unsigned n, const char *name)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(w[i].policy->name, name))
			return (int)i;
	return -1;
}

static bool has_command_patterns(const struct policy *p)
{
	bool has = false;

	for (unsigned i = 0; i < p->rules; i++)
		has |= p->rule[i].match.command != NULL;
	for (unsigned i = 0; i < p->workers; i++)
		has |= p->worker[i].match.command != NULL;
	return has;
}

/* Classifies the last scene with the new policy. now[i]: the new position of worker i; -1: it
 * was removed. Command lines are not compared with the new patterns here: the thread that
 * builds the next scene compares them. */
static void classify_again(struct guard *g, const int *now)
{
	const bool pending = has_command_patterns(g->p);
	unsigned n = 0;

	for (unsigned i = 0; i < g->scene.processes; i++)
		g->scene.process[i].command_match = pending ? COMMAND_PENDING : COMMAND_MATCHED;
	for (unsigned i = 0; i < g->scene.roots; i++) {
		struct scene_root root = g->scene.root[i];

		if (root.worker >= POLICY_WORKERS || now[root.worker] < 0)
			continue;
		root.worker = (unsigned)now[root.worker];
		g->scene.root[n++] = root;
	}
	g->scene.roots = n;
	classify(g->p, &g->scene, g->verdict);
}

/* Changes the workers' positions in decisions that were not fetched. Drops the decisions about
 * removed workers. */
static void renumber_decisions(struct guard *g, const int *now)
{
	unsigned n = 0;

	struct guard_queue *q = &g->queue;

	for (unsigned i = 0; i < q->count; i++) {
		struct guard_decision d = q->decision[(q->first + i) % GUARD_DECISIONS];

		if (now[d.worker] < 0)
			continue;
		d.worker = (unsigned)now[d.worker];
		q->decision[(q->first + n++) % GUARD_DECISIONS] = d;
	}
	q->count = n;
}

int guard_change_policy(struct guard *g, const struct policy *p,
			const struct guard_record *records, unsigned n, uint64_t now_ns)
{
	struct guard_worker *old;
	unsigned workers = g->workers;
	int now[POLICY_WORKERS], from[POLICY_WORKERS];

	if (guard_orders_underway(g))
		return -GW_E_STATE;
	old = malloc(sizeof(g->worker));
	if (!old)
		return -GW_E_NOMEM;
	memcpy(old, g->worker, sizeof(g->worker));
	g->p = p;
	guard_advance(g, now_ns);
	g->workers = p->workers < POLICY_WORKERS ? p->workers : POLICY_WORKERS;
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		now[i] = -1;
	for (unsigned i = 0; i < g->workers; i++) {
		from[i] = find_worker(old, workers, p->worker[i].name);
		if (from[i] >= 0)
			now[from[i]] = (int)i;
	}
	renumber_decisions(g, now);
	for (unsigned i = 0; i < g->workers; i++) {
		if (from[i] < 0) {
			guard_begin(g, i, &p->worker[i], records, n);
			continue;
		}
		g->worker[i] = old[from[i]];
		g->worker[i].order.what.worker = i;
		keep_worker(g, &g->worker[i], &p->worker[i]);
	}
	free(old);
	guard_rank(g);
	classify_again(g, now);
	if (g->scenes)
		guard_update_reasons(g);
	return 0;
}

void guard_set_foreign(struct guard *g, const char *gpu, const char *holder, uint64_t now_ns)
{
	int slot = guard_slot(g, gpu, true);

	if (slot < 0)
		return;
	text_fit(g->gpu[slot].foreign, sizeof(g->gpu[slot].foreign), "%s",
		 holder ? holder : "");
	if (!g->scenes)
		return;
	guard_advance(g, now_ns);
	for (unsigned i = 0; i < g->workers; i++)
		change_mode(g, &g->worker[i]);
	guard_update_reasons(g);
	guard_steps(g);
}

bool guard_gpu_inputs(const struct guard *g, unsigned i, struct guard_gpu_inputs *ret)
{
	const struct guard_gpu *u = &g->gpu[i];

	if (i >= g->gpus)
		return false;
	*ret = (struct guard_gpu_inputs){ .gpu = u->uuid,
					  .reasons = u->reasons,
					  .heat = u->heat,
					  .heat_why = u->heat_why,
					  .foreign = u->foreign[0] ? u->foreign : NULL };
	for (unsigned r = 0; r < GUARD_REASONS; r++)
		ret->evidence[r] = u->evidence[r];
	return true;
}

unsigned guard_game_count(const struct guard *g, struct scene_game *ret_game)
{
	*ret_game = g->game;
	return g->games;
}
