/* report_run: writes the section of a report about one result: its runs, its charts, and how it
 * was measured. */
#ifndef GW_CLI_REPORT_RUN_H
#define GW_CLI_REPORT_RUN_H

#include "result_file.h"

#include "base/buf.h"
#include "serve/render.h"

/* Widths of a chart in pixels, for a screen and for a phone.  Each chart is drawn in both
 * widths; the style sheet shows only one of them. */
#define REPORT_WIDE   976
#define REPORT_NARROW 360

/* Writes the section about results[i].  The section may refer to earlier results.  cost
 * contains the price and the carbon intensity that the user configured. */
void report_result(struct buf *out, const struct result_file *results, size_t i,
		   const struct energy_cost *cost);

/* Writes the validity as a small coloured word. */
void report_badge(struct buf *out, const char *validity);

#endif
