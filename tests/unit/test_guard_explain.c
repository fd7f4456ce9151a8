/* Tests why a worker stays evicted: each reason has the rule that set it, its start and its
 * end, and its evidence is current. */
#include "guard_test.h"

#include "guard/demand.h"

static struct guard_explanation why(const struct world *o, enum guard_reason r)
{
	struct guard_explanation got;

	assert_true(guard_explain(o->g, 0, r, &got));
	return got;
}

GUARD_TEST(contention_names_the_contender_and_the_end_of_the_quiet_time)
{
	struct guard_explanation got;

	world_guest(o, "job", 0, 4 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 5 * S);
	assert_false(guard_explain(o->g, 0, REASON_CONTENTION, &got));
	world_until(o, 15 * S);
	got = why(o, REASON_CONTENTION);
	assert_has(got.rule, "memory, ");
	assert_has(got.evidence, "job 4096 MiB");
	assert_has(got.clears, "30 s after the last demand");
	assert_true(got.since_ns >= WORLD_START + 10 * S &&
		    got.since_ns < WORLD_START + 11 * S);
	assert_true(got.clears_ns == 0); /* the game still runs */
	world_until(o, 25 * S);
	got = why(o, REASON_CONTENTION);
	assert_has(got.evidence, "job 4096 MiB");
	assert_true(got.clears_ns >= WORLD_START + 49 * S &&
		    got.clears_ns <= WORLD_START + 51 * S);
	world_until(o, 60 * S);
	assert_false(guard_explain(o->g, 0, REASON_CONTENTION, &got));
}

GUARD_TEST(a_reservation_is_reported_with_its_number_size_owner_and_end)
{
	struct guard_explanation got;
	uint64_t id;

	world_guest(o, "owner", 0, MIB, 0, 0);
	world_begin(o);
	world_until(o, 5 * S);
	assert_int_equal(guard_reserve(o->g, NULL, 6 * GIB, 1000, 60 * S, o->now, &id), 0);
	world_until(o, 10 * S);
	got = why(o, REASON_RESERVED);
	assert_has(world_last(o, "reserved")->evidence, "reservation 1: 6144 MiB on GPU-0");
	assert_has(got.evidence, "reservation 1: 6144 MiB on GPU-0 for pid 1000 owner");
	assert_true(got.clears_ns > WORLD_START + 64 * S &&
		    got.clears_ns < WORLD_START + 66 * S);
	assert_has(got.clears, "released, its process ends or its time is over");
}

GUARD_TEST(a_schedule_is_reported_with_its_span_and_its_end)
{
	struct guard_explanation got;
	char message[100];

	/* the time is Wednesday, noon */
	assert_int_equal(policy_spans_read("Mon,Wed 11:00-13:30", o->p.worker[0].schedule, 0,
					   message, sizeof(message)),
			 1);
	o->p.worker[0].schedules = 1;
	world_begin(o);
	world_until(o, 30 * S);
	got = why(o, REASON_SCHEDULE);
	assert_string_equal(got.evidence, "in its schedule, Mon,Wed 11:00-13:30");
	assert_decided(o, 1, ANY, STATE_DRAIN, "schedule");
	assert_has(world_last(o, "schedule")->evidence, "Mon,Wed 11:00-13:30");
	assert_true(got.clears_ns > WORLD_START + 90 * MINUTE - 2 * S &&
		    got.clears_ns < WORLD_START + 90 * MINUTE + 2 * S);
}

/* If a span begins before the previous one has ended, the later end counts. A schedule without
 * a gap has no end. */
