/* The store: what was committed is there afterwards, whatever happened in between.
 *
 * Disks that fail are made by a layer below SQLite (struct fault): it works for root and
 * everywhere.  Wall times are handed in; nothing waits. */
#include "daemon/store.h"

#include "base/clock.h"
#include "daemon/store_block.h"
#include "tree.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define S        NS_PER_S
#define MIN      (60 * S)
#define HOUR     (60 * MIN)
#define DAY      (24 * HOUR)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define T0       (UINT64_C(20000) * DAY) /* 2024-10-04 */
#define LIMIT    (UINT64_C(1) << 30)
#define GPU      "GPU-5a1b"
#define PATIENCE (60 * S)
#define POINTS   100000

static struct tree tree;
static char path[128];
static char message[4600];
static struct view_point *points;

static struct store *open_limited(uint64_t limit)
{
	struct store *s = NULL;

	assert_int_equal(store_open(path, limit, &s, message, sizeof(message)), 0);
	assert_non_null(s);
	return s;
}

static struct store *open_clean(void)
{
	struct store *s = open_limited(LIMIT);

	assert_string_equal(message, "");
	assert_string_equal(store_state(s), "ok");
	return s;
}

static void commit(struct store *s)
{
	store_commit(s);
	assert_int_equal(store_flush(s, PATIENCE), 0);
}

static void add(struct store *s, uint64_t wall_ns, double value)
{
	double v[VIEW_HISTORIES];

	for (unsigned q = 0; q < VIEW_HISTORIES; q++)
		v[q] = value + q;
	store_add_reading(s, GPU, wall_ns, v);
}

static int ask(struct store *s, uint64_t from, uint64_t to, uint64_t step)
{
	uint64_t given = 12345;

	return store_history(s, GPU, VIEW_H_POWER, from, to, step, points, POINTS, &given);
}

static int setup(void **state)
{
	(void)state;
	tree_init(&tree);
	snprintf(path, sizeof(path), "%s/state/gpuward.db", tree.path);
	points = calloc(POINTS, sizeof(*points));
	return points ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	tree_done(&tree);
	free(points);
	return 0;
}

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

/* ---- counts ---- */

static void counts_outlive_the_process_and_never_fall(void **state)
{
	struct store *s = open_clean();

	(void)state;
	assert_true(store_count(s, "energy") == 0);
	store_set_count(s, "energy", 12.5);
	store_set_count(s, "errors", 3);
	commit(s);
	store_set_count(s, "energy", 11);
	store_set_count(s, "errors", NAN);
	commit(s);
	store_set_count(s, "energy", 99); /* no batch took this */
	store_close(s);
	s = open_clean();
	assert_true(store_count(s, "energy") == 12.5);
	assert_true(store_count(s, "errors") == 3);
	assert_true(store_count(s, "others") == 0);
	store_set_count(s, "energy", 5); /* lower than what the file has */
	commit(s);
	store_close(s);
	s = open_clean();
	assert_true(store_count(s, "energy") == 12.5);
	store_close(s);
}

/* ---- events and documents ---- */

struct seen {
	unsigned count;
	uint64_t first, last;
	char text[8][64], id[8][64];
};

static void see_event(void *arg, const struct view_event *e)
{
	struct seen *v = arg;

	if (v->count == 0)
		v->first = e->id;
	assert_true(e->id > v->last);
	v->last = e->id;
	if (v->count < 8)
		snprintf(v->text[v->count], 64, "%s|%s|%s|%s", e->kind, e->uuid ? e->uuid : "-",
			 e->severity, e->text);
	v->count++;
}

static uint64_t tell(struct store *s, const char *text)
{
	struct view_event e = {
		.wall_ns = T0, .kind = "driver", .uuid = NULL, .severity = "info", .text = text
	};

	return store_add_event(s, &e);
}

