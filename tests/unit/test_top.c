#include "cli/cli.h"
#include "cli/output.h"
#include "cli/top_gpu_view.h"
#include "cli/top_screen.h"

#include "base/clock.h"
#include "base/json_doc.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>

#include "test.h"

/* Replaces the real function: no test here prints an error. */
void cli_error(const char *fmt, ...)
{
	(void)fmt;
}

static struct top_model model;
static struct top_ui ui;
static struct canvas canvas;

static int set_up(void **state)
{
	top_model_init(&model);
	ui = (struct top_ui){ .order = { .column = TOP_SM, .gpu = -1 }, .now_ns = NS_PER_S };
	assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
	canvas.utf8 = true;
	return 0;
}

static int tear_down(void **state)
{
	top_model_done(&model);
	canvas_done(&canvas);
	free(ui.row);
	return 0;
}

#define TEST_SETUP    set_up
#define TEST_TEARDOWN tear_down

/* Makes n GPUs at 300 of 400 W with one process each. */
static void fill(unsigned n)
{
	assert_int_equal(top_model_set_gpus(&model, n), 0);
	for (unsigned i = 0; i < n; i++) {
		struct top_gpu *g = &model.gpu[i];
		struct top_process *p = top_model_add_process(&model);
		char uuid[24];

		snprintf(uuid, sizeof(uuid), "GPU-%u", i);
		top_gpu_begin(g, uuid);
		g->index = i;
		snprintf(g->name, sizeof(g->name), "Test card");
		memset(g->absence, GW_HAVE, sizeof(g->absence));
		g->value[TOP_POWER] = 300;
		g->value[TOP_POWER_LIMIT] = g->value[TOP_POWER_LIMIT_MAX] = 400;
		g->value[TOP_UTILIZATION] = 0.5;
		g->value[TOP_MEMORY_USED] = 10e9;
		g->value[TOP_MEMORY_TOTAL] = 80e9;
		g->value[TOP_TEMPERATURE] = 60;
		g->value[TOP_MARGIN] = 25;
		g->energy_j = 12345;
		g->energy_s = 61;
		top_gpu_remember(g);
		p->pid = 100 + i;
		p->gpu = i;
		p->sm_ratio = 0.1 * (i % 10);
		p->memory_bytes = 1e9 * (n - i);
		snprintf(p->name, sizeof(p->name), "job%u", i);
	}
	model.read_ns = NS_PER_S;
	model.interval_ns = NS_PER_S / 2;
}

/* Appends the cells to out, as UTF-8 text without styles. Lines do not end with blanks. */
static void canvas_print(const struct canvas *c, struct buf *out)
{
	for (unsigned row = 0; row < c->rows; row++) {
		unsigned end = c->columns;

		while (end > 0 && canvas_at(c, row, end - 1)->code == ' ')
			end--;
		for (unsigned i = 0; i < end; i++) {
			char bytes[4];

			if (canvas_at(c, row, i)->code)
				buf_add(out, bytes,
					utf8_encode(canvas_at(c, row, i)->code, bytes));
		}
		buf_addc(out, '\n');
	}
}

/* Draws and returns the screen as text; valid until the next call. */
static const char *drawn(unsigned rows, unsigned columns)
{
	static char text[400 * 1024];
	struct buf b;

	buf_init_fixed(&b, text, sizeof(text));
	assert_int_equal(top_ui_arrange(&ui, &model), 0);
	assert_int_equal(canvas_resize(&canvas, rows, columns), 0);
	top_screen_draw(&canvas, &model, &ui);
	canvas_print(&canvas, &b);
	assert_int_equal(b.err, 0);
	return text;
}

