/* diff: shows the differences between two measurements. */
#include "cli.h"
#include "diff.h"
#include "output.h"
#include "table.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "base/number.h"
#include "base/utf8.h"
#include "serve/render_result.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct given {
	bool all;
};

static bool given_all(const struct cli *c)
{
	return ((const struct given *)c->own)->all;
}

static bool has_environment(const struct bundle_opened *e)
{
	return json_doc_type(result_file_document(&e->result), "environment") ==
	       JSON_DOC_OBJECT;
}

/* Returns true if the row is shown. If a bundle has no result, it has no data about the
 * machine. Rows with unknown values are then hidden, because one note says why they are
 * missing. */
static bool is_shown(const struct diff_row *row, const struct bundle_opened *a,
		     const struct bundle_opened *b, bool all)
{
	if (all || row->headline || row->state == STATE_DIFFERS)
		return true;
	if (row->state != STATE_UNKNOWN)
		return false;
	if (row->section == SECTION_ENVIRONMENT || row->section == SECTION_GPU)
		return has_environment(a) && has_environment(b);
	return !(a->bundle_rebuilt || b->bundle_rebuilt);
}

/* The name of each section in JSON, and its title in the table. */
static const struct {
	const char *name, *title;
} sections[SECTIONS] = {
	[SECTION_FIGURES] = { "figures", "Figures" },
	[SECTION_CODES] = { "codes", "Codes" },
	[SECTION_PROCESSES] = { "processes", "Processes" },
	[SECTION_SETTINGS] = { "settings", "Settings" },
	[SECTION_ENVIRONMENT] = { "environment", "Machine" },
	[SECTION_GPU] = { "gpu", "GPU" },
	[SECTION_SENSOR] = { "sensor", "Sensor" },
};

static const char *diff_state_name(enum diff_state s)
{
	static const char *const names[] = { "equal", "differs", "cannot-tell", "unknown" };

	return names[s];
}

static bool all_invalid(const struct comparison_row *row)
{
	return row && row->nruns && !row->used;
}

/* Writes one sentence that says whether the energies differ. */
static void diff_verdict(const struct diff *d, char *out, size_t size)
{
	const struct diff_row *energy = d->rows; /* The first row is always the energy. */
	double change = energy->change.change;
	char text[96];

	comparison_change_text(&energy->change, text, sizeof(text));
	if (isnan(change))
		snprintf(out, size, "The energies cannot be compared: %s.",
			 all_invalid(d->a) || all_invalid(d->b) ? "no valid run"
								: "one of them is unknown");
	else if (isnan(energy->change.change_low))
		snprintf(out, size, "B relative to A: energy %s. The uncertainty is unknown.",
			 text);
	else if (compare_verdict(&energy->change) == COMPARE_UNKNOWN)
		snprintf(out, size,
			 "B relative to A: energy %s. A and B have one run each, so the "
			 "variation between runs is unknown. It is therefore unknown whether A "
			 "and B differ.",
			 text);
	else if (energy->state == STATE_DIFFERS)
		snprintf(out, size,
			 "B relative to A: energy %s. The difference is larger than the "
			 "uncertainty.",
			 text);
	else
		snprintf(out, size,
			 "B relative to A: energy %s. The difference is within the "
			 "uncertainty, so it is unknown whether A and B differ.",
			 text);
}

static void note_side(const struct comparison_row *row, const char *name,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	char text[160];

	if (!row || row->nruns == 0)
		snprintf(text, sizeof(text), "%s has no run.", name);
	else if (row->used == 0)
		snprintf(text, sizeof(text),
			 "%s has no valid run; its figures are shown but not compared.", name);
	else if (row->used < row->nruns)
		snprintf(text, sizeof(text),
			 "%s: %zu of %zu runs %s invalid and not part of the figures.", name,
			 row->nruns - row->used, row->nruns,
			 row->nruns - row->used == 1 ? "is" : "are");
	else
		return;
	say(ctx, text);
}

