/* Tests the store: committed data survives every fault. A layer below SQLite (struct fault)
 * simulates failing disks, also for root. The test sets the wall time; nothing waits. */
#include "daemon/store.h"

#include "base/clock.h"
#include "daemon/energy_account.h"
#include "daemon/store_block.h"
#include "daemon/store_db.h"
#include "daemon/store_parts.h"
#include "tree.h"
#include "seed.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#define S        NS_PER_S
#define MIN      (60 * S)
#define HOUR     (60 * MIN)
#define DAY      (24 * HOUR)
#define T0       (UINT64_C(20000) * DAY) /* 2024-10-04 */
#define LIMIT    (UINT64_C(1) << 30)
#define GPU      "GPU-5a1b"
#define PATIENCE (60 * S)
#define POINTS   100000

static struct tree tree;
static char path[128];
static char message[4600];
static struct view_point *points;

static struct store *s; /* closed at the end of each test */

static struct store *open_another(uint64_t limit)
{
	struct store *another = NULL;

	assert_int_equal(store_open(path, limit, &another, message, sizeof(message)), 0);
	assert_non_null(another);
	return another;
}

static void close_store(void)
{
	if (s)
		store_close(s);
	s = NULL;
}

static void open_limited(uint64_t limit)
{
	close_store();
	s = open_another(limit);
}

static void open_clean(void)
{
	open_limited(LIMIT);
	assert_string_equal(message, "");
	assert_string_equal(store_state(s), "ok");
}

static void commit(void)
{
	store_commit(s);
	assert_int_equal(store_flush(s, PATIENCE), 0);
}

static void commit_fails(void)
{
	store_commit(s);
	assert_int_equal(store_flush(s, PATIENCE), -GW_E_IO);
}

static void add(uint64_t wall_ns, double value)
{
	double v[VIEW_HISTORIES];

	for (unsigned q = 0; q < VIEW_HISTORIES; q++)
		v[q] = value + q;
	store_add_reading(s, GPU, wall_ns, v);
}

static int ask(uint64_t from, uint64_t to, uint64_t step)
{
	uint64_t given = 12345;

	return store_history(s, GPU, VIEW_H_POWER, from, to, step, points, POINTS, &given);
}

static int setup(void **state)
{
	tree_init(&tree);
	snprintf(path, sizeof(path), "%s/state/gpuward.db", tree.path);
	points = calloc(POINTS, sizeof(*points));
	return points ? 0 : -1;
}

static int teardown(void **state)
{
	close_store();
	tree_done(&tree);
	free(points);
	return 0;
}

#define STORE_TEST(name) TEST_WITH(name, setup, teardown)

static int run_sql(const char *sql)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open(path, &db);

	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_close(db);
	return rc;
}

static sqlite3_int64 ask_sql(const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *q = NULL;
	sqlite3_int64 n = -1;

	if (sqlite3_open(path, &db) == SQLITE_OK &&
	    sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK &&
	    sqlite3_step(q) == SQLITE_ROW)
		n = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return n;
}

STORE_TEST(counts_outlive_the_process_and_never_fall)
{
	open_clean();
	assert_true(store_count(s, "energy") == 0);
	store_set_count(s, "energy", 12.5);
	store_set_count(s, "errors", 3);
	commit();
	store_set_count(s, "energy", 11);
	store_set_count(s, "errors", NAN);
	commit();
	assert_true(store_settled(s));
	/* No commit follows, so the file does not get this value. */
	store_set_count(s, "energy", 99);
	assert_true(store_count_now(s, "energy") == 99);
	open_clean();
	assert_true(store_count(s, "energy") == 12.5);
	assert_true(store_count(s, "errors") == 3);
	assert_true(store_count(s, "others") == 0);
	store_set_count(s, "energy", 5); /* lower than the value in the file */
	commit();
	open_clean();
	assert_true(store_count(s, "energy") == 12.5);
}

STORE_TEST(a_count_that_is_replaced_may_fall)
{
	open_clean();
	store_replace_count(s, "day", 2026352);
	commit();
	store_replace_count(s, "day", 2026322);
	store_replace_count(s, "day", NAN);
	assert_true(store_count_now(s, "day") == 2026322);
	commit();
	open_clean();
	assert_true(store_count(s, "day") == 2026322);
	store_replace_count(s, "day", 2026320); /* lower than the value in the file */
	assert_true(store_count_now(s, "day") == 2026320);
	commit();
	open_clean();
	assert_true(store_count(s, "day") == 2026320);
}

STORE_TEST(an_impossible_count_in_the_file_counts_as_0_and_is_written_again)
{
	static const char *const values[] = { "9e999", "-9e999", "1e300", "-5" };

	for (unsigned i = 0; i < COUNT_OF(values); i++) {
		char sql[128];

		open_clean();
		store_set_count(s, "errors", 7);
		commit();
		close_store();
		snprintf(sql, sizeof(sql), "UPDATE count SET value=%s", values[i]);
		assert_int_equal(run_sql(sql), SQLITE_OK);
		open_clean();
		assert_true(store_count(s, "errors") == 0);
		store_set_count(s, "errors", 3);
		commit();
		open_clean();
		assert_true(store_count(s, "errors") == 3);
	}
}

/* Opens the store and counts energy for some seconds at 100 W, as one run of the service. */
static void count_energy(uint64_t wall_ns, double seconds, struct view_device *v)
{
	struct gpu_count g;

	open_clean();
	memset(v, 0, sizeof(*v));
	gpu_count_load(&g, s, GPU, v);
	gpu_count_energy(&g, s, 100 * seconds, seconds, wall_ns, v);
	commit();
}

STORE_TEST(energy_that_was_counted_while_the_clock_was_ahead_did_not_begin_in_the_future)
{
	struct view_device v;

	count_energy(T0 + 30 * DAY, 100, &v);
	assert_int_equal(v.energy_since_ns, T0 + 30 * DAY - 100 * S);
	/* The clock may not be set yet. */
	count_energy(T0, 10, &v);
	assert_int_equal(v.energy_since_ns, T0 + 30 * DAY - 100 * S);
	count_energy(T0, 400, &v);
	assert_int_equal(v.energy_since_ns, T0 - 510 * S);
	count_energy(T0 + DAY, 1, &v);
	assert_true(v.energy_joules == 51100);
	assert_int_equal(v.energy_since_ns, T0 - 510 * S);
}

static struct {
	unsigned count;
	uint64_t first, last;
	char text[8][64], id[8][64];
} seen; /* what the last events() or documents() gave */

static void see_event(void *arg, const struct view_event *e)
{
	if (seen.count == 0)
		seen.first = e->id;
	assert_true(e->id > seen.last);
	seen.last = e->id;
	if (seen.count < 8)
		snprintf(seen.text[seen.count], 64, "%s|%s|%s|%s", e->kind,
			 e->uuid ? e->uuid : "-", e->severity, e->text);
	seen.count++;
}

static int events(uint64_t after, unsigned max)
{
	memset(&seen, 0, sizeof(seen));
	return store_events(s, after, max, see_event, NULL);
}

static uint64_t log_event(const char *text)
{
	struct view_event e = {
		.wall_ns = T0, .kind = "driver", .uuid = NULL, .severity = "info", .text = text
	};

	return store_add_event(s, &e);
}

