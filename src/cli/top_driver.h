/* top_driver: reads the driver for `gpuward top`. It decides how often slow values are read:
 * the energy counters, and the SM utilisation of processes. */
#ifndef GW_CLI_TOP_DRIVER_H
#define GW_CLI_TOP_DRIVER_H

#include "top_model.h"

struct cli;
struct clock;
struct top_driver;

/* Makes a reader. Call cli_open() with c before, and keep c until the reader is freed. Returns
 * 0 or a negative error. */
int top_driver_new(struct cli *c, const struct clock *clock, struct top_driver **ret);
void top_driver_free(struct top_driver *t);

/* If zoom is true, the next readings include the figures that only the zoom shows (tier SLOW).
 * If it is false, these figures are unknown. */
void top_driver_zoom(struct top_driver *t, bool zoom);

/* Reads the GPUs into the model, and also the processes if it is time to read them. Returns 0,
 * or a negative error with a sentence in m->problem. */
int top_driver_read(struct top_driver *t, struct top_model *m);

#endif
