/* number: converts decimal text to double and back in any locale, and reads numbers with units.
 *
 * The library runs inside programs that call setlocale(); strtod() and printf() would then read
 * and write decimal commas. */
#ifndef GW_BASE_NUMBER_H
#define GW_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Works like strtod() in the C locale. *ret_end == text if there is no number. */
double number_parse(const char *text, const char **ret_end);

/* Writes the shortest text that reads back to the same double; v must be finite. */
#define NUMBER_SIZE 32
void number_format(double v, char out[static NUMBER_SIZE]);

/* Read fields of recordings. The whole text must be a decimal number that fits the type. A real
 * is finite, or "-", which means unknown and gives NAN. Return false if the text is not such a
 * number; *ret is then undefined. */
bool number_u64(const char *text, uint64_t *ret);
bool number_i64(const char *text, int64_t *ret);
bool number_real(const char *text, double *ret);

/* Numbers with a unit. */
/* a table of units ends with a NULL name; the name "" is for a number without a unit */
struct unit {
	const char *name;
	double size;
};

/* Units of time in nanoseconds (a number without a unit is seconds), and of size in bytes ("G"
 * is GiB). The largest unit is first; other spellings follow. */
extern const struct unit unit_times[], unit_sizes[];

/* Reads a number that is not negative, with an optional unit: "1.5 h", "250ms", "4 GiB".
 * Returns false if the whole text is not such a number; *ret is then unchanged. */
bool unit_parse(const char *text, const struct unit *units, double *ret);

#endif
