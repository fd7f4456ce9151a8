/* chart: turns the runs of results into lines for plot.h. */
#ifndef GW_CLI_CHART_H
#define GW_CLI_CHART_H

#include "plot.h"
#include "result_file.h"

#define CHART_NAME 96

struct chart {
	struct plot_line *lines;
	char (*names)[CHART_NAME];
	size_t n;
	/* Power limit of the GPU. NAN: it is unknown, or the chart has several lines. */
	double limit_w;
};

/* With CHART_GPUS, a line's name contains only the GPU, because all lines are of one run. With
 * CHART_RUNS, the name also contains the label of the run. */
enum chart_names { CHART_GPUS, CHART_RUNS };

/* Allocates memory for `most` lines.  Returns 0 or -GW_E_NOMEM.  After success, call
 * chart_done(). */
int chart_init(struct chart *c, size_t most);
void chart_done(struct chart *c);

/* Add the lines of a run. There is one line per GPU that has power (or temperature) samples. */
void chart_add_power(struct chart *c, const struct result_file *file,
		     const struct result_run *run, enum chart_names names);
void chart_add_temperature(struct chart *c, const struct result_file *file,
			   const struct result_run *run, enum chart_names names);

#endif
