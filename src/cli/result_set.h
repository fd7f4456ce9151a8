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

/* Loads the files that the command line names, all or none, and calls work() with them.
 * `output`: the file that work() writes (NULL: none), which must not be one of them; `across`:
 * they may come from different GPUs.  Returns the exit code of work(), or another one after the
 * error of each file was printed. */
int result_set_with(const struct cli *c, const char *output, bool across,
		    int (*work)(const struct cli *c, const struct result_set *r));

#endif
