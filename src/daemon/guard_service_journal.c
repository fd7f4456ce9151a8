/* guard_service_journal: logs decisions and stores records. An order is carried out only after
 * its record is stored. If records cannot be stored, evictions above level 2 are refused, and
 * other orders do not wait. */
#include "guard_service_parts.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND "guard" /* Kind of the documents in the store. */
_Static_assert(POLICY_WORKERS <= 32, "guard_service_journal.unsaved has a bit per worker");

/* Up to this level, an eviction needs no journal, because the worker itself can undo the
 * eviction. */
#define SAFE_LEVEL 2

/* A write that takes longer than this time counts as failed until it ends. Otherwise a disk
 * that hangs would stop all orders, even the orders that need no journal. */
#define HANG_NS (5 * NS_PER_S)

/* A decision as key-value pairs of a log line. */
struct guard_line {
	struct log_pair pair[16];
	unsigned pairs;
	char reasons[160]; /* Value of the pair "reason". */
};

static void line_add(struct guard_line *l, struct log_pair pair)
{
	if (l->pairs < sizeof(l->pair) / sizeof(l->pair[0]))
		l->pair[l->pairs++] = pair;
}

static void line_add_gpu(struct guard_line *l, const struct guard_decision *d,
			 double threshold_c)
{
	line_add(l, LOG_I("gpu", d->index));
	line_add(l, LOG_I("other_processes", d->others));
	if (!isnan(d->temperature_c))
		line_add(l, LOG_D("temperature", d->temperature_c));
	if (!isnan(threshold_c))
		line_add(l, LOG_D("threshold", threshold_c));
}

static void line_add_result(struct guard_line *l, const struct guard_decision *d)
{
	if (d->result == RESULT_NONE)
		return;
	line_add(l, LOG_S("result", guard_result_name(d->result)));
	line_add(l, LOG_I("level", d->level));
	if (d->result == RESULT_FREED)
		line_add(l, LOG_I("freed_bytes", (int64_t)d->freed_bytes));
}

/* Fills the pairs of a decision. Unknown values are omitted. Borrows the decision and the
 * name. threshold_c is the temperature at which workers are moved, or NAN if it is unknown. */
static void guard_line(struct guard_line *ret, const struct guard_decision *d,
		       const char *worker, double threshold_c)
{
	ret->pairs = 0;
	guard_mask_text(d->mask, ",", ret->reasons, sizeof(ret->reasons));
	line_add(ret, LOG_S("worker", worker));
	line_add(ret, LOG_S("from", guard_state_name(d->from)));
	line_add(ret, LOG_S("state", guard_state_name(d->to)));
	line_add(ret, LOG_S("reason", *ret->reasons ? ret->reasons : "none"));
	if (*d->rule)
		line_add(ret, LOG_S("rule", d->rule));
	if (*d->gpu)
		line_add_gpu(ret, d, threshold_c);
	line_add_result(ret, d);
	if (d->dry)
		line_add(ret, LOG_B("dry_run", true));
}

static const char *severity_of(const struct guard_decision *d)
{
	return d->to == STATE_STUCK || d->kind == DECISION_RESUME_FAILED ? "error"
	       : d->to == STATE_EVICT || d->to == STATE_DRAIN || d->kind == DECISION_UNREACHABLE
		       ? "warning"
		       : "info";
}

/* Returns the slot of the view's ring for the next decision. The slot is in the current view,
 * so requests that come before the next tick also see the decision. */
static struct guard_view_decision *next_in_ring(struct guard_service *g)
{
	struct guard_view *v = &g->view;

	g->journal.decided++;
	if (v->decisions < GUARD_VIEW_DECISIONS)
		v->decisions++;
	else
		v->first = (v->first + 1) % GUARD_VIEW_DECISIONS;
	return &g->journal.ring[(v->first + v->decisions - 1) % GUARD_VIEW_DECISIONS];
}

/* Emits one event and one log line with the evidence. */
static uint64_t emit_decision(struct guard_service *g, const struct guard_decision *d,
			      const char *name, const char *text)
{
	struct guard_line line;

	guard_line(&line, d, name, guard_service_threshold_c(g, d));
	guard_counts_add(&g->tally, g->config.store, name, d);
	guard_service_count_eviction(g, d);
	return g->config.emit(g->config.arg,
			      &(struct view_event){ .kind = "guard",
						    .uuid = *d->gpu ? d->gpu : NULL,
						    .severity = severity_of(d),
						    .text = text,
						    .pair = line.pair,
						    .pairs = line.pairs });
}

