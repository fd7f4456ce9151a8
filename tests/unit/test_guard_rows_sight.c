/* Tests the guard's state machine (docs/GUARD-MACHINE.md), rows 41 to 47, 50, 52 and 53: GPUs
 * that cannot be read, the end of the service, and a change to dry-run and back. */
#include "guard_test.h"

GUARD_ROW("41, 42", a07_ten_errors_are_borne_and_eleven_make_it_blind_until_it_heals)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 5 * S);
	for (unsigned i = 1; i <= 10; i++) {
		o->errors[0] = i;
		world_step(o);
		assert_false(world_status(o, 0).blind);
		assert_int_equal(world_status(o, 0).resident_bytes, 8 * GIB);
	}
	o->errors[0] = 11;
	world_until(o, 30 * S);
	assert_true(world_status(o, 0).blind);
	assert_state(o, STATE_ACTIVE); /* the last decision is kept */
	assert_decided(o, 1, ANY, ANY, "GPU unreadable");
	assert_int_equal(o->orders, 0);
	o->errors[0] = 0;
	world_step(o);
	world_step(o);
	assert_true(world_status(o, 0).blind);
	world_step(o);
	assert_false(world_status(o, 0).blind);
	assert_decided(o, 1, STATE_ACTIVE, STATE_RECONCILE, "GPU readable");
	world_run(o, 2 * S);
	assert_state(o, STATE_EVICTED); /* the guard acts again */
}

GUARD_ROW("41, 42", on_blind_evict_is_verified_when_the_gpu_is_readable)
{
	o->p.evict_when_blind = true;
	begin(o);
	o->errors[0] = 11;
	world_run(o, 60 * S);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_BLIND);
	assert_state(o, STATE_VERIFY);
	assert_orders(o, 1, EVICT);
	o->errors[0] = 0;
	world_run(o, 10 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 1, RESUME);
}

/* The worker's memory is on GPU 0, and GPU 1 cannot be read. */
/* The check before its return fails as it did before the GPU became blind. */
GUARD_ROW("32, 42", a_stuck_worker_that_may_not_return_is_stuck_again_after_a_blind_gpu)
{
	o->p.worker[0].kind = WORKER_VLLM;
	o->p.worker[0].resume = RESUME_NEVER;
	o->w[0].acts.lies = UINT_MAX;
	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 20 * S);
	ask_run(o, REQUEST_RELEASE, 0, 20 * S);
	assert_state(o, STATE_STUCK);
	o->errors[0] = 11;
	world_run(o, 2 * S);
	o->errors[0] = 0;
	world_run(o, 10 * S);
	assert_state(o, STATE_STUCK);
	assert_decided(o, 1, STATE_STUCK, STATE_RECONCILE, "GPU readable");
	assert_decided(o, 2, STATE_PRECHECK, STATE_STUCK, "may not return yet");
	assert_has(world_status(o, 0).why, "resume is \"never\"");
}

GUARD_ROW("41", a_worker_is_blind_on_each_gpu_that_its_selectors_name)
{
	static const struct {
		const char *selector;
		bool names;
	} rows[] = {
		{ "GPU-1", true },        { "1", true },
		{ "0000:01:00.0", true }, { "00000000:01:00.0", true },
		{ "cuda:1", true },       { "all", true },
		{ "0", false },           { "0000:02:00.0", false },
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		world_again(o, 2, 1);
		o->p.worker[0].gpus[0] = rows[i].selector;
		o->p.worker[0].gpu_count = 1;
		o->errors[1] = 11;
		world_begin(o);
		world_run(o, S);
		if (world_status(o, 0).blind != rows[i].names)
			fail_msg("gpus = [\"%s\"]: blind is %d", rows[i].selector,
				 world_status(o, 0).blind);
	}
}

