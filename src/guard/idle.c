/* Unloads idle workers if that saves energy (GUARD.md, Models that idle).
 *
 * Unloads only workers that load their model again when a client requests it. An unloaded
 * worker continues to admit new work. If its memory grows, a client made a request, and the
 * worker runs again. The eviction uses only the first level, so it stops no unit. */
#include "idle.h"

#include "guard_internal.h"

#include <math.h>

/* A worker does not count as idle if its utilisation has been unknown for this long. */
#define UNSEEN_NS (15 * NS_PER_S)
#define FIGURE_NS (5 * NS_PER_S) /* time between readings of utilisation, which are expensive */

static bool idle_economy(const struct guard_worker *w)
{
	return w->policy->idle_after_ns || w->policy->idle_economy;
}

/* Returns 1 if the worker is busy, 0 if it is idle. Returns -1 if the utilisation of one of its
 * processes is unknown, or if it has no process on a GPU. */
static int idle_busy(const struct guard *g, const struct guard_worker *w)
{
	int known = -1;

	for (unsigned i = 0; i < g->scene.processes; i++) {
		const struct scene_process *p = &g->scene.process[i];

		if (g->verdict[i].class != CLASS_WORKER ||
		    g->verdict[i].worker != (int)worker_number(g, w))
			continue;
		if (p->sm_ratio > 0)
			return 1;
		if (isnan(p->sm_ratio))
			return -1;
		known = 0;
	}
	return known;
}

void guard_idle_scene(struct guard *g, struct guard_worker *w)
{
	int now = idle_economy(w) ? idle_busy(g, w) : -1;

	w->idle.busy = now == 1;
	if (now >= 0)
		w->idle.figure_ns = g->now_ns;
	if (w->idle.busy || !w->observed.bytes ||
	    w->observed.bytes > w->idle.bytes + SLACK_BYTES || !w->idle.figure_ns ||
	    g->now_ns - w->idle.figure_ns > UNSEEN_NS)
		w->idle.since_ns = g->now_ns;
	w->idle.bytes = w->observed.bytes;
	/* this scene should have had utilisation, even if the driver did not report it */
	if (w->idle.wants_figure)
		w->idle.asked_ns = g->now_ns;
	w->idle.wants_figure = idle_economy(w) &&
			       (w->observed.bytes || (w->intent.claim == CLAIM_DRY)) &&
			       (!w->idle.asked_ns || g->now_ns - w->idle.asked_ns >= FIGURE_NS);
}

bool guard_idle_wants(const struct guard *g)
{
	for (unsigned i = 0; i < g->workers; i++)
		if (g->worker[i].idle.wants_figure)
			return true;
	return false;
}

bool guard_idle_due(const struct guard *g, const struct guard_worker *w)
{
	return idle_economy(w) && w->observed.bytes && worker_state(w) == STATE_ACTIVE &&
	       !w->demand.pressing && !worker_is_held_active(w) &&
	       g->now_ns >= w->backoff.resident_ns && w->idle.after_ns != UINT64_MAX &&
	       g->now_ns - w->idle.since_ns >= w->idle.after_ns;
}

void guard_idle_begin(struct guard *g, struct guard_worker *w)
{
	double seconds = (double)(g->now_ns - w->idle.since_ns) * 1e-9;
	char *text = w->reasons.evidence[REASON_IDLE];

	w->idle.unload = true;
	w->reasons.mask |= BIT(REASON_IDLE);
	if (isnan(w->idle.reload_j))
		text_fit(text, sizeof(w->reasons.evidence[0]), "idle for %.0f s", seconds);
	else
		text_fit(text, sizeof(w->reasons.evidence[0]),
			 "idle for %.0f s: at %.0f W this costs %.0f J, and loading the model "
			 "again costs %.0f J",
			 seconds, w->idle.idle_w, w->idle.idle_w * seconds, w->idle.reload_j);
}

void guard_idle_end(struct guard *g, struct guard_worker *w)
{
	w->record_due = w->record_due || w->idle.unload;
	w->idle.unload = false;
	w->idle.since_ns = g->now_ns;
	w->reasons.mask &= ~BIT(REASON_IDLE);
}

void guard_set_idle_economy(struct guard *g, unsigned worker, uint64_t after_ns, double idle_w,
			    double reload_j)
{
	struct guard_worker *w = &g->worker[worker];

	if (worker >= g->workers || !idle_economy(w))
		return;
	w->idle.after_ns = after_ns;
	w->idle.idle_w = idle_w;
	w->idle.reload_j = reload_j;
}

uint64_t guard_idle_since(const struct guard *g, unsigned worker)
{
	return worker < g->workers && idle_economy(&g->worker[worker])
		       ? g->worker[worker].idle.since_ns
		       : 0;
}

/* If a client uses a worker that was evicted because it was idle, removes the reason idle. If
 * the model is loaded again and no other reason keeps the worker out, also sets the worker to
 * running, reports this and returns true. */
