/* random: numbers that look random and are the same for the same start.
 *
 * The order of runs and the bootstrap draw from here, and a result records the start, so that
 * every interval can be computed again to the last bit.  The generator is xoshiro256** (Blackman
 * and Vigna), its state filled by splitmix64 so that any start is a good one.  Not for secrets. */
#ifndef GW_MEASURE_RANDOM_H
#define GW_MEASURE_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t s[4];
	uint64_t seed; /* as given to random_init(), for the record */
};

/* The next number of the sequence that *state is in; a stream of its own for each start. */
uint64_t splitmix64(uint64_t *state);

void random_init(struct random *r, uint64_t seed);

/* 64 even bits. */
uint64_t random_next(struct random *r);

/* 0 to n - 1, each exactly as likely; n >= 1. */
uint32_t random_below(struct random *r, uint32_t n);

/* [0, 1), a multiple of 2^-53. */
double random_unit(struct random *r);

#endif
