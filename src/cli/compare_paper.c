#include "compare_view.h"

#include "base/array.h"
#include "base/number.h"
#include "base/utf8.h"
#include "measure/sensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds text and escapes the characters that are special in LaTeX. The micro sign is written as
 * a formula, because older LaTeX versions need a package for it. */
static void latex_text(struct buf *out, const char *s)
{
	static const struct {
		const char *from, *to;
	} rows[] = {
		{ "\\", "\\textbackslash{}" },
		{ "{", "\\{" },
		{ "}", "\\}" },
		{ "$", "\\$" },
		{ "&", "\\&" },
		{ "#", "\\#" },
		{ "_", "\\_" },
		{ "%", "\\%" },
		{ "~", "\\textasciitilde{}" },
		{ "^", "\\textasciicircum{}" },
		{ "<", "\\textless{}" },
		{ ">", "\\textgreater{}" },
		{ "|", "\\textbar{}" },
		{ "\"", "\\textquotedbl{}" },
		/* After \\, LaTeX would read [ as the start of an optional argument. */
		{ "[", "{[}" },
		{ "µ", "$\\mu$" },
	};
	char clean[1024];

	utf8_clean(clean, sizeof(clean), s);
	for (const char *p = clean; *p;) {
		size_t i = 0, n = COUNT(rows);

		while (i < n && strncmp(p, rows[i].from, strlen(rows[i].from)) != 0)
			i++;
		if (i < n) {
			buf_adds(out, rows[i].to);
			p += strlen(rows[i].from);
		} else {
			buf_addc(out, *p++);
		}
	}
}

/* Adds a number as a LaTeX formula. Only in a formula does "-" become a minus sign instead of a
 * hyphen. */
static void latex_number(struct buf *out, int decimals, double v, bool sign)
{
	buf_addf(out, sign ? "$%+.*f$" : "$%.*f$", decimals, v);
}

static void latex_interval(struct buf *out, int decimals, double low, double high, bool sign)
{
	struct comparison_scale s = { 1, decimals, "" };

	if (!comparison_has_width(&s, low, high))
		return;
	buf_adds(out, " {[}");
	latex_number(out, decimals, low, sign);
	buf_adds(out, ", ");
	latex_number(out, decimals, high, sign);
	buf_addc(out, ']');
}

static void latex_value(const struct compare_view *v, const struct comparison_row *row,
			enum comparison_metric m, struct buf *out)
{
	const struct comparison_figure *f = &row->figure[m];
	const struct comparison_scale *s = &v->scale[m];
	char size[COMPARE_CELL];

	buf_adds(out, " & ");
	if (isnan(f->mean)) {
		buf_adds(out, "--");
	} else if (m == METRIC_SIZE) {
		compare_value_text(v, row, m, size);
		latex_text(out, size);
	} else {
		latex_number(out, s->decimals, comparison_scaled(s, f->mean), false);
		if (m == METRIC_POWER && !isnan(row->power_sd_w))
			buf_addf(out, " (%.*f)", s->decimals, row->power_sd_w * s->factor);
		latex_interval(out, s->decimals, comparison_scaled(s, f->low),
			       comparison_scaled(s, f->high), false);
	}
}

static void latex_change(const struct compare_change *c, struct buf *out)
{
	int decimals = comparison_change_decimals(c);

	buf_adds(out, " & ");
	if (isnan(c->change)) {
		buf_adds(out, "--");
		return;
	}
	latex_number(out, decimals, comparison_per_cent(c->change, decimals), true);
	latex_interval(out, decimals, comparison_per_cent(c->change_low, decimals),
		       comparison_per_cent(c->change_high, decimals), true);
}

/* Returns true if the metric has a column for the change. The size has none, because it is
 * given and not measured. */
static bool has_change(const struct compare_view *v, enum comparison_metric m)
{
	return v->c->nrows > 1 && m != METRIC_SIZE;
}

