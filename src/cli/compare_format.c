#include "compare_view.h"

#include "term.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/utf8.h"
#include "serve/render_result.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void compare_value_text(const struct compare_view *v, const struct comparison_row *row,
			enum comparison_metric m, char out[static COMPARE_CELL])
{
	const struct comparison_figure *f = &row->figure[m];
	const struct comparison_scale *s = &v->scale[m];
	const char *unit = term_plain(s->unit);

	*out = '\0';
	if (isnan(f->mean))
		return;
	if (m == METRIC_SIZE) {
		comparison_size_text(f->mean, out, COMPARE_CELL);
	} else if (m == METRIC_POWER && !v->no_power_sd && !isnan(row->power_sd_w)) {
		snprintf(out, COMPARE_CELL, "%.*f %s (%.*f)", s->decimals, f->mean * s->factor,
			 unit, s->decimals, row->power_sd_w * s->factor);
	} else {
		snprintf(out, COMPARE_CELL, "%.*f %s", s->decimals, f->mean * s->factor, unit);
	}
}

void compare_interval_text(const struct compare_view *v, const struct comparison_figure *f,
			   enum comparison_metric m, char out[static COMPARE_CELL])
{
	const struct comparison_scale *s = &v->scale[m];

	*out = '\0';
	if (!isnan(f->low))
		snprintf(out, COMPARE_CELL, "[%.*f, %.*f]", s->decimals, f->low * s->factor,
			 s->decimals, f->high * s->factor);
}

const char *compare_row_state(const struct comparison_row *row)
{
	return row->validity ? row->validity : "no run";
}

static void markdown_text(struct buf *out, const char *s)
{
	char clean[1024];

	utf8_clean(clean, sizeof(clean), s);
	for (const char *p = clean; *p; p++) {
		if (strchr("\\`*_{}[]<>|#&~", *p))
			buf_addc(out, '\\');
		buf_addc(out, *p);
	}
}

static void markdown_note(void *ctx, const char *sentence)
{
	struct buf *out = ctx;

	buf_adds(out, "- ");
	markdown_text(out, sentence);
	buf_addc(out, '\n');
}

static void markdown_row(const struct compare_view *v, const struct comparison_row *row,
			 struct buf *out)
{
	const char *room = comparison_room(row);
	char value[COMPARE_CELL], interval[COMPARE_CELL];

	buf_adds(out, "| ");
	markdown_text(out, row->label);
	buf_addf(out, " | %zu | %s%s |", row->used, compare_row_state(row),
		 row->simulated ? ", simulated" : "");
	if (comparison_has_rooms(v->c))
		buf_addf(out, " %s |", room ? room : "-");
	for (unsigned m = 0; m < METRICS; m++) {
		if (!v->shown[m])
			continue;
		compare_value_text(v, row, m, value);
		compare_interval_text(v, &row->figure[m], m, interval);
		buf_addf(out, " %s%s%s |", *value ? value : "-", *interval ? " " : "",
			 interval);
		comparison_change_text(&row->figure[m].change, value, sizeof(value));
		buf_addf(out, " %s |", *value ? value : "-");
	}
	buf_addc(out, '\n');
}

void compare_markdown(const struct compare_view *v, struct buf *out)
{
	bool rooms = comparison_has_rooms(v->c);

	buf_addf(out, "| Label | Runs | Validity |%s", rooms ? " Clean room |" : "");
	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m])
			buf_addf(out, " %s | Change |", comparison_title(v->c, m));
	buf_addf(out, "\n|:--|--:|:--|%s", rooms ? ":--|" : "");
	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m])
			buf_adds(out, "--:|--:|");
	buf_addc(out, '\n');
	for (size_t i = 0; i < v->c->nrows; i++)
		markdown_row(v, &v->c->rows[i], out);
	buf_addc(out, '\n');
	comparison_notes(v->c, markdown_note, out);
}

static const char *const keys[METRICS] = { "latency_seconds",
					   "power_mean_watts",
					   "energy_per_iteration_joules",
					   "energy_net_per_iteration_joules",
					   "energy_per_token_joules",
					   "model_size_bytes" };

static const char *key_of(const struct comparison *c, unsigned m)
{
	if (!c->per_iteration && m == METRIC_TIME)
		return "seconds";
	if (!c->per_iteration && m == METRIC_ENERGY)
		return "energy_joules";
	if (!c->per_iteration && m == METRIC_NET)
		return "energy_net_joules";
	return keys[m];
}

/* Returns the verdict as a word, or NULL if there is no change. */
static const char *verdict_word(const struct compare_change *c)
{
	static const char *const words[] = {
		[COMPARE_LESS] = "less",
		[COMPARE_MORE] = "more",
		[COMPARE_OPEN] = "cannot-tell",
		[COMPARE_UNKNOWN] = "cannot-tell",
	};

	return isnan(c->change) ? NULL : words[compare_verdict(c)];
}