STORE_TEST(events_have_ids_that_grow_for_ever)
{
	open_clean();
	assert_int_equal(s->last_event, 0);
	assert_int_equal(log_event("one"), 1);
	store_add_event(s, &(struct view_event){ .kind = "device-state",
						 .uuid = GPU,
						 .severity = "error",
						 .text = "it's \"lost\"" });
	assert_int_equal(events(0, 100), 2); /* not yet written */
	commit();
	log_event("three");
	assert_int_equal(s->last_event, 3);
	assert_int_equal(events(0, 100), 3);
	assert_string_equal(seen.text[1], "device-state|" GPU "|error|it's \"lost\"");
	assert_string_equal(seen.text[2], "driver|-|info|three");
	assert_int_equal(events(1, 1), 1);
	assert_int_equal(seen.first, 2);
	commit();
	close_store();
	assert_int_equal(run_sql("DELETE FROM event"), SQLITE_OK);
	open_clean();
	assert_true(log_event("four") > 3);
}

STORE_TEST(the_last_events_are_found_whatever_their_ids)
{
	open_clean();
	assert_int_equal(store_events_after(s, 5), 0);
	for (unsigned i = 1; i <= 10; i++) {
		s->last_event = i * 100 - 1;
		assert_int_equal(log_event("x"), i * 100);
		if (i <= 4)
			commit();
		for (unsigned max = 1; max <= 12; max++) {
			uint64_t after = store_events_after(s, max);

			assert_int_equal(events(after, max), max < i ? max : i);
			assert_int_equal(seen.last, i * 100);
		}
	}
}

STORE_TEST(the_latest_ten_thousand_events_are_kept)
{
	open_clean();
	for (unsigned i = 0; i < 10300; i++) {
		log_event("again");
		if (i % 500 == 0)
			commit();
	}
	commit();
	assert_int_equal(store_dropped(s), 0);
	assert_int_equal(events(0, UINT32_MAX), 10000);
	assert_int_equal(seen.first, 301);
	assert_int_equal(seen.last, 10300);
}

static void see_document(void *arg, const char *id, const char *json)
{
	if (seen.count < 8) {
		snprintf(seen.id[seen.count], 64, "%s", id);
		snprintf(seen.text[seen.count], 64, "%s", json);
	}
	seen.count++;
}

static int documents(const char *kind, unsigned max)
{
	memset(&seen, 0, sizeof(seen));
	return store_each_document(s, kind, max, see_document, NULL);
}

STORE_TEST(documents_are_kept_replaced_and_forgotten)
{
	open_clean();
	store_put_document(s, "window", "a", "{\"n\":1}xyz", 7);
	store_put_document(s, "window", "b", "{\"n\":2}", 7);
	store_put_document(s, "other", "a", "{}", 2);
	assert_int_equal(documents("window", 10), 2);
	commit();
	store_put_document(s, "window", "c", "{\"n\":3}", 7);
	store_put_document(s, "window", "a", "{\"n\":4}", 7);
	store_delete_document(s, "window", "b");
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(documents("window", 10), 2);
		assert_string_equal(seen.id[0], "c");
		assert_string_equal(seen.id[1], "a");
		assert_string_equal(seen.text[1], "{\"n\":4}");
		assert_int_equal(documents("window", 1), 1);
		assert_string_equal(seen.id[0], "a");
		commit();
		if (i == 1) {
			open_clean();
		}
	}
}

static bool find_some(void *arg, const char *id, const char *json)
{
	const unsigned *most = arg;

	see_document(NULL, id, json ? json : "");
	return seen.count < *most;
}

static int find(const char *from, const char *glob, bool ids_only, unsigned most)
{
	memset(&seen, 0, sizeof(seen));
	return store_find_documents(s, &(struct view_find){ "job", from, glob, ids_only },
				    find_some, &most);
}

STORE_TEST(documents_are_found_by_id_latest_first_in_the_queue_and_the_file)
{
	char id[32];

	open_clean();
	store_put_document(s, "other", "99999-a-", "{}", 2);
	for (unsigned i = 22000; i < 25000; i++) {
		snprintf(id, sizeof(id), "%05u-%s-", i, i % 100 ? "unit" : "slurm");
		assert_int_equal(store_put_row(s, "job", id, "{\"n\":1}", 7, 30000), 0);
		if (i % 1000 == 989)
			commit();
	}
	for (unsigned i = 0; i < 3; i++) { /* queued, written, read by another run */
		assert_int_equal(find(NULL, NULL, true, 99999), 3000);
		assert_string_equal(seen.text[0], "");
		assert_int_equal(find(NULL, "*-slurm-*", false, 3), 3);
		assert_string_equal(seen.id[0], "24900-slurm-");
		assert_string_equal(seen.id[2], "24700-slurm-");
		assert_string_equal(seen.text[2], "{\"n\":1}");
		assert_int_equal(find("24990", NULL, false, 99), 10);
		assert_string_equal(seen.id[0], "24999-unit-");
		assert_int_equal(find("24000", "*-slurm-*", false, 99), 10);
		assert_int_equal(find("3", NULL, false, 99), 0);
		commit();
		if (i == 1)
			open_clean();
	}
	store_delete_document(s, "job", "24999-unit-");
	store_put_document(s, "job", "24000-slurm-", "{\"n\":2}", 7);
	assert_int_equal(find("24990", NULL, false, 99), 9);
	assert_int_equal(find("24000", NULL, false, 9999), 999);
	assert_string_equal(seen.id[0], "24000-slurm-"); /* queued documents come first */
	assert_string_equal(seen.text[0], "{\"n\":2}");
}

STORE_TEST(a_thousand_documents_of_a_kind_are_kept)
{
	char id[16];

	open_clean();
	store_put_document(s, "other", "a", "{}", 2);
	for (unsigned i = 0; i < 1005; i++) {
		snprintf(id, sizeof(id), "w%u", i);
		store_put_document(s, "window", id, "{}", 2);
	}
	commit();
	assert_int_equal(documents("window", 5000), 1000);
	assert_string_equal(seen.id[0], "w5");
	assert_int_equal(documents("other", 5000), 1);
}

STORE_TEST(rows_have_a_limit_of_their_own_and_belong_to_the_counts_of_their_commit)
{
	char id[16], json[32];

	open_clean();
	for (unsigned i = 1; i <= 12; i++) {
		snprintf(id, sizeof(id), "%u", i);
		store_put_row(s, "workload", id, "{}", 2, 10);
		snprintf(json, sizeof(json), "%u", i * 100);
		store_put_row(s, "state", "gpu", json, strlen(json), 4);
		store_set_count(s, "energy", i * 100);
		store_commit(s);
	}
	commit();
	assert_int_equal(documents("workload", 100), 10);
	assert_string_equal(seen.id[0], "3");
	open_clean();
	assert_int_equal(documents("state", 100), 1);
	assert_string_equal(seen.text[0], "1200");
	assert_true(store_count(s, "energy") == 1200);
}

static char *document_of(size_t size)
{
	char *text = malloc(size + 1);

	assert_non_null(text);
	memset(text, 'x', size);
	text[size] = '\0';
	return text;
}

static void measure_document(void *arg, const char *id, const char *json)
{
	*(size_t *)arg = strlen(json);
}

