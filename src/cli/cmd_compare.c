/* compare: prints results side by side: a table for the terminal, or a document. */
#include "cli.h"
#include "compare_view.h"
#include "output.h"
#include "table.h"

#include "base/array.h"
#include "base/utf8.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct given {
	const char *format, *output, *reference;
	struct option_list metric;
	bool across_gpus;
};

#define given(cli) ((const struct given *)(cli)->own)

/* How the table is laid out. The first layout that fits the terminal is used. If none fits, the
 * last layout is used and whole columns are hidden. */
enum layout {
	ONE_LINE, /* Each row is one line. Value, interval and change are separate columns. */
	STACKED,  /* Each metric is one column. Interval and change are below the value. */
	STACKED_SPLIT, /* Like STACKED, but the interval of a change has its own line. */
	/* Like STACKED_SPLIT, but net energy is hidden if gross energy is shown. */
	STACKED_NO_NET,
	/* Like STACKED_NO_NET, but latency and power have no interval, and power has no
	 * standard deviation. */
	STACKED_LEAST,
	LAYOUTS
};

/* Numbers of the columns in the layout ONE_LINE. */
enum { LABEL, N, STATE, ROOM, FIRST_METRIC };

struct text_table {
	enum layout layout;
	struct compare_view view;
	struct table_column column[TABLE_COLUMNS_MAX + 1];
	/* The shown metrics, in the order of the columns. */
	enum comparison_metric metric[METRICS];
	unsigned metrics;
	struct table t;
};

static bool has_intervals(const struct text_table *x, enum comparison_metric m)
{
	return x->layout != STACKED_LEAST || (m != METRIC_TIME && m != METRIC_POWER);
}

static bool drops_net(const struct text_table *x)
{
	return x->layout >= STACKED_NO_NET && x->view.shown[METRIC_NET] &&
	       x->view.shown[METRIC_ENERGY];
}

/* Returns the heading of a metric. The heading says whether the value is per iteration or per
 * run. */
static const char *metric_heading(const struct text_table *x, enum comparison_metric m)
{
	bool each = x->view.c->per_iteration;

	switch (m) {
	case METRIC_TIME: return each ? "LATENCY" : "TIME/RUN";
	case METRIC_POWER: return x->view.no_power_sd ? "POWER" : "POWER (S.D.)";
	case METRIC_ENERGY: return each ? "ENERGY/ITER" : "ENERGY/RUN";
	case METRIC_NET: return each ? "NET/ITER" : "NET/RUN";
	case METRIC_TOKEN: return "ENERGY/TOKEN";
	default: return "SIZE";
	}
}

static void text_columns(struct text_table *x)
{
	/* If even STACKED_LEAST is too wide, the column with the highest rank is hidden
	 * first. */
	static const unsigned ranks[METRICS] = {
		[METRIC_SIZE] = 4, [METRIC_POWER] = 3, [METRIC_TIME] = 2, [METRIC_TOKEN] = 1
	};
	struct table_column *col = x->column;

	*col++ = (struct table_column){ "LABEL", 0, false, true };
	if (x->layout == ONE_LINE) {
		*col++ = (struct table_column){ "RUNS", 1, true, false };
		*col++ = (struct table_column){ "VALIDITY", 1, false, false };
		*col++ = (struct table_column){ "ROOM", 1, false, false };
	}
	for (unsigned i = 0; i < x->metrics; i++) {
		enum comparison_metric m = x->metric[i];

		*col++ = (struct table_column){ metric_heading(x, m), ranks[m], true, false };
		if (x->layout == ONE_LINE) {
			*col++ = (struct table_column){ "95 %", 1, true, false };
			*col++ = (struct table_column){ "CHANGE", 1, true, false };
		}
	}
	*col = (struct table_column){ NULL, 0, false, false };
}

static enum term_style change_style(const struct compare_change *c, enum comparison_metric m)
{
	static const enum term_style styles[] = {
		[COMPARE_LESS] = TERM_GOOD,
		[COMPARE_MORE] = TERM_BAD,
		[COMPARE_OPEN] = TERM_DIM,
		[COMPARE_UNKNOWN] = TERM_PLAIN,
	};

	/* Power has no colour, because less power is not necessarily better. */
	return m == METRIC_POWER ? TERM_PLAIN : styles[compare_verdict(c)];
}

/* One cell of a table, before it is put into a column. */
struct text_cell {
	enum term_style style;
	char text[COMPARE_CELL];
};

/* The cells that describe the runs of a row. */
struct text_facts {
	struct text_cell label, runs, state, room;
};

