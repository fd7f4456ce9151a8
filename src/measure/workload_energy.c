#include "workload_energy.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>

static double age_s(uint64_t wall_ns, uint64_t end_ns)
{
	return end_ns < wall_ns ? (double)(wall_ns - end_ns) * 1e-9 : 0;
}

const char *workload_rest_word(enum workload_rest rest)
{
	static const char *const word[WORKLOAD_RESTS] = {
		[WORKLOAD_IDLE] = "idle",
		[WORKLOAD_UNATTRIBUTED] = "unattributed",
		[WORKLOAD_FORMER] = "former",
		[WORKLOAD_EARLIER] = "earlier",
	};

	return word[rest];
}

int workload_energy_init(struct workload_energy *e, unsigned gpus, workload_ended_fn *ended,
			 void *arg)
{
	*e = (struct workload_energy){ .gpus = gpus, .ended = ended, .arg = arg };
	e->gpu = calloc(gpus, sizeof(*e->gpu));
	return e->gpu ? 0 : -GW_E_NOMEM;
}

void workload_energy_done(struct workload_energy *e)
{
	free(e->row);
	free(e->gpu);
	*e = (struct workload_energy){ 0 };
}

static bool row_is(const struct workload_row *r, const struct workload *w)
{
	return workload_equal(&r->workload, w) && strcmp(r->workload.part, w->part) == 0;
}

bool workload_row_same(const struct workload_row *a, const struct workload_row *b)
{
	return row_is(a, &b->workload);
}

static int row_find(const struct workload_energy *e, unsigned gpu, const struct workload *w)
{
	for (unsigned i = 0; i < e->count; i++)
		if (e->row[i].gpu == gpu && row_is(&e->row[i], w))
			return (int)i;
	return -1;
}

/* Returns the joules of the row that are in its series of the metrics. If the row has no
 * series, these joules are in the series "other". */
static double row_series_j(const struct workload_row *r)
{
	return r->joules - r->series_from_j;
}

static void row_remove(struct workload_energy *e, unsigned i)
{
	e->row[i] = e->row[--e->count];
}

/* Frees row i and adds its joules to the rests of the GPU (enum workload_rest). */
static void row_release(struct workload_energy *e, unsigned i)
{
	struct workload_gpu *g = &e->gpu[e->row[i].gpu];

	if (e->row[i].has_series)
		g->rest_j[WORKLOAD_FORMER] += row_series_j(&e->row[i]);
	else
		g->other_j += row_series_j(&e->row[i]);
	row_remove(e, i);
}

/* Reports that the workload of row i has ended, and frees all its rows. */
static void workload_release(struct workload_energy *e, unsigned i)
{
	const struct workload w = e->row[i].workload;

	if (e->ended)
		e->ended(e->arg, e, i);
	for (unsigned k = e->count; k-- > 0;)
		if (row_is(&e->row[k], &w))
			row_release(e, k);
}

/* Returns when the last process of row i's workload ended, on any GPU; UINT64_MAX: the workload
 * still runs. */
static uint64_t workload_end(const struct workload_energy *e, unsigned i)
{
	uint64_t end = 0;

	for (unsigned k = 0; k < e->count; k++) {
		if (!workload_row_same(&e->row[k], &e->row[i]))
			continue;
		if (e->row[k].processes)
			return UINT64_MAX;
		if (e->row[k].end_wall_ns > end)
			end = e->row[k].end_wall_ns;
	}
	return end;
}

/* Makes space for one more row. If all rows are in use, frees the rows of the workload that
 * ended first. Returns false if no workload has ended, or if there is no memory. */
static bool row_make_room(struct workload_energy *e)
{
	uint64_t first = UINT64_MAX;
	unsigned oldest = 0;

	if (e->count < WORKLOAD_ROWS_MAX)
		return array_reserve(&e->row, &e->cap, e->count + 1, sizeof(*e->row)) == 0;
	for (unsigned i = 0; i < e->count; i++) {
		/* A workload ends no earlier than each of its rows. */
		if (e->row[i].processes == 0 && e->row[i].end_wall_ns < first &&
		    workload_end(e, i) < first) {
			first = workload_end(e, i);
			oldest = i;
		}
	}
	if (first == UINT64_MAX)
		return false;
	workload_release(e, oldest);
	return true;
}

static struct workload_row *row_add(struct workload_energy *e, unsigned gpu,
				    const struct workload *w, uint64_t wall_ns)
{
	struct workload_row *r;

	if (!row_make_room(e))
		return NULL;
	r = &e->row[e->count++];
	*r = (struct workload_row){ .workload = *w,
				    .gpu = gpu,
				    .begin_wall_ns = wall_ns,
				    .end_wall_ns = wall_ns,
				    .absence = GW_ABSENT_FIRST_READING,
				    .memory_peak_bytes = NAN };
	return r;
}

