/* mem_trim: frees the memory of code that a program needed only while it started.
 *
 * The read-only pages of a program and its libraries are copies of pages in their files. When
 * the program uses such a page again, the kernel maps it again from its cache. Only our own
 * programs call this module: in a user's process, libgpuward must not touch other libraries. */
#ifndef GW_BASE_MEM_TRIM_H
#define GW_BASE_MEM_TRIM_H

#include <stddef.h>

/* Removes the read-only pages of the program and of every loaded library from the memory of
 * this process, except libraries whose code the dynamic linker changed. The pages stay in the
 * cache of the kernel. Safe while other threads run. Returns the size in bytes of the mappings
 * that were trimmed, resident or not. */
size_t mem_trim_code(void);

#endif
