/* run_baseline: the idle power that a result is compared with.
 *
 * One that was kept is used where it is of this state of the GPU; one is taken where asked
 * for. */
#ifndef GW_CLI_RUN_BASELINE_H
#define GW_CLI_RUN_BASELINE_H

#include "runner.h"

#include "measure/baseline.h"
#include "serve/render_result.h"

enum run_baseline_mode {
	RUN_BASELINE_KEPT, /* one that was kept, or none  */
	RUN_BASELINE_AUTO, /* else take one               */
	RUN_BASELINE_NEW,  /* take one in any case        */
	RUN_BASELINE_NONE,
	RUN_BASELINE_OLD, /* one that was kept, too old or too cold as it may be, or none */
};

struct run_baseline {
	bool have;
	struct baseline b;
	bool stale;    /* it is too old or of another temperature: why says it */
	char why[200]; /* why there is none; "" nobody asked */
};

/* Finds or takes that of device i of the meter, d in the snapshot, and tells the meter of it.
 * Taking lasts half a minute at most; a signal ends it (r->interrupted). */
void run_baseline_get(struct runner *r, unsigned i, const struct gw_device *d,
		      enum run_baseline_mode mode, struct run_baseline *ret);

/* What was above it; the sensor as gross was made with it. */
void run_baseline_net(const struct run_baseline *b, const struct gw_energy *gross,
		      const struct sensor *sensor, struct measured_baseline *ret);

#endif
