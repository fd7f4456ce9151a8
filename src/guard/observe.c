/* Finds in a scene which GPUs answer, which processes each worker has, and how many bytes each
 * worker holds on which GPU. If a reading of a GPU failed, the last values of this GPU stay. */
#include "guard_internal.h"

#include <stdlib.h>
#include <string.h>

int guard_slot(struct guard *g, const char *uuid, bool make)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (!strcmp(g->gpu[i].uuid, uuid))
			return (int)i;
	if (!make || g->gpus == SCENE_GPUS)
		return -1;
	text_fit(g->gpu[g->gpus].uuid, sizeof(g->gpu[0].uuid), "%s", uuid);
	g->gpu[g->gpus].at = -1;
	return (int)g->gpus++;
}

static bool some_gpu_answers(const struct guard *g)
{
	for (unsigned i = 0; i < g->scene.gpus; i++)
		if (g->scene.gpu[i].health == SCENE_OK && !g->scene.gpu[i].errors)
			return true;
	return false;
}

static void observe_gpu(struct guard *g, struct guard_gpu *u)
{
	const struct scene_gpu *n = u->now;
	bool good = n && (n->health == SCENE_OK || n->health == SCENE_ASLEEP) && !n->errors;

	u->seen = u->seen || n;
	if (u->seen || !some_gpu_answers(g))
		u->missing_ns = 0;
	else if (!u->missing_ns)
		u->missing_ns = g->now_ns;
	u->clean = good ? u->clean + 1 : 0;
	if (n && (n->health == SCENE_BLIND || n->errors > SCENE_BLIND_ERRORS))
		u->blind = true;
	else if (u->clean >= CLEAN_SCENES)
		u->blind = false;
	if (!n || n->health == SCENE_LOST)
		u->lost = true;
	if (!good)
		u->well_ns = 0;
	else if (!u->well_ns)
		u->well_ns = g->now_ns;
	if (u->lost && u->well_ns && g->now_ns - u->well_ns >= WELL_NS)
		u->lost = false;
	u->free_bytes = n && n->memory_known ? n->free_bytes : 0;
	u->coming_bytes = 0;
}

/* Remembers the size of the memory. All memory of a GPU that is asleep is free, because no
 * process can use it without waking the GPU. */
static void observe_memory(struct guard_gpu *u, struct scene_gpu *n)
{
	if (n->memory_known)
		u->total_bytes = n->total_bytes;
	if (n->memory_known || n->health != SCENE_ASLEEP || !u->total_bytes)
		return;
	n->memory_known = true;
	n->total_bytes = n->free_bytes = u->total_bytes;
	n->used_bytes = 0;
}

static void observe_gpus(struct guard *g)
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
		observe_memory(&g->gpu[slot], &g->scene.gpu[i]);
	}
	for (unsigned i = 0; i < g->gpus; i++)
		observe_gpu(g, &g->gpu[i]);
}

static bool is_known(const struct worker_observed *o, const struct scene_root *r)
{
	for (unsigned i = 0; i < o->roots; i++)
		if (proc_id_equal(o->root[i], r->id))
			return true;
	return false;
}

void guard_accept_roots(const struct guard *g, struct guard_worker *w)
{
	struct worker_observed *o = &w->observed;
	unsigned n = 0;

	for (unsigned i = 0; i < g->scene.roots && n < GUARD_ROOTS; i++) {
		const struct scene_root *r = &g->scene.root[i];

		if (scene_root_of(r, worker_number(g, w)))
			o->root[n++] = r->id;
	}
	o->roots = n ? n : o->roots;
	if (o->found > FOUND_SAME)
		o->found = FOUND_SAME;
}

bool guard_pid_reused(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->scene.roots; i++)
		for (unsigned k = 0; k < w->intent.put_away_count; k++)
			if (scene_root_of(&g->scene.root[i], worker_number(g, w)) &&
			    g->scene.root[i].id.pid == w->intent.put_away[k].pid &&
			    g->scene.root[i].id.start_ticks !=
				    w->intent.put_away[k].start_ticks)
				return true;
	return false;
}

/* Finds the processes of the worker in the scene. New processes mean that the worker may have
 * restarted and lost the effect of earlier orders. So new roots do not become known roots here:
 * the guard first decides what they mean, and then calls guard_accept_roots(). */
