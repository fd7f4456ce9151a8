#include "diff.h"

#include "diff_fields.h"

#include "base/array.h"
#include "base/json_doc.h"
#include "measure/stat.h"

#include <gpuward.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Figures without an interval count as equal if their relative difference is below this. */
#define NEAR 0.005

#define NONE ((size_t)-1)

/* One GPU: its position `a` in the runs of A and `b` in the runs of B (NONE: the runs do not
 * have this GPU), and the index to show. */
struct gpu {
	size_t a, b;
	int number;
};

struct pair {
	struct diff *d;
	const struct bundle_opened *a, *b;
	struct gpu *gpu;
	size_t gpus;
};

static const struct diff_value nothing = { NULL, NAN, NAN, NAN };
static const struct compare_change no_change = { .basis = COMPARE_NONE,
						 .ratio = NAN,
						 .change = NAN,
						 .change_low = NAN,
						 .change_high = NAN };

static struct diff_value number_of(double v)
{
	return (struct diff_value){ NULL, v, NAN, NAN };
}

static struct diff_value text_of(const char *text)
{
	return (struct diff_value){ text, NAN, NAN, NAN };
}

static bool value_known(const struct diff_value *v)
{
	return v->text || !isnan(v->number);
}

static bool value_equal(const struct diff_value *a, const struct diff_value *b,
			const struct diff_field *t)
{
	double apart = t->apart;

	if (a->text || b->text)
		return a->text && b->text && strcmp(a->text, b->text) == 0;
	if (t->share)
		apart *= fmax(fabs(a->number), fabs(b->number));
	/* Two sums of the same decimal numbers may differ in their last bit. Therefore the
	 * comparison allows a little more than the tolerance. */
	return fabs(a->number - b->number) <=
	       apart + 1e-12 * fmax(fabs(a->number), fabs(b->number));
}

static struct diff_row *diff_add(struct diff *d, enum diff_section section, int device,
				 const char *key, const char *title, const struct diff_value *a,
				 const struct diff_value *b, enum diff_state state)
{
	struct diff_row *row;

	if (array_reserve(&d->rows, &d->room, d->nrows + 1, sizeof(*d->rows)) != 0) {
		d->error = -GW_E_NOMEM;
		return NULL;
	}
	row = &d->rows[d->nrows++];
	*row = (struct diff_row){ .section = section,
				  .device = device,
				  .title = title,
				  .state = state,
				  .a = *a,
				  .b = *b,
				  .change = no_change };
	snprintf(row->key, sizeof(row->key), "%s", key);
	return row;
}

/* Adds a row.  Adds no row if the value is unknown in both documents. */
static void add_field(struct diff *d, enum diff_section section, int device, const char *key,
		      const struct diff_field *t, const struct diff_value *a,
		      const struct diff_value *b)
{
	enum diff_state state = STATE_UNKNOWN;

	if (!value_known(a) && !value_known(b))
		return;
	if (value_known(a) && value_known(b))
		state = value_equal(a, b, t) ? STATE_EQUAL : STATE_DIFFERS;
	diff_add(d, section, device, key, t->title, a, b, state);
}

static struct diff_value value_at(const struct json_doc *o, const char *path)
{
	if (json_doc_is_number(o, path))
		return number_of(json_doc_number(o, path));
	if (json_doc_type(o, path) == JSON_DOC_BOOL)
		return text_of(json_doc_true(o, path) ? "yes" : "no");
	return text_of(json_doc_string(o, path));
}

static const struct json_doc *run_of(const struct result_file *r, size_t run)
{
	return json_doc_at(result_file_document(r), "runs", run);
}

static const struct json_doc *device_of(const struct result_file *r, size_t run, size_t device)
{
	return json_doc_at(run_of(r, run), "devices", device);
}

static void add_fields(const struct pair *p, enum diff_section section, int device,
		       const struct diff_field *t, const struct json_doc *in_a,
		       const struct json_doc *in_b)
{
	for (; t->path; t++) {
		struct diff_value a = value_at(in_a, t->path), b = value_at(in_b, t->path);

		if (t->title)
			add_field(p->d, section, device, t->path, t, &a, &b);
	}
}

static void add_document(const struct pair *p, enum diff_section section,
			 const struct diff_field *t)
{
	static const char environment[] = "environment.", first_run[] = "runs.0.";

	for (; t->path; t++) {
		bool in_run = strncmp(t->path, first_run, strlen(first_run)) == 0;
		const char *key = t->path + (in_run ? strlen(first_run) : 0);
		const struct result_file *ra = &p->a->result, *rb = &p->b->result;
		struct diff_value a =
			value_at(in_run ? run_of(ra, 0) : result_file_document(ra), key);
		struct diff_value b =
			value_at(in_run ? run_of(rb, 0) : result_file_document(rb), key);

		if (strncmp(key, environment, strlen(environment)) == 0)
			key += strlen(environment);
		add_field(p->d, section, -1, key, t, &a, &b);
	}
}

