/* load: the load of a GPU as a function of time.
 *
 * Every kind of load returns the level at time t, and the time until which this level is valid.
 * So code that integrates a load goes from piece to piece and never samples the load. */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum load_kind { LOAD_CONSTANT, LOAD_STEPS, LOAD_SQUARE, LOAD_RAMP, LOAD_BURSTS };

struct load_point {
	uint64_t at_ns;
	double level;
};

struct load {
	enum load_kind kind;
	bool watts; /* true: levels are in watts; false: levels are 0..1 of the power range */
	/* The load is present from from_ns until until_ns. until_ns 0: it has no end. */
	uint64_t from_ns, until_ns;
	/* For square and bursts: low is the level while the load is off, high while it is on.
	 * For ramp: low is the first level, high the last. For constant: high is the level. For
	 * steps: low is the level before the first point. */
	double low, high;
	/* For square: the period. For steps: the time after which the points repeat; 0: the
	 * points do not repeat. */
	uint64_t period_ns;
	uint64_t
		on_ns; /* for square: how long the load is on at the beginning of each period */
	uint64_t ramp_ns; /* for ramp: its length */
	/* For steps and bursts: the points, sorted by time. For bursts, level 1 starts a burst
	 * and level 0 ends it. */
	struct load_point *points;
	size_t n_points;
	size_t hint; /* index of the point that the last query found */
};

/* Returns true and the level in *level if the load is present at t. In both cases, *until_ns is
 * the time at which this may change (UINT64_MAX: never). */
bool load_at(struct load *load, uint64_t t_ns, double *level, uint64_t *until_ns);

void load_done(struct load *load);

/* Lowers *until_ns to t_ns. */
static inline void min_time(uint64_t *until_ns, uint64_t t_ns)
{
	if (t_ns < *until_ns)
		*until_ns = t_ns;
}

#endif
