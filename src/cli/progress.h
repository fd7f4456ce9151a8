/* progress: one line on standard error that is written over again and again.
 *
 * Only where standard error is a terminal; elsewhere nothing is shown. */
#ifndef GW_CLI_PROGRESS_H
#define GW_CLI_PROGRESS_H

#include <stdbool.h>

/* Will there be any? */
bool progress_possible(bool quiet);

/* Shows the text in place of the one before, cut to the terminal's width. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Takes the line away, so that other text may come. */
void progress_clear(void);

/* "[#####.....]" of `width` columns (at most 60) for a share of 0 to 1. */
void progress_bar(char out[static 64], unsigned width, double share);

#endif
