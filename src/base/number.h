/* number: converts between numbers and text with a decimal point, and reads numbers with units.
 *
 * The locale has no effect. The library runs inside programs that call setlocale(); there,
 * strtod() and printf() may read and write decimal commas. */
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

/* Writes a size for people, in the largest unit in which it is at least 1: "140.4 GiB". NAN:
 * "-". `decimals` is the number of digits after the point in GiB and TiB (1 or 2); KiB and MiB
 * have one digit less. */
#define BYTES_TEXT 16
const char *bytes_text(char out[static BYTES_TEXT], double bytes, int decimals);

/* Returns v, or 0 if v would be printed as "-0.00" with this number of decimals. */
double number_without_minus_zero(double v, int decimals);

/* Reads a text that is one decimal number and fits the type. Returns false for any other text;
 * *ret is then undefined. */
bool number_u64(const char *text, uint64_t *ret);
/* Works like number_u64(), but refuses leading zeros, so that an id has only one spelling. */
bool number_id(const char *text, uint64_t *ret);

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
