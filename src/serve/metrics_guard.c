/* metrics_guard: writes the capacity and health of the GPUs, and the state of the guard and its
 * workers.
 *
 * Without a guard, only the capacity is written. It is then computed without headroom,
 * reservations and workers. */
#include "metrics_page.h"

#include "guard_view.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_SPAN_NS (600 * NS_PER_S)

/* One worker on the page: its labels, status and counters. */
struct worker {
	struct labels base;
	struct guard_status s;
	unsigned levels;                     /* Bit n: the worker may be evicted at level n. */
	const struct counters_worker *tally; /* counters of the worker; NULL: none */
	double quiet_s;
	bool gpu; /* False: the guard observes no GPU, so the worker's memory is unknown. */
};

static bool find_worker(const struct guard_view *g, unsigned i, struct worker *ret)
{
	const struct policy_worker *w = &g->policy->worker[i];

	labels_clear(&ret->base);
	labels_add(&ret->base, "worker", w->name);
	ret->quiet_s =
		(double)policy_number(w->knobs.quiet_ns, g->policy->standard.quiet_ns) / 1e9;
	ret->levels = guard_levels(g->guard, i);
	ret->tally = counters_find(g->tally, w->name);
	ret->gpu = g->scene && g->scene->gpus;
	return guard_status(g->guard, i, &ret->s) == 0;
}

static double count_of(const struct worker *w, unsigned cell)
{
	return w->tally ? (double)w->tally->cell[cell] : 0;
}

static double worker_figure(const struct worker *w, unsigned metric)
{
	switch (metric) {
	case M_GUARD_FREED: return count_of(w, COUNTERS_FREED_BYTES);
	case M_GUARD_RESUMES: return count_of(w, COUNTERS_RESUMES);
	case M_GUARD_WOULD_EVICT: return count_of(w, COUNTERS_WOULD_EVICT);
	case M_GUARD_RESIDENT: return w->gpu ? (double)w->s.resident_bytes : (double)NAN;
	case M_GUARD_RESIDUE: return w->gpu ? (double)w->s.residue_bytes : (double)NAN;
	default: return w->s.backoff * w->quiet_s;
	}
}

static void worker_figures(struct page *p, const struct guard_view *g)
{
	static const unsigned metrics[] = { M_GUARD_FREED,       M_GUARD_RESUMES,
					    M_GUARD_WOULD_EVICT, M_GUARD_RESIDENT,
					    M_GUARD_RESIDUE,     M_GUARD_BACKOFF };
	struct worker w;

	for (size_t r = 0; r < COUNT(metrics); r++) {
		bool wanted = page_family(p, metrics[r]);

		for (unsigned i = 0; wanted && i < g->policy->workers; i++)
			if (find_worker(g, i, &w) && !isnan(worker_figure(&w, metrics[r])))
				metrics_sample(&p->t, w.base.text, NULL,
					       worker_figure(&w, metrics[r]));
	}
}

static void write_states(struct page *p, const struct worker *w)
{
	for (unsigned i = 0; i < GUARD_STATES; i++)
		page_word(p, w->base.text, "state", guard_state_name(i), w->s.state == i);
}

static void write_reasons(struct page *p, const struct worker *w)
{
	for (unsigned i = 0; i < GUARD_REASONS; i++)
		page_word(p, w->base.text, "reason", guard_reason_name(i), w->s.mask >> i & 1);
}

static void write_holds(struct page *p, const struct worker *w)
{
	for (unsigned i = HOLD_EVICTED; guard_holds[i]; i++)
		page_word(p, w->base.text, "hold", guard_holds[i], w->s.hold == i);
}

static void write_blocked(struct page *p, const struct worker *w)
{
	for (unsigned i = 0; i < GUARD_BLOCKS; i++)
		page_labelled(p, w->base.text, "why", guard_block_name(i),
			      count_of(w, COUNTERS_BLOCKED + i));
}

/* Writes the number of evictions per level, for each level at which the worker may be evicted
 * or was evicted. */
static void write_evictions(struct page *p, const struct worker *w)
{
	for (unsigned i = 0; i < GUARD_LEVELS * (RESULT_FAILED + 1); i++) {
		unsigned level = i / (RESULT_FAILED + 1), result = i % (RESULT_FAILED + 1);
		double n = count_of(w, counters_eviction(level, result));
		struct labels l;

		if (result == RESULT_NONE || (!(w->levels >> level & 1) && n == 0))
			continue;
		labels_clear(&l);
		labels_add_number(&l, "level", level);
		labels_add(&l, "result", guard_result_name(result));
		metrics_sample(&p->t, w->base.text, l.text, n);
	}
}

