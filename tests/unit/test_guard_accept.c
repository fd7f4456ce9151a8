/* Tests the rows about decisions in the acceptance list of the guard (docs/GUARD-MACHINE.md),
 * in simulated time. The name of a test begins with the id of its row. tests/e2e/test_guard*.py
 * test what needs processes, files and servers. */
#include "guard_test.h"

#include "device/nvml_abi.h"
#include "guard/health.h"

#include <malloc.h>

static uint64_t random_state;

static unsigned draw(unsigned below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (unsigned)(random_state >> 33) % below;
}

static uint64_t seed(void)
{
	const char *given = getenv("GPUWARD_TEST_SEED");
	uint64_t s = given ? strtoull(given, NULL, 10) : 20260107;

	print_message("seed %llu (GPUWARD_TEST_SEED)\n", (unsigned long long)s);
	return s;
}

static void desktop(struct world *o, uint64_t total)
{
	world_init(o, 1, 1);
	o->total[0] = total;
	world_guest(o, "Xorg", 0, 64 * MIB, 0, 0)->type = GW_PROCESS_GRAPHICS;
	world_guest(o, "gnome-shell", 0, 34 * MIB, 0, 0)->type = GW_PROCESS_GRAPHICS;
	world_guest(o, "terminal", 0, 38 * MIB, 0, 0)->type =
		GW_PROCESS_GRAPHICS | GW_PROCESS_COMPUTE;
}

TEST(a01_a_desktop_alone_never_evicts)
{
	const uint64_t total[] = { 24 * GIB, 9 * GIB };
	struct world o;

	for (unsigned i = 0; i < 2; i++) {
		desktop(&o, total[i]);
		world_begin(&o);
		world_run(&o, 10 * MINUTE);
		assert_int_equal(o.orders, 0);
		assert_int_equal(world_decided(&o, 0, ANY, STATE_SUSPECT, NULL), 0);
		world_done(&o);
	}
}

TEST(a01_the_original_rule_evicts_for_a_desktop)
{
	struct world o;

	desktop(&o, 24 * GIB);
	o.p.any = true;
	world_begin(&o);
	world_run(&o, 10 * MINUTE);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).evictions, 1);
	world_done(&o);
}