/* Adds the notes that depend on the number of runs of A and B. */
static void note_runs(const struct diff *d, const struct compare_change *energy,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	bool first = d->a->figure[METRIC_ENERGY].n == 1;

	if (energy->basis == COMPARE_BUDGET)
		say(ctx, "A and B have one run each. The interval of the change contains only "
			 "the uncertainty of the measurement, not the variation between runs.");
	if (energy->basis == COMPARE_ONE_SIDE)
		say(ctx, first ? "A has one run, which is assumed to vary like the runs of B."
			       : "B has one run, which is assumed to vary like the runs of A.");
	if (!first || d->b->figure[METRIC_ENERGY].n > 1)
		say(ctx,
		    "Changes are ratios of geometric means; A and B are arithmetic means.");
}

static void note_sums(const struct comparison_row *row, const char *name,
		      void (*say)(void *ctx, const char *sentence), void *ctx)
{
	char text[80];

	if (!row || comparison_gpus(row) < 2)
		return;
	snprintf(text, sizeof(text), "Power and energy of %s are sums over %zu GPUs.", name,
		 comparison_gpus(row));
	say(ctx, text);
}

/* Returns true if at least one run of the row has a baseline and a net energy. */
static bool has_baseline(const struct comparison_row *row)
{
	for (size_t i = 0; row && i < row->nruns; i++)
		if (!isnan(row->runs[i].run->figures.energy_net_j.best))
			return true;
	return false;
}

static void note_baseline(const struct diff *d, void (*say)(void *ctx, const char *sentence),
			  void *ctx)
{
	bool a = has_baseline(d->a), b = has_baseline(d->b);

	if (a != b && d->a && d->b)
		say(ctx, a ? "Only A has a baseline, so net energies cannot be compared; gross "
			     "energies can. Measure B again with --baseline."
			   : "Only B has a baseline, so net energies cannot be compared; gross "
			     "energies can. Measure A again with --baseline.");
}

/* Calls say() with each sentence that the reader needs to interpret the rows correctly. */
static void diff_notes(const struct diff *d, void (*say)(void *ctx, const char *sentence),
		       void *ctx)
{
	const struct compare_change *energy = &d->rows[0].change;

	note_side(d->a, "A", say, ctx);
	note_side(d->b, "B", say, ctx);
	note_sums(d->a, "A", say, ctx);
	note_sums(d->b, "B", say, ctx);
	if (d->other_gpu)
		say(ctx, "A and B were measured on different GPUs or drivers. The gain errors "
			 "of their sensors do not cancel, so the intervals of the changes "
			 "include them.");
	else if (d->other_scale)
		say(ctx, "A and B have different calibrations. The gain error of the sensor "
			 "does not cancel, so the intervals of the changes include it.");
	else if (!isnan(energy->change))
		say(ctx,
		    "Intervals are 95 %. Intervals of energies include the gain and offset "
		    "error of the sensor. The gain error cancels in the changes, except in net "
		    "energy.");
	note_baseline(d, say, ctx);
	if (!isnan(energy->change))
		note_runs(d, energy, say, ctx);
}

enum { WHAT, SIDE_A, SIDE_B, CHANGE };

static const struct table_column columns[] = {
	[WHAT] = { "", 0, false, true },    [SIDE_A] = { "A", 0, false, true },
	[SIDE_B] = { "B", 0, false, true }, [CHANGE] = { "CHANGE", 1, false, false },
	{ NULL, 0, false, false },
};

#define CELL 300

/* Returns the scale for the time, energy or power of a row. The scale suits both A and B, and
 * `gpuward compare` uses the same scale for the same figures. */
static struct comparison_scale row_scale(const struct diff_row *row, const char *unit)
{
	struct gw_interval both[] = { { row->a.low, row->a.number, row->a.high },
				      { row->b.low, row->b.number, row->b.high } };

	return comparison_scale_of(both, 2, unit);
}

/* Writes a value, or the half width of its interval, in the unit of the row. Headline rows have
 * the same decimals as in `gpuward compare`. */
