/* random_unit: real random numbers for tests, from the generator of measure/stat.h. */
#ifndef GW_TEST_RANDOM_UNIT_H
#define GW_TEST_RANDOM_UNIT_H

#include "measure/stat.h"

/* Returns a number in [0, 1), a multiple of 2^-53. */
static inline double random_unit(struct random *r)
{
	return (double)(random_next(r) >> 11) * 0x1p-53;
}

#endif
