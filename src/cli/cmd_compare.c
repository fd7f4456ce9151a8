/* compare: prints results side by side, as text, Markdown, CSV or JSON. */
#include "cli.h"
#include "comparison.h"
#include "output.h"
#include "result_set.h"
#include "table.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/utf8.h"
#include "serve/render_result.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct given {
	const char *format, *output;
	struct option_list metric;
	bool across_gpus;
};

#define given(cli) ((const struct given *)(cli)->own)

struct view {
	const struct comparison *c;
	bool shown[METRICS];
	struct comparison_scale scale[METRICS];
};

#define CELL 160

static void cell_value(const struct view *v, const struct comparison_row *row,
		       enum comparison_metric m, char out[static CELL])
{
	const struct comparison_figure *f = &row->figure[m];
	const struct comparison_scale *s = &v->scale[m];
	const char *unit = term_plain(s->unit);

	*out = '\0';
	if (isnan(f->mean))
		return;
	if (m == METRIC_SIZE) {
		comparison_size_text(f->mean, out, CELL);
	} else if (m == METRIC_POWER && !isnan(row->power_sd_w)) {
		snprintf(out, CELL, "%.*f %s (%.*f)", s->decimals, f->mean * s->factor, unit,
			 s->decimals, row->power_sd_w * s->factor);
	} else {
		snprintf(out, CELL, "%.*f %s", s->decimals, f->mean * s->factor, unit);
	}
}

static void cell_interval(const struct view *v, const struct comparison_figure *f,
			  enum comparison_metric m, char out[static CELL])
{
	const struct comparison_scale *s = &v->scale[m];

	*out = '\0';
	if (!isnan(f->low))
		snprintf(out, CELL, "[%.*f, %.*f]", s->decimals, f->low * s->factor,
			 s->decimals, f->high * s->factor);
}

static const char *row_state(const struct comparison_row *row)
{
	return row->validity ? row->validity : "no run";
}

enum { LABEL, N, STATE, ROOM, FIRST_METRIC };

/* Each metric has three columns: value, interval, change.  If the terminal is narrow, a value
 * is hidden together with its change; energy, its interval, and energy per token are hidden
 * last. */
static const struct table_column columns[] = {
	[LABEL] = { "LABEL", 0, false, true },
	[N] = { "RUNS", 5, true, false },
	[STATE] = { "VALIDITY", 0, false, false },
	/* problems are also listed in notes below the table */
	[ROOM] = { "ROOM", 5, false, false },
	{ "LATENCY", 6, true, false },
	{ "95 %", 10, true, false },
	{ "CHANGE", 6, true, false },
	{ "POWER (S.D.)", 7, true, false },
	{ "95 %", 11, true, false },
	{ "CHANGE", 7, true, false },
	{ "ENERGY", 0, true, false },
	{ "95 %", 1, true, false },
	{ "CHANGE", 3, true, false },
	{ "PER TOKEN", 2, true, false },
	{ "95 %", 9, true, false },
	{ "CHANGE", 4, true, false },
	{ "SIZE", 8, true, false },
	{ "", 8, true, false },
	{ "CHANGE", 8, true, false },
	{ NULL, 0, false, false },
};

static enum term_style change_style(const struct compare_change *c, enum comparison_metric m)
{
	static const enum term_style styles[] = {
		[COMPARE_LESS] = TERM_GOOD,
		[COMPARE_MORE] = TERM_BAD,
		[COMPARE_OPEN] = TERM_DIM,
		[COMPARE_UNKNOWN] = TERM_PLAIN,
	};

	/* less power is not necessarily better */
	return m == METRIC_POWER ? TERM_PLAIN : styles[compare_verdict(c)];
}

static void text_metric(struct table *t, const struct view *v, const struct comparison_row *row,
			enum comparison_metric m)
{
	const struct comparison_figure *f = &row->figure[m];
	unsigned column = FIRST_METRIC + 3 * m;
	char cell[CELL];

	cell_value(v, row, m, cell);
	if (*cell)
		table_set(t, column, TERM_PLAIN, "%s", cell);
	cell_interval(v, f, m, cell);
	if (*cell)
		table_set(t, column + 1, TERM_PLAIN, "%s", cell);
	comparison_change_text(&f->change, cell, sizeof(cell));
	if (*cell)
		table_set(t, column + 2, change_style(&f->change, m), "%s", cell);
}

static size_t count_simulated(const struct comparison *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++)
		n += c->rows[i].simulated;
	return n;
}

