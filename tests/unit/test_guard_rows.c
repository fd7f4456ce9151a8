/* The rows of the guard's state table (docs/GUARD-MACHINE.md), each in a world that makes it happen. */
#include "guard_world.h"

#define ANY GUARD_STATES

/* One worker of 8 GiB on a board of 12, looked at once. */
static void one(struct world *o)
{
	world_init(o, 1, 1);
	world_begin(o);
	world_step(o);
}

static void record(struct world *o, uint32_t mask, bool evicted, unsigned level)
{
	struct guard_record *r = &o->disk[o->on_disk++];

	memset(r, 0, sizeof(*r));
	snprintf(r->worker, sizeof(r->worker), "w%u", o->on_disk - 1);
	r->mask = mask;
	r->evicted = evicted;
	r->level = level;
	r->need_bytes = r->gpu[0].need_bytes = 8 * GIB;
	snprintf(r->gpu[0].uuid, sizeof(r->gpu[0].uuid), "GPU-0");
	r->gpus = 1;
}

#define CONTENTION (1u << REASON_CONTENTION)
#define MANUAL     (1u << REASON_MANUAL)

/* ---- rows 1 to 7: as found ---- */

static void a_worker_found_on_the_gpu_is_active_and_its_need_is_known(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	assert_int_equal(world_said(&o, 0, STATE_RECONCILE, STATE_ACTIVE, NULL), 1);
	assert_int_equal(world_status(&o, 0).need_bytes, 8 * GIB);
	assert_int_equal(o.orders, 0);
	world_done(&o);
}

static void a_worker_found_with_a_reason_against_it_is_drained(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	record(&o, MANUAL, true, 2);
	o.disk[0].hold = HOLD_EVICTED;
	world_begin(&o);
	world_step(&o);
	assert_int_equal(world_said(&o, 0, STATE_RECONCILE, STATE_DRAIN, "manual"), 1);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	world_done(&o);
}

static void a_worker_found_out_by_our_record_stays_out_until_it_may_return(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].resident = false;
	record(&o, MANUAL | CONTENTION, true, 2);
	o.disk[0].hold = HOLD_EVICTED;
	o.disk[0].hold_until_wall_ns = WORLD_WALL - S; /* over while nobody looked */
	world_begin(&o);
	world_step(&o);
	assert_int_equal(world_said(&o, 0, STATE_RECONCILE, STATE_EVICTED, NULL), 1);
	assert_int_equal(world_status(&o, 0).mask, CONTENTION);
	assert_int_equal(world_status(&o, 0).hold, HOLD_NONE);
	world_run(&o, 40 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	world_done(&o);
}

static void a_worker_found_out_without_a_record_is_lazy(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].resident = false;
	world_begin(&o);
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_status(&o, 0).need_bytes, 0);
	assert_int_equal(o.orders, 0);
	world_done(&o);
}

static void a_checkpoint_is_remembered_by_its_identities(void **state)
{
	struct world o;

	(void)state;
	for (unsigned other = 0; other < 2; other++) {
		world_init(&o, 1, 1);
		o.p.worker[0].kind = WORKER_CHECKPOINT;
		o.w[0].resident = false;
		record(&o, CONTENTION, true, 3);
		o.disk[0].put_away_count = 1;
		o.disk[0].put_away[0].pid = o.w[0].pid;
		o.disk[0].put_away[0].start_ticks = o.w[0].start_ticks + other;
		world_begin(&o);
		world_step(&o);
		assert_int_equal(world_said(&o, 0, STATE_RECONCILE, STATE_ABSENT, NULL), other);
		/* Whoever has the number now is another worker: the reason is kept, no more. */
		assert_int_equal(world_state(&o, 0), STATE_QUIET);
		assert_int_equal(world_status(&o, 0).mask, CONTENTION);
		world_run(&o, 32 * S);
		assert_int_equal(o.disk[0].put_away_count, 0);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		world_done(&o);
	}
}

static void the_return_of_a_checkpoint_is_for_who_was_put_away(void **state)
{
	struct world o;
	struct guard_order d;

	(void)state;
	one(&o);
	world_done(&o);
	world_init(&o, 1, 1);
	o.p.worker[0].kind = WORKER_CHECKPOINT;
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(o.w[0].levels[3], 1);
	assert_int_equal(o.disk[0].put_away_count, 1);
	assert_int_equal(o.disk[0].put_away[0].pid, 100);
	char message[100];
	assert_int_equal(guard_ask(o.g, 0, ASK_RESUME, 0, o.now, message, sizeof(message)), 0);
	struct guard_record r;
	assert_false(guard_next_order(o.g, &d)); /* its record first */
	while (guard_next_record(o.g, &r))
		;
	assert_true(guard_next_order(o.g, &d));
	assert_int_equal(d.verb, ORDER_RESUME);
	assert_int_equal(d.targets, 1);
	assert_int_equal(d.target[0].pid, 100);
	assert_int_equal(d.target[0].start_ticks, 7);
	world_done(&o);
}

static void a_worker_that_is_not_there_is_absent(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].alive = false;
	record(&o, CONTENTION, true, 2);
	world_begin(&o);
	world_step(&o);
	assert_int_equal(world_said(&o, 0, STATE_RECONCILE, STATE_ABSENT, NULL), 1);
	assert_false(o.disk[0].evicted); /* the entry is closed */
	world_done(&o);
}

/* ---- rows 8 to 13: on the GPU ---- */

static void a_rule_that_says_now_waits_for_nothing(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "now-game", 0, 20 * MIB, 10 * S, 0);
	world_begin(&o);
	world_until(&o, 10 * S + 100 * MS);
	assert_int_equal(world_said(&o, 0, STATE_SUSPECT, STATE_DRAIN, "contend-now"), 1);
	assert_int_equal(world_last(&o, "contend-now")->mono_ns, WORLD_START + 10 * S);
	world_done(&o);
}

static void hard_reasons_drain_at_once(void **state)
{
	struct world o;

	(void)state;
	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		if (r == REASON_CONTENTION || r == REASON_BLIND || r == REASON_RESERVED ||
		    r == REASON_IDLE)
			continue;
		one(&o);
		o.p.worker[0].ac_only = true;
		o.p.worker[0].schedule[0] = (struct policy_span){ 127, 0, 1439 };
		o.on_battery = r == REASON_BATTERY;
		o.p.worker[0].schedules = r == REASON_SCHEDULE;
		if (r == REASON_MANUAL)
			world_ask(&o, 0, ASK_EVICT, 0);
		if (r == REASON_THERMAL || r == REASON_HEALTH || r == REASON_BUDGET)
			guard_reason_set(o.g, "GPU-0", r, true, "as a test has it", o.now);
		world_step(&o);
		assert_int_equal(
			world_said(&o, 0, STATE_ACTIVE, STATE_DRAIN, guard_reason_name(r)), 1);
		world_run(&o, 3 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		assert_int_equal(world_status(&o, 0).mask, 1u << r);
		assert_false(o.w[0].resident);
		world_done(&o);
	}
}

static void a_demand_that_goes_at_once_is_a_near_miss(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 10 * S + 150 * MS);
	world_begin(&o);
	world_until(&o, 20 * S);
	assert_int_equal(world_said(&o, 0, STATE_ACTIVE, STATE_SUSPECT, NULL), 1);
	assert_int_equal(world_said(&o, 0, STATE_SUSPECT, STATE_ACTIVE, "near miss"), 1);
	assert_int_equal(o.orders, 0);
	world_done(&o);
}

/* Evicted for one guest, returned, and there is the next one. */
static void returned(struct world *o, const char *next, unsigned type)
{
	world_init(o, 1, 1);
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_guest(o, next, 0, 4 * GIB, 60 * S, 0)->type = type;
	world_begin(o);
	world_until(o, 61 * S);
	assert_int_equal(world_status(o, 0).resumes, 1);
}

static void who_just_returned_is_damped_for_compute_and_not_for_graphics(void **state)
{
	struct world o;

	(void)state;
	returned(&o, "other", GW_PROCESS_COMPUTE);
	assert_int_equal(world_said(&o, 0, STATE_SUSPECT, STATE_SUSPECT, "damped"), 1);
	assert_int_equal(world_state(&o, 0), STATE_SUSPECT);
	assert_true(world_last(&o, "damped")->next_ns > WORLD_START + 100 * S);
	world_until(&o, 120 * S);
	assert_int_equal(world_status(&o, 0).evictions, 2);
	world_done(&o);
	returned(&o, "game", GW_PROCESS_GRAPHICS);
	world_run(&o, S);
	assert_int_equal(world_status(&o, 0).evictions, 2);
	world_done(&o);
}

