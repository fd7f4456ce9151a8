/* Tests settings.c with a store in a file. The test decides when the reader thread works. */
#include "simtest.h"
#include "tree.h"

#include "base/loop.h"
#include "daemon/settings.h"

#include <math.h>

#define H200 "[[gpu]]\nprofile = \"h200\"\nnoise = 0\n"

/* The job of the reader thread. It waits until the test carries it out. */
static struct {
	void (*fn)(void *arg, struct gw_ctx *ctx);
	void *arg;
	bool at_once, full;
} job;

int reader_do(struct reader *r, void (*fn)(void *arg, struct gw_ctx *ctx), void *arg)
{
	assert_null(job.fn);
	if (job.full)
		return -GW_E_STATE;
	if (job.at_once) {
		fn(arg, sim.ctx);
		return 0;
	}
	job.fn = fn;
	job.arg = arg;
	return 0;
}

static void do_job(void)
{
	void (*fn)(void *arg, struct gw_ctx *ctx) = job.fn;

	assert_non_null(fn);
	job.fn = NULL;
	fn(job.arg, sim.ctx);
}

static struct tree tree;
static struct loop *loop;
static struct store *store;
static struct settings *settings;

static void ignore_log(void *arg, const char *uuid, const char *severity, const char *text)
{
}

/* Opens settings with a store in a file. */
static void open_settings(void)
{
	struct settings_config config = { .log = ignore_log };
	char path[300], message[256];

	memset(&job, 0, sizeof(job));
	sim_start(H200);
	sim_take(GW_TIERS_COMMON, 0);
	tree_init(&tree);
	snprintf(path, sizeof(path), "%s/history.db", tree.path);
	assert_int_equal(store_open(path, 1 << 24, &store, message, sizeof(message)), 0);
	assert_int_equal(loop_new(&loop), 0);
	config.loop = loop;
	config.store = store;
	assert_int_equal(settings_new(&config, &settings), 0);
	settings_restore(settings);
}

static int close_settings(void **state)
{
	settings_free(settings);
	loop_free(loop);
	store_close(store);
	tree_done(&tree);
	return sim_teardown(state);
}

#define SETTINGS_TEST(name) TEST_WITH(name, NULL, close_settings)

static double power_limit(void)
{
	return sim_value(sim_take(GW_TIERS_COMMON | GW_TIER_HEALTH | GW_TIER_LIMITS, 0),
			 GW_Q_POWER_LIMIT);
}

static struct manage_change change(double watts)
{
	struct manage_change o = { .what = MANAGE_POWER_LIMIT,
				   .value = { watts, NAN },
				   .ours = { NAN, NAN },
				   .earlier = { NAN, NAN },
				   .who = "token" };

	snprintf(o.uuid, sizeof(o.uuid), "%s",
		 gw_device_text(gw_snapshot_device(sim.snap, 0), GW_T_UUID));
	return o;
}

/* Sets the power limit without the journal, as nvidia-smi would. */
static void somebody_else_sets(double watts)
{
	struct manage_change o = change(watts);
	struct manage_result r;

	o.keep = true;
	assert_int_equal(manage_run(sim.ctx, &o, NULL, &r), 0);
}

static int send_power(double watts)
{
	struct manage_change o = change(watts);

	return settings_change(settings, &o);
}

/* Runs the loop until the reader has a job. */
static void await_job(void)
{
	while (!job.fn)
		loop_once(loop, 10 * NS_PER_MS);
}

static struct manage_result finish(int ticket)
{
	struct manage_result r;
	int done;

	while ((done = settings_result(settings, ticket, &r)) == 0) {
		if (job.fn)
			do_job();
		loop_once(loop, NS_PER_MS);
	}
	assert_int_equal(done, 1);
	return r;
}

static void count_document(void *arg, const char *id, const char *json)
{
	assert_in(json, "\"before\":{\"watts\":700}");
	++*(unsigned *)arg;
}

/* Returns the number of documents, including changes that are not written yet. */
static unsigned documents(void)
{
	unsigned n = 0;

	assert_true(store_each_document(store, MANAGE_DOC_KIND, 16, count_document, &n) >= 0);
	return n;
}

static unsigned documents_on_disk(void)
{
	char path[300];
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/history.db", tree.path);
	assert_true(store_peek(path, MANAGE_DOC_KIND, 16, count_document, &n) >= 0);
	return n;
}

