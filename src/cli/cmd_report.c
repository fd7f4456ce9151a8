/* report: writes results as one HTML page.
 *
 * The page contains its style sheet and its charts (SVG).  It has no script, and its content
 * security policy forbids loading anything.  Strings from the results are escaped. */
#include "cli.h"
#include "comparison.h"
#include "output.h"
#include "chart.h"
#include "plot.h"
#include "report_run.h"
#include "base/array.h"
#include "base/clock.h"

#include <gpuward.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
	":root{color-scheme:light "
	"dark;--ink:#1d1f22;--quiet:#5c6269;--paper:#fff;--card:#f6f7f8;--rule:#d9dce0;--good:#"
	"00704f;--bad:#b00020;--warn:#8a5a00}@media "
	"(prefers-color-scheme:dark){:root{--ink:#e8eaed;--quiet:#a3a9b0;--paper:#16181b;--"
	"card:#1f2226;--rule:#363b41;--good:#4fd1a5;--bad:#ff7b7b;--warn:#f0b849}}*{box-sizing:"
	"border-box}body{margin:0 "
	"auto;padding:1.5rem;max-width:64rem;background:var(--paper);color:var(--ink);font:"
	"16px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu "
	"Sans\",sans-serif;overflow-wrap:break-word}h1{font-size:1.6rem;line-height:1.25;"
	"margin:0 0 .25rem}h2{font-size:1.25rem;margin:2.5rem 0 "
	".5rem;padding-top:.75rem;border-top:1px solid "
	"var(--rule)}h3{font-size:1rem;margin:1.5rem 0 .25rem}p{margin:.4rem "
	"0}.quiet,figcaption,caption{color:var(--quiet);font-size:.875rem}caption{text-align:"
	"left;padding:.25rem "
	"0}table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}"
	"th,td{padding:.3rem 1rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px "
	"solid var(--rule)}thead th{border-bottom:2px solid "
	"var(--rule);vertical-align:bottom}.n{text-align:right;white-space:nowrap}thead "
	".n{white-space:normal}.i{display:block;color:var(--quiet);font-size:.8125rem}.facts{"
	"width:100%}.facts "
	"th{font-weight:400;color:var(--quiet);width:14rem}.facts th,.facts "
	"td{overflow-wrap:anywhere}.scroll{overflow-x:auto}ul{margin:."
	"5rem 0;padding-left:1.2rem}li{margin:.15rem 0}figure{margin:.75rem "
	"0}svg{display:block;max-width:100%;height:auto}.narrow{display:none}.badge{display:"
	"inline-block;padding:0 .5rem;border:1px solid "
	"currentColor;border-radius:1rem;font-size:.8125rem;font-weight:400;vertical-align:"
	"middle}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.banner{"
	"background:var(--card);border-left:4px solid var(--warn);padding:.5rem "
	".75rem}footer{margin-top:2.5rem;padding-top:.75rem;border-top:1px solid "
	"var(--rule)}@media "
	"(max-width:40rem){body{padding:1rem}.wide{display:none}.narrow{display:block}.facts "
	"th{width:8.5rem}}@media "
	"print{:root{color-scheme:light;--ink:#000;--quiet:#444;--paper:#fff;--card:#fff;--"
	"rule:#bbb;--good:#00553c;--bad:#900018;--warn:#6b4500}body{max-width:none;padding:0;"
	"font-size:11pt}figure,tr{break-inside:avoid}h2,h3{break-after:avoid}.scroll{overflow:"
	"visible}.wide{display:block}.narrow{display:none}table{font-size:9pt}}";

static const char *change_class(const struct compare_change *c, enum comparison_metric m)
{
	static const char *const classes[] = {
		[COMPARE_LESS] = "i good",
		[COMPARE_MORE] = "i bad",
		[COMPARE_OPEN] = "i",
		[COMPARE_UNKNOWN] = "i",
	};

	return m == METRIC_POWER ? "i" : classes[compare_verdict(c)];
}

static void value_text(const struct comparison *c, const struct comparison_row *row,
		       enum comparison_metric m, struct buf *out)
{
	const struct comparison_figure *f = &row->figure[m];
	struct comparison_scale s = comparison_scale(c, m);
	char size[48];