static void an_action_on_a_gpu_damps_the_next_one_there(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 2);
	o.total[0] = 24 * GIB;
	world_guest(&o, "job", 0, 5 * GIB, 20 * S, 0);
	world_begin(&o);
	world_until(&o, 15 * S);
	world_ask(&o, 1, ASK_EVICT, 0);
	world_until(&o, 22 * S);
	assert_int_equal(world_said(&o, 0, STATE_SUSPECT, STATE_SUSPECT, "damped"), 1);
	world_until(&o, 32 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void a_hold_active_masks_contention_and_says_so_but_never_heat(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "game", 0, 3 * GIB, 10 * S, 0);
	world_begin(&o);
	world_until(&o, 5 * S);
	assert_int_equal(world_ask(&o, 0, ASK_HOLD_ACTIVE, 3600 * S), 0);
	world_until(&o, 60 * S);
	assert_int_equal(world_said(&o, 0, ANY, ANY, "hold active"), 2); /* asked, masked */
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_said(&o, 0, ANY, STATE_SUSPECT, NULL), 0);
	assert_non_null(strstr(world_last(&o, "hold active")->evidence, "masks contention"));
	assert_non_null(strstr(world_status(&o, 0).why, "masks contention"));
	assert_int_equal(o.orders, 0);
	guard_reason_set(o.g, "GPU-0", REASON_BUDGET, true, "too dear", o.now);
	world_run(&o, S);
	assert_int_equal(o.orders, 0);
	guard_reason_set(o.g, "GPU-0", REASON_THERMAL, true, "too hot", o.now);
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void one_that_is_held_is_suspected_no_more_until_it_is_released(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "game", 0, 3 * GIB, 10 * S, 0);
	world_begin(&o);
	world_until(&o, 10 * S + 150 * MS);
	assert_int_equal(world_state(&o, 0), STATE_SUSPECT);
	world_ask(&o, 0, ASK_HOLD_ACTIVE, 3600 * S);
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_status(&o, 0).mask, CONTENTION);
	world_ask(&o, 0, ASK_RELEASE, 0);
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void heat_closes_the_door_until_health_says_it_is_over(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	guard_heat(o.g, "GPU-0", HEAT_THROTTLE | HEAT_WARM, "4 C below its limit");
	world_run(&o, S);
	assert_true(o.w[0].closed);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_non_null(strstr(world_last(&o, "throttled")->evidence, "4 C below its limit"));
	world_run(&o, 60 * S);
	assert_true(o.w[0].closed);
	guard_heat(o.g, "GPU-0", 0, "");
	world_run(&o, 2 * S);
	assert_false(o.w[0].closed);
	assert_int_equal(world_said(&o, 0, STATE_ACTIVE, STATE_ACTIVE, "throttled"), 2);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	world_done(&o);
}

static void nobody_comes_back_to_a_warm_gpu(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	assert_int_equal(world_ask(&o, 0, ASK_EVICT, 0), 0);
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	guard_heat(o.g, "GPU-0", HEAT_WARM, "6 C below its limit");
	assert_int_equal(world_ask(&o, 0, ASK_RESUME_NOW, 0), 0);
	world_run(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_non_null(strstr(world_last(&o, "resume_blocked")->evidence, "GPU is warm"));
	guard_heat(o.g, "GPU-0", 0, "");
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

/* ---- rows 14 to 24: leaving ---- */

static void a10_work_in_flight_is_waited_for_as_long_as_the_drain_timeout(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].busy = true;
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 9 * S);
	assert_int_equal(world_state(&o, 0), STATE_DRAIN);
	assert_true(o.w[0].closed);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	world_run(&o, 2 * S);
	assert_int_equal(world_said(&o, 0, STATE_DRAIN, STATE_EVICT, "drain timeout"), 1);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void heat_does_not_wait_for_work_in_flight(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].busy = true;
	guard_reason_set(o.g, "GPU-0", REASON_THERMAL, true, "hot", o.now);
	world_run(&o, S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void a_cause_that_ends_while_draining_opens_the_door_again(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].busy = true;
	world_guest(&o, "game", 0, 3 * GIB, 10 * S, 13 * S);
	world_begin(&o);
	world_until(&o, 12 * S);
	assert_int_equal(world_state(&o, 0), STATE_DRAIN);
	assert_true(o.w[0].closed);
	assert_true(o.disk[0].evicted);
	world_until(&o, 15 * S);
	assert_int_equal(world_said(&o, 0, STATE_DRAIN, STATE_ACTIVE, "cause gone"), 1);
	assert_false(o.w[0].closed);
	assert_false(o.disk[0].evicted);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	world_done(&o);
}

static void an_eviction_that_has_begun_is_finished_when_its_cause_ends(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].fails = 1;
	world_ask(&o, 0, ASK_EVICT, 0);
	for (unsigned i = 0; i < 50 && world_state(&o, 0) != STATE_EVICT; i++)
		world_step(&o);
	world_ask(&o, 0, ASK_RELEASE, 0);
	world_run(&o, 10 * S);
	assert_int_equal(world_said(&o, 0, STATE_VERIFY, STATE_EVICTED, NULL), 1);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	world_done(&o);
}

static void a10_an_eviction_that_fails_is_tried_twice_more_and_then_stuck(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].fails = 3;
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 10 * S);
	assert_int_equal(world_said(&o, 0, STATE_EVICT, STATE_EVICT, "try again"), 2);
	assert_int_equal(world_state(&o, 0), STATE_STUCK);
	assert_int_equal(o.w[0].levels[2], 3);
	assert_int_equal(o.w[0].verbs[ORDER_NOTIFY], 1);
	assert_non_null(strstr(world_last(&o, "stuck")->evidence, "8192 MiB remain"));
	world_run(&o, 35 * S); /* row 23 */
	assert_int_equal(world_said(&o, 0, STATE_STUCK, STATE_EVICTED, "freed"), 1);
	assert_int_equal(o.w[0].levels[2], 4);
	world_done(&o);
}

static void a_worker_that_fails_twice_is_evicted_at_the_third(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].fails = 2;
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(o.w[0].levels[2], 3);
	world_done(&o);
}

static void a_worker_that_never_answers_is_stuck_and_the_guard_goes_on(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 2, 2);
	o.w[1].load[0] = 0;
	o.w[1].load[1] = 8 * GIB;
	world_begin(&o);
	world_step(&o);
	o.w[0].silent = true;
	o.w[0].lies = UINT_MAX;
	world_ask(&o, -1, ASK_EVICT, 0);
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 1), STATE_EVICTED);
	o.w[0].has_order =
		false; /* whoever acts gives up by the deadline, the answer is lost */
	for (unsigned i = 0; i < 1200; i++) {
		world_step(&o);
		o.w[0].has_order = false;
	}
	assert_int_equal(world_state(&o, 0), STATE_STUCK);
	world_done(&o);
}

static void a10_done_without_free_memory_is_never_evicted(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].lies = UINT_MAX;
	world_ask(&o, 0, ASK_EVICT, 60 * S);
	world_run(&o, 4 * S);
	assert_int_equal(world_state(&o, 0), STATE_VERIFY);
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_STUCK);
	assert_int_equal(world_said(&o, 0, ANY, STATE_EVICTED, NULL), 0);
	world_run(&o, 60 * S); /* the reason ends: row 24, by the order that wakes it */
	assert_int_equal(world_said(&o, 0, STATE_STUCK, STATE_PRECHECK, NULL), 1);
	assert_int_equal(world_said(&o, 0, STATE_RESUME, STATE_VERIFY_UP, NULL), 1);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_false(o.w[0].closed);
	world_done(&o);
}

/* It says done and frees next to nothing, as vLLM may: it is asleep, and its memory is there. */
static void asleep(struct world *o, uint64_t guest_until_ns)
{
	world_init(o, 1, 1);
	if (guest_until_ns)
		world_guest(o, "game", 0, 2 * GIB, 2 * S, guest_until_ns);
	o->w[0].lies = UINT_MAX;
	world_begin(o);
	world_step(o);
	if (!guest_until_ns)
		world_ask(o, 0, ASK_EVICT, 0);
	world_until(o, 15 * S);
	assert_int_equal(world_state(o, 0), STATE_STUCK);
	assert_true(o->w[0].asleep && o->w[0].closed);
}

static void is_awake(struct world *o)
{
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	assert_false(o->w[0].asleep);
	assert_false(o->w[0].closed);
	assert_false(o->disk[0].evicted);
	world_done(o);
}

static void a_worker_that_sleeps_without_freeing_is_woken_when_its_reason_ends(void **state)
{
	static const enum guard_ask ask[] = { ASK_RESUME_NOW, ASK_RELEASE, ASK_RESUME };
	struct world o;

	(void)state;
	for (unsigned i = 0; i < sizeof(ask) / sizeof(ask[0]); i++) {
		asleep(&o, 0);
		world_ask(&o, 0, ask[i], 0);
		world_run(&o, 5 * S);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
		is_awake(&o);
	}
	asleep(&o, 20 * S); /* the contender goes */
	world_until(&o, 60 * S);
	is_awake(&o);
}

