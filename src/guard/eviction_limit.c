/* guard_rail: what the guard does not do though the rules say so (GUARD.md, Where it holds back).
 *
 * A GPU with a screen on it, where neither a threshold nor a rule tells the desktop from a contender, would
 * lose its workers to the desktop for ever: demand there is only told.  And one user cannot let workers
 * leave more often than so many times an hour. */
#include "guard_internal.h"

#include <math.h>

/* ---- a screen ---- */

static bool ignores_somebody(const struct policy *p)
{
	for (unsigned i = 0; i < p->rules; i++)
		if (p->rule[i].action == GUARD_IGNORE || p->rule[i].action == GUARD_WATCH)
			return true;
	return false;
}

static bool unsafe(const struct guard *g, const struct guard_worker *w, unsigned slot)
{
	const struct scene_gpu *u = g->gpu[slot].now;

	return g->p->mode != GUARD_OBSERVE && u && u->display &&
	       (g->p->any || !w->knobs.min_vram_bytes) && !ignores_somebody(g->p);
}

/* Somebody who is named by a rule, or says of itself that it plays, is not the desktop. */
bool guard_withholds(const struct guard *g, const struct guard_worker *w, unsigned slot,
		     const struct demand_case *c)
{
	return c->kind != DEMAND_NOW && c->kind != DEMAND_GAME && unsafe(g, w, slot);
}

static int unsafe_slot(const struct guard *g, const struct guard_worker *w)
{
	for (unsigned i = 0; i < g->gpus; i++)
		if (has(w->observed.home | w->observed.gpus, i) && unsafe(g, w, i))
			return (int)i;
	return -1;
}

static void screen_text(const struct guard *g, int slot, char *out, size_t size)
{
	text_fit(out, size,
		 "a screen is on %.48s and %s: who needs it is only told. Add ignore rules "
		 "(gpuward guard learn proposes them)%s",
		 g->gpu[slot].uuid,
		 g->p->any ? "with demand = \"any\" the desktop counts"
			   : "with min_vram = 0 the desktop counts",
		 g->p->any ? " or use thresholds" : " or set min_vram");
}

static void report_display(struct guard *g, struct guard_worker *w)
{
	const bool reported = w->report.notices & NOTICE_DISPLAY;
	int slot = unsafe_slot(g, w);
	char text[240];

	if ((slot >= 0) == reported)
		return;
	w->report.notices ^= NOTICE_DISPLAY;
	if (slot < 0)
		return;
	screen_text(g, slot, text, sizeof(text));
	guard_report(g, w, "screen", "%s", text);
}

static void withheld(struct guard *g, struct guard_worker *w, const char *rule,
		     const char *evidence)
{
	w->report.would_evict++;
	w->report.result = RESULT_WITHHELD;
	guard_report(g, w, rule, "%s", evidence);
}

/* c: a demand that is withheld in this scene; NULL: none. */
void guard_limit_scene(struct guard *g, struct guard_worker *w, const struct demand_case *c)
{
	const enum guard_state s = worker_state(w);
	struct worker_demand *d = &w->demand;

	report_display(g, w);
	d->unlimited_scenes = c ? 0 : d->unlimited_scenes + 1;
	if (c && !(w->report.notices & NOTICE_WITHHELD) &&
	    (s == STATE_ACTIVE || s == STATE_SUSPECT)) {
		w->report.notices |= NOTICE_WITHHELD;
		withheld(g, w, "screen", c->evidence);
	}
	if (d->unlimited_scenes >= CALM_LOOKS)
		w->report.notices &= ~(unsigned)NOTICE_WITHHELD;
}

/* ---- one user ---- */

/* May the demand that is against it not move it yet?  If it may, it is counted. */
bool guard_limited(struct guard *g, struct guard_worker *w)
{
	int64_t uid = w->demand.strongest.uid;
	uint64_t wait = rate_wait_ns(&g->rate, uid, g->p->user_evictions, g->now_ns);
	char text[240];

	if (!wait) {
		rate_take(&g->rate, uid, g->now_ns);
		w->demand.limited_ns = 0;
		return false;
	}
	if (!w->demand.limited_ns) {
		text_fit(text, sizeof(text),
			 "uid %lld moved workers %u times in an hour: not for %.0f s; %s",
			 (long long)uid, g->p->user_evictions,
			 ceil((double)wait / (double)NS_PER_S), w->demand.strongest.evidence);
		w->demand.limited_ns = g->now_ns + wait;
		withheld(g, w, "user limit", text);
	}
	w->demand.limited_ns = g->now_ns + wait;
	return true;
}

/* Whoever may not move workers now must not drown one who may: c becomes the case of the others, if they
 * have one. */
void guard_hear_others(struct guard *g, const struct guard_worker *w, unsigned slot,
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

/* Whose game is one more moves all who run, as one who asks for it would. */
void guard_set_games(struct guard *g, unsigned count)
{
	for (unsigned i = 0; count > g->games && i < g->workers; i++)
		if (!worker_is_out(&g->worker[i]))
			rate_take(&g->rate, g->requester, g->now_ns);
	g->requester = -1;
	g->games = count;
}

uint64_t guard_user_wait_ns(const struct guard *g, int64_t uid, uint64_t now_ns)
{
	return rate_wait_ns(&g->rate, uid, g->p->user_evictions, now_ns);
}

/* Of a wish that would move a worker: refused? */
int guard_requester_may(const struct guard *g, uint64_t now_ns, char *message, size_t size)
{
	uint64_t wait = guard_user_wait_ns(g, g->requester, now_ns);

	if (!wait)
		return 0;
	text_fit(message, size,
		 "uid %lld moved workers %u times in an hour: ask again in %.0f s",
		 (long long)g->requester, g->p->user_evictions,
		 ceil((double)wait / (double)NS_PER_S));
	return -GW_E_PERM;
}

/* ---- how it stands ---- */

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
	int slot = unsafe_slot(g, w), other = foreign_slot(g, w);

	out[0] = '\0';
	if (other >= 0)
		text_fit(out, size,
			 "%s guards %.48s: here it is only told what would be done. Stop "
			 "one of the two",
			 g->gpu[other].foreign, g->gpu[other].uuid);
	else if (slot >= 0)
		screen_text(g, slot, out, size);
	else if (w->demand.limited_ns > g->now_ns && w->demand.pressing)
		text_fit(out, size,
			 "uid %lld moved workers %u times in an hour (user_evictions): not "
			 "for %.0f s",
			 (long long)w->demand.strongest.uid, g->p->user_evictions,
			 ceil((double)(w->demand.limited_ns - g->now_ns) / (double)NS_PER_S));
}