static void latex_head(const struct compare_view *v, bool states, struct buf *out)
{
	buf_addf(out, "\\begin{tabular}{lr%s", states ? "l" : "");
	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m])
			buf_adds(out, has_change(v, m) ? "rr" : "r");
	buf_addf(out, "}\n\\toprule\nLabel & Runs%s", states ? " & Validity" : "");
	for (unsigned m = 0; m < METRICS; m++) {
		if (!v->shown[m])
			continue;
		buf_adds(out, " & ");
		latex_text(out, comparison_title(v->c, m));
		if (m != METRIC_SIZE) {
			buf_adds(out, " (");
			latex_text(out, v->scale[m].unit);
			buf_addc(out, ')');
		}
		if (has_change(v, m))
			buf_adds(out, " & Change (\\%)");
	}
	buf_adds(out, " \\\\\n\\midrule\n");
}

static unsigned latex_columns(const struct compare_view *v, bool states)
{
	unsigned n = states ? 3 : 2;

	for (unsigned m = 0; m < METRICS; m++)
		if (v->shown[m])
			n += has_change(v, m) ? 2 : 1;
	return n;
}

/* Returns true if the table needs a column for the validity of the rows. */
static bool needs_states(const struct comparison *c)
{
	for (size_t i = 0; i < c->nrows; i++)
		if (c->rows[i].simulated ||
		    strcmp(compare_row_state(&c->rows[i]), "valid") != 0)
			return true;
	return false;
}

static void latex_note(void *ctx, const char *sentence)
{
	char clean[4096];

	/* A line break in the sentence would end the LaTeX comment. */
	utf8_clean(clean, sizeof(clean), sentence);
	buf_addf(ctx, "%% %s\n", clean);
}

void compare_latex(const struct compare_view *v, struct buf *out)
{
	bool states = needs_states(v->c);

	if (!v->no_notes)
		buf_adds(out, "% needs \\usepackage{booktabs}; intervals are 95 %\n");
	latex_head(v, states, out);
	for (size_t i = 0; i < v->c->nrows; i++) {
		const struct comparison_row *row = &v->c->rows[i];

		latex_text(out, row->label);
		buf_addf(out, " & %zu", row->used);
		if (states) {
			buf_adds(out, " & ");
			latex_text(out, compare_row_state(row));
			buf_adds(out, row->simulated ? ", simulated" : "");
		}
		for (unsigned m = 0; m < METRICS; m++) {
			if (!v->shown[m])
				continue;
			latex_value(v, row, m, out);
			if (has_change(v, m))
				latex_change(&row->figure[m].change, out);
		}
		buf_adds(out, " \\\\\n");
	}
	if (comparison_simulated(v->c))
		buf_addf(out, "\\multicolumn{%u}{l}{\\textbf{SIMULATED}: %s} \\\\\n",
			 latex_columns(v, states), comparison_simulated_text(v->c));
	buf_adds(out, "\\bottomrule\n\\end{tabular}\n");
	if (!v->no_notes)
		comparison_notes(v->c, latex_note, out);
}

static const struct comparison_run *first_usable(const struct comparison_row *row)
{
	for (size_t i = 0; i < row->nruns; i++)
		if (result_run_usable(row->runs[i].run))
			return &row->runs[i];
	return NULL;
}

static bool same_gpu_and_limit(const struct result_device *a, const struct result_device *b)
{
	return a->name && b->name && strcmp(a->name, b->name) == 0 &&
	       (a->power_limit_w == b->power_limit_w ||
		(isnan(a->power_limit_w) && isnan(b->power_limit_w)));
}

