/* Tests the journal of changed settings on simulated GPUs, and the answers of
 * /api/gpu/manage. */
#include "api_fixture.h"

#include "daemon/settings.h"

#define H200 "[[gpu]]\nprofile = \"h200\"\nnoise = 0\necc_corrected = 7\n"

static struct {
	char id[16][128], json[16][1024];
	unsigned count;
	struct store *store;
	bool store_fails;
	char event[64][600];
	unsigned events;
	struct manage_journal *of;
	struct manage_result result;
	unsigned changes;
	int not_yet; /* how often managed() still returns no result */
	int manage_answer;
} journal;

static void see_document(void *arg, const char *id, const char *json)
{
	unsigned i = journal.count++;

	assert_true(i < COUNT_OF(journal.id));
	snprintf(journal.id[i], sizeof(journal.id[i]), "%s", id);
	snprintf(journal.json[i], sizeof(journal.json[i]), "%s", json);
}

/* Reads the stored documents into `journal`. Returns their number. */
static unsigned documents(void)
{
	journal.count = 0;
	assert_true(store_each_document(journal.store, MANAGE_DOC_KIND, 16, see_document,
					NULL) >= 0);
	return journal.count;
}

static void note(const char *uuid, const char *severity, const char *text)
{
	assert_true(journal.events < 64);
	snprintf(journal.event[journal.events++], sizeof(journal.event[0]), "%s %s %s",
		 severity, uuid ? "gpu" : "machine", text);
}

static void doc_log(void *arg, const char *uuid, const char *severity, const char *text)
{
	note(uuid, severity, text);
}

static void new_journal(void)
{
	assert_int_equal(
		manage_journal_new(journal.store, doc_log, NULL, &sim.clock, &journal.of), 0);
}

/* Starts with an empty store in memory. */
static void begin_journal(void)
{
	char message[256];

	memset(&journal, 0, sizeof(journal));
	assert_int_equal(store_open(NULL, 1 << 20, &journal.store, message, sizeof(message)),
			 0);
	new_journal();
}

static void start(const char *text)
{
	sim_start(text);
	sim_take(GW_TIERS_COMMON, 0);
	begin_journal();
}

static int stop(void **state)
{
	manage_journal_free(journal.of);
	store_close(journal.store);
	memset(&journal, 0, sizeof(journal));
	return sim_teardown(state);
}

#define JOURNAL_TEST(name) TEST_WITH(name, NULL, stop)

static const char *uuid(void)
{
	return gw_device_text(gw_snapshot_device(sim.snap, 0), GW_T_UUID);
}

/* Carries out a change as settings.c does. */
static int carry_out(struct manage_change *o)
{
	struct manage_result *r = &journal.result;

	journal.changes++;
	manage_journal_fill(journal.of, o);
	manage_run(sim.ctx, o, NULL, r);
	if (r->outcome == MANAGE_UNSTORED) {
		double before[2] = { r->before[0], r->before[1] };

		assert_int_equal(manage_journal_begin(journal.of, o, before), 0);
		if (journal.store_fails)
			*r = (struct manage_result){ .error = -GW_E_IO };
		else
			manage_run(sim.ctx, o, before, r);
	}
	manage_journal_done(journal.of, o, r);
	return r->error;
}

static struct manage_change change(enum manage_what what, double a, double b)
{
	struct manage_change o = { .what = what,
				   .value = { a, b },
				   .ours = { NAN, NAN },
				   .earlier = { NAN, NAN },
				   .who = "token" };

	snprintf(o.uuid, sizeof(o.uuid), "%s", uuid());
	return o;
}

static int set(enum manage_what what, double a, double b)
{
	struct manage_change o = change(what, a, b);

	return carry_out(&o);
}

/* Sets the power limit without the journal, as nvidia-smi would. */
static void somebody_else_sets(double watts)
{
	struct manage_change o = change(MANAGE_POWER_LIMIT, watts, NAN);
	struct manage_result r;

	o.keep = true;
	assert_int_equal(manage_run(sim.ctx, &o, NULL, &r), 0);
}

