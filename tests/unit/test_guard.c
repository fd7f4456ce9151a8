/* Tests the guard in simulated time: holds, schedules, several workers and GPUs, reservations,
 * and the time of the next scene. */
#include "guard_test.h"

GUARD_TEST(orphans_and_the_ignored_are_no_demand)
{
	world_guest(o, "ignored", 0, 2 * GIB, 5 * S, 0);
	world_guest(o, "dead", 0, GIB, 5 * S, 0)->orphan = true;
	world_begin(o);
	world_run(o, MINUTE);
	assert_int_equal(o->orders, 0);
}

GUARD_TEST(simulated_gpus_are_acted_on_only_when_configured)
{
	for (unsigned allowed = 0; allowed < 2; allowed++) {
		world_again(o, 1, 1);
		o->simulated = true;
		o->p.simulated_too = allowed;
		begin(o);
		ask_run(o, REQUEST_EVICT, 0, 5 * S);
		assert_state(o, STATE_EVICTED);
		assert_int_equal(o->w[0].resident, !allowed);
	}
}

/* The next scene ends the order. It lacks the worker's GPU, and another GPU has its place. */
GUARD_TEST(the_end_of_an_order_in_a_dry_run_is_reported_with_the_scene_before_it)
{
	const struct guard_decision *d;

	world_again(o, 2, 1);
	o->p.mode = GUARD_DRY_RUN;
	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 0);
	world_step(o);
	o->gone[0] = true;
	world_step(o);
	d = world_last(o, "drained");
	assert_non_null(d);
	assert_string_equal(d->gpu, "GPU-0");
	assert_int_equal(d->index, 0);
}

/* The processes on a GPU are listed ten times per second, but a worker's root process is
 * searched for less often. So a worker that was stopped and started is first seen on the GPU,
 * and later found with a new pid. */
GUARD_TEST(a_worker_that_is_started_again_does_not_end_when_it_is_found)
{
	o->p.worker[0].kind = WORKER_SYSTEMD;
	o->p.worker[0].match.name = "w0";
	o->p.worker[0].knobs.max_level = 4;
	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 5 * S);
	assert_state(o, STATE_EVICTED);
	assert_false(o->w[0].alive);
	o->w[0].unlisted = true;
	ask_run(o, REQUEST_RESUME, 0, 5 * S);
	assert_state(o, STATE_ACTIVE);
	o->w[0].unlisted = false;
	world_run(o, 5 * S);
	assert_state(o, STATE_ACTIVE);
	assert_decided(o, 0, ANY, STATE_ABSENT, NULL);
	/* A worker that restarts without an order counts as ended. */
	o->w[0].pid++;
	world_run(o, 5 * S);
	assert_decided(o, 1, ANY, STATE_ABSENT, NULL);
}

GUARD_TEST(holds_need_a_time_and_replace_each_other)
{
	char message[200];

	world_again(o, 1, 2);
	o->total[0] = 24 * GIB;
	begin(o);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, 0), -GW_E_ARG);
	assert_int_equal(world_ask(o, 2, REQUEST_EVICT, 0), -GW_E_NOENT);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, 10 * S), 0);
	assert_int_equal(
		guard_request(o->g, 0, REQUEST_EVICT, 0, o->now, message, sizeof(message)),
		-GW_E_STATE);
	assert_string_equal(
		message, "w0 is held active; to end this hold, run gpuward guard release w0");
	/* a request for all workers moves all of them or none */
	assert_int_equal(world_ask(o, -1, REQUEST_EVICT, 0), -GW_E_STATE);
	assert_int_equal(world_status(o, 1).mask, 0);
	world_run(o, 11 * S);
	assert_int_equal(world_status(o, 0).hold, HOLD_NONE);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_EVICTED, UINT64_MAX), 0);
	assert_int_equal(world_ask(o, 0, REQUEST_RESUME, 0), -GW_E_STATE);
	world_run(o, 600 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX), 0);
	world_run(o, 3 * S);
	assert_state(o, STATE_ACTIVE);
	assert_int_equal(world_status(o, 0).mask, 0);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_EVICTED, UINT64_MAX), 0);
	world_run(o, 3 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_ask(o, 0, REQUEST_RELEASE, 0), 0);
	world_run(o, 3 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_TEST(a_hold_active_brings_back_a_worker_that_contention_evicted)
{
	o->total[0] = 24 * GIB;
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 20 * S);
	assert_state(o, STATE_EVICTED);
	ask_run(o, REQUEST_HOLD_ACTIVE, 60 * S, 3 * S);
	assert_true(o->w[0].resident);
	world_run(o, 120 * S); /* the hold and the minimum residency end */
	assert_state(o, STATE_EVICTED);
}

