#include "model_energy.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MINUTE_NS (60 * NS_PER_S)
/* Time between two marks (struct model_mark). Eight marks cover more than a minute. */
#define MARK_NS (10 * NS_PER_S)

/* Index of the row that sums the models without a row of their own. */
#define OTHER MODEL_ENERGY_ROWS

const char *model_direction_name(unsigned d)
{
	return d == MODEL_PROMPT ? "prompt" : "generated";
}

const char *model_method_name(unsigned m)
{
	static const char *const name[MODEL_METHODS] = {
		[MODEL_ONLY] = "only model",       [MODEL_PROCESS] = "own process",
		[MODEL_SPLIT] = "split by tokens", [MODEL_NO_MODEL] = "no model",
		[MODEL_SUM] = "sum of models",
	};

	return m < MODEL_METHODS ? name[m] : NULL;
}

double model_row_joules(const struct model_row *r)
{
	double sum = 0;

	for (unsigned i = 0; i < MODEL_ENERGY_GPUS; i++)
		sum += r->joules[i];
	return sum;
}

static struct model_mark row_mark(const struct model_row *r, uint64_t now_ns)
{
	return (struct model_mark){ now_ns, r->tokens[MODEL_GENERATED], model_row_joules(r) };
}

static void row_name(struct model_row *r, const char *worker, const char *model)
{
	*r = (struct model_row){ .counter = { NAN, NAN } };
	snprintf(r->worker, sizeof(r->worker), "%s", worker);
	snprintf(r->model, sizeof(r->model), "%s", model);
}

static struct model_row *row_find(struct model_energy *m, const char *worker, const char *model)
{
	for (unsigned i = 0; i < m->rows; i++)
		if (strcmp(m->row[i].worker, worker) == 0 &&
		    strcmp(m->row[i].model, model) == 0)
			return &m->row[i];
	return NULL;
}

static struct model_row *row_other(struct model_energy *m)
{
	struct model_row *o = &m->row[OTHER];

	if (o->method == MODEL_NOTHING)
		row_name(o, "other", "other");
	o->method = MODEL_SUM;
	return o;
}

/* Adds the totals of a row to the row OTHER. */
static void row_fold(struct model_energy *m, const struct model_row *r)
{
	struct model_row *o = row_other(m);

	o->counted = o->counted || r->counted;
	o->changed = true;
	for (unsigned i = 0; i < MODEL_DIRECTIONS; i++)
		o->tokens[i] += r->tokens[i];
	for (unsigned i = 0; i < MODEL_ENERGY_GPUS; i++)
		o->joules[i] += r->joules[i];
	/* The row counted these totals earlier, so they must not appear in a recent time span
	 * of OTHER. */
	o->begin.generated += r->begin.generated;
	o->begin.joules += r->begin.joules;
	o->marks = 0;
}

/* Returns a free row. If there is none, looks at the rows with a model that no server lists,
 * and frees the one that was unused for the longest time. NULL: all rows are in use. */
static struct model_row *row_free(struct model_energy *m)
{
	struct model_row *oldest = NULL;

	if (m->rows < MODEL_ENERGY_ROWS)
		return &m->row[m->rows++];
	for (unsigned i = 0; i < m->rows; i++)
		if (!m->row[i].listed && (!oldest || m->row[i].seen_ns < oldest->seen_ns))
			oldest = &m->row[i];
	if (oldest)
		row_fold(m, oldest);
	return oldest;
}

/* Finds or adds the row of a model. Returns the row OTHER if all rows are in use. */
static struct model_row *row_get(struct model_energy *m, const char *worker, const char *model,
				 uint64_t now_ns)
{
	struct model_row *r = row_find(m, worker, model);

	if (r)
		return r;
	r = row_free(m);
	if (!r)
		return row_other(m);
	row_name(r, worker, model);
	r->begin = row_mark(r, now_ns);
	r->seen_ns = now_ns;
	return r;
}

struct model_row *model_energy_restore(struct model_energy *m, const char *worker,
				       const char *model)
{
	struct model_row *r = row_find(m, worker, model);

	if (!r && strcmp(worker, "other") == 0 && strcmp(model, "other") == 0) {
		r = &m->row[OTHER];
		row_name(r, worker, model);
		r->method = MODEL_SUM;
	} else if (!r && m->rows < MODEL_ENERGY_ROWS) {
		r = &m->row[m->rows++];
		row_name(r, worker, model);
	}
	return r;
}

void model_energy_restored(struct model_row *r)
{
	r->begin = row_mark(r, 0);
}

const struct model_row *model_energy_row(const struct model_energy *m, unsigned i)
{
	if (i < m->rows)
		return &m->row[i];
	return i == m->rows && m->row[OTHER].method == MODEL_SUM ? &m->row[OTHER] : NULL;
}

