/* energy_parts: declarations that the files of the energy engine share.
 *
 *         energy.c         samples, their integral, and the sums of an open window
 *         energy_timing.c  counter readings and the times of the counter's updates; period of
 *                          the load, and whether it aliases with the sensor
 *         energy_result.c  energy from counter and samples, and the choice between them */
#ifndef GW_MEASURE_ENERGY_PARTS_H
#define GW_MEASURE_ENERGY_PARTS_H

#include "energy.h"

#include "base/clock.h"

#define ENERGY_HOLE_STEPS 3.0 /* more than this many spacings between two samples are a gap */
/* Mean power above this multiple of the power limit is an error of the counter. */
#define ENERGY_OVER_LIMIT 1.5
#define ENERGY_MOST_W     20000.0 /* the highest possible power if the limit is unknown */
/* A counter that gained less than this share of the samples' energy was reset. */
#define ENERGY_RESET_RATIO 0.5
/* Samples at most this far from a point in time are near it. */
#define ENERGY_NEAR_NS (2 * NS_PER_S)

static inline double span_s(uint64_t a_ns, uint64_t b_ns)
{
	return b_ns >= a_ns ? (double)(b_ns - a_ns) * 1e-9 : -((double)(a_ns - b_ns) * 1e-9);
}

static inline double sq(double x)
{
	return x * x;
}

/* energy_number() returns the sample with this number, which must still be kept.
 * energy_oldest() returns the number of the oldest sample kept. */
const struct energy_sample *energy_number(const struct energy *e, uint64_t number);
uint64_t energy_oldest(const struct energy *e);

/* Returns the number of the first sample at or after t; e->samples if there is no such
 * sample. */
uint64_t energy_find(const struct energy *e, uint64_t t_ns);

/* Finds the lowest and highest sample in [from, to]. Returns false if there is no sample. */
bool energy_extremes(const struct energy *e, uint64_t from_ns, uint64_t to_ns, double *min,
		     double *max);

/* Returns the difference between the highest and the lowest sample within reach_s of t. */
double energy_swing(const struct energy *e, uint64_t t_ns, double reach_s);

/* Returns the time resolution of power at a boundary: the spacing of samples or their averaging
 * window, whichever is longer. */
double energy_reach_s(const struct energy *e);

/* Returns the most energy that the counter can gain in `seconds`, including one late update. */
double energy_most_joules(const struct energy_setup *set, double seconds);

/* energy_middle() returns the time in the middle of the driver call. energy_nearest() returns
 * the reading nearest to t, or NULL. */
uint64_t energy_middle(const struct energy_read *r);
const struct energy_read *energy_nearest(const struct energy *e, uint64_t t_ns);

/* Fits the phase of the counter's updates again, if samples cover the last reading. */
void energy_find_phase(struct energy *e);

/* Returns the time up to which a reading contains the energy: the last update before the
 * reading, minus the lag of the counter. If the phase is unknown, half a tick before the
 * reading is assumed as the time of the update. */
uint64_t energy_update_time(const struct energy *e, const struct energy_read *r);

/* Finds the counter reading that is nearest to a boundary of a window. Stores this reading, and
 * the integral of the power samples up to energy_update_time() of this reading. */
void energy_take_read(const struct energy *e, uint64_t boundary_ns,
		      struct energy_boundary *boundary);

/* Returns the power in the middle of a bucket. */
double energy_bucket_watts(unsigned b);

/* Returns the period of the load in the window; NAN: no clear period. */
double energy_period(const struct energy *e, const struct energy_window *w);

/* Returns true if power is polled and no counter verifies it. */
bool energy_unwatched(const struct energy *e);

/* Returns the standard uncertainty from load changes that the sensor may miss, relative to the
 * energy. Returns 0 if there is a counter or the load is known to be slow. */
double energy_hidden_ratio(const struct energy *e, const struct energy_window *w);

/* Returns true if the load may alias with the sensor. */
bool energy_alias(const struct energy *e, const struct energy_window *w,
		  const struct gw_energy *r);

#endif
