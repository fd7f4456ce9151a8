/* counter_text: finds a counter in what a server answers.
 *
 * Three kinds of answers are read: Prometheus' text (and OpenMetrics), JSON, and one number
 * alone.  Pure. */
#ifndef GW_CLI_COUNTER_TEXT_H
#define GW_CLI_COUNTER_TEXT_H

#include "counter.h"

/* What of it: of Prometheus' text `name`, all series, or `name{label="v",...}`, those that have
 * these labels; of JSON the path of a number, keys and positions parted by dots.  NULL: the
 * counter of generated tokens of a server that is known, or the number that is all of the
 * answer.  0, or -GW_E_ARG with a sentence. */
int counter_text_check(const char *what, char *why, size_t size);

/* Adds each series to the reading, or refuses it.  text ends with NUL at n. */
void counter_text(const char *text, size_t n, const char *what, struct counter_reading *ret);

#endif