static void text_facts(const struct compare_view *v, const struct comparison_row *row,
		       struct text_facts *f)
{
	/* Mark the simulated rows only if other rows are real. If all rows are simulated, a
	 * line above the table says so. */
	bool marked = row->simulated && comparison_simulated(v->c) < v->c->nrows;
	bool valid = strcmp(compare_row_state(row), "valid") == 0;
	const char *room = comparison_has_rooms(v->c) ? comparison_room(row) : NULL;

	*f = (struct text_facts){ .runs.style = row->used ? TERM_PLAIN : TERM_BAD,
				  .state.style = valid       ? TERM_GOOD
						 : row->used ? TERM_WARN
							     : TERM_BAD,
				  .room.style = room && strcmp(room, "kept") == 0 ? TERM_GOOD
										  : TERM_WARN };
	utf8_clean(f->label.text, sizeof(f->label.text), row->label);
	snprintf(f->runs.text, sizeof(f->runs.text),
		 row->used == row->nruns ? "%zu" : "%zu of %zu", row->used, row->nruns);
	snprintf(f->state.text, sizeof(f->state.text), "%s%s%s", valid ? "" : "! ",
		 compare_row_state(row), marked ? ", simulated" : "");
	snprintf(f->room.text, sizeof(f->room.text), "%s", room ? room : "");
}

/* Sets a cell to the text. If the text is empty, the cell shows "-", or nothing if `blank` is
 * set. */
static void set_cell(struct text_table *x, unsigned column, const struct text_cell *c,
		     bool blank)
{
	if (*c->text || blank)
		table_set(&x->t, column, c->style, "%s", c->text);
}

/* Writes the change, and its interval separately if `interval` is not NULL. */
static void change_cells(const struct comparison_figure *f, enum comparison_metric m,
			 struct text_cell *change, struct text_cell *interval)
{
	char *at;

	change->style = change_style(&f->change, m);
	comparison_change_text(&f->change, change->text, sizeof(change->text));
	at = strchr(change->text, '[');
	if (!interval || !at)
		return;
	interval->style = TERM_DIM;
	snprintf(interval->text, sizeof(interval->text), "%s", at);
	while (at > change->text && at[-1] == ' ')
		at--;
	*at = '\0';
}

static void one_line(struct text_table *x, const struct comparison_row *row,
		     const struct text_facts *facts)
{
	table_row(&x->t);
	set_cell(x, LABEL, &facts->label, true);
	set_cell(x, N, &facts->runs, true);
	set_cell(x, STATE, &facts->state, true);
	set_cell(x, ROOM, &facts->room, false);
	for (unsigned i = 0; i < x->metrics; i++) {
		enum comparison_metric m = x->metric[i];
		const struct comparison_figure *f = &row->figure[m];
		struct text_cell value = { 0 }, interval = { 0 }, change = { 0 };

		compare_value_text(&x->view, row, m, value.text);
		compare_interval_text(&x->view, f, m, interval.text);
		change_cells(f, m, &change, NULL);
		set_cell(x, FIRST_METRIC + 3 * i, &value, false);
		set_cell(x, FIRST_METRIC + 3 * i + 1, &interval, false);
		set_cell(x, FIRST_METRIC + 3 * i + 2, &change, false);
	}
}

#define STACK 4 /* Largest number of lines of one row in a stacked layout. */

/* Fills in the lines of a metric from top to bottom: value, interval, change, interval of the
 * change. */
static void stack_metric(const struct text_table *x, const struct comparison_row *row,
			 enum comparison_metric m, struct text_cell line[static STACK])
{
	const struct comparison_figure *f = &row->figure[m];
	struct text_cell hidden;

	for (unsigned i = 0; i < STACK; i++)
		line[i] = (struct text_cell){ .style = TERM_PLAIN };
	compare_value_text(&x->view, row, m, line[0].text);
	if (has_intervals(x, m)) {
		line[1].style = TERM_DIM;
		compare_interval_text(&x->view, f, m, line[1].text);
	}
	change_cells(f, m, &line[2],
		     x->layout == STACKED  ? NULL
		     : has_intervals(x, m) ? &line[3]
					   : &hidden);
}

static void indent_cell(struct text_cell *to, const struct text_cell *from, const char *word)
{
	to->style = from->style;
	if (*from->text)
		snprintf(to->text, sizeof(to->text), "  %.*s%s", COMPARE_CELL - 16, from->text,
			 word);
}

