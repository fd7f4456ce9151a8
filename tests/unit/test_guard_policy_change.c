/* Tests a change of policy while the guard runs, in a simulated world with simulated time. */
#include "guard_world.h"

/* The policy of the guard. When it changes, the old policy is freed at once, so that a
 * sanitizer detects any further use of the old policy. */
static struct policy *given;

static int swap(struct world *o, const struct policy *p)
{
	struct policy *old = given;
	int err;

	given = malloc(sizeof(*given));
	assert_non_null(given);
	*given = *p;
	err = guard_change_policy(o->g, given, o->journal.disk, o->journal.on_disk, o->now);
	if (err) {
		free(given);
		given = old;
		return err;
	}
	o->p = *p;
	if (old)
		memset(old, 0x5a, sizeof(*old));
	free(old);
	return 0;
}

static void begin(struct world *o, unsigned workers)
{
	world_init(o, 1, workers);
	given = malloc(sizeof(*given));
	assert_non_null(given);
	*given = o->p;
	assert_int_equal(guard_new(given, NULL, 0, &o->g), 0);
}

static void end(struct world *o)
{
	world_done(o);
	free(given);
	given = NULL;
}

#define POLICY_TEST(name, workers) WORLD_TEST(name, #name, begin(&o, workers), end(&o))

static bool said(const struct world *o, enum guard_state to, const char *rule)
{
	for (size_t i = 0; i < o->log.says; i++)
		if (o->log.said[i].to == to && !strcmp(o->log.said[i].rule, rule))
			return true;
	return false;
}

POLICY_TEST(a_worker_in_both_policies_keeps_its_state_and_gets_the_new_settings, 1)
{
	struct policy p;
	struct guard_status before, now;

	world_guest(o, "game", 0, 4 * GIB, 5 * S, 20 * S);
	world_until(o, 25 * S);
	assert_int_equal(world_state(o, 0), STATE_QUIET);
	before = world_status(o, 0);
	p = o->p;
	p.worker[0].knobs.quiet_ns = 6 * S;
	assert_int_equal(swap(o, &p), 0);
	now = world_status(o, 0);
	assert_int_equal(now.state, STATE_QUIET);
	assert_int_equal(now.evictions, 1);
	assert_true(now.since_ns == before.since_ns && now.need_bytes == before.need_bytes);
	assert_true(now.next_ns < before.next_ns);
	world_run(o, 4 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE); /* after 6 s of quiet time, not 30 */
	assert_int_equal(o->w[0].verbs[ORDER_EVICT], 1);
	assert_int_equal(o->w[0].verbs[ORDER_RESUME], 1);
}

POLICY_TEST(a_new_worker_is_judged_by_the_next_scene, 2)
{
	struct policy p;

	o->p.workers = 1;
	assert_int_equal(swap(o, &o->p), 0);
	world_run(o, S);
	p = o->p;
	p.workers = 2;
	assert_int_equal(swap(o, &p), 0);
	/* Input from other modules also makes the guard decide. */
	guard_set_reason(o->g, "GPU-0", REASON_BUDGET, false, "", o->now);
	assert_int_equal(world_state(o, 1), STATE_RECONCILE);
	world_run(o, S);
	assert_int_equal(world_state(o, 1), STATE_ACTIVE);
	assert_false(said(o, STATE_ABSENT, "not there"));
}

