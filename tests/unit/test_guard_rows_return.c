/* Tests the guard's state machine (docs/GUARD-MACHINE.md), rows 25 to 37: a worker is evicted,
 * and returns. */
#include "guard_test.h"

GUARD_ROW("25", a10_a_client_that_reloads_is_evicted_again_and_a_storm_is_ended)
{
	o->p.worker[0].knobs.max_level = 4;
	o->p.worker[0].match.unit = "w0.service";
	begin(o);
	ask_run(o, REQUEST_HOLD_EVICTED, UINT64_MAX, 3 * S);
	for (unsigned i = 0; i < 3; i++) {
		assert_state(o, STATE_EVICTED);
		o->w[0].resident = true;
		world_run(o, 5 * S);
	}
	assert_decided(o, 2, STATE_EVICTED, STATE_EVICT, "reloaded");
	assert_decided(o, 1, STATE_EVICTED, STATE_EVICT, "reload-storm");
	assert_has(world_last(o, "reload-storm")->evidence, "stop its clients");
	assert_true(world_status(o, 0).storm);
	assert_int_equal(o->w[0].levels[2], 3);
	assert_int_equal(o->w[0].levels[4], 1);
}

GUARD_ROW("25", a_storm_without_a_unit_to_stop_closes_the_worker)
{
	begin(o);
	ask_run(o, REQUEST_HOLD_EVICTED, UINT64_MAX, 3 * S);
	for (unsigned i = 0; i < 3; i++) {
		o->w[0].closed = false;
		o->w[0].resident = true;
		world_run(o, 5 * S);
		assert_state(o, STATE_EVICTED);
	}
	assert_true(o->w[0].closed);
	assert_orders(o, 2, CLOSE);
}

GUARD_ROW("25", residual_memory_is_not_a_reload)
{
	begin(o);
	o->w[0].residue = 500 * MIB;
	ask_run(o, REQUEST_EVICT, 0, 60 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).residue_bytes, 500 * MIB);
	assert_orders(o, 1, EVICT);
}

GUARD_ROW("27", a_reason_that_is_not_contention_needs_no_quiet)
{
	begin(o);
	ask_run(o, REQUEST_EVICT, 20 * S, 22 * S);
	assert_decided(o, 0, ANY, STATE_QUIET, NULL);
	assert_decided(o, 1, STATE_EVICTED, STATE_PRECHECK, NULL);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("26, 28, 29", demand_in_the_quiet_period_begins_it_again)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_guest(o, "job2", 0, 3 * GIB, 40 * S, 45 * S);
	world_begin(o);
	world_until(o, 30 * S);
	assert_state(o, STATE_QUIET);
	world_until(o, 41 * S);
	assert_decided(o, 1, STATE_QUIET, STATE_EVICTED, "memory");
	world_until(o, 74 * S);
	assert_state(o, STATE_QUIET);
	world_until(o, 77 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("28", a_further_reason_ends_the_quiet_period)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 30 * S);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "hot", o->now);
	world_step(o);
	assert_decided(o, 1, STATE_QUIET, STATE_EVICTED, NULL);
	world_until(o, 300 * S);
	assert_state(o, STATE_EVICTED);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, false, "", o->now);
	world_run(o, 3 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("30", resume_now_skips_the_quiet_and_ends_contention_and_manual_only)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 22 * S);
	assert_state(o, STATE_QUIET);
	world_ask(o, 0, REQUEST_RESUME_NOW, 0);
	world_step(o);
	assert_decided(o, 1, STATE_QUIET, STATE_PRECHECK, NULL);
	world_run(o, 2 * S);
	assert_state(o, STATE_ACTIVE);
	world_ask(o, 0, REQUEST_HOLD_EVICTED, UINT64_MAX);
	guard_set_reason(o->g, "GPU-0", REASON_HEALTH, true, "sick", o->now);
	world_run(o, 3 * S);
	ask_run(o, REQUEST_RESUME_NOW, 0, 60 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_HEALTH);
	assert_int_equal(world_status(o, 0).hold, HOLD_NONE);
}

/* Takes memory that the last scene does not show. */
static void take_unseen_memory(struct world *o)
{
	world_guest(o, "ignored", 0, 8 * GIB, o->now - WORLD_START - MS, 0);
}

