/* guarding_swap: another configuration for a guard that runs.
 *
 * An order that is under way ends under the configuration that it was given by: the other one waits for it, and
 * after a while no new ones are given.  The looker's thread may be in a driver for longer than that: what it
 * reads is kept until it lets go. */
#include "guarding_parts.h"

#include "guard_counts.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define HOLD_BACK_NS (5 * NS_PER_S)  /* from here on no new orders are given ... */
#define GIVE_UP_NS   (20 * NS_PER_S) /* ... up to here: somebody may need a GPU meanwhile */

struct retired {
	struct guard_settings *settings;
	struct retired *next;
};

static void settings_free(struct guard_settings *s)
{
	if (s)
		guard_settings_done(s);
	free(s);
}

/* ---- who is who ---- */

static int find(const struct policy *p, const char *name)
{
	for (unsigned i = 0; i < p->workers; i++)
		if (strcmp(p->worker[i].name, name) == 0)
			return (int)i;
	return -1;
}

/* How somebody brings it back whom the guard no longer knows. */
static const char *way_back(enum policy_kind kind)
{
	switch (kind) {
	case WORKER_CHECKPOINT: return "gpuward guard recover brings it back";
	case WORKER_SYSTEMD: return "start its unit to have it back";
	case WORKER_CONTAINER: return "start its container to have it back";
	default: return "load its model again to have it back";
	}
}

/* Its record stays where somebody may need it: to bring it back, or because it comes again. */
static void part(struct guarding *g, unsigned worker)
{
	const struct policy_worker *w = &g->settings->policy.worker[worker];
	struct guard_status s;
	struct guard_record r;

	if (guard_status(g->guard, worker, &s) == 0) {
		g->gone.evictions += s.evictions;
		g->gone.resumes += s.resumes;
		g->gone.would_evict += s.would_evict;
	}
	if (guard_record_of(g->guard, worker, &r) != 0)
		return;
	if (!r.evicted && r.hold == HOLD_NONE) {
		guarding_forget(g, w->name);
		return;
	}
	guarding_keep(g, &r);
	if (r.evicted)
		guarding_tell(g, "warning",
			      "worker %s is gone from the configuration while it is out (level "
			      "%u): %s, or name it again and the guard does",
			      w->name, r.level, way_back(w->kind));
}

/* ---- what names workers by their position ---- */

static void move_decisions(struct guarding *g, const int *now)
{
	const struct guard_view *v = &g->view;
	unsigned n = 0;

	for (unsigned i = 0; i < v->decisions; i++) {
		struct guard_view_decision d = g->ring[(v->first + i) % GUARD_VIEW_DECISIONS];

		if (now[d.decision.worker] < 0)
			continue;
		d.decision.worker = (unsigned)now[d.decision.worker];
		g->ring[(v->first + n++) % GUARD_VIEW_DECISIONS] = d;
	}
	g->view.decisions = n;
}

static void move_times(struct guarding *g, const int *from, unsigned workers)
{
	uint64_t was[POLICY_WORKERS];

	memcpy(was, g->ordered_ns, sizeof(was));
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		g->ordered_ns[i] = i < workers && from[i] >= 0 ? was[from[i]] : 0;
}

/* ---- the swap ---- */

static bool same(const struct guard_settings *a, const struct guard_settings *b)
{
	return policy_same(&a->policy, &b->policy) && a->health_enabled == b->health_enabled &&
	       memcmp(&a->health, &b->health, sizeof(a->health)) == 0 &&
	       a->health_interval_ns == b->health_interval_ns &&
	       a->capacity_enabled == b->capacity_enabled && text_same(a->record, b->record);
}

static void retire(struct guarding *g, struct retired *place, struct guard_settings *old)
{
	*place = (struct retired){ old, g->retired };
	g->retired = place;
}

static void release_retired(struct guarding *g)
{
	while (g->retired) {
		struct retired *r = g->retired;

		g->retired = r->next;
		settings_free(r->settings);
		free(r);
	}
}

static void tell_news(struct guarding *g, unsigned fresh, unsigned left)
{
	unsigned n = g->settings->policy.workers;

	guarding_tell(g, "info",
		      "the guard goes by the new configuration: %u worker%s, %u new, %u gone",
		      n, n == 1 ? "" : "s", fresh, left);
}

