/* Tests orders, threads and outcomes. The workers are functions of this test, which end when
 * the test lets them. */
#include "guard/action.h"

#include "base/clock.h"

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown
#include "test.h"

#define WORKERS 12
#define LONG_NS (60 * NS_PER_S) /* timeout that is never reached */

struct fake {
	sem_t begun, go;
	bool waits;
	int answer;
	atomic_uint evicted, resumed;
	uint64_t bytes;
	sigset_t blocked;
};

static struct policy policy;
static struct fake fake[WORKERS];
static struct action *action;
static int fd;

static int fake_evict(void *ctx, uint64_t bytes, uint64_t deadline_ns)
{
	struct fake *f = ctx;

	f->bytes = bytes;
	pthread_sigmask(SIG_BLOCK, NULL, &f->blocked);
	atomic_fetch_add(&f->evicted, 1);
	sem_post(&f->begun);
	if (f->waits)
		while (sem_wait(&f->go) != 0)
			;
	return f->answer;
}

static int fake_resume(void *ctx, uint64_t deadline_ns)
{
	struct fake *f = ctx;

	atomic_fetch_add(&f->resumed, 1);
	return f->answer;
}

static int setup(void **state)
{
	static const char *const names[WORKERS] = { "a", "b", "c", "d", "e", "f",
						    "g", "h", "i", "j", "k", "l" };

	memset(&policy, 0, sizeof(policy));
	policy.mode = GUARD_ENFORCE;
	policy.workers = WORKERS;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (action_new(&policy, &worker_all, fd, &action) != 0)
		return -1;
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker_callbacks c = { fake_evict, fake_resume, &fake[i] };

		policy.worker[i].name = names[i];
		policy.worker[i].kind = WORKER_CALLBACK;
		memset(&fake[i], 0, sizeof(fake[i]));
		sem_init(&fake[i].begun, 0, 0);
		sem_init(&fake[i].go, 0, 0);
		if (action_set_callbacks(action, i, &c) != 0)
			return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	for (unsigned i = 0; i < WORKERS; i++)
		sem_post(&fake[i].go);
	if (action_free(action, LONG_NS) != 0)
		return -1;
	close(fd);
	for (unsigned i = 0; i < WORKERS; i++) {
		sem_destroy(&fake[i].begun);
		sem_destroy(&fake[i].go);
	}
	return 0;
}

static int give(unsigned worker, enum guard_verb verb, uint64_t id)
{
	struct guard_order o = { .id = id,
				 .verb = verb,
				 .worker = worker,
				 .level = 2,
				 .bytes = 1000 + id,
				 .deadline_ns = clock_mono_ns(clock_real()) + LONG_NS };

	return action_order(action, &o);
}

static struct guard_outcome next(void)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct guard_outcome o;
	uint64_t count;

	while (!action_next_outcome(action, &o)) {
		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_true(read(fd, &count, sizeof(count)) > 0);
	}
	return o;
}

static bool next_ok(void)
{
	const struct guard_outcome o = next();

	return guard_outcome_ok(&o);
}

TEST(an_order_comes_back_with_its_outcome)
{
	struct guard_outcome o;

	assert_int_equal(give(3, ORDER_EVICT, 77), 0);
	o = next();
	assert_int_equal(o.order, 77);
	assert_int_equal(o.ending, ENDING_DONE);
	assert_string_equal(o.message, "");
	assert_int_equal(fake[3].evicted, 1);
	assert_int_equal(fake[3].bytes, 1077);
	assert_false(action_next_outcome(action, &o));
	assert_int_equal(give(3, ORDER_RESUME, 78), 0);
	assert_int_equal(next().order, 78);
	assert_int_equal(fake[3].resumed, 1);
	for (unsigned i = 0; i < WORKERS; i++)
		if (i != 3)
			assert_int_equal(fake[i].evicted + fake[i].resumed, 0);
}