GUARD_TEST(a03_a_contender_gets_the_gpu_and_the_worker_gets_it_back)
{
	const struct guard_decision *d;

	world_guest(o, "job", 0, 4 * GIB, 10 * S, 100 * S)->sm_ratio = 0.43;
	o->adaptive = true;
	world_begin(o);
	world_until(o, 10 * S + 100 * MS + 300 * MS + S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_false(o->w[0].resident);
	d = world_last(o, "memory, no rule matches it");
	assert_non_null(d);
	assert_int_equal(d->to, STATE_DRAIN);
	assert_true(d->mono_ns <= WORLD_START + 10 * S + 450 * MS);
	assert_in(d->evidence, "pid 1000 job 4096 MiB 43 % on GPU-0");
	assert_true(d->next_ns > d->mono_ns);
	world_until(o, 128 * S);
	assert_int_equal(world_state(o, 0), STATE_QUIET);
	assert_in_range(world_status(o, 0).next_ns, WORLD_START + 130 * S,
			WORLD_START + 132 * S);
	world_until(o, 132 * S);
	assert_int_equal(o->w[0].verbs[ORDER_RESUME], 1);
	world_until(o, 200 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	assert_int_equal(world_status(o, 0).evictions, 1);
	assert_int_equal(o->w[0].verbs[ORDER_EVICT], 1);
	assert_int_equal(o->w[0].verbs[ORDER_RESUME], 1);
}

TEST(a03_with_the_original_keys_it_is_out_within_six_seconds)
{
	struct world o;

	for (unsigned i = 0; i < 50; i++) {
		uint64_t at = 20 * S + i * 100 * MS;

		world_init(&o, 1, 1);
		o.p.any = true;
		o.p.poll_ns = 5 * S;
		o.adaptive = true;
		world_guest(&o, "job", 0, 4 * GIB, at, 0);
		world_begin(&o);
		while (world_state(&o, 0) != STATE_EVICTED)
			world_step(&o);
		assert_true(world_status(&o, 0).since_ns <= WORLD_START + at + 6 * S);
		world_done(&o);
	}
}

GUARD_TEST(a04_a_contender_that_flickers_evicts_three_times_at_most)
{
	struct world_guest *t;

	t = world_guest(o, "job", 0, 4 * GIB, 10 * S, 0);
	t->on_ns = t->off_ns = 2 * S;
	world_begin(o);
	world_run(o, 10 * MINUTE);
	assert_in_range(world_status(o, 0).evictions, 1, 3);
}

GUARD_TEST(a04_a_contender_that_comes_and_goes_for_an_hour_doubles_the_quiet)
{
	struct world_guest *t;
	double most = 0;

	t = world_guest(o, "game", 0, 4 * GIB, 10 * S, 0);
	t->on_ns = t->off_ns = 45 * S;
	t->type = GW_PROCESS_GRAPHICS;
	world_begin(o);
	for (unsigned i = 0; i < 60; i++) {
		world_run(o, MINUTE);
		most = fmax(most, world_status(o, 0).backoff);
	}
	/* With 60 s of quiet time, a contender that is away for at most 45 s keeps the worker
	 * out. */
	assert_true(most == 2);
	assert_int_equal(world_status(o, 0).evictions, 2);
	assert_int_equal(world_decided(o, 0, ANY, ANY, "flapping"), 1);
	assert_in(world_last(o, "flapping")->evidence, "60 s");
}

GUARD_TEST(a04_the_quiet_period_never_grows_past_ten_minutes)
{
	double most = 0;

	world_guest(o, "now", 0, 4 * GIB, 0, 0);
	o->guest[0].until_ns = 0;
	world_begin(o);
	/* the contender comes back as soon as the worker does */
	for (unsigned i = 0; i < 40; i++) {
		for (unsigned k = 0; k < 10000 && world_state(o, 0) != STATE_ACTIVE; k++)
			world_step(o);
		world_run(o, S);
		o->guest[0].until_ns = o->now + S;
		world_run(o, 2 * S);
		if (world_status(o, 0).backoff > most)
			most = world_status(o, 0).backoff;
	}
	assert_true(most == 32); /* 30 s x 32 is limited to 600 s */
	assert_true(world_status(o, 0).backoff <= 32);
	world_run(o,
		  40 * MINUTE); /* after a while without contenders the backoff starts again */
	o->guest[0].until_ns = o->now + S;
	world_run(o, 2 * S);
	assert_true(world_status(o, 0).backoff == 1);
}

GUARD_TEST(a04_a_configured_quiet_time_above_ten_minutes_is_kept)
{
	o->p.standard.quiet_ns = 20 * MINUTE;
	world_guest(o, "game", 0, 4 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_run(o, 20 * S + 19 * MINUTE);
	assert_int_equal(world_state(o, 0), STATE_QUIET);
	world_run(o, 2 * MINUTE);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	/* a second and a third eviction do not make it longer */
	for (unsigned i = 0; i < 2; i++) {
		o->guest[0].from_ns = o->now + S;
		o->guest[0].until_ns = o->now + 2 * S;
		world_run(o, 22 * MINUTE);
	}
	assert_int_equal(world_status(o, 0).evictions, 3);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
}

/* Plays an eviction, a hold, a failure and resumes. The guard is killed at write number
 * cut_at. */
static unsigned life(unsigned cut_at, bool written)
{
	struct world o;
	unsigned writes;

	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 4 * GIB, 10 * S, 60 * S);
	o.journal.cut_at = cut_at;
	o.journal.cut_written = written;
	world_begin(&o);
	world_until(&o, 30 * S);
	/* no matter when the guard was killed */
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_false(o.w[0].resident);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1); /* never twice */
	world_until(&o, 130 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	assert_false(o.w[0].closed);
	world_ask(&o, 0, REQUEST_HOLD_EVICTED, 100 * S);
	if (o.journal.dead) {
		bool lost = !written; /* the hold was neither stored nor reported as stored */

		world_restart(&o);
		if (lost)
			world_ask(&o, 0, REQUEST_HOLD_EVICTED, 100 * S);
	}
	world_until(&o, 200 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).hold, HOLD_EVICTED);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 2);
	world_until(&o, 240 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	assert_int_equal(o.journal.disk[0].evicted, false);
	writes = o.journal.writes;
	world_done(&o);
	return writes;
}

TEST(a11_a_guard_that_dies_at_any_write_goes_on_as_if_it_had_not)
{
	unsigned writes = life(0, false);

	assert_true(writes >= 8);
	for (unsigned i = 1; i <= writes; i++) {
		life(i, false);
		life(i, true);
	}
}

TEST(a11_a_guard_that_dies_after_any_scene_goes_on_as_if_it_had_not)
{
	struct world o;

	/* The guard also dies after an order was carried out, before its outcome arrives. */
	for (unsigned at = 95; at < 130; at++) {
		world_init(&o, 1, 1);
		world_guest(&o, "job", 0, 4 * GIB, 10 * S, 60 * S);
		world_begin(&o);
		for (unsigned i = 0; i < at; i++)
			world_step(&o);
		world_restart(&o);
		world_until(&o, 30 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
		world_until(&o, 100 * S);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
		world_done(&o);
	}
}

TEST(a11_a_guard_that_restarts_knows_where_its_worker_must_fit_again)
{
	struct world o;

	world_init(&o, 2, 1); /* the worker's configuration names no GPU */
	o.w[0].load[0] = 0;
	o.w[0].load[1] = 8 * GIB;
	world_guest(&o, "job", 1, 4 * GIB, 10 * S, 200 * S);
	world_begin(&o);
	world_until(&o, 30 * S);
	world_restart(&o);
	world_until(&o, 199 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_CONTENTION);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 0);
	world_until(&o, 235 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

GUARD_TEST(a11_a_hold_survives_with_its_end)
{
	world_begin(o);
	world_step(o);
	world_ask(o, 0, REQUEST_HOLD_ACTIVE, 100 * S);
	world_until(o, 50 * S);
	world_restart(o);
	world_until(o, 99 * S);
	assert_int_equal(world_status(o, 0).hold, HOLD_ACTIVE);
	world_until(o, 102 * S);
	assert_int_equal(world_status(o, 0).hold, HOLD_NONE);
	world_ask(o, 0, REQUEST_EVICT, 100 * S);
	world_until(o, 150 * S);
	world_restart(o);
	world_until(o, 200 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_MANUAL);
	world_until(o, 206 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
}

GUARD_TEST(a11_a_hold_lasts_no_longer_if_the_clock_is_set_back)
{
	world_begin(o);
	world_step(o);
	world_ask(o, 0, REQUEST_HOLD_EVICTED, 100 * S);
	world_run(o, 10 * S);
	o->wall_step_ns = -(int64_t)(30 * 24 * 3600 * S);
	for (unsigned i = 0; i < 2; i++) {
		world_restart(o);
		world_run(o, 40 * S);
		assert_int_equal(world_status(o, 0).hold, HOLD_EVICTED);
	}
	world_run(o, 45 * S);
	assert_int_equal(world_status(o, 0).hold, HOLD_NONE);
	world_run(o, 10 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
}

GUARD_TEST(a11_a_record_comes_before_its_order)
{
	struct guard_order d;
	struct guard_record r;
	char message[100];

	world_begin(o);
	world_step(o);
	assert_int_equal(
		guard_request(o->g, 0, REQUEST_EVICT, 0, o->now, message, sizeof(message)), 0);
	assert_false(guard_next_order(o->g, &d));
	assert_true(guard_next_record(o->g, &r));
	assert_true(r.evicted);
	assert_int_equal(r.mask, 1u << REASON_MANUAL);
	assert_int_equal(r.need_bytes, 8 * GIB);
	assert_int_equal(r.wall_ns, WORLD_WALL + (o->now - WORLD_START));
	assert_true(guard_next_order(o->g, &d));
	assert_int_equal(d.verb, ORDER_CLOSE);
}

static void something_happens(struct world *o)
{
	static const enum guard_reason found[] = { REASON_THERMAL, REASON_HEALTH,
						   REASON_BUDGET };
	const char *gpu = draw(2) ? "GPU-0" : "GPU-1";
	struct world_guest *t = &o->guest[draw(o->guests)];
	struct world_worker *w = &o->w[draw(3)];
	static uint64_t id;

	switch (draw(16)) {
	case 0:
	case 1: t->until_ns = o->now; break;
	case 2:
	case 3:
		t->until_ns = UINT64_MAX;
		t->from_ns = o->now;
		break;
	case 4: guard_set_reason(o->g, gpu, found[draw(3)], true, "drawn", o->now); break;
	case 5:
	case 6: guard_set_reason(o->g, gpu, found[draw(3)], false, "", o->now); break;
	case 7: world_ask(o, (int)draw(3), draw(6), (1 + draw(300)) * S); break;
	case 8: world_ask(o, (int)draw(3), REQUEST_RELEASE, 0); break;
	case 9: w->acts.fails = draw(5); break;
	case 10: w->acts.lies = draw(2); break;
	case 11: w->acts.wont_return = draw(2); break;
	case 12: o->errors[draw(2)] = draw(2) * 11; break;
	case 13: world_restart(o); break;
	case 14:
		w->alive = w->resident = draw(2); /* the worker ends, or starts again */
		w->closed = false;
		w->start_ticks++;
		break;
	case 15:
		guard_release(o->g, id, o->now);
		if (draw(2) &&
		    guard_reserve(o->g, gpu, draw(20) * GIB, 0, 200 * S, o->now, &id))
			id = 0;
		break;
	}
}

static void heal(struct world *o)
{
	for (unsigned i = 0; i < 3; i++) {
		o->w[i].acts.fails = o->w[i].acts.lies = 0;
		if (!o->w[i].alive) { /* started by hand, with its memory */
			o->w[i].alive = o->w[i].resident = true;
			o->w[i].start_ticks++;
			o->w[i].closed = false;
		}
		o->w[i].acts.wont_return = false;
	}
	for (unsigned i = 0; i < 2; i++)
		o->errors[i] = 0;
	for (unsigned i = 0; i < o->guests; i++)
		if (draw(2))
			o->guest[i].until_ns = o->now;
}

static void random_world(struct world *o)
{
	world_init(o, 2, 3);
	o->total[0] = o->total[1] = 48 * GIB;
	o->w[1].load[0] = 0;
	o->w[1].load[1] = 8 * GIB;
	o->w[2].load[1] = 4 * GIB; /* on both */
	o->p.worker[2].priority = 5;
	o->step_ns = 500 * MS;
	world_guest(o, "job", 0, 3 * GIB, 0, 1);
	world_guest(o, "game", 1, 5 * GIB, 0, 1)->type = GW_PROCESS_GRAPHICS;
	world_guest(o, "now", 1, 100 * MIB, 0, 1);
	world_begin(o);
}

static void check_rest(const struct world *o, unsigned i)
{
	struct guard_status s = world_status(o, i);
	uint32_t masked =
		(1u << REASON_CONTENTION) | (1u << REASON_RESERVED) | (1u << REASON_BUDGET);
	uint32_t left = s.hold == HOLD_ACTIVE ? s.mask & ~masked : s.mask;
	bool runs = s.state == STATE_ACTIVE || s.state == STATE_SUSPECT;

	if (runs == !left && o->w[i].resident == !left && o->w[i].closed == !!left)
		return;
	world_print(o);
	print_message("worker %u: state %s, mask %x, hold %d, %s%s, %s\n", i,
		      guard_state_name(s.state), s.mask, (int)s.hold,
		      o->w[i].resident ? "on the GPU" : "out", o->w[i].closed ? ", closed" : "",
		      s.why);
	fail();
}

TEST(a13_at_rest_a_worker_runs_if_and_only_if_nothing_speaks_against_it)
{
	static struct world o;

	random_state = seed();
	for (unsigned n = 0; n < 120; n++) {
		random_world(&o);
		for (unsigned i = 0; i < 60; i++) {
			world_run(&o, draw(20) * S);
			something_happens(&o);
		}
		heal(&o);
		world_run(&o, 45 * MINUTE);
		for (unsigned i = 0; i < 3; i++)
			check_rest(&o, i);
		world_done(&o);
	}
}

GUARD_TEST(a13_the_end_of_contention_does_not_bring_a_worker_back_to_a_hot_gpu)
{
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 15 * S);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "hot", o->now);
	world_until(o, 10 * MINUTE);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_int_equal(world_status(o, 0).mask, 1u << REASON_THERMAL);
}

static void story(struct world *o)
{
	struct world_guest *t;

	world_init(o, 1, 2);
	o->total[0] = 24 * GIB;
	o->p.worker[1].priority = 3;
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 60 * S);
	t = world_guest(o, "game", 0, 5 * GIB, 200 * S, 400 * S);
	t->type = GW_PROCESS_GRAPHICS;
	t->on_ns = 20 * S;
	t->off_ns = 50 * S;
}

static void play_story(struct world *o)
{
	world_begin(o);
	world_until(o, 120 * S);
	world_ask(o, 1, REQUEST_HOLD_EVICTED, 30 * S);
	world_until(o, 170 * S);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "hot", o->now);
	world_fetch(o);
	world_until(o, 180 * S);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, false, "", o->now);
	world_fetch(o);
	world_until(o, 600 * S);
}