GUARD_TEST(spans_that_follow_one_another_end_with_the_last)
{
	char message[100];

	o->p.worker[0].schedules = (unsigned)policy_spans_read(
		"11:00-13:00; 12:30-14:00; Wed 14:00-01:00", o->p.worker[0].schedule, 0,
		message, sizeof(message));
	world_begin(o);
	world_until(o, 30 * S);
	assert_true(why(o, REASON_SCHEDULE).clears_ns > WORLD_START + 13 * 60 * MINUTE - 2 * S);
	assert_true(why(o, REASON_SCHEDULE).clears_ns < WORLD_START + 13 * 60 * MINUTE + 2 * S);
	world_again(o, 1, 1);
	o->p.worker[0].schedules = (unsigned)policy_spans_read(
		"00:00-24:00", o->p.worker[0].schedule, 0, message, sizeof(message));
	world_begin(o);
	world_until(o, 30 * S);
	assert_true(why(o, REASON_SCHEDULE).clears_ns == 0);
}

GUARD_TEST(heat_is_reported_with_its_gpu)
{
	struct guard_explanation got;

	world_begin(o);
	world_until(o, 5 * S);
	guard_set_reason(o->g, "GPU-0", REASON_THERMAL, true, "Too hot: at 88 C.", o->now);
	world_until(o, 8 * S);
	got = why(o, REASON_THERMAL);
	assert_string_equal(got.evidence, "GPU-0: Too hot: at 88 C.");
	assert_has(got.rule, "[health]");
	assert_string_equal(got.clears, "when the reason ends"); /* no end was set */
	assert_true(got.clears_ns == 0);
}

/* The module that sets a reason also gives its end. If the reason applies to two GPUs, the
 * later end counts. An end without a time counts as the latest. */
GUARD_TEST(a_reason_set_from_outside_shows_the_end_that_was_given)
{
	struct guard_explanation got;

	world_again(o, 2, 1);
	o->w[0].load[1] = GIB;
	world_begin(o);
	world_until(o, 5 * S);
	guard_set_reason_end(o->g, "GPU-0", REASON_HEALTH, "too early", 1);
	guard_set_reason(o->g, "GPU-0", REASON_HEALTH, true, "Xid 79.", o->now);
	assert_has(why(o, REASON_HEALTH).clears, "when the reason ends");
	guard_set_reason_end(o->g, "GPU-0", REASON_HEALTH, "after 300 s", o->now + 300 * S);
	got = why(o, REASON_HEALTH);
	assert_string_equal(got.clears, "after 300 s");
	assert_int_equal(got.clears_ns, o->now + 300 * S);
	guard_set_reason(o->g, "GPU-1", REASON_HEALTH, true, "Xid 79.", o->now);
	guard_set_reason_end(o->g, "GPU-1", REASON_HEALTH, "after 60 s", o->now + 60 * S);
	assert_string_equal(why(o, REASON_HEALTH).clears, "after 300 s");
	guard_set_reason_end(o->g, "GPU-1", REASON_HEALTH, "when it is reset", 0);
	got = why(o, REASON_HEALTH);
	assert_string_equal(got.clears, "when it is reset");
	assert_int_equal(got.clears_ns, 0);
	guard_set_reason(o->g, "GPU-1", REASON_HEALTH, false, "", o->now);
	guard_set_reason(o->g, "GPU-0", REASON_HEALTH, false, "", o->now);
	guard_set_reason(o->g, "GPU-0", REASON_HEALTH, true, "again", o->now);
	assert_has(why(o, REASON_HEALTH).clears, "when the reason ends");
}

GUARD_TEST(a_gpu_that_does_not_answer_must_answer_for_a_minute)
{
	struct guard_explanation got;

	world_begin(o);
	world_until(o, 5 * S);
	o->health[0] = SCENE_LOST;
	world_until(o, 8 * S);
	got = why(o, REASON_HEALTH);
	assert_has(got.clears, "answered for 60 s");
	assert_int_equal(got.clears_ns, 0);
	o->health[0] = SCENE_OK;
	world_until(o, 20 * S);
	got = why(o, REASON_HEALTH);
	assert_true(got.clears_ns > WORLD_START + 66 * S &&
		    got.clears_ns < WORLD_START + 72 * S);
	guard_set_reason(o->g, "GPU-0", REASON_HEALTH, true, "The GPU is lost.", o->now);
	guard_set_reason_end(o->g, "GPU-0", REASON_HEALTH, "after 300 s", o->now + 300 * S);
	assert_string_equal(why(o, REASON_HEALTH).clears, "after 300 s");
}

