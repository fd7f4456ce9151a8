/* Replies with the free GPU memory after headroom and reservations (now and recently), and with
 * the GPUs on which a given number of bytes would fit. */
#include "guard_doc.h"

#include <math.h>
#include <stdlib.h>

static const struct {
	const char *key;
	uint64_t span_ns;
} spans[] = {
	{ "last_10m", 600 * NS_PER_S },
	{ "last_24h", 86400 * NS_PER_S },
	{ "last_7d", 7 * 86400 * NS_PER_S },
};
#define SPANS (sizeof(spans) / sizeof(spans[0]))

static double figure(const struct gw_device *d, unsigned quantity)
{
	double v = NAN;

	return gw_device_value(d, quantity, &v) == GW_HAVE ? v : (double)NAN;
}

static void write_past(struct json *j, struct capacity *c, uint64_t now_ns)
{
	struct capacity_past p = { .slope_bytes_per_s = NAN, .full_s = NAN };

	json_object(j, "past");
	for (size_t i = 0; i < SPANS; i++) {
		if (c)
			capacity_past(c, now_ns, spans[i].span_ns, &p);
		if (!json_object_if(j, spans[i].key, c && !isnan(p.mean_bytes)))
			continue;
		json_uint(j, "min_bytes", p.min_bytes);
		json_double(j, "mean_bytes", rint(p.mean_bytes));
		json_uint(j, "max_bytes", p.max_bytes);
		json_double(j, "span_seconds", (double)p.span_ns * 1e-9);
		json_object_end(j);
	}
	json_object_end(j);
	json_double(j, "slope_bytes_per_second", p.slope_bytes_per_s);
	json_double(j, "full_seconds", p.full_s);
}

static void write_workers(struct json *j, const struct capacity_gpu *c)
{
	json_array(j, "workers");
	for (unsigned i = 0; i < c->workers; i++) {
		json_object(j, NULL);
		json_string(j, "name", c->worker[i].name);
		json_uint(j, "bytes", c->worker[i].bytes);
		json_double(j, "free_seconds", c->worker[i].seconds);
		json_bool(j, "movable", c->worker[i].movable);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_one(struct json *j, const struct api *a, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(a->view.snap, i);
	const struct guard_view *g = a->view.guard;
	double total = figure(d, GW_Q_MEMORY_TOTAL), used = figure(d, GW_Q_MEMORY_USED);
	double free_bytes = figure(d, GW_Q_MEMORY_FREE), unattributed = NAN;
	const struct scene *s;
	struct capacity_gpu c;
	int at;

	guard_view_capacity(&a->view, i, &c);
	guard_verdicts(g->guard, &s);
	at = guard_view_gpu(s, c.uuid);
	if (at >= 0)
		unattributed = guard_view_unattributed(s, (unsigned)at);
	json_uint(j, "index", d->index);
	guard_doc_text(j, "uuid", c.uuid);
	json_double(j, "total_bytes", total);
	json_double(j, "used_bytes", used);
	json_double(j, "free_bytes", free_bytes);
	json_uint(j, "headroom_bytes", c.headroom_bytes);
	json_uint(j, "reserved_bytes", c.reserved_bytes);
	json_double(j, "available_bytes",
		    c.known ? (double)capacity_available(&c) : (double)NAN);
	json_double(j, "unattributed_bytes", unattributed);
	guard_doc_old_names(j, total, used, free_bytes);
	json_bool(j, "blind", c.blind);
	json_bool(j, "quarantine", c.quarantine);
	json_bool(j, "warm", c.warm);
	json_double(j, "margin_celsius", c.margin_c);
	write_past(j, i < g->devices ? g->capacity[i] : NULL, api_now(a));
	write_workers(j, &c);
}

void api_capacity(void *arg, const struct request *q, struct reply *r)
{
	guard_doc_gpus(arg, q, r, NULL, write_one);
}

/* ---- what fits ---- */

struct question {
	uint64_t bytes;
	unsigned n, able;
	unsigned device[SCENE_GPUS]; /* index in the view */
	unsigned order[SCENE_GPUS];
	struct capacity_gpu gpu[SCENE_GPUS];
	struct capacity_answer answer[SCENE_GPUS];
};

static const char *fit_word(enum capacity_fit fit)
{
	static const char *const words[] = { "now", "after-eviction", "never" };

	return words[fit];
}

/* Writes the members of one answer. */
static void write_answer(struct json *j, const struct api *a, const struct question *x,
			 unsigned k)
{
	const struct capacity_answer *y = &x->answer[k];

	json_uint(j, "index", gw_snapshot_device(a->view.snap, x->device[k])->index);
	guard_doc_text(j, "uuid", x->gpu[k].uuid);
	json_string(j, "fit", fit_word(y->fit));
	json_double(j, "available_bytes",
		    x->gpu[k].known ? (double)y->available_bytes : (double)NAN);
	json_array(j, "evict");
	for (unsigned i = 0; i < y->evicts; i++)
		json_string(j, NULL, x->gpu[k].worker[y->evict[i]].name);
	json_array_end(j);
	json_double(j, "seconds", y->fit == FIT_NEVER ? (double)NAN : y->seconds);
	guard_doc_text(j, "why", y->why);
}

static void write_placement(struct json *j, const struct api *a, const struct question *x)
{
	json_array(j, "placement");
	for (unsigned i = 0; i < x->n; i++) {
		json_object(j, NULL);
		json_bool(j, "possible", i < x->able);
		write_answer(j, a, x, x->order[i]);
		json_object_end(j);
	}
	json_array_end(j);
}

static void fit_document(const struct api *a, const struct question *x, struct reply *r)
{
	struct json j;

	api_begin(&j, a, r);
	json_uint(&j, "needed_bytes", x->bytes);
	json_string(&j, "fit", x->able ? fit_word(x->answer[x->order[0]].fit) : "never");
	json_string(&j, "uuid", x->able ? x->gpu[x->order[0]].uuid : NULL);
	write_placement(&j, a, x);
	api_end(&j);
}

void api_capacity_fit(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct render_filter f;
	const struct render_filter *filter;
	struct question *x;
	uint64_t bytes;

	if (!guard_doc_there(a, r) || !api_has_reading(a, r) ||
	    !api_filter(a, q, r, &f, &filter) ||
	    !api_number(q, r, "bytes", 0, INT64_MAX, &bytes))
		return;
	if (!bytes) {
		reply_problem(r, 400, "bad-parameter", "Use ?bytes=8589934592 for 8 GiB.",
			      "the parameter bytes is required and must be above 0");
		return;
	}
	x = calloc(1, sizeof(*x)); /* too large for the stack */
	if (!x) {
		reply_problem(r, 503, "no-memory", NULL, "out of memory");
		return;
	}
	x->bytes = bytes;
	for (unsigned i = 0; i < gw_snapshot_device_count(a->view.snap); i++) {
		if (!render_shows(filter, i) || x->n == SCENE_GPUS)
			continue;
		x->device[x->n] = i;
		guard_view_capacity(&a->view, i, &x->gpu[x->n++]);
	}
	x->able = capacity_place(x->gpu, x->n, bytes, x->order, x->answer);
	fit_document(a, x, r);
	free(x);
}
