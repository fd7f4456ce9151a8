/* Tests the guard's routes with artificial scenes: unknown values, requests that wait, and
 * refusals. tests/e2e/test_guard_rest.py tests the whole service. */
#include "api_fixture.h"

#include "guard/guard_input.h"
#include "serve/guard_view.h"

#include <limits.h>

#define GIB (UINT64_C(1) << 30)

static struct {
	struct policy policy;
	struct guard *guard;
	struct scene scene;
	struct guard_view view;
	struct guard_view_decision ring[GUARD_VIEW_DECISIONS];
	struct health *health[1];
	struct capacity *capacity[1];
	char who[256];
	uint64_t leaves_ns; /* time at which the worker leaves the GPU; 0: never */
	uint64_t ttl_ns;    /* of the last reservation */
	unsigned releases;
	struct guard_operations operations;
	uint64_t events;
} w;

static uint64_t now(void)
{
	return clock_mono_ns(&sim.clock);
}

static void put(const char *name, int64_t pid, uint64_t bytes)
{
	struct scene_process *p = &w.scene.process[w.scene.processes++];

	memset(p, 0, sizeof(*p));
	p->id.pid = pid;
	p->id.start_ticks = 1;
	p->uid = -1;
	p->type = 1;
	p->bytes = bytes;
	p->bytes_known = bytes != UINT64_MAX;
	p->sm_ratio = NAN;
	snprintf(p->name, sizeof(p->name), "%s", name);
	if (p->bytes_known)
		w.scene.gpu[0].used_bytes += bytes;
}

static void begin_scene(void)
{
	struct scene_gpu *g = &w.scene.gpu[0];
	const struct gw_device *d = gw_snapshot_device(t.api.view.snap, 0);

	memset(&w.scene, 0, sizeof(w.scene));
	w.scene.mono_ns = now();
	w.scene.wall_ns = clock_wall_ns(&sim.clock);
	w.scene.host_free_bytes = 64 * GIB;
	w.scene.gpus = 1;
	snprintf(g->uuid, sizeof(g->uuid), "%s", gw_device_text(d, GW_T_UUID));
	g->memory_known = true;
	g->total_bytes = 24 * GIB;
	g->used_bytes = GIB;
	g->temperature_c = 40;
	g->margin_c = NAN;
}

static void look(void)
{
	struct guard_decision d;
	struct guard_record record;
	struct guard_order o;

	w.scene.gpu[0].free_bytes = w.scene.gpu[0].total_bytes - w.scene.gpu[0].used_bytes;
	guard_observe(w.guard, &w.scene);
	while (guard_next_decision(w.guard, &d)) {
		w.ring[w.view.decisions++] = (struct guard_view_decision){
			.id = w.view.decisions, .wall_ns = w.scene.wall_ns, .decision = d
		};
		guard_operation_decided(&w.operations, "ollama", &d, w.scene.wall_ns);
	}
	while (guard_next_record(w.guard, &record))
		;
	while (guard_next_order(w.guard, &o))
		guard_outcome(w.guard,
			      &(struct guard_outcome){ .order = o.id, .ending = ENDING_DONE },
			      now());
}

static void world(const char *guest)
{
	begin_scene();
	if (!w.leaves_ns || now() < w.leaves_ns)
		put("ollama", 100, 18 * GIB);
	if (guest)
		put(guest, 200, GIB / 2);
	look();
}

static int guard_asked(void *engine, int worker, enum guard_request what, uint64_t ttl,
		       const struct guard_client *by, char *message, size_t size)
{
	assert_ptr_equal(engine, &w);
	struct guard_status s;
	int err;

	snprintf(w.who, sizeof(w.who), "%s", by->who);
	guard_set_requester(w.guard, by->uid);
	err = guard_request(w.guard, worker, what, ttl, now(), message, size);
	assert_int_equal(guard_status(w.guard, 0, &s), 0);
	if (!err && !guard_operation_running(&w.operations, "ollama", what))
		guard_operation_begin(&w.operations, ++w.events, "ollama", what, &s,
				      clock_wall_ns(&sim.clock));
	return err;
}

