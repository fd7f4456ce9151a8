#include "fleet_parts.h"
#include "render.h"

#include "base/json_doc.h"
#include "base/number.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct fleet_query_info fleet_queries[FLEET_QUERIES] = {
#define Q(symbol, key, promql, text) { key, promql, text },
#include "fleet_query.def"
#undef Q
};

const struct fleet_cause fleet_causes[FLEET_CAUSES] = {
#define A(word, rank, promql, what, remedy) { #word, rank, promql, what, remedy },
#include "fleet_query.def"
#undef A
};

/* Writes a text for use inside PromQL quotes, with escapes. */
static void add_quoted(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if (*s == '\\' || *s == '"')
			buf_addc(out, '\\');
		if (*s == '\n')
			buf_adds(out, "\\n");
		else
			buf_addc(out, *s);
	}
}

static void add_matchers(struct buf *out, const struct fleet_question *x, const char *job)
{
	if (job) {
		buf_adds(out, "job=~\"");
		add_quoted(out, job);
		buf_adds(out, "\",");
	}
	if (x->node) {
		buf_adds(out, "instance=~\".*(?:");
		add_quoted(out, x->node);
		buf_adds(out, ").*\",");
	}
}

static unsigned rows_kept(enum fleet_query q, const struct fleet_question *x)
{
	switch (q) {
	case FLEET_Q_CAPACITY: return FLEET_GPUS_MAX;
	/* One row more than the table shows, to detect that there are more rows. */
	case FLEET_Q_ATTENTION: return x->top + 1;
	/* Two rows more, because the answer also has the rows "idle" and "unattributed". */
	case FLEET_Q_WORKLOADS: return x->top + 2;
	default: return x->top;
	}
}

static void write_template(struct buf *out, const char *t, enum fleet_query q,
			   const struct fleet_question *x)
{
	for (; *t; t++) {
		if (*t != '$') {
			buf_addc(out, *t);
			continue;
		}
		switch (*++t) {
		case 'S': add_matchers(out, x, x->job); break;
		case 'J': add_matchers(out, x, x->job ? x->job : FLEET_JOB); break;
		case 'R': buf_addf(out, "%llus", (unsigned long long)x->range_s); break;
		case 'K': buf_addf(out, "%u", rows_kept(q, x)); break;
		case 'B': buf_addf(out, "%.0f", x->fits_bytes); break;
		case 'A':
			for (size_t i = 0; i < FLEET_CAUSES; i++) {
				buf_addf(out, "%slabel_replace((", i ? " or " : "");
				write_template(out, fleet_causes[i].promql, q, x);
				buf_addf(out, ") * 0 + %d, \"reason\", \"%s\", \"\", \"\")",
					 fleet_causes[i].rank, fleet_causes[i].word);
			}
			break;
		}
	}
}

void fleet_query_write(struct buf *out, enum fleet_query q, const struct fleet_question *x)
{
	write_template(out, fleet_queries[q].promql, q, x);
}

struct fleet *fleet_new(const char *url, const struct fleet_question *x)
{
	struct fleet *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->question = *x;
	f->clock_ahead_s = NAN;
	snprintf(f->url, sizeof(f->url), "%s", url);
	snprintf(f->job, sizeof(f->job), "%s", x->job ? x->job : "");
	snprintf(f->node_filter, sizeof(f->node_filter), "%s", x->node ? x->node : "");
	f->question.job = x->job ? f->job : NULL;
	f->question.node = x->node ? f->node_filter : NULL;
	return f;
}

void fleet_free(struct fleet *f)
{
	if (!f)
		return;
	for (unsigned q = 0; q < FLEET_QUERIES; q++)
		json_doc_free(f->answer[q].doc);
	free(f->node);
	free(f->attention);
	free(f->workload);
	free(f->model);
	free(f->gpu);
	free(f->place);
	free(f);
}

void fleet_fail(struct fleet *f, enum fleet_query q, const char *problem)
{
	struct fleet_answer *a = &f->answer[q];

	json_doc_free(a->doc);
	a->doc = NULL;
	utf8_clean(a->problem, sizeof(a->problem), problem);
}

