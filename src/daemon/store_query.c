/* Makes points from rows in memory, in the queue and in the file.
 *
 * The queue is read before the file. So a row that is written to the file in the meantime may
 * be found twice, but is never missed. If several rows start at the same time, the newest one
 * counts. */
#include "store_parts.h"

#include "base/array.h"
#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define YEAR_NS (UINT64_C(366) * 24 * 3600 * NS_PER_S)

/* A row that is in memory or in the queue. */
struct overlay {
	uint64_t begin_ms;
	/* The row, if it is in memory. NULL if the row is encoded in `data`. */
	const struct block *block;
	const char *data;
	size_t size;
};

struct overlays {
	struct overlay *row;
	unsigned count, room;
	int err; /* 0, or -GW_E_NOMEM: a row is missing. */
};

/* Inserts a row in ascending order of time. The new row replaces a row that starts at the same
 * time. */
static void put_overlay(struct overlays *o, const struct overlay *row)
{
	unsigned at = o->count;

	while (at && o->row[at - 1].begin_ms >= row->begin_ms)
		at--;
	if (at < o->count && o->row[at].begin_ms == row->begin_ms) {
		o->row[at] = *row;
		return;
	}
	if (array_reserve(&o->row, &o->room, o->count + 1, sizeof(*o->row)) != 0) {
		o->err = -GW_E_NOMEM;
		return;
	}
	memmove(&o->row[at + 1], &o->row[at], (o->count - at) * sizeof(*row));
	o->row[at] = *row;
	o->count++;
}

static bool is_record_of(const struct record *r, const char *uuid, unsigned tier)
{
	return r->kind == RECORD_HISTORY && r->a == tier && strcmp(r->text[0], uuid) == 0;
}

/* Copies the queued records of a GPU's tier to `records`, and puts them into the list. */
static void put_waiting(struct overlays *o, struct store *s, const char *uuid, unsigned tier,
			uint64_t low_ms, uint64_t to_ms, struct buf *records)
{
	struct queue_place place = { 0 };
	struct record r;

	mailbox_lock(&s->box);
	while (o->err == 0 && store_queue_next(s, PART_HISTORY, &place, &r))
		if (is_record_of(&r, uuid, tier) && r.b >= low_ms && r.b <= to_ms &&
		    !record_add(records, &r))
			o->err = -GW_E_NOMEM;
	mailbox_unlock(&s->box);
	for (size_t at = 0; record_next(records, &at, &r);)
		put_overlay(o, &(struct overlay){ r.b, NULL, r.text[1], r.length[1] });
}

struct row_walk {
	struct overlays over;
	unsigned next; /* Position of the next row in `over`. */
	struct block row;
	store_row_fn *each;
	void *arg;
};

static bool give_bytes(struct row_walk *w, uint64_t begin_ms, const void *data, size_t size)
{
	w->row.begin_ms = begin_ms;
	if (block_decode(&w->row, data, size) < 0)
		return true; /* The row is damaged. Skip it. */
	return w->each(w->arg, &w->row);
}

/* Passes the rows of memory and queue that start earlier than before_ms to the function
 * `each`. */
static bool give_overlays(struct row_walk *w, uint64_t before_ms)
{
	for (; w->next < w->over.count; w->next++) {
		const struct overlay *o = &w->over.row[w->next];

		if (o->begin_ms >= before_ms)
			return true;
		if (o->block ? !w->each(w->arg, o->block)
			     : !give_bytes(w, o->begin_ms, o->data, o->size))
			return false;
	}
	return true;
}

static int walk_file(struct row_walk *w, sqlite3_stmt *q)
{
	int rc;

	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		uint64_t begin_ms = (uint64_t)sqlite3_column_int64(q, 0);
		const void *data = sqlite3_column_blob(q, 1);
		int size = sqlite3_column_bytes(q, 1);

		if (!give_overlays(w, begin_ms))
			return SQLITE_ABORT;
		if (w->next < w->over.count && w->over.row[w->next].begin_ms == begin_ms)
			continue;
		if (data && !give_bytes(w, begin_ms, data, (size_t)size))
			return SQLITE_ABORT;
	}
	return rc;
}

