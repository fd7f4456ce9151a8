/* Tests that a record is stored before its order is carried out, with a store that fails and
 * one that works. */
#include "daemon/guard_service_parts.h"

#include "guard_world.h"

#include "test.h"

static struct {
	bool full;
	unsigned kept, tried, orders, refused;
	unsigned highest; /* highest level that was ordered */
	bool slow;        /* the disk has not written anything yet */
	bool lags;        /* after each write, the next write is slow again */
	bool fails;       /* accepted records cannot be written */
	char last[8192];  /* the last record */
	/* `learns`: an order collects restore data; `learnt`: this data waits to be stored */
	bool learns, learnt;
	bool occupied;  /* an earlier order of the worker still runs */
	bool then_slow; /* the disk becomes slow when an eviction collects restore data */
	/* the disk becomes full when an eviction of this level collects restore data */
	unsigned then_full_at;
	struct guard_order order;
	unsigned gone_on, turned_down;
	bool kept_before; /* the notes were stored before the order continued */
	unsigned forgot;  /* how often notes were dropped */
	unsigned errors;  /* failed resumes, emitted as errors */
} disk;

#define NOTE "model of-the-test"

int store_put_document(struct store *s, const char *kind, const char *id, const char *json,
		       size_t size)
{
	assert_int_equal(strlen(json), size);
	disk.tried++;
	disk.kept += !disk.full;
	if (!disk.full)
		snprintf(disk.last, sizeof(disk.last), "%s", json);
	return disk.full ? -GW_E_SIZE : 0;
}

int store_put_row(struct store *s, const char *kind, const char *id, const char *json,
		  size_t size, unsigned most)
{
	return 0;
}

int store_each_document(struct store *s, const char *kind, unsigned max,
			void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	return 0;
}

void store_delete_document(struct store *s, const char *kind, const char *id)
{
}

void store_commit(struct store *s)
{
	disk.slow = disk.slow || disk.lags;
}

/* Reports that all accepted records are written. It does not know about records that were
 * refused. */
int store_flush(struct store *s, uint64_t timeout_ns)
{
	return disk.fails ? -GW_E_IO : disk.slow ? -GW_E_TIMEOUT : 0;
}

const char *store_problem(struct store *s)
{
	return disk.fails ? "the disk is full" : NULL;
}

bool store_lasting(struct store *s)
{
	return true;
}

static struct {
	char key[96];
	double value;
} count[512];
static unsigned counts;

double store_count_now(struct store *s, const char *key)
{
	for (unsigned i = 0; i < counts; i++)
		if (strcmp(count[i].key, key) == 0)
			return count[i].value;
	return 0;
}

double store_count(struct store *s, const char *key)
{
	return store_count_now(s, key);
}

void store_set_count(struct store *s, const char *key, double value)
{
	unsigned i = 0;

	while (i < counts && strcmp(count[i].key, key) != 0)
		i++;
	assert_true(i < COUNT_OF(count));
	counts += i == counts;
	snprintf(count[i].key, sizeof(count[i].key), "%s", key);
	count[i].value = value;
}

static struct world o;
static struct guard_service g;

int action_order(struct action *a, const struct guard_order *order)
{
	if (disk.occupied)
		return -GW_E_STATE;
	disk.orders++;
	if (order->verb == ORDER_EVICT && disk.learns) {
		disk.learnt = true;
		disk.order = *order;
		disk.slow = disk.then_slow;
		disk.full = order->level == disk.then_full_at;
		return 0;
	}
	if (order->verb == ORDER_EVICT && order->level > disk.highest)
		disk.highest = order->level;
	world_obey(&o, order);
	return 0;
}

bool action_learnt(struct action *a, unsigned worker, struct guard_order *ret)
{
	if (worker == disk.order.worker && disk.learnt)
		*ret = disk.order;
	return worker == disk.order.worker && disk.learnt;
}

void action_go_on(struct action *a, unsigned worker, const char *why_not)
{
	assert_true(disk.learnt);
	disk.learnt = false;
	disk.gone_on += !why_not;
	disk.turned_down += why_not != NULL;
	disk.kept_before = strstr(disk.last, NOTE) != NULL;
	if (!why_not) {
		world_obey(&o, &disk.order);
		return;
	}
	o.outcome[o.outcomes].order = disk.order.id;
	o.outcome[o.outcomes++].ending = ENDING_FAILED;
}

