#include "workload_doc.h"

#include "render.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_VERSION 1

bool workload_doc_is_first(const struct workload_energy *e, unsigned row)
{
	for (unsigned i = 0; i < row; i++)
		if (workload_row_same(&e->row[i], &e->row[row]))
			return false;
	return true;
}

/* Writes the figures of a workload on one GPU, or the sums of these figures over all GPUs. */
static void write_figures(struct json *j, const struct workload_row *r)
{
	const double high_j = r->alone_joules + r->shared_joules;
	const bool alone = high_j <= r->joules * (1 + 1e-9), runs = r->processes > 0;
	/* An ended workload has no current figures. */
	const enum gw_absence now = runs ? GW_ABSENT_NO_DATA : GW_ABSENT_NOT_PRESENT;
	const enum gw_absence energy = r->charged ? GW_HAVE : r->absence;
	const struct {
		const char *key;
		double v;
		enum gw_absence why; /* The reason, if v is unknown. */
	} row[] = {
		{ "memory_bytes", runs ? r->memory_bytes : (double)NAN, now },
		{ "memory_peak_bytes", r->memory_peak_bytes, GW_ABSENT_NO_DATA },
		{ "utilization_sm_ratio", runs ? r->sm_ratio : (double)NAN,
		  runs ? GW_ABSENT_NOT_READ : GW_ABSENT_NOT_PRESENT },
		{ "utilization_sm_mean_ratio",
		  r->sm_seconds > 0 ? r->sm_sum / r->sm_seconds : (double)NAN,
		  GW_ABSENT_NOT_READ },
		{ "power_watts", runs ? r->power_w : (double)NAN, now },
		{ "power_mean_watts",
		  energy == GW_HAVE && r->charged_seconds > 0 ? r->joules / r->charged_seconds
							      : (double)NAN,
		  energy == GW_HAVE ? GW_ABSENT_FIRST_READING : energy },
		{ "energy_joules", energy == GW_HAVE ? r->joules : (double)NAN, energy },
		{ "energy_low_joules", energy == GW_HAVE ? r->alone_joules : (double)NAN,
		  energy },
		{ "energy_high_joules", energy == GW_HAVE ? high_j : (double)NAN, energy },
	};

	json_double(j, "gpu_seconds", r->gpu_seconds);
	json_uint(j, "processes", r->processes);
	for (size_t i = 0; i < COUNT(row); i++)
		json_double(j, row[i].key, row[i].v);
	json_string(j, "energy_method",
		    energy == GW_HAVE ? attribute_how_name(alone ? ATTRIBUTE_MEASURED : r->how)
				      : NULL);
	json_double(j, "split_uncertainty_ratio", energy == GW_HAVE && alone ? 0 : (double)NAN);
	json_object(j, "absent");
	for (size_t i = 0; i < COUNT(row); i++)
		if (isnan(row[i].v))
			json_string(j, row[i].key, gw_absence_key(row[i].why));
	if (energy != GW_HAVE || !alone)
		json_string(j, "split_uncertainty_ratio",
			    energy == GW_HAVE ? "shared_gpu" : gw_absence_key(energy));
	json_object_end(j);
}

static void write_gpu(struct json *j, const struct view *v, const struct workload_row *r)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, r->gpu);

	json_object(j, NULL);
	json_uint(j, "device_index", d ? d->index : r->gpu);
	json_string(j, "device_uuid", d ? gw_device_text(d, GW_T_UUID) : NULL);
	write_figures(j, r);
	json_object_end(j);
}

void workload_doc_write(struct json *j, const struct view *v, const struct workload_energy *e,
			unsigned row)
{
	const struct workload_row *r = &e->row[row];
	struct workload_row sum;

	workload_energy_sum(e, row, &sum);
	json_object(j, NULL);
	render_workload_keys(j, &r->workload);
	render_text(j, "user", r->user);
	json_string(j, "state", sum.processes ? "running" : "ended");
	json_time(j, "begin_utc", sum.begin_wall_ns);
	json_time(j, "end_utc", sum.processes ? 0 : sum.end_wall_ns);
	json_bool(j, "simulated", view_simulated(v));
	write_figures(j, &sum);
	json_array(j, "devices");
	for (unsigned i = 0; i < e->count; i++)
		if (workload_row_same(&e->row[i], r))
			write_gpu(j, v, &e->row[i]);
	json_array_end(j);
	json_object_end(j);
}