static int reserve(void *engine, const char *gpu, uint64_t bytes, int64_t pid, uint64_t ttl,
		   const struct guard_client *by, uint64_t *ret, char *message, size_t size)
{
	snprintf(w.who, sizeof(w.who), "%s", by->who);
	w.ttl_ns = ttl;
	return guard_reserve(w.guard, gpu, bytes, pid, ttl, now(), ret);
}

/* Lets the guard observe a new scene first, because time has passed. */
static int reserved(void *engine, uint64_t id, uint64_t until, char *message, size_t size)
{
	world(NULL);
	return guard_reservation_ready(w.guard, id, message, size);
}

static void release_room(void *engine, uint64_t id)
{
	w.releases++;
	guard_release(w.guard, id, now());
}

static int end_game(void *engine, int64_t pid, const struct guard_client *by)
{
	return pid == 1 ? 0 : -GW_E_NOENT;
}

static const struct guard_view_ops guard_ops = { .request = guard_asked,
						 .game_end = end_game,
						 .reserve = reserve,
						 .reserved = reserved,
						 .release = release_room };

static void begin_guard(enum guard_mode mode)
{
	struct policy_worker *p = &w.policy.worker[0];

	memset(&w, 0, sizeof(w));
	begin(TWO_GPUS);
	policy_init(&w.policy);
	policy_worker_init(p);
	w.policy.mode = mode;
	w.policy.unknown_contends = true;
	w.policy.workers = 1;
	p->name = "ollama";
	p->kind = WORKER_OLLAMA;
	p->match.name = "ollama";
	p->text = "[[worker]] ollama (guard.toml:1)";
	assert_int_equal(guard_new(&w.policy, NULL, 0, &w.guard), 0);
	w.view = (struct guard_view){ .policy = &w.policy,
				      .guard = w.guard,
				      .scene = &w.scene,
				      .health = w.health,
				      .capacity = w.capacity,
				      .devices = 1,
				      .ring = w.ring,
				      .operations = &w.operations,
				      .journal = GUARD_JOURNAL_OK };
	t.api.view.guard = &w.view;
	t.api.view.guard_ops = &guard_ops;
	t.api.view.guarding = &w;
	fake.trusted = true;
	world(NULL);
}

static int end_guard(void **state)
{
	guard_free(w.guard);
	health_free(w.health[0]);
	capacity_free(w.capacity[0]);
	memset(&w, 0, sizeof(w));
	return end(state);
}

#define TEST_TEARDOWN end_guard

TEST(before_the_guard_starts_every_answer_is_503_with_a_remedy)
{
	static const char *const paths[] = { "guard",        "guard/gpus/0",
					     "guard/events", "guard/workers/ollama",
					     "health",       "guard/explain",
					     "capacity",     "capacity/fit?bytes=1" };
	char path[64];

	begin_guard(GUARD_ENFORCE);
	t.api.view.guard = NULL;
	for (size_t i = 0; i < COUNT_OF(paths); i++) {
		snprintf(path, sizeof(path), "/api/v1/%s", paths[i]);
		get(path, 503);
		assert_true(number("status") == 503);
		at("remedy", "\"Try again in a moment.\"");
	}
	t.api.view.guarding = NULL;
	get("/api/v1/guard", 503);
	at("word", "\"no-guard\"");
}

TEST(a_process_with_unknown_memory_leaves_the_rest_unknown)
{
	begin_guard(GUARD_ENFORCE);
	get("/api/v1/guard/gpus/0", 200);
	assert_true(number("unattributed_bytes") == (double)GIB);
	begin_scene();
	put("ollama", 100, 18 * GIB);
	put("secret", 200, UINT64_MAX);
	look();
	get("/api/v1/guard/gpus/0", 200);
	at("unattributed_bytes", "null");
	at("processes.1.memory_bytes", "null");
	at("processes.1.utilization_sm_ratio", "null");
	at("processes.1.uid", "null");
	at("margin_celsius", "null");
}

TEST(a_gpu_that_was_not_observed_is_503)
{
	begin_guard(GUARD_ENFORCE);
	get("/api/v1/guard/gpus/1", 503);
	says("has not observed");
	get("/api/v1/guard/gpus/7", 404);
}