static void csv_text(struct buf *out, const char *s)
{
	buf_addc(out, '"');
	for (; *s; s++)
		buf_adds(out, *s == '"' ? "\"\"" : (char[]){ *s, '\0' });
	buf_addc(out, '"');
}

static void csv_number(struct buf *out, double v)
{
	char text[NUMBER_SIZE] = "";

	if (isfinite(v))
		number_format(v, text);
	buf_addf(out, ",%s", text);
}

static void csv_head(const struct compare_view *v, struct buf *out)
{
	buf_adds(out, "label,runs_used,runs,validity,simulated,clean_room");
	for (unsigned m = 0; m < METRICS; m++) {
		const char *k = key_of(v->c, m);

		if (v->shown[m])
			buf_addf(out,
				 ",%s,%s_low,%s_high,%s_change_ratio,%s_change_low_ratio,%s_"
				 "change_high_ratio,%s_change_verdict%s",
				 k, k, k, k, k, k, k,
				 m == METRIC_POWER ? ",power_sd_watts" : "");
	}
	buf_adds(out, "\r\n");
}

void compare_csv(const struct compare_view *v, struct buf *out)
{
	csv_head(v, out);
	for (size_t i = 0; i < v->c->nrows; i++) {
		const struct comparison_row *row = &v->c->rows[i];
		const char *room = comparison_room(row);

		csv_text(out, row->label);
		buf_addf(out, ",%zu,%zu,", row->used, row->nruns);
		csv_text(out, compare_row_state(row));
		buf_addf(out, ",%s,%s", row->simulated ? "true" : "false", room ? room : "");
		for (unsigned m = 0; m < METRICS; m++) {
			const struct comparison_figure *f = &row->figure[m];
			const char *verdict = verdict_word(&f->change);

			if (!v->shown[m])
				continue;
			csv_number(out, f->mean);
			csv_number(out, f->low);
			csv_number(out, f->high);
			csv_number(out, f->change.change);
			csv_number(out, f->change.change_low);
			csv_number(out, f->change.change_high);
			buf_addf(out, ",%s", verdict ? verdict : "");
			if (m == METRIC_POWER)
				csv_number(out, row->power_sd_w);
		}
		buf_adds(out, "\r\n");
	}
}

static void json_figure(struct json *j, const struct comparison *c,
			const struct comparison_row *row, enum comparison_metric m)
{
	static const char *const basis[] = { "trials", "one-side", "budget", "none" };
	const struct comparison_figure *f = &row->figure[m];
	struct gw_interval value = { f->low, f->mean, f->high },
			   fair = { f->fair_low, f->mean, f->fair_high },
			   change = { f->change.change_low, f->change.change,
				      f->change.change_high };

	json_object(j, key_of(c, m));
	json_uint(j, "runs", f->n);
	render_interval(j, "value", &value);
	render_interval(j, "comparable", &fair);
	if (m == METRIC_POWER)
		json_double(j, "sd", row->power_sd_w);
	render_interval(j, "change_ratio", &change);
	json_string(j, "change_basis", isnan(f->change.change) ? NULL : basis[f->change.basis]);
	json_string(j, "change_verdict", verdict_word(&f->change));
	json_object_end(j);
}

static void json_files(struct json *j, const struct comparison_row *row)
{
	json_array(j, "files");
	for (size_t i = 0; i < row->nruns; i++)
		if (i == 0 || row->runs[i].file != row->runs[i - 1].file)
			json_string(j, NULL, row->runs[i].file->path);
	json_array_end(j);
}

static void json_note(void *ctx, const char *sentence)
{
	json_string(ctx, NULL, sentence);
}

static void json_row(struct json *j, const struct compare_view *v,
		     const struct comparison_row *row)
{
	json_object(j, NULL);
	json_string(j, "label", row->label);
	json_string(j, "part", row->part);
	json_files(j, row);
	json_uint(j, "runs", row->nruns);
	json_uint(j, "runs_used", row->used);
	json_string(j, "validity", row->validity);
	json_bool(j, "simulated", row->simulated);
	json_string(j, "clean_room", comparison_room(row));
	json_bool(j, "other_gpu", row->other_gpu);
	json_bool(j, "other_scale", row->other_scale);
	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m])
			json_figure(j, v->c, row, m);
	json_object_end(j);
}

void compare_json(const struct compare_view *v, struct buf *out)
{
	char time[CLOCK_RFC3339_SIZE];
	struct json j;

	clock_format_rfc3339(clock_wall_ns(clock_real()), time);
	json_init(&j, out, true);
	json_object(&j, NULL);
	json_uint(&j, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(&j, "kind", "comparison");
	json_string(&j, "time_utc", time);
	json_string(&j, "reference", v->c->reference->label);
	json_array(&j, "rows");
	for (size_t i = 0; i < v->c->nrows; i++)
		json_row(&j, v, &v->c->rows[i]);
	json_array_end(&j);
	json_array(&j, "notes");
	comparison_notes(v->c, json_note, &j);
	json_array_end(&j);
	json_object_end(&j);
	json_end(&j);
}