static void events_have_ids_that_grow_for_ever(void **state)
{
	struct store *s = open_clean();
	struct seen v = { 0 };

	(void)state;
	assert_int_equal(store_last_event(s), 0);
	assert_int_equal(tell(s, "one"), 1);
	store_add_event(s, &(struct view_event){ .kind = "device-state",
						 .uuid = GPU,
						 .severity = "error",
						 .text = "it's \"lost\"" });
	assert_int_equal(store_events(s, 0, 100, see_event, &v), 2); /* not yet written */
	commit(s);
	tell(s, "three");
	assert_int_equal(store_last_event(s), 3);
	v = (struct seen){ 0 };
	assert_int_equal(store_events(s, 0, 100, see_event, &v), 3);
	assert_string_equal(v.text[1], "device-state|" GPU "|error|it's \"lost\"");
	assert_string_equal(v.text[2], "driver|-|info|three");
	v = (struct seen){ 0 };
	assert_int_equal(store_events(s, 1, 1, see_event, &v), 1);
	assert_int_equal(v.first, 2);
	commit(s);
	store_close(s);
	assert_int_equal(run_sql("DELETE FROM event"), SQLITE_OK);
	s = open_clean();
	assert_int_equal(store_last_event(s), 3);
	assert_int_equal(tell(s, "four"), 4);
	store_close(s);
}

static void the_latest_ten_thousand_events_are_kept(void **state)
{
	struct store *s = open_clean();
	struct seen v = { 0 };

	(void)state;
	for (unsigned i = 0; i < 10300; i++) {
		tell(s, "again");
		if (i % 500 == 0)
			commit(s);
	}
	commit(s);
	assert_int_equal(store_dropped(s), 0);
	assert_int_equal(store_events(s, 0, UINT32_MAX, see_event, &v), 10000);
	assert_int_equal(v.first, 301);
	assert_int_equal(v.last, 10300);
	store_close(s);
}

static void see_document(void *arg, const char *id, const char *json)
{
	struct seen *v = arg;

	if (v->count < 8) {
		snprintf(v->id[v->count], 64, "%s", id);
		snprintf(v->text[v->count], 64, "%s", json);
	}
	v->count++;
}

static void documents_are_kept_replaced_and_forgotten(void **state)
{
	struct store *s = open_clean();
	struct seen v = { 0 };

	(void)state;
	store_keep(s, "window", "a", "{\"n\":1}xyz", 7);
	store_keep(s, "window", "b", "{\"n\":2}", 7);
	store_keep(s, "other", "a", "{}", 2);
	assert_int_equal(store_kept(s, "window", 10, see_document, &v), 2);
	commit(s);
	store_keep(s, "window", "c", "{\"n\":3}", 7);
	store_keep(s, "window", "a", "{\"n\":4}", 7);
	store_forget(s, "window", "b");
	for (unsigned i = 0; i < 3; i++) {
		v = (struct seen){ 0 };
		assert_int_equal(store_kept(s, "window", 10, see_document, &v), 2);
		assert_string_equal(v.id[0], "c");
		assert_string_equal(v.id[1], "a");
		assert_string_equal(v.text[1], "{\"n\":4}");
		v = (struct seen){ 0 };
		assert_int_equal(store_kept(s, "window", 1, see_document, &v), 1);
		assert_string_equal(v.id[0], "a");
		commit(s);
		if (i == 1) {
			store_close(s);
			s = open_clean();
		}
	}
	store_close(s);
}

static void a_thousand_documents_of_a_kind_are_kept(void **state)
{
	struct store *s = open_clean();
	struct seen v = { 0 };
	char id[16];

	(void)state;
	store_keep(s, "other", "a", "{}", 2);
	for (unsigned i = 0; i < 1005; i++) {
		snprintf(id, sizeof(id), "w%u", i);
		store_keep(s, "window", id, "{}", 2);
	}
	commit(s);
	assert_int_equal(store_kept(s, "window", 5000, see_document, &v), 1000);
	assert_string_equal(v.id[0], "w5");
	assert_int_equal(store_kept(s, "other", 5000, see_document, &v), 1);
	store_close(s);
}

