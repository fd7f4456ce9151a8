/* metrics: which families there are, and what of the view goes into each.
 *
 * Samples of a family stand together, so every function goes over the GPUs by itself. */
#include "metrics_text.h"

#include "device/cost.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- the tables ---- */

enum {
#define M(symbol, name, type, labels, help) M_##symbol,
#include "metric.def"
#undef M
	METRICS
};

static const struct metric metrics[METRICS] = {
#define M(symbol, name, type, labels, help) { name, help, labels, METRIC_##type },
#include "metric.def"
#undef M
};

enum how { NUMBER, WORDS };

#define TYPE_GAUGE   METRIC_GAUGE
#define TYPE_COUNTER METRIC_COUNTER
#define TYPE_FLAG    METRIC_GAUGE
#define TYPE_ENUM    METRIC_GAUGE
#define TYPE_MASK    METRIC_GAUGE

static const struct metric gpu_metrics[GW_QUANTITIES] = {
#define Q(symbol, key, kind, tier, help) { "gpuward_gpu_" key, help, "uuid,gpu", TYPE_##kind },
#include <gpuward/quantity.def>
#undef Q
};

static const struct metric host_metrics[GW_HOST_QUANTITIES] = {
#define H(symbol, key, kind, help) { "gpuward_host_" key, help, "", TYPE_##kind },
#include <gpuward/host.def>
#undef H
};

static const struct {
	unsigned quantity;
	const char *name;
	enum how how;
} departures[] = {
#define Q(symbol, name, how) { GW_Q_##symbol, name, how },
#include "metric.def"
#undef Q
};

/* The family of a quantity; its name is NULL where there is none. */
static struct metric gpu_metric(unsigned q, enum how *ret_how)
{
	enum gw_kind kind = gw_quantity_info(q)->kind;
	struct metric m = gpu_metrics[q];

	*ret_how = kind == GW_KIND_ENUM || kind == GW_KIND_MASK ? WORDS : NUMBER;
	for (size_t i = 0; i < COUNT(departures); i++) {
		if (departures[i].quantity != q)
			continue;
		m.name = departures[i].name;
		*ret_how = departures[i].how;
	}
	if (*ret_how == WORDS)
		m.labels = kind == GW_KIND_MASK ? "uuid,gpu,reason" : "uuid,gpu,state";
	return m;
}

bool metrics_table(unsigned i, struct metric *ret)
{
	enum how how;

	if (i < METRICS)
		*ret = metrics[i];
	else if (i < METRICS + GW_QUANTITIES)
		*ret = gpu_metric(i - METRICS, &how);
	else if (i < METRICS + GW_QUANTITIES + GW_HOST_QUANTITIES)
		*ret = host_metrics[i - METRICS - GW_QUANTITIES];
	else
		return false;
	return true;
}

/* ---- the page ---- */

#define GPUS_MAX  256
#define BASE_SIZE 256 /* a uuid of 95 characters, each escaped, and an index */

struct page {
	struct metrics_text t;
	const struct api *a;
	const struct view *v;
	unsigned gpus;                  /* 0 while there is no snapshot */
	char base[GPUS_MAX][BASE_SIZE]; /* labels of each GPU */
};

static const struct gw_device *gpu(const struct page *p, unsigned i)
{
	return gw_snapshot_device(p->v->snap, i);
}

/* What the service knows of a GPU beside its figures; NULL: nothing yet. */
static const struct view_device *known(const struct page *p, unsigned i)
{
	return p->v->device && i < p->v->devices ? &p->v->device[i] : NULL;
}

static void page_init(struct page *p, struct buf *out, const struct api *a,
		      enum metrics_form form)
{
	struct labels l;

	p->t = (struct metrics_text){ .out = out, .form = form };
	p->a = a;
	p->v = &a->view;
	p->gpus = p->v->snap ? gw_snapshot_device_count(p->v->snap) : 0;
	if (p->gpus > GPUS_MAX)
		p->gpus = GPUS_MAX;
	for (unsigned i = 0; i < p->gpus; i++) {
		labels_clear(&l);
		labels_add(&l, "uuid", gw_device_text(gpu(p, i), GW_T_UUID));
		labels_add_number(&l, "gpu", gpu(p, i)->index);
		memcpy(p->base[i], l.text, l.len < BASE_SIZE ? l.len + 1 : 1);
		p->base[i][l.len < BASE_SIZE ? l.len : 0] = '\0';
	}
}

static void family(struct page *p, unsigned metric)
{
	metrics_family(&p->t, &metrics[metric]);
}