/* Returns the number of settings that must be restored. */
static unsigned entries(void)
{
	static struct manage_change out[16];

	return manage_journal_changes(journal.of, out, 16);
}

/* Restores all settings, as the service does when it stops and when it starts. */
static void put_all_back(void)
{
	struct manage_change out[16];
	unsigned n = manage_journal_changes(journal.of, out, 16);

	for (unsigned i = 0; i < n; i++) {
		struct manage_result r;

		manage_run(sim.ctx, &out[i], NULL, &r);
		manage_journal_done(journal.of, &out[i], &r);
	}
}

/* Simulates a crash: the journal is freed without cleanup, and a new journal loads the stored
 * documents. */
static void crash(void)
{
	manage_journal_free(journal.of);
	new_journal();
	manage_journal_load(journal.of);
	assert_int_equal(entries(), documents());
}

static double now(unsigned q)
{
	return sim_value(sim_take(GW_TIERS_COMMON | GW_TIER_HEALTH | GW_TIER_LIMITS, 0), q);
}

static bool logged(const char *part)
{
	for (unsigned i = 0; i < journal.events; i++)
		if (strstr(journal.event[i], part))
			return true;
	return false;
}

JOURNAL_TEST(changes_are_restored_at_the_end)
{
	start(H200 "persistence = false\n");
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_true(journal.result.restored_on_exit);
	assert_int_equal(set(MANAGE_PERSISTENCE, 1, NAN), 0);
	assert_int_equal(set(MANAGE_COMPUTE_MODE, 3, NAN), 0);
	assert_int_equal(set(MANAGE_GPU_CLOCKS, 210e6, 900e6), 0);
	assert_int_equal(documents(), 4);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_true(now(GW_Q_PERSISTENCE) == 0);
	assert_true(now(GW_Q_COMPUTE_MODE) == 0);
	assert_int_equal(sim_calls("nvmlDeviceResetGpuLockedClocks"), 1);
	assert_int_equal(documents(), 0);
	assert_int_equal(entries(), 0);
	assert_true(
		logged("info gpu token: the power limit is 400 W now; it was 700 W; the old "
		       "value is restored when the service stops"));
	assert_true(logged("info gpu gpuward: the power limit is 700 W now; it was 400 W"));
}

JOURNAL_TEST(changes_are_restored_after_a_crash)
{
	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_int_equal(set(MANAGE_MEMORY_CLOCKS, 1500e6, 1500e6), 0);
	crash();
	assert_int_equal(entries(), 2);
	assert_true(now(GW_Q_POWER_LIMIT) == 400);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_int_equal(sim_calls("nvmlDeviceResetMemoryLockedClocks"), 1);
	assert_int_equal(documents(), 0);
	crash(); /* after another crash nothing is left to restore */
	put_all_back();
	assert_int_equal(entries(), 0);
}

JOURNAL_TEST(after_two_changes_the_first_value_is_restored)
{
	start(H200);
	somebody_else_sets(650);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 500, NAN), 0);
	assert_int_equal(documents(), 1);
	crash();
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 650);
}

JOURNAL_TEST(a_crash_between_recording_and_setting_is_not_a_foreign_change)
{
	struct manage_change o;

	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	o = change(MANAGE_POWER_LIMIT, 500, NAN);
	assert_int_equal(manage_journal_begin(journal.of, &o, (double[]){ 400, NAN }), 0);
	crash(); /* 400 W are set; the change to 500 W is stored, but was not made */
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_int_equal(documents(), 0);
}

JOURNAL_TEST(a_foreign_change_is_left_unchanged)
{
	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	somebody_else_sets(450);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 450);
	assert_int_equal(documents(), 0);
	assert_true(
		logged("warning gpu gpuward: the power limit is 450 W; someone else changed "
		       "it after gpuward set it to 400 W, so it is left unchanged"));
}

JOURNAL_TEST(after_a_foreign_change_its_value_is_the_old_one)
{
	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	somebody_else_sets(450);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 300, NAN), 0);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 450);
}