GUARD_TEST(a_hold_is_reported_with_its_end_and_masks_what_it_masks)
{
	world_guest(o, "job", 0, 4 * GIB, 20 * S, 0);
	world_begin(o);
	world_until(o, 5 * S);
	world_ask(o, 0, REQUEST_EVICT, 10 * S);
	world_until(o, 7 * S);
	assert_true(why(o, REASON_MANUAL).clears_ns <= WORLD_START + 16 * S);
	assert_string_equal(why(o, REASON_MANUAL).rule, "evict command");
	world_ask(o, 0, REQUEST_RELEASE, 0);
	world_until(o, 15 * S);
	world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX);
	world_until(o, 25 * S);
	assert_true(why(o, REASON_CONTENTION).masked);
}

/* An earlier contender is not evidence for a manual request. */
GUARD_TEST(a_manual_eviction_in_the_quiet_period_does_not_name_a_gone_contender)
{
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 28 * S);
	assert_state(o, STATE_QUIET);
	world_ask(o, 0, REQUEST_EVICT, 0);
	assert_state(o, STATE_EVICTED);
	assert_decided(o, 1, STATE_QUIET, STATE_EVICTED, "manual");
	assert_null(strstr(o->log.said[o->log.says - 1].evidence, "job"));
}

GUARD_TEST(a_worker_released_while_it_returns_leaves_with_the_evidence_no_demand_now)
{
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 20 * S);
	world_begin(o);
	world_until(o, 28 * S);
	world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX);
	world_step(o);
	assert_state(o, STATE_RESUME);
	world_ask(o, 0, REQUEST_RELEASE, 0);
	assert_decided(o, 1, STATE_RESUME, STATE_DRAIN, "quiet time");
	assert_has(world_last(o, "quiet time")->evidence,
		   "no demand now; the last demand was: pid");
}

GUARD_TEST(a_damped_worker_has_its_remaining_time)
{
	world_guest(o, "job", 0, 3 * GIB, 10 * S, 20 * S);
	world_guest(o, "other", 0, 100 * MIB, 60 * S, 0)->sm_ratio = 0.5;
	world_begin(o);
	world_until(o, 62 * S);
	assert_has(world_last(o, "damped")->evidence, "returned ");
	assert_has(world_last(o, "damped")->evidence,
		   "s ago and stays for 60 s while the contender also fits (min_resident_s)");
}

GUARD_TEST(a_process_that_is_known_to_fit_is_explained)
{
	struct guard_relation b;

	o->total[0] = 32 * GIB;
	world_guest(o, "job", 0, 6 * GIB, 10 * S, 20 * S);
	world_guest(o, "job", 0, 2 * GIB, 100 * S, 0);
	world_guest(o, "small", 0, 100 * MIB, 100 * S, 0);
	world_begin(o);
	world_until(o, 15 * S);
	assert_state(o, STATE_EVICTED); /* it was unknown how much memory the job takes */
	world_until(o, 110 * S);
	assert_state(o, STATE_ACTIVE);
	assert_string_equal(o->s.process[1].name, "job");
	guard_relation(o->g, 0, 1, &b);
	assert_int_equal(b.kind, DEMAND_MEMORY);
	assert_true(b.here && !b.against && b.most_bytes == 6 * GIB);
	guard_relation(o->g, 0, 2, &b);
	assert_int_equal(b.kind, DEMAND_NONE);
}

