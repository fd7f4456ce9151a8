/* Tests a new configuration for a running guard, in simulated time: when it is applied, and
 * what stays from the old configuration. */
#include "daemon/guard_service_parts.h"

#include "guard_world.h"

#include "test.h"

static struct world o;
static struct guard_service g;
static struct clock_stepped stepped;

static struct {
	bool idle, settled; /* results of action_idle() and scene_thread_settled() */
	int change_err;
	unsigned changes, freed, pumps, logged, opened;
	char text[700];
	char forgotten[64], kept[64];
	const struct policy *looks_by, *acts_by;
	int from[POLICY_WORKERS];
} seen;

#include "guard_log.h"

bool action_idle(struct action *a)
{
	return seen.idle;
}

int action_policy(struct action *a, const struct policy *p, const int *from)
{
	seen.acts_by = p;
	memcpy(seen.from, from, p->workers * sizeof(*from));
	return 0;
}

void scene_thread_policy(struct scene_thread *k, const struct policy *p,
			 const struct scene_builder_formers *f)
{
	seen.looks_by = p;
}

bool scene_thread_settled(struct scene_thread *k)
{
	return seen.settled;
}

int guard_settings_copy(struct guard_settings *ret, const struct guard_settings *s)
{
	*ret = *s;
	return 0;
}

void guard_settings_done(struct guard_settings *s)
{
	seen.freed++;
}

int store_put_document(struct store *s, const char *kind, const char *id, const char *json,
		       size_t size)
{
	return 0;
}

void store_delete_document(struct store *s, const char *kind, const char *id)
{
}

int store_each_document(struct store *s, const char *kind, unsigned max,
			void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	return 0;
}

void guard_counts_load(struct guard_counters *t, struct store *store, const struct policy *p)
{
}

void guard_moves_load(struct moves *m, struct store *store, const struct policy *p)
{
}

int guard_service_change(struct guard_service *x, const struct guard_settings *next,
			 const struct guard_service_records *r)
{
	if (seen.change_err)
		return seen.change_err;
	seen.changes++;
	return guard_change_policy(o.g, &next->policy, r->record, r->count,
				   guard_service_time_ns(x));
}

void guard_service_record_open(struct guard_service *x)
{
	seen.opened++;
}

int guard_service_records_read(struct guard_service *x, struct guard_service_records **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return 0;
}

void guard_service_formers(const struct guard_service_records *r, const struct policy *p,
			   struct scene_builder_formers *ret)
{
	ret->count = 0;
}

void guard_service_give_notes(struct guard_service *x, const struct guard_service_records *r,
			      unsigned worker)
{
}

void guard_service_log_decisions(struct guard_service *x)
{
}

int guard_service_store_record(struct guard_service *x, const struct guard_record *r)
{
	snprintf(seen.kept, sizeof(seen.kept), "%s", r->worker);
	return 0;
}

void guard_service_forget(struct guard_service *x, const char *worker)
{
	snprintf(seen.forgotten, sizeof(seen.forgotten), "%s", worker);
}

void guard_service_commit(struct guard_service *x)
{
}

void guard_service_pump(struct guard_service *x)
{
	seen.pumps++;
}

void guard_service_fit(struct guard_service *x, struct guard_settings *s)
{
	if (x->mode.chosen)
		s->policy.mode = x->mode.mode;
}

const struct guard_view *guard_service_view(struct guard_service *x)
{
	return &x->view;
}

void guard_service_health_swapped(struct guard_service *x)
{
}

int guard_inputs_prepare(const struct guard_settings *s, struct guard_inputs_parts **ret)
{
	*ret = NULL;
	return 0;
}

void guard_inputs_change(struct guard_inputs *b, struct guard_inputs_parts *p)
{
}

static void begin(void)
{
	memset(&seen, 0, sizeof(seen));
	memset(&g, 0, sizeof(g));
	seen.idle = true;
	world_init(&o, 1, 2);
	o.w[0].load[0] = o.w[1].load[0] = 3 * GIB;
	world_begin(&o);
	world_run(&o, 5 * S);
	clock_stepped_init(&stepped, o.now, o.now);
	g.settings = calloc(1, sizeof(*g.settings));
	g.settings->policy = o.p;
	g.guard = o.g;
	g.scenes = (struct scene_thread *)&g; /* never read */
	g.config.clock = &stepped.clock;
}

