/* tsv: writes and reads lines of fields separated by tabs, the format of recordings.
 *
 * A string is always one field: tabs and newlines in it are escaped. "-" is an empty string or
 * an unknown number. number.h reads the numbers. */
#ifndef GW_BASE_TSV_H
#define GW_BASE_TSV_H

#include "buf.h"

/* Writes a string as one field. Control characters, backslashes and dashes are written in
 * hexadecimal. */
void tsv_add_text(struct buf *out, const char *s);
/* Writes a number that reads back to the same double; "-" if it is not finite. */
void tsv_add_real(struct buf *out, double v);

/* Copies the field at *at and moves *at past the field and its tab. Returns false if there is
 * no field, or if it is too long. */
bool tsv_take(const char **at, char *out, size_t size);
/* Reads what tsv_add_text() wrote. Returns false if it is invalid or too long. */
bool tsv_text(const char *word, char *out, size_t size);

/* Writes a string in which "-" has no special meaning: dashes are not escaped, and an empty
 * string writes nothing. */
void tsv_escape(struct buf *out, const char *s);
/* Reads what tsv_escape() wrote at *at, up to a tab or the end, and moves *at there. Returns
 * false if it is invalid or too long. */
bool tsv_unescape(const char **at, char *out, size_t size);

#endif
