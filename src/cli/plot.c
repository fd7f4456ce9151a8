#include "plot.h"

#include "output.h"

#include "base/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COLOURS 7
#define FONT    12
/* Estimated width of a character in pixels. The real mean is smaller. */
#define CHAR   6.6
#define TOP    24
#define STRIP  7 /* Height of a strip in pixels. A strip shows when a GPU was throttled. */
#define STRIPS 8 /* Gap above the first strip, in pixels. */

const char *plot_style(void)
{
	return ".plot{--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0558a;--c4:#a87400;"
	       "--c5:#2d8fc4;--c6:#555;--ink:#222;--quiet:#666;--grid:#e3e3e3;--window:#0072b2;"
	       "--held:#8a8a8a;--hot:#b00020;--paper:#fff;"
	       "font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}"
	       "@media (prefers-color-scheme:dark){.plot{--c0:#56b4e9;--c1:#ff8c42;"
	       "--c2:#2fc99a;--c3:#e39ac4;--c4:#e6b422;--c5:#8fd0f5;--c6:#bbb;--ink:#eee;"
	       "--quiet:#aaa;--grid:#3a3a3a;--window:#56b4e9;--held:#8f8f8f;--hot:#ff6b6b;"
	       "--paper:#16181b}}"
	       "@media print{.plot{--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0558a;"
	       "--c4:#a87400;--c5:#2d8fc4;--c6:#555;--ink:#000;--quiet:#444;--grid:#ddd;"
	       "--window:#0072b2;--held:#777;--hot:#b00020;--paper:#fff}}"
	       ".plot text{fill:var(--ink)}.plot .q{fill:var(--quiet)}"
	       ".plot .grid{stroke:var(--grid);fill:none}"
	       ".plot .axis{stroke:var(--quiet);fill:none}"
	       ".plot .win{fill:var(--window);opacity:.09}"
	       ".plot .edge{stroke:var(--window);stroke-dasharray:4 3;fill:none}"
	       ".plot .limit{stroke:var(--quiet);stroke-dasharray:2 4;fill:none}"
	       ".plot .line{fill:none;stroke-width:1.4;stroke-linejoin:round}"
	       ".plot .halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px}"
	       ".plot .frame{fill:none;stroke:var(--hot)}"
	       ".plot text.mark{fill:var(--hot);font-weight:bold}"
	       ".plot .held{fill:var(--held)}.plot .hot{fill:var(--hot)}"
	       ".plot .c0{stroke:var(--c0)}.plot .c1{stroke:var(--c1)}"
	       ".plot .c2{stroke:var(--c2)}.plot .c3{stroke:var(--c3)}"
	       ".plot .c4{stroke:var(--c4)}.plot .c5{stroke:var(--c5)}"
	       ".plot .c6{stroke:var(--c6)}"
	       ".plot .f0{fill:var(--c0)}.plot .f1{fill:var(--c1)}.plot .f2{fill:var(--c2)}"
	       ".plot .f3{fill:var(--c3)}.plot .f4{fill:var(--c4)}.plot .f5{fill:var(--c5)}"
	       ".plot .f6{fill:var(--c6)}"
	       ".plot .thin{stroke:var(--c0);stroke-width:1.2;fill:none}"
	       ".plot .thick{stroke:var(--c0);stroke-width:4;opacity:.55;fill:none}"
	       ".plot .dot{fill:var(--c0);stroke:var(--c0);stroke-width:1.5}"
	       ".plot .hollow{fill:var(--paper)}"
	       ".plot .one{fill:none;stroke:var(--quiet)}";
}

struct axis {
	double from, to; /* First and last value on the axis. */
	/* Start and length of the axis in pixels. A negative length means upwards. */
	double at, size;
	double step; /* Distance between two ticks, in the unit of the axis. */
};

static double axis_place(const struct axis *a, double v)
{
	return a->at + (v - a->from) / (a->to - a->from) * a->size;
}

/* Returns a step of 1, 2 or 5 times a power of ten, such that about `count` steps fill the
 * span. */
