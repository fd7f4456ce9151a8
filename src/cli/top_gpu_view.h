/* top_gpu_view: draws one GPU on the canvas of `gpuward top`: as one line, with bars, with
 * graphs, or with all its figures. It is pure. */
#ifndef GW_CLI_TOP_GPU_VIEW_H
#define GW_CLI_TOP_GPU_VIEW_H

#include "top_canvas.h"
#include "top_model.h"

/* Number of rows that gpu_view_draw() uses for a GPU: for one line, or for a title and a row of
 * bars. If it may use more rows, it also draws graphs. */
#define GPU_VIEW_LINE 1
#define GPU_VIEW_BARS 2

/* Draws the heading above GPUs that are drawn as one line each. */
void gpu_view_heading(struct canvas *c, unsigned row);

void gpu_view_draw(struct canvas *c, unsigned row, unsigned rows, const struct top_gpu *g,
		   bool selected);

/* Draws a title and four large graphs, two next to each other. */
void gpu_view_large(struct canvas *c, unsigned row, unsigned rows, const struct top_gpu *g);

/* Draws all figures, and for unknown figures the reason. Returns the number of rows that it
 * used, at most `rows`. */
unsigned gpu_view_figures(struct canvas *c, unsigned row, unsigned rows,
			  const struct top_gpu *g);

/* Returns the width of one graph in columns. The caller uses this width to compute the time
 * that a graph covers. */
unsigned gpu_view_graph_columns(const struct canvas *c, bool large);

/* Writes an energy with a suitable unit, such as "980 J" or "16.4 kJ". NAN becomes "-". */
void gpu_view_energy(char out[static 24], double joules);

#endif
