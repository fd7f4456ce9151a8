#include "worker_stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Counters and moves are tables with one row per worker. Each row begins with the name of the
 * worker (char[WORKER_STATS_NAME]); `size` is the size of a row. */

static void *row_find(const void *rows, unsigned n, size_t size, const char *name)
{
	for (unsigned i = 0; i < n; i++) {
		const char *row = (const char *)rows + i * size;

		if (strcmp(row, name) == 0)
			return (void *)row;
	}
	return NULL;
}

/* Returns the row of the worker, and adds the row if it is missing; NULL: the table is full. */
static void *row_get(void *rows, unsigned *n, size_t size, const char *name)
{
	char *row = row_find(rows, *n, size, name);

	if (row || *n == POLICY_WORKERS)
		return row;
	row = (char *)rows + (*n)++ * size;
	memset(row, 0, size);
	snprintf(row, WORKER_STATS_NAME, "%s", name);
	return row;
}

/* Removes the rows of workers that the policy does not name. */
static void rows_fit(void *rows, unsigned *n, size_t size, const struct policy *p)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < *n; i++) {
		const char *row = (const char *)rows + i * size;

		if (policy_find_worker(p, row) >= 0)
			memmove((char *)rows + kept++ * size, row, size);
	}
	*n = kept;
}

unsigned counters_eviction(unsigned level, enum guard_result result)
{
	unsigned l = level < GUARD_LEVELS ? level : GUARD_LEVELS - 1;

	return COUNTERS_EVICTIONS + l * GUARD_RESULTS + (unsigned)result;
}

void counters_cell_name(unsigned cell, char *out, size_t size)
{
	static const char *const word[] = { "resumes", "would-evict", "freed-bytes" };

	if (cell < COUNTERS_BLOCKED)
		snprintf(out, size, "%s", word[cell]);
	else if (cell < COUNTERS_EVICTIONS)
		snprintf(out, size, "blocked/%s", guard_block_name(cell - COUNTERS_BLOCKED));
	else
		snprintf(out, size, "evictions/%u/%s",
			 (cell - COUNTERS_EVICTIONS) / GUARD_RESULTS,
			 guard_result_name((cell - COUNTERS_EVICTIONS) % GUARD_RESULTS));
}

const struct counters_worker *counters_find(const struct guard_counters *t, const char *name)
{
	return t ? row_find(t->worker, t->workers, sizeof(t->worker[0]), name) : NULL;
}

struct counters_worker *counters_worker(struct guard_counters *t, const char *name)
{
	return t ? row_get(t->worker, &t->workers, sizeof(t->worker[0]), name) : NULL;
}

void counters_fit(struct guard_counters *t, const struct policy *p)
{
	rows_fit(t->worker, &t->workers, sizeof(t->worker[0]), p);
}

uint64_t counters_evictions(const uint64_t cell[COUNTERS_CELLS])
{
	uint64_t n = 0;

	for (unsigned l = 0; l < GUARD_LEVELS; l++)
		n += cell[counters_eviction(l, RESULT_FREED)];
	return n;
}

static void add_result(uint64_t *cell, const struct guard_decision *d)
{
	if (d->result == RESULT_WITHHELD || (d->dry && d->result == RESULT_FREED))
		cell[COUNTERS_WOULD_EVICT]++;
	if (d->dry || d->result == RESULT_WITHHELD)
		return;
	cell[counters_eviction(d->level, d->result)]++;
	cell[COUNTERS_FREED_BYTES] += d->freed_bytes;
}

static void counter_add(uint64_t *cell, const struct guard_decision *d, bool back)
{
	cell[COUNTERS_RESUMES] += back;
	for (unsigned b = 0; b < GUARD_BLOCKS; b++)
		cell[COUNTERS_BLOCKED + b] += d->blocked >> b & 1;
	if (d->result != RESULT_NONE)
		add_result(cell, d);
}

struct counters_worker *counters_add(struct guard_counters *t, const char *name,
				     const struct guard_decision *d)
{
	bool back = d->from == STATE_VERIFY_UP && d->to == STATE_ACTIVE && !d->dry;
	struct counters_worker *w;

	if (!back && !d->blocked && d->result == RESULT_NONE)
		return NULL;
	counter_add(t->all, d, back);
	w = counters_worker(t, name);
	if (w)
		counter_add(w->cell, d, back);
	return w;
}

struct counters_xid *counters_xid(struct guard_counters *t, const char *uuid, unsigned xid)
{
	struct counters_xid *x = NULL;

