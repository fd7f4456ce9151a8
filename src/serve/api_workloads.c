/* Replies about workloads: those that run or ended a moment ago, and the stored ones. */
#include "api_parts.h"

#include "timespec_parse.h"
#include "workload_doc.h"

#include "base/json_doc.h"
#include "base/suggest.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define HISTORY_STANDARD 1000
#define HISTORY_MOST     100000

static void write_devices(struct json *j, const struct api *a,
			  const struct render_filter *filter)
{
	json_array(j, "devices");
	for (unsigned i = 0; i < a->view.devices; i++)
		if (render_shows(filter, i))
			workload_doc_device(j, &a->view, i);
	json_array_end(j);
}

/* True if the workload of this row has a row on one of the GPUs. */
static bool is_on(const struct workload_energy *e, unsigned row,
		  const struct render_filter *filter)
{
	for (unsigned i = 0; i < e->count; i++)
		if (render_shows(filter, e->row[i].gpu) &&
		    workload_row_same(&e->row[i], &e->row[row]))
			return true;
	return false;
}

/* True if there is a reading of the workloads. If not, replies 503. */
static bool has_workloads(const struct api *a, struct reply *r)
{
	if (!api_has_reading(a, r))
		return false;
	if (!a->view.workloads || !a->view.processes)
		reply_problem(r, 503, "no-reading", "Try again in a moment.",
			      "the processes have not been listed yet");
	return a->view.workloads && a->view.processes;
}

void api_workloads(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct workload_energy *e = a->view.workloads;
	const struct render_filter *filter;
	struct render_filter f;
	struct json j;

	if (!has_workloads(a, r) || !api_filter(a, q, r, &f, &filter) ||
	    api_waits_for_use(a, q, r))
		return;
	api_look(a);
	json_init(&j, &r->body, false);
	render_head(&j, a->view.snap);
	json_array(&j, "workloads");
	for (unsigned i = 0; i < e->count; i++)
		if (workload_doc_is_first(e, i) && is_on(e, i, filter))
			workload_doc_write(&j, &a->view, e, i);
	json_array_end(&j);
	write_devices(&j, a, filter);
	render_source(&j, a->view.snap);
	json_object_end(&j);
	json_end(&j);
}

/* ---- history ---- */

struct search {
	uint64_t since_ms;
	const char *kind, *name; /* NULL: all */
	bool ended, running;
	unsigned found, skip; /* skip: number of the oldest ones to omit */
	struct json *j;       /* NULL: only count */
};

static bool name_matches(const struct search *s, const char *name)
{
	return !s->name || fnmatch(s->name, name ? name : "", 0) == 0;
}

/* Parses a stored document, which is needed only for its name. */
static bool document_matches(const struct search *s, const char *json)
{
	struct json_doc *d;
	char why[160];
	bool found;

	if (!s->name)
		return true;
	if (json_doc_new(json, strlen(json), &d, why, sizeof(why)) != 0)
		return false;
	found = name_matches(s, json_doc_string(d, "name"));
	json_doc_free(d);
	return found;
}

static void search_stored(void *arg, const char *id, const char *json)
{
	struct search *s = arg;
	const char *kind;
	uint64_t end_ms;
	size_t n;

	if (!workload_doc_read_id(id, &end_ms, &kind, &n) || end_ms < s->since_ms ||
	    (s->kind && (strncmp(s->kind, kind, n) != 0 || s->kind[n])) ||
	    !document_matches(s, json))
		return;
	if (s->j && s->found >= s->skip)
		json_raw(s->j, NULL, json);
	s->found++;
}

static void search_rows(struct search *s, const struct view *v, bool running)
{
	const struct workload_energy *e = v->workloads;

	for (unsigned i = 0; i < e->count; i++) {
		const struct workload *w = &e->row[i].workload;
		struct workload_sum sum;

		if (!workload_doc_is_first(e, i) || !name_matches(s, w->name) ||
		    (s->kind && strcmp(s->kind, workload_kind_word(w->kind)) != 0))
			continue;
		workload_energy_sum(e, i, &sum);
		if ((sum.processes > 0) != running || sum.end_wall_ns / NS_PER_MS < s->since_ms)
			continue;
		if (s->j && s->found >= s->skip)
			workload_doc_write(s->j, v, e, i);
		s->found++;
	}
}

