/* term: output on a terminal. It has functions for width, colours, wrapped text, a progress
 * line and a screen that is drawn again and again, and it catches the signals that end a
 * command. */
#ifndef GW_CLI_TERM_H
#define GW_CLI_TERM_H

#include <stdbool.h>
#include <stdio.h>

enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_GOOD, TERM_WARN, TERM_BAD, TERM_MARK };

/* Decides whether to use colours. color_mode is "always", "never", "auto" or NULL, which means
 * "auto". The mode "auto" considers the environment variables NO_COLOR, CLICOLOR_FORCE,
 * FORCE_COLOR and TERM, and whether the output is a terminal. */
void term_init(const char *color_mode);

/* Sends the output of this module to standard error, or to standard output again. Colours and
 * width follow from the chosen stream. */
void term_to_stderr(bool on);

/* Returns the width of the output in columns, from 40 to 500. The width comes from the
 * terminal, else from the variable COLUMNS; if both are unknown, it is 80. */
unsigned term_width(void);

/* Returns the width for a table. If the output is not a terminal and COLUMNS is not set, this
 * is INT_MAX, because a program that reads the table needs whole lines. Otherwise it is the
 * same as term_width(). */
unsigned term_table_width(void);

bool term_utf8(void);
bool term_color(void);

/* Returns the text, or its ASCII form if the terminal cannot show UTF-8, such as "C" for
 * "°C". */
const char *term_plain(const char *text);

/* Returns the SI prefix with which the number has at most four digits before the decimal point.
 * *ret_scale is the factor of the prefix, such as 1000 for "k". */
const char *term_prefix(double v, double *ret_scale);

/* Writes a number with four digits and a suitable prefix, such as "12.34 ms". NAN becomes
 * "unknown". */
const char *term_quantity(char out[static 32], double v, const char *unit);

/* Writes a number and the half width of its interval with the same prefix, as "4003 ± 102 J".
 * Leaves out digits that are smaller than the uncertainty.  Writes "unknown" if v is NAN. */
const char *term_interval(char out[static 80], double v, double half_width, const char *unit);

/* Writes the half width of an interval, such as "4.2 J" or "102 J"; "unknown" for NAN. */
const char *term_half_width(char out[static 32], double half_width, const char *unit);

/* Return the escape sequences that start and end a style; "" if colours are off. */
const char *term_on(enum term_style style);
const char *term_off(void);

/* Returns how many of the first `bytes` bytes of text fit into `columns` columns. A character
 * that does not fit completely is not counted. *ret_columns is the width of the counted
 * text. */
size_t term_fit(const char *text, size_t bytes, size_t columns, size_t *ret_columns);

/* Prints `left`, which may contain styles, and then text. The text is wrapped and uses the
 * columns from `indent` to `width`. On a terminal, a word that is longer than a line is
 * broken. */
void term_wrap(const char *left, unsigned indent, const char *text, unsigned width);

/* Prints `left` and one line of text on standard error.  On a terminal, wraps the text at the
 * terminal's width and indents the further lines by the columns of `left`.  Elsewhere prints
 * one line, because scripts read lines.  A word that is longer than a line, such as a path, is
 * not broken. */
void term_error_line(const char *left, const char *text);

/* Prints a line that says that the GPUs are simulated. */
void term_print_simulated(FILE *out);

/* Prints a title in bold and a text like term_wrap(), with the width of the terminal. The title
 * may be "". */
void term_row(unsigned indent, const char *title, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A screen that shows one frame after the other. It uses the terminal's alternate screen, so
 * the earlier content is visible again afterwards. A frame shows as many lines as fit. After
 * Ctrl-C, SIGTERM, SIGQUIT or SIGHUP, stop_requested() returns true; screen_end() then prints
 * the last frame again. screen_begin() returns false if standard output is not a suitable
 * terminal. */
bool screen_begin(void);

/* Text that is printed between these two calls is one frame. */
void screen_frame_begin(void);
void screen_frame_end(void);

void screen_end(void);

/* A progress line on standard error; each text replaces the one before. progress_possible()
 * returns false if `quiet` is set or standard error is not a terminal. The caller must then not
 * call progress_show(). */
bool progress_possible(bool quiet);

/* Replaces the progress line with this text, cut to the terminal's width. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Removes the progress line, so that other text can be printed. */
void progress_clear(void);

/* Writes a bar such as "[#####.....]" for a share from 0 to 1. The bar is `width` columns wide,
 * at most 60. */
void progress_bar(char out[static 64], unsigned width, double share);

/* Catches Ctrl-C, SIGTERM, SIGQUIT and SIGHUP, for commands that run for a while. After the
 * first signal, stop_requested() returns true, and a system call that waits returns early with
 * EINTR. A second signal ends the program immediately. */
void stop_catch(void);

bool stop_requested(void);

/* Returns the signal that was caught, or 0. */
int stop_signal(void);

/* Catches the same signals, for work that does not check stop_requested(). The first signal
 * removes the progress line, prints the message and ends the program with status 128 +
 * signal. */
void stop_exit(const char *message);

#endif
