/* top_gpu_view: draws one GPU of `gpuward top` on a canvas: as one line, as bars, as graphs, or
 * with all its figures.  Pure. */
#ifndef GW_CLI_TOP_GPU_VIEW_H
#define GW_CLI_TOP_GPU_VIEW_H

#include "top_canvas.h"
#include "top_model.h"

/* Rows of a GPU: one line; or a title and bars; or, with more rows, a title, captions and
 * graphs. */
#define GPU_VIEW_LINE 1
#define GPU_VIEW_BARS 2

/* Draws the heading of the view in which each GPU has one line. */
void gpu_view_heading(struct canvas *c, unsigned row);

void gpu_view_draw(struct canvas *c, unsigned row, unsigned rows, const struct top_gpu *g,
		   bool selected);

/* Draws two rows of graphs, each half as wide as the canvas. */
void gpu_view_large(struct canvas *c, unsigned row, unsigned rows, const struct top_gpu *g);

/* Draws all figures, and the reason for each unknown one.  Returns the number of rows, at most
 * `rows`. */
unsigned gpu_view_figures(struct canvas *c, unsigned row, unsigned rows,
			  const struct top_gpu *g);

/* Returns the number of columns of one graph, for the time that it covers. */
unsigned gpu_view_graph_columns(const struct canvas *c, bool large);

/* Writes an energy with a suitable unit: "980 J", "16.4 kJ"; "-" if it is unknown. */
void gpu_view_energy(char out[static 24], double joules);

#endif