static void move_over(struct guarding *g, struct retired *place,
		      const struct guarding_records *records)
{
	struct guard_settings *old = g->settings, *next = g->next;
	int now[POLICY_WORKERS], from[POLICY_WORKERS];
	unsigned fresh = 0, left = 0;
	bool news = !same(old, next);

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		now[i] = i < old->policy.workers
				 ? find(&next->policy, old->policy.worker[i].name)
				 : -1;
	for (unsigned i = 0; i < next->policy.workers; i++) {
		from[i] = find(&old->policy, next->policy.worker[i].name);
		fresh += from[i] < 0;
	}
	for (unsigned i = 0; i < old->policy.workers; i++)
		left += now[i] < 0;
	move_decisions(g, now);
	move_times(g, from, next->policy.workers);
	action_policy(g->action, &next->policy, from);
	looker_policy(g->looker, &next->policy);
	g->settings = next;
	g->next = NULL;
	guard_counts_load(&g->tally, g->config.store, &next->policy);
	for (unsigned i = 0; i < next->policy.workers; i++)
		if (from[i] < 0)
			guarding_give_notes(g, records, i);
	/* What was recorded so far was decided by another policy: what follows is a run of its own. */
	guarding_record_close(g);
	guarding_record_open(g);
	retire(g, place, old);
	guarding_health_swapped(g);
	if (news)
		tell_news(g, fresh, left);
}

static void swap(struct guarding *g)
{
	struct retired *place = malloc(sizeof(*place));
	struct guarding_records *records = NULL;
	const struct policy *old = &g->settings->policy;
	const struct guarding_gone gone = g->gone;
	int err = place ? guarding_records_read(g, &records) : -GW_E_NOMEM;

	guarding_tell_decisions(g);
	if (!err)
		err = beside_swap(g->beside, g->next);
	for (unsigned i = 0; !err && i < old->workers; i++)
		if (find(&g->next->policy, old->worker[i].name) < 0)
			part(g, i);
	if (!err)
		err = guard_swap(g->guard, &g->next->policy, records->record, records->count,
				 guarding_now_ns());
	if (err) {
		guarding_tell(g, "error", "the guard stays with the old configuration: %s",
			      gw_strerror(err));
		beside_swap(g->beside, g->settings);
		g->gone = gone;
		guarding_swap_drop(g);
		free(place);
	} else {
		move_over(g, place, records);
		if (g->view.scene) /* the looker's names workers by their old positions */
			guard_verdicts(g->guard, &g->view.scene);
		guarding_view(g);
	}
	guarding_commit(g);
	free(records);
}

/* ---- when ---- */

bool guarding_swap_waits(const struct guarding *g)
{
	uint64_t waited = g->next ? guarding_now_ns() - g->next_ns : 0;

	return waited > HOLD_BACK_NS && waited < GIVE_UP_NS;
}

static void wait_longer(struct guarding *g)
{
	if (g->next_told || guarding_now_ns() - g->next_ns < GIVE_UP_NS)
		return;
	g->next_told = true;
	guarding_tell(
		g, "warning",
		"the guard still goes by the old configuration: an order that it gave has not "
		"ended; the new one counts from then on");
}

void guarding_swap_try(struct guarding *g)
{
	if (g->retired && g->looker && looker_settled(g->looker))
		release_retired(g);
	if (!g->next || g->writing)
		return;
	if (!action_idle(g->action) || guard_acting(g->guard))
		wait_longer(g);
	else
		swap(g);
}

void guarding_swap(struct guarding *g, struct guard_settings *settings)
{
	struct guard_settings *next = malloc(sizeof(*next));

	if (!next) {
		guard_settings_done(settings);
		guarding_tell(g, "error", "the guard stays with the old configuration: %s",
			      gw_strerror(-GW_E_NOMEM));
		return;
	}
	*next = *settings;
	guarding_fit(g, next);
	if (!g->next)
		g->next_ns = guarding_now_ns();
	settings_free(g->next);
	g->next = next;
	g->next_told = false;
	guarding_swap_try(g);
	guarding_pump(g);
}

void guarding_swap_drop(struct guarding *g)
{
	settings_free(g->next);
	g->next = NULL;
}

void guarding_swap_close(struct guarding *g)
{
	guarding_swap_drop(g);
	release_retired(g);
}
