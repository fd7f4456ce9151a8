/* Tests a guard inside the program that it guards (gw_guard_*), over the simulator in stepped
 * time. The worker is this process. A file that the simulator reads says how much memory the
 * process has. */
#include "simtest.h"
#include "alloc_fail.h"
#include "tree.h"

#include "guard/guard_query.h"
#include "guard/api.h"

#include <poll.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#define GIB     (UINT64_C(1) << 30)
#define LONG_NS (60 * NS_PER_S) /* timeout that is never reached */
#define GAME(from, until)                                                     \
	"[[gpu.process]]\nname = \"game\"\nmemory = \"12 GiB\"\nfrom = " from \
	"\nuntil = " until "\n"

static struct tree tree;
static struct gw_guard *guard;

static struct {
	int evict_answer, resume_answer;
	bool keeps;        /* reports success but frees nothing */
	atomic_bool waits; /* waits for `go` */
	bool stops;        /* tries to stop its own guard */
	int stopped;
	atomic_uint evicted, resumed;
	uint64_t bytes;
	sem_t begun, go;
	unsigned decisions;
	char last[700], moves[2048];
	bool same_thread;
	pthread_t test;
} worker;

static void hold(pid_t pid, uint64_t bytes)
{
	char path[32], text[32];

	snprintf(path, sizeof(path), "%d", (int)pid);
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);
	if (bytes)
		tree_put(&tree, path, text);
	else
		unlinkat(tree.root.fd, path, 0);
}

static int evict(void *arg, uint64_t bytes, uint64_t deadline_ns)
{
	assert_ptr_equal(arg, &worker);
	worker.same_thread = worker.same_thread || pthread_equal(pthread_self(), worker.test);
	worker.bytes = bytes;
	sem_post(&worker.begun);
	while (worker.waits && sem_wait(&worker.go) != 0)
		;
	if (worker.stops)
		worker.stopped = gw_guard_stop(guard, 0);
	if (!worker.keeps && worker.evict_answer == 0)
		hold(getpid(), 0);
	atomic_fetch_add(&worker.evicted, 1);
	return worker.evict_answer;
}

static int resume(void *arg, uint64_t deadline_ns)
{
	assert_ptr_equal(arg, &worker);
	if (worker.resume_answer == 0)
		hold(getpid(), 10 * GIB);
	atomic_fetch_add(&worker.resumed, 1);
	return worker.resume_answer;
}

static void decided(void *arg, const struct gw_guard_decision *d)
{
	size_t n = strlen(worker.moves);

	assert_ptr_equal(arg, &worker);
	worker.decisions++;
	snprintf(worker.last, sizeof(worker.last), "%s", d->text);
	if (d->from != d->to)
		snprintf(worker.moves + n, sizeof(worker.moves) - n, "%s ",
			 gw_worker_state_name(d->to));
}

static const struct gw_guard_options standard = { .size = sizeof(standard),
						  .name = "chat",
						  .flags = GW_GUARD_SIMULATED,
						  .evict = evict,
						  .resume = resume,
						  .decided = decided,
						  .arg = &worker,
						  .quiet_ns = 5 * NS_PER_S };

static struct gw_guard_options o; /* the standard options, except those that a test changes */

static int begin(void **state)
{
	o = standard;
	memset(&worker, 0, sizeof(worker));
	sem_init(&worker.begun, 0, 0);
	sem_init(&worker.go, 0, 0);
	worker.test = pthread_self();
	guard = NULL;
	tree_init(&tree);
	return 0;
}

static int end(void **state)
{
	sem_post(&worker.go);
	if (guard && guard_api_free(guard, LONG_NS) != 0)
		return -1;
	sem_destroy(&worker.begun);
	sem_destroy(&worker.go);
	tree_done(&tree);
	return sim_teardown(state);
}

#define GUARD_TEST(name) TEST_WITH(name, begin, end)

static void board(const char *profile, const char *more)
{
	char text[2048];

	snprintf(text, sizeof(text),
		 "[[gpu]]\nprofile = \"%s\"\nnoise = 0\nfollow = \"%s\"\n%s", profile,
		 tree.path, more);
	sim_text(text);
	sim_open();
}

