/* guard_change_policy: another policy in the place of the one it has, with all that is known kept.
 *
 * A worker is who it is by its name.  What was made of the old policy and borrows its texts is made anew of
 * the last scene, so that nothing points to a policy that is gone. */
#include "guard_internal.h"

#include <stdlib.h>
#include <string.h>

unsigned guard_orders_underway(const struct guard *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->workers; i++)
		n += g->worker[i].pending && !g->worker[i].fresh && !g->worker[i].dry;
	return n;
}

uint64_t guard_order_pending(const struct guard *g, unsigned worker)
{
	return worker < g->workers && g->worker[worker].pending ? g->worker[worker].order.id
								: 0;
}

/* An order that nobody has fetched: the steps give it again if it is still wanted. */
void guard_take_back(struct guard_worker *w)
{
	if (!w->fresh)
		return;
	if (w->order.verb == ORDER_CLOSE)
		w->closed = false;
	w->pending = w->fresh = false;
}

/* What was only pretended never was; who is out for real stays so until something may be done again. */
static void change_mode(struct guard *g, struct guard_worker *w)
{
	enum guard_dry dry = guard_is_dry(g, w);
	bool owed = guard_owes(w);

	if (!w->dry == !dry) {
		w->dry = dry;
		return;
	}
	w->pending = w->fresh = w->returning = w->storm = false;
	if (w->dry) {
		w->virtual_out = false;
		w->evicted = owed;
		/* Of who is owed something nothing was pretended: its door is as we left it. */
		w->closed = owed && w->closed;
		w->put_away_count = owed ? w->put_away_count : 0;
	}
	w->dry = dry;
	w->owed = dry && owed;
	w->dirty = true;
	w->answered = g->looks;
	if (w->state == STATE_ABSENT)
		return;
	if (w->owed) {
		w->state = STATE_EVICTED;
		w->since_ns = g->now_ns;
		guard_say(g, w, w->state, "mode", "%s", GUARD_OWED);
		return;
	}
	guard_move(g, w, STATE_RECONCILE, "mode",
		   dry ? "nothing is done any more" : "what is decided is done");
}

/* Whom nobody was found to be is sought by something else from now on: what was said of it is no longer so. */
static void seek_anew(struct guard *g, struct guard_worker *w)
{
	char sought[240];

	w->rematched = true;
	if (w->state != STATE_ABSENT)
		return;
	guard_sought(w, sought, sizeof(sought));
	guard_say(g, w, w->state, "not there", "%s", sought);
}

static void keep(struct guard *g, struct guard_worker *w, const struct policy_worker *p)
{
	bool same = policy_match_same(&w->policy->match, &p->match);

	guard_bind(g, w, p);
	guard_take_back(w);
	change_mode(g, w);
	if (!same)
		seek_anew(g, w);
	guard_level_fit(w);
	if (w->state == STATE_QUIET)
		w->deadline_ns = w->calm_ns + guard_quiet_ns(w);
}

static int find(const struct guard_worker *w, unsigned n, const char *name)
{
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(w[i].policy->name, name))
			return (int)i;
	return -1;
}

/* Of the last scene: roots name workers by position, verdicts have texts of the policy. */
static void see_again(struct guard *g, const int *now)
{
	unsigned n = 0;

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

/* What was decided and not fetched: of who is gone nobody could say the name. */
static void rename_decisions(struct guard *g, const int *now)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->waiting; i++) {
		struct guard_decision d = g->decision[(g->first + i) % GUARD_DECISIONS];

		if (now[d.worker] < 0)
			continue;
		d.worker = (unsigned)now[d.worker];
		g->decision[(g->first + n++) % GUARD_DECISIONS] = d;
	}
	g->waiting = n;
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
	g->now_ns = now_ns;
	g->workers = p->workers < POLICY_WORKERS ? p->workers : POLICY_WORKERS;
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		now[i] = -1;
	for (unsigned i = 0; i < g->workers; i++) {
		from[i] = find(old, workers, p->worker[i].name);
		if (from[i] >= 0)
			now[from[i]] = (int)i;
	}
	rename_decisions(g, now);
	for (unsigned i = 0; i < g->workers; i++) {
		if (from[i] < 0) {
			guard_begin(g, i, &p->worker[i], records, n);
			continue;
		}
		g->worker[i] = old[from[i]];
		g->worker[i].order.worker = i;
		keep(g, &g->worker[i], &p->worker[i]);
	}
	free(old);
	guard_rank(g);
	see_again(g, now);
	if (g->looked)
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
	if (!g->looked)
		return;
	g->now_ns = now_ns;
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

unsigned guard_game_count(const struct guard *g)
{
	return g->games;
}
