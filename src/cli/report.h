/* report: the HTML page of `gpuward report`.
 *
 * Everything is in the page: style, charts (SVG), no script, and a policy that forbids it to
 * load anything.  Texts of the results are escaped. */
#ifndef GW_CLI_REPORT_H
#define GW_CLI_REPORT_H

#include "comparison.h"
#include "result.h"

#include "base/buf.h"

/* title NULL: one is made of the labels. */
void report_page(struct buf *out, const char *title, const struct comparison *c,
		 const struct result *results, size_t n);

#endif