bool guard_idle_end_if_used(struct guard *g, struct guard_worker *w)
{
	double out_s = (double)(g->now_ns - w->since_ns) * 1e-9;
	bool loaded = guard_is_loaded_again(w);

	if (!w->idle.unload || (!loaded && !w->idle.busy))
		return false;
	guard_idle_end(g, w);
	if (!loaded || worker_kept_out(w))
		return false;
	worker_set_running(g, w);
	guard_report(g, w, "requested",
		     "a client loaded %llu MiB; %.0f s without the model saved about %.0f J, "
		     "loading not counted",
		     (unsigned long long)(w->observed.bytes / MIB), out_s,
		     out_s * w->idle.idle_w);
	return true;
}

#define ECONOMY_SAMPLES 10 /* a mean of fewer power samples is not used */
#define ECONOMY_MEMORY  60 /* a new sample has at least the weight 1/60 in a mean */
/* a longer time between two inputs is a gap, for which no energy is counted */
#define ECONOMY_GAP_NS (10 * NS_PER_S)
/* if memory grows for longer than this, the growth is not a model that is being loaded */
#define ECONOMY_LOAD_NS  (300 * NS_PER_S)
#define ECONOMY_LEAST_NS (60 * NS_PER_S) /* minimum idle time before a worker is unloaded */
#define ECONOMY_LEAST_W  1.0 /* a smaller difference of power is noise of the sensor */
#define ECONOMY_KEEP     0.7 /* weight of the old energy when the energy of a load is added */

static void idle_mean_add(struct idle_mean *m, double watts)
{
	if (m->count < ECONOMY_MEMORY)
		m->count++;
	m->mean += (watts - m->mean) / m->count;
}

static double idle_empty_w(const struct idle_economy *e)
{
	return e->empty.count >= ECONOMY_SAMPLES ? e->empty.mean : 0;
}

/* Adds up the energy of loading the model, minus the energy that the GPU would have used
 * without the model. Loading begins when the worker's memory grows, and ends when the worker
 * holds nine tenths of its earlier peak. */
static void idle_measure_load(struct idle_economy *e, const struct idle_input *in,
			      double seconds)
{
	if (e->model != ECONOMY_LOADING) {
		if (e->model == ECONOMY_UNLOADED && in->bytes > e->peak_bytes / 10 &&
		    e->peak_bytes) {
			e->model = ECONOMY_LOADING;
			e->load_ns = e->last_ns;
			e->load_j = 0;
		} else {
			return;
		}
	}
	if (isnan(in->power_w) || seconds == 0 || in->now_ns - e->load_ns > ECONOMY_LOAD_NS) {
		e->model = ECONOMY_LOADED;
		return;
	}
	e->load_j += fmax(0, in->power_w - idle_empty_w(e)) * seconds;
	if (in->bytes / 9 < e->peak_bytes / 10)
		return;
	e->model = ECONOMY_LOADED;
	e->reload_j = e->reload_j > 0
			      ? ECONOMY_KEEP * e->reload_j + (1 - ECONOMY_KEEP) * e->load_j
			      : e->load_j;
	e->spent_j += e->load_j;
}

static void idle_learn_power(struct idle_economy *e, const struct idle_input *in)
{
	if (isnan(in->power_w) || !in->alone || e->model == ECONOMY_LOADING)
		return;
	if (in->runs && in->idles && in->bytes)
		idle_mean_add(&e->resident, in->power_w);
	else if (!in->runs && in->bytes <= e->peak_bytes / 20)
		idle_mean_add(&e->empty, in->power_w);
}

void idle_update(struct idle_economy *e, const struct idle_options *o,
		 const struct idle_input *in)
{
	uint64_t step = e->last_ns && in->now_ns > e->last_ns ? in->now_ns - e->last_ns : 0;
	double seconds = step <= ECONOMY_GAP_NS ? (double)step * 1e-9 : 0;
	struct idle_figures f;

	idle_measure_load(e, in, seconds);
	idle_learn_power(e, in);
	if (in->idle_out && in->bytes <= e->peak_bytes / 10) {
		idle_figures(e, o, &f);
		e->saved_j += f.idle_w * seconds;
	}
	if (!in->runs && in->bytes <= e->peak_bytes / 10)
		e->model = e->model == ECONOMY_LOADING ? ECONOMY_LOADING : ECONOMY_UNLOADED;
	else if (in->runs && e->model == ECONOMY_LOADED && in->bytes)
		e->peak_bytes = in->bytes;
	e->last_ns = in->now_ns;
}

void idle_figures(const struct idle_economy *e, const struct idle_options *o,
		  struct idle_figures *ret)
{
	double drawn = e->resident.mean - e->empty.mean;

	ret->idle_learned = e->resident.count >= ECONOMY_SAMPLES &&
			    e->empty.count >= ECONOMY_SAMPLES && drawn >= ECONOMY_LEAST_W;
	ret->idle_w = ret->idle_learned ? drawn : o->idle_w;
	ret->reload_learned = e->reload_j > 0;
	ret->reload_j = ret->reload_learned ? e->reload_j : o->reload_j;
	ret->after_ns = o->after_ns ? o->after_ns : UINT64_MAX;
	if (o->after_ns || isnan(ret->reload_j) || !(ret->idle_w > 0))
		return;
	ret->after_ns = (uint64_t)fmin(ret->reload_j / ret->idle_w * 1e9, 1e18);
	if (ret->after_ns < ECONOMY_LEAST_NS)
		ret->after_ns = ECONOMY_LEAST_NS;
}
