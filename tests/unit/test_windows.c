/* Windows when the meter goes away, when there are many, and after a restart; and what a view says of
 * itself. */
#include "api_fixture.h"

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
	buf_init(&t.reply.body, 1 << 20);
	json_init(&j, &t.reply.body, false);
	windows_json(&j, e, WINDOWS_WHOLE, clock_mono_ns(&sim.clock));
	json_end(&j);
}

static void a_meter_that_leaves_ends_its_windows_with_what_is_known(void **state)
{
	struct windows_entry *e;

	(void)state;
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

static void a_meter_that_left_without_a_word_leaves_no_result(void **state)
{
	struct windows_entry *e;

	(void)state;
	begin(TWO_GPUS);
	e = opened("lost");
	assert_int_equal(
		windows_mark(t.api.windows, &t.api.view, e, "a", clock_mono_ns(&sim.clock)),
		-GW_E_ARG); /* no time has passed since it began */
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

static void a_sample_that_never_comes_is_not_waited_for(void **state)
{
	struct windows_entry *e;
	uint64_t now;

	(void)state;
	begin(TWO_GPUS);
	e = opened("hung");
	run_for(2);
	now = clock_mono_ns(&sim.clock);
	assert_false(windows_stop(t.api.windows, &t.api.view, e, now));
	sim_step(2900 * NS_PER_MS); /* nobody reads the GPU */
	now = clock_mono_ns(&sim.clock);
	assert_false(windows_stop(t.api.windows, &t.api.view, e, now));
	sim_step(200 * NS_PER_MS);
	now = clock_mono_ns(&sim.clock);
	assert_true(windows_stop(t.api.windows, &t.api.view, e, now));
	show(e);
	says("truncated");
	assert_true(fabs(number("seconds") - 2) < 0.01);
}

static void the_oldest_that_ended_are_forgotten(void **state)
{
	char first[32];

	(void)state;
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

static void what_was_kept_is_there_after_a_restart(void **state)
{
	struct windows_entry *e;

	(void)state;
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

static void parts_of_all_windows_are_bounded(void **state)
{
	struct windows_entry *e;
	unsigned marks = 0;
	int err = 0;

	(void)state;
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

static void only_failures_count_as_errors(void **state)
{
	(void)state;
	assert_true(view_is_error(GW_ABSENT_ERROR));
	assert_true(view_is_error(GW_ABSENT_LOST));
	assert_true(view_is_error(GW_ABSENT_STALLED));
	assert_false(view_is_error(GW_HAVE));
	assert_false(view_is_error(GW_ABSENT_NOT_SUPPORTED));
	assert_false(view_is_error(GW_ABSENT_NO_PERMISSION));
	assert_false(view_is_error(GW_ABSENT_LET_GO));
}

static void columns_of_history_are_quantities(void **state)
{
	(void)state;
	assert_int_equal(view_history_quantity[VIEW_H_POWER], GW_Q_POWER);
	assert_int_equal(view_history_quantity[VIEW_H_FAN_SPEED], GW_Q_FAN_SPEED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_test(a_meter_that_leaves_ends_its_windows_with_what_is_known),
		api_test(a_meter_that_left_without_a_word_leaves_no_result),
		api_test(a_sample_that_never_comes_is_not_waited_for),
		api_test(the_oldest_that_ended_are_forgotten),
		api_test(what_was_kept_is_there_after_a_restart),
		api_test(parts_of_all_windows_are_bounded),
		cmocka_unit_test(only_failures_count_as_errors),
		cmocka_unit_test(columns_of_history_are_quantities),
	};

	return cmocka_run_group_tests(tests, sim_setup, NULL);
}
