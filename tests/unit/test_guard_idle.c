/* Tests idle models: the guard unloads them after a time, and they return when a client
 * requests them. */
#define TEST_SETUP    fresh
#define TEST_TEARDOWN done
#include "guard_world.h"

static struct world o;

static int fresh(void **state)
{
	world_init(&o, 1, 1);
	o.step_ns = S;
	o.p.worker[0].resume = RESUME_LAZY;
	o.p.worker[0].idle_after_ns = 300 * S;
	o.p.worker[0].idle_w = 43;
	o.p.worker[0].reload_j = NAN;
	o.w[0].reports_load = true;
	return 0;
}

static int done(void **state)
{
	world_done(&o);
	return 0;
}

static uint32_t mask(void)
{
	return world_status(&o, 0).mask;
}

static void idle_out(void)
{
	world_begin(&o);
	world_run(&o, 320 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(mask(), UINT32_C(1) << REASON_IDLE);
}

TEST(a_model_that_idles_for_its_time_is_unloaded_and_the_worker_still_admits_work)
{
	world_begin(&o);
	world_run(&o, 290 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_run(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(mask(), UINT32_C(1) << REASON_IDLE);
	assert_false(o.w[0].resident);
	world_run(&o, 3600 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(o.w[0].verbs[ORDER_CLOSE], 0);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME] + o.w[0].verbs[ORDER_OPEN], 0);
	assert_non_null(world_last(&o, "idle"));
	assert_in(world_last(&o, "idle")->evidence, "idle for 300 s");
}

TEST(an_idle_worker_that_a_contender_closed_admits_work_again_after_it)
{
	world_guest(&o, "job", 0, 6 * GIB, 400 * S, 500 * S);
	idle_out();
	world_until(&o, 450 * S);
	assert_true(mask() & UINT32_C(1) << REASON_CONTENTION);
	assert_true(o.w[0].closed);
	world_until(&o, 600 * S);
	assert_int_equal(mask(), UINT32_C(1) << REASON_IDLE);
	assert_false(o.w[0].closed);
	assert_false(o.w[0].resident);
	assert_int_equal(o.w[0].verbs[ORDER_OPEN], 1);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
}

TEST(energy_decides_when_it_is_known)
{
	o.p.worker[0].idle_after_ns = 0;
	o.p.worker[0].idle_economy = true;
	world_begin(&o);
	world_run(&o, 3600 * S); /* the energy of a load is unknown */
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	guard_set_idle_economy(o.g, 0, 4000 * S, 43, 172000);
	world_run(&o, 300 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_run(&o, 200 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_in(world_last(&o, "idle")->evidence, "172000 J");
}

TEST(occasional_work_keeps_a_worker_from_being_idle)
{
	world_begin(&o);
	for (unsigned i = 0; i < 20; i++) {
		o.w[0].works = 0;
		world_run(&o, 200 * S);
		o.w[0].works = 0.3;
		world_run(&o, 10 * S);
	}
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
}

TEST(a_worker_without_utilisation_never_idles)
{
	o.w[0].reports_load = false;
	world_begin(&o);
	world_run(&o, 3600 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
}

/* With an idle time of 0, a worker counts as idle even while it is busy: one rule says that it
 * must leave because it is idle, another that it must stay because it is busy. Because of the
 * contender, every scene has utilisation. */
TEST(rules_that_contradict_each_other_are_reported_once_and_give_no_order)
{
	o.p.worker[0].idle_economy = true;
	o.w[0].works = 0.3;
	world_guest(&o, "guest", 0, 16 * MIB, 0, 0);
	world_begin(&o);
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	guard_set_idle_economy(o.g, 0, 0, 43, NAN);
	world_run(&o, 5 * S);
	assert_int_equal(world_decided(&o, 0, GUARD_STATES, GUARD_STATES, "not settled"), 1);
	assert_in(world_last(&o, "not settled")->evidence, "worker w0 gets no order");
	assert_in(world_last(&o, "not settled")->evidence, "again at the next observation");
	assert_int_equal(o.w[0].verbs[ORDER_DRAIN] + o.w[0].verbs[ORDER_EVICT], 0);
	o.w[0].works = 0; /* the contradiction ends, and may be reported again */
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_decided(&o, 0, GUARD_STATES, GUARD_STATES, "not settled"), 1);
}

static unsigned asked_in_100_s(void)
{
	unsigned asked = 0;

	o.step_ns = 100 * MS;
	world_begin(&o);
	for (unsigned i = 0; i < 1000; i++) {
		asked += guard_wants_utilisation(o.g);
		world_step(&o);
	}
	return asked;
}

TEST(utilisation_for_idle_detection_is_read_rarely)
{
	assert_in_range(asked_in_100_s(), 15, 25);
}

TEST(utilisation_that_is_never_reported_is_read_rarely_too)
{
	o.w[0].reports_load = false;
	assert_in_range(asked_in_100_s(), 15, 25);
}

TEST(a_request_ends_idle_eviction_and_does_not_count_as_a_reload_storm)
{
	idle_out();
	for (unsigned i = 0; i < 10; i++) {
		o.w[0].resident = true;
		o.w[0].works = 0.5;
		world_run(&o, 10 * S);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		assert_int_equal(mask(), 0);
		o.w[0].works = 0;
		world_run(&o, 330 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	}
	assert_int_equal(world_decided(&o, 0, GUARD_STATES, GUARD_STATES, "reload-storm"), 0);
	assert_int_equal(world_decided(&o, 0, GUARD_STATES, STATE_ACTIVE, "requested"), 10);
	assert_in(world_last(&o, "requested")->evidence, "saved about");
}

TEST(after_idling_a_smaller_model_than_before_also_counts_as_back)
{
	idle_out();
	o.w[0].load[0] = GIB;
	o.w[0].resident = true;
	o.w[0].works = 0.5;
	world_run(&o, 600 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
}

TEST(contention_keeps_an_idle_worker_evicted)
{
	idle_out();
	world_guest(&o, "game", 0, 6 * GIB, o.now - WORLD_START, o.now - WORLD_START + 60 * S);
	world_run(&o, 10 * S);
	assert_true(mask() & UINT32_C(1) << REASON_CONTENTION);
	assert_int_equal(o.w[0].verbs[ORDER_CLOSE], 1); /* now a contender needs the GPU */
	o.w[0].resident = true; /* a client request loads the model: it must leave again */
	world_run(&o, 5 * S);
	assert_false(o.w[0].resident);
	assert_int_equal(world_decided(&o, 0, GUARD_STATES, STATE_EVICT, "reloaded"), 1);
	world_run(&o, 120 * S);
	/* A client requested the model, so it is no longer idle and may return when the game
	 * ends. */
	assert_int_equal(mask(), 0);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_false(o.w[0].closed);
}

TEST(an_idle_worker_stays_evicted_after_contention_ends)
{
	idle_out();
	world_guest(&o, "game", 0, 6 * GIB, o.now - WORLD_START, o.now - WORLD_START + 60 * S);
	world_run(&o, 300 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(mask(), UINT32_C(1) << REASON_IDLE);
}

TEST(requests_in_flight_keep_a_worker_from_being_idle)
{
	o.w[0].acts.busy = true;
	world_begin(&o);
	world_run(&o, 320 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	o.w[0].acts.busy = false;
	world_run(&o, 320 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
}

TEST(an_idle_worker_that_does_not_leave_is_left_active)
{
	o.w[0].acts.lies = UINT_MAX;
	o.p.worker[0].knobs.max_level = 4;
	world_begin(&o);
	world_run(&o, 400 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	for (unsigned level = 3; level < 8; level++)
		assert_int_equal(o.w[0].levels[level], 0);
	assert_true(o.w[0].alive);
}

TEST(a_request_to_resume_brings_an_idle_worker_back_and_a_hold_keeps_it)
{
	char message[200];

	idle_out();
	assert_int_equal(
		guard_request(o.g, 0, REQUEST_RESUME, 0, o.now, message, sizeof(message)), 0);
	world_run(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	o.w[0].resident = true;
	assert_int_equal(guard_request(o.g, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX, o.now, message,
				       sizeof(message)),
			 0);
	world_run(&o, 3600 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
}

TEST(the_reason_idle_survives_a_restart)
{
	idle_out();
	world_restart(&o);
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(mask(), UINT32_C(1) << REASON_IDLE);
	guard_free(o.g);
	o.w[0].resident = true; /* a client requested the model while no guard ran */
	world_begin(&o);
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(mask(), 0);
}

TEST(in_a_dry_run_an_idle_worker_counts_as_evicted_until_it_works_again)
{
	o.p.mode = GUARD_DRY_RUN;
	world_begin(&o);
	world_run(&o, 330 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(o.orders, 0);
	o.w[0].works = 0.5;
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_status(&o, 0).would_evict, 1);
}

TEST(a_worker_without_an_idle_time_is_never_evicted_as_idle)
{
	o.p.worker[0].idle_after_ns = 0;
	world_begin(&o);
	guard_set_idle_economy(o.g, 0, 10 * S, 43, 100);
	world_run(&o, 3600 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(guard_idle_since(o.g, 0), 0);
	assert_false(guard_wants_utilisation(o.g));
}

TEST_MAIN(NULL, NULL)
