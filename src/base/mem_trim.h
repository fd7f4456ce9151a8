/* mem_trim: returns memory to the kernel that a loaded library has zeroed and does not use.
 *
 * A library that zeroes large static tables at its start makes them resident, although most of
 * them stay zero. A zero page that is returned reads as zero again and comes back when it is
 * written, so the library does not notice. This is only safe while nothing writes to it: no
 * thread may be inside the library. */
#ifndef GW_BASE_MEM_TRIM_H
#define GW_BASE_MEM_TRIM_H

#include <stddef.h>

/* Returns the zero pages in the .bss of the library that contains the address `inside`. Returns
 * the number of bytes, 0 if there is no library. */
size_t mem_trim_unused(const void *inside);

#endif