static void a_worker_that_sleeps_without_freeing_is_woken_after_a_restart(void **state)
{
	struct world o;

	(void)state;
	asleep(&o, 20 * S);
	world_until(&o, 21 * S);
	world_restart(&o);
	world_run(&o, 5 * S);
	is_awake(&o);
	asleep(&o, 20 * S); /* and after the GPU was not seen for a while */
	o.health[0] = SCENE_BLIND;
	world_until(&o, 25 * S);
	o.health[0] = SCENE_OK;
	world_until(&o, 60 * S);
	is_awake(&o);
}

static void who_sleeps_and_cannot_be_woken_is_not_called_active(void **state)
{
	struct world o;

	(void)state;
	asleep(&o, 0);
	o.w[0].wont_return = true;
	world_ask(&o, 0, ASK_RELEASE, 0);
	world_run(&o, 300 * S);
	assert_int_equal(world_state(&o, 0), STATE_STUCK);
	assert_int_equal(world_said(&o, 0, ANY, STATE_EVICTED, NULL), 0);
	assert_in_range(o.w[0].verbs[ORDER_RESUME], 2, 4); /* with patience */
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);    /* nothing is against it any more */
	o.w[0].wont_return = false;
	world_run(&o, 600 * S);
	is_awake(&o);
}

/* vLLM without its sleep mode knows neither call. */
static void who_refuses_to_leave_and_to_return_goes_on_as_it_was(void **state)
{
	struct world o;

	(void)state;
	for (unsigned i = 0; i < 3;
	     i++) { /* it may; nobody may tell it; a hook would do it twice */
		world_init(&o, 1, 1);
		o.p.worker[0].resume = i == 1 ? RESUME_NEVER : RESUME_RESTORE;
		o.p.worker[0].kind = i == 2 ? WORKER_EXEC : WORKER_VLLM;
		o.w[0].fails = UINT_MAX;
		o.w[0].wont_return = true;
		world_begin(&o);
		world_step(&o);
		world_ask(&o, 0, ASK_EVICT, 0);
		world_run(&o, 10 * S);
		assert_int_equal(world_state(&o, 0), STATE_STUCK);
		world_ask(&o, 0, ASK_RELEASE, 0);
		world_run(&o, 5 * S);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], i == 0);
		is_awake(&o);
	}
}

static void what_is_not_freed_is_tried_at_the_next_level(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.worker[0].knobs.max_level = 4;
	o.p.worker[0].match.unit = "w0.service";
	world_begin(&o);
	world_step(&o);
	o.w[0].lies = 1;
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 8 * S);
	assert_int_equal(world_said(&o, 0, STATE_VERIFY, STATE_EVICT, "next level"), 1);
	assert_int_equal(o.w[0].levels[4], 1);
	/* Its process is gone because it was stopped: it is out, not absent. */
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_ask(&o, 0, ASK_RESUME, 0);
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].alive && o.w[0].resident);
	world_done(&o);
}

static void a12_nobody_is_signalled_unless_killing_is_allowed(void **state)
{
	struct world o;

	(void)state;
	for (unsigned kill = 0; kill < 3; kill++) {
		world_init(&o, 1, 1);
		o.p.worker[0].knobs.max_level = kill == 0 ? 2 : 6;
		o.p.worker[0].knobs.allow_kill = kill == 2;
		o.w[0].fail_level = 5; /* a KILL alone helps */
		world_begin(&o);
		world_step(&o);
		world_ask(&o, 0, ASK_EVICT, 0);
		world_run(&o, 120 * S);
		assert_int_equal(o.w[0].levels[4], 0);
		assert_int_equal(o.w[0].levels[5] > 0, kill == 2);
		assert_int_equal(o.w[0].levels[6], kill == 2);
		assert_int_equal(world_state(&o, 0), kill == 2 ? STATE_ABSENT : STATE_STUCK);
		assert_int_equal(world_status(&o, 0).evictions, kill == 2); /* and proven */
		world_done(&o);
	}
}

static void orders_name_the_processes_of_the_worker_and_nobody_else(void **state)
{
	struct world o;
	struct guard_record r;
	struct guard_order d;
	char message[100];

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "game", 0, 3 * GIB, 0, 0);
	world_begin(&o);
	world_scene(&o);
	guard_look(o.g, &o.s);
	assert_int_equal(guard_ask(o.g, 0, ASK_EVICT, 0, o.now, message, sizeof(message)), 0);
	while (guard_next_record(o.g, &r))
		;
	assert_true(guard_next_order(o.g, &d));
	assert_int_equal(d.targets, 1);
	assert_int_equal(d.target[0].pid, 100);
	assert_false(guard_next_order(o.g, &d));
	world_done(&o);
}

static void freed_bytes_must_be_seen_on_the_device_too(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	world_ask(&o, 0, ASK_EVICT, 0);
	for (unsigned i = 0; i < 50 && !o.w[0].verbs[ORDER_EVICT]; i++)
		world_step(&o);
	/* The tree is gone, but the device still has it: bytes of an orphan that is not listed. */
	o.total[0] = 4 * GIB;
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_VERIFY);
	o.total[0] = 12 * GIB;
	world_run(&o, S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

/* Memory is read before the lists: a worker that took its own in between is in the lists alone. */
static void a_look_that_crosses_with_a_worker_proves_all_the_same(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.missed_bytes = 8 * GIB;
	world_step(&o);
	o.missed_bytes = 0;
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

/* Signals and callbacks say done before anything is loaded: told to leave in between, there is nothing to free. */
static void who_is_told_to_leave_before_it_loaded_is_out(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].residue = GIB / 2;
	world_begin(&o);
	world_step(&o);
	o.w[0].returns_empty = true;
	world_ask(&o, 0, ASK_EVICT, 10 * S);
	world_run(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_VERIFY_UP);
	world_ask(&o, 0, ASK_EVICT, 60 * S);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 2);
	world_done(&o);
}

static void who_takes_more_while_it_leaves_must_free_that_too(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].load[0] = 2 * GIB;
	o.w[0].busy = true;
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_EVICT, 60 * S);
	world_run(&o, S);
	assert_int_equal(world_state(&o, 0), STATE_DRAIN);
	o.w[0].load[0] = 8 * GIB;
	world_run(&o, S);
	o.w[0].busy = false;
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).resident_bytes, 0);
	world_done(&o);
}

static void the_look_that_decides_comes_when_the_need_has_lasted(void **state)
{
	struct world o;
	uint64_t from;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 70 * S, 0);
	world_begin(&o);
	while (world_state(&o, 0) != STATE_SUSPECT && o.now < WORLD_START + 80 * S)
		world_step(&o);
	from = o.s.mono_ns;
	assert_int_equal(guard_next_look(o.g, from + 295 * MS), from + 300 * MS);
	world_done(&o);
}

static void what_others_took_meanwhile_is_no_fault_of_the_worker(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "now", 0, 3 * GIB, 10 * S, 0);
	world_guest(&o, "now", 0, 7 * GIB, 10 * S + 250 * MS, 0);
	world_begin(&o);
	world_until(&o, 13 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void bytes_that_are_not_told_are_judged_by_the_device(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.w[0].unknown = true;
	world_begin(&o);
	world_step(&o);
	assert_int_equal(world_status(&o, 0).resident_bytes, 8 * GIB);
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

/* Not known is not freed. */
static void what_cannot_be_seen_is_never_proven(void **state)
{
	static const struct {
		bool memory, lists, bytes; /* are told */
		enum guard_state then;
	} rows[] = {
		{ false, true, true, STATE_EVICTED }, /* as where memory is the machine's own */
		{ true, false, true, STATE_EVICTED }, { true, true, false, STATE_EVICTED },
		{ false, false, true, STATE_STUCK },  { false, true, false, STATE_STUCK },
		{ false, false, false, STATE_STUCK },
	};
	struct world o;

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		world_init(&o, 1, 1);
		o.w[0].unknown = !rows[i].bytes;
		o.w[0].residue = GIB / 4; /* it stays on the list */
		world_begin(&o);
		world_step(&o);
		o.no_memory = !rows[i].memory;
		o.no_lists = !rows[i].lists;
		world_step(&o);
		world_ask(&o, 0, ASK_EVICT, 0);
		world_run(&o, 90 * S);
		assert_int_equal(world_state(&o, 0), rows[i].then);
		world_done(&o);
	}
}

/* ---- rows 25 to 32: out ---- */

static void a10_a_client_that_reloads_is_evicted_again_and_a_storm_is_ended(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.worker[0].knobs.max_level = 4;
	o.p.worker[0].match.unit = "w0.service";
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_HOLD_EVICTED, UINT64_MAX);
	world_run(&o, 3 * S);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		o.w[0].resident = true;
		world_run(&o, 5 * S);
	}
	assert_int_equal(world_said(&o, 0, STATE_EVICTED, STATE_EVICT, "reloaded"), 2);
	assert_int_equal(world_said(&o, 0, STATE_EVICTED, STATE_EVICT, "reload-storm"), 1);
	assert_non_null(
		strstr(world_last(&o, "reload-storm")->evidence, "hold its clients back"));
	assert_true(world_status(&o, 0).storm);
	assert_int_equal(o.w[0].levels[2], 3);
	assert_int_equal(o.w[0].levels[4], 1);
	world_done(&o);
}