TEST(one_gpu_gets_large_graphs_and_all_of_its_figures)
{
	const char *text;

	fill(1);
	snprintf(model.gpu[0].held, sizeof(model.gpu[0].held), "power limit");
	text = drawn(24, 80);
	assert_in(text, "1 GPU");
	assert_in(text, "GPU 0  Test card");
	assert_in(text, "300/400 W");
	assert_in(text, "9.3/74.5 GiB");
	assert_in(text, "60/85 °C");
	assert_in(text, "12.3 kJ in 1m01s");
	assert_in(text, "clocks limited by power limit");
	assert_in(text, "job0");
}

TEST(without_a_margin_the_maximum_temperature_is_the_limit)
{
	fill(1);
	model.gpu[0].value[TOP_MARGIN] = NAN;
	model.gpu[0].value[TOP_TEMPERATURE_LIMIT] = 87;
	assert_in(drawn(24, 80), "60/87 °C");
}

TEST(long_names_of_models_show_where_they_differ)
{
	fill(30);
	snprintf(model.gpu[0].name, sizeof(model.gpu[0].name),
		 "NVIDIA RTX PRO 6000 Blackwell Workstation Edition");
	snprintf(model.gpu[1].name, sizeof(model.gpu[1].name),
		 "NVIDIA RTX PRO 6000 Blackwell Server Edition");
	assert_in(drawn(24, 160), "NVIDIA RTX");
	assert_in(drawn(24, 160), "ion Edition");
	assert_in(drawn(24, 160), "ver Edition");
}

TEST(the_time_that_the_graphs_cover_is_in_the_first_title_with_room)
{
	const char *text, *second;

	fill(2);
	snprintf(model.gpu[0].held, sizeof(model.gpu[0].held),
		 "power limit, and a longer reason");
	text = drawn(24, 80);
	second = strstr(text, "GPU 1");
	assert_non_null(second);
	assert_in(second, "graphs: last ");
	assert_true(strstr(text, "graphs: last ") > second);
}

TEST(a_terminal_with_100_columns_or_more_has_room_for_all_four_bars)
{
	fill(2);
	canvas.utf8 = false; /* bars consist of '#' and '.' */
	for (unsigned columns = 100; columns <= 200; columns++) {
		const char *at = strstr(drawn(24, columns), "util"), *end;
		unsigned bars = 0;

		assert_non_null(at);
		for (end = strchr(at, '\n'); at < end; at++)
			bars += (*at == '#' || *at == '.') && at[-1] == ' ';
		if (bars != 4)
			fail_msg("%u bars at %u columns", bars, columns);
	}
}

TEST(every_gpu_is_on_the_screen_or_can_be_scrolled_to)
{
	static const unsigned sizes[][2] = { { 10, 60 }, { 24, 80 }, { 60, 200 } };
	char wanted[32];

	fill(64);
	ui.focus = TOP_FOCUS_GPUS;
	for (unsigned s = 0; s < COUNT_OF(sizes); s++)
		for (ui.gpu = 0; ui.gpu < 64; ui.gpu++) {
			snprintf(wanted, sizeof(wanted), "\n%3u ", ui.gpu);
			assert_in(drawn(sizes[s][0], sizes[s][1]), wanted);
		}
}

TEST(no_size_and_no_number_of_gpus_writes_outside_of_the_canvas)
{
	for (unsigned n = 0; n <= 20; n += n < 4 ? 1 : 8) {
		top_model_done(&model);
		top_model_init(&model);
		fill(n);
		for (unsigned rows = 1; rows < 70; rows += 3)
			for (unsigned columns = 1; columns < 240; columns += 7)
				for (unsigned view = 0; view < 4; view++) {
					ui.zoom = view == 1;
					ui.prompt =
						view == 2 ? TOP_PROMPT_HELP : TOP_PROMPT_NONE;
					canvas.utf8 = view != 3;
					drawn(rows, columns);
				}
		ui.selected = ui.gpu = 0;
	}
}

TEST(a_small_terminal_gets_a_sentence_with_the_least_size)
{
	fill(1);
	assert_in(drawn(9, 80), "needs 60 columns and 10 rows; this terminal has 80 and 9");
	assert_null(strstr(drawn(10, 60), "needs"));
}