static const char *fact(const struct result_facts *f, const char *key)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->v[i].key, key) == 0)
			return f->v[i].text;
	return NULL;
}

static void add_tag(const struct pair *p, const char *key)
{
	struct diff_value a = text_of(fact(&p->a->result.tags, key));
	struct diff_value b = text_of(fact(&p->b->result.tags, key));
	bool same = a.text && b.text && strcmp(a.text, b.text) == 0;
	char name[96];

	snprintf(name, sizeof(name), "tags.%s", key);
	diff_add(p->d, SECTION_SETTINGS, -1, name, key, &a, &b,
		 same ? STATE_EQUAL : STATE_DIFFERS);
}

static void add_tags(const struct pair *p)
{
	const struct result_facts *a = &p->a->result.tags, *b = &p->b->result.tags;

	for (size_t i = 0; i < a->n; i++)
		add_tag(p, a->v[i].key);
	for (size_t i = 0; i < b->n; i++)
		if (!fact(a, b->v[i].key))
			add_tag(p, b->v[i].key);
}

static const char *part_of(const struct result_file *r)
{
	if (!r->nruns)
		return NULL;
	return r->runs[0].part ? r->runs[0].part : "the whole run";
}

static void add_part(const struct pair *p)
{
	static const struct diff_field part = { "part", "what is measured", 0, false };
	struct diff_value a = text_of(part_of(&p->a->result));
	struct diff_value b = text_of(part_of(&p->b->result));

	add_field(p->d, SECTION_SETTINGS, -1, part.path, &part, &a, &b);
}

static void add_settings(const struct pair *p)
{
	static const struct diff_field runs = { "runs", "runs", 0, false },
				       interval = { "interval_seconds", "interval", 0, false };
	struct diff_value a = number_of((double)p->a->result.nruns);
	struct diff_value b = number_of((double)p->b->result.nruns);

	add_document(p, SECTION_SETTINGS, diff_fields_settings);
	add_part(p);
	add_tags(p);
	add_field(p->d, SECTION_SETTINGS, -1, runs.path, &runs, &a, &b);
	/* interval_s is 0 if the document has no samples, because only bundles record it. The
	 * intervals are compared only if both documents have one. */
	a = number_of(p->a->interval_s);
	b = number_of(p->b->interval_s);
	if (p->a->interval_s > 0 && p->b->interval_s > 0)
		add_field(p->d, SECTION_SETTINGS, -1, interval.path, &interval, &a, &b);
}

static size_t devices_of(const struct result_file *r)
{
	return r->nruns ? r->runs[0].ndevices : 0;
}

static size_t place_of(const struct result_file *r, const char *uuid)
{
	for (size_t i = 0; uuid && i < devices_of(r); i++)
		if (r->runs[0].devices[i].uuid && strcmp(r->runs[0].devices[i].uuid, uuid) == 0)
			return i;
	return NONE;
}

static double index_of(const struct result_file *r, size_t i)
{
	double index = i < devices_of(r) ? r->runs[0].devices[i].index : NAN;

	return index >= 0 && index < 1e6 ? index : (double)i;
}

static bool is_taken(const struct pair *p, size_t b)
{
	for (size_t i = 0; i < p->gpus; i++)
		if (p->gpu[i].b == b)
			return true;
	return false;
}

/* Pairs the GPUs of A and B. GPUs with the same UUID form a pair. The remaining GPUs are paired
 * in their order. */
static int pair_up(struct pair *p)
{
	const struct result_file *a = &p->a->result, *b = &p->b->result;
	size_t n = devices_of(a), m = devices_of(b), k = 0;

	p->gpu = calloc(n + m + 1, sizeof(*p->gpu));
	if (!p->gpu)
		return -GW_E_NOMEM;
	for (; p->gpus < n; p->gpus++)
		p->gpu[p->gpus] =
			(struct gpu){ p->gpus, place_of(b, a->runs[0].devices[p->gpus].uuid),
				      (int)index_of(a, p->gpus) };
	for (size_t i = 0; i < n; i++) {
		while (k < m && is_taken(p, k))
			k++;
		if (p->gpu[i].b == NONE && k < m)
			p->gpu[i].b = k;
	}
	for (k = 0; k < m; k++)
		if (!is_taken(p, k))
			p->gpu[p->gpus++] = (struct gpu){ NONE, k, (int)index_of(b, k) };
	return 0;
}

