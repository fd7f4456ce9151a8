/* counter_text: finds a counter in the reply of a server.  Pure.
 *
 * The reply may be Prometheus text (or OpenMetrics), JSON, or a single number. */
#ifndef GW_CLI_COUNTER_TEXT_H
#define GW_CLI_COUNTER_TEXT_H

#include "counter.h"

/* Checks the name of a counter.  In Prometheus text, `name` selects all series of the counter,
 * and `name{label="v",...}` the series with these labels.  In JSON, the name is the path of a
 * number: keys and array indexes separated by dots.  NULL selects the counter of generated
 * tokens of a known server, or the single number.  Returns 0, or -GW_E_ARG with a sentence in
 * why. */
int counter_text_check(const char *what, char *why, size_t size);

/* Parses a reply of n bytes: adds each series to the reading, or marks the reading as failed.
 * text[n] must be NUL. */
void counter_text(const char *text, size_t n, const char *what, struct counter_reading *ret);

#endif
