/* Tests the guard's state machine (docs/GUARD-MACHINE.md), rows 1 to 7 and 38 to 40: how a
 * worker is found at the start, and whether it is present. */
#include "guard_test.h"

GUARD_ROW("2", a_worker_found_on_the_gpu_is_active_and_its_need_is_known)
{
	begin(o);
	assert_decided(o, 1, STATE_RECONCILE, STATE_ACTIVE, NULL);
	assert_int_equal(world_status(o, 0).need_bytes, 8 * GIB);
	assert_int_equal(o->orders, 0);
}

GUARD_ROW("1, 3", a_worker_found_with_a_reason_against_it_is_drained)
{
	record(o, MANUAL, 2);
	o->journal.disk[0].hold = HOLD_EVICTED;
	begin(o);
	assert_decided(o, 1, STATE_RECONCILE, STATE_DRAIN, "manual");
	world_run(o, 2 * S);
	assert_state(o, STATE_EVICTED);
	assert_orders(o, 1, EVICT);
}

GUARD_ROW("1, 4", a_worker_recorded_as_evicted_stays_evicted_until_it_may_return)
{
	o->w[0].resident = false;
	record(o, MANUAL | CONTENTION, 2);
	o->journal.disk[0].hold = HOLD_EVICTED;
	o->journal.disk[0].hold_until_wall_ns = WORLD_WALL - S; /* ended while no guard ran */
	begin(o);
	assert_decided(o, 1, STATE_RECONCILE, STATE_EVICTED, NULL);
	assert_int_equal(world_status(o, 0).mask, CONTENTION);
	assert_int_equal(world_status(o, 0).hold, HOLD_NONE);
	world_run(o, 40 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 0, EVICT);
	assert_orders(o, 1, RESUME);
}

GUARD_ROW("5", a_worker_found_without_memory_and_without_a_record_is_active)
{
	o->w[0].resident = false;
	world_begin(o);
	world_run(o, 10 * S);
	assert_state(o, STATE_ACTIVE);
	assert_int_equal(world_status(o, 0).need_bytes, 0);
	assert_int_equal(o->orders, 0);
}

GUARD_ROW("6, 7", a_checkpoint_is_recorded_with_the_identities_of_its_processes)
{
	for (unsigned other = 0; other < 2; other++) {
		world_again(o, 1, 1);
		o->p.worker[0].kind = WORKER_CHECKPOINT;
		o->w[0].resident = false;
		record(o, CONTENTION, 3);
		o->journal.disk[0].put_away_count = 1;
		o->journal.disk[0].put_away[0].pid = o->w[0].pid;
		o->journal.disk[0].put_away[0].start_ticks = o->w[0].start_ticks + other;
		begin(o);
		assert_decided(o, other, STATE_RECONCILE, STATE_ABSENT, NULL);
		/* If other is 1, another process has the recorded pid now, and only the reason
		 * is kept. */
		assert_state(o, STATE_QUIET);
		assert_int_equal(world_status(o, 0).mask, CONTENTION);
		world_run(o, 32 * S);
		assert_int_equal(o->journal.disk[0].put_away_count, 0);
		assert_state(o, STATE_ACTIVE);
	}
}

