/* Tests windows: when the meter stops, when there are many windows, and after a restart. Also
 * tests what the service reports about itself. */
#include "api_fixture.h"

#include "serve/windows_impl.h"

static struct windows_entry *opened(const char *label)
{
	struct windows_ask ask = { .label = label, .limit_ns = 3600 * NS_PER_S };
	struct windows_entry *e = NULL;
	bool fresh;

	assert_int_equal(windows_open(t.api.windows, &t.api.view, &ask,
				      clock_mono_ns(&sim.clock), &e, &fresh),
			 0);
	assert_true(fresh);
	return e;
}

static void show(struct windows_entry *e)
{
	struct json j;

	if (t.reply.body.p)
		buf_done(&t.reply.body);
	buf_init(&t.reply.body, 2 << 20);
	json_init(&j, &t.reply.body, false);
	windows_json(&j, e, WINDOWS_WHOLE);
	json_end(&j);
}

API_TEST(a_meter_that_stops_ends_its_windows_with_the_known_result)
{
	struct windows_entry *e;

	begin(TWO_GPUS);
	e = opened("cut");
	run_for(12);
	windows_meter_gone(t.api.windows, &t.api.view);
	gw_meter_stop(t.api.view.meter);
	t.api.view.meter = NULL;
	show(e);
	at("state", "\"ended\"");
	at("ended_by", "\"meter\"");
	says("truncated");
	assert_true(number("energy_joules.best") > 0);
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	assert_int_equal(windows_open_count(t.api.windows), 0);
}

API_TEST(a_meter_that_disappeared_leaves_no_result)
{
	struct windows_entry *e;

	begin(TWO_GPUS);
	e = opened("lost");
	assert_int_equal(
		windows_mark(t.api.windows, &t.api.view, e, "a", clock_mono_ns(&sim.clock)),
		-GW_E_ARG); /* no time has passed since the window began */
	run_for(1);
	assert_int_equal(
		windows_mark(t.api.windows, &t.api.view, e, "a", clock_mono_ns(&sim.clock)), 0);
	gw_meter_stop(t.api.view.meter); /* frees its windows */
	t.api.view.meter = NULL;
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	show(e);
	at("state", "\"ended\"");
	at("energy_joules", "null");
	at("validity", "\"no-result\"");
	at("parts.1.label", "\"a\"");
}

API_TEST(a_sample_that_never_comes_is_not_waited_for)
{
	struct windows_entry *e;
	uint64_t now;

	begin(TWO_GPUS);
	e = opened("hung");
	run_for(2);
	now = clock_mono_ns(&sim.clock);
	assert_false(windows_stop(t.api.windows, &t.api.view, e, now));
	sim_step(2900 * NS_PER_MS); /* the GPU is not read */
	now = clock_mono_ns(&sim.clock);
	assert_false(windows_stop(t.api.windows, &t.api.view, e, now));
	sim_step(200 * NS_PER_MS);
	now = clock_mono_ns(&sim.clock);
	assert_true(windows_stop(t.api.windows, &t.api.view, e, now));
	show(e);
	says("truncated");
	assert_true(fabs(number("seconds") - 2) < 0.01);
}

API_TEST(the_oldest_ended_windows_are_forgotten)
{
	char first[32];

	begin(TWO_GPUS);
	for (unsigned i = 0; i < WINDOWS_ENDED_MAX + 2; i++) {
		struct windows_entry *e = opened("n");

		if (i == 0)
			snprintf(first, sizeof(first), "%s", windows_id(e));
		windows_meter_gone(t.api.windows, &t.api.view);
	}
	assert_int_equal(t.kept, WINDOWS_ENDED_MAX + 2);
	assert_int_equal(t.forgotten, 2);
	assert_null(windows_find(t.api.windows, first));
}

API_TEST(kept_windows_are_there_after_a_restart)
{
	struct windows_entry *e;

	begin(TWO_GPUS);
	snprintf(t.kept_id, sizeof(t.kept_id), "w1");
	snprintf(t.kept_json, sizeof(t.kept_json), "{\"id\":\"w1\"}");
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	e = windows_find(t.api.windows, "w1");
	assert_non_null(e);
	show(e);
	at("id", "\"w1\"");
	get("/api/v1/windows", 200);
	at("open", "0");
	at("windows.0.id", "\"w1\"");
}