GUARD_ROW("43, 44", a08_a_call_that_hangs_freezes_what_is_decided_until_it_returns)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 9 * S);
	o->health[0] = SCENE_HUNG;
	world_until(o, 60 * S);
	assert_true(world_status(o, 0).hung);
	assert_int_equal(o->orders, 0);
	o->health[0] = SCENE_OK;
	world_step(o);
	assert_false(world_status(o, 0).hung);
	assert_decided(o, 1, STATE_ACTIVE, STATE_RECONCILE, NULL);
	world_run(o, 2 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("45, 46", an_operator_can_trust_a_returned_gpu_before_its_minute_is_over)
{
	begin(o);
	assert_int_equal(guard_trust_gpu(o->g, "GPU-0", o->now), 0); /* the GPU was not lost */
	o->health[0] = SCENE_LOST;
	world_run(o, 10 * S);
	assert_int_equal(guard_trust_gpu(o->g, "GPU-0", o->now), -GW_E_STATE);
	o->health[0] = SCENE_OK;
	world_run(o, 2 * S);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_HEALTH);
	assert_int_equal(guard_trust_gpu(o->g, "GPU-0", o->now), 0);
	world_fetch(o);
	world_run(o, 2 * S);
	assert_int_equal(world_status(o, 0).mask, 0);
}

GUARD_ROW("45, 46", a09_a_lost_gpu_is_quarantined_alone_and_its_worker_returns_when_it_is_well)
{
	for (unsigned gone = 0; gone < 2; gone++) {
		world_again(o, 2, 2);
		on_gpu(o, 1, 1);
		world_begin(o);
		world_run(o, S);
		if (gone)
			o->gone[1] = true;
		else
			o->health[1] = SCENE_LOST;
		world_run(o, 60 * S);
		assert_state(o, STATE_ACTIVE);
		assert_false(world_status(o, 0).quarantine);
		assert_true(world_status(o, 1).quarantine);
		assert_int_equal(world_state(o, 1), STATE_EVICTED);
		assert_int_equal(world_status(o, 1).mask, 1u << REASON_HEALTH);
		assert_int_equal(o->w[1].verbs[ORDER_EVICT], 0);
		o->w[1].resident = false; /* the driver removed its memory */
		o->health[1] = SCENE_OK;
		o->gone[1] = false;
		world_run(o, 59 * S);
		assert_int_equal(world_state(o, 1), STATE_EVICTED);
		world_run(o, 5 * S);
		assert_int_equal(world_decided(o, 1, STATE_EVICTED, STATE_RECONCILE, NULL), 1);
		assert_int_equal(world_state(o, 1), STATE_ACTIVE);
		assert_orders(o, 0, EVICT);
	}
}

/* The board was replaced while the machine was off: the record of the last run names a GPU that
 * does not exist. */
GUARD_ROW("45", a_board_that_was_replaced_keeps_no_worker_out_that_may_run_elsewhere)
{
	static const char *const selectors[] = {
		NULL, "GPU-1", "1", "0000:01:00.0", "00000000:01:00.0", "cuda:1"
	};

	for (unsigned i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++) {
		bool bound = selectors[i];

		world_again(o, 2, 1);
		on_gpu(o, 0, 1);
		if (bound) {
			o->p.worker[0].gpus[0] = selectors[i];
			o->p.worker[0].gpu_count = 1;
		}
		world_begin(o);
		world_run(o, S);
		ask_run(o, REQUEST_EVICT, 0, 10 * S);
		assert_state(o, STATE_EVICTED);
		o->gone[1] = true;
		on_gpu(o, 0, 0);
		world_restart(o);
		world_run(o, 50 * S);
		assert_state(o, STATE_EVICTED);
		assert_true(world_status(o, 0).mask & 1u << REASON_HEALTH);
		ask_run(o, REQUEST_RESUME, 0, 60 * S);
		assert_state(o, bound ? STATE_EVICTED : STATE_ACTIVE);
	}
}

GUARD_ROW("47", at_the_end_workers_return_if_configured_and_if_they_fit)
{
	for (unsigned i = 0; i < 3; i++) {
		world_again(o, 1, 1);
		o->p.restore_on_stop = i > 0;
		world_guest(o, "job", 0, 3 * GIB, 10 * S, i == 2 ? 0 : 20 * S);
		world_begin(o);
		world_until(o, 25 * S);
		assert_int_equal(guard_stop(o->g, o->now), i == 1);
		world_fetch(o);
		assert_orders(o, i == 1, RESUME);
		assert_int_equal(o->w[0].resident, i == 1);
	}
}

