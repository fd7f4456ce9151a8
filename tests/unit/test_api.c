/* The answers, from the real table, over the simulator; the HTTP layer is left out. */
#include "simtest.h"

#include "http_fake.h"

#include "serve/api_parts.h"
#include "serve/asset.h"
#include "serve/windows.h"

#include "measure/meter.h"

#include <math.h>

/* ---- what others write ---- */

static const unsigned char page[] = "<html>";
const struct asset assets[] = {
	{ "/", "text/html", page, page + 6, NULL, NULL },
	{ "/assets/big.js", "text/javascript", NULL, NULL, page, page + 6 },
};
const unsigned asset_count = 2;

enum metrics_form metrics_negotiate(const char *accept)
{
	return accept && strstr(accept, "openmetrics") ? METRICS_OPENMETRICS
						       : METRICS_PROMETHEUS;
}

const char *metrics_type(enum metrics_form form)
{
	return form == METRICS_OPENMETRICS ? "application/openmetrics-text" : "text/plain";
}

void metrics_render(struct buf *out, const struct api *a, enum metrics_form form)
{
	(void)a;
	(void)form;
	buf_adds(out, "up 1\n");
}

/* ---- the daemon that is not there ---- */

static struct {
	struct api api;
	struct view_device device[64];
	struct gw_process_list *processes;
	struct gw_environment *env;
	struct reply reply;
	unsigned told, kept, forgotten, asked;
	int ask_answer, ask_error;
	bool ask_done; /* the engine does what it is asked, at the next look */
	enum view_request what;
	char kept_id[64], kept_json[65536], told_text[256];
} t;

static int history(void *engine, const char *uuid, unsigned quantity, uint64_t from,
		   uint64_t to, uint64_t step, struct view_point *out, unsigned max,
		   uint64_t *ret_step)
{
	unsigned n = 0;

	(void)engine;
	(void)uuid;
	(void)quantity;
	for (uint64_t at = from; at < to && n < max; at += step, n++)
		out[n] = (struct view_point){ at, step, 100 + n, 90, 110, n == 1 ? 0 : 5 };
	*ret_step = step;
	return (int)n;
}

static int events(void *engine, uint64_t after, unsigned max,
		  void (*each)(void *arg, const struct view_event *e), void *arg)
{
	(void)engine;
	for (uint64_t id = after + 1; id <= 5 && max--; id++)
		each(arg, &(struct view_event){ id, 1700000000 * NS_PER_S, "driver", NULL,
						"info", "a \"thing\" happened" });
	return 0;
}

static void tell(void *engine, const struct view_event *e)
{
	(void)engine;
	t.told++;
	snprintf(t.told_text, sizeof(t.told_text), "%s", e->text);
}

static int keep(void *engine, const char *kind, const char *id, const char *json, size_t size)
{
	(void)engine;
	assert_string_equal(kind, "window");
	assert_int_equal(strlen(json), size);
	t.kept++;
	snprintf(t.kept_id, sizeof(t.kept_id), "%s", id);
	snprintf(t.kept_json, sizeof(t.kept_json), "%s", json);
	return 0;
}

static int kept(void *engine, const char *kind, unsigned max,
		void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	(void)engine;
	(void)kind;
	if (max && *t.kept_id)
		each(arg, t.kept_id, t.kept_json);
	return 0;
}

static void forget(void *engine, const char *kind, const char *id)
{
	(void)engine;
	(void)kind;
	(void)id;
	t.forgotten++;
}

static int ask(void *engine, enum view_request what)
{
	(void)engine;
	t.asked++;
	t.what = what;
	return t.ask_answer;
}

static const struct view_ops ops = { .history = history, .events = events, .tell = tell, .keep = keep,
				     .kept = kept, .forget = forget, .ask = ask };

static void take(void)
{
	struct view *v = &t.api.view;

	assert_int_equal(gw_snapshot_take(sim.snap, GW_TIERS_ALL), 0);
	v->snap = sim.snap;
	v->tick++;
	v->devices = gw_snapshot_device_count(sim.snap);
	for (unsigned i = 0; i < v->devices; i++)
		t.device[i] = (struct view_device){ .meter = (int)i,
						    .seen_ns = clock_mono_ns(&sim.clock),
						    .energy_joules = 1234.5,
						    .energy_seconds = 60 };
	if (t.processes) {
		assert_int_equal(gw_process_list_take(t.processes), 0);
		v->processes = t.processes;
	}
}