static void one(struct page *p, unsigned metric, double value)
{
	family(p, metric);
	metrics_sample(&p->t, NULL, NULL, value);
}

/* One sample with a label that needs no escaping. */
static void labelled(struct page *p, const char *base, const char *name, const char *value,
		     double v)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, name, value);
	metrics_sample(&p->t, base, l.text, v);
}

/* To the millisecond: the digits beyond are noise, and long. */
static double wall_seconds(uint64_t wall_ns)
{
	return (double)(wall_ns / NS_PER_MS) / 1e3;
}

/* ---- the service ---- */

static void build(struct page *p)
{
	family(p, M_BUILD);
	labelled(p, NULL, "version", gw_version(), 1);
}

static void driver(struct page *p)
{
	const struct gw_status *st = gw_snapshot_status(p->v->snap);
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "backend", st->backend);
	labels_add(&l, "driver", st->driver_version);
	labels_add(&l, "nvml", st->nvml_version);
	labels_add(&l, "cuda", st->cuda_version);
	family(p, M_DRIVER);
	metrics_sample(&p->t, NULL, l.text, 1);
	one(p, M_LAST_TICK, wall_seconds(gw_snapshot_wall_ns(p->v->snap)));
}

static bool is_up(const struct page *p)
{
	char why[256];

	return p->v->tick && p->v->snap &&
	       !view_stale(p->v, clock_mono_ns(p->a->clock), why, sizeof(why));
}

static void service(struct page *p)
{
	const struct view_self *s = &p->v->self;

	one(p, M_UP, is_up(p));
	build(p);
	if (p->v->snap)
		driver(p);
	one(p, M_INTERVAL, (double)p->v->interval_ns / 1e9);
	one(p, M_TICKS, (double)s->ticks);
	one(p, M_TICKS_MISSED, (double)s->ticks_missed);
	if (p->v->tick) {
		one(p, M_TICK, s->tick_seconds);
		one(p, M_TICK_MAX, s->tick_max_seconds);
		one(p, M_GPUS, p->gpus);
	}
	one(p, M_LET_GO, p->v->let_go);
}

/* ---- each GPU ---- */

static void put_info(struct page *p, unsigned i)
{
	const struct gw_device *d = gpu(p, i);
	static const struct {
		const char *label;
		enum gw_text text;
	} texts[] = {
		{ "pci", GW_T_PCI },          { "serial", GW_T_SERIAL },
		{ "part", GW_T_PART_NUMBER }, { "vbios", GW_T_VBIOS },
		{ "driver", GW_T_DRIVER },
	};
	char architecture[32] = "";
	struct labels l;
	double v;

	if (gw_device_value(d, GW_Q_ARCHITECTURE, &v) == GW_HAVE)
		gw_quantity_name(GW_Q_ARCHITECTURE, v, architecture, sizeof(architecture));
	labels_clear(&l);
	labels_add(&l, "name", gw_device_text(d, GW_T_NAME));
	labels_add(&l, "vendor", gw_vendor_name(d->vendor));
	for (size_t k = 0; k < COUNT(texts); k++)
		labels_add(&l, texts[k].label, gw_device_text(d, texts[k].text));
	labels_add(&l, "architecture", architecture);
	labels_add(&l, "backend", d->backend);
	labels_add(&l, "provenance", gw_provenance_name(d->provenance));
	labels_add(&l, "simulated", d->provenance == GW_FROM_SIMULATOR ? "true" : "false");
	metrics_sample(&p->t, p->base[i], l.text, 1);
}

static void states(struct page *p)
{
	family(p, M_GPU);
	for (unsigned i = 0; i < p->gpus; i++)
		put_info(p, i);
	family(p, M_GPU_UP);
	for (unsigned i = 0; i < p->gpus; i++)
		metrics_sample(&p->t, p->base[i], NULL, gpu(p, i)->state == GW_DEVICE_OK);
	family(p, M_GPU_STATE);
	for (unsigned i = 0; i < p->gpus; i++)
		for (unsigned s = GW_DEVICE_OK; s <= GW_DEVICE_CLOSED; s++)
			labelled(p, p->base[i], "state", gw_device_state_name(s),
				 gpu(p, i)->state == s);
}

/* When it last answered: the snapshot has both clocks at one moment. */
static double seen(const struct page *p, const struct view_device *k)
{
	uint64_t now = gw_snapshot_mono_ns(p->v->snap), wall = gw_snapshot_wall_ns(p->v->snap);

	if (!k->seen_ns)
		return NAN;
	return wall_seconds(k->seen_ns < now ? wall - (now - k->seen_ns) : wall);
}

