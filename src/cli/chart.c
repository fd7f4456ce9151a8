#include "chart.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <math.h>
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
	char label[CHART_NAME - 16]; /* shorter, so that the GPU fits behind the label */
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
