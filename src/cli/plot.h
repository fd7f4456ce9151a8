/* plot: draws charts as SVG, for a page or as a file.
 *
 * It hides scales, ticks, labels that do not overlap, and the thinning of long series.
 * Thinning keeps the first, smallest, largest and last point per column of pixels: a peak of
 * one sample stays visible, and a day of samples stays small.  Colours are CSS classes
 * (plot_style) for light and dark pages, suitable for colour-blind readers (Okabe and Ito);
 * from the eighth line on, dashes distinguish the lines. */
#ifndef GW_CLI_PLOT_H
#define GW_CLI_PLOT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* A line over time, in seconds since the window began.  All pointers are borrowed for the
 * call. */
struct plot_line {
	const char *name; /* printed next to the line if there are several lines */
	/* trials of a label share a colour; only the first line shows the name */
	unsigned colour;
	const double *t, *v;
	size_t n;
	double seconds; /* end of the line's window; NAN: no window */
	/* the cause of throttling at each tick; strip[i] NULL: not throttled; strip NULL:
	 * unknown */
	const double *strip_t;
	const char *const *strip;
	size_t strip_n;
};

struct plot_time {
	const char *title, *description; /* for screen readers                  */
	const char *quantity, *unit;     /* "Power", "W"                        */
	const struct plot_line *lines;
	size_t nlines;
	double from, to;   /* time range in seconds; both NAN: the range of the lines */
	double limit;      /* a level such as a power limit, drawn if it is near; NAN: none */
	bool zero;         /* the scale begins at 0                           */
	double least_span; /* smallest range of the scale, so that noise does not fill it */
	bool strips;       /* show throttling                                 */
	bool file;         /* the output is a file and contains the style sheet */
	const char *mark;  /* a label in the corner, as "SIMULATED"; NULL: none */
	unsigned width, height;
};
void plot_time(struct buf *out, const struct plot_time *p);

/* Computes the time range of lines, to draw several charts with the same scale.  Sets NAN if
 * there are no points. */
void plot_range(const struct plot_line *lines, size_t n, double *from, double *to);

/* One dot with whiskers; a chart has one row per dot. */
struct plot_dot {
	const char *name, *text; /* text: next to the dot */
	double best, low, high, fair_low, fair_high;
	const double *each; /* values of the single runs */
	size_t neach;
	bool doubtful; /* the dot is drawn hollow */
};

struct plot_dots {
	const char *title, *description, *quantity, *unit;
	const struct plot_dot *dots;
	size_t n;
	const char *mark; /* a label in the corner, as "SIMULATED"; NULL: none */
	unsigned width;
};
void plot_dots(struct buf *out, const struct plot_dots *p);

/* Returns the style sheet for both kinds of chart.  Write it once per page. */
const char *plot_style(void);

#endif