static void text_row(struct table *t, const struct view *v, const struct comparison_row *row)
{
	bool marked = row->simulated &&
		      /* if all rows are simulated, the heading says it */
		      count_simulated(v->c) < v->c->nrows;
	bool valid = strcmp(row_state(row), "valid") == 0;
	const char *room = comparison_room(row);
	char label[CELL];

	utf8_clean(label, sizeof(label), row->label);
	table_row(t);
	table_set(t, LABEL, TERM_PLAIN, "%s", label);
	table_set(t, N, row->used ? TERM_PLAIN : TERM_BAD,
		  row->used == row->nruns ? "%zu" : "%zu of %zu", row->used, row->nruns);
	table_set(t, STATE,
		  valid       ? TERM_GOOD
		  : row->used ? TERM_WARN
			      : TERM_BAD,
		  "%s%s%s", valid ? "" : "! ", row_state(row), marked ? ", simulated" : "");
	if (comparison_has_rooms(v->c) && room)
		table_set(t, ROOM, strcmp(room, "kept") == 0 ? TERM_GOOD : TERM_WARN, "%s",
			  room);
	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m])
			text_metric(t, v, row, m);
}

struct text_out {
	struct buf *out;
	bool wrap; /* print to the terminal and wrap lines */
};

static void text_sentence(void *ctx, const char *sentence)
{
	const struct text_out *o = ctx;
	char clean[4096];

	utf8_clean(clean, sizeof(clean), sentence);
	if (o->wrap)
		term_wrap("", 0, clean, term_width());
	else
		buf_addf(o->out, "%s\n", clean);
}

static void note_hidden(const struct table *t, unsigned width, struct text_out *notes)
{
	bool hidden[TABLE_COLUMNS_MAX];
	unsigned whole = table_hidden(t, width, hidden), n = 0;
	char sentence[512];
	struct buf b;

	if (whole == 0)
		return;
	buf_init_fixed(&b, sentence, sizeof(sentence));
	buf_adds(&b, "Hidden because the terminal is narrow: ");
	if (hidden[N])
		buf_addf(&b, "%snumber of runs", n++ ? ", " : "");
	if (hidden[ROOM])
		buf_addf(&b, "%sclean room", n++ ? ", " : "");
	for (unsigned m = 0; m < METRICS; m++) {
		const bool *l = &hidden[FIRST_METRIC + 3 * m];
		const char *name = comparison_metric_name(m);

		if (l[0])
			buf_addf(&b, "%s%s", n++ ? ", " : "", name);
		else if (l[1] || l[2])
			buf_addf(&b, "%s%s%s%s of %s", n++ ? ", " : "", l[1] ? "interval" : "",
				 l[1] && l[2] ? " and " : "", l[2] ? "change" : "", name);
	}
	buf_addf(&b, ". To see all: use %u columns, --format=markdown or --format=csv.", whole);
	text_sentence(notes, b.p);
}

/* Writes the table and the notes.  Output to a terminal is written directly, because notes are
 * wrapped there; output to a file goes through out. */