/* Returns the description of GPU i of the runs. It comes from the environment, where the GPU
 * may have another position. If there is no environment, it comes from the run, which has fewer
 * fields. */
static const struct json_doc *environment_of(const struct result_file *r, size_t i)
{
	const char *uuid = i < devices_of(r) ? r->runs[0].devices[i].uuid : NULL, *other;
	const struct json_doc *all =
		json_doc_get(result_file_document(r), "environment.devices");

	for (size_t k = 0; uuid && k < json_doc_count(all, ""); k++) {
		other = json_doc_string(json_doc_at(all, "", k), "uuid");
		if (other && strcmp(other, uuid) == 0)
			return json_doc_at(all, "", k);
	}
	return device_of(r, 0, i);
}

/* Returns the mean over the usable runs.  If a string differs between runs, returns a text that
 * says so. */
static struct diff_value over_runs(const struct result_file *r, size_t device, const char *path,
				   bool per_second)
{
	struct diff_value ret = nothing;
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < r->nruns; i++) {
		struct diff_value v = value_at(device_of(r, i, device), path);

		if (!result_run_usable(&r->runs[i]) && r->nruns > 1)
			continue;
		if (v.text)
			ret.text = ret.text && strcmp(ret.text, v.text) != 0
					   ? "not the same in all runs"
					   : v.text;
		if (isnan(v.number))
			continue;
		sum += per_second ? v.number / r->runs[i].seconds : v.number;
		n++;
	}
	if (n && !ret.text)
		ret.number = sum / (double)n;
	return ret;
}

static void add_over_runs(const struct pair *p, const struct gpu *g, const struct diff_field *t,
			  bool per_second)
{
	char key[96];

	for (; t->path; t++) {
		struct diff_value a, b;
		size_t n = strlen(t->path);

		if (!t->title)
			continue;
		a = over_runs(&p->a->result, g->a, t->path, per_second);
		b = over_runs(&p->b->result, g->b, t->path, per_second);
		snprintf(key, sizeof(key), "%s", t->path);
		/* The value is now a share of the run's time, so the key ends with "_ratio"
		 * instead of "_seconds". */
		if (per_second && n > 8)
			snprintf(key + n - 8, sizeof(key) - n + 8, "_ratio");
		add_field(p->d, SECTION_FIGURES, g->number, key, t, &a, &b);
	}
}

static bool is_process(const char *name)
{
	return name && strcmp(name, "idle") != 0 && strcmp(name, "unattributed") != 0;
}

/* Returns the energy of the processes with this name, as a mean over the runs; NAN if there was
 * no such process. */
static double joules_of(const struct result_file *r, size_t device, const char *name)
{
	double sum = 0;
	bool found = false;

	for (size_t i = 0; i < r->nruns; i++) {
		const struct json_doc *list =
			json_doc_get(device_of(r, i, device), "processes");

		for (size_t k = 0; k < json_doc_count(list, ""); k++) {
			const struct json_doc *e = json_doc_at(list, "", k);
			const char *own = json_doc_string(e, "name");

			if (!own || strcmp(own, name) != 0)
				continue;
			if (json_doc_is_number(e, "joules"))
				sum += json_doc_number(e, "joules");
			found = true;
		}
	}
	return found ? sum / (double)r->nruns : NAN;
}

static bool has_row(const struct diff *d, enum diff_section section, int device,
		    const char *title)
{
	for (size_t i = 0; i < d->nrows; i++)
		if (d->rows[i].section == section && d->rows[i].device == device &&
		    strcmp(d->rows[i].title, title) == 0)
			return true;
	return false;
}

static void add_process(const struct pair *p, const struct gpu *g, const char *name)
{
	static const struct diff_field joules = { "joules", "joules", 0.05, true };
	struct diff_value a, b;
	char key[96];
	bool same;

	/* Check this first: the sums over all runs take time. */
	if (has_row(p->d, SECTION_PROCESSES, g->number, name))
		return;
	a = number_of(joules_of(&p->a->result, g->a, name));
	b = number_of(joules_of(&p->b->result, g->b, name));
	same = value_known(&a) && value_known(&b) && value_equal(&a, &b, &joules);
	snprintf(key, sizeof(key), "processes.%.70s_joules", name);
	diff_add(p->d, SECTION_PROCESSES, g->number, key, name, &a, &b,
		 same ? STATE_EQUAL : STATE_DIFFERS);
}