static void begin(const char *world)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };

	memset(&t, 0, sizeof(t));
	memset(&fake, 0, sizeof(fake));
	sim_text(world);
	sim_step(5 * NS_PER_S);
	sim_open();
	t.api.clock = &sim.clock;
	t.api.windows_open = true;
	t.api.view.ops = &ops;
	t.api.view.device = t.device;
	t.api.view.interval_ns = NS_PER_S;
	t.api.view.self = (struct view_self){ .start_wall_ns = clock_wall_ns(&sim.clock),
					      .rss_bytes = 9 << 20,
					      .store_state = "ok" };
	assert_int_equal(windows_new(&t.api.windows), 0);
	assert_int_equal(gw_process_list_new(sim.ctx, &t.processes), 0);
	assert_int_equal(gw_environment_new(sim.ctx, &t.env), 0);
	t.api.view.env = t.env;
	assert_int_equal(gw_meter_start(sim.ctx, &o, &t.api.view.meter), 0);
	gw_meter_poll(t.api.view.meter);
	take();
}

static int end(void **state)
{
	buf_done(&t.reply.body);
	windows_free(t.api.windows);
	api_done(&t.api);
	gw_meter_stop(t.api.view.meter);
	gw_process_list_free(t.processes);
	gw_environment_free(t.env);
	memset(&t, 0, sizeof(t));
	buf_init(&t.reply.body, 1);
	return sim_teardown(state);
}

#define api_test(f) cmocka_unit_test_teardown(f, end)

/* Time goes on, the meter works, the engine takes its readings. */
static void pass(uint64_t until_ns)
{
	if (t.api.view.meter)
		meter_wait(t.api.view.meter, until_ns);
	else
		clock_sleep_until(&sim.clock, until_ns);
	if (t.ask_done && t.asked) {
		t.api.view.asks++;
		t.api.view.ask_error = t.ask_error;
		if (!t.ask_error)
			t.api.view.let_go = t.what == VIEW_LET_GO;
		t.asked = 0;
	}
}

static void run_for(double seconds)
{
	pass(clock_mono_ns(&sim.clock) + (uint64_t)(seconds * 1e9));
	take();
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
}

static const char *request(enum http_method method, const char *target, const char *body,
			   int status)
{
	if (t.reply.body.p)
		buf_done(&t.reply.body);
	fake_ask(&t.api, method, target, body, pass, &t.reply);
	if (t.reply.status != status)
		fail_msg("%s: %d, not %d: %s", target, t.reply.status, status, t.reply.body.p);
	return t.reply.body.p;
}

static const char *get(const char *target, int status)
{
	return request(HTTP_GET, target, "", status);
}

static const char *post(const char *target, const char *body, int status)
{
	if (*body)
		fake_add(&fake.head, "Content-Type", "application/json");
	return request(HTTP_POST, target, body, status);
}

static void at(const char *path, const char *value)
{
	char *got = json_at(t.reply.body.p, path);

	if (!got || strcmp(got, value) != 0)
		fail_msg("%s is %s, not %s, in %s", path, got ? got : "absent", value,
			 t.reply.body.p);
	free(got);
}

static double number(const char *path)
{
	char *got = json_at(t.reply.body.p, path);
	double v;

	if (!got)
		fail_msg("%s is absent in %s", path, t.reply.body.p);
	v = strcmp(got, "null") == 0 ? (double)NAN : strtod(got, NULL);
	free(got);
	return v;
}

static void says(const char *part)
{
	if (!strstr(t.reply.body.p, part))
		fail_msg("no \"%s\" in %s", part, t.reply.body.p);
}
#include "api_fixture.h"

/* ---- R4.1, R4.2 ---- */

static void devices_are_told_with_whole_numbers_and_the_fixed_names(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	get("/api/gpu/devices", 200);
	at("count", "2");
	at("devices.1.index", "1");
	at("devices.0.is_available", "true");
	at("devices.0.error_message", "null");
	assert_string_equal(t.reply.type, "application/json");
	assert_true(fake.flags & ROUTE_TICK);
	for (unsigned i = 0; i < 5; i++) {
		static const char *const keys[] = { "total_memory_mb", "free_memory_mb",
						    "used_memory_mb", "utilization_percent",
						    "temperature_c" };
		char path[64];
		double v;

		snprintf(path, sizeof(path), "devices.0.%s", keys[i]);
		v = number(path);
		assert_true(v > 0 && v == floor(v));
	}
	assert_int_equal(
		(int)number("devices.0.total_memory_mb"),
		(int)round(sim_value(gw_snapshot_device(sim.snap, 0), GW_Q_MEMORY_TOTAL) /
			   1048576));
}