static int write_text(const struct view *v, struct buf *out, bool file, bool quiet)
{
	int code = EXIT_OK;
	struct text_out notes = { out, !file };
	unsigned width = file ? 500 : term_width();
	size_t simulated = count_simulated(v->c);
	struct table t;

	table_init(&t, columns);
	for (size_t i = 0; i < v->c->nrows; i++)
		text_row(&t, v, &v->c->rows[i]);
	if (simulated)
		buf_addf(out, "%s SIMULATED %s %s\n", file ? "" : term_on(TERM_MARK),
			 file ? "" : term_off(),
			 simulated == v->c->nrows ? "these GPUs are not real"
						  : "the GPUs of the marked rows are not real");
	if (t.error)
		out->err = t.error;
	else
		table_format(&t, width, !file, out);
	if (!file) {
		code = output_write(NULL, out, quiet);
		buf_clear(out);
	}
	if (!quiet && !t.error)
		note_hidden(&t, width, &notes);
	table_done(&t);
	if (!quiet)
		comparison_notes(v->c, text_sentence, &notes);
	return code;
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

static void markdown_row(const struct view *v, const struct comparison_row *row,
			 struct buf *out)
{
	const char *room = comparison_room(row);
	char value[CELL], interval[CELL];

	buf_adds(out, "| ");
	markdown_text(out, row->label);
	buf_addf(out, " | %zu | %s%s |", row->used, row_state(row),
		 row->simulated ? ", simulated" : "");
	if (comparison_has_rooms(v->c))
		buf_addf(out, " %s |", room ? room : "-");
	for (unsigned m = 0; m < METRICS; m++) {
		if (!v->shown[m])
			continue;
		cell_value(v, row, m, value);
		cell_interval(v, &row->figure[m], m, interval);
		buf_addf(out, " %s%s%s |", *value ? value : "-", *interval ? " " : "",
			 interval);
		comparison_change_text(&row->figure[m].change, value, sizeof(value));
		buf_addf(out, " %s |", *value ? value : "-");
	}
	buf_addc(out, '\n');
}

static void write_markdown(const struct view *v, struct buf *out)
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

static const char *const keys[METRICS] = { "latency_seconds", "power_mean_watts",
					   "energy_per_iteration_joules",
					   "energy_per_token_joules", "model_size_bytes" };

static const char *key_of(const struct comparison *c, unsigned m)
{
	if (!c->per_iteration && m == METRIC_TIME)
		return "seconds";
	if (!c->per_iteration && m == METRIC_ENERGY)
		return "energy_joules";
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

static void csv_head(const struct view *v, struct buf *out)
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

static void write_csv(const struct view *v, struct buf *out)
{
	csv_head(v, out);
	for (size_t i = 0; i < v->c->nrows; i++) {
		const struct comparison_row *row = &v->c->rows[i];
		const char *room = comparison_room(row);

		csv_text(out, row->label);
		buf_addf(out, ",%zu,%zu,", row->used, row->nruns);
		csv_text(out, row_state(row));
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

static void json_row(struct json *j, const struct view *v, const struct comparison_row *row)
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

static void write_json(const struct view *v, struct buf *out)
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

static int choose_metrics(struct view *v, const struct option_list *metrics)
{
	for (unsigned m = 0; m < METRICS; m++) {
		v->shown[m] = metrics->count == 0;
		v->scale[m] = comparison_scale(v->c, m);
	}
	for (unsigned i = 0; i < metrics->count; i++) {
		enum comparison_metric m = comparison_metric_find(metrics->item[i]);

		if (m == METRICS)
			return cli_usage("--metric takes latency, power, energy, token or "
					 "size, not '%s'",
					 metrics->item[i]);
		v->shown[m] = true;
	}
	for (unsigned m = 0; m < METRICS && metrics->count == 0; m++)
		v->shown[m] = comparison_has(v->c, m) || m == METRIC_ENERGY;
	return EXIT_OK;
}

static int check_usable(const struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].used)
			return EXIT_OK;
	return cli_fail("no usable run: all runs are invalid, or the results are empty");
}

static int print_comparison(const struct cli *c, const struct comparison *comparison)
{
	const struct given *g = given(c);
	const char *format = c->json ? "json" : g->format ? g->format : "text";
	bool file = g->output && strcmp(g->output, "-") != 0;
	struct view v = { .c = comparison };
	struct buf out;
	int code = choose_metrics(&v, &g->metric);

	if (code != EXIT_OK)
		return code;
	buf_init(&out, 64u << 20);
	if (strcmp(format, "json") == 0)
		write_json(&v, &out);
	else if (strcmp(format, "csv") == 0)
		write_csv(&v, &out);
	else if (strcmp(format, "markdown") == 0)
		write_markdown(&v, &out);
	else
		code = write_text(&v, &out, file, c->quiet);
	if (code == EXIT_OK)
		code = output_write(g->output, &out, c->quiet);
	buf_done(&out);
	return code ? code : check_usable(comparison);
}

static int compare_results(const struct cli *c, const struct result_set *r)
{
	struct comparison comparison;
	int code;

	if (comparison_init(&comparison, r->v, r->n) != 0)
		return cli_no_memory();
	code = print_comparison(c, &comparison);
	comparison_done(&comparison);
	return code;
}

static int compare_run(struct cli *c)
{
	const struct given *g = given(c);

	if (c->json && g->format && strcmp(g->format, "json") != 0)
		return cli_usage("--json and --format %s exclude each other: give one of them",
				 g->format);
	return result_set_with(c, g->output, g->across_gpus, compare_results);
}

static const char *const formats[] = { "text", "markdown", "csv", "json", NULL };

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_CHOICE_ROW('f', "format", AT(format), "FORMAT",
			  "text (default), markdown, csv or json", formats),
	OPTION_ROW(LIST, 'm', "metric", AT(metric), "NAME",
		   "only these metrics: latency, power, energy, token, size; repeatable"),
	OUTPUT_OPTION(AT(output)),
	ACROSS_GPUS_OPTION(AT(across_gpus)),
	OPTION_END,
};

const struct command command_compare = {
	.name = "compare",
	.summary = "compare results: the changes and how certain they are",
	.description = "Prints results of gpuward measure in one table, one row per label in "
		       "the order of the files; files with the same label are trials of one "
		       "row. Changes are relative to the first row with a usable run, with 95 "
		       "% intervals. Invalid runs are left out and listed below the table.",
	.examples = "  gpuward compare fp32.json fp16.json int8.json\n"
		    "  gpuward compare --format=markdown runs/*.json >> RESULTS.md\n"
		    "  gpuward compare --metric=energy --json a.json b.json\n",
	.arguments = "RESULT...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = compare_run,
};
