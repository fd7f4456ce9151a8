#include "report_run.h"

#include "chart.h"
#include "comparison.h"
#include "output.h"
#include "plot.h"

#include "base/array.h"
#include "base/number.h"
#include "measure/sensor.h"

#include <gpuward.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void report_badge(struct buf *out, const char *validity)
{
	const char *class = strcmp(validity, "valid") == 0     ? "good"
			    : strcmp(validity, "invalid") == 0 ? "bad"
							       : "warn";

	buf_addf(out, "<span class=\"badge %s\">", class);
	markup_text(out, validity);
	buf_adds(out, "</span>");
}

static void add_band(struct buf *out, const struct gw_interval *b, const char *unit)
{
	struct comparison_scale s = comparison_scale_of(b, 1, unit);

	if (isnan(b->best)) {
		buf_adds(out, "–");
		return;
	}
	buf_addf(out, "%.*f %s", s.decimals, comparison_scaled(&s, b->best), s.unit);
	if (comparison_has_width(&s, b->low, b->high))
		buf_addf(out, " [%.*f, %.*f]", s.decimals, comparison_scaled(&s, b->low),
			 s.decimals, comparison_scaled(&s, b->high));
}

static void add_number(struct buf *out, double v, const char *unit)
{
	add_band(out, &(struct gw_interval){ NAN, v, NAN }, unit);
}

static void add_word(struct buf *out, const char *s)
{
	markup_text(out, s && *s ? s : "–");
}

/* Adds `before` and then the text, which comes from the result and is escaped. Adds nothing if
 * text is NULL. */
static void add_clause(struct buf *out, const char *before, const char *text)
{
	if (!text)
		return;
	buf_adds(out, before);
	markup_text(out, text);
}

/* Writes a number and its unit without an SI prefix: "52 °C", "98.0 %". */
static void add_plain(struct buf *out, int decimals, double v, const char *unit)
{
	if (isnan(v))
		buf_adds(out, "–");
	else
		buf_addf(out, "%.*f%s%s", decimals, v, *unit ? " " : "", unit);
}

static void write_gpu(struct buf *out, const struct result_device *d)
{
	add_word(out, d->name);
	buf_adds(out, "<span class=\"i\">");
	add_word(out, d->uuid);
	buf_adds(out, "</span>");
}

static void write_source(struct buf *out, const struct result_device *d)
{
	add_word(out, d->provenance);
	buf_adds(out, ", driver version ");
	add_word(out, d->driver_version);
}

/* Returns the words for a key of the field `rung`, or the key itself if it is unknown. */
static const char *sources_text(const char *key)
{
	static const struct {
		const char *key, *words;
	} sources[] = {
#define GW_RUNG(symbol, key, help) { key, help },
#include <gpuward/words.def>
	};

	for (size_t i = 0; key && i < COUNT(sources); i++)
		if (strcmp(sources[i].key, key) == 0)
			return sources[i].words;
	return key;
}

static void write_meter(struct buf *out, const struct result_device *d)
{
	add_word(out, d->energy.meter);
	buf_adds(out, "; measured with: ");
	add_word(out, sources_text(d->energy.rung));
}

static void write_verdict(struct buf *out, const struct result_device *d)
{
	add_word(out, d->energy.verdict);
	buf_adds(out, ": counter ");
	add_number(out, d->energy.counter_joules, "J");
	buf_adds(out, ", samples ");
	add_number(out, d->energy.samples_joules, "J");
	if (!isnan(d->energy.residual_ratio))
		buf_addf(out, ", residual %.3g %%", 100 * d->energy.residual_ratio);
	if (d->energy.meter && strcmp(d->energy.meter, "samples") == 0 &&
	    fabs(d->energy.anchor_ratio - 1) > 0.0005)
		buf_addf(out,
			 "; the energy of the samples is multiplied by %.4f, the ratio of "
			 "counter "
			 "to samples in a longer time around or before the window",
			 d->energy.anchor_ratio);
}

static void write_energy(struct buf *out, const struct result_device *d)
{
	add_band(out, &d->energy.joules, "J");
}

static void write_relative_energy(struct buf *out, const struct result_device *d)
{
	add_band(out, &d->energy.relative, "J");
}

