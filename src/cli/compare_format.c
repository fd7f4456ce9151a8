#include "compare_view.h"
#include "term.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/utf8.h"
#include "measure/sensor.h"
#include "serve/render_result.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *comparison_room(const struct comparison_row *row)
{
	static const char *const words[] = { "none", "kept", "lost" };

	for (unsigned i = 0; i <= ROOM_LOST; i++)
		if (row->used && row->rooms[i] == row->used)
			return words[i];
	return row->used ? "mixed" : NULL;
}

static size_t count_rooms(const struct comparison *c, enum result_room room)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++)
		n += c->rows[i].rooms[room];
	return n;
}

bool comparison_has_rooms(const struct comparison *c)
{
	return count_rooms(c, ROOM_KEPT) + count_rooms(c, ROOM_LOST) > 0;
}

/* Returns the largest absolute value of the three numbers; NAN if none is known. */
static double size_of(const struct gw_interval *v)
{
	return fmax(fabs(v->best), fmax(fabs(v->low), fabs(v->high)));
}

/* Returns the geometric mean of the sizes; NAN if no size is known. */
static double typical_size(const struct gw_interval *v, size_t n)
{
	double logs = 0;
	size_t known = 0;

	for (size_t i = 0; i < n; i++)
		if (size_of(&v[i]) > 0) {
			logs += log(size_of(&v[i]));
			known++;
		}
	return known ? exp(logs / (double)known) : NAN;
}

static double narrowest_half(const struct gw_interval *v, size_t n)
{
	double half = INFINITY;

	for (size_t i = 0; i < n; i++)
		if (v[i].high > v[i].low)
			half = fmin(half, (v[i].high - v[i].low) / 2);
	return half;
}

/* Largest number of decimals that are added to show the width of an interval. */
#define MORE_DECIMALS 3

struct comparison_scale comparison_scale_of(const struct gw_interval *v, size_t n,
					    const char *unit)
{
	static const struct {
		char unit;
		double factor;
		const char *text;
	} scales[] = { { 's', 1e9, "ns" }, { 's', 1e6, "µs" },  { 's', 1e3, "ms" },
		       { 's', 1, "s" },    { 'J', 1e6, "µJ" },  { 'J', 1e3, "mJ" },
		       { 'J', 1, "J" },    { 'J', 1e-3, "kJ" }, { 'J', 1e-6, "MJ" },
		       { 'W', 1e3, "mW" }, { 'W', 1, "W" } };
	struct comparison_scale s = { 1, 3, unit };
	double typical = typical_size(v, n), half = narrowest_half(v, n), shown;
	int most;

	if (!(typical > 0))
		return s;
	for (size_t i = 0; i < COUNT(scales); i++) {
		if (scales[i].unit != *unit)
			continue;
		s.factor = scales[i].factor;
		s.unit = scales[i].text;
		if (typical * s.factor < 1000)
			break;
	}
	shown = typical * s.factor;
	s.decimals = shown >= 1000 ? 0 : shown >= 100 ? 1 : shown >= 10 ? 2 : 3;
	most = s.decimals + MORE_DECIMALS;
	while (s.decimals < most && half * s.factor * pow(10, s.decimals) < 10)
		s.decimals++;
	return s;
}

struct comparison_scale comparison_scale(const struct comparison *c, enum comparison_metric m)
{
	const char *unit = m == METRIC_TIME ? "s" : m == METRIC_POWER ? "W" : "J";
	struct gw_interval *v = calloc(c->nrows, sizeof(*v));
	struct comparison_scale s;

	for (size_t i = 0; v && i < c->nrows; i++) {
		const struct comparison_figure *f = &c->rows[i].figure[m];

		v[i] = (struct gw_interval){ f->low, f->mean, f->high };
	}
	s = comparison_scale_of(v, v ? c->nrows : 0, unit);
	free(v);
	return s;
}

double comparison_scaled(const struct comparison_scale *s, double v)
{
	return number_without_minus_zero(v * s->factor, s->decimals);
}

bool comparison_has_width(const struct comparison_scale *s, double low, double high)
{
	char a[64], b[64];

	snprintf(a, sizeof(a), "%.*f", s->decimals, comparison_scaled(s, low));
	snprintf(b, sizeof(b), "%.*f", s->decimals, comparison_scaled(s, high));
	return !isnan(low) && !isnan(high) && strcmp(a, b) != 0;
}

