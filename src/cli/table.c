#include "table.h"

#include "base/utf8.h"

#include <gpuward.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP      2
#define CUT_MIN  14 /* a column is not cut below this width */
#define WRAP_MIN 24 /* a column is not wrapped below this width */

struct table_cell {
	enum term_style style;
	bool set;
	char text[TABLE_CELL];
};

void table_init(struct table *t, const struct table_column *columns)
{
	*t = (struct table){ .columns = columns };
	while (columns[t->ncolumns].title)
		t->ncolumns++;
}

void table_done(struct table *t)
{
	free(t->cell);
}

void table_row(struct table *t)
{
	struct table_cell *p;

	if (t->error)
		return;
	if (t->rows == t->cap) {
		unsigned cap = t->cap ? 2 * t->cap : 16;

		p = realloc(t->cell, cap * t->ncolumns * sizeof(*p));
		if (!p) {
			t->error = -GW_E_NOMEM;
			return;
		}
		t->cell = p;
		t->cap = cap;
	}
	memset(&t->cell[t->rows * t->ncolumns], 0, t->ncolumns * sizeof(*t->cell));
	t->rows++;
}

static struct table_cell *table_cell_at(const struct table *t, unsigned row, unsigned column)
{
	return &t->cell[row * t->ncolumns + column];
}

static const char *cut_mark(void)
{
	return term_utf8() ? "…" : "~";
}

/* Replaces the end of a text with the mark for cut text. The text fills all `size` bytes. */
static void mark_cut(char *text, size_t size)
{
	size_t n = size - 1 - strlen(cut_mark());

	while (n > 0 && (text[n] & 0xc0) == 0x80) /* do not cut inside a character */
		n--;
	snprintf(text + n, size - n, "%s", cut_mark());
}

void table_set(struct table *t, unsigned column, enum term_style style, const char *fmt, ...)
{
	struct table_cell *c;
	va_list ap;
	int n;

	if (t->error)
		return;
	c = table_cell_at(t, t->rows - 1, column);
	va_start(ap, fmt);
	n = vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(c->text))
		mark_cut(c->text, sizeof(c->text));
	c->style = style;
	c->set = true;
}

void table_text(struct table *t, unsigned column, enum term_style style, const char *text)
{
	if (text && *text)
		table_set(t, column, style, "%s", text);
}

struct layout {
	size_t width[TABLE_COLUMNS_MAX];
	bool shown[TABLE_COLUMNS_MAX];
	/* texts of this column are cut in the middle, not at the end */
	bool middle[TABLE_COLUMNS_MAX];
};

static void layout_measure(const struct table *t, struct layout *l)
{
	for (unsigned c = 0; c < t->ncolumns; c++) {
		l->width[c] = utf8_columns(t->columns[c].title);
		l->shown[c] = t->columns[c].rank == 0;
		for (unsigned r = 0; r < t->rows; r++) {
			size_t w = utf8_columns(table_cell_at(t, r, c)->text);

			l->shown[c] |= table_cell_at(t, r, c)->set;
			if (w > l->width[c])
				l->width[c] = w;
		}
	}
}

static size_t layout_width(const struct table *t, const struct layout *l)
{
	size_t sum = 0;

	for (unsigned c = 0; c < t->ncolumns; c++)
		if (l->shown[c])
			sum += l->width[c] + (sum ? GAP : 0);
	return sum;
}

static size_t column_min(const struct table *t, unsigned c)
{
	return t->columns[c].cut == TABLE_WRAP ? WRAP_MIN : CUT_MIN;
}

static bool layout_cut(const struct table *t, struct layout *l, size_t excess)
{
	unsigned widest = t->ncolumns;

	for (unsigned c = 0; c < t->ncolumns; c++)
		if (l->shown[c] && t->columns[c].cut && l->width[c] > column_min(t, c) &&
		    (widest == t->ncolumns || l->width[c] > l->width[widest]))
			widest = c;
	if (widest == t->ncolumns || l->width[widest] - column_min(t, widest) < excess)
		return false;
	l->width[widest] -= excess;
	return true;
}

static bool layout_drop(const struct table *t, struct layout *l)
{
	unsigned rank = 0;

	for (unsigned c = 0; c < t->ncolumns; c++)
		if (l->shown[c] && t->columns[c].rank > rank)
			rank = t->columns[c].rank;
	for (unsigned c = 0; c < t->ncolumns && rank > 0; c++)
		if (t->columns[c].rank == rank)
			l->shown[c] = false;
	return rank > 0;
}

static void layout_fit(const struct table *t, struct layout *l, size_t width)
{
	while (layout_width(t, l) > width)
		if (!layout_cut(t, l, layout_width(t, l) - width) && !layout_drop(t, l))
			return;
}

/* Writes the text, cut to this number of columns at its end or in its middle. A mark replaces
 * the missing part. */
static void cut_text(char *out, size_t size, const char *text, size_t columns, bool middle)
{
	bool whole = utf8_columns(text) <= columns;
	const char *tail = middle && !whole ? utf8_tail(text, columns / 2) : "";
	size_t all = strlen(text), used, kept = 1 + utf8_columns(tail);

	if (!whole)
		all = term_fit(text, all, columns > kept ? columns - kept : 0, &used);
	snprintf(out, size, "%.*s%s%s", (int)all, text, whole ? "" : cut_mark(), tail);
}

/* Returns true if two different texts of a column would look equal after their ends are cut.
 * Names of models, for example, often differ only at the end. */