static void search_all(struct search *s, const struct api *a)
{
	const struct view_ops *ops = a->view.ops;

	s->found = 0;
	if (s->ended && ops && ops->each_document)
		ops->each_document(a->view.engine, WORKLOAD_DOC_ENDED, HISTORY_MOST,
				   search_stored, s);
	if (s->ended)
		search_rows(s, &a->view, false);
	if (s->running)
		search_rows(s, &a->view, true);
}

/* Reads ?kind=. False: replied 400 with the kinds. */
static bool read_kind(const struct request *q, struct reply *r, const char **ret)
{
	const char *words[WORKLOAD_KINDS], *near;
	char mem[256];
	struct buf list;

	*ret = request_param(q, "kind");
	buf_init_fixed(&list, mem, sizeof(mem));
	for (unsigned k = 0; k < WORKLOAD_KINDS; k++) {
		words[k] = workload_kind_word(k);
		if (!*ret || strcmp(*ret, words[k]) == 0)
			return true;
		buf_addf(&list, "%s%s", k ? ", " : "", words[k]);
	}
	near = suggest(*ret, words, WORKLOAD_KINDS, sizeof(words[0]));
	if (near)
		reply_problem(r, 400, "bad-parameter", NULL,
			      "unknown kind \"%.64s\"; did you mean \"%s\"?", *ret, near);
	else
		reply_problem(r, 400, "bad-parameter", NULL,
			      "unknown kind \"%.64s\"; kinds: %s", *ret, list.p);
	return false;
}

/* Reads ?running=. False: replied 400. */
static bool read_running(const struct request *q, struct reply *r, struct search *s)
{
	const char *word = request_param(q, "running");
	static const struct {
		const char *word;
		bool ended, running;
	} row[] = {
		{ "without", true, false },
		{ "with", true, true },
		{ "only", false, true },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (!word || strcmp(word, row[i].word) == 0) {
			s->ended = row[i].ended;
			s->running = row[i].running;
			return true;
		}
	reply_problem(r, 400, "bad-parameter", NULL,
		      "running=\"%.64s\" is unknown; write without, with or only", word);
	return false;
}

static bool read_since(const struct api *a, const struct request *q, struct reply *r,
		       uint64_t *ret_ms)
{
	const char *text = request_param(q, "since");
	uint64_t ns = 0;

	if (text && timespec_parse(text, clock_wall_ns(a->clock), &ns) != 0) {
		reply_problem(
			r, 400, "bad-parameter",
			"Write 2026-01-31T12:00:00Z, seconds since 1970, or -1h for one hour "
			"ago; in a URL, + is written %2B.",
			"since=\"%.64s\" is not a time", text);
		return false;
	}
	*ret_ms = ns / NS_PER_MS;
	return true;
}

void api_workloads_history(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct search s = { .name = request_param(q, "name") };
	uint64_t limit;
	struct json j;

	if (!has_workloads(a, r) || !read_kind(q, r, &s.kind) || !read_running(q, r, &s) ||
	    !read_since(a, q, r, &s.since_ms) ||
	    !api_number(q, r, "limit", HISTORY_STANDARD, HISTORY_MOST, &limit))
		return;
	search_all(&s, a);
	s.skip = s.found > limit ? s.found - (unsigned)limit : 0;
	s.j = &j;
	api_begin(&j, a, r);
	json_uint(&j, "left_out", s.skip);
	json_array(&j, "workloads");
	search_all(&s, a);
	json_array_end(&j);
	write_devices(&j, a, NULL);
	energy_cost_render_rates(&j, &a->cost);
	api_end(&j);
}
