#include "economy_learner.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IDLES_NS (10 * NS_PER_S) /* then the power of an idle GPU is steady */
#define CHANGE   0.1

struct economy_learner {
	const struct policy *policy;
	struct economy one[POLICY_WORKERS];
	struct economy_figures reported[POLICY_WORKERS];
};

int economy_learner_new(const struct policy *p, struct economy_learner **ret)
{
	struct economy_learner *e = calloc(1, sizeof(*e));

	if (!e)
		return -GW_E_NOMEM;
	e->policy = p;
	*ret = e;
	return 0;
}

void economy_learner_free(struct economy_learner *e)
{
	free(e);
}

/* Power of the worker's GPUs, and whether it is alone there. The GPU of an evicted worker is
 * only known if the machine has one GPU. */
static void read_gpus(const struct guard *guard, const struct view *v, unsigned worker,
		      struct economy_look *l)
{
	const struct scene *s;
	const struct verdict *verdict = guard_verdicts(guard, &s);
	uint64_t mine = 0, others = 0;

	for (unsigned i = 0; i < s->processes; i++) {
		bool own = verdict[i].class == CLASS_WORKER && verdict[i].worker == (int)worker;

		*(own ? &mine : &others) |= UINT64_C(1) << s->process[i].gpu;
	}
	if (!mine && s->gpus == 1)
		mine = 1;
	l->alone = mine && !(mine & others);
	l->power_w = mine ? 0 : (double)NAN;
	for (unsigned i = 0; i < v->devices; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);
		int at = guard_view_gpu(s, gw_device_text(d, GW_T_UUID));
		double watts = NAN;

		if (at < 0 || !(mine >> at & 1))
			continue;
		(void)gw_device_value(d, GW_Q_POWER, &watts);
		l->power_w += watts;
	}
}

static bool changed(double a, double b)
{
	return isnan(a) != isnan(b) || fabs(a - b) > CHANGE * fabs(b);
}

static bool has_changed(const struct economy_figures *a, const struct economy_figures *b)
{
	return (a->after_ns == UINT64_MAX) != (b->after_ns == UINT64_MAX) ||
	       changed((double)a->after_ns, (double)b->after_ns) ||
	       changed(a->idle_w, b->idle_w) || changed(a->reload_j, b->reload_j);
}

void economy_learner_tick(struct economy_learner *e, const struct guard *guard,
			  const struct view *v, uint64_t now_ns,
			  void (*found)(void *arg, unsigned worker,
					const struct economy_figures *f),
			  void *arg)
{
	for (unsigned i = 0; v->snap && i < e->policy->workers; i++) {
		const struct policy_worker *w = &e->policy->worker[i];
		struct economy_options o = { w->idle_w, w->reload_j, w->idle_after_ns };
		uint64_t since = guard_idle_since(guard, i);
		struct economy_figures f;
		struct guard_status s;
		struct economy_look l;

		if ((!w->idle_economy && !w->idle_after_ns) || guard_status(guard, i, &s) != 0)
			continue;
		l = (struct economy_look){
			.now_ns = now_ns,
			.bytes = s.resident_bytes,
			.runs = s.state == STATE_ACTIVE || s.state == STATE_SUSPECT,
			.idle_out = s.state == STATE_EVICTED && s.mask >> REASON_IDLE & 1,
			.idles = since && now_ns > since + IDLES_NS,
		};
		read_gpus(guard, v, i, &l);
		economy_look(&e->one[i], &o, &l);
		economy_figures(&e->one[i], &o, &f);
		if (!has_changed(&f, &e->reported[i]))
			continue;
		e->reported[i] = f;
		found(arg, i, &f);
	}
}

void economy_learner_count(const struct economy_learner *e, struct guard_view_counts *ret)
{
	ret->idle_saved_joules = ret->idle_spent_joules = 0;
	for (unsigned i = 0; i < e->policy->workers; i++) {
		ret->idle_saved_joules += e->one[i].saved_j;
		ret->idle_spent_joules += e->one[i].spent_j;
	}
}