GUARD_TEST(a_clock_that_is_set_moves_no_deadline)
{
	static const int64_t steps[] = { 3600, -3600 };

	for (unsigned i = 0; i < 2; i++) {
		world_again(o, 1, 1);
		world_guest(o, "job", 0, 4 * GIB, 200 * S, 220 * S);
		begin(o);
		world_ask(o, 0, REQUEST_HOLD_EVICTED, 100 * S);
		world_until(o, 50 * S);
		o->wall_step_ns = steps[i] * (int64_t)S;
		world_until(o, 98 * S);
		assert_int_equal(world_status(o, 0).hold, HOLD_EVICTED);
		world_until(o, 103 * S);
		assert_int_equal(world_status(o, 0).hold, HOLD_NONE);
		world_until(o, 210 * S);
		assert_state(o, STATE_EVICTED);
		o->wall_step_ns = 0; /* the clock is set back during the quiet time */
		world_until(o, 245 * S);
		assert_orders(o, 1, RESUME);
		world_until(o, 256 * S);
		assert_orders(o, 2, RESUME);
	}
}

static void quiet_hours(struct world *o, unsigned from_min, unsigned to_min)
{
	world_again(o, 1, 1);
	o->p.worker[0].schedule[0] = (struct policy_span){ 127, from_min, to_min };
	o->p.worker[0].schedules = 1;
	o->step_ns = 10 * S;
	world_begin(o);
}

GUARD_TEST(quiet_hours_are_local_hours)
{
	quiet_hours(o, 14 * 60, 15 * 60); /* the world starts at 12:00 UTC */
	o->utc_offset_s = 3600;
	world_until(o, 59 * MINUTE);
	assert_state(o, STATE_ACTIVE);
	world_until(o, 62 * MINUTE);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_SCHEDULE);
	world_until(o, 119 * MINUTE);
	assert_state(o, STATE_EVICTED);
	world_until(o, 122 * MINUTE);
	assert_state(o, STATE_ACTIVE);
}

GUARD_TEST(quiet_hours_end_when_clocks_jump_over_their_end)
{
	quiet_hours(o, 12 * 60, 13 * 60 + 30);
	world_until(o, 59 * MINUTE);
	assert_state(o, STATE_EVICTED);
	o->utc_offset_s = 3600; /* 12:59, then 14:00 */
	world_until(o, 62 * MINUTE);
	assert_state(o, STATE_ACTIVE);
}

GUARD_TEST(an_hour_that_comes_twice_counts_once)
{
	quiet_hours(o, 13 * 60, 13 * 60 + 30);
	o->utc_offset_s = 3600; /* 13:00 */
	world_until(o, 20 * MINUTE);
	assert_state(o, STATE_EVICTED);
	world_until(o, 60 * MINUTE);
	assert_state(o, STATE_ACTIVE);
	o->utc_offset_s = 0; /* 13:59, then 13:00 again */
	world_until(o, 150 * MINUTE);
	assert_decided(o, 0, STATE_ACTIVE, STATE_DRAIN, NULL);
	assert_int_equal(world_status(o, 0).evictions, 1);
	assert_state(o, STATE_ACTIVE);
	/* on the next day the schedule applies again */
	world_until(o, 25 * 60 * MINUTE + 10 * MINUTE);
	assert_state(o, STATE_EVICTED);
}

