/* course: the course of a run, for its plots: power as sampled, the other figures as read.
 *
 * Fed on the meter's threads, where nothing may be allocated: room for RUN_TRACE_POINTS of each kind
 * a device.  When that is full, power is thinned so that of each group of samples the lowest
 * and the highest stay, and of the other figures every second reading stays.  Joules are never
 * made of it. */
#ifndef GW_MEASURE_RUN_TRACE_H
#define GW_MEASURE_RUN_TRACE_H

#include "event.h"

#include <stddef.h>
#include <stdint.h>

#define RUN_TRACE_POINTS   4000
#define RUN_TRACE_AROUND_S 1.0 /* so much of what was before and after a run is kept */

struct run_trace_power {
	uint64_t t_ns;
	float w;
};

/* NAN: not known. */
struct run_trace_tick {
	uint64_t t_ns;
	float temperature_c, clock_sm_hz, utilization;
	double memory_bytes;
	double reasons; /* GW_Q_CLOCK_REASONS */
};

struct run_trace;

/* For so many devices.  NULL: no memory. */
struct run_trace *run_trace_new(unsigned devices);
void run_trace_free(struct run_trace *s);

/* An event of device i; others than power and ticks are passed over.  A meter_listener. */
void run_trace_event(void *s, unsigned i, const struct event *e);

/* A run begins at begin_ns: what is older, but for the last second before it, is forgotten. */
void run_trace_begin(struct run_trace *s, uint64_t begin_ns);

/* A copy of what is there for device i up to a second after end_ns. */
struct run_trace_copy {
	struct run_trace_power *power;
	struct run_trace_tick *tick;
	size_t powers, ticks;
};
/* 0 or -GW_E_NOMEM; end it with run_trace_copy_done(). */
int run_trace_copy(struct run_trace *s, unsigned i, uint64_t end_ns,
		   struct run_trace_copy *ret);
void run_trace_copy_done(struct run_trace_copy *c);

#endif