TEST(a_callback_result_is_the_outcome)
{
	struct guard_outcome o;

	fake[0].answer = -GW_E_STATE;
	assert_int_equal(give(0, ORDER_EVICT, 1), 0);
	o = next();
	assert_int_equal(o.ending, ENDING_BUSY);
	fake[0].answer = -GW_E_IO;
	assert_int_equal(give(0, ORDER_RESUME, 2), 0);
	o = next();
	assert_false(guard_outcome_ok(&o));
	assert_int_not_equal(o.ending, ENDING_BUSY);
	assert_in(o.message, "the resume callback of the program failed");
	fake[0].answer = 5; /* not a valid result */
	assert_int_equal(give(0, ORDER_EVICT, 3), 0);
	assert_false(next_ok());
}

TEST(a_worker_has_one_order_at_a_time)
{
	fake[0].waits = true;
	assert_int_equal(give(0, ORDER_EVICT, 1), 0);
	assert_int_equal(give(0, ORDER_RESUME, 2), -GW_E_STATE);
	sem_wait(&fake[0].begun);
	assert_int_equal(give(0, ORDER_RESUME, 3), -GW_E_STATE);
	assert_int_equal(action_set_callbacks(action, 0, NULL), -GW_E_STATE);
	sem_post(&fake[0].go);
	assert_int_equal(next().order, 1);
	assert_int_equal(give(0, ORDER_RESUME, 4), 0);
	assert_int_equal(next().order, 4);
}

TEST(a_worker_that_hangs_does_not_block_others)
{
	fake[0].waits = true;
	assert_int_equal(give(0, ORDER_EVICT, 1), 0);
	sem_wait(&fake[0].begun);
	for (unsigned i = 1; i < WORKERS; i++)
		assert_int_equal(give(i, ORDER_EVICT, 1 + i), 0);
	for (unsigned i = 1; i < WORKERS; i++)
		assert_int_not_equal(next().order, 1);
	sem_post(&fake[0].go);
	assert_int_equal(next().order, 1);
}

TEST(the_ninth_order_waits_while_eight_hang)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		fake[i].waits = true;
		assert_int_equal(give(i, ORDER_EVICT, 1 + i), 0);
	}
	for (unsigned i = 0; i < 8; i++) /* orders run in the order in which they were given */
		sem_wait(&fake[i].begun);
	for (unsigned i = 8; i < WORKERS; i++)
		assert_int_equal(atomic_load(&fake[i].evicted), 0);
	sem_post(&fake[5].go);
	assert_int_equal(next().order, 6);
	sem_wait(&fake[8].begun);
	for (unsigned i = 9; i < WORKERS; i++)
		assert_int_equal(atomic_load(&fake[i].evicted), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		sem_post(&fake[i].go);
	for (unsigned i = 1; i < WORKERS; i++)
		assert_true(next_ok());
}

TEST(each_order_has_one_outcome_over_many_rounds)
{
	uint64_t sum = 0, expected = 0;

	for (uint64_t round = 0; round < 200; round++) {
		for (unsigned i = 0; i < WORKERS; i++) {
			uint64_t id = 1 + round * WORKERS + i;

			assert_int_equal(give(i, round % 2 ? ORDER_RESUME : ORDER_EVICT, id),
					 0);
			expected += id;
		}
		for (unsigned i = 0; i < WORKERS; i++)
			sum += next().order;
	}
	assert_int_equal(sum, expected);
	assert_int_equal(fake[7].evicted, 100);
	assert_int_equal(fake[7].resumed, 100);
}

TEST(threads_block_all_signals)
{
	give(0, ORDER_EVICT, 1);
	next();
	assert_true(sigismember(&fake[0].blocked, SIGTERM));
	assert_true(sigismember(&fake[0].blocked, SIGHUP));
}

TEST(invalid_orders_are_refused)
{
	assert_int_equal(give(WORKERS, ORDER_EVICT, 1), -GW_E_ARG);
	assert_int_equal(give(POLICY_WORKERS, ORDER_EVICT, 1), -GW_E_ARG);
	assert_int_equal(give(0, ORDER_VERBS, 1), -GW_E_ARG);
	assert_int_equal(action_set_callbacks(action, POLICY_WORKERS, NULL), -GW_E_ARG);
}