JOURNAL_TEST(a_value_restored_by_a_driver_reload_is_not_set_again)
{
	uint64_t calls;

	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	somebody_else_sets(700);
	calls = sim_calls("nvmlDeviceSetPowerManagementLimit_v2");
	put_all_back();
	assert_int_equal(sim_calls("nvmlDeviceSetPowerManagementLimit_v2"), calls);
	assert_int_equal(documents(), 0);
	assert_false(logged("warning"));
}

JOURNAL_TEST(a_permanent_change_is_not_restored)
{
	struct manage_change o;

	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	o = change(MANAGE_POWER_LIMIT, 400, NAN);
	o.keep = true; /* 400 W is set already: now it becomes permanent */
	assert_int_equal(carry_out(&o), 0);
	assert_false(journal.result.restored_on_exit);
	assert_int_equal(documents(), 0);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 400);
}

JOURNAL_TEST(setting_the_old_value_again_ends_the_entry)
{
	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 700, NAN), 0);
	assert_false(journal.result.restored_on_exit);
	assert_int_equal(documents(), 0);
}

JOURNAL_TEST(a_refused_order_leaves_the_journal_unchanged)
{
	char before[1024];

	start(H200);
	sim_fault("nvmlDeviceSetPowerManagementLimit_v2", -1, ABI_NO_PERMISSION);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_PERM);
	assert_int_equal(documents(), 0);
	assert_int_equal(entries(), 0);
	sim_fault("nvmlDeviceSetPowerManagementLimit_v2", -1, 0);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	assert_int_equal(documents(), 1);
	memcpy(before, journal.json[0], sizeof(before));
	assert_int_equal(set(MANAGE_POWER_LIMIT, 9000, NAN), -GW_E_ARG);
	sim_fault("nvmlDeviceSetPowerManagementLimit_v2", -1, ABI_IN_USE);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 500, NAN), -GW_E_STATE);
	assert_int_equal(documents(), 1);
	assert_string_equal(journal.json[0], before);
	sim_fault("nvmlDeviceSetPowerManagementLimit_v2", -1, 0);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
}

JOURNAL_TEST(a_setting_is_not_changed_if_it_cannot_be_recorded)
{
	start(H200);
	journal.store_fails = true;
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_IO);
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_int_equal(documents(), 0);
	assert_int_equal(entries(), 0);
}

JOURNAL_TEST(a_value_that_the_driver_changed_is_restored_too)
{
	start(H200
	      "[[fault]]\ncall = \"nvmlDeviceSetPowerManagementLimit_v2\"\nvalue = 450000\n"
	      "until = 5\n");
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_STATE);
	assert_true(now(GW_Q_POWER_LIMIT) == 450);
	assert_int_equal(documents(), 1);
	sim_step(6 * NS_PER_S);
	crash();
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
}

JOURNAL_TEST(a_failed_restore_is_repeated_at_the_next_start)
{
	start(H200);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), 0);
	sim_fault("nvmlDeviceSetPowerManagementLimit_v2", -1, ABI_NO_PERMISSION);
	put_all_back();
	assert_int_equal(documents(), 1);
	assert_true(logged("warning gpu gpuward: the power limit could not be changed"));
	sim_fault("nvmlDeviceSetPowerManagementLimit_v2", -1, 0);
	crash();
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_int_equal(documents(), 0);
}

JOURNAL_TEST(a_setting_is_restored_after_its_call_hung)
{
	sim_text(H200);
	sim_open_with(NULL, 0, 200 * NS_PER_MS);
	sim_take(GW_TIERS_COMMON, 0);
	begin_journal();
	sim_hang("nvmlDeviceSetPowerManagementLimit_v2", -1);
	assert_int_equal(set(MANAGE_POWER_LIMIT, 400, NAN), -GW_E_TIMEOUT);
	assert_int_equal(documents(), 1);
	sim_unhang(); /* the call returns late and sets the limit */
	assert_true(call_thread_wait(sim.ctx->slot[0]->thread,
				     clock_mono_ns(clock_real()) + 10 * NS_PER_S));
	assert_true(now(GW_Q_POWER_LIMIT) == 400);
	put_all_back();
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_int_equal(documents(), 0);
}