	comparison_size_text(f->mean, size, sizeof(size));
	if (isnan(f->mean))
		buf_adds(out, "–");
	else if (m == METRIC_SIZE)
		buf_adds(out, size);
	else if (m == METRIC_POWER && !isnan(row->power_sd_w))
		buf_addf(out,
			 "%.*f %s <span title=\"standard deviation of the power over "
			 "time\">(%.*f)</span>",
			 s.decimals, comparison_scaled(&s, f->mean), s.unit, s.decimals,
			 comparison_scaled(&s, row->power_sd_w));
	else
		buf_addf(out, "%.*f %s", s.decimals, comparison_scaled(&s, f->mean), s.unit);
	if (comparison_has_width(&s, f->low, f->high))
		buf_addf(out, "<span class=\"i\">%.*f – %.*f</span>", s.decimals,
			 comparison_scaled(&s, f->low), s.decimals,
			 comparison_scaled(&s, f->high));
}

static void add_cell(struct buf *out, const struct comparison *c,
		     const struct comparison_row *row, enum comparison_metric m)
{
	const struct compare_change *change = &row->figure[m].change;
	char text[96];

	buf_adds(out, "<td class=\"n\">");
	value_text(c, row, m, out);
	comparison_change_text(change, text, sizeof(text));
	if (*text)
		buf_addf(out, "<span class=\"%s\">%s</span>", change_class(change, m), text);
	buf_adds(out, "</td>");
}

/* Says whether the runs of the row were measured with --clean-room. Writes nothing if no run of
 * the comparison was measured with it. */
static void room_badge(struct buf *out, const struct comparison *c,
		       const struct comparison_row *row)
{
	static const struct {
		const char *room, *class, *text;
	} badges[] = {
		{ "kept", "good", "clean room" },
		{ "lost", "warn", "clean room lost" },
		{ "mixed", "warn", "clean room in some runs" },
		{ "none", "warn", "no clean room" },
	};
	const char *room = comparison_room(row);

	for (size_t i = 0; room && i < COUNT(badges); i++)
		if (comparison_has_rooms(c) && strcmp(badges[i].room, room) == 0)
			buf_addf(out, " <span class=\"badge %s\">%s</span>", badges[i].class,
				 badges[i].text);
}

static void table_row(struct buf *out, const struct comparison *c,
		      const struct comparison_row *row)
{
	buf_adds(out, "<tr><th scope=\"row\">");
	markup_text(out, row->label);
	buf_addf(out, "</th><td class=\"n\">%zu", row->used);
	if (row->used != row->nruns)
		buf_addf(out, " of %zu", row->nruns);
	buf_adds(out, "</td><td>");
	report_badge(out, row->validity ? row->validity : "no run");
	if (row->simulated)
		buf_adds(out, " <span class=\"badge warn\">simulated</span>");
	room_badge(out, c, row);
	buf_adds(out, "</td>");
	for (unsigned m = 0; m < METRICS; m++)
		if (comparison_has(c, m))
			add_cell(out, c, row, m);
	buf_adds(out, "</tr>\n");
}

static void add_note(void *ctx, const char *sentence)
{
	struct buf *out = ctx;

	buf_adds(out, "<li>");
	markup_text(out, sentence);
	buf_adds(out, "</li>\n");
}

static void comparison_table(struct buf *out, const struct comparison *c)
{
	/* This is not a table caption: a caption would be as wide as the table and scroll with
	 * it. */
	buf_adds(out, "<p id=\"means\" class=\"quiet\">Means, below them 95 % intervals");
	if (c->nrows > 1) {
		buf_adds(out, " and changes relative to “");
		markup_text(out, c->reference->label);
		buf_adds(out, "”");
	}
	buf_adds(out, ".</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
		      "aria-label=\"Comparison\"><table aria-describedby=\"means\">\n"
		      "<thead><tr><th scope=\"col\">Label</th><th scope=\"col\" "
		      "class=\"n\">Runs</th><th scope=\"col\">Validity</th>");
	for (unsigned m = 0; m < METRICS; m++)
		if (comparison_has(c, m))
			buf_addf(out, "<th scope=\"col\" class=\"n\">%s</th>",
				 comparison_title(c, m));
	buf_adds(out, "</tr></thead>\n<tbody>\n");
	for (size_t i = 0; i < c->nrows; i++)
		table_row(out, c, &c->rows[i]);
	buf_adds(out, "</tbody></table></div>\n<ul class=\"quiet\">\n");
	comparison_notes(c, add_note, out);
	buf_adds(out, "</ul>\n");
}