static void a_lost_gpu_stays_listed_with_its_reason(void **state)
{
	(void)state;
	begin(TWO_GPUS "[[gpu]]\nprofile = \"h200\"\n"
		       "[[timeline]]\nat = 6\ndo = \"lose\"\ngpu = 2\n");
	run_for(2);
	get("/api/gpu/devices", 200);
	at("count", "3");
	at("devices.2.is_available", "false");
	at("devices.2.utilization_percent", "null");
	says("fell off the bus");
	at("devices.0.is_available", "true");
}

static void before_the_first_reading_lists_are_empty_and_say_why(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	t.api.view.tick = 0;
	t.api.view.snap = NULL;
	t.api.view.opening = true;
	get("/api/gpu/devices", 200);
	assert_string_equal(t.reply.body.p, "{\"devices\":[],\"count\":0}\n");
	get("/api/gpu/driver", 200);
	at("driver_version", "null");
	says("being opened");
	get("/api/v1/snapshot", 503);
	says("being opened");
	get("/healthz", 200);
	assert_string_equal(t.reply.body.p, "ok\n");
	get("/readyz", 503);
	says("being opened");
}

static void the_driver_has_three_versions_and_no_error(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	get("/api/gpu/driver", 200);
	assert_null(strstr(t.reply.body.p, "error_message"));
	assert_null(strstr(t.reply.body.p, "null"));
	says("\"cuda_driver_version\"");
	says("\"nvml_version\"");
}

/* ---- /api/v1 ---- */

static void one_gpu_is_found_by_each_of_its_names(void **state)
{
	char path[160], uuid[96];

	(void)state;
	begin(TWO_GPUS);
	snprintf(uuid, sizeof(uuid), "%s",
		 gw_device_text(gw_snapshot_device(sim.snap, 1), GW_T_UUID));
	snprintf(path, sizeof(path), "/api/v1/devices/%s", uuid);
	get(path, 200);
	at("index", "1");
	at("energy_joules_total", "1234.5");
	at("errors_total.lost", "0");
	at("schema_version", "1");
	get("/api/v1/devices/1", 200);
	at("index", "1");
	snprintf(path, sizeof(path), "/api/v1/devices/%s",
		 gw_device_text(gw_snapshot_device(sim.snap, 1), GW_T_PCI));
	get(path, 200);
	at("index", "1");
	get("/api/v1/devices/7", 404);
	says(uuid);
}

static void a_snapshot_shows_whom_it_is_asked_for(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	get("/api/v1/snapshot", 200);
	at("processes.0.name", "\"worker\"");
	at("devices.1.index", "1");
	get("/api/v1/snapshot?gpu=1&processes=0", 200);
	at("devices.0.index", "1");
	assert_null(json_at(t.reply.body.p, "devices.1"));
	assert_null(json_at(t.reply.body.p, "processes"));
	get("/api/v1/devices?gpu=0,1", 200);
	at("devices.1.metered", "true");
	get("/api/v1/processes?gpu=0", 200);
	at("processes.0.device_index", "0");
	get("/api/v1/environment", 200);
	at("source.simulated", "true");
	get("/api/v1/sensors", 200);
	at("devices.1.sensor.ring.supported", "true");
}

static void an_unknown_parameter_is_refused_with_the_right_spelling(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	get("/api/v1/snapshot?proceses=0", 400);
	says("did you mean \\\"processes\\\"");
	get("/api/gpu/devices?x=1", 400);
	says("there are none");
	get("/healthz?x=1", 200);
}

static void series_have_columns_of_equal_length(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	get("/api/v1/series?gpu=0&quantity=power_watts,clock_sm_hertz&from=-1m&step=10s", 200);
	at("series.0.quantity", "\"power_watts\"");
	at("series.1.quantity", "\"clock_sm_hertz\"");
	at("series.0.step_seconds", "10");
	at("series.0.mean", "[100,102,103,104,105]"); /* one had no reading */
	at("series.0.min", "[90,90,90,90,90]");
	assert_null(json_at(t.reply.body.p, "series.2"));
	get("/api/v1/devices/1/series?from=-30d", 200);
	at("series.0.index", "1");
	at("series.0.step_seconds", "3600"); /* 720 points, not 2.6 million */
}