GUARD_ROW("6, 31", a_resume_names_the_checkpointed_processes)
{
	struct guard_order d;

	o->p.worker[0].kind = WORKER_CHECKPOINT;
	begin(o);
	ask_run(o, REQUEST_EVICT, 0, 3 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(o->w[0].levels[3], 1);
	assert_int_equal(o->journal.disk[0].put_away_count, 1);
	assert_int_equal(o->journal.disk[0].put_away[0].pid, 100);
	ask_only(o, REQUEST_RESUME);
	world_scene(o);
	guard_observe(o->g, &o->s);
	/* the record of the order must be stored first */
	assert_false(guard_next_order(o->g, &d));
	assert_true(next_order(o, &d));
	assert_int_equal(d.verb, ORDER_RESUME);
	assert_int_equal(d.targets, 1);
	assert_int_equal(d.target[0].id.pid, 100);
	assert_int_equal(d.target[0].id.start_ticks, 7);
}

GUARD_ROW("7", a_worker_that_is_not_there_is_absent)
{
	o->w[0].alive = false;
	record(o, CONTENTION, 2);
	begin(o);
	assert_decided(o, 1, STATE_RECONCILE, STATE_ABSENT, NULL);
	assert_false(
		o->journal.disk[0].evicted); /* the record is no longer marked as evicted */
}

GUARD_ROW("4, 27", a_record_that_the_unit_was_stopped_is_enough_to_start_it)
{
	o->p.worker[0].match.unit = "w0.service";
	o->w[0].alive = o->w[0].resident = false;
	record(o, 0, 4);
	world_begin(o);
	world_run(o, 3 * S);
	assert_orders(o, 1, RESUME);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("38, 39", a_worker_that_exits_is_absent_and_its_reasons_are_kept)
{
	begin(o);
	ask_run(o, REQUEST_HOLD_EVICTED, UINT64_MAX, 3 * S);
	o->w[0].alive = false;
	world_run(o, 3 * S);
	assert_decided(o, 1, STATE_EVICTED, STATE_ABSENT, NULL);
	assert_int_equal(world_status(o, 0).mask, MANUAL);
	o->w[0].alive = o->w[0].resident = true;
	world_run(o, 3 * S);
	assert_decided(o, 1, STATE_ABSENT, STATE_RECONCILE, NULL);
	assert_state(o, STATE_EVICTED);
	assert_false(o->w[0].resident);
}

GUARD_ROW("40", only_a_managed_worker_is_started)
{
	for (unsigned managed = 0; managed < 2; managed++) {
		world_again(o, 1, 1);
		o->p.worker[0].managed = managed;
		begin(o);
		o->w[0].alive = o->w[0].resident = false;
		world_run(o, 60 * S);
		assert_int_equal(o->w[0].alive, managed);
		assert_state(o, managed ? STATE_ACTIVE : STATE_ABSENT);
		assert_orders(o, managed, RESUME);
	}
}

static const char *const hook[] = { "/usr/bin/back", NULL };

static void of_a_hook(struct world *o, const char *const *back)
{
	world_again(o, 1, 1);
	o->p.worker[0].kind = WORKER_EXEC;
	o->p.worker[0].resume_argv = back;
	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 60 * S);
	until_ordered_to_leave(o);
}

/* The service is killed while the order to leave is carried out, and the game ends too. */
static void killed_while_it_evicts(struct world *o, unsigned kind)
{
	world_again(o, 1, 1);
	o->p.worker[0].kind = kind;
	o->p.worker[0].resume_argv = hook;
	o->w[0].acts.lies = 1;
	world_guest(o, "game", 0, 4 * GIB, 5 * S, 8 * S);
	begin(o);
	until_ordered_to_leave(o);
	assert_true(o->journal.disk[0].evicted);
	o->guests = 0;
	o->w[0].asleep = false;
	world_restart(o);
	world_run(o, 3 * S);
	assert_true(o->journal.disk[0].evicted);
}

GUARD_ROW("2, 20", an_order_from_before_the_start_that_is_carried_out_later_is_undone)
{
	static const unsigned kind[] = { WORKER_EXEC, WORKER_SIGNAL, WORKER_VLLM, WORKER_OLLAMA,
					 WORKER_SYSTEMD };

	for (unsigned i = 0; i < 2 * sizeof(kind) / sizeof(kind[0]); i++) {
		killed_while_it_evicts(o, kind[i / 2]);
		assert_decided(o, 1, STATE_RECONCILE, STATE_VERIFY, "as found");
		if (i % 2) { /* killed once more; then no reason is in the journal any more */
			world_restart(o);
			world_run(o, S);
		}
		o->w[0].resident = false;
		o->w[0].asleep = true;
		o->w[0].alive = kind[i / 2] != WORKER_SYSTEMD;
		world_run(o, 60 * S);
		assert_orders(o, 1, EVICT);
		assert_orders(o, 1, RESUME);
		assert_awake(o);
	}
}

GUARD_ROW("2, 22, 24", an_order_from_before_the_start_without_effect_is_over_after_its_time)
{
	killed_while_it_evicts(o, WORKER_EXEC);
	world_run(o, 20 * S);
	assert_decided(o, 1, STATE_VERIFY, STATE_STUCK, "stuck");
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 0, RESUME); /* a resume could load the model a second time */
	assert_awake(o);
}

GUARD_ROW("2", a_game_that_begins_while_an_old_order_is_awaited_evicts_at_once)
{
	killed_while_it_evicts(o, WORKER_EXEC);
	world_guest(o, "game", 0, 4 * GIB, o->now - WORLD_START, 60 * S);
	world_run(o, 4 * S);
	assert_decided(o, 1, STATE_VERIFY, STATE_DRAIN, NULL);
	assert_state(o, STATE_EVICTED);
	world_run(o, 120 * S);
	assert_awake(o);
}

GUARD_ROW("38", a_worker_of_a_hook_that_dies_while_it_is_out_is_absent)
{
	of_a_hook(o, hook);
	world_run(o, 30 * S);
	assert_state(o, STATE_EVICTED);
	o->w[0].alive = false;
	world_run(o, S);
	assert_state(o, STATE_ABSENT);
}

GUARD_ROW("38", a_worker_whose_hook_ends_it_is_brought_back_by_its_hook)
{
	for (unsigned late = 0; late < 2; late++) {
		of_a_hook(o, hook);
		if (late) /* the worker's memory becomes free before its process ends */
			world_run(o, 2 * S);
		o->w[0].alive = false;
		world_run(o, 30 * S);
		assert_state(o, STATE_EVICTED);
		world_run(o, 40 * S);
		assert_orders(o, 1, RESUME);
		assert_state(o, STATE_ACTIVE);
	}
}

