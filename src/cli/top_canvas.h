/* top_canvas: a grid of character cells with styles, on which `gpuward top` draws text, bars
 * and history graphs.
 *
 * This module does not use a terminal: top_terminal.c copies the cells to the terminal, and a
 * test prints them as text. Everything is cut at the edges of the grid, and text that could
 * control a terminal is made harmless here. */
#ifndef GW_CLI_TOP_CANVAS_H
#define GW_CLI_TOP_CANVAS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum canvas_style {
	CANVAS_PLAIN,
	CANVAS_BOLD,
	CANVAS_DIM,
	CANVAS_GOOD,
	CANVAS_WARN,
	CANVAS_BAD,
	CANVAS_MARK,     /* words such as simulated, paused, old */
	CANVAS_HEADING,  /* first line and heading of the table */
	CANVAS_SELECTED, /* the row of the cursor */
	CANVAS_POWER,    /* one colour per graph */
	CANVAS_UTILIZATION,
	CANVAS_MEMORY,
	CANVAS_TEMPERATURE,
	CANVAS_STYLES
};

struct canvas_cell {
	uint32_t code; /* code point; 0: the second column of the wide character before it */
	uint32_t style;
};

struct canvas {
	unsigned rows, columns;
	bool utf8; /* the locale (LC_CTYPE) of the process has this encoding */
	unsigned cap;
	struct canvas_cell *cell;
};

/* Sets the size and clears all cells.  Returns 0 or -GW_E_NOMEM.  A struct of zeros is a canvas
 * without cells. */
int canvas_resize(struct canvas *c, unsigned rows, unsigned columns);
void canvas_done(struct canvas *c);

static inline struct canvas_cell *canvas_at(const struct canvas *c, unsigned row,
					    unsigned column)
{
	return &c->cell[row * c->columns + column];
}

/* Writes text from `column` to before `end`.  Text that does not fit is cut, and ends with a
 * mark.  Returns the column behind the text. */
unsigned canvas_text(struct canvas *c, unsigned row, unsigned column, unsigned end,
		     enum canvas_style style, const char *text);
unsigned canvas_format(struct canvas *c, unsigned row, unsigned column, unsigned end,
		       enum canvas_style style, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/* Writes text so that it ends before `end`, but not before `column`. */
void canvas_right(struct canvas *c, unsigned row, unsigned column, unsigned end,
		  enum canvas_style style, const char *text);

/* Writes text into the columns up to `end`, wrapped at words, in at most `rows` rows.  Returns
 * the number of rows. */
unsigned canvas_wrap(struct canvas *c, unsigned row, unsigned rows, unsigned column,
		     unsigned end, enum canvas_style style, const char *text);

/* Gives all cells of a row the style. */
void canvas_paint(struct canvas *c, unsigned row, enum canvas_style style);

/* Draws a bar for a share from 0 to 1; NAN draws an empty bar.  mark: share of a limit that is
 * marked; NAN: none. */
void canvas_bar(struct canvas *c, unsigned row, unsigned column, unsigned width, double share,
		double mark, enum canvas_style style);

/* A graph of samples, the newest at the right; two samples per column. */
struct canvas_graph {
	unsigned row, column, rows, columns;
	double high; /* value at the top; the bottom is 0 */
	double mark; /* value that is marked with a line; NAN: none */
	enum canvas_style style;
	/* Returns sample i, where 0 is the newest; NAN: unknown, which leaves a gap. */
	double (*sample)(const void *arg, unsigned i);
	const void *arg;
};
void canvas_graph(struct canvas *c, const struct canvas_graph *g);

/* Appends the cells as lines of UTF-8 without styles and without blanks at the end. */
void canvas_print(const struct canvas *c, struct buf *out);

#endif