static void series_refuse_what_makes_no_sense(void **state)
{
	static const struct {
		const char *query, *says;
		int status;
	} rows[] = {
		{ "quantity=power_wats", "did you mean \\\"power_watts\\\"", 404 },
		{ "quantity=serial", "there is of power_watts", 404 },
		{ "from=yesterday", "is no time", 400 },
		{ "from=-1h&to=-2h", "empty", 400 },
		{ "step=0", "no length of time", 400 },
		{ "step=fast", "no length of time", 400 },
		{ "from=-30d&step=1", "too many points", 400 },
		{ "tier=fortnight", "no tier", 400 },
		{ "gpu=9", "there are 0", 404 },
	};

	(void)state;
	begin(TWO_GPUS);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char target[128];

		snprintf(target, sizeof(target), "/api/v1/series?%s", rows[i].query);
		get(target, rows[i].status);
		says(rows[i].says);
	}
}

/* ---- events ---- */

static void events_are_listed_or_followed(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	t.api.view.last_event = 5;
	get("/api/v1/events?limit=2", 200); /* the latest */
	at("events.0.id", "4");
	get("/api/v1/events?after=3", 200);
	at("events.0.id", "4");
	at("events.1.text", "\"a \\\"thing\\\" happened\"");
	assert_null(json_at(t.reply.body.p, "events.2"));
	t.api.stream = (struct stream *)&t; /* only passed on */
	fake_add(&fake.head, "Accept", "text/event-stream");
	get("/api/v1/events?topics=tick,window", 200);
	assert_ptr_equal(fake.stream, t.api.stream);
	assert_int_equal(fake.topics, STREAM_TICK | STREAM_WINDOW);
	assert_true(fake.after == UINT64_MAX);
	fake_add(&fake.head, "Accept", "text/event-stream");
	fake_add(&fake.head, "Last-Event-ID", "17");
	get("/api/v1/events?after=3", 200);
	assert_int_equal(fake.after, 17);
	get("/api/v1/events?topics=windov", 400);
	says("did you mean \\\"window\\\"");
}

static void a_tick_is_one_line(void **state)
{
	struct buf out;

	(void)state;
	begin(TWO_GPUS);
	t.device[1].energy_joules = NAN;
	buf_init(&out, 65536);
	api_tick_json(&out, &t.api.view);
	assert_null(strchr(out.p, '\n'));
	buf_init(&t.reply.body, 65536);
	buf_adds(&t.reply.body, out.p);
	at("tick", "1");
	at("ready", "true");
	at("let_go", "false");
	at("devices.0.energy_joules_total", "1234.5");
	at("devices.1.energy_joules_total", "null");
	assert_true(number("devices.0.power_watts") > 0);
	assert_true(number("host.cpu_online_cores") > 0);
	buf_done(&out);
}

/* ---- health ---- */

static void readiness_goes_red_when_readings_stop(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	get("/readyz", 200);
	sim_step(1900 * NS_PER_MS);
	get("/readyz", 200);
	sim_step(200 * NS_PER_MS);
	get("/readyz", 503);
	says("2.1 s old");
	get("/livez", 200);
	get("/-/ready?verbose", 503);
	says("[-] reading");
	says("[+] GPU 1 ok");
	take();
	get("/-/ready?verbose", 200);
	says("ready");
}

static void without_a_driver_only_readiness_is_red(void **state)
{
	(void)state;
	begin("[[fault]]\ncall = \"nvmlInit_v2\"\ncode = 9\n");
	get("/api/gpu/devices", 200);
	at("count", "0");
	get("/api/v1/snapshot", 200);
	get("/api/v1/series", 200);
	get("/healthz", 200);
	get("/readyz", 503);
	post("/api/v1/windows", "{}", 503);
	says("nothing can be measured");
}

/* ---- letting go ---- */

static void letting_go_waits_until_it_is_done(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	t.ask_done = true;
	post("/api/v1/let-go", "", 200);
	at("let_go", "true");
	assert_true(fake.flags & ROUTE_CHANGE);
	assert_int_equal(fake.tries, 1);
	post("/api/v1/let-go", "", 200); /* again: nothing is asked */
	assert_int_equal(fake.tries, 0);
	get("/readyz", 503);
	says("let go");
	post("/api/v1/resume", "", 200);
	at("let_go", "false");
	t.ask_error = -GW_E_STATE;
	post("/api/v1/let-go", "", 409);
	says("has not returned");
	t.ask_done = false;
	post("/api/v1/let-go", "", 503);
}

