/* ab_text: writes the texts of `gpuward ab`, during the runs and at the end. */
#ifndef GW_CLI_AB_TEXT_H
#define GW_CLI_AB_TEXT_H

#include "cli.h"

#include "serve/render_ab.h"

#include <stddef.h>

/* Writes a ratio and its interval as a change: "+2.1 % (+1.0 to +3.2 %)". */
void ab_text_change(char *out, size_t size, const struct ab_estimate *e);

/* Writes a sentence with the smallest effect that the largest number of pairs (--pairs-max) can
 * show.  Writes "" before A was compared with itself. */
void ab_text_plan(char *out, size_t size, const struct ab_report *r);

/* Prints the whole result on standard output.  a and b are the command lines of A and B.
 * `gpus` is a list of the GPUs if there are several; otherwise it is "". */
void ab_text_print(const struct ab_report *r, const char *a, const char *b, const char *gpus,
		   const struct cli *c);

#endif
