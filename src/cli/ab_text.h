/* ab_text: a comparison as people read it, while it goes on and when it is over. */
#ifndef GW_CLI_AB_TEXT_H
#define GW_CLI_AB_TEXT_H

#include "cli.h"

#include "serve/render_ab.h"

#include <stddef.h>

/* "+2.1 % (+1.0 to +3.2 %)": a ratio and its interval as changes. */
void ab_text_change(char *out, size_t size, const struct ab_estimate *e);

/* What the A/A pass lets expect, before the comparison begins; "" where nothing. */
void ab_text_plan(char *out, size_t size, const struct ab_report *r);

/* The whole result, on standard output.  a, b: the command lines. */
void ab_text_print(const struct ab_report *r, const char *a, const char *b,
		   const struct cli *c);

#endif