/* Two workers of 6 GiB each, and 2 GiB of headroom. On a board of 16 GiB both workers fit
 * again; on a board of 12 GiB only one fits. */
static const struct {
	uint64_t total;
	unsigned back;
} boards[] = { { 16 * GIB, 2 }, { 12 * GIB, 1 } };

static void two_neighbours(struct world *o)
{
	world_again(o, 1, 2);
	o->p.restore_on_stop = true;
	o->p.worker[1].priority = 9;
	o->total[0] = 16 * GIB;
	o->w[0].load[0] = o->w[1].load[0] = 6 * GIB;
}

GUARD_ROW("47", at_the_end_all_return_that_fit_together)
{
	for (unsigned i = 0; i < 2; i++) {
		two_neighbours(o);
		world_guest(o, "job", 0, 12 * GIB, 10 * S, 20 * S);
		world_begin(o);
		world_until(o, 25 * S);
		assert_state(o, STATE_QUIET);
		assert_int_equal(world_state(o, 1), STATE_QUIET);
		o->total[0] = boards[i].total;
		world_step(o);
		assert_int_equal(guard_stop(o->g, o->now), boards[i].back);
		assert_int_equal(guard_unsettled_count(o->g), boards[i].back);
		world_fetch(o);
		assert_true(o->w[1].resident); /* the worker with the higher priority */
		assert_int_equal(o->w[0].resident, boards[i].back == 2);
		for (unsigned k = 0; k < o->outcomes; k++)
			guard_outcome(o->g, &o->outcome[k], o->now);
		assert_int_equal(guard_unsettled_count(o->g), 0);
	}
}

GUARD_ROW("47", at_the_end_memory_is_kept_for_a_worker_that_is_returning)
{
	for (unsigned i = 0; i < 2; i++) {
		two_neighbours(o);
		begin(o);
		world_ask(o, -1, REQUEST_EVICT, 0);
		world_run(o, 4 * S);
		o->total[0] = boards[i].total;
		world_step(o);
		world_ask(o, -1, REQUEST_RELEASE, 0);
		world_step(o);
		/* workers are resumed one at a time */
		assert_int_equal(o->w[1].verbs[ORDER_RESUME], 1);
		assert_orders(o, 0, RESUME);
		assert_int_equal(guard_stop(o->g, o->now), boards[i].back - 1);
		assert_int_equal(guard_unsettled_count(o->g), boards[i].back);
	}
}

GUARD_ROW("47", at_the_end_a_dry_run_waits_for_nothing)
{
	o->p.mode = GUARD_DRY_RUN;
	o->p.restore_on_stop = true;
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 25 * S);
	assert_state(o, STATE_QUIET);
	assert_int_equal(guard_stop(o->g, o->now), 0);
	assert_int_equal(guard_unsettled_count(o->g), 0);
}

/* Does what the service does: stops the guard and waits until no order is open. */
static void end_all(struct world *o)
{
	guard_stop(o->g, o->now);
	world_fetch(o);
	for (unsigned i = 0; i < 50 && guard_unsettled_count(o->g); i++)
		world_step(o);
}

GUARD_ROW("47", at_the_end_a_worker_that_heat_closed_is_opened)
{
	begin(o);
	o->p.restore_on_stop = true;
	guard_set_heat(o->g, "GPU-0", HEAT_THROTTLE | HEAT_WARM, "4 C below its limit");
	world_run(o, S);
	assert_true(o->w[0].closed);
	end_all(o);
	assert_false(o->w[0].closed);
	assert_int_equal(guard_unsettled_count(o->g), 0);
	assert_decided(o, 1, STATE_ACTIVE, STATE_ACTIVE, "service ends");
	assert_false(o->journal.disk[0].evicted);
}