static void a_storm_without_a_unit_to_stop_has_its_door_closed(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	world_ask(&o, 0, ASK_HOLD_EVICTED, UINT64_MAX);
	world_run(&o, 3 * S);
	for (unsigned i = 0; i < 3; i++) {
		o.w[0].closed = false;
		o.w[0].resident = true;
		world_run(&o, 5 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	}
	assert_true(o.w[0].closed);
	assert_int_equal(o.w[0].verbs[ORDER_CLOSE], 2);
	world_done(&o);
}

static void what_remains_is_no_reload(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].residue = 500 * MIB;
	world_ask(&o, 0, ASK_EVICT, 0);
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).residue_bytes, 500 * MIB);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	world_done(&o);
}

static void a_reason_that_is_not_contention_needs_no_quiet(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	world_ask(&o, 0, ASK_EVICT, 20 * S);
	world_run(&o, 22 * S);
	assert_int_equal(world_said(&o, 0, ANY, STATE_QUIET, NULL), 0);
	assert_int_equal(world_said(&o, 0, STATE_EVICTED, STATE_PRECHECK, NULL), 1);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void demand_in_the_quiet_period_begins_it_again(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_guest(&o, "job2", 0, 3 * GIB, 40 * S, 45 * S);
	world_begin(&o);
	world_until(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_QUIET);
	world_until(&o, 41 * S);
	assert_int_equal(world_said(&o, 0, STATE_QUIET, STATE_EVICTED, "memory"), 1);
	world_until(&o, 74 * S);
	assert_int_equal(world_state(&o, 0), STATE_QUIET);
	world_until(&o, 77 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void a_further_reason_ends_the_quiet_period(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(&o);
	world_until(&o, 30 * S);
	guard_reason_set(o.g, "GPU-0", REASON_THERMAL, true, "hot", o.now);
	world_step(&o);
	assert_int_equal(world_said(&o, 0, STATE_QUIET, STATE_EVICTED, NULL), 1);
	world_until(&o, 300 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	guard_reason_set(o.g, "GPU-0", REASON_THERMAL, false, "", o.now);
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void resume_now_skips_the_quiet_and_ends_contention_and_manual_only(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(&o);
	world_until(&o, 22 * S);
	assert_int_equal(world_state(&o, 0), STATE_QUIET);
	world_ask(&o, 0, ASK_RESUME_NOW, 0);
	assert_int_equal(world_said(&o, 0, STATE_QUIET, STATE_PRECHECK, NULL), 1);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_ask(&o, 0, ASK_HOLD_EVICTED, UINT64_MAX);
	guard_reason_set(o.g, "GPU-0", REASON_HEALTH, true, "sick", o.now);
	world_run(&o, 3 * S);
	world_ask(&o, 0, ASK_RESUME_NOW, 0);
	world_run(&o, 60 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_HEALTH);
	assert_int_equal(world_status(&o, 0).hold, HOLD_NONE);
	world_done(&o);
}

static void a_worker_returns_only_when_it_fits_and_the_check_is_named(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	/* Never over the threshold of a contender, but the room is gone: 4 GiB free, 8 needed. */
	world_guest(&o, "ignored", 0, 8 * GIB, 20 * S, 100 * S);
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_EVICT, 30 * S);
	world_until(&o, 95 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_said(&o, 0, STATE_PRECHECK, STATE_EVICTED, "resume_blocked"), 1);
	assert_non_null(strstr(world_status(&o, 0).why, "needs 10240 MiB with headroom"));
	assert_non_null(strstr(world_status(&o, 0).why, "4096 MiB are free"));
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	world_until(&o, 107 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

/* ---- rows 33 to 37: the way back ---- */

static void a_lazy_worker_is_only_let_in_again(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.worker[0].resume = RESUME_LAZY;
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_EVICT, 10 * S);
	world_run(&o, 13 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_false(o.w[0].resident);
	assert_false(o.w[0].closed);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	world_done(&o);
}

static void a_return_that_fails_waits_twice_as_long_each_time(void **state)
{
	struct world o;
	uint64_t at[8];
	unsigned n = 0;

	(void)state;
	one(&o);
	o.w[0].wont_return = true;
	world_ask(&o, 0, ASK_EVICT, 10 * S);
	while (n < 7) {
		unsigned before = o.w[0].verbs[ORDER_RESUME];

		world_step(&o);
		if (o.w[0].verbs[ORDER_RESUME] > before)
			at[n++] = o.now;
	}
	for (unsigned i = 1; i < 7; i++) {
		uint64_t want = 60 * S << (i - 1);

		want = want < 600 * S ? want : 600 * S;
		assert_in_range(at[i] - at[i - 1], want, want + 6 * S);
	}
	assert_true(world_said(&o, 0, STATE_RESUME, STATE_EVICTED, "resume failed") >= 6);
	o.w[0].wont_return = false;
	world_run(&o, 601 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void resume_now_does_not_wait_after_a_failure(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].wont_return = true;
	world_ask(&o, 0, ASK_EVICT, 10 * S);
	world_run(&o, 15 * S);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	o.w[0].wont_return = false;
	world_ask(&o, 0, ASK_RESUME_NOW, 0);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void resume_now_that_cannot_be_does_not_hide_contention_later(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 4 * GIB, 10 * S, 0);
	world_begin(&o);
	world_until(&o, 20 * S);
	world_ask(&o, 0, ASK_RESUME_NOW, 0); /* 8 GiB are free, 10 are needed */
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).mask, CONTENTION);
	world_done(&o);
}

static void a_return_that_loads_nothing_is_taken_back_after_two_minutes(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].returns_empty = true;
	world_ask(&o, 0, ASK_EVICT, 10 * S);
	world_run(&o, 120 * S);
	assert_int_equal(world_state(&o, 0), STATE_VERIFY_UP);
	world_run(&o, 15 * S);
	assert_int_equal(world_said(&o, 0, STATE_VERIFY_UP, STATE_EVICT, "resume failed"), 1);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_run(&o, 50 * S);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	o.w[0].returns_empty = false;
	world_run(&o, 20 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void on_the_way_back_graphics_turn_it_round_and_compute_waits(void **state)
{
	struct world o;

	(void)state;
	for (unsigned graphics = 0; graphics < 2; graphics++) {
		world_init(&o, 1, 1);
		o.total[0] = 24 * GIB;
		world_guest(&o, "guest", 0, 3 * GIB, 60 * S, 0)->type =
			graphics ? GW_PROCESS_GRAPHICS : GW_PROCESS_COMPUTE;
		world_begin(&o);
		world_step(&o);
		o.w[0].returns_empty = true;
		world_ask(&o, 0, ASK_EVICT, 10 * S);
		world_until(&o, 59 * S);
		assert_int_equal(world_state(&o, 0), STATE_VERIFY_UP);
		world_until(&o, 65 * S);
		assert_int_equal(world_said(&o, 0, STATE_VERIFY_UP, STATE_DRAIN, NULL),
				 graphics);
		assert_int_equal(world_state(&o, 0),
				 graphics ? STATE_EVICTED : STATE_VERIFY_UP);
		world_done(&o);
	}
}

/* ---- rows 38 to 40: there or not ---- */

static void a_worker_that_exits_is_absent_and_its_reasons_are_kept(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	world_ask(&o, 0, ASK_HOLD_EVICTED, UINT64_MAX);
	world_run(&o, 3 * S);
	o.w[0].alive = false;
	world_run(&o, 3 * S);
	assert_int_equal(world_said(&o, 0, STATE_EVICTED, STATE_ABSENT, NULL), 1);
	assert_int_equal(world_status(&o, 0).mask, MANUAL);
	o.w[0].alive = o.w[0].resident = true;
	world_run(&o, 3 * S);
	assert_int_equal(world_said(&o, 0, STATE_ABSENT, STATE_RECONCILE, NULL), 1);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_false(o.w[0].resident);
	world_done(&o);
}

static void only_a_managed_worker_is_started(void **state)
{
	struct world o;

	(void)state;
	for (unsigned managed = 0; managed < 2; managed++) {
		world_init(&o, 1, 1);
		o.p.worker[0].managed = managed;
		world_begin(&o);
		world_step(&o);
		o.w[0].alive = o.w[0].resident = false;
		world_run(&o, 60 * S);
		assert_int_equal(o.w[0].alive, managed);
		assert_int_equal(world_state(&o, 0), managed ? STATE_ACTIVE : STATE_ABSENT);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], managed);
		world_done(&o);
	}
}

/* ---- rows 41 to 47 ---- */

static void a07_ten_errors_are_borne_and_eleven_make_it_blind_until_it_heals(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 0);
	world_begin(&o);
	world_until(&o, 5 * S);
	for (unsigned i = 1; i <= 10; i++) {
		o.errors[0] = i;
		world_step(&o);
		assert_false(world_status(&o, 0).blind);
		assert_int_equal(world_status(&o, 0).resident_bytes, 8 * GIB);
	}
	o.errors[0] = 11;
	world_until(&o, 30 * S);
	assert_true(world_status(&o, 0).blind);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE); /* the last decision is kept */
	assert_int_equal(world_said(&o, 0, ANY, ANY, "no sight"), 1);
	assert_int_equal(o.orders, 0);
	o.errors[0] = 0;
	world_step(&o);
	world_step(&o);
	assert_true(world_status(&o, 0).blind);
	world_step(&o);
	assert_false(world_status(&o, 0).blind);
	assert_int_equal(world_said(&o, 0, STATE_ACTIVE, STATE_RECONCILE, "sight is back"), 1);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED); /* and it guards again */
	world_done(&o);
}

static void who_is_told_to_evicts_when_blind_and_proves_it_with_sight(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.evict_when_blind = true;
	world_begin(&o);
	world_step(&o);
	o.errors[0] = 11;
	world_run(&o, 60 * S);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_BLIND);
	assert_int_equal(world_state(&o, 0), STATE_VERIFY);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	o.errors[0] = 0;
	world_run(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	world_done(&o);
}

static void a08_a_call_that_hangs_freezes_what_is_decided_until_it_returns(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 0);
	world_begin(&o);
	world_until(&o, 9 * S);
	o.health[0] = SCENE_HUNG;
	world_until(&o, 60 * S);
	assert_true(world_status(&o, 0).hung);
	assert_int_equal(o.orders, 0);
	o.health[0] = SCENE_OK;
	world_step(&o);
	assert_false(world_status(&o, 0).hung);
	assert_int_equal(world_said(&o, 0, STATE_ACTIVE, STATE_RECONCILE, NULL), 1);
	world_run(&o, 2 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static void an_operator_who_trusts_a_gpu_that_answers_again_saves_the_minute(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	assert_int_equal(guard_trust(o.g, "GPU-0", o.now), 0); /* it was not lost */
	o.health[0] = SCENE_LOST;
	world_run(&o, 10 * S);
	assert_int_equal(guard_trust(o.g, "GPU-0", o.now), -GW_E_STATE);
	o.health[0] = SCENE_OK;
	world_run(&o, 2 * S);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_HEALTH);
	assert_int_equal(guard_trust(o.g, "GPU-0", o.now), 0);
	world_fetch(&o);
	world_run(&o, 2 * S);
	assert_int_equal(world_status(&o, 0).mask, 0);
	world_done(&o);
}

static void
a09_a_lost_gpu_is_quarantined_alone_and_its_worker_returns_when_it_is_well(void **state)
{
	struct world o;

	(void)state;
	for (unsigned gone = 0; gone < 2; gone++) {
		world_init(&o, 2, 2);
		o.w[1].load[0] = 0;
		o.w[1].load[1] = 8 * GIB;
		world_begin(&o);
		world_run(&o, S);
		if (gone)
			o.gone[1] = true;
		else
			o.health[1] = SCENE_LOST;
		world_run(&o, 60 * S);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		assert_false(world_status(&o, 0).quarantine);
		assert_true(world_status(&o, 1).quarantine);
		assert_int_equal(world_state(&o, 1), STATE_EVICTED);
		assert_int_equal(world_status(&o, 1).mask, 1u << REASON_HEALTH);
		assert_int_equal(o.w[1].verbs[ORDER_NOTIFY], 1); /* told once */
		assert_int_equal(o.w[1].verbs[ORDER_EVICT], 0);
		o.w[1].resident = false; /* the driver took it */
		o.health[1] = SCENE_OK;
		o.gone[1] = false;
		world_run(&o, 59 * S);
		assert_int_equal(world_state(&o, 1), STATE_EVICTED);
		world_run(&o, 5 * S);
		assert_int_equal(world_said(&o, 1, STATE_EVICTED, STATE_RECONCILE, NULL), 1);
		assert_int_equal(world_state(&o, 1), STATE_ACTIVE);
		assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
		world_done(&o);
	}
}

/* The board was taken out while the machine was off: the record of the last run names one that is not there. */
static void a_board_that_was_replaced_keeps_no_worker_out_that_may_run_elsewhere(void **state)
{
	struct world o;

	(void)state;
	for (unsigned bound = 0; bound < 2; bound++) {
		world_init(&o, 2, 1);
		o.w[0].load[0] = 0;
		o.w[0].load[1] = 8 * GIB;
		if (bound) {
			o.p.worker[0].gpus[0] = "GPU-1";
			o.p.worker[0].gpu_count = 1;
		}
		world_begin(&o);
		world_run(&o, S);
		world_ask(&o, 0, ASK_EVICT, 0);
		world_run(&o, 10 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		o.gone[1] = true;
		o.w[0].load[0] = 8 * GIB;
		o.w[0].load[1] = 0;
		world_restart(&o);
		world_run(&o, 50 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		assert_true(world_status(&o, 0).mask & 1u << REASON_HEALTH);
		world_ask(&o, 0, ASK_RESUME, 0);
		world_run(&o, 60 * S);
		assert_int_equal(world_state(&o, 0), bound ? STATE_EVICTED : STATE_ACTIVE);
		world_done(&o);
	}
}

static void at_the_end_workers_return_if_told_so_and_if_they_fit(void **state)
{
	struct world o;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		world_init(&o, 1, 1);
		o.p.restore_on_stop = i > 0;
		world_guest(&o, "job", 0, 3 * GIB, 10 * S, i == 2 ? 0 : 20 * S);
		world_begin(&o);
		world_until(&o, 25 * S);
		assert_int_equal(guard_stop(o.g, o.now), i == 1);
		world_fetch(&o);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], i == 1);
		assert_int_equal(o.w[0].resident, i == 1);
		world_done(&o);
	}
}

