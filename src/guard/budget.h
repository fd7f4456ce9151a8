/* budget: decides whether a GPU exceeds its power cap, or its energy cap for today. Pure.
 *
 * The power cap is exceeded when the power stays above it for five seconds, so a short peak
 * does not count. The energy cap is exceeded from the moment the day's energy is used up until
 * the next day. The excess ends when power and energy have stayed within their caps for one
 * minute. If returning workers cause a new excess, this time is doubled, up to ten minutes. */
#ifndef GW_GUARD_BUDGET_H
#define GW_GUARD_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct budget_options { /* 0: no cap */
	double power_w, energy_j;
};

struct budget_input {
	uint64_t now_ns;
	double power_w;  /* NAN: unknown */
	double energy_j; /* a counter that never falls; NAN: unknown */
	int64_t day;     /* number of the local day */
};

struct budget { /* state of one GPU; begins zeroed */
	bool begun, over;
	int64_t day;
	double base_j; /* energy_j when the day, or the service, began */
	/* high_ns: since when the power is above its cap; under_ns: since when no cap is
	 * exceeded; 0: not at present */
	uint64_t high_ns, under_ns;
	/* cleared_ns: when the last excess ended; wait_ns: how long all caps must be kept
	 * before an excess ends */
	uint64_t cleared_ns, wait_ns;
};

/* Adds one input. True if a cap is exceeded; why says which. Else why is "". */
bool budget_update(struct budget *b, const struct budget_options *o,
		   const struct budget_input *in, char *why, size_t size);

#endif