/* Writes the metrics that have one series per word, such as one per state. The value is 0, 1 or
 * a count. */
static void worker_words(struct page *p, const struct guard_view *g)
{
	static const struct {
		unsigned metric;
		void (*put)(struct page *p, const struct worker *w);
	} rows[] = {
		{ M_GUARD_STATE, write_states },    { M_GUARD_REASON, write_reasons },
		{ M_GUARD_HOLD, write_holds },      { M_GUARD_EVICTIONS, write_evictions },
		{ M_GUARD_BLOCKED, write_blocked },
	};
	struct worker w;

	for (size_t r = 0; r < COUNT(rows); r++) {
		bool wanted = page_family(p, rows[r].metric);

		for (unsigned i = 0; wanted && i < g->policy->workers; i++)
			if (find_worker(g, i, &w))
				rows[r].put(p, &w);
	}
}

static void guard_metrics(struct page *p, const struct guard_view *g)
{
	const struct guard_view_counts *c = &g->counts;
	bool mode = page_family(p, M_GUARD_MODE);

	for (unsigned m = 0; mode && guard_modes[m]; m++)
		page_word(p, NULL, "mode", guard_modes[m], g->policy->mode == m);
	page_one(p, M_GUARD_JOURNAL, g->journal == GUARD_JOURNAL_OK);
	page_one(p, M_GUARD_LOOKS, (double)c->scenes);
	page_one(p, M_GUARD_EVENTS_LOST, (double)c->events_lost);
	page_one(p, M_GUARD_DECIDE, page_above_zero(c->decide_seconds_last));
	page_one(p, M_GUARD_DECIDE_MAX, page_above_zero(c->decide_seconds_max));
	page_one(p, M_GUARD_FREE, page_above_zero(c->free_seconds_last));
	page_one(p, M_GUARD_FREE_MAX, page_above_zero(c->free_seconds_max));
}

/* Returns the index of GPU i in the guard's latest scene; -1: the scene does not have this
 * GPU. */
static int scene_gpu(const struct page *p, const struct guard_view *g, unsigned i,
		     const struct scene **ret)
{
	guard_verdicts(g->guard, ret);
	return guard_view_gpu(*ret, gw_device_text(page_gpu(p, i), GW_T_UUID));
}

static bool listed_before(const struct scene *s, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (s->process[k].gpu == s->process[i].gpu &&
		    s->process[k].id.pid == s->process[i].id.pid)
			return true;
	return false;
}

static void write_classes(struct page *p, const struct guard_view *g)
{
	bool wanted = page_family(p, M_GUARD_PROCESSES);

	for (unsigned i = 0; wanted && i < p->gpus; i++) {
		unsigned n[GUARD_CLASSES] = { 0 };
		const struct scene *s;
		const struct verdict *v = guard_verdicts(g->guard, &s);
		int at = scene_gpu(p, g, i, &s);

		for (unsigned k = 0; at >= 0 && k < s->processes; k++)
			n[v[k].class] += s->process[k].gpu == (unsigned)at;
		for (unsigned c = 0; at >= 0 && c < GUARD_CLASSES; c++)
			page_labelled(p, p->base[i], "class", guard_class_name(c), n[c]);
	}
}

static double is_blind(const struct page *p, unsigned i, unsigned family)
{
	const char *uuid = gw_device_text(page_gpu(p, i), GW_T_UUID);

	(void)family;
	return uuid ? guard_blind(p->v->guard->guard, uuid) : (double)NAN;
}

static double unattributed_bytes(const struct page *p, unsigned i, unsigned family)
{
	const struct scene *s;
	int at = scene_gpu(p, p->v->guard, i, &s);

	(void)family;
	return at >= 0 ? guard_view_unattributed(s, (unsigned)at) : (double)NAN;
}

static double movable_bytes(const struct capacity_gpu *c)
{
	double sum = 0;

	for (unsigned i = 0; i < c->workers; i++)
		sum += c->worker[i].movable ? (double)c->worker[i].bytes : 0;
	return sum;
}

static double least_bytes(const struct page *p, unsigned i)
{
	const struct guard_view *g = p->v->guard;
	struct capacity_past past = { .mean_bytes = NAN };

	if (g && g->guard && i < g->devices && g->capacity[i])
		capacity_past(g->capacity[i], gw_snapshot_mono_ns(p->v->snap), LEAST_SPAN_NS,
			      &past);
	return isnan(past.mean_bytes) ? NAN : (double)past.min_bytes;
}