TEST(health_that_is_not_observed_is_null_with_a_reason)
{
	struct health_options o;

	begin_guard(GUARD_ENFORCE);
	get("/api/v1/health", 200);
	at("level", "null");
	at("gpus.0.level", "null");
	says("is not monitored");
	health_options_init(&o);
	assert_int_equal(health_new(&o, &w.health[0]), 0);
	health_read(w.health[0], gw_snapshot_device(t.api.view.snap, 0), now());
	health_event(w.health[0], &(struct health_event){ now(), 8, 79 });
	get("/api/v1/health/gpus/0", 200);
	at("last_xid.xid", "79");
	assert_true(number("xids_total") == 1);
	get("/api/v1/health", 200);
	at("gpus.1.level", "null");
	assert_true(number("gpus.0.xids_total") == 1);
}

TEST(explain_names_the_contender_and_the_reason)
{
	begin_guard(GUARD_ENFORCE);
	get("/api/v1/guard/explain?worker=ollama", 200);
	says("No contender is on any GPU.");
	for (unsigned i = 0; i < 20; i++) {
		clock_sleep_until(&sim.clock, now() + 100 * NS_PER_MS);
		world("game.exe");
	}
	get("/api/v1/guard/explain?worker=ollama", 200);
	says("Contender: pid 200 game.exe with 512 MiB on GPU-");
	says("needs the GPU: memory; it is a new program, and how much it will need is "
	     "unknown");
	says("Reason against the worker: contention, for ");
	says("Rule: memory, ");
	says("Evidence: pid 200 game.exe 512 MiB");
	at("workers.0.reasons.0.reason", "\"contention\"");
	at("workers.0.reasons.0.clears", "\"30 s after the last demand\"");
	assert_true(number("workers.0.reasons.0.since_seconds") > 0);
	says("Last decision, ");
	get("/api/v1/guard/explain?worker=none", 404);
}

/* Lets the guard observe the program for two seconds, until its demand is sure. */
static void contend(const char *program)
{
	for (unsigned i = 0; i < 20; i++) {
		clock_sleep_until(&sim.clock, now() + 100 * NS_PER_MS);
		world(program);
	}
}

TEST(the_contender_of_an_eviction_is_the_process_of_the_scene)
{
	begin_guard(GUARD_ENFORCE);
	get("/api/v1/guard", 200);
	at("workers.0.contenders", "[]");
	at("workers.0.hypothetical", "false");
	at("workers.0.requested_by", "null");
	contend("game.exe");
	get("/api/v1/guard", 200);
	at("workers.0.contenders.0.pid", "200");
	at("workers.0.contenders.0.name", "\"game.exe\"");
	assert_true(number("workers.0.contenders.0.memory_bytes") == GIB / 2);
	at("workers.0.reasons.0.contender.pid", "200");
	at("workers.0.reasons.0.contender.name", "\"game.exe\"");
	assert_true(number("workers.0.reasons.0.contender.memory_bytes") == GIB / 2);
	at("workers.0.reasons.0.contender.game", "false");
	at("workers.0.cause", "\"for game.exe (pid 200, 512 MiB)\"");
	/* The contender ends: no process needs the GPU now, but the reason still names it. */
	clock_sleep_until(&sim.clock, now() + NS_PER_S);
	world(NULL);
	get("/api/v1/guard", 200);
	at("workers.0.contenders", "[]");
	at("workers.0.reasons.0.contender.pid", "200");
}

TEST(the_name_of_a_contender_keeps_its_spaces)
{
	begin_guard(GUARD_ENFORCE);
	contend("a 7 MiB game");
	get("/api/v1/guard", 200);
	at("workers.0.reasons.0.contender.name", "\"a 7 MiB game\"");
	at("workers.0.cause", "\"for a 7 MiB game (pid 200, 512 MiB)\"");
}

TEST(the_contender_is_a_registered_game_of_unknown_size)
{
	begin_guard(GUARD_ENFORCE);
	for (unsigned i = 0; i < 20; i++) {
		clock_sleep_until(&sim.clock, now() + 100 * NS_PER_MS);
		guard_set_games(w.guard, 1, &(struct scene_game){ 300, "chess" });
		world(NULL);
	}
	get("/api/v1/guard", 200);
	at("workers.0.reasons.0.contender.pid", "300");
	at("workers.0.reasons.0.contender.name", "\"chess\"");
	at("workers.0.reasons.0.contender.memory_bytes", "null");
	at("workers.0.reasons.0.contender.game", "true");
	at("workers.0.cause", "\"for the registered game chess (pid 300)\"");
}