static double nice_step(double span, double count)
{
	double raw = span / fmax(1, count), ten = pow(10, floor(log10(raw)));
	double left = raw / ten;

	return ten * (left <= 1 ? 1 : left <= 2 ? 2 : left <= 5 ? 5 : 10);
}

/* Chooses the distance between ticks. If `whole` is true, also moves the ends of the axis
 * outwards to ticks. */
static void axis_fit(struct axis *a, double pixels_per_tick, bool whole)
{
	/* The range is empty. Add a margin on both sides. */
	if (!(a->to > a->from)) {
		double space = fmax(1, fabs(a->to) * 0.1);

		a->from = isfinite(a->from) ? a->from - space : 0;
		a->to = isfinite(a->to) ? a->to + space : 1;
	}
	a->step = nice_step(a->to - a->from, fabs(a->size) / pixels_per_tick);
	if (whole) {
		a->from = floor(a->from / a->step + 1e-9) * a->step;
		a->to = ceil(a->to / a->step - 1e-9) * a->step;
	}
}

static int decimals(double step)
{
	int n = (int)ceil(-log10(step) - 1e-9);

	return n < 0 ? 0 : n > 9 ? 9 : n;
}

static double tick_first(const struct axis *a)
{
	return ceil(a->from / a->step - 1e-9) * a->step;
}

/* Largest number of ticks, so that an axis with bad numbers does not make a huge page. */
#define TICKS_MAX 50

static unsigned tick_count(const struct axis *a)
{
	double n = floor((a->to - tick_first(a)) / a->step + 1e-9) + 1;

	return n > TICKS_MAX ? TICKS_MAX : n < 0 ? 0 : (unsigned)n;
}

/* Returns the value of tick i.  Returns 0 for -0. */
static double tick_value(const struct axis *a, unsigned i)
{
	double v = tick_first(a) + i * a->step;

	return fabs(v) < a->step * 1e-6 ? 0 : v;
}

static void begin_svg(struct buf *out, double width, double height, const char *title,
		      const char *description)
{
	buf_addf(out,
		 "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
		 "viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\"><title>",
		 width, height, width, height);
	markup_text(out, title);
	buf_adds(out, "</title><desc>");
	markup_text(out, description);
	buf_adds(out, "</desc>");
}

static void text_at(struct buf *out, double x, double y, const char *anchor, const char *class,
		    const char *text)
{
	buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y,
		 anchor, class);
	markup_text(out, text);
	buf_adds(out, "</text>");
}

static void segment(struct buf *out, const char *class, double x1, double y1, double x2,
		    double y2)
{
	buf_addf(out, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>", class, x1, y1, x2, y2);
}

static void number_at(struct buf *out, double x, double y, const char *anchor, double step,
		      double v)
{
	buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"q\">%.*f</text>",
		 x, y, anchor, decimals(step), v);
}

static void y_ticks(struct buf *out, const struct axis *y, double left, double right)
{
	for (unsigned i = 0; i < tick_count(y); i++) {
		double v = tick_value(y, i), at = axis_place(y, v);

		segment(out, "grid", left, at, right, at);
		number_at(out, left - 6, at + 4, "end", y->step, v);
	}
}

static void x_ticks(struct buf *out, const struct axis *x, double y, double scale)
{
	for (unsigned i = 0; i < tick_count(x); i++) {
		double v = tick_value(x, i), at = axis_place(x, v);

		segment(out, "axis", at, y, at, y + 4);
		number_at(out, at, y + 17, "middle", x->step / scale, v / scale);
	}
	segment(out, "axis", x->at, y, x->at + x->size, y);
}

struct column {
	long at;
	size_t n;
	double x[4], y[4]; /* The first, smallest, largest and last point of the column. */
	size_t order[4];
};

struct pen {
	struct buf *out;
	bool down;
};

static void pen_to(struct pen *p, double x, double y)
{
	buf_addf(p->out, "%c%.1f %.1f", p->down ? 'L' : 'M', x, y);
	p->down = true;
}

