/* run_trace: power and other values over time during a run, for its plots.
 *
 * The meter's threads add the values, so nothing is allocated during a run. Per device there is
 * memory for RUN_TRACE_POINTS points of power, and as many of the other values. When the memory
 * is full, half of the points are removed: for power, the lowest and highest sample of each
 * group stay; for the other values, every second reading stays. Joules are never computed from
 * a trace. */
#ifndef GW_MEASURE_RUN_TRACE_H
#define GW_MEASURE_RUN_TRACE_H

#include "event.h"

#include <stddef.h>
#include <stdint.h>

#define RUN_TRACE_POINTS   4000
#define RUN_TRACE_AROUND_S 1.0 /* seconds kept before and after a run */

struct run_trace_power {
	uint64_t t_ns;
	float w;
};

/* The values other than power at one time; NAN: unknown. */
struct run_trace_tick {
	uint64_t t_ns;
	float temperature_c, clock_sm_hz, utilization;
	double memory_bytes;
	double reasons; /* GW_Q_CLOCK_REASONS */
};

struct run_trace;

/* Creates a trace for this many devices. Returns NULL if there is no memory. */
struct run_trace *run_trace_new(unsigned devices);
void run_trace_free(struct run_trace *s);

/* Adds an event of device i. Ignores all but EVENT_POWER and EVENT_TICK. The function can be
 * used as a meter_event_fn. */
void run_trace_event(void *s, unsigned i, const struct event *e);

/* Begins a run at begin_ns: deletes older data, except for the last second before the run. */
void run_trace_begin(struct run_trace *s, uint64_t begin_ns);

/* A copy of the data of device i up to one second after end_ns. */
struct run_trace_copy {
	struct run_trace_power *power;
	struct run_trace_tick *tick;
	size_t powers, ticks;
};
/* Copies the data of device i. Returns 0 or -GW_E_NOMEM. Free the copy with
 * run_trace_copy_done(). */
int run_trace_copy(struct run_trace *s, unsigned i, uint64_t end_ns,
		   struct run_trace_copy *ret);
void run_trace_copy_done(struct run_trace_copy *c);

#endif
