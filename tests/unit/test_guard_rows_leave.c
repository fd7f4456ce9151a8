/* Tests the guard's state machine (docs/GUARD-MACHINE.md), rows 8 to 24: from the first demand
 * until the memory is verified as free. */
#include "guard_test.h"

GUARD_ROW("8, 12", a_contend_now_rule_evicts_without_waiting)
{
	world_guest(o, "now-game", 0, 20 * MIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 10 * S + 100 * MS);
	assert_decided(o, 1, STATE_SUSPECT, STATE_DRAIN, "contend-now");
	assert_int_equal(world_last(o, "contend-now")->mono_ns, WORLD_START + 10 * S);
}

/* A graphics process and a contend-now rule are both urgent; only the rule is sure at once. */
GUARD_ROW("12", the_strongest_urgent_demand_counts_whatever_its_gpu)
{
	for (unsigned now_gpu = 0; now_gpu < 2; now_gpu++) {
		world_again(o, 2, 1);
		o->w[0].load[1] = 8 * GIB;
		world_guest(o, "now-job", now_gpu, GIB, 10 * S, 0);
		world_guest(o, "game", !now_gpu, 3 * GIB, 10 * S, 0)->type =
			GW_PROCESS_GRAPHICS;
		world_begin(o);
		world_until(o, 10 * S + 200 * MS);
		assert_decided(o, 1, STATE_SUSPECT, STATE_DRAIN, "contend-now");
	}
}

GUARD_ROW("9", hard_reasons_drain_at_once)
{
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (r == REASON_CONTENTION || r == REASON_BLIND || r == REASON_RESERVED ||
		    r == REASON_IDLE)
			continue;
		world_again(o, 1, 1);
		begin(o);
		o->p.worker[0].ac_only = true;
		o->p.worker[0].schedule[0] = (struct policy_span){ 127, 0, 1439 };
		o->host.on_battery = r == REASON_BATTERY;
		o->p.worker[0].schedules = r == REASON_SCHEDULE;
		if (r == REASON_MANUAL)
			world_ask(o, 0, REQUEST_EVICT, 0);
		if (r == REASON_THERMAL || r == REASON_HEALTH || r == REASON_BUDGET)
			guard_set_reason(o->g, "GPU-0", r, true, "as a test has it", o->now);
		world_step(o);
		assert_int_equal(
			world_decided(o, 0, STATE_ACTIVE, STATE_DRAIN, guard_reason_name(r)),
			1);
		world_run(o, 3 * S);
		assert_state(o, STATE_EVICTED);
		assert_int_equal(world_status(o, 0).mask, 1u << r);
		assert_false(o->w[0].resident);
	}
}

GUARD_ROW("8, 10", a_demand_that_goes_at_once_is_a_near_miss)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 10 * S + 150 * MS);
	world_begin(o);
	world_until(o, 20 * S);
	assert_decided(o, 1, STATE_ACTIVE, STATE_SUSPECT, NULL);
	assert_decided(o, 1, STATE_SUSPECT, STATE_ACTIVE, "near miss");
	assert_int_equal(o->orders, 0);
}

/* The scene thread took the scene before the outcome came, and delivers it afterwards. */
GUARD_ROW("8", a_scene_that_is_older_than_an_outcome_does_not_turn_time_back)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 0);
	world_begin(o);
	while (o->now < WORLD_START + 20 * S) {
		for (unsigned i = 0; i < o->outcomes; i++)
			guard_outcome(o->g, &o->outcome[i], o->now + 20 * S);
		o->outcomes = 0;
		for (unsigned i = 0; i < o->p.workers; i++)
			o->w[i].has_order = false;
		world_step(o);
	}
	assert_int_equal(world_status(o, 0).evictions, 1);
	assert_true(world_status(o, 0).freed_ns < 60 * S);
	for (unsigned i = 1; i < o->log.says; i++)
		assert_true(o->log.said[i].mono_ns >= o->log.said[i - 1].mono_ns);
}

/* The worker is evicted for one contender and returns; then the next contender comes. */
static struct world_guest *returned(struct world *o, const char *next, uint64_t bytes)
{
	struct world_guest *t;

	world_again(o, 1, 1);
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	t = world_guest(o, next, 0, bytes, 60 * S, 0);
	world_begin(o);
	world_until(o, 59 * S);
	assert_int_equal(world_status(o, 0).resumes, 1);
	return t;
}