static void scaled_text(const struct diff_row *row, double v, const char *unit, char *out,
			size_t size)
{
	const struct comparison_scale s = row_scale(row, unit);

	if (row->headline)
		snprintf(out, size, "%.*f %s", s.decimals, comparison_scaled(&s, v),
			 term_plain(s.unit));
	else
		snprintf(out, size, "%.4g %s", v * s.factor, term_plain(s.unit));
}

/* Writes a number with the unit that its key names. */
static void number_text(const struct diff_row *row, double v, char *out, size_t size)
{
	switch (figure_unit(row->key)) {
	case UNIT_BYTES: comparison_size_text(v, out, size); return;
	case UNIT_HERTZ: snprintf(out, size, "%.0f MHz", v / 1e6); return;
	case UNIT_RATIO:
		snprintf(out, size, "%.2f %%", number_without_minus_zero(100 * v, 2));
		return;
	case UNIT_CELSIUS: snprintf(out, size, "%.3g %s", v, term_plain("°C")); return;
	case UNIT_WATTS: scaled_text(row, v, "W", out, size); return;
	case UNIT_SECONDS: scaled_text(row, v, "s", out, size); return;
	case UNIT_JOULES: scaled_text(row, v, "J", out, size); return;
	case UNIT_LANES:
	case UNIT_NONE: snprintf(out, size, "%.8g", v); return;
	}
}

/* Adds the interval to the value: "2.083 kJ ±0.112". Adds both ends instead if the interval is
 * not symmetric because it was cut at 0. Adds nothing if both ends look equal. */
static void add_interval(const struct diff_row *row, const struct diff_value *v,
			 char out[static CELL])
{
	char low[32], high[32], half[32];
	size_t n = strlen(out);

	number_text(row, v->low, low, sizeof(low));
	number_text(row, v->high, high, sizeof(high));
	number_text(row, v->high - v->number, half, sizeof(half));
	low[strcspn(low, " ")] = '\0';
	high[strcspn(high, " ")] = '\0';
	half[strcspn(half, " ")] = '\0';
	if (strcmp(low, high) == 0)
		return;
	if (fabs(v->high + v->low - 2 * v->number) < 1e-6 * (v->high - v->low))
		snprintf(out + n, CELL - n, " %s%s", term_plain("±"), half);
	else
		snprintf(out + n, CELL - n, " [%s, %s]", low, high);
}

/* Which intervals a table leaves out, so that the column of changes fits into a narrow
 * terminal. */
enum detail { ALL_INTERVALS, NO_INTERVAL_OF_CHANGE, NO_INTERVAL, DETAILS };

static void value_text(const struct diff_row *row, const struct diff_value *v,
		       enum detail detail, char out[static CELL])
{
	*out = '\0';
	if (v->text)
		utf8_clean(out, CELL, v->text);
	else if (!isnan(v->number))
		number_text(row, v->number, out, CELL);
	if (!v->text && !isnan(v->number) && !isnan(v->low) && detail != NO_INTERVAL)
		add_interval(row, v, out);
}

static const char *missing_text(const struct diff_row *row)
{
	return row->section == SECTION_CODES       ? "no"
	       : row->section == SECTION_PROCESSES ? "not there"
	       : row->section == SECTION_SETTINGS  ? "not given"
						   : "not known";
}

static void set_value(struct table *t, unsigned column, const struct diff_row *row,
		      const struct diff_value *v, enum detail detail)
{
	char cell[CELL];

	value_text(row, v, detail, cell);
	if (*cell)
		table_set(t, column, TERM_PLAIN, "%s", cell);
	else
		table_set(t, column, TERM_DIM, "%s", missing_text(row));
}

