/* The acceptance list of the guard (docs/GUARD.md) as far as decisions go, in stepped time.  A name begins with
 * the id of its row; tests/e2e/test_guard_accept.py has what needs processes, files and servers. */
#include "guard_world.h"

#define ANY GUARD_STATES

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

/* ---- A1: a desktop is no contender ---- */

static void desktop(struct world *o, uint64_t total)
{
	world_init(o, 1, 1);
	o->total[0] = total;
	world_guest(o, "Xorg", 0, 64 * MIB, 0, 0)->type = GW_PROCESS_GRAPHICS;
	world_guest(o, "gnome-shell", 0, 34 * MIB, 0, 0)->type = GW_PROCESS_GRAPHICS;
	world_guest(o, "terminal", 0, 38 * MIB, 0, 0)->type =
		GW_PROCESS_GRAPHICS | GW_PROCESS_COMPUTE;
}

static void a01_a_desktop_alone_never_evicts(void **state)
{
	const uint64_t total[] = { 24 * GIB, 9 * GIB };
	struct world o;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		desktop(&o, total[i]);
		world_begin(&o);
		world_run(&o, 10 * MINUTE);
		assert_int_equal(o.orders, 0);
		assert_int_equal(world_said(&o, 0, ANY, STATE_SUSPECT, NULL), 0);
		world_done(&o);
	}
}

static void a01_the_original_rule_evicts_for_a_desktop(void **state)
{
	struct world o;

	(void)state;
	desktop(&o, 24 * GIB);
	o.p.any = true;
	world_begin(&o);
	world_run(&o, 10 * MINUTE);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).evictions, 1);
	world_done(&o);
}

/* ---- A3: one comes and goes ---- */

static void a03_a_contender_gets_the_gpu_and_the_worker_gets_it_back(void **state)
{
	struct world o;
	const struct guard_decision *d;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 4 * GIB, 10 * S, 100 * S)->sm_ratio = 0.43;
	o.adaptive = true;
	world_begin(&o);
	world_until(&o, 10 * S + 100 * MS + 300 * MS + S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_false(o.w[0].resident);
	d = world_last(&o, "memory, the profile");
	assert_non_null(d);
	assert_int_equal(d->to, STATE_DRAIN);
	assert_true(d->mono_ns <= WORLD_START + 10 * S + 450 * MS);
	assert_non_null(strstr(d->evidence, "pid 1000 job 4096 MiB 43 % on GPU-0"));
	assert_true(d->next_ns > d->mono_ns);
	world_until(&o, 128 * S);
	assert_int_equal(world_state(&o, 0), STATE_QUIET);
	assert_in_range(world_status(&o, 0).next_ns, WORLD_START + 130 * S,
			WORLD_START + 132 * S);
	world_until(&o, 132 * S);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	world_until(&o, 200 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(world_status(&o, 0).evictions, 1);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	world_done(&o);
}

static void a03_with_the_original_keys_it_is_out_within_six_seconds(void **state)
{
	struct world o;

	(void)state;
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

/* ---- A4: one who cannot decide ---- */

static void a04_a_contender_that_flickers_evicts_three_times_at_most(void **state)
{
	struct world o;
	struct world_guest *t;

	(void)state;
	world_init(&o, 1, 1);
	t = world_guest(&o, "job", 0, 4 * GIB, 10 * S, 0);
	t->on_ns = t->off_ns = 2 * S;
	world_begin(&o);
	world_run(&o, 10 * MINUTE);
	assert_in_range(world_status(&o, 0).evictions, 1, 3);
	world_done(&o);
}

static void a04_a_contender_that_comes_and_goes_for_an_hour_doubles_the_quiet(void **state)
{
	struct world o;
	struct world_guest *t;
	double most = 0;

	(void)state;
	world_init(&o, 1, 1);
	t = world_guest(&o, "game", 0, 4 * GIB, 10 * S, 0);
	t->on_ns = t->off_ns = 45 * S;
	t->type = GW_PROCESS_GRAPHICS;
	world_begin(&o);
	for (unsigned i = 0; i < 60; i++) {
		world_run(&o, MINUTE);
		most = fmax(most, world_status(&o, 0).backoff);
	}
	/* At 60 s of quiet a guest who is away for 45 s at most keeps it out. */
	assert_true(most == 2);
	assert_int_equal(world_status(&o, 0).evictions, 3);
	assert_int_equal(world_said(&o, 0, ANY, ANY, "flapping"), 1);
	assert_non_null(strstr(world_last(&o, "flapping")->evidence, "60 s"));
	world_done(&o);
}

static void a04_the_quiet_period_never_grows_past_ten_minutes(void **state)
{
	struct world o;
	double most = 0;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "now", 0, 4 * GIB, 0, 0);
	o.guest[0].until_ns = 0;
	world_begin(&o);
	for (unsigned i = 0; i < 40; i++) { /* comes back the moment the worker does */
		for (unsigned k = 0; k < 10000 && world_state(&o, 0) != STATE_ACTIVE; k++)
			world_step(&o);
		world_run(&o, S);
		o.guest[0].until_ns = o.now + S;
		world_run(&o, 2 * S);
		if (world_status(&o, 0).backoff > most)
			most = world_status(&o, 0).backoff;
	}
	assert_true(most == 32); /* 30 s x 32 is cut to 600 s */
	assert_true(world_status(&o, 0).backoff <= 32);
	world_run(&o, 40 * MINUTE); /* a while without: the next one begins anew */
	o.guest[0].until_ns = o.now + S;
	world_run(&o, 2 * S);
	assert_true(world_status(&o, 0).backoff == 1);
	world_done(&o);
}

/* ---- A11: records ---- */

/* A life with an eviction, a hold, a failure and returns; the guard dies at one of its writes. */
static unsigned life(unsigned cut_at, bool written)
{
	struct world o;
	unsigned writes;

	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 4 * GIB, 10 * S, 60 * S);
	o.cut_at = cut_at;
	o.cut_written = written;
	world_begin(&o);
	world_until(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED); /* whenever it died */
	assert_false(o.w[0].resident);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 1); /* never twice */
	world_until(&o, 130 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	assert_false(o.w[0].closed);
	world_ask(&o, 0, ASK_HOLD_EVICTED, 100 * S);
	if (o.dead) {
		bool lost = !written; /* it was never written, and nobody was told it was */

		world_restart(&o);
		if (lost)
			world_ask(&o, 0, ASK_HOLD_EVICTED, 100 * S);
	}
	world_until(&o, 200 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).hold, HOLD_EVICTED);
	assert_int_equal(o.w[0].verbs[ORDER_EVICT], 2);
	world_until(&o, 240 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_true(o.w[0].resident);
	assert_int_equal(o.disk[0].evicted, false);
	writes = o.writes;
	world_done(&o);
	return writes;
}