static void add_processes_of(const struct pair *p, const struct gpu *g,
			     const struct result_file *r, size_t place)
{
	for (size_t i = 0; i < r->nruns; i++) {
		const struct json_doc *list = json_doc_get(device_of(r, i, place), "processes");

		for (size_t k = 0; k < json_doc_count(list, ""); k++) {
			const char *name = json_doc_string(json_doc_at(list, "", k), "name");

			if (is_process(name))
				add_process(p, g, name);
		}
	}
}

static void add_gpu(const struct pair *p, const struct gpu *g)
{
	const struct result_file *a = &p->a->result, *b = &p->b->result;

	add_fields(p, SECTION_GPU, g->number, diff_fields_gpu, environment_of(a, g->a),
		   environment_of(b, g->b));
	add_fields(p, SECTION_SENSOR, g->number, diff_fields_sensor,
		   json_doc_get(device_of(a, 0, g->a), "sensor"),
		   json_doc_get(device_of(b, 0, g->b), "sensor"));
	add_over_runs(p, g, diff_fields_figures, false);
	add_over_runs(p, g, diff_fields_throttles, true);
	add_processes_of(p, g, a, g->a);
	add_processes_of(p, g, b, g->b);
}

static const struct result_code *code_in(const struct result_file *r, const char *code,
					 double device)
{
	for (size_t i = 0; i < r->nruns; i++)
		for (size_t k = 0; k < r->runs[i].ncodes; k++) {
			const struct result_code *c = &r->runs[i].codes[k];

			if (c->code && strcmp(c->code, code) == 0 &&
			    (c->device == device || (isnan(c->device) && isnan(device))))
				return c;
		}
	return NULL;
}

static struct diff_value code_value(const struct result_code *c)
{
	if (!c)
		return nothing;
	return text_of(c->evidence ? c->evidence : c->sentence ? c->sentence : c->code);
}

static void add_code(const struct pair *p, const struct gpu *g, const char *code)
{
	double of_a = g ? index_of(&p->a->result, g->a) : NAN;
	double of_b = g ? index_of(&p->b->result, g->b) : NAN;
	const struct result_code *a = code_in(&p->a->result, code, of_a);
	const struct result_code *b = code_in(&p->b->result, code, of_b);
	struct diff_value va = code_value(a), vb = code_value(b);
	int number = g ? g->number : -1;

	if ((a || b) && !has_row(p->d, SECTION_CODES, number, code))
		diff_add(p->d, SECTION_CODES, number, code, code, &va, &vb,
			 a && b ? STATE_EQUAL : STATE_DIFFERS);
}

/* Adds one row per code of the whole run, and one row per GPU and code. */
static void add_codes_of(const struct pair *p, const struct result_file *r)
{
	for (size_t i = 0; i < r->nruns; i++)
		for (size_t k = 0; k < r->runs[i].ncodes; k++) {
			const char *code = r->runs[i].codes[k].code;

			if (!code)
				continue;
			add_code(p, NULL, code);
			for (size_t g = 0; g < p->gpus; g++)
				add_code(p, &p->gpu[g], code);
		}
}

static enum diff_state diff_judge(const struct compare_change *c)
{
	static const enum diff_state states[] = {
		[COMPARE_LESS] = STATE_DIFFERS,
		[COMPARE_MORE] = STATE_DIFFERS,
		[COMPARE_OPEN] = STATE_OPEN,
		[COMPARE_UNKNOWN] = STATE_OPEN,
	};

	if (isnan(c->change))
		return STATE_UNKNOWN;
	if (c->change == 0 || (isnan(c->change_low) && fabs(c->change) <= NEAR))
		return STATE_EQUAL;
	return states[compare_verdict(c)];
}

static void add_headline(struct diff *d, const char *key, const char *title,
			 const struct diff_value *a, const struct diff_value *b,
			 const struct compare_change *change)
{
	struct diff_row *row =
		diff_add(d, SECTION_FIGURES, -1, key, title, a, b, diff_judge(change));

	if (!row)
		return;
	row->change = *change;
	row->headline = true;
}

/* Returns the value of one run. It is shown, but not compared, if all runs are invalid. */
static struct diff_value spoilt_value(const struct result_run *run, enum comparison_metric m,
				      bool each)
{
	const struct gw_interval energy =
		each ? run->figures.energy_per_iteration_j : run->figures.energy_j;

	switch (m) {
	case METRIC_TIME: return number_of(each ? run->figures.latency_s : run->seconds);
	case METRIC_POWER: return number_of(run->figures.power_mean_w);
	case METRIC_ENERGY:
		return (struct diff_value){ NULL, energy.best, energy.low, energy.high };
	default: return nothing;
	}
}

