/* energy_parts: shared by the files of the energy engine.
 *
 *	energy.c         samples, their integral, and the sums of an open window
 *	energy_tick.c    counter readings, and the times of the ticks
 *	energy_alias.c   period of the load, and whether it aliases with the sensor
 *	energy_result.c  two meters, their uncertainties, and the choice between them */
#ifndef GW_MEASURE_ENERGY_PARTS_H
#define GW_MEASURE_ENERGY_PARTS_H

#include "energy.h"

#include "base/clock.h"

#define ENERGY_HOLE_STEPS 3.0 /* more spacings than this between samples are a gap */
#define ENERGY_OVER_LIMIT 1.5 /* power above this multiple of the limit is an error */
#define ENERGY_MOST_W     20000.0
#define ENERGY_NEAR_NS    (2 * NS_PER_S) /* around a point in time */

static inline double span_s(uint64_t a_ns, uint64_t b_ns)
{
	return b_ns >= a_ns ? (double)(b_ns - a_ns) * 1e-9 : -((double)(a_ns - b_ns) * 1e-9);
}

static inline double sq(double x)
{
	return x * x;
}

/* ---- samples ---- */

/* The sample with this number, which must still be kept; the number of the oldest one kept. */
const struct energy_sample *energy_number(const struct energy *e, uint64_t number);
uint64_t energy_oldest(const struct energy *e);

/* Number of the first sample at or after t; e->samples: none. */
uint64_t energy_find(const struct energy *e, uint64_t t_ns);

/* Lowest and highest sample in [from, to]; false: none. */
bool energy_extremes(const struct energy *e, uint64_t from_ns, uint64_t to_ns, double *min,
		     double *max);

/* Change of power within reach of t. */
double energy_swing(const struct energy *e, uint64_t t_ns, double reach_s);

/* Reach of one sample: the time resolution of power at an edge. */
double energy_reach_s(const struct energy *e);

/* ---- counter ---- */

uint64_t energy_middle(const struct energy_read *r);
const struct energy_read *energy_nearest(const struct energy *e, uint64_t t_ns);

/* Fits the phase of the ticks again, if samples cover the last reading. */
void energy_find_phase(struct energy *e);

/* Time of the last tick in a reading at t, for ticks with this phase. */
uint64_t energy_tick_before(const struct energy *e, uint64_t t_ns, double phase_s);

/* The reading for an edge, and the integral at its tick. */
void energy_take_read(const struct energy *e, uint64_t edge_ns, struct energy_edge *edge);

/* ---- windows ---- */

/* Power in the middle of a bucket. */
double energy_bucket_watts(unsigned b);

/* Period of the load in the window; NAN: no clear period. */
double energy_period(const struct energy *e, const struct energy_window *w);

/* Is power polled without a counter to verify it? */
bool energy_unwatched(const struct energy *e);

/* What a sensor that observes only part of the time may miss without a second meter: one standard
 * uncertainty, relative to the energy. */
double energy_hidden_ratio(const struct energy *e, const struct energy_window *w);

/* May the load alias with the sensor? */
bool energy_alias(const struct energy *e, const struct energy_window *w,
		  const struct gw_energy *r);

#endif