struct dots {
	struct plot_dot *dots;
	char (*texts)[64];
	double *each;
};

static void dots_free(struct dots *d)
{
	free(d->dots);
	free(d->texts);
	free(d->each);
}

static void dots_fill(const struct comparison *c, struct dots *d,
		      const struct comparison_scale *s)
{
	double *each = d->each;

	for (size_t i = 0; i < c->nrows; i++) {
		const struct comparison_row *row = &c->rows[i];
		const struct comparison_figure *f = &row->figure[METRIC_ENERGY];
		size_t n = 0;

		for (size_t k = 0; k < row->nruns; k++)
			if (result_run_usable(row->runs[k].run))
				each[n++] = comparison_value(c, &row->runs[k], METRIC_ENERGY) *
					    s->factor;
		if (!isnan(f->mean))
			snprintf(d->texts[i], sizeof(d->texts[i]), "%.*f %s", s->decimals,
				 f->mean * s->factor, s->unit);
		d->dots[i] = (struct plot_dot){
			.name = row->label,
			.text = d->texts[i],
			.best = f->mean * s->factor,
			.low = f->low * s->factor,
			.high = f->high * s->factor,
			.fair_low = f->fair_low * s->factor,
			.fair_high = f->fair_high * s->factor,
			.each = each,
			.neach = n,
			.doubtful = !row->validity || strcmp(row->validity, "valid") != 0,
		};
		each += n;
	}
}

static size_t all_runs(const struct comparison *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->nrows; i++)
		n += c->rows[i].nruns;
	return n;
}

static void energy_figure(struct buf *out, const struct comparison *c)
{
	struct comparison_scale s = comparison_scale(c, METRIC_ENERGY);
	const char *title = comparison_title(c, METRIC_ENERGY);
	size_t simulated = comparison_simulated(c);
	struct plot_dots p = { .title = title,
			       .description = "The table above has the same figures.",
			       .quantity = title,
			       .unit = s.unit,
			       .n = c->nrows,
			       .mark = simulated == 0          ? NULL
				       : simulated == c->nrows ? "SIMULATED"
							       : "PARTLY SIMULATED" };
	struct dots d = { calloc(c->nrows, sizeof(*d.dots)), calloc(c->nrows, sizeof(*d.texts)),
			  calloc(all_runs(c) + 1, sizeof(*d.each)) };

	if (!d.dots || !d.texts || !d.each) {
		out->err = -GW_E_NOMEM;
		dots_free(&d);
		return;
	}
	dots_fill(c, &d, &s);
	p.dots = d.dots;
	buf_adds(out, "<figure><div class=\"wide\">");
	p.width = REPORT_WIDE;
	plot_dots(out, &p);
	buf_adds(out, "</div><div class=\"narrow\">");
	p.width = REPORT_NARROW;
	plot_dots(out, &p);
	buf_addf(out,
		 "</div><figcaption>%s. Thick: 95 %% interval for comparisons on the same GPU. "
		 "Thin: 95 %% interval of the absolute value, including the gain error of the "
		 "sensor. Small circles: single runs. Hollow dot: the result is not fully "
		 "valid.</figcaption></figure>\n",
		 title);
	dots_free(&d);
}

static void page_title(struct buf *out, const char *title, const struct comparison *c)
{
	if (title) {
		markup_text(out, title);
		return;
	}
	buf_adds(out, "GPU energy: ");
	for (size_t i = 0; i < c->nrows && i < 4; i++) {
		buf_adds(out, i ? ", " : "");
		markup_text(out, c->rows[i].label);
	}
	if (c->nrows > 4)
		buf_addf(out, " and %zu more", c->nrows - 4);
}