void workload_energy_reset(struct workload_energy *e, unsigned i)
{
	for (unsigned k = e->count; k-- > 0;)
		if (e->row[k].gpu == i)
			row_remove(e, k);
	e->gpu[i] = (struct workload_gpu){ .begun = false };
}

static void row_begin_tick(struct workload_energy *e, unsigned gpu)
{
	for (unsigned i = 0; i < e->count; i++)
		if (e->row[i].gpu == gpu)
			e->row[i].processes = 0;
}

static void row_add_process(struct workload_row *r, const struct workload_use *u)
{
	if (r->processes++ == 0)
		r->memory_bytes = r->sm_ratio = r->power_w = 0;
	r->memory_bytes += u->memory_bytes;
	r->sm_ratio += u->sm_ratio;
	r->power_w += u->power_w;
	if (!*r->user && u->user)
		snprintf(r->user, sizeof(r->user), "%s", u->user);
	if (!r->charged && isnan(u->step_joules))
		r->absence = u->absence;
}

/* Updates the sums of a row that had processes in this tick. */
static void row_end_tick(struct workload_row *r, const struct workload_step *s)
{
	if (r->sm_ratio > 1) /* a sum of readings that overlap in time */
		r->sm_ratio = 1;
	r->end_wall_ns = s->wall_ns;
	r->gpu_seconds += s->seconds;
	if (r->charged)
		r->charged_seconds += s->seconds;
	r->memory_peak_bytes =
		fmax(r->memory_peak_bytes, r->memory_bytes); /* fmax() skips NAN. */
	if (!isnan(r->sm_ratio)) {
		r->sm_sum += r->sm_ratio * s->seconds;
		r->sm_seconds += s->seconds;
	}
}

/* Adds a row for each workload that has none. The rows of present workloads are marked first,
 * so that none of them is freed for a new workload. */
static void rows_make(struct workload_energy *e, unsigned gpu, uint64_t wall_ns,
		      const struct workload_use *uses, size_t n)
{
	bool missing = false;

	for (size_t k = 0; k < n; k++) {
		const int i = row_find(e, gpu, uses[k].workload);

		missing |= i < 0;
		if (i >= 0)
			e->row[i].processes = 1;
	}
	for (size_t k = 0; k < n && missing; k++) {
		struct workload_row *r = NULL;

		if (row_find(e, gpu, uses[k].workload) < 0)
			r = row_add(e, gpu, uses[k].workload, wall_ns);
		if (r)
			r->processes = 1;
	}
}

static void rows_add_processes(struct workload_energy *e, unsigned gpu, uint64_t wall_ns,
			       const struct workload_use *uses, size_t n)
{
	row_begin_tick(e, gpu);
	rows_make(e, gpu, wall_ns, uses, n);
	row_begin_tick(e, gpu);
	for (size_t k = 0; k < n; k++) {
		const int i = row_find(e, gpu, uses[k].workload);

		if (i < 0)
			continue;
		e->row[i].workload = *uses[k].workload; /* The names may have become known. */
		row_add_process(&e->row[i], &uses[k]);
	}
}

static bool is_alone(const struct workload_use *uses, size_t n)
{
	for (size_t k = 1; k < n; k++)
		if (!workload_equal(uses[0].workload, uses[k].workload) ||
		    strcmp(uses[0].workload->part, uses[k].workload->part) != 0)
			return false;
	return true;
}

/* Charges the joules that the counter gained. Returns the joules that were charged to rows. */
static double charge_rows(struct workload_energy *e, unsigned gpu, double gain,
			  const struct workload_use *uses, size_t n)
{
	const bool alone = is_alone(uses, n);
	double sum = 0, charged = 0;

	for (size_t k = 0; k < n; k++)
		sum += uses[k].step_joules > 0 ? uses[k].step_joules : 0;
	for (size_t k = 0; k < n; k++) {
		const int i = row_find(e, gpu, uses[k].workload);
		struct workload_row *r = i >= 0 ? &e->row[i] : NULL;
		/* Because of rounding errors, the steps can add up to more than the gain. */
		const double scale = sum > gain ? gain / sum : 1;
		const double joules = uses[k].step_joules * scale;

		if (!r || isnan(joules))
			continue;
		r->charged = true;
		if (!(joules > 0))
			continue;
		r->joules += joules;
		charged += joules;
		if (alone)
			r->alone_joules += joules;
		else if (uses[k].how > r->how)
			r->how = uses[k].how;
	}
	return charged;
}

