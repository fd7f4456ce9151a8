/* word: what a recording is made of: lines of words that are parted by tabs.
 *
 * A text is one word, whatever is in it; "-" stands for an empty text and for a number that is not known.
 * number.h reads numbers. */
#ifndef GW_BASE_TSV_H
#define GW_BASE_TSV_H

#include "buf.h"

/* Control characters, backslashes and the dash are spelled in hexadecimal. */
void tsv_add_text(struct buf *out, const char *s);
/* Reads back to the same double; one that is not finite is "-". */
void tsv_add_real(struct buf *out, double v);

/* The word at *at, copied; *at moves past it and its tab.  False: there is none, or it is too long. */
bool tsv_take(const char **at, char *out, size_t size);
/* What tsv_add_text() wrote.  False: it is none, or too long. */
bool tsv_text(const char *word, char *out, size_t size);

/* A text where no dash has a meaning: an empty one is nothing, and dashes stay. */
void tsv_escape(struct buf *out, const char *s);
/* What tsv_escape() wrote at *at, up to a tab or the end, where *at stands afterwards.  False: as above. */
bool tsv_unescape(const char **at, char *out, size_t size);

#endif
