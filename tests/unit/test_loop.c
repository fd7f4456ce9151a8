#include "base/clock.h"
#include "base/loop.h"

#include "test.h"

#include <gpuward.h>

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TEXT(s) ((void *)(uintptr_t)(s))

static struct loop *loop;

static int set_up(void **state)
{
	return loop_new(&loop);
}

static int tear_down(void **state)
{
	loop_free(loop);
	return 0;
}

#define TEST_SETUP    set_up
#define TEST_TEARDOWN tear_down

/* The names of the callbacks that ran, in order. */
static char story[256];
static struct loop_source *other;

static void note(const char *word)
{
	strncat(story, word, sizeof(story) - strlen(story) - 1);
}

static void on_fd(void *arg, int fd, uint32_t events)
{
	eventfd_t n;

	assert_true(events & EPOLLIN);
	eventfd_read(fd, &n);
	note(arg);
}

static void on_timer(void *arg, uint64_t now_ns)
{
	assert_true(now_ns > 0);
	note(arg);
}

static void removes_the_other(void *arg, int fd, uint32_t events)
{
	note("removed ");
	loop_remove(other);
	other = NULL;
}

static void stops(void *arg, uint64_t now_ns)
{
	note(arg);
	loop_stop(loop);
}

TEST(calls_the_watcher_of_a_descriptor)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct loop_source *s;

	story[0] = '\0';
	assert_int_equal(loop_add_fd(loop, fd, EPOLLIN, on_fd, TEXT("fd "), &s), 0);
	loop_once(loop, 0);
	assert_string_equal(story, "");
	eventfd_write(fd, 1);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "fd ");
	assert_int_equal(loop_set_events(s, 0), 0);
	eventfd_write(fd, 1);
	loop_once(loop, 0);
	assert_string_equal(story, "fd ");
	assert_int_equal(loop_set_events(s, EPOLLIN), 0);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "fd fd ");
	assert_int_equal(loop_wakeups(loop), 4);
	loop_remove(s);
	close(fd);
}

TEST(refuses_descriptors_that_cannot_be_watched)
{
	struct loop_source *s = NULL;

	assert_int_equal(loop_add_fd(loop, -1, EPOLLIN, on_fd, NULL, &s), -GW_E_IO);
	assert_null(s);
	loop_remove(NULL);
}

/* Times in the past are due at once and fire in their order. */
TEST(timers_fire_in_order_and_once)
{
	static char names[26][2];
	struct loop_source *s[26];

	story[0] = '\0';
	for (unsigned i = 0; i < 26; i++) {
		names[i][0] = (char)('a' + i);
		assert_int_equal(loop_add_timer(loop, on_timer, names[i], &s[i]), 0);
	}
	for (unsigned i = 0; i < 26; i++) {
		/* 7 and 26 have no common factor, so this visits all 26 timers in another
		 * order */
		unsigned k = i * 7 % 26;

		loop_set_time(s[k], 1 + k);
	}
	loop_set_time(s[3], 0);
	loop_set_time(s[4], 200);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "abcfghijklmnopqrstuvwxyze");
	loop_once(loop, 0);
	assert_string_equal(story, "abcfghijklmnopqrstuvwxyze");
	for (unsigned i = 0; i < 26; i++)
		loop_remove(s[i]);
}

TEST(random_heap_of_timers_stays_in_order)
{
	static struct loop_source *s[300];
	static uint64_t at[300];
	unsigned seed = 12345;

	for (unsigned i = 0; i < 300; i++)
		assert_int_equal(loop_add_timer(loop, on_timer, TEXT(""), &s[i]), 0);
	for (unsigned n = 0; n < 20000; n++) {
		unsigned i = (seed = seed * 1103515245 + 12345) >> 8 & 0xffff;

		at[i % 300] = i % 5 == 0 ? 0 : UINT64_MAX / 2 + i * 31 % 1000;
		loop_set_time(s[i % 300], at[i % 300]);
	}
	/* At first no timer is due; then exactly one is. */
	story[0] = '\0';
	loop_once(loop, 0);
	struct loop_source *due;
	assert_int_equal(loop_add_timer(loop, on_timer, TEXT("due"), &due), 0);
	loop_set_time(due, 5);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "due");
	for (unsigned i = 0; i < 300; i++)
		loop_remove(s[i]);
	loop_remove(due);
}

TEST(a_timer_ends_the_wait)
{
	struct loop_source *s;
	uint64_t at = clock_mono_ns(clock_real()) + 5 * NS_PER_MS;

	story[0] = '\0';
	assert_int_equal(loop_add_timer(loop, stops, TEXT("stop"), &s), 0);
	loop_set_time(s, at);
	loop_run(loop);
	assert_string_equal(story, "stop");
	assert_true(clock_mono_ns(clock_real()) >= at);
	loop_remove(s);
}

TEST(a_removed_timer_is_not_called_even_if_due)
{
	int a = eventfd(1, EFD_NONBLOCK), b = eventfd(1, EFD_NONBLOCK);
	struct loop_source *first, *timer;

	story[0] = '\0';
	assert_int_equal(loop_add_fd(loop, a, EPOLLIN, removes_the_other, NULL, &first), 0);
	assert_int_equal(loop_add_timer(loop, on_timer, TEXT("timer "), &timer), 0);
	loop_set_time(timer, 1);
	other = timer;
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "removed ");
	assert_int_equal(loop_add_fd(loop, b, EPOLLIN, on_fd, TEXT("second "), &other), 0);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "removed removed ");
	loop_remove(first);
	close(a);
	close(b);
}

static struct loop_source *own;

static void removes_itself(void *arg, uint64_t now_ns)
{
	note(arg);
	loop_remove(own);
}

TEST(a_callback_may_remove_itself)
{
	story[0] = '\0';
	assert_int_equal(loop_add_timer(loop, removes_itself, TEXT("gone"), &own), 0);
	loop_set_time(own, 1);
	loop_once(loop, UINT64_MAX);
	loop_once(loop, 0);
	assert_string_equal(story, "gone");
}

static void restarts_itself(void *arg, uint64_t now_ns)
{
	note(arg);
	loop_set_time(own, 1);
}

TEST(a_timer_that_restarts_itself_does_not_starve_others)
{
	int fd = eventfd(1, EFD_NONBLOCK);
	struct loop_source *s;

	story[0] = '\0';
	assert_int_equal(loop_add_timer(loop, restarts_itself, TEXT("t "), &own), 0);
	assert_int_equal(loop_add_fd(loop, fd, EPOLLIN, on_fd, TEXT("fd "), &s), 0);
	loop_set_time(own, 1);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "fd t ");
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "fd t t ");
	loop_remove(own);
	loop_remove(s);
	close(fd);
}

static void on_signal(void *arg, int signal)
{
	note(arg);
	note(signal == SIGUSR1 ? "one " : "two ");
}

TEST(signals_become_calls)
{
	static const int signals[] = { SIGUSR1, SIGUSR2, 0 };
	struct loop_source *s;

	story[0] = '\0';
	assert_int_equal(loop_add_signals(loop, signals, on_signal, TEXT("signal "), &s), 0);
	raise(SIGUSR1);
	raise(SIGUSR2);
	loop_once(loop, UINT64_MAX);
	assert_string_equal(story, "signal one signal two ");
	loop_remove(s);
}

TEST_MAIN(NULL, NULL)
