/* Tests that the service never shows an old answer about the fleet as a current answer. A fake
 * fleet_ask() answers when the test allows it. */
#include "daemon/fleet_watch.h"

#include "base/mailbox.h"

#define TEST_SETUP    setup
#define TEST_TEARDOWN teardown
#include "test.h"

#include <gpuward.h>

#include <limits.h>

#define START_NS (UINT64_C(5000) * NS_PER_S)

static struct mailbox gate;
/* requests that came, and requests that may be answered; protected by the gate */
static unsigned asked, allowed;
static atomic_int fleets; /* number of fleets in memory */
static struct clock_stepped world;
static struct fleet_watch *watch;

int fleet_ask(const struct fleet_server *s, const struct fleet_question *x, uint64_t timeout_ns,
	      const atomic_bool *stop, struct fleet **ret)
{
	mailbox_lock(&gate);
	asked++;
	mailbox_notify(&gate);
	while (allowed < asked && !atomic_load(stop))
		mailbox_wait(&gate, UINT64_MAX);
	mailbox_unlock(&gate);
	*ret = calloc(1, sizeof(**ret));
	atomic_fetch_add(&fleets, *ret != NULL);
	return *ret ? 0 : -GW_E_NOMEM;
}

bool fleet_is_empty(const struct fleet *f, char *why, size_t size)
{
	return false;
}

void fleet_free(struct fleet *f)
{
	atomic_fetch_sub(&fleets, f != NULL);
	free(f);
}

static struct fleet_state look(void)
{
	const struct fleet_source *source = fleet_watch_source(watch);
	struct fleet_state s;

	source->look(source->arg, &s);
	return s;
}

static void await_request(unsigned n)
{
	mailbox_lock(&gate);
	while (asked < n)
		mailbox_wait_news(&gate, UINT64_MAX);
	mailbox_unlock(&gate);
}

static void answer(unsigned n)
{
	mailbox_lock(&gate);
	allowed = n;
	mailbox_wake(&gate);
	mailbox_unlock(&gate);
}

static void await_answer(void)
{
	while (look().asking)
		clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + NS_PER_MS);
}

/* Ticks until no fleet is in memory. */
static void await_freed(void)
{
	do {
		fleet_watch_tick(watch);
		clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + NS_PER_MS);
	} while (atomic_load(&fleets) > 0);
}

static int setup(void **state)
{
	const struct fleet_server server = { .url = "http://engine" };

	asked = allowed = 0;
	clock_stepped_init(&world, START_NS, START_NS);
	return mailbox_init(&gate, 0) | fleet_watch_new(&server, NULL, &world.clock, &watch);
}

static int teardown(void **state)
{
	answer(UINT_MAX);
	fleet_watch_free(watch);
	mailbox_done(&gate);
	return atomic_load(&fleets);
}

TEST(an_answer_has_the_time_of_its_request)
{
	struct fleet_state s = look();

	assert_true(s.asking);
	assert_null(s.fleet);
	await_request(1);
	clock_step(&world, 7 * NS_PER_S);
	answer(1);
	await_answer();
	s = look();
	assert_non_null(s.fleet);
	assert_int_equal(s.mono_ns, START_NS);
}

TEST(an_answer_after_the_last_look_is_freed)
{
	struct fleet_state s;

	(void)look();
	await_request(1);
	clock_step(&world, 61 * NS_PER_S);
	fleet_watch_tick(watch); /* the request is still under way */
	answer(1);
	while (atomic_load(&fleets) == 0)
		clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + NS_PER_MS);
	await_freed();

	clock_step(&world, 600 * NS_PER_S);
	s = look();
	assert_null(s.fleet);
	assert_true(s.asking);
	await_request(2);
	answer(2);
	await_answer();
	s = look();
	assert_non_null(s.fleet);
	assert_int_equal(s.mono_ns, START_NS + 661 * NS_PER_S);
}

TEST(a_second_answer_after_the_last_look_is_freed)
{
	struct fleet_state s;

	answer(1);
	(void)look();
	await_answer();
	clock_step(&world, 11 * NS_PER_S);
	s = look();
	assert_non_null(s.fleet);
	assert_true(s.asking);
	await_request(2);
	answer(2);
	while (atomic_load(&fleets) < 2)
		clock_sleep_until(clock_real(), clock_mono_ns(clock_real()) + NS_PER_MS);
	clock_step(&world, 59 * NS_PER_S);
	fleet_watch_tick(watch); /* less than a minute since the last look */
	assert_int_equal(atomic_load(&fleets), 2);
	clock_step(&world, 2 * NS_PER_S);
	await_freed();
	s = look();
	assert_null(s.fleet);
	assert_true(s.asking);
}

TEST_MAIN(NULL, NULL)