/* ---- history ---- */

static void readings_come_back_as_they_went_in(void **state)
{
	struct store *s = open_clean();

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		if (round == 0) {
			for (unsigned i = 0; i < 150; i++)
				add(s, T0 + i * S + 1500000, i == 70 ? (double)NAN : i + 0.25);
		}
		assert_int_equal(ask(s, T0, T0 + DAY, 0), 150);
		assert_true(points[3].begin_wall_ns == T0 + 3 * S + 1000000);
		assert_true(points[3].mean == 3.25 && points[3].max == 3.25);
		assert_int_equal(points[3].span_ns, 0);
		assert_int_equal(points[70].count, 0);
		assert_true(isnan(points[70].mean));
		assert_int_equal(ask(s, T0, T0 + DAY, MIN), 3);
		assert_int_equal(points[1].count, 59);
		assert_int_equal(points[2].count, 30);
		assert_true(points[2].min == 120.25 && points[2].max == 149.25);
		assert_int_equal(ask(s, T0, T0 + DAY, HOUR), 1);
		assert_int_equal(points[0].count, 149);
		commit(s);
	}
	store_close(s);
}

static void a_row_under_way_is_continued_after_a_restart(void **state)
{
	struct store *s = open_clean();

	(void)state;
	for (unsigned i = 0, restarts = 0; i < 4000; i++) {
		add(s, T0 + i * S, i);
		if (i % 7 == 0)
			store_commit(s);
		if (i / 491 > restarts) {
			restarts = i / 491;
			add(s, T0 + i * S, 1e9); /* not later: kept out */
			commit(s);
			store_close(s);
			s = open_clean();
			i -= 15; /* what had not been handed on is told again */
		}
	}
	assert_int_equal(ask(s, T0, T0 + DAY, 0), 4000);
	for (unsigned i = 0; i < 4000; i++)
		assert_true(points[i].mean == i);
	assert_int_equal(ask(s, T0, T0 + DAY, MIN), 67);
	for (unsigned i = 0; i < 66; i++)
		assert_int_equal(points[i].count, 60);
	assert_int_equal(ask(s, T0, T0 + DAY, HOUR), 2);
	assert_int_equal(points[0].count, 3600);
	assert_int_equal(points[1].count, 400);
	assert_true(points[0].min == 0 && points[0].max == 3599);
	commit(s);
	store_close(s);
	assert_int_equal(ask_sql("SELECT count(*) FROM history WHERE tier=0"), 67);
	assert_int_equal(ask_sql("SELECT count(*) FROM history WHERE tier=1"), 2);
}

static void nothing_is_asked_that_makes_no_sense(void **state)
{
	struct store *s = open_clean();
	uint64_t step;

	(void)state;
	assert_int_equal(ask(s, 0, T0, 0), -GW_E_NODEV);
	add(s, T0, 1);
	assert_int_equal(ask(s, 1, 0, 0), -GW_E_ARG);
	assert_int_equal(ask(s, 0, T0, UINT64_MAX), -GW_E_ARG);
	assert_int_equal(store_history(s, GPU, VIEW_HISTORIES, 0, T0, 0, points, POINTS, &step),
			 -GW_E_ARG);
	assert_int_equal(ask(s, 0, UINT64_MAX, 0), 1);
	assert_int_equal(ask(s, 0, UINT64_MAX, HOUR), 1);
	assert_int_equal(ask(s, T0 + S, T0 + DAY, 0), 0);
	store_close(s);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(counts_outlive_the_process_and_never_fall),
		T(events_have_ids_that_grow_for_ever),
		T(the_latest_ten_thousand_events_are_kept),
		T(documents_are_kept_replaced_and_forgotten),
		T(a_thousand_documents_of_a_kind_are_kept),
		T(readings_come_back_as_they_went_in),
		T(a_row_under_way_is_continued_after_a_restart),
		T(nothing_is_asked_that_makes_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