API_TEST(a_tag_with_the_name_of_a_key_does_not_cut_the_document)
{
	static const char body[] =
		"{\"tags\":{\"x\":\"1\",\"parts_left_out\":\"no\",\"y\":\"\\\"}]\"}}";
	char *tag;

	begin(TWO_GPUS);
	memset(&pushed, 0, sizeof(pushed));
	windows_stream(t.api.windows, (struct stream *)&t);
	post("/api/v1/windows", body, 201);
	windows_meter_gone(t.api.windows, &t.api.view);
	assert_int_equal(pushed.count, 2);
	tag = json_at(pushed.json, "tags.parts_left_out");
	assert_non_null(tag);
	free(tag);
	for (unsigned i = 0; i < 2; i++) {
		get("/api/v1/windows", 200);
		at("windows.0.tags.parts_left_out", "\"no\"");
		at("windows.0.parts_left_out", "false");
		windows_free(t.api.windows);
		assert_int_equal(windows_new(&t.api.windows), 0);
		windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	}
}

API_TEST(a_damaged_document_is_dropped_when_it_is_loaded)
{
	static const char *const damaged[] = { "{\"id\":\"w1\"", "[1]", "",
					       "{\"id\":\"\xff\"}" };

	for (size_t i = 0; i < COUNT_OF(damaged); i++) {
		begin(TWO_GPUS);
		snprintf(t.kept_id, sizeof(t.kept_id), "w1");
		snprintf(t.kept_json, sizeof(t.kept_json), "%s", damaged[i]);
		windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
		assert_null(windows_find(t.api.windows, "w1"));
		assert_int_equal(t.forgotten, 1);
		assert_int_equal(t.logged, 1);
		assert_in(t.logged_text, "window w1 is damaged");
		get("/api/v1/windows", 200);
		at("windows", "[]");
		end(NULL);
	}
	begin(TWO_GPUS);
}

/* Replaces the windows by those that a new process loads from the store. */
static void crash_and_restart(void)
{
	windows_free(t.api.windows);
	assert_int_equal(windows_new(&t.api.windows), 0);
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
}

static void post_with_key(const char *key, const char *body, int status)
{
	fake_add(&fake.head, "Idempotency-Key", key);
	post("/api/v1/windows", body, status);
}

API_TEST(a_key_gives_the_same_window_after_a_crash)
{
	char id[64];

	begin(TWO_GPUS);
	post_with_key("k1", "{\"label\":\"a\"}", 201);
	snprintf(id, sizeof(id), "%s", t.begun_id);
	assert_string_equal(stored_key.id, id);
	crash_and_restart();
	post_with_key("k1", "{\"label\":\"a\"}", 200);
	assert_in(fake_find(&fake.out, "Location"), id);
	at("ended_by", "\"crash\"");
	post_with_key("k1", "{\"label\":\"b\"}", 422);
	windows_forget(t.api.windows, &t.api.view, windows_find(t.api.windows, id));
	assert_string_equal(stored_key.id, "");
	post_with_key("k1", "{\"label\":\"a\"}", 201);
}

API_TEST(the_key_of_a_window_that_is_not_stored_is_deleted)
{
	begin(TWO_GPUS);
	snprintf(stored_key.id, sizeof(stored_key.id), "w1");
	snprintf(stored_key.json, sizeof(stored_key.json), "{}");
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	assert_string_equal(stored_key.id, "");
}

API_TEST(parts_of_all_windows_are_bounded)
{
	struct windows_entry *e;
	unsigned marks = 0;
	int err = 0;

	begin("[[gpu]]\nprofile = \"h200\"\n");
	e = opened("many");
	while (!err && marks < 2 * WINDOWS_MARKS_MAX) {
		sim_step(NS_PER_MS);
		err = windows_mark(t.api.windows, &t.api.view, e, "m",
				   clock_mono_ns(&sim.clock));
		marks += !err;
	}
	assert_int_equal(err, -GW_E_SIZE);
	assert_int_equal(marks, WINDOWS_MARKS_MAX);
}

/* Makes a window with the maximum number of marks, and ends it. */
static struct windows_entry *cut_and_ended(const char *world)
{
	struct windows_entry *e;

	begin(world);
	memset(&pushed, 0, sizeof(pushed));
	windows_stream(t.api.windows, (struct stream *)&t);
	e = opened("cut");
	for (unsigned i = 0; i < WINDOWS_MARKS_MAX; i++) {
		char label[64];

		memset(label, '"', sizeof(label)); /* the longest label, all escaped */
		label[63] = '\0';
		sim_step(NS_PER_MS);
		assert_int_equal(windows_mark(t.api.windows, &t.api.view, e,
					      i % 2 ? label : "m", clock_mono_ns(&sim.clock)),
				 0);
	}
	run_for(2);
	windows_meter_gone(t.api.windows, &t.api.view);
	return e;
}

