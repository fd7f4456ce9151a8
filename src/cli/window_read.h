/* window_read: reads a window that the service measured, for `measure --service`.
 *
 * docs/schema/api.json describes the JSON.  The fields of the energy come from energy.def.  A
 * value that is missing or null becomes NAN, 0 or "". */
#ifndef GW_CLI_WINDOW_READ_H
#define GW_CLI_WINDOW_READ_H

#include "serve/render_result.h"

#include "base/json_doc.h"

/* Reads device i of the window. Baseline and series stay empty, because the service does not
 * provide them. Returns false if the service has no energy for the device, because the meter of
 * the service was stopped; the device then has the code "truncated". */
bool window_read_device(const struct json_doc *window, size_t i, struct measured_device *ret);

/* Writes the evidence for a code of device i; "" if there is none. */
void window_read_evidence(const struct json_doc *window, size_t i, unsigned code, char *out,
			  size_t size);

#endif
