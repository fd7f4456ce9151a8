#include "fleet_parts.h"

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

/* ---- queries ---- */

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
	case FLEET_Q_ATTENTION: return x->top + 1; /* one more, to detect a cut list */
	case FLEET_Q_WORKLOADS: return x->top + 2; /* plus the rows "idle" and "unattributed" */
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

/* ---- answers ---- */

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

bool fleet_row_read(const struct fleet *f, enum fleet_query q, size_t i, struct fleet_row *ret)
{
	const struct json_doc *r = json_doc_at(f->answer[q].doc, "data.result", i);
	const char *text, *end;

	ret->labels = json_doc_get(r, "metric");
	text = json_doc_count(r, "value") == 2 ? json_doc_string(json_doc_at(r, "value", 1), "")
					       : NULL;
	if (!text || !ret->labels)
		return false;
	ret->time_s = json_doc_number(json_doc_at(r, "value", 0), "");
	ret->value = number_parse(text, &end);
	return end != text && *end == '\0' && isfinite(ret->value);
}

const char *fleet_row_label(const struct fleet_row *r, const char *key)
{
	const char *s = json_doc_string(r->labels, key);

	return s ? s : "";
}

/* ---- the whole ---- */

static void read_clock(struct fleet *f)
{
	struct fleet_row r;

	for (unsigned q = 0; q < FLEET_QUERIES && isnan(f->clock_ahead_s); q++)
		if (fleet_rows(f, q) && fleet_row_read(f, q, 0, &r) && r.time_s > 0)
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

int fleet_make(struct fleet *f, uint64_t wall_ns)
{
	int err;

	f->wall_ns = wall_ns;
	read_clock(f);
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