TEST(a14_dry_run_and_observe_decide_as_in_earnest_and_do_nothing)
{
	static struct world live, dry;

	story(&live);
	play_story(&live);
	assert_true(live.orders > 10);
	for (unsigned i = 0; i < 3; i++) {
		story(&dry);
		dry.p.mode = i == 0 ? GUARD_DRY_RUN : i == 1 ? GUARD_OBSERVE : GUARD_ENFORCE;
		dry.simulated = i == 2; /* the policy does not allow acting on simulated GPUs */
		play_story(&dry);
		assert_int_equal(dry.orders, 0);
		assert_int_equal(dry.log.says, live.log.says);
		for (size_t k = 0; k < live.log.says; k++) {
			const struct guard_decision *a = &live.log.said[k],
						    *b = &dry.log.said[k];

			assert_int_equal(a->mono_ns, b->mono_ns);
			assert_int_equal(a->worker, b->worker);
			assert_int_equal(a->from, b->from);
			assert_int_equal(a->to, b->to);
			assert_int_equal(a->mask, b->mask);
			assert_string_equal(a->rule, b->rule);
			assert_int_equal(a->next_ns, b->next_ns);
			assert_true(b->dry && !a->dry);
		}
		for (unsigned k = 0; k < 2; k++) {
			assert_int_equal(world_status(&dry, k).would_evict,
					 world_status(&live, k).evictions);
			assert_int_equal(world_status(&dry, k).evictions, 0);
			assert_true(dry.w[k].resident);
		}
		for (unsigned k = 0; k < dry.journal.on_disk; k++)
			assert_false(dry.journal.disk[k].evicted);
		world_done(&dry);
	}
	world_done(&live);
}

