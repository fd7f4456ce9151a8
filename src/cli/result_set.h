/* result_set: the result files that compare, report and plot were given. */
#ifndef GW_CLI_RESULT_SET_H
#define GW_CLI_RESULT_SET_H

#include "cli.h"
#include "comparison.h"
#include "result_file.h"

/* The row for --across-gpus in a table of options. */
#define ACROSS_GPUS_OPTION(at) \
	OPTION_ROW(FLAG, 0, "across-gpus", at, NULL, "also compare results of different GPUs")

/* The row for --reference in a table of options. */
#define REFERENCE_OPTION(at)                                                          \
	OPTION_ROW(TEXT, 0, "reference", at, "LABEL",                                 \
		   "changes are relative to this label (default: the first row that " \
		   "has an energy)")

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

/* Compares the results.  reference: the value of --reference; NULL: not given.  If no row has
 * that label, or the row has no usable run, prints an error.  Returns an exit code; call
 * comparison_done() in any case. */
int result_set_compare(const struct result_set *r, const char *reference,
		       struct comparison *ret);

#endif