GUARD_ROW("11", a_contender_that_fits_waits_until_the_worker_has_been_back_for_a_while)
{
	returned(o, "other", 100 * MIB)->sm_ratio = 0.5;
	world_until(o, 62 * S);
	assert_decided(o, 1, STATE_SUSPECT, STATE_SUSPECT, "damped");
	assert_state(o, STATE_SUSPECT);
	assert_true(world_last(o, "damped")->next_ns > WORLD_START + 100 * S);
	world_until(o, 120 * S);
	assert_int_equal(world_status(o, 0).evictions, 2);
	returned(o, "game", 4 * GIB)->type = GW_PROCESS_GRAPHICS;
	world_until(o, 62 * S);
	assert_int_equal(world_status(o, 0).evictions, 2);
}

/* The contender arrives 9 s after the return. The memory that it needs is unknown, or not
 * free. */
GUARD_ROW("11", a_contender_that_needs_memory_waits_for_nothing)
{
	static const uint64_t bytes[] = { GIB, 4 * GIB };

	for (unsigned i = 0; i < 2; i++) {
		returned(o, "other", bytes[i]);
		world_until(o, 61 * S);
		assert_decided(o, 0, ANY, ANY, "damped");
		assert_int_equal(world_status(o, 0).evictions, 2);
		assert_state(o, STATE_EVICTED);
	}
}

GUARD_ROW("11", a_contender_that_does_not_fit_any_more_waits_no_longer)
{
	returned(o, "other", 100 * MIB)->sm_ratio = 0.5;
	world_until(o, 62 * S);
	assert_state(o, STATE_SUSPECT);
	o->guest[1].bytes = 3 * GIB; /* less than the headroom is free */
	world_run(o, S);
	assert_state(o, STATE_EVICTED);
}

/* Only the return is delayed: by 30 s of quiet time, then 60 s, then 120 s. */
GUARD_ROW("11, 26", the_quiet_time_grows_after_each_flap)
{
	o->total[0] = 24 * GIB;
	world_guest(o, "a", 0, 3 * GIB, 10 * S, 20 * S);
	world_guest(o, "b", 0, 3 * GIB, 60 * S, 61 * S);
	world_guest(o, "c", 0, 3 * GIB, 130 * S, 131 * S);
	world_begin(o);
	world_until(o, 59 * S);
	assert_true(world_status(o, 0).backoff == 1);
	world_until(o, 120 * S);
	assert_true(world_status(o, 0).backoff == 2);
	assert_state(o, STATE_QUIET);
	world_until(o, 125 * S);
	assert_state(o, STATE_ACTIVE);
	world_until(o, 135 * S);
	assert_true(world_status(o, 0).backoff == 4);
	assert_decided(o, 2, ANY, ANY, "flapping");
}

