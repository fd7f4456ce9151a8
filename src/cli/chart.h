/* chart: the runs of results as lines for plot.h. */
#ifndef GW_CLI_CHART_H
#define GW_CLI_CHART_H

#include "plot.h"
#include "result.h"

#define CHART_NAME 96

struct chart {
	struct plot_line *lines;
	char (*names)[CHART_NAME];
	size_t n;
	double limit_w; /* power limit of the one line; NAN for several, or where unknown */
};

/* How lines are told apart: by their GPU alone (one run), or by label too. */
enum chart_names { CHART_GPUS, CHART_RUNS };

/* Room for `most` lines.  0 or -GW_E_NOMEM; chart_done() after success. */
int chart_init(struct chart *c, size_t most);
void chart_done(struct chart *c);

/* Adds the lines of a run, one a GPU that has readings of power (or of temperature). */
void chart_add_power(struct chart *c, const struct result *file, const struct result_run *run,
		     enum chart_names names);
void chart_add_temperature(struct chart *c, const struct result *file,
			   const struct result_run *run, enum chart_names names);

#endif
