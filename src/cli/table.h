/* table: columns that fit the terminal.
 *
 * If the table is too wide, the widest column with `cut` is shortened first.  Then whole
 * columns are dropped, those with the highest rank first; columns with the same rank are
 * dropped together. */
#ifndef GW_CLI_TABLE_H
#define GW_CLI_TABLE_H

#include "term.h"

#include "base/buf.h"

#include <stddef.h>

struct table_column {
	const char *title; /* NULL ends the array                                  */
	unsigned rank;     /* 0: never dropped; the highest rank is dropped first  */
	bool right;        /* aligned to the right, for numbers                    */
	bool cut;          /* may be shortened to fit                              */
};

/* For a list of columns X(SYMBOL, title, rank, right, cut): enum { LIST(TABLE_SYMBOL) } are their
 * numbers, and { LIST(TABLE_COLUMN) TABLE_END } is the array. */
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
	struct table_cell *cell; /* the cells, row after row */
	int error;
};

/* True if a table could not be printed, because there was no memory for it.  The program then
 * ends with an error. */
bool table_was_lost(void);

void table_init(struct table *t, const struct table_column *columns);
void table_done(struct table *t);

/* Begins a row.  table_set() sets the cells of this row.  A cell that is not set shows "-". */
void table_row(struct table *t);
void table_set(struct table *t, unsigned column, enum term_style style, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Sets a cell to a text.  Does nothing if text is NULL or "". */
void table_text(struct table *t, unsigned column, enum term_style style, const char *text);

/* Appends the table with a heading to out.  Columns in which no cell is set are left out. */
void table_format(const struct table *t, unsigned width, bool colour, struct buf *out);

/* Sets hidden[i] for each column that table_format() drops because the width is too small.
 * Returns the width that shows all columns, or 0 if none is dropped. */
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