static void log_decision(void *ctx, const struct guard_decision *d)
{
	struct guard_service *g = ctx;
	const char *name = g->settings->policy.worker[d->worker].name;
	struct guard_view_decision *r = next_in_ring(g);
	char text[GUARD_DECISION_TEXT];

	guard_decision_text(d, name, "dry run", text);
	r->decision = *d;
	r->wall_ns = clock_wall_ns(g->config.clock);
	/* Make a view for this call, because g->view may be older than the policy. */
	guard_view_cause(&(struct guard_view){ .policy = &g->settings->policy,
					       .guard = g->guard,
					       .requested = g->requested },
			 d->worker, r->cause, sizeof(r->cause));
	r->id = emit_decision(g, d, name, text);
	guard_operation_decided(&g->operations, name, d, r->wall_ns);
	guard_moves_add(g, name, d, r->cause);
	if (d->freed_ns && !d->dry) {
		double s = (double)d->freed_ns * 1e-9;

		g->view.counts.free_seconds_last = s;
		g->view.counts.free_seconds_max = fmax(g->view.counts.free_seconds_max, s);
	}
}

int guard_service_store_record(struct guard_service *g, const struct guard_record *r)
{
	struct guard_record_more more = { .kind = "" };
	struct buf text;
	int err;

	for (unsigned i = 0; i < g->settings->policy.workers; i++) {
		if (strcmp(g->settings->policy.worker[i].name, r->worker) != 0)
			continue;
		/* Delete the old restore data of a worker that is not evicted. With this data,
		 * a later resume of the worker would load a second model. */
		if (!r->evicted)
			action_set_notes(g->action, i, "");
		action_notes(g->action, i, more.notes, sizeof(more.notes));
		snprintf(more.requested_by, sizeof(more.requested_by), "%s",
			 guard_service_requested(g, r->worker));
		snprintf(more.kind, sizeof(more.kind), "%s",
			 policy_kind_name(g->settings->policy.worker[i].kind));
	}
	buf_init(&text, 64 * 1024);
	guard_record_write(&text, r, &more);
	err = text.err ? -GW_E_SIZE
		       : store_put_document(g->config.store, KIND, r->worker, text.p, text.len);
	buf_done(&text);
	g->journal.writing = g->journal.writing || !err;
	return err;
}

/* Stores the record of a worker. A failed write is retried. Until it succeeds, the worker is
 * not evicted at a level above SAFE_LEVEL. */
static void store_record(void *ctx, const struct guard_record *r)
{
	struct guard_service *g = ctx;
	int worker = policy_find_worker(&g->settings->policy, r->worker);
	uint32_t bit;

	if (worker < 0)
		return;
	bit = UINT32_C(1) << worker;
	if (guard_service_store_record(g, r) == 0)
		g->journal.unsaved &= ~bit;
	else
		g->journal.unsaved |= bit;
}

static void retry_unsaved(struct guard_service *g)
{
	struct guard_record r;

	for (unsigned i = 0; g->journal.unsaved && i < POLICY_WORKERS; i++) {
		if (!(g->journal.unsaved >> i & 1))
			continue;
		if (i >= g->settings->policy.workers)
			g->journal.unsaved &= ~(UINT32_C(1) << i);
		else if (guard_worker_record(g->guard, i, &r) == 0)
			store_record(g, &r);
	}
}

/* Stores the restore data that an eviction order has collected. The order waits for this only
 * once: it continues when the data is stored. */
static void store_learnt(struct guard_service *g)
{
	struct guard_record r;
	struct guard_order o;

	for (unsigned i = 0; i < g->settings->policy.workers; i++) {
		if (g->journal.learnt >> i & 1 || !action_learnt(g->action, i, &o))
			continue;
		if (guard_worker_record(g->guard, i, &r) == 0)
			store_record(g, &r);
		g->journal.learnt |= UINT32_C(1) << i;
	}
}

/* True if the order may only be carried out after its record is stored, and the record is not
 * stored yet. */
