/* guard_moves: stores how long each worker's moves took, so that estimates can use these
 * durations after a restart of the service. */
#include "guard_service_parts.h"

#include "base/json.h"
#include "base/json_doc.h"
#include "guard/worker/checkpoint.h"

#include <string.h>

#define KIND      "move" /* kind of the documents in the store; their id is the worker */
#define DOCUMENTS 64     /* includes workers that are no longer configured */
#define TEXT_MAX  8192

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
	json_object_end(j);
}

static void save_moves(struct store *s, const struct move_worker *w)
{
	struct buf text;
	struct json j;

	buf_init(&text, TEXT_MAX);
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
	/* if the store is full, only the estimates after the next start are worse */
	if (!text.err)
		(void)store_put_row(s, KIND, w->name, text.p, text.len, DOCUMENTS);
	buf_done(&text);
}

static uint64_t number_of(const struct json_doc *o, const char *key, int64_t most)
{
	int64_t n;

	return json_doc_integer(o, key, &n) && n >= 0 && n <= most ? (uint64_t)n : 0;
}

static struct move read_move(const struct json_doc *o)
{
	return (struct move){
		.wall_ns = number_of(o, "wall_ns", INT64_MAX),
		.bytes = number_of(o, "bytes", INT64_C(1) << 60),
		.ns = number_of(o, "ns", INT64_MAX),
		.level = (unsigned)number_of(o, "level", GUARD_LEVELS - 1),
		.pages = (enum host_pages)number_of(o, "pages", HOST_PAGES_MODES - 1),
		.simulated = json_doc_true(o, "simulated"),
	};
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
	store_each_document(s, KIND, DOCUMENTS, load_worker, &l);
}

static enum host_pages pages_now(void)
{
	enum host_pages pages = HOST_PAGES_UNKNOWN;
	struct root root;

	if (root_open(&root, NULL) != 0)
		return pages;
	pages = host_memory_pages(&root);
	root_close(&root);
	return pages;
}

void guard_moves_follow(struct guard_service *g, const char *worker,
			const struct guard_decision *d)
{
	struct move_worker *w = moves_worker(&g->moves, worker);
	struct guard_status s;
	enum move_way way;
	struct move one;

	if (!w || guard_status(g->guard, d->worker, &s) != 0 ||
	    !moves_follow(w, d, &s, &way, &one))
		return;
	one.wall_ns = clock_wall_ns(g->config.clock);
	one.pages = pages_now();
	one.simulated = guard_view_simulated(&g->view);
	moves_add(w, way, &one);
	save_moves(g->config.store, w);
}
