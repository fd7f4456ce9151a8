/* metrics_self: writes figures about the service itself: its build, driver calls, connections
 * and cost. */
#include "metrics_page.h"

#include "base/array.h"
#include "device/driver_call.h"

#include <math.h>
#include <string.h>

static void build(struct page *p)
{
	if (page_family(p, M_BUILD))
		page_labelled(p, NULL, "version", gw_version(), 1);
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

void metrics_service(struct page *p)
{
	const struct view_self *s = &p->v->self;

	page_one(p, M_UP, is_up(p));
	build(p);
	if (p->v->snap)
		driver(p);
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

	for (unsigned code = 1; c->errors && code < CALL_COST_CODES; code++) {
		if (!c->code[code])
			continue;
		labels_clear(&l);
		labels_add(&l, "call", c->name);
		labels_add(&l, "code", call_cost_code_name(code));
		metrics_sample(&p->t, NULL, l.text, c->code[code]);
	}
}

static void calls(struct page *p)
{
	static const struct {
		unsigned metric;
		/* returns the value; NULL: one series per error code */
		double (*of)(const struct call_cost *c);
	} rows[] = {
		{ M_NVML_CALLS, call_count }, { M_NVML_SECONDS, call_seconds },
		{ M_NVML_MAX, call_max },     { M_NVML_CALL_ERRORS, call_errors },
		{ M_NVML_ERRORS, NULL },
	};
	struct call_cost cost[CALL_COST_CALLS];
	unsigned n = 0;

	for (size_t r = 0; r < COUNT(rows); r++) {
		if (!page_family(p, rows[r].metric))
			continue;
		n = n ? n : call_cost_list(p->v->ctx, cost, CALL_COST_CALLS);
		for (unsigned i = 0; i < n; i++) {
			if (rows[r].of)
				page_labelled(p, NULL, "call", cost[i].name,
					      rows[r].of(&cost[i]));
			else
				call_codes(p, &cost[i]);
		}
	}
}

static void nvml(struct page *p)
{
	const char *backend = p->v->snap ? gw_snapshot_status(p->v->snap)->backend : "none";

	page_one(p, M_NVML_UP, strstr(backend, "nvml") != NULL);
	if (p->v->self.counts_known)
		page_one(p, M_NVML_INIT, (double)p->v->init_failures);
	calls(p);
}

static void http(struct page *p)
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
static void push(struct page *p)
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

/* Returns v, or NAN if v is 0, which means unknown here. */
static double known_value(double v)
{
	return v > 0 ? v : NAN;
}

static void self(struct page *p)
{
	const struct view_self *s = &p->v->self;

	page_one(p, M_STORE_UP, s->store_state && strcmp(s->store_state, "ok") == 0);
	page_one(p, M_STORE_BYTES, known_value((double)s->store_bytes));
	page_one(p, M_STORE_DROPPED, (double)s->store_dropped);
	page_one(p, M_WAKEUPS, (double)s->wakeups);
	page_one(p, M_RSS_PEAK, known_value((double)s->rss_peak_bytes));
	page_one(p, M_CPU, s->cpu_seconds);
	page_one(p, M_RSS, known_value((double)s->rss_bytes));
	page_one(p, M_START, known_value(page_seconds(s->start_wall_ns)));
	page_one(p, M_FDS, known_value(s->descriptors));
	page_one(p, M_THREADS, known_value(s->threads));
}

void metrics_cost(struct page *p)
{
	nvml(p);
	if (p->a->http)
		http(p);
	push(p);
	self(p);
}
