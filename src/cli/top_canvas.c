#include "top_canvas.h"

#include "base/array.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

int canvas_resize(struct canvas *c, unsigned rows, unsigned columns)
{
	int err = array_reserve(&c->cell, &c->cap, rows * columns, sizeof(*c->cell));

	if (err)
		return err;
	c->rows = rows;
	c->columns = columns;
	for (unsigned i = 0; i < rows * columns; i++)
		c->cell[i] = (struct canvas_cell){ ' ', CANVAS_PLAIN };
	return 0;
}

void canvas_done(struct canvas *c)
{
	free(c->cell);
	*c = (struct canvas){ .rows = 0 };
}

static void canvas_put(struct canvas *c, unsigned row, unsigned column, uint32_t code,
		       enum canvas_style style)
{
	if (row < c->rows && column < c->columns)
		*canvas_at(c, row, column) = (struct canvas_cell){ code, style };
}

/* Returns true for control characters, and for invisible characters that reorder or hide the
 * text next to them. */
static bool is_harmful(uint32_t code)
{
	return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0xAD || code == 0x61C ||
	       (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
	       (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
	       (code >= 0xFFF0 && code <= 0xFFFB) || code >= 0xE0000;
}

/* Reads the next visible character of *text. Returns its width in columns, 1 or 2, or 0 at the
 * end of the text. */
static unsigned next_character(const struct canvas *c, const char **text, uint32_t *ret_code)
{
	if (**text >= ' ' && **text < 0x7F) { /* ASCII, the usual case */
		*ret_code = (unsigned char)*(*text)++;
		return 1;
	}
	while (**text) {
		size_t n = utf8_length(*text);
		int width;

		*ret_code = n ? utf8_decode(*text, n) : '?';
		*text += n ? n : 1;
		/* ncursesw uses wcwidth(), too. If the width here were different, ncursesw
		 * would continue a long text in the next row. */
		width = *ret_code < 0x80 ? 1 : c->utf8 ? wcwidth((wchar_t)*ret_code) : -1;
		/* Leave out combining marks, and without UTF-8 also the degree sign: "C" is
		 * clear enough. */
		if (!is_harmful(*ret_code) && (width == 0 || (*ret_code == 0xB0 && !c->utf8)))
			continue;
		if (is_harmful(*ret_code) || width < 0) {
			*ret_code = '?';
			return 1;
		}
		return (unsigned)width;
	}
	return 0;
}

static unsigned text_columns(const struct canvas *c, const char *text)
{
	unsigned n = 0, width;
	uint32_t code;

	while ((width = next_character(c, &text, &code)) > 0)
		n += width;
	return n;
}

unsigned canvas_text(struct canvas *c, unsigned row, unsigned column, unsigned end,
		     enum canvas_style style, const char *text)
{
	unsigned last, width;
	bool cut;
	uint32_t code;

	end = end < c->columns ? end : c->columns;
	if (row >= c->rows || column >= end)
		return column;
	cut = text_columns(c, text) > end - column;
	last = cut ? end - 1 : end;
	while ((width = next_character(c, &text, &code)) > 0 && column + width <= last) {
		canvas_put(c, row, column, code, style);
		if (width == 2)
			canvas_put(c, row, column + 1, 0, style);
		column += width;
	}
	if (cut)
		canvas_put(c, row, column++, c->utf8 ? 0x2026 : '>', style);
	return column;
}

unsigned canvas_format(struct canvas *c, unsigned row, unsigned column, unsigned end,
		       enum canvas_style style, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return canvas_text(c, row, column, end, style, text);
}

void canvas_right(struct canvas *c, unsigned row, unsigned column, unsigned end,
		  enum canvas_style style, const char *text)
{
	unsigned n = text_columns(c, text);

	end = end < c->columns ? end : c->columns;
	canvas_text(c, row, column + n < end ? end - n : column, end, style, text);
}

unsigned canvas_wrap(struct canvas *c, unsigned row, unsigned rows, unsigned column,
		     unsigned end, enum canvas_style style, const char *text)
{
	unsigned at = column, used = 0;
	char word[160];

	while (*text && used < rows) {
		size_t n = strcspn(text, " ");
		unsigned width;

		snprintf(word, sizeof(word), "%.*s", (int)n, text);
		width = text_columns(c, word);
		if (at > column && at + 1 + width > end) {
			used++;
			at = column;
			continue;
		}
		at = canvas_text(c, row + used, at > column ? at + 1 : at, end, style, word);
		text += n + strspn(text + n, " ");
	}
	return used < rows ? used + 1 : rows;
}

void canvas_paint(struct canvas *c, unsigned row, enum canvas_style style)
{
	for (unsigned i = 0; row < c->rows && i < c->columns; i++)
		canvas_at(c, row, i)->style = style;
}

/* Returns the character that fills this many eighths of a cell, from the left. */
static uint32_t left_block(unsigned eighths)
{
	return eighths ? 0x2590 - eighths : ' ';
}

void canvas_bar(struct canvas *c, unsigned row, unsigned column, unsigned width, double share,
		double mark, enum canvas_style style)
{
	unsigned full, rest, at;

	share = !(share > 0) ? 0 : share > 1 ? 1 : share;
	full = (unsigned)(share * width);
	rest = (unsigned)((share * width - full) * 8);
	for (unsigned i = 0; i < width; i++) {
		if (i < full)
			canvas_put(c, row, column + i, c->utf8 ? 0x2588 : '#', style);
		else if (i == full && c->utf8 && rest)
			canvas_put(c, row, column + i, left_block(rest), style);
		else
			canvas_put(c, row, column + i, c->utf8 ? 0xB7 : '.', CANVAS_DIM);
	}
	at = mark >= 0 && mark <= 1 ? (unsigned)(mark * width) : width;
	at = at == width && mark <= 1 ? width - 1 : at;
	if (at < width && at > full) /* a bar that reaches the mark covers it */
		canvas_put(c, row, column + at, c->utf8 ? 0x2502 : '|', CANVAS_BOLD);
}

/* Returns the height of a sample in steps, from 1 to `most`, or 0 if the sample is unknown. The
 * value 0 has the height 1, so that it looks different from an unknown sample. */
static unsigned sample_steps(double v, double high, unsigned most)
{
	double share = v / high;

	if (isnan(share))
		return 0;
	share = share < 0 ? 0 : share > 1 ? 1 : share;
	return 1 + (unsigned)lround(share * (most - 1));
}

/* Returns the character for two samples next to each other in one cell. Each fills 0 to 4 steps
 * of the cell. */
static uint32_t graph_character(bool utf8, unsigned left, unsigned right)
{
	static const unsigned char left_dots[] = { 0, 0x40, 0x44, 0x46, 0x47 };
	static const unsigned char right_dots[] = { 0, 0x80, 0xA0, 0xB0, 0xB8 };
	unsigned most = left > right ? left : right;

	if (most == 0)
		return ' ';
	return utf8 ? 0x2800u + left_dots[left] + right_dots[right] : (uint32_t) " _.:#"[most];
}

/* Returns how many steps, 0 to 4, of a sample are in a row that has `below` steps under it. */
static unsigned steps_in_row(unsigned steps, unsigned below)
{
	return steps <= below ? 0 : steps - below > 4 ? 4 : steps - below;
}

void canvas_graph(struct canvas *c, const struct canvas_graph *g)
{
	unsigned steps = g->rows * 4;
	unsigned mark = steps ? sample_steps(g->mark, g->high, steps) : 0;

	for (unsigned x = 0; steps && x < g->columns; x++) {
		unsigned newest = 2 * (g->columns - 1 - x);
		unsigned left = sample_steps(g->sample(g->arg, newest + 1), g->high, steps);
		unsigned right = sample_steps(g->sample(g->arg, newest), g->high, steps);

		for (unsigned y = 0; y < g->rows; y++) {
			unsigned below = 4 * (g->rows - 1 - y);
			uint32_t code = graph_character(c->utf8, steps_in_row(left, below),
							steps_in_row(right, below));
			bool marked = mark > below && mark <= below + 4;

			if (code == ' ' && marked)
				canvas_put(c, g->row + y, g->column + x, c->utf8 ? 0x2504 : '-',
					   CANVAS_DIM);
			else
				canvas_put(c, g->row + y, g->column + x, code, g->style);
		}
	}
}
