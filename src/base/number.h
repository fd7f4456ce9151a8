/* number: converts decimal text to double and back in any locale, and reads numbers with units.
 *
 * The library runs inside programs that call setlocale(); strtod() and printf() would then read
 * and write decimal commas. */
#ifndef GW_BASE_NUMBER_H
#define GW_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20) /* bytes */
#define GIB (UINT64_C(1) << 30) /* bytes */

/* Works like strtod() in the C locale. *ret_end == text if there is no number. */
double number_parse(const char *text, const char **ret_end);

/* Writes the shortest text that reads back to the same double; v must be finite. */
#define NUMBER_SIZE 32
void number_format(double v, char out[static NUMBER_SIZE]);

/* These functions read a field of a recording. The whole text must be a decimal number that
 * fits the type. number_real() accepts finite numbers, and "-" for unknown, which it returns as
 * NAN. The functions return false for other text; *ret is then undefined. */
bool number_u64(const char *text, uint64_t *ret);
bool number_i64(const char *text, int64_t *ret);
bool number_real(const char *text, double *ret);

/* A unit for unit_parse(). A table of units ends with a NULL name; the name "" is for a number
 * without a unit. */
struct unit {
	const char *name;
	double size;
};

/* unit_times converts to nanoseconds; a number without a unit is in seconds. unit_sizes
 * converts to bytes; "G" means GiB. The largest unit is first; other spellings follow. */
extern const struct unit unit_times[], unit_sizes[];

/* Reads a number that is not negative, with an optional unit: "1.5 h", "250ms", "4 GiB".
 * Returns false if the whole text is not such a number; *ret is then unchanged. */
bool unit_parse(const char *text, const struct unit *units, double *ret);

#endif
