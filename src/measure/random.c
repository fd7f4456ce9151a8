#include "random.h"

#include <assert.h>

uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void random_init(struct random *r, uint64_t seed)
{
	uint64_t state = seed;

	for (unsigned i = 0; i < 4; i++)
		r->s[i] = splitmix64(&state);
	r->seed = seed;
}

static uint64_t rotate(uint64_t x, unsigned k)
{
	return (x << k) | (x >> (64 - k));
}

uint64_t random_next(struct random *r)
{
	uint64_t *s = r->s;
	uint64_t result = rotate(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

/* Lemire's multiplication: the high word of x * n is the answer, and the few low words that
 * would favour some answers are drawn again. */
uint32_t random_below(struct random *r, uint32_t n)
{
	assert(n >= 1);

	uint64_t m = (random_next(r) >> 32) * n;

	if ((uint32_t)m < n) {
		uint32_t unfair = (uint32_t)-n % n;

		while ((uint32_t)m < unfair)
			m = (random_next(r) >> 32) * n;
	}
	return (uint32_t)(m >> 32);
}

double random_unit(struct random *r)
{
	return (double)(random_next(r) >> 11) * 0x1p-53;
}
