/* table: columns that fit the terminal.
 *
 * Every column says how much it matters.  Where the whole is too wide, the text of the column
 * that may be cut is cut first, down to a readable rest, then the least important columns go,
 * rank by rank: columns of one rank say something together and go together.  On a wide terminal
 * all are shown. */
#ifndef GW_CLI_TABLE_H
#define GW_CLI_TABLE_H

#include "term.h"

#include "base/buf.h"

#include <stddef.h>

struct table_column {
	const char *title; /* NULL ends the array                                  */
	unsigned rank;     /* 0: never dropped; the highest rank is dropped first  */
	bool right;        /* numbers                                              */
	bool cut;          /* may be cut to fit                                    */
};

#define TABLE_COLUMNS_MAX 24
#define TABLE_CELL        320

struct table {
	const struct table_column *columns;
	unsigned ncolumns, rows, cap;
	struct table_cell *cell; /* rows x ncolumns */
	int error;
};

void table_init(struct table *t, const struct table_column *columns);
void table_done(struct table *t);

/* Begins a row; cells are then set by column number.  A cell that is not set shows "-". */
void table_row(struct table *t);
void table_set(struct table *t, unsigned column, enum term_style style, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Writes it with a heading onto out, in colour or not.  Columns in which every cell is empty
 * are left out. */
void table_format(const struct table *t, unsigned width, bool colour, struct buf *out);

/* Which columns table_format() leaves out for want of room: left[i] says it of each.  Returns
 * the width at which it would leave out none, 0 where that is so. */
unsigned table_left_out(const struct table *t, unsigned width,
			bool left[static TABLE_COLUMNS_MAX]);

/* Columns that it takes with nothing cut or left out. */
unsigned table_width(const struct table *t);

/* table_format() to standard output, in colour where term.h has it. */
void table_print(const struct table *t, unsigned width);

#endif
