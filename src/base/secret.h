/* secret: a token that lies in a file which nobody but its owner can read. */
#ifndef GW_BASE_SECRET_H
#define GW_BASE_SECRET_H

#include <stddef.h>

#define SECRET_MAX   1024
#define SECRET_LEAST 16

/* The first line; clear it with explicit_bzero().  0, or with a sentence -GW_E_PERM (others can read the file, or we cannot),
 * -GW_E_ARG (the line is too short) or as file_read(). */
int secret_read(const char *path, char out[static SECRET_MAX], char *message, size_t size);

#endif