static void end(void)
{
	guard_reload_close(&g);
	free(g.settings);
	world_done(&o);
}

/* Gives a configuration without the first `without` workers and with another quiet time. */
static void give(unsigned without)
{
	struct guard_settings next = { .policy = o.p };

	next.policy.workers = o.p.workers - without;
	memmove(&next.policy.worker[0], &o.p.worker[without],
		next.policy.workers * sizeof(o.p.worker[0]));
	next.policy.standard.quiet_ns += S;
	guard_service_reload(&g, &next);
}

static void pass(uint64_t ns)
{
	clock_step(&stepped, ns);
	guard_reload_try(&g);
}

TEST(another_configuration_comes_at_once_where_nothing_is_under_way)
{
	struct guard_status s;

	begin();
	give(1);
	assert_int_equal(seen.changes, 1);
	assert_int_equal(seen.opened, 1);
	assert_null(g.reload.next);
	assert_int_equal(g.settings->policy.workers, 1);
	assert_ptr_equal(seen.looks_by, &g.settings->policy);
	assert_ptr_equal(seen.acts_by, &g.settings->policy);
	assert_int_equal(seen.from[0], 1);
	assert_string_equal(seen.forgotten, "w0");
	assert_int_equal(guard_status(g.guard, 0, &s), 0);
	assert_int_equal(s.state, STATE_ACTIVE); /* w1, in the same state as before */
	assert_in(seen.text, "1 worker, 0 added, 1 removed");
	assert_int_equal(seen.freed, 0); /* a thread may still read the old settings */
	pass(S);
	assert_int_equal(seen.freed, 0);
	seen.settled = true;
	pass(S);
	assert_int_equal(seen.freed, 1);
	end();
}

TEST(a_reload_waits_for_a_running_order_and_delays_new_orders_for_a_while)
{
	begin();
	seen.idle = false;
	give(0);
	assert_int_equal(seen.changes, 0);
	assert_false(guard_reload_waits(&g));
	pass(5 * S);
	assert_false(guard_reload_waits(&g));
	pass(1);
	/* no new orders are given, so that the current order can finish */
	assert_true(guard_reload_waits(&g));
	pass(14 * S);
	assert_true(guard_reload_waits(&g));
	assert_int_equal(seen.logged, 0);
	pass(S);
	/* new orders are given again, because a contender may need a GPU */
	assert_false(guard_reload_waits(&g));
	assert_int_equal(seen.logged, 1);
	assert_in(seen.text, "still uses the old configuration");
	pass(60 * S);
	assert_int_equal(seen.logged, 1);
	seen.idle = true;
	g.journal.writing = true; /* the record of the order is not stored yet */
	pass(S);
	assert_int_equal(seen.changes, 0);
	g.journal.writing = false;
	pass(S);
	assert_int_equal(seen.changes, 1);
	end();
}

TEST(a_second_waiting_configuration_keeps_the_deadline_of_the_first)
{
	begin();
	seen.idle = false;
	give(0);
	pass(4 * S);
	give(1);
	assert_int_equal(seen.freed, 1);
	pass(S + 1);
	assert_true(guard_reload_waits(&g));
	seen.idle = true;
	pass(S);
	assert_int_equal(seen.changes, 1);
	assert_int_equal(g.settings->policy.workers, 1);
	end();
}

TEST(a_configuration_that_cannot_be_applied_leaves_the_old_one_in_force)
{
	struct guard_settings *old;

	begin();
	old = g.settings;
	seen.change_err = -GW_E_NOMEM;
	give(1);
	assert_ptr_equal(g.settings, old);
	assert_null(g.reload.next);
	assert_int_equal(seen.freed, 1);
	assert_null(seen.looks_by);
	assert_string_equal(seen.forgotten, "");
	assert_in(seen.text, "keeps the old configuration");
	end();
}

