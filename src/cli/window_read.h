/* window_read: an energy window that the service measured becomes what a result is made of.
 *
 * Hides the names of its JSON (window in docs/schema/api.json): one table of fields a struct, so
 * that one more is a row.  What the document does not say, or says as null, is NAN, 0 or "". */
#ifndef GW_CLI_WINDOW_READ_H
#define GW_CLI_WINDOW_READ_H

#include "serve/render_result.h"

#include "base/json_doc.h"

/* Device i of the window, but for its baseline and its series, which a window has not.  False:
 * it tells no energy, as its meter went away, and what is set says so (codes: truncated). */
bool window_read_device(const struct json_doc *window, size_t i, struct measured_device *ret);

/* What it says of a code of device i; "" nothing. */
void window_read_evidence(const struct json_doc *window, size_t i, unsigned code, char *out,
			  size_t size);

#endif