/* ---- stopped by us: started by us ---- */

static void who_no_request_wakes_is_woken_however_lazy(void **state)
{
	static const enum policy_kind kind[] = { WORKER_VLLM, WORKER_SGLANG };
	struct world o;

	(void)state;
	for (unsigned i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
		world_init(&o, 1, 1);
		o.p.worker[0].kind = kind[i];
		o.p.worker[0].resume = RESUME_LAZY;
		world_begin(&o);
		world_step(&o);
		world_ask(&o, 0, ASK_EVICT, 10 * S);
		world_run(&o, 5 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		world_run(&o, 15 * S);
		assert_true(o.w[0].resident);
		is_awake(&o);
	}
}

static void a_lazy_worker_that_was_stopped_is_started_again(void **state)
{
	static const enum policy_kind kind[] = { WORKER_COMFY, WORKER_OLLAMA, WORKER_SYSTEMD };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct world o;

		world_init(&o, 1, 1);
		o.p.worker[0].kind = kind[i];
		o.p.worker[0].resume = RESUME_LAZY;
		o.p.worker[0].match.unit = "w0.service";
		o.p.standard.max_level = 4;
		o.w[0].fail_level = 2;
		o.w[0].returns_empty = true;
		world_begin(&o);
		world_step(&o);
		world_ask(&o, 0, ASK_EVICT, 20 * S);
		world_run(&o, 19 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		assert_false(o.w[0].alive);
		world_run(&o, 5 * S);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
		assert_true(o.w[0].alive);
		assert_false(o.w[0].resident);
		assert_false(o.w[0].closed);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		world_done(&o);
	}
}

/* Killed between the outcome of a stop and its proof, or before that outcome. */
static void what_an_eviction_noted_is_kept_before_it_is_proven(void **state)
{
	struct world o;
	unsigned writes;

	(void)state;
	world_init(&o, 1, 1);
	o.p.standard.max_level = 4;
	o.p.worker[0].match.unit = "w0.service";
	o.w[0].lies = UINT_MAX; /* so that the proof does not come */
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_EVICT, 0);
	while (!o.w[0].verbs[ORDER_EVICT])
		world_step(&o);
	writes = o.writes;
	world_step(&o); /* its outcome */
	assert_int_equal(world_state(&o, 0), STATE_VERIFY);
	assert_int_equal(o.writes, writes + 1);
	world_done(&o);
}