static void stacked(struct text_table *x, const struct comparison_row *row,
		    const struct text_facts *facts)
{
	struct text_cell cell[STACK][METRICS + 1] = { 0 }, metric[STACK];

	cell[0][0] = facts->label;
	indent_cell(&cell[1][0], &facts->runs, row->nruns == 1 ? " run" : " runs");
	indent_cell(&cell[2][0], &facts->state, "");
	indent_cell(&cell[3][0], &facts->room, " room");
	for (unsigned i = 0; i < x->metrics; i++) {
		stack_metric(x, row, x->metric[i], metric);
		for (unsigned k = 0; k < STACK; k++)
			cell[k][1 + i] = metric[k];
	}
	for (unsigned k = 0; k < STACK; k++) {
		bool any = false;

		for (unsigned i = 0; i <= x->metrics; i++)
			any |= *cell[k][i].text != '\0';
		if (!any)
			continue;
		table_row(&x->t);
		for (unsigned i = 0; i <= x->metrics; i++)
			set_cell(x, i, &cell[k][i], k > 0 || i == 0);
	}
}

/* Makes the table in one layout.  Free it with table_done(&x->t). */
static void text_table_make(struct text_table *x, const struct compare_view *v,
			    enum layout layout)
{
	struct text_facts facts;

	*x = (struct text_table){ .layout = layout, .view = *v };
	x->view.no_power_sd = layout == STACKED_LEAST || !comparison_knows_sd(v->c);
	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m] && !(m == METRIC_NET && drops_net(x)))
			x->metric[x->metrics++] = (enum comparison_metric)m;
	text_columns(x);
	table_init(&x->t, x->column);
	for (size_t i = 0; i < v->c->nrows; i++) {
		text_facts(&x->view, &v->c->rows[i], &facts);
		if (layout == ONE_LINE)
			one_line(x, &v->c->rows[i], &facts);
		else
			stacked(x, &v->c->rows[i], &facts);
	}
}

struct text_out {
	struct buf *out;
	bool wrap; /* Print to the terminal and wrap long lines. */
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

/* Prints a note that lists the hidden columns and intervals. `whole` is the terminal width that
 * would show everything. */
static void note_hidden(const struct text_table *x, unsigned width, unsigned whole,
			struct text_out *notes)
{
	bool hidden[TABLE_COLUMNS_MAX];
	char sentence[512];
	struct buf b;
	unsigned n = 0;