/* Passes rows to `each` until it returns false. Returns 0 or -GW_E_IO. */
static int walk_rows(struct store *s, struct row_walk *w, const char *uuid, unsigned tier,
		     uint64_t low_ms, uint64_t to_ms)
{
	sqlite3 *db = store_reader(s);
	sqlite3_stmt *q = NULL;
	int rc = SQLITE_DONE;

	if (db) {
		q = db_statement(db, "SELECT begin, data FROM history WHERE tier=?1 AND"
				     " gpu=(SELECT id FROM gpu WHERE uuid=?2) AND"
				     " begin BETWEEN ?3 AND ?4 ORDER BY begin");
		sqlite3_bind_int(q, 1, (int)tier);
		sqlite3_bind_text(q, 2, uuid, -1, SQLITE_STATIC);
		sqlite3_bind_int64(q, 3, (sqlite3_int64)low_ms);
		sqlite3_bind_int64(q, 4, (sqlite3_int64)to_ms);
		rc = q ? walk_file(w, q) : sqlite3_errcode(db);
		db_done(q);
	}
	store_reader_done(s);
	if (rc == SQLITE_ABORT)
		return 0;
	if (rc != SQLITE_DONE)
		store_read_failed(s, rc);
	give_overlays(w, UINT64_MAX);
	return rc == SQLITE_DONE ? 0 : -GW_E_IO;
}

int store_rows(struct store *s, const struct history *h, const char *uuid, unsigned tier,
	       uint64_t from_ms, uint64_t to_ms, store_row_fn *each, void *arg)
{
	float value[BLOCK_MOMENTS * VIEW_HISTORIES * FIGURES];
	float open_value[VIEW_HISTORIES * FIGURES];
	struct row_walk w = { .each = each, .arg = arg };
	struct block open = { .value = open_value };
	uint64_t low_ms = from_ms - from_ms % store_tiers[tier].row_ms;
	struct buf records;
	int err;

	w.row.value = value;
	w.row.columns = VIEW_HISTORIES * store_tiers[tier].figures;
	to_ms = to_ms > INT64_MAX ? INT64_MAX : to_ms;
	buf_init(&records, 4 << 20);
	put_waiting(&w.over, s, uuid, tier, low_ms, to_ms, &records);
	if (h && h->row[tier].count)
		put_overlay(&w.over, &(struct overlay){ .begin_ms = h->row[tier].begin_ms,
							.block = &h->row[tier] });
	if (h && store_open_bucket(h, tier, &open))
		put_overlay(&w.over,
			    &(struct overlay){ .begin_ms = open.begin_ms, .block = &open });
	err = w.over.err ? w.over.err : walk_rows(s, &w, uuid, tier, low_ms, to_ms);
	free(w.over.row);
	buf_done(&records);
	return err;
}

static uint64_t file_edge(struct store *s, const char *uuid, unsigned tier, uint64_t until_ms,
			  bool last)
{
	sqlite3 *db = store_reader(s);
	sqlite3_stmt *q;
	uint64_t edge = 0;

	if (!db) {
		store_reader_done(s);
		return 0;
	}
	q = db_statement(db, last ? "SELECT max(begin) FROM history WHERE tier=?1 AND"
				    " gpu=(SELECT id FROM gpu WHERE uuid=?2) AND begin<=?3"
				  : "SELECT min(begin) FROM history WHERE tier=?1 AND"
				    " gpu=(SELECT id FROM gpu WHERE uuid=?2) AND begin<=?3");
	sqlite3_bind_int(q, 1, (int)tier);
	sqlite3_bind_text(q, 2, uuid, -1, SQLITE_STATIC);
	sqlite3_bind_int64(q, 3, (sqlite3_int64)until_ms);
	if (sqlite3_step(q) == SQLITE_ROW)
		edge = (uint64_t)sqlite3_column_int64(q, 0);
	else
		store_read_failed(s, sqlite3_errcode(db));
	db_done(q);
	store_reader_done(s);
	return edge;
}