void action_cancel(struct action *a, unsigned worker)
{
	(void)a;
	(void)worker;
}

void action_notes(struct action *a, unsigned worker, char *out, size_t size)
{
	snprintf(out, size, "%s", disk.learnt ? NOTE : "");
}

void action_set_notes(struct action *a, unsigned worker, const char *notes)
{
	disk.forgot += !*notes;
}

void guard_service_outcome(struct guard_service *x, const struct guard_outcome *out)
{
	disk.refused += strstr(out->message, "the journal cannot be written") != NULL;
	guard_outcome(o.g, out, o.now);
}

bool guard_service_next_order(struct guard_service *x, struct guard_order *ret)
{
	return guard_next_order(o.g, ret);
}

bool guard_service_next_decision(void *x, struct guard_decision *ret)
{
	return guard_next_decision(o.g, ret);
}

bool guard_service_next_record(void *x, struct guard_record *ret)
{
	return guard_next_record(o.g, ret);
}

bool guard_reload_waits(const struct guard_service *x)
{
	return false;
}

void guard_reload_try(struct guard_service *x)
{
}

void guard_service_set_requested(struct guard_service *x, const char *worker, const char *by)
{
}

const char *guard_service_requested(const struct guard_service *x, const char *worker)
{
	return "";
}

void guard_service_count_eviction(struct guard_service *x, const struct guard_decision *d)
{
}

double guard_service_threshold_c(const struct guard_service *x, const struct guard_decision *d)
{
	return (double)NAN;
}

static uint64_t record_event(void *arg, const struct view_event *e)
{
	disk.errors += strcmp(e->severity, "error") == 0 && strstr(e->text, "resume failed");
	return 1;
}

static struct guard_settings settings;

static uint64_t time_of_the_world(void *ctx)
{
	return o.now;
}

static const struct clock world_clock = { time_of_the_world, time_of_the_world, NULL, NULL };

static void begin(unsigned level)
{
	memset(&disk, 0, sizeof(disk));
	memset(&g, 0, sizeof(g));
	counts = 0;
	world_init(&o, 1, 1);
	o.p.worker[0].knobs.max_level = level;
	o.p.worker[0].match.unit = "w0.service";
	o.w[0].acts.fail_level = level - 1; /* lower levels do not help */
	world_begin(&o);
	settings.policy = o.p;
	g.settings = &settings;
	g.guard = o.g;
	g.config.emit = record_event;
	g.config.clock = &world_clock;
	guard_counts_load(&g.tally, NULL, &o.p);
}

static void run_for(uint64_t ns)
{
	for (uint64_t end = o.now + ns; o.now < end; o.now += o.step_ns) {
		struct guard_outcome done[WORLD_WORKERS];
		unsigned n = o.outcomes;

		memcpy(done, o.outcome, sizeof(done));
		o.outcomes = 0;
		o.w[0].has_order = false;
		for (unsigned i = 0; i < n; i++)
			guard_outcome(o.g, &done[i], o.now);
		world_scene(&o);
		guard_observe(o.g, &o.s);
		guard_service_pump(&g);
	}
}

TEST(no_order_above_level_2_is_carried_out_if_its_record_cannot_be_stored)
{
	begin(4);
	run_for(S);
	disk.full = true;
	world_guest(&o, "now-game", 0, GIB, S, 0);
	run_for(20 * S);
	assert_true(disk.orders > 0);
	assert_true(disk.refused > 0);
	assert_int_equal(disk.highest, 2);
	assert_true(o.w[0].alive);
	assert_int_not_equal(g.journal.unsaved, 0);
	world_done(&o);
}

TEST(a_record_that_did_not_fit_is_stored_later_and_then_orders_continue)
{
	unsigned kept;

	begin(4);
	run_for(S);
	disk.full = true;
	world_guest(&o, "now-game", 0, GIB, S, 0);
	run_for(10 * S);
	kept = disk.kept;
	disk.full = false;
	run_for(120 * S);
	assert_true(disk.kept > kept);
	assert_int_equal(g.journal.unsaved, 0);
	assert_int_equal(disk.highest, 4);
	assert_false(o.w[0].alive);
	world_done(&o);
}