GUARD_TEST(a_worker_with_ac_only_returns_ten_seconds_after_mains_power)
{
	o->p.worker[0].ac_only = true;
	begin(o);
	o->host.on_battery = true;
	world_run(o, 5 * S);
	assert_state(o, STATE_EVICTED);
	o->host.on_battery = false;
	world_run(o, 9 * S);
	assert_state(o, STATE_EVICTED);
	world_run(o, 4 * S);
	assert_state(o, STATE_ACTIVE);
}

/* Three workers of 8 GiB on a board of 40 GiB; later workers have a higher priority. */
static void three(struct world *o)
{
	world_again(o, 1, 3);
	o->total[0] = 40 * GIB;
	for (unsigned i = 0; i < 3; i++)
		o->p.worker[i].priority = (int)i;
}

GUARD_TEST(all_workers_leave_for_an_unknown_program_and_only_enough_for_a_known_one)
{
	three(o);
	world_guest(o, "render", 0, 14 * GIB, 10 * S, 40 * S);
	world_guest(o, "render", 0, 14 * GIB, 300 * S, 340 * S);
	world_begin(o);
	world_until(o, 20 * S);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(world_state(o, i), STATE_EVICTED);
	world_until(o, 290 * S);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(world_state(o, i), STATE_ACTIVE);
	/* 2 GiB stay free (40 - 24 - 14), but the headroom is 4 GiB: one worker must leave. */
	world_until(o, 320 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	assert_int_equal(world_state(o, 2), STATE_ACTIVE);
}

GUARD_TEST(no_worker_leaves_for_a_known_contender_that_fits)
{
	three(o);
	world_guest(o, "render", 0, 10 * GIB, 10 * S, 40 * S);
	world_guest(o, "render", 0, 10 * GIB, 300 * S, 340 * S);
	world_begin(o);
	world_until(o, 360 * S);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(world_status(o, i).evictions, 1);
}

GUARD_TEST(a_known_contender_that_takes_more_than_its_earlier_maximum_is_demand)
{
	three(o);
	o->total[0] = 60 * GIB;
	world_guest(o, "render", 0, 7 * GIB, 10 * S, 40 * S);
	world_guest(o, "render", 0, 7 * GIB, 300 * S, 400 * S);
	world_begin(o);
	world_until(o, 320 * S);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(world_state(o, i), STATE_ACTIVE);
	/* 23 GiB are free, but how much more the contender will take is unknown */
	o->guest[1].bytes = 13 * GIB;
	world_until(o, 330 * S);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(world_state(o, i), STATE_EVICTED);
}

GUARD_TEST(workers_return_one_at_a_time_the_most_expensive_first)
{
	unsigned order[3] = { 0 }, n = 0;

	three(o);
	world_guest(o, "render", 0, 14 * GIB, 10 * S, 40 * S);
	world_begin(o);
	world_until(o, 100 * S);
	for (size_t i = 0; i < o->log.says; i++) {
		if (o->log.said[i].to == STATE_RESUME)
			order[n++] = o->log.said[i].worker;
		if (o->log.said[i].to == STATE_ACTIVE && n)
			assert_int_equal(o->log.said[i].worker, order[n - 1]);
	}
	assert_int_equal(n, 3);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 1);
	assert_int_equal(order[2], 0);
}

