#include "process_history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *process_history_key(unsigned figure)
{
	static const char *const keys[PROCESS_HISTORY_FIGURES] = { "memory_bytes",
								   "utilization_sm_ratio",
								   "power_watts" };

	return keys[figure];
}

static bool ring_is_of(const struct process_history_row *row,
		       const struct process_history_reading *r)
{
	return proc_id_equal(row->id, r->id) && row->gpu_instance == r->gpu_instance;
}

/* True if row `a` should be replaced before row `b`. */
static bool ring_goes_first(const struct process_history_row *a,
			    const struct process_history_row *b)
{
	return a->last != b->last ? a->last < b->last : a->bytes < b->bytes;
}

/* Returns a ring for a new process; NULL: all rings belong to processes that are present and
 * larger. */
static struct process_history_row *ring_free(struct process_history *h, uint64_t step,
					     double bytes)
{
	struct process_history_row *worst = NULL;

	for (unsigned i = 0; i < PROCESS_HISTORY_ROWS; i++) {
		if (!h->row[i])
			return h->row[i] = malloc(sizeof(*h->row[i]));
		if (!worst || ring_goes_first(h->row[i], worst))
			worst = h->row[i];
	}
	/* A process that is present was read in this step or in the previous step. */
	return worst->last + 1 < step || worst->bytes < bytes ? worst : NULL;
}

static void ring_begin(struct process_history_row *row, const struct process_history_reading *r,
		       uint64_t step)
{
	memset(row, 0, sizeof(*row));
	row->id = r->id;
	row->gpu_instance = r->gpu_instance;
	row->first = row->last = step;
	for (unsigned f = 0; f < PROCESS_HISTORY_FIGURES; f++)
		for (unsigned i = 0; i < PROCESS_HISTORY_POINTS; i++)
			row->figure[f].mean[i] = NAN;
}

/* Clears the steps after the last reading up to `step`. */
static void ring_advance(struct process_history_row *row, uint64_t step)
{
	for (unsigned f = 0; f < PROCESS_HISTORY_FIGURES && row->last != step; f++)
		row->figure[f].count = 0;
	if (step - row->last > PROCESS_HISTORY_POINTS)
		row->last = step - PROCESS_HISTORY_POINTS;
	while (row->last < step) {
		row->last++;
		for (unsigned f = 0; f < PROCESS_HISTORY_FIGURES; f++)
			row->figure[f].mean[row->last % PROCESS_HISTORY_POINTS] = NAN;
	}
}

static struct process_history_row *ring_find(struct process_history *h,
					     const struct process_history_reading *r)
{
	for (unsigned i = 0; i < PROCESS_HISTORY_ROWS; i++)
		if (h->row[i] && ring_is_of(h->row[i], r))
			return h->row[i];
	return NULL;
}

void process_history_add(struct process_history *h, uint64_t now_ns,
			 const struct process_history_reading *r)
{
	const uint64_t step = now_ns / PROCESS_HISTORY_STEP_NS;
	const double bytes =
		r->value[PROCESS_HISTORY_MEMORY] > 0 ? r->value[PROCESS_HISTORY_MEMORY] : 0;
	struct process_history_row *row = ring_find(h, r);

	if (!row) {
		row = ring_free(h, step, bytes);
		if (!row)
			return;
		ring_begin(row, r, step);
	}
	ring_advance(row, step);
	row->bytes = bytes;
	if (r->name)
		snprintf(row->name, sizeof(row->name), "%s", r->name);
	for (unsigned f = 0; f < PROCESS_HISTORY_FIGURES; f++) {
		float *mean = &row->figure[f].mean[step % PROCESS_HISTORY_POINTS];

		if (isnan(r->value[f]))
			continue;
		if (++row->figure[f].count == 1)
			*mean = (float)r->value[f];
		else
			*mean += ((float)r->value[f] - *mean) / (float)row->figure[f].count;
	}
}

void process_history_forget(struct process_history *h, uint64_t now_ns)
{
	const uint64_t step = now_ns / PROCESS_HISTORY_STEP_NS;

	for (unsigned i = 0; i < PROCESS_HISTORY_ROWS; i++)
		if (h->row[i] && h->row[i]->last + PROCESS_HISTORY_POINTS <= step) {
			free(h->row[i]);
			h->row[i] = NULL;
		}
}

void process_history_done(struct process_history *h)
{
	for (unsigned i = 0; i < PROCESS_HISTORY_ROWS; i++) {
		free(h->row[i]);
		h->row[i] = NULL;
	}
}

double process_history_at(const struct process_history_row *r, unsigned figure, uint64_t step)
{
	static const double scale[PROCESS_HISTORY_FIGURES] = { 1, 1e4, 1e2 };

	if (step < r->first || step > r->last || step + PROCESS_HISTORY_POINTS <= r->last)
		return NAN;
	/* round to the digits that a float has; further digits would only lengthen the
	 * documents */
	return round((double)r->figure[figure].mean[step % PROCESS_HISTORY_POINTS] *
		     scale[figure]) /
	       scale[figure];
}