TEST(nothing_is_done_unless_the_mode_is_enforce)
{
	static const enum guard_mode modes[] = { GUARD_OBSERVE, GUARD_DRY_RUN };

	for (unsigned m = 0; m < 2; m++)
		for (unsigned v = ORDER_CLOSE; v < ORDER_VERBS; v++) {
			policy.mode = modes[m];
			assert_int_equal(give(0, (enum guard_verb)v, v), 0);
			assert_false(next_ok());
		}
	assert_int_equal(fake[0].evicted + fake[0].resumed, 0);
}

TEST(a_worker_without_callbacks_is_neither_evicted_nor_resumed)
{
	struct guard_outcome o;

	assert_int_equal(action_set_callbacks(action, 2, NULL), 0);
	give(2, ORDER_EVICT, 1);
	o = next();
	assert_false(guard_outcome_ok(&o));
	assert_in(o.message, "no evict callback");
	give(2, ORDER_RESUME, 3);
	o = next();
	assert_false(guard_outcome_ok(&o));
	assert_in(o.message, "no resume callback");
	give(2, ORDER_DRAIN, 2); /* an order without a function succeeds */
	o = next();
	assert_int_equal(o.ending, ENDING_DONE);
}

TEST(notes_are_kept_until_a_resume_succeeds)
{
	char notes[WORKER_NOTES_SIZE];

	action_set_notes(action, 1, "model a\nmodel b\n");
	give(1, ORDER_EVICT, 1);
	next();
	action_notes(action, 1, notes, sizeof(notes));
	assert_string_equal(notes, "model a\nmodel b\n");
	fake[1].answer = -GW_E_IO;
	give(1, ORDER_RESUME, 2);
	next();
	action_notes(action, 1, notes, sizeof(notes));
	assert_string_equal(notes, "model a\nmodel b\n");
	fake[1].answer = 0;
	give(1, ORDER_RESUME, 3);
	next();
	action_notes(action, 1, notes, sizeof(notes));
	assert_string_equal(notes, "");
	action_notes(action, POLICY_WORKERS, notes, sizeof(notes));
	assert_string_equal(notes, "");
}

static struct {
	int learn_rc;
	const char *learns; /* notes that the order writes */
	atomic_uint learnt, evicted;
} unloading;

static int learn_it(struct worker_call *c)
{
	atomic_fetch_add(&unloading.learnt, 1);
	snprintf(c->notes, c->notes_size, "%s", unloading.learns);
	snprintf(c->message, c->message_size, "%s",
		 unloading.learn_rc ? "it cannot be asked" : "");
	return unloading.learn_rc;
}

static int unload_it(struct worker_call *c)
{
	assert_string_equal(c->notes, unloading.learns);
	snprintf(c->message, c->message_size, "unloaded");
	atomic_fetch_add(&unloading.evicted, 1);
	return 0;
}

static const struct worker_ops *of_learner(enum policy_kind kind)
{
	static const struct worker_ops ops = { .learn = learn_it, .evict = unload_it };

	return &ops;
}

static const struct worker_ops *no_stopper(const struct policy_worker *w)
{
	return NULL;
}

static void begin_learner(void)
{
	static const struct worker_set set = { .of = of_learner, .stopper = no_stopper };

	assert_int_equal(action_free(action, LONG_NS), 0);
	assert_int_equal(action_new(&policy, &set, fd, &action), 0);
	memset(&unloading, 0, sizeof(unloading));
	unloading.learns = "model a\n";
}

static void await_learnt(unsigned worker, struct guard_order *ret)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t count;

	while (!action_learnt(action, worker, ret)) {
		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_true(read(fd, &count, sizeof(count)) > 0);
	}
}

TEST(an_eviction_waits_until_its_notes_are_written)
{
	struct guard_outcome o;
	struct guard_order order;
	char notes[WORKER_NOTES_SIZE];

	begin_learner();
	give(3, ORDER_EVICT, 7);
	await_learnt(3, &order);
	assert_int_equal(order.id, 7);
	assert_false(action_learnt(action, 2, &order));
	assert_false(action_learnt(action, POLICY_WORKERS, &order));
	assert_false(action_next_outcome(action, &o));
	assert_false(action_idle(action));
	assert_int_equal(give(3, ORDER_EVICT, 8), -GW_E_STATE);
	action_notes(action, 3, notes, sizeof(notes));
	assert_string_equal(notes, "model a\n");
	assert_int_equal(atomic_load(&unloading.evicted), 0);
	action_go_on(action, 3, NULL);
	o = next();
	assert_true(guard_outcome_ok(&o));
	assert_int_equal(o.order, 7);
	assert_int_equal(atomic_load(&unloading.evicted), 1);
	assert_int_equal(atomic_load(&unloading.learnt), 1);
	/* the notes are already in the journal, so the order does not wait */
	give(3, ORDER_EVICT, 9);
	o = next();
	assert_true(guard_outcome_ok(&o));
	assert_int_equal(atomic_load(&unloading.evicted), 2);
}

