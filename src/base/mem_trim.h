/* mem_trim: removes from the resident set the code that only the start of a program needed.
 *
 * The pages of a program and its libraries that nobody can write are copies of their files. When
 * the program uses such a page again, the kernel maps it again from its cache. Only for our own
 * programs, after their start: in a user's process, libgpuward must not touch other libraries. */
#ifndef GW_BASE_MEM_TRIM_H
#define GW_BASE_MEM_TRIM_H

#include <stddef.h>

/* Removes the read-only pages of the program and of every loaded library; they stay in the cache
 * of the kernel. Safe while other threads run. Returns the number of bytes of these mappings,
 * resident or not. */
size_t mem_trim_code(void);

#endif
