/* metrics: writes the metrics page. This file has the families of workloads, models, the
 * service itself and the host, and the families with old names (write_compatible()).
 *
 * The samples of a family must be contiguous, so the outer loop is over families and the inner
 * loop over GPUs. */
#include "metrics_page.h"

#include "guard_view.h"
#include "metrics.h"

#include "base/array.h"
#include "device/driver_call.h"
#include "measure/model_energy.h"
#include "measure/workload_energy.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void page_init(struct page *p, struct buf *out, const struct api *a,
		      enum metrics_form form)
{
	struct labels l;

	p->t = (struct metrics_text){ .out = out, .form = form };
	p->a = a;
	p->v = &a->view;
	p->workers = p->v->guard && p->v->guard->policy && p->v->guard->policy->workers > 0;
	p->current = view_current(p->v, clock_mono_ns(p->a->clock));
	p->gpus = p->v->snap ? gw_snapshot_device_count(p->v->snap) : 0;
	if (p->gpus > PAGE_GPUS)
		p->gpus = PAGE_GPUS;
	for (unsigned i = 0; i < p->gpus; i++) {
		labels_clear(&l);
		labels_add(&l, "uuid", gw_device_text(page_gpu(p, i), GW_T_UUID));
		labels_add_number(&l, "gpu", page_gpu(p, i)->index);
		assert(l.len < PAGE_BASE);
		memcpy(p->base[i], l.text, l.len + 1);
	}
}

bool page_family(struct page *p, unsigned family)
{
	if (!metrics_chosen(&p->a->metrics, family, p->workers))
		return false;
	metrics_table(family, &p->family);
	metrics_family(&p->t, &p->family);
	return true;
}

void page_gpus(struct page *p, unsigned family,
	       double (*of)(const struct page *p, unsigned i, unsigned family))
{
	const bool wanted = page_family(p, family);

	for (unsigned i = 0; wanted && i < p->gpus; i++)
		metrics_sample(&p->t, p->base[i], NULL, of(p, i, family));
}

void page_one(struct page *p, unsigned family, double value)
{
	if (page_family(p, family))
		metrics_sample(&p->t, NULL, NULL, value);
}

void page_word(struct page *p, const char *base, const char *name, const char *value, bool set)
{
	if (set || p->a->metrics.zeros)
		page_labelled(p, base, name, value, set);
}

void page_labelled(struct page *p, const char *base, const char *name, const char *value,
		   double v)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, name, value);
	metrics_sample(&p->t, base, l.text, v);
}

double page_figure(const struct page *p, unsigned i, unsigned q)
{
	const struct gw_device *d = page_gpu(p, i);
	double v = NAN;

	if (page_responds(p, i) && gw_device_value(d, q, &v) == GW_HAVE &&
	    q == GW_Q_TEMPERATURE_MARGIN)
		return d->reported_margin_c;
	return v;
}

bool page_listed(const struct page *p, unsigned i)
{
	return page_responds(p, i) && p->v->processes &&
	       gw_process_list_absence(p->v->processes, i) == GW_HAVE;
}

void page_processes(struct page *p, bool not_ours)
{
	const struct gw_process_list *list = p->v->processes;
	unsigned n[PAGE_GPUS] = { 0 };
	int64_t self = getpid();

	for (unsigned i = 0; list && i < gw_process_list_count(list); i++) {
		const struct gw_process *x = gw_process_list_get(list, i);

		if (x->device < PAGE_GPUS && !(not_ours && x->pid == self))
			n[x->device]++;
	}
	for (unsigned i = 0; i < p->gpus; i++) {
		int others = not_ours ? metrics_guard_others(p, i) : -1;

		if (page_listed(p, i))
			metrics_sample(&p->t, p->base[i], NULL,
				       others >= 0 ? (double)others : (double)n[i]);
	}
}

/* Workloads. At most WORKLOAD_SERIES_MAX workloads per GPU have their own series.
 * workload_energy.h chooses these workloads so that no counter decreases while its series
 * exists. The other energy of the GPU (idle, unattributed, other workloads) has series with
 * other values of the label kind, so that the sum over all series is the energy of the GPU. */

static void put_sample(struct page *p, unsigned gpu, const char *kind, const struct workload *w,
		       double v)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "kind", kind);
	labels_add(&l, "namespace", w ? w->space : "");
	labels_add(&l, "name", w ? w->name : "");
	labels_add(&l, "part", w ? w->part : "");
	metrics_sample(&p->t, p->base[gpu], l.text, v);
}