TEST(a_state_is_hypothetical_only_if_a_dry_run_decided_it)
{
	static const struct {
		struct guard_status s;
		bool hypothetical;
	} row[] = {
		{ { .state = STATE_EVICTED }, false },
		{ { .state = STATE_EVICTED, .dry = DRY_MODE }, true },
		{ { .state = STATE_EVICTED, .dry = DRY_FOREIGN }, true },
		{ { .state = STATE_EVICTED, .dry = DRY_MODE, .stays_evicted = true }, false },
		{ { .state = STATE_DRAIN, .dry = DRY_MODE }, true },
		{ { .state = STATE_ACTIVE, .dry = DRY_MODE }, false },
		{ { .state = STATE_SUSPECT, .dry = DRY_MODE }, false },
		{ { .state = STATE_RECONCILE, .dry = DRY_MODE }, false },
		{ { .state = STATE_ABSENT, .dry = DRY_MODE }, false },
	};

	for (unsigned i = 0; i < COUNT_OF(row); i++)
		assert_int_equal(guard_view_hypothetical(&row[i].s), row[i].hypothetical);
	begin_guard(GUARD_DRY_RUN);
	contend("game.exe");
	get("/api/v1/guard", 200);
	at("workers.0.hypothetical", "true");
}

TEST(explain_says_when_the_guard_only_observes)
{
	begin_guard(GUARD_DRY_RUN);
	get("/api/v1/guard/explain", 200);
	says("The mode is dry-run: decisions are logged, but nothing is done.");
}

TEST(the_latest_decisions_come_oldest_first)
{
	begin_guard(GUARD_ENFORCE);
	/* The ring has wrapped: decision 3 is the oldest. */
	for (unsigned i = 0; i < GUARD_VIEW_DECISIONS; i++) {
		w.ring[i] = w.ring[0];
		w.ring[i].id = i < 3 ? 1000 + i : i;
	}
	w.view.first = 3;
	w.view.decisions = GUARD_VIEW_DECISIONS;
	get("/api/v1/guard?limit=4", 200);
	at("decisions.0.id", "127");
	at("decisions.3.id", "1002");
	get("/api/v1/guard?limit=128", 200);
	at("decisions.0.id", "3");
}

TEST(the_requester_and_the_reason_are_passed_on)
{
	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/workers/ollama/evict", "{\"reason\":\"a film\",\"ttl_s\":60}", 202);
	assert_string_equal(w.who, "test: a film");
	at("mask.0", "\"manual\"");
	assert_true(fabs(number("hold_until_seconds") - 60) < 0.01);
	post("/api/v1/guard/workers/ollama/release", "", 202);
	assert_string_equal(w.who, "test");
}

static void live_on(uint64_t ns)
{
	for (uint64_t end = now() + ns; now() < end;) {
		clock_sleep_until(&sim.clock, now() + 100 * NS_PER_MS);
		world(NULL);
	}
}

TEST(an_operation_runs_until_the_worker_is_out_and_stays_done)
{
	begin_guard(GUARD_ENFORCE);
	w.leaves_ns = now() + NS_PER_S;
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	at("operation.id", "\"1\"");
	at("operation.state", "\"running\"");
	at("operation.ended_utc", "null");
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	at("operation.id", "\"1\"");
	live_on(3 * NS_PER_S);
	get("/api/v1/guard/operations/1", 200);
	at("state", "\"done\"");
	post("/api/v1/guard/workers/ollama/release", "", 202);
	at("operation.state", "\"done\"");
	get("/api/v1/guard/operations/1", 200);
	at("state", "\"done\"");
	get("/api/v1/guard/operations/99", 404);
	says("keeps only the latest 64");
	get("/api/v1/guard/operations/1x", 404);
}

TEST(an_operation_fails_when_the_worker_is_stuck_or_replaced)
{
	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	live_on(20 * NS_PER_S);
	get("/api/v1/guard/operations/1", 200);
	at("state", "\"failed\"");
	says("it still holds");
	post("/api/v1/guard/workers/ollama/resume", "", 202);
	at("operation.state", "\"running\""); /* the eviction is replaced by the resume */
	live_on(2 * NS_PER_S);
	get("/api/v1/guard/operations/2", 200);
	at("state", "\"done\"");
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	post("/api/v1/guard/workers/ollama/hold", "{\"ttl_s\":9}", 202);
	get("/api/v1/guard/operations/3", 200);
	says("replaced by operation 4");
	for (unsigned i = 0; i < GUARD_OPERATIONS; i++)
		post("/api/v1/guard/workers/ollama/release", "", 202);
	get("/api/v1/guard/operations/3", 404);
}