static void column_add(struct column *c, double x, double y, size_t i)
{
	if (c->n++ == 0)
		for (int k = 0; k < 4; k++) {
			c->x[k] = x;
			c->y[k] = y;
			c->order[k] = i;
		}
	for (int k = 1; k < 4; k++) {
		if (k == 1 ? y >= c->y[1] : k == 2 ? y <= c->y[2] : false)
			continue;
		c->x[k] = x;
		c->y[k] = y;
		c->order[k] = i;
	}
}

/* Draws the points that were kept for one column of pixels, in their original order. If one
 * point is, for example, both the first and the smallest, draws it only once. */
static void column_draw(struct column *c, struct pen *p)
{
	size_t last = SIZE_MAX;

	for (unsigned done = 0; c->n && done < 4; done++) {
		int next = -1;

		for (int k = 0; k < 4; k++)
			if ((last == SIZE_MAX || c->order[k] > last) &&
			    (next < 0 || c->order[k] < c->order[next]))
				next = k;
		if (next < 0)
			break;
		pen_to(p, c->x[next], c->y[next]);
		last = c->order[next];
	}
	c->n = 0;
}

/* Returns the longest gap, in seconds, across which the line is drawn: ten times the mean time
 * between neighbouring points. */
static double hole_of(const struct plot_line *l)
{
	return l->n > 2 ? 10 * fabs(l->t[l->n - 1] - l->t[0]) / (double)(l->n - 1) : INFINITY;
}

static void draw_line(struct buf *out, const struct plot_line *l, const struct axis *x,
		      const struct axis *y)
{
	unsigned index = l->colour;
	struct pen pen = { out, false };
	struct column c = { .n = 0 };
	double before = NAN, hole = hole_of(l);

	buf_addf(out, "<path class=\"line c%u\"", index % COLOURS);
	if (index >= COLOURS)
		buf_addf(out, " stroke-dasharray=\"%u 3\"", 3 + 3 * (index / COLOURS % 4));
	buf_adds(out, " d=\"");
	for (size_t i = 0; i < l->n; i++) {
		double px = axis_place(x, l->t[i]), py = axis_place(y, l->v[i]);

		if (!isfinite(px) || !isfinite(py) || l->t[i] - before > hole) {
			column_draw(&c, &pen);
			pen.down = false;
		}
		if (!isfinite(px) || !isfinite(py) || px < x->at - 1 ||
		    px > x->at + x->size + 1)
			continue;
		if (c.n && (long)px != c.at)
			column_draw(&c, &pen);
		c.at = (long)px;
		column_add(&c, px, py, i);
		before = l->t[i];
	}
	column_draw(&c, &pen);
	if (!pen.down)
		buf_adds(out, "M0 0"); /* An SVG path must not be empty. */
	buf_adds(out, "\"/>");
}

static const char *strip_class(const char *cause)
{
	return strstr(cause, "thermal") || strstr(cause, "brake") ? "hot" : "held";
}

static void strip_rect(struct buf *out, const char *cause, double x, double width, double y)
{
	buf_addf(
		out,
		"<rect class=\"%s\" x=\"%.0f\" y=\"%.1f\" width=\"%.0f\" height=\"%d\"><title>",
		strip_class(cause), x, y, width, STRIP - 2);
	markup_text(out, cause);
	buf_adds(out, "</title></rect>");
}

/* Draws when the GPU was throttled. The smallest unit is one column of pixels, so that the size
 * of the output is limited; one throttled tick marks its whole column. */
static void draw_strip(struct buf *out, const struct plot_line *l, const struct axis *x,
		       double y)
{
	const char *cause = NULL;
	double begin = 0, end = 0;

	buf_addf(out,
		 "<rect class=\"grid\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>",
		 x->at, y, x->size, STRIP - 2);
	for (size_t i = 0; i < l->strip_n; i++) {
		double from = floor(axis_place(x, l->strip_t[i]));
		double to = ceil(
			axis_place(x, i + 1 < l->strip_n ? l->strip_t[i + 1] : l->strip_t[i]));

		from = fmax(from, x->at);
		to = fmin(fmax(to, from + 1), x->at + x->size);
		if (!l->strip[i] || !isfinite(from) || !isfinite(to) || to <= from)
			continue;
		if (cause && from <= end && strcmp(cause, l->strip[i]) == 0) {
			end = fmax(end, to);
			continue;
		}
		if (cause)
			strip_rect(out, cause, begin, end - begin, y);
		cause = l->strip[i];
		begin = cause && from < end ? end : from;
		end = fmax(to, begin + 1);
	}
	if (cause)
		strip_rect(out, cause, begin, end - begin, y);
}

