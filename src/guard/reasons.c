/* Finds the reasons why a worker may not run, and whether another process needs the worker's
 * memory.
 *
 * The reasons are computed again with every scene and request. Only contention depends on
 * earlier scenes: decide.c decides when a demand is sure, and when the quiet time is over. */
#include "guard_internal.h"

#include <time.h>

static bool is_scheduled(const struct guard *g, const struct guard_worker *w)
{
	time_t t = (time_t)g->local_s;
	struct tm local;

	if (!g->local_s || !w->policy->schedules || !gmtime_r(&t, &local))
		return false;
	return policy_in_schedule(w->policy, &local);
}

/* Notes when the machine was last on battery. Returns true if REASON_BATTERY applies. */
static bool update_battery(const struct guard *g, struct guard_worker *w)
{
	struct worker_reasons *r = &w->reasons;

	if (!w->policy->ac_only)
		return false;
	if (g->scene.on_battery)
		r->battery_ns = g->now_ns;
	return r->battery_ns && g->now_ns - r->battery_ns < AC_NS;
}

static void set_reason(struct guard_worker *w, enum guard_reason r, const char *evidence)
{
	w->reasons.mask |= BIT(r);
	text_fit(w->reasons.evidence[r], sizeof(w->reasons.evidence[r]), "%s", evidence);
}

static void reasons_of_gpus(const struct guard *g, struct guard_worker *w)
{
	char text[sizeof(w->reasons.evidence[0])];

	for (unsigned i = 0; i < g->gpus; i++) {
		const struct guard_gpu *u = &g->gpu[i];

		if (!has(w->observed.gpus, i))
			continue;
		for (unsigned r = 0; r < GUARD_REASONS; r++) {
			if (!(u->reasons & BIT(r)))
				continue;
			text_fit(text, sizeof(text), "%.48s: %s", u->uuid, u->evidence[r]);
			set_reason(w, r, text);
		}
		if (u->lost) {
			text_fit(text, sizeof(text), "%.80s does not answer", u->uuid);
			set_reason(w, REASON_HEALTH, text);
		}
		if (u->blind && g->p->evict_when_blind) {
			text_fit(text, sizeof(text), "%.80s cannot be read", u->uuid);
			set_reason(w, REASON_BLIND, text);
		}
	}
}

/* Ends a person's request whose time is over. */
static void end_request_in_time(struct guard *g, struct guard_worker *w)
{
	struct worker_reasons *r = &w->reasons;

	if (r->person == PERSON_NONE || r->until_ns == FOR_EVER || g->now_ns < r->until_ns)
		return;
	r->person = PERSON_NONE;
	r->until_ns = FOR_EVER;
	w->record_due = true;
	guard_report(g, w, "hold", "the requested hold or eviction has reached its end");
}

void guard_note_since(const struct guard *g, struct guard_worker *w)
{
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (!(w->reasons.mask & BIT(r)))
			w->reasons.since_ns[r] = 0;
		else if (!w->reasons.since_ns[r])
			w->reasons.since_ns[r] = g->now_ns ? g->now_ns : 1;
	}
}

static void update_reasons(struct guard *g, struct guard_worker *w)
{
	enum worker_person person;
	char text[200], span[64];

	end_request_in_time(g, w);
	person = w->reasons.person;
	/* The evidence of these two reasons was written when they began. */
	w->reasons.mask = (worker_has_contention(w) ? BIT(REASON_CONTENTION) : 0) |
			  (w->idle.unload ? BIT(REASON_IDLE) : 0);
	if (person == PERSON_EVICT || person == PERSON_HOLD_EVICTED)
		set_reason(w, REASON_MANUAL,
			   person == PERSON_EVICT ? "evict command" : "hold evicted");
	if (is_scheduled(g, w)) {
		policy_schedule_text(w->policy, g->local_s, span, sizeof(span));
		text_fit(text, sizeof(text), "in its schedule, %s", span);
		set_reason(w, REASON_SCHEDULE, text);
	}
	if (update_battery(g, w))
		set_reason(w, REASON_BATTERY, "on battery, and ac_only is set");
	if (w->reasons.reservations) {
		guard_reservations_text(g, w, text, sizeof(text));
		set_reason(w, REASON_RESERVED, text);
	}
	reasons_of_gpus(g, w);
	guard_note_since(g, w);
}

