/* energy_total: the energy of one GPU since it was opened, as a counter that never falls.
 *
 * It gets the events of a meter. The sum is the hardware counter up to its last reading plus
 * the power samples after that reading; without a counter, only samples. A gap between samples
 * is not bridged: its energy is missing, unless the next counter reading adds it. */
#ifndef GW_MEASURE_ENERGY_TOTAL_H
#define GW_MEASURE_ENERGY_TOTAL_H

#include "event.h"

#include <stdbool.h>

struct energy_total {
	double spacing_s;   /* planned time between samples; energy_setup.spacing_s */
	double counted_j;   /* energy up to the last reading of the counter */
	double since_j;     /* energy from the samples after that reading */
	double measured_s;  /* time that the samples cover                        */
	double shown_j;     /* last value returned; the next is never less        */
	bool read, sampled; /* a counter reading exists; a sample exists */
	double reading_j;   /* last reading of the counter                        */
	uint64_t reading_ns;
	double last_w; /* the last sample */
	uint64_t last_ns;
};

void energy_total_init(struct energy_total *t, double spacing_s);

/* Takes an event of the device's meter; ignores all but power and counter events. */
void energy_total_feed(struct energy_total *t, const struct event *e);

/* Returns the joules so far. Never falls. */
double energy_total_joules(struct energy_total *t);

#endif