static void axis_widen(struct axis *a, double v)
{
	if (!isfinite(v))
		return;
	a->from = isnan(a->from) || v < a->from ? v : a->from;
	a->to = isnan(a->to) || v > a->to ? v : a->to;
}

void plot_range(const struct plot_line *lines, size_t n, double *from, double *to)
{
	struct axis x = { .from = NAN, .to = NAN };

	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < lines[i].n; k++)
			axis_widen(&x, lines[i].t[k]);
		/* Include the whole window, even where samples are missing. */
		if (isfinite(lines[i].seconds)) {
			x.from = fmin(x.from, 0);
			x.to = fmax(x.to, lines[i].seconds);
		}
	}
	*from = x.from;
	*to = x.to;
}

static void value_range(const struct plot_time *p, struct axis *y)
{
	y->from = y->to = p->zero ? 0 : NAN;
	for (size_t i = 0; i < p->nlines; i++)
		for (size_t k = 0; k < p->lines[i].n; k++)
			axis_widen(y, p->lines[i].v[k]);
	if (y->to - y->from < p->least_span) {
		double middle = (y->from + y->to) / 2;

		y->from = middle - p->least_span / 2;
		y->to = middle + p->least_span / 2;
	}
	if (isfinite(p->limit) && p->limit > y->to && p->limit < 1.3 * y->to)
		y->to = p->limit;
}

/* Returns the mean inside the window.  The label of the line is placed at this height. */
static double mean_level(const struct plot_line *l)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (!isfinite(l->v[i]) || l->t[i] < 0 || l->t[i] > l->seconds)
			continue;
		sum += l->v[i];
		n++;
	}
	return n ? sum / (double)n : NAN;
}

struct label {
	unsigned line;
	double y;
};

static int by_height(const void *a, const void *b)
{
	const struct label *x = a, *y = b;

	return x->y < y->y ? -1 : x->y > y->y ? 1 : x->line < y->line ? -1 : 1;
}

#define LABEL_HEIGHT 15.0

/* Moves labels down until they do not overlap, then up again if they leave the chart.  Keeps
 * their order. */
static void spread_labels(struct label *l, size_t n, double top, double bottom)
{
	for (size_t i = 0; i < n; i++) {
		double least = i ? l[i - 1].y + LABEL_HEIGHT : top;

		l[i].y = fmax(l[i].y, least);
	}
	for (size_t i = n; i-- > 0;) {
		double most = i + 1 < n ? l[i + 1].y - LABEL_HEIGHT : bottom;

		l[i].y = fmin(l[i].y, most);
	}
}

#define LABELS_MAX 64

/* Returns true if this is the first line with its colour. Only that line shows its name. */
static bool carries_name(const struct plot_time *p, size_t line)
{
	for (size_t i = 0; i < line; i++)
		if (p->lines[i].colour == p->lines[line].colour)
			return false;
	return true;
}

static size_t count_names(const struct plot_time *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->nlines; i++)
		n += carries_name(p, i);
	return n;
}

/* Ends a text element with a name cut to `columns`. The whole name is shown while the mouse is
 * on the text. */
static void end_name(struct buf *out, const char *name, size_t columns)
{
	buf_adds(out, "<title>");
	markup_text(out, name);
	buf_adds(out, "</title>");
	markup_cut(out, name, columns);
	buf_adds(out, "</text>");
}

static void draw_name(struct buf *out, const struct plot_line *l, double x, double y,
		      size_t columns)
{
	buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" style=\"fill:var(--c%u)\">", x, y,
		 l->colour % COLOURS);
	end_name(out, l->name, columns);
}