TEST(an_order_that_waits_for_an_earlier_one_takes_no_try_and_no_level)
{
	begin(4);
	o.w[0].acts.fail_level = 0;
	run_for(S);
	disk.occupied = true;
	world_guest(&o, "now-game", 0, GIB, S, 0);
	run_for(20 * S); /* half of this time it drains */
	assert_int_equal(disk.orders, 0);
	disk.occupied = false;
	run_for(5 * S);
	assert_int_equal(disk.highest, 2);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

static loop_timer_fn *timer;

int loop_add_timer(struct loop *l, loop_timer_fn *fn, void *arg, struct loop_source **ret)
{
	timer = fn;
	*ret = (struct loop_source *)&timer;
	return 0;
}

void loop_set_time(struct loop_source *s, uint64_t t_ns)
{
}

TEST(notes_of_an_order_are_in_the_journal_before_it_continues)
{
	begin(2);
	o.w[0].acts.fail_level = 0;
	disk.learns = disk.then_slow = true;
	assert_int_equal(guard_service_journal_open(&g), 0);
	run_for(S);
	world_guest(&o, "now-game", 0, GIB, S, 0);
	for (unsigned i = 0; i < 1000 && !disk.learnt; i++)
		run_for(o.step_ns);
	run_for(S / 2);
	assert_true(disk.learnt);
	assert_int_equal(disk.gone_on, 0);
	disk.slow = false;
	/* later writes are slow, but the order waits only once for its restore data */
	disk.lags = true;
	timer(&g, o.now);
	assert_int_equal(disk.gone_on, 1);
	assert_true(disk.kept_before);
	world_done(&o);
}

/* As run_for(), with the timer that looks whether records were stored. */
static void run_with_timer(uint64_t ns)
{
	for (uint64_t end = o.now + ns; o.now < end;) {
		run_for(o.step_ns);
		timer(&g, o.now);
	}
}

TEST(a_disk_that_hangs_stops_orders_up_to_level_2_only_for_a_moment)
{
	begin(2);
	o.w[0].acts.fail_level = 0;
	assert_int_equal(guard_service_journal_open(&g), 0);
	run_for(S);
	disk.slow = disk.lags = true;
	world_guest(&o, "now-game", 0, GIB, S, 60 * S);
	run_with_timer(4 * S);
	assert_int_equal(disk.orders, 0);
	assert_int_equal(world_state(&o, 0), STATE_DRAIN);
	run_with_timer(6 * S);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	assert_int_equal(g.view.journal, GUARD_JOURNAL_FAILS);
	/* later orders do not wait again, although each has a new record */
	run_with_timer(80 * S);
	assert_int_equal(world_state(&o, 0), STATE_ACTIVE);
	assert_int_equal(o.w[0].verbs[ORDER_RESUME], 1);
	world_done(&o);
}

TEST(a_disk_that_hangs_refuses_higher_levels_until_it_has_written)
{
	begin(4);
	assert_int_equal(guard_service_journal_open(&g), 0);
	run_for(S);
	disk.slow = disk.lags = true;
	world_guest(&o, "now-game", 0, GIB, S, 0);
	run_with_timer(60 * S);
	assert_true(disk.refused > 0);
	assert_int_equal(disk.highest, 2);
	disk.slow = disk.lags = false;
	run_with_timer(S);
	assert_int_equal(g.journal.last, WRITE_OK);
	assert_int_equal(g.view.journal, GUARD_JOURNAL_OK);
	run_with_timer(60 * S);
	assert_int_equal(disk.highest, 4);
	assert_int_equal(world_state(&o, 0), STATE_EVICTED);
	world_done(&o);
}

TEST(notes_are_deleted_when_nothing_is_left_to_undo)
{
	unsigned forgot;

	begin(2);
	o.w[0].acts.fail_level = 0;
	run_for(S);
	world_guest(&o, "now-game", 0, GIB, S, 60 * S);
	for (unsigned i = 0; i < 1000 && o.w[0].verbs[ORDER_EVICT] == 0; i++)
		run_for(o.step_ns);
	forgot = disk.forgot;
	run_for(10 * S);
	assert_int_equal(disk.forgot, forgot); /* the worker is evicted: the notes are needed */
	for (unsigned i = 0; i < 10000 && o.w[0].verbs[ORDER_RESUME] == 0; i++)
		run_for(o.step_ns);
	run_for(60 * S);
	assert_true(disk.forgot > forgot);
	world_done(&o);
}

TEST(an_order_above_level_2_is_refused_if_its_notes_cannot_be_stored)
{
	begin(4);
	run_for(S);
	world_guest(&o, "now-game", 0, GIB, S, 0);
	disk.learns = true;
	disk.then_full_at = 4;
	for (unsigned i = 0; i < 1000 && !disk.turned_down; i++)
		run_for(o.step_ns);
	assert_true(disk.turned_down > 0);
	assert_true(o.w[0].alive);
	disk.full = false;
	disk.then_full_at = 0;
	run_for(120 * S);
	assert_false(o.w[0].alive);
	world_done(&o);
}

TEST(the_view_shows_at_once_whether_a_request_is_stored)
{
	char message[200];

	begin(2);
	run_for(S);
	assert_int_equal(g.view.journal, GUARD_JOURNAL_OK);
	disk.fails = true;
	assert_int_equal(guard_request(o.g, 0, REQUEST_HOLD_EVICTED, UINT64_MAX, o.now, message,
				       sizeof(message)),
			 0);
	guard_service_pump(&g);
	assert_int_equal(g.view.journal, GUARD_JOURNAL_FAILS);
	run_for(20 * S);
	assert_int_equal(g.view.journal, GUARD_JOURNAL_FAILS);
	disk.fails = false; /* no new decision: the waiting records are written */
	guard_service_pump(&g);
	assert_int_equal(g.journal.last, WRITE_OK);
	assert_int_equal(g.view.journal, GUARD_JOURNAL_OK);
	world_done(&o);
}

TEST(a_failed_resume_is_logged_as_an_error)
{
	begin(2);
	o.w[0].acts.fail_level = 0;
	o.w[0].acts.wont_return = true;
	run_for(S);
	world_guest(&o, "now-game", 0, GIB, S, 10 * S);
	run_for(200 * S);
	assert_true(disk.errors > 0);
	world_done(&o);
}

TEST(the_time_to_free_begins_with_the_first_order_and_is_the_workers_own)
{
	struct guard_status s;

	begin(4);
	o.w[0].acts.busy = true; /* drains for the longest allowed time */
	run_for(S);
	world_guest(&o, "now-game", 0, GIB, S, 0);
	run_for(120 * S);
	assert_int_equal(guard_status(o.g, 0, &s), 0);
	assert_int_equal(s.state, STATE_EVICTED);
	assert_true(s.freed_ns > o.p.standard.drain_ns);
	assert_true(fabs(g.view.counts.free_seconds_last - (double)s.freed_ns * 1e-9) < 1e-6);
	/* the worker's last move names the process that it left for */
	assert_int_equal(g.moves.workers, 1);
	assert_in(moves_last(&g.moves.worker[0], MOVE_LEAVE, false)->cause,
		  "for now-game (pid ");
	assert_in(moves_last(&g.moves.worker[0], MOVE_LEAVE, false)->cause, ", 1.0 GiB)");
	world_done(&o);
}

TEST(counts_of_a_removed_worker_stay_in_the_totals)
{
	struct guard_decision d = { .result = RESULT_FREED, .level = 2 };
	struct policy *p = calloc(1, sizeof(*p));
	char name[16];

	begin(2);
	assert_non_null(p);
	memset(&g.tally, 0, sizeof(g.tally));
	p->workers = 1;
	for (unsigned i = 0; i < POLICY_WORKERS + 8; i++) {
		snprintf(name, sizeof(name), "gone%u", i);
		p->worker[0].name = name;
		guard_counts_load(&g.tally, NULL, p);
		guard_counts_add(&g.tally, NULL, name, &d);
		assert_int_equal(counters_evictions(counters_find(&g.tally, name)->cell), 1);
	}
	assert_int_equal(g.tally.workers, 1);
	assert_int_equal(counters_evictions(g.tally.all), POLICY_WORKERS + 8);
	snprintf(name, sizeof(name), "gone0"); /* this worker comes back */
	guard_counts_load(&g.tally, NULL, p);
	assert_int_equal(counters_evictions(counters_find(&g.tally, name)->cell), 1);
	assert_int_equal(counters_evictions(g.tally.all), POLICY_WORKERS + 8);
	free(p);
	world_done(&o);
}

TEST_MAIN(NULL, NULL)