static void world(const char *more)
{
	board("rtx4090", more);
}

static void open_guard(void)
{
	assert_int_equal(guard_api_new(sim.ctx, &o, &guard), 0);
	guard_api_round(guard);
}

static struct gw_guard_status status(void)
{
	struct gw_guard_status s = { .size = sizeof(s) };

	assert_int_equal(gw_guard_status(guard, &s), 0);
	return s;
}

/* Steps the time by a tenth of a second and waits until no order is under way. The time does
 * not advance during this wait, because a busy machine may be slow to call the callback. A
 * callback that the test makes wait is not waited for. */
static enum gw_worker_state step(void)
{
	struct pollfd p = { .fd = guard->box.wake_fd, .events = POLLIN };
	eventfd_t n;

	sim_step(100 * NS_PER_MS);
	guard->observer.due_ns = 0;
	guard_api_round(guard);
	while (guard_orders_underway(guard->guard) && !(worker.waits && status().call)) {
		if (poll(&p, 1, 1) == 0)
			continue;
		eventfd_read(guard->box.wake_fd, &n);
		guard_api_round(guard);
	}
	return status().state;
}

static void until(enum gw_worker_state want, unsigned seconds)
{
	for (unsigned i = 0; i < seconds * 10; i++)
		if (step() == want)
			return;
	fail_msg("%s and not %s after %u s: %s", gw_worker_state_name(status().state),
		 gw_worker_state_name(want), seconds, status().why);
}

static void stays(enum gw_worker_state want, unsigned seconds)
{
	for (unsigned i = 0; i < seconds * 10; i++)
		if (step() != want)
			fail_msg("%s: %s", gw_worker_state_name(status().state), worker.last);
}

GUARD_TEST(options_that_make_no_sense_are_refused)
{
	static const char *many[66], *none[] = { "", NULL };
	static const char *const longer[] = { "fifteen-letters*", "sixteen-letters-", NULL };
	struct gw_guard *g = NULL;

	for (unsigned i = 0; i < 65; i++)
		many[i] = "x";
	world("");
	assert_int_equal(gw_guard_start(NULL, &standard, &g), -GW_E_ARG);
	assert_int_equal(gw_guard_start(sim.ctx, &standard, NULL), -GW_E_ARG);
#define REFUSED(member, value, error, text)                                \
	do {                                                               \
		o = standard;                                              \
		o.member = value;                                          \
		assert_int_equal(gw_guard_start(sim.ctx, &o, &g), -error); \
		assert_in(gw_ctx_error(sim.ctx), text);                    \
	} while (0)
	REFUSED(size, 0, GW_E_ARG, "the size of struct gw_guard_options is 0");
	REFUSED(size, 13, GW_E_ARG, "the size of struct gw_guard_options is 13");
	REFUSED(flags, 1u << 20, GW_E_ARG, "unknown bits 0x100000");
	REFUSED(flags, GW_GUARD_ANY | GW_GUARD_NAMED, GW_E_ARG, "use one of them");
	REFUSED(mode, (enum gw_guard_mode)3, GW_E_ARG, "mode is 3");
	REFUSED(name, "", GW_E_ARG, "name is empty");
	REFUSED(poll_ns, NS_PER_MS - 1, GW_E_ARG, "poll_ns is 999999");
	REFUSED(ignore, none, GW_E_ARG,
		"the ignore list of gw_guard_options has an empty name");
	REFUSED(contend, longer, GW_E_ARG, "\"sixteen-letters-\", which can never match");
	REFUSED(gpus, none, GW_E_ARG, "empty selector");
	REFUSED(gpus, none + 1, GW_E_ARG, "empty list");
	REFUSED(ignore, many, GW_E_SIZE, "more than 64 names");
	REFUSED(gpus, many, GW_E_SIZE, "more than 16 selectors");
	assert_null(g);
}

