/* markup: text that means itself inside HTML and SVG, whatever it holds. */
#ifndef GW_CLI_MARKUP_H
#define GW_CLI_MARKUP_H

#include "base/buf.h"

/* Adds s (NULL: nothing) for element text or a quoted attribute: markup characters become
 * references; invalid UTF-8 and what XML forbids become U+FFFD. */
void markup_text(struct buf *out, const char *s);

/* The same, cut to so many columns, with a mark where something is missing. */
void markup_cut(struct buf *out, const char *s, size_t columns);

#endif