/* Writes bytes in the largest unit in which the number is at least 1.  Writes up to six digits
 * if the number is then exact, else four.  Returns true if the written number is exact. */
static bool size_in(double bytes, double base, const char *const units[static 5], char *out,
		    size_t size)
{
	unsigned u = 0;
	char text[32];
	bool exact;

	while (bytes >= base && u < 4) {
		bytes /= base;
		u++;
	}
	snprintf(text, sizeof(text), "%.6g", bytes);
	exact = strtod(text, NULL) == bytes;
	if (!exact)
		snprintf(text, sizeof(text), "%.4g", bytes);
	snprintf(out, size, "%s %s", text, units[u]);
	return exact;
}

void comparison_size_text(double bytes, char *out, size_t size)
{
	static const char *const tens[] = { "B", "kB", "MB", "GB", "TB" };
	static const char *const twos[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	char decimal[48];
	bool ten = size_in(bytes, 1000, tens, decimal, sizeof(decimal));
	bool two = size_in(bytes, 1024, twos, out, size);

	/* If both texts are exact, choose the shorter one: it probably has the unit that the
	 * user gave. */
	if (ten && (!two || strlen(decimal) < strlen(out)))
		snprintf(out, size, "%s", decimal);
}

double comparison_per_cent(double ratio, int decimals)
{
	return number_without_minus_zero(100 * ratio, decimals);
}

#define CHANGE_DECIMALS_MAX 3

/* Returns true if both ends of the interval are printed as the same number. */
static bool change_is_flat(const struct compare_change *c, int decimals)
{
	struct comparison_scale s = { 100, decimals, "%" };

	return !comparison_has_width(&s, c->change_low, c->change_high);
}

int comparison_change_decimals(const struct compare_change *c)
{
	const double widest =
		fmax(fabs(c->change), fmax(fabs(c->change_low), fabs(c->change_high)));
	const double nearest = c->change_low * c->change_high > 0
				       ? fmin(fabs(c->change_low), fabs(c->change_high))
				       : widest;
	const int least = widest >= 1 ? 0 : 1;
	int decimals = least;

	if (isnan(c->change_low))
		return least;
	while (decimals > 0 && decimals < CHANGE_DECIMALS_MAX &&
	       comparison_per_cent(nearest, decimals) == 0)
		decimals++;
	while (decimals < CHANGE_DECIMALS_MAX && change_is_flat(c, decimals))
		decimals++;
	/* Even with the most decimals, both ends look equal. Do not print digits that mean
	 * nothing. */
	if (change_is_flat(c, decimals) && comparison_per_cent(nearest, least) != 0)
		return least;
	return decimals;
}

bool comparison_change_text(const struct compare_change *change, char *out, size_t size)
{
	int decimals = comparison_change_decimals(change);
	double best = comparison_per_cent(change->change, decimals),
	       low = comparison_per_cent(change->change_low, decimals),
	       high = comparison_per_cent(change->change_high, decimals);
	const bool none = !isnan(low) && decimals == CHANGE_DECIMALS_MAX && best == 0 &&
			  low == 0 && high == 0;

	if (isnan(change->change))
		*out = '\0';
	else if (none)
		snprintf(out, size, "no difference [within 0.001 %%]");
	else if (change_is_flat(change, decimals))
		snprintf(out, size, "%+.*f %%", decimals, best);
	else
		snprintf(out, size, "%+.*f %% [%+.*f, %+.*f]", decimals, best, decimals, low,
			 decimals, high);
	return !none;
}

struct notes {
	void (*say)(void *ctx, const char *sentence);
	void *ctx;
	struct buf b;
};

static void note_begin(struct notes *n)
{
	buf_clear(&n->b);
}

static void note_end(struct notes *n)
{
	n->say(n->ctx, n->b.p);
}

static void __attribute__((format(printf, 2, 3)))
add_note(struct notes *n, const char *fmt, ...)
{
	va_list ap;

	note_begin(n);
	va_start(ap, fmt);
	buf_addv(&n->b, fmt, ap);
	va_end(ap);
	note_end(n);
}

static bool run_has(const struct result_run *run, const char *code)
{
	for (size_t i = 0; i < run->ncodes; i++)
		if (run->codes[i].code && strcmp(run->codes[i].code, code) == 0)
			return true;
	return false;
}

/* Adds a note about a code. Adds none if a run before run number `first` has the same code. */
static void note_code(struct notes *n, const struct comparison_row *row, size_t first,
		      const struct result_code *code)
{
	size_t count = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		if (!run_has(row->runs[i].run, code->code))
			continue;
		if (i < first)
			return; /* The notes already explain this code. */
		count++;
	}
	note_begin(n);
	buf_addf(&n->b, "%s: %s: %s", row->label, result_code_level(code), code->code);
	if (row->nruns > 1)
		buf_addf(&n->b, " in %zu of %zu runs", count, row->nruns);
	if (code->sentence)
		buf_addf(&n->b, ": %s", code->sentence);
	if (code->evidence)
		buf_addf(&n->b, "; %s%s", row->nruns > 1 ? "first: " : "", code->evidence);
	note_end(n);
}