TEST(an_eviction_without_written_notes_is_not_carried_out)
{
	struct guard_outcome o;
	struct guard_order order = { .id = 2,
				     .verb = ORDER_EVICT,
				     .level = 2,
				     .deadline_ns = clock_mono_ns(clock_real()) };

	begin_learner();
	give(0, ORDER_EVICT, 1);
	await_learnt(0, &(struct guard_order){ 0 });
	action_go_on(action, 0, "the disk is full");
	o = next();
	assert_false(guard_outcome_ok(&o));
	assert_string_equal(o.message, "the disk is full");
	action_set_notes(action, 0, "");
	assert_int_equal(action_order(action, &order),
			 0); /* the deadline of the order passes before the notes are written */
	await_learnt(0, &order);
	action_go_on(action, 0, NULL);
	o = next();
	assert_false(guard_outcome_ok(&o));
	assert_in(o.message, "not written in time");
	assert_int_equal(atomic_load(&unloading.evicted), 0);
}

TEST(a_worker_that_fails_to_learn_is_not_evicted)
{
	struct guard_outcome o;

	begin_learner();
	unloading.learn_rc = -GW_E_STATE;
	give(0, ORDER_EVICT, 1);
	o = next();
	assert_int_equal(o.ending, ENDING_BUSY);
	assert_string_equal(o.message, "it cannot be asked");
	assert_int_equal(atomic_load(&unloading.evicted), 0);
}

TEST(an_order_that_waits_for_its_notes_is_dropped_at_the_end)
{
	begin_learner();
	give(0, ORDER_EVICT, 1);
	await_learnt(0, &(struct guard_order){ 0 });
	assert_int_equal(action_free(action, LONG_NS), 0);
	assert_int_equal(atomic_load(&unloading.evicted), 0);
	assert_int_equal(action_new(&policy, &worker_all, fd, &action), 0);
}

/* Changes from WORKERS workers to three: one stays, one moves up, one is new. */
TEST(notes_and_callbacks_follow_the_workers_to_a_new_policy)
{
	static const int from[] = { 5, -1, 0 };
	static struct policy other; /* borrowed until action_free() */
	struct guard_outcome o;
	char notes[WORKER_NOTES_SIZE];

	other = (struct policy){ .mode = GUARD_ENFORCE, .workers = 3 };
	for (unsigned i = 0; i < 3; i++)
		other.worker[i] = policy.worker[i];
	action_set_notes(action, 0, "of a");
	action_set_notes(action, 1, "of b");
	action_set_notes(action, 5, "of f");
	fake[5].waits = true;
	assert_int_equal(give(5, ORDER_EVICT, 1), 0);
	sem_wait(&fake[5].begun);
	assert_false(action_idle(action));
	assert_int_equal(action_policy(action, &other, from), -GW_E_STATE);
	sem_post(&fake[5].go);
	o = next();
	assert_true(guard_outcome_ok(&o));
	assert_true(action_idle(action));
	assert_int_equal(action_policy(action, &other, from), 0);
	action_notes(action, 0, notes, sizeof(notes));
	assert_string_equal(notes, "of f");
	action_notes(action, 1, notes, sizeof(notes));
	assert_string_equal(notes, "");
	action_notes(action, 2, notes, sizeof(notes));
	assert_string_equal(notes, "of a");
	assert_int_equal(give(2, ORDER_EVICT, 2), 0);
	o = next();
	assert_int_equal(o.order, 2);
	assert_int_equal(atomic_load(&fake[0].evicted), 1);
	assert_int_equal(give(1, ORDER_EVICT, 3), 0); /* worker 1 has no callbacks */
	o = next();
	assert_false(guard_outcome_ok(&o));
	assert_int_equal(give(5, ORDER_EVICT, 4), -GW_E_ARG);
}

