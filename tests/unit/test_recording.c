#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown
#include "daemon/recording.h"
#include "guard/policy_text.h"

#include "guard_world.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* The policy and the scene that a test writes and reads. */
static struct policy *p;
static struct scene *s;
static struct buf out;
static struct recording_reader *t;
static struct guard_decision d;
static struct guard_reservation room;
static uint64_t wall_ns;

static int setup(void **state)
{
	p = calloc(1, sizeof(*p));
	s = calloc(1, sizeof(*s));
	t = NULL;
	buf_init(&out, 64 << 20);
	policy_init(p);
	p->mode = GUARD_ENFORCE;
	policy_worker_init(&p->worker[0]);
	p->worker[0].name = "one";
	p->worker[0].kind = WORKER_EXEC;
	p->workers = 1;
	return 0;
}

static int teardown(void **state)
{
	recording_reader_free(t);
	buf_done(&out);
	free(s);
	free(p);
	return 0;
}

static void open_reader(bool dry)
{
	assert_int_equal(recording_reader_new(p, dry, &t), 0);
}

static void read_lines(const char *const lines[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(recording_read(t, lines[i]), 0);
}

/* Writes a scene with a GPU of 16 GiB. */
static void write_free_gpu(void)
{
	s->mono_ns = SECOND;
	s->gpus = 1;
	snprintf(s->gpu[0].uuid, sizeof(s->gpu[0].uuid), "GPU-1");
	s->gpu[0].memory_known = true;
	s->gpu[0].total_bytes = s->gpu[0].free_bytes = UINT64_C(1) << 34;
	scene_write(&out, s);
}

static void assert_rooms(uint64_t first, uint64_t second)
{
	assert_true(guard_reservation_at(recording_reader_guard(t), 0, &room));
	assert_int_equal(room.id, first);
	assert_true(guard_reservation_at(recording_reader_guard(t), 1, &room));
	assert_int_equal(room.id, second);
}

/* Feeds every line of text. Returns the first error. */
static int feed(char *text)
{
	int err = 0;

	for (char *line = strtok(text, "\n"); line && !err; line = strtok(NULL, "\n"))
		err = recording_read(t, line);
	return err;
}

TEST(what_is_written_is_read)
{
	bool held = false;
	struct scene_game game;

	recording_begin(&out, 0, GUARD_ENFORCE);
	recording_worker(&out, 0, "one", NULL);
	s->mono_ns = SECOND;
	s->wall_ns = 100 * SECOND;
	scene_write(&out, s);
	recording_request(&out, 0, REQUEST_HOLD_EVICTED, UINT64_MAX, 2 * SECOND);
	recording_outcome(
		&out,
		&(struct guard_outcome){ .order = 1, .ending = ENDING_DONE, .message = "a\tb" },
		0, 2 * SECOND);
	recording_reason(&out, "GPU-1", REASON_THERMAL, true, "hot", 3 * SECOND);
	recording_trust(&out, "GPU-1", 3 * SECOND);
	recording_heat(&out, "GPU-1", HEAT_WARM, "warm", 3 * SECOND);
	recording_reserve(&out, NULL, 1 << 20, 7, 0, 101, 3 * SECOND);
	recording_release(&out, 9, 4 * SECOND);
	recording_games(&out, 2, &(struct scene_game){ 7, "mini game" }, 4 * SECOND);
	recording_idle_economy(&out, 0, UINT64_MAX, 43, (double)NAN, 4 * SECOND);
	recording_idle_economy(&out, 7, 60 * SECOND, 43, 2000, 4 * SECOND);
	assert_int_equal(out.err, 0);
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	while (recording_next_decision(t, &d, &wall_ns))
		if (strcmp(d.rule, "hold evicted") == 0) {
			held = true;
			assert_int_equal(wall_ns, 101 * SECOND);
		}
	assert_true(held);
	assert_int_equal(guard_game_count(recording_reader_guard(t), &game), 2);
	assert_int_equal(game.pid, 7);
	assert_string_equal(game.name, "mini game");
	assert_int_equal(recording_counts(t).scenes, 1);
	assert_int_equal(recording_counts(t).runs, 1);
}

TEST(the_flags_of_an_outcome_become_one_ending)
{
	static const struct {
		/* in this order: ok, busy, in flight, no answer, listed, refused */
		uint64_t flag[6];
		enum guard_ending ending;
	} cases[] = {
		{ { 0, 0, 0, 0, 0, 0 }, ENDING_FAILED },
		{ { 1, 0, 0, 0, 0, 0 }, ENDING_DONE },
		{ { 1, 0, 0, 0, 1, 0 }, ENDING_LISTED },
		{ { 1, 0, 1, 0, 0, 0 }, ENDING_IN_FLIGHT },
		{ { 0, 1, 0, 0, 0, 0 }, ENDING_BUSY },
		{ { 0, 0, 0, 0, 0, 1 }, ENDING_REFUSED },
		{ { 0, 0, 0, 1, 0, 0 }, ENDING_NO_ANSWER },
		/* earlier versions could set several flags */
		{ { 0, 0, 0, 1, 0, 1 }, ENDING_NO_ANSWER },
		{ { 0, 1, 0, 1, 0, 0 }, ENDING_NO_ANSWER },
	};

	for (unsigned i = 0; i < COUNT_OF(cases); i++)
		assert_int_equal(recording_ending(cases[i].flag), cases[i].ending);
	for (unsigned i = 0; i < GUARD_ENDINGS; i++) {
		const struct guard_outcome o = { .ending = (enum guard_ending)i };
		uint64_t f[6];

		buf_clear(&out);
		recording_outcome(&out, &o, 0, 5);
		assert_int_equal(sscanf(out.p,
					"outcome\t5\t0\t%" SCNu64 "\t%" SCNu64 "\t%" SCNu64
					"\t%" SCNu64 "\t%" SCNu64 "\t%" SCNu64,
					&f[0], &f[1], &f[2], &f[3], &f[4], &f[5]),
				 6);
		assert_int_equal(recording_ending(f), i);
	}
}

/* A request before the first scene of a run has no date until that scene is read. */
TEST(the_time_of_a_decision_before_the_first_scene_comes_from_that_scene)
{
	recording_begin(&out, 0, GUARD_ENFORCE);
	recording_worker(&out, 0, "one", NULL);
	recording_request(&out, 0, REQUEST_HOLD_EVICTED, UINT64_MAX, 2 * SECOND);
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	assert_true(recording_next_decision(t, &d, &wall_ns));
	assert_int_equal(wall_ns, 0);
	buf_clear(&out);
	s->mono_ns = 3 * SECOND;
	s->wall_ns = 100 * SECOND;
	scene_write(&out, s);
	assert_int_equal(feed(out.p), 0);
	assert_int_equal(recording_wall_ns(t, d.mono_ns), 99 * SECOND);
	buf_clear(&out);
	recording_begin(&out, 0, GUARD_ENFORCE); /* the machine may have started again */
	assert_int_equal(feed(out.p), 0);
	assert_int_equal(recording_wall_ns(t, d.mono_ns), 0);
}

/* The recorded guard had given out 100 numbers before this run; a new guard begins with 1. */
TEST(a_replay_continues_with_the_recorded_reservation_numbers)
{
	recording_begin(&out, 100, GUARD_ENFORCE);
	write_free_gpu();
	recording_reserve(&out, NULL, 1 << 20, 7, 0, 101, 3 * SECOND);
	recording_reserve(&out, NULL, 1 << 21, 7, 0, 102, 3 * SECOND);
	recording_release(&out, 101, 4 * SECOND);
	recording_release(&out, 2, 4 * SECOND); /* line of the run before */
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	assert_rooms(0, 102);
}

/* Format version 2 does not record the number of a new reservation. */
TEST(in_format_version_2_reservations_are_numbered_by_counting)
{
	static const char *const lines[] = { "reserve\t3000000000\t1048576\t7\t0\t",
					     "reserve\t3000000000\t2097152\t7\t0\t",
					     "release\t4000000000\t101",
					     "release\t4000000000\t2" };

	buf_adds(&out, "begin\t2\t100\n");
	write_free_gpu();
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	read_lines(lines, COUNT_OF(lines));
	assert_rooms(0, 2);
}

TEST(every_version_names_the_registered_game)
{
	static const struct {
		const char *begin, *games, *name;
	} rows[] = {
		{ "begin\t9\t0\tenforce", "games\t5\t1\tpid 7 game", "game" },
		{ "begin\t9\t0\tenforce", "games\t5\t1\tpid 7", "" },
		{ "begin\t10\t0\tenforce", "games\t5\t1\t7\tmini game", "mini game" },
	};
	struct scene_game game;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		open_reader(false);
		assert_int_equal(recording_read(t, rows[i].begin), 0);
		assert_int_equal(recording_read(t, rows[i].games), 0);
		assert_int_equal(guard_game_count(recording_reader_guard(t), &game), 1);
		assert_int_equal(game.pid, 7);
		assert_string_equal(game.name, rows[i].name);
		recording_reader_free(t);
		t = NULL;
	}
}

