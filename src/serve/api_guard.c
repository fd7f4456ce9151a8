/* The state of the guard, read-only; api_guard_explain.c says why. */
#include "guard_doc.h"

#include <string.h>

#define DECISIONS 20

/* ---- the guard ---- */

static void counts(struct json *j, const struct guard_view *g)
{
	static const uint64_t none[TALLY_CELLS];
	const uint64_t *all = g->tally ? g->tally->all : none;
	const struct guard_view_counts *c = &g->counts;

	json_object(j, "counts");
	json_uint(j, "looks_total", c->looks);
	json_uint(j, "looks_triggered_total", c->triggered);
	json_uint(j, "evictions_total", tally_evictions(all));
	json_uint(j, "resumes_total", all[TALLY_RESUMES]);
	json_uint(j, "would_evict_total", all[TALLY_WOULD_EVICT]);
	json_uint(j, "stuck", c->stuck);
	json_double(j, "freed_bytes_total", (double)all[TALLY_FREED_BYTES]);
	json_double(j, "decide_seconds_last", c->looks ? c->decide_seconds_last : (double)NAN);
	json_double(j, "decide_seconds_max", c->looks ? c->decide_seconds_max : (double)NAN);
	json_double(j, "free_seconds_last",
		    c->free_seconds_last > 0 ? c->free_seconds_last : (double)NAN);
	json_double(j, "free_seconds_max",
		    c->free_seconds_max > 0 ? c->free_seconds_max : (double)NAN);
	json_double(j, "idle_saved_joules", c->idle_saved_joules);
	json_double(j, "idle_spent_joules", c->idle_spent_joules);
	json_object_end(j);
}

static void rooms(struct json *j, const struct guard_view *g, struct guard_moment now)
{
	struct guard_room room;

	json_array(j, "reservations");
	for (unsigned i = 0; guard_room(g->guard, i, &room); i++) {
		if (!room.id)
			continue;
		json_object(j, NULL);
		guard_doc_room(j, &room, now);
		json_object_end(j);
	}
	json_array_end(j);
}

/* The latest `limit` decisions of this worker, or (-1) of all, oldest first. */
static void decisions(struct json *j, const struct guard_view *g, int worker, uint64_t limit,
		      struct guard_moment now)
{
	unsigned from = g->decisions;
	uint64_t n = 0;

	for (; from > 0 && n < limit; from--) {
		const struct guard_view_decision *d =
			&g->ring[(g->first + from - 1) % GUARD_VIEW_DECISIONS];

		n += worker < 0 || d->decision.worker == (unsigned)worker;
	}
	json_array(j, "decisions");
	for (unsigned i = from; i < g->decisions; i++) {
		const struct guard_view_decision *d =
			&g->ring[(g->first + i) % GUARD_VIEW_DECISIONS];

		if (worker < 0 || d->decision.worker == (unsigned)worker)
			guard_doc_decision(j, g, d, now);
	}
	json_array_end(j);
}

static void workers(struct json *j, const struct guard_view *g, struct guard_moment now)
{
	json_array(j, "workers");
	for (unsigned i = 0; i < g->policy->workers; i++) {
		json_object(j, NULL);
		guard_doc_worker(j, g, i, now);
		json_object_end(j);
	}
	json_array_end(j);
}

void api_guard(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	struct guard_moment now = guard_moment(a);
	uint64_t limit;
	struct json j;

	if (!g || !api_number(q, r, "limit", DECISIONS, GUARD_VIEW_DECISIONS, &limit))
		return;
	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_bool(&j, "simulated", guard_doc_simulated(g));
	json_string(&j, "mode", guard_doc_mode(g->policy->mode));
	json_string(&j, "journal", g->journal);
	guard_doc_time(&j, "looked", g->scene ? g->scene->mono_ns : 0, now);
	workers(&j, g, now);
	rooms(&j, g, now);
	counts(&j, g);
	decisions(&j, g, -1, limit, now);
	json_object_end(&j);
	json_end(&j);
}

void api_guard_worker(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	struct guard_moment now = guard_moment(a);
	struct json j;
	int w;

	if (!g || (w = guard_doc_find(g, r, q->arg[0])) < 0)
		return;
	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_string(&j, "mode", guard_doc_mode(g->policy->mode));
	guard_doc_worker(&j, g, (unsigned)w, now);
	decisions(&j, g, w, DECISIONS, now);
	json_object_end(&j);
	json_end(&j);
}

/* ---- one GPU ---- */

static void memory(struct json *j, const struct scene *s, unsigned at,
		   const struct capacity_gpu *c)
{
	const struct scene_gpu *x = &s->gpu[at];
	double total = x->memory_known ? (double)x->total_bytes : (double)NAN;
	double used = x->memory_known ? (double)x->used_bytes : (double)NAN;
	double free_bytes = x->memory_known ? (double)x->free_bytes : (double)NAN;

	json_double(j, "memory_total_bytes", total);
	json_double(j, "memory_used_bytes", used);
	json_double(j, "memory_free_bytes", free_bytes);
	json_double(j, "unattributed_bytes", guard_view_unattributed(s, at));
	json_uint(j, "headroom_bytes", c->headroom_bytes);
	json_uint(j, "reserved_bytes", c->reserved_bytes);
	json_double(j, "available_bytes",
		    c->known ? (double)capacity_available(c) : (double)NAN);
	guard_doc_old_names(j, total, used, free_bytes);
}

void api_guard_gpu(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	const struct scene *s;
	struct capacity_gpu c;
	struct json j;
	int i, at;

	if (!g || !api_has_reading(a, r) || (i = api_find(a, r, 404, q->arg[0])) < 0)
		return;
	guard_verdicts(g->guard, &s);
	guard_view_capacity(&a->view, (unsigned)i, &c);
	at = guard_view_gpu(s, c.uuid);
	if (at < 0) {
		reply_problem(r, 503, "no-reading", "Try again in a moment.",
			      "the guard has not observed this GPU yet");
		return;
	}
	json_init(&j, &r->body, false);
	api_head(&j, a);
	json_string(&j, "uuid", c.uuid);
	json_uint(&j, "index", gw_snapshot_device(a->view.snap, (unsigned)i)->index);
	json_string(&j, "state", scene_health_name(s->gpu[at].health));
	guard_doc_time(&j, "looked", s->mono_ns, guard_moment(a));
	json_bool(&j, "hidden_processes", s->gpu[at].hidden);
	json_double(&j, "temperature_celsius", s->gpu[at].temperature_c);
	json_double(&j, "margin_celsius", s->gpu[at].margin_c);
	memory(&j, s, (unsigned)at, &c);
	guard_doc_processes(&j, g, (unsigned)at);
	json_object_end(&j);
	json_end(&j);
}