TEST(a14_the_same_feed_gives_the_same_decisions_byte_for_byte)
{
	static struct world a, b;

	story(&a);
	play_story(&a);
	story(&b);
	play_story(&b);
	assert_int_equal(a.log.says, b.log.says);
	assert_true(a.log.says > 40);
	assert_memory_equal(a.log.said, b.log.said, a.log.says * sizeof(a.log.said[0]));
	assert_int_equal(a.journal.writes, b.journal.writes);
	assert_memory_equal(a.journal.disk, b.journal.disk, sizeof(a.journal.disk));
	world_done(&a);
	world_done(&b);
}

TEST(a10_a_kind_that_cannot_load_on_order_is_back_when_it_is_opened)
{
	static const enum policy_kind kinds[] = { WORKER_LLAMASWAP, WORKER_COMFY };
	struct world o;

	for (unsigned i = 0; i < 2; i++) {
		world_init(&o, 1, 1);
		o.p.worker[0].kind = kinds[i];
		o.w[0].acts.returns_empty = true;
		world_begin(&o);
		world_step(&o);
		world_ask(&o, 0, REQUEST_EVICT, 0);
		world_run(&o, 10 * S);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		world_ask(&o, 0, REQUEST_RESUME, 0);
		world_run(&o, 10 * S);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		assert_false(o.w[0].closed);
		world_done(&o);
	}
}