GUARD_ROW("11, 26", without_a_quiet_time_no_flap_delays_a_return)
{
	struct world_guest *t;

	o->p.standard.quiet_ns = 0;
	t = world_guest(o, "job", 0, 3 * GIB, 10 * S, 0);
	t->on_ns = 3 * S;
	t->off_ns = 10 * S;
	world_begin(o);
	world_until(o, 75 * S);
	assert_true(world_status(o, 0).evictions >= 4);
	assert_decided(o, 0, ANY, ANY, "flapping");
	assert_true(world_status(o, 0).backoff == 1);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("11", an_action_on_a_gpu_damps_the_next_one_there)
{
	world_again(o, 1, 2);
	o->total[0] = 24 * GIB;
	world_guest(o, "job", 0, 5 * GIB, 20 * S, 0);
	world_begin(o);
	world_until(o, 15 * S);
	world_ask(o, 1, REQUEST_EVICT, 0);
	world_until(o, 22 * S);
	assert_decided(o, 1, STATE_SUSPECT, STATE_SUSPECT, "damped");
	world_until(o, 32 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("12", the_scene_that_decides_comes_when_the_need_has_lasted)
{
	uint64_t from;

	world_guest(o, "job", 0, 3 * GIB, 70 * S, 0);
	world_begin(o);
	while (world_state(o, 0) != STATE_SUSPECT && o->now < WORLD_START + 80 * S)
		world_step(o);
	from = o->s.mono_ns;
	assert_int_equal(guard_next_scene_ns(o->g, from + 295 * MS), from + 300 * MS);
}

GUARD_ROW("13", a_hold_active_masks_contention_and_reports_it_but_never_masks_heat)
{
	char why[sizeof(world_status(o, 0).why)];

	world_guest(o, "game", 0, 3 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 5 * S);
	assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, 3600 * S), 0);
	world_until(o, 60 * S);
	assert_decided(o, 2, ANY, ANY, "hold active"); /* requested; masks contention */
	assert_state(o, STATE_ACTIVE);
	assert_decided(o, 0, ANY, STATE_SUSPECT, NULL);
	assert_has(world_last(o, "hold active")->evidence, "masks contention");
	snprintf(why, sizeof(why), "hold active masks contention: %s",
		 world_last(o, "hold active")->evidence + strlen("masks contention: "));
	assert_string_equal(world_status(o, 0).why, why);
	assert_int_equal(o->orders, 0);
	guard_set_reason(o->g, "GPU-0", REASON_BUDGET, true, "too dear", o->now);
	world_run(o, S);
	assert_int_equal(o->orders, 0);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "too hot", o->now);
	world_run(o, 3 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("13", a_worker_that_is_held_is_suspected_no_more_until_it_is_released)
{
	world_guest(o, "game", 0, 3 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 10 * S + 150 * MS);
	assert_state(o, STATE_SUSPECT);
	ask_run(o, REQUEST_HOLD_ACTIVE, 3600 * S, 5 * S);
	assert_state(o, STATE_ACTIVE);
	assert_int_equal(world_status(o, 0).mask, CONTENTION);
	ask_run(o, REQUEST_RELEASE, 0, 3 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("13", every_reason_that_a_hold_masks_is_reported_once)
{
	o->p.worker[0].ac_only = true;
	begin(o);
	ask_run(o, REQUEST_HOLD_ACTIVE, UINT64_MAX, 2 * S);
	assert_decided(o, 1, ANY, ANY, "hold active"); /* requested */
	o->host.on_battery = true;
	guard_set_reason(o->g, "GPU-0", REASON_BUDGET, true, "over 300 W", o->now);
	world_run(o, 5 * S);
	assert_state(o, STATE_ACTIVE);
	assert_decided(o, 3, ANY, ANY, "hold active");
	assert_string_equal(world_last(o, "hold active")->evidence,
			    "masks battery: on battery, and ac_only is set");
	o->host.on_battery = false;
	world_run(o, 20 * S);
	o->host.on_battery = true;
	world_run(o, 5 * S); /* the machine is on battery again */
	assert_decided(o, 4, ANY, ANY, "hold active");
}

GUARD_ROW("13", heat_closes_the_worker_until_health_reports_its_end)
{
	begin(o);
	guard_set_heat(o->g, "GPU-0", HEAT_THROTTLE | HEAT_WARM, "4 C below its limit");
	world_run(o, S);
	assert_true(o->w[0].closed);
	assert_state(o, STATE_ACTIVE);
	assert_has(world_last(o, "throttled")->evidence, "4 C below its limit");
	world_run(o, 60 * S);
	assert_true(o->w[0].closed);
	guard_set_heat(o->g, "GPU-0", 0, "");
	world_run(o, 2 * S);
	assert_false(o->w[0].closed);
	assert_decided(o, 2, STATE_ACTIVE, STATE_ACTIVE, "throttled");
	assert_orders(o, 0, EVICT);
}

GUARD_ROW("15", a10_work_in_flight_is_waited_for_as_long_as_the_drain_timeout)
{
	begin(o);
	o->w[0].acts.busy = true;
	ask_run(o, REQUEST_EVICT, 0, 9 * S);
	assert_state(o, STATE_DRAIN);
	assert_true(o->w[0].closed);
	assert_orders(o, 0, EVICT);
	world_run(o, 2 * S);
	assert_decided(o, 1, STATE_DRAIN, STATE_EVICT, "drain timeout");
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("15", heat_does_not_wait_for_work_in_flight)
{
	begin(o);
	o->w[0].acts.busy = true;
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "hot", o->now);
	world_run(o, S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("16", a_cause_that_ends_while_draining_opens_the_worker_again)
{
	o->w[0].acts.busy = true;
	world_guest(o, "game", 0, 3 * GIB, 10 * S, 13 * S);
	world_begin(o);
	world_until(o, 12 * S);
	assert_state(o, STATE_DRAIN);
	assert_true(o->w[0].closed);
	assert_true(o->journal.disk[0].evicted);
	world_until(o, 15 * S);
	assert_decided(o, 1, STATE_DRAIN, STATE_ACTIVE, "cause gone");
	assert_false(o->w[0].closed);
	assert_false(o->journal.disk[0].evicted);
	assert_orders(o, 0, EVICT);
}

GUARD_ROW("17, 20", an_eviction_that_has_begun_is_finished_when_its_cause_ends)
{
	begin(o);
	o->w[0].acts.fails = 1;
	world_ask(o, 0, REQUEST_EVICT, 0);
	for (unsigned i = 0; i < 50 && world_state(o, 0) != STATE_EVICT; i++)
		world_step(o);
	ask_run(o, REQUEST_RELEASE, 0, 10 * S);
	assert_decided(o, 1, STATE_VERIFY, STATE_EVICTED, NULL);
	assert_state(o, STATE_ACTIVE);
	assert_true(o->w[0].resident);
}

/* The guard is killed before the outcome of a stop arrives, or after the outcome and before the
 * eviction is verified. */
GUARD_ROW("17", the_notes_of_an_eviction_are_stored_before_it_is_verified)
{
	unsigned writes;

	o->p.standard.max_level = 4;
	o->p.worker[0].match.unit = "w0.service";
	o->w[0].acts.lies = UINT_MAX; /* so that the eviction is never verified */
	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 0);
	until_ordered_to_leave(o);
	writes = o->journal.writes;
	world_step(o); /* its outcome arrives */
	assert_state(o, STATE_VERIFY);
	assert_int_equal(o->journal.writes, writes + 1);
}

GUARD_ROW("18, 19, 23", a10_an_eviction_that_fails_is_tried_twice_more_and_then_stuck)
{
	begin(o);
	o->w[0].acts.fails = 3;
	ask_run(o, REQUEST_EVICT, 0, 10 * S);
	assert_decided(o, 2, STATE_EVICT, STATE_EVICT, "try again");
	assert_state(o, STATE_STUCK);
	assert_int_equal(o->w[0].levels[2], 3);
	assert_has(world_last(o, "stuck")->evidence, "it still holds 8192 MiB");
	world_run(o, 35 * S); /* row 23 */
	assert_decided(o, 1, STATE_STUCK, STATE_EVICTED, "freed");
	assert_int_equal(o->w[0].levels[2], 4);
}

/* As while the journal is being written: nobody fetches orders. */
static void run_without_orders(struct world *o, uint64_t span_ns)
{
	for (uint64_t end = o->now + span_ns; o->now < end; o->now += o->step_ns) {
		world_scene(o);
		guard_observe(o->g, &o->s);
	}
}

GUARD_ROW("18", an_order_that_nobody_fetched_counts_as_no_try)
{
	o->p.standard.budget_ns = 120 * S;
	begin(o);
	ask_only(o, REQUEST_EVICT);
	run_without_orders(o, 80 * S);
	assert_state(o, STATE_EVICT);
	world_run(o, S);
	assert_decided(o, 0, ANY, ANY, "try again");
	assert_orders(o, 1, EVICT);
	assert_state(o, STATE_EVICTED);
}

/* A hook would load the model a second time. */
GUARD_ROW("19, 24", a_worker_whose_order_nobody_fetched_is_not_resumed)
{
	o->p.worker[0].kind = WORKER_EXEC;
	begin(o);
	world_guest(o, "now", 0, 2 * GIB, o->now - WORLD_START, 100 * S);
	run_without_orders(o, 110 * S);
	world_run(o, MINUTE);
	assert_decided(o, 1, STATE_EVICT, STATE_STUCK, NULL);
	assert_orders(o, 0, EVICT);
	assert_orders(o, 0, RESUME);
	assert_state(o, STATE_ACTIVE);
}

GUARD_ROW("18", a_worker_that_fails_twice_is_evicted_at_the_third)
{
	begin(o);
	o->w[0].acts.fails = 2;
	ask_run(o, REQUEST_EVICT, 0, 10 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(o->w[0].levels[2], 3);
}

GUARD_ROW("19", a_worker_that_never_answers_is_stuck_and_the_guard_goes_on)
{
	world_again(o, 2, 2);
	on_gpu(o, 1, 1);
	begin(o);
	o->w[0].acts.silent = true;
	o->w[0].acts.lies = UINT_MAX;
	world_ask(o, -1, REQUEST_EVICT, 0);
	world_run(o, 5 * S);
	assert_int_equal(world_state(o, 1), STATE_EVICTED);
	/* The action ends the call at its deadline, and the outcome is lost. */
	o->w[0].has_order = false;
	for (unsigned i = 0; i < 1200; i++) {
		world_step(o);
		o->w[0].has_order = false;
	}
	assert_state(o, STATE_STUCK);
}

GUARD_ROW("21", what_is_not_freed_is_tried_at_the_next_level)
{
	o->p.worker[0].knobs.max_level = 4;
	o->p.worker[0].match.unit = "w0.service";
	begin(o);
	o->w[0].acts.lies = 1;
	ask_run(o, REQUEST_EVICT, 0, 8 * S);
	assert_decided(o, 1, STATE_VERIFY, STATE_EVICT, "next level");
	assert_int_equal(o->w[0].levels[4], 1);
	/* The process is gone because it was stopped: the worker is evicted, not absent. */
	world_run(o, 5 * S);
	assert_state(o, STATE_EVICTED);
	ask_run(o, REQUEST_RESUME, 0, 5 * S);
	assert_state(o, STATE_ACTIVE);
	assert_true(o->w[0].alive && o->w[0].resident);
}

GUARD_ROW("15, 18", a_refusal_is_reported_at_once_and_not_tried_again)
{
	begin(o);
	o->w[0].acts.refuses = true;
	ask_run(o, REQUEST_EVICT, 0, S);
	assert_has(world_last(o, "refused")->evidence, "HTTP 500");
	assert_int_equal(world_last(o, "refused")->to, STATE_DRAIN);
	assert_state(o, STATE_STUCK);
	assert_orders(o, 1, DRAIN);
	assert_orders(o, 1, EVICT);
}

GUARD_ROW("18", a_refusal_leads_to_the_next_level_at_once)
{
	o->p.worker[0].knobs.max_level = 4;
	o->p.worker[0].match.unit = "w0.service";
	begin(o);
	o->w[0].acts.refuses = true;
	ask_run(o, REQUEST_EVICT, 0, 2 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(o->w[0].levels[2], 1);
	assert_int_equal(o->w[0].levels[4], 1);
}

/* llama.cpp's router kills a model 10 s after the request to unload it. */
GUARD_ROW("21", a_server_has_its_own_time_to_stop)
{
	o->p.worker[0].kind = WORKER_LLAMACPP;
	o->p.worker[0].knobs.max_level = 4;
	o->p.worker[0].match.unit = "w0.service";
	begin(o);
	o->w[0].acts.lies = 1;
	ask_run(o, REQUEST_EVICT, 0, 10 * S);
	assert_state(o, STATE_VERIFY);
	o->w[0].resident = false;
	world_run(o, S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(o->w[0].levels[4], 0);
}

GUARD_ROW("21", memory_that_still_falls_is_waited_for)
{
	o->p.worker[0].knobs.max_level = 4;
	o->p.worker[0].match.unit = "w0.service";
	begin(o);
	o->w[0].acts.lies = 1;
	world_ask(o, 0, REQUEST_EVICT, 0);
	for (unsigned i = 0; i < 6; i++) {
		world_run(o, 4 * S);
		o->w[0].load[0] -= GIB;
	}
	world_run(o, S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(o->w[0].levels[4], 0);
}

GUARD_ROW("18, 19", a12_no_process_is_signalled_unless_killing_is_allowed)
{
	for (unsigned kill = 0; kill < 3; kill++) {
		world_again(o, 1, 1);
		o->p.worker[0].knobs.max_level = kill == 0 ? 2 : 6;
		o->p.worker[0].knobs.allow_kill = kill == 2;
		o->w[0].acts.fail_level = 5; /* only SIGKILL helps */
		begin(o);
		ask_run(o, REQUEST_EVICT, 0, 120 * S);
		assert_int_equal(o->w[0].levels[4], 0);
		assert_int_equal(o->w[0].levels[5] > 0, kill == 2);
		assert_int_equal(o->w[0].levels[6], kill == 2);
		assert_state(o, kill == 2 ? STATE_ABSENT : STATE_STUCK);
		assert_int_equal(world_status(o, 0).evictions, kill == 2); /* verified */
	}
}

GUARD_ROW("22, 24", a10_done_without_free_memory_is_never_evicted)
{
	begin(o);
	o->w[0].acts.lies = UINT_MAX;
	ask_run(o, REQUEST_EVICT, 60 * S, 4 * S);
	assert_state(o, STATE_VERIFY);
	world_run(o, 3 * S);
	assert_state(o, STATE_STUCK);
	assert_decided(o, 0, ANY, STATE_EVICTED, NULL);
	/* the reason ends: by row 24 of GUARD-MACHINE.md the resume order wakes the worker */
	world_run(o, 60 * S);
	assert_decided(o, 1, STATE_STUCK, STATE_PRECHECK, NULL);
	assert_decided(o, 1, STATE_RESUME, STATE_VERIFY_UP, NULL);
	assert_state(o, STATE_ACTIVE);
	assert_false(o->w[0].closed);
}

/* The worker reports success but frees almost nothing, as vLLM may do: it sleeps and keeps its
 * memory. */
static void asleep(struct world *o, uint64_t guest_until_ns)
{
	world_again(o, 1, 1);
	if (guest_until_ns)
		world_guest(o, "game", 0, 2 * GIB, 2 * S, guest_until_ns);
	o->w[0].acts.lies = UINT_MAX;
	begin(o);
	if (!guest_until_ns)
		world_ask(o, 0, REQUEST_EVICT, 0);
	world_until(o, 15 * S);
	assert_state(o, STATE_STUCK);
	assert_true(o->w[0].asleep && o->w[0].closed);
}

GUARD_ROW("24", a_worker_that_sleeps_without_freeing_is_woken_when_its_reason_ends)
{
	static const enum guard_request ask[] = { REQUEST_RESUME_NOW, REQUEST_RELEASE,
						  REQUEST_RESUME };

	for (unsigned i = 0; i < sizeof(ask) / sizeof(ask[0]); i++) {
		asleep(o, 0);
		ask_run(o, ask[i], 0, 5 * S);
		assert_orders(o, 1, RESUME);
		assert_awake(o);
	}
	asleep(o, 20 * S); /* the contender leaves */
	world_until(o, 60 * S);
	assert_awake(o);
}

GUARD_ROW("24", a_worker_that_sleeps_without_freeing_is_woken_after_a_restart)
{
	asleep(o, 20 * S);
	world_until(o, 21 * S);
	world_restart(o);
	world_run(o, 20 * S);
	assert_awake(o);
	asleep(o, 20 * S); /* also if the GPU was not readable for a while */
	o->health[0] = SCENE_BLIND;
	world_until(o, 25 * S);
	o->health[0] = SCENE_OK;
	world_until(o, 60 * S);
	assert_awake(o);
}

GUARD_ROW("24, 34", a_worker_that_sleeps_and_cannot_be_woken_is_not_called_active)
{
	asleep(o, 0);
	o->w[0].acts.wont_return = true;
	ask_run(o, REQUEST_RELEASE, 0, 300 * S);
	assert_state(o, STATE_STUCK);
	assert_decided(o, 0, ANY, STATE_EVICTED, NULL);
	assert_in_range(o->w[0].verbs[ORDER_RESUME], 2, 4); /* tried again, but not often */
	assert_orders(o, 1, EVICT); /* no second order to evict, because no reason is left */
	o->w[0].acts.wont_return = false;
	world_run(o, 600 * S);
	assert_awake(o);
}

/* vLLM without its sleep mode supports neither /sleep nor /wake_up. */
GUARD_ROW("24, 34", a_worker_that_refuses_to_leave_and_to_return_goes_on_as_it_was)
{
	/* 0: the worker may be resumed; 1: it is never resumed; 2: its hook must not run
	 * twice. */
	for (unsigned i = 0; i < 3; i++) {
		world_again(o, 1, 1);
		o->p.worker[0].resume = i == 1 ? RESUME_NEVER : RESUME_RESTORE;
		o->p.worker[0].kind = i == 2 ? WORKER_EXEC : WORKER_VLLM;
		o->w[0].acts.fails = UINT_MAX;
		o->w[0].acts.wont_return = true;
		begin(o);
		ask_run(o, REQUEST_EVICT, 0, 10 * S);
		assert_state(o, STATE_STUCK);
		ask_run(o, REQUEST_RELEASE, 0, 5 * S);
		assert_orders(o, i == 0, RESUME);
		assert_awake(o);
	}
}

GUARD_ROW("20", freed_bytes_must_be_seen_on_the_device_too)
{
	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 0);
	until_ordered_to_leave(o);
	/* The processes are gone, but the memory is still used, by an orphan that is not
	 * listed. */
	o->total[0] = 4 * GIB;
	world_run(o, 3 * S);
	assert_state(o, STATE_VERIFY);
	o->total[0] = 12 * GIB;
	world_run(o, S);
	assert_state(o, STATE_EVICTED);
}

/* Memory is read before the process lists. A worker that takes memory in between appears only
 * in the lists. */
GUARD_ROW("20", a_worker_that_allocates_while_a_scene_is_taken_can_still_be_verified)
{
	begin(o);
	o->missed_bytes = 8 * GIB;
	world_step(o);
	o->missed_bytes = 0;
	ask_run(o, REQUEST_EVICT, 0, 3 * S);
	assert_state(o, STATE_EVICTED);
}

/* Signals and callbacks report success before anything is loaded. An eviction in between has
 * nothing to free. */
GUARD_ROW("20, 37", a_worker_evicted_before_it_loaded_is_evicted_at_once)
{
	o->w[0].residue = GIB / 2;
	begin(o);
	o->w[0].acts.returns_empty = true;
	ask_run(o, REQUEST_EVICT, 10 * S, 30 * S);
	assert_state(o, STATE_VERIFY_UP);
	ask_run(o, REQUEST_EVICT, 60 * S, 2 * S);
	assert_state(o, STATE_EVICTED);
	assert_orders(o, 2, EVICT);
}

GUARD_ROW("14, 20", a_worker_that_takes_more_while_it_leaves_must_free_that_too)
{
	o->w[0].load[0] = 2 * GIB;
	o->w[0].acts.busy = true;
	begin(o);
	ask_run(o, REQUEST_EVICT, 60 * S, S);
	assert_state(o, STATE_DRAIN);
	o->w[0].load[0] = 8 * GIB;
	world_run(o, S);
	o->w[0].acts.busy = false;
	world_run(o, 3 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).resident_bytes, 0);
}

GUARD_ROW("20", memory_that_others_took_meanwhile_does_not_count_against_the_worker)
{
	world_guest(o, "now", 0, 3 * GIB, 10 * S, 0);
	world_guest(o, "now", 0, 7 * GIB, 10 * S + 250 * MS, 0);
	world_begin(o);
	world_until(o, 13 * S);
	assert_state(o, STATE_EVICTED);
}

GUARD_ROW("20", bytes_that_are_unknown_are_judged_by_the_device)
{
	o->w[0].unknown = true;
	begin(o);
	assert_int_equal(world_status(o, 0).resident_bytes, 8 * GIB);
	ask_run(o, REQUEST_EVICT, 0, 2 * S);
	assert_state(o, STATE_EVICTED);
}

/* If the bytes of a process are unknown, the guard estimates the worker's bytes from the used
 * memory of the GPU, which includes the bytes of the worker's other processes. */
GUARD_ROW("20", bytes_of_a_worker_count_once_in_any_order_of_its_processes)
{
	for (unsigned first = 0; first < 2; first++) {
		world_again(o, 1, 1);
		world_begin(o);
		world_scene(o);
		world_process(o, "w0", 101, 7, 0, 2 * GIB, NULL);
		o->s.root[o->s.roots++] = (struct scene_root){ .id = o->s.process[1].id };
		o->s.process[first].bytes_known = false;
		guard_observe(o->g, &o->s);
		assert_int_equal(world_status(o, 0).resident_bytes, 10 * GIB);
	}
}

/* Unknown memory does not count as freed. */
GUARD_ROW("20, 22", memory_that_cannot_be_read_never_proves_an_eviction)
{
	static const struct {
		bool memory, lists, bytes; /* false: the driver does not report it */
		enum guard_state then;
	} rows[] = {
		/* the first row represents a GPU that shares the machine's memory */
		{ false, true, true, STATE_EVICTED }, { true, false, true, STATE_EVICTED },
		{ true, true, false, STATE_EVICTED }, { false, false, true, STATE_STUCK },
		{ false, true, false, STATE_STUCK },  { false, false, false, STATE_STUCK },
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		world_again(o, 1, 1);
		o->w[0].unknown = !rows[i].bytes;
		o->w[0].residue = GIB / 4; /* the process stays in the list */
		begin(o);
		o->host.no_memory = !rows[i].memory;
		o->host.no_lists = !rows[i].lists;
		world_step(o);
		ask_run(o, REQUEST_EVICT, 0, 90 * S);
		assert_state(o, rows[i].then);
	}
}

GUARD_ROW("orders", orders_name_only_the_processes_of_the_worker)
{
	struct guard_order d;

	world_guest(o, "game", 0, 3 * GIB, 0, 0);
	world_begin(o);
	world_scene(o);
	guard_observe(o->g, &o->s);
	ask_only(o, REQUEST_EVICT);
	assert_true(next_order(o, &d));
	assert_int_equal(d.targets, 1);
	assert_int_equal(d.target[0].id.pid, 100);
	assert_false(guard_next_order(o->g, &d));
}

GUARD_ROW("orders", an_order_describes_the_workers_processes_so_that_they_can_be_checked)
{
	struct guard_order order = { 0 };

	begin(o);
	world_scene(o);
	o->s.root[0].print = 77;
	world_process(o, "child", 200, 5, 0, GIB, NULL);
	o->s.process[o->s.processes - 1].ancestor[0] = 100;
	world_process(o, "orphan", 300, 5, 0, GIB, NULL);
	o->s.root[o->s.roots++] =
		(struct scene_root){ .how = ROOT_KEPT, .id.pid = 300, .id.start_ticks = 5 };
	world_process(o, "former", 400, 5, 0, MIB, NULL);
	o->s.root[o->s.roots++] =
		(struct scene_root){ .how = ROOT_FORMER, .id.pid = 400, .id.start_ticks = 5 };
	guard_observe(o->g, &o->s);
	ask_only(o, REQUEST_EVICT);
	assert_true(next_order(o, &order));
	assert_int_equal(order.targets, 3);
	assert_int_equal(order.target[0].id.pid, 100);
	assert_true(order.target[0].itself && order.target[0].print == 77);
	assert_int_equal(order.target[1].id.pid, 200);
	assert_false(order.target[1].itself);
	assert_int_equal(order.target[2].id.pid, 300);
	assert_false(order.target[2].itself);
	assert_int_equal(order.roots, 2);
}

GUARD_ROW("25, orders", an_order_names_the_gpus_and_the_reasons_for_hooks)
{
	struct guard_order order;

	begin(o);
	world_ask(o, 0, REQUEST_EVICT, 0);
	until_ordered_to_leave(o);
	world_run(o, S);
	assert_state(o, STATE_EVICTED);
	/* the worker is evicted again, and this test fetches the order */
	o->w[0].resident = true;
	world_scene(o);
	guard_observe(o->g, &o->s);
	assert_true(next_order(o, &order));
	assert_int_equal(order.verb, ORDER_EVICT);
	assert_string_equal(order.gpus, "GPU-0");
	assert_string_equal(order.reason, "manual");
}

GUARD_ROW("orders", a_checkpoint_order_is_issued_only_after_its_processes_are_recorded)
{
	struct guard_order order;
	struct guard_record r;
	bool came = false;

	o->p.worker[0].kind = WORKER_CHECKPOINT;
	o->w[0].load[0] = MIB;
	begin(o);
	ask_only(o, REQUEST_EVICT);
	for (unsigned look = 0; look < 100 && !came; look++) {
		o->now += o->step_ns;
		world_scene(o);
		for (unsigned i = 0; i < 70; i++) { /* processes of a large tree */
			world_process(o, "w0", 500 + i, 9, 0, 8 * MIB, NULL);
			o->s.process[o->s.processes - 1].ancestor[0] = o->w[0].pid;
		}
		guard_observe(o->g, &o->s);
		while (!came && next_order(o, &order)) {
			came = order.verb == ORDER_EVICT;
			if (!came)
				guard_outcome(o->g,
					      &(struct guard_outcome){ .order = order.id,
								       .ending = ENDING_DONE },
					      o->now);
		}
	}
	assert_true(came);
	assert_int_equal(order.level, 3);
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_int_equal(order.targets, GUARD_TARGETS);
	assert_true(order.more);
	assert_int_equal(r.put_away_count, order.targets);
	for (unsigned i = 0; i < order.targets; i++)
		assert_int_equal(r.put_away[i].pid, order.target[i].id.pid);
}

/* After the restart, the worker's process has another start time. */
GUARD_ROW("48", a_worker_that_restarts_during_an_eviction_keeps_its_first_identity)
{
	struct guard_record r;

	o->p.worker[0].knobs.verify_ns = 20 * S;
	o->w[0].acts.lies = 1;
	begin(o);
	ask_run(o, REQUEST_HOLD_EVICTED, UINT64_MAX, 3 * S);
	assert_state(o, STATE_VERIFY);
	o->w[0].start_ticks = 99;
	o->w[0].closed = false;
	world_run(o, 3 * S);
	assert_state(o, STATE_VERIFY);
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_int_equal(r.root[0].start_ticks, 7);
	assert_orders(o, 1, CLOSE);
	o->w[0].resident = false;
	world_run(o, 3 * S);
	assert_state(o, STATE_EVICTED);
	assert_decided(o, 0, ANY, STATE_ABSENT, NULL);
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_int_equal(r.root[0].start_ticks, 99);
	assert_orders(o, 2, CLOSE);
	assert_true(o->w[0].closed);
}

GUARD_ROW("48", a_worker_that_restarts_and_is_stuck_is_another_one)
{
	o->p.worker[0].knobs.verify_ns = 5 * S;
	o->w[0].acts.lies = 1;
	begin(o);
	ask_run(o, REQUEST_HOLD_EVICTED, UINT64_MAX, 3 * S);
	o->w[0].start_ticks = 99;
	o->w[0].acts.fail_level = 6;
	world_run(o, 5 * S);
	assert_decided(o, 1, STATE_VERIFY, STATE_STUCK, NULL);
	assert_decided(o, 1, STATE_STUCK, STATE_ABSENT, "not there");
	assert_decided(o, 1, STATE_ABSENT, STATE_RECONCILE, "appeared");
}

TEST_MAIN(NULL, NULL)