/* Adds "one NVIDIA H200 (driver 580.159.04, power limit 700 W)" or "8 NVIDIA H200 (...)". */
static void add_gpus(struct buf *out, const struct result_run *run)
{
	const struct result_device *d = run->devices;
	size_t same = 0;

	if (run->ndevices == 0) {
		buf_adds(out, "an unknown GPU");
		return;
	}
	while (same < run->ndevices && same_gpu_and_limit(d, &run->devices[same]))
		same++;
	if (same < run->ndevices)
		buf_addf(out, "%zu GPUs, the first of them ", run->ndevices);
	else if (same > 1)
		buf_addf(out, "%zu ", same);
	else
		buf_adds(out, "one ");
	buf_addf(out, "%s (driver %s", d->name ? d->name : "unknown GPU",
		 d->driver_version ? d->driver_version : "unknown");
	if (!isnan(d->power_limit_w))
		buf_addf(out, ", power limit %.0f W", d->power_limit_w);
	buf_addc(out, ')');
}

/* Adds "6.69 J [6.35, 7.03]". */
static void add_value(struct buf *out, const struct compare_view *v,
		      const struct comparison_row *row, enum comparison_metric m)
{
	char value[COMPARE_CELL], interval[COMPARE_CELL];

	compare_value_text(v, row, m, value);
	compare_interval_text(v, &row->figure[m], m, interval);
	buf_addf(out, "%s%s%s", value, *interval ? " " : "", interval);
}

static const char *energy_unit(const struct comparison *c)
{
	return c->per_iteration ? "per iteration" : "per run";
}

static void add_runs(struct buf *out, const struct comparison_row *row)
{
	const struct comparison_run *first = first_usable(row);
	double iterations = first ? first->run->figures.iterations : NAN;
	double tokens = first ? first->run->figures.tokens : NAN;

	buf_addf(out, "%zu run%s", row->used, row->used == 1 ? "" : "s");
	if (iterations > 0)
		buf_addf(out, " of %.0f iterations", iterations);
	if (tokens > 0)
		buf_addf(out, "%s %.0f tokens", iterations > 0 ? " and" : " of", tokens);
}

/* Returns the kind of reading from which the energies of a row were computed; "" if no run
 * contains this. */
static const char *meter_words(const struct comparison_row *row)
{
	const char *counter = gw_meter_kind_name(GW_METER_COUNTER);
	bool by_counter = false, by_samples = false;

	for (size_t i = 0; i < row->nruns; i++) {
		const struct result_run *run = row->runs[i].run;

		for (size_t k = 0; result_run_usable(run) && k < run->ndevices; k++) {
			const char *meter = run->devices[k].energy.meter;

			by_counter |= meter && strcmp(meter, counter) == 0;
			by_samples |= meter && strcmp(meter, counter) != 0;
		}
	}
	return by_counter && by_samples
		       ? "partly by the energy counter, partly from power samples"
	       : by_counter ? "by the energy counter"
	       : by_samples ? "from power samples"
			    : "";
}

/* Returns a text that says whether the second energy source (counter or samples) confirms the
 * energy, or which single source the energy comes from. Returns "" if the result does not
 * contain this. */
static const char *verdict_words(const char *verdict)
{
	static const struct {
		enum gw_verdict verdict;
		const char *words;
	} rows[] = {
		{ GW_VERDICT_AGREE, ", energy counter and power samples agree" },
		{ GW_VERDICT_DISAGREE, ", energy counter and power samples disagree" },
		{ GW_VERDICT_COUNTER_ONLY, " alone" },
		{ GW_VERDICT_SAMPLES_ONLY, " of the driver alone" },
		{ GW_VERDICT_POLLED, " that were polled" },
		{ GW_VERDICT_MEAN_ONLY, " that were polled and are means of one second" },
		{ GW_VERDICT_TEXT, " that nvidia-smi printed" },
		{ GW_VERDICT_SYSFS, " from the files of the kernel" },
	};

	for (size_t i = 0; verdict && i < COUNT(rows); i++)
		if (strcmp(verdict, gw_verdict_name(rows[i].verdict)) == 0)
			return rows[i].words;
	return "";
}