void guard_update_reasons(struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++)
		update_reasons(g, &g->worker[i]);
}

bool guard_demand_sure(const struct guard *g, const struct guard_worker *w)
{
	return w->demand.pressing &&
	       demand_sure(&w->demand.strongest, &w->knobs, g->now_ns - w->demand.since_ns,
			   w->demand.scenes);
}

bool guard_demand_calm(const struct guard *g, const struct guard_worker *w)
{
	return !w->demand.pressing && w->demand.calm_scenes &&
	       g->now_ns - w->demand.calm_ns >= worker_quiet_ns(w);
}

/* True if the contender needs memory that the worker holds or would hold after its return. True
 * also if it is unknown how much the contender needs. */
static bool is_in_the_way(const struct guard *g, const struct guard_worker *w, unsigned slot,
			  const struct demand_case *c)
{
	const struct guard_gpu *u = &g->gpu[slot];
	const uint64_t held = w->observed.held[slot], need = w->observed.need_on[slot];
	const bool out =
		worker_is_out(w) || (w->presence == PRESENCE_UNKNOWN && worker_is_moved(w));

	if (c->kind == DEMAND_NONE || (!held && !out))
		return false;
	if (c->more_bytes == UINT64_MAX || !u->now->memory_known)
		return true;
	return u->free_bytes + u->coming_bytes <
	       (out && need > held ? need - held : 0) + c->more_bytes +
		       demand_headroom(&w->knobs, u->now->total_bytes);
}

static void find_demand(struct guard *g, struct guard_worker *w)
{
	struct worker_demand *d = &w->demand;
	struct demand_case c, withheld = { .kind = DEMAND_NONE };

	d->pressing = false;
	for (unsigned i = 0; i < g->gpus; i++) {
		struct guard_gpu *u = &g->gpu[i];

		if (!has(w->observed.home, i) || !u->now || gpu_is_stale(u))
			continue;
		demand_judge(&g->demand, g->p, &w->knobs, &g->scene, g->verdict,
			     (unsigned)u->at, &c);
		guard_demand_of_others(g, w, i, &c);
		if (!is_in_the_way(g, w, i, &c))
			continue;
		if (guard_withholds(g, w, i, &c)) {
			withheld = c;
			continue;
		}
		if (!d->pressing || c.urgent > d->strongest.urgent ||
		    (c.urgent == d->strongest.urgent && c.kind > d->strongest.kind)) {
			d->strongest = c;
			d->gpu = (int)i;
		}
		d->pressing = true;
	}
	guard_limit_scene(g, w, withheld.kind == DEMAND_NONE ? NULL : &withheld);
	/* Memory that this worker frees need not be freed by workers of a higher priority. */
	if (worker_is_leaving(w) || (d->pressing && !worker_is_held_active(w)))
		for (unsigned i = 0; i < g->gpus; i++)
			g->gpu[i].coming_bytes += w->observed.held[i];
}

static void count_demand(struct guard *g, struct worker_demand *d)
{
	if (d->pressing) {
		d->since_ns = d->scenes ? d->since_ns : g->now_ns;
		d->scenes++;
		d->calm_scenes = 0;
		d->calm_ns = 0;
		return;
	}
	d->calm_ns = d->calm_scenes ? d->calm_ns : g->now_ns;
	d->calm_scenes++;
	if (d->calm_scenes >= CALM_SCENES)
		d->scenes = 0;
}

void guard_update_demand(struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++) {
		struct guard_worker *w = &g->worker[g->order[i]];

		find_demand(g, w);
		/* A failed reading is evidence neither for nor against demand. */
		if (!guard_is_stale(g, w))
			count_demand(g, &w->demand);
	}
}