TEST(a_simulated_machine_is_marked_in_the_first_line)
{
	char first[200];

	fill(2);
	model.simulated = true;
	sscanf(drawn(10, 60), "%199[^\n]", first);
	assert_in(first, "SIMULATED");
}

TEST(figures_of_a_service_that_is_gone_are_shown_as_old)
{
	fill(1);
	snprintf(model.problem, sizeof(model.problem), "no service listens");
	ui.now_ns = 13 * NS_PER_S;
	assert_in(drawn(24, 80), "These figures are 12s old: no service listens; trying again");
	for (unsigned column = 0; column < 80; column++) /* column of the GPU's row */
		assert_int_equal(canvas_at(&canvas, 3, column)->style, CANVAS_DIM);
	model.problem[0] = '\0';
	model.read_ns = ui.now_ns;
	assert_null(strstr(drawn(24, 80), " old"));
}

TEST(a_reading_that_does_not_end_makes_figures_old_without_a_message)
{
	fill(1);
	ui.now_ns = model.read_ns + 2 * NS_PER_S;
	assert_true(top_model_old_s(&model, ui.now_ns) == 0);
	ui.now_ns = model.read_ns + 4 * NS_PER_S;
	assert_true(top_model_old_s(&model, ui.now_ns) == 4);
	model.interval_ns = 10 * NS_PER_S; /* a service that reads seldom */
	assert_true(top_model_old_s(&model, ui.now_ns) == 0);
}

TEST(an_unknown_figure_is_a_dash_and_the_zoom_says_why)
{
	const char *text;

	fill(1);
	model.gpu[0].value[TOP_UTILIZATION] = NAN;
	model.gpu[0].absence[TOP_UTILIZATION] = GW_ABSENT_NOT_SUPPORTED;
	text = drawn(24, 80);
	assert_in(text, "· -");
	ui.zoom = true;
	assert_in(drawn(40, 100), "utilisation: unknown, this device does not have it");
}

TEST(names_cannot_control_or_reorder_the_terminal)
{
	fill(1);
	snprintf(model.process[0].command, sizeof(model.process[0].command),
		 "a\033[31m\r\n\xff \u202eevil\u200b \u4f60");
	snprintf(model.gpu[0].name, sizeof(model.gpu[0].name), "x\033]0;y\a");
	drawn(24, 80);
	for (unsigned i = 0; i < 24 * 80; i++) {
		uint32_t code = canvas.cell[i].code;

		assert_true(code == 0 || (code >= 0x20 && code != 0x7F));
		assert_true(code < 0x80 || code >= 0xA0);
		assert_true(code != 0x202E && code != 0x200B);
	}
	assert_in(drawn(24, 80), "a?[31m??? ?evil? \u4f60");
	canvas.utf8 = false;
	assert_in(drawn(24, 80), "a?[31m??? ?evil? ?");
}

TEST(a_command_that_is_too_long_is_shown_without_the_folder_of_its_program)
{
	fill(1);
	snprintf(model.process[0].command, sizeof(model.process[0].command),
		 "/opt/environments/research/bin/python3 train.py --lr 1e-4");
	assert_in(drawn(24, 80), " python3 train.py");
	assert_in(drawn(60, 200), " /opt/environments/research/bin/python3 train.py --lr 1e-4");
	snprintf(model.process[0].command, sizeof(model.process[0].command),
		 "train /a/very/long/path/to/some/data/of/the/model/that/is/cut");
	assert_in(drawn(24, 80), " train /a/very/long");
}

