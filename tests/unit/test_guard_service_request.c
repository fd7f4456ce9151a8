/* Tests requests of users, in simulated time: the guard gets the uid of the client, and the
 * response says what is stored. */
#include "daemon/guard_service_parts.h"

#include "daemon/peer_process.h"
#include "daemon/recording.h"

#include "guard_world.h"

#include "test.h"

static struct world o;
static struct guard_service g;
static struct guard_settings settings;
static struct clock_stepped stepped;

static struct {
	int64_t uid;       /* user of the guard's current request; -1: none */
	int64_t asked_for; /* user of the last request */
	unsigned pumps, logged, modes;
	bool mode_stored;  /* the mode was already stored when the guard was asked to use it */
	uint64_t hangs_ns; /* delay of the disk per attempt */
	int write_err;     /* result of the next attempts to write */
	/* number of changes of documents that were queued, passed to the thread, and written */
	unsigned queued, passed, written;
	bool lasting;
	char text[700];
	char document[1000]; /* the last document that was queued */
	int game_err;
	int64_t game_uid;
	bool game_unkept;
	bool ended; /* the process that a client names ends before it is opened */
} seen;

#include "guard_log.h"

int store_flush(struct store *s, uint64_t timeout_ns)
{
	if (seen.hangs_ns > timeout_ns) {
		clock_step(&stepped, timeout_ns);
		return -GW_E_TIMEOUT;
	}
	clock_step(&stepped, seen.hangs_ns);
	if (!seen.write_err)
		seen.written = seen.passed;
	return seen.write_err;
}

bool store_lasting(struct store *s)
{
	return seen.lasting;
}

const char *store_state(struct store *s)
{
	return "the disk is full";
}

void guard_service_for(struct guard_service *x, int64_t uid)
{
	seen.uid = uid;
	guard_set_requester(o.g, uid);
}

int guard_service_operation(struct guard_service *x, int worker, enum guard_request what,
			    uint64_t ttl_ns, char *message, size_t size)
{
	seen.asked_for = seen.uid;
	return guard_request(o.g, worker, what, ttl_ns, guard_service_time_ns(x), message,
			     size);
}

int guard_service_reserve(struct guard_service *x, const char *gpu, uint64_t bytes, int64_t pid,
			  uint64_t ttl_ns, uint64_t *ret_id)
{
	seen.asked_for = seen.uid;
	return guard_reserve(o.g, gpu, bytes, pid, ttl_ns, guard_service_time_ns(x), ret_id);
}

void guard_service_pump(struct guard_service *x)
{
	seen.pumps++;
}

void guard_service_written(struct guard_service *x, uint64_t now_ns)
{
	assert_int_equal(now_ns, stepped.mono_ns - seen.hangs_ns);
	x->journal.writing = false;
}

void guard_mode_choose(struct guard_service *x, const enum guard_mode *mode, const char *who)
{
	x->journal.writing = true;
}

void guard_reload_mode(struct guard_service *x)
{
	seen.modes++;
	seen.mode_stored = !x->journal.writing;
}

int store_put_document(struct store *s, const char *kind, const char *id, const char *json,
		       size_t size)
{
	seen.queued++;
	snprintf(seen.document, sizeof(seen.document), "%s", json);
	return 0;
}

void store_delete_document(struct store *s, const char *kind, const char *id)
{
	seen.queued++;
}

int store_each_document(struct store *s, const char *kind, unsigned max,
			void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	return 0;
}

void store_commit(struct store *s)
{
	seen.passed = seen.queued;
}

void guard_service_release(struct guard_service *x, uint64_t id)
{
	guard_release(o.g, id, guard_service_time_ns(x));
}

int guard_service_reserve_again(struct guard_service *x, const struct guard_reservation *room)
{
	return 0;
}

int guard_service_clear(void *engine, const char *uuid, const char *who, char *message,
			size_t size)
{
	return 0;
}

int guard_policy_parse(const char *toml, size_t n, struct policy *ret, char *message,
		       size_t size)
{
	return -GW_E_PARSE;
}

int recording_last_scene(const char *lines, const struct policy *p, struct scene *ret,
			 unsigned *ret_line)
{
	return -GW_E_PARSE;
}

void scene_thread_trigger(struct scene_thread *k)
{
}