void workload_doc_device(struct json *j, const struct view *v, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	const struct workload_energy *e = v->workloads;
	const bool known = e && e->gpu[i].begun && v->self.counts_known;
	double rows = 0;

	for (unsigned k = 0; known && k < e->count; k++)
		rows += e->row[k].gpu == i ? e->row[k].joules : 0;
	json_object(j, NULL);
	json_uint(j, "device_index", d->index);
	json_string(j, "device_uuid", gw_device_text(d, GW_T_UUID));
	json_double(j, "energy_joules_total", known ? e->gpu[i].counter_j : (double)NAN);
	json_double(j, "workloads_joules", known ? rows : (double)NAN);
	for (unsigned r = 0; r < WORKLOAD_RESTS; r++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_joules", workload_rest_word(r));
		json_double(j, key, known ? workload_energy_rest(e, i, r) : (double)NAN);
	}
	json_object_end(j);
}

void workload_doc_id(const struct workload_energy *e, unsigned row,
		     char out[static WORKLOAD_DOC_ID])
{
	const struct workload *w = &e->row[row].workload;
	struct workload_row sum;
	uint64_t hash = text_hash(TEXT_HASH_START, w->id, strlen(w->id) + 1);

	hash = text_hash(hash, w->part, strlen(w->part) + 1);
	workload_energy_sum(e, row, &sum);
	snprintf(out, WORKLOAD_DOC_ID, "%016" PRIu64 "-%s-%016" PRIx64,
		 sum.end_wall_ns / NS_PER_MS, workload_kind_word(w->kind),
		 hash ^ sum.begin_wall_ns / NS_PER_MS);
}

void workload_doc_ids(uint64_t since_ms, const char *kind, char from[static WORKLOAD_DOC_ID],
		      char glob[static WORKLOAD_DOC_ID])
{
	snprintf(from, WORKLOAD_DOC_ID, "%016" PRIu64, since_ms);
	snprintf(glob, WORKLOAD_DOC_ID, "*-%s-*", kind ? kind : "*");
}

/* Copies a JSON string. p points to the character after the first quote. The string is parsed
 * only if it has escapes. */
static void copy_string(const char *p, char *out, size_t size)
{
	const char *end = p;
	char text[8 * sizeof(((struct workload *)0)->name)], why[160];
	struct json_doc *d;
	bool escaped = false;

	for (; *end && *end != '"'; end++)
		if (*end == '\\' && end[1]) {
			escaped = true;
			end++;
		}
	snprintf(out, size, "%.*s", (int)(end - p), p);
	if (!escaped)
		return;
	*out = '\0';
	snprintf(text, sizeof(text), "{\"name\":\"%.*s\"}", (int)(end - p), p);
	if (json_doc_new(text, strlen(text), &d, why, sizeof(why)) != 0)
		return;
	snprintf(out, size, "%s", json_doc_string(d, "name"));
	json_doc_free(d);
}

void workload_doc_name(const char *json, char *out, size_t size)
{
	/* Quotes inside strings are escaped, so this text can only be a key, not a part of a
	 * string. It is the key of the outer object, because no inner object comes before
	 * it. */
	static const char key[] = ",\"name\":\"";
	const char *p = strstr(json, key);

	*out = '\0';
	if (p)
		copy_string(p + sizeof(key) - 1, out, size);
}

/* The numbers of a row that are stored and survive a restart. The key in JSON is the name of
 * the member. */
/* clang-format off */
#define ROW_NUMBERS(X) \
	X(gpu_seconds) X(charged_seconds) X(joules) X(alone_joules) X(shared_joules) X(memory_peak_bytes) \
	X(sm_sum) X(sm_seconds) X(series_from_j)
/* clang-format on */

static void save_row(struct json *j, const struct workload_row *r)
{
	json_object(j, NULL);
	render_workload_keys(j, &r->workload);
	json_string(j, "user", r->user);
	json_double(j, "begin", (double)(r->begin_wall_ns / NS_PER_MS));
	json_double(j, "end", (double)(r->end_wall_ns / NS_PER_MS));
#define X(member) json_double(j, #member, r->member);
	ROW_NUMBERS(X)
#undef X
	json_uint(j, "how", r->how);
	json_bool(j, "charged", r->charged);
	json_string(j, "absence", gw_absence_key(r->absence));
	json_bool(j, "has_series", r->has_series);
	json_object_end(j);
}