static bool unrecorded(const struct guard_service *g, const struct guard_order *o)
{
	return o->level > SAFE_LEVEL && o->verb == ORDER_EVICT &&
	       (g->journal.last != WRITE_OK || g->journal.unsaved >> o->worker & 1 ||
		!store_lasting(g->config.store));
}

static void continue_learnt(struct guard_service *g)
{
	struct guard_order o;

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (g->journal.learnt >> i & 1 && action_learnt(g->action, i, &o))
			action_go_on(g->action, i,
				     g->ending ? "the service is stopping"
				     : unrecorded(g, &o)
					     ? guard_journal_text(GUARD_JOURNAL_FAILS)
					     : NULL);
	g->journal.learnt = 0;
}

static bool start_order(void *ctx, const struct guard_order *o, struct guard_outcome *out)
{
	struct guard_service *g = ctx;
	int err = unrecorded(g, o) ? -GW_E_PERM : action_order(g->action, o);

	out->ending = err == -GW_E_STATE ? ENDING_BUSY : ENDING_FAILED;
	snprintf(out->message, sizeof(out->message), "%s",
		 err == -GW_E_PERM    ? guard_journal_text(GUARD_JOURNAL_FAILS)
		 : err == -GW_E_STATE ? "another order for this worker is running"
				      : "cannot start a thread (check LimitNPROC and memory)");
	return !err;
}

/* Updates the result of the last write. Returns false while the result is unknown. */
static bool update_last(struct guard_service *g, uint64_t now_ns)
{
	int err = store_lasting(g->config.store) ? store_flush(g->config.store, 0) : 0;

	if (err != -GW_E_TIMEOUT)
		g->journal.pending_ns = 0;
	else if (!g->journal.pending_ns)
		g->journal.pending_ns = now_ns;
	if (err == -GW_E_TIMEOUT && now_ns - g->journal.pending_ns < HANG_NS)
		return false;
	g->journal.last = !err ? WRITE_OK : err == -GW_E_TIMEOUT ? WRITE_HANGS : WRITE_FAILED;
	return true;
}

/* Updates whether the records are stored. Returns false if the store is still writing; the
 * timer then checks again. */
static bool finish_writing(struct guard_service *g, uint64_t now_ns)
{
	g->journal.writing = !update_last(g, now_ns);
	if (g->journal.writing)
		loop_set_time(g->journal.timer, now_ns + GUARD_SERVICE_LOOK_NS);
	return !g->journal.writing;
}

static enum guard_stored records_stored(void *ctx)
{
	struct guard_service *g = ctx;
	enum guard_stored stored = STORED_NOTHING_NEW;

	store_learnt(g);
	if (g->journal.writing) {
		store_commit(g->config.store);
		stored = finish_writing(g, guard_service_time_ns(g)) ? STORED_NOW
								     : STORED_PENDING;
	}
	if (stored != STORED_PENDING)
		continue_learnt(g);
	return stored;
}

static bool next_order(void *ctx, struct guard_order *ret)
{
	struct guard_service *g = ctx;

	return !g->ending && !guard_reload_waits(g) && guard_service_next_order(g, ret);
}

static void take_outcome(void *ctx, const struct guard_outcome *o)
{
	guard_service_outcome(ctx, o);
}

static const struct guard_pump pump = {
	.next_decision = guard_service_next_decision,
	.report = log_decision,
	.next_record = guard_service_next_record,
	.store = store_record,
	.stored = records_stored,
	.next_order = next_order,
	.start = start_order,
	.outcome = take_outcome,
};

void guard_service_commit(struct guard_service *g)
{
	if (!g->journal.writing)
		return;
	store_commit(g->config.store);
	loop_set_time(g->journal.timer, guard_service_time_ns(g));
}

void guard_service_written(struct guard_service *g, uint64_t now_ns)
{
	if (!g->journal.writing || !finish_writing(g, now_ns))
		return;
	continue_learnt(g);
	guard_pump_orders(&pump, g);
	guard_service_pump(g);
}

void guard_service_log_decisions(struct guard_service *g)
{
	struct guard_decision d;

	while (guard_service_next_decision(g, &d))
		log_decision(g, &d);
}