int model_energy_gpu(struct model_energy *m, const char *uuid)
{
	for (unsigned i = 0; i < m->gpus; i++)
		if (strcmp(m->gpu[i], uuid) == 0)
			return (int)i;
	if (m->gpus == MODEL_ENERGY_GPUS || strlen(uuid) >= sizeof(m->gpu[0]))
		return -1;
	memcpy(m->gpu[m->gpus], uuid, strlen(uuid) + 1);
	return (int)m->gpus++;
}

struct model_worker *model_energy_worker(struct model_energy *m, const char *name)
{
	struct model_worker *w = NULL;

	for (unsigned i = 0; i < m->workers; i++) {
		if (strcmp(m->worker[i].name, name) == 0)
			return &m->worker[i];
		if (!m->worker[i].present && !m->worker[i].pendings)
			w = &m->worker[i];
	}
	if (m->workers < MODEL_ENERGY_WORKERS)
		w = &m->worker[m->workers++];
	if (!w)
		return NULL;
	memset(w, 0, sizeof(*w));
	snprintf(w->name, sizeof(w->name), "%s", name);
	return w;
}

const struct model_worker *model_energy_worker_of(const struct model_energy *m,
						  const struct model_row *r)
{
	for (unsigned i = 0; i < m->workers; i++)
		if (m->worker[i].present && strcmp(m->worker[i].name, r->worker) == 0)
			return &m->worker[i];
	return NULL;
}

double model_worker_pending(const struct model_worker *w)
{
	double sum = 0;

	for (unsigned i = 0; i < w->pendings; i++)
		sum += w->pending[i].joules;
	return sum;
}

void model_energy_add(struct model_energy *m, struct model_worker *w, int64_t pid,
		      const char *uuid, double joules, const char *share)
{
	const int gpu = model_energy_gpu(m, uuid);
	struct model_pending *p = NULL;

	if (gpu < 0 || !(joules > 0))
		return;
	for (unsigned i = 0; i < w->pendings && !p; i++)
		if (w->pending[i].pid == pid && w->pending[i].gpu == (unsigned)gpu)
			p = &w->pending[i];
	if (!p && w->pendings < MODEL_ENERGY_PENDING) {
		p = &w->pending[w->pendings++];
		*p = (struct model_pending){ .pid = pid, .gpu = (unsigned)gpu };
	}
	/* All entries are in use: add the energy to an entry of the same GPU, or to the first
	 * one. That entry then sums several processes. */
	if (!p) {
		for (unsigned i = 0; i < w->pendings && !p; i++)
			if (w->pending[i].gpu == (unsigned)gpu)
				p = &w->pending[i];
		p = p ? p : &w->pending[0];
		p->pid = 0;
	}
	p->joules += joules;
	p->share = share;
}

/* The models of one server while its waiting energy is charged to them. */
struct settlement {
	struct model_row *row[MODEL_ENERGY_ROWS];
	/* Prompt and generated tokens of each model since the last charge, added together. */
	double tokens[MODEL_ENERGY_ROWS];
	const struct model_list *list;
	uint64_t now_ns;
};

/* A counter above this value is not credible, and products with it could overflow. */
#define TOKENS_MAX 1e15

/* Adds the increase of a server's token counter to the row. Returns the increase. */
static double row_count(struct model_row *r, unsigned d, double counter)
{
	const double before = r->counter[d];
	double gained;

	if (!(counter >= 0 && counter <= TOKENS_MAX))
		return 0;
	gained = isnan(before) ? 0 : counter >= before ? counter - before : counter;
	r->counter[d] = counter;
	r->tokens[d] += gained;
	r->counted = true;
	return gained;
}

/* Finds the row of each model in the list and counts its tokens. */
static void settle_tokens(struct model_energy *m, struct model_worker *w, struct settlement *s)
{
	for (unsigned i = 0; i < s->list->count; i++) {
		const struct model_report *x = &s->list->of[i];
		struct model_row *r = row_get(m, w->name, x->model, s->now_ns);

		s->row[i] = r;
		s->tokens[i] = 0;
		if (r == &m->row[OTHER])
			/* OTHER sums several models, so it cannot remember the counter of
			 * each */
			continue;
		if (!r->listed)
			for (unsigned d = 0; d < MODEL_DIRECTIONS; d++)
				r->counter[d] = w->reported || s->list->fresh ? 0 : (double)NAN;
		r->listed = true;
		for (unsigned d = 0; d < MODEL_DIRECTIONS; d++)
			s->tokens[i] += row_count(r, d, x->tokens[d]);
		r->changed = r->changed || s->tokens[i] > 0;
		r->seen_ns = s->now_ns;
	}
}

