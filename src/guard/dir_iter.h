/* walk: the names in a folder below a root, without allocating: opendir() would, at every look. */
#ifndef GW_GUARD_DIR_ITER_H
#define GW_GUARD_DIR_ITER_H

#include "base/root.h"

/* Hands each name but "." and ".." to fn until it returns false.  0, -GW_E_NOENT, -GW_E_PERM or
 * -GW_E_IO. */
int walk(const struct root *root, const char *path, bool (*fn)(void *arg, const char *name),
	 void *arg);

/* The number that a name is, all of it; 0: it is none. */
int64_t dir_iter_number(const char *name);

#endif