void fleet_take(struct fleet *f, enum fleet_query q, const char *text, size_t n)
{
	struct fleet_answer *a = &f->answer[q];
	char why[200], problem[400], begin[40];
	const char *s;

	json_doc_free(a->doc);
	a->doc = NULL;
	a->problem[0] = '\0';
	if (json_doc_new(text, n, &a->doc, why, sizeof(why)) == -GW_E_NOSUPPORT) {
		fleet_fail(f, q, why);
		return;
	}
	s = a->doc ? json_doc_string(a->doc, "status") : NULL;
	if (!a->doc || !s) {
		utf8_clean(begin, sizeof(begin), n ? text : "(nothing)");
		snprintf(problem, sizeof(problem),
			 "the answer is not from Prometheus; it begins with \"%s\": check that "
			 "the address is not that of a web page or a proxy",
			 begin);
		fleet_fail(f, q, problem);
	} else if (strcmp(s, "success") != 0) {
		s = json_doc_string(a->doc, "error");
		snprintf(problem, sizeof(problem), "%s",
			 s && *s ? s : "Prometheus reports an error without a reason");
		fleet_fail(f, q, problem);
	} else if (json_doc_type(a->doc, "data.result") != JSON_DOC_ARRAY) {
		fleet_fail(f, q,
			   "the answer has no data.result, which Prometheus sends at "
			   "/api/v1/query: check the address");
	}
}

size_t fleet_rows(const struct fleet *f, enum fleet_query q)
{
	return f->answer[q].doc ? json_doc_count(f->answer[q].doc, "data.result") : 0;
}

/* A larger value cannot be right and is refused. With these bounds, the sums over all nodes
 * stay exact enough and can be converted to integers. */
#define COUNT_MOST 1e6
#define VALUE_MOST 1e16 /* joules, bytes or tokens */
#define TIME_MOST  1e11 /* seconds */

static double value_most(enum fleet_query q, const struct fleet_row *r)
{
	const char *name = fleet_row_label(r, "__name__");

	switch (q) {
	case FLEET_Q_TARGETS:
	case FLEET_Q_DOWN:
	case FLEET_Q_SIMULATED:
	case FLEET_Q_IDLE: return COUNT_MOST;
	case FLEET_Q_AGE: return TIME_MOST;
	case FLEET_Q_UTILIZATION: return 1.01; /* rounded */
	case FLEET_Q_NOW:
		return strstr(name, "_watts") || strstr(name, "_bytes") ? VALUE_MOST
									: COUNT_MOST;
	default: return VALUE_MOST;
	}
}

bool fleet_row_read(const struct fleet *f, enum fleet_query q, size_t i, struct fleet_row *ret)
{
	const struct json_doc *r = json_doc_at(f->answer[q].doc, "data.result", i);
	const char *text, *end;
	double most;

	ret->labels = json_doc_get(r, "metric");
	text = json_doc_count(r, "value") == 2 ? json_doc_string(json_doc_at(r, "value", 1), "")
					       : NULL;
	if (!text || !ret->labels)
		return false;
	ret->time_s = json_doc_number(json_doc_at(r, "value", 0), "");
	ret->value = number_parse(text, &end);
	most = value_most(q, ret);
	return end != text && *end == '\0' && ret->value <= most &&
	       ret->value >= (q == FLEET_Q_AGE ? -most : 0);
}

const char *fleet_row_label(const struct fleet_row *r, const char *key)
{
	const char *s = json_doc_string(r->labels, key);

	return s ? s : "";
}

static void read_clock(struct fleet *f)
{
	struct fleet_row r;

	for (unsigned q = 0; q < FLEET_QUERIES && isnan(f->clock_ahead_s); q++)
		if (fleet_rows(f, q) && fleet_row_read(f, q, 0, &r) && r.time_s > 0 &&
		    r.time_s < TIME_MOST)
			f->clock_ahead_s = r.time_s - (double)f->wall_ns / 1e9;
}

static void count_simulated(struct fleet *f)
{
	struct fleet_row r;

	for (size_t i = 0; i < fleet_rows(f, FLEET_Q_SIMULATED); i++)
		if (fleet_row_read(f, FLEET_Q_SIMULATED, i, &r))
			*(strcmp(fleet_row_label(&r, "simulated"), "true") == 0
				  ? &f->gpus_simulated
				  : &f->gpus_real) += r.value;
}