static void a_record_of_a_stop_is_enough_to_start_it(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.worker[0].match.unit = "w0.service";
	o.w[0].alive = o.w[0].resident = false;
	record(&o, 0, true, 4);
	world_begin(&o);
	world_run(&o, 3 * S);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

/* ---- all that is put away is in the journal ---- */

static void a_checkpoint_puts_nobody_away_who_is_not_in_the_journal(void **state)
{
	struct world o;
	struct guard_order order;
	struct guard_record r;
	char message[200];
	bool came = false;

	(void)state;
	world_init(&o, 1, 1);
	o.p.worker[0].kind = WORKER_CHECKPOINT;
	o.w[0].load[0] = MIB;
	world_begin(&o);
	world_step(&o);
	assert_int_equal(guard_ask(o.g, 0, ASK_EVICT, 0, o.now, message, sizeof(message)), 0);
	for (unsigned look = 0; look < 100 && !came; look++) {
		o.now += o.step_ns;
		world_scene(&o);
		for (unsigned i = 0; i < 70; i++) { /* of a large tree */
			world_process(&o, "w0", 500 + i, 9, 0, 8 * MIB, NULL);
			o.s.process[o.s.processes - 1].ancestor[0] = o.w[0].pid;
		}
		guard_look(o.g, &o.s);
		memset(&r, 0, sizeof(r));
		while (guard_next_record(o.g, &r))
			;
		while (!came && guard_next_order(o.g, &order)) {
			came = order.verb == ORDER_EVICT;
			if (!came)
				guard_outcome(o.g,
					      &(struct guard_outcome){ .order = order.id,
								       .ok = true },
					      o.now);
		}
	}
	assert_true(came);
	assert_int_equal(order.level, 3);
	assert_int_equal(guard_record_of(o.g, 0, &r), 0);
	assert_int_equal(order.targets, GUARD_TARGETS);
	assert_true(order.more);
	assert_int_equal(r.put_away_count, order.targets);
	for (unsigned i = 0; i < order.targets; i++)
		assert_int_equal(r.put_away[i].pid, order.target[i].pid);
	world_done(&o);
}

static void an_order_names_the_gpus_and_the_reasons_for_hooks(void **state)
{
	struct world o;
	struct guard_order order;

	(void)state;
	one(&o);
	world_ask(&o, 0, ASK_EVICT, 0);
	while (!o.w[0].verbs[ORDER_EVICT])
		world_step(&o);
	world_run(&o, S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	o.w[0].resident = true; /* it is evicted again, and this time we fetch the order */
	world_scene(&o);
	guard_look(o.g, &o.s);
	while (guard_next_record(o.g, &o.disk[0]))
		;
	assert_true(guard_next_order(o.g, &order));
	assert_int_equal(order.verb, ORDER_EVICT);
	assert_string_equal(order.gpus, "GPU-0");
	assert_string_equal(order.reason, "manual");
	world_done(&o);
}

/* ---- the end ---- */

/* Two neighbours of 6 GiB, and 2 of headroom: on a board of 16 both have room again, on one of 12 one of them. */
static const struct {
	uint64_t total;
	unsigned back;
} boards[] = { { 16 * GIB, 2 }, { 12 * GIB, 1 } };

static void two_neighbours(struct world *o)
{
	world_init(o, 1, 2);
	o->p.restore_on_stop = true;
	o->p.worker[1].priority = 9;
	o->total[0] = 16 * GIB;
	o->w[0].load[0] = o->w[1].load[0] = 6 * GIB;
}

static void at_the_end_all_return_that_fit_together(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct world o;

		two_neighbours(&o);
		world_guest(&o, "job", 0, 12 * GIB, 10 * S, 20 * S);
		world_begin(&o);
		world_until(&o, 25 * S);
		assert_int_equal(world_state(&o, 0), STATE_QUIET);
		assert_int_equal(world_state(&o, 1), STATE_QUIET);
		o.total[0] = boards[i].total;
		world_step(&o);
		assert_int_equal(guard_stop(o.g, o.now), boards[i].back);
		assert_int_equal(guard_returning(o.g), boards[i].back);
		world_fetch(&o);
		assert_true(o.w[1].resident); /* of the higher priority */
		assert_int_equal(o.w[0].resident, boards[i].back == 2);
		for (unsigned k = 0; k < o.outcomes; k++)
			guard_outcome(o.g, &o.outcome[k], o.now);
		assert_int_equal(guard_returning(o.g), 0);
		world_done(&o);
	}
}

static void at_the_end_who_is_on_the_way_back_has_its_room(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct world o;

		two_neighbours(&o);
		world_begin(&o);
		world_step(&o);
		world_ask(&o, -1, ASK_EVICT, 0);
		world_run(&o, 4 * S);
		o.total[0] = boards[i].total;
		world_step(&o);
		world_ask(&o, -1, ASK_RELEASE, 0);
		assert_int_equal(o.w[1].verbs[ORDER_RESUME], 1); /* one at a time, as ever */
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
		assert_int_equal(guard_stop(o.g, o.now), boards[i].back - 1);
		assert_int_equal(guard_returning(o.g), boards[i].back);
		world_done(&o);
	}
}

static void at_the_end_nobody_waits_for_what_is_only_told(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.mode = GUARD_DRY_RUN;
	o.p.restore_on_stop = true;
	world_guest(&o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_begin(&o);
	world_until(&o, 25 * S);
	assert_int_equal(world_state(&o, 0), STATE_QUIET);
	assert_int_equal(guard_stop(o.g, o.now), 0);
	assert_int_equal(guard_returning(o.g), 0);
	world_done(&o);
}

/* As the service does: until nobody is worth waiting for. */
static void end_all(struct world *o)
{
	guard_stop(o->g, o->now);
	world_fetch(o);
	for (unsigned i = 0; i < 50 && guard_returning(o->g); i++)
		world_step(o);
}

static void at_the_end_a_door_that_heat_closed_is_opened(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.p.restore_on_stop = true;
	guard_heat(o.g, "GPU-0", HEAT_THROTTLE | HEAT_WARM, "4 C below its limit");
	world_run(&o, S);
	assert_true(o.w[0].closed);
	end_all(&o);
	assert_false(o.w[0].closed);
	assert_int_equal(guard_returning(o.g), 0);
	assert_int_equal(world_said(&o, 0, STATE_ACTIVE, STATE_ACTIVE, "service ends"), 1);
	assert_false(o.disk[0].evicted);
	world_done(&o);
}

/* Whether or not the cause holds, and also while an order of the drain is under way. */
static void at_the_end_who_was_not_unloaded_takes_work_again(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct world o;

		one(&o);
		o.p.restore_on_stop = true;
		o.w[0].busy = true;
		world_ask(&o, 0, ASK_EVICT, 0);
		assert_true(o.w[0].closed);
		for (unsigned k = 0; k < i; k++)
			world_step(&o);
		assert_int_equal(world_state(&o, 0), STATE_DRAIN);
		end_all(&o);
		assert_false(o.w[0].closed);
		assert_true(o.w[0].resident);
		assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
		assert_int_equal(world_said(&o, 0, STATE_DRAIN, STATE_ACTIVE, "service ends"),
				 1);
		assert_false(o.disk[0].evicted);
		world_done(&o);
	}
}

static void at_the_end_an_eviction_under_way_is_waited_for_and_undone(void **state)
{
	(void)state;
	for (unsigned holds = 0; holds < 2; holds++) {
		struct world o;

		one(&o);
		o.p.restore_on_stop = true;
		world_guest(&o, "now", 0, 4 * GIB, o.now - WORLD_START, 0);
		while (!o.w[0].verbs[ORDER_EVICT])
			world_step(&o);
		assert_int_equal(world_state(&o, 0), STATE_EVICT);
		if (!holds)
			o.guest[0].until_ns = o.now;
		world_scene(&o);
		guard_look(o.g, &o.s); /* the answer has not come */
		assert_int_equal(guard_stop(o.g, o.now), 1);
		end_all(&o);
		assert_int_equal(guard_returning(o.g), 0);
		assert_int_equal(world_said(&o, 0, STATE_VERIFY, STATE_EVICTED, "freed"), 1);
		assert_int_equal(o.w[0].resident, !holds);
		assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
		world_done(&o);
	}
}

/* Its memory went all the same: it is brought back.  It stayed: work may come. */
static void at_the_end_an_eviction_that_failed_is_judged_by_the_memory(void **state)
{
	(void)state;
	for (unsigned freed = 0; freed < 2; freed++) {
		struct world o;

		one(&o);
		o.p.restore_on_stop = true;
		o.p.worker[0].kind = WORKER_EXEC;
		o.w[0].fails = 1;
		world_guest(&o, "now", 0, 4 * GIB, o.now - WORLD_START, 0);
		while (!o.w[0].verbs[ORDER_EVICT])
			world_step(&o);
		o.guest[0].until_ns = o.now;
		o.w[0].resident = !freed;
		end_all(&o);
		assert_int_equal(guard_returning(o.g), 0);
		assert_true(o.w[0].resident);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], freed);
		assert_int_equal(o.w[0].verbs[ORDER_OPEN], !freed);
		assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
		world_done(&o);
	}
}

