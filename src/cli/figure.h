/* figure: one figure a line, with the unit that its key ends with. */
#ifndef GW_CLI_FIGURE_H
#define GW_CLI_FIGURE_H

#include <gpuward.h>

#include <stdbool.h>

/* " key text", the texts of several lines in one column; a text that does not fit goes to the
 * next line. */
void figure_line(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A number, by what its key says it is. */
void figure_number(const char *key, double v);

/* A figure of a device.  One that is absent is shown with its reason, or not at all. */
void figure_value(const struct gw_device *d, unsigned quantity, bool reasons);

#endif