/* Adds how the energy was measured, because a publication must state the method. */
static void add_method(struct buf *out, const struct comparison_row *row,
		       const struct comparison_run *first)
{
	const struct result_device *d = first->run->ndevices ? first->run->devices : NULL;

	buf_addf(out, "gross GPU energy%s%s", *meter_words(row) ? " " : "", meter_words(row));
	if (d && *meter_words(row))
		buf_adds(out, verdict_words(d->energy.verdict));
	if (d && d->sensor.origin)
		buf_addf(out, ", %s", sensor_origin_words_of(d->sensor.origin));
	if (d && (d->sensor.gain != 1 || d->sensor.offset_w != 0))
		buf_addf(out, ", calibrated with gain %.4f and offset %+.1f W", d->sensor.gain,
			 number_without_minus_zero(d->sensor.offset_w, 1));
	buf_addf(out, ", gpuward %s",
		 first->file->tool_version ? first->file->tool_version : "of unknown version");
}

/* Adds ", of which 5.12 J [4.80, 5.44] above the baseline (no-context)", if the view shows net
 * energy. */
static void add_net(struct buf *out, const struct compare_view *v,
		    const struct comparison_row *row)
{
	const struct comparison_run *first = first_usable(row);

	if (!v->shown[METRIC_NET] || isnan(row->figure[METRIC_NET].mean) || !first)
		return;
	buf_adds(out, ", of which ");
	add_value(out, v, row, METRIC_NET);
	buf_adds(out, " above the baseline");
	if (first->run->figures.baseline_kind)
		buf_addf(out, " (%s)", first->run->figures.baseline_kind);
}

static void add_reference(struct buf *out, const struct compare_view *v)
{
	const struct comparison_row *row = v->c->reference;
	const struct comparison_run *first = first_usable(row);

	if (!first)
		return;
	buf_adds(out, "On ");
	add_gpus(out, first->run);
	buf_addf(out, ", %s took ", row->label);
	if (isnan(row->figure[METRIC_ENERGY].mean)) {
		buf_adds(out, "an unknown energy");
	} else {
		add_value(out, v, row, METRIC_ENERGY);
		buf_addf(out, " %s", energy_unit(v->c));
	}
	if (!isnan(row->figure[METRIC_TIME].mean)) {
		buf_adds(out, " in ");
		add_value(out, v, row, METRIC_TIME);
	}
	add_net(out, v, row);
	if (!isnan(row->figure[METRIC_TOKEN].mean)) {
		buf_adds(out, ", and ");
		add_value(out, v, row, METRIC_TOKEN);
		buf_adds(out, " per token");
	}
	buf_adds(out, " (95 % intervals; ");
	add_runs(out, row);
	buf_adds(out, "; ");
	add_method(out, row, first);
	buf_adds(out, ").");
}

/* Adds the change in words: "is 59.4 % lower [58.7, 60.1]", or "changed by ..." if the interval
 * does not show a difference. */
static void add_change_words(struct buf *out, const struct compare_change *c)
{
	enum compare_verdict verdict = compare_verdict(c);
	double sign = verdict == COMPARE_LESS ? -100 : 100, low = sign * c->change_low,
	       high = sign * c->change_high;
	/* Print at least one decimal, even for changes above 100 %. */
	int decimals = comparison_change_decimals(c) > 1 ? comparison_change_decimals(c) : 1;
	struct comparison_scale shown = { 1, decimals, "" };
	bool differs;
	char text[96];

	if (verdict == COMPARE_LESS || verdict == COMPARE_MORE) {
		buf_addf(out, "is %.*f %% %s", decimals, sign * c->change,
			 verdict == COMPARE_LESS ? "lower" : "higher");
		if (comparison_has_width(&shown, low, high))
			buf_addf(out, " [%.*f, %.*f]", decimals, fmin(low, high), decimals,
				 fmax(low, high));
	} else {
		differs = comparison_change_text(c, text, sizeof(text));
		buf_addf(out, "%s%s%s", differs ? "changed by " : "shows ", text,
			 verdict != COMPARE_OPEN
				 ? "; with one run each, the variation between runs is unknown"
			 : differs ? ", which does not show a difference"
				   : "");
	}
}

