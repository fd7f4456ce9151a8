/* guard_service_journal: logs decisions, and stores records, counters and durations of moves.
 * An order is carried out only after its record is stored. If records cannot be stored,
 * evictions above level 2 are refused, and other orders do not wait. */
#include "guard_service_parts.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/json_doc.h"
#include "base/log.h"
#include "guard/worker/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Xids below this number are counted separately. NVIDIA's numbers are below 200. */
#define XID_MOST           1024
#define XID_UNKNOWN_NUMBER 999     /* All other Xids are counted under this number. */
#define KIND               "guard" /* Kind of the documents in the store. */
_Static_assert(POLICY_WORKERS <= 32, "guard_service_journal.unsaved has a bit per worker");

/* Highest level of an eviction that needs no journal, because the worker itself can undo it. */
#define SAFE_LEVEL 2

/* A write that takes longer than this counts as failed until it ends. Otherwise a disk that hangs
 * would stop all orders, also those that need no journal. */
#define HANG_NS (5 * NS_PER_S)

/* Writes the store key of a counter. If worker is NULL, the counter is the sum of all
 * workers. */
static void count_key(char *out, size_t size, const char *worker, unsigned cell)
{
	char name[48];

	counters_cell_name(cell, name, sizeof(name));
	snprintf(out, size, "guard%s%s/%s", worker ? "/" : "-all", worker ? worker : "", name);
}

static void counts_load(uint64_t *cell, struct store *s, const char *worker)
{
	char key[192];

	for (unsigned c = 0; c < COUNTERS_CELLS; c++) {
		count_key(key, sizeof(key), worker, c);
		cell[c] = (uint64_t)store_count_now(s, key);
	}
}

static void counts_save(const uint64_t *cell, struct store *s, const char *worker)
{
	char key[192];

	for (unsigned c = 0; c < COUNTERS_CELLS; c++) {
		if (!cell[c])
			continue;
		count_key(key, sizeof(key), worker, c);
		store_set_count(s, key, (double)cell[c]);
	}
}

static void xid_key(char *out, size_t size, const char *uuid, unsigned xid)
{
	snprintf(out, size, "xid/%s/%u", uuid, xid);
}

/* Raises each total that is less than the sum of the current workers' counters to that sum,
 * because the store of an earlier version has no totals. */
static void sum_up(struct guard_counters *t)
{
	for (unsigned c = 0; c < COUNTERS_CELLS; c++) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < t->workers; i++)
			sum += t->worker[i].cell[c];
		if (t->all[c] < sum)
			t->all[c] = sum;
	}
}

void guard_counts_load(struct guard_counters *t, struct store *s, const struct policy *p)
{
	counters_fit(t, p);
	counts_load(t->all, s, NULL);
	for (unsigned i = 0; i < p->workers; i++) {
		const char *name = p->worker[i].name;
		struct counters_worker *w =
			counters_find(t, name) ? NULL : counters_worker(t, name);

		if (w)
			counts_load(w->cell, s, name);
	}
	sum_up(t);
}

void guard_counts_load_xids(struct guard_counters *t, struct store *s, const char *uuid)
{
	char key[160];

	for (unsigned i = 0; i < t->xids; i++)
		if (strcmp(t->xid[i].uuid, uuid) == 0)
			return;
	for (unsigned n = 0; n < XID_MOST; n++) {
		struct counters_xid *x;
		uint64_t count;

		xid_key(key, sizeof(key), uuid, n);
		count = (uint64_t)store_count(s, key);
		x = count ? counters_xid(t, uuid, n) : NULL;
		if (x)
			x->count = count;
	}
}

void guard_counts_add(struct guard_counters *t, struct store *s, const char *worker,
		      const struct guard_decision *d)
{
	const struct counters_worker *w = counters_add(t, worker, d);

	if (w)
		counts_save(w->cell, s, worker);
	counts_save(t->all, s, NULL);
	store_commit(s); /* The service shows a counter to clients only after it is stored. */
}

void guard_counts_add_xid(struct guard_counters *t, struct store *s, const char *uuid,
			  unsigned xid)
{
	const struct counters_xid *x;
	char key[160];

	guard_counts_load_xids(t, s, uuid);
	x = counters_xid(t, uuid, xid < XID_MOST ? xid : XID_UNKNOWN_NUMBER);
	if (!x)
		return;
	xid_key(key, sizeof(key), uuid, x->xid);
	store_set_count(s, key, (double)x->count);
	store_commit(s);
}

/* Moves: how long each worker took to leave its GPU and to return. They are stored, so that
 * estimates can use them after a restart of the service. */

#define MOVE_KIND      "move" /* Kind of the documents in the store. Their id is the worker. */
#define MOVE_DOCUMENTS 64     /* Includes workers that are no longer configured. */
#define MOVE_TEXT_MAX  32768

static const char *const way_keys[] = { "leave", "return" };

