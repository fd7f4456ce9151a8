/* Tests when the guard does not act although a rule applies, what it counts, and what a
 * simulated policy (what_if_new()) reports. */
#include "guard_test.h"

#include "guard/guard_internal.h"
#include "guard/worker_stats.h"

#define HOUR        (3600 * S)
#define FOR_A_WHILE (60 * S)

TEST(a_user_over_the_hourly_limit_waits_until_the_oldest_request_is_an_hour_old)
{
	struct rate r = { .users = 0 };

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rate_wait_ns(&r, 1000, 3, (1 + i) * S), 0);
		rate_take(&r, 1000, (1 + i) * S);
	}
	assert_int_equal(rate_wait_ns(&r, 1000, 3, 11 * S), HOUR - 10 * S);
	assert_int_equal(rate_wait_ns(&r, 1000, 3, HOUR + S), 0);
	rate_take(&r, 1000, HOUR + S);
	assert_int_equal(rate_wait_ns(&r, 1000, 3, HOUR + S + S / 2), S / 2);
	assert_int_equal(rate_wait_ns(&r, 1001, 3, 11 * S), 0);
	assert_int_equal(rate_wait_ns(&r, 1000, 0, 11 * S), 0);
}

TEST(evictions_of_one_user_at_the_same_time_count_once)
{
	struct rate r = { .users = 0 };

	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(rate_wait_ns(&r, 1000, 1, S), 0);
		rate_take(&r, 1000, S);
	}
	assert_int_equal(r.user[0].count, 1);
	assert_int_equal(rate_wait_ns(&r, 1000, 1, 2 * S), HOUR - S);
	assert_int_equal(rate_wait_ns(&r, 1000, 2, 2 * S), 0);
}

TEST(root_and_unknown_users_are_not_limited)
{
	struct rate r = { .users = 0 };

	for (unsigned i = 0; i < 100; i++) {
		rate_take(&r, 0, S);
		rate_take(&r, -1, S);
	}
	assert_int_equal(rate_wait_ns(&r, 0, 1, S), 0);
	assert_int_equal(rate_wait_ns(&r, -1, 1, S), 0);
	assert_int_equal(r.users, 0);
}

TEST(many_users_take_a_fixed_amount_of_memory_and_the_quietest_is_forgotten)
{
	static struct rate r;

	for (int64_t uid = 1; uid <= RATE_USERS + 1; uid++)
		rate_take(&r, uid, (uint64_t)uid * S);
	assert_int_equal(r.users, RATE_USERS);
	assert_int_equal(rate_wait_ns(&r, 1, 1, 100 * S), 0);
	assert_true(rate_wait_ns(&r, 2, 1, 100 * S) > 0);
	assert_true(rate_wait_ns(&r, RATE_USERS + 1, 1, 100 * S) > 0);
}

/* Adds a contend-now program of one user that comes and goes. */
static struct world_guest *flapping(struct world *o, int64_t uid)
{
	struct world_guest *t = world_guest(o, "now-flap", 0, GIB, S, 0);

	t->on_ns = 2 * S;
	t->off_ns = 40 * S;
	t->uid = uid;
	return t;
}

static unsigned evictions_of_a_flapper(int64_t uid, unsigned most, uint64_t span_ns)
{
	struct world o;
	unsigned n;

	world_init(&o, 1, 1);
	o.p.user_evictions = most;
	o.p.standard.quiet_ns = S; /* so that the worker comes back at once */
	o.step_ns = 500 * MS;
	flapping(&o, uid);
	world_begin(&o);
	world_until(&o, span_ns);
	n = world_status(&o, 0).evictions;
	if (most && uid > 0) {
		assert_true(world_decided(&o, 0, GUARD_STATES, GUARD_STATES, "user limit") > 0);
		assert_in(world_last(&o, "user limit")->evidence, "uid 1000");
		assert_int_equal(world_last(&o, "user limit")->result, RESULT_WITHHELD);
		assert_true(world_last(&o, "user limit")->dry);
	}
	world_done(&o);
	return n;
}

TEST(starting_and_stopping_processes_does_not_exceed_the_users_hourly_limit)
{
	assert_int_equal(evictions_of_a_flapper(1000, 4, HOUR - 60 * S), 4);
	assert_true(evictions_of_a_flapper(1000, 0, HOUR - 60 * S) > 4);
	assert_true(evictions_of_a_flapper(0, 4, HOUR - 60 * S) > 4);
}

