/* Replies about the service itself: its liveness, its readiness and its cost. Also releases and
 * reopens the GPU drivers, and serves the web page, /docs and /metrics.
 *
 * The reply about liveness needs no reading and no guard. The reply about readiness names the
 * problem in one sentence. */
#include "api_parts.h"

#include "asset.h"
#include "metrics.h"

#include "device/driver_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_push(struct buf *out, const struct view_push *p)
{
	bool both = *p->problem && *p->queue_problem;

	buf_addf(out, "[%c] push %s%s%s\n", *p->problem || *p->queue_problem ? '-' : '+',
		 *p->problem || *p->queue_problem ? p->problem
		 : p->success_wall_ns             ? "ok"
						  : "nothing was sent yet",
		 both ? "; " : "", p->queue_problem);
}

static void write_checks(struct buf *out, const struct api *a, const char *unready)
{
	const struct view *v = &a->view;
	double age_s = v->tick && v->snap
			       ? (double)(api_now(a) - gw_snapshot_mono_ns(v->snap)) / 1e9
			       : -1;
	const double pace_s = fmax((double)v->pace.next_ns, (double)v->interval_ns) / 1e9;
	unsigned n = v->tick && v->snap ? gw_snapshot_device_count(v->snap) : 0;

	buf_adds(out, "[+] answering ok\n");
	if (age_s >= 0)
		buf_addf(out, "[%c] reading %llu, %.1f s old, every %g s\n",
			 age_s > 2 * pace_s ? '-' : '+', (unsigned long long)v->tick, age_s,
			 pace_s);
	else
		buf_addf(out, "[-] no reading yet%s%s\n", v->unopened ? ": " : "",
			 v->unopened ? v->unopened : "");
	for (unsigned i = 0; i < n; i++) {
		const struct gw_device *d = gw_snapshot_device(v->snap, i);

		buf_addf(out, "[%c] GPU %u %s%s%s\n", d->state == GW_DEVICE_OK ? '+' : '-',
			 d->index, gw_device_state_name(d->state), *d->message ? ": " : "",
			 d->message);
	}
	buf_addf(out, "[%c] history %s\n", v->self.store_problem ? '-' : '+',
		 v->self.store_problem ? v->self.store_problem : "ok");
	if (v->problems.meter)
		buf_addf(out, "[-] energy: %s\n", v->problems.meter);
	if (v->problems.guard)
		buf_addf(out, "[-] guard: %s\n", v->problems.guard);
	if (a->push)
		check_push(out, a->push);
	if (unready)
		buf_addf(out, "not ready: %s\n", unready);
	else
		buf_adds(out, "ready\n");
}

void api_healthy(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char why[512];
	bool verbose;

	if (!api_flag(q, r, "verbose", false, &verbose))
		return;
	r->type = "text/plain; charset=utf-8";
	if (verbose)
		write_checks(&r->body, a, view_unready(&a->view, api_now(a), why, sizeof(why)));
	buf_adds(&r->body, "ok\n");
}

static const char *unready_remedy(const struct view *v)
{
	unsigned cause;

	if (!v->tick || !v->snap)
		return "Try again in a moment.";
	if (v->let_go)
		return "POST /api/v1/resume when the maintenance is done.";
	cause = gw_snapshot_status(v->snap)->cause;
	for (unsigned i = 0; i < gw_snapshot_device_count(v->snap); i++)
		if (gw_snapshot_device(v->snap, i)->state == GW_DEVICE_STALLED)
			cause = GW_CAUSE_STALLED;
	return *gw_cause_info(cause)->remedy ? gw_cause_info(cause)->remedy : NULL;
}

void api_ready(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	char why[512];
	const char *unready = view_unready(&a->view, api_now(a), why, sizeof(why));
	bool verbose;

	if (!api_flag(q, r, "verbose", false, &verbose))
		return;
	if (unready && !verbose) {
		reply_problem(r, 503, "not-ready", unready_remedy(&a->view), "%s", unready);
		return;
	}
	r->type = "text/plain; charset=utf-8";
	if (unready)
		r->status = 503;
	if (verbose)
		write_checks(&r->body, a, unready);
	if (!unready)
		buf_adds(&r->body, "ok\n");
}

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
	const struct view_self *s = &a->view.self;
	double seconds = (double)(clock_mono_ns(a->clock) - s->start_mono_ns) / 1e9;

	json_time(j, "start_utc", s->start_wall_ns);
	json_double(j, "uptime_seconds", seconds);
	json_double(j, "cpu_seconds", s->cpu_seconds);
	json_double(j, "cpu_mean_ratio", seconds > 0 ? s->cpu_seconds / seconds : (double)NAN);
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
	json_string(&j, "state", s->store_problem ? s->store_problem : "ok");
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
	uint64_t until_ns; /* The reply waits until this monotonic time. */
};

static void reply_state(const struct api *a, struct reply *r)
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
		render_text(&j, "message", d->message);
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
			      "End the process that hangs in the driver, or wait. gpuward "
			      "reopens the GPUs that it had already closed.",
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

static void handle_change(const struct api *a, const struct request *q, struct reply *r,
			  enum view_request what)
{
	const struct wait *w = *q->memory;
	uint64_t now = api_now(a);

	if (!w && !api_no_body(q, r))
		return;
	if (!w && a->view.tick && a->view.let_go == (what == VIEW_LET_GO))
		reply_state(a, r); /* The drivers already are in the requested state. */
	else if (!w)
		change_begin(a, q, r, what);
	else if (view_request_done(&a->view, w->number) && a->view.requests.error)
		change_failed(a, r, a->view.requests.error);
	else if (view_request_done(&a->view, w->number))
		reply_state(a, r);
	else if (now >= w->until_ns)
		change_failed(a, r, -GW_E_TIMEOUT);
	else
		reply_again(r, now + POLL_NS);
}

void api_let_go(void *arg, const struct request *q, struct reply *r)
{
	handle_change(arg, q, r, VIEW_LET_GO);
}

void api_resume(void *arg, const struct request *q, struct reply *r)
{
	handle_change(arg, q, r, VIEW_RESUME);
}

static const struct asset *find_asset(const char *path)
{
	for (unsigned i = 0; i < asset_count; i++)
		if (strcmp(assets[i].path, path) == 0)
			return &assets[i];
	return NULL;
}

/* Returns false if the program has only a gzipped copy of the file, and the client does not
 * accept gzip. */
static bool is_acceptable(const struct asset *f, const struct request *q)
{
	const char *encodings = request_header(q, "Accept-Encoding");

	return f->data || (encodings && strstr(encodings, "gzip"));
}

static void reply_asset(struct reply *r, const struct asset *f)
{
	reply_static(r, f->type, f->data, (size_t)(f->end - f->data), f->gz,
		     f->gz ? (size_t)(f->gz_end - f->gz) : 0);
}

void api_openapi(void *arg, const struct request *q, struct reply *r)
{
	(void)arg;
	(void)q;
	reply_asset(r, &asset_openapi);
}

void api_page(void *arg, const struct request *q, struct reply *r)
{
	const struct asset *f = find_asset(q->path);

	(void)arg;
	if (f && !is_acceptable(f, q))
		reply_problem(r, 406, "compressed-only", "Send Accept-Encoding: gzip.",
			      "%s is only available compressed", q->path);
	else if (f)
		reply_asset(r, f);
	else if (asset_count == 0)
		reply_problem(r, 404, "no-page",
			      "The API is below /api/v1, described by /openapi.json.",
			      "this program was built without the page");
	else
		reply_problem(r, 404, "not-found", NULL, "no such file: %.128s", q->path);
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
