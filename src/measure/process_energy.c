#include "process_energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of a span in seconds. A process's share of the power is its mean over the last one to
 * two spans. */
#define POWER_SPAN_S 3

/* Key of the row that sums all processes without their own row. No process has pid 0. */
static const struct proc_id others = { 0, 0 };

void process_energy_init(struct process_energy *e, double no_context_w, double context_w)
{
	memset(e, 0, sizeof(*e));
	attribute_init(&e->shares, no_context_w, context_w);
}

static int shares_find(const struct process_energy *e, struct proc_id id)
{
	for (unsigned i = 0; i < e->shares.count; i++)
		if (proc_id_equal(e->shares.row[i].id, id))
			return (int)i;
	return -1;
}

static void shares_remove(struct process_energy *e, unsigned i)
{
	const unsigned last = --e->shares.count;

	e->shares.row[i] = e->shares.row[last];
	e->row[i] = e->row[last];
	memset(&e->shares.row[last], 0, sizeof(e->shares.row[last]));
	memset(&e->row[last], 0, sizeof(e->row[last]));
}

/* Frees row i and adds its energy to `former_joules`. */
static void shares_release(struct process_energy *e, unsigned i)
{
	e->former_joules += e->shares.row[i].joules;
	shares_remove(e, i);
}

/* Frees the rows of exited processes with an unknown start time, because a new process with the
 * same pid would be counted as the old process. */
static void shares_release_unknown(struct process_energy *e)
{
	for (unsigned i = e->shares.count; i-- > 0;)
		if (e->row[i].seen != e->steps && e->shares.row[i].id.start_ticks == 0)
			shares_release(e, i);
}

/* Frees the row of the process that exited first. Returns false if all processes with a row are
 * present. */
static bool shares_make_room(struct process_energy *e)
{
	unsigned oldest = 0;

	if (e->shares.count < PROCESS_ENERGY_ROWS)
		return true;
	for (unsigned i = 1; i < e->shares.count; i++)
		if (e->row[i].seen < e->row[oldest].seen)
			oldest = i;
	if (e->row[oldest].seen == e->steps)
		return false;
	shares_release(e, oldest);
	return true;
}

static void shares_add(struct process_energy *e, const struct attribute_use *u)
{
	struct attribute_row *r = &e->shares.row[e->shares.count];

	memset(r, 0, sizeof(*r));
	r->id = u->id;
	e->row[e->shares.count++] =
		(struct process_energy_row){ .begin_j = e->counter_j, .seen = e->steps };
}

/* Adds a process without a row to the sum of the others. If its utilisation is unknown, the
 * utilisation of the sum is unknown. */
static void shares_add_other(struct attribute_use *sum, const struct attribute_use *u)
{
	sum->sm_ratio = fmin(1, sum->sm_ratio + u->sm_ratio);
	if (!(u->sm_ratio >= 0 && u->sm_ratio <= 1))
		sum->sm_ratio = NAN;
}

/* Selects the processes that get a row; those that already have one come first. Writes them to
 * `kept` and returns their number. If some processes get no row, the last entry is their
 * sum. */
static size_t shares_select(struct process_energy *e, const struct attribute_use *uses,
			    size_t n, struct attribute_use *kept)
{
	struct attribute_use sum = { .id = others };
	size_t count = 0, rest = 0;

	for (size_t i = 0; i < n; i++) {
		const int row = shares_find(e, uses[i].id);

		if (row >= 0 && e->row[row].seen != e->steps) {
			e->row[row].seen = e->steps;
			kept[count++] = uses[i];
		}
	}
	shares_release_unknown(e);
	for (size_t i = 0; i < n; i++) {
		if (shares_find(e, uses[i].id) >= 0)
			continue;
		if (!shares_make_room(e)) {
			shares_add_other(&sum, &uses[i]);
			rest++;
			continue;
		}
		shares_add(e, &uses[i]);
		kept[count++] = uses[i];
	}
	if (rest)
		kept[count++] = sum;
	return count;
}

/* Counts the energy of the processes without a row as unattributed. */
static void shares_drop_others(struct process_energy *e)
{
	const int i = shares_find(e, others);

	if (i < 0)
		return;
	e->shares.unattributed_joules += e->shares.row[i].joules;
	shares_remove(e, (unsigned)i);
}

