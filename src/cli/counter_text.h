/* counter_text: finds a counter in the reply of a server.  Pure.
 *
 * The reply may be Prometheus text (or OpenMetrics), JSON, or a single number. */
#ifndef GW_CLI_COUNTER_TEXT_H
#define GW_CLI_COUNTER_TEXT_H

#include "counter.h"

/* Checks the name of a counter.  In Prometheus text, `name` selects all its series, and
 * `name{label="v",...}` those with these labels.  In JSON it is the path of a number: keys and
 * positions separated by dots.  NULL selects the generated tokens of a known server, or the
 * single number.  Returns 0, or -GW_E_ARG with a sentence. */
int counter_text_check(const char *what, char *why, size_t size);

/* Adds each series to the reading, or marks it as failed.  text[n] is NUL. */
void counter_text(const char *text, size_t n, const char *what, struct counter_reading *ret);

#endif