static void line_labels(struct buf *out, const struct plot_time *p, const struct axis *y,
			double x, size_t columns)
{
	struct label l[LABELS_MAX] = { { 0 } };
	double bottom = y->at, top = y->at + y->size;
	size_t space = (size_t)((bottom - top) / LABEL_HEIGHT), all = count_names(p), n = 0;

	space = space > LABELS_MAX ? LABELS_MAX : space;
	/* Leave one line free for a text such as "and 3 more". */
	space -= all > space && space > 0;
	for (unsigned i = 0; i < p->nlines && n < space; i++) {
		double at = axis_place(y, mean_level(&p->lines[i]));

		if (carries_name(p, i))
			l[n++] = (struct label){ i, isfinite(at) ? at : bottom };
	}
	qsort(l, n, sizeof(l[0]), by_height);
	spread_labels(l, n, top + 6, bottom - (all > n ? LABEL_HEIGHT : 0));
	for (size_t i = 0; i < n; i++)
		draw_name(out, &p->lines[l[i].line], x, l[i].y + 4, columns);
	if (all > n)
		buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"q\">and %zu more</text>", x,
			 bottom + 4, all - n);
}

static size_t widest_name(const struct plot_time *p)
{
	size_t widest = 0;

	for (size_t i = 0; i < p->nlines; i++) {
		size_t w = utf8_columns(p->lines[i].name);

		widest = w > widest ? w : widest;
	}
	return widest;
}

static bool one_window(const struct plot_time *p)
{
	for (size_t i = 1; i < p->nlines; i++)
		if (p->lines[i].seconds != p->lines[0].seconds)
			return false;
	return p->nlines > 0;
}

static double title_width(const struct plot_time *p)
{
	return CHAR * (double)(utf8_columns(p->quantity) + utf8_columns(p->unit) + 2);
}

/* Shades the window if there is only one.  If there are several, marks their common start and
 * each end. */
static void draw_windows(struct buf *out, const struct plot_time *p, const struct axis *x,
			 const struct axis *y)
{
	double top = y->at + y->size, bottom = y->at, begin = axis_place(x, 0);
	double end = p->nlines ? axis_place(x, p->lines[0].seconds) : NAN;
	bool one = one_window(p);
	const char *words = one ? "measured window" : "windows begin";

	if (!isfinite(begin) || !isfinite(end))
		return;
	if (one)
		buf_addf(out,
			 "<rect class=\"win\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
			 "height=\"%.1f\"/>",
			 begin, top, fmax(1, end - begin), bottom - top);
	segment(out, "edge", begin, top, begin, bottom);
	text_at(out, fmax(begin + 5, title_width(p) + 14), top - 6, "start", "q", words);
	for (size_t i = 0; i < (one ? 1 : p->nlines); i++) {
		end = axis_place(x, p->lines[i].seconds);
		if (isfinite(end))
			buf_addf(out,
				 "<path class=\"edge\" style=\"stroke:var(--c%u)\" d=\"M%.1f "
				 "%.1fL%.1f %.1f\"/>",
				 p->lines[i].colour % COLOURS, end, top, end, bottom);
	}
}

struct unit_of_time {
	double seconds;
	const char *words;
};

static struct unit_of_time time_unit(double span)
{
	if (span > 7200)
		return (struct unit_of_time){ 3600, "hours since the window began" };
	if (span > 600)
		return (struct unit_of_time){ 60, "minutes since the window began" };
	return (struct unit_of_time){ 1, "seconds since the window began" };
}

static bool was_held(const struct plot_line *l)
{
	for (size_t i = 0; i < l->strip_n; i++)
		if (l->strip[i])
			return true;
	return false;
}

/* Chooses the lines that get a strip: those that were throttled, or else the first line for
 * which throttling is known. */
