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

/* Loads the result files that the command line names, and calls work() with them.  If a file
 * cannot be used, prints an error and does not call work().  output: the file that work()
 * writes (NULL: none); it must not be an input file.  across: the results may come from
 * different GPUs.  Returns the exit code of work(), or of the error. */
int result_set_with(const struct cli *c, const char *output, bool across,
		    int (*work)(const struct cli *c, const struct result_set *r));

#endif