static void set_change(struct table *t, const struct diff_row *row, enum detail detail)
{
	char cell[96], text[CELL];

	comparison_change_text(&row->change, cell, sizeof(cell));
	if (detail != ALL_INTERVALS && strstr(cell, " ["))
		*strstr(cell, " [") = '\0';
	if (*cell) {
		table_set(t, CHANGE, row->state == STATE_DIFFERS ? TERM_MARK : TERM_DIM, "%s%s",
			  cell, row->state == STATE_OPEN ? ", inconclusive" : "");
	} else if (row->state == STATE_DIFFERS && !isnan(row->a.number) &&
		   !isnan(row->b.number)) {
		number_text(row, fabs(row->b.number - row->a.number), text, sizeof(text));
		/* The values are ratios. Their change is the difference, in percentage
		 * points. */
		if (figure_unit(row->key) == UNIT_RATIO)
			snprintf(text + strlen(text) - 1, 8, "points");
		table_set(t, CHANGE, TERM_PLAIN, "%s%s",
			  row->b.number < row->a.number ? "-" : "+", text);
	}
}

static void add_row(struct table *t, const struct diff_row *row, enum detail detail)
{
	char title[CELL];

	utf8_clean(title, sizeof(title), row->title);
	table_row(t);
	table_set(t, WHAT,
		  row->state == STATE_DIFFERS && !row->headline ? TERM_BOLD : TERM_PLAIN, "%s",
		  title);
	set_value(t, SIDE_A, row, &row->a, detail);
	set_value(t, SIDE_B, row, &row->b, detail);
	set_change(t, row, detail);
}

static void section_title(const struct diff_row *row, char *out, size_t size)
{
	if (row->device < 0)
		snprintf(out, size, "%s", sections[row->section].title);
	else if (row->section == SECTION_GPU)
		snprintf(out, size, "GPU %d", row->device);
	else
		snprintf(out, size, "%s of GPU %d", sections[row->section].title, row->device);
}

/* Returns the terminal width at which the column of changes would be shown. Returns 0 if the
 * column is shown already. */
static unsigned room_for_changes(const struct table *t)
{
	bool left[TABLE_COLUMNS_MAX];
	unsigned width = table_hidden(t, term_width(), left);

	return width && left[CHANGE] ? width : 0;
}

/* Fills a table with row `first` and the rows after it that have the same section and GPU.
 * Returns the index of the next row. */
static size_t fill_section(struct table *t, const struct diff *d, size_t first,
			   const struct bundle_opened *a, const struct bundle_opened *b,
			   bool all, enum detail detail)
{
	const struct diff_row *row = &d->rows[first];
	size_t i;

	for (i = first; i < d->nrows && d->rows[i].section == row->section &&
			d->rows[i].device == row->device;
	     i++)
		if (is_shown(&d->rows[i], a, b, all))
			add_row(t, &d->rows[i], detail);
	return i;
}

/* Prints row `first` and the rows after it that have the same section and GPU. Returns the
 * index of the next row. *wide is the largest terminal width that any table has needed so
 * far. */
static size_t print_section(const struct diff *d, size_t first, const struct bundle_opened *a,
			    const struct bundle_opened *b, bool all, unsigned *wide)
{
	const struct diff_row *row = &d->rows[first];
	struct table_column with_title[COUNT(columns)];
	char title[48];
	unsigned needed = 0;
	struct table t;
	size_t i;

	section_title(row, title, sizeof(title));
	memcpy(with_title, columns, sizeof(columns));
	with_title[WHAT].title = title;
	for (unsigned detail = ALL_INTERVALS;; detail++) {
		table_init(&t, with_title);
		i = fill_section(&t, d, first, a, b, all, (enum detail)detail);
		if (t.rows == 0 || t.error || !room_for_changes(&t))
			break;
		if (!needed)
			needed = room_for_changes(&t);
		if (detail + 1 == DETAILS)
			break;
		table_done(&t);
	}
	if (t.rows)
		printf("\n");
	table_print(&t, term_width());
	*wide = needed > *wide ? needed : *wide;
	table_done(&t);
	return i;
}

static void print_sentence(void *ctx, const char *sentence)
{
	char clean[BUNDLE_OPENED_NOTE];

	(void)ctx;
	utf8_clean(clean, sizeof(clean), sentence);
	term_wrap("", 0, clean, term_width());
}