static double changes(const struct page *p, const struct view_device *k)
{
	(void)p;
	return (double)k->state_changes;
}

/* To the microjoule; rounding keeps what grows growing. */
static double energy(const struct page *p, const struct view_device *k)
{
	(void)p;
	return rint(k->energy_joules * 1e6) / 1e6;
}

static double energy_seconds(const struct page *p, const struct view_device *k)
{
	(void)p;
	return isnan(k->energy_joules) ? NAN : rint(k->energy_seconds * 1e6) / 1e6;
}

static void query_errors(struct page *p)
{
	family(p, M_QUERY_ERRORS);
	for (unsigned a = GW_HAVE + 1; a < GW_ABSENCES; a++)
		for (unsigned i = 0; view_is_error(a) && i < p->gpus; i++)
			if (known(p, i))
				labelled(p, p->base[i], "reason", gw_absence_key(a),
					 (double)known(p, i)->errors[a]);
}

/* What we know of every GPU, whether it answers or not. */
static void counts(struct page *p)
{
	static const struct {
		unsigned metric;
		double (*of)(const struct page *p, const struct view_device *k);
	} rows[] = {
		{ M_GPU_SEEN, seen },
		{ M_GPU_CHANGES, changes },
		{ M_ENERGY, energy },
		{ M_ENERGY_SECONDS, energy_seconds },
	};

	for (size_t r = 0; r < COUNT(rows); r++) {
		family(p, rows[r].metric);
		for (unsigned i = 0; i < p->gpus; i++)
			if (known(p, i))
				metrics_sample(&p->t, p->base[i], NULL,
					       rows[r].of(p, known(p, i)));
	}
	query_errors(p);
}

/* ---- figures ---- */

/* A figure of a GPU that answers; NAN: there is none. */
static double figure(const struct page *p, unsigned i, unsigned q)
{
	const struct gw_device *d = gpu(p, i);
	double v = NAN;

	if (d->state == GW_DEVICE_OK)
		gw_device_value(d, q, &v);
	return v;
}

static void numbers(struct page *p, unsigned q)
{
	for (unsigned i = 0; i < p->gpus; i++)
		metrics_sample(&p->t, p->base[i], NULL, figure(p, i, q));
}

/* The word for number `at` of an ENUM or bit `at` of a MASK; false: there is none. */
static bool word(unsigned q, bool mask, unsigned at, char out[static 48])
{
	double value = mask ? ldexp(1, (int)at) : at;

	return gw_quantity_name(q, value, out, 48) == 0 && strncmp(out, "unknown", 7) != 0;
}

static void words(struct page *p, unsigned q)
{
	bool mask = gw_quantity_info(q)->kind == GW_KIND_MASK;
	const char *label = mask ? "reason" : "state";
	uint64_t all = 0;
	char name[48];
	double v;

	for (unsigned at = 0; at < 32; at++) {
		struct labels l;

		if (!word(q, mask, at, name))
			continue;
		all |= UINT64_C(1) << at;
		labels_clear(&l);
		labels_add(&l, label, name);
		for (unsigned i = 0; i < p->gpus; i++)
			if (!isnan(v = figure(p, i, q)))
				metrics_sample(&p->t, p->base[i], l.text,
					       mask ? (double)((uint64_t)v >> at & 1)
						    : v == at);
	}
	/* What has no word here yet is told all the same. */
	for (unsigned i = 0; i < p->gpus; i++) {
		v = figure(p, i, q);
		if (isnan(v) ||
		    (mask ? !((uint64_t)v & ~all) : v < 32 && all >> (unsigned)v & 1))
			continue;
		labelled(p, p->base[i], label, "unknown", 1);
	}
}

static void figures(struct page *p)
{
	struct metric m;
	enum how how;

	for (unsigned q = 0; q < GW_QUANTITIES; q++) {
		m = gpu_metric(q, &how);
		if (!m.name)
			continue;
		metrics_family(&p->t, &m);
		if (how == WORDS)
			words(p, q);
		else
			numbers(p, q);
	}
}

static void host(struct page *p)
{
	for (unsigned q = 0; q < GW_HOST_QUANTITIES; q++) {
		double v = NAN;

		gw_snapshot_host(p->v->snap, q, &v);
		metrics_family(&p->t, &host_metrics[q]);
		metrics_sample(&p->t, NULL, NULL, v);
	}
}