TEST(what_a_run_begins_with_comes_before_the_first_scene)
{
	static const char *const lines[] = {
		"begin\t3\t9\t2",
		"worker\t0\tone",
		"room\t7\t1048576\t4711\t18446744073709551615\tGPU-1",
		"heat\t5\tGPU-1\t2\twarm",
		"foreign\t5\tGPU-1\tanother gpuward",
		"games\t5\t3",
		"reason\t5\tGPU-1\t2\t1\thot",
	};
	struct guard_gpu_inputs inputs;
	struct scene_game game;

	p->mode = GUARD_OBSERVE; /* the recording contains the mode that was in force */
	open_reader(false);
	read_lines(lines, COUNT_OF(lines));
	assert_int_equal(guard_last_id(recording_reader_guard(t)), 9);
	assert_true(guard_reservation_at(recording_reader_guard(t), 0, &room));
	assert_int_equal(room.id, 7);
	assert_int_equal(room.pid, 4711);
	assert_true(guard_gpu_inputs(recording_reader_guard(t), 0, &inputs));
	assert_string_equal(inputs.gpu, "GPU-1");
	assert_string_equal(inputs.foreign, "another gpuward");
	assert_string_equal(inputs.heat_why, "warm");
	assert_int_equal(inputs.heat, HEAT_WARM);
	assert_int_equal(inputs.reasons, 1u << REASON_THERMAL);
	assert_string_equal(inputs.evidence[REASON_THERMAL], "hot");
	assert_int_equal(guard_game_count(recording_reader_guard(t), &game), 3);
	assert_int_equal(game.pid, 0);
	/* true only in mode enforce */
	assert_true(guard_movable(recording_reader_guard(t), 0));
	assert_int_equal(recording_read(t, "release\t6\t7"), 0);
	assert_true(guard_reservation_at(recording_reader_guard(t), 0, &room));
	assert_int_equal(room.id, 0);
}