/* A scene shows the machine as it was. Memory may be taken between the last scene and a
 * request, between the last scene and the end of a reason, or while the request waits for a
 * scene that was already begun. */
GUARD_ROW("30, 31", no_worker_returns_with_a_scene_from_before_its_reason_ended)
{
	for (unsigned i = 0; i < 3; i++) {
		world_again(o, 1, 1);
		begin(o);
		if (i == 1)
			guard_set_reason(o->g, "GPU-0", REASON_BUDGET, true, "spent", o->now);
		else
			world_ask(o, 0, REQUEST_EVICT, UINT64_MAX);
		world_run(o, 5 * S);
		assert_state(o, STATE_EVICTED);
		if (i == 2) {
			world_scene(o);
			o->now += MS;
		}
		take_unseen_memory(o);
		if (i == 1)
			guard_set_reason(o->g, "GPU-0", REASON_BUDGET, false, "", o->now);
		else
			world_ask(o, 0, REQUEST_RESUME_NOW, 0);
		if (i == 2)
			guard_observe(o->g, &o->s);
		world_run(o, 10 * S);
		assert_orders(o, 0, RESUME);
		assert_has(world_last(o, "may not return yet")->evidence, "4096 MiB are free");
	}
}

GUARD_ROW("31, 32", a_worker_returns_only_when_it_fits_and_the_check_is_named)
{
	/* A rule ignores this process, so it is no contender, but it takes memory: 4 GiB are
	 * free, 8 GiB are needed. */
	world_guest(o, "ignored", 0, 8 * GIB, 20 * S, 100 * S);
	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 30 * S);
	world_until(o, 95 * S);
	assert_state(o, STATE_EVICTED);
	assert_decided(o, 1, STATE_PRECHECK, STATE_EVICTED, "may not return yet");
	assert_has(world_status(o, 0).why, "needs 10240 MiB with headroom");
	assert_has(world_status(o, 0).why, "4096 MiB are free");
	assert_orders(o, 0, RESUME);
	world_until(o, 107 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("31", a_worker_that_does_not_fit_next_to_reservations_names_or_counts_them)
{
	static const struct {
		unsigned count;
		uint64_t bytes;
		int64_t pid;
		const char *why;
	} row[] = {
		{ 1, 5 * GIB, 4711,
		  "needs 15360 MiB with headroom, of which 5120 MiB are reserved for pid "
		  "4711, 12288 MiB are free" },
		{ 2, 2 * GIB, 0, "of which 4096 MiB are reserved (2 reservations)" },
	};
	uint64_t id;

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		world_again(o, 1, 1);
		begin(o);
		ask_run(o, REQUEST_EVICT, 0, 5 * S);
		for (unsigned n = 0; n < row[i].count; n++)
			assert_int_equal(guard_reserve(o->g, "GPU-0", row[i].bytes, row[i].pid,
						       0, o->now, &id),
					 0);
		ask_run(o, REQUEST_RESUME, 0, 40 * S);
		assert_has(world_status(o, 0).why, row[i].why);
	}
}

GUARD_ROW("31", a_worker_does_not_wait_for_its_own_reservation)
{
	uint64_t id;

	o->total[0] = 24 * GIB;
	begin(o);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 20 * GIB, 100, 0, o->now, &id), 0);
	world_run(o, 5 * S);
	assert_orders(o, 0, EVICT);
	ask_run(o, REQUEST_EVICT, 0, 5 * S);
	assert_state(o, STATE_EVICTED);
	ask_run(o, REQUEST_RESUME, 0, 40 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("31", a_worker_that_filled_the_gpu_alone_returns_without_headroom)
{
	o->w[0].load[0] = 11 * GIB; /* the GPU has 12 GiB; the headroom is 2 GiB */
	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 30 * S);
	world_run(o, 100 * S);
	assert_state(o, STATE_ACTIVE);
}

/* Steps with the times of guard_next_scene_ns(), until the worker is ordered to return. The
 * worker's GPU sleeps all the time. Returns how long this took. */
static uint64_t asleep_until_it_returns(struct world *o)
{
	const uint64_t from = o->now;

	o->health[0] = SCENE_ASLEEP;
	o->adaptive = true;
	world_step(o);
	while (!o->w[0].verbs[ORDER_RESUME]) {
		assert_true(o->now < from + 600 * S);
		world_step(o);
	}
	o->health[0] = SCENE_OK;
	world_run(o, 5 * S);
	assert_state(o, STATE_ACTIVE);
	return o->now - from - 5 * S;
}