static void at_the_end_one_without_an_answer_is_still_to_be_waited_for(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.p.restore_on_stop = true;
	o.w[0].silent = true;
	guard_heat(o.g, "GPU-0", HEAT_THROTTLE, "4 C below its limit");
	world_run(&o, S);
	end_all(&o);
	assert_true(guard_ending(o.g, 0));
	assert_false(guard_ending(o.g, 1));
	assert_true(o.disk[0].evicted); /* the next start knows */
	world_done(&o);
}

/* ---- what a hold masks ---- */

static void every_reason_that_a_hold_masks_is_told_once(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	o.p.worker[0].ac_only = true;
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_HOLD_ACTIVE, UINT64_MAX);
	world_run(&o, 2 * S);
	assert_int_equal(world_said(&o, 0, ANY, ANY, "hold active"), 1); /* asked */
	o.on_battery = true;
	guard_reason_set(o.g, "GPU-0", REASON_BUDGET, true, "over 300 W", o.now);
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_said(&o, 0, ANY, ANY, "hold active"), 3);
	assert_string_equal(world_last(&o, "hold active")->evidence,
			    "masks battery: on battery, and the worker is for AC alone");
	o.on_battery = false;
	world_run(&o, 20 * S);
	o.on_battery = true;
	world_run(&o, 5 * S); /* it began again */
	assert_int_equal(world_said(&o, 0, ANY, ANY, "hold active"), 4);
	world_done(&o);
}

/* ---- row 38: who ends by himself ---- */

static const char *const hook[] = { "/usr/bin/back", NULL };

static void of_a_hook(struct world *o, const char *const *back)
{
	world_init(o, 1, 1);
	o->p.worker[0].kind = WORKER_EXEC;
	o->p.worker[0].resume_argv = back;
	world_begin(o);
	world_step(o);
	world_ask(o, 0, ASK_EVICT, 60 * S);
	while (!o->w[0].verbs[ORDER_EVICT])
		world_step(o);
}