/* A worker that only the second configuration has begins with it, in its recorded state. */
TEST(a_worker_that_came_with_another_configuration_begins_there)
{
	static const char *const lines[] = {
		"begin\t3\t0\t2", "worker\t0\tone", "ask\t5\t0\t2\t18446744073709551615",
		"swap",           "worker\t0\ttwo", "record\t0\t2\t0\t0\t2\t0\t5\ttwo",
		"worker\t1\tone",
	};
	struct guard_status status;

	p->worker[1] = p->worker[0];
	p->worker[1].name = "two";
	p->workers = 2;
	open_reader(false);
	read_lines(lines, COUNT_OF(lines));
	/* this line is not allowed between swap and swapped */
	assert_int_equal(recording_read(t, "games\t5\t0"), -GW_E_PARSE);
	assert_int_equal(recording_read(t, "swapped\t6\t1"), 0);
	assert_int_equal(guard_status(recording_reader_guard(t), 0, &status), 0);
	assert_int_equal(status.hold, HOLD_EVICTED);
	assert_int_equal(guard_status(recording_reader_guard(t), 1, &status), 0);
	assert_int_equal(status.hold, HOLD_ACTIVE);
	assert_int_equal(recording_counts(t).runs, 1);
	/* index 0 is worker two now */
	assert_int_equal(recording_read(t, "ask\t7\t0\t4\t0"), 0);
	assert_int_equal(guard_status(recording_reader_guard(t), 1, &status), 0);
	assert_int_equal(status.hold, HOLD_NONE);
}

TEST(invalid_lines_of_a_recording_are_refused)
{
	static const char *const lines[] = {
		"begin",
		"begin\t0",
		"begin\tone",
		"heat\t1\tGPU-1\t4\twhy",
		"heat\t1\tGPU-1\t1",
		"trust\tnow\tGPU-1",
		"trust\t1",
		"begin\t1\tlate",
		"begin\t2\t0\t0",
		"begin\t3\t0\t9",
		"begin\t3\t0\t2\t0",
		"swap\t1",
		"swapped\t1\t2",
		"foreign\t1\tGPU-1",
		"room\t7\t1\t0\tnow\tGPU-1",
		"room\t0\t1\t0\t5\tGPU-1",
		"worker\t0",
		"worker\t99\tone",
		"record\t0\t2\t1\t0\t0\t0\t0",
		"record\t0\t9\t1\t0\t0\t0\t0\tone",
		"record\t0\t2\t1\t0\t7\t0\t0\tone",
		"record-gpu\t1\tGPU-1",
		"record-manual\t5",
		"record-process\t1\t2",
		"stop",
		"stop\tnow",
		"stop\t1\t2\t3",
		"ask\t1\tone\t0\t0",
		"hello",
		"outcome",
		"outcome\t1\t2\t1\t0\t0",
		"outcome\t1\t2\tyes\t0\t0\tdone",
		"outcome\t-1\t2\t1\t0\t0\tdone",
		"ask\t1\t0\t99\t0",
		"ask\t1\t0\t0",
		"for\t1",
		"for\t1\troot",
		"fetched\t1",
		"fetched\t1\tone",
		"reason\t1\tGPU-1\t99\t1\thot",
		"reserve\t1\tmuch\t0\t0\t",
		"release\t1",
		"release\t1\t2\t3",
		"release\t1\t2\t3\t4\t5\t6\t7\t8\t9",
		"G\tGPU-1",
	};

	open_reader(false);
	for (size_t i = 0; i < COUNT_OF(lines); i++)
		if (recording_read(t, lines[i]) != -GW_E_PARSE)
			fail_msg("'%s' was taken", lines[i]);
	assert_int_equal(recording_read(t, ""), 0);
	assert_int_equal(recording_read(t, "begin\t11\t0\tenforce"), -GW_E_NOSUPPORT);
}

TEST(a_user_that_requested_too_often_is_refused_again)
{
	unsigned evicted = 0;

	p->user_evictions = 1;
	recording_begin(&out, 0, GUARD_ENFORCE);
	recording_worker(&out, 0, "one", NULL);
	for (uint64_t i = 1; i <= 3; i++) {
		recording_requester(&out, 1000, i * SECOND);
		recording_request(&out, 0, REQUEST_EVICT, 0, i * SECOND);
	}
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	while (recording_next_decision(t, &d, &wall_ns))
		evicted += strcmp(d.rule, "evict command") == 0;
	assert_int_equal(evicted, 1);
}

TEST(recorded_requests_for_a_removed_worker_are_skipped)
{
	open_reader(true);
	assert_int_equal(recording_read(t, "ask\t5\t3\t0\t0"), 0);
	assert_false(recording_next_decision(t, &d, &wall_ns));
}

/* In format version 1, outcomes name orders, and a worker's index is its position in the
 * policy. */