/* Returns one figure of a workload; NAN: unknown. */
static double row_figure(const struct workload_row *r, unsigned metric)
{
	switch (metric) {
	case M_WORKLOAD_ENERGY:
		return r->charged ? page_micro(r->joules - r->series_from_j) : (double)NAN;
	case M_WORKLOAD_SECONDS: return page_micro(r->gpu_seconds);
	case M_WORKLOAD_MEMORY: return r->processes ? r->memory_bytes : (double)NAN;
	case M_WORKLOAD_SM: return r->processes ? r->sm_ratio : (double)NAN;
	default: return r->processes ? r->power_w : (double)NAN;
	}
}

/* Writes one family with a sample per workload. Returns false if the family is not served. */
static bool put_rows(struct page *p, unsigned metric)
{
	const struct workload_energy *e = p->v->workloads;

	if (!page_family(p, metric))
		return false;
	for (unsigned i = 0; i < p->gpus; i++)
		for (unsigned k = 0; k < e->count; k++)
			if (e->row[k].gpu == i && e->row[k].has_series)
				put_sample(p, i, workload_kind_word(e->row[k].workload.kind),
					   &e->row[k].workload, row_figure(&e->row[k], metric));
	return true;
}

/* Writes energy that belongs to no single workload (enum workload_rest). If `always` is false,
 * writes the series only if the energy is not 0, because most GPUs never need this series. */
static void put_rest(struct page *p, unsigned gpu, const char *kind, double joules, bool always)
{
	if (always || joules != 0)
		put_sample(p, gpu, kind, NULL, page_micro(joules));
}

/* Writes the energy that is in no series of a workload, so that the sum over all series is
 * complete. Call it directly after the energy of the workloads was written, in the same
 * family. */
static void put_rests(struct page *p)
{
	const struct workload_energy *e = p->v->workloads;

	for (unsigned i = 0; i < p->gpus && i < e->gpus; i++) {
		if (!e->gpu[i].begun)
			continue;
		for (unsigned r = 0; r < WORKLOAD_RESTS; r++)
			put_rest(p, i, workload_rest_word(r), e->gpu[i].rest_j[r],
				 r == WORKLOAD_IDLE || r == WORKLOAD_UNATTRIBUTED);
		put_rest(p, i, "other", workload_energy_series_other(e, i), false);
	}
}

static void write_workloads(struct page *p)
{
	if (!p->v->workloads || !p->v->self.counts_known)
		return;
	if (put_rows(p, M_WORKLOAD_ENERGY))
		put_rests(p);
	put_rows(p, M_WORKLOAD_SECONDS);
	put_rows(p, M_WORKLOAD_MEMORY);
	put_rows(p, M_WORKLOAD_SM);
	put_rows(p, M_WORKLOAD_POWER);
}

/* Models. Both counters of a model increase at the same time. Therefore rate(energy) /
 * rate(tokens) is the joules per token. */

static void put_tokens(struct page *p, const struct model_row *r)
{
	struct labels l;

	for (unsigned d = 0; r->counted && d < MODEL_DIRECTIONS; d++) {
		labels_clear(&l);
		labels_add(&l, "worker", r->worker);
		labels_add(&l, "model", r->model);
		labels_add(&l, "direction", model_direction_name(d));
		metrics_sample(&p->t, l.text, NULL, r->tokens[d]);
	}
}

static void put_energy(struct page *p, const struct model_energy *m, const struct model_row *r)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "worker", r->worker);
	labels_add(&l, "model", r->model);
	for (unsigned i = 0; i < p->gpus; i++) {
		const char *uuid = gw_device_text(page_gpu(p, i), GW_T_UUID);

		for (unsigned g = 0; uuid && g < m->gpus; g++)
			if (strcmp(uuid, m->gpu[g]) == 0 && r->joules[g] > 0)
				metrics_sample(&p->t, p->base[i], l.text,
					       page_micro(r->joules[g]));
	}
}

static void write_models(struct page *p)
{
	const struct model_energy *m = p->v->models;
	const struct model_row *r;

	if (m && page_family(p, M_MODEL_TOKENS))
		for (unsigned i = 0; (r = model_energy_row(m, i)); i++)
			put_tokens(p, r);
	if (m && page_family(p, M_MODEL_ENERGY))
		for (unsigned i = 0; (r = model_energy_row(m, i)); i++)
			put_energy(p, m, r);
}

static void write_driver(struct page *p)
{
	const struct gw_status *st = gw_snapshot_status(p->v->snap);
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "backend", st->backend);
	labels_add(&l, "driver", st->driver_version);
	labels_add(&l, "nvml", st->nvml_version);
	labels_add(&l, "cuda", st->cuda_version);
	if (page_family(p, M_DRIVER))
		metrics_sample(&p->t, NULL, l.text, 1);
	page_one(p, M_LAST_TICK, page_seconds(gw_snapshot_wall_ns(p->v->snap)));
}

