/* table: prints a table that fits the width of the terminal.
 *
 * If the table is too wide, the widest column that may be cut is made narrower. If this is not
 * enough, the columns with the highest rank are not shown, then those with the next lower
 * rank. */
#ifndef GW_CLI_TABLE_H
#define GW_CLI_TABLE_H

#include "term.h"

#include "base/buf.h"

#include <stddef.h>

/* What happens to long cells of a column if the table does not fit. The columns that the macros
 * below define may use false for TABLE_WHOLE and true for TABLE_CUT. TABLE_WRAP is for the last
 * column. */
enum table_long { TABLE_WHOLE, TABLE_CUT, TABLE_WRAP };

struct table_column {
	const char *title; /* NULL ends the array                                  */
	/* 0: always shown; the column with the highest rank is hidden first */
	unsigned rank;
	bool right; /* align to the right, for numbers */
	enum table_long cut;
};

/* Macros for a list of columns, LIST(X), which has one row X(SYMBOL, title, rank, right, cut)
 * per column. enum { LIST(TABLE_SYMBOL) } defines the numbers of the columns, and {
 * LIST(TABLE_COLUMN) TABLE_END } is the array of columns. */
#define TABLE_SYMBOL(symbol, ...) symbol,
#define TABLE_COLUMN(symbol, ...) { __VA_ARGS__ },
#define TABLE_END                     \
	{                             \
		NULL, 0, false, false \
	}

#define TABLE_COLUMNS_MAX 24
#define TABLE_CELL        320

struct table {
	const struct table_column *columns;
	unsigned ncolumns, rows, cap;
	/* all cells of the first row, then those of the second row, and so on */
	struct table_cell *cell;
	int error;
};

/* Returns true if there was not enough memory to print a table. The program then ends with an
 * error. */
bool table_was_lost(void);

void table_init(struct table *t, const struct table_column *columns);
void table_done(struct table *t);

/* Begins a row.  table_set() sets the cells of this row.  A cell that is not set shows "-". */
void table_row(struct table *t);
void table_set(struct table *t, unsigned column, enum term_style style, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Sets a cell to a text. If text is NULL or "", the cell stays unset. */
void table_text(struct table *t, unsigned column, enum term_style style, const char *text);

/* Appends the heading and the rows to out. A column with a rank above 0 is not shown if none of
 * its cells is set. */
void table_format(const struct table *t, unsigned width, bool colour, struct buf *out);

/* Sets hidden[i] to true for each column that table_format() does not show because the width is
 * too small. Returns the width that would show all columns, or 0 if no column is hidden. */
unsigned table_hidden(const struct table *t, unsigned width,
		      bool hidden[static TABLE_COLUMNS_MAX]);

/* Returns the width that the table needs to show all columns. */
unsigned table_width(const struct table *t);

/* Prints the table to standard output, with colours if term_init() enabled them.  A table
 * without rows prints nothing. */
void table_print(const struct table *t, unsigned width);

/* Prints the table and frees it. */
void table_end(struct table *t, unsigned width);

#endif
