/* result_set: the result files that compare, report and plot were given. */
#ifndef GW_CLI_RESULT_SET_H
#define GW_CLI_RESULT_SET_H

#include "cli.h"
#include "result_file.h"

/* The row of --across-gpus in a table of options. */
#define ACROSS_GPUS_OPTION(at) \
	OPTION_ROW(FLAG, 0, "across-gpus", at, NULL, "also compare results of different GPUs")

struct result_set {
	struct result_file *v;
	size_t n;
};

/* Loads the files that the command line names, all or none.  `across`: they may come from different GPUs.  Returns an
 * exit code after it printed the error of each file; call result_set_done() in any case. */
int result_set_load(struct result_set *r, const struct cli *c, bool across);
void result_set_done(struct result_set *r);

#endif