TEST(a_recording_of_format_version_1_is_read)
{
	buf_adds(&out, "begin\t1\t100\n");
	s->mono_ns = SECOND;
	s->wall_ns = 100 * SECOND;
	s->roots = 1;
	s->root[0] = (struct scene_root){ .worker = 0, .id.pid = 7, .id.start_ticks = 7 };
	scene_write(&out, s);
	buf_adds(&out, "ask\t2000000000\t0\t0\t0\n");
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	while (recording_next_decision(t, &d, &wall_ns))
		;
	assert_int_equal(guard_order_pending(recording_reader_guard(t), 0), 1);
	assert_int_equal(recording_read(t, "outcome\t3000000000\t101\t1\t0\t0\tdone"), 0);
	assert_int_equal(guard_order_pending(recording_reader_guard(t), 0), 2);
}

TEST(the_last_scene_has_the_workers_of_the_given_policy)
{
	static struct scene last;
	unsigned line;

	s->roots = 2;
	s->root[0] = (struct scene_root){ .worker = 3, .id.pid = 7, .id.start_ticks = 7 };
	s->root[1] = (struct scene_root){ .worker = 4, .id.pid = 8, .id.start_ticks = 8 };
	buf_adds(&out, "D\t1\t0\nbegin\t6\t100\tenforce\nworker\t3\tone\nworker\t4\tother\n");
	write_free_gpu();
	buf_adds(&out, "ask\tthis line is skipped\n");
	assert_int_equal(recording_last_scene(out.p, p, &last, &line), 0);
	assert_int_equal(last.gpus, 1);
	assert_int_equal(last.roots, 1);
	assert_int_equal(last.root[0].id.pid, 7);
	assert_int_equal(last.root[0].worker, 0);
	assert_int_equal(recording_last_scene("\nD\t1\t0\n", p, &last, &line), -GW_E_PARSE);
	assert_int_equal(line, 0);
	assert_int_equal(recording_last_scene("swap\ng\tx\n", p, &last, &line), -GW_E_PARSE);
	assert_int_equal(line, 2);
	assert_int_equal(recording_last_scene("worker\t3\n", p, &last, &line), -GW_E_PARSE);
	assert_int_equal(line, 1);
}

TEST(a_replay_knows_since_when_a_recorded_manual_reason_holds)
{
	static const struct guard_record record = { .worker = "one",
						    .mask = 1u << REASON_MANUAL,
						    .evicted = true,
						    .hold = HOLD_EVICTED,
						    .manual_wall_ns = 40 * SECOND,
						    .wall_ns = 90 * SECOND };
	struct guard_record back;

	recording_begin(&out, 0, GUARD_ENFORCE);
	recording_worker(&out, 0, "one", &record);
	s->mono_ns = 70 * SECOND;
	s->wall_ns = 100 * SECOND;
	scene_write(&out, s);
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	assert_int_equal(guard_worker_record(recording_reader_guard(t), 0, &back), 0);
	assert_int_equal(back.manual_wall_ns, 40 * SECOND);
}

/* Earlier versions wrote one member of the guard twice. */
TEST(a_member_of_the_state_is_written_once_and_may_be_repeated)
{
	struct buf twice;

	write_free_gpu();
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	buf_clear(&out);
	recording_begin(&out, 0, GUARD_ENFORCE);
	recording_policy(&out, p);
	recording_state(&out, recording_reader_guard(t));
	assert_in(out.p, "state\tguard\tscene_is_new\t1\n");
	buf_init(&twice, 1 << 20);
	for (char *line = strtok(out.p, "\n"); line; line = strtok(NULL, "\n")) {
		const bool guard = strncmp(line, "state\tguard\t", 12) == 0;

		if (guard && strstr(line + strlen(line) + 1, line))
			fail_msg("written twice: %s", line);
		buf_addf(&twice, "%s\n", line);
		if (guard)
			buf_addf(&twice, "%s\n", line);
	}
	recording_reader_free(t);
	open_reader(false);
	assert_int_equal(feed(twice.p), 0);
	assert_int_equal(recording_counts(t).runs, 1);
	buf_done(&twice);
}

TEST(a_state_that_has_only_the_goal_of_a_worker_is_read)
{
	static const char end[] = "state\tend\n";

	write_free_gpu();
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	buf_clear(&out);
	recording_begin(&out, 0, GUARD_ENFORCE);
	recording_policy(&out, p);
	recording_state(&out, recording_reader_guard(t));
	assert_string_equal(out.p + (out.len -= strlen(end)), end);
	buf_addf(&out, "state\tworker\t0\tintent.goal\tout\n%s", end);
	recording_reader_free(t);
	open_reader(false);
	assert_int_equal(feed(out.p), 0);
	buf_clear(&out);
	recording_state(&out, recording_reader_guard(t));
	assert_in(out.p, "state\tworker\t0\tintent.stage\tnone\n");
}

