/* output: a finished document goes to a file or to standard output, whole or not at all. */
#ifndef GW_CLI_OUTPUT_H
#define GW_CLI_OUTPUT_H

#include "base/buf.h"

/* Writes text to path; NULL or "-" is standard output.  A regular file is replaced in one step,
 * so a full disk leaves the old one as it was.  An exit code, having said what went wrong. */
int output_write(const char *path, const struct buf *text);

/* The same for a file alone, for standard output alone at once, and whether a file (or NULL,
 * "-") could be written at all: before hours of work are lost. */
int output_save(const char *path, const char *text, size_t n);
int output_print(const char *text, size_t n);
int output_possible(const char *path);

/* To the file, and to standard output where that is asked for (print) or path is "-". */
int output_result(const char *path, bool print, const struct buf *text);

/* Is the file that would be written one of those that were read?  EXIT_OK, or EXIT_USAGE having
 * said so. */
int output_spares(const char *path, char **inputs, int n);

#endif