API_TEST(eight_gpus_with_all_marks_are_kept_whole)
{
	show(cut_and_ended("[[gpu]]\nprofile = \"h200\"\ncount = 8\n"));
	at("parts_left_out", "false");
	at("marks", "256");
	at("parts.256.unfinished", "false");
	at("parts.256.devices.7.index", "7");
	assert_int_equal(t.kept, 1);
	assert_int_equal(t.kept_size, t.reply.body.len - 1); /* without the newline */
	/* followers get the window without its parts */
	assert_true(strlen(pushed.json) < 40000);
	assert_in(pushed.json, "\"parts_left_out\":true,\"parts\":[]}");
}

API_TEST(sixty_four_gpus_with_all_marks_keep_their_result)
{
	show(cut_and_ended("[[gpu]]\nprofile = \"h200\"\ncount = 64\n"));
	at("state", "\"ended\"");
	at("parts_left_out", "true");
	at("parts", "[]");
	at("marks", "256");
	assert_true(number("energy_joules.best") > 0);
	assert_true(number("devices.63.energy_joules.best") > 0);
	assert_int_equal(t.kept, 1);
	assert_string_equal(t.logged_severity, "info");
}

TEST(without_devices_nothing_is_valid)
{
	struct windows_entry e = { .state = WINDOWS_IS_OPEN };
	struct windows_sum sum;

	windows_sum_up(&e, NULL, &sum);
	assert_int_equal(sum.validity, GW_NO_RESULT);
	assert_true(isnan(sum.joules.best));
}

/* There is no document, as if memory for it was not available. */
API_TEST(a_window_without_a_document_still_has_its_sum)
{
	struct windows_entry *e;
	double joules;

	begin(TWO_GPUS);
	e = opened("bare");
	run_for(5);
	show(e);
	joules = number("energy_joules.best");
	e->sum = (struct windows_sum){ .joules = { 1, 2, 3 }, .validity = GW_SUSPECT };
	e->state = WINDOWS_HAS_ENDED;
	gw_window_free(e->window);
	e->window = NULL;
	show(e);
	at("validity", "\"suspect\"");
	at("energy_joules.best", "2");
	at("devices.1.index", "1");
	assert_true(joules > 0);
}

API_TEST(a_window_that_cannot_be_kept_is_reported)
{
	begin(TWO_GPUS);
	opened("lost");
	t.keep_answer = -GW_E_SIZE;
	windows_meter_gone(t.api.windows, &t.api.view);
	assert_string_equal(t.logged_severity, "warning");
	assert_in(t.logged_text, "could not be stored");
}

static const char *problem;

static const char *store_problem(void *engine)
{
	return problem;
}

/* The store accepts the documents into its queue, although the disk is full. */
API_TEST(a_window_that_a_full_disk_does_not_store_is_reported)
{
	struct view_ops mine = ops;
	char stop[64];

	begin(TWO_GPUS);
	mine.store_problem = store_problem;
	t.api.view.ops = &mine;
	problem = NULL;
	post("/api/v1/windows", "{}", 201);
	assert_null(fake_find(&fake.out, "X-Gpuward-Stored"));
	assert_string_equal(t.logged_severity, "info");
	problem = "the disk is full";
	post("/api/v1/windows", "{}", 201);
	assert_string_equal(fake_find(&fake.out, "X-Gpuward-Stored"), "false");
	assert_string_equal(t.logged_severity, "warning");
	assert_in(t.logged_text, "began; it could not be stored and is lost if the service");
	assert_int_equal(t.logged, 2);
	run_for(2);
	assert_int_equal(t.logged, 2); /* once per change */
	snprintf(stop, sizeof(stop), "/api/v1/windows/%s/stop", t.begun_id);
	post(stop, "", 200);
	assert_string_equal(fake_find(&fake.out, "X-Gpuward-Stored"), "false");
	assert_in(t.logged_text, "J in ");
	assert_in(t.logged_text, "; it could not be stored");
	assert_int_equal(t.logged, 3);
	*strrchr(stop, '/') = '\0';
	request(HTTP_DELETE, stop, "", 204);
	assert_string_equal(fake_find(&fake.out, "X-Gpuward-Stored"), "false");
	problem = NULL;
}

API_TEST(a_window_whose_writing_fails_later_is_reported)
{
	struct view_ops mine = ops;

	begin(TWO_GPUS);
	mine.store_problem = store_problem;
	t.api.view.ops = &mine;
	problem = NULL;
	unstored = 3;
	opened("late");
	run_for(1);
	assert_int_equal(t.logged, 1);
	problem = "the disk is full";
	run_for(1);
	assert_int_equal(t.logged, 2);
	assert_in(t.logged_text, "could not be stored and is lost if the service restarts");
	run_for(1);
	assert_int_equal(t.logged, 2);
	problem = NULL;
	unstored = 0;
}

