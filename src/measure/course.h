/* course: the course of a run, for its plots: power as sampled, the other figures as read.
 *
 * Fed on the meter's threads, where nothing may be allocated: room for COURSE_POINTS of each kind
 * a device.  When that is full, power is thinned so that of each group of samples the lowest
 * and the highest stay, and of the other figures every second reading stays.  Joules are never
 * made of it. */
#ifndef GW_MEASURE_COURSE_H
#define GW_MEASURE_COURSE_H

#include "event.h"

#include <stddef.h>
#include <stdint.h>

#define COURSE_POINTS   4000
#define COURSE_AROUND_S 1.0 /* so much of what was before and after a run is kept */

struct course_power {
	uint64_t t_ns;
	float w;
};

/* NAN: not known. */
struct course_tick {
	uint64_t t_ns;
	float temperature_c, clock_sm_hz, utilization;
	double memory_bytes;
	double reasons; /* GW_Q_CLOCK_REASONS */
};

struct course;

/* For so many devices.  NULL: no memory. */
struct course *course_new(unsigned devices);
void course_free(struct course *s);

/* An event of device i; others than power and ticks are passed over.  A meter_listener. */
void course_event(void *s, unsigned i, const struct event *e);

/* A run begins at begin_ns: what is older, but for the last second before it, is forgotten. */
void course_begin(struct course *s, uint64_t begin_ns);

/* A copy of what is there for device i up to a second after end_ns. */
struct course_copy {
	struct course_power *power;
	struct course_tick *tick;
	size_t powers, ticks;
};
/* 0 or -GW_E_NOMEM; end it with course_copy_done(). */
int course_copy(struct course *s, unsigned i, uint64_t end_ns, struct course_copy *ret);
void course_copy_done(struct course_copy *c);

#endif
