/* Tests that a recording has all inputs of the guard: a replay makes exactly the same
 * decisions. */
#include "daemon/guard_service_parts.h"

#include "daemon/recording.h"

#include "guard_world.h"

#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static struct world o;
static struct guard_service g;
static struct guard_settings settings, next;
static char folder[40], path[64], moved[80], turned[80];

static struct {
	unsigned logged;
	char text[700];
	struct guard_decision said[4096];
	/* `says` is the number of decisions, `first` the index of the first decision in the
	 * last file */
	size_t says, first;
	/* number of scenes, and the scene at which a new file begins */
	unsigned looks, turn_at;
} seen;

#include "guard_log.h"

static uint64_t time_of_the_world(void *ctx)
{
	return o.now;
}

static const struct clock world_clock = { time_of_the_world, time_of_the_world, NULL, NULL };

static struct guard_record journal;

int guard_service_records_read(struct guard_service *x, struct guard_service_records **ret)
{
	*ret = calloc(1, sizeof(**ret));
	(*ret)->record[0] = journal;
	(*ret)->count = *journal.worker != '\0';
	return 0;
}

static void begin(const char *record)
{
	struct guard_service_records *r = NULL;

	unsigned turn_at = seen.turn_at;

	memset(&seen, 0, sizeof(seen));
	seen.turn_at = turn_at;
	memset(&g, 0, sizeof(g));
	memset(&journal, 0, sizeof(journal));
	world_init(&o, 1, 2);
	o.p.worker[1].priority = 9;
	o.p.restore_on_stop = true;
	o.p.user_evictions = 1;
	o.w[0].load[0] = o.w[1].load[0] = 4 * GIB;
	o.w[0].resident = false;
	journal = (struct guard_record){ .worker = "w0",
					 .mask = 1u << REASON_CONTENTION,
					 .level = 2,
					 .evicted = true,
					 .need_bytes = 4 * GIB,
					 .gpu = { { "GPU-0", 4 * GIB } },
					 .gpus = 1 };
	settings = (struct guard_settings){ .policy = o.p, .record = record };
	g.settings = &settings;
	g.config.clock = &world_clock;
	assert_int_equal(guard_service_records_read(&g, &r), 0);
	assert_int_equal(guard_recorder_new(&g, r), 0);
	free(r);
}

static void end(void)
{
	guard_recorder_free(&g);
	unlink(path);
	unlink(moved);
	unlink(turned);
}

static void fetch(void)
{
	struct guard_record r;
	struct guard_order order;

	while (guard_service_next_decision(&g, &seen.said[seen.says]))
		assert_true(++seen.says < 4096);
	while (guard_service_next_record(&g, &r))
		;
	while (guard_service_next_order(&g, &order))
		world_obey(&o, &order);
}

static void look(void)
{
	bool turns = ++seen.looks == seen.turn_at;

	settings.record_limit = next.record_limit = turns;
	if (turns)
		seen.first = seen.says;
	guard_service_observe(&g, &o.s);
	settings.record_limit = next.record_limit = 0;
}

static void run_for(uint64_t span_ns)
{
	for (uint64_t until = o.now + span_ns; o.now < until; o.now += o.step_ns) {
		struct guard_outcome done[WORLD_WORKERS];
		unsigned n = o.outcomes;

		memcpy(done, o.outcome, sizeof(done));
		o.outcomes = 0;
		for (unsigned i = 0; i < o.p.workers; i++)
			o.w[i].has_order = false;
		for (unsigned i = 0; i < n; i++)
			guard_service_outcome(&g, &done[i]);
		world_scene(&o);
		look();
		fetch();
	}
}

static void assert_replayed(const char *file, unsigned runs)
{
	struct guard_decision d;
	struct recording_reader *t;
	uint64_t wall_ns;
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;
	FILE *f = fopen(file, "r");

	assert_non_null(f);
	assert_int_equal(recording_reader_new(NULL, false, &t), 0);
	n = seen.first;
	while ((len = getline(&line, &cap, f)) > 0) {
		line[len - 1] = '\0';
		if (recording_read(t, line) != 0)
			fail_msg("refused: %s", line);
		for (; recording_next_decision(t, &d, &wall_ns); n++)
			if (n == seen.says || memcmp(&d, &seen.said[n], sizeof(d)) != 0)
				fail_msg("%s: %s became %s", line,
					 n == seen.says ? "nothing" : seen.said[n].evidence,
					 d.evidence);
	}
	assert_int_equal(n, seen.says);
	assert_int_equal(recording_counts(t).runs, runs);
	recording_reader_free(t);
	free(line);
	fclose(f);
}