static void write_coverage(struct buf *out, const struct result_device *d)
{
	add_plain(out, 0, d->energy.samples_collected, "");
	buf_adds(out, " of ");
	add_plain(out, 0, d->energy.samples_expected, "");
	buf_adds(out, " samples, coverage ");
	add_plain(out, 1, 100 * d->energy.coverage_ratio, "%");
	buf_adds(out, ", longest gap ");
	add_number(out, d->energy.longest_gap_seconds, "s");
}

static void write_baseline(struct buf *out, const struct result_device *d)
{
	if (!d->baseline_kind && isnan(d->baseline_w)) {
		buf_adds(out, "–");
		return;
	}
	add_number(out, d->baseline_w, "W");
	buf_adds(out, ", ");
	add_word(out, d->baseline_kind);
	if (!isnan(d->baseline_age_s))
		buf_addf(out, ", %.0f s old", d->baseline_age_s);
}

static void write_throttle(struct buf *out, const struct result_device *d)
{
	static const char *const causes[] = {
#define GW_THROTTLE(symbol, key, help) help,
#include <gpuward/words.def>
	};
	const double *seconds = d->energy.throttle_seconds;
	unsigned held = 0, known = 0;

	for (size_t i = 0; i < GW_THROTTLES; i++) {
		known += isnan(seconds[i]) ? 0 : 1;
		if (seconds[i] > 0)
			buf_addf(out, "%s%s %.2f s", held++ ? ", " : "", causes[i], seconds[i]);
	}
	if (!held)
		buf_adds(out, known ? "none" : "–");
	if (known && d->energy.throttle_source) {
		buf_adds(out, " (");
		markup_text(out, d->energy.throttle_source);
		buf_adds(out, ")");
	}
}

static void write_temperature(struct buf *out, const struct result_device *d)
{
	add_plain(out, 0, d->energy.temperature_begin, "");
	buf_adds(out, " to ");
	add_plain(out, 0, d->energy.temperature_end, "°C");
	buf_adds(out, ", highest ");
	add_plain(out, 0, d->energy.temperature_max, "°C");
}

static void write_load(struct buf *out, const struct result_device *d)
{
	buf_adds(out, "SM clock ");
	add_plain(out, 0, d->energy.clock_sm_mean / 1e6, "MHz");
	buf_adds(out, ", utilisation ");
	add_plain(out, 0, 100 * d->energy.utilization_mean, "%");
	buf_adds(out, ", power limit ");
	add_plain(out, 0, d->power_limit_w, "W");
}

static void write_seconds(struct buf *out, const char *before, double s, const char *after)
{
	if (isnan(s))
		return;
	buf_adds(out, before);
	buf_addf(out, "%.4g ms%s", 1e3 * s, after);
}

static void write_sensor(struct buf *out, const struct result_device *d)
{
	const struct result_sensor *s = &d->sensor;

	add_word(out, s->origin ? sensor_origin_words_of(s->origin) : NULL);
	if (s->source)
		buf_addf(out, ", %s", s->source);
	write_seconds(out, ", new value every ", s->period_s, "");
	write_seconds(out, ", averaged over ", s->window_s, "");
	write_seconds(out, ", delay ", s->lag_s, "");
	write_seconds(out, ", counter every ", s->tick_s, "");
	if (s->gain != 1 || s->offset_w != 0)
		buf_addf(out, ", calibrated: gain %.4f, offset %+.1f W", s->gain,
			 number_without_minus_zero(s->offset_w, 1));
}

static const struct {
	const char *title;
	void (*write)(struct buf *out, const struct result_device *d);
} provenance[] = {
	{ "GPU", write_gpu },
	{ "Source", write_source },
	{ "Meter", write_meter },
	{ "Agreement of counter and samples", write_verdict },
	{ "Energy, 95 %", write_energy },
	{ "Energy for comparisons", write_relative_energy },
	{ "Completeness", write_coverage },
	{ "Baseline", write_baseline },
	{ "Throttled", write_throttle },
	{ "Temperature", write_temperature },
	{ "Load", write_load },
	{ "Sensor", write_sensor },
};

