/* number: decimal text to double and back, whatever locale the program runs in.
 *
 * The library lives inside programs that call setlocale(); strtod() and printf() would then
 * read and write decimal commas. */
#ifndef GW_BASE_NUMBER_H
#define GW_BASE_NUMBER_H

/* strtod() in the C locale; *ret_end == text where there is no number. */
double number_parse(const char *text, const char **ret_end);

/* The shortest text that reads back to the same double; v is finite. */
#define NUMBER_SIZE 32
void number_format(double v, char out[static NUMBER_SIZE]);

#endif
