/* budget: does a GPU draw more power, or has it used more energy today, than its owner allows?  Pure.
 *
 * A cap of power is exceeded when it was for some seconds without a break, a peak is none; a cap of energy
 * when the day's is used up, until the next day.  It is over when both have held for a minute.  Workers
 * whose return exceeds it again wait twice as long each time, ten minutes at most. */
#ifndef GW_GUARD_BUDGET_H
#define GW_GUARD_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct budget_options { /* 0: no such cap */
	double power_w, energy_j;
};

struct budget_look {
	uint64_t now_ns;
	double power_w;  /* NAN: unknown */
	double energy_j; /* a count that never falls; NAN: unknown */
	int64_t day;     /* a number for the local day */
};

struct budget { /* of one GPU; begins zeroed */
	bool begun, over;
	int64_t day;
	double base_j;                /* the count when the day began, or when we did */
	uint64_t high_ns, under_ns;   /* above the power's cap since, under both since; 0 */
	uint64_t cleared_ns, wait_ns; /* when it was last over; what is waited then */
};

/* Is it exceeded?  why: in what way, or "". */
bool budget_look(struct budget *b, const struct budget_options *o, const struct budget_look *l,
		 char *why, size_t size);

#endif
