/* Replies about workloads, about models on the inference servers, and about the fleet.
 *
 * Workloads that run or ended recently are in memory; older ones are in the store. The state of
 * the fleet comes from the user's Prometheus. */
#include "api_parts.h"

#include "fleet.h"
#include "guard_view.h"
#include "workload_doc.h"

#include "base/number.h"
#include "base/suggest.h"
#include "measure/model_energy.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY_STANDARD 1000
#define HISTORY_MOST     5000
/* Maximum number of documents that a search reads. The search runs on the same thread as the
 * guard, and the guard must not wait longer. */
#define HISTORY_SCAN 20000
#define HISTORY_REMEDY                                                                   \
	"Set since to a later time, or set kind: only the latest 20,000 workloads were " \
	"examined."
/* Maximum bytes of a reply. `gpuward jobs` reads at most 16 MiB. */
#define HISTORY_BYTES (15u << 20)

#define FLEET_WAIT_STEP_NS (50 * NS_PER_MS)
/* Maximum time that a reply waits for Prometheus. FLEET_WAIT_FIRST_NS applies while the service
 * has no answer from Prometheus at all; this time is longer than the deadline of the queries.
 * FLEET_WAIT_NEXT_NS applies if an older answer can be shown instead. */
#define FLEET_WAIT_FIRST_NS (25 * NS_PER_S)
#define FLEET_WAIT_NEXT_NS  (2 * NS_PER_S)
#define FLEET_TOP_STANDARD  50
#define FLEET_TOP_MOST      1000
#define FLEET_GPUS_MOST     64

static void write_devices(struct json *j, const struct api *a,
			  const struct render_filter *filter)
{
	json_array(j, "devices");
	for (unsigned i = 0; i < a->view.devices; i++)
		if (render_shows(filter, i))
			workload_doc_device(j, &a->view, i);
	json_array_end(j);
}

/* True if the workload of this row also has a row on one of the selected GPUs. */
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
	return api_has_reading(a, r) &&
	       api_was_read(a->view.workloads ? a->view.processes : NULL, r,
			    "the processes have not been listed yet");
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
	api_end(&j);
}

struct search {
	uint64_t since_ms;
	const char *kind, *name; /* NULL: all */
	bool ended, running;
};

static bool name_matches(const struct search *s, const char *name)
{
	return !s->name || fnmatch(s->name, name, 0) == 0;
}

/* The stored workloads that match a search, latest first. */
struct stored {
	const struct search *search;
	unsigned wanted;   /* maximum number of documents to keep */
	unsigned found;    /* number of documents that match, including those not kept */
	unsigned examined; /* number of documents that were read */
	bool truncated;    /* The search ended after HISTORY_SCAN documents. */
	struct buf text;   /* the kept documents, each with a NUL at its end */
	size_t *at;        /* offset of each document in text */
};

static bool stored_add(void *arg, const char *id, const char *json)
{
	struct stored *s = arg;
	char name[sizeof(((struct workload *)0)->name)];

	(void)id;
	if (s->examined++ == HISTORY_SCAN) {
		s->truncated = true;
		return false;
	}
	if (s->search->name) {
		workload_doc_name(json, name, sizeof(name));
		if (!name_matches(s->search, name))
			return true;
	}
	if (s->found < s->wanted) {
		s->at[s->found] = s->text.len;
		buf_add(&s->text, json, strlen(json) + 1);
		if (s->text.err)
			return false;
	}
	s->found++;
	/* When s->wanted documents are kept, further documents are only counted. If the search
	 * has no name, the ids are enough to count them, so a document need not be read. */
	return s->search->name || s->found < s->wanted;
}

static bool stored_count(void *arg, const char *id, const char *json)
{
	unsigned *n = arg;

	(void)id;
	(void)json;
	(*n)++;
	return true;
}

static void stored_search(struct stored *s, const struct api *a)
{
	const struct view_ops *ops = a->view.ops;
	char from[WORKLOAD_DOC_ID], glob[WORKLOAD_DOC_ID];
	struct view_find find = { WORKLOAD_DOC_ENDED, from, glob, false };

	if (!s->search->ended || !ops || !ops->find_documents)
		return;
	workload_doc_ids(s->search->since_ms, s->search->kind, from, glob);
	if (s->wanted || s->search->name)
		ops->find_documents(a->view.engine, &find, stored_add, s);
	if (s->search->name || s->found < s->wanted)
		return;
	find.ids_only = true;
	s->found = 0;
	ops->find_documents(a->view.engine, &find, stored_count, &s->found);
}

static bool row_matches(const struct search *s, const struct workload_energy *e, unsigned i,
			bool running)
{
	const struct workload *w = &e->row[i].workload;
	struct workload_row sum;

	if (!workload_doc_is_first(e, i) || !name_matches(s, w->name) ||
	    (s->kind && strcmp(s->kind, workload_kind_word(w->kind)) != 0))
		return false;
	workload_energy_sum(e, i, &sum);
	return (sum.processes > 0) == running && sum.end_wall_ns / NS_PER_MS >= s->since_ms;
}