TEST(each_character_takes_the_columns_that_the_terminal_uses)
{
	static const struct {
		const char *text;
		unsigned columns; /* columns of the text, without the Z that follows it */
		uint32_t first;
	} rows
		[] = {
			{ "a", 1, 'a' },
			{ "\u00e9", 1, 0xE9 },
			{ "\u26a1", 2, 0x26A1 },
			{ "\u231a", 2, 0x231A },
			{ "\U0001f004", 2, 0x1F004 },
			{ "\u4f60", 2, 0x4F60 },
			{ "e\u0301", 1, 'e' },
			{ "\u0e01\u0e31", 1, 0xE01 }, /* Thai with a vowel above */
			{ "\u0378", 1, '?' },         /* not assigned */
		};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char text[32], many[512] = "";

		assert_int_equal(canvas_resize(&canvas, 2, 21), 0);
		snprintf(text, sizeof(text), "%sZ", rows[i].text);
		assert_int_equal(canvas_text(&canvas, 0, 0, 21, CANVAS_PLAIN, text),
				 rows[i].columns + 1);
		assert_int_equal(canvas_at(&canvas, 0, 0)->code, rows[i].first);
		assert_int_equal(canvas_at(&canvas, 0, rows[i].columns)->code, 'Z');
		for (unsigned k = 0; k < 30; k++)
			strcat(many, rows[i].text);
		assert_in_range(canvas_text(&canvas, 0, 0, 21, CANVAS_PLAIN, many), 20, 21);
		assert_int_equal(canvas_at(&canvas, 1, 0)->code, ' ');
	}
}

TEST(without_utf8_every_character_is_ascii)
{
	fill(8);
	canvas.utf8 = false;
	for (unsigned i = 0; i < 3; i++) {
		ui.zoom = i == 2;
		drawn(i ? 60 : 24, i ? 200 : 80);
		for (unsigned k = 0; k < canvas.rows * canvas.columns; k++)
			assert_in_range(canvas.cell[k].code, ' ', '~');
	}
}

TEST(processes_are_sorted_and_unknown_values_stay_last)
{
	static const struct {
		enum top_column column;
		bool reverse;
		unsigned row[3];
	} rows[] = {
		{ TOP_SM, false, { 2, 0, 1 } },     { TOP_SM, true, { 0, 2, 1 } },
		{ TOP_MEMORY, false, { 0, 1, 2 } }, { TOP_MEMORY, true, { 2, 1, 0 } },
		{ TOP_PID, false, { 0, 1, 2 } },    { TOP_COMMAND, true, { 2, 1, 0 } },
	};

	fill(3);
	model.process[1].sm_ratio = NAN;
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		unsigned row[3];

		ui.order.column = rows[i].column;
		ui.order.reverse = rows[i].reverse;
		assert_int_equal(top_order_apply(&ui.order, &model, row), 3);
		assert_memory_equal(row, rows[i].row, sizeof(row));
	}
}

TEST(the_filter_finds_pid_user_and_command_and_the_cursor_stays_on_its_process)
{
	fill(5);
	ui.order.column = TOP_PID;
	drawn(24, 80);
	top_ui_select(&ui, &model, 3);
	snprintf(ui.order.filter, sizeof(ui.order.filter), "JOB3");
	assert_in(drawn(24, 80), "job3");
	assert_int_equal(ui.rows, 1);
	assert_true(top_ui_selected(&ui, &model)->pid == 103);
	snprintf(ui.order.filter, sizeof(ui.order.filter), "103");
	drawn(24, 80);
	assert_int_equal(ui.rows, 1);
	ui.order.filter[0] = '\0';
	drawn(24, 80);
	assert_true(top_ui_selected(&ui, &model)->pid == 103);
	snprintf(ui.order.filter, sizeof(ui.order.filter), "nothing has this");
	assert_in(drawn(24, 80), "No process matches the filter.");
	assert_null(top_ui_selected(&ui, &model));
}

/* Puts processes with these pids on GPU 0, in this order. */
static void replace_processes(const int64_t *pid, unsigned n)
{
	model.processes = 0;
	for (unsigned i = 0; i < n; i++) {
		struct top_process *p = top_model_add_process(&model);

		p->pid = pid[i];
		p->start_ticks = 7;
	}
	drawn(24, 80);
}