/* Returns the first order to evict. Orders before it are carried out. */
static struct guard_order first_evict_order(struct world *o)
{
	struct guard_order d = { .verb = ORDER_CLOSE };
	struct guard_record r;

	while (d.verb != ORDER_EVICT) {
		world_scene(o);
		guard_observe(o->g, &o->s);
		while (guard_next_record(o->g, &r))
			;
		while (d.verb != ORDER_EVICT && guard_next_order(o->g, &d))
			guard_outcome(
				o->g,
				&(struct guard_outcome){ .order = d.id, .ending = ENDING_DONE },
				o->now);
		assert_true(o->now < WORLD_START + 20 * S);
		o->now += o->step_ns;
	}
	return d;
}

TEST(a10_a_call_does_not_outlast_its_eviction_but_a_checkpoint_may)
{
	char message[100];
	struct world o;

	for (unsigned checkpoint = 0; checkpoint < 2; checkpoint++) {
		struct guard_order d;

		world_init(&o, 1, 1);
		o.p.standard.budget_ns = 5 * S; /* an order usually gets 10 s (CALL_NS) */
		o.p.worker[0].kind = checkpoint ? WORKER_CHECKPOINT : WORKER_OLLAMA;
		world_begin(&o);
		world_step(&o);
		assert_int_equal(guard_request(o.g, 0, REQUEST_EVICT, 0, o.now, message,
					       sizeof(message)),
				 0);
		d = first_evict_order(&o);
		if (checkpoint)
			/* the time for 8 GiB, plus 10 s */
			assert_true(d.deadline_ns > o.now + 15 * S);
		else
			assert_in_range(d.deadline_ns, o.now, o.now + 5 * S);
		world_done(&o);
	}
}