static void write_provenance(struct buf *out, const struct result_run *run)
{
	if (run->ndevices == 0) {
		buf_adds(out, "<p class=\"quiet\">The result contains no GPU.</p>\n");
		return;
	}
	buf_adds(out,
		 "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"How it was "
		 "measured\"><table class=\"facts\"><caption>How it was measured</caption>\n");
	if (run->ndevices > 1) {
		buf_adds(out, "<thead><tr><td></td>");
		for (size_t i = 0; i < run->ndevices; i++)
			buf_addf(out, "<th scope=\"col\">GPU %.0f</th>", run->devices[i].index);
		buf_adds(out, "</tr></thead>\n");
	}
	buf_adds(out, "<tbody>\n");
	for (size_t r = 0; r < COUNT(provenance); r++) {
		buf_addf(out, "<tr><th scope=\"row\">%s</th>", provenance[r].title);
		for (size_t i = 0; i < run->ndevices; i++) {
			buf_adds(out, "<td>");
			provenance[r].write(out, &run->devices[i]);
			buf_adds(out, "</td>");
		}
		buf_adds(out, "</tr>\n");
	}
	buf_adds(out, "</tbody></table></div>\n");
}

static void draw_twice(struct buf *out, struct plot_time *p, unsigned height)
{
	p->width = REPORT_WIDE;
	p->height = height;
	buf_adds(out, "<div class=\"wide\">");
	plot_time(out, p);
	p->width = REPORT_NARROW;
	p->height = height * 3 / 4;
	buf_adds(out, "</div><div class=\"narrow\">");
	plot_time(out, p);
	buf_adds(out, "</div>");
}

static void draw_power(struct buf *out, const struct result_file *file,
		       const struct chart *power, const struct chart *heat)
{
	char title[256];
	double from, to, heat_from, heat_to;
	struct plot_time p = { .title = title,
			       .description = "Figures are in the table below.",
			       .quantity = "Power",
			       .unit = "W",
			       .lines = power->lines,
			       .nlines = power->n,
			       .limit = power->limit_w,
			       .zero = true,
			       .strips = true,
			       .mark = file->simulated ? "SIMULATED" : NULL };

	plot_range(power->lines, power->n, &from, &to);
	plot_range(heat->lines, heat->n, &heat_from, &heat_to);
	p.from = fmin(from, heat_from);
	p.to = fmax(to, heat_to);
	snprintf(title, sizeof(title), "Power over time, %s", file->label);
	if (power->n)
		draw_twice(out, &p, 200);
	p.lines = heat->lines;
	p.nlines = heat->n;
	p.quantity = "Temperature";
	p.unit = "°C";
	p.zero = p.strips = false;
	p.least_span = 10;
	p.limit = NAN;
	snprintf(title, sizeof(title), "Temperature over time, %s", file->label);
	if (heat->n)
		draw_twice(out, &p, 90);
}

static void write_caption(struct buf *out, const struct chart *power, const struct chart *heat)
{
	bool known = false;

	for (size_t i = 0; i < power->n; i++)
		known |= power->lines[i].strip != NULL;
	buf_addf(out,
		 "<figcaption>%s%s over time. The measured window is shaded. %s Long series "
		 "are thinned; peaks and dips remain.</figcaption>",
		 power->n ? "Power" : "Temperature",
		 power->n && heat->n ? " and temperature" : "",
		 !power->n ? ""
		 : known   ? "The strip shows throttling."
			   : "Throttling is unknown.");
}

static void run_figure(struct buf *out, const struct result_file *file,
		       const struct result_run *run)
{
	struct chart power = { .n = 0 }, heat = { .n = 0 };

	if (chart_init(&power, run->ndevices) == 0 && chart_init(&heat, run->ndevices) == 0) {
		chart_add_power(&power, file, run, CHART_GPUS);
		chart_add_temperature(&heat, file, run, CHART_GPUS);
	} else {
		out->err = -GW_E_NOMEM;
	}
	if (power.n || heat.n) {
		buf_adds(out, "<figure>");
		draw_power(out, file, &power, &heat);
		write_caption(out, &power, &heat);
		buf_adds(out, "</figure>\n");
	} else {
		buf_adds(out,
			 "<p class=\"quiet\">The result contains no samples over time.</p>\n");
	}
	chart_done(&power);
	chart_done(&heat);
}