	for (unsigned i = 0; i < t->xids && !x; i++)
		if (t->xid[i].xid == xid && strcmp(t->xid[i].uuid, uuid) == 0)
			x = &t->xid[i];
	if (!x && t->xids == COUNTERS_XIDS)
		return NULL;
	if (!x) {
		x = &t->xid[t->xids++];
		memset(x, 0, sizeof(*x));
		snprintf(x->uuid, sizeof(x->uuid), "%s", uuid);
		x->xid = xid;
	}
	x->count++;
	return x;
}

/* Measured on an H200 (driver 580.159.04, PyTorch process with 16.6 GiB, the driver's calls
 * alone). */
static const struct {
	double seconds[MOVE_WAYS];
	const char *page_faults;
} h200[] = {
	[HOST_PAGES_ALWAYS] = { { 5.4, 2.5 }, "76 thousand" },
	[HOST_PAGES_MADVISE] = { { 7.9, 3.4 }, "4.4 million" },
};
#define H200_FIRST_S 2.4 /* the first checkpoint in a virtual machine takes this much longer */

const char *host_pages_name(enum host_pages p)
{
	static const char *const names[] = { "unknown", "always", "madvise", "never" };

	return names[p];
}

const char *move_basis_name(enum move_basis b)
{
	static const char *const names[] = { NULL, "own_moves", "h200_figures" };

	return names[b];
}

bool move_is_checkpoint(unsigned kind)
{
	return policy_kind_level(kind) == LEVEL_CHECKPOINT;
}

const struct move_worker *moves_find(const struct moves *m, const char *name)
{
	return m ? row_find(m->worker, m->workers, sizeof(m->worker[0]), name) : NULL;
}

struct move_worker *moves_worker(struct moves *m, const char *name)
{
	return m ? row_get(m->worker, &m->workers, sizeof(m->worker[0]), name) : NULL;
}

void moves_fit(struct moves *m, const struct policy *p)
{
	rows_fit(m->worker, &m->workers, sizeof(m->worker[0]), p);
}

void moves_add(struct move_worker *w, enum move_way way, const struct move *one)
{
	struct move *done = w->done[way];

	if (!one->bytes || !one->ns)
		return;
	if (w->count[way] == MOVES_KEPT)
		memmove(done, done + 1, --w->count[way] * sizeof(*done));
	done[w->count[way]++] = *one;
}

const struct move *moves_last(const struct move_worker *w, enum move_way way, bool simulated)
{
	for (unsigned i = w ? w->count[way] : 0; i > 0; i--)
		if (w->done[way][i - 1].simulated == simulated)
			return &w->done[way][i - 1];
	return NULL;
}

/* True if an order to evict follows from the decision: the first order, or the order at the
 * next level after a level failed. */
static bool begins_to_leave(const struct guard_decision *d)
{
	return d->to == STATE_EVICT && (d->from != STATE_EVICT || d->result != RESULT_NONE);
}

/* True if the worker has returned and holds at least three quarters of its earlier memory. */
static bool is_back_whole(const struct guard_decision *d, const struct guard_status *s)
{
	return d->from == STATE_VERIFY_UP && d->to == STATE_ACTIVE && s->resident_bytes &&
	       s->resident_bytes / 3 >= s->need_bytes / 4;
}

/* Notes when a move begins. Forgets this time in a dry run, or if the move ends or reverses. */
static void note_begin(struct move_worker *w, const struct guard_decision *d)
{
	if (d->dry)
		memset(w->begun_ns, 0, sizeof(w->begun_ns));
	else if (begins_to_leave(d))
		w->begun_ns[MOVE_LEAVE] = d->mono_ns;
	else if (d->to == STATE_RESUME && d->from != STATE_RESUME)
		w->begun_ns[MOVE_RETURN] = d->mono_ns;
	else if (d->to != STATE_EVICT && d->to != STATE_VERIFY && d->to != STATE_RESUME &&
		 d->to != STATE_VERIFY_UP)
		memset(w->begun_ns, 0, sizeof(w->begun_ns));
}

bool moves_follow(struct move_worker *w, const struct guard_decision *d,
		  const struct guard_status *s, enum move_way *ret_way, struct move *ret)
{
	const bool freed = d->result == RESULT_FREED && d->from == STATE_VERIFY;
	const enum move_way way = freed ? MOVE_LEAVE : MOVE_RETURN;
	const unsigned left = w->count[MOVE_LEAVE];
	const uint64_t begun_ns = w->begun_ns[way];

	note_begin(w, d);
	if (d->dry || !begun_ns || (!freed && !is_back_whole(d, s)))
		return false;
	*ret_way = way;
	*ret = (struct move){ .bytes = freed ? d->freed_bytes : s->resident_bytes,
			      .ns = d->mono_ns - begun_ns,
			      .level = freed  ? d->level
				       : left ? w->done[MOVE_LEAVE][left - 1].level
					      : 0 };
	return true;
}