static struct {
	struct health *h;
	struct gw_device d;
	double value[GW_QUANTITIES];
	uint8_t why[GW_QUANTITIES];
} sick;

static void figure(unsigned q, double v)
{
	sick.value[q] = v;
	sick.why[q] = GW_HAVE;
}

static void margin(double c)
{
	figure(GW_Q_TEMPERATURE_MARGIN, c);
	figure(GW_Q_TEMPERATURE_GPU, 87 - c);
}

static void patient(struct world *o, const struct health_options *options)
{
	health_free(sick.h);
	memset(&sick, 0, sizeof(sick));
	memset(sick.why, GW_ABSENT_NOT_SUPPORTED, sizeof(sick.why));
	sick.d.state = GW_DEVICE_OK;
	sick.d.message = "";
	sick.d.value_count = GW_QUANTITIES;
	sick.d.value = sick.value;
	sick.d.value_absence = sick.why;
	assert_int_equal(health_new(options, &sick.h), 0);
	margin(40);
	world_init(o, 1, 1);
	world_begin(o);
	world_run(o, S);
}

/* Does what the service does: reads the GPU, evaluates its health, and passes the result to the
 * guard. */
static struct health_status reading(struct world *o)
{
	struct health_status s;
	struct health_meaning m;

	health_read(sick.h, &sick.d, o->now);
	health_status(sick.h, o->now, &s);
	health_meaning(sick.h, o->now, &m);
	guard_set_heat(o->g, "GPU-0", m.heat, m.heat_why);
	for (unsigned r = 0; r < HEALTH_REASONS; r++) {
		const struct health_finding *f = &m.reason[r].found;

		guard_set_reason(o->g, "GPU-0", m.reason[r].reason, m.reason[r].on, f->why,
				 o->now);
		guard_set_reason_end(o->g, "GPU-0", m.reason[r].reason, f->clears,
				     f->clears_ns);
	}
	world_fetch(o);
	world_run(o, S);
	return s;
}

static void readings(struct world *o, unsigned n)
{
	while (n--)
		reading(o);
}

static void well_again(struct world *o)
{
	world_done(o);
	health_free(sick.h);
	sick.h = NULL;
}

TEST(a15_noise_at_the_trip_moves_a_worker_once_each_way)
{
	struct world o;

	random_state = seed();
	patient(&o, NULL);
	for (unsigned i = 0; i < 600; i++) { /* 1 to 3 degrees below the limit; evict_c is 2 */
		margin(1 + (double)draw(3));
		reading(&o);
	}
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_THERMAL);
	/* 8 to 10 degrees below the limit; the eviction clears at 7 */
	for (unsigned i = 0; i < 600; i++) {
		margin(8 + (double)draw(3));
		reading(&o);
	}
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	well_again(&o);
}

TEST(a_board_that_reports_thresholds_alone_is_throttled_too)
{
	struct world o;

	patient(&o, NULL);
	sick.why[GW_Q_TEMPERATURE_MARGIN] = GW_ABSENT_NOT_SUPPORTED;
	figure(GW_Q_TEMPERATURE_SLOWDOWN, 90);
	figure(GW_Q_TEMPERATURE_GPU, 60);
	reading(&o);
	assert_false(o.w[0].closed);
	figure(GW_Q_TEMPERATURE_GPU, 86);
	reading(&o);
	assert_true(o.w[0].closed);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	/* 9 degrees below the limit: not cool enough to clear */
	figure(GW_Q_TEMPERATURE_GPU, 81);
	readings(&o, 60);
	assert_true(o.w[0].closed);
	figure(GW_Q_TEMPERATURE_GPU, 79);
	readings(&o, 29);
	assert_true(o.w[0].closed);
	readings(&o, 4);
	assert_false(o.w[0].closed);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	well_again(&o);
}