STORE_TEST(a_document_is_kept_up_to_the_stated_size)
{
	char *text = document_of(VIEW_DOCUMENT_MAX + 1);
	size_t size = 0;

	open_clean();
	assert_int_equal(store_put_document(s, "window", "a", text, VIEW_DOCUMENT_MAX), 0);
	assert_int_equal(store_dropped(s), 0);
	assert_int_equal(store_put_document(s, "window", "b", text, VIEW_DOCUMENT_MAX + 1),
			 -GW_E_SIZE);
	assert_int_equal(store_dropped(s), 1);
	commit();
	open_clean();
	assert_int_equal(store_each_document(s, "window", 10, measure_document, &size), 1);
	assert_int_equal(size, VIEW_DOCUMENT_MAX);
	free(text);
}

STORE_TEST(a_statement_is_prepared_once)
{
	sqlite3_stmt *first, *second;
	sqlite3 *db = NULL;

	assert_int_equal(db_open(NULL, 0, &db), DB_OK);
	assert_null(sqlite3_next_stmt(db, NULL));
	first = db_statement(db, "SELECT 1 UNION SELECT 2");
	assert_int_equal(sqlite3_step(first), SQLITE_ROW);
	second = db_statement(db, "SELECT 1 UNION SELECT 2");
	assert_ptr_not_equal(first, second); /* the first statement is in use */
	db_done(second);
	db_done(first);
	assert_ptr_not_equal(db_statement(db, "SELECT 3"), first);
	second = db_statement(db, "SELECT 1 UNION SELECT 2");
	assert_int_equal(sqlite3_step(second), SQLITE_ROW);
	assert_int_equal(sqlite3_column_int(second, 0), 1);
	assert_null(db_statement(db, "SELECT FROM"));
	db_close(db); /* finalises all statements */
}

STORE_TEST(readings_come_back_as_they_went_in)
{
	open_clean();
	for (unsigned round = 0; round < 3; round++) {
		if (round == 0) {
			for (unsigned i = 0; i < 150; i++)
				add(T0 + i * S + 1500000, i == 70 ? (double)NAN : i + 0.25);
		}
		assert_int_equal(ask(T0, T0 + DAY, 0), 150);
		assert_true(points[3].begin_wall_ns == T0 + 3 * S + 1000000);
		assert_true(points[3].mean == 3.25 && points[3].max == 3.25);
		assert_int_equal(points[3].span_ns, 0);
		assert_int_equal(points[70].count, 0);
		assert_true(isnan(points[70].mean));
		assert_int_equal(ask(T0, T0 + DAY, MIN), 3);
		assert_int_equal(points[1].count, 59);
		assert_int_equal(points[2].count, 30);
		assert_true(points[2].min == 120.25 && points[2].max == 149.25);
		assert_int_equal(ask(T0, T0 + DAY, HOUR), 1);
		assert_int_equal(points[0].count, 149);
		commit();
	}
}

STORE_TEST(unfinished_rows_are_kept_when_saved)
{
	open_clean();
	for (unsigned i = 0; i < 7300; i++) {
		add(T0 + i * S, i);
		if (i % 7 == 0)
			store_commit(s);
		if (i % 293 == 292) { /* at another second of the minute each time */
			store_save(s);
			commit();
			open_clean();
		}
	}
	assert_int_equal(ask(T0, T0 + DAY, 0), 7300);
	for (unsigned i = 0; i < 7300; i++)
		assert_true(points[i].mean == i);
	assert_int_equal(ask(T0, T0 + DAY, HOUR), 3);
	assert_int_equal(points[0].count, 3600);
	assert_int_equal(points[1].count, 3600);
	assert_int_equal(points[2].count, 100);
}

STORE_TEST(an_unfinished_row_continues_after_a_restart)
{
	open_clean();
	for (unsigned i = 0, restarts = 0; i < 4000; i++) {
		add(T0 + i * S, i);
		if (i % 7 == 0)
			store_commit(s);
		if (i / 491 > restarts) {
			restarts = i / 491;
			add(T0 + i * S, 1e9); /* refused, because the time is not later */
			commit();
			open_clean();
			i -= 15; /* readings that were not handed over are sent again */
		}
	}
	assert_int_equal(ask(T0, T0 + DAY, 0), 4000);
	for (unsigned i = 0; i < 4000; i++)
		assert_true(points[i].mean == i);
	assert_int_equal(ask(T0, T0 + DAY, MIN), 67);
	for (unsigned i = 0; i < 66; i++)
		assert_int_equal(points[i].count, 60);
	assert_int_equal(ask(T0, T0 + DAY, HOUR), 2);
	assert_int_equal(points[0].count, 3600);
	assert_int_equal(points[1].count, 400);
	assert_true(points[0].min == 0 && points[0].max == 3599);
	commit();
	close_store();
	assert_int_equal(ask_sql("SELECT count(*) FROM history WHERE tier=0"), 67);
	assert_int_equal(ask_sql("SELECT count(*) FROM history WHERE tier=1"), 2);
}

STORE_TEST(invalid_history_queries_are_refused)
{
	uint64_t step;

	open_clean();
	assert_int_equal(ask(0, T0, 0), -GW_E_NODEV);
	add(T0, 1);
	assert_int_equal(ask(1, 0, 0), -GW_E_ARG);
	assert_int_equal(ask(0, T0, UINT64_MAX), -GW_E_ARG);
	assert_int_equal(store_history(s, GPU, VIEW_HISTORIES, 0, T0, 0, points, POINTS, &step),
			 -GW_E_ARG);
	assert_int_equal(ask(0, UINT64_MAX, 0), 1);
	assert_int_equal(ask(0, UINT64_MAX, HOUR), 1);
	assert_int_equal(ask(T0 + S, T0 + DAY, 0), 0);
}

struct sample {
	uint64_t t_ns;
	double value;
};

static void assert_close(double have, double want, double scale)
{
	if ((isnan(have) && isnan(want)) || fabs(have - want) <= 1e-5 * (1 + fabs(scale)))
		return;
	print_message("have %.17g, want %.17g\n", have, want);
	fail();
}

static unsigned brute(const struct sample *all, unsigned n, uint64_t from, uint64_t to,
		      uint64_t step, struct view_point *out)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t b = step ? all[i].t_ns / step * step : all[i].t_ns;

		if (b > to || (step ? b + step <= from : b < from))
			continue;
		if (k == 0 || out[k - 1].begin_wall_ns != b)
			out[k++] = (struct view_point){ b, step, NAN, INFINITY, -INFINITY, 0 };
		if (isnan(all[i].value))
			continue;
		out[k - 1].mean = out[k - 1].count ? out[k - 1].mean : 0;
		/* the sum; the caller divides it by the count */
		out[k - 1].mean += all[i].value;
		out[k - 1].min = fmin(out[k - 1].min, all[i].value);
		out[k - 1].max = fmax(out[k - 1].max, all[i].value);
		out[k - 1].count++;
	}
	return k;
}

static void assert_same(const struct view_point *want, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(points[i].begin_wall_ns, want[i].begin_wall_ns);
		assert_int_equal(points[i].count, want[i].count);
		if (want[i].count == 0)
			continue;
		assert_close(points[i].mean, want[i].mean / want[i].count, 1000);
		assert_close(points[i].min, want[i].min, 0);
		assert_close(points[i].max, want[i].max, 0);
	}
}

