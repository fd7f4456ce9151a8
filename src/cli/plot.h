/* plot: draws charts as SVG, for a page or as a file.
 *
 * It hides scales, ticks, the placement of labels, and the thinning of long series. Thinning
 * keeps the first, smallest, largest and last point per column of pixels: a peak of one sample
 * stays visible, and a day of samples stays small.  Colours are CSS classes (plot_style) for
 * light and dark pages and for colour-blind readers (palette of Okabe and Ito). From the eighth
 * line on, dashes distinguish the lines. */
#ifndef GW_CLI_PLOT_H
#define GW_CLI_PLOT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* A line over time, in seconds since the window began.  All pointers are borrowed for the
 * call. */
struct plot_line {
	const char *name; /* The name is printed next to the line if there are several lines. */
	/* Number of the colour. Trials of a label have the same colour, and only the first of
	 * their lines shows the name. */
	unsigned colour;
	const double *t, *v;
	size_t n;
	/* End of the measured window on the time axis. NAN: there is no window. */
	double seconds;
	/* strip[i] is the cause of throttling at the time strip_t[i], or NULL if the GPU was
	 * not throttled then. strip is NULL if nothing is known about throttling. */
	const double *strip_t;
	const char *const *strip;
	size_t strip_n;
};

struct plot_time {
	const char *title, *description; /* Texts for screen readers. */
	/* What is drawn and its unit, such as "Power" and "W". */
	const char *quantity, *unit;
	const struct plot_line *lines;
	size_t nlines;
	double from, to; /* Time range in seconds. Both NAN: use the range of the lines. */
	/* A level such as a power limit, drawn if it is below 1.3 times the highest value. NAN:
	 * no level. */
	double limit;
	bool zero; /* The vertical axis begins at 0. */
	/* Smallest range of the vertical axis, so that noise does not fill the chart. */
	double least_span;
	bool strips;      /* Draw when each GPU was throttled. */
	bool file;        /* The chart is a file of its own, so it contains the style sheet. */
	const char *mark; /* A label in the corner, such as "SIMULATED". NULL: no label. */
	unsigned width, height;
};
void plot_time(struct buf *out, const struct plot_time *p);

/* Computes the time range of lines, to draw several charts with the same scale.  Sets NAN if
 * there are no points. */
void plot_range(const struct plot_line *lines, size_t n, double *from, double *to);

/* One dot with its intervals.  A chart has one row per dot. */
struct plot_dot {
	const char *name, *text; /* `text` is printed next to the dot. */
	double best, low, high, fair_low, fair_high;
	const double *each; /* The values of the single runs. */
	size_t neach;
	bool doubtful; /* The value is doubtful, so the dot is drawn hollow. */
};

struct plot_dots {
	const char *title, *description, *quantity, *unit;
	const struct plot_dot *dots;
	size_t n;
	const char *mark; /* A label in the corner, such as "SIMULATED". NULL: no label. */
	unsigned width;
};
void plot_dots(struct buf *out, const struct plot_dots *p);

/* Returns the style sheet for both kinds of chart.  Write it once per page. */
const char *plot_style(void);

#endif