/* Adds a note if the runs have different numbers of iterations. Such runs did different work,
 * so they are not trials of the same row. */
static void note_iterations(struct notes *n, const struct comparison_row *row)
{
	double least = INFINITY, most = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		double v = row->runs[i].run->figures.iterations;

		if (!result_run_usable(row->runs[i].run) || isnan(v))
			continue;
		least = fmin(least, v);
		most = fmax(most, v);
	}
	if (most > least)
		add_note(n,
			 "%s: its runs have different numbers of iterations (%.0f to %.0f), so "
			 "its values are means of different work; give these runs different "
			 "labels",
			 row->label, least, most);
}

/* Adds a note for each interval that was cut at 0. */
static void note_cuts(struct notes *n, const struct comparison_row *row)
{
	for (unsigned m = 0; m < METRICS; m++)
		if (row->figure[m].cut)
			add_note(n,
				 "%s: the interval of %s reaches below 0 and is cut at 0; more "
				 "runs make it narrower",
				 row->label, comparison_metric_name((enum comparison_metric)m));
}

static void note_row(struct notes *n, const struct comparison_row *row)
{
	for (size_t i = 0; i < row->nruns; i++) {
		const struct result_run *run = row->runs[i].run;

		for (size_t k = 0; k < run->ncodes; k++) {
			/* True: this run already has this code, for another GPU. */
			bool again = false;

			for (size_t p = 0; p < k && run->codes[k].code; p++)
				again |= run->codes[p].code &&
					 strcmp(run->codes[p].code, run->codes[k].code) == 0;
			if (run->codes[k].code && !again)
				note_code(n, row, i, &run->codes[k]);
		}
	}
	if (row->nruns == 0)
		add_note(n, "%s: the result has no run", row->label);
	else if (row->nruns == 1 && row->used == 0)
		add_note(n, "%s: its only run is invalid and not used", row->label);
	else if (row->used < row->nruns)
		add_note(n, "%s: %zu of %zu runs %s invalid and not used", row->label,
			 row->nruns - row->used, row->nruns,
			 row->nruns - row->used == 1 ? "is" : "are");
}

/* Returns true if no earlier row, and no earlier run of this row, comes from the same file. A
 * file with several parts has a run in several rows. */
static bool first_of_file(const struct comparison *c, const struct comparison_row *row,
			  size_t run)
{
	for (const struct comparison_row *r = c->rows; r <= row; r++)
		for (size_t i = 0; i < (r == row ? run : r->nruns); i++)
			if (r->runs[i].file == row->runs[run].file)
				return false;
	return true;
}

static void note_lost_room(struct notes *n, const struct result_file *file)
{
	size_t listed = 0;

	note_begin(n);
	buf_addf(&n->b, "%s: the clean room was not kept", file->path);
	for (size_t i = 0; i < file->nworkers; i++)
		if (file->workers[i].broken)
			buf_addf(&n->b, "%s worker %s: %s", listed++ ? ";" : ":",
				 file->workers[i].name ? file->workers[i].name : "unnamed",
				 file->workers[i].broken);
	note_end(n);
}

/* Adds a note if only some runs were measured with --clean-room. In the other runs, workers of
 * the guard may have used the GPU, and this alone can change the result. */
static void note_rooms(struct notes *n, const struct comparison *c)
{
	size_t kept = count_rooms(c, ROOM_KEPT);
	size_t others = count_rooms(c, ROOM_LOST) + count_rooms(c, ROOM_NONE);

	for (size_t i = 0; i < c->nrows; i++)
		for (size_t k = 0; k < c->rows[i].nruns; k++)
			if (c->rows[i].runs[k].file->room == ROOM_LOST &&
			    first_of_file(c, &c->rows[i], k))
				note_lost_room(n, c->rows[i].runs[k].file);
	if (!kept || !others)
		return;
	note_begin(n);
	buf_adds(&n->b, "Only some of these runs had a clean room (");
	for (size_t i = 0, listed = 0; i < c->nrows; i++)
		if (c->rows[i].used)
			buf_addf(&n->b, "%s%s: %zu of %zu", listed++ ? ", " : "",
				 c->rows[i].label, c->rows[i].rooms[ROOM_KEPT],
				 c->rows[i].used);
	buf_adds(&n->b, "). In the other runs, workers of the guard may have used the GPU and "
			"changed the result. Measure all runs with --clean-room.");
	note_end(n);
}