STORE_TEST(history_equals_a_brute_force_count)
{
	static const uint64_t steps[] = { 0, S, 7 * S, MIN, 90 * S, 5 * MIN, HOUR, 6 * HOUR };
	enum { READINGS = 20000 };
	struct sample *all = calloc(READINGS, sizeof(*all));
	struct view_point *want = calloc(READINGS, sizeof(*want));
	uint64_t seed = seed_of_run(), t = T0 + next(&seed) % DAY;
	unsigned n = 0;

	open_clean();
	assert_true(all && want);
	while (n < READINGS) {
		t += 1000000 * (1 + next(&seed) % 2000);
		if (next(&seed) % 900 == 0)
			t += next(&seed) % (20 * MIN);
		t -= t % 1000000;
		all[n].t_ns = t;
		all[n].value = next(&seed) % 9
				       ? (double)(float)((double)(next(&seed) % 700000) / 1000)
				       : NAN;
		add(t, all[n++].value);
		if (next(&seed) % 20 == 0)
			store_commit(s);
		if (next(&seed) % 500 == 0)
			commit(); /* a batch that does not fit is dropped */
		if (next(&seed) % 400)
			continue;
		uint64_t step = steps[next(&seed) % COUNT_OF(steps)];
		uint64_t from = t - next(&seed) % (23 * HOUR);
		uint64_t to = from + next(&seed) % (24 * HOUR);
		int have = ask(from, to, step);
		unsigned k = brute(all, n, from, to, step, want);

		assert_int_equal(have, k);
		assert_same(want, k);
	}
	assert_int_equal(store_dropped(s), 0);
	free(all);
	free(want);
}

static void write_until_killed(int fd)
{
	uint64_t n;

	if (store_open(path, LIMIT, &s, message, sizeof(message)) < 0 || message[0])
		_exit(3);
	n = (uint64_t)store_count(s, "batches");
	for (;;) {
		n++;
		store_set_count(s, "batches", (double)n);
		log_event("batch");
		for (unsigned i = 0; i < 5; i++)
			add(T0 + (n * 5 + i) * S, (double)n);
		store_commit(s);
		if (store_flush(s, PATIENCE) < 0 || write(fd, &n, sizeof(n)) != sizeof(n))
			_exit(4);
	}
}

/* Asserts that a kill loses at most the readings of ten seconds and of the current batch. */
static void assert_all_there(uint64_t reported, unsigned kills)
{
	double n;

	open_clean();
	n = store_count(s, "batches");
	assert_true(n >= (double)reported);
	assert_true(n <= (double)reported + 1);
	assert_true(s->last_event >= (uint64_t)n); /* reserved ids are not used again */
	events(0, UINT32_MAX);
	assert_int_equal(seen.count, (uint64_t)n);
	if (n > 2) {
		int k = ask(0, UINT64_MAX, S);

		assert_true(k >= (int)(5 * n) - 15 * (int)kills && k <= (int)(5 * n));
		for (int i = 1; i < k; i++)
			assert_true(points[i].begin_wall_ns > points[i - 1].begin_wall_ns);
	}
	close_store();
}

STORE_TEST(a_kill_at_any_moment_loses_nothing_committed)
{
	uint64_t seed = seed_of_run(), reported = 0;

	for (unsigned round = 0; round < 40; round++) {
		uint64_t n, wanted = 1 + next(&seed) % 12;
		struct timespec pause = { 0, (long)(next(&seed) % 2000000) };
		int ends[2];
		pid_t child;

		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (child == 0)
			write_until_killed(ends[1]);
		close(ends[1]);
		for (uint64_t i = 0; i < wanted; i++) {
			assert_int_equal(read(ends[0], &n, sizeof(n)), sizeof(n));
			reported = n;
		}
		nanosleep(&pause, NULL); /* somewhere in a batch */
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		while (read(ends[0], &n, sizeof(n)) == sizeof(n))
			reported = n;
		close(ends[0]);
		assert_all_there(reported, round + 1);
	}
}

/* The main file and the other files have separate methods. */
static struct {
	sqlite3_vfs vfs, *real;
	sqlite3_io_methods methods[2];
	int (*write[2])(sqlite3_file *f, const void *p, int n, sqlite3_int64 at);
	int (*map)(sqlite3_file *f, int page, int size, int extend, void volatile **ret);
	_Atomic int result;     /* what every write returns; 0: the result of the real write */
	_Atomic bool read_only; /* no file can be opened for writing */
} fault;

static int fault_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	int result = atomic_load(&fault.result);

	return result ? result : fault.write[f->pMethods == &fault.methods[1]](f, p, n, at);
}

static int fault_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret)
{
	if (extend && atomic_load(&fault.result) == SQLITE_FULL)
		return SQLITE_IOERR_SHMSIZE;
	return fault.map(f, page, size, extend, ret);
}

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
	unsigned kind = flags & SQLITE_OPEN_MAIN_DB ? 0 : 1;
	int rc;

	if (atomic_load(&fault.read_only)) /* as for a file without write permission */
		flags = (flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) |
			SQLITE_OPEN_READONLY;
	rc = fault.real->xOpen(fault.real, name, f, flags, out);
	if (rc != SQLITE_OK || !f->pMethods)
		return rc;
	if (!fault.write[kind]) {
		fault.methods[kind] = *f->pMethods;
		fault.write[kind] = f->pMethods->xWrite;
		fault.methods[kind].xWrite = fault_write;
		fault.map = kind == 0 ? f->pMethods->xShmMap : fault.map;
		fault.methods[kind].xShmMap = fault_map;
	}
	f->pMethods = &fault.methods[kind];
	return rc;
}

static void no_fault(void)
{
	atomic_store(&fault.result, 0);
	atomic_store(&fault.read_only, false);
}

static int fault_setup(void **state)
{
	fault.real = sqlite3_vfs_find(NULL);
	fault.vfs = *fault.real;
	fault.vfs.zName = "fault";
	fault.vfs.xOpen = fault_open;
	sqlite3_vfs_register(&fault.vfs, 1);
	return setup(state);
}

static int fault_teardown(void **state)
{
	no_fault();
	sqlite3_vfs_unregister(&fault.vfs);
	sqlite3_vfs_register(fault.real, 1);
	return teardown(state);
}

#define STORE_FAULT_TEST(name) TEST_WITH(name, fault_setup, fault_teardown)

STORE_FAULT_TEST(data_that_cannot_be_written_is_kept_until_it_can)
{
	static const struct {
		int result;
		const char *says;
	} rows[] = { { SQLITE_FULL, "the disk is full" },
		     { SQLITE_READONLY, "read-only" },
		     { SQLITE_IOERR_WRITE, "input/output" } };

	open_clean();
	for (unsigned i = 0; i < COUNT_OF(rows); i++) {
		uint64_t dropped = store_dropped(s);

		atomic_store(&fault.result, rows[i].result);
		store_set_count(s, "n", i + 1);
		log_event("while it failed");
		add(T0 + i * DAY, 1);
		commit_fails();
		assert_in(store_state(s), rows[i].says);
		assert_in(store_state(s), path);
		assert_int_equal(store_dropped(s), dropped + 1);
		log_event("still");
		commit_fails();
		atomic_store(&fault.result, 0);
		assert_int_equal(store_flush(s, PATIENCE), 0);
		assert_string_equal(store_state(s), "ok");
	}
	open_clean();
	assert_true(store_count(s, "n") == COUNT_OF(rows));
	assert_int_equal(events(0, 100), 2 * COUNT_OF(rows));
}