POLICY_TEST(a_worker_removed_from_the_policy_keeps_its_record_until_it_is_added_again, 1)
{
	char message[200];
	struct guard_record r;
	struct policy with, without;

	world_run(o, S);
	assert_int_equal(guard_request(o->g, 0, REQUEST_HOLD_EVICTED, 60 * MINUTE, o->now,
				       message, sizeof(message)),
			 0);
	world_run(o, 5 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_true(r.evicted && r.hold == HOLD_EVICTED && r.need_bytes == 8 * GIB);
	with = without = o->p;
	without.workers = 0;
	assert_int_equal(swap(o, &without), 0);
	assert_int_equal(guard_worker_record(o->g, 0, &r), -GW_E_NOENT);
	world_run(o, 5 * S);
	assert_int_equal(swap(o, &with), 0);
	world_run(o, S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_int_equal(world_status(o, 0).hold, HOLD_EVICTED);
	assert_true(world_status(o, 0).hold_until_ns > o->now + 59 * MINUTE);
	assert_int_equal(o->w[0].verbs[ORDER_EVICT], 1);
	guard_request(o->g, 0, REQUEST_RELEASE, 0, o->now, message, sizeof(message));
	world_run(o, 10 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
}

POLICY_TEST(an_order_under_way_refuses_the_swap, 1)
{
	world_guest(o, "now-game", 0, 4 * GIB, 2 * S, 0);
	o->w[0].acts.silent = true;
	world_until(o, 3 * S);
	assert_int_equal(guard_orders_underway(o->g), 1);
	assert_int_equal(swap(o, &o->p), -GW_E_STATE);
}

POLICY_TEST(an_order_that_was_not_fetched_is_issued_again, 1)
{
	struct guard_order d;
	struct guard_record r;
	uint64_t first;

	world_run(o, S);
	world_guest(o, "now-game", 0, 4 * GIB, 0, 0);
	world_scene(o);
	guard_observe(o->g, &o->s);
	first = guard_last_id(o->g);
	assert_int_equal(swap(o, &o->p), 0);
	assert_int_equal(guard_orders_underway(o->g), 0);
	while (guard_next_record(o->g, &r))
		;
	assert_false(guard_next_order(o->g, &d));
	world_run(o, 5 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_true(guard_last_id(o->g) > first);
	assert_int_equal(o->w[0].verbs[ORDER_CLOSE], 1);
	assert_int_equal(o->w[0].verbs[ORDER_EVICT], 1);
}

POLICY_TEST(a_level_that_a_new_policy_forbids_is_not_tried_again, 1)
{
	struct policy p;
	unsigned before;

	p = o->p;
	p.worker[0].knobs.max_level = 5;
	p.worker[0].knobs.allow_kill = true;
	assert_int_equal(swap(o, &p), 0);
	o->w[0].acts.fail_level = 6;
	world_guest(o, "game", 0, 4 * GIB, 2 * S, 0);
	world_until(o, 90 * S);
	assert_int_equal(world_state(o, 0), STATE_STUCK);
	before = o->w[0].levels[5];
	assert_true(before > 0);
	p.worker[0].knobs.max_level = 2;
	p.worker[0].knobs.allow_kill = false;
	while (swap(o, &p) != 0)
		world_step(o);
	world_run(o, 3 * MINUTE);
	assert_int_equal(o->w[0].levels[5], before);
	assert_true(o->w[0].levels[2] > 0);
}

POLICY_TEST(what_a_dry_run_pretended_is_done_when_it_is_enforced, 1)
{
	struct policy p;

	p = o->p;
	p.mode = GUARD_DRY_RUN;
	assert_int_equal(swap(o, &p), 0);
	world_guest(o, "game", 0, 4 * GIB, 2 * S, 0);
	world_until(o, 20 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_int_equal(world_status(o, 0).would_evict, 1);
	assert_true(o->w[0].resident);
	p.mode = GUARD_ENFORCE;
	assert_int_equal(swap(o, &p), 0);
	assert_int_equal(world_state(o, 0), STATE_RECONCILE);
	world_run(o, 10 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_false(o->w[0].resident);
}

/* The simulated world finds its workers regardless of their match. A worker that should not be
 * found any more is marked as not alive. */
POLICY_TEST(a_worker_with_another_match_has_not_ended, 1)
{
	struct policy p;

	world_run(o, 5 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	p = o->p;
	p.worker[0].match = (struct policy_match){ .unit = "other.service", .uid = -1 };
	assert_int_equal(swap(o, &p), 0);
	o->w[0].alive = false;
	world_run(o, 2 * S);
	assert_int_equal(world_state(o, 0), STATE_ABSENT);
	assert_string_equal(world_status(o, 0).why,
			    "not there: no process is in unit other.service");
	p.worker[0].match = (struct policy_match){ .name = "nobody", .uid = -1 };
	assert_int_equal(swap(o, &p), 0);
	assert_string_equal(world_status(o, 0).why, "not there: no process is called nobody");
	/* When the process that the new match found ends, the worker ends. */
	o->w[0].alive = true;
	world_run(o, 2 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	o->w[0].alive = false;
	world_run(o, 2 * S);
	assert_string_equal(world_status(o, 0).why, "not there: its process ended");
}

/* The guard restarts while the worker is evicted for a contender. */
static void restart_while_out(struct world *o)
{
	begin(o, 1);
	world_guest(o, "game", 0, 4 * GIB, 2 * S, 60 * S);
	world_until(o, 20 * S);
	assert_false(o->w[0].resident);
	world_restart(o);
}

TEST(a_worker_that_is_not_found_after_a_restart_and_lives_is_still_out)
{
	struct world o;

	restart_while_out(&o);
	o.w[0].unfound = true;
	world_restart(&o);
	world_run(&o, 20 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_in(world_status(&o, 0).why, "its process still runs and is evicted");
	/* the record of a worker that is not found still names its process */
	world_restart(&o);
	world_run(&o, 60 * S);
	assert_in(world_status(&o, 0).why, "its process still runs and is evicted");
	o.w[0].unfound = false;
	world_run(&o, MINUTE);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	end(&o);
}

/* Observes a scene in which the match of the first worker finds another process. */
static void look_at_another(struct world *o)
{
	world_scene(o);
	o->s.root[o->s.roots++] =
		(struct scene_root){ .worker = 0, .id.pid = 4711, .id.start_ticks = 9 };
	world_process(o, "other", 4711, 9, 0, GIB, NULL);
	guard_observe(o->g, &o->s);
	world_fetch(o);
	o->now += o->step_ns;
}

TEST(a_checkpointed_worker_is_not_replaced_by_another_process)
{
	struct guard_record r;

	for (unsigned restarts = 0; restarts < 2; restarts++) {
		struct world o;

		begin(&o, 1);
		o.p.worker[0].kind = WORKER_CHECKPOINT;
		world_restart(&o);
		world_guest(&o, "game", 0, 4 * GIB, 2 * S, 60 * S);
		world_until(&o, 20 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		assert_int_equal(guard_worker_record(o.g, 0, &r), 0);
		assert_int_equal(r.put_away_count, 1);
		o.w[0].unfound = true;
		if (restarts)
			world_restart(&o);
		for (unsigned i = 0; i < 100; i++)
			look_at_another(&o);
		assert_int_equal(world_state(&o, 0), STATE_ABSENT);
		assert_in(world_status(&o, 0).why, "gpuward guard recover");
		assert_int_equal(guard_worker_record(o.g, 0, &r), 0);
		assert_true(r.evicted && r.put_away_count == 1 && r.root[0].pid == 100);
		o.w[0].unfound = false;
		world_run(&o, 3 * MINUTE);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
		end(&o);
	}
}

/* The worker becomes another program before it has left. */
POLICY_TEST(a_worker_that_disappears_while_it_is_evicted_is_not_reported_as_evicted, 1)
{
	o->w[0].acts.busy = true;
	world_guest(o, "game", 0, 4 * GIB, 2 * S, 60 * S);
	while (world_state(o, 0) != STATE_DRAIN)
		world_step(o);
	o->w[0].unfound = true;
	world_run(o, 2 * S);
	assert_int_equal(world_state(o, 0), STATE_ABSENT);
	assert_in(world_status(o, 0).why, "was being evicted");
	assert_null(strstr(world_status(o, 0).why, "is out"));
}

TEST(a_worker_that_ended_between_scenes_is_not_waited_for)
{
	struct guard_record r;
	struct world o;

	restart_while_out(&o);
	o.w[0].alive = false;
	world_run(&o, 20 * S);
	assert_int_equal(world_state(&o, 0), STATE_ABSENT);
	assert_int_equal(guard_worker_record(o.g, 0, &r), 0);
	assert_false(r.evicted);
	assert_int_equal(r.roots, 0);
	end(&o);
}

/* If a worker restarted meanwhile, it is unknown which orders it got. So it is resumed like an
 * evicted one. */
TEST(a_worker_that_restarted_between_scenes_comes_back)
{
	struct world o;

	restart_while_out(&o);
	o.w[0].pid++;
	world_run(&o, 3 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_run(&o, 2 * MINUTE);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	end(&o);
}

POLICY_TEST(a_worker_that_was_really_evicted_waits_for_mode_enforce, 1)
{
	struct guard_record r;
	struct policy p;

	world_guest(o, "game", 0, 4 * GIB, 2 * S, 30 * S);
	world_until(o, 20 * S);
	assert_false(o->w[0].resident);
	p = o->p;
	p.mode = GUARD_OBSERVE;
	assert_int_equal(swap(o, &p), 0);
	world_run(o, 5 * MINUTE);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_in(world_status(o, 0).why, "enforce");
	assert_int_equal(guard_worker_record(o->g, 0, &r), 0);
	assert_true(r.evicted); /* the record keeps the eviction over a restart */
	assert_int_equal(o->w[0].verbs[ORDER_RESUME], 0);
	p.mode = GUARD_ENFORCE;
	assert_int_equal(swap(o, &p), 0);
	world_run(o, MINUTE);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	assert_true(o->w[0].resident);
}

/* The worker refuses new work, because of heat while it ran, or because of a drain that had not
 * finished. Then the mode changes to dry-run, which gives no orders, and back. */
TEST(a_worker_that_was_really_closed_is_opened_when_it_is_enforced_again)
{
	for (unsigned drain = 0; drain < 2; drain++) {
		struct world o;
		struct policy p;

		begin(&o, 1);
		world_step(&o);
		o.w[0].acts.busy = drain;
		if (drain)
			world_guest(&o, "game", 0, 4 * GIB, 2 * S, 4 * S);
		else
			guard_set_heat(o.g, "GPU-0", HEAT_THROTTLE, "4 C below its limit");
		while (!o.w[0].closed)
			world_step(&o);
		world_step(&o);
		while (guard_orders_underway(o.g))
			world_step(&o);
		assert_int_equal(world_state(&o, 0), drain ? STATE_DRAIN : STATE_ACTIVE);
		p = o.p;
		p.mode = GUARD_DRY_RUN;
		assert_int_equal(swap(&o, &p), 0);
		guard_set_heat(o.g, "GPU-0", 0, "");
		world_run(&o, 30 * S);
		assert_true(o.w[0].closed); /* this mode gives no orders */
		p.mode = GUARD_ENFORCE;
		assert_int_equal(swap(&o, &p), 0);
		world_run(&o, 5 * S);
		assert_false(o.w[0].closed);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		assert_int_equal(o.w[0].verbs[ORDER_OPEN], 1);
		assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
		end(&o);
	}
}

POLICY_TEST(a_worker_that_only_a_dry_run_closed_is_not_opened, 1)
{
	struct policy p;

	world_step(o);
	p = o->p;
	p.mode = GUARD_DRY_RUN;
	assert_int_equal(swap(o, &p), 0);
	guard_set_heat(o->g, "GPU-0", HEAT_THROTTLE, "4 C below its limit");
	world_run(o, 5 * S);
	guard_set_heat(o->g, "GPU-0", 0, "");
	p.mode = GUARD_ENFORCE;
	assert_int_equal(swap(o, &p), 0);
	world_run(o, 5 * S);
	assert_int_equal(o->orders, 0);
}

POLICY_TEST(after_a_restart_in_dry_run_an_evicted_worker_waits_for_enforce, 1)
{
	world_guest(o, "game", 0, 4 * GIB, 2 * S, 30 * S);
	world_until(o, 20 * S);
	assert_false(o->w[0].resident);
	o->p.mode = GUARD_DRY_RUN;
	world_restart(o);
	world_run(o, 5 * MINUTE);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_in(world_status(o, 0).why, "enforce");
	o->p.mode = GUARD_ENFORCE;
	world_restart(o);
	world_run(o, MINUTE);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
}

POLICY_TEST(after_a_restart_an_evicted_worker_is_in_state_evicted, 1)
{
	world_guest(o, "game", 0, 4 * GIB, 2 * S, 0);
	world_until(o, 20 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	world_restart(o);
	world_step(o);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
}

/* Workers and contenders come and go in any order. At the end, a worker that is alone on the GPU
 * must run. */
POLICY_TEST(many_policy_changes_end_in_the_same_state_as_none, 3)
{
	struct policy p;
	unsigned left = 0;

	for (unsigned i = 0; i < 3; i++)
		o->w[i].load[0] = 2 * GIB;
	struct world_guest *t = world_guest(o, "game", 0, 4 * GIB, 2 * S, 300 * S);

	t->on_ns = 7 * S;
	t->off_ns = 11 * S;
	for (unsigned i = 0; i < 200; i++) {
		p = o->p;
		p.workers = 1 + i * 7 % 3;
		p.worker[0].knobs.quiet_ns = (1 + i % 5) * S;
		p.worker[0].priority = (int)(i % 3);
		left += swap(o, &p) != 0;
		world_run(o, S);
	}
	assert_true(left < 100);
	p.workers = 3;
	while (swap(o, &p) != 0)
		world_step(o);
	world_run(o, 20 * MINUTE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(world_state(o, i), STATE_ACTIVE);
		assert_true(o->w[i].resident && !o->w[i].closed);
	}
}

TEST_MAIN(NULL, NULL)
