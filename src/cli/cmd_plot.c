/* plot: the power of runs over time, as an SVG file. */
#include "chart.h"
#include "cli.h"
#include "output.h"
#include "results.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

struct given {
	const char *output, *title;
};

static const struct given *given(const struct cli *c)
{
	return c->own;
}

static size_t count_lines(const struct results *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		for (size_t k = 0; k < r->v[i].nruns; k++)
			n += r->v[i].runs[k].ndevices;
	return n;
}

static void add_lines(struct chart *chart, const struct cli *c, const struct results *r)
{
	for (size_t i = 0; i < r->n; i++) {
		size_t before = chart->n;

		for (size_t k = 0; k < r->v[i].nruns; k++)
			chart_add_power(chart, &r->v[i], &r->v[i].runs[k], CHART_RUNS);
		if (chart->n == before && !c->quiet)
			cli_error("note: %s holds no readings of power", r->v[i].path);
	}
}

/* What is said of results that are simulated, to be seen and to be read. */
struct pretence {
	const char *mark, *words;
};

static struct pretence pretence_of(const struct results *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += r->v[i].simulated;
	if (n == 0)
		return (struct pretence){ NULL, "" };
	if (n == r->n)
		return (struct pretence){ "SIMULATED", "; simulated, no figure is real" };
	return (struct pretence){ "SIMULATED IN PART",
				  "; simulated in part, not every figure is real" };
}

static int draw(const struct cli *c, const struct chart *chart, const struct results *r)
{
	char title[256], description[256];
	struct pretence pretence = pretence_of(r);
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
			       .mark = pretence.mark,
			       .width = 860,
			       .height = 320 };
	struct buf out;
	int code;

	snprintf(title, sizeof(title), "Power over time: %s",
		 single ? r->v[0].label : "several runs");
	snprintf(description, sizeof(description),
		 "Power in watts of %zu %s against seconds since the measured window began%s",
		 chart->n, single ? "run" : "runs", pretence.words);
	p.title = given(c)->title ? given(c)->title : title;
	p.description = description;
	buf_init(&out, 64u << 20);
	plot_time(&out, &p);
	code = output_write(given(c)->output, &out);
	buf_done(&out);
	return code;
}

static int run(struct cli *c)
{
	struct results results;
	struct chart chart;
	int code = output_spares(given(c)->output, c->argv, c->argc);

	if (code != EXIT_OK)
		return code;
	code = results_load(&results, c, true);
	if (code == EXIT_OK && chart_init(&chart, count_lines(&results)) != 0) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		code = EXIT_FAILED;
	} else if (code == EXIT_OK) {
		add_lines(&chart, c, &results);
		if (chart.n == 0) {
			cli_error("there is nothing to plot: no readings of power");
			code = EXIT_FAILED;
		} else {
			code = draw(c, &chart, &results);
		}
		chart_done(&chart);
	}
	results_done(&results);
	return code;
}

static const struct option options[] = {
	{ "output", 'o', OPTION_TEXT, offsetof(struct given, output), "FILE",
	  "write there instead of standard output", NULL, NULL },
	{ "title", 0, OPTION_TEXT, offsetof(struct given, title), "TEXT",
	  "what it is of, for those who do not see it", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct command command_plot = {
	.name = "plot",
	.summary = "plot power over time as SVG",
	.description = "Draws the power of each run and GPU of the results over time, with the "
		       "measured window and what held the clocks back. Runs are laid over each "
		       "other where their windows begin.",
	.examples = "  gpuward plot fp16.json -o fp16.svg\n"
		    "  gpuward plot fp32.json fp16.json > both.svg\n",
	.arguments = "RESULT...",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.one_form = true,
	.run = run,
};