static bool settlement_has(const struct settlement *s, const struct model_row *r)
{
	for (unsigned i = 0; i < s->list->count; i++)
		if (s->row[i] == r)
			return true;
	return false;
}

/* Forgets the counters of models that are not loaded any more. Their counters begin with 0
 * after the next load. */
static void settle_unlisted(struct model_energy *m, const struct model_worker *w,
			    const struct settlement *s)
{
	for (unsigned i = 0; i < m->rows; i++)
		if (strcmp(m->row[i].worker, w->name) == 0 && !settlement_has(s, &m->row[i]))
			m->row[i].listed = false;
}

static void row_charge(struct model_row *r, const struct model_pending *p, double joules,
		       enum model_method how, uint64_t now_ns)
{
	r->joules[p->gpu] += joules;
	r->share = p->share;
	r->method = r->method == MODEL_SUM ? MODEL_SUM : how;
	r->seen_ns = now_ns;
	r->changed = true;
}

/* Charges the energy of one process to its model. If the process does not belong to exactly one
 * model, divides the energy of the process, by tokens, among the models that have no process of
 * their own. */
static void settle_process(struct model_energy *m, const struct model_worker *w,
			   const struct settlement *s, const struct model_pending *p)
{
	const struct model_list *l = s->list;
	unsigned candidates = 0, last = 0;
	double tokens = 0;

	for (unsigned i = 0; i < l->count; i++) {
		if (p->pid && l->of[i].pid == p->pid) {
			row_charge(s->row[i], p, p->joules, MODEL_PROCESS, s->now_ns);
			return;
		}
		if (l->of[i].pid)
			continue; /* Another process runs this model. */
		candidates++;
		last = i;
		tokens += s->tokens[i];
	}
	if (candidates == 1) {
		row_charge(s->row[last], p, p->joules, MODEL_ONLY, s->now_ns);
	} else if (candidates == 0 || !(tokens > 0)) {
		row_charge(row_get(m, w->name, "", s->now_ns), p, p->joules, MODEL_NO_MODEL,
			   s->now_ns);
	} else {
		for (unsigned i = 0; i < l->count; i++)
			if (!l->of[i].pid && s->tokens[i] > 0)
				row_charge(s->row[i], p, p->joules * s->tokens[i] / tokens,
					   MODEL_SPLIT, s->now_ns);
	}
}

static void row_add_mark(struct model_row *r, uint64_t now_ns)
{
	if (r->marks && now_ns < r->mark[r->marks - 1].ns + MARK_NS)
		return;
	if (r->marks == MODEL_ENERGY_MARKS) {
		memmove(&r->mark[0], &r->mark[1], sizeof(r->mark) - sizeof(r->mark[0]));
		r->marks--;
	}
	r->mark[r->marks++] = row_mark(r, now_ns);
}

void model_energy_settle(struct model_energy *m, struct model_worker *w,
			 const struct model_list *l, uint64_t now_ns)
{
	struct settlement s = { .list = l, .now_ns = now_ns };

	settle_tokens(m, w, &s);
	settle_unlisted(m, w, &s);
	w->reported = true;
	for (unsigned i = 0; i < w->pendings; i++)
		settle_process(m, w, &s, &w->pending[i]);
	w->pendings = 0;
	for (unsigned i = 0; i < m->rows; i++)
		if (strcmp(m->row[i].worker, w->name) == 0) {
			if (!m->row[i].begin.ns)
				m->row[i].begin.ns = now_ns;
			row_add_mark(&m->row[i], now_ns);
			m->row[i].seen_ns = now_ns;
		}
}

static void span_between(const struct model_row *r, const struct model_mark *from,
			 struct model_span *ret)
{
	const struct model_mark now = row_mark(r, r->seen_ns);

	*ret = (struct model_span){
		.seconds = now.ns > from->ns ? (double)(now.ns - from->ns) / 1e9 : 0,
		.tokens = now.generated - from->generated,
		.joules = now.joules - from->joules,
		.joules_per_token = NAN,
	};
	if (!r->counted)
		ret->why = "the tokens are unknown";
	else if (!(ret->tokens > 0))
		ret->why = "no tokens were generated";
	else
		ret->joules_per_token = ret->joules / ret->tokens;
}

void model_span_minute(const struct model_row *r, struct model_span *ret)
{
	struct model_mark from = r->marks ? r->mark[0] : row_mark(r, r->seen_ns);

	for (unsigned i = 0; i < r->marks && r->mark[i].ns + MINUTE_NS <= r->seen_ns; i++)
		from = r->mark[i];
	span_between(r, &from, ret);
}

void model_span_start(const struct model_row *r, struct model_span *ret)
{
	span_between(r, &r->begin, ret);
}