GUARD_TEST(a_cheap_worker_does_not_take_the_memory_an_expensive_one_waits_for)
{
	three(o);
	o->w[2].load[0] = 16 * GIB;
	o->p.worker[0].resume = RESUME_NEVER;
	world_guest(o, "ignored", 0, 22 * GIB, 10 * S, 100 * S);
	begin(o);
	world_ask(o, -1, REQUEST_EVICT, 30 * S);
	world_until(o, 90 * S); /* 18 GiB are free: one worker of 8 GiB would fit, two do not */
	assert_int_equal(world_state(o, 1), STATE_EVICTED);
	assert_has(
		world_status(o, 1).why,
		"worker w2 returns first (needs 20480 MiB with headroom, 18432 MiB are free)");
	o->guest[0].bytes = 23 * GIB;
	world_until(o, 99 * S); /* the status is current, although no decision is reported */
	assert_has(world_status(o, 1).why, "20480 MiB with headroom, 17408 MiB are free)");
	assert_int_equal(world_decided(o, 1, ANY, ANY, "may not return yet"), 1);
	world_until(o, 115 * S);
	assert_int_equal(world_state(o, 2), STATE_ACTIVE);
	assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	assert_state(o, STATE_EVICTED);
	assert_has(world_status(o, 0).why, "resume is \"never\" in its configuration");
	ask_run(o, REQUEST_RESUME, 0, 10 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_TEST(a_worker_on_two_gpus_moves_as_one)
{
	world_again(o, 3, 2);
	o->w[0].load[1] = 6 * GIB;
	o->w[0].residue = 300 * MIB; /* stays on the first GPU only */
	o->w[1].load[0] = 0;
	o->w[1].load[2] = 8 * GIB;
	world_guest(o, "job", 1, 4 * GIB, 10 * S, 50 * S);
	world_begin(o);
	world_until(o, 20 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	assert_has(world_last(o, "freed")->evidence, "14036 MiB");
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "hot", o->now);
	world_until(o, 150 * S);
	assert_state(o, STATE_EVICTED); /* one GPU is cool, and the other is hot */
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, false, "", o->now);
	world_run(o, 5 * S);
	assert_state(o, STATE_ACTIVE);
}

static int reserved(struct world *o, uint64_t id, char message[200])
{
	return guard_reservation_ready(o->g, id, message, 200);
}

GUARD_TEST(a_reservation_moves_as_few_as_it_takes_cheapest_first)
{
	uint64_t id;
	char message[200];

	three(o); /* 16 GiB are free, 4 of them headroom */
	world_begin(o);
	world_run(o, S);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 12 * GIB, 0, UINT64_MAX, o->now, &id), 0);
	/* the reservation fits, however long the contender stays */
	assert_int_equal(reserved(o, id, message), 1);
	world_run(o, 5 * S);
	assert_int_equal(o->orders, 0);
	guard_release(o->g, id, o->now);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 20 * GIB, 0, 0, o->now, &id), 0);
	assert_int_equal(reserved(o, id, message), 0);
	world_run(o, 5 * S);
	assert_int_equal(reserved(o, id, message), 1);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_RESERVED);
	assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	world_run(o, 10 * MINUTE);
	assert_state(o, STATE_EVICTED);
	guard_release(o->g, id, o->now);
	world_run(o, 5 * S);
	assert_state(o, STATE_ACTIVE);
	assert_int_equal(reserved(o, id, message), -GW_E_NOENT);
}

/* The worker of the lowest priority is marked first, and then it is stuck or held active. */
GUARD_TEST(a_reservation_moves_the_next_worker_if_a_marked_one_does_not_leave)
{
	uint64_t id;
	char message[200];

	for (unsigned held = 0; held < 2; held++) {
		three(o); /* 16 GiB are free, 4 of them headroom */
		o->w[0].acts.fail_level = held ? 0 : 6;
		begin(o);
		assert_int_equal(guard_reserve(o->g, "GPU-0", 20 * GIB, 0, 0, o->now, &id), 0);
		world_fetch(o);
		if (held)
			assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX), 0);
		world_run(o, MINUTE);
		assert_state(o, held ? STATE_ACTIVE : STATE_STUCK);
		assert_int_equal(world_status(o, 0).mask, 1u << REASON_RESERVED);
		assert_int_equal(world_state(o, 1), STATE_EVICTED);
		assert_int_equal(world_state(o, 2), STATE_ACTIVE);
		assert_int_equal(reserved(o, id, message), 1);
	}
}

