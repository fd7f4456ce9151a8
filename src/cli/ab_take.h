/* ab_take: what one run of a comparison gave, summed over its GPUs. */
#ifndef GW_CLI_AB_TAKE_H
#define GW_CLI_AB_TAKE_H

#include "runner.h"

#include "serve/render_ab.h"

#include <stddef.h>

/* Fills in what was measured: of the whole run, or of the first part that the command marked so
 * (NULL: the whole).  How many such parts there are, or -GW_E_NOENT: it marked none from
 * beginning to end. */
int ab_take(struct gw_meter *meter, const char *part, const struct runner_run *run,
	    struct ab_record *r);

/* All that speaks against the run, or that part of it, with the evidence. */
void ab_take_reason(struct gw_meter *meter, const char *part, const struct gw_snapshot *snap,
		    const struct runner_run *run, char *out, size_t size);

#endif