int peer_process_find(const struct root *root, int64_t named, const struct guard_client *by,
		      int64_t *ret_pid, uint64_t *ret_start_ticks, char *message, size_t size)
{
	*ret_pid = named;
	*ret_start_ticks = 1;
	return 0;
}

int peer_process_open(struct proc_id id, int *ret_fd)
{
	assert_int_equal(id.start_ticks, 1); /* as peer_process_find() returned it */
	*ret_fd = -1;
	return seen.ended ? -GW_E_NOENT : 0;
}

int peer_process_game(const struct root *root, int64_t pid, const struct guard_client *by,
		      char *message, size_t size)
{
	return 0;
}

int guard_inputs_game(struct guard_inputs *b, int64_t pid, uint64_t start_ticks,
		      uint64_t ttl_ns, int64_t uid, const char *who, bool *ret_kept)
{
	*ret_kept = !seen.game_unkept;
	assert_int_equal(seen.uid, uid); /* the guard gets the user before it gets the game */
	seen.game_uid = uid;
	return seen.game_err;
}

int guard_inputs_game_end(struct guard_inputs *b, int64_t pid, int64_t uid)
{
	seen.game_uid = uid;
	seen.queued++;
	return 0;
}

static void begin(void)
{
	memset(&seen, 0, sizeof(seen));
	memset(&g, 0, sizeof(g));
	seen.lasting = true;
	world_init(&o, 1, 1);
	o.p.user_evictions = 1;
	world_begin(&o);
	world_run(&o, 5 * S);
	clock_stepped_init(&stepped, o.now, o.now);
	settings.policy = o.p;
	g.settings = &settings;
	g.guard = o.g;
	g.config.clock = &stepped.clock;
}

static int wish(enum guard_request what, int64_t uid, char message[static 200])
{
	const struct guard_client by = { "uid 7: whatever is said of him", uid, -1, 0, NULL };

	message[0] = '\0';
	return guard_service_ops.request(&g, 0, what, 0, &by, message, 200);
}

TEST(requests_are_limited_by_the_users_uid_not_by_the_stated_name)
{
	static const struct {
		int64_t uid;
		int again; /* result of a second request within the hour; the limit is one */
	} row[] = { { 1000, -GW_E_PERM }, { 0, 0 }, { -1, 0 } };
	char message[200];

	for (size_t i = 0; i < COUNT_OF(row); i++) {
		begin();
		assert_int_equal(wish(REQUEST_EVICT, row[i].uid, message), 0);
		assert_int_equal(seen.asked_for, row[i].uid);
		assert_in(seen.text, "(requested by uid 7: whatever is said of him)");
		assert_int_equal(wish(REQUEST_RELEASE, row[i].uid, message), 0);
		world_run(&o, 60 * S);
		clock_step(&stepped, 60 * S);
		assert_int_equal(wish(REQUEST_EVICT, row[i].uid, message), row[i].again);
		world_done(&o);
	}
}

TEST(a_request_is_in_the_journal_before_it_is_answered)
{
	char message[200];
	uint64_t before;

	begin();
	g.journal.writing = true;
	seen.hangs_ns = 0;
	assert_int_equal(wish(REQUEST_EVICT, -1, message), 0);
	assert_false(g.journal.writing);
	assert_string_equal(message, "");
	assert_int_equal(seen.pumps, 1);

	g.journal.writing = true;
	seen.hangs_ns = 3 * S;
	before = stepped.mono_ns;
	assert_int_equal(wish(REQUEST_RELEASE, -1, message), 0);
	/* not longer than KEEP_NS */
	assert_int_equal(stepped.mono_ns - before, 200 * NS_PER_MS);
	assert_in(message, "the request is not on disk yet");
	world_done(&o);
}

TEST(the_answer_reports_that_a_request_would_be_lost_at_a_restart)
{
	char message[200];

	begin();
	g.journal.last = WRITE_FAILED;
	assert_int_equal(wish(REQUEST_EVICT, -1, message), 0);
	assert_in(message, "the journal cannot be written (the disk is full)");
	g.journal.last = WRITE_HANGS;
	assert_int_equal(wish(REQUEST_EVICT, -1, message), 0);
	assert_in(message, "the disk does not finish a write");
	g.journal.last = WRITE_OK;
	g.journal.unsaved = 1;
	assert_int_equal(wish(REQUEST_RELEASE, -1, message), 0);
	assert_in(message, "lost when the service restarts");
	seen.lasting = false;
	assert_int_equal(wish(REQUEST_EVICT, -1, message), 0);
	assert_in(message, "there is no journal file");
	world_done(&o);
}