static void find_roots(struct guard *g, struct guard_worker *w)
{
	struct worker_observed *o = &w->observed;
	unsigned roots = 0, same = 0;
	bool lives = false; /* a known process still runs, but the match does not find it */

	for (unsigned i = 0; i < g->scene.roots; i++) {
		const struct scene_root *r = &g->scene.root[i];

		if (r->worker != worker_number(g, w))
			continue;
		if (r->how == ROOT_FORMER) {
			lives = lives || is_known(o, r);
			continue;
		}
		roots++;
		same += is_known(o, r);
	}
	if (!roots)
		o->found = lives ? FOUND_UNMATCHED : FOUND_NONE;
	else if (!o->roots || same || (o->roots_recorded && !lives))
		o->found = FOUND_SAME;
	else if (lives && w->intent.put_away_count)
		o->found = FOUND_DISPLACED;
	else
		o->found = lives ? FOUND_OTHER_LIVES : FOUND_OTHER;
	if (o->found == FOUND_SAME)
		guard_accept_roots(g, w);
	if (o->found >= FOUND_SAME)
		o->roots_recorded = false;
}

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

static void add_process(struct guard *g, struct guard_worker *w, const struct scene_process *p)
{
	const struct scene_gpu *u = &g->scene.gpu[p->gpu];
	int slot = guard_slot(g, u->uuid, false);
	uint64_t others;

	if (slot < 0)
		return;
	w->observed.home |= UINT64_C(1) << slot;
	if (gpu_is_stale(&g->gpu[slot]))
		return;
	if (p->bytes_known && !has(w->observed.by_device, (unsigned)slot))
		w->observed.held[slot] += p->bytes;
	if (p->bytes_known)
		return;
	others = others_on(g, p->gpu, (int)worker_number(g, w));
	w->observed.by_device |= UINT64_C(1) << slot;
	w->observed.held[slot] =
		u->memory_known && u->used_bytes > others ? u->used_bytes - others : 0;
}

static uint64_t configured_gpus(const struct guard *g, const struct policy_worker *p)
{
	uint64_t set = 0;

	for (unsigned i = 0; i < g->gpus; i++)
		for (unsigned k = 0; g->gpu[i].now && k < p->gpu_count; k++)
			if (scene_gpu_matches(g->gpu[i].now, p->gpus[k]))
				set |= UINT64_C(1) << i;
	return set;
}

static int gpu_with_most_free(const struct guard *g)
{
	int best = -1;

	for (unsigned i = 0; i < g->gpus; i++)
		if (g->gpu[i].now && !g->gpu[i].lost && !gpu_is_stale(&g->gpu[i]) &&
		    (best < 0 || g->gpu[i].free_bytes > g->gpu[best].free_bytes))
			best = (int)i;
	return best;
}

/* Moves the home of an evicted worker away from a removed GPU. A worker that may run on any GPU
 * returns to the GPU with the most free memory. A checkpointed worker can only return to its
 * old GPU. */
static void leave_removed_gpus(struct guard *g, struct guard_worker *w)
{
	struct worker_observed *o = &w->observed;
	const int to = gpu_with_most_free(g);

	if (!worker_is_out(w) || w->policy->gpu_count || w->intent.put_away_count || to < 0)
		return;
	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];

		if (!has(o->home, i) || !u->missing_ns || g->now_ns - u->missing_ns < WELL_NS)
			continue;
		o->home = (o->home & ~(UINT64_C(1) << i)) | UINT64_C(1) << to;
		o->need_on[to] += o->need_on[i];
		o->need_on[i] = 0;
	}
}

static void observe_worker(struct guard *g, struct guard_worker *w)
{
	struct worker_observed *o = &w->observed;
	const uint64_t home = o->home;

	o->home = 0;
	o->by_device = 0;
	for (unsigned i = 0; i < g->gpus; i++) {
		if (!gpu_is_stale(&g->gpu[i]))
			o->held[i] = 0;
		/* Keep the old GPU if the worker is evicted. Keep it also if the GPU could not
		 * be read, because the worker may still be there. */
		if (gpu_is_stale(&g->gpu[i]) || g->gpu[i].lost || worker_is_out(w))
			o->home |= home & UINT64_C(1) << i;
	}
	find_roots(g, w);
	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];

		if (o->found == FOUND_DISPLACED || g->verdict[i].class != CLASS_WORKER ||
		    g->verdict[i].worker != (int)worker_number(g, w) || p->orphan ||
		    p->gpu >= g->scene.gpus)
			continue;
		if (o->found < FOUND_SAME)
			o->found = FOUND_SAME;
		add_process(g, w, p);
	}
	if (!o->home)
		o->home = home;
	leave_removed_gpus(g, w);
	o->gpus = o->home | configured_gpus(g, w->policy);
}