STORE_FAULT_TEST(a_path_that_is_not_a_file_is_never_opened)
{
	static const mode_t kinds[] = { S_IFDIR, S_IFIFO };
	char at[sizeof(path) + 8], lock[sizeof(at) + 8];
	sqlite3 *db;
	struct stat st;

	snprintf(at, sizeof(at), "%s/odd", tree.path);
	snprintf(lock, sizeof(lock), "%s.lock", at);
	for (unsigned i = 0; i < COUNT_OF(kinds); i++) {
		assert_int_equal(kinds[i] == S_IFDIR ? mkdir(at, 0700) : mkfifo(at, 0600), 0);
		assert_int_equal(store_open(at, 1u << 20, &s, message, sizeof(message)), 0);
		assert_in(message, at);
		assert_in(message, "set [history] path to a file");
		assert_string_equal(store_state(s), message);
		assert_false(store_lasting(s));
		assert_true(store_count_known(s)); /* known at once, without waiting */
		close_store();
		assert_int_equal(db_open_reader(at, &db), DB_NO_FILE);
		assert_int_equal(db_open_alone(at, &db), DB_NO_FILE);
		assert_int_not_equal(stat(lock, &st), 0);
		assert_int_equal(remove(at), 0);
	}
}

STORE_FAULT_TEST(a_flush_without_waiting_reports_that_the_write_failed)
{
	open_clean();
	atomic_store(&fault.result, SQLITE_FULL);
	log_event("while it failed");
	commit_fails();
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(store_flush(s, 0), -GW_E_IO);
	atomic_store(&fault.result, 0);
	assert_int_equal(store_flush(s, PATIENCE), 0);
	assert_int_equal(store_flush(s, 0), 0);
}

/* Repairs the disk and flushes. A write that was running meanwhile may still fail; the next one
 * succeeds. */
static int flush_when_repaired(void)
{
	int rc;

	atomic_store(&fault.result, 0);
	rc = store_flush(s, PATIENCE);
	return rc == -GW_E_IO ? store_flush(s, PATIENCE) : rc;
}

STORE_FAULT_TEST(a_disk_that_stays_full_takes_no_more_memory)
{
	open_clean();
	atomic_store(&fault.result, SQLITE_FULL);
	for (unsigned i = 0; i < 30000; i++) {
		log_event("a sentence of some length, so that the queue is soon full");
		store_commit(s);
	}
	assert_true(store_dropped(s) > 1000);
	assert_int_equal(flush_when_repaired(), 0);
	log_event("after");
	commit();
	assert_int_equal(s->last_event, 30001);
	close_store();
	assert_int_equal(ask_sql("SELECT max(id) FROM event"), 30001);
}

STORE_FAULT_TEST(accepted_documents_are_written_and_refused_ones_are_reported)
{
	char *text = document_of(100000), id[16];
	int taken = 0, refused = 0;

	open_clean();
	atomic_store(&fault.result, SQLITE_FULL);
	for (unsigned i = 0; i < 60; i++) {
		snprintf(id, sizeof(id), "w%u", i);
		if (store_put_document(s, "window", id, text, 100000) == 0)
			taken++;
		else
			refused++;
		store_commit(s);
	}
	assert_true(taken >= 10);
	assert_true(refused >= 10);
	assert_int_equal(store_dropped(s), refused);
	assert_int_equal(flush_when_repaired(), 0);
	open_clean();
	assert_int_equal(documents("window", 100), taken);
	free(text);
}

/* The linker option --wrap replaces realloc in our own objects. */
static _Atomic bool no_realloc; /* realloc fails in the store's thread */
static pthread_t test_thread;
/* The test's thread fails its allocation with this number; 0: none fails. */
static _Thread_local unsigned allocations, fail_at;

static bool allocation_fails(void)
{
	return ++allocations == fail_at;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	return allocation_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	return allocation_fails() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	if (allocation_fails() ||
	    (atomic_load(&no_realloc) && !pthread_equal(pthread_self(), test_thread)))
		return NULL;
	return __real_realloc(p, n);
}

static int read_documents(void)
{
	return documents("job", 10);
}

static int read_found(void)
{
	return find(NULL, NULL, false, 10);
}

static int read_events(void)
{
	return events(0, 10);
}

static int read_points(void)
{
	memset(&seen, 0, sizeof(seen));
	return ask(T0, T0 + HOUR, 0);
}

STORE_TEST(a_read_without_memory_is_an_error_and_never_an_incomplete_answer)
{
	static int (*const reads[])(void) = { read_documents, read_found, read_events,
					      read_points };
	static const int counts[] = { 2, 2, 2, 40 };

	open_clean();
	store_put_document(s, "job", "a", "{\"n\":1}", 7);
	store_put_document(s, "job", "b", "{\"n\":1}", 7);
	log_event("in the file");
	commit();
	store_put_document(s, "job", "b", "{\"n\":2}", 7);
	log_event("in the queue");
	for (unsigned i = 0; i < 40; i++) /* More rows in the queue than fit at first. */
		add(T0 + i * MIN, 1);
	for (unsigned i = 0; i < 4; i++) {
		unsigned failed = 0;
		int n;

		for (;; failed++) {
			allocations = 0;
			fail_at = failed + 1;
			n = reads[i]();
			fail_at = 0;
			if (allocations <= failed)
				break;
			assert_int_equal(n, -GW_E_NOMEM);
			assert_int_equal(seen.count, 0);
		}
		assert_true(failed > 0);
		assert_int_equal(n, counts[i]);
	}
}

STORE_FAULT_TEST(without_memory_a_document_stays_in_the_queue)
{
	char *text = document_of(100000);

	test_thread = pthread_self();
	open_clean();
	atomic_store(&fault.result, SQLITE_FULL);
	log_event("in the batch that is retried");
	commit_fails();
	assert_int_equal(store_put_document(s, "window", "w", text, 100000), 0);
	atomic_store(&no_realloc, true);
	commit_fails();
	atomic_store(&no_realloc, false);
	assert_int_equal(flush_when_repaired(), 0);
	assert_int_equal(store_dropped(s), 0);
	open_clean();
	assert_int_equal(events(0, 10), 1);
	assert_int_equal(documents("window", 10), 1);
	free(text);
}

STORE_TEST(without_a_writable_file_the_store_works_in_memory)
{
	tree_put(&tree, "state", "a file where a folder should be");
	open_limited(LIMIT);
	assert_in(message, path);
	assert_in(message, "until this is fixed and gpuward is restarted, everything is kept");
	assert_string_equal(store_state(s), message);
	assert_false(store_lasting(s));
	assert_true(store_count_known(s));
	log_event("one");
	add(T0, 5);
	commit();
	assert_int_equal(events(0, 10), 1);
	assert_int_equal(ask(T0, T0, 0), 1);
}

