#include "economy.h"

#include "base/clock.h"

#include <math.h>

#define SAMPLES 10              /* a mean is used from this number of power samples on */
#define MEMORY  60              /* number of samples that a mean remembers */
#define GAP_NS  (10 * NS_PER_S) /* a longer gap between two inputs is not bridged */
/* memory growth that takes longer is not the loading of a model */
#define LOAD_NS  (300 * NS_PER_S)
#define LEAST_NS (60 * NS_PER_S) /* minimum idle time before a worker is unloaded */
#define LEAST_W  1.0             /* a smaller difference is noise of the sensor */
#define KEEP     0.7             /* weight of the old value when a new load is averaged in */

static void mean_add(struct economy_mean *m, double watts)
{
	if (m->count < MEMORY)
		m->count++;
	m->mean += (watts - m->mean) / m->count;
}

static double empty_w(const struct economy *e)
{
	return e->empty.count >= SAMPLES ? e->empty.mean : 0;
}

/* Adds up the energy of loading the model, above the energy of the GPU without the model.
 * Loading lasts from the first growth of the worker's memory until nine tenths of the earlier
 * peak are back. */
static void measure_load(struct economy *e, const struct economy_input *in, double seconds)
{
	if (!e->loading) {
		if (e->out && in->bytes > e->peak_bytes / 10 && e->peak_bytes) {
			e->loading = true;
			e->load_ns = e->last_ns;
			e->load_j = 0;
		} else {
			return;
		}
	}
	if (isnan(in->power_w) || seconds == 0 || in->now_ns - e->load_ns > LOAD_NS) {
		e->loading = e->out = false;
		return;
	}
	e->load_j += fmax(0, in->power_w - empty_w(e)) * seconds;
	if (in->bytes / 9 < e->peak_bytes / 10)
		return;
	e->loading = e->out = false;
	e->reload_j = e->reload_j > 0 ? KEEP * e->reload_j + (1 - KEEP) * e->load_j : e->load_j;
	e->spent_j += e->load_j;
}

static void learn_power(struct economy *e, const struct economy_input *in)
{
	if (isnan(in->power_w) || !in->alone || e->loading)
		return;
	if (in->runs && in->idles && in->bytes)
		mean_add(&e->resident, in->power_w);
	else if (!in->runs && in->bytes <= e->peak_bytes / 20)
		mean_add(&e->empty, in->power_w);
}

void economy_update(struct economy *e, const struct economy_options *o,
		    const struct economy_input *in)
{
	uint64_t step = e->last_ns && in->now_ns > e->last_ns ? in->now_ns - e->last_ns : 0;
	double seconds = step <= GAP_NS ? (double)step * 1e-9 : 0;
	struct economy_figures f;

	measure_load(e, in, seconds);
	learn_power(e, in);
	if (in->idle_out && in->bytes <= e->peak_bytes / 10) {
		economy_figures(e, o, &f);
		e->saved_j += f.idle_w * seconds;
	}
	if (!in->runs && in->bytes <= e->peak_bytes / 10)
		e->out = true;
	else if (in->runs && !e->loading && !e->out && in->bytes)
		e->peak_bytes = in->bytes;
	e->last_ns = in->now_ns;
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
