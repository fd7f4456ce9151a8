/* term: what the terminal can show: its width, colours, and text wrapped to fit. */
#ifndef GW_CLI_TERM_H
#define GW_CLI_TERM_H

#include <stdbool.h>

enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_GOOD, TERM_WARN, TERM_BAD, TERM_MARK };

/* Decides colour once: mode "auto", "always" or "never"; NO_COLOR, CLICOLOR_FORCE, FORCE_COLOR,
 * TERM=dumb and whether standard output is a terminal. */
void term_init(const char *color_mode);

/* From now on the text is for standard error (or for standard output again): where it goes,
 * what colours and how many columns it has. */
void term_to_stderr(bool on);

/* Columns of standard output (or error): of the terminal, else COLUMNS, else 80; 40 to 500. */
unsigned term_width(void);

/* The same for what need not be cut where a program reads it: without an end, unless COLUMNS
 * says otherwise. */
unsigned term_table_width(void);

bool term_utf8(void);

/* The text, or without UTF-8 what can be shown of it: "C" for "°C". */
const char *term_plain(const char *text);

/* Escape sequence that starts a style, and the one that ends it; "" without colour. */
const char *term_on(enum term_style style);
const char *term_off(void);

/* Prints `left`, which may hold styles, then text wrapped into the columns from `indent` to
 * width.  A word that no line holds is broken on a terminal, and left whole for programs. */
void term_wrap(const char *left, unsigned indent, const char *text, unsigned width);

/* The same as wide as the terminal, with a title in bold, or "". */
void term_row(unsigned indent, const char *title, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