SETTINGS_TEST(the_old_value_is_on_disk_before_a_setting_is_changed)
{
	struct manage_result r;
	int ticket;

	open_settings();
	ticket = send_power(400);
	assert_true(ticket > 0);
	do_job(); /* reads the old value */
	assert_int_equal(documents_on_disk(), 0);
	await_job();
	assert_int_equal(documents_on_disk(), 1);
	assert_true(power_limit() == 700);
	r = finish(ticket);
	assert_true(r.error == 0 && r.before[0] == 700 && r.restored_on_exit);
	assert_true(power_limit() == 400);
	assert_int_equal(settings_result(settings, ticket, &r), -GW_E_NOENT);
}

SETTINGS_TEST(a_value_that_changes_while_the_old_one_is_stored_is_stored_too)
{
	struct manage_result r;
	int ticket;

	open_settings();
	somebody_else_sets(650);
	ticket = send_power(400);
	do_job();
	await_job();
	somebody_else_sets(700);
	do_job();
	await_job();
	assert_int_equal(documents_on_disk(), 1); /* with 700 W */
	r = finish(ticket);
	assert_true(r.error == 0 && r.before[0] == 700);
	job.at_once = true;
	assert_int_equal(settings_close(settings, NS_PER_S), 0);
	assert_true(power_limit() == 700);
}

SETTINGS_TEST(changes_run_one_after_the_other)
{
	struct manage_change back;
	int first, second, third;

	open_settings();
	first = send_power(400);
	second = send_power(300);
	back = change(NAN);
	back.restore = true;
	third = settings_change(settings, &back);
	assert_true(finish(third).after[0] == 700);
	assert_true(finish(first).before[0] == 700);
	assert_true(finish(second).before[0] == 400);
	assert_int_equal(documents(), 0);
}

SETTINGS_TEST(a_restore_comes_after_the_running_order_and_does_not_wait_for_it)
{
	int ticket;

	open_settings();
	ticket = send_power(400);
	settings_restore(settings);
	do_job();
	await_job();
	settings_restore(settings);
	assert_true(finish(ticket).after[0] == 400);
	await_job();
	do_job();
	while (documents() > 0)
		loop_once(loop, NS_PER_MS);
	assert_true(power_limit() == 700);
	assert_null(job.fn);
}

SETTINGS_TEST(an_order_that_is_refused_costs_no_other_client_its_result)
{
	int ticket[8];

	open_settings();
	job.at_once = true;
	for (unsigned i = 0; i < COUNT_OF(ticket); i++) {
		struct manage_change o = change(400 + 10 * i);

		o.keep = true;
		ticket[i] = settings_change(settings, &o);
		assert_true(ticket[i] > 0);
		loop_once(loop, NS_PER_S);
	}
	job.full = true;
	assert_int_equal(send_power(300), -GW_E_STATE);
	for (unsigned i = 0; i < COUNT_OF(ticket); i++)
		assert_true(finish(ticket[i]).after[0] == 400 + 10 * i);
	assert_int_equal(finish(send_power(300)).error, -GW_E_TIMEOUT); /* the queue is full */
	assert_true(power_limit() == 470);
}

SETTINGS_TEST(the_stop_restores_and_makes_no_change_that_had_not_begun)
{
	static const unsigned steps[] = { 0, 1, 2 };

	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		open_settings();
		assert_int_equal(finish(send_power(400)).error, 0);
		assert_true(send_power(300) > 0 && send_power(200) > 0);
		if (steps[i] > 0)
			do_job(); /* checks the change */
		if (steps[i] > 1) {
			await_job(); /* the old value is stored */
			do_job();
		}
		job.at_once = true;
		assert_int_equal(settings_close(settings, job.fn ? 0 : NS_PER_S),
				 job.fn ? -GW_E_STATE : 0);
		if (job.fn)
			do_job();
		assert_int_equal(settings_close(settings, NS_PER_S), 0);
		assert_true(power_limit() == 700);
		assert_int_equal(documents(), 0);
		assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit_v2"),
				 steps[i] > 1 ? 3 : 2);
		assert_int_equal(send_power(300), -GW_E_STATE);
		if (i + 1 < COUNT_OF(steps))
			close_settings(NULL);
	}
}

TEST_MAIN(sim_setup, NULL)