static void count_refused(struct fleet *f)
{
	struct fleet_row r;

	for (unsigned q = 0; q < FLEET_QUERIES; q++)
		for (size_t i = 0; i < fleet_rows(f, q); i++)
			f->refused += !fleet_row_read(f, q, i, &r);
}

int fleet_make(struct fleet *f, uint64_t wall_ns)
{
	int err;

	f->wall_ns = wall_ns;
	read_clock(f);
	count_refused(f);
	count_simulated(f);
	err = fleet_make_nodes(f);
	if (!err)
		err = fleet_make_attention(f);
	if (!err)
		err = fleet_make_workloads(f);
	if (!err)
		err = fleet_make_models(f);
	return err ? err : fleet_make_gpus(f);
}

/* seconds; a difference of the clocks that is smaller than this is not reported */
#define CLOCK_S 30

const char *fleet_node_state_word(enum fleet_node_state s)
{
	static const char *const words[] = {
		[FLEET_NODE_OK] = "ok",       [FLEET_NODE_DOWN] = "down",
		[FLEET_NODE_GONE] = "gone",   [FLEET_NODE_STALE] = "stale",
		[FLEET_NODE_AHEAD] = "ahead",
	};

	return words[s];
}

const char *fleet_rest_text(const char *kind)
{
	if (strcmp(kind, "idle") == 0)
		return "GPUs without a process";
	if (strcmp(kind, "unattributed") == 0)
		return "no process can be charged";
	return "no workload";
}

static bool remark_values(const struct fleet *f, char *out, size_t size)
{
	if (!f->refused)
		return false;
	snprintf(out, size,
		 "%u value%s of Prometheus cannot be right (negative, too large or not a "
		 "number) and count%s as unknown: check what else sends metrics named "
		 "gpuward_... to Prometheus.",
		 f->refused, f->refused == 1 ? "" : "s", f->refused == 1 ? "s" : "");
	return true;
}

bool fleet_is_empty(const struct fleet *f, char *why, size_t size)
{
	const char *job = f->question.job ? f->question.job : FLEET_JOB;

	if (f->nodes)
		return false;
	for (unsigned q = 0; q < FLEET_QUERIES; q++)
		if (!f->answer[q].doc) {
			snprintf(why, size, "Prometheus at %s: %s", f->url,
				 f->answer[q].problem);
			return true;
		}
	if (remark_values(f, why, size))
		return true;
	if (f->question.node || f->question.job)
		snprintf(why, size,
			 "Prometheus at %s has no metric gpuward_up with a job that matches "
			 "%s%s%s: check %s",
			 f->url, job, f->question.node ? " and a node that matches " : "",
			 f->question.node ? f->question.node : "",
			 f->question.node ? "--job and --node" : "--job, or job in [fleet]");
	else
		snprintf(why, size,
			 "Prometheus at %s has no metric gpuward_up: add a scrape_config "
			 "(docs/FLEET.md has one), or let the nodes send their metrics with "
			 "[push]",
			 f->url);
	return true;
}

static bool remark_clock(const struct fleet *f, char *out, size_t size)
{
	if (!(fabs(f->clock_ahead_s) > CLOCK_S))
		return false;
	snprintf(out, size,
		 "The clock of Prometheus is %.0f s %s the clock of this machine: check both "
		 "with timedatectl.",
		 fabs(f->clock_ahead_s), f->clock_ahead_s > 0 ? "ahead of" : "behind");
	return true;
}

static bool remark_doubled(const struct fleet *f, char *out, size_t size)
{
	if (!f->doubled)
		return false;
	snprintf(out, size,
		 "%u GPU%s counted twice, because two nodes have the same UUID. Perhaps one "
		 "machine is pushed and scraped, or scraped under two addresses; select one "
		 "with --job or --node.%s",
		 f->doubled, f->doubled == 1 ? " is" : "s are",
		 f->gpus_simulated > 0 ? " Simulated machines can have the same UUIDs although "
					 "they are different machines."
				       : "");
	return true;
}