JOURNAL_TEST(foreign_documents_are_reported_and_left_unchanged)
{
	static const char *const bad[][2] = {
		{ "GPU-1/power-limit", "{" },
		{ "GPU-1/power-limit", "[]" },
		{ "GPU-1/power-limit", "{}" },
		{ "GPU-1/fan", "{\"before\":{\"watts\":1},\"after\":{\"watts\":2}}" },
		{ "GPU-1", "{\"before\":{\"watts\":1},\"after\":{\"watts\":2}}" },
		{ "GPU-1/power-limit",
		  "{\"before\":{\"watts\":\"1\"},\"after\":{\"watts\":2}}" },
		{ "GPU-1/compute-mode",
		  "{\"before\":{\"mode\":\"odd\"},\"after\":{\"mode\":\"default\"}}" },
	};

	start(H200);
	for (unsigned i = 0; i < COUNT_OF(bad); i++) {
		assert_int_equal(store_put_document(journal.store, MANAGE_DOC_KIND, bad[i][0],
						    bad[i][1], strlen(bad[i][1])),
				 0);
		manage_journal_load(journal.of);
		assert_int_equal(journal.events, i + 1);
		assert_int_equal(documents(), 1);
		store_delete_document(journal.store, MANAGE_DOC_KIND, bad[i][0]);
	}
	assert_int_equal(entries(), 0);
}

TEST(entries_are_read_as_they_were_written)
{
	static const double values[MANAGE_CLEAR_ECC][2][2] = {
		[MANAGE_PERSISTENCE] = { { 0, NAN }, { 1, NAN } },
		[MANAGE_POWER_LIMIT] = { { 650.125, NAN }, { 400, NAN } },
		[MANAGE_COMPUTE_MODE] = { { 2, NAN }, { 3, NAN } },
		[MANAGE_GPU_CLOCKS] = { { NAN, NAN }, { 210e6, 1980e6 } },
		[MANAGE_MEMORY_CLOCKS] = { { NAN, NAN }, { 405e6, 1500e6 } },
	};

	for (unsigned i = 0; i < MANAGE_CLEAR_ECC; i++) {
		struct manage_entry e = { .uuid = "GPU-a/b",
					  .what = (enum manage_what)i,
					  .wall_ns = 1234567890123456789u,
					  .earlier = { NAN, NAN },
					  .who = "uid 1000 \"x\"" },
				    back;
		char id[MANAGE_DOC_ID_SIZE], text[1024];
		struct buf doc;

		memcpy(e.before, values[i][0], sizeof(e.before));
		memcpy(e.after, values[i][1], sizeof(e.after));
		if (i == MANAGE_POWER_LIMIT)
			e.earlier[0] = 500;
		buf_init_fixed(&doc, text, sizeof(text));
		manage_entry_write(&doc, &e);
		manage_entry_id(&e, id);
		assert_int_equal(manage_entry_read(id, text, &back), 0);
		assert_string_equal(back.uuid, e.uuid);
		assert_string_equal(back.who, e.who);
		assert_int_equal(back.what, i);
		assert_true(back.wall_ns == e.wall_ns);
		assert_true(manage_same(e.what, back.before, e.before));
		assert_true(manage_same(e.what, back.after, e.after));
		assert_true(manage_same(e.what, back.earlier, e.earlier));
	}
}

static struct api api;
static struct request query;
static struct reply reply;
static char problem[512], remedy[256], body[16384];
static void *memory;
static const char *content_type;

static int engine_manage(void *engine, const struct manage_change *o)
{
	struct manage_change mine = *o;

	if (journal.manage_answer)
		return journal.manage_answer;
	carry_out(&mine);
	return 7;
}

static int engine_managed(void *engine, int ticket, struct manage_result *ret)
{
	if (ticket != 7)
		return -GW_E_NOENT;
	if (journal.not_yet-- > 0)
		return 0;
	*ret = journal.result;
	return 1;
}