/* Returns how well the sensor of a run is known: "active", "passive" or "assumed"; NULL: the
 * result does not contain this. */
static const char *origin_of(const struct comparison_run *r)
{
	return r->run->ndevices && result_run_usable(r->run) ? r->run->devices[0].sensor.origin
							     : NULL;
}

/* Adds a note if the sensor was characterised for some runs only. This alone changes the energy
 * of short runs a little. */
static void note_sensors(struct notes *n, const struct comparison *c)
{
	const char *first = NULL, *origin = NULL;
	const struct comparison_row *first_row = NULL;

	for (size_t i = 0; i < c->nrows; i++)
		for (size_t k = 0; k < c->rows[i].nruns; k++) {
			origin = origin_of(&c->rows[i].runs[k]);
			if (!origin || (first && strcmp(first, origin) == 0))
				continue;
			if (!first) {
				first = origin;
				first_row = &c->rows[i];
				continue;
			}
			add_note(n,
				 "The runs were measured with different knowledge about the "
				 "sensor (%s: %s; %s: %s). Use gpuward characterise, then "
				 "measure all runs again.",
				 first_row->label, sensor_origin_words_of(first),
				 c->rows[i].label, sensor_origin_words_of(origin));
			return;
		}
}

/* Adds a note that explains how the number of runs in each row affects the intervals. */
static void note_runs(struct notes *n, const struct comparison *c)
{
	bool once = false, each = false, lent = false;

	for (size_t i = 0; i < c->nrows; i++) {
		const struct comparison_row *row = &c->rows[i], *first = c->reference;

		once |= row->used == 1;
		each |= row != first && row->used == 1 && first->used == 1;
		lent |= row->used && (row->used == 1) != (first->used == 1);
	}
	if (each)
		add_note(n, "Each row has one run, so the variation between runs is unknown. "
			    "All intervals, also those of changes, contain only the "
			    "uncertainty of the measurement and do not show whether the rows "
			    "really differ.");
	else if (once)
		add_note(n, "The interval of a single run contains only the uncertainty of its "
			    "measurement, not the variation between runs.");
	if (lent)
		add_note(n, "In a change between one run and several runs, the single run is "
			    "assumed to vary like the others.");
}

static bool has_trials(const struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].used > 1)
			return true;
	return false;
}

/* Adds a text about the gain error of the sensor. The error cancels in the change from one row
 * to another if both have the same GPU and the same calibration; the text mentions this only if
 * there are such rows. The error never cancels in net energy. */
static void add_gain_text(struct notes *n, const struct comparison *c)
{
	bool cancels = false, scales = false;

	if (!comparison_has(c, METRIC_ENERGY))
		return;
	for (size_t i = 0; i < c->nrows; i++) {
		const struct comparison_row *row = &c->rows[i];

		scales |= row->other_scale;
		cancels |= row != c->reference && !row->other_gpu && !row->other_scale;
	}
	buf_adds(&n->b, ". Intervals of energies include the gain error of the sensor");
	if (cancels)
		buf_addf(&n->b, ". In a change between two rows of one GPU%s it cancels%s",
			 scales ? " with one calibration" : "",
			 comparison_has(c, METRIC_NET) ? ", except in net energy" : "");
}

/* Adds a note for each row with power and energy summed over several GPUs; a single note if all
 * rows have the same number of GPUs. */
static void note_sums(struct notes *n, const struct comparison *c)
{
	const size_t first = comparison_gpus(&c->rows[0]);
	bool same = true;

	for (size_t i = 1; i < c->nrows; i++)
		same = same && comparison_gpus(&c->rows[i]) == first;
	if (same && first > 1)
		add_note(n, "Power and energy are sums over %zu GPUs.", first);
	for (size_t i = 0; i < c->nrows && !same; i++)
		if (comparison_gpus(&c->rows[i]) > 1)
			add_note(n, "%s: power and energy are sums over %zu GPUs",
				 c->rows[i].label, comparison_gpus(&c->rows[i]));
}