static size_t choose_strips(const struct plot_time *p, const struct plot_line *ret[COLOURS])
{
	const struct plot_line *knows = NULL;
	size_t n = 0;

	for (size_t i = 0; p->strips && i < p->nlines && n < COLOURS; i++) {
		const struct plot_line *l = &p->lines[i];

		if (l->strip && !knows)
			knows = l;
		if (l->strip && was_held(l))
			ret[n++] = l;
	}
	if (n == 0 && knows)
		ret[n++] = knows;
	return n;
}

static double strips_height(size_t n)
{
	return n ? STRIPS + (double)n * (STRIP + 2) + 2 : 0;
}

/* Draws the strips. If `dots` is set, a strip of a throttled GPU also gets a dot in the colour
 * of its line. */
static void draw_strips(struct buf *out, const struct plot_line *const *lines, size_t n,
			bool dots, const struct axis *x, double y)
{
	if (n)
		text_at(out, x->at - 6, y + STRIPS + STRIP, "end", "q", "throttle");
	for (size_t i = 0; i < n; i++) {
		double at = y + STRIPS + (double)i * (STRIP + 2);

		draw_strip(out, lines[i], x, at);
		if (dots && was_held(lines[i]))
			buf_addf(out, "<circle class=\"f%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
				 lines[i]->colour % COLOURS, x->at + x->size + 8,
				 at + (STRIP - 2) / 2.0);
	}
}

static void draw_limit(struct buf *out, const struct plot_time *p, const struct axis *x,
		       const struct axis *y)
{
	double at = axis_place(y, p->limit);

	if (!isfinite(p->limit) || p->limit > y->to)
		return;
	segment(out, "limit", x->at, at, x->at + x->size, at);
	buf_addf(out,
		 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"q halo\">limit %.0f "
		 "%s</text>",
		 x->at + x->size - 4, at - 5, p->limit, p->unit);
}

static void title_axis(struct buf *out, const struct plot_time *p)
{
	buf_addf(out, "<text x=\"4\" y=\"%d\">", TOP - 10);
	markup_text(out, p->quantity);
	buf_addf(out, ", %s</text>", p->unit);
}

/* Draws the label `mark` at the top right, above the lines. */
static void draw_mark(struct buf *out, const char *mark, double right)
{
	double width = 12 + 9 * (double)strlen(mark);

	buf_addf(out,
		 "<rect class=\"frame\" x=\"%.1f\" y=\"3.5\" width=\"%.0f\" height=\"16\" "
		 "rx=\"2\"/>",
		 right - width, width);
	text_at(out, right - width / 2, 15.5, "middle", "mark", mark);
}

