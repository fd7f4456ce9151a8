/* The cost of the service itself. */
#include "api_parts.h"

#include "device/call_cost.h"

/* Figures from /proc; 0: unknown. */
static void known(struct json *j, const char *key, uint64_t v)
{
	if (v)
		json_uint(j, key, v);
	else
		json_null(j, key);
}

static void call(struct json *j, const struct call_cost *c)
{
	json_object(j, NULL);
	json_string(j, "name", c->name);
	json_uint(j, "count", c->count);
	json_uint(j, "errors", c->errors);
	json_double(j, "seconds_total", (double)c->total_ns * 1e-9);
	json_double(j, "seconds_max", (double)c->max_ns * 1e-9);
	json_object_end(j);
}

/* The cost of each driver call. */
static void calls(struct json *j, const struct view *v)
{
	struct call_cost cost[CALL_COST_CALLS];
	unsigned n = call_cost_list(v->ctx, cost, CALL_COST_CALLS);

	json_array(j, "calls");
	for (unsigned i = 0; i < n; i++)
		call(j, &cost[i]);
	json_array_end(j);
}

static void requests(struct json *j, const struct api *a)
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

static void uptime(struct json *j, const struct api *a)
{
	uint64_t now = clock_wall_ns(a->clock), start = a->view.self.start_wall_ns;
	double seconds = now > start ? (double)(now - start) / 1e9 : 0;

	json_time(j, "start_utc", start);
	json_double(j, "uptime_seconds", seconds);
	json_double(j, "cpu_seconds", a->view.self.cpu_seconds);
	if (seconds > 0)
		json_double(j, "cpu_mean_ratio", a->view.self.cpu_seconds / seconds);
	else
		json_null(j, "cpu_mean_ratio");
}

void api_self(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct view_self *s = &a->view.self;
	struct json j;

	(void)q;
	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_string(&j, "version", gw_version());
	uptime(&j, a);
	known(&j, "rss_bytes", s->rss_bytes);
	known(&j, "rss_peak_bytes", s->rss_peak_bytes);
	known(&j, "threads", s->threads);
	known(&j, "descriptors", s->descriptors);
	json_uint(&j, "wakeups", s->wakeups);
	json_double(&j, "interval_seconds", (double)a->view.interval_ns / 1e9);
	json_uint(&j, "ticks", s->ticks);
	json_uint(&j, "ticks_missed", s->ticks_missed);
	json_double(&j, "tick_seconds", s->tick_seconds);
	json_double(&j, "tick_max_seconds", s->tick_max_seconds);
	if (s->counts_known)
		json_uint(&j, "init_failures", a->view.init_failures);
	else
		json_null(&j, "init_failures");
	json_object(&j, "store");
	json_uint(&j, "bytes", s->store_bytes);
	json_uint(&j, "dropped", s->store_dropped);
	json_string(&j, "state", s->store_state);
	json_object_end(&j);
	requests(&j, a);
	calls(&j, &a->view);
	json_object_end(&j);
	json_end(&j);
}
