/* results: the result files that compare, report and plot were given. */
#ifndef GW_CLI_RESULT_SET_H
#define GW_CLI_RESULT_SET_H

#include "cli.h"
#include "result_file.h"

struct results {
	struct result *v;
	size_t n;
};

/* Loads the files that the command line names, all or none.  `across`: they may come from different GPUs.  Returns an
 * exit code after it printed the error of each file; call results_done() in any case. */
int results_load(struct results *r, const struct cli *c, bool across);
void results_done(struct results *r);

#endif