TEST(a_refused_request_is_neither_logged_nor_tracked)
{
	char message[200];

	begin();
	assert_int_equal(wish(REQUEST_HOLD_EVICTED, -1, message),
			 -GW_E_ARG); /* a hold needs a duration */
	assert_int_equal(seen.logged, 0);
	assert_null(guard_operation_latest(&g.operations, "w0"));
	assert_int_equal(wish(REQUEST_EVICT, -1, message), 0);
	assert_int_equal(seen.logged, 1);
	assert_non_null(guard_operation_latest(&g.operations, "w0"));
	world_done(&o);
}

TEST(a_reservation_belongs_to_the_user_of_the_request)
{
	const struct guard_client by = { "token", 1000, -1, 0, NULL };
	char message[200] = "";
	uint64_t id;

	begin();
	assert_int_equal(
		guard_service_ops.reserve(&g, "GPU-9", GIB, 0, 0, &by, &id, message, 200),
		-GW_E_NODEV);
	assert_int_equal(seen.logged, 0);
	assert_int_equal(guard_service_ops.reserve(&g, NULL, GIB, 0, 0, &by, &id, message, 200),
			 0);
	assert_int_equal(seen.asked_for, 1000);
	assert_string_equal(seen.text, "new reservation of 1024 MiB (requested by token)");
	world_done(&o);
}

TEST(a_process_that_just_ended_gets_no_reservation)
{
	const struct guard_client by = { "token", -1, -1, 0, NULL };
	struct guard_reservation none;
	char message[200] = "";
	uint64_t id;

	begin();
	seen.ended = true;
	assert_int_equal(
		guard_service_ops.reserve(&g, NULL, GIB, 4711, 0, &by, &id, message, 200),
		-GW_E_ARG);
	assert_string_equal(message, "process 4711 has ended; nothing is reserved for it");
	assert_true(guard_reservation_at(o.g, 0, &none));
	assert_int_equal(none.id, 0);
	seen.ended = false;
	assert_int_equal(
		guard_service_ops.reserve(&g, NULL, GIB, 4711, 0, &by, &id, message, 200), 0);
	world_done(&o);
}

TEST(a_reservation_and_its_end_are_on_disk_before_the_answer)
{
	const struct guard_client by = { "token", -1, -1, 0, NULL };
	char message[200] = "";
	uint64_t id, before;

	begin();
	assert_int_equal(guard_service_ops.reserve(&g, NULL, GIB, 0, 0, &by, &id, message, 200),
			 0);
	assert_int_equal(seen.written, 1);
	guard_service_ops.release(&g, id);
	assert_int_equal(seen.written, 2);
	assert_int_equal(guard_service_ops.game_end(&g, 4711, &by), 0);
	assert_int_equal(seen.written, 3);
	assert_int_equal(seen.logged, 1); /* no warning */

	seen.hangs_ns = 3 * S;
	before = stepped.mono_ns;
	guard_service_ops.release(&g, id);
	assert_int_equal(stepped.mono_ns - before, 200 * NS_PER_MS); /* KEEP_NS */
	assert_int_equal(seen.logged, 1);
	seen.hangs_ns = 0;
	seen.write_err = -GW_E_IO;
	guard_service_ops.release(&g, id);
	assert_in(seen.text, "cannot be stored (the disk is full)");
	world_done(&o);
}

TEST(a_granted_reservation_stays_granted_when_its_memory_is_used)
{
	const struct guard_view_key key = { "key", "body" };
	const struct guard_client by = { "token", -1, -1, 0, &key };
	char message[300] = "";
	unsigned stored;
	uint64_t id;

	begin();
	assert_int_equal(
		guard_service_ops.reserve(&g, NULL, 6 * GIB, 0, 0, &by, &id, message, 300), 0);
	assert_int_equal(guard_service_ops.reserved(&g, id, o.now + S, message, 300), 0);
	assert_in(seen.document, "\"granted\":false");
	world_run(&o, 5 * S); /* the worker leaves */
	assert_int_equal(guard_service_ops.reserved(&g, id, o.now, message, 300), 1);
	assert_in(seen.document, "\"granted\":true");
	assert_int_equal(seen.written, seen.queued); /* before the answer */
	stored = seen.queued;
	world_guest(&o, "job", 0, 11 * GIB, 0, 0);
	world_run(&o, 5 * S);
	assert_true(guard_reservation_ready(o.g, id, message, 300) != 1);
	assert_int_equal(guard_service_ops.reserved(&g, id, o.now, message, 300), 1);
	assert_string_equal(message, "the memory was free when the reservation was granted");
	assert_int_equal(seen.queued, stored);
	guard_service_ops.release(&g, id);
	assert_int_equal(guard_service_ops.reserved(&g, id, o.now, message, 300), -GW_E_NOENT);
	world_done(&o);
}