static int engine_kept(void *engine, const char *kind, unsigned max,
		       void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	assert_string_equal(kind, "manage");
	return store_each_document(journal.store, kind, max, each, arg);
}

static uint64_t engine_log(void *engine, const struct view_event *e)
{
	assert_string_equal(e->kind, "manage");
	note(e->uuid, e->severity, e->text);
	return 1;
}

static const struct view_ops view_ops = { .emit = engine_log,
					  .each_document = engine_kept,
					  .manage = engine_manage,
					  .managed = engine_managed };

/* Copies a string of the reply to out, without its backslashes; "" if it is absent. */
static void copy_member(const char *name, char *out, size_t size)
{
	char *text = json_at(body, name);
	size_t n = 0;

	for (const char *p = text ? text : ""; *p && n + 1 < size; p++)
		if (*p != '\\')
			out[n++] = *p;
	out[n] = '\0';
	free(text);
}

/* Calls the handler until it answers; returns the status. */
static int call(route_fn *fn, const char *gpu, const char *word, const char *text)
{
	query = (struct request){ .path = "/api/gpu/manage/...",
				  .arg = { gpu, word },
				  .body = text,
				  .size = strlen(text),
				  .trusted = true,
				  .who = "token",
				  .id = "r1",
				  .memory = &memory };
	api.view.snap = sim.snap;
	api.view.tick = 1;
	api.view.ops = &view_ops;
	api.clock = &sim.clock;
	memory = NULL;
	fake.head.count = 0;
	if (content_type)
		fake_add(&fake.head, "Content-Type", content_type);
	do {
		reply = (struct reply){ .status = 200 };
		buf_init_fixed(&reply.body, body, sizeof(body));
		fake.again_ns = 0;
		fn(&api, &query, &reply);
		query.tries++;
		if (fake.again_ns)
			sim_step(fake.again_ns - sim_mono(NULL));
	} while (fake.again_ns);
	free(memory);
	copy_member("detail", problem, sizeof(problem));
	copy_member("remedy", remedy, sizeof(remedy));
	return reply.status;
}

static void serve(const char *text, bool on)
{
	start(text);
	api = (struct api){ .manage = on };
	content_type = "application/json; charset=utf-8";
}

JOURNAL_TEST(without_the_flag_everything_is_refused)
{
	serve(H200, false);
	assert_int_equal(call(api_manage_set, uuid(), "power-limit", "{\"watts\":400}"), 403);
	assert_in(remedy, "[manage] enabled = true");
	assert_in(remedy, "reload");
	assert_int_equal(call(api_manage_restore, uuid(), "power-limit", ""), 403);
	assert_int_equal(call(api_manage_clear_ecc, uuid(), NULL, ""), 403);
	assert_int_equal(journal.changes, 0);
	assert_true(logged("warning machine token requested"));
	assert_int_equal(call(api_manage_list, NULL, NULL, ""), 200);
	assert_in(body, "\"enabled\":false");
	assert_in(body, "nvidia-smi --gpu-reset");
}

JOURNAL_TEST(a_change_is_answered_with_evidence)
{
	serve(H200, true);
	journal.not_yet = 3;
	assert_int_equal(
		call(api_manage_set, uuid(), "power-limit", "{\"watts\":400,\"keep\":false}"),
		200);
	assert_int_equal(query.tries, 5);
	assert_in(body, "\"before\":{\"watts\":700},\"after\":{\"watts\":400}");
	assert_in(body, "\"changed\":true,\"verified\":true,\"restored_on_exit\":true");
	assert_true(logged("info gpu token requests power-limit 400 W (request r1)"));
	assert_true(logged("info gpu token: the power limit is 400 W now"));
	assert_true(now(GW_Q_POWER_LIMIT) == 400);

	assert_int_equal(call(api_manage_list, NULL, NULL, ""), 200);
	assert_in(body, "\"power-limit\":{\"supported\":true,\"value\":{\"watts\":400},"
			"\"lowest\":200,\"highest\":700,\"default\":700,\"changed\":true,"
			"\"before\":{\"watts\":700},\"who\":\"token\"}");
	assert_in(body, "\"simulated\":true");

	assert_int_equal(call(api_manage_restore, uuid(), "power-limit", ""), 200);
	assert_in(body, "\"after\":{\"watts\":700}");
	assert_in(body, "\"restored_on_exit\":false");
	assert_int_equal(documents(), 0);
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
}

