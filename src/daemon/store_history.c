/* Makes rows from readings, and rolls them up to minutes and hours.
 *
 * A tier is one resolution of the history: readings, minutes or hours. A bucket is one minute
 * or one hour. The current row of readings is queued every ten seconds. A bucket is queued when
 * it is complete; incomplete buckets are not in the file. After a restart they are built again
 * from the finer rows (resume_history()), so that a row continues and nothing is counted
 * twice. */
#include "store_parts.h"

#include "base/clock.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)
#define SAVE   (10 * SECOND)
/* If the clock went back, this number of readings is refused before the new time is
 * accepted. */
#define REFUSED 60

const struct tier store_tiers[TIERS] = {
	[TIER_READINGS] = { 1, MINUTE, BLOCK_MOMENTS, 1, DAY },
	[TIER_MINUTES] = { MINUTE, HOUR, 60, FIGURES, 30 * DAY },
	[TIER_HOURS] = { HOUR, DAY, 24, FIGURES, 5 * 366 * DAY },
};

static uint64_t bucket_of(unsigned tier, uint64_t t_ms)
{
	return t_ms - t_ms % store_tiers[tier].unit_ms;
}

static void clear_sums(struct sum *sums)
{
	for (unsigned q = 0; q < VIEW_HISTORIES; q++)
		sums[q] = (struct sum){ 0, INFINITY, -INFINITY, 0 };
}

static void merge_sums(struct sum *to, const struct sum *from)
{
	for (unsigned q = 0; q < VIEW_HISTORIES; q++) {
		to[q].sum += from[q].sum;
		to[q].min = fmin(to[q].min, from[q].min);
		to[q].max = fmax(to[q].max, from[q].max);
		to[q].count += from[q].count;
	}
}

static void add_values(struct sum *to, const float *v)
{
	for (unsigned q = 0; q < VIEW_HISTORIES; q++) {
		double x = (double)v[q];

		if (isnan(x))
			continue;
		to[q].sum += x;
		to[q].min = fmin(to[q].min, x);
		to[q].max = fmax(to[q].max, x);
		to[q].count++;
	}
}

static void add_figures(struct sum *to, const float *v)
{
	for (unsigned q = 0; q < VIEW_HISTORIES; q++, v += FIGURES) {
		double count = (double)v[FIGURE_COUNT];

		if (!(count >= 1))
			continue;
		to[q].sum += (double)v[FIGURE_MEAN] * count;
		to[q].min = fmin(to[q].min, (double)v[FIGURE_MIN]);
		to[q].max = fmax(to[q].max, (double)v[FIGURE_MAX]);
		to[q].count += (uint64_t)count;
	}
}

static void figures_of(const struct sum *sums, float *out)
{
	for (unsigned q = 0; q < VIEW_HISTORIES; q++, out += FIGURES) {
		const struct sum *s = &sums[q];

		out[FIGURE_MEAN] = s->count ? (float)(s->sum / (double)s->count) : NAN;
		out[FIGURE_MIN] = s->count ? (float)s->min : NAN;
		out[FIGURE_MAX] = s->count ? (float)s->max : NAN;
		out[FIGURE_COUNT] = (float)s->count;
	}
}

bool store_open_bucket(const struct history *h, unsigned tier, struct block *ret)
{
	struct sum all[VIEW_HISTORIES];

	if (tier == TIER_READINGS || h->last_ms == 0 || h->ended[tier])
		return false;
	memcpy(all, h->open[tier], sizeof(all));
	if (tier == TIER_HOURS)
		merge_sums(all, h->open[TIER_MINUTES]);
	ret->begin_ms = bucket_of(tier, h->last_ms);
	ret->count = 1;
	ret->columns = VIEW_HISTORIES * FIGURES;
	ret->offset[0] = 0;
	figures_of(all, ret->value);
	return true;
}

/* Adds a row to the next batch. */
static void save_row(struct store *s, struct history *h, unsigned tier)
{
	char bytes[BLOCK_BYTES + 1];
	struct buf data;
	struct record r = { .kind = RECORD_HISTORY, .a = tier, .b = h->row[tier].begin_ms };

	if (h->row[tier].count == 0)
		return;
	buf_init_fixed(&data, bytes, sizeof(bytes));
	block_encode(&h->row[tier], &data);
	r.text[0] = h->uuid;
	r.length[0] = (uint32_t)strlen(h->uuid);
	r.text[1] = data.p;
	r.length[1] = (uint32_t)data.len;
	if (!record_add(&s->pending.part[PART_HISTORY], &r))
		atomic_fetch_add(&s->report.dropped, 1);
	if (tier == TIER_READINGS)
		h->saved_ms = h->last_ms;
}

static bool row_fits(const struct block *b, unsigned tier, uint64_t begin_ms)
{
	const struct tier *t = &store_tiers[tier];

	return b->count && b->count < t->moments &&
	       b->begin_ms / t->row_ms == begin_ms / t->row_ms;
}