GUARD_ROW("38, 39", a_worker_that_no_hook_brings_back_is_absent_until_it_appears)
{
	of_a_hook(o, NULL);
	o->w[0].alive = false;
	world_run(o, 70 * S);
	assert_state(o, STATE_ABSENT);
	assert_orders(o, 0, RESUME);
	o->w[0].alive = o->w[0].resident = true;
	world_run(o, S);
	assert_state(o, STATE_ACTIVE);
}

static bool went_astray(const struct world *o)
{
	for (size_t i = 0; i < o->log.says; i++)
		if (o->log.said[i].kind == DECISION_UNREACHABLE)
			return true;
	return false;
}

static void put_out(struct world *o)
{
	begin(o);
	world_guest(o, "game", 0, 4 * GIB, 5 * S, 20 * S);
	world_until(o, 12 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("38, 39", a_worker_that_is_out_and_is_found_again_comes_back)
{
	struct guard_record r;

	put_out(o);
	o->w[0].unfound = true;
	world_until(o, 15 * S);
	assert_state(o, STATE_ABSENT);
	assert_true(went_astray(o));
	assert_has(world_status(o, 0).why, "still runs and is evicted");
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_true(r.evicted && r.level == 2 && r.need_bytes == 8 * GIB);
	world_until(o, 40 * S); /* the cause is gone, but the worker is still not found */
	assert_state(o, STATE_ABSENT);
	assert_orders(o, 0, RESUME);
	o->w[0].unfound = false;
	world_until(o, 100 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 1, RESUME);
	assert_orders(o, 1, EVICT);
}

GUARD_ROW("38", a_worker_that_ends_while_it_is_not_found_is_forgotten)
{
	struct guard_record r;

	put_out(o);
	o->w[0].unfound = true;
	world_until(o, 15 * S);
	o->w[0].alive = o->w[0].unfound = false;
	world_until(o, 16 * S);
	assert_state(o, STATE_ABSENT);
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_false(r.evicted);
	assert_has(world_status(o, 0).why, "its process ended");
	world_until(o, 60 * S);
	o->w[0].alive = true;
	o->w[0].start_ticks++;
	world_until(o, 100 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 0, RESUME); /* the new process was never evicted */
}

GUARD_ROW("39", a_new_process_of_an_evicted_worker_is_not_considered_evicted)
{
	put_out(o);
	o->w[0].unfound = true;
	world_until(o, 60 * S);
	o->w[0].unfound = false;
	o->w[0].start_ticks++;
	world_until(o, 100 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 0, RESUME);
}

GUARD_ROW("38", a_worker_that_runs_and_is_not_found_leaves_nothing)
{
	struct guard_record r;

	begin(o);
	world_until(o, 5 * S);
	o->w[0].unfound = true;
	o->w[0].resident = false;
	world_until(o, 10 * S);
	assert_state(o, STATE_ABSENT);
	assert_false(went_astray(o));
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_false(r.evicted);
}

/* The worker's process still runs, so no second one is started. */
GUARD_ROW("40", a_managed_worker_that_is_evicted_and_not_found_is_not_started)
{
	put_out(o);
	o->w[0].unfound = true;
	world_until(o, 13 * S);
	o->p.worker[0].managed = true;
	world_until(o, 100 * S);
	assert_state(o, STATE_ABSENT);
	assert_orders(o, 0, RESUME);
}

/* An earlier run of the service closed the worker. If a new order to close is taken back, the
 * worker is still closed. */
GUARD_ROW("4", a_worker_closed_by_an_earlier_run_is_opened_after_an_order_was_taken_back)
{
	o->p.worker[0].resume = RESUME_NEVER;
	o->w[0].closed = true;
	o->w[0].resident = false;
	record(o, MANUAL, 2);
	world_begin(o);
	world_scene(o);
	guard_observe(o->g, &o->s);
	assert_true(guard_order_pending(o->g, 0)); /* the order to close, not fetched */
	assert_int_equal(guard_change_policy(o->g, &o->p, NULL, 0, o->now), 0);
	assert_false(guard_order_pending(o->g, 0));
	ask_only(o, REQUEST_RELEASE);
	o->w[0].resident = true; /* a client made it load its model */
	world_run(o, 5 * S);
	assert_state(o, STATE_ACTIVE);
	assert_orders(o, 0, CLOSE);
	assert_orders(o, 1, OPEN);
	assert_false(o->w[0].closed);
}

GUARD_ROW("2, 13", a_worker_of_unverified_admission_on_a_hot_gpu_is_closed_again)
{
	record(o, 0, 2);
	world_begin(o);
	guard_set_heat(o->g, "GPU-0", HEAT_THROTTLE, "4 C below its limit");
	world_run(o, S);
	assert_state(o, STATE_ACTIVE);
	assert_true(o->w[0].closed);
	assert_orders(o, 1, CLOSE);
	guard_set_heat(o->g, "GPU-0", 0, "");
	world_run(o, 2 * S);
	assert_awake(o);
}

TEST_MAIN(NULL, NULL)