/* Returns the measured seconds that a checkpoint of MOVE_H200_GIB takes on an H200. A mode
 * other than ALWAYS counts as MADVISE. */
static double move_h200_seconds(enum move_way way, enum host_pages pages)
{
	return h200[pages == HOST_PAGES_ALWAYS ? pages : HOST_PAGES_MADVISE].seconds[way];
}

/* Returns the median, because one slow first move hardly changes it. Sorts v. */
static double move_median(double *v, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		for (unsigned k = i; k > 0 && v[k] < v[k - 1]; k--) {
			double other = v[k];

			v[k] = v[k - 1];
			v[k - 1] = other;
		}
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Estimates the next move from earlier moves of the worker. pages: use only moves with this
 * page mode; HOST_PAGES_MODES: use all moves. Returns false if there is no such move. */
static bool estimate_own(const struct move_worker *w, const struct move_question *q,
			 enum host_pages pages, struct move_estimate *ret)
{
	const bool copy = q->level == LEVEL_CHECKPOINT;
	double seconds[MOVES_KEPT];
	unsigned n = 0;

	for (unsigned i = 0; w && i < w->count[q->way]; i++) {
		const struct move *one = &w->done[q->way][i];

		if (one->level != q->level || one->simulated != q->simulated ||
		    (pages != HOST_PAGES_MODES && one->pages != pages))
			continue;
		seconds[n++] = (double)one->ns * 1e-9 *
			       (copy ? (double)q->bytes / (double)one->bytes : 1);
		ret->pages = copy ? one->pages : HOST_PAGES_UNKNOWN;
	}
	if (!n)
		return false;
	ret->basis = MOVE_BASIS_OWN;
	ret->moves = n;
	ret->seconds = move_median(seconds, n);
	return true;
}

void move_estimate(const struct move_worker *w, const struct move_question *q,
		   struct move_estimate *ret)
{
	const bool copy = q->level == LEVEL_CHECKPOINT;

	*ret = (struct move_estimate){ .seconds = (double)NAN };
	if (!q->bytes || (copy && estimate_own(w, q, q->pages, ret)) ||
	    estimate_own(w, q, HOST_PAGES_MODES, ret) || !copy)
		return;
	ret->basis = MOVE_BASIS_H200;
	ret->pages = q->pages == HOST_PAGES_ALWAYS ? HOST_PAGES_ALWAYS : HOST_PAGES_MADVISE;
	ret->seconds = (double)q->bytes / (MOVE_H200_GIB * 1073741824.0) *
		       move_h200_seconds(q->way, q->pages);
}

#define PAGES_FILE "/sys/kernel/mm/transparent_hugepage/enabled"

bool move_pages_advice(enum host_pages pages, char out[static MOVE_ADVICE_SIZE])
{
	*out = '\0';
	if (pages == HOST_PAGES_ALWAYS || pages == HOST_PAGES_UNKNOWN)
		return false;
	snprintf(out, MOVE_ADVICE_SIZE,
		 "transparent_hugepage is \"%s\", and a checkpoint is faster with \"always\": "
		 "on an H200, moving %.1f GiB to the host took %.1f s instead of %.1f s, and "
		 "moving them back to the GPU took %.1f s instead of %.1f s, with %s page "
		 "faults instead of %s. The first checkpoint "
		 "in a virtual machine takes %.1f s more. The setting is for the whole "
		 "system: other programs may "
		 "use more memory. Set it now: echo always | sudo tee " PAGES_FILE "; and at "
		 "each boot: echo 'w " PAGES_FILE " - - - - always' | sudo tee "
		 "/etc/tmpfiles.d/transparent-hugepage.conf",
		 host_pages_name(pages), MOVE_H200_GIB,
		 move_h200_seconds(MOVE_LEAVE, HOST_PAGES_ALWAYS),
		 move_h200_seconds(MOVE_LEAVE, HOST_PAGES_MADVISE),
		 move_h200_seconds(MOVE_RETURN, HOST_PAGES_ALWAYS),
		 move_h200_seconds(MOVE_RETURN, HOST_PAGES_MADVISE),
		 h200[HOST_PAGES_ALWAYS].page_faults, h200[HOST_PAGES_MADVISE].page_faults,
		 H200_FIRST_S);
	return true;
}