TEST(an_order_that_hangs_at_the_end_is_left_behind)
{
	struct action *other;
	struct fake hung = { .waits = true };
	struct worker_callbacks c = { fake_evict, fake_resume, &hung };
	struct guard_order o = { .verb = ORDER_EVICT, .level = 2 };

	sem_init(&hung.begun, 0, 0);
	sem_init(&hung.go, 0, 0);
	assert_int_equal(action_new(&policy, &worker_all, -1, &other), 0);
	assert_int_equal(action_set_callbacks(other, 0, &c), 0);
	assert_int_equal(action_order(other, &o), 0);
	sem_wait(&hung.begun);
	assert_int_equal(action_free(other, NS_PER_MS), -GW_E_STATE);
	sem_post(&hung.go);
	assert_int_equal(action_free(other, LONG_NS), 0); /* waits for the end of the order */
	assert_int_equal(action_free(NULL, 0), 0);
}

TEST(every_kind_can_be_evicted_and_resumed)
{
	struct policy_worker w = { .kind = WORKER_OLLAMA };

	assert_null(worker_all.stopper(&w));
	w.match.unit = "ollama.service";
	assert_ptr_equal(worker_all.stopper(&w), worker_all.of(WORKER_SYSTEMD));
	w = (struct policy_worker){ .kind = WORKER_VLLM, .match.container = "abc" };
	assert_ptr_equal(worker_all.stopper(&w), worker_all.of(WORKER_CONTAINER));
	w = (struct policy_worker){ .kind = WORKER_CONTAINER };
	assert_ptr_equal(worker_all.stopper(&w), worker_all.of(WORKER_CONTAINER));
	for (unsigned k = 0; k < WORKER_KINDS; k++) {
		const struct worker_ops *ops = worker_all.of((enum policy_kind)k);

		assert_true(ops->evict || ops->posts[ORDER_EVICT]);
		assert_true(ops->resume || ops->load || ops->posts[ORDER_RESUME]);
		assert_int_equal(ops->close || ops->posts[ORDER_CLOSE],
				 ops->open || ops->posts[ORDER_OPEN]);
	}
}

static unsigned starts, wakes;

static int count_start(struct worker_call *c)
{
	(void)c;
	starts++;
	return 0;
}

static int count_wake(struct worker_call *c)
{
	(void)c;
	wakes++;
	return 0;
}

static const struct worker_ops *sleeper_of(enum policy_kind kind)
{
	static const struct worker_ops sleeper = { .resume = count_wake };

	(void)kind;
	return &sleeper;
}

static const struct worker_ops *sleeper_stopper(const struct policy_worker *w)
{
	static const struct worker_ops stopper = { .resume = count_start };

	(void)w;
	return &stopper;
}

/* At level 4 the guard orders a start in any case. If stopping had failed, the old process is
 * still there, asleep and closed to new work. */
TEST(a_lazy_worker_that_was_not_stopped_is_resumed_and_a_new_process_is_not)
{
	static const struct worker_set set = { .of = sleeper_of, .stopper = sleeper_stopper };

	policy.worker[0] = (struct policy_worker){ .name = "a",
						   .kind = WORKER_VLLM,
						   .resume = RESUME_LAZY };
	assert_int_equal(action_free(action, LONG_NS), 0);
	assert_int_equal(action_new(&policy, &set, fd, &action), 0);
	for (unsigned gone = 0; gone < 2; gone++) {
		struct guard_order o = { .id = 1 + gone,
					 .verb = ORDER_RESUME,
					 .level = LEVEL_STOP,
					 .start = gone,
					 .deadline_ns = clock_mono_ns(clock_real()) + LONG_NS };

		starts = wakes = 0;
		assert_int_equal(action_order(action, &o), 0);
		assert_true(next_ok());
		assert_int_equal(starts, 1);
		assert_int_equal(wakes, !gone);
	}
}

TEST_MAIN(NULL, NULL)