/* Writes the workloads in memory that match, ended ones first, but omits the first `skip` of
 * them. If j is NULL, only counts the workloads. Returns the number of all workloads in memory
 * that match. */
static unsigned write_rows(struct json *j, const struct search *s, const struct view *v,
			   unsigned skip)
{
	unsigned n = 0;

	for (unsigned running = !s->ended; running <= s->running; running++)
		for (unsigned i = 0; i < v->workloads->count; i++)
			if (row_matches(s, v->workloads, i, running) && n++ >= skip && j)
				workload_doc_write(j, v, v->workloads, i);
	return n;
}

/* Reads ?kind=. Returns false after an error reply, which lists the kinds. */
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

/* Reads ?running=. Returns false after an error reply. */
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

/* Writes the reply. `rows` is the number of workloads in memory that match. */
static void write_history(const struct api *a, struct reply *r, const struct stored *s,
			  unsigned rows, unsigned limit)
{
	const unsigned kept = s->found < s->wanted ? s->found : s->wanted;
	const unsigned skip = rows > limit ? rows - limit : 0;
	struct json j;

	api_begin(&j, a, r);
	json_uint(&j, "left_out", s->found - kept + skip);
	json_bool(&j, "truncated", s->truncated);
	json_string(&j, "remedy", s->truncated ? HISTORY_REMEDY : NULL);
	json_array(&j, "workloads");
	for (unsigned i = kept; i-- > 0;)
		json_raw(&j, NULL, s->text.p + s->at[i]);
	write_rows(&j, s->search, &a->view, skip);
	json_array_end(&j);
	write_devices(&j, a, NULL);
	energy_cost_render_rates(&j, &a->cost);
	api_end(&j);
}

static void send_history(const struct api *a, struct reply *r, const struct search *search,
			 unsigned limit)
{
	const unsigned rows = write_rows(NULL, search, &a->view, 0);
	struct stored s = { .search = search, .wanted = rows < limit ? limit - rows : 0 };

	s.at = calloc(s.wanted + 1, sizeof(*s.at));
	if (!s.at) {
		api_no_memory(r);
		return;
	}
	buf_init(&s.text, HISTORY_BYTES);
	stored_search(&s, a);
	if (!s.text.err)
		write_history(a, r, &s, rows, limit);
	if (s.text.err || r->body.len > HISTORY_BYTES)
		reply_problem(r, 400, "too-many-workloads",
			      "Set limit to a smaller number, or since to a later time.",
			      "limit=%u: these workloads need more than %u MiB; limit=%u fits",
			      limit, HISTORY_BYTES >> 20, (s.found + rows) / 2);
	free(s.at);
	buf_done(&s.text);
}

void api_workloads_history(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct search s = { .name = request_param(q, "name") };
	uint64_t limit, since_ns;

	if (!has_workloads(a, r) || !read_kind(q, r, &s.kind) || !read_running(q, r, &s) ||
	    !api_time(a, q, r, "since", 0, &since_ns) ||
	    !api_number(q, r, "limit", HISTORY_STANDARD, HISTORY_MOST, &limit))
		return;
	s.since_ms = since_ns / NS_PER_MS;
	send_history(a, r, &s, (unsigned)limit);
}