/* Returns one figure of the capacity of a GPU; NAN: unknown, for example because there is no
 * current reading. */
static double capacity_figure(const struct page *p, unsigned i, unsigned family)
{
	struct capacity_gpu c;

	guard_view_capacity(p->v, i, &c);
	if (!c.known || !page_responds(p, i))
		return NAN;
	switch (family) {
	case M_CAPACITY_AVAILABLE: return (double)capacity_available(&c);
	case M_CAPACITY_LEAST: return least_bytes(p, i);
	case M_CAPACITY_EVICTABLE: return movable_bytes(&c);
	case M_CAPACITY_HEADROOM: return (double)c.headroom_bytes;
	default: return (double)c.reserved_bytes;
	}
}

static bool get_health(const struct page *p, unsigned i, struct health_status *ret)
{
	const struct guard_view *g = p->v->guard;

	if (i >= g->devices || !g->health[i])
		return false;
	health_status(g->health[i], gw_snapshot_mono_ns(p->v->snap), ret);
	return true;
}

static double health_figure(const struct page *p, unsigned i, unsigned family)
{
	struct health_status h;

	if (!get_health(p, i, &h))
		return NAN;
	switch (family) {
	case M_GPU_THERMAL_MARGIN: return h.margin_c;
	case M_GPU_QUARANTINE: return h.quarantine;
	default: return h.xids;
	}
}

static void write_levels(struct page *p)
{
	const bool wanted = page_family(p, M_GPU_HEALTH);
	struct health_status h;

	for (unsigned i = 0; wanted && i < p->gpus; i++) {
		bool known = get_health(p, i, &h);

		for (unsigned l = 0; known && l <= HEALTH_QUARANTINE; l++)
			page_word(p, p->base[i], "level", health_level_name(l), h.level == l);
	}
}

static void xids_by_number(struct page *p, const struct guard_view *g)
{
	char number[16];
	bool wanted = page_family(p, M_GPU_XID);

	for (unsigned i = 0; wanted && g->tally && i < p->gpus; i++) {
		const char *uuid = gw_device_text(page_gpu(p, i), GW_T_UUID);

		for (unsigned k = 0; uuid && k < g->tally->xids; k++) {
			if (strcmp(g->tally->xid[k].uuid, uuid) != 0)
				continue;
			snprintf(number, sizeof(number), "%u", g->tally->xid[k].xid);
			page_labelled(p, p->base[i], "xid", number,
				      (double)g->tally->xid[k].count);
		}
	}
}

static double remap_figure(const struct page *p, unsigned i, unsigned family)
{
	return page_figure(
		p, i, family == M_GPU_REMAP_PENDING ? GW_Q_ROWS_PENDING : GW_Q_ROWS_FAILED);
}

void metrics_guard(struct page *p)
{
	const struct guard_view *g = p->v->guard;

	if (g && !g->guard)
		g = NULL;
	page_gpus(p, M_CAPACITY_AVAILABLE, capacity_figure);
	page_gpus(p, M_CAPACITY_LEAST, capacity_figure);
	page_gpus(p, M_CAPACITY_EVICTABLE, capacity_figure);
	page_gpus(p, M_CAPACITY_HEADROOM, capacity_figure);
	page_gpus(p, M_CAPACITY_RESERVED, capacity_figure);
	page_gpus(p, M_GPU_REMAP_PENDING, remap_figure);
	page_gpus(p, M_GPU_REMAP_FAILURE, remap_figure);
	if (!g)
		return;
	guard_metrics(p, g);
	worker_words(p, g);
	worker_figures(p, g);
	page_gpus(p, M_GUARD_BLIND, is_blind);
	write_classes(p, g);
	page_gpus(p, M_GPU_UNATTRIBUTED, unattributed_bytes);
	page_gpus(p, M_GPU_THERMAL_MARGIN, health_figure);
	page_gpus(p, M_GPU_QUARANTINE, health_figure);
	page_gpus(p, M_GPU_XIDS, health_figure);
	write_levels(p);
	xids_by_number(p, g);
}

int metrics_guard_others(const struct page *p, unsigned i)
{
	const struct guard_view *g = p->v->guard;
	const struct verdict *v;
	const struct scene *s;
	int at, n = 0;

	if (!g || !g->guard || (at = scene_gpu(p, g, i, &s)) < 0)
		return -1;
	v = guard_verdicts(g->guard, NULL);
	for (unsigned k = 0; k < s->processes; k++)
		n += s->process[k].gpu == (unsigned)at && v[k].class != CLASS_SELF &&
		     v[k].class != CLASS_WORKER && !listed_before(s, k);
	return n;
}
