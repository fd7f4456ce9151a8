/* guard_service_stats: stores the statistics of guard/worker_stats.h, and loads them at the
 * start. Each counter of decisions or Xids is stored with store_set_count(). The durations of a
 * worker's moves are stored as one document. */
#include "guard_service_parts.h"

#include "base/json.h"
#include "base/json_doc.h"
#include "guard/worker/checkpoint.h"

#include <stdio.h>
#include <string.h>

/* Xids below this number are counted separately. NVIDIA's numbers are below 200. */
#define XID_MOST           1024
#define XID_UNKNOWN_NUMBER 999 /* All other Xids are counted under this number. */

/* Writes the store key of a counter. If worker is NULL, this is the key of the total of all
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

/* If a total is less than the sum of the counters of the current workers, sets it to that sum.
 * This is needed because the store of an earlier version has no totals. */
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
	/* Commit now, because the service shows a counter to clients only after the counter is
	 * stored. */
	store_commit(s);
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

/* A move is the time that a worker took to leave its GPU or to return to it. Moves are stored,
 * so that estimates can use them after a restart of the service. */

/* Kind of the documents in the store. The id of a document is the name of the worker. */
#define MOVE_KIND      "move"
#define MOVE_DOCUMENTS 64 /* Includes workers that are no longer configured. */
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
	/* A failure has only one effect: the estimates after the next start are less exact. */
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

void guard_moves_add(struct guard_service *g, const char *worker,
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
