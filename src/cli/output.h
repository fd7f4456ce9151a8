/* output: a finished document goes to a file or to standard output, whole or not at all. */
#ifndef GW_CLI_OUTPUT_H
#define GW_CLI_OUTPUT_H

#include "base/buf.h"

/* Writes text to path; NULL or "-" is standard output.  A regular file is replaced in one step,
 * so a full disk leaves the old one as it was.  An exit code, having said what went wrong. */
int output_write(const char *path, const struct buf *text);

/* Is the file that would be written one of those that were read?  EXIT_OK, or EXIT_USAGE having
 * said so. */
int output_spares(const char *path, char **inputs, int n);

#endif
