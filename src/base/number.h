/* number: converts between numbers and text in any locale, reads numbers with units, and writes
 * and reads the fields of recordings (tsv_*).
 *
 * The library runs inside programs that call setlocale(); strtod() and printf() would then read
 * and write decimal commas. */
#ifndef GW_BASE_NUMBER_H
#define GW_BASE_NUMBER_H

#include "buf.h"

#include <stdint.h>

#define MIB (UINT64_C(1) << 20) /* bytes */
#define GIB (UINT64_C(1) << 30) /* bytes */

/* Works like strtod() in the C locale. *ret_end == text if there is no number. */
double number_parse(const char *text, const char **ret_end);

/* Writes the shortest text that reads back to the same double; v must be finite. */
#define NUMBER_SIZE 32
void number_format(double v, char out[static NUMBER_SIZE]);

/* Returns v, or 0 if v would be printed as "-0.00" with this number of decimals. */
double number_without_minus_zero(double v, int decimals);

/* These functions read a number that is a field of a recording. The whole text must be a
 * decimal number that fits the type. number_real() accepts finite numbers, and "-" for unknown,
 * which it returns as NAN. The functions return false for other text; *ret is then undefined. */
bool number_u64(const char *text, uint64_t *ret);
bool number_i64(const char *text, int64_t *ret);
bool number_real(const char *text, double *ret);

/* A recording consists of lines with fields separated by tabs. A string is always one field:
 * tabs and newlines in it are escaped. The field "-" is an empty string or an unknown number. */

/* Writes a string as one field. Control characters, backslashes and dashes are written in
 * hexadecimal. */
void tsv_add_text(struct buf *out, const char *s);
/* Writes a number that reads back to the same double; "-" if it is not finite. */
void tsv_add_real(struct buf *out, double v);

/* Copies the field at *at and moves *at past the field and its tab. Returns false if there is
 * no field, or if the field does not fit in out. */
bool tsv_take(const char **at, char *out, size_t size);
/* Reads what tsv_add_text() wrote. Returns false if the field is invalid or does not fit. */
bool tsv_text(const char *field, char *out, size_t size);

/* Writes a string in which "-" has no special meaning: dashes are not escaped, and an empty
 * string writes nothing. */
void tsv_escape(struct buf *out, const char *s);
/* Reads what tsv_escape() wrote at *at, up to a tab or the end, and moves *at there. Returns
 * false if the text is invalid or does not fit. */
bool tsv_unescape(const char **at, char *out, size_t size);

/* A unit for unit_parse(). A table of units ends with a NULL name; the name "" is for a number
 * without a unit. */
struct unit {
	const char *name;
	double size;
};

/* unit_times converts a time to nanoseconds; a number without a unit is in seconds. unit_sizes
 * converts a size to bytes; "G" means GiB. Each table begins with the common spellings, from
 * the largest unit to the smallest. */
extern const struct unit unit_times[], unit_sizes[];

/* Reads a number that is not negative, with an optional unit: "1.5 h", "250ms", "4 GiB".
 * Returns false if the whole text is not such a number; *ret is then unchanged. */
bool unit_parse(const char *text, const struct unit *units, double *ret);

#endif