static unsigned count(const char *file, const char *begins)
{
	char *line = NULL;
	size_t cap = 0;
	unsigned n = 0;
	FILE *f = fopen(file, "r");

	assert_non_null(f);
	while (getline(&line, &cap, f) > 0)
		n += strncmp(line, begins, strlen(begins)) == 0;
	free(line);
	fclose(f);
	return n;
}

static void swap_settings(void)
{
	struct guard_service_records *r = NULL;

	static struct policy_rule rule = { .match = { .name = "nobody", .uid = -1 },
					   .action = GUARD_IGNORE,
					   .text = "rule 1 (x.toml:3)" };

	next = settings;
	/* from now on the decisions follow another policy */
	next.policy.standard.quiet_ns = 20 * S;
	next.policy.rule[next.policy.rules++] = rule;
	assert_int_equal(guard_service_records_read(&g, &r), 0);
	assert_int_equal(guard_service_change(&g, &next, r), 0);
	g.settings = &next;
	guard_service_record_open(&g);
	free(r);
}

/* Sends every kind of input at least once. */
static void send_every_input(void)
{
	const struct guard_reservation room = {
		.id = 7, .gpu = "GPU-0", .bytes = 5 * GIB, .until_ns = UINT64_MAX
	};
	char message[200];
	uint64_t id;

	begin(path);
	/* reservation of an earlier run */
	assert_int_equal(guard_service_reserve_again(&g, &room), 0);
	guard_service_record_open(&g);
	run_for(40 * S);
	guard_service_release(&g, 7);
	run_for(70 * S);
	guard_service_foreign(&g, "GPU-0", "another gpuward");
	fetch();
	guard_service_for(&g, 1000);
	assert_int_equal(
		guard_service_operation(&g, 0, REQUEST_EVICT, 0, message, sizeof(message)), 0);
	run_for(10 * S);
	guard_service_foreign(&g, "GPU-0", NULL);
	run_for(10 * S);
	assert_int_equal(
		guard_service_operation(&g, 0, REQUEST_RELEASE, 0, message, sizeof(message)),
		0);
	run_for(60 * S);
	guard_service_for(&g, 1001);
	assert_int_equal(guard_service_reserve(&g, NULL, 6 * GIB, 0, 0, &id), 0);
	run_for(20 * S);
	swap_settings();
	run_for(50 * S);
	guard_service_release(&g, id);
	guard_service_heat(&g, "GPU-0", HEAT_THROTTLE, "warm", o.now);
	run_for(40 * S);
	guard_service_reason(&g, "GPU-0", REASON_THERMAL, true, "hot", o.now);
	run_for(20 * S);
	guard_service_reason(&g, "GPU-0", REASON_THERMAL, false, "", o.now);
	guard_service_heat(&g, "GPU-0", 0, "", o.now);
	assert_int_equal(guard_service_trust(&g, "GPU-0", o.now), 0);
	run_for(60 * S);
	guard_service_for(&g, 1000);
	guard_service_games(&g, 1, &(struct scene_game){ 7, "game" });
	guard_service_for(&g, -1);
	run_for(10 * S);
	guard_service_games(&g, 0, &(struct scene_game){ .pid = 0 });
	guard_service_economy(&g, 0, UINT64_MAX, 43, 2000);
	run_for(60 * S);
	guard_service_for(&g, 1000); /* this user already caused one eviction this hour */
	assert_int_equal(
		guard_service_operation(&g, 0, REQUEST_EVICT, 0, message, sizeof(message)),
		-GW_E_PERM);
	guard_service_games(&g, 1, &(struct scene_game){ 7, "game" });
	run_for(10 * S);
	guard_service_games(&g, 0, &(struct scene_game){ .pid = 0 });
	run_for(5 * S);
	guard_service_stop(&g);
	assert_true(guard_unsettled_count(g.guard) > 0);
	fetch();
	assert_true(seen.says > 30);
	assert_int_equal(seen.logged, 0);
}

TEST(every_input_is_decided_again_to_the_bit)
{
	send_every_input();
	assert_int_equal(count(path, "begin\t"), 1);
	assert_int_equal(count(path, "swapped\t"), 1);
	assert_int_equal(access(turned, F_OK), -1);
	assert_replayed(path, 1);
	end();
}

/* Contenders come, grow and go. The quiet time doubles, and a program is recognised when it
 * comes again. */