/* The memory that a returning worker has not allocated yet is not free. */
GUARD_TEST(a_reservation_waits_until_a_returning_worker_has_left_again)
{
	uint64_t id;
	char message[200];

	for (unsigned answers = 0; answers < 2; answers++) {
		world_again(o, 1, 1);
		begin(o); /* 12 GiB are free without the worker, which needs 8 */
		ask_run(o, REQUEST_EVICT, 0, 5 * S);
		assert_state(o, STATE_EVICTED);
		o->w[0].acts.silent = !answers;
		o->w[0].acts.returns_empty = true;
		ask_run(o, REQUEST_RESUME_NOW, 0, S);
		assert_state(o, answers ? STATE_VERIFY_UP : STATE_RESUME);
		assert_int_equal(guard_reserve(o->g, "GPU-0", 12 * GIB, 0, 0, o->now, &id), 0);
		assert_int_equal(reserved(o, id, message), 0);
		assert_has(message, "needs 12288 MiB, 4096 MiB are free on GPU-0");
		o->w[0].acts.silent = false;
		world_run(o, 10 * MINUTE);
		assert_int_equal(reserved(o, id, message), 1);
		assert_state(o, STATE_EVICTED);
	}
}

/* A worker that nobody may move keeps the memory that it will allocate. */
GUARD_TEST(memory_of_a_returning_worker_that_is_held_active_cannot_be_reserved)
{
	uint64_t id;
	char message[200];

	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 5 * S);
	o->w[0].acts.returns_empty = true;
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX), 0);
	world_run(o, S);
	assert_state(o, STATE_VERIFY_UP);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 12 * GIB, 0, 0, o->now, &id), 0);
	assert_int_equal(reserved(o, id, message), -GW_E_SIZE);
	assert_has(message, "only 4096 MiB can become free");
}

/* The memory without the headroom is enough, and no further worker can leave. */
GUARD_TEST(a_reservation_does_not_wait_for_a_worker_that_is_held_active)
{
	uint64_t id;
	char message[200];

	begin(o); /* 4 GiB are free */
	assert_int_equal(guard_reserve(o->g, "GPU-0", 4 * GIB, 0, 0, o->now, &id), 0);
	assert_int_equal(reserved(o, id, message), 0);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX), 0);
	world_run(o, 5 * S);
	assert_int_equal(reserved(o, id, message), 1);
	assert_state(o, STATE_ACTIVE);
}

GUARD_TEST(all_memory_of_a_gpu_that_is_asleep_can_be_reserved)
{
	uint64_t id;
	char message[200];

	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 5 * S);
	o->health[0] = SCENE_ASLEEP;
	world_step(o);
	assert_int_equal(guard_reserve(o->g, NULL, 12 * GIB, 0, 0, o->now, &id), 0);
	assert_int_equal(reserved(o, id, message), 1);
	world_step(o);
	assert_int_equal(reserved(o, id, message), 1);
}

GUARD_TEST(memory_is_reserved_for_one_process_only)
{
	uint64_t first, second;
	char message[200];

	o->total[0] = 24 * GIB;
	world_begin(o);
	world_run(o, S);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 6 * GIB, 0, 0, o->now, &first), 0);
	guard_release(o->g, first, o->now);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 20 * GIB, 0, 0, o->now, &first), 0);
	world_run(o, 5 * S);
	assert_int_equal(reserved(o, first, message), 1);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 20 * GIB, 0, 0, o->now, &second), 0);
	assert_int_equal(reserved(o, second, message), -GW_E_SIZE);
	assert_has(message, "needs 20480 MiB, only 4096 MiB can become free");
	assert_has(message, "20480 MiB are reserved for others");
	assert_int_equal(reserved(o, first, message), 1);
	guard_release(o->g, first, o->now);
	assert_int_equal(reserved(o, second, message), 1);
	/* the earlier reservation comes first, even if its place in the list is later */
	assert_int_equal(guard_reserve(o->g, "GPU-0", 4 * GIB, 0, 0, o->now, &first), 0);
	assert_int_equal(reserved(o, second, message), 1);
	assert_int_equal(reserved(o, first, message), 1);
}