/* ---- pages ---- */

static void files_are_handed_out_as_they_are(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	assert_string_equal(get("/", 200), "<html>");
	get("/assets/big.js", 406);
	fake_add(&fake.head, "Accept-Encoding", "br, gzip");
	get("/assets/big.js", 200);
	get("/assets/none.js", 404);
	get("/docs", 404);
	assert_string_equal(get("/metrics", 200), "up 1\n");
	get("/api/v1/self", 200);
	at("store.state", "\"ok\"");
	at("rss_bytes", "9437184");
}

/* ---- windows ---- */

static char opened[64]; /* "/api/v1/windows/ID" */

static void open_window(const char *body)
{
	post("/api/v1/windows", body, 201);
	snprintf(opened, sizeof(opened), "%s", fake_find(&fake.out, "Location"));
}

static const char *below(const char *rest)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s%s", opened, rest);
	return path;
}

static void a_window_measures_the_true_energy(void **state)
{
	double truth, joules;

	(void)state;
	begin(TWO_GPUS);
	memset(&pushed, 0, sizeof(pushed));
	windows_stream(t.api.windows, (struct stream *)&t);
	truth = sim_true_joules(1);
	open_window("{\"label\":\"prefill\",\"gpus\":[\"1\"],\"tags\":{\"model\":\"x\"}}");
	at("state", "\"open\"");
	at("limit_seconds", "3600");
	run_for(12);
	get(opened, 200);
	assert_true(number("energy_joules.best") > 0); /* so far */
	truth = sim_true_joules(1) - truth;
	post(below("/stop"), "", 200);
	at("state", "\"ended\"");
	at("ended_by", "\"request\"");
	at("label", "\"prefill\"");
	at("tags.model", "\"x\"");
	at("simulated", "true");
	at("devices.0.index", "1");
	at("parts", "[]");
	assert_null(json_at(t.reply.body.p, "devices.1"));
	joules = number("energy_joules.best");
	assert_true(fabs(joules / truth - 1) < 0.02);
	assert_true(number("energy_joules.low") < joules);
	assert_true(fabs(number("seconds") - 12) < 0.01);
	assert_int_equal(t.kept, 1);
	assert_int_equal(pushed.count, 2); /* it began, it ended */
	assert_int_equal(pushed.id, 102);
	assert_memory_equal(pushed.json, t.reply.body.p, strlen(pushed.json));
	assert_non_null(strstr(t.told_text, "prefill ended"));
	post(below("/stop"), "", 200); /* the same again */
	assert_true(number("energy_joules.best") == joules);
	get("/api/v1/windows", 200);
	at("open", "0");
	at("windows.0.label", "\"prefill\"");
	request(HTTP_DELETE, opened, "", 204);
	assert_int_equal(t.forgotten, 1);
	get(opened, 404);
}

static void marks_cut_a_window_into_parts_that_add_up(void **state)
{
	double sum = 0;

	(void)state;
	begin(TWO_GPUS);
	open_window("{\"gpus\":[0]}");
	run_for(10);
	post(below("/marks"), "{\"label\":\"a\"}", 201);
	run_for(11);
	post(below("/marks"), "{\"label\":\"b\"}", 201);
	at("parts.2.unfinished", "true");
	run_for(12);
	post(below("/stop"), "", 200);
	at("parts.0.label", "null");
	at("parts.1.label", "\"a\"");
	at("parts.2.label", "\"b\"");
	at("parts.2.unfinished", "false");
	assert_true(fabs(number("parts.1.begin_seconds") - 10) < 0.01);
	assert_true(fabs(number("parts.2.seconds") - 12) < 0.01);
	for (unsigned i = 0; i < 3; i++) {
		char path[64];

		snprintf(path, sizeof(path), "parts.%u.devices.0.energy_joules.best", i);
		sum += number(path);
	}
	assert_true(fabs(sum / number("energy_joules.best") - 1) < 0.01);
	post(below("/marks"), "{\"label\":\"late\"}", 409);
}