/* Stops at several moments of a drain, also while an order is under way. */
GUARD_ROW("47", at_the_end_a_worker_that_was_only_drained_takes_work_again)
{
	for (unsigned i = 0; i < 4; i++) {
		world_again(o, 1, 1);
		begin(o);
		o->p.restore_on_stop = true;
		o->w[0].acts.busy = true;
		world_ask(o, 0, REQUEST_EVICT, 0);
		assert_true(o->w[0].closed);
		for (unsigned k = 0; k < i; k++)
			world_step(o);
		assert_state(o, STATE_DRAIN);
		end_all(o);
		assert_false(o->w[0].closed);
		assert_true(o->w[0].resident);
		assert_orders(o, 0, EVICT);
		assert_decided(o, 1, STATE_DRAIN, STATE_ACTIVE, "service ends");
		assert_false(o->journal.disk[0].evicted);
	}
}

GUARD_ROW("47", at_the_end_an_eviction_under_way_is_waited_for_and_undone)
{
	for (unsigned holds = 0; holds < 2; holds++) {
		world_again(o, 1, 1);
		begin(o);
		o->p.restore_on_stop = true;
		world_guest(o, "now", 0, 4 * GIB, o->now - WORLD_START, 0);
		until_ordered_to_leave(o);
		assert_state(o, STATE_EVICT);
		if (!holds)
			o->guest[0].until_ns = o->now;
		world_scene(o);
		guard_observe(o->g, &o->s); /* the outcome has not arrived */
		assert_int_equal(guard_stop(o->g, o->now), 1);
		end_all(o);
		assert_int_equal(guard_unsettled_count(o->g), 0);
		assert_decided(o, 1, STATE_VERIFY, STATE_EVICTED, "freed");
		assert_int_equal(o->w[0].resident, !holds);
		assert_orders(o, 1, EVICT);
	}
}

/* If the eviction freed the memory although it failed, the worker is resumed. Otherwise the
 * worker gets new work again. */
GUARD_ROW("47", at_the_end_an_eviction_that_failed_is_judged_by_the_memory)
{
	for (unsigned freed = 0; freed < 2; freed++) {
		world_again(o, 1, 1);
		begin(o);
		o->p.restore_on_stop = true;
		o->p.worker[0].kind = WORKER_EXEC;
		o->w[0].acts.fails = 1;
		world_guest(o, "now", 0, 4 * GIB, o->now - WORLD_START, 0);
		until_ordered_to_leave(o);
		o->guest[0].until_ns = o->now;
		o->w[0].resident = !freed;
		end_all(o);
		assert_int_equal(guard_unsettled_count(o->g), 0);
		assert_true(o->w[0].resident);
		assert_orders(o, freed, RESUME);
		assert_orders(o, !freed, OPEN);
		assert_orders(o, 1, EVICT);
	}
}

/* An adapter admits new work only after a successful resume. */
GUARD_ROW("47", at_the_end_a_worker_that_refused_to_leave_and_to_resume_admits_work)
{
	begin(o);
	o->p.restore_on_stop = true;
	o->w[0].acts.refuses = o->w[0].acts.wont_return = true;
	world_guest(o, "now", 0, 4 * GIB, o->now - WORLD_START, 0);
	world_run(o, 3 * S);
	assert_state(o, STATE_STUCK);
	assert_true(o->w[0].closed);
	o->guest[0].until_ns = o->now;
	world_step(o);
	end_all(o);
	assert_orders(o, 1, RESUME);
	assert_orders(o, 1, OPEN);
	assert_false(o->w[0].closed);
	assert_int_equal(guard_unsettled_count(o->g), 0);
	assert_false(o->journal.disk[0].evicted);
}

GUARD_ROW("47", at_the_end_a_worker_that_does_not_answer_stays_unsettled)
{
	begin(o);
	o->p.restore_on_stop = true;
	o->w[0].acts.silent = true;
	guard_set_heat(o->g, "GPU-0", HEAT_THROTTLE, "4 C below its limit");
	world_run(o, S);
	end_all(o);
	assert_true(guard_unsettled(o->g, 0));
	assert_false(guard_unsettled(o->g, 1));
	/* so that the next start of the service resumes the worker */
	assert_true(o->journal.disk[0].evicted);
}

