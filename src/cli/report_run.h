/* report_run: one result on the page of a report: its runs, charts, and how its numbers were
 * got. */
#ifndef GW_CLI_REPORT_RUN_H
#define GW_CLI_REPORT_RUN_H

#include "result.h"

#include "base/buf.h"

/* Each chart is drawn twice, for a screen and for a phone; the style shows one of them. */
#define REPORT_WIDE   976
#define REPORT_NARROW 360

/* The section of results[i]; those before it may be referred to. */
void report_result(struct buf *out, const struct result *results, size_t i);

/* The validity as a small coloured word. */
void report_badge(struct buf *out, const char *validity);

#endif