TEST(enums_are_written_by_name)
{
	const struct guard_record record = { .mask = 1u << REASON_MANUAL | 1u << REASON_BUDGET,
					     .hold = HOLD_ACTIVE };

	p->worker[0].kind = WORKER_VLLM;
	p->mode = GUARD_ENFORCE;
	recording_begin(&out, 3, p->mode);
	recording_policy(&out, p);
	recording_worker(&out, 0, "one", &record);
	recording_request(&out, 0, REQUEST_HOLD_ACTIVE, 7, 5);
	recording_reason(&out, "GPU-1", REASON_THERMAL, true, "hot", 5);
	recording_heat(&out, "GPU-1", HEAT_THROTTLE | HEAT_WARM, "why", 5);
	recording_heat(&out, "GPU-1", 0, "", 5);
	assert_in(out.p, "begin\t10\t3\tenforce\n");
	assert_in(out.p, "policy\tkind\tvllm\n");
	assert_in(out.p, "policy\tresume\trestore\n");
	assert_in(out.p, "record\tmanual,budget\t0\t0\t0\tactive\t");
	assert_in(out.p, "ask\t5\t0\thold-active\t7\n");
	assert_in(out.p, "reason\t5\tGPU-1\tthermal\t1\thot\n");
	assert_in(out.p, "heat\t5\tGPU-1\tthrottle,warm\twhy\n");
	assert_in(out.p, "heat\t5\tGPU-1\t-\t\n");
}

/* A row that is inserted into kind.def must not change what an old recording means. */
TEST(old_numbers_keep_their_meaning)
{
	static const char *const kinds[] = {
		"ollama", "llamacpp", "llamaswap",  "vllm",    "sglang",    "tabby", "kobold",
		"comfy",  "a1111",    "checkpoint", "systemd", "container", "exec",  "signal",
	};
	char text[200];

	for (unsigned i = 0; i < COUNT_OF(kinds); i++) {
		snprintf(text, sizeof(text), "mode\t1\nworkers\t1\nname\t=one\nkind\t%u\n", i);
		assert_int_equal(policy_text_read(text, p), 0);
		assert_int_equal(p->mode, GUARD_DRY_RUN);
		assert_string_equal(policy_kind_name(p->worker[0].kind), kinds[i]);
		policy_done(p);
		snprintf(text, sizeof(text), "workers\t1\nname\t=one\nkind\t%s\n", kinds[i]);
		assert_int_equal(policy_text_read(text, p), 0);
		assert_string_equal(policy_kind_name(p->worker[0].kind), kinds[i]);
		policy_done(p);
	}
	assert_int_equal(policy_text_read("workers\t1\nname\t=one\nkind\tnone\n", p),
			 -GW_E_PARSE);
	policy_done(p);
}

static int whose(const struct world *o, uint64_t order)
{
	for (unsigned i = 0; i < o->p.workers; i++)
		if (guard_order_pending(o->g, i) == order)
			return (int)i;
	return -1;
}

static void recorded_outcomes(struct world *o)
{
	struct guard_outcome done[WORLD_WORKERS];
	unsigned n = o->outcomes;

	memcpy(done, o->outcome, sizeof(done));
	o->outcomes = 0;
	for (unsigned i = 0; i < o->p.workers; i++)
		o->w[i].has_order = false;
	for (unsigned i = 0; i < n; i++) {
		recording_outcome(&out, &done[i], whose(o, done[i].order), o->now);
		guard_outcome(o->g, &done[i], o->now);
	}
	world_fetch(o);
}

static void record_fetch(const struct world *o, unsigned worker)
{
	recording_fetched(&out, worker, o->now);
}

static struct scene last; /* last scene in the recording */

static void recorded_run(struct world *o, uint64_t span_ns)
{
	for (uint64_t end = o->now + span_ns; o->now < end; o->now += o->step_ns) {
		recorded_outcomes(o);
		world_scene(o);
		scene_write_change(&out, &o->s, &last);
		guard_observe(o->g, &o->s);
		world_fetch(o);
	}
}

/* Records a run with two workers: the journal says that one is evicted; the other is held. A
 * contender comes and goes; at the end the service stops. */
static void record_a_world(struct world *o)
{
	world_init(o, 1, 2);
	o->journal.fetched = record_fetch;
	o->p.restore_on_stop = true;
	/* another priority, because equal workers are taken in policy order */
	o->p.worker[1].priority = 9;
	o->w[0].load[0] = o->w[1].load[0] = 4 * GIB;
	o->w[1].resident = false;
	o->w[1].acts.deaf = true;
	/* less than three quarters of its memory return, so the list of its models counts */
	o->w[1].acts.lists = true;
	o->w[1].acts.returns = 2 * GIB;
	o->journal.on_disk = 1;
	o->journal.disk[0] = (struct guard_record){ .worker = "w1",
						    .mask = 1u << REASON_CONTENTION,
						    .level = 2,
						    .evicted = true,
						    .need_bytes = 4 * GIB,
						    .gpu = { { "GPU-0", 4 * GIB } },
						    .gpus = 1 };
	world_guest(o, "job", 0, 5 * GIB, 0, 5 * S);
	world_guest(o, "game", 0, 7 * GIB, 110 * S, 115 * S);
	last.whole = false;
	recording_begin(&out, 0, o->p.mode);
	for (unsigned i = 0; i < 2; i++)
		recording_worker(&out, i, o->p.worker[i].name,
				 i == 1 ? &o->journal.disk[0] : NULL);
	world_begin(o);
	recorded_run(o, 45 * S);
	o->w[1].acts.deaf = false;
	recorded_run(o, 55 * S);
	recording_request(&out, 1, REQUEST_HOLD_ACTIVE, UINT64_MAX, o->now);
	world_ask(o, 1, REQUEST_HOLD_ACTIVE, UINT64_MAX);
	recorded_run(o, 20 * S);
	recording_stop(&out, guard_orders_underway(o->g), o->now);
	assert_int_equal(guard_stop(o->g, o->now), 1);
	world_fetch(o);
	recorded_outcomes(o);
	assert_int_equal(out.err, 0);
}