/* Counts the memory of a worker as free after an eviction in a dry run. No memory is freed. */
static void apply_dry_eviction(struct guard *g, struct guard_worker *w)
{
	struct worker_observed *o = &w->observed;

	o->dry_bytes = 0;
	for (unsigned i = 0; w->intent.claim == CLAIM_DRY && i < g->gpus; i++) {
		g->gpu[i].free_bytes += o->held[i];
		o->dry_bytes += o->held[i];
		o->held[i] = 0;
	}
}

enum guard_dry guard_find_dry(const struct guard *g, const struct guard_worker *w)
{
	bool simulated = false, foreign = false;

	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) && g->gpu[i].now) {
			simulated = simulated || g->gpu[i].now->simulated;
			foreign = foreign || g->gpu[i].foreign[0];
		}
	if (g->p->mode != GUARD_ENFORCE)
		return DRY_MODE;
	if (foreign)
		return DRY_FOREIGN;
	return simulated && !g->p->simulated_too ? DRY_SIMULATED : DRY_NOT;
}

/* Sums the worker's bytes. Updates the memory that the worker needs, the time when the worker
 * was last seen, and the result of a dry run. */
static void conclude_worker(struct guard *g, struct guard_worker *w)
{
	const enum guard_state state = worker_state(w);
	const bool runs = state == STATE_ACTIVE || state == STATE_SUSPECT;
	struct worker_observed *o = &w->observed;

	o->bytes = 0;
	for (unsigned i = 0; i < g->gpus; i++)
		o->bytes += o->held[i];
	if (runs)
		worker_set_need(w);
	if (worker_is_present(w)) {
		if (w->intent.from == FROM_ABSENT)
			w->intent.from = worker_is_returning(w) ? FROM_STARTED : FROM_RUN;
		o->match_changed = false;
		o->seen_ns = g->now_ns;
	}
	w->dry = guard_find_dry(g, w);
}

/* Returns the free memory of a GPU, but not more than the total memory minus `held`, the bytes
 * of its processes. The memory is read before the process lists, so only the lists show what a
 * process allocated in between. */
static uint64_t free_at_most(const struct scene_gpu *u, uint64_t held)
{
	uint64_t all = u->used_bytes + u->free_bytes;

	return held < all && all - held < u->free_bytes ? all - held : u->free_bytes;
}

void guard_free_and_others(const struct guard *g, const struct guard_worker *w,
			   uint64_t *ret_free, uint64_t *ret_others, bool *ret_known)
{
	*ret_free = *ret_others = 0;
	*ret_known = true;
	for (unsigned i = 0; i < g->gpus; i++) {
		const struct scene_gpu *u = g->gpu[i].now;
		uint64_t others;

		if (!has(w->observed.gpus, i))
			continue;
		if (!u || !u->memory_known) {
			*ret_known = false;
			continue;
		}
		others = others_on(g, (unsigned)g->gpu[i].at, (int)worker_number(g, w));
		*ret_free += free_at_most(u, others + w->observed.held[i]);
		*ret_others += others;
	}
}

bool guard_is_blind_or_hung(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) && (g->gpu[i].blind || gpu_is_hung(&g->gpu[i])))
			return true;
	return false;
}

bool guard_is_stale(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) && gpu_is_stale(&g->gpu[i]))
			return true;
	return false;
}

bool guard_lost(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.gpus, i) && !g->gpu[i].lost)
			return false;
	return w->observed.gpus != 0;
}

/* Computes local time. No local hour occurs twice: when clocks are set back, local_s stays the
 * same until the clocks have caught up. */
static void update_local_time(struct guard *g)
{
	int64_t local = (int64_t)(g->scene.wall_ns / NS_PER_S) + g->scene.utc_offset_s;

	if (g->scenes && g->scene.utc_offset_s < g->utc_offset_s)
		g->local_floor_s = g->local_s;
	g->utc_offset_s = g->scene.utc_offset_s;
	if (local < g->local_floor_s && g->local_floor_s - local <= 2 * 3600)
		local = g->local_floor_s;
	else
		g->local_floor_s = 0;
	g->local_s = local;
}

void guard_read_scene(struct guard *g)
{
	observe_gpus(g);
	update_local_time(g);
	for (unsigned i = 0; i < g->workers; i++) {
		observe_worker(g, &g->worker[i]);
		apply_dry_eviction(g, &g->worker[i]);
	}
	for (unsigned i = 0; i < g->workers; i++)
		conclude_worker(g, &g->worker[i]);
	for (unsigned i = 0; i < g->workers; i++)
		guard_idle_scene(g, &g->worker[i]);
	guard_update_reservations(g);
	guard_update_reasons(g);
	guard_update_demand(g);
}