static void run_codes(struct buf *out, const struct result_run *run)
{
	if (run->ncodes == 0)
		return;
	buf_adds(out, "<ul>\n");
	for (size_t i = 0; i < run->ncodes; i++) {
		const struct result_code *c = &run->codes[i];

		buf_adds(out, "<li><strong>");
		add_word(out, c->code);
		buf_adds(out, "</strong> (");
		markup_text(out, result_code_level(c));
		if (!isnan(c->device))
			buf_addf(out, ", GPU %.0f", c->device);
		buf_adds(out, "): ");
		add_word(out, c->sentence);
		add_clause(out, "; ", c->evidence);
		buf_adds(out, "</li>\n");
	}
	buf_adds(out, "</ul>\n");
}

static void run_figures(struct buf *out, const struct result_run *run,
			const struct energy_cost *cost)
{
#define R(member) offsetof(struct result_run, member)
	static const struct {
		const char *title;
		size_t at;
		const char *unit; /* NULL: the field is an interval in joules. */
	} rows[] = {
		{ "Time", R(seconds), "s" },
		{ "Latency", R(figures.latency_s), "s" },
		{ "Latency, median (p50)", R(figures.latency_p50_s), "s" },
		{ "Latency, 95th percentile (p95)", R(figures.latency_p95_s), "s" },
		{ "Power, mean", R(figures.power_mean_w), "W" },
		{ "Power, s.d. over time", R(figures.power_sd_w), "W" },
		{ "Energy", R(figures.energy_j), NULL },
		{ "Energy per iteration", R(figures.energy_per_iteration_j), NULL },
		{ "Energy per token", R(figures.energy_per_token_j), NULL },
		{ "Energy above the baseline", R(figures.energy_net_j), NULL },
		{ "CPU and memory", R(host_j), "J" },
	};

	char text[ENERGY_COST_TEXT];

	energy_cost_text(cost, run->figures.energy_j.best, text);
	buf_adds(out, "<table class=\"facts\"><tbody>\n");
	if (run->ndevices > 1)
		buf_addf(out,
			 "<tr><th scope=\"row\">GPUs</th><td>%zu; power and energy are sums "
			 "over them</td></tr>\n",
			 run->ndevices);
	for (size_t i = 0; i < COUNT(rows); i++) {
		const void *at = (const char *)run + rows[i].at;
		double v = rows[i].unit ? *(const double *)at
					: ((const struct gw_interval *)at)->best;

		if (rows[i].at == R(host_j) && run->figures.energy_adjusted_was_floored)
			buf_adds(out, "<tr><th scope=\"row\">Adjusted energy</th><td>0 J: the "
				      "energy is below the baseline</td></tr>\n");
		if (isnan(v))
			continue;
		buf_addf(out, "<tr><th scope=\"row\">%s</th><td>", rows[i].title);
		if (rows[i].unit)
			add_number(out, v, rows[i].unit);
		else
			add_band(out, at, "J");
		buf_adds(out, "</td></tr>\n");
		if (rows[i].at == R(figures.energy_j) && *text) {
			buf_adds(out, "<tr><th scope=\"row\">Cost</th><td>");
			markup_text(out, text);
			buf_adds(out, "</td></tr>\n");
		}
	}
	buf_adds(out, "</tbody></table>\n");
}

static void run_windows(struct buf *out, const struct result_run *run)
{
	if (run->nwindows == 0)
		return;
	buf_adds(out, "<table><caption>Windows inside the run</caption><thead><tr><th "
		      "scope=\"col\">Window</th><th scope=\"col\" class=\"n\">Begins</th><th "
		      "scope=\"col\" class=\"n\">Lasts</th><th scope=\"col\" "
		      "class=\"n\">Energy</th></tr></thead><tbody>\n");
	for (size_t i = 0; i < run->nwindows; i++) {
		const struct result_window *w = &run->windows[i];

		buf_adds(out, "<tr><th scope=\"row\">");
		add_word(out, w->label);
		if (w->unfinished)
			buf_adds(out, " (unfinished)");
		buf_adds(out, "</th><td class=\"n\">");
		add_number(out, w->begin_s - run->zero_s, "s");
		buf_adds(out, "</td><td class=\"n\">");
		add_number(out, w->seconds, "s");
		buf_adds(out, "</td><td class=\"n\">");
		add_number(out, w->energy_best_j, "J");
		buf_adds(out, "</td></tr>\n");
	}
	buf_adds(out, "</tbody></table>\n");
}