static float *row_append(struct block *b, unsigned tier, uint64_t begin_ms)
{
	uint16_t offset;

	if (!row_fits(b, tier, begin_ms)) {
		b->begin_ms = begin_ms;
		b->count = 0;
	}
	offset = (uint16_t)((begin_ms - b->begin_ms) / store_tiers[tier].unit_ms);
	/* If the clock went back, a bucket can be completed a second time; it then replaces the
	 * first one. */
	if (b->count && b->offset[b->count - 1] >= offset)
		b->count--;
	b->offset[b->count] = offset;
	return &b->value[b->count++ * b->columns];
}

static void end_bucket(struct store *s, struct history *h, unsigned tier)
{
	figures_of(h->open[tier], row_append(&h->row[tier], tier, bucket_of(tier, h->last_ms)));
	save_row(s, h, tier);
	if (tier == TIER_MINUTES)
		merge_sums(h->open[TIER_HOURS], h->open[TIER_MINUTES]);
	clear_sums(h->open[tier]);
	h->ended[tier] = true;
}

/* Completes the buckets that contain last_ms but not t_ms. */
static void end_buckets(struct store *s, struct history *h, uint64_t t_ms)
{
	for (unsigned t = TIER_MINUTES; t < TIERS; t++)
		if (!h->ended[t] && bucket_of(t, h->last_ms) != bucket_of(t, t_ms))
			end_bucket(s, h, t);
}

struct resume_history {
	struct history *h;
	unsigned tier;
	/* Readings at or after this time are in the future and are not used. */
	uint64_t before_ms;
};

static void copy_row(struct block *to, const struct block *from)
{
	to->begin_ms = from->begin_ms;
	to->count = from->count;
	memcpy(to->offset, from->offset, sizeof(to->offset));
	memcpy(to->value, from->value, (size_t)from->count * from->columns * sizeof(float));
}

static bool resume_readings(void *arg, const struct block *row)
{
	struct resume_history *r = arg;
	struct history *h = r->h;

	for (unsigned i = 0; i < row->count; i++) {
		uint64_t t_ms = row->begin_ms + row->offset[i];

		if (t_ms <= h->last_ms)
			continue;
		/* The row has readings from the future. Do not continue this row. */
		if (t_ms >= r->before_ms) {
			h->row[TIER_READINGS].count = 0;
			return false;
		}
		add_values(h->open[TIER_MINUTES], &row->value[i * row->columns]);
		h->last_ms = t_ms;
	}
	copy_row(&h->row[TIER_READINGS], row);
	return true;
}

static bool resume_buckets(void *arg, const struct block *row)
{
	struct resume_history *r = arg;
	struct history *h = r->h;
	uint64_t hour = bucket_of(TIER_HOURS, h->last_ms);

	for (unsigned i = 0; i < row->count; i++) {
		uint64_t t_ms = row->begin_ms + row->offset[i] * store_tiers[r->tier].unit_ms;

		/* The bucket is in the future. Do not continue the row. */
		if (t_ms > r->before_ms) {
			h->row[r->tier].count = 0;
			return false;
		}
		if (t_ms == r->before_ms)
			h->ended[r->tier] = true;
		if (r->tier == TIER_MINUTES && t_ms >= hour)
			add_figures(h->open[TIER_HOURS], &row->value[i * row->columns]);
	}
	copy_row(&h->row[r->tier], row);
	return true;
}

/* Restores h to its state after the last reading before t_ms. */
static void resume_history(struct store *s, struct history *h, uint64_t t_ms)
{
	uint64_t newest = store_edge(s, h->uuid, TIER_READINGS, t_ms - 1, true);
	struct resume_history r = { .h = h, .before_ms = t_ms };

	h->last_ms = h->saved_ms = 0;
	for (unsigned t = 0; t < TIERS; t++) {
		h->row[t].count = 0;
		h->ended[t] = false;
		clear_sums(h->open[t]);
	}
	if (newest == 0)
		return;
	store_rows(s, NULL, h->uuid, TIER_READINGS, bucket_of(TIER_MINUTES, newest), newest,
		   resume_readings, &r);
	if (h->last_ms == 0)
		h->last_ms = newest;
	for (r.tier = TIER_MINUTES; r.tier < TIERS; r.tier++) {
		r.before_ms = bucket_of(r.tier, h->last_ms);
		store_rows(s, NULL, h->uuid, r.tier,
			   h->last_ms - h->last_ms % store_tiers[r.tier].row_ms, h->last_ms,
			   resume_buckets, &r);
		if (h->ended[r.tier])
			clear_sums(h->open[r.tier]);
	}
	h->saved_ms = h->last_ms;
}

