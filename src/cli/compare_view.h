/* compare_view: the rows and columns that `gpuward compare` shows, and all formats except text.
 *
 * cmd_compare.c prints the table for a terminal.  compare_format.c has the texts of values,
 * changes and notes, and writes Markdown, CSV and JSON.  compare_paper.c writes what goes into
 * a paper: a LaTeX table and sentences. */
#ifndef GW_CLI_COMPARE_VIEW_H
#define GW_CLI_COMPARE_VIEW_H

#include "comparison.h"

#include "base/buf.h"

#include <stdbool.h>

struct compare_view {
	const struct comparison *c;
	bool shown[METRICS];
	bool no_power_sd; /* Hide the standard deviation of the power. */
	bool no_notes;    /* Write the table without notes (--quiet). */
	struct comparison_scale scale[METRICS];
};

#define COMPARE_CELL 160

/* Write a value with its unit ("16.2 ms"), and its interval without the unit ("[15.9, 16.5]").
 * Write "" if the value or the interval is unknown. */
void compare_value_text(const struct compare_view *v, const struct comparison_row *row,
			enum comparison_metric m, char out[static COMPARE_CELL]);
void compare_interval_text(const struct compare_view *v, const struct comparison_figure *f,
			   enum comparison_metric m, char out[static COMPARE_CELL]);

/* Returns the validity of a row, or "no run". */
const char *compare_row_state(const struct comparison_row *row);

void compare_markdown(const struct compare_view *v, struct buf *out);
void compare_csv(const struct compare_view *v, struct buf *out);
void compare_json(const struct compare_view *v, struct buf *out);

/* Writes a LaTeX table (tabular) for the package booktabs.  The heading contains the units; the
 * notes are LaTeX comments. */
void compare_latex(const struct compare_view *v, struct buf *out);

/* Writes one paragraph: the energy of the reference, then the change of each other row, with
 * intervals, numbers of runs, the method of the measurement, and the problems of the runs. */
void compare_sentences(const struct compare_view *v, struct buf *out);

#endif
