/* Replies about the service itself: its cost, release and reopening of the GPU drivers, the web
 * page, /docs and /metrics. */
#include "api_parts.h"

#include "asset.h"
#include "metrics.h"

#include "device/driver_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_call(struct json *j, const struct call_cost *c)
{
	json_object(j, NULL);
	json_string(j, "name", c->name);
	json_uint(j, "count", c->count);
	json_uint(j, "errors", c->errors);
	json_double(j, "seconds_total", (double)c->total_ns * 1e-9);
	json_double(j, "seconds_max", (double)c->max_ns * 1e-9);
	json_object_end(j);
}

/* Writes how often each driver call was made and how long it took. */
static void write_calls(struct json *j, const struct view *v)
{
	struct call_cost cost[CALL_COST_CALLS];
	unsigned n = call_cost_list(v->ctx, cost, CALL_COST_CALLS);

	json_array(j, "calls");
	for (unsigned i = 0; i < n; i++)
		write_call(j, &cost[i]);
	json_array_end(j);
}

static void write_requests(struct json *j, const struct api *a)
{
	static const char *const keys[6] = { "torn", "1xx", "2xx", "3xx", "4xx", "5xx" };
	struct http_counts c = { 0 };

	if (a->http)
		http_counts(a->http, &c);
	json_object(j, "http");
	json_object(j, "requests");
	for (unsigned i = 0; i < 6; i++)
		json_uint(j, keys[i], c.requests[i]);
	json_object_end(j);
	json_uint(j, "connections", c.connections);
	json_uint(j, "streams", c.streams);
	json_uint(j, "accepted", c.accepted);
	json_uint(j, "refused", c.refused);
	json_uint(j, "timeouts", c.timeouts);
	json_uint(j, "sent_bytes", c.bytes_sent);
	json_object_end(j);
}

static void write_uptime(struct json *j, const struct api *a)
{
	uint64_t now = clock_wall_ns(a->clock), start = a->view.self.start_wall_ns;
	double seconds = now > start ? (double)(now - start) / 1e9 : 0;

	json_time(j, "start_utc", start);
	json_double(j, "uptime_seconds", seconds);
	json_double(j, "cpu_seconds", a->view.self.cpu_seconds);
	json_double(j, "cpu_mean_ratio",
		    seconds > 0 ? a->view.self.cpu_seconds / seconds : (double)NAN);
}

void api_self(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct view_self *s = &a->view.self;
	struct json j;

	(void)q;
	api_begin(&j, a, r);
	json_string(&j, "version", gw_version());
	write_uptime(&j, a);
	/* 0: unknown */
	json_uint_if(&j, "rss_bytes", s->rss_bytes, s->rss_bytes);
	json_uint_if(&j, "rss_peak_bytes", s->rss_peak_bytes, s->rss_peak_bytes);
	json_uint_if(&j, "threads", s->threads, s->threads);
	json_uint_if(&j, "descriptors", s->descriptors, s->descriptors);
	json_uint(&j, "wakeups", s->wakeups);
	json_double(&j, "interval_seconds", (double)a->view.interval_ns / 1e9);
	json_uint(&j, "ticks", s->ticks);
	json_uint(&j, "ticks_missed", s->ticks_missed);
	json_double(&j, "tick_seconds", s->tick_seconds);
	json_double(&j, "tick_max_seconds", s->tick_max_seconds);
	json_uint_if(&j, "init_failures", s->counts_known, a->view.init_failures);
	json_object(&j, "store");
	json_uint(&j, "bytes", s->store_bytes);
	json_uint(&j, "dropped", s->store_dropped);
	json_string(&j, "state", s->store_state);
	json_object_end(&j);
	energy_cost_render_rates(&j, &a->cost);
	json_bool(&j, "fleet", a->fleet != NULL);
	if (json_object_if(&j, "nvidia_smi", s->program.starts)) {
		json_uint(&j, "starts", s->program.starts);
		json_double(&j, "run_seconds", s->program.run_seconds);
		json_double(&j, "stream_cpu_seconds", s->program.stream_seconds);
		json_uint(&j, "stream_stalls", s->program.stream_stalls);
		json_object_end(&j);
	}
	write_requests(&j, a);
	write_calls(&j, &a->view);
	api_end(&j);
}

#define POLL_NS (50 * NS_PER_MS)
#define MOST_NS (10 * NS_PER_S)

struct wait {
	int number;
	uint64_t until_ns; /* when the reply gives up */
};