uint64_t store_edge(struct store *s, const char *uuid, unsigned tier, uint64_t until_ms,
		    bool last)
{
	struct queue_place at = { 0 };
	struct record r;
	uint64_t edge = 0;

	until_ms = until_ms > INT64_MAX ? INT64_MAX : until_ms;
	mailbox_lock(&s->box);
	while (store_queue_next(s, PART_HISTORY, &at, &r))
		if (is_record_of(&r, uuid, tier) && r.b <= until_ms &&
		    (edge == 0 || (last ? r.b > edge : r.b < edge)))
			edge = r.b;
	mailbox_unlock(&s->box);

	uint64_t file = file_edge(s, uuid, tier, until_ms, last);

	if (edge == 0 || file == 0)
		return edge + file;
	return (file > edge) == last ? file : edge;
}

struct query {
	struct store *s;
	struct history *h;
	unsigned column, tier;
	uint64_t from_ns, to_ns, step_ns; /* step_ns 0 means single readings. */
	struct view_point *out;
	unsigned max, count;
	/* Time of the last moment that was read. Moments up to this time are skipped. */
	uint64_t last_ms;
	bool too_many;
};

static struct view_point point_of(const struct query *q, const struct block *row, unsigned i)
{
	unsigned figures = store_tiers[q->tier].figures;
	const float *v = &row->value[i * row->columns + q->column * figures];
	struct view_point p = { .mean = (double)v[0],
				.min = (double)v[0],
				.max = (double)v[0] };

	p.count = isnan(p.mean) ? 0u : 1u;
	if (figures == FIGURES) {
		p.min = (double)v[FIGURE_MIN];
		p.max = (double)v[FIGURE_MAX];
		p.count = p.count ? (unsigned)v[FIGURE_COUNT] : 0;
	}
	return p;
}

static void merge_points(struct view_point *to, const struct view_point *p)
{
	if (p->count == 0)
		return;
	if (to->count == 0) {
		to->mean = p->mean;
		to->min = p->min;
		to->max = p->max;
	} else {
		to->mean += (p->mean - to->mean) * p->count / ((double)to->count + p->count);
		to->min = fmin(to->min, p->min);
		to->max = fmax(to->max, p->max);
	}
	to->count += p->count;
}

/* Adds a point, or merges it into the last point if both are in the same step. Returns false if
 * no space is left. */
static bool add_point(struct query *q, uint64_t begin_ns, const struct view_point *p)
{
	struct view_point *last = q->count ? &q->out[q->count - 1] : NULL;

	if (last && q->step_ns && last->begin_wall_ns == begin_ns) {
		merge_points(last, p);
		return true;
	}
	if (q->count == q->max) {
		q->too_many = true;
		return false;
	}
	q->out[q->count] = *p;
	q->out[q->count].begin_wall_ns = begin_ns;
	q->out[q->count++].span_ns = q->step_ns;
	return true;
}

static bool add_row(void *arg, const struct block *row)
{
	struct query *q = arg;

	for (unsigned i = 0; i < row->count; i++) {
		uint64_t t_ms = row->begin_ms + row->offset[i] * store_tiers[q->tier].unit_ms;
		uint64_t begin_ns = t_ms * NS_PER_MS;
		struct view_point p;

		if (q->step_ns)
			begin_ns -= begin_ns % q->step_ns;
		if (t_ms <= q->last_ms || begin_ns > q->to_ns ||
		    (q->step_ns ? begin_ns + q->step_ns <= q->from_ns : begin_ns < q->from_ns))
			continue;
		q->last_ms = t_ms;
		p = point_of(q, row, i);
		if (!add_point(q, begin_ns, &p))
			return false;
	}
	return true;
}

static uint64_t span_ns(unsigned tier)
{
	return tier == TIER_READINGS ? 0 : store_tiers[tier].unit_ms * NS_PER_MS;
}

/* Reads the points of one tier with the requested step. If the tier does not have this step,
 * uses the next larger step that it has. Returns 0 or an error of store_rows(). */
