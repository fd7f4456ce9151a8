/* plot: draws the power of runs over time as SVG. */
#include "chart.h"
#include "cli.h"
#include "output.h"
#include "comparison.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int chart_init(struct chart *c, size_t most)
{
	*c = (struct chart){ .lines = calloc(most + 1, sizeof(*c->lines)),
			     .names = calloc(most + 1, sizeof(*c->names)),
			     .limit_w = NAN };
	if (c->lines && c->names)
		return 0;
	chart_done(c);
	return -GW_E_NOMEM;
}

void chart_done(struct chart *c)
{
	free(c->lines);
	free(c->names);
	*c = (struct chart){ .lines = NULL };
}

/* Writes the name of a line.  All trials of a label on a GPU have the same name and colour. */
static void name_line(char out[static CHART_NAME], const struct result_file *file,
		      const struct result_run *run, const struct result_device *d,
		      enum chart_names names)
{
	/* The label is cut, so that the name of the GPU fits after it. */
	char label[CHART_NAME - 16];
	struct buf b;

	utf8_clean(label, run->part ? sizeof(label) / 2 : sizeof(label),
		   names == CHART_RUNS ? file->label : "");
	buf_init_fixed(&b, out, CHART_NAME);
	buf_adds(&b, label);
	if (run->part && names == CHART_RUNS) {
		utf8_clean(label, sizeof(label) - b.len, run->part);
		buf_addf(&b, " (%s)", label);
	}
	if (run->ndevices > 1 || names == CHART_GPUS)
		buf_addf(&b, "%sGPU %.0f", b.len ? " " : "", d->index);
}

static unsigned colour_of(const struct chart *c, const char *name)
{
	unsigned next = 0;

	for (size_t i = 0; i < c->n; i++) {
		if (strcmp(c->names[i], name) == 0)
			return c->lines[i].colour;
		next = c->lines[i].colour >= next ? c->lines[i].colour + 1 : next;
	}
	return next;
}

static void add_line(struct chart *c, const struct plot_line *line,
		     const struct result_file *file, const struct result_run *run,
		     const struct result_device *d, enum chart_names names)
{
	struct plot_line *l = &c->lines[c->n];

	name_line(c->names[c->n], file, run, d, names);
	*l = *line;
	l->name = c->names[c->n];
	l->seconds = run->seconds;
	l->colour = colour_of(c, l->name);
	c->n++;
}

void chart_add_power(struct chart *c, const struct result_file *file,
		     const struct result_run *run, enum chart_names names)
{
	for (size_t i = 0; i < run->ndevices; i++) {
		const struct result_series *s = &run->devices[i].series;
		struct plot_line l = { .t = s->power_t,
				       .v = s->power_w,
				       .n = s->power_n,
				       .strip_t = s->tick_t,
				       .strip = s->throttle,
				       .strip_n = s->throttle ? s->tick_n : 0 };

		if (s->power_n == 0)
			continue;
		c->limit_w = c->n == 0 ? run->devices[i].power_limit_w : NAN;
		add_line(c, &l, file, run, &run->devices[i], names);
	}
}

void chart_add_temperature(struct chart *c, const struct result_file *file,
			   const struct result_run *run, enum chart_names names)
{
	for (size_t i = 0; i < run->ndevices; i++) {
		const struct result_series *s = &run->devices[i].series;
		struct plot_line l = { .t = s->tick_t, .v = s->temperature_c, .n = s->tick_n };

		if (s->tick_n && s->temperature_c)
			add_line(c, &l, file, run, &run->devices[i], names);
	}
}

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
		   "title of the picture, which screen readers read"),
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
