#include "economy.h"

#include "base/clock.h"

#include <math.h>

#define SAMPLES  10               /* of power, before a mean is believed */
#define MEMORY   60               /* samples that a mean remembers */
#define GAP_NS   (10 * NS_PER_S)  /* more between two looks is not bridged */
#define LOAD_NS  (300 * NS_PER_S) /* what takes longer is no load */
#define LEAST_NS (60 * NS_PER_S)  /* no sooner, however cheap a load seems */
#define LEAST_W  1.0              /* a difference below this is the sensor's noise */
#define KEEP     0.7              /* of what was learned, beside a new load */

static void add(struct economy_mean *m, double watts)
{
	if (m->count < MEMORY)
		m->count++;
	m->mean += (watts - m->mean) / m->count;
}

static double floor_w(const struct economy *e)
{
	return e->empty.count >= SAMPLES ? e->empty.mean : 0;
}

/* Energy above that of the card without the model, from the first growth until what it held is back. */
static void follow_load(struct economy *e, const struct economy_look *l, double seconds)
{
	if (!e->loading) {
		if (e->out && l->bytes > e->peak_bytes / 10 && e->peak_bytes) {
			e->loading = true;
			e->load_ns = e->last_ns;
			e->load_j = 0;
		} else {
			return;
		}
	}
	if (isnan(l->power_w) || seconds == 0 || l->now_ns - e->load_ns > LOAD_NS) {
		e->loading = e->out = false;
		return;
	}
	e->load_j += fmax(0, l->power_w - floor_w(e)) * seconds;
	if (l->bytes / 9 < e->peak_bytes / 10)
		return;
	e->loading = e->out = false;
	e->reload_j = e->reload_j > 0 ? KEEP * e->reload_j + (1 - KEEP) * e->load_j : e->load_j;
	e->spent_j += e->load_j;
}

static void learn_power(struct economy *e, const struct economy_look *l)
{
	if (isnan(l->power_w) || !l->alone || e->loading)
		return;
	if (l->runs && l->idles && l->bytes)
		add(&e->resident, l->power_w);
	else if (!l->runs && l->bytes <= e->peak_bytes / 20)
		add(&e->empty, l->power_w);
}

void economy_look(struct economy *e, const struct economy_options *o,
		  const struct economy_look *l)
{
	uint64_t step = e->last_ns && l->now_ns > e->last_ns ? l->now_ns - e->last_ns : 0;
	double seconds = step <= GAP_NS ? (double)step * 1e-9 : 0;
	struct economy_figures f;

	follow_load(e, l, seconds);
	learn_power(e, l);
	if (l->idle_out && l->bytes <= e->peak_bytes / 10) {
		economy_figures(e, o, &f);
		e->saved_j += f.idle_w * seconds;
	}
	if (!l->runs && l->bytes <= e->peak_bytes / 10)
		e->out = true;
	else if (l->runs && !e->loading && !e->out && l->bytes)
		e->peak_bytes = l->bytes;
	e->last_ns = l->now_ns;
}

void economy_figures(const struct economy *e, const struct economy_options *o,
		     struct economy_figures *ret)
{
	double drawn = e->resident.mean - e->empty.mean;

	ret->idle_learned =
		e->resident.count >= SAMPLES && e->empty.count >= SAMPLES && drawn >= LEAST_W;
	ret->idle_w = ret->idle_learned ? drawn : o->idle_w;
	ret->reload_learned = e->reload_j > 0;
	ret->reload_j = ret->reload_learned ? e->reload_j : o->reload_j;
	ret->after_ns = o->after_ns ? o->after_ns : UINT64_MAX;
	if (o->after_ns || isnan(ret->reload_j) || !(ret->idle_w > 0))
		return;
	ret->after_ns = (uint64_t)fmin(ret->reload_j / ret->idle_w * 1e9, 1e18);
	if (ret->after_ns < LEAST_NS)
		ret->after_ns = LEAST_NS;
}
