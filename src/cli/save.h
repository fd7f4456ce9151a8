/* save: writes a file whole or not at all. */
#ifndef GW_CLI_SAVE_H
#define GW_CLI_SAVE_H

#include <stddef.h>

/* Could it be written there?  0, or -1 with a sentence; before hours of work are lost. */
int save_possible(const char *path, char *error, size_t size);

/* Under another name beside it, onto the disk, then renamed; what is no plain file (a pipe, a
 * terminal) is written to.  0, or -1 with a sentence, and what was there before is there still. */
int save_file(const char *path, const char *text, size_t n, char *error, size_t size);

/* Onto standard output.  0, or -1 with a sentence; nobody reading it any more is no error. */
int save_print(const char *text, size_t n, char *error, size_t size);

#endif