JOURNAL_TEST(every_setting_can_be_sent)
{
	serve(H200, true);
	assert_int_equal(call(api_manage_set, "0", "persistence-mode", "{\"enabled\":false}"),
			 200);
	assert_in(body, "\"before\":{\"enabled\":true},\"after\":{\"enabled\":false}");
	assert_int_equal(call(api_manage_set, "0", "compute-mode",
			      "{\"mode\":\"exclusive_process\",\"keep\":true}"),
			 200);
	assert_in(body, "\"after\":{\"mode\":\"exclusive_process\"}");
	assert_in(body, "\"restored_on_exit\":false");
	assert_int_equal(call(api_manage_set, "0", "gpu-clocks",
			      "{\"min_hertz\":210e6,\"max_hertz\":900000000}"),
			 200);
	assert_in(body, "\"before\":{\"min_hertz\":null,\"max_hertz\":null}");
	assert_in(body, "\"asked\":{\"min_hertz\":210000000,\"max_hertz\":900000000}");
	assert_in(body, "\"verified\":false,\"restored_on_exit\":true");
	assert_int_equal(call(api_manage_clear_ecc, "0", NULL, ""), 200);
	assert_in(body, "\"before\":{\"corrected_errors\":7,\"uncorrected_errors\":0}");
	assert_in(body, "\"after\":{\"corrected_errors\":0,\"uncorrected_errors\":0}");
	assert_int_equal(documents(), 2);
}

JOURNAL_TEST(bad_requests_are_refused_with_a_reason)
{
	static const struct {
		const char *gpu, *word, *body;
		int status;
		const char *says;
	} rows[] = {
		{ "0", "power-limit", "{\"watts\":900}", 400, "from 200 W to 700 W" },
		{ "0", "power-limit", "{\"watts\":\"400\"}", 400,
		  "\"watts\" must be a number" },
		{ "0", "power-limit", "{\"wats\":400}", 400, "did you mean \"watts\"?" },
		{ "0", "power-limit", "{}", 400, "power-limit needs \"watts\"" },
		{ "0", "power-limit", "{\"watts\":400,\"keep\":1}", 400, "\"keep\" must be" },
		{ "0", "power-limit", "{\"watts\":400,\"watts\":500}", 400, "duplicate" },
		{ "0", "power-limit", "[400]", 400, "must be a JSON object" },
		{ "0", "power-limit", "{\"watts\":", 400, "not JSON: line 1" },
		{ "0", "power-limit", "", 400, "not JSON" },
		{ "0", "compute-mode", "{\"mode\":\"exclusive_thread\"}", 400,
		  "\"prohibited\"" },
		{ "0", "persistence-mode", "{\"enabled\":1}", 400, "true or false" },
		{ "0", "gpu-clocks", "{\"max_hertz\":9e8}", 400, "needs \"min_hertz\"" },
		{ "0", "gpu-clocks", "{\"min_hertz\":210000001,\"max_hertz\":9e8}", 400,
		  "\"min_hertz\" must be whole MHz: a multiple of 1000000, not 210000001" },
		{ "0", "memory-clocks", "{\"min_hertz\":1593e6,\"max_hertz\":1593000000.5}",
		  400, "\"max_hertz\" must be whole MHz" },
		{ "0", "gpu-clocks", "{\"min_hertz\":-5,\"max_hertz\":1e300}", 400,
		  "does not accept this value" },
		{ "0", "power-limits", "{\"watts\":400}", 404,
		  "did you mean \"power-limit\"?" },
		{ "0", "clear-ecc", "{}", 404, "unknown setting" },
		{ "9", "power-limit", "{\"watts\":400}", 404, "no GPU" },
		{ "GPU-nobody", "power-limit", "{\"watts\":400}", 404, "no GPU" },
	};

	serve(H200, true);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (call(api_manage_set, rows[i].gpu, rows[i].word, rows[i].body) !=
		    rows[i].status)
			fail_msg("%s: %d %s", rows[i].body, reply.status, problem);
		assert_in(problem, rows[i].says);
	}
	assert_true(now(GW_Q_POWER_LIMIT) == 700);
	assert_int_equal(documents(), 0);
}