/* Begins a new span of POWER_SPAN_S for the shares of the power. */
static void shares_mark(struct process_energy *e)
{
	e->mark_s = e->counter_s;
	e->mark_j[0] = e->mark_j[1];
	e->mark_j[1] = e->counter_j;
	for (unsigned i = 0; i < e->shares.count; i++) {
		e->row[i].mark_j[0] = e->row[i].mark_j[1];
		e->row[i].mark_j[1] = e->shares.row[i].joules;
	}
}

void process_energy_add(struct process_energy *e, double counter_j, double counter_s,
			const struct attribute_use *uses, size_t n, bool hidden)
{
	struct attribute_use kept[ATTRIBUTE_ROWS];
	const double joules = counter_j - e->counter_j, seconds = counter_s - e->counter_s;
	size_t count;

	for (unsigned i = 0; i < e->shares.count; i++)
		e->row[i].before_j = e->shares.row[i].joules;
	if (!isfinite(counter_j) || !isfinite(counter_s))
		return;
	if (!e->begun || !(joules >= 0) || !(seconds >= 0)) {
		e->begun = true;
		e->earlier_joules += joules; /* All parts together must equal the counter. */
		e->counter_j = e->mark_j[0] = e->mark_j[1] = counter_j;
		e->mark_s = counter_s;
		e->steps++;
		shares_select(e, uses, n, kept);
	} else if (hidden) {
		/* It is unknown which processes exited, so the rows stay unchanged. */
		(void)attribute_add(&e->shares, joules, seconds, NULL, 0, true);
	} else {
		e->steps++;
		count = shares_select(e, uses, n, kept);
		(void)attribute_add(&e->shares, joules, seconds, kept, count, false);
		shares_drop_others(e);
	}
	e->counter_j = counter_j;
	e->counter_s = counter_s;
	if (counter_s - e->mark_s >= POWER_SPAN_S)
		shares_mark(e);
}

void process_energy_shift(struct process_energy *e, double joules, double seconds)
{
	if (!e->begun)
		return;
	e->counter_j += joules;
	e->counter_s += seconds;
	e->mark_s += seconds;
	e->mark_j[0] += joules;
	e->mark_j[1] += joules;
	for (unsigned i = 0; i < e->shares.count; i++)
		e->row[i].begin_j += joules;
	e->earlier_joules += joules;
}

const struct attribute_row *process_energy_find(const struct process_energy *e,
						struct proc_id id, double *ret_ratio)
{
	const int i = shares_find(e, id);
	double joules;

	*ret_ratio = NAN;
	if (i < 0)
		return NULL;
	joules = e->counter_j - fmax(e->mark_j[0], e->row[i].begin_j);
	if (joules > 0)
		*ret_ratio = fmin(1, (e->shares.row[i].joules - e->row[i].mark_j[0]) / joules);
	return &e->shares.row[i];
}

double process_energy_step(const struct process_energy *e, struct proc_id id)
{
	const int i = shares_find(e, id);

	return i < 0 ? (double)NAN : e->shares.row[i].joules - e->row[i].before_j;
}

void process_energy_sum(const struct process_energy *e, struct process_energy_sums *ret)
{
	*ret = (struct process_energy_sums){ .former_joules = e->former_joules,
					     .idle_joules = e->shares.idle_joules,
					     .unattributed_joules =
						     e->shares.unattributed_joules,
					     .earlier_joules = e->earlier_joules,
					     .idle_known = e->shares.idle_known,
					     .known = e->begun };
	for (unsigned i = 0; i < e->shares.count; i++)
		if (e->row[i].seen == e->steps)
			ret->processes_joules += e->shares.row[i].joules;
		else
			ret->former_joules += e->shares.row[i].joules;
}

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

/* Returns a ring for a new process. NULL: all rings belong to processes that are present and
 * use at least as much GPU memory, or malloc() failed. */
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
	/* A process that is present has a reading in this step or in the previous one. */
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

/* Sets the steps after the last reading, up to `step`, to unknown. */
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
	/* Round, because a float has no more digits. */
	return round((double)r->figure[figure].mean[step % PROCESS_HISTORY_POINTS] *
		     scale[figure]) /
	       scale[figure];
}
