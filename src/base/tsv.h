/* tsv: lines of fields separated by tabs, the format of recordings.
 *
 * A text is one field, whatever it contains; "-" is an empty text or an unknown number.
 * number.h reads numbers. */
#ifndef GW_BASE_TSV_H
#define GW_BASE_TSV_H

#include "buf.h"

/* Control characters, backslashes and dashes are written in hexadecimal. */
void tsv_add_text(struct buf *out, const char *s);
/* Reads back to the same double; a value that is not finite is "-". */
void tsv_add_real(struct buf *out, double v);

/* Copies the field at *at and moves *at past it and its tab. False: no field, or it is too
 * long. */
bool tsv_take(const char **at, char *out, size_t size);
/* Reads what tsv_add_text() wrote. False: invalid or too long. */
bool tsv_text(const char *word, char *out, size_t size);

/* A text in which "-" has no special meaning: an empty one is nothing, and dashes stay. */
void tsv_escape(struct buf *out, const char *s);
/* Reads what tsv_escape() wrote at *at, up to a tab or the end, and moves *at there. False: as
 * above. */
bool tsv_unescape(const char **at, char *out, size_t size);

#endif
