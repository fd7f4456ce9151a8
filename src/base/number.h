/* number: decimal text to double and back, whatever locale the program runs in.
 *
 * The library lives inside programs that call setlocale(); strtod() and printf() would then
 * read and write decimal commas. */
#ifndef GW_BASE_NUMBER_H
#define GW_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* strtod() in the C locale; *ret_end == text where there is no number. */
double number_parse(const char *text, const char **ret_end);

/* The shortest text that reads back to the same double; v is finite. */
#define NUMBER_SIZE 32
void number_format(double v, char out[static NUMBER_SIZE]);

/* Words of a recording: all of text is the number, in decimal and within its type.  A real is finite, or "-",
 * which is NAN: not known.  False: it is none, and what *ret is does not matter. */
bool number_u64(const char *text, uint64_t *ret);
bool number_i64(const char *text, int64_t *ret);
bool number_real(const char *text, double *ret);

#endif