static void write_move(struct json *j, const struct move *one)
{
	json_object(j, NULL);
	json_uint(j, "wall_ns", one->wall_ns);
	json_uint(j, "bytes", one->bytes);
	json_uint(j, "ns", one->ns);
	json_uint(j, "level", one->level);
	json_uint(j, "pages", one->pages);
	json_bool(j, "simulated", one->simulated);
	json_string(j, "cause", one->cause);
	json_object_end(j);
}

static void save_moves(struct store *s, const struct move_worker *w)
{
	struct buf text;
	struct json j;

	buf_init(&text, MOVE_TEXT_MAX);
	json_init(&j, &text, false);
	json_object(&j, NULL);
	for (unsigned way = 0; way < MOVE_WAYS; way++) {
		json_array(&j, way_keys[way]);
		for (unsigned i = 0; i < w->count[way]; i++)
			write_move(&j, &w->done[way][i]);
		json_array_end(&j);
	}
	json_object_end(&j);
	json_end(&j);
	/* If this fails, only the estimates after the next start are worse. */
	if (!text.err)
		(void)store_put_row(s, MOVE_KIND, w->name, text.p, text.len, MOVE_DOCUMENTS);
	buf_done(&text);
}

static struct move read_move(const struct json_doc *o)
{
	const char *cause = json_doc_string(o, "cause"); /* NULL in older files. */
	struct move m = {
		.wall_ns = json_doc_uint(o, "wall_ns", INT64_MAX),
		.bytes = json_doc_uint(o, "bytes", INT64_C(1) << 60),
		.ns = json_doc_uint(o, "ns", INT64_MAX),
		.level = (unsigned)json_doc_uint(o, "level", GUARD_LEVELS - 1),
		.pages = (enum host_pages)json_doc_uint(o, "pages", HOST_PAGES_MODES - 1),
		.simulated = json_doc_true(o, "simulated"),
	};

	snprintf(m.cause, sizeof(m.cause), "%s", cause ? cause : "");
	return m;
}

static void read_moves(struct move_worker *w, const struct json_doc *o)
{
	for (unsigned way = 0; way < MOVE_WAYS; way++)
		for (size_t i = 0; i < json_doc_count(o, way_keys[way]); i++) {
			const struct move m = read_move(json_doc_at(o, way_keys[way], i));

			moves_add(w, way, &m);
		}
}

struct moves_loading {
	struct moves *to;
	const struct policy *policy;
};

static void load_worker(void *arg, const char *id, const char *text)
{
	struct moves_loading *l = arg;
	struct json_doc *o = NULL;
	char unused[160];
	struct move_worker *w;

	if (policy_find_worker(l->policy, id) < 0 || moves_find(l->to, id) ||
	    json_doc_new(text, strlen(text), &o, unused, sizeof(unused)) != 0)
		return;
	w = moves_worker(l->to, id);
	if (w)
		read_moves(w, o);
	json_doc_free(o);
}

void guard_moves_load(struct moves *m, struct store *s, const struct policy *p)
{
	struct moves_loading l = { .to = m, .policy = p };

	moves_fit(m, p);
	store_each_document(s, MOVE_KIND, MOVE_DOCUMENTS, load_worker, &l);
}

/* If a worker's move ended with this decision, stores how long the move took. cause says why
 * the worker may not run. */
static void moves_save(struct guard_service *g, const char *worker,
		       const struct guard_decision *d, const char *cause)
{
	struct move_worker *w = moves_worker(&g->moves, worker);
	struct guard_status s;
	enum move_way way;
	struct move one;

	if (!w || guard_status(g->guard, d->worker, &s) != 0 ||
	    !moves_follow(w, d, &s, &way, &one))
		return;
	one.wall_ns = clock_wall_ns(g->config.clock);
	one.pages = host_memory_pages_now();
	one.simulated = guard_view_simulated(&g->view);
	if (way == MOVE_LEAVE)
		snprintf(one.cause, sizeof(one.cause), "%s", cause);
	moves_add(w, way, &one);
	save_moves(g->config.store, w);
}

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

/* Returns the slot of the view's ring for the next decision. Requests between two ticks also
 * see this decision. */
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
	/* g->view is not used, because it may be older than the policy. */
	guard_view_cause(&(struct guard_view){ .policy = &g->settings->policy,
					       .guard = g->guard,
					       .requested = g->requested },
			 d->worker, r->cause, sizeof(r->cause));
	r->id = emit_decision(g, d, name, text);
	guard_operation_decided(&g->operations, name, d, r->wall_ns);
	moves_save(g, name, d, r->cause);
	if (d->freed_ns && !d->dry) {
		double s = (double)d->freed_ns * 1e-9;

		g->view.counts.free_seconds_last = s;
		g->view.counts.free_seconds_max = fmax(g->view.counts.free_seconds_max, s);
	}
}