/* Leaves the file as a killed process does: all data is in the log. */
static void leave_behind(void)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		open_clean();
		store_set_count(s, "n", 7);
		store_set_count(s, "only before", 3);
		log_event("before");
		store_put_document(s, "manage", "a", "{}", 2);
		add(T0, 5);
		commit();
		_exit(0);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
}

/* Asserts that the file is read while it cannot be written, and is written as soon as it can
 * be. */
static void assert_read_and_used_later(const char *why, void (*better)(void))
{
	uint64_t last;

	open_limited(LIMIT);
	assert_in(message, why);
	assert_in(message, path);
	assert_string_equal(store_state(s), message);
	assert_true(store_count_known(s));
	assert_true(store_lasting(s));
	assert_true(store_count(s, "n") == 7);
	last = s->last_event;
	assert_true(last >= 1);
	assert_int_equal(events(0, 10), 1);
	assert_int_equal(documents("manage", 10), 1);
	assert_int_equal(ask(T0, T0, 0), 1);
	store_set_count(s, "n", 9);
	assert_int_equal(log_event("meanwhile"), last + 1);
	store_delete_document(s, "manage", "a");
	store_put_document(s, "manage", "b", "{}", 2);
	commit_fails();
	assert_in(store_state(s), why);
	assert_int_equal(ask(T0, T0, 0), 1);
	better();
	assert_int_equal(store_flush(s, PATIENCE), 0);
	assert_string_equal(store_state(s), "ok");
	assert_false(store_news(s));
	open_clean();
	assert_true(store_count(s, "n") == 9);
	assert_true(store_count(s, "only before") == 3);
	assert_true(s->last_event >= last + 1);
	assert_int_equal(documents("manage", 10), 1);
	assert_string_equal(seen.id[0], "b");
}

STORE_FAULT_TEST(on_a_full_disk_the_file_is_read_and_used_later)
{
	leave_behind();
	atomic_store(&fault.result, SQLITE_FULL);
	assert_read_and_used_later("the disk is full", no_fault);
}

STORE_FAULT_TEST(a_read_only_file_is_read_and_used_later)
{
	leave_behind();
	atomic_store(&fault.read_only, true);
	assert_read_and_used_later("read-only", no_fault);
}

STORE_FAULT_TEST(a_read_only_file_without_a_log_is_read_and_used_later)
{
	static const char *const parts[] = { "state/gpuward.db-wal", "state/gpuward.db-shm" };

	leave_behind();
	open_clean();
	close_store();
	for (unsigned i = 0; i < COUNT_OF(parts); i++)
		tree_remove(&tree, parts[i]);
	atomic_store(&fault.read_only, true);
	assert_read_and_used_later("read-only", no_fault);
}

static sqlite3 *hold(void)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
				      "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE;"
				      "DELETE FROM count WHERE 0",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	return db;
}

STORE_TEST(counts_made_while_the_file_was_locked_are_added)
{
	sqlite3 *holder;

	leave_behind();
	holder = hold();
	open_limited(LIMIT);
	assert_in(message, "locked by another program");
	assert_false(store_count_known(s));
	assert_false(store_lasting(s));
	assert_true(store_count(s, "n") == 0);
	store_set_count(s, "n", 2);
	store_set_count(s, "new", 4);
	store_begin_event_ids(s, 99999 * NS_PER_MS);
	assert_int_equal(log_event("b"), 100000);
	commit_fails();
	assert_in(store_state(s), "locked by another program");
	assert_false(store_news(s));
	store_set_count(s, "n", 3);
	store_commit(s);
	sqlite3_close(holder);
	assert_int_equal(store_flush(s, PATIENCE), 0);
	assert_string_equal(store_state(s), "ok");
	assert_int_equal(ask_sql("SELECT value FROM count WHERE key='n'"), 10);
	/* the caller does not know the count in the file yet, so the store adds the file's
	 * count */
	store_set_count(s, "n", 4);
	commit();
	assert_int_equal(ask_sql("SELECT value FROM count WHERE key='n'"), 11);
	assert_false(store_lasting(s));
	assert_true(store_news(s));
	assert_false(store_news(s));
	assert_true(store_lasting(s));
	assert_true(store_count(s, "n") == 7);
	assert_true(store_count(s, "only before") == 3);
	assert_int_equal(s->last_event, 100000);
	assert_int_equal(documents("manage", 10), 1);
	assert_int_equal(events(0, 10), 2);
	store_set_count(s, "n", 7 + 5);
	commit();
	open_clean();
	assert_true(store_count(s, "n") == 12);
	assert_true(store_count(s, "new") == 4);
	assert_true(store_count(s, "only before") == 3);
	assert_true(s->last_event >= 100000);
}