static bool remark_refused(const struct fleet *f, char *out, size_t size)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->nodes; i++)
		n += f->node[i].energy_refused;
	if (!n)
		return false;
	snprintf(out, size,
		 "The energy of %u node%s is left out: it is more than the power limits allow, "
		 "so a counter must have decreased, perhaps because an old database was "
		 "restored.",
		 n, n == 1 ? "" : "s");
	return true;
}

static bool remark_warning(const struct fleet *f, char *out, size_t size)
{
	char text[300];

	for (unsigned q = 0; q < FLEET_QUERIES; q++) {
		const struct json_doc *d = f->answer[q].doc;

		if (!d)
			continue;
		if (json_doc_count(d, "warnings") > 0) {
			const char *s = json_doc_string(json_doc_at(d, "warnings", 0), "");

			utf8_clean(text, sizeof(text), s ? s : "without a reason");
			snprintf(out, size,
				 "Prometheus warns that its answer may be incomplete: %s",
				 text);
			return true;
		}
		if (json_doc_true(d, "isPartial")) {
			snprintf(out, size,
				 "Prometheus says that its answer is incomplete, "
				 "because a part of its storage did not answer.");
			return true;
		}
	}
	return false;
}

bool fleet_remark(const struct fleet *f, unsigned i, char *out, size_t size)
{
	static bool (*const remark[])(const struct fleet *, char *,
				      size_t) = { remark_clock, remark_doubled, remark_values,
						  remark_refused, remark_warning };

	for (unsigned k = 0; k < sizeof(remark) / sizeof(remark[0]); k++)
		if (remark[k](f, out, size) && i-- == 0)
			return true;
	return false;
}

static void write_count(struct json *j, const char *key, double v)
{
	json_uint_if(j, key, !isnan(v) && v >= 0, v >= 0 ? (uint64_t)(v + 0.5) : 0);
}

static void write_place(struct json *j, const char *cluster, const char *instance)
{
	render_text(j, "cluster", cluster);
	json_string(j, "node", instance);
}

static void write_total(struct json *j, const struct fleet *f)
{
	const struct fleet_total *t = &f->total;

	json_object(j, "total");
	json_uint(j, "nodes", t->nodes);
	json_uint(j, "nodes_up", t->nodes_up);
	json_uint(j, "nodes_down", t->nodes_down);
	json_uint(j, "nodes_gone", t->nodes_gone);
	json_uint(j, "nodes_stale", t->nodes_stale);
	write_count(j, "gpus", t->gpus);
	write_count(j, "gpus_up", t->gpus_up);
	write_count(j, "gpus_down", t->gpus_down);
	json_double(j, "power_watts", t->power_w);
	json_uint(j, "power_nodes", t->power_nodes);
	json_double(j, "energy_joules", t->energy_j);
	json_uint(j, "energy_nodes", t->energy_nodes);
	json_double(j, "utilization_ratio", t->utilization);
	json_double(j, "memory_used_bytes", t->memory_used);
	json_double(j, "memory_total_bytes", t->memory_total);
	write_count(j, "idle_held_gpus", t->idle_gpus);
	json_double(j, "idle_held_watts", t->idle_w);
	json_object_end(j);
}

static void write_node(struct json *j, const struct fleet_node *n)
{
	json_object(j, NULL);
	write_place(j, n->cluster, n->instance);
	json_string(j, "state", fleet_node_state_word(fleet_node_state(n)));
	json_double(j, "age_seconds", n->age_s);
	write_count(j, "gpus", n->gpus);
	write_count(j, "gpus_up", n->gpus_up);
	write_count(j, "gpus_down", n->gpus_down);
	json_double(j, "power_watts", n->power_w);
	json_double(j, "energy_joules", n->energy_j);
	json_string(j, "energy_problem",
		    n->energy_refused ? "more than the power limits allow" : NULL);
	json_double(j, "utilization_ratio", n->utilization);
	json_double(j, "memory_used_bytes", n->memory_used);
	json_double(j, "memory_total_bytes", n->memory_total);
	write_count(j, "idle_held_gpus", n->idle_gpus);
	json_double(j, "idle_held_watts", n->idle_w);
	json_object_end(j);
}