static void page_head(struct buf *out, const char *title, const struct comparison *c)
{
	buf_adds(out,
		 "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		 "style-src 'unsafe-inline'\">\n"
		 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		 "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
	page_title(out, title, c);
	buf_addf(out, "</title>\n<style>%s\n%s</style>\n</head>\n<body>\n<header>\n<h1>", style,
		 plot_style());
	page_title(out, title, c);
	buf_adds(out, "</h1>\n");
}

static void page_summary(struct buf *out, const struct result_file *results, size_t n)
{
	char time[CLOCK_RFC3339_SIZE];
	size_t runs = 0, simulated = 0;

	for (size_t i = 0; i < n; i++) {
		runs += results[i].nruns;
		simulated += results[i].simulated;
	}
	clock_format_rfc3339(clock_wall_ns(clock_real()), time);
	buf_addf(out,
		 "<p class=\"quiet\">%zu %s in %zu %s. Written by gpuward %s on "
		 "<time>%s</time>.</p>\n",
		 runs, runs == 1 ? "run" : "runs", n, n == 1 ? "result" : "results",
		 gw_version(), time);
	if (simulated)
		buf_addf(out,
			 "<p class=\"banner\"><strong>Simulated.</strong> The GPUs of %s are "
			 "not real.</p>\n",
			 simulated == n ? "this page" : "the marked rows");
	buf_adds(out, "</header>\n<main>\n");
}

/* Writes the page. If title is NULL, the title is made from the labels. */
static void report_page(struct buf *out, const char *title, const struct comparison *c,
			const struct result_set *r, const struct energy_cost *cost)
{
	const struct result_file *results = r->v;
	size_t n = r->n;

	page_head(out, title, c);
	page_summary(out, results, n);
	buf_adds(out, "<section>\n<h2>Comparison</h2>\n");
	comparison_table(out, c);
	if (comparison_has(c, METRIC_ENERGY))
		energy_figure(out, c);
	buf_adds(out, "</section>\n");
	for (size_t i = 0; i < n; i++)
		report_result(out, results, i, cost);
	buf_adds(out, "</main>\n<footer class=\"quiet\"><p>The energy of a window comes from "
		      "two sources, the energy counter of the board and its power samples; the "
		      "verdict says whether they agree. Intervals are 95 % and include the "
		      "uncertainty from the edges of the window, gaps, coverage, the "
		      "difference of the two sources, and gain and offset of the sensor. "
		      "Unknown values are shown as “–”, never as "
		      "0.</p></footer>\n</body>\n</html>\n");
}

struct given {
	const char *output, *title, *reference;
	struct cost_options cost;
	bool across_gpus;
};

#define given(cli) ((const struct given *)(cli)->own)

static int write_page(const struct cli *c, const struct result_set *r)
{
	struct comparison comparison;
	struct energy_cost cost;
	struct buf out;
	int code = cost_options_read(&given(c)->cost, &cost);

	if (code != EXIT_OK)
		return code;
	code = result_set_compare(r, given(c)->reference, &comparison);
	if (code == EXIT_OK) {
		buf_init(&out, 256u << 20);
		report_page(&out, given(c)->title, &comparison, r, &cost);
		code = output_write(given(c)->output, &out, c->quiet);
		buf_done(&out);
	}
	comparison_done(&comparison);
	return code;
}

static int report_run(struct cli *c)
{
	return result_set_with(c, given(c)->output, given(c)->across_gpus, write_page);
}

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OUTPUT_OPTION(AT(output)),
	OPTION_ROW(TEXT, 0, "title", AT(title), "TEXT", "heading of the page"),
	REFERENCE_OPTION(AT(reference)),
	COST_OPTIONS(struct given, cost),
	ACROSS_GPUS_OPTION(AT(across_gpus)),
	OPTION_END,
};

const struct command command_report = {
	.name = "report",
	.summary = "write results as one HTML page with tables and plots",
	.description = "Writes one HTML file that needs no network and no script. It contains "
		       "the table of gpuward compare, the energy of each label with its "
		       "intervals, power, throttling and temperature of each run over time, "
		       "the environment, and how the numbers were measured.",
	.examples =
		"  gpuward report fp32.json fp16.json -o report.html\n"
		"  gpuward report --title='Quantisation, H200' runs/*.json -o report.html\n",
	.arguments = "RESULT...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = report_run,
};
