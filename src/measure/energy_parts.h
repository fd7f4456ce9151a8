/* energy_parts: what the files of the energy engine share.
 *
 *	energy.c         samples and their integral
 *	energy_tick.c    counter readings, and where in time its ticks lie
 *	energy_window.c  what a window takes in while it is open
 *	energy_alias.c   the load's own period, and whether it beats with the sensor
 *	energy_result.c  two meters, their uncertainties, and the choice between them */
#ifndef GW_MEASURE_ENERGY_PARTS_H
#define GW_MEASURE_ENERGY_PARTS_H

#include "energy.h"

#include "base/clock.h"

#define ENERGY_HOLE_STEPS 3.0 /* samples further apart than this many spacings leave a hole */
#define ENERGY_OVER_LIMIT 1.5 /* "above the limit" is no error; above this much of it is    */
#define ENERGY_MOST_W     20000.0
#define ENERGY_NEAR_NS    (2 * NS_PER_S) /* what is around a moment */

static inline double span_s(uint64_t a_ns, uint64_t b_ns)
{
	return b_ns >= a_ns ? (double)(b_ns - a_ns) * 1e-9 : -((double)(a_ns - b_ns) * 1e-9);
}

static inline double sq(double x)
{
	return x * x;
}

/* ---- samples ---- */

/* The sample with this number, which is kept still; the oldest that is. */
const struct energy_sample *energy_number(const struct energy *e, uint64_t number);
uint64_t energy_oldest(const struct energy *e);

/* Number of the first sample at or after t; e->samples when there is none. */
uint64_t energy_find(const struct energy *e, uint64_t t_ns);

void energy_at_sample(const struct energy_sample *s, uint64_t number, struct energy_point *ret);

/* Lowest and highest sample in [from, to]; false when there is none. */
bool energy_extremes(const struct energy *e, uint64_t from_ns, uint64_t to_ns, double *min,
		     double *max);

/* How much power changes within reach of t. */
double energy_swing(const struct energy *e, uint64_t t_ns, double reach_s);

/* Reach of one sample: around an edge power is known no finer than this. */
double energy_reach_s(const struct energy *e);

/* ---- counter ---- */

uint64_t energy_middle(const struct energy_read *r);
const struct energy_read *energy_nearest(const struct energy *e, uint64_t t_ns);

/* Finds the phase of the ticks anew, when samples cover the last reading. */
void energy_find_phase(struct energy *e);

/* Time of the last tick that a reading made at t holds, were the ticks at this phase. */
uint64_t energy_tick_before(const struct energy *e, uint64_t t_ns, double phase_s);

/* The reading for an edge, and the integral at the tick that it tells of. */
void energy_take_read(const struct energy *e, uint64_t edge_ns, struct energy_read *read,
		      struct energy_point *tick, bool *known, double *slope_w);

/* ---- windows ---- */

/* Middle of a bucket of power. */
double energy_bucket_watts(unsigned b);

/* Period of the load in the window, NAN when none stands out. */
double energy_period(const struct energy *e, const struct energy_window *w);

/* Is it polled, and no counter is held against it? */
bool energy_unwatched(const struct energy *e);

/* What a sensor that looks part of the time may miss where nothing else watches: one standard uncertainty, of
 * the energy. */
double energy_hidden_ratio(const struct energy *e, const struct energy_window *w);

/* May the load beat with the sensor? */
bool energy_alias(const struct energy *e, const struct energy_window *w,
		  const struct gw_energy *r);

#endif
