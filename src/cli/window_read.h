/* window_read: reads a window that the service measured, for `measure --service`.
 *
 * Hides the JSON (window in docs/schema/api.json).  The fields of the energy come from energy.def.  What is
 * missing or null becomes NAN, 0 or "". */
#ifndef GW_CLI_WINDOW_READ_H
#define GW_CLI_WINDOW_READ_H

#include "serve/render_result.h"

#include "base/json_doc.h"

/* Device i of the window, without baseline and series, which a window does not have.  False: it has no
 * energy because its meter went away; the codes are then truncated. */
bool window_read_device(const struct json_doc *window, size_t i, struct measured_device *ret);

/* The evidence for a code of device i; "": none. */
void window_read_evidence(const struct json_doc *window, size_t i, unsigned code, char *out,
			  size_t size);

#endif
