/* series: the course of a run, for its plots: power as sampled, the other figures as read.
 *
 * Fed on the meter's threads, where nothing may be allocated: room for SERIES_POINTS of each kind
 * a device.  When that is full, power is thinned so that of each group of samples the lowest
 * and the highest stay, and of the other figures every second reading stays.  Joules are never
 * made of it. */
#ifndef GW_MEASURE_SERIES_H
#define GW_MEASURE_SERIES_H

#include "event.h"

#include <stddef.h>
#include <stdint.h>

#define SERIES_POINTS   4000
#define SERIES_AROUND_S 1.0 /* so much of what was before and after a run is kept */

struct series_power {
	uint64_t t_ns;
	float w;
};

/* NAN: not known. */
struct series_tick {
	uint64_t t_ns;
	float temperature_c, clock_sm_hz, utilization;
	double memory_bytes;
	double reasons; /* GW_Q_CLOCK_REASONS */
};

struct series;

/* For so many devices.  NULL: no memory. */
struct series *series_new(unsigned devices);
void series_free(struct series *s);

/* An event of device i; others than power and ticks are passed over.  A meter_listener. */
void series_event(void *s, unsigned i, const struct event *e);

/* A run begins at begin_ns: what is older, but for the last second before it, is forgotten. */
void series_begin(struct series *s, uint64_t begin_ns);

/* A copy of what is there for device i up to a second after end_ns. */
struct series_copy {
	struct series_power *power;
	struct series_tick *tick;
	size_t powers, ticks;
};
/* 0 or -GW_E_NOMEM; end it with series_copy_done(). */
int series_copy(struct series *s, unsigned i, uint64_t end_ns, struct series_copy *ret);
void series_copy_done(struct series_copy *c);

#endif