static void a_window_that_nobody_ends_ends_at_its_limit(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	open_window("{\"limit_seconds\":5}");
	run_for(4);
	get(opened, 200);
	at("state", "\"open\"");
	run_for(4);
	run_for(4);
	get(opened, 200);
	at("state", "\"ended\"");
	at("ended_by", "\"limit\"");
	assert_true(fabs(number("seconds") - 5) < 1e-6);
}

static void windows_are_refused_with_a_reason(void **state)
{
	static const struct {
		const char *body, *says;
	} rows[] = {
		{ "{", "not JSON: line 1" },
		{ "[]", "must be an object" },
		{ "{\"labl\":\"x\"}", "did you mean \\\"label\\\"" },
		{ "{\"label\":1}", "must be a text" },
		{ "{\"gpus\":\"0\"}", "array of texts" },
		{ "{\"gpus\":[\"9\"]}", "there are 0" },
		{ "{\"limit_seconds\":-1}", "above 0" },
		{ "{\"limit_seconds\":1e9}", "at most" },
		{ "{\"tags\":{\"a\":1}}", "object of texts" },
		{ "{\"label\":\"a\",\"label\":\"b\"}", "not JSON" },
	};

	(void)state;
	begin(TWO_GPUS);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		post("/api/v1/windows", rows[i].body, 400);
		says(rows[i].says);
	}
	fake_add(&fake.head, "Content-Type", "text/plain");
	request(HTTP_POST, "/api/v1/windows", "{}", 415);
	fake_add(&fake.head, "Sec-Fetch-Site", "cross-site");
	request(HTTP_POST, "/api/v1/windows", "", 401);
	post("/api/v1/windows/w0/stop", "", 404);
	t.api.windows_open = false;
	post("/api/v1/windows", "{}", 401);
	assert_non_null(fake_find(&fake.out, "WWW-Authenticate"));
	fake.trusted = true;
	post("/api/v1/windows", "{}", 201);
}

static void the_same_key_gives_the_same_window(void **state)
{
	char first[64];

	(void)state;
	begin(TWO_GPUS);
	fake_add(&fake.head, "Idempotency-Key", "k1");
	open_window("{\"label\":\"a\"}");
	snprintf(first, sizeof(first), "%s", opened);
	fake_add(&fake.head, "Idempotency-Key", "k1");
	post("/api/v1/windows", "{\"label\":\"a\"}", 200);
	assert_string_equal(fake_find(&fake.out, "Location"), first);
	fake_add(&fake.head, "Idempotency-Key", "k1");
	post("/api/v1/windows", "{\"label\":\"b\"}", 422);
	fake_add(&fake.head, "Idempotency-Key", "k2");
	post("/api/v1/windows", "{\"label\":\"a\"}", 201);
	get("/api/v1/windows", 200);
	at("open", "2");
}

static void at_most_64_windows_are_open(void **state)
{
	(void)state;
	begin(TWO_GPUS);
	for (unsigned i = 0; i < WINDOWS_OPEN_MAX; i++)
		open_window("");
	post("/api/v1/windows", "", 429);
	request(HTTP_DELETE, opened, "", 204);
	open_window("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_test(devices_are_told_with_whole_numbers_and_the_fixed_names),
		api_test(a_lost_gpu_stays_listed_with_its_reason),
		api_test(before_the_first_reading_lists_are_empty_and_say_why),
		api_test(the_driver_has_three_versions_and_no_error),
		api_test(one_gpu_is_found_by_each_of_its_names),
		api_test(a_snapshot_shows_whom_it_is_asked_for),
		api_test(an_unknown_parameter_is_refused_with_the_right_spelling),
		api_test(series_have_columns_of_equal_length),
		api_test(series_refuse_what_makes_no_sense),
		api_test(events_are_listed_or_followed),
		api_test(a_tick_is_one_line),
		api_test(readiness_goes_red_when_readings_stop),
		api_test(without_a_driver_only_readiness_is_red),
		api_test(letting_go_waits_until_it_is_done),
		api_test(files_are_handed_out_as_they_are),
		api_test(a_window_measures_the_true_energy),
		api_test(marks_cut_a_window_into_parts_that_add_up),
		api_test(a_window_that_nobody_ends_ends_at_its_limit),
		api_test(windows_are_refused_with_a_reason),
		api_test(the_same_key_gives_the_same_window),
		api_test(at_most_64_windows_are_open),
	};

	return cmocka_run_group_tests(tests, sim_setup, NULL);
}