GUARD_ROW("27, 29, 32", a_worker_returns_in_time_to_a_gpu_that_is_asleep)
{
	begin(o); /* a person's request ends */
	ask_run(o, REQUEST_EVICT, 60 * S, 5 * S);
	assert_in_range(asleep_until_it_returns(o), 55 * S, 57 * S);

	world_again(o, 1, 1); /* the quiet time ends */
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 22 * S);
	assert_state(o, STATE_QUIET);
	assert_in_range(asleep_until_it_returns(o), 28 * S, 30 * S);

	world_again(o, 1, 1); /* the machine is on mains power again */
	o->p.worker[0].ac_only = true;
	begin(o);
	o->host.on_battery = true;
	world_run(o, 5 * S);
	assert_state(o, STATE_EVICTED);
	o->host.on_battery = false;
	assert_in_range(asleep_until_it_returns(o), 10 * S, 22 * S);

	world_again(o, 1, 1); /* a schedule ends: the world starts at 12:00 */
	o->p.worker[0].schedule[0] = (struct policy_span){ 127, 12 * 60, 12 * 60 + 5 };
	o->p.worker[0].schedules = 1;
	world_begin(o);
	world_until(o, 10 * S);
	assert_state(o, STATE_EVICTED);
	assert_in_range(asleep_until_it_returns(o), 290 * S, 302 * S);
}

/* The size of its memory was never read. */
GUARD_ROW("31, 32", memory_of_an_unknown_size_is_free_while_the_gpu_is_asleep)
{
	const struct guard_reservation room = {
		.id = 1, .gpu = "GPU-0", .bytes = 6 * GIB, .until_ns = UINT64_MAX
	};

	for (unsigned promised = 0; promised < 2; promised++) {
		world_again(o, 1, 1);
		o->w[0].resident = false;
		o->health[0] = SCENE_ASLEEP;
		record(o, CONTENTION, 2);
		world_begin(o);
		if (promised)
			assert_int_equal(guard_reserve_restore(o->g, &room), 0);
		world_run(o, MINUTE);
		assert_orders(o, !promised, RESUME);
		if (promised)
			assert_has(world_status(o, 0).why, "memory of its GPU is unknown");
	}
}

GUARD_ROW("32", no_worker_returns_to_a_warm_gpu)
{
	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 5 * S);
	assert_state(o, STATE_EVICTED);
	guard_set_heat(o->g, "GPU-0", HEAT_WARM, "6 C below its limit");
	ask_run(o, REQUEST_RESUME_NOW, 0, 30 * S);
	assert_state(o, STATE_EVICTED);
	assert_has(world_last(o, "may not return yet")->evidence, "its GPU is too warm");
	guard_set_heat(o->g, "GPU-0", 0, "");
	world_run(o, 10 * S);
	assert_state(o, STATE_ACTIVE);
}

/* To load its model, a worker needs 256 MiB of host memory; 100 MiB are free. */
GUARD_ROW("32", host_memory_is_required_only_for_kinds_that_need_it_to_load)
{
	static const struct {
		enum policy_kind kind;
		unsigned level;
		bool back;
	} row[] = {
		{ WORKER_OLLAMA, 0, false },
		{ WORKER_CHECKPOINT, 0, true },
		{ WORKER_VLLM, 1, true },
		{ WORKER_VLLM, 2, false },
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		world_again(o, 1, 1);
		o->p.worker[0].kind = row[i].kind;
		o->p.worker[0].level = row[i].level;
		o->host.host_free = 100 * MIB;
		begin(o);
		ask_run(o, REQUEST_EVICT, 5 * S, 15 * S);
		assert_orders(o, row[i].back, RESUME);
		assert_decided(o, !row[i].back, STATE_PRECHECK, STATE_EVICTED, NULL);
	}
}