void workload_doc_save(struct buf *out, const struct workload_energy *e, unsigned i)
{
	const struct workload_gpu *g = &e->gpu[i];
	struct json j;

	json_init(&j, out, false);
	json_object(&j, NULL);
	json_uint(&j, "version", STATE_VERSION);
	json_double(&j, "counter_j", g->counter_j);
	json_double(&j, "other_j", g->other_j);
	json_bool(&j, "empty", g->was_empty);
	json_object(&j, "rest_j");
	for (unsigned r = 0; r < WORKLOAD_RESTS; r++)
		json_double(&j, workload_rest_word(r), g->rest_j[r]);
	json_object_end(&j);
	json_array(&j, "rows");
	for (unsigned k = 0; k < e->count; k++)
		if (e->row[k].gpu == i)
			save_row(&j, &e->row[k]);
	json_array_end(&j);
	json_object_end(&j);
	json_end(&j);
}

static enum gw_absence load_absence(const struct json_doc *d)
{
	const char *word = json_doc_string(d, "absence");

	return word && strcmp(word, gw_absence_key(GW_HAVE)) == 0 ? GW_HAVE
								  : render_read_absence(word);
}

/* Reads a row. If the row is not valid, returns false; the joules of the row become
 * unattributed. */
static bool load_row(const struct json_doc *d, unsigned gpu, struct workload_row *ret)
{
	double begin = json_doc_figure(d, "begin"), end = json_doc_figure(d, "end"),
	       how = json_doc_figure(d, "how");

	*ret = (struct workload_row){ .gpu = gpu };
	json_doc_copy(d, "user", ret->user, sizeof(ret->user));
#define X(member) ret->member = json_doc_figure(d, #member);
	ROW_NUMBERS(X)
#undef X
	if (!render_read_workload(d, &ret->workload) || !(begin >= 0) || !(end >= 0) ||
	    !(ret->joules >= 0) || !(how >= 0 && how < ATTRIBUTE_HOWS) ||
	    isnan(ret->series_from_j) || isnan(ret->gpu_seconds) || isnan(ret->charged_seconds))
		return false;
	ret->begin_wall_ns = (uint64_t)begin * NS_PER_MS;
	ret->end_wall_ns = (uint64_t)end * NS_PER_MS;
	ret->how = (enum attribute_how)how;
	ret->charged = json_doc_true(d, "charged");
	ret->absence = load_absence(d);
	ret->has_series = json_doc_true(d, "has_series");
	return true;
}

/* Reads that part of the energy of a GPU that belongs to no row. Sets ret->counter_j to the sum
 * of the parts that can be read, even if a row of the document is damaged. */
static void load_gpu(const struct json_doc *d, unsigned i, struct workload_gpu *ret)
{
	struct workload_row row;

	*ret = (struct workload_gpu){ .begun = true, .was_empty = json_doc_true(d, "empty") };
	ret->other_j = json_doc_number(d, "other_j");
	ret->counter_j = ret->other_j;
	for (unsigned r = 0; r < WORKLOAD_RESTS; r++) {
		const struct json_doc *rest = json_doc_get(d, "rest_j");

		ret->rest_j[r] = json_doc_number(rest, workload_rest_word(r));
		ret->counter_j += ret->rest_j[r];
	}
	for (size_t k = 0; k < json_doc_count(d, "rows"); k++)
		if (load_row(json_doc_at(d, "rows", k), i, &row))
			ret->counter_j += row.joules - row.series_from_j;
}

int workload_doc_load(struct workload_energy *e, unsigned i, const char *text, size_t size,
		      double counter_j)
{
	char why[160];
	struct json_doc *d;
	struct workload_gpu gpu;
	struct workload_row row;

	if (json_doc_new(text, size, &d, why, sizeof(why)) != 0)
		return -GW_E_PARSE;
	if (json_doc_number(d, "version") != STATE_VERSION) {
		json_doc_free(d);
		return -GW_E_PARSE;
	}
	load_gpu(d, i, &gpu);
	workload_energy_restore(e, i, &gpu, counter_j);
	for (size_t k = 0; k < json_doc_count(d, "rows"); k++)
		if (load_row(json_doc_at(d, "rows", k), i, &row))
			workload_energy_restore_row(e, &row);
	json_doc_free(d);
	return 0;
}