int guard_service_keep(struct guard_service *g, const struct guard_record *r)
{
	struct guard_record_more more = { .kind = "" };
	struct buf text;
	int err;

	for (unsigned i = 0; i < g->settings->policy.workers; i++) {
		if (strcmp(g->settings->policy.worker[i].name, r->worker) != 0)
			continue;
		/* Delete the old restore data, because it would load a second model. */
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

/* Stores a record. A failed write is retried. Until it succeeds, the worker is not evicted
 * at a level above SAFE_LEVEL. */
static void save_record(struct guard_service *g, unsigned worker, const struct guard_record *r)
{
	uint32_t bit = UINT32_C(1) << worker;

	if (guard_service_keep(g, r) == 0)
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
			save_record(g, i, &r);
	}
}

static void keep_record(void *ctx, const struct guard_record *r)
{
	struct guard_service *g = ctx;
	int worker = policy_find_worker(&g->settings->policy, r->worker);

	if (worker >= 0)
		save_record(g, (unsigned)worker, r);
}

/* Stores the restore data that an eviction order has collected. The order waits once until the
 * data is stored, and then continues. */
static void save_learnt(struct guard_service *g)
{
	struct guard_record r;
	struct guard_order o;

	for (unsigned i = 0; i < g->settings->policy.workers; i++) {
		if (g->journal.learnt >> i & 1 || !action_learnt(g->action, i, &o))
			continue;
		if (guard_worker_record(g->guard, i, &r) == 0)
			save_record(g, i, &r);
		g->journal.learnt |= UINT32_C(1) << i;
	}
}

/* True if the order needs a stored record and has none. */
static bool unrecorded(const struct guard_service *g, const struct guard_order *o)
{
	return o->level > SAFE_LEVEL && o->verb == ORDER_EVICT &&
	       (g->journal.failed || g->journal.unsaved >> o->worker & 1 ||
		!store_lasting(g->config.store));
}

#define NOT_KEPT "the journal cannot be written; evictions above level 2 (unload) are refused"

static void continue_learnt(struct guard_service *g)
{
	struct guard_order o;

	for (unsigned i = 0; i < POLICY_WORKERS; i++)
		if (g->journal.learnt >> i & 1 && action_learnt(g->action, i, &o))
			action_go_on(g->action, i,
				     g->ending           ? "the service is stopping"
				     : unrecorded(g, &o) ? NOT_KEPT
							 : NULL);
	g->journal.learnt = 0;
}

static bool start_order(void *ctx, const struct guard_order *o, struct guard_outcome *out)
{
	struct guard_service *g = ctx;
	int err = unrecorded(g, o) ? -GW_E_PERM : action_order(g->action, o);

	out->ending = err == -GW_E_STATE ? ENDING_BUSY : ENDING_FAILED;
	snprintf(out->message, sizeof(out->message), "%s",
		 err == -GW_E_PERM    ? NOT_KEPT
		 : err == -GW_E_STATE ? "another order for this worker is running"
				      : "cannot start a thread (check LimitNPROC and memory)");
	return !err;
}

/* Updates whether writing failed. Returns false while the result is unknown. */
static bool update_failed(struct guard_service *g, uint64_t now_ns)
{
	int err = store_lasting(g->config.store) ? store_flush(g->config.store, 0) : 0;

	if (err != -GW_E_TIMEOUT)
		g->journal.pending_ns = 0;
	else if (!g->journal.pending_ns)
		g->journal.pending_ns = now_ns;
	if (err == -GW_E_TIMEOUT && now_ns - g->journal.pending_ns < HANG_NS)
		return false;
	g->journal.failed = err != 0;
	return true;
}

/* Notes whether the records were stored. Returns false if the store still writes; then the timer
 * tries again. */
static bool finish_writing(struct guard_service *g, uint64_t now_ns)
{
	g->journal.writing = !update_failed(g, now_ns);
	if (g->journal.writing)
		loop_set_time(g->journal.timer, now_ns + GUARD_SERVICE_LOOK_NS);
	return !g->journal.writing;
}

static enum guard_kept records_kept(void *ctx)
{
	struct guard_service *g = ctx;
	enum guard_kept kept = KEPT_NOTHING_NEW;

	save_learnt(g);
	if (g->journal.writing) {
		store_commit(g->config.store);
		kept = finish_writing(g, guard_service_time_ns(g)) ? KEPT_NOW : KEPT_PENDING;
	}
	if (kept != KEPT_PENDING)
		continue_learnt(g);
	return kept;
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
	.keep = keep_record,
	.kept = records_kept,
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
	bool kept =
		!g->journal.failed && !g->journal.unsaved && strcmp(store_state(s), "ok") == 0;

	g->view.journal = !store_lasting(s) ? "there is no journal file; evictions above level "
					      "2 (unload) are refused"
			  : kept            ? "ok"
				 : "the journal cannot be written; evictions above level 2 "
				   "(unload) are refused";
}

void guard_service_pump(struct guard_service *g)
{
	/* The store retries failed writes in order. So a newer write cannot hide a failure. */
	if (g->journal.failed && !g->journal.writing)
		update_failed(g, guard_service_time_ns(g));
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

/* Loads a record. Limits the number of records of workers that are not configured, so that
 * there is always space for the configured workers. */
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
	store_each_document(g->config.store, KIND, RECORDS_MAX, load_record, &l);
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