TEST(the_cursor_stays_on_its_process_when_others_end_or_start)
{
	static const int64_t all[] = { 100, 101, 102, 103 }, fewer[] = { 101, 102, 103 },
			     more[] = { 99, 103, 102, 101, 98 }, without[] = { 99, 101, 98 };

	fill(1);
	ui.order.column = TOP_PID;
	replace_processes(all, 4);
	top_ui_select(&ui, &model, 2);
	replace_processes(fewer, 3);
	assert_true(top_ui_selected(&ui, &model)->pid == 102);
	replace_processes(more, 5);
	assert_true(top_ui_selected(&ui, &model)->pid == 102);
	replace_processes(without, 3); /* the process ended: the cursor stays in its row */
	assert_true(top_ui_selected(&ui, &model)->pid == 101);
	replace_processes(more, 5);
	assert_true(top_ui_selected(&ui, &model)->pid == 101);
	model.process[3].start_ticks = 8; /* pid 101 is another process now, and moves down */
	model.process[0].pid = model.process[4].pid = 97;
	drawn(24, 80);
	assert_int_equal(ui.selected, 2);
	top_ui_select(&ui, &model, 0);
	/* in the first row the cursor does not follow its process */
	replace_processes(without, 3);
	assert_true(top_ui_selected(&ui, &model)->pid == 98);
}

TEST(the_question_before_a_process_is_ended_keeps_its_name_and_pid)
{
	fill(3);
	drawn(24, 80);
	ui.target = *top_ui_selected(&ui, &model); /* the largest SM %: job2 */
	ui.prompt = TOP_PROMPT_KILL;
	assert_in(drawn(24, 80), "End job2 (pid 102) with SIGTERM?");
	model.process[0].sm_ratio = 1; /* another process takes the first row */
	assert_in(drawn(24, 80), "End job2 (pid 102) with SIGTERM?");
	assert_true(top_ui_selected(&ui, &model)->pid == 100);
}

TEST(a_graph_shows_gaps_a_known_zero_and_the_limit)
{
	struct top_gpu *g;

	fill(1);
	g = &model.gpu[0];
	g->value[TOP_POWER] = NAN;
	top_gpu_remember(g);
	g->value[TOP_POWER] = 0;
	top_gpu_remember(g);
	assert_true(isnan(top_gpu_sample(g, TOP_GRAPH_POWER, 1)));
	assert_true(top_gpu_sample(g, TOP_GRAPH_POWER, 2) == 300);
	assert_true(isnan(top_gpu_sample(g, TOP_GRAPH_POWER, TOP_SAMPLES)));
	drawn(24, 80);
	/* The last column of the power graph has no left dot, because that value is unknown;
	 * its right dot shows 0. */
	for (unsigned row = 0; row < 24; row++)
		if (canvas_at(&canvas, row, 79)->code == 0x2880)
			return;
	fail_msg("no cell has one dot for a known zero next to a gap");
}

TEST(missed_readings_leave_a_gap)
{
	fill(1);
	top_model_add_gap(&model, model.read_ns + model.interval_ns);
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 0) == 300);
	top_model_add_gap(&model, model.read_ns + 5 * model.interval_ns);
	for (unsigned i = 0; i < 4; i++)
		assert_true(isnan(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, i)));
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 4) == 300);
}

TEST(an_energy_that_is_older_than_the_other_figures_says_so)
{
	fill(1);
	assert_null(strstr(drawn(24, 100), "old"));
	model.gpu[0].energy_age_s = 7;
	assert_in(drawn(24, 100), "12.3 kJ in 1m01s  no clock limit  energy 7s old");
	ui.zoom = true;
	assert_in(drawn(40, 100), "energy                  12.3 kJ in 1m01s, 7s ago");
	assert_in(drawn(24, 80), " 12.3 kJ in 1m01s, 7s ago ");
	model.gpu[0].energy_j = 14100;
	model.gpu[0].energy_s = 22;
	model.gpu[0].energy_age_s = 16;
	/* Two blanks separate the value from the label to the right of it. */
	assert_in(drawn(24, 80), "energy         14.1 kJ in 22s, 16s ago  fan  ");
}