TEST(a_reservation_knows_until_when_its_last_client_waits)
{
	const struct guard_client by = { "token", -1, -1, 0, NULL };
	char message[300] = "";
	uint64_t id;

	begin();
	assert_int_equal(
		guard_service_ops.reserve(&g, NULL, 6 * GIB, 0, 0, &by, &id, message, 300), 0);
	assert_int_equal(guard_service_ops.reserved(&g, id, 7 * S, message, 300), 0);
	assert_int_equal(guard_service_ops.reserved(&g, id, 5 * S, message, 300), 0);
	assert_int_equal(g.room[0].wait_until_ns, 7 * S);
	world_done(&o);
}

/* If a request to register a game is refused, the next request must not be made for the user of
 * the refused request. */
TEST(a_game_belongs_to_its_user_and_does_not_change_the_user_of_the_next_request)
{
	const struct guard_client by = { "token", 1000, -1, 0, NULL };
	char message[200] = "";
	int64_t pid = 4711;

	begin();
	seen.game_err = -GW_E_ARG;
	assert_int_equal(guard_service_ops.game(&g, &pid, 0, &by, message, 200), -GW_E_ARG);
	assert_int_equal(seen.game_uid, 1000);
	assert_int_equal(seen.uid, -1);
	assert_string_equal(message, "process 4711 has ended");
	assert_int_equal(seen.logged, 0);
	seen.game_err = 0;
	assert_int_equal(guard_service_ops.game(&g, &pid, 0, &by, message, 200), 0);
	assert_string_equal(seen.text,
			    "process 4711 is registered as a game (requested by token)");
	seen.game_uid = 0;
	assert_int_equal(guard_service_ops.game_end(&g, pid, &by), 0);
	assert_int_equal(seen.game_uid, 1000);
	world_done(&o);
}

TEST(a_game_that_a_restart_loses_is_logged)
{
	const struct guard_client by = { "token", -1, -1, 0, NULL };
	char message[200] = "";
	int64_t pid = 4711;

	begin();
	seen.lasting = true;
	seen.hangs_ns = NS_PER_S; /* the disk is slow, but the record is stored */
	assert_int_equal(guard_service_ops.game(&g, &pid, 0, &by, message, 200), 0);
	assert_int_equal(seen.logged, 1);
	seen.game_unkept = true; /* the disk is full */
	assert_int_equal(guard_service_ops.game(&g, &pid, 0, &by, message, 200), 0);
	assert_int_equal(seen.logged, 3);
	assert_in(seen.text, "registration of game process 4711 cannot be saved");
	seen.game_unkept = seen.lasting = false; /* there is no database file */
	assert_int_equal(guard_service_ops.game(&g, &pid, 0, &by, message, 200), 0);
	assert_int_equal(seen.logged, 5);
	world_done(&o);
}

TEST(a_mode_is_on_disk_before_it_is_used_and_answered)
{
	const struct guard_client by = { "token: tonight", -1, -1, 0, NULL };
	const enum guard_mode mode = GUARD_ENFORCE;
	char message[200] = "";

	begin();
	assert_int_equal(guard_service_ops.set_mode(&g, &mode, &by, message, 200), 0);
	assert_string_equal(seen.text,
			    "the guard's mode is set to enforce (requested by token: tonight)");
	assert_int_equal(seen.modes, 1);
	assert_true(seen.mode_stored);
	assert_string_equal(message, "");
	seen.hangs_ns = NS_PER_S;
	assert_int_equal(guard_service_ops.set_mode(&g, NULL, &by, message, 200), 0);
	assert_in(seen.text, "the guard's mode is the configured one again");
	assert_in(message, "not on disk yet");
	world_done(&o);
}

TEST_MAIN(NULL, NULL)