GUARD_TEST(no_worker_returns_into_memory_that_is_promised)
{
	uint64_t id;

	o->total[0] = 40 * GIB;
	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 3 * S);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 30 * GIB, 0, 60 * S, o->now, &id), 0);
	ask_run(o, REQUEST_RESUME, 0, 50 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, 0);
	assert_has(world_status(o, 0).why, "needs 43008 MiB");
	world_run(o, 20 * S);
	assert_state(o, STATE_ACTIVE);
}

GUARD_TEST(a_worker_never_leaves_for_its_own_reservation)
{
	uint64_t id;
	char message[200];

	for (unsigned own = 0; own < 2; own++) { /* the worker holds 8 of 12 GiB */
		world_again(o, 1, 1);
		world_begin(o);
		world_run(o, S);
		assert_int_equal(guard_reserve(o->g, "GPU-0", 11 * GIB, own ? 100 : 4711, 0,
					       o->now, &id),
				 0);
		world_run(o, 5 * S);
		assert_int_equal(reserved(o, id, message), 1);
		assert_state(o, own ? STATE_ACTIVE : STATE_EVICTED);
	}
}

GUARD_TEST(an_impossible_reservation_moves_no_worker_and_reports_the_available_memory)
{
	uint64_t id;
	char message[200];

	three(o);
	world_guest(o, "ignored", 0, 10 * GIB, 0, 0);
	world_begin(o);
	world_run(o, S);
	assert_int_equal(guard_reserve(o->g, "GPU-9", GIB, 0, 0, o->now, &id), -GW_E_NODEV);
	assert_int_equal(guard_reserve(o->g, NULL, 31 * GIB, 0, 0, o->now, &id), 0);
	world_run(o, 5 * S);
	assert_int_equal(reserved(o, id, message), -GW_E_SIZE);
	assert_has(message, "insufficient_vram: needs 31744 MiB, only 30720 MiB can");
	assert_has(message, "try again in 30 s");
	assert_int_equal(o->orders, 0);
}

GUARD_TEST(a_reservation_ends_with_its_time_and_is_used_up_by_its_owner)
{
	uint64_t id;
	char message[200];

	three(o);
	world_begin(o);
	world_run(o, S);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 20 * GIB, 1000, 60 * S, o->now, &id), 0);
	world_run(o, 5 * S);
	/* The owner takes the memory: no other worker must leave. */
	world_guest(o, "ignored", 0, 20 * GIB, 7 * S, 0);
	world_run(o, 20 * S);
	assert_int_equal(reserved(o, id, message), 1);
	assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	o->guests = 0;
	world_run(o, 45 * S);
	assert_state(o, STATE_ACTIVE);
}

/* The mark of one reservation is enough for another one as long as it lasts. */
GUARD_TEST(a_worker_that_leaves_for_an_ended_reservation_keeps_leaving_for_another_one)
{
	uint64_t other, ends, lasts;

	for (unsigned expires = 0; expires < 2; expires++) {
		three(o); /* 16 GiB are free, 4 of them headroom */
		world_guest(o, "ignored", 0, 11 * GIB, 0, 3 * S);
		o->w[0].acts.silent = true; /* it still drains when the reservation ends */
		world_begin(o);
		world_run(o, S);
		assert_int_equal(guard_reserve(o->g, "GPU-0", MIB, 0, 0, o->now, &other), 0);
		assert_int_equal(guard_reserve(o->g, "GPU-0", 2 * GIB, 0, expires ? 3 * S : 0,
					       o->now, &ends),
				 0);
		guard_release(o->g, other, o->now); /* its place is before that of `ends` */
		world_until(o, 3500 * MS);
		assert_int_equal(
			guard_reserve(o->g, "GPU-0", 25 * GIB / 2, 0, 0, o->now, &lasts), 0);
		if (!expires)
			guard_release(o->g, ends, o->now);
		world_until(o, 5 * S);
		assert_decided(o, 1, ANY, STATE_DRAIN, NULL);
		assert_decided(o, 0, STATE_DRAIN, ANY, NULL);
		assert_int_equal(world_status(o, 0).mask, 1u << REASON_RESERVED);
		assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	}
}

