/* Tests the routes over the simulator, without the HTTP layer. */
#include "api_fixture.h"

static bool memory_is_gone; /* true: no request body can be read */

static void *unreliable_calloc(size_t n, size_t size)
{
	return memory_is_gone ? NULL : calloc(n, size);
}

#define calloc unreliable_calloc
#include "serve/json_request.c"
#undef calloc

API_TEST(devices_have_whole_numbers_and_fixed_keys)
{
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

API_TEST(a_lost_gpu_stays_listed_with_its_reason)
{
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

API_TEST(before_the_first_reading_lists_are_empty_with_a_reason)
{
	begin(TWO_GPUS);
	t.api.view.tick = 0;
	t.api.view.snap = NULL;
	t.api.view.unopened = "the drivers are being opened for the first time";
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

API_TEST(the_driver_has_three_versions_and_no_error)
{
	begin(TWO_GPUS);
	get("/api/gpu/driver", 200);
	assert_null(strstr(t.reply.body.p, "error_message"));
	assert_null(strstr(t.reply.body.p, "null"));
	says("\"cuda_driver_version\"");
	says("\"nvml_version\"");
}

API_TEST(one_gpu_is_found_by_each_of_its_names)
{
	char path[160], uuid[96];

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

API_TEST(a_beginning_of_a_uuid_that_is_too_short_is_refused_with_the_length)
{
	static const char *const paths[] = { "/api/v1/devices/GPU-51", "/api/v1/devices/gpu-",
					     "/api/v1/snapshot?gpu=GPU-5" };

	begin(TWO_GPUS);
	for (size_t i = 0; i < COUNT_OF(paths); i++) {
		get(paths[i], 400);
		says("is too short: give at least 4 characters after GPU-");
	}
	get("/api/v1/devices/GPU-5100", 200);
	get("/api/v1/devices/GPU-5199", 404);
	get("/api/v1/devices/all", 400);
	says("matches 2 GPUs");
}

API_TEST(a_snapshot_shows_only_the_requested_gpus)
{
	begin(TWO_GPUS);
	get("/api/v1/snapshot", 200);
	at("processes.0.name", "\"worker\"");
	at("devices.1.index", "1");
	get("/api/v1/snapshot?processes=2", 400);
	says("processes must be 1, true, 0 or false, not \\\"2\\\"");
	get("/api/v1/snapshot?gpu=0&gpu=1", 400);
	says("the parameter gpu is given twice");
	get("/api/v1/snapshot?gpu=1&processes=0", 200);
	at("devices.0.index", "1");
	assert_null(json_at(t.reply.body.p, "devices.1"));
	assert_null(json_at(t.reply.body.p, "processes"));
	get("/api/v1/devices?gpu=0,1", 200);
	at("devices.1.metered", "true");
	get("/api/v1/processes?gpu=0", 200);
	at("processes.0.device_index", "0");
	at("processes.0.energy_method", "\"measured\"");
	at("device_energy.0.former_processes_joules", "100");
	assert_null(json_at(t.reply.body.p, "device_energy.1"));
	at("processes.0.workload.kind", "\"slurm\"");
	at("processes.0.workload.part", "\"0\"");

	get("/api/v1/workloads?gpu=0", 200);
	at("workloads.0.name", "\"4711\"");
	at("workloads.0.energy_joules", "1869"); /* sum over both GPUs */
	at("workloads.0.devices.0.energy_joules", "934.5");
	at("workloads.0.split_uncertainty_ratio", "0");
	at("devices.0.energy_joules_total", "1234.5");
	at("devices.0.workloads_joules", "934.5");
	at("devices.0.earlier_joules", "300");
	get("/api/v1/workloads/history", 200);
	assert_null(json_at(t.reply.body.p, "workloads.0"));
	get("/api/v1/workloads/history?running=only&name=47*", 200);
	at("workloads.0.state", "\"running\"");
	get("/api/v1/workloads/history?running=with&name=48*", 200);
	assert_null(json_at(t.reply.body.p, "workloads.0"));
	get("/api/v1/workloads/history?running=with&limit=0", 200);
	at("left_out", "1");
	get("/api/v1/workloads/history?limit=5001", 400);
	get("/api/v1/workloads/history?kind=slrum", 400);
	says("did you mean \\\"slurm\\\"");
	get("/api/v1/workloads/history?running=yes", 400);
	says("without, with or only");
	get("/api/v1/workloads/history?since=yesterday", 400);
	says("is not a time");

	get("/api/v1/processes/history?gpu=0", 200);
	at("processes.0.power_watts.2", "451.75");
	get("/api/v1/processes/history?gpu=1", 200);
	assert_null(json_at(t.reply.body.p, "processes.0"));
	get("/api/v1/environment", 200);
	at("source.simulated", "true");
	get("/api/v1/sensors", 200);
	at("devices.1.sensor.ring.supported", "true");
}

API_TEST(the_history_of_workloads_reads_no_more_than_it_lists)
{
	begin(TWO_GPUS);
	jobs.count = 100000;
	get("/api/v1/workloads/history?limit=3", 200);
	at("workloads.0.name", "\"job99997\"");
	at("workloads.2.name", "\"job99999\"");
	assert_null(json_at(t.reply.body.p, "workloads.3"));
	at("left_out", "99997");
	at("truncated", "false");
	assert_int_equal(jobs.read, 3);
	get("/api/v1/workloads/history?limit=3&running=with", 200);
	at("workloads.0.name", "\"job99998\"");
	at("workloads.2.name", "\"4711\"");
	at("left_out", "99998");
	get("/api/v1/workloads/history?kind=slurm", 200);
	assert_null(json_at(t.reply.body.p, "workloads.0"));
	get("/api/v1/workloads/history?since=99990", 200);
	at("workloads.9.name", "\"job99999\"");
	at("left_out", "0");

	/* search for a name: among the first ten, among the last ten, and with escapes */
	get("/api/v1/workloads/history?name=job9", 200);
	assert_null(json_at(t.reply.body.p, "workloads.0"));
	at("truncated", "true");
	assert_non_null(strstr(t.reply.body.p, "Set since to a later time"));
	get("/api/v1/workloads/history?name=job9999?&limit=2", 200);
	at("workloads.1.name", "\"job99999\"");
	at("left_out", "7");
	get("/api/v1/workloads/history?name=??job99990&since=99980", 200);
	at("workloads.0.part", "\"\"");
	at("truncated", "false");

	jobs.padding = 8192;
	get("/api/v1/workloads/history?limit=5000", 400);
	says("limit=5000: these workloads need more than 15 MiB");
	get("/api/v1/workloads/history?limit=900", 200);
	memset(&jobs, 0, sizeof(jobs));
}

API_TEST(an_unknown_parameter_is_refused_with_the_right_spelling)
{
	begin(TWO_GPUS);
	get("/api/v1/snapshot?proceses=0", 400);
	says("did you mean \\\"processes\\\"");
	get("/api/gpu/devices?x=1", 400);
	says("this route has no parameters");
	get("/healthz?x=1", 200);
}

API_TEST(series_have_columns_of_equal_length)
{
	begin(TWO_GPUS);
	get("/api/v1/series?gpu=0&quantity=power_watts,clock_sm_hertz&from=-1m&step=10s", 200);
	at("series.0.quantity", "\"power_watts\"");
	at("series.1.quantity", "\"clock_sm_hertz\"");
	at("series.0.step_seconds", "10");
	at("series.0.mean", "[100,102,103,104,105]"); /* one sample had no value */
	at("series.0.min", "[90,90,90,90,90]");
	assert_null(json_at(t.reply.body.p, "series.2"));
	get("/api/v1/devices/1/series?from=-30d", 200);
	at("series.0.index", "1");
	at("series.0.step_seconds", "3600"); /* 720 points, not 2.6 million */
}

API_TEST(series_refuse_invalid_parameters)
{
	static const struct {
		const char *query, *says;
		int status;
	} rows[] = {
		{ "quantity=power_wats", "did you mean \\\"power_watts\\\"", 404 },
		{ "quantity=serial", "available: power_watts", 404 },
		{ "from=yesterday", "is not a time", 400 },
		{ "from=2026-02-30T00:00:00Z", "is not a time", 400 },
		{ "from=-1h&from=-2h", "the parameter from is given twice", 400 },
		{ "from=-1h&to=-2h", "empty", 400 },
		{ "to=2600-01-01T00:00:00Z&from=-1m", "is not a time from 1970 to 2243", 400 },
		{ "to=9999-12-31T00:00:00Z", "is not a time from 1970 to 2243", 400 },
		{ "from=0x10", "is not a time", 400 },
		{ "step=140000d", "at most 100000 days", 400 },
		{ "step=0", "not a duration", 400 },
		{ "step=fast", "not a duration", 400 },
		{ "from=-30d&step=1", "too many points", 400 },
		{ "tier=fortnight", "unknown tier", 400 },
		{ "gpu=9", "there are GPU 0 (", 404 },
	};

	begin(TWO_GPUS);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char target[128];

		snprintf(target, sizeof(target), "/api/v1/series?%s", rows[i].query);
		get(target, rows[i].status);
		says(rows[i].says);
	}
}

API_TEST(events_are_listed_or_followed)
{
	begin(TWO_GPUS);
	get("/api/v1/events?limit=2", 200); /* the latest */
	at("events.0.id", "4");
	get("/api/v1/events?after=3", 200);
	at("events.0.id", "4");
	at("events.1.text", "\"a \\\"thing\\\" happened\"");
	assert_null(json_at(t.reply.body.p, "events.2"));
	t.api.stream = (struct stream *)&t; /* the pointer is only passed on, never read */
	fake_add(&fake.head, "Accept", "text/event-stream");
	get("/api/v1/events?topics=tick,window", 200);
	assert_ptr_equal(fake.stream, t.api.stream);
	assert_int_equal(fake.topics, STREAM_TICK | STREAM_WINDOW);
	assert_true(fake.after == UINT64_MAX);
	fake_add(&fake.head, "Accept", "text/event-stream");
	fake_add(&fake.head, "Last-Event-ID", "17");
	get("/api/v1/events?after=3", 200);
	assert_int_equal(fake.after, 17);
	fake_add(&fake.head, "Accept", "text/event-stream;q=0, application/json");
	get("/api/v1/events?after=3", 200);
	at("events.0.id", "4");
	fake_add(&fake.head, "Accept", "application/json, text/event-stream;q=0.5");
	get("/api/v1/events?after=3", 200);
	at("events.0.id", "4");
	get("/api/v1/events?topics=windov", 400);
	says("did you mean \\\"window\\\"");
}

API_TEST(a_tick_is_one_line)
{
	struct buf out;

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

API_TEST(readiness_goes_red_when_readings_stop)
{
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
	says("[+] history ok");
	t.api.view.self.store_problem = "the disk is full";
	/* ready: the readings are current although the disk is full */
	get("/-/ready?verbose", 200);
	says("[-] history the disk is full");
}

API_TEST(without_a_driver_only_readiness_is_red)
{
	begin("[[fault]]\ncall = \"nvmlInit_v2\"\ncode = 9\n");
	get("/api/gpu/devices", 200);
	at("count", "0");
	get("/api/v1/snapshot", 200);
	get("/api/v1/series", 200);
	get("/healthz", 200);
	get("/readyz", 503);
	post("/api/v1/windows", "{}", 503);
	says("measuring is not possible");
}

API_TEST(a_body_that_does_not_fit_into_memory_is_503)
{
	begin(TWO_GPUS);
	memory_is_gone = true;
	post("/api/v1/windows", "{}", 503);
	says("out of memory");
	post("/api/v1/resume", "{}", 503);
	says("out of memory");
	memory_is_gone = false;
	post("/api/v1/windows", "{}", 201);
}

API_TEST(an_unknown_key_is_named_with_the_allowed_keys)
{
	begin(TWO_GPUS);
	post("/api/v1/windows", "{\"now\":true}", 400);
	says("unknown key \\\"now\\\"; the keys are label, gpus, limit_seconds, lease_seconds, "
	     "tags\"");
	post("/api/v1/windows", "{\"lable\":\"x\"}", 400);
	says("did you mean \\\"label\\\"?");
	post("/api/v1/resume", "{\"now\":true}", 400);
	says("no key is accepted");
}

API_TEST(releasing_the_driver_waits_until_it_is_done)
{
	begin(TWO_GPUS);
	t.ask_done = true;
	post("/api/v1/let-go", "garbage", 400);
	says("the body is not JSON");
	assert_int_equal(t.asked, 0);
	post("/api/v1/let-go", "", 200);
	at("let_go", "true");
	assert_true(fake.flags & ROUTE_CHANGE);
	assert_int_equal(fake.tries, 1);
	/* already released: no second request is sent to the engine */
	post("/api/v1/let-go", "", 200);
	assert_int_equal(fake.tries, 0);
	get("/readyz", 503);
	says("released");
	post("/api/v1/windows", "", 503);
	says("released");
	post("/api/v1/resume", "[]", 400);
	post("/api/v1/resume", "{}", 200);
	at("let_go", "false");
	t.request_error = -GW_E_STATE;
	post("/api/v1/let-go", "", 409);
	says("has not returned");
	t.ask_done = false;
	post("/api/v1/let-go", "", 503);
}

API_TEST(files_are_served_unchanged)
{
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

static uint64_t wall_was_set_back(void *ctx)
{
	(void)ctx;
	return sim_wall_ns() - 3600 * NS_PER_S;
}

API_TEST(the_uptime_does_not_depend_on_the_wall_clock)
{
	struct clock clock;

	begin(TWO_GPUS);
	clock = sim.clock;
	clock.wall_ns = wall_was_set_back;
	t.api.clock = &clock;
	t.api.view.self.cpu_seconds = 2;
	sim_step(8 * NS_PER_S);
	get("/api/v1/self", 200);
	assert_float_equal(number("uptime_seconds"), 8, 1e-6);
	assert_float_equal(number("cpu_mean_ratio"), 0.25, 1e-6);
}

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

API_TEST(a_window_measures_the_true_energy)
{
	double truth, joules;

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
	post(below("/stop"), "garbage", 400);
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
	assert_int_equal(pushed.count, 2); /* events for start and end of the window */
	assert_int_equal(pushed.id, 102);
	/* the event does not contain the details */
	assert_memory_equal(pushed.json, t.reply.body.p, strlen(pushed.json) - 1);
	at("details.0.index", "1");
	at("details.0.driver_version", "\"580.159.04\"");
	at("details.0.evidence", "{}");
	at("details.0.sensor.origin", "\"assumed\"");
	assert_true(number("details.0.power_limit_watts") > 0);
	assert_in(t.logged_text, "prefill ended");
	post(below("/stop"), "", 200); /* stop again: the same result */
	assert_true(number("energy_joules.best") == joules);
	get("/api/v1/windows", 200);
	at("open", "0");
	at("windows.0.label", "\"prefill\"");
	request(HTTP_DELETE, opened, "", 204);
	assert_int_equal(t.forgotten, 1);
	get(opened, 404);
}

API_TEST(the_seconds_of_an_open_window_are_those_that_its_energy_covers)
{
	double seconds = 0, joules = 0;
	unsigned known = 0;

	begin(TWO_GPUS);
	open_window("{}");
	at("seconds", "0");
	run_for(0.1);
	post(below("/marks"), "{\"label\":\"a\"}", 201);
	for (unsigned i = 0; i < 24; i++) {
		char *joules_text;
		bool unknown;

		run_for(0.13);
		get(opened, 200);
		joules_text = json_at(t.reply.body.p, "energy_joules");
		unknown = strcmp(joules_text, "null") == 0;
		free(joules_text);
		if (unknown) {
			at("seconds", "0");
			continue;
		}
		known++;
		assert_true(fabs(number("energy_joules.best") /
					 (number("power_mean_watts") * number("seconds")) -
				 1) < 0.02);
		assert_int_equal(number("energy_joules.best") > joules,
				 number("seconds") > seconds);
		assert_true(number("parts.1.seconds") < number("seconds"));
		joules = number("energy_joules.best");
		seconds = number("seconds");
		get("/api/v1/windows", 200);
		assert_true(number("windows.0.seconds") == seconds);
	}
	assert_true(known > 10);
	assert_true(seconds < 3.22);
}

API_TEST(marks_cut_a_window_into_parts_that_add_up)
{
	double sum = 0;

	begin(TWO_GPUS);
	open_window("{\"gpus\":[0]}");
	run_for(10);
	post(below("/marks"), "{\"label\":\"a\"}", 201);
	run_for(11);
	post(below("/marks"), "{\"label\":\"b\"}", 201);
	at("kind", "\"mark\"");
	at("label", "\"b\"");
	at("marks", "2");
	assert_true(fabs(number("begin_seconds") - 21) < 0.01);
	assert_null(json_at(t.reply.body.p, "parts"));
	get(opened, 200);
	at("marks", "2");
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
	get("/api/v1/windows", 200);
	at("windows.0.marks", "2");
	at("windows.0.parts_left_out", "true");
	at("windows.0.parts", "[]");
	assert_null(json_at(t.reply.body.p, "windows.0.details"));
	at("windows.0.simulated", "true");
	assert_true(number("windows.0.devices.0.energy_joules.best") > 0);
}

/* Waits eight seconds, and checks that the window has ended by itself. */
static void assert_ended(const char *by, double seconds, double tolerance)
{
	run_for(4);
	run_for(4);
	get(opened, 200);
	at("state", "\"ended\"");
	at("ended_by", by);
	assert_true(fabs(number("seconds") - seconds) < tolerance);
}

API_TEST(a_window_without_an_end_request_ends_at_its_limit)
{
	begin(TWO_GPUS);
	open_window("{\"limit_seconds\":5}");
	run_for(4);
	get(opened, 200);
	at("state", "\"open\"");
	assert_ended("\"limit\"", 5, 1e-6);
}

API_TEST(a_window_without_requests_ends_with_its_lease)
{
	begin(TWO_GPUS);
	open_window("{\"lease_seconds\":5}");
	at("lease_seconds", "5");
	for (int i = 0; i < 3; i++) { /* each request starts the lease again */
		run_for(4);
		get(opened, 200);
		at("state", "\"open\"");
	}
	assert_ended("\"lease\"", 17, 0.1);
}

API_TEST(windows_are_refused_with_a_reason)
{
	static const struct {
		const char *body, *says;
	} rows[] = {
		{ "{", "not JSON: line 1" },
		{ "[]", "must be an object" },
		{ "{\"labl\":\"x\"}", "did you mean \\\"label\\\"" },
		{ "{\"label\":1}", "must be a string" },
		{ "{\"gpus\":\"0\"}", "array of strings" },
		{ "{\"gpus\":[\"9\"]}", "there are GPU 0 (" },
		{ "{\"gpus\":[\"0\",\"bogus\"]}", "no GPU matches \\\"bogus\\\"" },
		{ "{\"gpus\":[]}", "omit the key for all GPUs" },
		{ "{\"limit_seconds\":-1}", "above 0" },
		{ "{\"limit_seconds\":1e9}", "at most" },
		{ "{\"lease_seconds\":1}", "must be 2 to 604800" },
		{ "{\"lease_seconds\":-3}", "or 0 for no lease" },
		{ "{\"tags\":{\"a\":1}}", "object of strings" },
		{ "{\"label\":\"a\",\"label\":\"b\"}", "not JSON" },
	};

	begin(TWO_GPUS);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		post("/api/v1/windows", rows[i].body, 400);
		says(rows[i].says);
	}
	post("/api/v1/windows/w0/stop", "", 404);
	t.api.windows_open = false;
	post("/api/v1/windows", "{}", 401);
	assert_non_null(fake_find(&fake.out, "WWW-Authenticate"));
	fake.trusted = true;
	post("/api/v1/windows", "{}", 201);
}

API_TEST(the_same_key_gives_the_same_window)
{
	char first[64];

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

API_TEST(a_window_and_its_end_are_stored_before_the_answer)
{
	begin(TWO_GPUS);
	unstored = 4;
	open_window("");
	assert_int_equal(fake.tries, 3);
	/* the handler was called four times and opened one window */
	assert_int_equal(t.begun, 1);
	unstored = 4;
	post(below("/stop"), "", 200);
	assert_int_equal(unstored, 0);
	unstored = 4;
	request(HTTP_DELETE, opened, "", 204);
	assert_int_equal(fake.tries, 3);
	assert_int_equal(t.forgotten, 1);
	unstored = 1000; /* a slow disk: the answer waits at most 0.3 s */
	open_window("");
	assert_int_equal(fake.tries, 150);
	unstored = 0;
}

API_TEST(a_selector_of_a_window_may_match_several_gpus)
{
	begin(TWO_GPUS);
	open_window("{\"gpus\":[\"all\",1]}");
	at("devices.0.index", "0");
	at("devices.1.index", "1");
	assert_null(json_at(t.reply.body.p, "devices.2"));
}

API_TEST(at_most_64_windows_are_open)
{
	begin(TWO_GPUS);
	for (unsigned i = 0; i < WINDOWS_OPEN_MAX; i++)
		open_window("");
	post("/api/v1/windows", "", 429);
	request(HTTP_DELETE, opened, "", 204);
	open_window("");
}

TEST_MAIN(sim_setup, NULL)
