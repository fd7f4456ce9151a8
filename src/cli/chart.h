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
	/* Power limit of the GPU if there is one line. NAN: several lines, or unknown. */
	double limit_w;
};

/* A line's name contains only the GPU (CHART_GPUS, for one run), or also the label of the
 * run. */
enum chart_names { CHART_GPUS, CHART_RUNS };

/* Allocates memory for `most` lines.  Returns 0 or -GW_E_NOMEM.  After success, call
 * chart_done(). */
int chart_init(struct chart *c, size_t most);
void chart_done(struct chart *c);

/* Add the lines of a run, one per GPU with power (or temperature) samples. */
void chart_add_power(struct chart *c, const struct result_file *file,
		     const struct result_run *run, enum chart_names names);
void chart_add_temperature(struct chart *c, const struct result_file *file,
			   const struct result_run *run, enum chart_names names);

#endif