static void print_side(const char *name, const struct bundle_opened *e)
{
	char path[512], label[256], when[64];

	utf8_clean(path, sizeof(path), e->path);
	utf8_clean(label, sizeof(label), e->result.label);
	utf8_clean(when, sizeof(when), e->result.time ? e->result.time : "time unknown");
	term_row(3, name, "%s (%s, %s)", path, label, when);
}

static void print_counts(const struct diff *d, bool all)
{
	size_t differ = d->count[STATE_DIFFERS], equal = d->count[STATE_EQUAL];
	size_t open = d->count[STATE_OPEN], one = d->count[STATE_UNKNOWN];
	char text[256];

	snprintf(text, sizeof(text),
		 "%zu of %zu values differ%s%.0zu%s, %zu %s in only one of A and B.%s", differ,
		 differ + equal + open + one, open ? ", " : "", open,
		 !open       ? ""
		 : open == 1 ? " is inconclusive"
			     : " are inconclusive",
		 one, one == 1 ? "is" : "are",
		 all || !equal ? "" : " --all also shows the values that are equal.");
	print_sentence(NULL, text);
}

static void print_notes(const struct diff *d, const struct bundle_opened *a,
			const struct bundle_opened *b)
{
	const struct bundle_opened *both[] = { a, b };

	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < both[k]->notes; i++)
			print_sentence(NULL, both[k]->note[i]);
	diff_notes(d, print_sentence, NULL);
}

static int print_text(const struct cli *c, const struct diff *d, const struct bundle_opened *a,
		      const struct bundle_opened *b)
{
	char verdict[300], room[96];
	unsigned wide = 0;

	if (a->result.simulated || b->result.simulated)
		printf("%s SIMULATED %s the GPUs of %s are not real\n", term_on(TERM_MARK),
		       term_off(),
		       a->result.simulated && b->result.simulated ? "A and B"
		       : a->result.simulated                      ? "A"
								  : "B");
	print_side("A", a);
	print_side("B", b);
	diff_verdict(d, verdict, sizeof(verdict));
	print_sentence(NULL, verdict);
	for (size_t i = 0; i < d->nrows;)
		i = print_section(d, i, a, b, given_all(c), &wide);
	printf("\n");
	if (wide) {
		snprintf(room, sizeof(room),
			 "Some figures are hidden because the terminal is narrow; to see all, "
			 "use %u columns.",
			 wide);
		print_sentence(NULL, room);
	}
	print_counts(d, given_all(c));
	if (!c->quiet)
		print_notes(d, a, b);
	return EXIT_OK;
}

static void json_value(struct json *j, const char *key, const struct diff_value *v)
{
	if (v->text)
		json_string(j, key, v->text);
	else
		json_double(j, key, v->number);
}

static void json_band(struct json *j, const char *key, double low, double best, double high)
{
	struct gw_interval v = { low, isnan(low) ? NAN : best, high };

	render_interval(j, key, &v);
}

static void json_row(struct json *j, const struct diff_row *row)
{
	json_object(j, NULL);
	json_string(j, "section", sections[row->section].name);
	if (row->device >= 0)
		json_int(j, "device", row->device);
	else
		json_null(j, "device");
	json_string(j, "key", row->key);
	json_string(j, "state", diff_state_name(row->state));
	json_value(j, "a", &row->a);
	json_value(j, "b", &row->b);
	if (row->headline) {
		const struct compare_change *ch = &row->change;

		json_band(j, "a_interval", row->a.low, row->a.number, row->a.high);
		json_band(j, "b_interval", row->b.low, row->b.number, row->b.high);
		json_double(j, "change_ratio", ch->change);
		json_band(j, "change_interval", ch->change_low, ch->change, ch->change_high);
	}
	json_object_end(j);
}

static void json_side(struct json *j, const char *key, const struct bundle_opened *e)
{
	json_object(j, key);
	json_string(j, "path", e->path);
	json_bool(j, "bundle", e->bundle);
	json_bool(j, "remade", e->bundle_rebuilt);
	json_string(j, "label", e->result.label);
	json_string(j, "time", e->result.time);
	json_string(j, "version", e->result.tool_version);
	json_bool(j, "simulated", e->result.simulated);
	json_array(j, "notes");
	for (unsigned i = 0; i < e->notes; i++)
		json_string(j, NULL, e->note[i]);
	json_array_end(j);
	json_object_end(j);
}