static void note_reference(struct notes *n, const struct comparison *c)
{
	if (c->nrows < 2 || c->reference->used == 0)
		return;
	note_begin(n);
	buf_addf(&n->b, "Changes are relative to '%s'", c->reference->label);
	if (c->reference != c->rows && !c->reference_named)
		buf_addf(&n->b, ", the first row that can be compared: '%s' has no %s",
			 c->rows[0].label, c->rows[0].used ? "energy" : "usable run");
	/* The note is needed only with several runs: for one run, both kinds of mean are
	 * equal. */
	if (has_trials(c))
		buf_adds(&n->b, ". They are ratios of geometric means; the values in the table "
				"are arithmetic means");
	buf_adds(&n->b, ". Intervals are 95 %");
	add_gain_text(n, c);
	buf_adds(&n->b, ".");
	note_end(n);
}

void comparison_notes(const struct comparison *c, void (*say)(void *ctx, const char *sentence),
		      void *ctx)
{
	struct notes n = { .say = say, .ctx = ctx };
	bool others = false, scales = false;

	buf_init(&n.b, 1u << 16);
	for (size_t i = 0; i < c->nrows; i++) {
		note_row(&n, &c->rows[i]);
		note_iterations(&n, &c->rows[i]);
		note_cuts(&n, &c->rows[i]);
		others |= c->rows[i].other_gpu;
		scales |= c->rows[i].other_scale;
	}
	note_rooms(&n, c);
	note_sums(&n, c);
	note_sensors(&n, c);
	if (c->iterations_partly)
		add_note(&n, "The number of iterations is unknown for some runs, so whole runs "
			     "are compared.");
	note_runs(&n, c);
	if (others)
		add_note(&n, "The rows are from different GPUs. The gain errors of their "
			     "sensors do not cancel, so the intervals of the changes include "
			     "them.");
	else if (scales)
		add_note(&n, "The rows have different calibrations. The gain error of the "
			     "sensor does not cancel, so the intervals of the changes include "
			     "it.");
	note_reference(&n, c);
	buf_done(&n.b);
}

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
		snprintf(out, COMPARE_CELL, "%.*f %s (%.*f)", s->decimals,
			 comparison_scaled(s, f->mean), unit, s->decimals,
			 comparison_scaled(s, row->power_sd_w));
	} else {
		snprintf(out, COMPARE_CELL, "%.*f %s", s->decimals,
			 comparison_scaled(s, f->mean), unit);
	}
}

void compare_interval_text(const struct compare_view *v, const struct comparison_figure *f,
			   enum comparison_metric m, char out[static COMPARE_CELL])
{
	const struct comparison_scale *s = &v->scale[m];

	*out = '\0';
	if (comparison_has_width(s, f->low, f->high))
		snprintf(out, COMPARE_CELL, "[%.*f, %.*f]", s->decimals,
			 comparison_scaled(s, f->low), s->decimals,
			 comparison_scaled(s, f->high));
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

	if (comparison_simulated(v->c))
		buf_addf(out, "**SIMULATED**: %s\n\n", comparison_simulated_text(v->c));
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
	if (v->no_notes)
		return;
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
static const char *verdict_word(const struct compare_change *c, enum comparison_metric m)
{
	static const char *const words[] = {
		[COMPARE_LESS] = "less",
		[COMPARE_MORE] = "more",
		[COMPARE_OPEN] = "cannot-tell",
		[COMPARE_UNKNOWN] = "cannot-tell",
	};

	/* The user gives the size, so it is exact and a difference needs no statistical
	 * test. */
	if (m == METRIC_SIZE && !isnan(c->change) && c->change != 0)
		return words[c->change < 0 ? COMPARE_LESS : COMPARE_MORE];
	return isnan(c->change) ? NULL : words[compare_verdict(c)];
}

/* Adds a quoted text. A spreadsheet evaluates a text that begins with one of =+-@ as a formula,
 * so such a text gets an apostrophe in front. */
static void csv_text(struct buf *out, const char *text)
{
	char clean[1024], *s = clean;

	utf8_clean(clean, sizeof(clean), text);
	buf_adds(out, *s && strchr("=+-@", *s) ? "\"'" : "\"");
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
			const char *verdict = verdict_word(&f->change, m);

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
	json_string(j, "change_verdict", verdict_word(&f->change, m));
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
