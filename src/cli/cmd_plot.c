/* plot: draws the power of runs over time as SVG. */
#include "chart.h"
#include "cli.h"
#include "output.h"
#include "result_set.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

struct given {
	const char *output, *title;
};

#define given(cli) ((const struct given *)(cli)->own)

static size_t count_lines(const struct result_set *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		for (size_t k = 0; k < r->v[i].nruns; k++)
			n += r->v[i].runs[k].ndevices;
	return n;
}

static void add_lines(struct chart *chart, const struct cli *c, const struct result_set *r)
{
	for (size_t i = 0; i < r->n; i++) {
		size_t before = chart->n;

		for (size_t k = 0; k < r->v[i].nruns; k++)
			chart_add_power(chart, &r->v[i], &r->v[i].runs[k], CHART_RUNS);
		if (chart->n == before && !c->quiet)
			cli_error("note: %s contains no power samples", r->v[i].path);
	}
}

/* How simulated results are marked in the picture and in its description. */
struct simulated {
	const char *mark, *words;
};

static struct simulated simulated_note(const struct result_set *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += r->v[i].simulated;
	if (n == 0)
		return (struct simulated){ NULL, "" };
	if (n == r->n)
		return (struct simulated){ "SIMULATED", "; simulated" };
	return (struct simulated){ "PARTLY SIMULATED", "; partly simulated" };
}

static int draw_plot(const struct cli *c, const struct chart *chart, const struct result_set *r)
{
	char title[256], description[256];
	struct simulated simulated = simulated_note(r);
	bool single = chart->n == 1;
	struct plot_time p = { .quantity = "Power",
			       .unit = "W",
			       .lines = chart->lines,
			       .nlines = chart->n,
			       .from = NAN,
			       .to = NAN,
			       .limit = chart->limit_w,
			       .zero = true,
			       .strips = true,
			       .file = true,
			       .mark = simulated.mark,
			       .width = 860,
			       .height = 320 };
	struct buf out;
	int code;

	snprintf(title, sizeof(title), "Power over time: %s",
		 single ? r->v[0].label : "several runs");
	snprintf(description, sizeof(description),
		 "Power in watts of %zu %s against seconds since the measured window began%s",
		 chart->n, single ? "run" : "runs", simulated.words);
	p.title = given(c)->title ? given(c)->title : title;
	p.description = description;
	buf_init(&out, 64u << 20);
	plot_time(&out, &p);
	code = output_write(given(c)->output, &out, c->quiet);
	buf_done(&out);
	return code;
}

static int plot_results(const struct cli *c, const struct result_set *r)
{
	struct chart chart;
	int code;

	if (chart_init(&chart, count_lines(r)) != 0)
		return cli_no_memory();
	add_lines(&chart, c, r);
	code = chart.n ? draw_plot(c, &chart, r)
		       : cli_fail("nothing to plot: the results contain no power samples");
	chart_done(&chart);
	return code;
}

static int plot_run(struct cli *c)
{
	return result_set_with(c, given(c)->output, true, plot_results);
}

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OUTPUT_OPTION(AT(output)),
	OPTION_ROW(TEXT, 0, "title", AT(title), "TEXT",
		   "title of the picture, for screen readers"),
	OPTION_END,
};

const struct command command_plot = {
	.name = "plot",
	.summary = "plot power over time as SVG",
	.description = "Draws the power of each run and GPU over time, with the measured "
		       "window and throttling. Runs are aligned at the start of their windows.",
	.examples = "  gpuward plot fp16.json -o fp16.svg\n"
		    "  gpuward plot fp32.json fp16.json > both.svg\n",
	.arguments = "RESULT...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = plot_run,
};