GUARD_TEST(options_of_a_wrong_size_are_refused_with_both_sizes)
{
	struct gw_guard *g = NULL;

	world("");
	o.size = offsetof(struct gw_guard_options, poll_ns);
	assert_int_equal(gw_guard_start(sim.ctx, &o, &g), -GW_E_ARG);
	assert_null(g);
	assert_in(gw_ctx_error(sim.ctx), "the size of struct gw_guard_options is ");
}

GUARD_TEST(texts_are_copied)
{
	char name[] = "chat", game[] = "game*";
	const char *names[] = { game, NULL };

	world("");
	o.name = name;
	o.contend_now = names;
	open_guard();
	memset(name, 'x', 4);
	memset(game, 'x', 5);
	assert_string_equal(guard->policy.worker[0].name, "chat");
	assert_string_equal(guard->policy.rule[0].match.name, "game*");
	assert_string_equal(guard->policy.rule[0].text, "contend-now game*");
}

GUARD_TEST(processes_on_other_gpus_are_left_out)
{
	static struct scene s;
	struct policy_worker w = { .gpus = { "GPU-bbbb", "0000:03:00.0" }, .gpu_count = 2 };

	s = (struct scene){ .gpus = 3, .processes = 4 };
	for (unsigned i = 0; i < 3; i++)
		s.gpu[i] = (struct scene_gpu){ .index = i };
	snprintf(s.gpu[0].uuid, sizeof(s.gpu[0].uuid), "GPU-aaaa-1");
	snprintf(s.gpu[1].uuid, sizeof(s.gpu[1].uuid), "GPU-bbbb-2");
	snprintf(s.gpu[2].uuid, sizeof(s.gpu[2].uuid), "GPU-cccc-3");
	snprintf(s.gpu[2].pci, sizeof(s.gpu[2].pci), "0000:03:00.0");
	for (unsigned i = 0; i < 4; i++)
		s.process[i] = (struct scene_process){ .id.pid = 100 + i, .gpu = i % 3 };
	guard_api_narrow(&s, &w);
	assert_int_equal(s.gpus, 2);
	assert_string_equal(s.gpu[0].uuid, "GPU-bbbb-2");
	assert_int_equal(s.gpu[1].index, 2);
	assert_int_equal(s.processes, 2);
	assert_int_equal(s.process[0].id.pid, 101);
	assert_int_equal(s.process[0].gpu, 0);
	assert_int_equal(s.process[1].id.pid, 102);
	assert_int_equal(s.process[1].gpu, 1);
}

GUARD_TEST(a_contender_comes_and_goes)
{
	struct gw_guard_status s;

	hold(getpid(), 10 * GIB);
	world(GAME("2", "8"));
	assert_int_equal(guard_api_new(sim.ctx, &standard, &guard), 0);
	assert_int_equal(gw_guard_allowed(guard), 1);
	until(GW_WORKER_ACTIVE, 1);
	assert_int_equal(status().resident_bytes, 10 * GIB);
	until(GW_WORKER_EVICTED, 4);
	s = status();
	assert_int_equal(worker.evicted, 1);
	assert_int_equal(worker.bytes, 10 * GIB);
	assert_false(worker.same_thread);
	assert_int_equal(gw_guard_allowed(guard), 0);
	assert_int_equal(gw_guard_wait(guard, 1), -GW_E_TIMEOUT);
	assert_int_equal(s.reasons, 1u << GW_REASON_CONTENTION);
	assert_int_equal(s.evictions, 1);
	assert_int_equal(s.resident_bytes, 0);
	assert_int_equal(s.need_bytes, 10 * GIB);
	assert_int_equal(s.allowed, 0);
	until(GW_WORKER_QUIET, 8);
	assert_int_equal(worker.resumed, 0);
	until(GW_WORKER_ACTIVE, 8);
	assert_int_equal(worker.resumed, 1);
	assert_int_equal(worker.evicted, 1);
	assert_int_equal(gw_guard_allowed(guard), 1);
	assert_int_equal(gw_guard_wait(guard, 0), 0);
	assert_int_equal(status().reasons, 0);
	assert_string_equal(worker.moves,
			    "active suspect drain evict verify evicted quiet precheck resume "
			    "verify-up active ");
}

