/* ab_plan: parses and checks the options of `gpuward ab`, and fills in the data of one run. */
#ifndef GW_CLI_AB_PLAN_H
#define GW_CLI_AB_PLAN_H

#include "session.h"

#include "measure/ab.h"
#include "serve/render_ab.h"

#include <stdbool.h>
#include <stddef.h>

struct ab_options {
	struct session_options session;
	double pairs_max, aa_pairs, seed; /* seed NAN: --seed is not given */
	const char *target, *fail_if;
	bool show_output;
};

extern const struct option ab_plan_options[];

/* Checks the options and writes the configuration.  Returns an exit code. */
int ab_plan_parse(const struct ab_options *o, struct ab_config *ret);

/* Splits argv at "--" into two commands, each ended by NULL.  Changes argv.  Returns an exit
 * code. */
int ab_plan_split(char **argv, int argc, char **ret[2]);

/* Fills in the energy of one run, summed over its GPUs.  part NULL: the energy of the whole
 * run; otherwise the energy of the first part with that name.  Returns the number of parts with
 * that name, or -GW_E_NOENT if none is finished. */
int ab_record_fill(struct gw_meter *meter, const char *part, const struct runner_run *run,
		   struct ab_record *r);

/* Writes why the energy of the run (or of its part) is not fully valid: for each GPU, the
 * sentence of each code and its evidence. */
void ab_record_reason(struct gw_meter *meter, const char *part, const struct gw_snapshot *snap,
		      const struct runner_run *run, char *out, size_t size);

#endif