static bool is_up(const struct page *p)
{
	char why[256];

	return p->v->tick && p->v->snap &&
	       !view_stale(p->v, clock_mono_ns(p->a->clock), why, sizeof(why));
}

static void write_service(struct page *p)
{
	const struct view_self *s = &p->v->self;

	page_one(p, M_UP, is_up(p));
	if (page_family(p, M_BUILD))
		page_labelled(p, NULL, "version", gw_version(), 1);
	if (p->v->snap)
		write_driver(p);
	page_one(p, M_INTERVAL, (double)p->v->interval_ns / 1e9);
	page_one(p, M_TICKS, (double)s->ticks);
	page_one(p, M_TICKS_MISSED, (double)s->ticks_missed);
	if (p->v->tick) {
		page_one(p, M_TICK, s->tick_seconds);
		page_one(p, M_TICK_MAX, s->tick_max_seconds);
		page_one(p, M_GPUS, p->gpus);
	}
	page_one(p, M_LET_GO, p->v->let_go);
}

static double call_figure(const struct call_cost *c, unsigned metric)
{
	switch (metric) {
	case M_NVML_CALLS: return (double)c->count;
	case M_NVML_SECONDS: return (double)c->total_ns / 1e9;
	case M_NVML_MAX: return (double)c->max_ns / 1e9;
	default: return (double)c->errors;
	}
}

/* Writes one series per error code of a call. */
static void call_codes(struct page *p, const struct call_cost *c)
{
	struct labels l;

	for (unsigned code = 1; c->errors && code < CALL_COST_CODES; code++) {
		if (!c->code[code])
			continue;
		labels_clear(&l);
		labels_add(&l, "call", c->name);
		labels_add(&l, "code", call_cost_code_name(code));
		metrics_sample(&p->t, NULL, l.text, c->code[code]);
	}
}

static void write_calls(struct page *p)
{
	static const unsigned metrics[] = { M_NVML_CALLS, M_NVML_SECONDS, M_NVML_MAX,
					    M_NVML_CALL_ERRORS, M_NVML_ERRORS };
	struct call_cost cost[CALL_COST_CALLS];
	unsigned n = 0;

	for (size_t r = 0; r < COUNT(metrics); r++) {
		if (!page_family(p, metrics[r]))
			continue;
		n = n ? n : call_cost_list(p->v->ctx, cost, CALL_COST_CALLS);
		for (unsigned i = 0; i < n; i++) {
			if (metrics[r] == M_NVML_ERRORS)
				call_codes(p, &cost[i]);
			else
				page_labelled(p, NULL, "call", cost[i].name,
					      call_figure(&cost[i], metrics[r]));
		}
	}
}

static void write_nvml(struct page *p)
{
	const char *backend = p->v->snap ? gw_snapshot_status(p->v->snap)->backend : "none";

	page_one(p, M_NVML_UP, strstr(backend, "nvml") != NULL);
	if (p->v->self.counts_known)
		page_one(p, M_NVML_INIT, (double)p->v->init_failures);
	write_calls(p);
}

static void write_http(struct page *p)
{
	static const char *const status[] = { "torn", "1xx", "2xx", "3xx", "4xx", "5xx" };
	struct http_counts c;
	bool requests = page_family(p, M_HTTP_REQUESTS);

	http_counts(p->a->http, &c);
	for (size_t i = 0; requests && i < COUNT(status); i++)
		page_labelled(p, NULL, "status", status[i], (double)c.requests[i]);
	page_one(p, M_HTTP_CONNECTIONS, c.connections);
	page_one(p, M_HTTP_STREAMS, c.streams);
	page_one(p, M_HTTP_ACCEPTED, (double)c.accepted);
	page_one(p, M_HTTP_REFUSED, (double)c.refused);
	page_one(p, M_HTTP_TIMEOUTS, (double)c.timeouts);
	page_one(p, M_HTTP_SENT, (double)c.bytes_sent);
}

/* Writes nothing if no push is configured. */
static void write_push(struct page *p)
{
	const struct view_push *s = p->a->push;

	if (!s)
		return;
	page_one(p, M_PUSH_QUEUE, (double)s->queue_bytes);
	page_one(p, M_PUSH_SENT, (double)s->sent);
	page_one(p, M_PUSH_FAILURES, (double)s->failures);
	page_one(p, M_PUSH_DROPPED, (double)s->dropped);
	if (s->success_wall_ns)
		page_one(p, M_PUSH_SUCCESS, page_seconds(s->success_wall_ns));
}