GUARD_TEST(a_limited_demand_is_reported_in_the_status_until_it_is_gone)
{
	o->p.user_evictions = 1;
	o->p.standard.quiet_ns = S;
	flapping(o, 1000);
	world_begin(o);
	world_until(o, 44 * S + 500 * MS); /* while the program runs for the second time */
	assert_int_equal(world_state(o, 0), STATE_SUSPECT);
	assert_in(world_status(o, 0).limit, "uid 1000");
	world_until(o, 60 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	assert_string_equal(world_status(o, 0).limit, "");
}

GUARD_TEST(a_user_over_the_limit_does_not_block_the_demand_of_another_user)
{
	o->p.user_evictions = 1;
	o->p.standard.quiet_ns = o->p.standard.resident_ns = S;
	flapping(o, 1000);
	world_guest(o, "game", 0, GIB, 44 * S, 0)->uid = 1001;
	world_begin(o);
	/* while the first program runs for the second time */
	world_until(o, 43 * S + 500 * MS);
	assert_int_equal(world_state(o, 0), STATE_SUSPECT);
	world_until(o, 60 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	assert_in(world_last(o, "memory")->evidence, "game");
	assert_int_equal(world_status(o, 0).evictions, 2);
}

static int asked_by(struct world *o, int64_t uid, enum guard_request what)
{
	guard_set_requester(o->g, uid);
	return world_ask(o, 0, what, what == REQUEST_EVICT ? 0 : FOR_A_WHILE);
}

GUARD_TEST(requests_count_against_the_limit_only_if_they_have_a_user)
{
	o->p.user_evictions = 2;
	world_begin(o);
	world_run(o, S);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(asked_by(o, 1000, REQUEST_EVICT), 0);
		world_run(o, 2 * S);
		/* a repeated request moves no worker, and does not count */
		assert_int_equal(asked_by(o, 1000, REQUEST_EVICT), 0);
		assert_int_equal(asked_by(o, 1000, REQUEST_RESUME_NOW), 0);
		world_run(o, 20 * S);
		assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	}
	assert_int_equal(asked_by(o, 1000, REQUEST_EVICT), -GW_E_PERM);
	assert_int_equal(asked_by(o, 1000, REQUEST_HOLD_EVICTED), -GW_E_PERM);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	assert_true(guard_user_wait_ns(o->g, 1000, o->now) > HOUR - 60 * S);
	/* a request without a user comes from the operator and is not limited */
	assert_int_equal(world_ask(o, 0, REQUEST_EVICT, 0), 0);
}

GUARD_TEST(only_reservations_that_move_workers_count_against_the_users_limit)
{
	uint64_t id;

	o->p.user_evictions = 1;
	world_begin(o);
	world_run(o, S);
	for (unsigned i = 0; i < 3; i++) {
		guard_set_requester(o->g, 1000);
		assert_int_equal(guard_reserve(o->g, NULL, GIB, 0, 0, o->now, &id), 0);
		guard_release(o->g, id, o->now);
	}
	assert_int_equal(guard_user_wait_ns(o->g, 1000, o->now), 0);
	guard_set_requester(o->g, 1000);
	assert_int_equal(guard_reserve(o->g, NULL, 6 * GIB, 0, 0, o->now, &id), 0);
	world_run(o, 5 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	guard_release(o->g, id, o->now);
	world_run(o, 20 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	guard_set_requester(o->g, 1000);
	assert_int_equal(guard_reserve(o->g, NULL, 6 * GIB, 0, 0, o->now, &id), -GW_E_PERM);
}

/* Makes one user move three workers at once, in one of four ways. */
static void move_all(struct world *o, unsigned way)
{
	uint64_t id;

	guard_set_requester(o->g, 1000);
	if (way == 0) {
		assert_int_equal(world_ask(o, -1, REQUEST_EVICT, 0), 0);
	} else if (way == 1) {
		assert_int_equal(guard_reserve(o->g, NULL, 36 * GIB, 0, 0, o->now, &id), 0);
	} else if (way == 2) {
		guard_set_games(o->g, 1, &(struct scene_game){ .pid = 0 });
	} else {
		guard_set_requester(o->g, -1);
		world_guest(o, "now-job", 0, 4 * GIB, o->now - WORLD_START, 0)->uid = 1000;
	}
}

GUARD_TEST(a_request_a_reservation_a_game_or_a_program_moves_all_workers_at_once)
{
	for (unsigned way = 0; way < 4; way++) {
		world_again(o, 1, 3);
		o->total[0] = 40 * GIB;
		o->p.user_evictions = 1;
		begin(o);
		move_all(o, way);
		world_run(o, 20 * S);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(world_state(o, i), STATE_EVICTED);
		assert_decided(o, 0, ANY, ANY, "user limit");
		assert_true(guard_user_wait_ns(o->g, 1000, o->now) > HOUR - 30 * S);
	}
}

GUARD_TEST(a_reservation_that_moves_workers_later_counts_against_the_users_limit)
{
	struct guard_reservation room;
	uint64_t id;

	for (unsigned restarts = 0; restarts < 2; restarts++) {
		world_again(o, 1, 1);
		o->p.user_evictions = 1;
		world_guest(o, "ignored", 0, 3 * GIB, 70 * S, 0);
		world_begin(o);
		world_run(o, S);
		assert_int_equal(asked_by(o, 1000, REQUEST_EVICT), 0);
		world_run(o, 2 * S);
		assert_int_equal(world_ask(o, 0, REQUEST_RESUME_NOW, 0), 0);
		world_run(o, 20 * S);
		guard_set_requester(o->g,
				    1000); /* fits now, but not next to the other process */
		assert_int_equal(guard_reserve(o->g, NULL, GIB, 0, 0, o->now, &id), 0);
		if (restarts) { /* after a restart the limit begins again */
			assert_true(guard_reservation_at(o->g, 0, &room));
			assert_int_equal(room.uid, 1000);
			world_restart(o);
			guard_set_requester(o->g, room.uid);
			assert_int_equal(guard_reserve_restore(o->g, &room), 0);
			world_until(o, 60 * S);
			assert_int_equal(asked_by(o, 1000, REQUEST_EVICT), 0);
			assert_int_equal(world_ask(o, 0, REQUEST_RESUME_NOW, 0), 0);
		}
		world_until(o, 200 * S);
		assert_int_equal(world_state(o, 0), STATE_ACTIVE);
		world_run(o, HOUR); /* then the user may move a worker again, once */
		assert_int_equal(world_state(o, 0), STATE_EVICTED);
		assert_true(guard_user_wait_ns(o->g, 1000, o->now) > 0);
	}
}

static struct world *with_a_screen(struct world *o)
{
	world_init(o, 2, 1);
	o->display[0] = true;
	o->p.any = true;
	o->p.rules = 1; /* no rule ignores the desktop */
	world_guest(o, "gnome-shell", 0, 200 * MIB, 5 * S, 0);
	return o;
}

TEST(on_a_display_without_threshold_and_rule_demand_is_only_reported)
{
	struct world o;
	struct guard_status s;

	with_a_screen(&o);
	world_begin(&o);
	world_until(&o, 60 * S);
	s = world_status(&o, 0);
	assert_int_equal(s.state, STATE_ACTIVE);
	assert_int_equal(s.evictions, 0);
	assert_int_equal(s.would_evict, 1);
	assert_in(s.limit, "guard learn");
	assert_int_equal(world_decided(&o, 0, GUARD_STATES, GUARD_STATES, "display"), 2);
	assert_int_equal(world_last(&o, "display")->result, RESULT_WITHHELD);
	/* requests of people are still carried out */
	assert_int_equal(world_ask(&o, 0, REQUEST_EVICT, 0), 0);
	world_run(&o, 5 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(world_status(&o, 0).evictions, 1);
	world_done(&o);
}

TEST(an_ignore_rule_no_display_or_a_named_contender_ends_the_restriction)
{
	struct world o;

	for (unsigned how = 0; how < 3; how++) {
		with_a_screen(&o);
		if (how == 0)
			o.p.rules++;
		if (how == 1)
			o.display[0] = false;
		if (how == 2)
			world_guest(&o, "now-game", 0, GIB, 10 * S, 0);
		world_begin(&o);
		world_until(&o, 40 * S);
		assert_int_equal(world_status(&o, 0).evictions, 1);
		world_done(&o);
	}
}

TEST(with_demand_thresholds_a_display_does_not_restrict_eviction)
{
	struct world o;

	with_a_screen(&o);
	o.p.any = false;
	world_guest(&o, "game", 0, 3 * GIB, 5 * S, 0);
	world_begin(&o);
	world_until(&o, 30 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_string_equal(world_status(&o, 0).limit, "");
	world_done(&o);
}

static void count_all(const struct world *o, struct guard_counters *t)
{
	for (size_t i = 0; i < o->log.says; i++)
		counters_add(t, o->p.worker[o->log.said[i].worker].name, &o->log.said[i]);
}

GUARD_TEST(evictions_are_counted_by_level_and_end_and_bytes_by_worker)
{
	static struct guard_counters t;
	const struct counters_worker *w;

	o->p.worker[0].match.unit = "w0.service";
	o->p.worker[0].knobs.max_level = 4;
	o->w[0].acts.lies = 1; /* the first order reports success but frees nothing */
	world_guest(o, "game", 0, 3 * GIB, 5 * S, 20 * S);
	world_begin(o);
	world_until(o, 19 * S);
	count_all(o, &t);
	w = counters_find(&t, "w0");
	assert_non_null(w);
	assert_int_equal(w->cell[counters_eviction(2, RESULT_NOT_FREED)], 1);
	assert_int_equal(w->cell[counters_eviction(4, RESULT_FREED)], 1);
	assert_int_equal(w->cell[counters_eviction(2, RESULT_FREED)], 0);
	assert_int_equal(w->cell[COUNTERS_FREED_BYTES], 8 * GIB);
	assert_int_equal(guard_levels(o->g, 0), 1u << 2 | 1u << 4);
}

GUARD_TEST(what_blocks_a_return_is_counted_when_it_changes)
{
	static struct guard_counters t;

	world_guest(o, "now-game", 0, 3 * GIB, 5 * S, 20 * S);
	world_guest(o, "ignored", 0, 4 * GIB, 10 * S, 200 * S);
	world_begin(o);
	world_until(o, 150 * S);
	assert_int_equal(world_state(o, 0), STATE_EVICTED);
	world_until(o, 260 * S);
	assert_int_equal(world_state(o, 0), STATE_ACTIVE);
	count_all(o, &t);
	assert_int_equal(t.worker[0].cell[COUNTERS_BLOCKED + BLOCK_ROOM], 1);
	assert_int_equal(t.worker[0].cell[COUNTERS_RESUMES], 1);
	assert_string_equal(world_last(o, "may not return yet")->gpu, "GPU-0");
}

GUARD_TEST(in_a_dry_run_only_would_evict_is_counted)
{
	static struct guard_counters t;

	o->p.mode = GUARD_DRY_RUN;
	world_guest(o, "game", 0, 3 * GIB, 5 * S, 20 * S);
	world_begin(o);
	world_until(o, 120 * S);
	count_all(o, &t);
	assert_int_equal(t.worker[0].cell[COUNTERS_WOULD_EVICT], 1);
	for (unsigned c = COUNTERS_EVICTIONS; c < COUNTERS_CELLS; c++)
		assert_int_equal(t.worker[0].cell[c], 0);
	assert_int_equal(t.worker[0].cell[COUNTERS_FREED_BYTES], 0);
	assert_int_equal(t.worker[0].cell[COUNTERS_RESUMES], 0);
}

TEST(every_cell_has_a_name_of_its_own)
{
	char a[48], b[48];

	for (unsigned i = 0; i < COUNTERS_CELLS; i++)
		for (unsigned k = 0; k < i; k++) {
			counters_cell_name(i, a, sizeof(a));
			counters_cell_name(k, b, sizeof(b));
			assert_string_not_equal(a, b);
		}
	counters_cell_name(counters_eviction(2, RESULT_FREED), a, sizeof(a));
	assert_string_equal(a, "evictions/2/freed");
}

GUARD_TEST(a_decision_has_its_gpu_and_the_other_processes)
{
	const struct guard_decision *d;

	world_again(o, 2, 1);
	o->w[0].load[0] = 0;
	o->w[0].load[1] = 8 * GIB;
	world_guest(o, "game", 1, 3 * GIB, 5 * S, 0);
	world_guest(o, "gnome-shell", 1, 64 * MIB, 0, 0);
	world_begin(o);
	world_until(o, 10 * S);
	d = world_last(o, "freed");
	assert_non_null(d);
	assert_string_equal(d->gpu, "GPU-1");
	assert_int_equal(d->index, 1);
	assert_int_equal(d->others, 2);
	assert_float_equal(d->temperature_c, 47, 0);
	assert_int_equal(d->level, 2);
	assert_int_equal(d->freed_bytes, 8 * GIB);
}

static void note(void *arg, const struct guard_decision *d)
{
	uint64_t *left = arg;

	assert_true(d->dry);
	if (d->to == STATE_DRAIN)
		*left = d->mono_ns;
}

GUARD_TEST(a_what_if_shows_when_a_worker_would_leave_and_is_repeatable)
{
	uint64_t left[2] = { 0, 0 };

	world_guest(o, "game", 0, 3 * GIB, 0, 0);
	world_scene(o);
	for (unsigned i = 0; i < 2; i++) {
		struct scene before;
		struct what_if *t;

		what_if_before(&o->p, &o->s, &before);
		assert_int_equal(before.processes, 1);
		assert_int_equal(before.gpu[0].free_bytes, 4 * GIB);
		assert_int_equal(what_if_new(&o->p, &before, &o->s, &t), 0);
		what_if_run(t, 10 * S, note, NULL, &left[i]);
		assert_true(what_if_scenes(t) > 5 && what_if_span_ns(t) <= 10 * S);
		what_if_free(t);
	}
	assert_true(left[0] >= 300 * MS && left[0] < S);
	assert_int_equal(left[0], left[1]);
}

GUARD_TEST(a_what_if_has_a_limited_number_of_scenes)
{
	struct what_if *t;

	world_scene(o);
	assert_int_equal(what_if_new(&o->p, &o->s, &o->s, &t), 0);
	what_if_run(t, 24 * HOUR, NULL, NULL, NULL);
	assert_int_equal(what_if_scenes(t), WHAT_IF_SCENES);
	what_if_free(t);
}

GUARD_TEST(games_count_against_the_limit_of_their_user)
{
	world_again(o, 1, 2);
	o->p.user_evictions = 2;
	o->w[1].load[0] = GIB;
	world_begin(o);
	world_until(o, 5 * S);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(guard_user_wait_ns(o->g, 1000, o->now), 0);
		guard_set_requester(o->g, 1000);
		guard_set_games(o->g, 1, &(struct scene_game){ .pid = 0 });
		world_run(o, 10 * S);
		assert_false(o->w[0].resident);
		guard_set_requester(o->g, 1000);
		guard_set_games(o->g, 2,
				&(struct scene_game){ .pid = 0 }); /* no worker is on the GPU */
		guard_set_games(o->g, 0, &(struct scene_game){ .pid = 0 });
		world_run(o, 200 * S);
		assert_true(o->w[0].resident);
	}
	assert_true(guard_user_wait_ns(o->g, 1000, o->now) > 0);
	assert_int_equal(guard_user_wait_ns(o->g, 1001, o->now), 0);
}

GUARD_TEST(where_another_service_acts_workers_are_only_observed_until_it_ends)
{
	struct guard_status st;

	world_guest(o, "game", 0, 3 * GIB, 5 * S, 0);
	world_begin(o);
	guard_set_foreign(o->g, "GPU-0", "another gpuward (process 7)", o->now);
	world_until(o, 30 * S);
	assert_int_equal(o->orders, 0);
	assert_true(o->w[0].resident);
	assert_int_equal(guard_status(o->g, 0, &st), 0);
	assert_int_equal(st.would_evict, 1);
	assert_in(st.limit, "process 7");
	guard_set_foreign(o->g, "GPU-0", NULL, o->now);
	world_until(o, 60 * S);
	assert_false(o->w[0].resident);
	assert_int_equal(guard_status(o->g, 0, &st), 0);
	assert_int_equal(st.evictions, 1);
	assert_string_equal(st.limit, "");
}

GUARD_TEST(a_worker_that_is_out_stays_out_where_another_service_acts)
{
	world_guest(o, "game", 0, 3 * GIB, 5 * S, 20 * S);
	world_begin(o);
	world_until(o, 19 * S);
	assert_false(o->w[0].resident);
	guard_free(o->g);
	world_begin(o); /* starts with the record of the worker */
	guard_set_foreign(o->g, "GPU-0", "another gpuward", o->now);
	world_until(o, 300 * S);
	assert_false(o->w[0].resident);
	assert_true(o->journal.disk[0].evicted);
	guard_set_foreign(o->g, "GPU-0", NULL, o->now);
	world_until(o, 600 * S);
	assert_true(o->w[0].resident);
}

TEST_MAIN(NULL, NULL)