GUARD_ROW("31, 34", a_worker_that_does_not_answer_is_asked_again_and_reported_once)
{
	begin(o);
	o->w[0].acts.deaf = true;
	ask_run(o, REQUEST_EVICT, 5 * S, 27 * S);
	assert_decided(o, 1, STATE_RESUME, STATE_EVICTED, "may not return yet");
	assert_int_equal(world_last(o, "may not return yet")->blocked, 1u << BLOCK_ENDPOINT);
	assert_decided(o, 1, ANY, STATE_RESUME, NULL);
	assert_in_range(o->w[0].verbs[ORDER_RESUME], 4, 5);
	o->w[0].acts.deaf = false;
	world_run(o, 6 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("31", a_worker_that_does_not_answer_holds_up_no_other)
{
	world_again(o, 1, 2);
	o->w[0].load[0] = o->w[1].load[0] = 4 * GIB;
	o->w[1].acts.deaf = true;
	o->p.worker[1].priority = 9;
	begin(o);
	world_ask(o, -1, REQUEST_EVICT, 5 * S);
	world_run(o, 20 * S);
	assert_state(o, STATE_ACTIVE);
	assert_int_equal(world_state(o, 1), STATE_EVICTED);
}

GUARD_ROW("30, 32", resume_now_that_cannot_be_does_not_hide_contention_later)
{
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 20 * S);
	ask_run(o, REQUEST_RESUME_NOW, 0, 10 * S); /* 8 GiB are free, 10 are needed */
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, CONTENTION);
}

GUARD_ROW("33", a_lazy_worker_is_only_opened_again)
{
	o->p.worker[0].resume = RESUME_LAZY;
	begin(o);
	ask_run(o, REQUEST_EVICT, 10 * S, 13 * S);
	assert_state(o, STATE_ACTIVE);
	assert_false(o->w[0].resident);
	assert_false(o->w[0].closed);
	assert_orders(o, 0, RESUME);
}

GUARD_ROW("33", a_worker_that_no_request_wakes_is_woken_however_lazy)
{
	static const enum policy_kind kind[] = { WORKER_VLLM, WORKER_SGLANG };

	for (unsigned i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
		world_again(o, 1, 1);
		o->p.worker[0].kind = kind[i];
		o->p.worker[0].resume = RESUME_LAZY;
		begin(o);
		ask_run(o, REQUEST_EVICT, 10 * S, 5 * S);
		assert_state(o, STATE_EVICTED);
		world_run(o, 15 * S);
		assert_true(o->w[0].resident);
		assert_awake(o);
	}
}

GUARD_ROW("33", a_lazy_worker_that_was_stopped_is_started_again)
{
	static const enum policy_kind kind[] = { WORKER_COMFY, WORKER_OLLAMA, WORKER_SYSTEMD };

	for (unsigned i = 0; i < 3; i++) {
		world_again(o, 1, 1);
		o->p.worker[0].kind = kind[i];
		o->p.worker[0].resume = RESUME_LAZY;
		o->p.worker[0].match.unit = "w0.service";
		o->p.standard.max_level = 4;
		o->w[0].acts.fail_level = 2;
		o->w[0].acts.returns_empty = true;
		begin(o);
		ask_run(o, REQUEST_EVICT, 20 * S, 19 * S);
		assert_state(o, STATE_EVICTED);
		assert_false(o->w[0].alive);
		world_run(o, 5 * S);
		assert_orders(o, 1, RESUME);
		assert_true(o->w[0].alive);
		assert_false(o->w[0].resident);
		assert_false(o->w[0].closed);
		assert_state(o, STATE_ACTIVE);
	}
}