static bool cut_hides_difference(const struct table *t, unsigned column, size_t width)
{
	for (unsigned r = 1; r < t->rows; r++) {
		const char *text = table_cell_at(t, r, column)->text;
		size_t kept, used;

		if (utf8_columns(text) <= width)
			continue;
		kept = term_fit(text, strlen(text), width ? width - 1 : 0, &used);
		for (unsigned k = 0; k < r; k++) {
			const char *other = table_cell_at(t, k, column)->text;

			if (strncmp(text, other, kept) == 0 && strcmp(text, other) != 0 &&
			    utf8_columns(other) > width)
				return true;
		}
	}
	return false;
}

/* Adds text to the current line. Blanks are counted first, and added only when text follows, so
 * that no line ends with blanks. */
struct pen {
	struct buf *out;
	bool colour;
	size_t blanks;
};

static void add_text(struct pen *pen, const char *text, enum term_style style)
{
	bool styled = pen->colour && style != TERM_PLAIN;

	if (!*text)
		return;
	buf_addf(pen->out, "%*s%s%s%s", (int)pen->blanks, "", styled ? term_on(style) : "",
		 text, styled ? term_off() : "");
	pen->blanks = 0;
}

static void add_cell(struct pen *pen, const char *text, enum term_style style,
		     const struct table_column *col, size_t width, bool middle)
{
	char shown[TABLE_CELL + 8];
	size_t rest;

	cut_text(shown, sizeof(shown), text, width, middle);
	rest = width - utf8_columns(shown);
	pen->blanks += col->right ? rest : 0;
	add_text(pen, shown, style);
	pen->blanks += GAP + (col->right ? 0 : rest);
}

static void add_line_end(struct pen *pen)
{
	pen->blanks = 0;
	buf_addc(pen->out, '\n');
}

/* Returns how many bytes of the text fit into a line of this many columns. The line ends at a
 * blank if there is one. */
static size_t line_bytes(const char *text, size_t columns)
{
	size_t used, fit = term_fit(text, strlen(text), columns, &used), n = fit;

	if (!text[fit])
		return fit;
	while (n > 0 && text[n] != ' ')
		n--;
	return n ? n : fit;
}

/* Adds the cell of the last column, wrapped at words. The further lines begin at the same
 * column. */
static void add_wrapped(struct pen *pen, const struct table_cell *cell, size_t at, size_t width)
{
	const char *text = cell->text;
	char line[TABLE_CELL];
	size_t n = line_bytes(text, width);

	while (n && text[n]) {
		snprintf(line, sizeof(line), "%.*s", (int)n, text);
		add_text(pen, line, cell->style);
		add_line_end(pen);
		pen->blanks = at;
		text += n;
		text += strspn(text, " ");
		n = line_bytes(text, width);
	}
	add_text(pen, text, cell->style);
}

void table_format(const struct table *t, unsigned width, bool colour, struct buf *out)
{
	struct pen pen = { out, colour, 0 };
	struct layout l;

	layout_measure(t, &l);
	layout_fit(t, &l, width);
	for (unsigned c = 0; c < t->ncolumns; c++)
		l.middle[c] = l.shown[c] && t->columns[c].cut == TABLE_CUT &&
			      cut_hides_difference(t, c, l.width[c]);
	for (unsigned c = 0; c < t->ncolumns; c++)
		if (l.shown[c])
			add_cell(&pen, t->columns[c].title, TERM_BOLD, &t->columns[c],
				 l.width[c], false);
	add_line_end(&pen);
	for (unsigned r = 0; r < t->rows; r++) {
		for (unsigned c = 0; c < t->ncolumns; c++) {
			const struct table_cell *cell = table_cell_at(t, r, c);

			if (l.shown[c] && cell->set && t->columns[c].cut == TABLE_WRAP)
				add_wrapped(&pen, cell, layout_width(t, &l) - l.width[c],
					    l.width[c]);
			else if (l.shown[c])
				add_cell(&pen, cell->set ? cell->text : "-",
					 cell->set ? cell->style : TERM_DIM, &t->columns[c],
					 l.width[c], l.middle[c]);
		}
		add_line_end(&pen);
	}
}

unsigned table_hidden(const struct table *t, unsigned width,
		      bool hidden[static TABLE_COLUMNS_MAX])
{
	struct layout all, l;
	bool any = false;

	layout_measure(t, &all);
	l = all;
	layout_fit(t, &l, width);
	for (unsigned c = 0; c < t->ncolumns; c++) {
		hidden[c] = all.shown[c] && !l.shown[c];
		any |= hidden[c];
	}
	return any ? (unsigned)layout_width(t, &all) : 0;
}

unsigned table_width(const struct table *t)
{
	struct layout all;

	layout_measure(t, &all);
	return (unsigned)layout_width(t, &all);
}

static bool lost;

bool table_was_lost(void)
{
	return lost;
}

void table_print(const struct table *t, unsigned width)
{
	struct buf out;

	if (!t->error && !t->rows)
		return;
	buf_init(&out, 64u << 20);
	if (!t->error)
		table_format(t, width, true, &out);
	lost |= t->error || out.err;
	if (t->error || out.err)
		fputs("gpuward: out of memory; the table is not shown\n", stderr);
	else
		fwrite(out.p, 1, out.len, stdout);
	buf_done(&out);
}

void table_end(struct table *t, unsigned width)
{
	table_print(t, width);
	table_done(t);
}