GUARD_ROW("50", a_worker_that_heat_closed_is_opened_after_a_dry_run)
{
	struct policy dry, enforce;

	begin(o);
	guard_set_heat(o->g, "GPU-0", HEAT_THROTTLE, "4 C below its limit");
	world_run(o, S);
	assert_true(o->w[0].closed);
	dry = enforce = o->p;
	dry.mode = GUARD_DRY_RUN;
	assert_int_equal(guard_change_policy(o->g, &dry, NULL, 0, o->now), 0);
	guard_set_heat(o->g, "GPU-0", 0, "");
	world_run(o, 5 * S);
	/* the worker must still be opened for new work, but a dry run gives no orders */
	assert_state(o, STATE_EVICTED);
	assert_orders(o, 0, OPEN);
	assert_int_equal(guard_change_policy(o->g, &enforce, NULL, 0, o->now), 0);
	world_run(o, 2 * S);
	/* the same holds at the start */
	assert_decided(o, 2, STATE_RECONCILE, STATE_ACTIVE, "as found");
	assert_orders(o, 1, OPEN);
	assert_awake(o);
}

/* Two evictions of a dry run and one real eviction do not count as three evictions. */
GUARD_ROW("53", evictions_of_a_dry_run_do_not_count_as_flaps)
{
	struct policy enforce;

	o->total[0] = 24 * GIB;
	world_guest(o, "a", 0, 3 * GIB, 10 * S, 20 * S);
	world_guest(o, "b", 0, 3 * GIB, 60 * S, 61 * S);
	world_guest(o, "c", 0, 3 * GIB, 130 * S, 140 * S);
	o->p.mode = GUARD_DRY_RUN;
	world_begin(o);
	world_until(o, 125 * S);
	assert_int_equal(world_status(o, 0).would_evict, 2);
	assert_true(world_status(o, 0).backoff > 1);
	assert_state(o, STATE_ACTIVE);
	enforce = o->p;
	enforce.mode = GUARD_ENFORCE;
	assert_int_equal(guard_change_policy(o->g, &enforce, NULL, 0, o->now), 0);
	world_until(o, 135 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).evictions, 1);
	assert_true(world_status(o, 0).backoff == 1);
	world_until(o, 175 * S); /* 30 s after the game ended */
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("52", a_gpu_that_turns_dry_between_two_scenes_moves_nothing_until_it_turns_back)
{
	begin(o);
	ask_run(o, REQUEST_EVICT, 10 * S, 5 * S);
	assert_state(o, STATE_EVICTED);
	o->simulated = true;
	world_run(o, 30 * S);
	assert_decided(o, 0, ANY, ANY, "mode"); /* the worker's state is the same */
	assert_state(o, STATE_EVICTED);
	assert_orders(o, 0, RESUME);
	assert_true(o->journal.disk[0].evicted);
	o->simulated = false;
	world_run(o, 10 * S);
	assert_decided(o, 0, ANY, STATE_RECONCILE, NULL);
	assert_orders(o, 1, RESUME);
	assert_awake(o);
}

GUARD_ROW("52", an_order_under_way_on_a_gpu_that_turns_dry_counts_as_done)
{
	begin(o);
	o->w[0].acts.silent = true; /* the order to drain is under way */
	world_ask(o, 0, REQUEST_EVICT, UINT64_MAX);
	world_run(o, S);
	o->w[0].acts.silent = false;
	o->simulated = true;
	world_run(o, 5 * S);
	assert_decided(o, 1, STATE_DRAIN, STATE_EVICTED, "mode");
	assert_true(o->w[0].resident);
	assert_true(o->journal.disk[0].evicted);
	o->simulated = false;
	world_run(o, 5 * S);
	assert_decided(o, 1, STATE_EVICTED, STATE_EVICT, "drained");
	assert_state(o, STATE_EVICTED);
	assert_false(o->w[0].resident);
	assert_orders(o, 1, EVICT);
}

TEST_MAIN(NULL, NULL)