static void count_shared(struct workload_energy *e, unsigned gpu, double gain)
{
	for (unsigned i = 0; i < e->count; i++)
		if (e->row[i].gpu == gpu && e->row[i].processes)
			e->row[i].shared_joules += gain;
}

static void series_choose(struct workload_energy *e, unsigned gpu, uint64_t wall_ns);

void workload_energy_tick(struct workload_energy *e, unsigned i, const struct workload_step *s,
			  const struct workload_use *uses, size_t n)
{
	struct workload_gpu *g = &e->gpu[i];
	double gain = 0, charged;

	if (!isnan(s->counter_j)) {
		gain = s->counter_j - g->counter_j;
		if (!g->begun || gain < 0) {
			g->rest_j[WORKLOAD_EARLIER] += gain;
			gain = 0;
		}
		g->begun = true;
		g->counter_j = s->counter_j;
	}
	if (s->processes_known)
		rows_add_processes(e, i, s->wall_ns, uses, n);
	charged = charge_rows(e, i, gain, uses, n);
	if (n && !is_alone(uses, n))
		count_shared(e, i, gain);
	/* If processes ended since the last tick, they may have used a part of the remaining
	 * energy, so this energy is unattributed and not idle. */
	g->rest_j[s->processes_known && s->still && n == 0 && g->was_empty
			  ? WORKLOAD_IDLE
			  : WORKLOAD_UNATTRIBUTED] += fmax(0, gain - charged);
	g->was_empty = s->processes_known && n == 0;
	for (unsigned k = 0; k < e->count && s->processes_known; k++)
		if (e->row[k].gpu == i && e->row[k].processes)
			row_end_tick(&e->row[k], s);
	series_choose(e, i, s->wall_ns);
}

void workload_energy_age(struct workload_energy *e, uint64_t wall_ns, double keep_s)
{
	for (unsigned i = e->count; i-- > 0;)
		/* A workload with a process in this tick has the age 0 and stays, even if
		 * keep_s is 0. */
		if (i < e->count && age_s(wall_ns, e->row[i].end_wall_ns) > keep_s &&
		    age_s(wall_ns, workload_end(e, i)) > keep_s)
			workload_release(e, i);
}

static bool same_labels(const struct workload *a, const struct workload *b)
{
	return a->kind == b->kind && strcmp(a->space, b->space) == 0 &&
	       strcmp(a->name, b->name) == 0 && strcmp(a->part, b->part) == 0;
}

/* Ends the series of a row: adds its joules to `*to`, and a later series of the row begins with
 * 0. */
static void series_end(struct workload_row *r, double *to)
{
	*to += row_series_j(r);
	r->series_from_j = r->joules;
	r->has_series = false;
}

/* Returns the row that has a series with the same labels as row i, or NULL. */
static struct workload_row *series_with_labels(struct workload_energy *e, unsigned i)
{
	for (unsigned k = 0; k < e->count; k++)
		if (k != i && e->row[k].has_series && e->row[k].gpu == e->row[i].gpu &&
		    same_labels(&e->row[k].workload, &e->row[i].workload))
			return &e->row[k];
	return NULL;
}

/* Makes space for one more series on a GPU. If all are in use, ends the series of the workload
 * that ended first. Returns false if no series can end yet. */
static bool series_make_room(struct workload_energy *e, unsigned gpu, uint64_t wall_ns)
{
	struct workload_row *oldest = NULL;
	unsigned n = 0;

	for (unsigned k = 0; k < e->count; k++) {
		struct workload_row *r = &e->row[k];

		if (r->gpu != gpu || !r->has_series)
			continue;
		n++;
		if (!r->processes && (!oldest || r->end_wall_ns < oldest->end_wall_ns))
			oldest = r;
	}
	if (n < WORKLOAD_SERIES_MAX)
		return true;
	if (!oldest || age_s(wall_ns, oldest->end_wall_ns) < WORKLOAD_SERIES_S)
		return false;
	series_end(oldest, &e->gpu[gpu].rest_j[WORKLOAD_FORMER]);
	return true;
}

/* Chooses the running workloads that get a series, while there is space; those with the most
 * joules come first. */
static void series_choose(struct workload_energy *e, unsigned gpu, uint64_t wall_ns)
{
	for (;;) {
		struct workload_row *best = NULL, *same;

		for (unsigned k = 0; k < e->count; k++) {
			struct workload_row *r = &e->row[k];

			if (r->gpu != gpu || r->has_series || !r->processes ||
			    (best && best->joules >= r->joules))
				continue;
			same = series_with_labels(e, k);
			if (!same || !same->processes)
				best = r;
		}
		if (!best)
			return;
		same = series_with_labels(e, (unsigned)(best - e->row));
		if (same)
			series_end(same, &e->gpu[gpu].rest_j[WORKLOAD_FORMER]);
		else if (!series_make_room(e, gpu, wall_ns))
			return;
		if (row_series_j(best) > 0 && best->begin_wall_ns < wall_ns) {
			/* The joules so far stay in other_j, because the series "other"
			 * contains them and must not decrease. */
			e->gpu[gpu].other_j += row_series_j(best);
			best->series_from_j = best->joules;
		}
		best->has_series = true;
	}
}