static void come_and_go(void)
{
	begin(path);
	o.p.worker[0].managed = true;
	world_guest(&o, "game", 0, 14 * GIB, 20 * S, 40 * S);
	world_guest(&o, "game", 0, 14 * GIB, 90 * S, 130 * S);
	world_guest(&o, "render", 0, GIB, 180 * S, 200 * S);
	world_guest(&o, "game", 0, 14 * GIB, 260 * S, 300 * S);
	guard_service_record_open(&g);
	run_for(120 * S);
	o.w[0].alive = false; /* the worker ends while it is evicted */
	run_for(20 * S);
	o.w[0].alive = o.w[0].resident = true;
	o.w[0].pid++;
	run_for(300 * S);
	assert_true(seen.says > 30);
}

/* Starts a new file at many different moments: during an order, a quiet time, a reservation. */
static void turn_over_during(void (*story)(void), unsigned step)
{
	for (seen.turn_at = 2; seen.turn_at < 50000; seen.turn_at += step) {
		story();
		if (seen.looks < seen.turn_at)
			break;
		assert_int_equal(access(turned, F_OK), 0);
		assert_int_equal(count(path, "begin\t"), 1);
		assert_replayed(path, 1);
		end();
	}
	assert_true(seen.turn_at > 1000);
	end();
	seen.turn_at = 0;
}

TEST(a_new_recording_file_begins_with_the_whole_state)
{
	turn_over_during(send_every_input, 149);
	turn_over_during(come_and_go, 89);
}

TEST(a_file_that_cannot_be_renamed_is_emptied)
{
	struct stat st;

	begin(path);
	assert_int_equal(mkdir(turned, 0700), 0);
	guard_service_record_open(&g);
	run_for(10 * S);
	for (unsigned i = 0; i < 2; i++) {
		seen.turn_at = seen.looks + 1;
		run_for(S);
		assert_int_equal(count(path, "begin\t"), 1);
		assert_int_equal(stat(path, &st), 0);
		assert_true(st.st_size < 64 * 1024);
	}
	assert_int_equal(seen.logged, 1);
	assert_in(seen.text, "cannot be renamed");
	assert_replayed(path, 1);
	rmdir(turned);
	end();
	seen.turn_at = 0;
}

TEST(an_incomplete_last_line_is_removed_before_a_run_is_appended)
{
	FILE *f;

	begin(path);
	guard_service_record_open(&g);
	run_for(S);
	guard_recorder_free(&g);
	f = fopen(path, "a");
	assert_non_null(f);
	fputs("D\t1234", f);
	fclose(f);
	begin(path);
	guard_service_record_open(&g);
	run_for(S);
	assert_int_equal(count(path, "begin\t"), 2);
	assert_int_equal(count(path, "D\t1234"), 0);
	end();
}

TEST(a_file_that_is_not_a_recording_is_not_truncated)
{
	char text[8] = "";
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs("mine", f);
	fclose(f);
	begin(path);
	guard_service_record_open(&g);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fread(text, 1, 4, f), 4);
	fclose(f);
	assert_string_equal(text, "mine");
	end();
}

TEST(most_scenes_are_short_and_one_per_minute_is_whole)
{
	begin(path);
	guard_service_record_open(&g);
	run_for(1500 * o.step_ns);
	/* whole scenes are written, also when a process came or went */
	assert_true(count(path, "S\t") >= 3);
	assert_true(count(path, "D\t") > 1490);
	assert_int_equal(count(path, "S\t") + count(path, "D\t"), 1500);
	assert_replayed(path, 1);
	end();
}

TEST(a_file_that_was_moved_away_is_replaced)
{
	struct stat st;

	begin(path);
	guard_service_record_open(&g);
	run_for(5 * S);
	assert_int_equal(rename(path, moved), 0);
	swap_settings();
	run_for(5 * S);
	/* the moved file ends where the new file begins */
	assert_int_equal(count(moved, "swap"), 0);
	assert_int_equal(count(path, "begin\t"), 1);
	assert_int_equal(count(path, "record\t"), 2);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	end();
}

TEST(a_recording_that_cannot_be_written_ends_and_the_guard_goes_on)
{
	begin("/dev/full");
	guard_service_record_open(&g);
	run_for(60 * S);
	assert_int_equal(seen.logged, 1);
	assert_in(seen.text, "/dev/full cannot be written");
	assert_true(seen.says > 0);
	end();
	begin("/nowhere/at/all");
	guard_service_record_open(&g);
	run_for(S);
	assert_int_equal(seen.logged, 1);
	assert_in(seen.text, "nothing is recorded");
	end();
}

static int name_files(void **state)
{
	/* Root does not record into a folder that others can write. */
	strcpy(folder, "/tmp/gpuward-trace-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/trace", folder);
	snprintf(moved, sizeof(moved), "%s.old", path);
	snprintf(turned, sizeof(turned), "%s.1", path);
	return 0;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

TEST_MAIN(name_files, remove_folder)