static void json_note(void *ctx, const char *sentence)
{
	json_string(ctx, NULL, sentence);
}

static int print_json(const struct cli *c, const struct diff *d, const struct bundle_opened *a,
		      const struct bundle_opened *b)
{
	char time[CLOCK_RFC3339_SIZE], verdict[300];
	struct cli_document doc;
	struct json *j = &doc.json;

	clock_format_rfc3339(clock_wall_ns(clock_real()), time);
	diff_verdict(d, verdict, sizeof(verdict));
	cli_document_begin(&doc, true);
	json_object(j, NULL);
	json_uint(j, "schema_version", RENDER_SCHEMA_VERSION);
	json_string(j, "kind", "difference");
	json_string(j, "time_utc", time);
	json_side(j, "a", a);
	json_side(j, "b", b);
	json_string(j, "energy", diff_state_name(d->rows[0].state));
	json_string(j, "sentence", verdict);
	json_object(j, "count");
	for (unsigned s = 0; s <= STATE_UNKNOWN; s++)
		json_uint(j, diff_state_name(s), d->count[s]);
	json_object_end(j);
	json_array(j, "rows");
	for (size_t i = 0; i < d->nrows; i++)
		if (is_shown(&d->rows[i], a, b, given_all(c)))
			json_row(j, &d->rows[i]);
	json_array_end(j);
	json_array(j, "notes");
	diff_notes(d, json_note, j);
	json_array_end(j);
	json_object_end(j);
	return cli_document_end(&doc);
}

static int diff_print(struct cli *c, const struct bundle_opened *a,
		      const struct bundle_opened *b)
{
	struct diff d;
	int code;

	if (diff_init(&d, a, b) != 0)
		return cli_no_memory();
	code = c->json ? print_json(c, &d, a, b) : print_text(c, &d, a, b);
	diff_done(&d);
	return code;
}

/* Opens both measurements even if the first fails, so that both errors are reported. */
static int diff_run(struct cli *c)
{
	char message[BUNDLE_OPENED_NOTE];
	struct bundle_opened *e;
	bool opened[2];
	int code = EXIT_OK;

	if (c->argc != 2)
		return cli_usage("diff needs two bundles or results of gpuward measure: "
				 "gpuward diff A B");
	e = calloc(2, sizeof(*e));
	if (!e)
		return cli_no_memory();
	for (unsigned i = 0; i < 2; i++) {
		opened[i] = bundle_open(&e[i], c->argv[i], message, sizeof(message)) == 0;
		if (!opened[i])
			code = cli_fail("%s", message);
	}
	if (code == EXIT_OK)
		code = diff_print(c, &e[0], &e[1]);
	for (unsigned i = 0; i < 2; i++)
		if (opened[i])
			bundle_opened_done(&e[i]);
	free(e);
	return code;
}

static const struct option options[] = {
	OPTION_ROW(FLAG, 'a', "all", offsetof(struct given, all), NULL,
		   "also show values that are equal, and values that are known in only one of "
		   "the two"),
	OPTION_END,
};

const struct command command_diff = {
	.name = "diff",
	.summary = "show why two measurements differ: settings, machine, sensor, figures",
	.description =
		"Compares two bundles (gpuward measure --bundle) or results (gpuward measure "
		"-o) and shows the differences: the figures, and whether the energies differ "
		"by more than their uncertainty; codes that only one of them has; processes on "
		"the GPUs; the settings of the measurement; the machine, the GPUs and their "
		"sensors. If a bundle is truncated, the part that was written is compared.",
	.examples = "  gpuward diff monday tuesday\n"
		    "  gpuward diff --all fp32.json fp16.json\n"
		    "  gpuward diff --json a b | jq '.rows[] | select(.section == \"gpu\")'\n",
	.arguments = "A B",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.run = diff_run,
};