GUARD_TEST(scenes_are_frequent_while_a_worker_runs_and_rare_while_the_gpu_sleeps)
{
	uint64_t wait;

	world_begin(o);
	assert_int_equal(guard_next_scene_ns(o->g, o->now), o->now);
	world_step(o);
	wait = guard_next_scene_ns(o->g, o->now) - o->now;
	assert_in_range(wait, 90 * MS, 110 * MS);
	ask_run(o, REQUEST_EVICT, 0, 5 * S);
	wait = guard_next_scene_ns(o->g, o->now) - o->now;
	assert_in_range(wait, 900 * MS, 1100 * MS);
	/* a worker that is out may return without an event, so scenes never stop */
	o->health[0] = SCENE_ASLEEP;
	world_step(o);
	wait = guard_next_scene_ns(o->g, o->now) - o->now;
	assert_in_range(wait, 9 * S, 11 * S);
	ask_run(o, REQUEST_HOLD_EVICTED, 3 * S, S);
	wait = guard_next_scene_ns(o->g, o->now) - o->now;
	assert_int_equal(wait, 2 * S);
	world_again(o, 1, 1);
	o->w[0].load[0] = 0;
	o->p.worker[0].gpus[0] = "GPU-0";
	o->p.worker[0].gpu_count = 1;
	begin(o);
	o->health[0] = SCENE_ASLEEP;
	world_step(o);
	assert_state(o, STATE_ACTIVE);
	assert_true(guard_next_scene_ns(o->g, o->now) == UINT64_MAX);
}

GUARD_TEST(utilisation_is_read_only_while_there_is_a_possible_contender)
{
	world_guest(o, "Xorg", 0, 60 * MIB, 0, 0);
	world_guest(o, "tool", 0, 60 * MIB, 5 * S, 10 * S);
	world_begin(o);
	world_until(o, 4 * S);
	assert_false(guard_wants_utilisation(o->g));
	world_until(o, 6 * S);
	assert_true(guard_wants_utilisation(o->g));
	world_until(o, 11 * S);
	assert_false(guard_wants_utilisation(o->g));
}

GUARD_TEST(a_reservation_of_an_earlier_run_keeps_its_number_and_its_room)
{
	struct guard_reservation room = {
		.id = 41, .gpu = "GPU-0", .bytes = 10 * GIB, .until_ns = UINT64_MAX
	};
	uint64_t id;

	world_begin(o);
	world_until(o, 5 * S);
	assert_int_equal(guard_reserve(o->g, "GPU-0", 10 * GIB, 0, 0, o->now, &id), 0);
	world_run(o, 10 * S);
	assert_false(o->w[0].resident);
	world_restart(o);
	assert_int_equal(guard_reserve_restore(o->g, &room), 0);
	assert_int_equal(guard_reserve_restore(o->g, &room), -GW_E_STATE);
	world_run(o, 300 * S);
	assert_false(o->w[0].resident);
	assert_int_equal(guard_reserve(o->g, "GPU-0", GIB, 0, S, o->now, &id), 0);
	assert_true(id > 41);
	room.id = 99;
	assert_int_equal(guard_reserve_restore(o->g, &room), -GW_E_STATE); /* too late */
	guard_release(o->g, 41, o->now);
	world_run(o, 300 * S);
	assert_true(o->w[0].resident);
}

TEST_MAIN(NULL, NULL)