API_TEST(a_window_that_was_open_at_a_crash_is_reported_at_the_next_start)
{
	struct windows_entry *e;
	unsigned logged;

	begin(TWO_GPUS);
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	e = opened("cut short");
	assert_int_equal(t.begun, 1);
	windows_free(t.api.windows); /* only the kept document is left */
	assert_int_equal(windows_new(&t.api.windows), 0);
	logged = t.logged;
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	assert_int_equal(t.logged, logged + 1);
	assert_string_equal(t.logged_severity, "warning");
	assert_in(t.logged_text, t.begun_id);
	assert_int_equal(t.kept, 1);
	assert_int_equal(t.done, 1);
	e = windows_find(t.api.windows, t.begun_id);
	assert_non_null(e);
	show(e);
	at("state", "\"ended\"");
	at("ended_by", "\"crash\"");
	at("label", "\"cut short\"");
	at("validity", "\"no-result\"");
	at("energy_joules", "null");
	at("seconds", "null");
	at("end_time", "null");
	at("simulated", "true");
	at("devices.1.index", "1");
	says("\"begin_time\":\"");
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	assert_int_equal(t.logged, logged + 1);
}

API_TEST(a_window_that_ended_or_was_forgotten_is_not_reported)
{
	begin(TWO_GPUS);
	opened("ends");
	windows_meter_gone(t.api.windows, &t.api.view);
	assert_int_equal(t.done, 1);
	windows_forget(t.api.windows, &t.api.view, opened("goes"));
	assert_int_equal(t.done, 2);
	assert_int_equal(t.begun, 2);
	assert_int_equal(t.forgotten, 0);
}

static int three_kept(void *engine, const char *kind, unsigned max,
		      void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	char id[] = "w1", json[32];

	if (strcmp(kind, "window") != 0)
		return 0;
	for (; id[1] <= '3'; id[1]++) {
		snprintf(json, sizeof(json), "{\"id\":\"%s\"}", id);
		each(arg, id, json);
	}
	return 3;
}

API_TEST(kept_windows_are_listed_latest_first)
{
	struct view_ops mine = ops;

	begin(TWO_GPUS);
	mine.each_document = three_kept;
	t.api.view.ops = &mine;
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
	get("/api/v1/windows?limit=2", 200);
	at("windows.0.id", "\"w3\"");
	at("windows.1.id", "\"w2\"");
	at("more", "true");
	opened("new");
	windows_meter_gone(t.api.windows, &t.api.view);
	get("/api/v1/windows?limit=2", 200);
	at("windows.0.label", "\"new\"");
	at("windows.1.id", "\"w3\"");
}

API_TEST(the_list_has_all_open_windows)
{
	begin(TWO_GPUS);
	for (unsigned i = 0; i < 3; i++) {
		opened("ended");
		windows_meter_gone(t.api.windows, &t.api.view);
	}
	for (unsigned i = 0; i < WINDOWS_OPEN_MAX; i++)
		opened("open");
	get("/api/v1/windows", 200);
	at("windows.63.state", "\"open\"");
	at("windows.66.state", "\"ended\"");
	at("windows.66.simulated", "true");
	at("more", "false");
	get("/api/v1/windows?limit=1", 200);
	at("windows.63.state", "\"open\"");
	at("windows.64.state", "\"ended\"");
	assert_null(json_at(t.reply.body.p, "windows.65"));
	at("more", "true");
	get("/api/v1/windows?state=ended", 200);
	at("windows.0.state", "\"ended\"");
	at("open", "64");
	assert_null(json_at(t.reply.body.p, "windows.3"));
	get("/api/v1/windows?state=open", 200);
	at("windows.63.state", "\"open\"");
	at("more", "false");
	assert_null(json_at(t.reply.body.p, "windows.64"));
	get("/api/v1/windows?state=closed", 400);
	says("state=\\\"closed\\\"");
}

TEST(only_failures_count_as_errors)
{
	assert_true(view_is_error(GW_ABSENT_ERROR));
	assert_true(view_is_error(GW_ABSENT_LOST));
	assert_true(view_is_error(GW_ABSENT_STALLED));
	assert_false(view_is_error(GW_HAVE));
	assert_false(view_is_error(GW_ABSENT_NOT_SUPPORTED));
	assert_false(view_is_error(GW_ABSENT_NO_PERMISSION));
	assert_false(view_is_error(GW_ABSENT_LET_GO));
}

TEST(columns_of_history_are_quantities)
{
	assert_int_equal(view_history_quantity[VIEW_H_POWER], GW_Q_POWER);
	assert_int_equal(view_history_quantity[VIEW_H_FAN_SPEED], GW_Q_FAN_SPEED);
}

TEST_MAIN(sim_setup, NULL)