static void run_section(struct buf *out, const struct result_file *file, size_t i,
			const struct energy_cost *cost)
{
	const struct result_run *run = &file->runs[i];

	buf_adds(out, "<h3>");
	if (isnan(run->trial))
		buf_addf(out, "Run %zu ", i + 1);
	else
		buf_addf(out, "Trial %.0f ", run->trial);
	if (run->part) {
		buf_adds(out, "(");
		markup_text(out, run->part);
		buf_adds(out, ") ");
	}
	report_badge(out, run->validity ? run->validity : "validity unknown");
	buf_adds(out, "</h3>\n");
	run_codes(out, run);
	run_figure(out, file, run);
	run_figures(out, run, cost);
	run_windows(out, run);
	write_provenance(out, run);
}

static bool same_facts(const struct result_facts *a, const struct result_facts *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->v[i].key, b->v[i].key) != 0 ||
		    strcmp(a->v[i].text, b->v[i].text) != 0)
			return false;
	return true;
}

static void write_environment(struct buf *out, const struct result_file *results, size_t i)
{
	const struct result_facts *f = &results[i].environment;

	for (size_t k = 0; k < i && f->n; k++) {
		if (!same_facts(f, &results[k].environment))
			continue;
		buf_adds(out, "<p class=\"quiet\">Environment: the same as that of “");
		markup_text(out, results[k].label);
		buf_adds(out, "”.</p>\n");
		return;
	}
	if (f->n == 0) {
		buf_adds(out, "<p class=\"quiet\">Environment: not recorded.</p>\n");
		return;
	}
	buf_adds(out, "<table class=\"facts\"><caption>Environment</caption><tbody>\n");
	for (size_t k = 0; k < f->n; k++) {
		buf_adds(out, "<tr><th scope=\"row\">");
		markup_text(out, f->v[k].key);
		buf_adds(out, "</th><td>");
		markup_text(out, f->v[k].text);
		buf_adds(out, "</td></tr>\n");
	}
	buf_adds(out, "</tbody></table>\n");
}

static void write_about(struct buf *out, const struct result_file *r)
{
	const char *base = strrchr(r->path, '/');

	buf_adds(out, "<p class=\"quiet\">");
	markup_text(out, base ? base + 1 : r->path);
	add_clause(out, ", measured ", r->time);
	add_clause(out, ", command ", r->command_name);
	if (r->iterations > 0)
		buf_addf(out, ", %.0f iterations", r->iterations);
	if (r->tokens > 0)
		buf_addf(out, ", %.0f tokens", r->tokens);
	for (size_t i = 0; i < r->tags.n; i++) {
		add_clause(out, ", ", r->tags.v[i].key);
		add_clause(out, "=", r->tags.v[i].text);
	}
	add_clause(out, ", gpuward ", r->tool_version);
	buf_adds(out, "</p>\n");
}

/* Writes the same text as clean_room_print(). */
static void write_room_worker(struct buf *out, const struct result_worker *w)
{
	bool others = w->held_by && strcmp(w->held_by, "others") == 0;

	add_word(out, w->name);
	buf_addf(out, " was kept off the GPUs%s",
		 others ? " (someone else already held it)" : "");
	add_clause(out, ", but ", w->broken);
}

static void write_clean_room(struct buf *out, const struct result_file *r)
{
	if (r->room == ROOM_NONE)
		return;
	buf_addf(out, "<p%s>Clean room, %s: ", r->room == ROOM_LOST ? " class=\"warn\"" : "",
		 r->room == ROOM_LOST ? "not kept" : "kept");
	for (size_t i = 0; i < r->nworkers; i++) {
		buf_adds(out, i ? "; " : "");
		write_room_worker(out, &r->workers[i]);
	}
	buf_adds(out, r->nworkers ? ".</p>\n" : "no worker of the guard had to leave.</p>\n");
}

void report_result(struct buf *out, const struct result_file *results, size_t i,
		   const struct energy_cost *cost)
{
	const struct result_file *r = &results[i];

	buf_adds(out, "<section>\n<h2>");
	markup_text(out, r->label);
	if (r->simulated)
		buf_adds(out, " <span class=\"badge warn\">simulated</span>");
	buf_adds(out, "</h2>\n");
	write_about(out, r);
	write_clean_room(out, r);
	if (r->nruns == 0)
		buf_adds(out, "<p>This result contains no run.</p>\n");
	for (size_t k = 0; k < r->nruns; k++)
		run_section(out, r, k, cost);
	write_environment(out, results, i);
	buf_adds(out, "</section>\n");
}
