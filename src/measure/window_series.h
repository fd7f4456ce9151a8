/* window_series: stores the readings of one GPU during one window, for the caller of
 * gw_window_series().
 *
 * All memory is reserved when the window opens, so the sampling path does not allocate; pages
 * that hold no reading are never touched. A reading for which there is no room is only counted.
 * The window tracker writes the readings; the energy is not computed from them. */
#ifndef GW_MEASURE_WINDOW_SERIES_H
#define GW_MEASURE_WINDOW_SERIES_H

#include "energy.h"
#include "event.h"

#define WINDOW_SERIES_ROOM 262144 /* readings of each kind, if the caller gives no number */

struct window_series {
	struct gw_series view; /* what the caller sees; points to the arrays below */
	uint64_t next;         /* number of the next power sample of the energy engine */
	uint64_t *power_ns, *tick_ns;
	double *power_w;
	double *column[FIGURES];
};

/* Reserves memory for `room` power samples and `room` ticks. Returns NULL if there is no
 * memory, or if `room` is too large. */
struct window_series *window_series_new(size_t room);
void window_series_free(struct window_series *s); /* NULL is allowed */

/* Copies new power samples of the energy engine: the samples in the window, the last one before
 * the window and the first one after the window. */
void window_series_follow(struct window_series *s, const struct energy *e,
			  const struct energy_window *w);

/* Adds a tick of the window. */
void window_series_tick(struct window_series *s, const struct event *e);

/* Removes readings after the end of the window, which was closed in the past. */
void window_series_close(struct window_series *s, const struct energy_window *w);

#endif