/* ---- instances and processes ---- */

static void instance_number(struct labels *l, const char *name, unsigned number)
{
	if (number == UINT32_MAX)
		labels_add(l, name, NULL);
	else
		labels_add_number(l, name, number);
}

static void instance_labels(struct labels *l, const struct gw_mig *g)
{
	const char *profile = strstr(g->name, "MIG ");

	labels_clear(l);
	labels_add(l, "mig_uuid", g->uuid);
	instance_number(l, "gi", g->gpu_instance);
	instance_number(l, "ci", g->compute_instance);
	labels_add(l, "profile", profile ? profile + 4 : "");
}

static void instances_of(struct page *p, unsigned i, unsigned metric)
{
	const struct gw_device *d = gpu(p, i);
	struct labels l;

	for (unsigned k = 0; d->state == GW_DEVICE_OK && k < d->mig_count; k++) {
		const struct gw_mig *g = &d->mig[k];

		if (g->memory_absence != GW_HAVE ||
		    (!*g->uuid && g->gpu_instance == UINT32_MAX)) /* who would it be? */
			continue;
		instance_labels(&l, g);
		metrics_sample(&p->t, p->base[i], l.text,
			       (double)(metric == M_MIG_TOTAL  ? g->memory_total_bytes
					: metric == M_MIG_USED ? g->memory_used_bytes
							       : g->memory_free_bytes));
	}
}

static void instances(struct page *p)
{
	static const unsigned rows[] = { M_MIG_TOTAL, M_MIG_USED, M_MIG_FREE };

	for (size_t r = 0; r < COUNT(rows); r++) {
		family(p, rows[r]);
		for (unsigned i = 0; i < p->gpus; i++)
			instances_of(p, i, rows[r]);
	}
}

/* Is the list of processes of this GPU of now? */
static bool listed(const struct page *p, unsigned i)
{
	return gpu(p, i)->state == GW_DEVICE_OK && p->v->processes &&
	       gw_process_list_absence(p->v->processes, i) == GW_HAVE;
}

/* Processes on each GPU; not_ours: without this one. */
static void count_processes(struct page *p, bool not_ours)
{
	const struct gw_process_list *list = p->v->processes;
	unsigned n[GPUS_MAX] = { 0 };
	int64_t self = getpid();

	for (unsigned i = 0; list && i < gw_process_list_count(list); i++) {
		const struct gw_process *x = gw_process_list_get(list, i);

		if (x->device < GPUS_MAX && !(not_ours && x->pid == self))
			n[x->device]++;
	}
	for (unsigned i = 0; i < p->gpus; i++)
		if (listed(p, i))
			metrics_sample(&p->t, p->base[i], NULL, n[i]);
}

static void processes(struct page *p)
{
	family(p, M_PROCESSES);
	count_processes(p, false);
	family(p, M_PROCESS_MEMORY);
	for (unsigned i = 0; p->a->top && i < p->gpus; i++)
		if (listed(p, i))
			metrics_processes(&p->t, p->base[i], p->v->processes, i, p->a->top);
}

/* ---- what we cost ---- */

static double call_count(const struct call_cost *c)
{
	return (double)c->count;
}

static double call_seconds(const struct call_cost *c)
{
	return (double)c->total_ns / 1e9;
}

static double call_max(const struct call_cost *c)
{
	return (double)c->max_ns / 1e9;
}

static double call_errors(const struct call_cost *c)
{
	return (double)c->errors;
}

static void call_codes(struct page *p, const struct call_cost *c)
{
	struct labels l;

	for (unsigned code = 1; c->errors && code < COST_CODES; code++) {
		if (!c->code[code])
			continue;
		labels_clear(&l);
		labels_add(&l, "call", c->name);
		labels_add(&l, "code", cost_code_name(code));
		metrics_sample(&p->t, NULL, l.text, c->code[code]);
	}
}

static void calls(struct page *p)
{
	static const struct {
		unsigned metric;
		double (*of)(const struct call_cost *c);
	} rows[] = {
		{ M_NVML_CALLS, call_count },
		{ M_NVML_SECONDS, call_seconds },
		{ M_NVML_MAX, call_max },
		{ M_NVML_CALL_ERRORS, call_errors },
	};
	struct call_cost cost[COST_CALLS];
	unsigned n = cost_list(p->v->ctx, cost, COST_CALLS);

	for (size_t r = 0; r < COUNT(rows); r++) {
		family(p, rows[r].metric);
		for (unsigned i = 0; i < n; i++)
			labelled(p, NULL, "call", cost[i].name, rows[r].of(&cost[i]));
	}
	family(p, M_NVML_ERRORS);
	for (unsigned i = 0; i < n; i++)
		call_codes(p, &cost[i]);
}

