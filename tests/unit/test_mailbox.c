#include "base/mailbox.h"

#include "base/clock.h"

#include "test.h"

#include <gpuward.h>

#include <poll.h>

struct counter {
	struct mailbox box;
	unsigned given, taken;
	bool hang, freed;
};

static void count_up(void *arg)
{
	struct counter *c = arg;

	mailbox_lock(&c->box);
	while (!c->box.stop || c->hang) {
		if (c->taken < c->given) {
			c->taken++;
			mailbox_notify(&c->box);
		} else {
			mailbox_wait(&c->box, UINT64_MAX);
		}
	}
	mailbox_unlock(&c->box);
}

static void orphaned(void *arg)
{
	struct counter *c = arg;

	mailbox_lock(&c->box);
	c->freed = true;
	mailbox_notify(&c->box);
	mailbox_unlock(&c->box);
}

static void start(struct counter *c, unsigned threads)
{
	*c = (struct counter){ 0 };
	assert_int_equal(mailbox_init(&c->box, MAILBOX_NEWS_FD), 0);
	mailbox_lock(&c->box);
	for (unsigned i = 0; i < threads; i++)
		assert_int_equal(mailbox_start(&c->box, 0, count_up, orphaned, c), 0);
	mailbox_unlock(&c->box);
}

TEST(a_thread_takes_what_it_is_given_and_notifies)
{
	struct counter c;
	struct pollfd fd;

	start(&c, 1);
	assert_false(mailbox_clear(c.box.news_fd));
	mailbox_lock(&c.box);
	c.given = 3;
	mailbox_wake(&c.box);
	while (c.taken < 3)
		mailbox_wait_news(&c.box, UINT64_MAX);
	mailbox_unlock(&c.box);
	fd = (struct pollfd){ c.box.news_fd, POLLIN, 0 };
	assert_int_equal(poll(&fd, 1, 10000), 1);
	assert_true(mailbox_clear(c.box.news_fd));
	assert_int_equal(mailbox_stop(&c.box, 10 * NS_PER_S), 0);
	mailbox_done(&c.box);
}

TEST(several_threads_all_end)
{
	struct counter c;

	start(&c, MAILBOX_THREADS);
	assert_int_equal(mailbox_start(&c.box, 0, count_up, NULL, &c), -GW_E_NOMEM);
	assert_int_equal(mailbox_stop(&c.box, UINT64_MAX), 0); /* waits for ever */
	assert_int_equal(c.box.running, 0);
	mailbox_done(&c.box);
}

TEST(a_wait_ends_at_its_time)
{
	struct mailbox m;

	assert_int_equal(mailbox_init(&m, 0), 0);
	mailbox_lock(&m);
	assert_false(mailbox_wait(&m, clock_mono_ns(clock_real()) + NS_PER_MS));
	assert_false(mailbox_wait_news(&m, 1));
	mailbox_unlock(&m);
	assert_int_equal(mailbox_stop(&m, 0), 0); /* no thread was started */
	mailbox_done(&m);
}

TEST(a_thread_that_hangs_is_left_behind_and_cleans_up_later)
{
	static struct counter c;

	start(&c, 1);
	mailbox_lock(&c.box);
	c.hang = true;
	mailbox_unlock(&c.box);
	assert_int_equal(mailbox_stop(&c.box, NS_PER_MS), -GW_E_STATE);
	mailbox_lock(&c.box);
	c.hang = false;
	mailbox_wake(&c.box);
	while (!c.freed)
		mailbox_wait_news(&c.box, UINT64_MAX);
	mailbox_unlock(&c.box);
}

TEST_MAIN(NULL, NULL)