TEST(a_user_with_too_many_requests_gets_a_retry_time)
{
	begin_guard(GUARD_ENFORCE);
	w.policy.user_evictions = 1;
	/* the name does not matter: permissions depend on the uid */
	fake.who = "somebody, in whatever words";
	fake.uid = 1000;
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	post("/api/v1/guard/workers/ollama/release", "", 202);
	live_on(NS_PER_S);
	get("/api/v1/guard/workers/ollama", 200);
	at("state", "\"active\"");
	post("/api/v1/guard/workers/ollama/evict", "", 429);
	says("uid 1000 evicted workers 1 time in an hour");
	assert_true(atoi(fake_find(&fake.out, "Retry-After")) > 3500);
	fake.who = "uid 1000";
	fake.uid = 0; /* like a client with the token, uid 0 is not limited */
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	fake.who = NULL;
}

TEST(a_hold_without_end_has_no_time)
{
	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/workers/ollama/hold", "{\"ttl_s\":0}", 202);
	at("hold", "\"evicted\"");
	at("hold_until_utc", "null");
	at("hold_until_seconds", "null");
	post("/api/v1/guard/workers/ollama/resume", "", 409);
	says("held evicted");
	post("/api/v1/guard/workers/ollama/resume", "{\"force\":true}", 202);
	at("hold", "\"none\"");
}

TEST(a_reservation_is_answered_when_the_worker_has_left)
{
	begin_guard(GUARD_ENFORCE);
	w.leaves_ns = now() + NS_PER_S;
	post("/api/v1/guard/reservations", "{\"gpu\":0,\"bytes\":12884901888}", 201);
	assert_true(now() >= w.leaves_ns);
	assert_true(fake.tries > 10);
	assert_string_equal(fake_find(&fake.out, "Location"), "/api/v1/guard/reservations/1");
	at("id", "\"1\"");
	get("/api/v1/guard", 200);
	at("reservations.0.bytes", "12884901888");
	request(HTTP_DELETE, "/api/v1/guard/reservations/1", "", 204);
	request(HTTP_DELETE, "/api/v1/guard/reservations/1", "", 404);
	request(HTTP_DELETE, "/api/v1/guard/reservations/0", "", 404);
	request(HTTP_DELETE, "/api/v1/guard/reservations/1x", "", 404);
}

TEST(the_bounds_of_a_reservation_are_in_the_message)
{
	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/reservations", "{\"bytes\":9.1e15}", 400);
	says("must be from 1 to 9000000000000000");
	post("/api/v1/guard/reservations", "{}", 400);
	says("\\\"bytes\\\" is required");
}

TEST(an_id_has_only_one_spelling)
{
	static const char *const other[] = { "+1", " 1", "01", "-18446744073709551615", "1x" };
	char path[64];

	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/reservations", "{\"bytes\":1048576}", 201);
	post("/api/v1/guard/workers/ollama/evict", "", 202);
	for (size_t i = 0; i < COUNT_OF(other); i++) {
		snprintf(path, sizeof(path), "/api/v1/guard/reservations/%s", other[i]);
		request(HTTP_DELETE, path, "", 404);
		snprintf(path, sizeof(path), "/api/v1/guard/operations/%s", other[i]);
		get(path, 404);
		snprintf(path, sizeof(path), "/api/v1/guard/games/%s", other[i]);
		request(HTTP_DELETE, path, "", 404);
	}
	get("/api/v1/guard/operations/1", 200);
	request(HTTP_DELETE, "/api/v1/guard/games/1", "", 204);
	request(HTTP_DELETE, "/api/v1/guard/reservations/1", "", 204);
}

TEST(a_reservation_for_less_than_a_nanosecond_ends)
{
	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/reservations", "{\"bytes\":1048576,\"ttl_s\":1e-10}", 201);
	assert_true(w.ttl_ns == 1); /* 0 would mean: without end */
}

