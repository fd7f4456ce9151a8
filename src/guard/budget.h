/* budget: does a GPU exceed its cap of power, or its cap of energy for today?  Pure.
 *
 * The power cap is exceeded after five seconds above it without a break, so a peak does not
 * count; the energy cap from the moment the day's energy is used up until the next day.  It
 * ends when both caps have held for a minute.  If the workers' return exceeds it again, that
 * time doubles, up to ten minutes. */
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

struct budget { /* of one GPU; begins zeroed */
	bool begun, over;
	int64_t day;
	double base_j;                /* the counter when the day, or the service, began */
	uint64_t high_ns, under_ns;   /* above the power cap since; under both caps since; 0 */
	uint64_t cleared_ns, wait_ns; /* when it last ended; how long both caps must hold */
};

/* True: a cap is exceeded, and why says which; else why is "". */
bool budget_update(struct budget *b, const struct budget_options *o,
		   const struct budget_input *in, char *why, size_t size);

#endif