/* Adds " Relative to fp32, its energy per iteration is 59.4 % lower [58.7, 60.1]." and the
 * change of the net energy, if the view shows it. */
static void add_change(struct buf *out, const struct compare_view *v,
		       const struct comparison_row *row)
{
	const struct compare_change *net = &row->figure[METRIC_NET].change;

	buf_addf(out, " Relative to %s, its energy %s ", v->c->reference->label,
		 energy_unit(v->c));
	add_change_words(out, &row->figure[METRIC_ENERGY].change);
	buf_addf(out, " (95 %%; %s).",
		 row->other_gpu || row->other_scale
			 ? "the gain errors of the sensors are included"
			 : "the gain error of the sensor cancels");
	if (!v->shown[METRIC_NET] || isnan(net->change))
		return;
	buf_adds(out, " Its energy above the baseline ");
	add_change_words(out, net);
	buf_adds(out, " (95 %; the errors of sensor and baseline are included).");
}

static void add_row(struct buf *out, const struct compare_view *v,
		    const struct comparison_row *row)
{
	if (row->used == 0 || isnan(row->figure[METRIC_ENERGY].mean)) {
		buf_addf(out, " %s has no usable energy.", row->label);
		return;
	}
	buf_addf(out, " %s took ", row->label);
	add_value(out, v, row, METRIC_ENERGY);
	if (!isnan(row->figure[METRIC_TIME].mean)) {
		buf_adds(out, " in ");
		add_value(out, v, row, METRIC_TIME);
	}
	add_net(out, v, row);
	buf_adds(out, " (");
	add_runs(out, row);
	buf_addf(out, "%s%s).", *meter_words(row) ? "; " : "", meter_words(row));
	if (!isnan(row->figure[METRIC_ENERGY].change.change))
		add_change(out, v, row);
}

/* Adds the codes of a row, because a publication must say what is wrong with its runs. */
static void add_codes(struct buf *out, const struct comparison_row *row)
{
	const char *listed[16];
	size_t n = 0;

	for (size_t i = 0; i < row->nruns; i++) {
		const struct result_run *run = row->runs[i].run;

		for (size_t k = 0; result_run_usable(run) && k < run->ncodes; k++) {
			const char *code = run->codes[k].code;
			size_t at = 0;

			while (code && at < n && strcmp(listed[at], code) != 0)
				at++;
			if (code && at == n && n < COUNT(listed))
				listed[n++] = code;
		}
	}
	if (n == 0)
		return;
	if (row->validity && strcmp(row->validity, "valid") != 0)
		buf_addf(out, " Runs of %s are %s:", row->label, row->validity);
	else
		buf_addf(out, " Note on the runs of %s:", row->label);
	for (size_t i = 0; i < n; i++)
		buf_addf(out, "%s %s", i ? "," : "", listed[i]);
	buf_addc(out, '.');
}

void compare_sentences(const struct compare_view *v, struct buf *out)
{
	const struct comparison *c = v->c;
	struct compare_view own = *v;
	struct buf text;
	char *clean;

	own.no_power_sd = true;
	buf_init(&text, out->max);
	if (comparison_simulated(c))
		buf_adds(&text, "SIMULATED, do not publish: ");
	add_reference(&text, &own);
	for (size_t i = 0; i < c->nrows; i++)
		if (&c->rows[i] != c->reference)
			add_row(&text, &own, &c->rows[i]);
	for (size_t i = 0; i < c->nrows; i++)
		add_codes(&text, &c->rows[i]);
	clean = text.err ? NULL : malloc(text.len + 1);
	if (clean) {
		utf8_clean(clean, text.len + 1, text.p);
		buf_adds(out, clean);
		buf_addc(out, '\n');
	} else {
		out->err = text.err ? text.err : -GW_E_NOMEM;
	}
	free(clean);
	buf_done(&text);
}
