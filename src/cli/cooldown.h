/* cool: waits before a run until the GPUs are as cool as before the first.
 *
 * Hotter silicon leaks more, so runs that start at different temperatures are not alike.  A GPU
 * that does not get there within a minute sets a new mark where it stands, so that the runs
 * after it start alike and nobody waits a minute each time. */
#ifndef GW_CLI_COOLDOWN_H
#define GW_CLI_COOLDOWN_H

#include "runner.h"

#include <gpuward.h>

#define COOLDOWN_DEVICES 256

struct cooldown_gpu {
	unsigned index;
	double c; /* NAN: it tells no temperature */
};

struct cooldown {
	struct gw_ctx *ctx;
	struct runner *runner;
	double to_c; /* NAN: as at the first start */
	/* Who reads the GPUs, always in the same order; how many.  NULL: those of the runner's
	 * meter are read in ctx. */
	unsigned (*read)(void *arg, struct cooldown_gpu ret[static COOLDOWN_DEVICES]);
	/* Twice a second of a wait: the GPU that is farthest from its mark; NULL: nobody. */
	void (*tell)(void *arg, unsigned gpu, double now_c, double mark_c);
	void *arg;
	/* For the record: */
	double waited_s;
	unsigned late; /* waits that were given up */
	int late_gpu;  /* index of the GPU for which the last one was, -1: it was not */
	double late_c; /* and what it had come down to */
	double now_c;  /* the warmest GPU when the last wait ended; NAN: unknown */
	/* Its own: */
	struct gw_snapshot *snap;
	double mark_c[COOLDOWN_DEVICES]; /* NAN: no temperature yet */
};

/* The caller has filled in what is not its own.  0 or -GW_E_NOMEM; end it with
 * cooldown_done(). */
int cooldown_init(struct cooldown *k);
void cooldown_done(struct cooldown *k);

/* Waits, a minute at most.  What is missing, a GPU or its temperature, is not waited for.
 * True: a signal asked us to end. */
bool cooldown_wait(struct cooldown *k);

#endif