void guard_service_journal_view(struct guard_service *g)
{
	struct store *s = g->config.store;
	bool fails = g->journal.last != WRITE_OK || g->journal.unsaved || store_problem(s);

	g->view.journal = !store_lasting(s) ? GUARD_JOURNAL_NO_FILE
			  : fails           ? GUARD_JOURNAL_FAILS
					    : GUARD_JOURNAL_OK;
}

void guard_service_pump(struct guard_service *g)
{
	/* The store retries failed writes in order. So a newer write cannot hide a failure. */
	if (g->journal.last != WRITE_OK && !g->journal.writing)
		update_last(g, guard_service_time_ns(g));
	if (g->journal.writing) { /* Orders wait until their records are stored. */
		guard_service_log_decisions(g);
	} else {
		retry_unsaved(g);
		guard_pump(&pump, g);
	}
	/* Cancel resume orders of workers that must leave again. Otherwise a contender would
	 * wait until the worker's model is loaded. */
	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (guard_resume_is_obsolete(g->guard, i))
			action_cancel(g->action, i);
	guard_service_journal_view(g);
}

#define RECORDS_MAX 65536

struct loading {
	struct guard_service_records *to;
	const struct guard_service *g;
	unsigned others; /* Number of records of workers that are not in the configuration. */
};

/* Loads a record. Loads only a limited number of records of workers that are not configured, so
 * that the records of the configured workers always have space. */
static void load_record(void *arg, const char *id, const char *json)
{
	struct loading *l = arg;
	struct guard_service_records *to = l->to;
	const bool named =
		policy_find_worker(&l->g->settings->policy, id) >= 0 ||
		(l->g->reload.next && policy_find_worker(&l->g->reload.next->policy, id) >= 0);

	if (to->count == sizeof(to->record) / sizeof(to->record[0]) ||
	    (!named && l->others == 2 * POLICY_WORKERS) ||
	    guard_record_read(json, &to->record[to->count], &to->more[to->count]) != 0)
		return;
	l->others += !named;
	to->count++;
}

int guard_service_records_read(struct guard_service *g, struct guard_service_records **ret)
{
	struct loading l = { .to = calloc(1, sizeof(*l.to)), .g = g };

	if (!l.to)
		return -GW_E_NOMEM;
	if (store_each_document(g->config.store, KIND, RECORDS_MAX, load_record, &l) ==
	    -GW_E_NOMEM) {
		free(l.to);
		return -GW_E_NOMEM;
	}
	*ret = l.to;
	return 0;
}

void guard_service_give_notes(struct guard_service *g, const struct guard_service_records *r,
			      unsigned worker)
{
	for (unsigned i = 0; i < r->count; i++)
		if (strcmp(g->settings->policy.worker[worker].name, r->record[i].worker) == 0) {
			action_set_notes(g->action, worker, r->more[i].notes);
			guard_service_set_requested(g, r->record[i].worker,
						    r->more[i].requested_by);
		}
}

static void add_former(const struct guard_record *r, unsigned worker,
		       struct scene_builder_formers *ret)
{
	for (unsigned i = 0; i < r->roots && ret->count < SCENE_BUILDER_FORMERS; i++) {
		ret->of[ret->count].worker = worker;
		ret->of[ret->count++].id = r->root[i];
	}
}

void guard_service_formers(const struct guard_service_records *r, const struct policy *p,
			   struct scene_builder_formers *ret)
{
	ret->count = 0;
	for (unsigned i = 0; i < p->workers; i++)
		for (unsigned k = 0; k < r->count; k++)
			if (strcmp(p->worker[i].name, r->record[k].worker) == 0)
				add_former(&r->record[k], i, ret);
}

void guard_service_forget(struct guard_service *g, const char *worker)
{
	store_delete_document(g->config.store, KIND, worker);
}

static void timer_expired(void *arg, uint64_t t_ns)
{
	struct guard_service *g = arg;

	if (g->journal.writing && !finish_writing(g, t_ns))
		return;
	guard_reload_try(g);
	guard_service_pump(g);
}

int guard_service_journal_open(struct guard_service *g)
{
	guard_counts_load(&g->tally, g->config.store, &g->settings->policy);
	guard_moves_load(&g->moves, g->config.store, &g->settings->policy);
	return loop_add_timer(g->config.loop, timer_expired, g, &g->journal.timer);
}