static void nvml(struct page *p)
{
	const char *backend = p->v->snap ? gw_snapshot_status(p->v->snap)->backend : "none";

	one(p, M_NVML_UP, strstr(backend, "nvml") != NULL);
	one(p, M_NVML_INIT, (double)p->v->init_failures);
	calls(p);
}

static void http(struct page *p)
{
	static const char *const status[] = { "torn", "1xx", "2xx", "3xx", "4xx", "5xx" };
	struct http_counts c;

	http_counts(p->a->http, &c);
	family(p, M_HTTP_REQUESTS);
	for (size_t i = 0; i < COUNT(status); i++)
		labelled(p, NULL, "status", status[i], (double)c.requests[i]);
	one(p, M_HTTP_CONNECTIONS, c.connections);
	one(p, M_HTTP_STREAMS, c.streams);
	one(p, M_HTTP_ACCEPTED, (double)c.accepted);
	one(p, M_HTTP_REFUSED, (double)c.refused);
	one(p, M_HTTP_TIMEOUTS, (double)c.timeouts);
	one(p, M_HTTP_SENT, (double)c.bytes_sent);
}

/* Of what cannot be 0: 0 says that nobody could tell. */
static double told(double v)
{
	return v > 0 ? v : NAN;
}

static void self(struct page *p)
{
	const struct view_self *s = &p->v->self;

	one(p, M_STORE_UP, s->store_state && strcmp(s->store_state, "ok") == 0);
	one(p, M_STORE_BYTES, told((double)s->store_bytes));
	one(p, M_STORE_DROPPED, (double)s->store_dropped);
	one(p, M_WAKEUPS, (double)s->wakeups);
	one(p, M_RSS_PEAK, told((double)s->rss_peak_bytes));
	one(p, M_CPU, s->cpu_seconds);
	one(p, M_RSS, told((double)s->rss_bytes));
	one(p, M_START, told(wall_seconds(s->start_wall_ns)));
	one(p, M_FDS, told(s->descriptors));
	one(p, M_THREADS, told(s->threads));
}

/* ---- the compatibility set ---- */

static double all_errors(const struct page *p)
{
	double sum = 0;

	for (unsigned i = 0; i < p->gpus; i++)
		for (unsigned a = GW_HAVE + 1; known(p, i) && a < GW_ABSENCES; a++)
			sum += view_is_error(a) ? (double)known(p, i)->errors[a] : 0;
	return sum;
}

/* 0.29 times 100 is 28.999999999999996. */
static double percent(double ratio)
{
	return rint(ratio * 1e8) / 1e6;
}

static void old_figures(struct page *p)
{
	static const struct {
		unsigned metric, quantity;
	} rows[] = {
		{ M_OLD_TEMPERATURE, GW_Q_TEMPERATURE_GPU },
		{ M_OLD_UTILIZATION, GW_Q_UTILIZATION_GPU },
		{ M_OLD_POWER, GW_Q_POWER },
		{ M_OLD_FREE, GW_Q_MEMORY_FREE },
		{ M_OLD_TOTAL, GW_Q_MEMORY_TOTAL },
	};

	for (size_t r = 0; r < COUNT(rows); r++) {
		family(p, rows[r].metric);
		for (unsigned i = 0; i < p->gpus; i++) {
			double v = figure(p, i, rows[r].quantity);

			metrics_sample(&p->t, p->base[i], NULL,
				       rows[r].metric == M_OLD_UTILIZATION ? percent(v) : v);
		}
	}
}

static void compatible(struct page *p)
{
	family(p, M_OLD_OTHERS);
	count_processes(p, true);
	one(p, M_OLD_EVICTIONS, 0); /* nobody is evicted: there is no guard yet */
	old_figures(p);
	one(p, M_OLD_ERRORS, all_errors(p));
	one(p, M_OLD_INIT, (double)p->v->init_failures);
}

void metrics_render(struct buf *out, const struct api *a, enum metrics_form form)
{
	struct page p;

	page_init(&p, out, a, form);
	service(&p);
	if (p.v->snap) {
		states(&p);
		counts(&p);
		figures(&p);
		instances(&p);
		processes(&p);
		host(&p);
	}
	nvml(&p);
	if (a->http)
		http(&p);
	self(&p);
	compatible(&p);
	metrics_end(&p.t);
}
