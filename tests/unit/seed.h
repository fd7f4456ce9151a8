/* seed: random numbers for tests against brute force.  Each run prints its seed; set
 * GPUWARD_TEST_SEED to repeat a run. */
#ifndef GW_TEST_SEED_H
#define GW_TEST_SEED_H

#include "test.h"

#include <time.h>

/* Returns a different seed in each run, or GPUWARD_TEST_SEED if it is set. */
static inline uint64_t seed_of_run(void)
{
	const char *given = getenv("GPUWARD_TEST_SEED");
	struct timespec now;
	uint64_t seed;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec * 2654435761u + 1;
	print_message("GPUWARD_TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static inline uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

#endif