static void a11_a_guard_that_dies_at_any_write_goes_on_as_if_it_had_not(void **state)
{
	unsigned writes = life(0, false);

	(void)state;
	assert_true(writes >= 8);
	for (unsigned i = 1; i <= writes; i++) {
		life(i, false);
		life(i, true);
	}
}

static void a11_a_guard_that_dies_after_any_look_goes_on_as_if_it_had_not(void **state)
{
	struct world o;

	(void)state;
	/* Also between an order that was carried out and its answer. */
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

static void a11_a_guard_that_restarts_knows_where_its_worker_must_fit_again(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 2, 1); /* no GPU is declared */
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

static void a11_a_hold_survives_with_its_end(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_begin(&o);
	world_step(&o);
	world_ask(&o, 0, ASK_HOLD_ACTIVE, 100 * S);
	world_until(&o, 50 * S);
	world_restart(&o);
	world_until(&o, 99 * S);
	assert_int_equal(world_status(&o, 0).hold, HOLD_ACTIVE);
	world_until(&o, 102 * S);
	assert_int_equal(world_status(&o, 0).hold, HOLD_NONE);
	world_ask(&o, 0, ASK_EVICT, 100 * S);
	world_until(&o, 150 * S);
	world_restart(&o);
	world_until(&o, 200 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_MANUAL);
	world_until(&o, 206 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	world_done(&o);
}

static void a11_a_record_comes_before_the_order_it_tells_of(void **state)
{
	struct world o;
	struct guard_order d;
	struct guard_record r;
	char message[100];

	(void)state;
	world_init(&o, 1, 1);
	world_begin(&o);
	world_step(&o);
	assert_int_equal(guard_ask(o.g, 0, ASK_EVICT, 0, o.now, message, sizeof(message)), 0);
	assert_false(guard_next_order(o.g, &d));
	assert_true(guard_next_record(o.g, &r));
	assert_true(r.evicted);
	assert_int_equal(r.mask, 1u << REASON_MANUAL);
	assert_int_equal(r.need_bytes, 8 * GIB);
	assert_int_equal(r.wall_ns, WORLD_WALL + (o.now - WORLD_START));
	assert_true(guard_next_order(o.g, &d));
	assert_int_equal(d.verb, ORDER_CLOSE);
	world_done(&o);
}

/* ---- A13: it runs if and only if nothing speaks against it ---- */

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
	case 4: guard_reason_set(o->g, gpu, found[draw(3)], true, "drawn", o->now); break;
	case 5:
	case 6: guard_reason_set(o->g, gpu, found[draw(3)], false, "", o->now); break;
	case 7: world_ask(o, (int)draw(3), draw(6), (1 + draw(300)) * S); break;
	case 8: world_ask(o, (int)draw(3), ASK_RELEASE, 0); break;
	case 9: w->fails = draw(5); break;
	case 10: w->lies = draw(2); break;
	case 11: w->wont_return = draw(2); break;
	case 12: o->errors[draw(2)] = draw(2) * 11; break;
	case 13: world_restart(o); break;
	case 14:
		w->alive = w->resident = draw(2); /* it dies, or starts again */
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
		o->w[i].fails = o->w[i].lies = 0;
		if (!o->w[i].alive) { /* started by hand, with all it had */
			o->w[i].alive = o->w[i].resident = true;
			o->w[i].start_ticks++;
			o->w[i].closed = false;
		}
		o->w[i].wont_return = false;
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

static void a13_at_rest_a_worker_runs_if_and_only_if_nothing_speaks_against_it(void **state)
{
	static struct world o;

	(void)state;
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

static void a13_contention_that_ends_does_not_bring_back_who_is_too_hot(void **state)
{
	struct world o;

	(void)state;
	world_init(&o, 1, 1);
	world_guest(&o, "job", 0, 4 * GIB, 10 * S, 20 * S);
	world_begin(&o);
	world_until(&o, 15 * S);
	guard_reason_set(o.g, "GPU-0", REASON_THERMAL, true, "hot", o.now);
	world_until(&o, 10 * MINUTE);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).mask, 1u << REASON_THERMAL);
	world_done(&o);
}

/* ---- A14: dry, and again ---- */

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

static void tell(struct world *o)
{
	world_begin(o);
	world_until(o, 120 * S);
	world_ask(o, 1, ASK_HOLD_EVICTED, 30 * S);
	world_until(o, 170 * S);
	guard_reason_set(o->g, "GPU-0", REASON_THERMAL, true, "hot", o->now);
	world_fetch(o);
	world_until(o, 180 * S);
	guard_reason_set(o->g, "GPU-0", REASON_THERMAL, false, "", o->now);
	world_fetch(o);
	world_until(o, 600 * S);
}

static void a14_dry_run_and_observe_decide_as_in_earnest_and_do_nothing(void **state)
{
	static struct world live, dry;

	(void)state;
	story(&live);
	tell(&live);
	assert_true(live.orders > 10);
	for (unsigned i = 0; i < 3; i++) {
		story(&dry);
		dry.p.mode = i == 0 ? GUARD_DRY_RUN : i == 1 ? GUARD_OBSERVE : GUARD_ENFORCE;
		dry.simulated = i == 2; /* not told to act on simulated GPUs */
		tell(&dry);
		assert_int_equal(dry.orders, 0);
		assert_int_equal(dry.says, live.says);
		for (size_t k = 0; k < live.says; k++) {
			const struct guard_decision *a = &live.said[k], *b = &dry.said[k];

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
		for (unsigned k = 0; k < dry.on_disk; k++)
			assert_false(dry.disk[k].evicted);
		world_done(&dry);
	}
	world_done(&live);
}

static void a14_the_same_feed_gives_the_same_decisions_byte_for_byte(void **state)
{
	static struct world a, b;

	(void)state;
	story(&a);
	tell(&a);
	story(&b);
	tell(&b);
	assert_int_equal(a.says, b.says);
	assert_true(a.says > 40);
	assert_memory_equal(a.said, b.said, a.says * sizeof(a.said[0]));
	assert_int_equal(a.writes, b.writes);
	assert_memory_equal(a.disk, b.disk, sizeof(a.disk));
	world_done(&a);
	world_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a01_a_desktop_alone_never_evicts),
		cmocka_unit_test(a01_the_original_rule_evicts_for_a_desktop),
		cmocka_unit_test(a03_a_contender_gets_the_gpu_and_the_worker_gets_it_back),
		cmocka_unit_test(a03_with_the_original_keys_it_is_out_within_six_seconds),
		cmocka_unit_test(a04_a_contender_that_flickers_evicts_three_times_at_most),
		cmocka_unit_test(
			a04_a_contender_that_comes_and_goes_for_an_hour_doubles_the_quiet),
		cmocka_unit_test(a04_the_quiet_period_never_grows_past_ten_minutes),
		cmocka_unit_test(a11_a_guard_that_dies_at_any_write_goes_on_as_if_it_had_not),
		cmocka_unit_test(a11_a_guard_that_dies_after_any_look_goes_on_as_if_it_had_not),
		cmocka_unit_test(
			a11_a_guard_that_restarts_knows_where_its_worker_must_fit_again),
		cmocka_unit_test(a11_a_hold_survives_with_its_end),
		cmocka_unit_test(a11_a_record_comes_before_the_order_it_tells_of),
		cmocka_unit_test(
			a13_at_rest_a_worker_runs_if_and_only_if_nothing_speaks_against_it),
		cmocka_unit_test(a13_contention_that_ends_does_not_bring_back_who_is_too_hot),
		cmocka_unit_test(a14_dry_run_and_observe_decide_as_in_earnest_and_do_nothing),
		cmocka_unit_test(a14_the_same_feed_gives_the_same_decisions_byte_for_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