STORE_TEST(another_writer_does_not_hide_the_content)
{
	sqlite3 *writer = NULL;

	leave_behind();
	assert_int_equal(sqlite3_open(path, &writer), SQLITE_OK);
	assert_int_equal(sqlite3_exec(writer, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
	open_limited(LIMIT);
	assert_true(store_lasting(s));
	assert_true(store_count(s, "n") == 7);
	store_set_count(s, "n", 8);
	commit_fails();
	assert_in(store_state(s), "locked by another program");
	sqlite3_close(writer);
	assert_int_equal(store_flush(s, PATIENCE), 0);
	close_store();
	assert_int_equal(ask_sql("SELECT value FROM count WHERE key='n'"), 8);
}

STORE_FAULT_TEST(ids_that_could_not_be_written_are_not_given_again)
{
	int ends[2], status;
	uint64_t last = 0;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		open_clean();
		log_event("written");
		commit();
		atomic_store(&fault.result, SQLITE_FULL);
		for (unsigned i = 0; i < 50; i++)
			last = log_event("lost");
		store_commit(s);
		store_flush(s, PATIENCE);
		_exit(write(ends[1], &last, sizeof(last)) == sizeof(last) ? 0 : 1);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(read(ends[0], &last, sizeof(last)), sizeof(last));
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(last, 51);
	open_clean();
	assert_true(log_event("after") > last);
}

STORE_TEST(ids_continue_above_the_clock_and_above_the_file)
{
	uint64_t last;

	open_clean();
	log_event("of a version that began at 1");
	commit();
	open_clean();
	store_begin_event_ids(s, T0);
	last = log_event("of the clock");
	assert_int_equal(last, T0 / NS_PER_MS + 1);
	commit();
	open_clean();
	store_begin_event_ids(s, T0 - S); /* the clock was set back */
	assert_true(log_event("of the file") > last);
	assert_int_equal(events(0, 10), 3);
}

STORE_FAULT_TEST(ids_do_not_fall_after_a_run_that_never_wrote)
{
	uint64_t last;

	open_clean();
	log_event("written");
	commit();
	atomic_store(&fault.result, SQLITE_FULL); /* also at the start */
	open_limited(LIMIT);
	assert_true(store_lasting(s));
	store_begin_event_ids(s, T0);
	last = log_event("lost");
	commit_fails();
	close_store();
	no_fault();
	open_clean();
	store_begin_event_ids(s, T0 + S);
	assert_true(log_event("after") > last);
}

STORE_FAULT_TEST(a_full_disk_takes_a_new_file_later)
{
	atomic_store(&fault.result, SQLITE_FULL);
	open_limited(LIMIT);
	assert_in(message, "the disk is full");
	assert_true(store_lasting(s));
	store_set_count(s, "n", 1);
	log_event("one");
	commit_fails();
	no_fault();
	assert_int_equal(store_flush(s, PATIENCE), 0);
	open_clean();
	assert_true(store_count(s, "n") == 1);
	assert_true(s->last_event >= 1);
}

static unsigned moved_aside(void)
{
	char dir[100];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/state", tree.path);
	d = opendir(dir);
	while (d && (e = readdir(d)))
		n += strstr(e->d_name, "gpuward.db.corrupt-") != NULL &&
		     !strstr(e->d_name, "-wal");
	if (d)
		closedir(d);
	return n;
}

static void fill_file(void)
{
	open_clean();
	store_set_count(s, "n", 7);
	for (unsigned i = 0; i < 3 * 3600; i++) {
		add(T0 + i * S, (double)((i * 7919) % 1000) / 7);
		if (i % 600 == 0) {
			log_event("filling");
			commit();
		}
	}
	commit();
	close_store();
}

static void overwrite(off_t at, size_t n)
{
	int fd = open(path, O_WRONLY);
	char junk[4096];

	memset(junk, 0xa5, sizeof(junk));
	assert_true(fd >= 0);
	for (; n; n -= n < sizeof(junk) ? n : sizeof(junk), at += 4096)
		assert_true(pwrite(fd, junk, n < sizeof(junk) ? n : sizeof(junk), at) > 0);
	close(fd);
}

STORE_TEST(a_file_that_is_not_a_database_is_moved_aside)
{
	fill_file();
	overwrite(0, 100000);
	open_limited(LIMIT);
	assert_in(message, ".corrupt-");
	assert_string_equal(store_state(s), "ok");
	assert_true(store_lasting(s));
	assert_int_equal(moved_aside(), 1);
	store_set_count(s, "n", 1);
	commit();
	open_clean();
	assert_true(store_count(s, "n") == 1);
}

STORE_TEST(a_truncated_or_damaged_file_never_crashes_the_store)
{
	struct stat st;

	for (unsigned i = 0; i < 24; i++) {
		fill_file();
		assert_int_equal(stat(path, &st), 0);
		if (i < 8)
			assert_int_equal(truncate(path, st.st_size * i / 8), 0);
		else
			overwrite(st.st_size * (i - 8) / 16 / 4096 * 4096, 4096);
		open_limited(LIMIT);
		for (unsigned k = 0; k < 3; k++) {
			ask(T0, T0 + DAY, k * MIN);
			store_set_count(s, "n", 100 + k);
			log_event("after");
			for (unsigned j = 0; j < 70; j++)
				add(T0 + DAY + (k * 100 + j) * S, 1);
			commit();
		}
		assert_string_equal(store_state(s), "ok");
		open_limited(LIMIT);
		assert_true(store_count(s, "n") == 102);
		close_store();
		tree_remove(&tree, "state");
	}
}

static void remove_parts(const char *const *parts)
{
	char name[sizeof(path) + 8];

	for (; *parts; parts++) {
		snprintf(name, sizeof(name), "%s%s", path, *parts);
		assert_int_equal(unlink(name), 0);
	}
}

STORE_TEST(a_file_that_is_removed_while_it_is_open_is_created_again)
{
	static const char *const parts[][5] = { { "" },
						{ "", "-wal" },
						{ "", "-wal", "-shm", ".lock" } };
	char notice[5000];

	for (unsigned i = 0; i < COUNT_OF(parts); i++) {
		open_clean();
		store_set_count(s, "n", 4236);
		store_put_document(s, "window", "kept", "{}", 2);
		log_event("before");
		add(T0, 5);
		commit();
		assert_false(store_notice(s, notice, sizeof(notice)));
		remove_parts(parts[i]);
		log_event("after");
		commit();
		assert_true(store_notice(s, notice, sizeof(notice)));
		assert_in(notice, path);
		assert_in(notice, "was removed or replaced");
		assert_string_equal(store_state(s), "ok");
		assert_int_equal(events(0, 10), 2);
		log_event("once more");
		commit();
		assert_false(store_notice(s, notice, sizeof(notice)));
		open_clean();
		assert_true(store_count(s, "n") == 4236);
		assert_int_equal(documents("window", 10), 1);
		assert_int_equal(events(0, 10), 3);
		close_store();
		tree_remove(&tree, "state");
	}
}

STORE_TEST(a_lock_file_that_is_removed_with_the_file_is_locked_again)
{
	static const char *const parts[] = { "", ".lock", NULL };

	open_clean();
	commit();
	remove_parts(parts);
	commit();
	assert_int_equal(db_lock(path), -2);
}

STORE_TEST(a_file_that_replaces_the_open_one_keeps_its_contents)
{
	char backup[sizeof(path) + 8], notice[5000];

	snprintf(backup, sizeof(backup), "%s.backup", path);
	open_clean();
	store_set_count(s, "other", 50);
	store_set_count(s, "n", 1);
	commit();
	close_store();
	assert_int_equal(rename(path, backup), 0);
	open_clean();
	store_set_count(s, "n", 7);
	for (unsigned i = 0; i < 50; i++)
		log_event("in the log only");
	commit();
	assert_int_equal(rename(backup, path), 0);
	log_event("after");
	commit();
	assert_true(store_notice(s, notice, sizeof(notice)));
	assert_int_equal(moved_aside(), 0);
	open_clean();
	assert_true(store_count(s, "n") == 7);
	assert_true(store_count(s, "other") == 50);
	assert_int_equal(events(0, 100), 51);
}

STORE_FAULT_TEST(a_removed_file_is_copied_when_the_disk_has_space_again)
{
	open_clean();
	store_set_count(s, "n", 7);
	store_put_document(s, "window", "kept", "{}", 2);
	commit();
	assert_int_equal(unlink(path), 0);
	atomic_store(&fault.result, SQLITE_FULL);
	log_event("while the disk was full");
	commit_fails();
	assert_in(store_state(s), "disk is full");
	assert_int_equal(flush_when_repaired(), 0);
	assert_string_equal(store_state(s), "ok");
	open_clean();
	assert_true(store_count(s, "n") == 7);
	assert_int_equal(documents("window", 10), 1);
	assert_int_equal(events(0, 10), 1);
}

STORE_TEST(a_file_of_a_newer_version_is_left_alone)
{
	fill_file();
	assert_int_equal(run_sql("PRAGMA user_version=99"), SQLITE_OK);
	open_limited(LIMIT);
	assert_in(message, "newer");
	store_set_count(s, "n", 1000);
	commit();
	close_store();
	assert_int_equal(moved_aside(), 0);
	assert_int_equal(ask_sql("SELECT value FROM count WHERE key='n'"), 7);
	assert_int_equal(ask_sql("PRAGMA user_version"), 99);
}

STORE_TEST(a_file_with_a_negative_version_is_moved_aside)
{
	fill_file();
	assert_int_equal(run_sql("PRAGMA user_version=-1"), SQLITE_OK);
	open_limited(LIMIT);
	assert_in(message, ".corrupt-");
	assert_string_equal(store_state(s), "ok");
	close_store();
	assert_int_equal(moved_aside(), 1);
}

STORE_TEST(what_is_written_after_its_log_was_removed_is_kept)
{
	char log[140], kept[140];

	open_clean();
	store_set_count(s, "n", 1);
	commit();
	snprintf(log, sizeof(log), "%s-wal", path);
	assert_int_equal(unlink(log), 0);
	store_set_count(s, "n", 2);
	commit();
	assert_string_equal(store_state(s), "ok");
	/* A service that is killed now leaves only the file. */
	snprintf(kept, sizeof(kept), "cp %s %s.kept", path, path);
	assert_int_equal(system(kept), 0);
	close_store();
	snprintf(kept, sizeof(kept), "%s.kept", path);
	assert_int_equal(rename(kept, path), 0);
	unlink(log);
	assert_int_equal(ask_sql("SELECT value FROM count WHERE key='n'"), 2);
}

STORE_TEST(two_stores_never_share_a_file)
{
	struct store *second;

	open_clean();
	second = open_another(LIMIT);
	assert_in(message, "another gpuward");
	assert_in(message, path);
	store_set_count(second, "n", 9);
	store_commit(second);
	assert_int_equal(store_flush(second, PATIENCE), 0);
	store_close(second);
	open_clean();
	assert_true(store_count(s, "n") == 0);
}

STORE_TEST(a_clock_that_steps_costs_little)
{
	uint64_t t = T0;
	char notice[256];

	open_clean();
	for (unsigned i = 0; i < 7200; i++, t += S)
		add(t, 1);
	commit();
	assert_false(store_notice(s, notice, sizeof(notice)));
	/* clock set back a little: readings are refused until time catches up */
	for (unsigned i = 0; i < 30; i++)
		add(t - 20 * S + i * S, 2);
	assert_int_equal(ask(T0, T0 + DAY, 0), 7200 + 10);
	assert_true(store_notice(s, notice, sizeof(notice)));
	assert_in(notice, "the clock is 19 s behind the latest point of the history");
	assert_false(store_notice(s, notice, sizeof(notice))); /* it is reported once */
	commit();
	/* the clock is five years ahead for five minutes */
	for (unsigned i = 0; i < 300; i++) {
		add(T0 + 5 * 365 * DAY + i * S, 3);
		if (i % 10 == 0)
			commit();
	}
	assert_true(ask(T0, T0 + DAY, 0) >= 7000);
	for (unsigned i = 0; i < 600; i++) { /* the clock is right again */
		add(t + HOUR + i * S, 4);
		if (i % 10 == 0)
			commit();
	}
	assert_true(ask(t + HOUR, t + 2 * HOUR, 0) >= 540);
	open_clean();
	add(t + HOUR + 700 * S, 5); /* rows with later times do not block it */
	assert_int_equal(ask(t + HOUR + 700 * S, t + 2 * HOUR, 0), 1);
	assert_true(points[0].mean == 5);
}

STORE_TEST(old_rows_are_rolled_up_and_deleted)
{
	int n;

	open_clean();
	for (unsigned i = 0; i < 3 * 8640; i++) { /* three days, one reading per 10 s */
		add(T0 + i * 10 * S, 1);
		if (i % 30 == 0)
			commit();
	}
	commit();
	/* rows of a minute, because the finest rows do not reach back to T0 */
	n = ask(T0, T0 + 4 * DAY, 0);
	assert_int_equal(n, 3 * 1440);
	assert_int_equal(points[0].span_ns, MIN);
	assert_int_equal(points[0].count, 6);
	n = ask(T0 + 2 * DAY + HOUR, T0 + 4 * DAY, 0);
	assert_int_equal(n, 23 * 360);
	close_store();
	n = (int)ask_sql("SELECT count(*) FROM history WHERE tier=0");
	assert_true(n >= 1440 && n < 1460);
}

STORE_TEST(the_file_stays_below_its_limit)
{
	const uint64_t limit = 1 << 20;
	uint64_t seed = 7, most = 0;

	open_limited(limit);
	for (unsigned i = 0; i < 20 * 3600; i++) {
		add(T0 + i * S, (double)(next(&seed) % 1000000) / 7);
		if (i % 10)
			continue;
		commit();
		most = store_bytes(s) > most ? store_bytes(s) : most;
	}
	print_message("most: %llu bytes\n", (unsigned long long)most);
	assert_true(most <= limit); /* the file and its log */
	assert_int_equal(ask(T0, T0 + DAY, MIN), 20 * 60);
	assert_true(ask(T0 + 20 * 3600 * S - 5 * MIN, T0 + DAY, 0) >= 300);
	close_store();
	assert_true(ask_sql("PRAGMA page_count") * 4096 <= (sqlite3_int64)limit);
}

STORE_TEST(blocks_read_back_exactly_and_junk_is_refused)
{
	float in[BLOCK_MOMENTS * 8], out[BLOCK_MOMENTS * 8];
	struct block a = { .columns = 8, .value = in }, b = { .columns = 8, .value = out };
	uint64_t seed = seed_of_run();
	char bytes[BLOCK_BYTES + 1];
	struct buf data;

	for (unsigned round = 0; round < 2000; round++) {
		static const double unit[8] = { 1, 0.01, 1e6, 1048576, 0.001, 0.37, 1, 1 };

		a.count = 1 + (unsigned)(next(&seed) % BLOCK_MOMENTS);
		for (unsigned i = 0; i < a.count; i++) {
			a.offset[i] = (uint16_t)(i * 1000 + next(&seed) % 900);
			for (unsigned c = 0; c < 8; c++) {
				uint64_t range = c == 6 ? 1 : round % 2 ? 200 : 60000;
				double v = (double)(next(&seed) % range) * unit[c];

				in[i * 8 + c] = c == 7 || next(&seed) % 5 == 0 ? NAN : (float)v;
			}
		}
		buf_init_fixed(&data, bytes, sizeof(bytes));
		block_encode(&a, &data);
		assert_int_equal(data.err, 0);
		assert_int_equal(block_decode(&b, data.p, data.len), 0);
		assert_int_equal(b.count, a.count);
		assert_memory_equal(a.offset, b.offset, a.count * sizeof(a.offset[0]));
		for (unsigned i = 0; i < a.count * 8; i++)
			assert_true(in[i] == out[i] || (isnan(in[i]) && isnan(out[i])));
		assert_int_equal(block_decode(&b, data.p, next(&seed) % data.len), -GW_E_PARSE);
		for (unsigned k = 0; k < 5; k++)
			data.p[next(&seed) % data.len] = (char)next(&seed);
		block_decode(&b, data.p, data.len); /* any result is allowed */
	}
}

STORE_TEST(a_block_with_two_values_of_one_moment_is_refused)
{
	/* version 1, two moments, no column. The offsets are floats; 1.25 and 1.5 become the
	 * same number of units. */
	const float offset[] = { 1.25f, 1.5f };
	char bytes[4 + sizeof(offset)] = { 1, 2, 0, 2 };
	struct block b = { .columns = 0 };

	memcpy(bytes + 4, offset, sizeof(offset));
	assert_int_equal(block_decode(&b, bytes, sizeof(bytes)), -GW_E_PARSE);
}

TEST_MAIN(NULL, NULL)
