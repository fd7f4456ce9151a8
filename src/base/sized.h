/* sized: structs of the public API that begin with their own size, so that they can grow.
 *
 * Every such struct begins with a size_t, and its size is a multiple of it. The caller may have
 * been compiled with an older or a newer header than the library. */
#ifndef GW_BASE_SIZED_H
#define GW_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>

/* Copies a struct from the caller to `known`, which has `size` bytes; what the caller does not
 * have is 0. NULL: everything is 0. False: the size in *given is one that no version had. */
bool sized_read(void *known, size_t size, const void *given);

/* Copies `known` to a struct of the caller, who has set its size. Members that the library does
 * not have become 0. False: as above, and *ret is unchanged. */
bool sized_write(void *ret, const void *known, size_t size);

#endif