static void write_gpus(struct json *j, const struct view *v, const struct model_row *row)
{
	json_array(j, "gpus");
	for (unsigned g = 0; g < v->models->gpus; g++) {
		const struct gw_device *d = NULL;

		if (!(row->joules[g] > 0))
			continue;
		for (unsigned i = 0; v->snap && i < v->devices && !d; i++) {
			const struct gw_device *x = gw_snapshot_device(v->snap, i);
			const char *uuid = gw_device_text(x, GW_T_UUID);

			d = uuid && strcmp(uuid, v->models->gpu[g]) == 0 ? x : NULL;
		}
		json_object(j, NULL);
		json_string(j, "uuid", v->models->gpu[g]);
		json_uint_if(j, "index", d != NULL, d ? d->index : 0);
		json_double(j, "joules", row->joules[g]);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_span(struct json *j, const char *key, const struct model_row *row,
		       const struct model_span *s)
{
	json_object(j, key);
	json_double(j, "seconds", s->seconds);
	json_double(j, "joules", s->joules);
	json_double(j, "generated_tokens", row->counted ? s->tokens : (double)NAN);
	json_double(j, "tokens_per_second",
		    row->counted && s->seconds > 0 ? s->tokens / s->seconds : (double)NAN);
	json_double(j, "joules_per_token", s->joules_per_token);
	json_string(j, "joules_per_token_absent", s->why);
	json_object_end(j);
}

/* Returns why the tokens of a row are unknown; NULL: they are known. */
static const char *tokens_absent(const struct model_energy *m, const struct model_row *row)
{
	const struct model_worker *w = model_energy_worker_of(m, row);

	if (row->counted)
		return NULL;
	if (!row->model[0])
		return "no model";
	return w && w->why[0] ? w->why : "the server's counters have not been read yet";
}

static void write_model(struct json *j, const struct view *v, const struct model_row *row)
{
	struct model_span span;

	json_object(j, NULL);
	json_string(j, "worker", row->worker);
	json_string(j, "model", row->model);
	json_bool(j, "loaded", row->listed && model_energy_worker_of(v->models, row));
	json_double(j, "prompt_tokens", row->counted ? row->tokens[MODEL_PROMPT] : (double)NAN);
	json_double(j, "generated_tokens",
		    row->counted ? row->tokens[MODEL_GENERATED] : (double)NAN);
	json_string(j, "tokens_absent", tokens_absent(v->models, row));
	json_double(j, "energy_joules", model_row_joules(row));
	json_string(j, "method", model_method_name(row->method));
	json_string(j, "energy_method", row->share);
	write_gpus(j, v, row);
	model_span_minute(row, &span);
	write_span(j, "last_minute", row, &span);
	model_span_start(row, &span);
	write_span(j, "since_start", row, &span);
	json_object_end(j);
}

static void write_worker(struct json *j, const struct view *v, const struct model_worker *w)
{
	const int i = v->guard ? policy_find_worker(v->guard->policy, w->name) : -1;

	json_object(j, NULL);
	json_string(j, "worker", w->name);
	json_string(j, "kind",
		    i < 0 ? NULL : policy_kind_name(v->guard->policy->worker[i].kind));
	json_double(j, "waiting_joules", model_worker_pending(w));
	json_string(j, "tokens_absent", w->why[0] ? w->why : NULL);
	json_object_end(j);
}

void api_models(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct model_energy *m = a->view.models;
	const struct model_row *row;
	struct json j;

	(void)q;
	if (!api_has_reading(a, r))
		return;
	api_begin(&j, a, r);
	json_array(&j, "models");
	for (unsigned i = 0; m && (row = model_energy_row(m, i)); i++)
		write_model(&j, &a->view, row);
	json_array_end(&j);
	json_array(&j, "workers");
	for (unsigned i = 0; m && i < m->workers; i++)
		if (m->worker[i].present)
			write_worker(&j, &a->view, &m->worker[i]);
	json_array_end(&j);
	api_end(&j);
}

/* Reads ?fits=40GiB. Returns false after an error reply. */
static bool read_fits(const struct request *q, struct reply *r, double *ret)
{
	const char *text = request_param(q, "fits");

	*ret = 0;
	if (!text || (unit_parse(text, unit_sizes, ret) && *ret >= 1 && isfinite(*ret)))
		return true;
	reply_problem(r, 400, "bad-parameter", "Write ?fits=40GiB, or a number of bytes.",
		      "fits=\"%.64s\" is not a size", text);
	return false;
}

/* True if the reply has to wait for Prometheus. */
static bool waits_for_fleet(const struct api *a, const struct request *q, struct reply *r,
			    const struct fleet_state *s)
{
	uint64_t waited_ns = q->tries * FLEET_WAIT_STEP_NS;

	if (!s->asking || waited_ns >= (s->fleet ? FLEET_WAIT_NEXT_NS : FLEET_WAIT_FIRST_NS))
		return false;
	reply_again(r, api_now(a) + FLEET_WAIT_STEP_NS);
	return true;
}

static void write_fleet(const struct api *a, struct reply *r, const struct fleet_state *s,
			double fits, unsigned gpus, unsigned top)
{
	struct json j;

	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_int(&j, "schema_version", RENDER_SCHEMA_VERSION);
	json_time(&j, "time_utc", clock_wall_ns(a->clock));
	json_bool(&j, "simulated", s->fleet->gpus_simulated > 0);
	json_double(&j, "age_seconds", (double)(api_now(a) - s->mono_ns) / 1e9);
	json_string(&j, "error", s->problem[0] ? s->problem : NULL);
	fleet_render(&j, s->fleet, top);
	if (fits > 0)
		fleet_render_fit(&j, s->fleet, fits, gpus, top);
	api_end(&j);
}

void api_fleet(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct fleet_state s;
	uint64_t top, gpus;
	double fits;

	if (!a->fleet) {
		reply_problem(
			r, 404, "not-configured",
			"Set prometheus = \"http://HOST:9090\" in the section [fleet] of the "
			"configuration, and reload the service.",
			"no Prometheus is configured, so this service knows only its own "
			"machine");
		return;
	}
	if (!read_fits(q, r, &fits) || !api_number(q, r, "gpus", 1, FLEET_GPUS_MOST, &gpus) ||
	    !api_number(q, r, "top", FLEET_TOP_STANDARD, FLEET_TOP_MOST, &top))
		return;
	a->fleet->look(a->fleet->arg, &s);
	if (waits_for_fleet(a, q, r, &s))
		return;
	if (!s.fleet) {
		reply_problem(r, 503, "no-answer", NULL, "%s",
			      s.problem[0] ? s.problem : "Prometheus has not answered yet");
		return;
	}
	if (fits > 0 && fleet_fit(s.fleet, fits, gpus ? (unsigned)gpus : 1) != 0) {
		api_no_memory(r);
		return;
	}
	write_fleet(a, r, &s, fits, gpus ? (unsigned)gpus : 1, (unsigned)top);
}
