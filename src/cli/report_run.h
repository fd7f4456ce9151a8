/* report_run: the section of one result in a report: its runs, charts, and how it was
 * measured. */
#ifndef GW_CLI_REPORT_RUN_H
#define GW_CLI_REPORT_RUN_H

#include "result_file.h"

#include "base/buf.h"
#include "serve/render.h"

/* Each chart is drawn in two widths, for a screen and for a phone; the style sheet shows only
 * one of them. */
#define REPORT_WIDE   976
#define REPORT_NARROW 360

/* Writes the section of results[i].  The section may refer to earlier results.  cost: the price
 * and the carbon intensity that the user configured. */
void report_result(struct buf *out, const struct result_file *results, size_t i,
		   const struct energy_cost *cost);

/* Writes the validity as a small coloured word. */
void report_badge(struct buf *out, const char *validity);

#endif