static void write_attention(struct json *j, const struct fleet_attention *a)
{
	json_object(j, NULL);
	write_place(j, a->cluster, a->instance);
	render_text(j, "gpu", a->gpu);
	render_text(j, "uuid", a->uuid);
	json_string(j, "reason", a->reason);
	render_text(j, "state", a->state);
	json_string(j, "what", a->what);
	json_string(j, "remedy", a->remedy);
	json_uint(j, "more_reasons", a->more);
	json_double(j, "age_seconds", a->age_s);
	json_object_end(j);
}

static void write_workload(struct json *j, const struct fleet_workload *w)
{
	json_object(j, NULL);
	json_string(j, "kind", w->kind);
	render_text(j, "namespace", w->space);
	render_text(j, "name", w->name);
	json_double(j, "energy_joules", w->energy_j);
	json_double(j, "share_ratio", w->share);
	json_object_end(j);
}

static void write_model(struct json *j, const struct fleet_model *m)
{
	json_object(j, NULL);
	json_string(j, "model", m->model);
	json_double(j, "energy_joules", m->energy_j);
	json_double(j, "tokens_prompt", m->tokens_prompt);
	json_double(j, "tokens_generated", m->tokens_generated);
	json_double(j, "joules_per_token", m->joules_per_token);
	json_object_end(j);
}

static void write_remarks(struct json *j, const struct fleet *f)
{
	char text[600];

	json_array(j, "remarks");
	for (unsigned i = 0; fleet_remark(f, i, text, sizeof(text)); i++)
		json_string(j, NULL, text);
	json_array_end(j);
	json_array(j, "problems");
	for (unsigned q = 0; q < FLEET_QUERIES; q++) {
		if (f->answer[q].doc)
			continue;
		json_object(j, NULL);
		json_string(j, "query", fleet_queries[q].key);
		json_string(j, "detail", f->answer[q].problem);
		json_object_end(j);
	}
	json_array_end(j);
}

void fleet_render(struct json *j, const struct fleet *f, unsigned top)
{
	json_string(j, "prometheus", f->url);
	json_time(j, "asked_utc", f->wall_ns);
	json_uint(j, "range_seconds", f->question.range_s);
	json_double(j, "engine_clock_ahead_seconds", f->clock_ahead_s);
	write_count(j, "gpus_simulated", f->gpus_simulated);
	write_count(j, "gpus_real", f->gpus_real);
	write_remarks(j, f);
	write_total(j, f);
	json_array(j, "attention");
	for (unsigned i = 0; i < f->attentions && i < top; i++)
		write_attention(j, &f->attention[i]);
	json_array_end(j);
	json_bool(j, "attention_more", f->attention_cut || f->attentions > top);
	json_array(j, "nodes");
	for (unsigned i = 0; i < f->nodes; i++)
		write_node(j, &f->node[i]);
	json_array_end(j);
	json_array(j, "workloads");
	for (unsigned i = 0; i < f->workloads; i++)
		write_workload(j, &f->workload[i]);
	json_array_end(j);
	json_array(j, "models");
	for (unsigned i = 0; i < f->models && i < top; i++)
		write_model(j, &f->model[i]);
	json_array_end(j);
}

void fleet_render_fit(struct json *j, const struct fleet *f, double bytes, unsigned gpus,
		      unsigned top)
{
	json_object(j, "fits");
	json_double(j, "bytes", bytes);
	json_uint(j, "gpus", gpus);
	json_uint(j, "nodes", f->places);
	json_array(j, "places");
	for (unsigned i = 0; i < f->places && i < top; i++) {
		const struct fleet_place *p = &f->place[i];

		json_object(j, NULL);
		write_place(j, p->cluster, p->instance);
		json_uint(j, "gpus_with_room", p->gpus);
		json_array(j, "gpus");
		for (unsigned k = 0; k < p->count; k++) {
			const struct fleet_gpu *g = &f->gpu[p->first + k];

			json_object(j, NULL);
			json_string(j, "gpu", g->gpu);
			json_string(j, "uuid", g->uuid);
			json_double(j, "available_bytes", g->available_bytes);
			json_object_end(j);
		}
		json_array_end(j);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}