static int query_tier(struct query *q, unsigned tier, uint64_t step_ns)
{
	uint64_t span = span_ns(tier), from, to;

	q->tier = tier;
	q->step_ns =
		span ? (step_ns > span ? (step_ns + span - 1) / span * span : span) : step_ns;
	q->count = 0;
	q->last_ms = 0;
	q->too_many = false;
	from = q->step_ns ? q->from_ns - q->from_ns % q->step_ns : q->from_ns;
	to = q->to_ns > UINT64_MAX - q->step_ns ? UINT64_MAX : q->to_ns + q->step_ns;
	return store_rows(q->s, q->h, q->h->uuid, tier, from / NS_PER_MS, to / NS_PER_MS,
			  add_row, q);
}

/* Returns the coarsest tier for which the step is a whole number of buckets. */
static unsigned coarsest_tier(uint64_t step_ns)
{
	unsigned tier = TIER_READINGS;

	for (unsigned t = TIER_MINUTES; t < TIERS; t++)
		if (step_ns >= span_ns(t) && step_ns % span_ns(t) == 0)
			tier = t;
	return tier;
}

/* Finds the time at which the data of each tier begins. The time is UINT64_MAX for a tier
 * without data. */
static void find_first(struct query *q, uint64_t first[TIERS])
{
	for (unsigned t = 0; t < TIERS; t++) {
		uint64_t ms = store_edge(q->s, q->h->uuid, t, INT64_MAX, false);
		const struct block *row = &q->h->row[t];

		if (ms == 0)
			ms = row->count ? row->begin_ms : q->h->last_ms;
		ms -= ms % store_tiers[t].unit_ms;
		first[t] = ms ? ms * NS_PER_MS : UINT64_MAX;
	}
}

/* True if the tier reaches back to from_ns, or if no coarser tier reaches back further. The
 * first bucket of a coarser tier contains the first moment of a finer one, unless old data of
 * the finer one was deleted. */
static bool tier_reaches(const uint64_t first[TIERS], unsigned tier, uint64_t from_ns)
{
	if (first[tier] <= from_ns)
		return true;
	for (unsigned t = tier + 1; t < TIERS; t++)
		if (first[t] != UINT64_MAX && first[tier] >= first[t] + span_ns(t))
			return false;
	return true;
}

static int query_points(struct query *q, uint64_t step_ns)
{
	uint64_t first[TIERS], furthest = UINT64_MAX;
	unsigned best = TIERS;
	int err;

	find_first(q, first);
	for (unsigned t = coarsest_tier(step_ns); t < TIERS; t++) {
		err = query_tier(q, t, step_ns);
		if (err)
			return err;
		if (q->too_many)
			continue;
		if (tier_reaches(first, t, q->from_ns))
			return (int)q->count;
		if (best == TIERS || first[t] < furthest) {
			best = t;
			furthest = first[t];
		}
	}
	if (best == TIERS)
		return -GW_E_SIZE;
	err = query_tier(q, best, step_ns);
	return err ? err : (int)q->count;
}

/* True if the store has data about this GPU. Used because a request with an unknown uuid must
 * not allocate memory. */
static bool is_known(struct store *s, const char *uuid)
{
	for (unsigned i = 0; i < s->histories; i++)
		if (strcmp(s->history[i]->uuid, uuid) == 0)
			return true;
	for (unsigned t = 0; t < TIERS; t++)
		if (store_edge(s, uuid, t, INT64_MAX, false))
			return true;
	return false;
}

int store_history(struct store *s, const char *uuid, enum view_history column,
		  uint64_t from_wall_ns, uint64_t to_wall_ns, uint64_t step_ns,
		  struct view_point *out, unsigned max, uint64_t *ret_step_ns)
{
	struct query q = {
		.s = s,
		.column = column,
		.from_ns = from_wall_ns,
		.to_ns = to_wall_ns,
		.out = out,
		.max = max,
	};
	int n;

	if ((unsigned)column >= VIEW_HISTORIES || to_wall_ns < from_wall_ns ||
	    step_ns > 100 * YEAR_NS)
		return -GW_E_ARG;
	if (!is_known(s, uuid))
		return -GW_E_NODEV;
	q.h = store_history_of(s, uuid);
	if (!q.h)
		return -GW_E_NOMEM;
	n = query_points(&q, step_ns);
	if (n >= 0)
		*ret_step_ns = q.step_ns;
	return n;
}