static void write_process_cost(struct page *p)
{
	const struct view_self *s = &p->v->self;

	page_one(p, M_STORE_UP, s->store_problem == NULL);
	page_one(p, M_STORE_BYTES, page_above_zero((double)s->store_bytes));
	page_one(p, M_STORE_DROPPED, (double)s->store_dropped);
	page_one(p, M_WAKEUPS, (double)s->wakeups);
	page_one(p, M_RSS_PEAK, page_above_zero((double)s->rss_peak_bytes));
	page_one(p, M_CPU, s->cpu_seconds);
	page_one(p, M_RSS, page_above_zero((double)s->rss_bytes));
	page_one(p, M_START, page_above_zero(page_seconds(s->start_wall_ns)));
	page_one(p, M_FDS, page_above_zero(s->descriptors));
	page_one(p, M_THREADS, page_above_zero(s->threads));
}

static void write_service_cost(struct page *p)
{
	write_nvml(p);
	if (p->a->http)
		write_http(p);
	write_push(p);
	write_process_cost(p);
}

static void write_host(struct page *p)
{
	for (unsigned q = 0; q < GW_HOST_QUANTITIES; q++) {
		double v = NAN;

		gw_snapshot_host(p->v->snap, q, &v);
		page_one(p, METRIC_OF_HOST(q), v);
	}
}

static bool has_stored_counts(const struct page *p, unsigned i)
{
	return page_known(p, i) && gw_device_text(page_gpu(p, i), GW_T_UUID);
}

/* Returns the number of errors of all GPUs that have stored counts; NAN: no GPU is known yet,
 * so the sum is unknown. Leaves out a GPU without a UUID: the counts of such a GPU begin at 0
 * at each start of the service, so the sum would decrease. */
static double all_errors(const struct page *p)
{
	double sum = p->gpus ? 0 : (double)NAN;

	for (unsigned i = 0; i < p->gpus; i++)
		for (unsigned a = GW_HAVE + 1; has_stored_counts(p, i) && a < GW_ABSENCES; a++)
			sum += view_is_error(a) ? (double)page_known(p, i)->errors[a] : 0;
	return sum;
}

static double old_figure(const struct page *p, unsigned i, unsigned family)
{
	const struct guard_view *g = p->v->guard;

	switch (family) {
	case M_OLD_EVICTIONS: return g && g->evictions && i < g->devices ? g->evictions[i] : 0;
	case M_OLD_TEMPERATURE: return page_figure(p, i, GW_Q_TEMPERATURE_GPU);
	case M_OLD_UTILIZATION:
		return page_micro(page_figure(p, i, GW_Q_UTILIZATION_GPU) * 100);
	case M_OLD_POWER: return page_figure(p, i, GW_Q_POWER);
	case M_OLD_FREE: return page_figure(p, i, GW_Q_MEMORY_FREE);
	default: return page_figure(p, i, GW_Q_MEMORY_TOTAL);
	}
}

static void write_compatible(struct page *p)
{
	if (page_family(p, M_OLD_OTHERS))
		page_processes(p, true);
	page_gpus(p, M_OLD_EVICTIONS, old_figure);
	page_gpus(p, M_OLD_TEMPERATURE, old_figure);
	page_gpus(p, M_OLD_UTILIZATION, old_figure);
	page_gpus(p, M_OLD_POWER, old_figure);
	page_gpus(p, M_OLD_FREE, old_figure);
	page_gpus(p, M_OLD_TOTAL, old_figure);
	if (!p->v->self.counts_known)
		return;
	page_one(p, M_OLD_ERRORS, all_errors(p));
	page_one(p, M_OLD_INIT, (double)p->v->init_failures);
}

static void write_page(struct page *p)
{
	write_service(p);
	if (p->v->snap) {
		metrics_gpus(p);
		write_workloads(p);
		metrics_guard(p);
		write_models(p);
		write_host(p);
	}
	write_service_cost(p);
	write_compatible(p);
	metrics_dcgm(p);
}

void metrics_render(struct buf *out, const struct api *a, enum metrics_form form)
{
	struct page p;

	page_init(&p, out, a, form);
	write_page(&p);
	metrics_end(&p.t);
}

void metrics_each(const struct api *a, const struct metrics_sink *sink)
{
	struct page p;

	page_init(&p, NULL, a, METRICS_PROMETHEUS);
	p.t.sink = sink;
	write_page(&p);
}