GUARD_TEST(a_worker_without_callbacks_can_poll_whether_it_may_run)
{
	o.evict = NULL;
	o.resume = NULL;
	hold(getpid(), 10 * GIB);
	world(GAME("2", "8"));
	open_guard();
	until(GW_WORKER_VERIFY, 4);
	assert_int_equal(gw_guard_allowed(guard), 0);
	hold(getpid(), 0);
	until(GW_WORKER_EVICTED, 2);
	/* the worker has no memory yet: it loads when there is work */
	until(GW_WORKER_ACTIVE, 16);
	assert_int_equal(gw_guard_allowed(guard), 1);
}

GUARD_TEST(its_own_tree_never_contends)
{
	pid_t child;

	o.flags |= GW_GUARD_ANY;
	hold(getpid(), 4 * GIB);
	world("");
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	hold(child, 16 * GIB);
	open_guard();
	until(GW_WORKER_ACTIVE, 1);
	stays(GW_WORKER_ACTIVE, 3);
	assert_int_equal(status().resident_bytes, 20 * GIB);
	hold(child, 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

GUARD_TEST(named_processes_are_ignored_or_evict_at_once)
{
	static const char *const game[] = { "ga*", NULL };

	hold(getpid(), 10 * GIB);
	world(GAME("1", "60"));
	o.ignore = game;
	open_guard();
	until(GW_WORKER_ACTIVE, 1);
	stays(GW_WORKER_ACTIVE, 3);
	assert_int_equal(guard_api_free(guard, LONG_NS), 0);
	o.ignore = NULL;
	o.contend_now = game;
	o.debounce_ns = 50 * NS_PER_S; /* contend_now does not wait for this */
	open_guard();
	until(GW_WORKER_EVICTED, 2);
	assert_in(worker.moves, "drain");
}

GUARD_TEST(with_the_flag_named_other_processes_do_not_contend)
{
	o.flags |= GW_GUARD_NAMED;
	hold(getpid(), 10 * GIB);
	world(GAME("1", "60"));
	open_guard();
	until(GW_WORKER_ACTIVE, 1);
	stays(GW_WORKER_ACTIVE, 3);
}

GUARD_TEST(contention_on_a_gpu_that_is_not_the_workers_is_ignored)
{
	static const char *const gpus[] = { "7", NULL };

	o.gpus = gpus;
	hold(getpid(), 10 * GIB);
	world(GAME("1", "60"));
	open_guard();
	for (unsigned i = 0; i < 30; i++)
		step();
	assert_int_equal(worker.evicted, 0);
	assert_int_equal(gw_guard_allowed(guard), 1);
	assert_int_equal(status().blind, 1);
	assert_string_equal(status().why,
			    "none of the GPUs selected in gw_guard_options is present");
}

GUARD_TEST(of_several_gpus_each_can_have_its_own_guard)
{
	static const char *const first[] = { "0", NULL }, *const second[] = { "1", NULL };
	char more[400];

	snprintf(more, sizeof(more),
		 GAME("1", "60") "[[gpu]]\nprofile = \"rtx4090\"\nnoise = 0\n"
				 "[[gpu.process]]\npid = %d\nmemory = \"3 GiB\"\n",
		 (int)getpid());
	hold(getpid(), 10 * GIB);
	world(more);
	o.gpus = second;
	open_guard();
	until(GW_WORKER_ACTIVE, 1);
	stays(GW_WORKER_ACTIVE, 3);
	assert_int_equal(status().resident_bytes, 3 * GIB);
	assert_int_equal(guard_api_free(guard, LONG_NS), 0);
	o.gpus = first;
	open_guard();
	until(GW_WORKER_EVICTED, 3);
	assert_int_equal(worker.bytes, 10 * GIB);
}

/* Opens the guard of a worker with 10 GiB, with a game from second 1 to 100. */
static void open_in_game(void)
{
	hold(getpid(), 10 * GIB);
	world(GAME("1", "100"));
	open_guard();
}

GUARD_TEST(an_eviction_that_fails_is_tried_again)
{
	worker.evict_answer = -GW_E_IO;
	open_in_game();
	until(GW_WORKER_STUCK, 60);
	assert_int_equal(worker.evicted, 3);
	assert_int_equal(gw_guard_allowed(guard), 0);
	assert_int_equal(status().residue_bytes, 10 * GIB);
	worker.evict_answer = 0;
	until(GW_WORKER_EVICTED, 40);
	assert_int_equal(worker.evicted, 4);
}

GUARD_TEST(a_callback_that_is_not_ready_is_called_again)
{
	worker.evict_answer = -GW_E_STATE;
	open_in_game();
	for (unsigned i = 0; i < 100 && worker.evicted < 5; i++)
		step();
	assert_int_equal(worker.evicted, 5); /* a refusal with -GW_E_STATE is not a failure */
	worker.evict_answer = 0;
	until(GW_WORKER_EVICTED, 5);
}

GUARD_TEST(a_callback_that_reports_success_but_frees_nothing_makes_the_worker_stuck)
{
	worker.keeps = true;
	open_in_game();
	until(GW_WORKER_STUCK, 60);
	assert_int_equal(status().residue_bytes, 10 * GIB);
	assert_int_equal(status().evictions, 0);
}

/* Plays a game during which the worker is stuck: the worker keeps its memory, and its evict
 * callback returns `answer`. */
static void stuck_for(int answer)
{
	worker.keeps = true;
	worker.evict_answer = answer;
	hold(getpid(), 10 * GIB);
	world(GAME("1", "20"));
	open_guard();
	until(GW_WORKER_STUCK, 60);
	until(GW_WORKER_ACTIVE, 120);
	assert_int_equal(gw_guard_allowed(guard), 1);
}

GUARD_TEST(a_worker_that_reported_success_but_kept_its_memory_is_resumed)
{
	stuck_for(0);
	assert_int_equal(worker.resumed, 1);
}

GUARD_TEST(a_worker_that_refused_to_leave_is_not_resumed)
{
	stuck_for(-GW_E_IO);
	assert_int_equal(worker.resumed, 0);
}

GUARD_TEST(a_return_that_fails_is_tried_later)
{
	worker.resume_answer = -1;
	hold(getpid(), 10 * GIB);
	world(GAME("1", "4"));
	open_guard();
	until(GW_WORKER_EVICTED, 4);
	for (unsigned i = 0; i < 200 && !worker.resumed; i++)
		step();
	until(GW_WORKER_EVICTED, 1);
	assert_int_equal(gw_guard_allowed(guard), 0);
	worker.resume_answer = 0;
	until(GW_WORKER_ACTIVE, 30);
	assert_int_equal(worker.resumed, 2);
}

GUARD_TEST(a_hanging_callback_is_reported_and_does_not_block_the_guard)
{
	struct gw_guard_status s;

	worker.waits = true;
	open_in_game();
	until(GW_WORKER_EVICT, 10);
	sem_wait(&worker.begun);
	s = status();
	assert_int_equal(s.call, GW_CALL_EVICT);
	assert_int_equal(s.overdue, 0);
	assert_int_equal(s.state, GW_WORKER_EVICT);
	for (unsigned i = 0; i < 110; i++)
		step();
	s = status();
	assert_int_equal(s.overdue, 1);
	assert_non_null(strstr(s.why, "evict callback"));
	assert_true(s.call_deadline_ns < sim_mono(NULL));
	assert_int_equal(gw_guard_allowed(guard), 0);
	assert_int_equal(guard_api_free(guard, 0), -GW_E_STATE);
	sem_post(&worker.go); /* end() finds that the call has returned */
}

GUARD_TEST(an_eviction_that_ends_late_counts_when_the_memory_is_free)
{
	struct pollfd p;
	eventfd_t n;

	worker.waits = true;
	hold(getpid(), 10 * GIB);
	world(GAME("1", "200"));
	open_guard();
	until(GW_WORKER_STUCK, 90);
	assert_int_equal(worker.evicted, 0);
	assert_int_equal(status().call, GW_CALL_EVICT);
	worker.waits = false;
	while (eventfd_read(guard->box.wake_fd, &n) == 0)
		;
	sem_post(&worker.go);
	p = (struct pollfd){ .fd = guard->box.wake_fd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 60000), 1);
	until(GW_WORKER_EVICTED, 40);
	assert_int_equal(status().call, GW_CALL_NONE);
	assert_int_equal(gw_guard_allowed(guard), 0);
}

GUARD_TEST(a_callback_may_not_end_its_guard)
{
	worker.stops = true;
	open_in_game();
	until(GW_WORKER_EVICTED, 5);
	assert_int_equal(worker.stopped, -GW_E_ARG);
}

static void dry_goes_on(void)
{
	open_in_game();
	until(GW_WORKER_EVICTED, 5);
	assert_int_equal(gw_guard_allowed(guard), 1);
	assert_int_equal(status().dry, 1);
	assert_int_equal(status().would_evict, 1);
	assert_int_equal(worker.evicted, 0);
	assert_memory_equal(worker.last, "(nothing is done) worker chat: ", 31);
}

GUARD_TEST(a_dry_run_calls_nothing)
{
	o.mode = GW_GUARD_DRY_RUN;
	dry_goes_on();
}

GUARD_TEST(simulated_gpus_are_no_reason_to_leave_a_real_one)
{
	o.flags = 0;
	dry_goes_on();
}

GUARD_TEST(without_a_gpu_it_is_blind_and_allows)
{
	struct gw_guard_status s;

	sim_text("[driver]\nversion = \"580.159.04\"\n");
	sim_open();
	open_guard();
	s = status();
	assert_int_equal(s.blind, 1);
	assert_int_equal(s.allowed, 1);
	assert_int_equal(s.observations, 1);
	assert_memory_equal(s.why, "no GPU is visible", 17);
	assert_int_equal(gw_guard_allowed(NULL), 1);
}

GUARD_TEST(a_worker_leaves_on_request)
{
	hold(getpid(), 10 * GIB);
	world("");
	open_guard();
	until(GW_WORKER_ACTIVE, 1);
	assert_int_equal(gw_guard_request(guard, GW_REQUEST_EVICT, 0), 0);
	until(GW_WORKER_EVICTED, 2);
	assert_int_equal(status().reasons, 1u << GW_REASON_MANUAL);
	stays(GW_WORKER_EVICTED, 3);
	assert_int_equal(gw_guard_request(guard, GW_REQUEST_RESUME_NOW, 0), 0);
	until(GW_WORKER_ACTIVE, 8);
	assert_int_equal(worker.resumed, 1);
}

GUARD_TEST(a_hold_needs_a_time)
{
	hold(getpid(), 10 * GIB);
	world(GAME("3", "100"));
	open_guard();
	until(GW_WORKER_ACTIVE, 1);
	assert_int_equal(gw_guard_request(guard, GW_REQUEST_HOLD_ACTIVE, 0), -GW_E_ARG);
	assert_true(gw_ctx_error(guard->ctx)[0]);
	assert_int_equal(gw_guard_request(guard, (enum gw_guard_request)9, 0), -GW_E_ARG);
	assert_int_equal(gw_guard_request(guard, GW_REQUEST_HOLD_ACTIVE, 6 * NS_PER_S), 0);
	assert_int_equal(status().hold, GW_HOLD_ACTIVE);
	for (unsigned i = 0; i < 50; i++)
		step();
	assert_int_equal(gw_guard_allowed(guard), 1);
	until(GW_WORKER_EVICTED, 5);
	assert_int_equal(status().hold, GW_HOLD_NONE);
}

GUARD_TEST(a_status_of_a_wrong_size_is_refused)
{
	struct gw_guard_status s;

	hold(getpid(), GIB);
	world("");
	open_guard();
	memset(&s, 0x5a, sizeof(s));
	s.size = sizeof(s);
	assert_int_equal(gw_guard_status(guard, &s), 0);
	assert_int_equal(s.resident_bytes, GIB);
	s.size = offsetof(struct gw_guard_status, observations);
	assert_int_equal(gw_guard_status(guard, &s), -GW_E_ARG);
	assert_in(gw_ctx_error(sim.ctx), "the size of struct gw_guard_status is ");
}

GUARD_TEST(a_gpu_that_needs_a_reset_is_left)
{
	o.flags |= GW_GUARD_HEALTH;
	hold(getpid(), 10 * GIB);
	board("h200", "recovery_action = 1\n");
	open_guard();
	until(GW_WORKER_EVICTED, 5);
	assert_int_equal(status().reasons, 1u << GW_REASON_HEALTH);
	assert_int_equal(status().quarantine, 1);
	assert_int_equal(worker.evicted, 1);
}

static void *ask_all_the_time(void *arg)
{
	atomic_bool *over = arg;
	struct gw_guard_status s = { .size = sizeof(s) };

	while (!atomic_load(over)) {
		gw_guard_allowed(guard);
		gw_guard_status(guard, &s);
		gw_guard_wait(guard, 0);
		gw_guard_request(guard, GW_REQUEST_HOLD_ACTIVE, NS_PER_S);
		gw_guard_request(guard, GW_REQUEST_RELEASE, 0);
		sim_step(10 * NS_PER_MS);
	}
	return NULL;
}

GUARD_TEST(other_threads_may_call_the_guard_while_it_works)
{
	atomic_bool over = false;
	pthread_t other;

	o.decided = NULL;
	o.poll_ns = NS_PER_MS;
	hold(getpid(), 10 * GIB);
	world(GAME("0.05", "1000"));
	assert_int_equal(gw_guard_start(sim.ctx, &o, &guard), 0);
	assert_int_equal(pthread_create(&other, NULL, ask_all_the_time, &over), 0);
	sem_wait(&worker.begun);
	for (unsigned i = 0; i < 600 && gw_guard_allowed(guard); i++)
		usleep(10000);
	assert_int_equal(gw_guard_allowed(guard), 0);
	atomic_store(&over, true);
	pthread_join(other, NULL);
	assert_int_equal(gw_guard_stop(guard, LONG_NS), 0);
	guard = NULL;
}

static void stop_on_decision(void *arg, const struct gw_guard_decision *d)
{
	sem_wait(&worker.go); /* wait until gw_guard_start() has returned the guard */
	worker.stopped = gw_guard_stop(guard, 0);
	sem_post(&worker.begun);
	sem_post(&worker.go);
}

GUARD_TEST(the_decision_callback_may_not_stop_its_guard)
{
	o.decided = stop_on_decision;
	world("");
	assert_int_equal(gw_guard_start(sim.ctx, &o, &guard), 0);
	sem_post(&worker.go);
	sem_wait(&worker.begun);
	assert_int_equal(worker.stopped, -GW_E_ARG);
	assert_int_equal(gw_guard_stop(guard, LONG_NS), 0);
	guard = NULL;
}

GUARD_TEST(a_hundred_guards_begin_and_end)
{
	struct gw_guard *g;

	hold(getpid(), 10 * GIB);
	world("");
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(gw_guard_start(sim.ctx, &standard, &g), 0);
		assert_int_equal(gw_guard_allowed(g), 1);
		assert_int_equal(gw_guard_stop(g, LONG_NS), 0);
	}
	assert_int_equal(gw_guard_stop(NULL, 0), 0);
}

GUARD_TEST(without_memory_it_does_not_begin)
{
	static const char *const game[] = { "game", NULL }, *const first[] = { "0", NULL };
	struct gw_guard *g = NULL;
	int err;

	o.ignore = game;
	o.gpus = first;
	o.flags |= GW_GUARD_HEALTH;
	world("");
	for (unsigned n = 1;; n++) {
		fail_at = n;
		allocations = 0;
		err = guard_api_new(sim.ctx, &o, &g);
		fail_at = 0;
		if (!err)
			break;
		assert_int_equal(err, -GW_E_NOMEM);
		assert_null(g);
	}
	assert_true(allocations > 10);
	assert_int_equal(guard_api_free(g, 0), 0);
}

TEST_MAIN(sim_setup, NULL)