static struct json_doc *parsed(const char *text)
{
	struct json_doc *doc = NULL;
	char message[200];

	if (json_doc_new(text, strlen(text), &doc, message, sizeof(message)) != 0)
		fail_msg("%s", message);
	return doc;
}

/* Reads the states of the workers. Process 7 of the GPU is the worker "ollama". */
static void read_guard(const char *uuid, const char *workers)
{
	struct json_doc *doc = parsed(workers);
	char gpu[200];

	assert_int_equal(top_read_guard(&model, doc), 0);
	json_doc_free(doc);
	snprintf(gpu, sizeof(gpu),
		 "{\"uuid\":\"%s\",\"processes\":[{\"pid\":7,\"class\":\"worker\","
		 "\"worker\":\"ollama\"}]}",
		 uuid);
	doc = parsed(gpu);
	top_read_guard_gpu(&model, doc);
	json_doc_free(doc);
}

TEST(documents_of_the_service_become_a_model)
{
	struct json_doc *doc = parsed(
		"{\"devices\":[{\"index\":1,\"uuid\":\"GPU-a\",\"name\":\"Card\",\"state\":"
		"\"ok\","
		"\"power_watts\":300,\"fan_speed_ratio\":null,\"performance_state\":\"P0\","
		"\"clock_event_reasons\":[\"sw_power_cap\",\"sw_thermal\"],"
		"\"energy_joules_total\":5,\"energy_measured_seconds_total\":2,"
		"\"seen_age_seconds\":7,\"absent\":{\"fan_speed_ratio\":\"not_supported\"}}],"
		"\"source\":{\"simulated\":true,\"driver_version\":\"1.2\"}}");
	const struct top_gpu *g;

	assert_int_equal(top_read_devices(&model, doc), 0);
	json_doc_free(doc);
	g = &model.gpu[0];
	assert_true(model.simulated && g->index == 1 && g->value[TOP_POWER] == 300);
	assert_true(isnan(g->value[TOP_FAN]) && isnan(g->value[TOP_UTILIZATION]));
	assert_true(g->absence[TOP_FAN] == GW_ABSENT_NOT_SUPPORTED);
	assert_string_equal(g->held, "power limit, heat (software)");
	assert_string_equal(g->pstate, "P0");
	assert_true(g->energy_j == 5 && g->energy_s == 2);
	assert_in(drawn(24, 80), "read 7 s ago");

	doc = parsed("{\"processes\":[{\"device_uuid\":\"GPU-a\",\"pid\":7,\"start_ticks\":9,"
		     "\"uid\":1000,\"types\":[\"compute\",\"graphics\"],\"name\":\"x\","
		     "\"memory_bytes\":1073741824,\"utilization_sm_ratio\":0.25,"
		     "\"energy_joules\":2000,\"cpu_used_cores\":1.5,\"run_seconds\":3700,"
		     "\"unit\":\"a.service\"},{\"device_uuid\":\"GPU-other\",\"pid\":8}]}");
	assert_int_equal(top_read_processes(&model, doc), 0);
	json_doc_free(doc);
	assert_int_equal(model.processes, 1);
	read_guard("GPU-a", "{\"mode\":\"enforce\",\"workers\":[{\"name\":\"ollama\",\"state\":"
			    "\"evicted\",\"mask\":[\"contention\"],\"since_seconds\":12}]}");
	assert_in(drawn(24, 150), "guard enforce: ollama evicted 12s (contention)");
	assert_in(drawn(24, 150),
		  "C+G     25   1.0 GiB  2000 J   150  1h01m a.service          "
		  "ollama evicted   x");
}