void plot_time(struct buf *out, const struct plot_time *p)
{
	const struct plot_line *strips[COLOURS];
	size_t columns = widest_name(p), most = p->width > 500 ? 22 : 11;
	size_t nstrips = choose_strips(p, strips);
	struct axis x = { .from = p->from, .to = p->to, .at = 58 }, y;
	struct unit_of_time unit;
	double below;

	columns = columns > most ? most : columns;
	if (isnan(x.from) && isnan(x.to))
		plot_range(p->lines, p->nlines, &x.from, &x.to);
	x.size = p->width - x.at - (p->nlines > 1 ? 18 + CHAR * (double)columns : 14);
	unit = time_unit(x.to - x.from);
	axis_fit(&x, 64, false);
	x.step = nice_step((x.to - x.from) / unit.seconds, x.size / 64) * unit.seconds;
	value_range(p, &y);
	y.at = TOP + p->height;
	y.size = -(double)p->height;
	axis_fit(&y, 34, true);
	below = y.at + strips_height(nstrips);

	if (p->file)
		buf_adds(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	begin_svg(out, p->width, below + 40, p->title, p->description);
	if (p->file)
		buf_addf(out, "<style>%s.plot{background:var(--paper)}</style>", plot_style());
	y_ticks(out, &y, x.at, x.at + x.size);
	title_axis(out, p);
	draw_windows(out, p, &x, &y);
	if (p->mark)
		draw_mark(out, p->mark, p->width - 6);
	for (unsigned i = 0; i < p->nlines; i++)
		draw_line(out, &p->lines[i], &x, &y);
	draw_limit(out, p, &x, &y);
	if (p->nlines > 1)
		line_labels(out, p, &y, x.at + x.size + 8, columns);
	draw_strips(out, strips, nstrips, p->nlines > 1, &x, y.at);
	x_ticks(out, &x, below, unit.seconds);
	text_at(out, x.at + x.size, below + 33, "end", "q", unit.words);
	buf_adds(out, p->file ? "</svg>\n" : "</svg>");
}

static void dots_range(const struct plot_dots *p, struct axis *x)
{
	x->from = x->to = NAN;
	for (size_t i = 0; i < p->n; i++) {
		const struct plot_dot *d = &p->dots[i];

		axis_widen(x, d->best);
		axis_widen(x, d->low);
		axis_widen(x, d->high);
		axis_widen(x, d->fair_low);
		axis_widen(x, d->fair_high);
		for (size_t k = 0; k < d->neach; k++)
			axis_widen(x, d->each[k]);
	}
	/* If the values are far apart, start at 0, so that lengths are proportional to
	 * values. */
	if (x->from < 0.7 * x->to)
		x->from = fmin(0, x->from);
}

static void whisker(struct buf *out, const char *class, const struct axis *x, double low,
		    double high, double y, double end)
{
	double a = axis_place(x, low), b = axis_place(x, high);

	if (!isfinite(a) || !isfinite(b))
		return;
	buf_addf(out, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f", class, a, y, b);
	if (end > 0)
		buf_addf(out, "M%.1f %.1fv%.1fM%.1f %.1fv%.1f", a, y - end, 2 * end, b, y - end,
			 2 * end);
	buf_adds(out, "\"/>");
}

static void draw_dot(struct buf *out, const struct plot_dot *d, const struct axis *x, double y)
{
	whisker(out, "thin", x, d->low, d->high, y, 4);
	whisker(out, "thick", x, d->fair_low, d->fair_high, y, 0);
	for (size_t k = 0; k < d->neach && d->neach > 1; k++)
		if (isfinite(d->each[k]))
			buf_addf(out,
				 "<circle class=\"one\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>",
				 axis_place(x, d->each[k]), y + 10);
	if (isfinite(d->best))
		buf_addf(out, "<circle class=\"dot%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>",
			 d->doubtful ? " hollow" : "", axis_place(x, d->best), y);
}

#define ROW 36.0

void plot_dots(struct buf *out, const struct plot_dots *p)
{
	size_t names = 0, texts = 0, most = p->width > 500 ? 24 : 12;
	struct axis x;
	double bottom = TOP + ROW * (double)p->n;

	for (size_t i = 0; i < p->n; i++) {
		size_t w = utf8_columns(p->dots[i].name), t = utf8_columns(p->dots[i].text);

		names = w > names ? w : names;
		texts = t > texts ? t : texts;
	}
	names = names > most ? most : names;
	dots_range(p, &x);
	x.at = 16 + CHAR * (double)names;
	x.size = p->width - x.at - CHAR * (double)texts - 20;
	axis_fit(&x, 70, true);
	begin_svg(out, p->width, bottom + 40, p->title, p->description);
	if (p->mark)
		draw_mark(out, p->mark, p->width - 6);
	for (unsigned i = 0; i < tick_count(&x); i++)
		segment(out, "grid", axis_place(&x, tick_value(&x, i)), TOP,
			axis_place(&x, tick_value(&x, i)), bottom);
	for (size_t i = 0; i < p->n; i++) {
		double y = TOP + ROW * ((double)i + 0.45);

		buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", x.at - 10,
			 y + 4);
		end_name(out, p->dots[i].name, names);
		draw_dot(out, &p->dots[i], &x, y);
		text_at(out, x.at + x.size + 12, y + 4, "start", "", p->dots[i].text);
	}
	x_ticks(out, &x, bottom, 1);
	buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"q\">",
		 x.at + x.size, bottom + 33);
	markup_text(out, p->quantity);
	buf_addf(out, ", %s</text></svg>", p->unit);
}
