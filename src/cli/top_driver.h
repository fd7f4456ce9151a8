/* top_driver: reads the driver for `gpuward top`.  Decides how often the expensive calls are
 * made: the energy counters, and the SM utilisation of processes. */
#ifndef GW_CLI_TOP_DRIVER_H
#define GW_CLI_TOP_DRIVER_H

#include "top_model.h"

struct cli;
struct clock;
struct top_driver;

/* Makes a reader. The GPUs of c are open, and c outlives the reader. Returns 0 or a negative
 * error. */
int top_driver_new(struct cli *c, const struct clock *clock, struct top_driver **ret);
void top_driver_free(struct top_driver *t);

/* Selects whether the next readings have the figures that only the zoom shows (tier SLOW).
 * Otherwise these figures are unknown. */
void top_driver_zoom(struct top_driver *t, bool zoom);

/* Reads what is due into the model.  Returns 0 or a negative error, with a sentence in
 * m->problem. */
int top_driver_read(struct top_driver *t, struct top_model *m);

#endif
