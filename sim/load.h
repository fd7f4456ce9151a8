/* load: the load of a GPU as a function of time.
 *
 * Every kind of load returns the level at time t and until when it is valid. So code that
 * integrates a load goes from piece to piece and never samples it. */
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
	bool watts; /* true: levels are watts of the board; false: 0..1 of its power range */
	/* The load is absent before from_ns and from until_ns on; until_ns 0: no end. */
	uint64_t from_ns, until_ns;
	/* square: the level while it is off (low) and on (high); ramp: the first and the last
	 * level; constant: high is the level */
	double low, high;
	/* square: its period; steps: they repeat after this time; 0: they do not repeat */
	uint64_t period_ns;
	uint64_t on_ns;   /* square: each period begins with this time on, then it is off */
	uint64_t ramp_ns; /* ramp: its length */
	/* steps: sorted by time; bursts: level 1 starts a burst, level 0 ends it */
	struct load_point *points;
	size_t n_points;
	size_t hint; /* index of the point that the last query found */
};

/* True if the load is present at t, with its level in *level; *until is when that may change
 * (UINT64_MAX: never). */
bool load_at(struct load *load, uint64_t t_ns, double *level, uint64_t *until_ns);

void load_done(struct load *load);

#endif
