/* plot: charts as SVG, for a page or as a file of their own.
 *
 * Hides scales, ticks, labels that do not overlap and the thinning of long series: of each
 * column of pixels the first, smallest, largest and last point are kept, so that a burst of one
 * sample stays visible and a day of samples stays small.  Colours are classes (plot_style), in
 * light and dark, told apart by colour-blind people (Okabe and Ito); from the eighth line on
 * dashes tell them apart. */
#ifndef GW_CLI_PLOT_H
#define GW_CLI_PLOT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* A line over time, in seconds since the window began; trials of one thing share a colour.  All
 * is borrowed for the call. */
struct plot_line {
	const char *name; /* shown beside it where there are several */
	unsigned colour;  /* lines of one colour are one thing and share the first one's name */
	const double *t, *v;
	size_t n;
	double seconds; /* where its window ends; NAN: none */
	/* what held the clocks back at a tick, NULL for nothing; strip NULL: not known */
	const double *strip_t;
	const char *const *strip;
	size_t strip_n;
};

struct plot_time {
	const char *title, *description; /* for those who do not see it */
	const char *quantity, *unit;     /* "Power", "W"                        */
	const struct plot_line *lines;
	size_t nlines;
	double from, to;   /* seconds; both NAN: what the lines take          */
	double limit;      /* a level to draw where it is near; NAN: none     */
	bool zero;         /* the scale begins at 0                           */
	double least_span; /* the scale covers at least this: a degree is no mountain */
	bool strips;       /* show what held the clocks back                  */
	bool file;         /* not part of a page: brings its own style        */
	const char *mark;  /* what must be seen, as "SIMULATED"; NULL: none   */
	unsigned width, height;
};
void plot_time(struct buf *out, const struct plot_time *p);

/* The range that lines take, for several charts on one scale; NAN where there is no point. */
void plot_range(const struct plot_line *lines, size_t n, double *from, double *to);

/* Dots with whiskers: one row a label. */
struct plot_dot {
	const char *name, *text; /* text: beside the dot */
	double best, low, high, fair_low, fair_high;
	const double *each; /* single runs */
	size_t neach;
	bool doubtful; /* hollow */
};

struct plot_dots {
	const char *title, *description, *quantity, *unit;
	const struct plot_dot *dots;
	size_t n;
	unsigned width;
};
void plot_dots(struct buf *out, const struct plot_dots *p);

/* The style sheet of both, to stand once in a page. */
const char *plot_style(void);

#endif