TEST(a15_three_critical_readings_move_no_worker_but_four_do)
{
	struct world o;

	patient(&o, NULL);
	for (unsigned i = 0; i < 20; i++) {
		margin(1);
		readings(&o, 3);
		margin(4);
		reading(&o);
	}
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 0);
	margin(1);
	readings(&o, 5);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	well_again(&o);
}

TEST(a15_the_original_85_degrees_take_the_place_of_the_margin)
{
	struct health_options options;
	struct world o;

	health_options_init(&options);
	options.absolute_c = 85;
	patient(&o, &options);
	margin(1);
	figure(GW_Q_TEMPERATURE_GPU, 84);
	readings(&o, 20);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	figure(GW_Q_TEMPERATURE_GPU, 85);
	readings(&o, 6);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	figure(GW_Q_TEMPERATURE_GPU, 81); /* within the hysteresis of five degrees */
	readings(&o, 60);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	figure(GW_Q_TEMPERATURE_GPU, 79);
	readings(&o, 60);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	well_again(&o);
}

static bool in_list(unsigned x, const unsigned *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == x)
			return true;
	return false;
}

TEST(a16_xids_of_the_table_move_a_worker_and_all_others_only_alert)
{
	static const unsigned moves[] = { 46,  62,  64,  95,  109, 110, 119,
					  120, 136, 140, 143, 155, 156, 158, /* reset */
					  79,  142 };
	struct world o;

	for (unsigned x = 0; x <= 1000; x = x == 200 ? 999 : x + 1) {
		struct health_status s;
		bool out = in_list(x, moves, COUNT_OF(moves));

		patient(&o, NULL);
		figure(GW_Q_RECOVERY_ACTION, 0);
		reading(&o);
		health_event(sick.h, &(struct health_event){ o.now, ABI_EVENT_XID, x });
		reading(&o);
		s = reading(&o);
		if (s.quarantine != out || (world_state(&o, 0) == STATE_EVICTED) != out)
			fail_msg("Xid %u: %s, the worker is %s", x, s.worst.why,
				 guard_state_name(world_state(&o, 0)));
		if (x == 999 || (x >= 162 && x <= 172))
			assert_int_equal(s.level, HEALTH_WARN); /* alert only */
		well_again(&o);
	}
}

TEST(a16_a_recovery_action_older_than_us_moves_a_worker_without_an_event)
{
	struct world o;

	for (unsigned action = 1; action < 9; action++) { /* action 8 is not defined yet */
		patient(&o, NULL);
		figure(GW_Q_RECOVERY_ACTION, action);
		readings(&o, 3);
		assert_int_equal(world_state(&o, 0), STATE_EVICTED);
		assert_int_equal(world_status(&o, 0).mask, 1u << REASON_HEALTH);
		figure(GW_Q_RECOVERY_ACTION, 0);
		readings(&o, 90);
		assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
		well_again(&o);
	}
}

GUARD_TEST(a19_a_day_of_comings_and_goings_takes_no_memory)
{
	struct guard_decision said;
	size_t before;
	unsigned evictions;

	world_again(o, 1, 2);
	o->total[0] = 20 * GIB;
	for (unsigned i = 0; i < 3; i++) {
		struct world_guest *t = world_guest(o, "job", 0, (3 + i) * GIB, i * MINUTE, 0);

		t->on_ns = (60 + 70 * i) * S;
		t->off_ns = (40 + 13 * i) * MINUTE;
		t->type = i & 1 ? GW_PROCESS_GRAPHICS : GW_PROCESS_COMPUTE;
	}
	world_begin(o);
	o->step_ns = S;
	world_run(o, 60 * MINUTE);
	free(o->log.said); /* this memory belongs to the test itself */
	o->log.said = NULL;
	o->log.says = o->log.room = 0;
	evictions = world_status(o, 0).evictions;
	before = mallinfo2().uordblks;
	for (uint64_t end = o->now + 23 * 60 * MINUTE; o->now < end;) {
		world_step(o);
		o->log.says = 0;
	}
	free(o->log.said);
	o->log.said = NULL;
	assert_int_equal(mallinfo2().uordblks, before);
	assert_true(world_status(o, 0).evictions > evictions);
	assert_false(guard_next_decision(o->g, &said));
	assert_int_equal(o->journal.on_disk,
			 2); /* one record per worker, no matter what happened */
}

TEST_MAIN(NULL, NULL)
