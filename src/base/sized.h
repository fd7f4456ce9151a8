/* sized: copies structs of the public API that begin with their own size, so that later
 * versions of a struct can have more members.
 *
 * Every such struct begins with a size_t, and its size is a multiple of sizeof(size_t). The
 * caller may have been compiled with an older or a newer header than the library. */
#ifndef GW_BASE_SIZED_H
#define GW_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>

/* Copies a struct from the caller to `known`, which has `size` bytes. Members that the caller's
 * struct does not have become 0. given NULL: all members become 0. Returns false if the size in
 * *given is not possible. */
bool sized_read(void *known, size_t size, const void *given);

/* Copies `known` to the caller's struct *ret, in which the caller has set the size. Members
 * that the library does not have become 0. Returns false if the size in *ret is not possible;
 * *ret is then unchanged. */
bool sized_write(void *ret, const void *known, size_t size);

#endif