/* Asserts that a replay makes exactly the decisions that were recorded for one worker. */
static void assert_same_of(const struct world *o, unsigned worker, const struct policy *policy,
			   struct guard_decision *again, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < o->log.says; i++) {
		struct guard_decision was = o->log.said[i];

		if (was.worker != worker)
			continue;
		while (k < n && strcmp(policy->worker[again[k].worker].name,
				       o->p.worker[worker].name) != 0)
			k++;
		if (k == n)
			fail_msg("w%u: only %zu of its decisions", worker, i);
		again[k].worker = worker;
		if (memcmp(&was, &again[k], sizeof(was)) != 0)
			fail_msg("w%u: %s became %s (%s)", worker, was.evidence,
				 again[k].evidence, again[k].rule);
		again[k].worker = (unsigned)(strcmp(policy->worker[0].name,
						    o->p.worker[worker].name) != 0);
		k++;
	}
}

TEST(a_replay_gives_the_same_decisions_whatever_the_order_of_workers)
{
	static struct world o;
	static struct policy other;

	for (unsigned turned = 0; turned < 2; turned++) {
		struct guard_decision *again = calloc(4096, sizeof(*again));
		size_t n = 0;

		record_a_world(&o);
		assert_true(world_decided(&o, 1, STATE_RECONCILE, STATE_EVICTED, NULL) == 1);
		assert_true(world_decided(&o, 1, STATE_VERIFY_UP, STATE_ACTIVE, NULL) == 1);
		assert_true(world_decided(&o, 0, GUARD_STATES, STATE_EVICTED, NULL) >= 1);
		other = o.p;
		other.worker[0] = o.p.worker[turned];
		other.worker[1] = o.p.worker[!turned];
		assert_int_equal(recording_reader_new(&other, false, &t), 0);
		for (char *line = strtok(out.p, "\n"); line; line = strtok(NULL, "\n")) {
			assert_int_equal(recording_read(t, line), 0);
			while (recording_next_decision(t, &again[n], &wall_ns))
				assert_true(++n < 4096);
		}
		assert_int_equal(n, o.log.says);
		assert_same_of(&o, 0, &other, again, n);
		assert_same_of(&o, 1, &other, again, n);
		world_done(&o);
		free(again);
		teardown(state);
		setup(state);
	}
}

static void reserve_and_record(struct world *o, uint64_t bytes, uint64_t *id)
{
	assert_int_equal(guard_reserve(o->g, NULL, bytes, 0, 0, o->now, id), 0);
	recording_reserve(&out, NULL, bytes, 0, 0, *id, o->now);
	world_fetch(o);
}

/* Records a change of the configuration while one worker is evicted for a reservation and an
 * order for the other waits to be fetched. */
static void record_a_swap(struct world *o)
{
	static struct policy next;
	uint64_t first, second;

	world_init(o, 1, 2);
	o->journal.fetched = record_fetch;
	o->p.worker[1].priority = 9;
	o->w[0].load[0] = o->w[1].load[0] = 4 * GIB;
	last.whole = false;
	recording_begin(&out, 0, o->p.mode);
	for (unsigned i = 0; i < 2; i++)
		recording_worker(&out, i, o->p.worker[i].name, NULL);
	world_begin(o);
	recorded_run(o, 20 * S);
	reserve_and_record(o, 6 * GIB, &first);
	recorded_run(o, 70 * S);
	recording_request(&out, 1, REQUEST_EVICT, 0, o->now);
	assert_int_equal(
		guard_request(o->g, 1, REQUEST_EVICT, 0, o->now, (char[200]){ 0 }, 200), 0);
	assert_int_not_equal(guard_order_pending(o->g, 1), 0);
	assert_int_equal(guard_orders_underway(o->g), 0);
	next = o->p;
	recording_swap(&out);
	for (unsigned i = 0; i < 2; i++)
		recording_worker(&out, i, next.worker[i].name, NULL);
	recording_swapped(&out, next.mode, o->now);
	assert_int_equal(guard_change_policy(o->g, &next, NULL, 0, o->now), 0);
	world_fetch(o);
	recorded_run(o, 30 * S);
	reserve_and_record(o, 1 * GIB, &second);
	recording_release(&out, first, o->now);
	guard_release(o->g, first, o->now);
	world_fetch(o);
	recorded_run(o, 60 * S);
}

TEST(a_replay_over_a_configuration_change_gives_the_same_decisions)
{
	static struct world o;
	struct guard_decision *again = calloc(4096, sizeof(*again));
	size_t n = 0;

	record_a_swap(&o);
	assert_true(world_decided(&o, 0, GUARD_STATES, STATE_EVICTED, NULL) >= 1);
	assert_true(world_decided(&o, 0, STATE_VERIFY_UP, STATE_ACTIVE, NULL) >= 1);
	assert_int_equal(recording_reader_new(&o.p, false, &t), 0);
	for (char *line = strtok(out.p, "\n"); line; line = strtok(NULL, "\n")) {
		if (recording_read(t, line) != 0)
			fail_msg("refused: %s", line);
		while (recording_next_decision(t, &again[n], &wall_ns))
			assert_true(++n < 4096);
	}
	assert_int_equal(n, o.log.says);
	assert_same_of(&o, 0, &o.p, again, n);
	assert_same_of(&o, 1, &o.p, again, n);
	world_done(&o);
	free(again);
}

