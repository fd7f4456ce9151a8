/* guard_idle: models that idle are unloaded where that saves energy (GUARD.md, Models that idle).
 *
 * Only workers that load again by themselves when somebody asks them: being asked is the end of it, and
 * is seen by their memory coming back.  No door is closed, no other level is tried, no unit is stopped. */
#include "guard_internal.h"

#include <math.h>

#define UNSEEN_NS (15 * NS_PER_S) /* without a figure for as long nobody is said to idle */
#define ASK_NS    (5 * NS_PER_S)  /* between questions, which are dear */

static bool takes_part(const struct guard_worker *w)
{
	return w->policy->idle_after_ns || w->policy->idle_economy;
}

/* 1 busy, 0 not, -1 nobody knows: a figure of one of its processes is missing. */
static int busy(const struct guard *g, const struct guard_worker *w)
{
	int known = -1;

	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];

		if (g->verdict[i].class != CLASS_WORKER ||
		    g->verdict[i].worker != (int)(w - g->worker))
			continue;
		if (p->sm_ratio > 0)
			return 1;
		if (isnan(p->sm_ratio))
			return -1;
		known = 0;
	}
	return known;
}

void guard_idle_look(struct guard *g, struct guard_worker *w)
{
	int now = takes_part(w) ? busy(g, w) : -1;

	w->works = now == 1;
	if (now >= 0)
		w->figure_ns = g->now_ns;
	if (w->works || !w->bytes || w->bytes > w->idle_bytes + SLACK_BYTES || !w->figure_ns ||
	    g->now_ns - w->figure_ns > UNSEEN_NS)
		w->idle_ns = g->now_ns;
	w->idle_bytes = w->bytes;
	/* What was wanted was asked for this look, whether it was told or not. */
	if (w->wants_figure)
		w->asked_ns = g->now_ns;
	w->wants_figure = takes_part(w) && (w->bytes || w->virtual_out) &&
			  (!w->asked_ns || g->now_ns - w->asked_ns >= ASK_NS);
}

bool guard_idle_wants(const struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++)
		if (g->worker[i].wants_figure)
			return true;
	return false;
}

bool guard_idle_due(const struct guard *g, const struct guard_worker *w)
{
	return takes_part(w) && w->bytes && w->state == STATE_ACTIVE && !w->against &&
	       w->hold != HOLD_ACTIVE && g->now_ns >= w->resident_until_ns &&
	       w->idle_after_ns != UINT64_MAX && g->now_ns - w->idle_ns >= w->idle_after_ns;
}

void guard_idle_begin(struct guard *g, struct guard_worker *w)
{
	double seconds = (double)(g->now_ns - w->idle_ns) * 1e-9;
	char *text = w->evidence[REASON_IDLE];

	w->idle = true;
	w->mask |= BIT(REASON_IDLE);
	if (isnan(w->reload_j))
		text_fit(text, sizeof(w->evidence[0]), "idle for %.0f s", seconds);
	else
		text_fit(text, sizeof(w->evidence[0]),
			 "idle for %.0f s: at %.0f W that is %.0f J, and loading it takes "
			 "%.0f J",
			 seconds, w->idle_w, w->idle_w * seconds, w->reload_j);
}

void guard_idle_end(struct guard *g, struct guard_worker *w)
{
	w->dirty = w->dirty || w->idle;
	w->idle = false;
	w->idle_ns = g->now_ns;
	w->mask &= ~BIT(REASON_IDLE);
}

void guard_set_idle_economy(struct guard *g, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j)
{
	struct guard_worker *w = &g->worker[worker];

	if (worker >= g->workers || !takes_part(w))
		return;
	w->idle_after_ns = after_ns;
	w->idle_w = idle_w;
	w->reload_j = reload_j;
}

uint64_t guard_idle_since(const struct guard *g, unsigned worker)
{
	return worker < g->workers && takes_part(&g->worker[worker]) ? g->worker[worker].idle_ns
								     : 0;
}
