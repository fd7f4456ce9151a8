/* total: the energy of one GPU for as long as it is watched, for a counter that only grows.
 *
 * Fed with a meter's events; pure.  Readings of the hardware counter make the sum, and power
 * samples fill in what came after the last of them; without a counter they are all of it.  A
 * hole between samples is not bridged: its joules come with the next reading of the counter, or
 * never; measured_s tells how much time the samples spoke of. */
#ifndef GW_MEASURE_ENERGY_TOTAL_H
#define GW_MEASURE_ENERGY_TOTAL_H

#include "event.h"

#include <stdbool.h>

struct energy_total {
	double spacing_s;   /* of the samples, as planned; energy_setup.spacing_s */
	double counted_j;   /* up to the last reading of the counter              */
	double since_j;     /* from the samples after it                          */
	double measured_s;  /* time of which samples spoke                        */
	double shown_j;     /* what was told last: never less                     */
	bool read, sampled; /* there was one                                      */
	double reading_j;   /* of the counter, and when it was made               */
	uint64_t reading_ns;
	double last_w; /* the last sample */
	uint64_t last_ns;
};

void energy_total_init(struct energy_total *t, double spacing_s);

/* Any event of the device's meter; most are passed over. */
void energy_total_feed(struct energy_total *t, const struct event *e);

/* Joules so far.  Never falls. */
double energy_total_joules(struct energy_total *t);

#endif