static void state(const struct api *a, struct reply *r)
{
	const struct gw_snapshot *snap = a->view.snap;
	struct json j;

	api_begin(&j, a, r);
	json_bool(&j, "let_go", a->view.let_go);
	json_array(&j, "devices");
	for (unsigned i = 0; snap && i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);

		json_object(&j, NULL);
		json_uint(&j, "index", d->index);
		json_string(&j, "uuid", gw_device_text(d, GW_T_UUID));
		json_string(&j, "state", gw_device_state_name(d->state));
		json_string(&j, "message", *d->message ? d->message : NULL);
		json_object_end(&j);
	}
	json_array_end(&j);
	api_end(&j);
}

static void change_failed(const struct api *a, struct reply *r, int error)
{
	char why[512];
	const char *stale = view_stale(&a->view, api_now(a), why, sizeof(why));

	if (error == -GW_E_STATE)
		reply_problem(r, 409, "driver-busy",
			      "End the process that hangs in the driver, or wait. Driver "
			      "handles that were already closed are opened again.",
			      "a driver call has not returned and keeps the driver open%s%s",
			      stale ? ": " : "", stale ? stale : "");
	else
		reply_problem(r, 503, "not-done", "Try again.", "the request failed: %s",
			      gw_strerror(error));
}

static void change_begin(const struct api *a, const struct request *q, struct reply *r,
			 enum view_request what)
{
	struct wait *w;
	int number;

	if (!a->view.ops || !a->view.ops->request) {
		reply_problem(r, 503, "not-done", NULL,
			      "the drivers cannot be released or opened yet");
		return;
	}
	w = malloc(sizeof(*w));
	*q->memory = w;
	number = w ? a->view.ops->request(a->view.engine, what) : -GW_E_NOMEM;
	if (number < 0) {
		change_failed(a, r, number);
		return;
	}
	*w = (struct wait){ number, api_now(a) + MOST_NS };
	reply_again(r, api_now(a) + POLL_NS);
}

static void change(const struct api *a, const struct request *q, struct reply *r,
		   enum view_request what)
{
	const struct wait *w = *q->memory;
	uint64_t now = api_now(a);

	if (!w && !api_no_body(q, r))
		return;
	if (!w && a->view.tick && a->view.let_go == (what == VIEW_LET_GO))
		state(a, r); /* the drivers are already released, or already open */
	else if (!w)
		change_begin(a, q, r, what);
	else if (view_request_done(&a->view, w->number) && a->view.requests.error)
		change_failed(a, r, a->view.requests.error);
	else if (view_request_done(&a->view, w->number))
		state(a, r);
	else if (now >= w->until_ns)
		change_failed(a, r, -GW_E_TIMEOUT);
	else
		reply_again(r, now + POLL_NS);
}

void api_let_go(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, VIEW_LET_GO);
}

void api_resume(void *arg, const struct request *q, struct reply *r)
{
	change(arg, q, r, VIEW_RESUME);
}

static const struct asset *find_asset(const char *path)
{
	for (unsigned i = 0; i < asset_count; i++)
		if (strcmp(assets[i].path, path) == 0)
			return &assets[i];
	return NULL;
}

/* False if the file exists only compressed and the client does not accept gzip. */
static bool is_acceptable(const struct asset *f, const struct request *q)
{
	const char *encodings = request_header(q, "Accept-Encoding");

	return f->data || (encodings && strstr(encodings, "gzip"));
}

static void reply_asset(const struct request *q, struct reply *r, const char *path)
{
	const struct asset *f = find_asset(path);

	if (f && !is_acceptable(f, q))
		reply_problem(r, 406, "compressed-only", "Send Accept-Encoding: gzip.",
			      "%s is only available compressed", path);
	else if (f)
		reply_static(r, f->type, f->data, (size_t)(f->end - f->data), f->gz,
			     f->gz ? (size_t)(f->gz_end - f->gz) : 0);
	else if (asset_count == 0)
		reply_problem(r, 404, "no-page",
			      "The API is below /api/v1, described by /openapi.json.",
			      "this program was built without the page");
	else
		reply_problem(r, 404, "not-found", NULL, "no such file: %.128s", path);
}

void api_page_index(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, "/");
}

void api_page_asset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, q->path);
}

void api_docs_index(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, "/docs");
}

void api_docs_asset(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	reply_asset(q, r, q->path);
}

void api_metrics(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	enum metrics_form form = metrics_negotiate(request_header(q, "Accept"));

	if (a->top)
		api_look(a);
	r->type = metrics_type(form);
	metrics_render(&r->body, a, form);
}