/* Records the end of a service while a worker is being evicted. fetched: the order is under way;
 * otherwise it waits and is withdrawn. */
static void record_a_stop(struct world *o, bool fetched)
{
	world_init(o, 1, 1);
	o->journal.fetched = record_fetch;
	o->p.restore_on_stop = true;
	last.whole = false;
	recording_begin(&out, 0, o->p.mode);
	recording_worker(&out, 0, o->p.worker[0].name, NULL);
	world_begin(o);
	recorded_run(o, 20 * S);
	recording_request(&out, 0, REQUEST_EVICT, 0, o->now);
	assert_int_equal(
		guard_request(o->g, 0, REQUEST_EVICT, 0, o->now, (char[200]){ 0 }, 200), 0);
	while (fetched && !o->w[0].verbs[ORDER_EVICT])
		recorded_run(o, o->step_ns);
	assert_int_equal(guard_orders_underway(o->g), fetched);
	recording_stop(&out, guard_orders_underway(o->g), o->now);
	(void)guard_stop(o->g, o->now);
	world_fetch(o);
	recorded_run(o, 10 * S);
	assert_int_equal(out.err, 0);
}

/* Changes the recording to an older format version: before version 9 it does not say when orders
 * were fetched, and before version 8 it does not say which orders were under way at the end. */
static void make_older(char version)
{
	char *begin = strstr(out.p, "begin\t10"), *stop = strstr(out.p, "stop\t"), *line;

	assert_non_null(begin);
	begin[6] = '0';
	begin[7] = version;
	if (version < '8') {
		assert_non_null(stop);
		stop = strchr(stop + 5, '\t');
		assert_memory_equal(stop, "\t1\n", 3);
		memmove(stop, stop + 2, strlen(stop + 2) + 1);
	}
	while ((line = strstr(out.p, "fetched\t"))) {
		const char *next = strchr(line, '\n') + 1;

		memmove(line, next, strlen(next) + 1);
	}
}

TEST(a_replay_over_the_end_of_the_service_gives_the_same_decisions)
{
	static const struct {
		bool fetched;
		char version;
	} cases[] = {
		{ false, '9' }, { true, '9' }, { false, '8' }, { true, '8' }, { true, '7' }
	};
	static struct world o;

	for (unsigned i = 0; i < COUNT_OF(cases); i++) {
		struct guard_decision *again = calloc(4096, sizeof(*again));
		size_t n = 0;

		record_a_stop(&o, cases[i].fetched);
		assert_int_equal(world_state(&o, 0) == STATE_EVICTED, cases[i].fetched);
		if (cases[i].version < '9')
			make_older(cases[i].version);
		assert_int_equal(recording_reader_new(&o.p, false, &t), 0);
		for (char *line = strtok(out.p, "\n"); line; line = strtok(NULL, "\n")) {
			assert_int_equal(recording_read(t, line), 0);
			while (recording_next_decision(t, &again[n], &wall_ns))
				assert_true(++n < 4096);
		}
		assert_int_equal(n, o.log.says);
		assert_same_of(&o, 0, &o.p, again, n);
		world_done(&o);
		free(again);
		teardown(state);
		setup(state);
	}
}

/* Records an eviction. While a disk hangs, nobody fetches orders. */
static void record_a_hanging_disk(struct world *o)
{
	world_init(o, 1, 1);
	o->journal.fetched = record_fetch;
	last.whole = false;
	recording_begin(&out, 0, o->p.mode);
	recording_worker(&out, 0, o->p.worker[0].name, NULL);
	world_begin(o);
	recorded_run(o, 20 * S);
	recording_request(&out, 0, REQUEST_EVICT, 0, o->now);
	assert_int_equal(
		guard_request(o->g, 0, REQUEST_EVICT, 0, o->now, (char[200]){ 0 }, 200), 0);
	for (unsigned i = 0; i < 450; i++, o->now += o->step_ns) {
		world_scene(o);
		scene_write_change(&out, &o->s, &last);
		guard_observe(o->g, &o->s);
	}
	assert_int_equal(world_state(o, 0), STATE_STUCK); /* budget_s is over */
	recorded_run(o, 40 * S);
	assert_int_equal(out.err, 0);
}

TEST(a_replay_knows_which_orders_were_carried_out)
{
	static struct world o;

	for (char version = '8'; version <= '9'; version++) {
		struct guard_decision *again = calloc(4096, sizeof(*again));
		size_t n = 0;
		bool tried = false;

		record_a_hanging_disk(&o);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		if (version < '9')
			make_older(version);
		assert_int_equal(recording_reader_new(&o.p, false, &t), 0);
		for (char *line = strtok(out.p, "\n"); line; line = strtok(NULL, "\n")) {
			assert_int_equal(recording_read(t, line), 0);
			while (recording_next_decision(t, &again[n], &wall_ns)) {
				tried = tried || !strcmp(again[n].rule, "try again");
				assert_true(++n < 4096);
			}
		}
		/* a guard of version 8 took the order for one without an answer */
		assert_int_equal(tried, version == '8');
		if (version == '9') {
			assert_int_equal(n, o.log.says);
			assert_same_of(&o, 0, &o.p, again, n);
		}
		world_done(&o);
		free(again);
		teardown(state);
		setup(state);
	}
}