	if (x->layout < STACKED_NO_NET)
		return;
	table_hidden(&x->t, width, hidden);
	buf_init_fixed(&b, sentence, sizeof(sentence));
	buf_adds(&b, "Hidden because the terminal is narrow: ");
	for (unsigned i = 0; i < x->metrics; i++) {
		enum comparison_metric m = x->metric[i];
		const char *name = comparison_metric_name(m);

		if (hidden[1 + i])
			buf_addf(&b, "%s%s", n++ ? ", " : "", name);
		else if (!has_intervals(x, m))
			buf_addf(&b, "%sintervals of %s", n++ ? ", " : "", name);
	}
	if (x->layout == STACKED_LEAST && x->view.shown[METRIC_POWER] &&
	    comparison_knows_sd(x->view.c))
		buf_addf(&b, "%ss.d. of power", n++ ? ", " : "");
	if (drops_net(x))
		buf_addf(&b, "%snet energy", n++ ? ", " : "");
	if (n == 0)
		return;
	buf_addf(&b, ". To see all: use %u columns, --format=markdown or --format=csv.", whole);
	text_sentence(notes, b.p);
}

/* Chooses the first layout that fits. Cuts long labels before it hides a column. Returns the
 * terminal width that would show everything. */
static unsigned choose_layout(struct text_table *x, const struct compare_view *v,
			      unsigned width)
{
	bool hidden[TABLE_COLUMNS_MAX];
	unsigned whole = 0;

	for (unsigned i = ONE_LINE; i < LAYOUTS; i++) {
		text_table_make(x, v, (enum layout)i);
		if (i < STACKED_NO_NET)
			whole = table_width(&x->t);
		if (i + 1 == LAYOUTS || x->t.error || table_hidden(&x->t, width, hidden) == 0)
			break;
		table_done(&x->t);
	}
	return whole;
}

/* Writes the table and the notes. A terminal gets both directly, because notes on a terminal
 * are wrapped. A file gets both through `out`. */
static int write_text(const struct compare_view *v, struct buf *out, bool file, bool quiet)
{
	int code = EXIT_OK;
	struct text_out notes = { out, !file };
	unsigned width = file ? 500 : term_width(), whole;
	struct text_table x;

	whole = choose_layout(&x, v, width);
	if (comparison_simulated(v->c))
		buf_addf(out, "%s SIMULATED %s %s\n", file ? "" : term_on(TERM_MARK),
			 file ? "" : term_off(), comparison_simulated_text(v->c));
	if (x.t.error)
		out->err = x.t.error;
	else
		table_format(&x.t, width, !file, out);
	if (!file) {
		code = output_write(NULL, out, quiet);
		buf_clear(out);
	}
	if (!quiet && !x.t.error && x.layout != ONE_LINE)
		text_sentence(&notes, v->c->nrows > 1 ? "Below a value: its 95 % interval, "
							"then its change with a 95 % interval."
						      : "Below a value: its 95 % interval.");
	if (!quiet && !x.t.error)
		note_hidden(&x, width, whole, &notes);
	table_done(&x.t);
	if (!quiet)
		comparison_notes(v->c, text_sentence, &notes);
	return code;
}

static int choose_metrics(struct compare_view *v, const struct option_list *metrics)
{
	for (unsigned m = 0; m < METRICS; m++) {
		v->shown[m] = metrics->count == 0;
		v->scale[m] = comparison_scale(v->c, m);
	}
	for (unsigned i = 0; i < metrics->count; i++) {
		enum comparison_metric m = comparison_metric_find(metrics->item[i]);

		if (m == METRICS)
			return cli_usage("--metric takes latency, power, energy, net, token or "
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

/* All formats except "text", which write_text() writes. */
#define DOCUMENTS(X)                    \
	X("markdown", compare_markdown) \
	X("csv", compare_csv)           \
	X("json", compare_json)         \
	X("latex", compare_latex)       \
	X("sentence", compare_sentences)

#define DOCUMENT_ROW(name, write)  { name, write },
#define DOCUMENT_NAME(name, write) name,
static const struct {
	const char *name;
	void (*write)(const struct compare_view *v, struct buf *out);
} documents[] = { DOCUMENTS(DOCUMENT_ROW) };
static const char *const formats[] = { "text", DOCUMENTS(DOCUMENT_NAME) NULL };

static int print_comparison(const struct cli *c, const struct comparison *comparison)
{
	const struct given *g = given(c);
	const char *format = c->json ? "json" : g->format ? g->format : "text";
	bool file = g->output && strcmp(g->output, "-") != 0;
	struct compare_view v = { .c = comparison, .no_notes = c->quiet };
	struct buf out;
	int code = choose_metrics(&v, &g->metric);

	if (code != EXIT_OK)
		return code;
	buf_init(&out, 64u << 20);
	for (size_t i = 0; i < COUNT(documents); i++)
		if (strcmp(format, documents[i].name) == 0)
			documents[i].write(&v, &out);
	if (strcmp(format, "text") == 0)
		code = write_text(&v, &out, file, c->quiet);
	if (code == EXIT_OK)
		code = output_write(g->output, &out, c->quiet);
	buf_done(&out);
	return code ? code : check_usable(comparison);
}

static int compare_results(const struct cli *c, const struct result_set *r)
{
	struct comparison comparison;
	int code = result_set_compare(r, given(c)->reference, &comparison);

	if (code == EXIT_OK)
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

static const char *metric_word(unsigned i)
{
	return i < METRICS ? comparison_metric_name((enum comparison_metric)i) : NULL;
}

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_CHOICE_ROW(
		'f', "format", AT(format), "FORMAT",
		"text (default), markdown, csv, json, latex, or sentence (for a paper)",
		formats),
	OPTION_WORDS_ROW(
		'm', "metric", AT(metric), "NAME",
		"only these metrics: latency, power, energy, net, token, size; repeatable",
		metric_word),
	REFERENCE_OPTION(AT(reference)),
	OUTPUT_OPTION(AT(output)),
	ACROSS_GPUS_OPTION(AT(across_gpus)),
	OPTION_END,
};

const struct command command_compare = {
	.name = "compare",
	.summary = "compare results: the changes and how certain they are",
	.description =
		"Prints results of gpuward measure in one table, one row per label in the "
		"order of the files; files with the same label are trials of one row. Changes "
		"are relative to the first row with a known energy, or to --reference, with 95 "
		"% "
		"intervals. Invalid runs are left out and listed below the table.",
	.examples = "  gpuward compare fp32.json fp16.json int8.json\n"
		    "  gpuward compare --format=markdown runs/*.json >> RESULTS.md\n"
		    "  gpuward compare --format=sentence --reference=fp32 *.json\n"
		    "  gpuward compare --metric=energy --json a.json b.json\n",
	.arguments = "RESULT...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = compare_run,
};