static const struct comparison_row *row_named(const struct comparison *c, const char *name)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (strcmp(c->rows[i].name, name) == 0)
			return &c->rows[i];
	return NULL;
}

static struct diff_value figure_value(const struct comparison_row *row,
				      enum comparison_metric m, bool each)
{
	const struct comparison_figure *f;

	if (!row)
		return nothing;
	if (row->nruns && !row->used)
		return spoilt_value(row->runs[0].run, m, each);
	f = &row->figure[m];
	return (struct diff_value){ NULL, f->mean, f->low, f->high };
}

static void add_figure(struct diff *d, const struct comparison *c, enum comparison_metric m,
		       const char *key, const char *title)
{
	const struct comparison_row *row_a = row_named(c, "A"), *row_b = row_named(c, "B");
	struct diff_value a = figure_value(row_a, m, c->per_iteration),
			  b = figure_value(row_b, m, c->per_iteration);
	struct compare_change change =
		row_b && row_b != c->reference ? row_b->figure[m].change : no_change;

	if (value_known(&a) || value_known(&b) || m == METRIC_ENERGY)
		add_headline(d, key, title, &a, &b, &change);
}

/* Adds the net energy per run. A result does not state it per iteration. */
static int add_net(struct diff *d)
{
	struct comparison whole;

	if (comparison_init(&whole, d->both, 2, NULL, true) != 0)
		return -GW_E_NOMEM;
	add_figure(d, &whole, METRIC_NET, "energy_net_joules", "Net per run");
	comparison_done(&whole);
	return 0;
}

static int add_figures(const struct pair *p)
{
	struct diff *d = p->d;
	const struct comparison *c = &d->comparison;
	bool each;
	int err;

	d->both[0] = p->a->result;
	d->both[1] = p->b->result;
	/* Set the labels to A and B, because both results may have the same label. */
	d->both[0].label = "A";
	d->both[1].label = "B";
	if (comparison_init(&d->comparison, d->both, 2, NULL, false) != 0)
		return -GW_E_NOMEM;
	d->a = row_named(&d->comparison, "A");
	d->b = row_named(&d->comparison, "B");
	d->other_gpu = d->a && d->b && (d->a->other_gpu || d->b->other_gpu);
	d->other_scale = d->a && d->b && (d->a->other_scale || d->b->other_scale);
	each = d->comparison.per_iteration;
	/* Keep the titles short, so that a table does not cut them. */
	add_figure(d, c, METRIC_ENERGY, each ? "energy_per_iteration_joules" : "energy_joules",
		   each ? "Per iteration" : "Energy per run");
	err = add_net(d);
	add_figure(d, c, METRIC_TIME, each ? "latency_seconds" : "seconds",
		   comparison_title(c, METRIC_TIME));
	add_figure(d, c, METRIC_POWER, "power_mean_watts", "Power");
	add_figure(d, c, METRIC_TOKEN, "energy_per_token_joules", "Per token");
	return err;
}

static bool after(const struct diff_row *x, const struct diff_row *y)
{
	return x->section != y->section ? x->section > y->section : x->device > y->device;
}

/* Sorts the rows by section and GPU. Rows with the same section and GPU must keep their order,
 * which qsort() alone does not guarantee. */
static void diff_order(struct diff *d)
{
	for (size_t i = 1; i < d->nrows; i++) {
		struct diff_row row = d->rows[i];
		size_t k = i;

		for (; k > 0 && after(&d->rows[k - 1], &row); k--)
			d->rows[k] = d->rows[k - 1];
		d->rows[k] = row;
	}
}

int diff_init(struct diff *d, const struct bundle_opened *a, const struct bundle_opened *b)
{
	struct pair p = { d, a, b, NULL, 0 };
	int err = pair_up(&p);

	*d = (struct diff){ .rows = NULL };
	d->error = add_figures(&p);
	d->error = d->error ? d->error : err;
	add_codes_of(&p, &a->result);
	add_codes_of(&p, &b->result);
	add_settings(&p);
	add_document(&p, SECTION_ENVIRONMENT, diff_fields_environment);
	for (size_t i = 0; i < p.gpus; i++)
		add_gpu(&p, &p.gpu[i]);
	free(p.gpu);
	diff_order(d);
	for (size_t i = 0; i < d->nrows; i++)
		d->count[d->rows[i].state]++;
	if (d->error)
		diff_done(d);
	return d->error;
}

void diff_done(struct diff *d)
{
	comparison_done(&d->comparison);
	free(d->rows);
	d->rows = NULL;
}