TEST(in_a_dry_replay_an_evicted_worker_begins_in_its_observed_state)
{
	static const char *const lines[] = {
		"begin\t2\t0",
		"worker\t0\tone",
		"record\t1\t2\t1\t4294967296\t2\t0\t5\tone",
		"record-gpu\t4294967296\tGPU-0",
		"record-process\t71\t9",
		"ask\t5\t0\t4\t0",
	};

	for (unsigned dry = 0; dry < 2; dry++) {
		struct guard_status status;

		p->mode = dry ? GUARD_DRY_RUN : GUARD_ENFORCE;
		open_reader(dry);
		for (size_t i = 0; i + 1 < COUNT_OF(lines); i++)
			assert_int_equal(recording_read(t, lines[i]), 0);
		assert_null(recording_reader_guard(t)); /* more state may follow */
		assert_int_equal(recording_read(t, "games\t5\t0"), 0);
		assert_int_equal(guard_status(recording_reader_guard(t), 0, &status), 0);
		assert_int_equal(status.state, STATE_RECONCILE);
		assert_int_equal(status.hold, HOLD_ACTIVE);
		assert_int_equal(recording_read(t, lines[2]), -GW_E_PARSE); /* too late */
		assert_int_equal(recording_counts(t).runs, 1);
		teardown(state);
		setup(state);
	}
}

TEST(a_policy_is_read_as_it_was_written_but_for_secrets)
{
	static const char *const leave[] = { "/usr/bin/leave", "--password=hush", NULL };
	struct policy *back = calloc(1, sizeof(*back));

	p->standard.headroom_ratio = 1.0 / 3;
	p->worker[0].match.command = "a\ttab, a \\ and\na line";
	p->worker[0].match.uid = -1;
	p->worker[0].reload_j = NAN;
	p->worker[0].schedule[0] = (struct policy_span){ 3, 60, 120 };
	p->worker[0].schedules = 1;
	p->worker[0].gpus[0] = "GPU-1";
	p->worker[0].gpu_count = 1;
	p->worker[0].text = "[[worker]] one (x.toml:3)";
	p->rule[0] = (struct policy_rule){ { .name = "", .uid = 7 }, GUARD_CONTEND, "rule 1" };
	p->rules = 1;
	policy_text_write(&out, "", p);
	assert_int_equal(policy_text_read(out.p, back), 0);
	assert_true(policy_same(p, back));
	assert_string_equal(back->worker[0].text, p->worker[0].text);
	assert_string_equal(back->rule[0].text, "rule 1");
	policy_done(back);
	p->worker[0].evict_argv = leave;
	p->worker[0].token_file = "/etc/token";
	p->worker[0].url = "http://me:hush@localhost:80/@";
	buf_clear(&out);
	policy_text_write(&out, "", p);
	assert_null(strstr(out.p, "hush"));
	assert_null(strstr(out.p, "/etc/token"));
	assert_int_equal(policy_text_read(out.p, back), 0);
	/* the argument is there, but its text is not recorded */
	assert_non_null(back->worker[0].evict_argv[0]);
	assert_null(back->worker[0].resume_argv);
	assert_string_equal(back->worker[0].url, "http://localhost:80/@");
	policy_done(back);
	for (const char *bad[] = { "hello\t1\n", "workers\t33\n", "workers\t1\n", "mode\tx\n",
				   "rules\t1\nname\t=\\zz\n" },
			**b = bad;
	     b < bad + COUNT_OF(bad); b++) {
		assert_int_equal(policy_text_read(*b, back), -GW_E_PARSE);
		policy_done(back);
	}
	free(back);
}

/* Reads a recording without a policy, and invalid lines of the state. */
TEST(an_incomplete_earlier_state_is_refused)
{
	static const char *const bad[] = {
		"state\tend",
		"state\tguard\tstopping\t300",
		"state\tworker\t99\tbytes\t1",
		"state\tworker\t0\tnobody\t1",
		"state\tworker\t0\tbytes\t-1",
		"state\tworker\t0\tbytes\t1\t2",
		"state\tworker\t0\tbytes",
		"state\tscene\tG\tx",
		"state\thello",
		"games\t5\t0",
	};

	assert_int_equal(recording_reader_new(NULL, false, &t), 0);
	assert_int_equal(recording_read(t, "games\t5\t0"), -GW_E_NOENT);
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		buf_clear(&out);
		recording_begin(&out, 0, GUARD_ENFORCE);
		recording_policy(&out, p);
		assert_int_equal(feed(out.p), 0);
		assert_int_equal(recording_reader_policy(t)->workers, p->workers);
		assert_int_equal(recording_read(t, "state\tbegin"), 0);
		if (recording_read(t, bad[i]) != -GW_E_PARSE)
			fail_msg("'%s' was accepted", bad[i]);
	}
}

TEST_MAIN(NULL, NULL)