static struct history *make_history(const char *uuid)
{
	struct history *h = calloc(1, sizeof(*h));
	size_t bytes[TIERS], all = 0;
	float *v;

	for (unsigned t = 0; t < TIERS; t++) {
		bytes[t] = (size_t)store_tiers[t].moments * VIEW_HISTORIES *
			   store_tiers[t].figures;
		all += bytes[t];
	}
	v = calloc(all, sizeof(*v));
	if (!h || !v) {
		free(h);
		free(v);
		return NULL;
	}
	memcpy(h->uuid, uuid, strlen(uuid) + 1);
	for (unsigned t = 0; t < TIERS; v += bytes[t], t++) {
		h->row[t].value = v;
		h->row[t].columns = VIEW_HISTORIES * store_tiers[t].figures;
	}
	return h;
}

void store_history_free(struct history *h)
{
	if (h)
		free(h->row[0].value); /* All tiers share one allocation. */
	free(h);
}

struct history *store_history_of(struct store *s, const char *uuid)
{
	struct history *h;

	for (unsigned i = 0; i < s->histories; i++)
		if (strcmp(s->history[i]->uuid, uuid) == 0)
			return s->history[i];
	if (s->histories == STORE_GPUS || strlen(uuid) >= STORE_UUID)
		return NULL;
	h = make_history(uuid);
	if (!h)
		return NULL;
	resume_history(s, h, INT64_MAX / 2);
	s->history[s->histories++] = h;
	return h;
}

/* Call it when the clock was set back or far ahead. Completes the open buckets, and continues
 * the rows that the file has for the new time. */
static void jump_to_time(struct store *s, struct history *h, uint64_t t_ms)
{
	save_row(s, h, TIER_READINGS);
	for (unsigned t = TIER_MINUTES; t < TIERS; t++)
		if (!h->ended[t])
			end_bucket(s, h, t);
	resume_history(s, h, t_ms);
}

/* Returns true if the reading must be ignored, because it is not newer than the last one.
 * Returns false and continues at the new time in two cases: the clock has stayed back for
 * REFUSED readings, or the earlier time was wrong. */
static bool refuse_reading(struct store *s, struct history *h, uint64_t t_ms)
{
	if (t_ms > h->last_ms) {
		h->refused = 0;
		/* The file may have rows between the two times, written while the clock was
		 * wrong. */
		if (h->fed && t_ms - h->last_ms > HOUR &&
		    store_edge(s, h->uuid, TIER_READINGS, t_ms - 1, true) > h->last_ms)
			jump_to_time(s, h, t_ms);
		return false;
	}
	/* The clock was ahead when an earlier process wrote the last reading. */
	if (!h->fed && h->last_ms - t_ms > HOUR) {
		resume_history(s, h, t_ms);
		return false;
	}
	h->refused = t_ms > h->refused_ms ? h->refused + 1 : 1;
	h->refused_ms = t_ms;
	if (h->refused == 1 && h->last_ms - t_ms > SAVE)
		store_set_notice(s,
				 "the clock is %.0f s behind the latest point of the history: "
				 "the history gets no new points until the clock has passed "
				 "the time of that point, or until %d readings were left out",
				 (double)(h->last_ms - t_ms) / SECOND, REFUSED);
	if (h->refused < REFUSED)
		return true;
	h->refused = 0;
	jump_to_time(s, h, t_ms);
	return false;
}

void store_add_reading(struct store *s, const char *uuid, uint64_t wall_ns,
		       const double *values)
{
	struct history *h = store_history_of(s, uuid);
	uint64_t t_ms = wall_ns / NS_PER_MS;
	struct block *row;
	float *v;

	if (!h || t_ms == 0) {
		atomic_fetch_add(&s->report.dropped, 1);
		return;
	}
	if (refuse_reading(s, h, t_ms))
		return;
	h->fed = true;
	row = &h->row[TIER_READINGS];
	if (row->count && !row_fits(row, TIER_READINGS, t_ms) && h->saved_ms != h->last_ms)
		save_row(s, h, TIER_READINGS);
	if (h->last_ms)
		end_buckets(s, h, t_ms);
	v = row_append(row, TIER_READINGS, t_ms);
	for (unsigned q = 0; q < VIEW_HISTORIES; q++)
		v[q] = fabs(values[q]) <= FLT_MAX ? (float)values[q] : NAN;
	add_values(h->open[TIER_MINUTES], v);
	h->last_ms = t_ms;
	h->ended[TIER_MINUTES] = h->ended[TIER_HOURS] = false;
	if (h->saved_ms == 0 || t_ms - h->saved_ms >= SAVE)
		save_row(s, h, TIER_READINGS);
}

void store_save(struct store *s)
{
	for (unsigned i = 0; i < s->histories; i++)
		if (s->history[i]->fed)
			save_row(s, s->history[i], TIER_READINGS);
}
