/* sized: copies structs of the public API that begin with their own size, so that later
 * versions of a struct can have more members.
 *
 * Every such struct begins with a size_t, and its size is a multiple of sizeof(size_t). The
 * caller may have been compiled with an older or a newer header than the library. `first` is
 * the size of the first version of the struct (SIZED_FIRST). */
#ifndef GW_BASE_SIZED_H
#define GW_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Largest accepted size in bytes. A wrong size must not make the library read or write far
 * beyond the caller's struct. */
#define SIZED_MAX 4096

/* Size of the first version of a struct, which ended with the member `last`. */
#define SIZED_FIRST(type, last)                                                    \
	((offsetof(type, last) + sizeof(((type *)0)->last) + sizeof(size_t) - 1) / \
	 sizeof(size_t) * sizeof(size_t))

/* Returns the size that the first member contains, or 0 if no version has this size. */
static inline size_t sized_size(const void *given, size_t first)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	return size < first || size > SIZED_MAX || size % sizeof(size) ? 0 : size;
}

/* Copies a struct from the caller to `known`, which has `size` bytes. Members that the caller's
 * struct does not have become 0. If `given` is NULL, all members become 0. Returns false if no
 * version has the size in *given, or if a member that the library does not know is not 0. */
static inline bool sized_read(void *known, size_t size, size_t first, const void *given)
{
	size_t theirs = given ? sized_size(given, first) : size;

	memset(known, 0, size);
	for (size_t i = size; i < theirs; i++)
		if (((const char *)given)[i])
			return false;
	if (given && theirs)
		memcpy(known, given, theirs < size ? theirs : size);
	return theirs != 0;
}

/* Copies `known` to the caller's struct *ret, in which the caller has set the size. Members
 * that the library does not have become 0. Returns false if no version has the size in *ret;
 * *ret is then unchanged. */
static inline bool sized_write(void *ret, const void *known, size_t size, size_t first)
{
	size_t theirs = sized_size(ret, first);

	if (!theirs)
		return false;
	if (theirs > size)
		memset((char *)ret + size, 0, theirs - size);
	memcpy((char *)ret + sizeof(size_t), (const char *)known + sizeof(size_t),
	       (theirs < size ? theirs : size) - sizeof(size_t));
	return true;
}

#endif