TEST(a_reservation_that_is_not_free_in_time_is_cancelled)
{
	uint64_t before;

	begin_guard(GUARD_ENFORCE);
	before = now();
	post("/api/v1/guard/reservations", "{\"bytes\":12884901888,\"wait_s\":1}", 409);
	assert_true(now() - before >= NS_PER_S && now() - before < 2 * NS_PER_S);
	at("code", "\"insufficient_vram\"");
	says("but not in time");
	assert_true(number("needed") == 12.0 * (double)GIB);
	assert_true(number("available") == 5.0 * (double)GIB);
	assert_true(number("available_at_most") == 23.0 * (double)GIB);
	assert_int_equal(w.releases, 1);
	get("/api/v1/guard", 200);
	at("reservations", "[]");
}

TEST(a_reservation_that_ends_while_its_client_waits_is_not_reported_as_too_little_memory)
{
	begin_guard(GUARD_ENFORCE);
	post("/api/v1/guard/reservations", "{\"bytes\":12884901888,\"ttl_s\":1}", 409);
	at("word", "\"reservation-ended\"");
	says("ended while this request waited");
	assert_null(json_at(t.reply.body.p, "needed"));
	assert_null(fake_find(&fake.out, "Retry-After"));
	assert_int_equal(w.releases, 0);
}

TEST(a_request_that_fails_leaves_the_reservation_to_a_client_that_waits_longer)
{
	struct guard_view_room rooms[GUARD_VIEW_ROOMS] = { { .id = 1 } };

	begin_guard(GUARD_ENFORCE);
	rooms[0].wait_until_ns = now() + 2 * NS_PER_S;
	w.view.rooms = rooms;
	post("/api/v1/guard/reservations", "{\"bytes\":12884901888,\"wait_s\":1}", 409);
	assert_int_equal(w.releases, 0);
	get("/api/v1/guard", 200);
	at("reservations.0.id", "\"1\"");
	post("/api/v1/guard/reservations", "{\"bytes\":12884901888,\"wait_s\":1}", 409);
	assert_int_equal(w.releases, 1);
}

/* Reserves memory that will never be free. */
static void check_refused(enum guard_mode mode, const char *body, const char *why)
{
	begin_guard(mode);
	post("/api/v1/guard/reservations", body, 409);
	says(why);
	at("retry_after_s", "null");
	assert_int_equal(fake.tries, 0);
}

TEST(a_reservation_is_refused_while_the_guard_only_observes)
{
	check_refused(GUARD_OBSERVE, "{\"bytes\":12884901888}",
		      "the guard only observes: no worker leaves");
}

TEST(a_reservation_larger_than_every_gpu_is_refused)
{
	check_refused(GUARD_ENFORCE, "{\"bytes\":96636764160}",
		      "90.0 GiB requested, but the largest GPU has only 24.0 GiB");
	at("never", "true");
}

TEST(explain_names_the_game)
{
	struct guard_view_game games[GUARD_VIEW_GAMES] = {
		{ .pid = 4711, .since_ns = now(), .until_ns = UINT64_MAX, .who = "token" }
	};

	begin_guard(GUARD_ENFORCE);
	guard_set_games(w.guard, 1, &(struct scene_game){ 4711, "minigame" });
	w.view.games = games;
	for (unsigned i = 0; i < 20; i++) {
		clock_sleep_until(&sim.clock, now() + 100 * NS_PER_MS);
		world("firefox");
	}
	get("/api/v1/guard/explain", 200);
	says("Game: pid 4711, registered ");
	says("Rule: registered game. Evidence: 1 game is registered: pid 4711 minigame.");
	w.view.games = NULL;
}

TEST(reserved_memory_is_not_available)
{
	double before;

	begin_guard(GUARD_ENFORCE);
	get("/api/v1/capacity?gpu=0", 200);
	before = number("gpus.0.available_bytes");
	post("/api/v1/guard/reservations", "{\"bytes\":1073741824}", 201);
	get("/api/v1/capacity?gpu=0", 200);
	assert_true(number("gpus.0.available_bytes") == before - (double)GIB);
	at("gpus.0.past.last_10m", "null");
	at("gpus.0.workers.0.name", "\"ollama\"");
}

TEST_MAIN(sim_setup, NULL)
