/* term: output on a terminal: width, colours, wrapped text, a progress line, a screen that is
 * redrawn, and the signals that end a command. */
#ifndef GW_CLI_TERM_H
#define GW_CLI_TERM_H

#include <stdbool.h>
#include <stdio.h>

enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_GOOD, TERM_WARN, TERM_BAD, TERM_MARK };

/* Decides whether to use colour: by mode ("auto", "always" or "never"), NO_COLOR,
 * CLICOLOR_FORCE, FORCE_COLOR, TERM=dumb, and whether standard output is a terminal. */
void term_init(const char *color_mode);

/* Sends output to standard error, or back to standard output.  Colours and width are then those
 * of that stream. */
void term_to_stderr(bool on);

/* Returns the columns of standard output (or error): from the terminal, else from COLUMNS, else
 * 80.  The result is from 40 to 500. */
unsigned term_width(void);

/* Works like term_width(), but has no limit if the output is not a terminal and COLUMNS is not
 * set, because a program that reads a table needs whole lines. */
unsigned term_table_width(void);

bool term_utf8(void);
bool term_color(void);

/* Returns the text, or its ASCII form if the terminal does not show UTF-8: "C" for "°C". */
const char *term_plain(const char *text);

/* Returns the SI prefix for a number, so that it has up to four digits before the decimal
 * point.  *ret_scale: the factor of the prefix. */
const char *term_prefix(double v, double *ret_scale);

/* Writes a number with four digits and a suitable prefix, as "12.34 ms"; "unknown" for NAN. */
const char *term_quantity(char out[static 32], double v, const char *unit);

/* Writes a number and the half width of its interval with the same prefix, as "4003 ± 102 J".
 * Leaves out digits that are smaller than the uncertainty.  Writes "unknown" if v is NAN. */
const char *term_interval(char out[static 80], double v, double half_width, const char *unit);

/* Writes the half width of an interval with two digits, as "102 J"; "unknown" for NAN. */
const char *term_half_width(char out[static 32], double half_width, const char *unit);

/* Return the escape sequences that start and end a style; "" if colours are off. */
const char *term_on(enum term_style style);
const char *term_off(void);

/* Returns how many of the first `bytes` of text fit into `columns`; whole characters only.
 * *ret_columns: the columns that they take. */
size_t term_fit(const char *text, size_t bytes, size_t columns, size_t *ret_columns);

/* Prints `left`, which may contain styles, then text wrapped into the columns from `indent` to
 * width.  A word that is longer than a line is broken on a terminal only. */
void term_wrap(const char *left, unsigned indent, const char *text, unsigned width);

/* Prints `left` and one line of text on standard error.  On a terminal, wraps the text at the
 * terminal's width and indents the further lines by the columns of `left`.  Elsewhere prints
 * one line, because scripts read lines.  A word that is longer than a line, such as a path, is
 * not broken. */
void term_error_line(const char *left, const char *text);

/* Prints that the GPUs are simulated. */
void term_print_simulated(FILE *out);

/* Works like term_wrap() with the width of the terminal.  Prints the title in bold; "" means no
 * title. */
void term_row(unsigned indent, const char *title, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A screen that is redrawn.  It uses the terminal's alternate screen, so the earlier content
 * comes back afterwards.  It shows as many lines as fit.  Ctrl-C, SIGTERM and SIGQUIT end it
 * (stop_requested()); the last frame is then printed again.  screen_begin() returns false if
 * standard output is not a suitable terminal. */
bool screen_begin(void);

/* What is printed between these two calls is one frame. */
void screen_frame_begin(void);
void screen_frame_end(void);

void screen_end(void);

/* A progress line on standard error, which is overwritten again and again.  progress_possible()
 * returns false if standard error is not a terminal or `quiet` is set: then do not call
 * progress_show(). */
bool progress_possible(bool quiet);

/* Replaces the progress line with this text, cut to the terminal's width. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Removes the progress line, so that other text can be printed. */
void progress_clear(void);

/* Writes "[#####.....]" of `width` columns (at most 60) for a share from 0 to 1. */
void progress_bar(char out[static 64], unsigned width, double share);

/* Catches Ctrl-C, SIGTERM and SIGQUIT, for commands that run for a while.  The first signal sets
 * the flag of stop_requested(), and system calls that wait return early (EINTR).  A second
 * signal ends the program immediately. */
void stop_catch(void);

bool stop_requested(void);

/* Returns the signal that was caught, or 0. */
int stop_signal(void);

/* Catches the same signals, for work that cannot be asked to stop.  The first signal removes the
 * progress line, prints the message and ends the program with status 128 + signal. */
void stop_exit(const char *message);

#endif