JOURNAL_TEST(requests_without_a_body_refuse_one)
{
	static const char *const bad[] = { "garbage", "[]", "1", "{", "{\"watts\":1}" };

	serve(H200, true);
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		assert_int_equal(call(api_manage_clear_ecc, "0", NULL, bad[i]), 400);
		assert_in(problem, "the body");
		assert_int_equal(call(api_manage_restore, "0", "power-limit", bad[i]), 400);
	}
	assert_int_equal(journal.changes, 0);
	assert_int_equal(call(api_manage_clear_ecc, "0", NULL, "{}"), 200);
}

JOURNAL_TEST(driver_errors_have_their_http_status)
{
	static const struct {
		int code, status;
	} rows[] = {
		{ ABI_NO_PERMISSION, 403 },    { ABI_IN_USE, 409 },  { ABI_NOT_SUPPORTED, 501 },
		{ ABI_INVALID_ARGUMENT, 400 }, { ABI_TIMEOUT, 503 }, { ABI_UNKNOWN, 500 },
	};

	serve(H200, true);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		sim_fault("nvmlDeviceSetPersistenceMode", -1, rows[i].code);
		assert_int_equal(
			call(api_manage_set, "0", "persistence-mode", "{\"enabled\":false}"),
			rows[i].status);
		assert_in(problem, "nvmlDeviceSetPersistenceMode: ");
		sim_fault("nvmlDeviceSetPersistenceMode", -1, 0);
	}
	assert_int_equal(call(api_manage_set, "0", "power-limit", "{\"watts\":400}"), 200);
	somebody_else_sets(450);
	assert_int_equal(call(api_manage_restore, "0", "power-limit", ""), 409);
	assert_in(problem, "left unchanged");
	journal.manage_answer = -GW_E_STATE;
	assert_int_equal(call(api_manage_set, "0", "power-limit", "{\"watts\":400}"), 503);
	assert_in(problem, "too many");
}

JOURNAL_TEST(a_missing_outcome_is_reported_as_unknown)
{
	serve(H200, true);
	journal.not_yet = 1 << 30;
	assert_int_equal(call(api_manage_set, "0", "power-limit", "{\"watts\":400}"), 503);
	assert_in(problem, "unknown");
}

JOURNAL_TEST(a_mig_instance_does_not_select_its_gpu)
{
	const struct gw_device *d;

	sim_start_scenario("mig");
	d = sim_take(GW_TIERS_COMMON, 0);
	begin_journal();
	api = (struct api){ .manage = true };
	content_type = "application/json";
	assert_true(d->mig_count > 0 && gw_device_matches(d, d->mig[0]->uuid) == 1);
	assert_int_equal(
		call(api_manage_set, d->mig[0]->uuid, "power-limit", "{\"watts\":400}"), 404);
	assert_int_equal(journal.changes, 0);
	/* Compute mode is set per MIG instance. */
	assert_int_equal(call(api_manage_set, "0", "compute-mode", "{\"mode\":\"prohibited\"}"),
			 501);
}

JOURNAL_TEST(unsupported_settings_are_listed_with_the_reason)
{
	serve("[[gpu]]\nprofile = \"t4\"\n", true);
	assert_int_equal(call(api_manage_list, NULL, NULL, ""), 200);
	assert_in(
		body,
		"\"memory-clocks\":{\"supported\":false,\"reason\":\"memory clocks can only be "
		"locked on Ampere and later GPUs\"");
	assert_in(body, "\"gpu-clocks\":{\"supported\":true");
	assert_in(body, "\"value_absent\":\"the driver does not report locked clocks\"");
}

TEST_MAIN(sim_setup, NULL)
