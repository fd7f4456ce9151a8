/* load: the load of a GPU as a function of time.
 *
 * Every kind answers one question: which level is valid at t, and until when? So code that
 * integrates a load steps from piece to piece and never samples it. */
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
	bool watts; /* levels are watts of the board, else 0..1 of its range */
	uint64_t from_ns,
		until_ns;   /* outside of this time the load is absent; until 0: no end */
	double low, high;   /* off and on level; constant and ramp end at high */
	uint64_t period_ns; /* square; steps: repeat after it, 0: never */
	uint64_t on_ns;     /* square: on first, then off */
	uint64_t ramp_ns;
	struct load_point *points; /* steps: sorted; bursts: level 1 starts, level 0 ends one */
	size_t n_points;
	size_t hint; /* where the last query was answered */
};

/* True if the load is present at t, with its level in *level; *until is when that may change
 * (UINT64_MAX: never). */
bool load_at(struct load *load, uint64_t t_ns, double *level, uint64_t *until_ns);

void load_done(struct load *load);

#endif
