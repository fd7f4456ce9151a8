/* Tests that a call thread runs one function at a time and never blocks its owner for ever. */
#include "device/driver_call.h"

#include "base/clock.h"

#include "test.h"

#include <stdatomic.h>

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define SOON (clock_mono_ns(clock_real()) + 10 * NS_PER_S)

struct job {
	atomic_bool started, go, ended;
	atomic_uint done;
	sigset_t mask;
};

static void until(atomic_bool *flag)
{
	while (!atomic_load(flag)) {
		struct timespec ms = { 0, 1000000 };

		nanosleep(&ms, NULL);
	}
}

static void wait_for_go(void *arg)
{
	struct job *j = arg;

	atomic_store(&j->started, true);
	until(&j->go);
	pthread_sigmask(SIG_SETMASK, NULL, &j->mask);
	atomic_fetch_add(&j->done, 1);
	atomic_store(&j->ended, true);
}

TEST(runs_the_given_function)
{
	struct job j = { .go = true };
	struct call_thread *l = call_thread_new();

	assert_non_null(l);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(call_thread_post(l, wait_for_go, &j));
		assert_true(call_thread_wait(l, SOON));
	}
	assert_int_equal(atomic_load(&j.done), 100);
	assert_true(call_thread_free(l));
}

TEST(a_busy_thread_refuses_work_without_waiting)
{
	struct job j = { 0 }, other = { .go = true };
	struct call_thread *l = call_thread_new();

	assert_true(call_thread_post(l, wait_for_go, &j));
	assert_false(call_thread_wait(l, 0));
	assert_false(call_thread_wait(l, clock_mono_ns(clock_real()) + NS_PER_MS));
	assert_false(call_thread_post(l, wait_for_go, &other));
	atomic_store(&j.go, true);
	assert_true(call_thread_wait(l, SOON));
	assert_int_equal(atomic_load(&other.done), 0);
	assert_true(call_thread_post(l, wait_for_go, &other));
	assert_true(call_thread_wait(l, SOON));
	assert_true(call_thread_free(l));
}

TEST(a_busy_thread_is_abandoned)
{
	static struct job j; /* static, because arg must live until the thread is idle */
	struct call_thread *l = call_thread_new();

	assert_true(call_thread_post(l, wait_for_go, &j));
	/* wait for the start, because a call that has not started is dropped when its thread is
	 * freed */
	until(&j.started);
	assert_false(call_thread_free(l));
	atomic_store(&j.go, true);
	until(&j.ended);
}

TEST(the_thread_blocks_signals)
{
	struct job j = { .go = true };
	struct call_thread *l = call_thread_new();
	sigset_t mine;

	assert_true(call_thread_post(l, wait_for_go, &j));
	assert_true(call_thread_wait(l, SOON));
	assert_int_equal(sigismember(&j.mask, SIGTERM), 1);
	assert_int_equal(sigismember(&j.mask, SIGCHLD), 1);
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_int_equal(sigismember(&mine, SIGTERM), 0);
	assert_true(call_thread_free(l));
	assert_true(call_thread_free(NULL));
}

TEST_MAIN(NULL, NULL)