/* Reads the states of a worker as a service in a dry run reports it. */
static void read_dry(const char *state, const char *hypothetical)
{
	char text[200];

	snprintf(text, sizeof(text),
		 "{\"mode\":\"dry-run\",\"workers\":[{\"name\":\"ollama\",\"state\":\"%s\","
		 "\"dry_run\":true,\"hypothetical\":%s,\"since_seconds\":12}]}",
		 state, hypothetical);
	read_guard("GPU-0", text);
}

TEST(only_a_hypothetical_state_is_marked_as_a_dry_run)
{
	fill(1);
	read_dry("evicted", "true");
	assert_in(drawn(24, 150), "ollama evicted (dry run) 12s");
	read_dry("evicted", "false");
	assert_in(drawn(24, 150), "guard dry-run: ollama evicted 12s");
	read_dry("absent", "false");
	assert_in(drawn(24, 150), "guard dry-run: ollama absent 12s");
}

TEST(a_document_with_wrong_types_is_a_model_with_unknown_values)
{
	static const char *const texts[] = {
		"{}",
		"[]",
		"{\"devices\":[null,3,{\"uuid\":4,\"index\":\"x\",\"absent\":[],\"power_"
		"watts\":[],"
		"\"clock_event_reasons\":[1,null]}],\"processes\":[{\"pid\":\"x\"}, 4],"
		"\"workers\":[3,{}],\"series\":[{\"time\":3},{\"time\":[1,\"x\"],\"mean\":[]}]"
		"}",
	};

	for (unsigned i = 0; i < COUNT_OF(texts); i++) {
		struct json_doc *doc = parsed(texts[i]);

		assert_int_equal(top_read_devices(&model, doc), 0);
		assert_int_equal(top_read_processes(&model, doc), 0);
		assert_int_equal(top_read_guard(&model, doc), 0);
		top_read_guard_gpu(&model, doc);
		top_read_host(&model, doc);
		top_read_series(&model, doc);
		model.read_ns = NS_PER_S;
		drawn(24, 80);
		json_doc_free(doc);
	}
	assert_int_equal(model.gpus, 3);
	assert_true(isnan(model.gpu[2].value[TOP_POWER]));
}

TEST(the_history_of_the_service_ends_at_its_newest_reading)
{
	struct json_doc *doc = parsed("{\"series\":[{\"quantity\":\"power_watts\",\"gpu\":"
				      "\"GPU-0\",\"step_seconds\":1,"
				      "\"time\":[70,71,100,101,111],\"mean\":[7,8,1,2,5]}]}");

	fill(1);
	top_read_series(&model, doc);
	json_doc_free(doc);
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 0) == 5);
	/* The service rested for 10 s: the value before stays. A longer pause is a gap. */
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 1) == 2);
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 10) == 2);
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 11) == 1);
	assert_true(isnan(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 12)));
	assert_true(top_gpu_sample(&model.gpu[0], TOP_GRAPH_POWER, 40) == 8);
}

TEST(figures_are_written_with_a_suitable_unit)
{
	char out[24];

	gpu_view_energy(out, 9999);
	assert_string_equal(out, "9999 J");
	gpu_view_energy(out, 123456);
	assert_string_equal(out, "123 kJ");
	gpu_view_energy(out, NAN);
	assert_string_equal(out, "-");
	figure_bytes(out, 610.0 * 1024 * 1024);
	assert_string_equal(out, "610 MiB");
	figure_bytes(out, 1023.7 * 1024 * 1024);
	assert_string_equal(out, "1.0 GiB");
	figure_bytes(out, 150754820096.0);
	assert_string_equal(out, "140.4 GiB");
	figure_bytes(out, NAN);
	assert_string_equal(out, "-");
	figure_span(out, 3600 * 1.5);
	assert_string_equal(out, "1.5 h");
	figure_span(out, 12.4);
	assert_string_equal(out, "12 s");
	figure_run_time(out, 90061);
	assert_string_equal(out, "1d01h");
	figure_run_time(out, -1);
	assert_string_equal(out, "0s");
}

TEST_MAIN(NULL, NULL)