GUARD_TEST(a_dry_eviction_leaves_the_bytes_where_they_are)
{
	o->p.mode = GUARD_DRY_RUN;
	world_guest(o, "job", 0, 4 * GIB, 10 * S, 0);
	world_begin(o);
	world_until(o, 20 * S);
	assert_state(o, STATE_EVICTED);
	assert_int_equal(world_status(o, 0).dry, DRY_MODE);
	assert_true(world_status(o, 0).resident_bytes == 8 * GIB);
	assert_has(world_last(o, "freed")->evidence, "8192 MiB would be free");
	world_again(o, 1, 1);
	o->simulated = true;
	world_begin(o);
	world_until(o, S);
	assert_int_equal(world_status(o, 0).dry, DRY_SIMULATED);
	world_again(o, 1, 1); /* another service acts; acting on simulated GPUs is allowed */
	o->simulated = o->p.simulated_too = true;
	world_begin(o);
	guard_set_foreign(o->g, "GPU-0", "process 7", o->now);
	world_until(o, S);
	assert_int_equal(world_status(o, 0).dry, DRY_FOREIGN);
	assert_has(world_status(o, 0).limit, "process 7 acts on GPU-0");
	guard_set_foreign(o->g, "GPU-0", NULL, o->now);
	world_run(o, S);
	assert_int_equal(world_status(o, 0).dry, DRY_NOT);
}

GUARD_TEST(an_absent_worker_is_explained_by_its_match)
{
	static const struct {
		struct policy_match match;
		const char *says;
	} rows[] = {
		{ { .unit = "vllm.service", .uid = -1 }, "no process is in unit vllm.service" },
		{ { .port = 8000, .uid = -1 },
		  "no process listens on port 8000, or gpuward has no right to see it" },
		{ { .name = "ollama", .uid = -1 }, "no process is called ollama" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		world_again(o, 1, 1);
		o->p.worker[0].match = rows[i].match;
		o->w[0].alive = false;
		world_begin(o);
		world_until(o, S);
		assert_state(o, STATE_ABSENT);
		assert_has(world_status(o, 0).why, rows[i].says);
	}
}

/* The worker frees everything, but an unlisted process takes some of it meanwhile. */
GUARD_TEST(memory_that_does_not_come_free_is_reported_by_how_much_free_rose)
{
	world_begin(o);
	world_until(o, 5 * S);
	o->missed_bytes = -(2 * GIB);
	world_ask(o, 0, REQUEST_EVICT, 0);
	world_until(o, 60 * S);
	assert_state(o, STATE_STUCK);
	assert_has(world_last(o, "stuck")->evidence,
		   "free memory rose by 6144 MiB instead of 8192 MiB");
}

/* A hold masks reasons that come from demand, but never reasons that protect the GPU. */
GUARD_TEST(every_reason_is_explained_with_its_evidence_and_its_end)
{
	struct guard_explanation why;

	for (unsigned r = 0; r < GUARD_REASONS; r++) {
		world_again(o, 1, 1);
		begin(o);
		assert_false(guard_explain(o->g, 0, r, &why));
		guard_set_reason(o->g, "GPU-0", r, true, "as a test has it", o->now);
		assert_true(guard_explain(o->g, 0, r, &why));
		if (!why.rule[0] || !why.evidence[0] || !why.clears[0] || !why.since_ns)
			fail_msg("%s is incomplete", guard_reason_name(r));
		assert_false(why.masked);
		guard_set_reason(o->g, "GPU-0", r, false, NULL, o->now);
		assert_int_equal(world_ask(o, 0, REQUEST_HOLD_ACTIVE, UINT64_MAX), 0);
		guard_set_reason(o->g, "GPU-0", r, true, "as a test has it", o->now);
		assert_true(guard_explain(o->g, 0, r, &why));
		assert_int_equal(why.masked, r != REASON_MANUAL && r != REASON_THERMAL &&
						     r != REASON_HEALTH && r != REASON_BLIND);
	}
}

TEST_MAIN(NULL, NULL)