static void a_worker_of_a_hook_that_dies_while_it_is_out_is_absent(void **state)
{
	struct world o;

	(void)state;
	of_a_hook(&o, hook);
	world_run(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	o.w[0].alive = false;
	world_run(&o, S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	world_done(&o);
}

static void a_worker_whose_hook_ends_it_is_brought_back_by_its_hook(void **state)
{
	struct world o;

	(void)state;
	for (unsigned late = 0; late < 2; late++) {
		of_a_hook(&o, hook);
		if (late) /* its memory is free first */
			world_run(&o, 2 * S);
		o.w[0].alive = false;
		world_run(&o, 30 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		world_run(&o, 40 * S);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		world_done(&o);
	}
}

static void a_worker_that_no_hook_brings_back_is_absent_until_it_appears(void **state)
{
	struct world o;

	(void)state;
	of_a_hook(&o, NULL);
	o.w[0].alive = false;
	world_run(&o, 70 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	o.w[0].alive = o.w[0].resident = true;
	world_run(&o, S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

/* ---- row 31: what is asked before ---- */

static void a_worker_that_does_not_answer_is_asked_again_and_told_once(void **state)
{
	struct world o;

	(void)state;
	one(&o);
	o.w[0].deaf = true;
	world_ask(&o, 0, ASK_EVICT, 5 * S);
	world_run(&o, 27 * S);
	assert_int_equal(world_said(&o, 0, STATE_RESUME, STATE_EVICTED, "resume_blocked"), 1);
	assert_int_equal(world_last(&o, "resume_blocked")->blocked, 1u << BLOCK_ENDPOINT);
	assert_int_equal(world_said(&o, 0, ANY, STATE_RESUME, NULL), 1);
	assert_in_range(o.w[0].verbs[ORDER_RESUME], 4, 5);
	o.w[0].deaf = false;
	world_run(&o, 6 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void a_worker_that_does_not_answer_holds_up_no_other(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 2);
	o.w[0].load[0] = o.w[1].load[0] = 4 * GIB;
	o.w[1].deaf = true;
	o.p.worker[1].priority = 9;
	world_begin(&o);
	world_step(&o);
	world_ask(&o, -1, ASK_EVICT, 5 * S);
	world_run(&o, 20 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_state(&o, 1), STATE_EVICTED);
	world_done(&o);
}

/* Of 256 MiB that a loader needs 100 are free. */
static void host_memory_is_asked_for_by_those_who_need_it(void **state)
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

	(void)state;
	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct world o;

		world_init(&o, 1, 1);
		o.p.worker[0].kind = row[i].kind;
		o.p.worker[0].level = row[i].level;
		o.host_free = 100 * MIB;
		world_begin(&o);
		world_step(&o);
		world_ask(&o, 0, ASK_EVICT, 5 * S);
		world_run(&o, 15 * S);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], row[i].back);
		assert_int_equal(world_said(&o, 0, STATE_PRECHECK, STATE_EVICTED, NULL),
				 !row[i].back);
		world_done(&o);
	}
}

/* ---- one that is out, and not found for a while ---- */

static bool went_astray(const struct world *o)
{
	for (size_t i = 0; i < o->says; i++)
		if (o->said[i].astray)
			return true;
	return false;
}

static void put_out(struct world *o)
{
	one(o);
	world_guest(o, "game", 0, 4 * GIB, 5 * S, 20 * S);
	world_until(o, 12 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
}

static void one_that_is_out_and_is_found_again_comes_back(void **state)
{
	struct guard_record r;
	struct world o;

	(void)state;
	put_out(&o);
	o.w[0].unfound = true;
	world_until(&o, 15 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_true(went_astray(&o));
	assert_non_null(strstr(world_status(&o, 0).why, "lives and is out"));
	assert_int_equal(guard_record_of(o.g, 0, &r), 0);
	assert_true(r.evicted && r.level == 2 && r.need_bytes == 8 * GIB);
	world_until(&o, 40 * S); /* the cause is gone, and still nobody finds it */
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	o.w[0].unfound = false;
	world_until(&o, 100 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	world_done(&o);
}

static void one_that_ends_while_it_is_not_found_is_forgotten(void **state)
{
	struct guard_record r;
	struct world o;

	(void)state;
	put_out(&o);
	o.w[0].unfound = true;
	world_until(&o, 15 * S);
	o.w[0].alive = o.w[0].unfound = false;
	world_until(&o, 16 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_int_equal(guard_record_of(o.g, 0, &r), 0);
	assert_false(r.evicted);
	assert_non_null(strstr(world_status(&o, 0).why, "its process ended"));
	world_until(&o, 60 * S);
	o.w[0].alive = true;
	o.w[0].start_ticks++;
	world_until(&o, 100 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0); /* nobody told the new one to leave */
	world_done(&o);
}

static void another_in_its_place_is_not_taken_for_out(void **state)
{
	struct world o;

	(void)state;
	put_out(&o);
	o.w[0].unfound = true;
	world_until(&o, 60 * S);
	o.w[0].unfound = false;
	o.w[0].start_ticks++;
	world_until(&o, 100 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	world_done(&o);
}

static void one_that_runs_and_is_not_found_leaves_nothing(void **state)
{
	struct guard_record r;
	struct world o;

	(void)state;
	one(&o);
	world_until(&o, 5 * S);
	o.w[0].unfound = true;
	o.w[0].resident = false;
	world_until(&o, 10 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_false(went_astray(&o));
	assert_int_equal(guard_record_of(o.g, 0, &r), 0);
	assert_false(r.evicted);
	world_done(&o);
}

/* Its process lives: nobody starts a second one. */
static void a_managed_one_that_is_out_and_not_found_is_not_started(void **state)
{
	struct world o;

	(void)state;
	put_out(&o);
	o.w[0].unfound = true;
	world_until(&o, 13 * S);
	o.p.worker[0].managed = true;
	world_until(&o, 100 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	world_done(&o);
}

static void an_order_says_who_is_the_worker_by_what_it_is(void **state)
{
	struct guard_order order = { 0 };
	struct world o;

	(void)state;
	one(&o);
	world_scene(&o);
	o.s.root[0].print = 77;
	world_process(&o, "child", 200, 5, 0, GIB, NULL);
	o.s.process[o.s.processes - 1].ancestor[0] = 100;
	world_process(&o, "orphan", 300, 5, 0, GIB, NULL);
	o.s.root[o.s.roots++] =
		(struct scene_root){ .how = ROOT_KEPT, .pid = 300, .start_ticks = 5 };
	world_process(&o, "former", 400, 5, 0, MIB, NULL);
	o.s.root[o.s.roots++] =
		(struct scene_root){ .how = ROOT_FORMER, .pid = 400, .start_ticks = 5 };
	guard_look(o.g, &o.s);
	guard_ask(o.g, 0, ASK_EVICT, 0, o.now, (char[200]){ 0 }, 200);
	for (struct guard_record r; guard_next_record(o.g, &r);)
		;
	assert_true(guard_next_order(o.g, &order));
	assert_int_equal(order.targets, 3);
	assert_int_equal(order.target[0].pid, 100);
	assert_true(order.target[0].itself && order.target[0].print == 77);
	assert_int_equal(order.target[1].pid, 200);
	assert_false(order.target[1].itself);
	assert_int_equal(order.target[2].pid, 300);
	assert_false(order.target[2].itself);
	assert_int_equal(order.roots, 2);
	world_done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_worker_found_on_the_gpu_is_active_and_its_need_is_known),
		cmocka_unit_test(a_worker_found_with_a_reason_against_it_is_drained),
		cmocka_unit_test(
			a_worker_found_out_by_our_record_stays_out_until_it_may_return),
		cmocka_unit_test(a_worker_found_out_without_a_record_is_lazy),
		cmocka_unit_test(a_checkpoint_is_remembered_by_its_identities),
		cmocka_unit_test(the_return_of_a_checkpoint_is_for_who_was_put_away),
		cmocka_unit_test(a_worker_that_is_not_there_is_absent),
		cmocka_unit_test(a_rule_that_says_now_waits_for_nothing),
		cmocka_unit_test(hard_reasons_drain_at_once),
		cmocka_unit_test(a_demand_that_goes_at_once_is_a_near_miss),
		cmocka_unit_test(who_just_returned_is_damped_for_compute_and_not_for_graphics),
		cmocka_unit_test(an_action_on_a_gpu_damps_the_next_one_there),
		cmocka_unit_test(a_hold_active_masks_contention_and_says_so_but_never_heat),
		cmocka_unit_test(one_that_is_held_is_suspected_no_more_until_it_is_released),
		cmocka_unit_test(heat_closes_the_door_until_health_says_it_is_over),
		cmocka_unit_test(nobody_comes_back_to_a_warm_gpu),
		cmocka_unit_test(a10_work_in_flight_is_waited_for_as_long_as_the_drain_timeout),
		cmocka_unit_test(heat_does_not_wait_for_work_in_flight),
		cmocka_unit_test(a_cause_that_ends_while_draining_opens_the_door_again),
		cmocka_unit_test(an_eviction_that_has_begun_is_finished_when_its_cause_ends),
		cmocka_unit_test(a10_an_eviction_that_fails_is_tried_twice_more_and_then_stuck),
		cmocka_unit_test(a_worker_that_fails_twice_is_evicted_at_the_third),
		cmocka_unit_test(a_worker_that_never_answers_is_stuck_and_the_guard_goes_on),
		cmocka_unit_test(a10_done_without_free_memory_is_never_evicted),
		cmocka_unit_test(
			a_worker_that_sleeps_without_freeing_is_woken_when_its_reason_ends),
		cmocka_unit_test(a_worker_that_sleeps_without_freeing_is_woken_after_a_restart),
		cmocka_unit_test(who_sleeps_and_cannot_be_woken_is_not_called_active),
		cmocka_unit_test(who_refuses_to_leave_and_to_return_goes_on_as_it_was),
		cmocka_unit_test(what_is_not_freed_is_tried_at_the_next_level),
		cmocka_unit_test(a12_nobody_is_signalled_unless_killing_is_allowed),
		cmocka_unit_test(orders_name_the_processes_of_the_worker_and_nobody_else),
		cmocka_unit_test(freed_bytes_must_be_seen_on_the_device_too),
		cmocka_unit_test(a_look_that_crosses_with_a_worker_proves_all_the_same),
		cmocka_unit_test(who_is_told_to_leave_before_it_loaded_is_out),
		cmocka_unit_test(who_takes_more_while_it_leaves_must_free_that_too),
		cmocka_unit_test(the_look_that_decides_comes_when_the_need_has_lasted),
		cmocka_unit_test(what_others_took_meanwhile_is_no_fault_of_the_worker),
		cmocka_unit_test(bytes_that_are_not_told_are_judged_by_the_device),
		cmocka_unit_test(what_cannot_be_seen_is_never_proven),
		cmocka_unit_test(
			a10_a_client_that_reloads_is_evicted_again_and_a_storm_is_ended),
		cmocka_unit_test(a_storm_without_a_unit_to_stop_has_its_door_closed),
		cmocka_unit_test(what_remains_is_no_reload),
		cmocka_unit_test(a_reason_that_is_not_contention_needs_no_quiet),
		cmocka_unit_test(demand_in_the_quiet_period_begins_it_again),
		cmocka_unit_test(a_further_reason_ends_the_quiet_period),
		cmocka_unit_test(
			resume_now_skips_the_quiet_and_ends_contention_and_manual_only),
		cmocka_unit_test(a_worker_returns_only_when_it_fits_and_the_check_is_named),
		cmocka_unit_test(a_lazy_worker_is_only_let_in_again),
		cmocka_unit_test(a_return_that_fails_waits_twice_as_long_each_time),
		cmocka_unit_test(resume_now_does_not_wait_after_a_failure),
		cmocka_unit_test(resume_now_that_cannot_be_does_not_hide_contention_later),
		cmocka_unit_test(a_return_that_loads_nothing_is_taken_back_after_two_minutes),
		cmocka_unit_test(on_the_way_back_graphics_turn_it_round_and_compute_waits),
		cmocka_unit_test(a_worker_that_exits_is_absent_and_its_reasons_are_kept),
		cmocka_unit_test(only_a_managed_worker_is_started),
		cmocka_unit_test(
			a07_ten_errors_are_borne_and_eleven_make_it_blind_until_it_heals),
		cmocka_unit_test(who_is_told_to_evicts_when_blind_and_proves_it_with_sight),
		cmocka_unit_test(
			a08_a_call_that_hangs_freezes_what_is_decided_until_it_returns),
		cmocka_unit_test(
			an_operator_who_trusts_a_gpu_that_answers_again_saves_the_minute),
		cmocka_unit_test(
			a09_a_lost_gpu_is_quarantined_alone_and_its_worker_returns_when_it_is_well),
		cmocka_unit_test(
			a_board_that_was_replaced_keeps_no_worker_out_that_may_run_elsewhere),
		cmocka_unit_test(at_the_end_workers_return_if_told_so_and_if_they_fit),
		cmocka_unit_test(who_no_request_wakes_is_woken_however_lazy),
		cmocka_unit_test(a_lazy_worker_that_was_stopped_is_started_again),
		cmocka_unit_test(what_an_eviction_noted_is_kept_before_it_is_proven),
		cmocka_unit_test(a_record_of_a_stop_is_enough_to_start_it),
		cmocka_unit_test(a_checkpoint_puts_nobody_away_who_is_not_in_the_journal),
		cmocka_unit_test(an_order_names_the_gpus_and_the_reasons_for_hooks),
		cmocka_unit_test(at_the_end_all_return_that_fit_together),
		cmocka_unit_test(at_the_end_who_is_on_the_way_back_has_its_room),
		cmocka_unit_test(at_the_end_nobody_waits_for_what_is_only_told),
		cmocka_unit_test(at_the_end_a_door_that_heat_closed_is_opened),
		cmocka_unit_test(at_the_end_who_was_not_unloaded_takes_work_again),
		cmocka_unit_test(at_the_end_an_eviction_under_way_is_waited_for_and_undone),
		cmocka_unit_test(at_the_end_an_eviction_that_failed_is_judged_by_the_memory),
		cmocka_unit_test(at_the_end_one_without_an_answer_is_still_to_be_waited_for),
		cmocka_unit_test(every_reason_that_a_hold_masks_is_told_once),
		cmocka_unit_test(a_worker_of_a_hook_that_dies_while_it_is_out_is_absent),
		cmocka_unit_test(a_worker_whose_hook_ends_it_is_brought_back_by_its_hook),
		cmocka_unit_test(a_worker_that_no_hook_brings_back_is_absent_until_it_appears),
		cmocka_unit_test(a_worker_that_does_not_answer_is_asked_again_and_told_once),
		cmocka_unit_test(a_worker_that_does_not_answer_holds_up_no_other),
		cmocka_unit_test(host_memory_is_asked_for_by_those_who_need_it),
		cmocka_unit_test(one_that_is_out_and_is_found_again_comes_back),
		cmocka_unit_test(one_that_ends_while_it_is_not_found_is_forgotten),
		cmocka_unit_test(another_in_its_place_is_not_taken_for_out),
		cmocka_unit_test(one_that_runs_and_is_not_found_leaves_nothing),
		cmocka_unit_test(a_managed_one_that_is_out_and_not_found_is_not_started),
		cmocka_unit_test(an_order_says_who_is_the_worker_by_what_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