TEST(a_worker_removed_while_it_is_evicted_keeps_its_record_and_is_logged)
{
	begin();
	world_ask(&o, 0, REQUEST_EVICT, 0);
	world_run(&o, 20 * S);
	clock_step(&stepped, 20 * S);
	give(1);
	assert_int_equal(seen.changes, 1);
	assert_string_equal(seen.kept, "w0");
	assert_string_equal(seen.forgotten, "");
	assert_int_equal(seen.logged, 2); /* one more log line, about the configuration */
	end();
}

/* Tests records of earlier runs when the service starts. */
TEST(recorded_workers_missing_in_the_file_are_reported_while_they_may_run)
{
	static const struct {
		const char *name, *kind;
		int64_t pid;
		bool past;
		const char *said; /* NULL: the record is deleted */
	} rows[] = {
		{ "w0", "vllm", 0, false, "" }, /* the worker is in the configuration */
		{ "a", "vllm", 0, false, "POST /wake_up" },
		{ "b", "vllm", INT32_MAX, false, NULL }, /* it ended */
		{ "c", "ollama", 0, true, NULL },
		{ "d", "systemd", 0, true, NULL },
		{ "d", "systemd", INT32_MAX, false, "start its unit" },
		{ "e", "signal", 0, false, "send its resume_signal" },
		{ "f", "checkpoint", 0, false, "gpuward guard recover" },
		{ "g", "", 0, false, "by hand" },
	};
	struct guard_service_records *r = calloc(1, sizeof(*r));

	begin();
	r->count = 1;
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		const char *said = rows[i].said;

		memset(r, 0, sizeof(*r));
		r->count = 1;
		r->record[0].evicted = true;
		r->record[0].level = 2;
		r->record[0].roots = rows[i].pid != 0;
		r->record[0].root[0].pid = rows[i].pid;
		r->more[0].past = rows[i].past;
		snprintf(r->record[0].worker, sizeof(r->record[0].worker), "%s", rows[i].name);
		snprintf(r->more[0].kind, sizeof(r->more[0].kind), "%s", rows[i].kind);
		seen.text[0] = seen.forgotten[0] = '\0';
		guard_service_log_missing(&g, r);
		assert_string_equal(seen.forgotten, said ? "" : rows[i].name);
		assert_int_equal(seen.text[0] != '\0', said && *said);
		assert_in(seen.text, said ? said : "");
	}
	free(r);
	end();
}

TEST(after_a_reload_only_decisions_of_remaining_workers_are_listed)
{
	begin();
	g.view.first = GUARD_VIEW_DECISIONS - 1; /* the ring wraps around */
	g.view.decisions = 3;
	for (unsigned i = 0; i < 3; i++) {
		struct guard_view_decision *d =
			&g.journal.ring[(g.view.first + i) % GUARD_VIEW_DECISIONS];

		d->id = i + 1;
		d->decision.worker = i != 1;
	}
	give(1);
	assert_int_equal(g.view.decisions, 2);
	assert_int_equal(g.journal.ring[GUARD_VIEW_DECISIONS - 1].id, 1);
	assert_int_equal(g.journal.ring[GUARD_VIEW_DECISIONS - 1].decision.worker, 0);
	assert_int_equal(g.journal.ring[0].id, 3);
	end();
}

TEST(a_mode_that_a_person_sets_waits_for_the_order_under_way_and_keeps_a_waiting_file)
{
	begin();
	g.mode = (struct guard_view_mode){ .chosen = true, .mode = GUARD_DRY_RUN };
	guard_reload_mode(&g);
	assert_int_equal(seen.changes, 1);
	assert_int_equal(g.settings->policy.mode, GUARD_DRY_RUN);
	assert_int_equal(g.settings->policy.workers, 2);
	assert_string_equal(seen.text, "the guard's mode is now dry-run");

	seen.idle = false;
	give(1);
	g.mode.mode = GUARD_OBSERVE;
	guard_reload_mode(&g);
	assert_int_equal(seen.changes, 1);
	assert_int_equal(g.settings->policy.mode, GUARD_DRY_RUN);
	seen.idle = true;
	pass(S);
	assert_int_equal(g.settings->policy.mode, GUARD_OBSERVE);
	/* the change of the mode did not discard the new file */
	assert_int_equal(g.settings->policy.workers, 1);
	assert_in(seen.text, "the guard uses the new configuration: 1 worker");
	end();
}

TEST_MAIN(NULL, NULL)
