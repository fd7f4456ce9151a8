/* load: what a GPU is asked to do, as a function of time.
 *
 * Every kind reduces to one question: which level holds at t, and until when?  So whoever
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
	bool watts; /* levels are watts of the board, else 0..1 of its range   */
	uint64_t from_ns,
		until_ns;   /* outside of it the load is absent; until 0: for ever     */
	double low, high;   /* off and on level; constant and ramp end at high          */
	uint64_t period_ns; /* square; steps: start again after it, 0 never             */
	uint64_t on_ns;     /* square: on first, then off                               */
	uint64_t ramp_ns;
	struct load_point
		*points; /* steps: sorted; bursts: level 1 starts, level 0 ends one  */
	size_t n_points;
	size_t hint; /* where the last question was answered                     */
};

/* True where the load is there at t, its level then in *level; *until is when that may change
 * (UINT64_MAX: never). */
bool load_at(struct load *load, uint64_t t_ns, double *level, uint64_t *until_ns);

void load_done(struct load *load);

#endif
