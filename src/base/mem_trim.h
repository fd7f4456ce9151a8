/* mem_trim: returns to the kernel the memory that a loaded library has zeroed and does not use.
 *
 * A library that zeroes large static tables at its start makes them resident, although most of
 * them stay zero. A returned page reads as zero and becomes resident again when it is written,
 * so the library does not notice. This is only safe while no thread is inside the library,
 * because nothing may write to the pages meanwhile. */
#ifndef GW_BASE_MEM_TRIM_H
#define GW_BASE_MEM_TRIM_H

#include <stddef.h>

/* Returns to the kernel the zero pages in the .bss of the library that contains the address
 * `inside`. The result is the number of bytes; 0 if there is no such library. */
size_t mem_trim_unused(const void *inside);

#endif