GUARD_ROW("34", a_return_that_fails_waits_twice_as_long_each_time)
{
	uint64_t at[8];
	unsigned n = 0;

	begin(o);
	o->w[0].acts.wont_return = true;
	world_ask(o, 0, REQUEST_EVICT, 10 * S);
	while (n < 7) {
		unsigned before = o->w[0].verbs[ORDER_RESUME];

		world_step(o);
		if (o->w[0].verbs[ORDER_RESUME] > before)
			at[n++] = o->now;
	}
	for (unsigned i = 1; i < 7; i++) {
		uint64_t want = 60 * S << (i - 1);

		want = want < 600 * S ? want : 600 * S;
		assert_in_range(at[i] - at[i - 1], want, want + 6 * S);
	}
	assert_true(world_decided(o, 0, STATE_RESUME, STATE_EVICTED, "resume failed") >= 6);
	o->w[0].acts.wont_return = false;
	world_run(o, 601 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("34", a_return_that_fails_waits_also_without_a_quiet_time)
{
	o->p.standard.quiet_ns = 0;
	begin(o);
	o->w[0].acts.wont_return = true;
	ask_run(o, REQUEST_EVICT, 5 * S, 600 * S);
	/* after 5, 10, 20, 40, 80, 160 and 320 s, each at the next check */
	assert_in_range(o->w[0].verbs[ORDER_RESUME], 5, 8);
}

GUARD_ROW("30, 34", resume_now_does_not_wait_after_a_failure)
{
	begin(o);
	o->w[0].acts.wont_return = true;
	ask_run(o, REQUEST_EVICT, 10 * S, 15 * S);
	assert_orders(o, 1, RESUME);
	o->w[0].acts.wont_return = false;
	ask_run(o, REQUEST_RESUME_NOW, 0, 2 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("36", a_return_that_loads_nothing_is_tried_again_without_an_eviction)
{
	begin(o);
	o->w[0].acts.returns_empty = true;
	ask_run(o, REQUEST_EVICT, 10 * S, 120 * S);
	assert_state(o, STATE_VERIFY_UP);
	world_run(o, 15 * S);
	assert_decided(o, 1, STATE_VERIFY_UP, STATE_EVICTED, "resume failed");
	assert_has(world_last(o, "resume failed")->evidence, "it holds none of its memory");
	world_run(o, 50 * S);
	assert_orders(o, 1, RESUME);
	o->w[0].acts.returns_empty = false;
	world_run(o, 20 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 1, EVICT);
}

/* The worker had loaded three models (9 GiB), and its user unloaded one: 6 GiB remain. */
GUARD_ROW("35", the_need_is_what_was_held_when_the_eviction_began)
{
	o->w[0].load[0] = 9 * GIB;
	begin(o);
	world_run(o, 5 * S);
	o->w[0].load[0] = 6 * GIB;
	world_run(o, S);
	ask_run(o, REQUEST_EVICT, 5 * S, 15 * S);
	assert_state(o, STATE_ACTIVE);
	assert_int_equal(world_status(o, 0).need_bytes, 6 * GIB);
	assert_orders(o, 1, EVICT);
}

GUARD_ROW("35", a_worker_that_lists_its_models_is_back_with_any_memory)
{
	begin(o);
	o->w[0].acts.lists = true;
	o->w[0].acts.returns = 2 * GIB;
	ask_run(o, REQUEST_EVICT, 5 * S, 15 * S);
	assert_decided(o, 1, STATE_VERIFY_UP, STATE_ACTIVE, "is back");
	assert_has(world_last(o, "is back")->evidence, "it held 8192 MiB before, now 2048 MiB");
	world_run(o, 300 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 1, EVICT);
	assert_int_equal(world_status(o, 0).need_bytes, 2 * GIB);
}

/* The list of models after one return does not prove that the worker is back after its next
 * return. */
GUARD_ROW("35", a_list_of_models_counts_for_one_return)
{
	begin(o);
	o->w[0].acts.lists = true;
	ask_run(o, REQUEST_EVICT, 5 * S, 15 * S);
	assert_state(o, STATE_ACTIVE);
	o->w[0].acts.lists = false;
	o->w[0].acts.returns = 2 * GIB;
	ask_run(o, REQUEST_EVICT, 5 * S, 30 * S);
	assert_state(o, STATE_VERIFY_UP);
}

GUARD_ROW("36", a_smaller_return_is_reported_and_not_evicted_again)
{
	begin(o);
	o->w[0].acts.returns = 2 * GIB;
	ask_run(o, REQUEST_EVICT, 5 * S, 100 * S);
	assert_state(o, STATE_VERIFY_UP);
	world_run(o, 30 * S);
	assert_decided(o, 1, STATE_VERIFY_UP, STATE_ACTIVE, "is back");
	assert_has(world_last(o, "is back")->evidence, "it holds only 2048 of 8192 MiB");
	world_run(o, 300 * S);
	assert_orders(o, 1, EVICT);
	assert_orders(o, 1, RESUME);
}

GUARD_ROW("37", on_the_way_back_a_contender_that_does_not_fit_turns_the_worker_round)
{
	o->total[0] = 24 * GIB;
	world_guest(o, "guest", 0, 15 * GIB, 60 * S, 0);
	begin(o);
	o->w[0].acts.returns_empty = true;
	world_ask(o, 0, REQUEST_EVICT, 10 * S);
	world_until(o, 59 * S);
	assert_state(o, STATE_VERIFY_UP);
	world_until(o, 62 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("37", during_a_return_a_graphics_process_reverses_it_and_compute_waits)
{
	for (unsigned graphics = 0; graphics < 2; graphics++) {
		world_again(o, 1, 1);
		o->total[0] = 24 * GIB;
		world_guest(o, "guest", 0, 3 * GIB, 60 * S, 0)->type =
			graphics ? GW_PROCESS_GRAPHICS : GW_PROCESS_COMPUTE;
		begin(o);
		o->w[0].acts.returns_empty = true;
		world_ask(o, 0, REQUEST_EVICT, 10 * S);
		world_until(o, 59 * S);
		assert_state(o, STATE_VERIFY_UP);
		world_until(o, 65 * S);
		assert_decided(o, graphics, STATE_VERIFY_UP, STATE_DRAIN, NULL);
		assert_state(o, graphics ? STATE_EVICTED : STATE_VERIFY_UP);
	}
}

/* Makes scenes until the guard orders a start of the worker, and fetches this order. The test
 * must pass the outcome. */
static void until_ordered_to_start(struct world *o, struct guard_order *ret)
{
	bool came = false;

	world_begin(o);
	for (unsigned n = 0; !came && n < 100; n++, o->now += 100 * MS) {
		world_scene(o);
		guard_observe(o->g, &o->s);
		came = next_order(o, ret);
	}
	assert_int_equal(ret->verb, ORDER_RESUME);
	assert_true(ret->start);
}

/* The order to start the worker is under way when a reason begins. */
GUARD_ROW("49", a_managed_worker_that_is_turned_back_before_it_appears_is_absent)
{
	static const struct {
		enum policy_kind kind;
		/* true: the kind evicts by stopping the process, so the start is undone */
		bool stopped;
	} row[] = { { WORKER_OLLAMA, false }, { WORKER_SYSTEMD, true } };

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct guard_outcome done = { .ending = ENDING_DONE };
		struct guard_order d;

		world_again(o, 1, 1);
		o->p.worker[0].kind = row[i].kind;
		o->p.worker[0].match.unit = "w0.service";
		o->p.worker[0].managed = true;
		o->w[0].alive = false;
		until_ordered_to_start(o, &d);
		ask_only(o, REQUEST_EVICT);
		assert_state(o, STATE_DRAIN); /* wait until the outcome of the order is known */
		done.order = d.id;
		guard_outcome(o->g, &done, o->now);
		world_run(o, 20 * S);
		assert_orders(o, row[i].stopped, EVICT);
		assert_state(o, row[i].stopped ? STATE_EVICTED : STATE_ABSENT);
		assert_int_equal(world_status(o, 0).mask, MANUAL);
	}
}

/* The order to start the worker is under way when an eviction begins and is called off. The
 * process appears a while after the outcome. */
GUARD_ROW("16, 49", a_worker_is_started_once_if_its_eviction_is_called_off_before_it_appears)
{
	struct guard_outcome done = { .ending = ENDING_DONE };
	struct guard_order d;

	o->p.worker[0].match.unit = "w0.service";
	o->p.worker[0].managed = true;
	o->w[0].alive = false;
	until_ordered_to_start(o, &d);
	ask_only(o, REQUEST_EVICT);
	assert_state(o, STATE_DRAIN);
	ask_only(o, REQUEST_RESUME);
	assert_state(o, STATE_VERIFY_UP);
	done.order = d.id;
	guard_outcome(o->g, &done, o->now);
	world_run(o, 2 * S);
	assert_orders(o, 0, RESUME); /* no second one */
	assert_decided(o, 0, STATE_VERIFY_UP, STATE_ABSENT, NULL);
	o->w[0].alive = true;
	world_run(o, 2 * S);
	assert_awake(o);
}

GUARD_ROW("30, 51", the_next_change_after_resume_now_is_at_once)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 22 * S);
	assert_state(o, STATE_QUIET);
	assert_true(world_status(o, 0).next_ns > o->now + 25 * S);
	world_ask(o, 0, REQUEST_RESUME_NOW, 0);
	assert_int_equal(world_last(o, "resume now")->from, STATE_QUIET);
	assert_int_equal(world_last(o, "resume now")->to, STATE_QUIET);
	assert_true(world_last(o, "resume now")->next_ns == o->now);
}

TEST_MAIN(NULL, NULL)
