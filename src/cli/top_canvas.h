/* top_canvas: a grid of characters with styles, on which `gpuward top` draws text, bars and
 * graphs.
 *
 * This module does not use a terminal: top_terminal.c copies the cells to the terminal, and
 * tests print them as text. Whatever does not fit into the grid is cut. Control characters in a
 * text are replaced. */
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
	CANVAS_MARK,     /* words such as SIMULATED and PAUSED */
	CANVAS_HEADING,  /* headings of tables */
	CANVAS_SELECTED, /* the row of the cursor */
	/* The other styles are the colours of the graphs. */
	CANVAS_POWER,
	CANVAS_UTILIZATION,
	CANVAS_MEMORY,
	CANVAS_TEMPERATURE,
	CANVAS_STYLES
};

struct canvas_cell {
	uint32_t code;  /* Unicode; 0: second column of the wide character to the left */
	uint32_t style; /* enum canvas_style */
};

struct canvas {
	unsigned rows, columns;
	bool utf8; /* the locale uses UTF-8; false: draw only with ASCII */
	unsigned cap;
	struct canvas_cell *cell;
};

/* Sets the size and clears all cells. A struct that is all zero is a valid canvas without
 * cells. Returns 0 or -GW_E_NOMEM. */
int canvas_resize(struct canvas *c, unsigned rows, unsigned columns);
void canvas_done(struct canvas *c);

static inline struct canvas_cell *canvas_at(const struct canvas *c, unsigned row,
					    unsigned column)
{
	return &c->cell[row * c->columns + column];
}

/* Writes text into the columns from `column` to `end` - 1. A text that does not fit is cut and
 * ends with a mark. Returns the column after the text. */
unsigned canvas_text(struct canvas *c, unsigned row, unsigned column, unsigned end,
		     enum canvas_style style, const char *text);
unsigned canvas_format(struct canvas *c, unsigned row, unsigned column, unsigned end,
		       enum canvas_style style, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/* Writes text aligned to the right, into the columns from `column` to `end` - 1. */
void canvas_right(struct canvas *c, unsigned row, unsigned column, unsigned end,
		  enum canvas_style style, const char *text);

/* Writes text into the columns from `column` to `end` - 1, wrapped between words, in at most
 * `rows` rows. Returns the number of rows that it used. */
unsigned canvas_wrap(struct canvas *c, unsigned row, unsigned rows, unsigned column,
		     unsigned end, enum canvas_style style, const char *text);

/* Sets the style of all cells in a row. */
void canvas_paint(struct canvas *c, unsigned row, enum canvas_style style);

/* Draws a bar that is filled by `share`, from 0 to 1; NAN draws an empty bar. A line marks the
 * position `mark`, also from 0 to 1; NAN: no line. */
void canvas_bar(struct canvas *c, unsigned row, unsigned column, unsigned width, double share,
		double mark, enum canvas_style style);

/* A graph of samples. The newest sample is at the right. Each column shows two samples. */
struct canvas_graph {
	unsigned row, column, rows, columns;
	double high; /* value at the top; the bottom is 0 */
	double mark; /* value at which a line is drawn; NAN: no line */
	enum canvas_style style;
	/* Returns sample i. Sample 0 is the newest. NAN is an unknown sample and leaves a
	 * gap. */
	double (*sample)(const void *arg, unsigned i);
	const void *arg;
};
void canvas_graph(struct canvas *c, const struct canvas_graph *g);

#endif