double workload_energy_series_other(const struct workload_energy *e, unsigned i)
{
	double sum = e->gpu[i].other_j;

	for (unsigned k = 0; k < e->count; k++)
		if (e->row[k].gpu == i && !e->row[k].has_series)
			sum += row_series_j(&e->row[k]);
	return sum;
}

double workload_energy_rest(const struct workload_energy *e, unsigned i,
			    enum workload_rest rest)
{
	double sum = e->gpu[i].rest_j[rest];

	if (rest != WORKLOAD_FORMER)
		return sum;
	sum += e->gpu[i].other_j;
	for (unsigned k = 0; k < e->count; k++)
		/* The joules of the row include series_from_j. */
		if (e->row[k].gpu == i)
			sum -= e->row[k].series_from_j;
	return fmax(0, sum);
}

void workload_energy_restore(struct workload_energy *e, unsigned i,
			     const struct workload_gpu *stored, double counter_j)
{
	struct workload_gpu *g = &e->gpu[i];
	const double gap = stored ? counter_j - stored->counter_j : 0;

	if (!stored) {
		if (g->begun) {
			g->counter_j += counter_j;
			g->rest_j[WORKLOAD_EARLIER] += counter_j;
		}
		return;
	}
	for (unsigned r = 0; r < WORKLOAD_RESTS; r++)
		g->rest_j[r] += stored->rest_j[r];
	g->other_j += stored->other_j;
	g->rest_j[gap < 0             ? WORKLOAD_EARLIER
		  : stored->was_empty ? WORKLOAD_IDLE
				      : WORKLOAD_UNATTRIBUTED] += gap;
	g->counter_j += counter_j;
	g->begun = true;
}

/* Adds the times and the energy of a row to another row of the same workload. */
static void row_add_energy(struct workload_row *to, const struct workload_row *from)
{
	if (from->begin_wall_ns < to->begin_wall_ns)
		to->begin_wall_ns = from->begin_wall_ns;
	if (from->end_wall_ns > to->end_wall_ns)
		to->end_wall_ns = from->end_wall_ns;
	to->gpu_seconds += from->gpu_seconds;
	to->charged_seconds += from->charged_seconds;
	to->joules += from->joules;
	to->series_from_j += from->series_from_j;
	to->alone_joules += from->alone_joules;
	to->shared_joules += from->shared_joules;
	to->sm_sum += from->sm_sum;
	to->sm_seconds += from->sm_seconds;
	if (from->how > to->how)
		to->how = from->how;
}

bool workload_energy_restore_row(struct workload_energy *e, const struct workload_row *row)
{
	const int i = row_find(e, row->gpu, &row->workload);
	struct workload_row *r;

	if (i >= 0) {
		r = &e->row[i];
		row_add_energy(r, row);
		r->memory_peak_bytes = fmax(r->memory_peak_bytes, row->memory_peak_bytes);
		r->charged |= row->charged;
		return true;
	}
	r = row_add(e, row->gpu, &row->workload, row->begin_wall_ns);
	if (!r) {
		e->gpu[row->gpu].other_j += row_series_j(row);
		return false;
	}
	*r = *row;
	r->processes = 0;
	return true;
}

void workload_energy_sum(const struct workload_energy *e, unsigned row,
			 struct workload_row *ret)
{
	unsigned busy = 0;

	*ret = (struct workload_row){ .workload = e->row[row].workload,
				      .begin_wall_ns = UINT64_MAX,
				      .charged = true };
	for (unsigned i = 0; i < e->count; i++) {
		const struct workload_row *r = &e->row[i];

		if (!workload_row_same(r, &e->row[row]))
			continue;
		row_add_energy(ret, r);
		ret->memory_peak_bytes += r->memory_peak_bytes;
		if (!r->charged) {
			ret->charged = false;
			ret->absence = r->absence;
		}
		if (r->processes == 0)
			continue;
		busy++;
		ret->processes += r->processes;
		ret->memory_bytes += r->memory_bytes;
		ret->power_w += r->power_w;
		ret->sm_ratio += r->sm_ratio;
	}
	if (busy)
		ret->sm_ratio /= busy;
}
